"""Tails and quantiles of the usual distributions, and points that are scattered evenly.

They are those of `scipy.stats`, by the functions of `scipy.special` beneath it: to import `scipy.stats` takes longer than a small
fit. The points are Halton's with the digits in each base b exchanged at random (Owen, 2017): `x_i = Σ_j σ_j(d_j(i)) b^{−j−1}`,
d_j(i) the digits of i and σ_j a permutation of 0, …, b−1, with a prime b for each dimension.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

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
