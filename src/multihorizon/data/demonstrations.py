"""Tables of decisions: who did what in which state, loaded where they are few, counted where they are many.

Estimates need no more of a table than how often each expert moved where by which action, and one entry per episode. Few moves are
distinct, and a person makes few of them, so the counts are a sparse matrix with one row per expert and one column per move. Of a
table that is too large to load, no more than this is kept; what more is asked for is read from the files again.

*In memory* a table is integer codes with one list of labels per column, sorted by expert, episode and step. A next
state that is left blank is taken from the following step.

*Conditions* are further columns that have one value in each episode, read where they are asked for, or the columns of a table
with one row per episode. The decisions of units of episodes, such as a person under a condition, are counted by `choices_by`.

*Time.* Tables with time stamps are loaded, however large they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import (
    Bools,
    Floats,
    Frame,
    HasFrame,
    Ints,
    Seed,
    Sparse,
    as_count,
    as_frame,
    as_names,
    as_seed,
    as_shape,
    first_few,
    positions,
)
from multihorizon.data.reading import (
    LARGE_BYTES,
    LARGE_ROWS,
    Columns,
    InputTable,
    Scan,
    called_in_frame,
    connect,
    files_of,
    joint_name,
    load,
    moved,
    scan_csv,
    scan_files,
    scan_parquet,
    shown,
)
from multihorizon.data.rules import (
    CODES,
    COLUMNS,
    LABELS,
    Clock,
    Decision,
    Log,
    Rule,
    TableError,
    Times,
    located,
    read_log,
    refusing,
    require,
)
from multihorizon.files import existing_file, write_csv
from multihorizon.mdp import MDP
from multihorizon.parallel import require_memory
from multihorizon.planning.plan import check_policy


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

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=3, names=["ann", "ben", "cleo"]).experts
        ('ann', 'ben', 'cleo')
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
    #: What stands for a table of files that is too large to be loaded (`counting`).
    large: ClassVar[Callable[[Scan, bool, Sequence[str]], Demonstrations]]

    def __post_init__(self) -> None:
        for column in CODES:
            array = getattr(self, column).view()
            array.setflags(write=False)
            object.__setattr__(self, column, array)

    @property
    def moves(self) -> Moves:
        """Return the distinct moves, and how often each was made."""
        return self._counted[0]

    @property
    def made(self) -> Sparse:
        """Return how often each expert made each of the moves, `(K,m)`, sparse."""
        return self._counted[1]

    @cached_property
    def by_episode(self) -> Episodes:
        """Return expert, first state and length of each episode."""
        first = self.first_rows
        return Episodes(self.expert[first], self.state[first], np.diff(np.append(first, self.state.size)))

    @property
    def episode_counts(self) -> Ints:
        """Return the number of episodes of each expert."""
        return np.bincount(self.by_episode.expert, minlength=len(self.experts))

    @property
    def first_states(self) -> Ints:
        """Return the number of episodes that begin in each state."""
        return np.bincount(self.by_episode.first_state, minlength=len(self.states))

    @cached_property
    def first_rows(self) -> Ints:
        """Return the rows that begin an episode."""
        return np.concatenate([[0], np.flatnonzero(~same_episode(self.expert, self.episode)) + 1]).astype(np.int64)

    @property
    def episode_labels(self) -> list[str]:
        """Return the label of each episode, in the order of `by_episode`."""
        return [self.episodes[code] for code in self.episode[self.first_rows].tolist()]

    @property
    def rows(self) -> Demonstrations:
        """Return the table in memory."""
        return self

    def with_conditions(self, conditions: pd.DataFrame | None) -> Demonstrations:
        """Return these decisions under other conditions, one row per episode in the order of `by_episode`."""
        return replace(self, conditions=conditions)

    def decisions_of(self, moves: Ints) -> list[Decision]:
        """Return the first decision by which each of the given moves was made, for messages."""
        first = np.full(self.moves.count.size, self.state.size)
        np.minimum.at(first, self.made.indices[self._counted[2]], np.arange(self.state.size))
        rows = first[moves]
        place = self.place
        columns = (column.tolist() for column in (rows, self.expert[rows], self.episode[rows], self.step[rows]))
        return [
            Decision(code, self.experts[code], self.episodes[episode], step, place and partial(located, self.name, place, row))
            for row, code, episode, step in zip(*columns, strict=True)
        ]

    def count_episodes(self, times: Floats) -> Floats:
        """Return how often each of the `cells` was taken, `(M,)`, if episode e counts `times[e]` times."""
        weights = np.repeat(times, self.by_episode.length)
        return np.bincount(self._counted[2], weights, minlength=self.made.nnz).astype(np.float64)

    def choices_of(self, kept: Bools) -> tuple[Ints, Ints, Ints]:
        """Return state, action and last action of each decision of the episodes kept, `(E,)`, by episode and step."""
        chosen = np.repeat(kept, self.by_episode.length)
        return self.state[chosen], self.action[chosen], self.last_action[chosen]

    @cached_property
    def last_action(self) -> Ints:
        """Return the action before each row `(N,)`, −1 where there is none: at first decisions, and after missing steps."""
        last = np.full(self.action.size, -1)
        follows = same_episode(self.expert, self.episode) & (np.diff(self.step) == 1)
        last[1:][follows] = self.action[:-1][follows]
        return last

    def choices_by(self, mdp: MDP, unit: Ints, size: int, by_last: bool = False) -> Sparse:
        """Return `choices` where episode e is one of unit `unit[e]`, and −1 means of none: `(size,A·S)`, sparse.

        With `by_last` they are `(size,A·C)` with a column for each action and context l·S + s: after the last action l, A where
        there is none, in state s.
        """
        states, actions, left_out = self.require_available(mdp)
        move = self.made.indices[self._counted[2]]
        row = np.repeat(unit, self.by_episode.length)
        kept = (row >= 0) & ~left_out[move]
        context, contexts = states[move[kept]], mdp.n_states
        if by_last:
            numbers = np.append(self.match(mdp)[1], mdp.n_actions)  # −1 stands for no action
            context, contexts = numbers[self.last_action[kept]] * mdp.n_states + context, contexts * (mdp.n_actions + 1)
        places = row[kept], actions[move[kept]] * contexts + context
        return summed(np.ones(int(kept.sum())), *places, (size, mdp.n_actions * contexts))

    @cached_property
    def _counted(self) -> tuple[Moves, Sparse, Ints]:
        """Return the moves, how often each expert made each, and the cell of each row `(N,)`."""
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
        columns: Columns | None = None,
    ) -> Demonstrations:
        """Read a data frame with the columns `expert, episode, step, state, action` and optionally `next_state`.

        It may be one of pandas, polars, pyarrow or DuckDB.
        With `cut_off`, episodes may simply stop: the next state of a last decision may then be unknown. `conditions` names other
        columns that have one value in each episode, numbers or text. With `unnamed` the column `expert` may be missing, or
        blank throughout: then each episode is an expert of its own, with the label of the episode for a name.

        `time` names a column that says when each decision was made; the move takes until the next one. A column `next_…` with the
        same name after that may say when the last move of an episode was over. Time stamps are numbers, or dates where
        `time_unit` says in which unit to count: second, minute, hour, day or week.

        `columns` says what the columns are called in the table: `{"expert": "person", "state": ["row", "column"]}`. Labels of
        several columns are joined: the state in row 2 and column 5 is "2, 5". Next states are then those in `next_row` and
        `next_column`, if the table has them.

        Raises:
            ValueError: naming the row and what is wrong with it.

        Example:
            >>> rows = pd.DataFrame({"expert": "Ann", "episode": [0, 1], "step": 0, "state": "a", "action": "go"})
            >>> Demonstrations.from_frame(rows.assign(noise=["low", "high"]), conditions=["noise"]).conditions.noise.tolist()
            ['low', 'high']
        """
        given = as_frame(frame, "a table of decisions", ": from_csv, from_parquet and from_files read files")
        table = InputTable(called_in_frame(given, columns, Demonstrations.name))
        if unnamed and ("expert" not in table.frame or table.frame["expert"].replace("", None).isna().all()):
            table = named_by_episode(table)
        return decide(table, cut_off, conditions, Clock.of(time, time_unit))

    @staticmethod
    def from_csv(
        path: str | Path,
        cut_off: bool = False,
        conditions: Sequence[str] = (),
        *,
        unnamed: bool = False,
        time: str | None = None,
        time_unit: str | None = None,
        columns: Columns | None = None,
    ) -> Demonstrations:
        """Read a CSV file with a header line; see `from_frame`. Messages name the file and the line."""
        scan = scan_csv(str(path), [existing_file(path, "a CSV table")]).called(columns)
        return _read(scan, cut_off, conditions, unnamed, time, time_unit)

    @staticmethod
    def from_parquet(
        path: str | Path,
        cut_off: bool = False,
        conditions: Sequence[str] = (),
        *,
        unnamed: bool = False,
        time: str | None = None,
        time_unit: str | None = None,
        columns: Columns | None = None,
    ) -> Demonstrations:
        """Read a Parquet file; see `from_frame`."""
        scan = scan_parquet(str(path), [existing_file(path, "a Parquet table")]).called(columns)
        return _read(scan, cut_off, conditions, unnamed, time, time_unit)

    @staticmethod
    def from_files(
        path: str | Path | Sequence[str | Path],
        cut_off: bool = False,
        conditions: Sequence[str] = (),
        *,
        unnamed: bool = False,
        time: str | None = None,
        time_unit: str | None = None,
        columns: Columns | None = None,
    ) -> Demonstrations:
        """Read a CSV or Parquet file by the ending of its name, or a folder or a list of files of one kind as one table."""
        scan = scan_files(joint_name(path), files_of(path, "demonstrations")).called(columns)
        return _read(scan, cut_off, conditions, unnamed, time, time_unit)

    @staticmethod
    def simulate(
        mdp: MDP,
        policies: Sequence[Any],
        episodes: int,
        seed: Seed = 0,
        max_steps: int = 200,
        names: Sequence[Any] | None = None,
        starts: ArrayLike | None = None,
    ) -> Demonstrations:
        """Let each policy `(S,A)` act for `episodes` episodes from the initial distribution.

        An episode ends on arrival in a terminal state, or is cut after `max_steps` decisions. With `starts` `(episodes,)`, the
        indices of states, each episode begins in the state given for it. Where moves take time, decisions have time stamps.

        Example:
            >>> from multihorizon.domains import cliff
            >>> d = Demonstrations.simulate(cliff().mdp, cliff().soft_experts(), episodes=10)
            >>> d.experts, len(d) >= 30
            (('0', '1', '2'), True)
        """
        if not len(policies):
            raise ValueError("policies must hold at least one policy, got none")
        as_count(episodes, "episodes")
        as_count(max_steps, "max_steps")
        seed = as_seed(seed)
        experts = as_names(names, len(policies), "names")
        first = None if starts is None else np.asarray(starts)
        if first is not None:
            as_shape(first, (episodes,), "starts")
            inside = np.issubdtype(first.dtype, np.integer) and not ((first < 0) | (first >= mdp.n_states)).any()
            if not inside or mdp.terminal[first].any():
                raise ValueError(f"starts must be indices of states that are not terminal, got {first.tolist()}")
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
        """Return how often each distinct decision was taken: the entries of `made` one by one."""
        made, moves = self.made, self.moves
        expert = np.repeat(np.arange(made.shape[0]), np.diff(made.indptr))
        move = made.indices
        return Cells(moves.state[move], moves.action[move], moves.next_state[move], made.data.astype(np.int64), expert)

    def __len__(self) -> int:
        return int(self.moves.count.sum())

    def __repr__(self) -> str:
        return f"Demonstrations({len(self)} decisions of {first_few(self.experts)})"

    def counts(self, mdp: MDP) -> Floats:
        """Return how often each expert took each action in each state, `(K,S,A)`, in the order of the MDP's states and actions.

        Raises:
            ValueError: for a label the MDP does not know, a decision in a terminal state, or an unavailable action.
        """
        return self._dense(mdp, None)

    def counts_of_episodes(self, mdp: MDP, times: ArrayLike) -> Floats:
        """Return the same, where episode e of `by_episode` counts `times[e]` times, `(E,)`."""
        return self._dense(mdp, self.count_episodes(np.asarray(times, dtype=np.float64)))

    def _dense(self, mdp: MDP, counts: Floats | None) -> Floats:
        shape = (len(self.experts), mdp.n_actions, mdp.n_states)
        if (size := 2 * 8 * int(np.prod(shape))) > 100_000_000:
            what = f"a table of {shape[0]:,} experts, {mdp.n_states:,} states and {mdp.n_actions} actions"
            require_memory(size, what, "take fewer experts at a time, or merge states that are alike")
        dense: Floats = np.ascontiguousarray(self.choices(mdp, counts).toarray().reshape(shape).transpose(0, 2, 1))
        return dense

    def choices(self, mdp: MDP, counts: Floats | None = None) -> Sparse:
        """Return the same as `counts`, sparse: how often expert k took action a in state s, at `[k, a·S + s]`, `(K,A·S)`.

        With `counts` `(M,)` the `cells` count that often.
        """
        states, actions, left_out = self.require_available(mdp)
        made = self.made
        if counts is not None:
            made = sp.csr_array((counts, made.indices, made.indptr), shape=made.shape)
        kept = np.flatnonzero(~left_out).astype(np.int32)  # narrow indices: of many people there are as many as decisions
        columns = (actions * mdp.n_states + states)[kept].astype(np.int32)
        shape = (states.size, mdp.n_actions * mdp.n_states)
        chosen = sp.csr_array(made @ sp.csr_array((np.ones(kept.size), (kept, columns)), shape=shape))
        chosen.sort_indices()
        return chosen

    def require_available(self, mdp: MDP) -> tuple[Ints, Ints, Bools]:
        """Return the MDP's index of the state and of the action of each of the moves `(m,)`, and which of them do not count.

        Raises:
            ValueError: for a label the MDP does not know, a decision in a terminal state, or an unavailable action.
        """
        (place, number) = self.match(mdp)
        left_out = self.left_out(mdp)
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
        """Return the MDP's index of each state of the table, and of each action; raises for a label it does not know."""
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
        """Return these decisions under the conditions of a table with the columns `expert`, `episode` and one per condition.

        Rows about other episodes are left out, and where an episode has no row, its conditions are missing.

        Raises:
            ValueError: where an episode has two rows or none has any, and for a condition that the decisions already have.

        Example:
            >>> from multihorizon.domains import cliff
            >>> d = Demonstrations.simulate(cliff().mdp, cliff().soft_experts()[:1], episodes=2, names=["Ann"])
            >>> noise = pd.DataFrame({"expert": "Ann", "episode": [1, 0], "noise": ["high", "low"]})
            >>> d.under(noise).conditions.noise.tolist()
            ['low', 'high']
        """
        name = "the table of episodes"
        return put_under([self], conditions_of(InputTable(as_frame(frame, name), name)), name)[0][0]

    def first(self, wanted: Bools) -> tuple[int, Decision]:
        """Return the first decision of those of the `moves` that are wanted, `(m,)`: its move, and the decision itself."""
        moves = np.flatnonzero(wanted)
        return min(zip(moves.tolist(), self.decisions_of(moves), strict=True), key=lambda pair: pair[1].order)

    def unnamed(self) -> Demonstrations:
        """Return the same decisions where each episode is an expert of its own, as if nobody knew whose it was.

        Names are the labels of the episodes, and say whose they are where labels occur twice.

        Example:
            >>> from multihorizon.domains import cliff
            >>> d = Demonstrations.simulate(cliff().mdp, cliff().soft_experts(), episodes=2)
            >>> d.unnamed().experts
            ('0 of 0', '1 of 0', '0 of 1', '1 of 1', '0 of 2', '1 of 2')
        """
        table = self.rows
        whose = table.by_episode.expert.tolist()
        label = table.episode[table.first_rows].tolist()
        twice = len(set(label)) < len(label)
        names = [table.episodes[e] + (f" of {table.experts[k]}" if twice else "") for k, e in zip(whose, label, strict=True)]
        expert = np.repeat(np.arange(len(names)), table.by_episode.length)
        return replace(table, expert=expert, experts=tuple(names))

    def select(self, rows: Any) -> Demonstrations:
        """Return the decisions of some rows, given as indices or a mask, under the same labels."""
        table = self.rows
        chosen = np.arange(len(self))[rows]
        place = None if table.place is None else partial(moved, table.place, chosen)
        times = None if table.times is None else table.times[rows]
        codes = {column: getattr(table, column)[rows] for column in CODES}
        selected = replace(table, **codes, place=place, conditions=None, times=times)
        if table.conditions is None:
            return selected
        episode = np.repeat(np.arange(len(table.conditions)), table.by_episode.length)[chosen]
        return replace(selected, conditions=table.conditions.iloc[episode[selected.first_rows]].reset_index(drop=True))

    def same_decisions(self, other: Demonstrations) -> bool:
        """Return whether two tables hold the same decisions under the same labels."""
        labels = all(getattr(self, c) == getattr(other, c) for c in ("experts", "states", "actions"))
        if not labels or not np.array_equal(self.made.data, other.made.data):
            return False
        return self.episodes == other.episodes and all(np.array_equal(getattr(self, c), getattr(other, c)) for c in CODES)

    def to_frame(self) -> pd.DataFrame:
        """Return the table with the user's labels and conditions; `next_state` is left out where none is known."""
        columns: dict[str, Any] = {
            "expert": np.array(self.experts, dtype=object)[self.expert],
            "episode": np.array(self.episodes, dtype=object)[self.episode],
            "step": self.step,
            "state": np.array(self.states, dtype=object)[self.state],
            "action": np.array(self.actions, dtype=object)[self.action],
        }
        if (self.next_state >= 0).any():
            labels = np.array((*self.states, None), dtype=object)
            columns["next_state"] = labels[self.next_state]
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
        """Return the moves that do not count, `(m,)`: last decisions of cut-off episodes that the estimate knows nothing of."""
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
                f"{table.name} must have fewer labels to be counted, got {self.experts:,} experts, {self.states:,} states "
                f"and {self.actions:,} actions"
            )

    def of(self, expert: Any, state: Any, action: Any, next_state: Any) -> Any:
        """Return the keys of codes; the codes may also be names of columns in SQL that stand for themselves."""
        return expert * self.width + (state * self.actions + action) * (self.states + 1) + next_state + 1

    def count(self, keys: Ints, counts: Ints) -> tuple[Moves, Sparse]:
        """Return the moves, and how often each expert made each, of ordered distinct keys `(M,)`; this writes over the keys."""
        rows = np.searchsorted(keys, np.arange(self.experts + 1) * self.width)
        np.remainder(keys, self.width, out=keys)
        distinct = np.unique(keys)
        total = np.zeros(distinct.size, dtype=np.int64)
        places = np.empty(keys.size, dtype=np.int32)
        for start in range(0, keys.size, 1 << 22):  # in blocks: of many people there are as many keys as decisions
            block = slice(start, start + (1 << 22))
            places[block] = np.searchsorted(distinct, keys[block])
            total += np.bincount(places[block], counts[block], minlength=distinct.size).astype(np.int64)
        (moved, next_state) = np.divmod(distinct, self.states + 1)
        moves = Moves(*np.divmod(moved, self.actions), next_state - 1, total)
        size = np.int32 if keys.size < 2**31 else np.int64
        return moves, sp.csr_array((counts, places, rows.astype(size)), shape=(self.experts, distinct.size))


