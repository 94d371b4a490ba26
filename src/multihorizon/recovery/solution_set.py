"""Curves and surfaces of discounts that explain the experts equally well.

Where the Jacobian of ρ(Γ) (`variable_projection`) has a null space of dimension n at a solution, the solutions near it form a set
of that dimension. Its extent in one discount is found by walking: step along the tangent that raises (or lowers) that discount
most without leaving the box, return to the set by Gauss–Newton steps of least norm, and halve the step when the return fails or
gains nothing. The walk ends at the box or where the tangent no longer moves the discount. Every point on the way is a solution,
so a range found is attained; it is the whole range of the set's connected pieces in which a start lay unless the set turns back
on itself, which is why walks start from several points.
"""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.recovery.variable_projection import Form, Point, minimise

#: A gap below this share of the equations' size is rounding.
SOLVED = 1e-12
LONGEST_STEP = 0.1
SHORTEST_STEP = 1e-6
MAX_STEPS = 200


def walk(form: Form, start: Point, expert: int, sign: float, dimension: int, largest_gap: float) -> list[Point]:
    """Points of the set from `start` on, in the direction that raises (sign 1) or lowers (−1) one expert's discount."""
    points, step = [start], LONGEST_STEP
    for _ in range(MAX_STEPS):
        here = points[-1]
        direction = _ascent(here, expert, sign, dimension)
        if direction is None or step < SHORTEST_STEP:
            break
        trial = minimise(form, here.discounts + step * direction)
        if trial.gap <= largest_gap and sign * (trial.discounts - here.discounts)[expert] > 0.05 * step * abs(direction[expert]):
            points.append(trial)
            step = min(1.5 * step, LONGEST_STEP)
        else:
            step /= 2
    return points


def _ascent(point: Point, expert: int, sign: float, dimension: int) -> Floats | None:
    """The unit tangent that moves one discount most, with the discounts that the box holds back kept still."""
    size = point.discounts.size
    tangent = np.linalg.svd(point.jacobian, full_matrices=True)[2][size - dimension :]
    goal = np.zeros(size)
    goal[expert] = sign
    held = np.zeros(size, dtype=np.bool_)
    for _ in range(size):
        direction = _project(tangent, goal, held)
        out = ((point.discounts <= 0) & (direction < -1e-12)) | ((point.discounts >= 1) & (direction > 1e-12))
        if not out.any():
            break
        held |= out
    length = float(np.linalg.norm(direction))
    return direction / length if length > 1e-5 and sign * direction[expert] > 1e-7 else None


def _project(tangent: Floats, goal: Floats, held: Bools) -> Floats:
    """The tangent nearest to `goal` among those that do not move the discounts in `held`."""
    allowed = tangent
    if held.any():
        _, values, right = np.linalg.svd(tangent[:, held].T, full_matrices=True)
        rank = int((values > 1e-9).sum())
        allowed = right[rank:] @ tangent
    projected: Floats = allowed.T @ (allowed @ goal)
    return projected


def explore(form: Form, starts: list[Point], dimension: int, largest_gap: float) -> tuple[Floats, list[Point]]:
    """Each discount's attained range `(K,2)`, and all points met on the way."""
    found = list(starts)
    for expert in range(form.n_experts):
        for sign in (1.0, -1.0):
            best = max(found, key=lambda p: sign * p.discounts[expert])
            for start in (best, starts[0]):
                found += walk(form, start, expert, sign, dimension, largest_gap)[1:]
    discounts = np.stack([p.discounts for p in found])
    return np.stack([discounts.min(axis=0), discounts.max(axis=0)], axis=1), found


def several_minima(form: Form, seed_points: list[Floats]) -> list[Point]:
    """Local minimisers from several starts, best first; solutions up to rounding stay in the order of their starts."""
    minima = [minimise(form, start) for start in seed_points]
    return sorted(minima, key=lambda p: p.gap if p.gap > SOLVED * p.size else 0.0)
