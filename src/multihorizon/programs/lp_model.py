"""Sparse programs on the margins, for fixed discounts and for discounts that move a little.

In the variables `(θ, x, t, ν)` of `margins.py`, with the worst margins t and steps ν of the discounts:

    max   Σ_g t_g − λ ‖θ‖₁
    s.t.  x_k − γ_k V_k(θ, x) − V̄_k ν_k = 0            the continuation, linearised at V̄ if the discounts may move
          margin_i(θ, x) − [i ∈ Ω] t_{g(i)} ≥ 0         strict rows
          margin_e(θ, x) = 0                             ties
          |θ| ≤ r_max,  t ≥ 0,  |ν_k| ≤ Δ
          γ_j + ν_j > γ_i + ν_i                         where γ_j > γ_i and i, j differ, if their order is to be kept

`t` is one number for MPLP (the worst margin over Ω) and one for each expert and state for the sum objectives of Ng and
Russell. The structure of the matrix is laid out once; a new Γ only rewrites its numbers, and HiGHS starts from the last basis.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.programs.highs import INFINITY, LinearProgram
from multihorizon.programs.margins import Margins

Objective = Literal["worst", "sum", "each"]
#: The share of the distance between two discounts that one step may close: where they meet, g* does not exist.
SHARE = 0.9


@dataclass(frozen=True, eq=False)
class Layout:
    """Where things are in the program: columns `θ⁺ θ⁻ | x | t | ν`, rows `continuation | strict | ties | floor | mean | order`.

    `floor` bounds the objective from below (used to pick the least ‖θ‖₁ among optima) and `mean` fixes the mean margin
    (used where no reward satisfies all rows); `order` has `ν_j − ν_i` of every pair i < j. All are free rows otherwise.
    """

    margins: Margins
    objective: Objective
    groups: Ints
    n_groups: int
    template: Any
    slopes: Floats
    owners: Ints
    worst_at: Ints
    step_at: Ints

    @property
    def columns(self) -> tuple[slice, slice, slice, slice, slice]:
        """Slices of θ⁺, θ⁻, x, t and ν."""
        d, x, k = self.margins.n_parameters, self.margins.values.shape[0], self.margins.n_experts
        ends = np.cumsum([0, d, d, x, self.n_groups, k])
        return tuple(slice(int(a), int(b)) for a, b in itertools.pairwise(ends))  # type: ignore[return-value]

    @property
    def rows(self) -> tuple[slice, slice, slice, int, int, slice]:
        """Slices of the continuation, strict and tie rows, the places of the floor and mean rows, the slice of the orders."""
        ends = np.cumsum([0, self.margins.values.shape[0], len(self.margins.strict), len(self.margins.ties)])
        blocks = [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
        end = int(ends[-1])
        return blocks[0], blocks[1], blocks[2], end, end + 1, slice(end + 2, self.template.shape[0])


def lay_out(margins: Margins, objective: Objective, l1: float) -> Layout:
    """Lay out the program of one problem and objective."""
    groups, n_groups = _groups(margins, objective)
    d, nx, k = margins.n_parameters, margins.values.shape[0], margins.n_experts
    strict, ties = margins.strict.matrix, margins.ties.matrix
    m = len(margins.strict)
    worst = sp.csr_array((np.full(m, -1.0), (np.arange(m), groups)), shape=(m, n_groups + 1))[:, :n_groups]
    owner = np.repeat(np.arange(k), nx // k)
    steps = sp.csr_array((np.ones(nx), (np.arange(nx), owner)), shape=(nx, k))
    identity = sp.csr_array(sp.eye_array(nx, nx, format="csr"))
    floor = np.concatenate([np.full(2 * d, -l1), np.zeros(nx), np.ones(n_groups), np.zeros(k)])[None, :]
    mean = strict.sum(axis=0)[None, :] / max(m, 1)
    constant = _stack(_split(sp.hstack([sp.csr_array((nx, d)), identity]), d), strict, worst, ties, mean, floor, steps, k)
    moving = _split(margins.values, d)
    slopes = sp.vstack(
        [sp.hstack([moving, sp.csr_array((nx, n_groups + k))]), sp.csr_array((constant.shape[0] - nx, constant.shape[1]))]
    )
    template, slope = _align(constant, slopes)
    entry_rows = np.repeat(np.arange(template.shape[0]), np.diff(template.indptr))
    in_t = (template.indices >= 2 * d + nx) & (template.indices < 2 * d + nx + n_groups)
    return Layout(
        margins=margins,
        objective=objective,
        groups=groups,
        n_groups=n_groups,
        template=template,
        slopes=slope,
        owners=owner[np.minimum(entry_rows, nx - 1)],
        worst_at=np.flatnonzero(in_t & (entry_rows >= nx) & (entry_rows < nx + m)),
        step_at=np.flatnonzero((template.indices >= 2 * d + nx + n_groups) & (entry_rows < nx)),
    )


def _groups(margins: Margins, objective: Objective) -> tuple[Ints, int]:
    """The t that each strict row bounds; rows of a state with an indifferent action bound none (their t is 0)."""
    strict = margins.strict
    if objective == "worst":
        return np.zeros(len(strict), dtype=np.int64), 1
    if objective == "each":
        return np.arange(len(strict)), len(strict)
    keys = strict.expert * margins.indifferent.shape[1] + strict.state
    kept = ~margins.indifferent[strict.expert, strict.state]
    _, groups = np.unique(np.where(kept, keys, keys.max(initial=0) + 1), return_inverse=True)
    return groups.astype(np.int64), int(np.unique(keys[kept]).size)


def _split(matrix: Any, d: int) -> Any:
    matrix = sp.csr_array(matrix)
    return sp.hstack([matrix[:, :d], -matrix[:, :d], matrix[:, d:]], format="csr")


def _stack(continuation: Any, strict: Any, worst: Any, ties: Any, mean: Any, floor: Any, steps: Any, k: int) -> Any:
    d = (continuation.shape[1] - continuation.shape[0]) // 2
    groups = worst.shape[1]
    blank = sp.csr_array
    rows = [
        sp.hstack([continuation, blank((continuation.shape[0], groups)), steps]),
        sp.hstack([_split(strict, d), worst, blank((strict.shape[0], k))]),
        sp.hstack([_split(ties, d), blank((ties.shape[0], groups + k))]),
        sp.csr_array(floor),
        sp.hstack([_split(sp.csr_array(mean), d), blank((1, groups + k))]),
        sp.hstack([blank((k * (k - 1) // 2, continuation.shape[1] + groups)), _differences(k)]),
    ]
    return sp.csr_array(sp.vstack(rows, format="csr"))


def _differences(k: int) -> Any:
    """`e_j − e_i` for every pair i < j."""
    first, second = np.triu_indices(k, 1)
    return sp.csr_array(np.eye(k)[second] - np.eye(k)[first])


def _align(constant: Any, slopes: Any) -> tuple[Any, Floats]:
    """Both matrices on the union of their structures: the first as CSR, the second's numbers in the same order."""
    union = sp.csr_array(abs(constant) + abs(slopes))
    union.sort_indices()
    rows = np.repeat(np.arange(union.shape[0]), np.diff(union.indptr))
    data, slope = (np.asarray(sp.csr_array(m)[rows, union.indices]).ravel() for m in (constant, slopes))
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
    satisfiable together.
    """
    data = layout.template.data - layout.slopes * discounts[layout.owners]
    data[layout.worst_at] = -1.0 * omega[layout.groups < layout.n_groups]
    data[layout.step_at] = 0.0 if values is None else -values
    matrix = sp.csr_array((data, layout.template.indices, layout.template.indptr), shape=layout.template.shape)
    plus, minus, x, worst, nu = layout.columns
    lower, upper = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], INFINITY)
    # Without an l1 cost θ need not be split in two parts: θ⁺ alone takes both signs.
    lower[plus], upper[plus] = 0.0 if l1 > 0 else -bound, bound
    upper[minus] = bound if l1 > 0 else 0.0
    lower[x] = -INFINITY
    lower[worst], upper[worst] = -INFINITY if mean else 0.0, ceiling
    lower[nu], upper[nu] = (0.0, 0.0) if steps is None else steps
    costs = np.zeros(matrix.shape[1])
    costs[worst] = 1.0
    costs[plus] = costs[minus] = -l1
    row_lower, row_upper = _row_bounds(layout, mean)
    if keep_order:
        row_lower[layout.rows[5]], row_upper[layout.rows[5]] = _order_bounds(layout.margins, discounts)
    return LinearProgram(costs, matrix, row_lower, row_upper, lower, upper)


def _order_bounds(margins: Margins, discounts: Floats) -> tuple[Floats, Floats]:
    """Bounds on `ν_j − ν_i`; experts who act alike may overtake each other."""
    first, second = np.triu_indices(discounts.size, 1)
    gap = discounts[second] - discounts[first]
    alike = margins.alike
    gap[[(int(i), int(j)) in alike for i, j in zip(first, second, strict=True)]] = 0.0
    closing = -SHARE * gap
    return np.where(gap > 0, closing, -INFINITY), np.where(gap < 0, closing, INFINITY)


def _row_bounds(layout: Layout, mean: bool) -> tuple[Floats, Floats]:
    _, strict, _, floor, average, order = layout.rows
    lower, upper = np.zeros(layout.template.shape[0]), np.zeros(layout.template.shape[0])
    upper[strict] = INFINITY
    lower[floor], upper[floor] = -INFINITY, INFINITY
    lower[order], upper[order] = -INFINITY, INFINITY
    lower[average], upper[average] = (1.0, 1.0) if mean else (-INFINITY, INFINITY)
    return lower, upper
