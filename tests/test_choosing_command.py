"""`multihorizon fit` with other models of choice, and what may be asked after it."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from fitting import RUN, fit, one_sentence
from test_planners import decisions, players, savings

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.questions.sharing import shared_goal_test


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The savings task and decisions of people who value the future by the best action, a tenth of them lapses."""
    folder = tmp_path_factory.mktemp("savings")
    mdp, _, features = savings()
    decisions("max", 0.1, 0.0, 2, each=600).to_csv(folder / "d.csv", index=False)
    mdp.to_npz(folder / "m.npz")
    rows = [(mdp.state_names[i % 6], mdp.action_names[i // 6], *features[i]) for i in range(12)]
    pd.DataFrame(rows, columns=["state", "action", *"abcdef"]).to_csv(folder / "f.csv", index=False)
    return folder


def fitted(folder, *more):
    """Fit the savings task from the command line."""
    return fit(folder / "d.csv", "--transitions", folder / "m.npz", "--features", folder / "f.csv", "--cut-off", *more)


def test_the_command_fits_other_values_and_lapses(folder) -> None:
    result = fitted(folder, "--value", "max", "--lapse", "estimated", "--out", folder / "result")
    assert result.exit_code == 0, result.output
    assert "The future is valued by the best action." in result.stdout
    assert "A share of" in result.stdout
    assert "Personal deviations from one reward were not estimated" in result.stdout
    assert "Whether the experts share one reward was not tested" in result.stdout
    content = json.loads((folder / "result" / "result.json").read_text())
    assert content["planner"]["value"] == "max"
    assert content["planner"]["lapse"]["estimate"] == pytest.approx(0.1, abs=0.1)
    assert (content["options"]["value"], content["options"]["lapse"]) == ("max", "estimated")
    assert content["identification"] is None
    assert content["state_reward"] is None
    assert content["model_checks"]["held_out"]
    assert "valued by the best action" in (folder / "result" / "report.html").read_text()


def test_the_command_fits_stickiness_without_checks_by_state(folder) -> None:
    result = fitted(folder, "--stickiness", "estimated", "--quick", "--trials", "--out", folder / "sticky")
    assert result.exit_code == 0, result.output
    assert "The last action is worth" in result.stdout
    content = json.loads((folder / "sticky" / "result.json").read_text())
    assert content["planner"]["stickiness"]["p"] > 0
    assert content["model_checks"]["worst_states"] == []
    evidence = json.loads((folder / "sticky" / "solution.json").read_text())["evidence"]
    trials = pd.read_csv(folder / "sticky" / "trials.csv")
    assert -trials.surprise.sum() == pytest.approx(evidence["log_likelihood"], abs=1e-3)
    assert len(trials) == len(pd.read_csv(folder / "d.csv"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--value", "hard"), "--value must be one of soft, max, mean, got hard"),
        (("--lapse", "1.5"), "--lapse must be a number from 0 to below 1, or estimated, got 1.5"),
        (("--trials",), "--trials must come with --out"),
        (("--stickiness", "much"), "--stickiness must be a number, or estimated, got much"),
        (("--lapse", "estimated", "--stickiness", "estimated", "--formula", "~ 1"), "one estimated, got both"),
        (("--lapse", "0.1", "--distribution", "types"), "--distribution types must come without --value, --lapse"),
        (("--lapse", "0.1", "--deviations", "0.5"), "personal deviations need"),
        (("--value", "max", "--lookahead", "all"), "families of look-ahead need"),
    ],
)
def test_options_that_do_not_go_together_are_refused(folder, options, sentence) -> None:
    one_sentence(fitted(folder, *options), sentence)


@cache
def best() -> mh.Solution:
    """A fit of values by the best action with a tenth of lapses."""
    mdp, _, features = savings()
    frame = decisions("max", 0.1, 0.0, 2, each=600)
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(frame, cut_off=True), features=features)
    return mh.solve(problem, mh.MaximumLikelihood(value="max", lapse=0.1, starts=2, deviations=0.0))


def test_predictions_plan_and_lapse_as_the_fit_does() -> None:
    mdp, _, features = savings()
    found = mh.predict(best(), pay={("5", "0"): 1.0}, forbid={"0": "0"}, draws=20)
    np.testing.assert_allclose(found.before, best().policies(), atol=1e-9)
    reward = (features @ best().reward).reshape(2, 6).T
    reward[5, 0] += 1.0
    for k, discount in enumerate(best().discounts):
        moves = np.stack([mdp.transition(action).toarray() for action in (0, 1)])
        values = np.zeros(6)
        for _ in range(20_000):
            q = reward + discount * (moves @ values).T
            q[0, 0] = -np.inf
            values = q.max(axis=1)
        chances = np.exp(q - values[:, None])
        chances /= chances.sum(axis=1, keepdims=True)
        left = np.where(np.isfinite(q), 1.0, 0.0)
        np.testing.assert_allclose(found.after[k], 0.9 * chances + 0.1 * left / left.sum(axis=1, keepdims=True), atol=1e-6)
    assert any("Lapses stay as they were fitted: 10%" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda: mh.nudge(best(), state="5"), "nudge"),
        (lambda: mh.design(None, best(), episodes=50), "a design"),
        (lambda: mh.compare_goals(best()), "a comparison of goals"),
        (lambda: mh.compare_lookahead(best().problem, best().problem.tables, solver=mh.MaximumLikelihood(lapse=0.1)), "families"),
    ],
)
def test_what_needs_soft_values_says_so(ask, what) -> None:
    with pytest.raises(ValueError, match=f"{what}.* needs? .*soft values and neither lapses nor stickiness"):
        ask()


