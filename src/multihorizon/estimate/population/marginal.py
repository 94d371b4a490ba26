"""The marginal likelihood of many persons whose discounts and temperatures are drawn from one population, and its maximum.

*Model.* Person i has `η_i = (logit γ_i, log λ_i) ~ N(μ_i, Σ)`, `μ_i = (X_i b, X_i c)`, and all share the reward θ. Given θ
persons are independent, and what was seen of person i has the probability

    p_i = ∫ p(decisions_i | θ, η) N(η; μ_i, Σ) dη ≈ Σ_q w_iq p(decisions_i | θ, η_iq) N(η_iq; μ_i, Σ),

by Gauss–Hermite quadrature with nodes `η_iq = m_i + C_i z_q` that are adapted to each person: m_i and `C_i C_iᵀ` are the mean and
covariance of η_i given the decisions (Naylor and Smith, 1982). At fixed nodes the sum is a smooth function of `ψ = (θ, b, c, L)`,
`Σ = L Lᵀ`, with an exact gradient. With P_iq the share of node q in p_i, `r_iq = η_iq − μ_i` and S_i = Σ_q P_iq r rᵀ, it is

    Σ_iq P_iq ∇_θ log p(decisions_i | θ, η_iq),    Σ_i X_i ⊗ Σ^{-1} Σ_q P_iq r_iq,    ½ Σ_i (Σ^{-1} S_i Σ^{-1} − Σ^{-1}) in Σ.

If no state can go on forever, `γ = 1/(1+exp(−η))`; elsewhere it is multiplied by `ENDLESS_DISCOUNT`. Where nothing sets the scale
of the reward, the mean of `X_i c` over persons is held at 0, as the mean log-temperature is in maximum likelihood.

*Means that were estimated.* The most likely Σ is too small, because the means were fitted to the same persons. As in restricted
maximum likelihood, `−½ log det M` is added, M the information about (b, c):

    M = Σ_i X_iᵀ (W_i + I/(n s²)) X_i,    W_i = (Λ_i^{-1} + Σ)^{-1},

X_i the derivative of μ_i, Λ_i the precision with which the decisions of person i alone determine η_i, and s that of the weak
priors. With persons known well M divides sums of squares by n − p.

*Weak priors* hold what the decisions leave open. With C the covariance of ψ and g the gradient of a prior, the maximum without
that prior is about `C g` away; the solution says where that matters.

- Means: where every person of a group may as well have γ = 1, no maximum exists: logit γ beyond ±5 all choose alike. So
  `−½ Σ_i (X_i b)²/(n s²)`, s = `WIDEST`, is added: it weighs as much as one person at logit 0 whose logit is known to ±s, and
  moves effects that the decisions determine by a hundredth of their standard errors.
- Spread: `½ log det Σ − ½ log det(Σ + t² I) − p log det(I + Σ/s²)`, t = 0.1, p the number of terms. The first two parts keep Σ
  from collapsing to a singular matrix where the decisions allow that; they say nothing of deviations well above t (Chung and
  others, 2013, without the second part). The last part keeps Σ from running away; it says nothing of deviations well below s.
- Correlation: `log(1 − ρ²)`, ρ the correlation of logit γ and log λ (Lewandowski and others, 2009, with shape 2). It weighs as
  much as two persons who are known exactly and show no correlation. Without it a correlation that the decisions hardly determine
  ends near ±1, and then each person's temperature seems to determine their discount.

*Search.* Nodes start around the mode of each person's η given the decisions. Newton's method finds it for all persons at once,
from the best of nine points. After that they follow the mean and covariance that the quadrature itself gives. By Louis (1982) the
information about ψ is that of complete data less what is lost because η is not seen:

    J = E[−∂² log p(decisions, η)] − Var(∂ log p(decisions, η)),     both given the decisions.

In b, c and L it is had by differences of the exact gradient, which costs no planning. In θ the first term is the Fisher
information, averaged over three nodes per dimension, and the second comes from the scores at the nodes. A step solves `J δ = g`
in the directions that J determines, is shortened until nodes that were placed for the last ψ still hold, and halved until the
objective rises. Then the nodes are placed anew. A round with few nodes comes first. The search ends when `√(gᵀJ⁻¹g)`, the
distance to the maximum in standard errors, is below `tol`.

*Spread that was estimated.* With few persons or few decisions the spread `S = (log L₁₁, L₂₁, log L₂₂)` is hardly known. Taking
its most likely value for the truth makes intervals of persons too narrow. So the shares P_iq of the nodes are averaged over S:

    P̄_iq = Σ_k v_k P_iq(ψ_k) / Σ_k v_k,    ψ_k = ψ̂ + M z_k,    v_k = w_k exp(l(ψ_k) − l(ψ̂) + ½|z_k|²) f(S_k)/f(Ŝ),

with Gauss–Hermite places z_k and weights w_k in three dimensions, and l the objective, which is restricted to the spread already.
`M = C_·S C_S^{-1/2}`, C the covariance of all but the reward, moves the effects along with the spread. Reward and nodes stay
where they are, so nothing is planned anew. `f = σ_γ (1 − ρ²)` makes the density of S flat in both standard deviations and in the
correlation, but for the weak priors that are part of l. Where nodes are too coarse for a small spread, l may come out above its
maximum; such places do not count.

*What is known.* Given the decisions, η_i has the mean and the covariance of the quadrature with these shares. The errors of
reward and effects add `D_i C' D_iᵀ`, D_i the derivative of that mean in ψ and C' what is left of C at a given spread. Estimated
transitions are drawn anew around their estimates, with their sample sizes. A draw that moves the gradient by δg moves ψ by
`C δg`; the mean of the squares is added to C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import scipy.linalg as la
from scipy.special import expit, logit

from multihorizon.checks import ENDLESS_DISCOUNT, Floats
from multihorizon.choice.tabular import Likelihood, Point, redrawn
from multihorizon.numerics.spectrum import Spectrum, positive_part, spectrum
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.solution import Status

#: s, the size of a logit, and of a standard deviation between persons, that weak priors allow for.
WIDEST = 5.0


@dataclass(frozen=True, eq=False)
class PsiParts:
    """ψ taken apart: θ `(d,)`, effects `(p,2)` on logit γ and log λ, and L `(2,2)`."""

    theta: Floats
    effects: Floats
    root: Floats

    @property
    def covariance(self) -> Floats:
        """Σ `(2,2)`."""
        return self.root @ self.root.T

    @property
    def correlation(self) -> float:
        """ρ."""
        return float(self.root[1, 0] / np.hypot(*self.root[1]))

    def in_root(self, slope: Floats) -> Floats:
        """A derivative in Σ, doubled, as one in log L₁₁, L₂₁ and log L₂₂."""
        pull = slope @ self.root
        return np.array([pull[0, 0] * self.root[0, 0], pull[1, 0], pull[1, 1] * self.root[1, 1]])


class PsiLayout:
    """Where θ, b, c and L stand in ψ. Of θ only what is free is in it, of L the entries log L₁₁, L₂₁ and log L₂₂.

    `design` is X `(n,p)`, and `largest` the largest discount, by default that of the model's tasks.
    """

    def __init__(self, model: Likelihood, design: Floats, largest: float | None = None) -> None:
        self.model, self.design = model, design
        endless = any(batch.mdp.never_ends().any() for batch in model.batches)
        self.largest = largest or (ENDLESS_DISCOUNT if endless else 1.0)
        n, p = design.shape
        self.free = np.flatnonzero(~model.fixed[: model.n_reward])
        mean = design.mean(axis=0, keepdims=True)
        self.temperature_basis: Floats = la.null_space(mean) if model.scale_is_free else np.eye(p)
        sizes = np.cumsum([self.free.size, p, self.temperature_basis.shape[1], 3])
        self.reward, self.discount, self.temperature, self.spread = (
            slice(int(a), int(b)) for a, b in zip([0, *sizes[:-1]], sizes, strict=True)
        )
        self.size = int(sizes[-1])
        #: The derivative (n,2,size) of the means μ in ψ.
        self.linear = np.zeros((n, 2, self.size))
        self.linear[:, 0, self.discount] = design
        self.linear[:, 1, self.temperature] = design @ self.temperature_basis

    def unpack(self, psi: Floats) -> PsiParts:
        """The parts of ψ."""
        d = self.model.n_reward
        theta = np.where(self.model.fixed[:d], self.model.known[:d], 0.0)
        theta[self.free] = psi[self.reward]
        effects = np.stack([psi[self.discount], self.temperature_basis @ psi[self.temperature]], axis=1)
        a, c, e = psi[self.spread]
        return PsiParts(theta, effects, np.array([[np.exp(a), 0.0], [c, np.exp(e)]]))

    def pack(self, theta: Floats, centre: Floats, deviations: Floats) -> Floats:
        """ψ of a reward, one centre `(2,)` for everyone, and standard deviations `(2,)`."""
        everyone = np.linalg.lstsq(self.design, np.ones(len(self.design)))[0]
        temperature = self.temperature_basis.T @ everyone * centre[1]
        spread = [np.log(deviations[0]), 0.0, np.log(deviations[1])]
        return np.concatenate([theta[self.free], everyone * centre[0], temperature, spread])

    def weak_priors(self, parts: PsiParts) -> tuple[float, dict[str, Floats]]:
        """The logarithm of the weak priors, and the gradient in ψ of each."""
        pull = {name: np.zeros(self.size) for name in ("means", "spread", "correlation")}
        n, p = self.design.shape
        effects, root = parts.effects[:, 0], parts.root
        pull["means"][self.discount] = -(self.design.T @ self.design / (n * WIDEST**2)) @ effects
        means = 0.5 * float(effects @ pull["means"][self.discount])
        narrow, wide = (size**2 * np.eye(2) + parts.covariance for size in (0.1, WIDEST))
        logs = [float(np.linalg.slogdet(matrix)[1]) for matrix in (narrow, wide / WIDEST**2)]
        spread = float(np.log(np.diag(root)).sum()) - 0.5 * logs[0] - p * logs[1]
        pull["spread"][self.spread] = parts.in_root(-np.linalg.inv(narrow) - 2 * p * np.linalg.inv(wide))
        pull["spread"][[self.spread.start, self.spread.start + 2]] += 1.0
        rho, deviation = parts.correlation, np.hypot(*root[1])
        pull["correlation"][self.spread] = 2 * rho * np.array([0.0, -1 / deviation, rho])
        return means + spread + 2 * float(np.log(root[1, 1] / deviation)), pull

    def plan(self, theta: Floats, eta: Floats, near: Point | None = None) -> Point | None:
        """The model where person i has η_i, `(n,2)`. Beyond ±20 of log λ choices are certain or random to the last digit."""
        x = np.concatenate([theta, self.largest * expit(eta[:, 0]), np.clip(eta[:, 1], -20.0, 20.0)])
        return self.model.at(x, near)


def person_scores(point: Point) -> Floats:
    """The derivatives of each person's log-likelihood in θ, γ and log λ, `(n,d+2)`."""
    model = point.likelihood
    total = np.zeros((model.problem.n_experts, model.n_reward + 2))
    for batch, plan in zip(model.batches, point.plans, strict=True):
        moved, flow = plan.pull_back(batch.counts)
        if not model.fixed[: model.n_reward].all():
            rows = moved.reshape(-1, batch.owners.size)
            np.add.at(total[:, : model.n_reward], batch.owners, (batch.features.matrix.T @ rows).T)
        np.add.at(total[:, -2], batch.owners, (moved * plan.next_values).sum(axis=(0, 1)))
        direct = (batch.visits * plan.entropy).sum(axis=0) + (batch.counts * plan.finite_log).sum(axis=(0, 1))
        np.add.at(total[:, -1], batch.owners, plan.lam * (flow * plan.entropy).sum(axis=0) - direct)
    return total


