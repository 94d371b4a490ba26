"""One person as decisions arrive: the answer of all decisions at once, and the study's own."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from tiny import PAYS, three_steps, tiny_solutions

import multihorizon as mh
from multihorizon.population import maximum
from multihorizon.problem import require_counts
from multihorizon.questions.track import Lattice, Look, Prior, Tracker, Tracking, Window

TASK = mh.domains.space_adventure(15, seed=0)
PEOPLE = TASK.persons(24, seed=1, group_difference=0.6)
SOLVER = mh.Population("~ group", PEOPLE.frame, known_reward=TASK.reward)


@cache
def solution() -> mh.Solution:
    """A study of 24 people."""
    return mh.solve(mh.Problem(TASK.mdp, PEOPLE.demonstrations), SOLVER)


def decisions(episodes: int, discount: float = 0.9, seed: int = 3) -> list[tuple[str, str]]:
    """What somebody new does."""
    policy = mh.soft_plan(TASK.mdp, TASK.reward, discount, 5.0).policy
    table = mh.Demonstrations.simulate(TASK.mdp, [policy], episodes, seed=seed).to_frame()
    return [(str(state), str(action)) for state, action in table[["state", "action"]].itertuples(index=False)]


def batch(tracker: Tracker, window: Window) -> Look:
    """The posterior from the counts, in one go, on the nodes of this window."""
    log = tracker._prior.log(window.lattice).ravel()
    rows = np.array(list(tracker._counts), dtype=np.int64)
    log = log + np.array(list(tracker._counts.values())) @ window.table[rows]
    return Look.at(window, log.reshape(window.lattice.size))


def figures(now: Any) -> np.ndarray:
    """All numbers of a result in a row."""
    frame = now.to_frame()[["estimate", "low", "high"]].to_numpy(float).ravel()
    return np.array([*frame, now.discount_error, now.logit_discount_error, now.log_temperature_error, now.effective_decisions])


def test_any_order_and_all_at_once_give_one_answer() -> None:
    seen = decisions(40)
    first = mh.track(solution(), {"group": "control"})
    second, third = first.fork(), first.another({"group": "control"})
    for decision in seen:
        one = first.update(*decision)
        look = batch(first, first._window)
        assert np.allclose(look.mean, (one.logit_discount, one.log_temperature), rtol=0, atol=1e-10)
        assert np.allclose(look.deviation, (one.logit_discount_error, one.log_temperature_error), rtol=0, atol=1e-10)
    shuffled = [seen[i] for i in np.random.default_rng(0).permutation(len(seen))]
    for decision in shuffled:
        two = second.update(*decision)
    assert not one.placed
    assert np.allclose(figures(one), figures(two), rtol=1e-10)
    assert np.allclose(figures(one), figures(third.update_many(seen)), rtol=1e-10)
    assert one.decisions == two.decisions == len(seen)


def test_before_the_first_decision_it_is_what_the_study_predicts() -> None:
    persons = pd.DataFrame({"group": ["control", "training"]})
    predicted = SOLVER.predict(solution(), persons)
    for i in range(2):
        now = mh.track(solution(), persons.iloc[i]).now
        assert np.allclose(now.discount_interval, predicted.loc[i, ["person_low", "person_high"]].to_numpy(float), atol=2e-3)
        assert now.decisions == now.effective_decisions == 0
    few, solver = tiny_solutions()["population"].solution, mh.Population(nodes=5)
    ends = solver.predict(few, pd.DataFrame(index=[0]))[["person_low", "person_high"]].to_numpy(float)[0]
    assert np.allclose(mh.track(few).now.discount_interval, ends, atol=2e-3)  # of three people


@pytest.mark.slow
def test_a_person_of_the_study_has_the_shrunken_mean_of_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maximum, "likely_spreads", lambda found: [(1.0, found.psi)])
    found = mh.solve(mh.Problem(TASK.mdp, PEOPLE.demonstrations), SOLVER)
    individuals = found.evidence["population"]["individuals"]
    shared = mh.track(found, {"group": "control"})._shared
    table = PEOPLE.demonstrations.to_frame()
    design = SOLVER.covariates(found.require_problem()).matrix
    for i, name in enumerate(found.experts):
        own = table[table["expert"] == name][["state", "action"]]
        now = Tracker(shared, shared._prior(design[i], np.ones((1, 1)), errors=False)).update_many(own.itertuples(index=False))
        assert abs(now.logit_discount - individuals["logit_discount"][i]) < 5e-3 * now.logit_discount_error
        assert abs(now.log_temperature - individuals["log_temperature"][i]) < 5e-3 * now.log_temperature_error
        assert abs(now.discount - found.discounts[i]) < 5e-3 * now.discount_error


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 30, 300, 3000])
def test_finer_nodes_change_nothing(number: int) -> None:
    tracker = mh.track(solution(), {"group": "training"})
    now = tracker.update_many(decisions(number + 1)[:number])
    assert now.decisions == number
    compare_with_finer_nodes(tracker)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "degrees"), [(0.05, 8.0), (0.05, np.inf), (3.0, 8.0), (3.0, np.inf)])
@pytest.mark.parametrize(("discount", "temperature"), [(0.05, 5.0), (0.97, 0.3), (0.5, 60.0)])
def test_nodes_find_somebody_unlike_the_study(size: float, degrees: float, discount: float, temperature: float) -> None:
    shared = mh.track(solution(), {"group": "control"})._shared
    tracker = Tracker(shared, Prior(np.array([2.0, 1.6]), size**2 * np.eye(2), degrees))
    policy = mh.soft_plan(TASK.mdp, TASK.reward, discount, temperature).policy
    table = mh.Demonstrations.simulate(TASK.mdp, [policy], 800, seed=1).to_frame()
    tracker.update_many(table[["state", "action"]].itertuples(index=False))
    compare_with_finer_nodes(tracker)


def compare_with_finer_nodes(tracker: Tracker) -> None:
    """Nodes twice as dense and farther out give the same answer, as far as anybody cares."""
    now, lattice = tracker.now, tracker._window.lattice
    ends = [np.array([lattice.nodes(axis)[end] for axis in (0, 1)]) for end in (0, -1)]
    wide = 0.2 * (ends[1] - ends[0])
    finer = Lattice.over((lattice.levels[0] + 1, lattice.levels[1] + 1), ends[0] - wide, ends[1] + wide)
    window = tracker._shared.window(finer)
    look = batch(tracker, window)
    assert abs(look.mean[0] - now.logit_discount) < 1e-3 * look.deviation[0]
    assert abs(look.mean[1] - now.log_temperature) < 1e-3 * look.deviation[1]
    assert look.deviation == pytest.approx((now.logit_discount_error, now.log_temperature_error), rel=5e-3)
    low, high = np.interp([0.025, 0.975], window.cumulated(0, look.shares[0]), window.fine[0])
    assert now.discount_interval == pytest.approx(tuple(expit([low, high])), abs=1e-3 * now.discount_error)


def test_nodes_follow_a_person_and_it_says_so() -> None:
    tracker = mh.track(solution(), {"group": "control"})
    seen, placed = decisions(400, discount=0.6), 0
    for decision in seen:
        now = tracker.update(*decision)
        placed += now.placed
    assert 1 <= placed <= 6
    assert now.error < 0.0005
    assert now.discount_interval[0] < 0.6 < now.discount_interval[1]
    at_once = mh.track(solution(), {"group": "control"}).update_many(seen)
    assert at_once.placed
    assert abs(at_once.logit_discount - now.logit_discount) < 1e-3 * now.logit_discount_error


def test_nodes_that_are_too_few_are_said(golden) -> None:
    exact = mh.track(solution(), {"group": "control"}).update_many(decisions(400, discount=0.1))
    limited = Tracking(solution(), most=150)
    few = Tracker(limited, limited.prior({"group": "control"})).update_many(decisions(400, discount=0.1))
    assert few.error > 0.0005
    golden(few.sentences())
    assert "The nodes are too coarse" not in exact.sentences()
    assert abs(few.logit_discount - exact.logit_discount) < exact.logit_discount_error


def test_a_decision_can_be_taken_back() -> None:
    tracker = mh.track(solution(), {"group": "control"})
    before = tracker.update_many(decisions(5))
    state, action = decisions(5)[0]
    tracker.update(state, action)
    after = tracker.take_back(state, action)
    assert np.allclose(figures(before), figures(after), rtol=1e-10)
    with pytest.raises(ValueError, match="only a decision of this person can be taken back"):
        mh.track(solution(), {"group": "control"}).take_back(state, action)


def test_what_cannot_be_used_is_said_and_changes_nothing() -> None:
    tracker = mh.track(solution(), {"group": "control"})
    state, action = decisions(1)[0]
    before = tracker.update(state, action)
    end = TASK.mdp.state_names[int(np.flatnonzero(TASK.mdp.terminal)[0])]
    wrong: dict[str, tuple[Any, ...]] = {
        r"state must be one of the task's \(.*\), got nowhere": ("nowhere", action),
        r"action must be one of the task's \(.*\), got swim": (state, "swim"),
        f"a decision must be made in a state that goes on, got {end}, which is terminal": (end, action),
        "task must be a whole number from 0 to 0, got 1": (state, action, 1),
        "state must be text or a number": ([state], action),
    }
    for message, given in wrong.items():
        with pytest.raises(ValueError, match=message):
            tracker.update(*given)
        with pytest.raises(ValueError, match=message):
            tracker.update_many([(state, action), given])
    with pytest.raises(ValueError, match="a decision must be a state and an action"):
        tracker.update_many([(state,)])
    assert np.array_equal(figures(before), figures(tracker.now))


def test_actions_that_are_not_available_and_states_where_nobody_decided() -> None:
    moves, available = three_steps().to_array().copy(), np.ones((8, 2), dtype=bool)
    available[6, 1] = False
    moves[1, 6] = 0.0
    mdp = mh.MDP(moves, initial=np.eye(8)[6:].mean(axis=0), terminal=[0, 1], available=available)
    policies = [mh.soft_plan(mdp, PAYS, discount).policy for discount in (0.3, 0.5, 0.7, 0.9)]
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 60, seed=0))
    elsewhere = np.arange(8)[:, None] != 5
    unseen = problem.with_experts(replace(expert, counts=require_counts(expert) * elsewhere) for expert in problem.experts)
    tracker = mh.track(mh.solve(unseen, mh.Population(known_reward=PAYS)))
    with pytest.raises(ValueError, match=r"action must be available in state 6 \(0\), got 1"):
        tracker.update(6, 1)
    assert tracker.update(6, 0).effective_decisions == 0  # there was nothing to choose
    assert tracker.update(5, 1).effective_decisions > 0


def test_it_needs_a_population_and_a_person_of_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"person must have a value for group, .* got none"):
        mh.track(solution())
    with pytest.raises(ValueError, match="column group of new people must have values of the study"):
        mh.track(solution(), {"group": "other"})
    with pytest.raises(ValueError, match="person must have one row, got 24"):
        mh.track(solution(), PEOPLE.frame)
    with pytest.raises(ValueError, match="person must map covariates to values, got str"):
        mh.track(solution(), "control")  # type: ignore[arg-type]
    other = mh.solve(mh.Problem(TASK.mdp, PEOPLE.demonstrations), mh.MaximumLikelihood(5.0, known_reward=TASK.reward))
    with pytest.raises(ValueError, match="track must be given a converged solution of Population, got MaximumLikelihood"):
        mh.track(other)
    solution().to_json(tmp_path / "study.json")
    with pytest.raises(ValueError, match="this solution was read from a file"):
        mh.track(mh.Solution.from_json(tmp_path / "study.json"), {"group": "control"})
    problem = mh.Problem(TASK.mdp, PEOPLE.demonstrations)
    read = mh.track(mh.Solution.from_json(tmp_path / "study.json", problem), {"group": "control"})
    here = mh.track(solution(), {"group": "control"})
    assert np.allclose(figures(read.update_many(decisions(3))), figures(here.update_many(decisions(3))), rtol=1e-10)


def test_trackers_share_their_tables_and_can_be_pickled() -> None:
    first = mh.track(solution(), {"group": "control"})
    second, third = first.another({"group": "control"}), first.fork()
    assert first._window is second._window is third._window
    third.update(*decisions(1)[0])
    assert first.now.decisions == 0
    again, copied = pickle.loads(pickle.dumps((third, first)))
    assert again._window is copied._window
    assert np.allclose(figures(again.now), figures(third.now), rtol=1e-12)
    assert np.allclose(figures(again.update(*decisions(1)[0])), figures(third.update(*decisions(1)[0])), rtol=1e-12)
    assert len(pickle.dumps(first)) < 300_000


def test_the_result_says_how_likely_discounts_are() -> None:
    now = mh.track(solution(), {"group": "control"}).update_many(decisions(20))
    low, high = now.discount_interval
    assert (now.exceeds(low), now.exceeds(high)) == pytest.approx((0.975, 0.025), abs=1e-4)
    assert (now.exceeds(0.0), now.exceeds(1.0)) == (1.0, 0.0)
    assert now.horizon == solution().horizon(now.discount)
    assert now.horizon_interval == (solution().horizon(low), solution().horizon(high))
    assert 0 < now.effective_decisions <= now.decisions


@pytest.mark.slow
def test_several_tasks_and_an_estimated_reward() -> None:
    parts = []
    for seed in (0, 1):
        task = mh.domains.space_adventure(10, seed=seed)
        people = task.persons(12, seed=5)
        parts.append((task, mh.Problem(task.mdp, people.demonstrations, features=task.features)))
    joined = mh.Problem.join(*(problem for _, problem in parts))
    found = mh.solve(joined, mh.Population())
    tracker = mh.track(found)
    with pytest.raises(ValueError, match="task must say in which of the 2 tasks the person decided, 0 to 1, got none"):
        tracker.update("0", "0")
    for number, (task, problem) in enumerate(parts):
        counts = problem.experts[0].counts
        assert counts is not None
        s, a = np.argwhere(counts > 0)[0]
        now = tracker.update(task.mdp.state_names[s], task.mdp.action_names[a], task=number)
    assert now.decisions == 2
    crowd = mh.solve(joined, mh.Population())
    assert mh.track(crowd).now.discount == pytest.approx(mh.track(found).now.discount, abs=1e-6)


@pytest.mark.slow
def test_intervals_of_new_persons_cover_the_truth() -> None:
    people = TASK.persons(200, seed=9, group_difference=0.6)
    table, tracker = people.demonstrations.to_frame(), mh.track(solution(), {"group": "control"})
    covered = []
    for i, (name, group) in enumerate(people.frame[["expert", "group"]].itertuples(index=False)):
        own = table[table["expert"] == name][["state", "action"]]
        low, high = tracker.another({"group": group}).update_many(own.itertuples(index=False)).discount_interval
        covered.append(low <= people.discounts[i] <= high)
    assert 0.89 <= np.mean(covered) <= 0.99
