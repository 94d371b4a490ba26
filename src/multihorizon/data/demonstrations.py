"""Tables of decisions: who did what in which state, loaded where they are few, counted where they are many.

Estimates need no more of a table than how often each expert moved where by which action, and one entry per episode. Few moves are
distinct, and a person makes few of them, so the counts are a sparse matrix with one row per expert and one column per move. Of a
table that is too large to load, no more than this is kept; what more is asked for is read from the files again.

*In memory* (`Rows`) a table is integer codes with one list of labels per column, sorted by expert, episode and step. The steps of
an episode are consecutive whole numbers. Where `next_state` is given it must be the state of the following step; left blank, it
is taken from there.

*Conditions* are further columns that have one value in each episode, read where they are asked for, or the columns of a table
with one row per episode. The decisions of units of episodes, such as a person under a condition, are counted by `choices_by`.

*Time.* Where decisions have time stamps, a move takes from its own stamp to the next one of the episode. When the last move of an
episode was over, a column `next_…` may say, as `next_state` says where it led. Such tables are loaded, however large they are.

*Counting* (`CountedFiles`, in a database) takes one pass that finds all labels, and one that groups rows by the codes of expert,
state, action and next state; of CSV files, which are slow to read, one pass does both. *Checking* takes another: rows are grouped
by episode. With h a random function of 64 bits, an episode whose steps run from f to l is in order if,
over its rows,

    Σ h(step, state) − Σ h(step + 1, next state) = h(f, first state) − h(l + 1, last next state),

because then all terms but two cancel: every step is there once, and every next state is the state of the following step. A wrong
episode passes by chance once in 10¹⁸. No row is sorted, and of each episode a few numbers are kept. A condition is the same in
all rows of an episode if its least value there is its greatest, and it is known in all of them or in none.

Checking reads labels as they are spelt in the files. Where two spellings mean one label (3 and 3.0), or next states are blank
inside an episode, it goes over codes instead, which is slower. Where something is wrong, the rows in question are loaded, and the
checks of tables in memory say what it is and on which line.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NoReturn

import duckdb
import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import Bools, Floats, Ints, Sparse, as_count, as_names, as_seed, as_shape, first_few, label
from multihorizon.data.reading import (
    EXTRA,
    MEMORY,
    MISSING,
    Scan,
    Table,
    as_numbers,
    as_table,
    connect,
    files_of,
    in_order,
    joint_name,
    label_order,
    load,
    moved,
    no_labels,
    numbers_or_missing,
    positions,
    quoted,
    rewritten,
    scan_csv,
    scan_files,
    scan_parquet,
    shown,
    spreadsheet_label,
    text,
)
from multihorizon.files import existing_file, write_csv
from multihorizon.frames import LARGEST_WHOLE, Frame, HasFrame, as_frame
from multihorizon.mdp import MDP
from multihorizon.memory import require_memory
from multihorizon.planning.plan import check_policy

#: The option that looks at a table beside given transitions.
BESIDE = "--transitions FILE"


class TableError(ValueError):
    """What is wrong with a table of decisions, and which table it is: `multihorizon check` lists all that is wrong with it.

    `options` are those of the command that looks at what is wrong, such as `--transitions FILE`.
    """

    def __init__(self, message: str, table: str = "", options: str = "") -> None:
        super().__init__(message)
        self.table, self.options = table, options


@contextmanager
def in_order_of_file(database: Any) -> Iterator[None]:
    """Let queries number rows in the order of the file, on one thread; afterwards there are all again, also after an error."""
    database.execute("SET threads = 1")
    try:
        yield
    finally:
        database.execute("RESET threads")


@contextmanager
def refusing(table: str, options: str = "") -> Iterator[None]:
    """What is refused in this block is wrong with the table of this name."""
    try:
        yield
    except TableError:
        raise
    except ValueError as error:
        raise TableError(str(error), table, options) from error


@dataclass(frozen=True, eq=False)
class Moves:
    """The distinct moves of all experts together, `(m,)`, in the order of their codes, and how often each was made.

    `state`, `action`, `next_state` are codes into the table's labels; `next_state` is −1 where unknown.
    """

    state: Ints
    action: Ints
    next_state: Ints
    count: Ints


@dataclass(frozen=True, eq=False)
class Cells:
    """The distinct decisions, one entry each, `(M,)`, in the order of their codes.

    `expert`, `state`, `action`, `next_state` are codes into the table's labels; `next_state` is −1 where unknown. `count` is how
    often the decision was taken.
    """

    expert: Ints
    state: Ints
    action: Ints
    next_state: Ints
    count: Ints


@dataclass(frozen=True, eq=False)
class Episodes:
    """The expert, the first state and the number of decisions of each episode, `(E,)`, by expert and by episode label."""

    expert: Ints
    first_state: Ints
    length: Ints


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
        """The same times between dates in another unit."""
        factor = TIME_UNITS[self.unit] / TIME_UNITS[unit]
        return replace(self, begun=factor * self.begun, over=factor * self.over, unit=unit)


@dataclass(frozen=True)
class Decision:
    """One row of a table, for messages: who, when, and where it stands, if in a file."""

    code: int
    expert: str
    episode: str
    step: int
    place: str = ""

    @property
    def order(self) -> tuple[int, tuple[int, int, str], int]:
        """What tables are sorted by: expert, episode and step."""
        return self.code, label_order(self.episode), self.step

    def __str__(self) -> str:
        decision = f"expert {self.expert}, episode {self.episode}, step {self.step}"
        return f"{self.place} ({decision})" if self.place else decision


COLUMNS = ("expert", "episode", "step", "state", "action")
LABELS = ("expert", "episode", "state", "action", "next_state")
#: The arrays of a table, one entry per decision each.
CODES = ("expert", "episode", "step", "state", "action", "next_state")
#: What helps where a table is not in order: the end of the sentence on what is wrong.
REMEDIES = {
    "blank": ": fill it in, or leave the row out and give the steps after it an episode of their own",
    "gap": ": if the steps between were lost, give the steps after the gap an episode of their own; "
    "if none was lost, number the steps 0, 1, 2, …",
    "twice": ": if it is one decision, drop the other rows; if not, give them steps or episodes of their own",
    "next_state": ": correct one of the two, or leave next_state blank to take it from the next step",
    "cut off": ": write into next_state how the episode ended; if it simply stopped, say so with --cut-off (in Python "
    "cut_off=True)",
}


class Demonstrations(HasFrame):
    """Decisions of several experts, sorted by expert, episode and step.

    `experts`, `episodes`, `states` and `actions` are labels; `expert`, `episode`, `state`, `action` and `next_state` are `(N,)`
    codes into them, and `next_state` is −1 where unknown. `made` holds how often each expert made each of the `moves`, and
    `by_episode` one entry per episode. `conditions` has one row per episode too, and one column for each condition that holds in
    it, missing where it is not known; it is None where no conditions were asked for. `times` says when each decision was made,
    where that was asked for. Of a large file only these counts are in
    memory until more is asked for; then the rows are loaded, and ValueError is raised where they are too many for that.

    Attributes:
        name: the file or folder, or "the table".
        cut_off: whether episodes may simply stop.
    """

    expert: Ints
    episode: Ints
    step: Ints
    state: Ints
    action: Ints
    next_state: Ints
    experts: tuple[str, ...]
    episodes: tuple[str, ...]
    states: tuple[str, ...]
    actions: tuple[str, ...]
    name: str
    cut_off: bool
    conditions: pd.DataFrame | None
    times: Times | None = None

    @property
    @abstractmethod
    def moves(self) -> Moves:
        """The distinct moves, and how often each was made."""

    @property
    @abstractmethod
    def made(self) -> Sparse:
        """How often each expert made each of the moves, `(K,m)`, sparse."""

    @property
    @abstractmethod
    def by_episode(self) -> Episodes:
        """Expert, first state and length of each episode."""

    @property
    @abstractmethod
    def episode_labels(self) -> list[str]:
        """The label of each episode, in the order of `by_episode`."""

    @abstractmethod
    def with_conditions(self, conditions: pd.DataFrame | None) -> Demonstrations:
        """The same decisions under other conditions, one row per episode in the order of `by_episode`."""

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """The table in memory."""

    @property
    @abstractmethod
    def episode_counts(self) -> Ints:
        """Number of episodes of each expert."""

    @property
    @abstractmethod
    def first_states(self) -> Ints:
        """Number of episodes that begin in each state."""

    @abstractmethod
    def decisions_of(self, moves: Ints) -> list[Decision]:
        """The first decision by which each of the given moves was made, for messages."""

    @abstractmethod
    def count_episodes(self, times: Floats) -> Floats:
        """How often each of the `cells` was taken, `(M,)`, if episode e counts `times[e]` times."""

    @abstractmethod
    def choices_of(self, kept: Bools) -> tuple[Ints, Ints]:
        """State and action of each decision of the episodes kept, `(E,)`, by episode and step."""

    @abstractmethod
    def choices_by(self, mdp: MDP, unit: Ints, size: int) -> Sparse:
        """The same as `choices` where episode e is one of unit `unit[e]`, and −1 means of none: `(size,A·S)`, sparse."""

    @staticmethod
    def from_frame(
        frame: Frame,
        cut_off: bool = False,
        conditions: Sequence[str] = (),
        *,
        unnamed: bool = False,
        time: str | None = None,
        time_unit: str | None = None,
    ) -> Demonstrations:
        """Read a data frame with the columns `expert, episode, step, state, action` and optionally `next_state`.

        It may be one of pandas, polars, pyarrow or DuckDB.
        With `cut_off`, episodes may simply stop: the next state of a last decision may then be unknown. `conditions` names other
        columns that have one value in each episode, numbers or text. With `unnamed` the column `expert` may be missing, or
        blank throughout: then each episode is an expert of its own, with the label of the episode for a name.

        `time` names a column that says when each decision was made; the move takes until the next one. A column `next_…` with the
        same name after that may say when the last move of an episode was over. Time stamps are numbers, or dates where
        `time_unit` says in which unit to count: second, minute, hour, day or week.

        Raises:
            ValueError: naming the row and what is wrong with it.

        Example:
            >>> rows = pd.DataFrame({"expert": "Ann", "episode": [0, 1], "step": 0, "state": "a", "action": "go"})
            >>> Demonstrations.from_frame(rows.assign(noise=["low", "high"]), conditions=["noise"]).conditions.noise.tolist()
            ['low', 'high']
        """
        table = Table(as_frame(frame, "a table of decisions", ": from_csv, from_parquet and from_files read files"))
        if unnamed and ("expert" not in table.frame or table.frame["expert"].replace("", None).isna().all()):
            table = named_by_episode(table)
        return rows_of(table, from_file=False, cut_off=cut_off, conditions=conditions, clock=_clock(time, time_unit))

    @staticmethod
    def from_csv(
        path: str | Path,
        cut_off: bool = False,
        conditions: Sequence[str] = (),
        *,
        unnamed: bool = False,
        time: str | None = None,
        time_unit: str | None = None,
    ) -> Demonstrations:
        """Read a CSV file with a header line; see `from_frame`. Messages name the file and the line."""
        return _read(
            scan_csv(str(path), [existing_file(path, "a CSV table")]), cut_off, conditions, unnamed, _clock(time, time_unit)
        )

    @staticmethod
    def from_parquet(
        path: str | Path,
        cut_off: bool = False,
        conditions: Sequence[str] = (),
        *,
        unnamed: bool = False,
        time: str | None = None,
        time_unit: str | None = None,
    ) -> Demonstrations:
        """Read a Parquet file; see `from_frame`."""
        return _read(
            scan_parquet(str(path), [existing_file(path, "a Parquet table")]),
            cut_off,
            conditions,
            unnamed,
            _clock(time, time_unit),
        )

    @staticmethod
    def from_files(
        path: str | Path | Sequence[str | Path],
        cut_off: bool = False,
        conditions: Sequence[str] = (),
        *,
        unnamed: bool = False,
        time: str | None = None,
        time_unit: str | None = None,
    ) -> Demonstrations:
        """Read a CSV or Parquet file by the ending of its name, or a folder or a list of files of one kind as one table."""
        return _read(
            scan_files(joint_name(path), files_of(path, "demonstrations")), cut_off, conditions, unnamed, _clock(time, time_unit)
        )

    @staticmethod
    def simulate(
        mdp: MDP,
        policies: Sequence[Any],
        episodes: int,
        seed: int = 0,
        max_steps: int = 200,
        names: Sequence[Any] | None = None,
        starts: ArrayLike | None = None,
    ) -> Demonstrations:
        """Let each policy `(S,A)` act for `episodes` episodes from the initial distribution.

        An episode ends on arrival in a terminal state, or is cut after `max_steps` decisions. With `starts` `(episodes,)`, the
        indices of states, each episode begins in the state given for it. Where moves take time, decisions have time stamps.

        Example:
            >>> from multihorizon.domains import cliff
            >>> d = Demonstrations.simulate(cliff().mdp, cliff().mce_experts(), episodes=10)
            >>> d.experts, len(d) >= 30
            (('0', '1', '2'), True)
        """
        if not len(policies):
            raise ValueError("policies must hold at least one policy, received none")
        as_count(episodes, "episodes")
        as_count(max_steps, "max_steps")
        seed = as_seed(seed)
        experts = as_names(names, len(policies), "names")
        first = None if starts is None else np.asarray(starts)
        if first is not None:
            as_shape(first, (episodes,), "starts")
            inside = np.issubdtype(first.dtype, np.integer) and not ((first < 0) | (first >= mdp.n_states)).any()
            if not inside or mdp.terminal[first].any():
                raise ValueError(f"starts must be indices of states that are not terminal, received {first.tolist()}")
            first = first.astype(np.int64)
        streams = np.random.SeedSequence(seed).spawn(len(policies))
        runs = [
            simulate_policy(mdp, check_policy(mdp, policy, f"policy of expert {name}"), episodes, max_steps, stream, first)
            for policy, name, stream in zip(policies, experts, streams, strict=True)
        ]
        episode, step, state, action, next_state = (np.concatenate([run[i] for run in runs]) for i in range(5))
        expert = np.repeat(np.arange(len(runs)), [run[0].size for run in runs])
        labels = tuple(str(i) for i in range(episodes))
        codes = expert, episode, step, state, action, next_state
        table = Rows(*codes, experts, labels, mdp.state_names, mdp.action_names)
        if mdp.durations is None:
            return table
        rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(len(policies) + 1)[-1])
        lasted = mdp.durations.drawn(mdp.stacked, action * mdp.n_states + state, next_state, rng)
        over = np.cumsum(lasted)
        over -= np.repeat((over - lasted)[table.first_rows], table.by_episode.length)
        begun = np.where(np.isin(np.arange(over.size), table.first_rows), 0.0, np.append(0.0, over[:-1]))
        return replace(table, times=Times(begun, over, unit=mdp.durations.unit))

    @property
    def cells(self) -> Cells:
        """How often each distinct decision was taken: the entries of `made` one by one."""
        made, moves = self.made, self.moves
        expert, move = np.repeat(np.arange(made.shape[0]), np.diff(made.indptr)), made.indices
        return Cells(expert, moves.state[move], moves.action[move], moves.next_state[move], made.data.astype(np.int64))

    def __len__(self) -> int:
        return int(self.moves.count.sum())

    def __repr__(self) -> str:
        return f"Demonstrations({len(self)} decisions of {first_few(self.experts)})"

    def counts(self, mdp: MDP, weights: Floats | None = None) -> Floats:
        """How often each expert took each action in each state, `(K,S,A)`, in the order of the MDP's states and actions.

        With `weights` `(N,)` each row counts that often.

        Raises:
            ValueError: for a label the MDP does not know, a decision in a terminal state, or an unavailable action.
        """
        return self._dense(mdp, None if weights is None else self.rows.count_rows(weights))

    def counts_of_episodes(self, mdp: MDP, times: ArrayLike) -> Floats:
        """The same, where episode e of `by_episode` counts `times[e]` times, `(E,)`."""
        return self._dense(mdp, self.count_episodes(np.asarray(times, dtype=np.float64)))

    def _dense(self, mdp: MDP, counts: Floats | None) -> Floats:
        shape = (len(self.experts), mdp.n_actions, mdp.n_states)
        if (size := 2 * 8 * int(np.prod(shape))) > 100_000_000:
            what = f"a table of {shape[0]:,} experts, {mdp.n_states:,} states and {mdp.n_actions} actions"
            require_memory(size, what, "take fewer experts at a time, or merge states that are alike")
        dense: Floats = np.ascontiguousarray(self.choices(mdp, counts).toarray().reshape(shape).transpose(0, 2, 1))
        return dense

    def choices(self, mdp: MDP, counts: Floats | None = None) -> Sparse:
        """The same as `counts`, sparse: how often expert k took action a in state s, at `[k, a·S + s]`, `(K,A·S)`.

        With `counts` `(M,)` the `cells` count that often.
        """
        states, actions, left_out = self.require_available(mdp)
        made = self.made
        if counts is not None:
            made = sp.csr_array((counts, made.indices, made.indptr), shape=made.shape)
        kept = np.flatnonzero(~left_out).astype(np.int32)  # narrow indices: of many persons there are as many as decisions
        columns = (actions * mdp.n_states + states)[kept].astype(np.int32)
        shape = (states.size, mdp.n_actions * mdp.n_states)
        found = sp.csr_array(made @ sp.csr_array((np.ones(kept.size), (kept, columns)), shape=shape))
        found.sort_indices()
        return found

    def require_available(self, mdp: MDP) -> tuple[Ints, Ints, Bools]:
        """The MDP's index of the state and of the action of each of the moves `(m,)`, and which of them do not count.

        Raises:
            ValueError: for a label the MDP does not know, a decision in a terminal state, or an unavailable action.
        """
        (place, number), left_out = self.match(mdp), self.left_out(mdp)
        states, actions = place[self.moves.state], number[self.moves.action]
        self._refuse(
            mdp.terminal[states] & ~left_out,
            "state {0!r} is terminal: nothing is decided there. If one can go on from it, say in the transitions where its "
            "actions lead; if not, leave the decision out",
        )
        self._refuse(
            ~mdp.available[states, actions] & ~left_out,
            "action {1!r} in state {0!r} is not available. If it can be taken there, say in the transitions where it leads; "
            "if not, correct the row",
        )
        return states, actions, left_out

    def match(self, mdp: MDP) -> tuple[Ints, Ints]:
        """The MDP's index of each of the table's states, and of each of its actions; raises for a label it does not know."""
        moves = self.moves

        def state(code: int) -> str:
            return str(self.first((moves.state == code) | (moves.next_state == code))[1])

        def action(code: int) -> str:
            return str(self.first(moves.action == code)[1])

        from_file = self.name != Rows.name
        with refusing(self.name, BESIDE):
            states = positions(self.states, mdp.state_names, "state", state if from_file else None)
            return states, positions(self.actions, mdp.action_names, "action", action if from_file else None)

    def under(self, frame: Frame) -> Demonstrations:
        """The same decisions under the conditions of a table with the columns `expert`, `episode` and one for each condition.

        Rows about other episodes are left out, and where an episode has no row, its conditions are missing.

        Raises:
            ValueError: where an episode has two rows or none has any, and for a condition that the decisions already have.

        Example:
            >>> from multihorizon.domains import cliff
            >>> d = Demonstrations.simulate(cliff().mdp, cliff().mce_experts()[:1], episodes=2, names=["Ann"])
            >>> noise = pd.DataFrame({"expert": "Ann", "episode": [1, 0], "noise": ["high", "low"]})
            >>> d.under(noise).conditions.noise.tolist()
            ['low', 'high']
        """
        name = "the table of episodes"
        return put_under([self], conditions_of(Table(as_frame(frame, name), name)), name)[0][0]

    def first(self, wanted: Bools) -> tuple[int, Decision]:
        """The first decision of those of the `moves` that are wanted, `(m,)`: its move, and what to call it in messages."""
        moves = np.flatnonzero(wanted)
        return min(zip(moves.tolist(), self.decisions_of(moves), strict=True), key=lambda pair: pair[1].order)

    def unnamed(self) -> Demonstrations:
        """The same decisions where each episode is an expert of its own, as if nobody knew whose it was.

        Names are the labels of the episodes, and say whose they are where labels occur twice.

        Example:
            >>> from multihorizon.domains import cliff
            >>> d = Demonstrations.simulate(cliff().mdp, cliff().mce_experts(), episodes=2)
            >>> d.unnamed().experts
            ('0 of 0', '1 of 0', '0 of 1', '1 of 1', '0 of 2', '1 of 2')
        """
        table = self.rows
        whose, label = table.by_episode.expert.tolist(), table.episode[table.first_rows].tolist()
        twice = len(set(label)) < len(label)
        names = [table.episodes[e] + (f" of {table.experts[k]}" if twice else "") for k, e in zip(whose, label, strict=True)]
        expert = np.repeat(np.arange(len(names)), table.by_episode.length)
        return replace(table, expert=expert, experts=tuple(names))

    def select(self, rows: Any) -> Demonstrations:
        """The decisions of some rows, given as indices or a mask, under the same labels."""
        table = self.rows
        chosen = np.arange(len(self))[rows]
        place = None if table.place is None else partial(moved, table.place, chosen)
        times = None if table.times is None else table.times[rows]
        codes = {column: getattr(table, column)[rows] for column in CODES}
        found = replace(table, **codes, place=place, conditions=None, times=times)
        if table.conditions is None:
            return found
        episode = np.repeat(np.arange(len(table.conditions)), table.by_episode.length)[chosen]
        return replace(found, conditions=table.conditions.iloc[episode[found.first_rows]].reset_index(drop=True))

    def same_decisions(self, other: Demonstrations) -> bool:
        """Whether two tables hold the same decisions under the same labels."""
        labels = all(getattr(self, c) == getattr(other, c) for c in ("experts", "states", "actions"))
        if not labels or not np.array_equal(self.made.data, other.made.data):
            return False
        return self.episodes == other.episodes and all(np.array_equal(getattr(self, c), getattr(other, c)) for c in CODES)

    def to_frame(self) -> pd.DataFrame:
        """The table with the user's labels and conditions; `next_state` is left out where none is known."""
        columns: dict[str, Any] = {
            "expert": np.array(self.experts, dtype=object)[self.expert],
            "episode": np.array(self.episodes, dtype=object)[self.episode],
            "step": self.step,
            "state": np.array(self.states, dtype=object)[self.state],
            "action": np.array(self.actions, dtype=object)[self.action],
        }
        if (self.next_state >= 0).any():
            known = np.array((*self.states, None), dtype=object)
            columns["next_state"] = known[self.next_state]
        if self.conditions is not None:
            episode = np.repeat(np.arange(len(self.conditions)), self.by_episode.length)
            columns |= {str(name): values.to_numpy()[episode] for name, values in self.conditions.items()}
        if self.times is not None:
            columns |= {self.times.column: self.times.begun, f"next_{self.times.column}": self.times.over}
        return pd.DataFrame(columns)

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file that `from_csv` reads back; labels that a spreadsheet would run as formulas get ' before them."""
        write_csv(self.to_frame(), path, read_again=True)

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file that `from_parquet` reads back; needs the extra `parquet`."""
        self.to_frame().to_parquet(path, index=False)

    def left_out(self, mdp: MDP) -> Bools:
        """The moves that do not count, `(m,)`: last decisions of cut-off episodes that the estimate knows nothing of."""
        moves = self.moves
        if not self.cut_off or mdp.sample_sizes is None:
            return np.zeros(moves.count.size, dtype=np.bool_)
        states, actions = self.match(mdp)
        left: Bools = (moves.next_state < 0) & ~mdp.live[states[moves.state], actions[moves.action]]
        return left

    def _refuse(self, wrong: Bools, reason: str) -> None:
        """Raise where a move is wrong; the reason names its state and action."""
        if wrong.any():
            move, decision = self.first(wrong)
            state, action = self.states[self.moves.state[move]], self.actions[self.moves.action[move]]
            raise TableError(f"{decision}: {reason.format(state, action)}", self.name, BESIDE)


class Keys:
    """One whole number for each decision, in the order of expert, state, action and next state; equal decisions have one."""

    def __init__(self, table: Demonstrations) -> None:
        self.experts, self.states, self.actions = len(table.experts), len(table.states), len(table.actions)
        self.width = self.states * self.actions * (self.states + 1)
        if self.experts * self.width >= 2**63:
            raise ValueError(
                f"{table.name} must have fewer labels to be counted, received {self.experts:,} experts, {self.states:,} states "
                f"and {self.actions:,} actions"
            )

    def of(self, expert: Any, state: Any, action: Any, next_state: Any) -> Any:
        """The keys of codes; the codes may also be names of columns in SQL that stand for themselves."""
        return expert * self.width + (state * self.actions + action) * (self.states + 1) + next_state + 1

    def count(self, keys: Ints, counts: Ints) -> tuple[Moves, Sparse]:
        """The moves, and how often each expert made each, of distinct keys in their order `(M,)`; this writes over the keys."""
        rows = np.searchsorted(keys, np.arange(self.experts + 1) * self.width)
        np.remainder(keys, self.width, out=keys)
        found = np.unique(keys)
        total, places = np.zeros(found.size, dtype=np.int64), np.empty(keys.size, dtype=np.int32)
        for start in range(0, keys.size, 1 << 22):  # in blocks: of many persons there are as many keys as decisions
            block = slice(start, start + (1 << 22))
            places[block] = np.searchsorted(found, keys[block])
            total += np.bincount(places[block], counts[block], minlength=found.size).astype(np.int64)
        (moved, next_state) = np.divmod(found, self.states + 1)
        moves = Moves(*np.divmod(moved, self.actions), next_state - 1, total)
        size = np.int32 if keys.size < 2**31 else np.int64
        return moves, sp.csr_array((counts, places, rows.astype(size)), shape=(self.experts, found.size))


def simulate_policy(
    mdp: MDP, policy: Floats, episodes: int, max_steps: int | Ints, seed: np.random.SeedSequence, starts: Ints | None = None
) -> list[Ints]:
    """Columns episode, step, state, action, next_state of one policy; all episodes advance together.

    `starts` `(episodes,)` are the first states; by default they are drawn. `max_steps` is one number, or one for each episode.
    """
    rng = np.random.default_rng(seed)
    choices = policy.cumsum(axis=1)
    ends = np.cumsum(mdp.stacked.data)
    running = np.arange(episodes)
    state = rng.choice(mdp.n_states, size=episodes, p=mdp.initial) if starts is None else starts
    rows: list[tuple[Ints, ...]] = []
    limits = np.broadcast_to(max_steps, episodes)
    for step in range(int(limits.max())):
        action = np.minimum(
            (rng.random((running.size, 1)) * choices[state, -1:] >= choices[state]).sum(axis=1), mdp.n_actions - 1
        )
        # The successor is found by bisection in the running sum of all transitions, between the ends of its row.
        row = action * mdp.n_states + state
        start, end = mdp.stacked.indptr[row], mdp.stacked.indptr[row + 1]
        low = np.where(start > 0, ends[start - 1], 0.0)
        target = low + rng.random(row.size) * (ends[end - 1] - low)
        entry = np.clip(np.searchsorted(ends, target, side="right"), start, end - 1)
        arrived: Ints = mdp.stacked.indices[entry].astype(np.int64)
        rows.append((running, np.full(running.size, step), state, action, arrived))
        alive = ~mdp.terminal[arrived] & (step + 1 < limits[running])
        running, state = running[alive], arrived[alive]
        if not running.size:
            break
    columns = [np.concatenate([row[i] for row in rows]) for i in range(5)]
    order = np.lexsort((columns[1], columns[0]))
    return [column[order] for column in columns]


@dataclass(frozen=True, eq=False, repr=False)
class Rows(Demonstrations):
    """A table in memory. `place` says where in its file a decision stands, and is None for other tables."""

    expert: Ints
    episode: Ints
    step: Ints
    state: Ints
    action: Ints
    next_state: Ints
    experts: tuple[str, ...]
    episodes: tuple[str, ...]
    states: tuple[str, ...]
    actions: tuple[str, ...]
    name: str = "the table"
    place: Callable[[int], str] | None = None
    cut_off: bool = False
    conditions: pd.DataFrame | None = None
    times: Times | None = None

    def __post_init__(self) -> None:
        for column in CODES:
            array = getattr(self, column).view()
            array.setflags(write=False)
            object.__setattr__(self, column, array)

    @property
    def moves(self) -> Moves:
        """The distinct moves, and how often each was made."""
        return self._counted[0]

    @property
    def made(self) -> Sparse:
        """How often each expert made each of the moves, `(K,m)`, sparse."""
        return self._counted[1]

    @cached_property
    def by_episode(self) -> Episodes:
        """Expert, first state and length of each episode."""
        first = self.first_rows
        return Episodes(self.expert[first], self.state[first], np.diff(np.append(first, self.state.size)))

    @property
    def episode_counts(self) -> Ints:
        """The number of episodes of each expert."""
        return np.bincount(self.by_episode.expert, minlength=len(self.experts))

    @property
    def first_states(self) -> Ints:
        """The number of episodes that begin in each state."""
        return np.bincount(self.by_episode.first_state, minlength=len(self.states))

    @cached_property
    def first_rows(self) -> Ints:
        """The rows that begin an episode."""
        return np.concatenate([[0], np.flatnonzero(~same_episode(self.expert, self.episode)) + 1]).astype(np.int64)

    @property
    def episode_labels(self) -> list[str]:
        """The label of each episode, in the order of `by_episode`."""
        return [self.episodes[code] for code in self.episode[self.first_rows].tolist()]

    def with_conditions(self, conditions: pd.DataFrame | None) -> Rows:
        """The same decisions under other conditions, one row per episode in the order of `by_episode`."""
        return replace(self, conditions=conditions)

    @property
    def rows(self) -> Rows:
        """The table itself."""
        return self

    def decisions_of(self, moves: Ints) -> list[Decision]:
        """The first decision by which each of the given moves was made, for messages."""
        first = np.full(self.moves.count.size, self.state.size)
        np.minimum.at(first, self.made.indices[self._counted[2]], np.arange(self.state.size))
        return [self.decision(row) for row in first[moves].tolist()]

    def count_episodes(self, times: Floats) -> Floats:
        """How often each of the `cells` was taken, `(M,)`, if episode e counts `times[e]` times."""
        return self.count_rows(np.repeat(times, self.by_episode.length))

    def choices_of(self, kept: Bools) -> tuple[Ints, Ints]:
        """State and action of each decision of the episodes kept, `(E,)`, by episode and step."""
        chosen = np.repeat(kept, self.by_episode.length)
        return self.state[chosen], self.action[chosen]

    def choices_by(self, mdp: MDP, unit: Ints, size: int) -> Sparse:
        """The same as `choices` where episode e is one of unit `unit[e]`, and −1 means of none: `(size,A·S)`, sparse."""
        states, actions, left_out = self.require_available(mdp)
        move, row = self.made.indices[self._counted[2]], np.repeat(unit, self.by_episode.length)
        kept = (row >= 0) & ~left_out[move]
        places = row[kept], (actions * mdp.n_states + states)[move[kept]]
        found = sp.csr_array((np.ones(int(kept.sum())), places), shape=(size, mdp.n_actions * mdp.n_states))
        found.sum_duplicates()  # in order, so that sums over them are the same to the last digit
        return found

    def count_rows(self, weights: Floats) -> Floats:
        """How often each of the `cells` was taken, `(M,)`, if row i counts `weights[i]` times."""
        return np.bincount(self._counted[2], weights, minlength=self.made.nnz).astype(np.float64)

    def decision(self, row: int) -> Decision:
        """A row for messages."""
        code = int(self.expert[row])
        place = "" if self.place is None else f"{self.name}, {self.place(row)}"
        return Decision(code, self.experts[code], self.episodes[self.episode[row]], int(self.step[row]), place)

    @cached_property
    def _counted(self) -> tuple[Moves, Sparse, Ints]:
        """The moves, how often each expert made each, and the cell of each row `(N,)`."""
        keys = Keys(self)
        own, cell, counts = np.unique(
            keys.of(self.expert, self.state, self.action, self.next_state), return_inverse=True, return_counts=True
        )
        return *keys.count(own, counts), cell


@dataclass(frozen=True, eq=False)
class Order:
    """Who did what when, `(N,)`, sorted by expert, episode and step; `rows` are the rows of the table in this order."""

    table: Table
    from_file: bool
    rows: Ints
    expert: Ints
    episode: Ints
    step: Ints
    action: Ints
    experts: tuple[str, ...]
    episodes: tuple[str, ...]
    actions: tuple[str, ...]

    @classmethod
    def of(cls, table: Table, from_file: bool = True) -> Order:
        """The order of a table's rows; messages say where a row stands if the table is `from_file`."""
        found = (table.labels(column, remedy=REMEDIES["blank"]) for column in ("expert", "episode", "action"))
        (expert, experts), (episode, episodes), (action, actions) = found
        step = table.whole_numbers("step")
        rows = np.lexsort((step, episode, expert))
        codes = expert[rows], episode[rows], step[rows], action[rows]
        return cls(table, from_file, rows, *codes, experts, episodes, actions)

    @cached_property
    def continues(self) -> Bools:
        """Whether the next decision belongs to the same episode, `(N−1,)`."""
        return same_episode(self.expert, self.episode)

    def refuse(self, wrong: Bools, reason: Callable[[int], str]) -> None:
        """Raise for the first decision that is wrong."""
        if wrong.any():
            row = int(np.argmax(wrong))
            code, place = int(self.expert[row]), self.table.at(int(self.rows[row])) if self.from_file else ""
            decision = Decision(code, self.experts[code], self.episodes[self.episode[row]], int(self.step[row]), place)
            raise ValueError(f"{decision}: {reason(row)}")

    def conditions(self, columns: Sequence[str]) -> pd.DataFrame | None:
        """The value of each of the columns in each episode; raises where one varies within an episode."""
        if not columns:
            return None
        first = np.append(True, ~self.continues)
        found = {}
        for column in columns:
            values = self.table.values(column).iloc[self.rows].reset_index(drop=True)
            changed = np.append(False, self.continues & (np.diff(pd.factorize(values)[0]) != 0))

            def reason(row: int, column: str = column, values: pd.Series[Any] = values) -> str:
                return varying(column, values[row], values[row - 1])

            self.refuse(changed, reason)
            found[column] = values[first].reset_index(drop=True)
        return pd.DataFrame(found)

    def times(self, clock: Clock) -> Times:
        """When each decision was made, and when its move was over; raises where time does not go forward."""
        column, after = clock.column, f"next_{clock.column}"
        begun = clock.read(self.table, column)[self.rows]
        over = np.append(np.where(self.continues, begun[1:], np.nan), np.nan)
        if after in self.table.frame.columns:
            given = clock.read(self.table, after, optional=True)[self.rows]

            def other(row: int) -> str:
                return (
                    f"{after} must be the {column} of the next step, received another: correct one of the two, or leave it blank"
                )

            # Stamps that were computed differ by rounding.
            apart = np.abs(given[:-1] - over[:-1]) > 1e-9 * np.abs(over[:-1]) + 1e-6 * np.abs(over[:-1] - begun[:-1])
            self.refuse(self.continues & apart & ~np.isnan(given[:-1]), other)
            over = np.where(np.isnan(over), given, over)

        def backwards(row: int) -> str:
            later = after if row + 1 == begun.size or not self.continues[row] else f"the {column} of the next step"
            return (
                f"{later} must be later than the {column} of this one, received a move that takes {over[row] - begun[row]:g}: "
                "correct the time stamps, or give the steps after it an episode of their own"
            )

        self.refuse(over <= begun, backwards)
        return Times(begun, over, column, clock.unit)

    def check_steps(self) -> None:
        """Raise unless the steps of each episode are consecutive and none occurs twice."""
        jump, step = np.diff(self.step), self.step

        def both(row: int) -> str:
            first, again = (self.table.place(place) for place in sorted(self.rows[row : row + 2].tolist()))
            return f"each step must occur once, received it in {first} and {again}{REMEDIES['twice']}"

        def gap(row: int) -> str:
            return f"must be followed by step {step[row] + 1}, received step {step[row + 1]}{REMEDIES['gap']}"

        self.refuse(self.continues & (jump == 0), both)
        self.refuse(self.continues & (jump != 1), gap)


