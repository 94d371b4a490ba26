"""`multihorizon goals`, and the question in `fit` whether these people share a goal."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app

RUN = CliRunner()
NAMES = ["Ann & <Co>", "Bo", "Cy", "Di"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Decisions of four people with two goals, and of three with one."""
    folder = tmp_path_factory.mktemp("inputs")
    mdp = mh.domains.random_mdp(6, 3, seed=0)
    rewards = 2 * np.random.default_rng(0).normal(size=(2, 6))
    discounts = (0.2, 0.9, 0.6, 0.4)
    for name, goals in (("two", (0, 1, 0, 1)), ("one", (0, 0, 0))):
        told = zip(goals, discounts, strict=False)
        policies = [mh.soft_plan(mdp, rewards[g], gamma).policy for g, gamma in told]
        table = mh.Demonstrations.simulate(mdp, policies, 40, max_steps=50, names=NAMES[: len(goals)])
        table.to_frame().to_csv(folder / f"{name}.csv", index=False)
    mdp.to_npz(folder / "mdp.npz")
    return folder


def run(command, *arguments):
    result = RUN.invoke(app, [command, *(str(a) for a in arguments)])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_goals_writes_groups_and_a_report(folder, tmp_path, golden):
    said = run("goals", folder / "two.csv", "--transitions", folder / "mdp.npz", "--temperature", "shared", "--out", tmp_path)
    golden(said)
    content = json.loads((tmp_path / "goals.json").read_text(encoding="utf-8"))
    assert content["groups"] == [["Ann & <Co>", "Cy"], ["Bo", "Di"]]
    assert content["verdict"] == "differ"
    assert content["options"]["temperature"] == "shared"
    assert np.shape(content["memberships"]) == (4, 2)
    page = (tmp_path / "goals.html").read_text(encoding="utf-8")
    assert '<p class="answer">' in page
    assert 'aria-label="How likely each expert shares each goal. Ann &amp; &lt;Co&gt; shares goal 1: 100%' in page
    assert "Ann &amp; &lt;Co&gt;" in page
    assert '<th class="short" scope="col">goal 1</th>\n<th class="short" scope="col">goal 2</th>' in page
    golden(page)


@pytest.mark.slow
def test_fit_says_that_goals_differ_and_what_to_do(folder, tmp_path, golden):
    said = run("fit", folder / "two.csv", "--transitions", folder / "mdp.npz", "--out", tmp_path)
    golden(said)
    content = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert content["goals"]["found"]["groups"] == [["Ann & <Co>", "Cy"], ["Bo", "Di"]]
    golden(*content["warnings"], *content["collect_next"])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    golden(page)
    one = tmp_path / "one reward"
    run("fit", folder / "two.csv", "--transitions", folder / "mdp.npz", "--deviations", "0", "--out", one)
    page = (one / "report.html").read_text(encoding="utf-8")
    assert "One reward for all experts is rejected, so what it makes best must not be believed either." in page


@pytest.mark.slow
def test_fit_has_one_line_where_nothing_speaks_against_one_goal(folder, tmp_path, golden):
    said = run("fit", folder / "one.csv", "--transitions", folder / "mdp.npz", "--out", tmp_path)
    golden(said)
    content = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert content["goals"]["p_value"] > 0.05
    assert content["goals"]["found"] is None
    assert not any("goal" in text for text in content["warnings"])


def test_one_decision_says_nothing_and_is_no_crash(tmp_path):
    (tmp_path / "one.csv").write_text("expert,episode,step,state,action,next_state\nann,0,0,x,go,y\n")
    assert "is not identified" in run("goals", tmp_path / "one.csv")
    row = next(line for line in run("fit", tmp_path / "one.csv").splitlines() if "ann" in line)
    assert "nan" not in row


@pytest.mark.slow
def test_fit_and_goals_give_one_test_of_one_reward(folder, tmp_path):
    run("demo", "--out", tmp_path / "demo")
    demo = tmp_path / "demo"
    tables = {folder / "two.csv": folder / "mdp.npz", demo / "decisions.csv": demo / "meadow.npz"}
    for number, (table, moves) in enumerate(tables.items()):
        run("fit", table, "--transitions", moves, "--quick", "--out", tmp_path / f"fit {number}")
        said = run("goals", table, "--transitions", moves, "--out", tmp_path / f"goals {number}")
        fit = json.loads((tmp_path / f"fit {number}" / "result.json").read_text(encoding="utf-8"))["goals"]
        goals = json.loads((tmp_path / f"goals {number}" / "goals.json").read_text(encoding="utf-8"))
        assert goals["test"]["p_value"] == fit["p_value"]
        assert (fit["p_value"] > 0.05) == (number == 1)
    bound = fit["answer"].partition(". Their")[2]  # of the demo, whose people share a goal
    assert bound
    assert bound in said
