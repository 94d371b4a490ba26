"""Goals that are nearly shared: each expert's reward is the common one and a small deviation of their own.

Expert k acts on `θ_k = θ + δ_k` with `δ_k ~ N(0, τ²W)`. W is diagonal with `1/f_j²`, f_j the largest value of feature j, so that
units do not matter; rewards of states have f = 1. The deviations are integrated out by Laplace's method, expert by expert:

    M(x) = Σ_k { max_δ [L_k(θ+δ, γ_k, λ_k) − ½ δᵀPδ] − ½ log det(I + P^{-1} I_k) },        P = (τ²W)^{-1},

with I_k the Fisher information in θ of expert k's decisions, at the mode. So M is a function of `x = (θ, γ, log λ, t)` as the
likelihood of `model` is, and everything that climbs, profiles or tests that one takes this one too. τ → 0 is the model of one
reward. With τ → ∞ the decisions of others say nothing of an expert's reward, and discounts are open.

*The mode* is found by Fisher scoring, `H_k = I_k + P`, all experts together, each with a step of their own length. H is corrected
by the secant of each step (`numerics.newton`). Where a mode is not found, there is no point at x.

*The arrow.* In (x, δ_1, …, δ_K) the information has a block for each expert that touches x alone. With A the information of
expert k in x, of which δ_k shares the columns of θ, eliminating δ_k leaves

    A − A_{·θ} H_k^{-1} A_{θ·},

and M's information is their sum. In θ it is `(I_k^{-1} + P^{-1})^{-1}`: what an expert says of the common reward is never worth
more than one draw of δ.

*The gradient* is exact. At the mode δ need not be differentiated in the first term. With `C = H^{-1}` the second one needs the
derivative of `tr C I = Σ_m Σ_s n Σ_a π h_m²`, where `h_m = J c_m` is how log π moves along the columns of a root of C. h_m obeys
the linear equations of `model`, so with `g = 2nπh/λ` and one adjoint solve `u = (I − γPᵀ)^{-1} γTᵀg`,

    d Σ n π h² = ⟨nπh² + λπhu, d log π⟩ + ⟨g + πu, T v⟩ dγ − 2 ⟨nπh, h⟩ d log λ + ⟨g + πu, dT (ρ + γv)⟩,

v how values move along c and ρ what c pays on arrival. The mode moves with x as well: with `H̃ z = a`, a the derivative in δ_k
and H̃ the curvature of the inner objective itself, it adds the product of L's mixed derivatives with z. Products with H̃ are
differences of gradients; H is a good preconditioner.

*On a surface* (`own_rewards`) deviations are averaged out at every place at once. Person i acts for the reward θ + δ, `δ ~ N(0,
V)`, V diagonal. At a place η the logarithms of choices are taken to be linear in δ but for what makes them probabilities: with `ψ
= ∂ log π/∂θ`,

    p_δ(a|s) ∝ π(a|s) exp(ψ(s,a)·δ),      L(δ) = Σ_sa N(s,a) log p_δ(a|s),

so nothing is planned for a single person, and L is concave and never above 0, however far from the truth a place is. (An
expansion of L itself at δ = 0 is not: at low temperatures its maximum is without bound.) δ is averaged out by Laplace's method,

    M = max_δ [L(δ) − ½ δᵀV⁻¹δ] − ½ log det(1 + V I),      I = Σ_s n(s) Cov_p ψ,

by Newton's method from δ = 0, since I is the curvature of L itself. Given the place the person's deviation has the mean δ̂, the
mode, and the covariance `A = (V⁻¹ + I)⁻¹`.

*Derivatives.* With `y = N − n p`, `c = ψ − Σ_a p ψ`, `w = cᵀ A c`, `κ = n p (w − Σ_a p w)` and `b = A Σ κ c`, M moves with log π
and with ψ by

    ∂M/∂ log π = y − ½ (κ − n p c·b) =: z,      ∂M/∂ψ_j = z δ̂_j − n p (A c)_j − ½ y b_j,

since the mode moves by `A (−Σ n p c du + Σ y dψ)` where u = log π + ψ·δ moves by du. How log π and ψ move with θ is in
`surfaces`. Of θ the decisions say `(I⁻¹ + V)⁻¹` where δ is averaged out, and their score is near `Σ y ψ = V⁻¹ δ̂`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from multihorizon.checks import TINY, Floats, Ints, Sparse
from multihorizon.choice.model import ChoicePoint, Likelihood, Point
from multihorizon.choice.plans import Persons, Plans, persons_by_task
from multihorizon.choice.surfaces import Surface, Tables
from multihorizon.numerics.newton import Local, maximize_many


class NearlyShared(Likelihood):
    """The log-likelihood of decisions whose experts deviate from the common reward with a given spread τ > 0.

    Attributes:
        spread: τ.
        sizes: f `(d,)`.
        precision: the diagonal `(d,)` of P.
    """

    spread: float
    sizes: Floats
    precision: Floats

    @classmethod
    def of(cls, model: Likelihood, spread: float) -> Self:
        """Return the model with deviations, from the one of a single reward (or of another spread)."""
        shared_nearly = object.__new__(cls)
        vars(shared_nearly).update(vars(model))
        if model.settings.reward is not None and not isinstance(model, NearlyShared):
            # a reward that is known for all can still be deviated from: its columns are needed
            shared_nearly.batches = persons_by_task(model.problem, True, {moves.task: moves.size for moves in model.moves})
        shared_nearly.sizes = model.problem.reward_sizes
        shared_nearly.spread, shared_nearly.precision = spread, shared_nearly.sizes**2 / spread**2
        return shared_nearly

    @property
    def by_products(self) -> bool:
        """Never where a matrix can be had: products know nothing of deviations."""
        return self.is_large

    def of_experts(self, experts: Sequence[int]) -> Likelihood:
        """Return the likelihood of some experts alone."""
        part = NearlyShared.of(super().of_experts(experts), self.spread)
        part.sizes, part.precision = self.sizes, self.precision
        return part

    def at(self, x: Floats, near: ChoicePoint | None = None) -> NearPoint | None:
        """Return the model at x; None where a soft value is infinite or the most likely deviations were not found."""
        batches = self.in_tasks(x)
        theta = self.reward(x)
        delta = np.zeros((self.n_experts, self.n_reward))
        plans = None
        curvatures = None
        if isinstance(near, NearPoint):
            delta = near.expected(x)
            curvatures = near.curvatures if near.likelihood.spread == self.spread else None
            plans = self.plans(batches, x, theta + delta, near.plans)
        if plans is None:
            delta = np.zeros_like(delta)
            plans = self.plans(batches, x, theta + delta, near.plans if isinstance(near, Point) else None)
        if plans is None:
            return None
        modes = self._mode(batches, x, delta, plans, curvatures)
        if modes is None:
            return None
        delta, plans, inner = modes
        point = NearPoint(self, x, plans, np.nan, np.nan, delta)
        determinants = np.linalg.slogdet(point.curvatures)[1] - np.log(self.precision).sum()
        value = float((inner - 0.5 * determinants).sum())
        reached = replace(point, value=value, objective=value + self.beside(x))
        vars(reached).update(arrows=point.arrows, curvatures=point.curvatures)
        return reached

    def _mode(
        self, batches: Sequence[Persons], x: Floats, delta: Floats, plans: tuple[Plans, ...], curvatures: Floats | None
    ) -> tuple[Floats, tuple[Plans, ...], Floats] | None:
        """Return the most likely deviations `(K,d)`, the plans with them, and what they maximise `(K,)`; None where they are not
        found.

        It begins at `delta` with curvatures `(K,d,d)` of a neighbour, if there is one.
        """
        theta = self.reward(x)
        start = curvatures
        latest = (delta, plans)
        if start is None:
            start = NearPoint(self, x, plans, np.nan, np.nan, delta).curvatures

        def at(who: Ints, places: Floats) -> Local:
            nonlocal latest
            tried = latest[0].copy()
            tried[who] = places
            there = latest[1] if np.array_equal(tried, latest[0]) else self.plans(batches, x, theta + tried, latest[1])
            if there is None:
                return Local(np.full(who.size, -np.inf), np.zeros_like(places), start[who])
            latest = tried, there
            return Local(self._inner(there, tried)[who], self._slope(there, tried)[who], start[who])

        # Where a neighbour does not lead to the mode soon, x is too far away, and a shorter step in x does better.
        # The gain is far below what the value shows: the gradient in γ at a fixed δ is large beside that of M.
        ends = maximize_many(at, delta, gain=1e-16 / len(delta), max_steps=200 if curvatures is None else 25, halving=True)
        if not ends.finished.all():
            return None
        last = at(np.arange(len(delta)), ends.places).value
        return ends.places, latest[1], last

    def _slope(self, plans: Sequence[Plans], delta: Floats) -> Floats:
        """Return the gradient `(K,d)` of what the deviations maximise."""
        return by_person(plans, [plan.persons.counts for plan in plans], delta.shape) - self.precision * delta

    def _inner(self, plans: Sequence[Plans], delta: Floats) -> Floats:
        """Return `L_k − ½ δᵀPδ` `(K,)`."""
        total: Floats = -0.5 * (self.precision * delta**2).sum(axis=1)
        for plan in plans:
            np.add.at(total, plan.persons.owners, (plan.persons.counts * plan.finite_log).sum(axis=(0, 1)))
        return total


def by_person(plans: Sequence[Plans], weights: Sequence[Floats], shape: tuple[int, ...]) -> Floats:
    """Return `Σ y(s,a) d log π(a|s) / dθ` of each expert `(K,d)`, for weights y of each batch."""
    total = np.zeros(shape)
    for plan, y in zip(plans, weights, strict=True):
        moved = plan.pull_back(y)[0].reshape(-1, plan.lam.size)
        np.add.at(total, plan.persons.owners, (plan.persons.features.transposed @ moved).T)
    return total


@dataclass(frozen=True, eq=False)
class NearPoint(Point):
    """The model at one x, with the most likely deviations `(K,d)`; plans are those of each expert's own reward."""

    likelihood: NearlyShared
    deviations: Floats

    @property
    def rewards(self) -> Floats:
        """Return the reward of each expert `(K,d)`."""
        rewards: Floats = self.likelihood.reward(self.x) + self.deviations
        return rewards

    @cached_property
    def curvatures(self) -> Floats:
        """Return H_k `(K,d,d)`."""
        curvatures = np.zeros((*self.deviations.shape, self.deviations.shape[1])) + np.diag(self.likelihood.precision)
        for k, places, information in self.arrows:
            theta = places[places < self.likelihood.n_reward]
            curvatures[k][np.ix_(theta, theta)] += information[: theta.size, : theta.size]
        return curvatures

    def expected(self, x: Floats) -> Floats:
        """Return the most likely deviations `(K,d)` to first order at another x."""
        expected = self.deviations.copy()
        for k, places, information in self.arrows:
            theta = places[places < self.likelihood.n_reward]
            pull = information[: theta.size] @ (x - self.x)[places]
            expected[k, theta] -= np.linalg.solve(self.curvatures[k][np.ix_(theta, theta)], pull)
        return expected

    @cached_property
    def arrows(self) -> list[tuple[int, Ints, Floats]]:
        """Return for each expert the places in x on which their decisions depend, and the information A of these."""
        by_expert: dict[int, list[tuple[Ints, Floats]]] = {}
        for k, places, block in self.own_blocks():
            by_expert.setdefault(k, []).append((places, block))
        arrows = []
        for k, parts in by_expert.items():
            places = np.unique(np.concatenate([places for places, _ in parts]))
            total = np.zeros((places.size, places.size))
            for of_part, block in parts:
                room = np.searchsorted(places, of_part)
                total[np.ix_(room, room)] += block
            arrows.append((k, places, total))
        return arrows

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """Yield positions in x, and the information of each expert's decisions in them with δ_k eliminated; then that of the
        moves.
        """
        for k, places, information in self.arrows:
            theta = places[places < self.likelihood.n_reward]
            pull = information[: theta.size]
            yield places, information - pull.T @ np.linalg.solve(self.curvatures[k][np.ix_(theta, theta)], pull)
        for moves in self.likelihood.moves:
            yield self.likelihood.place_of(moves.mdp), np.diag(moves.counts)

    def bend(self, ahead: Self, behind: Self, share: float) -> Floats:
        """As in `ChoicePoint`, with the bend of δ_k eliminated."""
        logs = [[plan.finite_log for plan in point.plans] for point in (self, ahead, behind)]
        bent = [w * (a - 2 * here + b) / share**2 for w, here, a, b in zip(self.weights, *logs, strict=True)]
        total = self.pull_back(bent)
        along_deviations = by_person(self.plans, bent, self.deviations.shape)
        for k, places, information in self.arrows:
            theta = places[places < self.likelihood.n_reward]
            total[places] -= information[: theta.size].T @ np.linalg.solve(
                self.curvatures[k][np.ix_(theta, theta)], along_deviations[k, theta]
            )
        return total

    @cached_property
    def gradient(self) -> Floats:
        """Return the gradient `(p,)` of the objective."""
        counts = [plan.persons.counts for plan in self.plans]
        return self.pull_back(counts) - 0.5 * self._of_determinants() + self.likelihood.beside_gradient(self.x)

    def _of_determinants(self) -> Floats:
        """Return the gradient `(p,)` of `Σ_k log det H_k`, with the mode moving as x does."""
        model = self.likelihood
        weights = []
        total = np.zeros(model.size)
        inverses = np.linalg.inv(self.curvatures)
        for plan in self.plans:
            batch, mdp, n = plan.persons, plan.persons.mdp, plan.lam.size
            rows = np.flatnonzero(mdp.available.T.ravel())
            used = batch.features.used
            states = rows % mdp.n_states
            inverse = inverses[batch.owners][:, used][:, :, used]
            every, along = plan.scores(rows)
            scores, along = every[:, :, :-2], along[:, :, :-2]
            rotated = np.einsum("rnu,nuv->rnv", scores, inverse)
            visited = (batch.visits * plan.policy).reshape(-1, n)[rows]
            policy = plan.policy.reshape(-1, n)[rows]
            pulled = 2 * (visited / plan.lam)[:, :, None] * scores
            later = (batch.back[:, rows] @ pulled.reshape(rows.size, -1)).reshape(mdp.n_states, n, -1)
            flow = plan.resolvents.solve_transposed(plan.gamma[:, None] * later)
            flow[mdp.terminal] = 0.0
            squares = visited * (rotated * scores).sum(axis=2)
            y = np.zeros((mdp.stacked.shape[0], n))
            y[rows] = squares + plan.lam * policy * (rotated * flow[states]).sum(axis=2)
            weights.append(y.reshape(plan.log.shape))
            pulled += policy[:, :, None] * flow[states]
            moved = np.einsum("snu,nuv->snv", along, inverse)
            ahead = (mdp.stacked[rows] @ moved.reshape(mdp.n_states, -1)).reshape(pulled.shape)
            moving = model.moves_of(batch)
            if mdp.slope is not None or moving is not None:
                reached = plan.gamma[:, None] * moved
                if batch.arrival is not None:
                    reached += np.einsum("su,nuv->snv", batch.arrival[:, used].toarray(), inverse)
            if mdp.slope is not None:
                ahead += (mdp.slope[rows] @ reached.reshape(mdp.n_states, -1)).reshape(pulled.shape)
            np.add.at(total, model.n_reward + model.groups[batch.owners], (pulled * ahead).sum(axis=(0, 2)))
            places = model.temperature_slice.start + model.temperature_groups[batch.owners]
            np.add.at(total, places, -2 * squares.sum(axis=0))
            if moving is not None:
                logged, place = moving
                number = np.full(mdp.stacked.shape[0], -1)
                number[rows] = np.arange(rows.size)
                total[place] += logged.summed((pulled[number[logged.rows]] * logged.change(mdp, reached)).sum(axis=(1, 2)))
        total += self.pull_back(weights)
        return total + self._of_mode(by_person(self.plans, weights, self.deviations.shape))

    def _beside(self, moved: Floats) -> NearPoint | None:
        """Return the plans at the same x where deviations are moved by `(K,d)`; None where a soft value is infinite."""
        model = self.likelihood
        deviations = self.deviations + moved
        plans = model.plans([plan.persons for plan in self.plans], self.x, model.reward(self.x) + deviations, self.plans)
        return None if plans is None else NearPoint(model, self.x, plans, np.nan, np.nan, deviations)

    def _of_mode(self, slope: Floats) -> Floats:
        """Return what the movement of the mode adds `(p,)` to the gradient of a function with this slope `(K,d)` in the
        deviations.
        """
        model = self.likelihood
        lam = self.likelihood.temperatures(self.x)
        counts = [plan.persons.counts for plan in self.plans]
        z = np.zeros(slope.shape)
        left = slope
        mixed = np.zeros(model.size)
        # Where values are so large, differences of gradients are rounding, and H has to do.
        exact = max(float(np.abs(plan.values).max(initial=0.0)) for plan in self.plans) < 1e5 * float(lam.min())
        for last in (False, True) if exact else ():
            z = z + np.linalg.solve(self.curvatures, left[:, :, None])[:, :, 0]
            # differences over a ten-thousandth of a temperature
            share = 1e-4 * float(lam.min()) / max(float(np.abs(z * model.sizes).max()), TINY)
            sides = [self._beside(share * z), self._beside(-share * z)]
            if sides[0] is None or sides[1] is None:  # at the edge of what has finite values H has to do, too
                left = slope
                mixed = np.zeros(model.size)
                break
            ahead, behind = sides[0], sides[1]
            curved = by_person(ahead.plans, counts, z.shape) - by_person(behind.plans, counts, z.shape)
            left = slope - model.precision * z + curved / (2 * share)
            if last:
                mixed = (ahead.pull_back(counts) - behind.pull_back(counts)) / (2 * share)
        # What is left of the equation is small, and H will do for it.
        for k, places, information in self.arrows:
            theta = places[places < model.n_reward]
            mixed[places] -= information[: theta.size].T @ np.linalg.solve(
                self.curvatures[k][np.ix_(theta, theta)], left[k, theta]
            )
        return mixed


