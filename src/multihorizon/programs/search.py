"""The default search of the LP solvers: sequential linear programming, in the order of horizons that promises most.

**One ascent.** g*(Γ) is a linear program for fixed Γ, and Γ enters it through the bilinear `x_k = γ_k V_k` alone. At a point
(θ̄, V̄, Γ̄) that product is replaced by its linearisation

    x_k = γ̄_k V_k + V̄_k ν_k,        |ν_k| ≤ Δ,        0 ≤ γ̄_k + ν_k ≤ 1,

one linear program in (θ, x, ν) whose optimum predicts g*(Γ̄ + ν); `numerics/lp.py` has the trust region around it. Most long
steps lead nowhere, and that is cheap to see: g* over all rows is at most its optimum over some of them. The rows with a dual
price in the step's program and those that distinguish experts, a few in a hundred, give nearly the same optimum. A step that they
rule out is not evaluated. An ascent that has all rows in Ω keeps them: it does not ask for Ω at Γ where some of them cannot be
positive, since g* over fewer rows is not comparable. Where no reward satisfies all rows, θ = 0 is the optimum and every slope is
zero. There the same steps are taken on another program first: the worst margin (now negative) of a reward whose mean margin is 1.

**Which order.** At γ_i = γ_j no reward distinguishes experts i and j who differ, so each local maximum belongs to one order of
the experts; but an order can have several. Up to four experts every order is scored at a few spread-out discounts, and an ascent
starts from each of them that has a reward. More experts are inserted one after the other: a reward that explains some experts in
some order explains any of them left out as well, so g* of a part of the experts in their order bounds g* of all from above. The
most promising part is extended first, by the next expert in every place, each with a rough ascent. Pairs of experts come first
and decide most of the order, so this is done twice, with the experts in opposite sequence. There are three kinds of score.
Rewards under which every action not chosen is strictly worse come first, then those under which Ω is smaller. Discounts without a
reward come last; they are compared by the worst margin of a reward whose mean margin is 1. So every order has a score, and the
choice between orders is never arbitrary.

**The search.** The first start is the best of rough ascents from the points ranked so, as long as they can still catch up with
the best. The others are a scrambled Sobol sequence, put in the order that won; they keep it. A user's own start is one more, in
its own order. With an l1 weight the ascents are made without it first: θ = 0 is optimal on whole regions of Γ if the weight is
large, and an ascent that starts there sees no slope.

It is a local search. It counts as converged only if a second ascent, from another point, reached the best maximum as well. Their
agreement shows that they reached the same local maximum, not that there is no higher one. `certificate.py` can prove that.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import qmc

from multihorizon.checks import Floats, Ints, as_count, as_discount, as_positive
from multihorizon.driver import EvaluationLog, Objective, SearchResult
from multihorizon.numerics.lp import INFINITY, MOST_SIMPLEX_ROWS, LPStatus, Step, maximise
from multihorizon.parallel import Progress, silent
from multihorizon.programs.inner import POSITIVE_MARGIN, Bases, Inner, Optimum, program
from multihorizon.words import significant

#: Bound on the reward where the mean margin is held at 1; only there to keep HiGHS' numbers finite.
MEAN_BOUND = 1e5

Score = tuple[int, float]


class ProgramLog(EvaluationLog):
    """All evaluations of a search in order, and how many other programs HiGHS did not solve."""

    failures = 0

    @property
    def n_failed(self) -> int:
        """The number of programs that HiGHS did not solve."""
        return self.failures + int(np.isnan(self.values).sum())

    def evaluate(self, inner: Inner, gamma: Floats, over_all: bool = False) -> Optimum:
        """Solve at Γ, over all rows if `over_all`, and record the result."""
        point = inner.at(gamma, over_all)
        self.add(gamma, point.objective)
        return point


@dataclass(frozen=True, eq=False)
class LocalMaximum:
    """The end of one ascent, and whether it stopped because no step promised more."""

    point: Optimum
    converged: bool


@dataclass(frozen=True)
class Optimiser:
    """The settings of an ascent: its accuracy, its most steps, and whether the discounts keep their order."""

    tolerance: float
    max_steps: int
    keep_order: bool = True

    def ascend(
        self, inner: Inner, log: ProgramLog, point: Optimum, rival: float = -INFINITY, earlier: Sequence[LocalMaximum] = ()
    ) -> LocalMaximum:
        """Ascend from one point until no step promises more, or until it cannot catch up with the `rival`.

        An ascent that comes close to a higher one of the `earlier` maxima ends there: only short steps along the ridge are left.
        """
        # The first trust region: half the range, so that an ascent can leave the basin its start happens to lie in.
        first_radius = 0.5
        if not point.objective > 0:
            start = Relative(point, *relative_margin(inner, point.discounts, log))
            point = maximise(_Restoring(inner, log), start, first_radius, self.tolerance, self.max_steps)[0].point
        function = _Objective(inner, log, self.tolerance, self.keep_order, rival, earlier)
        maximum = LocalMaximum(*maximise(function, point, first_radius, self.tolerance, self.max_steps))
        return function.met(maximum.point) or maximum


@dataclass(frozen=True, eq=False)
class _Objective:
    """g* as the function to maximise."""

    inner: Inner
    log: ProgramLog
    tolerance: float
    keep_order: bool
    rival: float
    earlier: Sequence[LocalMaximum]

    def met(self, point: Optimum) -> LocalMaximum | None:
        """Return an earlier maximum that is higher and so close that it is the same local maximum; else None."""
        for maximum in self.earlier:
            apart = np.abs(maximum.point.discounts - point.discounts).max()
            if point.has_reward and maximum.point.objective >= point.objective and apart <= 0.03:
                return maximum
        return None

    def ended(self, point: Optimum) -> bool:
        return not point.has_reward or self.met(point) is not None

    def least_gain(self, point: Optimum) -> float:
        """Return a share of the objective; or the gain that would not reach the rival in four steps."""
        return max(self.tolerance * abs(point.objective), (self.rival - point.objective) / 4)

    def step(self, point: Optimum, radius: float) -> Step | None:
        """Return the best step of the linearised program, with the strict rows that have a dual price in it."""
        inner, layout = self.inner, self.inner.layout
        lp = program(
            layout,
            point.discounts,
            point.omega,
            l1=inner.l1,
            bound=inner.bound,
            values=point.values,
            steps=_step_bounds(inner, point.discounts, radius),
            # Sums of margins do not need the experts to differ: their maxima do not belong to one order.
            keep_order=self.keep_order and inner.objective == "worst",
        )
        result = inner.solve("step", lp, point.discounts, like="objective")
        if not result.optimal:
            self.log.failures += 1
            return None
        target = np.clip(point.discounts + result.values[layout.columns.steps], 0.0, inner.margins.limits)
        length = float(np.abs(target - point.discounts).max())
        priced = np.flatnonzero(np.abs(result.duals[layout.rows.strict]) > 1e-9)
        return Step(target, length, result.objective - point.objective, priced)

    def move(self, point: Optimum, step: Step) -> tuple[Optimum, float]:
        """Return the optimum at the end of a step, unless a small program shows that it is no higher.

        A short step is not checked by a small program: from a basis this near the whole costs no more.
        """
        if step.length > 0.02 and ruled_out(self.inner, point, step):
            return point, -INFINITY
        there = self.log.evaluate(self.inner, step.target, over_all=bool(point.omega.all()))
        return there, np.nan if there.failed else there.objective - point.objective


def ruled_out(inner: Inner, point: Optimum, step: Step) -> bool:
    """Say whether a small program shows that a step leads no higher.

    The rows that distinguish experts and those with a dual price in the step's program bound g* from above, and nearly decide it.
    It is used only where the whole program is large and has ten times as many rows.
    """
    if inner.objective != "worst" or not point.omega.all():
        return False
    rows = np.union1d(step.detail, inner.margins.telling)
    small = inner.layout.rows.order.stop > MOST_SIMPLEX_ROWS and rows.size <= 0.1 * len(inner.margins.strict)
    return small and inner.ceiling(step.target, rows) <= point.objective


class Relative(NamedTuple):
    """The optimum at a point, and the largest worst margin there of a reward with mean margin 1, with its values."""

    point: Optimum
    worst: float
    values: Floats


def relative_margin(inner: Inner, gamma: Floats, log: ProgramLog) -> tuple[float, Floats]:
    """Return the largest worst margin of a reward with mean margin 1, and its values; −inf where no reward has one."""
    lp = program(inner.worst, gamma, inner.every, l1=0.0, bound=MEAN_BOUND, mean=True)
    result = inner.solve("relative", lp, gamma)
    if not result.optimal:
        log.failures += result.status == LPStatus.FAILED
        return -INFINITY, np.zeros(inner.margins.owner.size)
    return result.objective, inner.read(inner.worst, result)[1]


@dataclass(frozen=True, eq=False)
class _Restoring:
    """The worst margin relative to the mean one as the function to maximise, until g* is positive."""

    inner: Inner
    log: ProgramLog

    def ended(self, here: Relative) -> bool:
        return here.point.objective > 0 or not here.worst > -INFINITY

    def least_gain(self, here: Relative) -> float:
        """Return the size of rounding: the reward is larger than 1 by orders of magnitude."""
        return 1e-7 * max(1.0, abs(here.worst))

    def step(self, here: Relative, radius: float) -> Step | None:
        inner, gamma = self.inner, here.point.discounts
        bounds = _step_bounds(inner, gamma, radius)
        lp = program(inner.worst, gamma, inner.every, l1=0.0, bound=MEAN_BOUND, values=here.values, steps=bounds, mean=True)
        result = inner.solve("relative step", lp, gamma, like="relative")
        if not result.optimal:
            self.log.failures += result.status == LPStatus.FAILED
            return None
        target = np.clip(gamma + result.values[inner.worst.columns.steps], 0.0, inner.margins.limits)
        return Step(target, float(np.abs(target - gamma).max()), result.objective - here.worst)

    def move(self, here: Relative, step: Step) -> tuple[Relative, float]:
        worst, values = relative_margin(self.inner, step.target, self.log)
        higher = worst > here.worst
        return Relative(self.log.evaluate(self.inner, step.target) if higher else here.point, worst, values), worst - here.worst


def _step_bounds(inner: Inner, gamma: Floats, radius: float) -> tuple[Floats, Floats]:
    return np.maximum(-radius, -gamma), np.minimum(radius, inner.margins.limits - gamma)


#: Orders are compared by ascents to this accuracy, with at most this many steps.
ROUGH = Optimiser(1e-3, 20)


def starts_by_order(inner: Inner, log: ProgramLog) -> list[Floats]:
    """Return discounts to start from: a few in each promising order, from the best to the worst."""
    twins = {j for _, j in inner.margins.alike}
    experts = [k for k in range(inner.margins.n_experts) if k not in twins]
    if len(experts) > 4:
        return _ranked([*_insert(inner, experts, log), *_insert(inner, experts[::-1], log)])
    k, limits = inner.margins.n_experts, inner.margins.limits
    points = [in_order(spread, np.array(o), limits) for o in itertools.permutations(range(k)) for spread in _spreads(k)]
    return _ranked(list(zip(_scores(inner, points, log), points, strict=True)))


def _insert(inner: Inner, experts: list[int], log: ProgramLog) -> list[tuple[Score, Floats]]:
    """Extend the most promising part first, until the most promising one has all experts; six parts of each size at most.

    Returns the discounts of all experts that were reached, with their scores.
    """
    parts = {m: replace(inner, margins=inner.margins.of(experts[:m]), _bases=Bases()) for m in range(2, len(experts) + 1)}
    number = itertools.count()
    heap: list[tuple[Score, int, Floats]] = [((0, 0.0), next(number), np.array([0.5]))]
    extended = np.zeros(len(experts) + 1, dtype=int)
    while heap[0][2].size < len(experts):
        _, _, gamma = heapq.heappop(heap)
        if extended[gamma.size] == 6:
            continue
        extended[gamma.size] += 1
        for place in range(gamma.size + 1):
            (kind, value), end = _insert_at(parts[gamma.size + 1], gamma, place, log)
            heapq.heappush(heap, ((-kind, -value), next(number), end))
    starts = []
    for (kind, value), _, gamma in heap:
        if gamma.size == len(experts):
            start = np.full(inner.margins.n_experts, np.nan)
            start[experts] = gamma
            for i, j in inner.margins.alike:
                start[j] = start[i] if np.isnan(start[j]) else start[j]
            starts.append(((-kind, -value), start))
    return starts


def _insert_at(part: Inner, gamma: Floats, place: int, log: ProgramLog) -> tuple[Score, Floats]:
    """Insert the last expert of a part in one place among the others, and ascend roughly.

    It starts from the best of these: halfway between its neighbours; these discounts spread out a little; spread-out discounts.
    """
    order = np.insert(np.argsort(gamma, kind="stable"), place, gamma.size)
    ranked = np.sort(gamma)
    edges = np.concatenate([[0.0], ranked, [1.0]])
    spreads = _spreads(gamma.size + 1)
    between = np.insert(ranked, place, (edges[place] + edges[place + 1]) / 2)
    starts = [in_order(v, order, part.margins.limits) for v in (between, 0.7 * between + 0.3 * spreads[0], *spreads)]
    first = starts[int(np.argmax([score[1] for score in _scores(part, starts, log)]))]
    apart = ProgramLog()
    end = ROUGH.ascend(part, apart, apart.evaluate(part, first)).point
    log.failures += apart.n_failed
    if not end.objective > 0:
        return (0, relative_margin(part, end.discounts, log)[0]), end.discounts
    return (2 if end.omega.all() else 1, end.objective), end.discounts


def _scores(inner: Inner, points: list[Floats], log: ProgramLog) -> list[Score]:
    """Return g* over all rows if it is positive anywhere, else g* over Ω, else the relative worst margin."""

    def over_all_rows(gamma: Floats) -> float:
        result = inner.run(gamma, inner.every)
        return result.objective if result.optimal else -INFINITY

    for kind, merit in ((2, over_all_rows), (1, inner)):
        values = np.nan_to_num([merit(gamma) for gamma in points], nan=-INFINITY, neginf=-INFINITY)
        if values.max() > POSITIVE_MARGIN * inner.bound:
            return [(kind if value > POSITIVE_MARGIN * inner.bound else 0, float(value)) for value in values]
    return [(0, relative_margin(inner, gamma, log)[0]) for gamma in points]


def _ranked(scored: list[tuple[Score, Floats]]) -> list[Floats]:
    """Return the points with the best kind of score, the best first; only the best one if no point has a reward."""
    ranked = sorted(scored, key=lambda pair: pair[0], reverse=True)
    kind = ranked[0][0][0]
    return [gamma for score, gamma in ranked if score[0] == kind] if kind > 0 else [ranked[0][1]]


def _spreads(k: int) -> list[Floats]:
    """Return discounts far apart: even over the range, dense at its lower end, dense at its upper end."""
    even = (np.arange(k) + 0.5) / k
    return [even, even**2, np.sqrt(even)]


def in_order(values: Floats, order: Ints, limits: Floats) -> Floats:
    """Assign the values, from the smallest to the largest, to the experts in that order."""
    gamma = np.empty(values.size)
    gamma[order] = np.sort(values)
    return np.minimum(gamma, limits)


#: An ascent agrees with the best one if its objective is this near, as a share; the survey's rough ones a little less near.
AGREE, ROUGHLY_AGREE = 1e-4, 5e-3


@dataclass(frozen=True)
class SequentialLP:
    """Trust-region sequential linear programming from `starts` points; the default search of the LP solvers.

    Args:
        starts: how many ascents are made to the full accuracy.
        tolerance: the smallest trust region.
        max_steps: the most steps of an ascent.
        start: discounts `(K,)` to begin one more ascent from; it keeps their order.
        order: the experts' names from the shortest horizon to the longest: only this order is searched.

    Example:
        >>> SequentialLP(starts=16).max_steps
        200
    """

    starts: int = 8
    tolerance: float = 1e-9
    max_steps: int = 200
    start: Sequence[float] | None = None
    order: Sequence[str] | None = None

    def __post_init__(self) -> None:
        as_count(self.starts, "starts")
        as_count(self.max_steps, "max_steps")
        as_positive(self.tolerance, "tolerance")
        if self.start is not None:
            for discount in self.start:
                as_discount(discount)

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> SearchResult:
        """Ascend from every start; the trace holds all evaluations in order, the evidence the end of each ascent.

        Experts are sorted by what they choose, so that the same programs are solved however they are listed.
        """
        if not isinstance(objective, Inner):
            raise ValueError("SequentialLP needs the linear programs of MPLP or NaiveLP, received another objective")
        margins = objective.margins
        choices = [b"".join(task.chosen.tobytes() for task in margins.tasks if task.k == k) for k in range(margins.n_experts)]
        experts = sorted(range(margins.n_experts), key=lambda k: choices[k])
        places = np.argsort(experts)
        wanted = None if self.order is None else places[_order_of(self.order, margins.names)]
        inner = replace(objective, margins=margins.of(experts), _bases=Bases())
        log = ProgramLog()
        plain, apart = (inner, log) if inner.l1 == 0 else (replace(inner, l1=0.0, _bases=Bases()), ProgramLog())
        optimiser = Optimiser(self.tolerance, self.max_steps)
        surveyed = self._survey(plain, apart, wanted)
        first = max(surveyed, key=lambda point: -INFINITY if point.failed else point.objective)
        order = np.argsort(first.discounts, kind="stable") if wanted is None else wanted
        points = qmc.Sobol(n_experts, seed=seed).random_base2(int(np.ceil(np.log2(self.starts))))
        begins = [first.discounts, *(in_order(point, order, inner.margins.limits) for point in points[: self.starts - 1])]
        if self.start is not None:
            begins.append(np.minimum(_of_experts(self.start, margins.names)[experts], inner.margins.limits))
        plain_maxima: list[LocalMaximum] = []
        maxima: list[LocalMaximum] = []
        starts = []
        for number, gamma in enumerate(begins, start=1):
            evaluated = len(log.values) if number > 1 else 0
            begin = first if number == 1 else apart.evaluate(plain, gamma)
            plain_maxima.append(optimiser.ascend(plain, apart, begin, earlier=plain_maxima))
            maxima.append(plain_maxima[-1])
            if plain is not inner:
                begin = log.evaluate(inner, maxima[-1].point.discounts)
                maxima[-1] = optimiser.ascend(inner, log, begin, earlier=maxima[:-1])
            reached: dict[str, Any] = {"objective": maxima[-1].point.objective}
            reached["discounts"] = maxima[-1].point.discounts[places].tolist()
            reached["evaluations"] = len(log.values) - evaluated
            reached["converged"] = maxima[-1].converged
            starts.append(reached)
            progress(number / len(begins), f"sequential LP: start {number} of {len(begins)}, best {significant(log.best, 6)}")
        if not any(maximum.point.has_reward for maximum in maxima) and wanted is None:
            # The order of the discounts came from a search without an answer: look in any order before saying that there is none,
            # and at 0 too, because answers may be nowhere else.
            for point in qmc.Sobol(n_experts, seed=seed).random_base2(6):
                anywhere = log.evaluate(inner, np.maximum(1.2 * point - 0.2, 0.0) * inner.margins.limits)
                if anywhere.has_reward:
                    maxima.append(optimiser.ascend(inner, log, anywhere))
                    break
        log.failures += 0 if apart is log else apart.n_failed
        heights = np.array([-np.inf if maximum.point.failed else maximum.point.objective for maximum in maxima])
        best = int(np.argmax(heights))
        agreeing = int((heights >= heights[best] - AGREE * abs(heights[best])).sum()) - 1
        near = first.objective - ROUGHLY_AGREE * abs(first.objective)
        agreeing += sum(point.objective >= near for point in surveyed) - 1 if maxima[best].point.has_reward else 0
        trace = replace(log.trace(), discounts=np.array(log.discounts)[:, places])
        return SearchResult(trace, {"starts": starts, "agreeing": agreeing}, maxima[best].converged, log.failures)

    def _survey(self, plain: Inner, log: ProgramLog, wanted: Ints | None) -> list[Optimum]:
        """Return the ends of rough ascents from promising points, each as long as it can catch up with the best so far."""
        optimiser = Optimiser(max(ROUGH.tolerance, self.tolerance), min(ROUGH.max_steps, self.max_steps), wanted is not None)
        if wanted is None:
            first, *others = starts_by_order(plain, log)
        else:
            first, *others = (in_order(spread, wanted, plain.margins.limits) for spread in _spreads(wanted.size))
        ends = [optimiser.ascend(plain, log, log.evaluate(plain, first)).point]
        highest = ends[0].objective
        for gamma in others:
            rival = -INFINITY if np.isnan(highest) else highest
            ends.append(optimiser.ascend(plain, log, log.evaluate(plain, gamma), rival=rival).point)
            highest = float(np.fmax(highest, ends[-1].objective))
        return ends


def _order_of(order: Sequence[str], names: tuple[str, ...]) -> Ints:
    """Return the places of the experts in an order that names each once."""
    if isinstance(order, str) or sorted(map(str, order)) != sorted(names):
        raise ValueError(f"order must name each expert once ({', '.join(names)}), received {order!r}")
    return np.array([names.index(str(name)) for name in order])


def _of_experts(start: Sequence[float], names: tuple[str, ...]) -> Floats:
    """Read one discount for each expert."""
    if len(start) != len(names):
        raise ValueError(f"start must be one discount for each of {len(names)} experts, received {len(start)}")
    return np.array([as_discount(discount) for discount in start])
