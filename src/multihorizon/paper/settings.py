"""How large the study is, the choices the paper leaves open, and what the paper prints.

The choices stand here in one place; the part "choices" measures how much each of them matters.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import multihorizon as mh

ByDomain = dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class StudySettings:
    """Seed, number of processes, and how much is computed; by default what the paper computes.

    Attributes:
        quick: whether this is the quick version, with less of everything.
        tasks: random task variants for the generalization error.
        seeds: so many times are the tasks drawn anew, to see where a printed error lies among ours.
        search_seeds: so many times is Bayesian MPLP run anew, to see where a printed discount lies among ours.
        lp_evaluations, mce_evaluations: of Bayesian optimisation, for MPLP and for MPMCE.
        starts: of the climb of MPMCE within a threshold.
        thresholds: at which MPMCE is run, to see how the learned discounts move.
        grid_step: of the identifiability grids.
        search_step: of the grid search that Bayesian optimisation is compared with.
        curve_points, surface_side: of the sets of discounts that explain the toy's experts.
        random_discounts: at how many random Γ the duality gap is measured.
    """

    seed: int = 0
    quick: bool = False
    jobs: int = -1
    tasks: int = 100
    seeds: int = 60
    search_seeds: int = 20
    lp_evaluations: int = 100
    mce_evaluations: int = 50
    starts: int = 8
    thresholds: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 7e-3, 1e-2, 2e-2)
    grid_step: float = 0.01
    search_step: float = 0.05
    curve_points: int = 30
    surface_side: int = 50
    random_discounts: int = 20

    @classmethod
    def quickly(cls, seed: int = 0, jobs: int = -1) -> StudySettings:
        """The quick version."""
        return cls(seed, True, jobs, 20, 12, 3, 25, 15, 2, (1e-3, 5e-3), 0.05, 0.25, 15, 15, 3)


@dataclass(frozen=True)
class OpenChoices:
    """What the paper does not state, and this study uses.

    Attributes:
        reward_bound: bound on the absolute reward: the largest true reward of the domain (the paper's toy rewards reach 10).
        l1: weight of the l1 norm; on the toy the one that gives the reward the paper shows.
        temperature: entropy weight of the experts of the second study.
        epsilon: the duality gap up to which the rule printed in the paper calls discounts feasible.
        threshold: the largest entry of an expert's mismatch that the rule of the paper's discussion lets pass, for all domains.
    """

    reward_bound: dict[str, float] = field(default_factory=lambda: {"toy": 10.0, "big-small": 20.0, "cliff": 20.0})
    l1: dict[str, float] = field(default_factory=lambda: {"toy": 0.03, "big-small": 0.0, "cliff": 0.0})
    temperature: float = 1.0
    epsilon: float = 1e-3
    threshold: float = 1e-3


@dataclass(frozen=True)
class Printed:
    """What the paper prints: the figures that ours stand beside.

    Attributes:
        generalization: generalization error, mean and standard deviation over 100 tasks (table of the generalization error; the
            naive extension: appendix).
        error_digits: with how many decimals each of these is printed.
        discounts: learned discounts (appendix, table of true and learned discount factors; the naive extension: appendix).
        intervals: true discounts of the deterministic experts (same table).
        toy_rewards: rewards of the toy domain in the appendix's graphs, states s0 to s3.
        toy_breakpoints: of the toy's optimal policy (appendix).
        grid_step: of the grid of discounts on which feasibility was tested (Section 6.2).
        two_expert_share: of the two-expert toy grid with a generalization error above 0.5 (Section 6.2 and appendix).
        converged_after: evaluations after which Bayesian optimisation is said to have converged for MPLP (Section 6.3).
        mpmce_converged_after: the same for MPMCE.
        text_discounts, table_discounts: the true discounts of big-small in the text and in the table.
    """

    generalization: dict[str, ByDomain]
    error_digits: dict[str, dict[str, int]]
    discounts: dict[str, ByDomain]
    intervals: dict[str, tuple[tuple[float, float], ...]]
    toy_rewards: ByDomain
    toy_breakpoints: tuple[float, ...] = (0.432, 0.876)
    grid_step: float = 0.01
    two_expert_share: float = 0.40
    converged_after: int = 100
    mpmce_converged_after: int = 50
    text_discounts: tuple[float, ...] = (0.1, 0.45, 0.9)
    table_discounts: tuple[float, ...] = (0.0, 0.45, 0.9)


CHOSEN = OpenChoices()
PRINTED = Printed(
    generalization={
        "MPLP": {"toy": (0.009, 0.040), "big-small": (0.039, 0.117), "cliff": (0.0, 0.0)},
        "MPMCE": {"toy": (0.21, 0.25), "big-small": (0.040, 0.065), "cliff": (0.0, 0.0)},
        "NaiveLP": {"toy": (0.213, 0.218)},
    },
    error_digits={
        "MPLP": {"toy": 3, "big-small": 3, "cliff": 1},
        "MPMCE": {"toy": 2, "big-small": 3, "cliff": 1},
        "NaiveLP": {"toy": 3},
    },
    discounts={
        "MPLP": {"toy": (0.0, 0.35, 1.0), "big-small": (0.38, 0.74, 1.0), "cliff": (0.04, 0.44, 0.84)},
        "MPMCE": {"toy": (0.53, 0.82, 0.98), "big-small": (0.30, 0.62, 0.98), "cliff": (0.0, 0.31, 0.55)},
        "NaiveLP": {"toy": (0.0, 1.0, 1.0)},
    },
    intervals={
        "toy": ((0.0, 0.43), (0.43, 0.87), (0.87, 1.0)),
        "big-small": ((0.0, 0.2), (0.2, 0.68), (0.87, 1.0)),
        "cliff": ((0.06, 0.28), (0.28, 0.52), (0.52, 0.95)),
    },
    toy_rewards={"MPLP": (0, 8.83, 10, 10), "MPMCE": (3.4, 4.2, 3.1, 9.7), "NaiveLP": (0, 0, 0, 10)},
)


def study_domains() -> dict[str, mh.domains.Domain]:
    """The three domains by name."""
    return {domain.name: domain for domain in (mh.domains.toy(), mh.domains.big_small(), mh.domains.cliff())}
