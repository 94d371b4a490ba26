"""What if: the identity of bonus and ban, planning with an estimate, and what is said where something is not known."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import PAYS, three_steps, tiny_solutions

import multihorizon as mh
from multihorizon.estimate import interval_ends
from multihorizon.questions.whatif.change import read_change
from multihorizon.questions.whatif.predict import Outcomes, Prediction
from multihorizon.report.pages import changes_in_words, largest_changes, whatif_page, write_whatif
from multihorizon.words import percent


def drawn_task(seed: int) -> tuple[mh.MDP, np.ndarray, np.ndarray, np.random.Generator]:
    """A random task, a reward of its states, discounts of two experts, and what is random besides."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 9))
    mdp = mh.domains.random_mdp(n, int(rng.integers(2, 5)), n_terminal=int(rng.integers(0, 2)), seed=seed)
    return mdp, rng.normal(0, 2, n), rng.uniform(0, 0.97, 2), rng


def drawn_change(mdp: mh.MDP, rng: np.random.Generator) -> dict[str, Any]:
    """A bonus for states and decisions, and a ban of some actions that leaves one in every state."""
    pay = {name: float(rng.normal(0, 2)) for name in mdp.state_names if rng.random() < 0.4}
    live = np.argwhere(mdp.live)
    some = live[rng.integers(len(live))]
    both: dict[Any, float] = {**pay, (mdp.state_names[some[0]], mdp.action_names[some[1]]): 1.5}
    banned = (rng.random(mdp.live.shape) < 0.4) & mdp.live
    banned[np.arange(mdp.n_states), np.argmax(mdp.live, axis=1)] = False
    return {"pay": both, "forbid": banned}


def truth(mdp: mh.MDP, reward: np.ndarray, found: Prediction, discounts: Any, temperature: float = 1.0) -> np.ndarray:
    """The plans after a change with the reward that is true."""
    task = found.change.task
    expected = task.expected_reward(reward) + found.change.pay
    return np.array([mh.soft_plan(task, expected, float(g), temperature).policy for g in discounts])


@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(40, 200))])
def test_bonus_and_ban_follow_from_the_policies_alone(seed: int) -> None:
    mdp, reward, discounts, rng = drawn_task(seed)
    policies = [mh.soft_plan(mdp, reward, g).policy for g in discounts]
    found = mh.predict(mh.Problem(mdp, policies), discount={"0": discounts[0], "1": discounts[1]}, **drawn_change(mdp, rng))
    assert found.status == ("identified", "identified")
    assert np.abs(found.after - truth(mdp, reward, found, discounts)).max() < 1e-12
    assert np.abs(found.before - policies).max() < 1e-15
    alone = mh.predict(
        mh.Problem(mdp, policies[:1]), discount=float(discounts[0]), pay=found.change.pay, forbid=found.change.forbid
    )
    assert np.abs(alone.after[0] - found.after[0]).max() < 1e-12


def test_an_identification_that_is_a_set_holds_the_truth() -> None:
    d = mh.domains.toy()
    set_ = mh.identify(mh.Problem(d.mdp, d.soft_experts()))
    assert set_.status == "set"
    found = mh.predict(set_, pay={"s1": 2.0}, forbid=[("s2", "a0")])
    after = truth(d.mdp, d.reward, found, d.soft_discounts)
    assert found.status == ("bounded",) * 3
    assert not found.proved.any()
    # the range is tried at 41 discounts, and what is attained between two of them is hardly beyond
    assert (found.low - 1e-4 <= after).all()
    assert (after <= found.high + 1e-4).all()
    member = replace(set_, discounts=np.array(d.soft_discounts))
    assert np.abs(mh.predict(member, pay={"s1": 2.0}, forbid=[("s2", "a0")]).after - after).max() < 1e-12