#: How many seconds the units have in which time between dates can be counted.
TIME_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


@dataclass(frozen=True)
class Clock:
    """The column of time stamps, and the unit in which time between dates is counted, "" for numbers."""

    column: str
    unit: str

    def read(self, table: Table, column: str, optional: bool = False) -> Floats:
        """The stamps of a column as numbers; where they are optional, NaN for a blank one."""
        cells = table.frame[column]
        cells = cells.mask(cells.astype(str).str.strip().str.lower().isin(MISSING))
        dates = cells.dtype.kind == "M" or (cells.dtype.kind not in "iuf" and as_numbers(cells).isna().all())
        if dates and cells.notna().any() and not self.unit:
            raise ValueError(
                f"{table.name}: column {column} must be numbers, received {shown(cells.dropna().iloc[0])}: if it holds dates, "
                f"say in which unit to count with --time-unit (in Python time_unit=): {', '.join(TIME_UNITS)}"
            )
        if self.unit and not dates:
            raise ValueError(f"{table.name}: column {column} must be dates where a unit of time is given, received numbers")
        if dates:
            self._require_one_kind(table, column, cells)
            try:
                parsed = pd.to_datetime(cells, errors="coerce", utc=True, format=None if cells.dtype.kind == "M" else "ISO8601")
                parsed = parsed.astype("datetime64[ns, UTC]")
            except pd.errors.OutOfBoundsDatetime as error:
                raise ValueError(
                    f"{table.name}: column {column} must hold dates from 1678 to 2261, received another: {error}"
                ) from error
            found = (parsed - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=TIME_UNITS[self.unit])
        else:
            found = as_numbers(cells)
        numbers: Floats = np.asarray(found.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
        wrong = ~np.isfinite(numbers) & ~(cells.isna().to_numpy() & optional)
        if wrong.any():
            row = int(np.argmax(wrong))
            what = "a date such as 2024-05-31T14:30" if dates else "a number"
            raise ValueError(f"{table.at(row)}: column {column} must be {what}, received {shown(table.frame[column].iloc[row])}")
        return numbers

    def _require_one_kind(self, table: Table, column: str, cells: pd.Series[Any]) -> None:
        """Raise where some stamps have a time zone and others have none: nobody knows how far apart these are."""
        stamps = cells.astype(str).str.strip()
        zoned = stamps.str.contains(r":\d\d[\d.,]*\s*(?:Z|[+-]\d\d(?::?\d\d)?)$", regex=True)
        without = stamps.str.contains(r"\d:\d\d", regex=True) & cells.notna() & ~zoned
        if zoned.any() and without.any():
            row, other = int(np.argmax(without)), int(np.argmax(zoned))
            raise ValueError(
                f"{table.at(row)}: column {column} must have a time zone in all rows or in none, received "
                f"{shown(cells.iloc[row])} without one, and {shown(cells.iloc[other])} in {table.place(other)}"
            )


def _clock(time: str | None, unit: str | None) -> Clock | None:
    if unit is not None and time is None:
        raise ValueError("a unit of time must come with a column of time stamps, received none")
    if unit is not None and unit not in TIME_UNITS:
        raise ValueError(f"the unit of time must be one of {', '.join(TIME_UNITS)}, received {unit!r}")
    return None if time is None else Clock(time, unit or "")


def same_episode(expert: Ints, episode: Ints) -> Bools:
    """Whether the next of sorted rows belongs to the same episode, `(N−1,)`."""
    same: Bools = (np.diff(expert) == 0) & (np.diff(episode) == 0)
    return same


def varying(column: str, value: Any, before: Any) -> str:
    """The sentence on a condition that changes within an episode."""
    return (
        f"condition {column} must be the same in a whole episode, received {shown(value)} after {shown(before)}: correct it, "
        "give the steps from here on an episode of their own, or do without this condition"
    )


def require_conditions(name: str, columns: Sequence[str], found: Collection[str]) -> None:
    """Raise unless a table has these columns, and they may be conditions."""
    if isinstance(columns, str):
        raise ValueError(f"conditions must be a list of columns, received the text {columns!r}")
    own = next((column for column in columns if column in CODES), None)
    if own is not None:
        raise ValueError(f"a condition must be another column than {', '.join(CODES)}, received {own}")
    missing = next((column for column in columns if column not in found), None)
    if missing is not None:
        others = first_few([column for column in found if column not in CODES]) or "no other columns than it needs"
        raise ValueError(f"{name} must have the column {missing} to be a condition, received {others}")


def rows_of(
    table: Table, from_file: bool = True, cut_off: bool = False, conditions: Sequence[str] = (), clock: Clock | None = None
) -> Rows:
    """The decisions of a table, checked. Where episodes may be `cut_off`, a table needs no column `next_state` to know moves.

    Raises:
        TableError: naming the row and what is wrong with it.
    """
    table.require(*COLUMNS)
    require_conditions(table.name, conditions, [str(column) for column in table.columns or table.frame.columns])
    if clock is not None and clock.column not in table.frame.columns:
        known = first_few([str(c) for c in table.columns or table.frame.columns])
        raise ValueError(f"{table.name} must have the column {clock.column} with time stamps, received the columns {known}")
    has_next = "next_state" in table.frame.columns
    with refusing(table.name):
        when = Order.of(table, from_file)
        state, states = table.labels("state", remedy=REMEDIES["blank"])
        after: Ints = np.full(state.size, -1, dtype=np.int64)
        if has_next:
            after, others = table.labels("next_state", optional=True)
            own, states = states, in_order({*states, *others})
            after = np.append(positions(others, states, "state"), -1)[after]
            state = positions(own, states, "state")[state]
        state, after = state[when.rows], after[when.rows]
        when.check_steps()
        if cut_off or has_next:
            blank = np.flatnonzero((after[:-1] < 0) & when.continues)
            after[blank] = state[blank + 1]

        def reason(row: int) -> str:
            given, true = states[after[row]], states[state[row + 1]]
            return f"next_state is {given!r}, but the next step is in {true!r}{REMEDIES['next_state']}"

        when.refuse(when.continues & has_next & (after[:-1] != state[1:]), reason)
    times = None if clock is None else when.times(clock)  # at which `check` does not look
    place = partial(moved, table.place, when.rows) if from_file else None
    codes = when.expert, when.episode, when.step, state, when.action, after
    labels = when.experts, when.episodes, states, when.actions
    return Rows(*codes, *labels, table.name, place, cut_off, when.conditions(conditions), times)


_FLOATS = ("FLOAT", "DOUBLE")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "UHUGEINT")
#: What is true of a step that is no whole number.
BAD_STEP = f"step IS NULL OR abs(step) > {LARGEST_WHOLE} OR step <> round(step)"
#: What is true of episode labels that are read as they stand: ASCII that can be seen, not 3.0, no mark of a spreadsheet.
PLAIN = r"regexp_full_match({0}, '[!-~]([ -~]*[!-~])?') AND NOT regexp_full_match({0}, '-?[0-9]+\.0*|''.*')"
#: The order of the labels of episodes: whole numbers as numbers, then text as text.
LABEL_ORDER = "CASE WHEN regexp_full_match(label, '-?[0-9]{1,18}') THEN label::BIGINT END NULLS LAST, label"


