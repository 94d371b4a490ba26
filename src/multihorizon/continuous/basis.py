"""Functions of the state in which rewards and values are written: `r(s) = φ(s)ᵀθ`.

`Splines` is the default. A coordinate has `size` cubic B-splines, whose knots lie half-way between equal distances and equal
shares of the data; one with few distinct values has an indicator for each of them. Products of these functions over all
coordinates are the basis where there are at most `MOST_PRODUCTS`; beyond, the products over each pair of coordinates. The
functions are local, so rows of φ are sparse, and constants are among their combinations.

Any other scikit-learn transformer will do: `Fitted` standardises the coordinates before it and adds a constant where the
transformer has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from scipy.interpolate import BSpline
from sklearn.base import BaseEstimator, TransformerMixin, clone

from multihorizon.checks import Floats, Ints, Sparse, as_count

DEGREE = 3
#: With more products than this, a basis is made of pairs of coordinates.
MOST_PRODUCTS = 256
#: Shares of the data beyond which a coordinate counts as lying on the edge of its range.
EDGE = 0.002


class Splines(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Products of B-splines, as a scikit-learn transformer with sparse output.

    Args:
        size: functions per coordinate, at least 4.
        sources: for each column, which quantity it belongs to; columns that share one are the indicators of a category. By
            default each column is a quantity of its own.

    Example:
        >>> rows = Splines(5).fit_transform(np.random.default_rng(0).uniform(size=(100, 2)))
        >>> rows.shape, bool(np.allclose(rows.sum(axis=1), 1))
        ((100, 25), True)
    """

    def __init__(self, size: int = 8, sources: Sequence[int] | None = None) -> None:
        self.size = size
        self.sources = sources

    def fit(self, X: Any, y: Any = None) -> Splines:
        """Place the knots."""
        as_count(self.size, "size of a spline basis", least=DEGREE + 1)
        points = np.asarray(X, dtype=np.float64)
        self.columns_ = _columns(points.shape[1], self.sources)
        self.axes_ = [_axis(points[:, columns], self.size) for columns in self.columns_]
        sizes = [axis.size for axis in self.axes_]
        whole = np.prod([float(size) for size in sizes]) <= MOST_PRODUCTS or len(sizes) < 3
        self.products_ = [tuple(range(len(sizes)))] if whole else list(combinations(range(len(sizes)), 2))
        self.n_features_in_ = points.shape[1]
        return self

    def transform(self, X: Any) -> Sparse:
        """The functions at these states, `(n,p)`."""
        points = np.asarray(X, dtype=np.float64)
        local = [axis.local(points[:, columns]) for axis, columns in zip(self.axes_, self.columns_, strict=True)]
        return sp.csr_array(sp.hstack([self._product(local, places) for places in self.products_], format="csr"))

    def get_feature_names_out(self, input_features: Sequence[str] | None = None) -> list[str]:
        """Where each function has its peak, as `x=0.25, y=0.5`."""
        names = input_features if input_features is not None else [f"x{i + 1}" for i in range(self.n_features_in_)]
        labels = [axis.labels([names[c] for c in columns]) for axis, columns in zip(self.axes_, self.columns_, strict=True)]
        return [
            ", ".join(labels[i][j] for i, j in zip(places, position, strict=True))
            for places in self.products_
            for position in np.ndindex(*(self.axes_[i].size for i in places))
        ]

    def second_differences(self) -> Floats:
        """The matrix R `(p,p)` of the sum of squared second differences of neighbouring coefficients along each coordinate.

        It is zero where no coordinate has splines.
        """
        found: Floats = la.block_diag(*(self._rough(places) for places in self.products_))
        return found

    def _rough(self, places: tuple[int, ...]) -> Floats:
        sizes = [self.axes_[i].size for i in places]
        total = np.zeros((int(np.prod(sizes)),) * 2)
        for j, i in enumerate(places):
            if isinstance(self.axes_[i], _Knots):
                second = np.diff(np.eye(sizes[j]), 2, axis=0)
                before, after = np.eye(int(np.prod(sizes[:j]))), np.eye(int(np.prod(sizes[j + 1 :])))
                total += np.kron(np.kron(before, second.T @ second), after)
        return total

    def _product(self, local: list[tuple[Ints, Floats]], places: tuple[int, ...]) -> Sparse:
        index, value = local[places[0]]
        size = self.axes_[places[0]].size
        for i in places[1:]:
            other_index, other_value = local[i]
            index = (index[:, :, None] * self.axes_[i].size + other_index[:, None, :]).reshape(len(index), -1)
            value = (value[:, :, None] * other_value[:, None, :]).reshape(len(value), -1)
            size *= self.axes_[i].size
        starts = np.arange(0, index.size + 1, index.shape[1])
        return sp.csr_array((value.ravel(), index.ravel(), starts), shape=(len(index), size))


