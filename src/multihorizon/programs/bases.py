"""Warm starts: the bases of programs solved at other discounts, and which of them to start from.

Programs at neighbouring Γ share most of their optimal basis, as long as no two experts have changed their order: at γ_i = γ_j
no reward tells experts who differ apart, and beyond that point other rows are active. So a program starts from the basis at
the nearest Γ with the same order, or with as few pairs in another order as possible. After a step that is not taken this is
the basis of the point where the step began, not the one of the point that was tried.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from multihorizon.checks import Floats

#: How many bases of each name are kept; the oldest is forgotten first.
MOST_BASES = 100
#: By how much further away a basis counts if it is from a program of another name: at the same Γ it is as far as a long step.
LIKE = 0.25


@dataclass(eq=False)
class Bases:
    """The last bases of the programs of each name, with the Γ at which they were optimal."""

    _kept: dict[str, deque[tuple[Floats, Any]]] = field(default_factory=lambda: defaultdict(partial(deque, maxlen=MOST_BASES)))

    def keep(self, name: str, discounts: Floats, basis: Any) -> None:
        """Remember an optimal basis."""
        self._kept[name].append((discounts, basis))

    def nearest(self, name: str, discounts: Floats, like: str = "") -> Any:
        """The basis at the nearest Γ of a program of that name, or of one it is `like`; None if there is none.

        Of equally near ones it is the latest.
        """
        kept = [(gamma, basis, 0.0) for gamma, basis in reversed(self._kept[name])]
        kept += [(gamma, basis, LIKE) for gamma, basis in reversed(self._kept[like])]
        if not kept:
            return None
        gammas, bases, further = zip(*kept, strict=True)
        return bases[int(np.argmin(_distances(np.array(gammas), discounts) + further))]


def _distances(others: Floats, discounts: Floats) -> Floats:
    """How far Γ is from each of others `(n,K)`: one for each pair in another order, plus the largest difference."""
    first, second = np.triu_indices(discounts.size, 1)
    here, there = discounts[first] - discounts[second], others[:, first] - others[:, second]
    distances: Floats = (np.sign(here) != np.sign(there)).sum(axis=1) + np.abs(others - discounts).max(axis=1)
    return distances
