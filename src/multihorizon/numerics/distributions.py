"""Usual distributions: tails, quantiles, points that are scattered evenly, and expectations as weighted sums over nodes.

*Tails and quantiles* are those of `scipy.stats`, by the functions of `scipy.special` beneath it: to import `scipy.stats` takes
longer than a small fit.

*Points* are Halton's with the digits in each base b exchanged at random (Owen, 2017): `x_i = Σ_j σ_j(d_j(i)) b^{−j−1}`, d_j(i)
the digits of i and σ_j a permutation of 0, …, b−1, with a prime b for each dimension.

*Nodes* for a standard normal z of D independent coordinates: `E f(z) ≈ Σ_q w_q f(z_q)`. A grid of n Gauss–Hermite nodes along
each is exact for polynomials of degree 2n − 1. In many dimensions a grid is too large, and Sobol points, each with its mirror
image, take its place.
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.special import ndtri

from multihorizon.checks import Floats


def chi2_sf(x: ArrayLike, degrees: ArrayLike) -> Floats:
    """Return the probability that χ² exceeds x; NaN without degrees of freedom."""
    tail: Floats = np.where(np.asarray(degrees) > 0, special.chdtrc(degrees, np.maximum(x, 0.0)), np.nan)
    return tail


def chi2_ppf(level: float, degrees: int) -> float:
    """Return the χ² that is not exceeded with this probability."""
    return 2 * float(special.gammaincinv(degrees / 2, level))


def t_sf(x: ArrayLike, degrees: ArrayLike) -> Floats:
    """Return the probability that Student's t exceeds x; with infinitely many degrees of freedom it is normal."""
    many = np.isinf(degrees)
    tail: Floats = np.where(many, special.ndtr(-np.asarray(x)), special.stdtr(np.where(many, 1.0, degrees), -np.asarray(x)))
    return tail


def t_ppf(level: float, degrees: ArrayLike) -> Floats:
    """Return the t that is not exceeded with this probability; with infinitely many degrees of freedom it is normal."""
    many = np.isinf(degrees)
    quantile: Floats = np.where(many, special.ndtri(level), special.stdtrit(np.where(many, 1.0, degrees), level))
    return quantile


def halton(dimension: int, count: int, rng: np.random.Generator) -> Floats:
    """Return `count` points `(count,dimension)` of the unit cube."""
    points = np.zeros((count, dimension))
    primes: list[int] = []
    number = 2
    while len(primes) < dimension:
        if all(number % prime for prime in primes):
            primes.append(number)
        number += 1
    for column, base in enumerate(primes):
        left = np.arange(count)
        for place in range(math.ceil(54 / math.log2(base)) - 1):  # as many digits as a double has
            exchanged = np.arange(base)
            rng.shuffle(exchanged)
            points[:, column] += exchanged[left % base] * float(base) ** -(place + 1)
            left //= base
    return points


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
