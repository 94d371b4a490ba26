"""A proof of how far the answer is from the global optimum: branch and bound over boxes of Γ.

Each box has the upper bound of `relaxation.py`. Boxes whose bound is within the gap of the answer are done; the others are split
along the expert whose relaxed product is farthest from exact. The bound proved is the largest over all boxes done and open, so
it is valid whenever the work stops.

What is bounded is the worst margin over the rows of the answer's Ω, for every Γ in the box of discounts searched. That is g*(Γ)
wherever Ω(Γ) contains those rows. Where it does not, the paper's g* counts fewer rows and can be larger; such Γ are excluded by
Theorem 1 itself if each of those rows is the only one that tells some pair apart (`covers_all`), as on the toy domain.
"""

from __future__ import annotations

import heapq
import itertools
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from multihorizon.checks import Floats
from multihorizon.parallel import in_parallel, n_workers
from multihorizon.programs.highs import INFINITY
from multihorizon.programs.inner import POSITIVE_MARGIN, Evaluation, Inner
from multihorizon.programs.margins import Margins
from multihorizon.programs.relaxation import Relaxation
from multihorizon.progress import Progress, silent

#: Seconds a process works on its boxes before all open boxes are divided again.
ROUND_SECONDS = 4.0


@dataclass(frozen=True, eq=False)
class Box:
    """A box of Γ with its bound and the expert to split."""

    bound: float
    low: Floats
    high: Floats
    split: int


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
    limits: tuple[float, ...]

    @property
    def message(self) -> str:
        """One sentence."""
        if not self.objective > -INFINITY:
            return f"no worst margin above {self.upper:.3g} exists, by {self.boxes} boxes" + (
                "" if self.proved else " (not settled)"
            )
        where = "" if self.covers_all else " wherever Ω contains the answer's"
        done = "proved" if self.proved else f"out of time with {self.open_boxes} boxes open"
        above = f"{100 * self.gap:.3g} % above the answer"
        return f"{done}: the optimum{where} is at most {self.upper:.6g}, {above} ({self.boxes} boxes)"

    def as_evidence(self) -> dict[str, Any]:
        """Plain numbers for `Solution.evidence`."""
        return {**asdict(self), "limits": list(self.limits)}


def bound_optimum(
    inner: Inner, point: Evaluation, gap: float, seconds: float, jobs: int = -1, progress: Progress = silent
) -> Certificate:
    """Prove an upper bound on the worst margin over the point's Ω, to a relative `gap` if `seconds` allow it.

    For a point without a reward (g* = −inf) all rows are required and the target is a worst margin that counts as zero.
    """
    begun = time.perf_counter()
    margins = inner.margins
    found = point.has_reward
    required = point.omega if found else inner.every
    relaxation = Relaxation(margins, required, inner.l1, inner.bound)
    target = max(point.objective * (1 + gap) if found else 0.0, POSITIVE_MARGIN * inner.bound)
    settled, boxes, count = _branch(relaxation, target, begun + seconds, jobs, progress)
    upper = max([settled, *[box.bound for box in boxes], *([point.objective] if found else [])])
    return Certificate(
        upper=upper,
        objective=point.objective,
        gap=upper / point.objective - 1 if found and point.objective > 0 else INFINITY,
        target=gap,
        proved=not boxes,
        covers_all=_covers_all(margins, required),
        boxes=count,
        open_boxes=len(boxes),
        seconds=time.perf_counter() - begun,
        limits=tuple(margins.limits.tolist()),
    )


def _branch(
    relaxation: Relaxation, target: float, deadline: float, jobs: int, progress: Progress
) -> tuple[float, list[Box], int]:
    """Rounds of work on the open boxes: the largest bound of the boxes done, the boxes left open, and the count of all."""
    limits = relaxation.margins.limits
    boxes = [_bounded(relaxation, np.zeros(limits.size), limits, target)]
    begun, settled, count, first = time.perf_counter(), -INFINITY, 1, boxes[0].bound
    short, workers = True, n_workers(jobs)
    while boxes and time.perf_counter() < deadline:
        # The first round is one process and short: many problems are done before a second process has started.
        seconds = min(1.0 if short else ROUND_SECONDS, deadline - time.perf_counter())
        shares = [boxes] if short or workers == 1 else [boxes[i::workers] for i in range(min(workers, len(boxes)))]
        short = False
        if len(shares) == 1:
            results = [_work(relaxation, target, seconds, shares[0])]
        else:
            results = list(in_parallel(partial(_work, relaxation, target, seconds), shares, jobs))
        settled = max([settled, *[result[0] for result in results]])
        boxes = sorted((box for result in results for box in result[1]), key=lambda box: -box.bound)
        count += sum(result[2] for result in results)
        worst = max(settled, boxes[0].bound if boxes else -INFINITY)
        done = max((first - worst) / max(first - target, 1e-300), (time.perf_counter() - begun) / (deadline - begun))
        progress(min(1.0, done) if boxes else 1.0, f"certificate: bound {worst:.6g}, {len(boxes)} of {count} boxes open")
    return settled, boxes, count


def _work(relaxation: Relaxation, target: float, seconds: float, boxes: list[Box]) -> tuple[float, list[Box], int]:
    """Split the box with the largest bound until all are done or time is up."""
    numbers = itertools.count()
    heap = [(-box.bound, next(numbers), box) for box in boxes if box.bound > target]
    settled = max((box.bound for box in boxes if box.bound <= target), default=-INFINITY)
    heapq.heapify(heap)
    count, deadline = 0, time.perf_counter() + seconds
    while heap and time.perf_counter() < deadline:
        parent = heapq.heappop(heap)[2]
        middle = (parent.low[parent.split] + parent.high[parent.split]) / 2
        for start, end in ((parent.low[parent.split], middle), (middle, parent.high[parent.split])):
            low, high = _replaced(parent.low, parent.split, start), _replaced(parent.high, parent.split, end)
            box = _bounded(relaxation, low, high, target)
            count += 1
            if box.bound > target:
                heapq.heappush(heap, (-box.bound, next(numbers), box))
            else:
                settled = max(settled, box.bound)
    return settled, [item[2] for item in heap], count


def _bounded(relaxation: Relaxation, low: Floats, high: Floats, target: float) -> Box:
    bound, split = relaxation.box(low, high, target)
    return Box(bound, low, high, split)


def _replaced(values: Floats, place: int, value: float) -> Floats:
    array = values.copy()
    array[place] = value
    return array


def _covers_all(margins: Margins, required: Any) -> bool:
    """Whether each required row is the only one that tells some pair apart, so that Theorem 1 puts it in every Ω."""
    forced = {int(rows[0]) for rows in margins.pairs.values() if rows.size == 1}
    return all(int(i) in forced for i in np.flatnonzero(required))
