"""MPLP-IRL: one reward and each expert's discount by linear programming (the paper's Eq. 5–6, Theorem 1, Algorithm 1).

    max_Γ max_θ  min_{(s,a) ∈ Ω_k(Γ), k} margin(s, a, k) − λ‖θ‖₁     s.t.   margin ≥ 0,  |θ| ≤ r_max

Ω(Γ) are the margins that can be positive at all (`inner.py`). A Γ under which some pair of experts cannot be told apart is
infeasible. g*(Γ) is continuous where Ω does not change; where rows leave Ω the minimum is over fewer rows, and g* may jump up on
a thin set of Γ that no neighbour announces. The search climbs the part of g* that neighbours share.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from multihorizon.checks import as_positive
from multihorizon.problem import Problem
from multihorizon.programs.certificate import Certificate, bound_optimum
from multihorizon.programs.inner import Inner
from multihorizon.programs.lp_answer import answer, run_search
from multihorizon.programs.margins import build_margins
from multihorizon.programs.options import check_bound, check_l1
from multihorizon.programs.sequential import SequentialLP
from multihorizon.progress import Progress, silent
from multihorizon.search import Search, check_search
from multihorizon.solution import Solution, Status


@dataclass(frozen=True)
class MPLP:
    """The reward and discounts that maximise the worst margin over Ω.

    Args:
        l1: weight λ of ‖θ‖₁; above some weight the best reward is zero, which the status reports.
        reward_bound: bound r_max on every reward; without l1 the answer scales with it.
        search: over Γ; `SequentialLP()`, `Grid(step)` or `Bayesian()`.
        certify: if given, prove by branch and bound that the optimum exceeds the answer by at most this share of it.
        certify_seconds: when to stop the proof and report the bound reached.
        jobs: processes of the proof (−1: all cores).

    `Solution.residual` is the larger of the worst violated row and the difference between the program's objective and the one
    recomputed by policy evaluation. `Solution.evidence` holds, by expert, the interval of discounts in which the policy is
    optimal under the learned reward, whether it is reproduced and the size of Ω; the order of horizons; the starts of the search.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.lp_experts()), MPLP(reward_bound=10))
        >>> round(s.objective, 4), s.discounts.round(4).tolist()
        (1.5791, [0.0, 0.3294, 1.0])
    """

    l1: float = 0.0
    reward_bound: float = 1.0
    search: Search = field(default_factory=SequentialLP)
    certify: float | None = None
    certify_seconds: float = 120.0
    jobs: int = -1

    def __post_init__(self) -> None:
        check_l1(self.l1)
        check_bound(self.reward_bound)
        check_search(self.search)
        if self.certify is not None:
            as_positive(self.certify, "certify")
        as_positive(self.certify_seconds, "certify_seconds")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search the discounts, then prove the gap if asked to."""
        inner = Inner(build_margins(problem), "worst", float(self.l1), float(self.reward_bound))
        point, trace, said = run_search(inner, self.search, seed, progress)
        solution = answer("MPLP", inner, point, trace, said, Status.CONVERGED)
        if self.certify is None:
            return solution
        proof = bound_optimum(inner, point, self.certify, self.certify_seconds, self.jobs, progress)
        return _certified(solution, proof)


def _certified(solution: Solution, proof: Certificate) -> Solution:
    status = Status.OPTIMAL if proof.proved and solution.status == Status.CONVERGED else solution.status
    evidence = {**solution.evidence, "certificate": proof.as_evidence()}
    return replace(solution, status=status, message=f"{solution.message}; {proof.message}", evidence=evidence)
