"""Do they share a goal? The analyses of a fit that ask it: one reward for each, one goal against several, and groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from multihorizon.finding import Finding
from multihorizon.likelihood.evidence import LikelihoodEvidence
from multihorizon.parallel import Progress
from multihorizon.questions.fitted import Asked, F, Fitted, nobody_better_than_chance
from multihorizon.questions.goal_comparison import GoalCheck, GoalComparison, compare_goals, policies_apart
from multihorizon.questions.goals import group_experts
from multihorizon.questions.model_checks import compared_choices, extent, misfits
from multihorizon.questions.shared_goal import SharedGoalTest

NO_CHOICE = "Choices that are no likelier than by chance say nothing of goals."


def checked_goals(fitted: Fitted, test: SharedGoalTest) -> GoalCheck:
    """Return the test of one reward; where it rejects, how widely the model fits if each expert has a reward of their own."""
    solution = fitted.solution
    deviations = LikelihoodEvidence.of(solution).deviations
    apart = None
    if test.rejected:
        apart = extent(misfits(compared_choices(solution.require_problem(), policies_apart(solution))))
    nothing = GoalComparison(solution.experts, test, deviations, np.zeros(0, dtype=np.int64), {})
    at_random = NO_CHOICE if nobody_better_than_chance(fitted) else ""
    return GoalCheck(test, apart=apart, comparison=nothing, withheld=at_random)


def find_goals(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add one goal, nearly one and several on held-out episodes."""
    goals = fitted.goals
    if goals is None or fitted.checks is None:
        return
    if goals.test.rejected or (goals.comparison is not None and goals.comparison.deviations is not None):
        several = _few(fitted, asked)
        comparison = compare_goals(fitted.solution, several=several, test=goals.test, seed=asked.seed, progress=progress)
        yield replace(fitted, goals=replace(goals, comparison=comparison))


def find_groups(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add who shares a goal with whom, where goals differ."""
    goals = fitted.goals
    if goals is not None and goals.rejected and _few(fitted, asked):
        temperature = asked.likelihood.temperature
        together = group_experts(fitted.solution, goals.test, temperature, seed=asked.seed, progress=progress)
        yield replace(fitted, goals=replace(goals, groups=together))


def _few(fitted: Fitted, asked: Asked) -> bool:
    """Return whether groups of goals are looked for: with more experts or rewards, that takes long."""
    few = fitted.problem.n_experts <= 12 and fitted.problem.n_parameters <= 60
    return few and not any(fitted.known) and asked.likelihood.known_reward is None


def shared_goal(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding | None:
    """Say whether they share a goal; nothing where there was nothing to test."""
    goals = fitted.goals
    return None if goals is None else replace(goals.verdict, content={"goals": goals.to_dict()})
