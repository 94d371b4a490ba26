"""Files that exist, what this library saves in them, and folders for results.

*Reading.* Arrays (`.npz`) and JSON that this library saved; what a file says about itself is checked before it is used.

*Writing.* JSON, and tables that no spreadsheet runs as formulas. Folders for results are checked before the work, and filled with
all files or none. `visible` writes control characters out, so that no terminal obeys them.
"""

from __future__ import annotations

import errno
import json
import lzma
import os
import platform
import re
import shutil
import struct
import tempfile
import unicodedata
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from difflib import get_close_matches
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np
import pandas as pd
from numpy.lib import format as npy
from numpy.typing import NDArray

from multihorizon.checks import Floats

#: What unpacking a damaged file raises.
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error, NotImplementedError, RuntimeError)


def expanded(path: str | Path) -> Path:
    """Expand a ~ at the beginning of a path to the home folder."""
    return Path(os.path.expanduser(path))  # unlike that of Path, it leaves a ~ of an unknown user as it is


def existing_file(path: str | Path, what: str) -> Path:
    """Return the path, if it is a file; `what` names it in the message."""
    file = expanded(path)
    try:
        exists = file.is_file()
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ValueError(f"{what} must be a file, got a path that cannot be used: {reason}") from error
    if not exists:
        state = "is a directory" if file.is_dir() else "is a pipe or a device: save it to a file first"
        if not file.exists():
            readable = file.parent.is_dir() and os.access(file.parent, os.R_OK | os.X_OK)
            others = [other.name for other in file.parent.iterdir() if other.is_file()] if readable else []
            near = get_close_matches(file.name, others, n=1, cutoff=0.75)
            state = "does not exist" + (f": did you mean {file.parent / near[0]}?" if near else "")
        raise ValueError(f"{what} must be a file, got {path}, which {state}")
    return file


def is_other_trouble(error: Exception) -> bool:
    """Say whether an error is the system's, such as a missing permission, and not the sign of a damaged file."""
    return isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)


#: What a spreadsheet takes for the beginning of a formula.
FORMULA = re.compile(r"'*[=+\-@\t\r]")


def spreadsheet_safe(text: str) -> str:
    """Put ' before a label that a spreadsheet would run as a formula; reading takes it away again."""
    return f"'{text}" if FORMULA.match(text) and not _is_number(text) else text


def visible(text: str) -> str:
    """Write control characters out, so that a terminal shows them instead of obeying them."""
    if text.isprintable():
        return text
    # Controls except line breaks and tabs, broken pairs, and changes of direction command the terminal.
    turns = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    written = []
    for c in text:
        kind = unicodedata.category(c)
        commands = (kind == "Cc" and c not in "\n\t") or kind == "Cs" or unicodedata.bidirectional(c) in turns
        written.append(c.encode("unicode_escape").decode("ascii") if commands else c)
    return "".join(written)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_arrays(path: str | Path, what: str) -> dict[str, NDArray[Any]]:
    """Read all arrays of an `.npz` file; `what` names the kind of file in messages, for example "a saved MDP".

    Raises:
        ValueError: if the file is no archive of arrays, is damaged, or claims more than it holds.
    """
    file = existing_file(path, what)
    try:
        with zipfile.ZipFile(file) as archive:
            return {info.filename.removesuffix(".npy"): _read_array(archive, info) for info in archive.infolist()}
    except (*DAMAGED, OSError, ValueError, KeyError, OverflowError, MemoryError, SyntaxError, TypeError) as error:
        if is_other_trouble(error):
            raise
        why = "it is no .npz file" if not zipfile.is_zipfile(file) else "it is damaged or holds something other than plain arrays"
        raise ValueError(f"{path} is not {what}: {why}; write it again") from error


