"""Least squares with a large sparse matrix D whose null space is known: `min ‖D x − b‖` for several b.

Two ways, by size:

* SuperLU factorises `DᵀD` with one row and column of each part of its graph left out. It is exact and quick on up to `FACTORED`
  columns; its cost then grows faster than their number. Solves are refined on D, because `DᵀD` squares its condition number;
* conjugate gradients on the normal equations, refined once on D, with algebraic multigrid (`pyamg`, the method of Ruge and
  Stüben) as preconditioner: about a dozen steps at every size, so the cost is linear. All right-hand sides share the hierarchy,
  and each is solved only as far as it is asked for. Where this does not converge, SuperLU takes over.

Parts of the graph that are large and small are solved apart, each in the way that suits them.

`smallest` is an estimate, from above, of the smallest singular value of D apart from the null space that is constant on each
part. It decides whether there is more to the null space. A random vector has a part in every direction, so that with a larger
null space the conjugate gradients do not converge on it.

Least squares with columns that may depend on each other: what of a vector they explain, and by which coefficients.

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

The null space of the matrix D of action differences, and least-squares solves with D, by three ways.

* `Dense`: a singular value decomposition, for few columns.
* `Parts`: null(D) holds one constant on each connected part of D's graph and nothing else. A column of zeros (a state that only
  states with a single action lead to) is a part of its own. This is the usual case. `normal_equations` solves with this guess
  and tests it.
* `Bound`: there are fewer equations than unknowns somewhere. If null(D) is small, draws from it make a basis. A large basis would
  be dense, so none is made: null(D) is all x with `D x = 0`, and `column_space` keeps to these equations.

All solutions are those of least norm, so that they do not depend on the order of the states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyamg
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.sparse.csgraph import connected_components

from multihorizon.checks import RANK_TOLERANCE, TINY, Bools, Floats, Ints, Sparse

#: Up to this many columns `DᵀD` is factorised.
FACTORED = 20_000
#: Relative residual of an exact solve, and of a draw of noise, of which two digits are used.
EXACT, ROUGH = 1e-12, 0.1
#: Steps of conjugate gradients, and of factorised refinement.
MOST_STEPS, REFINEMENTS = 200, 3
#: Columns of the coarsest level, which is solved directly.
COARSEST = 500
#: The relative residual to which a random vector must be solved for: one with a part in the null space cannot be.
PROBED = 1e-6
#: A larger share of a random vector that stays unsolved is its part in the null space.
UNSOLVED = 0.1


class NormalSolver(Protocol):
    """Least-squares solves with one matrix."""

    largest: float
    smallest: float

    def solve(self, right: Floats, tolerance: float) -> Floats:
        """A least-squares solution `(n,)` for one b, up to a relative residual of the normal equations."""
        ...


def normal_solver(matrix: Sparse, gram: Sparse, labels: Ints) -> NormalSolver | None:
    """The solver that suits the size; None where the null space is larger than one constant on each part.

    Args:
        matrix: D.
        gram: `DᵀD`.
        labels: for each column the part of the graph of `DᵀD` to which it belongs.
    """
    large = np.bincount(labels)[labels] > FACTORED
    if large.any() and not large.all():
        return _apart(matrix, gram, labels, large)
    largest = float(np.sqrt(abs(gram).sum(axis=0).max(initial=0.0)))
    for kind in (Multigrid, Factored) if large.any() else (Factored,):
        try:
            solver: NormalSolver = kind(matrix, gram, labels)
        except NotSolvedError:
            continue
        solver.largest = largest
        return solver if solver.smallest > 10 * np.sqrt(np.finfo(np.float64).eps) * largest else None
    return None


def renumbered(labels: Ints) -> Ints:
    """The labels with numbers from 0 on that leave none out, in the same order."""
    number: Ints = np.cumsum(np.bincount(labels) > 0) - 1
    return number[labels]


def _apart(matrix: Sparse, gram: Sparse, labels: Ints, large: Bools) -> NormalSolver | None:
    """A solver for the large parts and one for the small ones."""
    solvers = []
    for columns in (np.flatnonzero(large), np.flatnonzero(~large)):
        own = sp.csr_array(matrix[:, columns]), sp.csr_array(gram[columns][:, columns]), renumbered(labels[columns])
        solver = normal_solver(*own)
        if solver is None:
            return None
        solvers.append((columns, solver))
    return Apart(solvers)


class Apart:
    """Solvers for groups of columns that do not touch each other."""

    def __init__(self, solvers: list[tuple[Ints, NormalSolver]]) -> None:
        self.solvers = solvers
        self.largest = max(solver.largest for _, solver in solvers)
        self.smallest = min(solver.smallest for _, solver in solvers)

    def solve(self, right: Floats, tolerance: float) -> Floats:
        """Each group by its own solver."""
        solution = np.zeros(sum(columns.size for columns, _ in self.solvers))
        for columns, solver in self.solvers:
            solution[columns] = solver.solve(right, tolerance)
        return solution


class NotSolvedError(RuntimeError):
    """A way of solving that does not work for this matrix."""


def factorise(matrix: Sparse) -> Any:
    """SuperLU of a symmetric matrix without exchanges of rows, so that the pivots have the signs of the eigenvalues."""
    options = {"SymmetricMode": True}
    return spla.splu(sp.csc_array(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)


class Factored:
    """SuperLU on `DᵀD` with one column of each part held at 0."""

    largest = np.inf

    def __init__(self, matrix: Sparse, gram: Sparse, labels: Ints) -> None:
        self.matrix = matrix
        first = np.full(int(labels.max(initial=-1)) + 1, labels.size, dtype=np.int64)
        np.minimum.at(first, labels, np.arange(labels.size))
        kept = np.ones(labels.size, dtype=np.bool_)
        kept[first] = False
        self.kept: Ints = np.flatnonzero(kept)
        if not self.kept.size:
            raise NotSolvedError
        try:
            self.factor = factorise(gram[self.kept][:, self.kept])
        except RuntimeError as error:
            raise NotSolvedError from error
        self.smallest = _smallest(self.factor.solve, self.kept.size, steps=4)

    def solve(self, right: Floats, tolerance: float) -> Floats:
        """Refined unless a rough answer will do."""
        solution = np.zeros(self.matrix.shape[1])
        for _ in range(REFINEMENTS if tolerance < PROBED else 1):
            solution[self.kept] += self.factor.solve((self.matrix.T @ (right - self.matrix @ solution))[self.kept])
        return solution


class Multigrid:
    """Conjugate gradients on the normal equations, preconditioned by algebraic multigrid."""

    largest = np.inf

    def __init__(self, matrix: Sparse, gram: Sparse, labels: Ints) -> None:
        self.matrix, self.gram = matrix, gram
        self.labels, self.sizes = labels, np.bincount(labels)
        if (gram.diagonal() <= 0).any():
            raise NotSolvedError
        single = sp.csr_matrix(gram, dtype=np.float32)  # a preconditioner needs no more digits; half the bytes are read faster
        ways = {f"{when}smoother": ("gauss_seidel", {"sweep": way}) for when, way in (("pre", "forward"), ("post", "backward"))}
        self.hierarchy: Any = pyamg.ruge_stuben_solver(single, interpolation="direct", max_coarse=COARSEST, **ways)
        self.smallest = _smallest(self._probe, labels.size, steps=1)

    def _probe(self, vector: Floats) -> Floats:
        """The solution for a random vector; infinite where it is none, because the vector has a part in a larger null space."""
        vector = self._centred(vector)
        solution = self._descend(vector, PROBED)
        solved = np.linalg.norm(self.gram @ solution - vector) <= UNSOLVED * np.linalg.norm(vector)
        return solution if solved else np.full(vector.size, np.inf)

    def solve(self, right: Floats, tolerance: float) -> Floats:
        """Steps until the error, measured by `‖D (x − x*)‖`, is this share of `‖D x*‖`."""
        try:
            return self._descend_twice(right, tolerance)
        except NotSolvedError:
            return self._fallback.solve(right, tolerance)

    @cached_property
    def _fallback(self) -> Factored:
        return Factored(self.matrix, self.gram, self.labels)

    def _descend_twice(self, right: Floats, tolerance: float) -> Floats:
        slope = self.matrix.T @ right
        if tolerance >= PROBED:
            return self._descend(slope, tolerance)
        rough = self._descend(slope, np.sqrt(tolerance))
        return rough + self._descend(self.matrix.T @ (right - self.matrix @ rough), np.sqrt(tolerance))

    def _descend(self, slope: Floats, tolerance: float) -> Floats:
        """Conjugate gradients on `DᵀD x = slope` from 0.

        A step lowers the squared error, measured by `‖D (x − x*)‖`, by its `gain`. What is left after it is about what a
        geometric series of such gains would still add.
        """
        x, direction, last, before, total = np.zeros(slope.size), np.zeros(slope.size), 1.0, 0.0, 0.0
        for _ in range(MOST_STEPS):
            moved = self._centred(self._cycle(slope.astype(np.float32), 0))
            size = float(slope @ moved)
            if size <= 0:
                return x
            direction *= size / last
            direction += moved
            along = self.gram @ direction
            step = size / float(direction @ along)
            x += step * direction
            gain = step * size
            total += gain
            if gain <= tolerance**2 * total * max(1.0, before / gain - 1):
                return x
            along *= step
            slope = slope - along
            last, before = size, gain
        raise NotSolvedError

    def _cycle(self, right: Floats, depth: int) -> Floats:
        """One cycle down to the coarsest level and up again."""
        level = self.hierarchy.levels[depth]
        if depth == len(self.hierarchy.levels) - 1:
            coarse: Floats = self.hierarchy.coarse_solver(level.A, right).astype(right.dtype)
            return coarse
        x = np.zeros_like(right)
        level.presmoother(level.A, x, right)
        x += level.P @ self._cycle(level.R @ (right - level.A @ x), depth + 1)
        level.postsmoother(level.A, x, right)
        return x

    def _centred(self, vector: Floats) -> Floats:
        """The vector without what is constant on each part."""
        means = np.bincount(self.labels, vector) / self.sizes if self.sizes.size > 1 else vector.mean(dtype=np.float64)
        centred: Floats = vector - (means[self.labels] if self.sizes.size > 1 else means)
        return centred


def _smallest(inverse: Callable[[Floats], Floats], size: int, steps: int) -> float:
    """An estimate, from above, of the smallest singular value of D by inverse iteration with `DᵀD`."""
    vector = np.random.default_rng(0).standard_normal(size)
    growth = np.inf
    for _ in range(steps):
        vector = inverse(vector / np.linalg.norm(vector))
        growth = float(np.linalg.norm(vector))
    return 1 / np.sqrt(growth) if np.isfinite(growth) and growth > 0 else 0.0


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
