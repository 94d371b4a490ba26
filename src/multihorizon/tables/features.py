"""Features that rewards are tied to, from a table.

The columns are `state`, `action` and one per feature; without `action` the features belong to states and are earned on arrival.

Every state of the task must have its row. Where transitions are given, every row must be about a state of the task. Where they
were estimated from decisions, the task holds what somebody visited, and rows about other states and actions are left out. A name
that is spelt wrong still shows, because the state that it means has no row then.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.files.labels import closest, positions
from multihorizon.files.reading import read_table
from multihorizon.files.table import Table
from multihorizon.mdp import MDP
from multihorizon.tolerances import LARGEST_UNIT, SMALLEST_UNIT

KEYS = ("state", "action")


def read_features(path: str | Path, mdp: MDP) -> tuple[Sparse, tuple[str, ...]]:
    """F `(A·S,d)` and the features' names, from CSV or Parquet."""
    dense, names, by_action = _read(_table(path, "features"), mdp)
    return (sp.csr_array(dense) if by_action else sp.csr_array(mdp.stacked @ sp.csr_array(dense))), names


def read_known_reward(path: str | Path, mdp: MDP) -> Floats:
    """The known reward of a table with one column of numbers: `(S,)` paid on arrival, or `(A·S,)` where it has actions."""
    table = _table(path, "the known reward")
    names = _names(table)
    if len(names) > 1:
        raise ValueError(f"{path} must have one column with the known reward, received {', '.join(names)}")
    reward: Floats = _read(table, mdp)[0][:, 0]
    return reward


def _table(path: str | Path, what: str) -> Table:
    table = read_table(path, what, KEYS)
    table.require("state")
    if not _names(table):
        raise ValueError(f"{path} must have a column of numbers for {what} besides {' or '.join(KEYS)}, received none: add it")
    return table


def _names(table: Table) -> tuple[str, ...]:
    """The columns that hold numbers."""
    return tuple(str(c) for c in table.frame.columns if c not in KEYS)


def _read(table: Table, mdp: MDP) -> tuple[Floats, tuple[str, ...], bool]:
    """The numbers of the table for each row a·S + s, or for each state where it has no actions."""
    names = _names(table)
    values = np.stack([table.numbers(name) for name in names], axis=1)
    for name, size in zip(names, np.abs(values).max(axis=0).tolist(), strict=True):
        if size and not SMALLEST_UNIT <= size <= LARGEST_UNIT:
            raise ValueError(
                f"{table.name}: the largest number of column {name} must be between {SMALLEST_UNIT:g} and {LARGEST_UNIT:g}, "
                f"received {size:.3g}: use another unit"
            )
    by_action = "action" in table.frame.columns
    rows = _rows(table, mdp, by_action)
    _require_once(table, rows, mdp, by_action)
    dense = np.zeros(((mdp.n_actions if by_action else 1) * mdp.n_states, len(names)))
    dense[rows[rows >= 0]] = values[rows >= 0]
    return dense, names, by_action


def _rows(table: Table, mdp: MDP, by_action: bool) -> Ints:
    """The row `a·S + s` of F, or `s` where features belong to states, of each row of the table; −1 of what nobody saw."""
    states = _known(table, "state", mdp.state_names, mdp)
    if not by_action:
        return states
    actions = _known(table, "action", mdp.action_names, mdp)
    return np.where((states >= 0) & (actions >= 0), states + mdp.n_states * actions, -1)


def _known(table: Table, column: str, names: tuple[str, ...], mdp: MDP) -> Ints:
    """The index of each row's label; −1 of one that an estimate, which knows only what was seen, does not know."""
    codes, labels = table.labels(column)
    if mdp.sample_sizes is not None:
        index = {name: i for i, name in enumerate(names)}
        return np.array([index.get(label, -1) for label in labels], dtype=np.int64)[codes]
    return positions(labels, names, column, lambda i: table.at(int(np.argmax(codes == i))))[codes]


def _require_once(table: Table, rows: Ints, mdp: MDP, by_action: bool) -> None:
    """Every state, or every available action of every state that is not terminal, has exactly one row."""
    needed: Bools = mdp.live.T.ravel() if by_action else np.ones(mdp.n_states, dtype=np.bool_)
    seen = np.bincount(rows[rows >= 0], minlength=needed.size)

    def place(row: int) -> str:
        action, state = divmod(row, mdp.n_states)
        return f"state {mdp.state_names[state]}" + (f", action {mdp.action_names[action]}" if by_action else "")

    if (seen > 1).any():
        again = int(np.argmax(pd.Series(rows).duplicated() & (rows >= 0)))
        raise ValueError(f"{table.at(again)}: there must be one row for {place(int(rows[again]))}, received another")
    missing = np.flatnonzero(needed & (seen == 0))
    if missing.size:
        name = mdp.state_names[missing[0] % mdp.n_states]
        close = closest(name, [label for label in table.labels("state")[1] if label not in mdp.state_names])
        hint = f": it has one for {close!r}, and names must agree letter by letter" if close else ""
        raise ValueError(f"{table.name} must have one row for {place(int(missing[0]))}, received none{hint}")
