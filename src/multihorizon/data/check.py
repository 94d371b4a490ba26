"""What a table of decisions holds, all that is wrong with it, how to mend each, and the table with what can be mended mended.

Reading a table stops at its first mistake. This goes on: a cell that cannot be read is left blank, and each kind of mistake is
one finding, with how often it occurs, where first, and what helps.

*Mended without guessing* is what the table itself says how to mend. Nothing that somebody did or saw is ever made up.

- A row that says the same as another of the same step is dropped.
- A blank state is the `next_state` of the step before, where that is given.
- A row without its expert, episode, step, state or action is left out. Its state, if known, stays as `next_state` of the step
  before.
- After a gap in the steps, the rest of the episode becomes an episode of its own. A row left out makes such a gap.

*Chance.* In a state with A actions in which an expert decided n times, Pearson's χ² against equally likely actions has, for any
n, the mean `A − 1` and the variance `2 (A − 1)(1 − 1/n)`. The sum over states is compared with the gamma distribution that has
its mean and its variance. An expert whose decisions are all alike in each state gives the largest sum there can be: where even
that would be no evidence, there are too few decisions to say. Without transitions, the actions of a state are those that
somebody took there.

*Few decisions.* People who share a reward need not be distinguished from chance one by one: a fit pools what they say. So those
of whom too little is known alone are taken together, and only where even all their decisions do not contradict equally likely
actions is that a finding.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import numpy as np
import pandas as pd
from scipy.special import gammaincc

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.data.demonstrations import (
    BAD_STEP,
    COLUMNS,
    KEPT_ROWS,
    LABELS,
    REMEDIES,
    Demonstrations,
    Rows,
    label_reader,
    require_labels,
    spelt,
)
from multihorizon.data.dynamics import DECISIVE, endings_that_go_on, impossible_moves, unlikely_moves
from multihorizon.data.reading import (
    Scan,
    Table,
    closest,
    connect,
    files_of,
    in_order,
    joint_name,
    look_alikes,
    positions,
    quoted,
    rewritten,
    scan_files,
    text,
)
from multihorizon.files import FORMULA, spreadsheet_safe
from multihorizon.mdp import MDP
from multihorizon.result import Result

#: A finding lists at most so many places.
PLACES = 3
#: An expert whose decisions are likelier than this if all actions are equally likely may choose at random.
CHANCE = 0.05
#: The findings that --cut-off or given transitions answer: a fit takes such a table with one of them.
STOPPING = ("cut off", "no next_state")


@dataclass(frozen=True)
class Finding:
    """One kind of thing that is wrong, or worth knowing.

    Attributes:
        kind: a short name, the same for all tables.
        what: what was found, and how often, in a sentence.
        remedy: how to mend it, in a sentence.
        count: how often.
        stops: whether a fit refuses the table for it.
        mended: whether the mended table is free of it.
        rows: where it occurs first, as rows of the file.
        places: the same as lines, in words.
    """

    kind: str
    what: str
    remedy: str
    count: int
    stops: bool
    mended: bool = False
    rows: tuple[int, ...] = ()
    places: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether a fit refuses the table for it, whatever its options are."""
        return self.stops and self.kind not in STOPPING


