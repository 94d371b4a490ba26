"""Exact recovery of discounts and reward by linear algebra; the mathematics is in `closed_form` and `linear_system`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multihorizon.checks import as_positive
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.recovery.identification import Identification
from multihorizon.recovery.identify import Temperature, identify, read_temperature
from multihorizon.solution import Solution, Status

_STATUS = {"unique": Status.OPTIMAL, "set": Status.NOT_IDENTIFIED, "infeasible": Status.INFEASIBLE}


@dataclass(frozen=True)
class ClosedForm:
    """Discounts and reward of soft-optimal experts, exactly and without a search over discounts.

    Solves `λ_k log π_k(a|s) = Σ_s' T(s'|s,a) [r(s') + γ_k V_k(s')] − V_k(s)` for Γ, r and V: a linear system in Γ in the
    usual case, variable projection where the actions leave more than a constant open or the reward is made of features.
    The solution's `residual` is `max |(Q − V)/λ − log π|`, recomputed from its discounts and reward; `objective` is minus that.
    Its evidence is the report of `identify`. Where the policies do not identify the discounts the answer is one of many.

    From demonstrations the frequencies are smoothed; that is a start for `MaximumLikelihood`, not an efficient estimate. The
    status is then CONVERGED only where the errors of the counts leave every discount within 0.1.

    Args:
        temperature: the entropy weight λ all experts share, or "per_expert": one each, the first is 1.
        tolerance: the size of the errors in log π that are allowed for; see `identify`.
        smoothing: added to each available action's count of demonstrations.
    """

    temperature: Temperature = 1.0
    tolerance: float = 1e-8
    smoothing: float = 0.5

    def __post_init__(self) -> None:
        read_temperature(self.temperature)
        as_positive(self.tolerance, "tolerance")
        as_positive(self.smoothing, "smoothing")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Solve the experts' equations; nothing in it is random."""
        progress(0.0, "closed form: solving the experts' equations")
        found = identify(problem, self.temperature, self.tolerance, smoothing=self.smoothing)
        exact = found.status != "unique" or not found.from_counts
        return Solution(
            solver="ClosedForm",
            status=_STATUS[found.status] if exact else Status.CONVERGED,
            message=self._message(found),
            experts=problem.names,
            discounts=found.discounts,
            reward=found.reward,
            objective=-found.residual,
            residual=found.residual,
            temperature=found.temperature,
            evidence=found.to_dict(),
        )

    def _message(self, found: Identification) -> str:
        parts = [found.headline(), f"The equations hold to {found.residual:.1e} in log π."]
        if found.status == "set":
            widest = float(np.diff(found.intervals, axis=1).max())
            parts.append(f"The discounts and the reward given are one explanation of many; the widest range is {widest:.2f}.")
        if found.from_counts:
            parts.append(
                f"Frequencies with {self.smoothing:g} added to each count stand in for policies: "
                "this is a start for MaximumLikelihood, not an efficient estimate."
            )
        return " ".join(parts)
