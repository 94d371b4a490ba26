"""The reward is taken to depend on the state reached: that is said and tested, and nothing is said of groups where it fails."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.questions.sharing import state_reward_test

GAMMAS = (0.4, 0.6, 0.75)
REST, ROD, NET = range(3)
STOCKS = 11


def pond(payments: np.ndarray | None = None) -> tuple[mh.MDP, np.ndarray]:
    """Fish that grow by what is left of them; points `(S,A)` are fish taken, or what a stock that is reached pays `(S,)`."""
    moves, taken = np.zeros((3, STOCKS, STOCKS)), np.zeros((STOCKS, 3))
    for stock in range(STOCKS):
        for action, most in enumerate((0, 1, 4)):
            taken[stock, action] = min(stock, most)
            left = stock - min(stock, most)
            grows = 0.05 + 2.6 * (left / 10) * (1 - left / 10)
            for more, chance in enumerate(np.convolve(np.convolve([1 - grows, grows], [1 - grows, grows]), [1 - grows, grows])):
                moves[action, stock, min(left + more, STOCKS - 1)] += chance
    mdp = mh.MDP(moves, state_names=[f"stock {i}" for i in range(STOCKS)], action_names=["rest", "rod", "net"])
    return mdp, taken if payments is None else (moves @ payments).T


def decisions(mdp: mh.MDP, points: np.ndarray, seed: int, episodes: int = 40, gammas=GAMMAS) -> mh.Demonstrations:
    """What people with these points take."""
    names, policies = [f"p{i}" for i in range(len(gammas))], []
    for gamma in gammas:
        values = np.zeros(STOCKS)
        for _ in range(400):
            q = (points + gamma * (mdp.stacked @ values).reshape(3, STOCKS).T) / 0.5
            values = 0.5 * np.log(np.exp(q).sum(axis=1))
        shares = np.exp(q - q.max(axis=1, keepdims=True))
        policies.append(shares / shares.sum(axis=1, keepdims=True))
    return mh.Demonstrations.simulate(mdp, policies, episodes, max_steps=20, seed=seed, names=names)


PAYS = np.array([-1.0, 0.0, 0.5, 0.2, 1.0, 0.3, 1.2, 0.8, 2.0, 1.0, 1.5])


@pytest.fixture(scope="module")
def fished() -> tuple[mh.MDP, mh.Demonstrations]:
    """Six people with one goal whose points depend on the action."""
    mdp, points = pond()
    return mdp, decisions(mdp, points, 0, gammas=2 * GAMMAS)


def test_people_with_one_goal_are_not_told_apart_by_rewards_of_actions(fished, golden) -> None:
    mdp, table = fished
    found = mh.analyse([table], [mdp], quick=True, deviations=0.0)
    assert found.state_reward.clear
    assert found.goals.verdict.answer == "Inconclusive"
    assert not found.goals_differ
    assert found.shared is None
    golden(found.warnings[0], found.headline)


def test_features_by_action_are_the_remedy_and_assume_nothing(fished) -> None:
    mdp, table = fished
    points = pond()[1]
    found = mh.analyse([table], [mdp], lambda _: (points.T.reshape(-1, 1), ("fish",)), quick=True)
    assert found.state_reward is None
    assert not found.withheld
    assert np.abs(found.solution.discounts - np.array(2 * GAMMAS)).max() < 0.2


def test_what_is_assumed_is_said_and_not_rejected_where_it_holds(golden) -> None:
    mdp, points = pond(PAYS)
    found = mh.analyse([decisions(mdp, points, 1, gammas=(0.3, 0.6, 0.85))], [mdp], quick=True)
    assert not found.state_reward.clear
    assert not found.withheld
    said = found.verdicts[-1]
    assert said.question == "Does the reward depend on the state reached alone?"
    golden(said.reasons)


def test_where_rewards_of_states_can_stand_in_nothing_is_tested(golden) -> None:
    """Each decision leads to an end of its own, so what it costs may as well be paid there."""
    moves = np.zeros((2, 3, 3))
    moves[0, 0, 1] = moves[1, 0, 2] = 1.0
    mdp = mh.MDP(moves, terminal=[1, 2])
    table = mh.Demonstrations.simulate(mdp, [np.full((3, 2), 0.5), np.tile([0.7, 0.3], (3, 1))], 30, seed=0)
    test = state_reward_test(mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood()))
    assert np.isnan(test.p_value)
    golden(test.sentences())


@pytest.mark.slow
def test_groups_are_not_compared_where_the_reward_depends_on_the_action(golden) -> None:
    mdp, points = pond()
    logits = 1.0 + 0.7 * np.random.default_rng(1).normal(size=12)
    table = decisions(mdp, points, 5, 10, 1 / (1 + np.exp(-logits)))
    frame = pd.DataFrame({"expert": table.experts, "group": ["control", "training"] * 6})
    found = mh.analyse([table], [mdp], population=mh.Population("~ group", frame), deviations=0.0, quick=True)
    assert found.state_reward.clear
    assert found.population is None
    golden(found.headline)


@pytest.mark.slow
def test_goals_gives_no_groups_and_no_discounts_where_the_reward_depends_on_the_action(fished, tmp_path, golden) -> None:
    mdp, table = fished
    mdp.to_npz(tmp_path / "moves.npz")
    table.to_frame().to_csv(tmp_path / "log.csv", index=False)
    arguments = ["goals", str(tmp_path / "log.csv"), "--transitions", str(tmp_path / "moves.npz"), "--simulations", "19"]
    ran = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    golden(ran.stdout)
    content = json.loads((tmp_path / "out" / "goals.json").read_text(encoding="utf-8"))
    assert content["verdict"] == "cannot tell"
    assert content["groups"] == []
    assert content["discounts"] == [None] * 6
    assert "Discounts" not in (tmp_path / "out" / "goals.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_reward_by_action_counts_where_costs_of_actions_explain_only_a_part() -> None:
    """Costs of actions predict clearly better, but only a reward by action makes one goal of these seasons with some stock."""
    mdp, points = pond()
    moves, rng, rows = mdp.stacked.toarray().reshape(3, STOCKS, STOCKS), np.random.default_rng(5), []
    for who, gamma in enumerate(2 * GAMMAS):
        policy = mh.soft_plan(mdp, points, gamma, 0.5).policy
        for episode in range(40):
            state = int(rng.integers(3, STOCKS))
            for step in range(20):
                action = int(rng.choice(3, p=policy[state]))
                after = int(rng.choice(STOCKS, p=moves[action, state]))
                rows.append((f"p{who}", episode, step, f"stock {state}", mdp.action_names[action], f"stock {after}"))
                state = after
    table = pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"])
    found = mh.goals(mh.Problem(mdp, mh.Demonstrations.from_frame(table)), draws=19)
    assert found.withheld
    assert found.groups == ()
    assert found.state_reward.wider == "a reward for each state and action"


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_different_goals_are_not_put_down_to_actions_by_a_reward_of_as_many_parameters(seed) -> None:
    """One reward for each state and action mimics two goals: costs of actions must predict better, too."""
    mdp = mh.domains.random_mdp(6, 3, seed=seed)
    first, second = 2 * np.random.default_rng(seed).normal(size=(2, 6))
    policies = [mh.soft_plan(mdp, r, g).policy for r, g in ((first, 0.2), (second, 0.5), (first, 0.9))]
    table = mh.Demonstrations.simulate(mdp, policies, 20, max_steps=100, names=["ann", "ben", "cem"], seed=seed)
    found = mh.analyse([table], [mdp], quick=True)
    assert not found.state_reward.clear
    assert found.goals_differ
    assert mh.goals(mh.Problem(mdp, table), draws=19).groups == (("ann", "cem"), ("ben",))


def test_one_reward_by_action_explains_any_two_experts() -> None:
    """So a reward for each state and action cannot decide whether two experts share a goal (`questions.state_reward`)."""
    mdp = mh.domains.random_mdp(5, 3, seed=3)
    first, second = np.random.default_rng(3).normal(size=(2, 5))
    one, two = mh.soft_plan(mdp, first, 0.4), mh.soft_plan(mdp, second, 0.8)
    d = (first + 0.4 * one.values - second - 0.8 * two.values - 0.2 * one.values + 0.7 * two.values) / (0.2 - 0.7)
    rewards = []
    for plan, gamma in ((one, 0.2), (two, 0.7)):
        values = plan.values + d
        rewards.append(values[:, None] + np.log(plan.policy) - gamma * (mdp.stacked @ values).reshape(3, 5).T)
        np.testing.assert_allclose(mh.soft_plan(mdp, rewards[-1], gamma).policy, plan.policy, atol=1e-12)
    np.testing.assert_allclose(*rewards, atol=1e-12)


@pytest.mark.slow
def test_goals_says_what_it_assumes_of_the_reward(golden) -> None:
    mdp, points = pond(PAYS)
    found = mh.goals(mh.Problem(mdp, decisions(mdp, points, 1, gammas=(0.3, 0.6, 0.85))), draws=19)
    assert not found.withheld
    golden(found.sentences())


@pytest.mark.slow
def test_no_horizon_is_carried_over_where_the_reward_depends_on_the_action(golden) -> None:
    mdp, points = pond()
    gammas, frames = tuple(np.linspace(0.2, 0.8, 6)), []
    for seed, level in enumerate(("high", "low")):
        rows = decisions(mdp, points, seed, gammas=gammas).to_frame()
        frames.append(rows.assign(noise=level, episode=rows["episode"] + level))
    table = mh.Demonstrations.from_frame(pd.concat(frames), conditions=["noise"])
    found = mh.carry_over(mh.Problem(mdp, table), table, "noise")
    assert found.answer.answer == "No usable answer"
    golden(found.sentences())
    features = mh.Problem(mdp, table, features=points.T.reshape(-1, 1))
    assert mh.carry_over(features, table, "noise").state_reward is None


def test_the_command_line_says_what_is_assumed(tmp_path, golden) -> None:
    mdp, points = pond(PAYS)
    decisions(mdp, points, 1).to_frame().to_csv(tmp_path / "log.csv", index=False)
    ran = CliRunner().invoke(app, ["fit", str(tmp_path / "log.csv"), "--quick", "--out", str(tmp_path / "out")])
    assert ran.exit_code == 0, ran.output
    golden(ran.stdout)
    content = json.loads((tmp_path / "out" / "result.json").read_text(encoding="utf-8"))
    assert 0.05 < content["state_reward"]["p_value"] <= 1
    assert "Does the reward depend on the state reached alone?" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_one_expert_with_features_is_said_to_be_identified_by_form_alone(tmp_path, golden) -> None:
    mdp, points = pond()
    table = decisions(mdp, points, 3, 60, (0.7,))
    found = mh.analyse([table], [mdp], lambda _: (points.T.reshape(-1, 1), ("fish",)), quick=True)
    golden(*found.notes)
    policy = mh.solve(mh.Problem(mdp, table, features=points.T.reshape(-1, 1)), mh.MaximumLikelihood()).policies()
    exact = mh.identify(mh.Problem(mdp, policy, features=points.T.reshape(-1, 1)))
    assert ("form of the reward alone" in exact.sentences()) == (exact.status == "unique")
    exact.to_json(tmp_path / "identify.json")
    assert "caution" in json.loads((tmp_path / "identify.json").read_text(encoding="utf-8"))


def test_a_goal_that_is_not_rejected_has_a_bound_and_no_p_of_one(golden) -> None:
    mdp, points = pond(PAYS)
    found = mh.analyse([decisions(mdp, points, 1, gammas=(0.3, 0.6, 0.85))], [mdp], quick=True)
    golden(found.goals.verdict.reasons)


def test_pairs_are_refused_with_steps() -> None:
    steps = mh.Steps.from_frame(
        pd.DataFrame({"expert": "a", "episode": 0, "step": range(4), "x": [0.0, 1.0, 2.0, 3.0], "action": ["l", "r", "l", "r"]}),
        ["x"],
    )
    with pytest.raises(ValueError, match="pairs"):
        mh.analyse(steps, pairs=True)
