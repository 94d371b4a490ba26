"""What users hand in: numbers, labels, places and data frames, checked and read; and the few numbers that several packages share.

Each check raises one sentence that names the place, what was expected and what it got. Each number comes with what it decides
and why it has this size; one that a single module uses stays there.

*Data frames.* `as_frame` takes what `narwhals` knows as a frame: of pandas, polars or pyarrow, a polars `LazyFrame`, a DuckDB
relation and others; what is lazy is collected. One table gives the same columns, and so the same digits, from whatever library it
comes:

- whole numbers stay whole numbers; where cells are empty they become floats, as in pandas, or, beyond 2⁵³, where floats would
  round them, Python's own numbers;
- decimals become floats, dates without a time become text (`2026-01-31`, as a CSV file has them), and an empty cell is missing;
- groups whose order was declared keep it: categories of pandas, dictionaries of pyarrow, the Enum of polars and of DuckDB. The
  categories of polars become text, because their order is the one in which the program met them.

What is missing in a table of pandas, NaN or None, is null in the libraries that `HasFrame` hands it to.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import scipy.sparse as sp
from narwhals.stable.v2.typing import IntoFrame
from numpy.typing import NDArray

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
        raise ValueError(f"{name} must be {expected}, got {type(value).__name__}{hint}")
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
                        f"column {column} of {name} must be text, got whole numbers above {LARGEST_WHOLE:.0e}, which would "
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
        raise ValueError("a data frame must have each column once, got one of them twice: rename it") from error


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


#: The largest discount that is searched or reported where a policy never ends: at 1 its values do not exist. It stands for a
#: horizon of 10,000 steps; recorded decisions do not distinguish longer horizons, and values keep twelve of their digits.
ENDLESS_DISCOUNT = 0.9999
#: The largest discount at which values of a policy that never ends are computed exactly, where a formula follows them towards 1
#: without searching: `(I − γT)` keeps half of the sixteen digits.
LARGEST_SOLVABLE_DISCOUNT = 1 - 1e-7
#: Differences of values below this share of the largest value are rounding: sixteen digits less four lost in a linear solve.
ROUNDING = 1e-12
#: Singular values below this share of the largest count as zero. Structural zeros come out near 1e-15, and the weakest
#: directions that matter on our domains lie above 1e-7.
RANK_TOLERANCE = 1e-9
#: Added under a division to keep 0/0 from raising; no quantity of ours is this small and not zero.
TINY = 1e-300
#: Moves that are added to each state and action where transitions are estimated: half a move, little against the dozens that an
#: estimate needs anyway.
SMOOTHING = 0.5
#: The largest number of a feature or of a known reward lies between these. Numbers have 16 digits, and rewards are weighed
#: against temperatures near 1: in larger or smaller units the search for the best fit stops in the wrong place.
SMALLEST_UNIT, LARGEST_UNIT = 1e-4, 1e8
#: Larger numbers have no finite square, or nearly none.
LARGEST_NUMBER = 1e100


Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
#: A compressed sparse row array; SciPy has no types of its own, so the name is for the reader.
Sparse = sp.csr_array
Array = TypeVar("Array", bound=NDArray[Any])

#: How far a row of probabilities may be from summing to one; rows within it are rescaled to sum exactly.
ROW_TOLERANCE = 1e-6


Renamed = TypeVar("Renamed", bound=Callable[..., Any])


def renamed(**names: str) -> Callable[[Renamed], Renamed]:
    """Let a function or a dataclass take arguments by their old names, with a DeprecationWarning, for one release.

    Example:
        >>> @renamed(old="new")
        ... def double(new):
        ...     return 2 * new
        >>> with warnings.catch_warnings(action="ignore"):
        ...     double(old=3)
        6
    """

    def decorate(target: Renamed) -> Renamed:
        kind: Any = target
        function = kind.__init__ if isinstance(target, type) else target

        @wraps(function)
        def wrapper(*args: Any, **options: Any) -> Any:
            for old in names.keys() & options:
                text = f"{old} of {target.__name__} is now {names[old]}"
                if names[old] in options:
                    raise TypeError(f"{text}, got both")
                warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **{names.get(name, name): value for name, value in options.items()})

        if not isinstance(target, type):
            return wrapper  # type: ignore[return-value]
        kind.__init__, kind.renamed = wrapper, names
        return target

    return decorate


def as_floats(value: object, name: str) -> Floats:
    """Read `value`, which may be a data frame, as a float array without NaN or infinity."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if is_frame(value):  # one that has yet to be collected
            return as_floats(as_frame(value, name).to_numpy(), name)
        raise ValueError(f"{name} must be numbers, got {_describe(value)}") from error
    if not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        where = f" at {place[0] if len(place) == 1 else place}" if place else ""
        raise ValueError(f"{name} must be finite, got {array[place]}{where}")
    return array


