"""How well the decisions determine the answer: what is identified, standard errors, and every kind of interval.

*Information.* With I the Fisher information at the answer, scaled to a unit diagonal, its smallest eigenvalues span directions of
which the decisions say nothing (`numerics.spectrum`). A parameter with a component in them is not identified: it gets NaN, not a
number. The others' covariance is the pseudo-inverse. Estimated transitions are among the parameters (`choice.model`), so their
error is part of every other one's.

*Contrasts.* Two rewards whose components in every open direction are equal have a known difference. Such states form a group. The
largest group is compared with the reward of its average logged step: the mean over the states that the decisions led to. The
variance is `cᵀ I⁺ c` for the contrast c, so an uncertainty that all rewards share does not appear in it. Weights of features are
measured from zero, "without this feature", and are contrasts already.

*Very many rewards* are profiled out by products: `S = I_γγ − I_γθ I_θθ^{-1} I_θγ`, with conjugate gradients on `I_θθ`. Those who
choose nearly at random, or look almost equally far, keep a small share of their own information in S, and that share decides
their standard errors. So the gradients are stopped late. A discount whose share is lost in the error that is left is not
identified. Standard errors of the rewards are not computed.

*Profile intervals.* `L_k(g) = max {L : γ_k = g}`; the interval at level 1−α is `{g ∈ [0,1] : 2 (L̂ − L_k(g)) ≤ χ²₁(1−α)}`. It
reaches a bound where the decisions do not contradict the bound, follows the likelihood's skew, and needs no scale for γ. Its ends
are found by `numerics.newton`. Each evaluation climbs from the end of the last one, moved along the tangent where that is
likelier. A climb that does not finish is tried again with a new curvature, and then in two halves. Where it still does not
finish, what it promises counts as reached, which makes the interval wider rather than narrower. Discounts at which no reward has
a finite likelihood are outside. Where a profile is likelier than the answer, the interval belongs to that maximum.

*Several maxima.* Maxima that are hardly less likely than the answer (`likelihood.search`) may lie inside the interval with a
valley between them. The interval then reaches from the smallest to the largest discount inside.

With many experts, moving one of them moves the others little. The likelihood of all others is then replaced by its quadratic
approximation at the answer, with their own parameters profiled out. Each end is checked with the likelihood of all; where the two
disagree, the end is found again with all experts.

*An estimated variance.* Where goals are only nearly shared, the spread of deviations decides how wide intervals are, and few
experts show it roughly. With v the variance of its logarithm and φ the share of a standard error's logarithm that follows it, the
interval has `1/(2vφ²)` degrees of freedom (Satterthwaite), and the signed root is compared with Student's t.

*Clusters.* Where the decisions of an episode need not be independent, the covariance is that of the sandwich, and the signed root
is compared with a quantile that the ratio of the two standard errors scales (`likelihood.clusters`).

*One discount for all.* Where experts have one discount they act alike, and one behaviour alone does not separate a discount from
a reward. If the decisions do not contradict one discount for all, all discounts are possible, however narrow a profile is: along
an open direction the likelihood takes the best of many chances, and no interval that rests on its maximum has its level there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pandas as pd
from scipy.special import ndtri

from multihorizon.checks import TINY, Bools, Floats, Ints, as_level
from multihorizon.choice.model import ChoiceModel, ChoicePoint, Likelihood, Point, Quadratic
from multihorizon.estimate import Intervals
from multihorizon.likelihood.clusters import clusters_that_count, middle
from multihorizon.likelihood.search import choice_probability_start, climb, left_to_gain
from multihorizon.numerics.distributions import chi2_sf, t_ppf
from multihorizon.numerics.newton import Ascent, Dense, Metric, profile_end
from multihorizon.numerics.spectrum import Spectrum, positive_part, spectrum
from multihorizon.parallel import in_parallel
from multihorizon.problem import Problem

#: So much likelier than the answer a profile may be by what climbs leave of log-likelihood.
HIGHER = 1e-2


@dataclass(frozen=True, eq=False)
class Precision:
    """Variances `(p,)` and covariance `(p,p)` of an answer, what is identified `(p,)`, and the spectrum of the information.

    `null_space` `(p,nullity)` spans the directions of which the decisions say nothing.
    `of_model` `(p,p)` is the covariance if every decision is independent; where that is assumed, `covariance` is the same.
    `widening` is the factor, or `(p,)` factors, by which a first stage that is not among the parameters widens standard errors.
    """

    variance: Floats
    identified: Bools
    spectrum: Floats
    covariance: Floats | None
    null_space: Floats
    of_model: Floats | None = None
    widening: Floats | float = 1.0

    @property
    def nullity(self) -> int:
        """Count the directions of which the decisions say nothing."""
        return int(self.null_space.shape[1])

    @property
    def standard_errors(self) -> Floats:
        """Return the standard errors `(p,)`: 0 for what is known, NaN for what is not identified."""
        return np.where(self.identified, self.widening * np.sqrt(self.variance), np.nan)


def precision(point: ChoicePoint) -> Precision:
    """Return standard errors and identified directions at an answer; with very many rewards, of the discounts alone."""
    model = point.likelihood
    if isinstance(point, Point) and model.is_large:
        covariances, determined, values = profile_covariances(point)
        part = slice(model.n_reward, model.n_reward + determined.size)
        variance, identified = np.zeros(model.size), np.zeros(model.size, dtype=np.bool_)
        variance[part], identified[part] = np.diag(covariances[:, part]), determined
        return Precision(variance, identified, values, None, np.zeros((model.size, 0)))
    free = np.flatnonzero(~model.fixed)
    # Discounts and log-temperatures have no unit: where they have less information than this, it is rounding.
    rounding = 1e-20
    least = np.zeros(model.size)
    least[model.discount_slice] = least[model.temperature_slice] = rounding

    def spectrum_of(matrix: Floats) -> Spectrum:
        diagonal = np.diag(matrix)
        scale = np.sqrt(np.where(diagonal > least[free], diagonal, 1.0))
        return spectrum(matrix, scale, least=rounding)

    bare = spectrum_of(point.curvature(ridge=False)[np.ix_(free, free)])
    held = spectrum_of(point.curvature()[np.ix_(free, free)]) if model.ridge.any() else bare
    covariance = np.zeros((model.size, model.size))
    covariance[np.ix_(free, free)] = held.inverse
    identified = np.ones(model.size, dtype=np.bool_)
    identified[free] = bare.identified()
    null_space = np.zeros((model.size, free.size - bare.rank))
    null_space[free] = bare.null_space
    robust = covariance
    if isinstance(point, Point) and model.clusters is not None:
        robust = covariance @ middle(point) @ covariance
    return Precision(np.diag(robust), identified, bare.values, robust, null_space, covariance)


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Differences `(d,)` from the average logged step (features: from zero) and their standard errors; NaN if not known."""

    values: Floats
    standard_errors: Floats


