"""What a table of decisions comes down to: how often each expert moved where by which action, and one entry per episode.

Estimates need no more than this, so it is all that is kept of a table that is too large to load.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.files.labels import label_order

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
def refusing(table: str, options: str = "") -> Iterator[None]:
    """What is refused in this block is wrong with the table of this name."""
    try:
        yield
    except TableError:
        raise
    except ValueError as error:
        raise TableError(str(error), table, options) from error


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


class Decisions(Protocol):
    """A table of decisions, loaded (`rows.Rows`) or counted (`counted.CountedFiles`)."""

    @property
    def name(self) -> str:
        """The file, or "the table"."""

    @property
    def experts(self) -> tuple[str, ...]:
        """Labels."""

    @property
    def states(self) -> tuple[str, ...]:
        """Labels of states and next states."""

    @property
    def actions(self) -> tuple[str, ...]:
        """Labels."""

    @property
    def cut_off(self) -> bool:
        """Whether episodes may simply stop: the next state of a last decision may then be unknown."""

    @property
    def cells(self) -> Cells:
        """How often each decision was taken."""

    @property
    def episode_counts(self) -> Ints:
        """The number of episodes of each expert."""

    @property
    def first_states(self) -> Ints:
        """The number of episodes that begin in each state."""

    @property
    def by_episode(self) -> Episodes:
        """One entry per episode."""

    def first(self, cells: Ints) -> list[Decision]:
        """The first row of each of the given cells."""

    def count_episodes(self, times: Floats) -> Floats:
        """How often each decision was taken, `(M,)`, if episode e counts `times[e]` times."""

    def choices_of(self, kept: Bools) -> tuple[Ints, Ints]:
        """State and action of each decision of the episodes kept, `(E,)`, by episode and step."""
