"""How well one reward can match every expert at discounts Γ, and how that changes with Γ.

At the dual's minimiser θ(Γ) (`dual`), with `m_i = f_i − f*_i` the mismatch of expert i and `B_i` its part of the Hessian,

    ∂m_i/∂γ_j = B_i ∂θ/∂γ_j + [i = j] (∂f_i/∂γ − ∂f*_i/∂γ)|_θ,      (Σ_i B_i) ∂θ/∂γ_j = −(∂f_j/∂γ − ∂f*_j/∂γ)|_θ.

At fixed θ the soft values move by `∂V/∂γ = R P_π V`, the policy by `∂π = π (∂Q − ∂V) / λ`, and the visits by
`∂μ = Rᵀ (P_πᵀ μ + γ Σ_a T_aᵀ (μ ∂π_a))`, with `R = (I − γP_π)^{-1}`. The expert's own policy stays: `∂μ* = R*ᵀ P_π*ᵀ μ*`.

The mismatches sum to zero at θ(Γ), so the dual's value is λ times the summed entropy, and the entropy's gradient in Γ is that
of the dual: minus the gradient of the discounted likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multihorizon.checks import Floats
from multihorizon.entropy.discounted_likelihood import discount_gradient
from multihorizon.entropy.dual import FLAT, Dual, DualSolution, Response, minimise_dual
from multihorizon.planning.linear import Resolvent


@dataclass(frozen=True, eq=False)
class Matching:
    """The dual solution at Γ, and each expert's mismatch `(n,d)` with its derivative `(n,d,K)` in the discounts."""

    found: DualSolution
    mismatch: Floats
    derivative: Floats
    entropy_gradient: Floats

    @property
    def entropy(self) -> float:
        """`Σ_i H_i` at the matching policies."""
        return self.found.point.entropy

    @property
    def largest(self) -> float:
        """The largest entry of any expert's mismatch."""
        return self.found.point.largest_mismatch


def match(dual: Dual, tolerance: float, start: Floats | None = None) -> Matching:
    """Minimise the dual and differentiate what it leaves unmatched."""
    found = minimise_dual(dual, start, tolerance)
    responses = found.point.responses
    direct = np.array([_direct(response, policy) for response, policy in zip(responses, dual.policies, strict=True)])
    owner = np.array(dual.problem.owner)
    pulls = np.stack([direct[owner == k].sum(axis=0) for k in range(dual.problem.n_experts)], axis=1)
    hessians = [response.hessian() for response in responses]
    moved = -np.linalg.pinv(np.sum(hessians, axis=0), rcond=FLAT, hermitian=True) @ pulls
    derivative = np.stack([hessian @ moved for hessian in hessians])
    derivative[np.arange(len(responses)), :, owner] += direct
    mismatch = np.array([response.mismatch for response in responses])
    return Matching(found, mismatch, derivative, -discount_gradient(dual, found.point))


def _direct(response: Response, policy: Floats) -> Floats:
    """`∂(f − f*)/∂γ` `(d,)` of one expert at fixed θ."""
    mdp = response.expert.mdp
    P = mdp.under(response.policy)
    values = response.resolvent.solve(P @ response.values)
    q = mdp.expect(response.values + response.discount * values)
    moved = response.policy * (q - values[:, None]) / response.temperature
    inflow = P.T @ response.visits + response.discount * (mdp.stacked.T @ (response.visits[:, None] * moved).T.ravel())
    visits = response.resolvent.solve(inflow, transpose=True)
    counts = visits[:, None] * response.policy + response.visits[:, None] * moved
    change: Floats = response.expert.feature_matrix.T @ (counts - _expert_counts(response, policy)).T.ravel()
    return change


def _expert_counts(response: Response, policy: Floats) -> Floats:
    """`∂μ*(s,a)/∂γ` `(S,A)` of the expert's own policy."""
    mdp = response.expert.mdp
    pi = np.where(mdp.terminal[:, None], 0.0, policy)
    P = mdp.under(pi)
    resolvent = Resolvent(P, response.discount)
    visits = np.where(mdp.terminal, 0.0, resolvent.solve(mdp.initial, transpose=True))
    return resolvent.solve(P.T @ visits, transpose=True)[:, None] * pi
