"""Newton's method inside bounds, damped: a climb to a local maximum, of one function or of many, and ends of profile intervals.

*One function* (`climb`). At x with gradient g and curvature M the step δ solves `(M + μD) δ = g` on the parameters that are
free to move, D being the diagonal of M with a floor: Levenberg and Marquardt's method. M is a matrix (`Dense`), factorised at
the cost of the cube of its size, or `Products` with vectors, for conjugate gradients; then nothing of size p×p is formed. Where
M is singular the damped step has no component in its null space, so directions of which M says nothing stay where they began. A
parameter that a step would carry past a bound is put on the bound and the others' step is computed again; one that rests on a
bound and is pushed outwards is held there. A step is taken when the objective rises by a fair share of what the quadratic model
promises; otherwise μ grows. If less is promised than the last digits of the objective can show, a step is taken when it leaves
less to gain; otherwise the climb ends. The gradient is new at every point. The curvature costs more, and is computed again only
when its steps no longer shrink the gradient quickly.

On a long bent ridge straight steps must be short. After the first steps, which solve easy problems, each one follows the bend
to second order (the geodesic acceleration of Transtrum and Sethna, 2012): with `f` the functions whose squares make up M, `M =
Jᵀ W J`, and `f_δδ` their second derivative along δ, by central differences, the step is `δ + a/2`, `(M + μD) a = −Jᵀ W f_δδ`.

It stops when half the squared length of the gradient in the metric of M, the gain that a step still promises, is below
`Tolerances.gain`. Whether that is convergence is for the caller to see from the gradient at the answer.

*Many small functions at once* (`maximize_many`) of p parameters each have nothing in common but the arithmetic. Each has a
damping and a step size, and those that have converged are not evaluated again. The step is the one above, with M small and
dense; where it fails μ grows, or, on request, the step is halved. M may be the Fisher information, which leaves out how the
model itself is curved. Then what the secant of each step shows of the true curvature is added, where that leaves M positive:
the last steps are those of Newton. A problem has converged where the predicted gain `½ gᵀM⁻¹g` is below `gain` or below the
last digits of the value, or where the gradient allows next to no gain between the bounds.

*Profiles.* Let `L(g)` be an objective maximised over all parameters but one, which is g. A profile interval ends where the
signed root `r(g) = √(2 (L̂ − L(g)))` reaches a target. It is nearly linear in g, so `profile_end` finds one end by the secant
rule; each evaluation begins at the maximum of the nearest g that is still inside. `profile_ends` finds those of many functions
of two parameters without an inner search: with v the second parameter, a step in v at (g,v) gains `½ ℓ_v²/M_vv` and moves ℓ_g
by `−M_gv ℓ_v/M_vv`; with these r and its slope `−ℓ_g/r` are known, and Newton's method on r moves g and v together (Venzon and
Moolgavkar, 1988). Places that are known to be inside and outside keep it between them. Where v is far from its maximum, v is
maximised first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import scipy.linalg as la

from multihorizon.checks import TINY, Bools, Floats, Ints


class Metric(Protocol):
    """The curvature M at one point."""

    @property
    def scale(self) -> Floats:
        """Return D `(p,)`."""
        ...

    def times(self, v: Floats) -> Floats:
        """Return `M v`."""
        ...

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """Return δ `(p,)` with `(M + μD) δ = b` on the free parameters, and 0 elsewhere."""
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
        """Return one product."""
        return self.matrix @ v

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """By Cholesky's factors of the free block; where rounding has made it indefinite, it is shifted. b may have columns."""
        solution = np.zeros(b.shape)
        block = self.matrix[np.ix_(free, free)]
        block[np.diag_indices_from(block)] += damping * self.scale[free]
        if not block.any():
            return solution
        shift = 0.0
        unit = self.units[free] ** -2
        for _ in range(20):
            try:
                factor = la.cho_factor(block + shift * np.diag(unit), check_finite=False)
            except la.LinAlgError:
                shift = max(10 * shift, 1e-14 * float((np.diag(block) / unit).max()))
                continue
            solution[free] = la.cho_solve(factor, b[free], check_finite=False)
            return solution
        raise ValueError("the curvature must be finite, got a matrix that cannot be factorised")


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
        direction = np.zeros(b.size)
        last = 1.0
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
        """Return the parameters `(p,)`."""
        ...

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds `(p,)` of the parameters."""
        ...

    @property
    def objective(self) -> float:
        """Return what is maximised."""
        ...

    @property
    def gradient(self) -> Floats:
        """Return its gradient `(p,)`."""
        ...

    def metric(self) -> Metric:
        """Return its curvature."""
        ...

    def moved(self, x: Floats) -> Self | None:
        """Return the point at another x; None where the objective does not exist."""
        ...

    def bend(self, ahead: Self, behind: Self, share: float) -> Floats:
        """Return `Jᵀ W f_δδ` `(p,)`, by differences of points that are this share of δ ahead and behind."""
        ...


Place = TypeVar("Place", bound=Climbable)


@dataclass(frozen=True)
class Tolerances:
    """When a climb ends: where less than `gain` is promised, after `max_steps`, or where it is hopeless.

    A climb is hopeless where three times the promised gain would not lift it to `worth`.
    """

    gain: float = 1e-7
    max_steps: int = 300
    worth: float = -np.inf


@dataclass(frozen=True, eq=False)
class Ascent(Generic[Place]):
    """The end of a climb, its number of steps, whether it stopped because nothing was left to gain, and the last curvature."""

    point: Place
    steps: int
    finished: bool
    metric: Metric | None


#: Damping relative to D with which a climb begins, and the least.
FIRST_DAMPING, LEAST_DAMPING = 1e-3, 1e-8


def climb(
    start: Place,
    held: Bools,
    tol: Tolerances,
    metric: Metric | None = None,
    progress: Callable[[int, Place], None] | None = None,
) -> Ascent[Place]:
    """Climb from `start` to a local maximum of the objective.

    Args:
        start: where to begin.
        held: mask `(p,)` of parameters that stay as they are.
        tol: when to stop.
        metric: the curvature at a neighbouring maximum, with which to begin; without it, the stop is confirmed by a new one.
        progress: called with the number of steps and the point after each of them.
    """
    point = start
    damping = FIRST_DAMPING if metric is None else LEAST_DAMPING
    last = np.inf
    confirm = fresh = metric is None
    metric = metric or start.metric()
    for steps in range(tol.max_steps):
        bent = steps >= 6
        free = ~held & ~resting(point)
        promised = left_to_gain(point, metric, free)
        # The curvature is kept while each step leaves no more than a twentieth of the promised gain.
        if not fresh and (promised > 0.05 * last or (confirm and promised < tol.gain)):
            metric = point.metric()
            fresh = True
            promised = left_to_gain(point, metric, free)
        if promised < tol.gain:
            return Ascent(point, steps, True, metric)
        if steps >= 2 and point.objective + 3 * promised < tol.worth:  # the first steps promise too little
            return Ascent(point, steps, False, metric)
        reached, damping = _advance(point, metric, free, damping, bent)
        if reached is None and not fresh:
            metric = point.metric()
            fresh = True
            reached, damping = _advance(point, metric, free, FIRST_DAMPING, bent)
        if reached is None:
            return Ascent(point, steps, False, metric)
        point, last, fresh = reached, promised, False
        if progress is not None:
            progress(steps + 1, point)
    return Ascent(point, tol.max_steps, False, metric)


def at_bounds(x: Floats, gradient: Floats, low: Floats, high: Floats) -> Bools:
    """Mark parameters `(…,p)` on a bound which the gradient pushes outwards."""
    mask: Bools = ((x <= low) & (gradient <= 0)) | ((x >= high) & (gradient >= 0))
    return mask


def resting(point: Climbable) -> Bools:
    """Mark parameters `(p,)` of a point on a bound which the gradient pushes outwards."""
    return at_bounds(point.x, point.gradient, *point.bounds)


def left_to_gain(point: Climbable, metric: Metric, free: Bools) -> float:
    """Return `½ gᵀ M^{-1} g` on the free parameters."""
    return 0.5 * float(point.gradient @ metric.solve(point.gradient, free, LEAST_DAMPING))


def _advance(point: Place, metric: Metric, free: Bools, damping: float, bent: bool) -> tuple[Place | None, float]:
    """Return the next point, with as much damping as it takes, or None; and the damping to go on with."""
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
    """Return the damped step on the free parameters; those that would leave the bounds go to the bound, and the rest follow."""
    (low, high), x = point.bounds, point.x
    step = metric.solve(point.gradient, free, damping)
    moving = free.copy()
    while (out := moving & ((x + step < low) | (x + step > high))).any():
        moving &= ~out
        step = np.where(moving, 0.0, np.clip(x + step, low, high) - x)
        step += metric.solve(point.gradient - metric.times(step), moving, damping)
    return step


def _bend(point: Place, metric: Metric, free: Bools, damping: float, step: Floats) -> Floats:
    """Return half the acceleration that keeps a step on a bent ridge; 0 where it is too long to be trusted or cannot be had."""
    share, longest = 0.1, 1.5  # of the step, by which derivatives are differenced, and beyond which a bend is not trusted
    none = np.zeros(step.size)
    (low, high) = point.bounds
    ahead, behind = (point.moved(np.clip(point.x + sign * share * step, low, high)) for sign in (1, -1))
    if ahead is None or behind is None:
        return none
    curve = -0.5 * metric.solve(point.bend(ahead, behind, share), free, damping)
    scale = metric.scale
    return curve if curve @ (scale * curve) <= (0.5 * longest) ** 2 * (step @ (scale * step)) else none


# Many small problems at once.


@dataclass(frozen=True, eq=False)
class Local:
    """Values `(n,)`, gradients `(n,p)` and curvatures `(n,p,p)` of problems, each at a place; −inf where there is no value."""

    value: Floats
    gradient: Floats
    curvature: Floats

    def put(self, who: Ints, other: Local, some: Bools) -> None:
        """Replace those of the problems `who` that are in `some`."""
        for name in ("value", "gradient", "curvature"):
            getattr(self, name)[who[some]] = getattr(other, name)[some]

    def with_curvature(self, added: Floats) -> Local:
        """Add to the curvature."""
        return Local(self.value, self.gradient, self.curvature + added)

    def of(self, who: Ints | Bools) -> Local:
        """Select some problems."""
        return Local(self.value[who], self.gradient[who], self.curvature[who])


#: Evaluates the problems `(m,)` at places `(m,p)`.
At = Callable[[Ints, Floats], Local]


@dataclass(frozen=True, eq=False)
class Ends:
    """The ends of the searches `(n,p)`, the evaluations there, the numbers of steps, and which searches converged."""

    places: Floats
    here: Local
    steps: Ints
    finished: Bools


def _solved(matrix: Floats, b: Floats, free: Bools, damping: Floats) -> Floats:
    """Solve `(M + μD) δ = b` for δ `(n,p)` in the free parameters; δ is 0 elsewhere and in those without information."""
    diagonal = np.diagonal(matrix, axis1=1, axis2=2)
    free = free & (diagonal > 0)
    unit = np.where(free, np.sqrt(np.maximum(diagonal, 1e-10 * diagonal.max(axis=1, keepdims=True, initial=0.0))), 1.0)
    scaled = np.where(free[:, :, None] & free[:, None, :], matrix / unit[:, :, None] / unit[:, None, :], 0.0)
    places = np.arange(unit.shape[1])
    scaled[:, places, places] = np.where(free, 1 + damping[:, None], 1.0)
    right = np.where(free, b / unit, 0.0)[:, :, None]
    try:
        step = np.linalg.solve(scaled, right)
    except np.linalg.LinAlgError:
        step = np.linalg.pinv(scaled, hermitian=True) @ right
    solved: Floats = step[:, :, 0] / unit
    return solved


def _gain(here: Local, free: Bools, damping: Floats) -> Floats:
    """Return the gain `½ gᵀM⁻¹g` `(n,)` that Newton's step predicts on the free parameters."""
    gain: Floats = 0.5 * (here.gradient * _solved(here.curvature, here.gradient, free, damping)).sum(axis=1)
    return gain


