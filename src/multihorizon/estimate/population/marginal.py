"""The marginal likelihood of many persons whose discounts and temperatures are drawn from one population, and its maximum.

*Model.* Person i has `η_i = (logit γ_i, log λ_i) ~ N(μ_i, Σ)`, `μ_i = (X_i b, X_i c)`, and all share the reward θ. Given θ
persons are independent, and what was seen of person i has the probability

    p_i = ∫ p(decisions_i | θ, η) N(η; μ_i, Σ) dη ≈ Σ_q w_iq p(decisions_i | θ, η_iq) N(η_iq; μ_i, Σ),

by Gauss–Hermite quadrature with nodes `η_iq = m_i + C_i z_q` that are adapted to each person: m_i and `C_i C_iᵀ` are the mean and
covariance of η_i given the decisions (Naylor and Smith, 1982). What decisions say at the nodes is read from tables that all
persons share (`choice.surfaces`), so that persons cost no planning. At fixed nodes the sum is a smooth function of
`ψ = (θ, b, c, L)`, `Σ = L Lᵀ`. With P_iq the share of node q in p_i its gradient is the mean score of complete data,

    Σ_iq P_iq s_iq,    s_iq = ∂ log [p(decisions_i | θ, η_iq) N(η_iq; μ_i, Σ)] / ∂ψ,

and an error of the tables moves log p_i by `Σ_q P_iq δ_iq`. Tables are refined until that is below the tolerance for everyone.

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
  moves effects that the decisions determine by a hundredth of their standard errors. Where a whole group chooses at random, its
  temperature has no maximum either, so differences of X_i c from its mean over persons are held in the same way.
- Spread: `½ log det Σ − ½ log det(Σ + t² I) − p log det(I + Σ/s²)`, t = 0.1, p the number of terms. The first two parts keep Σ
  from collapsing to a singular matrix where the decisions allow that; they say nothing of deviations well above t (Chung and
  others, 2013, without the second part). The last part keeps Σ from running away; it says nothing of deviations well below s.
- Correlation: `log(1 − ρ²)`, ρ the correlation of logit γ and log λ (Lewandowski and others, 2009, with shape 2). It weighs as
  much as two persons who are known exactly and show no correlation. Without it a correlation that the decisions hardly determine
  ends near ±1, and then each person's temperature seems to determine their discount.

*Search.* Nodes start where the population is, and follow the mean and covariance that the quadrature itself gives. By Louis
(1982) the information about ψ is that of complete data less what is lost because η is not seen:

    J = E[−∂² log p(decisions, η)] − Var(∂ log p(decisions, η)),     both given the decisions.

In b, c and L both terms are moments of η. In θ the first is the Fisher information, and the second comes from the scores at the
nodes. A step solves `J δ = g` in the directions that J determines, is shortened until nodes that were placed for the last ψ still
hold, and halved until the objective rises. Then the nodes are placed anew. A round with few nodes comes first, and where persons
are very many, a round with some of them. The search ends when `√(gᵀJ⁻¹g)`, the distance to the maximum in standard errors, is
below `tol`. Where a finer rule would move the answer by more than 0.02 standard errors, the search goes on with that. All of it
is sums over persons, who are taken in blocks: the same blocks whoever computes them.

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

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import scipy.linalg as la
from scipy.special import expit, logit

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.choice.surfaces import Surface, Tables
from multihorizon.choice.tabular import redrawn
from multihorizon.numerics.spectrum import Spectrum, positive_part, spectrum
from multihorizon.parallel import Progress, in_parallel, part_of, silent
from multihorizon.problem import Crowd
from multihorizon.solution import Status

#: s, the size of a logit, and of a standard deviation between persons, that weak priors allow for.
WIDEST = 5.0
#: How many persons are taken together.
BLOCK = 1024
#: Where persons are more than this, some of them show the way to the maximum.
MANY = 1500
#: What decisions say at all nodes is kept if it is no more numbers than this; else tables are read again, which is cheaper.
KEPT = 20_000_000
#: What was not asked for.
NOTHING: Floats = np.zeros(0)


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
    """Where θ, b, c and L stand in ψ, and whose decisions they are to explain.

    Of θ only what is free is in ψ, of L the entries log L₁₁, L₂₁ and log L₂₂.

    Args:
        crowd: the persons.
        design: X `(n,p)`.
        reward: θ where it is known; None where it is free.
        ridge: weights `(d,)` of the penalty on θ.
        largest: the largest discount, by default that of the crowd's tasks.
        jobs: processes that share the blocks of persons.
    """

    def __init__(
        self,
        crowd: Crowd,
        design: Floats,
        reward: Floats | None,
        ridge: Floats,
        largest: float | None = None,
        jobs: int = 1,
    ) -> None:
        self.crowd, self.design, self.known, self.ridge, self.jobs = crowd, design, reward, ridge, jobs
        self.largest = largest or crowd.largest_discount
        n, p = design.shape
        self.n_reward, self.persons = crowd.n_parameters, n
        self.free: Ints = np.arange(self.n_reward if reward is None else 0)
        self.scale_is_free = reward is None and all(
            task.known_reward is None or not task.known_reward.any() for task in crowd.tasks
        )
        mean = design.mean(axis=0, keepdims=True)
        #: By which weak priors hold logits γ, and the differences of log λ between persons.
        self.squares = [rows.T @ rows / (n * WIDEST**2) for rows in (design, design - mean)]
        self.temperature_basis: Floats = la.null_space(mean) if self.scale_is_free else np.eye(p)
        sizes = np.cumsum([self.free.size, p, self.temperature_basis.shape[1], 3])
        self.reward, self.discount, self.temperature, self.spread = (
            slice(int(a), int(b)) for a, b in zip([0, *sizes[:-1]], sizes, strict=True)
        )
        self.size = int(sizes[-1])
        #: No person's log-likelihood may be off by more; the more persons, the less an effect's standard error leaves room for.
        self.tolerance = min(1e-3, 0.02 / np.sqrt(n))
        start = np.zeros(self.n_reward) if reward is None else reward
        #: The tables of the θ that was asked for last.
        self.tables = Tables(crowd.tasks, self.largest, start, self.free)
        self.counts = self.tables.counts(crowd.tasks)

    def some(self, who: Ints) -> PsiLayout:
        """The same for some of the persons, with the same tables."""
        other = copy.copy(self)
        other.crowd, other.design, other.counts, other.persons = (
            self.crowd.some(who),
            self.design[who],
            self.counts[who],
            who.size,
        )
        return other

    def unpack(self, psi: Floats) -> PsiParts:
        """The parts of ψ."""
        theta = psi[self.reward] if self.known is None else self.known
        effects = np.stack([psi[self.discount], self.temperature_basis @ psi[self.temperature]], axis=1)
        a, c, e = psi[self.spread]
        return PsiParts(theta, effects, np.array([[np.exp(a), 0.0], [c, np.exp(e)]]))

    def pack(self, theta: Floats, centre: Floats, deviations: Floats) -> Floats:
        """ψ of a reward, one centre `(2,)` for everyone, and standard deviations `(2,)`."""
        everyone = np.linalg.lstsq(self.design, np.ones(len(self.design)))[0]
        temperature = self.temperature_basis.T @ everyone * centre[1]
        spread = [np.log(deviations[0]), 0.0, np.log(deviations[1])]
        return np.concatenate([theta[self.free], everyone * centre[0], temperature, spread])

    def means_along(self, step: Floats) -> Floats:
        """How the means μ `(n,2)` move with ψ."""
        moved = np.stack([step[self.discount], self.temperature_basis @ step[self.temperature]], axis=1)
        found: Floats = self.design @ moved
        return found

    def linear(self, design: Floats) -> Floats:
        """The derivative `(n,5,size)` of the means μ of persons with these rows of X, and of the spread, in ψ."""
        found = np.zeros((len(design), 5, self.size))
        found[:, 0, self.discount] = design
        found[:, 1, self.temperature] = design @ self.temperature_basis
        found[:, [2, 3, 4], np.arange(self.spread.start, self.spread.stop)] = 1.0
        return found

    def weak_priors(self, parts: PsiParts) -> tuple[float, dict[str, Floats]]:
        """The logarithm of the weak priors, and the gradient in ψ of each."""
        pull = {name: np.zeros(self.size) for name in ("means", "spread", "correlation")}
        p, root = self.design.shape[1], parts.root
        logits, apart = (-(square @ parts.effects[:, kind]) for kind, square in enumerate(self.squares))
        pull["means"][self.discount], pull["means"][self.temperature] = logits, self.temperature_basis.T @ apart
        means = 0.5 * float(parts.effects[:, 0] @ logits + parts.effects[:, 1] @ apart)
        narrow, wide = (size**2 * np.eye(2) + parts.covariance for size in (0.1, WIDEST))
        logs = [float(np.linalg.slogdet(matrix)[1]) for matrix in (narrow, wide / WIDEST**2)]
        spread = float(np.log(np.diag(root)).sum()) - 0.5 * logs[0] - p * logs[1]
        pull["spread"][self.spread] = parts.in_root(-np.linalg.inv(narrow) - 2 * p * np.linalg.inv(wide))
        pull["spread"][[self.spread.start, self.spread.start + 2]] += 1.0
        rho, deviation = parts.correlation, np.hypot(*root[1])
        pull["correlation"][self.spread] = 2 * rho * np.array([0.0, -1 / deviation, rho])
        return means + spread + 2 * float(np.log(root[1, 1] / deviation)), pull


@dataclass(frozen=True, eq=False)
class PersonMoments:
    """Mean `(n,2)` and covariance `(n,2,2)` of each person's η given the decisions, and Λ `(n,2,2)` of the decisions alone."""

    mean: Floats
    covariance: Floats
    precision: Floats

    def of(self, who: Ints | slice) -> PersonMoments:
        """The same of some persons."""
        return PersonMoments(self.mean[who], self.covariance[who], self.precision[who])

    @classmethod
    def under(cls, prior: Floats, mean: Floats, covariance: Floats) -> PersonMoments:
        """With Λ what the decisions add to the precision of the prior `N(·, Σ)`; never negative."""
        return cls(mean, covariance, positive_part(np.linalg.inv(covariance) - np.linalg.inv(prior)))


