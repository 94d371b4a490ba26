"""Warm starts: the bases of programs solved at other discounts, and which of them to start from.

Programs at neighbouring Γ share most of their optimal basis, as long as no two experts have changed their order: at γ_i = γ_j
no reward tells experts who differ apart, and beyond that point other rows are active. So a program starts from the basis at
the nearest Γ with the same order, or with as few pairs in another order as possible. After a step that is not taken this is
the basis of the point where the step began, not the one of the point that was tried.

Sparse programs on the margins, for fixed discounts and for discounts that move a little.

In the variables `(θ, x)` of `margins.py`, the worst margins t and steps ν of the discounts:

    max   Σ_g t_g − λ ‖θ‖₁
    s.t.  x_k − γ_k V_k(θ, x) − V̄_k ν_k = 0            the continuation, linearised at V̄ if the discounts may move
          margin_i(θ, x) − [i ∈ Ω] t_{g(i)} ≥ 0         strict rows
          margin_e(θ, x) = 0                             ties
          |θ| ≤ r_max,  t ≥ 0,  |ν_k| ≤ Δ
          γ_j + ν_j > γ_i + ν_i                         where γ_j > γ_i and i, j differ, if their order is to be kept

`t` is one number for MPLP (the worst margin over Ω) and one for each expert and state for the sum objectives of Ng and
Russell. The structure of the matrix is laid out once; a new Γ only rewrites its numbers, and HiGHS starts from a near basis.

The programs for fixed discounts: Ω of Theorem 1, the optimum g*(Γ), and its slope in Γ.

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

import itertools
from collections import defaultdict, deque
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.numerics.lp import INFINITY, MOST_SIMPLEX_ROWS, LinearProgram, LPResult, short_solve, solve_lp
from multihorizon.programs.margins import Margins

#: How many bases of each name are kept; the oldest is forgotten first.
MOST_BASES = 100
#: By how much further away a basis counts if it is from a program of another name: at the same Γ it is as far as a long step.
LIKE = 0.25


@dataclass(eq=False)
class Bases:
    """The last bases of the programs of each name, with the Γ at which they were optimal."""

    _kept: dict[str, deque[tuple[Floats, Any]]] = field(default_factory=lambda: defaultdict(partial(deque, maxlen=MOST_BASES)))

    def keep(self, name: str, discounts: Floats, basis: Any) -> None:
        """Remember an optimal basis."""
        self._kept[name].append((discounts, basis))

    def nearest(self, name: str, discounts: Floats, like: str = "") -> Any:
        """The basis at the nearest Γ of a program of that name, or of one it is `like`; None if there is none.

        Of equally near ones it is the latest.
        """
        kept = [(gamma, basis, 0.0) for gamma, basis in reversed(self._kept[name])]
        kept += [(gamma, basis, LIKE) for gamma, basis in reversed(self._kept[like])]
        if not kept:
            return None
        gammas, bases, further = zip(*kept, strict=True)
        return bases[int(np.argmin(_distances(np.array(gammas), discounts) + further))]


def _distances(others: Floats, discounts: Floats) -> Floats:
    """How far Γ is from each of others `(n,K)`: one for each pair in another order, plus the largest difference."""
    first, second = np.triu_indices(discounts.size, 1)
    here, there = discounts[first] - discounts[second], others[:, first] - others[:, second]
    distances: Floats = (np.sign(here) != np.sign(there)).sum(axis=1) + np.abs(others - discounts).max(axis=1)
    return distances


Objective = Literal["worst", "sum", "each"]
#: The share of the distance between two discounts that one step may close: where they meet, g* does not exist.
LARGEST_APPROACH = 0.9


class Columns(NamedTuple):
    """The slices of the variables: θ⁺, θ⁻, the continuation x, the worst margins t, the steps ν."""

    positive: slice
    negative: slice
    continuation: slice
    worst: slice
    steps: slice


class RowBlocks(NamedTuple):
    """The slices of the rows.

    `floor` bounds the objective from below (used to pick the least ‖θ‖₁ among optima), `mean` fixes the mean margin (used
    where no reward satisfies all rows), `order` has `ν_j − ν_i` of every pair i < j. All three are free unless used.
    """

    continuation: slice
    strict: slice
    ties: slice
    floor: slice
    mean: slice
    order: slice


@dataclass(frozen=True, eq=False)
class Layout:
    """The structure of one objective's program on some margins, and where things are in it.

    The matrix at Γ has the entries `constant − slopes · γ[owners]` on the structure of `pattern`. Strict row i bounds the worst
    margin number `group[i]`, or none if that is `n_groups`. `worst_entries` and `step_entries` are the entries that Ω and V̄ set.
    """

    margins: Margins
    objective: Objective
    group: Ints
    n_groups: int
    columns: Columns
    rows: RowBlocks
    pattern: Any
    slopes: Floats
    owners: Ints
    worst_entries: Ints
    step_entries: Ints


def lay_out(margins: Margins, objective: Objective, l1: float) -> Layout:
    """Lay out the program of one objective."""
    group, n_groups = _groups(margins, objective)
    k, size, m = margins.n_experts, margins.owner.size, len(margins.strict)
    columns = Columns(*_slices(margins.n_parameters, margins.n_parameters, size, n_groups, k))
    rows = RowBlocks(*_slices(size, m, len(margins.ties), 1, 1, k * (k - 1) // 2))
    bounded = sp.csr_array((np.full(m, -1.0), (np.arange(m), group)), shape=(m, n_groups + 1))[:, :n_groups]
    moved = sp.csr_array((np.ones(size), (np.arange(size), margins.owner)), shape=(size, k))
    zero_reward = sp.csr_array((size, margins.n_parameters))
    constant = sp.vstack(
        [
            _row(columns, sp.hstack([zero_reward, sp.eye_array(size)]), steps=moved),
            _row(columns, margins.strict.matrix, worst=bounded),
            _row(columns, margins.ties.matrix),
            _objective_row(columns, l1),
            _row(columns, margins.strict.matrix.sum(axis=0)[None, :] / max(m, 1)),
            _row(columns, sp.csr_array((rows.order.stop - rows.order.start, margins.n_parameters + size)), steps=_differences(k)),
        ]
    )
    below = sp.csr_array((rows.order.stop - size, columns.steps.stop))
    pattern, slopes = _align(constant, sp.vstack([_row(columns, margins.values), below]))
    row_of = np.repeat(np.arange(pattern.shape[0]), np.diff(pattern.indptr))
    in_worst = (pattern.indices >= columns.worst.start) & (pattern.indices < columns.worst.stop)
    return Layout(
        margins=margins,
        objective=objective,
        group=group,
        n_groups=n_groups,
        columns=columns,
        rows=rows,
        pattern=pattern,
        slopes=slopes,
        owners=margins.owner[np.minimum(row_of, size - 1)],
        worst_entries=np.flatnonzero(in_worst & (row_of >= rows.strict.start) & (row_of < rows.strict.stop)),
        step_entries=np.flatnonzero((pattern.indices >= columns.steps.start) & (row_of < rows.continuation.stop)),
    )


def _groups(margins: Margins, objective: Objective) -> tuple[Ints, int]:
    """The t that each strict row bounds; rows of a state with an indifferent action bound none (their t is 0)."""
    strict = margins.strict
    if objective == "worst":
        return np.zeros(len(strict), dtype=np.int64), 1
    if objective == "each":
        return np.arange(len(strict)), len(strict)
    places = list(zip(strict.part.tolist(), strict.state.tolist(), strict=True))
    number = {place: i for i, place in enumerate(dict.fromkeys(p for p in places if p not in margins.indifferent))}
    return np.array([number.get(place, len(number)) for place in places], dtype=np.int64), len(number)


def _slices(*sizes: int) -> list[slice]:
    ends = np.cumsum([0, *sizes])
    return [slice(int(begin), int(end)) for begin, end in itertools.pairwise(ends)]


def _row(columns: Columns, linear: Any, worst: Any = None, steps: Any = None) -> Any:
    """Rows that are `linear` in (θ, x), with θ = θ⁺ − θ⁻, and have the given entries on t and ν."""
    matrix = sp.csr_array(linear)
    theta = matrix[:, : columns.positive.stop]
    empty = [sp.csr_array((matrix.shape[0], block.stop - block.start)) for block in (columns.worst, columns.steps)]
    blocks = [theta, -theta, matrix[:, columns.positive.stop :]]
    return sp.hstack(
        [*blocks, *(given if given is not None else none for given, none in zip((worst, steps), empty, strict=True))]
    )


def _objective_row(columns: Columns, l1: float) -> Any:
    row = np.zeros(columns.steps.stop)
    row[columns.positive] = row[columns.negative] = -l1
    row[columns.worst] = 1.0
    return sp.csr_array(row[None, :])


def _differences(k: int) -> Any:
    """`e_j − e_i` for every pair i < j."""
    first, second = np.triu_indices(k, 1)
    return sp.csr_array(np.eye(k)[second] - np.eye(k)[first])


def _align(constant: Any, slopes: Any) -> tuple[Any, Floats]:
    """Both matrices on the union of their structures: the first as CSR, the second's numbers in the same order."""
    union = sp.csr_array(abs(constant) + abs(slopes))
    union.sort_indices()
    row_of = np.repeat(np.arange(union.shape[0]), np.diff(union.indptr))
    data, slope = (np.asarray(sp.csr_array(m)[row_of, union.indices]).ravel() for m in (constant, slopes))
    return sp.csr_array((data, union.indices, union.indptr), shape=union.shape), slope


