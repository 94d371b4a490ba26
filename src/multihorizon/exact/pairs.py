"""What pairs of experts say before a pair is looked at by itself: the linear systems of one expert with many others together.

Two experts of one reward satisfy, on the states of their task, the equations of `identify` with the reward taken away,

    λ_i û_i − λ_j û_j = β_i V̂_i − β_j V̂_j − N_i z_i + N_j z_j + P_i N_i w_i − P_j N_j w_j,        β = λ γ,        0 ≤ γ ≤ 1,

with z and w free. These are two unknowns, or three where temperatures are free, and as many rows as one expert has. So the
systems of one expert with all others are solved at once: the columns of z and w are projected out, and the box is searched by
trying which unknowns rest on a bound. The residual, what errors in log π explain of it, and which directions stay open are those
of `LinearSystem` for the pair. They settle two cases:

* the residual is larger than errors explain: the pair is infeasible, because `w = γ z`, which is left out, can only add to it;
* some directions are open, and `P N` stays in the span of N, so that nothing is left out: a set of discounts explains the pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from multihorizon.checks import TINY, Bools, Floats
from multihorizon.exact.equations import MISFIT, RewardFamily, SharedReward
from multihorizon.exact.identify import keeps_null_space, open_directions
from multihorizon.exact.least_squares import DenseColumns


@dataclass(frozen=True, eq=False)
class PairSystems:
    """The linear systems of all pairs `i < j` of K experts, as matrices `(K,K)` of which the upper part counts.

    Attributes:
        misfit: how much worse the equations hold than errors of the tolerance explain.
        infeasible: whether no reward and discounts explain both.
        loose: whether a set of discounts explains both.
        tight: whether no direction is open and the equations hold as far as the linear system can tell.
    """

    misfit: Floats
    infeasible: Bools
    loose: Bools
    tight: Bools


def pair_systems(families: Sequence[RewardFamily], n_parameters: int, temperature: float | None) -> PairSystems | None:
    """Solve the systems of all pairs.

    Returns None where experts have several tasks, unlike states, or null spaces without a dense basis.
    """
    shared = SharedReward(families, n_parameters)
    alike = all(np.array_equal(family.parameters, families[0].parameters) for family in families)
    shapes = {(family.basis.shape, family.error_u.shape) for family in families}
    dense = all(isinstance(family.basis, np.ndarray) for family in families)
    single = len({family.owner for family in families}) == len(families)
    if len(families) < 2 or not (alike and dense and single and len(shapes) == 1 and (shared.root == 1).all()):
        return None
    systems = _Systems(shared.compact().families, temperature)
    k = len(families)
    misfit, infeasible, open_, settled = np.full((k, k), np.nan), *np.zeros((3, k, k), dtype=np.bool_)
    keeps = np.array([keeps_null_space(family) for family in systems.families])
    for i in range(k - 1):
        rest = slice(i + 1, k)
        misfit[i, rest], open_[i, rest] = systems.one_with_others(i, rest)
        settled[i, rest] = keeps[i] & keeps[rest]
        infeasible[i, rest] = misfit[i, rest] > MISFIT
    # Where directions are open and `w = γ z` says more, errors may explain a little more than they do here.
    sure = ~open_ | settled | (misfit > 2 * MISFIT)
    return PairSystems(misfit, infeasible & sure, ~infeasible & open_ & settled, ~infeasible & ~open_ & (misfit >= 0))


class _Systems:
    """The equations of all experts side by side, divided by √2: x of one and y of another less their mean are (x − y)/√2."""

    def __init__(self, families: Sequence[RewardFamily], temperature: float | None) -> None:
        self.families = families
        self.free = temperature is None
        self.lam = 1.0 if temperature is None else temperature
        root = np.sqrt(0.5)
        self.u, self.v = (root * self.lam * np.stack([getattr(family, name) for family in families]) for name in ("u", "v"))
        self.nuisance = np.stack([np.hstack([np.asarray(family.basis), np.asarray(family.pushed)]) for family in families])
        self.errors = root * np.stack([np.hstack([family.error_u, family.error_v]) for family in families])
        self.columns = self.errors.shape[2] // 2
        self.squares = self._products(self.errors)
        self.size = np.array([float(family.u @ family.u + family.v @ family.v) for family in families])
        self.outside = np.array([family.misfit / max(family.error, DenseColumns.rounding) for family in families])

    def _products(self, errors: Floats) -> Floats:
        """Return mean products `(3,n)` over columns of errors of û and V̂ `(n,rows,2m)`, summed over the rows: uu, uv and vv."""
        u = errors[:, :, : self.columns]
        v = errors[:, :, self.columns :]
        products: Floats = np.stack([np.einsum("nrm,nrm->n", a, b) for a, b in ((u, u), (u, v), (v, v))]) / self.columns
        return products

    def one_with_others(self, i: int, rest: slice) -> tuple[Floats, Bools]:
        """Return the misfit `(n,)` of one expert's systems with n others, and the mask of those with open directions."""
        u, v = self.u[rest], self.v[rest]
        own_u, own_v = (np.broadcast_to(column, u.shape) for column in (self.u[i], self.v[i]))
        columns, right = ([u, own_v, -v], own_u) if self.free else ([own_v, -v], own_u - u)
        theirs = self.nuisance[rest]
        blocks = np.concatenate([np.broadcast_to(self.nuisance[i], theirs.shape), theirs], axis=2)
        span, sizes, _ = np.linalg.svd(blocks, full_matrices=False)
        span *= (sizes > 1e-10 * np.maximum(sizes.max(axis=1, initial=0.0), TINY)[:, None])[:, None, :]

        def left_over(vectors: Floats) -> Floats:
            left: Floats = vectors - span @ (span.transpose(0, 2, 1) @ vectors)
            return left

        matrix = left_over(np.stack(columns, axis=2))
        right = left_over(right[:, :, None])
        left, values, vectors = np.linalg.svd(matrix, full_matrices=False)
        y = _in_the_box(left.transpose(0, 2, 1) @ right, values, vectors, self.free)
        gap = np.linalg.norm(matrix @ y[:, :, None] - right, axis=(1, 2))
        temperatures = np.column_stack([np.ones(len(y)), y[:, 0]]) if self.free else np.full((len(y), 2), self.lam)
        discounts = y[:, 1:] / np.maximum(temperatures, TINY) if self.free else y
        moved_u = np.zeros((*values.shape, 2))
        moved_v = self.lam * vectors
        effects = np.abs(vectors)
        if self.free:
            moved_u[:, :, 1] = vectors[:, :, 0]
            moved_v = vectors[:, :, 1:]
            scale = np.tile(np.maximum(np.abs(temperatures), 1e-12), 2)[:, None, :]
            effects = np.abs(np.concatenate([moved_v - discounts[:, None] * moved_u, moved_u], axis=2)) / scale
        sides = np.zeros(values.shape)
        changes = np.zeros(values.shape)
        total = np.zeros(len(y))
        both = np.concatenate([span, left], axis=2).transpose(0, 2, 1)
        for k, who in enumerate((slice(i, i + 1), rest)):
            inside, along = np.split(both @ self.errors[who], [span.shape[2]], axis=1)
            uu, uv, vv = self.squares[:, who] - self._products(inside)
            gamma, level = discounts[:, k], temperatures[:, k]
            error = along[:, :, : self.columns] - gamma[:, None, None] * along[:, :, self.columns :]
            sides += level[:, None] ** 2 * (error**2).mean(axis=2)
            total += level**2 * (uu - 2 * gamma * uv + gamma**2 * vv)
            a, b = moved_u[:, :, k], moved_v[:, :, k]
            changes += a**2 * uu[:, None] - 2 * a * b * uv[:, None] + b**2 * vv[:, None]
        rounding = DenseColumns.rounding * np.sqrt(self.size[i] + self.size[rest])
        outside = np.maximum(self.outside[i], self.outside[rest])
        errors = sides, np.maximum(changes, 0.0), np.maximum(total, 0.0)
        expected, _, _, open_ = open_directions(values, effects, values <= rounding[:, None], errors, gap, rounding, outside)
        return np.maximum(outside, gap / expected), np.asarray(open_.any(axis=1))


