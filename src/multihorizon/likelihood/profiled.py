"""Standard errors of the discounts where rewards are very many: the reward is profiled out by products.

`S = I_γγ − I_γθ I_θθ^{-1} I_θγ`, with conjugate gradients on `I_θθ` (`metric`). Experts who choose nearly at random, or look
almost equally far, keep a small share of their own information in S, and that share decides their standard errors. So the
gradients are stopped late. A discount whose share is lost in the error that is left is not identified. Standard errors of the
rewards are not computed.
"""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.likelihood.likelihood import Point
from multihorizon.likelihood.metric import Products

#: Relative residual of the conjugate gradients: it leaves errors of about 1e-10 in shares, for a third more work than 1e-5.
PROFILED = 1e-9
#: A discount keeps at least this share of its information when the reward is profiled out, or it is not identified. Where it is
#: not, shares come out near 1e-13.
SHARE = 1e-8
#: The largest component in lost directions that is put down to rounding.
LOST = 1e-3


def profile_information(point: Point) -> tuple[Floats, Floats, Floats]:
    """S `(m,m)` of the free discounts and log-temperatures with everything else profiled out, their own information `(m,)`, and
    `I_γθ I_θθ^{-1}` `(m,p)`: how far the most likely reward, and transitions, give way when one of them rises.
    """
    model = point.likelihood
    first, last, size = model.n_reward, model.transition_slice.start, model.size
    metric = Products(point)
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
    scale = np.sqrt(np.where(own > 0, own, 1.0))
    spectrum, vectors = np.linalg.eigh(profiled / np.outer(scale, scale))
    kept = spectrum > SHARE
    inverse = (vectors[:, kept] / spectrum[kept]) @ vectors[:, kept].T / np.outer(scale, scale)
    covariances = np.zeros((m, model.size))
    covariances[free] = -inverse @ gives_way
    covariances[np.ix_(free, d + free)] = inverse
    identified = np.ones(m, dtype=np.bool_)
    identified[free] = np.linalg.norm(vectors[:, ~kept], axis=1) <= LOST
    return covariances, identified, spectrum
