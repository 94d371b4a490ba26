"""Branch and bound: what is open is cut into boxes, the one with the largest bound first.

A box stands for a part of what is searched, and its bound says how good an answer in it may be at most. The box with the largest
bound is cut into smaller ones until no bound is above what is enough, or until the work allowed is done. Together the boxes that
are left cover everything, so the largest of their bounds holds whenever the work stops (Land and Doig 1960).
"""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable, Iterable
from math import inf
from typing import TypeVar

B = TypeVar("B")


def branch_and_bound(
    boxes: Iterable[B],
    bound: Callable[[B], float],
    cut: Callable[[B], Iterable[B | None]],
    enough: Callable[[], float],
    most: float = inf,
    seconds: float = inf,
) -> tuple[list[B], int]:
    """Cut boxes until all bounds are at most `enough()`; return the boxes that are left, the largest bound first.

    The second value returned is the number of boxes that were made.

    Args:
        boxes: what is open at the start.
        bound: the bound of a box; it may fall while others are cut.
        cut: the boxes that take the place of one; None for each that needs no further look.
        enough: a bound that is good enough; it may rise while boxes are cut.
        most: how many boxes may be made.
        seconds: how long it may take.
    """
    numbers, deadline, made = itertools.count(), time.perf_counter() + seconds, 0
    heap = [(-bound(box), next(numbers), box) for box in boxes]
    heapq.heapify(heap)
    while heap and made < most and time.perf_counter() < deadline:
        _, number, box = heapq.heappop(heap)
        now = bound(box)
        if heap and -now > heap[0][0]:  # the bound has fallen, and another box comes first
            heapq.heappush(heap, (-now, number, box))
            continue
        if now <= enough():
            heapq.heappush(heap, (-now, number, box))
            break
        for part in cut(box):
            made += 1
            if part is not None:
                heapq.heappush(heap, (-bound(part), next(numbers), part))
    return [item[2] for item in sorted(heap, key=lambda item: item[:2])], made