@pytest.mark.parametrize("experts", [1, 2])
def test_a_set_that_reaches_a_discount_of_one_is_answered_where_nothing_ends(experts: int) -> None:
    rng = np.random.default_rng(3)
    moves = rng.dirichlet(np.ones(4), size=(2, 4))
    moves[:, :3] = moves[0, :3]
    mdp, after = mh.MDP(moves), mh.MDP(rng.dirichlet(np.ones(4), size=(2, 4)))
    reward, discounts = rng.normal(size=4), (0.9, 0.3)[:experts]
    set_ = mh.identify(mh.Problem(mdp, [mh.soft_plan(mdp, reward, g).policy for g in discounts]))
    assert set_.status == "set"
    assert (set_.intervals[:, 1] == 1).any()
    found = mh.predict(set_, pay={"0": 1.0})
    true = truth(mdp, reward, found, discounts)
    assert (found.low - 1e-3 <= true).all()
    assert (true <= found.high + 1e-3).all()
    assert len(mh.predict(set_, transitions=after).status) == experts
    at_one = replace(set_, discounts=np.ones(experts))
    assert (mh.predict(at_one, pay={"0": 1.0}).outcomes[["before", "after"]] < 1.1e4).all(axis=None)  # 1/(1 − .9999)


def test_outcomes_of_a_plan_that_never_ends_are_not_known_and_those_of_others_are() -> None:
    mdp = mh.MDP([[[0, 1, 0], [1, 0, 0], [0, 0, 0]], [[0, 0, 1], [0, 0, 1], [0, 0, 0]]], initial=[1, 0, 0], terminal=[2])
    policies = np.array([[[1.0, 0.0]] * 3, [[0.5, 0.5]] * 3])
    found = Outcomes(mdp, [2], False, False).of(policies, np.array([0.9, 0.9]), None, np.zeros((3, 2)))
    assert np.isnan(found[:, 0]).all()
    assert np.allclose(found[-2:, 1], [1.0, 2.0])


@cache
def chain_with_two_ends() -> mh.Solution:
    """A fit of few walks along 15 places with an end on either side: the rewards in between are hardly known."""
    moves = np.zeros((2, 15, 15))
    for here in range(1, 14):
        moves[0, here, here - 1] = moves[1, here, here + 1] = 1.0
    names = [f"place {i}" for i in range(15)]
    mdp = mh.MDP(moves, initial=np.arange(15) == 7, terminal=[0, 14], state_names=names, action_names=["left", "right"])
    reward = np.full(15, -0.05)
    reward[[0, 14]] = 1.0, 3.0
    policies = [mh.soft_plan(mdp, reward, gamma, temperature=0.5).policy for gamma in (0.6, 0.8, 0.95)]
    table = mh.Demonstrations.simulate(mdp, policies, episodes=20, seed=1)
    return mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood())


@pytest.mark.parametrize(
    "change",
    [{"forbid": {"place 5": ["left"], "place 7": ["left"], "place 9": ["left"]}}, {"pay": {"place 3": 1.0}}],
    ids=["ban", "bonus"],
)
def test_draws_whose_episodes_never_end_bound_nothing_and_do_not_end_the_run(change: Any, tmp_path: Any, golden) -> None:
    found = mh.predict(chain_with_two_ends(), **change)
    golden(*found.remarks)
    visits = found.outcomes[found.outcomes["quantity"] == "visits"]
    assert (visits["status"] == "identified").any()
    assert (visits["status"] == "not bounded").any()
    assert visits.loc[visits["status"] == "not bounded", ["low", "high"]].isna().all(axis=None)
    # what people choose, and what is discounted, is known all the same
    assert np.isfinite(found.low[:, 1:14]).all()
    assert np.isfinite(found.outcomes[found.outcomes["quantity"] == "discounted reward"][["low", "high"]].to_numpy()).all()
    write_whatif(tmp_path, found, {})
    assert "inf" not in re.findall(r"<td[^>]*>([^<]*)</td>", (tmp_path / "whatif.html").read_text())


def test_an_interval_covers_draws_without_a_value() -> None:
    drawn = np.arange(1.0, 200.0)
    whole = interval_ends(np.append(drawn, 200.0), 0.95, 0, (0.0, np.inf))
    assert np.allclose(whole, np.quantile(np.append(drawn, 200.0), [0.025, 0.975], method="weibull"))
    few, many = (interval_ends(np.r_[drawn[n:], np.full(n + 1, np.nan)], 0.95, 0, (0.0, np.inf)) for n in (1, 20))
    assert 0 < few[0] < whole[0] + 1
    assert whole[1] < few[1] < np.inf
    assert many == (0.0, np.inf)


