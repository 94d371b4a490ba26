"""Search over discounts by sequential linear programming, and a certificate of how far its answer is from the global optimum.

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
agreement shows that they reached the same local maximum, not that there is no higher one. The certificate can prove that.

**The certificate** is branch and bound over boxes of Γ. **The bound on a box.** In the variables of `inner.py` all is linear but
`x_k = γ_k V_k`. Let `γ_k = (1−λ_k) l_k + λ_k h_k`, and multiply all that is known of expert k by `1 − λ_k` and by `λ_k`. With t
the worst margin, `(θ₀, x₀, t₀) = (1−λ)(θ, x, t)`, `(θ₁, x₁, t₁) = λ(θ, x, t)` and `V_n = F θ_n + P x_n`, each expert has

    x₀ = l V₀ + f,    x₁ = h V₁ − f,    f = λ(1−λ)(h−l) V,
    margin_i(θ_n, x_n) ≥ t_n,    |θ₀| ≤ (1−λ) r_max,    |θ₁| ≤ λ r_max,    0 ≤ t₀ ≤ (1−λ) t̄,    0 ≤ t₁ ≤ λ t̄,

and the parts add up to the one θ and t of all experts. This is exact. It is a linear program once f may be any vector with `|f| ≤
¼ (h−l) V̄`, where `V̄ = (I − hP)^{-1} |F| r_max` bounds |V|, and t̄ is the bound of the box that this one was cut from. Lost are
f, and that the parts of θ are in proportion: in the program, each expert may see one reward at one end and another at the other,
if they add up. The margins themselves are exact at both ends. The program is as sparse as the transitions, and θ = 0 is always in
it. (Also measured: the margins as polynomials in γ, which is dense and needs more boxes; powers of λ above the first, which
change little; the products of each expert's margins with the λ of others, a third fewer boxes at four times the cost.)

The bound proved is not the optimum that HiGHS reports, but the dual objective of its prices, computed anew: `dual_bound` holds
whatever the tolerances of HiGHS.

**Branch and bound.** A box whose bound is within the gap of the answer is done. Another is split along the expert whose margins,
at the relaxed answer's own θ and γ, fall farthest short of its t, and halfway between the middle of the box and that γ. What is
found in a box depends on nothing but the box and the one it was cut from, so a proof that ends is the same for any number of
processes. After the first boxes g* is evaluated at the relaxed Γ of each open one: a search can have missed the highest local
maximum, and these boxes point to it. The bound proved is the largest over all boxes done and open, so it is valid whenever the
work stops.
What is bounded is the worst margin over the rows of the answer's Ω, for every Γ in the box of discounts searched.
That is g*(Γ) wherever Ω(Γ) contains those rows. Where it does not, the paper's g* counts fewer rows and can be larger; such Γ are
excluded by Theorem 1 itself if each of those rows is the only one that distinguishes some pair (`covers_all`), as on the toy
domain.
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.stats import qmc

from multihorizon.checks import Bools, Floats, Ints, as_count, as_discount, as_positive
from multihorizon.driver import EvaluationLog, Objective, SearchResult
from multihorizon.numerics.lp import (
    INFINITY,
    MOST_SIMPLEX_ROWS,
    Advance,
    LinearProgram,
    LPStatus,
    branch_and_bound,
    dual_bound,
    maximise,
    solve_for_duals,
)
from multihorizon.parallel import Progress, Run, in_parallel, n_workers, silent
from multihorizon.programs.inner import POSITIVE_MARGIN, Bases, Inner, Margins, Optimum, program, slices
from multihorizon.words import significant

Score = tuple[int, float]


class ProgramLog(EvaluationLog):
    """All evaluations of a search in order, and how many other programs HiGHS did not solve."""

    failures = 0

    @property
    def n_failed(self) -> int:
        """Return the number of programs that HiGHS did not solve."""
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

    def step(self, point: Optimum, radius: float) -> Advance | None:
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
        return Advance(target, length, result.objective - point.objective, priced)

    def move(self, point: Optimum, step: Advance) -> tuple[Optimum, float]:
        """Return the optimum at the end of a step, unless a small program shows that it is no higher.

        A short step is not checked by a small program: from a basis this near the whole costs no more.
        """
        if step.length > 0.02 and ruled_out(self.inner, point, step):
            return point, -INFINITY
        there = self.log.evaluate(self.inner, step.target, over_all=bool(point.omega.all()))
        return there, np.nan if there.failed else there.objective - point.objective


def ruled_out(inner: Inner, point: Optimum, step: Advance) -> bool:
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
    # The bound on the reward only keeps HiGHS' numbers finite.
    lp = program(inner.worst, gamma, inner.every, l1=0.0, bound=1e5, mean=True)
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

    def step(self, here: Relative, radius: float) -> Advance | None:
        inner, gamma = self.inner, here.point.discounts
        bounds = _step_bounds(inner, gamma, radius)
        lp = program(inner.worst, gamma, inner.every, l1=0.0, bound=1e5, values=here.values, steps=bounds, mean=True)
        result = inner.solve("relative step", lp, gamma, like="relative")
        if not result.optimal:
            self.log.failures += result.status == LPStatus.FAILED
            return None
        target = np.clip(gamma + result.values[inner.worst.columns.steps], 0.0, inner.margins.limits)
        return Advance(target, float(np.abs(target - gamma).max()), result.objective - here.worst)

    def move(self, here: Relative, step: Advance) -> tuple[Relative, float]:
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


@dataclass(frozen=True)
class SequentialLP:
    """Trust-region sequential linear programming from `starts` points; the default search of the LP solvers.

    Args:
        starts: how many ascents are made to the full accuracy.
        tolerance: the smallest trust region.
        max_steps: the most steps of an ascent.
        start: discount factors `(K,)` to begin one more ascent from; it keeps their order.
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
            raise ValueError("SequentialLP needs the linear programs of MPLP or NaiveLP, got another objective")
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
        # An ascent agrees with the best one if its objective is this near, as a share; rough ones may be less near.
        agreeing = int((heights >= heights[best] - 1e-4 * abs(heights[best])).sum()) - 1
        near = first.objective - 5e-3 * abs(first.objective)
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
        raise ValueError(f"order must name each expert once ({', '.join(names)}), got {order!r}")
    return np.array([names.index(str(name)) for name in order])


