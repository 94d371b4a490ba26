"""Part "toy": values against the discount under the true and the learned rewards, and where Assumption 1 fails."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import brentq

import multihorizon as mh
from multihorizon.domains import Domain
from multihorizon.study.settings import Floats, Progress, Settings

PAIRS = ((0, 1), (0, 2), (1, 2))


def compute(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """Value curves of "always a0, a1, a2" under three rewards, breakpoints, and pairwise crossings under the true reward."""
    domain = mh.domains.toy()
    axis = np.linspace(0, 1, 101)
    learned = {name: np.array(done["learned"]["toy"][name]["reward"]) for name in ("MPLP", "NaiveLP")}
    rewards = {"true": domain.reward, **learned}
    curves = {name: [[value(domain, reward, a, g) for g in axis] for a in range(3)] for name, reward in rewards.items()}
    return {
        "axis": axis,
        "curves": curves,
        "breakpoints": [interval.high for interval in mh.discount_intervals(domain.mdp, domain.reward)[:-1]],
        "crossings": {f"a{i} and a{j}": crossing(domain, i, j) for i, j in PAIRS},
    }


def value(domain: Domain, reward: Floats, action: int, discount: float) -> float:
    """The value of s0 when the same action is always taken."""
    policy = np.eye(3)[[action] * 4]
    return float(mh.evaluate(domain.mdp, policy, reward, discount).values[0])


def crossing(domain: Domain, first: int, second: int) -> float:
    """The discount at which two of the policies are worth the same in s0 under the true reward."""

    def difference(gamma: float) -> float:
        return value(domain, domain.reward, first, gamma) - value(domain, domain.reward, second, gamma)

    return float(brentq(difference, 0, 1, xtol=1e-14))
