"""Files into tables that are held in memory, through the database. Large tables of decisions are counted instead (`tables`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from multihorizon.checks import label
from multihorizon.files.csv_text import read_records
from multihorizon.files.labels import from_spreadsheet
from multihorizon.files.opening import existing_file
from multihorizon.files.scan import EXTRA, Scan, connect, quoted, scan_csv, scan_parquet
from multihorizon.files.table import Table

_PARQUET = (".parquet", ".pq")
_OTHER_ENDINGS = {
    ".xlsx": "in the spreadsheet program save it as CSV UTF-8",
    ".xls": "in the spreadsheet program save it as CSV UTF-8",
    ".ods": "in the spreadsheet program save it as CSV UTF-8",
    ".tsv": "separate its columns by commas and let its name end in .csv",
    ".txt": "separate its columns by commas and let its name end in .csv",
    ".json": "export the table as CSV",
    ".rds": 'in R, write.csv(table, "table.csv", row.names = FALSE) makes a CSV',
    ".zst": "compress it as .csv.gz",
}


def read_table(path: str | Path, what: str, labels: Sequence[str], needed: Sequence[str] | None = None) -> Table:
    """Read a file by the ending of its name; `what` names it in messages.

    Columns named in `labels` are kept as text. With `needed`, only these columns are read, those of them that are there.
    """
    file = existing_file(path, what)
    require_table(file, what)
    return load(scan_files(str(path), [file]), labels, needed)


def scan_files(name: str, files: Sequence[Path]) -> Scan:
    """The scan of one file or of several of one kind, by the ending of their names."""
    return scan_parquet(name, files) if file_kind(files[0]) == "Parquet" else scan_csv(name, files)


def files_of(path: str | Path, what: str) -> list[Path]:
    """The file, or the tables of a folder in the order of their names.

    Raises:
        ValueError: where a folder has no tables, or CSV and Parquet files side by side.
    """
    folder = Path(path)
    if not os.path.isdir(path):  # unlike that of Path, it takes any text
        file = existing_file(path, what)
        require_table(file, what)
        return [file]
    files = sorted(
        file for file in folder.iterdir() if file.is_file() and not file.name.startswith((".", "_")) and file_kind(file)
    )
    if not files:
        raise ValueError(f"{what} must be a file or a folder of .csv or .parquet files, received {path}, a folder without any")
    if len({file_kind(file) for file in files}) > 1:
        raise ValueError(f"{what} must be files of one kind, received a folder with .csv and .parquet files: {path}")
    return files


def require_table(file: Path, what: str) -> None:
    """Raise unless the ending of the name is that of a table."""
    if not file_kind(file):
        hint = _OTHER_ENDINGS.get(file.suffix.lower(), "let its name end in what it is")
        raise ValueError(f"{what} must be a .csv or .parquet file, received {file}: {hint}")


def load(scan: Scan, labels: Sequence[str], needed: Sequence[str] | None = None) -> Table:
    """The rows of a scan; a CSV file that the database cannot read, or reads with odd rows, is read by Python."""
    names = [name for name in scan.types if needed is None or name in needed]
    last = list(scan.types)[-1]
    columns = ", ".join(map(quoted, dict.fromkeys((*names, last, *((EXTRA,) if scan.padded else ())))))
    try:
        with connect() as database:
            frame = database.execute(f"SELECT {columns} FROM {scan.relation}").df()
    except duckdb.Error as error:
        if not scan.is_csv:
            raise ValueError(f"{scan.name} is damaged or no Parquet file: write it again, or save the table as CSV") from error
        return _load_by_python(scan, labels, names)
    odd = scan.padded and (frame[EXTRA].notna().any() or frame[last].isna().any())
    return _load_by_python(scan, labels, names) if odd else as_table(frame[names], scan, labels)


def _load_by_python(scan: Scan, labels: Sequence[str], names: Sequence[str]) -> Table:
    place = {name: i for i, name in enumerate(scan.types)}
    wanted = [place[name] for name in names]
    parts = [[[cells[i] for i in wanted] for cells in read_records(file, len(place))] for file in scan.files]
    frame = pd.DataFrame(list(chain.from_iterable(parts)), columns=list(names), dtype=object)
    return as_table(frame, replace(scan, ends=tuple(accumulate(len(part) for part in parts))), labels)


def as_table(frame: pd.DataFrame, scan: Scan, labels: Sequence[str], rows: Sequence[int] | None = None) -> Table:
    """Rows of a scan, all of them or those of the given numbers, as a table that knows their places."""
    place = scan.place if rows is None else partial(_place_of, scan, rows)
    if not scan.is_csv:
        return Table(frame, scan.name, place, columns=tuple(scan.types))
    frame = frame.replace("", None)
    for column in frame.columns:
        if column not in labels:
            frame[column] = numbers_or_text(frame[column])
    return Table(frame, scan.name, place, spreadsheet_label, tuple(scan.types))


def _place_of(scan: Scan, rows: Sequence[int], row: int) -> str:
    return scan.place(rows[row])


def spreadsheet_label(value: Any, name: str) -> str:
    """The label in a cell of a CSV file."""
    return label(from_spreadsheet(str(value)), name)


def numbers_or_text(cells: pd.Series[Any]) -> pd.Series[Any]:
    """The cells as numbers or truth values, if all that are not blank are, and as text otherwise."""
    given = cells.dropna()
    if len(given) and given.str.lower().isin(["true", "false"]).all():
        return cells.str.lower().map({"true": True, "false": False})
    try:
        return pd.to_numeric(cells)
    except (ValueError, TypeError):
        return cells


def file_kind(file: Path) -> str:
    """ "Parquet", "CSV" or nothing, by the ending of the name."""
    if file.suffix.lower() in _PARQUET:
        return "Parquet"
    is_csv = ".csv" in [ending.lower() for ending in file.suffixes] and file.suffix.lower() not in _OTHER_ENDINGS
    return "CSV" if is_csv else ""
