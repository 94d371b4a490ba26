"""From the best discounts of a search to a solution: what the reward explains, status, message, evidence.

Everything is recomputed from the answer by policy evaluation. For each expert: is its policy reproduced (no action better than
the chosen ones, chosen ones equally good), and over which interval of discounts around its own does it stay optimal under the
learned reward? The interval is found with the Taylor expansions of `planning/breakpoints.py` in both directions from the
expert's discount, so no crossing is overlooked. An expert of several tasks must be reproduced in all, and has the interval
that its tasks share.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from multihorizon.checks import Floats
from multihorizon.planning.breakpoints import first_departure
from multihorizon.planning.evaluation import evaluate
from multihorizon.planning.plan import one_hot
from multihorizon.programs.contradiction import contradiction
from multihorizon.programs.highs import INFINITY
from multihorizon.programs.inner import Evaluation, Inner
from multihorizon.programs.margins import MarginRows, Margins, Part
from multihorizon.search import SearchResult
from multihorizon.solution import Solution, Status
from multihorizon.tolerances import ENDLESS_DISCOUNT

#: Gaps below this share of the largest action value are rounding of the linear program.
REPRODUCED = 1e-7
#: Discounts closer than this share a place in the order of horizons, or rest on a limit.
SAME_DISCOUNT = 1e-9
#: A reward below this share of its bound is zero.
ZERO_REWARD = 1e-9


def answer(solver: str, inner: Inner, point: Evaluation, search: SearchResult | None, status: Status) -> Solution:
    """The solution at a point; `status` is its status unless a check fails.

    `search` is what led to the point, None where the discounts were known.
    """
    if not point.has_reward:
        return _without_reward(solver, inner, point, search)
    margins, names = inner.margins, inner.margins.names
    found = {**(search.evidence if search else {}), **_explained(inner, point)}
    residual = max(found["violation"], abs(_recomputed(inner, point) - point.objective))
    unseparated = inner.unseparated(inner.omega(point.discounts)) if inner.objective == "sum" else ()
    found["indistinguishable"] = [[names[i], names[j]] for i, j in (*margins.alike, *unseparated)]
    status, message = _judge(inner, point, status, found)
    if search is not None:
        message += _resting(margins, point.discounts)
        if not search.converged and status == Status.CONVERGED:
            status, message = Status.NOT_CONVERGED, f"{message}; the best start stopped before it settled"
    trace = search.trace if search else None
    return Solution(
        solver, status, message, names, point.discounts, point.parameters, point.objective, residual, trace=trace, evidence=found
    )


def _explained(inner: Inner, point: Evaluation) -> dict[str, Any]:
    """What the reward says about the experts."""
    margins, names, omega = inner.margins, inner.margins.names, point.omega
    gaps = [_gaps(part, point) for part in margins.parts]
    reproduced = [_holds(part, gap, noise) for part, (gap, noise) in zip(margins.parts, gaps, strict=True)]
    strict, ties = (_at_rows(rows, [gap for gap, _ in gaps]) for rows in (margins.strict, margins.ties))
    intervals = {name: [0.0, 1.0] for name in names}
    for part, kept, (_, noise) in zip(margins.parts, reproduced, gaps, strict=True):
        low, high = _interval(part, point, noise) if kept else 2 * (float(point.discounts[part.k]),)
        intervals[names[part.k]] = [max(intervals[names[part.k]][0], low), min(intervals[names[part.k]][1], high)]
    whole = dict.fromkeys(names, True)
    for part, kept in zip(margins.parts, reproduced, strict=True):
        whole[names[part.k]] &= kept
    return {
        "intervals": intervals,
        "order": order_of_horizons(names, point.discounts),
        "reproduced": whole,
        "omega_sizes": {name: int(omega[margins.strict.expert == k].sum()) for k, name in enumerate(names)},
        "rows": {name: int((margins.strict.expert == k).sum()) for k, name in enumerate(names)},
        "worst_margin": float(strict[omega].min()) if omega.any() else 0.0,
        "violation": max(0.0, -float(strict.min(initial=0.0)), float(np.abs(ties).max(initial=0.0))),
    }


def _gaps(part: Part, point: Evaluation) -> tuple[Floats, float]:
    """By how much the followed action is better than each action `(S,A)`, and how much of that may be rounding."""
    mdp, reward = part.expert.mdp, part.expert.expected_reward(point.parameters)
    q = evaluate(mdp, one_hot(part.policy, mdp.n_actions), reward, float(point.discounts[part.k])).q
    return q[np.arange(len(q)), part.policy][:, None] - q, REPRODUCED * float(np.abs(q).max(initial=0.0))


def _holds(part: Part, gaps: Floats, noise: float) -> bool:
    available = part.expert.mdp.available
    better = available & (gaps < -noise)
    unequal = part.chosen & available & (np.abs(gaps) > noise)
    return not (better.any() or unequal.any())


def _interval(part: Part, point: Evaluation, noise: float) -> tuple[float, float]:
    mdp, reward, gamma = part.expert.mdp, part.expert.expected_reward(point.parameters), float(point.discounts[part.k])
    low, high = (first_departure(mdp, reward, part.policy, part.chosen, gamma, direction, noise) for direction in (-1, 1))
    return low, high


def _at_rows(rows: MarginRows, gaps: list[Floats]) -> Floats:
    """The gaps of some rows, in their order."""
    found = np.zeros(len(rows))
    for number, gap in enumerate(gaps):
        own = rows.part == number
        found[own] = gap[rows.state[own], rows.action[own]]
    return found


def order_of_horizons(names: tuple[str, ...], discounts: Floats) -> list[list[str]]:
    """The experts from the shortest horizon to the longest; those with one discount share a place."""
    order: list[list[str]] = []
    last = -1.0
    for k in np.argsort(discounts, kind="stable"):
        if order and discounts[k] - last <= SAME_DISCOUNT:
            order[-1].append(names[k])
        else:
            order.append([names[k]])
        last = float(discounts[k])
    return order


def _recomputed(inner: Inner, point: Evaluation) -> float:
    """The objective of the answer from the exact values of the policies rather than from the program's variables."""
    margins = inner.margins.strict.matrix @ inner.margins.continuation(point.parameters, point.discounts)
    penalty = inner.l1 * float(np.abs(point.parameters).sum())
    if inner.objective == "worst":
        return float(margins[point.omega].min(initial=INFINITY)) - penalty
    worst = np.full(inner.layout.n_groups + 1, INFINITY)
    np.minimum.at(worst, inner.layout.group, margins)
    return float(worst[: inner.layout.n_groups].sum()) - penalty


