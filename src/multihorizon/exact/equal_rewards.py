"""Exclusion restrictions: the discounts at which one expert's reward by state and action is the same for some pairs.

Without restrictions the policy of a single expert fits a reward by state and action at every discount (Rust 1994; Magnac and
Thesmar 2002): with `ℓ(s,a) = λ log π(a|s)`, V = 0 at terminal states and any V elsewhere,

    r(s,a) = ℓ(s,a) + V(s) − γ Σ_s' T(s'|s,a) V(s').

Let the reward of one action a₀ be 0 in every state. Then `V = −(I − γT_{a₀})^{-1} ℓ(·,a₀)`, and each restriction that two pairs
have the same reward is one equation in γ (Abbring and Daljord 2020):

    g(γ) = r(s,a) − r(s',a') = 0.

g is a power series in γ, so several discounts may solve it.

*All of its zeros.* No eigenvalue of T_{a₀} is larger than 1, so g is analytic in the open unit disc. On the intervals
[1 − h, 1 − h/2], h = 1, 1/2, 1/4, …, the polynomial of degree n through Chebyshev points is wrong by about 5.8^{−n}, because an
ellipse around the interval whose half-axes sum to 3 + √8 half-widths lies inside the disc. The zeros of that polynomial come
from the eigenvalues of a matrix (Boyd 2002), so none is overlooked between two points of a grid. Zeros of its derivative are kept
too: there g may touch 0 without crossing it, a double root. `identify` refines all of them and judges which explain the expert.

References:
    J. P. Boyd (2002). Computing zeros on a real interval through Chebyshev expansion and polynomial rootfinding. SIAM Journal on
    Numerical Analysis 40, 1666-1682.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.polynomial import chebyshev
from scipy.sparse.csgraph import connected_components

from multihorizon.checks import TINY, Floats, Ints, first_few, place_of
from multihorizon.exact.equations import PolicyEquations, read_equations
from multihorizon.mdp import MDP, refuse_durations
from multihorizon.planning.linear import matrix_resolvent
from multihorizon.problem import Problem

#: A state and an action, by label.
Pair = tuple[Any, Any]


class EqualRewards:
    """One expert whose reward is 0 for one action and the same for some pairs of state and action.

    Attributes:
        zero_action: the label of that action.
        pairs: the restrictions `(m,2)`, each two rows `a·S + s`.
        problem: the expert, with one reward parameter for each group of pairs that have the same reward.
    """

    def __init__(self, problem: Problem, zero_action: object, equal_rewards: object) -> None:
        refuse_durations(problem.mdps, "zero_action")
        if len(problem.experts) != 1:
            raise ValueError(
                f"zero_action takes one expert in one task, got {len(problem.experts)}: ask expert by expert "
                "(Problem.with_experts), or without it, for a reward that all experts share"
            )
        expert = problem.experts[0]
        if not problem.tabular or expert.whole is not None:
            what = "features" if expert.whole is None else "states in which the expert was not observed"
            raise ValueError(f"zero_action takes one reward for each state and action, got a problem with {what}")
        if expert.policy is None or expert.counts is not None:
            raise ValueError(
                f"expert {expert.name} must be given as a policy of probabilities where zero_action is given, got {expert.kind}"
            )
        mdp = expert.mdp
        zero = place_of(zero_action, mdp.action_names, "zero_action", "action")
        lacking = np.flatnonzero(~mdp.terminal & ~mdp.available[:, zero])
        if lacking.size:
            names = first_few([mdp.state_names[i] for i in lacking])
            raise ValueError(f"zero_action {mdp.action_names[zero]} must be available in every state, got none in {names}")
        self.zero_action = mdp.action_names[zero]
        self.pairs = _read_pairs(mdp, zero, equal_rewards)
        self._policy: PolicyEquations = read_equations(expert)
        self._zero = zero
        live = mdp.live.T.ravel()
        zeros = zero * mdp.n_states + np.flatnonzero(~mdp.terminal)
        # Pairs of one group share a column; the group of the zero action has none.
        joined = np.vstack([self.pairs, np.stack([zeros[:-1], zeros[1:]], axis=1)])
        links = sp.coo_array((np.ones(len(joined)), joined.T), shape=(live.size, live.size))
        group = connected_components(links, directed=False)[1]
        free = np.flatnonzero(live & (group != group[zeros[0]]))
        if not free.size:
            raise ValueError("equal_rewards must leave rewards that are not 0, got equations with zero_action for all of them")
        _, first, column = np.unique(group[free], return_index=True, return_inverse=True)
        order = np.argsort(first)
        column = np.argsort(order)[column]
        features = sp.csr_array((np.ones(free.size), (free, column)), shape=(live.size, first.size))
        parameters = [" = ".join(_said(mdp, row) for row in free[column == place]) for place in range(first.size)]
        self.problem = problem.with_experts([replace(expert, features=features)], tuple(parameters))

    def candidates(self, temperature: float) -> Floats:
        """Return all zeros of the restrictions and of their derivatives; none where every restriction holds at all discounts."""
        nodes = chebyshev.chebpts1(25)
        invert = np.linalg.inv(chebyshev.chebvander(nodes, nodes.size - 1))
        widths = 0.5 ** np.arange(20)  # up to a discount of 1 − 1e-6
        centres, halves = 1 - 0.75 * widths, 0.25 * widths
        differences, sizes = self._differences((centres[:, None] + halves[:, None] * nodes).ravel(), temperature)
        telling = (np.abs(differences) > 1e-12 * sizes).any(axis=0)  # others hold at every discount
        if not telling.any():
            return np.empty(0)
        places = [np.array([0.0, float(centres[-1] + halves[-1])])]
        for restriction in np.flatnonzero(telling):
            values = differences[:, restriction].reshape(widths.size, nodes.size)
            for centre, half, here in zip(centres, halves, values, strict=True):
                coefficients = invert @ here
                trimmed = chebyshev.chebtrim(coefficients, 1e-14 * max(float(np.abs(coefficients).max()), TINY))
                for series in (trimmed, chebyshev.chebder(trimmed)):
                    roots = chebyshev.chebroots(series) if series.size > 1 else np.empty(0)
                    near = roots.real[(np.abs(roots.imag) <= 1e-6) & (np.abs(roots.real) <= 1 + 1e-6)]
                    places.append(np.clip(centre + half * near, 0.0, 1.0))
        return np.unique(np.concatenate(places).round(13))

    def _differences(self, discounts: Floats, temperature: float) -> tuple[Floats, Floats]:
        """Return `g(γ)` `(n,m)` at discounts `(n,)`, and the size of the terms that it sums."""
        mdp, policy = self._policy.mdp, self._policy
        first, second = self.pairs.T
        states = sp.csr_array(sp.vstack([sp.eye_array(mdp.n_states)] * mdp.n_actions))
        here, following = states[first] - states[second], mdp.stacked[first] - mdp.stacked[second]
        logs = temperature * policy.log_policy.T.ravel()
        direct = logs[first] - logs[second]
        under = mdp.transition(self._zero)
        differences, sizes = np.empty((2, discounts.size, first.size))
        for number, gamma in enumerate(discounts.tolist()):
            values = -matrix_resolvent(mdp, under, gamma).solve(temperature * policy.log_policy[:, self._zero])
            later = here - gamma * following
            differences[number] = direct + later @ values
            sizes[number] = np.abs(logs[first]) + np.abs(logs[second]) + abs(later) @ np.abs(values)
        return differences, sizes


def _read_pairs(mdp: MDP, zero: int, equal_rewards: object) -> Ints:
    """Return the restrictions as rows `(m,2)`."""
    shape = "equal_rewards must hold entries ((state, action), (state, action))"
    if isinstance(equal_rewards, str) or not isinstance(equal_rewards, Iterable):
        raise ValueError(f"{shape}, got {equal_rewards!r}"[:200])
    rows: list[tuple[int, int]] = []
    for entry in equal_rewards:
        both = tuple(entry) if isinstance(entry, list | tuple) else ()
        if len(both) != 2 or not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in both):
            raise ValueError(f"{shape}, got {entry!r}"[:200])
        places = []
        for given in both:
            state = place_of(given[0], mdp.state_names, "equal_rewards", "state")
            action = place_of(given[1], mdp.action_names, "equal_rewards", "action")
            row = action * mdp.n_states + state
            if not mdp.live[state, action]:
                why = "the state is terminal" if mdp.terminal[state] else "the action is not available there"
                raise ValueError(f"equal_rewards must name decisions that can be made, got {_said(mdp, row)}: {why}")
            places.append(row)
        low, high = sorted(places)
        said = f"{_said(mdp, places[0])} and {_said(mdp, places[1])}"
        if low == high:
            raise ValueError(f"equal_rewards must name two different pairs in each entry, got {said}")
        if low // mdp.n_states == zero == high // mdp.n_states:
            raise ValueError(f"equal_rewards must not name zero_action twice in an entry, got {said}: both rewards are 0")
        if (low, high) in rows:
            raise ValueError(f"equal_rewards must hold each restriction once, got {said} twice")
        rows.append((low, high))
    return np.array(rows, dtype=np.int64).reshape(-1, 2)


def _said(mdp: MDP, row: int) -> str:
    action, state = divmod(int(row), mdp.n_states)
    return f"{mdp.action_names[action]} in {mdp.state_names[state]}"
