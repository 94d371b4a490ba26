"""A CSV file as Python's own reader sees it: its header, its records, and the line on which each begins.

Messages count lines as an editor does: the header is line 1, blank lines count. This reader takes any file that spreadsheets and
statistics programs write. It is slow, so large files go through the database (`scan`), and come here where that refuses them.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from multihorizon.files.opening import open_csv

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


@dataclass(frozen=True)
class Header:
    """The names of the columns, and the number of lines up to the end of the header."""

    names: tuple[str, ...]
    lines: int


def read_header(file: Path) -> Header:
    """The header of a file; columns without a name get one of their own."""
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
        raise ValueError(f"{file}, line {line}: received {names[0]!r} where the names of the columns should be: delete this line")
    if len(names) == 1:
        for mark, word in _SEPARATORS.items():
            if mark in names[0]:
                raise ValueError(f"{file} must be separated by commas, received columns separated by {word}: save it with commas")
    twice = next((name for name, times in Counter(names).items() if name and times > 1), None)
    if twice is not None:
        raise ValueError(f"{file}, line {line}: each column must be named once, received {twice} twice")
    if len(names) == 1 and len(first) > 1:
        raise ValueError(f"{file}, line {line}: received {names[0]!r} where the names of the columns should be: delete this line")
    if len(first) > len(names):
        raise ValueError(_too_long(file, following, len(first), len(names)))
    return Header(tuple(name or f"column {i + 1} without a name" for i, name in enumerate(names)), last)


def read_records(file: Path, columns: int) -> Iterator[list[str | None]]:
    """The rows of data, each with `columns` cells. A blank cell, or one that a short row lacks, is None.

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


def lines_of(file: Path, rows: Collection[int]) -> dict[int, str]:
    """The lines on which rows of data begin, in one reading of the file."""
    wanted = set(rows)
    records = islice(_records(file), 1, max(wanted) + 2)
    return {row: f"line {line}" for row, (line, _, _) in enumerate(records) if row in wanted}


def _records(file: Path) -> Iterator[tuple[int, int, list[str]]]:
    """Each record that is not blank, with the lines on which it begins and ends."""
    with open_csv(file) as text:
        reader = csv.reader(text)
        line = 1
        for record in reader:
            if len(record) > 1 or (record and record[0].strip()):
                yield line, reader.line_num, record
            line = reader.line_num + 1


def _is_open(file: Path, line: int) -> bool:
    """Whether a quotation mark is still open at the end of the file, after the last record, which begins on `line`."""
    with open_csv(file) as text:
        reader = csv.reader(islice(text, line - 1, None), strict=True)
        try:
            list(reader)
        except csv.Error as error:
            return "unexpected end of data" in str(error)
    return False


def _too_long(file: Path, line: int, cells: int, columns: int) -> str:
    return (
        f"{file}, line {line}: received {cells} cells under {columns} columns: is there a comma at the end of the line, "
        "one inside a name that needs quotation marks, or a column without a name?"
    )
