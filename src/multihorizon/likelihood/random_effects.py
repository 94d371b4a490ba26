"""Random effects: how far temperatures, and rewards, vary between experts. The most likely spreads τ, their tests and intervals.

*Temperatures.* Equal ones turn a noisy expert into a short-sighted one. Free ones run away beside a free reward. In between, the
logarithms of the temperatures are taken to vary around a common value with standard deviation τ:

    L_τ(x) = L(x) − Σ_k (ℓ_k − ℓ̄)² / (2τ²),     ℓ_k = log λ_k.

τ = 0 makes all equal and τ = ∞ sets all free. τ is chosen by the likelihood of the decisions given τ: temperatures are
integrated out by Laplace's method and everything else is profiled out. It maximises `max_x L_τ(x) − (K−1) log τ − ½ log det S_τ`,
S the information of the differences of the ℓ_k, with the penalty, after everything else has been accounted for. Discounts that
rest on a bound count as known there. Twice the gain over τ = 0 tests that all temperatures are equal; on the bound τ = 0 its
distribution is half χ²₀, half χ²₁ where there are enough decisions. With few experts a rejection must also hold against tables
drawn from the fit with equal temperatures, by their gain at the chosen τ (not where states are vectors). Where the test does
not reject, equal temperatures are kept: with few experts a spread that may be noise costs more than it helps.

The τ to climb at is read from the scores: the quadratic approximation of L at the fit with equal temperatures gives the gain of
every τ at once. Where none is expected to gain, nothing is climbed. Else the best is climbed, the approximation is made anew
there, and so on until the best has been climbed.

*Deviations of rewards.* `choice.deviations` gives the log-likelihood M(x; τ) of the decisions, with deviations integrated out. τ
is judged by the restricted likelihood, in which x is integrated out by Laplace's method too:

    C(τ) = max_x M(x; τ) − ½ log det(J_τ + Λ),

J_τ the marginal information of x at the maximum and Λ the precision of wide priors (rewards 20 temperatures, a uniform discount,
log-temperatures 1), which decide nothing but keep directions finite of which the decisions say nothing. Without the second term
a spread among few experts would be too small, as a variance is that is divided by n and not by n − 1, and intervals of discounts
would be too narrow.

*The test.* τ = 0 is one reward for all. Twice the gain `C(τ̂) − C(0)` is compared with half χ²₀, half χ²₁, because 0 is a bound.

*The interval* of τ is `{τ : 2 (C(τ̂) − C(τ)) ≤ χ²₁}`, and begins at 0 where that belongs to it.

*Starts.* The likelihood is not concave, and one reward for all that does not fit may lead far away. So all ends of the search
with one reward are climbed once more at the chosen τ; where one of them is better, the search for τ begins again there.

*In words.* Deviations of spread τ move `log π(a|s)` by a normal with variance `ψᵀ τ²W ψ`, ψ its derivative in θ. The share of
choices that they move is half the expected sum of `|Δπ(a|s)|`, to first order, averaged over the decisions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Generic, cast

import numpy as np
from scipy.special import ndtri

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Floats
from multihorizon.choice.deviations import NearlyShared, NearPoint
from multihorizon.choice.model import ChoiceModel, ChoicePoint, Likelihood, Point, Quadratic, draw_decisions, temperature_penalty
from multihorizon.likelihood.clusters import sign_flip_test
from multihorizon.likelihood.intervals import precision, profile_information
from multihorizon.likelihood.search import P, climb
from multihorizon.numerics.distributions import chi2_ppf, chi2_sf
from multihorizon.numerics.newton import Ascent, Dense, Metric, resting
from multihorizon.parallel import Run
from multihorizon.words import significant

#: Deviations are tried from a thousandth of a temperature, which nobody would see, to a hundred, which leaves every policy open.
LEAST, MOST = 1e-3, 1e2


@dataclass(frozen=True, eq=False)
class Nearly:
    """The search for τ.

    Attributes:
        shared: the fit with one reward for all.
        estimated: the most likely τ; 0 where none is likelier than that.
        p_shared: the p-value of τ = 0; NaN where no climb with deviations ended, or where τ was given.
        ascent: the fit with the most likely τ; None where that is 0.
        complete: whether the climbs at all spreads that were tried ended.
        given: whether τ was given.
        search: the fits at other spreads, and the one with the largest gain, from which intervals are found.
    """

    shared: Point
    estimated: float
    p_shared: float
    ascent: Ascent[NearPoint] | None
    complete: bool
    given: bool = False
    search: tuple[_Spreads, float] | None = None

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Return the ends of the 95% CI of τ; NaN where an end was not found, infinity where all large spreads are
        likely.
        """
        if self.given or self.search is None:
            return (self.estimated, self.estimated) if self.given else (np.nan, np.nan)
        spreads, best = self.search
        level = max(spreads.gains[best], 0.0) - 0.5 * float(chi2_ppf(0.95, 1))
        lower = 0.0 if level <= 0 else crossing(spreads.gain, best, LEAST * spreads.unit, level)
        return lower, crossing(spreads.gain, best, MOST * spreads.unit, level)


