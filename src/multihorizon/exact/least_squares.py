"""Least squares with columns that may depend on each other, dense or sparse, and the null space of the action differences D.

*Columns.* What of a vector h do the columns of M explain, and by which coefficients x? Few columns are dense and get a singular
value decomposition. Many columns are sparse, and their coefficients may be bound by equations `C x = 0`. They are solved by
iterated regularisation: one sparse factorisation of

    [ MᵀM + ε I    Cᵀ  ]
    [ C           −δ I ]

is applied to what is left of `Mᵀ(h − M x) = Cᵀ y` and `C x = 0` until nothing changes. From x = 0 this goes to the least-squares
solution of least norm. Each step divides what is left along a direction with singular value σ by σ²/ε + 1, so two or three steps
reach rounding unless there are very weak directions. What those could explain beyond `rounding` is left unexplained. Sylvester's
law of inertia counts the null directions, those with σ below 1e-6 of the largest: with −1e-12 in place of ε there is one negative
pivot for each, and one more for each row of C.

*Null spaces.* `null_space` finds null(D) and solves `min ‖D x − b‖`, in one of three ways:

* one constant on each connected part of D's graph, and nothing else. This is the usual case. A column of zeros (a state that
  only states with a single action lead to) is a part of its own. The normal equations are solved with this guess, and the guess
  is tested: the smallest singular value of D apart from these constants must not be 0;
* a singular value decomposition, for few columns, and where null(D) is larger;
* for many columns and a larger null(D), draws from it make a basis if it is small. A large basis would be dense, so none is made:
  null(D) is then all x with `D x = 0`, and sparse columns keep to these equations.

*Normal equations.* Where states are linked without any order, the factors of `DᵀD` fill up, but D is well conditioned: conjugate
gradients on columns of equal length take some sixty steps at every size. Whether they do is seen after ten steps. Elsewhere
SuperLU factorises `DᵀD` with one row and column of each part left out. It is exact, and quick on parts of up to 20,000
columns; its cost then grows faster than their number. Solves are refined on D, because `DᵀD` squares its condition number. Larger
parts are solved by conjugate gradients with algebraic multigrid as preconditioner (`pyamg`, the method of Ruge and Stüben): about
a dozen steps at every size, so the cost is linear. Each right-hand side is solved only as far as it is asked for. Where this does
not converge, or where `pyamg` is not installed, SuperLU takes over.

All solutions are those of least norm, so that they do not depend on the order of the states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.sparse.csgraph import connected_components

from multihorizon.checks import RANK_TOLERANCE, TINY, Bools, Floats, Ints, Sparse

#: Smaller singular values, relative to the largest, are lost where `DᵀD` is solved: they may be 0.
WEAKEST = 10 * float(np.sqrt(np.finfo(np.float64).eps))


@dataclass(frozen=True)
class SizeLimits:
    """Up to which sizes `null_space` takes each way.

    Attributes:
        dense: columns of D that are decomposed densely.
        largest_dense: the same where null(D) is larger than the constants.
        entries: of a dense basis.
        factored: columns of a part that is factorised; larger ones are iterated.
        scaled: whether conjugate gradients on scaled columns are tried first.
        multigrid_steps: the most steps with multigrid.
        ordered_draws: up to so many entries of log π the errors drawn do not depend on the order of states and actions.
        exact_errors: up to so many entries of log π the error of each is carried along, which is exact.
    """

    dense: int = 64
    largest_dense: int = 3000
    entries: int = 100_000
    factored: int = 20_000
    scaled: bool = True
    multigrid_steps: int = 200
    ordered_draws: int = 50_000
    exact_errors: int = 300


class DenseColumns:
    """Columns `(rows, n)` by their singular value decomposition.

    Attributes:
        rank: how many directions the columns span.
        nullity: how many directions of coefficients have no effect.
        null: an orthonormal basis `(n, nullity)` of these.
        range: an orthonormal basis `(rows, rank)` of what the columns span.
        rounding: the share of a vector up to which the columns leave what they explain.
    """

    rounding = 1e-11

    def __init__(self, matrix: Floats, smallest: float) -> None:
        """Decompose the matrix; singular values below the share `smallest` of the largest count as zero."""
        self.matrix = matrix
        if matrix.size:
            left, values, right = np.linalg.svd(matrix, full_matrices=matrix.shape[0] < matrix.shape[1])
        else:
            left = np.zeros((matrix.shape[0], 0))
            values = np.zeros(0)
            right = np.eye(matrix.shape[1])
        self.rank = int((values > smallest * max(float(values.max(initial=0.0)), TINY)).sum())
        self.nullity = matrix.shape[1] - self.rank
        self.range = left[:, : self.rank]
        self.null = right[self.rank :].T
        self._inverse = right[: self.rank].T / values[: self.rank]

    def solve(self, right: Floats) -> Floats:
        """Return the coefficients `(n, …)` of least norm that explain `right` best.

        They are refined once, because sums over many rows are good to twelve digits only.
        """
        x = self._inverse @ (self.range.T @ right)
        refined: Floats = x + self._inverse @ (self.range.T @ (right - self.matrix @ x))
        return refined

    def inverse(self) -> Floats:
        """Return the pseudo-inverse `(n, rows)`."""
        inverse: Floats = self._inverse @ self.range.T
        return inverse

    def outside(self, vectors: Floats) -> Floats:
        """Return the part of vectors `(rows, …)` that no coefficients can explain."""
        return vectors - self.range @ (self.range.T @ vectors)


@dataclass(frozen=True, eq=False)
class Coefficients:
    """The constraints `C x = 0` on the coefficients x of sparse columns, and the dimension of the x that satisfy them."""

    constraints: Sparse
    dimension: int

    @staticmethod
    def free(size: int) -> Coefficients:
        """Return coefficients without constraints."""
        return Coefficients(sp.csr_array((0, size)), size)

    @staticmethod
    def side_by_side(parts: Sequence[Coefficients]) -> Coefficients:
        """Join the coefficients of several blocks of columns."""
        constraints = sp.csr_array(sp.block_diag([part.constraints for part in parts]))
        return Coefficients(constraints, sum(part.dimension for part in parts))


class SparseColumns:
    """Columns by a sparse factorisation of their regularised Gram matrix; it answers as `DenseColumns` does."""

    rounding = 1e-7

    def __init__(self, matrix: Sparse, coefficients: Coefficients) -> None:
        self._matrix = sp.csr_array(matrix)
        self._bound = coefficients.constraints
        self._back, self._pull = sp.csr_array(self._matrix.T), sp.csr_array(self._bound.T)
        self._gram = sp.csr_array(self._back @ self._matrix)
        self._dimension = coefficients.dimension
        if self._bound.shape[0]:  # without exchanges of rows the factors would lose too many digits here
            self._factor = spla.splu(sp.csc_array(self._system(1e-10, 1e-8)))
        else:
            self._factor = factorise(self._system(1e-12, 1e-8))

    def _system(self, share: float, softened: float) -> Sparse:
        """Return the matrix at the top, with ε as a share of the largest entry of `MᵀM`, and δ."""
        n, bound = self._gram.shape[0], self._bound.shape[0]
        gram = self._gram + share * float(self._gram.diagonal().max(initial=TINY)) * sp.eye_array(n)
        soft = -softened * sp.eye_array(bound)
        return sp.csr_array(sp.block_array([[gram, self._pull], [self._bound, soft]]) if bound else gram)

    @cached_property
    def nullity(self) -> int:
        """Return the number of directions of coefficients without effect; it is the same for any δ, and surest for a
        large one.
        """
        pivots = factorise(self._system(-1e-12, 1.0)).U.diagonal()
        return int((pivots < 0).sum() - self._bound.shape[0])

    @property
    def rank(self) -> int:
        """Return the number of directions that the columns span."""
        return self._dimension - self.nullity

    @property
    def null(self) -> Floats:
        """Return some random coefficients without effect; none if there are none."""
        return self.null_draws(8 if self.nullity else 0)

    def null_draws(self, count: int) -> Floats:
        """Draw random coefficients `(n, count)`, less the least change that removes their effect on columns and constraints."""
        moves = np.random.default_rng(0).standard_normal((self._gram.shape[0], count))
        for _ in range(3):
            moves = moves - self.solve(self._matrix @ moves, self._bound @ moves)
        return moves

    def outside(self, vectors: Floats) -> Floats:
        """Return the part of vectors that the best coefficients leave."""
        left: Floats = vectors - self._matrix @ self.solve(vectors)
        return left

    def solve(self, right: Floats, bound: Floats | float = 0.0) -> Floats:
        """Return the coefficients x that explain `right` best with `C x = bound`."""
        n = self._gram.shape[0]
        x = np.zeros((n, *right.shape[1:]))
        y = np.zeros((self._bound.shape[0], *right.shape[1:]))
        enough = 1e-15 * np.linalg.norm(right)
        for _ in range(20):
            missing = self._back @ (right - self._matrix @ x) - self._pull @ y
            step = self._factor.solve(np.concatenate([missing, bound - self._bound @ x]))
            x = x + step[:n]
            y = y + step[n:]
            if np.linalg.norm(self._matrix @ step[:n]) <= enough:
                break
        return x


ColumnSpace = DenseColumns | SparseColumns


def columns_of(matrix: Floats | Sparse, smallest: float, coefficients: Coefficients | None) -> ColumnSpace:
    """Represent the columns of M: dense without `coefficients`, where singular values below the share `smallest` are zero."""
    return DenseColumns(np.asarray(matrix), smallest) if coefficients is None else SparseColumns(matrix, coefficients)


def factorise(matrix: Sparse) -> Any:
    """Factorise a symmetric matrix by SuperLU without exchanges of rows, so that pivots have the signs of the eigenvalues."""
    options = {"SymmetricMode": True}
    return spla.splu(sp.csc_array(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)


@dataclass(frozen=True, eq=False)
class NullSpace:
    """null(D) as `N z` with orthonormal columns N, `basis`, and least-squares solves.

    z is free if N is dense, and as `coefficients` says if it is sparse. `solve` has x of `D x = right` `(rows, …)`, and
    `solve_roughly` one or two digits of it, where that takes less. `solvers` solve the normal equations, if they are used.
    """

    basis: Floats | Sparse
    coefficients: Coefficients | None
    solve: Callable[[Floats], Floats]
    solve_roughly: Callable[[Floats], Floats] | None = None
    solvers: Sequence[Factored | Multigrid | Scaled] = ()


def null_space(matrix: Sparse, limits: SizeLimits) -> NullSpace:
    """Find the null space of D, in the way that suits its size and structure."""
    size = matrix.shape[1]
    if size > limits.dense and (constants := _constant_on_parts(matrix, limits)) is not None:
        return constants
    if size <= limits.largest_dense:
        dense = DenseColumns(matrix.toarray(), RANK_TOLERANCE)
        basis = np.full((size, 1), size**-0.5) if dense.nullity == 1 else dense.null.copy()
        return NullSpace(basis, None, partial(np.matmul, dense.inverse()))
    sparse = SparseColumns(matrix, Coefficients.free(size))
    dimension = sparse.nullity
    if dimension * size <= limits.entries:
        basis = np.linalg.qr(sparse.null_draws(dimension))[0]
        coefficients = None
    else:
        rows = sp.csr_array(matrix[np.diff(matrix.indptr) > 0])
        basis = sp.csr_array(sp.eye_array(size))
        coefficients = Coefficients(rows / np.abs(rows.data).max(), dimension)
    return NullSpace(basis, coefficients, sparse.solve)


def _constant_on_parts(matrix: Sparse, limits: SizeLimits) -> NullSpace | None:
    """Return null(D) if it is constant on each part; None if it holds more. Solutions have mean 0 on each part."""
    rows, size = matrix.shape  # a graph of rows and columns, linked by entries of D
    starts = np.append(matrix.indptr, np.full(size, matrix.indptr[-1]))
    links = sp.csr_array((np.ones(matrix.nnz), matrix.indices + rows, starts), shape=(rows + size, rows + size))
    labels = np.unique(connected_components(links, directed=False)[1][rows:], return_inverse=True)[1]
    sizes = np.bincount(labels)
    solvers = _solvers(matrix, labels, sizes[labels] > limits.factored, limits)
    if solvers is None:
        return None

    def solve(right: Floats, rough: bool = False) -> Floats:
        solved = np.empty((labels.size, *right.shape[1:]))
        for columns, solver in solvers:
            solved[columns] = solver.solve(right, 0.03 if rough else 1e-12)
        return without_means(solved, labels, sizes)

    normal = [solver for _, solver in solvers]
    basis = sp.csr_array((1 / np.sqrt(sizes[labels]), labels, np.arange(labels.size + 1)), shape=(labels.size, sizes.size))
    if basis.shape[0] * basis.shape[1] <= limits.entries or sizes.size == 1:
        return NullSpace(basis.toarray(), None, solve, partial(solve, rough=True), normal)
    return NullSpace(basis, Coefficients.free(sizes.size), solve, partial(solve, rough=True), normal)


class NotSolvedError(RuntimeError):
    """A method that does not work for this matrix."""


def _solvers(
    matrix: Sparse, labels: Ints, large: Bools, limits: SizeLimits
) -> list[tuple[Ints, Factored | Multigrid | Scaled]] | None:
    """Choose solvers and the columns of D for which each is; None where null(D) is larger than one constant on each part.

    Args:
        matrix: D.
        labels: for each column the part to which it belongs.
        large: the columns whose parts are so large that they are iterated.
        limits: the sizes for each way.
    """
    full = labels.size <= limits.largest_dense and matrix.nnz > 0.05 * matrix.shape[0] * matrix.shape[1]
    if limits.scaled and labels.size > 300 and not full:  # fewer are factorised before conjugate gradients have begun
        try:
            return [(np.arange(labels.size), Scaled(matrix, labels))]
        except NotSolvedError:
            pass
    if full:
        dense = matrix.toarray()
        gram = sp.csr_array(dense.T @ dense)
    else:
        gram = sp.csr_array(matrix.T.tocsr() @ matrix)
    solvers: list[tuple[Ints, Factored | Multigrid | Scaled]] = []
    for columns in (np.flatnonzero(large), np.flatnonzero(~large)):
        if columns.size == labels.size:
            solver = normal_solver(matrix, gram, labels, bool(large[0]), limits)
        elif columns.size:
            local = np.unique(labels[columns], return_inverse=True)[1]
            parts = sp.csr_array(matrix[:, columns]), sp.csr_array(gram[columns][:, columns]), local
            solver = normal_solver(*parts, bool(large[columns[0]]), limits)
        else:
            continue
        if solver is None:
            return None
        solvers.append((columns, solver))
    return solvers


def normal_solver(matrix: Sparse, gram: Sparse, labels: Ints, large: bool, limits: SizeLimits) -> Factored | Multigrid | None:
    """Build a solver with D by `DᵀD`; None where its null space is larger than one constant on each part."""
    largest = float(np.sqrt(abs(gram).sum(axis=0).max(initial=0.0)))
    iterated = partial(Multigrid, max_iter=limits.multigrid_steps)
    for kind in (iterated, Factored) if large else (Factored,):
        try:
            solver = kind(matrix, gram, labels)
        except NotSolvedError:
            continue
        return solver if solver.smallest > WEAKEST * largest else None
    return None


def without_means(values: Floats, labels: Ints, sizes: Ints) -> Floats:
    """Subtract from values `(n, …)` what is constant on each part."""
    if sizes.size == 1:
        centred: Floats = values - values.mean(axis=0, dtype=np.float64)
        return centred
    columns = values.reshape(labels.size, -1).T
    means = np.stack([(np.bincount(labels, column) / sizes)[labels] for column in columns], axis=1)
    return values - means.reshape(values.shape)


class Scaled:
    """Conjugate gradients on the normal equations of D, whose columns are scaled to length 1.

    A random vector has a part in every direction, so that they do not converge on it where null(D) is larger than one constant on
    each part. The limit shows how small the smallest singular value is.
    """

    def __init__(self, matrix: Sparse, labels: Ints) -> None:
        """Scale D and test it; raises NotSolvedError where steps are too many, or where a singular value is nearly 0."""
        self.matrix = matrix
        self.back = sp.csr_array(matrix.T)
        self.labels = labels
        squares = np.bincount(matrix.indices, matrix.data**2, minlength=labels.size)
        self.scale = 1 / np.sqrt(np.where(squares > 0, squares, 1.0))[:, None]
        vector = np.random.default_rng(0).standard_normal(labels.size)
        vector = without_means(vector / np.linalg.norm(vector), labels, np.bincount(labels))
        enough = 1e-6 * float(np.linalg.norm(self.scale[:, 0] * vector))
        self.smallest = _root_of_inverse(self._descend(vector[:, None], enough, hurried=True))
        size = abs(matrix)
        if self.smallest <= WEAKEST * np.sqrt(float(size.sum(axis=0).max()) * float(size.sum(axis=1).max())):
            raise NotSolvedError

    def solve(self, right: Floats, tolerance: float) -> Floats:
        """Solve to three digits where rough is enough; else to rounding, by a second run on what D leaves, which is small."""
        columns = right.reshape(right.shape[0], -1)
        slopes = self.back @ columns
        sizes = np.linalg.norm(self.scale * slopes, axis=0)
        try:
            solution = self._descend(slopes, (1e-3 if tolerance > 1e-6 else 1e-7) * sizes)
            if tolerance <= 1e-6:
                solution += self._descend(self.back @ (columns - self.matrix @ solution), 1e-14 * sizes)
        except NotSolvedError:
            return self._fallback.solve(right, tolerance)
        return solution.reshape(-1, *right.shape[1:])

    @cached_property
    def _fallback(self) -> Factored:
        return Factored(self.matrix, sp.csr_array(self.back @ self.matrix), self.labels)

    def _descend(self, slopes: Floats, enough: Floats | float, hurried: bool = False) -> Floats:
        """Solve `DᵀD x = slope` `(n,m)` for all columns at once, until at most `enough` of each slope is left.

        If `hurried`, ten steps must leave less than 3% of it: on random tasks they leave about 1%, on grids 4% and more.
        """
        left = self.scale * slopes
        scaled = np.zeros_like(left)
        step = left.copy()
        size = (left**2).sum(axis=0)
        first = size
        for number in range(200):
            if (size <= np.square(enough)).all():
                solved: Floats = self.scale * scaled
                return solved
            if hurried and number == 10 and (size > 0.03**2 * first).any():
                break
            moved = self.matrix @ (self.scale * step)
            length = size / np.maximum((moved**2).sum(axis=0), TINY)
            scaled += length * step
            left -= length * (self.scale * (self.back @ moved))
            before = size
            size = (left**2).sum(axis=0)
            step = left + size / np.maximum(before, TINY) * step
        raise NotSolvedError


class Factored:
    """SuperLU on `DᵀD` with one column of each part held at 0.

    `smallest` is an estimate, from above, of the smallest singular value, by inverse iteration.
    """

    def __init__(self, matrix: Sparse, gram: Sparse, labels: Ints) -> None:
        self.matrix = matrix
        self.smallest = np.inf
        kept = np.ones(labels.size, dtype=np.bool_)
        kept[np.unique(labels, return_index=True)[1]] = False
        self.kept: Ints = np.flatnonzero(kept)
        if not self.kept.size:
            return
        try:
            self.factor = factorise(gram[self.kept][:, self.kept])
        except RuntimeError as error:
            raise NotSolvedError from error
        vector = np.random.default_rng(0).standard_normal(self.kept.size)
        for _ in range(4):
            vector = self.factor.solve(vector / np.linalg.norm(vector))
        self.smallest = _root_of_inverse(vector)

    def solve(self, right: Floats, tolerance: float) -> Floats:
        """Solve, and refine unless a rough answer is enough."""
        solution = np.zeros((self.matrix.shape[1], *right.shape[1:]))
        for _ in range((3 if tolerance < 1e-6 else 1) if self.kept.size else 0):
            solution[self.kept] += self.factor.solve((self.matrix.T @ (right - self.matrix @ solution))[self.kept])
        return solution


class Multigrid:
    """Conjugate gradients on the normal equations, preconditioned by algebraic multigrid.

    `smallest` is an estimate, from above, of the smallest singular value: one step of inverse iteration. A random vector has a
    part in every direction, so that with a larger null space the conjugate gradients do not converge on it.
    """

    def __init__(self, matrix: Sparse, gram: Sparse, labels: Ints, coarsest: int = 500, max_iter: int = 200) -> None:
        """Build the levels; the one with at most `coarsest` columns is solved directly, in at most `max_iter` steps."""
        self.matrix, self.gram, self.max_iter = matrix, gram, max_iter
        self.labels = labels
        self.sizes = np.bincount(labels)
        try:
            import pyamg  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise NotSolvedError from error
        if (gram.diagonal() <= 0).any():
            raise NotSolvedError
        single = sp.csr_matrix(gram, dtype=np.float32)  # a preconditioner needs no more digits; half the bytes are read faster
        ways = {f"{when}smoother": ("gauss_seidel", {"sweep": way}) for when, way in (("pre", "forward"), ("post", "backward"))}
        self.hierarchy: Any = pyamg.ruge_stuben_solver(single, interpolation="direct", max_coarse=coarsest, **ways)
        vector = np.random.default_rng(0).standard_normal(labels.size)
        vector = without_means(vector / np.linalg.norm(vector), self.labels, self.sizes)
        grown = self._descend(vector, 1e-6)
        solved = np.linalg.norm(gram @ grown - vector) <= 0.1 * np.linalg.norm(vector)
        self.smallest = _root_of_inverse(grown) if solved else 0.0

    def solve(self, right: Floats, tolerance: float) -> Floats:
        """Solve to a relative residual of the normal equations; in two runs, the second on what D leaves, which is small."""
        if right.ndim == 2:
            return np.stack([self.solve(column, tolerance) for column in right.T], axis=1)
        try:
            if tolerance >= 1e-6:
                return self._descend(self.matrix.T @ right, tolerance)
            rough = self._descend(self.matrix.T @ right, np.sqrt(tolerance))
            return rough + self._descend(self.matrix.T @ (right - self.matrix @ rough), np.sqrt(tolerance))
        except NotSolvedError:
            return self._fallback.solve(right, tolerance)

    @cached_property
    def _fallback(self) -> Factored:
        return Factored(self.matrix, self.gram, self.labels)

    def _descend(self, slope: Floats, tolerance: float) -> Floats:
        """Solve `DᵀD x = slope` by conjugate gradients from 0."""

        def cycle(right: Floats) -> Floats:
            return without_means(self._cycle(right.astype(np.float32), 0), self.labels, self.sizes)

        x, failed = spla.cg(
            self.gram, slope, rtol=tolerance, maxiter=self.max_iter, M=spla.LinearOperator(self.gram.shape, cycle, dtype=float)
        )
        if failed:
            raise NotSolvedError
        solution: Floats = x
        return solution

    def _cycle(self, right: Floats, depth: int) -> Floats:
        """Run one cycle to the coarsest level and back, without the residuals that pyamg's own cycle computes at each call."""
        level = self.hierarchy.levels[depth]
        if depth == len(self.hierarchy.levels) - 1:
            coarse: Floats = self.hierarchy.coarse_solver(level.A, right).astype(right.dtype)
            return coarse
        x = np.zeros_like(right)
        level.presmoother(level.A, x, right)
        x += level.P @ self._cycle(level.R @ (right - level.A @ x), depth + 1)
        level.postsmoother(level.A, x, right)
        return x


def _root_of_inverse(vector: Floats) -> float:
    """Return the singular value of D that belongs to a vector's growth in one step of inverse iteration with `DᵀD`."""
    growth = float(np.linalg.norm(vector))
    return 1 / np.sqrt(growth) if np.isfinite(growth) and growth > 0 else 0.0
