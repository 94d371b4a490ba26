"""The paper's theory as small checks that can be run: each returns the numbers a statement is about.

* Theorem 2, the chain `G* ≥ H* ≥ −L*` of the dual, the primal and the discounted likelihood: `duality_chain`.
* Proposition 1, the expert is no critical point of the discounted likelihood, but is one of the plain likelihood:
  `likelihood_slopes`.
* The summed duality gap of Algorithm 2 vanishes at every Γ, the mismatch per expert does not: `gap_and_mismatch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from multihorizon.checks import Floats
from multihorizon.entropy.discounted_likelihood import discount_gradient
from multihorizon.entropy.dual import Dual, minimise_dual
from multihorizon.mdp import MDP
from multihorizon.planning.soft_plan import soft_plan
from multihorizon.problem import Problem

#: The largest entry of the dual's gradient at which its minimum counts as reached.
GRADIENT = 1e-6
#: How far to either side of a discount slopes are differenced.
DIFFERENCE = 1e-5


@dataclass(frozen=True)
class DualityChain:
    """`dual` ≥ G*, `primal` = H* over the feasible discounts given, `likelihood` ≥ −L*; the theorem says dual ≥ primal ≥ −L*."""

    dual: float
    primal: float
    likelihood: float


def duality_chain(problem: Problem, feasible: Sequence[float], axis: Sequence[float], temperature: float = 1.0) -> DualityChain:
    """The three values of Theorem 2, with discounts restricted to `axis` and the feasible point.

    With `f(θ, Γ) = Σ_k ρᵀV_k − θᵀf*_k`: H* is the experts' entropy at their own discounts (`feasible`), the only feasible ones
    of an identified problem; `G* = min_θ max_Γ f` separates over experts for fixed θ, is convex in θ, and is minimised by
    smoothing the maxima; `−L* = min_Γ min_θ f`. Every value returned is attained by some θ and Γ. The true G* and −L* may be
    smaller than returned, by what the optimisation missed.
    """
    lam = np.full(problem.n_experts, temperature)
    own = np.asarray(feasible, dtype=np.float64)
    levels = [np.unique([*axis, gamma]) for gamma in own]
    primal_dual = Dual(problem, own, lam)
    matched = minimise_dual(primal_dual).point
    grids = [[_single(problem, k, gamma, temperature) for gamma in levels[k]] for k in range(problem.n_experts)]
    theta = matched.theta
    for sharpness in (3.0, 30.0, 300.0):
        theta = minimize(_smoothed, theta, (grids, sharpness), jac=True, method="L-BFGS-B").x
    candidates = [sum(max(_value(dual, t)[0] for dual in row) for row in grids) for t in (matched.theta, theta)]
    lowest = minimise_dual(Dual(problem, np.array([level.min() for level in levels]), lam)).point.value
    return DualityChain(min(candidates), temperature * primal_dual.expert_entropy, min(lowest, matched.value))


def _single(problem: Problem, k: int, gamma: float, temperature: float) -> Dual:
    """The part of the dual that belongs to expert k, in all of their tasks, at one discount."""
    part = problem.with_experts(e for e, owner in zip(problem.experts, problem.owner, strict=True) if owner == k)
    return Dual(part, np.array([gamma]), np.array([temperature]))


def _value(dual: Dual, theta: Floats) -> tuple[float, Floats]:
    point = dual.at(theta)
    if point is None:
        return np.inf, np.zeros_like(theta)
    return point.value, point.gradient


def _smoothed(theta: Floats, grids: list[list[Dual]], sharpness: float) -> tuple[float, Floats]:
    """`Σ_k (1/s) log Σ_γ exp(s f_k(θ,γ))` and its gradient."""
    total, gradient = 0.0, np.zeros_like(theta)
    for row in grids:
        values, slopes = zip(*(_value(dual, theta) for dual in row), strict=True)
        peak = max(values)
        weights = np.exp(sharpness * (np.array(values) - peak))
        total += peak + float(np.log(weights.sum())) / sharpness
        gradient += (weights / weights.sum()) @ np.array(slopes)
    return total, gradient


@dataclass(frozen=True)
class LikelihoodSlopes:
    """Derivatives in logit γ at the expert, per expert `(K,)`, and what the discounted one should be: `−∂H/∂ logit γ`."""

    discounted: Floats
    plain: Floats
    entropy: Floats


def likelihood_slopes(mdp: MDP, reward: Any, discounts: Sequence[float], temperature: float = 1.0) -> LikelihoodSlopes:
    """Derivatives of the discounted and of the plain likelihood in logit γ, at the reward and discounts of the experts.

    The discounted likelihood is exact (`discounted_likelihood`); the plain one, `Σ_s Σ_a π*(a|s) log π_γ(a|s)`, and the entropy
    are differentiated numerically.
    """
    gammas = np.asarray(discounts, dtype=np.float64)
    experts = [soft_plan(mdp, reward, gamma, temperature).policy for gamma in gammas]
    problem = Problem(mdp, experts)
    point = Dual(problem, gammas, np.full(gammas.size, temperature))
    at = point.at(np.asarray(reward, dtype=np.float64))
    assert at is not None
    chain = gammas * (1 - gammas)
    plain = [
        _slope(lambda g, p=p: _plain(mdp, reward, g, temperature, p), gamma) for gamma, p in zip(gammas, experts, strict=True)
    ]
    entropy = [
        _slope(lambda g, p=p: Dual(Problem(mdp, [p]), np.array([g]), np.ones(1)).expert_entropy, gamma)
        for gamma, p in zip(gammas, experts, strict=True)
    ]
    return LikelihoodSlopes(chain * discount_gradient(point, at), chain * np.array(plain), chain * np.array(entropy))


def _plain(mdp: MDP, reward: Any, gamma: float, temperature: float, policy: Floats) -> float:
    logs = soft_plan(mdp, reward, gamma, temperature).log_policy
    live = mdp.live
    return float((policy * np.where(live, logs, 0.0))[live].sum())


def _slope(function: Any, gamma: float) -> float:
    low, high = max(gamma - DIFFERENCE, 0.0), min(gamma + DIFFERENCE, 1.0)
    return float((function(high) - function(low)) / (high - low))


@dataclass(frozen=True)
class GapAndMismatch:
    """At the dual's optimum for given discounts: the paper's gap `θᵀ Σ_k (f_k − f*_k)` and each `‖f_k − f*_k‖`."""

    gap: float
    mismatch: Floats


def gap_and_mismatch(problem: Problem, discounts: Sequence[float], temperature: float = 1.0) -> GapAndMismatch:
    """The summed gap and the mismatch per expert at given discounts; NaN where the dual's minimum was not reached."""
    gammas = np.asarray(discounts, dtype=np.float64)
    found = minimise_dual(Dual(problem, gammas, np.full(problem.n_experts, temperature)))
    if found.gradient_norm > GRADIENT:
        return GapAndMismatch(np.nan, np.full(len(problem.experts), np.nan))
    return GapAndMismatch(found.point.gap, np.array([np.linalg.norm(response.mismatch) for response in found.point.responses]))
