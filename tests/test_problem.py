from dataclasses import FrozenInstanceError, replace

import numpy as np
import pandas as pd
import pytest

import multihorizon as mh
from multihorizon.problem import tell_apart

DOMAIN = mh.domains.cliff()


def test_the_four_kinds_of_expert_data() -> None:
    demos = mh.Demonstrations.simulate(DOMAIN.mdp, DOMAIN.soft_experts()[:1], 5, names=["logged"])
    problem = mh.Problem(DOMAIN.mdp, [DOMAIN.soft_experts()[1], DOMAIN.hard_experts()[0], DOMAIN.hard_action_sets()[2], demos])
    assert [e.kind for e in problem.experts] == ["policy", "actions", "action sets", "demonstrations"]
    assert problem.names == ("0", "1", "2", "logged")
    assert problem.owner == (0, 1, 2, 3)
    with pytest.raises(ValueError, match=r"expert 0 must be given as one action .* got a stochastic policy"):
        problem.experts[0].require_sets()
    with pytest.raises(ValueError, match=r"expert logged must be given as a policy .* got demonstrations"):
        problem.experts[3].require_policy()
    assert problem.experts[3].counts.sum() == len(demos)


def test_a_deterministic_policy_is_also_a_choice_of_actions() -> None:
    actions = DOMAIN.hard_experts()[0]
    one_hot = np.eye(4)[actions]
    problem = mh.Problem(DOMAIN.mdp, [actions, one_hot])
    np.testing.assert_array_equal(problem.experts[0].require_sets(), problem.experts[1].require_sets())
    live = ~DOMAIN.mdp.terminal
    np.testing.assert_array_equal(problem.experts[0].require_policy()[live], problem.experts[1].require_policy()[live])


def test_what_a_terminal_state_says_is_ignored() -> None:
    policy = DOMAIN.soft_experts()[0]
    policy[DOMAIN.mdp.terminal] = 7.0
    assert mh.Problem(DOMAIN.mdp, [policy]).experts[0].require_policy()[0].tolist() == [0.25] * 4


def test_features_replace_the_states() -> None:
    features = np.random.default_rng(0).normal(size=(48, 2))
    problem = mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts(), features=features, feature_names=["cost", "risk"])
    assert problem.parameter_names == ("cost", "risk")
    expected = problem.experts[0].expected_reward(np.array([1.0, -2.0]))
    assert expected[5, 3] == pytest.approx(features[3 * 12 + 5] @ [1.0, -2.0])
    assert (expected[DOMAIN.mdp.terminal] == 0).all()


def test_tabular_reward_is_paid_on_arrival() -> None:
    problem = mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts())
    assert problem.tabular
    np.testing.assert_allclose(problem.experts[0].expected_reward(DOMAIN.reward), DOMAIN.mdp.expect(DOMAIN.reward))


def test_joining_tasks_shares_experts_and_states() -> None:
    toy = mh.domains.toy()
    other = mh.MDP(
        np.array([[[0.2, 0.8], [0, 0]]] * 3), terminal=[1], state_names=["s2", "elsewhere"], action_names=toy.mdp.action_names
    )
    first = mh.Problem(toy.mdp, toy.soft_experts(), names=["a", "b", "c"])
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
    problems = [mh.Problem(domain.mdp, domain.soft_experts()[:experts], features=features) for _ in range(2)]
    joint = mh.Problem.join(*problems)
    for expert in (*joint.experts, *problems[0].experts):
        np.testing.assert_array_equal(expert.feature_matrix.toarray(), features * domain.mdp.live.T.reshape(-1, 1))


def test_experts_of_another_problem_keep_their_mdp_and_features_or_are_refused() -> None:
    features = np.random.default_rng(0).normal(size=(48, 2))
    tied = mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts(), features=features, feature_names=["cost", "risk"])
    with pytest.raises(ValueError, match="expert 0 was read with 2 features, got none for this problem"):
        mh.Problem(DOMAIN.mdp, tied.experts)
    with pytest.raises(ValueError, match="expert 0 must act in the problem's own MDP"):
        mh.Problem(mh.domains.cliff(slip=0.3).mdp, mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts()).experts)
    fewer = tied.with_experts(tied.experts[1:])
    assert (fewer.names, fewer.parameter_names) == (("1", "2"), ("cost", "risk"))
    np.testing.assert_array_equal(fewer.experts[0].expected_reward(np.ones(2)), tied.experts[1].expected_reward(np.ones(2)))


