"""Climbing a likelihood inside bounds: damped Fisher scoring, or L-BFGS-B where neither a matrix nor products are at hand.

The climb is that of `numerics.newton` with the Fisher information, the curvature that a correct model has on average. Where
reward and discount nearly trade off, the likelihood is a long bent ridge, and steps follow the bend of `f = log π`. A climb stops
where less log-likelihood is promised than a ten-millionth of what moves a confidence interval. Whether that is convergence is for
the caller to see from `ChoicePoint.projected_gradient`, recomputed at the answer.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.choice.model import ChoicePoint
from multihorizon.choice.tabular import Likelihood, Point
from multihorizon.numerics import newton
from multihorizon.numerics.newton import Ascent, Metric, Tolerances
from multihorizon.parallel import Progress, silent
from multihorizon.words import decimals

P = TypeVar("P", bound=ChoicePoint)

#: The projected gradient per decision at or below which an answer counts as converged.
CONVERGED_GRADIENT = 1e-5


def climb(
    start: P,
    fixed: Bools | None = None,
    max_steps: int = 300,
    gain: float = 1e-7,
    metric: Metric | None = None,
    progress: Progress = silent,
    worth: float = -np.inf,
) -> Ascent[P]:
    """Climb from `start` to a local maximum of the objective.

    Args:
        start: where to begin.
        fixed: mask of parameters that stay as they are, besides those that are known.
        max_steps: steps after which the climb is broken off.
        gain: stop when less than this is promised.
        metric: curvature at a neighbouring maximum, with which to begin; without it, the stop is confirmed by a new one.
        progress: called after each step, with its number and the log-likelihood.
        worth: break the climb off where it cannot be expected to reach this objective.
    """
    held = start.likelihood.fixed if fixed is None else start.likelihood.fixed | fixed
    start = start.without_derivatives()  # the caller may keep many starts

    def report(steps: int, point: P) -> None:
        progress(steps / max_steps, f"step {steps}: log-likelihood {decimals(point.value, 2)}")

    if start.likelihood.is_large and not isinstance(start, Point):
        end = _quasi_newton(start, held, max_steps, progress)
    else:
        shown = None if progress is silent else report
        end = newton.climb(start, held, Tolerances(gain, max_steps, worth), metric, shown)
        model, left = end.point.likelihood, max_steps - end.steps
        if not end.finished and left and isinstance(model, Likelihood) and model.by_products and not model.is_large:
            # Steps by products are inexact, and on a flat ridge none of them may rise. There the matrix is worth its time.
            again = cast(P, replace(cast(Any, end.point), likelihood=model.by_matrix()))
            more = newton.climb(again, held, Tolerances(gain, left), None, shown)
            end = replace(more, steps=end.steps + more.steps)
    return replace(end, point=end.point.without_derivatives())


def left_to_gain(point: ChoicePoint, fixed: Bools) -> float:
    """What a climb from here promises where these parameters stay as they are."""
    free = ~(point.likelihood.fixed | fixed | newton.resting(point))
    return newton.left_to_gain(point, point.metric(), free)


def at_maximum(point: ChoicePoint, residual: float) -> bool:
    """Return whether the projected gradient per decision is small or, where the likelihood is so steep that rounding keeps the
    gradient from that, whether a step by Newton's method promises no more than the gain at which climbs stop.
    """
    return residual <= CONVERGED_GRADIENT or left_to_gain(point, np.zeros(point.x.size, dtype=np.bool_)) <= 1e-7


def polished(end: Ascent[P], max_steps: int = 20, gain: float = 1e-13) -> Ascent[P]:
    """The same end with the last digits of its parameters, which a flat likelihood leaves open."""
    if not end.finished:
        return end
    finer = climb(end.point, max_steps=max_steps, gain=gain, metric=end.metric)
    return Ascent(finer.point, end.steps + finer.steps, True, finer.metric)


def _quasi_newton(start: P, held: Bools, max_steps: int, progress: Progress) -> Ascent[P]:
    """The best point that L-BFGS-B reaches; five of its iterations stand for one step of Fisher scoring."""
    from scipy.optimize import minimize  # noqa: PLC0415  it takes longer to import than a small fit takes

    model, free, most = start.likelihood, ~held, 5 * max_steps
    best = last = start

    def negative(z: Floats) -> tuple[float, Floats]:
        nonlocal best, last
        x = start.x.copy()
        x[free] = z
        point = last.moved(x)
        if point is None:
            return np.inf, np.zeros(z.size)
        last = point
        best = point if point.objective > best.objective else best
        return -point.objective / model.decisions, -point.gradient[free] / model.decisions

    steps = itertools.count(1)

    def report(_: Floats) -> None:
        number = next(steps)
        progress(number / most, f"step {number}: log-likelihood {decimals(best.value, 2)}")

    bounds = list(zip(model.lower[free], model.upper[free], strict=True))
    options = {"maxiter": most, "maxcor": 30, "ftol": 1e-14, "gtol": 1e-7}
    end = minimize(negative, start.x[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=report)
    return Ascent(best, int(end.nit), bool(end.success), None)