@dataclass(frozen=True, eq=False)
class Log:
    """A table as it is, mistakes and all.

    `expert`, `episode`, `state`, `action`, `next_state` are `(N,)` codes into the labels, −1 where a cell is blank or cannot be
    read; `unseen` marks next states that are not blank and cannot be read. `step` is NaN where it is no whole number. `number` is
    the row of the file, and `part` counts the parts into which an episode was divided. `vector` names the columns that are the
    state, where it is a vector.
    """

    scan: Scan
    expert: Ints
    episode: Ints
    step: Floats
    state: Ints
    action: Ints
    next_state: Ints
    unseen: Bools
    number: Ints
    part: Ints
    experts: tuple[str, ...]
    episodes: tuple[str, ...]
    states: tuple[str, ...]
    actions: tuple[str, ...]
    vector: tuple[str, ...]

    @property
    def has_next(self) -> bool:
        """Whether there is a column `next_state`."""
        return "next_state" in self.scan.types and not self.vector

    @property
    def placed(self) -> Bools:
        """Whether it is known to which step of which episode a row belongs, `(N,)`."""
        return (self.expert >= 0) & (self.episode >= 0) & np.isfinite(self.step)

    @cached_property
    def sorted(self) -> Log:
        """The rows that are placed, by expert, episode and step."""
        placed = self.select(self.placed)
        return placed.select(np.lexsort((placed.number, placed.step, placed.part, placed.episode, placed.expert)))

    @property
    def continues(self) -> Bools:
        """Of a sorted log, whether the next row belongs to the same episode, `(N−1,)`."""
        same: Bools = (np.diff(self.expert) == 0) & (np.diff(self.episode) == 0) & (np.diff(self.part) == 0)
        return same

    def select(self, rows: Any) -> Log:
        """Some rows, given as indices or a mask."""
        # The arrays of a log, one entry per row each.
        arrays = ("expert", "episode", "step", "state", "action", "next_state", "unseen", "number", "part")
        return replace(self, **{name: getattr(self, name)[rows] for name in arrays})

    def decisions(self) -> Demonstrations:
        """The rows of a sorted log that have a state and an action; blank next states are taken from the next step."""
        whole = self.select((self.state >= 0) & (self.action >= 0))
        after = whole.next_state.copy()
        follows = np.flatnonzero(whole.continues & (np.diff(whole.step) == 1) & (after[:-1] < 0))
        after[follows] = whole.state[follows + 1]
        episode = np.unique(np.stack([whole.episode, whole.part]), axis=1, return_inverse=True)[1].ravel()
        names = tuple(str(i) for i in range(int(episode.max(initial=0)) + 1))
        codes = (whole.expert, episode, whole.step.astype(np.int64), whole.state, whole.action, after)
        return Rows(*codes, whole.experts, names, whole.states, whole.actions, whole.scan.name, cut_off=True)


@dataclass(frozen=True, eq=False)
class TableCheck(Result):
    """What a table holds and what is wrong with it.

    Attributes:
        name: the file or folder.
        rows: how many there are.
        findings: what is wrong, and what is worth knowing; what a fit refuses the table for comes first.
        left: what a fit refuses the mended table for.
        changes: what mending changes, in sentences.
        experts, states, actions: one row per expert, state and action, with how often each occurs in the mended table.
        log, mended: the table as it is, and with what can be mended mended.
    """

    name: str
    rows: int
    findings: list[Finding]
    left: list[Finding]
    changes: list[str]
    experts: pd.DataFrame
    states: pd.DataFrame
    actions: pd.DataFrame
    log: Log = field(repr=False)
    mended: Log = field(repr=False)

    _drawn: ClassVar[tuple[str, ...]] = ("kind", "count")
    _shown: ClassVar[tuple[str, ...]] = ("kind", "count", "stops", "mended", "what")

    def sentences(self) -> str:
        """Whether the table can be fitted, and what must be mended how."""
        wrong = [finding for finding in self.findings if finding.refused]
        if not any(finding.stops for finding in self.findings):
            return "Nothing stops a fit." if self.findings else "Nothing is wrong with this table."
        parts = [f"A fit refuses this table for: {', '.join(finding.kind for finding in wrong)}."] if wrong else []
        mended = [finding.kind for finding in wrong if finding.mended]
        if mended:
            parts.append(f"--write FILE mends, without guessing: {', '.join(mended)}.")
        hand = [finding.kind for finding in self.left if finding.kind not in STOPPING]
        if hand:
            parts.append(f"To be mended by hand: {', '.join(hand)}.")
        if len(hand) < len(self.left):
            parts.append(
                "Where no next_state says how an episode ended, a fit needs --transitions, or --cut-off if episodes simply stop."
            )
        return " ".join(parts)

    def _facts(self) -> dict[str, Any]:
        sizes = {name: len(getattr(self, name)) for name in ("experts", "states", "actions")}
        return {"table": Path(self.name).name, "rows": self.rows, **sizes}

    def to_frame(self) -> pd.DataFrame:
        """One row per finding: `kind, what, remedy, count, stops, mended`."""
        columns = ("kind", "what", "remedy", "count", "stops", "mended")
        return pd.DataFrame([[getattr(finding, c) for c in columns] for finding in self.findings], columns=list(columns))

    def _content(self) -> dict[str, Any]:
        return {
            "table": Path(self.name).name,
            "rows": self.rows,
            "summary": self.sentences(),
            "findings": [{k: v for k, v in vars(finding).items() if k != "rows"} for finding in self.findings],
            "changes": self.changes,
            **{name: getattr(self, name).to_dict("records") for name in ("experts", "states", "actions")},
        }


