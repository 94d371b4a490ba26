"""The smallest bonus that works: the chance at it is the one that is asked for, whatever the reward and the names are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tiny import PAYS, tiny_solutions

import multihorizon as mh
from multihorizon.cli.questions import state_and_action
from multihorizon.questions.whatif.nudge import Nudge


def planned(mdp: mh.MDP, reward: Any, discount: float, pay: Any, temperature: float = 1.0) -> Any:
    """The policy with a bonus, planned by another way: with the true reward."""
    return mh.soft_plan(mdp, mdp.expected_reward(reward) + mdp.expected_reward(pay), discount, temperature).policy


def reached(mdp: mh.MDP, policy: Any, state: int) -> float:
    """The chance to reach a state, by so many steps that no more matter."""
    moves = mdp.under(policy).toarray()
    moves[state] = 0.0
    moves[state, state] = 1.0
    return float(mdp.initial @ np.linalg.matrix_power(moves, 2**14)[:, state])


def line(length: int = 6) -> mh.MDP:
    """Places in a row, from the first of which one goes left, to an end nearby, or right, to an end far away; or stays."""
    moves = np.zeros((3, length, length))
    for place in range(1, length - 1):
        moves[0, place, place - 1] = moves[1, place, place + 1] = moves[2, place, place] = 1.0
    return mh.MDP(moves, initial=np.eye(length)[1], terminal=[0, length - 1], action_names=["left", "right", "stay"])


def people(mdp: mh.MDP, reward: Any, discounts: Sequence[float], names: Sequence[str] | None = None) -> mh.Problem:
    return mh.Problem(mdp, [planned(mdp, reward, g, np.zeros(mdp.n_states)) for g in discounts], names=names)


def random_task(rng: np.random.Generator) -> tuple[mh.MDP, Any]:
    states, actions = 6, 3
    moves = rng.dirichlet(np.full(states, 0.5), (actions, states))
    moves[:, -2:] = 0.0
    return mh.MDP(moves, initial=[*rng.dirichlet(np.ones(4)).tolist(), 0, 0], terminal=[4, 5]), rng.normal(0, 2, states)


@pytest.mark.parametrize("seed", range(10))
def test_at_the_bonus_the_chance_is_the_one_asked_for_and_the_reward_need_not_be_known(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp, reward = random_task(rng)
    discounts = {name: float(g) for name, g in zip("abc", rng.uniform(0, 0.98, 3), strict=True)}
    problem = people(mdp, reward, list(discounts.values()), list(discounts))
    chance = float(rng.uniform(0.5, 0.95))
    found = mh.nudge(problem, state="1", action="2", chance=chance, discount=discounts)
    assert set(found.answers) <= {"found", "already"}
    for k, gamma in enumerate(discounts.values()):
        pay = np.zeros((6, 3))
        pay[1, 2] = found.bonus[k]
        assert found.answers[k] == "found" or found.before[k] >= chance
        if found.answers[k] == "found":
            assert planned(mdp, reward, gamma, pay)[1, 2] == pytest.approx(chance, abs=1e-9)
    found = mh.nudge(problem, state="5", chance=chance, discount=discounts)
    for k, gamma in enumerate(discounts.values()):
        if found.answers[k] == "found":
            assert reached(mdp, planned(mdp, reward, gamma, found.bonus[k] * np.eye(6)[5]), 5) == pytest.approx(chance, abs=1e-9)
        elif found.answers[k] == "infinite":
            most = [reached(mdp, planned(mdp, reward, gamma, b * np.eye(6)[5]), 5) for b in (0.0, 1.0, 1e3, 1e5)]
            assert max(most) < chance


@pytest.mark.parametrize("seed", range(5))
def test_the_slope_of_an_action_has_its_closed_form_and_the_chance_rises(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mdp, reward = random_task(rng)
    gamma = float(rng.uniform(0, 0.98))
    found = mh.nudge(people(mdp, reward, [gamma]), state="0", action="0", chance=0.999, discount=gamma)
    assert found.rising.all()
    chances = found.curves["chance"].to_numpy()
    assert (np.diff(chances) > 0).all()
    # ∂ logit p/∂b is at least (1 − γ)/λ, at most 1/(λ(1 − γ))
    slopes = np.diff(np.log(chances / (1 - chances))) / np.diff(found.curves["bonus"].to_numpy())
    assert (slopes >= 1 - gamma - 1e-6).all()
    assert (slopes <= 1 / (1 - gamma) + 1e-6).all()


def test_predict_with_the_bonus_has_the_chance() -> None:
    solution = tiny_solutions()["lists"].solution
    for state, action in (("1", None), ("4", "1")):
        found = mh.nudge(solution, state=state, action=action, chance=0.8, draws=20)
        assert found.answers == ("found",) * 3
        for k, bonus in enumerate(found.bonus):
            after = mh.predict(solution, pay={state if action is None else (state, action): bonus}, draws=20)
            if action is None:
                rows = after.outcomes.query(f"quantity == 'chance to reach' and state == '{state}'")
                assert rows["after"].to_numpy()[k] == pytest.approx(0.8, abs=1e-9)
                assert rows["before"].to_numpy()[k] == pytest.approx(found.before[k], abs=1e-12)
            else:
                assert after.after[k, 4, 1] == pytest.approx(0.8, abs=1e-9)


def test_nothing_is_needed_where_the_chance_is_there_already(golden) -> None:
    mdp = line()
    found = mh.nudge(people(mdp, np.zeros(6), [0.5]), state="0", chance=0.5, discount=0.5)
    assert found.answers == ("already",)
    assert found.bonus[0] == 0.0
    golden(found.sentences())


def test_who_does_not_look_ahead_does_not_respond_to_what_is_far(golden) -> None:
    mdp = line()
    discounts = [0.0, 0.05, 0.3, 0.6, 0.9]
    found = mh.nudge(
        people(mdp, np.zeros(6), discounts), state="5", chance=0.9, discount=dict(zip("01234", discounts, strict=True))
    )
    assert found.answers[0] == "infinite"
    assert np.isinf(found.bonus[0])
    golden(found.sentences())
    assert (np.diff(found.bonus[1:]) < 0).all()
    assert found.steps == 4
    np.testing.assert_allclose(found.weight, np.power(discounts, 3))
    near = mh.nudge(
        people(mdp, np.zeros(6), discounts), state="0", chance=0.9, discount=dict(zip("01234", discounts, strict=True))
    )
    assert near.answers == ("found",) * 5
    assert np.isfinite(near.bonus).all()
    # the next place is for all to have: the one who does not look ahead chooses it for a bonus at once
    step = mh.nudge(people(mdp, np.zeros(6), [0.0]), state="1", action="right", chance=0.9, discount=0.0)
    assert step.bonus[0] == pytest.approx(np.log(18), abs=1e-8)  # of three equal actions: 9 = e^b/2


def test_a_bonus_that_is_too_far_to_be_found_is_not_called_infinite(golden) -> None:
    found = mh.nudge(people(line(30), np.zeros(30), [0.01]), state="29", chance=0.9, discount=0.01)
    assert found.answers == ("not found",)
    assert np.isnan(found.bonus[0])
    golden(found.reasons[0])


def test_what_cannot_happen_is_infinite_in_words(golden) -> None:
    mdp = line()
    policy = planned(mdp, np.zeros(6), 0.5, np.zeros(6))
    policy[1] = [0.5, 0.0, 0.5]
    problem = mh.Problem(mdp, [policy])
    found = mh.nudge(problem, state="5", discount=0.5)
    assert found.answers == ("infinite",)
    golden(found.reasons[0])
    found = mh.nudge(problem, state="1", action="right", discount=0.5)
    assert np.isinf(found.bonus[0])
    golden(found.reasons[0])
    half = mh.nudge(problem, state="5", initial={"1": 0.6, "2": 0.4}, discount=0.5)
    assert np.isinf(half.bonus[0])
    golden(half.reasons[0])


def test_a_chance_that_falls_with_the_bonus_is_said(golden) -> None:
    """A quick way that fails half of the time, and a slow sure one."""
    moves = np.zeros((2, 6, 6))
    moves[0, 0, [4, 5]] = 0.5
    moves[1, 0, 1] = moves[:, 1, 2] = moves[:, 2, 3] = moves[:, 3, 5] = 1.0
    mdp = mh.MDP(moves, initial=np.eye(6)[0], terminal=[4, 5])
    problem = mh.Problem(mdp, [np.full((6, 2), 0.5)])
    found = mh.nudge(problem, state="5", chance=0.9, discount=0.3)
    assert found.before[0] == pytest.approx(0.75)
    assert not found.rising[0]
    assert found.answers == ("not found",)
    golden(found.reasons[0])
    patient = mh.nudge(problem, state="5", chance=0.9, discount=0.95)
    assert patient.rising[0]
    assert patient.answers == ("found",)


def test_a_bonus_that_is_had_for_ever_has_no_plan(golden) -> None:
    """Two ways to stay, one to end, no discounting: from π e^b = 2/3 of the first on, to stay is worth more than any end."""
    moves = np.zeros((3, 2, 2))
    moves[[0, 1], 0, 0] = moves[2, 0, 1] = 1.0
    problem = mh.Problem(mh.MDP(moves, initial=[1, 0], terminal=[1]), [np.full((2, 3), 1 / 3)])
    found = mh.nudge(problem, state="0", action="0", chance=0.6, discount=1.0)
    assert found.bonus[0] == pytest.approx(np.log(1.8), abs=1e-8)
    found = mh.nudge(problem, state="0", action="0", chance=0.7, discount=1.0)
    assert found.answers == ("not found",)
    golden(found.reasons[0])


def test_a_chance_that_rounding_would_decide_is_not_known(golden) -> None:
    """Who stays almost for ever ends somewhere after 10¹² steps."""
    mdp = line(5)
    policy = np.tile([1e-12, 1e-12, 1 - 2e-12], (5, 1))
    found = mh.nudge(mh.Problem(mdp, [policy]), state="4", chance=0.9, discount=0.9)
    assert found.answers == ("not found",)
    golden(found.reasons[0])
    assert np.isnan([found.before[0], found.bonus[0]]).all()


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing() -> None:
    solution = tiny_solutions()["lists"].solution
    one, two = (mh.nudge(solution, state="1", chance=0.8, jobs=jobs).to_frame() for jobs in (1, 2))
    pd.testing.assert_frame_equal(one, two, check_exact=True)


def test_names_and_order_change_nothing() -> None:
    rng = np.random.default_rng(3)
    mdp, reward = random_task(rng)
    discounts = {"x": 0.2, "y": 0.6, "z": 0.9}
    problem = people(mdp, reward, list(discounts.values()), list(discounts))
    ask: dict[str, Any] = {"state": "5", "chance": 0.8, "discount": discounts}
    found = mh.nudge(problem, **ask)
    turned = people(mdp, reward, list(discounts.values())[::-1], list(discounts)[::-1])
    np.testing.assert_allclose(mh.nudge(turned, **ask).bonus[::-1], found.bonus, rtol=1e-8)
    order = np.array([2, 0, 5, 1, 4, 3])
    shuffled = mh.MDP(
        [mdp.transition(a).toarray()[np.ix_(order, order)] for a in (2, 0, 1)],
        initial=mdp.initial[order],
        terminal=mdp.terminal[order],
        state_names=[str(s) for s in order],
    )
    np.testing.assert_allclose(
        mh.nudge(people(shuffled, reward[order], [0.2, 0.6, 0.9], "xyz"), **ask).bonus, found.bonus, rtol=1e-7
    )


def test_a_larger_temperature_asks_for_so_much_more() -> None:
    domain = mh.domains.cliff()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    one, three = (mh.nudge(mh.identify(problem, temperature=t), state="4", action="right", chance=0.9) for t in (1.0, 3.0))
    np.testing.assert_allclose(three.bonus, 3 * one.bonus, rtol=1e-8)


def test_where_discounts_are_a_set_bonuses_have_bounds(golden) -> None:
    domain = mh.domains.toy()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    found = mh.nudge(problem, state=domain.mdp.state_names[1], action=domain.mdp.action_names[0], chance=0.9)
    assert "bounded" in found.status
    k = found.status.index("bounded")
    assert found.low[k] <= found.bonus[k] <= found.high[k]
    golden(found.sentences(), *found.remarks)


def test_intervals_are_those_of_the_draws_and_persons_spread() -> None:
    solution = tiny_solutions()["lists"].solution
    found = mh.nudge(solution, state="6", action="1", chance=0.8)
    assert ((found.low < found.bonus) & (found.bonus < found.high)).all()
    # the ends are the bonuses at which the ends of the predicted chance are the chance
    ends = [mh.predict(solution, pay={("6", "1"): bonus}) for bonus in (found.low[0], found.high[0])]
    assert ends[0].high[0, 6, 1] == pytest.approx(0.8, abs=0.003)
    assert ends[1].low[0, 6, 1] == pytest.approx(0.8, abs=0.003)
    groups = mh.nudge(tiny_solutions()["population"].solution, state="6", action="1", chance=0.8, persons="groups")
    typical, new = groups.high - groups.low
    assert new > typical


def test_where_no_bonus_may_be_enough_the_interval_is_one_sided_and_how_often_is_said(golden) -> None:
    """Of two people the one who hardly looks ahead may need a bonus beyond all bounds; the other does not."""
    mdp, pays = line(), np.eye(6)[0]
    policies = [planned(mdp, pays, discount, np.zeros(6)) for discount in (0.15, 0.8)]
    table = mh.Demonstrations.simulate(mdp, policies, 30, seed=1, names=["near", "far"])
    solution = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood("shared", known_reward=pays, starts=2))
    found = mh.nudge(solution, state="5", chance=0.9)
    near, far = (found.experts.index(name) for name in ("near", "far"))
    assert np.isinf(found.high[near])
    assert found.low[near] > 1
    assert 0.025 < found.none_enough[near] < 1
    assert found.none_enough[far] == 0
    assert np.isfinite(found.high[far])
    said = found.sentences()
    golden(said)
    assert not re.search(r"\b(inf|nan)\b", said + str(found))
    assert found.to_frame()["none_enough"].tolist() == found.none_enough.tolist()


def test_what_the_decisions_do_not_show_does_not_matter_for_a_bonus() -> None:
    """The reward of one expert is not identified, and the bonus is; with an estimated temperature nothing sets its scale."""
    mdp = mh.domains.random_mdp(5, 2, n_terminal=1, seed=4)
    reward = np.random.default_rng(0).normal(0, 1, 5)
    table = mh.Demonstrations.simulate(mdp, [mh.soft_plan(mdp, reward, 0.6).policy], 1000, seed=0)
    solution = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood(1.0, discounts=0.6, starts=2))
    assert solution.evidence["unidentified_directions"] > 0
    found = mh.nudge(solution, state="0", action="1", chance=0.9)
    truth = mh.nudge(people(mdp, reward, [0.6]), state="0", action="1", chance=0.9, discount=0.6).bonus[0]
    assert found.status == ("identified",)
    assert found.low[0] < truth < found.high[0]


@pytest.mark.slow
def test_estimated_transitions_widen_the_interval() -> None:
    mdp = tiny_solutions()["lists"].solution.require_problem().mdp
    policies = [mh.soft_plan(mdp, PAYS, discount).policy for discount in (0.3, 0.8)]
    table = mh.Demonstrations.simulate(mdp, policies, 200, seed=1)
    widths = []
    for task in (mdp, mh.estimate_mdp(table)):
        pays = {name: PAYS[int(name)] for name in task.state_names}
        solution = mh.solve(mh.Problem(task, table), mh.MaximumLikelihood(1.0, known_reward=pays, starts=1))
        found = mh.nudge(solution, state="1", chance=0.78, draws=50)
        widths.append(found.high - found.low)
    assert (widths[1] > widths[0]).all()


def test_many_persons_are_compared_by_their_discounts(golden) -> None:
    mdp, discounts = line(), np.linspace(0.1, 0.9, 12)
    problem = people(mdp, np.arange(6.0), discounts.tolist())
    found = mh.nudge(mh.identify(problem), state="5", chance=0.99)
    golden(found.sentences())


def test_experts_without_a_common_scale_are_not_compared(golden) -> None:
    problem = people(line(), np.arange(6.0), [0.3, 0.8])
    found = mh.nudge(problem, state="5", chance=0.9, discount={"0": 0.3, "1": 0.8})
    assert not found.comparable
    golden(found.sentences())


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "state": ({"state": "nowhere"}, "state must name states among 0, 1, .* got 'nowhere'"),
    "action": ({"state": "4", "action": "jump"}, "action must name actions among 0, 1, got 'jump'"),
    "terminal": ({"state": "1", "action": "1"}, "one that can be taken in state 1, got 1"),
    "chance": ({"state": "1", "chance": 1.0}, "chance must be a number between 0 and 1, got 1.0"),
    "word": ({"state": "1", "chance": "half"}, "got 'half'"),
    "start": ({"state": "4", "action": "1", "initial": {"6": 1.0}}, "initial is for a state to be reached"),
    "discount": ({"state": "1", "discount": 0.5}, "discount is for a Problem of policies"),
    "groups": ({"state": "1", "persons": "groups"}, "groups are those of a Population"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_asked_is_refused_in_one_sentence(name: str) -> None:
    ask, words = REFUSED[name]
    with pytest.raises(ValueError, match=words) as refusal:
        mh.nudge(tiny_solutions()["lists"].solution, **ask)
    assert "\n" not in str(refusal.value)


def test_experts_who_take_the_best_action_are_refused() -> None:
    mdp = line()
    best = [mh.plan(mdp, np.arange(6.0), g).policy.argmax(axis=1) for g in (0.3, 0.9)]
    solution = mh.solve(mh.Problem(mdp, best), mh.MPLP())
    with pytest.raises(ValueError, match="who choose with probabilities"):
        mh.nudge(solution, state="5")


def test_state_and_action_are_read_from_one_word() -> None:
    mdp = mh.MDP([[[0, 1], [0, 0]]], terminal=[1], state_names=["a:b", "end"], action_names=["go"])
    assert state_and_action(mdp.state_names, "a:b") == ("a:b", None)
    assert state_and_action(mdp.state_names, "a:b:go") == ("a:b", "go")
    walk = mh.domains.cliff()
    problem = mh.Problem(walk.mdp, walk.soft_experts())
    with pytest.raises(ValueError, match="state must name states among"):
        mh.nudge(problem, state="nowhere")


def test_curves_go_through_the_bonus() -> None:
    found: Nudge = mh.nudge(tiny_solutions()["lists"].solution, state="6", action="1", chance=0.8, draws=20)
    for k, name in enumerate(found.experts):
        curve = found.curves.query(f"expert == '{name}'")
        assert np.interp(found.bonus[k], curve["bonus"], curve["chance"]) == pytest.approx(0.8, abs=1e-9)
        assert curve["chance"].iloc[0] == found.before[k]


def people_of_two_groups() -> tuple[mh.Solution, list[str]]:
    """A population of 20 people with known points, of whom the young look further ahead."""
    meadow = mh.domains.meadow()
    names = [f"P{number:02}" for number in range(20)]
    discounts = np.r_[np.linspace(0.2, 0.6, 10), np.linspace(0.6, 0.85, 10)]
    policies = [mh.soft_plan(meadow.mdp, meadow.reward, discount).policy for discount in discounts]
    problem = mh.Problem(meadow.mdp, mh.Demonstrations.simulate(meadow.mdp, policies, 40, names=names))
    persons = pd.DataFrame({"expert": names, "group": ["old"] * 10 + ["young"] * 10})
    return mh.solve(problem, mh.Population("~ group", persons, known_reward=meadow.reward)), names


def test_a_bonus_is_enough_for_half_and_for_most_of_each_group() -> None:
    solution, names = people_of_two_groups()
    found = mh.nudge(solution, state="I3", chance=0.6, draws=40)
    rows = found.enough.set_index(["group", "share"])
    assert rows["persons"].tolist() == [20, 20, 10, 10, 10, 10]
    places = {"": np.arange(20), "group = old": np.arange(10), "group = young": np.arange(10, 20)}
    for name, members in places.items():
        for share in (0.5, 0.9):
            bonus = rows.loc[(name, share), "bonus"]
            needed = np.sort(found.bonus[members])
            assert (needed <= bonus).mean() >= share
            assert (needed < bonus).mean() < share
            assert rows.loc[(name, share), "low"] <= bonus <= rows.loc[(name, share), "high"]
    assert " is enough for 90%." in found.headline()
    assert "group = old: " in found.sentences()
    assert found._content()["enough"][0]["share"] == 0.5
    own = mh.nudge(solution, state="I3", chance=0.6, draws=20, groups=dict(zip(names, ["a", "b"] * 10, strict=True)))
    assert own.enough["group"].unique().tolist() == ["", "a", "b"]
    assert mh.nudge(solution, state="I3", persons="groups", draws=20).enough.empty
    with pytest.raises(ValueError, match="groups must name experts, got 'nobody'"):
        mh.nudge(solution, state="I3", groups={"nobody": "a"})
