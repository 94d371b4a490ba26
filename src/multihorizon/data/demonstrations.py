"""Tables of decisions: who did what in which state, loaded where they are few, counted where they are many.

Estimates need no more of a table than how often each expert moved where by which action, and one entry per episode. Few moves are
distinct, and a person makes few of them, so the counts are a sparse matrix with one row per expert and one column per move. Of a
table that is too large to load, no more than this is kept; what more is asked for is read from the files again.

*In memory* a table is integer codes with one list of labels per column, sorted by expert, episode and step. A next
state that is left blank is taken from the following step.

*Conditions* are further columns that have one value in each episode, read where they are asked for, or the columns of a table
with one row per episode. The decisions of units of episodes, such as a person under a condition, are counted by `choices_by`.

*Time.* Tables with time stamps are loaded, however large they are.

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
rules for tables say what it is and on which line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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

from multihorizon.checks import Bools, Floats, Ints, Sparse, as_count, as_names, as_seed, as_shape, first_few
from multihorizon.data.reading import (
    LARGE_BYTES,
    LARGE_ROWS,
    MEMORY,
    Scan,
    Table,
    as_table,
    connect,
    damaged,
    files_of,
    in_order,
    joint_name,
    load,
    moved,
    numbers_or_missing,
    positions,
    quoted,
    rewritten,
    scan_csv,
    scan_files,
    scan_parquet,
    shown,
)
from multihorizon.data.rules import CODES, COLUMNS, LABELS, Decision, Log, Rule, TableError, read_log, refusing, require
from multihorizon.data.simulation import simulate_policy
from multihorizon.data.spelling import BAD_STEP, LABEL_ORDER, PLAIN, coded, label_reader, require_labels, spelt
from multihorizon.data.times import Clock, Times
from multihorizon.files import existing_file, write_csv
from multihorizon.frames import Frame, HasFrame, as_frame
from multihorizon.mdp import MDP
from multihorizon.memory import require_memory
from multihorizon.planning.plan import check_policy


@contextmanager
def in_order_of_file(database: Any) -> Iterator[None]:
    """Let queries number rows in the order of the file, on one thread; afterwards there are all again, also after an error."""
    database.execute("SET threads = 1")
    try:
        yield
    finally:
        database.execute("RESET threads")


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
class Cells(Moves):
    """The distinct decisions of each expert, one entry each, `(M,)`, in the order of their codes; otherwise as `Moves`."""

    expert: Ints


@dataclass(frozen=True, eq=False)
class Episodes:
    """The expert, the first state and the number of decisions of each episode, `(E,)`, by expert and by episode label."""

    expert: Ints
    first_state: Ints
    length: Ints


@dataclass(frozen=True, eq=False, repr=False)
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
        place: where a decision is, with the name of the file; None for other tables.
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

    @property
    def rows(self) -> Demonstrations:
        """The table in memory."""
        return self

    def with_conditions(self, conditions: pd.DataFrame | None) -> Demonstrations:
        """Return these decisions under other conditions, one row per episode in the order of `by_episode`."""
        return replace(self, conditions=conditions)

    def decisions_of(self, moves: Ints) -> list[Decision]:
        """Return the first decision by which each of the given moves was made, for messages."""
        first = np.full(self.moves.count.size, self.state.size)
        np.minimum.at(first, self.made.indices[self._counted[2]], np.arange(self.state.size))
        rows, place = first[moves], self.place
        columns = (column.tolist() for column in (rows, self.expert[rows], self.episode[rows], self.step[rows]))
        return [
            Decision(code, self.experts[code], self.episodes[episode], step, place and partial(place, row))
            for row, code, episode, step in zip(*columns, strict=True)
        ]

    def count_episodes(self, times: Floats) -> Floats:
        """Return how often each of the `cells` was taken, `(M,)`, if episode e counts `times[e]` times."""
        return self.count_rows(np.repeat(times, self.by_episode.length))

    def count_rows(self, weights: Floats) -> Floats:
        """Return how often each of the `cells` was taken, `(M,)`, if row i counts `weights[i]` times."""
        return np.bincount(self._counted[2], weights, minlength=self.made.nnz).astype(np.float64)

    def choices_of(self, kept: Bools) -> tuple[Ints, Ints]:
        """Return state and action of each decision of the episodes kept, `(E,)`, by episode and step."""
        chosen = np.repeat(kept, self.by_episode.length)
        return self.state[chosen], self.action[chosen]

    def choices_by(self, mdp: MDP, unit: Ints, size: int) -> Sparse:
        """Return `choices` where episode e is one of unit `unit[e]`, and −1 means of none: `(size,A·S)`, sparse."""
        states, actions, left_out = self.require_available(mdp)
        move, row = self.made.indices[self._counted[2]], np.repeat(unit, self.by_episode.length)
        kept = (row >= 0) & ~left_out[move]
        places = row[kept], (actions * mdp.n_states + states)[move[kept]]
        return _summed(np.ones(int(kept.sum())), *places, (size, mdp.n_actions * mdp.n_states))

    @cached_property
    def _counted(self) -> tuple[Moves, Sparse, Ints]:
        """The moves, how often each expert made each, and the cell of each row `(N,)`."""
        keys = Keys(self)
        distinct, cell, counts = np.unique(
            keys.of(self.expert, self.state, self.action, self.next_state), return_inverse=True, return_counts=True
        )
        return *keys.count(distinct, counts), cell

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
        return _decide(table, cut_off, conditions, Clock.of(time, time_unit))

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
            scan_csv(str(path), [existing_file(path, "a CSV table")]), cut_off, conditions, unnamed, Clock.of(time, time_unit)
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
            Clock.of(time, time_unit),
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
        scan = scan_files(joint_name(path), files_of(path, "demonstrations"))
        return _read(scan, cut_off, conditions, unnamed, Clock.of(time, time_unit))

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
        table = Demonstrations(*codes, experts, labels, mdp.state_names, mdp.action_names)
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
        return Cells(moves.state[move], moves.action[move], moves.next_state[move], made.data.astype(np.int64), expert)

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

        from_file = self.name != Demonstrations.name
        with refusing(self.name, beside_transitions=True):
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
            raise TableError(f"{decision}: {reason.format(state, action)}", self.name, beside_transitions=True)


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


def _summed(counts: Floats, rows: Ints, places: Ints, shape: tuple[int, int]) -> Sparse:
    """Return a sparse matrix of these entries, in order, so that sums over them are the same to the last digit."""
    matrix = sp.csr_array((counts, (rows, places)), shape=shape)
    matrix.sum_duplicates()
    return matrix


def same_episode(expert: Ints, episode: Ints) -> Bools:
    """Whether the next of sorted rows belongs to the same episode, `(N−1,)`."""
    same: Bools = (np.diff(expert) == 0) & (np.diff(episode) == 0)
    return same


def require_conditions(name: str, columns: Sequence[str], every: Sequence[str]) -> None:
    """Raise unless a table has these columns, and they may be conditions."""
    if isinstance(columns, str):
        raise ValueError(f"conditions must be a list of columns, received the text {columns!r}")
    taken = next((column for column in columns if column in CODES), None)
    if taken is not None:
        raise ValueError(f"a condition must be another column than {', '.join(CODES)}, received {taken}")
    missing = next((column for column in columns if column not in every), None)
    if missing is not None:
        others = first_few([column for column in every if column not in CODES]) or "no other columns than it needs"
        raise ValueError(f"{name} must have the column {missing} to be a condition, received {others}")


def _conditions(log: Log, columns: Sequence[str]) -> pd.DataFrame | None:
    """Return the value of each of the columns in each episode of a sorted log; raises where one varies within an episode."""
    goes_on, conditions = np.append(False, log.goes_on[:-1]), {}
    for column in columns:
        values = log.table.values(column).iloc[log.number].reset_index(drop=True)
        changed = goes_on & (np.diff(pd.factorize(values)[0], prepend=0) != 0)
        require(log, [_constant(column, values, changed)])
        conditions[column] = values[~goes_on].reset_index(drop=True)
    return pd.DataFrame(conditions) if columns else None


def _constant(column: str, values: pd.Series[Any], changed: Bools) -> Rule:
    """Return the rule that a condition does not change within an episode."""

    def sentence(log: Log, row: int) -> str:
        received = f"{shown(values[row])} after {shown(values[row - 1])}"
        return f"condition {column} must be the same in a whole episode, received {received}"

    remedy = ": correct it, give the steps from here on an episode of their own, or do without this condition"
    return Rule("condition", lambda log: changed, sentence, remedy)


def decisions_in(log: Log, cut_off: bool, conditions: pd.DataFrame | None = None, times: Times | None = None) -> Demonstrations:
    """Return the rows of a sorted log, all of which have a state and an action, as decisions.

    Where episodes may be `cut_off`, a table needs no column `next_state` to know moves.
    """
    after = log.next_state.copy()
    if cut_off or log.has_next:
        blank = np.flatnonzero((log.jump == 1) & (after < 0))
        after[blank] = log.state[blank + 1]
    place = None if log.table.scan is None else partial(moved, log.table.at, log.number)
    episode, episodes = log.episode, log.episodes
    if log.part.any():
        pairs, episode = np.unique(np.stack([episode, log.part]), axis=1, return_inverse=True)
        episodes = tuple(f"{episodes[code]} part {part + 1}" for code, part in pairs.T.tolist())
    codes = log.expert, episode.ravel(), log.step.astype(np.int64), log.state, log.action, after
    labels = log.experts, episodes, log.states, log.actions
    return Demonstrations(*codes, *labels, log.table.name, place, cut_off, conditions, times)


def _decide(table: Table, cut_off: bool, conditions: Sequence[str], clock: Clock | None) -> Demonstrations:
    """Return the decisions of a table, checked."""
    table.require(*COLUMNS)
    require_conditions(table.name, conditions, table.columns)
    if clock is not None:
        clock.require(table)
    with refusing(table.name):
        log = read_log(table)
    times = None if clock is None else clock.times(log)
    return decisions_in(log, cut_off, _conditions(log, conditions), times)


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
        Table(pd.DataFrame(index=[0]), scan.name, scan=scan).require(*COLUMNS)
        require_conditions(scan.name, conditions, list(scan.types))
        require_labels(scan, (*LABELS, *conditions))
        self.scan, self.database, self.has_next, self.columns = scan, connect(), "next_state" in scan.types, tuple(conditions)
        self.filled = self.respelt = False
        self._rereadings = 0
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
        return self._episodes_by("expert", len(self.experts))

    @cached_property
    def first_states(self) -> Ints:
        """The number of episodes that begin in each state."""
        return self._episodes_by("first_state", len(self.states))

    def _episodes_by(self, column: str, size: int) -> Ints:
        """Return how many episodes have each of `size` codes in a column of the table `grouped`."""
        codes, counts = self.arrays(f"SELECT {column} AS code, count(*) AS n FROM grouped GROUP BY code")
        every: Ints = np.zeros(size, dtype=np.int64)
        every[codes] = counts
        return every

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
        made._set(**{name: value for name, value in vars(self).items() if name != "rows"} | {"conditions": conditions})
        return made

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
            Decision(expert, self.experts[expert], episode, int(step), partial(self.scan.at, row))
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
            FROM {self.decisions} JOIN given g ON g.number = e.number WHERE g.times <> 0 GROUP BY ALL"""
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
            f"""SELECT g.unit, m.place, count(*)::DOUBLE AS n FROM {self.decisions} JOIN given g ON g.number = e.number
            JOIN counted m ON m.state = r.state AND m.action = r.action AND m.next_state = coalesce(r.next_state, -1)
            WHERE g.unit >= 0 GROUP BY ALL"""
        )
        none = np.zeros(0), np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        parts = [none, *((piece["n"], piece["unit"], piece["place"]) for piece in pieces)]
        self.database.unregister("given")
        self.database.unregister("counted")
        counts, rows, places = (np.concatenate(column) for column in zip(*parts, strict=True))
        return _summed(counts, rows, places, (size, mdp.n_actions * mdp.n_states))

    def choices_of(self, kept: Bools) -> tuple[Ints, Ints]:
        """State and action of each decision of the episodes kept, `(E,)`, by episode and step; this reads the files again."""
        self.database.register("given", pd.DataFrame({"number": np.flatnonzero(kept)}))
        state, action = self.arrays(
            f"SELECT r.state, r.action FROM {self.decisions} JOIN given g ON g.number = e.number ORDER BY e.number, r.step"
        )
        self.database.unregister("given")
        return state, action

    @cached_property
    def rows(self) -> Demonstrations:
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
            FROM {self.decisions} ORDER BY e.number, r.step"""
        )
        episode = np.array([code[label] for label in labels], dtype=np.int64)[number]
        codes = self.by_episode.expert[number], episode, step, state, action, next_state
        names = self.experts, episodes, self.states, self.actions
        return Demonstrations(*codes, *names, self.name, cut_off=self.cut_off, conditions=self.conditions)

    @property
    def decisions(self) -> str:
        """The rows with codes `r`, each with its episode `e`, in SQL."""
        return f"{self.coded()} r JOIN {self.numbered} e ON e.expert = r.expert AND e.label = r.episode"

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
        """The table of the numbered episodes, in SQL. It is made when it is first asked for: to put all in order takes time."""
        number = f"row_number() OVER (ORDER BY expert, {LABEL_ORDER}) - 1 AS number"
        self.database.execute(f"CREATE TEMP TABLE episode AS SELECT {number}, * FROM (SELECT *, episode AS label FROM grouped)")
        return "episode"

    @property
    def _extremes(self) -> list[tuple[str, str]]:
        """What is kept of the conditions of an episode, in SQL: what it is, and the name of its column."""
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
        plain = PLAIN.format(f"{column}::VARCHAR")
        return [raw for (raw,) in self.run(f"SELECT DISTINCT {column}::VARCHAR FROM {table} WHERE ({plain}) IS NOT TRUE")]

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

    def _explain_cells(self) -> NoReturn:
        """Raise what the rules say of the first row with a cell that cannot be read."""
        rows, first = spelt(self.scan, numbered=True), [f"min(number) FILTER (WHERE {BAD_STEP})"]
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
        _decide(as_table(frame, self.scan, (*LABELS, *conditions), numbers), self.cut_off, list(conditions), None)
        raise ValueError(f"{self.scan.name} changed while it was read: read it again")


def named_by_episode(table: Table) -> Table:
    """The same table where each episode is an expert of its own."""
    table.require("episode")
    return replace(table, frame=table.frame.assign(expert=table.frame["episode"]))


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
        return _decide(named_by_episode(load(scan, LABELS, needed)), cut_off, conditions, clock)
    if clock is None and scan.is_larger(LARGE_BYTES, LARGE_ROWS):
        return CountedFiles(scan, cut_off, conditions)
    return _decide(load(scan, LABELS, needed), cut_off, conditions, clock)


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
