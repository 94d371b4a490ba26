"""Least squares with columns that may depend on each other: what of a vector they explain, and by which coefficients.

Few columns are dense and get a singular value decomposition. Many columns are sparse (`SparseColumns`), and their coefficients x
may be bound by equations `C x = 0`. They are solved by iterated regularisation. With a matrix G that measures coefficients, one
sparse factorisation of

    [ MᵀM + ε G    Cᵀ  ]
    [ C           −δ I ]

is applied to what is left of `Mᵀ(h − M x) = Cᵀ y` and `C x = 0` until nothing changes. From x = 0 this goes to the least-squares
solution of least G-norm. Each step divides what is left along a direction with singular value σ (relative to G) by σ²/ε + 1, so
two or three steps reach rounding unless there are very weak directions. What they could explain beyond `rounding` is left, and
whoever asks must not read more into it. Sylvester's law of inertia counts the null directions, those with σ < SMALLEST: with
−SMALLEST² G in place of ε G there is one negative pivot for each, besides one for each row of C.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import Floats, Sparse
from multihorizon.recovery.normal_equations import factorise
from multihorizon.tolerances import TINY

#: Relative singular values of sparse columns below this count as zero.
SMALLEST = 1e-6
#: ε as a share of the largest entry of `MᵀM`, without and with constraints, and δ.
REGULARISED, REGULARISED_BOUND, SOFTENED = 1e-12, 1e-10, 1e-8
#: Steps of the iteration at most, and the share of a vector below which a step explains nothing more.
STEPS, NO_GAIN = 20, 1e-15
#: If a projection leaves less than this share of a vector's norm, what it leaves is rounding: of dense and of sparse columns.
DENSE_ROUNDING, SPARSE_ROUNDING = 1e-11, 1e-7
#: Draws from the null space where it is not listed, and how often what is left of their effect is taken away.
NULL_DRAWS, NULL_PASSES = 8, 3


class ColumnSpace(Protocol):
    """The columns of a matrix M, `(rows, n)`; `rounding` is the share of a vector up to which they leave what they explain."""

    rounding: float

    @property
    def rank(self) -> int:
        """How many directions the columns span."""
        ...

    @property
    def nullity(self) -> int:
        """How many directions of coefficients have no effect."""
        ...

    def solve(self, right: Floats) -> Floats:
        """The coefficients `(n, …)` of least size that explain `right` best."""
        ...

    def outside(self, vectors: Floats) -> Floats:
        """The part of vectors `(rows, …)` that no coefficients can explain."""
        ...

    def null_moves(self) -> Floats:
        """Coefficients `(n, m)` without effect: a basis, or random ones where there are many; no columns if there are none."""
        ...


@dataclass(frozen=True, eq=False)
class Coefficients:
    """What the coefficients of sparse columns may be: G, C and the dimension of all x with `C x = 0`."""

    norm: Sparse
    constraints: Sparse
    dimension: int


def column_space(matrix: Floats | Sparse, smallest: float, coefficients: Coefficients | None = None) -> ColumnSpace:
    """The columns of M.

    Args:
        matrix: M.
        smallest: singular values of a dense M below this share of the largest count as zero.
        coefficients: what those of a sparse M may be.
    """
    if isinstance(matrix, np.ndarray):
        return DenseColumns(matrix, smallest)
    assert coefficients is not None
    return SparseColumns(matrix, coefficients)


def unbound(norm: Sparse) -> Coefficients:
    """Coefficients without constraints."""
    return Coefficients(norm, sp.csr_array((0, norm.shape[0])), norm.shape[0])


def side_by_side(parts: list[Coefficients]) -> Coefficients:
    """The coefficients of several blocks of columns."""
    norm = sp.csr_array(sp.block_diag([part.norm for part in parts]))
    constraints = sp.csr_array(sp.block_diag([part.constraints for part in parts]))
    return Coefficients(norm, constraints, sum(part.dimension for part in parts))


class DenseColumns:
    """Columns by their singular value decomposition."""

    rounding: float = DENSE_ROUNDING

    def __init__(self, matrix: Floats, smallest: float) -> None:
        self.matrix = matrix
        if matrix.size:
            left, values, right = np.linalg.svd(matrix, full_matrices=matrix.shape[0] < matrix.shape[1])
        else:
            left, values, right = np.zeros((matrix.shape[0], 0)), np.zeros(0), np.eye(matrix.shape[1])
        self.rank = int((values > smallest * max(float(values.max(initial=0.0)), TINY)).sum())
        self.nullity = matrix.shape[1] - self.rank
        self._range, self._null = left[:, : self.rank], right[self.rank :].T
        self._inverse = right[: self.rank].T / values[: self.rank]

    def solve(self, right: Floats) -> Floats:
        """Refined once: sums over many rows are good to twelve digits only."""
        x = self._inverse @ (self._range.T @ right)
        refined: Floats = x + self._inverse @ (self._range.T @ (right - self.matrix @ x))
        return refined

    def outside(self, vectors: Floats) -> Floats:
        """By the orthonormal basis."""
        return vectors - self._range @ (self._range.T @ vectors)

    def null_moves(self) -> Floats:
        """An orthonormal basis."""
        return self._null


class SparseColumns:
    """Columns by a sparse factorisation of their regularised Gram matrix."""

    rounding: float = SPARSE_ROUNDING

    def __init__(self, matrix: Sparse, coefficients: Coefficients) -> None:
        self._scale = 1 / np.sqrt(np.maximum(coefficients.norm.diagonal(), TINY))
        scaling = sp.diags_array(self._scale)
        self._matrix, self._bound = sp.csr_array(matrix @ scaling), sp.csr_array(coefficients.constraints @ scaling)
        self._back, self._pull = sp.csr_array(self._matrix.T), sp.csr_array(self._bound.T)
        self._norm = sp.csr_array(scaling @ coefficients.norm @ scaling)
        self._gram = sp.csr_array(self._back @ self._matrix)
        self._largest = float(self._gram.diagonal().max(initial=TINY))
        self._dimension = coefficients.dimension
        self._factor = self._factorised()

    def _system(self, share: float, softened: float) -> Sparse:
        size = self._bound.shape[0]
        gram = self._gram + share * self._largest * self._norm
        soft = -softened * sp.eye_array(size)
        return sp.csr_array(sp.block_array([[gram, self._pull], [self._bound, soft]])) if size else gram

    def _factorised(self) -> Any:
        """With exchanges of rows where there are constraints: without them the factors would lose too many digits."""
        if not self._bound.shape[0]:
            return factorise(self._system(REGULARISED, SOFTENED))
        return spla.splu(sp.csc_array(self._system(REGULARISED_BOUND, SOFTENED)))

    @cached_property
    def nullity(self) -> int:
        """How many directions of coefficients have no effect; the count is the same for any δ, and surest for a large one."""
        pivots = factorise(self._system(-(SMALLEST**2), 1.0)).U.diagonal()
        return int((pivots < 0).sum() - self._bound.shape[0])

    @cached_property
    def rank(self) -> int:
        """How many directions the columns span."""
        return int(self._dimension - self.nullity)

    def solve(self, right: Floats) -> Floats:
        """By the way at the top."""
        solved: Floats = (self._solve(right).T * self._scale).T
        return solved

    def outside(self, vectors: Floats) -> Floats:
        """What the best coefficients leave."""
        left: Floats = vectors - self._matrix @ self._solve(vectors)
        return left

    def null_moves(self) -> Floats:
        """Random ones, and none if there are none."""
        if not self.nullity:
            return np.zeros((self._scale.size, 0))
        return self.null_draws(NULL_DRAWS)

    def null_draws(self, count: int) -> Floats:
        """Random coefficients `(n, count)`, less the least change that takes away what they do to columns and constraints."""
        moves = np.random.default_rng(0).standard_normal((self._scale.size, count))
        for _ in range(NULL_PASSES):
            moves = moves - self._solve(self._matrix @ moves, self._bound @ moves)
        scaled: Floats = (moves.T * self._scale).T
        return scaled

    def _solve(self, right: Floats, bound: Floats | float = 0.0) -> Floats:
        """The scaled coefficients x that explain `right` best with `C x = bound`."""
        size = self._scale.size
        x, y = np.zeros((size, *right.shape[1:])), np.zeros((self._bound.shape[0], *right.shape[1:]))
        enough = NO_GAIN * np.linalg.norm(right)
        for _ in range(STEPS):
            missing = self._back @ (right - self._matrix @ x) - self._pull @ y
            step = self._factor.solve(np.concatenate([missing, bound - self._bound @ x]))
            x, y = x + step[:size], y + step[size:]
            if np.linalg.norm(self._matrix @ step[:size]) <= enough:
                break
        return x
