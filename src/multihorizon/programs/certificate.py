"""A proof of how far the answer is from the global optimum: branch and bound over boxes of Γ.

**The bound on a box.** Expert k's margins are `w(γ) θ` with `w(γ) = A + D H(γ) F` and `H(γ) = γ (I − γP)^{-1} = Σ_n γ^{n+1} Pⁿ`,
which is entrywise non-negative, increasing and convex in γ, with derivative `H' = (I − γP)^{-2}`. On [l, h] with
`γ = (1−λ) l + λ h`:

    H(γ) = (1−λ) H(l) + λ H(h) − κ,        0 ≤ κ ≤ λ(1−λ)(h−l)(H'(h) − H'(l)) ≤ κ̄ = ¼ (h−l)(H'(h) − H'(l)),

the last because a convex function lies above its tangents at both ends. With `D = D⁺ − D⁻`, `F = F⁺ − F⁻` and `θ = θ⁺ − θ⁻`,

    w(γ) θ ≤ w(l)(θ − q_k) + w(h) q_k + B̄ θ⁺ + Ā θ⁻,      q_k = λ_k θ,
    Ā = D⁺κ̄F⁺ + D⁻κ̄F⁻,    B̄ = D⁺κ̄F⁻ + D⁻κ̄F⁺,

and the product `q_k = λ_k θ` is relaxed to its convex hull on |θ| ≤ r_max: `|q_k| ≤ λ_k r_max`, `|θ − q_k| ≤ (1−λ_k) r_max`.
What is left is one small dense linear program per box. Its optimum bounds the objective for every Γ in the box. (Narrowing the
ranges of θ box by box, two programs for each θ, was measured: fewer boxes, more time.)

**Branch and bound.** Boxes whose bound is within the gap of the answer are done; the others are split along the expert whose
relaxed product is farthest from exact. The bound proved is the largest over all boxes done and open, so it is valid whenever the
work stops. What is bounded is the worst margin over the rows of the answer's Ω, for every Γ in the box of discounts searched.
That is g*(Γ) wherever Ω(Γ) contains those rows. Where it does not, the paper's g* counts fewer rows and can be larger; such Γ are
excluded by Theorem 1 itself if each of those rows is the only one that distinguishes some pair (`covers_all`), as on the toy
domain.
"""

from __future__ import annotations

import heapq
import itertools
import time
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.numerics.lp import INFINITY, LinearProgram, LPStatus, solve_lp
from multihorizon.parallel import Progress, in_parallel, n_workers, silent
from multihorizon.programs.inner import POSITIVE_MARGIN, Inner, Optimum
from multihorizon.programs.margins import Margins


class Box(NamedTuple):
    """A box of Γ with its bound and the expert to split."""

    bound: float
    low: Floats
    high: Floats
    split: int


class RelaxedRows(NamedTuple):
    """Coefficients of θ⁺, θ⁻ and q in relaxed rows."""

    positive: Floats
    negative: Floats
    product: Floats


