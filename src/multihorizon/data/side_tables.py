"""Tables beside the decisions: features, known rewards, groups, people, episodes and transitions, and what changes in a task.

*Features* and *known rewards* have the columns `state`, `action` and columns of numbers; without `action` they belong to states
and are earned on arrival. Every state of the task must have its row. Where transitions are given, every row must be about a state
of the task. Where they were estimated from decisions, the task holds what somebody visited, and rows about other states and
actions are left out. A name that is spelt wrong still shows, because the state that it means has no row then.

*Groups*, with the columns `expert` and `group`, say which experts share one discount; other columns are not looked at.

*People*, with the column `expert` and one row per person, hold covariates. Empty cells are values that are missing, and so is
what R and others write for them: NA, N/A, NaN or null.

*Episodes*, with the columns `expert` and `episode` and one row per episode, hold conditions, and are read like people.

*Transitions* are the `.npz` that `MDP.to_npz` writes, or a table with the columns `state, action, next_state, probability` and
one row per move; a column `duration` may say how long a move takes. A state without rows of its own is terminal; an action
without rows in a state is unavailable there.

*New labels*, with the columns `column`, `label` and `new_label`, bring several vocabularies to one.

*Changes* of a task: what is paid besides (`state`, perhaps `action`, `amount`), what is forbidden (`state, action`), where
episodes begin (`state, probability`), and restrictions on the reward (`smaller, larger`, or `state` or `feature` with `lower`,
`upper`). Every name must be one of the task.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.checks import (
    LARGEST_UNIT,
    ROW_TOLERANCE,
    SMALLEST_UNIT,
    Bools,
    Floats,
    Frame,
    Ints,
    Sparse,
    as_frame,
    closest,
    positions,
)
from multihorizon.data.demonstrations import conditions_of
from multihorizon.data.reading import RECODED, Columns, InputTable, in_order, numbers_or_missing, read_table
from multihorizon.files import existing_file
from multihorizon.mdp import MDP, Durations
from multihorizon.words import significant


def read_features(path: str | Path, mdp: MDP, columns: Columns | None = None) -> tuple[Sparse, tuple[str, ...]]:
    """Read features and their names from CSV or Parquet: `(A·S,d)` of decisions, or `(S,d)` earned on arrival without `action`.

    What is earned on arrival stays with the states: it follows the transitions wherever these give way, take time or change.
    """
    dense, names, _ = _read(path, "features", mdp, columns)
    return sp.csr_array(dense), names


def read_known_reward(path: str | Path, mdp: MDP, columns: Columns | None = None) -> Floats:
    """Return the known reward of a table with one column of numbers: `(S,)` paid on arrival, or `(A·S,)` where it has actions."""
    reward: Floats = _read(path, "the known reward", mdp, columns, most=1)[0][:, 0]
    return reward


def _read(
    path: str | Path, what: str, mdp: MDP, columns: Columns | None, most: float = np.inf
) -> tuple[Floats, tuple[str, ...], bool]:
    """Return the numbers of a table for each row a·S + s, or for each state where it has no actions; their names; and which it
    is.
    """
    table = read_table(path, what, ("state", "action"), columns=columns, beside=True)
    table.require("state")
    names = tuple(str(c) for c in table.frame.columns if c not in ("state", "action"))
    if not names:
        raise ValueError(f"{path} must have a column of numbers for {what} besides state or action, got none: add it")
    if len(names) > most:
        raise ValueError(f"{path} must have one column with {what}, got {', '.join(names)}")
    values = np.stack([table.numbers(name) for name in names], axis=1)
    for name, size in zip(names, np.abs(values).max(axis=0).tolist(), strict=True):
        if size and not SMALLEST_UNIT <= size <= LARGEST_UNIT:
            raise ValueError(
                f"{table.name}: the largest number of column {name} must be between {SMALLEST_UNIT:g} and {LARGEST_UNIT:g}, "
                f"got {significant(size)}: use another unit"
            )
    by_action = "action" in table.frame.columns
    seen_only = mdp.sample_sizes is not None  # an estimate knows only what was seen: other rows are left out
    rows = _index(table, "state", mdp.state_names, unknown=seen_only)
    if by_action:
        actions = _index(table, "action", mdp.action_names, unknown=seen_only)
        rows = np.where((rows >= 0) & (actions >= 0), rows + mdp.n_states * actions, -1)
    _require_all(table, rows, mdp, by_action)
    dense = np.zeros(((mdp.n_actions if by_action else 1) * mdp.n_states, len(names)))
    dense[rows[rows >= 0]] = values[rows >= 0]
    return dense, names, by_action


def _index(
    table: InputTable, column: str, names: Sequence[str], what: str = "", optional: bool = False, unknown: bool = False
) -> Ints:
    """Return the index of each row's label among the names, −1 where it may be blank (`optional`) or another one (`unknown`)."""
    codes, labels = table.labels(column, optional)
    if unknown:
        index = {name: i for i, name in enumerate(names)}
        return np.array([*(index.get(label, -1) for label in labels), -1], dtype=np.int64)[codes]
    place = positions(labels, names, what or column, lambda label: table.at(int(np.argmax(codes == label))))
    return np.append(place, -1)[codes]


