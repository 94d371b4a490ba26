"""Multi-planning-horizon MCE-IRL (the paper's Algorithm 2): search over Γ, maximum causal entropy inside.

At each Γ the dual of `dual` is minimised, giving θ. What the search then maximises depends on `gap`:

* "summed", the rule the paper prints: with `l = θᵀ Σ_k (f_k − f*_k)`, the entropy `Σ_k H_k` if `l ≤ ε`, else `−|l|`. At the
  dual's optimum the sum of the mismatches is zero, so `l = 0` for every Γ: the rule accepts every Γ, and the entropy drives Γ
  upward.
* "threshold", the rule the paper's discussion describes: the entropy of the Γ at which no entry of any expert's mismatch
  `f_k − f*_k` is larger than the threshold; elsewhere minus the largest entry in units of the threshold.
* "per_expert": with the relative mismatch `m = sqrt(mean_k ‖f_k − f*_k‖² / ‖f*_k‖²)`, the entropy if `m ≤ ε`, else `−√m`. Each
  expert's counts must be matched, which singles out the discounts that explain all of them. The root opens the valley
  around the answer, which is narrow in m, for a Gaussian process; it was the most reliable of −m, −√m and −log m.

A Γ at which the dual could not be minimised is never an answer: its value is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from multihorizon.checks import Floats, Ints, as_count, as_positive
from multihorizon.entropy.dual import Dual, DualSolution, minimise_dual
from multihorizon.entropy.matching import Matching, match
from multihorizon.entropy.mce import mismatch_evidence
from multihorizon.entropy.order import expert_order
from multihorizon.entropy.threshold import NEARBY, Climb, climb, entropy_within_reach, halton_starts, score
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.search import Bayesian, Search, check_search
from multihorizon.solution import Solution, Status, Trace
from multihorizon.tolerances import TINY

GAPS = ("per_expert", "summed", "threshold")

#: The climb asks for this much more of the inner problem, because it compares mismatches that are nearly equal.
CLIMB_PRECISION = 1e-3
#: More entropy than this within reach of an answer means that the climb did not end; a free step brings ten times as much.
REACH = 1e-4


@dataclass(frozen=True)
class MPMCE:
    """Discounts and reward that match every expert's feature counts, found by a search over the discounts.

    The solution's `objective` is the value of the best Γ under the rule above, NaN where the dual could not be minimised. Its
    `residual` is the largest entry of any expert's mismatch for `gap="threshold"`, otherwise the relative mismatch m. Both are
    recomputed at the answer. It is converged if the residual is at most `threshold` or `tolerance`. A search rarely gets m that
    far; `ClosedForm` solves the same equations.

    Args:
        temperature: the entropy weight λ that all experts share.
        gap: "per_expert", "threshold", or "summed" for the rule the paper prints.
        tolerance: ε of "per_expert" and "summed", below which the gap or mismatch counts as zero.
        search: the outer search over Γ; by default `Bayesian(50)`, and for "threshold" a climb along exact gradients.
        inner_tolerance: the largest entry of the dual's gradient at which the inner iteration stops.
        threshold: the largest entry of an expert's mismatch that `gap="threshold"` lets pass.
        starts: number of starts of the climb; more are tried while no discounts pass.
    """

    temperature: float = 1.0
    gap: Literal["per_expert", "summed", "threshold"] = "per_expert"
    tolerance: float = 1e-4
    search: Search | None = None
    inner_tolerance: float = 1e-7
    threshold: float = 1e-3
    starts: int = 8

    def __post_init__(self) -> None:
        as_positive(self.temperature, "temperature")
        if self.search is not None:
            check_search(self.search)
        as_positive(self.tolerance, "tolerance")
        as_positive(self.inner_tolerance, "inner_tolerance")
        as_positive(self.threshold, "threshold")
        as_count(self.starts, "starts")
        if self.gap not in GAPS:
            raise ValueError(f"gap must be one of {', '.join(GAPS)}, received {self.gap!r}")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search, then solve once more at the best Γ."""
        inner = _Inner(self, problem)
        trace = self._search(inner, seed, progress)
        best = trace.best_discounts
        found, dual = inner.solve(best)
        residual = found.point.largest_mismatch if self.gap == "threshold" else relative_mismatch(found, dual)
        allowed = self.threshold if self.gap == "threshold" else self.tolerance
        problems = list(_problems(found, residual, allowed, reach := self._reach(inner, best)))
        what = "largest" if self.gap == "threshold" else "relative"
        message = f"best of {len(trace)} discounts: {what} mismatch {residual:.1e}, summed gap {found.point.gap:.1e}"
        return Solution(
            solver="MPMCE",
            status=Status.NOT_CONVERGED if problems else Status.CONVERGED,
            message="; ".join([message, *problems]),
            experts=problem.names,
            discounts=best,
            reward=found.point.theta,
            objective=inner.value(found, dual),
            residual=residual,
            temperature=np.full(problem.n_experts, float(self.temperature)),
            trace=trace,
            evidence={**mismatch_evidence(found), "entropy_within_reach": reach},
        )

    def _reach(self, inner: _Inner, discounts: Floats) -> float | None:
        """What a climb left undone, NaN where the inner problem was not solved; None where it did not climb."""
        if self.gap != "threshold" or self.search is not None:
            return None
        found = inner.match(discounts, None)
        return np.nan if found is None else entropy_within_reach(found, discounts, self.threshold)

    def _search(self, inner: _Inner, seed: int, progress: Progress) -> Trace:
        """Search with the experts in an order of their own, so that the answer does not depend on how they are listed."""
        places = np.argsort(expert_order(inner.problem))
        if self.gap == "threshold" and self.search is None:
            starts = halton_starts(self.starts, places.size, seed)[:, places]
            return climb(Climb(inner.match, self.threshold), starts, self.starts, progress)
        trace = (self.search or Bayesian(50)).run(_Reordered(inner, places), places.size, seed, progress).trace
        return Trace(trace.discounts[:, places], trace.values, trace.seconds)