@dataclass(eq=False)
class Relaxation:
    """The bound for one problem; `required` are the strict rows whose worst margin is bounded.

    Everything here is dense in the number of states and meant for problems of up to a few hundred of them. The variables of the
    program are `θ⁺ θ⁻ | q_1 … q_K | λ | t`.
    """

    margins: Margins
    required: Bools
    l1: float
    bound: float
    _rows: dict[tuple[int, float], tuple[Floats, Floats, Floats]] = field(default_factory=dict)
    _basis: Any = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the cache and the basis, which each process makes for itself."""
        return {**self.__dict__, "_rows": {}, "_basis": None}

    def box(self, low: Floats, high: Floats, floor: float) -> Box:
        """An upper bound over the box and the expert whose discount is best split; `floor` if nothing in the box exceeds it."""
        program, owners = self._program(low, high)
        # The worst margin is at least the objective; asking for it lets HiGHS give up early on boxes that are done.
        program.lower[-1] = floor
        result = solve_lp(program, self._basis, ray=False)
        if result.status == LPStatus.INFEASIBLE:
            return Box(floor, low, high, 0)
        width, x = high - low, result.values
        if not result.optimal:
            return Box(INFINITY, low, high, int(np.argmax(width)))
        self._basis = result.basis
        # The expert to split is that of the row farthest from exact, in the relaxed product. Weighting rows by their duals was
        # slower by far: which rows are tight changes from box to box. Boxes are kept from becoming very thin, because an expert
        # whose product is exact here may be the one that matters after the next split.
        d, k = self.margins.n_parameters, self.margins.n_experts
        products, shares, error = slice(2 * d, (2 + k) * d), x[(2 + k) * d : (2 + k) * d + k], np.zeros(x.size)
        error[products] = x[products] - np.outer(shares, x[:d] - x[d : 2 * d]).ravel()
        rows = np.abs(program.matrix[: owners.size] @ error)
        worst = np.array([rows[owners == i].max(initial=0.0) for i in range(k)]) + 1e-9 * width
        return Box(result.objective, low, high, int(np.argmax(np.where(width >= width.max() / 8, worst, -1.0))))

    def _program(self, low: Floats, high: Floats) -> tuple[LinearProgram, Ints]:
        """The program of a box, and the expert of each of its margin rows."""
        d, k = self.margins.n_parameters, self.margins.n_experts
        blocks = []
        for i in range(k):
            rows = self.relaxed(i, float(low[i]), float(high[i]))
            required = self.required[self.margins.strict.expert == i]
            placed = np.zeros((len(rows.positive), (2 + k) * d + k + 1))
            placed[:, :d], placed[:, d : 2 * d], placed[:, (2 + i) * d : (3 + i) * d] = rows
            placed[: required.size, -1] = -1.0 * required
            blocks.append(placed)
        owners = np.repeat(np.arange(k), [len(block) for block in blocks])
        costs = np.zeros((2 + k) * d + k + 1)
        costs[: 2 * d], costs[-1] = -self.l1, 1.0
        hull, hull_lower = self._hull
        matrix = sp.csr_array(np.concatenate([*blocks, hull]))
        row_lower = np.concatenate([np.zeros(owners.size), hull_lower])
        lower, upper = np.zeros(matrix.shape[1]), np.full(matrix.shape[1], self.bound)
        lower[2 * d : (2 + k) * d], upper[2 * d : (2 + k) * d] = -INFINITY, INFINITY
        upper[(2 + k) * d : -1], upper[-1] = 1.0, INFINITY
        return LinearProgram(costs, matrix, row_lower, np.full(matrix.shape[0], INFINITY), lower, upper), owners

    def relaxed(self, i: int, low: float, high: float) -> RelaxedRows:
        """Expert i's strict rows, its ties and their negatives, bounded from above on [low, high]."""
        (one, *bends), (other, *ends) = self._at(i, low), self._at(i, high)
        same, opposite = ((high - low) / 4 * (b - a) for a, b in zip(bends, ends, strict=True))
        return RelaxedRows(one + opposite, same - one, other - one)

    def _at(self, i: int, gamma: float) -> tuple[Floats, Floats, Floats]:
        """Expert i's strict rows, ties and their negatives at γ: w(γ), `D⁺H'F⁺ + D⁻H'F⁻` and `D⁺H'F⁻ + D⁻H'F⁺`.

        They are kept: neighbouring boxes share their ends.
        """
        if (i, gamma) in self._rows:
            return self._rows[i, gamma]
        d, places = self.margins.n_parameters, np.flatnonzero(self.margins.owner == i)
        values = self.margins.values[places]
        factor = spla.splu(sp.csc_array(sp.eye_array(places.size) - gamma * values[:, d + places]))
        features = values[:, :d].toarray()
        positive, negative = (factor.solve(factor.solve(np.maximum(sign * features, 0.0))) for sign in (1.0, -1.0))
        strict, ties = (rows.matrix[np.flatnonzero(rows.expert == i)] for rows in (self.margins.strict, self.margins.ties))
        own = sp.vstack([strict, ties, -ties], format="csr")
        step = own[:, d + places].toarray()
        up, down = np.maximum(step, 0.0), np.maximum(-step, 0.0)
        margins = own[:, :d].toarray() + step @ (gamma * factor.solve(features))
        self._rows[i, gamma] = margins, up @ positive + down @ negative, up @ negative + down @ positive
        return self._rows[i, gamma]

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


