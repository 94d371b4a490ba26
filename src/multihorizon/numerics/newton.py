"""Newton's method inside bounds, damped: a climb to a local maximum.

At x with gradient g and curvature M the step δ solves `(M + μD) δ = g` on the parameters that are free to move, D being the
diagonal of M with a floor: Levenberg and Marquardt's method. M is a matrix (`Dense`), factorised at the cost of the cube of its
size, or `Products` with vectors, for conjugate gradients; then nothing of size p×p is formed. Where M is singular the damped step
has no component in its null space, so directions of which M says nothing stay where they began. A parameter that a step would
carry past a bound is put on the bound and the others' step is computed again; one that rests on a bound and is pushed outwards is
held there. A step is taken when the objective rises by a fair share of what the quadratic model promises; otherwise μ grows. If
less is promised than the last digits of the objective can show, a step is taken when it leaves less to gain; otherwise the climb
ends. The gradient is new at every point. The curvature costs more, and is computed again only when its steps no longer shrink the
gradient quickly.

On a long bent ridge straight steps must be short. After the first steps, which solve easy problems, each one follows the bend to
second order (the geodesic acceleration of Transtrum and Sethna, 2012): with `f` the functions whose squares make up M,
`M = Jᵀ W J`, and `f_δδ` their second derivative along δ, by central differences, the step is `δ + a/2`,
`(M + μD) a = −Jᵀ W f_δδ`.

It stops when half the squared length of the gradient in the metric of M, the gain that a step still promises, is below
`Tolerances.gain`. Whether that is convergence is for the caller to see from the gradient at the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import scipy.linalg as la

from multihorizon.checks import Bools, Floats


class Metric(Protocol):
    """The curvature M at one point."""

    @property
    def scale(self) -> Floats:
        """D `(p,)`."""
        ...

    def times(self, v: Floats) -> Floats:
        """`M v`."""
        ...

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """δ `(p,)` with `(M + μD) δ = b` on the free parameters, and 0 elsewhere."""
        ...


class Dense:
    """The curvature as a matrix.

    Args:
        matrix: M `(p,p)`.
        units: of the parameters `(p,)`, so that the floor of D does not depend on them; 1 by default.
    """

    def __init__(self, matrix: Floats, units: Floats | None = None) -> None:
        self.matrix = matrix
        self.units: Floats = np.ones(len(matrix)) if units is None else units
        diagonal = np.diag(matrix)
        # With the floor, parameters without information do not make the damped matrix singular.
        floor = 1e-10 * (diagonal * self.units**2).max(initial=0.0)
        self.scale: Floats = np.maximum(diagonal, floor / self.units**2)

    def times(self, v: Floats) -> Floats:
        """One product."""
        return self.matrix @ v

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """By Cholesky's factors of the free block; where rounding has made it indefinite, it is shifted. b may have columns."""
        found = np.zeros(b.shape)
        block = self.matrix[np.ix_(free, free)]
        block[np.diag_indices_from(block)] += damping * self.scale[free]
        if not block.any():
            return found
        shift, unit = 0.0, self.units[free] ** -2
        for _ in range(20):
            try:
                factor = la.cho_factor(block + shift * np.diag(unit), check_finite=False)
            except la.LinAlgError:
                shift = max(10 * shift, 1e-14 * float((np.diag(block) / unit).max()))
                continue
            found[free] = la.cho_solve(factor, b[free], check_finite=False)
            return found
        raise ValueError("the curvature must be finite, received a matrix that cannot be factorised")


