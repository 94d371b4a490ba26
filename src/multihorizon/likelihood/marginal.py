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

*Means that were estimated.* The most likely Σ is too small, because the means were fitted to the same persons. As in restricted
maximum likelihood, `−½ log det M` is added, M the information about (b, c):

    M = Σ_i X_iᵀ (W_i + I/(n s²)) X_i,    W_i = (Λ_i^{-1} + Σ)^{-1},

X_i the derivative of μ_i, Λ_i the precision with which the decisions of person i alone determine η_i, and s that of the weak
priors, which are added too (`weak_priors.py`). With persons known well M divides sums of squares by n − p.
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
from multihorizon.likelihood.weak_priors import WIDEST, correlation_prior, mean_precision, mean_prior, spread_prior

#: Log-temperatures of nodes stay this near to 0: beyond it choices are certain or random to the last digit.
LOG_TEMPERATURE_LIMIT = 20.0


@dataclass(frozen=True, eq=False)
class Nodes:
    """Where each person's integral is evaluated: places `(n,Q,2)` and the logarithms of their weights `(n,Q)`.

    `precisions` `(n,2,2)` are Λ, what each person's decisions say of η.
    """

    places: Floats
    log_weights: Floats
    precisions: Floats


@dataclass(frozen=True, eq=False)
class Persons:
    """Mean `(n,2)` and covariance `(n,2,2)` of each person's η given the decisions, and Λ `(n,2,2)` of the decisions alone."""

    mean: Floats
    covariance: Floats
    precision: Floats


