"""An upper bound on g* over a box of discounts.

Expert k's margins are `w(γ) θ` with `w(γ) = A + D H(γ) F` and `H(γ) = γ (I − γP)^{-1} = Σ_n γ^{n+1} Pⁿ`, which is entrywise
non-negative, increasing and convex in γ, with derivative `H' = (I − γP)^{-2}`. On [l, h] with `γ = (1−λ) l + λ h`:

    H(γ) = (1−λ) H(l) + λ H(h) − κ,        0 ≤ κ ≤ λ(1−λ)(h−l)(H'(h) − H'(l)) ≤ κ̄ = ¼ (h−l)(H'(h) − H'(l)),

the last because a convex function lies above its tangents at both ends. With `D = D⁺ − D⁻`, `F = F⁺ − F⁻` and `θ = θ⁺ − θ⁻`,

    w(γ) θ ≤ w(l)(θ − q_k) + w(h) q_k + B̄ θ⁺ + Ā θ⁻,      q_k = λ_k θ,
    Ā = D⁺κ̄F⁺ + D⁻κ̄F⁻,    B̄ = D⁺κ̄F⁻ + D⁻κ̄F⁺,

and the product `q_k = λ_k θ` is relaxed to its convex hull on |θ| ≤ r_max: `|q_k| ≤ λ_k r_max`, `|θ − q_k| ≤ (1−λ_k) r_max`. What is
left is one small dense linear program a box. Its optimum bounds the worst margin of the required rows for every Γ in the box.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import Bools, Floats
from multihorizon.highs import INFINITY, LinearProgram, solve_lp
from multihorizon.solvers.margins import Margins, Rows

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

    def __getstate__(self) -> dict[str, Any]:
        """Without the cache, which each process fills for itself."""
        return {**self.__dict__, "_ends": {}}

    def box(self, low: Floats, high: Floats) -> tuple[float, int]:
        """An upper bound over the box, and the expert whose discount is best split."""
        program, slopes = self._program(low, high)
        result = solve_lp(program)
        if not result.optimal:
            return INFINITY, int(np.argmax(high - low))
        d, k = self.margins.n_parameters, self.margins.n_experts
        theta = result.values[:d] - result.values[d : 2 * d]
        products = result.values[2 * d : (2 + k) * d].reshape(k, d)
        shares = result.values[(2 + k) * d : (2 + k) * d + k]
        errors = [float(np.abs(slopes[i] @ (products[i] - shares[i] * theta)).max(initial=0.0)) for i in range(k)]
        # Where the products are exact the curvature is what is left; it falls with the square of the width.
        split = np.array(errors) + 1e-9 * (high - low)
        return result.objective, int(np.argmax(np.where(high > low, split, -1.0)))

    def _program(self, low: Floats, high: Floats) -> tuple[LinearProgram, list[Floats]]:
        d, k = self.margins.n_parameters, self.margins.n_experts
        blocks, slopes = [], []
        for i in range(k):
            (strict, ties), slope = self._expert(i, float(low[i]), float(high[i]))
            mask = self.required[self.margins.strict.expert == i]
            blocks.append(self._wide(i, strict, -1.0 * mask))
            blocks.append(self._wide(i, ties, np.zeros(len(ties[0]))))
            slopes.append(slope)
        dense = np.concatenate(blocks)
        hull, hull_upper = self._hull
        matrix = sp.csr_array(sp.vstack([sp.csr_array(dense), hull], format="csr"))
        row_lower = np.concatenate([np.zeros(len(dense)), np.full(hull_upper.size, -INFINITY)])
        row_upper = np.concatenate([np.full(len(dense), INFINITY), hull_upper])
        lower, upper = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], self.bound)
        lower[2 * d : (2 + k) * d] = -self.bound
        upper[(2 + k) * d : -1] = 1.0
        upper[-1] = INFINITY
        costs = np.zeros(matrix.shape[1])
        costs[: 2 * d], costs[-1] = -self.l1, 1.0
        return LinearProgram(costs, matrix, row_lower, row_upper, lower, upper), slopes

    def _wide(self, i: int, rows: Ends, worst: Floats) -> Floats:
        """Rows on `θ⁺ θ⁻ | q_1 … q_K | λ | t`."""
        d, k = self.margins.n_parameters, self.margins.n_experts
        wide = np.zeros((len(worst), (2 + k) * d + k + 1))
        wide[:, :d], wide[:, d : 2 * d] = rows[0], rows[1]
        wide[:, (2 + i) * d : (3 + i) * d] = rows[2]
        wide[:, -1] = worst
        return wide

    def _expert(self, i: int, low: float, high: float) -> tuple[tuple[Ends, Ends], Floats]:
        """Coefficients of θ⁺, θ⁻ and q in the relaxed strict rows, in both signs of the ties, and the slopes w(h) − w(l)."""
        (at_low, ties_low), (at_high, ties_high) = self._at(i, low), self._at(i, high)
        quarter = (high - low) / 4
        strict = _relaxed(at_low, at_high, quarter, 1.0)
        both = [_relaxed(ties_low, ties_high, quarter, sign) for sign in (1.0, -1.0)]
        ties = (np.vstack([b[0] for b in both]), np.vstack([b[1] for b in both]), np.vstack([b[2] for b in both]))
        return (strict, ties), np.vstack([strict[2], ties[2]])

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

    @cached_property
    def _hull(self) -> tuple[Any, Floats]:
        """Rows and upper sides of `|q| ≤ λ r_max`, `|θ − q| ≤ (1−λ) r_max` and `θ⁺ + θ⁻ ≤ r_max`."""
        d, k = self.margins.n_parameters, self.margins.n_experts
        eye, zero = sp.eye_array(d), sp.csr_array((d, d))
        blocks, upper = [sp.hstack([eye, eye, sp.csr_array((d, k * d + k + 1))])], [np.full(d, self.bound)]
        for i in range(k):
            share = sp.csr_array((np.full(d, self.bound), (np.arange(d), np.full(d, i))), shape=(d, k + 1))
            for sign in (1.0, -1.0):
                own = [sign * eye if j == i else zero for j in range(k)]
                blocks.append(sp.hstack([zero, zero, *own, -share]))
                rest = [-sign * eye if j == i else zero for j in range(k)]
                blocks.append(sp.hstack([sign * eye, -sign * eye, *rest, share]))
                upper += [np.zeros(d), np.full(d, self.bound)]
        return sp.csr_array(sp.vstack(blocks, format="csr")), np.concatenate(upper)


def _relaxed(low: Ends, high: Ends, quarter: float, sign: float) -> Ends:
    """Coefficients of θ⁺, θ⁻ and q in an upper bound of `sign · w(γ) θ`."""
    same, crossed = quarter * (high[1] - low[1]), quarter * (high[2] - low[2])
    slack = (crossed, same) if sign > 0 else (same, crossed)
    return sign * low[0] + slack[0], -sign * low[0] + slack[1], sign * (high[0] - low[0])
