"""`multihorizon compare`: fitted under one condition, a horizon predicts another."""

import json
from html import escape

import numpy as np
import pandas as pd
import pytest
from tiny import PAYS, three_steps
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app

RUN = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Decisions of four people under two conditions, with the condition beside them and in a table of its own."""
    folder = tmp_path_factory.mktemp("inputs")
    mdp = three_steps()
    policies = [mh.soft_plan(mdp, 3 * PAYS, gamma).policy for gamma in (0.1, 0.4, 0.7, 1.0)]
    rows = mh.Demonstrations.simulate(mdp, policies, 20, names=["Ann & <Co>", "Bo", "Cy", "Di"]).to_frame()
    rows["noise"] = np.where(rows["episode"].astype(int) % 2, "high", "low")
    rows.to_csv(folder / "noisy.csv", index=False)
    rows.drop(columns="noise").to_csv(folder / "plain.csv", index=False)
    episodes = rows.drop_duplicates(["expert", "episode"])[["expert", "episode", "noise"]]
    episodes.to_csv(folder / "episodes.csv", index=False)
    mdp.to_npz(folder / "mdp.npz")
    pd.DataFrame({"state": range(8), "points": 3 * PAYS}).to_csv(folder / "points.csv", index=False)
    return folder


def run(folder, *arguments, code=0):
    files = "--transitions", folder / "mdp.npz", "--known-reward", folder / "points.csv"
    result = RUN.invoke(app, ["compare", *map(str, (*arguments, *files))])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.slow
def test_compare_writes_one_table_one_picture_and_a_verdict(folder, tmp_path):
    said = run(folder, folder / "noisy.csv", "--condition", "noise", "--out", tmp_path)
    assert "Does a horizon belong to the person or to the situation?" in said
    assert "A horizon carried from high to low predicts" in said
    content = json.loads((tmp_path / "compare.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert content["levels"] == ["high", "low"]
    assert content["options"]["condition"] == "noise"
    assert content["options"]["known_reward"] == "points.csv"
    table = pd.read_csv(tmp_path / "compare.csv")
    assert table["from"].tolist() == ["high", "low"]
    assert table["chance"].to_numpy() == pytest.approx(-np.log(2))
    assert table["own"].tolist() == pytest.approx([pair["log_likelihood"]["own"] for pair in content["pairs"]])
    page = (tmp_path / "compare.html").read_text(encoding="utf-8")
    assert page.count("<figure") == page.count('<svg class="chart" role="img"') == 1
    assert 'text-anchor="end">high → low</text>' in page
    assert page.count("discounts of people under high and low correlate by") == 1  # what the answer says is not said again
    assert f'<p class="answer">{escape(content["answer"]["answer"])}. ' in page
    beside = run(
        folder,
        folder / "plain.csv",
        "--episodes",
        folder / "episodes.csv",
        "--condition",
        "noise",
        "--jobs",
        2,
        "--out",
        tmp_path,
    )
    assert beside.splitlines()[-6:] == said.splitlines()[-6:]
    again = pd.read_csv(tmp_path / "compare.csv")
    pd.testing.assert_frame_equal(again, table)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["noisy.csv"], "--condition must be the name of a column with the condition of each episode, got none"),
        (["noisy.csv", "--condition", "sound"], "--condition names sound, which no table has"),
        (["plain.csv", "--condition", "noise"], "or give the table of episodes that has it with --episodes FILE"),
        (["noisy.csv", "--condition", "noise", "--episodes", "episodes.csv"], "column noise must be in one table"),
        (["noisy.csv", "--condition", "noise", "--common-discount", "2"], "--common-discount must be"),
    ],
)
def test_what_cannot_be_compared_is_said_in_one_sentence(folder, arguments, words):
    said = run(folder, *(folder / a if a.endswith(".csv") else a for a in arguments), code=2)
    assert words in said
    assert len(said.strip().splitlines()) == 1
