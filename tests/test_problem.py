import numpy as np
import pytest

import multihorizon as mh

DOMAIN = mh.domains.cliff()


def test_the_four_kinds_of_expert_data() -> None:
    demos = mh.Demonstrations.simulate(DOMAIN.mdp, DOMAIN.mce_experts()[:1], 5, names=["logged"])
    problem = mh.Problem(DOMAIN.mdp, [DOMAIN.mce_experts()[1], DOMAIN.lp_experts()[0], DOMAIN.lp_action_sets()[2], demos])
    assert [e.kind for e in problem.experts] == ["policy", "actions", "action sets", "demonstrations"]
    assert problem.names == ("0", "1", "2", "logged")
    assert problem.owner == (0, 1, 2, 3)
    with pytest.raises(ValueError, match=r"expert 0 must be given as one action .* received a stochastic policy"):
        problem.experts[0].require_sets()
    with pytest.raises(ValueError, match=r"expert logged must be given as a policy .* received demonstrations"):
        problem.experts[3].require_policy()
    assert problem.experts[3].counts.sum() == len(demos)


def test_a_deterministic_policy_is_also_a_choice_of_actions() -> None:
    actions = DOMAIN.lp_experts()[0]
    one_hot = np.eye(4)[actions]
    problem = mh.Problem(DOMAIN.mdp, [actions, one_hot])
    np.testing.assert_array_equal(problem.experts[0].require_sets(), problem.experts[1].require_sets())
    live = ~DOMAIN.mdp.terminal
    np.testing.assert_array_equal(problem.experts[0].require_policy()[live], problem.experts[1].require_policy()[live])


def test_what_a_terminal_state_says_is_ignored() -> None:
    policy = DOMAIN.mce_experts()[0]
    policy[DOMAIN.mdp.terminal] = 7.0
    assert mh.Problem(DOMAIN.mdp, [policy]).experts[0].require_policy()[0].tolist() == [0.25] * 4


def test_features_replace_the_states() -> None:
    features = np.random.default_rng(0).normal(size=(48, 2))
    problem = mh.Problem(DOMAIN.mdp, DOMAIN.mce_experts(), features=features, feature_names=["cost", "risk"])
    assert problem.parameter_names == ("cost", "risk")
    expected = problem.experts[0].expected_reward(np.array([1.0, -2.0]))
    assert expected[5, 3] == pytest.approx(features[3 * 12 + 5] @ [1.0, -2.0])
    assert (expected[DOMAIN.mdp.terminal] == 0).all()


def test_tabular_reward_is_paid_on_arrival() -> None:
    problem = mh.Problem(DOMAIN.mdp, DOMAIN.mce_experts())
    assert problem.tabular
    np.testing.assert_allclose(problem.experts[0].expected_reward(DOMAIN.reward), DOMAIN.mdp.expect(DOMAIN.reward))


def test_joining_tasks_shares_experts_and_states() -> None:
    toy = mh.domains.toy()
    other = mh.MDP(
        np.array([[[0.2, 0.8], [0, 0]]] * 3), terminal=[1], state_names=["s2", "elsewhere"], action_names=toy.mdp.action_names
    )
    first = mh.Problem(toy.mdp, toy.mce_experts(), names=["a", "b", "c"])
    second = mh.Problem(other, [np.full((2, 3), 1 / 3)], names=["b"])
    joined = mh.Problem.join(first, second)
    assert joined.names == ("a", "b", "c")
    assert joined.owner == (0, 1, 2, 1)
    assert joined.parameter_names == ("s0", "s1", "s2", "s3", "elsewhere")
    reward = np.array([0, 6, 7, 10, 3.0])
    np.testing.assert_allclose(joined.experts[3].expected_reward(reward)[0], 0.2 * 7 + 0.8 * 3)
    np.testing.assert_allclose(joined.experts[0].expected_reward(reward), toy.mdp.expect(reward[:4]))
    with pytest.raises(ValueError, match="one task"):
        _ = joined.mdp
