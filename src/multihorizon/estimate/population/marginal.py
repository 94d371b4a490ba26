"""Weak priors of a population: they hold what decisions leave open, and the solution says where they matter.

*Means.* Where every person of a group may as well have γ = 1, no maximum exists: logit γ beyond ±5 all choose alike. So the term
`−½ Σ_i (X_i b)²/(n s²)`, s = `WIDEST`, is added: it weighs as much as one person at logit 0 whose logit is known to ±s, and
moves effects that the decisions determine by a hundredth of their standard errors.

*Spread.* `½ log det Σ − ½ log det(Σ + t² I) − p log det(I + Σ/s²)` is added, t = `NARROWEST`, p the number of terms. The first
two parts keep Σ from collapsing to a singular matrix that the decisions cannot tell from a regular one; they say nothing of
deviations well above t (Chung and others, 2013, without the second part). The last part keeps Σ from running away for the same
reason as above; it says nothing of deviations well below s.

*Correlation.* `log(1 − ρ²)` is added, ρ the correlation of logit γ and log λ (Lewandowski and others, 2009, with shape 2). It
weighs as much as two persons who are known exactly and show no correlation. Without it a correlation that the decisions hardly
determine ends near ±1, and then each person's temperature seems to tell their discount.

*What they move.* With C the covariance of ψ and g the gradient of a prior, the maximum without that prior is about `C g` away.

The likelihood of many persons whose discounts and temperatures are drawn from one population.

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

The most likely population: Newton's method on the marginal likelihood, with nodes that follow each person.

*Persons.* Nodes start around the mode of each person's η given the decisions. Newton's method finds it for all persons at once,
from the best of nine points. After that they follow the mean and covariance that the quadrature itself gives.

*Information.* By Louis (1982) the information about ψ is that of complete data less what is lost because η is not seen:

    J = E[−∂² log p(decisions, η)] − Var(∂ log p(decisions, η)),     both given the decisions.

In b, c and L it is had by differences of the exact gradient, which costs no planning. In θ the first term is the Fisher
information, averaged over three nodes per dimension, and the second comes from the scores at the nodes.

*Steps.* A step solves `J δ = g` in the directions of which J says something, is shortened until nodes that were placed for the
last ψ still hold, and halved until the objective rises. Then the nodes are placed anew, up to `PLACEMENTS` times. A round with
few nodes comes first. The search ends when `√(gᵀJ⁻¹g)`, the distance to the maximum in standard errors, is below `STOP`. Up to
`CLOSE` the answer counts as the maximum.

What is known of each person where the spread between persons is itself only estimated.

With few persons or few decisions the spread `S = (log L₁₁, L₂₁, log L₂₂)` is hardly known. Taking its most likely value for the
truth makes intervals of persons too narrow. So the shares P_iq of the nodes (`marginal.py`) are averaged over S:

    P̄_iq = Σ_k v_k P_iq(ψ_k) / Σ_k v_k,    ψ_k = ψ̂ + M z_k,    v_k = w_k exp(l(ψ_k) − l(ψ̂) + ½|z_k|²) f(S_k)/f(Ŝ),

with Gauss–Hermite places z_k and weights w_k in three dimensions, and l the objective, which is restricted to the spread already.
`M = C_·S C_S^{-1/2}`, C the covariance of all but the reward, moves the effects along with the spread. Reward and nodes stay
where they are, so nothing is planned anew. `f = σ_γ (1 − ρ²)` makes the density of S flat in both standard deviations and in the
correlation, but for the weak priors that are part of l. Where nodes are too coarse for a small spread, l may come out above its
maximum; such places do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np
import scipy.linalg as la
from scipy.special import expit, logsumexp

from multihorizon.checks import Floats
from multihorizon.choice.tabular import Likelihood, Point, next_values, reward_pull_back
from multihorizon.parallel import Progress, part_of, silent

#: s, the size of a logit, and of a standard deviation between persons, that weak priors allow for, and t, the least deviation.
WIDEST, NARROWEST = 5.0, 0.1


def mean_precision(design: Floats) -> Floats:
    """The precision `(p,p)` of the prior of the effects on logit γ."""
    precision: Floats = design.T @ design / (len(design) * WIDEST**2)
    return precision


def mean_prior(effects: Floats, precision: Floats) -> tuple[float, Floats]:
    """The logarithm of the prior of the effects `(p,)` on logit γ, and its gradient."""
    pull = -precision @ effects
    return 0.5 * float(effects @ pull), pull


def correlation(root: Floats) -> float:
    """ρ of a root `(2,2)` of Σ."""
    return float(root[1, 0] / np.hypot(*root[1]))


def correlation_prior(root: Floats) -> tuple[float, Floats]:
    """The logarithm of the prior of the correlation, and its gradient in log L₁₁, L₂₁ and log L₂₂."""
    rho, deviation = correlation(root), np.hypot(*root[1])
    return 2 * float(np.log(root[1, 1] / deviation)), 2 * rho * np.array([0.0, -1 / deviation, rho])


def spread_prior(root: Floats, terms: int) -> tuple[float, Floats]:
    """The logarithm of the prior of the spread, and its gradient in log L₁₁, L₂₁ and log L₂₂."""
    covariance = root @ root.T
    narrow, wide = (size**2 * np.eye(2) + covariance for size in (NARROWEST, WIDEST))
    logs = [float(np.linalg.slogdet(matrix)[1]) for matrix in (narrow, wide / WIDEST**2)]
    value = float(np.log(np.diag(root)).sum()) - 0.5 * logs[0] - terms * logs[1]
    pull = -(np.linalg.inv(narrow) + 2 * terms * np.linalg.inv(wide)) @ root
    return value, np.array([pull[0, 0] * root[0, 0] + 1, pull[1, 0], pull[1, 1] * root[1, 1] + 1])


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


#: The distance to the maximum, in standard errors, at which the search ends, the steps after which it is given up, and the
#: distance that still counts as the maximum.
STOP, MAX_STEPS, CLOSE = 1e-6, 60, 2e-3
#: After so many steps the nodes stay where they are: moving them would change the integrals more than a step does.
PLACEMENTS = 15
#: Where the first round ends, after how many steps it is given up, and its nodes.
FIRST_STOP, FIRST_STEPS, FIRST_NODES = 0.1, 15, 7
#: Nodes over which the Fisher information is averaged.
INFORMATION_NODES = 3
#: Directions of J, scaled to a unit diagonal, with an eigenvalue below this share of the largest are left alone.
FLAT_DIRECTION = 1e-7
#: The longest step of the means, in standard deviations between persons, and of the logarithms of these.
LONGEST_MEAN, LONGEST_LOG_SPREAD = 1.0, 0.7
#: Differences are taken over this share of a standard error.
DIFFERENCE = 1e-2
#: Newton steps towards each person's mode, the step of their differences, and the least curvature in standard units of the prior.
MODE_STEPS, MODE_DIFFERENCE, LEAST_CURVATURE = 40, 1e-4, 0.2


@dataclass(frozen=True, eq=False)
class Maximum:
    """Where the search ended: ψ, the value and the nodes there, J, the distance to the maximum, and the number of steps."""

    psi: Floats
    value: Value
    marginal: Marginal
    information: Floats
    persons: Persons
    distance: float
    steps: int

    @property
    def finished(self) -> bool:
        """Whether nothing is left to gain."""
        return self.distance <= CLOSE


def maximise(layout: Layout, psi: Floats, persons: Persons, nodes: int, largest: float, progress: Progress = silent) -> Maximum:
    """Climb from ψ, first with few nodes; `persons` are the first places of the nodes."""
    near = _climb(layout, psi, persons, min(nodes, FIRST_NODES), largest, FIRST_STOP, FIRST_STEPS, part_of(progress, 0.0, 0.5))
    return _climb(layout, near.psi, near.persons, nodes, largest, STOP, MAX_STEPS, part_of(progress, 0.5, 1.0))


def maximum_at(start: Maximum, j: int, value: float, along: Floats) -> Maximum:
    """The maximum where ψ_j has this value, from one near by; `along` `(size,)` is how the others move with ψ_j.

    Nodes are few. They move as far as the prior moves each person's mean, and what decisions say of a person (Λ) is kept.
    """
    layout, persons = start.marginal.layout, start.persons
    move = (value - start.psi[j]) * along
    move[j] = value - start.psi[j]
    share = persons.covariance @ np.linalg.inv(layout.unpack(start.psi).covariance)
    mean = persons.mean + (share @ (layout.linear @ move)[:, :, None])[:, :, 0]
    moved = replace(persons, mean=mean, precision=start.marginal.nodes.precisions)
    largest = start.marginal.largest
    return _climb(layout, start.psi + move, moved, FIRST_NODES, largest, CLOSE, MAX_STEPS, silent, held=j)


def _climb(
    layout: Layout,
    psi: Floats,
    persons: Persons,
    nodes: int,
    largest: float,
    stop: float,
    max_steps: int,
    progress: Progress,
    held: int | None = None,
) -> Maximum:
    marginal, steps, own = Marginal(layout, adapted_nodes(persons, nodes), largest), 0, persons.precision
    while True:
        value = marginal.at(psi)
        if value is None:
            raise ValueError("the soft values must be finite at the first parameters: check rewards and transitions")
        persons = _moved(persons, marginal, psi, value)
        matrix = information(marginal, psi, value, persons)
        step = newton_step(matrix, value.gradient, held)
        distance = float(np.sqrt(np.maximum(value.gradient @ step, 0.0)))
        progress(min(0.95, steps / 20), f"marginal log-likelihood {value.persons.sum():.2f}")
        if distance <= stop or steps == max_steps:
            return Maximum(psi, value, marginal, matrix, persons, distance, steps)
        reached = _advance(marginal, psi, value, step)
        if reached is None:
            return Maximum(psi, value, marginal, matrix, persons, distance, steps)
        psi, steps = reached[0], steps + 1
        persons = _moved(persons, marginal, *reached)
        if held is not None:
            persons = replace(persons, precision=own)
        if steps <= PLACEMENTS:
            marginal = Marginal(layout, adapted_nodes(persons, nodes), largest)


def information(marginal: Marginal, psi: Floats, value: Value, persons: Persons) -> Floats:
    """J `(size,size)`."""
    layout = marginal.layout
    matrix = np.zeros((layout.size, layout.size))
    for j in range(layout.free.size, layout.size):
        matrix[:, j] = matrix[j, :] = -_slope(marginal, psi, j)
    if layout.free.size:
        matrix[layout.reward, layout.reward] = _reward_information(marginal, psi, value, persons)
    rest = slice(layout.free.size, layout.size)
    matrix[rest, rest] = (matrix[rest, rest] + matrix[rest, rest].T) / 2
    return matrix


def newton_step(matrix: Floats, gradient: Floats, held: int | None = None) -> Floats:
    """`J⁻¹ g` in the directions of which J says something, each with the size of its curvature; ψ_held stays where it is."""
    if held is not None:
        others = np.arange(gradient.size) != held
        step = np.zeros(gradient.size)
        step[others] = newton_step(matrix[np.ix_(others, others)], gradient[others])
        return step
    scale, values, vectors = _spectrum(matrix)
    kept = np.abs(values) > FLAT_DIRECTION * np.abs(values).max()
    along = vectors[:, kept].T @ (gradient / scale) / np.abs(values[kept])
    found: Floats = vectors[:, kept] @ along / scale
    return found


def covariance_of(matrix: Floats) -> tuple[Floats, Floats]:
    """The inverse of J where it is positive, and how much of each parameter lies in other directions `(size,)`."""
    scale, values, vectors = _spectrum(matrix)
    kept = values > FLAT_DIRECTION * np.abs(values).max()
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T / np.outer(scale, scale)
    return inverse, np.linalg.norm(vectors[:, ~kept], axis=1)


def modes(model: Likelihood, theta: Floats, centre: Floats, root: Floats, largest: float) -> Persons:
    """Each person's mode and curvature under the prior `N(centre_i, root rootᵀ)`, in standard units of the prior."""
    z, best = np.zeros_like(centre), np.full(len(centre), -np.inf)
    for start in [(a, b) for a in (0.0, -2.0, 2.0) for b in (0.0, -2.0, 2.0)]:
        tried = np.broadcast_to(np.array(start), centre.shape)
        found = _penalised(model, theta, centre, root, tried, largest)
        z, best = np.where((found > best)[:, None], tried, z), np.maximum(found, best)
    damping = np.zeros(len(centre))
    for _ in range(MODE_STEPS):
        gradient, curvature = _person_curvature(model, theta, centre, root, z, largest)
        damped = curvature + damping[:, None, None] * np.eye(2)
        step = np.linalg.solve(damped, gradient[:, :, None])[:, :, 0]
        step /= np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True))
        found = _penalised(model, theta, centre, root, z + step, largest)
        better = found >= best
        z, best = np.where(better[:, None], z + step, z), np.where(better, found, best)
        damping = np.where(better, damping / 4, 4 * damping + 1)
        if np.abs(step).max() < MODE_DIFFERENCE * 10:
            break
    curvature = _person_curvature(model, theta, centre, root, z, largest)[1]
    covariance = root @ np.linalg.inv(curvature) @ root.T
    return Persons(centre + z @ root.T, covariance, own_precision(covariance, root @ root.T))


