"""Expectations under a standard normal distribution, as weighted sums over nodes.

`E f(z) ≈ Σ_q w_q f(z_q)`, z of D independent coordinates. A grid of n Gauss–Hermite nodes along each is exact for polynomials of
degree 2n − 1. In many dimensions a grid is too large, and Sobol points, each with its mirror image, take its place.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from scipy.special import ndtri

from multihorizon.checks import Floats


def normal_nodes(*counts: int) -> tuple[Floats, Floats]:
    """Return the places `(Q,D)` and weights `(Q,)` of a Gauss–Hermite grid with so many nodes along each dimension.

    Example:
        >>> places, weights = normal_nodes(3, 2)
        >>> (weights @ places**2).round(12).tolist()
        [1.0, 1.0]
    """
    rules = [np.polynomial.hermite_e.hermegauss(count) for count in counts]
    places = np.stack(np.meshgrid(*(nodes for nodes, _ in rules), indexing="ij"), axis=-1).reshape(-1, len(counts))
    weights = reduce(np.multiply.outer, [weight for _, weight in rules]).ravel()
    return places, weights / weights.sum()


def scattered_nodes(count: int, size: int) -> tuple[Floats, Floats]:
    """Return `count` Sobol points `(Q,D)`, a power of 2, and weights `(Q,)`.

    Each point has its mirror image, and all are scaled to have exactly the covariance of the distribution.
    """
    from scipy.stats.qmc import Sobol  # noqa: PLC0415  it takes longer to import than a small fit takes

    half = ndtri(Sobol(size, rng=0).random(count // 2))
    half = half @ np.linalg.inv(np.linalg.cholesky(half.T @ half / len(half))).T
    return np.concatenate([half, -half]), np.full(count, 1 / count)