def program(
    layout: Layout,
    discounts: Floats,
    omega: Bools,
    *,
    l1: float,
    bound: float,
    values: Floats | None = None,
    steps: tuple[Floats, Floats] | None = None,
    keep_order: bool = False,
    mean: bool = False,
    ceiling: float = INFINITY,
) -> LinearProgram:
    """The program at Γ = `discounts` with the strict rows `omega` in Ω.

    With `values` V̄ and `steps` (lower, upper) the discounts may move and the program is the linearised one; `keep_order` lets
    none overtake another. With `mean` the mean margin is held at 1 and t may be negative: how far the rows are from being
    satisfiable together. `ceiling` bounds t.
    """
    columns, rows = layout.columns, layout.rows
    data = layout.pattern.data - layout.slopes * discounts[layout.owners]
    data[layout.worst_entries] = -1.0 * omega[layout.group < layout.n_groups]
    data[layout.step_entries] = 0.0 if values is None else -values
    matrix = sp.csr_array((data, layout.pattern.indices, layout.pattern.indptr), shape=layout.pattern.shape)
    lower, upper = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], INFINITY)
    # Without an l1 cost θ need not be split into two parts: θ⁺ alone takes both signs.
    lower[columns.positive], upper[columns.positive] = 0.0 if l1 > 0 else -bound, bound
    upper[columns.negative] = bound if l1 > 0 else 0.0
    lower[columns.continuation] = -INFINITY
    lower[columns.worst], upper[columns.worst] = -INFINITY if mean else 0.0, ceiling
    lower[columns.steps], upper[columns.steps] = (0.0, 0.0) if steps is None else steps
    costs = np.zeros(matrix.shape[1])
    costs[columns.worst] = 1.0
    costs[columns.positive] = costs[columns.negative] = -l1
    row_lower, row_upper = _row_bounds(rows, mean)
    if keep_order:
        row_lower[rows.order], row_upper[rows.order] = _order_bounds(layout.margins, discounts)
    return LinearProgram(costs, matrix, row_lower, row_upper, lower, upper)