def reward_contrasts(point: Point) -> Contrasts:
    """Return rewards as differences, which decisions determine even where they leave a constant added to all rewards open.

    All are NaN where there are too many rewards for a dense information matrix.
    """
    model, problem = point.likelihood, point.likelihood.problem
    d = model.n_reward
    reward = model.reward(point.x)
    if model.is_large:
        return Contrasts(*np.full((2, d), np.nan))
    precise = precision(point)
    assert precise.covariance is not None
    null = precise.null_space[:d] / (np.abs(precise.null_space[:d]).max(initial=0.0) or 1.0)
    determined = np.linalg.norm(null, axis=1) <= 1e-3
    matrix = np.eye(d, model.size)
    if problem.tabular:
        arrivals = np.zeros(d)  # how often the logged decisions are expected to arrive in each state
        for expert in problem.experts:
            if expert.counts is not None:
                arrivals += expert.feature_matrix.T @ expert.counts.T.ravel()
        # The most rewards that are equal in the open directions, at least two; of as many, those decisions led to most often.
        alike = [np.linalg.norm(null - row, axis=1) <= 1e-3 for row in null]
        determined = max(alike, key=lambda group: (group.sum(), float(arrivals[group].sum())))
        determined = determined & (determined.sum() > 1)
        steps = np.where(determined, arrivals, 0.0)
        matrix[:, :d] -= steps / max(steps.sum(), TINY)
    errors = np.sqrt(np.maximum(((matrix @ precise.covariance) * matrix).sum(axis=1), 0.0))
    return Contrasts(np.where(determined, matrix[:, :d] @ reward, np.nan), np.where(determined, errors, np.nan))


