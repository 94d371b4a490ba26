"""Sparse programs on the margins, for fixed discounts and for discounts that move a little.

In the variables `(θ, x)` of `margins.py`, the worst margins t and steps ν of the discounts:

    max   Σ_g t_g − λ ‖θ‖₁
    s.t.  x_k − γ_k V_k(θ, x) − V̄_k ν_k = 0            the continuation, linearised at V̄ if the discounts may move
          margin_i(θ, x) − [i ∈ Ω] t_{g(i)} ≥ 0         strict rows
          margin_e(θ, x) = 0                             ties
          |θ| ≤ r_max,  t ≥ 0,  |ν_k| ≤ Δ
          γ_j + ν_j > γ_i + ν_i                         where γ_j > γ_i and i, j differ, if their order is to be kept

`t` is one number for MPLP (the worst margin over Ω) and one for each expert and state for the sum objectives of Ng and
Russell. The structure of the matrix is laid out once; a new Γ only rewrites its numbers, and HiGHS starts from a near basis.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.programs.highs import INFINITY, LinearProgram
from multihorizon.programs.margins import Margins

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