def read_json(path: str | Path, what: str) -> dict[str, Any]:
    """Read the object in a JSON file; `what` names the kind of file in messages."""
    file = existing_file(path, what)
    try:
        content = json.loads(file.read_text(encoding="utf-8"), parse_int=_whole, parse_float=_finite, parse_constant=_finite)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is not {what}: it is no JSON, or cut short") from error
    except ValueError as error:
        raise ValueError(f"{path} is not {what}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not {what}: it holds no JSON object")
    return content


def _finite(text: str) -> float:
    number = float(text)
    if not abs(number) < 1e150:  # larger ones have no finite square
        raise ValueError(f"it holds the number {text[:40]}, which is too large or not a number")
    return number


def _whole(text: str) -> int:
    if len(text) > len(str(np.iinfo(np.int64).min)):
        raise ValueError(f"it holds a number of {len(text)} digits")
    return int(text)


def write_json(path: str | Path, content: dict[str, Any]) -> None:
    """Write an object as JSON; what is not known is null."""
    text = _indented(for_json(content), "\n")
    text = re.sub("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", lambda c: f"\\u{ord(c[0]):04x}", text)  # a terminal obeys these
    expanded(path).write_text(text, encoding="utf-8")


def _indented(value: Any, line: str) -> str:
    """Write JSON with a line for every value, as `json.dumps(value, indent=1)` does, and one line for a very long list."""
    inner = line + " "
    if isinstance(value, dict) and value:
        pairs = (f"{json.dumps(key, ensure_ascii=False)}: {_indented(part, inner)}" for key, part in value.items())
        return "{" + inner + f",{inner}".join(pairs) + line + "}"
    if isinstance(value, list) and 0 < len(value) <= 1000:
        return "[" + inner + f",{inner}".join(_indented(part, inner) for part in value) + line + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def for_json(value: Any) -> Any:
    """Convert a value to the lists, dicts, strings and numbers that JSON has.

    JSON has no NaN and no infinity. NaN, which stands for what is not known, becomes null; an infinite number, which is known,
    becomes the string "infinity" or "-infinity". `read_numbers` reads all three back.
    """
    if isinstance(value, Mapping):
        return {str(k): for_json(v) for k, v in value.items()}
    if is_dataclass(value):
        return for_json(vars(value))
    if isinstance(value, list | tuple):
        return [for_json(v) for v in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub" and np.isfinite(value).all():
        return value.tolist()
    if isinstance(value, np.ndarray | np.generic):
        return for_json(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else "infinity" if value > 0 else "-infinity"
    return value


def read_numbers(value: Any) -> Floats:
    """Read the numbers, in lists of any depth, that `for_json` wrote: null is NaN, "infinity" and "-infinity" are infinite."""
    return np.array(value, dtype=np.float64)


def as_declared(value: Any, declared: Any, what: str) -> None:
    """Raise unless a value, as a file holds it, is what a type hint declares; `what` names it in the message.

    A number may be null or "infinity", and an array a list of lists of equal length. A `TypedDict` must have all its entries.

    Example:
        >>> as_declared({"a": [1.5, None]}, dict[str, list[float]], "sizes")
        >>> as_declared({"a": 3}, dict[str, list[float]], "sizes")
        Traceback (most recent call last):
        ValueError: sizes["a"] must be a list, got 3
    """
    origin = get_origin(declared)
    inner = get_args(declared)

    def refuse(expected: str) -> ValueError:
        return ValueError(f"{what} must be {expected}, got {_short(value)}")

    if origin in (Union, UnionType):
        errors = []
        for kind in () if value is None and NoneType in inner else [kind for kind in inner if kind is not NoneType]:
            try:
                as_declared(value, kind, what)
                break
            except ValueError as error:
                errors.append(error)
        else:
            if errors:
                raise errors[0]
    elif is_typeddict(declared):
        if not isinstance(value, Mapping):
            raise refuse("an object")
        for name, kind in get_type_hints(declared, include_extras=True).items():
            optional = get_origin(kind) is NotRequired
            if name in value:
                as_declared(value[name], get_args(kind)[0] if optional else kind, f'{what}["{name}"]')
            elif not optional:
                raise ValueError(f'{what} must have "{name}", got none')
    elif origin in (dict, Mapping) or declared is dict:
        if not isinstance(value, Mapping):
            raise refuse("an object")
        for name, part in value.items():
            as_declared(part, inner[1] if inner else Any, f'{what}["{name}"]')
    elif origin in (list, tuple):
        if not isinstance(value, list | tuple | np.ndarray):
            raise refuse("a list")
        fixed = origin is tuple and Ellipsis not in inner
        if fixed and len(value) != len(inner):
            raise refuse(f"a list of {len(inner)}")
        for i, part in enumerate(value):
            as_declared(part, inner[i] if fixed else inner[0], f"{what}[{i}]")
    elif origin is np.ndarray:
        if not isinstance(value, list | tuple | np.ndarray):
            raise refuse("a list")
        if np.dtype[np.float64] in inner:
            try:
                read_numbers(value)
            except (TypeError, ValueError):
                raise refuse("numbers in lists of equal length") from None
    elif origin is Literal:
        if value not in inner:
            raise refuse(f"one of {', '.join(map(repr, inner))}")
    elif declared in (bool, int, float, str):
        truth = isinstance(value, bool | np.bool_)
        fits, expected = {
            bool: (truth, "true or false"),
            int: (isinstance(value, Integral) and not truth, "a whole number"),
            float: (
                value is None
                or (isinstance(value, str) and value.lstrip("-") == "infinity")
                or (isinstance(value, Real) and not truth),
                "a number",
            ),
            str: (isinstance(value, str), "text"),
        }[declared]
        if not fits:
            raise refuse(expected)


def _short(value: Any) -> str:
    """Write a value of a file for a message, cut short."""
    text = json.dumps(for_json(value), ensure_ascii=False, default=str) if not isinstance(value, str) else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """Read one array, after its header was compared with the size of what follows."""
    # No method of the zip format compresses more; a file that claims to is damaged or made to exhaust memory.
    tightest_packing = 1100
    if info.file_size > tightest_packing * (info.compress_size + 1):
        raise ValueError(f"{info.filename} claims {info.file_size} bytes")
    with archive.open(info) as member:
        major, _ = npy.read_magic(member)
        shape, fortran, dtype = (npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0)(member)
        content = member.read()
    if dtype.hasobject or int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize != len(content):
        raise ValueError(f"{info.filename} does not hold what its header says")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C") if content else np.zeros(shape, dtype)


def check_output(directory: Path, files: Iterable[str], inputs: Iterable[Path], name: str = "the folder") -> None:
    """Raise if `files` cannot be written to `directory`, which messages call `name`, or would replace one of `inputs`."""
    if directory.exists() and not directory.is_dir():
        raise ValueError(f"{name} must be a directory, got the file {directory}")
    places = (directory, *directory.parents, *directory.absolute().parents)
    nowhere = next((place for place in places if place.is_symlink() and not place.exists()), None)
    if nowhere is not None:
        raise ValueError(
            f"{name} must be a directory, got {directory}, where {nowhere} is a link to {os.readlink(nowhere)}, which does "
            "not exist: make that directory or delete the link"
        )
    nearest = next(place for place in places if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"{name} must be a directory, got {directory}, which is inside the file {nearest}")
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise ValueError(f"{name} must be a place where files can be written, got {directory}: {error.strerror}") from error
    read = {path.resolve() for path in inputs}
    if directory.resolve() in read:
        raise ValueError(f"{name} must be another folder than the one that is read, got {directory}")
    for file in files:
        if (directory / file).resolve() in read:
            raise ValueError(f"{name} would replace the input {directory / file}: choose another directory")
        if (directory / file).is_dir():
            raise ValueError(f"{name} must leave room for the file {file}, got a directory of this name in {directory}")


def write_all(directory: Path, files: Iterable[str], write: Callable[[Path], None]) -> tuple[str, ...]:
    """Let `write` fill a hidden directory inside `directory`, and exchange old files for new ones when all are complete.

    Returns the names among `files` that there are now.

    Args:
        directory: where the files go. It is made if needed.
        files: the names that belong together, which is all that an earlier run may have left. They are taken away before the
            first new file comes in. So files of two runs never stand side by side, whenever the program is killed.
        write: makes the new files, which may lie in folders.

    Raises:
        OSError: naming the directory, if its disk is full or fails. Then the old files are as they were.

    The hidden directory is inside, not beside, because `directory` may be a disk of its own and files move within one disk only.
    Once it is complete, and before the first file moves, it gets a list of what it replaces. If the program is killed after that,
    `finish_exchange` does the rest; if it is killed before, the old files are untouched.
    """
    fresh = not directory.exists()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        finish_exchange(directory)
        prefix = f"{_DRAFT}{_machine()}-{os.getpid()}-"
        with tempfile.TemporaryDirectory(prefix=prefix, dir=directory, ignore_cleanup_errors=True) as draft:
            new, old = Path(draft, "new"), Path(draft, "old")
            new.mkdir()
            write(new)
            made = [str(file.relative_to(new)) for file in sorted(new.rglob("*")) if file.is_file()]
            replaced = [name for name in dict.fromkeys((*files, *made)) if (directory / name).is_file()]
            write_json(Path(draft, "list"), {"replaced": replaced})
            os.replace(Path(draft, "list"), Path(draft, _LIST))
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
    return tuple(name for name in files if (directory / name).is_file())


#: How the names of hidden directories begin, and the list in one whose files are complete.
_DRAFT, _LIST = ".unfinished-", "replaces.json"


def _machine() -> str:
    """Return a name for this computer, of letters and digits: other computers may write to the same disk."""
    return re.sub(r"\W", "", platform.node())[:40] or "here"


def finish_exchange(directory: Path) -> None:
    """Finish what a run that was killed has left in a directory of results, and warn of it.

    Where its files were complete, they take the place of the older ones; where they were not, they are deleted. What belongs to a
    run that still works, or to another computer, stays.
    """
    for draft in sorted(directory.glob(f"{_DRAFT}*")) if directory.is_dir() else ():
        machine, _, number = draft.name.removeprefix(_DRAFT).rpartition("-")[0].rpartition("-")
        if not draft.is_dir() or not number.isdecimal() or machine != _machine() or _works(int(number)):
            continue
        complete = (draft / _LIST).is_file()
        new = draft / "new"
        if complete:
            made = [str(file.relative_to(new)) for file in sorted(new.rglob("*")) if file.is_file()]
            moved = {str(file.relative_to(draft / "old")) for file in (draft / "old").rglob("*") if file.is_file()}
            content = read_json(draft / _LIST, "the list of an unfinished exchange")
            as_declared(content.get("replaced"), list[str], f"{draft / _LIST}: replaced")
            inside = [name for name in content["replaced"] if not Path(name).is_absolute() and ".." not in Path(name).parts]
            # What was not moved away is old: new files come in only when all old ones are away.
            _move([name for name in inside if name not in moved and (directory / name).is_file()], directory, draft / "old")
            _move(made, new, directory)
        shutil.rmtree(draft, ignore_errors=True)
        what = (
            "was stopped while it exchanged the files here: its results, which were complete, are now in place"
            if complete
            else "was stopped before its files were complete: what it had written was deleted, and the older files are untouched"
        )
        warnings.warn(f"{directory}: an earlier run {what}", stacklevel=2)


def _works(process: int) -> bool:
    """Say whether a process of this computer is at work; this one has just begun to write, so it left nothing."""
    if process == os.getpid() or os.name == "nt":  # on Windows the signal below would end it
        return True
    try:
        os.kill(process, 0)
    except (OSError, OverflowError) as error:
        return isinstance(error, PermissionError)
    return True


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
    frame.to_csv(expanded(path), index=False)
