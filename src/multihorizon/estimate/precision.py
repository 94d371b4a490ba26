"""Standard errors of the discounts where rewards are very many: the reward is profiled out by products.

`S = I_γγ − I_γθ I_θθ^{-1} I_θγ`, with conjugate gradients on `I_θθ` (`metric`). Experts who choose nearly at random, or look
almost equally far, keep a small share of their own information in S, and that share decides their standard errors. So the
gradients are stopped late. A discount whose share is lost in the error that is left is not identified. Standard errors of the
rewards are not computed.

How well the decisions determine the answer: what is identified, standard errors, and the error of estimated transitions.

*Information.* With I the Fisher information at the answer, scaled to a unit diagonal, its smallest eigenvalues span directions
of which the decisions say nothing (`numerics.spectrum`). A parameter with a component in them is not identified: it gets NaN, not
a number. The others' covariance is the pseudo-inverse.

*Estimated transitions* are among the parameters (`logged_moves.py`), so their error is part of every other one's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.choice.model import ChoicePoint
from multihorizon.choice.tabular import Point
from multihorizon.numerics.spectrum import spectrum

#: Relative residual of the conjugate gradients: it leaves errors of about 1e-10 in shares, for a third more work than 1e-5.
PROFILED = 1e-9
#: A discount keeps at least this share of its information when the reward is profiled out, or it is not identified. Where it is
#: not, shares come out near 1e-13.
SHARE = 1e-8


def profile_information(point: Point) -> tuple[Floats, Floats, Floats]:
    """S `(m,m)` of the free discounts and log-temperatures with everything else profiled out, their own information `(m,)`, and
    `I_γθ I_θθ^{-1}` `(m,p)`: how far the most likely reward, and transitions, give way when one of them rises.
    """
    model = point.likelihood
    first, last, size = model.n_reward, model.transition_slice.start, model.size
    metric = point.products()
    others = ((np.arange(size) < first) | (np.arange(size) >= last)) & ~model.fixed
    free = np.flatnonzero(~model.fixed[first:last]) + first
    columns = np.array([metric.times(np.eye(1, size, int(k)).ravel()) for k in free])
    solved = np.array([metric.solve(column, others, 0.0, PROFILED) for column in columns])
    own = columns[:, free]
    profiled: Floats = own - columns[:, others] @ solved[:, others].T
    return 0.5 * (profiled + profiled.T), np.diag(own).copy(), solved


def profile_covariances(point: Point) -> tuple[Floats, Bools, Floats]:
    """Covariances `(m,p)` of discounts and log-temperatures with all of x, which of them are identified, the scaled spectrum.

    What is known has covariance 0.
    """
    model = point.likelihood
    d, m = model.n_reward, model.n_discounts + model.n_temperatures
    free = np.flatnonzero(~model.fixed[d : d + m])
    profiled, own, gives_way = profile_information(point)
    found = spectrum(profiled, np.sqrt(np.where(own > 0, own, 1.0)), least=SHARE)
    covariances = np.zeros((m, model.size))
    covariances[free] = -found.inverse @ gives_way
    covariances[np.ix_(free, d + free)] = found.inverse
    identified = np.ones(m, dtype=np.bool_)
    identified[free] = found.identified()
    return covariances, identified, found.values


#: The largest component in the null space that is put down to rounding.
NULL_COMPONENT = 1e-3


@dataclass(frozen=True, eq=False)
class Precision:
    """Covariance `(p,p)` of the answer, what is identified `(p,)`, and the scaled spectrum of the information.

    `null_space` `(p,nullity)` spans the directions of which the decisions say nothing. `widening` `(p,)` is the factor by which
    a first stage that is not among the parameters widens each standard error.
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


def precision(point: ChoicePoint) -> Precision:
    """Standard errors and identified directions at an answer; with very many rewards, of the discounts alone."""
    model = point.likelihood
    if isinstance(point, Point) and model.is_large:
        return _large_precision(point)
    free = np.flatnonzero(~model.fixed)
    found = spectrum(point.curvature(ridge=False)[np.ix_(free, free)])
    held = spectrum(point.curvature()[np.ix_(free, free)]) if model.ridge.any() else found
    covariance = np.zeros((model.size, model.size))
    covariance[np.ix_(free, free)] = held.inverse
    identified = np.ones(model.size, dtype=np.bool_)
    identified[free] = found.identified()
    null_space = np.zeros((model.size, free.size - found.rank))
    null_space[free] = found.null_space
    return Precision(np.diag(covariance), identified, found.values, covariance, null_space, np.ones(model.size))


def _large_precision(point: Point) -> Precision:
    """Of discounts and log-temperatures; the rewards count as not identified, because their errors are not computed."""
    model = point.likelihood
    d = model.n_reward
    covariances, known, values = profile_covariances(point)
    variance, identified, own = np.zeros(model.size), np.zeros(model.size, dtype=np.bool_), slice(d, d + known.size)
    variance[own], identified[own] = np.diag(covariances[:, own]), known
    return Precision(variance, identified, values, None, np.zeros((model.size, 0)), np.ones(model.size))


def transition_widening(point: Point, found: Precision) -> Floats:
    """The factor `(p,)` by which the error of estimated transitions widens standard errors; NaN with very many parameters."""
    model = point.likelihood
    if not model.moves:
        return np.ones(model.size)
    if found.covariance is None:
        return np.full(model.size, np.nan)
    # Given the transitions, the covariance of the rest is what is left when theirs is conditioned on.
    others, moves = slice(0, model.transition_slice.start), model.transition_slice
    shared = found.covariance[others, moves]
    given = found.variance[others] - (shared * np.linalg.solve(found.covariance[moves, moves], shared.T).T).sum(axis=1)
    widening = np.ones(model.size)
    widening[others] = np.sqrt(found.variance[others] / np.where(given > 0, given, np.inf))
    widening[others] = np.where(given > 0, widening[others], 1.0)
    return widening
