"""Information matrices: rank, inverse and null space by one scaled eigen-decomposition, and the score test made from them.

Parameters have units of their own, so a symmetric matrix M `(p,p)` is first scaled to a unit diagonal, `D^{-1} M D^{-1}` with
`D² = diag(M)`, and then decomposed as `V diag(w) Vᵀ`. Directions whose eigenvalue is below a share `tol` of the largest are
without information. On the others the inverse is `D^{-1} V_kept diag(1/w_kept) V_keptᵀ D^{-1}`. A parameter with a component in
the directions without information is not identified.

*Rao's score test* asks at a maximum whether more parameters would help. With g the gradient and I the information of all
parameters, n those of the maximum and c those that are 0 there, what is left of c once n has followed is

    s = g_c − I_cn I_nn⁻ g_n,    J = I_cc − I_cn I_nn⁻ I_nc,    and    S = sᵀ J⁻ s

is χ² with as many degrees of freedom as J has directions, where data are many. Nothing is fitted again. Directions of c that n
can take over carry no information, and are left out. Where choices are rare S has longer tails. Gradients of simulated data
show them: S is compared with the multiple of a χ² that has the mean and the variance of theirs (Satterthwaite).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.numerics.distributions import chi2_sf


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues `(p,)` and vectors `(p,p)` of a scaled matrix, its scale D `(p,)`, and which directions are `kept` `(p,)`."""

    values: Floats
    vectors: Floats
    scale: Floats
    kept: Bools

    @property
    def rank(self) -> int:
        """Return the number of directions that are kept."""
        return int(self.kept.sum())

    @cached_property
    def inverse(self) -> Floats:
        """Return the inverse `(p,p)` on the directions that are kept."""
        vectors = self.vectors[:, self.kept]
        return (vectors / self.values[self.kept]) @ vectors.T / np.outer(self.scale, self.scale)

    def solve(self, b: Floats) -> Floats:
        """Return the inverse times `b` `(p,)` or `(p,n)`, without forming it."""
        directions = self.vectors[:, self.kept] / self.scale[:, None]
        along: Floats = directions.T @ b
        return directions @ (along.T / self.values[self.kept]).T

    @property
    def null_space(self) -> Floats:
        """Return the directions that are not kept, in the units of the parameters `(p,p−rank)`."""
        return self.vectors[:, ~self.kept] / self.scale[:, None]

    def identified(self) -> Bools:
        """Mark the parameters `(p,)` with no component above 1e-3, which counts as rounding, in directions that are not kept."""
        small: Bools = np.linalg.norm(self.vectors[:, ~self.kept], axis=1) <= 1e-3
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


# Rao's score test.


@dataclass(frozen=True, eq=False)
class ScoreTest:
    """S, its degrees of freedom and its p-value; without degrees nothing was tested.

    `to_new` `(p,r)` and `scale` `(r,r)` give S of any gradient g: with `s = gᵀ to_new` it is `s scale⁻¹ sᵀ`.
    """

    statistic: float
    degrees: int
    p_value: float
    to_new: Floats
    scale: Floats

    def calibrated(self, gradients: Floats) -> ScoreTest:
        """Return the test with the tails of S in simulated data, whose gradients are `(m,p)`."""
        scores = gradients @ self.to_new
        drawn = (scores * np.linalg.solve(self.scale, scores.T).T).sum(axis=1)
        mean, variance = float(drawn.mean()), float(drawn.var())
        p_value = float(chi2_sf(2 * self.statistic * mean / variance, 2 * mean**2 / variance))
        return replace(self, p_value=max(p_value, self.p_value))


def score_test(gradient: Floats, information: Floats, priors: Floats, free: Bools, new: Bools) -> ScoreTest:
    """Test that the new parameters are 0.

    Args:
        gradient: `(p,)`, with that of priors.
        information: `(p,p)`, without priors.
        priors: their curvature `(p,p)`. They do not count where it is asked which directions the data determine.
        free: which parameters of the maximum `(p,)` may move.
        new: which parameters `(p,)` are tested.
    """

    def left(matrix: Floats) -> tuple[Floats, Floats]:
        """Return J, and how n follows c."""
        follows: Floats = spectrum(matrix[np.ix_(free, free)]).solve(matrix[np.ix_(free, new)])
        return matrix[np.ix_(new, new)] - matrix[np.ix_(new, free)] @ follows, follows

    diagonal = np.diag(information)[new]
    unit = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    # Directions are taken over by n where less than this share of the information about c alone is left.
    decided = spectrum(left(information)[0], unit, tol=0.0, least=1e-6)
    room = decided.vectors[:, decided.kept] / unit[:, None]  # the directions of c that the data determine
    held, follows = left(information + priors)
    to_new = np.zeros((gradient.size, room.shape[1]))
    to_new[new] = room
    to_new[free] = -follows @ room
    score = gradient @ to_new
    scale = room.T @ held @ room
    statistic = float(score @ np.linalg.solve(scale, score))
    return ScoreTest(statistic, room.shape[1], float(chi2_sf(statistic, room.shape[1])), to_new, scale)
