"""Files found, unpacked and recognised: where a file is of another kind, the message says of which, and what to do."""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import IO, cast

#: What unpacking a damaged file raises.
DAMAGED = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, struct.error, NotImplementedError, RuntimeError)
#: How many bytes of a file are read to recognise it.
OPENING_BYTES = 4096
#: How many bytes are looked through at a time. A line that fills such a block is refused: the database drops it in silence if it
#: is the last one and longer than 32 MB, and a small compressed file may hold more of it than memory.
BLOCK = 1 << 23

_AS_CSV = "in the spreadsheet program save it as CSV UTF-8 (comma delimited)"
#: How other kinds of files begin, what they are, and what helps.
_KINDS = (
    (b"PK\x03\x04", "an Excel workbook or a zip archive", _AS_CSV),
    (b"\xd0\xcf\x11\xe0", "an old Excel workbook", _AS_CSV),
    (b"PAR1", "a Parquet file", "let its name end in .parquet"),
    (
        b"\x1f\x8b",
        "compressed by gzip",
        "let its name end in .csv.gz; if it does, it is compressed twice: unpack it once",
    ),
    (b"BZh", "compressed by bzip2", "let its name end in .csv.bz2"),
    (b"\xfd7zXZ", "compressed by xz", "let its name end in .csv.xz"),
    (b"%PDF", "a PDF document", "export the table as CSV"),
    (b"\x89HDF", "an HDF5 file", "export the table as CSV"),
    (b"SQLite format 3", "a database", "export the table as CSV"),
    (b"\xff\xfe", "saved as UTF-16 or UTF-32", "save it as UTF-8; in a spreadsheet program choose CSV UTF-8"),
    (b"\xfe\xff", "saved as UTF-16", "save it as UTF-8; in a spreadsheet program choose CSV UTF-8"),
)
_TEXT_KINDS = (
    (b"<!doctype", "a web page", "download the table itself as CSV"),
    (b"<html", "a web page", "download the table itself as CSV"),
    (b"<?xml", "an XML document", "export the table as CSV"),
    (b"{", "a JSON document", "export the table as CSV"),
    (b"[", "a JSON document", "export the table as CSV"),
)


def existing_file(path: str | Path, what: str) -> Path:
    """The path, if it is a file; `what` names it in the message."""
    file = Path(path)
    try:
        found = file.is_file()
    except (OSError, ValueError) as error:
        raise ValueError(f"{what} must be a file, received a path that cannot be used: {_reason(error)}") from error
    if not found:
        other = "is a pipe or a device: save it to a file first" if file.exists() else f"does not exist{_near(file)}"
        state = "is a directory" if file.is_dir() else other
        raise ValueError(f"{what} must be a file, received {path}, which {state}")
    return file


def _near(file: Path) -> str:
    """A hint at a file of nearly the same name in the same directory, if there is one."""
    try:
        others = [other.name for other in file.parent.iterdir() if other.is_file()]
    except OSError:
        return ""
    near = get_close_matches(file.name, others, n=1, cutoff=0.75)
    return f": did you mean {file.parent / near[0]}?" if near else ""


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def is_other_trouble(error: Exception) -> bool:
    """Whether an error is the system's, such as a missing permission, and not the sign of a damaged file."""
    return isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """The file's content, unpacked by the ending of its name; damage becomes one sentence."""
    ending = path.suffix.lower()
    try:
        with _unpacked(path, ending) as file:
            yield file
    except (*DAMAGED, OSError) as error:
        if is_other_trouble(error):
            raise
        locked = ", protected by a password" if ending == ".zip" else ""
        raise ValueError(
            f"{path} is damaged, cut short{locked}, or no {ending} file: make or download it again, or give the table unpacked, "
            "as .csv"
        ) from error


@contextmanager
def open_csv(path: Path) -> Iterator[IO[str]]:
    """The text of a CSV file, without a byte order mark and with its line breaks as they are."""
    with open_bytes(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        try:
            yield text
        except UnicodeDecodeError as error:
            line, byte = _first_foreign_line(path)
            raise ValueError(
                f"{path}, line {line}: received the byte 0x{byte:02x}, which is not UTF-8. The file was probably saved as "
                "Latin-1 or Windows-1252 (or, if this is its last line, cut short): "
                "save it as UTF-8 (in a spreadsheet program: CSV UTF-8)"
            ) from error


def require_csv(path: Path) -> None:
    """Raise if the file is something other than a CSV table, or has lines that no table has.

    It is read to its end: the checksum of a compressed file stands there, and the database does not look at it.
    """
    with open_bytes(path) as file:
        beginning = file.read(OPENING_BYTES)
        _require_text(path, beginning)
        lines = 1 + beginning.count(b"\n")
        while block := file.read(BLOCK):
            if len(block) == BLOCK and b"\n" not in block and b"\r" not in block:
                raise ValueError(
                    f"{path}, line {lines}: the line must be shorter than {BLOCK >> 20} MB, received a longer one: "
                    "the file is damaged or no table"
                )
            lines += block.count(b"\n")


def _require_text(path: Path, beginning: bytes) -> None:
    """Raise if the beginning of the file shows that it is something other than a CSV table."""
    if not beginning.strip():
        raise ValueError(f"{path} must be a CSV table with a header, received an empty file")
    for mark, kind, help_ in _KINDS:
        if beginning.startswith(mark):
            raise ValueError(f"{path} must be a CSV table, received a file that is {kind}: {help_}")
    text = beginning.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for mark, kind, help_ in _TEXT_KINDS:
        if text.startswith(mark):
            raise ValueError(f"{path} must be a CSV table, received {kind}: {help_}")
    if beginning[257:262] == b"ustar":
        raise ValueError(f"{path} must be a CSV table, received a tar archive: unpack it and give the table in it")
    if b"\x00" in beginning:
        raise ValueError(f"{path} must be a CSV table, received a file that is no text: export the table as CSV UTF-8")


def _unpacked(path: Path, ending: str) -> IO[bytes]:
    if ending == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    if ending == ".bz2":
        return bz2.open(path, "rb")
    if ending == ".xz":
        return lzma.open(path, "rb")
    return _only_member(path) if ending == ".zip" else path.open("rb")


def _only_member(path: Path) -> IO[bytes]:
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
        if len(names) != 1:
            raise ValueError(f"{path} must hold one CSV file, received an archive of {len(names)} files")
        return archive.open(names[0])


def _first_foreign_line(path: Path) -> tuple[int, int]:
    """The first line that is not UTF-8, and its first foreign byte."""
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return number, line[error.start]
    return number, line[-1]