def test_a_ban_is_the_limit_of_a_fine() -> None:
    d = mh.domains.cliff()
    problem = mh.Problem(d.mdp, d.soft_experts())
    banned = mh.predict(problem, forbid={"8": "up"})
    fined = mh.predict(problem, pay={("8", "up"): -200.0})
    assert np.abs(banned.after - fined.after).max() < 1e-12
    assert (banned.after[:, 8, d.mdp.action_names.index("up")] == 0).all()


def test_where_nothing_changes_nothing_changes() -> None:
    d = mh.domains.cliff()
    problem = mh.Problem(d.mdp, d.soft_experts())
    for source in (problem, mh.identify(problem), mh.solve(problem, mh.ClosedForm()), tiny_solutions()["lists"].solution):
        found = mh.predict(source)
        assert np.abs(found.after - found.before).max() < 1e-12
        outcomes = found.outcomes
        assert np.allclose(outcomes["before"], outcomes["after"], rtol=0, atol=1e-9)
    same = mh.predict(tiny_solutions()["lists"].solution, transitions=three_steps())
    assert np.abs(same.after - same.before).max() < 1e-12


def test_a_solution_and_the_identity_agree() -> None:
    d = mh.domains.cliff()
    problem = mh.Problem(d.mdp, d.soft_experts())
    change = {"pay": {"11": 2.0, ("8", "up"): -1.0}, "forbid": {"5": ["left"]}}
    planned, reweighted = mh.predict(mh.solve(problem, mh.ClosedForm()), **change), mh.predict(problem, **change)
    assert np.abs(planned.after - reweighted.after).max() < 1e-9
    keys = ["expert", "quantity", "state"]
    both = planned.outcomes.merge(reweighted.outcomes, on=keys, suffixes=("", "_other"))
    assert len(both) == len(reweighted.outcomes)
    assert np.allclose(both["after"], both["after_other"], rtol=0, atol=1e-8)


def test_the_answer_does_not_depend_on_order_and_names() -> None:
    mdp, reward, discounts, rng = drawn_task(5)
    order, moved = rng.permutation(mdp.n_states), rng.permutation(mdp.n_actions)
    other = mh.MDP(
        mdp.to_array()[moved][:, order][:, :, order],
        initial=mdp.initial[order],
        terminal=mdp.terminal[order],
        available=mdp.available[order][:, moved],
        state_names=[f"place {mdp.state_names[i]}" for i in order],
        action_names=[mdp.action_names[i] for i in moved],
    )
    policies = [mh.soft_plan(mdp, reward, g).policy for g in discounts]
    first = mh.predict(
        mh.Problem(mdp, policies, names=["a", "b"]), discount={"a": discounts[0], "b": discounts[1]}, pay={"1": 2.0}
    )
    turned = [policy[order][:, moved] for policy in policies[::-1]]
    second = mh.predict(
        mh.Problem(other, turned, names=["b", "a"]), discount={"a": discounts[0], "b": discounts[1]}, pay={"place 1": 2.0}
    )
    assert np.abs(second.after[::-1] - first.after[:, order][:, :, moved]).max() < 1e-12


def test_intervals_do_not_depend_on_the_order_of_experts() -> None:
    d = mh.domains.big_small()
    problem = mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 200, seed=0))
    found = []
    for experts in (problem.experts, problem.experts[::-1]):
        solution = mh.solve(problem.with_experts(experts), mh.MaximumLikelihood(1.0, starts=1))
        found.append(mh.predict(solution, pay={d.mdp.state_names[-1]: 2.0}, draws=40))
    assert np.abs(found[1].low[::-1] - found[0].low).max() < 1e-4
    assert np.abs(found[1].high[::-1] - found[0].high).max() < 1e-4


def test_other_transitions_are_planned_with_the_reward_by_the_names_of_states() -> None:
    mdp, solution = three_steps(), tiny_solutions()["lists"].solution
    order = np.random.default_rng(0).permutation(8)
    new = 0.7 * mdp.to_array() + 0.3 * mdp.to_array()[::-1]
    shuffled = mh.MDP(
        new[:, order][:, :, order], initial=mdp.initial[order], terminal=mdp.terminal[order], state_names=[str(i) for i in order]
    )
    plain = mh.MDP(new, initial=mdp.initial, terminal=mdp.terminal)
    first, second = mh.predict(solution, transitions=plain), mh.predict(solution, transitions=shuffled)
    assert np.abs(first.after[:, order] - second.after).max() < 1e-12
    reward = PAYS * solution.reward[0]
    assert np.abs(first.after - truth(plain, reward, first, solution.discounts)).max() < 1e-12
    patient = mh.predict(solution, discount={"0": 0.95})
    assert np.abs(patient.after[0] - truth(mdp, reward, patient, [0.95])[0]).max() < 1e-12
    assert np.abs(patient.after[1:] - patient.before[1:]).max() < 1e-12


