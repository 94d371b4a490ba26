"""`multihorizon fit` with other models of choice, and what may be asked after it."""

import json

import pandas as pd
import pytest
from fitting import fit, one_sentence
from test_planners import decisions, savings


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
    result = fitted(folder, "--stickiness", "estimated", "--quick", "--out", folder / "sticky")
    assert result.exit_code == 0, result.output
    assert "The last action is worth" in result.stdout
    content = json.loads((folder / "sticky" / "result.json").read_text())
    assert content["planner"]["stickiness"]["p"] > 0
    assert content["model_checks"]["worst_states"] == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--value", "hard"), "--value must be one of soft, max, mean, received hard"),
        (("--lapse", "1.5"), "--lapse must be a number from 0 to below 1, or estimated, received 1.5"),
        (("--stickiness", "much"), "--stickiness must be a number, or estimated, received much"),
        (("--stickiness", "estimated", "--formula", "~ 1"), "--stickiness must come without --formula"),
        (("--lapse", "0.1", "--distribution", "types"), "--distribution types must come without --value, --lapse"),
        (("--lapse", "0.1", "--deviations", "0.5"), "personal deviations need"),
        (("--value", "max", "--lookahead", "all"), "families of look-ahead need"),
    ],
)
def test_options_that_do_not_go_together_are_refused(folder, options, sentence) -> None:
    one_sentence(fitted(folder, *options), sentence)