def summed(counts: Floats, rows: Ints, places: Ints, shape: tuple[int, int]) -> Sparse:
    """Return a sparse matrix of these entries, in order, so that sums over them are the same to the last digit."""
    matrix = sp.csr_array((counts, (rows, places)), shape=shape)
    matrix.sum_duplicates()
    return matrix


def same_episode(expert: Ints, episode: Ints) -> Bools:
    """Return whether the next of sorted rows belongs to the same episode, `(N−1,)`."""
    same: Bools = (np.diff(expert) == 0) & (np.diff(episode) == 0)
    return same


def require_conditions(name: str, columns: Sequence[str], every: Sequence[str]) -> None:
    """Raise unless a table has these columns, and they may be conditions."""
    if isinstance(columns, str):
        raise ValueError(f"conditions must be a list of columns, got the text {columns!r}")
    taken = next((column for column in columns if column in CODES), None)
    if taken is not None:
        raise ValueError(f"a condition must be another column than {', '.join(CODES)}, got {taken}")
    missing = next((column for column in columns if column not in every), None)
    if missing is not None:
        others = first_few([column for column in every if column not in CODES]) or "no other columns than it needs"
        raise ValueError(f"{name} must have the column {missing} to be a condition, got {others}")


def _conditions(log: Log, columns: Sequence[str]) -> pd.DataFrame | None:
    """Return the value of each of the columns in each episode of a sorted log; raises where one varies within an episode."""
    goes_on = np.append(False, log.goes_on[:-1])
    conditions = {}
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
        return f"condition {column} must be the same in a whole episode, got {received}"

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
    place = None if log.table.scan is None else partial(moved, log.table.place, log.number)
    episode, episodes = log.episode, log.episodes
    if log.part.any():
        pairs, episode = np.unique(np.stack([episode, log.part]), axis=1, return_inverse=True)
        episodes = tuple(f"{episodes[code]} part {part + 1}" for code, part in pairs.T.tolist())
    codes = log.expert, episode.ravel(), log.step.astype(np.int64), log.state, log.action, after
    labels = log.experts, episodes, log.states, log.actions
    return Demonstrations(*codes, *labels, log.table.name, place, cut_off, conditions, times)