def profile_information(point: Point) -> tuple[Floats, Floats, Floats]:
    """Return S `(m,m)` of the free discounts and log-temperatures with everything else profiled out, their own information
    `(m,)`, and `I_γθ I_θθ^{-1}` `(m,p)`: how far the most likely reward, and transitions, give way when one of them rises.
    """
    model = point.likelihood
    first, last, size = model.n_reward, model.transition_slice.start, model.size
    others = ((np.arange(size) < first) | (np.arange(size) >= last)) & ~model.fixed
    free = np.flatnonzero(~model.fixed[first:last]) + first
    if model.by_products:
        metric = point.products()
        columns = np.array([metric.times(np.eye(1, size, int(k)).ravel()) for k in free])
        # It leaves errors of about 1e-10 in shares, for a third more work than 1e-5.
        solved = np.array([metric.solve(column, others, 0.0, tol=1e-9) for column in columns])
    else:
        matrix = point.curvature()
        columns = matrix[free]
        solved = np.zeros((free.size, size))
        solved[:, others] = spectrum(matrix[np.ix_(others, others)]).solve(columns[:, others].T).T
    block = columns[:, free]
    profiled: Floats = block - columns[:, others] @ solved[:, others].T
    return 0.5 * (profiled + profiled.T), np.diag(block).copy(), solved


def profile_covariances(point: Point) -> tuple[Floats, Bools, Floats]:
    """Return covariances `(m,p)` of discounts and log-temperatures with all of x, which of them are identified, the scaled
    spectrum.

    What is known has covariance 0.
    """
    model = point.likelihood
    d = model.n_reward
    m = model.transition_slice.start - d
    free = np.flatnonzero(~model.fixed[d : d + m])
    profiled, information, gives_way = profile_information(point)
    # A discount keeps a share of its information when the reward is profiled out; where it is not identified, one near 1e-13.
    directions = spectrum(profiled, np.sqrt(np.where(information > 0, information, 1.0)), least=1e-8)
    covariances = np.zeros((m, model.size))
    covariances[free] = -directions.inverse @ gives_way
    covariances[np.ix_(free, d + free)] = directions.inverse
    identified = np.ones(m, dtype=np.bool_)
    identified[free] = directions.identified()
    return covariances, identified, directions.values


def transition_widening(point: Point, precise: Precision) -> Floats:
    """Return the factor `(p,)` by which the error of estimated transitions widens standard errors; NaN with very many
    parameters.
    """
    model = point.likelihood
    widening = np.ones(model.size)
    if not model.moves:
        return widening
    if precise.of_model is None:
        return widening * np.nan
    # Given the transitions, the covariance of the rest is what is left when theirs is conditioned on.
    others = slice(0, model.transition_slice.start)
    moves = model.transition_slice
    shared, variance = precise.of_model[others, moves], np.diag(precise.of_model)[others]
    given = variance - (shared * np.linalg.solve(precise.of_model[moves, moves], shared.T).T).sum(axis=1)
    widening[others] = np.where(given > 0, np.sqrt(variance / np.where(given > 0, given, np.inf)), 1.0)
    return widening


