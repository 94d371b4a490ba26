"""A start for exact planning: modified policy iteration, by sweeps that need no factorisation.

One round takes the best action of every state and then `SWEEPS` sweeps `V ← R_π + γ P_π V` with these actions (Puterman and Shin,
1978). A sweep costs one product with the sparse `P_π`, far less than a sweep over all actions. Information travels one transition
per sweep.

The rounds end when no state can gain more than rounding, or when sweeps no longer help: few states still change, and the sweeps
of a round leave more than `SLOW` of the first one's change. Exact policy iteration (`plan`) takes over in both cases, so that
nothing about the answer depends on where the rounds end.

Exact planning by policy iteration, started from sweeps.

Each step solves `(I − γ P_π) V = R_π` and then changes the action of a state only where the best action gains more than rounding.
A state whose action is as good as the best keeps it. Every exact step therefore raises the values, and the loop ends when no
state can gain. Always taking the first best action would not do: on grids with ties it can cycle among equally good policies.

On more than a few states the first policy comes from sweeps (`sweeps`), and while states still gain, values are solved for only
to a part of what they gain. The last solve is to rounding, and nothing may gain after it.

At discount 1 the iteration starts from a policy that heads for a terminal state, and each policy on the way must end.

Planning with weights of the future that need not be exponential, for many persons at once.

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

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import ROUNDING, TINY, Bools, Floats, Ints, Sparse, as_discount, as_non_negative
from multihorizon.mdp import MDP, steps_into
from multihorizon.planning.evaluation import require_ending
from multihorizon.planning.linear import DENSE_STATES, DIRECT_STATES, matrix_resolvent, policy_resolvent

#: Sweeps in a round, and the most rounds.
SWEEPS, ROUNDS = 25, 600
#: Sweeps stop helping where less than this share of the states changes and more than that share of the change is left.
FEW, SLOW = 0.01, 0.6
#: Once no state gains, sweeps go on while a round leaves less than this share of the change: it is exact before long.
SETTLING = 0.1


class Actions:
    """The stacked transitions of an MDP with their immediate rewards `(A,S)`, read off for one action per state."""

    def __init__(self, mdp: MDP, expected: Floats) -> None:
        self.mdp = mdp
        self.expected = np.ascontiguousarray(expected.T)
        self._rows = np.arange(mdp.n_states)

    def q(self, values: Floats, gamma: float) -> Floats:
        """`R + γ T V` `(A,S)`."""
        q: Floats = (self.mdp.stacked @ values).reshape(self.expected.shape)
        q *= gamma
        q += self.expected
        return q

    def of(self, table: Floats, actions: Ints) -> Floats:
        """The entries `(S,)` of a table `(A,S)` at one action per state."""
        chosen: Floats = table[actions, self._rows]
        return chosen

    def under(self, actions: Ints) -> Sparse:
        """`P_π` of one action per state."""
        return self.mdp.stacked[actions * self.mdp.n_states + self._rows]


def first_best(q: Floats, best: Floats) -> Ints:
    """The first best action of each state, `argmax` along the first axis, in one pass per action."""
    actions = np.zeros(best.size, dtype=np.int64)
    for action in range(q.shape[0] - 1, -1, -1):
        np.putmask(actions, q[action] >= best, action)
    return actions


def rounding(values: Floats, best: Floats) -> float:
    """Gains up to this size are rounding."""
    return ROUNDING * max(TINY, float(np.abs(values).max(initial=0.0)), float(np.abs(best).max(initial=0.0)))


def sweep_start(table: Actions, gamma: float) -> tuple[Floats, Ints, float]:
    """Values and actions to start exact planning from, at a discount below 1, and the largest gain that they leave, 0 if none."""
    best = table.expected.max(axis=0)
    actions = first_best(table.expected, best)
    for _ in range(ROUNDS):
        matrix, immediate = gamma * table.under(actions), table.of(table.expected, actions)
        values, left = _sweep(matrix, immediate, best)
        q = table.q(values, gamma)
        best = q.max(axis=0)
        gains = best - table.of(q, actions)
        gaining = int((gains > rounding(values, best)).sum())
        if not gaining:
            return _settled(matrix, immediate, values, left), actions, 0.0
        actions = first_best(q, best)
        if gaining < FEW * values.size and left > SLOW:
            break
    return values, actions, float(gains.max())


def _settled(matrix: Sparse, immediate: Floats, values: Floats, left: float) -> Floats:
    """The values after further rounds of sweeps with the same actions, as long as a round leaves next to nothing."""
    while 0 < left < SETTLING:
        values, left = _sweep(matrix, immediate, values)
    return values


def _sweep(matrix: Sparse, immediate: Floats, values: Floats) -> tuple[Floats, float]:
    """The values after the sweeps of a round, and the share of the first sweep's change that the last one still makes."""
    first = last = 0.0
    for number in range(SWEEPS):
        swept = matrix @ values
        swept += immediate
        if number == 0:
            first = float(np.abs(swept - values).max(initial=0.0))
        elif number == SWEEPS - 1:
            last = float(np.abs(swept - values).max(initial=0.0))
        values = swept
    return values, last / max(first, TINY)


