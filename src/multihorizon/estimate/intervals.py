"""Profile-likelihood intervals of the discounts.

`L_k(g) = max {L : γ_k = g}`; the interval at level 1−α is `{g ∈ [0,1] : 2 (L̂ − L_k(g)) ≤ χ²₁(1−α)}`. It reaches a bound where
the decisions do not contradict the bound, follows the likelihood's skew, and needs no scale for γ. Its ends are found by the
secant rule on the signed root `√(2(L̂ − L_k(g)))`, nearly linear in g, to within `ROOT_TOLERANCE`. Each evaluation climbs from
the end of the last one with the curvature of the answer. A climb that does not finish is tried again with a new curvature, and
then from the answer; if it still does not finish, this end of the interval is not known and is NaN. Nor is it known where a
profile is likelier than the answer, which then is not the maximum.

With many experts, moving one of them moves the others little. Above `EXACT_EXPERTS` experts the likelihood of all others is
replaced by its quadratic approximation at the answer, with their own parameters profiled out. Each end is then checked with the
likelihood of all; where the two disagree by more than `CHECKED`, the end is found again with all experts.

With very many parameters the climbs use products with the information in place of a matrix (`metric.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Bools, Floats, Ints, as_level
from multihorizon.choice.parameters import Quadratic
from multihorizon.choice.tabular import Likelihood, Point
from multihorizon.estimate.ascent import climb
from multihorizon.estimate.precision import Precision, precision
from multihorizon.numerics.metric import Dense, Metric
from multihorizon.numerics.spectrum import positive_part
from multihorizon.parallel import in_parallel
from multihorizon.problem import Problem

#: How exactly the signed root must meet its target, in standard errors.
ROOT_TOLERANCE = 0.01
#: A profile climb may leave this much log-likelihood: it moves the signed root by less than its tolerance.
PROFILE_GAIN = 1e-4
#: The most profile evaluations of one end, and the most steps of a climb before it is tried another way.
MAX_EVALUATIONS, MAX_PROFILE_STEPS = 30, 60
#: Damping of the step along the tangent of a profile, which leaves parameters without information where they are.
TANGENT_DAMPING = 1e-8
#: A profile whose log-likelihood is higher than the answer's by more than this shows that the answer is not the maximum.
HIGHER = 1e-3
#: Two discounts nearer than this are one.
SAME_DISCOUNT = 1e-6
#: Up to this many experts every profile moves all of them.
EXACT_EXPERTS = 10
#: How far the signed root of an approximate end may be from its target.
CHECKED = 0.03
#: Discounts whose intervals are computed together, before what is known so far is handed on.
BLOCK = 4


@dataclass(frozen=True, eq=False)
class ProfileIntervals:
    """Profile-likelihood intervals of the discounts at an answer `x`, computed when asked for and then kept by level.

    `problem` is that of the solution: its transitions are the fitted ones.
    """

    likelihood: Likelihood
    x: Floats
    known: Bools
    problem: Problem
    computed: dict[float, Floats] = field(default_factory=dict)

    def at(self, level: float) -> Floats:
        """The intervals `(K,2)` at this level; NaN for discounts that are not known and for ends that were not found."""
        if level not in self.computed:
            for _ in self.by_blocks(level):
                pass
        return self.computed[level].copy()

    def by_blocks(self, level: float, jobs: int = 1) -> Iterator[Floats]:
        """The intervals `(K,2)` as they come, a few discounts at a time, with NaN for the rest; all of them are kept."""
        point, groups = self.point, self.likelihood.groups
        numbers = np.arange(self.likelihood.n_discounts)
        blocks = [np.isin(groups, numbers[i : i + BLOCK]) & self.known for i in range(0, numbers.size, BLOCK)]
        intervals = np.full((groups.size, 2), np.nan)
        for found in in_parallel(partial(profile_intervals, point, precision(point), level=level), blocks, jobs):
            intervals = np.where(np.isnan(found), intervals, found)
            yield intervals.copy()
        self.computed[level] = intervals

    @property
    def point(self) -> Point:
        """The model at the answer."""
        point = self.likelihood.at(self.x)
        if point is None:
            raise ValueError("the answer's soft values must be finite, received an answer that does not fit its problem")
        return point


def signed_root(level: float) -> float:
    """The deviance's root at which an interval of this level ends."""
    return float(np.sqrt(chi2.ppf(as_level(level), 1)))


