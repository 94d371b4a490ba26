"""Time stamps of decisions: when each was made, and when its move was over.

A move takes from its own stamp to the next one of the episode. When the last move of an episode was over, a column `next_…` may
say, as `next_state` says where it led.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats, first_few
from multihorizon.data.reading import MISSING, InputTable, as_numbers, shown
from multihorizon.data.rules import Log, Rule, require

#: How many seconds the units have in which time between dates can be counted.
TIME_UNITS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}


@dataclass(frozen=True, eq=False)
class Times:
    """When each decision was made, `(N,)`, and when its move was over, NaN where nobody knows; `unit` is "" where it has no name.

    `column` is the column of the time stamps.
    """

    begun: Floats
    over: Floats
    column: str = "time"
    unit: str = ""

    def __getitem__(self, rows: Any) -> Times:
        return replace(self, begun=self.begun[rows], over=self.over[rows])

    def counted(self, unit: str) -> Times:
        """Return the same times between dates in another unit."""
        factor = TIME_UNITS[self.unit] / TIME_UNITS[unit]
        return replace(self, begun=factor * self.begun, over=factor * self.over, unit=unit)


@dataclass(frozen=True)
class Clock:
    """The column of time stamps, and the unit in which time between dates is counted, "" for numbers."""

    column: str
    unit: str

    @classmethod
    def of(cls, column: str | None, unit: str | None) -> Clock | None:
        """Return the clock of what a user asked for; None without a column."""
        if unit is not None and column is None:
            raise ValueError("a unit of time must come with a column of time stamps, received none")
        if unit is not None and unit not in TIME_UNITS:
            raise ValueError(f"the unit of time must be one of {', '.join(TIME_UNITS)}, received {unit!r}")
        return None if column is None else cls(column, unit or "")

    def require(self, table: InputTable) -> None:
        """Raise unless a table has the column of time stamps."""
        if self.column not in table.frame.columns:
            columns = first_few(table.columns)
            raise ValueError(f"{table.name} must have the column {self.column} with time stamps, received the columns {columns}")

    def times(self, log: Log) -> Times:
        """Return when each decision of a sorted log was made and its move was over; raises where time does not go forward."""
        column, after = self.column, f"next_{self.column}"
        begun = self.read(log.table, column)[log.number]
        over = np.where(log.goes_on, np.append(begun[1:], np.nan), np.nan)
        if after in log.table.frame.columns:
            given = self.read(log.table, after, optional=True)[log.number]
            # Stamps that were computed differ by rounding.
            apart = np.abs(given - over) > 1e-9 * np.abs(over) + 1e-6 * np.abs(over - begun)
            said = f"{after} must be the {column} of the next step, received another"
            require(log, [Rule("next time", lambda log: apart, said, ": correct one of the two, or leave it blank")])
            over = np.where(np.isnan(over), given, over)

        def backwards(log: Log, row: int) -> str:
            later = f"the {column} of the next step" if log.goes_on[row] else after
            return f"{later} must be later than the {column} of this one, received a move that takes {over[row] - begun[row]:g}"

        remedy = ": correct the time stamps, or give the steps after it an episode of their own"
        require(log, [Rule("time", lambda log: over <= begun, backwards, remedy)])
        return Times(begun, over, column, self.unit)

    def read(self, table: InputTable, column: str, optional: bool = False) -> Floats:
        """Return the stamps of a column as numbers; where they are optional, NaN for a blank one."""
        cells = table.frame[column]
        cells = cells.mask(cells.astype(str).str.strip().str.lower().isin(MISSING))
        dates = cells.dtype.kind == "M" or (cells.dtype.kind not in "iuf" and as_numbers(cells).isna().all())
        if dates and cells.notna().any() and not self.unit:
            raise ValueError(
                f"{table.name}: column {column} must be numbers, received {shown(cells.dropna().iloc[0])}: if it holds dates, "
                f"say in which unit to count with time_unit=, one of {', '.join(TIME_UNITS)}"
            )
        if self.unit and not dates:
            raise ValueError(f"{table.name}: column {column} must be dates where a unit of time is given, received numbers")
        if dates:
            self._require_one_kind(table, column, cells)
            try:
                parsed = pd.to_datetime(cells, errors="coerce", utc=True, format=None if cells.dtype.kind == "M" else "ISO8601")
                parsed = parsed.astype("datetime64[ns, UTC]")
            except pd.errors.OutOfBoundsDatetime as error:
                raise ValueError(
                    f"{table.name}: column {column} must hold dates from 1678 to 2261, received another: {error}"
                ) from error
            counted = (parsed - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(seconds=TIME_UNITS[self.unit])
        else:
            counted = as_numbers(cells)
        numbers: Floats = np.asarray(counted.to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)
        wrong = ~np.isfinite(numbers) & ~(cells.isna().to_numpy() & optional)
        if wrong.any():
            row = int(np.argmax(wrong))
            what = "a date such as 2024-05-31T14:30" if dates else "a number"
            raise ValueError(f"{table.at(row)}: column {column} must be {what}, received {shown(table.frame[column].iloc[row])}")
        return numbers

    def _require_one_kind(self, table: InputTable, column: str, cells: pd.Series[Any]) -> None:
        """Raise where some stamps have a time zone and others have none: nobody knows how far apart these are."""
        stamps = cells.astype(str).str.strip()
        zoned = stamps.str.contains(r":\d\d[\d.,]*\s*(?:Z|[+-]\d\d(?::?\d\d)?)$", regex=True)
        without = stamps.str.contains(r"\d:\d\d", regex=True) & cells.notna() & ~zoned
        if zoned.any() and without.any():
            row, other = int(np.argmax(without)), int(np.argmax(zoned))
            raise ValueError(
                f"{table.at(row)}: column {column} must have a time zone in all rows or in none, received "
                f"{shown(cells.iloc[row])} without one, and {shown(cells.iloc[other])} in {table.place(other)}"
            )
