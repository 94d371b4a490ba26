"""Tables with names of their own: columns with other names or in several parts, and the labels of two laboratories."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.data.counting import CountedFiles
from multihorizon.data.reading import scan_files
from multihorizon.data.steps import Steps

MEADOW = mh.domains.meadow()
WALKS = mh.Demonstrations.simulate(MEADOW.mdp, MEADOW.soft_experts(), 30, names=["Ann", "Ben", "Cleo"]).to_frame()
COLUMNS = {"expert": "person", "episode": "walk", "state": ["row", "column"], "action": "move"}
TYPED = "expert=person, episode=walk,state=row+column,action=move"


@pytest.fixture
def own() -> pd.DataFrame:
    """The same walks under other names, with each state in two columns, and a column called state that is something else."""
    parts = {"row": WALKS.state.str[0], "column": WALKS.state.str[1:].astype(int)}
    parts |= {"next_row": WALKS.next_state.str[0], "next_column": WALKS.next_state.str[1:].astype(int)}
    others = {"person": WALKS.expert, "walk": WALKS.episode, "step": WALKS.step, "move": WALKS.action, "state": "tired"}
    return pd.DataFrame({**others, **parts})


@pytest.mark.parametrize("kind", ["csv", "parquet", "large", "frame"])
def test_columns_may_have_other_names_and_states_several_columns(kind, own, tmp_path) -> None:
    path = tmp_path / f"log.{'parquet' if kind == 'parquet' else 'csv'}"
    own.to_parquet(path) if kind == "parquet" else own.to_csv(path, index=False)
    if kind == "frame":
        table = mh.Demonstrations.from_frame(own, columns=COLUMNS)
    elif kind == "large":
        table = CountedFiles(scan_files(str(path), [path]).called(COLUMNS)).rows
    else:
        table = mh.Demonstrations.from_files(path, columns=COLUMNS)
    joined = WALKS.assign(**{name: WALKS[name].str[0] + ", " + WALKS[name].str[1:] for name in ("state", "next_state")})
    assert table.same_decisions(mh.Demonstrations.from_frame(joined))


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("check", []),
        ("identify", []),
        ("compare", ["--condition", "noise"]),
        pytest.param("goals", ["--simulations", "19"], marks=pytest.mark.slow),
        pytest.param("recover", ["--studies", "2", "--decisions", "200"], marks=pytest.mark.slow),
    ],
)
def test_every_command_that_reads_decisions_takes_own_columns(command, more, own, tmp_path) -> None:
    own.assign(noise="low").to_csv(tmp_path / "log.csv", index=False)
    result = CliRunner().invoke(app, [command, str(tmp_path / "log.csv"), *more, "--columns", TYPED])
    assert "must have the column" not in result.output, result.output
    assert result.exit_code == (2 if command == "compare" else 0), result.output  # compare needs two conditions


def test_a_fit_takes_own_columns_and_keeps_them(own, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    own.to_csv("log.csv", index=False)
    kept = CliRunner().invoke(app, ["fit", "log.csv", "--quick", "--deviations", "0", "--columns", TYPED, "--out", "result"])
    assert kept.exit_code == 0, kept.output
    assert json.loads((tmp_path / "result" / "result.json").read_text())["options"]["columns"] == TYPED


def test_tables_beside_the_decisions_may_use_the_same_names(own, tmp_path, monkeypatch) -> None:
    """Transitions, a known reward, people and groups, each by its own columns and by the standard ones."""
    monkeypatch.chdir(tmp_path)
    own.to_csv("log.csv", index=False)
    rows = MEADOW.mdp.stacked.tocoo()
    action, state = np.divmod(rows.coords[0], MEADOW.mdp.n_states)
    names = np.array(MEADOW.mdp.state_names)
    parts = {"row": names[state].astype("U1"), "column": [name[1:] for name in names[state]]}
    parts |= {"move": np.array(MEADOW.mdp.action_names)[action], "next_row": names[rows.coords[1]].astype("U1")}
    parts |= {"next_column": [name[1:] for name in names[rows.coords[1]]], "probability": rows.data}
    pd.DataFrame(parts).to_csv("moves.csv", index=False)
    cells = {"row": names.astype("U1"), "column": [name[1:] for name in names], "points": MEADOW.reward}
    pd.DataFrame(cells).to_csv("points.csv", index=False)
    standard = pd.DataFrame({"state": [f"{name[0]}, {name[1:]}" for name in names], "points": MEADOW.reward})
    standard.to_csv("standard.csv", index=False)
    pd.DataFrame({"person": ["Ann", "Ben", "Cleo"], "group": ["near", "near", "far"]}).to_csv("who.csv", index=False)
    typed = ["fit", "log.csv", "--columns", TYPED, "--transitions", "moves.csv", "--quick", "--groups", "who.csv"]
    both = [CliRunner().invoke(app, [*typed, "--known-reward", file]) for file in ("points.csv", "standard.csv")]
    assert [one.exit_code for one in both] == [0, 0], both[0].output + both[1].output
    assert both[0].stdout == both[1].stdout


def test_a_table_that_check_wrote_is_read_without_columns_and_a_message_says_so(own, tmp_path) -> None:
    own.to_csv(tmp_path / "log.csv", index=False)
    fixed = tmp_path / "fixed.csv"
    assert CliRunner().invoke(app, ["check", str(tmp_path / "log.csv"), "--columns", TYPED, "--write", str(fixed)]).exit_code == 0
    assert CliRunner().invoke(app, ["check", str(fixed)]).exit_code == 0
    result = CliRunner().invoke(app, ["fit", str(fixed), "--columns", TYPED])
    assert result.exit_code == 2
    assert "the table has the standard names, so leave out --columns" in result.output


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("expert=persn", "must have the column persn, which is to be expert"),
        ("player=person", "--columns must name expert, episode, step, state, action, next_state"),
        ("expert", "--columns must be NAME=COLUMN"),
        ("state=row+", "--columns must be NAME=COLUMN"),
        ("", "--columns must be NAME=COLUMN"),
        ("expert=person,expert=walk", "each NAME once"),
        ("expert=person", "got none named episode, action"),
    ],
)
def test_a_wrong_name_is_one_sentence(typed, said, own, tmp_path) -> None:
    own.to_csv(tmp_path / "log.csv", index=False)
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "log.csv"), "--columns", typed])
    assert result.exit_code == 2
    assert said in result.output
    assert len(result.output.splitlines()) == 1


def test_labels_that_could_be_joined_in_two_ways_are_refused(own, tmp_path) -> None:
    own["row"] = "A, 1"
    own.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(ValueError, match="must not contain ', ' to be joined"):
        mh.Demonstrations.from_files(tmp_path / "log.csv", columns=COLUMNS)
    with pytest.raises(ValueError, match="must not contain ', ' to be joined"):
        mh.Demonstrations.from_frame(own, columns=COLUMNS)


def test_an_error_in_a_row_says_how_to_check_a_table_with_own_columns(own, tmp_path) -> None:
    own.loc[3, "move"] = np.nan
    own.to_csv(tmp_path / "log.csv", index=False)
    result = CliRunner().invoke(app, ["fit", str(tmp_path / "log.csv"), "--columns", TYPED])
    assert "line 5" in result.output
    assert f"--columns '{TYPED}' lists every problem" in result.output


def test_vectors_too_may_stand_beside_own_names(tmp_path) -> None:
    frame = pd.DataFrame({"who": ["a", "a", "b"], "run": 0, "step": [0, 1, 0], "did": ["l", "r", "l"], "x": [0.1, 0.2, 0.3]})
    frame.to_csv(tmp_path / "log.csv", index=False)
    steps = Steps.from_file(tmp_path / "log.csv", ["x"], {"expert": "who", "episode": "run", "action": "did"})
    assert steps.experts == ("a", "b")


@pytest.fixture
def two_laboratories(tmp_path):
    """The files of two laboratories with other words for the same moves, and the table that says which are the same."""
    words = {"up": "north", "down": "south", "left": "west", "right": "east"}
    ours, theirs = WALKS[WALKS.expert != "Cleo"], WALKS[WALKS.expert == "Cleo"]
    ours.to_csv(tmp_path / "ours.csv", index=False)
    theirs.assign(action=theirs.action.map(words)).to_csv(tmp_path / "theirs.csv", index=False)
    rows = [("action", new, old) for old, new in words.items()]
    pd.DataFrame(rows, columns=["column", "label", "new_label"]).to_csv(tmp_path / "labels.csv", index=False)
    return tmp_path


def test_two_vocabularies_become_one_file(two_laboratories, monkeypatch) -> None:
    monkeypatch.chdir(two_laboratories)
    typed = ["check", "ours.csv", "theirs.csv", "--same-task"]
    before = CliRunner().invoke(app, typed).output
    assert "no actions in common" in before
    assert "--recode" in before
    result = CliRunner().invoke(app, [*typed, "--recode", "labels.csv", "--write", "both.csv"])
    assert result.exit_code == 0, result.output
    assert "no actions in common" not in result.output
    assert f"{int((WALKS.expert == 'Cleo').sum()):,} cells of action given another label." in result.output
    assert mh.Demonstrations.from_files("both.csv").same_decisions(mh.Demonstrations.from_frame(WALKS))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("action,nroth,up", "must have the action 'nroth' to give it the label 'up': is it 'north'?"),
        ("move,north,up", "line 6: column must be one of expert, state, action, got move"),
        ("action,north,down", "line 6: action north must have one new label, got both up and down"),
    ],
)
def test_wrong_new_labels_are_one_sentence(row, said, two_laboratories, monkeypatch) -> None:
    monkeypatch.chdir(two_laboratories)
    with open("labels.csv", "a") as file:
        file.write(f"{row}\n")
    result = CliRunner().invoke(app, ["check", "ours.csv", "theirs.csv", "--same-task", "--recode", "labels.csv"])
    assert result.exit_code == 2
    assert said in result.output