def spelt(scan: Scan, numbered: bool = False, vector: Sequence[str] = (), conditions: Sequence[str] = ()) -> str:
    """The rows as they are spelt, in SQL.

    Labels have the type they have in the file, and states and next states one type; `step` is a number, empty where it is none;
    `odd` says whether a row is longer or shorter than the header; `number`, if asked for, counts rows from 0. Where the
    state is a vector of columns, it is their cells in one text, and nothing is said of the next one. Conditions are called
    `condition0`, `condition1`, …
    """
    cells = [f"nullif({quoted(column)}::VARCHAR, '')" for column in vector]
    state, after = (" || ' ' || ".join(cells), "NULL::VARCHAR") if vector else _states(scan.types)
    kind = scan.types["step"]  # dates and truth values are no numbers
    number = kind in (*_FLOATS, *_WHOLE, "VARCHAR") or kind.startswith("DECIMAL")
    step = "TRY_CAST(step AS DOUBLE)" if number else "NULL::DOUBLE"
    columns = [f"{quoted(column)} AS {column}" for column in ("expert", "episode", "action")]
    columns += [f"{step} AS step", f"{state} AS state", f"{after} AS next_state"]
    odd = f"{quoted(EXTRA)} IS NOT NULL OR {quoted(list(scan.types)[-1])} IS NULL" if scan.padded else "false"
    columns.append(f"({odd}) AS odd")
    columns += ["row_number() OVER () - 1 AS number"] if numbered else []
    columns += [f"{_known(scan, column)} AS condition{i}" for i, column in enumerate(conditions)]
    return f"(SELECT {', '.join(columns)} FROM {scan.relation})"


