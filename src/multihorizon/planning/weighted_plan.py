"""Planning with weights of the future that need not be exponential, for many persons at once.

A person weighs what happens t steps from now by d(t), d(1) = 1, and plans today for today's weights: tomorrow's self may want
another plan, and the person does not expect that (the *naive* person). They maximise `E Σ_t d(t) [R_t + λ H_t]`, R the expected
immediate reward `(A·S,)`, λ the temperature and H the entropy of the choice. With the step discounts `ρ_t = d(t+1)/d(t)` and V_t
the value of a state t steps from now, in units of that step's weight,

    Q_t = R + ρ_{t+1} T V_{t+1},    V_t(s) = λ log Σ_a exp(Q_t(s,a)/λ),    log π(a|s) = (Q_0(s,a) − V_0(s))/λ.

After H steps, the most that the task allows, nothing is left and V_H = 0. With ρ_t = γ for all t, V_t is the soft value at
discount γ in every state from which the task ends in H − t steps, and π is the policy of `soft_plan`.
Arrays have one column for each of n persons.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints
from multihorizon.mdp import MDP


def weighted_plan(mdp: MDP, reward: Floats, step_discounts: Floats, temperatures: Floats) -> tuple[Floats, Floats]:
    """The values `(H+1,S,n)` of states 0, …, H steps from now, and the logarithms `(H,A,S,n)` of the choices planned for them.

    Args:
        mdp: a task of at most H steps.
        reward: the expected immediate reward `(A·S,)` of rows a·S + s.
        step_discounts: ρ `(H−1,n)`.
        temperatures: λ `(n,)`.
    """
    a, s, n = mdp.n_actions, mdp.n_states, temperatures.size
    steps = len(step_discounts) + 1
    now = np.where(mdp.available.T.ravel(), reward, -np.inf).reshape(a, s, 1)
    values, log = np.zeros((steps + 1, s, n)), np.empty((steps, a, s, n))
    for t in reversed(range(steps)):
        q = now if t == steps - 1 else now + step_discounts[t] * (mdp.stacked @ values[t + 1]).reshape(a, s, n)
        log[t], found = log_policies(q, temperatures)
        values[t] = np.where(mdp.terminal[:, None], 0.0, found)
    return values, log


def log_policies(q: Floats, temperatures: Floats) -> tuple[Floats, Floats]:
    """`log π` `(A,S,n)` of action values, −inf where an action is unavailable, and `λ log Σ_a exp(Q/λ)` `(S,n)`."""
    scaled = q / temperatures
    peak = scaled.max(axis=0)
    shifted = scaled - peak
    total = np.log(np.exp(shifted).sum(axis=0))
    return shifted - total, temperatures * (peak + total)


def episodic_levels(mdp: MDP) -> list[Ints] | None:
    """The states that are not terminal, sorted so that each level leads to earlier ones and endings only; None for cycles."""
    moves = sp.csr_array(mdp.under(mdp.available / 1.0))
    graph = sp.csr_array((moves.data > 0, moves.indices, moves.indptr), shape=moves.shape).astype(np.int64)
    waiting = ~mdp.terminal
    open_successors = graph @ waiting.astype(np.int64)
    into = graph.T.tocsr()
    levels: list[Ints] = []
    while waiting.any():
        ready = np.flatnonzero(waiting & (open_successors == 0))
        if not ready.size:
            return None
        levels.append(ready)
        waiting[ready] = False
        np.subtract.at(open_successors, into[ready].indices, 1)
    return levels


def steps_left(mdp: MDP) -> Ints | None:
    """The most decisions that can follow from each state on, its own included, `(S,)`; None where a state can come again."""
    levels = episodic_levels(mdp)
    if levels is None:
        return None
    left = np.zeros(mdp.n_states, dtype=np.int64)
    for number, level in enumerate(levels):
        left[level] = number + 1
    return left
