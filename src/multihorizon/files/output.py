"""Directories for results: checked before the work, and filled with all files or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd

from multihorizon.files.labels import spreadsheet_safe


def check_output(directory: Path, files: Iterable[str], inputs: Iterable[Path]) -> None:
    """Raise if `files` cannot be written to `directory`, or if one of them would replace one of `inputs`. Leaves no trace."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--out must be a directory, received the file {directory}")
    nearest = next(place for place in (directory, *directory.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"--out must be a directory, received {directory}, which is inside the file {nearest}")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ValueError(f"--out must be a place where files can be written, received {directory}: {error.strerror}") from error
    read = {path.resolve() for path in inputs}
    if directory.resolve() in read:
        raise ValueError(f"--out must be another folder than the one that is read, received {directory}")
    for name in files:
        if (directory / name).resolve() in read:
            raise ValueError(f"--out would replace the input {directory / name}: choose another directory")
        if (directory / name).is_dir():
            raise ValueError(f"--out must leave room for the file {name}, received a directory of this name in {directory}")


def write_all(directory: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a hidden directory inside `directory`, and move its files only when all are complete.

    The hidden directory is inside, not beside, because `directory` may be a disk of its own and files move within one disk only.
    """
    fresh = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=directory))
    try:
        write(draft)
        for file in draft.iterdir():
            os.replace(file, directory / file.name)
    except BaseException:
        shutil.rmtree(directory if fresh else draft, ignore_errors=True)
        raise
    shutil.rmtree(draft, ignore_errors=True)


def write_csv(frame: pd.DataFrame, path: str | Path) -> None:
    """Write a table; text that a spreadsheet would run as a formula gets ' before it, and `read_csv` takes it away."""
    frame = frame.rename(columns=lambda name: spreadsheet_safe(str(name)))
    for column in frame.select_dtypes(exclude="number"):
        changed = {v: spreadsheet_safe(v) for v in frame[column].unique() if isinstance(v, str) and spreadsheet_safe(v) != v}
        if changed:
            frame[column] = frame[column].replace(changed)
    frame.to_csv(path, index=False)
