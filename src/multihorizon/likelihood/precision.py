"""How well the decisions determine the answer: what is identified, standard errors, and the error of estimated transitions.

*Information.* With I the Fisher information at the answer, scaled to a unit diagonal, eigenvalues below
`INFORMATION_RANK_TOLERANCE` of the largest span the directions in which the decisions say nothing. A parameter with a component
in them is not identified: it gets NaN, not a number. The others' covariance is the pseudo-inverse.

*Estimated transitions* add a variance of their own (`first_step.py`). A profile interval is widened by the same factor as its
standard error.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.likelihood.first_step import added_variance
from multihorizon.likelihood.large import is_large
from multihorizon.likelihood.likelihood import Point
from multihorizon.likelihood.profiled import profile_covariances
from multihorizon.tolerances import INFORMATION_RANK_TOLERANCE

#: The largest component in the null space that is put down to rounding.
NULL_COMPONENT = 1e-3


@dataclass(frozen=True, eq=False)
class Precision:
    """Covariance `(p,p)` of the answer, what is identified `(p,)`, and the scaled spectrum of the information.

    `null_space` `(p,nullity)` spans the directions of which the decisions say nothing. `widening` `(p,)` is the factor by which
    estimated transitions widen each standard error, 1 where they are known.
    """

    variance: Floats
    identified: Bools
    spectrum: Floats
    covariance: Floats | None
    null_space: Floats
    widening: Floats

    @property
    def nullity(self) -> int:
        """How many directions of x the decisions say nothing of."""
        return int(self.null_space.shape[1])

    @property
    def rank(self) -> int:
        """How many directions of x the decisions determine."""
        return self.spectrum.size - self.nullity

    @cached_property
    def standard_errors(self) -> Floats:
        """Standard errors `(p,)`: 0 for what is known, NaN for what is not identified."""
        return np.where(self.identified, self.widening * np.sqrt(self.variance), np.nan)


def precision(point: Point) -> Precision:
    """Standard errors and identified directions at an answer; with very many rewards, of the discounts alone."""
    model = point.likelihood
    if is_large(model):
        return _large_precision(point)
    free = np.flatnonzero(~model.fixed)
    information = point.information.copy() if model.penalty is None else point.information + model.penalty.matrix
    matrix = information[np.ix_(free, free)]
    spectrum, vectors, own_scale = scaled_spectrum(matrix)
    null = spectrum <= INFORMATION_RANK_TOLERANCE * spectrum[-1]
    lost = np.linalg.norm(vectors[:, null], axis=1) > NULL_COMPONENT
    if model.ridge.any():
        information[np.arange(model.n_reward), np.arange(model.n_reward)] += model.ridge
        penalised, directions, scale = scaled_spectrum(information[np.ix_(free, free)])
        kept = penalised > INFORMATION_RANK_TOLERANCE * penalised[-1]
        inverse = (directions[:, kept] / penalised[kept]) @ directions[:, kept].T / np.outer(scale, scale)
    else:
        inverse = (vectors[:, ~null] / spectrum[~null]) @ vectors[:, ~null].T / np.outer(own_scale, own_scale)
    covariance = np.zeros((model.size, model.size))
    covariance[np.ix_(free, free)] = inverse
    identified = np.ones(model.size, dtype=np.bool_)
    identified[free] = ~lost
    variance = np.diag(covariance)
    null_space = np.zeros((model.size, int(null.sum())))
    null_space[free] = vectors[:, null] / own_scale[:, None]
    return Precision(variance, identified, spectrum, covariance, null_space, _widening(point, covariance, variance))


def _large_precision(point: Point) -> Precision:
    """Of discounts and log-temperatures; the rewards count as not identified, because their errors are not computed."""
    model = point.likelihood
    d = model.n_reward
    covariances, known, spectrum = profile_covariances(point)
    variance, widening, identified = np.zeros(model.size), np.ones(model.size), np.zeros(model.size, dtype=np.bool_)
    variance[d:], identified[d:] = np.diag(covariances[:, d:]), known
    widening[d:] = _widening(point, covariances, variance[d:])
    return Precision(variance, identified, spectrum, None, np.zeros((model.size, 0)), widening)


def _widening(point: Point, covariances: Floats, variance: Floats) -> Floats:
    """The factor by which estimated transitions widen standard errors."""
    widening: Floats = np.sqrt(1 + added_variance(point, covariances) / np.where(variance > 0, variance, np.inf))
    return widening


def scaled_spectrum(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """Eigenvalues and vectors of a matrix scaled to a unit diagonal, and the scale."""
    scale = np.sqrt(np.diag(matrix))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    return values, vectors, scale
