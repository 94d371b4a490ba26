"""Climbing g* from one Γ by sequential linear programming in a trust region.

g*(Γ) is a linear program for fixed Γ, and Γ enters it through the bilinear `x_k = γ_k V_k` alone. At a point (θ̄, V̄, Γ̄) that
product is replaced by its linearisation

    x_k = γ̄_k V_k + V̄_k ν_k,        |ν_k| ≤ Δ,        0 ≤ γ̄_k + ν_k ≤ 1,

one linear program in (θ, x, ν) whose optimum predicts g*(Γ̄ + ν). The step is taken if the true g*, from the program at the
new Γ, is larger; Δ grows where the prediction was good and shrinks where it was not. A climb has converged when the best step in
the trust region promises less than `tolerance` of the objective, or when Δ falls below `tolerance`. A step whose program HiGHS
does not solve is tried again in a smaller region; a climb that ends because of such steps has not converged.

Most long steps lead nowhere, and that is seen cheaply: g* over all rows is at most its optimum over some of them. The rows that
have a price in the step's program and those that tell experts apart, a few in a hundred, give nearly the same optimum. A step
that they rule out is not evaluated. A climb that has all rows in Ω keeps them: it does not ask for Ω at Γ where some of them
cannot be positive, since g* over fewer rows is not comparable.

Where no reward satisfies all rows, θ = 0 is the optimum and every slope is zero. There the same steps are taken on another
program first: the worst margin (now negative) of a reward whose mean margin is 1.

The trust region is our own because its step is a linear program: g* has kinks, and SciPy's trust regions take smooth functions.

In which order of horizons to climb.

At γ_i = γ_j experts i and j who differ cannot be told apart, so the orders of the experts are separate hills, and a climb stays
on the hill it starts from. Up to `ALL_ORDERS` experts every order is scored at a few spread-out discounts. More experts are
inserted one after the other: a reward that explains some experts in some order explains any of them left out as well, so g* of
a part of the experts in their order bounds g* of all from above. The most promising part is extended first, by the next
expert in every place, each climbed roughly. Pairs of experts come first and tell most orders apart.

There are three kinds of score. Rewards under which every action not chosen is strictly worse come first, then those under which Ω
is smaller. Discounts without a reward come last; they are compared by the worst margin of a reward whose mean margin is 1. So
every order has a score, and the choice between orders is never arbitrary.

The default search of the LP solvers: climbs from several starts, in the order of horizons that promises most.

The first start is the best of rough climbs in the orders that `orders.py` ranks, as long as they can still catch up with the
best. The others are a scrambled Sobol sequence, put in the order that won; they keep it. With an l1 weight the climbs are made
without it first: θ = 0 is optimal on whole regions of Γ if the weight is large, and a climb that starts there sees no slope.

It is a local search. That all starts agree says that they found the same hill of one order, not that there is no higher one.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.stats import qmc

from multihorizon.checks import Floats, Ints, as_count, as_positive
from multihorizon.driver import Objective, SearchResult
from multihorizon.numerics.lp import INFINITY, LPStatus
from multihorizon.parallel import Progress, silent
from multihorizon.programs.inner import POSITIVE_MARGIN, Bases, Evaluation, Inner, program
from multihorizon.solution import Trace

#: The first trust region: half the range, so that a climb can leave the basin its start happens to lie in.
FIRST_RADIUS = 0.5
#: A climb is given up if this many steps, each with the gain that the next one promises, would not reach the rival.
STEPS_TO_RIVAL = 4.0
#: A climb this close to a higher top is on the same hill: only many short steps along the ridge are left.
SAME_HILL = 0.03
#: Dual prices below this are rounding.
PRICED = 1e-9
#: Steps shorter than this are not checked by a small program first: from a basis this near the whole costs no more.
SHORT_STEP = 0.02
#: Bound on the reward where the mean margin is held at 1; only there to keep HiGHS' numbers finite.
MEAN_BOUND = 1e5
#: Gains of the relative worst margin below this are rounding: its reward is larger than 1 by orders of magnitude.
RELATIVE_GAIN = 1e-7


@dataclass(eq=False)
class EvaluationLog:
    """All evaluations of a search in order, seconds since its start, and how many other programs HiGHS did not solve."""

    discounts: list[Floats] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failures: int = 0
    _begun: float = field(default_factory=time.perf_counter)

    @property
    def n_failed(self) -> int:
        """How many programs HiGHS did not solve."""
        return self.failures + int(np.isnan(self.values).sum())

    def evaluate(self, inner: Inner, gamma: Floats, over_all: bool = False) -> Evaluation:
        """Solve at Γ, over all rows where that is wanted, and write it down."""
        point = inner.at(gamma, over_all)
        self.discounts.append(gamma)
        self.values.append(point.objective)
        self.seconds.append(time.perf_counter() - self._begun)
        return point


@dataclass(frozen=True, eq=False)
class Ascent:
    """The top of one climb, and whether it stopped because no step promised more."""

    top: Evaluation
    converged: bool


class Step(NamedTuple):
    """Where a step leads, the g* that it promises there, and the strict rows that have a price in its program."""

    discounts: Floats
    predicted: float
    priced: Ints


@dataclass(frozen=True)
class Climber:
    """How climbs are made: to which accuracy, with how many steps, and whether the discounts keep their order."""

    tolerance: float
    max_steps: int
    keep_order: bool = True

    def ascend(
        self,
        inner: Inner,
        log: EvaluationLog,
        point: Evaluation,
        rival: float = -INFINITY,
        known: Sequence[Ascent] = (),
    ) -> Ascent:
        """Steps from one point until none promises more, or until it cannot catch up with the `rival`.

        A climb also ends when it comes close to a higher top that is `known`.
        """
        if not point.objective > 0:
            point = self._restore(inner, log, point)
        radius, hindered = FIRST_RADIUS, False
        for _ in range(self.max_steps):
            if not point.has_reward:
                break
            for other in known:
                if other.top.objective >= point.objective and _distance(other.top, point) <= SAME_HILL:
                    return other
            step = self._step(inner, point, radius)
            if step is None:
                log.failures += 1
                radius, hindered = radius / 4, True
                if radius <= self.tolerance:
                    break
                continue
            gain = step.predicted - point.objective
            if gain <= self.tolerance * abs(point.objective) or radius <= self.tolerance:
                return Ascent(point, not hindered)
            if point.objective + STEPS_TO_RIVAL * gain < rival:
                break
            length = float(np.abs(step.discounts - point.discounts).max())
            if length > SHORT_STEP and _ruled_out(inner, point, step):
                radius = _next_radius(radius, length, -INFINITY)
                continue
            there = log.evaluate(inner, step.discounts, over_all=bool(point.omega.all()))
            ratio = -INFINITY if there.failed else (there.objective - point.objective) / gain
            radius = _next_radius(radius, length, ratio)
            hindered = bool(there.failed) or (hindered and not ratio > 0)
            point = there if ratio > 0 else point
        return Ascent(point, converged=False)

    def _step(self, inner: Inner, point: Evaluation, radius: float) -> Step | None:
        """The best step of the linearised program within the trust region; None without an answer."""
        lp = program(
            inner.layout,
            point.discounts,
            point.omega,
            l1=inner.l1,
            bound=inner.bound,
            values=point.values,
            steps=_step_bounds(inner, point.discounts, radius),
            # Sums of margins do not need the experts to be told apart: for them no order is a hill of its own.
            keep_order=self.keep_order and inner.objective == "worst",
        )
        result = inner.solve("step", lp, point.discounts, like="objective")
        if not result.optimal:
            return None
        target = _moved(inner, point.discounts, result.values[inner.layout.columns.steps])
        return Step(target, result.objective, np.flatnonzero(np.abs(result.duals[inner.layout.rows.strict]) > PRICED))

    def _restore(self, inner: Inner, log: EvaluationLog, point: Evaluation) -> Evaluation:
        """Steps on the worst margin relative to the mean one, until g* is positive or no step promises more."""
        gamma, radius = point.discounts, FIRST_RADIUS
        worst, values = relative_margin(inner, gamma, log)
        for _ in range(self.max_steps):
            if not worst > -INFINITY or radius <= self.tolerance:
                break
            target, predicted = self._relative_step(inner, gamma, values, radius, log)
            gain = predicted - worst
            if gain <= RELATIVE_GAIN * max(1.0, abs(worst)):
                break
            reached, there = relative_margin(inner, target, log)
            ratio = (reached - worst) / gain
            radius = _next_radius(radius, float(np.abs(target - gamma).max()), ratio)
            if ratio > 0:
                gamma, worst, values = target, reached, there
                point = log.evaluate(inner, gamma)
                if point.objective > 0:
                    break
        return point

    def _relative_step(
        self, inner: Inner, gamma: Floats, values: Floats, radius: float, log: EvaluationLog
    ) -> tuple[Floats, float]:
        bounds = _step_bounds(inner, gamma, radius)
        lp = program(inner.worst, gamma, inner.every, l1=0.0, bound=MEAN_BOUND, values=values, steps=bounds, mean=True)
        result = inner.solve("relative step", lp, gamma, like="relative")
        if not result.optimal:
            log.failures += result.status == LPStatus.FAILED
            return gamma, -INFINITY
        return _moved(inner, gamma, result.values[inner.worst.columns.steps]), result.objective


def _ruled_out(inner: Inner, point: Evaluation, step: Step) -> bool:
    """Whether a small program shows that a step leads no higher.

    The rows that tell experts apart and those with a price in the step's program bound g* from above, and nearly decide it.
    """
    if inner.objective != "worst" or not point.omega.all():
        return False
    rows = np.union1d(step.priced, inner.margins.telling)
    return inner.few(rows) and inner.ceiling(step.discounts, rows) <= point.objective


def _distance(one: Evaluation, other: Evaluation) -> float:
    return float(np.abs(one.discounts - other.discounts).max())


def relative_margin(inner: Inner, gamma: Floats, log: EvaluationLog) -> tuple[float, Floats]:
    """The largest worst margin of a reward with mean margin 1, and its values; −inf where no reward has one."""
    lp = program(inner.worst, gamma, inner.every, l1=0.0, bound=MEAN_BOUND, mean=True)
    result = inner.solve("relative", lp, gamma)
    if not result.optimal:
        log.failures += result.status == LPStatus.FAILED
        return -INFINITY, np.zeros(inner.margins.owner.size)
    return result.objective, inner.values(inner.worst, result)


def _step_bounds(inner: Inner, gamma: Floats, radius: float) -> tuple[Floats, Floats]:
    return np.maximum(-radius, -gamma), np.minimum(radius, inner.margins.limits - gamma)


def _moved(inner: Inner, gamma: Floats, step: Floats) -> Floats:
    moved: Floats = np.clip(gamma + step, 0.0, inner.margins.limits)
    return moved


def _next_radius(radius: float, length: float, ratio: float) -> float:
    """A quarter of the step that failed; twice the region if the step was good and filled it."""
    if ratio < 0.1:
        return min(radius, length) / 4
    if ratio > 0.5 and length > 0.9 * radius:
        return min(1.0, 2 * radius)
    return radius


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


@dataclass(frozen=True)
class SequentialLP:
    """Trust-region sequential linear programming from `starts` points; the default search of the LP solvers."""

    starts: int = 8
    tolerance: float = 1e-9
    max_steps: int = 200

    def __post_init__(self) -> None:
        as_count(self.starts, "starts")
        as_count(self.max_steps, "max_steps")
        as_positive(self.tolerance, "tolerance")

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> SearchResult:
        """Climb from every start; the trace holds all evaluations in order, the evidence what each start reached.

        Experts are sorted by what they choose, so that the same programs are solved however they are listed.
        """
        if not isinstance(objective, Inner):
            raise ValueError("SequentialLP needs the linear programs of MPLP or NaiveLP, received another objective")
        experts = objective.margins.by_choices
        sorted_inner = replace(objective, margins=objective.margins.of(experts), _bases=Bases())
        log, ascents, evaluations = self._climbs(sorted_inner, seed, progress)
        places = np.argsort(experts)
        trace = Trace(np.array(log.discounts)[:, places], np.array(log.values), np.array(log.seconds))
        starts = [
            {
                "objective": ascent.top.objective,
                "discounts": ascent.top.discounts[places].tolist(),
                "evaluations": count,
                "converged": ascent.converged,
            }
            for ascent, count in zip(ascents, evaluations, strict=True)
        ]
        best = int(np.argmax([-np.inf if ascent.top.failed else ascent.top.objective for ascent in ascents]))
        return SearchResult(trace, {"starts": starts}, ascents[best].converged, log.failures)

    def _climbs(self, inner: Inner, seed: int, progress: Progress) -> tuple[EvaluationLog, list[Ascent], list[int]]:
        """All climbs, with the log of evaluations and how many of them each start took."""
        log = EvaluationLog()
        plain, apart = (inner, log) if inner.l1 == 0 else (replace(inner, l1=0.0, _bases=Bases()), EvaluationLog())
        climber = Climber(self.tolerance, self.max_steps)
        first = self._survey(plain, apart)
        tops: list[Ascent] = []
        ascents: list[Ascent] = []
        counts = [0]
        for number, start in enumerate([first.discounts, *self._other_starts(first, inner.margins.limits, seed)], start=1):
            tops.append(climber.ascend(plain, apart, first if number == 1 else apart.evaluate(plain, start), known=tops))
            ascents.append(tops[-1])
            if plain is not inner:
                begin = log.evaluate(inner, tops[-1].top.discounts)
                ascents[-1] = climber.ascend(inner, log, begin, known=ascents[:-1])
            counts.append(len(log.values))
            best = np.fmax.reduce(log.values)
            progress(number / self.starts, f"sequential LP: start {number} of {self.starts}, best {best:.6g}")
        log.failures += 0 if apart is log else apart.n_failed
        return log, ascents, np.diff(counts).tolist()

    def _survey(self, plain: Inner, log: EvaluationLog) -> Evaluation:
        """The best of rough climbs in every order worth one, each as long as it can catch up with the best so far."""
        climber = Climber(max(ROUGH_TOLERANCE, self.tolerance), min(ROUGH_STEPS, self.max_steps), keep_order=False)
        first, *others = starts_by_order(plain, log)
        best = climber.ascend(plain, log, log.evaluate(plain, first)).top
        for gamma in others:
            top = climber.ascend(plain, log, log.evaluate(plain, gamma), rival=best.objective).top
            best = top if best.failed or top.objective > best.objective else best
        return best

    def _other_starts(self, first: Evaluation, limits: Floats, seed: int) -> list[Floats]:
        """Points of a Sobol sequence in the order of the first start."""
        order = np.argsort(first.discounts, kind="stable")
        points = qmc.Sobol(limits.size, seed=seed).random_base2(int(np.ceil(np.log2(self.starts))))
        return [in_order(point, order, limits) for point in points[: self.starts - 1]]
