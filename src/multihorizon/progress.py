"""Progress of long work: a solver calls `progress(share, message)`; who shows it, and whether, is the caller's business."""

from __future__ import annotations

from collections.abc import Callable

#: Called with the share of the work that is done, in [0,1], and a few words on where it stands.
Progress = Callable[[float, str], None]


def silent(share: float, message: str) -> None:
    """Show nothing."""
