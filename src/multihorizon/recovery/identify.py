"""What the experts' behaviour can and cannot say about their discounts and reward.

`identify` solves the experts' equations exactly where they are linear (`linear_system`) and by variable projection where they are
not, and then asks how many directions of the discounts stay open when the policies may be wrong by `tolerance`:

* `unique`: one answer, up to the spread that errors of that size cause, which is at most LIMIT;
* `set`: a curve, surface, … of answers; each discount's range over it and two members that reproduce the experts as proof;
* `infeasible`: no discounts and reward explain the experts up to the tolerance; the closest explanation and its residual.

Where the set is affine its ranges are linear programs, exact up to rounding; else they come from walks along the set
(`solution_set`): every value in them is attained, and pieces of the set that no start reaches are missed. Counts of decisions
are too inexact to walk along a set: a discount that their equations leave open may be anything.

The answer does not depend on the order of experts, states and actions: the experts are put in an order of content first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.stats import chi2, qmc

from multihorizon.checks import Bools, Floats, as_discount, as_positive
from multihorizon.problem import Problem
from multihorizon.recovery.closed_form import Equations, expert_lines, in_order_of_content, read_equations, state_columns
from multihorizon.recovery.feature_form import FeatureForm
from multihorizon.recovery.identification import Identification, Member
from multihorizon.recovery.linear_system import (
    LIMIT,
    MISFIT,
    ROUNDING,
    Answer,
    Rows,
    System,
    build_system,
    discount_ranges,
    solve_system,
)
from multihorizon.recovery.recomputed import bellman_residual, log_likelihood, reproduction_error
from multihorizon.recovery.solution_set import explore, several_minima
from multihorizon.recovery.variable_projection import NULL, Form, Pinned, Point, StateForm, local_answer, minimise, project

Temperature = float | Literal["per_expert"]
#: Above this many rows the noise is drawn twice only, and nothing is polished.
LARGE = 50_000
#: Above this many entries of M only a few starts are made.
WIDE = 20_000
#: Rewards of two explanations that differ by more than this share of the largest are not the same.
SAME_REWARD = 1e-6
#: Two members of a set are shown as its proof if their discounts are at least this far apart.
FAR_APART = 0.01


def identify(
    problem: Problem,
    temperature: Temperature = 1.0,
    tolerance: float = 1e-8,
    starts: int = 12,
    known: Mapping[str, float] | None = None,
    smoothing: float = 0.5,
) -> Identification:
    """Say whether the experts' policies identify their discounts, and give the answer, the set of answers, or the closest one.

    Args:
        problem: experts given as policies without zero entries, or as demonstrations (whose frequencies are smoothed, and whose
            errors are those of the counts).
        temperature: the entropy weight λ that all experts share, or "per_expert": each has their own, the first has 1.
        tolerance: how large the errors in the policies may be, as the standard deviation of log π, which is the relative error
            of a probability. The answer is called unique only if such errors move no discount by more than 0.1.
        starts: number of starting points where the equations are not linear.
        known: discounts that are known from elsewhere, by the expert's name.
        smoothing: added to each available action's count of demonstrations.

    Raises:
        ValueError: on malformed options, zero probabilities, or experts given as best actions.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> found = identify(Problem(d.mdp, d.mce_experts()))
        >>> found.status, found.discounts.round(6).tolist()
        ('unique', [0.0, 0.2, 0.52])
    """
    lam = read_temperature(temperature)
    as_positive(tolerance, "tolerance")
    as_positive(smoothing, "smoothing")
    ordered = in_order_of_content(problem, smoothing)
    found = _identify(ordered, lam, tolerance, starts, _known(ordered, known), smoothing)
    return found.listed_as(problem.names, free_temperatures=lam is None)


def _identify(
    problem: Problem, lam: float | None, tolerance: float, starts: int, known: Floats, smoothing: float
) -> Identification:
    equations = [read_equations(expert, smoothing) for expert in problem.experts]
    if any(state_columns(problem, expert) is None for expert in problem.experts):
        features = FeatureForm(problem, lam, equations)
        draws = [features.shifted(draw, tolerance) for draw in range(8)]
        return _nonlinear(_Case(problem, equations, tolerance, features, 0.0, known), draws, [], starts)
    lines = expert_lines(problem, tolerance, _draws(problem), smoothing)
    rows = Rows(lines, problem.n_parameters)
    outside = max(line.misfit / max(line.error, ROUNDING) for line in lines)
    form = StateForm(rows, problem.n_experts, lam)
    case = _Case(problem, equations, tolerance, form, outside, known)
    if not np.isnan(known).all():
        return _nonlinear(case, form.all_shifted(), [], starts)
    system = build_system(rows, problem.n_experts, lam)
    answer = solve_system(system)
    if not answer.free.size:
        return _single(case, system, answer)
    if _affine(rows):
        return _affine_set(case, system, answer)
    return _nonlinear(case, form.all_shifted(), [system.read(answer.y)[0]], starts)


def _known(problem: Problem, known: Mapping[str, float] | None) -> Floats:
    """The known discounts `(K,)`, NaN where unknown."""
    values = np.full(problem.n_experts, np.nan)
    for name, discount in (known or {}).items():
        if name not in problem.names:
            raise ValueError(f"known must name experts among {', '.join(problem.names)}, received {name!r}")
        values[problem.names.index(name)] = as_discount(discount, f"known discount of expert {name}")
    if not np.isnan(values).any():
        raise ValueError("known must leave at least one discount open, received all of them: use MCE at known discounts")
    return values


def read_temperature(temperature: Temperature) -> float | None:
    """The shared temperature, or None for one per expert."""
    if isinstance(temperature, str):
        if temperature != "per_expert":
            raise ValueError(f'temperature must be a positive number or "per_expert", received {temperature!r}')
        return None
    return as_positive(temperature, "temperature")


@dataclass(frozen=True, eq=False)
class _Case:
    """What stays the same while one problem is looked at.

    `outside` is the misfit of log π in units of its assumed error, `known` the discounts `(K,)` that are known, NaN elsewhere.
    """

    problem: Problem
    equations: Sequence[Equations]
    tolerance: float
    base: StateForm | FeatureForm
    outside: float
    known: Floats

    @cached_property
    def pinned(self) -> Pinned:
        return Pinned(self.base, self.known)

    @property
    def form(self) -> Form:
        return self.base if np.isnan(self.known).all() else self.pinned

    @property
    def from_counts(self) -> bool:
        return any(expert.counts is not None for expert in self.problem.experts)

    def report(
        self, status: str, point: Point, answer: Answer, intervals: Floats, points: Sequence[Point] = ()
    ) -> Identification:
        """The finding at `point`; `points` are other explanations, where there is a set."""
        reward, identified = self.reward(point)
        temperature = self.form.read(point.discounts, point.x)[1]
        discounts = self.pinned.expand(point.discounts)
        if status == "set":
            identified &= bool(points)
            for other in points:
                identified &= np.abs(self.reward(other)[0] - reward) <= SAME_REWARD * max(1.0, float(np.abs(reward).max()))
        return Identification(
            status=status,
            dimension=answer.free.shape[0],
            discounts=discounts,
            intervals=self.pinned.expand(intervals if status != "infeasible" else np.full(intervals.shape, np.nan)),
            reward=reward,
            reward_identified=identified & (status != "infeasible"),
            residual=bellman_residual(self.problem, self.equations, discounts, reward, temperature),
            singular_values=answer.singular_values,
            temperature=temperature,
            members=tuple(_far_apart(self, points)),
            tolerance=self.tolerance,
            misfit=max(self.outside, answer.gap / answer.expected),
            from_counts=self.from_counts,
            experts=self.problem.names,
            reward_dimension=point.null.shape[1],
            free_constant=self.free_constant and point.null.shape[1] > 0,
            unknown_parameters=tuple(n for n, k in zip(self.problem.parameter_names, self.entered, strict=True) if not k),
        )

    def feasible(self, answer: Answer) -> bool:
        return answer.feasible and self.outside <= MISFIT

    @property
    def entered(self) -> Bools:
        """The reward parameters `(d,)` that some equation holds."""
        return self.base.rows.known if isinstance(self.base, StateForm) else np.ones(self.problem.n_parameters, dtype=np.bool_)

    @property
    def free_constant(self) -> bool:
        """Whether a constant added to the reward of every state changes nothing: no move ends an episode."""
        return isinstance(self.base, StateForm) and not any(e.mdp.entered_ends.any() for e in self.problem.experts)

    def reward(self, point: Point) -> tuple[Floats, Bools]:
        """The reward at a point, with mean 0 where a constant is free, and which of it the equations fix at these discounts."""
        reward = self.form.read(point.discounts, point.x)[0]
        moves = [self.form.read(point.discounts, point.x + v)[0] - reward for v in point.null.T]
        if self.free_constant:
            reward, *moves = (np.where(self.entered, r - r[self.entered].mean(), 0.0) for r in (reward, *moves))
        fixed = self.entered.copy()
        for move in moves:
            fixed &= np.abs(move) <= SAME_REWARD
        return reward, fixed

    def member(self, point: Point) -> Member | None:
        """The point as a member with its evidence, or None where its policies do not exist (discount 1, λ ≤ 0)."""
        temperature = self.form.read(point.discounts, point.x)[1]
        reward, discounts = self.reward(point)[0], self.pinned.expand(point.discounts)
        if (temperature <= 0).any():
            return None
        try:
            error = reproduction_error(self.problem, self.equations, discounts, reward, temperature)
        except ValueError:
            return None
        likelihood = log_likelihood(self.problem, discounts, reward, temperature) if self.from_counts else np.nan
        return Member(discounts, reward, temperature, error, likelihood)


def _draws(problem: Problem) -> int:
    rows = sum(expert.mdp.n_states for expert in problem.experts)
    return 2 if rows > LARGE else 32 if any(expert.counts is not None for expert in problem.experts) else 8


def _affine(rows: Rows) -> bool:
    """Whether `P_π N` stays in the span of N for every expert, so that the linear system loses nothing."""
    for line in rows.lines:
        left = np.linalg.svd(line.basis, full_matrices=False)[0]
        if np.abs(line.pushed - left @ (left.T @ line.pushed)).max(initial=0.0) > 1e-12:
            return False
    return True


def _single(case: _Case, system: System, answer: Answer) -> Identification:
    """One answer of the linear system, polished with the equations the relaxation dropped."""
    discounts = np.clip(system.read(answer.y)[0], 0.0, 1.0)
    point = minimise(case.form, discounts) if system.rows.size <= LARGE else project(case.form, discounts)
    feasible = case.feasible(answer) and point.gap <= MISFIT * answer.expected
    return case.report("unique" if feasible else "infeasible", point, answer, _widened(_hull([point]), answer))


def _affine_set(case: _Case, system: System, answer: Answer) -> Identification:
    intervals, extremes = discount_ranges(system, answer)
    if not case.feasible(answer) or not extremes:
        point = project(case.form, np.clip(system.read(answer.y)[0], 0.0, 1.0))
        return case.report("infeasible", point, answer, intervals)
    centre = np.mean(extremes, axis=0)
    inner = [0.98 * y + 0.02 * centre for y in extremes]
    points = [project(case.form, np.clip(system.read(y)[0], 0.0, 1.0)) for y in inner]
    middle = project(case.form, np.clip(system.read(centre)[0], 0.0, 1.0))
    return case.report("set", middle, answer, _widened(intervals, answer), points)


def _nonlinear(case: _Case, noisy: Sequence[Form], guesses: list[Floats], starts: int) -> Identification:
    """Local minimisers from several starts; the rank of the Jacobian at the best; walks along the set."""
    draws = noisy if np.isnan(case.known).all() else [Pinned(form, case.known) for form in noisy]
    middle = np.full(case.form.n_experts, 0.5)
    wide = case.form.at(middle)[0].size > WIDE
    spread_out = qmc.Halton(case.form.n_experts, seed=0).random(min(starts, 4) if wide else starts)
    minima = several_minima(case.form, [middle, *spread_out, *np.clip(guesses, 0.0, 1.0)])
    good = [p for p in minima if (case.form.read(p.discounts, p.x)[1] > 0).all()] or minima
    best = good[0]
    answer = local_answer(case.form, best, draws, case.outside)
    if not case.feasible(answer):
        return case.report("infeasible", best, answer, _hull([best]))
    largest = MISFIT * answer.expected
    alike = [p for p in good if p.gap <= largest]
    if not answer.free.size and np.ptp(_hull(alike), axis=1).max() <= LIMIT:
        return case.report("unique", best, answer, _widened(_hull([best]), answer))
    null = answer.singular_values <= NULL * best.size
    ranges, points = _hull(alike), alike
    if null.any() and case.from_counts:
        moved = np.abs(np.linalg.svd(best.jacobian, full_matrices=True)[2][null]).max(axis=0) > NULL
        ranges[moved] = 0.0, 1.0
    elif null.any():
        ranges, points = explore(case.form, alike, int(null.sum()), largest)
    points = points + _steps_aside(case, best, answer, largest)
    return case.report("set", best, answer, _widened(ranges, answer), points)


def _widened(ranges: Floats, answer: Answer) -> Floats:
    """Ranges `(K,2)` and what the noise adds on both sides."""
    wider: Floats = (ranges + np.outer(answer.spread, [-1.0, 1.0])).clip(0.0, 1.0)
    return wider


def _steps_aside(case: _Case, best: Point, answer: Answer, largest: float) -> list[Point]:
    """Points to both sides of the best along directions that only the noise leaves open, as far as the noise explains them."""
    found = []
    for direction in [sign * v for v in answer.free for sign in (1.0, -1.0)]:
        for length in (0.5, 0.2, 0.1, 0.05):
            point = project(case.form, np.clip(best.discounts + length * direction, 0.0, 1.0))
            if point.gap <= largest:
                found.append(point)
                break
    return found


def _hull(points: Sequence[Point]) -> Floats:
    discounts = np.stack([p.discounts for p in points])
    return np.stack([discounts.min(axis=0), discounts.max(axis=0)], axis=1)


def _far_apart(case: _Case, points: Sequence[Point]) -> list[Member]:
    """Two confirmed members of the set that are far apart: the pair with the largest distance; none where all are close."""
    members = _confirmed(case, [m for m in (case.member(p) for p in points[:: max(1, len(points) // 40)]) if m is not None])
    pairs = [
        (float(np.linalg.norm(a.discounts - b.discounts)), i, j) for i, a in enumerate(members) for j, b in enumerate(members[:i])
    ]
    distance, i, j = max(pairs, default=(0.0, 0, 0))
    return [members[j], members[i]] if distance > FAR_APART else []


def _confirmed(case: _Case, members: list[Member]) -> list[Member]:
    """The members that reproduce the policies within the tolerance, or make the decisions as likely as the best of them does."""
    if case.from_counts:
        most = max((m.log_likelihood for m in members), default=0.0)
        return [m for m in members if 2 * (most - m.log_likelihood) <= chi2.ppf(0.95, case.problem.n_experts)]
    best = min((m.error for m in members), default=0.0)
    return [m for m in members if m.error <= min(max(100 * best, 1e-11), MISFIT * case.tolerance)]
