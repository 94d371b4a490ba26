"""What this library saved: arrays (`.npz`) and JSON. What a file says about itself is checked before it is used."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from multihorizon.checks import Floats
from multihorizon.files.opening import DAMAGED, existing_file, is_other_trouble

#: No method of the zip format compresses more; a file that claims to is damaged or made to exhaust memory.
TIGHTEST_PACKING = 1100


def read_arrays(path: str | Path, what: str) -> dict[str, NDArray[Any]]:
    """All arrays of an `.npz` file; `what` names the kind of file in messages, for example "a saved MDP".

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
    """The object in a JSON file; `what` names the kind of file in messages."""
    file = existing_file(path, what)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not {what}: it is no JSON, or cut short") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not {what}: it holds no JSON object")
    return content


def write_json(path: str | Path, content: dict[str, Any]) -> None:
    """Write an object as JSON; what is not known is null."""
    text = json.dumps(for_json(content), indent=1, ensure_ascii=False, allow_nan=False)
    text = re.sub("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", lambda c: f"\\u{ord(c[0]):04x}", text)  # a terminal obeys these
    Path(path).write_text(text, encoding="utf-8")


def for_json(value: Any) -> Any:
    """The same content as lists, dicts, strings and numbers that JSON has.

    JSON has no NaN and no infinity. NaN, which stands for what is not known, becomes null; an infinite number, which is known,
    becomes the string "infinity" or "-infinity". `read_numbers` reads all three back.
    """
    if isinstance(value, dict):
        return {str(k): for_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [for_json(v) for v in value]
    if isinstance(value, np.ndarray | np.generic):
        return for_json(value.tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else "infinity" if value > 0 else "-infinity"
    return value


def read_numbers(value: Any) -> Floats:
    """The numbers, in lists of any depth, that `for_json` wrote: null is NaN, "infinity" and "-infinity" are infinite."""
    return np.array(value, dtype=np.float64)


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, after its header was compared with the size of what follows."""
    if info.file_size > TIGHTEST_PACKING * (info.compress_size + 1):
        raise ValueError(f"{info.filename} claims {info.file_size} bytes")
    with archive.open(info) as member:
        shape, fortran, dtype = _read_header(member)
        content = member.read()
    if dtype.hasobject or int(np.prod([int(n) for n in shape], dtype=object)) * dtype.itemsize != len(content):
        raise ValueError(f"{info.filename} does not hold what its header says")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C") if content else np.zeros(shape, dtype)


def _read_header(member: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    major, _ = npy.read_magic(member)
    read = npy.read_array_header_1_0 if major == 1 else npy.read_array_header_2_0
    header: tuple[tuple[int, ...], bool, np.dtype[Any]] = read(member)
    return header