def profile_intervals(point: Point, found: Precision, known: Bools, level: float = 0.95) -> Floats:
    """Profile-likelihood intervals `(K,2)` of the discounts; NaN for those that are not `known`."""
    model = point.likelihood
    target = signed_root(level)
    intervals = np.full((model.n_discounts, 2), np.nan)
    for group in range(model.n_discounts):
        index = model.n_reward + group
        if model.fixed[index]:
            intervals[group] = point.x[index]
        elif known[model.groups == group].all():
            intervals[group] = _interval(point, found, group, target)
    return np.where(known[:, None] | model.fixed[model.discount_slice][model.groups, None], intervals[model.groups], np.nan)


def _interval(point: Point, found: Precision, group: int, target: float) -> tuple[float, float]:
    model = point.likelihood
    index = model.n_reward + group
    wanted = target * float(found.widening[index])
    error = float(np.sqrt(found.variance[index]))
    if model.problem.n_experts > EXACT_EXPERTS and found.covariance is not None:
        part = _Part.of(point, found, group)
        return part.end(-1, wanted, error), part.end(1, wanted, error)
    metric = point.metric()
    low, high = (_profile_end(point, index, sign, wanted, error, metric)[0] for sign in (-1, 1))
    return low, high


@dataclass(frozen=True, eq=False)
class _Part:
    """One group's own likelihood, with everyone else's in quadratic form.

    `places` are the part's parameters in x. `follow` `(p,q)` is how all of x moves when these do.
    """

    whole: Point
    own: Point
    index: int
    places: Ints
    follow: Floats
    metric: Metric

    @classmethod
    def of(cls, point: Point, found: Precision, group: int) -> _Part:
        model = point.likelihood
        members = np.flatnonzero(model.groups == group)
        heats = model.temperature_slice.start + np.array(list(dict.fromkeys(model.temperature_groups[members].tolist())))
        alone = model.of_experts(members.tolist())
        moves = [model.place_of(own.mdp) for own in alone.moves]
        places = np.concatenate([np.arange(model.n_reward), [model.n_reward + group], heats, *moves])
        here = alone.at(point.x[places])
        assert here is not None
        assert found.covariance is not None
        own, free = here.information, np.ix_(~alone.fixed, ~alone.fixed)
        together, rest = np.zeros_like(own), np.zeros_like(own)
        together[free] = np.linalg.pinv(found.covariance[np.ix_(places, places)][free], rcond=1e-12, hermitian=True)
        rest[free] = positive_part((together - own)[free])
        slope = point.gradient[places] - here.gradient
        held = alone.holding(Quadratic(point.x[places], slope, rest))
        start = held.at(point.x[places])
        assert start is not None
        return cls(point, start, model.n_reward, places, found.covariance[:, places] @ together, Dense(own + rest))

    def end(self, sign: int, target: float, error: float) -> float:
        """One end of the interval, checked with the likelihood of all experts."""
        found, reached = _profile_end(self.own, self.index, sign, target, error, self.metric)
        if np.isnan(found) or reached is None:
            return self._exact(sign, target, error)
        model = self.whole.likelihood
        x = self.whole.x + self.follow @ (reached.x - self.own.x)
        x[self.places] = reached.x
        there = model.at(np.clip(x, model.lower, model.upper), self.whole)
        root = np.inf if there is None else np.sqrt(2 * max(self.whole.objective - there.objective, 0.0))
        own_root = np.sqrt(2 * max(self.own.objective - reached.objective, 0.0))
        return found if abs(root - own_root) < CHECKED * max(1.0, target) else self._exact(sign, target, error)

    def _exact(self, sign: int, target: float, error: float) -> float:
        index = int(self.places[self.index])
        return _profile_end(self.whole, index, sign, target, error, self.whole.metric())[0]


