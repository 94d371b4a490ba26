"""What a penalty on rewards moved, and what it decides in place of the decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from multihorizon.checks import first_few
from multihorizon.likelihood.evidence import LikelihoodEvidence
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL, in_words


@dataclass(frozen=True, eq=False)
class Penalty:
    """A penalty the user asked for, beside the fit without it.

    The penalty decides a discount, and the decisions do not, where it moves the discount by more than 1.96 of its standard errors
    without it, or where there is no such error because the decisions alone do not identify the discount. The interval with the
    penalty would not show that: the stronger the penalty, the narrower it is.
    """

    ridge: float
    without: Solution

    def decides(self, solution: Solution) -> str:
        """Return whose discounts in the solution the penalty decides, in words; empty where the decisions do."""
        errors = self.without.standard_errors
        if errors is None or self.without.status == Status.NOT_CONVERGED:
            return ""
        moved = np.abs(solution.discounts - self.without.discounts)
        here = LikelihoodEvidence.of(solution).identified & ~(moved <= ndtri(0.5 + LEVEL / 2) * errors) & (moved > 0)
        names = first_few([name for name, decided in zip(solution.experts, here, strict=True) if decided])
        return names and (
            f"The penalty on large rewards (ridge {self.ridge:g}), and not the decisions, sets the discounts of these "
            f"experts: {names}. Choose a smaller penalty, or none."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what a file holds."""
        return {
            "ridge": self.ridge,
            "discounts_without": self.without.discounts,
            "log_likelihood_without": self.without.objective,
            "status_without": str(self.without.status),
        }


def held_rewards(reason: str) -> str:
    """Return what must be said where a penalty holds the rewards, for this reason; nothing without one."""
    return reason and (
        f"These decisions alone do not settle all rewards: {reason}. So rewards far from zero were made a "
        "little less likely, which keeps them finite. Rewards that few decisions touch are pulled towards zero by it."
    )


def penalty_words(solution: Solution, penalty: Penalty) -> str:
    """Return what a penalty the user asked for moved."""
    text = f"A penalty on large rewards (ridge {penalty.ridge:g}) was asked for."
    free = penalty.without
    if free.status == Status.NOT_CONVERGED:
        return f"{text} Without it the fit does not converge, so what it moved is not knsolution."
    pairs = zip(solution.experts, free.discounts, solution.discounts, strict=True)
    moved = [f"{name} from {before:.3f} to {after:.3f}" for name, before, after in pairs if abs(before - after) >= 0.0005]
    lost = free.objective - solution.objective
    text += f" It costs {lost:.2f} in log-likelihood and moves {in_words(moved) if moved else 'no discount by 0.001 or more'}."
    if (np.argsort(free.discounts) != np.argsort(solution.discounts)).any() and moved:
        text += " It changes the order of the discounts, so do not rely on the order."
    return text
