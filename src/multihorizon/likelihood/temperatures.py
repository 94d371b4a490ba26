"""How much the experts' temperatures differ: one common value, an estimated spread, or no tie at all.

Equal temperatures turn a noisy expert into a short-sighted one. Free ones run away beside a free reward. In between, the
logarithms of the temperatures are taken to vary around a common value with standard deviation τ:

    L_τ(x) = L(x) − Σ_k (ℓ_k − ℓ̄)² / (2τ²),     ℓ_k = log λ_k.

τ = 0 makes all equal and τ = ∞ sets all free. τ is chosen by the likelihood of the decisions given τ: temperatures are
integrated out by Laplace's method and everything else is profiled out. It maximises `max_x L_τ(x) − (K−1) log τ − ½ log det S_τ`,
S the information of the differences of the ℓ_k, with the penalty, after everything else has been accounted for. Discounts that
rest on a bound count as known there. Twice the gain over τ = 0 tests that all temperatures are equal; on the bound τ = 0 its
distribution is half χ²₀, half χ²₁ where there are enough decisions. With few experts a rejection must also hold against tables
drawn from the fit with equal temperatures, by their gain at the chosen τ (not where states are vectors). Where the test does
not reject, equal temperatures are kept: with few experts a spread that may be chance costs more than it mends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Floats, Sparse
from multihorizon.likelihood.ascent import Ascent, climb, resting
from multihorizon.likelihood.large import is_large
from multihorizon.likelihood.likelihood import Likelihood, Point, draw_decisions
from multihorizon.likelihood.metric import curvature
from multihorizon.likelihood.parameters import Quadratic, placed
from multihorizon.likelihood.precision import scaled_spectrum
from multihorizon.likelihood.profiled import profile_information
from multihorizon.tolerances import INFORMATION_RANK_TOLERANCE

#: Spreads of log-temperatures that are tried, from 2 % to a factor of 20: every fourth, then the neighbours of the best. The
#: error of a spread is far larger than the distance of neighbours.
SPREADS = np.geomspace(0.02, 3.0, 21)
COARSE = 4
#: Equal temperatures are given up where their p-value is below this.
REJECTED = 0.05
#: Holds the mean log-temperature at 0 to six digits where any mean would do.
LEVEL_WEIGHT = 1e6
#: Tables drawn from equal temperatures that check a rejection, and up to how many experts: with many, χ² does.
DRAWS, SIMULATED_EXPERTS = 39, 12
#: A climb at one spread may leave this much log-likelihood, and is given up after this many steps.
SPREAD_GAIN, SPREAD_STEPS = 1e-3, 100


@dataclass(frozen=True, eq=False)
class Spread:
    """The chosen τ, the fit with it, the p-value of equal temperatures, and whether the climbs at all τ that were tried ended.

    The p-value is NaN where none of them did.
    """

    value: float
    ascent: Ascent
    p_equal: float
    complete: bool


def temperature_penalty(likelihood: Likelihood, spread: float = np.inf) -> Quadratic | None:
    """The quadratic term that lets log-temperatures vary around their mean with this standard deviation.

    Where the scale of the reward is open, it also holds the mean at 0. None where there is nothing to hold.
    """
    n, zeros = likelihood.n_temperatures, np.zeros(likelihood.size)
    block = (np.eye(n) - 1 / n) / spread**2 + (LEVEL_WEIGHT / n if likelihood.scale_is_free else 0.0)
    return Quadratic(zeros, zeros, _of_temperatures(likelihood, block)) if block.any() else None


def without_level(likelihood: Likelihood) -> Quadratic | None:
    """The likelihood's quadratic term without what holds the mean log-temperature, for a reward that stays as it is."""
    penalty, n = likelihood.penalty, likelihood.n_temperatures
    if penalty is None or not likelihood.scale_is_free:
        return penalty
    level = _of_temperatures(likelihood, np.full((n, n), LEVEL_WEIGHT / n))
    return Quadratic(penalty.centre, penalty.slope, penalty.matrix - level)


def _of_temperatures(likelihood: Likelihood, block: Floats) -> Sparse:
    """A matrix `(p,p)` that is 0 outside the log-temperatures."""
    return placed(block, np.arange(likelihood.size)[likelihood.temperature_slice], likelihood.size)


