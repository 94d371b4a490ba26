"""Checks of options that several LP solvers share."""

from __future__ import annotations

from typing import Any

import numpy as np

from multihorizon.checks import as_positive


def check_l1(value: Any) -> float:
    """Read the weight of ‖θ‖₁: a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= float(value) < np.inf:
        raise ValueError(f"l1 must be a number of at least 0, received {value!r}")
    return float(value)


def check_bound(value: Any) -> float:
    """Read the bound on the rewards: it only scales the answer, and far from 1 the programs' tolerances lose their meaning."""
    bound = as_positive(value, "reward_bound")
    if not 1e-4 <= bound <= 1e6:
        raise ValueError(f"reward_bound must be from 1e-4 to 1e6, received {bound:g}: solve at 1 and scale the reward")
    return bound