def _of_experts(start: Sequence[float], names: tuple[str, ...]) -> Floats:
    """Read one discount for each expert."""
    if len(start) != len(names):
        raise ValueError(f"start must be one discount for each of {len(names)} experts, got {len(start)}")
    return np.array([as_discount(discount) for discount in start])


class Box(NamedTuple):
    """A box of Γ with its bound, the relaxed answer's Γ, the expert to split, and the basis for the boxes cut from it."""

    bound: float
    low: Floats
    high: Floats
    relaxed: Floats
    split: int = 0
    basis: Any = None


class BoxColumns(NamedTuple):
    """The slices of the variables: θ⁺, θ⁻, each expert's θ₁, the continuations x₀ and x₁, λ, each expert's t₁, and t."""

    positive: slice
    negative: slice
    share: slice
    first: slice
    second: slice
    place: slice
    part: slice
    worst: slice


class Entries(NamedTuple):
    """The matrix of a box: its structure, the entries constant, times −l, times −h and times t̄, and whose l and h they take."""

    structure: Any
    constant: Floats
    low: Floats
    high: Floats
    largest: Floats
    expert: Ints


@dataclass(eq=False)
class Relaxation:
    """The bound for one problem with r_max = 1; `required` are the strict rows whose worst margin is bounded."""

    margins: Margins
    required: Bools
    l1: float

    def box(self, low: Floats, high: Floats, ceiling: float, enough: float, basis: Any = None) -> Box:
        """Bound the objective over the box, by at most `ceiling`, and choose where to split unless the bound is `enough`."""
        margins, columns = self.margins, self.columns
        program = self.program(low, high, ceiling)
        result = solve_for_duals(program, basis)
        # Dual prices that are not numbers prove nothing.
        bound = float(np.fmin(dual_bound(program, result.duals), ceiling))
        if bound <= enough:
            return Box(bound, low, high, low)
        x = np.nan_to_num(result.values)
        width = high - low
        place = np.clip(x[columns.place], 0.0, 1.0)
        point = margins.continuation(x[columns.positive] - x[columns.negative], low + place * width)
        short = self.required * x[columns.worst] - margins.strict.matrix @ point
        worst = 1e-9 * width
        np.maximum.at(worst, margins.strict.expert, short)
        np.maximum.at(worst, margins.ties.expert, np.abs(margins.ties.matrix @ point))
        # Boxes are kept from becoming very thin: an expert who falls short of nothing here may be the one that matters next.
        split = int(np.argmax(np.where(width >= width.max() / 8, worst, -1.0)))
        return Box(bound, low, high, low + place * width, split, result.basis if result.optimal else None)

    def program(self, low: Floats, high: Floats, ceiling: float) -> LinearProgram:
        """Build the program of a box in which the objective is at most `ceiling`."""
        margins, columns, entries, owner = self.margins, self.columns, self._entries, self.margins.owner
        d = margins.n_parameters
        k = margins.n_experts
        m = len(margins.strict)
        ties = np.zeros(2 * len(margins.ties))
        # V̄, a little more to be above the rounding of the solve; and t̄. The objective is t − l1 ‖θ‖₁.
        system = sp.eye_array(owner.size) - sp.diags_array(high[owner]) @ margins.values[:, d:]
        values = (1 + 1e-9) * spla.spsolve(sp.csc_array(system), abs(margins.values[:, :d]).sum(axis=1))
        margin = abs(margins.strict.matrix) @ np.concatenate([np.ones(d), high[owner] * values])
        largest = min(ceiling + self.l1 * d, float(margin.max(initial=0.0)))
        moving = entries.low * low[entries.expert] + entries.high * high[entries.expert]
        data = entries.constant - moving + entries.largest * largest
        matrix = sp.csr_array((data, entries.structure.indices, entries.structure.indptr), shape=entries.structure.shape)
        bend = (high - low)[owner] * values / 4
        sides = np.concatenate([np.repeat([0.0, -1.0], 2 * k * d), np.repeat([0.0, 0.0, -largest], k)])
        row_lower = np.concatenate([-bend, np.zeros(owner.size), ties, np.zeros(2 * m), sides])
        row_upper = np.concatenate([bend, np.zeros(owner.size), ties, np.full(2 * m + sides.size, INFINITY)])
        lower = np.zeros(matrix.shape[1])
        upper = np.ones(matrix.shape[1])
        costs = np.zeros(matrix.shape[1])
        # Without an l1 cost θ⁺ alone takes both signs.
        lower[columns.positive], upper[columns.negative] = (0.0, 1.0) if self.l1 > 0 else (-1.0, 0.0)
        lower[columns.share] = -1.0
        for continuation in (columns.first, columns.second):
            lower[continuation] = -high[owner] * values
            upper[continuation] = high[owner] * values
        upper[columns.part] = upper[columns.worst] = largest
        costs[columns.positive] = costs[columns.negative] = -self.l1
        costs[columns.worst] = 1.0
        return LinearProgram(costs, matrix, row_lower, row_upper, lower, upper)

    @property
    def size(self) -> int:
        """Return the number of entries in a box's program."""
        return int(self._entries.structure.nnz)

    @cached_property
    def columns(self) -> BoxColumns:
        """Return the places of the variables."""
        d, k, n = self.margins.n_parameters, self.margins.n_experts, self.margins.owner.size
        return BoxColumns(*slices(d, d, k * d, n, n, k, k, 1))

    @cached_property
    def _entries(self) -> Entries:
        margins, owner = self.margins, self.margins.owner
        d, k, n = margins.n_parameters, margins.n_experts, owner.size

        def placed(size: int, theta: Any = None, **blocks: Any) -> Any:
            """Put blocks into their columns of new rows; θ is θ⁺ − θ⁻."""
            if theta is not None:
                blocks |= {"positive": theta, "negative": -theta}
            widths = {name: where.stop - where.start for name, where in self.columns._asdict().items()}
            return sp.hstack([blocks.get(name, sp.csr_array((size, width))) for name, width in widths.items()], format="csr")

        def by_expert(rows: Any, expert: Ints) -> Any:
            """Rewrite rows on θ as rows on the θ₁ of the row's expert."""
            entries = sp.coo_array(rows)
            return sp.csr_array((entries.data, (entries.row, expert[entries.row] * d + entries.col)), shape=(expert.size, k * d))

        ends = []
        for rows, required in ((margins.ties, np.zeros(len(margins.ties))), (margins.strict, 1.0 * self.required)):
            theta = rows.matrix[:, :d]
            x = rows.matrix[:, d:]
            m = len(rows)
            share = by_expert(theta, rows.expert)
            part = sp.csr_array(required[:, None] * np.eye(k)[rows.expert])
            ends += [
                placed(m, theta, share=-share, first=x, part=part, worst=sp.csr_array(-required[:, None])),
                placed(m, share=share, second=x, part=-part),
            ]
        one = sp.eye_array(n)
        each = sp.eye_array(k * d)
        of_each = sp.kron(sp.eye_array(k), np.ones((d, 1)))
        whole = sp.kron(np.ones((k, 1)), sp.eye_array(d))
        expert = sp.eye_array(k)
        all_of = sp.csr_array(np.ones((k, 1)))
        constant = sp.vstack(
            [
                placed(n, first=one),
                placed(n, first=one, second=one),
                *ends,
                *(placed(k * d, share=sign * each, place=of_each) for sign in (1, -1)),
                *(placed(k * d, sign * whole, share=-sign * each, place=-of_each) for sign in (1, -1)),
                placed(k, part=-expert, worst=all_of),
                placed(k, part=-expert),
                placed(k, part=expert, worst=-all_of),
            ],
            format="csr",
        )
        theta = margins.values[:, :d]
        x = margins.values[:, d:]
        share = by_expert(theta, owner)
        v_0 = placed(n, theta, share=-share, first=x)
        v_1 = placed(n, share=share, second=x)
        rest = constant.shape[0] - 2 * n
        low = sp.vstack([v_0, v_0, placed(rest)], format="csr")
        high = sp.vstack([placed(n), v_1, placed(rest)], format="csr")
        largest = sp.vstack([placed(constant.shape[0] - 2 * k), placed(k, place=expert), placed(k, place=-expert)], format="csr")
        # All on the union of their structures.
        union = sp.csr_array(abs(constant) + abs(low) + abs(high) + abs(largest))
        row_of = np.repeat(np.arange(union.shape[0]), np.diff(union.indptr))
        parts = (constant, low, high, largest)
        fixed, of_low, of_high, of_largest = (np.asarray(part[row_of, union.indices]).ravel() for part in parts)
        return Entries(union, fixed, of_low, of_high, of_largest, owner[np.minimum(row_of, 2 * n - 1) % n])


