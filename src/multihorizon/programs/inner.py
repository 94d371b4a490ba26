"""The programs for fixed discounts: Ω of Theorem 1, the optimum g*(Γ), and its slope in Γ.

    Ω(Γ)  = rows that some reward makes positive while none is negative: the support of z in
            max Σ z   s.t.   margin_i ≥ z_i,  0 ≤ z ≤ 1,  θ free                                       (Eq. 6, z → 1 − z)
    g*(Γ) = max_θ  min_{i ∈ Ω} margin_i − λ‖θ‖₁   s.t.   margin_i ≥ 0,  |θ| ≤ r_max                     (Eq. 5)

If (θ₁, z₁) and (θ₂, z₂) are supports, so is their sum, and a large multiple of it has z = 1 on both: the optimum of the first
program is 0/1 and unique. In numbers θ is bounded by 1/`POSITIVE_MARGIN`, so a margin below `POSITIVE_MARGIN` times the largest
reward counts as zero. Where every row can be positive at once, g* with Ω = all rows shows it and Eq. 6 need not be solved.

For a pair of experts (i, j) who differ, Theorem 1 asks for a row of i against an action of j in Ω; where there is none, no reward
tells them apart under Γ, g* is −∞ and the pair is named. Where HiGHS gives no answer, g* is not known: it is NaN.

Slope: Γ enters only through `x_k − γ_k V_k = 0`, so with that row's dual y_k, `∂g*/∂γ_k = y_k · V_k`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.programs.bases import Bases
from multihorizon.programs.highs import INFINITY, MOST_SIMPLEX_ROWS, LinearProgram, LPResult, short_solve, solve_lp
from multihorizon.programs.margins import Margins
from multihorizon.programs.model import Layout, Objective, lay_out, program, with_rows

#: Margins below this share of the largest reward count as zero: three digits above what HiGHS' tolerance can blur.
POSITIVE_MARGIN = 1e-6
#: A program with at most this share of the strict rows is much smaller than the whole.
FEW_ROWS = 0.1
#: The share of the optimum that may be given up to find the least reward among the optima.
OPTIMUM_GIVEN_UP = 1e-9


class ProgramError(RuntimeError):
    """HiGHS gave no answer to a program that has one."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What is known at one Γ: g* (−inf if no reward tells some pair apart), θ, V, Ω, and the reasons.

    `unseparated` are the pairs of Theorem 1 without a row in Ω; `singular` the experts whose values do not exist at
    their discount. `gradient` `(K,)` is ∂g*/∂γ. Where a program `failed`, g* is NaN and HiGHS' word for it is kept.
    """

    discounts: Floats
    objective: float
    parameters: Floats
    values: Floats
    omega: Bools
    gradient: Floats
    unseparated: tuple[tuple[int, int], ...] = ()
    singular: tuple[int, ...] = ()
    failed: str = ""

    @property
    def has_reward(self) -> bool:
        """Whether some reward explains the experts at these discounts."""
        return self.objective > -INFINITY


@dataclass(eq=False)
class Inner:
    """g*(Γ) of one problem, with the bases of its programs kept for warm starts."""

    margins: Margins
    objective: Objective
    l1: float
    bound: float
    _bases: Bases = field(default_factory=Bases)

    def __getstate__(self) -> dict[str, Any]:
        """Without the bases, which do not travel between processes: a copy starts afresh."""
        return {**self.__dict__, "_bases": Bases()}

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

    @property
    def every(self) -> Bools:
        """Ω with all strict rows."""
        return np.ones(len(self.margins.strict), dtype=np.bool_)

    def __call__(self, discounts: Floats) -> float:
        """g*(Γ)."""
        return self.at(discounts).objective

    def at(self, discounts: Floats, over_all: bool = False) -> Evaluation:
        """Solve at Γ; `over_all` takes all rows for Ω without asking whether all of them can be positive."""
        gamma = np.asarray(discounts, dtype=np.float64)
        singular = tuple(int(k) for k in self.margins.singular(gamma))
        if singular:
            return self._without_reward(gamma, -INFINITY, singular=singular)
        try:
            return self._solve(gamma, over_all)
        except ProgramError as failure:
            return self._without_reward(gamma, np.nan, failed=str(failure))

    def _solve(self, gamma: Floats, over_all: bool) -> Evaluation:
        every = self.every
        result = self.run(gamma, every)
        if over_all or self.objective == "sum":
            return self._evaluation(gamma, every, result)
        if result.optimal and result.values[self.layout.columns.worst].min() > POSITIVE_MARGIN * self.bound:
            return self._evaluation(gamma, every, result)
        omega = self.omega(gamma)
        missing = self.unseparated(omega)
        if missing or not omega.any():
            return self._without_reward(gamma, -INFINITY, omega=omega, unseparated=missing)
        return self._evaluation(gamma, omega, self.run(gamma, omega))

    def run(self, gamma: Floats, omega: Bools) -> LPResult:
        """The program of the objective at Γ with a given Ω."""
        return self.solve("objective", program(self.layout, gamma, omega, l1=self.l1, bound=self.bound), gamma)

    def few(self, rows: Ints) -> bool:
        """Whether a program with only these strict rows is much smaller than the whole, and the whole is large."""
        return self.layout.rows.order.stop > MOST_SIMPLEX_ROWS and rows.size <= FEW_ROWS * len(self.margins.strict)

    def ceiling(self, gamma: Floats, rows: Ints) -> float:
        """An upper bound on the objective over all rows: its optimum over some of them, infinite if that takes many steps."""
        whole = program(self.layout, gamma, self.every, l1=self.l1, bound=self.bound)
        result = short_solve(with_rows(self.layout, whole, rows))
        return result.objective if result.optimal else INFINITY

    def omega(self, gamma: Floats) -> Bools:
        """Ω(Γ) by Eq. 6, as a mask of the strict rows."""
        lp = program(self.support, gamma, self.every, l1=0.0, bound=1 / POSITIVE_MARGIN, ceiling=1.0)
        # Its rewards are so large that the interior point hardly ever ends at an optimum of many rows.
        result = _answered(self.solve("support", lp, gamma, interior=False))
        support: Bools = result.values[self.support.columns.worst] > 0.5
        return support

    def unseparated(self, omega: Bools) -> tuple[tuple[int, int], ...]:
        """The pairs of differing experts without a row in Ω."""
        return tuple(pair for pair, rows in self.margins.pairs.items() if not omega[rows].any())

    def solve(self, name: str, lp: LinearProgram, gamma: Floats, like: str = "", interior: bool = True) -> LPResult:
        """Solve from the basis at the nearest Γ of a program of that name, or of one it is `like`."""
        result = solve_lp(lp, self._bases.nearest(name, gamma, like), ray=False, interior=interior)
        if result.optimal:
            self._bases.keep(name, gamma, result.basis)
        return result

    def least(self, point: Evaluation) -> Evaluation:
        """Among the optima at the point's Γ the one with the least ‖θ‖₁: the objective becomes a row, the norm the cost."""
        columns, rows = self.layout.columns, self.layout.rows
        # Any positive weight splits θ into its two parts; the costs are set below.
        lp = program(self.layout, point.discounts, point.omega, l1=1.0, bound=self.bound)
        least = point.objective - OPTIMUM_GIVEN_UP * max(abs(point.objective), POSITIVE_MARGIN * self.bound)
        lp.row_lower[rows.floor] = least
        lp.costs[:] = 0.0
        lp.costs[columns.positive] = lp.costs[columns.negative] = -1.0
        result = solve_lp(lp)
        if not result.optimal:
            return point
        return replace(point, parameters=self.reward(self.layout, result), values=self.values(self.layout, result))

    def reward(self, layout: Layout, result: LPResult) -> Floats:
        """θ `(d,)` at the optimum of a program."""
        theta: Floats = result.values[layout.columns.positive] - result.values[layout.columns.negative]
        return theta

    def values(self, layout: Layout, result: LPResult) -> Floats:
        """V `(N,)` at the optimum of a program."""
        continuation = result.values[layout.columns.continuation]
        values: Floats = self.margins.values @ np.concatenate([self.reward(layout, result), continuation])
        return values

    def _evaluation(self, gamma: Floats, omega: Bools, result: LPResult) -> Evaluation:
        result = _answered(result)
        values = self.values(self.layout, result)
        slopes = result.duals[self.layout.rows.continuation] * values
        gradient: Floats = np.bincount(self.margins.owner, weights=slopes, minlength=gamma.size).astype(np.float64)
        return Evaluation(gamma, result.objective, self.reward(self.layout, result), values, omega, gradient)

    def _without_reward(self, gamma: Floats, objective: float, omega: Bools | None = None, **reason: Any) -> Evaluation:
        zero, none = np.zeros(self.margins.n_parameters), ~self.every if omega is None else omega
        return Evaluation(gamma, objective, zero, np.zeros(self.margins.owner.size), none, np.zeros(gamma.size), **reason)


def _answered(result: LPResult) -> LPResult:
    if not result.optimal:
        raise ProgramError(result.detail)
    return result