def test_a_larger_task_needs_its_features() -> None:
    solution, small = tiny_solutions()["lists"].solution, three_steps()
    moves = np.zeros((2, 9, 9))
    moves[:, :8, :8] = small.to_array()
    moves[:, 8, 6] = 1.0
    larger = mh.MDP(moves, initial=np.eye(9)[8], terminal=[0, 1])
    renamed = mh.MDP(moves, initial=np.eye(9)[8], terminal=[0, 1], state_names=["0", "1", "2", "lake", "4", "5", "6", "7", "8"])
    with pytest.raises(ValueError, match="got the new state lake: give features="):
        mh.predict(solution, transitions=renamed)
    found = mh.predict(solution, transitions=larger, features=np.append(PAYS, 3.0)[:, None])
    assert found.after.shape == (3, 9, 2)
    assert np.abs(found.after[:, :8] - found.before).max() < 1e-12
    assert found.to_frame()["before"].isna().sum() == 3 * 2
    elsewhere = mh.MDP(moves, initial=np.eye(9)[8], terminal=[0, 1], state_names=[f"new {i}" for i in range(9)])
    found = mh.predict(solution, transitions=elsewhere, features=np.append(PAYS, 3.0)[:, None])
    assert "nothing changes" not in found.sentences()


def test_what_is_never_done_stays_undone() -> None:
    mdp = three_steps()
    policy = mh.soft_plan(mdp, PAYS, 0.5).policy.copy()
    policy[4] = [0.0, 1.0]
    found = mh.predict(mh.Problem(mdp, [policy]), discount=0.5, pay={("4", "0"): 50.0})
    assert found.after[0, 4].tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="what is left in state 4 an expert has never been seen to do"):
        mh.predict(mh.Problem(mdp, [policy]), discount=0.5, forbid={"4": "1"})


def test_intervals_shrink_with_data_and_hold_the_truth() -> None:
    d = mh.domains.big_small()
    experts, widths = d.soft_experts(), []
    for episodes in (200, 3200):
        table = mh.Demonstrations.simulate(d.mdp, experts, episodes, seed=3)
        solution = mh.solve(mh.Problem(d.mdp, table), mh.MaximumLikelihood(1.0, starts=2))
        found = mh.predict(solution, pay={d.mdp.state_names[-1]: 2.0}, draws=100)
        live = found.change.mdp.live
        widths.append(np.nanmean((found.high - found.low)[:, live]))
        after = truth(d.mdp, d.reward, found, d.soft_discounts)
        assert ((found.low <= after) & (after <= found.high))[:, live].mean() > 0.85
        assert (found.low[:, live] <= found.after[:, live] + 1e-9).mean() > 0.99
    assert 3 < widths[0] / widths[1] < 5.5


def test_what_the_decisions_do_not_show_is_not_bounded() -> None:
    """One expert with a known discount, who does not show a constant of all rewards and 1/(1−γ) times as much at the end.

    It does not matter after a bonus, nor in another task with the same end. Without an end it does.
    """
    mdp = mh.domains.random_mdp(5, 2, n_terminal=1, seed=4)
    reward = np.random.default_rng(0).normal(0, 1, 5)
    table = mh.Demonstrations.simulate(mdp, [mh.soft_plan(mdp, reward, 0.6).policy], 1000, seed=0)
    solution = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood(1.0, discounts=0.6, starts=2))
    bonus = mh.predict(solution, pay={"2": 1.0})
    assert solution.evidence["unidentified_directions"] > 0
    assert bonus.status == ("identified",)
    assert np.isfinite(bonus.low[:, mdp.live]).all()
    same_end = mh.predict(solution, transitions=mh.domains.random_mdp(5, 2, n_terminal=1, seed=9))
    assert same_end.status == ("identified",)
    moved = mh.predict(solution, transitions=mh.domains.random_mdp(5, 2, seed=9))
    assert moved.status == ("not bounded",)
    assert np.isnan(moved.low).any()
    rows = moved.outcomes.set_index("quantity")
    assert set(rows.loc["visits", "status"]) == {"not bounded"}


