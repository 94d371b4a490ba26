"""How large the study is, and the choices the paper leaves open.

The choices stand here in one place; `choices.py` measures how much each of them matters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import multihorizon as mh

Floats = NDArray[np.float64]
#: Called with the share of the work that is done and a few words on where it stands.
Progress = Callable[[float, str], None]

#: Bound on the absolute reward: the largest true reward of the domain (the paper's toy rewards reach 10).
REWARD_BOUND = {"toy": 10.0, "big-small": 20.0, "cliff": 20.0}
#: Weight of the l1 norm; on the toy the one that gives the reward the paper shows.
L1 = {"toy": 0.03, "big-small": 0.0, "cliff": 0.0}
#: Entropy weight of the experts of the second study.
TEMPERATURE = 1.0
#: The duality gap ε up to which the rule printed in the paper calls discounts feasible.
EPSILON = 1e-3
#: The largest entry of an expert's mismatch that the rule of the paper's discussion lets pass, one for all domains.
THRESHOLD = 1e-3


@dataclass(frozen=True)
class Settings:
    """Seed, number of processes, and whether to run the quick version: fewer tasks, evaluations and grid points."""

    seed: int = 0
    quick: bool = False
    jobs: int = -1

    @property
    def tasks(self) -> int:
        """Random task variants for the generalization error."""
        return 20 if self.quick else 100

    @property
    def lp_evaluations(self) -> int:
        """Evaluations of Bayesian optimisation for MPLP."""
        return 25 if self.quick else 100

    @property
    def mce_evaluations(self) -> int:
        """Evaluations of Bayesian optimisation for MPMCE."""
        return 15 if self.quick else 50

    @property
    def thresholds(self) -> tuple[float, ...]:
        """Thresholds at which MPMCE is run, to see how the learned discounts move."""
        return (THRESHOLD, 5e-3) if self.quick else (5e-4, THRESHOLD, 2e-3, 3e-3, 5e-3, 7e-3, 1e-2, 2e-2)

    @property
    def grid_step(self) -> float:
        """Spacing of the identifiability grids."""
        return 0.05 if self.quick else 0.01

    @property
    def search_step(self) -> float:
        """Spacing of the grid search that Bayesian optimisation is compared with."""
        return 0.25 if self.quick else 0.05


def study_domains() -> dict[str, mh.domains.Domain]:
    """The three domains by name."""
    return {domain.name: domain for domain in (mh.domains.toy(), mh.domains.big_small(), mh.domains.cliff())}