def decide(table: InputTable, cut_off: bool, conditions: Sequence[str], clock: Clock | None) -> Demonstrations:
    """Return the decisions of a table, checked."""
    table.require(*COLUMNS)
    if conditions:
        require_conditions(table.name, conditions, table.columns)
    if clock is not None:
        clock.require(table)
    with refusing(table.name):
        log = read_log(table)
    times = None if clock is None else clock.times(log)
    return decisions_in(log, cut_off, _conditions(log, conditions), times)


def named_by_episode(table: InputTable) -> InputTable:
    """Return the same table where each episode is an expert of its own."""
    table.require("episode")
    return replace(table, frame=table.frame.assign(expert=table.frame["episode"]))


def names_experts(scan: Scan) -> bool:
    """Return whether a scan has a column `expert` that is not blank throughout."""
    if "expert" not in scan.types:
        return False
    with connect() as database:
        return bool(database.execute(f"SELECT 1 FROM {scan.relation} WHERE trim(expert::VARCHAR) <> '' LIMIT 1").fetchall())


def _read(
    scan: Scan, cut_off: bool, conditions: Sequence[str], unnamed: bool, time: str | None, time_unit: str | None
) -> Demonstrations:
    """Return the decisions of a scan: loaded, or counted where they are too many to be loaded without need."""
    clock = None if time is None and time_unit is None else Clock.of(time, time_unit)
    needed = (*COLUMNS, "next_state", *conditions, *(() if clock is None else (clock.column, f"next_{clock.column}")))
    if unnamed and not names_experts(scan):
        return decide(named_by_episode(load(scan, LABELS, needed)), cut_off, conditions, clock)
    if clock is None and scan.is_larger(LARGE_BYTES, LARGE_ROWS):
        return Demonstrations.large(scan, cut_off, conditions)
    return decide(load(scan, LABELS, needed), cut_off, conditions, clock)


