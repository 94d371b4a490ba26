"""Do these people share a goal? What `fit` asks before its answer is believed.

The fit assumes one reward for all experts. That is tested at every fit (`likelihood/goal_test.py`): the test costs less than the
fit. Where it rejects, and there are few experts and rewards, the experts are grouped by the goals they share.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from multihorizon.likelihood.goal_test import SharedGoalTest
from multihorizon.likelihood.goals import GoalEstimates, group_experts
from multihorizon.likelihood.known import Temperature
from multihorizon.progress import Progress
from multihorizon.recovery.goals import DIFFER
from multihorizon.solution import Solution

#: Experts are grouped by themselves where there are up to this many of them and of rewards; with more it takes long.
MOST_EXPERTS, MOST_REWARDS = 12, 60
QUESTION = "Do they share a goal?"


@dataclass(frozen=True, eq=False)
class GoalCheck:
    """The test that all experts share one reward, and their groups where it is rejected and they were looked for."""

    test: SharedGoalTest
    groups: GoalEstimates | None = None

    def with_groups(self, solution: Solution, temperature: Temperature, seed: int, progress: Progress) -> GoalCheck:
        """The same with the experts in groups, where one reward is rejected and there are few of them and of rewards."""
        problem = solution.require_problem()
        if not self.test.rejected or problem.n_experts > MOST_EXPERTS or problem.n_parameters > MOST_REWARDS:
            return self
        return replace(self, groups=group_experts(solution, self.test, temperature, seed, progress))

    @property
    def rejected(self) -> bool:
        """Whether the decisions contradict one reward for all, and no grouping of the experts speaks for one."""
        return self.test.rejected and (self.groups is None or self.groups.verdict == DIFFER)

    @property
    def answer(self) -> str:
        """The answer in a sentence or two."""
        if self.test.reason:
            return f"This was not tested: {self.test.reason}."
        p = self.test.words
        if not self.test.rejected:
            return f"Nothing speaks against one reward for all ({p})."
        if not self.rejected:
            return f"It cannot be told: one reward for all is rejected ({p}), but no experts can be told apart."
        who = "" if self.groups is not None else " Who shares one with whom was not looked for: ask multihorizon goals."
        return f"No. One reward for all is rejected ({p}), so the estimates for all together must not be believed.{who}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what is not known."""
        p_value = None if self.test.reason else self.test.p_value
        return {"p_value": p_value, "answer": self.answer, "found": None if self.groups is None else self.groups.to_dict()}
