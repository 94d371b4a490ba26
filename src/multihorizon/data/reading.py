"""Files become tables: found, opened, read through a database, and every cell with its place for messages.

*Which files.* CSV and Parquet, by the ending of the name; a folder of files of one kind is one table. Where a file is of another
kind, the message says of which, and what to do.

*A scan* is a file, or several, as one relation of an embedded database (DuckDB), which reads, orders and counts tables that are
larger than memory. CSV is read as text, strictly by RFC 4180: cells between commas, quotation marks doubled inside quotation
marks. One column more than the header has is asked for, so that a row that is too long or too short shows.

*Python's own reader* takes any CSV file that spreadsheets and statistics programs write, and says on which line a mistake is. It
is slow, so it reads headers, and those files that the database refuses. Messages count lines as an editor does: the header is
line 1, and blank lines count.

*A table* is what was loaded, with the place of each row. Its labels are whole numbers in the order of numbers, then text. No
label is ever taken for another: where one is unknown, the message says which name comes closest.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import os
import shutil
import tempfile
import weakref
import zipfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, islice
from pathlib import Path
from typing import IO, Any, Literal, cast
from uuid import uuid4

import duckdb
import numpy as np
import pandas as pd

from multihorizon.checks import LARGEST_NUMBER, LARGEST_WHOLE, Bools, Floats, Ints, as_frame, closest, first_few, label
from multihorizon.files import DAMAGED, FORMULA, existing_file, expanded, is_other_trouble

#: How many bytes are looked through at a time. A line that fills such a block is refused: the database drops it in silence if it
#: is the last one and longer than 32 MB, and a small compressed file may hold more of it than memory.
BLOCK = 1 << 23
#: What the database keeps in memory; the rest goes to temporary files. Ten million rows must fit in a gigabyte with all else.
MEMORY = "600MB"
#: The column that has content only where a row of a CSV file has too many cells.
EXTRA = "cell after the last column"
#: Files that are no tables of ours, by the ending of their names, and what helps.
OTHER_ENDINGS = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "in the spreadsheet program save it as CSV UTF-8"),
    **dict.fromkeys((".tsv", ".txt"), "separate its columns by commas and let its name end in .csv"),
    ".json": "export the table as CSV",
    ".rds": 'in R, write.csv(table, "table.csv", row.names = FALSE) makes a CSV',
    ".zst": "compress it as .csv.gz",
}


#: What columns of a table of decisions are called in a file, by their own names: one column, or several to be joined.
Columns = Mapping[str, str | Sequence[str]]
#: The columns of a table of decisions.
NAMES = ("expert", "episode", "step", "state", "action", "next_state")
#: Those of them whose labels may be replaced by others; next states follow states.
RECODED = ("expert", "state", "action")
#: What stands between labels that were joined.
BETWEEN = ", "
#: What the last column of a file is called where columns have other names: it shows rows that are too short.
LAST = "the last column of the file"


def read_table(
    path: str | Path,
    what: str,
    labels: Sequence[str],
    needed: Sequence[str] | None = None,
    columns: Columns | None = None,
    beside: bool = False,
) -> InputTable:
    """Read a file by the ending of its name; `what` names it in messages.

    Columns named in `labels` are kept as text. With `needed`, only these columns are read, those of them that are there.
    `columns` says what columns are called in the file. A table `beside` the decisions may call them by their own names as well,
    and columns that are joined are no others of it.
    """
    scan = scan_files(str(path), [_one_file(path, what)])
    if beside:
        parts = {name: [made] if isinstance(made, str) else [*made] for name, made in (columns or {}).items()}
        columns = {name: made for name, made in parts.items() if name not in scan.types and {*made} <= {*scan.types}}
        joined = {source for made in sources_of(columns, list(scan.types), scan.name).values() for source in made}
        needed = [name for name in scan.called(columns).types if name not in joined] if needed is None else needed
    return load(scan.called(columns), labels, needed)


def sources_of(columns: Columns, there: Sequence[str], name: str) -> dict[str, tuple[str, ...]]:
    """Return of which columns of a table each column of a table of decisions is made.

    Where states are made of other columns, next states are made of those with `next_` before their names, if all are there.

    Raises:
        ValueError: for a column that tables of decisions do not have, and for one that this table does not have.
    """
    every = {target: (given,) if isinstance(given, str) else tuple(given) for target, given in columns.items()}
    if "state" in every and "next_state" not in every and set(after := [f"next_{one}" for one in every["state"]]) <= {*there}:
        every["next_state"] = tuple(after)
    for target, sources in every.items():
        if target not in NAMES:
            raise ValueError(f"columns must name {', '.join(NAMES)}, each with the column of the table, got {target}")
        missing = next((source for source in sources if source not in there), None)
        if missing is not None or not sources:
            close = closest(str(missing), there)
            hint = f": is it {close}?" if close else ""
            if {*NAMES[:2], *NAMES[3:5]} <= {*there}:
                hint = ": the table has the standard names, so leave out columns="
            raise ValueError(f"{name} must have the column {missing}, which is to be {target}, got {first_few(there)}{hint}")
    return every


def called_in_frame(frame: pd.DataFrame, columns: Columns | None, name: str) -> pd.DataFrame:
    """Return a data frame whose columns have the names of a table of decisions."""
    made: dict[str, Any] = {}
    for target, sources in sources_of(columns or {}, [str(column) for column in frame.columns], name).items():
        made[target] = frame[sources[0]]
        if len(sources) > 1:
            blank = frame[list(sources)].isna().any(axis=1)
            parts = [frame.loc[~blank, source].map(partial(label, name=f"column {source}")) for source in sources]
            if any(part.str.contains(BETWEEN, regex=False).any() for part in parts):
                raise ValueError(_joint_inside(name, sources))
            made[target] = pd.Series(list(zip(*parts, strict=True)), parts[0].index, dtype=object).map(BETWEEN.join)
    return frame.assign(**made) if made else frame


def _joint_inside(name: str, sources: Sequence[str]) -> str:
    return (
        f"{name}: labels in the columns {', '.join(sources)} must not contain {BETWEEN!r} to be joined by it, got one that "
        "does: write them without the blank"
    )


#: What stands between the names of files that are one table.
JOINT = " + "


def joint_name(path: str | Path | Sequence[str | Path]) -> str:
    """Return the name of a table in messages: that of its file or folder, or those of several."""
    return str(path) if isinstance(path, str | Path) else JOINT.join(map(str, path))


def files_of(path: str | Path | Sequence[str | Path], what: str) -> list[Path]:
    """Return the file, the tables of a folder in the order of their names, or those of several files and folders.

    Raises:
        ValueError: where a folder has no tables, or CSV and Parquet files side by side.
    """
    if not isinstance(path, str | Path):
        files = [file for one in path for file in files_of(one, what)]
        if len({file_kind(file) for file in files}) > 1:
            raise ValueError(f"{what} must be files of one kind, got .csv and .parquet files: {joint_name(path)}")
        twice = [file for file, times in Counter(file.resolve() for file in files).items() if times > 1]
        if twice:
            raise ValueError(f"{what} must name each file once, got {twice[0].name} twice")
        return files
    folder = expanded(path)
    if not os.path.isdir(folder):  # unlike that of Path, it takes any text
        return [_one_file(path, what)]
    files = sorted(
        file for file in folder.iterdir() if file.is_file() and not file.name.startswith((".", "_")) and file_kind(file)
    )
    if not files:
        raise ValueError(f"{what} must be a file or a folder of .csv or .parquet files, got {path}, a folder without any")
    if len({file_kind(file) for file in files}) > 1:
        raise ValueError(f"{what} must be files of one kind, got a folder with .csv and .parquet files: {path}")
    return files


def columns_of(path: str | Path, what: str) -> tuple[str, ...]:
    """Return the columns of a table, a file or a folder of files, of which no more than the header is read."""
    files = files_of(path, what)
    if file_kind(files[0]) == "Parquet":
        return tuple(scan_parquet(str(path), files).types)
    with open_bytes(files[0]) as file:
        _require_text(files[0], file.read(4096))
    return read_header(files[0])[0]


def _one_file(path: str | Path, what: str) -> Path:
    """Return the path, if it is a file whose name ends as that of a table."""
    file = existing_file(path, what)
    if not file_kind(file):
        hint = OTHER_ENDINGS.get(file.suffix.lower(), "let its name end in what it is")
        raise ValueError(f"{what} must be a .csv or .parquet file, got {file}: {hint}")
    return file


def file_kind(file: Path) -> str:
    """ "Parquet", "CSV" or nothing, by the ending of the name."""
    if file.suffix.lower() in (".parquet", ".pq"):
        return "Parquet"
    is_csv = ".csv" in [ending.lower() for ending in file.suffixes] and file.suffix.lower() not in OTHER_ENDINGS
    return "CSV" if is_csv else ""


def scan_files(name: str, files: Sequence[Path]) -> Scan:
    """Return the scan of one file or of several of one kind, by the ending of their names."""
    return scan_parquet(name, files) if file_kind(files[0]) == "Parquet" else scan_csv(name, files)


def scan_csv(name: str, files: Sequence[Path]) -> Scan:
    """Return the scan of CSV files with one header; files that the database cannot unpack are written anew first."""
    unpacked_by_python = (".bz2", ".xz", ".zip")
    if any(file.suffix.lower() in unpacked_by_python for file in files):
        return rewritten(name, files)
    names, lines = _common_header(files)
    # What no cell of a text file holds: it distinguishes a cell that is not there from one that is empty.
    no_cell = "\x01"
    padding = f", null_padding=true, nullstr={text(no_cell)}"
    options = _csv_options((*names, EXTRA), lines) + padding
    return Scan(name, tuple(files), tuple(files), "read_csv", options, dict.fromkeys(names, "VARCHAR"))


def _csv_options(names: Sequence[str], lines: int) -> str:
    columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in names)
    marks = "delim=',', quote='\"', escape='\"', strict_mode=true"
    return f"auto_detect=false, header=false, skip={lines}, {marks}, columns={{{columns}}}"


def _common_header(files: Sequence[Path]) -> tuple[tuple[str, ...], int]:
    """Return the header that all files have, and its number of lines."""
    for file in files:
        require_csv(file)
    headers = [read_header(file) for file in files]
    other = next((i for i, header in enumerate(headers) if header != headers[0]), None)
    if other is not None:
        raise ValueError(
            f"{files[other]} must begin like {files[0].name}, with the columns {', '.join(headers[0][0])}, "
            f"got {', '.join(headers[other][0])}"
        )
    return headers[0]


def scan_parquet(name: str, files: Sequence[Path]) -> Scan:
    """Return the scan of Parquet files; a column that some of them lack is empty there."""
    scan = Scan(name, tuple(files), tuple(files), "read_parquet", "union_by_name=true", {})
    try:
        with connect() as database:
            described = database.execute(f"DESCRIBE SELECT * FROM {scan.relation}").fetchall()
    except duckdb.Error as error:
        raise damaged(scan, error) from error
    return replace(scan, types={row[0]: row[1] for row in described})


def rewritten(name: str, files: Sequence[Path]) -> Scan:
    """Return the scan of CSV files that Python's reader writes anew in a temporary folder, row by row.

    Raises:
        ValueError: where the files are no tables, naming the line.
    """
    folder = _Folder()
    names, _ = _common_header(files)
    copies = [folder.path / f"{number}.csv" for number in range(len(files))]
    for file, copy in zip(files, copies, strict=True):
        try:
            with copy.open("w", encoding="utf-8", newline="") as target:
                csv.writer(target, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(read_records(file, len(names)))
        except OSError as error:
            error.filename = error.filename or str(copy)  # a full disk names no file
            raise
    types = dict.fromkeys(names, "VARCHAR")
    return Scan(name, tuple(files), tuple(copies), "read_csv", _csv_options(names, 0), types, kept=folder)


class _Folder:
    """A temporary folder that is deleted with the object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="multihorizon-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class Scan:
    """Files that are read as one table.

    Attributes:
        name: the file or folder, as the user gave it.
        files: the files in their order, for messages.
        read: the files that the database reads: the same, or copies of them.
        function, options: the table function that reads them, and its options, in SQL.
        types: the type of each column, in the order of the files.
        columns: what columns are called in the files.
        selected: the columns in SQL, where they are not those of the files.
        kept: what must not be deleted while the scan is used.
    """

    name: str
    files: tuple[Path, ...]
    read: tuple[Path, ...]
    function: str
    options: str
    types: dict[str, str]
    columns: Columns = field(default_factory=dict)
    selected: str = ""
    kept: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave copies of the files out of what other processes get."""
        return {**self.__dict__, "kept": None}

    @property
    def is_csv(self) -> bool:
        """Say whether all cells are text."""
        return self.function == "read_csv"

    def is_larger(self, text: int, rows: int) -> bool:
        """Return whether there are more bytes of text or, in files that know their number, more rows than these."""
        if self.is_csv:  # a byte of a compressed file stands for about eight
            return sum(file.stat().st_size * (1 if file.suffix == ".csv" else 8) for file in self.read) > text
        with connect() as database:
            return int(database.execute(f"SELECT count(*) FROM {self.relation}").fetchall()[0][0]) > rows

    @property
    def padded(self) -> bool:
        """Say whether rows may be longer or shorter than the header: then the column `EXTRA` or the last one shows it."""
        return "null_padding" in self.options

    @property
    def odd(self) -> str:
        """Return whether a row is longer or shorter than the header, in SQL."""
        last = LAST if self.selected else list(self.types)[-1]
        return f"({quoted(EXTRA)} IS NOT NULL OR {quoted(last)} IS NULL)" if self.padded else "false"

    @property
    def relation(self) -> str:
        """Return the table in SQL."""
        rows = self._relation(self.read)
        return f"(SELECT {self.selected} FROM {rows})" if self.selected else rows

    def called(self, columns: Columns | None) -> Scan:
        """Return the scan of the same files whose columns have the names of a table of decisions.

        Raises:
            ValueError: where a column is not there, and where a label could be joined from others in two ways.
        """
        if not columns:
            return self
        made = sources_of(columns, list(self.types), self.name)
        written: dict[str, tuple[str, str]] = {}
        for name, kind in self.types.items():
            for target in (target for target, sources in made.items() if sources[0] == name):
                written[target] = (quoted(name), kind) if len(made[target]) == 1 else (self._joined(made[target]), "VARCHAR")
            if (name,) not in made.values() and name not in made:
                written[name] = quoted(name), kind
        cells = [f"{cell} AS {quoted(name)}" for name, (cell, _) in written.items()]
        cells += [quoted(EXTRA), f"{quoted(list(self.types)[-1])} AS {quoted(LAST)}"] if self.padded else []
        types = {name: kind for name, (_, kind) in written.items()}
        return replace(self, types=types, columns=columns, selected=", ".join(cells))

    def _joined(self, sources: Sequence[str]) -> str:
        """Return one label made of several columns, in SQL; blank where one of them is."""
        labels = [_label(quoted(source), self.types[source]) for source in sources]
        held = " OR ".join(f"contains({one}, {text(BETWEEN)})" for one in labels)
        with connect() as database, suppress(duckdb.Error):  # files that cannot be read are refused later, with the line
            if database.execute(f"SELECT 1 FROM {self.relation} WHERE {held} LIMIT 1").fetchall():
                raise ValueError(_joint_inside(self.name, sources))
        return f" || {text(BETWEEN)} || ".join(labels)

    def place(self, row: int) -> str:
        """Return where a row of data is: the line of a CSV file, the row of another; and the file, where there are several."""
        return self.places([row])[row]

    def places(self, rows: Collection[int]) -> dict[int, str]:
        """Return the same of many rows; each file is read once."""
        words_of: dict[int, str] = {}
        ends = self._ends if len(self.files) > 1 else [max(rows, default=-1) + 1]
        for file, start, end in zip(self.files, [0, *ends], ends, strict=False):
            inside = [row - start for row in rows if start <= row < end]
            lines = lines_of(file, inside) if inside and self.is_csv else {row: _row(row) for row in inside}
            before = f"{file.name}, " if len(self.files) > 1 else ""
            words_of |= {row + start: f"{before}{words}" for row, words in lines.items()}
        return words_of

    def file_of(self, rows: Ints) -> Ints:
        """Return which of the files each row of data is in, `(N,)`."""
        if len(self.files) == 1:
            return np.zeros(len(rows), dtype=np.int64)
        return np.searchsorted(self._ends, rows, side="right").astype(np.int64)

    @cached_property
    def _ends(self) -> list[int]:
        """Return the number of rows up to the end of each file."""
        with connect() as database:
            counts = [database.execute(f"SELECT count(*) FROM {self._relation([file])}").fetchall()[0][0] for file in self.read]
        return list(accumulate(counts))

    def _relation(self, files: Sequence[Path]) -> str:
        # Between brackets no character stands for others.
        names = ("".join(f"[{c}]" if c in "*?[" else c for c in str(file.absolute())) for file in files)
        paths = ", ".join(map(text, names))
        return f"{self.function}([{paths}], {self.options})"


def connect() -> duckdb.DuckDBPyConnection:
    """Return a database in memory that spills to a temporary folder of its own and never reaches for the network."""
    folder = Path(tempfile.gettempdir(), f"multihorizon-{uuid4()}")  # made when needed, deleted on closing
    options: dict[str, Any] = {"memory_limit": MEMORY, "temp_directory": str(folder), "autoinstall_known_extensions": "false"}
    database = duckdb.connect(config=options)
    database.execute("SET enable_progress_bar = false")
    return database


def quoted(name: str) -> str:
    """Return a name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def _label(cell: str, kind: str) -> str:
    """Return the label in a cell, in SQL; nothing where it is blank."""
    if kind in ("FLOAT", "DOUBLE"):
        return f"CASE WHEN {cell} = round({cell}) THEN {cell}::HUGEINT::VARCHAR ELSE {cell}::VARCHAR END"
    return rf"nullif(regexp_replace(trim({cell}::VARCHAR), '^(-?\d+)\.0*$', '\1'), '')"