def restricted(point: Point) -> float:
    """Return C: the objective less half the logarithm of the determinant of the information, with wide priors; without
    constants.
    """
    model = point.likelihood
    unit = float(np.exp(np.log(model.temperatures(point.x)).mean()))
    precision = np.zeros(model.size)
    precision[: model.n_reward] = (model.feature_sizes / (20 * unit)) ** 2
    precision[model.discount_slice], precision[model.temperature_slice] = 12.0, 1.0
    free = ~model.fixed & ~resting(point)
    matrix = point.curvature()[np.ix_(free, free)] + np.diag(precision[free])
    return point.objective - 0.5 * float(np.linalg.slogdet(matrix)[1])


class _Spreads:
    """Fits with different spreads, each begun at the nearest one that is done."""

    def __init__(self, shared: Point) -> None:
        self.shared = shared
        self.plain = within_reach(shared)
        self.reference = restricted(shared)
        self.unit = float(np.exp(np.log(shared.likelihood.temperatures(shared.x)).mean()))
        self.ends: dict[float, Ascent[NearPoint]] = {}
        self.gains: dict[float, float] = {}
        self.complete = True

    def model(self, spread: float) -> NearlyShared:
        return NearlyShared.of(self.plain, spread)

    def gain(self, spread: float) -> float:
        """Return `C(τ) − C(0)`; minus infinity where the climb did not end."""
        if spread not in self.gains:
            near = min(self.ends, key=lambda done: abs(np.log(done / spread)), default=None)
            end = fit_with(self.model(spread), self.shared if near is None else self.ends[near].point)
            if end is None:
                self.complete = False
            else:
                self.ends[spread] = end
            self.gains[spread] = -np.inf if end is None else restricted(end.point) - self.reference
        return self.gains[spread]

    def begin_at(self, spread: float, end: Ascent[NearPoint]) -> None:
        """Forget all but this fit."""
        self.ends = {spread: end}
        self.gains = {spread: restricted(end.point) - self.reference}


def within_reach(shared: Point) -> Likelihood:
    """Return the model of one reward, with discounts below 1 if not all experts would ever end at 1.

    With rewards of their own, some would then have infinite values just below 1, and a climb cannot pass such an edge.
    """
    model = shared.likelihood
    x = shared.x.copy()
    x[model.discount_slice] = model.upper[model.discount_slice]
    farthest = model.at(x)
    longest = 1e4  # in temperatures, and about as many steps
    if farthest is not None and all(np.abs(plan.values).max() < longest * plan.lam.min() for plan in farthest.plans):
        return model
    changed = copy.copy(model)
    free = ~model.fixed[model.discount_slice]
    changed.upper = model.upper.copy()
    changed.upper[model.discount_slice][free] = np.minimum(changed.upper[model.discount_slice][free], ENDLESS_DISCOUNT)
    return changed


def fit_with(model: NearlyShared, start: Point) -> Ascent[NearPoint] | None:
    """Return the best point of the model from there, to 1e-4 of log-likelihood; None where the climb was broken off."""
    begin = model.at(np.clip(start.x, model.lower, model.upper), start)
    end = None if begin is None else climb(begin, max_steps=100, gain=1e-4)
    return end if end is not None and end.finished else None


