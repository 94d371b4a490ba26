"""`multihorizon fit --state`: tables of vectors on the command line."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.analysis import SampledAnalysis, not_to_be_used, person_cells
from multihorizon.cli import app
from multihorizon.report.files import write_sampled
from multihorizon.report.fit_page import fit_page


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("steps") / "steps.csv"
    mh.domains.navigation({"ann": 0.3, "bob": 0.9}).simulate(2000, seed=4).to_csv(path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_a_table_of_vectors_is_fitted(table, tmp_path) -> None:
    done = run("fit", table, "--state", "x,y", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "How far do they look ahead?" in done.output
    assert "Do they share a goal? This was not tested: there is no test of it yet for states that are vectors." in done.output
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["experts"] == ["ann", "bob"]
    assert result["headline"].startswith("Do they share a goal? This was not tested")
    assert result["discounts"][0] < result["discounts"][1]
    assert result["status"] == "converged"
    assert all(low <= gamma <= high for gamma, (low, high) in zip(result["discounts"], result["intervals"], strict=True))
    assert len(result["reward"]) == result["evidence"]["functions"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Reward over x and y" in page
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "people.csv",
        "report.html",
        "result.json",
        "reward.csv",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--state", "x,z"], "received none named z"),
        (["--state", "x,,y"], "must name columns separated by commas"),
        (["--state", "x,y", "--ridge", "1"], "--state must come without --ridge"),
        (["--state", "x,y", "--discount", "zoe=0.5"], "no expert of that name"),
        (["--state", "x,step"], "other columns"),
        (["--state", "x,y", "--pairs"], "--state must come without --pairs"),
        (["--state", "x,y", "--smoothing", "2"], "--state must come without --smoothing"),
    ],
)
def test_bad_input_leaves_nothing_behind(table, tmp_path, arguments, sentence: str) -> None:
    done = run("fit", table, *arguments, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert sentence in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_coin_flips_get_no_discounts(tmp_path) -> None:
    """Experts who choose at random are no better than chance in states that are vectors, as in a list of states."""
    rng = np.random.default_rng(0)
    x, action = rng.uniform(-1, 1, 400), rng.integers(0, 2, 400)
    frame = pd.DataFrame({"expert": np.repeat(["ann", "bob"], 200), "episode": np.arange(400), "step": 0, "x": x})
    frame = frame.assign(action=np.where(action, "right", "left"), next_x=x + 0.4 * action - 0.2 + rng.normal(0, 0.05, 400))
    frame.to_csv(tmp_path / "coins.csv", index=False)
    done = run("fit", tmp_path / "coins.csv", "--state", "x", "--quick", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["discounts"] == [None, None]
    assert result["reasons"] == {"ann": "no better than chance", "bob": "no better than chance"}
    assert [(verdict["answer"], verdict["kind"]) for verdict in result["verdicts"][1:]] == [("No", "bad"), ("No", "bad")]
    assert "are no likelier than by chance, so no discount is given" in result["headline"]


def test_people_have_the_same_columns_as_in_a_list_of_states(found) -> None:
    mdp = mh.domains.random_mdp(3, 2, seed=0)
    listed = mh.analyse([mh.Demonstrations.simulate(mdp, [np.full((3, 2), 0.5)] * 2, 5, max_steps=5)], [mdp], quick=True)
    assert found.to_frame().columns.tolist() == listed.to_frame().columns.tolist()
    people = found.to_frame().set_index("expert")
    assert people.loc["ann", "flags"] == "known discount"
    assert (people["decisions"] == 400).all()
    assert people.loc["bob", "discount_low"] <= people.loc["bob", "discount"] <= people.loc["bob", "discount_high"]


@pytest.fixture(scope="module")
def found() -> SampledAnalysis:
    """A small fit in which one discount is known."""
    steps = mh.domains.navigation({"ann": 0.3, "bob": 0.9}).simulate(400, seed=4)
    solver = mh.SieveLikelihood(basis=mh.Splines(4), penalty=0.1, discounts={"ann": 0.3})
    return mh.analyse_steps(steps, solver, quick=True)


def test_a_known_discount_is_called_known_and_is_no_estimate(found) -> None:
    assert person_cells(found, 0)[:3] == ("1.4", "0.3", "known")
    assert person_cells(found, 1)[2] != "known"
    page = fit_page(found, {}).render()
    assert "0.300 to 0.300" not in page
    assert ">known<" in page


def test_a_fit_without_a_maximum_gives_no_numbers_and_blames_no_data(found, tmp_path) -> None:
    solution = replace(found.solution, status=mh.Status.NOT_CONVERGED)
    broken = replace(found, solution=solution, withheld=not_to_be_used(solution))
    answers = [verdict.answer for verdict in broken.verdicts]
    assert answers == ["No usable answer", "Not with this fit", "Not with this fit"]
    assert broken.headline.startswith("Do not use these numbers. The fit did not finish")
    write_sampled(tmp_path, broken, {})
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["discounts"] == [None, None]
    assert set(content["reward"].values()) == {None}
    assert np.isnan(np.genfromtxt(tmp_path / "reward.csv", delimiter=",", skip_header=1)[:, -2:]).all()