def _moved(before: Persons, marginal: Marginal, psi: Floats, value: Value) -> Persons:
    """Where the nodes should be: at the moments of the quadrature. Few nodes may miss a part, so no spread shrinks at once."""
    mean, covariance = marginal.moments(value.shares)
    own = own_precision(covariance, marginal.layout.unpack(psi).covariance)
    return Persons(mean, covariance + 0.05 * before.covariance, own)


def _advance(marginal: Marginal, psi: Floats, value: Value, step: Floats) -> tuple[Floats, Value] | None:
    layout, parts = marginal.layout, marginal.layout.unpack(psi)
    means = np.abs(layout.linear @ step).max(axis=0) / np.sqrt(np.diag(parts.covariance))
    logs = np.abs(step[layout.spread] / np.array([1.0, parts.root[1, 1], 1.0])).max()
    share = min(1.0, LONGEST_MEAN / max(float(means.max()), 1e-300), LONGEST_LOG_SPREAD / max(float(logs), 1e-300))
    promised = float(value.gradient @ step)
    for _ in range(12):
        reached = marginal.at(psi + share * step)
        if reached is not None and reached.objective - value.objective > 1e-4 * share * promised:
            return psi + share * step, reached
        share /= 2
    return None


def _slope(marginal: Marginal, psi: Floats, j: int) -> Floats:
    """The derivative of the gradient in ψ_j, which is not a reward."""
    deviations = np.sqrt(np.diag(marginal.layout.unpack(psi).covariance))
    unit = 1.0 if j >= marginal.layout.spread.start else float(deviations.min())
    h = DIFFERENCE * unit / np.sqrt(len(marginal.layout.design))
    shift = np.zeros(psi.size)
    shift[j] = h
    ahead, behind = marginal.at(psi + shift), marginal.at(psi - shift)
    assert ahead is not None
    assert behind is not None
    slope: Floats = (ahead.gradient - behind.gradient) / (2 * h)
    return slope