@dataclass(frozen=True, eq=False)
class ProfileIntervals(Intervals):
    """Profile-likelihood intervals of the discounts at an answer `x`, of those that are `known` `(K,)`.

    `problem` is that of the solution: its transitions are the fitted ones. `freedom` are the degrees of freedom `(K,)` of each
    interval, where a variance on which it rests is itself estimated: then Student's t takes the place of the normal. `rivals` are
    other maxima that are about as likely. With `checks_one_discount` all discounts are inside at a level where nothing
    contradicts one discount for all experts, which then is not identified.
    """

    likelihood: Likelihood
    x: Floats
    known: Bools
    problem: Problem
    freedom: Floats | None = None
    rivals: tuple[Point, ...] = ()
    checks_one_discount: bool = True
    opened: dict[float, bool] = field(default_factory=dict, init=False)

    def compute(self, level: float) -> Floats:
        """Return all of them."""
        *_, intervals = self.by_blocks(level)
        return intervals

    def by_blocks(self, level: float, jobs: int = 1) -> Iterator[Floats]:
        """Yield the intervals `(K,2)` as they come, a few discounts at a time, with NaN for the rest; all of them are kept."""
        point, groups = self.point, self.likelihood.groups
        numbers = np.arange(self.likelihood.n_discounts)
        together = 4
        blocks = [np.isin(groups, numbers[i : i + together]) & self.known for i in range(0, numbers.size, together)]
        intervals = np.full((groups.size, 2), np.nan)
        precise = precision(point)
        point = point.without_derivatives()  # factors of large matrices cannot go to other processes
        ends = partial(profile_intervals, point, precise, level=level, freedom=self.freedom, rivals=self.rivals)
        for block in in_parallel(ends, blocks, jobs):
            intervals = np.where(np.isnan(block), intervals, block)
            yield intervals.copy()
        if self.one_discount_is_open(level):
            part = point.likelihood.discount_slice
            free = ~point.likelihood.fixed[point.likelihood.discount_slice][groups]
            bounds = np.stack([point.likelihood.lower[part], point.likelihood.upper[part]], axis=1)[groups]
            intervals = np.where((self.known & free)[:, None], bounds, intervals)
            yield intervals.copy()
        self.computed[level] = intervals

    def one_discount_is_open(self, level: float = 0.95) -> bool:
        """Return whether all discounts are possible at this level, because nothing contradicts one for all, which is not
        identified.
        """
        if level not in self.opened:
            self.opened[level] = self.checks_one_discount and one_discount_is_open(self.point, 1 - level)
        return self.opened[level]

    @property
    def point(self) -> Point:
        """Return the model at the answer."""
        point = self.likelihood.at(self.x)
        if point is None:
            raise ValueError("the answer's soft values must be finite, got an answer that does not fit its problem")
        return point


def profile_intervals(
    point: Point,
    precise: Precision,
    known: Bools,
    level: float = 0.95,
    freedom: Floats | None = None,
    rivals: Sequence[Point] = (),
) -> Floats:
    """Return profile-likelihood intervals `(K,2)` of the discounts; NaN for those that are not `known`.

    They reach from the smallest to the largest discount that is inside, also where `rivals`, other maxima, lie between them.
    """
    model = point.likelihood
    targets = np.full(model.n_experts, ndtri(0.5 + as_level(level) / 2))
    if freedom is not None:
        targets = t_ppf(0.5 + level / 2, freedom)
    intervals = np.full((model.n_discounts, 2), np.nan)
    for group in range(model.n_discounts):
        index = model.n_reward + group
        if model.fixed[index]:
            intervals[group] = point.x[index]
        elif known[model.groups == group].all():
            error, target = float(np.sqrt(precise.variance[index])), float(targets[model.groups == group].max())
            if model.clusters is not None and precise.of_model is not None:
                target = max(target, float(t_ppf(0.5 + level / 2, clusters_that_count(point, precise.of_model[:, index]))))
                target *= error / float(np.sqrt(precise.of_model[index, index]))
            part, metric = None, None
            if model.n_experts > 10 and precise.of_model is not None:
                part = _Part.of(point, precise, group)
            else:
                metric = point.metric()
            ends = None if part is None or rivals else part.ends(target, error)
            # Lapses may make choices certain: rewards run away then, and climbs gain less and less without an end.
            # Values by the best action have kinks, at which climbs turn back and forth.
            patience = 60 if model.n_habits or model.settings.value == "max" else 300
            intervals[group] = _profile_ends(point, index, target, error, metric, rivals, patience) if ends is None else ends
    return np.where(known[:, None] | model.fixed[model.discount_slice][model.groups, None], intervals[model.groups], np.nan)