def _known(scan: Scan, column: str) -> str:
    """A condition in SQL: nothing where the cell says that it is missing."""
    cell, kind = quoted(column), scan.types[column]
    if kind in _FLOATS:
        return f"CASE WHEN NOT isnan({cell}) THEN {cell} END"
    words = ", ".join(map(text, MISSING))
    return f"CASE WHEN lower(trim({cell})) NOT IN ({words}) THEN {cell} END" if kind == "VARCHAR" else cell


def coded(scan: Scan, filled: bool, numbered: bool = False, conditions: Sequence[str] = ()) -> str:
    """The rows with codes, in SQL, from the tables `<column>_label` of the database, and episodes with their labels.

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
    """How the text that SQL makes of a cell becomes the label that Python makes of it."""
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
    """State and next state in SQL, in one type: numbers that differ in theirs as floats, anything else as text."""
    state, after = types["state"], types.get("next_state")
    if after is None:
        return "state", "NULL::VARCHAR"
    if state == after:
        return "state", "nullif(next_state, '')" if after == "VARCHAR" else "next_state"
    one = "DOUBLE" if {state, after} <= {*_FLOATS, *_WHOLE} else "VARCHAR"
    return f"state::{one}", f"nullif(next_state::{one}, '')" if one == "VARCHAR" else f"next_state::{one}"


_BLANK = "{0} IS NULL OR {0}::VARCHAR = ''"


#: Files of more bytes, or of more rows, are counted: loading takes longer, and some hundred bytes of memory for each row.
LOADED_BYTES, LOADED_ROWS = 16_000_000, 500_000
#: The rows of larger tables are not loaded: a row takes about a hundred bytes while that is done.
MOST_ROWS = 50_000_000
#: Files are read again for so many questions about episodes. With the next one, tables of up to so many rows are loaded.
REREADINGS, KEPT_ROWS = 4, 10_000_000


class CountedFiles(Demonstrations):
    """A table of decisions that the database checks and counts, in the passes described above.

    The table `grouped` of the database has one row per episode, and the table `episode`, once it is asked for, the same rows
    numbered in order: number, expert, label, first_state, n. `filled` says whether blank next states inside episodes are taken
    from the next step, and `respelt` whether some label is spelt in two ways. Both tables have of each condition the least and
    the greatest value in an episode, and in how many rows it is known.
    """

    def __init__(self, scan: Scan, cut_off: bool = False, conditions: Sequence[str] = ()) -> None:
        header = Table(pd.DataFrame([[None] * len(scan.types)], columns=list(scan.types)), scan.name)
        header.require(*COLUMNS)
        require_conditions(scan.name, conditions, scan.types)
        require_labels(scan, (*LABELS, *conditions))
        self.scan, self.name, self.cut_off, self.database = scan, scan.name, cut_off, connect()
        self.has_next, self.columns = "next_state" in scan.types, tuple(conditions)
        self.filled = self.respelt = False
        self.conditions = None
        self._rereadings = 0
        try:
            self._count_spelt()
            self.experts = self._read_labels("expert")
            self.actions = self._read_labels("action")
            self.states = self._read_labels("state", "next_state")
            self._check_episodes()
            self.conditions = self._read_conditions() if conditions else None
            self._moves, self._made = self._count()
            self.database.execute("DROP TABLE spelt")
        except duckdb.OutOfMemoryException as error:
            raise MemoryError(f"{scan.name} has too many episodes and labels to be counted in {MEMORY}") from error
        except duckdb.Error as error:
            raise ValueError(f"{scan.name} is damaged, or cannot be read: {str(error).splitlines()[0]}") from error

    @property
    def moves(self) -> Moves:
        """The distinct moves, and how often each was made."""
        return self._moves

    @property
    def made(self) -> Sparse:
        """How often each expert made each of the moves, `(K,m)`, sparse."""
        return self._made

    def __reduce__(self) -> tuple[Any, ...]:
        return CountedFiles, (self.scan, self.cut_off, self.columns), {"conditions": self.conditions}

    def __getattr__(self, name: str) -> Any:
        """What only the rows hold."""
        if name not in (*CODES, "episodes", "first_rows"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        return getattr(self.rows, name)

    @cached_property
    def episode_counts(self) -> Ints:
        """The number of episodes of each expert."""
        return self._episodes_by("expert", "expert_label", len(self.experts))

    @cached_property
    def first_states(self) -> Ints:
        """The number of episodes that begin in each state."""
        return self._episodes_by("first_state", "state_label", len(self.states))

    @cached_property
    def by_episode(self) -> Episodes:
        """Expert, first state and length of each episode."""
        size = int(self.run("SELECT count(*) FROM grouped")[0][0])
        columns = {name: np.empty(size, dtype=np.int64) for name in ("expert", "first_state", "n")}
        for piece in self.pieces(f"SELECT number, {', '.join(columns)} FROM {self.numbered}"):
            for name, column in columns.items():
                column[piece["number"]] = piece[name]
        return Episodes(*columns.values())

    @property
    def episode_labels(self) -> list[str]:
        """The label of each episode, in the order of `by_episode`."""
        return [name for (name,) in self.run(f"SELECT label FROM {self.numbered} ORDER BY number")]

    def with_conditions(self, conditions: pd.DataFrame | None) -> CountedFiles:
        """The same decisions under other conditions, one row per episode in the order of `by_episode`."""
        made = object.__new__(CountedFiles)  # a copy would read the files again
        made.__dict__ |= {name: value for name, value in vars(self).items() if name != "rows"} | {"conditions": conditions}
        return made

    def _episodes_by(self, column: str, labels: str, size: int) -> Ints:
        """How many episodes have each of `size` codes in a column of the table `grouped`, or the labels that have them."""
        found: Ints = np.zeros(size, dtype=np.int64)
        counted = f"(SELECT {column} AS code, count(*) AS n FROM grouped GROUP BY {column})"
        if not self.by_code:
            counted = f"(SELECT l.code, c.n FROM {counted} c JOIN {labels} l ON l.raw = c.code::VARCHAR)"
        codes, counts = self.arrays(f"SELECT code, n FROM {counted}")
        found[codes] = counts
        return found

    def decisions_of(self, moves: Ints) -> list[Decision]:
        """The first decision by which each of the given moves was made, for messages."""
        fields = ("state", "action", "next_state")
        codes = (getattr(self.moves, name)[moves].tolist() for name in fields)
        self.keep("wanted", move=moves.tolist(), **dict(zip(fields, codes, strict=True)))
        with in_order_of_file(self.database):
            found = self.run(
                f"""SELECT w.move, r.expert, r.label, r.step, r.number FROM wanted w
                JOIN (SELECT *, episode AS label FROM {self.coded(numbered=True)}) r
                ON r.state = w.state AND r.action = w.action AND coalesce(r.next_state, -1) = w.next_state
                QUALIFY row_number() OVER (PARTITION BY w.move ORDER BY r.expert, {LABEL_ORDER}, r.step) = 1 ORDER BY w.move"""
            )
        return [
            Decision(expert, self.experts[expert], episode, int(step), f"{self.name}, {self.scan.place(row)}")
            for _, expert, episode, step, row in found
        ]

    def count_episodes(self, times: Floats) -> Floats:
        """How often each of the `cells` was taken, `(M,)`, if episode e counts `times[e]` times; this reads the files again."""
        self._rereadings += 1
        if self._rereadings > REREADINGS and len(self) <= KEPT_ROWS:
            return self.rows.count_episodes(times)
        database = self.database
        database.register("given", pd.DataFrame({"number": np.arange(times.size), "times": times}))
        found = database.execute(
            f"""SELECT r.expert, r.state, r.action, coalesce(r.next_state, -1) AS next_state, sum(g.times) AS times
            FROM {self.coded()} r JOIN {self.numbered} e ON e.expert = r.expert AND e.label = r.episode
            JOIN given g ON g.number = e.number WHERE g.times <> 0 GROUP BY ALL"""
        ).fetchnumpy()
        database.unregister("given")
        counts, cells, fields = np.zeros(self.made.nnz), self.cells, ("expert", "state", "action", "next_state")
        here = Keys(self).of(*(np.asarray(found[name], dtype=np.int64) for name in fields))
        counts[np.searchsorted(Keys(self).of(*(getattr(cells, name) for name in fields)), here)] = found["times"]
        return counts

    def choices_by(self, mdp: MDP, unit: Ints, size: int) -> Sparse:
        """The same as `choices` where episode e is one of unit `unit[e]`, and −1 means of none; this reads the files again."""
        states, actions, left_out = self.require_available(mdp)
        move, columns = pd.DataFrame(vars(self.moves)).drop(columns="count"), (actions * mdp.n_states + states).astype(np.int32)
        self.database.register("given", pd.DataFrame({"number": np.arange(unit.size), "unit": unit.astype(np.int32)}))
        self.database.register("counted", move.assign(place=columns)[~left_out])
        pieces = self.pieces(
            f"""SELECT g.unit, m.place, count(*)::DOUBLE AS n FROM {self.coded()} r
            JOIN {self.numbered} e ON e.expert = r.expert AND e.label = r.episode JOIN given g ON g.number = e.number
            JOIN counted m ON m.state = r.state AND m.action = r.action AND m.next_state = coalesce(r.next_state, -1)
            WHERE g.unit >= 0 GROUP BY ALL"""
        )
        none = np.zeros(0), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        parts = [none, *((piece["n"], piece["unit"], piece["place"]) for piece in pieces)]
        self.database.unregister("given")
        self.database.unregister("counted")
        counts, rows, places = (np.concatenate(column) for column in zip(*parts, strict=True))
        found = sp.csr_array((counts, (rows, places)), shape=(size, mdp.n_actions * mdp.n_states))
        found.sum_duplicates()  # in order, so that sums over them are the same to the last digit
        return found

    def choices_of(self, kept: Bools) -> tuple[Ints, Ints]:
        """State and action of each decision of the episodes kept, `(E,)`, by episode and step; this reads the files again."""
        self.database.register("given", pd.DataFrame({"number": np.flatnonzero(kept)}))
        state, action = self.arrays(
            f"""SELECT r.state, r.action FROM {self.coded()} r
            JOIN {self.numbered} e ON e.expert = r.expert AND e.label = r.episode JOIN given g ON g.number = e.number
            ORDER BY e.number, r.step"""
        )
        self.database.unregister("given")
        return state, action

    @cached_property
    def rows(self) -> Rows:
        """The table in memory.

        Raises:
            ValueError: where it is too large for that.
        """
        size = len(self)
        if size > MOST_ROWS:
            raise ValueError(
                f"{self.name} must have at most {MOST_ROWS} decisions to be loaded one by one, received {size}: it can be "
                "counted, fitted and checked, but its rows cannot be listed"
            )
        labels = self.episode_labels
        episodes = in_order(set(labels))
        code = {name: i for i, name in enumerate(episodes)}
        number, step, state, action, next_state = self.arrays(
            f"""SELECT e.number, r.step::BIGINT AS step, r.state, r.action, coalesce(r.next_state, -1) AS next_state
            FROM {self.coded()} r JOIN {self.numbered} e ON e.expert = r.expert AND e.label = r.episode
            ORDER BY e.number, r.step"""
        )
        episode = np.array([code[label] for label in labels], dtype=np.int64)[number]
        codes = self.by_episode.expert[number], episode, step, state, action, next_state
        names = self.experts, episodes, self.states, self.actions
        return Rows(*codes, *names, self.name, cut_off=self.cut_off, conditions=self.conditions)

    def coded(self, numbered: bool = False, conditions: Sequence[str] = ()) -> str:
        """The rows with codes, in SQL."""
        return coded(self.scan, self.filled, numbered, conditions)

    def run(self, query: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """The answer to a query."""
        return self.database.execute(query, list(values)).fetchall()

    def arrays(self, query: str) -> list[Ints]:
        """The columns of the answer to a query, all of whole numbers."""
        return [np.asarray(column, dtype=np.int64) for column in self.database.execute(query).fetchnumpy().values()]

    def pieces(self, query: str) -> Iterator[dict[str, Ints]]:
        """The same in pieces: all at once, the database's answer would take as much memory again."""
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
        """The table `spelt`; a CSV file that the database cannot read, or reads with odd rows, is written anew first.

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
            self.scan = rewritten(self.scan.name, self.scan.files)
            self._count_spelt()

    def _read_labels(self, *columns: str) -> tuple[str, ...]:
        """The labels of columns that share theirs; the table `<column>_label` holds the code of each spelling."""
        own = "of_expert" if columns == ("expert",) else "of_move"
        found = " UNION ".join(f"SELECT DISTINCT {column}::VARCHAR, '{column}' FROM spelt WHERE {own}" for column in columns)
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
        """The table `grouped`, or a message about the first episode that is not in order."""
        self._group_episodes(spelt(self.scan, conditions=self.columns))
        self._read_episode_labels()
        if self.run("SELECT count(*) FROM grouped WHERE bad")[0][0]:
            self._explain(BAD_STEP)
        self.filled = self.run("SELECT count(*) FROM grouped WHERE blank")[0][0] > 0 if self.has_next else self.cut_off
        if self.by_code:
            self._group_episodes(self.coded(conditions=self.columns))
        # To say what is wrong, the rows of at most this many wrong episodes are loaded. Most often there are few.
        explained = 1000
        if self.run("SELECT count(*) FROM grouped WHERE wrong")[0][0]:
            some = f"SELECT expert, label FROM {self.numbered} WHERE wrong ORDER BY number LIMIT {explained}"
            self._explain(f"(expert, episode) IN ({some})", rows=self.coded(numbered=True), most=None)

    @property
    def by_code(self) -> bool:
        """Whether the table `grouped` has codes and labels, and not what is spelt."""
        return self.filled or self.respelt

    @property
    def _named(self) -> str:
        """The episodes in SQL, with codes and labels in place of what is spelt."""
        if self.by_code:
            return "(SELECT *, episode AS label FROM grouped)"
        return """(SELECT g.* REPLACE (e.code AS expert, s.code AS first_state), coalesce(l.label, g.episode::VARCHAR) AS label
            FROM grouped g JOIN expert_label e ON e.raw = g.expert::VARCHAR JOIN state_label s ON s.raw = g.first_state::VARCHAR
            LEFT JOIN episode_label l ON l.raw = g.episode::VARCHAR)"""

    @cached_property
    def numbered(self) -> str:
        """The table of the numbered episodes, in SQL. It is made when it is first asked for: to put all in order takes time."""
        number = f"row_number() OVER (ORDER BY expert, {LABEL_ORDER}) - 1 AS number"
        columns = "".join(f", {column}" for _, column in self._extremes)
        self.database.execute(
            f"""CREATE OR REPLACE TEMP TABLE episode AS SELECT {number}, expert, label, first_state, n, wrong{columns}
            FROM {self._named}"""
        )
        return "episode"

    @property
    def _extremes(self) -> list[tuple[str, str]]:
        """What is kept of the conditions of an episode, in SQL: what it is, and the name of its column."""
        kept = {"low": "min", "high": "max", "known": "count"}
        return [(f"{what}(condition{i})", f"{name}{i}") for i in range(len(self.columns)) for name, what in kept.items()]

    def _read_conditions(self) -> pd.DataFrame:
        """The conditions of each episode; raises where one varies within an episode."""
        kept = ", ".join(column for _, column in self._extremes)
        frame = self.database.execute(f"SELECT n, {kept} FROM {self.numbered} ORDER BY number").df()
        found = {}
        for i, column in enumerate(self.columns):
            ends = pd.concat([frame[f"low{i}"], frame[f"high{i}"]], ignore_index=True)
            values = numbers_or_missing(ends)
            low, high = np.split(pd.factorize(values)[0], 2)
            varies = np.flatnonzero((low != high) | ((frame[f"known{i}"] > 0) & (frame[f"known{i}"] < frame["n"])))
            if varies.size:
                self._refuse_varying(int(varies[0]), i, ends)
            found[column] = values[: len(frame)].reset_index(drop=True)
        return pd.DataFrame(found)

    def _refuse_varying(self, number: int, place: int, others: pd.Series[Any]) -> NoReturn:
        """Raise for the first row of an episode whose condition differs from the one before; other values say how it is read."""
        with in_order_of_file(self.database):
            rows = self.database.execute(
                f"""SELECT r.expert, r.episode, r.step, r.number, r.condition{place} AS value
                FROM {self.coded(numbered=True, conditions=self.columns)} r JOIN {self.numbered} e ON e.expert = r.expert
                AND e.label = r.episode WHERE e.number = ? ORDER BY r.step""",
                [number],
            ).df()
        values = numbers_or_missing(pd.concat([rows["value"], others], ignore_index=True))
        row = int(np.argmax(np.diff(pd.factorize(values[: len(rows)])[0]) != 0)) + 1
        code, step, line = (int(rows[column].iloc[row]) for column in ("expert", "step", "number"))
        where = f"{self.name}, {self.scan.place(line)}"
        decision = Decision(code, self.experts[code], str(rows["episode"].iloc[row]), step, where)
        raise ValueError(f"{decision}: {varying(self.columns[place], values[row], values[row - 1])}")

    def _group_episodes(self, rows: str) -> None:
        """The table `grouped`: each episode, as it is spelt or by its code and label, and whether it is in order.

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

    def _count(self) -> tuple[Moves, Sparse]:
        """The moves, and how often each expert made each."""
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

    def _explain(self, condition: str, values: Sequence[object] = (), rows: str = "", most: int | None = 1) -> NoReturn:
        """Raise what the checks of tables in memory say about the first rows that meet a condition."""
        with in_order_of_file(self.database):
            query = f"SELECT number FROM {rows or spelt(self.scan, numbered=True)} WHERE {condition} ORDER BY number"
            numbers = [number for (number,) in self.run(query if most is None else f"{query} LIMIT {most}", values)]
            self.keep("wanted", place=numbers)
            columns = ", ".join(quoted(column) for column in self.scan.types if column in (*COLUMNS, "next_state"))
            every = f"(SELECT {columns}, row_number() OVER () - 1 AS place_in_table FROM {self.scan.relation})"
            found = self.database.execute(
                f"SELECT {columns} FROM {every} JOIN wanted ON place = place_in_table ORDER BY place"
            ).df()
        rows_of(as_table(found, self.scan, LABELS, numbers))
        raise ValueError(f"{self.scan.name} changed while it was read: read it again")


