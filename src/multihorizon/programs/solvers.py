"""The LP solvers: `LPIRL` (one known discount), `NaiveLP` (the paper's failing baseline) and `MPLP` (the paper's method).

    LPIRL     max_θ        Σ_s   min_{a ∉ π(s)}   margin(s, a)    − λ‖θ‖₁         Ng and Russell; the paper's Eq. 3
    NaiveLP   max_Γ max_θ  Σ_k Σ_s min_{a ∉ π_k(s)} margin(s, a, k) − λ‖θ‖₁       Eq. 4
    MPLP      max_Γ max_θ  min_{(s,a) ∈ Ω_k(Γ), k} margin(s, a, k)  − λ‖θ‖₁       Eq. 5–6, Theorem 1, Algorithm 1

all subject to `margin ≥ 0` and `|θ| ≤ r_max`; `inner.py` solves them for a fixed Γ. Among the optima the reward with the least
‖θ‖₁ is returned.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from multihorizon.checks import as_discount, as_positive
from multihorizon.parallel import as_jobs
from multihorizon.problem import Problem
from multihorizon.programs.answer import answer
from multihorizon.programs.certificate import Certificate, bound_optimum
from multihorizon.programs.inner import Evaluation, Inner
from multihorizon.programs.margins import build_margins
from multihorizon.programs.model import Objective
from multihorizon.programs.sequential import SequentialLP
from multihorizon.progress import Progress, silent
from multihorizon.search import Search, SearchResult, check_search
from multihorizon.solution import Solution, Status


@dataclass(frozen=True)
class LPIRL:
    """The reward that maximises the sum over states of the margin of the expert's action, at a known `discount`.

    `l1` is the weight λ of ‖θ‖₁, `reward_bound` the bound r_max. Several experts are taken to share the discount.
    `Solution.residual` is the larger of the worst violated row and the difference between the program's objective and the one
    recomputed by policy evaluation.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.lp_experts()[:1]), LPIRL(discount=0.3, reward_bound=10))
        >>> s.status.value, s.evidence["reproduced"]
        ('optimal', {'0': True})
    """

    discount: float
    l1: float = 0.0
    reward_bound: float = 1.0

    def __post_init__(self) -> None:
        as_discount(self.discount)
        _check_l1(self.l1)
        _check_bound(self.reward_bound)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """One linear program and a second one for the least norm; nothing is random."""
        inner = _inner(self, problem, "sum")
        point = _least(inner, inner.at(np.full(problem.n_experts, float(self.discount))))
        progress(1.0, f"LP-IRL: {point.objective:.6g}")
        return answer("LPIRL", inner, point, None, Status.OPTIMAL)


@dataclass(frozen=True)
class NaiveLP:
    """The sum of margins over experts and states, with discounts found by `search`; options as in `MPLP`.

    A baseline that fails: nothing in it requires the experts to differ under the answer. On the toy domain two of them end at
    discount 1, where no reward tells them apart, and the reward is on the goal alone. The status says so and names the pair.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.toy()
        >>> s = mh.solve(mh.Problem(d.mdp, d.lp_experts()), NaiveLP(reward_bound=10))
        >>> s.status.value, s.discounts.round(3).tolist()
        ('indistinguishable', [0.0, 1.0, 1.0])
    """

    l1: float = 0.0
    reward_bound: float = 1.0
    search: Search = field(default_factory=SequentialLP)

    def __post_init__(self) -> None:
        _check_l1(self.l1)
        _check_bound(self.reward_bound)
        check_search(self.search)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search the discounts; `seed` fixes the search's starts."""
        inner = _inner(self, problem, "sum")
        point, found = _search(inner, self.search, seed, progress)
        return answer("NaiveLP", inner, point, found, Status.CONVERGED)


@dataclass(frozen=True)
class MPLP:
    """The reward and discounts that maximise the worst margin over Ω.

    Ω(Γ) are the margins that can be positive at all. A Γ under which some pair of experts cannot be told apart is infeasible.
    g*(Γ) is continuous where Ω does not change; where rows leave Ω the minimum is over fewer rows, and g* may jump up on a thin
    set of Γ, without a slope that leads there. The search climbs where g* is continuous.

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
        _check_l1(self.l1)
        _check_bound(self.reward_bound)
        check_search(self.search)
        if self.certify is not None:
            as_positive(self.certify, "certify")
        as_positive(self.certify_seconds, "certify_seconds")
        as_jobs(self.jobs)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Search the discounts, then prove the gap if asked to."""
        inner = _inner(self, problem, "worst")
        point, found = _search(inner, self.search, seed, progress)
        solution = answer("MPLP", inner, point, found, Status.CONVERGED)
        if self.certify is None:
            return solution
        proof = bound_optimum(inner, point, self.certify, self.certify_seconds, self.jobs, progress)
        return _certified(solution, proof)


def _inner(solver: LPIRL | NaiveLP | MPLP, problem: Problem, objective: Objective) -> Inner:
    return Inner(build_margins(problem), objective, float(solver.l1), float(solver.reward_bound))


def _search(inner: Inner, search: Search, seed: int, progress: Progress) -> tuple[Evaluation, SearchResult]:
    """The best point of a search, with the least reward among its optima."""
    found = search.run(inner, inner.margins.n_experts, seed, progress)
    return _least(inner, inner.at(found.best)), found


def _least(inner: Inner, point: Evaluation) -> Evaluation:
    return inner.least(point) if point.has_reward else point


def _certified(solution: Solution, proof: Certificate) -> Solution:
    status = Status.OPTIMAL if proof.proved and solution.status == Status.CONVERGED else solution.status
    evidence = {**solution.evidence, "certificate": proof.as_evidence()}
    return replace(solution, status=status, message=f"{solution.message}; {proof.message}", evidence=evidence)


def _check_l1(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= float(value) < np.inf:
        raise ValueError(f"l1 must be a number of at least 0, received {value!r}")


def _check_bound(value: Any) -> None:
    """The bound only scales the answer, and far from 1 the tolerances of the programs lose their meaning."""
    bound = as_positive(value, "reward_bound")
    if not 1e-4 <= bound <= 1e6:
        raise ValueError(f"reward_bound must be from 1e-4 to 1e6, received {bound:g}: solve at 1 and scale the reward")