def check_table(
    path: str | Path | Sequence[str | Path], mdp: MDP | None = None, vector: Sequence[str] = (), *, believed: bool = False
) -> TableCheck:
    """Look at a table of decisions: a file, or a folder or a list of files.

    Args:
        path: CSV or Parquet, as for `Demonstrations.from_files`.
        mdp: transitions to compare it with.
        vector: the columns that are the state, where it is a vector.
        believed: whether the transitions are what people believe, so that where moves led may contradict them.

    Raises:
        ValueError: where the table has not the columns it needs, cannot be read, or is too large to be loaded.
    """
    log = _read(path, tuple(vector))
    mended, changes = _mend(log)
    found = _findings(log, mdp, believed)
    left = [finding for finding in (_findings(mended, mdp, believed) if changes else found) if finding.stops]
    unmended = {finding.kind for finding in left}
    places = log.scan.places({row for finding in found for row in finding.rows})
    found = [
        replace(f, mended=f.stops and f.kind not in unmended, places=tuple(places[row] for row in f.rows))
        for f in sorted(found, key=lambda finding: not finding.stops)
    ]
    table = mended.sorted.decisions()
    if not len(table):
        raise ValueError(f"{log.scan.name} must have a row with all of {', '.join(COLUMNS)}, received none")
    experts = _experts(table, mdp, bool(vector))
    states = _states(table).iloc[: 0 if vector else None]
    return TableCheck(log.scan.name, log.number.size, found, left, changes, experts, states, _actions(table), log, mended)


def write_mended(checked: TableCheck, path: Path) -> None:
    """Write the mended table, with all columns of the table that was read, in its order; the kind of file is the same."""
    log, scan = checked.mended, checked.mended.scan
    safe = spreadsheet_safe if scan.is_csv else str
    new = pd.DataFrame({"place_in_table": log.number, "episode": None})
    later = np.flatnonzero(log.part > 0)
    for i in later:
        name = f"{log.episodes[log.episode[i]]} part {log.part[i] + 1}"
        while name in log.episodes:  # another episode has this name
            name += "'"
        new.loc[i, "episode"] = safe(name)
    labels = np.array([*map(safe, log.states), None], dtype=object)
    for column in ("state", "next_state"):
        new[column] = labels[getattr(log, column)]
        new[f"{column}_stays"] = getattr(checked.log, column)[log.number] >= 0
    columns = []
    for column in scan.types:
        cell = f"nullif(r.{quoted(column)}, '')" if scan.is_csv else f"r.{quoted(column)}"
        if column == "episode" and later.size:
            cell = "coalesce(n.episode, r.episode::VARCHAR)"
        elif column in ("state", "next_state") and not log.vector and not new[f"{column}_stays"].all():
            cell = f"CASE WHEN n.{column}_stays THEN r.{column}::VARCHAR ELSE n.{column} END"
        if scan.is_csv:  # what a spreadsheet would run gets ' before it, which reading takes away again
            runs = f"regexp_matches(cell, {text('^' + FORMULA.pattern[2:])}) AND try_cast(cell AS DOUBLE) IS NULL"
            mark = text("'")
            cell = f"(SELECT CASE WHEN {runs} THEN {mark} || cell ELSE cell END FROM (SELECT {cell} AS cell))"
        columns.append(f"{cell} AS {quoted(safe(column))}")
    draft = path.with_name(f".unfinished-{path.name}")
    with connect() as database:
        database.execute("SET threads = 1")  # rows are numbered in the order of the file
        database.register("given", new.astype(dict.fromkeys(("episode", "state", "next_state"), object)))
        rows = f"(SELECT *, row_number() OVER () - 1 AS place_in_table FROM {scan.relation})"
        query = f"SELECT {', '.join(columns)} FROM {rows} r JOIN given n USING (place_in_table) ORDER BY place_in_table"
        kind = "FORMAT csv, HEADER true" if scan.is_csv else "FORMAT parquet"
        try:
            database.execute(f"COPY ({query}) TO {text(str(draft.absolute()))} ({kind})")
            os.replace(draft, path)
        except (duckdb.Error, OSError) as error:
            why = os.strerror(errno.ENOSPC) if "space left" in str(error) else str(error).splitlines()[0].partition(": ")[2]
            raise OSError(f"{path} could not be written: {why or error}. Choose another place, or make room there") from error
        finally:
            draft.unlink(missing_ok=True)