@dataclass(frozen=True)
class Certificate:
    """The `upper` bound proved, the answer's `objective`, their relative `gap`, and the work it took.

    `proved` says whether the gap asked for was reached, `covers_all` whether the bound holds for every Γ or only for those
    whose Ω contains the answer's, `limits` the largest discounts searched.
    """

    upper: float
    objective: float
    gap: float
    target: float
    proved: bool
    covers_all: bool
    boxes: int
    open_boxes: int
    seconds: float
    limits: list[float]

    @property
    def message(self) -> str:
        """One sentence."""
        if not self.objective > -INFINITY:
            settled = "" if self.proved else " (not settled)"
            return f"no worst margin above {self.upper:.3g} exists, by {self.boxes} boxes{settled}"
        where = "" if self.covers_all else " wherever Ω contains the answer's"
        done = "proved" if self.proved else f"out of time with {self.open_boxes} boxes open"
        above = f"{100 * self.gap:.3g} % above the answer"
        return f"{done}: the optimum{where} is at most {self.upper:.6g}, {above} ({self.boxes} boxes)"


def bound_optimum(
    inner: Inner, point: Optimum, gap: float, seconds: float, jobs: int = 1, progress: Progress = silent
) -> Certificate:
    """Prove an upper bound on the worst margin over the point's Ω, to a relative `gap` if `seconds` allow it.

    For a point without a reward (g* = −inf) all rows are required and the target is a worst margin that counts as zero.
    """
    begun = time.perf_counter()
    margins, found = inner.margins, point.has_reward
    required = point.omega if found else inner.every
    relaxation = Relaxation(margins, required, inner.l1, inner.bound)
    target = max(point.objective * (1 + gap) if found else 0.0, POSITIVE_MARGIN * inner.bound)
    boxes = [relaxation.box(np.zeros(margins.n_experts), margins.limits, target)]
    deadline, settled, count, first = begun + seconds, -INFINITY, 1, boxes[0].bound
    short, workers = True, n_workers(jobs)
    while boxes and time.perf_counter() < deadline:
        # The first round is one process and short: many problems are done before a second process has started. Later rounds
        # last four seconds; then all open boxes are divided again.
        work = partial(_work, relaxation, target, min(1.0 if short else 4.0, deadline - time.perf_counter()))
        shares = [boxes] if short or workers == 1 else [boxes[i::workers] for i in range(min(workers, len(boxes)))]
        short = False
        results = [work(boxes)] if len(shares) == 1 else list(in_parallel(work, shares, jobs))
        settled = max([settled, *[result[0] for result in results]])
        boxes = sorted((box for result in results for box in result[1]), key=lambda box: -box.bound)
        count += sum(result[2] for result in results)
        worst = max(settled, boxes[0].bound if boxes else -INFINITY)
        done = max((first - worst) / max(first - target, 1e-300), (time.perf_counter() - begun) / seconds)
        progress(min(1.0, done) if boxes else 1.0, f"certificate: bound {worst:.6g}, {len(boxes)} of {count} boxes open")
    upper = max([settled, *[box.bound for box in boxes], *([point.objective] if found else [])])
    # A row that alone distinguishes a pair is in every Ω, by Theorem 1.
    forced = {int(rows[0]) for rows in margins.pairs.values() if rows.size == 1}
    return Certificate(
        upper=upper,
        objective=point.objective,
        gap=upper / point.objective - 1 if found and point.objective > 0 else INFINITY,
        target=gap,
        proved=not boxes,
        covers_all=forced.issuperset(np.flatnonzero(required).tolist()),
        boxes=count,
        open_boxes=len(boxes),
        seconds=time.perf_counter() - begun,
        limits=margins.limits.tolist(),
    )


def _work(relaxation: Relaxation, target: float, seconds: float, boxes: list[Box]) -> tuple[float, list[Box], int]:
    """Split the box with the largest bound until all are done or time is up."""
    numbers = itertools.count()
    heap = [(-box.bound, next(numbers), box) for box in boxes if box.bound > target]
    settled = max((box.bound for box in boxes if box.bound <= target), default=-INFINITY)
    heapq.heapify(heap)
    count, deadline = 0, time.perf_counter() + seconds
    while heap and time.perf_counter() < deadline:
        _, low, high, split = heapq.heappop(heap)[2]
        lower_high, upper_low = high.copy(), low.copy()
        lower_high[split] = upper_low[split] = (low[split] + high[split]) / 2
        for ends in ((low, lower_high), (upper_low, high)):
            box = relaxation.box(*ends, target)
            count += 1
            if box.bound > target:
                heapq.heappush(heap, (-box.bound, next(numbers), box))
            else:
                settled = max(settled, box.bound)
    return settled, [item[2] for item in heap], count
