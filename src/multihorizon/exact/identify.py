"""What the experts' behaviour can and cannot say about their discounts and reward.

`identify` solves the experts' `equations` exactly where they are linear and by variable projection where they are not, and then
asks how many directions of the discounts stay open when the policies may be wrong by `tolerance`:

* `unique`: one answer, up to the spread that errors of that size cause, which is at most 0.1;
* `set`: a curve, surface, … of answers, or several separate ones; each discount's range over them, the gaps in it, and two
  members that reproduce the experts as proof;
* `infeasible`: no discounts and reward explain the experts up to the tolerance; the closest explanation and its residual.

*Where the equations are linear* they are solved and judged as one system (`linear_systems`).

*Variable projection.* Where the system is not linear, ‖ρ(Γ)‖ is minimised by a Levenberg–Marquardt iteration inside the box
[0,1]^K with steps of least norm, so that from a point near a curve or a surface of solutions it goes to a nearby point of it.
Where ‖ρ‖ has a narrow and curved valley, a step that fails is followed by one back into the valley before it is shortened;
without this, hundreds of short steps may be needed. It stops when a step no longer reduces ‖ρ‖ or is below rounding. SciPy's
`least_squares` does worse here: "trf" never reaches a discount of 0 (a gap of 1e-10 where this gives 1e-16, in ten times the
time), and "dogbox" fails where the Jacobian is singular (4 of 12 starts on the toy domain).

*Sets.* Where the Jacobian of ρ has a null space of dimension n at a solution, the solutions near it form a set of that dimension.
Its extent in one discount is found by walking: step along the tangent that raises (or lowers) that discount most without leaving
the box, return to the set, and halve the step when the return fails or gains nothing. The walk ends at the box or where the
tangent no longer moves the discount. Every point on the way is a solution, so a range found is attained. Pieces of the set that
no start reaches are missed. A walk may end early where the set turns back on itself, so walks start from several points. Counts
of decisions are too inexact to bound a discount that their equations leave open (ranges made from their errors held the truth in
44 to 100% of simulated tables): it may be anything.

*Exclusion restrictions.* For one expert with a reward by state and action, `equal_rewards` gives candidates that hold every
solution. Each is refined and judged as above, and its interval ends where the equations stop holding up to the errors.

Everything said about an explanation is computed again from its discounts, reward and temperatures alone: the residual of the
Bellman equations, the policies planned from it, and the likelihood of the decisions. The answer does not depend on the order of
experts, states and actions: the experts are first sorted by what they do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.optimize import brentq

from multihorizon.checks import TINY, Bools, Floats, as_discount, as_positive, renamed
from multihorizon.exact.approximate import WithinDistance, discounts_within
from multihorizon.exact.equal_rewards import EqualRewards, Pair
from multihorizon.exact.equations import (
    MISFIT,
    Explanation,
    JointEquations,
    PolicyTemperature,
    StateEquations,
    bellman_residual,
    in_order_of_content,
    joint_equations,
    read_equations,
    read_temperature,
)
from multihorizon.exact.linear_systems import LIMIT, Directions, LinearSystem, keeps_null_space
from multihorizon.numerics.distributions import chi2_ppf, halton
from multihorizon.planning.plan import SoftPlan, soft_plan
from multihorizon.problem import Problem
from multihorizon.result import Result
from multihorizon.words import FORM_ALONE, Table, decimals, power_of_ten, significant

#: By expert: the discounts on both sides of each gap between explanations.
Gaps = tuple[tuple[tuple[float, float], ...], ...]


@renamed(known="discounts")
def identify(
    problem: Problem,
    temperature: PolicyTemperature = 1.0,
    tolerance: float = 1e-8,
    starts: int = 12,
    discounts: Mapping[str, float] | None = None,
    smoothing: float = 0.5,
    within: float | None = None,
    zero_action: object = None,
    equal_rewards: Iterable[tuple[Pair, Pair]] = (),
) -> Identification:
    """Say whether the experts' policies identify their discounts, and give the answer, the set of answers, or the closest one.

    Its equations are those of the paper's Proposition 2, with Γ unknown.

    Args:
        problem: experts given as policies without zero entries, or as demonstrations (whose frequencies are smoothed, and whose
            errors are those of the counts).
        temperature: the entropy weight λ that all experts share, or "per_expert": each has their own, the first has 1.
        tolerance: how large the errors in the policies may be, as the standard deviation of log π, which is the relative error
            of a probability. The answer is called unique only if such errors move no discount by more than 0.1.
        starts: number of starting points where the equations are not linear.
        discounts: those that are known from elsewhere, by the expert's name.
        smoothing: added to each available action's count of demonstrations.
        within: also ask which discounts explain the experts if the reward of each may differ from a shared one by up to this
            much, in the units in which the temperature is the given one. A feature's weight counts times its largest value.
        zero_action: take a reward by state and action instead, for one expert given as a policy; this action's reward is 0 in
            every state. The answer depends on that normalisation. Alone it leaves every discount possible.
        equal_rewards: pairs `((state, action), (state, action))` with the same reward (exclusion restrictions); needs
            `zero_action`. One of them may leave several discounts, a further one decides or contradicts it.

    Returns:
        `status` ("unique", "set" or "infeasible"), `discounts` `(K,)`, `intervals` `(K,2)`, `reward` and `residual`
        (`multihorizon.exact.identify.Identification`).

    Raises:
        ValueError: on malformed options, zero probabilities, or experts given as best actions, and where the equations are too
            weak to be solved.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> answer = identify(Problem(d.mdp, d.soft_experts()))
        >>> answer.status, answer.discounts.round(6).tolist()
        ('unique', [0.0, 0.2, 0.52])

    References:
        J. H. Abbring and Ø. Daljord (2020). Identifying the discount factor in dynamic discrete choice models. Quantitative
        Economics 11, 471-501; arXiv:1808.10651.

        T. Magnac and D. Thesmar (2002). Identifying dynamic discrete decision processes. Econometrica 70, 801-816.
    """
    lam = read_temperature(temperature)
    as_positive(tolerance, "tolerance")
    as_positive(smoothing, "smoothing")
    equal = None
    if zero_action is not None:
        if within is not None:
            raise ValueError("within must come without zero_action: with one expert there is no reward to share, got both")
        equal = EqualRewards(problem, zero_action, equal_rewards)
        problem = equal.problem
        lam = 1.0 if lam is None else lam
    elif not isinstance(equal_rewards, list | tuple) or equal_rewards:
        raise ValueError("equal_rewards must come with zero_action, the action whose reward is 0 in every state, got none")
    ordered = in_order_of_content(problem, smoothing)
    values = np.full(problem.n_experts, np.nan)
    for name, discount in (discounts or {}).items():
        if name not in problem.names:
            raise ValueError(f"discounts must name experts among {', '.join(problem.names)}, got {name!r}")
        values[ordered.names.index(name)] = as_discount(discount, f"known discount of expert {name}")
    if not np.isnan(values).any():
        raise ValueError("discounts must leave at least one discount open, got all of them: use MCE at known discounts")
    if within is not None and lam is None:
        raise ValueError('temperature must be a number where within is given, got "per_expert": within is in its units')
    equations = joint_equations(ordered, lam, tolerance, values, smoothing)
    conclusion = judge(equations, starts) if equal is None else separate(equations, equal.candidates(lam or 1.0))
    answer = replace(conclusion.report().listed_as(problem.names, free_temperatures=lam is None), problem=problem)
    if equal is not None:
        members, double = _members(conclusion.others), conclusion.double_roots
        answer = replace(answer, zero_action=equal.zero_action, members=members, double_roots=double)
    if within is None:
        return answer
    place = [ordered.names.index(name) for name in problem.names]
    near = [point.discounts[place] for point in (conclusion.point, *conclusion.others)]
    nearly = discounts_within(
        problem, within, np.full(problem.n_experts, lam), known=values[place], tolerance=tolerance, starts=near
    )
    return replace(answer, within=nearly)


def judge(equations: JointEquations, starts: int = 12, extent: bool = True) -> Conclusion:
    """Solve the equations of all experts and classify their solutions; `extent` is whether to walk along a set."""
    if not isinstance(equations, StateEquations) or not equations.unknown.all():
        return _nonlinear(equations, [], starts, extent)
    system = LinearSystem(equations)
    open_ = system.directions
    if not open_.free.size:  # one answer, polished with what the relaxation dropped, unless it has twelve digits already
        start = system.read(system.y)[0]
        point = minimise(equations, start) if equations.rows.size <= 50_000 else equations.project(start)
        unique = _feasible(equations, open_) and point.gap <= MISFIT * open_.expected
        return Conclusion("unique" if unique else "infeasible", point, open_, _widened(_hull([point]), open_))
    ranges, extremes = system.ranges()
    if not all(keeps_null_space(family) for family in equations.rows.families):
        return _nonlinear(equations, [system.read(y)[0] for y in (system.y, *extremes)], starts, extent)
    if not _feasible(equations, open_) or not extremes:
        return Conclusion("infeasible", equations.project(system.read(system.y)[0]), open_, ranges)
    centre = np.mean(extremes, axis=0)
    points = [equations.project(system.read(0.98 * y + 0.02 * centre)[0]) for y in extremes]
    return Conclusion("set", equations.project(system.read(centre)[0]), open_, _widened(ranges, open_), points)


def _feasible(equations: JointEquations, directions: Directions) -> bool:
    """Say whether the equations of all experts, and those of each expert alone, hold up to the errors."""
    return directions.gap <= MISFIT * directions.expected and equations.outside <= MISFIT


def _widened(ranges: Floats, directions: Directions) -> Floats:
    """Widen ranges `(K,2)` on both sides by what the noise adds."""
    return (ranges + np.outer(directions.spread, [-1.0, 1.0])).clip(0.0, 1.0)


def _hull(points: Sequence[Explanation]) -> Floats:
    """Return the smallest and the largest of each discount `(K,2)`."""
    discounts = np.stack([point.discounts for point in points])
    return np.stack([discounts.min(axis=0), discounts.max(axis=0)], axis=1)


# Variable projection, and sets.


def _nonlinear(equations: JointEquations, guesses: list[Floats], starts: int, extent: bool) -> Conclusion:
    """Minimise from several starts, judge the rank of the Jacobian at the best minimum, and walk along the set there.

    The best is the first solution that gives the policies back when they are computed again from it. Solutions at discounts near
    1 need not: there the values of a policy that never ends do not exist, and the point is only a limit of explanations.
    """
    middle = np.full(equations.n_experts, 0.5)
    wide = equations.at(middle)[0].size > 20_000
    spread_out = np.tile(middle, (min(starts, 4) if wide else starts, 1))
    spread_out[:, equations.unknown] = halton(int(equations.unknown.sum()), len(spread_out), np.random.default_rng(0))
    minima = [minimise(equations, start) for start in (middle, *spread_out, *(guesses[:1] if wide else guesses))]
    minima.sort(key=lambda p: p.gap if p.gap > 1e-12 * p.size else 0.0)  # solutions stay in the order of their starts
    good = [p for p in minima if (p.temperature > 0).all()] or minima
    enough = _largest_residual(equations)
    best = next((p for p in good if p.gap <= p.rounding and bellman_residual(p) <= enough), good[0])
    directions = _directions_at(best)
    if not _feasible(equations, directions):
        return Conclusion("infeasible", best, directions, _hull([best]))
    largest = MISFIT * directions.expected
    alike = [p for p in good if p.gap <= largest]
    # Solutions are one up to the noise if, to first order, the step between them changes no equation beyond it.
    steps = [best.jacobian @ (p.discounts - best.discounts)[equations.unknown] for p in alike]
    if not directions.free.size and all(np.linalg.norm(step) <= 2 * largest for step in steps):
        return Conclusion("unique", best, directions, _widened(_hull([best]), directions))
    points = list(alike)
    dimension = int((directions.singular_values <= best.no_effect).sum())
    walked = not equations.from_counts and dimension > 0 and extent
    if walked:
        for expert in range(equations.n_experts):
            for sign in (1.0, -1.0):
                farthest = max(points, key=lambda p: sign * p.discounts[expert])
                for start in (farthest, alike[0]):
                    points += walk(start, expert, sign, dimension, largest)[1:]
    ranges = _hull(points)
    gaps = _gaps(points, largest, dimension) if walked or not directions.free.size else ()
    if equations.from_counts:
        ranges[np.abs(directions.free).max(axis=0, initial=0.0) > 1e-8] = 0.0, 1.0
    for direction in [sign * v for v in directions.free for sign in (1.0, -1.0)]:  # aside, as far as the noise explains it
        aside = (equations.project(best.discounts + length * direction) for length in (0.5, 0.2, 0.1, 0.05))
        points += islice((p for p in aside if p.gap <= largest), 1)
    return Conclusion("set", best, directions, _widened(ranges, directions), points, gaps)


def _held_at(near: Explanation, expert: int, value: float) -> Explanation:
    """Find the closest explanation from `near` on at which one discount has this value."""
    start = near.discounts.copy()
    start[expert] = value
    return minimise(near.equations, start, 60, expert)


def _gaps(points: Sequence[Explanation], largest_gap: float, dimension: int) -> Gaps:
    """Find the gaps between the discounts of explanations: by expert, pairs of the discounts on both sides.

    Discounts close to each other are taken as connected. Between others an explanation is looked for in the middle, and so on;
    where there is none, walks from both sides say how far it is to the next.
    """
    gaps = []
    same = 1e-6  # discounts that differ by less are one
    close = LIMIT / 2 if dimension else same
    for expert in range(points[0].equations.n_experts):
        inside = sorted(points, key=lambda p: float(p.discounts[expert]))
        parts = list(pairwise(inside))
        empty = []
        while parts:
            low, high = parts.pop()
            ends = float(low.discounts[expert]), float(high.discounts[expert])
            if ends[1] - ends[0] <= close:
                continue
            tried = (_held_at(near, expert, sum(ends) / 2) for near in (low, high))
            middle = next((point for point in tried if point.gap <= largest_gap), None)
            if middle is not None:
                parts += [(low, middle), (middle, high)]
                continue
            if dimension:
                low, high = (walk(p, expert, sign, dimension, largest_gap)[-1] for p, sign in ((low, 1.0), (high, -1.0)))
            edges = float(low.discounts[expert]), float(high.discounts[expert])
            if edges[1] - edges[0] > same:
                empty.append(edges)
        gaps.append(tuple(sorted(empty)))
    return tuple(gaps)


def minimise(equations: JointEquations, start: Floats, max_iter: int = 300, held: int | None = None) -> Explanation:
    """Find the nearest local minimiser of ‖ρ(Γ)‖ in the box; the discount of expert `held` keeps its value."""
    best = equations.project(start)
    damping = 1e-3
    for _ in range(max_iter):
        step = _step(best, damping, held)
        if np.abs(step).max(initial=0.0) < 1e-15 or best.gap < 1e-2 * best.rounding:
            break
        trial = equations.project(best.discounts + step)
        if trial.gap >= best.gap:  # it may have left a curved valley: one more step goes back
            trial = equations.project(trial.discounts + _step(trial, damping, held))
        if trial.gap < best.gap:
            best = trial
            damping = max(damping / 10, 1e-14)
        elif damping > 1e6 or np.abs(step).max() < 1e-12:
            break
        else:
            damping *= 10
    return best


def _step(here: Explanation, damping: float, held: int | None = None) -> Floats:
    """Return a damped Gauss–Newton step of least norm on the discounts that neither the box nor the caller holds back."""
    unknown = here.equations.unknown
    step = np.zeros_like(here.discounts)
    discounts = here.discounts[unknown]
    gradient = here.jacobian.T @ here.residual
    moving = ~(((discounts <= 0) & (gradient > 0)) | ((discounts >= 1) & (gradient < 0)))
    moving &= np.flatnonzero(unknown) != held
    if moving.any():
        left, values, right = np.linalg.svd(here.jacobian[:, moving], full_matrices=False)
        largest = max(float(values.max(initial=0.0)), np.sqrt(TINY))
        filtered = values / (values**2 + damping * largest**2 * 1e-2)
        filtered[values < 1e-10 * largest] = 0.0
        step[np.flatnonzero(unknown)[moving]] = -right.T @ (filtered * (left.T @ here.residual))
    return step


def _right_vectors(here: Explanation) -> tuple[Floats, Floats, Floats]:
    """Decompose the Jacobian by singular values, with one right vector `(K,)` for each unknown discount."""
    unknown = here.equations.unknown
    n = here.jacobian.shape[1]
    left, values, right = np.linalg.svd(here.jacobian, full_matrices=here.jacobian.shape[0] < n)
    vectors = np.zeros((n, unknown.size))
    vectors[:, unknown] = right
    return left, np.append(values, np.zeros(n - values.size)), vectors


def _directions_at(point: Explanation) -> Directions:
    """Judge which directions of the discounts are open at a solution.

    The spread covers the directions that noise leaves open, not those in which the equations do not change at all: these have to
    be walked.
    """
    left, values, right = _right_vectors(point)
    sides = np.zeros(values.size)
    changes = np.zeros(values.size)
    total = 0.0
    for owner, residual, slope in point.equations.errors(point.discounts, point.x):
        error = point.columns.outside(residual)
        columns = residual.shape[1]
        sides[: left.shape[1]] += ((left.T @ error) ** 2).mean(axis=1)
        changes += right[:, owner] ** 2 * float((point.columns.outside(slope) ** 2).sum()) / columns
        total += float((error**2).sum()) / columns
    null = values <= point.no_effect
    outside = point.equations.outside
    return Directions.judged(
        values, right, np.abs(right), null, (sides, changes, total), point.gap, point.rounding, outside, walked=True
    )


def walk(start: Explanation, expert: int, sign: float, dimension: int, largest_gap: float) -> list[Explanation]:
    """Follow the set from `start` where one expert's discount rises (sign 1) or falls (−1) fastest; return the points."""
    longest, shortest = 0.1, 1e-6
    points = [start]
    step = longest
    for _ in range(200):
        here = points[-1]
        direction = _tangent(here, expert, sign, dimension)
        if direction is None or step < shortest:
            break
        trial = minimise(here.equations, here.discounts + step * direction)
        if trial.gap <= largest_gap and sign * (trial.discounts - here.discounts)[expert] > 0.05 * step * abs(direction[expert]):
            points.append(trial)
            step = min(1.5 * step, longest)
        else:
            step /= 2
    return points