@dataclass(frozen=True, eq=False)
class _Knots:
    """B-splines of one coordinate."""

    knots: Floats

    @property
    def size(self) -> int:
        return self.knots.size - DEGREE - 1

    def labels(self, names: Sequence[str]) -> list[str]:
        """Where each function has its peak."""
        return [f"{names[0]}={self.knots[i + 1 : i + 1 + DEGREE].mean():.4g}" for i in range(self.size)]

    def local(self, values: Floats) -> tuple[Ints, Floats]:
        """Which functions are not zero at these values, `(n,4)`, and what they are there; constant beyond the edges."""
        inside = np.clip(values[:, 0], self.knots[DEGREE], self.knots[-DEGREE - 1])
        matrix = BSpline.design_matrix(inside, self.knots, DEGREE)
        width = DEGREE + 1
        return matrix.indices.reshape(-1, width).astype(np.int64), matrix.data.reshape(-1, width)


@dataclass(frozen=True, eq=False)
class _Values:
    """Indicators of the distinct values of one coordinate; other values count as the nearest of them."""

    distinct: Floats

    @property
    def size(self) -> int:
        return self.distinct.size

    def labels(self, names: Sequence[str]) -> list[str]:
        """The value of each indicator."""
        return [f"{names[0]}={value:.6g}" for value in self.distinct]

    def local(self, values: Floats) -> tuple[Ints, Floats]:
        """Which indicator is 1 at these values, `(n,1)`."""
        middle = (self.distinct[1:] + self.distinct[:-1]) / 2
        return np.searchsorted(middle, values[:, 0])[:, None].astype(np.int64), np.ones((len(values), 1))


@dataclass(frozen=True, eq=False)
class _Category:
    """The indicators of a category, which are columns already."""

    size: int

    def labels(self, names: Sequence[str]) -> list[str]:
        """The columns' own names."""
        return list(names)

    def local(self, values: Floats) -> tuple[Ints, Floats]:
        """Which indicator is 1, `(n,1)`."""
        return values.argmax(axis=1)[:, None].astype(np.int64), np.ones((len(values), 1))


def _columns(width: int, sources: Sequence[int] | None) -> list[list[int]]:
    """The columns of each quantity."""
    given = range(width) if sources is None else sources
    return [[i for i, source in enumerate(given) if source == wanted] for wanted in dict.fromkeys(given)]


def _axis(values: Floats, size: int) -> _Knots | _Values | _Category:
    if values.shape[1] > 1:
        return _Category(values.shape[1])
    distinct = np.unique(values)
    if distinct.size <= size:
        return _Values(distinct)
    inner = size - DEGREE + 1
    low, high = np.quantile(values, [EDGE, 1 - EDGE])
    if low == high:
        low, high = distinct[0], distinct[-1]
    shares = np.quantile(np.clip(values, low, high), np.linspace(0, 1, inner))
    knots = (np.linspace(low, high, inner) + shares) / 2
    return _Knots(np.concatenate([[knots[0]] * DEGREE, knots, [knots[-1]] * DEGREE]))


@dataclass(frozen=True, eq=False)
class Fitted:
    """A transformer fitted to standardised states, with a constant where it has none."""

    transformer: Any
    centre: Floats
    scale: Floats
    adds_constant: bool
    names: tuple[str, ...]

    def __call__(self, states: Floats) -> Sparse:
        """φ `(n,p)` at states `(n,d)`."""
        rows = sp.csr_array(self.transformer.transform((states - self.centre) / self.scale), dtype=np.float64)
        if not self.adds_constant:
            return rows
        return sp.csr_array(sp.hstack([np.ones((rows.shape[0], 1)), rows], format="csr"))


def fit_basis(transformer: Any, states: Floats, coordinates: Sequence[str]) -> Fitted:
    """Fit a transformer to states `(n,d)`. Splines and indicators take coordinates as they are, others standardised ones."""
    plain = isinstance(transformer, Splines) or type(transformer).__name__ == "OneHotEncoder"
    centre = np.zeros(states.shape[1]) if plain else states.mean(axis=0)
    spread = states.std(axis=0)
    scale = np.ones(states.shape[1]) if plain else np.where(spread > 0, spread, 1.0)
    fitted = clone(transformer).fit((states - centre) / scale)
    rows = sp.csr_array(fitted.transform((states[:1000] - centre) / scale), dtype=np.float64)
    total = np.asarray(rows.sum(axis=1)).ravel()
    constant = bool(np.ptp(total) > 1e-9 * np.abs(total).max(initial=1.0))
    names = _names(fitted, coordinates, rows.shape[1])
    return Fitted(fitted, centre, scale, constant, ("constant", *names) if constant else names)


def _names(fitted: Any, coordinates: Sequence[str], size: int) -> tuple[str, ...]:
    """The transformer's own names of its functions, where it has any that are distinct."""
    try:
        names = tuple(str(name) for name in fitted.get_feature_names_out(list(coordinates)))
    except (AttributeError, ValueError):
        names = ()
    return names if len(set(names)) == size else tuple(f"function {i + 1}" for i in range(size))
