"""One list of rules for tables of decisions: every way to read a table says the same of it, and `check` lists it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_large_tables import COLUMNS, DOMAIN, count

import multihorizon as mh
from multihorizon.data.check import check_table, write_mended
from multihorizon.data.rules import CELLS, ENDS, ORDER, TableError

RULES = {rule.kind: rule for rule in (*CELLS, *ORDER, *ENDS)}


def refusal(read) -> TableError | None:
    try:
        read()
    except TableError as error:
        return error
    return None


def walks() -> pd.DataFrame:
    return mh.Demonstrations.simulate(DOMAIN.mdp, DOMAIN.soft_experts(), 4, 1, 12, names=["b", "a", "10"]).to_frame()


def damaged(seed: int) -> pd.DataFrame:
    """A shuffled table with up to four faults of several kinds."""
    rng = np.random.default_rng(seed)
    table = walks().astype(object)
    for _ in range(int(rng.integers(1, 5))):
        row, column = rng.choice(table.index), rng.choice(COLUMNS)
        fault = rng.integers(4)
        if fault == 0:
            table = table.drop(index=row)
        elif fault == 1:
            table = pd.concat([table, table.loc[[row]].assign(state="11")], ignore_index=True)
        else:
            table.loc[row, column] = [None, " ", "1.5", table.loc[rng.choice(table.index), column]][rng.integers(4)]
    return table.sample(frac=1, random_state=seed)


@pytest.mark.parametrize("seed", range(12))
def test_every_road_raises_the_same_and_check_lists_it(seed, tmp_path, monkeypatch) -> None:
    path = tmp_path / "d.csv"
    damaged(seed).to_csv(path, index=False)
    frame = pd.read_csv(path, dtype=str)
    refused = [
        refusal(lambda: mh.Demonstrations.from_csv(path)),
        refusal(lambda: count(path, monkeypatch)),
        refusal(lambda: mh.Demonstrations.from_frame(frame)),
    ]
    findings = {finding.kind: finding for finding in check_table(path).findings if finding.kind in RULES}
    loaded = refused[0]
    if loaded is None:
        assert refused == [None] * 3
        assert not findings
        return
    assert str(refused[1]) == str(loaded)
    assert refused[1].kind == refused[2].kind == loaded.kind
    assert all(str(error).endswith(RULES[loaded.kind].remedy) for error in refused)
    finding = findings[loaded.kind]
    assert finding.stops
    assert finding.count > len(finding.places) or any(place in str(loaded) for place in finding.places)
    assert loaded.kind == next(kind for kind in RULES if kind in findings)


STEPS = {
    "blank expert": {"expert": None},
    "blank action": {"action": None},
    "step": {"step": "two"},
    "blank state": {"x": "far"},
    "unseen next_state": {"next_x": "far"},
    "terminated": {"terminated": 2},
    "duplicate step": {"step": 1},
    "gap": {"step": 7},
    "goes on": {"terminated": 1},
    "next_state": {"next_x": 9.0},
}


@pytest.mark.parametrize("kind", STEPS)
def test_steps_and_check_ask_the_same_of_vectors(kind, tmp_path) -> None:
    steps = pd.DataFrame({"expert": "ann", "episode": 0, "step": range(4), "action": list("abab"), "x": [0.0, 1.0, 2.0, 3.0]})
    steps = steps.assign(next_x=[1.0, 2.0, 3.0, np.nan], terminated=0).astype(object)
    for column, value in STEPS[kind].items():
        steps.loc[2, column] = value
    steps.to_csv(tmp_path / "d.csv", index=False)
    error = refusal(lambda: mh.Steps.from_file(tmp_path / "d.csv", ["x"]))
    assert error is not None
    assert error.kind == kind
    assert error.state == ("x",)
    assert str(error).endswith(RULES[kind].remedy)
    (finding,) = (finding for finding in check_table(tmp_path / "d.csv", vector=["x"]).findings if finding.kind == kind)
    assert finding.places[0] in str(error)


def test_rows_that_are_repeated_and_incomplete_are_fixed_together(tmp_path) -> None:
    """A repeated row whose state is blank is one decision; its state is where the step before it led."""
    rows = [("a", 0, 0, "x", "go", "y"), *[("a", 0, 1, None, "go", "z")] * 2, ("a", 0, 2, "z", "go", "x")]
    pd.DataFrame(rows, columns=COLUMNS).to_csv(tmp_path / "d.csv", index=False)
    write_mended(check_table(tmp_path / "d.csv"), tmp_path / "fixed.csv")
    assert mh.Demonstrations.from_csv(tmp_path / "fixed.csv").to_frame()["state"].tolist() == ["x", "y", "z"]


def test_a_name_that_is_too_long_is_refused_of_large_tables_too(tmp_path, monkeypatch) -> None:
    walks().assign(episode="e" * 1200).drop_duplicates(["expert"]).assign(step=0).to_csv(tmp_path / "d.csv", index=False)
    with pytest.raises(TableError, match="line 2: column episode must have at most 1,000 letters"):
        count(tmp_path / "d.csv", monkeypatch)


@pytest.mark.parametrize("path", sorted(Path(mh.__file__).parent.glob("data/*.py")), ids=lambda path: path.stem)
def test_what_is_said_of_tables_names_no_option_of_the_command_line(path) -> None:
    assert re.findall(r"(?<![\w-])--[a-z][a-z-]+", path.read_text(encoding="utf-8")) == []
