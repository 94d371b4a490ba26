"""How well the decisions determine the answer: standard errors, and profile-likelihood intervals of discounts.

*Information.* With I the Fisher information at the answer, scaled to a unit diagonal, eigenvalues below `RANK_TOLERANCE` of the
largest span the directions in which the decisions say nothing. A parameter with a component in them is not identified: it gets
NaN, not a number. The others' standard errors are the roots of the diagonal of the pseudo-inverse.

*Profile.* `L_k(g) = max {L : γ_k = g}`; the interval at level 1−α is `{g ∈ [0,1] : 2 (L̂ − L_k(g)) ≤ χ²₁(1−α)}`. It ends at 0
or 1 where even that is not contradicted, follows the likelihood's skew, and needs no scale for γ. Its ends are found by the
secant rule on the signed root `√(2(L̂ − L_k(g)))`, which is nearly linear in g, to within `ROOT_TOLERANCE`; each evaluation is a
climb from the last one's end, with the curvature of the answer. With more than `DENSE_PARAMETERS` parameters the interval is the
estimate and its standard errors instead, cut at 0 and 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Bools, Floats
from multihorizon.likelihood.ascent import climb, curvature
from multihorizon.likelihood.large import DENSE_PARAMETERS, discount_errors
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.solution import Solution

#: Structural nulls come out near 1e-16 of the largest eigenvalue, the weakest real directions of our domains above 1e-9.
RANK_TOLERANCE = 1e-12
#: The largest component in the null space that is put down to rounding.
NULL_COMPONENT = 1e-3
#: How exactly the signed root must meet its target, in standard errors.
ROOT_TOLERANCE = 0.01
#: A profile climb may leave this much log-likelihood: it moves the signed root by less than its tolerance.
PROFILE_GAIN = 1e-4
MAX_EVALUATIONS, MAX_PROFILE_STEPS = 15, 60


@dataclass(frozen=True, eq=False)
class Precision:
    """Standard errors `(p,)`, NaN where not identified; the null space `(p, nullity)` and the scaled spectrum `(p,)`."""

    standard_errors: Floats
    null_space: Floats
    spectrum: Floats
    discounts_identified: Bools

    @property
    def rank(self) -> int:
        """How many directions of x the decisions determine."""
        return self.spectrum.size - self.nullity

    @property
    def nullity(self) -> int:
        """How many directions of x the decisions say nothing of."""
        return int(self.null_space.shape[1])


def precision(point: Point) -> Precision:
    """Standard errors and identified directions at an answer; with very many rewards, of the discounts alone."""
    if point.likelihood.size > DENSE_PARAMETERS:
        return _large_precision(point)
    information = point.information
    scale = np.sqrt(np.diag(information))
    scale = np.where(scale > 0, scale, 1.0)
    spectrum, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    null = spectrum <= RANK_TOLERANCE * spectrum[-1]
    lost = np.linalg.norm(vectors[:, null], axis=1) > NULL_COMPONENT
    variance = (vectors[:, ~null] ** 2 / spectrum[~null]).sum(axis=1) / scale**2
    errors = np.where(lost, np.nan, np.sqrt(variance))
    model = point.likelihood
    known = ~lost[model.discount_slice][list(model.groups)]
    null_space = vectors[:, null] / scale[:, None]
    return Precision(errors, null_space, spectrum, known)


def _large_precision(point: Point) -> Precision:
    model = point.likelihood
    errors, spectrum = discount_errors(point)
    every = np.concatenate([np.full(model.n_reward, np.nan), errors])
    known = np.isfinite(every[model.discount_slice])[list(model.groups)]
    return Precision(every, np.zeros((model.size, 0)), spectrum, known)


def signed_root(level: float) -> float:
    """The deviance's root at which an interval of this level ends."""
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, received {level}")
    return float(np.sqrt(chi2.ppf(level, 1)))


def profile_intervals(point: Point, known: Bools, errors: Floats, level: float = 0.95) -> Floats:
    """Profile-likelihood intervals `(K,2)` of the discounts; NaN for those that are not `known`."""
    target = signed_root(level)
    if point.likelihood.size > DENSE_PARAMETERS:
        centre = point.likelihood.discounts(point.x)
        return np.where(known[:, None], np.clip(centre[:, None] + np.outer(errors, [-target, target]), 0.0, 1.0), np.nan)
    matrix = curvature(point)
    intervals = np.full((known.size, 2), np.nan)
    for k in np.flatnonzero(known):
        intervals[k] = [profile_end(point, int(k), sign, target, float(errors[k]), matrix) for sign in (-1, 1)]
    return intervals


