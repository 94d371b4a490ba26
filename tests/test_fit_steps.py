"""`multihorizon fit --state`: tables of vectors on the command line."""

import json

import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app


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
    ],
)
def test_bad_input_leaves_nothing_behind(table, tmp_path, arguments, sentence: str) -> None:
    done = run("fit", table, *arguments, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert sentence in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()
