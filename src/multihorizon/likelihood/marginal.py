"""The likelihood of many persons whose discounts and temperatures are drawn from one population.

Person i has `η_i = (logit γ_i, log λ_i) ~ N(μ_i, Σ)`, `μ_i = (X_i b, X_i c)`, and all share the reward θ. Given θ persons are
independent, and what was seen of person i has the probability

    p_i = ∫ p(decisions_i | θ, η) N(η; μ_i, Σ) dη ≈ Σ_q w_iq p(decisions_i | θ, η_iq) N(η_iq; μ_i, Σ),

by Gauss–Hermite quadrature with nodes `η_iq = m_i + C_i z_q` that are adapted to each person: m_i and `C_i C_iᵀ` are the mean and
covariance of η_i given the decisions (Naylor and Smith, 1982). At fixed nodes the sum is a smooth function of `ψ = (θ, b, c, L)`,
`Σ = L Lᵀ`, with an exact gradient. With P_iq the share of node q in p_i, `r_iq = η_iq − μ_i` and S_i = Σ_q P_iq r rᵀ, it is

    Σ_iq P_iq ∇_θ log p(decisions_i | θ, η_iq),    Σ_i X_i ⊗ Σ^{-1} Σ_q P_iq r_iq,    ½ Σ_i (Σ^{-1} S_i Σ^{-1} − Σ^{-1}) in Σ.

If no state can go on forever, `γ = 1/(1+exp(−η))`; elsewhere it is multiplied by `ENDLESS_DISCOUNT`.

*Scale.* Where nothing sets the scale of the reward, the mean of `X_i c` over persons is held at 0, as the mean log-temperature
is in maximum likelihood.

*Weak priors.* Where every person of a group may as well have γ = 1, no maximum exists: logit γ beyond ±5 all choose alike. So the
term `−½ Σ_i (X_i b)²/(n s²)`, s = `WIDEST`, is added: it weighs as much as one person at logit 0 whose logit is known to ±s, and
moves effects that the decisions determine by a hundredth of their standard errors.

*Spread.* What is maximised is the log-likelihood plus `(p/2) log det Σ − p log det(I + Σ/s²)`, p the number of terms. Where
persons are known well the first term is the usual correction for the p means that were estimated (sums of squares are divided by
n − p, not by n). Where they are not, it keeps Σ from collapsing to a singular matrix that the data cannot tell from a regular one
(Chung and others, 2013). The second term keeps Σ from running away for the same reason as above.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg as la
from scipy.special import expit, logsumexp

from multihorizon.checks import Floats
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.persons import next_values, reward_pull_back

#: Log-temperatures of nodes stay this near to 0: beyond it choices are certain or random to the last digit.
LOG_TEMPERATURE_LIMIT = 20.0
#: s, the size of a logit, and of a standard deviation between persons, that weak priors allow for.
WIDEST = 5.0


@dataclass(frozen=True, eq=False)
class Nodes:
    """Where each person's integral is evaluated: places `(n,Q,2)` and the logarithms of their weights `(n,Q)`."""

    places: Floats
    log_weights: Floats


