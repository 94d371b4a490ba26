"""Files as one relation of an embedded database (DuckDB), which reads, orders and counts tables that are larger than memory.

CSV is read as text, strictly by RFC 4180: cells between commas, quotation marks doubled inside quotation marks. One column more
than the header has is asked for, so that a row that is too long or too short shows. A file that departs from this is first
written anew by Python's reader (`csv_text`), which takes more and says on which line a mistake is.
"""

from __future__ import annotations

import csv
import shutil
import tempfile
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb

from multihorizon.files.csv_text import lines_of, read_header, read_records
from multihorizon.files.opening import require_csv

#: What the database keeps in memory; the rest goes to temporary files. Ten million rows must fit in a gigabyte with all else.
MEMORY = "600MB"
#: The column that has content only where a row of a CSV file has too many cells.
EXTRA = "cell after the last column"
#: What no cell of a text file holds: it tells a cell that is not there from one that is empty.
NO_CELL = "\x01"
_UNPACKED_BY_PYTHON = (".bz2", ".xz", ".zip")


@dataclass(frozen=True, eq=False)
class Scan:
    """Files that are read as one table.

    Attributes:
        name: the file or folder, as the user gave it.
        files: the files in their order, for messages.
        read: the files that the database reads: the same, or copies of them.
        function, options: the table function that reads them, and its options, in SQL.
        types: the type of each column, in the order of the files.
        kept: what must not be deleted while the scan is used.
        ends: the number of rows up to the end of each file, if known.
    """

    name: str
    files: tuple[Path, ...]
    read: tuple[Path, ...]
    function: str
    options: str
    types: dict[str, str]
    kept: Any = None
    ends: tuple[int, ...] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Other processes get no copies of the files to keep."""
        return {**self.__dict__, "kept": None}

    @property
    def is_csv(self) -> bool:
        """Whether all cells are text."""
        return self.function == "read_csv"

    @property
    def padded(self) -> bool:
        """Whether rows may be longer or shorter than the header: then the column `EXTRA` or the last one shows it."""
        return "null_padding" in self.options

    @property
    def relation(self) -> str:
        """The table in SQL."""
        return self._relation(self.read)

    def place(self, row: int) -> str:
        """Where a row of data stands: the line of a CSV file, the row of another; and the file, where there are several."""
        return self.places([row])[row]

    def places(self, rows: Collection[int]) -> dict[int, str]:
        """The same of many rows; each file is read once."""
        found: dict[int, str] = {}
        ends = self._ends if len(self.files) > 1 else [max(rows, default=-1) + 1]
        for file, start, end in zip(self.files, [0, *ends], ends, strict=False):
            own = [row - start for row in rows if start <= row < end]
            lines = lines_of(file, own) if own and self.is_csv else {row: f"row {row} (counted from 0)" for row in own}
            before = f"{file.name}, " if len(self.files) > 1 else ""
            found |= {row + start: f"{before}{words}" for row, words in lines.items()}
        return found

    @cached_property
    def _ends(self) -> list[int]:
        """The number of rows up to the end of each file."""
        if self.ends is not None:
            return list(self.ends)
        with connect() as database:
            counts = [database.execute(f"SELECT count(*) FROM {self._relation([file])}").fetchall()[0][0] for file in self.read]
        return list(accumulate(counts))

    def _relation(self, files: Sequence[Path]) -> str:
        paths = ", ".join(text(_literal(file)) for file in files)
        return f"{self.function}([{paths}], {self.options})"


class _Folder:
    """A temporary folder that is deleted with the object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="multihorizon-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def connect() -> duckdb.DuckDBPyConnection:
    """A database in memory that spills to a temporary folder of its own and never reaches for the network."""
    folder = Path(tempfile.gettempdir(), f"multihorizon-{uuid4()}")  # made when needed, deleted on closing
    options: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": str(folder), "autoinstall_known_extensions": "false"}
    database = duckdb.connect(config=options)
    database.execute("SET enable_progress_bar = false")
    return database


def scan_csv(name: str, files: Sequence[Path]) -> Scan:
    """The scan of CSV files with one header; files that the database cannot unpack are written anew first."""
    if any(file.suffix.lower() in _UNPACKED_BY_PYTHON for file in files):
        return rewritten(name, files)
    names, lines = _common_header(files)
    padding = f", null_padding=true, nullstr={text(NO_CELL)}"
    options = _csv_options((*names, EXTRA), lines) + padding
    return Scan(name, tuple(files), tuple(files), "read_csv", options, dict.fromkeys(names, "VARCHAR"))


def scan_parquet(name: str, files: Sequence[Path]) -> Scan:
    """The scan of Parquet files; a column that some of them lack is empty there."""
    found = Scan(name, tuple(files), tuple(files), "read_parquet", "union_by_name=true", {})
    try:
        with connect() as database:
            described = database.execute(f"DESCRIBE SELECT * FROM {found.relation}").fetchall()
    except duckdb.Error as error:
        raise ValueError(f"{name} is damaged or no Parquet file: write it again, or save the table as CSV") from error
    return replace(found, types={row[0]: row[1] for row in described})


def rewritten(name: str, files: Sequence[Path]) -> Scan:
    """The scan of CSV files that Python's reader writes anew in a temporary folder, row by row.

    Raises:
        ValueError: where the files are no tables, naming the line.
    """
    folder = _Folder()
    names, _ = _common_header(files)
    copies = [_copied(file, folder.path / f"{number}.csv", len(names)) for number, file in enumerate(files)]
    types = dict.fromkeys(names, "VARCHAR")
    return Scan(name, tuple(files), tuple(copies), "read_csv", _csv_options(names, 0), types, kept=folder)


def quoted(name: str) -> str:
    """A name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """A text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def _copied(file: Path, copy: Path, columns: int) -> Path:
    try:
        with copy.open("w", encoding="utf-8", newline="") as target:
            csv.writer(target, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(read_records(file, columns))
    except OSError as error:
        error.filename = error.filename or str(copy)  # a full disk names no file
        raise
    return copy


def _csv_options(names: Sequence[str], lines: int) -> str:
    columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in names)
    marks = "delim=',', quote='\"', escape='\"', strict_mode=true"
    return f"auto_detect=false, header=false, skip={lines}, {marks}, columns={{{columns}}}"


def _common_header(files: Sequence[Path]) -> tuple[tuple[str, ...], int]:
    """The header that all files have, and its number of lines."""
    for file in files:
        require_csv(file)
    headers = [read_header(file) for file in files]
    other = next((i for i, header in enumerate(headers) if header != headers[0]), None)
    if other is not None:
        raise ValueError(
            f"{files[other]} must begin like {files[0].name}, with the columns {', '.join(headers[0].names)}, "
            f"received {', '.join(headers[other].names)}"
        )
    return headers[0].names, headers[0].lines


def _literal(file: Path) -> str:
    """The path, in which no character stands for others."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in str(file.absolute()))
