"""From the best point of a search to a solution: status, message, evidence."""

from __future__ import annotations

from typing import Any

import numpy as np

from multihorizon.programs.contradiction import contradiction
from multihorizon.programs.explained import evidence
from multihorizon.programs.highs import INFINITY
from multihorizon.programs.inner import Inner, Point
from multihorizon.programs.margins import ENDLESS_LIMIT
from multihorizon.programs.sequential import SequentialLP, join_climbs
from multihorizon.progress import Progress
from multihorizon.search import Search
from multihorizon.solution import Solution, Status, Trace


def run_search(inner: Inner, search: Search, seed: int, progress: Progress) -> tuple[Point, Trace, dict[str, Any]]:
    """The best point of a search with the least reward among its optima, the trace, and what the search has to say."""
    if isinstance(search, SequentialLP):
        climbs = search.climbs(inner, seed, progress)
        tops = [climb.best for climb in climbs if climb.best is not None]
        best = max(range(len(tops)), key=lambda i: tops[i].objective)
        said: dict[str, Any] = {
            "starts": [
                {
                    "objective": p.objective,
                    "discounts": p.discounts.tolist(),
                    "evaluations": len(c.values),
                    "converged": c.converged,
                }
                for c, p in zip(climbs, tops, strict=True)
            ],
            "search_converged": climbs[best].converged,
        }
        return _least(inner, tops[best]), join_climbs(climbs), said
    trace = search.run(inner, inner.margins.n_experts, seed, progress)
    return _least(inner, inner.at(trace.best_discounts)), trace, {}


def _least(inner: Inner, point: Point) -> Point:
    return inner.least(point) if point.objective > -INFINITY else point


def answer(solver: str, inner: Inner, point: Point, trace: Trace | None, said: dict[str, Any], status: Status) -> Solution:
    """The solution at a point; `status` is what it is called if nothing stands against it."""
    margins = inner.margins
    names = margins.problem.names
    if not point.objective > -INFINITY:
        return _unexplained(solver, inner, point, trace, said)
    found = {**said, **evidence(margins, point.parameters, point.discounts, point.omega)}
    recomputed = _recomputed(inner, point)
    residual = max(found["violation"], abs(recomputed - point.objective))
    unseparated = inner.unseparated(inner.omega(point.discounts)) if inner.objective == "sum" else ()
    found["indistinguishable"] = [[names[i], names[j]] for i, j in (*margins.alike, *unseparated)]
    status, message = _judge(inner, point, status, found)
    if trace is not None:
        message += _limited(inner, point)
    if said.get("search_converged") is False and status == Status.CONVERGED:
        status, message = Status.NOT_CONVERGED, f"{message}; the best start spent its steps before it settled"
    return Solution(
        solver, status, message, names, point.discounts, point.parameters, point.objective, residual, trace=trace, evidence=found
    )


def _judge(inner: Inner, point: Point, status: Status, found: dict[str, Any]) -> tuple[Status, str]:
    size = float(np.abs(point.parameters).max(initial=0.0))
    if size <= 1e-9 * inner.bound:
        cause = f"the l1 weight {inner.l1:g} outweighs every margin" if inner.l1 > 0 else "no action can be made strictly better"
        return Status.NOT_IDENTIFIED, f"the best reward is zero and explains nothing: {cause}"
    if found["indistinguishable"]:
        pairs = ", ".join(f"{a} and {b}" for a, b in found["indistinguishable"])
        return Status.INDISTINGUISHABLE, f"experts that cannot be told apart at these discounts: {pairs}"
    order = " < ".join(" = ".join(place) for place in found["order"])
    return status, f"objective {point.objective:.6g}, worst margin {found['worst_margin']:.6g}, horizons {order}"


def _limited(inner: Inner, point: Point) -> str:
    """Which searched discounts rest on the limit of policies that never end, as the end of a message."""
    margins = inner.margins
    resting = (margins.limits < 1) & (point.discounts >= margins.limits - 1e-9)
    names = [name for name, rests in zip(margins.problem.names, resting, strict=True) if rests]
    return (
        f"; {', '.join(names)} rest on the limit {ENDLESS_LIMIT} of endless policies, which may decide the order" if names else ""
    )


def _recomputed(inner: Inner, point: Point) -> float:
    """The objective of the answer from the exact values of the policies rather than from the program's variables."""
    margins = inner.margins.strict.matrix @ inner.margins.continuation(point.parameters, point.discounts)
    penalty = inner.l1 * float(np.abs(point.parameters).sum())
    if inner.objective == "worst":
        return float(margins[point.omega].min(initial=INFINITY)) - penalty
    worst = np.full(inner.layout.n_groups + 1, INFINITY)
    np.minimum.at(worst, inner.layout.groups, margins)
    return float(worst[: inner.layout.n_groups].sum()) - penalty


def _unexplained(solver: str, inner: Inner, point: Point, trace: Trace | None, said: dict[str, Any]) -> Solution:
    """No reward was found: name the pair and the rows that contradict each other, and give no numbers as an answer."""
    margins = inner.margins
    names = margins.problem.names
    found = dict(said)
    searched = f"at any of the {len(trace)} discount vectors searched" if trace is not None else "at these discounts"
    if point.singular:
        who = ", ".join(names[k] for k in point.singular)
        message = f"values do not exist at discount 1 for experts whose policy never ends: {who}"
    elif point.unseparated:
        pair = point.unseparated[0]
        found["indistinguishable"] = [[names[i], names[j]] for i, j in point.unseparated]
        found["contradiction"] = contradiction(margins, point.discounts, pair)
        message = f"no reward tells experts {names[pair[0]]} and {names[pair[1]]} apart {searched}"
    else:
        message = f"no reward makes any chosen action strictly better {searched}"
    nothing = np.full(margins.n_experts, np.nan), np.full(margins.n_parameters, np.nan)
    return Solution(solver, Status.INFEASIBLE, message, names, *nothing, -INFINITY, INFINITY, trace=trace, evidence=found)
