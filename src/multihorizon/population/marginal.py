"""The marginal likelihood of many people whose discounts and temperatures are drawn from one population, and its maximum.

*Model.* Person i was seen under conditions j, their *cells*. In each they have

    η_ij = (logit γ_ij, log λ_ij) = X_ij β + Z_ij u_i,    u_i ~ N(0, Σ),

with `β = (b, c)` the effects on logit γ and on log λ, and all share the reward θ. Where a person has one cell and Z is 1, this
is `η_i ~ N(X_i β, Σ)`. With Z of q columns u has D = 2q entries: the first term's part in logit γ and in log λ, then the next
one's.

What of X_ij β a person's own u could say as well is put into it: `A_i` is the least-squares solution of `Z_i A_i = X_i` over the
person's cells, R the rest, and `v_i = A_i β + u_i`. So `η_ij = Z_ij v_i + R_ij β`. Given θ people are independent, and what was
seen of person i has the probability

    p_i = ∫ Π_j p(decisions_ij | θ, η_ij) N(v; A_i β, Σ) dv ≈ Σ_q w_iq Π_j p(decisions_ij | θ, η_ijq) N(v_iq; A_i β, Σ),

by Gauss–Hermite quadrature with nodes `v_iq = m_i + C_i z_q` that are adapted to each person: m_i and `C_i C_iᵀ` are the mean
and covariance of v_i given the decisions (Naylor and Smith, 1982). In more than two dimensions grids have fewer nodes; what a
finer rule would change is measured all the same. What decisions say at the nodes is read from tables that all people share
(`choice.surfaces`), so that people cost no planning. At fixed nodes the sum is a smooth function of `ψ = (θ, b, c, L)`, `Σ = L
Lᵀ`. With P_iq the share of node q in p_i its gradient is the mean score of complete data,

    Σ_iq P_iq s_iq,    s_iq = ∂ log [p(decisions_i | θ, v_iq, β) N(v_iq; A_i β, Σ)] / ∂ψ,

and an error of the tables moves log p_i by `Σ_q P_iq δ_iq`. Tables are refined until that is below the tolerance for everyone.

If no state can go on forever, `γ = 1/(1+exp(−η))`; elsewhere it is multiplied by `ENDLESS_DISCOUNT`. Where nothing sets the
scale of the reward, the mean of `X_ij c` over cells is held at 0, as the mean log-temperature is in maximum likelihood.

*Means that were estimated.* The most likely Σ is too small, because the means were fitted to the same people. As in restricted
maximum likelihood, `−½ log det M` is added, M the information about (b, c):

    M = Σ_i X_iᵀ W_i X_i + Σ_ij X_ijᵀ X_ij/(m s²),    W_i = (Λ_i^{-1} + Z_i Σ Z_iᵀ)^{-1},

X_i the derivative of all η of person i, Λ_i the precision with which the decisions in each cell alone determine its η, m the
number of cells, and s that of the weak priors. With people known well M divides sums of squares by n − p.

*Weak priors* hold what the decisions leave open. With C the covariance of ψ and g the gradient of a prior, the maximum without
that prior is about `C g` away; the solution says where that matters.

- Means: where every person of a group may as well have γ = 1, no maximum exists: logit γ beyond ±5 all choose alike. So `−½ Σ_ij
  (X_ij b)²/(m s²)`, s = `WIDEST`, is added: it weighs as much as one person at logit 0 whose logit is known to ±s, and moves
  effects that the decisions determine by a hundredth of their standard errors. Where a whole group chooses at random, its
  temperature has no maximum either, so differences of X_ij c from its mean over cells are held in the same way.
- Spread: `½ log det Σ − ½ log det(Σ + t² I) − p log det(I + Σ/s²)`, t = 0.1, p the number of terms. The first two parts keep Σ
  from collapsing to a singular matrix where the decisions allow that; they say nothing of deviations well above t (Chung and
  others, 2013, without the second part). The last part keeps Σ from running away; it says nothing of deviations well below s.
- Correlation: `log(1 − ρ²)`, ρ the correlation of logit γ and log λ, and in more dimensions the logarithm of the determinant of
  all correlations (Lewandowski and others, 2009, with shape 2). It weighs as much as two people who are known exactly and show
  no correlation. Without it a correlation that the decisions hardly determine ends near ±1, and then each person's temperature
  seems to determine their discount.

*Rewards that are nearly shared.* Where person i has the reward θ + δ_i, `δ_i ~ N(0, V)`, V = τ² W, all that is said of
p(decisions_i | θ, v) holds for its mean over δ_i, by Laplace's method (`choice.deviations`). The gradient in θ is exact. In J
the score in θ is taken for `V⁻¹ δ̂`, and the information for `(I⁻¹ + V)⁻¹`. τ is held here, and found in `maximum`.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations, product
from operator import attrgetter
from typing import Any

import numpy as np
import scipy.linalg as la
from scipy.special import expit, logit

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.choice.deviations import OwnRewards, own_rewards, states_visited
from multihorizon.choice.plans import SOFT, Choosing
from multihorizon.choice.surfaces import Surface, Tables
from multihorizon.numerics.distributions import normal_nodes
from multihorizon.numerics.newton import Local, maximize_many
from multihorizon.numerics.spectrum import positive_part
from multihorizon.parallel import in_parallel, limits
from multihorizon.problem import Problem

#: s, the size of a logit, and of a standard deviation between people, that weak priors allow for.
WIDEST = 5.0
#: What was not asked for.
NOTHING: Floats = np.zeros(0)


@dataclass(frozen=True, eq=False)
class PsiParts:
    """ψ taken apart: θ `(d,)`, effects `(p,2)` on logit γ and log λ, and L `(D,D)`."""

    theta: Floats
    effects: Floats
    root: Floats

    @property
    def covariance(self) -> Floats:
        """Return Σ `(D,D)`."""
        return self.root @ self.root.T

    @property
    def correlation(self) -> float:
        """Return ρ, of the first two."""
        return float(self.root[1, 0] / np.hypot(*self.root[1, :2]))

    def in_root(self, slope: Floats) -> Floats:
        """Return a derivative in Σ, doubled, as one in the entries of L, and in the logarithms of those on the diagonal."""
        rows, columns, diagonal = root_entries(len(self.root))
        return (slope @ self.root)[rows, columns] * np.where(diagonal, self.root[rows, columns], 1.0)


def root_entries(size: int) -> tuple[Ints, Ints, Bools]:
    """Return the rows and columns of the entries of L, in the order of ψ, and which of them are on the diagonal."""
    rows, columns = np.tril_indices(size)
    return rows, columns, rows == columns


class PsiLayout:
    """Where θ, b, c and L stand in ψ, and whose decisions they are to explain.

    Of θ only what is free is in ψ, of L the entries row by row, and the logarithms of those on the diagonal.

    Args:
        problem: whose cells are explained.
        design: X `(m,p)`.
        reward: θ where it is known; None where it is free.
        ridge: weights `(d,)` of the penalty on θ.
        owner: whose each cell is `(m,)`, in the order of people; None where each person has one cell.
        random: Z `(m,q)`; None for a column of ones.
        largest: the largest discount, by default that of the problem.
        jobs: processes that share the blocks of people.
        choosing: how choices are made.

    Attributes:
        along: A `(n,q,p)`.
        rest: R `(m,p)`.
        estimated: whether transitions of some task are.
        mixed: whether any of R is not 0.
        many: where people are more than this, some of them show the way to the maximum.
        deviation: the standard deviations `(d,)` of personal deviations from θ, √V; empty where all have the reward θ.
    """

    many = 1500

    def __init__(
        self,
        problem: Problem,
        design: Floats,
        reward: Floats | None,
        ridge: Floats,
        owner: Ints | None = None,
        random: Floats | None = None,
        largest: float | None = None,
        jobs: int = 1,
        choosing: Choosing = SOFT,
    ) -> None:
        self.problem, self.design, self.known, self.ridge, self.jobs = problem, design, reward, ridge, jobs
        self.choosing = choosing
        self.n_reward = problem.n_parameters
        self.free: Ints = np.arange(self.n_reward if reward is None else 0)
        self.largest = largest or problem.largest_discount
        self.estimated = any(map(attrgetter("mdp.is_estimated"), problem.tasks))
        #: The tables of the θ that was asked for last.
        self.tables = self.tables_of(problem, np.zeros(self.n_reward) if reward is None else reward)
        self.counts = self.tables.counts(problem.tasks)
        m, p = design.shape
        self.owner = np.arange(m) if owner is None else owner
        self.random = np.ones((m, 1)) if random is None else random
        self.first: Ints = np.flatnonzero(np.diff(self.owner, prepend=-1))
        self.persons, self.cells, n = self.first.size, m, self.first.size
        #: D, the size of u.
        self.deep = 2 * self.random.shape[1]
        squares, products = (
            np.add.reduceat(self.random[:, :, None] * other[:, None, :], self.first) for other in (self.random, design)
        )
        self.along: Floats = np.linalg.pinv(squares, rcond=1e-10, hermitian=True) @ products
        self.rest: Floats = design - (self.random[:, None, :] @ self.along[self.owner])[:, 0]
        self.rest[np.abs(self.rest) < 1e-10] = 0.0
        self.mixed = bool(self.rest.any())
        self.scale_is_free = reward is None and all(
            task.known_reward is None or not task.known_reward.any() for task in problem.tasks
        )
        mean = design.mean(axis=0, keepdims=True)
        #: By which weak priors hold logits γ, and the differences of log λ between cells.
        self.squares = [rows.T @ rows / (m * WIDEST**2) for rows in (design, design - mean)]
        self.temperature_basis: Floats = la.null_space(mean) if self.scale_is_free else np.eye(p)
        sizes = np.cumsum([self.free.size, p, self.temperature_basis.shape[1], self.deep * (self.deep + 1) // 2])
        self.reward, self.discount, self.temperature, self.spread = (
            slice(int(a), int(b)) for a, b in zip([0, *sizes[:-1]], sizes, strict=True)
        )
        self.size = int(sizes[-1])
        #: No person's log-likelihood may be off by more; the more people, the less an effect's standard error leaves room for.
        #: Where cells move with the effects, they cross the edges of patches, and tables on both sides must agree.
        self.tolerance = min(1e-3, 0.02 / np.sqrt(n)) * (0.02 if self.mixed else 1.0)
        self.deviation: Floats = NOTHING
        self.most_rows = 0  # how many rows of the tables a person needs for that

    def tables_of(self, problem: Problem, theta: Floats) -> Tables:
        """Return the tables of a problem at θ."""
        return Tables(problem.tasks, self.largest, theta, self.free, choosing=self.choosing)

    def deviating(self, tau: float) -> PsiLayout:
        """Return the same people with rewards of their own around θ, where τ is given, and with the same tables."""
        other = copy.copy(self)
        other.deviation = tau / self.problem.reward_sizes if tau else NOTHING
        other.most_rows = states_visited(self.tables, self.counts)[0].size
        return other

    def some(self, who: Ints) -> PsiLayout:
        """Return the layout of some of the people, with the same tables."""
        other = copy.copy(self)
        cells = self.cells_of(who)
        sizes = np.diff(self.first, append=len(self.design))[who]
        other.owner = np.repeat(np.arange(who.size), sizes)
        other.first = np.cumsum(sizes) - sizes
        other.design, other.random, other.rest, other.counts = (
            each[cells] for each in (self.design, self.random, self.rest, self.counts)
        )
        other.along = self.along[who]
        other.persons = who.size
        other.cells = cells.size
        return other

    def keeps(self, nodes: int) -> bool:
        """Return whether what decisions say at so many nodes is kept: where it is more, to read tables again is cheaper."""
        return self.persons * nodes <= 20_000_000

    def cells_of(self, who: Ints) -> Ints:
        """Return the cells of some people, who are in order."""
        ends = np.append(self.first, len(self.design))
        return np.concatenate([np.arange(ends[i], ends[i + 1]) for i in who]) if who.size < self.persons else np.arange(ends[-1])

    def unpack(self, psi: Floats) -> PsiParts:
        """Return the parts of ψ."""
        theta = psi[self.reward] if self.known is None else self.known
        return PsiParts(theta, self.effects(psi), self.root(psi[self.spread]))

    def effects(self, psi: Floats) -> Floats:
        """Return the part of ψ, or of a step, that is b and c, `(p,2)`."""
        return np.stack([psi[self.discount], self.temperature_basis @ psi[self.temperature]], axis=1)

    def root(self, spread: Floats) -> Floats:
        """Return L."""
        rows, columns, diagonal = root_entries(self.deep)
        root = np.zeros((self.deep, self.deep))
        root[rows, columns] = np.where(diagonal, np.exp(np.where(diagonal, spread, 0.0)), spread)
        return root

    def pack(self, theta: Floats, centre: Floats, deviations: Floats) -> Floats:
        """Return ψ of a reward, one centre `(2,)` for everyone, and standard deviations `(2,)`."""
        everyone = np.linalg.lstsq(self.design, np.ones(len(self.design)))[0]
        temperature = self.temperature_basis.T @ everyone * centre[1]
        rows, _, diagonal = root_entries(self.deep)
        # people differ less in how conditions change them
        logs = np.log(np.concatenate([deviations, np.tile(deviations / 2, self.deep // 2 - 1)]))
        return np.concatenate([theta[self.free], everyone * centre[0], temperature, np.where(diagonal, logs[rows], 0.0)])

    def means(self, effects: Floats) -> Floats:
        """Return the means A_i β `(n,D)` of v where effects are `(p,2)`, or how they move."""
        return (self.along @ effects).reshape(-1, self.deep)

    def linear(self, along: Floats) -> Floats:
        """Return the derivative `(n,K,size)` of the means of v of people with these A, and of the spread, in ψ."""
        spread = np.arange(self.spread.start, self.spread.stop)
        slopes = np.zeros((len(along), self.deep + spread.size, self.size))
        slopes[:, 0 : self.deep : 2, self.discount] = along
        slopes[:, 1 : self.deep : 2, self.temperature] = along @ self.temperature_basis
        slopes[:, self.deep + np.arange(spread.size), spread] = 1.0
        return slopes

    def weak_priors(self, parts: PsiParts) -> tuple[float, dict[str, Floats]]:
        """Return the logarithm of the weak priors, and the gradient in ψ of each."""
        pull = {name: np.zeros(self.size) for name in ("means", "spread", "correlation")}
        p = self.design.shape[1]
        root = parts.root
        logits, apart = (-(square @ parts.effects[:, kind]) for kind, square in enumerate(self.squares))
        pull["means"][self.discount], pull["means"][self.temperature] = logits, self.temperature_basis.T @ apart
        means = 0.5 * float(parts.effects[:, 0] @ logits + parts.effects[:, 1] @ apart)
        narrow, wide = (size**2 * np.eye(self.deep) + parts.covariance for size in (0.1, WIDEST))
        logs = [float(np.linalg.slogdet(matrix)[1]) for matrix in (narrow, wide / WIDEST**2)]
        spread = float(np.log(np.diag(root)).sum()) - 0.5 * logs[0] - p * logs[1]
        pull["spread"][self.spread] = parts.in_root(-np.linalg.inv(narrow) - 2 * p * np.linalg.inv(wide))
        rows, columns, diagonal = root_entries(self.deep)
        pull["spread"][self.spread] += diagonal
        size = (root**2).sum(axis=1)
        entry = root[rows, columns]
        pull["correlation"][self.spread] = 2 * np.where(diagonal, 1 - entry**2 / size[rows], -entry / size[rows])
        return means + spread + float(np.log(np.diag(root) ** 2 / size).sum()), pull


@dataclass(frozen=True, eq=False)
class PersonMoments:
    """Mean `(n,D)` and covariance `(n,D,D)` of each person's v given the decisions, and Λ `(n,D,D)` of the decisions alone.

    `cells` `(m,2,2)` is what the decisions of each cell alone say of its η. Only where R is not 0 it is needed.
    """

    mean: Floats
    covariance: Floats
    precision: Floats
    cells: Floats

    def of(self, who: Ints | slice, cells: Ints | slice) -> PersonMoments:
        """Return those of some people, who have these cells."""
        of_cells = self.cells[cells] if self.cells.size else self.cells
        return PersonMoments(self.mean[who], self.covariance[who], self.precision[who], of_cells)

    @classmethod
    def under(cls, prior: Floats, mean: Floats, covariance: Floats, cells: Floats = NOTHING) -> PersonMoments:
        """Return moments, with Λ what the decisions add to the precision of the prior `N(·, Σ)`; never negative."""
        return cls(mean, covariance, positive_part(np.linalg.inv(covariance) - np.linalg.inv(prior)), cells)


@cache
def standard_nodes(count: int, size: int = 2) -> tuple[Floats, Floats]:
    """Return places `(Q,D)` and weights `(Q,)` for the standard normal distribution: `count` nodes for logit γ, fewer for log λ.

    Given γ, log λ is close to normal, and few nodes will do. Logit γ need not be: it may be anything above some value. In more
    dimensions than two a grid has fewer nodes along each, and in six at most 20,000 of them.
    """
    counts = [count, min(count, max(5, count // 2 | 1))]
    if size > 2:
        terms = size // 2
        along = min(count, max(5, 2 * count // (terms + 1) | 1), int(20_000 ** (1 / terms)) // 3)
        counts = [along, min(count, 3)] * terms
    return normal_nodes(*counts)


@dataclass(frozen=True, eq=False)
class PersonBlock:
    """People who are taken together: counts `(m,rows)`, Z and R of their cells, A `(n,q,p)`, and what is known of each person.

    `owner` `(m,)` are places among these people. `log` is what decisions say at the nodes `(n,Q)`, where it has been asked
    before.
    """

    counts: Sparse
    owner: Ints
    random: Floats
    rest: Floats
    along: Floats
    persons: PersonMoments
    log: Floats | None = None

    def by_person(self, values: Floats) -> Floats:
        """Return sums over the cells of each person of values `(m,…)`."""
        if len(self.along) == len(self.owner):
            return values
        return np.add.reduceat(values, np.flatnonzero(np.diff(self.owner, prepend=-1)))

    def means(self, effects: Floats) -> Floats:
        """Return the means A_i β `(n,D)` of v."""
        return (self.along @ effects).reshape(len(self.along), -1)

    def at_cells(self, places: Floats, effects: Floats) -> Floats:
        """Return η `(m,Q,2)` of the cells where v is `(n,Q,D)`."""
        at_owner = places[self.owner] if len(self.along) < len(self.owner) else places
        eta = self.random[:, 0, None, None] * at_owner[:, :, :2]
        for t in range(1, self.random.shape[1]):
            eta += self.random[:, t, None, None] * at_owner[:, :, 2 * t : 2 * t + 2]
        return eta + (self.rest @ effects)[:, None] if self.rest.any() else eta


@dataclass(frozen=True, eq=False)
class Around:
    """What the decisions of a block say at its nodes, where effects are near `effects` `(p,2)`.

    Where cells move with the effects it is expanded to the second order: spreads that are likely move effects by a part of their
    standard errors, and to read the tables for each of them would take most of the time of a fit. `places`, `log_weights` and
    `inner` are those of the nodes. `log` is ℓ at `effects` `(n,Q)`; `eta`, `surface` and `own_reward` are what it was read from,
    if it was not known before.
    """

    block: PersonBlock
    effects: Floats
    places: Floats
    log_weights: Floats
    inner: int
    log: Floats
    eta: Floats
    surface: Surface | None
    own_reward: OwnRewards | None

    def shares(self, parts: PsiParts) -> tuple[Floats, Floats, Floats]:
        """Return what `shares_of_nodes` says of the nodes at a ψ near by."""
        log = self.log
        away = parts.effects - self.effects
        if self.surface is not None and self.surface.slopes.size and away.any():
            move = self.block.rest @ away
            slopes = self.surface.slopes + 0.5 * (self.surface.bends @ move[:, None, :, None])[:, :, :, 0]
            log = log + self.block.by_person((slopes @ move[:, :, None])[:, :, 0])
        return shares_of_nodes(log, self.places, self.log_weights, self.block.means(parts.effects), parts.root)


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of each block: ψ, with how many nodes, and whether the curvature is wanted as well.

    It holds all that a worker needs to answer, but the people of its block. `tables` are those of ψ's θ. `grid` are places
    `(Q,D)` drawn from the standard normal distribution, which stand in for the nodes of the quadrature where they are given.
    """

    tables: Tables
    layout: PsiLayout
    count: int
    grid: Floats | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what travels to a worker: not the people, who come block by block."""
        lean = object.__new__(PsiLayout)
        of_persons = ("problem", "design", "counts", "tables", "owner", "first", "random", "along", "rest")
        lean.__dict__.update(self.layout.__dict__ | dict.fromkeys(of_persons))
        return {**self.__dict__, "layout": lean}

    def nodes(self, block: PersonBlock) -> tuple[Floats, Floats, int]:
        """Return places `(n,Q,D)` and the logarithms of their weights `(n,Q)`, and how many places in a row have the same x."""
        deep = self.layout.deep
        grid, weights = standard_nodes(self.count, deep)
        inner = np.unique(grid[:, 1]).size if deep == 2 else 1
        if self.grid is not None:
            grid = self.grid
            weights = np.full(len(self.grid), 1 / len(self.grid))
            inner = 1
        root = np.linalg.cholesky(block.persons.covariance)
        places = np.empty((len(root), len(grid), deep))
        for i in range(deep):
            places[:, :, i] = block.persons.mean[:, i, None] + root[:, i] @ grid.T
        log_weights = 0.5 * deep * np.log(2 * np.pi) + np.log(weights) + 0.5 * (grid**2).sum(axis=1)
        sizes = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        return places, log_weights + sizes[:, None], inner

    def at_nodes(self, psi: Floats, block: PersonBlock, slopes: bool) -> Around | Floats:
        """Return what the block's decisions say at its nodes, near ψ; or places η `(K,2)` that tables lack."""
        effects = self.layout.effects(psi)
        places, log_weights, inner = self.nodes(block)
        if block.log is not None:
            return Around(block, effects, places, log_weights, inner, block.log, NOTHING, None, None)
        eta = block.at_cells(places, effects)
        lacking = self.tables.lacking(eta)
        if lacking.size:
            return lacking
        surface = self.tables.surface(block.counts, eta, inner, slopes=slopes)
        if not self.layout.deviation.size:
            log = block.by_person(surface.log_likelihoods)
            return Around(block, effects, places, log_weights, inner, log, eta, surface, None)
        rewards = own_rewards(self.tables, block.counts, eta, surface, self.layout.deviation)
        return Around(block, effects, places, log_weights, inner, rewards.log_likelihoods, eta, surface, rewards)

    def answer(self, psi: Floats, full: bool, block: PersonBlock) -> Part | Floats:
        """Return the block's part of the value at ψ, with derivatives if wanted; or places η `(K,2)` that tables lack."""
        layout = self.layout
        parts = self.layout.unpack(psi)
        near = self.at_nodes(psi, block, slopes=full and layout.mixed)
        if not isinstance(near, Around):
            return near
        places, log, eta, surface, own_reward = near.places, near.log, near.eta, near.surface, near.own_reward
        shares, persons, away = near.shares(parts)
        by_cell = shares if len(shares) == len(block.owner) else shares[block.owner]
        off = np.zeros_like(shares) if surface is None else by_cell * np.abs(surface.errors)
        part = Part(
            persons=persons,
            mean=(mean := mean_over(shares, places)),
            covariance=covariance_over(shares, places - mean[:, None]),
            cells=NOTHING,
            log=log if layout.keeps(log.shape[1]) else NOTHING,
            error=float(off.sum(axis=1).max()),
            cuts={} if surface is None else surface.cuts(off, layout.tolerance),
            means=np.stack([about_means(layout, block, root) for root in _near(parts.root, full)]),
            gradient=NOTHING,
            curvature=NOTHING,
        )
        if not full:
            return part
        rows = layout.linear(block.along)
        scores = normal_scores(away, parts.root)
        mean_scores = mean_over(shares, scores)
        gradient = np.tensordot(mean_scores, rows, ([0, 1], [0, 1]))
        scores -= mean_scores[:, None]
        normal = _normal_information(mean_over(shares, away), covariance_over(shares, away), parts.root) - covariance_over(
            shares, scores
        )
        curvature = np.tensordot(rows, normal @ rows, ([0, 1], [0, 1]))
        cells = NOTHING
        if surface is not None and (layout.free.size or layout.mixed):
            where, more, information, cells = self.of_decisions(block, eta, surface, by_cell, own_reward)
            mean_score = mean_over(shares, more)
            if own_reward is None:
                gradient[where] += mean_score.sum(axis=0)
            else:
                by_log, by_slopes = own_reward.derivatives()
                weights = shares[:, :, None] * by_log, shares[:, :, None, None] * by_slopes
                gradient[where] += self.tables.along_lines(own_reward.rows, eta, surface, *weights)
            more -= mean_score[:, None]
            shared = shares[:, :, None] * more
            curvature[np.ix_(where, where)] += information - np.tensordot(shared, more, ([0, 1], [0, 1]))
            across = np.tensordot(covariance_over(shares, more, scores), rows, ([0, 2], [0, 1]))
            curvature[where] -= across
            curvature[:, where] -= across.T
        return replace(part, cells=cells, gradient=gradient, curvature=curvature)

    def scores(self, psi: Floats, block: PersonBlock) -> PersonScores | Floats:
        """Return the block's people at ψ, and the gradient of their sum; or places η `(K,2)` that tables lack."""
        layout = self.layout
        parts = self.layout.unpack(psi)
        near = self.at_nodes(psi, block, slopes=layout.mixed)
        if not isinstance(near, Around):
            return near
        places, log, eta, surface = near.places, near.log, near.eta, near.surface
        shares, persons, away = near.shares(parts)
        by_cell = shares if len(shares) == len(block.owner) else shares[block.owner]
        off = np.zeros_like(shares) if surface is None else by_cell * np.abs(surface.errors)
        cuts = {} if surface is None else surface.cuts(off, layout.tolerance)
        mean_scores = mean_over(shares, normal_scores(away, parts.root))
        gradient = np.tensordot(mean_scores, layout.linear(block.along), ([0, 1], [0, 1]))
        if surface is not None and (layout.free.size or layout.mixed):
            where, more, _, _ = self.of_decisions(block, eta, surface, by_cell)
            gradient[where] += mean_over(shares, more).sum(axis=0)
        return PersonScores(persons, gradient, log, places, shares, float(off.sum(axis=1).max()), cuts)

    def of_decisions(
        self, block: PersonBlock, eta: Floats, surface: Surface, shares: Floats, own_reward: OwnRewards | None = None
    ) -> tuple[Ints, Floats, Floats, Floats]:
        """Return what decisions say of ψ where v is given: the places in ψ `(k,)`, the scores there `(n,Q,k)` and their
        information `(k,k)`; and what they say of η of each cell `(m,2,2)`. `shares` are those of the nodes at each cell `(m,Q)`.
        """
        layout, f = self.layout, self.layout.free.size
        where = np.arange(0)
        in_theta = np.zeros((*shares.shape, 0))
        information = np.zeros((0, 0))
        if own_reward is not None:  # there are no conditions then
            information = np.tensordot(shares, own_reward.information, 2)
            return np.arange(f), own_reward.mode / layout.deviation**2, information, NOTHING
        if f:
            in_theta, information, cross = self.tables.scores(block.counts, eta, surface, shares)
            where = np.arange(f)
        if not layout.mixed:
            return where, block.by_person(in_theta), information, NOTHING
        # R as what moves logit γ and log λ of a cell (m,2,k) in the effects that are in ψ
        warm = block.rest @ layout.temperature_basis
        moves = np.zeros((len(warm), 2, layout.spread.start - f))
        moves[:, 0, : block.rest.shape[1]], moves[:, 1, block.rest.shape[1] :] = block.rest, warm
        bends = -np.einsum("mq,mqij->mij", shares, surface.bends)
        total = np.zeros((layout.spread.start, layout.spread.start))
        total[:f, :f] = information
        total[f:, f:] = np.einsum("mik,mij,mjl->kl", moves, bends, moves, optimize=True)
        if f:
            total[:f, f:] = -np.einsum("mfi,mik->fk", cross, moves)
            total[f:, :f] = total[:f, f:].T
        scores = np.concatenate([block.by_person(in_theta), block.by_person(surface.slopes @ moves)], axis=2)
        return np.arange(layout.spread.start), scores, total, positive_part(bends)

    def local(self, psi: Floats, around: Floats, block: PersonBlock) -> AtPlaces | Floats:
        """Return what decisions say at places `(Q,D)` around the means of the block's people, with derivatives if it is one
        place; or places η `(K,2)` for which tables are lacking.
        """
        eta = block.at_cells(block.persons.mean[:, None] + around, self.layout.effects(psi))
        lacking = self.tables.lacking(eta)
        if lacking.size:
            return lacking
        surface = self.tables.surface(block.counts, eta, slopes=len(around) == 1)
        slope, bend, cells = NOTHING, NOTHING, NOTHING
        if len(around) == 1:
            random = (block.random[:, None, :, None] * np.eye(2)[:, None, :]).reshape(len(eta), 2, -1)
            turned = random.transpose(0, 2, 1)
            slope = block.by_person((turned @ surface.slopes[:, 0, :, None])[:, :, 0])
            bend = block.by_person(turned @ surface.bends[:, 0] @ random)
            cells = positive_part(-surface.bends[:, 0]) if self.layout.mixed else NOTHING
        # what is off where a person hardly can be does not matter
        log = block.by_person(surface.log_likelihoods)
        likely = np.exp(log - log.max(axis=1, keepdims=True))
        off = np.abs(surface.errors) * (likely if len(log) == len(eta) else likely[block.owner])
        return AtPlaces(log, slope, bend, cells, float(off.max()), surface.cuts(off, self.layout.tolerance))