def text(value: str) -> str:
    """Return a text in SQL."""
    return "'" + value.replace("'", "''") + "'"


#: Files of more bytes, or of more rows, are large: loading them takes long, and some hundred bytes of memory for each row.
LARGE_BYTES, LARGE_ROWS = 16_000_000, 500_000


def load(scan: Scan, labels: Sequence[str], needed: Sequence[str] | None = None, most: int | None = None) -> InputTable:
    """Read the rows of a scan; a CSV file that the database cannot read, or reads with odd rows, is written anew first.

    With `most`, a large table is read in little memory.

    Raises:
        ValueError: where there are more rows than `most`.
    """
    names = [name for name in scan.types if needed is None or name in needed]
    cells = [f"nullif({quoted(name)}, '') AS {quoted(name)}" if scan.is_csv else quoted(name) for name in names]
    selected = f"SELECT {', '.join([*cells, f'{scan.odd} AS {quoted(EXTRA)}'])} FROM {scan.relation}"
    try:
        with connect() as database:
            if most is not None and scan.is_larger(LARGE_BYTES, LARGE_ROWS):
                selected = _packed(database, selected, scan, [name for name in names if name in labels], most)
            frame = as_frame(database.sql(selected), scan.name)
    except duckdb.Error as error:
        if not scan.padded:
            raise damaged(scan, error) from error
        return load(rewritten(scan.name, scan.files).called(scan.columns), labels, needed, most)
    if frame.pop(EXTRA).any():
        return load(rewritten(scan.name, scan.files).called(scan.columns), labels, needed, most)
    return as_table(frame, scan, labels)