def _reward_information(marginal: Marginal, psi: Floats, value: Value, persons: Persons) -> Floats:
    """The block of J in θ."""
    layout, theta = marginal.layout, marginal.layout.unpack(psi).theta
    free, model = layout.free, layout.model
    total = np.diag(model.ridge[free])
    scores = marginal.scores(theta)
    gaps = scores - np.einsum("nq,nqd->nd", value.shares, scores)[:, None, :]
    total -= np.einsum("nq,nqd,nqe->de", value.shares, gaps, gaps, optimize=True)
    coarse = adapted_nodes(persons, INFORMATION_NODES)
    for j, weight in enumerate(standard_nodes(INFORMATION_NODES)[1]):
        point = plan_at(model, theta, coarse.places[:, j], marginal.largest)
        assert point is not None
        total += weight * point.information[np.ix_(free, free)]
    return total


def _penalised(model: Likelihood, theta: Floats, centre: Floats, root: Floats, z: Floats, largest: float) -> Floats:
    point = plan_at(model, theta, centre + z @ root.T, largest)
    return np.full(len(z), -np.inf) if point is None else person_values(point) - 0.5 * (z**2).sum(axis=1)


def _person_gradient(model: Likelihood, theta: Floats, centre: Floats, root: Floats, z: Floats, largest: float) -> Floats:
    """The derivative `(n,2)` of the penalised log-likelihood in z, `η = centre + root z`."""
    eta = centre + z @ root.T
    point = plan_at(model, theta, eta, largest)
    if point is None:
        raise ValueError("soft values must be finite where a person's mode is sought: check rewards and transitions")
    scores = person_scores(point)[:, -2:]
    share = expit(eta[:, 0])
    scores[:, 0] *= largest * share * (1 - share)
    found: Floats = scores @ root - z
    return found


