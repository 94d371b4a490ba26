"""What the commands share: the terminal, progress bars, and one clear sentence on bad input."""

from __future__ import annotations

import shlex
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from multihorizon.files.labels import visible
from multihorizon.progress import Progress, part_of
from multihorizon.tables.cells import TableError

#: Without a terminal, progress is written as a line after so many seconds.
LINE_SECONDS = 10.0


class PlainConsole(Console):
    """A console that shows users' labels as they are: "[a]" is no markup, and control characters are written out."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False)

    def render_str(self, text: str, **options: Any) -> Text:
        """Turn a string, or a cell of a table, into what is printed."""
        return super().render_str(visible(text), **options)


out = PlainConsole()
err = PlainConsole(stderr=True)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn bad input into one sentence on standard error and exit code 2; show warnings as sentences too."""
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        try:
            yield
        except (ValueError, OSError, ImportError, MemoryError, EOFError) as error:
            _say(_sentence(error), "red")
            raise typer.Exit(2) from None


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Show a bar on a terminal while the block runs, or a line now and then where there is none.

    The value is what solvers call with the share of the work that is done and a message.
    """
    if not err.is_terminal:
        yield part_of(_progress_lines(title), 0.0, 1.0)
        return
    title_column, message_column = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[message]}"))
    columns = (title_column, BarColumn(), message_column, TimeElapsedColumn(), TimeRemainingColumn())
    with Bars(*columns, console=err, transient=True) as bars:
        task = bars.add_task(title, total=1.0, message="")

        def report(share: float, message: str) -> None:
            bars.update(task, completed=share, message=visible(message))

        yield part_of(report, 0.0, 1.0)


def _progress_lines(title: str) -> Progress:
    start = last = time.monotonic()

    def report(share: float, message: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= LINE_SECONDS:
            last = now
            err.print(f"{title}: {share:.0%} done{_time_left(share, now - start)}: {message}", highlight=False, soft_wrap=True)

    return report


def _time_left(share: float, seconds: float) -> str:
    """How long the rest takes if it goes on like this; nothing is said of the first steps."""
    if share < 0.01:
        return ""
    minutes = seconds * (1 - share) / share / 60
    return ", less than a minute left" if minutes < 1 else f", about {minutes:.0f} min left"


def show_remarks(remarks: Sequence[str]) -> None:
    """What was assumed, in a quiet colour."""
    for remark in remarks:
        out.print(remark, style="dim", soft_wrap=True)


def _say(sentence: str, style: str) -> None:
    err.print(f"multihorizon: {' '.join(sentence.split())}", style=style, highlight=False, soft_wrap=True)


def _show_warning(message: Warning | str, *place: Any) -> None:
    """A warning without the place in the source that gave it, which says nothing to a user."""
    _say(f"note: {message}", "yellow")


def _sentence(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this: {str(error) or 'use fewer states, or tie rewards by features'}"
    if isinstance(error, TableError):
        command = f"multihorizon check {shlex.quote(error.table)} {error.options}".rstrip()
        return f"{str(error).rstrip('.')}. {command} lists every problem of the table and how to mend it"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__
