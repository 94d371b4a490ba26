"""One scaled eigen-decomposition of an information matrix: its rank, its inverse, and its null space.

Parameters have units of their own, so a symmetric matrix M `(p,p)` is first scaled to a unit diagonal, `D^{-1} M D^{-1}` with
`D² = diag(M)`, and then decomposed as `V diag(w) Vᵀ`. Directions whose eigenvalue is below a share `tol` of the largest are
without information. On the others the inverse is `D^{-1} V_kept diag(1/w_kept) V_keptᵀ D^{-1}`. A parameter with a component in
the directions without information is not identified.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from multihorizon.checks import Bools, Floats


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues `(p,)` and vectors `(p,p)` of a scaled matrix, its scale D `(p,)`, and which directions are `kept` `(p,)`."""

    values: Floats
    vectors: Floats
    scale: Floats
    kept: Bools

    @property
    def rank(self) -> int:
        """The number of directions that are kept."""
        return int(self.kept.sum())

    @cached_property
    def inverse(self) -> Floats:
        """The inverse `(p,p)` on the directions that are kept."""
        vectors = self.vectors[:, self.kept]
        return (vectors / self.values[self.kept]) @ vectors.T / np.outer(self.scale, self.scale)

    def solve(self, b: Floats) -> Floats:
        """Return the inverse times `b` `(p,)` or `(p,n)`, without forming it."""
        directions = self.vectors[:, self.kept] / self.scale[:, None]
        along: Floats = directions.T @ b
        return directions @ (along.T / self.values[self.kept]).T

    @property
    def null_space(self) -> Floats:
        """The directions that are not kept, in the units of the parameters `(p,p−rank)`."""
        return self.vectors[:, ~self.kept] / self.scale[:, None]

    def identified(self, component: float = 1e-3) -> Bools:
        """Mark the parameters `(p,)` with no component above this, which counts as rounding, in directions that are not kept."""
        small: Bools = np.linalg.norm(self.vectors[:, ~self.kept], axis=1) <= component
        return small


def spectrum(
    matrix: Floats, scale: Floats | None = None, tol: float = 1e-12, least: float = 0.0, absolute: bool = False
) -> Spectrum:
    """Decompose a symmetric matrix `(p,p)`.

    Args:
        matrix: the matrix; of an asymmetric one the lower half counts.
        scale: D `(p,)`; by default the root of the diagonal, and 1 where that is not positive.
        tol: the share of the largest eigenvalue at or below which a direction is without information. Eigenvalues are squares
            of singular values: structural zeros come out near 1e-16, the weakest directions that matter above 1e-9.
        least: a direction with an eigenvalue at or below this is without information, however small the largest is.
        absolute: whether to take the eigenvalues of an indefinite matrix by their size.
    """
    if scale is None:
        diagonal = np.diag(matrix)
        scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    sizes = np.abs(values)
    values = sizes if absolute else values
    return Spectrum(values, vectors, scale, values > max(tol * sizes.max(initial=0.0), least))


def positive_part(matrix: Floats, least: float = 0.0) -> Floats:
    """Return the nearest symmetric matrices `(…,p,p)` whose eigenvalues are at least `least`."""
    values, vectors = np.linalg.eigh((matrix + matrix.swapaxes(-1, -2)) / 2)
    nearest: Floats = (vectors * np.maximum(values, least)[..., None, :]) @ vectors.swapaxes(-1, -2)
    return nearest