def _read(path: str | Path | Sequence[str | Path], vector: tuple[str, ...]) -> Log:
    """The table as codes; what cannot be read is blank."""
    scan = scan_files(joint_name(path), files_of(path, "demonstrations"))
    header = Table(pd.DataFrame([[None] * len(scan.types)], columns=list(scan.types)), scan.name)
    header.require(*(column for column in COLUMNS if column != "state" or not vector), *vector)
    require_labels(scan, tuple(column for column in LABELS if not vector or not column.endswith("state")))
    with connect() as database:
        try:
            database.execute(f"CREATE TEMP TABLE log AS SELECT * FROM {spelt(scan, vector=vector)}")
            unusual = bool(database.execute("SELECT count_if(odd) FROM log").fetchall()[0][0])
        except duckdb.Error as error:
            unusual = True
            if not scan.padded:
                raise ValueError(f"{scan.name} is damaged, or cannot be read: {str(error).splitlines()[0]}") from error
        if unusual:
            scan = rewritten(scan.name, scan.files)
            database.execute(f"CREATE OR REPLACE TEMP TABLE log AS SELECT * FROM {spelt(scan, vector=vector)}")
        return _coded(database, scan, vector)


def _coded(database: duckdb.DuckDBPyConnection, scan: Scan, vector: tuple[str, ...]) -> Log:
    """The rows of the table `log` of the database."""
    size = int(database.execute("SELECT count(*) FROM log").fetchall()[0][0])
    if not 0 < size <= KEPT_ROWS:
        limit = f"at most {KEPT_ROWS:,} rows to be checked at once" if size else "at least one row"
        raise ValueError(f"{scan.name} must have {limit}, received {size:,}")
    for column in LABELS:
        cells = f"SELECT DISTINCT {column}::VARCHAR FROM log WHERE {column}::VARCHAR <> '' ORDER BY 1"
        database.execute(f"CREATE TYPE {column}_text AS ENUM ({cells})")
    texts = ", ".join(f"nullif({column}::VARCHAR, '')::{column}_text AS {column}" for column in LABELS)
    frame = database.execute(f"SELECT {texts}, CASE WHEN {BAD_STEP} THEN NULL ELSE step END AS step FROM log").df()
    read = {column: _labels(frame[column], scan, column, bool(vector)) for column in LABELS}
    states = in_order({*read["state"][1], *read["next_state"][1]})
    state, after = (np.append(positions(read[c][1], states, "state"), -1)[read[c][0]] for c in ("state", "next_state"))
    return Log(
        scan=scan,
        expert=read["expert"][0],
        episode=read["episode"][0],
        step=frame["step"].to_numpy(dtype=np.float64, na_value=np.nan),
        state=state,
        action=read["action"][0],
        next_state=after,
        unseen=(after < 0) & frame["next_state"].notna().to_numpy(),
        number=np.arange(size, dtype=np.int64),
        part=np.zeros(size, dtype=np.int64),
        experts=read["expert"][1],
        episodes=read["episode"][1],
        states=states,
        actions=read["action"][1],
        vector=vector,
    )


def _labels(column: pd.Series[Any], scan: Scan, name: str, vector: bool) -> tuple[Ints, tuple[str, ...]]:
    """Codes of a column and its labels in order, −1 where a cell is blank or no label."""
    found: list[str | None] = []
    for raw in column.cat.categories:
        try:
            found.append(raw if vector and name.endswith("state") else label_reader(scan, name)(raw, name))
        except ValueError:
            found.append(None)
    names = in_order({one for one in found if one is not None})
    rank = {one: i for i, one in enumerate(names)}
    place = np.array([*(-1 if one is None else rank[one] for one in found), -1], dtype=np.int64)
    return place[column.cat.codes.to_numpy()], names