def _tangent(here: Explanation, expert: int, sign: float, dimension: int) -> Floats | None:
    """Return the unit tangent that moves one discount most, with the discounts that the box holds back kept still."""
    discounts = here.discounts
    tangent = _right_vectors(here)[2][here.jacobian.shape[1] - dimension :]
    goal = sign * np.eye(discounts.size)[expert]
    held = np.zeros(discounts.size, dtype=np.bool_)
    for _ in range(discounts.size):
        allowed = tangent
        if held.any():
            _, values, right = np.linalg.svd(tangent[:, held].T, full_matrices=True)
            allowed = right[int((values > 1e-9).sum()) :] @ tangent
        direction: Floats = allowed.T @ (allowed @ goal)
        out = ((discounts <= 0) & (direction < -1e-12)) | ((discounts >= 1) & (direction > 1e-12))
        if not out.any():
            break
        held |= out
    length = float(np.linalg.norm(direction))
    return direction / length if length > 1e-5 and sign * direction[expert] > 1e-7 else None


def separate(equations: JointEquations, candidates: Floats) -> Conclusion:
    """Find which candidates `(n,)` for the one discount explain the expert, and how far errors in log π could move each.

    Without candidates every discount does. Those between which the equations hold up to the errors are one. A root is double
    where its interval is much narrower than the derivative says: they touch 0 there, or cross it twice within the errors.
    """
    if not candidates.size:
        ends = [equations.project(np.array([gamma])) for gamma in (0.0, 0.9)]
        directions = replace(_directions_at(ends[0]), free=np.ones((1, 1)))
        return Conclusion("set", ends[0], directions, np.array([[0.0, 1.0]]), ends)
    found: list[tuple[float, float, Explanation]] = []
    double: list[float] = []
    points = sorted((minimise(equations, np.array([start])) for start in candidates.tolist()), key=lambda point: point.gap)
    for point in points:
        centre = float(point.discounts[0])
        if any(low <= centre <= high for low, high, _ in found):
            continue
        directions = _directions_at(point)
        if not _feasible(equations, directions):
            continue
        largest = MISFIT * directions.expected
        linear = largest / max(float(np.linalg.norm(point.jacobian)), TINY)
        low, high = (_last(equations, centre, sign * min(linear, 0.1), largest) for sign in (-1.0, 1.0))
        found.append((low, high, point))
        if linear > 3 * (high - low) and high - low <= LIMIT:
            double.append(centre)
    if not found:
        return Conclusion("infeasible", points[0], _directions_at(points[0]), _hull(points[:1]))
    found.sort(key=lambda one: one[0])
    best = min((point for _, _, point in found), key=lambda point: point.gap)
    intervals = np.array([one[:2] for one in found])
    wide = bool((np.diff(intervals, axis=1) > LIMIT).any())
    directions = replace(_directions_at(best), free=np.ones((int(wide), 1)))
    status = "set" if wide or len(found) > 1 else "unique"
    gaps = (tuple(zip(intervals[:-1, 1].tolist(), intervals[1:, 0].tolist(), strict=True)),)
    others = [point for _, _, point in found] if len(found) > 1 else []
    ranges = np.array([[intervals[0, 0], intervals[-1, 1]]])
    return Conclusion(status, best, directions, ranges, others, gaps, tuple(sorted(double)))


