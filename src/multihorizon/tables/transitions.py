"""Transitions from a file: the `.npz` that `MDP.to_npz` writes, or a table of moves.

A table has the columns `state, action, next_state, probability`; one row per move. A state without rows of its own is terminal;
an action without rows in a state is unavailable there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.checks import ROW_TOLERANCE, Bools, Floats, Ints
from multihorizon.files.labels import in_order, positions
from multihorizon.files.opening import existing_file
from multihorizon.files.reading import read_table
from multihorizon.files.table import Table
from multihorizon.mdp import MDP

KEYS = ("state", "action", "next_state")


def read_transitions(path: str | Path) -> MDP:
    """Read transitions from `.npz`, CSV or Parquet."""
    if existing_file(path, "transitions").suffix.lower() == ".npz":
        return MDP.from_npz(path)
    return _from_table(read_table(path, "transitions that are not an .npz of MDP.to_npz", KEYS))


def transitions_from_frame(frame: pd.DataFrame) -> MDP:
    """An MDP from rows `state, action, next_state, probability`.

    Example:
        >>> rows = pd.DataFrame({"state": ["a"], "action": ["go"], "next_state": ["b"], "probability": [1.0]})
        >>> transitions_from_frame(rows).terminal.tolist()
        [False, True]
    """
    return _from_table(Table(frame, "the table of transitions"))


def _from_table(table: Table) -> MDP:
    table.require(*KEYS, "probability")
    (state, own), (action, actions), (after, others) = (table.labels(column) for column in KEYS)
    states = in_order({*own, *others})
    state, after = positions(own, states, "state")[state], positions(others, states, "state")[after]
    n = len(states)
    rows = action * n + state
    chances = _probabilities(table, rows, rows * n + after)
    stacked = sp.csr_array((chances, (rows, after)), shape=(len(actions) * n, n))
    available = np.zeros(stacked.shape[0], dtype=np.bool_)
    available[rows] = True
    mask: Bools = available.reshape(len(actions), n).T
    return MDP(
        [stacked[a * n : (a + 1) * n] for a in range(len(actions))],
        terminal=~mask.any(axis=1),
        available=mask,
        state_names=states,
        action_names=actions,
    )


def _probabilities(table: Table, rows: Ints, cells: Ints) -> Floats:
    """The column `probability`: from 0 to 1, each move once, and those of a state and action sum to 1."""
    chances = table.numbers("probability")
    outside = (chances < 0) | (chances > 1 + ROW_TOLERANCE)
    if outside.any():
        row = int(np.argmax(outside))
        raise ValueError(f"{table.at(row)}: column probability must be from 0 to 1, received {chances[row]:g}")
    twice = pd.Series(cells).duplicated().to_numpy()
    if twice.any():
        row = int(np.argmax(twice))
        state, action, after = (table.frame[column].iloc[row] for column in KEYS)
        first = table.place(int(np.argmax(cells == cells[row])))
        raise ValueError(
            f"{table.at(row)}: the move from {state} by {action} to {after} must be listed once, it is also in {first}"
        )
    sums = np.bincount(rows, chances)[rows]
    off = np.abs(sums - 1) > ROW_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        state, action = (table.frame[column].iloc[row] for column in KEYS[:2])
        raise ValueError(
            f"{table.at(row)}: the probabilities of all moves from {state} by {action} must sum to 1, received {sums[row]:.6g}"
        )
    return chances