def _mend(log: Log) -> tuple[Log, list[str]]:
    """The table with what can be mended mended, and what was changed."""
    changes: list[tuple[int, str]] = [(int((~log.placed).sum()), "left out: no expert, no episode or no step")]
    rows = log.sorted
    same = rows.continues & (np.diff(rows.step) == 0)
    for column in ("state", "action", "next_state"):
        same &= np.diff(getattr(rows, column)) == 0
    changes.append((int(same.sum()), "left out: the same as another row of the same step"))
    rows = rows.select(np.append(True, ~same)[: rows.number.size])
    state, after = rows.state.copy(), rows.next_state.copy()
    follows = rows.continues & (np.diff(rows.step) == 1)
    filled = np.flatnonzero(follows & (state[1:] < 0) & (after[:-1] >= 0))
    state[filled + 1] = after[filled]
    changes.append((filled.size, "given a state: the next_state of the step before"))
    kept = (state >= 0) & (rows.action >= 0)
    changes.append((int((~kept).sum()), "left out: no state or no action"))
    if rows.has_next:
        led = np.flatnonzero(follows & ~kept[1:] & kept[:-1] & (state[1:] >= 0) & (after[:-1] < 0))
        after[led] = state[led + 1]
        changes.append((led.size, "given a next_state: the state of the row after it, which was left out"))
    changes.append((int(rows.unseen[kept].sum()), "given a blank next_state: what stood there cannot be read"))
    rows = replace(rows, state=state, next_state=after, unseen=np.zeros(kept.size, dtype=np.bool_)).select(kept)
    gaps = np.append(False, rows.continues & (np.diff(rows.step) > 1))[: rows.number.size]
    begins = np.append(True, ~rows.continues)[: rows.number.size]
    number = np.cumsum(gaps)
    part = number - np.maximum.accumulate(np.where(begins, number, 0))
    changes.append((int((part > 0).sum()), "after a gap in the steps given an episode of their own"))
    rows = replace(rows, part=part)
    sentences = [f"{number:,} {'row' if number == 1 else 'rows'} {words}." for number, words in changes if number]
    return (rows.select(np.argsort(rows.number)) if sentences else log), sentences


def _findings(log: Log, mdp: MDP | None, believed: bool) -> list[Finding]:
    """All that is wrong with a log, and what is worth knowing."""
    found: list[Finding] = []
    for column in ("expert", "episode", "state", "action"):
        name = f"columns {', '.join(log.vector)}" if column == "state" and log.vector else f"column {column}"
        blank = log.number[getattr(log, column) < 0]
        found.append(_at(f"blank {column}", blank, "empty cell", f"in the {name}", REMEDIES["blank"]))
    steps = ": number the steps of each episode 0, 1, 2, …"
    found.append(_at("step", log.number[np.isnan(log.step)], "row", "whose step is no whole number", steps))
    rows = log.sorted
    jump, inside = np.diff(rows.step), rows.continues
    twice, gap = rows.number[1:][inside & (jump == 0)], rows.number[:-1][inside & (jump > 1)]
    found.append(_at("duplicate step", twice, "row", "for a step that another row is for", REMEDIES["twice"]))
    found.append(_at("gap", gap, "gap", "in the steps of an episode", REMEDIES["gap"]))
    if log.vector:
        return [finding for finding in found if finding.count]
    differs = inside & (jump == 1) & (rows.next_state[:-1] >= 0) & (rows.state[1:] >= 0)
    wrong = rows.number[:-1][differs & (rows.next_state[:-1] != rows.state[1:])]
    found.append(_at("next_state", wrong, "row", "whose next_state is not the state of the next step", REMEDIES["next_state"]))
    blank = ": write the state that followed, or leave the cell empty to take it from the next step"
    found.append(_at("unseen next_state", log.number[log.unseen], "row", "whose next_state cannot be read", blank))
    found += [_ends(rows, mdp), *_alike(log), *nothing_shared(_by_file(log))]
    table = rows.decisions()
    if len(table):
        found += [_single(table, mdp), *_chance(table, mdp)]
        found += [] if mdp is None else _against(rows, mdp, believed)
    return [finding for finding in found if finding.count]


def _at(kind: str, rows: Ints, one: str, what: str, remedy: str) -> Finding:
    """A finding about rows of the file; `one` is the noun for each."""
    number = f"There is 1 {one}" if rows.size == 1 else f"There are {rows.size:,} {one}s"
    places = tuple(np.sort(rows)[:PLACES].tolist())
    return Finding(kind, f"{number} {what}.", _sentence(remedy), int(rows.size), True, rows=places)


def _sentence(remedy: str) -> str:
    """The end of a sentence as one of its own."""
    words = remedy.removeprefix(": ")
    return f"{words[0].upper()}{words[1:].removesuffix('…')}{'…' if words.endswith('…') else '.'}"