def _require_all(table: InputTable, rows: Ints, mdp: MDP, by_action: bool) -> None:
    """Raise unless every state, or every available action of every state that is not terminal, has exactly one row."""

    def place(row: int) -> str:
        action, state = divmod(row, mdp.n_states)
        return f"state {mdp.state_names[state]}" + (f", action {mdp.action_names[action]}" if by_action else "")

    table.require_once(rows, lambda row: place(int(rows[row])))
    needed: Bools = mdp.live.T.ravel() if by_action else np.ones(mdp.n_states, dtype=np.bool_)
    missing = np.flatnonzero(needed & (np.bincount(rows[rows >= 0], minlength=needed.size) == 0))
    if missing.size:
        name = mdp.state_names[missing[0] % mdp.n_states]
        close = closest(name, [label for label in table.labels("state")[1] if label not in mdp.state_names])
        hint = f": it has one for {close!r}, and names must agree letter by letter" if close else ""
        raise ValueError(f"{table.name} must have one row for {place(int(missing[0]))}, got none{hint}")


def read_groups(path: str | Path, columns: Columns | None = None) -> dict[str, str]:
    """Return the group of each expert, from CSV or Parquet; an expert without a row is in no group."""
    table = read_table(path, "groups", ("expert", "group"), columns=columns, beside=True)
    table.require("expert", "group")
    (expert, experts), (group, groups) = table.labels("expert"), table.labels("group")
    table.require_once(expert, lambda row: f"expert {experts[expert[row]]}")
    return {experts[code]: groups[of] for code, of in zip(expert.tolist(), group.tolist(), strict=True)}


def read_persons(path: str | Path, columns: Columns | None = None) -> pd.DataFrame:
    """Return the table, from CSV or Parquet, with the names of the experts as they are in tables of decisions."""
    table = read_table(path, "persons", ("expert",), columns=columns, beside=True)
    table.require("expert")
    codes, names = table.labels("expert")
    others = {str(column): numbers_or_missing(table.frame[column]) for column in table.frame.columns.drop("expert")}
    return pd.DataFrame({"expert": [names[code] for code in codes], **others})[list(table.frame.columns)]


def read_episodes(path: str | Path, needed: Sequence[str], columns: Columns | None = None) -> pd.DataFrame:
    """Return the needed columns of a table of episodes, from CSV or Parquet, with names as they are in tables of decisions."""
    table = read_table(path, "episodes", ("expert", "episode"), ("expert", "episode", *needed), columns, beside=True)
    return conditions_of(table)


def read_recoding(path: str | Path) -> dict[str, dict[str, str]]:
    """Return the new label of each label of a table of decisions, by column."""
    table = read_table(path, "new labels", ("column", "label", "new_label"))
    table.require("column", "label", "new_label")
    recode: dict[str, dict[str, str]] = {}
    cells = [(codes, names) for codes, names in map(table.labels, ("column", "label", "new_label"))]
    for row in range(len(table.frame)):
        column, old, new = (names[codes[row]] for codes, names in cells)
        if column not in RECODED:
            raise ValueError(f"{table.at(row)}: column must be one of {', '.join(RECODED)}, got {column}")
        if recode.setdefault(column, {}).setdefault(old, new) != new:
            raise ValueError(f"{table.at(row)}: {column} {old} must have one new label, got both {recode[column][old]} and {new}")
    return recode


def read_pay(path: str | Path, mdp: MDP) -> dict[str | tuple[str, str], float]:
    """Return what is paid besides, by state on arrival there, or by state and action where the table has actions."""
    table = read_table(path, "pay", ("state", "action"))
    columns = ("state", "action") if "action" in table.frame.columns else ("state",)
    table.require(*columns, "amount")
    places = _places(table, columns, mdp)
    keys = [one[0] if len(columns) == 1 else (one[0], one[1]) for one in places]
    return dict(zip(keys, table.numbers("amount").tolist(), strict=True))


def read_forbidden(path: str | Path, mdp: MDP) -> list[tuple[str, str]]:
    """Return the pairs of state and action that can no longer be taken."""
    table = read_table(path, "forbidden actions", ("state", "action"))
    table.require("state", "action")
    return [(state, action) for state, action in _places(table, ("state", "action"), mdp)]


