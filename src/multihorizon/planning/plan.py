"""Exact planning by policy iteration, started from sweeps.

Each step solves `(I − γ P_π) V = R_π` and then changes the action of a state only where the best action gains more than rounding.
A state whose action is as good as the best keeps it. Every exact step therefore raises the values, and the loop ends when no
state can gain. Always taking the first best action would not do: on grids with ties it can cycle among equally good policies.

On more than a few states the first policy comes from sweeps (`sweeps`), and while states still gain, values are solved for only
to a part of what they gain. The last solve is to rounding, and nothing may gain after it.

At discount 1 the iteration starts from a policy that heads for a terminal state, and each policy on the way must end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from multihorizon.checks import Bools, Floats, Ints, as_discount, as_non_negative
from multihorizon.mdp import MDP, steps_into
from multihorizon.planning.evaluation import require_ending
from multihorizon.planning.linear import DENSE_STATES, DIRECT_STATES, matrix_resolvent, policy_resolvent
from multihorizon.planning.sweeps import Actions, first_best, rounding, sweep_start
from multihorizon.tolerances import ROUNDING, TINY

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