def _steps(here: Local, places: Floats, lower: Floats, upper: Floats, free: Bools, damping: Floats) -> Floats:
    """Return the damped steps `(n,p)`, as `_step` does for one problem."""
    step = _solved(here.curvature, here.gradient, free, damping)
    moving = free.copy()
    while (out := moving & ((places + step < lower) | (places + step > upper))).any():
        moving &= ~out
        held = np.where(moving, 0.0, np.clip(places + step, lower, upper) - places)
        left = here.gradient - (here.curvature @ held[:, :, None])[:, :, 0]
        step = np.where(moving, _solved(here.curvature, left, moving, damping), held)
    inside: Floats = np.clip(places + step, lower, upper) - places
    return inside


def _secant(before: Local, there: Local, step: Floats, kept: Floats) -> Floats:
    """Return what the secants of this step and of earlier ones (`kept`) add to the curvature `(n,p,p)`.

    The update is of rank one (Broyden, 1967) where that leaves the curvature well positive, else that of BFGS.
    """
    fell = before.gradient - there.gradient
    expected = ((there.curvature + kept) @ step[:, :, None])[:, :, 0]
    missing = fell - expected
    along = (missing * step).sum(axis=1)
    sure = np.abs(along) > 1e-6 * np.linalg.norm(missing, axis=1) * np.linalg.norm(step, axis=1)
    rank_one = kept + _squares(missing, np.where(sure, along, np.inf))
    corrected = there.curvature + rank_one
    diagonal = np.diagonal(there.curvature, axis1=1, axis2=2)
    well = (np.diagonal(corrected, axis1=1, axis2=2) >= 0.1 * diagonal).all(axis=1)
    well &= np.linalg.det(corrected) >= 0.05 * np.linalg.det(there.curvature)
    if step.shape[1] > 2:
        well &= np.linalg.eigvalsh(corrected)[:, 0] > 0
    if well.all():
        return rank_one
    seen = (fell * step).sum(axis=1)
    predicted = (expected * step).sum(axis=1)
    sure = (predicted > TINY) & (seen > 0.1 * predicted)
    bfgs = kept + _squares(fell, np.where(sure, seen, np.inf)) - _squares(expected, np.where(sure, predicted, np.inf))
    positive = np.linalg.eigvalsh(there.curvature + bfgs)[:, 0] > 0
    return np.where(well[:, None, None], rank_one, np.where(positive[:, None, None], bfgs, 0.0))


