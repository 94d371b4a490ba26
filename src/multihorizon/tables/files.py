"""Reading the user's files: demonstrations, transitions and features, with their own names for states and actions.

* demonstrations: `.csv` (also compressed) or `.parquet`, see `demonstrations.py`;
* transitions: `.npz` as `MDP.to_npz` writes it, or a CSV with the columns `state, action, next_state, probability`. A state
  without rows of its own is terminal; an action without rows in a state is unavailable there;
* features: a CSV with the columns `state, action` and one column a feature, or with `state` and features only, which are then
  earned on arrival.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.checks import Ints, label
from multihorizon.mdp import MDP
from multihorizon.tables.demonstrations import Demonstrations

KEYS = ("state", "action")


def read_demonstrations(path: str | Path) -> Demonstrations:
    """Read a table of decisions by the ending of its name."""
    file = _existing(path, "demonstrations")
    if file.suffix.lower() in (".parquet", ".pq"):
        return Demonstrations.from_parquet(file)
    if ".csv" in _endings(file):
        return Demonstrations.from_csv(file)
    raise ValueError(f"demonstrations must be a .csv or .parquet file, received {path}")


def read_transitions(path: str | Path) -> MDP:
    """Read transitions from `.npz` or CSV."""
    file = _existing(path, "transitions")
    if file.suffix.lower() == ".npz":
        try:
            return MDP.from_npz(file)
        except (KeyError, EOFError) as error:
            raise ValueError(f"{path} must be transitions written by MDP.to_npz, received a file that is not") from error
    if ".csv" not in _endings(file):
        raise ValueError(f"transitions must be a .npz or .csv file, received {path}")
    return transitions_from_frame(_read_csv(file, (*KEYS, "next_state")), str(path))


def transitions_from_frame(frame: pd.DataFrame, name: str = "transitions") -> MDP:
    """An MDP from rows `state, action, next_state, probability`.

    Example:
        >>> rows = pd.DataFrame({"state": ["a"], "action": ["go"], "next_state": ["b"], "probability": [1.0]})
        >>> transitions_from_frame(rows).terminal.tolist()
        [False, True]
    """
    _require_columns(frame, (*KEYS, "next_state", "probability"), name)
    chances = _numbers(frame, "probability", name)
    state, action, after = (_labels(frame, column, name) for column in (*KEYS, "next_state"))
    states, actions = _ordered({*state, *after}), _ordered({*action})
    rows = _codes(action, actions) * len(states) + _codes(state, states)
    cells = rows * len(states) + _codes(after, states)
    twice = np.flatnonzero(pd.Series(cells).duplicated())
    if twice.size:
        row = int(twice[0])
        raise ValueError(
            f"{name}: the move from {state[row]} by {action[row]} to {after[row]} must be listed once, received twice"
        )
    shape = (len(actions) * len(states), len(states))
    stacked = sp.csr_array((chances, (rows, cells % len(states))), shape=shape)
    available = np.zeros(shape[0], dtype=np.bool_)
    available[rows] = True
    mask = available.reshape(len(actions), len(states)).T
    n = len(states)
    return MDP(
        [stacked[a * n : (a + 1) * n] for a in range(len(actions))],
        terminal=~mask.any(axis=1),
        available=mask,
        state_names=states,
        action_names=actions,
    )


def read_features(path: str | Path, mdp: MDP) -> tuple[Any, tuple[str, ...]]:
    """F `(A·S,d)` and the features' names, from a CSV."""
    frame = _read_csv(_existing(path, "features"), KEYS)
    _require_columns(frame, ("state",), str(path))
    names = tuple(str(c) for c in frame.columns if c not in KEYS)
    if not names:
        raise ValueError(f"{path} must have one column a feature beside {', '.join(KEYS)}, received none")
    values = np.stack([_numbers(frame, name, str(path)) for name in names], axis=1)
    states = _known(_labels(frame, "state", str(path)), mdp.state_names, "state", str(path))
    by_action = "action" in frame.columns
    actions = (
        _known(_labels(frame, "action", str(path)), mdp.action_names, "action", str(path)) if by_action else np.zeros_like(states)
    )
    table = np.zeros(((mdp.n_actions if by_action else 1) * mdp.n_states, len(names)))
    rows = actions * mdp.n_states + states
    seen = np.bincount(rows, minlength=table.shape[0])
    _require_once(seen, mdp, by_action, str(path))
    table[rows] = values
    return (sp.csr_array(table) if by_action else mdp.stacked @ sp.csr_array(table)), names


def _require_once(seen: Any, mdp: MDP, by_action: bool, name: str) -> None:
    """Every state, or every available action of every state that is not terminal, has exactly one row."""
    needed = (mdp.available & ~mdp.terminal[:, None]).T.ravel() if by_action else np.ones(mdp.n_states, dtype=np.bool_)
    for wrong, word in ((np.flatnonzero(seen > 1), "twice"), (np.flatnonzero(needed & (seen == 0)), "none")):
        if wrong.size:
            action, state = divmod(int(wrong[0]), mdp.n_states)
            where = f"state {mdp.state_names[state]}" + (f", action {mdp.action_names[action]}" if by_action else "")
            raise ValueError(f"{name} must have one row for {where}, received {word}")


def _existing(path: str | Path, what: str) -> Path:
    file = Path(path)
    if not file.is_file():
        raise ValueError(
            f"{what} must be a file, received {path}, which {'is a directory' if file.is_dir() else 'does not exist'}"
        )
    return file


def _read_csv(file: Path, text: tuple[str, ...]) -> pd.DataFrame:
    try:
        return pd.read_csv(file, dtype=dict.fromkeys(text, str), keep_default_na=False, na_values=[""])
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} must be a CSV table with a header, received: {error}") from error


def _require_columns(frame: pd.DataFrame, columns: tuple[str, ...], name: str) -> None:
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise ValueError(f"{name} must have the columns {', '.join(columns)}, received none named {', '.join(missing)}")
    if not len(frame):
        raise ValueError(f"{name} must have at least one row, received none")


def _numbers(frame: pd.DataFrame, column: str, name: str) -> Any:
    numbers = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(f"{name}: column {column} must be numbers, received {frame[column].iloc[row]!r} in row {row}")
    return numbers


def _labels(frame: pd.DataFrame, column: str, name: str) -> list[str]:
    missing = np.flatnonzero(frame[column].isna())
    if missing.size:
        raise ValueError(f"{name}: column {column} must not be empty, received a missing value in row {int(missing[0])}")
    return [label(value, column).strip() for value in frame[column]]


def _endings(file: Path) -> list[str]:
    return [ending.lower() for ending in file.suffixes]


def _ordered(names: set[str]) -> list[str]:
    """Whole numbers as numbers, then text as text."""
    return sorted(names, key=lambda n: (0, int(n), n) if n.removeprefix("-").isdecimal() else (1, 0, n))


def _codes(labels: list[str], names: list[str]) -> Ints:
    position = {name: i for i, name in enumerate(names)}
    return np.array([position[one] for one in labels], dtype=np.int64)


def _known(labels: list[str], names: tuple[str, ...], what: str, file: str) -> Ints:
    unknown = [one for one in labels if one not in set(names)]
    if unknown:
        raise ValueError(f"{file}: {what} {unknown[0]!r} must be one of the transitions' {what}s ({', '.join(names[:5])}, …)")
    return _codes(labels, list(names))