def read_tables(
    paths: Sequence[str | Path | Sequence[str | Path]],
    cut_off: bool = False,
    conditions: Sequence[str] = (),
    *,
    unnamed: bool = False,
    time: str | None = None,
    time_unit: str | None = None,
    columns: Columns | None = None,
) -> list[Demonstrations]:
    """Read one table of decisions for each task; raises if two hold the same decisions."""
    how: dict[str, Any] = {"unnamed": unnamed, "time": time, "time_unit": time_unit, "columns": columns}
    tables: list[Demonstrations] = []
    for path in paths:
        table = Demonstrations.from_files(path, cut_off, conditions, **how)
        for earlier, other in zip(paths, tables, strict=False):
            if table.same_decisions(other):
                both = f"{joint_name(path)} holds the same decisions as {joint_name(earlier)}"
                raise ValueError(f"{both}: give each table once, or they count double")
        tables.append(table)
    return tables


def conditions_of(table: InputTable) -> pd.DataFrame:
    """Return a table with one row per episode, checked: `expert` and `episode` as labels, and one column for each condition.

    Raises:
        ValueError: where a column is missing, or an episode has two rows.
    """
    table.require("expert", "episode")
    wanted = [str(column) for column in table.frame.columns if column not in ("expert", "episode")]
    if not wanted:
        raise ValueError(f"{table.name} must have a column besides expert and episode for each condition, got none: add it")
    require_conditions(table.name, wanted, wanted)
    (expert, experts), (episode, episodes) = table.labels("expert"), table.labels("episode")
    keys = expert * len(episodes) + episode
    table.require_once(keys, lambda row: f"episode {episodes[episode[row]]} of expert {experts[expert[row]]}")
    labels = {"expert": np.array(experts, dtype=object)[expert], "episode": np.array(episodes, dtype=object)[episode]}
    return pd.DataFrame({**labels, **{column: table.values(column).reset_index(drop=True) for column in wanted}})


