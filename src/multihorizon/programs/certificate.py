"""A proof of how far the answer is from the global optimum: branch and bound over boxes of Γ.

**The bound on a box.** In the variables of `margins.py` all is linear but `x_k = γ_k V_k`. Let `γ_k = (1−λ_k) l_k + λ_k h_k`, and
multiply all that is known of expert k by `1 − λ_k` and by `λ_k`. With t the worst margin, `(θ₀, x₀, t₀) = (1−λ)(θ, x, t)`,
`(θ₁, x₁, t₁) = λ(θ, x, t)` and `V_n = F θ_n + P x_n`, each expert has

    x₀ = l V₀ + f,    x₁ = h V₁ − f,    f = λ(1−λ)(h−l) V,
    margin_i(θ_n, x_n) ≥ t_n,    |θ₀| ≤ (1−λ) r_max,    |θ₁| ≤ λ r_max,    0 ≤ t₀ ≤ (1−λ) t̄,    0 ≤ t₁ ≤ λ t̄,

and the parts add up to the one θ and t of all experts. This is exact. It is a linear program once f may be any vector with
`|f| ≤ ¼ (h−l) V̄`, where `V̄ = (I − hP)^{-1} |F| r_max` bounds |V|, and t̄ is the bound of the box that this one was cut from. Lost
are f, and that the parts of θ are in proportion: in the program, each expert may see one reward at one end and another at the
other, if they add up. The margins themselves are exact at both ends. The program is as sparse as the transitions, and θ = 0 is
always in it. (Also measured: the margins as polynomials in γ, which is dense and needs more boxes; powers of λ above the first,
which change little; the products of each expert's margins with the λ of others, a third fewer boxes at four times the cost.)

The bound proved is not the optimum that HiGHS reports, but the dual objective of its prices, computed anew: `dual_bound` holds
whatever the tolerances of HiGHS.

**Branch and bound.** A box whose bound is within the gap of the answer is done. Another is split along the expert whose margins,
at the relaxed answer's own θ and γ, fall farthest short of its t, and halfway between the middle of the box and that γ. What is
found in a box depends on nothing but the box and the one it was cut from, so a proof that ends is the same for any number of
processes. After the first boxes g* is evaluated at the relaxed Γ of each open one: a search can have missed the highest local
maximum, and these boxes point to it. The bound proved is the largest over all boxes done and open, so it is valid whenever the
work stops.
What is bounded is the worst margin over the rows of the answer's Ω, for every Γ in the box of discounts searched.
That is g*(Γ) wherever Ω(Γ) contains those rows. Where it does not, the paper's g* counts fewer rows and can be larger; such Γ are
excluded by Theorem 1 itself if each of those rows is the only one that distinguishes some pair (`covers_all`), as on the toy
domain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.numerics.boxes import branch_and_bound
from multihorizon.numerics.lp import INFINITY, LinearProgram, dual_bound, solve_for_duals
from multihorizon.parallel import Progress, in_parallel, n_workers, silent
from multihorizon.programs.inner import POSITIVE_MARGIN, Inner, Optimum, slices
from multihorizon.programs.margins import Margins
from multihorizon.programs.search import ROUGH, LocalMaximum, Optimiser, ProgramLog
from multihorizon.words import significant


class Box(NamedTuple):
    """A box of Γ with its bound, the relaxed answer's Γ, the expert to split, and the basis for the boxes cut from it."""

    bound: float
    low: Floats
    high: Floats
    relaxed: Floats
    split: int = 0
    basis: Any = None


class BoxColumns(NamedTuple):
    """The slices of the variables: θ⁺, θ⁻, each expert's θ₁, the continuations x₀ and x₁, λ, each expert's t₁, and t."""

    positive: slice
    negative: slice
    share: slice
    first: slice
    second: slice
    place: slice
    part: slice
    worst: slice


