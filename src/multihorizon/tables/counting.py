"""A large table of decisions, checked and counted by the database, without ever being in memory.

*Counting* takes one pass: rows are grouped by expert, state, action and next state.

*Checking* takes another: rows are grouped by episode. With h a random function of 64 bits, an episode whose steps run from f to l
is in order if, over its rows,

    Σ h(step, state) − Σ h(step + 1, next state) = h(f, first state) − h(l + 1, last next state),

because then all terms but two cancel: every step is there once, and every next state is the state of the following step. A wrong
episode passes by chance once in 10¹⁸. No row is sorted, and of each episode a few numbers are kept.

Both passes read labels as they are spelt in the files. Where two spellings mean one label (3 and 3.0), or next states are blank
inside an episode, the second pass goes over codes instead, which is slower. Where something is wrong, the rows in question are
loaded, and the checks of tables in memory (`rows`) say what it is and on which line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import duckdb
import numpy as np
import pandas as pd

from multihorizon.checks import Ints
from multihorizon.files.labels import in_order
from multihorizon.files.reading import as_table
from multihorizon.files.scan import Scan, connect, quoted, rewritten
from multihorizon.files.table import Table
from multihorizon.tables.cells import Cells, Episodes
from multihorizon.tables.rows import COLUMNS, LABELS, rows_of
from multihorizon.tables.spelling import BAD_STEP, LABEL_ORDER, PLAIN, coded, label_reader, require_labels, spelt

#: Of so many wrong episodes the rows are loaded to say what is wrong: most often there are few.
EXPLAINED = 1000
#: Episodes are fetched in pieces of so many vectors of the database, which have 2048 entries each.
FETCHED_VECTORS = 64
_BLANK = "{0} IS NULL OR {0}::VARCHAR = ''"


class Counting:
    """The passes over one scan.

    Attributes:
        experts, states, actions: labels.
        cells: how often each decision was taken.
        filled: whether blank next states inside episodes are taken from the next step.

    The table `episode` of the database has one row per episode: number, expert, label, first_state, n.
    """

    def __init__(self, scan: Scan, cut_off: bool = False) -> None:
        Table(pd.DataFrame([[None] * len(scan.types)], columns=list(scan.types)), scan.name).require(*COLUMNS)
        require_labels(scan, LABELS)
        self.scan, self.cut_off, self.database = scan, cut_off, connect()
        self.has_next = "next_state" in scan.types
        self.filled = self.respelt = False
        self._count_spelt()
        self.experts = self._read_labels("expert")
        self.actions = self._read_labels("action")
        self.states = self._read_labels("state", "next_state")
        self._check_episodes()
        self.cells = self._count()
        self.database.execute("DROP TABLE spelt; DROP TABLE grouped")

    def coded(self, numbered: bool = False) -> str:
        """The rows with codes, in SQL."""
        return coded(self.scan, self.filled, numbered)

    def run(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The answer to a query."""
        return self.database.execute(query, list(values)).fetchall()

    def arrays(self, query: str) -> list[Ints]:
        """The columns of the answer to a query, all of whole numbers."""
        return [np.asarray(column, dtype=np.int64) for column in self.database.execute(query).fetchnumpy().values()]

    def number_of_episodes(self, column: str, size: int) -> Ints:
        """How many episodes have each of `size` codes in a column of the table `episode`."""
        found: Ints = np.zeros(size, dtype=np.int64)
        codes, counts = self.arrays(f"SELECT {column}, count(*) AS n FROM episode GROUP BY {column}")
        found[codes] = counts
        return found

    def episodes(self) -> Episodes:
        """One entry per episode, fetched piece by piece: all at once, the database's answer would take as much memory again."""
        size = int(self.run("SELECT count(*) FROM episode")[0][0])
        columns = {name: np.empty(size, dtype=np.int64) for name in ("expert", "first_state", "n")}
        answer = self.database.execute(f"SELECT number, {', '.join(columns)} FROM episode")
        while len(piece := answer.fetch_df_chunk(FETCHED_VECTORS)):
            for name, column in columns.items():
                column[piece["number"]] = piece[name]
        return Episodes(*columns.values())

    def keep(self, name: str, **columns: Sequence[object]) -> None:
        """Make a table of the database; its columns are text, and numbers where the first entry is one."""
        types = [f"{c} {'BIGINT' if len(v) and not isinstance(v[0], str) else 'VARCHAR'}" for c, v in columns.items()]
        self.database.execute(f"CREATE OR REPLACE TEMP TABLE {name} ({', '.join(types)})")
        frame = pd.DataFrame(columns)
        if len(frame):
            self.database.register("given", frame.astype(dict.fromkeys(frame.select_dtypes(exclude="number"), object)))
            self.database.execute(f"INSERT INTO {name} SELECT * FROM given")
            self.database.unregister("given")

    def _count_spelt(self) -> None:
        """The table `spelt`; a CSV file that the database cannot read, or reads with odd rows, is written anew first."""
        query = f"""CREATE OR REPLACE TEMP TABLE spelt AS SELECT expert, state, action, next_state, count(*) AS n,
            count_if(odd) AS odd FROM {spelt(self.scan)} GROUP BY expert, state, action, next_state"""
        try:
            self.database.execute(query)
            unusual = self.run("SELECT coalesce(sum(odd), 0) FROM spelt")[0][0] > 0
        except duckdb.Error as error:
            if isinstance(error, duckdb.OutOfMemoryException) or not self.scan.padded:
                raise
            unusual = True
        if unusual:
            self.scan = rewritten(self.scan.name, self.scan.files)
            self._count_spelt()

    def _read_labels(self, *columns: str) -> tuple[str, ...]:
        """The labels of columns that share theirs; the table `<column>_label` holds the code of each spelling."""
        found = " UNION ".join(f"SELECT DISTINCT {column}::VARCHAR, '{column}' FROM spelt" for column in columns)
        names: dict[str, str] = {}
        for raw, column in self.run(f"SELECT * FROM ({found}) ORDER BY ALL"):
            if raw:
                names[raw] = self._label(column, raw)
            elif column != "next_state":
                self._explain(_BLANK.format(column))
        labels = in_order(set(names.values()))
        code = {name: i for i, name in enumerate(labels)}
        self.keep(f"{columns[0]}_label", raw=list(names), code=[code[name] for name in names.values()])
        self.respelt = self.respelt or len(labels) < len(names)
        return labels

    def _label(self, column: str, raw: str) -> str:
        try:
            return label_reader(self.scan, column)(raw, f"column {column}")
        except ValueError:
            self._explain(f"{column}::VARCHAR = ?", [raw])

    def _check_episodes(self) -> None:
        """The table `episode`, or a message about the first episode that is not in order."""
        self._group_episodes(spelt(self.scan))
        self._read_episode_labels()
        if self.run("SELECT count(*) FROM grouped WHERE bad")[0][0]:
            self._explain(BAD_STEP)
        inside = "SELECT count(*) FROM grouped WHERE n - known > CASE WHEN last_next IS NULL THEN 1 ELSE 0 END"
        self.filled = self.run(inside)[0][0] > 0 if self.has_next else self.cut_off
        if self.filled or self.respelt:
            self._group_episodes(self.coded())
            named = "SELECT *, episode AS label FROM grouped"
        else:
            named = """SELECT g.* REPLACE (e.code AS expert, s.code AS first_state), s.raw, coalesce(l.label, g.episode::VARCHAR)
                AS label FROM grouped g JOIN expert_label e ON e.raw = g.expert::VARCHAR
                JOIN state_label s ON s.raw = g.first_state::VARCHAR LEFT JOIN episode_label l ON l.raw = g.episode::VARCHAR"""
        self.database.execute(
            f"""CREATE OR REPLACE TEMP TABLE episode AS SELECT row_number() OVER (ORDER BY expert, {LABEL_ORDER}) - 1 AS number,
            expert, label, first_state, n, wrong FROM ({named})"""
        )
        if self.run("SELECT count(*) FROM episode WHERE wrong")[0][0]:
            some = f"SELECT expert, label FROM episode WHERE wrong ORDER BY number LIMIT {EXPLAINED}"
            self._explain(f"(expert, episode) IN ({some})", rows=self.coded(numbered=True), most=None)

    def _group_episodes(self, rows: str) -> None:
        """The table `grouped`: each episode, as it is spelt or by its code and label, and whether it is in order."""
        h = "hash(hash({}, {}))" if self.has_next else "hash({})"
        after = f"CASE WHEN {{}} IS NOT NULL THEN {h.format('{} + 1', '{}')} ELSE 0 END" if self.has_next else "hash({1} + 1)"
        sums = f"sum({h.format('step', 'state')}) - sum({after.format('next_state', 'step', 'next_state')})"
        ends = f"{h.format('low', 'first_state')}::HUGEINT - {after.format('last_next', 'high', 'last_next')}::HUGEINT"
        self.database.execute(
            f"""CREATE OR REPLACE TEMP TABLE grouped AS SELECT *, sums <> {ends} AS wrong FROM (
            SELECT expert, episode, count(*) AS n, min(step) AS low, max(step) AS high, {sums} AS sums,
            arg_min(state, step) AS first_state, arg_max_null(next_state, step) AS last_next, count(next_state) AS known,
            bool_or({BAD_STEP}) AS bad FROM {rows} GROUP BY expert, episode)"""
        )

    def _read_episode_labels(self) -> None:
        """The table `episode_label`, for the episodes that may not be called as they are spelt."""
        plain = PLAIN.format("episode::VARCHAR")
        query = f"SELECT DISTINCT episode::VARCHAR AS raw FROM grouped WHERE ({plain}) IS NOT TRUE ORDER BY raw"
        unclear = [raw for (raw,) in self.run(query)]
        if None in unclear or "" in unclear:
            self._explain(_BLANK.format("episode"))
        self.keep("episode_label", raw=unclear, label=[self._label("episode", raw) for raw in unclear])
        called = "SELECT count(DISTINCT episode), count(DISTINCT coalesce(label, episode::VARCHAR)) FROM grouped LEFT JOIN"
        spellings, names = self.run(f"{called} episode_label ON raw = episode::VARCHAR")[0] if unclear else (0, 0)
        self.respelt = self.respelt or spellings > names

    def _count(self) -> Cells:
        counted = f"SELECT expert, state, action, next_state, count(*) AS n FROM {self.coded()} GROUP BY ALL"
        if not self.filled:
            counted = """SELECT e.code AS expert, s.code AS state, a.code AS action, t.code AS next_state, sum(c.n) AS n
                FROM spelt c JOIN expert_label e ON e.raw = c.expert::VARCHAR JOIN action_label a ON a.raw = c.action::VARCHAR
                JOIN state_label s ON s.raw = c.state::VARCHAR LEFT JOIN state_label t ON t.raw = c.next_state::VARCHAR
                GROUP BY ALL"""
        found = self.arrays(f"SELECT expert, state, action, coalesce(next_state, -1) AS next_state, n FROM ({counted})")
        order = np.lexsort(found[3::-1])
        return Cells(*(column[order] for column in found))

    def _explain(self, condition: str, values: Sequence[object] = (), rows: str = "", most: int | None = 1) -> NoReturn:
        """Raise what the checks of tables in memory say about the first rows that meet a condition."""
        self.database.execute("SET threads = 1")  # rows are numbered in the order of the file
        query = f"SELECT number FROM {rows or spelt(self.scan, numbered=True)} WHERE {condition} ORDER BY number"
        numbers = [number for (number,) in self.run(query if most is None else f"{query} LIMIT {most}", values)]
        self.keep("wanted", place=numbers)
        columns = ", ".join(quoted(column) for column in self.scan.types if column in (*COLUMNS, "next_state"))
        every = f"(SELECT {columns}, row_number() OVER () - 1 AS place_in_table FROM {self.scan.relation})"
        found = self.database.execute(f"SELECT {columns} FROM {every} JOIN wanted ON place = place_in_table ORDER BY place").df()
        rows_of(as_table(found, self.scan, LABELS, numbers))
        raise ValueError(f"{self.scan.name} changed while it was read: read it again")