def as_shape(array: NDArray[Any], shape: tuple[int, ...], name: str) -> None:
    """Raise unless `array` has exactly `shape`."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}")


def as_discount(value: object, name: str = "discount") -> float:
    """Read one discount factor in [0, 1]."""
    discount = _as_number(value, f"{name} must be one number in [0, 1]")
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"{name} must be in [0, 1], got {discount}")
    return discount


def as_positive(value: object, name: str) -> float:
    """Read one finite number above zero."""
    number = _as_number(value, f"{name} must be a positive number")
    if not np.isfinite(number) or number <= 0:
        raise ValueError(f"{name} must be a positive number, got {number}")
    return _not_too_large(number, name)


def as_non_negative(value: object, name: str) -> float:
    """Read one finite number of at least zero."""
    number = _as_number(value, f"{name} must be a number of at least 0")
    if not 0 <= number < np.inf:
        why = ", which is not finite" if number == np.inf else ""
        raise ValueError(f"{name} must be a number of at least 0, got {number}{why}")
    return _not_too_large(number, name)


def as_finite(value: object, name: str) -> float:
    """Read one finite number of either sign."""
    number = _as_number(value, f"{name} must be a finite number")
    if not abs(number) < np.inf:
        raise ValueError(f"{name} must be a finite number, got {number}")
    return float(np.copysign(_not_too_large(abs(number), name), number))


def _not_too_large(number: float, name: str) -> float:
    if number > LARGEST_NUMBER:
        raise ValueError(f"{name} must be at most {LARGEST_NUMBER:g}, got {number:g}")
    return number


def _as_number(value: Any, expected: str) -> float:
    """Read one number; truth values, texts and arrays are refused."""
    if isinstance(value, bool | np.bool_ | str | bytes) or getattr(value, "shape", ()) != ():
        raise ValueError(f"{expected}, got {_describe(value)}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{expected}, got {_describe(value)}") from error


def as_level(value: object) -> float:
    """Read the level of an interval: a number between 0 and 1."""
    level = _as_number(value, "level must be between 0 and 1")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    return level


def as_count(value: object, name: str, least: int = 1, most: int = 10_000_000) -> int:
    """Read one whole number from `least` to `most`, beyond which no number can be worked through."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {_describe(value)}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {_describe(value)}")
    return int(value)


#: What fixes randomness: a whole number, or a generator that moves on with each use.
Seed = int | np.random.Generator


def as_seed(value: object, name: str = "seed") -> int:
    """Read a seed of random numbers: a whole number of at least 0, or a NumPy `Generator`, from which one is drawn (SPEC 7)."""
    if isinstance(value, np.random.Generator):
        return int(value.integers(2**32))  # more than some packages take
    return as_count(value, name, least=0, most=2**128)


