"""Tests of shared discounts, the bootstrap and the model checks against what must hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.choice.settings import Settings
from multihorizon.likelihood import intervals as horizon_tests
from multihorizon.likelihood.clusters import within_episodes
from multihorizon.likelihood.intervals import holm
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.search import climb
from multihorizon.parallel import limited
from multihorizon.questions.model_checks import MODELS, calibration_bins, compared_choices, misfits

DISCOUNTS = (0.4, 0.4, 0.8)


@pytest.fixture(scope="module")
def table() -> mh.Demonstrations:
    d = mh.domains.big_small()
    policies = [mh.soft_plan(d.mdp, d.reward, gamma).policy for gamma in DISCOUNTS]
    return mh.Demonstrations.simulate(d.mdp, policies, 1000, seed=1, names=["a", "b", "c"])


@pytest.fixture(scope="module")
def solution(table) -> mh.Solution:
    return mh.solve(mh.Problem(mh.domains.big_small().mdp, table), mh.MaximumLikelihood(temperature="shared", starts=2))


def test_pairs_that_differ_are_told_from_pairs_that_do_not(solution):
    same, first, second = mh.pairwise_tests(solution)
    assert same.experts == ("a", "b")
    assert same.p_value > 0.05
    assert max(first.adjusted, second.adjusted) < 1e-3
    assert mh.shared_discount_test(solution).p_value < 1e-3


def test_statistic_is_twice_the_loss_of_a_fit_with_one_discount(solution):
    restricted = Likelihood(solution.problem, Settings(groups=(0, 0, 1)))
    start = restricted.at(restricted.pack(mh.domains.big_small().reward, np.array([0.4, 0.8])))
    loss = solution.objective - climb(start).point.value
    assert mh.pairwise_tests(solution)[0].statistic == pytest.approx(2 * loss, abs=1e-3)


def test_holm_orders_and_skips_what_is_not_known():
    assert holm(np.array([0.01, np.nan, 0.02])) == pytest.approx([0.02, np.nan, 0.02], nan_ok=True)
    assert holm(np.array([0.9, 0.8])).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("kind", ["parametric", "episodes"])
def test_bootstrap_agrees_with_the_information(solution, table, kind):
    found = mh.bootstrap(solution, 40, kind, table, jobs=1)
    assert found.failed == 0
    assert found.standard_errors == pytest.approx(solution.standard_errors, rel=0.25)
    low, high = found.confidence_intervals(0.95).T
    assert (low < solution.discounts).all()
    assert (solution.discounts < high).all()


def test_a_problem_remembers_its_tables(solution, table):
    """They need not be handed in again, unless the problem is a part or has other decisions."""
    assert mh.check_model(solution).to_dict() == mh.check_model(solution, table).to_dict()
    own, given = (mh.bootstrap(solution, 2, "episodes", tables, jobs=1) for tables in (None, table))
    np.testing.assert_array_equal(own.discounts, given.discounts)
    problem = solution.problem
    forgotten = problem.with_experts(replace(expert, table=None) for expert in problem.experts)
    with pytest.raises(ValueError, match="remembers none: give them as demonstrations"):
        mh.bootstrap(mh.solve(forgotten, mh.MaximumLikelihood(starts=1)), 4, "episodes")


def test_the_right_model_predicts_best_and_is_calibrated(solution, table):
    checks = mh.check_model(solution, table)
    assert checks.decisions.sum() == len(table)
    total = {name: float(checks.held_out[name] @ checks.decisions) for name in MODELS}
    assert max(total, key=total.get) == "this model"
    predicted, taken, weight = checks.calibration.T
    assert (np.abs(predicted - taken) < 5 * np.sqrt(predicted * (1 - predicted) / weight) + 1e-3).all()
    assert all(row["p_value"] > 1e-3 for row in checks.worst)


def test_states_that_the_model_cannot_fit_are_named(solution):
    """In one state expert b is made to do something no reward and discount can explain beside the rest."""
    first, second, third = solution.problem.experts
    counts = second.counts.copy()
    state = int(np.argmax(counts.sum(axis=1)))
    counts[state] = np.roll(counts[state], 2)
    odd = solution.problem.with_experts([first, replace(second, counts=counts), third])
    worst = misfits(compared_choices(odd, solution.policies()))[0]
    assert (worst.expert, worst.state) == ("b", str(state))
    assert worst.p_value < 1e-6


def test_another_table_than_the_problems_is_refused(solution, table):
    """As many experts, but other decisions: held-out counts would be subtracted from counts they are no part of."""
    d = mh.domains.big_small()
    other = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 10, names=["a", "b", "c"])
    swapped = mh.Demonstrations.from_frame(table.to_frame().replace({"expert": {"a": "c", "c": "a"}}))
    for wrong in (other, swapped, [table, table]):
        with pytest.raises(ValueError, match="demonstrations must be the tables the problem was made of"):
            mh.check_model(solution, wrong)
        with pytest.raises(ValueError, match="demonstrations must be the tables the problem was made of"):
            mh.bootstrap(solution, 4, "episodes", wrong)
        with pytest.raises(ValueError, match="demonstrations must be the tables the problem was made of"):
            mh.simulate_study(solution, demonstrations=wrong)


def test_no_p_value_from_a_fit_that_did_not_end(solution):
    with limited(steps=0):
        same, *others = mh.pairwise_tests(solution)
    assert np.isnan([same.p_value, same.adjusted]).all()
    assert same.sentences().endswith("was not tested: the fit with one discount did not end.")
    hopeless = [test for test in others if test.statistic > 2 * horizon_tests.HOPELESS]
    assert hopeless
    assert all(test.p_value < 1e-10 for test in hopeless)


def test_calibration_bins_are_weighted_means():
    rows = calibration_bins([(np.array([0.11, 0.19, 0.9]), np.array([1.0, 3.0, 9.0]), np.array([10.0, 10.0, 10.0]))])
    assert rows == pytest.approx(np.array([[0.15, 0.2, 20], [0.9, 0.9, 10]]))


def test_too_few_episodes_to_hold_out_is_said():
    d = mh.domains.big_small()
    lone = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 1, names=["a", "b", "c"])
    known = mh.solve(mh.Problem(d.mdp, lone), mh.MaximumLikelihood(known_reward=d.reward, starts=1))
    with pytest.raises(ValueError, match="expert a must have at least 2 episodes"):
        mh.check_model(known, lone)


def swapped_goals(episodes):
    """The big and the small goal change places in every other episode, which no column shows."""
    d = mh.domains.big_small()
    first, second = np.argsort(d.reward)[-2:]
    other = np.array(d.reward)
    other[[first, second]] = other[[second, first]]
    frames = []
    for number, reward in enumerate((d.reward, other)):
        policies = [mh.soft_plan(d.mdp, reward, gamma).policy for gamma in (0.5, 0.8, 0.95)]
        frame = mh.Demonstrations.simulate(d.mdp, policies, episodes // 2, seed=number, names=["a", "b", "c"]).to_frame()
        frames.append(frame.assign(episode=2 * frame["episode"].astype(int) + number))
    return d.mdp, pd.concat(frames)


@pytest.mark.slow
def test_goals_that_swap_between_episodes_do_not_fit(solution, table):
    assert mh.check_model(solution, table).within.p_value > 0.05
    mdp, frame = swapped_goals(100)
    found = mh.analyse([mh.Demonstrations.from_frame(frame)], [mdp], solver=mh.MaximumLikelihood(1.0, starts=1))
    assert found.checks.within.p_value == 0.001
    verdict = found.verdicts[2]
    assert verdict.answer == "No"
    assert "choices of one episode go together more than their states explain (p ≤ 0.001)" in verdict.reasons
    assert "something outside the state column, such as the goal, changes between episodes" in verdict.reasons


@pytest.mark.slow
def test_choices_that_go_together_do_so_in_any_order_and_in_a_part_of_the_episodes():
    mdp, frame = swapped_goals(100)
    found = []
    for renamed in (frame, frame.replace({"expert": {"a": "c", "c": "a"}})):
        demos = mh.Demonstrations.from_frame(renamed)
        point = resume(mh.solve(mh.Problem(mdp, demos), mh.MaximumLikelihood(1.0, starts=1)))
        found.append(within_episodes(point, [demos]))
    assert found[0].statistic == pytest.approx(found[1].statistic, rel=1e-3)
    part = within_episodes(point, [demos], max_decisions=600)
    assert part.p_value < 0.05
    assert part.statistic != found[1].statistic
    alone = frame[frame["step"] == frame["step"].min()]
    lone = mh.Demonstrations.from_frame(alone.drop(columns="next_state"))
    point = resume(mh.solve(mh.Problem(mdp, lone), mh.MaximumLikelihood(1.0, starts=1)))
    assert within_episodes(point, [lone]).reason == "no two choices of one episode can be compared"
