"""What the paper prints: the figures that ours stand beside. Each entry says where it is printed."""

from __future__ import annotations

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
