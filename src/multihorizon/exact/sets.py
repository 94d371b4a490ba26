"""The linear system in the discounts: all experts must mean the same reward.

Each expert i, whose discount is γ_k, allows the rewards `r = λ_k û_i + N_i z_i − γ_k (λ_k V̂_i + P_i N_i z_i)` (`one_expert`).
Equating them gives, on the states of each task,

    λ_k û_i = r + β_k V̂_i − N_i z_i + P_i N_i w_i,        β_k = λ_k γ_k,        w_i = γ_k z_i.

With w_i as an unknown of its own the system is linear in y = Γ, or, with temperatures per expert and λ_1 = 1, in
`y = (λ_2 … λ_K, β_1 … β_K)`. The reward is projected out by subtracting from each row the mean over the rows of the same state,
z and w by `column_space`; what remains is a tall matrix A with K or 2K − 1 columns.

*Relaxation.* `w_i = γ_k z_i` is dropped, so the true set of discounts is contained in the one found. Nothing is lost where
`P_i N_i` lies in the span of N_i, as for null(D) = constants without terminal states; then the set is exactly affine.

*Rank at a noise level.* A singular direction v_j of A with value s_j counts as identified if the answers it leaves possible
stay within LIMIT: plus and minus three standard deviations `s_j^{-1} w_jᵀ e` of the error e that errors of the given size in
log π cause on the right-hand side, plus the bias `(‖δA v_j‖ / s_j)²` they cause through the matrix itself. Where the equations
hold worse than errors of that size explain, but not so badly that the problem is infeasible, the errors are taken to be as large
as the misfit suggests.

The box 0 ≤ γ ≤ 1 makes it a bounded least-squares problem in few unknowns; ranges over an affine set are linear programs.

Solving for the discounts: variable projection, and the set of all solutions.

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
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog, lsq_linear

from multihorizon.checks import TINY, Bools, Floats
from multihorizon.exact.equations import JointEquations, SharedReward
from multihorizon.exact.least_squares import Coefficients, Columns, columns_of

#: The largest spread of possible answers at which a direction of discounts counts as identified.
LIMIT = 0.1
#: Directions of the columns for z and w below this share of the largest are dropped.
SMALLEST_NUISANCE = 1e-10
#: Residuals beyond this many times what the errors in log π explain make a problem infeasible.
MISFIT = 5.0
#: The smallest divisor: its square is still above the smallest number that floats hold.
SMALLEST_DIVISOR = 1e-140


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """`A y = h` with reward, z and w projected out.

    `temperature` is the shared λ, or None where each expert has their own. `nuisance` are the columns for
    z and w. `size` is the norm that A and h had before the projection.
    """

    shared: SharedReward
    n_experts: int
    temperature: float | None
    nuisance: Columns
    matrix: Floats
    right: Floats
    size: float

    @cached_property
    def svd(self) -> tuple[Floats, Floats, Floats]:
        """Left vectors, singular values and right vectors of A."""
        left, values, right = np.linalg.svd(self.matrix, full_matrices=False)
        return left, values, right

    @cached_property
    def box(self) -> tuple[Floats, Floats, Floats]:
        """The map from variables x with plain bounds to y, and the bounds: x = Γ, or x = (λ − β, β) with λ_1 = 1."""
        k = self.n_experts
        if self.temperature is not None:
            return np.eye(k), np.zeros(k), np.ones(k)
        change = np.eye(2 * k - 1)
        change[np.arange(k - 1), np.arange(k, 2 * k - 1)] = 1.0
        upper = np.full(2 * k - 1, np.inf)
        upper[k - 1] = 1.0
        return change, np.zeros(2 * k - 1), upper

    def read(self, y: Floats) -> tuple[Floats, Floats]:
        """Discounts and temperatures `(K,)` of a solution y."""
        if self.temperature is not None:
            return y, np.full(self.n_experts, self.temperature)
        temperature = np.concatenate([[1.0], y[: self.n_experts - 1]])
        return y[self.n_experts - 1 :] / np.maximum(temperature, TINY), temperature

    def coefficients(self, direction: Floats) -> tuple[Floats, Floats]:
        """What a direction of y adds to the factors `(K,)` of û and of V̂."""
        if self.temperature is not None:
            return np.zeros(self.n_experts), self.temperature * direction
        return np.concatenate([[0.0], direction[: self.n_experts - 1]]), direction[self.n_experts - 1 :]

    def discount_ranges(self, answer: Answer) -> tuple[Floats, list[Floats]]:
        """Each discount's range `(K,2)` over the affine set of y in the box, by linear programs, and the points that attain them.

        An end whose program fails is 0 or 1: nothing bounds it. With free temperatures the discount β_k/λ_k is a ratio; the
        program is made linear by scaling y so that λ_k = 1.
        """
        change = self.box[0]
        n = change.shape[0]
        limits, points = np.tile([0.0, 1.0], (self.n_experts, 1)), []
        for k in range(self.n_experts):
            for end, sign in enumerate((1.0, -1.0)):
                solution = _extreme(self, answer, k, sign)
                if solution is not None:
                    points.append(change @ (solution[:n] / solution[n]))
                    limits[k, end] = np.clip(self.read(points[-1])[0][k], 0.0, 1.0)
        return limits, points


def build_system(shared: SharedReward, n_experts: int, temperature: float | None) -> LinearSystem:
    """Put the experts' families together; `temperature` None leaves one per expert free."""
    families, scale = shared.families, 1.0 if temperature is None else temperature
    nuisance = _nuisance(shared)
    u = [shared.place_owned(k, [scale * family.u for family in families]) for k in range(n_experts)]
    v = [shared.place_owned(k, [scale * family.v for family in families]) for k in range(n_experts)]
    columns, right = (v, np.sum(u, axis=0)) if temperature is not None else ([*(-column for column in u[1:]), *v], u[0])
    matrix = np.stack(columns, axis=1)
    matrix, right = nuisance.outside(matrix), nuisance.outside(right)
    size = float(np.sqrt(sum((family.weights * (family.u**2 + family.v**2)).sum() for family in families)))
    return LinearSystem(shared, n_experts, temperature, nuisance, matrix, right, size)


