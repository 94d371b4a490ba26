"""Maximising a likelihood inside bounds by damped Fisher scoring.

At x with gradient g and Fisher information I the step δ solves `(I + μD) δ = g` on the parameters that are free to move, D being
the diagonal of I with a floor: Levenberg and Marquardt's method with the curvature that a correct model has on average. Where I
is singular the damped step has no component in its null space, so directions about which the data say nothing stay where they
began. A discount that a step would carry past 0 or 1 is put on the bound and the others' step is computed again; one that rests
on a bound and is pushed outwards is held there. A step is taken when the objective rises by a fair share of what the quadratic
model promises, otherwise μ grows. Where less is promised than the last digits of the objective can show, a step is taken when it
leaves less to gain; otherwise the climb ends. The gradient is new at every point (one adjoint solve per expert); the information,
which costs a solve for each parameter, is computed again only when the steps it gives no longer shrink the gradient quickly.

Where reward and discount nearly trade off, the likelihood is a long bent ridge on which straight steps must be short. From step
`BENT` on each step therefore follows the bend to second order (the geodesic acceleration of Transtrum and Sethna, 2012): with
`f = log π` and its second derivative `f_δδ` along δ, by central differences, the step is `δ + a/2`, `(I + μD) a = −Σ nπ f_δδ df`.

With very many parameters nothing of size p×p is formed: the step comes from products with the information (`metric`).

It stops when half the squared length of the gradient in the metric of the information, the log-likelihood that a step still
promises, is below `GAIN`: a ten-millionth of what moves a confidence interval. Whether that is convergence is for the caller to
see from `projected_gradient`, recomputed at the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.likelihood.large import is_large, quasi_newton
from multihorizon.likelihood.likelihood import Point
from multihorizon.likelihood.metric import Metric, metric_of
from multihorizon.progress import Progress, silent

GAIN = 1e-7
MAX_STEPS = 300
#: Damping relative to D: the first, the least, and the most; a climb that needs more than the most ends.
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e-8, 1e12
#: Gains below this share of the objective are lost in its rounding.
LOST_GAIN = 1e-14
#: The information is kept while each step leaves no more than this share of the promised gain.
SHRINK = 0.05
#: From this step on the bend of the ridge is followed; easy problems are solved before.
BENT = 6
#: The part of a step by which second derivatives are differenced, and the longest acceleration relative to the step.
DIFFERENCE, MOST_BEND = 0.1, 1.5


@dataclass(frozen=True, eq=False)
class Ascent:
    """Where a climb ended, how many steps it took, whether it stopped because nothing was left, and the last curvature."""

    point: Point
    steps: int
    finished: bool
    metric: Metric | None


def climb(
    start: Point,
    fixed: Bools | None = None,
    max_steps: int = MAX_STEPS,
    gain: float = GAIN,
    metric: Metric | None = None,
    progress: Progress = silent,
) -> Ascent:
    """Climb from `start` to a local maximum of the objective.

    Args:
        start: where to begin.
        fixed: mask of parameters that stay as they are.
        max_steps: steps after which the climb is broken off.
        gain: stop when less than this is promised.
        progress: told of the steps where there are very many parameters, and each takes long.
        metric: curvature at a neighbouring maximum, with which to begin; without it, the stop is confirmed by a new one.
    """
    held = start.likelihood.fixed if fixed is None else start.likelihood.fixed | fixed
    start = start.without_derivatives()  # the caller may keep many starts
    if is_large(start.likelihood) and not start.likelihood.has_products:
        return Ascent(*quasi_newton(start, held, max_steps, progress), None)
    point, damping, last = start, FIRST_DAMPING if metric is None else LEAST_DAMPING, np.inf
    confirm, fresh = metric is None, metric is None
    metric = metric or metric_of(start)
    for steps in range(max_steps):
        free = ~held & ~resting(point)
        promised = _left_to_gain(point, metric, free)
        if not fresh and (promised > SHRINK * last or (confirm and promised < gain)):
            metric, fresh = metric_of(point), True
            promised = _left_to_gain(point, metric, free)
        if promised < gain:
            return Ascent(point.without_derivatives(), steps, True, metric)
        reached, damping = _advance(point, metric, free, damping, steps >= BENT)
        if reached is None and not fresh:
            metric, fresh, damping = metric_of(point), True, FIRST_DAMPING
            reached, damping = _advance(point, metric, free, damping, steps >= BENT)
        if reached is None:
            return Ascent(point.without_derivatives(), steps, False, metric)
        point, last, fresh = reached, promised, False
        progress((steps + 1) / max_steps, f"step {steps + 1}: log-likelihood {point.value:.2f}")
    return Ascent(point.without_derivatives(), max_steps, False, metric)


def resting(point: Point) -> Bools:
    """Parameters on a bound which the gradient pushes outwards."""
    low, high, g = point.likelihood.lower, point.likelihood.upper, point.gradient
    mask: Bools = ((point.x <= low) & (g <= 0)) | ((point.x >= high) & (g >= 0))
    return mask


def projected_gradient(point: Point) -> float:
    """The largest entry of the gradient per decision, leaving out parameters that are known or rest on a bound.

    Weights of features larger than 1 are measured in the units that make their feature at most 1.
    """
    model = point.likelihood
    scaled = point.gradient.copy()
    scaled[: model.n_reward] /= np.maximum(1.0, model.feature_sizes)
    return float(np.abs(scaled[~resting(point) & ~model.fixed]).max(initial=0.0)) / model.decisions


def _advance(point: Point, metric: Metric, free: Bools, damping: float, bend: bool) -> tuple[Point | None, float]:
    """The next point, with as much damping as it takes, or None; and the damping to go on with."""
    model = point.likelihood
    while damping < MOST_DAMPING:
        step = _step(point, metric, free, damping)
        promised = float(point.gradient @ step - 0.5 * step @ metric.times(step))
        curve = _bend(point, metric, free, damping, step) if bend and promised > 0 else 0.0
        reached = model.at(np.clip(point.x + step + curve, model.lower, model.upper), point) if promised > 0 else None
        if reached is not None and promised < LOST_GAIN * abs(point.objective):
            better = _left_to_gain(reached, metric, free & ~resting(reached)) < _left_to_gain(point, metric, free)
            return (reached, max(0.1 * damping, LEAST_DAMPING)) if better else (None, damping)
        gained = -np.inf if reached is None else reached.objective - point.objective
        if gained > 1e-3 * promised:
            factor = 0.1 if gained > 0.7 * promised else (1.0 if gained > 0.25 * promised else 4.0)
            return reached, max(damping * factor, LEAST_DAMPING)
        damping = max(damping * 8, FIRST_DAMPING / 8)
    return None, damping


def _bend(point: Point, metric: Metric, free: Bools, damping: float, step: Floats) -> Floats:
    """Half the acceleration that keeps a step on a bent ridge; 0 where it is too large to be trusted or cannot be had."""
    model, none = point.likelihood, np.zeros(step.size)
    ahead, behind = (model.at(np.clip(point.x + sign * DIFFERENCE * step, model.lower, model.upper), point) for sign in (1, -1))
    if ahead is None or behind is None:
        return none
    second = [
        weights * (a.finite_log - 2 * here.finite_log + b.finite_log) / DIFFERENCE**2
        for weights, here, a, b in zip(point.weights, point.plans, ahead.plans, behind.plans, strict=True)
    ]
    curve = -0.5 * metric.solve(point.pull_back(second), free, damping)
    scale = metric.scale
    return curve if curve @ (scale * curve) <= (0.5 * MOST_BEND) ** 2 * (step @ (scale * step)) else none


def _left_to_gain(point: Point, metric: Metric, free: Bools) -> float:
    """`½ gᵀ I^{-1} g` on the free parameters."""
    return 0.5 * float(point.gradient @ metric.solve(point.gradient, free, LEAST_DAMPING))


def _step(point: Point, metric: Metric, free: Bools, damping: float) -> Floats:
    """The damped step on the free parameters; those that would leave the bounds go to the bound, and the rest follow."""
    model, x = point.likelihood, point.x
    step, moving = metric.solve(point.gradient, free, damping), free.copy()
    for _ in range(model.n_discounts + model.n_temperatures):
        out = moving & ((x + step < model.lower) | (x + step > model.upper))
        if not out.any():
            break
        moving &= ~out
        step = np.where(moving, 0.0, np.clip(x + step, model.lower, model.upper) - x)
        step += metric.solve(point.gradient - metric.times(step), moving, damping)
    return step