def _ends(rows: Log, mdp: MDP | None) -> Finding:
    """Episodes that simply stop."""
    if not rows.has_next:
        what = "There is no column next_state, so nothing says where actions lead."
        remedy = "Add it, or give the transitions; if all episodes simply stop, say so with --cut-off (in Python cut_off=True)."
        return Finding("no next_state", what, remedy, int(mdp is None), True)
    last = np.append(~rows.continues, True)[: rows.number.size]
    cut = np.sort(rows.number[last & (rows.next_state < 0)])
    what = f"{cut.size:,} of {int(last.sum()):,} episodes have no next_state after the last decision."
    remedy = _sentence(REMEDIES["cut off"]) if mdp is None else "Nothing need be done where transitions are given."
    return Finding("cut off", what, remedy, cut.size, mdp is None, rows=tuple(cut[:PLACES].tolist()))


def _alike(log: Log) -> list[Finding]:
    """Labels that may be one label, spelt in two ways."""
    found = []
    for what, names in {"expert": log.experts, "state": log.states, "action": log.actions}.items():
        said, _, remedy = (look_alikes(names, what) or "").partition(". ")
        found.append(Finding(f"look-alike {what}s", f"{said}.", remedy, int(bool(said)), False))
    return found


def _by_file(log: Log) -> dict[str, dict[str, set[str]]]:
    """The names of actions and states in each file of a table."""
    whose = log.scan.file_of(log.number)
    return {
        file.name: {
            what: {names[code] for code in np.unique(getattr(log, what)[whose == i]) if code >= 0}
            for what, names in (("action", log.actions), ("state", log.states))
        }
        for i, file in enumerate(log.scan.files)
    }


def nothing_shared(files: Mapping[str, Mapping[str, set[str]]]) -> list[Finding]:
    """Files of which some share no action, or no state, with any other: the same things may have other names there."""
    found = []
    for what in ("action", "state"):
        alone = []
        for name, own in files.items():
            others = set().union(*(other[what] for key, other in files.items() if key != name))
            if own[what] and others and not own[what] & others:
                alone.append(f"{name} ({_some(in_order(own[what]))})")
        found.append(
            Finding(
                f"no {what}s in common",
                f"These files share no {what} with any other: {_some(alone, '; ')}.",
                f"If these {what}s are the same under other names, write them alike, letter by letter.",
                len(alone),
                False,
            )
        )
    return [finding for finding in found if finding.count]


def _counts(table: Demonstrations) -> pd.DataFrame:
    """How often each expert took each action in each state: `expert, state, action, count`."""
    cells = table.cells
    frame = pd.DataFrame({name: getattr(cells, name) for name in ("expert", "state", "action", "count")})
    return frame.groupby(["expert", "state", "action"], as_index=False)[["count"]].sum()


def _choices(table: Demonstrations, mdp: MDP | None) -> Ints:
    """How many actions each of the table's states has, `(S,)`: those that somebody took, or those of the transitions."""
    taken = _counts(table).drop_duplicates(["state", "action"])["state"].to_numpy()
    number: Ints = np.bincount(taken, minlength=len(table.states))
    if mdp is not None:
        index, given = {name: i for i, name in enumerate(mdp.state_names)}, mdp.live.sum(axis=1)
        number = np.maximum(number, [int(given[index[name]]) if name in index else 0 for name in table.states])
    return number


def _single(table: Demonstrations, mdp: MDP | None) -> Finding:
    """States in which there was nothing to choose."""
    decided = np.bincount(table.moves.state, table.moves.count, minlength=len(table.states))
    single = (decided > 0) & (_choices(table, mdp) == 1)
    names = [table.states[s] for s in np.flatnonzero(single)]
    kind = "that have one action" if mdp is not None else "in which everybody took the same action"
    share = decided[single].sum() / decided.sum()
    what = f"There are states {kind} ({_some(names)}), with {share:.0%} of all decisions."
    remedy = "They say nothing about what people want. If other actions are possible there, "
    if mdp is None:
        remedy += (
            "list where they lead (state, action, next_state, probability) and give it by --transitions FILE --estimate-rest."
        )
    else:
        remedy += "add them to the transitions."
    return Finding("one action", what, remedy, len(names), False)


def chance_p_values(table: Demonstrations, mdp: MDP | None) -> Floats:
    """The p-value of each expert's decisions if all actions are equally likely, `(K,)`; NaN where there are too few to say."""
    return _p_values(_counts(table), _choices(table, mdp), len(table.experts))


