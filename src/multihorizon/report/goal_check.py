"""Do these people share a goal? What `fit` asks before its answer is believed.

The fit assumes one reward for all experts. Where there are few experts and rewards this is tested by simulation
(`likelihood/goals.py`), and where it is rejected the experts are grouped by the goals they share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from multihorizon.likelihood.goal_scores import Scores
from multihorizon.likelihood.goal_test import SharedGoalTest, shared_goal_test
from multihorizon.likelihood.goals import TEST_LEVEL, GoalEstimates, goals_of_decisions
from multihorizon.likelihood.known import Temperature
from multihorizon.problem import Problem
from multihorizon.progress import Progress, part_of, silent
from multihorizon.recovery.goals import DIFFER
from multihorizon.recovery.one_expert import in_order_of_content

#: The test is run by itself for up to this many experts and this many rewards; of more it takes long.
MOST_EXPERTS, MOST_REWARDS = 12, 60
#: Tables that are drawn at most.
SIMULATIONS = 39
QUESTION = "Do they share a goal?"


@dataclass(frozen=True, eq=False)
class GoalCheck:
    """The test that all experts share one reward, and their groups where it is rejected."""

    test: SharedGoalTest
    groups: GoalEstimates | None

    @property
    def rejected(self) -> bool:
        """Whether the decisions contradict one reward for all."""
        return self.groups is not None and self.groups.verdict == DIFFER

    @property
    def answer(self) -> str:
        """The answer in a sentence or two."""
        if np.isnan(self.test.p_value):
            return "It cannot be told: a fit that the test needs did not end."
        p = self.test.words
        if self.rejected:
            return f"No. One reward for all is rejected ({p}), so the estimates for all together must not be believed."
        if self.test.p_value <= TEST_LEVEL:
            return f"It cannot be told: one reward for all is rejected ({p}), but no experts can be told apart."
        return f"Nothing speaks against one reward for all ({p})."

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what is not known."""
        p_value = None if np.isnan(self.test.p_value) else self.test.p_value
        return {"p_value": p_value, "answer": self.answer, "found": None if self.groups is None else self.groups.to_dict()}


def check_goals(
    problem: Problem, temperature: Temperature, seed: int, progress: Progress = silent, jobs: int = 1
) -> GoalCheck | None:
    """The test, and the groups where it is rejected; None for one expert, and where it would take long."""
    if not 1 < problem.n_experts <= MOST_EXPERTS or problem.n_parameters > MOST_REWARDS:
        return None
    scores = Scores(in_order_of_content(problem), temperature)
    test = shared_goal_test(scores, SIMULATIONS, seed, part_of(progress, 0.0, 0.5), jobs)
    if not test.p_value <= TEST_LEVEL:
        return GoalCheck(test, None)
    return GoalCheck(test, goals_of_decisions(problem, temperature, SIMULATIONS, seed, part_of(progress, 0.5, 1.0), jobs))