def _in_the_box(right: Floats, values: Floats, vectors: Floats, free: bool) -> Floats:
    """Solve bounded least squares of each pair: the best of the solutions with every choice of unknowns that rest on a bound.

    The unknowns with plain bounds are x = Γ, or with free temperatures x = (λ_j − β_j, β_i, β_j), as in `LinearSystem`.
    """
    size = values.shape[1]
    change, upper = np.eye(size), np.ones(size)
    if free:
        change[0, 2] = 1.0
        upper = np.array([np.inf, 1.0, np.inf])
    matrix = values[:, :, None] * vectors @ change
    best = np.zeros((len(values), size))
    least = np.full(len(values), np.inf)
    for rests in product(*([None, 0.0, 1.0] if np.isfinite(high) else [None, 0.0] for high in upper)):
        going = np.array([rest is None for rest in rests])
        x = np.tile([rest or 0.0 for rest in rests], (len(values), 1))
        if going.any():
            held = right[:, :, 0] - (matrix @ x[:, :, None])[:, :, 0]
            x[:, going] = (np.linalg.pinv(matrix[:, :, going], rcond=1e-13) @ held[:, :, None])[:, :, 0]
        slack = 1e-9 * np.maximum(1.0, np.abs(x).max(axis=1))[:, None]
        inside = ((x >= -slack) & (x <= upper + slack)).all(axis=1)
        x = np.clip(x, 0.0, upper)
        gap = np.linalg.norm((matrix @ x[:, :, None] - right)[:, :, 0], axis=1)
        better = inside & (gap < least)
        best[better], least[better] = x[better], gap[better]
    solution: Floats = best @ change.T
    return solution
