"""An upper bound on g* over a box of discounts.

Expert k's margins are `w(γ) θ` with `w(γ) = A + D H(γ) F` and `H(γ) = γ (I − γP)^{-1} = Σ_n γ^{n+1} Pⁿ`, which is entrywise
non-negative, increasing and convex in γ, with derivative `H' = (I − γP)^{-2}`. On [l, h] with `γ = (1−λ) l + λ h`:

    H(γ) = (1−λ) H(l) + λ H(h) − κ,        0 ≤ κ ≤ λ(1−λ)(h−l)(H'(h) − H'(l)) ≤ κ̄ = ¼ (h−l)(H'(h) − H'(l)),

the last because a convex function lies above its tangents at both ends. With `D = D⁺ − D⁻`, `F = F⁺ − F⁻` and `θ = θ⁺ − θ⁻`,

    w(γ) θ ≤ w(l)(θ − q_k) + w(h) q_k + B̄ θ⁺ + Ā θ⁻,      q_k = λ_k θ,
    Ā = D⁺κ̄F⁺ + D⁻κ̄F⁻,    B̄ = D⁺κ̄F⁻ + D⁻κ̄F⁺,

and the product `q_k = λ_k θ` is relaxed to its convex hull on a ≤ θ ≤ b: `λ_k a ≤ q_k ≤ λ_k b` and
`(1−λ_k) a ≤ θ − q_k ≤ (1−λ_k) b`. What is left is one small dense linear program a box. Its optimum bounds the worst margin of the required rows for every Γ in it.

The error of the hull is proportional to `b − a`. Only rewards whose objective exceeds a `floor` matter to the search; asking for
that in the program and minimising and maximising each θ in turn gives narrower ranges, which a box hands on to its halves. Near
the optimum few rewards are left, and the ranges shrink with the box.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.highs import INFINITY, LinearProgram, LPResult, LPStatus, solve_lp
from multihorizon.solvers.margins import Margins, Rows

#: Ranges of θ are narrowed only where the bound is this near to the floor; elsewhere splitting helps more.
NARROW_BELOW = 2.0
#: A side shorter than this share of the longest is not split further.
NEEDLE = 1 / 8

Ranges = tuple[Floats, Floats]
Ends = tuple[Floats, Floats, Floats]


@dataclass(eq=False)
class Relaxation:
    """The bound for one problem; `required` are the strict rows whose worst margin is bounded.

    Everything here is dense in the number of states and meant for problems of up to a few hundred of them.
    """

    margins: Margins
    required: Bools
    l1: float
    bound: float
    _ends: dict[tuple[int, float], tuple[Ends, Ends]] = field(default_factory=dict)
    _basis: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the cache and the basis, which each process makes for itself."""
        return {**self.__dict__, "_ends": {}, "_basis": None}

    def start(self) -> Ranges:
        """The ranges of θ at the root."""
        full = np.full(self.margins.n_parameters, self.bound)
        return -full, full

    def box(self, low: Floats, high: Floats, ranges: Ranges, floor: float) -> tuple[float, int, Ranges]:
        """An upper bound over the box on objectives above `floor` (−inf if there are none), the expert whose discount is best
        split, and narrower ranges of θ."""
        bound, split, result = self._bound(low, high, ranges, floor)
        if result is None or not floor < bound < NARROW_BELOW * floor:
            return bound, split, ranges
        narrowed = self._narrow(low, high, ranges, floor)
        if narrowed is None:
            return -INFINITY, split, ranges
        bound, split, _ = self._bound(low, high, narrowed, floor)
        return bound, split, narrowed

    def _bound(self, low: Floats, high: Floats, ranges: Ranges, floor: float) -> tuple[float, int, LPResult | None]:
        program, owners = self._program(low, high, ranges, floor)
        result = solve_lp(program, self._basis)
        if result.status == LPStatus.INFEASIBLE:
            return -INFINITY, 0, None
        if not result.optimal:
            return INFINITY, int(np.argmax(high - low)), None
        self._basis = result.basis
        return result.objective, self._split(result, program, owners, high - low), result

    def _narrow(self, low: Floats, high: Floats, ranges: Ranges, floor: float) -> Ranges | None:
        """The least and the largest value of each θ in the box; None if there is no θ at all."""
        program, _ = self._program(low, high, ranges, floor)
        d = self.margins.n_parameters
        ends = [ranges[0].copy(), ranges[1].copy()]
        basis = self._basis
        for i, way in itertools.product(range(d), (0, 1)):
            sign = 2.0 * way - 1.0
            costs = np.zeros(program.costs.size)
            costs[i], costs[d + i] = sign, -sign
            result = solve_lp(replace(program, costs=costs), basis)
            if result.status == LPStatus.INFEASIBLE:
                return None
            if result.optimal:
                basis = result.basis
                # A little wider than found, because the program is solved to a tolerance.
                found = sign * result.objective + sign * 1e-7 * self.bound
                ends[way][i] = min(ends[1][i], found) if way else max(ends[0][i], found)
        return ends[0], np.maximum(*ends)

    def _split(self, result: LPResult, program: LinearProgram, owners: Ints, width: Floats) -> int:
        """The expert with the row farthest from exact, in the relaxed product.

        Weighting rows by their duals was slower by far: which rows are tight changes from box to box. Sides are kept from
        becoming needles, because an expert whose product is exact here may be the one that matters after the next split.
        """
        d, k = self.margins.n_parameters, self.margins.n_experts
        theta = result.values[:d] - result.values[d : 2 * d]
        error = np.zeros(result.values.size)
        shares = result.values[(2 + k) * d : (2 + k) * d + k]
        error[2 * d : (2 + k) * d] = result.values[2 * d : (2 + k) * d] - np.outer(shares, theta).ravel()
        rows = np.abs(program.matrix[: owners.size] @ error)
        worst = np.array([rows[owners == i].max(initial=0.0) for i in range(k)]) + 1e-9 * width
        return int(np.argmax(np.where(width >= NEEDLE * width.max(), worst, -1.0)))

    def _program(self, low: Floats, high: Floats, ranges: Ranges, floor: float) -> tuple[LinearProgram, Ints]:
        """The program of a box, and the expert of each of its margin rows."""
        d, k = self.margins.n_parameters, self.margins.n_experts
        blocks, owners = [], []
        for i in range(k):
            strict, ties = self._expert(i, float(low[i]), float(high[i]))
            mask = self.required[self.margins.strict.expert == i]
            blocks.append(self._wide(i, strict, -1.0 * mask))
            blocks.append(self._wide(i, ties, np.zeros(len(ties[0]))))
            owners.append(np.full(len(blocks[-1]) + len(blocks[-2]), i))
        dense = np.concatenate(blocks)
        costs = np.zeros((2 + k) * d + k + 1)
        costs[: 2 * d], costs[-1] = -self.l1, 1.0
        hull, hull_lower = self._hull(ranges)
        matrix = sp.csr_array(np.concatenate([dense, hull, costs[None, :]]))
        row_lower = np.concatenate([np.zeros(len(dense)), hull_lower, [floor]])
        row_upper = np.full(matrix.shape[0], INFINITY)
        row_upper[-1 - d : -1] = ranges[1]
        lower, upper = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], INFINITY)
        upper[:d], upper[d : 2 * d] = np.maximum(ranges[1], 0.0), np.maximum(-ranges[0], 0.0)
        lower[2 * d : (2 + k) * d] = -INFINITY
        upper[(2 + k) * d : -1] = 1.0
        return LinearProgram(costs, matrix, row_lower, row_upper, lower, upper), np.concatenate(owners)

    def _wide(self, i: int, rows: Ends, worst: Floats) -> Floats:
        """Rows on `θ⁺ θ⁻ | q_1 … q_K | λ | t`."""
        d, k = self.margins.n_parameters, self.margins.n_experts
        wide = np.zeros((len(worst), (2 + k) * d + k + 1))
        wide[:, :d], wide[:, d : 2 * d] = rows[0], rows[1]
        wide[:, (2 + i) * d : (3 + i) * d] = rows[2]
        wide[:, -1] = worst
        return wide

    def _expert(self, i: int, low: float, high: float) -> tuple[Ends, Ends]:
        """Coefficients of θ⁺, θ⁻ and q in the relaxed strict rows and in both signs of the ties."""
        (at_low, ties_low), (at_high, ties_high) = self._at(i, low), self._at(i, high)
        quarter = (high - low) / 4
        strict = _relaxed(at_low, at_high, quarter, 1.0)
        both = [_relaxed(ties_low, ties_high, quarter, sign) for sign in (1.0, -1.0)]
        ties = (np.vstack([b[0] for b in both]), np.vstack([b[1] for b in both]), np.vstack([b[2] for b in both]))
        return strict, ties

    def _at(self, i: int, gamma: float) -> tuple[Ends, Ends]:
        """For the strict rows and the ties: w(γ), and D⁺H'F⁺ + D⁻H'F⁻ and D⁺H'F⁻ + D⁻H'F⁺."""
        if (i, gamma) not in self._ends:
            self._ends[i, gamma] = self._compute(i, gamma)
        return self._ends[i, gamma]

    def _compute(self, i: int, gamma: float) -> tuple[Ends, Ends]:
        d, n = self.margins.n_parameters, self.margins.live.size
        columns = slice(d + i * n, d + (i + 1) * n)
        values = self.margins.values[i * n : (i + 1) * n]
        factor = spla.splu(sp.csc_array(sp.eye_array(n) - gamma * values[:, columns]))
        features = values[:, :d].toarray()
        halves = [factor.solve(factor.solve(np.maximum(sign * features, 0.0))) for sign in (1.0, -1.0)]
        ahead = gamma * factor.solve(features)

        def ends(rows: Rows) -> Ends:
            own = rows.matrix[np.flatnonzero(rows.expert == i)]
            step = own[:, columns].toarray()
            up, down = np.maximum(step, 0.0), np.maximum(-step, 0.0)
            return own[:, :d].toarray() + step @ ahead, up @ halves[0] + down @ halves[1], up @ halves[1] + down @ halves[0]

        return ends(self.margins.strict), ends(self.margins.ties)

    def _hull(self, ranges: Ranges) -> tuple[Floats, Floats]:
        """Rows and lower sides of `q ≥ λa`, `λb ≥ q`, `θ − q ≥ (1−λ)a` and `(1−λ)b ≥ θ − q`, expert by expert; then of θ."""
        d, k = self.margins.n_parameters, self.margins.n_experts
        each = np.arange(d)
        rows = np.zeros((k, 2, 2, d, (2 + k) * d + k + 1))
        lower = np.zeros((k, 2, 2, d))
        for i in range(k):
            for side, (sign, end) in enumerate(((1.0, ranges[0]), (-1.0, ranges[1]))):
                part, rest = rows[i, side]
                part[each, (2 + i) * d + each], part[:, (2 + k) * d + i] = sign, -sign * end
                rest[each, (2 + i) * d + each], rest[:, (2 + k) * d + i] = -sign, sign * end
                rest[each, each], rest[each, d + each] = sign, -sign
                lower[i, side, 1] = sign * end
        theta = np.zeros((d, rows.shape[-1]))
        theta[each, each], theta[each, d + each] = 1.0, -1.0
        return np.concatenate([rows.reshape(-1, rows.shape[-1]), theta]), np.concatenate([lower.ravel(), ranges[0]])


def _relaxed(low: Ends, high: Ends, quarter: float, sign: float) -> Ends:
    """Coefficients of θ⁺, θ⁻ and q in an upper bound of `sign · w(γ) θ`."""
    same, crossed = quarter * (high[1] - low[1]), quarter * (high[2] - low[2])
    slack = (crossed, same) if sign > 0 else (same, crossed)
    return sign * low[0] + slack[0], -sign * low[0] + slack[1], sign * (high[0] - low[0])