class Products:
    """The curvature as products.

    Args:
        times: `M v`.
        diagonal: of M `(p,)`, roughly.
        leading: how many parameters come first, and a rough inverse of their block of M; None to divide by the diagonal.
    """

    def __init__(
        self, times: Callable[[Floats], Floats], diagonal: Floats, leading: tuple[int, Callable[[Floats], Floats]] | None = None
    ) -> None:
        self.times = times
        self.scale: Floats = np.maximum(diagonal, 1e-6 * diagonal.max(initial=0.0))
        self._leading = leading
        self._solved: tuple[Floats, Floats] | None = None

    def solve(self, b: Floats, free: Bools, damping: float, tol: float = 1e-2, max_iter: int = 400) -> Floats:
        """By preconditioned conjugate gradients, begun at the last solution for the same b.

        `tol` is the relative residual at which they stop. It is large because the next step corrects what this one leaves.
        """

        def damped(v: Floats) -> Floats:
            product: Floats = self.times(v) + damping * self.scale * v
            return product

        def preconditioned(v: Floats) -> Floats:
            rough = v / ((1 + damping) * self.scale)
            if self._leading is not None and damping < 0.1:  # with more damping D is as good a preconditioner as any
                first, inverse = self._leading
                rough[:first] = inverse(v[:first])
            return np.where(free, rough, 0.0)

        left = np.where(free, b, 0.0)
        target = tol**2 * float(left @ preconditioned(left))
        x = np.zeros(b.size)
        if self._solved is not None and self._solved[0] is b:
            x = np.where(free, self._solved[1], 0.0)
            left = np.where(free, b - damped(x), 0.0)
        direction, last = np.zeros(b.size), 1.0
        for _ in range(max_iter):
            moved = preconditioned(left)
            size = float(left @ moved)
            if size <= target:
                break
            direction = moved + (size / last) * direction
            along = damped(direction)
            curved = float(direction @ along)
            if curved <= 0:
                break
            x = x + (size / curved) * direction
            left = left - (size / curved) * np.where(free, along, 0.0)
            last = size
        self._solved = (b, x)
        return x


class Climbable(Protocol):
    """A point on what is climbed."""

    @property
    def x(self) -> Floats:
        """The parameters `(p,)`."""
        ...

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """The lower and upper bounds `(p,)` of the parameters."""
        ...

    @property
    def objective(self) -> float:
        """What is maximised."""
        ...

    @property
    def gradient(self) -> Floats:
        """Its gradient `(p,)`."""
        ...

    def metric(self) -> Metric:
        """Its curvature."""
        ...

    def moved(self, x: Floats) -> Self | None:
        """The point at another x; None where the objective does not exist."""
        ...

    def bend(self, ahead: Self, behind: Self, share: float) -> Floats:
        """`Jᵀ W f_δδ` `(p,)`, by differences of points that are this share of δ ahead and behind."""
        ...


P = TypeVar("P", bound=Climbable)


@dataclass(frozen=True)
class Tolerances:
    """When a climb ends: where less than `gain` is promised, after `max_steps`, or where it is hopeless.

    A climb is hopeless where several times the promised gain would not lift it to `worth`.
    """

    gain: float = 1e-7
    max_steps: int = 300
    worth: float = -np.inf


@dataclass(frozen=True, eq=False)
class Ascent(Generic[P]):
    """Where a climb ended, how many steps it took, whether it stopped because nothing was left, and the last curvature."""

    point: P
    steps: int
    finished: bool
    metric: Metric | None


#: A climb is hopeless where so many times the promised gain is not enough, once it has taken so many steps.
HOPEFUL_FACTOR, HOPEFUL_STEPS = 3.0, 2
#: Damping relative to D with which a climb begins, and the least.
FIRST_DAMPING, LEAST_DAMPING = 1e-3, 1e-8


