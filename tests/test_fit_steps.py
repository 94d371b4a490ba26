"""`multihorizon fit --state`: tables of vectors on the command line."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.report.sampled_analysis import person_cells
from multihorizon.report.sampled_page import sampled_page
from multihorizon.report.sampled_report import write_sampled


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
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["experts"] == ["ann", "bob"]
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


@pytest.fixture(scope="module")
def found() -> mh.SampledAnalysis:
    """A small fit in which one discount is known."""
    steps = mh.domains.navigation({"ann": 0.3, "bob": 0.9}).simulate(400, seed=4)
    solver = mh.SieveLikelihood(basis=mh.Splines(4), penalty=0.1, discounts={"ann": 0.3})
    return mh.analyse_steps(steps, solver, quick=True)


def test_a_known_discount_is_called_known_and_is_no_estimate(found) -> None:
    assert person_cells(found, 0)[:3] == ("1.4", "0.3", "known")
    assert person_cells(found, 1)[2] != "known"
    page = sampled_page(found, {}).render()
    assert "0.300 to 0.300" not in page
    assert ">known<" in page


def test_a_fit_without_a_maximum_gives_no_numbers_and_blames_no_data(found, tmp_path) -> None:
    broken = replace(found, solution=replace(found.solution, status=mh.Status.NOT_CONVERGED))
    answers = [verdict.answer for verdict in broken.verdicts]
    assert answers == ["Not known", "Not with this fit", "Not with this fit"]
    assert "do not use this result" in broken.headline
    write_sampled(tmp_path, broken, {})
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["discounts"] == [None, None]
    assert set(content["reward"].values()) == {None}
    assert np.isnan(np.genfromtxt(tmp_path / "reward.csv", delimiter=",", skip_header=1)[:, -2:]).all()
