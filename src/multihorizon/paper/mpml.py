"""Multi-planning-horizon ML-IRL, the paper's baseline: maximise the discounted likelihood over discounts and reward.

For fixed Γ the likelihood is concave in θ and solved by Newton's method (`entropy.mce`); its maximum over θ is then maximised
over Γ, by L-BFGS-B with the exact gradient of `discounted_likelihood` from several starts, or by any outer search. The maximiser
is not the expert: L weighs decisions by γ^t, all of its terms are negative, and smaller discounts drop some of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from multihorizon.checks import ENDLESS_DISCOUNT, Floats, Ints, as_count, as_positive
from multihorizon.driver import EvaluationLog, Search, check_search
from multihorizon.entropy.mce import (
    Dual,
    DualPoint,
    DualSolution,
    about_errors,
    count_errors,
    discount_gradient,
    entropy_evidence,
    expert_order,
    minimise_dual,
)
from multihorizon.numerics.distributions import halton
from multihorizon.parallel import Progress, Run, silent
from multihorizon.problem import Problem
from multihorizon.solution import Solution, Status, Trace
from multihorizon.words import power_of_ten, significant


@dataclass(frozen=True)
class MPML:
    """The discounted-likelihood baseline.

    The solution's `objective` is `L(θ, Γ)`, its `residual` the largest entry of the gradient of L in θ and, for discount factors
    inside (0,1), in Γ, recomputed at the answer.

    This is the paper's Eq. 11.

    Args:
        temperature: the entropy weight λ that all experts share.
        search: an outer search over Γ; None: ascent along the exact gradient.
        starts: number of starts of the ascent.
        tolerance: the largest entry of the gradient at which the answer counts as converged.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> problem = mh.Problem(d.mdp, d.soft_experts())
        >>> mh.solve(problem, MPML(starts=1)).discounts.shape
        (3,)
    """

    temperature: float = 1.0
    search: Search | None = None
    starts: int = 4
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        as_positive(self.temperature, "temperature")
        if self.search is not None:
            check_search(self.search)
        as_positive(self.tolerance, "tolerance")
        as_count(self.starts, "starts")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Maximise over Γ and solve once more at the best one."""
        logged = problem
        problem = problem.observed_policies()
        profile = _Profile(problem, float(self.temperature), self.tolerance, np.argsort(expert_order(problem)))
        if self.search is None:
            trace = _climb(profile, problem.n_experts, self.starts, Run(seed, progress=progress))
        else:
            trace = self.search.run(profile, problem.n_experts, seed, progress).trace
        trace = Trace(trace.discounts[:, profile.places], trace.values, trace.seconds)
        best = trace.best_discounts
        minimum, dual = profile.solve(best)
        gradient = discount_gradient(dual, minimum.point)
        errors = count_errors(dual, logged)
        # At a bound only the part of the gradient that points inward counts.
        low, high = np.where(best <= 0, 0.0, -np.inf), np.where(best >= ENDLESS_DISCOUNT, 0.0, np.inf)
        residual = max(minimum.gradient_norm, float(np.abs(np.clip(gradient, low, high)).max()))
        return Solution(
            solver="MPML",
            status=Status.CONVERGED if residual <= self.tolerance else Status.NOT_CONVERGED,
            message=f"discounted log-likelihood {significant(trace.best[-1], 6)}, gradient "
            f"{power_of_ten(residual)}{about_errors(minimum, errors)}",
            problem=problem,
            experts=problem.names,
            discounts=best,
            reward=minimum.point.theta,
            objective=discounted_likelihood(dual, minimum.point),
            residual=residual,
            temperature=np.full(problem.n_experts, float(self.temperature)),
            trace=trace,
            evidence=entropy_evidence(minimum, errors),
        )


def discounted_likelihood(dual: Dual, point: DualPoint) -> float:
    """Return `L(θ, Γ)` at a point of the dual."""
    total = 0.0
    for response, target, paid in zip(point.responses, dual.targets, dual.paid, strict=True):
        soft = float(response.expert.mdp.initial @ response.values)
        total += (float(point.theta @ target) + paid - soft) / response.temperature
    return total


@dataclass(frozen=True)
class _Profile:
    """`max_θ L(θ, Γ)` as a function of Γ, whose discounts stand in the order of `expert_order`."""

    problem: Problem
    temperature: float
    tolerance: float
    places: Ints

    def solve(self, discounts: Floats) -> tuple[DualSolution, Dual]:
        """Return the maximum over θ at discounts in the problem's own order."""
        dual = Dual(self.problem, discounts, np.full(self.problem.n_experts, self.temperature))
        return minimise_dual(dual, tolerance=1e-9), dual

    def at(self, discounts: Floats) -> tuple[float, Floats]:
        """Return the value and its gradient; NaN and zero where the maximum over θ does not exist or was not reached."""
        try:
            minimum, dual = self.solve(discounts[self.places])
        except ValueError:
            return np.nan, np.zeros_like(discounts)
        if minimum.gradient_norm > self.tolerance:
            return np.nan, np.zeros_like(discounts)
        gradient = discount_gradient(dual, minimum.point)[np.argsort(self.places)]
        return discounted_likelihood(dual, minimum.point), gradient

    def __call__(self, discounts: Floats) -> float:
        return self.at(discounts)[0]


def _climb(profile: _Profile, n_experts: int, starts: int, run: Run) -> Trace:
    log = EvaluationLog()

    def negative(discounts: Floats) -> tuple[float, Floats]:
        value, gradient = profile.at(discounts)
        log.add(discounts.copy(), value)
        return np.inf if np.isnan(value) else -value, -gradient

    for number, start in enumerate(0.9 * halton(n_experts, starts, np.random.default_rng(run.seed))):
        minimize(
            negative, start, jac=True, method="L-BFGS-B", bounds=[(0.0, ENDLESS_DISCOUNT)] * n_experts, options={"maxiter": 50}
        )
        run.progress((number + 1) / starts, f"MPML: best {significant(log.best, 6)}")
    return log.trace()
