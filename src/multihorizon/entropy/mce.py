"""Maximum causal entropy IRL at known discounts; the mathematics is in `dual`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multihorizon.checks import as_discount, as_positive, first_few
from multihorizon.entropy.dual import Dual, DualSolution, count_errors, minimise_dual
from multihorizon.evidence import Evidence
from multihorizon.parallel import Progress, silent
from multihorizon.problem import Problem
from multihorizon.solution import Solution, Status
from multihorizon.words import power_of_ten, significant


@dataclass(frozen=True, eq=False, kw_only=True)
class EntropyEvidence(Evidence, solvers=("MCE", "MPML", "MPMCE")):
    """What `MCE`, `MPML` and `MPMCE` say.

    Attributes:
        summed_gap: the paper's duality gap `θᵀ Σ_k (f_k − f*_k)`.
        mismatch: the length of each expert's `f_k − f*_k`.
        entropy: the summed causal entropies of the soft-optimal policies.
        dual_gradient: the largest entry of the dual's gradient.
        entropy_within_reach: the entropy that discounts nearby promise beyond the answer's, where a climb led to it.
        count_errors: of demonstrations, the standard error of each expert's feature counts, as a length: what a mismatch of
            the right answer is expected to be.
    """

    summed_gap: float
    mismatch: list[float]
    entropy: float
    dual_gradient: float
    entropy_within_reach: float | None = None
    count_errors: list[float] | None = None

    def ambiguity(self, solver: str, needs_reward: bool) -> str:
        """Say that the policies do not determine the reward, where it matters."""
        why = f"The reward of {solver} may be one of many that explain the policies: hand in what identify(problem) finds."
        return why if needs_reward else ""


@dataclass(frozen=True)
class MCE:
    """Maximum-causal-entropy IRL at known discount factors: the paper's Eq. 8 and 9 (Ziebart 2010; Zeng et al. 2022).

    Among all policies that match the experts' feature counts it is the one of largest causal entropy; its multipliers θ are the
    reward. Minimises the convex dual `Σ_k ρᵀ V_k(θ) − θᵀ f*_k` by Newton's method. The solution's `residual` is the largest entry
    of the dual's gradient, recomputed at the answer, and `objective` the dual's value, which at the optimum is the entropy.

    Demonstrations count with their frequencies (`Problem.observed_policies`). The error that their number leaves in each expert's
    feature counts is `evidence["count_errors"]`, to be compared with `evidence["mismatch"]`.

    Args:
        discount: one number for all experts, or one for each; it has no default.
        temperature: the entropy weight λ that all experts share.
        tolerance: the largest entry of the gradient at which the iteration stops.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> problem = mh.Problem(d.mdp, d.mce_experts())
        >>> str(mh.solve(problem, MCE(discount=d.mce_discounts)).status)
        'converged'
    """

    discount: float | Sequence[float]
    temperature: float = 1.0
    tolerance: float = 1e-8

    def __post_init__(self) -> None:
        for value in np.atleast_1d(np.asarray(self.discount, dtype=object)):
            as_discount(value)
        as_positive(self.temperature, "temperature")
        as_positive(self.tolerance, "tolerance")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Minimise the dual; nothing in it is random."""
        progress(0.0, "MCE: minimising the dual")
        given = np.atleast_1d(np.asarray(self.discount, dtype=np.float64))
        if given.size not in (1, problem.n_experts):
            raise ValueError(f"discount must be one number or one for each of {problem.n_experts} experts, received {given.size}")
        discounts = np.broadcast_to(given, (problem.n_experts,)).copy()
        temperature = np.full(problem.n_experts, float(self.temperature))
        observed = problem.observed_policies()
        dual = Dual(observed, discounts, temperature)
        found = minimise_dual(dual, tolerance=self.tolerance)
        errors = count_errors(dual, problem)
        reached = f"dual gradient {power_of_ten(found.gradient_norm)} after {found.iterations} Newton steps"
        return Solution(
            solver="MCE",
            status=Status.CONVERGED if found.converged else Status.NOT_CONVERGED,
            message=reached
            + ("" if found.converged else f", short of {self.tolerance:g}: the counts may be out of reach")
            + about_errors(found, errors),
            problem=observed,
            experts=problem.names,
            discounts=discounts,
            reward=found.point.theta,
            objective=found.point.value,
            residual=found.gradient_norm,
            temperature=temperature,
            evidence=entropy_evidence(found, errors),
        )


def about_errors(found: DualSolution, errors: list[float] | None) -> str:
    """The error of feature counts that come from demonstrations beside the mismatch, in words."""
    if errors is None:
        return ""
    pairs = zip(found.point.responses, errors, strict=True)
    each = [
        f"{pair[0].expert.name} {significant(np.linalg.norm(pair[0].mismatch), 2)} ({significant(pair[1], 2)})" for pair in pairs
    ]
    return f"; mismatch of the feature counts, and their standard error in brackets: {first_few(each)}"


def entropy_evidence(
    found: DualSolution, count_errors: list[float] | None = None, within_reach: float | None = None
) -> EntropyEvidence:
    """The summed gap, each expert's mismatch and the entropy at a dual solution."""
    return EntropyEvidence(
        summed_gap=found.point.gap,
        mismatch=[float(np.linalg.norm(response.mismatch)) for response in found.point.responses],
        entropy=found.point.entropy,
        dual_gradient=found.gradient_norm,
        entropy_within_reach=within_reach,
        count_errors=count_errors,
    )
