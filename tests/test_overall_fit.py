"""One test of all choices at once: its level, what it sees, what it says it would have seen, and what it does not depend on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import multihorizon as mh
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.questions.model_checks import AllChoices, OverallTest, overall_test, overall_words
from multihorizon.report.files import result_of
from multihorizon.words import percent

FEATURES = np.random.default_rng(5).normal(size=(8, 3))
TASK = mh.domains.random_mdp(8, 3, seed=1)


def table(seed: int, lapses: float = 0.0, episodes: int = 40) -> mh.Demonstrations:
    """Three experts who share a reward of three features, and who choose at random every now and then."""
    reward = FEATURES @ np.array([4.0, -3.0, 5.0])
    policies = [(1 - lapses) * mh.soft_plan(TASK, reward, gamma).policy + lapses / 3 for gamma in (0.3, 0.6, 0.85)]
    return mh.Demonstrations.simulate(TASK, policies, episodes, seed=seed, max_steps=20)


def overall_of(demos: mh.Demonstrations, features: np.ndarray = FEATURES, **options: object) -> OverallTest:
    problem = mh.Problem(TASK, demos, arrival_features=features)
    return overall_test(AllChoices.of(resume(mh.solve(problem, mh.MaximumLikelihood(starts=1, **options)))))


@pytest.mark.slow
def test_it_keeps_its_level() -> None:
    """Of tables that the model made, about one in twenty is rejected, and p-values are spread out."""
    p_values = np.array([overall_of(table(seed)).p_value for seed in range(60)])
    assert np.mean(p_values <= 0.05) <= 0.12
    assert 0.35 < p_values.mean() < 0.65


@pytest.mark.slow
def test_it_sees_the_lapses_that_it_says_it_would_see() -> None:
    """Of so many lapses it detects most, of a tenth of that few."""
    share = float(np.median([overall_of(table(seed)).lapses for seed in range(5)]))
    assert share < 0.5
    powers = [
        np.mean([overall_of(table(100 + seed, lapses)).p_value <= 0.05 for seed in range(20)])
        for lapses in (share / 10, 1.2 * share)
    ]
    assert powers[0] < 0.4
    assert powers[1] >= 0.6


def test_it_does_not_depend_on_units_or_on_the_order_of_experts() -> None:
    demos = table(0, 0.2)
    first, scaled = overall_of(demos), overall_of(demos, FEATURES * [1e3, 1e-3, 1.0])
    assert scaled.statistic == pytest.approx(first.statistic, abs=0.02)
    assert scaled.lapses == pytest.approx(first.lapses, rel=0.02)
    assert scaled.p_value == pytest.approx(first.p_value, abs=0.02)
    names = {"0": "z", "1": "y", "2": "x"}
    turned = mh.Demonstrations.from_frame(demos.to_frame().replace({"expert": names}))
    assert overall_of(turned).statistic == pytest.approx(first.statistic, rel=0.3)


def test_the_verdict_follows_the_test_and_says_what_it_would_have_seen() -> None:
    """Nothing found is no proof of a fit: the answer says what this table would have shown."""
    found = mh.analyse(table(3), [TASK], features=lambda mdp: (FEATURES, ["a", "b", "c"]), deviations=0.0)
    assert found.fit.answer == "No misfit detected"
    assert f"{percent(found.checks.overall.lapses)} or more were made at random" in found.fit.reasons
    assert result_of(found, {})["model_checks"]["overall"]["p_value"] == found.checks.overall.p_value
    doubtful = replace(found.checks, overall=found.checks.overall._replace(p_value=0.02, where="lapses"))
    answer = replace(found, checks=doubtful).fit
    assert answer.answer == "Perhaps not"
    assert "all choices together differ from the model by more than chance (p = 0.020, most in lapses)" in answer.reasons
    assert replace(found, checks=replace(doubtful, overall=doubtful.overall._replace(p_value=0.001))).fit.answer == "In part"


def test_what_was_not_tested_is_said() -> None:
    assert "was not tested: there was nothing to choose" in overall_words(OverallTest.untested("there was nothing to choose"))
    single = mh.domains.random_mdp(4, 1)
    demos = mh.Demonstrations.simulate(single, [np.ones((4, 1))] * 2, 5, max_steps=5)
    problem = mh.Problem(single, demos)
    point = resume(mh.solve(problem, mh.MaximumLikelihood(starts=1)))
    assert overall_test(AllChoices.of(point)).reason
    assert pd.isna(overall_test(None).p_value)


@pytest.mark.slow
def test_no_verdict_depends_on_the_unit_of_a_feature() -> None:
    """The same decisions with a feature in metres and in kilometres: answers, held-out predictions, and nothing withheld."""
    both = [
        mh.analyse(table(4), [TASK], features=lambda _, by=by: (FEATURES * by, ["a", "b", "c"]), deviations=0.0)
        for by in ([1.0, 1.0, 1.0], [1e3, 1.0, 1e-3])
    ]
    assert [found.withheld for found in both] == ["", ""]
    assert both[0].fit.answer == both[1].fit.answer
    assert [v.answer for v in both[0].verdicts[1:]] == [v.answer for v in both[1].verdicts[1:]]
    for name, values in both[0].checks.held_out.items():
        assert both[1].checks.held_out[name] == pytest.approx(values, abs=2e-4)


def test_features_in_units_of_very_different_sizes_give_the_same_fit() -> None:
    """The smallest feature is a billionth of the largest."""
    factors = np.array([1e3, 1.0, 1e-6])
    one, other = (
        mh.analyse(table(4), [TASK], features=lambda _, by=by: (FEATURES * by, ["a", "b", "c"]), deviations=0.0, quick=True)
        for by in (np.ones(3), factors)
    )
    assert one.withheld == other.withheld == ""
    np.testing.assert_allclose(other.solution.discounts, one.solution.discounts, atol=1e-6)
    np.testing.assert_allclose(other.solution.standard_errors, one.solution.standard_errors, rtol=1e-4)
    np.testing.assert_allclose(other.solution.reward * factors, one.solution.reward, rtol=1e-4)
    # Signs that are drawn to test whether choices go together do not depend on rounding.
    assert other.independence["p_value"] == one.independence["p_value"]


@pytest.mark.parametrize("by", [1e-3, 1e3])
def test_whether_a_reward_runs_away_does_not_depend_on_its_unit(by: float) -> None:
    """In a small unit a feature's reward is large by itself."""
    options = {"solver": mh.MaximumLikelihood(1.0, starts=1, deviations=0.0), "quick": True}
    found = mh.analyse(table(4), [TASK], features=lambda _: (FEATURES * by, ["a", "b", "c"]), **options)
    assert not found.withheld


def test_where_there_was_nothing_to_choose_no_misfit_is_claimed() -> None:
    """A model of single actions predicts them as well as chance does, which is no sign that it does not fit."""
    rows = [("ann", episode, step, "ab"[step], "go", "bc"[step]) for episode in (1, 2) for step in (0, 1)]
    frame = pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"])
    found = mh.analyse(frame)
    assert (found.fit.answer, found.fit.kind) == ("Not tested", "caution")
    assert not any("does not fit" in warning for warning in found.warnings)