@dataclass(frozen=True, eq=False)
class OwnRewards:
    """What decisions say of people's own rewards at places.

    Attributes:
        log_likelihoods: M `(n,Q)`.
        mode, covariance: δ̂ `(n,Q,d)` and A `(n,Q,d,d)`.
        information: about θ where δ is averaged out `(n,Q,d,d)`.
        rows: the rows `(n,R)` of the tables where each person decided, all actions in each state, as `Tables.lines` has them.
        deviation: √V `(d,)`.
        slopes, p, chances, y: ψ√V `(nQ,S·A,d)`, p `(nQ,S,A)`, n p and y at the rows.
    """

    log_likelihoods: Floats
    mode: Floats
    covariance: Floats
    information: Floats
    rows: Ints
    deviation: Floats
    slopes: Floats
    p: Floats
    chances: Floats
    y: Floats

    def derivatives(self) -> tuple[Floats, Floats]:
        """Return how M moves with log π `(n,Q,R)` and with ψ `(n,Q,R,d)` at the rows; computed in units of √V."""
        (n, q, d), p = self.mode.shape, self.p
        x = (self.mode / self.deviation).reshape(n * q, 1, d)
        covariance = (self.covariance / self.deviation / self.deviation[:, None]).reshape(n * q, d, d)
        by_state = self.slopes.reshape(*p.shape, d)
        chances = self.chances.reshape(n * q, -1, 1)
        apart = (by_state - p[:, :, None] @ by_state).reshape(n * q, -1, d)
        turned = apart @ covariance
        w = (turned * apart).sum(axis=2).reshape(p.shape)
        kappa = chances * (w - (p * w).sum(axis=2, keepdims=True)).reshape(n * q, -1, 1)
        b = kappa.swapaxes(1, 2) @ turned
        y = self.y.reshape(n * q, -1, 1)
        by_log = y - 0.5 * (kappa - chances * (apart @ b.swapaxes(1, 2)))
        by_slopes = by_log * x - chances * turned - 0.5 * y * b
        return by_log.reshape(n, q, -1), (by_slopes * self.deviation).reshape(n, q, -1, d)