def test_tests_after_a_fit_that_is_not_soft() -> None:
    assert "the test needs soft values" in shared_goal_test(best()).reason
    assert 0 <= mh.shared_discount_test(best()).p_value <= 1
    assert mh.check_model(best()).overall.p_value > 0


def test_a_population_is_followed_and_predicted_as_it_was_fitted() -> None:
    game, problem = mh.domains.space_adventure(), players(0.15)
    solution = mh.solve(problem, mh.Population(known_reward=game.reward, value="max", lapse=0.15, nodes=5))
    found = mh.predict(solution, discount=0.5, draws=20)
    np.testing.assert_allclose(found.before, solution.policies(), atol=1e-9)
    assert found.after[found.change.mdp.live[None] & (found.after > 0)].min() >= 0.15 / 2 - 1e-9
    state = game.mdp.state_names[int(np.flatnonzero(game.mdp.available.sum(axis=1) > 1)[0])]
    action = game.mdp.action_names[int(np.flatnonzero(game.mdp.available[game.mdp.state_names.index(state)])[0])]
    soft = replace(solution, evidence=replace(solution.evidence, planner=None))
    one, other = (mh.track(each).update(state, action).discount for each in (solution, soft))
    assert np.isfinite(one)
    assert abs(one - other) > 1e-6


def test_rivals_are_asked_with_the_fit(folder) -> None:
    plain = fitted(folder, "--quick", "--out", folder / "plain")
    assert "This answer rests on one model of choice, soft values without lapses. Rivals of it were not asked." in plain.stdout
    assert "Add --rivals to ask them." in plain.stdout
    assert json.loads((folder / "plain" / "result.json").read_text())["robustness"] is None
    asked = fitted(folder, "--quick", "--rivals", "--out", folder / "asked")
    assert asked.exit_code == 0, asked.output
    assert "rests on one model" not in asked.stdout
    content = json.loads((folder / "asked" / "result.json").read_text())
    assert set(content["robustness"]) >= {"the fit", "values by the best action", "lapses", "stickiness"}
    assert set(content["robustness"]["lapses"]) >= {"discounts", "held_out", "conclusion"}
    assert content["rests_on"] in asked.stdout
    page = (folder / "asked" / "report.html").read_text()
    assert content["rests_on"] in page
    assert "How well each model predicts what was held out" in page
    assert 'opacity="0.35"' in page  # of those that predict worse


def test_rivals_are_asked_of_a_folder(folder) -> None:
    if not (folder / "plain" / "task.npz").exists():
        fitted(folder, "--quick", "--out", folder / "plain")
    out = folder / "rivals"
    result = RUN.invoke(app, ["robustness", str(folder / "plain"), "--quick", "--out", str(out)])
    assert result.exit_code == 0, result.output
    content = json.loads((out / "robustness.json").read_text())
    assert result.stdout.startswith(content["verdict"])
    assert content["robustness"]["lapses"]["held_out"] is None
    assert "fit --rivals does both" in result.stdout
    page = (out / "robustness.html").read_text()
    assert page.index(content["verdict"]) < page.index("The same question under each model")
    assert len(pd.read_csv(out / "robustness.csv")) == 3 * len(content["robustness"])


def test_rivals_of_what_is_no_fit_are_refused(tmp_path) -> None:
    one_sentence(RUN.invoke(app, ["robustness", str(tmp_path)]), "a folder without result.json")


def test_studies_are_simulated_and_fitted_as_the_pilot_was() -> None:
    found = mh.simulate_study(best(), decisions=[], studies=2)
    assert found.sizes[0].studies == 2
    with pytest.raises(ValueError, match="a simulated study needs neither stickiness"):
        mh.simulate_study(best().problem, mh.MaximumLikelihood(stickiness=0.1), studies=2)


def test_a_bootstrap_refits_lapses_and_stickiness() -> None:
    sticky = mh.solve(best().problem, mh.MaximumLikelihood(stickiness=0.1, starts=1))
    assert mh.bootstrap(sticky, draws=2).discounts.shape == (2, 3)
    with pytest.raises(ValueError, match='must be "parametric"'):
        mh.bootstrap(sticky, draws=2, kind="episodes")
