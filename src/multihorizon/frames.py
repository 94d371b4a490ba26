"""Data frames of any library come in, and tables go out to them; in between there are those of pandas alone.

*In.* `as_frame` takes what `narwhals` knows as a frame: of pandas, polars or pyarrow, a polars `LazyFrame`, a DuckDB relation and
others; what is lazy is collected. One table gives the same columns, and so the same digits, from whatever library it comes:

- whole numbers stay whole numbers; where cells are empty they become floats, as in pandas, or, beyond 2⁵³, where floats would
  round them, Python's own numbers;
- decimals become floats, dates without a time become text (`2026-01-31`, as a CSV file has them), and an empty cell is missing;
- groups whose order was declared keep it: categories of pandas, dictionaries of pyarrow, the Enum of polars and of DuckDB. The
  categories of polars become text, because their order is the one in which the program met them.

*Out.* What is missing in a table of pandas, NaN or None, is null in the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from narwhals.stable.v2.typing import IntoFrame

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

#: A data frame of any library.
Frame = IntoFrame
#: Up to this number, floats hold every whole number exactly.
LARGEST_WHOLE = 2.0**53


def is_frame(value: object) -> bool:
    """Say whether a value is a data frame of some library."""
    return isinstance(value, pd.DataFrame) or isinstance(_narwhals(value), nw.DataFrame | nw.LazyFrame)


def as_frame(value: object, name: str, hint: str = "") -> pd.DataFrame:
    """Read a data frame of any library; `name` and `hint` are for the message where it is none.

    Example:
        >>> import duckdb
        >>> as_frame(duckdb.sql("SELECT 'Ann' AS expert, DATE '2026-01-31' AS day"), "persons").to_dict("records")
        [{'expert': 'Ann', 'day': '2026-01-31'}]
    """
    if isinstance(value, pd.DataFrame):
        # Cells that are pd.NA are no cells of NumPy: comparing them gives neither true nor false.
        foreign = [i for i, kind in enumerate(value.dtypes) if getattr(kind, "na_value", None) is pd.NA]
        table = value.copy(deep=False) if foreign else value
        for i in foreign:
            values: Any = value.iloc[:, i]
            native = values.array.__arrow_array__() if isinstance(values.dtype, pd.ArrowDtype) else values
            table.isetitem(i, _column(nw.from_native(native, series_only=True)).array)
        return table
    frame = _narwhals(value)
    if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
        expected = "a data frame of pandas, polars, pyarrow or DuckDB"
        raise ValueError(f"{name} must be {expected}, received {type(value).__name__}{hint}")
    kinds = frame.collect_schema()
    dates = [column for column, kind in kinds.items() if kind == nw.Date]
    if dates:
        frame = frame.with_columns(nw.col(*dates).cast(nw.String))
    if isinstance(frame, nw.LazyFrame):
        if not frame.implementation.is_polars():
            table = as_frame(frame.collect("pandas").to_native(), name)
            # DuckDB rounds numbers of 128 bits and, before version 2, those of a column with empty cells.
            for column in table.select_dtypes("float"):
                if kinds[str(column)].is_integer() and table[column].abs().max() >= LARGEST_WHOLE:
                    raise ValueError(
                        f"column {column} of {name} must be text, received whole numbers above {LARGEST_WHOLE:.0e}, which would "
                        "be rounded"
                    )
            return table
        frame = frame.collect()
    return pd.DataFrame({column.name: _column(column) for column in frame.iter_columns()}, index=range(len(frame)))


def _narwhals(value: object) -> Any:
    """Return the frame as narwhals has it, and anything else as it is."""
    try:
        return nw.from_native(value, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError("a data frame must have each column once, received one of them twice: rename it") from error


def _column(values: Any) -> pd.Series[Any]:
    """Return the column in the types of NumPy, text, and groups in their order."""
    if values.dtype == nw.Date:
        values = values.cast(nw.String)
    kind = values.dtype
    whole = kind.is_integer() and kind not in (nw.Int128, nw.UInt128)  # NumPy has no such numbers
    if kind.is_float() or kind == nw.Duration or ((whole or kind == nw.Boolean) and not values.null_count()):
        return pd.Series(values.to_numpy())
    if isinstance(kind, nw.Datetime):
        if kind.time_zone is None:
            return pd.Series(values.to_numpy())
        times = pd.DatetimeIndex(values.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy())
        return pd.Series(times.tz_localize("UTC").tz_convert(kind.time_zone))
    cells = [None if empty else cell for cell, empty in zip(values.to_list(), values.is_null().to_list(), strict=True)]
    if kind == nw.Decimal:
        return pd.Series([np.nan if cell is None else float(cell) for cell in cells], dtype=np.float64)
    if kind.is_integer():
        exact = all(cell is None or abs(cell) <= LARGEST_WHOLE for cell in cells)
        return pd.Series(cells, dtype=np.float64 if exact else object)
    if isinstance(kind, nw.Enum):
        return pd.Series(pd.Categorical(cells, list(kind.categories)))
    if kind == nw.Categorical and not values.implementation.is_polars():
        return pd.Series(pd.Categorical(cells, values.cat.get_categories().to_list()))
    return pd.Series(cells) if kind == nw.String or kind == nw.Categorical else pd.Series(cells, dtype=object)


class HasFrame(ABC):
    """A result with a table of pandas, which it also hands to other libraries."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return the table of pandas."""

    def to_polars(self, **options: Any) -> pl.DataFrame:
        """Return the table of `to_frame`, which takes the same options, in polars; what is missing is null."""
        table: pl.DataFrame = _to(self.to_frame(**options), "polars")
        return table

    def to_arrow(self, **options: Any) -> pa.Table:
        """Return the table of `to_frame`, which takes the same options, in pyarrow; what is missing is null."""
        table: pa.Table = _to(self.to_frame(**options), "pyarrow")
        return table


def _to(frame: pd.DataFrame, backend: Literal["polars", "pyarrow"]) -> Any:
    kinds = {"f": nw.Float64, "i": nw.Int64, "u": nw.Int64, "b": nw.Boolean, "floating": nw.Float64, "boolean": nw.Boolean}
    columns: dict[str, list[Any]] = {}
    schema: dict[str, Any] = {}
    for name, values in frame.items():
        cells = [None if empty else cell for cell, empty in zip(values.tolist(), values.isna(), strict=True)]
        inferred = pd.api.types.infer_dtype(values) if values.dtype == object else values.dtype.kind
        kind = nw.Datetime("us", getattr(values.dtype, "tz", None)) if inferred == "M" else kinds.get(inferred, nw.String)
        columns[str(name)] = [str(cell) if kind == nw.String and cell is not None else cell for cell in cells]
        schema[str(name)] = kind
    try:
        return nw.from_dict(columns, schema, backend=backend).to_native()
    except ModuleNotFoundError as error:
        raise ValueError(f"a table of {backend} needs this package: pip install {backend}") from error