def _p_values(counts: pd.DataFrame, choices: Ints, size: int) -> Floats:
    """The p-values of so many experts with these counts, `expert, state, action, count`."""
    by_state = counts.assign(square=counts["count"] ** 2).groupby(["expert", "state"], as_index=False)[["count", "square"]].sum()
    owner, n, squares, a = (by_state[name].to_numpy() for name in ("expert", "count", "square", "state"))
    a = choices[a]
    owner, n, squares, a = (column[(n > 1) & (a > 1)] for column in (owner, n, squares, a))
    of_states = (a * squares / n - n, n * (a - 1.0), a - 1.0, 2 * (a - 1.0) * (1 - 1 / n))
    chi2, most, mean, variance = (np.bincount(owner, values, minlength=size) for values in of_states)
    tested = mean > 0
    p_values = np.full(tested.size, np.nan)
    shape, scale = mean[tested] ** 2 / variance[tested], variance[tested] / mean[tested]
    enough = gammaincc(shape, most[tested] / scale) < CHANCE
    p_values[tested] = np.where(enough, gammaincc(shape, chi2[tested] / scale), np.nan)
    return p_values


def _chance(table: Demonstrations, mdp: MDP | None) -> list[Finding]:
    """Experts who may choose at random, and experts of whom even all decisions together are too few to say."""
    counts, choices, p_values = _counts(table), _choices(table, mdp), chance_p_values(table, mdp)
    alone = np.isnan(p_values)
    pooled = counts[alone[counts["expert"]]].assign(expert=0)
    together = _p_values(pooled.groupby(["expert", "state", "action"], as_index=False)[["count"]].sum(), choices, 1)[0]
    few = [name for name, lost in zip(table.experts, alone, strict=True) if lost and not together < CHANCE]
    random = [f"{name} (p = {p:.2f})" for name, p in zip(table.experts, p_values, strict=True) if p >= CHANCE]
    return [
        Finding(
            "chance",
            f"Some experts may choose at random, for all actions of a state are about equally frequent: {_some(random)}.",
            "A fit gives no discount for somebody who does no better than chance. Check that the column action holds what they "
            "chose, and the column state what they could see.",
            len(random),
            False,
        ),
        Finding(
            "few decisions",
            f"Some experts decided too seldom to distinguish their choices from chance, even all together: {_some(few)}.",
            "Collect more of their decisions in states where there is something to choose, or join states that are alike.",
            len(few),
            False,
        ),
    ]


def _against(rows: Log, mdp: MDP, believed: bool) -> list[Finding]:
    """What contradicts given transitions; decisions that are wrong in one way are left out of the next question."""
    found = []
    codes: dict[str, Any] = {}
    for what, names, known, columns in (
        ("state", rows.states, mdp.state_names, ("state", "next_state")),
        ("action", rows.actions, mdp.action_names, ("action",)),
    ):
        index = {name: i for i, name in enumerate(known)}
        code = np.array([*(index.get(name, -1) for name in names), -1], dtype=np.int64)
        codes |= {column: code[getattr(rows, column)] for column in columns}
        wrong = np.any([(getattr(rows, column) >= 0) & (codes[column] < 0) for column in columns], axis=0)
        near = [(name, closest(name, known)) for name in names if name not in index]
        listed = _some([f"{name!r}, perhaps {other!r}" if other else repr(name) for name, other in near], "; ")
        said = f"The transitions do not know {what}s of the table: {listed}."
        remedy = "Names must agree letter by letter. Correct the table or the transitions."
        first = tuple(np.sort(rows.number[wrong])[:PLACES].tolist())
        found.append(Finding(f"unknown {what}", said, remedy, len(near), True, rows=first))
    rows = replace(rows, **codes, states=mdp.state_names, actions=mdp.action_names)
    rows = rows.select((rows.state >= 0) & (rows.action >= 0))
    ended, barred = mdp.terminal[rows.state], ~mdp.live[rows.state, rows.action] & ~mdp.terminal[rows.state]
    ends = _some([mdp.state_names[s] for s in np.unique(rows.state[ended])])
    remedy = "if one can go on from there, say in the transitions where the actions lead; if not, leave these decisions out"
    found.append(_at("terminal state", rows.number[ended], "decision", f"in a state where episodes end ({ends})", remedy))
    pairs = np.unique(np.stack([rows.state[barred], rows.action[barred]]), axis=1).T
    taken = _some([f"{mdp.action_names[a]} in {mdp.state_names[s]}" for s, a in pairs])
    remedy = "if it can be taken there, say in the transitions where it leads; if not, correct these rows"
    found.append(
        _at("unavailable action", rows.number[barred], "decision", f"by an action that cannot be taken ({taken})", remedy)
    )
    table = rows.select(~ended & ~barred).decisions()
    return found + (_moves_against(table, mdp) if len(table) and not believed else [])


