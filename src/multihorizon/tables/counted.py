"""Decisions in files: loaded where they are few, counted where they are many.

Of a counted table only the cells are in memory. The database has one entry per episode, on disk where there are very many. What
more is asked for is read from the files again.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.files.labels import in_order
from multihorizon.files.reading import load
from multihorizon.files.scan import MEMORY, Scan, connect
from multihorizon.tables.cells import Decision, Episodes
from multihorizon.tables.counting import Counting
from multihorizon.tables.rows import COLUMNS, LABELS, Rows, rows_of
from multihorizon.tables.spelling import LABEL_ORDER

#: Files of more bytes, or of more rows, are counted: loading takes longer, and some hundred bytes of memory for each row.
LOADED_BYTES, LOADED_ROWS = 16_000_000, 500_000
#: A byte of a compressed file stands for about so many.
PACKED_BYTES = 8
#: The rows of larger tables are not loaded: a row takes about a hundred bytes while that is done.
MOST_ROWS = 50_000_000
#: Files are read again for so many questions about episodes. With the next one, tables of up to so many rows are loaded.
REREADINGS, KEPT_ROWS = 4, 10_000_000
#: The codes that make a cell, in the order of cells.
CELL = ("expert", "state", "action", "next_state")


class CountedFiles:
    """A table of decisions that the database has checked and counted; as `cells.Decisions` says."""

    def __init__(self, scan: Scan, cut_off: bool = False) -> None:
        try:
            self._counting = counting = Counting(scan, cut_off)
        except duckdb.OutOfMemoryException as error:
            raise MemoryError(f"{scan.name} has too many episodes and labels to be counted in {MEMORY}") from error
        except duckdb.Error as error:
            raise ValueError(f"{scan.name} is damaged, or cannot be read: {str(error).splitlines()[0]}") from error
        self.name, self.experts, self.states, self.actions = scan.name, counting.experts, counting.states, counting.actions
        self.cut_off, self.cells, self._rereadings = cut_off, counting.cells, 0

    def __reduce__(self) -> tuple[Any, ...]:
        return CountedFiles, (self._counting.scan, self.cut_off)

    @cached_property
    def episode_counts(self) -> Ints:
        """The number of episodes of each expert."""
        return self._counting.number_of_episodes("expert", len(self.experts))

    @cached_property
    def first_states(self) -> Ints:
        """The number of episodes that begin in each state."""
        return self._counting.number_of_episodes("first_state", len(self.states))

    @cached_property
    def by_episode(self) -> Episodes:
        """One entry per episode."""
        return self._counting.episodes()

    def first(self, cells: Ints) -> list[Decision]:
        """The first row of each of the given cells."""
        counting, codes = self._counting, (getattr(self.cells, name)[cells].tolist() for name in CELL)
        counting.keep("wanted", cell=cells.tolist(), **dict(zip(CELL, codes, strict=True)))
        counting.database.execute("SET threads = 1")  # rows are numbered in the order of the file
        found = counting.run(
            f"""SELECT w.cell, r.expert, r.label, r.step, r.number FROM wanted w
            JOIN (SELECT *, episode AS label FROM {counting.coded(numbered=True)}) r ON r.expert = w.expert
            AND r.state = w.state AND r.action = w.action AND coalesce(r.next_state, -1) = w.next_state
            QUALIFY row_number() OVER (PARTITION BY w.cell ORDER BY {LABEL_ORDER}, r.step) = 1 ORDER BY w.cell"""
        )
        counting.database.execute("RESET threads")
        place = counting.scan.place
        return [
            Decision(expert, self.experts[expert], episode, int(step), f"{self.name}, {place(row)}")
            for _, expert, episode, step, row in found
        ]

    def count_episodes(self, times: Floats) -> Floats:
        """How often each decision was taken, `(M,)`, if episode e counts `times[e]` times; this reads the files again."""
        self._rereadings += 1
        if self._rereadings > REREADINGS and self.cells.count.sum() <= KEPT_ROWS:
            return self.rows.count_episodes(times)
        database = self._counting.database
        database.register("given", pd.DataFrame({"number": np.arange(times.size), "times": times}))
        found = database.execute(
            f"""SELECT r.expert, r.state, r.action, coalesce(r.next_state, -1) AS next_state, sum(g.times) AS times
            FROM {self._counting.coded()} r JOIN episode e ON e.expert = r.expert AND e.label = r.episode
            JOIN given g ON g.number = e.number WHERE g.times <> 0 GROUP BY ALL"""
        ).fetchnumpy()
        database.unregister("given")
        counts = np.zeros(self.cells.count.size)
        here = self._keys(*(np.asarray(found[name], dtype=np.int64) for name in CELL))
        counts[np.searchsorted(self._keys(*(getattr(self.cells, name) for name in CELL)), here)] = found["times"]
        return counts

    def choices_of(self, kept: Bools) -> tuple[Ints, Ints]:
        """State and action of each decision of the episodes kept, `(E,)`, by episode and step; this reads the files again."""
        self._counting.database.register("given", pd.DataFrame({"number": np.flatnonzero(kept)}))
        state, action = self._counting.arrays(
            f"""SELECT r.state, r.action FROM {self._counting.coded()} r
            JOIN episode e ON e.expert = r.expert AND e.label = r.episode JOIN given g ON g.number = e.number
            ORDER BY e.number, r.step"""
        )
        self._counting.database.unregister("given")
        return state, action

    def _keys(self, expert: Ints, state: Ints, action: Ints, next_state: Ints) -> Ints:
        """One number for each cell, in their order."""
        size = len(self.states)
        keys: Ints = ((expert * size + state) * len(self.actions) + action) * (size + 1) + next_state + 1
        return keys

    @cached_property
    def rows(self) -> Rows:
        """The table in memory.

        Raises:
            ValueError: where it is too large for that.
        """
        size = int(self.cells.count.sum())
        if size > MOST_ROWS:
            raise ValueError(
                f"{self.name} must have at most {MOST_ROWS} decisions to be loaded one by one, received {size}: it can be "
                "counted, fitted and checked, but its rows cannot be listed"
            )
        labels = [label for (label,) in self._counting.run("SELECT label FROM episode ORDER BY number")]
        episodes = in_order(set(labels))
        code = {name: i for i, name in enumerate(episodes)}
        number, step, state, action, next_state = self._counting.arrays(
            f"""SELECT e.number, r.step::BIGINT AS step, r.state, r.action, coalesce(r.next_state, -1) AS next_state
            FROM {self._counting.coded()} r JOIN episode e ON e.expert = r.expert AND e.label = r.episode
            ORDER BY e.number, r.step"""
        )
        episode = np.array([code[label] for label in labels], dtype=np.int64)[number]
        codes = self.by_episode.expert[number], episode, step, state, action, next_state
        return Rows(*codes, self.experts, episodes, self.states, self.actions, self.name, cut_off=self.cut_off)


def decisions_of(scan: Scan, cut_off: bool = False) -> Rows | CountedFiles:
    """The decisions of a scan, loaded or counted.

    Raises:
        ValueError: naming the line or row and what is wrong with it.
    """
    return (
        CountedFiles(scan, cut_off) if is_large(scan) else rows_of(load(scan, LABELS, (*COLUMNS, "next_state")), cut_off=cut_off)
    )


def is_large(scan: Scan) -> bool:
    """Whether the rows of a scan are too many to be loaded without need."""
    if scan.is_csv:
        return sum(file.stat().st_size * (1 if file.suffix == ".csv" else PACKED_BYTES) for file in scan.read) > LOADED_BYTES
    with connect() as database:
        return int(database.execute(f"SELECT count(*) FROM {scan.relation}").fetchall()[0][0]) > LOADED_ROWS
