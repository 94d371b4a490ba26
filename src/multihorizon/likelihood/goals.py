"""Who shares a goal with whom, from policies or from decisions.

Policies are compared exactly (`recovery/goals.py`). Decisions are grouped by scores (`goal_groups.py`).

Whether all share one reward is tested by itself (`goal_test.py`). Goals differ only if the test rejects, and are shared only if
all are surely in one group. Else: cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import Any, cast

import numpy as np
import pandas as pd

from multihorizon.checks import Floats, as_count, label
from multihorizon.driver import solve
from multihorizon.files.saved import for_json
from multihorizon.likelihood.goal_groups import memberships, sharing, sure_groups, undecided, weigh_partitions
from multihorizon.likelihood.goal_scores import Scores
from multihorizon.likelihood.goal_test import SIMULATIONS, TEST_LEVEL, SharedGoalTest, shared_goal_test
from multihorizon.likelihood.known import Temperature, check_temperature
from multihorizon.likelihood.large import DENSE_REWARDS
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.problem import Problem
from multihorizon.progress import Progress, part_of, silent
from multihorizon.recovery.goals import CANNOT_TELL, DIFFER, SHARE, Goals, goals_frame
from multihorizon.recovery.goals import goals as goals_of_policies
from multihorizon.recovery.identify import Temperature as PolicyTemperature
from multihorizon.recovery.one_expert import in_order_of_content
from multihorizon.solution import Solution, Status

#: With fewer simulations the test can never reject.
LEAST_SIMULATIONS = 19


@dataclass(frozen=True, eq=False)
class GoalEstimates:
    """Experts in groups that share a reward, as far as their decisions tell.

    Attributes:
        experts: all names, in the order of the problem.
        groups: tuples of names; whoever does not surely belong to a group is a group of one.
        solutions: of `MaximumLikelihood`, one for each group, with its intervals and tests.
        test: the test that all share one reward.
        verdict: "share", "differ" or "cannot tell": do all share one reward?
        memberships: the probability `(K,G)` that each expert shares the goal of each group; for an expert who is a group of one,
            that nobody shares it.
        sharing: the probability `(K,K)` that two experts share a goal; on the diagonal that nobody shares the expert's goal.
        undecided: pairs of groups, by number, of which it cannot be told whether they share a reward.
    """

    experts: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    solutions: tuple[Solution, ...]
    test: SharedGoalTest
    verdict: str
    memberships: Floats
    sharing: Floats
    undecided: tuple[tuple[int, int], ...]

    @property
    def discounts(self) -> Floats:
        """The discount of each expert `(K,)`; NaN where it is not identified."""
        found = {name: gamma for solution in self.solutions for name, gamma in _told_discounts(solution).items()}
        return np.array([found[name] for name in self.experts])

    @property
    def ungrouped(self) -> tuple[str, ...]:
        """The experts of whom it cannot be told with whom they share a goal, if with anybody."""
        open_groups = {g for pair in self.undecided for g in pair}
        return tuple(group[0] for g, group in enumerate(self.groups) if len(group) == 1 and g in open_groups)

    def summary(self) -> str:
        """The finding in plain words."""
        lines = [self.headline()]
        for number, (group, solution) in enumerate(zip(self.groups, self.solutions, strict=True), start=1):
            lines.append(f"Goal {number}: {', '.join(group)}. {_describe(solution)}")
        if len(self.undecided) > 1 and len(self.undecided) == comb(len(self.groups), 2):
            return "\n".join([*lines, "Any of these goals may be the same."])
        lines += [f"It cannot be told whether goals {g + 1} and {h + 1} are the same." for g, h in self.undecided]
        return "\n".join(lines)

    def headline(self) -> str:
        """The verdict in a sentence."""
        if len(self.experts) == 1:
            return "One expert alone shares a goal with nobody, and their discount cannot be told."
        p = self.test.words
        if self.verdict == SHARE:
            return f"The decisions speak for one reward that all experts share (test of one reward: {p})."
        if self.verdict == DIFFER:
            return f"The experts do not all share one reward ({p}). The links between them make {len(self.groups)} groups."
        if np.isnan(self.test.p_value):
            return f"Whether the experts share one reward was not tested: {self.test.reason}."
        if len(self.groups) == 1:
            return f"One reward is likelier than several, but explains the decisions less well than it should ({p})."
        return f"Whether the experts share one reward cannot be told from these decisions ({p})."

    def to_frame(self) -> pd.DataFrame:
        """One row per expert: the number of the goal, from 1, and the discount, NaN where it is not identified."""
        return goals_frame(self.experts, self.groups, self.discounts)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, as JSON takes them; None where nothing is known."""
        content = {
            "experts": self.experts,
            "groups": self.groups,
            "verdict": self.verdict,
            "test": vars(self.test),
            "discounts": self.discounts,
            "memberships": self.memberships,
            "sharing": self.sharing,
            "undecided": self.undecided,
            "solutions": [_plain(solution) for solution in self.solutions],
        }
        return cast("dict[str, Any]", for_json(content))


