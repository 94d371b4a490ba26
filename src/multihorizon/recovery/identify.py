"""What the experts' behaviour can and cannot say about their discounts and reward.

`identify` solves the experts' equations exactly where they are linear (`linear_system`) and by variable projection where they are
not, and then asks how many directions of the discounts stay open when the policies may be wrong by `tolerance`:

* `unique`: one answer, up to the spread that errors of that size cause, which is at most LIMIT;
* `set`: a curve, surface, … of answers; each discount's range over it and two members that reproduce the experts as proof;
* `infeasible`: no discounts and reward explain the experts up to the tolerance; the closest explanation and its residual.

Where the set is affine its ranges are linear programs, exact up to rounding; else they come from walks along the set
(`solution_set`): every value in them is attained, and pieces of the set that no start reaches are missed. Counts of decisions
are too inexact to bound a discount that their equations leave open (ranges made from their errors held the truth in 44 to 100 %
of simulated tables): it may be anything.

The answer does not depend on the order of experts, states and actions: the experts are first sorted by what they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from scipy.stats import qmc

from multihorizon.checks import Floats, as_discount, as_positive
from multihorizon.problem import Problem
from multihorizon.recovery.column_space import column_space
from multihorizon.recovery.explanation import Case, Verdict
from multihorizon.recovery.feature_equations import FeatureEquations
from multihorizon.recovery.identification import Identification
from multihorizon.recovery.joint_equations import SharedReward, StateEquations
from multihorizon.recovery.linear_system import MISFIT, Answer, LinearSystem, build_system, solve_system
from multihorizon.recovery.one_expert import (
    PolicyEquations,
    RewardFamily,
    in_order_of_content,
    read_equations,
    reward_families,
    state_columns,
)
from multihorizon.recovery.solution_set import (
    NO_EFFECT,
    Candidate,
    explore,
    hull,
    judge_solution,
    minimise,
    minimise_from,
    project,
)
from multihorizon.tolerances import RANK_TOLERANCE

Temperature = float | Literal["per_expert"]
#: Above this many rows the linear system's answer is not polished: it has twelve digits already, and a step takes long.
POLISHED_ROWS = 50_000
#: Random vectors that leave a span by more than this are not in it.
SAME_SPAN = 1e-9
#: Starting points where the equations are not linear.
STARTS = 12
#: Above this many entries of M only a few starts are made.
WIDE = 20_000


def identify(
    problem: Problem,
    temperature: Temperature = 1.0,
    tolerance: float = 1e-8,
    starts: int = STARTS,
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
        ValueError: on malformed options, zero probabilities, or experts given as best actions, and where the equations are too
            weak to be solved.

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
    equations = [read_equations(expert, smoothing) for expert in ordered.experts]
    families = None if has_features(ordered) else reward_families(ordered, equations, tolerance)
    case = make_case(ordered, equations, families, lam, tolerance, _known(ordered, known))
    return case.report(judge(case, starts)).listed_as(problem.names, free_temperatures=lam is None)


def has_features(problem: Problem) -> bool:
    """Whether the reward is made of features other than one number per state."""
    return any(state_columns(problem, expert) is None for expert in problem.experts)


def make_case(
    problem: Problem,
    equations: Sequence[PolicyEquations],
    families: Sequence[RewardFamily] | None,
    lam: float | None,
    tolerance: float,
    known: Floats,
) -> Case:
    """The system of all experts, from what each of them says; `families` is None where the reward is made of features."""
    if families is None:
        return Case(problem, equations, tolerance, FeatureEquations(problem, equations, lam, tolerance), 0.0, known)
    shared = SharedReward(families, problem.n_parameters)
    return Case(problem, equations, tolerance, StateEquations(shared, problem.n_experts, lam), shared.misfit, known)


def judge(case: Case, starts: int = STARTS, extent: bool = True) -> Verdict:
    """Solve the system of all experts, and say what its solutions are; `extent` is whether a set is to be walked along."""
    if isinstance(case.base, FeatureEquations) or not np.isnan(case.known).all():
        return _nonlinear(case, [], starts, extent)
    system = build_system(case.base.shared.compact, case.problem.n_experts, case.base.temperature)
    answer = solve_system(system)
    if not answer.free.size:
        return _single(case, system, answer)
    if _affine(case.base.shared.compact):
        return _affine_set(case, system, answer)
    relaxed = [answer.y, *system.discount_ranges(answer)[1]]
    return _nonlinear(case, [system.read(y)[0] for y in relaxed], starts, extent)


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


def _affine(shared: SharedReward) -> bool:
    """Whether `P_π N` stays in the span of N for every expert, so that the linear system loses nothing."""
    for family in shared.families:
        span = column_space(family.basis, RANK_TOLERANCE, family.coefficients)
        drawn = np.random.default_rng(0).standard_normal((family.u.size, 4))
        if np.abs(span.outside(family.pushed @ span.solve(drawn))).max(initial=0.0) > SAME_SPAN:
            return False
    return True


def _single(case: Case, system: LinearSystem, answer: Answer) -> Verdict:
    """One answer of the linear system, polished with the equations the relaxation dropped."""
    discounts = np.clip(system.read(answer.y)[0], 0.0, 1.0)
    point = minimise(case.joint, discounts) if system.shared.size <= POLISHED_ROWS else project(case.joint, discounts)
    feasible = case.feasible(answer) and point.gap <= MISFIT * answer.expected
    return Verdict("unique" if feasible else "infeasible", point, answer, _widened(hull([point]), answer))


def _affine_set(case: Case, system: LinearSystem, answer: Answer) -> Verdict:
    intervals, extremes = system.discount_ranges(answer)
    if not case.feasible(answer) or not extremes:
        point = project(case.joint, np.clip(system.read(answer.y)[0], 0.0, 1.0))
        return Verdict("infeasible", point, answer, intervals)
    centre = np.mean(extremes, axis=0)
    inner = [0.98 * y + 0.02 * centre for y in extremes]
    points = [project(case.joint, np.clip(system.read(y)[0], 0.0, 1.0)) for y in inner]
    middle = project(case.joint, np.clip(system.read(centre)[0], 0.0, 1.0))
    return Verdict("set", middle, answer, _widened(intervals, answer), points)


def _nonlinear(case: Case, guesses: list[Floats], starts: int, extent: bool) -> Verdict:
    """Local minimisers from several starts; the rank of the Jacobian at the best; walks along the set.

    The best is the first solution that gives the policies back when they are computed again from it. Solutions at discounts near
    1 need not: there the values of a policy that never ends do not exist, and the point is only a limit of explanations.
    """
    middle = np.full(case.joint.n_experts, 0.5)
    wide = case.joint.at(middle)[0].size > WIDE
    spread_out = qmc.Halton(case.joint.n_experts, seed=0).random(min(starts, 4) if wide else starts)
    minima = minimise_from(case.joint, [middle, *spread_out, *np.clip(guesses[:1] if wide else guesses, 0.0, 1.0)])
    good = [p for p in minima if (case.joint.read(p.discounts, p.x)[1] > 0).all()] or minima
    best = next((p for p in good if p.gap <= p.rounding and case.residual(p) <= case.unresolved), good[0])
    answer = judge_solution(case.joint, best, case.outside)
    if not case.feasible(answer):
        return Verdict("infeasible", best, answer, hull([best]))
    largest = MISFIT * answer.expected
    alike = [p for p in good if p.gap <= largest]
    if not answer.free.size and all(_same(best, p, largest) for p in alike):
        return Verdict("unique", best, answer, _widened(hull([best]), answer))
    null = int((answer.singular_values <= best.no_effect).sum())
    ranges, points = hull(alike), alike
    if case.from_counts:
        ranges[np.abs(answer.free).max(axis=0, initial=0.0) > NO_EFFECT] = 0.0, 1.0
    elif null and extent:
        ranges, points = explore(case.joint, alike, null, largest)
    points = points + _steps_aside(case, best, answer, largest)
    return Verdict("set", best, answer, _widened(ranges, answer), points)


def _same(first: Candidate, second: Candidate, largest: float) -> bool:
    """Whether two solutions are one up to the noise: to first order the step between them changes no equation beyond it."""
    return float(np.linalg.norm(first.jacobian @ (second.discounts - first.discounts))) <= 2 * largest


def _widened(ranges: Floats, answer: Answer) -> Floats:
    """Ranges `(K,2)` and what the noise adds on both sides."""
    wider: Floats = (ranges + np.outer(answer.spread, [-1.0, 1.0])).clip(0.0, 1.0)
    return wider


def _steps_aside(case: Case, best: Candidate, answer: Answer, largest: float) -> list[Candidate]:
    """Points to both sides of the best along directions that only the noise leaves open, as far as the noise explains them."""
    found = []
    for direction in [sign * v for v in answer.free for sign in (1.0, -1.0)]:
        for length in (0.5, 0.2, 0.1, 0.05):
            point = project(case.joint, np.clip(best.discounts + length * direction, 0.0, 1.0))
            if point.gap <= largest:
                found.append(point)
                break
    return found
