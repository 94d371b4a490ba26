"""Checks of user input, and the few numbers that several packages share.

Each check raises one sentence that names the place, the expected and the received. Each number comes with what it decides and why
it has this size; one that a single module uses stays there.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from multihorizon.frames import as_frame, is_frame

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
                    raise TypeError(f"{text}, received both")
                warnings.warn(text, DeprecationWarning, stacklevel=2)
            return function(*args, **{names.get(name, name): value for name, value in options.items()})

        if not isinstance(target, type):
            return wrapper  # type: ignore[return-value]
        kind.__init__, kind.renamed = wrapper, names
        return target

    return decorate


def current_names(target: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a renamed dataclass under the names of this release; saved results may have older ones."""
    names = getattr(target, "renamed", {})
    return {names.get(name, name): value for name, value in options.items()}


def as_floats(value: object, name: str) -> Floats:
    """Read `value`, which may be a data frame, as a float array without NaN or infinity."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        if is_frame(value):  # one that has yet to be collected
            return as_floats(as_frame(value, name).to_numpy(), name)
        raise ValueError(f"{name} must be numbers, received {_describe(value)}") from error
    if not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        where = f" at {place[0] if len(place) == 1 else place}" if place else ""
        raise ValueError(f"{name} must be finite, received {array[place]}{where}")
    return array


def as_shape(array: NDArray[Any], shape: tuple[int, ...], name: str) -> None:
    """Raise unless `array` has exactly `shape`."""
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, received {array.shape}")


def as_discount(value: object, name: str = "discount") -> float:
    """Read one discount factor in [0, 1]."""
    discount = _as_number(value, f"{name} must be one number in [0, 1]")
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"{name} must be in [0, 1], received {discount}")
    return discount


def as_positive(value: object, name: str) -> float:
    """Read one finite number above zero."""
    number = _as_number(value, f"{name} must be a positive number")
    if not np.isfinite(number) or number <= 0:
        raise ValueError(f"{name} must be a positive number, received {number}")
    return _not_too_large(number, name)


def as_non_negative(value: object, name: str) -> float:
    """Read one finite number of at least zero."""
    number = _as_number(value, f"{name} must be a number of at least 0")
    if not 0 <= number < np.inf:
        why = ", which is not finite" if number == np.inf else ""
        raise ValueError(f"{name} must be a number of at least 0, received {number}{why}")
    return _not_too_large(number, name)


def _not_too_large(number: float, name: str) -> float:
    if number > LARGEST_NUMBER:
        raise ValueError(f"{name} must be at most {LARGEST_NUMBER:g}, received {number:g}")
    return number


def _as_number(value: Any, expected: str) -> float:
    """Read one number; truth values, texts and arrays are refused."""
    if isinstance(value, bool | np.bool_ | str | bytes) or getattr(value, "shape", ()) != ():
        raise ValueError(f"{expected}, received {_describe(value)}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{expected}, received {_describe(value)}") from error


def as_level(value: object) -> float:
    """Read the level of an interval: a number between 0 and 1."""
    level = _as_number(value, "level must be between 0 and 1")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, received {level}")
    return level


def as_count(value: object, name: str, least: int = 1, most: int = 10_000_000) -> int:
    """Read one whole number from `least` to `most`, beyond which no number can be worked through."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, received {_describe(value)}")
    if value > most:
        raise ValueError(f"{name} must be at most {most:,}, received {_describe(value)}")
    return int(value)


#: What fixes randomness: a whole number, or a generator that moves on with each use.
Seed = int | np.random.Generator


def as_seed(value: object, name: str = "seed") -> int:
    """Read a seed of random numbers: a whole number of at least 0, or a NumPy `Generator`, from which one is drawn (SPEC 7)."""
    if isinstance(value, np.random.Generator):
        return int(value.integers(2**32))  # more than some packages take
    return as_count(value, name, least=0, most=2**128)


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
        raise ValueError(f"{name} must be a list of indices or a mask of length {size}, received {_describe(value)}")
    outside = array[(array < 0) | (array >= size)]
    if outside.size:
        raise ValueError(f"{name} must hold indices from 0 to {size - 1}, received {int(outside[0])}")
    mask[array] = True
    return mask


def as_distribution(value: object, size: int, name: str) -> Floats:
    """Read a probability vector of length `size`."""
    array = as_floats(value, name)
    as_shape(array, (size,), name)
    if (array < 0).any():
        place = int(np.flatnonzero(array < 0)[0])
        raise ValueError(f"{name} must not be negative, received {array[place]} at {place}")
    total = float(array.sum())
    if abs(total - 1) > ROW_TOLERANCE:
        raise ValueError(f"{name} must sum to 1, received a sum of {total:.6g}")
    return array / total


def as_names(value: Iterable[object] | None, size: int, name: str) -> tuple[str, ...]:
    """Read `size` distinct labels as strings; None gives "0", "1", …"""
    if value is None:
        return tuple(str(i) for i in range(size))
    names = tuple(label(item, name) for item in value)
    if len(names) != size:
        raise ValueError(f"{name} must have {size} entries, received {len(names)}")
    if len(set(names)) != size:
        twice = next(n for n, times in Counter(names).items() if times > 1)
        raise ValueError(f"{name} must be distinct, received {twice!r} twice")
    return names


def label(value: object, name: str) -> str:
    """Return the canonical text of a label: 3, 3.0, "3" and "3.0" are one label.

    A column of whole numbers in which one is missing is read as decimals, and must still match.
    """
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            raise ValueError(f"{name} must not be missing, received {float(value)}")
        if float(value).is_integer():
            return str(int(value))
    if isinstance(value, bytes | dict | list | tuple | set | np.ndarray):
        raise ValueError(f"{name} must be text or a number, received {_describe(value)}")
    text = str(value).strip()
    longest = 1000
    if len(text) > longest:
        raise ValueError(f"{name} must have at most {longest:,} letters, received {text[:20]!r}… with {len(text):,}")
    if not text or (not text.isprintable() and not any(c.isprintable() and not c.isspace() for c in text)):
        raise ValueError(f"{name} must be a label that can be seen, received {str(value)!r}")
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
