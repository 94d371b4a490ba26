"""A table of decisions in memory: integer codes with one list of labels per column, sorted by expert, episode and step.

The steps of an episode are consecutive whole numbers. Where `next_state` is given it must be the state of the following step;
left blank, it is taken from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.files.labels import in_order, positions
from multihorizon.files.table import Table
from multihorizon.tables.cells import Cells, Decision, Episodes, refusing

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


@dataclass(frozen=True, eq=False)
class Rows:
    """`expert`, `episode`, `state`, `action`, `next_state` are `(N,)` codes into `experts`, `episodes`, `states`, `actions`;
    `next_state` is −1 where unknown. `place` says where in its file a decision stands, and is None for other tables. `cut_off`
    says whether episodes may simply stop: then a last decision need not have a next state."""

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

    def __post_init__(self) -> None:
        for column in CODES:
            array = getattr(self, column).view()
            array.setflags(write=False)
            object.__setattr__(self, column, array)

    @cached_property
    def cells(self) -> Cells:
        """How often each decision was taken."""
        first, _, counts = self._cells
        return Cells(self.expert[first], self.state[first], self.action[first], self.next_state[first], counts)

    @cached_property
    def by_episode(self) -> Episodes:
        """One entry per episode."""
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
        return np.concatenate([[0], np.flatnonzero(~self._continues) + 1]).astype(np.int64)

    def first(self, cells: Ints) -> list[Decision]:
        """The first row of each of the given cells."""
        return [self.decision(row) for row in self._cells[0][cells].tolist()]

    def count_episodes(self, times: Floats) -> Floats:
        """How often each decision was taken, `(M,)`, if episode e counts `times[e]` times."""
        return self.count_rows(np.repeat(times, self.by_episode.length))

    def choices_of(self, kept: Bools) -> tuple[Ints, Ints]:
        """State and action of each decision of the episodes kept, `(E,)`, by episode and step."""
        chosen = np.repeat(kept, self.by_episode.length)
        return self.state[chosen], self.action[chosen]

    def count_rows(self, weights: Floats) -> Floats:
        """How often each decision was taken, `(M,)`, if row i counts `weights[i]` times."""
        return np.bincount(self._cells[1], weights, minlength=self.cells.count.size).astype(np.float64)

    def decision(self, row: int) -> Decision:
        """A row for messages."""
        code = int(self.expert[row])
        place = "" if self.place is None else f"{self.name}, {self.place(row)}"
        return Decision(code, self.experts[code], self.episodes[self.episode[row]], int(self.step[row]), place)

    @cached_property
    def _cells(self) -> tuple[Ints, Ints, Ints]:
        """The first row of each cell `(M,)`, the cell of each row `(N,)`, and the rows of each cell `(M,)`."""
        key = np.ravel_multi_index(
            (self.expert, self.state, self.action, self.next_state + 1),
            (len(self.experts), len(self.states), len(self.actions), len(self.states) + 1),
        )
        _, first, cell, counts = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        return first, cell, counts

    @property
    def _continues(self) -> Bools:
        """Whether the next decision belongs to the same episode, `(N−1,)`."""
        same: Bools = (np.diff(self.expert) == 0) & (np.diff(self.episode) == 0)
        return same

    def _refuse(self, wrong: Bools, reason: Callable[[int], str]) -> None:
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"{self.decision(row)}: {reason(row)}")

    def _check_steps(self, table: Table, order: Ints) -> None:
        """Steps of an episode are consecutive, and none occurs twice."""
        jump = np.diff(self.step)
        twice = self._continues & (jump == 0)
        if twice.any():
            row = int(np.argmax(twice))
            first, again = sorted(int(order[row + i]) for i in (0, 1))
            both = f"{table.place(first)} and {table.place(again)}"
            raise ValueError(f"{self.decision(row)}: each step must occur once, received it in {both}{REMEDIES['twice']}")
        self._refuse(
            self._continues & (jump != 1),
            lambda row: f"must be followed by step {self.step[row] + 1}, received step {self.step[row + 1]}{REMEDIES['gap']}",
        )

    def _with_next_states(self) -> Rows:
        """The table with blank next states taken from the next step; raises where one that was given differs from it."""
        filled = self.next_state.copy()
        blank = (filled[:-1] < 0) & self._continues
        filled[:-1][blank] = self.state[1:][blank]

        def reason(row: int) -> str:
            given, true = self.states[filled[row]], self.states[self.state[row + 1]]
            return f"next_state is {given!r}, but the next step is in {true!r}{REMEDIES['next_state']}"

        self._refuse(self._continues & (filled[:-1] != self.state[1:]), reason)
        return replace(self, next_state=filled)


def rows_of(table: Table, from_file: bool = True, cut_off: bool = False) -> Rows:
    """The decisions of a table, checked. Where episodes may be `cut_off`, a table needs no column `next_state` to know moves.

    Raises:
        TableError: naming the row and what is wrong with it.
    """
    table.require(*COLUMNS)
    with refusing(table.name):
        return _checked(table, from_file, cut_off)


def _checked(table: Table, from_file: bool, cut_off: bool) -> Rows:
    (expert, experts), (episode, episodes), (action, actions) = (
        table.labels(c, remedy=REMEDIES["blank"]) for c in ("expert", "episode", "action")
    )
    step = table.whole_numbers("step")
    state, next_state, states = _state_codes(table)
    order = np.lexsort((step, episode, expert))
    expert, episode, step, state, action, next_state = (c[order] for c in (expert, episode, step, state, action, next_state))
    place = partial(moved, table.place, order) if from_file else None
    codes, labels = (expert, episode, step, state, action, next_state), (experts, episodes, states, actions)
    rows = Rows(*codes, *labels, table.name, place, cut_off)
    rows._check_steps(table, order)
    return rows._with_next_states() if cut_off or "next_state" in table.frame.columns else rows


def moved(place: Callable[[int], str], rows: Ints, row: int) -> str:
    """The place of a row that was row `rows[row]` before."""
    return place(int(rows[row]))


def _state_codes(table: Table) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Codes of the states and next states into one list of labels; −1 where a next state is unknown."""
    state, own = table.labels("state", remedy=REMEDIES["blank"])
    if "next_state" not in table.frame.columns:
        return state, np.full(state.size, -1, dtype=np.int64), own
    after, others = table.labels("next_state", optional=True)
    states = in_order({*own, *others})
    return positions(own, states, "state")[state], np.append(positions(others, states, "state"), -1)[after], states