def given_deviations(shared: Point, spread: float, others: Sequence[Point] = ()) -> Nearly:
    """Return the fit with deviations of a given spread."""
    model = NearlyShared.of(within_reach(shared), spread)
    start = model.at(np.clip(shared.x, model.lower, model.upper), shared)
    if start is None:
        raise ValueError(f"no fit with deviations of {spread:g} was found: the most likely deviations do not converge")
    end = climb(start)
    better = _elsewhere(end, others) if end.finished else None
    return Nearly(shared, spread, np.nan, better or end, complete=True, given=True)


def estimate_deviations(
    shared: Point, others: Sequence[Point] = (), guess: float | None = None, run: Run | None = None
) -> Nearly:
    """Return the most likely spread of personal deviations.

    Args:
        shared: the fit with one reward for all.
        others: other ends of the search with one reward, from which to climb as well.
        guess: a spread near which the search begins.
        run: reports the progress after each round.
    """
    search = _Spreads(shared)
    progress = (run or Run()).progress
    low, high = LEAST * search.unit, MOST * search.unit
    around = 0.3 * search.unit if guess is None else guess
    best = highest(search.gain, low, high, [around / 3, around, 3 * around])
    progress(0.5, f"deviations of {significant(best)}")
    if best in search.ends:
        elsewhere = _elsewhere(search.ends[best], others)
        if elsewhere is not None:
            search.begin_at(best, elsewhere)
            best = highest(search.gain, low, high, [0.3 * best, 3 * best])
    progress(1.0, f"deviations of {significant(best)}")
    if best not in search.ends:
        return Nearly(shared, 0.0, np.nan, None, complete=False)
    gained = search.gains[best]
    if gained <= 1e-3:  # climbs leave less than that
        return Nearly(shared, 0.0, 0.5, None, search.complete, search=(search, best))
    p_shared = 0.5 * float(chi2_sf(2 * gained, 1))
    return Nearly(shared, best, p_shared, search.ends[best], search.complete, search=(search, best))


def _elsewhere(end: Ascent[NearPoint], others: Sequence[Point]) -> Ascent[NearPoint] | None:
    """Return a better end of a climb from one of these points; None where there is none."""
    model = end.point.likelihood
    best = None
    height = end.point.objective + 1e-2
    for other in others:
        old = other.likelihood
        temperatures = model.of_temperature_groups(old.temperatures(other.x))
        moves = other.x[old.beside_slice] if old.n_transitions == model.n_transitions else None
        start = model.at(model.pack(old.reward(other.x), other.x[old.discount_slice], temperatures, moves))
        rough = None if start is None else climb(start, max_steps=12, gain=1e-2)
        if rough is None or rough.point.objective < height - (0 if rough.finished else 3):
            continue
        better = climb(rough.point, max_steps=100, gain=1e-4)
        if better.finished and better.point.objective > height:
            best = better
            height = better.point.objective
    return best


def highest(gain: Callable[[float], float], low: float, high: float, first: Sequence[float]) -> float:
    """Return the spread with the largest gain, by parabolas in its logarithm, to a twentieth."""
    done = {spread: gain(spread) for spread in first}
    for _ in range(12):
        spreads = np.array(sorted(done))
        values = np.array([done[spread] for spread in spreads])
        top = int(values.argmax())
        if top in (0, spreads.size - 1):
            tried = spreads[top] * (1 / 3 if top == 0 else 3)
            if not low <= tried <= high or (top == 0 and values[0] < 1e-2 and spreads[0] < 10 * low):
                break
        else:
            near = np.log(spreads[top - 1 : top + 2] / spreads[top])
            if not np.isfinite(values[top - 1 : top + 2]).all():
                step = near[2] / 2 if np.isfinite(values[top + 1]) else near[0] / 2
            else:
                square, slope, _ = np.polyfit(near, values[top - 1 : top + 2], 2)
                step = float(np.clip(-slope / (2 * square), 0.7 * near[0], 0.7 * near[2])) if square < 0 else near[2] / 2
            if abs(step) < 0.05:
                wide = near[2] if near[2] > -near[0] else near[0]
                if abs(wide) < 0.5:
                    break
                step = wide / 2  # a parabola through places far apart may have its top anywhere
            tried = spreads[top] * float(np.exp(step))
        done[tried] = gain(float(tried))
    return max(done, key=lambda spread: done[spread])