@dataclass(frozen=True)
class Certificate:
    """The `upper` bound proved, the answer's `objective`, their relative `gap`, and the work it took.

    `proved` says whether the gap asked for was reached or, without an answer, that there is none. `covers_all` says whether the
    bound holds for every Γ or only for those whose Ω contains the answer's. `limits` are the largest discounts searched.
    """

    upper: float
    objective: float
    gap: float
    target: float
    proved: bool
    covers_all: bool
    boxes: int
    open_boxes: int
    seconds: float
    limits: list[float]

    @property
    def message(self) -> str:
        """Return the certificate in one sentence."""
        if not self.objective > -INFINITY:
            if self.proved:
                return f"proved: no reward distinguishes all experts at any discounts ({self.boxes} boxes)"
            return f"not proved that there is none at others ({self.boxes} boxes, {self.open_boxes} open)"
        where = "" if self.covers_all else " wherever Ω contains the answer's"
        done = "proved" if self.proved else f"not proved, stopped with {self.open_boxes} boxes open"
        above = f"{significant(100 * self.gap)}% above the answer"
        return f"{done}: the optimum{where} is at most {significant(self.upper, 6)}, {above} ({self.boxes} boxes)"


def cheap_boxes(inner: Inner) -> int:
    """Return how many boxes take about as long as the search: not a time, so that the same problem gets the same answer."""
    every = np.ones(len(inner.margins.strict), dtype=bool)
    return min(256, int(2e6 / Relaxation(inner.margins, every, inner.l1).size))