#: While states gain, values are solved for to this share of the largest gain, in at most so many steps; then exactly.
INEXACT, INEXACT_STEPS = 0.1, 100


@dataclass(frozen=True)
class Plan:
    """An optimal plan: one-hot `policy` (S,A) on the first optimal action, `values` (S,), `q` (S,A), all `optimal_actions`.

    `q` is −inf where an action is not available. `residual` is `max |max_a Q(s,a) − V(s)|`, recomputed from the answer.
    """

    policy: Floats
    values: Floats
    q: Floats
    optimal_actions: Bools
    residual: float
    iterations: int


def plan(mdp: MDP, reward: ArrayLike, discount: float, tie_tolerance: float = 1e-10) -> Plan:
    """The optimal values and all optimal actions of `mdp` under one reward and discount.

    Args:
        mdp: the decision process.
        reward: `(S,)` paid on arrival, or expected immediate reward `(S,A)`.
        discount: in [0,1]; 1 is legal where every policy met on the way ends.
        tie_tolerance: an action counts as optimal if it is worse than the best by at most this share of the range of optimal
            values.

    Raises:
        ValueError: on malformed input, or at discount 1 where a policy never ends, naming the states.

    Example:
        >>> mdp = MDP([[[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[1, 0, 0], [1, 0, 0], [0, 0, 0]]], terminal=[2])
        >>> plan(mdp, [0, 0, 10], 0.5).values.tolist()
        [5.0, 10.0, 0.0]
    """
    gamma = as_discount(discount)
    as_non_negative(tie_tolerance, "tie_tolerance")
    table = Actions(mdp, np.where(mdp.available, mdp.expected_reward(reward), -np.inf))
    values, actions, largest = _start(table, gamma)
    total, iterations, exact = -np.inf, 0, largest == 0
    while True:
        iterations += 1
        values = _policy_values(table, actions, gamma, values, 0.0 if exact else INEXACT * largest)
        q = table.q(values, gamma)
        best = q.max(axis=0)
        gains = best - table.of(q, actions)
        largest = float(gains.max())
        improved = gains > rounding(values, best)
        if exact and not (improved.any() and values.sum() > total):
            break
        if exact:
            total = float(values.sum())
        exact = iterations > INEXACT_STEPS or not improved.any() or mdp.n_states <= DIRECT_STATES
        actions = np.where(improved, first_best(q, best), actions)
    optimal = _ties(q.T, best, tie_tolerance)
    policy = one_hot(_first_optimal(mdp, optimal, actions, gamma), mdp.n_actions)
    return Plan(policy, values, q.T, optimal, float(np.abs(best - values).max()), iterations)


def one_hot(actions: Ints, n_actions: int) -> Floats:
    """The deterministic policy `(S,A)` of one action per state `(S,)`."""
    policy: Floats = np.eye(n_actions)[actions]
    return policy


def _policy_values(table: Actions, actions: Ints, gamma: float, guess: Floats, residual: float) -> Floats:
    """The values of one action per state, up to this residual."""
    mdp, immediate = table.mdp, table.of(table.expected, actions)
    if gamma == 1:
        require_ending(mdp, one_hot(actions, mdp.n_actions), gamma)
    if mdp.n_states <= DENSE_STATES:
        return policy_resolvent(mdp, one_hot(actions, mdp.n_actions), gamma).solve(immediate)
    tolerance = residual / max(float(np.abs(immediate).max()), TINY)
    return matrix_resolvent(mdp, table.under(actions), gamma).solve(immediate, tolerance=tolerance, guess=guess)


def _ties(q: Floats, best: Floats, tolerance: float) -> Bools:
    """Actions as good as the best, up to a share of the range of the optimal values; the values of bad actions do not matter."""
    ties: Bools = best[:, None] - q <= tolerance * float(np.ptp(best)) + ROUNDING * float(np.abs(best).max())
    return ties


def _start(table: Actions, gamma: float) -> tuple[Floats, Ints, float]:
    """First values, policy and gain: toward an end at discount 1, from sweeps on more than a few states, else myopic."""
    nothing = np.zeros(table.mdp.n_states)
    if gamma == 1:
        return nothing, toward_end(table.mdp), 0.0
    if table.mdp.n_states > DENSE_STATES:
        return sweep_start(table, gamma)
    return nothing, first_best(table.expected, table.expected.max(axis=0)), 0.0


def toward_end(mdp: MDP) -> Ints:
    """One action per state that takes a shortest path to a terminal state with positive probability."""
    require_ending(mdp, None, 1.0)
    n = mdp.n_states
    targets = steps_into(mdp.under(mdp.available / 1.0), mdp.terminal)
    chances = np.stack([mdp.transition(a)[np.arange(n), targets] for a in range(mdp.n_actions)], axis=1)
    chosen: Ints = np.where(mdp.available, chances, -1.0).argmax(axis=1)
    return chosen


def _first_optimal(mdp: MDP, optimal: Bools, actions: Ints, gamma: float) -> Ints:
    """The first optimal action of each state; at discount 1 only if following it ends, else the iteration's own policy."""
    first: Ints = optimal.argmax(axis=1)
    if gamma == 1 and mdp.never_ends(one_hot(first, mdp.n_actions)).any():
        return actions
    return first


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
