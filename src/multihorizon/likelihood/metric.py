"""The curvature of the objective, as a matrix or as products: what a climb needs to turn a gradient into a step.

With I the Fisher information, A the penalties' curvature and D the diagonal of `I + A` with a floor, a step solves
`(I + A + μD) δ = b` on the parameters that are free to move.

* `Dense`: the matrix itself, factorised. It costs a solve for each parameter at every new point, and the cube of their number.
* `Products`: conjugate gradients on products (`large.information_product`), each the cost of two gradients, whatever the number
  of parameters. It stops at `TOLERANCE`, because the next step corrects what this one leaves.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.linalg as la

from multihorizon.checks import Bools, Floats
from multihorizon.likelihood.large import information_product, is_large
from multihorizon.likelihood.likelihood import Point
from multihorizon.likelihood.preconditioner import inverse_of_states

#: D is at least this share of the largest diagonal entry, so that parameters without information do not make it singular.
FLOOR = 1e-10
#: The same for the diagonal that products use, which is known only roughly.
SMALLEST_SCALE = 1e-6
#: Relative residual at which conjugate gradients stop, and the most of them.
TOLERANCE, MOST_PRODUCTS = 1e-2, 400
#: With more damping than this D is as good a preconditioner as any.
LARGE_DAMPING = 0.1


class Metric(Protocol):
    """The curvature `(p,p)` of the objective at one point."""

    @property
    def scale(self) -> Floats:
        """D `(p,)`."""
        ...

    def times(self, v: Floats) -> Floats:
        """The curvature times a vector."""
        ...

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """δ `(p,)` with `(I + A + μD) δ = b` on the free parameters, and 0 elsewhere."""
        ...


def metric_of(point: Point) -> Metric:
    """The curvature at a point, in the form that suits the number of parameters."""
    return Products(point) if is_large(point.likelihood) else Dense(curvature(point))


def curvature(point: Point) -> Floats:
    """The Fisher information with the curvature of the penalties."""
    model = point.likelihood
    matrix = point.information.copy() if model.penalty is None else point.information + model.penalty.matrix
    d = model.n_reward
    matrix[np.arange(d), np.arange(d)] += model.ridge
    return matrix


class Dense:
    """The curvature as a matrix."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix = matrix
        diagonal = np.diag(matrix)
        self.scale: Floats = np.maximum(diagonal, FLOOR * diagonal.max(initial=0.0))

    def times(self, v: Floats) -> Floats:
        """One product."""
        return self.matrix @ v

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """By Cholesky's factors of the free block."""
        block = self.matrix[np.ix_(free, free)]
        block[np.diag_indices_from(block)] += damping * self.scale[free]
        found = np.zeros(b.size)
        found[free] = _solve(block, b[free])
        return found


class Products:
    """The curvature as products at one point."""

    def __init__(self, point: Point) -> None:
        self.point = point
        diagonal = _diagonal(point)
        self.scale: Floats = np.maximum(diagonal, SMALLEST_SCALE * diagonal.max(initial=0.0))
        self._rewards = inverse_of_states(point)
        self._solved: tuple[Floats, Floats] | None = None

    def times(self, v: Floats) -> Floats:
        """One forward and one adjoint solve for each expert."""
        model = self.point.likelihood
        product = information_product(self.point, v)
        product[: model.n_reward] += model.ridge * v[: model.n_reward]
        return product if model.penalty is None else product + model.penalty.matrix @ v

    def solve(self, b: Floats, free: Bools, damping: float, tolerance: float = TOLERANCE) -> Floats:
        """By preconditioned conjugate gradients, begun at the last solution for the same b."""
        inside = np.where(free, b, 0.0)
        target = tolerance**2 * float(inside @ self._preconditioned(inside, free, damping))
        x, left = np.zeros(b.size), inside
        if self._solved is not None and self._solved[0] is b:
            x = np.where(free, self._solved[1], 0.0)
            left = np.where(free, b - self._damped(x, damping), 0.0)
        direction, last = np.zeros(b.size), 1.0
        for _ in range(MOST_PRODUCTS):
            moved = self._preconditioned(left, free, damping)
            size = float(left @ moved)
            if size <= target:
                break
            direction = moved + (size / last) * direction
            along = self._damped(direction, damping)
            curved = float(direction @ along)
            if curved <= 0:
                break
            x = x + (size / curved) * direction
            left = left - (size / curved) * np.where(free, along, 0.0)
            last = size
        self._solved = (b, x)
        return x

    def _preconditioned(self, v: Floats, free: Bools, damping: float) -> Floats:
        """A rough inverse times a vector that is 0 outside the free parameters."""
        rough = v / ((1 + damping) * self.scale)
        if self._rewards is not None and damping < LARGE_DAMPING:
            d = self.point.likelihood.n_reward
            rough[:d] = self._rewards(v[:d])
        return np.where(free, rough, 0.0)

    def _damped(self, v: Floats, damping: float) -> Floats:
        product: Floats = self.times(v) + damping * self.scale * v
        return product


def _diagonal(point: Point) -> Floats:
    """The diagonal of the curvature: in the rewards without what they do to later decisions, which is enough to scale them."""
    model = point.likelihood
    total = np.zeros(model.size)
    total[model.transition_slice] = point.move_information
    for i, (batch, plan) in enumerate(zip(point.batches, point.plans, strict=True)):
        weights = (point.weights[i] / plan.lam**2).reshape(-1, batch.owners.size)
        total[: model.n_reward] += batch.features.matrix.power(2).T @ weights.sum(axis=1)
        if (found := model.moves_of(batch)) is not None:
            total[found[1]] += (weights[found[0].rows] * point.worth_of_moves[i] ** 2).sum(axis=1)
    total[: model.n_reward] += model.ridge
    for k in range(model.n_reward, model.transition_slice.start):
        if not model.fixed[k]:
            total[k] = information_product(point, np.eye(1, model.size, k).ravel())[k]
    return total if model.penalty is None else total + model.penalty.matrix.diagonal()


def _solve(matrix: Floats, b: Floats) -> Floats:
    """Solve a positive definite system; rounding can make a nearly singular one indefinite, and then it is shifted."""
    if not b.size or not matrix.any():
        return np.zeros(b.size)
    shift = 0.0
    for _ in range(20):
        try:
            factor = la.cho_factor(matrix + shift * np.eye(b.size), check_finite=False)
        except la.LinAlgError:
            shift = max(10 * shift, 1e-14 * float(np.diag(matrix).max()))
            continue
        solution: Floats = la.cho_solve(factor, b, check_finite=False)
        return solution
    raise ValueError("the Fisher information must be finite, received a matrix that cannot be factorised")