class Entries(NamedTuple):
    """The matrix of a box: its structure, the entries constant, times −l, times −h and times t̄, and whose l and h they take."""

    structure: Any
    constant: Floats
    low: Floats
    high: Floats
    largest: Floats
    expert: Ints


@dataclass(eq=False)
class Relaxation:
    """The bound for one problem with r_max = 1; `required` are the strict rows whose worst margin is bounded."""

    margins: Margins
    required: Bools
    l1: float

    def box(self, low: Floats, high: Floats, ceiling: float, enough: float, basis: Any = None) -> Box:
        """Bound the objective over the box, by at most `ceiling`, and choose where to split unless the bound is `enough`."""
        margins, columns = self.margins, self.columns
        program = self.program(low, high, ceiling)
        result = solve_for_duals(program, basis)
        # Dual prices that are not numbers prove nothing.
        bound = float(np.fmin(dual_bound(program, result.duals), ceiling))
        if bound <= enough:
            return Box(bound, low, high, low)
        x = np.nan_to_num(result.values)
        width = high - low
        place = np.clip(x[columns.place], 0.0, 1.0)
        point = margins.continuation(x[columns.positive] - x[columns.negative], low + place * width)
        short = self.required * x[columns.worst] - margins.strict.matrix @ point
        worst = 1e-9 * width
        np.maximum.at(worst, margins.strict.expert, short)
        np.maximum.at(worst, margins.ties.expert, np.abs(margins.ties.matrix @ point))
        # Boxes are kept from becoming very thin: an expert who falls short of nothing here may be the one that matters next.
        split = int(np.argmax(np.where(width >= width.max() / 8, worst, -1.0)))
        return Box(bound, low, high, low + place * width, split, result.basis if result.optimal else None)

    def program(self, low: Floats, high: Floats, ceiling: float) -> LinearProgram:
        """Build the program of a box in which the objective is at most `ceiling`."""
        margins, columns, entries, owner = self.margins, self.columns, self._entries, self.margins.owner
        d = margins.n_parameters
        k = margins.n_experts
        m = len(margins.strict)
        ties = np.zeros(2 * len(margins.ties))
        # V̄, a little more to be above the rounding of the solve; and t̄. The objective is t − l1 ‖θ‖₁.
        system = sp.eye_array(owner.size) - sp.diags_array(high[owner]) @ margins.values[:, d:]
        values = (1 + 1e-9) * spla.spsolve(sp.csc_array(system), abs(margins.values[:, :d]).sum(axis=1))
        margin = abs(margins.strict.matrix) @ np.concatenate([np.ones(d), high[owner] * values])
        largest = min(ceiling + self.l1 * d, float(margin.max(initial=0.0)))
        moving = entries.low * low[entries.expert] + entries.high * high[entries.expert]
        data = entries.constant - moving + entries.largest * largest
        matrix = sp.csr_array((data, entries.structure.indices, entries.structure.indptr), shape=entries.structure.shape)
        bend = (high - low)[owner] * values / 4
        sides = np.concatenate([np.repeat([0.0, -1.0], 2 * k * d), np.repeat([0.0, 0.0, -largest], k)])
        row_lower = np.concatenate([-bend, np.zeros(owner.size), ties, np.zeros(2 * m), sides])
        row_upper = np.concatenate([bend, np.zeros(owner.size), ties, np.full(2 * m + sides.size, INFINITY)])
        lower, upper, costs = np.zeros(matrix.shape[1]), np.ones(matrix.shape[1]), np.zeros(matrix.shape[1])
        # Without an l1 cost θ⁺ alone takes both signs.
        lower[columns.positive], upper[columns.negative] = (0.0, 1.0) if self.l1 > 0 else (-1.0, 0.0)
        lower[columns.share] = -1.0
        for continuation in (columns.first, columns.second):
            lower[continuation] = -high[owner] * values
            upper[continuation] = high[owner] * values
        upper[columns.part] = upper[columns.worst] = largest
        costs[columns.positive] = costs[columns.negative] = -self.l1
        costs[columns.worst] = 1.0
        return LinearProgram(costs, matrix, row_lower, row_upper, lower, upper)

    @property
    def size(self) -> int:
        """The number of entries in a box's program."""
        return int(self._entries.structure.nnz)

    @cached_property
    def columns(self) -> BoxColumns:
        """The places of the variables."""
        d, k, n = self.margins.n_parameters, self.margins.n_experts, self.margins.owner.size
        return BoxColumns(*slices(d, d, k * d, n, n, k, k, 1))

    @cached_property
    def _entries(self) -> Entries:
        margins, owner = self.margins, self.margins.owner
        d, k, n = margins.n_parameters, margins.n_experts, owner.size

        def placed(size: int, theta: Any = None, **blocks: Any) -> Any:
            """Put blocks into their columns of new rows; θ is θ⁺ − θ⁻."""
            if theta is not None:
                blocks |= {"positive": theta, "negative": -theta}
            widths = {name: where.stop - where.start for name, where in self.columns._asdict().items()}
            return sp.hstack([blocks.get(name, sp.csr_array((size, width))) for name, width in widths.items()], format="csr")

        def by_expert(rows: Any, expert: Ints) -> Any:
            """Rewrite rows on θ as rows on the θ₁ of the row's expert."""
            entries = sp.coo_array(rows)
            return sp.csr_array((entries.data, (entries.row, expert[entries.row] * d + entries.col)), shape=(expert.size, k * d))

        ends = []
        for rows, required in ((margins.ties, np.zeros(len(margins.ties))), (margins.strict, 1.0 * self.required)):
            theta = rows.matrix[:, :d]
            x = rows.matrix[:, d:]
            m = len(rows)
            share = by_expert(theta, rows.expert)
            part = sp.csr_array(required[:, None] * np.eye(k)[rows.expert])
            ends += [
                placed(m, theta, share=-share, first=x, part=part, worst=sp.csr_array(-required[:, None])),
                placed(m, share=share, second=x, part=-part),
            ]
        one = sp.eye_array(n)
        each = sp.eye_array(k * d)
        of_each = sp.kron(sp.eye_array(k), np.ones((d, 1)))
        whole = sp.kron(np.ones((k, 1)), sp.eye_array(d))
        expert = sp.eye_array(k)
        all_of = sp.csr_array(np.ones((k, 1)))
        constant = sp.vstack(
            [
                placed(n, first=one),
                placed(n, first=one, second=one),
                *ends,
                *(placed(k * d, share=sign * each, place=of_each) for sign in (1, -1)),
                *(placed(k * d, sign * whole, share=-sign * each, place=-of_each) for sign in (1, -1)),
                placed(k, part=-expert, worst=all_of),
                placed(k, part=-expert),
                placed(k, part=expert, worst=-all_of),
            ],
            format="csr",
        )
        theta = margins.values[:, :d]
        x = margins.values[:, d:]
        share = by_expert(theta, owner)
        v_0 = placed(n, theta, share=-share, first=x)
        v_1 = placed(n, share=share, second=x)
        rest = constant.shape[0] - 2 * n
        low = sp.vstack([v_0, v_0, placed(rest)], format="csr")
        high = sp.vstack([placed(n), v_1, placed(rest)], format="csr")
        largest = sp.vstack([placed(constant.shape[0] - 2 * k), placed(k, place=expert), placed(k, place=-expert)], format="csr")
        # All on the union of their structures.
        union = sp.csr_array(abs(constant) + abs(low) + abs(high) + abs(largest))
        row_of = np.repeat(np.arange(union.shape[0]), np.diff(union.indptr))
        parts = (constant, low, high, largest)
        fixed, of_low, of_high, of_largest = (np.asarray(part[row_of, union.indices]).ravel() for part in parts)
        return Entries(union, fixed, of_low, of_high, of_largest, owner[np.minimum(row_of, 2 * n - 1) % n])