def named_by_episode(table: Table) -> Table:
    """The same table where each episode is an expert of its own."""
    table.require("episode")
    columns = tuple(dict.fromkeys((*table.columns, "expert"))) if table.columns else ()
    return replace(table, frame=table.frame.assign(expert=table.frame["episode"]), columns=columns)


def names_experts(scan: Scan) -> bool:
    """Whether a scan has a column `expert` that is not blank throughout."""
    if "expert" not in scan.types:
        return False
    with connect() as database:
        return bool(database.execute(f"SELECT 1 FROM {scan.relation} WHERE trim(expert::VARCHAR) <> '' LIMIT 1").fetchall())


def _read(scan: Scan, cut_off: bool, conditions: Sequence[str], unnamed: bool, clock: Clock | None) -> Demonstrations:
    """The decisions of a scan: loaded, or counted where they are too many to be loaded without need."""
    needed = (*COLUMNS, "next_state", *conditions, *(() if clock is None else (clock.column, f"next_{clock.column}")))
    if unnamed and not names_experts(scan):
        return rows_of(named_by_episode(load(scan, LABELS, needed)), cut_off=cut_off, conditions=conditions, clock=clock)
    if clock is None and scan.is_larger(LOADED_BYTES, LOADED_ROWS):
        return CountedFiles(scan, cut_off, conditions)
    return rows_of(load(scan, LABELS, needed), cut_off=cut_off, conditions=conditions, clock=clock)


