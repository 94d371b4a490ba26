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
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyamg
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import Bools, Floats, Ints, Sparse

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
