"""Logged behaviour: who did what in which state.

A table has the columns `expert, episode, step, state, action` and, if known, `next_state`; one row per decision. Labels may be
any text or whole numbers. An episode is the rows of one expert with one episode label; its steps are consecutive whole
numbers, and where `next_state` is given it must be the state of the following step; left blank, it is taken from there.

The table is kept as integer codes with one list of labels per column, so ten million rows fit in a few hundred megabytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from multihorizon.checks import Bools, Floats, Ints, as_count, as_names
from multihorizon.files.labels import in_order, positions
from multihorizon.files.output import write_csv
from multihorizon.files.reading import read_csv, read_parquet, read_table
from multihorizon.files.table import Table
from multihorizon.mdp import MDP
from multihorizon.planning.evaluation import check_policy
from multihorizon.tables.simulation import check_starts, simulate_policy

COLUMNS = ("expert", "episode", "step", "state", "action")
LABELS = ("expert", "episode", "state", "action", "next_state")
#: The arrays of a table, one entry per decision each.
CODES = ("expert", "episode", "step", "state", "action", "next_state")


@dataclass(frozen=True, eq=False)
class Origin:
    """The file that a table was read from: its name, how to say where a row stands, and the row of each decision, `(N,)`."""

    file: str
    place: Callable[[int], str]
    rows: Ints


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Decisions of several experts, sorted by expert, episode and step.

    `expert`, `episode`, `state`, `action`, `next_state` are `(N,)` codes into `experts`, `episodes`, `states`, `actions`;
    `next_state` is −1 where unknown. `origin` leads messages to the file the decisions came from; None for other tables.
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
    origin: Origin | None = None

    def __post_init__(self) -> None:
        for column in CODES:
            array = getattr(self, column).view()
            array.setflags(write=False)
            object.__setattr__(self, column, array)

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> Demonstrations:
        """Read a data frame with the columns `expert, episode, step, state, action` and optionally `next_state`.

        Raises:
            ValueError: naming the row and what is wrong with it.
        """
        return cls._from_table(Table(frame), from_file=False)

    @classmethod
    def from_csv(cls, path: str | Path) -> Demonstrations:
        """Read a CSV file with a header line; see `from_frame`. Messages name the file and the line."""
        return cls._from_table(read_csv(path, LABELS))

    @classmethod
    def from_parquet(cls, path: str | Path) -> Demonstrations:
        """Read a Parquet file; needs the extra `parquet`. See `from_frame`."""
        return cls._from_table(read_parquet(path))

    @classmethod
    def _from_table(cls, table: Table, from_file: bool = True) -> Demonstrations:
        table.require(*COLUMNS)
        (expert, experts), (episode, episodes), (action, actions) = (table.labels(c) for c in ("expert", "episode", "action"))
        step = table.whole_numbers("step")
        state, next_state, states = _state_codes(table)
        order = np.lexsort((step, episode, expert))
        expert, episode, step, state, action, next_state = (c[order] for c in (expert, episode, step, state, action, next_state))
        demonstrations = cls(expert, episode, step, state, action, next_state, experts, episodes, states, actions)
        if from_file:
            demonstrations = replace(demonstrations, origin=Origin(table.name, table.place, order))
        demonstrations._check_steps(table, order)
        return demonstrations._with_next_states() if "next_state" in table.frame.columns else demonstrations

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
        return cls(expert, episode, step, state, action, next_state, experts, labels, mdp.state_names, mdp.action_names)

    def __len__(self) -> int:
        return self.state.size

    @property
    def episode_counts(self) -> Ints:
        """Number of episodes of each expert."""
        pairs = np.unique(np.stack([self.expert, self.episode]), axis=1)
        counts: Ints = np.bincount(pairs[0], minlength=len(self.experts))
        return counts

    def counts(self, mdp: MDP, weights: Floats | None = None) -> Floats:
        """How often each expert took each action in each state, `(K,S,A)`, in the order of the MDP's states and actions.

        With `weights` `(N,)` each row counts that often.

        Raises:
            ValueError: for a label the MDP does not know, a decision in a terminal state, or an unavailable action.
        """
        codes = self.match(mdp)
        states, actions = codes[0][self.state], codes[1][self.action]
        self._refuse(mdp.terminal[states], lambda row: f"state {self._state(row)!r} is terminal: nothing is decided there")
        self._refuse(~mdp.available[states, actions], lambda row: f"{self._choice(row)} is not available")
        shape = (len(self.experts), mdp.n_states, mdp.n_actions)
        flat = np.ravel_multi_index((self.expert, states, actions), shape)
        return np.bincount(flat, weights, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)

    def match(self, mdp: MDP) -> tuple[Ints, Ints]:
        """The MDP's index of each of the table's states, and of each of its actions; raises for a label it does not know."""
        states = positions(self.states, mdp.state_names, "state", self._place_of_state if self.origin else None)
        return states, positions(self.actions, mdp.action_names, "action", self._place_of_action if self.origin else None)

    @property
    def first_rows(self) -> Ints:
        """The rows that begin an episode."""
        changed = (np.diff(self.expert) != 0) | (np.diff(self.episode) != 0)
        return np.concatenate([[0], np.flatnonzero(changed) + 1]).astype(np.int64)

    def select(self, rows: Any) -> Demonstrations:
        """The decisions of some rows, given as indices or a mask, under the same labels."""
        origin = None if self.origin is None else replace(self.origin, rows=self.origin.rows[rows])
        return replace(self, **{column: getattr(self, column)[rows] for column in CODES}, origin=origin)

    def same_decisions(self, other: Demonstrations) -> bool:
        """Whether two tables hold the same decisions under the same labels."""
        labels = ("experts", "episodes", "states", "actions")
        return all(getattr(self, c) == getattr(other, c) for c in labels) and all(
            np.array_equal(getattr(self, c), getattr(other, c)) for c in CODES
        )

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
        write_csv(self.to_frame(), path)

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file that `from_parquet` reads back; needs the extra `parquet`."""
        self.to_frame().to_parquet(path, index=False)

    def where(self, row: int) -> str:
        """Expert, episode and step of a decision, and the line of its file if it has one, for messages."""
        decision = f"expert {self.experts[self.expert[row]]}, episode {self.episodes[self.episode[row]]}, step {self.step[row]}"
        if self.origin is None:
            return decision
        return f"{self.origin.file}, {self.origin.place(int(self.origin.rows[row]))} ({decision})"

    def move(self, row: int) -> str:
        """State, action and next state of a decision, for messages."""
        return f"from {self._state(row)} by {self.actions[self.action[row]]} to {self.states[self.next_state[row]]}"

    def _refuse(self, wrong: Bools, reason: Callable[[int], str]) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"{self.where(row)}: {reason(row)}")

    def _state(self, row: int) -> str:
        name: str = self.states[self.state[row]]
        return name

    def _choice(self, row: int) -> str:
        return f"action {self.actions[self.action[row]]!r} in state {self._state(row)!r}"

    def _place_of_state(self, code: int) -> str:
        return self.where(int(np.argmax((self.state == code) | (self.next_state == code))))

    def _place_of_action(self, code: int) -> str:
        return self.where(int(np.argmax(self.action == code)))

    @property
    def _continues(self) -> Bools:
        """Whether the next decision belongs to the same episode, `(N−1,)`."""
        same: Bools = (np.diff(self.expert) == 0) & (np.diff(self.episode) == 0)
        return same

    def _check_steps(self, table: Table, order: Ints) -> None:
        """Steps of an episode are consecutive, and none occurs twice."""
        jump = np.diff(self.step)
        twice = self._continues & (jump == 0)
        if twice.any():
            row = int(np.argmax(twice))
            first, again = sorted(int(order[row + i]) for i in (0, 1))
            both = f"{table.place(first)} and {table.place(again)}"
            raise ValueError(f"{self.where(row)}: each step must occur once, received it in {both}")
        self._refuse(
            self._continues & (jump != 1),
            lambda row: f"must be followed by step {self.step[row] + 1}, received step {self.step[row + 1]}",
        )

    def _with_next_states(self) -> Demonstrations:
        """The table with blank next states taken from the next step; raises where one that was given differs from it."""
        filled = self.next_state.copy()
        blank = (filled[:-1] < 0) & self._continues
        filled[:-1][blank] = self.state[1:][blank]
        self._refuse(
            self._continues & (filled[:-1] != self.state[1:]),
            lambda row: f"next_state is {self.states[filled[row]]!r}, but the next step is in {self._state(row + 1)!r}",
        )
        return replace(self, next_state=filled)


def read_demonstrations(path: str | Path) -> Demonstrations:
    """Read a table of decisions, CSV or Parquet by the ending of its name."""
    return Demonstrations._from_table(read_table(path, "demonstrations", LABELS))


def read_tables(paths: Sequence[str | Path]) -> list[Demonstrations]:
    """Read one table of decisions for each task; raises if two hold the same decisions."""
    tables: list[Demonstrations] = []
    for path in paths:
        table = read_demonstrations(path)
        for earlier, other in zip(paths, tables, strict=False):
            if table.same_decisions(other):
                raise ValueError(f"{path} holds the same decisions as {earlier}: give each table once, or they count double")
        tables.append(table)
    return tables


def _state_codes(table: Table) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Codes of the states and next states into one list of labels; −1 where a next state is unknown."""
    state, own = table.labels("state")
    if "next_state" not in table.frame.columns:
        return state, np.full(state.size, -1, dtype=np.int64), own
    after, others = table.labels("next_state", optional=True)
    states = in_order({*own, *others})
    return positions(own, states, "state")[state], np.append(positions(others, states, "state"), -1)[after], states