def standard_nodes(count: int) -> tuple[Floats, Floats]:
    """Places `(Q,2)` and weights `(Q,)` for the standard normal distribution: `count` nodes for logit γ, half as many for log λ.

    Given γ, log λ is close to normal, and few nodes will do. Logit γ need not be: it may be anything above some value.
    """
    (z, w), (y, v) = (np.polynomial.hermite_e.hermegauss(n) for n in (count, max(3, count // 2 | 1)))
    return np.array([(a, b) for a in z for b in y]), np.outer(w, v).ravel() / (2 * np.pi)


def adapted_nodes(persons: Persons, count: int) -> Nodes:
    """Gauss–Hermite nodes for what is known of each person."""
    grid, weights = standard_nodes(count)
    log_w = np.log(2 * np.pi * weights) + 0.5 * (grid**2).sum(axis=1)
    root = np.linalg.cholesky(persons.covariance)
    places = persons.mean[:, None, :] + np.einsum("nij,qj->nqi", root, grid)
    return Nodes(places, log_w + np.log(root[:, 0, 0] * root[:, 1, 1])[:, None], persons.precision)


def own_precision(covariance: Floats, prior: Floats) -> Floats:
    """Λ `(n,2,2)`: what the decisions add to the precision of the prior `N(·, Σ)`; never negative."""
    added = np.linalg.inv(covariance) - np.linalg.inv(prior)
    values, vectors = np.linalg.eigh((added + added.transpose(0, 2, 1)) / 2)
    found: Floats = (vectors * np.maximum(values, 0.0)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return found


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
        self.mean_precision: Floats = mean_precision(design)

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

    def weak_priors(self, parts: Parameters) -> tuple[float, dict[str, Floats]]:
        """The logarithm of the weak priors, and the gradient in ψ of each."""
        pull = {name: np.zeros(self.size) for name in ("means", "spread", "correlation")}
        means, pull["means"][self.discount] = mean_prior(parts.effects[:, 0], self.mean_precision)
        spread, pull["spread"][self.spread] = spread_prior(parts.root, self.design.shape[1])
        correlation, pull["correlation"][self.spread] = correlation_prior(parts.root)
        return means + spread + correlation, pull

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
        parts = self.layout.unpack(psi)
        choices = self._at_nodes(parts.theta)
        if choices is None:
            return None
        log, scores = choices
        model, design = self.layout.model, self.layout.design
        inverse: Floats = np.linalg.inv(parts.covariance).astype(np.float64, copy=False)
        gaps = self.nodes.places - (design @ parts.effects)[:, None, :]
        log_prior = -0.5 * np.einsum("nqi,ij,nqj->nq", gaps, inverse, gaps) - np.log(np.diag(parts.root)).sum()
        joint = log + log_prior - np.log(2 * np.pi) + self.nodes.log_weights
        persons = logsumexp(joint, axis=1)
        shares = np.exp(joint - persons[:, None])
        mean = np.einsum("nq,nqi->ni", shares, gaps)
        second = np.einsum("nq,nqi,nqj->ij", shares, gaps, gaps)
        gradient = np.zeros(self.layout.size)
        gradient[self.layout.reward] = np.einsum("nq,nqd->d", shares, scores) - (model.ridge * parts.theta)[self.layout.free]
        pulled = design.T @ mean @ inverse
        gradient[self.layout.discount] = pulled[:, 0]
        gradient[self.layout.heat] = self.layout.heat_basis.T @ pulled[:, 1]
        gradient[self.layout.spread] = _spread_gradient(parts.root, inverse, second, len(design))
        restricted, in_spread = self._restricted(parts)
        gradient[self.layout.spread] += in_spread
        held, pull = self.layout.weak_priors(parts)
        objective = float(persons.sum()) - 0.5 * float(model.ridge @ parts.theta**2) + restricted + held
        return Value(objective, gradient + sum(pull.values()), persons, shares)

    def _restricted(self, parts: Parameters) -> tuple[float, Floats]:
        """`−½ log det M`, and its gradient in log L₁₁, L₂₁ and log L₂₂."""
        rows = self.layout.linear[:, :, self.layout.discount.start : self.layout.heat.stop]
        own = self.nodes.precisions
        weights = own @ np.linalg.inv(np.eye(2) + parts.covariance @ own)
        matrix = np.einsum("nik,nij,njl->kl", rows, weights + np.eye(2) / (len(rows) * WIDEST**2), rows, optimize=True)
        pulled = weights @ rows
        inverse = np.linalg.inv(matrix)
        in_covariance = np.einsum("nik,kl,njl->ij", pulled, inverse, pulled, optimize=True)
        return -0.5 * float(np.linalg.slogdet(matrix)[1]), _in_root(in_covariance, parts.root)

    def moments(self, shares: Floats) -> tuple[Floats, Floats]:
        """Mean `(n,2)` and covariance `(n,2,2)` of each person's η given the decisions."""
        mean = np.einsum("nq,nqi->ni", shares, self.nodes.places)
        gaps = self.nodes.places - mean[:, None, :]
        return mean, np.einsum("nq,nqi,nqj->nij", shares, gaps, gaps)

    def mean_slopes(self, psi: Floats, shares: Floats) -> Floats:
        """The derivative `(n,2,size)` of each person's mean in ψ: `Cov(η, score of ψ)` given the decisions."""
        parts, layout = self.layout.unpack(psi), self.layout
        mean, within = self.moments(shares)
        inverse = np.linalg.inv(parts.covariance)
        slopes: Floats = within @ inverse @ layout.linear
        gaps = self.nodes.places - mean[:, None, :]
        away = (self.nodes.places - (layout.design @ parts.effects)[:, None, :]) @ inverse
        in_root = away[:, :, :, None] * (away @ parts.root)[:, :, None, :]
        entries = in_root[..., 0, 0] * parts.root[0, 0], in_root[..., 1, 0], in_root[..., 1, 1] * parts.root[1, 1]
        for part, scores in ((layout.reward, self.scores(parts.theta)), (layout.spread, np.stack(entries, axis=2))):
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


def _spread_gradient(root: Floats, inverse: Floats, second: Floats, n: int) -> Floats:
    """The gradient of the log-likelihood in log L₁₁, L₂₁ and log L₂₂; `second` is `Σ_i S_i`."""
    return _in_root(inverse @ second @ inverse - n * inverse, root)


def _in_root(slope: Floats, root: Floats) -> Floats:
    """A derivative in Σ, doubled, as one in log L₁₁, L₂₁ and log L₂₂."""
    pull = slope @ root
    return np.array([pull[0, 0] * root[0, 0], pull[1, 0], pull[1, 1] * root[1, 1]])


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