def _person_curvature(
    model: Likelihood, theta: Floats, centre: Floats, root: Floats, z: Floats, largest: float
) -> tuple[Floats, Floats]:
    """The derivative in z and the curvature `(n,2,2)`, made positive definite."""
    here = _person_gradient(model, theta, centre, root, z, largest)
    moved = [_person_gradient(model, theta, centre, root, z + h, largest) for h in MODE_DIFFERENCE * np.eye(2)]
    matrix = -np.stack([(m - here) / MODE_DIFFERENCE for m in moved], axis=2)
    values, vectors = np.linalg.eigh((matrix + matrix.transpose(0, 2, 1)) / 2)
    return here, (vectors * np.maximum(values, LEAST_CURVATURE)[:, None, :]) @ vectors.transpose(0, 2, 1)


def _spectrum(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """The scale that gives a unit diagonal, and eigenvalues and vectors of the scaled matrix."""
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2 / np.outer(scale, scale))
    return scale, values, vectors


#: Places for log L₁₁, which is known least, L₂₁ and log L₂₂.
PLACES = (7, 5, 5)
#: Directions of the spread with a variance below this share of the largest are not moved along.
LEAST_VARIANCE = 1e-12


def averaged_shares(found: Maximum) -> Floats:
    """P̄ `(n,Q)`."""
    moves, layout = spread_moves(found), found.marginal.layout
    total, weight = np.zeros_like(found.value.shares), 0.0
    here = found.value.objective + _log_flat(layout.unpack(found.psi).root)
    for z, share in _places():
        psi = found.psi + moves @ z
        value = found.marginal.at(psi)
        if value is not None and value.objective <= found.value.objective:
            density = share * float(np.exp(value.objective + _log_flat(layout.unpack(psi).root) - here + 0.5 * z @ z))
            total, weight = total + density * value.shares, weight + density
    shares: Floats = total / weight
    return shares