def _packed(database: duckdb.DuckDBPyConnection, selected: str, scan: Scan, labels: Sequence[str], most: int) -> str:
    """Return the query in which each label of a large table is kept once."""
    database.execute(f"CREATE TEMP TABLE loaded AS {selected}")
    size = int(database.execute("SELECT count(*) FROM loaded").fetchall()[0][0])
    if size > most:
        raise ValueError(f"{scan.name} must have at most {most:,} rows to be checked at once, got {size:,}")
    columns = [quoted(name) for name in labels if scan.types[name] == "VARCHAR"]
    for i, column in enumerate(columns):
        kept = f"SELECT DISTINCT {column} FROM loaded WHERE {column} IS NOT NULL ORDER BY 1"
        database.execute(f"CREATE TYPE text{i} AS ENUM ({kept})")
    cells = ", ".join(f"{column}::text{i} AS {column}" for i, column in enumerate(columns))
    return f"SELECT * REPLACE ({cells}) FROM loaded" if columns else "SELECT * FROM loaded"


def damaged(scan: Scan, error: duckdb.Error) -> ValueError:
    """Return what is said of files that the database cannot read."""
    if scan.is_csv:
        return ValueError(f"{scan.name} is damaged, or cannot be read: {str(error).splitlines()[0]}")
    return ValueError(f"{scan.name} is damaged or no Parquet file: write it again, or save the table as CSV")


