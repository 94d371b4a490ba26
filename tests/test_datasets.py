"""Recordings of people, read from the files of the repository that publishes them."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app


def write_recording(
    folder: Path, number: int, policy: np.ndarray, task: mh.domains.SpaceAdventure, cut: bool = False
) -> list[tuple]:
    """Play the task, write what the experiment's program would have written, and return the decisions."""
    rng = np.random.default_rng(number)
    blocks = task.starts.size
    states = np.full((blocks, 4), np.nan)
    keys = np.full((blocks, 3), np.nan)
    points = np.full((blocks, 3), np.nan)
    planets = np.empty((blocks, 6))
    noise = np.empty(blocks, dtype=object)
    travels = np.empty((blocks, 1))
    total = 1000.0
    decisions = []
    for block, start in enumerate(task.starts):
        name = task.mdp.state_names[start].split()
        planets[block] = [int(digit) for digit in name[0]]
        noise[block] = name[1]
        travels[block] = int(name[2])
        state = int(start)
        for step in range(int(name[2])):
            at = int(task.mdp.state_names[state].split()[3][1:])
            action = int(rng.random() > policy[state, 0])
            states[block, step], keys[block, step] = at, action + 1
            jump = {1: 5, 2: 4, 3: 5, 4: 6, 5: 2, 6: 2}[at]
            shift = rng.choice([0, -1, 1], p=[0.9, 0.05, 0.05] if name[1] == "low" else [0.5, 0.25, 0.25])
            landed = at % 6 + 1 if action == 0 else (jump - 1 + shift) % 6 + 1
            total += (-20, -10, 0, 10, 20)[int(planets[block, landed - 1]) - 1] - (2, 5)[action]
            states[block, step + 1], points[block, step] = landed, total
            left = int(name[2]) - step - 1
            value = (-20, -10, 0, 10, 20)[int(planets[block, landed - 1]) - 1]
            after = f"{name[0]} {name[1]} {left} p{landed}" if left else (f"end {value:+d}" if value else "end 0")
            decisions.append((f"p{number}", block + 1, step, task.mdp.state_names[state], ("move", "jump")[action], after))
            state = task.mdp.state_names.index(after)
    if cut:  # the last landing and everything after it was not recorded
        states[-1, int(travels[-1, 0])] = np.nan
        decisions[-1] = (*decisions[-1][:5], None)
    responses = {"Keys": keys, "RT": np.ones_like(keys)}
    conditions = {"noise": noise, "notrials": travels}
    recording = {"Conditions": conditions, "States": states, "PlanetConf": planets, "Points": points, "Responses": responses}
    recording["Participant"] = {"Age": 20 + number, "Gender": "female"}
    savemat(folder / f"part_{number}_20-Jun-2018.mat", {"data": recording})
    return decisions


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> tuple[mh.datasets.RecordedStudy, list[tuple], Path]:
    clone = tmp_path_factory.mktemp("clone")
    folder = clone / "examples" / "plandepth" / "data"
    folder.mkdir(parents=True)
    task = mh.domains.space_adventure(mini_blocks=40, seed=3)
    far = mh.soft_plan(task.mdp, task.reward, 0.95, 4.0).policy
    near = mh.soft_plan(task.mdp, task.reward, 0.1, 4.0).policy
    rows = []
    for number, policy in ((9, near), (23, far), (101, far)):
        rows += write_recording(folder, number, policy, task, cut=number == 101)
    return mh.datasets.space_adventure(clone), rows, clone


def test_decisions_are_those_that_were_played(study: tuple[mh.datasets.RecordedStudy, list[tuple], Path]) -> None:
    read, rows, clone = study
    table = read.decisions.astype(object).where(read.decisions.notna(), None)
    assert [tuple(row) for row in table.itertuples(index=False)] == rows
    assert read.persons["expert"].tolist() == ["p9", "p23", "p101"]
    assert read.persons["decisions"].tolist() == [100, 100, 100]
    assert read.persons["age"].tolist() == [29, 43, 121]
    assert len(read.episodes) == 120
    assert set(read.episodes["noise"]) == {"low", "high"}
    again = mh.datasets.space_adventure(clone / "examples" / "plandepth" / "data")
    assert again.decisions.equals(read.decisions)


def test_rules_are_those_of_the_task(study: tuple[mh.datasets.RecordedStudy, list[tuple], Path]) -> None:
    read, _, _ = study
    by_decision = read.transitions.groupby(["state", "action"])["probability"]
    assert np.allclose(by_decision.sum(), 1.0)
    jumps = read.transitions[(read.transitions["action"] == "jump") & read.transitions["state"].str.contains("low 2")]
    assert {0.05, 0.9} <= set(jumps["probability"].round(12))
    # landing on a planet of 10 points for 2 points of fuel
    certain = read.features[(read.features["planet +10"] == 1) & (read.features["action"] == "move")]
    paid = certain.merge(read.points, on=["state", "action"])["points"]
    assert len(paid)
    assert np.allclose(paid, 8.0)


def test_a_fit_of_the_tables_tells_who_looks_far(
    study: tuple[mh.datasets.RecordedStudy, list[tuple], Path], tmp_path: Path
) -> None:
    read, _, _ = study
    read.to_csv(tmp_path)
    source = (tmp_path / "SOURCE.txt").read_text()
    assert "pybefit" in source
    assert "MIT" in source
    words = ["fit", str(tmp_path / "decisions.csv"), "--transitions", str(tmp_path / "transitions.csv")]
    words += ["--known-reward", str(tmp_path / "features_points.csv"), "--quick", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    solution = mh.load(tmp_path / "out")
    discounts = dict(zip(solution.experts, solution.discounts, strict=True))
    assert discounts["p9"] < discounts["p23"]


def test_an_empty_folder_says_what_to_clone(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no recordings part_\*\.mat: clone https://github\.com/dimarkov/pybefit"):
        mh.datasets.space_adventure(tmp_path)


def test_a_file_of_another_form_is_named(tmp_path: Path) -> None:
    savemat(tmp_path / "part_1_x.mat", {"other": np.ones(3)})
    with pytest.raises(ValueError, match=r"part_1_x\.mat is not a recording"):
        mh.datasets.space_adventure(tmp_path)
    (tmp_path / "part_1_x.mat").write_bytes(b"not a file of numbers")
    with pytest.raises(ValueError, match=r"part_1_x\.mat is not a recording"):
        mh.datasets.space_adventure(tmp_path)
