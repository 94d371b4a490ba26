"""Multi-planning-horizon MCE-IRL (the paper's Algorithm 2): search over Γ, maximum causal entropy inside.

At each Γ the dual of `mce_dual` is minimised, giving θ. What the search then maximises depends on `gap`:

* "summed", the paper's rule: with `l = θᵀ Σ_k (f_k − f*_k)`, the entropy `Σ_k H_k` if `l ≤ ε`, else `−|l|`. At the dual's optimum
  the sum of the mismatches is zero, so `l = 0` for every Γ: the rule finds every Γ feasible and the entropy drives Γ upward.
* "per_expert": with the relative mismatch `m = sqrt(mean_k ‖f_k − f*_k‖² / ‖f*_k‖²)`, the entropy if `m ≤ ε`, else `−√m`. Each
  expert's counts must be matched, which singles out the discounts that explain all of them. The root opens the valley
  around the answer, which is narrow in m, for a Gaussian process; it was the most reliable of −m, −√m and −log m.

Neighbouring Γ have neighbouring θ, so each dual starts from the best reward seen so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from multihorizon.checks import Floats, as_positive
from multihorizon.entropy.mce import mismatch_evidence
from multihorizon.entropy.mce_dual import Dual, DualSolution, minimise_dual
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.search import Bayesian, Search, check_search
from multihorizon.solution import Solution, Status


@dataclass(frozen=True)
class MPMCE:
    """Discounts and reward that match every expert's feature counts, found by a search over the discounts.

    The solution's `objective` is the value of the best Γ under the rule above; `residual` the relative mismatch m there,
    recomputed, whichever rule was used. It is converged if m is at most `tolerance`: a search rarely gets there, and
    `ClosedForm` solves the same equations exactly.

    Args:
        temperature: the entropy weight λ that all experts share.
        gap: "per_expert", or "summed" for the paper's rule.
        tolerance: ε, below which the gap or mismatch counts as zero.
        search: the outer search over Γ.
        inner_tolerance: the largest entry of the dual's gradient at which the inner iteration stops.
    """

    temperature: float = 1.0
    gap: Literal["per_expert", "summed"] = "per_expert"
    tolerance: float = 1e-4
    search: Search = field(default_factory=lambda: Bayesian(50))
    inner_tolerance: float = 1e-7

    def __post_init__(self) -> None:
        as_positive(self.temperature, "temperature")
        check_search(self.search)
        as_positive(self.tolerance, "tolerance")
        as_positive(self.inner_tolerance, "inner_tolerance")
        if self.gap not in ("per_expert", "summed"):
            raise ValueError(f'gap must be "per_expert" or "summed", received {self.gap!r}')

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search, then solve once more at the best Γ, from no reward if that converges: the answer forgets the path to it."""
        objective = _Objective(self, problem)
        trace = self.search.run(objective, problem.n_experts, seed, progress).trace
        best = trace.best_discounts
        found, dual = objective.solve(best, None)
        if not found.converged:
            found, dual = objective.solve(best, objective.start)
        mismatch = relative_mismatch(found, dual)
        return Solution(
            solver="MPMCE",
            status=Status.CONVERGED if mismatch <= self.tolerance else Status.NOT_CONVERGED,
            message=f"best of {len(trace)} discounts: relative mismatch {mismatch:.1e}, summed gap {found.point.gap:.1e}",
            experts=problem.names,
            discounts=best,
            reward=found.point.theta,
            objective=float(trace.best[-1]),
            residual=mismatch,
            temperature=np.full(problem.n_experts, float(self.temperature)),
            trace=trace,
            evidence=mismatch_evidence(found),
        )


def relative_mismatch(found: DualSolution, dual: Dual) -> float:
    """`sqrt(mean_k ‖f_k − f*_k‖² / ‖f*_k‖²)` at a dual solution."""
    pairs = zip(found.point.sides, dual.targets, strict=True)
    shares = [np.linalg.norm(side.mismatch) / max(float(np.linalg.norm(target)), 1e-300) for side, target in pairs]
    return float(np.sqrt(np.mean(np.square(shares))))


class _Objective:
    """The outer objective; keeps the reward of the best Γ so far as the start of the next dual."""

    def __init__(self, options: MPMCE, problem: Problem) -> None:
        self.options, self.problem = options, problem
        self._best = -np.inf
        self.start: Floats | None = None

    def solve(self, discounts: Floats, start: Floats | None) -> tuple[DualSolution, Dual]:
        dual = Dual(self.problem, discounts, np.full(self.problem.n_experts, float(self.options.temperature)))
        return minimise_dual(dual, start, self.options.inner_tolerance), dual

    def __call__(self, discounts: Floats) -> float:
        try:
            found, dual = self.solve(discounts, self.start)
        except ValueError:
            return -np.inf
        value = self._value(found, dual)
        if value > self._best:
            self._best, self.start = value, found.point.theta
        return value

    def _value(self, found: DualSolution, dual: Dual) -> float:
        if self.options.gap == "summed":
            gap = found.point.gap
            return found.point.entropy if gap <= self.options.tolerance else -abs(gap)
        mismatch = relative_mismatch(found, dual)
        return found.point.entropy if mismatch <= self.options.tolerance else -float(np.sqrt(mismatch))
