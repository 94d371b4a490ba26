"""In which order of horizons to climb.

At γ_i = γ_j experts i and j who differ cannot be told apart, so the orders of the experts are separate hills, and a climb stays
on the hill it starts from. Up to `ALL_ORDERS` experts every order is scored at a few spread-out discounts. More experts are
inserted one after the other: a reward that explains some experts in some order explains any of them left out as well, so g* of
a part of the experts in their order bounds g* of all from above. The most promising part is extended first, by the next
expert in every place, each climbed roughly. Pairs of experts come first and tell most orders apart.

There are three kinds of score. Rewards under which every action not chosen is strictly worse come first, then those under which Ω
is smaller. Discounts without a reward come last; they are compared by the worst margin of a reward whose mean margin is 1. So
every order has a score, and the choice between orders is never arbitrary.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import replace

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.programs.bases import Bases
from multihorizon.programs.climb import Climber, EvaluationLog, relative_margin
from multihorizon.programs.highs import INFINITY
from multihorizon.programs.inner import POSITIVE_MARGIN, Inner

#: Up to this many experts every order of their horizons is scored.
ALL_ORDERS = 4
#: At most this many parts with the same number of experts are extended.
MOST_EXTENDED = 6
#: Orders are compared by climbs to this accuracy, with at most this many steps.
ROUGH_TOLERANCE, ROUGH_STEPS = 1e-3, 20

Score = tuple[int, float]


def starts_by_order(inner: Inner, log: EvaluationLog) -> list[Floats]:
    """Discounts to climb from, one vector for each order worth a climb, from the best to the worst."""
    experts = _distinct(inner)
    return _all_orders(inner, log) if len(experts) <= ALL_ORDERS else _insert(inner, experts, log)


def _distinct(inner: Inner) -> list[int]:
    """The experts without those who act as another does."""
    twins = {j for _, j in inner.margins.alike}
    return [k for k in range(inner.margins.n_experts) if k not in twins]


def _all_orders(inner: Inner, log: EvaluationLog) -> list[Floats]:
    """For each order the best of the spread-out discounts."""
    k, limits = inner.margins.n_experts, inner.margins.limits
    orders = [np.array(order) for order in itertools.permutations(range(k))]
    points = [[in_order(spread, order, limits) for spread in _spreads(k)] for order in orders]
    scores = iter(_scores(inner, [gamma for row in points for gamma in row], log))
    return _ranked([max(((next(scores), gamma) for gamma in row), key=lambda pair: pair[0]) for row in points])


def _insert(inner: Inner, experts: list[int], log: EvaluationLog) -> list[Floats]:
    """Extend the most promising part first, until the most promising one has all experts."""
    parts = {m: replace(inner, margins=inner.margins.of(experts[:m]), _bases=Bases()) for m in range(2, len(experts) + 1)}
    number = itertools.count()
    heap: list[tuple[Score, int, Floats]] = [((0, 0.0), next(number), np.array([0.5]))]
    extended = np.zeros(len(experts) + 1, dtype=int)
    while heap[0][2].size < len(experts):
        _, _, gamma = heapq.heappop(heap)
        if extended[gamma.size] == MOST_EXTENDED:
            continue
        extended[gamma.size] += 1
        for place in range(gamma.size + 1):
            (kind, value), top = _insert_at(parts[gamma.size + 1], gamma, place, log)
            heapq.heappush(heap, ((-kind, -value), next(number), top))
    whole = [((-kind, -value), gamma) for (kind, value), _, gamma in heap if gamma.size == len(experts)]
    return [_with_twins(inner, experts, gamma) for gamma in _ranked(whole)]


def _insert_at(part: Inner, gamma: Floats, place: int, log: EvaluationLog) -> tuple[Score, Floats]:
    """The last expert of a part inserted in one place among the others, climbed roughly."""
    order = np.insert(np.argsort(gamma, kind="stable"), place, gamma.size)
    starts = [in_order(values, order, part.margins.limits) for values in _with_gap(np.sort(gamma), place)]
    first = starts[int(np.argmax([score[1] for score in _scores(part, starts, log)]))]
    apart = EvaluationLog()
    top = Climber(ROUGH_TOLERANCE, ROUGH_STEPS).ascend(part, apart, apart.evaluate(part, first)).top
    log.failures += apart.n_failed
    if not top.objective > 0:
        return (0, relative_margin(part, top.discounts, log)[0]), top.discounts
    return (2 if top.omega.all() else 1, top.objective), top.discounts


def _with_gap(gamma: Floats, place: int) -> list[Floats]:
    """Sorted discounts with a new one halfway between its neighbours; the same spread out a little; spread-out discounts."""
    edges = np.concatenate([[0.0], gamma, [1.0]])
    inserted = np.insert(gamma, place, (edges[place] + edges[place + 1]) / 2)
    spreads = _spreads(inserted.size)
    return [inserted, 0.7 * inserted + 0.3 * spreads[0], *spreads]


def _with_twins(inner: Inner, experts: list[int], gamma: Floats) -> Floats:
    """Discounts of all experts: those who act as another does have the same one."""
    whole = np.full(inner.margins.n_experts, np.nan)
    whole[experts] = gamma
    for i, j in inner.margins.alike:
        whole[j] = whole[i] if np.isnan(whole[j]) else whole[j]
    return whole


def _scores(inner: Inner, points: list[Floats], log: EvaluationLog) -> list[Score]:
    """g* over all rows if it is positive anywhere, else g* over Ω, else the relative worst margin."""

    def over_all_rows(gamma: Floats) -> float:
        result = inner.run(gamma, inner.every)
        return result.objective if result.optimal else -INFINITY

    for kind, merit in ((2, over_all_rows), (1, inner)):
        values = np.nan_to_num([merit(gamma) for gamma in points], nan=-INFINITY, neginf=-INFINITY)
        if values.max() > POSITIVE_MARGIN * inner.bound:
            return [(kind if value > POSITIVE_MARGIN * inner.bound else 0, float(value)) for value in values]
    return [(0, relative_margin(inner, gamma, log)[0]) for gamma in points]


def _ranked(scored: list[tuple[Score, Floats]]) -> list[Floats]:
    """The points with the best kind of score, the best first; only the best one if no point has a reward."""
    ranked = sorted(scored, key=lambda pair: pair[0], reverse=True)
    kind = ranked[0][0][0]
    return [gamma for score, gamma in ranked if score[0] == kind] if kind > 0 else [ranked[0][1]]


def _spreads(k: int) -> list[Floats]:
    """Discounts far apart: even over the range, crowded at its lower end, crowded at its upper end."""
    even = (np.arange(k) + 0.5) / k
    return [even, even**2, np.sqrt(even)]


def in_order(values: Floats, order: Ints, limits: Floats) -> Floats:
    """The values, from the smallest to the largest, given to the experts in that order."""
    gamma = np.empty(values.size)
    gamma[order] = np.sort(values)
    capped: Floats = np.minimum(gamma, limits)
    return capped