def climb(
    start: P,
    held: Bools,
    tol: Tolerances,
    metric: Metric | None = None,
    progress: Callable[[int, P], None] | None = None,
) -> Ascent[P]:
    """Climb from `start` to a local maximum of the objective.

    Args:
        start: where to begin.
        held: mask `(p,)` of parameters that stay as they are.
        tol: when to stop.
        metric: the curvature at a neighbouring maximum, with which to begin; without it, the stop is confirmed by a new one.
        progress: called with the number of steps and the point after each of them.
    """
    point, damping, last = start, FIRST_DAMPING if metric is None else LEAST_DAMPING, np.inf
    confirm = fresh = metric is None
    metric = metric or start.metric()
    for steps in range(tol.max_steps):
        bent = steps >= 6
        free = ~held & ~resting(point)
        promised = left_to_gain(point, metric, free)
        # The curvature is kept while each step leaves no more than a twentieth of the promised gain.
        if not fresh and (promised > 0.05 * last or (confirm and promised < tol.gain)):
            metric, fresh = point.metric(), True
            promised = left_to_gain(point, metric, free)
        if promised < tol.gain:
            return Ascent(point, steps, True, metric)
        if steps >= HOPEFUL_STEPS and point.objective + HOPEFUL_FACTOR * promised < tol.worth:
            return Ascent(point, steps, False, metric)
        reached, damping = _advance(point, metric, free, damping, bent)
        if reached is None and not fresh:
            metric, fresh = point.metric(), True
            reached, damping = _advance(point, metric, free, FIRST_DAMPING, bent)
        if reached is None:
            return Ascent(point, steps, False, metric)
        point, last, fresh = reached, promised, False
        if progress is not None:
            progress(steps + 1, point)
    return Ascent(point, tol.max_steps, False, metric)


def resting(point: Climbable) -> Bools:
    """Parameters `(p,)` on a bound which the gradient pushes outwards."""
    (low, high), g = point.bounds, point.gradient
    mask: Bools = ((point.x <= low) & (g <= 0)) | ((point.x >= high) & (g >= 0))
    return mask


def left_to_gain(point: Climbable, metric: Metric, free: Bools) -> float:
    """`½ gᵀ M^{-1} g` on the free parameters."""
    return 0.5 * float(point.gradient @ metric.solve(point.gradient, free, LEAST_DAMPING))


def _advance(point: P, metric: Metric, free: Bools, damping: float, bent: bool) -> tuple[P | None, float]:
    """The next point, with as much damping as it takes, or None; and the damping to go on with."""
    low, high = point.bounds
    while damping < 1e12:
        step = _step(point, metric, free, damping)
        promised = float(point.gradient @ step - 0.5 * step @ metric.times(step))
        curve = _bend(point, metric, free, damping, step) if bent and promised > 0 else 0.0
        reached = point.moved(np.clip(point.x + step + curve, low, high)) if promised > 0 else None
        if reached is not None and promised < 1e-14 * abs(point.objective):
            better = left_to_gain(reached, metric, free & ~resting(reached)) < left_to_gain(point, metric, free)
            return (reached, max(0.1 * damping, LEAST_DAMPING)) if better else (None, damping)
        gained = -np.inf if reached is None else reached.objective - point.objective
        if gained > 1e-3 * promised:
            factor = 0.1 if gained > 0.7 * promised else (1.0 if gained > 0.25 * promised else 4.0)
            return reached, max(damping * factor, LEAST_DAMPING)
        damping = max(damping * 8, FIRST_DAMPING / 8)
    return None, damping


def _step(point: Climbable, metric: Metric, free: Bools, damping: float) -> Floats:
    """The damped step on the free parameters; those that would leave the bounds go to the bound, and the rest follow."""
    (low, high), x = point.bounds, point.x
    step, moving = metric.solve(point.gradient, free, damping), free.copy()
    while (out := moving & ((x + step < low) | (x + step > high))).any():
        moving &= ~out
        step = np.where(moving, 0.0, np.clip(x + step, low, high) - x)
        step += metric.solve(point.gradient - metric.times(step), moving, damping)
    return step


def _bend(point: P, metric: Metric, free: Bools, damping: float, step: Floats) -> Floats:
    """Half the acceleration that keeps a step on a bent ridge; 0 where it is too long to be trusted or cannot be had."""
    share, longest = 0.1, 1.5  # of the step, by which derivatives are differenced, and beyond which a bend is not trusted
    none, (low, high) = np.zeros(step.size), point.bounds
    ahead, behind = (point.moved(np.clip(point.x + sign * share * step, low, high)) for sign in (1, -1))
    if ahead is None or behind is None:
        return none
    curve = -0.5 * metric.solve(point.bend(ahead, behind, share), free, damping)
    scale = metric.scale
    return curve if curve @ (scale * curve) <= (0.5 * longest) ** 2 * (step @ (scale * step)) else none
