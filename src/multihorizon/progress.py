"""Progress of long work: a solver calls `progress(share, message)`; the caller decides whether and how to show it."""

from __future__ import annotations

from collections.abc import Callable

#: Called with the share of the work that is done, in [0,1], and a few words on where it stands.
Progress = Callable[[float, str], None]


def silent(share: float, message: str) -> None:
    """Show nothing."""


def part_of(progress: Progress, low: float, high: float) -> Progress:
    """The progress of a part of the work: its shares from 0 to 1 are shares of the whole from `low` to `high`.

    It never runs backwards: a part that begins again, as a climb from another start does, stays where it is until it is further.
    """
    furthest = 0.0

    def report(share: float, message: str) -> None:
        nonlocal furthest
        furthest = min(1.0, max(furthest, share))
        progress(low + (high - low) * furthest, message)

    return report
