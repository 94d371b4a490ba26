"""The null space of the matrix D of action differences, and least-squares solves with D, by three ways.

* `Dense`: a singular value decomposition, for few columns.
* `Parts`: null(D) holds one constant on each connected part of D's graph and nothing else. A column of zeros (a state that only
  states with a single action lead to) is a part of its own. This is the usual case. `normal_equations` solves with this guess
  and tests it.
* `Bound`: there are fewer equations than unknowns somewhere. If null(D) is small, draws from it make a basis. A large basis would
  be dense, so none is made: null(D) is all x with `D x = 0`, and `column_space` keeps to these equations.

All solutions are those of least norm, so that they do not depend on the order of the states.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.recovery.column_space import Coefficients, SparseColumns, unbound
from multihorizon.recovery.normal_equations import EXACT, ROUGH, NormalSolver, normal_solver, renumbered
from multihorizon.tolerances import RANK_TOLERANCE, TINY

#: Up to the first number of columns D is decomposed densely, up to the second where null(D) is larger than the constants.
DENSE, LARGEST_DENSE = 64, 3000
#: Bases with more entries are sparse.
DENSE_ENTRIES = 100_000


class NullSpace(Protocol):
    """null(D) as `N z` with orthonormal columns N; z is free if N is dense and as `coefficients` says if it is sparse."""

    basis: Floats | Sparse

    @property
    def coefficients(self) -> Coefficients | None:
        """What z may be where the basis is sparse."""
        ...

    def solve(self, right: Floats, rough: bool) -> Floats:
        """The least-squares solution `(n,)` of `D x = right`; a rough one may have one or two digits."""
        ...


def null_space(matrix: Sparse) -> NullSpace:
    """The null space of D by the way that suits its size and structure."""
    if matrix.shape[1] > DENSE:
        parts = _parts(matrix)
        if parts is not None:
            return parts
    return Dense(matrix) if matrix.shape[1] <= LARGEST_DENSE else Bound(matrix)


class Dense:
    """By a singular value decomposition."""

    coefficients = None

    def __init__(self, matrix: Sparse) -> None:
        size = matrix.shape[1]
        left, values, right = np.linalg.svd(matrix.toarray(), full_matrices=matrix.shape[0] < size)
        rank = int((values > RANK_TOLERANCE * max(values.max(initial=0.0), TINY)).sum())
        self._inverse = (right[:rank].T / values[:rank]) @ left[:, :rank].T
        self.basis: Floats | Sparse = np.full((size, 1), size**-0.5) if rank == size - 1 else right[rank:].T.copy()

    def solve(self, right: Floats, rough: bool) -> Floats:
        """Exact in any case."""
        solved: Floats = self._inverse @ right
        return solved


def _parts(matrix: Sparse) -> Parts | None:
    """null(D) if it is constant on parts; None if it holds more."""
    gram = sp.csr_array(matrix.T.tocsr() @ matrix)
    labels = connected_components(gram, directed=False)[1]
    told = np.flatnonzero(gram.diagonal() > 0)
    if not told.size:
        return Parts(labels, told, None)
    if told.size < labels.size:
        matrix, gram = sp.csr_array(matrix[:, told]), sp.csr_array(gram[told][:, told])
    solver = normal_solver(matrix, gram, renumbered(labels[told]))
    return None if solver is None else Parts(labels, told, solver)


class Parts:
    """One constant on each part; `told` are the columns that are not zero."""

    def __init__(self, labels: Ints, told: Ints, solver: NormalSolver | None) -> None:
        self._labels, self._told, self.solver = labels, told, solver
        self._sizes = np.bincount(labels)
        shape = labels.size, self._sizes.size
        basis = sp.csr_array((1 / np.sqrt(self._sizes[labels]), labels, np.arange(labels.size + 1)), shape=shape)
        few = labels.size * self._sizes.size <= DENSE_ENTRIES or self._sizes.size == 1
        self.basis: Floats | Sparse = basis.toarray() if few else basis
        self.coefficients = None if few else unbound(sp.csr_array(sp.eye_array(self._sizes.size)))

    def solve(self, right: Floats, rough: bool) -> Floats:
        """With mean 0 on each part."""
        if self.solver is None:
            return np.zeros(self._labels.size)
        solved = self.solver.solve(right, ROUGH if rough else EXACT)
        if self._told.size < self._labels.size:
            solved, some = np.zeros(self._labels.size), solved
            solved[self._told] = some
        solved -= (np.bincount(self._labels, solved) / self._sizes)[self._labels]
        return solved


class Bound:
    """All x with `D x = 0`."""

    def __init__(self, matrix: Sparse) -> None:
        everything = sp.csr_array(sp.eye_array(matrix.shape[1]))
        self._columns = SparseColumns(matrix, unbound(everything))
        dimension = self._columns.nullity
        self.basis: Floats | Sparse = everything
        self.coefficients: Coefficients | None = None
        if dimension * matrix.shape[1] <= DENSE_ENTRIES:
            self.basis = np.linalg.qr(self._columns.null_draws(dimension))[0]
        else:
            told = sp.csr_array(matrix[np.diff(matrix.indptr) > 0])
            self.coefficients = Coefficients(everything, sp.csr_array(told / np.abs(told.data).max()), dimension)

    def solve(self, right: Floats, rough: bool) -> Floats:
        """Exact in any case."""
        return self._columns.solve(right)