@dataclass(frozen=True, eq=False)
class ProfileIntervals:
    """Profile-likelihood intervals of the discounts at an answer `x`, computed when asked for and then kept by level."""

    likelihood: Likelihood
    x: Floats
    known: Bools
    standard_errors: Floats
    computed: dict[float, Floats] = field(default_factory=dict)

    def at(self, level: float) -> Floats:
        """The intervals `(K,2)` at this level; NaN for discounts that are not known."""
        if level not in self.computed:
            point = self.likelihood.at(self.x)
            if point is None:
                raise ValueError("the answer's soft values must be finite, received an answer that does not fit its problem")
            self.computed[level] = profile_intervals(point, self.known, self.standard_errors, level)
        return self.computed[level].copy()


def resume(solution: Solution) -> Point:
    """The model at the answer of a maximum-likelihood solution."""
    if solution.solver != "MaximumLikelihood":
        raise ValueError(f"this needs a solution of MaximumLikelihood, received one of {solution.solver}")
    problem, evidence = solution.require_problem(), solution.evidence
    likelihood = Likelihood(problem, bool(evidence["per_expert_temperature"]), float(evidence["ridge"]))
    point = likelihood.at(likelihood.pack(solution.reward, solution.discounts, solution.temperature))
    if point is None:
        raise ValueError("the solution's soft values must be finite, received a problem that does not fit it")
    return point


def profile_end(point: Point, k: int, sign: int, target: float, error: float, matrix: Floats) -> float:
    """The lower (sign −1) or upper (1) end of discount k's profile interval."""
    model = point.likelihood
    index = model.n_reward + k
    bound = float(model.upper[index] if sign > 0 else model.lower[index])
    inside, root, outside = float(point.x[index]), 0.0, bound
    outside_root = np.inf
    nearest = point
    step = max(target * min(error, 1.0), 1e-4)
    for _ in range(MAX_EVALUATIONS):
        trial = float(np.clip(inside + sign * step, min(inside, outside), max(inside, outside)))
        if abs(trial - inside) < 1e-6:
            return trial
        reached = _profile(nearest, index, trial, matrix)
        found = np.inf if reached is None else np.sqrt(2 * max(point.objective - reached.objective, 0.0))
        if abs(found - target) < ROOT_TOLERANCE or (trial == bound and found < target):
            return trial
        step = _next_step(inside, root, trial, float(found), outside, outside_root, target)
        if reached is not None and found < target:
            inside, root, nearest = trial, float(found), reached
        else:
            outside, outside_root = trial, float(found)
    return inside


def _next_step(
    inside: float, root: float, trial: float, found: float, outside: float, outside_root: float, target: float
) -> float:
    """How far to go from the new inside point: by the secant of the signed root, never onto the point known to be outside."""
    if found < target:
        slope = (found - root) / abs(trial - inside)
        room = abs(outside - trial) * (0.8 if np.isfinite(outside_root) else 1.0)
        wanted = (target - found) / slope if slope > 0 else room
        return min(max(wanted, 1e-6), max(room, 1e-6), 4 * abs(trial - inside) + 1e-3)
    width = abs(trial - inside)
    return float(np.clip((target - root) / (found - root), 0.1, 0.9)) * width if np.isfinite(found) else 0.5 * width


def _profile(start: Point, index: int, value: float, matrix: Floats) -> Point | None:
    """The best point with one parameter fixed, from a neighbouring one moved along the tangent of the profile."""
    model = start.likelihood
    moved = _tangent(model, start, index, value, matrix)
    point = model.at(moved, start)
    if point is None:
        moved = start.x.copy()
        moved[index] = value
        point = model.at(moved, start)
    if point is None:
        return None
    fixed = np.zeros(model.size, dtype=np.bool_)
    fixed[index] = True
    return climb(point, fixed, MAX_PROFILE_STEPS, PROFILE_GAIN, matrix).point


def _tangent(model: Likelihood, start: Point, index: int, value: float, matrix: Floats) -> Floats:
    """`start` moved to a new value of one parameter, the others following by the quadratic model."""
    change = value - start.x[index]
    others = np.arange(model.size) != index
    held = (start.x <= model.lower) | (start.x >= model.upper)
    free = others & ~held
    block = matrix[np.ix_(free, free)].copy()
    scale = np.diag(block)
    block[np.diag_indices_from(block)] += 1e-8 * np.maximum(scale, 1e-10 * scale.max())
    moved = start.x.copy()
    moved[index] = value
    moved[free] -= change * np.linalg.solve(block, matrix[free, index])
    return np.clip(moved, model.lower, model.upper)
