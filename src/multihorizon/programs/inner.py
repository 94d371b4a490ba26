"""The programs for fixed discounts: Ω of Theorem 1, the optimum g*(Γ), and its slope in Γ.

    Ω(Γ)  = rows that some reward makes positive while none is negative: the support of z in
            max Σ z   s.t.   margin_i ≥ z_i,  0 ≤ z ≤ 1,  θ free                                       (Eq. 6, z → 1 − z)
    g*(Γ) = max_θ  min_{i ∈ Ω} margin_i − λ‖θ‖₁   s.t.   margin_i ≥ 0,  |θ| ≤ r_max                     (Eq. 5)

If (θ₁, z₁) and (θ₂, z₂) are supports, so is their sum, and a large multiple of it has z = 1 on both: the optimum of the first
program is 0/1 and unique. In numbers θ is bounded by 1/`STRICT`, so a margin below `STRICT` times the largest reward counts
as zero. Where every row can be positive at once, g* with Ω = all rows shows it and Eq. 6 need not be solved.

For a pair of experts (i, j) who differ, Theorem 1 asks for a row of i against an action of j in Ω; where there is none, no reward
tells them apart under Γ, g* is −∞ and the pair is named.

Slope: Γ enters only through `x_k − γ_k V_k = 0`, so with that row's dual y_k, `∂g*/∂γ_k = y_k · V_k`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.programs.highs import INFINITY, LinearProgram, LPResult, solve_lp
from multihorizon.programs.lp_model import Layout, Objective, lay_out, program
from multihorizon.programs.margins import Margins

#: Margins below this share of the largest reward count as zero: three digits above what HiGHS' tolerance can blur.
STRICT = 1e-6
#: How much of the optimum may be given up to find the least reward among the optima.
FLOOR = 1e-9


@dataclass(frozen=True, eq=False)
class Point:
    """What is known at one Γ: g* (−inf if no reward tells some pair apart), θ, V, the margins, Ω, and the reasons.

    `unseparated` are the pairs of Theorem 1 without a row in Ω; `singular` the experts whose values do not exist at
    their discount. `gradient` `(K,)` is ∂g*/∂γ.
    """

    discounts: Floats
    objective: float
    parameters: Floats
    values: Floats
    omega: Bools
    gradient: Floats
    unseparated: tuple[tuple[int, int], ...] = ()
    singular: tuple[int, ...] = ()
    result: LPResult | None = None


@dataclass(eq=False)
class Inner:
    """g*(Γ) of one problem, with the bases of the last programs kept for warm starts."""

    margins: Margins
    objective: Objective
    l1: float
    bound: float
    _bases: dict[str, Any] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """Without the bases, which do not travel between processes."""
        return {**self.__dict__, "_bases": {}}

    @cached_property
    def layout(self) -> Layout:
        """The program of the objective."""
        return lay_out(self.margins, self.objective, self.l1)

    @cached_property
    def support(self) -> Layout:
        """The program of Eq. 6."""
        return lay_out(self.margins, "each", 0.0)

    @cached_property
    def worst(self) -> Layout:
        """The program of the worst margin over all rows, whatever the objective."""
        return self.layout if self.objective == "worst" else lay_out(self.margins, "worst", 0.0)

    def __call__(self, discounts: Floats) -> float:
        """g*(Γ)."""
        return self.at(discounts).objective

    def at(self, discounts: Floats) -> Point:
        """Solve at Γ."""
        gamma = np.asarray(discounts, dtype=np.float64)
        singular = tuple(int(k) for k in self.margins.singular(gamma))
        every = np.ones(len(self.margins.strict), dtype=np.bool_)
        if singular:
            return self._nothing(gamma, ~every, singular=singular)
        if self.objective == "sum":
            return self._point(gamma, every, self.run(gamma, every))
        result = self.run(gamma, every)
        omega = every
        if not self._worst(result) > STRICT * self.bound:
            omega = self.omega(gamma)
            missing = self.unseparated(omega)
            if missing or not omega.any():
                return self._nothing(gamma, omega, unseparated=missing)
            result = self.run(gamma, omega)
        return self._point(gamma, omega, result)

    def run(self, gamma: Floats, omega: Bools) -> LPResult:
        """The program of the objective at Γ with a given Ω."""
        return self.solve("objective", program(self.layout, gamma, omega, l1=self.l1, bound=self.bound))

    def omega(self, gamma: Floats) -> Bools:
        """Ω(Γ) by Eq. 6, as a mask of the strict rows."""
        every = np.ones(len(self.margins.strict), dtype=np.bool_)
        result = self.solve("support", program(self.support, gamma, every, l1=0.0, bound=1 / STRICT, ceiling=1.0))
        support: Bools = result.values[self.support.columns[3]] > 0.5
        return support

    def unseparated(self, omega: Bools) -> tuple[tuple[int, int], ...]:
        """The pairs of differing experts without a row in Ω."""
        return tuple(pair for pair, rows in self.margins.pairs.items() if not omega[rows].any())

    def solve(self, name: str, lp: LinearProgram) -> LPResult:
        """Solve from the last basis of that name: neighbouring Γ share most of it."""
        result = solve_lp(lp, self._bases.get(name), ray=False)
        if result.optimal:
            self._bases[name] = result.basis
        return result

    def least(self, point: Point) -> Point:
        """Among the optima at the point's Γ the one with the least ‖θ‖₁: the objective becomes a row, the norm the cost."""
        # Any positive weight splits θ in its two parts; the costs are written below.
        lp = program(self.layout, point.discounts, point.omega, l1=1.0, bound=self.bound)
        plus, minus, *_ = self.layout.columns
        lp.row_lower[self.layout.rows[3]] = point.objective - FLOOR * max(abs(point.objective), STRICT * self.bound)
        lp.costs[:] = 0.0
        lp.costs[plus] = lp.costs[minus] = -1.0
        result = solve_lp(lp)
        if not result.optimal:
            return point
        found = self._point(point.discounts, point.omega, result)
        return Point(**{**vars(found), "objective": point.objective, "gradient": point.gradient})

    def values(self, layout: Layout, result: LPResult) -> Floats:
        """V `(K·n,)` at the optimum of a program."""
        plus, minus, x, _, _ = layout.columns
        theta = result.values[plus] - result.values[minus]
        values: Floats = self.margins.values @ np.concatenate([theta, result.values[x]])
        return values

    def _worst(self, result: LPResult) -> float:
        return float(result.values[self.layout.columns[3]].min()) if result.optimal else -INFINITY

    def _point(self, gamma: Floats, omega: Bools, result: LPResult) -> Point:
        if not result.optimal:
            raise RuntimeError(f"HiGHS ended with {result.detail} on a program that has an optimum; please report this problem")
        plus, minus, *_ = self.layout.columns
        theta = result.values[plus] - result.values[minus]
        values = self.values(self.layout, result)
        slope = (result.duals[self.layout.rows[0]] * values).reshape(self.margins.n_experts, -1).sum(axis=1)
        return Point(gamma, result.objective, theta, values, omega, slope, result=result)

    def _nothing(self, gamma: Floats, omega: Bools, **reason: Any) -> Point:
        d, k = self.margins.n_parameters, self.margins.n_experts
        nothing = np.zeros(self.margins.values.shape[0])
        return Point(gamma, -INFINITY, np.zeros(d), nothing, omega, np.zeros(k), **reason)