def as_jobs(value: Any, name: str = "jobs") -> int:
    """Read a number of processes: a whole number of at least 1, or −1 for all cores."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value == 0 or value < -1:
        raise ValueError(f"{name} must be a whole number of at least 1, or -1 for all cores, got {value!r}")
    if int(value) > 4096:
        raise ValueError(f"{name} must be at most 4096, got {value!r}"[:120])
    return int(value)


def as_mask(value: object, size: int, name: str) -> Bools:
    """Read a set of indices below `size`, given as a boolean mask of that length or as a list of indices."""
    array = np.asarray(value)
    if array.dtype == np.bool_:
        as_shape(array, (size,), f"{name} as a mask")
        return array.copy()
    mask = np.zeros(size, dtype=np.bool_)
    if array.size == 0:
        return mask
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must be a list of indices or a mask of length {size}, got {_describe(value)}")
    outside = array[(array < 0) | (array >= size)]
    if outside.size:
        raise ValueError(f"{name} must hold indices from 0 to {size - 1}, got {int(outside[0])}")
    mask[array] = True
    return mask


def as_distribution(value: object, size: int, name: str) -> Floats:
    """Read a probability vector of length `size`."""
    array = as_floats(value, name)
    as_shape(array, (size,), name)
    if (array < 0).any():
        place = int(np.flatnonzero(array < 0)[0])
        raise ValueError(f"{name} must not be negative, got {array[place]} at {place}")
    total = float(array.sum())
    if abs(total - 1) > ROW_TOLERANCE:
        raise ValueError(f"{name} must sum to 1, got a sum of {total:.6g}")
    return array / total


def as_names(value: Iterable[object] | None, size: int, name: str) -> tuple[str, ...]:
    """Read `size` distinct labels as strings; None gives "0", "1", …"""
    if value is None:
        return tuple(str(i) for i in range(size))
    names = tuple(label(item, name) for item in value)
    if len(names) != size:
        raise ValueError(f"{name} must have {size} entries, got {len(names)}")
    if len(set(names)) != size:
        twice = next(n for n, times in Counter(names).items() if times > 1)
        raise ValueError(f"{name} must be distinct, got {twice!r} twice")
    return names


def label(value: object, name: str) -> str:
    """Return the canonical text of a label: 3, 3.0, "3" and "3.0" are one label.

    A column of whole numbers in which one is missing is read as decimals, and must still match.
    """
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            raise ValueError(f"{name} must not be missing, got {float(value)}")
        if float(value).is_integer():
            return str(int(value))
    if isinstance(value, bytes | dict | list | tuple | set | np.ndarray):
        raise ValueError(f"{name} must be text or a number, got {_describe(value)}")
    text = str(value).strip()
    longest = 1000
    if len(text) > longest:
        raise ValueError(f"{name} must have at most {longest:,} letters, got {text[:20]!r}… with {len(text):,}")
    if not text or (not text.isprintable() and not any(c.isprintable() and not c.isspace() for c in text)):
        raise ValueError(f"{name} must be a label that can be seen, got {str(value)!r}")
    whole = re.fullmatch(r"(-?\d+)\.0*", text) if "." in text else None
    return whole[1] if whole else text


def read_only(array: Array) -> Array:
    """Return a read-only copy of the array, or the array itself if it is read-only already."""
    if array.flags.writeable or array.base is not None:
        array = array.copy()
        array.setflags(write=False)
    return array


def first_few(names: Sequence[str]) -> str:
    """Join the first five names, and say how many more there are."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _describe(value: object) -> str:
    """Write a value for a message: a number as Python writes it, an array by its shape."""
    shape = getattr(value, "shape", None)
    if shape:
        return f"{type(value).__name__} of shape {shape}"
    return repr(_plain(value))[:80]


