"""Decisions drawn from a policy and the transitions.

Logged behaviour: who did what in which state.

A table has the columns `expert, episode, step, state, action` and, if known, `next_state`; one row per decision. Labels may be
any text or whole numbers. An episode is the rows of one expert with one episode label; its steps are consecutive whole
numbers, and where `next_state` is given it must be the state of the following step; left blank, it is taken from there.

An episode ends for good, or was cut off: the record stops, and nobody knows what followed. With `cut_off`, the last decision of
an episode may lack its next state. It counts as a decision, and says nothing about where it leads. Where transitions are
estimated, and nothing in the table says where that action leads, the decision is left out.

A table is held as integer codes (`rows`). One in a file of more than about half a million rows is counted by a database instead
(`counted`), and its rows are loaded when they are asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from multihorizon.checks import Bools, Floats, Ints, as_count, as_names, as_shape
from multihorizon.data.reading import Table, files_of, scan_csv, scan_files, scan_parquet
from multihorizon.data.rows import (
    BESIDE,
    CODES,
    Cells,
    CountedFiles,
    Decision,
    Episodes,
    Rows,
    TableError,
    decisions_of,
    moved,
    refusing,
    rows_of,
)
from multihorizon.files import existing_file, positions, write_csv
from multihorizon.mdp import MDP
from multihorizon.planning.evaluation import check_policy


def check_starts(mdp: MDP, starts: ArrayLike, episodes: int) -> Ints:
    """Read the first state of each episode `(episodes,)`; none may be terminal."""
    first = np.asarray(starts)
    as_shape(first, (episodes,), "starts")
    if not np.issubdtype(first.dtype, np.integer) or ((first < 0) | (first >= mdp.n_states)).any() or mdp.terminal[first].any():
        raise ValueError(f"starts must be indices of states that are not terminal, received {first.tolist()}")
    return first.astype(np.int64)


def simulate_policy(
    mdp: MDP, policy: Floats, episodes: int, max_steps: int, seed: np.random.SeedSequence, starts: Ints | None = None
) -> list[Ints]:
    """Columns episode, step, state, action, next_state of one policy; all episodes advance together.

    `starts` `(episodes,)` are the first states; by default they are drawn.
    """
    rng = np.random.default_rng(seed)
    choices = policy.cumsum(axis=1)
    ends = np.cumsum(mdp.stacked.data)
    running = np.arange(episodes)
    state = rng.choice(mdp.n_states, size=episodes, p=mdp.initial) if starts is None else starts
    rows: list[tuple[Ints, ...]] = []
    for step in range(max_steps):
        action = np.minimum(
            (rng.random((running.size, 1)) * choices[state, -1:] >= choices[state]).sum(axis=1), mdp.n_actions - 1
        )
        arrived = _successors(mdp, ends, action * mdp.n_states + state, rng)
        rows.append((running, np.full(running.size, step), state, action, arrived))
        alive = ~mdp.terminal[arrived]
        running, state = running[alive], arrived[alive]
        if not running.size:
            break
    columns = [np.concatenate([row[i] for row in rows]) for i in range(5)]
    order = np.lexsort((columns[1], columns[0]))
    return [column[order] for column in columns]


def _successors(mdp: MDP, ends: Floats, rows: Ints, rng: np.random.Generator) -> Ints:
    """Draw a successor from each given row of the stacked transitions, by bisection in their running sum."""
    first, last = mdp.stacked.indptr[rows], mdp.stacked.indptr[rows + 1]
    low = np.where(first > 0, ends[first - 1], 0.0)
    target = low + rng.random(rows.size) * (ends[last - 1] - low)
    entry = np.clip(np.searchsorted(ends, target, side="right"), first, last - 1)
    successors: Ints = mdp.stacked.indices[entry].astype(np.int64)
    return successors


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Decisions of several experts, sorted by expert, episode and step.

    `experts`, `episodes`, `states` and `actions` are labels; `expert`, `episode`, `state`, `action` and `next_state` are `(N,)`
    codes into them, and `next_state` is −1 where unknown. `cells` holds how often each distinct decision was taken, and
    `by_episode` one entry per episode. Of a large file only the cells are in memory until more is asked for.
    """

    decisions: Rows | CountedFiles

    @classmethod
    def from_frame(cls, frame: pd.DataFrame, cut_off: bool = False) -> Demonstrations:
        """Read a data frame with the columns `expert, episode, step, state, action` and optionally `next_state`.

        With `cut_off`, episodes may simply stop: the next state of a last decision may then be unknown.

        Raises:
            ValueError: naming the row and what is wrong with it.
        """
        return cls(rows_of(Table(frame), from_file=False, cut_off=cut_off))

    @classmethod
    def from_csv(cls, path: str | Path, cut_off: bool = False) -> Demonstrations:
        """Read a CSV file with a header line; see `from_frame`. Messages name the file and the line."""
        return cls(decisions_of(scan_csv(str(path), [existing_file(path, "a CSV table")]), cut_off))

    @classmethod
    def from_parquet(cls, path: str | Path, cut_off: bool = False) -> Demonstrations:
        """Read a Parquet file; see `from_frame`."""
        return cls(decisions_of(scan_parquet(str(path), [existing_file(path, "a Parquet table")]), cut_off))

    @classmethod
    def from_files(cls, path: str | Path, cut_off: bool = False) -> Demonstrations:
        """Read a CSV or Parquet file by the ending of its name, or a folder of files of one kind as one table."""
        return cls(decisions_of(scan_files(str(path), files_of(path, "demonstrations")), cut_off))

    @classmethod
    def simulate(
        cls,
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
        indices of states, each episode begins in the state given for it.

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
        experts = as_names(names, len(policies), "names")
        first = None if starts is None else check_starts(mdp, starts, episodes)
        streams = np.random.SeedSequence(seed).spawn(len(policies))
        runs = [
            simulate_policy(mdp, check_policy(mdp, policy, f"policy of expert {name}"), episodes, max_steps, stream, first)
            for policy, name, stream in zip(policies, experts, streams, strict=True)
        ]
        episode, step, state, action, next_state = (np.concatenate([run[i] for run in runs]) for i in range(5))
        expert = np.repeat(np.arange(len(runs)), [run[0].size for run in runs])
        labels = tuple(str(i) for i in range(episodes))
        return cls(Rows(expert, episode, step, state, action, next_state, experts, labels, mdp.state_names, mdp.action_names))

    def __len__(self) -> int:
        return int(self.cells.count.sum())

    @property
    def name(self) -> str:
        """The file or folder, or "the table"."""
        return self.decisions.name

    @property
    def cut_off(self) -> bool:
        """Whether episodes may simply stop."""
        return self.decisions.cut_off

    @property
    def experts(self) -> tuple[str, ...]:
        """The experts' labels `(K,)`."""
        return self.decisions.experts

    @property
    def states(self) -> tuple[str, ...]:
        """The labels of states and next states."""
        return self.decisions.states

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions' labels."""
        return self.decisions.actions

    @property
    def cells(self) -> Cells:
        """How often each distinct decision was taken."""
        return self.decisions.cells

    @property
    def by_episode(self) -> Episodes:
        """Expert, first state and length of each episode."""
        return self.decisions.by_episode

    @property
    def rows(self) -> Rows:
        """The table in memory; loads that of a large file, and raises ValueError where it is too large for that."""
        return self.decisions if isinstance(self.decisions, Rows) else self.decisions.rows

    @property
    def episodes(self) -> tuple[str, ...]:
        """The episodes' labels."""
        return self.rows.episodes

    @property
    def expert(self) -> Ints:
        """The expert of each decision `(N,)`."""
        return self.rows.expert

    @property
    def episode(self) -> Ints:
        """The episode label of each decision `(N,)`."""
        return self.rows.episode

    @property
    def step(self) -> Ints:
        """The step of each decision `(N,)`."""
        return self.rows.step

    @property
    def state(self) -> Ints:
        """The state of each decision `(N,)`."""
        return self.rows.state

    @property
    def action(self) -> Ints:
        """The action of each decision `(N,)`."""
        return self.rows.action

    @property
    def next_state(self) -> Ints:
        """The next state of each decision `(N,)`, −1 where unknown."""
        return self.rows.next_state

    @property
    def first_rows(self) -> Ints:
        """The rows that begin an episode."""
        return self.rows.first_rows

    @property
    def episode_counts(self) -> Ints:
        """Number of episodes of each expert."""
        return self.decisions.episode_counts

    @property
    def first_states(self) -> Ints:
        """Number of episodes that begin in each state."""
        return self.decisions.first_states

    def counts(self, mdp: MDP, weights: Floats | None = None) -> Floats:
        """How often each expert took each action in each state, `(K,S,A)`, in the order of the MDP's states and actions.

        With `weights` `(N,)` each row counts that often.

        Raises:
            ValueError: for a label the MDP does not know, a decision in a terminal state, or an unavailable action.
        """
        return self._placed(mdp, self.cells.count if weights is None else self.rows.count_rows(weights))

    def counts_of_episodes(self, mdp: MDP, times: ArrayLike) -> Floats:
        """The same, where episode e of `by_episode` counts `times[e]` times, `(E,)`."""
        return self._placed(mdp, self.decisions.count_episodes(np.asarray(times, dtype=np.float64)))

    def match(self, mdp: MDP) -> tuple[Ints, Ints]:
        """The MDP's index of each of the table's states, and of each of its actions; raises for a label it does not know."""
        cells = self.cells

        def state(code: int) -> str:
            return str(self.first((cells.state == code) | (cells.next_state == code))[1])

        def action(code: int) -> str:
            return str(self.first(cells.action == code)[1])

        from_file = self.name != Rows.name
        with refusing(self.name, BESIDE):
            states = positions(self.states, mdp.state_names, "state", state if from_file else None)
            return states, positions(self.actions, mdp.action_names, "action", action if from_file else None)

    def first(self, wanted: Bools) -> tuple[int, Decision]:
        """The first decision of those of the `cells` that are wanted, `(M,)`: its cell, and what to call it in messages."""
        cells = np.flatnonzero(wanted)
        return min(zip(cells.tolist(), self.decisions.first(cells), strict=True), key=lambda pair: pair[1].order)

    def select(self, rows: Any) -> Demonstrations:
        """The decisions of some rows, given as indices or a mask, under the same labels."""
        table = self.rows
        chosen = np.arange(len(self))[rows]
        place = None if table.place is None else partial(moved, table.place, chosen)
        return Demonstrations(replace(table, **{column: getattr(table, column)[rows] for column in CODES}, place=place))

    def same_decisions(self, other: Demonstrations) -> bool:
        """Whether two tables hold the same decisions under the same labels."""
        labels = all(getattr(self, c) == getattr(other, c) for c in ("experts", "states", "actions"))
        if not labels or not np.array_equal(self.cells.count, other.cells.count):
            return False
        return self.episodes == other.episodes and all(np.array_equal(getattr(self, c), getattr(other, c)) for c in CODES)

    def to_frame(self) -> pd.DataFrame:
        """The table with the user's labels; `next_state` is left out where none is known."""
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
        return pd.DataFrame(columns)

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file that `from_csv` reads back; labels that a spreadsheet would run as formulas get ' before them."""
        write_csv(self.to_frame(), path, read_again=True)

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file that `from_parquet` reads back; needs the extra `parquet`."""
        self.to_frame().to_parquet(path, index=False)

    def _placed(self, mdp: MDP, counts: Floats | Ints) -> Floats:
        """Counts of the cells `(M,)` as counts of experts, states and actions `(K,S,A)`."""
        cells, (place, number), left_out = self.cells, self.match(mdp), self.left_out(mdp)
        states, actions = place[cells.state], number[cells.action]
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
        shape = (len(self.experts), mdp.n_states, mdp.n_actions)
        flat = np.ravel_multi_index((cells.expert, states, actions), shape)
        kept = np.where(left_out, 0.0, counts)
        return np.bincount(flat, kept, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)

    def left_out(self, mdp: MDP) -> Bools:
        """The cells that do not count, `(M,)`: last decisions of cut-off episodes that the estimate knows nothing of."""
        cells = self.cells
        if not self.cut_off or mdp.sample_sizes is None:
            return np.zeros(cells.count.size, dtype=np.bool_)
        states, actions = self.match(mdp)
        left: Bools = (cells.next_state < 0) & ~mdp.live[states[cells.state], actions[cells.action]]
        return left

    def _refuse(self, wrong: Bools, reason: str) -> None:
        """Raise where a cell is wrong; the reason names its state and action."""
        if wrong.any():
            cell, decision = self.first(wrong)
            state, action = self.states[self.cells.state[cell]], self.actions[self.cells.action[cell]]
            raise TableError(f"{decision}: {reason.format(state, action)}", self.name, BESIDE)


def read_tables(paths: Sequence[str | Path], cut_off: bool = False) -> list[Demonstrations]:
    """Read one table of decisions for each task; raises if two hold the same decisions."""
    tables: list[Demonstrations] = []
    for path in paths:
        table = Demonstrations.from_files(path, cut_off)
        for earlier, other in zip(paths, tables, strict=False):
            if table.same_decisions(other):
                raise ValueError(f"{path} holds the same decisions as {earlier}: give each table once, or they count double")
        tables.append(table)
    return tables
