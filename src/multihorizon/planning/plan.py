"""Exact planning by policy iteration, started from sweeps.

Each step solves `(I − γ P_π) V = R_π` and then changes the action of a state only where the best action gains more than rounding.
A state whose action is as good as the best keeps it. Every exact step therefore raises the values, and the loop ends when no
state can gain. Always taking the first best action would not do: on grids with ties it can cycle among equally good policies. At
discount 1 the iteration starts from a policy that heads for a terminal state, and each policy on the way must end.

On more than a few states the first policy comes from modified policy iteration (Puterman and Shin, 1978). A round takes the best
action of every state and then 25 sweeps `V ← R_π + γ P_π V` with these actions. A sweep costs one product with the sparse `P_π`,
far less than a sweep over all actions. The rounds end when no state can gain more than rounding, or when sweeps no longer help:
few states still change, and the sweeps of a round leave much of the first one's change. Exact policy iteration takes over in both
cases, so that nothing about the answer depends on where the rounds end. While states still gain, values are solved for only to a
part of what they gain. The last solve is to rounding, and nothing may gain after it.
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
        return table[actions, self._rows]

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
    for _ in range(600):
        matrix, immediate = gamma * table.under(actions), table.of(table.expected, actions)
        values, left = _sweep(matrix, immediate, best)
        q = table.q(values, gamma)
        best = q.max(axis=0)
        gains = best - table.of(q, actions)
        gaining = int((gains > rounding(values, best)).sum())
        if not gaining:
            # As long as a round leaves next to nothing, sweeps with the same actions are exact before long.
            while 0 < left < 0.1:
                values, left = _sweep(matrix, immediate, values)
            return values, actions, 0.0
        actions = first_best(q, best)
        if gaining < 0.01 * values.size and left > 0.6:
            break
    return values, actions, float(gains.max())


def _sweep(matrix: Sparse, immediate: Floats, values: Floats) -> tuple[Floats, float]:
    """The values after the 25 sweeps of a round, and the share of the first sweep's change that the last one still makes."""
    first = last = 0.0
    for number in range(25):
        swept = matrix @ values
        swept += immediate
        if number == 0:
            first = float(np.abs(swept - values).max(initial=0.0))
        elif number == 24:
            last = float(np.abs(swept - values).max(initial=0.0))
        values = swept
    return values, last / max(first, TINY)


@dataclass(frozen=True)
class Plan:
    """An optimal plan: one-hot `policy` (S,A) on the first optimal action, `values` (S,), `q` (S,A), all `optimal_actions`.

    At discount 1 the policy is one that ends. `q` is −inf where an action is not available. `residual` is
    `max |max_a Q(s,a) − V(s)|`, recomputed from the answer.
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
    if gamma == 1:
        values, actions, largest = np.zeros(mdp.n_states), toward_end(mdp), 0.0
    elif mdp.n_states > DENSE_STATES:
        values, actions, largest = sweep_start(table, gamma)
    else:
        values, actions, largest = np.zeros(mdp.n_states), first_best(table.expected, table.expected.max(axis=0)), 0.0
    total, iterations, exact = -np.inf, 0, largest == 0
    while True:
        iterations += 1
        values = _policy_values(table, actions, gamma, values, 0.0 if exact else 0.1 * largest)
        q = table.q(values, gamma)
        best = q.max(axis=0)
        gains = best - table.of(q, actions)
        largest = float(gains.max())
        improved = gains > rounding(values, best)
        if exact and not (improved.any() and values.sum() > total):
            break
        if exact:
            total = float(values.sum())
        exact = iterations > 100 or not improved.any() or mdp.n_states <= DIRECT_STATES
        actions = np.where(improved, first_best(q, best), actions)
    # A share of the range of the optimal values: the values of bad actions do not matter.
    tied = tie_tolerance * float(np.ptp(best)) + ROUNDING * float(np.abs(best).max())
    optimal: Bools = best[:, None] - q.T <= tied
    policy = one_hot(optimal.argmax(axis=1), mdp.n_actions)
    if gamma == 1 and mdp.never_ends(policy).any():
        policy = one_hot(actions, mdp.n_actions)
    return Plan(policy, values, q.T, optimal, float(np.abs(best - values).max()), iterations)


def one_hot(actions: Ints, n_actions: int) -> Floats:
    """The deterministic policy `(S,A)` of one action per state `(S,)`."""
    return np.eye(n_actions)[actions]


def _policy_values(table: Actions, actions: Ints, gamma: float, guess: Floats, residual: float) -> Floats:
    """The values of one action per state, up to this residual."""
    mdp, immediate = table.mdp, table.of(table.expected, actions)
    if gamma == 1:
        require_ending(mdp, one_hot(actions, mdp.n_actions), gamma)
    if mdp.n_states <= DENSE_STATES:
        return policy_resolvent(mdp, one_hot(actions, mdp.n_actions), gamma).solve(immediate)
    tolerance = residual / max(float(np.abs(immediate).max()), TINY)
    return matrix_resolvent(mdp, table.under(actions), gamma).solve(immediate, tolerance=tolerance, guess=guess)


def toward_end(mdp: MDP) -> Ints:
    """One action per state that takes a shortest path to a terminal state with positive probability."""
    require_ending(mdp, None, 1.0)
    n = mdp.n_states
    targets = steps_into(mdp.under(mdp.available / 1.0), mdp.terminal)
    chances = np.stack([mdp.transition(a)[np.arange(n), targets] for a in range(mdp.n_actions)], axis=1)
    chosen: Ints = np.where(mdp.available, chances, -1.0).argmax(axis=1)
    return chosen


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