def spread_moves(found: Maximum) -> Floats:
    """M `(size,3)`: how ψ moves with the spread, in its standard errors, where the reward stays."""
    layout = found.marginal.layout
    rest = slice(layout.free.size, layout.size)
    along = covariance_of(found.information[rest, rest])[0][:, -3:]
    variances, vectors = np.linalg.eigh(along[-3:])
    kept = variances > LEAST_VARIANCE * variances.max()
    moves = np.zeros((layout.size, 3))
    moves[rest] = along @ (vectors[:, kept] / np.sqrt(variances[kept])) @ vectors[:, kept].T
    return moves


def covariance_at_spread(found: Maximum, covariance: Floats) -> Floats:
    """What is left of the covariance of ψ where the spread is given: `C − M Mᵀ`, never negative."""
    moves = spread_moves(found)
    values, vectors = np.linalg.eigh(covariance - moves @ moves.T)
    left: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return left


def _places() -> list[tuple[Floats, float]]:
    """z `(3,)` and w of each place."""
    rules = [np.polynomial.hermite_e.hermegauss(count) for count in PLACES]
    places = product(*(zip(*rule, strict=True) for rule in rules))
    return [(np.array([z for z, _ in place]), float(np.prod([w for _, w in place]))) for place in places]


def _log_flat(root: Floats) -> float:
    """log f, `1 − ρ²` being the squared share of L₂₂ in the deviation of log λ."""
    return float(np.log(root[0, 0]) + 2 * np.log(root[1, 1] / np.hypot(*root[1])))
