"""CSV and Parquet files into tables. Messages count lines as an editor does: the header is line 1, blank lines count."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pandas as pd

from multihorizon.checks import label
from multihorizon.files.labels import from_spreadsheet
from multihorizon.files.opening import existing_file, open_csv, require_csv
from multihorizon.files.table import Table

_PARQUET = (".parquet", ".pq")
_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
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


def read_table(path: str | Path, what: str, labels: tuple[str, ...]) -> Table:
    """Read a table by the ending of its name; `what` names it in messages, `labels` are the columns that hold labels."""
    file = existing_file(path, what)
    if file.suffix.lower() in _PARQUET:
        return read_parquet(file)
    if ".csv" in [ending.lower() for ending in file.suffixes] and file.suffix.lower() not in _OTHER_ENDINGS:
        return read_csv(file, labels)
    hint = _OTHER_ENDINGS.get(file.suffix.lower(), "let its name end in what it is")
    raise ValueError(f"{what} must be a .csv or .parquet file, received {path}: {hint}")


def read_csv(path: str | Path, labels: tuple[str, ...]) -> Table:
    """Read a CSV file with a header line. Columns named in `labels` are kept as text, in the others numbers are recognised."""
    file = existing_file(path, "a CSV table")
    require_csv(file)
    header = _header(file)
    try:
        with open_csv(file) as text:
            frame = pd.read_csv(
                text,
                header=0,
                names=header,
                index_col=False,
                dtype=dict.fromkeys(labels, str),
                keep_default_na=False,
                na_values=[""],
                low_memory=False,
            )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, csv.Error) as error:
        raise ValueError(_what_is_wrong(file, len(header))) from error
    return Table(frame, str(path), partial(_line, file), lambda value, name: label(from_spreadsheet(str(value)), name))


def read_parquet(path: str | Path) -> Table:
    """Read a Parquet file; needs the extra `parquet`."""
    file = existing_file(path, "a Parquet table")
    try:
        frame = pd.read_parquet(file)
    except ImportError as error:
        raise ValueError("Parquet files need pyarrow: pip install 'multihorizon[parquet]', or save the table as CSV") from error
    except Exception as error:  # pyarrow raises many kinds
        raise ValueError(f"{path} is damaged or no Parquet file: write it again, or save the table as CSV") from error
    return Table(frame, str(path))


def _header(file: Path) -> list[str]:
    """The names of the columns; unnamed ones get a name of their own."""
    records = _records(file)
    line, header = next(records, (1, []))
    names = [name.strip() for name in header]
    if names and names[0].lower().startswith("sep="):
        raise ValueError(f"{file}, line {line}: received {names[0]!r} where the names of the columns should be: delete this line")
    if len(names) == 1:
        for mark, word in _SEPARATORS.items():
            if mark in names[0]:
                raise ValueError(f"{file} must be separated by commas, received columns separated by {word}: save it with commas")
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{file}, line {line}: each column must be named once, received {twice} twice")
    following, first = next(records, (0, []))
    if len(names) == 1 and len(first) > 1:
        raise ValueError(f"{file}, line {line}: received {names[0]!r} where the names of the columns should be: delete this line")
    if len(first) > len(names):
        raise ValueError(_too_long(file, following, len(first), len(names)))
    return [name or f"column {i + 1} without a name" for i, name in enumerate(names)]


def _records(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Each record that is not blank, with the line on which it begins."""
    with open_csv(file) as text:
        reader = csv.reader(text)
        line = 1
        for record in reader:
            if len(record) > 1 or (record and record[0].strip()):
                yield line, record
            line = reader.line_num + 1


def _line(file: Path, row: int) -> str:
    """The line on which a row of data begins."""
    return next(f"line {line}" for number, (line, _) in enumerate(_records(file), start=-1) if number == row)


def _what_is_wrong(file: Path, columns: int) -> str:
    """Why the file could not be read as a table."""
    line = 1
    try:
        for line, record in _records(file):
            if len(record) > columns:
                return _too_long(file, line, len(record), columns)
    except csv.Error:
        return f"{file}, after line {line}: a cell is far too long: a quotation mark must be missing"
    return f"{file}, line {line}: a quotation mark is opened here and never closed"


def _too_long(file: Path, line: int, cells: int, columns: int) -> str:
    return (
        f"{file}, line {line}: received {cells} cells under {columns} columns: is there a comma at the end of the line, "
        "one inside a name that needs quotation marks, or a column without a name?"
    )
