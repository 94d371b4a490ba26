"""The discounts of largest entropy among those at which every expert is matched within a threshold ε.

    max_Γ Σ_k H_k(Γ)      subject to      −ε ≤ f_k(Γ) − f*_k ≤ ε  in every entry, for every expert k,

with the policies of `matching`. This is how the paper's discussion describes its second algorithm: features are matched "within
some threshold". At ε = 0 only discounts that explain every expert pass. As ε grows, the entropy, which rises with the
discounts, pulls them upward.

The set that passes can have several parts, so the search begins at several points. From each it goes to the least squared
mismatch nearby (SciPy's `least_squares`), and from there, with ε opened in the steps of OPENING, it climbs by linear programs in
a trust region, which use the exact derivatives of `matching`. The answer is mostly a corner, where as many constraints are tight
as there are discounts; there such steps converge as fast as Newton's. SciPy's SLSQP took 500 evaluations where these take 20.
A climb ends when a step promises less than GAIN. Every point tried is recorded, and the best that passes is the answer. What a
further step of NEARBY in each discount still promises there is the evidence that it is one (`entropy_within_reach`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import least_squares, linprog
from scipy.stats import qmc

from multihorizon.checks import Floats
from multihorizon.entropy.matching import Matching
from multihorizon.progress import Progress
from multihorizon.solution import Trace
from multihorizon.tolerances import ENDLESS_DISCOUNT

#: Up to this many times the wanted starts are tried while no discounts pass.
MORE_STARTS = 5
#: Discounts that differ by no more than this count as one start.
SAME = 1e-5
#: Shares of ε for a sequence of climbs, each of which begins where the one before it ended.
OPENING = (0.03, 0.06, 0.125, 0.25, 0.5, 1.0)
#: A step that promises less entropy than this ends a climb.
GAIN = 1e-8
#: Steps after which a climb is given up.
MAX_STEPS = 150
#: How far around the answer it is checked that no discounts are better.
NEARBY = 1e-3
#: The largest step of one discount, and the one at which a climb ends.
FIRST_RADIUS, SMALLEST_RADIUS = 0.1, 1e-7
#: The penalty, in entropy, of a mismatch of twice the threshold: more than a wider threshold could add.
PENALTY = 10.0
#: The climb aims at this share of ε, so that what it finds still passes when the inner problem is solved afresh.
AIM = 0.999
#: The share of ε up to which points of a climb compete: its corners do, and what it tried beyond them does not.
COMPETING = 0.99901


class UnmatchedError(Exception):
    """The inner problem could not be solved at some Γ, so the climb through it ends."""


@dataclass
class Climb:
    """Climbs over Γ and all the points they tried."""

    evaluate: Callable[[Floats, Floats | None], Matching | None]
    threshold: float
    begin: float = field(default_factory=time.perf_counter)
    points: list[Floats] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    _last: Matching | None = None

    def at(self, discounts: Floats) -> Matching:
        """Match at Γ, starting from the reward of the point before; the same Γ twice in a row costs nothing."""
        if self._last is not None and np.array_equal(discounts, self.points[-1]):
            return self._last
        found = self.evaluate(discounts, None if self._last is None else self._last.found.point.theta)
        self.points.append(np.array(discounts))
        self.values.append(np.nan if found is None else score(found.entropy, found.largest, COMPETING * self.threshold))
        self.seconds.append(time.perf_counter() - self.begin)
        self._last = found
        if found is None:
            raise UnmatchedError
        return found

    def nearest(self, start: Floats) -> Floats:
        """The discounts near `start` at which the squared mismatch is least."""
        found = least_squares(
            lambda x: self.at(x).mismatch.ravel(),
            start,
            lambda x: self.at(x).derivative.reshape(-1, start.size),
            bounds=(0.0, ENDLESS_DISCOUNT),
            max_nfev=30,
        )
        return np.asarray(found.x, dtype=np.float64)

    def rise(self, discounts: Floats, threshold: float) -> Floats:
        """The discounts of largest entropy near some that pass, within a threshold, by linear programs in a trust region.

        A step whose linear constraints were too far off is corrected once by what the mismatch at its end turned out to be.
        """
        aim, radius, here = AIM * threshold, FIRST_RADIUS, self.at(discounts)
        for _ in range(MAX_STEPS):
            step, promised = _linear_step(here, here.mismatch, discounts, aim, radius)
            if promised <= GAIN or radius <= SMALLEST_RADIUS:
                break
            moved, there = self._try(discounts + step)
            kept = _gain(here, there, aim) / promised
            if there is not None and kept < 0.5:
                bent = there.mismatch - here.derivative @ (moved - discounts)
                corrected, nearer = self._try(discounts + _linear_step(here, bent, discounts, aim, radius)[0])
                if _gain(here, nearer, aim) > kept * promised:
                    moved, there, kept = corrected, nearer, _gain(here, nearer, aim) / promised
            radius = min(2 * radius, FIRST_RADIUS) if kept > 0.75 else radius if kept > 0.25 else radius / 3
            if there is not None and kept > 0:
                discounts, here = moved, there
        return discounts

    def _try(self, discounts: Floats) -> tuple[Floats, Matching | None]:
        """The discounts within their bounds, and the matching there if it could be solved."""
        inside = np.clip(discounts, 0.0, ENDLESS_DISCOUNT)
        try:
            return inside, self.at(inside)
        except UnmatchedError:
            return inside, None

    def trace(self) -> Trace:
        """Everything tried, in order."""
        return Trace(np.array(self.points), np.array(self.values), np.array(self.seconds))


def score(entropy: float, mismatch: float, threshold: float) -> float:
    """The entropy of discounts that pass; minus the mismatch in units of the threshold where they do not."""
    return entropy if mismatch <= threshold else -mismatch / threshold


def _merit(found: Matching, threshold: float) -> float:
    """The entropy less a penalty of what goes beyond the threshold."""
    return found.entropy - PENALTY * max(0.0, found.largest / threshold - 1)


def _gain(here: Matching, there: Matching | None, threshold: float) -> float:
    return -np.inf if there is None else _merit(there, threshold) - _merit(here, threshold)


def _linear_step(here: Matching, base: Floats, discounts: Floats, threshold: float, radius: float) -> tuple[Floats, float]:
    """The step that raises the linearised merit most within the radius, and by how much; `base` is the mismatch of no step."""
    width = discounts.size
    mismatch = base.ravel() / threshold
    change = here.derivative.reshape(-1, width) / threshold
    beyond = -np.ones((mismatch.size, 1))
    found = linprog(
        np.append(-here.entropy_gradient, PENALTY),
        A_ub=np.block([[change, beyond], [-change, beyond]]),
        b_ub=np.concatenate([1 - mismatch, 1 + mismatch]),
        bounds=[
            *zip(np.maximum(-radius, -discounts), np.minimum(radius, ENDLESS_DISCOUNT - discounts), strict=True),
            (0.0, None),
        ],
        method="highs",
    )
    if found.x is None:
        return np.zeros(width), 0.0
    promised = -found.fun + PENALTY * max(0.0, here.largest / threshold - 1)
    return np.asarray(found.x[:-1], dtype=np.float64), float(promised)


def entropy_within_reach(here: Matching, discounts: Floats, threshold: float) -> float:
    """How much more entropy discounts nearby promise to first order; 0 at the answer."""
    return _linear_step(here, here.mismatch, discounts, max(AIM * threshold, here.largest), NEARBY)[1]


def halton_starts(starts: int, n_experts: int, seed: int) -> Floats:
    """Points `(n,K)` spread over the discounts: the wanted starts, and more for where nothing passes."""
    points = qmc.Halton(n_experts, seed=seed).random(MORE_STARTS * starts)
    return np.asarray(ENDLESS_DISCOUNT * points, dtype=np.float64)


def climb(climbing: Climb, starts: Floats, wanted: int, progress: Progress) -> Trace:
    """From the least mismatch near each start, climb in entropy: once as ε opens step by step, and once with all of ε.

    The first `wanted` starts are used, and more until some discounts pass.
    """
    seen: list[Floats] = []
    for number, start in enumerate(starts):
        if number >= wanted and seen:
            break
        # Where the inner problem cannot be solved, the next start goes on.
        with suppress(UnmatchedError):
            found = climbing.nearest(start)
            if climbing.at(found).largest <= climbing.threshold and _open(climbing, found, seen):
                climbing.rise(found, climbing.threshold)
        progress(min(1.0, (number + 1) / wanted), f"MPMCE: best {np.fmax.reduce(climbing.values):.6g}")
    return climbing.trace()


def _open(climbing: Climb, discounts: Floats, seen: list[Floats]) -> bool:
    """Climb with ε opened step by step; stop where an earlier climb has been, and say whether this one went its own way."""
    for share in OPENING:
        discounts = climbing.rise(discounts, share * climbing.threshold)
        if any(np.abs(discounts - other).max() <= SAME for other in seen):
            return False
        seen.append(discounts)
    return True