def _squares(vectors: Floats, sizes: Floats) -> Floats:
    """Return `v vᵀ / size` `(n,p,p)`."""
    outer: Floats = vectors[:, :, None] * vectors[:, None, :] / sizes[:, None, None]
    return outer


def maximize_many(
    at: At,
    places: Floats,
    lower: Floats | float = -np.inf,
    upper: Floats | float = np.inf,
    *,
    gain: float,
    max_steps: int = 300,
    halving: bool = False,
    secant: bool = True,
    longest: float = np.inf,
) -> Ends:
    """Find a local maximum of each problem by damped Newton steps from `places` `(n,p)`, between bounds `(n,p)`.

    Args:
        at: evaluates some of the problems.
        places: where to begin. A problem without a value there ends there, and has not converged.
        lower, upper: bounds; a parameter with equal bounds is held.
        gain: the predicted gain below which a problem has converged.
        max_steps: the most evaluations of one problem.
        halving: begin with steps that are not damped, and halve one that fails, as suits a curvature that is exact.
        secant: correct the curvature by secants.
        longest: the most by which one step moves a parameter.
    """
    n = len(places)
    places = places.copy()
    lower, upper = np.broadcast_to(lower, places.shape), np.broadcast_to(upper, places.shape)
    here = at(np.arange(n), places)
    steps = np.zeros(n, dtype=np.int64)
    finished = np.zeros(n, dtype=np.bool_)
    least = np.full(n, 0.0 if halving else LEAST_DAMPING)
    damping = np.full(n, 0.0 if halving else FIRST_DAMPING)
    share = np.ones(n)
    secants = np.zeros(here.curvature.shape)
    who = np.flatnonzero(np.isfinite(here.value))
    for _ in range(max_steps):
        now = here.with_curvature(secants).of(who)
        points = places[who]
        low = lower[who]
        high = upper[who]
        free = ~at_bounds(points, now.gradient, low, high)
        left = _gain(now, free, least[who])
        done = (left < gain) | (_reach(now, low, high, free) < 1e-8)
        finished[who[done]] = True
        going = ~done
        who = who[going]
        now = now.of(going)
        left = left[going]
        points, low, high, free = points[going], low[going], high[going], free[going]
        if not who.size:
            break
        step = _steps(now, points, low, high, free, damping[who])
        step *= (share[who] / np.maximum(1.0, np.abs(step).max(axis=1, initial=0.0) / longest))[:, None]
        promised = (now.gradient * step).sum(axis=1) - 0.5 * np.einsum("ni,nij,nj->n", step, now.curvature, step)
        there = at(who, points + step)
        steps[who] += 1
        gained = there.value - now.value
        # where less is predicted than the last digits can show, a step must leave less to gain
        tiny = (promised > 0) & (promised < 1e-13 * np.maximum(1.0, np.abs(now.value)))
        rest = _gain(there, ~at_bounds(points + step, there.gradient, low, high), least[who])
        better = np.isfinite(there.value) & (promised > 0) & np.where(tiny, rest < left, gained > 1e-3 * promised)
        if secant:
            corrected = _secant(now, there, step, secants[who])
            secants[who] = np.where(better[:, None, None], corrected, secants[who] if halving else 0.0)
        here.put(who, there, better)
        places[who[better]] += step[better]
        if halving:
            share[who] = np.where(better, 1.0, share[who] / 2)
        else:
            factor = np.where(gained > 0.7 * promised, 0.1, np.where(gained > 0.25 * promised, 1.0, 4.0))
            raised = np.maximum(8 * damping[who], FIRST_DAMPING)
            damping[who] = np.where(better, damping[who] * factor, raised).clip(LEAST_DAMPING)
        finished[who[tiny & ~better]] = True
        who = who[(better | ~tiny) & (damping[who] < 1e12) & (share[who] > 1e-8)]
    # where a step is smaller than rounding allows, or goes to and fro along a ridge, but nothing is left to gain
    finished |= np.isfinite(here.value) & (_reach(here, lower, upper, ~at_bounds(places, here.gradient, lower, upper)) < 1e-4)
    return Ends(places, here, steps, finished)


