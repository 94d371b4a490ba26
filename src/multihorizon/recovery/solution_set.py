"""Solving for the discounts: variable projection, and the set of all solutions.

With the linear unknowns x of `joint_equations` projected out,

    ρ(Γ) = M x(Γ) − h,      x(Γ) = M⁺ h,      ∂ρ/∂γ_k = (I − M M⁺) (∂M/∂γ_k x − ∂h/∂γ_k) + …,

where the term left out is orthogonal to ρ, so that the gradient of ½‖ρ‖² is exact. The minimiser is a Levenberg–Marquardt
iteration inside the box [0,1]^K with steps of least norm, so that from a point near a curve or a surface of solutions it goes to
a nearby point of it. Where ‖ρ‖ has a narrow and curved valley, a step that fails is followed by one back into the valley before
it is shortened; without this, hundreds of short steps may be needed. It stops when a step no longer reduces ‖ρ‖ or is below
rounding. SciPy's `least_squares` does worse here: "trf" never reaches a discount of 0 (a gap of 1e-10 where this gives 1e-16, in
ten times the time), and "dogbox" fails where the Jacobian is singular (4 of 12 starts on the toy domain).

Where the Jacobian of ρ has a null space of dimension n at a solution, the solutions near it form a set of that dimension. Its
extent in one discount is found by walking: step along the tangent that raises (or lowers) that discount most without leaving the
box, return to the set, and halve the step when the return fails or gains nothing. The walk ends at the box or where the tangent
no longer moves the discount. Every point on the way is a solution, so a range found is attained. It covers the pieces of the set
that hold a start. A walk may end early where the set turns back on itself, which is why walks start from several points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.recovery.column_space import ColumnSpace, column_space
from multihorizon.recovery.joint_equations import JointEquations
from multihorizon.recovery.linear_system import Answer, Directions, expected_gap
from multihorizon.tolerances import TINY

#: Singular values of M below this share of the largest are dropped when x is projected out.
SMALLEST_COLUMN = 1e-11
#: Singular values of the Jacobian below this share of the equations' size belong to directions without any effect.
NO_EFFECT = 1e-8
#: A gap below this share of the equations' size is rounding.
SOLVED = 1e-12
#: A gap below this share of its rounding is not reduced any more.
SOLVED_WELL = 1e-2
#: Iterations of the minimiser, steps of a walk, and the lengths of a walk's steps.
ITERATIONS, WALK_STEPS = 300, 200
LONGEST_STEP, SHORTEST_STEP = 0.1, 1e-6


@dataclass(frozen=True, eq=False)
class Candidate:
    """Discounts with the linear unknowns x solved for: the residual ρ and its Jacobian, and the size of the equations.

    `columns` are those of M.
    """

    discounts: Floats
    x: Floats
    residual: Floats
    jacobian: Floats
    columns: ColumnSpace
    size: float

    @property
    def gap(self) -> float:
        """‖ρ‖."""
        return float(np.linalg.norm(self.residual))

    @property
    def rounding(self) -> float:
        """The norm up to which a residual is rounding."""
        return self.columns.rounding * self.size

    @property
    def no_effect(self) -> float:
        """The norm up to which a direction of the Jacobian counts as one without any effect."""
        return max(NO_EFFECT * self.size, self.rounding)


def project(equations: JointEquations, discounts: Floats) -> Candidate:
    """Solve for the linear unknowns at given discounts."""
    matrix, right = equations.at(discounts)
    columns = column_space(matrix, SMALLEST_COLUMN, equations.coefficients)
    x = columns.solve(right)
    slopes = equations.slopes(discounts, x)
    size = float(np.linalg.norm(right) + np.linalg.norm(slopes))
    outside = columns.outside(np.column_stack([right, slopes]))
    return Candidate(discounts, x, -outside[:, 0], outside[:, 1:], columns, size)


def minimise(equations: JointEquations, start: Floats) -> Candidate:
    """The nearest local minimiser of ‖ρ(Γ)‖ in the box."""
    best, damping = project(equations, np.clip(start, 0.0, 1.0)), 1e-3
    for _ in range(ITERATIONS):
        step = _step(best, damping)
        if np.abs(step).max(initial=0.0) < 1e-15 or best.gap < SOLVED_WELL * best.rounding:
            break
        trial = project(equations, np.clip(best.discounts + step, 0.0, 1.0))
        if trial.gap >= best.gap:  # it may have left a curved valley: one more step goes back
            trial = project(equations, np.clip(trial.discounts + _step(trial, damping), 0.0, 1.0))
        if trial.gap < best.gap:
            best, damping = trial, max(damping / 10, 1e-14)
        elif damping > 1e6 or np.abs(step).max() < 1e-12:
            break
        else:
            damping *= 10
    return best


def _step(here: Candidate, damping: float) -> Floats:
    """A damped Gauss–Newton step of least norm on the discounts that the box does not hold back."""
    gradient = here.jacobian.T @ here.residual
    held = ((here.discounts <= 0) & (gradient > 0)) | ((here.discounts >= 1) & (gradient < 0))
    step = np.zeros_like(here.discounts)
    if held.all():
        return step
    left, values, right = np.linalg.svd(here.jacobian[:, ~held], full_matrices=False)
    largest = max(float(values.max(initial=0.0)), np.sqrt(TINY))
    filtered = values / (values**2 + damping * largest**2 * 1e-2)
    filtered[values < 1e-10 * largest] = 0.0
    step[~held] = -right.T @ (filtered * (left.T @ here.residual))
    return step


def minimise_from(equations: JointEquations, starts: Sequence[Floats]) -> list[Candidate]:
    """Local minimisers from several starts, best first; solutions up to rounding stay in the order of their starts."""
    minima = [minimise(equations, start) for start in starts]
    return sorted(minima, key=lambda found: found.gap if found.gap > SOLVED * found.size else 0.0)


def judge_solution(equations: JointEquations, found: Candidate, outside: float) -> Answer:
    """Which directions of the discounts are open at a solution, by the rule of `linear_system`.

    `outside` is the misfit of log π that no discounts can remove, in units of its assumed error. The answer's spread covers
    the directions that noise leaves open, not those in which the equations do not change at all: these have to be walked.
    """
    left, values, right = np.linalg.svd(found.jacobian, full_matrices=found.jacobian.shape[0] < equations.n_experts)
    values = np.append(values, np.zeros(len(right) - values.size))
    sides, changes, mean_square = np.zeros(values.size), np.zeros(values.size), 0.0
    for effect in equations.errors(found.discounts, found.x):
        error, columns = found.columns.outside(effect.residual), effect.residual.shape[1]
        sides[: left.shape[1]] += ((left.T @ error) ** 2).mean(axis=1)
        changes += right[:, effect.owner] ** 2 * float((found.columns.outside(effect.slope) ** 2).sum()) / columns
        mean_square += float((error**2).sum()) / columns
    directions = Directions(values, right, np.abs(right), values <= found.no_effect, sides, changes)
    return directions.judge(found.discounts, found.gap, expected_gap(mean_square, found.rounding), outside, set_is_walked=True)


def walk(
    equations: JointEquations, start: Candidate, expert: int, sign: float, dimension: int, largest_gap: float
) -> list[Candidate]:
    """Points of the set from `start` on, in the direction that raises (sign 1) or lowers (−1) one expert's discount."""
    points, step = [start], LONGEST_STEP
    for _ in range(WALK_STEPS):
        here = points[-1]
        direction = _tangent(here, expert, sign, dimension)
        if direction is None or step < SHORTEST_STEP:
            break
        trial = minimise(equations, here.discounts + step * direction)
        if trial.gap <= largest_gap and sign * (trial.discounts - here.discounts)[expert] > 0.05 * step * abs(direction[expert]):
            points.append(trial)
            step = min(1.5 * step, LONGEST_STEP)
        else:
            step /= 2
    return points


