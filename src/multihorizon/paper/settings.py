"""How large the study is, and the choices the paper leaves open.

The choices stand here in one place; `choices.py` measures how much each of them matters.

What the paper prints: the figures that ours stand beside. Each entry says where it is printed.

Part "generalization": the loss of each learned reward on random task variants (the paper's Table 1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import multihorizon as mh
from multihorizon.domains.base import Domain

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


#: Generalization error, mean and standard deviation over 100 tasks (Table 1; the naive extension: appendix).
GENERALIZATION = {
    "MPLP": {"toy": (0.009, 0.040), "big-small": (0.039, 0.117), "cliff": (0.0, 0.0)},
    "MPMCE": {"toy": (0.21, 0.25), "big-small": (0.040, 0.065), "cliff": (0.0, 0.0)},
    "NaiveLP": {"toy": (0.213, 0.218)},
}

#: Learned discounts (appendix, table of true and learned discount factors; the naive extension: appendix).
DISCOUNTS = {
    "MPLP": {"toy": (0.0, 0.35, 1.0), "big-small": (0.38, 0.74, 1.0), "cliff": (0.04, 0.44, 0.84)},
    "MPMCE": {"toy": (0.53, 0.82, 0.98), "big-small": (0.30, 0.62, 0.98), "cliff": (0.0, 0.31, 0.55)},
    "NaiveLP": {"toy": (0.0, 1.0, 1.0)},
}

#: True discounts of the experts: intervals for deterministic experts, numbers for entropy-regularised ones (same table).
TRUE_INTERVALS = {
    "toy": ((0.0, 0.43), (0.43, 0.87), (0.87, 1.0)),
    "big-small": ((0.0, 0.2), (0.2, 0.68), (0.87, 1.0)),
    "cliff": ((0.06, 0.28), (0.28, 0.52), (0.52, 0.95)),
}

#: Rewards of the toy domain in the appendix's graphs, states s0 to s3.
TOY_REWARDS = {"true": (0, 6, 7, 10), "MPLP": (0, 8.83, 10, 10), "MPMCE": (3.4, 4.2, 3.1, 9.7), "NaiveLP": (0, 0, 0, 10)}

#: Breakpoints of the toy's optimal policy (appendix).
TOY_BREAKPOINTS = (0.432, 0.876)

#: Spacing of the grid of discounts on which feasibility was tested (Section 6.2).
GRID_STEP = 0.01

#: Share of the two-expert toy grid with a generalization error above 0.5 (Section 6.2 and appendix).
TWO_EXPERT_SHARE = 0.40

#: Evaluations after which Bayesian optimisation is said to have converged (Section 6.3).
CONVERGED_AFTER = {"MPLP": 100, "MPMCE": 50}


def compute_generalization(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """`data[domain][algorithm]`: mean and standard deviation of the signed and of the absolute ratio."""
    data: dict[str, Any] = {}
    for number, (name, domain) in enumerate(study_domains().items()):
        progress(number / 3, name)
        data[name] = {
            algorithm: error_of(domain, np.array(found["reward"]), settings) for algorithm, found in done["learned"][name].items()
        }
    return data


def error_of(domain: Domain, reward: Any, settings: Settings) -> dict[str, float]:
    """Signed and absolute generalization error of one reward."""
    error = mh.generalization_error(domain, reward, settings.tasks, settings.seed)
    return {
        "mean": error.mean,
        "std": error.std,
        "median": float(np.median(error.values)),
        "absolute mean": float(error.absolute.mean()),
        "absolute std": float(error.absolute.std()),
        "tasks": settings.tasks,
    }
