"""Do these people share a goal? What `fit` asks before its answer is believed.

The fit assumes one reward for all experts. That is tested at every fit (`likelihood/goal_test.py`): the test costs about as
much as the fit. Where it rejects, and there are few experts and rewards, the experts are grouped by the goals they share.

Experts who do not plan as the model says, or who act on something that it leaves out, look as if they had different goals. So
where one reward is rejected, the choices are compared with the model once more, each expert with a reward of their own. Only if
that fits are different goals the finding.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multihorizon.checks import Floats
from multihorizon.likelihood.goal_scores import best_fit
from multihorizon.likelihood.goal_test import SharedGoalTest
from multihorizon.likelihood.goals import GoalEstimates, group_experts
from multihorizon.likelihood.known import Temperature
from multihorizon.likelihood.likelihood import Likelihood
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.model_checks import Extent, extent, misfits
from multihorizon.likelihood.parameters import Settings
from multihorizon.progress import Progress
from multihorizon.recovery.goals import DIFFER
from multihorizon.solution import Solution

#: Experts are grouped by themselves where there are up to this many of them and of rewards; with more it takes long.
MOST_EXPERTS, MOST_REWARDS = 12, 60
QUESTION = "Do they share a goal?"


@dataclass(frozen=True, eq=False)
class GoalCheck:
    """The test that all experts share one reward, and their groups where it is rejected and they were looked for.

    `apart` says how widely the model fits if each expert has a reward of their own; None where that was not asked.
    """

    test: SharedGoalTest
    groups: GoalEstimates | None = None
    apart: Extent | None = None

    def with_groups(self, solution: Solution, temperature: Temperature, seed: int, progress: Progress) -> GoalCheck:
        """The same with the experts in groups, where one reward is rejected and there are few of them and of rewards."""
        problem = solution.require_problem()
        many = problem.n_experts > MOST_EXPERTS or problem.n_parameters > MOST_REWARDS
        if not self.test.rejected or self.model_fails or many:
            return self
        return replace(self, groups=group_experts(solution, self.test, temperature, seed, progress))

    def with_own_rewards(self, solution: Solution) -> GoalCheck:
        """The same with how widely the model fits if each expert has a reward of their own, where one for all is rejected."""
        if not self.test.rejected:
            return self
        return replace(self, apart=extent(misfits(solution.require_problem(), _own_policies(solution))))

    @property
    def model_fails(self) -> bool:
        """Whether the model does not fit even with a reward for each expert, so that goals need not be the cause."""
        return self.apart is not None and not self.apart.nearly_everywhere

    @property
    def rejected(self) -> bool:
        """Whether the experts have different goals: one reward for all is rejected, one for each fits, and no grouping speaks
        for one."""
        return self.test.rejected and not self.model_fails and (self.groups is None or self.groups.verdict == DIFFER)

    @property
    def answer(self) -> str:
        """The answer in a sentence or two."""
        if self.test.reason:
            return f"This was not tested: {self.test.reason}."
        p = self.test.words
        if not self.test.rejected:
            return f"Nothing speaks against one reward for all ({p})."
        if self.apart is not None and self.model_fails:
            return (
                f"It cannot be told. One reward for all is rejected ({p}), but with a reward for each expert the model does not "
                f"fit either: choices differ from it in {self.apart.odd:,} of {self.apart.compared:,} cases. So different goals "
                "need not be the cause."
            )
        if not self.rejected:
            return f"It cannot be told: one reward for all is rejected ({p}), but no experts can be told apart."
        who = "" if self.groups is not None else " Who shares one with whom was not looked for: ask multihorizon goals."
        return f"No. One reward for all is rejected ({p}), so the estimates for all together must not be believed.{who}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what is not known."""
        p_value = None if self.test.reason else self.test.p_value
        groups = None if self.groups is None else self.groups.to_dict()
        return {"p_value": p_value, "answer": self.answer, "found": groups}


def _own_policies(solution: Solution) -> list[Floats]:
    """The policy `(S,A)` of each of the problem's experts, each person fitted alone, with a weak penalty on rewards."""
    point = resume(solution)
    model, problem = point.likelihood, point.likelihood.problem
    alone = []
    for k in range(problem.n_experts):
        members = problem.with_experts(e for e, owner in zip(problem.experts, problem.owner, strict=True) if owner == k)
        temperature = model.temperatures(point.x)[[k]]
        ridge = (model.feature_sizes / (10 * temperature)) ** 2
        known = None if model.settings.discounts is None else model.settings.discounts[[k]]
        fit = best_fit(Likelihood(members, Settings(discounts=known, temperatures=temperature)).holding(None, ridge), -np.inf)
        alone.append(iter(fit.point.policies()))
    return [next(alone[k]) for k in problem.owner]
