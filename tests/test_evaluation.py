import numpy as np
import pytest
from hypothesis import given
from test_planning import problems

import multihorizon as mh
from multihorizon.planning.plan import causal_entropy, feature_counts


def some_policy(mdp: mh.MDP) -> np.ndarray:
    return np.random.default_rng(3).dirichlet(np.ones(mdp.n_actions), size=mdp.n_states)


@given(problems(most_terminal=0))
def test_occupancies_sum_to_the_horizon(problem) -> None:
    mdp, _, discount = problem
    found = mh.occupancy(mdp, some_policy(mdp), discount)
    assert found.counts.sum() == pytest.approx(1 / (1 - discount), rel=1e-9)
    assert found.residual < 1e-10


@given(problems())
def test_value_is_occupancy_times_reward_plus_entropy(problem) -> None:
    mdp, reward, discount = problem
    policy = some_policy(mdp)
    value = mdp.initial @ mh.evaluate(mdp, policy, reward, discount, temperature=0.5).values
    counted = feature_counts(mdp, policy, discount) @ reward + 0.5 * causal_entropy(mdp, policy, discount)
    assert value == pytest.approx(counted, rel=1e-8, abs=1e-8)


@given(problems())
def test_feature_counts_are_the_gradient_of_the_soft_value(problem) -> None:
    mdp, reward, discount = problem
    soft = mh.soft_plan(mdp, reward, discount)
    counts = feature_counts(mdp, soft.policy, discount)
    for state in range(mdp.n_states):
        step = np.zeros(mdp.n_states)
        step[state] = 1e-5
        up, down = (mdp.initial @ mh.soft_plan(mdp, reward + sign * step, discount).values for sign in (1, -1))
        assert (up - down) / 2e-5 == pytest.approx(counts[state], rel=1e-4, abs=1e-5)


def test_features_other_than_states() -> None:
    mdp = mh.domains.cliff().mdp
    features = np.ones((48, 1))
    policy = np.full((12, 4), 0.25)
    np.testing.assert_allclose(feature_counts(mdp, policy, 0.9, features), mh.occupancy(mdp, policy, 0.9).counts.sum())


def test_a_terminal_state_earns_nothing() -> None:
    mdp = mh.MDP([[[0, 1], [0, 0]], [[0, 1], [0, 0]]], terminal=[1])
    policy = np.full((2, 2), 0.5)
    assert mh.evaluate(mdp, policy, [0, 10], 0.9, temperature=1.0).values.tolist() == pytest.approx([10 + np.log(2), 0])
    assert mh.occupancy(mdp, policy, 0.9).states.tolist() == [1.0, 0.0]
    assert feature_counts(mdp, policy, 0.9).tolist() == [0.0, 1.0]
    assert causal_entropy(mdp, policy, 0.9) == pytest.approx(np.log(2))


def test_occupancy_at_discount_one_counts_visits() -> None:
    mdp = mh.MDP([[[0.75, 0.25], [0, 0]]], terminal=[1])
    assert mh.occupancy(mdp, [[1.0], [1.0]], 1.0).states[0] == pytest.approx(4)
