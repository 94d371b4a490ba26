"""Standard errors of the discounts where rewards are very many: the reward is profiled out by products.

`S = I_γγ − I_γθ I_θθ^{-1} I_θγ`, with conjugate gradients on `I_θθ` (`metric`). They approach S from above, so stopping them
early makes a standard error too small, by as much as their tolerance allows. A discount whose share of S is lost in that is not
identified. Standard errors of the rewards are not computed.
"""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Floats
from multihorizon.likelihood.likelihood import Point
from multihorizon.likelihood.metric import Products

#: Relative residual of the conjugate gradients.
PROFILED = 1e-5
#: A discount keeps at least this share of its information when the reward is profiled out, or it is not identified.
SHARE = 1e-4


def profile_information(point: Point) -> tuple[Floats, Floats]:
    """S `(m,m)` of the free discounts and log-temperatures with the reward profiled out, and their own information `(m,)`."""
    model = point.likelihood
    d, size = model.n_reward, model.size
    metric = Products(point)
    rewards = (np.arange(size) < d) & ~model.fixed
    free = np.flatnonzero(~model.fixed[d:]) + d
    columns = np.array([metric.times(np.eye(1, size, int(k)).ravel()) for k in free])
    solved = np.array([metric.solve(column, rewards, 0.0, PROFILED)[:d] for column in columns])
    own = columns[:, free]
    profiled: Floats = own - columns[:, :d] @ solved.T
    return 0.5 * (profiled + profiled.T), np.diag(own).copy()


def discount_errors(point: Point) -> tuple[Floats, Floats]:
    """Standard errors of discounts and log-temperatures, 0 where known, NaN where not identified; and the scaled spectrum."""
    model = point.likelihood
    free = ~model.fixed[model.n_reward :]
    profiled, own = profile_information(point)
    scale = np.sqrt(np.where(own > 0, own, 1.0))
    spectrum, vectors = np.linalg.eigh(profiled / np.outer(scale, scale))
    kept = spectrum > SHARE
    lost = np.linalg.norm(vectors[:, ~kept], axis=1) > 1e-3
    variance = (vectors[:, kept] ** 2 / spectrum[kept]).sum(axis=1) / scale**2
    errors = np.zeros(free.size)
    errors[free] = np.where(lost, np.nan, np.sqrt(variance))
    return errors, spectrum