def _tangent(here: Candidate, expert: int, sign: float, dimension: int) -> Floats | None:
    """The unit tangent that moves one discount most, with the discounts that the box holds back kept still."""
    size = here.discounts.size
    tangent = np.linalg.svd(here.jacobian, full_matrices=here.jacobian.shape[0] < size)[2][size - dimension :]
    goal = np.zeros(size)
    goal[expert] = sign
    held = np.zeros(size, dtype=np.bool_)
    for _ in range(size):
        direction = _nearest_tangent(tangent, goal, held)
        out = ((here.discounts <= 0) & (direction < -1e-12)) | ((here.discounts >= 1) & (direction > 1e-12))
        if not out.any():
            break
        held |= out
    length = float(np.linalg.norm(direction))
    return direction / length if length > 1e-5 and sign * direction[expert] > 1e-7 else None


def _nearest_tangent(tangent: Floats, goal: Floats, held: Bools) -> Floats:
    """The tangent nearest to `goal` among those that do not move the discounts in `held`."""
    allowed = tangent
    if held.any():
        _, values, right = np.linalg.svd(tangent[:, held].T, full_matrices=True)
        rank = int((values > 1e-9).sum())
        allowed = right[rank:] @ tangent
    projected: Floats = allowed.T @ (allowed @ goal)
    return projected


def explore(
    equations: JointEquations, starts: Sequence[Candidate], dimension: int, largest_gap: float
) -> tuple[Floats, list[Candidate]]:
    """Each discount's attained range `(K,2)`, and all points met on the way."""
    found = list(starts)
    for expert in range(equations.n_experts):
        for sign in (1.0, -1.0):
            best = max(found, key=lambda p: sign * p.discounts[expert])
            for start in (best, starts[0]):
                found += walk(equations, start, expert, sign, dimension, largest_gap)[1:]
    return hull(found), found


def hull(found: Sequence[Candidate]) -> Floats:
    """The smallest and the largest of each discount `(K,2)`."""
    discounts = np.stack([candidate.discounts for candidate in found])
    return np.stack([discounts.min(axis=0), discounts.max(axis=0)], axis=1)
