"""Rao's score test: would more parameters help, asked at a maximum without them?

With g the gradient and I the information of all parameters, n those of the maximum and c those that are 0 there, what is left of
c once n has followed is

    s = g_c − I_cn I_nn⁻ g_n,    J = I_cc − I_cn I_nn⁻ I_nc,    and    S = sᵀ J⁻ s

is χ² with as many degrees of freedom as J has directions, where data are many. Nothing is fitted again. Directions of c that n
can take over carry no information, and are left out. Where choices are rare S has longer tails. Gradients of simulated data show
them: S is compared with the multiple of a χ² that has the mean and the variance of theirs (Satterthwaite).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.numerics.chance import chi2_sf
from multihorizon.numerics.spectrum import spectrum

#: The share of the information about c alone below which n can take a direction over.
LEAST_LEFT = 1e-6


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
    decided = spectrum(left(information)[0], unit, tol=0.0, least=LEAST_LEFT)
    room = decided.vectors[:, decided.kept] / unit[:, None]  # the directions of c that the data determine
    held, follows = left(information + priors)
    to_new = np.zeros((gradient.size, room.shape[1]))
    to_new[new] = room
    to_new[free] = -follows @ room
    score = gradient @ to_new
    scale = room.T @ held @ room
    statistic = float(score @ np.linalg.solve(scale, score))
    return ScoreTest(statistic, room.shape[1], float(chi2_sf(statistic, room.shape[1])), to_new, scale)
