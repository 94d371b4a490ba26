"""What is known is not estimated: points that people were told, discounts, temperatures, and discounts that groups share."""

from __future__ import annotations

import numpy as np
import pytest

import multihorizon as mh

TASK = mh.domains.space_adventure(mini_blocks=24)
PERSONS = TASK.persons(12, seed=2)
PROBLEM = mh.Problem(TASK.mdp, PERSONS.demonstrations)


@pytest.fixture(scope="module")
def told() -> mh.Solution:
    return mh.solve(PROBLEM, mh.MaximumLikelihood("per_expert", known_reward=TASK.reward))


def test_known_points_are_the_same_in_every_shape(told):
    rows = mh.solve(PROBLEM, mh.MaximumLikelihood("per_expert", known_reward=TASK.reward.T.ravel()))
    assert rows.objective == told.objective
    np.testing.assert_array_equal(rows.discounts, told.discounts)


def test_known_points_may_be_given_by_name(told, tmp_path):
    """As pairs of state and action, or of what states pay on arrival, in a solver and in an analysis; it is saved and read."""
    named = {
        (state, action): points
        for state, row in zip(TASK.mdp.state_names, TASK.reward.tolist(), strict=True)
        for action, points in zip(TASK.mdp.action_names, row, strict=True)
    }
    by_pair = mh.solve(PROBLEM, mh.MaximumLikelihood("per_expert", known_reward=named))
    np.testing.assert_array_equal(by_pair.discounts, told.discounts)
    by_pair.to_json(tmp_path / "known.json")
    loaded = mh.Solution.from_json(tmp_path / "known.json", PROBLEM)
    again = mh.solve(PROBLEM, loaded.solver_used(mh.MaximumLikelihood))
    np.testing.assert_array_equal(again.discounts, told.discounts)
    state = TASK.mdp.state_names[0]
    paid = [mh.predict(one, pay={state: 1.0}, draws=20).after for one in (told, by_pair)]
    np.testing.assert_array_equal(paid[1], paid[0])
    cliff = mh.domains.cliff()
    table = mh.Demonstrations.simulate(cliff.mdp, cliff.soft_experts(), 50)
    on_arrival = dict(zip(cliff.mdp.state_names, cliff.reward.tolist(), strict=True))
    named, numbers = (mh.analyse(table, cliff.mdp, known_reward=reward, quick=True) for reward in (on_arrival, cliff.reward))
    np.testing.assert_array_equal(named.solution.discounts, numbers.solution.discounts)


def test_known_points_are_one_feature_of_unknown_weight(told):
    """A weight w at temperature λ is the known points at temperature λ/w."""
    tied = mh.Problem(TASK.mdp, PERSONS.demonstrations, features=TASK.reward.T.reshape(-1, 1), feature_names=["points"])
    weighed = mh.solve(tied, mh.MaximumLikelihood("per_expert"))
    assert weighed.objective == pytest.approx(told.objective, abs=1e-6)
    assert weighed.discounts == pytest.approx(told.discounts, abs=1e-4)
    assert weighed.temperature / weighed.reward[0] == pytest.approx(told.temperature, rel=1e-3)
    assert weighed.confidence_intervals(0.95) == pytest.approx(told.confidence_intervals(0.95), abs=0.01)


def test_a_reward_known_for_decisions_is_not_told_as_numbers_of_states(told):
    assert told.reward.size == 0
    assert told.require_problem().parameter_names == ()


def test_a_reward_known_for_states_costs_no_derivatives_and_stays():
    d = mh.domains.big_small()
    problem = mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 300))
    solution = mh.solve(problem, mh.MaximumLikelihood("shared", known_reward=d.reward))
    np.testing.assert_array_equal(solution.reward, d.reward)
    assert solution.discounts == pytest.approx(d.soft_discounts, abs=0.1)
    assert solution.temperature == pytest.approx([1, 1, 1], abs=0.2)
    assert solution.evidence["ridge"] == 0