@dataclass(frozen=True, eq=False)
class _Part:
    """One group's own likelihood, with everyone else's in quadratic form.

    `places` are the part's parameters in x. `follow` `(p,q)` is how all of x moves when these do.
    """

    whole: Point
    own: Point
    places: Ints
    follow: Floats
    metric: Metric

    @classmethod
    def of(cls, point: Point, precise: Precision, group: int) -> _Part:
        model = point.likelihood
        members = np.flatnonzero(model.groups == group)
        temperatures = list(dict.fromkeys(model.temperature_groups[members].tolist()))
        alone = model.of_experts(members.tolist())
        moves = [model.place_of(each.mdp) for each in alone.moves]
        first = model.temperature_slice.start
        habits = np.arange(model.size)[model.habit_slice]
        places = np.concatenate(
            [np.arange(model.n_reward), [model.n_reward + group], first + np.array(temperatures), habits, *moves]
        )
        here = alone.at(point.x[places])
        assert here is not None
        assert precise.of_model is not None
        information = here.information
        free = np.ix_(~alone.fixed, ~alone.fixed)
        together, rest = np.zeros_like(information), np.zeros_like(information)
        together[free] = np.linalg.pinv(precise.of_model[np.ix_(places, places)][free], rcond=1e-12, hermitian=True)
        rest[free] = positive_part((together - information)[free])
        slope = point.gradient[places] - here.gradient
        start = alone.holding(Quadratic(point.x[places], slope, rest)).at(point.x[places])
        assert start is not None
        return cls(point, start, places, precise.of_model[:, places] @ together, Dense(information + rest))

    def ends(self, target: float, error: float) -> tuple[float, float] | None:
        """Return the ends of the interval; None where one does not stand the check with the likelihood of all experts."""
        ends = [self._end(sign, target, error) for sign in (-1, 1)]
        low, high = ends
        return None if low is None or high is None else (low, high)

    def _end(self, sign: int, target: float, error: float) -> float | None:
        end = _profile_end(self.own, self.own.likelihood.n_reward, sign, target, error, self.metric)
        value, reached = end.value, end.there
        if reached is None or end.highest.objective > self.own.objective + HIGHER:
            return None
        model = self.whole.likelihood
        x = self.whole.x + self.follow @ (reached.x - self.own.x)
        x[self.places] = reached.x
        there = model.at(np.clip(x, model.lower, model.upper), self.whole)
        root = np.inf if there is None else np.sqrt(2 * max(self.whole.objective - there.objective, 0.0))
        own_root = np.sqrt(2 * max(self.own.objective - reached.objective, 0.0))
        return value if abs(root - own_root) < 0.03 * max(1.0, target) else None


def _profile_ends(
    point: Point, index: int, target: float, error: float, metric: Metric | None, rivals: Sequence[Point], patience: int = 300
) -> tuple[float, float]:
    """Return the ends of a parameter's profile interval, from the smallest to the largest value that is inside.

    Where a profile is likelier than the answer, everything is let go and climbed from there, and that is the maximum.
    """
    peaks = [point, *rivals]
    top = point
    for _ in range(4):
        known_metric = metric if top is point else None
        ends = [_profile_end(top, index, sign, target, error, known_metric, patience=patience) for sign in (-1, 1)]
        higher = max((end.highest for end in ends), key=lambda there: there.objective)
        if higher.objective <= top.objective + HIGHER:
            break
        end = climb(higher).point
        top = end if end.objective > higher.objective else higher
        peaks.append(top)
    low, high = (end.value for end in ends)
    for peak in peaks:
        root = _root(top, peak)
        place = float(peak.x[index])
        if root < target and place < low:
            low = _profile_end(peak, index, -1, target, error, None, top).value
        elif root < target and place > high:
            high = _profile_end(peak, index, 1, target, error, None, top).value
    return low, high


def habit_precision(point: Point, precise: Precision, place: int, level: float = 0.95) -> tuple[tuple[float, float], float]:
    """Return the profile interval of a share of lapses or of a stickiness, and the p-value of none.

    A share cannot be below 0. At that edge twice the log-likelihood that it gains is half χ²₀, half χ²₁.
    """
    model = point.likelihood
    error = float(np.sqrt(precise.variance[place]))
    widened = 1.0
    if model.clusters is not None and precise.of_model is not None and precise.of_model[place, place] > 0:
        widened = max(1.0, error / float(np.sqrt(precise.of_model[place, place])))
    # Where more lapses make choices certain, rewards run away and climbs gain less and less: they need not end.
    interval = _profile_ends(point, place, float(ndtri(0.5 + level / 2)) * widened, error, point.metric(), (), patience=30)
    x = point.x.copy()
    x[place] = 0.0
    without = model.at(x, point)
    end = None if without is None else climb(without, np.arange(x.size) == place)
    if end is None or not end.finished:
        return interval, np.nan
    gain = 2 * max(point.objective - end.point.objective, 0.0) / widened**2
    at_edge = place == model.habit_slice.start
    return interval, float(chi2_sf(gain, 1)) * (0.5 if at_edge and gain > 0 else 1.0)