def _last(equations: JointEquations, centre: float, step: float, largest: float) -> float:
    """Return the last discount from `centre` on, in the direction of `step`, up to which the gap stays below `largest`."""

    def excess(gamma: float) -> float:
        return equations.project(np.array([gamma])).gap - largest

    before = centre
    while True:
        beyond = min(max(centre + step, 0.0), 1.0)
        if excess(beyond) > 0:
            end: float = brentq(excess, before, beyond, xtol=1e-14)
            return end
        if beyond in (0.0, 1.0):
            return beyond
        before, step = beyond, 2 * step


# The report.


@dataclass(frozen=True, eq=False)
class Conclusion:
    """A status, an explanation, the ranges `(K,2)`, and where there is a set other explanations and its gaps."""

    status: str
    point: Explanation
    directions: Directions
    ranges: Floats
    others: Sequence[Explanation] = ()
    gaps: Gaps = ()
    double_roots: tuple[float, ...] = ()

    @property
    def misfit(self) -> float:
        """Return the residual relative to the residual that the assumed errors explain."""
        return max(self.point.equations.outside, self.directions.gap / self.directions.expected)

    def surplus(self) -> tuple[int, float]:
        """Count the surplus of equations over unknowns, and return the log probability of a coincidence.

        The surplus is what could have contradicted a shared reward. The decimal logarithm is of a rough probability that experts
        with unrelated rewards would fit by coincidence. The residual of unrelated rewards has as many free directions as there
        are surplus equations, and in each it is about as large as the reward varies. The probability is the volume of the ball of
        residuals that count as a fit, relative to the volume of residuals of that size.
        """
        point = self.point
        slopes = np.linalg.svd(point.jacobian, compute_uv=False)
        unknowns = point.columns.rank + int((slopes > point.no_effect).sum())
        common, scale = point.equations.scale(point.discounts, point.x)
        surplus = int(max(0, common - unknowns))
        share = MISFIT * self.directions.expected / max(scale * np.sqrt(surplus), TINY)
        return surplus, surplus * float(np.log10(min(1.0, share)))

    def report(self) -> Identification:
        """Return the finding with everything that is recomputed from it."""
        status, point, equations = self.status, self.point, self.point.equations
        surplus, logarithm = self.surplus()
        reward = point.reward
        identified = point.fixed()
        if status == "set":
            identified &= bool(self.others)
            for other in self.others:
                identified &= np.abs(other.reward - reward) <= 1e-6 * max(1.0, float(np.abs(reward).max()))
        residual = bellman_residual(point)
        if status != "infeasible" and residual > _largest_residual(equations):
            raise ValueError(
                f"the equations of these experts are too weak in some directions to be solved: the answer found gives log π "
                f"only up to {significant(residual, 1)}; join states that the actions hardly distinguish"
            )
        unexplained = (status == "infeasible") & equations.unknown[:, None]
        names = zip(equations.problem.parameter_names, equations.entered, strict=True)
        return Identification(
            status=status,
            dimension=len(self.directions.free),
            discounts=point.discounts,
            intervals=np.where(unexplained, np.nan, self.ranges),
            reward=reward,
            reward_identified=identified & (status != "infeasible"),
            residual=residual,
            singular_values=self.directions.singular_values,
            temperature=point.temperature,
            members=_far_apart(self.others),
            tolerance=equations.tolerance,
            misfit=self.misfit,
            surplus=surplus,
            coincidence=float(10.0**logarithm),
            from_counts=equations.from_counts,
            experts=equations.problem.names,
            reward_dimension=point.columns.nullity,
            free_constant=equations.free_constant and point.columns.nullity > 0,
            unknown_parameters=tuple(name for name, entered in names if not entered),
            gaps=self.gaps or ((),) * equations.n_experts,
        )