def _reach(here: Local, lower: Floats, upper: Floats, free: Bools) -> Floats:
    """Return the most that the gradient allows between the bounds `(n,)`: on a plateau curvatures are rounding errors."""
    slopes = np.abs(here.gradient)
    room = np.where(free, upper - lower, 0.0)
    reach: Floats = np.multiply(slopes, room, out=np.zeros_like(slopes), where=slopes > 0).sum(axis=1)
    return reach


def profile_ends(
    at: At,
    maxima: Floats,
    top: Local,
    first: Floats,
    target: float,
    sign: int,
    lower: Floats,
    upper: Floats,
    max_steps: int = 60,
) -> tuple[Floats, Bools]:
    """Return where each profile of the first parameter ends on one side `(n,)`, and which of the ends were found.

    Args:
        at: what is known of people at places.
        maxima: where they are `(n,2)`.
        top: what is known there.
        first: the lengths of the first steps `(n,)`.
        target: of r.
        sign: the side.
        lower, upper: bounds `(n,2)`; the end is on the bound where r stays below its target.
        max_steps: the most places that are tried.
    """
    n = len(maxima)
    bound = upper[:, 0] if sign > 0 else lower[:, 0]
    # the last places that are inside, how v follows g there, and the first ones that are outside
    inside = maxima.copy()
    tilt = _loosened(top, maxima, lower, upper).tilt
    outside = np.full(n, np.nan)
    places = inside.copy()
    settled = np.zeros(n, dtype=np.bool_)
    who = np.arange(n)
    stride = first.copy()
    places[:, 0] = np.clip(inside[:, 0] + sign * first, lower[:, 0], upper[:, 0])
    places[:, 1] = np.clip(inside[:, 1] + tilt * (places[:, 0] - inside[:, 0]), lower[:, 1], upper[:, 1])
    before = np.full(n, np.nan)  # the last g of each
    for _ in range(max_steps):
        low = lower[who]
        high = upper[who]
        bad = np.zeros(who.size, dtype=np.bool_)
        here = at(who, places[who])
        points = places[who]
        promised = _loosened(here, points, low, high).promised
        # where g stays, as on its bound, v is climbed to the end: a step without damping may go to and fro
        far = np.isfinite(here.value) & (promised > np.where(points[:, 0] == before[who], 1e-7, 0.02))
        before[who] = points[:, 0]
        if far.any():
            some, fixed = who[far], points[far, :1]
            least, most = (np.concatenate([fixed, side[far, 1:]], axis=1) for side in (low, high))
            gain = 1e-3 if (promised[far] > 0.02).all() else 1e-8
            ends = maximize_many(partial(of_some, at, some), points[far], least, most, gain=gain)
            points[far], bad[far] = ends.places, ~ends.finished
            here.put(np.flatnonzero(far), ends.here, np.ones(some.size, dtype=np.bool_))
        loose = _loosened(here, points, low, high)
        bad |= ~np.isfinite(here.value)
        gap = top.value[who] - here.value - loose.promised
        root = np.sqrt(2 * np.maximum(gap, 0.0))
        below = ~bad & (root < target)
        inside[who[below]], tilt[who[below]] = points[below], loose.tilt[below]
        outside[who[~below & ~bad]] = points[~below & ~bad, 0]
        near, beyond = inside[who, 0], outside[who]
        closed = np.isfinite(beyond)
        apart = np.abs(points[:, 0] - near)
        ended = ~bad & (loose.promised < 1e-7) & ((np.abs(root - target) < 1e-6) | ((points[:, 0] == bound[who]) & below))
        # beyond the end of an interval there may be no value at all
        ended |= (closed & (np.abs(beyond - near) < 1e-9)) | (bad & (apart < 1e-7))
        lost = ~bad & (gap < -1e-3)  # likelier than the maximum, which then is none
        settled[who[ended & ~lost]] = True
        # Newton's step on r where it leads outwards; elsewhere twice as far as before, or half as far where there is no value
        with np.errstate(divide="ignore", invalid="ignore"):
            step = -(target - root) * root / loose.slope
        wide = np.where(closed, 0.5 * (beyond - near), sign * 2 * stride[who])
        moved = np.where(np.isfinite(step) & ((step * sign > 0) == below), points[:, 0] + step, near + wide)
        moved = np.where(closed, moved, points[:, 0] + np.clip(moved - points[:, 0], -4 * stride[who], 4 * stride[who]))
        astray = ((moved - near) * sign <= 0) | (closed & ((beyond - moved) * sign <= 0))
        moved = np.clip(np.where(astray, near + wide, moved), low[:, 0], high[:, 0])
        follow = points[:, 1] + loose.step + loose.tilt * (moved - points[:, 0])
        # where there is no value, or one so low that v may have gone astray, v begins at that of the last place inside
        moved = np.where(bad, near + 0.5 * (points[:, 0] - near), moved)
        astray = bad | (root > 2 * target)
        follow = np.where(astray, inside[who, 1] + tilt[who] * (moved - near), follow)
        places[who, 1] = np.clip(follow, low[:, 1], high[:, 1])
        stride[who] = np.maximum(np.abs(moved - points[:, 0]), 1e-6)
        last = np.where(np.abs(points[:, 0] - bound[who]) < 1e-6, bound[who], points[:, 0])
        places[who, 0] = np.where(ended, last, moved)
        who = who[~ended & ~lost]
        if not who.size:
            break
    return places[:, 0], settled