@dataclass(frozen=True, eq=False)
class PersonMoments:
    """Mean `(n,2)` and covariance `(n,2,2)` of each person's η given the decisions, and Λ `(n,2,2)` of the decisions alone."""

    mean: Floats
    covariance: Floats
    precision: Floats

    @classmethod
    def under(cls, prior: Floats, mean: Floats, covariance: Floats) -> PersonMoments:
        """With Λ what the decisions add to the precision of the prior `N(·, Σ)`; never negative."""
        return cls(mean, covariance, positive_part(np.linalg.inv(covariance) - np.linalg.inv(prior)))


def modes(layout: PsiLayout, psi: Floats) -> PersonMoments:
    """Each person's mode and curvature under the population ψ."""
    parts = layout.unpack(psi)
    centre, root = layout.design @ parts.effects, parts.root

    def value(z: Floats) -> Floats:
        """The penalised log-likelihood `(n,)`, in standard units of the prior: `η = centre + root z`."""
        point = layout.plan(parts.theta, centre + z @ root.T)
        return np.full(len(z), -np.inf) if point is None else layout.model.person_values(point) - 0.5 * (z**2).sum(axis=1)

    def slope(z: Floats) -> Floats:
        eta = centre + z @ root.T
        point = layout.plan(parts.theta, eta)
        if point is None:
            raise ValueError("soft values must be finite where a person's mode is sought: check rewards and transitions")
        scores, share = person_scores(point)[:, -2:], expit(eta[:, 0])
        scores[:, 0] *= layout.largest * share * (1 - share)
        return scores @ root - z

    def derivatives(z: Floats) -> tuple[Floats, Floats]:
        """The gradient `(n,2)`, and the curvature `(n,2,2)` by differences, made positive definite."""
        here = slope(z)
        ahead = [slope(z + h) for h in difference * np.eye(2)]
        return here, positive_part(-np.stack([(there - here) / difference for there in ahead], axis=2), 0.2)

    difference = 1e-4
    z, best, damping = np.zeros_like(centre), np.full(len(centre), -np.inf), np.zeros(len(centre))
    for start in product((0.0, -2.0, 2.0), repeat=2):
        tried = np.broadcast_to(np.array(start), centre.shape)
        found = value(tried)
        z, best = np.where((found > best)[:, None], tried, z), np.maximum(found, best)
    for _ in range(40):
        gradient, curvature = derivatives(z)
        step = np.linalg.solve(curvature + damping[:, None, None] * np.eye(2), gradient[:, :, None])[:, :, 0]
        step /= np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True))
        found = value(z + step)
        better = found >= best
        z, best = np.where(better[:, None], z + step, z), np.where(better, found, best)
        damping = np.where(better, damping / 4, 4 * damping + 1)
        if np.abs(step).max() < 10 * difference:
            break
    covariance = root @ np.linalg.inv(derivatives(z)[1]) @ root.T
    return PersonMoments.under(parts.covariance, centre + z @ root.T, covariance)