def relative_mismatch(found: DualSolution, dual: Dual) -> float:
    """`sqrt(mean_k ‖f_k − f*_k‖² / ‖f*_k‖²)` at a dual solution."""
    pairs = zip(found.point.responses, dual.targets, strict=True)
    shares = [np.linalg.norm(response.mismatch) / max(float(np.linalg.norm(target)), TINY) for response, target in pairs]
    return float(np.sqrt(np.mean(np.square(shares))))


def _problems(found: DualSolution, residual: float, allowed: float, reach: float | None) -> Iterator[str]:
    """Why an answer is none, in words."""
    if not found.converged:
        yield f"the dual stopped at a gradient of {found.gradient_norm:.1e}, so the reward is not reliable"
    if residual > allowed:
        yield f"no discounts tried match every expert within {allowed:g}"
    elif reach is not None and np.isnan(reach):
        yield "whether the climb ended could not be checked"
    elif reach is not None and reach > REACH:
        yield f"the climb did not end: discounts within {NEARBY:g} promise {reach:.1e} more entropy"


class _Inner:
    """The problem at fixed Γ, and the value its rule gives that Γ."""

    def __init__(self, options: MPMCE, problem: Problem) -> None:
        self.options, self.problem = options, problem

    def dual(self, discounts: Floats) -> Dual:
        return Dual(self.problem, discounts, np.full(self.problem.n_experts, float(self.options.temperature)))

    def solve(self, discounts: Floats) -> tuple[DualSolution, Dual]:
        dual = self.dual(discounts)
        return minimise_dual(dual, tolerance=self.options.inner_tolerance), dual

    def match(self, discounts: Floats, start: Floats | None) -> Matching | None:
        """The matching at Γ, or None where the dual has no minimum that was reached."""
        try:
            found = match(self.dual(discounts), CLIMB_PRECISION * self.options.inner_tolerance, start)
        except (ValueError, np.linalg.LinAlgError):
            return None
        return found if found.found.gradient_norm <= self.options.inner_tolerance else None

    def __call__(self, discounts: Floats) -> float:
        try:
            found, dual = self.solve(discounts)
        except ValueError:
            return np.nan
        return self.value(found, dual)

    def value(self, found: DualSolution, dual: Dual) -> float:
        """What the rule gives Γ; NaN where the dual was not minimised."""
        if not found.converged:
            return np.nan
        entropy = found.point.entropy
        if self.options.gap == "summed":
            return entropy if found.point.gap <= self.options.tolerance else -abs(found.point.gap)
        if self.options.gap == "threshold":
            return score(entropy, found.point.largest_mismatch, self.options.threshold)
        mismatch = relative_mismatch(found, dual)
        return entropy if mismatch <= self.options.tolerance else -float(np.sqrt(mismatch))


@dataclass(frozen=True)
class _Reordered:
    """The objective with its discounts in another order; a class, because searches send it to other processes."""

    inner: _Inner
    places: Ints

    def __call__(self, discounts: Floats) -> float:
        return self.inner(discounts[self.places])