def _order_bounds(margins: Margins, discounts: Floats) -> tuple[Floats, Floats]:
    """Bounds on `ν_j − ν_i`; experts who act alike may overtake each other."""
    first, second = np.triu_indices(discounts.size, 1)
    gap = discounts[second] - discounts[first]
    gap[[(int(i), int(j)) in margins.alike for i, j in zip(first, second, strict=True)]] = 0.0
    closing = -LARGEST_APPROACH * gap
    return np.where(gap > 0, closing, -INFINITY), np.where(gap < 0, closing, INFINITY)


def _row_bounds(rows: RowBlocks, mean: bool) -> tuple[Floats, Floats]:
    lower, upper = np.zeros(rows.order.stop), np.zeros(rows.order.stop)
    upper[rows.strict] = INFINITY
    for free in (rows.floor, rows.order) if mean else (rows.floor, rows.order, rows.mean):
        lower[free], upper[free] = -INFINITY, INFINITY
    if mean:
        lower[rows.mean] = upper[rows.mean] = 1.0
    return lower, upper


def with_rows(layout: Layout, whole: LinearProgram, strict: Ints) -> LinearProgram:
    """A program with only some of its strict rows: fewer rows, so an optimum that is no smaller."""
    rows = layout.rows
    kept = np.concatenate(
        [np.arange(rows.strict.start), rows.strict.start + strict, np.arange(rows.strict.stop, whole.matrix.shape[0])]
    )
    return replace(whole, matrix=whole.matrix[kept], row_lower=whole.row_lower[kept], row_upper=whole.row_upper[kept])


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
