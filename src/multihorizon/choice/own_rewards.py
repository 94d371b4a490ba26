"""Rewards of one's own near the shared one, averaged out at every place of a surface.

Person i acts for the reward θ + δ, `δ ~ N(0, V)`, V diagonal. At a place η the logarithms of choices are taken to be linear in δ
but for what makes them probabilities: with `ψ = ∂ log π/∂θ`,

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

from dataclasses import dataclass

import numpy as np

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.choice.surfaces import Surface, Tables
from multihorizon.numerics.newton import Local, maximize_many


@dataclass(frozen=True, eq=False)
class OwnRewards:
    """What decisions say of persons' own rewards at places.

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
        """How M moves with log π `(n,Q,R)` and with ψ `(n,Q,R,d)` at the rows; computed in units of √V."""
        (n, q, d), p = self.mode.shape, self.p
        x = (self.mode / self.deviation).reshape(n * q, 1, d)
        covariance = (self.covariance / self.deviation / self.deviation[:, None]).reshape(n * q, d, d)
        by_state, chances = self.slopes.reshape(*p.shape, d), self.chances.reshape(n * q, -1, 1)
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
    """Rows of the tables `(n,S,A)` by person, state and action, for the states in which each person with these counts decided.

    Persons have as many states as the one with most of them. Where there is nothing, the row is one more than the tables have.
    """
    same = tables.same_state.tocsr()
    same.sort_indices()
    sizes = np.diff(same.indptr)
    first = same.indices[same.indptr[:-1]]  # the first of its rows stands for a state
    actions = np.full((tables.rows + 1, int(sizes.max(initial=1))), tables.rows)
    owner = np.repeat(np.arange(tables.rows), sizes)
    actions[owner, np.arange(owner.size) - same.indptr[owner]] = same.indices
    own = [np.unique(first[counts.indices[a:b]]) for a, b in zip(counts.indptr[:-1], counts.indptr[1:], strict=True)]
    states = np.full((len(own), max((each.size for each in own), default=0)), tables.rows)
    for i, each in enumerate(own):
        states[i, : each.size] = each
    found: Ints = actions[states]
    return found


def own_rewards(tables: Tables, counts: Sparse, eta: Floats, surface: Surface, deviation: Floats) -> OwnRewards:
    """Own rewards of persons with these counts `(n,rows)` at places η `(n,Q,2)`, where √V is `deviation` `(d,)`."""
    visited = states_visited(tables, counts)
    (n, q), (s, a), d = eta.shape[:2], visited.shape[1:], deviation.size
    rows: Ints = visited.reshape(n, -1)
    log, slopes = tables.lines(rows, eta, surface)
    log, slopes = log.reshape(n * q, s, a), slopes.reshape(n * q, s * a, d) * deviation
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
    """What is maximised `(B,)`, p `(B,S,A)`, y `(B,S,A)` and I `(B,d,d)` where δ is x `(B,d)`, in units of √V."""
    u = log + (slopes @ x[:, :, None]).reshape(log.shape)
    u -= u.max(axis=2, keepdims=True)
    p = np.exp(u)
    total = p.sum(axis=2, keepdims=True)
    u -= np.log(total)
    p /= total
    visits = counts.sum(axis=2, keepdims=True)
    chances, by_state = (visits * p).reshape(len(x), -1, 1), slopes.reshape(*log.shape, -1)
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
        raise ValueError("the most likely deviations of some persons were not found: their decisions do not fit the model")
    return ends.places