def _nuisance(shared: SharedReward) -> Columns:
    """The columns for z and w of every family, without the shared reward."""
    parts = shared.coefficients()
    if parts is None:
        columns = [np.hstack([-family.basis, family.pushed]) for family in shared.families]
        return columns_of(shared.blocks(columns), SMALLEST_NUISANCE, None)
    sparse = shared.blocks([sp.hstack([-family.basis, family.pushed], format="csr") for family in shared.families])
    return columns_of(sparse, SMALLEST_NUISANCE, Coefficients.side_by_side([part for part in parts for _ in range(2)]))


@dataclass(frozen=True, eq=False)
class Answer:
    """The closest y, and which directions of it the equations leave open at the given noise.

    `fixed` and `free` are the right singular vectors that are identified and open; `coefficients` are the coordinates of y along
    `fixed`. `spread` `(K,)` is the half-width that the noise gives each discount in the identified directions; `gap` and
    `expected` are the norm of `A y − h` and what the noise explains of it.
    """

    y: Floats
    fixed: Floats
    coefficients: Floats
    free: Floats
    singular_values: Floats
    spread: Floats
    gap: float
    expected: float

    @property
    def feasible(self) -> bool:
        """Whether the equations hold up to the noise."""
        return self.gap <= MISFIT * self.expected


@dataclass(frozen=True, eq=False)
class Directions:
    """Singular values and right vectors, and what there is to know about each direction.

    `effects` is how much a unit step moves each discount, and relatively each temperature, `(n,K)` or `(n,2K)`. `null` marks the
    directions that are open whatever the noise. `side_errors` and `matrix_errors` are mean squares of what errors in log π do to
    the right-hand side along the left vector, and to A times the right vector.
    """

    values: Floats
    right: Floats
    effects: Floats
    null: Bools
    side_errors: Floats
    matrix_errors: Floats

    def judge(self, y: Floats, gap: float, expected: float, outside: float, set_is_walked: bool) -> Answer:
        """Which directions are identified at the noise, by the rule at the top.

        Args:
            y: the solution.
            gap: the norm of its residual.
            expected: what the noise explains of it.
            outside: the misfit of log π that no discounts can remove, in units of its assumed error.
            set_is_walked: whether only null directions are followed later, so that the spread must hold all others, or all
                open ones.
        """
        larger = min(max(1.0, outside, gap / expected), MISFIT)
        safe = np.maximum(self.values, SMALLEST_DIVISOR)
        deviation, bias = larger * np.sqrt(self.side_errors) / safe, larger**2 * self.matrix_errors / safe**2
        open_ = ((6 * deviation + bias) * self.effects.max(axis=1) > LIMIT) | self.null
        followed = self.null if set_is_walked else open_
        moved = (self.effects * np.minimum(2 * deviation + bias, 1.0)[:, None])[~followed]
        return Answer(
            y=y,
            fixed=self.right[~open_],
            coefficients=self.right[~open_] @ y,
            free=self.right[open_],
            singular_values=self.values,
            spread=np.sqrt((moved**2).sum(axis=0)),
            gap=gap,
            expected=expected,
        )