def standard_nodes(count: int) -> tuple[Floats, Floats]:
    """Places `(Q,2)` and weights `(Q,)` for the standard normal distribution: `count` nodes for logit γ, fewer for log λ.

    Given γ, log λ is close to normal, and few nodes will do. Logit γ need not be: it may be anything above some value.
    """
    (z, w), (y, v) = (np.polynomial.hermite_e.hermegauss(n) for n in (count, min(count, max(5, count // 2 | 1))))
    return np.array([(a, b) for a in z for b in y]), np.outer(w, v).ravel() / (2 * np.pi)


@dataclass(frozen=True, eq=False)
class PersonBlock:
    """Persons who are taken together: counts `(n,rows)`, rows of X `(n,p)`, and what is known of each.

    `log` is what decisions say at the nodes `(n,Q)`, where it has been asked before.
    """

    counts: Sparse
    design: Floats
    persons: PersonMoments
    log: Floats | None = None


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of each block: ψ, with how many nodes, and whether the curvature is wanted as well.

    It holds all that a worker needs to answer, but the persons of its block. `tables` are those of ψ's θ.
    """

    tables: Tables
    layout: PsiLayout
    count: int

    def __getstate__(self) -> dict[str, Any]:
        """What travels to a worker: not the persons, who come block by block."""
        lean = object.__new__(PsiLayout)
        apart = {"crowd": None, "design": None, "counts": None, "tables": None}
        lean.__dict__.update(self.layout.__dict__ | apart)
        return {**self.__dict__, "layout": lean}

    def nodes(self, block: PersonBlock) -> tuple[Floats, Floats, int]:
        """Places `(n,Q,2)` and the logarithms of their weights `(n,Q)`, and how many places in a row have the same x."""
        grid, weights = standard_nodes(self.count)
        root = np.linalg.cholesky(block.persons.covariance)
        places = np.empty((len(root), len(grid), 2))
        for i in range(2):
            places[:, :, i] = block.persons.mean[:, i, None] + root[:, i] @ grid.T
        log_weights = np.log(2 * np.pi * weights) + 0.5 * (grid**2).sum(axis=1)
        return places, log_weights + np.log(root[:, 0, 0] * root[:, 1, 1])[:, None], np.unique(grid[:, 1]).size

    def answer(self, psi: Floats, full: bool, block: PersonBlock) -> Part | Floats:
        """The block's part of the value at ψ, with derivatives if wanted; or places η `(K,2)` for which tables are lacking."""
        layout, parts = self.layout, self.layout.unpack(psi)
        places, log_weights, inner = self.nodes(block)
        log, surface = block.log, None
        if log is None:
            lacking = self.tables.lacking(places)
            if lacking.size:
                return lacking
            surface = self.tables.surface(block.counts, places, inner)
            log = surface.log_likelihoods
        shares, persons, away = _shared(log, places, log_weights, block.design @ parts.effects, parts.root)
        off = np.zeros_like(shares) if surface is None else shares * np.abs(surface.errors)
        part = Part(
            persons=persons,
            mean=(mean := _mean(shares, places)),
            covariance=_covariance(shares, places - mean[:, None]),
            log=log if layout.persons * log.shape[1] <= KEPT else NOTHING,
            error=float(off.sum(axis=1).max()),
            cuts={} if surface is None else _cuts(surface, off, layout.tolerance),
            means=np.stack([_about_means(layout, block, root) for root in _near(parts.root, full)]),
            gradient=NOTHING,
            curvature=NOTHING,
        )
        if not full:
            return part
        rows = layout.linear(block.design)
        scores = _normal_scores(away, parts.root)
        own = _mean(shares, scores)
        gradient = np.tensordot(own, rows, ([0, 1], [0, 1]))
        scores -= own[:, None]
        known = _normal_information(_mean(shares, away), _covariance(shares, away), parts.root) - _covariance(shares, scores)
        curvature = np.tensordot(rows, known @ rows, ([0, 1], [0, 1]))
        if surface is not None and layout.free.size:
            in_theta, fisher = self.tables.scores(block.counts, places, surface, shares)
            mean_score = _mean(shares, in_theta)
            gradient[layout.reward] += mean_score.sum(axis=0)
            in_theta -= mean_score[:, None]
            shared = shares[:, :, None] * in_theta
            curvature[layout.reward, layout.reward] += fisher - np.tensordot(shared, in_theta, ([0, 1], [0, 1]))
            across = np.tensordot(_covariance(shares, in_theta, scores), rows, ([0, 2], [0, 1]))
            curvature[layout.reward] -= across
            curvature[:, layout.reward] -= across.T
        return replace(part, gradient=gradient, curvature=curvature)

    def several(self, psis: Sequence[Floats], block: PersonBlock) -> tuple[Floats, Floats]:
        """Σ log p_i at several ψ of one θ `(k,)`, and what the block adds to M there `(k,m,m)`; the tables must be prepared."""
        places, log_weights, inner = self.nodes(block)
        log = self.tables.surface(block.counts, places, inner).log_likelihoods if block.log is None else block.log
        every = [self.layout.unpack(psi) for psi in psis]
        shared = (_shared(log, places, log_weights, block.design @ parts.effects, parts.root) for parts in every)
        means = np.stack([_about_means(self.layout, block, parts.root) for parts in every])
        return np.array([persons.sum() for _, persons, _ in shared]), means


@dataclass(frozen=True, eq=False)
class Part:
    """What a block adds to the value.

    Attributes:
        persons, mean, covariance: of each person: log p_i, and mean and covariance of η given the decisions.
        log: what decisions say at the nodes `(n,Q)`; empty where that is too much to keep.
        error: the largest error of a person's log p_i because of the tables.
        cuts: patches that cause it, and the side along which to cut them.
        means: what the block adds to M, at Σ and around it `(k,m,m)`.
        gradient, curvature: in ψ, of the sum of log p_i; empty where they were not asked for.
    """

    persons: Floats
    mean: Floats
    covariance: Floats
    log: Floats
    error: float
    cuts: dict[int, int]
    means: Floats
    gradient: Floats
    curvature: Floats


def _shared(log: Floats, places: Floats, log_weights: Floats, means: Floats, root: Floats) -> tuple[Floats, Floats, Floats]:
    """Shares P `(n,Q)`, log p_i `(n,)`, and how far nodes are from the mean in standard units, `L⁻¹ (η − μ)` `(n,Q,2)`."""
    away = places - means[:, None]
    away[:, :, 0] /= root[0, 0]
    away[:, :, 1] = (away[:, :, 1] - root[1, 0] * away[:, :, 0]) / root[1, 1]
    joint = log + log_weights - 0.5 * (away**2).sum(axis=2) - np.log(2 * np.pi * root[0, 0] * root[1, 1])
    top = joint.max(axis=1, keepdims=True)
    shares = np.exp(joint - top)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return shares, (top + np.log(total))[:, 0], away


def _mean(shares: Floats, values: Floats) -> Floats:
    """The means `(n,k)` of values `(n,Q,k)`."""
    found: Floats = (shares[:, None, :] @ values)[:, 0]
    return found


def _covariance(shares: Floats, gaps: Floats, others: Floats | None = None) -> Floats:
    """The covariances `(n,k,l)` of values whose gaps to their means are `(n,Q,k)` and `(n,Q,l)`."""
    found: Floats = (shares[:, :, None] * gaps).transpose(0, 2, 1) @ (gaps if others is None else others)
    return found


def _cuts(surface: Surface, off: Floats, tolerance: float) -> dict[int, int]:
    """The patches in which some person's places are off by too much, and along which side."""
    wrong = np.flatnonzero(off.ravel() > 0.2 * tolerance)
    order = wrong[np.argsort(off.ravel()[wrong])]  # the largest comes last, and decides the side
    sides = np.where(surface.errors.ravel()[order] > 0, 0, 1)
    return dict(zip(surface.patches.ravel()[order].tolist(), sides.tolist(), strict=True))


def _normal_scores(away: Floats, root: Floats) -> Floats:
    """∂ log N(η; μ, Σ) `(n,Q,5)` in μ₁, μ₂, log L₁₁, L₂₁ and log L₂₂, where `L⁻¹ (η − μ)` is `(n,Q,2)`."""
    first, second, tilt = away[:, :, 0], away[:, :, 1], root[1, 0] / root[1, 1]
    found = np.empty((*away.shape[:2], 5))
    found[:, :, 0] = (first - tilt * second) / root[0, 0]
    found[:, :, 1] = second / root[1, 1]
    found[:, :, 2] = first**2 - tilt * first * second - 1
    found[:, :, 3] = first * second / root[1, 1]
    found[:, :, 4] = second**2 - 1
    return found


def _normal_information(mean: Floats, squares: Floats, root: Floats) -> Floats:
    """The mean of `−∂² log N` `(n,5,5)` in the same five, from the means `(n,2)` and the mean products of `L⁻¹ (η − μ)`."""
    (u, v), (uu, uv, vv) = mean.T, squares.reshape(-1, 4)[:, [0, 1, 3]].T
    a, b, t = 1 / root[0, 0], 1 / root[1, 1], root[1, 0] / root[1, 1]
    one, none = np.ones_like(u), np.zeros_like(u)
    upper = [
        [a**2 * (1 + t**2) * one, -t * a * b * one, a * ((2 + t**2) * u - t * v), a * b * (v - t * u), -2 * t * a * v],
        [none, b**2 * one, -t * b * u, b**2 * u, 2 * b * v],
        [none, none, (2 + t**2) * uu - t * uv, b * (uv - t * uu), -2 * t * uv],
        [none, none, none, b**2 * uu, 2 * b * uv],
        [none, none, none, none, 2 * vv],
    ]
    found = np.array(upper).transpose(2, 0, 1)
    return found + np.triu(found, 1).transpose(0, 2, 1)


#: The step of differences in the spread.
STEP = 1e-3


def _near(root: Floats, full: bool) -> list[Floats]:
    """L, and if wanted those by which `−½ log det M` is differentiated: each entry up, each down, pairs up, pairs down."""

    def moved(step: Floats) -> Floats:
        return np.array([[root[0, 0] * np.exp(step[0]), 0.0], [root[1, 0] + step[1], root[1, 1] * np.exp(step[2])]])

    unit = STEP * np.eye(3)
    pairs = [unit[0] + unit[1], unit[0] + unit[2], unit[1] + unit[2]]
    return [root, *(moved(sign * step) for steps in (unit, pairs) for sign in (1, -1) for step in steps)] if full else [root]


def _about_means(layout: PsiLayout, block: PersonBlock, root: Floats) -> Floats:
    """What persons add to M `(m,m)`, the information about (b, c), where Σ = L Lᵀ."""
    design, warm = block.design, block.design @ layout.temperature_basis
    # W = (Λ⁻¹ + Σ)⁻¹ = (Λ + |Λ| |Σ| Σ⁻¹)/(1 + tr ΣΛ + |Λ| |Σ|), which needs no inverse of Λ
    own, prior = block.persons.precision, root @ root.T
    size = np.linalg.det(own)
    below = 1 + np.einsum("nij,ij->n", own, prior) + size * np.linalg.det(prior)
    first, second = own[:, 0, 0] + size * prior[1, 1], own[:, 1, 1] + size * prior[0, 0]
    least = 1 / (WIDEST**2 * layout.persons)
    near = design.T @ ((first / below + least)[:, None] * design)
    across = design.T @ (((own[:, 0, 1] - size * prior[0, 1]) / below)[:, None] * warm)
    far = warm.T @ ((second / below + least)[:, None] * warm)
    return np.block([[near, across], [across.T, far]])


@dataclass(frozen=True, eq=False)
class Value:
    """The marginal likelihood at one ψ.

    Attributes:
        objective: what is maximised.
        persons: log p_i `(n,)`.
        mean, covariance: of each person's η given the decisions.
        error: the largest error of a person's log p_i because of the tables.
        gradient, information: g and J in ψ; empty where they were not asked for.
    """

    objective: float
    persons: Floats
    mean: Floats
    covariance: Floats
    error: float
    gradient: Floats
    information: Floats


class Marginal:
    """The marginal likelihood at fixed nodes, `count` of them for logit γ, around what is known of each person."""

    def __init__(self, layout: PsiLayout, persons: PersonMoments, count: int) -> None:
        self.layout, self.persons, self.count = layout, persons, count
        #: What is kept for the θ that was asked for last: what decisions say at the nodes, block by block, and its error.
        self._theta, self._logs, self._error = NOTHING, list[Floats](), 0.0

    def at(self, psi: Floats, full: bool = True) -> Value | None:
        """The value at ψ, with derivatives if wanted; None where soft values are infinite."""
        layout, parts = self.layout, self.layout.unpack(psi)
        found = self._answers(psi, full)
        if found is None:
            return None
        held, pull = layout.weak_priors(parts)
        persons, mean, covariance = (
            np.concatenate([getattr(f, name) for f in found]) for name in ("persons", "mean", "covariance")
        )
        logs = -0.5 * np.linalg.slogdet(sum(f.means for f in found))[1]
        objective = float(persons.sum()) - 0.5 * float(layout.ridge @ parts.theta**2) + held + float(logs[0])
        error = max(self._error, *(f.error for f in found))
        if not full:
            return Value(objective, persons, mean, covariance, error, NOTHING, NOTHING)
        gradient: Floats = np.sum([*(f.gradient for f in found), *pull.values()], axis=0)
        gradient[layout.reward] -= (layout.ridge * parts.theta)[layout.free]
        gradient[layout.spread] += (logs[1:4] - logs[4:7]) / (2 * STEP)
        information: Floats = np.sum([f.curvature for f in found], axis=0)
        information[layout.reward, layout.reward] += np.diag(layout.ridge[layout.free])
        information -= _weak_curvature(layout, psi)
        information[layout.spread, layout.spread] -= _second(logs)
        return Value(objective, persons, mean, covariance, error, gradient, information)

    def logs(self, psi: Floats) -> Floats:
        """What decisions say at the nodes `(n,Q)`."""
        found = self._answers(psi, False)
        if found is None:
            raise ValueError("the soft values must be finite at the first parameters: check rewards and transitions")
        return np.concatenate([part.log for part in found])

    def objectives(self, psis: Sequence[Floats]) -> Floats:
        """The objective at several ψ of one θ."""
        layout, every = self.layout, [self.layout.unpack(psi) for psi in psis]
        found = asked(partial(self.prepared(psis[0]).several, psis), self.blocks(), layout.jobs)
        total = sum(each for each, _ in found)
        logs = np.linalg.slogdet(sum(means for _, means in found))[1]
        held = [layout.weak_priors(parts)[0] - 0.5 * float(layout.ridge @ parts.theta**2) for parts in every]
        objectives: Floats = total - 0.5 * logs + held
        return objectives

    def blocks(self) -> list[PersonBlock]:
        """The persons, in the same blocks whoever computes them."""
        layout, persons = self.layout, self.persons
        parts = [slice(low, low + BLOCK) for low in range(0, len(layout.design), BLOCK)]
        return [
            PersonBlock(layout.counts[p], layout.design[p], persons.of(p), self._logs[i] if self._logs else None)
            for i, p in enumerate(parts)
        ]

    def prepared(self, psi: Floats) -> Question:
        """What is asked of blocks at ψ, with tables that are prepared: a trial of another θ may have been the last."""
        theta = self.layout.unpack(psi).theta
        if not np.array_equal(theta, self.layout.tables.theta):
            self._answers(psi, False)
        return self.question(theta)

    def question(self, theta: Floats) -> Question:
        """What is asked of blocks at this θ."""
        if not np.array_equal(theta, self._theta):
            self._theta, self._logs, self._error = theta.copy(), [], 0.0
        self.layout.tables = self.layout.tables.at(theta)
        return Question(self.layout.tables, self.layout, self.count)

    def _answers(self, psi: Floats, full: bool) -> list[Part] | None:
        """All parts, from tables that are fine enough wherever patches can still be cut."""
        question, blocks = self.question(self.layout.unpack(psi).theta), self.blocks()
        tables, found = question.tables, dict[int, Part]()
        todo = list(range(len(blocks)))
        while todo:
            answers = asked(partial(question.answer, psi, full), [blocks[i] for i in todo], self.layout.jobs)
            again, lacking, cuts = [], [], dict[int, int]()
            for i, answer in zip(todo, answers, strict=True):
                if isinstance(answer, Part):
                    found[i] = answer
                    cuts |= answer.cuts if answer.error > self.layout.tolerance else {}
                else:
                    lacking.append(answer)
                    again.append(i)
            if not tables.prepare(np.concatenate([tables.patches.of(eta) for eta in lacking]) if lacking else np.zeros(0, int)):
                return None
            cut = tables.cut(cuts)
            if cut is None:
                return None
            if cut:
                again += [i for i in todo if i in found and found[i].error > self.layout.tolerance]
            todo = sorted(set(again))
        every = [found[i] for i in range(len(blocks))]
        if not self._logs and not self.layout.free.size and every[0].log.size:  # derivatives in θ need the surfaces again
            self._logs, self._error = [part.log for part in every], max(part.error for part in every)
        return every


def asked(ask: Any, blocks: Sequence[PersonBlock], jobs: int) -> list[Any]:
    """The answers of all blocks. Several blocks travel together, because what is asked travels with them, and few stay here."""
    together, jobs = -(-len(blocks) // 16), jobs if len(blocks) >= 4 else 1
    groups = [blocks[low : low + together] for low in range(0, len(blocks), together)]
    return [answer for answers in in_parallel(partial(_each, ask), groups, jobs) for answer in answers]


def _each(ask: Any, blocks: Sequence[PersonBlock]) -> list[Any]:
    return [ask(block) for block in blocks]


def _weak_curvature(layout: PsiLayout, psi: Floats) -> Floats:
    """The second derivatives `(size,size)` of the weak priors, by differences."""
    found = np.zeros((layout.size, layout.size))
    for j in range(layout.free.size, layout.size):
        step = 1e-4 * (np.arange(layout.size) == j)
        ahead, behind = (sum(layout.weak_priors(layout.unpack(psi + sign * step))[1].values()) for sign in (1, -1))
        found[:, j] = (ahead - behind) / 2e-4
    return (found + found.T) / 2


def _second(logs: Floats) -> Floats:
    """The second derivatives `(3,3)` from values at the places of `_near`."""
    here, up, down, both_up, both_down = logs[0], logs[1:4], logs[4:7], logs[7:10], logs[10:13]
    found = np.diag((up - 2 * here + down) / STEP**2)
    for place, (j, k) in enumerate(((0, 1), (0, 2), (1, 2))):
        apart = both_up[place] - up[j] - up[k] + 2 * here - down[j] - down[k] + both_down[place]
        found[j, k] = found[k, j] = apart / (2 * STEP**2)
    return found


@dataclass(frozen=True, eq=False)
class Maximum:
    """Where the search ended: ψ, the value and the nodes there, the distance to the maximum, and the number of steps."""

    psi: Floats
    value: Value
    marginal: Marginal
    persons: PersonMoments
    distance: float
    steps: int

    @property
    def finished(self) -> bool:
        """Whether nothing is left to gain: below this share of a standard error the answer counts as the maximum."""
        return self.distance <= 2e-3


def first_psi(layout: PsiLayout, reward: Floats, discounts: Floats, temperature: float) -> Floats:
    """Where the search begins, from some persons' discounts and one temperature for all."""
    edge = expit(-3.0)
    logits = logit(np.clip(discounts / layout.largest, edge, 1 - edge))
    return layout.pack(reward, np.array([logits.mean(), np.log(temperature)]), np.array([max(1.0, logits.std()), 0.5]))


def modes(layout: PsiLayout, psi: Floats) -> PersonMoments:
    """The mode of each person's η under the population ψ, and the curvature there.

    Newton's method in standard units of the population, from the best of nine places. Slopes and curvatures come from the
    surfaces at nine places around each person, which are half as far apart as the mode is known well.
    """
    parts, n = layout.unpack(psi), len(layout.design)
    centre, root = layout.design @ parts.effects, parts.root
    grid = standard_nodes(3)[0] / np.sqrt(3)

    def around(who: Ints, z: Floats, apart: Floats) -> Floats:
        """What is maximised `(m,3,3)`, at places so far apart around z."""
        near = (apart**2 / 3)[:, None, None] * parts.covariance
        persons = PersonMoments(centre[who] + z @ root.T, near, np.zeros((who.size, 2, 2)))
        few = layout if who.size == n else layout.some(who)
        places = z[:, None, :] + apart[:, None, None] * grid
        value: Floats = Marginal(few, persons, 3).logs(psi) - 0.5 * (places**2).sum(axis=2)
        return value.reshape(-1, 3, 3)

    everyone = np.arange(n)
    first = around(everyone, np.zeros((n, 2)), np.full(n, 2.0)).reshape(n, 9).argmax(axis=1)
    z, step, who = 2.0 * grid[first], np.zeros((n, 2)), everyone
    best, damping, apart = np.full(n, -np.inf), np.zeros(n), np.full(n, 0.25)
    slope, curvature = np.zeros((n, 2)), np.zeros((n, 2, 2))
    for _ in range(60):
        value, d = around(who, z[who] + step[who], apart[who]), apart[who, None]
        better = value[:, 1, 1] >= best[who]
        on, off = who[better], who[~better]
        v, d = value[better], d[better]
        z[on], best[on], damping[on], damping[off] = z[on] + step[on], v[:, 1, 1], damping[on] / 4, 4 * damping[off] + 1
        slope[on] = np.stack([v[:, 2, 1] - v[:, 0, 1], v[:, 1, 2] - v[:, 1, 0]], axis=1) / (2 * d)
        across = (v[:, 2, 2] - v[:, 2, 0] - v[:, 0, 2] + v[:, 0, 0]) / 4
        sides = v[:, 2, 1] + v[:, 0, 1] - 2 * v[:, 1, 1], v[:, 1, 2] + v[:, 1, 0] - 2 * v[:, 1, 1]
        bent = np.stack([sides[0], across, across, sides[1]], axis=1).reshape(-1, 2, 2)
        curvature[on] = positive_part(-bent / d[:, :, None] ** 2, 0.2)
        apart[on] = np.clip(0.5 / np.sqrt(np.trace(curvature[on], axis1=1, axis2=2)), 1e-3, 0.5)
        damped = curvature[who] + damping[who, None, None] * np.eye(2)
        step[who] = np.linalg.solve(damped, slope[who][:, :, None])[:, :, 0]
        step[who] /= np.maximum(1.0, np.abs(step[who]).max(axis=1, keepdims=True))
        left = (step[who][:, None, :] @ curvature[who] @ step[who][:, :, None])[:, 0, 0]
        who = who[left > 0.1**2]
        if not who.size:
            break
    covariance = root @ np.linalg.inv(curvature) @ root.T
    return PersonMoments.under(parts.covariance, centre + z @ root.T, covariance)


def maximise(
    layout: PsiLayout, psi: Floats, nodes: int | None, tol: float = 1e-6, max_iter: int = 60, progress: Progress = silent
) -> Maximum:
    """Climb from ψ, first with few nodes, and where persons are very many, first with some of them.

    Unless it is said how many `nodes` there are in the end, they are 15, and more where these are too few.
    """
    more = (25, 41) if nodes is None else ()
    nodes = nodes or 15
    n = len(layout.design)
    if n > MANY:
        sample = layout.some(np.linspace(0, n - 1, max(MANY // 3, n // 20)).astype(np.int64))
        psi = maximise(sample, psi, 7, 0.1, max_iter, part_of(progress, 0.0, 0.2)).psi
        persons = modes(layout, psi)
        value = Marginal(layout, persons, 7).at(psi, full=False)
        assert value is not None
        persons = _moved(persons, layout.unpack(psi).covariance, value)
    else:
        few, rough = min(nodes, 7), max(tol, 0.1)
        near = _climb(layout, psi, modes(layout, psi), few, rough, min(max_iter, 15), part_of(progress, 0.0, 0.5))
        psi, persons = near.psi, near.persons
    found = _climb(layout, psi, persons, nodes, tol, max_iter, part_of(progress, 0.5, 0.8))
    for finer in more:
        if not found.finished or _off(found, finer) < 0.02:
            break
        found = _climb(layout, found.psi, found.persons, finer, tol, max_iter, part_of(progress, 0.8, 1.0))
    return found


def _off(found: Maximum, finer: int) -> float:
    """How far the maximum is, in standard errors, from that with so many nodes; of very many persons, some are asked.

    Standard errors are those of at most 20,000 persons: with a million, a hundredth of one is of no interest any more.
    """
    layout, persons = found.marginal.layout, found.persons
    n = len(layout.design)
    if n > MANY:
        who = np.linspace(0, n - 1, MANY // 3).astype(np.int64)
        layout, persons = layout.some(who), persons.of(who)
    with_more, with_these = (Marginal(layout, persons, count).at(found.psi) for count in (finer, found.marginal.count))
    assert with_more is not None
    assert with_these is not None
    apart = (with_more.gradient - with_these.gradient) * n / len(layout.design)
    along = float(apart @ spectrum_of(found.value.information, absolute=True).solve(apart))
    return float(np.sqrt(max(along, 0.0) * min(1.0, 20_000 / n)))


def maximum_at(start: Maximum, j: int, value: float, along: Floats) -> Maximum:
    """The maximum where ψ_j has this value, from one near by; `along` `(size,)` is how the others move with ψ_j.

    Nodes are few. They move as far as the prior moves each person's mean, and what decisions say of a person (Λ) is kept.
    """
    layout, persons = start.marginal.layout, start.persons
    move = (value - start.psi[j]) * along
    move[j] = value - start.psi[j]
    share = persons.covariance @ np.linalg.inv(layout.unpack(start.psi).covariance)
    mean = persons.mean + (share @ layout.means_along(move)[:, :, None])[:, :, 0]
    moved = replace(persons, mean=mean, precision=start.marginal.persons.precision)
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
    own, free = persons.precision, np.arange(layout.size) != held
    marginal, steps, last, placed = Marginal(layout, persons, nodes), 0, np.inf, psi
    # Very many persons determine ψ so well that steps of ten standard errors are sure, and hardly move the nodes.
    at_hand, still = (10.0, 0.15) if len(layout.design) > MANY else (0.0, 0.0)
    while True:
        value = marginal.at(psi)
        if value is None:
            raise ValueError("the soft values must be finite at the first parameters: check rewards and transitions")
        persons = _moved(persons, layout.unpack(psi).covariance, value)
        step = np.zeros(layout.size)
        step[free] = spectrum_of(value.information[np.ix_(free, free)], absolute=True).solve(value.gradient[free])
        distance = float(np.sqrt(np.maximum(value.gradient @ step, 0.0)))
        progress(min(0.95, steps / 20), f"marginal log-likelihood {value.persons.sum():.2f}")
        stays = distance <= tol or steps >= max_iter
        if distance <= at_hand and distance < 0.5 * last and not stays:  # the maximum is at hand, and each step comes nearer
            psi, last = psi + step, distance
        else:
            reached = None if stays else _advance(marginal, psi, value, step)
            if reached is None:
                return Maximum(psi, value, marginal, persons, distance, steps)
            psi = reached[0]
            persons = _moved(persons, layout.unpack(psi).covariance, reached[1])
        steps += 1
        if held is not None:
            persons = replace(persons, precision=own)
        # Late and small moves of the nodes would change the integrals more than the step does.
        if _size(layout, placed, psi - placed) > (still if steps <= 15 else 0.3):
            if steps > 3:  # nodes that go halfway do not swing from one set of places to another and back
                mean, covariance = marginal.persons.mean + persons.mean, marginal.persons.covariance + persons.covariance
                persons = replace(persons, mean=mean / 2, covariance=covariance / 2)
            marginal, placed = Marginal(layout, persons, nodes), psi


def _moved(before: PersonMoments, prior: Floats, value: Value) -> PersonMoments:
    """Where the nodes should be: at the moments of the quadrature. Few nodes may miss a part, so no spread shrinks at once."""
    found = PersonMoments.under(prior, value.mean, value.covariance + 1e-9 * before.covariance)
    return replace(found, covariance=value.covariance + 0.05 * before.covariance)


def _size(layout: PsiLayout, psi: Floats, step: Floats) -> float:
    """How far a step moves anyone's mean, in standard deviations between persons, or the logarithms of these, in 0.7."""
    parts = layout.unpack(psi)
    means = np.abs(layout.means_along(step)).max(axis=0) / np.sqrt(np.diag(parts.covariance))
    logs = np.abs(step[layout.spread] / np.array([1.0, parts.root[1, 1], 1.0])).max() / 0.7
    return float(max(means.max(), logs))


def _advance(marginal: Marginal, psi: Floats, value: Value, step: Floats) -> tuple[Floats, Value] | None:
    """A share of the step that raises the objective, with the value there; None if there is none.

    Means move by at most one standard deviation between persons, and the logarithms of these by at most 0.7.
    """
    share = min(1.0, 1.0 / max(_size(marginal.layout, psi, step), 1e-300))
    promised = float(value.gradient @ step)
    for _ in range(12):
        reached = marginal.at(psi + share * step, full=False)
        if reached is not None and reached.objective - value.objective > 1e-4 * share * promised:
            return psi + share * step, reached
        share /= 2
    return None


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
        persons: each person's η, with the errors of spread, reward and effects in the covariance.
        discounts, errors: each person's mean discount and its standard deviation `(n,)`.
    """

    status: Status
    covariance: Floats
    persons: PersonMoments
    discounts: Floats
    errors: Floats


def posterior(found: Maximum, known: bool = True) -> Posterior:
    """What is known of ψ and of each person; `known` says whether the decisions identify anybody's discount."""
    marginal, decided = found.marginal, spectrum_of(found.value.information)
    covariance = decided.inverse + _transition_covariance(found, decided.inverse)
    identified = known and decided.identified()[marginal.layout.discount].all()
    status = Status.CONVERGED if identified else Status.NOT_IDENTIFIED
    if known and not found.finished:  # where nobody's discount is identified, the maximum decides nothing
        status = Status.NOT_CONVERGED
    spreads = [(1.0, found.psi)]
    left = covariance
    if status == Status.CONVERGED:
        spreads, left = likely_spreads(found), covariance_at_spread(found, covariance)
    question = marginal.prepared(found.psi)
    parts = asked(partial(person_answers, question, found.psi, spreads, left), marginal.blocks(), marginal.layout.jobs)
    mean, wide, discounts, errors = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Posterior(status, covariance, PersonMoments(mean, wide, marginal.persons.precision), discounts, errors)


def person_answers(
    question: Question, psi: Floats, spreads: Sequence[tuple[float, Floats]], left: Floats, block: PersonBlock
) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean `(n,2)` and covariance `(n,2,2)` of η, and mean and deviation `(n,)` of γ, with shares averaged over spreads.

    `left` is the covariance of ψ where the spread is given.
    """
    layout = question.layout
    places, log_weights, inner = question.nodes(block)
    surface = question.tables.surface(block.counts, places, inner) if block.log is None or layout.free.size else None
    log = block.log if surface is None else surface.log_likelihoods
    assert log is not None

    def shares_at(psi: Floats) -> tuple[Floats, Floats]:
        parts = layout.unpack(psi)
        means = block.design @ parts.effects
        shares, _, away = _shared(log, places, log_weights, means, parts.root)
        return shares, away

    shares = np.sum([weight * shares_at(each)[0] for weight, each in spreads], axis=0)
    mean = _mean(shares, places)
    within = _covariance(shares, places - mean[:, None])
    # the derivative (n,2,size) of each person's mean in ψ: Cov(η, score of ψ) given the decisions
    likely, away = shares_at(psi)
    gaps = places - _mean(likely, places)[:, None]
    slopes = _covariance(likely, gaps, _normal_scores(away, layout.unpack(psi).root)) @ layout.linear(block.design)
    if surface is not None and layout.free.size:
        in_theta, _ = question.tables.scores(block.counts, places, surface, likely)
        slopes[:, :, layout.reward] += _covariance(likely, gaps, in_theta)
    wide = within + slopes @ left @ slopes.transpose(0, 2, 1)
    gammas = layout.largest * expit(places[:, :, 0])
    discounts = np.minimum((shares * gammas).sum(axis=1), layout.largest)
    variances = (shares * (gammas - discounts[:, None]) ** 2).sum(axis=1)
    return mean, wide, discounts, np.sqrt(variances * wide[:, 0, 0] / within[:, 0, 0])


def _transition_covariance(found: Maximum, covariance: Floats) -> Floats:
    """What the error of estimated transitions adds to the covariance of ψ."""
    layout = found.marginal.layout
    if all(task.mdp.sample_sizes is None for task in layout.crowd.tasks):
        return np.zeros_like(covariance)
    rng, here, moves = np.random.default_rng(0), Marginal(layout, found.persons, 5).at(found.psi), []
    for _ in range(40):
        drawn = layout.crowd.in_tasks(partial(redrawn, rng=rng))
        again = PsiLayout(drawn, layout.design, layout.known, layout.ridge, layout.largest, layout.jobs)
        again.tables.patches = layout.tables.patches
        there = Marginal(again, found.persons, 5).at(found.psi)
        if here is not None and there is not None:
            moves.append(covariance @ (there.gradient - here.gradient))
    added: Floats = np.mean([np.outer(move, move) for move in moves], axis=0)
    return added


def likely_spreads(found: Maximum) -> list[tuple[float, Floats]]:
    """The ψ_k with their weights, which sum to 1: only ψ̂ where the spread is known so well that others change nothing."""
    moves, layout = spread_moves(found), found.marginal.layout
    deviations = np.linalg.norm(moves[layout.spread], axis=1) / [1.0, layout.unpack(found.psi).root[1, 1], 1.0]
    if deviations.max() < 0.05:
        return [(1.0, found.psi)]

    def log_flat(psi: Floats) -> float:
        """log f, `1 − ρ²` being the squared share of L₂₂ in the deviation of log λ."""
        root = layout.unpack(psi).root
        return float(np.log(root[0, 0]) + 2 * np.log(root[1, 1] / np.hypot(*root[1])))

    # log L₁₁ is known least; what is known well needs few places
    rules = [np.polynomial.hermite_e.hermegauss(count) for count in ((7, 5, 5) if deviations.max() > 0.2 else (3, 3, 3))]
    z = np.array(list(product(*(places for places, _ in rules))))
    weights = np.array([np.prod(each) for each in product(*(w for _, w in rules))])
    psis = [found.psi + moves @ each for each in z]
    values = found.marginal.objectives(psis)
    here = found.value.objective + log_flat(found.psi)
    flat = np.array([log_flat(psi) for psi in psis])
    density = weights * np.exp(np.minimum(values + flat - here + 0.5 * (z**2).sum(axis=1), 700.0))
    density = np.where(values <= found.value.objective, density, 0.0)
    return [(float(d), psi) for d, psi in zip(density / density.sum(), psis, strict=True) if d > 0]


def spread_moves(found: Maximum) -> Floats:
    """M `(size,3)`: how ψ moves with the spread, in its standard errors, where the reward stays."""
    layout = found.marginal.layout
    rest = slice(layout.free.size, layout.size)
    along = spectrum_of(found.value.information[rest, rest]).inverse[:, -3:]
    variances, vectors = np.linalg.eigh(along[-3:])
    kept = variances > 1e-12 * variances.max()
    moves = np.zeros((layout.size, 3))
    moves[rest] = along @ (vectors[:, kept] / np.sqrt(variances[kept])) @ vectors[:, kept].T
    return moves


def covariance_at_spread(found: Maximum, covariance: Floats) -> Floats:
    """What is left of the covariance of ψ where the spread is given: `C − M Mᵀ`, never negative."""
    moves = spread_moves(found)
    return positive_part(covariance - moves @ moves.T)
