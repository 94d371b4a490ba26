"""A budget shared out among candidates so that a concave function is largest, with a proof of how near the best it is.

Maximises F(w) over `{w : 0 ≤ w ≤ u, Σ w = 1}`. F is concave, so for every v in that set `F(v) ≤ F(w) + g·(v − w)` with g the
gradient at w. The largest `g·v` is found by filling the candidates with the largest gradients first. So

    gap(w) = max_v g·v − g·w

bounds what any other way of sharing could gain, whatever found w (the equivalence theorem of Kiefer and Wolfowitz, 1960). The gap
is given as a share of `max_v g·v`. For v with a budget that is smaller by that share, `g·v ≤ g·w`, so F(v) is no larger than
F(w). So no other way of sharing does as well with a budget that is smaller by more than the gap.

*The method* is Newton's with a logarithmic barrier, `F + μ Σ log w + μ Σ log(u − w)`. Steps stay inside. A step is halved until
the barrier's value rises. μ falls by a factor of five whenever the last step was short. The search ends when the gap is
below the tolerance. Where it ends without that, `finished` is False, and the gap that was reached still holds.

*Whole numbers.* `whole` rounds numbers of times down, then adds one at a time where the gradient per cost is largest, while the
budget lasts, and at last exchanges single ones as long as that raises F. It does the same from numbers rounded to the nearest,
those with the largest shares first, because a small budget may have no room later for what was rounded down. The better end
counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from multihorizon.checks import TINY, Floats, Ints
from multihorizon.parallel import Progress, silent


@dataclass(frozen=True, eq=False)
class Worth:
    """What shares are worth: F, its gradient `(J,)` and its curvature `(J,J)`, the Hessian with its sign changed."""

    value: float
    gradient: Floats
    curvature: Floats


@dataclass(frozen=True, eq=False)
class Allocation:
    """Shares w `(J,)` that sum to 1, F there, and the proved gap; whether the gap is below the tolerance."""

    weights: Floats
    value: float
    gap: float
    finished: bool
    steps: int


def filled(gains: Floats, most: Floats) -> Floats:
    """Return the shares `(J,)` with the largest `gains · v`: the best candidates are filled up first."""
    order = np.argsort(-gains, kind="stable")
    left = 1 - np.concatenate([[0.0], np.cumsum(most[order])[:-1]])
    shares = np.zeros(gains.size)
    shares[order] = np.clip(left, 0.0, most[order])
    return shares


def evenly(most: Floats, budget: float = 1.0, cost: Floats | float = 1.0) -> Floats:
    """Return equal numbers `(J,)`, except where a candidate may have only less, that cost the budget in all."""
    cost = np.broadcast_to(cost, most.shape)
    low = 0.0
    high = budget / float(cost.min())
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if float(cost @ np.minimum(most, middle)) < budget else (low, middle)
    numbers = np.minimum(most, high)
    equal: Floats = numbers * (budget / float(cost @ numbers))
    return equal


def allocate(
    f: Callable[[Floats], Worth | None], most: Floats, tolerance: float, start: Floats | None = None, progress: Progress = silent
) -> Allocation:
    """Find the best shares, to a gap below the tolerance.

    Args:
        f: F at shares `(J,)`, all above 0, which rises with every share; None where F is −∞.
        most: u `(J,)`; their sum is at least 1.
        tolerance: of the gap.
        start: where to begin; by default all have equal shares.
        progress: called with the progress of the gap.

    Raises:
        ValueError: where F is −∞ at the start.
    """
    most = np.minimum(most, 2.0)  # more than all is no limit
    if most.sum() <= 1 + 1e-9:  # there is one way
        here = f(most / most.sum())
        if here is None:
            raise ValueError("the function must be finite where all candidates share, got one that is not")
        return Allocation(most / most.sum(), here.value, 0.0, True, 0)
    inside = evenly(0.999 * most) if most.sum() > 1.002 else evenly(most * (0.5 + 0.5 / most.sum()))
    w = inside if start is None else 0.9 * np.clip(start, 0.0, most) / np.clip(start, 0.0, most).sum() + 0.1 * inside
    here = f(w)
    if here is None:
        raise ValueError("the function must be finite where all candidates share, got one that is not")
    scale = max(float(here.gradient @ w), TINY)
    mu = 0.1 * scale / w.size
    best = None
    first = None

    def height(value: float, at: Floats) -> float:
        return value + mu * float(np.log(at).sum() + np.log(most - at).sum())

    for step in range(400):
        reach = float(here.gradient @ filled(here.gradient, most))
        gap = (reach - float(here.gradient @ w)) / max(reach, TINY)
        first = gap if first is None else first
        if best is None or gap < best.gap:
            best = Allocation(w, here.value, max(gap, 0.0), gap <= tolerance, step)
        if best.finished:
            return best
        progress(1 - np.log(max(best.gap, tolerance) / tolerance) / np.log(max(first / tolerance, 2.0)), "sharing out the budget")
        slope = here.gradient + mu * (1 / w - 1 / (most - w))
        metric = here.curvature + np.diag(mu * (1 / w**2 + 1 / (most - w) ** 2))
        unit = 1 / np.sqrt(np.diag(metric))
        factor = np.linalg.cholesky(metric * np.outer(unit, unit) + 1e-13 * np.eye(w.size))
        solved = np.linalg.solve(factor.T, np.linalg.solve(factor, unit[:, None] * np.column_stack([slope, np.ones(w.size)])))
        along, level = (unit[:, None] * solved).T
        move = along - level * (along.sum() / level.sum())
        with np.errstate(divide="ignore"):
            room = np.where(move < 0, -w / move, np.where(move > 0, (most - w) / move, np.inf)).min()
        length = min(1.0, 0.95 * room)
        while length > 1e-10:
            there = w + length * move
            worth = f(there)
            if worth is not None and height(worth.value, there) >= height(here.value, w) - 1e-12 * abs(here.value):
                w, here = there, worth
                break
            length *= 0.5
        if length <= 1e-10 or float(move @ slope) <= 0.05 * mu * w.size:  # near enough to the middle for this μ
            mu *= 0.2
            if mu < 1e-12 * scale:
                break
    assert best is not None
    return best


def whole(f: Callable[[Floats], Worth | None], numbers: Floats, cost: Floats, most: Floats, budget: float) -> Ints:
    """Round to whole numbers of times `(J,)` near `numbers`, whose cost is at most the budget.

    Args:
        f: F at numbers of times `(J,)`, some of which may be 0; None where F is −∞.
        numbers: the best numbers, of which the budget is the cost.
        cost: of each candidate once, at most the budget.
        most: how often each may be used.
        budget: what all may cost.
    """
    most = np.floor(most + 1e-9)
    slack = 1e-9 * budget

    def added(times: Floats) -> tuple[Floats, Worth | None]:
        """Add one at a time where the gradient per cost is largest, as long as the budget has room."""
        times, here = times.copy(), f(times)
        while (open_ := (times < most) & (cost <= budget - cost @ times + slack)).any():
            # Before anything is finite, what the best numbers have most of comes first.
            gains = (numbers - times) * cost if here is None else here.gradient / cost
            times[int(np.argmax(np.where(open_, gains, -np.inf)))] += 1
            here = f(times)
        return times, here

    def exchanged(times: Floats, here: Worth | None) -> tuple[Floats, Worth | None]:
        """Exchange single ones as long as that raises F."""
        for _ in range(200 if here is not None else 0):
            assert here is not None
            loss = np.where(times > 0, here.gradient, np.inf)
            better = None
            for out in np.argsort(loss)[: min(3, int((times > 0).sum()))]:
                fewer = times.copy()
                fewer[out] -= 1
                fits = (times < most) & (cost <= budget - cost @ fewer + slack) & (here.gradient > loss[out])
                fits[out] = False
                if not fits.any():
                    continue
                fewer[int(np.argmax(np.where(fits, here.gradient, -np.inf)))] += 1
                tried, worth = added(fewer)
                if worth is not None and worth.value > here.value + 1e-12 * abs(here.value):
                    better = tried, worth
                    break
            if better is None:
                break
            times, here = better
        return times, here

    starts = [np.minimum(np.floor(numbers * (1 + 1e-9)), most), np.zeros(numbers.size)]
    left = budget
    for j in np.argsort(-numbers * cost, kind="stable"):  # the largest shares first, to the nearest whole number
        starts[1][j] = min(float(np.rint(numbers[j])), float(most[j]), np.floor((left + slack) / cost[j]))
        left -= starts[1][j] * float(cost[j])
    ends = [exchanged(*added(start)) for start in starts]
    best = max(ends, key=lambda end: -np.inf if end[1] is None else end[1].value)
    return best[0].astype(np.int64)