def standard_nodes(count: int) -> tuple[Floats, Floats]:
    """Places `(Q,2)` and weights `(Q,)` for the standard normal distribution: `count` nodes for logit γ, half as many for log λ.

    Given γ, log λ is close to normal, and few nodes will do. Logit γ need not be: it may be anything above some value.
    """
    (z, w), (y, v) = (np.polynomial.hermite_e.hermegauss(n) for n in (count, max(3, count // 2 | 1)))
    return np.array([(a, b) for a in z for b in y]), np.outer(w, v).ravel() / (2 * np.pi)


def adapted_nodes(centre: Floats, covariance: Floats, count: int) -> Nodes:
    """Gauss–Hermite nodes for integrands like `N(centre, covariance)`, `(n,2)` and `(n,2,2)`."""
    grid, weights = standard_nodes(count)
    log_w = np.log(2 * np.pi * weights) + 0.5 * (grid**2).sum(axis=1)
    root = np.linalg.cholesky(covariance)
    places = centre[:, None, :] + np.einsum("nij,qj->nqi", root, grid)
    return Nodes(places, log_w + np.log(root[:, 0, 0] * root[:, 1, 1])[:, None])


@dataclass(frozen=True, eq=False)
class Parameters:
    """ψ taken apart: θ `(d,)`, effects `(p,2)` on logit γ and log λ, and L `(2,2)`."""

    theta: Floats
    effects: Floats
    root: Floats

    @property
    def covariance(self) -> Floats:
        """Σ `(2,2)`."""
        return self.root @ self.root.T


class Layout:
    """Where θ, b, c and L stand in ψ. Of θ only what is free is in it, of L the entries log L₁₁, L₂₁ and log L₂₂."""

    def __init__(self, model: Likelihood, design: Floats) -> None:
        self.model, self.design = model, design
        d, p = model.n_reward, design.shape[1]
        self.free = np.flatnonzero(~model.fixed[:d])
        mean = design.mean(axis=0, keepdims=True)
        self.heat_basis: Floats = la.null_space(mean) if model.scale_is_free else np.eye(p)
        sizes = np.cumsum([self.free.size, p, self.heat_basis.shape[1], 3])
        self.reward, self.discount, self.heat, self.spread = (
            slice(int(a), int(b)) for a, b in zip([0, *sizes[:-1]], sizes, strict=True)
        )
        self.size = int(sizes[-1])
        self.mean_penalty: Floats = design.T @ design / (len(design) * WIDEST**2)

    def unpack(self, psi: Floats) -> Parameters:
        """The parts of ψ."""
        theta = np.where(self.model.fixed[: self.model.n_reward], self.model.known[: self.model.n_reward], 0.0)
        theta[self.free] = psi[self.reward]
        effects = np.stack([psi[self.discount], self.heat_basis @ psi[self.heat]], axis=1)
        a, c, e = psi[self.spread]
        return Parameters(theta, effects, np.array([[np.exp(a), 0.0], [c, np.exp(e)]]))

    def pack(self, theta: Floats, centre: Floats, deviations: Floats) -> Floats:
        """ψ of a reward, one centre `(2,)` for everyone, and standard deviations `(2,)`."""
        everyone = np.linalg.lstsq(self.design, np.ones(len(self.design)))[0]
        heat = self.heat_basis.T @ everyone * centre[1]
        return np.concatenate([theta[self.free], everyone * centre[0], heat, [np.log(deviations[0]), 0.0, np.log(deviations[1])]])

    @cached_property
    def linear(self) -> Floats:
        """The derivative `(n,2,size)` of the means μ in ψ."""
        found = np.zeros((len(self.design), 2, self.size))
        found[:, 0, self.discount] = self.design
        found[:, 1, self.heat] = self.design @ self.heat_basis
        return found


@dataclass(frozen=True, eq=False)
class Value:
    """The marginal likelihood at one ψ: what is maximised, its gradient, each person's log-likelihood, and shares P `(n,Q)`."""

    objective: float
    gradient: Floats
    persons: Floats
    shares: Floats


class Marginal:
    """The marginal likelihood at fixed nodes. What depends on θ is kept for the θ that was asked for last."""

    def __init__(self, layout: Layout, nodes: Nodes, largest: float) -> None:
        self.layout, self.nodes, self.largest = layout, nodes, largest
        self._theta: Floats | None = None
        self._choices: tuple[Floats, Floats] | None = None

    def at(self, psi: Floats) -> Value | None:
        """The value at ψ; None where soft values are infinite."""
        told = self.layout.unpack(psi)
        choices = self._at_nodes(told.theta)
        if choices is None:
            return None
        log, scores = choices
        model, design = self.layout.model, self.layout.design
        inverse: Floats = np.linalg.inv(told.covariance).astype(np.float64, copy=False)
        gaps = self.nodes.places - (design @ told.effects)[:, None, :]
        log_prior = -0.5 * np.einsum("nqi,ij,nqj->nq", gaps, inverse, gaps) - np.log(np.diag(told.root)).sum()
        joint = log + log_prior - np.log(2 * np.pi) + self.nodes.log_weights
        persons = logsumexp(joint, axis=1)
        shares = np.exp(joint - persons[:, None])
        mean = np.einsum("nq,nqi->ni", shares, gaps)
        second = np.einsum("nq,nqi,nqj->ij", shares, gaps, gaps)
        gradient = np.zeros(self.layout.size)
        ridge, free = model.ridge, self.layout.free
        gradient[self.layout.reward] = np.einsum("nq,nqd->d", shares, scores) - (ridge * told.theta)[free]
        pulled = design.T @ mean @ inverse
        gradient[self.layout.discount] = pulled[:, 0] - self.layout.mean_penalty @ told.effects[:, 0]
        gradient[self.layout.heat] = self.layout.heat_basis.T @ pulled[:, 1]
        gradient[self.layout.spread] = self._spread_gradient(told, inverse, second)
        held = 0.5 * float(ridge @ told.theta**2 + told.effects[:, 0] @ self.layout.mean_penalty @ told.effects[:, 0])
        objective = float(persons.sum()) - held + design.shape[1] * _spread_penalty(told)
        return Value(objective, gradient, persons, shares)

    def _spread_gradient(self, told: Parameters, inverse: Floats, second: Floats) -> Floats:
        n, p = self.layout.design.shape
        held = 2 * p * np.linalg.inv(WIDEST**2 * np.eye(2) + told.covariance)
        in_root = (inverse @ second @ inverse - n * inverse - held) @ told.root
        return np.array([in_root[0, 0] * told.root[0, 0] + p, in_root[1, 0], in_root[1, 1] * told.root[1, 1] + p])

    def moments(self, shares: Floats) -> tuple[Floats, Floats]:
        """Mean `(n,2)` and covariance `(n,2,2)` of each person's η given the decisions."""
        mean = np.einsum("nq,nqi->ni", shares, self.nodes.places)
        gaps = self.nodes.places - mean[:, None, :]
        return mean, np.einsum("nq,nqi,nqj->nij", shares, gaps, gaps)

    def mean_slopes(self, psi: Floats, shares: Floats) -> Floats:
        """The derivative `(n,2,size)` of each person's mean in ψ: `Cov(η, score of ψ)` given the decisions."""
        told, layout = self.layout.unpack(psi), self.layout
        mean, within = self.moments(shares)
        inverse = np.linalg.inv(told.covariance)
        slopes: Floats = within @ inverse @ layout.linear
        gaps = self.nodes.places - mean[:, None, :]
        away = (self.nodes.places - (layout.design @ told.effects)[:, None, :]) @ inverse
        in_root = away[:, :, :, None] * (away @ told.root)[:, :, None, :]
        entries = in_root[..., 0, 0] * told.root[0, 0], in_root[..., 1, 0], in_root[..., 1, 1] * told.root[1, 1]
        for part, scores in ((layout.reward, self.scores(told.theta)), (layout.spread, np.stack(entries, axis=2))):
            slopes[:, :, part] = np.einsum("nq,nqi,nqd->nid", shares, gaps, scores, optimize=True)
        return slopes

    def scores(self, theta: Floats) -> Floats:
        """The derivatives `(n,Q,free θ)` of the log-likelihoods at the nodes."""
        choices = self._at_nodes(theta)
        assert choices is not None
        return choices[1]

    def discounts(self) -> Floats:
        """γ `(n,Q)` at the nodes."""
        found: Floats = self.largest * expit(self.nodes.places[:, :, 0])
        return found

    def _at_nodes(self, theta: Floats) -> tuple[Floats, Floats] | None:
        """`log p(decisions_i | θ, η_iq)` `(n,Q)` and its derivatives `(n,Q,free θ)`."""
        if self._theta is None or not np.array_equal(theta, self._theta):
            self._choices, self._theta = self._planned(theta), theta.copy()
        return self._choices

    def _planned(self, theta: Floats) -> tuple[Floats, Floats] | None:
        n, q = self.nodes.log_weights.shape
        free = self.layout.free
        log, scores = np.empty((n, q)), np.zeros((n, q, free.size))
        point: Point | None = None
        for j in range(q):
            point = plan_at(self.layout.model, theta, self.nodes.places[:, j], self.largest, point)
            if point is None:
                return None
            log[:, j] = person_values(point)
            if free.size:
                scores[:, j] = person_scores(point)[:, free]
        return log, scores


def _spread_penalty(told: Parameters) -> float:
    """`½ log det Σ − log det(I + Σ/s²)`."""
    wide = np.linalg.slogdet(np.eye(2) + told.covariance / WIDEST**2)[1]
    return float(np.log(np.diag(told.root)).sum() - wide)


def plan_at(model: Likelihood, theta: Floats, eta: Floats, largest: float, near: Point | None = None) -> Point | None:
    """The model where person i has η_i, `(n,2)`."""
    heat = np.clip(eta[:, 1], -LOG_TEMPERATURE_LIMIT, LOG_TEMPERATURE_LIMIT)
    return model.at(np.concatenate([theta, largest * expit(eta[:, 0]), heat]), near)


def person_values(point: Point) -> Floats:
    """The log-likelihood of each person's decisions `(n,)`."""
    total = np.zeros(point.likelihood.problem.n_experts)
    for batch, plan in zip(point.likelihood.batches, point.plans, strict=True):
        np.add.at(total, batch.owners, np.einsum("asn,asn->n", batch.counts, plan.finite_log))
    return total


def person_scores(point: Point) -> Floats:
    """The derivatives of each person's log-likelihood in θ, γ and log λ, `(n,d+2)`."""
    model = point.likelihood
    total = np.zeros((model.problem.n_experts, model.n_reward + 2))
    for batch, plan, solver in zip(model.batches, point.plans, point.resolvents, strict=True):
        moved, flow = reward_pull_back(batch, plan, solver, batch.counts)
        rows = moved.reshape(-1, batch.owners.size)
        if not model.fixed[: model.n_reward].all():
            np.add.at(total[:, : model.n_reward], batch.owners, (batch.features.matrix.T @ rows).T)
        np.add.at(total[:, -2], batch.owners, (moved * next_values(batch, plan)).sum(axis=(0, 1)))
        direct = (batch.visits * plan.entropy).sum(axis=0) + (batch.counts * plan.finite_log).sum(axis=(0, 1))
        np.add.at(total[:, -1], batch.owners, plan.lam * (flow * plan.entropy).sum(axis=0) - direct)
    return total