def standard_nodes(count: int) -> tuple[Floats, Floats]:
    """Places `(Q,2)` and weights `(Q,)` for the standard normal distribution: `count` nodes for logit γ, half as many for log λ.

    Given γ, log λ is close to normal, and few nodes will do. Logit γ need not be: it may be anything above some value.
    """
    (z, w), (y, v) = (np.polynomial.hermite_e.hermegauss(n) for n in (count, max(3, count // 2 | 1)))
    return np.array([(a, b) for a in z for b in y]), np.outer(w, v).ravel() / (2 * np.pi)


@dataclass(frozen=True, eq=False)
class Value:
    """The marginal likelihood at one ψ: what is maximised, its gradient, each person's log-likelihood, and shares P `(n,Q)`."""

    objective: float
    gradient: Floats
    persons: Floats
    shares: Floats


class Marginal:
    """The marginal likelihood at fixed nodes, `count` of them for logit γ, around what is known of each person.

    Places are `(n,Q,2)`. What depends on θ is kept for the θ that was asked for last.
    """

    def __init__(self, layout: PsiLayout, persons: PersonMoments, count: int) -> None:
        self.layout, self.precisions = layout, persons.precision
        grid, weights = standard_nodes(count)
        root = np.linalg.cholesky(persons.covariance)
        self.places: Floats = persons.mean[:, None, :] + np.einsum("nij,qj->nqi", root, grid)
        log_weights = np.log(2 * np.pi * weights) + 0.5 * (grid**2).sum(axis=1)
        self.log_weights: Floats = log_weights + np.log(root[:, 0, 0] * root[:, 1, 1])[:, None]
        self._theta: Floats | None = None
        self._choices: tuple[Floats, Floats] | None = None

    def at(self, psi: Floats) -> Value | None:
        """The value at ψ; None where soft values are infinite."""
        layout, parts = self.layout, self.layout.unpack(psi)
        choices = self._choices_at(parts.theta)
        if choices is None:
            return None
        log, scores = choices
        model, design = layout.model, layout.design
        inverse: Floats = np.linalg.inv(parts.covariance).astype(np.float64, copy=False)
        gaps = self.places - (design @ parts.effects)[:, None, :]
        pulls = gaps @ inverse
        log_prior = -0.5 * (pulls * gaps).sum(axis=2) - np.log(np.diag(parts.root)).sum()
        joint = log + log_prior - np.log(2 * np.pi) + self.log_weights
        top = joint.max(axis=1, keepdims=True)
        shares = np.exp(joint - top)
        total = shares.sum(axis=1, keepdims=True)
        shares, persons = shares / total, (top + np.log(total))[:, 0]
        shared = shares[:, :, None] * pulls
        second = np.tensordot(shared, pulls, ([0, 1], [0, 1]))
        pulled = design.T @ shared.sum(axis=1)
        # −½ log det M, and its derivative in Σ
        rows = layout.linear[:, :, layout.discount.start : layout.temperature.stop]
        weights = self.precisions @ np.linalg.inv(np.eye(2) + parts.covariance @ self.precisions)
        weighted = weights @ rows
        about_means = np.tensordot(rows, weighted + rows / (len(rows) * WIDEST**2), ([0, 1], [0, 1]))
        restricted = np.tensordot(weighted @ np.linalg.inv(about_means), weighted, ([0, 2], [0, 2]))
        held, pull = layout.weak_priors(parts)
        gradient: Floats = np.zeros(layout.size) + sum(pull.values())
        gradient[layout.reward] += np.einsum("nq,nqd->d", shares, scores) - (model.ridge * parts.theta)[layout.free]
        gradient[layout.discount] += pulled[:, 0]
        gradient[layout.temperature] += layout.temperature_basis.T @ pulled[:, 1]
        gradient[layout.spread] += parts.in_root(second - len(design) * inverse + restricted)
        objective = float(persons.sum()) - 0.5 * float(model.ridge @ parts.theta**2) + held
        return Value(objective - 0.5 * float(np.linalg.slogdet(about_means)[1]), gradient, persons, shares)

    def moments(self, shares: Floats) -> tuple[Floats, Floats]:
        """Mean `(n,2)` and covariance `(n,2,2)` of each person's η given the decisions."""
        mean = np.einsum("nq,nqi->ni", shares, self.places)
        gaps = self.places - mean[:, None, :]
        return mean, np.einsum("nq,nqi,nqj->nij", shares, gaps, gaps)

    def mean_slopes(self, psi: Floats, shares: Floats) -> Floats:
        """The derivative `(n,2,size)` of each person's mean in ψ: `Cov(η, score of ψ)` given the decisions."""
        parts, layout = self.layout.unpack(psi), self.layout
        mean, within = self.moments(shares)
        inverse = np.linalg.inv(parts.covariance)
        slopes: Floats = within @ inverse @ layout.linear
        gaps = self.places - mean[:, None, :]
        away = (self.places - (layout.design @ parts.effects)[:, None, :]) @ inverse
        in_root = away[:, :, :, None] * (away @ parts.root)[:, :, None, :]
        entries = in_root[..., 0, 0] * parts.root[0, 0], in_root[..., 1, 0], in_root[..., 1, 1] * parts.root[1, 1]
        for part, scores in ((layout.reward, self.scores(parts.theta)), (layout.spread, np.stack(entries, axis=2))):
            slopes[:, :, part] = np.einsum("nq,nqi,nqd->nid", shares, gaps, scores, optimize=True)
        return slopes

    def scores(self, theta: Floats) -> Floats:
        """The derivatives `(n,Q,free θ)` of the log-likelihoods at the nodes."""
        choices = self._choices_at(theta)
        assert choices is not None
        return choices[1]

    def _choices_at(self, theta: Floats) -> tuple[Floats, Floats] | None:
        """`log p(decisions_i | θ, η_iq)` `(n,Q)` and its derivatives `(n,Q,free θ)`."""
        if self._theta is not None and np.array_equal(theta, self._theta):
            return self._choices
        self._theta, self._choices = theta.copy(), None
        free, shape = self.layout.free, self.log_weights.shape
        log, scores = np.empty(shape), np.zeros((*shape, free.size))
        point: Point | None = None
        for j in range(shape[1]):
            point = self.layout.plan(theta, self.places[:, j], point)
            if point is None:
                return None
            log[:, j] = self.layout.model.person_values(point)
            if free.size:
                scores[:, j] = person_scores(point)[:, free]
        self._choices = log, scores
        return self._choices


@dataclass(frozen=True, eq=False)
class Maximum:
    """Where the search ended: ψ, the value and the nodes there, J, the distance to the maximum, and the number of steps."""

    psi: Floats
    value: Value
    marginal: Marginal
    information: Floats
    persons: PersonMoments
    distance: float
    steps: int

    @property
    def finished(self) -> bool:
        """Whether nothing is left to gain: below this share of a standard error the answer counts as the maximum."""
        return self.distance <= 2e-3


def first_psi(layout: PsiLayout, reward: Floats, discounts: Floats, temperature: float) -> Floats:
    """Where the search begins, from each person's discount and one temperature for all."""
    edge = expit(-3.0)
    logits = logit(np.clip(discounts / layout.largest, edge, 1 - edge))
    return layout.pack(reward, np.array([logits.mean(), np.log(temperature)]), np.array([max(1.0, logits.std()), 0.5]))


def maximise(
    layout: PsiLayout, psi: Floats, nodes: int, tol: float = 1e-6, max_iter: int = 60, progress: Progress = silent
) -> Maximum:
    """Climb from ψ, first with few nodes."""
    near = _climb(layout, psi, modes(layout, psi), min(nodes, 7), max(tol, 0.1), min(max_iter, 15), part_of(progress, 0.0, 0.5))
    return _climb(layout, near.psi, near.persons, nodes, tol, max_iter, part_of(progress, 0.5, 1.0))


def maximum_at(start: Maximum, j: int, value: float, along: Floats) -> Maximum:
    """The maximum where ψ_j has this value, from one near by; `along` `(size,)` is how the others move with ψ_j.

    Nodes are few. They move as far as the prior moves each person's mean, and what decisions say of a person (Λ) is kept.
    """
    layout, persons = start.marginal.layout, start.persons
    move = (value - start.psi[j]) * along
    move[j] = value - start.psi[j]
    share = persons.covariance @ np.linalg.inv(layout.unpack(start.psi).covariance)
    mean = persons.mean + (share @ (layout.linear @ move)[:, :, None])[:, :, 0]
    moved = replace(persons, mean=mean, precision=start.marginal.precisions)
    return _climb(layout, start.psi + move, moved, 7, 2e-3, 60, silent, held=j)


def _climb(
    layout: PsiLayout,
    psi: Floats,
    persons: PersonMoments,
    nodes: int,
    tol: float,
    max_iter: int,
    progress: Progress,
    held: int | None = None,
) -> Maximum:
    """Newton's method from ψ, with the first nodes around `persons`; ψ_held stays where it is."""
    marginal, steps, own = Marginal(layout, persons, nodes), 0, persons.precision
    free = np.arange(layout.size) != held
    while True:
        value = marginal.at(psi)
        if value is None:
            raise ValueError("the soft values must be finite at the first parameters: check rewards and transitions")
        persons = _moved(persons, marginal, psi, value)
        matrix = information(marginal, psi, value, persons)
        step = np.zeros(layout.size)
        step[free] = spectrum_of(matrix[np.ix_(free, free)], absolute=True).solve(value.gradient[free])
        distance = float(np.sqrt(np.maximum(value.gradient @ step, 0.0)))
        progress(min(0.95, steps / 20), f"marginal log-likelihood {value.persons.sum():.2f}")
        reached = _advance(marginal, psi, value, step) if distance > tol and steps < max_iter else None
        if reached is None:
            return Maximum(psi, value, marginal, matrix, persons, distance, steps)
        psi, steps = reached[0], steps + 1
        persons = _moved(persons, marginal, *reached)
        if held is not None:
            persons = replace(persons, precision=own)
        if steps <= 15:  # after that, moving the nodes would change the integrals more than a step does
            marginal = Marginal(layout, persons, nodes)


def _moved(before: PersonMoments, marginal: Marginal, psi: Floats, value: Value) -> PersonMoments:
    """Where the nodes should be: at the moments of the quadrature. Few nodes may miss a part, so no spread shrinks at once."""
    mean, covariance = marginal.moments(value.shares)
    found = PersonMoments.under(marginal.layout.unpack(psi).covariance, mean, covariance)
    return replace(found, covariance=covariance + 0.05 * before.covariance)


def _advance(marginal: Marginal, psi: Floats, value: Value, step: Floats) -> tuple[Floats, Value] | None:
    """A share of the step that raises the objective, with the value there; None if there is none.

    Means move by at most one standard deviation between persons, and the logarithms of these by at most 0.7.
    """
    layout, parts = marginal.layout, marginal.layout.unpack(psi)
    means = np.abs(layout.linear @ step).max(axis=0) / np.sqrt(np.diag(parts.covariance))
    logs = np.abs(step[layout.spread] / np.array([1.0, parts.root[1, 1], 1.0])).max()
    share = min(1.0, 1.0 / max(float(means.max()), 1e-300), 0.7 / max(float(logs), 1e-300))
    promised = float(value.gradient @ step)
    for _ in range(12):
        reached = marginal.at(psi + share * step)
        if reached is not None and reached.objective - value.objective > 1e-4 * share * promised:
            return psi + share * step, reached
        share /= 2
    return None


def information(marginal: Marginal, psi: Floats, value: Value, persons: PersonMoments) -> Floats:
    """J `(size,size)`."""
    layout, parts = marginal.layout, marginal.layout.unpack(psi)
    matrix = np.zeros((layout.size, layout.size))
    least = np.sqrt(np.diag(parts.covariance)).min()
    for j in range(layout.free.size, layout.size):
        unit = 1.0 if j >= layout.spread.start else least
        shift = np.zeros(psi.size)
        shift[j] = 1e-2 * unit / np.sqrt(len(layout.design))  # a hundredth of a standard error
        ahead, behind = marginal.at(psi + shift), marginal.at(psi - shift)
        assert ahead is not None
        assert behind is not None
        matrix[:, j] = matrix[j, :] = -(ahead.gradient - behind.gradient) / (2 * shift[j])
    rest = slice(layout.free.size, layout.size)
    matrix[rest, rest] = (matrix[rest, rest] + matrix[rest, rest].T) / 2
    if not layout.free.size:
        return matrix
    scores = marginal.scores(parts.theta)
    gaps = scores - np.einsum("nq,nqd->nd", value.shares, scores)[:, None, :]
    in_reward = np.diag(layout.model.ridge[layout.free])
    in_reward -= np.einsum("nq,nqd,nqe->de", value.shares, gaps, gaps, optimize=True)
    coarse = Marginal(layout, persons, 3).places
    for j, weight in enumerate(standard_nodes(3)[1]):
        point = layout.plan(parts.theta, coarse[:, j])
        assert point is not None
        in_reward += weight * point.information[np.ix_(layout.free, layout.free)]
    matrix[layout.reward, layout.reward] = in_reward
    return matrix


def spectrum_of(matrix: Floats, absolute: bool = False) -> Spectrum:
    """J or a block of it, scaled to a unit diagonal; eigenvalues below 1e-7 of the largest are taken for none."""
    scale = np.sqrt(np.abs(np.diag(matrix)))
    return spectrum((matrix + matrix.T) / 2, np.where(scale > 0, scale, 1.0), tol=1e-7, absolute=absolute)


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known at the maximum.

    Attributes:
        status: whether the effects can be used.
        covariance: C, of ψ.
        shares: of the nodes given the decisions `(n,Q)`, averaged over the spread if there is an answer.
        persons: each person's η, with the errors of spread, reward and effects in the covariance.
    """

    status: Status
    covariance: Floats
    shares: Floats
    persons: PersonMoments


def posterior(found: Maximum, known: bool = True) -> Posterior:
    """What is known of ψ and of each person; `known` says whether the decisions identify anybody's discount."""
    marginal, decided = found.marginal, spectrum_of(found.information)
    covariance = decided.inverse + _transition_covariance(found, decided.inverse)
    identified = known and decided.identified()[marginal.layout.discount].all()
    status = Status.CONVERGED if identified else Status.NOT_IDENTIFIED
    if known and not found.finished:  # where nobody's discount is identified, the maximum decides nothing
        status = Status.NOT_CONVERGED
    shares = averaged_shares(found) if status == Status.CONVERGED else found.value.shares
    mean, within = marginal.moments(shares)
    moved = marginal.mean_slopes(found.psi, found.value.shares)
    errors = moved @ covariance_at_spread(found, covariance) @ moved.transpose(0, 2, 1)
    return Posterior(status, covariance, shares, PersonMoments(mean, within + errors, marginal.precisions))


def _transition_covariance(found: Maximum, covariance: Floats) -> Floats:
    """What the error of estimated transitions adds to the covariance of ψ."""
    layout, model = found.marginal.layout, found.marginal.layout.model
    if all(batch.mdp.sample_sizes is None for batch in model.batches):
        return np.zeros_like(covariance)
    rng, here, moves = np.random.default_rng(0), Marginal(layout, found.persons, 5).at(found.psi), []
    for _ in range(40):
        drawn = Likelihood(redrawn(model.problem, rng), model.settings, ridge=model.ridge)
        there = Marginal(PsiLayout(drawn, layout.design, layout.largest), found.persons, 5).at(found.psi)
        if here is not None and there is not None:
            moves.append(covariance @ (there.gradient - here.gradient))
    added: Floats = np.mean([np.outer(move, move) for move in moves], axis=0)
    return added


def averaged_shares(found: Maximum) -> Floats:
    """P̄ `(n,Q)`."""
    moves, layout = spread_moves(found), found.marginal.layout

    def log_flat(psi: Floats) -> float:
        """log f, `1 − ρ²` being the squared share of L₂₂ in the deviation of log λ."""
        root = layout.unpack(psi).root
        return float(np.log(root[0, 0]) + 2 * np.log(root[1, 1] / np.hypot(*root[1])))

    total, weight = np.zeros_like(found.value.shares), 0.0
    here = found.value.objective + log_flat(found.psi)
    rules = [np.polynomial.hermite_e.hermegauss(count) for count in (7, 5, 5)]  # log L₁₁ is known least
    for places, weights in zip(product(*(z for z, _ in rules)), product(*(w for _, w in rules)), strict=True):
        z = np.array(places)
        psi = found.psi + moves @ z
        value = found.marginal.at(psi)
        if value is not None and value.objective <= found.value.objective:
            density = float(np.prod(weights) * np.exp(value.objective + log_flat(psi) - here + 0.5 * z @ z))
            total, weight = total + density * value.shares, weight + density
    return total / weight


def spread_moves(found: Maximum) -> Floats:
    """M `(size,3)`: how ψ moves with the spread, in its standard errors, where the reward stays."""
    layout = found.marginal.layout
    rest = slice(layout.free.size, layout.size)
    along = spectrum_of(found.information[rest, rest]).inverse[:, -3:]
    variances, vectors = np.linalg.eigh(along[-3:])
    kept = variances > 1e-12 * variances.max()
    moves = np.zeros((layout.size, 3))
    moves[rest] = along @ (vectors[:, kept] / np.sqrt(variances[kept])) @ vectors[:, kept].T
    return moves


def covariance_at_spread(found: Maximum, covariance: Floats) -> Floats:
    """What is left of the covariance of ψ where the spread is given: `C − M Mᵀ`, never negative."""
    moves = spread_moves(found)
    return positive_part(covariance - moves @ moves.T)
