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

from multihorizon.checks import Bools, Floats, Frame, HasFrame, Ints, as_frame
from multihorizon.data.reading import Columns, InputTable, read_table
from multihorizon.data.rules import read_log, refusing
from multihorizon.files import write_csv

COLUMNS = ("expert", "episode", "step", "action")
#: The arrays of a table, one entry per decision each.
ARRAYS = ("expert", "episode", "step", "action", "states", "next_states", "terminated")


@dataclass(frozen=True, eq=False)
class Steps(HasFrame):
    """Decisions of several experts in continuous states, sorted by expert, episode and step.

    `expert`, `episode` and `action` are `(N,)` codes into `experts`, `episodes` and `actions`. `states` is `(N,d)`;
    `next_states` `(N,d)` is NaN where it is not known. `terminated` `(N,)` marks steps after which nothing can be earned.
    `coordinates` are the names of the d columns, and `sources` says which column of the table each of them comes from: the
    indicators of one category have one source.

    Example:
        >>> from multihorizon.domains import navigation
        >>> navigation().simulate(decisions=20, length=10).coordinates
        ('x', 'y')
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
        return cls._from_table(InputTable(as_frame(frame, "a table of decisions", ": from_file reads files")), state)

    @classmethod
    def from_file(cls, path: str | Path, state: Sequence[str], columns: Columns | None = None) -> Steps:
        """Read a CSV or Parquet file; see `from_frame`. Messages name the file and the line.

        `columns` says what other columns are called in the file, as in `Demonstrations.from_frame`.
        """
        needed = (*COLUMNS, "terminated", *state, *(f"next_{name}" for name in state))
        return cls._from_table(read_table(path, "decisions", ("expert", "episode", "action"), needed, columns), state)

    @classmethod
    def _from_table(cls, table: InputTable, state: Sequence[str]) -> Steps:
        _check_names(table, state)
        with refusing(table.name, state):
            log = read_log(table, state)
            if len(log.actions) < 2:
                raise ValueError(f"{table.name} must hold at least two different actions, got only {log.actions[0]}")
            following = np.append(log.coordinates[1:], log.coordinates[:1], axis=0)
            next_states = np.where(log.goes_on[:, None], following, log.next_coordinates)
            if not np.isfinite(next_states).any():
                raise ValueError(f"{table.name} must hold next states to learn the dynamics from, got only episodes of one step")
            return cls(
                expert=log.expert,
                episode=log.episode,
                step=log.step.astype(np.int64),
                action=log.action,
                states=log.coordinates,
                next_states=next_states,
                terminated=log.terminated == 1,
                experts=log.experts,
                episodes=log.episodes,
                actions=log.actions,
                coordinates=log.coordinate_names,
                sources=log.sources,
            )

    def __len__(self) -> int:
        return self.step.size

    @property
    def known_next(self) -> Bools:
        """Return whether the next state is known, `(N,)`."""
        return np.asarray(np.isfinite(self.next_states).all(axis=1), dtype=np.bool_)

    @property
    def episode_numbers(self) -> Ints:
        """Return the number of each row's episode, counted over all experts, `(N,)`."""
        changed = (np.diff(self.expert, prepend=self.expert[:1]) != 0) | (np.diff(self.episode, prepend=self.episode[:1]) != 0)
        numbers: Ints = changed.cumsum()
        return numbers

    def select(self, rows: Any) -> Steps:
        """Return the decisions of some rows, given as indices or a mask, under the same labels."""
        return replace(self, **{name: getattr(self, name)[rows] for name in ARRAYS})

    def keeping(self, coordinates: Sequence[int]) -> Steps:
        """Return the same decisions with only some of the coordinates."""
        chosen = list(coordinates)
        return replace(
            self,
            states=self.states[:, chosen],
            next_states=self.next_states[:, chosen],
            coordinates=tuple(self.coordinates[i] for i in chosen),
            sources=tuple(self.sources[i] for i in chosen),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the table with the user's labels, next states in columns `next_…`."""
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


def _check_names(table: InputTable, state: Sequence[str]) -> None:
    """The state columns are there, once each, and are not the table's other columns."""
    if isinstance(state, str) or not len(state):
        raise ValueError(f"the state must be named by at least one column, got {state!r}")
    twice = next((name for name in state if list(state).count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"each state column must be named once, got {twice} twice")
    taken = [name for name in state if name in (*COLUMNS, "terminated")]
    if taken:
        raise ValueError(f"the state must be other columns than {', '.join(COLUMNS)} and terminated, got {taken[0]}")
    table.require(*COLUMNS, *state)