def expected_gap(mean_square: float, rounding: float) -> float:
    """The norm of a residual that the noise explains; rounding is noise too."""
    return max(float(np.sqrt(mean_square)), rounding, SMALLEST_DIVISOR)


def solve_system(system: LinearSystem) -> Answer:
    """Bounded least squares, and the rank at the noise of the families."""
    left, values, right = system.svd
    change, lower, upper = system.box
    full = lsq_linear(values[:, None] * right @ change, left.T @ system.right, (lower, upper), method="bvls", tol=1e-15)
    y = _inside(change @ full.x, system)
    side_errors, matrix_errors, mean_square = _error_sizes(system, y)
    effects = np.stack([_effect(system, y, direction) for direction in right])
    rounding = system.nuisance.rounding * system.size
    gap = float(np.linalg.norm(system.matrix @ y - system.right))
    found = Directions(values, right, effects, values <= rounding, side_errors, matrix_errors).judge(
        y, gap, expected_gap(mean_square, rounding), system.shared.misfit, set_is_walked=False
    )
    return replace(found, spread=found.spread[: system.n_experts])


def _inside(y: Floats, system: LinearSystem) -> Floats:
    """The unbounded solution where it respects the box up to rounding, because it is the more exact one."""
    left, values, right = system.svd
    if not (values > 1e-13 * max(float(values.max(initial=0.0)), TINY)).all():
        return y
    change, lower, upper = system.box
    x = np.linalg.solve(change, right.T @ ((left.T @ system.right) / values))
    slack = 1e-9 * max(1.0, float(np.abs(x).max()))
    if (x < lower - slack).any() or (x > upper + slack).any():
        return y
    bounded: Floats = change @ np.clip(x, lower, upper)
    return bounded


def _error_sizes(system: LinearSystem, y: Floats) -> tuple[Floats, Floats, float]:
    """Mean squares of the errors of the right-hand side along each left vector, of A times each right vector, and in all."""
    left, _, right = system.svd
    discounts, temperature = system.read(y)
    pairs = [system.coefficients(direction) for direction in right]
    sides, changes, total = np.zeros(len(pairs)), np.zeros(len(pairs)), 0.0
    for number, family in enumerate(system.shared.families):
        k, columns = family.owner, family.error_u.shape[1]
        placed = system.shared.place({number: np.hstack([family.error_u, family.error_v])})
        placed = system.nuisance.outside(placed)
        u, v = placed[:, :columns], placed[:, columns:]
        error = temperature[k] * (u - discounts[k] * v)
        sides += ((left.T @ error) ** 2).mean(axis=1)
        total += float((error**2).sum()) / columns
        uu, uv, vv = ((a * b).sum() / columns for a, b in ((u, u), (u, v), (v, v)))
        changes += [a[k] ** 2 * uu - 2 * a[k] * b[k] * uv + b[k] ** 2 * vv for a, b in pairs]
    return sides, changes, total


def _effect(system: LinearSystem, y: Floats, direction: Floats) -> Floats:
    """How much a unit step along `direction` moves each discount, and, relatively, each temperature."""
    if system.temperature is not None:
        return np.abs(direction)
    discounts, temperature = system.read(y)
    moved_temperature, moved_product = system.coefficients(direction)
    safe = np.maximum(np.abs(temperature), 1e-12)
    return np.concatenate([np.abs(moved_product - discounts * moved_temperature) / safe, np.abs(moved_temperature) / safe])


def _extreme(system: LinearSystem, answer: Answer, k: int, sign: float) -> Floats | None:
    """Minimise (sign 1) or maximise (sign −1) one discount over `(x t, t)`; None if the program fails."""
    change, _, upper = system.box
    n = change.shape[0]
    objective, scaling = np.zeros(n + 1), np.zeros(n + 1)
    if system.temperature is not None or k == 0:
        scaling[n] = 1.0
    else:
        scaling[:n] = change[k - 1]
    objective[n - system.n_experts + k] = sign
    equal = np.vstack([np.hstack([answer.fixed @ change, -answer.coefficients[:, None]]), scaling])
    bounded = np.flatnonzero(np.isfinite(upper))
    below = np.zeros((bounded.size, n + 1))
    below[np.arange(bounded.size), bounded] = 1.0
    below[:, n] = -upper[bounded]
    goal = np.append(np.zeros(answer.fixed.shape[0]), 1.0)
    result: Any = linprog(objective, below, np.zeros(bounded.size), equal, goal, bounds=(0, None), method="highs")
    return None if result.status != 0 or result.x[n] <= 1e-12 else np.asarray(result.x)


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
    columns: Columns
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
    columns = columns_of(matrix, SMALLEST_COLUMN, equations.coefficients)
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