def _moves_against(table: Demonstrations, mdp: MDP) -> list[Finding]:
    """Moves and endings that contradict given transitions."""
    correct = (
        "Correct the transitions, or leave them out, and they are estimated; or correct next_state, or leave that column out."
    )
    ends = "If episodes end there, leave the rows of these states out of the transitions."
    none, unlikely = impossible_moves(table, mdp), unlikely_moves(table, mdp)
    never = [f"from {r.state} by {r.action} to {r.next_state} ({r.count:,} of them)" for r in none.itertuples(index=False)]
    seldom = [
        f"from {r.state} by {r.action} to {r.next_state} in {r.observed:.0%} of {r.moves:,} moves, and not {r.given:.0%}"
        for r in unlikely.itertuples(index=False)
    ]
    stopping, absorbing = endings_that_go_on(table, mdp)
    decisive = bool((unlikely["distance"] >= DECISIVE).any())
    return [
        Finding(
            "impossible move", f"Moves have probability 0 in the transitions: {_some(never, '; ')}.", correct, len(never), True
        ),
        Finding("unlikely move", f"Moves contradict the transitions: {_some(seldom, '; ')}.", correct, len(seldom), decisive),
        Finding(
            "ending",
            f"All episodes stop in states that the transitions go on from: {_some(stopping)}.",
            ends,
            len(stopping),
            True,
        ),
        Finding(
            "absorbing ending",
            f"All episodes stop in states that go on for ever in the transitions, and pay at each step: {_some(absorbing)}.",
            ends,
            len(absorbing),
            False,
        ),
    ]


def _some(items: Sequence[str], comma: str = ", ") -> str:
    """The first of some things, and how many more there are."""
    return comma.join(items[:PLACES]) + (f"{comma}and {len(items) - PLACES:,} more" if len(items) > PLACES else "")


def _experts(table: Demonstrations, mdp: MDP | None, vector: bool) -> pd.DataFrame:
    """One row per expert: how much there is of them, and how likely their decisions are by chance."""
    own, size = table.by_episode, len(table.experts)
    lengths = pd.Series(own.length).groupby(own.expert).agg(["count", "sum", "min", "max"]).reindex(range(size), fill_value=0)
    counts = _counts(table)
    of = {c: counts.drop_duplicates(["expert", c])["expert"].to_numpy() for c in ("state", "action")}
    frame = pd.DataFrame(
        {
            "expert": table.experts,
            "episodes": lengths["count"],
            "decisions": lengths["sum"],
            "shortest": lengths["min"],
            "longest": lengths["max"],
            "states": np.bincount(of["state"], minlength=size),
            "actions": np.bincount(of["action"], minlength=size),
        }
    )
    if vector:
        return frame.drop(columns="states")
    return frame.assign(chance_p=chance_p_values(table, mdp))


def _states(table: Demonstrations) -> pd.DataFrame:
    """One row per state, the most frequent first: how often somebody began there, came there, decided there, and what."""
    moves, size = table.moves, len(table.states)
    known = moves.next_state >= 0
    counts = _counts(table).groupby(["state", "action"], as_index=False)[["count"]].sum()
    counts = counts.sort_values(["count", "action"], ascending=[False, True])
    words = [f"{table.actions[a]} {n:,}" for a, n in zip(counts["action"], counts["count"], strict=True)]
    taken = pd.Series(words, dtype=object).groupby(counts["state"].to_numpy()).agg(", ".join).reindex(range(size), fill_value="")
    frame = pd.DataFrame(
        {
            "state": table.states,
            "begins": table.first_states,
            "arrivals": np.bincount(moves.next_state[known], moves.count[known], minlength=size).astype(np.int64),
            "decisions": np.bincount(moves.state, moves.count, minlength=size).astype(np.int64),
            "taken": taken,
        }
    )
    order = np.argsort(-(frame["decisions"] + frame["arrivals"]).to_numpy(), kind="stable")
    return frame.iloc[order].reset_index(drop=True)


def _actions(table: Demonstrations) -> pd.DataFrame:
    """One row per action: how often, and in how many states."""
    counts, size = _counts(table), len(table.actions)
    states = np.bincount(counts.drop_duplicates(["state", "action"])["action"], minlength=size)
    decisions = np.bincount(counts["action"], counts["count"], minlength=size).astype(np.int64)
    return pd.DataFrame({"action": table.actions, "decisions": decisions, "states": states})
