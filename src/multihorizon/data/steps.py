"""Logged steps of a task whose states are vectors: who did what, where, and where it led.

A table has the columns `expert, episode, step, action` and the columns of the state, which the caller names; one row per
decision. The next state is that of the following row of the episode. Columns `next_…` give it where there is no following row;
where both are given they must agree. A decision without a next state counts as a decision, and says nothing about the dynamics.
A column `terminated` says where a step ended the episode for good: nothing can be earned after it.

A state column of text is a category: it becomes one indicator for each of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.data.demonstrations import Order, refusing, same_episode
from multihorizon.data.reading import Table, as_numbers, read_table
from multihorizon.files import write_csv
from multihorizon.frames import Frame, HasFrame, as_frame

COLUMNS = ("expert", "episode", "step", "action")
#: The arrays of a table, one entry per decision each.
ARRAYS = ("expert", "episode", "step", "action", "states", "next_states", "terminated")


@dataclass(frozen=True, eq=False)
class Steps(HasFrame):
    """Decisions of several experts in states that are vectors, sorted by expert, episode and step.

    `expert`, `episode` and `action` are `(N,)` codes into `experts`, `episodes` and `actions`. `states` is `(N,d)`;
    `next_states` `(N,d)` is NaN where it is not known. `terminated` `(N,)` marks steps after which nothing can be earned.
    `coordinates` are the names of the d columns, and `sources` says which column of the table each of them comes from: the
    indicators of one category have one source.
    """

    expert: Ints
    episode: Ints
    step: Ints
    action: Ints
    states: Floats
    next_states: Floats
    terminated: Bools
    experts: tuple[str, ...]
    episodes: tuple[str, ...]
    actions: tuple[str, ...]
    coordinates: tuple[str, ...]
    sources: tuple[int, ...]

    def __post_init__(self) -> None:
        for name in ARRAYS:
            array = getattr(self, name).view()
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @classmethod
    def from_frame(cls, frame: Frame, state: Sequence[str]) -> Steps:
        """Read a data frame of pandas, polars, pyarrow or DuckDB with the columns `expert, episode, step, action` and those named
        in `state`.

        Raises:
            ValueError: naming the row and what is wrong with it.

        Example:
            >>> rows = [("ann", 0, 0, "left", 0.5), ("ann", 0, 1, "right", 0.4), ("bob", 0, 0, "left", 0.1)]
            >>> steps = Steps.from_frame(pd.DataFrame(rows, columns=["expert", "episode", "step", "action", "x"]), ["x"])
            >>> steps.experts, steps.next_states[:, 0].tolist()
            (('ann', 'bob'), [0.4, nan, nan])
        """
        return cls._from_table(Table(as_frame(frame, "a table of decisions", ": from_file reads files")), state)

    @classmethod
    def from_file(cls, path: str | Path, state: Sequence[str]) -> Steps:
        """Read a CSV or Parquet file; see `from_frame`. Messages name the file and the line."""
        needed = (*COLUMNS, "terminated", *state, *(f"next_{name}" for name in state))
        return cls._from_table(read_table(path, "decisions", ("expert", "episode", "action"), needed), state)

    @classmethod
    def _from_table(cls, table: Table, state: Sequence[str]) -> Steps:
        _check_names(table, state)
        with refusing(table.name, f"--state {','.join(state)}"):
            when = Order.of(table)
            if len(when.actions) < 2:
                raise ValueError(f"{table.name} must hold at least two different actions, received only {when.actions[0]}")
            columns = [_coordinate(table, name) for name in state]
            states = np.column_stack([values for values, _, _ in columns])
            given = np.column_stack([after for _, after, _ in columns])
            ended = (
                _truth(table, "terminated") if "terminated" in table.frame.columns else np.zeros(when.step.size, dtype=np.bool_)
            )
            states, terminated = states[when.rows], ended[when.rows]
            when.check_steps()
            return cls(
                expert=when.expert,
                episode=when.episode,
                step=when.step,
                action=when.action,
                states=states,
                next_states=_linked(when, states, given[when.rows], terminated),
                terminated=terminated,
                experts=when.experts,
                episodes=when.episodes,
                actions=when.actions,
                coordinates=tuple(label for _, _, labels in columns for label in labels),
                sources=tuple(i for i, (_, _, labels) in enumerate(columns) for _ in labels),
            )

    def __len__(self) -> int:
        return self.step.size

    @property
    def known_next(self) -> Bools:
        """Whether the next state is known, `(N,)`."""
        return np.asarray(np.isfinite(self.next_states).all(axis=1), dtype=np.bool_)

    @property
    def episode_numbers(self) -> Ints:
        """The number of each row's episode, counted over all experts, `(N,)`."""
        changed = np.concatenate([[False], ~same_episode(self.expert, self.episode)])
        numbers: Ints = changed.cumsum()
        return numbers

    def select(self, rows: Any) -> Steps:
        """The decisions of some rows, given as indices or a mask, under the same labels."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ARRAYS})

    def keeping(self, coordinates: Sequence[int]) -> Steps:
        """The same decisions with only some of the coordinates."""
        chosen = list(coordinates)
        return replace(
            self,
            states=self.states[:, chosen],
            next_states=self.next_states[:, chosen],
            coordinates=tuple(self.coordinates[i] for i in chosen),
            sources=tuple(self.sources[i] for i in chosen),
        )

    def to_frame(self) -> pd.DataFrame:
        """The table with the user's labels, next states in columns `next_…`."""
        columns: dict[str, Any] = {
            "expert": np.array(self.experts, dtype=object)[self.expert],
            "episode": np.array(self.episodes, dtype=object)[self.episode],
            "step": self.step,
            "action": np.array(self.actions, dtype=object)[self.action],
        }
        columns |= {name: self.states[:, i] for i, name in enumerate(self.coordinates)}
        columns |= {f"next_{name}": self.next_states[:, i] for i, name in enumerate(self.coordinates)}
        if self.terminated.any():
            columns["terminated"] = self.terminated.astype(np.int64)
        return pd.DataFrame(columns)

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file that `from_file` reads back."""
        write_csv(self.to_frame(), path, read_again=True)


def _linked(when: Order, states: Floats, given: Floats, terminated: Bools) -> Floats:
    """The next states, from the following step where there is one; raises where one that was given differs from it."""

    def refuse(wrong: Bools, sentence: str) -> None:
        when.refuse(wrong, lambda row: sentence)

    refuse(when.continues & terminated[:-1], "the step is marked as terminated, but the episode goes on")
    linked, follows = given.copy(), np.flatnonzero(when.continues)
    true, unit = states[follows + 1], np.abs(states).max(axis=0)
    differs = np.zeros(len(states), dtype=np.bool_)
    # Two given values of one next state may differ by this share of the column's largest value: logs are rounded.
    same_state = 1e-6
    differs[follows] = (np.isfinite(given[follows]) & (np.abs(given[follows] - true) > same_state * unit)).any(axis=1)
    remedy = "they must agree: correct the one that is wrong, or leave the next_ columns out"
    refuse(differs, f"the next_ columns differ from the state of the next step; {remedy}")
    linked[follows] = true
    known = np.isfinite(linked)
    whole, some = (np.asarray(all_or_any(known, axis=1), dtype=np.bool_) for all_or_any in (np.all, np.any))
    refuse(some & ~whole, "the next state must be given in all its columns, received some of them empty")
    refuse(terminated & ~whole, "a step that ended the episode must have its next state in next_ columns, received none")
    if not some.any():
        raise ValueError(
            f"{when.table.name} must hold next states to learn the dynamics from, received only episodes of one step"
        )
    return linked


def _check_names(table: Table, state: Sequence[str]) -> None:
    """The state columns are there, once each, and are not the table's other columns."""
    if isinstance(state, str) or not len(state):
        raise ValueError(f"the state must be named by at least one column, received {state!r}")
    twice = next((name for name in state if list(state).count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"each state column must be named once, received {twice} twice")
    taken = [name for name in state if name in (*COLUMNS, "terminated")]
    if taken:
        raise ValueError(f"the state must be other columns than {', '.join(COLUMNS)} and terminated, received {taken[0]}")
    table.require(*COLUMNS, *state)


def _coordinate(table: Table, name: str) -> tuple[Floats, Floats, list[str]]:
    """The values `(N,c)` and next values of one state column, and the names of what it becomes; NaN where not given."""
    after = f"next_{name}"
    has_next = after in table.frame.columns
    if not _is_category(table.frame[name]):
        values = table.numbers(name)[:, None]
        return values, _optional_numbers(table, after) if has_next else np.full_like(values, np.nan), [name]
    codes, labels = table.labels(name)
    after_codes, after_labels = table.labels(after, optional=True) if has_next else (np.full(codes.size, -1), ())
    every = tuple(sorted({*labels, *after_labels}))
    values = _indicators(codes, labels, every)
    return values, _indicators(after_codes, after_labels, every), [f"{name}={label}" for label in every]


def _is_category(values: pd.Series[Any]) -> bool:
    """Whether a column has values, none of which is a number."""
    filled = values.dropna()
    if filled.dtype.kind == "b" or not len(filled):
        return filled.dtype.kind == "b"
    return bool(as_numbers(filled).isna().all())


def _indicators(codes: Ints, labels: Sequence[str], every: Sequence[str]) -> Floats:
    place = np.array([*(every.index(label) for label in labels), -1])[codes]
    found: Floats = (place[:, None] == np.arange(len(every))).astype(np.float64)
    found[codes < 0] = np.nan
    return found


def _optional_numbers(table: Table, column: str) -> Floats:
    """A column of numbers that may have empty cells, `(N,1)`."""
    values = table.frame[column]
    filled = np.flatnonzero(values.notna().to_numpy())
    numbers = np.full(len(values), np.nan)
    part = Table(values.iloc[filled].to_frame(), table.name, lambda row: table.place(int(filled[row])))
    numbers[filled] = part.numbers(column) if filled.size else 0.0
    return numbers[:, None]


def _truth(table: Table, column: str) -> Bools:
    """A column of 0 and 1, or true and false; empty is false."""
    texts = ["0" if value is None or value != value else str(value).strip().lower() for value in table.frame[column]]
    truth = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}
    for row, text in enumerate(texts):
        if text not in truth:
            raise ValueError(f"{table.at(row)}: column {column} must be 0 or 1, received {text!r}")
    return np.array([truth[text] for text in texts], dtype=np.bool_)