def _profile_end(point: Point, index: int, sign: int, target: float, error: float, metric: Metric) -> tuple[float, Point | None]:
    """The lower (sign −1) or upper (1) end of a discount's profile interval and the profile there; NaN where it is not found."""
    model = point.likelihood
    bound = float(model.upper[index] if sign > 0 else model.lower[index])
    inside, root = float(point.x[index]), 0.0
    # On the bound itself rewards may have no finite maximum, so the last trial is made just before it.
    outside, outside_root = bound - sign * min(1e-3, 0.1 * abs(bound - inside)), np.inf
    nearest, last = point, outside
    step = max(target * min(error, 1.0), 1e-4)
    for _ in range(MAX_EVALUATIONS):
        trial = float(np.clip(inside + sign * step, min(inside, outside), max(inside, outside)))
        if abs(trial - inside) < SAME_DISCOUNT:
            return trial, nearest
        reached = _profile(point, nearest, index, trial, metric)
        if reached is None or reached.objective > point.objective + HIGHER:
            return np.nan, None
        found = np.sqrt(2 * max(point.objective - reached.objective, 0.0))
        if trial == last and found < target:
            return bound, reached
        if abs(found - target) < ROOT_TOLERANCE:
            return trial, reached
        step = _next_step(inside, root, trial, float(found), outside, outside_root, target)
        if found < target:
            inside, root, nearest = trial, float(found), reached
        else:
            outside, outside_root = trial, float(found)
    return np.nan, None


def _next_step(
    inside: float, root: float, trial: float, found: float, outside: float, outside_root: float, target: float
) -> float:
    """How far to go from the new inside point: by the secant of the signed root, never onto the point known to be outside."""
    if found < target:
        slope = (found - root) / abs(trial - inside)
        gap = abs(outside - trial) * (0.8 if np.isfinite(outside_root) else 1.0)
        wanted = (target - found) / slope if slope > 0 else gap
        return min(max(wanted, SAME_DISCOUNT), max(gap, SAME_DISCOUNT), 4 * abs(trial - inside) + 1e-3)
    return float(np.clip((target - root) / (found - root), 0.1, 0.9)) * abs(trial - inside)


def _profile(answer: Point, nearest: Point, index: int, value: float, metric: Metric) -> Point | None:
    """The best point with one parameter fixed; None where every climb to it was broken off."""
    fixed = np.zeros(answer.x.size, dtype=np.bool_)
    fixed[index] = True
    for start, known_curvature in ((nearest, metric), (nearest, None), (answer, None)):
        begin = _moved(start, index, value, metric)
        if begin is None:
            continue
        end = climb(begin, fixed, MAX_PROFILE_STEPS * (1 if known_curvature is not None else 5), PROFILE_GAIN, known_curvature)
        if end.finished:
            return end.point
    return None


def _moved(start: Point, index: int, value: float, metric: Metric) -> Point | None:
    """A neighbouring point moved along the tangent of the profile, or in one parameter only where that has no finite values."""
    model = start.likelihood
    point = model.at(_tangent(model, start, index, value, metric), start)
    if point is not None:
        return point
    moved = start.x.copy()
    moved[index] = value
    return model.at(moved, start)


def _tangent(model: Likelihood, start: Point, index: int, value: float, metric: Metric) -> Floats:
    """`start` moved to a new value of one parameter, the others following by the quadratic model."""
    change = value - start.x[index]
    held = (start.x <= model.lower) | (start.x >= model.upper) | model.fixed
    free = ~held
    free[index] = False
    moved = start.x.copy()
    moved[index] = value
    along = metric.times(np.eye(1, moved.size, index).ravel())
    moved -= change * metric.solve(along, free, TANGENT_DAMPING)
    return np.clip(moved, model.lower, model.upper)


def holm(p_values: Floats) -> Floats:
    """Holm's step-down correction; NaN stays NaN and is not counted.

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
