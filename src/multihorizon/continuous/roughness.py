"""The penalty on the reward: how rough it is along each coordinate.

Decisions say little about fine ripples of the reward, because the noise of a step averages over them. The penalty `½ κ θᵀ(R +
RIDGE·I)θ` holds them: `θᵀRθ` is the mean square, over value points and coordinates, of the second difference `r(z + h) − 2 r(z)
+ r(z − h)`, in a unit in which R has a mean diagonal of 1. It leaves slopes and levels alone, so it moves discounts far less
than a penalty on the size of θ would. Coordinates with few distinct values have no second differences; where there are no
others, R is the identity.
"""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Floats
from multihorizon.continuous.basis import Fitted
from multihorizon.tables.steps import Steps

#: The weight of the size of θ beside its roughness.
RIDGE = 0.01
#: h, as a share of a coordinate's range, and the number of points at which second differences are taken.
STEP, POINTS = 0.03, 1000
#: A coordinate with at most this many distinct values has none.
FEW_VALUES = 20


def roughness(basis: Fitted, steps: Steps, points: Floats) -> Floats:
    """The matrix `R + RIDGE·I` `(f,f)` at some of these points `(m,d)`."""
    chosen = points[np.linspace(0, len(points) - 1, min(len(points), POINTS)).round().astype(np.int64)]
    size = basis(chosen[:1]).shape[1]
    total = np.zeros((size, size))
    for j in range(points.shape[1]):
        if steps.sources.count(steps.sources[j]) > 1 or np.unique(points[:, j]).size <= FEW_VALUES:
            continue
        shift = np.zeros(points.shape[1])
        shift[j] = STEP * np.ptp(np.quantile(points[:, j], [0.005, 0.995]))
        second = basis(chosen + shift) - 2 * basis(chosen) + basis(chosen - shift)
        total += (second.T @ second).toarray()
    scale = float(np.trace(total)) / size
    return total / scale + RIDGE * np.eye(size) if scale > 0 else np.eye(size)