def bound_optimum(
    inner: Inner,
    point: Optimum,
    gap: float,
    seconds: float,
    run: Run,
    most: float = INFINITY,
) -> tuple[Certificate, LocalMaximum | None]:
    """Prove an upper bound on the worst margin over the point's Ω, to a relative `gap` if `seconds` and `most` boxes allow it.

    Where the proof finds an answer that is better by more than the gap, a search from there gives the answer to return and bound.
    """
    if not point.has_reward:
        return _bound_nothing(inner, gap, seconds, most), None
    begun = time.perf_counter()
    margins, required = inner.margins, point.omega
    relaxation = Relaxation(margins, required, inner.l1)
    target = max(point.objective / inner.bound * (1 + gap), POSITIVE_MARGIN)
    boxes = [relaxation.box(np.zeros(margins.n_experts), margins.limits, INFINITY, target)]
    deadline = begun + seconds
    settled = -INFINITY
    count = 1
    first = boxes[0].bound
    asked = False
    workers = n_workers(run.jobs)
    while boxes and time.perf_counter() < deadline and count < most:
        # The first boxes are for one process: many problems are done before a second process has started. Later rounds last
        # four seconds; then all open boxes are divided again.
        begins = count < 64 or most < INFINITY
        left = deadline - time.perf_counter()
        work = partial(_work, relaxation, target, 8 if begins else INFINITY, left if begins else min(4.0, left))
        shares = [boxes] if begins or workers == 1 else [boxes[i::workers] for i in range(min(workers, len(boxes)))]
        results = [work(boxes)] if len(shares) == 1 else list(in_parallel(work, shares, run.jobs))
        settled = max([settled, *[result[0] for result in results]])
        boxes = sorted((box for result in results for box in result[1]), key=lambda box: -box.bound)
        count += sum(result[2] for result in results)
        worst = max(settled, boxes[0].bound if boxes else -INFINITY)
        done = max((first - worst) / max(first - target, 1e-300), (time.perf_counter() - begun) / seconds)
        message = f"certificate: bound {significant(inner.bound * worst, 6)}, {len(boxes)} of {count} boxes open"
        run.progress(min(1.0, done) if boxes else 1.0, message)
        # Only now: later rounds end by the clock, and what is found must not depend on it.
        if boxes and not asked and count >= min(64, most):
            asked = True
            better = _higher(inner, required, boxes, target * inner.bound)
            if better is not None:
                left = deadline - time.perf_counter()
                proof, best = bound_optimum(inner, better.point, gap, left, run, most)
                return proof, best or better
    upper = max(inner.bound * max([settled, *[box.bound for box in boxes]]), point.objective)
    # A row that alone distinguishes a pair is in every Ω, by Theorem 1.
    forced = {int(rows[0]) for rows in margins.pairs.values() if rows.size == 1}
    proof = Certificate(
        upper=upper,
        objective=point.objective,
        gap=upper / point.objective - 1 if point.objective > 0 else INFINITY,
        target=gap,
        proved=not boxes,
        covers_all=forced.issuperset(np.flatnonzero(required).tolist()),
        boxes=count,
        open_boxes=len(boxes),
        seconds=time.perf_counter() - begun,
        limits=margins.limits.tolist(),
    )
    return proof, None


