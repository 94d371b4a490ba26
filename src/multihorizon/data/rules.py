"""Rules for tables of decisions: which rows break a rule, what is said of them, what helps, and what can be fixed.

Every road uses this one list. Reading stops at the first row that breaks a rule, and raises the sentence on it (`read_log`).
`multihorizon check` lists all rows that break each rule, and writes the table with what can be fixed (`fixed`). Of a table that
is too large to be loaded, the database finds the rows in question; they are loaded, and the rules say what is wrong with them.

*A log* is a table as it is, faults and all: the codes of its labels, −1 where a cell is blank or cannot be read. Rules about one
row take the rows in the order of the file. Rules about neighbours take those of which it is known to which step of which episode
they belong, sorted by expert, episode and step.

*Fixed without guessing* is what the table itself says how to fix. Nothing that somebody did or saw is ever made up.

- A row that says the same as another of the same step is dropped.
- A blank state is the `next_state` of the step before, where that is given.
- A row without its expert, episode, step, state or action is left out. Its state, if there is one, stays as `next_state` of the
  step before.
- After a gap in the steps, the rest of the episode becomes an episode of its own. A row left out makes such a gap.

*Time stamps* say when each decision was made. A move takes from its own stamp to the next one of the episode. When the last move
of an episode was over, a column `next_…` may say, as `next_state` says where it led.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Bools, Floats, Ints, first_few, positions
from multihorizon.data.reading import MISSING, NAMES, InputTable, as_numbers, in_order, label_order, shown

#: The columns of a table of decisions, and those of them that hold labels.
COLUMNS = ("expert", "episode", "step", "state", "action")
LABELS = ("expert", "episode", "state", "action", "next_state")
#: The arrays of a table, one entry per decision each.
CODES = NAMES
#: How to treat episodes that lack their last next state.
CUT_OFF = ": write into next_state how the episode ended; if it simply stopped, say so with cut_off=True"


class TableError(ValueError):
    """What is wrong with a table of decisions.

    Attributes:
        table: the file or folder.
        kind: the rule that is broken, where it is one of the table alone.
        state: the columns that are the state, where it is a vector.
        beside_transitions: whether it is wrong beside given transitions.
    """

    def __init__(
        self, message: str, table: str = "", kind: str = "", state: Sequence[str] = (), beside_transitions: bool = False
    ) -> None:
        super().__init__(message)
        self.table = table
        self.kind = kind
        self.state = tuple(state)
        self.beside_transitions = beside_transitions


@contextmanager
def refusing(table: str, state: Sequence[str] = (), beside_transitions: bool = False) -> Iterator[None]:
    """Say of what is refused in this block that it is wrong with the table of this name."""
    try:
        yield
    except TableError:
        raise
    except ValueError as error:
        raise TableError(str(error), table, "", state, beside_transitions) from error


@dataclass(frozen=True)
class Decision:
    """One row of a table, for messages: who, when, and where it is, if in a file; to say that, the file is read again."""

    code: int
    expert: str
    episode: str
    step: int
    place: Callable[[], str] | None = field(default=None, compare=False)

    @property
    def order(self) -> tuple[int, tuple[int, int, str], int]:
        """Return what tables are sorted by: expert, episode and step."""
        return self.code, label_order(self.episode), self.step

    def __str__(self) -> str:
        decision = f"expert {self.expert}, episode {self.episode}, step {self.step}"
        return f"{self.place()} ({decision})" if self.place else decision


def located(name: str, place: Callable[[int], str], row: int) -> str:
    """Return the place of a row with the name of its table."""
    return f"{name}, {place(row)}"


@dataclass(frozen=True, eq=False)
class Log:
    """A table as it is, faults and all.

    `expert`, `episode`, `state`, `action`, `next_state` are `(N,)` codes into the labels, −1 where a cell is blank or cannot be
    read; `unseen` marks next states that are not blank and cannot be read. `step` is NaN where it is no whole number. `number` is
    the row of the table, and `part` counts the parts into which an episode was divided.

    Where the state is a `vector` of columns, `coordinates` and `next_coordinates` `(N,d)` hold it, NaN where it cannot be read,
    `coordinate_names` and `sources` name the d coordinates and say from which column each comes, and `terminated` `(N,)` is 1, 0
    or NaN. The code of a state is then 0. Else `has_next` says whether there is a column `next_state`.
    """

    table: InputTable
    vector: tuple[str, ...]
    number: Ints
    expert: Ints
    episode: Ints
    step: Floats
    state: Ints
    action: Ints
    next_state: Ints
    unseen: Bools
    part: Ints
    coordinates: Floats
    next_coordinates: Floats
    terminated: Floats
    experts: tuple[str, ...]
    episodes: tuple[str, ...]
    states: tuple[str, ...]
    actions: tuple[str, ...]
    coordinate_names: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()
    has_next: bool = False

    @classmethod
    def of(cls, table: InputTable, vector: Sequence[str] = ()) -> Log:
        """Return all rows of a table, in its order."""
        (expert, experts), (episode, episodes), (action, actions) = (table.codes(c) for c in ("expert", "episode", "action"))
        size = expert.size
        after = np.full(size, -1)
        unseen = np.zeros(size, dtype=np.bool_)
        values = given = np.empty((size, 0))
        ended = np.zeros(size)
        names = list[str]()
        sources = list[int]()
        states = ("",) * bool(vector)
        if vector:
            columns = [_coordinate(table, name) for name in vector]
            values, given = (np.column_stack([column[i] for column in columns]) for i in range(2))
            names = [name for column in columns for name in column[2]]
            sources = [i for i, column in enumerate(columns) for _ in column[2]]
            unseen = np.any([column[3] for column in columns], axis=0)
            ended = _truth(table, "terminated") if "terminated" in table.frame.columns else ended
            state = np.where(np.isnan(values).any(axis=1), -1, 0)
        else:
            state, states = table.codes("state")
            if "next_state" in table.frame.columns:
                after, others = table.codes("next_state")
                unseen = (after < 0) & ~table.blank("next_state") if (after < 0).any() else unseen
                here = states
                states = in_order({*states, *others})
                state, after = (np.append(positions(n, states, ""), -1)[c] for n, c in ((here, state), (others, after)))
        return cls(
            *(table, tuple(vector), np.arange(size), expert, episode, table.finite("step", whole=True), state, action, after),
            *(unseen, np.zeros(size, dtype=np.int64), values, given, ended, experts, episodes, states, actions),
            *(tuple(names), tuple(sources), not vector and "next_state" in table.frame.columns),
        )

    @property
    def sorted(self) -> Log:
        """Return the rows whose expert, episode and step can be read, in this order."""
        rows = np.flatnonzero((self.expert >= 0) & (self.episode >= 0) & np.isfinite(self.step))
        parts = [self.part[rows]] if self.part.any() else []
        return self.select(rows[np.lexsort((self.step[rows], *parts, self.episode[rows], self.expert[rows]))])

    @cached_property
    def goes_on(self) -> Bools:
        """Return whether the next row belongs to the same episode, `(N,)`, in sorted rows."""
        same = np.zeros(self.number.size, dtype=np.bool_)
        same[:-1] = (np.diff(self.expert) == 0) & (np.diff(self.episode) == 0) & (np.diff(self.part) == 0)
        return same

    @cached_property
    def jump(self) -> Floats:
        """Return the number of steps to the next row of the same episode, `(N,)`, in sorted rows; −1 after the last one."""
        return np.where(self.goes_on, _next(self.step) - self.step, -1.0)

    def select(self, rows: Any) -> Log:
        """Return some rows, given as indices or a mask."""
        by_row = (*CODES, "number", "unseen", "part", "coordinates", "next_coordinates", "terminated")
        arrays = {name: value[rows] for name, value in vars(self).items() if name in by_row}
        return replace(self, **arrays)

    def where(self, row: int, ordered: bool = True) -> str:
        """Return how messages call a row: as one of the table, or as a decision."""
        number, code = int(self.number[row]), int(self.expert[row])
        if not ordered:
            return self.table.at(number)
        place = None if self.table.scan is None else partial(self.table.at, number)
        return str(Decision(code, self.experts[code], self.episodes[self.episode[row]], int(self.step[row]), place))


def _next(values: Any) -> Any:
    """Return the value of the next row, in the last row its own."""
    return np.append(values[1:], values[-1:], axis=0)


def _coordinate(table: InputTable, name: str) -> tuple[Floats, Floats, list[str], Bools]:
    """Return values `(N,c)` and next values of one state column, the names of what it becomes, and unreadable next cells."""
    after = f"next_{name}"
    has_next = after in table.frame.columns
    filled = ~table.blank(after) if has_next else np.zeros(len(table.frame), dtype=np.bool_)
    if not _is_category(table.frame[name]):
        values = table.finite(name)[:, None]
        given = table.finite(after)[:, None] if has_next else np.full_like(values, np.nan)
        return values, given, [name], np.isnan(given[:, 0]) & filled
    read = table.codes(name), table.codes(after) if has_next else (np.full(filled.size, -1), ())
    every = tuple(sorted({*read[0][1], *read[1][1]}))
    rows = {label: (label == np.array(every)) * 1.0 for label in every}
    values, given = (np.array([*(rows[label] for label in names), np.full(len(every), np.nan)])[codes] for codes, names in read)
    return values, given, [f"{name}={label}" for label in every], filled & (read[1][0] < 0)


def _is_category(values: pd.Series[Any]) -> bool:
    """Return whether a column has values, none of which is a number."""
    filled = values.dropna()
    return bool(filled.dtype.kind == "b" or (len(filled) and as_numbers(filled).isna().all()))


def _truth(table: InputTable, column: str) -> Floats:
    """Return a column of 0 and 1, or true and false, as numbers; empty is 0, and NaN is anything else."""
    texts = ["0" if value is None or value != value else str(value).strip().lower() for value in table.frame[column]]
    truth = {"1": 1.0, "1.0": 1.0, "true": 1.0, "0": 0.0, "0.0": 0.0, "false": 0.0}
    return np.array([truth.get(text, np.nan) for text in texts])


Fixed = tuple[Log, list[tuple[int, str]]]


@dataclass(frozen=True)
class Rule:
    """One rule for tables of decisions.

    Attributes:
        kind: a short name.
        query: which rows of a log break it, `(N,)`.
        sentence: what is said of one of these rows.
        remedy: what helps, as the end of that sentence.
        noun, what: the noun for one breach, and what follows it, in a sentence on all of them; a rule without is not checked.
        fix: the log with what can be fixed without guessing, and how many rows were changed in which way.
    """

    kind: str
    query: Callable[[Log], Bools]
    sentence: Callable[[Log, int], str] | str
    remedy: str = ""
    noun: str = ""
    what: str = ""
    fix: Callable[[Log], Fixed] | None = None


def require(log: Log, rules: Iterable[Rule]) -> None:
    """Raise what is said of the first row that breaks one of the rules; the first rule comes first."""
    for rule in rules:
        wrong = rule.query(log)
        if wrong.any():
            row = int(np.argmax(wrong))
            said = rule.sentence if isinstance(rule.sentence, str) else rule.sentence(log, row)
            message = f"{log.where(row, rule not in CELLS)}: {said}{rule.remedy}"
            raise TableError(message, log.table.name, rule.kind, log.vector) if rule.noun else ValueError(message)


def read_log(table: InputTable, vector: Sequence[str] = ()) -> Log:
    """Return the sorted rows of a table that breaks no rule.

    Raises:
        TableError: naming the first row that breaks one.
    """
    log = Log.of(table, vector)
    require(log, CELLS)
    log = log.sorted
    require(log, ORDER)
    require(log, ENDS if vector else ())
    return log


def breaches(log: Log) -> Iterator[tuple[Rule, Ints]]:
    """Yield every rule that is broken, and the rows of the table that break it."""
    for rows, rules in ((log, CELLS), (log.sorted, (*ORDER, *ENDS) if log.vector else ORDER)):
        for rule in rules:
            wrong = rows.number[rule.query(rows)]
            if wrong.size:
                yield rule, np.sort(wrong)


def fixed(log: Log) -> tuple[Log, list[str]]:
    """Return the log with all that can be fixed without guessing, and what was changed, in sentences."""
    rows = log
    changes: list[tuple[int, str]] = []
    for fix in dict.fromkeys(rule.fix for rule in (*CELLS, *ORDER) if rule.fix is not None):
        rows, more = fix(rows)
        changes += more
    sentences = [f"{number:,} {'row' if number == 1 else 'rows'} {words}." for number, words in changes if number]
    return (rows.select(np.argsort(rows.number)) if sentences else log), sentences


def _unplaced(log: Log) -> Fixed:
    rows = log.sorted
    return rows, [(log.number.size - rows.number.size, "left out: no expert, no episode or no step")]


def _repeated(log: Log) -> Fixed:
    cells = np.column_stack([log.state, log.action, log.next_state, log.coordinates, log.next_coordinates])
    same = (log.jump == 0) & ((_next(cells) == cells) | (np.isnan(_next(cells)) & np.isnan(cells))).all(axis=1)
    kept = np.append(True, ~same[:-1])[: same.size]
    return log.select(kept), [(int((~kept).sum()), "left out: the same as another row of the same step")]


def _incomplete(log: Log) -> Fixed:
    rows, changes = _repeated(log)  # before cells are filled, which may make repeated rows differ
    state = rows.state.copy()
    after = rows.next_state.copy()
    follows = rows.jump == 1
    filled = np.flatnonzero(follows & (_next(state) < 0) & (after >= 0))
    state[filled + 1] = after[filled]
    kept = (state >= 0) & (rows.action >= 0)
    led = np.flatnonzero(follows & ~_next(kept) & kept & (_next(state) >= 0) & (after < 0) & rows.has_next)
    after[led] = state[led + 1]
    return replace(rows, state=state, next_state=after).select(kept), [
        *changes,
        (filled.size, "given a state: the next_state of the step before"),
        (int((~kept).sum()), "left out: no state or no action"),
        (led.size, "given a next_state: the state of the row after it, which was left out"),
    ]


def _unseen(log: Log) -> Fixed:
    if log.vector:
        return log, []
    kept = replace(log, unseen=np.zeros_like(log.unseen))
    return kept, [(int(log.unseen.sum()), "given a blank next_state: what was in it cannot be read")]


def _split(log: Log) -> Fixed:
    begins = np.append(True, ~log.goes_on[:-1])[: log.part.size]
    gaps = np.cumsum(np.append(False, log.jump[:-1] > 1)[: log.part.size])
    part = gaps - np.maximum.accumulate(np.where(begins, gaps, 0))
    return replace(log, part=part), [(int((part > 0).sum()), "after a gap in the steps given an episode of their own")]


def _blank(column: str) -> Callable[[Log], Bools]:
    return lambda log: getattr(log, column) < 0


def _unread(column: str) -> Callable[[Log, int], str]:
    """Return what is said of a cell that cannot be read; of a vector it is in the first of its columns of which that is true."""

    def sentence(log: Log, row: int) -> str:
        table = log.table
        number = int(log.number[row])
        name = column
        if column == "step":
            return table.no_number(column, number, whole=True)
        for source in log.vector if column.endswith("state") else ():
            name = column.replace("state", source)
            is_label = _is_category(table.frame[source])
            if name in table.frame.columns and (name == source or not table.blank(name)[number]):
                if is_label and table.codes(name)[0][number] < 0:
                    break
                if not is_label and np.isnan(table.finite(name)[number]):
                    return table.no_number(name, number)
        return table.no_label(name, number)

    return sentence


def _unmarked(log: Log, row: int) -> str:
    cell = log.table.frame["terminated"].iloc[log.number[row]]
    return f"column terminated must be 0 or 1, got {str(cell).strip().lower()!r}"


def _twice(log: Log, row: int) -> str:
    first, again = (log.table.place(place) for place in sorted(log.number[row : row + 2].tolist()))
    return f"each step must occur once, got it in {first} and {again}"


def _elsewhere(log: Log) -> Bools:
    """Return the rows whose next state is not the state of the next step."""
    follows = log.jump == 1
    after = _next(log.state)
    wrong: Bools = follows & (log.next_state >= 0) & (after >= 0) & (log.next_state != after)
    if log.vector:
        apart = np.abs(log.next_coordinates - _next(log.coordinates))
        unit = np.abs(log.coordinates).max(axis=0, initial=0.0, where=np.isfinite(log.coordinates))
        # Two given values of one next state may differ by this share of the column's largest value: logs are rounded.
        same_state = 1e-6
        wrong = follows & (apart > same_state * unit).any(axis=1)
    return wrong


def _gap(log: Log, row: int) -> str:
    return f"must be followed by step {log.step[row] + 1:.0f}, got step {log.step[row + 1]:.0f}"


def _said_elsewhere(log: Log, row: int) -> str:
    if log.vector:
        return "the next_ columns differ from the state of the next step"
    return f"next_state is {log.states[log.next_state[row]]!r}, but the next step is in {log.states[log.state[row + 1]]!r}"


def _partial(log: Log) -> Bools:
    given = np.isfinite(log.next_coordinates)
    wrong: Bools = ~log.goes_on & given.any(axis=1) & ~given.all(axis=1)
    return wrong


def _nowhere(log: Log) -> Bools:
    wrong: Bools = ~log.goes_on & (log.terminated == 1) & ~np.isfinite(log.next_coordinates).all(axis=1)
    return wrong


#: The rules about a row alone, in the order in which they are asked.
CELLS = (
    *(
        Rule(
            f"blank {column}",
            _blank(column),
            _unread(column),
            ": fill it in, or leave the row out and give the steps after it an episode of their own",
            "empty cell",
            f"in the column {column}",
            fix,
        )
        for column, fix in (("expert", _unplaced), ("episode", _unplaced), ("state", _incomplete), ("action", _incomplete))
    ),
    Rule(
        "step",
        lambda log: np.isnan(log.step),
        _unread("step"),
        ": number the steps of each episode 0, 1, 2, …",
        "row",
        "whose step is no whole number",
        _unplaced,
    ),
    Rule(
        "unseen next_state",
        lambda log: log.unseen,
        _unread("next_state"),
        ": write the state that followed, or leave the cell empty to take it from the next step",
        "row",
        "whose next_state is unreadable",
        _unseen,
    ),
    Rule(
        "terminated",
        lambda log: np.isnan(log.terminated),
        _unmarked,
        ": correct the mark in the column terminated",
        "row",
        "whose mark of an end is not 0 or 1",
    ),
)
#: The rules about sorted rows.
ORDER = (
    Rule(
        "duplicate step",
        lambda log: log.jump == 0,
        _twice,
        ": if it is one decision, drop the other rows; if not, give them steps or episodes of their own",
        "row",
        "for a step that another row is for",
        _repeated,
    ),
    Rule(
        "gap",
        lambda log: log.jump > 1,
        _gap,
        ": if the steps between were lost, give the steps after the gap an episode of their own; if none was lost, number the "
        "steps 0, 1, 2, …",
        "gap",
        "in the steps of an episode",
        _split,
    ),
    Rule(
        "next_state",
        _elsewhere,
        _said_elsewhere,
        ": correct one of the two, or leave it blank to take it from the next step",
        "row",
        "whose next_state is not the state of the next step",
    ),
)
#: The rules about sorted rows of vectors alone.
ENDS = (
    Rule(
        "goes on",
        lambda log: log.goes_on & (log.terminated == 1),
        "the step is marked as terminated, but the episode goes on",
        ": correct the mark in the column terminated",
        "step",
        "marked as an end that is none",
    ),
    Rule(
        "partial next_state",
        _partial,
        "the next state must be given in all its columns, got some of them empty",
        ": give all of them, or none",
        "row",
        "of whose next state some columns are empty",
    ),
    Rule(
        "ended nowhere",
        _nowhere,
        "a step that ended the episode must have its next state in next_ columns, got none",
        ": correct the mark in the column terminated",
        "step",
        "marked as an end without a next state",
    ),
)


#: How many seconds the units have in which time between dates can be counted.
TIME_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


@dataclass(frozen=True, eq=False)
class Times:
    """When each decision was made, `(N,)`, and when its move was over, NaN where nobody knows; `unit` is "" where it has no name.

    `column` is the column of the time stamps.
    """

    begun: Floats
    over: Floats
    column: str = "time"
    unit: str = ""

    def __getitem__(self, rows: Any) -> Times:
        return replace(self, begun=self.begun[rows], over=self.over[rows])

    def counted(self, unit: str) -> Times:
        """Return the same times between dates in another unit."""
        factor = TIME_UNITS[self.unit] / TIME_UNITS[unit]
        return replace(self, begun=factor * self.begun, over=factor * self.over, unit=unit)


@dataclass(frozen=True)
class Clock:
    """The column of time stamps, and the unit in which time between dates is counted, "" for numbers."""

    column: str
    unit: str

    @classmethod
    def of(cls, column: str | None, unit: str | None) -> Clock | None:
        """Return the clock of what a user asked for; None without a column."""
        if unit is not None and column is None:
            raise ValueError("a unit of time must come with a column of time stamps, got none")
        if unit is not None and unit not in TIME_UNITS:
            raise ValueError(f"the unit of time must be one of {', '.join(TIME_UNITS)}, got {unit!r}")
        return None if column is None else cls(column, unit or "")

    def require(self, table: InputTable) -> None:
        """Raise unless a table has the column of time stamps."""
        if self.column not in table.frame.columns:
            columns = first_few(table.columns)
            raise ValueError(f"{table.name} must have the column {self.column} with time stamps, got the columns {columns}")

    def times(self, log: Log) -> Times:
        """Return when each decision of a sorted log was made and its move was over; raises where time does not go forward."""
        column = self.column
        after = f"next_{self.column}"
        begun = self.read(log.table, column)[log.number]
        over = np.where(log.goes_on, np.append(begun[1:], np.nan), np.nan)
        if after in log.table.frame.columns:
            given = self.read(log.table, after, optional=True)[log.number]
            # Stamps that were computed differ by rounding.
            apart = np.abs(given - over) > 1e-9 * np.abs(over) + 1e-6 * np.abs(over - begun)
            said = f"{after} must be the {column} of the next step, got another"
            require(log, [Rule("next time", lambda log: apart, said, ": correct one of the two, or leave it blank")])
            over = np.where(np.isnan(over), given, over)

        def backwards(log: Log, row: int) -> str:
            later = f"the {column} of the next step" if log.goes_on[row] else after
            return f"{later} must be later than the {column} of this one, got a move that takes {over[row] - begun[row]:g}"

        remedy = ": correct the time stamps, or give the steps after it an episode of their own"
        require(log, [Rule("time", lambda log: over <= begun, backwards, remedy)])
        return Times(begun, over, column, self.unit)

    def read(self, table: InputTable, column: str, optional: bool = False) -> Floats:
        """Return the stamps of a column as numbers; where they are optional, NaN for a blank one."""
        cells = table.frame[column]
        cells = cells.mask(cells.astype(str).str.strip().str.lower().isin(MISSING))
        dates = cells.dtype.kind == "M" or (cells.dtype.kind not in "iuf" and as_numbers(cells).isna().all())
        if dates and cells.notna().any() and not self.unit:
            raise ValueError(
                f"{table.name}: column {column} must be numbers, got {shown(cells.dropna().iloc[0])}: if it holds dates, "
                f"say in which unit to count with time_unit=, one of {', '.join(TIME_UNITS)}"
            )
        if self.unit and not dates:
            raise ValueError(f"{table.name}: column {column} must be dates where a unit of time is given, got numbers")
        if dates:
            self._require_one_kind(table, column, cells)
            try:
                parsed = pd.to_datetime(cells, errors="coerce", utc=True, format=None if cells.dtype.kind == "M" else "ISO8601")
                parsed = parsed.astype("datetime64[ns, UTC]")
            except pd.errors.OutOfBoundsDatetime as error:
                raise ValueError(
                    f"{table.name}: column {column} must hold dates from 1678 to 2261, got another: {error}"
                ) from error
            counted = (parsed - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=TIME_UNITS[self.unit])
        else:
            counted = as_numbers(cells)
        numbers: Floats = np.asarray(counted.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
        wrong = ~np.isfinite(numbers) & ~(cells.isna().to_numpy() & optional)
        if wrong.any():
            row = int(np.argmax(wrong))
            what = "a date such as 2024-05-31T14:30" if dates else "a number"
            raise ValueError(f"{table.at(row)}: column {column} must be {what}, got {shown(table.frame[column].iloc[row])}")
        return numbers

    def _require_one_kind(self, table: InputTable, column: str, cells: pd.Series[Any]) -> None:
        """Raise where some stamps have a time zone and others have none: nobody knows how far apart these are."""
        stamps = cells.astype(str).str.strip()
        zoned = stamps.str.contains(r":\d\d[\d.,]*\s*(?:Z|[+-]\d\d(?::?\d\d)?)$", regex=True)
        without = stamps.str.contains(r"\d:\d\d", regex=True) & cells.notna() & ~zoned
        if zoned.any() and without.any():
            row, other = int(np.argmax(without)), int(np.argmax(zoned))
            raise ValueError(
                f"{table.at(row)}: column {column} must have a time zone in all rows or in none, got "
                f"{shown(cells.iloc[row])} without one, and {shown(cells.iloc[other])} in {table.place(other)}"
            )