def read_tables(
    paths: Sequence[str | Path | Sequence[str | Path]],
    cut_off: bool = False,
    conditions: Sequence[str] = (),
    *,
    unnamed: bool = False,
    time: str | None = None,
    time_unit: str | None = None,
) -> list[Demonstrations]:
    """Read one table of decisions for each task; raises if two hold the same decisions."""
    tables: list[Demonstrations] = []
    for path in paths:
        table = Demonstrations.from_files(path, cut_off, conditions, unnamed=unnamed, time=time, time_unit=time_unit)
        for earlier, other in zip(paths, tables, strict=False):
            if table.same_decisions(other):
                both = f"{joint_name(path)} holds the same decisions as {joint_name(earlier)}"
                raise ValueError(f"{both}: give each table once, or they count double")
        tables.append(table)
    return tables


def conditions_of(table: Table) -> pd.DataFrame:
    """A table with one row per episode, checked: `expert` and `episode` as labels, and one column for each condition.

    Raises:
        ValueError: where a column is missing, or an episode has two rows.
    """
    table.require("expert", "episode")
    wanted = [str(column) for column in table.frame.columns if column not in ("expert", "episode")]
    if not wanted:
        raise ValueError(f"{table.name} must have a column besides expert and episode for each condition, received none: add it")
    require_conditions(table.name, wanted, wanted)
    (expert, experts), (episode, episodes) = table.labels("expert"), table.labels("episode")
    again = np.flatnonzero(pd.Series(expert * len(episodes) + episode).duplicated())
    if again.size:
        row = int(again[0])
        first = int(np.argmax((expert == expert[row]) & (episode == episode[row])))
        raise ValueError(
            f"{table.at(row)}: there must be one row for episode {episodes[episode[row]]} of expert {experts[expert[row]]}, "
            f"received another in {table.place(first)}: keep the one that is right"
        )
    labels = {"expert": np.array(experts, dtype=object)[expert], "episode": np.array(episodes, dtype=object)[episode]}
    return pd.DataFrame({**labels, **{column: table.values(column).reset_index(drop=True) for column in wanted}})


