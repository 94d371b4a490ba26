"""What a learned reward says about the experts, recomputed from the answer by policy evaluation.

For each expert: is its policy reproduced (no action better than the chosen ones, chosen ones equally good), with which worst
margin, and over which interval of discounts around its own does it stay optimal under the learned reward? The interval is
found with the Taylor expansions of `intervals.py` in both directions from the expert's discount, so no crossing is overlooked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.planning.breakpoints import first_departure
from multihorizon.planning.evaluation import evaluate
from multihorizon.planning.plan import one_hot
from multihorizon.programs.margins import Margins

#: Share of the largest action value below which a gap is rounding of the linear program.
REPRODUCED = 1e-7


@dataclass(frozen=True, eq=False)
class Explanation:
    """Per expert: margins `(S,A)` of the chosen action, whether the policy is reproduced, and the interval of discounts."""

    margins: tuple[Floats, ...]
    reproduced: tuple[bool, ...]
    intervals: tuple[tuple[float, float], ...]

    def strict(self, margins: Margins) -> Floats:
        """The margins of the strict rows, in their order."""
        rows = margins.strict
        found: Floats = np.stack(self.margins)[rows.expert, rows.state, rows.action] if len(rows) else np.zeros(0)
        return found


def explain(margins: Margins, parameters: Floats, discounts: Floats) -> Explanation:
    """Evaluate every expert's policy under the learned reward at its learned discount."""
    problem = margins.problem
    found: list[Floats] = []
    reproduced: list[bool] = []
    intervals: list[tuple[float, float]] = []
    for k, expert in enumerate(problem.experts):
        gamma = float(discounts[k])
        reward = expert.expected_reward(parameters)
        q = evaluate(expert.mdp, one_hot(margins.policies[k], expert.mdp.n_actions), reward, gamma).q
        gaps = q[np.arange(len(q)), margins.policies[k]][:, None] - q
        noise = REPRODUCED * float(np.abs(q).max(initial=0.0))
        sets = expert.require_sets()
        kept = _holds(gaps, sets, expert.mdp.available, noise)
        found.append(gaps)
        reproduced.append(kept)
        ends = [_end(margins, k, reward, gamma, noise, way) for way in (-1, 1)] if kept else [gamma, gamma]
        intervals.append((ends[0], ends[1]))
    return Explanation(tuple(found), tuple(reproduced), tuple(intervals))


def _holds(gaps: Floats, sets: Bools, available: Bools, noise: float) -> bool:
    better = available & (gaps < -noise)
    unequal = sets & available & (np.abs(gaps) > noise)
    return not (better.any() or unequal.any())


def _end(margins: Margins, k: int, reward: Floats, gamma: float, noise: float, way: int) -> float:
    expert = margins.problem.experts[k]
    return first_departure(expert.mdp, reward, margins.policies[k], expert.require_sets(), gamma, way, noise)


def order_of_horizons(names: tuple[str, ...], discounts: Floats) -> list[list[str]]:
    """The experts from the shortest horizon to the longest; those whose discounts agree to 1e-9 share a place."""
    order: list[list[str]] = []
    last = -1.0
    for k in np.argsort(discounts, kind="stable"):
        if order and discounts[k] - last <= 1e-9:
            order[-1].append(names[k])
        else:
            order.append([names[k]])
        last = float(discounts[k])
    return order


def evidence(margins: Margins, parameters: Floats, discounts: Floats, omega: Bools) -> dict[str, Any]:
    """The part of a solution's evidence that every LP solver gives."""
    names = margins.problem.names
    explained = explain(margins, parameters, discounts)
    strict = explained.strict(margins)
    return {
        "intervals": {name: list(pair) for name, pair in zip(names, explained.intervals, strict=True)},
        "order": order_of_horizons(names, discounts),
        "reproduced": dict(zip(names, explained.reproduced, strict=True)),
        "omega_sizes": {name: int(omega[margins.strict.expert == k].sum()) for k, name in enumerate(names)},
        "rows": {name: int((margins.strict.expert == k).sum()) for k, name in enumerate(names)},
        "worst_margin": float(strict[omega].min()) if omega.any() else 0.0,
        "violation": _violation(margins, explained, strict),
    }


def _violation(margins: Margins, explained: Explanation, strict: Floats) -> float:
    """By how much the worst row fails: a negative margin, or a tie that does not hold."""
    rows = margins.ties
    ties = np.abs(np.stack(explained.margins)[rows.expert, rows.state, rows.action]) if len(rows) else np.zeros(1)
    return max(0.0, -float(strict.min(initial=0.0)), float(ties.max()))