@dataclass(frozen=True, eq=False)
class AtPlaces:
    """What decisions say at places of each person: ℓ `(n,Q)`, and if it is one place ∂ℓ/∂v `(n,D)` and ∂²ℓ/∂v² `(n,D,D)`.

    `cells`, `error` and `cuts` are as in `Part`.
    """

    log: Floats
    slope: Floats
    bend: Floats
    cells: Floats
    error: float
    cuts: dict[int, int]


@dataclass(frozen=True, eq=False)
class PersonScores:
    """What a block adds to the sum of log p_i: its `persons`, the `gradient` in ψ, the nodes `places` `(n,Q,D)` and their
    `shares` `(n,Q)`. `log`, `error` and `cuts` are as in `Part`.
    """

    persons: Floats
    gradient: Floats
    log: Floats
    places: Floats
    shares: Floats
    error: float
    cuts: dict[int, int]


@dataclass(frozen=True, eq=False)
class Part:
    """What a block adds to the value.

    Attributes:
        persons, mean, covariance: of each person: log p_i, and mean and covariance of v given the decisions.
        cells: what the decisions of each cell say of its η `(m,2,2)`; empty where that was not asked for.
        log: what decisions say at the nodes `(n,Q)`; empty where that is too much to keep.
        error: the largest error of a person's log p_i because of the tables.
        cuts: patches that cause it, and the side along which to cut them.
        means: what the block adds to M, at Σ and around it `(k,m,m)`.
        gradient, curvature: in ψ, of the sum of log p_i; empty where they were not asked for.
    """

    persons: Floats
    mean: Floats
    covariance: Floats
    cells: Floats
    log: Floats
    error: float
    cuts: dict[int, int]
    means: Floats
    gradient: Floats
    curvature: Floats