def states_visited(tables: Tables, counts: Sparse) -> Ints:
    """Return rows of the tables `(n,S,A)` by person, state and action, for the states in which each person with these counts
    decided.

    People have as many states as the one with most of them. Where there is nothing, the row is one more than the tables have.
    """
    same = tables.same_state.tocsr()
    same.sort_indices()
    sizes = np.diff(same.indptr)
    first = same.indices[same.indptr[:-1]]  # the first of its rows stands for a state
    actions = np.full((tables.rows + 1, int(sizes.max(initial=1))), tables.rows)
    owner = np.repeat(np.arange(tables.rows), sizes)
    actions[owner, np.arange(owner.size) - same.indptr[owner]] = same.indices
    reached = [np.unique(first[counts.indices[a:b]]) for a, b in zip(counts.indptr[:-1], counts.indptr[1:], strict=True)]
    states = np.full((len(reached), max((each.size for each in reached), default=0)), tables.rows)
    for i, each in enumerate(reached):
        states[i, : each.size] = each
    visited: Ints = actions[states]
    return visited


def own_rewards(tables: Tables, counts: Sparse, eta: Floats, surface: Surface, deviation: Floats) -> OwnRewards:
    """Return own rewards of people with these counts `(n,rows)` at places η `(n,Q,2)`, where √V is `deviation` `(d,)`."""
    visited = states_visited(tables, counts)
    (n, q) = eta.shape[:2]
    (s, a) = visited.shape[1:]
    d = deviation.size
    rows: Ints = visited.reshape(n, -1)
    log, slopes = tables.lines(rows, eta, surface)
    log = log.reshape(n * q, s, a)
    slopes = slopes.reshape(n * q, s * a, d) * deviation
    made = np.take_along_axis(np.concatenate([counts.toarray(), np.zeros((n, 1))], axis=1), rows, axis=1)
    decided = np.repeat(made.reshape(n, s, a), q, axis=0)
    x = _modes(log, slopes, decided)
    value, p, y, square = _at(x, log, slopes, decided)
    covariance = np.linalg.inv(np.eye(d) + square)  # in units of √V, in which the information is 1 less that
    return OwnRewards(
        log_likelihoods=(value - 0.5 * np.linalg.slogdet(np.eye(d) + square)[1]).reshape(n, q),
        mode=(x * deviation).reshape(n, q, d),
        covariance=(covariance * deviation * deviation[:, None]).reshape(n, q, d, d),
        information=((np.eye(d) - covariance) / deviation / deviation[:, None]).reshape(n, q, d, d),
        rows=rows,
        deviation=deviation,
        slopes=slopes,
        p=p,
        chances=p * decided.sum(axis=2, keepdims=True),
        y=y,
    )


