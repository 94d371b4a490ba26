"""Malformed input to `multihorizon fit`: one clear sentence each, exit code 2, and nothing written."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import pytest
from fitting import fit, one_sentence

#: Rows of the simulated table: its first and its last, and the first of an episode of several steps.
FIRST, SECOND, LAST = 0, -2, -1


def change(column: str, value, row: int = 5) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def changed(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.astype({column: object})
        frame.loc[frame.index[row] if row >= -1 else frame.index[frame["step"] == 1][0] - 1, column] = value
        return frame

    return changed


MALFORMED = {
    "missing column": (lambda f: f.drop(columns="action"), "got none named action"),
    "renamed column": (lambda f: f.rename(columns={"expert": "person"}), "got none named expert"),
    "all columns renamed": (lambda f: f.rename(columns=lambda name: f"my {name}"), "rename or add expert (who decided), episode"),
    "unknown state": (change("next_state", "moon", LAST), "state 'moon' must be one of"),
    "unknown state and action": (lambda f: f.assign(state="s" + f["state"], next_state="s" + f["next_state"]), "must be one of"),
    "unknown action": (change("action", "jump"), "action 'jump' must be one of"),
    "gap in the steps": (lambda f: f.drop(index=f.index[f["step"] == 2][0] - 1), "must be followed by step"),
    "duplicate row": (lambda f: pd.concat([f, f.iloc[[3]]]), "must occur once"),
    "missing state": (change("state", None), "column state must not be empty"),
    "missing action": (change("action", None), "column action must not be empty"),
    "missing expert": (change("expert", None), "column expert must not be empty"),
    "step is text": (change("step", "first"), "column step must be a whole number"),
    "step is a fraction": (change("step", 1.5), "column step must be a whole number"),
    "next state disagrees": (change("next_state", "17", SECOND), "but the next step is in"),
    "no rows": (lambda f: f.iloc[:0], "at least one row"),
    "decision in a terminal state": (change("state", "17", FIRST), "is terminal: nothing is decided"),
    "mixed types": (change("state", "3.7", FIRST), "state '3.7' must be one of"),
    "an expert without rows": (lambda f: f.assign(expert=f["expert"].where(f["expert"] != "Bo", None)), "column expert must not"),
    "impossible move": (lambda f: impossible(f), "impossible move: from"),
}


def impossible(frame: pd.DataFrame) -> pd.DataFrame:
    """The last decision of the table jumps across the grid."""
    frame = frame.copy()
    last = frame.index[-1]
    frame.loc[last, "next_state"] = "0" if frame.loc[last, "next_state"] != "0" else "5"
    return frame


@pytest.mark.slow
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_tables_get_one_sentence_and_nothing_is_written(name, grid_folder, grid_walks, tmp_path):
    damage, said = MALFORMED[name]
    damage(grid_walks.copy()).to_csv(tmp_path / "bad.csv", index=False)
    result = fit(tmp_path / "bad.csv", "--transitions", grid_folder / "mdp.npz", "--out", tmp_path / "out")
    one_sentence(result, said)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "must be a CSV table with a header"),
        (b'expert,episode\n"unclosed', "line 2: a quotation mark is opened here"),
        (b"\xff\xfe\x00\x01", "must be a CSV table"),
        (b"\x00" * 100, "a file that is no text"),
        (b"expert;episode;step;state;action\nA;0;0;x;go\n", "separated by semicolons: save it with commas"),
    ],
)
def test_files_that_are_no_tables(content, said, grid_folder, tmp_path):
    (tmp_path / "bad.csv").write_bytes(content)
    one_sentence(fit(tmp_path / "bad.csv", "--transitions", grid_folder / "mdp.npz", "--out", tmp_path / "out"), said)
    assert not (tmp_path / "out").exists()


def test_other_bad_inputs(grid_folder, grid_walks, tmp_path):
    demos, mdp = grid_folder / "demos.csv", grid_folder / "mdp.npz"
    one_sentence(fit(tmp_path / "none.csv"), "does not exist")
    one_sentence(fit(grid_folder), "features.csv must begin like demos.csv, with the columns expert")
    one_sentence(fit(grid_folder / "mdp.npz"), "must be a .csv or .parquet file")
    one_sentence(fit(demos, "--transitions", tmp_path / "none.npz"), "does not exist")
    (tmp_path / "broken.npz").write_bytes(b"PK not a zip")
    one_sentence(fit(demos, "--transitions", tmp_path / "broken.npz"), "broken.npz is not a saved MDP: it is no .npz file")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not parquet")
    one_sentence(fit(tmp_path / "broken.parquet"), "is damaged or no Parquet file")
    one_sentence(fit(demos, "--transitions", mdp, "--transitions", mdp), "--transitions must be given once for each table")
    grid_walks.drop(columns="next_state").to_csv(tmp_path / "short.csv", index=False)
    one_sentence(fit(tmp_path / "short.csv"), "must have a column next_state")
    (tmp_path / "features.csv").write_text("state,pay\n0,1\n")
    one_sentence(fit(demos, "--transitions", mdp, "--features", tmp_path / "features.csv"), "must have one row for state 1")
    (tmp_path / "features.csv").write_text("state,pay\n0,1\n1,1\n0,2\n1,2\n")
    one_sentence(
        fit(demos, "--transitions", mdp, "--features", tmp_path / "features.csv"), "line 4: there must be one row for state 0"
    )
    (tmp_path / "file").write_text("")
    one_sentence(fit(demos, "--transitions", mdp, "--out", tmp_path / "file"), "--out must be a directory")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("state,action,next_state\n0,right,1\n", "none named probability"),
        ("state,action,next_state,probability\n0,right,1,0.5\n", "must sum to 1"),
        ("state,action,next_state,probability\n0,right,1,much\n", "column probability must be a number"),
        ("state,action,next_state,probability\n0,right,1,1\n0,right,1,1\n", "must be one row for the move from 0 by right to 1"),
        ("state,action,next_state,probability\n0,right,,1\n", "column next_state must not be empty"),
    ],
)
def test_malformed_transitions(rows, said, grid_folder, tmp_path):
    (tmp_path / "t.csv").write_text(rows)
    one_sentence(fit(grid_folder / "demos.csv", "--transitions", tmp_path / "t.csv"), said)


def test_a_table_that_never_says_where_episodes_end_is_refused(grid_walks, tmp_path):
    """Without the ends the goal is not in the table, and a fit would put it elsewhere."""
    grid_walks.drop(columns="next_state").to_csv(tmp_path / "walks.csv", index=False)
    said = "episodes ended, and an end is often what pays: add the column next_state"
    one_sentence(fit(tmp_path / "walks.csv", "--cut-off", "--quick"), said)


@pytest.mark.slow
def test_sessions_that_were_cut_off_are_refused_with_the_option_that_takes_them(grid_walks, tmp_path):
    last = grid_walks.groupby(["expert", "episode"])["step"].transform("max") == grid_walks["step"]
    cut = grid_walks.assign(next_state=grid_walks["next_state"].mask(last & (grid_walks["episode"].astype(int) % 9 == 0)))
    cut.to_csv(tmp_path / "cut.csv", index=False)
    one_sentence(fit(tmp_path / "cut.csv", "--quick"), "if it simply stopped, say so with --cut-off")
    result = fit(tmp_path / "cut.csv", "--quick", "--cut-off")
    assert result.exit_code == 0, result.output
    assert "102 of 900 episodes were cut off" in result.output
    assert f"{len(grid_walks):,} decisions" in result.output


def test_transitions_with_swapped_actions_are_refused(tmp_path):
    outcomes = [("left", "b")] * 16 + [("left", "c")] * 4 + [("right", "b")] * 4 + [("right", "c")] * 16
    rows = [("A", episode, 0, "a", action, after) for episode, (action, after) in enumerate(outcomes)]
    pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"]).to_csv(tmp_path / "d.csv")
    header, moves = "state,action,next_state,probability", ["a,left,b,0.2", "a,left,c,0.8", "a,right,b,0.8", "a,right,c,0.2"]
    (tmp_path / "moves.csv").write_text("\n".join([header, *moves]))
    result = fit(tmp_path / "d.csv", "--transitions", tmp_path / "moves.csv", "--out", tmp_path / "out")
    one_sentence(result, "in state 'a', 'left' led to 'b' in 80% of 20 moves, and the transitions say 20%. 2 of 2 pairs")
    one_sentence(result, "better with its moves by 'right': are two actions confused? Correct the transitions; or leave them out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_features_may_hold_states_that_nobody_visited_where_transitions_are_estimated(grid_folder, tmp_path):
    features = pd.read_csv(grid_folder / "features.csv", dtype={"state": str})
    more = pd.concat([pd.DataFrame([("1b", 0, 0, 1)], columns=features.columns), features])
    more.to_csv(tmp_path / "more.csv", index=False)
    demos, mdp = grid_folder / "demos.csv", grid_folder / "mdp.npz"
    found = [fit(demos, "--features", path, "--quick") for path in (grid_folder / "features.csv", tmp_path / "more.csv")]
    assert found[0].exit_code == 0, found[0].output
    assert found[0].stdout == found[1].stdout
    said = "more.csv, line 2: state '1b' must be one of the 18 states of the transitions"
    one_sentence(fit(demos, "--features", tmp_path / "more.csv", "--transitions", mdp), said)
    features["state"] = features["state"].replace("1", "cell 1")
    features.to_csv(tmp_path / "misspelt.csv", index=False)
    said = "must have one row for state 1, got none: it has one for 'cell 1', and names must agree letter by letter"
    one_sentence(fit(demos, "--features", tmp_path / "misspelt.csv"), said)


def test_features_of_actions_may_hold_what_nobody_took(tmp_path):
    rows = [
        ("A", i, 0, "a", action, after) for i, (action, after) in enumerate([("l", "b"), ("l", "c"), ("r", "c"), ("r", "b")] * 5)
    ]
    pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"]).to_csv(
        tmp_path / "d.csv", index=False
    )
    (tmp_path / "f.csv").write_text("state,action,cost\na,l,1\na,r,0\na,jump,3\nmoon,l,2\nmoon,l,2\n")
    result = fit(tmp_path / "d.csv", "--features", tmp_path / "f.csv", "--quick")
    assert result.exit_code == 0, result.output