def shares_of_nodes(
    log: Floats, places: Floats, log_weights: Floats, means: Floats, root: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return shares P `(n,Q)`, log p_i `(n,)`, and how far nodes are from the mean, `L⁻¹ (v − A_i β)` `(n,Q,D)`."""
    away = places - means[:, None]
    for i, row in enumerate(root):
        for j in range(i):
            away[:, :, i] -= row[j] * away[:, :, j]
        away[:, :, i] /= row[i]
    size = 0.5 * len(root) * np.log(2 * np.pi) + np.log(np.diag(root)).sum()
    joint = log + log_weights - 0.5 * (away**2).sum(axis=2) - size
    top = joint.max(axis=1, keepdims=True)
    shares = np.exp(joint - top)
    total = shares.sum(axis=1, keepdims=True)
    shares /= total
    return shares, (top + np.log(total))[:, 0], away


def mean_over(shares: Floats, values: Floats) -> Floats:
    """Return the means `(n,k)` of values `(n,Q,k)`."""
    return (shares[:, None, :] @ values)[:, 0]


def covariance_over(shares: Floats, gaps: Floats, others: Floats | None = None) -> Floats:
    """Return the covariances `(n,k,l)` of values whose gaps to their means are `(n,Q,k)` and `(n,Q,l)`."""
    return (shares[:, :, None] * gaps).transpose(0, 2, 1) @ (gaps if others is None else others)


def normal_scores(away: Floats, root: Floats) -> Floats:
    """Return ∂ log N(v; μ, Σ) `(n,Q,K)` in μ and in the entries of L, where `w = L⁻¹ (v − μ)` is `(n,Q,D)`: y in μ with `y =
    L⁻ᵀw`, and `y_i w_j` in L_ij, and in log L_ii `L_ii y_i w_i − 1`.
    """
    size = len(root)
    rows, columns, _ = root_entries(size)
    scores = np.empty((*away.shape[:2], size + rows.size))
    scores[:, :, :size] = away @ np.linalg.inv(root)
    for k, (i, j) in enumerate(zip(rows, columns, strict=True)):
        np.multiply(scores[:, :, i], away[:, :, j], out=scores[:, :, size + k])
        if i == j:
            scores[:, :, size + k] *= root[i, i]
            scores[:, :, size + k] -= 1.0
    return scores


def _normal_information(mean: Floats, squares: Floats, root: Floats) -> Floats:
    """Return the mean of `−∂² log N` `(n,K,K)` in the same, from the means `(n,D)` and the mean products of w.

    With `w̃ = (1, w)`, a step in parameter k moves w by `B_k w̃`. By `dw = −L⁻¹ (dμ + dL w)`,
    `−d² log N = dw·dw − w·L⁻¹ (2 dL dw + d²L w)`, which is a quadratic form of w̃.
    """
    size = len(root)
    rows, columns, diagonal = root_entries(size)
    back = np.linalg.inv(root)
    entries = np.zeros((size + rows.size, size, size))
    entries[size + np.arange(rows.size), rows, columns] = np.where(diagonal, root[rows, columns], 1.0)
    moved = np.concatenate([np.zeros((len(entries), size, 1)), -back @ entries], axis=2)
    moved[np.arange(size), :, 0] = -back.T
    inner = np.zeros((len(entries), len(entries), size + 1, size + 1))
    inner[:, :, 1:] = -np.einsum("kij,ljc->klic", back @ entries, moved)
    forms = np.einsum("kic,lid->klcd", moved, moved) + inner + inner.transpose(1, 0, 2, 3)
    twice = size + np.flatnonzero(diagonal)
    forms[twice, twice, 1:, 1:] -= back @ entries[twice]
    moments = np.ones((len(mean), size + 1, size + 1))
    moments[:, 0, 1:] = moments[:, 1:, 0] = mean
    moments[:, 1:, 1:] = squares
    information: Floats = moments.reshape(len(mean), -1) @ forms.reshape(len(entries) ** 2, -1).T
    information = information.reshape(-1, len(entries), len(entries))
    return (information + information.transpose(0, 2, 1)) / 2


def _near(root: Floats, full: bool, step: float = 1e-3) -> list[Floats]:
    """Return L, and if wanted those by which `−½ log det M` is differentiated: each entry up, each down, pairs up, pairs down."""
    rows, columns, diagonal = root_entries(len(root))

    def moved(move: Floats) -> Floats:
        near = root.copy()
        near[rows, columns] = np.where(diagonal, root[rows, columns] * np.exp(move), root[rows, columns] + move)
        return near

    unit = step * np.eye(rows.size)
    pairs = [a + b for a, b in combinations(unit, 2)]
    return [root, *(moved(sign * move) for moves in (unit, pairs) for sign in (1, -1) for move in moves)] if full else [root]


def about_means(layout: PsiLayout, block: PersonBlock, root: Floats) -> Floats:
    """Return what people add to M `(k,k)`, the information about (b, c), where Σ = L Lᵀ."""
    least = 1 / (WIDEST**2 * layout.persons)
    design = block.along[:, 0]
    prior = root @ root.T
    warm = design @ layout.temperature_basis
    if layout.deep == 2 and not layout.mixed:
        # W = (Λ⁻¹ + Σ)⁻¹ = (Λ + |Λ| |Σ| Σ⁻¹)/(1 + tr ΣΛ + |Λ| |Σ|), which needs no inverse of Λ
        precision = block.persons.precision
        size = np.linalg.det(precision)
        below = 1 + np.einsum("nij,ij->n", precision, prior) + size * np.linalg.det(prior)
        first, second = precision[:, 0, 0] + size * prior[1, 1], precision[:, 1, 1] + size * prior[0, 0]
        near = design.T @ ((first / below + least)[:, None] * design)
        across = design.T @ (((precision[:, 0, 1] - size * prior[0, 1]) / below)[:, None] * warm)
        far = warm.T @ ((second / below + least)[:, None] * warm)
        return np.block([[near, across], [across.T, far]])
    # in v the decisions say P, in v and β G, in β K; u = v − Aβ is averaged out
    moves = layout.linear(block.along)[:, : layout.deep, layout.free.size : layout.spread.start]
    p, of_cells = block.persons.precision, block.persons.cells
    g = np.zeros_like(moves)
    k = np.zeros((len(p), moves.shape[2], moves.shape[2]))
    if layout.mixed:
        rest = np.zeros((len(of_cells), 2, moves.shape[2]))
        rest[:, 0, : design.shape[1]], rest[:, 1, design.shape[1] :] = block.rest, block.rest @ layout.temperature_basis
        random = (block.random[:, None, :, None] * np.eye(2)[:, None, :]).reshape(len(of_cells), 2, -1)
        p, g, k = (
            block.by_person(a.transpose(0, 2, 1) @ of_cells @ b) for a, b in ((random, random), (random, rest), (rest, rest))
        )
    both = p @ moves + g
    within = np.linalg.solve(np.eye(layout.deep) + prior @ p, prior[None] @ both)
    crossed = moves.transpose(0, 2, 1) @ g
    every = moves.transpose(0, 2, 1) @ p @ moves + crossed + crossed.transpose(0, 2, 1) + k
    information: Floats = (every - both.transpose(0, 2, 1) @ within).sum(axis=0)
    rows = (block.random[:, None, :] @ block.along[block.owner])[:, 0] + block.rest
    weak = rows, rows @ layout.temperature_basis
    held: Floats = la.block_diag(*(each.T @ each for each in weak)) / (WIDEST**2 * layout.cells)
    return information + held


@dataclass(frozen=True, eq=False)
class Value:
    """The marginal likelihood at one ψ.

    Attributes:
        objective: what is maximised.
        persons: log p_i `(n,)`.
        mean, covariance: of each person's v given the decisions.
        cells: what the decisions of each cell say of its η; empty where that was not asked for.
        error: the largest error of a person's log p_i because of the tables.
        gradient, information: g and J in ψ; empty where they were not asked for.
    """

    objective: float
    persons: Floats
    mean: Floats
    covariance: Floats
    cells: Floats
    error: float
    gradient: Floats
    information: Floats


class Marginal:
    """The marginal likelihood at fixed nodes, `count` of them for logit γ, around what is known of each person."""

    def __init__(self, layout: PsiLayout, persons: PersonMoments, count: int) -> None:
        self.layout, self.persons, self.count = layout, persons, count
        #: What is kept for the θ that was asked for last: what decisions say at the nodes, block by block, and its error.
        self._theta = NOTHING
        self._logs = list[Floats]()
        self._error = 0.0

    def at(self, psi: Floats, full: bool = True) -> Value | None:
        """Return the value at ψ, with derivatives if wanted; None where soft values are infinite."""
        layout = self.layout
        parts = self.layout.unpack(psi)
        answers = self._answers(psi, full)
        if answers is None:
            return None
        held, pull = layout.weak_priors(parts)
        persons, mean, covariance, cells = (
            np.concatenate([getattr(f, name) for f in answers]) for name in ("persons", "mean", "covariance", "cells")
        )
        logs = -0.5 * np.linalg.slogdet(sum(f.means for f in answers))[1]
        objective = float(persons.sum()) - 0.5 * float(layout.ridge @ parts.theta**2) + held + float(logs[0])
        error = max(self._error, *(f.error for f in answers))
        if not full:
            return Value(objective, persons, mean, covariance, cells, error, NOTHING, NOTHING)
        gradient: Floats = np.sum([*(f.gradient for f in answers), *pull.values()], axis=0)
        gradient[layout.reward] -= (layout.ridge * parts.theta)[layout.free]
        entries = layout.spread.stop - layout.spread.start
        slopes, bends = _differences(logs, entries)
        gradient[layout.spread] += slopes
        information: Floats = np.sum([f.curvature for f in answers], axis=0)
        information[layout.reward, layout.reward] += np.diag(layout.ridge[layout.free])
        information -= _weak_curvature(layout, psi)
        information[layout.spread, layout.spread] -= bends
        return Value(objective, persons, mean, covariance, cells, error, gradient, information)

    def scores(self, psi: Floats, grid: Floats | None = None) -> list[PersonScores] | None:
        """Return log p_i at ψ and the gradient of their sum, without priors, block by block; None where soft values are infinite.

        It is for those who ask very often. Nodes are drawn ones `(Q,D)` where a `grid` of them is given.
        """
        asked_of = replace(self.question(self.layout.unpack(psi).theta), grid=grid)
        answers: list[PersonScores] | None = self._all(partial(asked_of.scores, psi))
        again = self.layout.free.size or self.layout.mixed or grid is not None
        if answers is not None and not self._logs and not again and self.layout.keeps(answers[0].log.shape[1]):
            self._logs = [part.log for part in answers]
            self._error = max(part.error for part in answers)
        return answers

    def blocks(self) -> list[PersonBlock]:
        """Return the people, in the same blocks whoever computes them."""
        layout = self.layout
        made = []
        ends = np.append(layout.first, len(layout.design))
        nodes = len(standard_nodes(self.count, layout.deep)[0])
        size = min(limits().cells, max(1, 200_000 // nodes))
        if layout.deviation.size:  # then choices in all states where a person decided are kept at every node
            size = max(1, min(size, 4_000_000 // (nodes * layout.most_rows * (layout.deviation.size + 1))))
        cuts = np.unique(np.searchsorted(ends[:-1], np.arange(0, ends[-1], size)))
        cuts = cuts[cuts < layout.persons]
        for i, (low, high) in enumerate(zip(cuts, [*cuts[1:], layout.persons], strict=True)):
            who, cells = slice(low, high), slice(ends[low], ends[high])
            owner = layout.owner[cells] - low
            parts = layout.counts[cells], owner, layout.random[cells], layout.rest[cells], layout.along[who]
            made.append(PersonBlock(*parts, self.persons.of(who, cells), self._logs[i] if self._logs else None))
        return made

    def question(self, theta: Floats) -> Question:
        """Return what is asked of blocks at this θ."""
        if not np.array_equal(theta, self._theta):
            self._theta = theta.copy()
            self._logs = []
            self._error = 0.0
        self.layout.tables = self.layout.tables.at(theta)
        return Question(self.layout.tables, self.layout, self.count)

    def local(self, psi: Floats, around: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return what decisions say at places `(Q,D)` around the means of people: all that `AtPlaces` has of them."""
        answers = self._all(partial(self.question(self.layout.unpack(psi).theta).local, psi, around))
        if answers is None:
            raise ValueError("the soft values must be finite at the first parameters: check rewards and transitions")
        log, slope, bend, cells = map(
            np.concatenate, zip(*map(attrgetter("log", "slope", "bend", "cells"), answers), strict=True)
        )
        return log, slope, bend, cells

    def _answers(self, psi: Floats, full: bool) -> list[Part] | None:
        """Return all parts; None where soft values are infinite."""
        every: list[Part] | None = self._all(partial(self.question(self.layout.unpack(psi).theta).answer, psi, full))
        again = self.layout.free.size or self.layout.mixed  # derivatives need the surfaces again
        if every is not None and not self._logs and not again and every[0].log.size:
            self._logs = [part.log for part in every]
            self._error = max(part.error for part in every)
        return every

    def _all(self, ask: Any) -> list[Any] | None:
        """Return the answers of all blocks, from tables that are fine enough wherever patches can still be cut."""
        tables = self.layout.tables
        blocks = self.blocks()
        answered = dict[int, Any]()
        todo = list(range(len(blocks)))
        while todo:
            answers = asked(ask, [blocks[i] for i in todo], self.layout.jobs)
            again = []
            lacking = []
            cuts = dict[int, int]()
            for i, answer in zip(todo, answers, strict=True):
                if isinstance(answer, np.ndarray):
                    lacking.append(answer)
                    again.append(i)
                else:
                    answered[i] = answer
                    cuts |= answer.cuts if answer.error > self.layout.tolerance else {}
            if not tables.prepare(np.concatenate([tables.patches.of(eta) for eta in lacking]) if lacking else np.zeros(0, int)):
                return None
            cut = tables.cut(cuts)
            if cut is None:
                return None
            if cut:
                again += [i for i in todo if i in answered and answered[i].error > self.layout.tolerance]
            todo = sorted(set(again))
        return [answered[i] for i in range(len(blocks))]


def asked(ask: Any, blocks: Sequence[Any], jobs: int) -> list[Any]:
    """Return the answers of all blocks. Several blocks travel together, because what is asked travels with them, and few stay
    here.

    With 0 jobs this is part of a task already, which may run on a thread of its own.
    """
    if not jobs:
        return _each(ask, blocks)
    together = -(-len(blocks) // 16)
    jobs = jobs if len(blocks) >= 4 else 1
    groups = [blocks[low : low + together] for low in range(0, len(blocks), together)]
    return [answer for answers in in_parallel(partial(_each, ask), groups, jobs) for answer in answers]


def _each(ask: Any, blocks: Sequence[Any]) -> list[Any]:
    return [ask(block) for block in blocks]


def _weak_curvature(layout: PsiLayout, psi: Floats) -> Floats:
    """Return the second derivatives `(size,size)` of the weak priors, by differences."""
    curvature = np.zeros((layout.size, layout.size))
    for j in range(layout.free.size, layout.size):
        step = 1e-4 * (np.arange(layout.size) == j)
        ahead, behind = (sum(layout.weak_priors(layout.unpack(psi + sign * step))[1].values()) for sign in (1, -1))
        curvature[:, j] = (ahead - behind) / 2e-4
    return (curvature + curvature.T) / 2


def _differences(logs: Floats, entries: int, step: float = 1e-3) -> tuple[Floats, Floats]:
    """Return the first and second derivatives in so many entries, from values at the places of `_near`."""
    pairs = list(combinations(range(entries), 2))
    here, up, down, both_up, both_down = np.split(logs, np.cumsum([1, entries, entries, len(pairs)]))
    seconds = np.diag((up - 2 * here + down) / step**2)
    for place, (j, k) in enumerate(pairs):
        apart = both_up[place] - up[j] - up[k] + 2 * here[0] - down[j] - down[k] + both_down[place]
        seconds[j, k] = seconds[k, j] = apart / (2 * step**2)
    return (up - down) / (2 * step), seconds


def modes(layout: PsiLayout, psi: Floats) -> PersonMoments:
    """Return the mode of each person's v under the population ψ, and the curvature there.

    Newton's method in standard units of the population, from the best of nine places.
    """
    parts = layout.unpack(psi)
    n = layout.persons
    centre = layout.means(parts.effects)
    root = parts.root

    cells = np.zeros((layout.cells if layout.mixed else 0, 2, 2))

    def around(who: Ints, z: Floats, grid: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Evaluate the decisions of some people at places around z."""
        nowhere = np.zeros((who.size, layout.deep, layout.deep))
        few = layout if who.size == n else layout.some(who)
        return Marginal(few, PersonMoments(centre[who] + z @ root.T, nowhere, nowhere, NOTHING), 1).local(psi, grid @ root.T)

    def at(who: Ints, z: Floats) -> Local:
        log, slopes, bends, precision = around(who, z, np.zeros((1, layout.deep)))
        if layout.mixed:
            cells[layout.cells_of(who)] = precision
        curvature = positive_part(np.eye(layout.deep) - root.T @ bends @ root, 0.2)
        return Local(log[:, 0] - 0.5 * (z**2).sum(axis=1), slopes @ root - z, curvature)

    grid = np.zeros((9, layout.deep))
    grid[:, :2] = 2.0 * np.array(list(product((-1, 0, 1), repeat=2)))
    tried = around(np.arange(n), np.zeros((n, layout.deep)), grid)[0] - 0.5 * (grid**2).sum(axis=1)
    # a tenth of a standard deviation is near enough to place nodes
    ends = maximize_many(at, grid[tried.argmax(axis=1)], gain=0.005, max_steps=60, halving=True, secant=False, longest=1.0)
    z, curvature = ends.places, ends.here.curvature
    covariance = root @ np.linalg.inv(curvature) @ root.T
    return PersonMoments.under(parts.covariance, centre + z @ root.T, covariance, cells)


@dataclass(frozen=True, eq=False)
class Start:
    """Where a search begins: ψ, and what is known there of people, or of some of very many, who have a layout of their own."""

    layout: PsiLayout
    psi: Floats
    persons: PersonMoments

    @classmethod
    def at(cls, layout: PsiLayout, psi: Floats) -> Start:
        """Return the start at ψ."""
        n = layout.persons
        few = layout
        if n > layout.many:
            few = layout.some(np.linspace(0, n - 1, max(layout.many // 3, n // 20)).astype(np.int64))
        return cls(few, psi, modes(few, psi))

    @classmethod
    def of(cls, layout: PsiLayout, reward: Floats, discounts: Floats, temperature: float) -> Start:
        """Return the start at some people's discounts, and one temperature for all."""
        edge = expit(-3.0)
        logits = logit(np.clip(discounts / layout.largest, edge, 1 - edge))
        deviations = np.array([max(1.0, logits.std()), 0.5])
        return cls.at(layout, layout.pack(reward, np.array([logits.mean(), np.log(temperature)]), deviations))


def likely_person(layout: PsiLayout) -> tuple[Floats, float]:
    """Return the most likely of some discounts `(1,)` and temperatures for everyone, where the reward is known."""
    rewards = [task.pooled.at(0.5).expected_reward(layout.tables.theta) for task in layout.problem.tasks]
    size = max(float(np.abs(reward).max()) for reward in rewards) or 1.0
    pairs = list(product((0.05, 0.3, 0.6, 0.8, 0.95), size * np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0])))
    log = layout.tables.exact(np.array([(logit(gamma / layout.largest), np.log(temperature)) for gamma, temperature in pairs]))
    gamma, temperature = pairs[int(np.argmax(layout.counts.sum(axis=0) @ log))]
    return np.array([gamma]), float(temperature)
