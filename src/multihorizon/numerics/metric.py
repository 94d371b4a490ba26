"""The curvature of an objective, as a matrix or as products: what turns a gradient into a step.

With M the curvature `(p,p)` and D its diagonal with a floor, a step solves `(M + μD) δ = b` on the parameters that are free to
move.

* `Dense`: the matrix itself, factorised. It costs the cube of the number of parameters.
* `Products`: preconditioned conjugate gradients on products `M v`; nothing of size p×p is formed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
import scipy.linalg as la

from multihorizon.checks import Bools, Floats


class Metric(Protocol):
    """The curvature M at one point."""

    @property
    def scale(self) -> Floats:
        """D `(p,)`."""
        ...

    def times(self, v: Floats) -> Floats:
        """`M v`."""
        ...

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """δ `(p,)` with `(M + μD) δ = b` on the free parameters, and 0 elsewhere."""
        ...


class Dense:
    """The curvature as a matrix."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix = matrix
        diagonal = np.diag(matrix)
        # With the floor, parameters without information do not make the damped matrix singular.
        self.scale: Floats = np.maximum(diagonal, 1e-10 * diagonal.max(initial=0.0))

    def times(self, v: Floats) -> Floats:
        """One product."""
        return self.matrix @ v

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """By Cholesky's factors of the free block; where rounding has made it indefinite, it is shifted."""
        found = np.zeros(b.size)
        block = self.matrix[np.ix_(free, free)]
        block[np.diag_indices_from(block)] += damping * self.scale[free]
        if not block.any():
            return found
        shift = 0.0
        for _ in range(20):
            try:
                factor = la.cho_factor(block + shift * np.eye(len(block)), check_finite=False)
            except la.LinAlgError:
                shift = max(10 * shift, 1e-14 * float(np.diag(block).max()))
                continue
            found[free] = la.cho_solve(factor, b[free], check_finite=False)
            return found
        raise ValueError("the curvature must be finite, received a matrix that cannot be factorised")


class Products:
    """The curvature as products.

    Args:
        times: `M v`.
        diagonal: of M `(p,)`, roughly.
        leading: how many parameters come first, and a rough inverse of their block of M; None to divide by the diagonal.
    """

    def __init__(
        self, times: Callable[[Floats], Floats], diagonal: Floats, leading: tuple[int, Callable[[Floats], Floats]] | None = None
    ) -> None:
        self.times = times
        self.scale: Floats = np.maximum(diagonal, 1e-6 * diagonal.max(initial=0.0))
        self._leading = leading
        self._solved: tuple[Floats, Floats] | None = None

    def solve(self, b: Floats, free: Bools, damping: float, tol: float = 1e-2, max_iter: int = 400) -> Floats:
        """By preconditioned conjugate gradients, begun at the last solution for the same b.

        `tol` is the relative residual at which they stop. It is large because the next step corrects what this one leaves.
        """

        def damped(v: Floats) -> Floats:
            product: Floats = self.times(v) + damping * self.scale * v
            return product

        def preconditioned(v: Floats) -> Floats:
            rough = v / ((1 + damping) * self.scale)
            if self._leading is not None and damping < 0.1:  # with more damping D is as good a preconditioner as any
                first, inverse = self._leading
                rough[:first] = inverse(v[:first])
            return np.where(free, rough, 0.0)

        left = np.where(free, b, 0.0)
        target = tol**2 * float(left @ preconditioned(left))
        x = np.zeros(b.size)
        if self._solved is not None and self._solved[0] is b:
            x = np.where(free, self._solved[1], 0.0)
            left = np.where(free, b - damped(x), 0.0)
        direction, last = np.zeros(b.size), 1.0
        for _ in range(max_iter):
            moved = preconditioned(left)
            size = float(left @ moved)
            if size <= target:
                break
            direction = moved + (size / last) * direction
            along = damped(direction)
            curved = float(direction @ along)
            if curved <= 0:
                break
            x = x + (size / curved) * direction
            left = left - (size / curved) * np.where(free, along, 0.0)
            last = size
        self._solved = (b, x)
        return x