def test_outcomes_are_those_of_simulated_episodes() -> None:
    mdp = mh.domains.random_mdp(6, 2, n_terminal=2, seed=7)
    policy = mh.soft_plan(mdp, np.arange(6.0), 0.7).policy
    expected = mdp.expected_reward(np.arange(6.0)).T.ravel()
    found = Outcomes(mdp, [2], True, False)
    numbers = dict(zip(found.labels, found.of(policy[None], np.array([0.7]), expected, np.zeros((6, 2)))[:, 0], strict=True))
    rng, runs = np.random.default_rng(0), 20_000
    visits, hits, steps, plain, discounted = np.zeros(6), 0, 0, 0.0, 0.0
    moves = mdp.under(policy).toarray().cumsum(axis=1)
    for _ in range(runs):
        state, step, reached = int(rng.choice(6, p=mdp.initial)), 0, False
        while True:
            visits[state] += 1
            if state == 2 and not reached:
                reached, hits, steps = True, hits + 1, steps + step
            if mdp.terminal[state]:
                break
            state = int(np.searchsorted(moves[state], rng.random() * moves[state, -1]))
            plain, discounted, step = plain + state, discounted + 0.7**step * state, step + 1
    for state, count in enumerate(visits / runs):
        assert numbers.get(("visits", str(state)), 0.0) == pytest.approx(count, abs=0.05)
    assert numbers["chance to reach", "2"] == pytest.approx(hits / runs, abs=0.02)
    assert numbers["steps to reach", "2"] == pytest.approx(steps / hits, rel=0.05)
    assert numbers["reward", ""] == pytest.approx(plain / runs, rel=0.03)
    assert numbers["discounted reward", ""] == pytest.approx(discounted / runs, rel=0.03)


@pytest.mark.parametrize("n_terminal", [0, 1])
def test_outcomes_over_rounds_are_those_of_simulated_decisions(n_terminal: int) -> None:
    """Visits, mean state, mean reward and bonus, and whether and when a state is reached, in the first seven decisions."""
    mdp = mh.domains.random_mdp(6, 3, n_terminal=n_terminal, seed=4)
    reward = np.arange(6.0)
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, reward, 0.6).policy] * 2)
    solution = mh.solve(
        mh.Problem(mdp, mh.Demonstrations.simulate(mdp, [one.policy for one in problem.experts], 200)),
        mh.MaximumLikelihood(known_reward=reward),
    )
    found = mh.predict(solution, pay={"3": 1.5}, rounds=7, draws=20)
    rows = found.outcomes[found.outcomes["expert"] == "0"].set_index(["quantity", "state"])["after"]
    walks = mh.Demonstrations.simulate(mdp, [found.after[0]], 20_000, max_steps=7, seed=1).to_frame()
    here, there = walks["state"].astype(int), walks["next_state"].astype(int)
    assert rows["mean state", ""] == pytest.approx(here.mean(), abs=0.03)
    assert rows["mean bonus", ""] == pytest.approx(1.5 * (there == 3).mean(), abs=0.02)
    assert rows["mean reward", ""] == pytest.approx(reward[there].mean() + 1.5 * (there == 3).mean(), abs=0.05)
    for state in np.flatnonzero(~mdp.terminal):
        assert rows["visits", str(state)] == pytest.approx((here == state).sum() / 20_000, abs=0.03)
    walks["moves"] = np.where(there == 3, walks["step"] + 1.0, np.nan)
    walks.loc[(here == 3) & (walks["step"] == 0), "moves"] = 0.0
    first = walks.groupby("episode")["moves"].min()
    assert rows["chance to reach", "3"] == pytest.approx(first.notna().mean(), abs=0.02)
    assert rows["steps to reach", "3"] == pytest.approx(first.mean(), abs=0.05)
    assert found.remarks[-1].startswith("Outcomes are those of the first 7 decisions")


