"""Ascent by linear programs in a trust region, for functions with kinks (SciPy's trust regions take smooth ones).

At a point the function is replaced by a linear program that is exact nearby. Its best step within the radius promises a gain. The
step is tried, and taken if the function rises. The radius then follows the ratio of the rise to the promise.

An ascent has converged when the best step promises no more than `least_gain`, or when the radius is no larger than `smallest`. A
program without an answer is tried again in a quarter of the radius. An ascent that ends because of such programs has not
converged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from multihorizon.checks import Floats

Place = TypeVar("Place")


class Step(NamedTuple):
    """The end of a step, its largest entry, the gain that its program promises, and further details for `Maximand.move`."""

    target: Floats
    length: float
    gain: float
    detail: Any = None


class Maximand(Protocol[Place]):
    """A function to maximise; a place is all that is known at one point of it."""

    def ended(self, place: Place) -> bool:
        """Say whether there is no reason to go on from here."""
        ...

    def step(self, place: Place, radius: float) -> Step | None:
        """Return the best step of the linear program, or None where it has no answer."""
        ...

    def least_gain(self, place: Place) -> float:
        """Return the gain up to which a step is not worth taking."""
        ...

    def move(self, place: Place, step: Step) -> tuple[Place, float]:
        """Return the place a step leads to and the rise to there; NaN where that could not be computed."""
        ...


def next_radius(radius: float, length: float, ratio: float) -> float:
    """Return a quarter of a step that failed; twice the radius, up to 1, if the step was good and filled the region."""
    if ratio < 0.1:
        return min(radius, length) / 4
    return min(1.0, 2 * radius) if ratio > 0.5 and length > 0.9 * radius else radius


def maximise(
    function: Maximand[Place],
    place: Place,
    radius: float,
    smallest: float,
    max_steps: int,
    next_radius: Callable[[float, float, float], float] = next_radius,
) -> tuple[Place, bool]:
    """Maximise from a place; return the last place, and whether the ascent converged there.

    Args:
        function: the function.
        place: where to begin.
        radius: the first radius.
        smallest: an ascent whose radius is no larger has converged.
        max_steps: the largest number of steps.
        next_radius: returns the next radius from the radius, the length of the step, and the ratio of the rise to the promise.
    """
    hindered = False
    for _ in range(max_steps):
        if function.ended(place):
            break
        if radius <= smallest:
            return place, not hindered
        step = function.step(place, radius)
        if step is None:
            radius = radius / 4
            hindered = True
            continue
        if step.gain <= function.least_gain(place):
            return place, not hindered
        there, rise = function.move(place, step)
        ratio = -np.inf if np.isnan(rise) else rise / step.gain
        hindered = bool(np.isnan(rise)) or (hindered and not ratio > 0)
        radius = next_radius(radius, step.length, ratio)
        place = there if ratio > 0 else place
    return place, False