def of_some(at: At, some: Ints, who: Ints, places: Floats) -> Local:
    """Return what is known of some of the people, who are numbered among themselves."""
    return at(some[who], places)


@dataclass(frozen=True, eq=False)
class _Loosened:
    """What follows where v is let go: its step, what that promises, how v follows g, and the slope of L, all `(n,)`."""

    step: Floats
    promised: Floats
    tilt: Floats
    slope: Floats


def _loosened(here: Local, places: Floats, lower: Floats, upper: Floats) -> _Loosened:
    (slope, pull), (across, bent) = here.gradient.T, here.curvature[:, 1].T
    loose = ~at_bounds(places, here.gradient, lower, upper)[:, 1] & (lower < upper)[:, 1] & (bent > 0)
    bent = np.where(loose, bent, 1.0)
    step = np.clip(places[:, 1] + np.where(loose, pull / bent, 0.0), lower[:, 1], upper[:, 1]) - places[:, 1]
    tilt = np.where(loose, -across / bent, 0.0)
    return _Loosened(step, pull * step - 0.5 * bent * step**2, tilt, slope + tilt * bent * step)


# The end of one profile.


Where = TypeVar("Where")


def profile_end(
    profile: Callable[[float, Where], tuple[float, Where] | None],
    start: Where,
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
) -> tuple[float, Where | None]:
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