def test_a_mean_state_needs_states_that_are_numbers() -> None:
    problem = mh.Problem(mh.domains.meadow().mdp, mh.domains.meadow().soft_experts())
    quantities = set(mh.predict(problem, rounds=5).outcomes["quantity"])
    assert "mean state" not in quantities
    assert "visits" in quantities
    with pytest.raises(ValueError, match="rounds must be a whole number"):
        mh.predict(problem, rounds=0)


def test_tasks_that_never_end_have_discounted_outcomes() -> None:
    mdp = mh.domains.random_mdp(5, 2, seed=0)
    policies = [mh.soft_plan(mdp, np.arange(5.0), g).policy for g in (0.3, 0.8)]
    found = mh.predict(mh.Problem(mdp, policies), discount={"0": 0.3, "1": 0.8}, pay={"3": 1.0}, states=["3"])
    visits = found.outcomes[found.outcomes["quantity"] == "visits"].groupby("expert", sort=False)["after"].sum()
    assert np.allclose(visits, [1 / 0.7, 1 / 0.2])
    assert set(found.outcomes["quantity"]) == {"visits", "chance to reach", "steps to reach", "discounted bonus"}
    assert np.allclose(found.outcomes.query("quantity == 'chance to reach'")["after"], 1.0)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "unknown state": ({"pay": {"nowhere": 1.0}}, "pay must name states among"),
    "unknown action": ({"forbid": {"4": "fly"}}, "forbid must name actions among"),
    "no action left": ({"forbid": {"4": ["0", "1"]}}, "forbid must leave an action in every state, got none in state 4"),
    "NaN": ({"pay": {"4": np.nan}}, "must be finite"),
    "shape": ({"pay": np.zeros(3)}, "pay must be a mapping"),
    "other states": ({"transitions": mh.domains.random_mdp(9, 2, seed=0)}, "got the new state 8"),
    "other actions": ({"transitions": mh.domains.random_mdp(8, 3, seed=0)}, "transitions must have the actions"),
    "no MDP": ({"transitions": np.zeros((2, 8, 8))}, "transitions must be an MDP"),
    "discount": ({"discount": 1.5}, "discount must be in"),
    "whose discount": ({"discount": {"nobody": 0.5}}, "discount must name experts"),
    "terminal start": ({"initial": {"0": 1.0}}, "must not start in a terminal state"),
    "paid where nothing is chosen": ({"pay": {("0", "0"): 1.0}}, "pay must be for actions that can be taken"),
    "a ban where nothing is chosen": ({"forbid": {"0": "0"}}, "forbid must be for actions that can be taken"),
    "level": ({"level": 2}, "level must be between"),
    "states": ({"states": ["nowhere"]}, "states must name states"),
    "restrictions": ({"restrictions": {"lower": 0}}, "restrictions are for"),
    "groups": ({"persons": "groups"}, "groups are those of a Population"),
    "features alone": ({"features": np.zeros((8, 1))}, "features must come with transitions"),
    "columns": ({"pay": pd.DataFrame({"state": ["4"]})}, "got a table without amount"),
    "pairs": ({"forbid": ["40"]}, "forbid must list pairs"),
}


def test_what_changes_nothing_is_said(golden) -> None:
    source = tiny_solutions()["lists"].solution
    found = mh.predict(source, pay={("4", "0"): 1.0}, forbid={"4": "0"})
    golden(*found.remarks)
    assert changes_in_words(mh.predict(source, pay={"4": 0.0})) == ["Nothing changes."]
    assert changes_in_words(mh.predict(source, initial={"4": 1.0})) == ["Episodes begin elsewhere."]


def test_the_first_sentence_is_the_answer() -> None:
    """How often the state is reached before and after, each expert with the interval; the widest without an estimate."""
    cliff = mh.domains.cliff()
    problem = mh.Problem(cliff.mdp, cliff.soft_experts(), names=["near", "middle", "far"])
    found = mh.predict(problem, pay={"4": 4.0})
    rows = found.outcomes[found.outcomes["quantity"] == "chance to reach"]
    said = found.headline()
    assert said == found.sentences().splitlines()[0]
    assert said.startswith(f"near reaches 4 in {percent(rows['after'].iloc[0])} of episodes instead of ")
    assert said.count(";") == 2
    row = rows.index[0]
    wide = found.outcomes.assign(low=found.outcomes["low"].astype(float), high=found.outcomes["high"].astype(float))
    wide.loc[row, ["low", "high"]] = 0.1, 0.9
    assert "in 10% to 90% of episodes instead of" in replace(found, outcomes=wide).headline()
    wide.loc[row, ["status"]] = "not bounded"
    assert "in an unknown share; middle in" in replace(found, outcomes=wide).headline()
    assert replace(found, status=("not bounded",) * 3).headline() == "These data do not say what happens after the change."
    assert mh.predict(problem, pay={"4": 0.0}).headline() == "No choice changes."
    groups = mh.predict(tiny_solutions()["population"].solution, pay={"1": 1.0}, persons="groups").headline()
    assert "new person" not in groups