@dataclass(frozen=True)
class Certificate:
    """The `upper` bound proved, the answer's `objective`, their relative `gap`, and the work it took.

    `proved` says whether the gap asked for was reached or, without an answer, that there is none. `covers_all` says whether the
    bound holds for every Γ or only for those whose Ω contains the answer's. `limits` are the largest discounts searched.
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
        """The certificate in one sentence."""
        if not self.objective > -INFINITY:
            if self.proved:
                return f"proved: no reward distinguishes all experts at any discounts ({self.boxes} boxes)"
            return f"not proved that there is none at others ({self.boxes} boxes, {self.open_boxes} open)"
        where = "" if self.covers_all else " wherever Ω contains the answer's"
        done = "proved" if self.proved else f"not proved, stopped with {self.open_boxes} boxes open"
        above = f"{significant(100 * self.gap)} % above the answer"
        return f"{done}: the optimum{where} is at most {significant(self.upper, 6)}, {above} ({self.boxes} boxes)"


def cheap_boxes(inner: Inner) -> int:
    """Return how many boxes take about as long as the search: not a time, so that the same problem gets the same answer."""
    every = np.ones(len(inner.margins.strict), dtype=bool)
    return min(256, int(2e6 / Relaxation(inner.margins, every, inner.l1).size))


def bound_optimum(
    inner: Inner,
    point: Optimum,
    gap: float,
    seconds: float,
    jobs: int = 1,
    progress: Progress = silent,
    most: float = INFINITY,
) -> tuple[Certificate, LocalMaximum | None]:
    """Prove an upper bound on the worst margin over the point's Ω, to a relative `gap` if `seconds` and `most` boxes allow it.

    Where the proof finds an answer that is better by more than the gap, a search from there gives the answer to return and bound.
    """
    if not point.has_reward:
        return _bound_nothing(inner, gap, seconds, most), None
    begun = time.perf_counter()
    margins, required = inner.margins, point.omega
    relaxation = Relaxation(margins, required, inner.l1)
    target = max(point.objective / inner.bound * (1 + gap), POSITIVE_MARGIN)
    boxes = [relaxation.box(np.zeros(margins.n_experts), margins.limits, INFINITY, target)]
    deadline = begun + seconds
    settled = -INFINITY
    count = 1
    first = boxes[0].bound
    asked = False
    workers = n_workers(jobs)
    while boxes and time.perf_counter() < deadline and count < most:
        # The first boxes are for one process: many problems are done before a second process has started. Later rounds last
        # four seconds; then all open boxes are divided again.
        begins = count < 64 or most < INFINITY
        left = deadline - time.perf_counter()
        work = partial(_work, relaxation, target, 8 if begins else INFINITY, left if begins else min(4.0, left))
        shares = [boxes] if begins or workers == 1 else [boxes[i::workers] for i in range(min(workers, len(boxes)))]
        results = [work(boxes)] if len(shares) == 1 else list(in_parallel(work, shares, jobs))
        settled = max([settled, *[result[0] for result in results]])
        boxes = sorted((box for result in results for box in result[1]), key=lambda box: -box.bound)
        count += sum(result[2] for result in results)
        worst = max(settled, boxes[0].bound if boxes else -INFINITY)
        done = max((first - worst) / max(first - target, 1e-300), (time.perf_counter() - begun) / seconds)
        message = f"certificate: bound {significant(inner.bound * worst, 6)}, {len(boxes)} of {count} boxes open"
        progress(min(1.0, done) if boxes else 1.0, message)
        # Only now: later rounds end by the clock, and what is found must not depend on it.
        if boxes and not asked and count >= min(64, most):
            asked = True
            better = _higher(inner, required, boxes, target * inner.bound)
            if better is not None:
                left = deadline - time.perf_counter()
                proof, best = bound_optimum(inner, better.point, gap, left, jobs, progress, most)
                return proof, best or better
    upper = max(inner.bound * max([settled, *[box.bound for box in boxes]]), point.objective)
    # A row that alone distinguishes a pair is in every Ω, by Theorem 1.
    forced = {int(rows[0]) for rows in margins.pairs.values() if rows.size == 1}
    proof = Certificate(
        upper=upper,
        objective=point.objective,
        gap=upper / point.objective - 1 if point.objective > 0 else INFINITY,
        target=gap,
        proved=not boxes,
        covers_all=forced.issuperset(np.flatnonzero(required).tolist()),
        boxes=count,
        open_boxes=len(boxes),
        seconds=time.perf_counter() - begun,
        limits=margins.limits.tolist(),
    )
    return proof, None


def _higher(inner: Inner, required: Bools, boxes: list[Box], target: float) -> LocalMaximum | None:
    """Find an answer above the target from the relaxed answers of open boxes, by ascents from the best few of them.

    g* over fewer rows is not comparable.
    """
    points = [inner.at(box.relaxed, over_all=bool(required.all())) for box in boxes]
    points = sorted((at for at in points if at.has_reward and at.omega[required].all()), key=lambda at: -at.objective)
    rough = [ROUGH.ascend(inner, ProgramLog(), at, rival=target).point for at in points[:4]]
    above = [at for at in rough if at.objective > target and at.omega[required].all()]
    return Optimiser(1e-9, 200).ascend(inner, ProgramLog(), max(above, key=lambda at: at.objective)) if above else None


def _bound_nothing(inner: Inner, gap: float, seconds: float, most: float = INFINITY) -> Certificate:
    """Prove that there is no answer: two experts whom no reward distinguishes, whatever the discounts.

    A reward distinguishes two experts if it makes one of the actions in which they differ strictly better and no chosen action
    worse. So each of these rows by itself is bounded, as far as time allows; one pair with no margin above zero is enough.
    """
    begun = time.perf_counter()
    margins = inner.margins
    count = 0
    boxes = list[Box]()
    upper = INFINITY
    for rows in sorted(margins.pairs.values(), key=lambda rows: rows.size):
        boxes = []
        settled = 0.0
        for row in rows:
            relaxation = Relaxation(margins, np.arange(len(margins.strict)) == row, 0.0)
            first = relaxation.box(np.zeros(margins.n_experts), margins.limits, INFINITY, POSITIVE_MARGIN)
            left = begun + seconds - time.perf_counter()
            largest, boxes, done = _work(relaxation, POSITIVE_MARGIN, most - count, left, [first])
            settled = max(settled, largest)
            count = count + 1 + done
            if boxes:
                break
        if not boxes:
            upper = inner.bound * settled
            break
    return Certificate(
        upper=upper,
        objective=-INFINITY,
        gap=INFINITY,
        target=gap,
        proved=not boxes and bool(margins.pairs),
        covers_all=True,
        boxes=count,
        open_boxes=len(boxes),
        seconds=time.perf_counter() - begun,
        limits=margins.limits.tolist(),
    )


def _work(relaxation: Relaxation, target: float, most: float, seconds: float, boxes: list[Box]) -> tuple[float, list[Box], int]:
    """Cut boxes above the target until none is left, `most` more are made, or time is up.

    Returns the largest bound of the boxes that are done, the boxes that are open, and how many were made.
    """
    settled = max((box.bound for box in boxes if box.bound <= target), default=-INFINITY)

    def halves(box: Box) -> Iterator[Box | None]:
        nonlocal settled
        bound, low, high, relaxed, split, basis = box
        lower_high, upper_low = high.copy(), low.copy()
        lower_high[split] = upper_low[split] = ((low + high) / 2 + relaxed)[split] / 2
        for ends in ((low, lower_high), (upper_low, high)):
            half = relaxation.box(*ends, bound, target, basis)
            if half.bound <= target:
                settled = max(settled, half.bound)
            yield half if half.bound > target else None

    above = [box for box in boxes if box.bound > target]
    open_boxes, count = branch_and_bound(above, attrgetter("bound"), halves, lambda: target, most, seconds)
    return settled, open_boxes, count
