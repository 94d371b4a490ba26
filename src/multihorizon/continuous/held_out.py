"""Which decisions are held out where something is chosen or checked by how well it predicts."""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Bools
from multihorizon.tables.steps import Steps


def held_out_rows(steps: Steps) -> Bools:
    """The rows `(N,)` of every third episode of each expert; of an expert with fewer episodes, the last third of the rows."""
    mask = np.zeros(len(steps), dtype=np.bool_)
    for k in range(len(steps.experts)):
        rows = np.flatnonzero(steps.expert == k)
        numbers = steps.episode_numbers[rows]
        rank = np.unique(numbers, return_inverse=True)[1]
        mask[rows] = rank % 3 == 2 if rank.max(initial=0) >= 2 else np.arange(rows.size) >= 2 * rows.size / 3
    return mask
