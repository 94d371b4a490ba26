"""An upper bound on g* over a box of discounts.

Expert k's margins are `w(γ) θ` with `w(γ) = A + D H(γ) F` and `H(γ) = γ (I − γP)^{-1} = Σ_n γ^{n+1} Pⁿ`, which is entrywise
non-negative, increasing and convex in γ, with derivative `H' = (I − γP)^{-2}`. On [l, h] with `γ = (1−λ) l + λ h`:

    H(γ) = (1−λ) H(l) + λ H(h) − κ,        0 ≤ κ ≤ λ(1−λ)(h−l)(H'(h) − H'(l)) ≤ κ̄ = ¼ (h−l)(H'(h) − H'(l)),

the last because a convex function lies above its tangents at both ends. With `D = D⁺ − D⁻`, `F = F⁺ − F⁻` and `θ = θ⁺ − θ⁻`,

    w(γ) θ ≤ w(l)(θ − q_k) + w(h) q_k + B̄ θ⁺ + Ā θ⁻,      q_k = λ_k θ,
    Ā = D⁺κ̄F⁺ + D⁻κ̄F⁻,    B̄ = D⁺κ̄F⁻ + D⁻κ̄F⁺,

and the product `q_k = λ_k θ` is relaxed to its convex hull on |θ| ≤ r_max: `|q_k| ≤ λ_k r_max`, `|θ − q_k| ≤ (1−λ_k) r_max`.
What is left is one small dense linear program per box. Its optimum bounds the objective for every Γ in the box. (Narrowing the
ranges of θ box by box, two programs for each θ, was measured: fewer boxes, more time.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.programs.highs import INFINITY, LinearProgram, LPResult, LPStatus, solve_lp
from multihorizon.programs.margins import MarginRows, Margins

#: A side of a box shorter than this share of the longest is not split further.
SHORTEST_SIDE = 1 / 8


class RowsAt(NamedTuple):
    """Rows at one end of a box: w(γ), and `D⁺H'F⁺ + D⁻H'F⁻` and `D⁺H'F⁻ + D⁻H'F⁺` of the curvature terms."""

    margins: Floats
    same_sign: Floats
    other_sign: Floats


class RelaxedRows(NamedTuple):
    """Coefficients of θ⁺, θ⁻ and q in relaxed rows."""

    positive: Floats
    negative: Floats
    product: Floats


@dataclass(eq=False)
class Relaxation:
    """The bound for one problem; `required` are the strict rows whose worst margin is bounded.

    Everything here is dense in the number of states and meant for problems of up to a few hundred of them.
    """

    margins: Margins
    required: Bools
    l1: float
    bound: float
    _rows: dict[tuple[int, float], tuple[RowsAt, RowsAt]] = field(default_factory=dict)
    _basis: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the cache and the basis, which each process makes for itself."""
        return {**self.__dict__, "_rows": {}, "_basis": None}

    def box(self, low: Floats, high: Floats, floor: float) -> tuple[float, int]:
        """An upper bound over the box and the expert whose discount is best split; `floor` if nothing in the box exceeds it."""
        program, owners = self._program(low, high)
        # The worst margin is at least the objective; asking for it lets HiGHS give up early on boxes that are done.
        program.lower[-1] = floor
        result = solve_lp(program, self._basis, ray=False)
        if result.status == LPStatus.INFEASIBLE:
            return floor, 0
        if not result.optimal:
            return INFINITY, int(np.argmax(high - low))
        self._basis = result.basis
        return result.objective, self._split(result, program, owners, high - low)

    def _split(self, result: LPResult, program: LinearProgram, owners: Ints, width: Floats) -> int:
        """The expert with the row farthest from exact, in the relaxed product.

        Weighting rows by their duals was slower by far: which rows are tight changes from box to box. Boxes are kept from
        becoming very thin, because an expert whose product is exact here may be the one that matters after the next split.
        """
        d, k = self.margins.n_parameters, self.margins.n_experts
        theta = result.values[:d] - result.values[d : 2 * d]
        error = np.zeros(result.values.size)
        shares = result.values[(2 + k) * d : (2 + k) * d + k]
        error[2 * d : (2 + k) * d] = result.values[2 * d : (2 + k) * d] - np.outer(shares, theta).ravel()
        rows = np.abs(program.matrix[: owners.size] @ error)
        worst = np.array([rows[owners == i].max(initial=0.0) for i in range(k)]) + 1e-9 * width
        return int(np.argmax(np.where(width >= SHORTEST_SIDE * width.max(), worst, -1.0)))

    def _program(self, low: Floats, high: Floats) -> tuple[LinearProgram, Ints]:
        """The program of a box, and the expert of each of its margin rows."""
        d, k = self.margins.n_parameters, self.margins.n_experts
        blocks, owners = [], []
        for i in range(k):
            strict, ties = self.relaxed(i, float(low[i]), float(high[i]))
            mask = self.required[self.margins.strict.expert == i]
            blocks.append(self._place(i, strict, -1.0 * mask))
            blocks.append(self._place(i, ties, np.zeros(len(ties.positive))))
            owners.append(np.full(len(blocks[-1]) + len(blocks[-2]), i))
        dense = np.concatenate(blocks)
        costs = np.zeros((2 + k) * d + k + 1)
        costs[: 2 * d], costs[-1] = -self.l1, 1.0
        hull, hull_lower = self._hull
        matrix = sp.csr_array(np.concatenate([dense, hull]))
        row_lower = np.concatenate([np.zeros(len(dense)), hull_lower])
        lower, upper = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], self.bound)
        lower[2 * d : (2 + k) * d], upper[2 * d : (2 + k) * d] = -INFINITY, INFINITY
        upper[(2 + k) * d : -1], upper[-1] = 1.0, INFINITY
        program = LinearProgram(costs, matrix, row_lower, np.full(matrix.shape[0], INFINITY), lower, upper)
        return program, np.concatenate(owners)

    def _place(self, i: int, rows: RelaxedRows, worst: Floats) -> Floats:
        """Rows of expert i on `θ⁺ θ⁻ | q_1 … q_K | λ | t`."""
        d, k = self.margins.n_parameters, self.margins.n_experts
        placed = np.zeros((len(worst), (2 + k) * d + k + 1))
        placed[:, :d], placed[:, d : 2 * d] = rows.positive, rows.negative
        placed[:, (2 + i) * d : (3 + i) * d] = rows.product
        placed[:, -1] = worst
        return placed

    def relaxed(self, i: int, low: float, high: float) -> tuple[RelaxedRows, RelaxedRows]:
        """Expert i's strict rows and both signs of its ties, relaxed on [low, high]."""
        (strict_low, ties_low), (strict_high, ties_high) = self._at(i, low), self._at(i, high)
        quarter = (high - low) / 4
        both = [_relaxed(ties_low, ties_high, quarter, sign) for sign in (1.0, -1.0)]
        ties = RelaxedRows(*(np.vstack(pair) for pair in zip(*both, strict=True)))
        return _relaxed(strict_low, strict_high, quarter, 1.0), ties

    def _at(self, i: int, gamma: float) -> tuple[RowsAt, RowsAt]:
        """Expert i's strict rows and ties at γ, kept: neighbouring boxes share their ends."""
        if (i, gamma) not in self._rows:
            self._rows[i, gamma] = self._compute(i, gamma)
        return self._rows[i, gamma]

    def _compute(self, i: int, gamma: float) -> tuple[RowsAt, RowsAt]:
        d, places = self.margins.n_parameters, np.flatnonzero(self.margins.owner == i)
        columns = d + places
        values = self.margins.values[places]
        factor = spla.splu(sp.csc_array(sp.eye_array(places.size) - gamma * values[:, columns]))
        features = values[:, :d].toarray()
        positive, negative = (factor.solve(factor.solve(np.maximum(sign * features, 0.0))) for sign in (1.0, -1.0))
        ahead = gamma * factor.solve(features)

        def rows_at(rows: MarginRows) -> RowsAt:
            own = rows.matrix[np.flatnonzero(rows.expert == i)]
            step = own[:, columns].toarray()
            up, down = np.maximum(step, 0.0), np.maximum(-step, 0.0)
            margins = own[:, :d].toarray() + step @ ahead
            return RowsAt(margins, up @ positive + down @ negative, up @ negative + down @ positive)

        return rows_at(self.margins.strict), rows_at(self.margins.ties)

    @cached_property
    def _hull(self) -> tuple[Floats, Floats]:
        """Rows and lower sides of `λ r_max ± q ≥ 0` and `(1−λ) r_max ± (θ − q) ≥ 0`, expert by expert; then of
        `θ⁺ + θ⁻ ≤ r_max`, without which both halves of θ could grow to loosen the curvature terms."""
        d, k = self.margins.n_parameters, self.margins.n_experts
        each = np.arange(d)
        rows, lower = np.zeros((k, 2, 2, d, (2 + k) * d + k + 1)), np.zeros((k, 2, 2, d))
        for i in range(k):
            for side, sign in enumerate((1.0, -1.0)):
                product, rest = rows[i, side]
                product[each, (2 + i) * d + each], product[:, (2 + k) * d + i] = sign, self.bound
                rest[each, (2 + i) * d + each], rest[:, (2 + k) * d + i] = -sign, -self.bound
                rest[each, each], rest[each, d + each] = sign, -sign
                lower[i, side, 1] = -self.bound
        size = np.zeros((d, rows.shape[-1]))
        size[each, each] = size[each, d + each] = -1.0
        return np.concatenate([rows.reshape(-1, rows.shape[-1]), size]), np.concatenate([lower.ravel(), np.full(d, -self.bound)])


def _relaxed(low: RowsAt, high: RowsAt, quarter: float, sign: float) -> RelaxedRows:
    """Coefficients in an upper bound of `sign · w(γ) θ`."""
    same, other = quarter * (high.same_sign - low.same_sign), quarter * (high.other_sign - low.other_sign)
    slack = (other, same) if sign > 0 else (same, other)
    return RelaxedRows(sign * low.margins + slack[0], -sign * low.margins + slack[1], sign * (high.margins - low.margins))