def crossing(gain: Callable[[float], float], start: float, end: float, level: float) -> float:
    """Return the spread between the best one and a bound at which the gain falls to a level; the bound counts as 0 or
    infinity.
    """
    factor = 2.0 if end > start else 0.5
    inside = start
    outside = start * factor
    while gain(outside) > level:
        inside = outside
        outside = outside * factor
        if (outside - end) * (end - start) >= 0:
            return np.inf if factor > 1 else 0.0
    top = gain(start)

    def above(spread: float) -> float:
        """Return how far the gain is above the level, by the root of what is lost, which is nearly linear in log τ."""
        return float(np.sqrt(top - level) - np.sqrt(max(top - gain(spread), 0.0)))

    before = above(inside)
    after = above(outside)
    side = 0
    for _ in range(12):
        if not np.isfinite(after):
            return np.nan
        tried = float(inside * (outside / inside) ** float(np.clip(before / (before - after), 0.05, 0.95)))
        if abs(gain(tried) - level) < 0.05 or abs(np.log(outside / inside)) < 0.02:
            return tried
        # Where one side stays, its height counts half, or the other would creep (the Illinois rule).
        if above(tried) > 0:
            inside = tried
            before = above(tried)
            after = after / 2 if side > 0 else after
            side = 1
        else:
            outside = tried
            after = above(tried)
            before = before / 2 if side < 0 else before
            side = -1
    return float(inside)


def degrees_of_freedom(nearly: Nearly, point: NearPoint) -> Floats | None:
    """Return of each expert's interval `(K,)`, because the spread is estimated; None where it was given.

    The variance of log τ is read from its interval.
    """
    low, high = nearly.interval
    halves = [
        abs(np.log(end / nearly.estimated)) for end in (low, high) if end > 0 and np.isfinite(end) and end != nearly.estimated
    ]
    if nearly.given or not halves:
        return None
    variance = (float(np.mean(halves)) / float(ndtri(0.975))) ** 2
    model = point.likelihood
    wider = NearlyShared.of(model, 1.1 * model.spread).at(point.x, point)
    if wider is None:
        return None
    errors = [np.sqrt(precision(p).variance[model.discount_slice])[model.groups] for p in (point, wider)]
    share = np.log(np.maximum(errors[1], TINY) / np.maximum(errors[0], TINY)) / np.log(1.1)
    freedom: Floats = 1 / (2 * variance * np.clip(share, 0.05, 1.0) ** 2)
    return freedom


def choices_moved(point: Point, spread: float) -> float:
    """Return how many choices in a hundred deviations of this spread move, to first order."""
    if not np.isfinite(spread):
        return np.nan
    model = NearlyShared.of(point.likelihood, 1.0)
    total = 0.0
    plans = point.plans
    if point.likelihood.settings.reward is not None and not isinstance(point, NearPoint):  # plans without columns of the reward
        plans = model.plans(model.in_tasks(point.x), point.x, point.rewards, None) or plans
    for plan in plans:
        rows = plan.persons.visited_rows
        used = plan.persons.features.used
        scores = plan.score_rows()[:, :, :-2]
        deviation = spread * np.sqrt(((scores / model.sizes[used]) ** 2).sum(axis=2))
        chances = (plan.persons.visits * plan.policy).reshape(-1, plan.lam.size)[rows]
        total += 0.5 * np.sqrt(2 / np.pi) * float((chances * deviation).sum())
    return min(100.0, 100 * total / model.decisions)


@dataclass(frozen=True, eq=False)
class TemperatureSpread(Generic[P]):
    """The chosen τ, the fit with it, the p-value of equal temperatures, and whether the climbs at all τ that were tried ended.

    The p-value is NaN where none of them did.
    """

    value: float
    ascent: Ascent[P]
    p_equal: float
    complete: bool


