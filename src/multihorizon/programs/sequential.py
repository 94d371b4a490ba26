"""Sequential linear programming over the discounts.

g*(Γ) is a linear program for fixed Γ, and Γ enters it through the bilinear `x_k = γ_k V_k` alone. At a point (θ̄, V̄, Γ̄) that
product is replaced by its linearisation

    x_k = γ̄_k V_k + V̄_k ν_k,        |ν_k| ≤ Δ,        0 ≤ γ̄_k + ν_k ≤ 1,

one linear program in (θ, x, ν) whose optimum predicts g*(Γ̄ + ν). The step is taken if the true g*, from the program at the
new Γ, is larger; Δ grows where the prediction was good and shrinks where it was not. A climb stops when the best step in the
trust region promises less than `tolerance` of the objective, or when Δ falls below `tolerance`.

Two things a local step cannot do are done before it:

* order. At γ_i = γ_j experts i and j cannot be told apart, so the orders of the experts are separate hills. They are ranked by
  g* at a few spread-out discounts and climbed roughly from the best of these, as long as they can still catch up with the best.
  All starts are then put in the order that won and keep it: no discount overtakes another.
* feasibility. Where no reward satisfies all rows, θ = 0 is the optimum and every slope is zero. There the same steps are
  taken on another program: the worst margin (now negative) of a reward whose mean margin is 1.

The first start is the rough climb that won, the others are a scrambled Sobol sequence. With an l1 weight the climbs are made
without it first: θ = 0 is optimal on whole regions of Γ if the weight is large, and a climb that starts there sees no slope.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from multihorizon.checks import Floats, Ints, as_count, as_positive
from multihorizon.programs.highs import INFINITY
from multihorizon.programs.inner import STRICT, Inner, Point
from multihorizon.programs.lp_model import program
from multihorizon.progress import Progress, silent
from multihorizon.search import Objective
from multihorizon.solution import Trace

#: The first trust region: half the range, so that a climb can leave the basin its start happens to lie in.
FIRST_RADIUS = 0.5
#: Orders are compared by climbs to this accuracy, with at most this many steps.
ROUGH, ROUGH_STEPS = 1e-3, 20
#: An order is given up where this many steps as good as the next one promises to be would not reach the best order.
HOPE = 4.0
#: Up to this many experts every order of their horizons is tried.
ALL_ORDERS = 4
#: Bound on the reward where the mean margin is held at 1; only there to keep HiGHS' numbers finite.
MEAN_BOUND = 1e5


@dataclass(eq=False)
class Climb:
    """One start: its evaluations in order, the best point, and whether it stopped because no step promised more."""

    start: Floats
    discounts: list[Floats] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    best: Point | None = None
    converged: bool = False


@dataclass(frozen=True)
class SequentialLP:
    """Trust-region sequential linear programming from `starts` Sobol points; the default search of the LP solvers."""

    starts: int = 8
    tolerance: float = 1e-9
    max_steps: int = 200

    def __post_init__(self) -> None:
        as_count(self.starts, "starts")
        as_count(self.max_steps, "max_steps")
        as_positive(self.tolerance, "tolerance")

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> Trace:
        """Climb from every start; the trace holds all evaluations in order."""
        if not isinstance(objective, Inner):
            raise ValueError(
                "SequentialLP needs the linear programs of LPIRL's family (MPLP, NaiveLP), received another objective"
            )
        return join_climbs(self.climbs(objective, seed, progress))

    def climbs(self, inner: Inner, seed: int = 0, progress: Progress = silent) -> list[Climb]:
        """One climb a start."""
        limits = inner.margins.limits
        sobol = qmc.Sobol(limits.size, seed=seed).random_base2(max(0, int(np.ceil(np.log2(self.starts)))))
        plain = inner if inner.l1 == 0 else replace(inner, l1=0.0, _bases={})
        first, order = self._survey(plain)
        rest = [Climb(_in_order(start, order, limits)) for start in sobol[: self.starts - 1]]
        done: list[Climb] = []
        for number, climb in enumerate([first, *rest]):
            done.append(self._climb(inner, plain, climb))
            best = max(max(climb.values) for climb in done)
            progress((number + 1) / self.starts, f"sequential LP: start {number + 1} of {self.starts}, best {best:.6g}")
        return done

    def _survey(self, plain: Inner) -> tuple[Climb, Ints]:
        """Rough climbs in every order that explains the experts at some spread-out discounts, and the order that won."""
        rough = replace(self, tolerance=max(ROUGH, self.tolerance), max_steps=min(ROUGH_STEPS, self.max_steps))
        first, *others = best_orders(plain)
        climb = Climb(first)
        best = rough._ascend(plain, climb, _look(plain, climb, first), rival=-INFINITY)
        for gamma in others:
            top = rough._ascend(plain, climb, _look(plain, climb, gamma), rival=best.objective)
            best = max(best, top, key=lambda point: point.objective)
        climb.best = best
        return climb, np.argsort(best.discounts, kind="stable")

    def _climb(self, inner: Inner, plain: Inner, climb: Climb) -> Climb:
        point = self._ascend(plain, climb, climb.best or _look(plain, climb, climb.start))
        if inner is not plain:
            # Values without the l1 term are not values of the objective: only what follows is kept.
            climb = Climb(climb.start)
            point = self._ascend(inner, climb, _look(inner, climb, point.discounts))
        climb.best = point
        return climb

    def _ascend(self, inner: Inner, climb: Climb, point: Point, rival: float | None = None) -> Point:
        """Steps from one point until none promises more; with a `rival`, in any order and until the rival is out of reach."""
        if point.objective <= 0:
            point = self._restore(inner, climb, point)
        radius = FIRST_RADIUS
        for _ in range(self.max_steps):
            if not point.objective > -INFINITY:
                break
            gamma, predicted = _step(inner, point, radius, keep_order=rival is None)
            gain = predicted - point.objective
            climb.converged = gain <= self.tolerance * abs(point.objective) or radius <= self.tolerance
            if climb.converged or (rival is not None and point.objective + HOPE * gain < rival):
                break
            there = _look(inner, climb, gamma)
            ratio = (there.objective - point.objective) / gain
            radius = _next_radius(radius, float(np.abs(gamma - point.discounts).max()), ratio)
            point = there if ratio > 0 else point
        return point

    def _restore(self, inner: Inner, climb: Climb, point: Point) -> Point:
        """Steps on the worst margin relative to the mean one, until g* is positive or no step promises more."""
        gamma, radius = point.discounts, FIRST_RADIUS
        worst, values = _relative(inner, gamma)
        for _ in range(self.max_steps):
            if not worst > -INFINITY or radius <= self.tolerance:
                break
            target, predicted = _relative_step(inner, gamma, values, radius)
            gain = predicted - worst
            if gain <= 1e-7 * max(1.0, abs(worst)):
                break
            reached, there = _relative(inner, target)
            ratio = (reached - worst) / gain
            radius = _next_radius(radius, float(np.abs(target - gamma).max()), ratio)
            if ratio > 0:
                gamma, worst, values = target, reached, there
                point = _look(inner, climb, gamma)
                if point.objective > 0:
                    break
        return point


def join_climbs(climbs: list[Climb]) -> Trace:
    """The evaluations of all climbs as one trace."""
    chain = itertools.chain.from_iterable
    ends = np.cumsum([0.0, *[climb.seconds[-1] for climb in climbs]])
    seconds = [np.array(climb.seconds) + begun for climb, begun in zip(climbs, ends, strict=False)]
    discounts = np.array(list(chain(climb.discounts for climb in climbs)))
    return Trace(discounts, np.array(list(chain(climb.values for climb in climbs))), np.concatenate(seconds))


def _look(inner: Inner, climb: Climb, gamma: Floats) -> Point:
    """Solve at Γ and write it down."""
    begun = time.perf_counter()
    point = inner.at(gamma)
    climb.discounts.append(gamma)
    climb.values.append(point.objective)
    climb.seconds.append((climb.seconds[-1] if climb.seconds else 0.0) + time.perf_counter() - begun)
    return point


def best_orders(inner: Inner) -> list[Floats]:
    """For each order of the experts the best of a few spread-out discounts, from the best order to the worst.

    All orders are tried up to `ALL_ORDERS` experts; beyond, pairs are exchanged as long as that helps. Orders without a reward
    at any of the discounts are left out, unless none has one: then it is the least contradictory order alone.
    """
    k, limits = inner.margins.n_experts, inner.margins.limits

    def value(order: Ints) -> float:
        return max(inner(_in_order(spread, order, limits)) for spread in _spreads(k))

    orders = [np.array(order) for order in itertools.permutations(range(k))] if k <= ALL_ORDERS else []
    orders = orders or [_exchange(np.arange(k), value)]
    points = [_in_order(spread, order, limits) for order in orders for spread in _spreads(k)]
    merits = _merits(inner, points)
    bests = [i + int(merits[i : i + 3].argmax()) for i in range(0, len(points), 3)]
    ranked = sorted(bests, key=lambda i: -merits[i])
    return [points[i] for i in ranked if merits[i] > STRICT * inner.bound] or [points[ranked[0]]]


def _merits(inner: Inner, points: list[Floats]) -> Floats:
    """g* over all rows where it is positive anywhere, else g* over Ω, else the relative worst margin."""
    every = np.ones(len(inner.margins.strict), dtype=np.bool_)
    for merit in (lambda gamma: inner.run(gamma, every).objective, inner):
        values = np.array([merit(gamma) for gamma in points])
        if values.max() > STRICT * inner.bound:
            return values
    return np.array([_relative(inner, gamma)[0] for gamma in points])


def _exchange(order: Ints, value: Callable[[Ints], float]) -> Ints:
    """Exchange pairs as long as that helps."""
    best, improved = value(order), True
    while improved:
        improved = False
        for swapped in _swaps(order):
            reached = value(swapped)
            if reached > best:
                order, best, improved = swapped, reached, True
    return order


def _spreads(k: int) -> list[Floats]:
    """Discounts far apart: even over the range, crowded at its lower end, crowded at its upper end."""
    even = (np.arange(k) + 0.5) / k
    return [even, even**2, np.sqrt(even)]


def _in_order(values: Floats, order: Ints, limits: Floats) -> Floats:
    gamma = np.empty(values.size)
    gamma[order] = np.sort(values)
    capped: Floats = np.minimum(gamma, limits)
    return capped


def _swaps(gamma: NDArray[Any]) -> Iterator[NDArray[Any]]:
    for i, j in itertools.combinations(range(gamma.size), 2):
        swapped = gamma.copy()
        swapped[[i, j]] = swapped[[j, i]]
        yield swapped


def _step(inner: Inner, point: Point, radius: float, *, keep_order: bool) -> tuple[Floats, float]:
    """The best Γ of the linearised program within the trust region and the g* it predicts."""
    lp = program(
        inner.layout,
        point.discounts,
        point.omega,
        l1=inner.l1,
        bound=inner.bound,
        values=point.values,
        steps=_room(inner, point.discounts, radius),
        # Sums of margins do not need the experts to be told apart: for them no order is a hill of its own.
        keep_order=keep_order and inner.objective == "worst",
    )
    result = inner.solve("step", lp)
    if not result.optimal:
        return point.discounts, -INFINITY
    return _moved(inner, point.discounts, result.values[inner.layout.columns[4]]), result.objective


def _relative(inner: Inner, gamma: Floats) -> tuple[float, Floats]:
    """The largest worst margin of a reward with mean margin 1, and its values; −inf where no reward has one."""
    every = np.ones(len(inner.margins.strict), dtype=np.bool_)
    result = inner.solve("relative", program(inner.worst, gamma, every, l1=0.0, bound=MEAN_BOUND, mean=True))
    if not result.optimal:
        return -INFINITY, np.zeros(inner.margins.values.shape[0])
    return result.objective, inner.values(inner.worst, result)


def _relative_step(inner: Inner, gamma: Floats, values: Floats, radius: float) -> tuple[Floats, float]:
    every = np.ones(len(inner.margins.strict), dtype=np.bool_)
    room = _room(inner, gamma, radius)
    lp = program(inner.worst, gamma, every, l1=0.0, bound=MEAN_BOUND, values=values, steps=room, mean=True)
    result = inner.solve("relative step", lp)
    if not result.optimal:
        return gamma, -INFINITY
    return _moved(inner, gamma, result.values[inner.worst.columns[4]]), result.objective


def _room(inner: Inner, gamma: Floats, radius: float) -> tuple[Floats, Floats]:
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
