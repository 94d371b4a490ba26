"""Exact recovery of discounts and reward by linear algebra; the mathematics is in `closed_form` and `linear_system`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multihorizon.checks import as_positive
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.recovery.closed_form_start import closed_form_start
from multihorizon.recovery.identification import Identification
from multihorizon.recovery.identify import Temperature, bellman_residual, identify, read_temperature
from multihorizon.solution import Solution, Status

_STATUS = {"unique": Status.OPTIMAL, "set": Status.NOT_IDENTIFIED, "infeasible": Status.INFEASIBLE}


@dataclass(frozen=True)
class ClosedForm:
    """Discounts and reward of soft-optimal experts, exactly and without a search over discounts.

    Solves `λ_k log π_k(a|s) = Σ_s' T(s'|s,a) [r(s') + γ_k V_k(s')] − V_k(s)` for Γ, r and V: a linear system in Γ in the
    usual case, variable projection where the actions leave more than a constant open or the reward is made of features.
    The solution's `residual` is `max |(Q − V)/λ − log π|`, recomputed from its discounts and reward; `objective` is minus that.
    Its evidence is the report of `identify`. Where the policies do not identify the discounts the answer is one of many.

    From demonstrations the frequencies are smoothed; that is a start for `MaximumLikelihood`, not an efficient estimate.

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
        if any(expert.counts is not None for expert in problem.experts):
            return self._estimate(problem)
        found = identify(problem, self.temperature, self.tolerance)
        return Solution(
            solver="ClosedForm",
            status=_STATUS[found.status],
            message=_message(found),
            experts=problem.names,
            discounts=found.discounts,
            reward=found.reward,
            objective=-found.residual,
            residual=found.residual,
            temperature=found.temperature,
            evidence=found.to_dict(),
        )

    def _estimate(self, problem: Problem) -> Solution:
        start = closed_form_start(problem, self.smoothing, self.temperature)
        residual = bellman_residual(problem, start.discounts, start.reward, start.temperature)
        return Solution(
            solver="ClosedForm",
            status=Status.CONVERGED,
            message=f"an estimate from frequencies with {self.smoothing:g} added to each count: a start for maximum likelihood",
            experts=problem.names,
            discounts=start.discounts,
            reward=start.reward,
            objective=-residual,
            residual=residual,
            temperature=start.temperature,
            evidence={"smoothing": self.smoothing, "log_likelihood": start.log_likelihood},
        )


def _message(found: Identification) -> str:
    return found.summary().split("\n")[0] + f" Residual {found.residual:.1e} in log π." + _set_note(found)


def _set_note(found: Identification) -> str:
    if found.status != "set":
        return ""
    widest = float(np.diff(found.intervals, axis=1).max())
    return f" The discounts given are one member; the widest range is {widest:.2f}."