def put_under(tables: Sequence[Demonstrations], frame: pd.DataFrame, name: str) -> tuple[list[Demonstrations], int]:
    """The tables under the conditions of a table of this name, checked, and how many of its rows are about none of them."""
    index, used, found = pd.MultiIndex.from_frame(frame[["expert", "episode"]]), np.zeros(len(frame), dtype=np.bool_), []
    for table in tables:
        experts = np.array(table.experts, dtype=object)[table.by_episode.expert]
        place = index.get_indexer(pd.MultiIndex.from_arrays([experts, table.episode_labels]))
        used[place[place >= 0]] = True
        own = frame.drop(columns=["expert", "episode"]).reindex(place).reset_index(drop=True)  # at -1 there is no row
        if table.conditions is not None:
            twice = next((column for column in own if column in table.conditions), None)
            if twice is not None:
                raise ValueError(f"condition {twice} must be in {table.name} or in {name}, received it in both: drop one of them")
            own = pd.concat([table.conditions, own], axis=1)
        found.append(table.with_conditions(own))
    if not used.any():
        expert, episode = frame.loc[0, ["expert", "episode"]]
        some = f"episode {tables[0].episode_labels[0]} of expert {tables[0].experts[0]}"
        raise ValueError(
            f"{name} must be about episodes of {tables[0].name}, received none that is there: it has episode {episode} of expert "
            f"{expert}, and the decisions have {some}; names must agree letter by letter"
        )
    return found, int((~used).sum())