def test_with_experts_keeps_who_is_whom_across_tasks() -> None:
    first = mh.Problem(DOMAIN.mdp, DOMAIN.soft_experts(), names=["a", "b", "c"])
    joined = mh.Problem.join(first, mh.Problem(mh.domains.cliff(slip=0.3).mdp, DOMAIN.soft_experts()[:1], names=["b"]))
    part = joined.with_experts(joined.experts[1:])
    assert (part.names, part.owner) == (("b", "c"), (0, 1, 0))
    with pytest.raises(ValueError, match="at least one expert"):
        joined.with_experts([])
    with pytest.raises(ValueError, match="expert 0 must have the problem's 12 reward parameters, got 18"):
        first.with_experts(mh.Problem(mh.domains.big_small().mdp, mh.domains.big_small().soft_experts()).experts)


def test_a_problem_and_its_experts_cannot_be_changed() -> None:
    given = DOMAIN.soft_experts()[0]
    problem = mh.Problem(DOMAIN.mdp, [mh.Expert("a", DOMAIN.mdp, "policy", policy=given)])
    expert = problem.experts[0]
    given[:] = 0.0
    assert expert.policy.sum() == pytest.approx(12)
    with pytest.raises(ValueError, match="read-only"):
        expert.policy[0] = 0.0
    with pytest.raises(FrozenInstanceError):
        problem.experts = ()


