"""How far goals are from shared: the spread τ of personal deviations, its test, its interval, and what it means in choices.

`choice.deviations` gives the log-likelihood M(x; τ) of the decisions, with deviations integrated out. τ is judged by the
restricted likelihood, in which x is integrated out by Laplace's method too:

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
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Floats
from multihorizon.choice.deviations import NearlyShared, NearPoint
from multihorizon.choice.tabular import Likelihood, Point
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.intervals import precision
from multihorizon.numerics.distributions import chi2_ppf, chi2_sf
from multihorizon.numerics.newton import Ascent, resting
from multihorizon.parallel import Progress, silent
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
        """The ends of the 95 % interval of τ; NaN where an end was not found, infinity where all large spreads are likely."""
        if self.given or self.search is None:
            return (self.estimated, self.estimated) if self.given else (np.nan, np.nan)
        spreads, best = self.search
        level = max(spreads.gains[best], 0.0) - 0.5 * float(chi2_ppf(0.95, 1))
        lower = 0.0 if level <= 0 else crossing(spreads.gain, best, LEAST * spreads.unit, level)
        return lower, crossing(spreads.gain, best, MOST * spreads.unit, level)


def restricted(point: Point) -> float:
    """C: the objective less half the logarithm of the determinant of the information, with wide priors; without constants."""
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
        """`C(τ) − C(0)`; minus infinity where the climb did not end."""
        if spread not in self.gains:
            near = min(self.ends, key=lambda done: abs(np.log(done / spread)), default=None)
            found = fit_with(self.model(spread), self.shared if near is None else self.ends[near].point)
            if found is None:
                self.complete = False
            else:
                self.ends[spread] = found
            self.gains[spread] = -np.inf if found is None else restricted(found.point) - self.reference
        return self.gains[spread]

    def begin_at(self, spread: float, end: Ascent[NearPoint]) -> None:
        """Forget all but this fit."""
        self.ends = {spread: end}
        self.gains = {spread: restricted(end.point) - self.reference}


def within_reach(shared: Point) -> Likelihood:
    """The model of one reward, with discounts below 1 if not all experts would ever end at 1.

    With rewards of their own, some would then have infinite values just below 1, and a climb cannot pass such an edge.
    """
    model, x = shared.likelihood, shared.x.copy()
    x[model.discount_slice] = model.upper[model.discount_slice]
    farthest = model.at(x)
    longest = 1e4  # in temperatures, and about as many steps
    if farthest is not None and all(np.abs(plan.values).max() < longest * plan.lam.min() for plan in farthest.plans):
        return model
    changed, free = copy.copy(model), ~model.fixed[model.discount_slice]
    changed.upper = model.upper.copy()
    changed.upper[model.discount_slice][free] = np.minimum(changed.upper[model.discount_slice][free], ENDLESS_DISCOUNT)
    return changed


def fit_with(model: NearlyShared, start: Point, gain: float = 1e-4) -> Ascent[NearPoint] | None:
    """The best point of the model from there, as far as so much log-likelihood; None where the climb was broken off."""
    begin = model.at(np.clip(start.x, model.lower, model.upper), start)
    end = None if begin is None else climb(begin, max_steps=100, gain=gain)
    return end if end is not None and end.finished else None


def given_deviations(shared: Point, spread: float, others: Sequence[Point] = ()) -> Nearly:
    """The fit with deviations of a given spread."""
    model = NearlyShared.of(within_reach(shared), spread)
    start = model.at(np.clip(shared.x, model.lower, model.upper), shared)
    if start is None:
        raise ValueError(f"no fit with deviations of {spread:g} was found: the most likely deviations do not converge")
    end = climb(start)
    better = _elsewhere(end, others) if end.finished else None
    return Nearly(shared, spread, np.nan, better or end, complete=True, given=True)


def estimate_deviations(
    shared: Point, others: Sequence[Point] = (), guess: float | None = None, progress: Progress = silent
) -> Nearly:
    """The most likely spread of personal deviations.

    Args:
        shared: the fit with one reward for all.
        others: other ends of the search with one reward, from which to climb as well.
        guess: a spread near which the search begins.
        progress: called after each round.
    """
    search = _Spreads(shared)
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
    """A better end of a climb from one of these points; None where there is none."""
    model, best = end.point.likelihood, None
    height = end.point.objective + 1e-2
    for other in others:
        old = other.likelihood
        temperatures = model.of_temperature_groups(old.temperatures(other.x))
        moves = other.x[old.transition_slice] if old.n_transitions == model.n_transitions else None
        start = model.at(model.pack(old.reward(other.x), other.x[old.discount_slice], temperatures, moves))
        rough = None if start is None else climb(start, max_steps=12, gain=1e-2)
        if rough is None or rough.point.objective < height - (0 if rough.finished else 3):
            continue
        found = climb(rough.point, max_steps=100, gain=1e-4)
        if found.finished and found.point.objective > height:
            best, height = found, found.point.objective
    return best


def highest(gain: Callable[[float], float], low: float, high: float, first: Sequence[float]) -> float:
    """The spread with the largest gain, by parabolas in its logarithm, to a twentieth."""
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
    """The spread between the best one and a bound at which the gain falls to a level; the bound counts as 0 or infinity."""
    factor = 2.0 if end > start else 0.5
    inside, outside = start, start * factor
    while gain(outside) > level:
        inside, outside = outside, outside * factor
        if (outside - end) * (end - start) >= 0:
            return np.inf if factor > 1 else 0.0
    top = gain(start)

    def above(spread: float) -> float:
        """How far the gain is above the level, by the root of what is lost, which is nearly linear in log τ."""
        return float(np.sqrt(top - level) - np.sqrt(max(top - gain(spread), 0.0)))

    before, after, side = above(inside), above(outside), 0
    for _ in range(12):
        if not np.isfinite(after):
            return np.nan
        tried = float(inside * (outside / inside) ** float(np.clip(before / (before - after), 0.05, 0.95)))
        if abs(gain(tried) - level) < 0.05 or abs(np.log(outside / inside)) < 0.02:
            return tried
        # Where one side stays, its height counts half, or the other would creep (the Illinois rule).
        if above(tried) > 0:
            inside, before, after, side = tried, above(tried), after / 2 if side > 0 else after, 1
        else:
            outside, after, before, side = tried, above(tried), before / 2 if side < 0 else before, -1
    return float(inside)


def degrees_of_freedom(found: Nearly, point: NearPoint) -> Floats | None:
    """Of each expert's interval `(K,)`, because the spread is estimated; None where it was given.

    The variance of log τ is read from its interval.
    """
    low, high = found.interval
    halves = [
        abs(np.log(end / found.estimated)) for end in (low, high) if end > 0 and np.isfinite(end) and end != found.estimated
    ]
    if found.given or not halves:
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
    """How many choices in a hundred deviations of this spread move, to first order."""
    if not np.isfinite(spread):
        return np.nan
    model, total = NearlyShared.of(point.likelihood, 1.0), 0.0
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