def _at(x: Floats, log: Floats, slopes: Floats, counts: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return what is maximised `(B,)`, p `(B,S,A)`, y `(B,S,A)` and I `(B,d,d)` where δ is x `(B,d)`, in units of √V."""
    u = log + (slopes @ x[:, :, None]).reshape(log.shape)
    u -= u.max(axis=2, keepdims=True)
    p = np.exp(u)
    total = p.sum(axis=2, keepdims=True)
    u -= np.log(total)
    p /= total
    visits = counts.sum(axis=2, keepdims=True)
    chances = (visits * p).reshape(len(x), -1, 1)
    by_state = slopes.reshape(*log.shape, -1)
    means = np.sqrt(visits) * (p[:, :, None] @ by_state)[:, :, 0]
    square = slopes.swapaxes(1, 2) @ (chances * slopes) - means.swapaxes(1, 2) @ means
    return (counts * u).sum(axis=(1, 2)) - 0.5 * (x**2).sum(axis=1), p, counts - visits * p, square


def _modes(log: Floats, slopes: Floats, counts: Floats) -> Floats:
    """Find the most likely x `(B,d)` by Newton's method."""

    def at(who: Ints, x: Floats) -> Local:
        which = slice(None) if who.size == len(log) else who
        value, _, y, square = _at(x, log[which], slopes[which], counts[which])
        gradient = (y.reshape(who.size, 1, -1) @ slopes[which])[:, 0] - x
        return Local(value, gradient, np.eye(x.shape[1]) + square)

    ends = maximize_many(at, np.zeros((len(log), slopes.shape[2])), gain=5e-13, max_steps=100, halving=True, secant=False)
    if not ends.finished.all():
        raise ValueError("the most likely deviations of some people were not found: their decisions do not fit the model")
    return ends.places
