"""What the commands share: the terminal, progress bars, and one clear sentence on bad input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from multihorizon.progress import Progress

# No markup: what is printed holds users' own labels, and "[a]" is a label.
out = Console(markup=False)
err = Console(stderr=True, markup=False)


@contextmanager
def plain_errors() -> Iterator[None]:
    """Turn bad input into one sentence on standard error and exit code 2."""
    try:
        yield
    except (ValueError, OSError, ImportError) as error:
        err.print(f"multihorizon: {' '.join(str(error).split())}", style="red", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None


@contextmanager
def progress_bar(title: str) -> Iterator[Progress]:
    """Show a bar on a terminal while the block runs; the value is what solvers call with share and message."""
    title_column, message_column = (TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[message]}"))
    columns = (title_column, BarColumn(), message_column, TimeElapsedColumn())
    with Bars(*columns, console=err, transient=True) as bars:
        task = bars.add_task(title, total=1.0, message="")

        def report(share: float, message: str) -> None:
            bars.update(task, completed=share, message=message)

        yield report


def make_directory(path: Path) -> Path:
    """Create an output directory, or say why that is impossible."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"--out must be a directory, received the file {path}")
    path.mkdir(parents=True, exist_ok=True)
    return path