def noisy(episodes: int = 12) -> tuple[mh.Demonstrations, pd.DataFrame]:
    """A table of two experts, every second episode of which is noisy, and what is known of its episodes."""
    domain = mh.domains.cliff()
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts()[:2], episodes, names=["far", "near"])
    number = np.tile(np.arange(episodes), 2)
    frame = pd.DataFrame({"noise": np.where(number % 2, "high", "low"), "block": number // 4})
    return replace(table, conditions=frame), frame


def under(table: mh.Demonstrations, mdp: mh.MDP, episodes) -> np.ndarray:
    """The counts of some episodes, in columns a·S + s, for each expert."""
    return table.counts_of_episodes(mdp, np.asarray(episodes, dtype=float)).transpose(0, 2, 1).reshape(len(table.experts), -1)


def test_an_expert_keeps_what_was_decided_under_each_condition() -> None:
    mdp = mh.domains.cliff().mdp
    table, frame = noisy()
    problem = mh.Problem(mdp, table)
    for k, expert in enumerate(problem.experts):
        conditions = expert.conditions
        assert conditions.frame.to_dict("list") == {
            "noise": ["high"] * 3 + ["low"] * 3,
            "block": [0, 1, 2] * 2,
        }
        for row, (noise, block) in enumerate(conditions.frame.itertuples(index=False)):
            there = (frame["noise"] == noise) & (frame["block"] == block)
            assert np.array_equal(conditions.counts[[row]].toarray()[0], under(table, mdp, there)[k])
    kept = problem.with_experts(problem.experts[1:]).in_tasks(lambda mdp: mdp.with_probabilities(mdp.stacked.data))
    pd.testing.assert_frame_equal(kept.experts[0].conditions.frame, problem.experts[1].conditions.frame)
    with pytest.raises(ValueError, match="counts under the conditions of expert far must sum to the counts of the expert"):
        replace(problem.experts[0], counts=problem.experts[1].counts)


@pytest.mark.parametrize("given", ["a table", "experts"])
def test_cells_are_people_under_conditions(given) -> None:
    mdp = mh.domains.cliff().mdp
    table, frame = noisy()
    people = mh.Problem(mdp, table)
    people = people if given == "a table" else people.with_experts(people.experts)
    assert people.n_experts == 2
    assert people.cells.owner.tolist() == [0] * 6 + [1] * 6
    assert people.conditions.to_dict("list") == {"noise": (["high"] * 3 + ["low"] * 3) * 2, "block": [0, 1, 2] * 4}
    for row, (noise, block) in enumerate(people.conditions.itertuples(index=False)):
        there = (frame["noise"] == noise) & (frame["block"] == block)
        assert np.array_equal(people.tasks[0].counts[[row]].toarray()[0], under(table, mdp, there)[people.cells.owner[row]])
    plain = mh.Problem(mdp, replace(table, conditions=None))
    assert plain.cells.owner is None
    assert plain.by_person() is plain
    same(people.by_person(), plain)
    assert people.by_person().conditions is None
    swapped = people.some(np.array([1, 0]))
    assert swapped.names == ("near", "far")
    assert swapped.cells.owner.tolist() == people.cells.owner.tolist()
    assert np.array_equal(swapped.tasks[0].counts.toarray(), np.roll(people.tasks[0].counts.toarray(), 6, axis=0))
    second = np.array([1])
    assert np.array_equal(people.some(second).experts[0].counts, plain.some(second).experts[0].counts)
    cell = np.where(people.conditions["block"] == 2, -1, 2 * people.cells.owner + (people.conditions["noise"] == "low"))
    few = people.gathered(cell, 4, np.array([0, 0, 1, 1]), pd.DataFrame({"noise": ["high", "low"] * 2}))
    there = (frame["block"] < 2) & (frame["noise"] == "low")
    assert np.array_equal(few.tasks[0].counts[[1, 3]].toarray(), under(table, mdp, there))
    said = people.names, people.parameter_names, people.tasks
    with pytest.raises(ValueError, match="cells must be in the order of their people"):
        mh.Problem.of_tasks(*said, people.cells.owner[::-1], people.conditions)
    with pytest.raises(ValueError, match="must have both owners and conditions"):
        mh.Problem.of_tasks(*said, None, people.conditions)


def test_equal_conditions_of_one_person_in_two_tasks_are_one_cell() -> None:
    mdp = mh.domains.cliff().mdp
    table, frame = noisy()
    late = replace(table, conditions=frame[["noise"]].assign(noise=lambda f: f["noise"].replace("high", "none")))
    other = mdp.with_probabilities(mdp.stacked.data)
    parts = [(mdp, replace(table, conditions=frame[["noise"]])), (other, late)]
    joint = mh.Problem.join(*(mh.Problem(task, part) for task, part in parts))
    same(joint, joint.with_experts(joint.experts))
    assert joint.conditions["noise"].tolist() == ["high", "low", "none"] * 2
    assert joint.cells.owner.tolist() == [0, 0, 0, 1, 1, 1]
    assert (joint.tasks[0].counts.sum(axis=1) > 0).tolist() == [True, True, False] * 2
    assert (joint.tasks[1].counts.sum(axis=1) > 0).tolist() == [False, True, True] * 2
    without = mh.Problem.join(*(mh.Problem(task, part) for task, part in (parts[0], (other, replace(late, conditions=None)))))
    assert without.conditions["noise"].fillna("nothing").tolist() == ["nothing", "high", "low"] * 2
    with pytest.raises(ValueError, match="condition noise must be numbers in all tables, or text in all"):
        mh.Problem.join(*(mh.Problem(mdp, replace(table, conditions=frame[["noise"]].assign(noise=n))) for n in (1, "low")))


def same(people: mh.Problem, other: mh.Problem) -> None:
    """Check that two problems have the same counts."""
    assert people.names == other.names
    assert len(people.tasks) == len(other.tasks)
    for mine, yours in zip(people.tasks, other.tasks, strict=True):
        assert np.array_equal(mine.counts.toarray(), yours.counts.toarray())
    if people.conditions is not None:
        pd.testing.assert_frame_equal(people.conditions, other.conditions)
        assert np.array_equal(people.cells.owner, other.cells.owner)


def test_missing_conditions_are_one_more_combination_and_order_does_not_matter() -> None:
    mdp = mh.domains.cliff().mdp
    table, frame = noisy()
    frame = frame.assign(noise=frame["noise"].mask(frame["block"] == 1))
    people = mh.Problem(mdp, replace(table, conditions=frame))
    assert people.cells.owner.tolist() == [0] * 5 + [1] * 5
    rng = np.random.default_rng(0)
    places = rng.permutation(len(frame))
    cell, first = tell_apart(table.by_episode.expert[places], frame.iloc[places])
    back, _ = tell_apart(table.by_episode.expert, frame)
    assert np.array_equal(cell, back[places])
    assert np.array_equal(cell[first], np.arange(10))