def estimate_spread(equal: Ascent[P], free: ChoiceModel) -> TemperatureSpread[P]:
    """Return the most likely spread, from the fit with equal temperatures.

    Args:
        equal: the fit in which all temperatures are one.
        free: the same likelihood with a temperature for each expert.
    """
    rejected = 0.05  # the p-value below which equal temperatures are given up
    # From 2% to a factor of 20. The error of a spread is far larger than their distance.
    spreads = np.geomspace(0.02, 3.0, 21)
    ends: dict[int, tuple[float, Ascent[P]]] = {}
    unfinished: list[int] = []
    at = _with_spread(free, float(spreads[-1]), equal.point)
    spread = float(spreads[-1])
    alike = _equal_temperatures(equal, free) if free.clusters is not None else 0.0
    if alike > rejected:
        return TemperatureSpread(0.0, equal, alike, complete=True)
    while at is not None:
        expected = _expected_gains(at, spread, spreads) - equal.point.objective
        if not ends and not unfinished and expected.argmax() == 0:
            return TemperatureSpread(0.0, equal, 1.0, complete=True)
        expected[unfinished] = -np.inf
        best = int(expected.argmax())
        if best in ends or len(unfinished) > 2:
            break
        start = _with_spread(free, float(spreads[best]), at)
        metric = None
        if start is not None and not _by_products(start):  # the information is at hand, and only the penalty is another one
            old, new = at.likelihood.penalty, start.likelihood.penalty
            change = cast(Quadratic, new).matrix - cast(Quadratic, old).matrix
            metric = Dense(at.curvature() + change, free.units)
        end = None if start is None else _rough_climb(start, metric)
        if end is None:
            unfinished.append(best)
        else:
            at = end.point
            spread = float(spreads[best])
            ends[best] = (log_likelihood_given(at, spread) - equal.point.objective, end)
    if not ends:
        return TemperatureSpread(0.0, equal, np.nan, complete=False)
    best = max(ends, key=lambda i: ends[i][0])
    gained, end = ends[best]
    p_equal = 0.5 * float(chi2_sf(2 * gained, 1)) if gained > 0 and best else 1.0
    few = not free.is_large and free.n_experts <= 12  # with many, χ² does
    if free.clusters is not None:
        p_equal = max(p_equal, alike)
    elif p_equal < rejected and few and type(free) is Likelihood and isinstance(equal.point, Point):
        p_equal = max(p_equal, _simulated(equal.point, free, float(spreads[best]), gained, rejected))
    if p_equal > rejected:
        return TemperatureSpread(0.0, equal, p_equal, not unfinished)
    return TemperatureSpread(float(spreads[best]), climb(end.point), p_equal, not unfinished)


def _equal_temperatures(equal: Ascent[P], free: ChoiceModel) -> float:
    """Return the p-value of equal temperatures where clusters are independent, from the scores of each expert's temperature."""
    start = _with_spread(free, np.inf, equal.point)
    if not isinstance(start, Point):
        return 1.0
    contrasts = np.zeros((free.size, free.n_temperatures - 1))
    contrasts[free.temperature_slice] = orthonormal_differences(free.n_temperatures)
    p_value = sign_flip_test(start, contrasts)[1]
    return 1.0 if np.isnan(p_value) else p_value


def _expected_gains(point: ChoicePoint, spread: float, spreads: Floats) -> Floats:
    """Return the log-likelihood given each of some spreads, from that at one of them and its quadratic approximation there.

    With c the differences of log-temperatures, g the gradient of L in them and A their information, everything else profiled out,
    it is `L + ½ hᵀ(A + 1/τ²)^{-1}h − ½ log det(τ²A + 1)` with L continued to c = 0, and `h = g + A c`.
    """
    part = point.likelihood.temperature_slice
    covariance = _differences(point)[1]
    differences = orthonormal_differences(point.likelihood.n_temperatures)
    here = differences.T @ point.x[part]
    slope = differences.T @ point.gradient[part] + here / spread**2
    information = np.linalg.inv(covariance) - np.eye(here.size) / spread**2
    value = point.objective + 0.5 * here @ here / spread**2 - slope @ here - 0.5 * here @ information @ here
    sizes, axes = np.linalg.eigh(information)
    along = (axes.T @ (slope + information @ here)) ** 2
    sizes = np.maximum(sizes, 0.0)
    variances = spreads[:, None] ** 2
    gains: Floats = value + 0.5 * (along * variances / (1 + variances * sizes) - np.log1p(variances * sizes)).sum(axis=1)
    return gains