def put_under(tables: Sequence[Demonstrations], frame: pd.DataFrame, name: str) -> tuple[list[Demonstrations], int]:
    """Return tables under the conditions of a table of this name, checked, and how many of its rows are about none of them."""
    index = pd.MultiIndex.from_frame(frame[["expert", "episode"]])
    used = np.zeros(len(frame), dtype=np.bool_)
    under = []
    for table in tables:
        experts = np.array(table.experts, dtype=object)[table.by_episode.expert]
        place = index.get_indexer(pd.MultiIndex.from_arrays([experts, table.episode_labels]))
        used[place[place >= 0]] = True
        values = frame.drop(columns=["expert", "episode"]).reindex(place).reset_index(drop=True)  # at -1 there is no row
        if table.conditions is not None:
            twice = next((column for column in values if column in table.conditions), None)
            if twice is not None:
                raise ValueError(f"condition {twice} must be in {table.name} or in {name}, got it in both: drop one of them")
            values = pd.concat([table.conditions, values], axis=1)
        under.append(table.with_conditions(values))
    if not used.any():
        expert, episode = frame.loc[0, ["expert", "episode"]]
        some = f"episode {tables[0].episode_labels[0]} of expert {tables[0].experts[0]}"
        raise ValueError(
            f"{name} must be about episodes of {tables[0].name}, got none that is there: it has episode {episode} of expert "
            f"{expert}, and the decisions have {some}; names must agree letter by letter"
        )
    return under, int((~used).sum())


def simulate_policy(
    mdp: MDP, policy: Floats, episodes: int, max_steps: int | Ints, seed: np.random.SeedSequence, starts: Ints | None = None
) -> list[Ints]:
    """Return columns episode, step, state, action, next_state of one policy; all episodes advance together.

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
