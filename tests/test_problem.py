from dataclasses import FrozenInstanceError

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


@pytest.mark.parametrize("experts", [1, 2, 3])
def test_joining_tasks_keeps_every_feature_in_its_place(experts) -> None:
    """However many experts share the matrix of features, in the joint problem and in the first ones."""
    domain = mh.domains.cliff()
    features = np.random.default_rng(0).normal(size=(domain.mdp.n_actions * domain.mdp.n_states, 2))
    problems = [mh.Problem(domain.mdp, domain.mce_experts()[:experts], features=features) for _ in range(2)]
    joint = mh.Problem.join(*problems)
    for expert in (*joint.experts, *problems[0].experts):
        np.testing.assert_array_equal(expert.feature_matrix.toarray(), features * domain.mdp.live.T.reshape(-1, 1))


def test_experts_of_another_problem_keep_their_mdp_and_features_or_are_refused() -> None:
    features = np.random.default_rng(0).normal(size=(48, 2))
    tied = mh.Problem(DOMAIN.mdp, DOMAIN.mce_experts(), features=features, feature_names=["cost", "risk"])
    with pytest.raises(ValueError, match="expert 0 was read with 2 features, received none for this problem"):
        mh.Problem(DOMAIN.mdp, tied.experts)
    with pytest.raises(ValueError, match="expert 0 must act in the problem's own MDP"):
        mh.Problem(mh.domains.cliff(slip=0.3).mdp, mh.Problem(DOMAIN.mdp, DOMAIN.mce_experts()).experts)
    fewer = tied.with_experts(tied.experts[1:])
    assert (fewer.names, fewer.parameter_names) == (("1", "2"), ("cost", "risk"))
    np.testing.assert_array_equal(fewer.experts[0].expected_reward(np.ones(2)), tied.experts[1].expected_reward(np.ones(2)))


def test_with_experts_keeps_who_is_whom_across_tasks() -> None:
    first = mh.Problem(DOMAIN.mdp, DOMAIN.mce_experts(), names=["a", "b", "c"])
    joined = mh.Problem.join(first, mh.Problem(mh.domains.cliff(slip=0.3).mdp, DOMAIN.mce_experts()[:1], names=["b"]))
    part = joined.with_experts(joined.experts[1:])
    assert (part.names, part.owner) == (("b", "c"), (0, 1, 0))
    with pytest.raises(ValueError, match="at least one expert"):
        joined.with_experts([])
    with pytest.raises(ValueError, match="expert 0 must have the problem's 12 reward parameters, received 18"):
        first.with_experts(mh.Problem(mh.domains.big_small().mdp, mh.domains.big_small().mce_experts()).experts)


def test_a_problem_and_its_experts_cannot_be_changed() -> None:
    given = DOMAIN.mce_experts()[0]
    problem = mh.Problem(DOMAIN.mdp, [mh.Expert("a", DOMAIN.mdp, "policy", policy=given)])
    expert = problem.experts[0]
    given[:] = 0.0
    assert expert.policy.sum() == pytest.approx(12)
    with pytest.raises(ValueError, match="read-only"):
        expert.policy[0] = 0.0
    with pytest.raises(FrozenInstanceError):
        problem.experts = ()
