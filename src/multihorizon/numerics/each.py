"""Many small problems at once: for each person the maximum of a function of two parameters, and the ends of its profile.

Persons have nothing in common but the arithmetic, so each has a damping, a step and an end of their own, and those who have
arrived are not asked again. What is asked of a person at a place u is the value, the gradient g and a curvature M, positive or
nearly so.

*Maximum.* The step solves `(M + μD) δ = g`, D the diagonal of M, inside bounds: a parameter that would pass a bound goes there,
and the other follows. It is taken where the value rises by a fair share of what is promised; otherwise μ grows. M may be the
Fisher information, which leaves out how the model itself is curved. So the secant of the last step is added (of rank one, as
Broyden, 1967), where that leaves M positive: the last steps are then those of Newton. A climb ends where less than `gain` is
promised, or less than the last digits of the value can show, or where the gradient promises next to nothing between the bounds.

*Ends of a profile.* With v the second parameter maximised out, `L(g) = max_v ℓ(g,v)`, and the end is where the signed root
`r(g) = √(2 (ℓ̂ − L(g)))` reaches a target. At (g,v) one step in v promises `½ ℓ_v²/M_vv` more and moves ℓ_g by
`−M_gv ℓ_v/M_vv`; with these r and its slope `−ℓ_g/r` are known without an inner search, and Newton's method on r moves g and v
together (Venzon and Moolgavkar, 1988). Places that are known to be inside and outside keep it between them. Where v is far from
its maximum, it is climbed to first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.numerics.newton import FIRST_DAMPING, LEAST_DAMPING


@dataclass(frozen=True, eq=False)
class Local:
    """Values `(n,)`, gradients `(n,2)` and curvatures `(n,2,2)` of persons, each at a place; −inf where there is no value."""

    value: Floats
    gradient: Floats
    curvature: Floats

    def put(self, who: Ints, other: Local, some: Bools) -> None:
        """Take over what is known of some of the persons `who`."""
        for name in ("value", "gradient", "curvature"):
            getattr(self, name)[who[some]] = getattr(other, name)[some]

    def with_curvature(self, added: Floats) -> Local:
        """The same with so much more curvature."""
        return Local(self.value, self.gradient, self.curvature + added)

    def of(self, who: Ints | Bools) -> Local:
        """The same of some persons."""
        return Local(self.value[who], self.gradient[who], self.curvature[who])


#: What is known of the persons `(m,)` at places `(m,2)`.
At = Callable[[Ints, Floats], Local]


@dataclass(frozen=True, eq=False)
class Ends:
    """Where climbs ended `(n,2)`, what is known there, how many steps they took, and whether nothing was left to gain."""

    places: Floats
    here: Local
    steps: Ints
    finished: Bools


def resting(here: Local, places: Floats, lower: Floats, upper: Floats) -> Bools:
    """Parameters `(n,2)` on a bound which the gradient pushes outwards."""
    mask: Bools = ((places <= lower) & (here.gradient <= 0)) | ((places >= upper) & (here.gradient >= 0))
    return mask


def _solved(matrix: Floats, b: Floats, free: Bools, damping: Floats) -> Floats:
    """δ `(n,2)` with `(M + μD) δ = b` in the free parameters, 0 elsewhere and in those without information."""
    diagonal = np.diagonal(matrix, axis1=1, axis2=2)
    free = free & (diagonal > 0)
    scale = np.maximum(diagonal, 1e-10 * diagonal.max(axis=1, keepdims=True))
    both = free[:, 0] & free[:, 1]
    own = np.where(free, (1 + damping[:, None]) * scale, 1.0)
    across = np.where(both, matrix[:, 0, 1], 0.0)
    rest = np.where(free, b, 0.0)
    determinant = own[:, 0] * own[:, 1] - across**2
    determinant = np.where(determinant > 0, determinant, np.inf)
    found: Floats = (
        np.stack([own[:, 1] * rest[:, 0] - across * rest[:, 1], own[:, 0] * rest[:, 1] - across * rest[:, 0]], axis=1)
        / determinant[:, None]
    )
    return np.where(free, found, 0.0)


def _step(here: Local, places: Floats, lower: Floats, upper: Floats, free: Bools, damping: Floats) -> Floats:
    """The damped step; what would leave the bounds goes to the bound, and the other parameter follows."""
    step, moving = _solved(here.curvature, here.gradient, free, damping), free.copy()
    for _ in range(2):
        out = moving & ((places + step < lower) | (places + step > upper))
        moving &= ~out
        held = np.where(moving, 0.0, np.clip(places + step, lower, upper) - places)
        left = here.gradient - (here.curvature @ held[:, :, None])[:, :, 0]
        step = np.where(moving, _solved(here.curvature, left, moving, damping), held)
    found: Floats = np.clip(places + step, lower, upper) - places
    return found


def _secant(before: Local, there: Local, step: Floats, kept: Floats) -> Floats:
    """What the secant of a step adds to the curvature there `(n,2,2)`, with what was `kept` from earlier ones."""
    missing = before.gradient - there.gradient - ((there.curvature + kept) @ step[:, :, None])[:, :, 0]
    along = (missing * step).sum(axis=1)
    sure = np.abs(along) > 1e-6 * np.linalg.norm(missing, axis=1) * np.linalg.norm(step, axis=1)
    added = kept + missing[:, :, None] * missing[:, None, :] / np.where(sure, along, np.inf)[:, None, None]
    found, own = there.curvature + added, np.diagonal(there.curvature, axis1=1, axis2=2)
    positive = (np.diagonal(found, axis1=1, axis2=2) >= 0.1 * own).all(axis=1)
    positive &= np.linalg.det(found) >= 0.05 * np.linalg.det(there.curvature)
    return np.where(positive[:, None, None], added, 0.0)


def climb_each(at: At, places: Floats, lower: Floats, upper: Floats, gain: float, max_steps: int = 300) -> Ends:
    """Climb from `places` `(n,2)` to a maximum of each person, between bounds `(n,2)`."""
    n, places = len(places), places.copy()
    here = at(np.arange(n), places)
    steps, finished, damping = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.bool_), np.full(n, FIRST_DAMPING)
    who = np.flatnonzero(np.isfinite(here.value))
    least, secants = np.full(n, LEAST_DAMPING), np.zeros((n, 2, 2))
    for _ in range(max_steps):
        now, own, low, high = here.with_curvature(secants).of(who), places[who], lower[who], upper[who]
        free = ~resting(now, own, low, high)
        left = 0.5 * (now.gradient * _solved(now.curvature, now.gradient, free, least[who])).sum(axis=1)
        done = (left < gain) | (_reach(now, low, high, free) < 1e-8)
        finished[who[done]] = True
        going = ~done
        who, now, left = who[going], now.of(going), left[going]
        own, low, high, free = own[going], low[going], high[going], free[going]
        if not who.size:
            break
        step = _step(now, own, low, high, free, damping[who])
        promised = (now.gradient * step).sum(axis=1) - 0.5 * np.einsum("ni,nij,nj->n", step, now.curvature, step)
        there = at(who, own + step)
        steps[who] += 1
        gained = there.value - now.value
        # where less is promised than the last digits can show, a step must leave less to gain
        tiny = (promised > 0) & (promised < 1e-13 * np.maximum(1.0, np.abs(now.value)))
        still = ~resting(there, own + step, low, high)
        rest = 0.5 * (there.gradient * _solved(there.curvature, there.gradient, still, least[who])).sum(axis=1)
        better = np.isfinite(there.value) & (promised > 0) & np.where(tiny, rest < left, gained > 1e-3 * promised)
        secants[who] = np.where(better[:, None, None], _secant(now, there, step, secants[who]), 0.0)
        here.put(who, there, better)
        places[who[better]] += step[better]
        factor = np.where(gained > 0.7 * promised, 0.1, np.where(gained > 0.25 * promised, 1.0, 4.0))
        damping[who] = np.where(better, damping[who] * factor, np.maximum(8 * damping[who], FIRST_DAMPING)).clip(LEAST_DAMPING)
        finished[who[tiny & ~better]] = True
        who = who[(better | ~tiny) & (damping[who] < 1e12)]
    # where a step is smaller than rounding allows, or goes to and fro along a ridge, but nothing is left to gain
    finished |= np.isfinite(here.value) & (_reach(here, lower, upper, ~resting(here, places, lower, upper)) < 1e-4)
    return Ends(places, here, steps, finished)


def _reach(here: Local, lower: Floats, upper: Floats, free: Bools) -> Floats:
    """What the gradient promises between the bounds `(n,)`; on a plateau that counts, where curvatures are rounding."""
    found: Floats = (np.abs(here.gradient) * np.where(free, upper - lower, 0.0)).sum(axis=1)
    return found


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
    """Where each profile of the first parameter ends on one side `(n,)`, and which of the ends were found.

    Args:
        at: what is known of persons at places.
        maxima: where they are `(n,2)`.
        top: what is known there.
        first: the lengths of the first steps `(n,)`.
        target: of r.
        sign: the side.
        lower, upper: bounds `(n,2)`; the end is on the bound where r stays below its target.
        max_steps: the most places that are tried.
    """
    n, bound = len(maxima), upper[:, 0] if sign > 0 else lower[:, 0]
    # the last places that are inside, how v follows g there, and the first ones that are outside
    inside, tilt, outside = maxima.copy(), _loosened(top, maxima, lower, upper).tilt, np.full(n, np.nan)
    places, found, who, stride = inside.copy(), np.zeros(n, dtype=np.bool_), np.arange(n), first.copy()
    places[:, 0] = np.clip(inside[:, 0] + sign * first, lower[:, 0], upper[:, 0])
    places[:, 1] = np.clip(inside[:, 1] + tilt * (places[:, 0] - inside[:, 0]), lower[:, 1], upper[:, 1])
    before = np.full(n, np.nan)  # the last g of each
    for _ in range(max_steps):
        low, high, bad = lower[who], upper[who], np.zeros(who.size, dtype=np.bool_)
        here, own = at(who, places[who]), places[who]
        promised = _loosened(here, own, low, high).promised
        # where g stays, as on its bound, v is climbed to the end: a step without damping may go to and fro
        far = np.isfinite(here.value) & (promised > np.where(own[:, 0] == before[who], 1e-7, 0.02))
        before[who] = own[:, 0]
        if far.any():
            some, fixed = who[far], own[far, :1]
            least, most = (np.concatenate([fixed, side[far, 1:]], axis=1) for side in (low, high))
            gain = 1e-3 if (promised[far] > 0.02).all() else 1e-8
            ends = climb_each(partial(of_some, at, some), own[far], least, most, gain=gain)
            own[far], bad[far] = ends.places, ~ends.finished
            here.put(np.flatnonzero(far), ends.here, np.ones(some.size, dtype=np.bool_))
        loose = _loosened(here, own, low, high)
        bad |= ~np.isfinite(here.value)
        gap = top.value[who] - here.value - loose.promised
        root = np.sqrt(2 * np.maximum(gap, 0.0))
        below = ~bad & (root < target)
        inside[who[below]], tilt[who[below]] = own[below], loose.tilt[below]
        outside[who[~below & ~bad]] = own[~below & ~bad, 0]
        near, beyond = inside[who, 0], outside[who]
        closed, apart = np.isfinite(beyond), np.abs(own[:, 0] - near)
        ended = ~bad & (loose.promised < 1e-7) & ((np.abs(root - target) < 1e-6) | ((own[:, 0] == bound[who]) & below))
        # beyond the end of an interval there may be no value at all
        ended |= (closed & (np.abs(beyond - near) < 1e-9)) | (bad & (apart < 1e-7))
        lost = ~bad & (gap < -1e-3)  # likelier than the maximum, which then is none
        found[who[ended & ~lost]] = True
        # Newton's step on r where it leads outwards; elsewhere twice as far as before, or half as far where there is no value
        with np.errstate(divide="ignore", invalid="ignore"):
            step = -(target - root) * root / loose.slope
        wide = np.where(closed, 0.5 * (beyond - near), sign * 2 * stride[who])
        moved = np.where(np.isfinite(step) & ((step * sign > 0) == below), own[:, 0] + step, near + wide)
        moved = np.where(closed, moved, own[:, 0] + np.clip(moved - own[:, 0], -4 * stride[who], 4 * stride[who]))
        astray = ((moved - near) * sign <= 0) | (closed & ((beyond - moved) * sign <= 0))
        moved = np.clip(np.where(astray, near + wide, moved), low[:, 0], high[:, 0])
        follow = own[:, 1] + loose.step + loose.tilt * (moved - own[:, 0])
        # where there is no value, or one so low that v may have gone astray, v begins at that of the last place inside
        moved = np.where(bad, near + 0.5 * (own[:, 0] - near), moved)
        astray = bad | (root > 2 * target)
        follow = np.where(astray, inside[who, 1] + tilt[who] * (moved - near), follow)
        places[who, 1] = np.clip(follow, low[:, 1], high[:, 1])
        stride[who] = np.maximum(np.abs(moved - own[:, 0]), 1e-6)
        last = np.where(np.abs(own[:, 0] - bound[who]) < 1e-6, bound[who], own[:, 0])
        places[who, 0] = np.where(ended, last, moved)
        who = who[~ended & ~lost]
        if not who.size:
            break
    return places[:, 0], found


def of_some(at: At, some: Ints, who: Ints, places: Floats) -> Local:
    """What is known of some of the persons, who are numbered among themselves."""
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
    loose = ~resting(here, places, lower, upper)[:, 1] & (lower < upper)[:, 1] & (bent > 0)
    bent = np.where(loose, bent, 1.0)
    step = np.clip(places[:, 1] + np.where(loose, pull / bent, 0.0), lower[:, 1], upper[:, 1]) - places[:, 1]
    tilt = np.where(loose, -across / bent, 0.0)
    return _Loosened(step, pull * step - 0.5 * bent * step**2, tilt, slope + tilt * bent * step)
