"""The marginal likelihood of many persons whose discounts and temperatures are drawn from one population, and its maximum.

*Model.* Person i was seen under conditions j, their *cells*. In each they have

    η_ij = (logit γ_ij, log λ_ij) = X_ij β + Z_ij u_i,    u_i ~ N(0, Σ),

with `β = (b, c)` the effects on logit γ and on log λ, and all share the reward θ. Where a person has one cell and Z is 1, this
is `η_i ~ N(X_i β, Σ)`. With Z of q columns u has D = 2q entries: the first term's part in logit γ and in log λ, then the next
one's.

What of X_ij β a person's own u could say as well is put into it: `A_i` is the least-squares solution of `Z_i A_i = X_i` over the
person's cells, R the rest, and `v_i = A_i β + u_i`. So `η_ij = Z_ij v_i + R_ij β`. Given θ persons are independent, and what was
seen of person i has the probability

    p_i = ∫ Π_j p(decisions_ij | θ, η_ij) N(v; A_i β, Σ) dv ≈ Σ_q w_iq Π_j p(decisions_ij | θ, η_ijq) N(v_iq; A_i β, Σ),

by Gauss–Hermite quadrature with nodes `v_iq = m_i + C_i z_q` that are adapted to each person: m_i and `C_i C_iᵀ` are the mean
and covariance of v_i given the decisions (Naylor and Smith, 1982). In more than two dimensions grids have fewer nodes; what a
finer rule would change is measured all the same. What decisions say at the nodes is read from tables that all persons share
(`choice.surfaces`), so that persons cost no planning. At fixed nodes the sum is a smooth function of `ψ = (θ, b, c, L)`, `Σ = L
Lᵀ`. With P_iq the share of node q in p_i its gradient is the mean score of complete data,

    Σ_iq P_iq s_iq,    s_iq = ∂ log [p(decisions_i | θ, v_iq, β) N(v_iq; A_i β, Σ)] / ∂ψ,

and an error of the tables moves log p_i by `Σ_q P_iq δ_iq`. Tables are refined until that is below the tolerance for everyone.

If no state can go on forever, `γ = 1/(1+exp(−η))`; elsewhere it is multiplied by `ENDLESS_DISCOUNT`. Where nothing sets the
scale of the reward, the mean of `X_ij c` over cells is held at 0, as the mean log-temperature is in maximum likelihood.

*Means that were estimated.* The most likely Σ is too small, because the means were fitted to the same persons. As in restricted
maximum likelihood, `−½ log det M` is added, M the information about (b, c):

    M = Σ_i X_iᵀ W_i X_i + Σ_ij X_ijᵀ X_ij/(m s²),    W_i = (Λ_i^{-1} + Z_i Σ Z_iᵀ)^{-1},

X_i the derivative of all η of person i, Λ_i the precision with which the decisions in each cell alone determine its η, m the
number of cells, and s that of the weak priors. With persons known well M divides sums of squares by n − p.

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
  all correlations (Lewandowski and others, 2009, with shape 2). It weighs as much as two persons who are known exactly and show
  no correlation. Without it a correlation that the decisions hardly determine ends near ±1, and then each person's temperature
  seems to determine their discount.

*Search.* Nodes start where the population is, and follow the mean and covariance that the quadrature itself gives. By Louis
(1982) the information about ψ is that of complete data less what is lost because v is not seen:

    J = E[−∂² log p(decisions, v)] − Var(∂ log p(decisions, v)),     both given the decisions.

By N both terms are moments of v. By R the first has the second derivatives of the tables. In θ it is the Fisher information, and
the second term comes from the scores at the nodes. A step solves `J δ = g` in the directions that J determines, is shortened
until nodes that were placed for the last ψ still hold, and halved until the objective rises. Then the nodes are placed anew. A
round with few nodes comes first, and where persons are very many, a round with some of them. The search ends when `√(gᵀJ⁻¹g)`,
the distance to the maximum in standard errors, is below `tol`. Where a finer rule would move the answer by more than 0.02
standard errors, the search goes on with that. All of it is sums over persons, who are taken in blocks: the same blocks whoever
computes them.

*Spread that was estimated.* With few persons or few decisions the spread `S = (log L₁₁, L₂₁, log L₂₂, …)` is hardly known.
Taking its most likely value for the truth makes intervals of persons too narrow. So the shares P_iq of the nodes are averaged
over S:

    P̄_iq = Σ_k v_k P_iq(ψ_k) / Σ_k v_k,    ψ_k = ψ̂ + M z_k,    v_k = w_k exp(l(ψ_k) − l(ψ̂) + ½|z_k|²) f(S_k)/f(Ŝ),

with Gauss–Hermite places z_k and weights w_k in three dimensions, scattered ones in more, and l the objective, which is
restricted to the spread already. `M = C_·S C_S^{-1/2}`, C the covariance of all but the reward, moves the effects along with the
spread. Reward and nodes stay where they are, so nothing is planned anew; where R moves cells along, what decisions say there is
expanded to the second order. `f = σ_γ (1 − ρ²)` makes the density of S flat in both standard deviations and in the correlation,
but for the weak priors that are part of l; with more rows, f is a product over them, by which their lengths and directions have a
flat density. Where nodes are too coarse for a small spread, l may come out above its maximum; such places do not count.

*Rewards that are nearly shared.* Where person i has the reward θ + δ_i, `δ_i ~ N(0, V)`, V = τ² W, all that is said of
p(decisions_i | θ, v) holds for its mean over δ_i, by Laplace's method (`choice.deviations`). The gradient in θ is exact. In J
the score in θ is taken for `V⁻¹ δ̂`, and the information for `(I⁻¹ + V)⁻¹`. τ is held here, and found in `deviations.py`.

*What is known.* Given the decisions, each η has the mean and the covariance of the quadrature with these shares. The errors of
reward and effects add `D_i C' D_iᵀ`, D_i the derivative of that mean in ψ and C' what is left of C at a given spread. With the
reward, η has the covariance `D_i C_·θ`. Estimated
transitions are drawn anew around their estimates, with their sample sizes. A draw that moves the gradient by δg moves ψ by
`C δg`; the mean of the squares is added to C.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import combinations, product
from typing import Any

import numpy as np
import scipy.linalg as la
from scipy.special import expit, logit, ndtr

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.choice.deviations import OwnRewards, own_rewards, states_visited
from multihorizon.choice.plans import redrawn
from multihorizon.choice.surfaces import Surface, Tables
from multihorizon.numerics.distributions import normal_nodes, scattered_nodes
from multihorizon.numerics.newton import Local, maximize_many
from multihorizon.numerics.spectrum import Spectrum, positive_part, spectrum
from multihorizon.parallel import Progress, in_parallel, part_of, silent
from multihorizon.problem import Problem
from multihorizon.solution import Status
from multihorizon.words import decimals

#: s, the size of a logit, and of a standard deviation between persons, that weak priors allow for.
WIDEST = 5.0
#: How many cells are taken together, and how many nodes of them at most.
BLOCK, BLOCK_NODES = 1024, 200_000
#: Where persons are more than this, some of them show the way to the maximum.
MANY = 1500
#: What decisions say at all nodes is kept if it is no more numbers than this; else tables are read again, which is cheaper.
KEPT = 20_000_000
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
        """Σ `(D,D)`."""
        return self.root @ self.root.T

    @property
    def correlation(self) -> float:
        """ρ, of the first two."""
        return float(self.root[1, 0] / np.hypot(*self.root[1, :2]))

    def in_root(self, slope: Floats) -> Floats:
        """A derivative in Σ, doubled, as one in the entries of L, and in the logarithms of those on the diagonal."""
        rows, columns, diagonal = _entries(len(self.root))
        return (slope @ self.root)[rows, columns] * np.where(diagonal, self.root[rows, columns], 1.0)


def _entries(size: int) -> tuple[Ints, Ints, Bools]:
    """The rows and columns of the entries of L, in the order of ψ, and which of them are on the diagonal."""
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
        owner: whose each cell is `(m,)`, in the order of persons; None where each person has one cell.
        random: Z `(m,q)`; None for a column of ones.
        largest: the largest discount, by default that of the problem.
        jobs: processes that share the blocks of persons.

    Attributes:
        along: A `(n,q,p)`.
        rest: R `(m,p)`.
        mixed: whether any of R is not 0.
        deviation: the standard deviations `(d,)` of personal deviations from θ, √V; empty where all have the reward θ.
    """

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
    ) -> None:
        self.problem, self.design, self.known, self.ridge, self.jobs = problem, design, reward, ridge, jobs
        self.largest = largest or problem.largest_discount
        m, p = design.shape
        self.owner = np.arange(m) if owner is None else owner
        self.random = np.ones((m, 1)) if random is None else random
        self.first: Ints = np.flatnonzero(np.diff(self.owner, prepend=-1))
        self.n_reward, self.persons, self.cells, n = problem.n_parameters, self.first.size, m, self.first.size
        #: D, the size of u.
        self.deep = 2 * self.random.shape[1]
        squares, products = (
            np.add.reduceat(self.random[:, :, None] * other[:, None, :], self.first) for other in (self.random, design)
        )
        self.along: Floats = np.linalg.pinv(squares, rcond=1e-10, hermitian=True) @ products
        self.rest: Floats = design - (self.random[:, None, :] @ self.along[self.owner])[:, 0]
        self.rest[np.abs(self.rest) < 1e-10] = 0.0
        self.mixed = bool(self.rest.any())
        self.free: Ints = np.arange(self.n_reward if reward is None else 0)
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
        #: No person's log-likelihood may be off by more; the more persons, the less an effect's standard error leaves room for.
        #: Where cells move with the effects, they cross the edges of patches, and tables on both sides must agree.
        self.tolerance = min(1e-3, 0.02 / np.sqrt(n)) * (0.02 if self.mixed else 1.0)
        start = np.zeros(self.n_reward) if reward is None else reward
        #: The tables of the θ that was asked for last.
        self.tables = Tables(problem.tasks, self.largest, start, self.free)
        self.counts = self.tables.counts(problem.tasks)
        self.deviation: Floats = NOTHING
        self.most_rows = 0  # how many rows of the tables a person needs for that

    def deviating(self, tau: float) -> PsiLayout:
        """The same persons with rewards of their own around θ, where τ is given; a layout of its own, with the same tables."""
        other = copy.copy(self)
        other.deviation = tau / self.problem.reward_sizes if tau else NOTHING
        other.most_rows = states_visited(self.tables, self.counts)[0].size
        return other

    def some(self, who: Ints) -> PsiLayout:
        """The same for some of the persons, with the same tables."""
        other = copy.copy(self)
        cells = self.cells_of(who)
        sizes = np.diff(self.first, append=len(self.design))[who]
        other.owner, other.first = np.repeat(np.arange(who.size), sizes), np.cumsum(sizes) - sizes
        other.design, other.random, other.rest, other.counts = (
            each[cells] for each in (self.design, self.random, self.rest, self.counts)
        )
        other.along, other.persons, other.cells = self.along[who], who.size, cells.size
        return other

    def cells_of(self, who: Ints) -> Ints:
        """The cells of some persons, who are in order."""
        ends = np.append(self.first, len(self.design))
        return np.concatenate([np.arange(ends[i], ends[i + 1]) for i in who]) if who.size < self.persons else np.arange(ends[-1])

    def unpack(self, psi: Floats) -> PsiParts:
        """The parts of ψ."""
        theta = psi[self.reward] if self.known is None else self.known
        return PsiParts(theta, self.effects(psi), self.root(psi[self.spread]))

    def effects(self, psi: Floats) -> Floats:
        """The part of ψ, or of a step, that is b and c, `(p,2)`."""
        return np.stack([psi[self.discount], self.temperature_basis @ psi[self.temperature]], axis=1)

    def root(self, spread: Floats) -> Floats:
        """L."""
        rows, columns, diagonal = _entries(self.deep)
        found = np.zeros((self.deep, self.deep))
        found[rows, columns] = np.where(diagonal, np.exp(np.where(diagonal, spread, 0.0)), spread)
        return found

    def pack(self, theta: Floats, centre: Floats, deviations: Floats) -> Floats:
        """ψ of a reward, one centre `(2,)` for everyone, and standard deviations `(2,)`."""
        everyone = np.linalg.lstsq(self.design, np.ones(len(self.design)))[0]
        temperature = self.temperature_basis.T @ everyone * centre[1]
        rows, _, diagonal = _entries(self.deep)
        # persons differ less in how conditions change them
        logs = np.log(np.concatenate([deviations, np.tile(deviations / 2, self.deep // 2 - 1)]))
        return np.concatenate([theta[self.free], everyone * centre[0], temperature, np.where(diagonal, logs[rows], 0.0)])

    def means(self, effects: Floats) -> Floats:
        """The means A_i β `(n,D)` of v where effects are `(p,2)`, or how they move."""
        found: Floats = (self.along @ effects).reshape(-1, self.deep)
        return found

    def linear(self, along: Floats) -> Floats:
        """The derivative `(n,K,size)` of the means of v of persons with these A, and of the spread, in ψ."""
        spread = np.arange(self.spread.start, self.spread.stop)
        found = np.zeros((len(along), self.deep + spread.size, self.size))
        found[:, 0 : self.deep : 2, self.discount] = along
        found[:, 1 : self.deep : 2, self.temperature] = along @ self.temperature_basis
        found[:, self.deep + np.arange(spread.size), spread] = 1.0
        return found

    def weak_priors(self, parts: PsiParts) -> tuple[float, dict[str, Floats]]:
        """The logarithm of the weak priors, and the gradient in ψ of each."""
        pull = {name: np.zeros(self.size) for name in ("means", "spread", "correlation")}
        p, root = self.design.shape[1], parts.root
        logits, apart = (-(square @ parts.effects[:, kind]) for kind, square in enumerate(self.squares))
        pull["means"][self.discount], pull["means"][self.temperature] = logits, self.temperature_basis.T @ apart
        means = 0.5 * float(parts.effects[:, 0] @ logits + parts.effects[:, 1] @ apart)
        narrow, wide = (size**2 * np.eye(self.deep) + parts.covariance for size in (0.1, WIDEST))
        logs = [float(np.linalg.slogdet(matrix)[1]) for matrix in (narrow, wide / WIDEST**2)]
        spread = float(np.log(np.diag(root)).sum()) - 0.5 * logs[0] - p * logs[1]
        pull["spread"][self.spread] = parts.in_root(-np.linalg.inv(narrow) - 2 * p * np.linalg.inv(wide))
        rows, columns, diagonal = _entries(self.deep)
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
        """The same of some persons, who have these cells."""
        own = self.cells[cells] if self.cells.size else self.cells
        return PersonMoments(self.mean[who], self.covariance[who], self.precision[who], own)

    @classmethod
    def under(cls, prior: Floats, mean: Floats, covariance: Floats, cells: Floats = NOTHING) -> PersonMoments:
        """With Λ what the decisions add to the precision of the prior `N(·, Σ)`; never negative."""
        return cls(mean, covariance, positive_part(np.linalg.inv(covariance) - np.linalg.inv(prior)), cells)


@cache
def standard_nodes(count: int, size: int = 2) -> tuple[Floats, Floats]:
    """Places `(Q,D)` and weights `(Q,)` for the standard normal distribution: `count` nodes for logit γ, fewer for log λ.

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
    """Persons who are taken together: counts `(m,rows)`, Z and R of their cells, A `(n,q,p)`, and what is known of each person.

    `owner` `(m,)` are places among these persons. `log` is what decisions say at the nodes `(n,Q)`, where it has been asked
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
        """Sums over the cells of each person of values `(m,…)`."""
        if len(self.along) == len(self.owner):
            return values
        found: Floats = np.add.reduceat(values, np.flatnonzero(np.diff(self.owner, prepend=-1)))
        return found

    def at_cells(self, places: Floats, effects: Floats) -> Floats:
        """η `(m,Q,2)` of the cells where v is `(n,Q,D)`."""
        own = places[self.owner] if len(self.along) < len(self.owner) else places
        eta = self.random[:, 0, None, None] * own[:, :, :2]
        for t in range(1, self.random.shape[1]):
            eta += self.random[:, t, None, None] * own[:, :, 2 * t : 2 * t + 2]
        return eta + (self.rest @ effects)[:, None] if self.rest.any() else eta


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of each block: ψ, with how many nodes, and whether the curvature is wanted as well.

    It holds all that a worker needs to answer, but the persons of its block. `tables` are those of ψ's θ. `grid` are places
    `(Q,D)` drawn from the standard normal distribution, which stand in for the nodes of the quadrature where they are given.
    """

    tables: Tables
    layout: PsiLayout
    count: int
    grid: Floats | None = None

    def __getstate__(self) -> dict[str, Any]:
        """What travels to a worker: not the persons, who come block by block."""
        lean = object.__new__(PsiLayout)
        of_persons = ("problem", "design", "counts", "tables", "owner", "first", "random", "along", "rest")
        lean.__dict__.update(self.layout.__dict__ | dict.fromkeys(of_persons))
        return {**self.__dict__, "layout": lean}

    def nodes(self, block: PersonBlock) -> tuple[Floats, Floats, int]:
        """Places `(n,Q,D)` and the logarithms of their weights `(n,Q)`, and how many places in a row have the same x."""
        deep = self.layout.deep
        grid, weights = standard_nodes(self.count, deep)
        inner = np.unique(grid[:, 1]).size if deep == 2 else 1
        if self.grid is not None:
            grid, weights, inner = self.grid, np.full(len(self.grid), 1 / len(self.grid)), 1
        root = np.linalg.cholesky(block.persons.covariance)
        places = np.empty((len(root), len(grid), deep))
        for i in range(deep):
            places[:, :, i] = block.persons.mean[:, i, None] + root[:, i] @ grid.T
        log_weights = 0.5 * deep * np.log(2 * np.pi) + np.log(weights) + 0.5 * (grid**2).sum(axis=1)
        sizes = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        return places, log_weights + sizes[:, None], inner

    def answer(self, psi: Floats, full: bool, block: PersonBlock) -> Part | Floats:
        """The block's part of the value at ψ, with derivatives if wanted; or places η `(K,2)` for which tables are lacking."""
        layout, parts = self.layout, self.layout.unpack(psi)
        places, log_weights, inner = self.nodes(block)
        log, surface, eta, own_reward = block.log, None, NOTHING, None
        if log is None:
            eta = block.at_cells(places, parts.effects)
            lacking = self.tables.lacking(eta)
            if lacking.size:
                return lacking
            surface = self.tables.surface(block.counts, eta, inner, slopes=full and layout.mixed)
            own_reward, log = self.with_own_reward(block, eta, surface)
        shares, persons, away = _shared(log, places, log_weights, _means(block, parts.effects), parts.root)
        by_cell = shares if len(shares) == len(block.owner) else shares[block.owner]
        off = np.zeros_like(shares) if surface is None else by_cell * np.abs(surface.errors)
        part = Part(
            persons=persons,
            mean=(mean := _mean(shares, places)),
            covariance=_covariance(shares, places - mean[:, None]),
            cells=NOTHING,
            log=log if layout.persons * log.shape[1] <= KEPT else NOTHING,
            error=float(off.sum(axis=1).max()),
            cuts={} if surface is None else surface.cuts(off, layout.tolerance),
            means=np.stack([_about_means(layout, block, root) for root in _near(parts.root, full)]),
            gradient=NOTHING,
            curvature=NOTHING,
        )
        if not full:
            return part
        rows = layout.linear(block.along)
        scores = _normal_scores(away, parts.root)
        own = _mean(shares, scores)
        gradient = np.tensordot(own, rows, ([0, 1], [0, 1]))
        scores -= own[:, None]
        known = _normal_information(_mean(shares, away), _covariance(shares, away), parts.root) - _covariance(shares, scores)
        curvature = np.tensordot(rows, known @ rows, ([0, 1], [0, 1]))
        cells = NOTHING
        if surface is not None and (layout.free.size or layout.mixed):
            where, more, information, cells = self.of_decisions(block, eta, surface, by_cell, own_reward)
            mean_score = _mean(shares, more)
            if own_reward is None:
                gradient[where] += mean_score.sum(axis=0)
            else:
                by_log, by_slopes = own_reward.derivatives()
                weights = shares[:, :, None] * by_log, shares[:, :, None, None] * by_slopes
                gradient[where] += self.tables.along_lines(own_reward.rows, eta, surface, *weights)
            more -= mean_score[:, None]
            shared = shares[:, :, None] * more
            curvature[np.ix_(where, where)] += information - np.tensordot(shared, more, ([0, 1], [0, 1]))
            across = np.tensordot(_covariance(shares, more, scores), rows, ([0, 2], [0, 1]))
            curvature[where] -= across
            curvature[:, where] -= across.T
        return replace(part, cells=cells, gradient=gradient, curvature=curvature)

    def with_own_reward(self, block: PersonBlock, eta: Floats, surface: Surface) -> tuple[OwnRewards | None, Floats]:
        """What decisions say of each person's own reward, None where all have the same; and M, or L, at the nodes `(n,Q)`."""
        if not self.layout.deviation.size:
            return None, block.by_person(surface.log_likelihoods)
        found = own_rewards(self.tables, block.counts, eta, surface, self.layout.deviation)
        return found, found.log_likelihoods

    def scores(self, psi: Floats, block: PersonBlock) -> PersonScores | Floats:
        """The block's persons at ψ, the gradient of their sum, and no more; or places η `(K,2)` for which tables are lacking."""
        layout, parts = self.layout, self.layout.unpack(psi)
        places, log_weights, inner = self.nodes(block)
        log, surface, eta = block.log, None, NOTHING
        if log is None:
            eta = block.at_cells(places, parts.effects)
            lacking = self.tables.lacking(eta)
            if lacking.size:
                return lacking
            surface = self.tables.surface(block.counts, eta, inner, slopes=layout.mixed)
            log = block.by_person(surface.log_likelihoods)
        shares, persons, away = _shared(log, places, log_weights, _means(block, parts.effects), parts.root)
        by_cell = shares if len(shares) == len(block.owner) else shares[block.owner]
        off = np.zeros_like(shares) if surface is None else by_cell * np.abs(surface.errors)
        cuts = {} if surface is None else surface.cuts(off, layout.tolerance)
        own = _mean(shares, _normal_scores(away, parts.root))
        gradient = np.tensordot(own, layout.linear(block.along), ([0, 1], [0, 1]))
        if surface is not None and (layout.free.size or layout.mixed):
            where, more, _, _ = self.of_decisions(block, eta, surface, by_cell)
            gradient[where] += _mean(shares, more).sum(axis=0)
        return PersonScores(persons, gradient, log, places, shares, float(off.sum(axis=1).max()), cuts)

    def of_decisions(
        self, block: PersonBlock, eta: Floats, surface: Surface, shares: Floats, own_reward: OwnRewards | None = None
    ) -> tuple[Ints, Floats, Floats, Floats]:
        """What decisions say of ψ where v is given: the places in ψ `(k,)`, the scores there `(n,Q,k)` and their information
        `(k,k)`; and what they say of η of each cell `(m,2,2)`. `shares` are those of the nodes at each cell `(m,Q)`.
        """
        layout, f = self.layout, self.layout.free.size
        where, in_theta, information = np.arange(0), np.zeros((*shares.shape, 0)), np.zeros((0, 0))
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
        own = -np.einsum("mq,mqij->mij", shares, surface.bends)
        total = np.zeros((layout.spread.start, layout.spread.start))
        total[:f, :f] = information
        total[f:, f:] = np.einsum("mik,mij,mjl->kl", moves, own, moves, optimize=True)
        if f:
            total[:f, f:] = -np.einsum("mfi,mik->fk", cross, moves)
            total[f:, :f] = total[:f, f:].T
        scores = np.concatenate([block.by_person(in_theta), block.by_person(surface.slopes @ moves)], axis=2)
        return np.arange(layout.spread.start), scores, total, positive_part(own)

    def local(self, psi: Floats, around: Floats, block: PersonBlock) -> AtPlaces | Floats:
        """What decisions say at places `(Q,D)` around the means of the block's persons, with derivatives if it is one place; or
        places η `(K,2)` for which tables are lacking.
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

    def around(self, psi: Floats, block: PersonBlock) -> Around:
        """What decisions say at the nodes near ψ; the tables must be prepared."""
        effects = self.layout.effects(psi)
        if block.log is None:
            places, _, inner = self.nodes(block)
            eta = block.at_cells(places, effects)
            surface = self.tables.surface(block.counts, eta, inner, slopes=self.layout.mixed)
            own_reward, log = self.with_own_reward(block, eta, surface)
            return Around(block, effects, log, eta, surface, own_reward)
        return Around(block, effects, block.log, NOTHING, None, None)

    def several(self, psi: Floats, psis: Sequence[Floats], block: PersonBlock) -> tuple[Floats, Floats]:
        """Σ log p_i at several ψ of one θ near one of them `(k,)`, and what the block adds to M there `(k,m,m)`."""
        places, log_weights, _ = self.nodes(block)
        near, every = self.around(psi, block), [self.layout.unpack(each) for each in psis]
        values = [
            _shared(near.at(parts.effects), places, log_weights, _means(block, parts.effects), parts.root)[1].sum()
            for parts in every
        ]
        means = np.stack([_about_means(self.layout, block, parts.root) for parts in every])
        return np.array(values), means


@dataclass(frozen=True, eq=False)
class Around:
    """What the decisions of a block say at its nodes, where effects are near `effects` `(p,2)`.

    Where cells move with the effects it is expanded to the second order: spreads that are likely move effects by a part of their
    standard errors, and to read the tables for each of them would take most of the time of a fit. `log` is ℓ at `effects`
    `(n,Q)`; `eta`, `surface` and `own_reward` are what it was read from, if it was not known before.
    """

    block: PersonBlock
    effects: Floats
    log: Floats
    eta: Floats
    surface: Surface | None
    own_reward: OwnRewards | None

    def at(self, effects: Floats) -> Floats:
        """ℓ `(n,Q)`."""
        if self.surface is None or not self.surface.slopes.size:
            return self.log
        move = self.block.rest @ (effects - self.effects)
        slopes = self.surface.slopes + 0.5 * (self.surface.bends @ move[:, None, :, None])[:, :, :, 0]
        return self.log + self.block.by_person((slopes @ move[:, :, None])[:, :, 0])


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


def _means(block: PersonBlock, effects: Floats) -> Floats:
    """The means A_i β `(n,D)` of v."""
    found: Floats = (block.along @ effects).reshape(len(block.along), -1)
    return found


def _shared(log: Floats, places: Floats, log_weights: Floats, means: Floats, root: Floats) -> tuple[Floats, Floats, Floats]:
    """Shares P `(n,Q)`, log p_i `(n,)`, and how far nodes are from the mean in standard units, `L⁻¹ (v − A_i β)` `(n,Q,D)`."""
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


def _mean(shares: Floats, values: Floats) -> Floats:
    """The means `(n,k)` of values `(n,Q,k)`."""
    found: Floats = (shares[:, None, :] @ values)[:, 0]
    return found


def _covariance(shares: Floats, gaps: Floats, others: Floats | None = None) -> Floats:
    """The covariances `(n,k,l)` of values whose gaps to their means are `(n,Q,k)` and `(n,Q,l)`."""
    found: Floats = (shares[:, :, None] * gaps).transpose(0, 2, 1) @ (gaps if others is None else others)
    return found


def _normal_scores(away: Floats, root: Floats) -> Floats:
    """∂ log N(v; μ, Σ) `(n,Q,K)` in μ and in the entries of L, where `w = L⁻¹ (v − μ)` is `(n,Q,D)`: y in μ with `y = L⁻ᵀw`, and
    `y_i w_j` in L_ij, and in log L_ii `L_ii y_i w_i − 1`.
    """
    size = len(root)
    rows, columns, _ = _entries(size)
    found = np.empty((*away.shape[:2], size + rows.size))
    found[:, :, :size] = away @ np.linalg.inv(root)
    for k, (i, j) in enumerate(zip(rows, columns, strict=True)):
        np.multiply(found[:, :, i], away[:, :, j], out=found[:, :, size + k])
        if i == j:
            found[:, :, size + k] *= root[i, i]
            found[:, :, size + k] -= 1.0
    return found


def _normal_information(mean: Floats, squares: Floats, root: Floats) -> Floats:
    """The mean of `−∂² log N` `(n,K,K)` in the same, from the means `(n,D)` and the mean products of w.

    With `w̃ = (1, w)`, a step in parameter k moves w by `B_k w̃`. By `dw = −L⁻¹ (dμ + dL w)`,
    `−d² log N = dw·dw − w·L⁻¹ (2 dL dw + d²L w)`, which is a quadratic form of w̃.
    """
    size = len(root)
    rows, columns, diagonal = _entries(size)
    back, entries = np.linalg.inv(root), np.zeros((size + rows.size, size, size))
    entries[size + np.arange(rows.size), rows, columns] = np.where(diagonal, root[rows, columns], 1.0)
    moved = np.concatenate([np.zeros((len(entries), size, 1)), -back @ entries], axis=2)
    moved[np.arange(size), :, 0] = -back.T
    inner = np.zeros((len(entries), len(entries), size + 1, size + 1))
    inner[:, :, 1:] = -np.einsum("kij,ljc->klic", back @ entries, moved)
    forms = np.einsum("kic,lid->klcd", moved, moved) + inner + inner.transpose(1, 0, 2, 3)
    twice = size + np.flatnonzero(diagonal)
    forms[twice, twice, 1:, 1:] -= back @ entries[twice]
    known = np.ones((len(mean), size + 1, size + 1))
    known[:, 0, 1:] = known[:, 1:, 0] = mean
    known[:, 1:, 1:] = squares
    found: Floats = known.reshape(len(mean), -1) @ forms.reshape(len(entries) ** 2, -1).T
    found = found.reshape(-1, len(entries), len(entries))
    return (found + found.transpose(0, 2, 1)) / 2


#: The step of differences in the spread.
STEP = 1e-3


def _near(root: Floats, full: bool) -> list[Floats]:
    """L, and if wanted those by which `−½ log det M` is differentiated: each entry up, each down, pairs up, pairs down."""
    rows, columns, diagonal = _entries(len(root))

    def moved(step: Floats) -> Floats:
        found = root.copy()
        found[rows, columns] = np.where(diagonal, root[rows, columns] * np.exp(step), root[rows, columns] + step)
        return found

    unit = STEP * np.eye(rows.size)
    pairs = [a + b for a, b in combinations(unit, 2)]
    return [root, *(moved(sign * step) for steps in (unit, pairs) for sign in (1, -1) for step in steps)] if full else [root]


def _about_means(layout: PsiLayout, block: PersonBlock, root: Floats) -> Floats:
    """What persons add to M `(k,k)`, the information about (b, c), where Σ = L Lᵀ."""
    least = 1 / (WIDEST**2 * layout.persons)
    design, prior = block.along[:, 0], root @ root.T
    warm = design @ layout.temperature_basis
    if layout.deep == 2 and not layout.mixed:
        # W = (Λ⁻¹ + Σ)⁻¹ = (Λ + |Λ| |Σ| Σ⁻¹)/(1 + tr ΣΛ + |Λ| |Σ|), which needs no inverse of Λ
        own = block.persons.precision
        size = np.linalg.det(own)
        below = 1 + np.einsum("nij,ij->n", own, prior) + size * np.linalg.det(prior)
        first, second = own[:, 0, 0] + size * prior[1, 1], own[:, 1, 1] + size * prior[0, 0]
        near = design.T @ ((first / below + least)[:, None] * design)
        across = design.T @ (((own[:, 0, 1] - size * prior[0, 1]) / below)[:, None] * warm)
        far = warm.T @ ((second / below + least)[:, None] * warm)
        return np.block([[near, across], [across.T, far]])
    # in v the decisions say P, in v and β G, in β K; u = v − Aβ is averaged out
    moves = layout.linear(block.along)[:, : layout.deep, layout.free.size : layout.spread.start]
    p, own = block.persons.precision, block.persons.cells
    g, k = np.zeros_like(moves), np.zeros((len(p), moves.shape[2], moves.shape[2]))
    if layout.mixed:
        rest = np.zeros((len(own), 2, moves.shape[2]))
        rest[:, 0, : design.shape[1]], rest[:, 1, design.shape[1] :] = block.rest, block.rest @ layout.temperature_basis
        random = (block.random[:, None, :, None] * np.eye(2)[:, None, :]).reshape(len(own), 2, -1)
        p, g, k = (block.by_person(a.transpose(0, 2, 1) @ own @ b) for a, b in ((random, random), (random, rest), (rest, rest)))
    both = p @ moves + g
    within = np.linalg.solve(np.eye(layout.deep) + prior @ p, prior[None] @ both)
    crossed = moves.transpose(0, 2, 1) @ g
    every = moves.transpose(0, 2, 1) @ p @ moves + crossed + crossed.transpose(0, 2, 1) + k
    found: Floats = (every - both.transpose(0, 2, 1) @ within).sum(axis=0)
    rows = (block.random[:, None, :] @ block.along[block.owner])[:, 0] + block.rest
    weak = rows, rows @ layout.temperature_basis
    held: Floats = la.block_diag(*(each.T @ each for each in weak)) / (WIDEST**2 * layout.cells)
    total: Floats = found + held
    return total


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
        self._theta, self._logs, self._error = NOTHING, list[Floats](), 0.0

    def at(self, psi: Floats, full: bool = True) -> Value | None:
        """The value at ψ, with derivatives if wanted; None where soft values are infinite."""
        layout, parts = self.layout, self.layout.unpack(psi)
        found = self._answers(psi, full)
        if found is None:
            return None
        held, pull = layout.weak_priors(parts)
        persons, mean, covariance, cells = (
            np.concatenate([getattr(f, name) for f in found]) for name in ("persons", "mean", "covariance", "cells")
        )
        logs = -0.5 * np.linalg.slogdet(sum(f.means for f in found))[1]
        objective = float(persons.sum()) - 0.5 * float(layout.ridge @ parts.theta**2) + held + float(logs[0])
        error = max(self._error, *(f.error for f in found))
        if not full:
            return Value(objective, persons, mean, covariance, cells, error, NOTHING, NOTHING)
        gradient: Floats = np.sum([*(f.gradient for f in found), *pull.values()], axis=0)
        gradient[layout.reward] -= (layout.ridge * parts.theta)[layout.free]
        entries = layout.spread.stop - layout.spread.start
        gradient[layout.spread] += (logs[1 : 1 + entries] - logs[1 + entries : 1 + 2 * entries]) / (2 * STEP)
        information: Floats = np.sum([f.curvature for f in found], axis=0)
        information[layout.reward, layout.reward] += np.diag(layout.ridge[layout.free])
        information -= _weak_curvature(layout, psi)
        information[layout.spread, layout.spread] -= _second(logs, entries)
        return Value(objective, persons, mean, covariance, cells, error, gradient, information)

    def scores(self, psi: Floats, grid: Floats | None = None) -> list[PersonScores] | None:
        """log p_i at ψ and the gradient of their sum, without priors, block by block; None where soft values are infinite.

        It is for those who ask very often. Nodes are drawn ones `(Q,D)` where a `grid` of them is given.
        """
        asked_of = replace(self.question(self.layout.unpack(psi).theta), grid=grid)
        found: list[PersonScores] | None = self._all(partial(asked_of.scores, psi))
        again = self.layout.free.size or self.layout.mixed or grid is not None
        if found is not None and not self._logs and not again and self.layout.persons * found[0].log.shape[1] <= KEPT:
            self._logs, self._error = [part.log for part in found], max(part.error for part in found)
        return found

    def objectives(self, psi: Floats, psis: Sequence[Floats]) -> Floats:
        """The objective at several ψ of one θ near one of them."""
        layout, every = self.layout, [self.layout.unpack(each) for each in psis]
        found = asked(partial(self.prepared(psi).several, psi, psis), self.blocks(), layout.jobs)
        total = sum(each for each, _ in found)
        logs = np.linalg.slogdet(sum(means for _, means in found))[1]
        held = [layout.weak_priors(parts)[0] - 0.5 * float(layout.ridge @ parts.theta**2) for parts in every]
        objectives: Floats = total - 0.5 * logs + held
        return objectives

    def blocks(self) -> list[PersonBlock]:
        """The persons, in the same blocks whoever computes them."""
        layout, made = self.layout, []
        ends = np.append(layout.first, len(layout.design))
        nodes = len(standard_nodes(self.count, layout.deep)[0])
        size = min(BLOCK, max(1, BLOCK_NODES // nodes))
        if layout.deviation.size:  # then choices in all states where a person decided are kept at every node
            size = max(1, min(size, 4_000_000 // (nodes * layout.most_rows * (layout.deviation.size + 1))))
        cuts = np.unique(np.searchsorted(ends[:-1], np.arange(0, ends[-1], size)))
        cuts = cuts[cuts < layout.persons]
        for i, (low, high) in enumerate(zip(cuts, [*cuts[1:], layout.persons], strict=True)):
            who, cells = slice(low, high), slice(ends[low], ends[high])
            own = layout.owner[cells] - low
            parts = layout.counts[cells], own, layout.random[cells], layout.rest[cells], layout.along[who]
            made.append(PersonBlock(*parts, self.persons.of(who, cells), self._logs[i] if self._logs else None))
        return made

    def prepared(self, psi: Floats) -> Question:
        """What is asked of blocks at ψ, with tables that are prepared.

        A trial of another θ may have been the last. And tables share their patches with those of other θ and of transitions that
        were drawn anew, which may have cut them since.
        """
        question, effects = self.question(self.layout.unpack(psi).theta), self.layout.effects(psi)
        unread = [block for block in self.blocks() if block.log is None]
        if any(question.tables.lacking(block.at_cells(question.nodes(block)[0], effects)).size for block in unread):
            self._answers(psi, False)
        return question

    def question(self, theta: Floats) -> Question:
        """What is asked of blocks at this θ."""
        if not np.array_equal(theta, self._theta):
            self._theta, self._logs, self._error = theta.copy(), [], 0.0
        self.layout.tables = self.layout.tables.at(theta)
        return Question(self.layout.tables, self.layout, self.count)

    def local(self, psi: Floats, around: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """What decisions say at places `(Q,D)` around the means of persons: all that `AtPlaces` has of them."""
        found = self._all(partial(self.question(self.layout.unpack(psi).theta).local, psi, around))
        if found is None:
            raise ValueError("the soft values must be finite at the first parameters: check rewards and transitions")
        log, slope, bend, cells = (
            np.concatenate([getattr(f, name) for f in found]) for name in ("log", "slope", "bend", "cells")
        )
        return log, slope, bend, cells

    def _answers(self, psi: Floats, full: bool) -> list[Part] | None:
        """All parts; None where soft values are infinite."""
        every: list[Part] | None = self._all(partial(self.question(self.layout.unpack(psi).theta).answer, psi, full))
        again = self.layout.free.size or self.layout.mixed  # derivatives need the surfaces again
        if every is not None and not self._logs and not again and every[0].log.size:
            self._logs, self._error = [part.log for part in every], max(part.error for part in every)
        return every

    def _all(self, ask: Any) -> list[Any] | None:
        """The answers of all blocks, from tables that are fine enough wherever patches can still be cut."""
        tables, blocks, found = self.layout.tables, self.blocks(), dict[int, Any]()
        todo = list(range(len(blocks)))
        while todo:
            answers = asked(ask, [blocks[i] for i in todo], self.layout.jobs)
            again, lacking, cuts = [], [], dict[int, int]()
            for i, answer in zip(todo, answers, strict=True):
                if isinstance(answer, np.ndarray):
                    lacking.append(answer)
                    again.append(i)
                else:
                    found[i] = answer
                    cuts |= answer.cuts if answer.error > self.layout.tolerance else {}
            if not tables.prepare(np.concatenate([tables.patches.of(eta) for eta in lacking]) if lacking else np.zeros(0, int)):
                return None
            cut = tables.cut(cuts)
            if cut is None:
                return None
            if cut:
                again += [i for i in todo if i in found and found[i].error > self.layout.tolerance]
            todo = sorted(set(again))
        return [found[i] for i in range(len(blocks))]


def asked(ask: Any, blocks: Sequence[Any], jobs: int) -> list[Any]:
    """The answers of all blocks. Several blocks travel together, because what is asked travels with them, and few stay here.

    With 0 jobs this is part of a task already, which may run on a thread of its own.
    """
    if not jobs:
        return _each(ask, blocks)
    together, jobs = -(-len(blocks) // 16), jobs if len(blocks) >= 4 else 1
    groups = [blocks[low : low + together] for low in range(0, len(blocks), together)]
    return [answer for answers in in_parallel(partial(_each, ask), groups, jobs) for answer in answers]


def _each(ask: Any, blocks: Sequence[Any]) -> list[Any]:
    return [ask(block) for block in blocks]


def _weak_curvature(layout: PsiLayout, psi: Floats) -> Floats:
    """The second derivatives `(size,size)` of the weak priors, by differences."""
    found = np.zeros((layout.size, layout.size))
    for j in range(layout.free.size, layout.size):
        step = 1e-4 * (np.arange(layout.size) == j)
        ahead, behind = (sum(layout.weak_priors(layout.unpack(psi + sign * step))[1].values()) for sign in (1, -1))
        found[:, j] = (ahead - behind) / 2e-4
    return (found + found.T) / 2


def _second(logs: Floats, entries: int) -> Floats:
    """The second derivatives in so many entries from values at the places of `_near`."""
    pairs = list(combinations(range(entries), 2))
    here, up, down, both_up, both_down = np.split(logs, np.cumsum([1, entries, entries, len(pairs)]))
    found = np.diag((up - 2 * here + down) / STEP**2)
    for place, (j, k) in enumerate(pairs):
        apart = both_up[place] - up[j] - up[k] + 2 * here[0] - down[j] - down[k] + both_down[place]
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

    def persons_at(self, psi: Floats) -> PersonMoments:
        """About where each person is at another ψ: what the decisions say is taken as normal, with precision Λ."""
        layout, persons = self.marginal.layout, self.persons
        here, there = (layout.unpack(each) for each in (self.psi, psi))
        # (Λ + Σ⁻¹)⁻¹ = L (I + LᵀΛL)⁻¹ Lᵀ, which also a narrow Σ leaves positive
        root = there.root
        left = root @ np.linalg.inv(np.eye(layout.deep) + root.T @ persons.precision @ root)
        covariance = left @ root.T
        away, before = (layout.means(parts.effects) - persons.mean for parts in (there, here))
        drawn = left @ np.linalg.solve(root, away.T).T[:, :, None]
        drawn -= covariance @ np.linalg.solve(here.covariance, before.T).T[:, :, None]
        return replace(persons, mean=persons.mean + drawn[:, :, 0], covariance=(covariance + covariance.transpose(0, 2, 1)) / 2)


def first_psi(layout: PsiLayout, reward: Floats, discounts: Floats, temperature: float) -> Floats:
    """Where the search begins, from some persons' discounts and one temperature for all."""
    edge = expit(-3.0)
    logits = logit(np.clip(discounts / layout.largest, edge, 1 - edge))
    return layout.pack(reward, np.array([logits.mean(), np.log(temperature)]), np.array([max(1.0, logits.std()), 0.5]))


def modes(layout: PsiLayout, psi: Floats) -> PersonMoments:
    """The mode of each person's v under the population ψ, and the curvature there.

    Newton's method in standard units of the population, from the best of nine places.
    """
    parts, n = layout.unpack(psi), layout.persons
    centre, root = layout.means(parts.effects), parts.root

    cells = np.zeros((layout.cells if layout.mixed else 0, 2, 2))

    def around(who: Ints, z: Floats, grid: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Evaluate the decisions of some persons at places around z."""
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


def maximise(
    layout: PsiLayout, psi: Floats, nodes: int | None, tol: float = 1e-6, max_iter: int = 60, progress: Progress = silent
) -> Maximum:
    """Climb from ψ, first with few nodes, and where persons are very many, first with some of them.

    Unless it is said how many `nodes` there are in the end, they are 15, and more where these are too few.
    """
    n = layout.persons
    if n > MANY:
        sample = layout.some(np.linspace(0, n - 1, max(MANY // 3, n // 20)).astype(np.int64))
        psi = maximise(sample, psi, 7, 0.1, max_iter, part_of(progress, 0.0, 0.2)).psi
        persons = modes(layout, psi)
        value = Marginal(layout, persons, 7).at(psi, full=False)
        assert value is not None
        persons = _moved(persons, layout.unpack(psi).covariance, value)
    else:
        few, rough = min(nodes or 7, 7), max(tol, 0.1)
        near = climb(layout, psi, modes(layout, psi), few, rough, min(max_iter, 15), part_of(progress, 0.0, 0.5))
        psi, persons = near.psi, near.persons
    return finish(layout, psi, persons, nodes, tol, max_iter, part_of(progress, 0.5, 1.0))


def finish(
    layout: PsiLayout,
    psi: Floats,
    persons: PersonMoments,
    nodes: int | None,
    tol: float = 1e-6,
    max_iter: int = 60,
    progress: Progress = silent,
) -> Maximum:
    """Climb from ψ near the maximum with as many nodes as it takes, or as are wanted."""
    found = climb(layout, psi, persons, nodes or 15, tol, max_iter, part_of(progress, 0.0, 0.6))
    for finer in (25, 41) if nodes is None else ():
        if not found.finished or _off(found, finer) < 0.02:
            break
        found = climb(layout, found.psi, found.persons, finer, tol, max_iter, part_of(progress, 0.6, 1.0))
    return found


def _off(found: Maximum, finer: int) -> float:
    """How far the maximum is, in standard errors, from that with so many nodes; of very many persons, some are asked.

    Standard errors are those of at most 20,000 persons: with a million, a hundredth of one is of no interest any more.
    """
    layout, persons = found.marginal.layout, found.persons
    n = layout.persons
    if n > MANY:
        who = np.linspace(0, n - 1, MANY // 3).astype(np.int64)
        layout, persons = layout.some(who), persons.of(who, layout.cells_of(who))
    with_more, with_these = (Marginal(layout, persons, count).at(found.psi) for count in (finer, found.marginal.count))
    assert with_more is not None
    assert with_these is not None
    apart = (with_more.gradient - with_these.gradient) * n / layout.persons
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
    mean = persons.mean + (share @ layout.means(layout.effects(move))[:, :, None])[:, :, 0]
    moved = replace(persons, mean=mean, precision=start.marginal.persons.precision)
    return climb(layout, start.psi + move, moved, 7, 2e-3, 60, silent, held=[j])


def with_one_discount(found: Maximum, discount: float | None = None) -> Maximum:
    """The maximum where everybody has one discount, from that where persons differ; the discount is this one, if it is given.

    The spread of logit γ is held at 0.01, which changes no choice, and its correlation with log λ at 0. What decisions say of a
    person (Λ) is kept. There must be no covariates.
    """
    layout, psi, first = found.marginal.layout, found.psi.copy(), found.marginal.layout.spread.start
    if layout.deep != 2 or layout.design.shape[1] != 1:
        raise ValueError("one discount for everybody must be asked of persons without covariates")
    psi[first + 1 : first + 3] = 0.0, np.log(np.linalg.norm(layout.unpack(psi).root[1]))
    held = [first, first + 1]
    if discount is not None:
        edge = expit(-12.0)  # beyond, tables are as there
        psi[layout.discount] = logit(np.clip(discount / layout.largest, edge, 1 - edge)) / layout.design[0]
        held.append(layout.discount.start)
    # a step is at most as long as the spread: it goes most of the way with a larger one
    for size, nodes, tol in ((0.3, 7, 0.1), (0.1, 7, 0.02), (0.01, 15, 1e-3)):
        psi[first] = np.log(size)
        persons = replace(modes(layout, psi), precision=found.persons.precision)
        there = climb(layout, psi, persons, nodes, tol, 60, silent, held)
        psi = there.psi.copy()
    return there


def likely_places(found: Maximum) -> tuple[Floats, Floats, int]:
    """Where each person without covariates may be, given the decisions: the nodes η `(n,Q,2)`, their shares `(n,Q)`, and how many
    nodes in a row have the same x.
    """
    every = list(node_shares(found))
    places, shares = (np.concatenate([each[k] for each in every]) for k in (0, 1))
    return places, shares, found.marginal.prepared(found.psi).nodes(found.marginal.blocks()[0])[2]


def node_shares(found: Maximum) -> Iterator[tuple[Floats, Floats, Around]]:
    """Of each block of persons without conditions, the nodes η `(n,Q,2)`, their shares `(n,Q)`, and what decisions say there."""
    marginal, parts = found.marginal, found.marginal.layout.unpack(found.psi)
    question = marginal.prepared(found.psi)
    for block in marginal.blocks():
        places, log_weights, _ = question.nodes(block)
        near = question.around(found.psi, block)
        yield places, _shared(near.log, places, log_weights, _means(block, parts.effects), parts.root)[0], near


def climb(
    layout: PsiLayout,
    psi: Floats,
    persons: PersonMoments,
    nodes: int,
    tol: float,
    max_iter: int,
    progress: Progress,
    held: Sequence[int] = (),
) -> Maximum:
    """Newton's method from ψ, with the first nodes around `persons`; the entries of ψ that are held stay where they are."""
    own, free = persons.precision, ~np.isin(np.arange(layout.size), held)
    marginal, steps, last, placed = Marginal(layout, persons, nodes), 0, np.inf, psi
    # Very many persons determine ψ so well that steps of ten standard errors are sure, and hardly move the nodes.
    at_hand, still = (10.0, 0.15) if layout.persons > MANY else (0.0, 0.0)
    if layout.mixed and not at_hand:
        # Cells move over the edges of patches, where tables jump a little: near the maximum a step that comes nearer is enough.
        at_hand = 0.1
    if layout.deviation.size:  # a climb begins near the maximum, and each value is dear
        at_hand = max(at_hand, 1.0)
    while True:
        value = marginal.at(psi)
        if value is None:
            raise ValueError("the soft values must be finite at the first parameters: check rewards and transitions")
        persons = _moved(persons, layout.unpack(psi).covariance, value)
        step = np.zeros(layout.size)
        step[free] = spectrum_of(value.information[np.ix_(free, free)], absolute=True).solve(value.gradient[free])
        distance = float(np.sqrt(np.maximum(value.gradient @ step, 0.0)))
        progress(min(0.95, steps / 20), f"marginal log-likelihood {decimals(value.persons.sum(), 2)}")
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
        if held:
            persons = replace(persons, precision=own)
        # Late and small moves of the nodes would change the integrals more than the step does.
        if _size(layout, placed, psi - placed) > (still if steps <= 15 else 0.3):
            if steps > 3:  # nodes that go halfway do not swing from one set of places to another and back
                mean, covariance = marginal.persons.mean + persons.mean, marginal.persons.covariance + persons.covariance
                persons = replace(persons, mean=mean / 2, covariance=covariance / 2)
            marginal, placed = Marginal(layout, persons, nodes), psi


def _moved(before: PersonMoments, prior: Floats, value: Value) -> PersonMoments:
    """Where the nodes should be: at the moments of the quadrature. Few nodes may miss a part, so no spread shrinks at once."""
    cells = value.cells if value.cells.size else before.cells
    found = PersonMoments.under(prior, value.mean, value.covariance + 1e-9 * before.covariance, cells)
    return replace(found, covariance=value.covariance + 0.05 * before.covariance)


def _size(layout: PsiLayout, psi: Floats, step: Floats) -> float:
    """How far a step moves anyone's mean, in standard deviations between persons, or the logarithms of these, in 0.7."""
    parts, effects = layout.unpack(psi), layout.effects(step)
    deviations = np.sqrt(np.diag(parts.covariance))
    means = np.abs(layout.means(effects)).max(axis=0) / deviations
    rest = np.abs(layout.rest @ effects).max(axis=0) / deviations[:2]
    rows, _, diagonal = _entries(layout.deep)
    logs = np.abs(step[layout.spread] / np.where(diagonal, 1.0, np.diag(parts.root)[rows])).max() / 0.7
    return float(max(means.max(), rest.max(), logs))


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


def alike(found: Maximum) -> Floats:
    """The p-values `(p,2)` of "this effect is the same for everybody", on logit γ and on log λ; NaN where none is within persons.

    With r the column of R that an effect has, a person with an effect of their own, of variance τ, adds to the derivative of log
    p_i in τ at 0

        S_i = ½ E[(Σ_j r_ij ∂ℓ_ij)² + Σ_j r_ij² ∂²ℓ_ij],    given the decisions.

    Where effects differ, `Σ S_i` is positive. Its variance is the sum of squares of what is left of S_i once the scores of ψ are
    taken out, since ψ was fitted to the same persons, and the test is that of a normal distribution. S_i are squares, so that
    with few persons it rejects less often than it says.
    """
    marginal, layout = found.marginal, found.marginal.layout
    if not layout.mixed:
        return np.full((layout.rest.shape[1], 2), np.nan)
    ask = partial(_changes, marginal.prepared(found.psi), found.psi)
    changes, scores = (np.concatenate(each) for each in zip(*asked(ask, marginal.blocks(), layout.jobs), strict=True))
    left = changes - scores @ np.linalg.lstsq(scores, changes)[0]
    errors = np.sqrt((left**2).sum(axis=0))
    p: Floats = ndtr(-np.divide(changes.sum(axis=0), errors, out=np.full_like(errors, np.nan), where=errors > 0))
    return p.reshape(-1, 2)


def _changes(question: Question, psi: Floats, block: PersonBlock) -> tuple[Floats, Floats]:
    """S_i `(n,2p)`, of each effect on logit γ and on log λ, and each person's score in ψ `(n,size)`."""
    layout, parts = question.layout, question.layout.unpack(psi)
    places, log_weights, inner = question.nodes(block)
    eta = block.at_cells(places, parts.effects)
    surface = question.tables.surface(block.counts, eta, inner, slopes=True)
    shares, _, away = _shared(
        block.by_person(surface.log_likelihoods), places, log_weights, _means(block, parts.effects), parts.root
    )
    scores = (_mean(shares, _normal_scores(away, parts.root))[:, None] @ layout.linear(block.along))[:, 0]
    where, more, _, _ = question.of_decisions(block, eta, surface, shares[block.owner])
    scores[:, where] += _mean(shares, more)
    found = np.zeros((len(shares), 2 * block.rest.shape[1]))
    for k, (column, kind) in enumerate(product(block.rest.T, range(2))):
        slope = block.by_person(column[:, None] * surface.slopes[:, :, kind])
        bend = block.by_person(column[:, None] ** 2 * surface.bends[:, :, kind, kind])
        found[:, k] = 0.5 * (shares * (slope**2 + bend)).sum(axis=1)
    return found, scores


@dataclass(frozen=True, eq=False)
class Answers:
    """What is known of η at rows of X and Z, each of one person.

    Attributes:
        mean, covariance: of η `(k,2)` and `(k,2,2)`, with the errors of spread, reward and effects in the covariance.
        within: the covariance `(k,2,2)` where ψ is the maximum.
        discounts, errors: the mean of γ and its standard deviation `(k,)`.
        with_reward: the covariance `(k,2,d)` of η with the parameters of the reward that are estimated.
    """

    mean: Floats
    covariance: Floats
    within: Floats
    discounts: Floats
    errors: Floats
    with_reward: Floats


@dataclass(frozen=True, eq=False)
class Posterior:
    """What is known at the maximum.

    Attributes:
        status: whether the effects can be used.
        covariance: C, of ψ.
        open_reward: directions `(d,k)` of the reward of which the decisions say nothing.
        persons: what is known of each person at their typical row.
        cells: what is known of each cell; the same as `persons` where every person has one cell.
    """

    status: Status
    covariance: Floats
    open_reward: Floats
    persons: Answers
    cells: Answers


def posterior(found: Maximum, known: bool = True, typical: tuple[Floats, Floats] | None = None) -> Posterior:
    """What is known of ψ, of each cell and of each person; `known` says whether the decisions identify anybody's discount.

    `typical` are the rows of X `(n,p)` and of Z `(n,q)` at which persons are described; None where they are their cells.
    """
    marginal, decided, layout = found.marginal, spectrum_of(found.value.information), found.marginal.layout
    covariance = decided.inverse + _transition_covariance(found, decided.inverse)
    identified = known and decided.identified()[layout.discount].all()
    status = Status.CONVERGED if identified else Status.NOT_IDENTIFIED
    if known and not found.finished:  # where nobody's discount is identified, the maximum decides nothing
        status = Status.NOT_CONVERGED
    spreads = [(1.0, found.psi)]
    left = covariance
    if status == Status.CONVERGED:
        spreads, left = likely_spreads(found), covariance_at_spread(found, covariance)
    question, blocks, low = marginal.prepared(found.psi), [], 0
    for block in marginal.blocks():
        rest, random, owner = block.rest, block.random, block.owner
        if typical is not None:
            who = slice(low, low + len(block.along))
            x, z = typical[0][who], typical[1][who]
            rest = np.concatenate([rest, x - (z[:, None, :] @ block.along)[:, 0]])
            random, owner = np.concatenate([random, z]), np.concatenate([owner, np.arange(len(x))])
        blocks.append((block, random, rest, owner))
        low += len(block.along)
    ask = partial(row_answers, question, found.psi, spreads, left)
    parts = asked(ask, blocks, layout.jobs)
    cells, persons = [], []
    for (block, *_), answers in zip(blocks, parts, strict=True):
        cells.append([each[: len(block.owner)] for each in answers])
        persons.append([each[len(block.owner) :] for each in answers])
    of_cells, of_persons = (Answers(*(np.concatenate(each) for each in zip(*rows, strict=True))) for rows in (cells, persons))
    open_reward = decided.null_space[layout.reward]
    return Posterior(status, covariance, open_reward, of_cells if typical is None else of_persons, of_cells)


def row_answers(
    question: Question,
    psi: Floats,
    spreads: Sequence[tuple[float, Floats]],
    left: Floats,
    asked: tuple[PersonBlock, Floats, Floats, Ints],
) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    """What `Answers` holds of some rows, with shares averaged over spreads.

    `left` is the covariance of ψ where the spread is given.
    A row is `η = Z v + R β` of one of the block's persons: Z `(k,q)`, R `(k,p)` and whose it is `(k,)` come with the block.
    """
    layout, (block, random, rest, owner) = question.layout, asked
    places, log_weights, _ = question.nodes(block)
    near = question.around(psi, block)

    def shares_at(psi: Floats) -> tuple[Floats, Floats]:
        parts = layout.unpack(psi)
        shares, _, away = _shared(near.at(parts.effects), places, log_weights, _means(block, parts.effects), parts.root)
        return shares, away

    mean, square, discounts, second = (
        np.zeros((len(rest), 2)),
        np.zeros((len(rest), 2, 2)),
        np.zeros(len(rest)),
        np.zeros(len(rest)),
    )
    still = replace(block, random=random, rest=np.zeros_like(rest), owner=owner).at_cells(places, layout.effects(psi))
    for weight, each in spreads:
        there, shares = still + (rest @ layout.effects(each))[:, None], shares_at(each)[0][owner]
        gammas = layout.largest * expit(there[:, :, 0])
        mean += weight * _mean(shares, there)
        square += weight * _covariance(shares, there)
        discounts += weight * (shares * gammas).sum(axis=1)
        second += weight * (shares * gammas**2).sum(axis=1)
    averaged = square - mean[:, :, None] * mean[:, None, :]
    # the derivative (k,2,size) of each row's mean in ψ: Cov(η, score of ψ) given the decisions, and what moves rows directly
    likely, away = shares_at(psi)
    there, by_row = still + (rest @ layout.effects(psi))[:, None], likely[owner]
    gaps = there - _mean(by_row, there)[:, None]
    within = _covariance(by_row, gaps)
    rows = layout.linear(block.along)
    slopes = _covariance(by_row, gaps, _normal_scores(away, layout.unpack(psi).root)[owner]) @ rows[owner]
    slopes[:, 0, layout.discount] += rest
    slopes[:, 1, layout.temperature] += rest @ layout.temperature_basis
    if near.surface is not None and (layout.free.size or layout.mixed):
        by_cell = likely if len(likely) == len(block.owner) else likely[block.owner]
        where, more, _, _ = question.of_decisions(block, near.eta, near.surface, by_cell, near.own_reward)
        slopes[:, :, where] += _covariance(by_row, gaps, more[owner])
    wide = averaged + slopes @ left @ slopes.transpose(0, 2, 1)
    discounts = np.minimum(discounts, layout.largest)
    variances = np.maximum(second - discounts**2, 0.0)
    errors = np.sqrt(variances * wide[:, 0, 0] / averaged[:, 0, 0])
    return mean, wide, within, discounts, errors, slopes @ left[:, layout.reward]


def _transition_covariance(found: Maximum, covariance: Floats) -> Floats:
    """What the error of estimated transitions adds to the covariance of ψ."""
    layout = found.marginal.layout
    if not any(task.mdp.is_estimated for task in layout.problem.tasks):
        return np.zeros_like(covariance)
    rng, here, moves = np.random.default_rng(0), Marginal(layout, found.persons, 5).at(found.psi), []
    for _ in range(40):
        drawn = layout.problem.in_tasks(partial(redrawn, rng=rng))
        again = copy.copy(layout)
        again.tables = Tables(drawn.tasks, layout.largest, layout.tables.theta, layout.free)
        again.tables.patches = layout.tables.patches
        there = Marginal(again, found.persons, 5).at(found.psi)
        if here is not None and there is not None:
            moves.append(covariance @ (there.gradient - here.gradient))
    added: Floats = np.mean([np.outer(move, move) for move in moves], axis=0)
    return added


def likely_spreads(found: Maximum) -> list[tuple[float, Floats]]:
    """The ψ_k with their weights, which sum to 1: only ψ̂ where the spread is known so well that others change nothing."""
    moves, layout = spread_moves(found), found.marginal.layout
    rows, _, diagonal = _entries(layout.deep)
    sizes = np.where(diagonal, 1.0, np.diag(layout.unpack(found.psi).root)[rows])
    deviations = np.linalg.norm(moves[layout.spread], axis=1) / sizes
    if deviations.max() < 0.05:
        return [(1.0, found.psi)]

    def log_flat(psi: Floats) -> float:
        """log f, `1 − ρ²` being the squared share of L₂₂ in the deviation of log λ."""
        root = layout.unpack(psi).root
        lengths = np.linalg.norm(root, axis=1)
        powers = np.maximum(np.arange(len(root)) - 1, 0)
        return float(np.log(root[0, 0]) + (2 * np.log(np.diag(root) / lengths) - powers * np.log(lengths))[1:].sum())

    if layout.deep == 2:
        # log L₁₁ is known least; what is known well needs few places
        z, weights = normal_nodes(*((7, 5, 5) if deviations.max() > 0.2 else (3, 3, 3)))
    else:
        z, weights = scattered_nodes(128, rows.size)
    psis = [found.psi + moves @ each for each in z]
    values = found.marginal.objectives(found.psi, psis)
    here = found.value.objective + log_flat(found.psi)
    flat = np.array([log_flat(psi) for psi in psis])
    density = weights * np.exp(np.minimum(values + flat - here + 0.5 * (z**2).sum(axis=1), 700.0))
    density = np.where(values <= found.value.objective, density, 0.0)
    return [(float(d), psi) for d, psi in zip(density / density.sum(), psis, strict=True) if d > 0]


def spread_moves(found: Maximum) -> Floats:
    """M `(size,s)`: how ψ moves with the s entries of the spread, in their standard errors, where the reward stays."""
    layout = found.marginal.layout
    rest, entries = slice(layout.free.size, layout.size), layout.spread.stop - layout.spread.start
    along = spectrum_of(found.value.information[rest, rest]).inverse[:, -entries:]
    variances, vectors = np.linalg.eigh(along[-entries:])
    kept = variances > 1e-12 * variances.max()
    moves = np.zeros((layout.size, entries))
    moves[rest] = along @ (vectors[:, kept] / np.sqrt(variances[kept])) @ vectors[:, kept].T
    return moves


def covariance_at_spread(found: Maximum, covariance: Floats) -> Floats:
    """What is left of the covariance of ψ where the spread is given: `C − M Mᵀ`, never negative."""
    moves = spread_moves(found)
    return positive_part(covariance - moves @ moves.T)
