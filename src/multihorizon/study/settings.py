"""How large the study is, and the choices the paper leaves open.

The choices stand here in one place; `choices.py` measures how much each of them matters.
"""

from __future__ import annotations

from dataclasses import dataclass

from multihorizon.domains import Domain, big_small, cliff, toy

#: Bound on the absolute reward: the largest true reward of the domain (the paper's toy rewards reach 10).
REWARD_BOUND = {"toy": 10.0, "big-small": 20.0, "cliff": 20.0}
#: Weight of the l1 norm; on the toy the one that gives the reward the paper shows.
L1 = {"toy": 0.03, "big-small": 0.0, "cliff": 0.0}
#: Entropy weight of the experts of the second study.
TEMPERATURE = 1.0
#: The duality gap ε up to which the paper's rule calls discounts feasible.
EPSILON = 1e-3


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
    def grid_step(self) -> float:
        """Spacing of the identifiability grids."""
        return 0.05 if self.quick else 0.01

    @property
    def search_step(self) -> float:
        """Spacing of the grid search that Bayesian optimisation is compared with."""
        return 0.25 if self.quick else 0.05


def study_domains() -> dict[str, Domain]:
    """The three domains by name."""
    return {domain.name: domain for domain in (toy(), big_small(), cliff())}
