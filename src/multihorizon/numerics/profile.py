"""The end of a profile interval: where the signed root of a deviance reaches its target.

Let `L(g)` be an objective maximised over all parameters but one, which is g. The signed root `r(g) = √(2 (L̂ − L(g)))` is nearly
linear in g, so its end is found by the secant rule. Each evaluation begins at the maximum of the nearest g that is still inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

S = TypeVar("S")


def profile_end(
    profile: Callable[[float, S], tuple[float, S] | None],
    start: S,
    value: float,
    step: float,
    target: float,
    bound: float,
    tol: float = 0.01,
    max_iter: int = 30,
    share: tuple[float, float] = (0.1, 0.9),
    growth: float = 4.0,
    longest: float = np.inf,
    same: float = 1e-6,
    part: float = 0.8,
    root: float = 0.0,
) -> tuple[float, S | None]:
    """Find where r reaches its target, and the maximum there; the bound where it stays below; NaN where the search fails.

    Args:
        profile: r at a value and the maximum there, begun at another maximum; infinite where the objective has no value, None
            where r cannot be had.
        start: the maximum over all parameters.
        value: where the one parameter is at it.
        step: the first step, with its sign.
        target: of r.
        bound: how far the parameter may go. A point just inside is tried last, because at the bound the maximum may be infinite.
        tol: how near r must come to its target.
        max_iter: the most evaluations.
        share: the least and the largest part of a step beyond the end that the next one is.
        growth: how much longer than the last a step may be.
        longest: the longest step.
        same: two values nearer than this are one.
        part: the largest part of the way to a point known to be outside that a step may go; inf where it may go beyond.
        root: r at the start, which is not 0 at a lower maximum than the highest.
    """
    sign = float(np.sign(step))
    size = abs(step)
    inside, nearest = value, start
    outside = bound - sign * min(1e-3, 0.1 * abs(bound - inside))
    crossed = False
    last = outside
    for _ in range(max_iter):
        trial = float(np.clip(inside + sign * size, min(inside, outside), max(inside, outside)))
        if abs(trial - inside) < same:
            return trial, nearest
        reached = profile(trial, nearest)
        if reached is None:
            return np.nan, None
        height, there = reached
        if abs(trial - last) <= same and height < target:
            return bound, there
        if abs(height - target) < tol:
            return trial, there
        moved = abs(trial - inside)
        if height < target:
            gap = abs(outside - trial) * (part if crossed else 1.0)
            wanted = moved * (target - height) / (height - root) if height > root else gap
            size = min(max(wanted, same), max(gap, same), growth * moved + 1e-3, longest)
            inside, root, nearest = trial, height, there
        else:
            size = float(np.clip((target - root) / (height - root), *share)) * moved
            if np.isfinite(part):
                outside = trial
                crossed = True
    for _ in range(60):
        if not np.isfinite(outside):
            break
        trial = 0.5 * (inside + outside) if crossed else outside
        reached = profile(trial, nearest)
        if reached is None:
            break
        height, there = reached
        if height < target and not crossed:
            return bound, there
        crossed = True
        if abs(height - target) < tol or abs(outside - inside) < same:
            return trial, there
        if height < target:
            inside, nearest = trial, there
        else:
            outside = trial
    return np.nan, None