def _judge(inner: Inner, point: Evaluation, status: Status, found: dict[str, Any]) -> tuple[Status, str]:
    if np.abs(point.parameters).max(initial=0.0) <= ZERO_REWARD * inner.bound:
        cause = f"the l1 weight {inner.l1:g} outweighs every margin" if inner.l1 > 0 else "no action can be made strictly better"
        return Status.NOT_IDENTIFIED, f"the best reward is zero and explains nothing: {cause}"
    if found["indistinguishable"]:
        pairs = ", ".join(f"{a} and {b}" for a, b in found["indistinguishable"])
        return Status.INDISTINGUISHABLE, f"experts that cannot be told apart at these discounts: {pairs}"
    order = " < ".join(" = ".join(place) for place in found["order"])
    return status, f"objective {point.objective:.6g}, worst margin {found['worst_margin']:.6g}, horizons {order}"


def _resting(margins: Margins, discounts: Floats) -> str:
    """Which searched discounts rest on the limit of policies that never end, as the end of a message."""
    resting = (margins.limits < 1) & (discounts >= margins.limits - SAME_DISCOUNT)
    names = ", ".join(name for name, rests in zip(margins.names, resting, strict=True) if rests)
    return f"; {names} rest on the limit {ENDLESS_DISCOUNT} of endless policies, which may decide the order" if names else ""


def _without_reward(solver: str, inner: Inner, point: Evaluation, search: SearchResult | None) -> Solution:
    """No reward was found: name the pair and the rows that contradict each other, and give no numbers as an answer."""
    margins, names = inner.margins, inner.margins.names
    found = dict(search.evidence) if search else {}
    failed = bool(point.failed) or (
        search is not None and bool(found.get("failed_programs", np.isnan(search.trace.values).sum()))
    )
    status, message = Status.INFEASIBLE, _why_not(names, point)
    message += f" at any of the {len(search.trace)} discount vectors searched" if search else " at these discounts"
    if point.unseparated:
        found["indistinguishable"] = [[names[i], names[j]] for i, j in point.unseparated]
        found["contradiction"] = contradiction(margins, point.discounts, point.unseparated[0])
    if failed:
        status, message = Status.NOT_CONVERGED, f"{message}, but HiGHS did not solve all programs: there may be one"
    nothing = np.full(margins.n_experts, np.nan), np.full(margins.n_parameters, np.nan)
    trace = search.trace if search else None
    return Solution(solver, status, message, names, *nothing, point.objective, INFINITY, trace=trace, evidence=found)


def _why_not(names: tuple[str, ...], point: Evaluation) -> str:
    if point.singular:
        who = ", ".join(names[k] for k in point.singular)
        return f"values do not exist at discount 1 for experts whose policy never ends: {who}"
    if point.unseparated:
        first, second = point.unseparated[0]
        return f"no reward tells experts {names[first]} and {names[second]} apart"
    return (
        "no reward that explains the experts was found" if point.failed else "no reward makes any chosen action strictly better"
    )