def test_of_two_actions_one_row_says_what_changes() -> None:
    mdp = mh.domains.random_mdp(6, 2, n_terminal=1, seed=3)
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, np.linspace(-1, 1, 6), 0.5).policy], names=["Ann"])
    found = mh.predict(problem, pay={"2": 3.0}, discount={"Ann": 0.5})
    rows = largest_changes(found).frame
    assert len(rows) == rows["state"].nunique() > 1
    assert (rows["change"] > 0).all()


def test_a_task_without_a_grid_is_shown_as_states_and_actions() -> None:
    """A large graph cannot be read: then actions before and after stand in tables of colours, states in natural order."""
    mdp = mh.domains.random_mdp(24, 3, n_terminal=1, seed=3)
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, np.linspace(-1, 1, 24), g).policy for g in (0.3, 0.8)], names=["near", "far"])
    found = mh.predict(problem, pay={"5": 3.0, "12": 3.0}, discount={"near": 0.3, "far": 0.8})
    page = whatif_page(found, {})
    before, after = page.sections[0].blocks[1].blocks
    assert before.columns == list(mdp.action_names)
    assert list(before.rows) == sorted(before.rows, key=int) == list(after.rows)
    assert len(before.cells) == 3 * len(before.rows)
    s = mdp.state_names.index(after.rows[0])
    assert after.cells[0][2] == f"{found.after[0, s, 0] - found.before[0, s, 0]:+.2f}"
    html = page.render()
    assert f'text-anchor="end">{before.rows[-1]}</text>' in html
    assert f'text-anchor="middle">{mdp.action_names[0]}</text>' in html


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_changed_is_refused_in_one_sentence(name: str) -> None:
    change, words = REFUSED[name]
    with pytest.raises(ValueError, match=words) as refusal:
        mh.predict(tiny_solutions()["lists"].solution, **change)
    assert "\n" not in str(refusal.value)


def test_sources_that_cannot_answer_are_refused() -> None:
    mdp, table = three_steps(), tiny_solutions()["lists"].table
    with pytest.raises(ValueError, match="got demonstrations of expert 0: solve the problem"):
        mh.predict(mh.Problem(mdp, table))
    with pytest.raises(ValueError, match="one action for each state"):
        mh.predict(mh.Problem(mdp, [np.zeros(8, dtype=int)]))
    with pytest.raises(ValueError, match="needs a Solution, an Identification or a Problem, got str"):
        mh.predict("solution")  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    unrelated = [mh.soft_plan(mh.domains.cliff().mdp, rng.normal(0, 3, 12), g).policy for g in (0.2, 0.5, 0.9)]
    with pytest.raises(ValueError, match="no discounts and shared reward explain"):
        mh.predict(mh.Problem(mh.domains.cliff().mdp, unrelated), pay={"11": 1.0})


def test_the_ways_to_say_a_change_are_one() -> None:
    mdp = three_steps()
    table = np.zeros((8, 2))
    table[4, 1] = 2.0
    ways = [{("4", "1"): 2.0}, {(4, 1.0): 2.0}, table, pd.DataFrame({"state": [4], "action": [1], "amount": [2.0]})]
    changes = [read_change(mdp, ("a",), pay=way) for way in ways]
    assert all(np.array_equal(change.pay, table) for change in changes)
    arrival = [{"3": 1.5}, np.eye(8)[3] * 1.5, pd.DataFrame({"state": ["3"], "amount": [1.5]})]
    assert all(np.array_equal(read_change(mdp, ("a",), pay=way).pay, mdp.expect(np.eye(8)[3] * 1.5)) for way in arrival)
    mask = table > 0
    bans = [{"4": "1"}, {4: [1]}, [("4", "1")], mask, pd.DataFrame({"state": [4], "action": [1]})]
    assert all(np.array_equal(read_change(mdp, ("a",), forbid=way).forbid, mask) for way in bans)


