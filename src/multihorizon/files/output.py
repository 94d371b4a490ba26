"""Directories for results: checked before the work, and filled with all files or none."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pandas as pd

from multihorizon.files.labels import spreadsheet_safe, visible


def check_output(directory: Path, files: Iterable[str], inputs: Iterable[Path]) -> None:
    """Raise if `files` cannot be written to `directory`, or if one of them would replace one of `inputs`. Leaves no trace."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"--out must be a directory, received the file {directory}")
    places = (directory, *directory.parents, *directory.absolute().parents)
    nowhere = next((place for place in places if place.is_symlink() and not place.exists()), None)
    if nowhere is not None:
        raise ValueError(
            f"--out must be a directory, received {directory}, where {nowhere} is a link to {os.readlink(nowhere)}, which does "
            "not exist: make that directory or delete the link"
        )
    nearest = next(place for place in places if place.exists())
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


def write_all(directory: Path, files: Iterable[str], write: Callable[[Path], None]) -> None:
    """Let `write` fill a hidden directory inside `directory`, and exchange old files for new ones when all are complete.

    Args:
        directory: where the files go. It is made if needed.
        files: the names that belong together, which is all that an earlier run may have left. They are taken away before the
            first new file comes in. So files of two runs never stand side by side, whenever the program is killed.
        write: makes the new files, which may lie in folders.

    Raises:
        OSError: naming the directory, if its disk is full or fails. Then the old files are as they were.

    The hidden directory is inside, not beside, because `directory` may be a disk of its own and files move within one disk only.
    """
    fresh = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=directory, ignore_cleanup_errors=True) as draft:
            new, old = Path(draft, "new"), Path(draft, "old")
            new.mkdir()
            write(new)
            made = [str(file.relative_to(new)) for file in sorted(new.rglob("*")) if file.is_file()]
            replaced = [name for name in dict.fromkeys((*files, *made)) if (directory / name).is_file()]
            try:
                _move(replaced, directory, old)
                _move(made, new, directory)
            except BaseException:
                _move([name for name in made if not (new / name).exists()], directory, new)
                _move([name for name in replaced if (old / name).exists()], old, directory)
                raise
    except BaseException as error:
        if fresh:
            shutil.rmtree(directory, ignore_errors=True)
        if isinstance(error, OSError):
            error.filename = str(directory)  # a full disk names no file
        raise


def _move(names: Iterable[str], source: Path, target: Path) -> None:
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(source / name, target / name)


def write_csv(frame: pd.DataFrame, path: str | Path, read_again: bool = False) -> None:
    """Write a table; text that a spreadsheet would run as a formula gets ' before it, and `read_csv` takes it away.

    Control characters are written out, as on the terminal, except in a table that is to be `read_again` with the same labels.
    """

    def written(text: str) -> str:
        return spreadsheet_safe(text if read_again else visible(text))

    frame = frame.rename(columns=lambda name: written(str(name)))
    for column in frame.select_dtypes(exclude="number"):
        changed = {v: written(v) for v in frame[column].unique() if isinstance(v, str) and written(v) != v}
        if changed:
            frame[column] = frame[column].replace(changed)
    frame.to_csv(path, index=False)