def read_first_states(path: str | Path, mdp: MDP) -> dict[str, float]:
    """Return the probabilities of the first state, by state; those without a row have none."""
    table = read_table(path, "first states", ("state",))
    table.require("state", "probability")
    places = _places(table, ("state",), mdp)
    return dict(zip((state for (state,) in places), table.numbers("probability").tolist(), strict=True))


def _places(table: InputTable, columns: Sequence[str], mdp: MDP) -> list[tuple[str, ...]]:
    """Return the states, or the pairs of state and action, of all rows; each must be of the task, and there once."""
    names = {"state": mdp.state_names, "action": mdp.action_names}
    index = {column: _index(table, column, names[column]) for column in columns}
    rows = [tuple(names[column][i] for column, i in zip(columns, row, strict=True)) for row in zip(*index.values(), strict=True)]
    keys = pd.factorize(pd.Series(rows))[0].astype(np.int64)
    table.require_once(keys, lambda row: ", ".join(f"{column} {name}" for column, name in zip(columns, rows[row], strict=True)))
    return rows


def read_restricted(path: str | Path, names: Sequence[str]) -> pd.DataFrame:
    """Return a table of restrictions on reward parameters of these names; what is blank is missing."""
    labels = ("state", "feature", "smaller", "larger")
    table = read_table(path, "restrictions", labels)
    table.require()
    columns: dict[str, object] = {}
    for column in map(str, table.frame.columns):
        if column not in labels:
            columns[column] = numbers_or_missing(table.frame[column])
            continue
        index = _index(table, column, names, "feature" if column == "feature" else "state", optional=True)
        columns[column] = pd.Series([names[i] if i >= 0 else None for i in index], dtype=object)
    return pd.DataFrame(columns)


def read_transitions(path: str | Path, columns: Columns | None = None) -> MDP:
    """Read transitions from `.npz`, CSV or Parquet."""
    return MDP.from_npz(path) if existing_file(path, "transitions").suffix.lower() == ".npz" else mdp_from_csv(path, columns)


def mdp_from_csv(path: str | Path, columns: Columns | None = None) -> MDP:
    """Return the MDP of a CSV or Parquet file."""
    existing_file(path, "transitions")
    what, labels = "transitions that are not an .npz of MDP.to_npz", ("state", "action", "next_state")
    return _from_table(read_table(path, what, labels, columns=columns, beside=True))


def mdp_from_frame(frame: Frame) -> MDP:
    """Return the MDP of a data frame."""
    name = "the table of transitions"
    return _from_table(InputTable(as_frame(frame, name), name))


def _from_table(table: InputTable) -> MDP:
    table.require("state", "action", "next_state", "probability")
    (state, before), (action, actions), (after, others) = (table.labels(c) for c in ("state", "action", "next_state"))
    states = in_order({*before, *others})
    state, after = positions(before, states, "state")[state], positions(others, states, "state")[after]
    n = len(states)
    rows = action * n + state
    chances = _probabilities(table, rows, rows * n + after)
    stacked = sp.csr_array((chances, (rows, after)), shape=(len(actions) * n, n))
    available = np.zeros(stacked.shape[0], dtype=np.bool_)
    available[rows] = True
    mask: Bools = available.reshape(len(actions), n).T
    mdp = MDP(
        [stacked[a * n : (a + 1) * n] for a in range(len(actions))],
        terminal=~mask.any(axis=1),
        available=mask,
        state_names=states,
        action_names=actions,
    )
    if "duration" not in table.frame.columns:
        return mdp
    lasting = table.numbers("duration")
    if not (lasting > 0).all():
        row = int(np.argmax(~(lasting > 0)))
        raise ValueError(f"{table.at(row)}: column duration must be positive, got {lasting[row]:g}")
    return mdp.lasting(Durations(rows[chances > 0], after[chances > 0], lasting[chances > 0], np.ones(int((chances > 0).sum()))))


def _probabilities(table: InputTable, rows: Ints, cells: Ints) -> Floats:
    """Return the column `probability`: from 0 to 1, each move once, and those of a state and action sum to 1."""
    chances = table.numbers("probability")
    outside = (chances < 0) | (chances > 1 + ROW_TOLERANCE)
    if outside.any():
        row = int(np.argmax(outside))
        raise ValueError(f"{table.at(row)}: column probability must be from 0 to 1, got {chances[row]:g}")
    moves = [table.frame[column] for column in ("state", "action", "next_state")]
    table.require_once(cells, lambda row: "the move from {} by {} to {}".format(*(column.iloc[row] for column in moves)))
    sums = np.bincount(rows, chances)[rows]
    off = np.abs(sums - 1) > ROW_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        state, action = (table.frame[column].iloc[row] for column in ("state", "action"))
        raise ValueError(
            f"{table.at(row)}: the probabilities of all moves from {state} by {action} must sum to 1, got "
            f"{significant(sums[row], 6)}"
        )
    return chances