def test_known_discounts_and_temperatures_stay(told):
    discounts, temperatures = {"1": 0.5, "7": 0.9}, {"3": 4.0}
    solution = mh.solve(PROBLEM, mh.MaximumLikelihood(temperatures, discounts, known_reward=TASK.reward))
    assert solution.discounts[[0, 6]].tolist() == [0.5, 0.9]
    assert solution.temperature[2] == pytest.approx(4.0, rel=1e-12)
    assert solution.confidence_intervals(0.95)[[0, 6]].tolist() == [[0.5, 0.5], [0.9, 0.9]]
    free = [k for k in range(12) if k not in (0, 2, 6)]
    assert solution.discounts[free] == pytest.approx(told.discounts[free], abs=1e-4)


def test_groups_share_a_discount():
    groups = dict(zip(PERSONS.frame["expert"], PERSONS.frame["group"], strict=True))
    solution = mh.solve(PROBLEM, mh.MaximumLikelihood("per_expert", known_reward=TASK.reward, groups=groups))
    for group in ("control", "training"):
        members = PERSONS.frame["group"] == group
        assert np.ptp(solution.discounts[members]) == 0
        assert np.ptp(solution.confidence_intervals(0.95)[members], axis=0).max() == 0


def bus(bins: int = 30) -> tuple[mh.MDP, np.ndarray]:
    """Engines that wear by 0, 1 or 2 bins per month until they are replaced: transitions, and what replacing and wear cost."""
    transitions = np.zeros((2, bins, bins))
    for step, chance in enumerate((0.39, 0.6, 0.01)):
        np.add.at(transitions[0], (np.arange(bins), np.minimum(np.arange(bins) + step, bins - 1)), chance)
        transitions[1, :, step] += chance
    wear = np.concatenate([-0.1 * np.arange(bins), np.zeros(bins)])
    return mh.MDP(transitions, action_names=["keep", "replace"]), np.column_stack([np.repeat([0.0, -1.0], bins), wear])


def test_the_standard_exercise_of_econometrics_is_one_call():
    """Replacing engines at a known discount: costs are found at the true one, and the discount alone is hardly told."""
    mdp, features = bus()
    cost, wear = 6.0, 1.5
    reward = (features @ [cost, wear]).reshape(2, -1).T
    table = mh.Demonstrations.simulate(mdp, [mh.soft_plan(mdp, reward, 0.95).policy], 40, seed=1, max_steps=150)
    problem = mh.Problem(mdp, table, features=features, feature_names=["replacement", "wear"])
    fits = {g: mh.solve(problem, mh.MaximumLikelihood(discounts=g)) for g in (0.0, 0.95)}
    errors = np.array(fits[0.95].evidence["reward_standard_errors"])
    assert (np.abs(fits[0.95].reward - [cost, wear]) < 3 * errors).all()
    assert fits[0.0].reward[0] < fits[0.95].reward[0] - 1
    free = mh.solve(problem, mh.MaximumLikelihood())
    assert free.objective >= max(fit.objective for fit in fits.values()) - 1e-6
    low, high = free.confidence_intervals(0.95)[0]
    for gamma, fit in fits.items():
        assert (2 * (free.objective - fit.objective) <= 3.841) == (low <= gamma <= high)


@pytest.mark.slow
def test_known_discounts_are_not_tested():
    told = {"1": 0.5, "2": 0.5, "3": 0.9}
    solution = mh.solve(PROBLEM, mh.MaximumLikelihood("per_expert", told, known_reward=TASK.reward))
    assert np.isnan(mh.shared_discount_test(solution).p_value)
    pairs = {test.experts: test.degrees for test in mh.pairwise_tests(solution)}
    assert not {("1", "2"), ("1", "3"), ("2", "3")} & set(pairs)
    assert pairs["1", "4"] == 1


def test_a_known_discount_of_one_needs_a_task_that_ends():
    mdp, features = bus(5)
    table = mh.Demonstrations.simulate(mdp, [np.full((5, 2), 0.5)], 5, max_steps=10, names=["owner"])
    with pytest.raises(ValueError, match="discount of owner must be below 1, because the task may never end"):
        mh.solve(mh.Problem(mdp, table, features=features), mh.MaximumLikelihood(discounts=1.0))
    assert mh.solve(PROBLEM, mh.MaximumLikelihood("per_expert", 1.0, known_reward=TASK.reward)).discounts.tolist() == [1.0] * 12
