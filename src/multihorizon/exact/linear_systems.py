"""The linear systems of exact recovery: of all experts together, and of pairs before a pair is looked at by itself.

*The linear system.* Each expert i, whose discount is γ_k, allows the rewards `λ_k û_i + N_i z_i − γ_k (λ_k V̂_i + P_i N_i z_i)`.
Equating them gives, on the states of each task,

    λ_k û_i = r + β_k V̂_i − N_i z_i + P_i N_i w_i,        β_k = λ_k γ_k,        w_i = γ_k z_i.

With w_i as an unknown of its own the system is linear in y = Γ, or, with temperatures per expert and λ_1 = 1, in
`y = (λ_2 … λ_K, β_1 … β_K)`. The reward is projected out by subtracting from each row the mean over the rows of the same state,
z and w as columns; what remains is a tall matrix A with K or 2K − 1 columns. `w_i = γ_k z_i` is dropped, so the true set of
discounts is contained in the one found. Nothing is lost where `P_i N_i` lies in the span of N_i, as for null(D) = constants
without terminal states; then the set is exactly affine. The box 0 ≤ γ ≤ 1 makes it a bounded least-squares problem in few
unknowns; ranges over an affine set are linear programs, exact up to rounding.

*Rank at a noise level.* A singular direction v_j of A with value s_j counts as identified if the answers it leaves possible
stay within 0.1: plus and minus three standard deviations `s_j^{-1} w_jᵀ e` of the error e that errors of the given size in log π
cause on the right-hand side, plus the bias `(‖δA v_j‖ / s_j)²` they cause through the matrix itself. Where the equations hold
worse than errors of that size explain, but not so badly that the problem is infeasible, the errors are taken to be as large as
the misfit suggests.

*Pairs.* Two experts of one reward satisfy, on the states of their task, the equations of `identify` with the reward taken away,

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
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import RANK_TOLERANCE, TINY, Bools, Floats
from multihorizon.exact.equations import (
    MISFIT,
    RewardFamily,
    SharedReward,
    StateEquations,
)
from multihorizon.exact.least_squares import Coefficients, DenseColumns, columns_of

#: The largest spread of possible answers at which a direction of discounts counts as identified.
LIMIT = 0.1


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
    change = np.eye(size)
    upper = np.ones(size)
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


def keeps_null_space(family: RewardFamily) -> bool:
    """Say whether `P_π N` stays in the span of N for an expert, so that the linear system loses nothing."""
    span = columns_of(family.basis, RANK_TOLERANCE, family.coefficients)
    drawn = np.random.default_rng(0).standard_normal((family.u.size, 4))
    return bool(np.abs(span.outside(family.pushed @ span.solve(drawn))).max(initial=0.0) <= 1e-9)


@dataclass(frozen=True, eq=False)
class Directions:
    """The directions of the unknowns that the equations fix, and those they leave open, at the given noise.

    Attributes:
        fixed, free: the right singular vectors that are identified and open.
        singular_values: of the equations in the unknowns.
        spread: `(K,)`, the half-width that the noise gives each discount in the identified directions.
        gap, expected: the norm of the residual, and what the noise explains of it.
    """

    fixed: Floats
    free: Floats
    singular_values: Floats
    spread: Floats
    gap: float
    expected: float

    @staticmethod
    def judged(
        values: Floats,
        right: Floats,
        effects: Floats,
        null: Bools,
        errors: tuple[Floats, Floats, float],
        gap: float,
        rounding: float,
        outside: float,
        walked: bool,
    ) -> Directions:
        """Classify directions by the rule at the top.

        Args:
            values: the singular values.
            right: their right vectors, one per row.
            effects: how much a unit step along each of these moves each discount, and relatively each temperature.
            null: the directions that are open whatever the noise.
            errors: mean squares of the changes that errors in log π cause: of the right-hand side along each left vector, of the
                matrix times each right vector, and of the residual as a whole.
            gap: the norm of the residual.
            rounding: the part of it that is rounding, which is noise too.
            outside: the misfit of log π that no discounts can remove, in units of its assumed error.
            walked: whether null directions are followed later, and only these, so that the spread must hold all others.
        """
        expected, deviation, bias, open_ = open_directions(values, effects, null, errors, gap, rounding, outside)
        moved = (effects * np.minimum(2 * deviation + bias, 1.0)[:, None])[~(null if walked else open_)]
        return Directions(right[~open_], right[open_], values, np.sqrt((moved**2).sum(axis=0)), gap, float(expected))


def open_directions(
    values: Floats,
    effects: Floats,
    null: Bools,
    errors: tuple[Floats, Floats, Any],
    gap: Any,
    rounding: Any,
    outside: Any,
) -> tuple[Any, Floats, Floats, Bools]:
    """Return the residual that errors explain, their deviation and bias along each direction, and the mask of open directions.

    Arguments as in `Directions.judged`, of one system or, with one more axis in front, of several.
    """
    safe = np.maximum(values, 1e-140)  # its square is still above the smallest number that floats hold
    expected = np.maximum(np.maximum(np.sqrt(errors[2]), rounding), 1e-140)
    larger = np.clip(np.maximum(outside, gap / expected), 1.0, MISFIT)[..., None]
    deviation = larger * np.sqrt(errors[0]) / safe
    bias = larger**2 * errors[1] / safe**2
    return expected, deviation, bias, ((6 * deviation + bias) * effects.max(axis=-1) > LIMIT) | null


# The linear system.


class LinearSystem:
    """`A y = h` with reward, z and w projected out.

    Attributes:
        y: the closest solution in the box.
        directions: which directions of y are open.
    """

    def __init__(self, equations: StateEquations) -> None:
        self._rows, self._temperature = equations.rows, equations.temperature
        self._n_experts = k = equations.n_experts
        families = self._rows.families
        lam = 1.0 if self._temperature is None else self._temperature
        u, v = [lam * column for column in equations.u], [lam * column for column in equations.v]
        free = self._temperature is None
        columns, right = ([*(-column for column in u[1:]), *v], u[0]) if free else (v, np.sum(u, axis=0))
        parts = self._rows.coefficients()
        if parts is None:
            blocks = [np.hstack([-family.basis, family.pushed]) for family in families]
        else:
            blocks = [sp.hstack([-family.basis, family.pushed], format="csr") for family in families]
            parts = [part for part in parts for _ in range(2)]
        coefficients = None if parts is None else Coefficients.side_by_side(parts)
        self._nuisance = columns_of(self._rows.blocks(blocks), 1e-10, coefficients)
        matrix = self._nuisance.outside(np.stack(columns, axis=1))
        right = self._nuisance.outside(right)
        left, values, vectors = np.linalg.svd(matrix, full_matrices=False)
        # y = change · x, where x has plain bounds: x = Γ, or x = (λ − β, β) with λ_1 = 1.
        self._change = np.eye(len(columns))
        self._upper = np.ones(k)
        if free:
            self._change[np.arange(k - 1), np.arange(k, 2 * k - 1)] = 1.0
            self._upper = np.where(np.arange(2 * k - 1) == k - 1, 1.0, np.inf)
        self.y = self._solve(left.T @ right, values, vectors)
        discounts, temperature = self.read(self.y)
        # The effect of a unit step along each vector on the factors of û and of V̂, and on discounts and (relatively)
        # temperatures.
        moved_u = np.zeros((len(vectors), k))
        moved_v = lam * vectors
        effects = np.abs(vectors)
        if free:
            moved_u[:, 1:] = vectors[:, : k - 1]
            moved_v = vectors[:, k - 1 :]
            scale = np.maximum(np.abs(temperature), 1e-12)
            effects = np.abs(np.hstack([moved_v - discounts * moved_u, moved_u])) / np.tile(scale, 2)
        size = float(np.sqrt(sum((family.weights * (family.u**2 + family.v**2)).sum() for family in families)))
        rounding = self._nuisance.rounding * size
        gap = float(np.linalg.norm(matrix @ self.y - right))
        errors = self._errors(left, moved_u, moved_v)
        judged = Directions.judged(
            values, vectors, effects, values <= rounding, errors, gap, rounding, equations.outside, walked=False
        )
        self.directions = replace(judged, spread=judged.spread[:k])

    def read(self, y: Floats) -> tuple[Floats, Floats]:
        """Return the discounts and temperatures `(K,)` of a solution y."""
        if self._temperature is not None:
            return y, np.full(self._n_experts, self._temperature)
        temperature = np.concatenate([[1.0], y[: self._n_experts - 1]])
        return y[self._n_experts - 1 :] / np.maximum(temperature, TINY), temperature

    def _solve(self, right: Floats, values: Floats, vectors: Floats) -> Floats:
        """Solve the bounded least-squares problem.

        The unbounded solution is taken where it respects the box up to rounding, because it is more exact.
        """
        change, upper = self._change, self._upper
        if (values > 1e-13 * max(float(values.max(initial=0.0)), TINY)).all():
            x = np.linalg.solve(change, vectors.T @ (right / values))
            slack = 1e-9 * max(1.0, float(np.abs(x).max()))
            if (x >= -slack).all() and (x <= upper + slack).all():
                inside: Floats = change @ np.clip(x, 0.0, upper)
                return inside
        from scipy.optimize import lsq_linear  # noqa: PLC0415  it takes longer to import than a small fit takes

        bounded = lsq_linear(values[:, None] * vectors @ change, right, (np.zeros(upper.size), upper), method="bvls", tol=1e-15)
        y: Floats = change @ bounded.x
        return y

    def _errors(self, left: Floats, moved_u: Floats, moved_v: Floats) -> tuple[Floats, Floats, float]:
        """Return mean squares of errors: of the right-hand side along each left vector, of A times each right vector, overall."""
        discounts, temperature = self.read(self.y)
        sides = np.zeros(len(moved_u))
        changes = np.zeros(len(moved_u))
        total = 0.0
        for number, family in enumerate(self._rows.families):
            k = family.owner
            columns = family.error_u.shape[1]
            errors = np.hstack([family.error_u, family.error_v])
            if isinstance(self._nuisance, DenseColumns):  # projections are onto columns of the rows of all, but errors are of one
                part = self._rows.slices[number]
                errors = (errors.T * self._rows.root[part]).T
                along, inside = left[part].T @ errors, self._nuisance.range[part].T @ errors
                u, v = np.split((errors.T * np.sqrt(self._rows.left[part])).T, 2, axis=1)
                explained_u, explained_v = np.split(inside, 2, axis=1)
            else:
                u, v = np.split(self._nuisance.outside(self._rows.place({number: errors})), 2, axis=1)
                along = left.T @ np.hstack([u, v])
                explained_u = np.zeros(0)
                explained_v = np.zeros(0)
            uu, uv, vv = (
                (np.vdot(a, b) - np.vdot(c, d)) / columns
                for a, b, c, d in (
                    (u, u, explained_u, explained_u),
                    (u, v, explained_u, explained_v),
                    (v, v, explained_v, explained_v),
                )
            )
            gamma, lam = discounts[k], temperature[k]
            sides += (lam**2 * (along[:, :columns] - gamma * along[:, columns:]) ** 2).mean(axis=1)
            total += float(lam**2 * (uu - 2 * gamma * uv + gamma**2 * vv))
            a, b = moved_u[:, k], moved_v[:, k]
            changes += a**2 * uu - 2 * a * b * uv + b**2 * vv
        return sides, np.maximum(changes, 0.0), max(total, 0.0)

    def ranges(self) -> tuple[Floats, list[Floats]]:
        """Return each discount's range `(K,2)` over the affine set of y in the box, and the points that attain the ends.

        The ends are optima of linear programs. An end whose program fails is 0 or 1: nothing bounds it. With free temperatures
        the discount β_k/λ_k is a ratio; the program in `(x t, t)` is linear because t is chosen so that λ_k = 1.
        """
        from scipy.optimize import linprog  # noqa: PLC0415  it takes longer to import than a small fit takes

        fixed, n = self.directions.fixed, self._upper.size
        bounded = np.flatnonzero(np.isfinite(self._upper))
        below = np.zeros((bounded.size, n + 1))
        below[np.arange(bounded.size), bounded] = 1.0
        below[:, n] = -self._upper[bounded]
        limits = np.tile([0.0, 1.0], (self._n_experts, 1))
        points = []
        for k in range(self._n_experts):
            scaling = np.eye(n + 1)[n]
            if self._temperature is None and k > 0:
                scaling = np.append(self._change[k - 1], 0.0)
            equal = np.vstack([np.hstack([fixed @ self._change, -(fixed @ self.y)[:, None]]), scaling])
            goal = np.append(np.zeros(len(fixed)), 1.0)
            for end, sign in enumerate((1.0, -1.0)):
                objective = sign * np.eye(n + 1)[n - self._n_experts + k]
                result: Any = linprog(objective, below, np.zeros(bounded.size), equal, goal, bounds=(0, None), method="highs")
                if result.status == 0 and result.x[n] > 1e-12:
                    points.append(self._change @ (result.x[:n] / result.x[n]))
                    limits[k, end] = np.clip(self.read(points[-1])[0][k], 0.0, 1.0)
        return limits, points