def estimate_spread(equal: Ascent, free: Likelihood) -> Spread:
    """The most likely spread, from the fit with equal temperatures.

    Args:
        equal: the fit in which all temperatures are one.
        free: the same likelihood with a temperature for each expert.
    """
    reference = log_likelihood_given(equal.point, 0.0)
    ends: dict[int, tuple[float, Ascent]] = {}
    unfinished: list[int] = []

    def gain(index: int) -> None:
        """The gain of one spread over equal temperatures, climbed from the nearest spread that is done."""
        near = min(ends, key=lambda done: abs(done - index), default=None)
        end = _fit(free, float(SPREADS[index]), equal.point if near is None else ends[near][1].point)
        if end is None:
            unfinished.append(index)
        else:
            ends[index] = (log_likelihood_given(end.point.without_derivatives(), float(SPREADS[index])) - reference, end)

    for index in range(0, SPREADS.size, COARSE):
        gain(index)
    best = max(ends, key=lambda i: ends[i][0], default=0)
    for step in (2, 1):
        for index in (best - step, best + step):
            if 0 <= index < SPREADS.size:
                gain(index)
        best = max(ends, key=lambda i: ends[i][0], default=0)
    if not ends:
        return Spread(0.0, equal, np.nan, complete=False)
    if best == 0:
        return Spread(0.0, equal, 1.0, not unfinished)
    gained, end = ends[best]
    p_equal = 0.5 * float(chi2.sf(2 * gained, 1)) if gained > 0 else 1.0
    drawable = free.has_products and not is_large(free) and free.problem.n_experts <= SIMULATED_EXPERTS
    if p_equal < REJECTED and drawable:
        p_equal = max(p_equal, _simulated(equal.point, free, float(SPREADS[best]), gained))
    if p_equal > REJECTED:
        return Spread(0.0, equal, p_equal, not unfinished)
    return Spread(float(SPREADS[best]), climb(end.point), p_equal, not unfinished)


def _simulated(equal: Point, free: Likelihood, spread: float, gained: float) -> float:
    """The p-value by tables drawn from the fit with equal temperatures: 0 where none of them gains as much by this spread.

    It is broken off once it is certain to be too large. A table whose climbs do not end counts as one that gains as much.
    """
    rng, as_much, number = np.random.default_rng(0), 0, 0
    while number < DRAWS and 1 + as_much <= REJECTED * (1 + DRAWS):
        number += 1
        counts = draw_decisions(equal, rng)
        start = equal.likelihood.with_counts(counts).at(equal.x, equal)
        alike = None if start is None else climb(start, max_steps=SPREAD_STEPS, gain=SPREAD_GAIN)
        end = _fit(free.with_counts(counts), spread, alike.point) if alike is not None and alike.finished else None
        if alike is None or end is None:
            as_much += 1
        else:
            as_much += log_likelihood_given(end.point, spread) - log_likelihood_given(alike.point, 0.0) >= gained
    return (1 + as_much) / (1 + number) if as_much else 0.0


def _fit(free: Likelihood, spread: float, start: Point) -> Ascent | None:
    """The best point with this spread, or None where the climb to it was broken off."""
    model = free.holding(temperature_penalty(free, spread), free.ridge)
    old = start.likelihood
    x = model.pack(old.reward(start.x), start.x[old.discount_slice], _each(start, free), start.x[old.transition_slice])
    begin = model.at(x)
    end = None if begin is None else climb(begin, max_steps=SPREAD_STEPS, gain=SPREAD_GAIN)
    return end if end is not None and end.finished else None


def _each(start: Point, free: Likelihood) -> Floats:
    """One temperature for each of the free groups."""
    experts = start.likelihood.temperatures(start.x)
    return np.array([experts[free.temperature_groups == g][0] for g in range(free.n_temperatures)])


def log_likelihood_given(point: Point, spread: float) -> float:
    """The log-likelihood of the decisions given the spread of temperatures, which are integrated out; without constants."""
    model = point.likelihood
    if not spread:
        return point.objective
    n, first = model.n_temperatures, 0
    if is_large(model):
        first, free = model.n_reward, ~model.fixed[model.n_reward : model.transition_slice.start]
        matrix = profile_information(point)[0]
    else:
        known = resting(point)
        known[model.temperature_slice] = False
        free = ~model.fixed & ~known
        matrix = curvature(point)[np.ix_(free, free)]
    contrasts = np.zeros((free.size, n - 1))
    contrasts[model.temperature_slice.start - first :][:n] = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, : n - 1]]))[
        0
    ][:, 1:]
    values, vectors, scale = scaled_spectrum(matrix)
    kept = values > INFORMATION_RANK_TOLERANCE * values[-1]
    seen = (contrasts[free] / scale[:, None]).T @ vectors[:, kept]
    covariance = (seen / values[kept]) @ seen.T
    return point.objective - (n - 1) * float(np.log(spread)) + 0.5 * float(np.linalg.slogdet(covariance)[1])