def _largest_residual(equations: JointEquations) -> float:
    """Return the residual above which a solution was not solved for; from counts any residual may be noise."""
    return np.inf if equations.from_counts else max(1e-5, 1000 * equations.tolerance)


def planned(problem: Problem, discounts: Floats, reward: Floats, temperature: Floats) -> Iterator[SoftPlan]:
    """Yield the soft-optimal policy of each expert; raises ValueError where one does not exist."""
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        gamma = float(discounts[owner])
        seen = expert.at(gamma)
        yield soft_plan(seen.mdp, seen.expected_reward(reward), gamma, float(temperature[owner]))


def log_likelihood(problem: Problem, plans: Iterable[SoftPlan]) -> float:
    """Return `Σ N(s,a) log π(a|s)`; experts given as policies count with weight 1 in every state."""
    total = 0.0
    for expert, plan in zip(problem.experts, plans, strict=True):
        counts = expert.counts if expert.counts is not None else read_equations(expert).policy
        live = ~expert.mdp.terminal[:, None] & (counts > 0)
        total += float((counts * np.where(live, plan.log_policy, 0.0))[live].sum())
    return total


def _far_apart(points: Sequence[Explanation]) -> tuple[Member, ...]:
    """Return the two confirmed members of the set that are farthest apart; none where all are close.

    Confirmed are those that reproduce the policies within the tolerance, or make the decisions as likely as the best of them.
    """
    members = _members(points[:: max(1, len(points) // 40)])
    if not members:
        return ()
    equations = points[0].equations
    if equations.from_counts:
        likely = max(m.log_likelihood for m in members) - chi2_ppf(0.95, equations.n_experts) / 2
        members = tuple(m for m in members if m.log_likelihood >= likely)
    else:
        best = min(m.error for m in members)
        members = tuple(m for m in members if m.error <= min(max(100 * best, 1e-11), MISFIT * equations.tolerance))
    pairs = [
        (float(np.linalg.norm(a.discounts - b.discounts)), i, j) for i, a in enumerate(members) for j, b in enumerate(members[:i])
    ]
    distance, i, j = max(pairs, default=(0.0, 0, 0))
    return (members[j], members[i]) if distance > 0.01 else ()


def _members(points: Sequence[Explanation]) -> tuple[Member, ...]:
    """Plan the policies again from each explanation; those at which none exists are left out."""
    members = []
    for point in points:
        problem, policies = point.equations.problem, point.equations.policies
        if (point.temperature <= 0).any():
            continue
        try:
            plans = [*planned(problem, point.discounts, point.reward, point.temperature)]
        except ValueError:  # a discount of 1, at which no policy exists
            continue
        gaps = [np.abs(plan.policy - given.policy)[~given.mdp.terminal] for plan, given in zip(plans, policies, strict=True)]
        likelihood = log_likelihood(problem, plans) if point.equations.from_counts else np.nan
        error = max(float(gap.max(initial=0.0)) for gap in gaps)
        members.append(Member(point.discounts, point.reward, point.temperature, error, likelihood))
    return tuple(members)


@dataclass(frozen=True, eq=False)
class Member:
    """One explanation of the experts, with the evidence for it.

    `error` is `max |π − π*|`, with the policies planned again from it; `log_likelihood` is that of the decisions, NaN where
    policies were given.
    """

    discounts: Floats
    reward: Floats
    temperature: Floats
    error: float
    log_likelihood: float


@dataclass(frozen=True, eq=False)
class Identification(Result):
    """The report on whether the experts identify their discounts.

    Attributes:
        status: "unique", "set" or "infeasible".
        dimension: of the set of discounts that the equations leave open; 0 for a single point (or several isolated ones).
        discounts: `(K,)`, the answer, one member of the set, or the closest explanation.
        intervals: `(K,2)`, each discount's range over the set, widened by what errors of size `tolerance` can do; NaN where
            nothing explains the experts.
        reward: reward parameters that go with `discounts`; its mean is 0 where a constant is free.
        reward_identified: `(d,)`, which of them are the same in all explanations (apart from a constant added to all).
        residual: `max |(Q − V)/λ − log π*|`, recomputed from discounts and reward.
        singular_values: of the equations in the discounts; their rank is the number of discounts less `dimension`.
        temperature: `(K,)`.
        members: two explanations that are far apart, where there is a set and both are confirmed.
        misfit: how much worse the equations hold than errors of size `tolerance` would explain; above 5 is infeasible.
        surplus: how many more equations than unknowns the experts have in common; with none, any experts would fit.
        coincidence: a rough probability that experts with unrelated rewards would fit as well.
        from_counts: whether frequencies of decisions stand in for policies.
        reward_dimension: directions in which the reward is open even at these discounts.
        free_constant: whether one of them is a constant added to the whole reward.
        unknown_parameters: states that no transition enters, about whose reward nothing can be said.
        gaps: by expert, the pairs of discounts between which `intervals` holds none that was found to explain the experts: its
            range is in several parts, or single values.
        zero_action: the action whose reward is taken to be 0 in every state; None where the reward is not by state and action.
        double_roots: with `equal_rewards`, the discounts at which the equations touch 0 without crossing it: there the
            slightest error makes two discounts of one, or none.
        within: the discounts that explain the experts if their rewards are only nearly the same; None where that was not asked.
        problem: kept in memory and not saved.
    """

    _drawn: ClassVar[tuple[str, ...]] = ("expert", "discount", "discount_low", "discount_high")

    status: str
    dimension: int
    discounts: Floats
    intervals: Floats
    reward: Floats
    reward_identified: Bools
    residual: float
    singular_values: Floats
    temperature: Floats
    members: tuple[Member, ...]
    tolerance: float
    misfit: float
    surplus: int
    coincidence: float
    from_counts: bool
    experts: tuple[str, ...]
    reward_dimension: int
    free_constant: bool
    unknown_parameters: tuple[str, ...]
    gaps: Gaps = ()
    zero_action: str | None = None
    double_roots: tuple[float, ...] = ()
    within: WithinDistance | None = None
    problem: Problem | None = None

    @property
    def discounts_identified(self) -> Bools:
        """Return the mask `(K,)` of discounts that are the same in all explanations, up to the effect of the errors."""
        return np.diff(self.intervals, axis=1)[:, 0] <= LIMIT

    def listed_as(self, names: tuple[str, ...], free_temperatures: bool) -> Identification:
        """List the experts in the order of `names`; free temperatures are relative to the first of them."""
        place = [self.experts.index(name) for name in names]
        first = float(self.temperature[place[0]])
        scale = first if free_temperatures and first > 0 else 1.0

        def listed(answer: Any) -> dict[str, Any]:
            discounts = answer.discounts[place]
            temperature = answer.temperature[place] / scale
            return {"discounts": discounts, "reward": answer.reward / scale, "temperature": temperature}

        members = tuple(replace(member, **listed(member)) for member in self.members)
        gaps = tuple(self.gaps[i] for i in place)
        return replace(self, experts=names, intervals=self.intervals[place], gaps=gaps, members=members, **listed(self))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per expert: the discount, NaN where it is not identified, and its range over all explanations.

        Where `within` was asked for, also return the proved and the attained range if rewards are nearly the same.
        """
        low, high = self.intervals.T
        discount = np.where(self.discounts_identified, self.discounts, np.nan)
        columns = {"expert": self.experts, "discount": discount, "discount_low": low, "discount_high": high}
        if self.within is not None:
            columns["within_low"], columns["within_high"] = self.within.proved.T
            columns["attained_low"], columns["attained_high"] = self.within.attained.T
            columns["settled"] = self.within.settled.all(axis=1)
        return pd.DataFrame(columns)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, strings, lists and dicts, as JSON and `Solution.evidence` take them; None for unknown values."""
        closest = self.status == "infeasible"
        changed = {
            "discounts": np.where(self.discounts_identified | closest, self.discounts, np.nan),
            "reward": np.where(self.reward_identified | closest, self.reward, np.nan),
            "members": [{name: _plain(value) for name, value in vars(member).items()} for member in self.members],
        }
        left_out = ["problem", "within", *(["zero_action", "double_roots"] if self.zero_action is None else [])]
        plain = {name: _plain(value) for name, value in (vars(self) | changed).items() if name not in left_out}
        plain["caution"] = self.caution
        if self.within is not None:
            plain["within"] = {name: _plain(value) for name, value in vars(self.within).items()}
        return plain

    def _content(self) -> dict[str, Any]:
        return self.to_dict()

    def _facts(self) -> dict[str, Any]:
        return {
            "status": self.status,
            "open directions of discounts": self.dimension,
            "residual": self.residual,
            "open directions of reward": self.reward_dimension,
        }

    def _tables(self, compute: bool) -> list[Table]:
        tables = [Table(self.to_frame(), "discounts", self._drawn[1:], roles={"discount": "discount"})]
        if self.problem is None:
            return tables
        reward = np.where(self.reward_identified, self.reward, np.nan)
        frame = pd.DataFrame({"parameter": self.problem.parameter_names, "reward": reward})
        return [*tables, Table(frame, "reward", ("reward",))]

    def sentences(self) -> str:
        """Return the finding in plain words, with what to do next."""
        lines = [self.headline()]
        for number, name in enumerate(self.experts):
            closest = f"closest discount {decimals(self.discounts[number], 4)}"
            lines.append(f"  {name}: {closest if self.status == 'infeasible' else self._range(number)}")
        for gamma in self.double_roots:
            lines.append(f"  The discount {decimals(gamma, 4)} is a double root: the slightest error makes two of it, or none.")
        if self.caution is not None:
            lines.append(self.caution)
        for m in self.members:
            evidence = (
                f"makes the decisions as likely as any found (log-likelihood {decimals(m.log_likelihood, 1)})"
                if self.from_counts
                else f"reproduces every policy to {power_of_ten(m.error)}"
            )
            discounts = ", ".join(decimals(gamma, 4) for gamma in m.discounts)
            lines.append(f"  For example {discounts} with a reward of its own {evidence}.")
        if self.free_constant:
            lines.append("A constant may be added to the whole reward; its mean is set to 0.")
        if others := self.reward_dimension - self.free_constant:
            lines.append(f"Even at given discounts the reward is open in {_counted(others, 'further direction')}.")
        if self.unknown_parameters:
            some = ", ".join(self.unknown_parameters[:5]) + (", …" if len(self.unknown_parameters) > 5 else "")
            lines.append(f"Nothing can be said about the reward of states that are never entered: {some}.")
        nearly = [] if self.within is None else self.within.lines(self.experts)
        return "\n".join([*lines, *self._advice(), *nearly])

    @property
    def caution(self) -> str | None:
        """Return what the discounts rest on where that is the form of the reward alone."""
        if self.zero_action is not None:
            return (
                f"This takes the reward of {self.zero_action} to be 0 in every state; another normalisation may give other "
                "discounts."
            )
        alone = self.status == "unique" and self.problem is not None and self.problem.by_form_alone
        return FORM_ALONE if alone else None

    def headline(self) -> str:
        """Return the finding in one sentence."""
        errors = "the errors of their counts" if self.from_counts else f"errors of {significant(self.tolerance)} in log π"
        shape = {1: "a curve", 2: "a surface"}.get(self.dimension, f"a set of dimension {self.dimension}")
        open_ = _counted(self.dimension, "combination")
        if self.status == "unique":
            return f"The experts identify their discounts, up to {errors}."
        if self.status == "infeasible":
            explained = "No discounts and shared reward explain the experts"
            if self.zero_action is not None:
                explained = "No discount explains the expert with these equal rewards"
            return (
                f"{explained} up to {errors}: "
                f"the equations hold {significant(self.misfit)} times worse than that. The closest explanation "
                f"leaves {significant(self.residual)}."
            )
        if self.dimension == 0:
            return "Several separate explanations fit the experts equally well."
        if self.from_counts:
            return f"These decisions do not identify the discounts: the errors of their counts leave {open_} of them open."
        if self.discounts_identified.all():
            return (
                f"The experts do not identify their discounts by themselves: {shape} of them explains the same behaviour, "
                "and only the limits 0 and 1 single out one point of it."
            )
        if not self.members or max(m.error for m in self.members) > 1e-6:
            return f"Errors as large as those of the policies leave {open_} of the discounts open."
        return f"The experts do not identify their discounts: {shape} of them explains the same behaviour."

    def _range(self, number: int) -> str:
        """Write an expert's discounts: narrow ranges as one number, and an end that prints as 0 or 1 as the limit that it is."""
        low, high = map(float, self.intervals[number])
        ends = [low, *(end for gap in self.gaps[number] for end in gap), high]
        printed = 5e-5
        if len(ends) > 2:
            parts = [
                f"{decimals(a, 4)} to {decimals(b, 4)}" if b - a > 2 * printed else decimals((a + b) / 2, 4)
                for a, b in zip(ends[::2], ends[1::2], strict=True)
            ]
            return f"discount {', '.join(parts[:-1])} or {parts[-1]}, none found between"
        if high - low <= 2 * printed:
            return f"discount {decimals(self.discounts[number], 4)}"
        if low <= printed:
            return "any discount from 0 to 1" if high >= 1 - printed else f"discount at most {decimals(high, 4)}"
        return (
            f"discount at least {decimals(low, 4)}"
            if high >= 1 - printed
            else f"discount from {decimals(low, 4)} to {decimals(high, 4)}"
        )

    def _advice(self) -> list[str]:
        if self.status == "unique":
            return []
        if self.from_counts:
            return ["This check treats frequencies as policies with errors. MaximumLikelihood uses the decisions in full."]
        if self.status == "set" and self.zero_action is not None:
            return ["To narrow it down: a further pair of equal rewards, or one reward for each state and another expert."]
        if self.status == "set":
            return [
                "To narrow it down: the same experts in a variant of the task with other transitions (Problem.join), "
                "another expert, fewer reward parameters (features), or one discount fixed from other knowledge."
            ]
        size = self.tolerance * self.misfit / MISFIT
        otherwise = "another temperature, temperatures per expert, or ask whether all experts share one reward"
        if self.zero_action is not None:
            otherwise = "another temperature, another zero_action, or fewer equal rewards"
        return [
            f"If the policies are estimates, set tolerance to the size of their errors: {significant(size, 2)} or "
            f"more would be needed. "
            f"Otherwise try {otherwise}."
        ]


def _counted(number: int, noun: str) -> str:
    """Write a number with its noun: "1 direction", "2 directions"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _plain(value: Any) -> Any:
    """Turn arrays and tuples into lists, and NaN and infinity into None."""
    if isinstance(value, np.ndarray):
        missing = np.isnan(value)
        if missing.any():
            value = value.astype(object)
            value[missing] = None
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