def _root(top: ChoicePoint, there: ChoicePoint, left: float = 0.0) -> float:
    """Return the signed root of the deviance from the maximum of a point that may rise by so much more."""
    return float(np.sqrt(2 * max(top.objective - there.objective - left, 0.0)))


@dataclass(frozen=True, eq=False)
class _End:
    """One end of a profile interval, the profile there, and the likeliest point on the way."""

    value: float
    there: Point | None
    highest: Point


def _profile_end(
    start: Point,
    index: int,
    sign: int,
    target: float,
    error: float,
    metric: Metric | None,
    top: Point | None = None,
    patience: int = 300,
) -> _End:
    """Return the lower (sign −1) or upper (1) end of a profile interval, from a maximum that may not be the `top`.

    A climb has `patience` steps; what it promises after them counts as reached.
    """
    top = start if top is None else top
    model = start.likelihood
    highest = top
    one = np.eye(1, start.x.size, index).ravel()
    # Stickiness is in units of reward, all others have none.
    unit = model.known_temperature if index in range(model.size)[model.habit_slice][1:] else 1.0

    def moved(begin: Point, value: float, curvature: Metric) -> Point | None:
        """Return `begin` moved in this parameter, the others along the tangent of the profile where that is likelier."""
        free = ~((begin.x <= model.lower) | (begin.x >= model.upper) | model.fixed | (one > 0))
        x = begin.x + (value - begin.x[index]) * one
        along = x - (value - begin.x[index]) * curvature.solve(curvature.times(one), free, 1e-8)
        places = [model.at(np.clip(z, model.lower, model.upper), begin) for z in (along, x)]
        return max((there for there in places if there is not None), key=lambda there: there.objective, default=None)

    def climbed(value: float, nearest: Point, halvings: int = 3) -> tuple[Point, float] | None:
        """Return the best point with this discount and what a climb that did not end may have left; None where it has no value.

        Such a climb is begun anew with a new curvature, and then from a place half as far away.
        """
        reached: list[Point] = []
        for fixed_metric, steps in ((metric, min(60, patience)), (None, patience)):
            begin = moved(nearest, value, fixed_metric or nearest.metric())
            if begin is None:
                return None
            # What a climb may leave of log-likelihood moves the signed root by less than its tolerance.
            end = climb(begin, one > 0, steps, 1e-4, fixed_metric)
            if end.finished:
                return end.point, 0.0
            reached.append(end.point)
        way = 0.5 * (value - nearest.x[index])
        halved = halvings and patience > 60 and abs(way) > 1e-4 * unit
        between = climbed(nearest.x[index] + way, nearest, halvings - 1) if halved else None
        again = None if between is None else climbed(value, between[0], 0)
        if again is not None and again[1] == 0.0:
            return again
        best = max([*reached, *([] if again is None else [again[0]])], key=lambda there: there.objective)
        return best, left_to_gain(best, one > 0)

    def profile(value: float, nearest: Point) -> tuple[float, Point] | None:
        nonlocal highest
        reached = climbed(value * unit, nearest)
        if reached is None:
            return np.inf, nearest
        there, left = reached
        highest = max(highest, there, key=lambda one: one.objective)
        return _root(top, there, left), there

    bound = float(model.upper[index] if sign > 0 else model.lower[index]) / unit
    step = sign * max(target * min(error / unit, 1.0), 1e-4)
    end = profile_end(profile, start, float(start.x[index]) / unit, step, target, bound, root=_root(top, start))
    return _End(end[0] * unit, end[1], highest)


def holm(p_values: Floats) -> Floats:
    """Return Holm's step-down correction; NaN stays NaN and is not counted.

    Example:
        >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
        [0.03, 0.06, 0.06]
    """
    adjusted = np.full(p_values.size, np.nan)
    order = [i for i in np.argsort(p_values) if not np.isnan(p_values[i])]
    largest = 0.0
    for rank, i in enumerate(order):
        largest = max(largest, (len(order) - rank) * float(p_values[i]))
        adjusted[i] = min(largest, 1.0)
    return adjusted


