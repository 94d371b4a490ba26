"""One goal, nearly one, or several: what the fit takes, and what the report says."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.analysis import Analysis
from multihorizon.cli import app
from multihorizon.driver import build_problem
from multihorizon.likelihood.estimates import LikelihoodEvidence
from multihorizon.parallel import Run
from multihorizon.questions.goal_comparison import GoalComparison, deviation_words
from multihorizon.questions.sharing import SharedGoalTest, fit_and_test
from multihorizon.report.fit_page import fit_page
from multihorizon.solution import Deviations

CLIFF = mh.domains.cliff()
PAYS = np.unique(CLIFF.reward)
KINDS = (CLIFF.reward[:, None] == PAYS) / 1.0


def kinds(mdp: mh.MDP) -> tuple[object, list[str]]:
    """One feature for each kind of state."""
    return mdp.stacked @ KINDS, [f"pays {pay:g}" for pay in PAYS]


def simulated(spread: float, episodes: int = 200, seed: int = 1) -> mh.Demonstrations:
    """Three people on the cliff, whose rewards for each kind of state deviate from the common ones."""
    weights = PAYS + spread * np.random.default_rng(seed).normal(size=(3, PAYS.size))
    policies = [mh.soft_plan(CLIFF.mdp, KINDS @ own, gamma).policy for own, gamma in zip(weights, (0.3, 0.5, 0.8), strict=True)]
    return mh.Demonstrations.simulate(CLIFF.mdp, policies, episodes, seed=seed, names=["Ann", "Bo", "Cy"])


@cache
def fitted(spread: float) -> Analysis:
    """What is found of these people."""
    found = mh.analyse(simulated(spread), [CLIFF.mdp], kinds)
    assert isinstance(found, Analysis)
    return found


def said(moved: float = 5.0, **others: object) -> Deviations:
    """Deviations that move so many choices in a hundred."""
    told = {
        "spread": 0.4,
        "estimated": 0.4,
        "interval": [0.2, 0.6],
        "p_shared": 1e-4,
        "share_of_range": [0.02, 0.01, 0.03],
        "choices_moved": [moved, 2.0, np.inf],
        "values": np.zeros((2, 1)),
        "errors": np.zeros((2, 1)),
        "if_shared": {"discounts": [0.5, 0.5], "standard_errors": [0.1, 0.1], "log_likelihood": -1.0},
        "given": False,
    }
    return Deviations(**(told | others))


REJECTED, KEPT = SharedGoalTest(4.0, 0.001, 999), SharedGoalTest(0.0, 0.5, 999)


@pytest.mark.parametrize(
    ("test", "deviations", "gain", "expected"),
    [
        (KEPT, said(), 1.0, "one goal"),
        (REJECTED, said(), -1.0, "nearly one goal"),
        (REJECTED, said(), 0.0, "nearly one goal"),
        (REJECTED, said(), 1.0, "several goals"),
        (REJECTED, said(moved=25.0), -1.0, "several goals"),
        (REJECTED, None, 1.0, "several goals"),
        (SharedGoalTest(np.nan, np.nan, 0, "there is one expert alone"), said(), 1.0, None),
    ],
)
def test_what_the_decisions_support(test, deviations, gain, expected):
    rng, lengths = np.random.default_rng(0), np.full(200, 5)
    one = rng.normal(-5.0, 1.0, 200)
    held_out = {"one goal": one, "nearly one goal": one + 1, "several goals": one + 1 + gain * (1 + rng.normal(size=200))}
    found = GoalComparison(("a", "b"), test, deviations, lengths, held_out)
    assert found.support == expected
    mean, error = found.difference("nearly one goal", "one goal")
    assert (mean, error) == (pytest.approx(0.2), pytest.approx(0.0, abs=1e-12))
    assert found.to_frame()["supported"].sum() == (expected is not None)
    assert found.sentences().count("\n") == 0


def test_the_standard_error_is_that_of_independent_episodes():
    rng, lengths = np.random.default_rng(1), np.random.default_rng(0).integers(1, 9, 400)
    means, errors = [], []
    for _ in range(300):
        gains = 0.1 * lengths + rng.normal(size=400) * lengths
        found = GoalComparison(("a",), KEPT, None, lengths, {"one goal": np.zeros(400), "nearly one goal": gains})
        mean, error = found.difference("nearly one goal", "one goal")
        means.append(mean)
        errors.append(error)
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.15)


def test_deviations_are_said_in_a_readers_units():
    assert deviation_words(said()) == (
        "the standard deviation of rewards from the shared one is 2% of its range (1 to 3%), which moves 5 of a hundred "
        "choices (2 to any number)"
    )


@pytest.mark.slow
def test_one_goal_is_kept_where_nothing_speaks_against_it():
    found = fitted(0.0)
    assert found.deviations is None
    assert found.about_deviations == ""
    assert found.goals is not None
    assert found.goals.comparison is not None
    assert found.goals.comparison.support == "one goal"
    assert found.verdicts[-1].answer == "Not rejected"
    alone = mh.analyse(simulated(0.0), [CLIFF.mdp], kinds, deviations=0, quick=True)
    np.testing.assert_array_equal(found.solution.discounts, alone.solution.discounts)


@pytest.mark.slow
def test_a_goal_that_is_nearly_shared_is_the_answer_and_no_warning(tmp_path, golden):
    found = fitted(1.5)
    deviations = LikelihoodEvidence.of(found.solution).deviations
    assert deviations is not None
    assert 0 < deviations.interval[0] < deviations.spread < deviations.interval[1]
    assert found.goals is not None
    assert found.goals.nearly
    assert not found.goals_differ
    assert found.about_deviations in found.headline
    assert found.about_deviations in found.answer
    golden(found.headline, *found.warnings)
    assert "must not be believed" not in json.dumps(found._content()["verdicts"])
    assert list(found.goals.comparison.to_frame()["model"]) == ["one goal", "nearly one goal", "several goals"]
    covered = (found.intervals[:, 0] <= [0.3, 0.5, 0.8]) & (found.intervals[:, 1] >= [0.3, 0.5, 0.8])
    assert covered.all()
    page = fit_page(found, {}).render()
    golden(page)
    found.to_json(tmp_path / "result.json")
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["deviations"]["spread"] == deviations.spread
    assert content["goals"]["compared"]["support"] == "nearly one goal"


@pytest.mark.slow
def test_plans_are_those_of_each_persons_own_reward(tmp_path):
    found = fitted(1.5).solution
    persons = zip(found.personal_rewards, found.discounts, found.temperature, strict=True)
    own = [mh.soft_plan(CLIFF.mdp, KINDS @ reward, gamma, warmth).policy for reward, gamma, warmth in persons]
    np.testing.assert_allclose(found.policies(), own, atol=1e-8)
    np.testing.assert_allclose(mh.predict(found, initial=None, draws=20).before, own, atol=1e-8)
    found.to_json(tmp_path / "solution.json")
    again = mh.Solution.from_json(tmp_path / "solution.json", found.problem)
    np.testing.assert_allclose(
        mh.nudge(again, state="3", draws=20).before, mh.nudge(found, state="3", draws=20).before, atol=1e-6
    )


@pytest.mark.slow
def test_deviations_are_drawn_on_the_grid_or_by_expert_and_feature():
    found = mh.analyse(simulated(1.5, 40), [CLIFF.mdp], deviations=0.5, quick=True)
    page = fit_page(found, {}).render()
    assert (
        page.count("deviations from the shared reward.") == 6
    )  # a caption and a text for readers who cannot see, of each of three
    assert "one column per feature" not in page
    assert "one column per feature" in fit_page(fitted(1.5), {}).render()


@pytest.mark.slow
def test_more_rewards_than_are_quick_are_fitted_as_one_goal_and_that_is_said():
    problem, _ = build_problem([simulated(1.5, 60)], [CLIFF.mdp], kinds)
    solver = mh.MaximumLikelihood("pooled", deviations="estimated", cluster="auto")
    used, solution, test, remarks = fit_and_test(problem, solver, run=Run(), most_deviations=3)
    assert used.deviations == 0
    assert LikelihoodEvidence.of(solution).deviations is None
    assert test is not None
    assert ["Personal deviations from one reward were not estimated: there are more than 3" in text for text in remarks] == [True]


@pytest.mark.slow
def test_a_deviation_may_be_given_and_0_is_the_papers_model(tmp_path, golden):
    simulated(1.5, 40).to_frame().to_csv(tmp_path / "demos.csv", index=False)
    CLIFF.mdp.to_npz(tmp_path / "mdp.npz")
    pd.DataFrame(KINDS, columns=list("abcd")).assign(state=CLIFF.mdp.state_names).to_csv(tmp_path / "kinds.csv", index=False)
    arguments = ["fit", str(tmp_path / "demos.csv"), "--transitions", str(tmp_path / "mdp.npz"), "--quick"]
    arguments += ["--features", str(tmp_path / "kinds.csv")]
    said = CliRunner().invoke(app, [*arguments, "--deviations", "0.5"])
    assert said.exit_code == 0, said.output
    golden(said.output)
    said = CliRunner().invoke(app, [*arguments, "--deviations", "0"])
    assert said.exit_code == 0, said.output
    assert "nearly" not in said.output
    for wrong, wanted in (("some", "estimated or a number that is at least 0, got some"), ("-1", "a number of at least 0")):
        said = CliRunner().invoke(app, [*arguments, f"--deviations={wrong}"])
        assert said.exit_code == 2
        assert f"--deviations must be {wanted}" in said.output