def _simulated(equal: Point, free: Likelihood, spread: float, gained: float, rejected: float) -> float:
    """Return the p-value by tables drawn from the fit with equal temperatures: 0 where none of them gains as much by this spread.

    What a table gains is first read from its scores where it was drawn, with the information there, which all tables share: they
    have the same states. Only where that is more than half of what counts are both models climbed. It is broken off once it is
    certain to be too large. A table whose climbs do not end counts as one that gains as much.
    """
    draws = 39
    rng = np.random.default_rng(0)
    as_much = 0
    number = 0
    apart = _with_spread(free.by_matrix(), spread, equal)
    if apart is None:
        return 1.0
    follow, covariance = _differences(apart)
    begin = log_likelihood_given(apart, spread) - apart.objective
    while number < draws and 1 + as_much <= rejected * (1 + draws):
        number += 1
        counts = draw_decisions(equal, rng)
        here = replace(apart, likelihood=apart.likelihood.with_counts(counts))
        moved = follow.T @ here.gradient
        if begin + 0.5 * moved @ np.linalg.solve(covariance, moved) < 0.5 * gained:
            continue
        start = equal.likelihood.with_counts(counts).at(equal.x, equal)
        alike = None if start is None else _rough_climb(start)
        both = None if alike is None else _with_spread(here.likelihood, spread, alike.point)
        end = None if both is None else _rough_climb(both)
        if alike is None or end is None:
            as_much += 1
        else:
            as_much += log_likelihood_given(end.point, spread) - alike.point.objective >= gained
    return (1 + as_much) / (1 + number) if as_much else 0.0


def _with_spread(free: ChoiceModel, spread: float, start: P) -> P | None:
    """Return a point in the model with this spread; None where its soft values are infinite."""
    model = free.holding(temperature_penalty(free, spread), free.ridge)
    old = start.likelihood
    each = free.of_temperature_groups(old.temperatures(start.x))
    x = model.pack(old.reward(start.x), start.x[old.discount_slice], each, start.x[old.beside_slice])
    return cast(P | None, model.at(x, start if start.x.size == x.size else None))


def _rough_climb(start: P, metric: Metric | None = None) -> Ascent[P] | None:
    """Return a climb that may leave a thousandth of log-likelihood; None where it was broken off."""
    end = climb(start, max_steps=100, gain=1e-3, metric=metric)
    return end if end.finished else None


def log_likelihood_given(point: ChoicePoint, spread: float) -> float:
    """Return the log-likelihood of the decisions given the spread of temperatures, which are integrated out; without
    constants.
    """
    if not spread:
        return point.objective
    covariance = _differences(point)[1]
    return point.objective - len(covariance) * float(np.log(spread)) + 0.5 * float(np.linalg.slogdet(covariance)[1])


def _by_products(point: ChoicePoint) -> bool:
    """Return whether the curvature at this point is had as products."""
    return isinstance(point, Point) and point.likelihood.by_products


def _differences(point: ChoicePoint) -> tuple[Floats, Floats]:
    """Return how x `(p,n−1)` follows the n−1 differences of log-temperatures, and their covariance, everything else profiled out.

    With products the rewards are left out of the first. In both the columns are those of the inverse of the curvature.
    """
    model = point.likelihood
    contrasts = np.zeros((model.size, model.n_temperatures - 1))
    free = ~model.fixed
    contrasts[model.temperature_slice] = orthonormal_differences(model.n_temperatures)
    if _by_products(point):
        free[: model.n_reward] = free[model.transition_slice] = False
        matrix = profile_information(cast(Point, point))[0]
    else:
        at_rest = resting(point)
        at_rest[model.temperature_slice] = False
        free &= ~at_rest
        matrix = point.curvature()[np.ix_(free, free)]
    # The penalty informs all differences: directions without information have no part in them, and a trace of damping is enough.
    follow = np.zeros_like(contrasts)
    follow[free] = Dense(matrix).solve(contrasts[free], np.ones(len(matrix), dtype=np.bool_), 1e-12)
    return follow, contrasts.T @ follow


def orthonormal_differences(n: int) -> Floats:
    """Return differences `(n,n−1)` of n numbers that are orthonormal."""
    differences: Floats = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, : n - 1]]))[0][:, 1:]
    return differences