def goals(
    problem: Problem,
    temperature: Temperature = 1.0,
    tolerance: float = 1e-8,
    progress: Progress = silent,
    simulations: int = SIMULATIONS,
    seed: int = 0,
    jobs: int = 1,
) -> Goals | GoalEstimates:
    """Group experts by the reward they share, where rewards and discounts may both differ.

    Args:
        problem: experts who are all given as policies without zero entries, or all as demonstrations; one task or several, with
            or without features.
        temperature: for policies a number or "per_expert", for demonstrations as in `MaximumLikelihood`. With "per_expert" and
            "pooled", experts share a goal if their rewards are the same up to a factor.
        tolerance: how large the errors in policies may be, as in `identify`; not used for demonstrations.
        progress: called as the work goes on.
        simulations: for demonstrations how many tables are drawn to test whether all share one reward.
        seed: fixes the simulations.
        jobs: processes that share the work of the test; -1 is all cores. The digits do not depend on it.

    Returns:
        For policies `Goals`, for demonstrations `GoalEstimates`.

    Raises:
        ValueError: on malformed options and experts, and where policies and demonstrations are mixed.

    Example:
        >>> import numpy as np
        >>> from multihorizon import Demonstrations, Problem, domains, soft_plan
        >>> mdp = domains.random_mdp(6, 3, seed=0)
        >>> first, second = 2 * np.random.default_rng(0).normal(size=(2, 6))
        >>> policies = [soft_plan(mdp, r, g).policy for r, g in ((first, 0.2), (second, 0.5), (first, 0.9))]
        >>> table = Demonstrations.simulate(mdp, policies, episodes=20, max_steps=100, names=["ann", "ben", "cem"])
        >>> goals(Problem(mdp, table)).groups
        (('ann', 'cem'), ('ben',))
    """
    if any(expert.counts is None for expert in problem.experts):
        return goals_of_policies(problem, cast(PolicyTemperature, temperature), tolerance, progress)
    return goals_of_decisions(problem, temperature, simulations, seed, progress, jobs)


def goals_of_decisions(
    problem: Problem,
    temperature: Temperature = 1.0,
    simulations: int = SIMULATIONS,
    seed: int = 0,
    progress: Progress = silent,
    jobs: int = 1,
) -> GoalEstimates:
    """Group experts, given as demonstrations, by the reward they share; arguments as in `goals`."""
    check_temperature(temperature)
    as_count(simulations, "simulations", least=LEAST_SIMULATIONS)
    if problem.n_parameters > DENSE_REWARDS:
        raise ValueError(
            f"goals can be told apart for at most {DENSE_REWARDS} rewards, received {problem.n_parameters}: "
            "tie the rewards of similar states together with features"
        )
    together = solve(problem, MaximumLikelihood(temperature), seed, part_of(progress, 0.0, 0.1))
    test = shared_goal_test(together, simulations, seed, part_of(progress, 0.1, 0.2), jobs)
    return group_experts(together, test, temperature, seed, part_of(progress, 0.2, 1.0))


def group_experts(
    together: Solution, test: SharedGoalTest, temperature: Temperature, seed: int, progress: Progress = silent
) -> GoalEstimates:
    """Group the experts of a fit with one reward, where the test that all share it is done."""
    problem = together.require_problem()
    scores = Scores(in_order_of_content(problem), temperature)
    shared = sharing(weigh_partitions(scores, part_of(progress, 0.0, 0.9)), problem.n_experts)
    names, order = scores.problem.names, problem.names
    listed = sorted(sure_groups(shared), key=lambda group: min(order.index(names[k]) for k in group))
    open_pairs = undecided(scores, shared, listed) if test.rejected else [(g, h) for h in range(len(listed)) for g in range(h)]
    named = [tuple(sorted((names[k] for k in group), key=order.index)) for group in listed]
    solutions = [together] if len(named) == 1 else [_solve_group(problem, group, temperature, seed) for group in named]
    progress(1.0, f"{len(named)} groups")
    place = [names.index(name) for name in order]
    return GoalEstimates(
        experts=order,
        groups=tuple(named),
        solutions=tuple(solutions),
        test=test,
        verdict=_verdict(len(named), open_pairs, test),
        memberships=memberships(shared, listed)[place],
        sharing=shared[np.ix_(place, place)],
        undecided=tuple(sorted(open_pairs)),
    )


def _verdict(n_groups: int, open_pairs: Sequence[tuple[int, int]], test: SharedGoalTest) -> str:
    if n_groups == 1:
        return SHARE if test.p_value > TEST_LEVEL else CANNOT_TELL
    return DIFFER if test.rejected and len(open_pairs) < comb(n_groups, 2) else CANNOT_TELL


def _solve_group(problem: Problem, group: Sequence[str], temperature: Temperature, seed: int) -> Solution:
    members = problem.with_experts(expert for expert in problem.experts if expert.name in group)
    if isinstance(temperature, Mapping):
        temperature = {key: value for key, value in temperature.items() if label(key, "the name of an expert") in group}
    return solve(members, MaximumLikelihood(temperature), seed)


def _told_discounts(solution: Solution) -> dict[str, float]:
    """Each member's discount, NaN where it is not identified or the fit did not converge."""
    told = zip(solution.experts, solution.discounts, solution.evidence["identified"], strict=True)
    finished = solution.status != Status.NOT_CONVERGED
    return {name: float(gamma) if known and finished else np.nan for name, gamma, known in told}


def _describe(solution: Solution) -> str:
    told = list(_told_discounts(solution).values())
    if solution.status == Status.NOT_CONVERGED:
        return "The fit of this group did not converge, so no discount is given."
    if len(told) == 1 and np.isnan(told[0]):
        return "Alone, so the discount cannot be told."
    listed = ", ".join("not identified" if np.isnan(gamma) else f"{gamma:.3f}" for gamma in told)
    return f"Discounts {listed}."


def _plain(solution: Solution) -> dict[str, Any]:
    return {
        "experts": list(solution.experts),
        "status": str(solution.status),
        "message": solution.message,
        "discounts": list(_told_discounts(solution).values()),
        "intervals": solution.confidence_intervals(),
        "reward": solution.reward,
        "temperatures": solution.temperature,
    }
