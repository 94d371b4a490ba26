"""Tables of decisions that are too large to be loaded: checked and counted by a database (DuckDB), out of core.

*Counting* takes one pass that finds all labels, and one that groups rows by the codes of expert, state, action and next state; of
CSV files, which are slow to read, one pass does both. *Checking* takes another: rows are grouped by episode. With h a random
function of 64 bits, an episode whose steps run from f to l is in order if, over its rows,

    Σ h(step, state) − Σ h(step + 1, next state) = h(f, first state) − h(l + 1, last next state),

because then all terms but two cancel: every step is there once, and every next state is the state of the following step. A wrong
episode passes by chance once in 10¹⁸. No row is sorted, and of each episode a few numbers are kept. A condition is the same in
all rows of an episode if its least value there is its greatest, and it is known in all of them or in none.

Checking reads labels as they are spelt in the files. Where two spellings mean one label (3 and 3.0), or next states are blank
inside an episode, it goes over codes instead, which is slower. Where something is wrong, the rows in question are loaded, and the
rules for tables say what it is and on which line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, NoReturn

import duckdb
import numpy as np
import pandas as pd

from multihorizon.checks import LARGEST_WHOLE, Bools, Floats, Ints, Sparse, label
from multihorizon.data.demonstrations import Demonstrations, Episodes, Keys, Moves, decide, require_conditions, summed
from multihorizon.data.reading import (
    MEMORY,
    MISSING,
    InputTable,
    Scan,
    as_table,
    connect,
    damaged,
    in_order,
    no_labels,
    numbers_or_missing,
    quoted,
    rewritten,
    spreadsheet_label,
    text,
)
from multihorizon.data.rules import CODES, COLUMNS, LABELS, Decision, located
from multihorizon.mdp import MDP


@contextmanager
def in_order_of_file(database: Any) -> Iterator[None]:
    """Let queries number rows in the order of the file, on one thread; afterwards there are all again, also after an error."""
    database.execute("SET threads = 1")
    try:
        yield
    finally:
        database.execute("RESET threads")


_FLOATS = ("FLOAT", "DOUBLE")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "UHUGEINT")
#: What is true of a step that is no whole number.
BAD_STEP = f"step IS NULL OR abs(step) > {LARGEST_WHOLE} OR step <> round(step)"
#: The order of the labels of episodes: whole numbers as numbers, then text as text.
LABEL_ORDER = "CASE WHEN regexp_full_match(label, '-?[0-9]{1,18}') THEN label::BIGINT END NULLS LAST, label"


def spelt(scan: Scan, numbered: bool = False, conditions: Sequence[str] = ()) -> str:
    """Return the rows as they are spelt, in SQL.

    Labels have the type they have in the file, and states and next states one type; `step` is a number, empty where it is none;
    `odd` says whether a row is longer or shorter than the header; `number`, if asked for, counts rows from 0. Conditions are
    called `condition0`, `condition1`, …
    """
    kind = scan.types["step"]  # dates and truth values are no numbers
    number = kind in (*_FLOATS, *_WHOLE, "VARCHAR") or kind.startswith("DECIMAL")
    step = "TRY_CAST(step AS DOUBLE)" if number else "NULL::DOUBLE"
    (state, after) = _states(scan.types)
    columns = ["expert", "episode", "action", f"{step} AS step", f"{state} AS state", f"{after} AS next_state"]
    columns += [f"{scan.odd} AS odd", *(f"{_known(scan, column)} AS condition{i}" for i, column in enumerate(conditions))]
    columns += ["row_number() OVER () - 1 AS number"] if numbered else []
    return f"(SELECT {', '.join(columns)} FROM {scan.relation})"


def _known(scan: Scan, column: str) -> str:
    """Return a condition in SQL: nothing where the cell says that it is missing."""
    cell = quoted(column)
    kind = scan.types[column]
    if kind in _FLOATS:
        return f"CASE WHEN NOT isnan({cell}) THEN {cell} END"
    words = ", ".join(map(text, MISSING))
    return f"CASE WHEN lower(trim({cell})) NOT IN ({words}) THEN {cell} END" if kind == "VARCHAR" else cell


def coded(scan: Scan, filled: bool, numbered: bool = False, conditions: Sequence[str] = ()) -> str:
    """Return the rows with codes, in SQL, from the tables `<column>_label` of the database, and episodes with their labels.

    With `filled`, blank next states inside an episode are taken from the next step.
    """
    more = "".join([", r.number" if numbered else "", *(f", r.condition{i}" for i in range(len(conditions)))])
    rows = f"""SELECT e.code AS expert, coalesce(l.label, r.episode::VARCHAR) AS episode, r.step, s.code AS state,
        a.code AS action, t.code AS next_state{more} FROM {spelt(scan, numbered, conditions=conditions)} r
        JOIN expert_label e ON e.raw = r.expert::VARCHAR JOIN action_label a ON a.raw = r.action::VARCHAR
        JOIN state_label s ON s.raw = r.state::VARCHAR LEFT JOIN state_label t ON t.raw = r.next_state::VARCHAR
        LEFT JOIN episode_label l ON l.raw = r.episode::VARCHAR"""
    if not filled:
        return f"({rows})"
    following = "lead(state) OVER (PARTITION BY expert, episode ORDER BY step)"
    return f"(SELECT * REPLACE (coalesce(next_state, {following}) AS next_state) FROM ({rows}))"


def label_reader(scan: Scan, column: str) -> Callable[[str, str], str]:
    """Return what makes a label of the text that SQL makes of a cell, as Python makes it of the cell."""
    if scan.is_csv:
        return spreadsheet_label
    kind = "DOUBLE" if column in ("state", "next_state") and "DOUBLE" in _states(scan.types)[0] else scan.types[column]
    if kind in _FLOATS:
        return lambda raw, name: label(float(raw), name)
    return (lambda raw, name: label(raw == "true", name)) if kind == "BOOLEAN" else label


def require_labels(scan: Scan, columns: tuple[str, ...]) -> None:
    """Raise where a column cannot hold labels."""
    for column in columns:
        kind = scan.types.get(column, "")
        if kind == "BLOB" or kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
            raise no_labels(scan.name, column, kind == "BLOB")


def _states(types: dict[str, str]) -> tuple[str, str]:
    """Return state and next state in SQL, in one type: numbers that differ in theirs as floats, anything else as text."""
    state = types["state"]
    after = types.get("next_state")
    if after is None:
        return "state", "NULL::VARCHAR"
    if state == after:
        return "state", "nullif(next_state, '')" if after == "VARCHAR" else "next_state"
    one = "DOUBLE" if {state, after} <= {*_FLOATS, *_WHOLE} else "VARCHAR"
    return f"state::{one}", f"nullif(next_state::{one}, '')" if one == "VARCHAR" else f"next_state::{one}"


#: Files are read again for so many questions about episodes. With the next one, tables of up to so many rows are loaded.
REREADINGS, KEPT_ROWS = 4, 10_000_000


class CountedFiles(Demonstrations):
    """A table of decisions that the database checks and counts, in the passes described above.

    The table `grouped` of the database has one row per episode, and the table `episode`, once it is asked for, the same rows
    numbered in order: number, expert, label, first_state, n. `filled` says whether blank next states inside episodes are taken
    from the next step, and `respelt` whether some label is spelt in two ways. Both tables have of each condition the least and
    the greatest value in an episode, and in how many rows it is known.
    """

    def __init__(self, scan: Scan, cut_off: bool = False, conditions: Sequence[str] = (), *, most_rows: int = 50_000_000) -> None:
        """Count a scan; the rows of tables with more than `most_rows` are not loaded: each takes a hundred bytes on the way."""
        InputTable(pd.DataFrame(index=[0]), scan.name, scan=scan).require(*COLUMNS)
        require_conditions(scan.name, conditions, list(scan.types))
        require_labels(scan, (*LABELS, *conditions))
        self.scan = scan
        self.database = connect()
        self.has_next = "next_state" in scan.types
        self.columns = tuple(conditions)
        self.filled = self.respelt = False
        self._rereadings, self._most_rows = 0, most_rows
        self._set(name=scan.name, cut_off=cut_off, conditions=None)
        try:
            self._count_spelt()
            self._set(experts=self._read_labels("expert"), actions=self._read_labels("action"))
            self._set(states=self._read_labels("state", "next_state"))
            self._check_episodes()
            self._set(conditions=self._read_conditions() if conditions else None)
            self._moves, self._made = self._count()
            self.database.execute("DROP TABLE spelt")
        except duckdb.OutOfMemoryException as error:
            raise MemoryError(f"{scan.name} has too many episodes and labels to be counted in {MEMORY}") from error
        except duckdb.Error as error:
            raise damaged(scan, error) from error

    def _set(self, **values: object) -> None:
        """Set what users may not change."""
        vars(self).update(values)

    @property
    def moves(self) -> Moves:
        """Return the distinct moves, and how often each was made."""
        return self._moves

    @property
    def made(self) -> Sparse:
        """Return how often each expert made each of the moves, `(K,m)`, sparse."""
        return self._made

    def __reduce__(self) -> tuple[Any, ...]:
        return CountedFiles, (self.scan, self.cut_off, self.columns), {"conditions": self.conditions}

    def __getattr__(self, name: str) -> Any:
        """Return what only the rows hold."""
        if name not in (*CODES, "episodes", "first_rows"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        return getattr(self.rows, name)

    @cached_property
    def episode_counts(self) -> Ints:
        """Return the number of episodes of each expert."""
        return self._episodes_by("expert", len(self.experts))

    @cached_property
    def first_states(self) -> Ints:
        """Return the number of episodes that begin in each state."""
        return self._episodes_by("first_state", len(self.states))

    def _episodes_by(self, column: str, size: int) -> Ints:
        """Return how many episodes have each of `size` codes in a column of the table `grouped`."""
        codes, counts = self.arrays(f"SELECT {column} AS code, count(*) AS n FROM grouped GROUP BY code")
        every: Ints = np.zeros(size, dtype=np.int64)
        every[codes] = counts
        return every

    @cached_property
    def by_episode(self) -> Episodes:
        """Return expert, first state and length of each episode."""
        size = int(self.run("SELECT count(*) FROM grouped")[0][0])
        columns = {name: np.empty(size, dtype=np.int64) for name in ("expert", "first_state", "n")}
        for piece in self.pieces(f"SELECT number, {', '.join(columns)} FROM {self.numbered}"):
            for name, column in columns.items():
                column[piece["number"]] = piece[name]
        return Episodes(*columns.values())

    @property
    def episode_labels(self) -> list[str]:
        """Return the label of each episode, in the order of `by_episode`."""
        return [name for (name,) in self.run(f"SELECT label FROM {self.numbered} ORDER BY number")]

    def with_conditions(self, conditions: pd.DataFrame | None) -> CountedFiles:
        """Return the same decisions under other conditions, one row per episode in the order of `by_episode`."""
        made = object.__new__(CountedFiles)  # a copy would read the files again
        made._set(**{name: value for name, value in vars(self).items() if name != "rows"} | {"conditions": conditions})
        return made

    def decisions_of(self, moves: Ints) -> list[Decision]:
        """Return the first decision by which each of the given moves was made, for messages."""
        fields = ("state", "action", "next_state")
        codes = (getattr(self.moves, name)[moves].tolist() for name in fields)
        self.keep("wanted", move=moves.tolist(), **dict(zip(fields, codes, strict=True)))
        with in_order_of_file(self.database):
            first = self.run(
                f"""SELECT w.move, r.expert, r.label, r.step, r.number FROM wanted w
                JOIN (SELECT *, episode AS label FROM {self.coded(numbered=True)}) r
                ON r.state = w.state AND r.action = w.action AND coalesce(r.next_state, -1) = w.next_state
                QUALIFY row_number() OVER (PARTITION BY w.move ORDER BY r.expert, {LABEL_ORDER}, r.step) = 1 ORDER BY w.move"""
            )
        return [
            Decision(expert, self.experts[expert], episode, int(step), partial(located, self.name, self.scan.place, row))
            for _, expert, episode, step, row in first
        ]

    def count_episodes(self, times: Floats) -> Floats:
        """Return how often each of the `cells` was taken, if episode e counts `times[e]` times; this reads the files again."""
        self._rereadings += 1
        if self._rereadings > REREADINGS and len(self) <= KEPT_ROWS:
            return self.rows.count_episodes(times)
        database = self.database
        database.register("given", pd.DataFrame({"number": np.arange(times.size), "times": times}))
        answer = database.execute(
            f"""SELECT r.expert, r.state, r.action, coalesce(r.next_state, -1) AS next_state, sum(g.times) AS times
            FROM {self.decisions} JOIN given g ON g.number = e.number WHERE g.times <> 0 GROUP BY ALL"""
        ).fetchnumpy()
        database.unregister("given")
        counts = np.zeros(self.made.nnz)
        cells = self.cells
        fields = ("expert", "state", "action", "next_state")
        here = Keys(self).of(*(np.asarray(answer[name], dtype=np.int64) for name in fields))
        counts[np.searchsorted(Keys(self).of(*(getattr(cells, name) for name in fields)), here)] = answer["times"]
        return counts

    def choices_by(self, mdp: MDP, unit: Ints, size: int, by_last: bool = False) -> Sparse:
        """Return `choices` where episode e is one of unit `unit[e]`, and −1 means of none; this reads the files again."""
        states, actions, left_out = self.require_available(mdp)
        move = pd.DataFrame(vars(self.moves)).drop(columns="count")
        columns = (actions * mdp.n_states + states).astype(np.int32)
        self.database.register("given", pd.DataFrame({"number": np.arange(unit.size), "unit": unit.astype(np.int32)}))
        self.database.register("counted", move.assign(place=columns)[~left_out])
        pieces = self.pieces(
            f"""SELECT g.unit, m.place, d.last, count(*)::DOUBLE AS n FROM ({self._ordered(by_last)}) d
            JOIN given g ON g.number = d.number
            JOIN counted m ON m.state = d.state AND m.action = d.action AND m.next_state = d.next_state
            WHERE g.unit >= 0 GROUP BY ALL"""
        )
        none = np.zeros(0), *np.zeros((3, 0), dtype=np.int32)
        parts = [none, *((piece["n"], piece["unit"], piece["place"], piece["last"]) for piece in pieces)]
        self.database.unregister("given")
        self.database.unregister("counted")
        counts, rows, places, last = (np.concatenate(column) for column in zip(*parts, strict=True))
        contexts = mdp.n_states
        if by_last:
            before = np.append(self.match(mdp)[1], mdp.n_actions)[last]
            contexts = mdp.n_states * (mdp.n_actions + 1)
            places = places // mdp.n_states * contexts + before * mdp.n_states + places % mdp.n_states
        return summed(counts, rows, places, (size, mdp.n_actions * contexts))

    def choices_of(self, kept: Bools) -> tuple[Ints, Ints, Ints]:
        """Return state, action and last action of each decision of the episodes kept, `(E,)`, by episode and step; this reads
        the files again.
        """
        self.database.register("given", pd.DataFrame({"number": np.flatnonzero(kept)}))
        state, action, last = self.arrays(
            f"SELECT d.state, d.action, d.last FROM ({self._ordered(True)}) d JOIN given g ON g.number = d.number "
            "ORDER BY d.number, d.step"
        )
        self.database.unregister("given")
        return state, action, last

    def _ordered(self, by_last: bool) -> str:
        """Return the decisions with the action before each of them, −1 where there is none or it does not matter, in SQL."""
        window = " WINDOW w AS (PARTITION BY e.number ORDER BY r.step)" if by_last else ""
        last = "CASE WHEN lag(r.step) OVER w = r.step - 1 THEN lag(r.action) OVER w ELSE -1 END" if by_last else "-1"
        return (
            f"SELECT e.number, r.step, r.state, r.action, coalesce(r.next_state, -1) AS next_state, {last} AS last "
            f"FROM {self.decisions}{window}"
        )

    @cached_property
    def rows(self) -> Demonstrations:
        """Return the table in memory.

        Raises:
            ValueError: where it is too large for that.
        """
        size = len(self)
        if size > self._most_rows:
            raise ValueError(
                f"{self.name} must have at most {self._most_rows} decisions to be loaded one by one, got {size}: it can be "
                "counted, fitted and checked, but its rows cannot be listed"
            )
        labels = self.episode_labels
        episodes = in_order(set(labels))
        code = {name: i for i, name in enumerate(episodes)}
        number, step, state, action, next_state = self.arrays(
            f"""SELECT e.number, r.step::BIGINT AS step, r.state, r.action, coalesce(r.next_state, -1) AS next_state
            FROM {self.decisions} ORDER BY e.number, r.step"""
        )
        episode = np.array([code[label] for label in labels], dtype=np.int64)[number]
        codes = self.by_episode.expert[number], episode, step, state, action, next_state
        names = self.experts, episodes, self.states, self.actions
        return Demonstrations(*codes, *names, self.name, cut_off=self.cut_off, conditions=self.conditions)

    @property
    def decisions(self) -> str:
        """Return the rows with codes `r`, each with its episode `e`, in SQL."""
        return f"{self.coded()} r JOIN {self.numbered} e ON e.expert = r.expert AND e.label = r.episode"

    def coded(self, numbered: bool = False, conditions: Sequence[str] = ()) -> str:
        """Return the rows with codes, in SQL."""
        return coded(self.scan, self.filled, numbered, conditions)

    def run(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Return the answer to a query."""
        return self.database.execute(query, list(values)).fetchall()

    def arrays(self, query: str) -> list[Ints]:
        """Return the columns of the answer to a query, all of whole numbers."""
        return [np.asarray(column, dtype=np.int64) for column in self.database.execute(query).fetchnumpy().values()]

    def pieces(self, query: str) -> Iterator[dict[str, Ints]]:
        """Return the same in pieces: all at once, the database's answer would take as much memory again."""
        answer = self.database.execute(query)
        while len(piece := answer.fetch_df_chunk(64)):  # vectors of 2048 entries
            yield {str(name): piece[name].to_numpy() for name in piece}

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
        """Make the table `spelt`; a CSV file that the database cannot read, or reads with odd rows, is written anew first.

        It has every expert and every move as they are spelt: of text, which takes long to read again, both together, and of other
        files each alone, because a million experts and their moves together are about as many as the rows.
        """
        sets = "(expert, state, action, next_state)" if self.scan.is_csv else "(expert), (state, action, next_state)"
        query = f"""CREATE OR REPLACE TEMP TABLE spelt AS SELECT expert, state, action, next_state, count(*) AS n,
            count_if(odd) AS odd, grouping(expert) = 0 AS of_expert, grouping(action) = 0 AS of_move FROM {spelt(self.scan)}
            GROUP BY GROUPING SETS ({sets})"""
        try:
            self.database.execute(query)
            unusual = self.run("SELECT coalesce(sum(odd), 0) FROM spelt")[0][0] > 0
        except duckdb.Error as error:
            if isinstance(error, duckdb.OutOfMemoryException) or not self.scan.padded:
                raise
            unusual = True
        if unusual:
            self.scan = rewritten(self.scan.name, self.scan.files).called(self.scan.columns)
            self._count_spelt()

    def _read_labels(self, *columns: str) -> tuple[str, ...]:
        """Return the labels of columns that share theirs; the table `<column>_label` holds the code of each spelling."""
        of = "of_expert" if columns == ("expert",) else "of_move"
        union = " UNION ".join(f"SELECT DISTINCT {column}::VARCHAR, '{column}' FROM spelt WHERE {of}" for column in columns)
        spellings = self.run(f"SELECT * FROM ({union})")
        names = {raw: self._label(column, raw) for raw, column in spellings if raw or column != "next_state"}
        labels = in_order({name for name in names.values() if name is not None})
        if None in names.values():
            self._explain_cells()
        code = {name: i for i, name in enumerate(labels)}
        self.keep(f"{columns[0]}_label", raw=list(names), code=[code[name] for name in names.values() if name is not None])
        self.respelt = self.respelt or len(labels) < len(names)
        return labels

    def _label(self, column: str, raw: str | None) -> str | None:
        """Return the label that is spelt like this; None where it is none."""
        try:
            return label_reader(self.scan, column)(raw, column) if raw else None
        except ValueError:
            return None

    def _check_episodes(self) -> None:
        """Make the table `grouped`; raises what the rules say of the first episode that is not in order."""
        self._group_episodes(spelt(self.scan, conditions=self.columns))
        self._read_episode_labels()
        if self.run("SELECT count(*) FROM grouped WHERE bad")[0][0]:
            self._explain_cells()
        self.filled = self.run("SELECT count(*) FROM grouped WHERE blank")[0][0] > 0 if self.has_next else self.cut_off
        if self.filled or self.respelt:
            self._group_episodes(self.coded(conditions=self.columns))
        else:
            self.database.execute(
                """CREATE OR REPLACE TEMP TABLE grouped AS SELECT g.* REPLACE (e.code AS expert, s.code AS first_state,
                coalesce(l.label, g.episode::VARCHAR) AS episode) FROM grouped g JOIN expert_label e ON e.raw = g.expert::VARCHAR
                JOIN state_label s ON s.raw = g.first_state::VARCHAR LEFT JOIN episode_label l ON l.raw = g.episode::VARCHAR"""
            )
        # To say what is wrong, the rows of at most this many wrong episodes are loaded. Most often there are few.
        explained = 1000
        if self.run("SELECT count(*) FROM grouped WHERE wrong")[0][0]:
            self._explain_episodes(f"SELECT expert, label FROM {self.numbered} WHERE wrong ORDER BY number LIMIT {explained}")

    @cached_property
    def numbered(self) -> str:
        """Return the table of the numbered episodes, in SQL. It is made when it is first asked for: to put all in order takes
        time.
        """
        number = f"row_number() OVER (ORDER BY expert, {LABEL_ORDER}) - 1 AS number"
        self.database.execute(f"CREATE TEMP TABLE episode AS SELECT {number}, * FROM (SELECT *, episode AS label FROM grouped)")
        return "episode"

    @property
    def _extremes(self) -> list[tuple[str, str]]:
        """Return what is kept of the conditions of an episode, in SQL: what it is, and the name of its column."""
        kept = {"low": "min", "high": "max", "known": "count"}
        return [(f"{what}(condition{i})", f"{name}{i}") for i in range(len(self.columns)) for name, what in kept.items()]

    def _read_conditions(self) -> pd.DataFrame:
        """Return the conditions of each episode; raises where one varies within an episode."""
        kept = ", ".join(column for _, column in self._extremes)
        frame = self.database.execute(f"SELECT n, {kept} FROM {self.numbered} ORDER BY number").df()
        conditions = {}
        for i, column in enumerate(self.columns):
            ends = pd.concat([frame[f"low{i}"], frame[f"high{i}"]], ignore_index=True)
            values = numbers_or_missing(ends)
            low, high = np.split(pd.factorize(values)[0], 2)
            varies = np.flatnonzero((low != high) | ((frame[f"known{i}"] > 0) & (frame[f"known{i}"] < frame["n"])))
            if varies.size:
                episode = f"SELECT expert, label FROM {self.numbered} WHERE number = {varies[0]}"
                self._explain_episodes(episode, {column: ends})
            conditions[column] = values[: len(frame)].reset_index(drop=True)
        return pd.DataFrame(conditions)

    def _group_episodes(self, rows: str) -> None:
        """Make the table `grouped`: each episode, as it is spelt or by its code and label, and whether it is in order.

        It is `bad` where a step is no number, `blank` where next states inside it are, and `wrong` where it is not in order.
        """
        h = "hash(hash({}, {}))" if self.has_next else "hash({})"
        after = f"CASE WHEN {{}} IS NOT NULL THEN {h.format('{} + 1', '{}')} ELSE 0 END" if self.has_next else "hash({1} + 1)"
        sums = f"sum({h.format('step', 'state')}) - sum({after.format('next_state', 'step', 'next_state')})"
        ends = f"{h.format('low', 'first_state')}::HUGEINT - {after.format('last_next', 'high', 'last_next')}::HUGEINT"
        kept, more = "".join(f", {column}" for _, column in self._extremes), "".join(f", {a} AS {b}" for a, b in self._extremes)
        self.database.execute(
            f"""CREATE OR REPLACE TEMP TABLE grouped AS SELECT expert, episode, first_state, n, bad, sums <> {ends} AS wrong,
            n - known > CASE WHEN last_next IS NULL THEN 1 ELSE 0 END AS blank{kept} FROM (
            SELECT expert, episode, count(*) AS n, min(step) AS low, max(step) AS high, {sums} AS sums,
            arg_min(state, step) AS first_state, arg_max_null(next_state, step) AS last_next, count(next_state) AS known,
            bool_or({BAD_STEP}) AS bad{more} FROM {rows} GROUP BY expert, episode)"""
        )

    def _read_episode_labels(self) -> None:
        """Make the table `episode_label`, for the episodes that may not be called as they are spelt."""
        unclear = self._unclear("episode", "grouped")
        labels = [self._label("episode", raw) for raw in unclear]
        if None in labels:
            self._explain_cells()
        self.keep("episode_label", raw=unclear, label=labels)
        called = "SELECT count(DISTINCT episode), count(DISTINCT coalesce(label, episode::VARCHAR)) FROM grouped LEFT JOIN"
        spellings, names = self.run(f"{called} episode_label ON raw = episode::VARCHAR")[0] if unclear else (0, 0)
        self.respelt = self.respelt or spellings > names

    def _unclear(self, column: str, table: str) -> list[str | None]:
        """Return the spellings in a column that may be no labels, or other ones."""
        # Read as they are: a thousand letters of ASCII at most, not 3.0, no mark of a spreadsheet.
        as_is = "length({0}) <= 1000 AND regexp_full_match({0}, '[!-~]([ -~]*[!-~])?')"
        as_is += r" AND NOT regexp_full_match({0}, '-?[0-9]+\.0*|''.*')"
        plain = as_is.format(f"{column}::VARCHAR")
        return [raw for (raw,) in self.run(f"SELECT DISTINCT {column}::VARCHAR FROM {table} WHERE ({plain}) IS NOT TRUE")]

    def _count(self) -> tuple[Moves, Sparse]:
        """Return the moves, and how often each expert made each."""
        codes = Keys(self)
        key = f"expert * {codes.width} + (state * {codes.actions} + action) * {codes.states + 1} + coalesce(next_state + 1, 0)"
        number = "INTEGER" if self.run("SELECT sum(n) FROM spelt WHERE of_move")[0][0] < 2**31 else "BIGINT"
        rows = f"(SELECT *, 1 AS n FROM {self.coded()})"
        if self.scan.is_csv and not self.filled:
            rows = """(SELECT e.code AS expert, s.code AS state, a.code AS action, t.code AS next_state, c.n FROM spelt c
                JOIN expert_label e ON e.raw = c.expert JOIN action_label a ON a.raw = c.action
                JOIN state_label s ON s.raw = c.state LEFT JOIN state_label t ON t.raw = c.next_state)"""
        counted = f"SELECT {key} AS key, sum(n)::{number} AS n FROM {rows} GROUP BY key"
        pieces = [(piece["key"], piece["n"]) for piece in self.pieces(counted)]
        keys, counts = (np.concatenate([piece[column] for piece in pieces]) for column in range(2))
        del pieces
        order = np.argsort(keys)
        keys, counts = keys[order], counts[order]
        del order
        return codes.count(keys, counts)

    def _explain_cells(self) -> NoReturn:
        """Raise what the rules say of the first row with a cell that cannot be read."""
        rows = spelt(self.scan, numbered=True)
        first = [f"min(number) FILTER (WHERE {BAD_STEP})"]
        for column in LABELS if self.has_next else LABELS[:-1]:
            wrong = [raw for raw in self._unclear(column, rows) if raw and self._label(column, raw) is None]
            self.keep(f"wrong_{column}", raw=wrong)
            blank = "" if column == "next_state" else f" OR {column} IS NULL OR {column}::VARCHAR = ''"
            unread = f"{column}::VARCHAR IN (SELECT raw FROM wrong_{column}){blank}"
            first.append(f"min(number) FILTER (WHERE {unread})")
        with in_order_of_file(self.database):
            numbers = self.run(f"SELECT {', '.join(first)} FROM {rows}")[0]
        self._explain(sorted({number for number in numbers if number is not None}))

    def _explain_episodes(self, episodes: str, conditions: Mapping[str, pd.Series[Any]] | None = None) -> NoReturn:
        """Raise what the rules say of these episodes, a query of `expert, label`; see `_explain`."""
        with in_order_of_file(self.database):
            rows = f"{self.coded(numbered=True)} WHERE (expert, episode) IN ({episodes}) ORDER BY number"
            numbers = [number for (number,) in self.run(f"SELECT number FROM {rows}")]
        self._explain(numbers, conditions)

    def _explain(self, numbers: Sequence[int], conditions: Mapping[str, pd.Series[Any]] | None = None) -> NoReturn:
        """Raise what the rules say of the rows with these numbers; conditions come with values that say how to read theirs."""
        conditions = conditions or {}
        self.keep("wanted", place=numbers)
        columns = [column for column in self.scan.types if column in (*COLUMNS, "next_state", *conditions)]
        blank = "nullif({0}, '') AS {0}" if self.scan.is_csv else "{0}"
        cells = ", ".join(blank.format(quoted(column)) for column in columns)
        every = f"(SELECT {cells}, row_number() OVER () - 1 AS place_in_table FROM {self.scan.relation})"
        with in_order_of_file(self.database):
            query = f"SELECT * EXCLUDE (place, place_in_table) FROM {every} JOIN wanted ON place = place_in_table ORDER BY place"
            frame = self.database.execute(query).df()
        for column, others in conditions.items():
            frame[column] = numbers_or_missing(pd.concat([frame[column], others], ignore_index=True))[: len(frame)]
        decide(as_table(frame, self.scan, (*LABELS, *conditions), numbers), self.cut_off, list(conditions), None)
        raise ValueError(f"{self.scan.name} changed while it was read: read it again")


Demonstrations.large = CountedFiles