def _plain(value: object) -> object:
    """Turn NumPy numbers, alone or in lists, into Python's own: "nan" reads better than "np.float64(nan)"."""
    if isinstance(value, list | tuple):
        return type(value)([_plain(item) for item in value])
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def positions(labels: Sequence[str], names: Sequence[str], what: str, place: Callable[[int], str] | None = None) -> Ints:
    """Return the index of each label among `names`.

    Raises:
        ValueError: for the first label that is no name, with the name that comes closest. It calls the label `what`, "state" or
            "action", and says where it was read, if `place` does.
    """
    index = {name: i for i, name in enumerate(names)}
    unknown = next((i for i, one in enumerate(labels) if one not in index), None)
    if unknown is not None:
        where = "" if place is None else f"{place(unknown)}: "
        close = closest(labels[unknown], names)
        hint = f". Correct the name, or add this {what} to the transitions"
        if close:
            # Foreign letters may look the same as those of the label: then both are written out.
            alike = close.isascii() == labels[unknown].isascii()
            meant = repr(close) if alike else f"{close!r} (in letters {close!a}, not {labels[unknown]!a})"
            hint = f". Did you mean {meant}? Names must agree letter by letter"
        raise ValueError(
            f"{where}{what} {labels[unknown]!r} must be one of the {len(names)} {what}s of the transitions "
            f"({', '.join(names[:5])}{', …' if len(names) > 5 else ''}){hint}"
        )
    return np.array([index[one] for one in labels], dtype=np.int64)


def place_of(given: object, names: Sequence[str], what: str, kind: str) -> int:
    """Return the place of one label, as people write it, among `names`.

    Args:
        given: the label; 3, 3.0 and "3" are one.
        names: the labels there are.
        what: the argument that gives it, for the message.
        kind: what the names are of, such as "state".

    Raises:
        ValueError: for a label that is no name, with the name that comes closest.

    Example:
        >>> place_of(2.0, ["1", "2"], "states", "state")
        1
    """
    name = label(given, f"each {kind} of {what}")
    if name in names:
        return names.index(name)
    close = closest(name, names)
    hint = "" if close is None else f". Did you mean {close!r}?"
    raise ValueError(f"{what} must name {kind}s among {first_few(names)}, got {name!r}{hint}")


def numbers_of(
    given: Mapping[Any, Any],
    names: Sequence[str],
    what: str,
    kind: str,
    read: Callable[[Any, str], Any] = as_floats,
) -> Floats:
    """Return the number that a mapping gives for each name `(n,)`, NaN where it gives none; `read` checks each number.

    Raises:
        ValueError: for a key that is no name, and for a value that is no finite number.
    """
    index = {name: i for i, name in enumerate(names)}
    numbers = np.full(len(names), np.nan)
    for key, value in given.items():
        name = label(key, f"each {kind} of {what}")
        at = index[name] if name in index else place_of(name, names, what, kind)
        numbers[at] = float(read(value, f"{what} of {name}"))
    return numbers


def closest(label: str, names: Sequence[str]) -> str | None:
    """Return the one name that differs from the label in case, blanks or the text before its number; else one spelt alike."""
    for form in (_without_case, _number_in):
        wanted = form(label)
        same = [name for name in names if wanted and form(name) == wanted]
        if len(same) == 1:
            return same[0]
    # Near misses in spelling are looked for among at most this many names; comparing takes time for each.
    compared_names = 2000
    near = get_close_matches(label, names[:compared_names], n=1, cutoff=0.75)
    return near[0] if near else None


def look_alikes(names: Sequence[str], what: str) -> str | None:
    """Return a sentence on names that differ only in capitals or blanks; None where there are none.

    Example:
        >>> look_alikes(["Drug", "drug", "wait"], "action")[:88]
        "Some actions differ only in capitals or blanks and count as different: 'Drug' and 'drug'"
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_without_case(name), []).append(name)
    alike = [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]
    if not alike:
        return None
    # Groups of names that look alike are listed up to this many.
    listed_groups = 5
    listed = "; ".join(alike[:listed_groups]) + (f"; and {len(alike) - listed_groups} more" if len(alike) > listed_groups else "")
    return (
        f"Some {what}s differ only in capitals or blanks and count as different: {listed}. If they mean the same, "
        "write them alike in the table."
    )


def _without_case(name: str) -> str:
    return "".join(unicodedata.normalize("NFKC", name).casefold().split())


def _number_in(name: str) -> str:
    digits = re.findall(r"\d+", name)
    return digits[0].lstrip("0") or "0" if len(digits) == 1 else ""
