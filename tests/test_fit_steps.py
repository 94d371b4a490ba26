"""`multihorizon fit --state`: tables of vectors on the command line, and one schema for the files of every fit."""

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.analysis import Analysis
from multihorizon.cli import app
from multihorizon.files import for_json
from multihorizon.questions.fitted import not_to_be_used
from multihorizon.questions.horizons import person_cells
from multihorizon.report.files import result_of, write_fit


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("steps") / "steps.csv"
    mh.domains.navigation({"ann": 0.3, "bob": 0.9}).simulate(800, seed=4).to_csv(path)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.slow
def test_a_table_of_vectors_is_fitted(table, tmp_path, golden) -> None:
    done = run("fit", table, "--state", "x,y", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    golden(done.output)
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["experts"] == ["ann", "bob"]
    golden(result["headline"])
    assert result["discounts"][0] < result["discounts"][1]
    assert result["status"] == "converged"
    assert all(low <= gamma <= high for gamma, (low, high) in zip(result["discounts"], result["intervals"], strict=True))
    assert len(result["reward"]) == result["evidence"]["functions"]
    page = (tmp_path / "out" / "report.html").read_text()
    golden(page)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "people.csv",
        "report.html",
        "result.json",
        "result.npz",
        "reward.csv",
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--state", "x,z"], "got none named z"),
        (["--state", "x,,y"], "must name columns separated by commas"),
        (["--state", "x,y", "--ridge", "1"], "--state must come without --ridge"),
        (["--state", "x,y", "--discount", "zoe=0.5"], "must name experts among"),
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


@pytest.mark.slow
def test_coin_flips_get_no_discounts(tmp_path, golden) -> None:
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
    assert [(verdict["answer"], verdict["kind"]) for verdict in result["verdicts"][1:3]] == [("No", "bad"), ("No", "bad")]
    golden(result["headline"])


@pytest.mark.slow
def test_people_have_the_same_columns_as_in_a_list_of_states(found) -> None:
    mdp = mh.domains.random_mdp(3, 2, seed=0)
    listed = mh.analyse([mh.Demonstrations.simulate(mdp, [np.full((3, 2), 0.5)] * 2, 5, max_steps=5)], [mdp], quick=True)
    assert found.to_frame().columns.tolist() == listed.to_frame().columns.tolist()
    people = found.to_frame().set_index("expert")
    assert people.loc["ann", "flags"] == "known discount"
    assert (people["decisions"] == 400).all()
    assert people.loc["bob", "discount_low"] <= people.loc["bob", "discount"] <= people.loc["bob", "discount_high"]


@pytest.fixture(scope="module")
def found() -> Analysis:
    """A small fit in which one discount is known."""
    steps = mh.domains.navigation({"ann": 0.3, "bob": 0.9}).simulate(400, seed=4)
    solver = mh.SieveLikelihood(basis=mh.Splines(4), penalty=0.1, discounts={"ann": 0.3})
    return mh.analyse(steps, solver=solver, quick=True)


def test_a_known_discount_is_called_known_and_is_no_estimate(found, tmp_path) -> None:
    assert person_cells(found, 0)[:3] == ("0.3", "known", "1.4")
    assert person_cells(found, 1)[1] != "known"
    write_fit(tmp_path, found, {})
    page = (tmp_path / "report.html").read_text()
    assert "0.300 to 0.300" not in page
    assert ">known<" in page


def test_a_fit_without_a_maximum_gives_no_numbers_and_blames_no_data(found, tmp_path) -> None:
    solution = replace(found.solution, status=mh.Status.NOT_CONVERGED)
    broken = replace(found, solution=solution, withheld=not_to_be_used(solution))
    answers = [verdict.answer for verdict in broken.verdicts[:3]]
    assert answers == ["No usable answer", "Not with this fit", "Not with this fit"]
    assert broken.headline.startswith("Do not use these numbers. The fit did not finish")
    write_fit(tmp_path, broken, {})
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["discounts"] == [None, None]
    assert set(content["reward"].values()) == {None}
    assert np.isnan(np.genfromtxt(tmp_path / "reward.csv", delimiter=",", skip_header=1)[:, -2:]).all()


@pytest.mark.slow
def test_the_files_keep_what_they_held_and_are_the_same_for_all_kinds_of_state(found) -> None:
    """Every key and column of version 0.2 is there with the same value; words may be better ones."""
    old = json.loads(Path(__file__).with_name("old_results.json").read_text(encoding="utf-8"))
    cliff = mh.domains.cliff()
    table = mh.Demonstrations.simulate(cliff.mdp, cliff.soft_experts(), 200, names=["ann", "bob", "cy"])
    new = {"lists": mh.analyse(table, [cliff.mdp], quick=True), "vectors": found}
    contents = {kind: json.loads(json.dumps(for_json(result_of(analysis, {})))) for kind, analysis in new.items()}
    assert contents["lists"].keys() == contents["vectors"].keys()
    assert contents["lists"]["schema"] == 2
    in_words = {"headline", "message", "warnings", "verdicts", "verdict", "goals", "identification", "evidence", "residual"}
    for kind, before in old.items():
        assert before["result"].keys() <= contents[kind].keys()
        for key in before["result"].keys() - in_words:
            if key == "known":
                assert before["result"][key]["discounts"] == contents[kind][key]["discounts"]
            elif key == "collect_next":
                advice = [re.findall(r"[\d.,]*\d", " ".join(content[key])) for content in (before["result"], contents[kind])]
                assert advice[1]
                assert set(advice[1]) <= set(advice[0])  # a range of episodes then, the number that is enough for all now
            else:
                assert _alike(before["result"][key], contents[kind][key]), key
        people = pd.read_csv(StringIO(before["people"]))
        pd.testing.assert_frame_equal(people, pd.read_csv(StringIO(new[kind].to_frame().to_csv(index=False))), rtol=1e-4)


def _alike(one, other) -> bool:
    """Return whether two contents of JSON agree, numbers in four digits."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-4, abs=1e-7)
    return one == other


def test_steps_come_without_what_belongs_to_a_list_of_states() -> None:
    steps = mh.domains.navigation({"ann": 0.3, "bob": 0.9}).simulate(50, seed=4)
    with pytest.raises(ValueError, match=r"Steps must come without .* got ridge and population"):
        mh.analyse(steps, ridge=1.0, population=mh.Population("~ 1"))
    with pytest.raises(ValueError, match=r"Steps must come without .* got MaximumLikelihood"):
        mh.analyse(steps, solver=mh.MaximumLikelihood())


def test_the_old_names_still_work_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match="analyse_steps"):
        assert callable(mh.analyse_steps)
    with pytest.warns(DeprecationWarning, match="SampledAnalysis"):
        assert issubclass(mh.SampledAnalysis, Analysis)
