"""Tasks for `test_parallel.py`, in a module of their own that a worker imports in no time."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any


def square(item: int) -> int:
    return item * item


def die_once(marker: Path, item: int) -> int:
    """Kill the process that does item 3 for the first time."""
    if item == 3 and not marker.exists():
        marker.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


def die(item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(item: int) -> None:
    raise ValueError(f"item {item} is refused")


class Travelling:
    """A task that writes down each of its arrivals in a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = bytes(8000)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = state
        with (self.folder / str(os.getpid())).open("a") as file:
            file.write("x")

    def __call__(self, item: int) -> int:
        return item