def as_table(frame: pd.DataFrame, scan: Scan, labels: Sequence[str], rows: Sequence[int] | None = None) -> InputTable:
    """Return rows of a scan, all of them or those of the given numbers, as a table that knows their places."""
    place = scan.place if rows is None else partial(moved, scan.place, rows)
    if not scan.is_csv:
        return InputTable(frame, scan.name, place, scan=scan)
    for column in frame.columns:
        if column not in labels:
            frame[column] = numbers_or_text(frame[column])
    return InputTable(frame, scan.name, place, spreadsheet_label, scan)


def moved(place: Callable[[int], str], rows: Sequence[int] | Ints, row: int) -> str:
    """Return the place of a row that was row `rows[row]` before."""
    return place(int(rows[row]))


def numbers_or_text(cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return the cells as numbers or truth values, if all that are not blank are, and as text otherwise."""
    given = cells.dropna()
    if len(given) and given.str.lower().isin(["true", "false"]).all():
        return cells.str.lower().map({"true": True, "false": False})
    try:
        return as_numbers(cells, errors="raise")
    except (ValueError, TypeError):
        return cells


def as_numbers(cells: pd.Series[Any], errors: Literal["raise", "coerce"] = "coerce") -> pd.Series[Any]:
    """Return the same as `pd.to_numeric`, which breaks at whole numbers of more than 308 digits: these are infinite."""
    try:
        return pd.to_numeric(cells, errors=errors)
    except OverflowError:
        longest = 300
        long = cells.astype(str).str.strip().str.fullmatch(rf"[+-]?\d{{{longest},}}")
        return pd.to_numeric(cells.mask(long, np.inf), errors=errors)


#: What statistics programs write for a value that is missing, in small letters.
MISSING = ("", "na", "n/a", "nan", "null")


def numbers_or_missing(cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return the cells as numbers or truth values, if all are that do not say that a value is missing, and as text otherwise."""
    if pd.api.types.infer_dtype(cells) == "string":
        cells = numbers_or_text(cells.mask(cells.str.strip().str.lower().isin(MISSING)))
    return cells.infer_objects() if cells.notna().any() else pd.Series(np.nan, cells.index, name=cells.name)


def spreadsheet_label(value: Any, name: str) -> str:
    """Return the label in a cell of a CSV file, without the mark that keeps a spreadsheet from running it as a formula."""
    written = str(value)
    return label(written[1:] if written.startswith("'") and FORMULA.match(written) else written, name)


def require_csv(path: Path) -> None:
    """Raise if the file is something other than a CSV table, or has lines that no table has.

    It is read to its end: the checksum of a compressed file stands there, and the database does not look at it.
    """
    with open_bytes(path) as file:
        beginning = file.read(4096)
        _require_text(path, beginning)
        lines = 1 + beginning.count(b"\n")
        while block := file.read(BLOCK):
            if len(block) == BLOCK and b"\n" not in block and b"\r" not in block:
                raise ValueError(
                    f"{path}, line {lines}: the line must be shorter than {BLOCK >> 20} MB, got a longer one: "
                    "the file is damaged or no table"
                )
            lines += block.count(b"\n")


def _require_text(path: Path, beginning: bytes) -> None:
    """Raise if the beginning of the file shows that it is something other than a CSV table."""
    if not beginning.strip():
        raise ValueError(f"{path} must be a CSV table with a header, got an empty file")
    as_csv = "in the spreadsheet program save it as CSV UTF-8 (comma delimited)"
    excel, export = "save it as UTF-8; in a spreadsheet program choose CSV UTF-8", "export the table as CSV"
    # How other kinds of files begin, what they are, and what helps.
    kinds = {
        b"PK\x03\x04": ("a file that is an Excel workbook or a zip archive", as_csv),
        b"\xd0\xcf\x11\xe0": ("a file that is an old Excel workbook", as_csv),
        b"PAR1": ("a file that is a Parquet file", "let its name end in .parquet"),
        b"\x1f\x8b": ("a file that is compressed by gzip", "let its name end in .csv.gz; if it does, unpack it once"),
        b"BZh": ("a file that is compressed by bzip2", "let its name end in .csv.bz2"),
        b"\xfd7zXZ": ("a file that is compressed by xz", "let its name end in .csv.xz"),
        b"%PDF": ("a file that is a PDF document", export),
        b"\x89HDF": ("a file that is an HDF5 file", export),
        b"SQLite format 3": ("a file that is a database", export),
        b"\xff\xfe": ("a file that is saved as UTF-16 or UTF-32", excel),
        b"\xfe\xff": ("a file that is saved as UTF-16", excel),
        b"<!doctype": ("a web page", "download the table itself as CSV"),
        b"<html": ("a web page", "download the table itself as CSV"),
        b"<?xml": ("an XML document", export),
        b"{": ("a JSON document", export),
        b"[": ("a JSON document", export),
    }
    text = beginning.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for mark, (kind, help_) in kinds.items():
        if beginning.startswith(mark) or text.startswith(mark):
            raise ValueError(f"{path} must be a CSV table, got {kind}: {help_}")
    if beginning[257:262] == b"ustar":
        raise ValueError(f"{path} must be a CSV table, got a tar archive: unpack it and give the table in it")
    if b"\x00" in beginning:
        raise ValueError(f"{path} must be a CSV table, got a file that is no text: export the table as CSV UTF-8")


@contextmanager
def open_bytes(path: Path) -> Iterator[IO[bytes]]:
    """Return the file's content, unpacked by the ending of its name; damage becomes one sentence."""
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


def _unpacked(path: Path, ending: str) -> IO[bytes]:
    if ending == ".zip":
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
            if len(names) != 1:
                raise ValueError(f"{path} must hold one CSV file, got an archive of {len(names)} files")
            return archive.open(names[0])
    packed: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return cast(IO[bytes], packed[ending](path, "rb")) if ending in packed else path.open("rb")


@contextmanager
def open_csv(path: Path) -> Iterator[IO[str]]:
    """Return the text of a CSV file, without a byte order mark and with its line breaks as they are."""
    with open_bytes(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        try:
            yield text
        except UnicodeDecodeError as error:
            line, byte = _first_foreign_line(path)
            raise ValueError(
                f"{path}, line {line}: got the byte 0x{byte:02x}, which is not UTF-8. The file was probably saved as "
                "Latin-1 or Windows-1252 (or, if this is its last line, cut short): "
                "save it as UTF-8 (in a spreadsheet program: CSV UTF-8)"
            ) from error


def _first_foreign_line(path: Path) -> tuple[int, int]:
    """Return the first line that is not UTF-8, and its first foreign byte."""
    with open_bytes(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return number, line[error.start]
    return number, line[-1]


def read_header(file: Path) -> tuple[tuple[str, ...], int]:
    """Return the names of the columns, of which all get one, and the number of lines up to the end of the header."""
    records = _records(file)
    try:
        line, last, header = next(records, (1, 1, []))
        following, _, first = next(records, (0, 0, []))
    except csv.Error as error:
        raise ValueError(f"{file}: a cell at the beginning is far too long: a quotation mark must be missing") from error
    if not following and any("\n" in name.strip() for name in header):
        raise ValueError(f"{file}, line {line}: a quotation mark is opened here and never closed")
    names = [name.strip() for name in header]
    if names and names[0].lower().startswith("sep="):
        raise ValueError(f"{file}, line {line}: got {names[0]!r} where the names of the columns should be: delete this line")
    separators = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
    if len(names) == 1:
        for mark, word in separators.items():
            if mark in names[0]:
                raise ValueError(f"{file} must be separated by commas, got columns separated by {word}: save it with commas")
    twice = next((name for name, times in Counter(names).items() if name and times > 1), None)
    if twice is not None:
        raise ValueError(f"{file}, line {line}: each column must be named once, got {twice} twice")
    if len(names) == 1 and len(first) > 1:
        raise ValueError(f"{file}, line {line}: got {names[0]!r} where the names of the columns should be: delete this line")
    if len(first) > len(names):
        raise ValueError(_too_long(file, following, len(first), len(names)))
    return tuple(name or f"column {i + 1} without a name" for i, name in enumerate(names)), last


def read_records(file: Path, columns: int) -> Iterator[list[str | None]]:
    """Return the rows of data, each with `columns` cells. A blank cell, or one that a short row lacks, is None.

    Raises:
        ValueError: for a row with too many cells, and for a quotation mark that is never closed.
    """
    line = 1
    try:
        for line, _, record in islice(_records(file), 1, None):
            if len(record) > columns:
                raise ValueError(_too_long(file, line, len(record), columns))
            yield [cell or None for cell in record] + [None] * (columns - len(record))
    except csv.Error as error:
        raise ValueError(f"{file}, after line {line}: a cell is far too long: a quotation mark must be missing") from error
    if _is_open(file, line):
        raise ValueError(f"{file}, line {line}: a quotation mark is opened here and never closed")


def _too_long(file: Path, line: int, cells: int, columns: int) -> str:
    return (
        f"{file}, line {line}: got {cells} cells under {columns} columns: is there a comma at the end of the line, "
        "one inside a name that needs quotation marks, or a column without a name?"
    )


def _is_open(file: Path, line: int) -> bool:
    """Return whether a quotation mark is still open at the end of the file, after the last record, which begins on `line`."""
    with open_csv(file) as text:
        reader = csv.reader(islice(text, line - 1, None), strict=True)
        try:
            list(reader)
        except csv.Error as error:
            return "unexpected end of data" in str(error)
    return False


def lines_of(file: Path, rows: Collection[int]) -> dict[int, str]:
    """Return the lines on which rows of data begin, in one reading of the file."""
    wanted = set(rows)
    records = islice(_records(file), 1, max(wanted) + 2)
    return {row: f"line {line}" for row, (line, _, _) in enumerate(records) if row in wanted}


def _records(file: Path) -> Iterator[tuple[int, int, list[str]]]:
    """Return each record that is not blank, with the lines on which it begins and ends."""
    with open_csv(file) as text:
        reader = csv.reader(text)
        line = 1
        for record in reader:
            if len(record) > 1 or (record and record[0].strip()):
                yield line, reader.line_num, record
            line = reader.line_num + 1


def _row(number: int) -> str:
    return f"row {number} (counted from 0)"


@dataclass(frozen=True, eq=False)
class InputTable:
    """A data frame, its name, how to say where a row is, how to read a label from a cell, and the scan it was loaded from."""

    frame: pd.DataFrame
    name: str = "the table"
    place: Callable[[int], str] = _row
    read_label: Callable[[Any, str], str] = label
    scan: Scan | None = None

    @property
    def columns(self) -> list[str]:
        """Return all columns: of a file also those that were not loaded."""
        loaded = [str(column) for column in self.frame.columns]
        return loaded if self.scan is None else list(dict.fromkeys((*self.scan.types, *loaded)))

    def at(self, row: int) -> str:
        """Return where a row stands: the table's name and the line or row."""
        return f"{self.name}, {self.place(row)}"

    def require(self, *columns: str) -> None:
        """Raise unless the table has rows, and these columns once each."""
        columns_there = self.columns
        missing = [c for c in columns if c not in columns_there]
        if missing:
            raise ValueError(_without(self.name, columns, missing, columns_there))
        twice = next((c for c, times in Counter(columns_there).items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"{self.name} must have each column once, got {twice} twice")
        if not len(self.frame):
            raise ValueError(f"{self.name} must have at least one row, got none")

    def codes(self, column: str) -> tuple[Ints, tuple[str, ...]]:
        """Return codes `(N,)` of a column and its labels in order; −1 where a cell is blank or holds no label."""
        try:
            codes, values = pd.factorize(self.frame[column])
        except TypeError as error:
            is_bytes = self.frame[column].map(type).isin([bytes, bytearray]).any()
            raise no_labels(self.name, column, bool(is_bytes)) from error
        raw = [self._label(column, value)[0] for value in values]
        names = in_order({name for name in raw if name is not None})
        rank: dict[str | None, int] = {name: i for i, name in enumerate(names)}
        return np.array([*(rank.get(name, -1) for name in raw), -1], dtype=np.int64)[codes], names

    def labels(self, column: str, optional: bool = False) -> tuple[Ints, tuple[str, ...]]:
        """Return codes and labels as `codes` does; raises where a cell holds no label, or is blank and not optional."""
        codes, names = self.codes(column)
        wrong = (codes < 0) & ~(self.blank(column) & optional)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(f"{self.at(row)}: {self.no_label(column, row)}")
        return codes, names

    def blank(self, column: str) -> Bools:
        """Return which cells of a column are blank, `(N,)`."""
        return self.frame[column].isna().to_numpy(dtype=np.bool_)

    def no_label(self, column: str, row: int) -> str:
        """Return why a cell holds no label."""
        value = self.frame[column].iloc[row]
        return f"column {column} must not be empty" if pd.isna(value) else self._label(column, value)[1]

    def _label(self, column: str, value: Any) -> tuple[str | None, str]:
        """Return the label in a cell, or why there is none."""
        try:
            return self.read_label(value, f"column {column}"), ""
        except ValueError as error:
            return None, str(error)

    def finite(self, column: str, whole: bool = False) -> Floats:
        """Return a column of numbers, NaN where a cell holds none that can be computed with, or none that is whole."""
        numbers = _as_numbers(self.frame[column])
        right = np.abs(numbers) <= (LARGEST_WHOLE if whole else LARGEST_NUMBER)
        return np.where(right & (numbers == np.round(numbers)) if whole else right, numbers, np.nan)

    def no_number(self, column: str, row: int, whole: bool = False) -> str:
        """Return why a cell holds no number, or no whole number."""
        most = f"{LARGEST_WHOLE:.0e}" if whole else f"{LARGEST_NUMBER:g}"
        size = abs(_as_numbers(self.frame[column].iloc[[row]])[0])
        what = ("a whole number" if whole else "a number") + f" of at most {most} in size" * bool(float(most) < size < np.inf)
        return f"column {column} must be {what}, got {shown(self.frame[column].iloc[row])}"

    def numbers(self, column: str, whole: bool = False) -> Floats:
        """Return a column of finite numbers, or of whole ones; raises where a cell holds none."""
        numbers = self.finite(column, whole)
        if np.isnan(numbers).any():
            row = int(np.argmax(np.isnan(numbers)))
            raise ValueError(f"{self.at(row)}: {self.no_number(column, row, whole)}")
        return numbers

    def whole_numbers(self, column: str) -> Ints:
        """Return a column of whole numbers."""
        return self.numbers(column, whole=True).astype(np.int64)

    def require_once(self, keys: Ints, name: Callable[[int], str]) -> None:
        """Raise where two rows have one key; `name` says what a row is about, and rows with the key −1 are left out."""
        again = pd.Series(keys).duplicated().to_numpy() & (keys >= 0)
        if again.any():
            row = int(np.argmax(again))
            first = self.place(int(np.argmax(keys == keys[row])))
            raise ValueError(
                f"{self.at(row)}: there must be one row for {name(row)}, got another in {first}: keep the one that is right"
            )

    def values(self, column: str) -> pd.Series[Any]:
        """Return a column of numbers or of text; empty cells, and what R and others write for them, are missing."""
        values = numbers_or_missing(self.frame[column])
        try:
            pd.factorize(values)
        except TypeError as error:
            raise no_labels(self.name, column, bool(values.map(type).isin([bytes, bytearray]).any())) from error
        return values


def _without(name: str, columns: tuple[str, ...], missing: list[str], present: list[str]) -> str:
    """Return the sentence that columns are missing, with the fix: small letters, other names, or a first line with names."""
    message = f"{name} must have the columns {', '.join(columns)}, got none named {', '.join(missing)}"
    message += f" but {', '.join(present[:10]) or 'no columns'}"
    if {c.lower() for c in missing} <= {c.strip().lower() for c in present}:
        return f"{message}: write the names in small letters"
    # What the columns of a table of decisions say, for those who have named them otherwise.
    said = {
        "expert": "who decided",
        "episode": "the run of decisions that the row belongs to",
        "step": "0, 1, 2, … within the episode",
        "state": "the situation",
        "action": "what was done",
    }
    meanings = [f"{column} ({said[column]})" for column in missing if column in said]
    fix = f": rename or add {', '.join(meanings)}, or say with columns= which columns these are" if meanings else ""
    unnamed = "; if the first line holds no names of columns, add one that does" if len(missing) == len(columns) else ""
    return f"{message}{fix}{unnamed}"


def no_labels(table: str, column: str, is_bytes: bool) -> ValueError:
    """Return the error on a column that holds bytes or nested values."""
    as_text = "bytes: write it as text, in pandas with .str.decode('utf-8')"
    received = as_text if is_bytes else "lists or other nested values: write one value per cell"
    return ValueError(f"{table}: column {column} must hold text or numbers, got {received}")


def _as_numbers(values: pd.Series[Any]) -> Floats:
    """Return the values as floats, NaN where one is no number. Dates and truth values are no numbers."""
    if values.dtype.kind in "bmMc":
        return np.full(len(values), np.nan)
    try:
        return as_numbers(values).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return np.array([np.nan] * len(values))


def shown(value: Any) -> str:
    """Return a cell in a message."""
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)) or value is pd.NA:
        return "an empty cell"
    return repr(value.item() if isinstance(value, np.generic) else value)[:80]


def in_order(names: Collection[str]) -> tuple[str, ...]:
    """Return labels in their order: whole numbers as numbers, then text as text."""
    return tuple(sorted(names, key=label_order))


def label_order(name: str) -> tuple[int, int, str]:
    """Return what labels are sorted by: whole numbers as numbers, then text as text."""
    # Longer numbers sort as text: Python turns no text of thousands of digits into a number.
    longest_number = 300
    whole = name.removeprefix("-").isdecimal() and len(name) <= longest_number
    return (0, int(name), name) if whole else (1, 0, name)
