"""Does the reward depend on the state reached alone? The tests of `likelihood.state_reward` at a fit, and what follows where
goals seem to differ.

Experts who share a reward of actions look as if they had different goals, to a model that knows rewards of states alone. And
experts with different goals look as if actions had costs, to a model with one reward. So the tests are made at the fit with one
reward. Where a wider reward predicts clearly better there, and one reward of states is not rejected, it is fitted.

Where one reward of states is rejected, a reward for each state and action says little: one such reward explains any two experts
exactly. For if `u_k = r_k + γ_k V_k`, then with any two discounts γ'_1 ≠ γ'_2 and

    (γ'_1 − γ'_2) d = u_1 − u_2 − γ'_1 V_1 + γ'_2 V_2,      V'_k = V_k + d,      R = V'_k + λ log π_k − γ'_k T V'_k

is the same for both. So one cost for each action must predict clearly better, too. If it does, the wider reward is fitted, and
one reward is tested once more beside it:

* one wider reward for all is not rejected: it explains what looked like different goals;
* it is rejected, too, or costs of actions do not predict clearly better: goals differ, and these costs are tested anew beside
  each expert's deviations.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from multihorizon.choice.action_rewards import WiderReward, beyond, wider_rewards
from multihorizon.choice.deviations import NearPoint
from multihorizon.choice.model import DENSE_REWARDS
from multihorizon.choice.tabular import Point
from multihorizon.driver import solve
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood, resume
from multihorizon.likelihood.state_reward import StateRewardTest, tested_at
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.questions.shared_goal import SharedGoalTest, one_reward, shared_goal_test
from multihorizon.solution import Solution, Status


def state_reward_test(
    solution: Solution, goals: SharedGoalTest | None = None, *, seed: int = 0, jobs: int = 1, progress: Progress = silent
) -> StateRewardTest | None:
    """Test that the reward depends on the state reached alone.

    Args:
        solution: of `MaximumLikelihood`.
        goals: the test that all share one reward, where it was made.
        seed: scatters the starts of the fit with a wider reward.
        jobs: processes that share the work.
        progress: called as the work goes on.

    Returns:
        The test; None where nothing is assumed, because the reward was given or is made of features by state and action.
    """
    point = resume(solution)
    model = point.likelihood
    if model.settings.reward is not None or any(batch.arrival is None for batch in model.batches):
        return None
    if solution.status == Status.NOT_CONVERGED:
        return StateRewardTest.untested("the fit did not end")
    if model.is_large:
        return StateRewardTest.untested(f"that needs at most {DENSE_REWARDS} rewards, and there are {model.n_reward:,}")
    rivals = wider_rewards(
        [batch.mdp for batch in model.batches], [a for batch in model.batches if (a := batch.arrival) is not None]
    )
    if not rivals:
        return StateRewardTest.untested("there is one action alone")
    found = _tested(with_one_reward(point), rivals)
    progress(0.1, "rewards of actions")
    if not found.clear:
        return found
    differ = goals is not None and goals.rejected
    if differ:
        costs = rivals[:1]
        if not _tested(with_one_reward(point), costs).clear:
            return _tested(point, costs)
    if any(batch.mdp.durations is not None for batch in model.batches):
        return found
    wider = next(rival for rival in rivals if rival.name == found.wider)
    other = _fitted(point, solution, wider, seed, part_of(progress, 0.1, 0.7))
    if differ and other.status != Status.NOT_CONVERGED:
        again = shared_goal_test(other, seed=seed, jobs=jobs, progress=part_of(progress, 0.7, 1.0))
        if again.rejected:
            return _tested(point, costs)
    if other.status == Status.NOT_CONVERGED:
        return found
    return replace(found, gain=other.objective - with_one_reward(point).value)


def with_one_reward(point: Point) -> Point:
    """The fit in which all share the reward, beside one with deviations from it."""
    if not isinstance(point, NearPoint):
        return point
    start = one_reward(point.likelihood).at(point.x)
    assert start is not None
    return climb(start).point


def _tested(point: Point, rivals: list[WiderReward]) -> StateRewardTest:
    return StateRewardTest.of([(rival, tested_at(point, rival)) for rival in rivals])


def _fitted(point: Point, solution: Solution, wider: WiderReward, seed: int, progress: Progress) -> Solution:
    """The fit with the wider reward, where transitions stay as they were fitted."""
    tasks = {id(expert.mdp): expert for expert in point.problem.experts}
    mdps = {key: expert.mdp.as_known() for key, expert in tasks.items()}
    arrivals = [(mdps[key], arrival) for key, expert in tasks.items() if (arrival := expert.arrival_features) is not None]
    features = [(mdp.stacked @ arrival).toarray() for mdp, arrival in arrivals]
    more = beyond(features, [wider.columns(mdp, arrival) for mdp, arrival in arrivals])
    both = {key: sp.csr_array(np.concatenate(parts, axis=1)) for key, *parts in zip(tasks, features, more, strict=True)}
    experts = [replace(e, mdp=mdps[id(e.mdp)], features=both[id(e.mdp)], arrival=None, table=None) for e in point.problem.experts]
    names = [f"{wider.name} {number}" for number in range(1, more[0].shape[1] + 1)]
    problem = point.problem.with_experts(experts, (*point.problem.parameter_names, *names))
    options = {name: solution.options[name] for name in ("temperature", "discounts", "groups", "ridge", "starts")}
    return solve(problem, MaximumLikelihood(**options), seed=seed, progress=progress)