def test_persons_and_groups_of_a_population() -> None:
    solution = tiny_solutions()["population"].solution
    each, groups = mh.predict(solution, pay={"1": 1.0}), mh.predict(solution, pay={"1": 1.0}, persons="groups")
    assert each.experts == solution.experts
    assert groups.experts == ("typical person", "new person")
    width = (groups.high - groups.low)[:, groups.change.mdp.live].mean(axis=1)
    assert np.isfinite(width).all()
    assert width[1] > width[0]


def test_the_error_of_a_shared_reward_is_in_predictions_of_persons(tmp_path: Any) -> None:
    """At a discount that is given, choices follow from the ratio of the reward to the temperature, whose error is known."""
    solution = tiny_solutions()["population"].solution
    found = mh.predict(solution, discount=0.6, draws=4000)
    population = solution.evidence["population"]
    own, theta = population.individuals, float(solution.reward[0])
    together = population.person_reward_covariance[:, 1, 0]
    variances = population.reward_covariance[0, 0] / theta**2 + own["log_temperature_error"] ** 2 - 2 * together / theta
    centre = np.log(theta) - own["log_temperature"]
    mdp = three_steps()
    for k, (middle, deviation) in enumerate(zip(centre, np.sqrt(variances), strict=True)):
        ends = [mh.soft_plan(mdp, np.exp(middle + side * 1.96 * deviation) * PAYS, 0.6).policy for side in (-1, 1)]
        assert np.allclose(found.low[k, 2:], np.minimum(*ends)[2:], atol=0.01)
        assert np.allclose(found.high[k, 2:], np.maximum(*ends)[2:], atol=0.01)
    solution.to_json(tmp_path / "solution.json")
    again = mh.predict(mh.Solution.from_json(tmp_path / "solution.json", solution.problem), discount=0.6, draws=4000)
    assert np.allclose(again.low, found.low, equal_nan=True)


def test_intervals_of_groups_do_not_depend_on_where_a_covariate_is_counted_from() -> None:
    mdp, rng = three_steps(), np.random.default_rng(3)
    age = rng.uniform(20, 60, 8)
    discounts = 1 / (1 + np.exp(-(0.5 + 0.03 * (age - 40) + 0.3 * rng.normal(size=8))))
    policies = [mh.soft_plan(mdp, PAYS, float(gamma)).policy for gamma in discounts]
    table = mh.Demonstrations.simulate(mdp, policies, 60, seed=3)
    widths = []
    for origin in (0.0, 50.0, 2000.0):
        persons = pd.DataFrame({"expert": table.experts, "age": age - origin})
        # with the reward given, temperatures are estimated too, and so is what age does to them
        solution = mh.solve(mh.Problem(mdp, table), mh.Population("~ age", persons, nodes=5, known_reward=PAYS))
        found = mh.predict(solution, pay={"1": 1.0}, persons="groups")
        widths.append(found.high - found.low)
    assert (widths[0][:, 6:] > 0.01).all()
    for other in widths[1:]:
        assert np.allclose(other, widths[0], atol=2e-3)


@pytest.mark.slow
def test_a_prediction_is_a_table_and_a_file(tmp_path: Any) -> None:
    found = mh.predict(tiny_solutions()["lists"].solution, pay={"1": 1.0}, draws=50)
    frame = found.to_frame()
    assert list(frame) == ["expert", "state", "action", "before", "after", "change", "low", "high", "status"]
    assert len(frame) == 3 * 6 * 2
    found.to_json(tmp_path / "prediction.json")
    content = json.loads((tmp_path / "prediction.json").read_text(encoding="utf-8"))
    assert content["kind"] == "Prediction"
    assert content["experts"] == ["0", "1", "2"]
    assert content["after"]["0"]["4"]["1"] == pytest.approx(found.after[0, 4, 1])
    assert content["bounds"]["2"]["status"] == found.status[2]
    again = mh.predict(tiny_solutions()["lists"].solution, pay={"1": 1.0}, draws=50, jobs=2)
    assert np.array_equal(again.low, found.low, equal_nan=True)
