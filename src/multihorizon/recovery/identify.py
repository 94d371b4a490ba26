"""What the experts' behaviour can and cannot say about their discounts and reward.

`identify` solves the experts' equations exactly where they are linear (`linear_system`) and by variable projection where they are
not, and then asks how many directions of the discounts stay open when the policies may be wrong by `tolerance`:

* `unique`: one answer, up to the spread that errors of that size cause, which is at most LIMIT;
* `set`: a curve, surface, … of answers; each discount's range over it and two members that reproduce the experts as proof;
* `infeasible`: no discounts and reward explain the experts up to the tolerance; the closest explanation and its residual.

Where the set is affine its ranges are linear programs, exact up to rounding; else they come from walks along the set
(`solution_set`): every value in them is attained, and pieces of the set that no start reaches are missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from scipy.stats import qmc

from multihorizon.checks import Floats, as_discount, as_positive
from multihorizon.experts import Expert
from multihorizon.planning.evaluation import policy_entropy
from multihorizon.planning.linear import Resolvent
from multihorizon.planning.soft_plan import soft_plan
from multihorizon.problem import Problem
from multihorizon.recovery.closed_form import expert_lines, read_equations, state_columns
from multihorizon.recovery.feature_form import LAST, FeatureForm
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
from multihorizon.recovery.solution_set import explore, several_minima
from multihorizon.recovery.variable_projection import NULL, Form, Pinned, Point, StateForm, local_answer, minimise, project

Temperature = float | Literal["per_expert"]
#: Above this many rows the noise is drawn twice only, and nothing is polished.
LARGE = 50_000
#: Above this many entries of M only a few starts are made.
WIDE = 20_000


def identify(
    problem: Problem,
    temperature: Temperature = 1.0,
    tolerance: float = 1e-8,
    starts: int = 12,
    known: Mapping[str, float] | None = None,
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
    values = _known(problem, known)
    if any(state_columns(problem, expert) is None for expert in problem.experts):
        features = FeatureForm(problem, lam)
        draws = [features.shifted(draw, tolerance) for draw in range(8)]
        return _nonlinear(_Case(problem, tolerance, features, 0.0, values), draws, [], starts)
    lines = expert_lines(problem, tolerance, _draws(problem))
    rows = Rows(lines, problem.n_parameters)
    outside = max(line.misfit / max(line.error, ROUNDING) for line in lines)
    form = StateForm(rows, problem.n_experts, lam)
    case = _Case(problem, tolerance, form, outside, values)
    if known:
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

    def report(self, status: str, point: Point, answer: Answer, intervals: Floats, members: list[Member]) -> Identification:
        reward, temperature = self.form.read(point.discounts, point.x)
        reward, known, open_ = tidy_reward(self.problem, reward, point, self.base)
        discounts = self.pinned.expand(point.discounts)
        names = self.problem.parameter_names
        return Identification(
            status=status,
            dimension=answer.free.shape[0],
            discounts=discounts,
            intervals=self.pinned.expand(intervals),
            reward=reward,
            residual=bellman_residual(self.problem, discounts, reward, temperature),
            singular_values=answer.singular_values,
            temperature=temperature,
            members=tuple(members),
            tolerance=self.tolerance,
            misfit=max(self.outside, answer.gap / answer.expected),
            experts=self.problem.names,
            reward_dimension=open_,
            unknown_parameters=tuple(n for n, k in zip(names, known, strict=True) if not k),
        )

    def feasible(self, answer: Answer) -> bool:
        return answer.feasible and self.outside <= MISFIT

    def member(self, point: Point) -> Member | None:
        """The point as a member with its reproduction error, or None where its policies do not exist (discount 1, λ ≤ 0)."""
        reward, temperature = self.form.read(point.discounts, point.x)
        reward = tidy_reward(self.problem, reward, point, self.base)[0]
        discounts = self.pinned.expand(point.discounts)
        if (temperature <= 0).any():
            return None
        try:
            error = reproduction_error(self.problem, discounts, reward, temperature)
        except ValueError:
            return None
        return Member(discounts, reward, temperature, error)


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
    intervals = np.stack([point.discounts - answer.spread, point.discounts + answer.spread], axis=1).clip(0.0, 1.0)
    return case.report("unique" if feasible else "infeasible", point, answer, intervals, [])


def _affine_set(case: _Case, system: System, answer: Answer) -> Identification:
    intervals, extremes = discount_ranges(system, answer)
    if not case.feasible(answer) or not extremes:
        point = project(case.form, np.clip(system.read(answer.y)[0], 0.0, 1.0))
        return case.report("infeasible", point, answer, intervals, [])
    centre = np.mean(extremes, axis=0)
    inner = [0.98 * y + 0.02 * centre for y in extremes]
    points = [project(case.form, np.clip(system.read(y)[0], 0.0, 1.0)) for y in inner]
    widened = np.stack([intervals[:, 0] - answer.spread, intervals[:, 1] + answer.spread], axis=1).clip(0.0, 1.0)
    middle = project(case.form, np.clip(system.read(centre)[0], 0.0, 1.0))
    return case.report("set", middle, answer, widened, _far_apart(case, points))


def _nonlinear(case: _Case, noisy: Sequence[Form], guesses: list[Floats], starts: int) -> Identification:
    """Local minimisers from several starts; the rank of the Jacobian at the best; walks along the set."""
    draws = noisy if np.isnan(case.known).all() else [Pinned(form, case.known) for form in noisy]
    wide = case.form.at(np.full(case.form.n_experts, 0.5))[0].size > WIDE
    spread_out = qmc.Halton(case.form.n_experts, seed=0).random(min(starts, 4) if wide else starts)
    minima = several_minima(case.form, [*np.clip(guesses, 0.0, 1.0), *spread_out])
    good = [p for p in minima if (case.form.read(p.discounts, p.x)[1] > 0).all()] or minima
    best = good[0]
    answer = local_answer(case.form, best, draws, case.outside)
    spread = np.stack([best.discounts - answer.spread, best.discounts + answer.spread], axis=1).clip(0.0, 1.0)
    if not case.feasible(answer):
        return case.report("infeasible", best, answer, spread, [])
    largest = MISFIT * answer.expected
    alike = [p for p in good if p.gap <= largest]
    far = max(float(np.abs(p.discounts - best.discounts).max()) for p in alike)
    if not answer.free.size and far <= LIMIT:
        return case.report("unique", best, answer, spread, [])
    null = int((answer.singular_values <= NULL * best.size).sum())
    ranges, points = explore(case.form, alike, null, largest) if null else (_hull(alike), alike)
    points += _steps_aside(case, best, answer, largest)
    widened = np.stack([ranges[:, 0] - answer.spread, ranges[:, 1] + answer.spread], axis=1).clip(0.0, 1.0)
    return case.report("set", best, answer, widened, _far_apart(case, points))


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


def _hull(points: list[Point]) -> Floats:
    discounts = np.stack([p.discounts for p in points])
    return np.stack([discounts.min(axis=0), discounts.max(axis=0)], axis=1)


def _far_apart(case: _Case, points: list[Point]) -> list[Member]:
    """Two members of the set that are far apart and reproduce the experts: the pair with the largest distance among those."""
    members = [m for m in (case.member(p) for p in points[:: max(1, len(points) // 40)]) if m is not None]
    best = min((m.error for m in members), default=0.0)
    members = [m for m in members if m.error <= max(100 * best, 1e-11)]
    pairs = [
        (float(np.linalg.norm(a.discounts - b.discounts)), i, j) for i, a in enumerate(members) for j, b in enumerate(members[:i])
    ]
    if not pairs:
        return members[:1]
    _, i, j = max(pairs)
    return [members[j], members[i]]


def tidy_reward(problem: Problem, reward: Floats, point: Point, form: Any) -> tuple[Floats, Any, int]:
    """The reward with mean 0 where a constant is free, the mask of known parameters, and the number of open directions."""
    open_ = point.x.size - point.left.shape[1]
    if isinstance(form, FeatureForm):
        return reward, np.ones(reward.size, dtype=np.bool_), open_
    known = form.rows.known
    if not any(expert.mdp.entered_ends.any() for expert in problem.experts):
        reward = np.where(known, reward - reward[known].mean(), 0.0)
    return reward, known, open_


def reproduction_error(problem: Problem, discounts: Floats, reward: Floats, temperature: Floats) -> float:
    """`max |π − π*|` over experts, states and actions, with π planned again from the answer."""
    worst = 0.0
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        planned = soft_plan(expert.mdp, expert.expected_reward(reward), float(discounts[owner]), float(temperature[owner]))
        gap = np.abs(planned.policy - read_equations(expert).policy)[~expert.mdp.terminal]
        worst = max(worst, float(gap.max()))
    return worst


def bellman_residual(problem: Problem, discounts: Floats, reward: Floats, temperature: Floats) -> float:
    """`max |(Q − V)/λ − log π*|` with V and Q the values of the experts' own policies under the answer.

    It is 0 exactly if every expert is soft-optimal, in the units of log π, and computed from discounts and reward alone.
    """
    worst = 0.0
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        worst = max(worst, _expert_residual(expert, reward, float(discounts[owner]), float(temperature[owner])))
    return worst


def _expert_residual(expert: Expert, reward: Floats, gamma: float, lam: float) -> float:
    mdp, equations = expert.mdp, read_equations(expert)
    live = mdp.available & ~mdp.terminal[:, None]
    policy = np.where(live, equations.policy, 0.0)
    immediate = expert.expected_reward(reward)
    bonus = np.where(mdp.terminal, 0.0, lam * policy_entropy(equations.policy))
    if gamma > LAST and mdp.never_ends(equations.policy).any():
        gamma = LAST
    values = Resolvent(mdp.under(policy), gamma).solve((policy * immediate).sum(axis=1) + bonus)
    advantage = immediate + gamma * mdp.expect(values) - values[:, None]
    gap = np.abs(advantage / lam - equations.log_policy)[live]
    return float(gap.max())
