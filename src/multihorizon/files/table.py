"""A table with the place of each row, so that every message can say where to look."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats, Ints, label
from multihorizon.files.labels import in_order

#: What columns of Parquet files may hold in place of labels, and what to do about it.
BYTES = "bytes: write it as text, in pandas with .str.decode('utf-8')"
NESTED = "lists or other nested values: write one value per cell"
#: Larger numbers than this have no finite square, or nearly none.
LARGEST_NUMBER = 1e100
#: Up to this number, floats hold every whole number exactly.
LARGEST_WHOLE = 2.0**53


def _row(number: int) -> str:
    return f"row {number} (counted from 0)"


@dataclass(frozen=True, eq=False)
class Table:
    """A data frame, its name, how to say where a row stands, and how to read a label from a cell.

    `columns` are all columns of the file, where the frame holds only those that are needed.
    """

    frame: pd.DataFrame
    name: str = "the table"
    place: Callable[[int], str] = _row
    read_label: Callable[[Any, str], str] = label
    columns: tuple[str, ...] = ()

    def at(self, row: int) -> str:
        """Where a row stands: the table's name and the line or row."""
        return f"{self.name}, {self.place(row)}"

    def require(self, *columns: str) -> None:
        """Raise unless the table has rows, and these columns once each."""
        found = [str(c) for c in self.columns or self.frame.columns]
        missing = [c for c in columns if c not in found]
        if missing:
            raise ValueError(_without(self.name, columns, missing, found))
        twice = next((c for c, times in Counter(found).items() if times > 1), None)
        if twice is not None:
            raise ValueError(f"{self.name} must have each column once, received {twice} twice")
        if not len(self.frame):
            raise ValueError(f"{self.name} must have at least one row, received none")

    def labels(self, column: str, optional: bool = False, remedy: str = "") -> tuple[Ints, tuple[str, ...]]:
        """Codes `(N,)` of a column and its labels in order; −1 where an optional label is blank.

        `remedy` ends the sentence on a label that is blank and must not be.
        """
        try:
            codes, values = pd.factorize(self.frame[column])
        except TypeError as error:
            is_bytes = self.frame[column].map(type).isin([bytes, bytearray]).any()
            raise ValueError(
                f"{self.name}: column {column} must hold text or numbers, received {BYTES if is_bytes else NESTED}"
            ) from error
        if (codes < 0).any() and not optional:
            raise ValueError(f"{self.at(int(np.argmax(codes < 0)))}: column {column} must not be empty{remedy}")
        raw = [self._label(column, value, codes, i) for i, value in enumerate(values)]
        names = in_order(set(raw))
        rank = {name: i for i, name in enumerate(names)}
        return np.array([*(rank[name] for name in raw), -1], dtype=np.int64)[codes], names

    def numbers(self, column: str) -> Floats:
        """A column of finite numbers."""
        values = self.frame[column]
        numbers = _as_numbers(values)
        wrong = ~(np.abs(numbers) <= LARGEST_NUMBER)
        if wrong.any():
            row = int(np.argmax(wrong))
            number = f"a number of at most {LARGEST_NUMBER:g} in size" if np.isfinite(numbers[row]) else "a number"
            raise ValueError(f"{self.at(row)}: column {column} must be {number}, received {_shown(values.iloc[row])}")
        return numbers

    def whole_numbers(self, column: str) -> Ints:
        """A column of whole numbers."""
        numbers = _as_numbers(self.frame[column])
        wrong = ~(np.abs(numbers) <= LARGEST_WHOLE) | (numbers != np.round(numbers))
        if wrong.any():
            row = int(np.argmax(wrong))
            value = _shown(self.frame[column].iloc[row])
            small = f" of at most {LARGEST_WHOLE:.0e} in size" if LARGEST_WHOLE < abs(numbers[row]) < np.inf else ""
            raise ValueError(f"{self.at(row)}: column {column} must be a whole number{small}, received {value}")
        return numbers.astype(np.int64)

    def _label(self, column: str, value: Any, codes: Ints, code: int) -> str:
        try:
            return self.read_label(value, f"column {column}")
        except ValueError as error:
            raise ValueError(f"{self.at(int(np.argmax(codes == code)))}: {error}") from error


#: What the columns of a table of decisions say, for those who have named them otherwise.
MEANINGS = {
    "expert": "who decided",
    "episode": "the run of decisions that the row belongs to",
    "step": "0, 1, 2, … within the episode",
    "state": "the situation",
    "action": "what was done",
}


def _without(name: str, columns: tuple[str, ...], missing: list[str], found: list[str]) -> str:
    """The sentence that columns are missing, with the fix: small letters, other names, or a first line with names."""
    message = f"{name} must have the columns {', '.join(columns)}, received none named {', '.join(missing)}"
    message += f" but {', '.join(found[:10]) or 'no columns'}"
    if {c.lower() for c in missing} <= {c.strip().lower() for c in found}:
        return f"{message}: write the names in small letters"
    meanings = [f"{column} ({MEANINGS[column]})" for column in missing if column in MEANINGS]
    fix = f": rename or add {', '.join(meanings)}" if meanings else ""
    unnamed = "; if the first line holds no names of columns, add one that does" if len(missing) == len(columns) else ""
    return f"{message}{fix}{unnamed}"


def _as_numbers(values: pd.Series[Any]) -> Floats:
    """The values as floats, NaN where one is no number. Dates and truth values are no numbers."""
    if values.dtype.kind in "bmMc":
        return np.full(len(values), np.nan)
    try:
        return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return np.array([np.nan] * len(values))


def _shown(value: Any) -> str:
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)) or value is pd.NA:
        return "an empty cell"
    return repr(value.item() if isinstance(value, np.generic) else value)[:80]