#: A loss of log-likelihood beyond which the hypothesis is rejected whatever further steps would gain (p < 1e-20).
HOPELESS = 100.0


def one_discount_is_open(point: Point, rejected: float) -> bool:
    """Return whether one discount for all is not rejected at this level, and is then not identified."""
    model = point.likelihood
    members = tuple(range(model.n_experts))
    contrasts = contrasts_of(model, members)
    if not contrasts or model.known[model.discount_slice].size - contrasts != 1 or model.is_large:
        return False
    end = with_one_discount(point, members)
    if not end.finished:
        return False
    degrees = degrees_of(point, end.point, members, contrasts)
    statistic = 2 * (point.objective - end.point.objective)
    # Without a rank that is lost, the decisions say as much of one discount as of several: nothing is open.
    return degrees > contrasts and float(chi2_sf(max(statistic, 0.0), degrees)) > rejected


def contrasts_of(model: ChoiceModel, members: tuple[int, ...]) -> int:
    """Return how many free discounts one shared discount replaces; 0 where nothing can be tested: known ones that differ, say."""
    groups = np.unique(model.groups[list(members)])
    discounts = model.known[model.discount_slice][groups]
    distinct = np.unique(discounts[~np.isnan(discounts)]).size
    return int(np.isnan(discounts).sum()) - (1 - distinct) if distinct <= 1 else 0


def degrees_of(point: Point, shared: Point, members: tuple[int, ...], contrasts: int) -> int:
    """Return contrasts given up and twice the directions that are open under the hypothesis only; 0 where no rank is lost."""
    model = point.likelihood
    discounts = shared.likelihood.discounts(shared.x)
    # The members' discounts are set apart to see the rank of the information where they differ.
    offsets = 0.2 * (np.arange(len(members)) - (len(members) - 1) / 2)
    discounts[list(members)] = np.clip(discounts[list(members)], 0.2, 0.8) + offsets / len(members)
    grouped = np.array([discounts[model.groups == g][0] for g in range(model.n_discounts)])
    temperatures = np.exp(shared.x[shared.likelihood.temperature_slice])
    moved = shared.x[shared.likelihood.beside_slice]
    apart = model.at(model.pack(shared.likelihood.reward(shared.x), grouped, temperatures, moved))
    full, restricted = precision(point if apart is None else apart), precision(shared)
    ranks = [each.spectrum.size - each.nullity for each in (full, restricted)]
    return contrasts + 2 * max(restricted.nullity - full.nullity, 0) if ranks[0] > ranks[1] else 0


def with_one_discount(point: Point, members: tuple[int, ...]) -> Ascent[Point]:
    """Return the maximum with one discount for the members, from the answer's reward and from fits to the frequencies."""
    model = point.likelihood
    restricted = model.sharing(merged_groups(model, members))
    values = np.array([model.discounts(point.x)[restricted.groups == g].mean() for g in range(restricted.n_discounts)])
    temperatures = np.exp(point.x[model.temperature_slice])
    starts = [
        restricted.at(restricted.pack(model.reward(point.x), values, temperatures, point.x[model.beside_slice])),
        choice_probability_start(restricted, values, temperatures),
    ]
    ends = [climb(start, max_steps=25) for start in starts if start is not None]
    highest = max(end.point.objective for end in ends)
    # Of equally likely ends, take the one with the smaller rewards: where rewards run away, ranks cannot be computed.
    best = min(
        (end for end in ends if end.point.objective >= highest - 1e-3),
        key=lambda end: float(np.linalg.norm(restricted.reward(end.point.x))),
    )
    hopeless = point.objective - best.point.objective > HOPELESS
    return best if best.finished or hopeless else climb(best.point)


def merged_groups(model: ChoiceModel, members: tuple[int, ...]) -> tuple[int, ...]:
    """Return the groups of discounts with those of the members joined into one, numbered from 0."""
    joined = np.isin(model.groups, model.groups[list(members)])
    return tuple(pd.factorize(np.where(joined, -1, model.groups))[0].tolist())
