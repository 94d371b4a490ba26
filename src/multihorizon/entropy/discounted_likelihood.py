"""The discounted likelihood of the paper's MPML-IRL, and its exact gradient in the discounts.

    L(θ, Γ) = Σ_i Σ μ*_i(s,a) log π_{θ,γ}(a|s) = Σ_i (θᵀ f*_i − ρᵀ V_i(θ)) / λ,      μ*_i the expert's discounted visits at γ,

so that for fixed Γ its maximiser in θ is the dual's minimiser (`dual`). The weights μ* depend on γ, which is why L is no
likelihood of the decisions. With `R = (I − γP_π)^{-1}` for the policy planned from θ and `R*` for the expert's,

    ∂(ρᵀV)/∂γ = ρᵀ R P_π V,      ∂(θᵀf*)/∂γ = ρᵀ R* P_π* R* r_π*,      r_π* = Σ_a π*(a|·) (F θ)(·,a).
"""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Floats
from multihorizon.entropy.dual import Dual, DualPoint
from multihorizon.planning.linear import Resolvent


def discounted_likelihood(dual: Dual, point: DualPoint) -> float:
    """`L(θ, Γ)` at a point of the dual."""
    total = 0.0
    for response, target, paid in zip(point.responses, dual.targets, dual.paid, strict=True):
        soft = float(response.expert.mdp.initial @ response.values)
        total += (float(point.theta @ target) + paid - soft) / response.temperature
    return total


def discount_gradient(dual: Dual, point: DualPoint) -> Floats:
    """`∂L/∂γ_k` `(K,)` at fixed θ; at the maximiser in θ also the gradient of `max_θ L`."""
    gradient = np.zeros(dual.problem.n_experts)
    for response, owner, policy in zip(point.responses, dual.problem.owner, dual.policies, strict=True):
        mdp = response.expert.mdp
        soft = float(response.visits @ (mdp.under(response.policy) @ response.values))
        pi = np.where(mdp.terminal[:, None], 0.0, policy)
        matrix = mdp.under(pi)
        resolvent = Resolvent(matrix, response.discount)
        worth = resolvent.solve((pi * response.expert.expected_reward(point.theta)).sum(axis=1))
        visits = resolvent.solve(mdp.initial, transpose=True)
        gradient[owner] += (float(visits @ (matrix @ worth)) - soft) / response.temperature
    return gradient