def _higher(inner: Inner, required: Bools, boxes: list[Box], target: float) -> LocalMaximum | None:
    """Find an answer above the target from the relaxed answers of open boxes, by ascents from the best few of them.

    g* over fewer rows is not comparable.
    """
    points = [inner.at(box.relaxed, over_all=bool(required.all())) for box in boxes]
    points = sorted((at for at in points if at.has_reward and at.omega[required].all()), key=lambda at: -at.objective)
    rough = [ROUGH.ascend(inner, ProgramLog(), at, rival=target).point for at in points[:4]]
    above = [at for at in rough if at.objective > target and at.omega[required].all()]
    return Optimiser(1e-9, 200).ascend(inner, ProgramLog(), max(above, key=lambda at: at.objective)) if above else None


def _bound_nothing(inner: Inner, gap: float, seconds: float, most: float = INFINITY) -> Certificate:
    """Prove that there is no answer: two experts whom no reward distinguishes, whatever the discounts.

    A reward distinguishes two experts if it makes one of the actions in which they differ strictly better and no chosen action
    worse. So each of these rows by itself is bounded, as far as time allows; one pair with no margin above zero is enough.
    """
    begun = time.perf_counter()
    margins = inner.margins
    count = 0
    boxes = list[Box]()
    upper = INFINITY
    for rows in sorted(margins.pairs.values(), key=lambda rows: rows.size):
        boxes = []
        settled = 0.0
        for row in rows:
            relaxation = Relaxation(margins, np.arange(len(margins.strict)) == row, 0.0)
            first = relaxation.box(np.zeros(margins.n_experts), margins.limits, INFINITY, POSITIVE_MARGIN)
            left = begun + seconds - time.perf_counter()
            largest, boxes, done = _work(relaxation, POSITIVE_MARGIN, most - count, left, [first])
            settled = max(settled, largest)
            count = count + 1 + done
            if boxes:
                break
        if not boxes:
            upper = inner.bound * settled
            break
    return Certificate(
        upper=upper,
        objective=-INFINITY,
        gap=INFINITY,
        target=gap,
        proved=not boxes and bool(margins.pairs),
        covers_all=True,
        boxes=count,
        open_boxes=len(boxes),
        seconds=time.perf_counter() - begun,
        limits=margins.limits.tolist(),
    )


def _work(relaxation: Relaxation, target: float, most: float, seconds: float, boxes: list[Box]) -> tuple[float, list[Box], int]:
    """Cut boxes above the target until none is left, `most` more are made, or time is up.

    Returns the largest bound of the boxes that are done, the boxes that are open, and how many were made.
    """
    settled = max((box.bound for box in boxes if box.bound <= target), default=-INFINITY)

    def halves(box: Box) -> Iterator[Box | None]:
        nonlocal settled
        bound, low, high, relaxed, split, basis = box
        lower_high = high.copy()
        upper_low = low.copy()
        lower_high[split] = upper_low[split] = ((low + high) / 2 + relaxed)[split] / 2
        for ends in ((low, lower_high), (upper_low, high)):
            half = relaxation.box(*ends, bound, target, basis)
            if half.bound <= target:
                settled = max(settled, half.bound)
            yield half if half.bound > target else None

    above = [box for box in boxes if box.bound > target]
    open_boxes, count = branch_and_bound(above, attrgetter("bound"), halves, lambda: target, most, seconds)
    return settled, open_boxes, count
