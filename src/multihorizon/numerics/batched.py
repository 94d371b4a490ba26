"""Many small problems at once: the maximum of each of n functions of p parameters, and the ends of their profiles.

The problems have nothing in common but the arithmetic. Each has a damping and a step size, and those that have converged are not
evaluated again. An evaluation at a place x returns the value, the gradient g and a curvature M, positive or nearly so.

*Maximum.* Newton's step solves `(M + μD) δ = g`, D the diagonal of M, inside bounds: a parameter that would pass a bound goes
there, and the others follow. The step is accepted where the value rises by a fair share of the predicted gain. Otherwise μ grows,
or, on request, the step is halved. M may be the Fisher information, which leaves out how the model itself is curved. Then what
the secant of each step shows of the true curvature is added, where that leaves M positive: the last steps are those of Newton. A
problem has converged where the predicted gain `½ gᵀM⁻¹g` is below `gain` or below the last digits of the value, or where the
gradient allows next to no gain between the bounds.

*Ends of a profile*, for two parameters. With v the second parameter maximised out, `L(g) = max_v ℓ(g,v)`. The end is where the
signed root `r(g) = √(2 (ℓ̂ − L(g)))` reaches a target. At (g,v) a step in v gains `½ ℓ_v²/M_vv` and moves ℓ_g by `−M_gv ℓ_v/M_vv`;
with these r and its slope `−ℓ_g/r` are known without an inner search, and Newton's method on r moves g and v together (Venzon and
Moolgavkar, 1988). Places that are known to be inside and outside keep it between them. Where v is far from its maximum, v is
maximised first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from multihorizon.checks import TINY, Bools, Floats, Ints
from multihorizon.numerics.newton import FIRST_DAMPING, LEAST_DAMPING


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
    """Where the searches ended `(n,p)`, the evaluations there, the numbers of steps, and which searches converged."""

    places: Floats
    here: Local
    steps: Ints
    finished: Bools


def resting(here: Local, places: Floats, lower: Floats, upper: Floats) -> Bools:
    """Mark parameters `(n,p)` on a bound which the gradient pushes outwards."""
    mask: Bools = ((places <= lower) & (here.gradient <= 0)) | ((places >= upper) & (here.gradient >= 0))
    return mask


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


def _step(here: Local, places: Floats, lower: Floats, upper: Floats, free: Bools, damping: Floats) -> Floats:
    """Return the damped step; a parameter that would leave the bounds goes to the bound, and the others follow."""
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
    seen, predicted = (fell * step).sum(axis=1), (expected * step).sum(axis=1)
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
        now, own, low, high = here.with_curvature(secants).of(who), places[who], lower[who], upper[who]
        free = ~resting(now, own, low, high)
        left = _gain(now, free, least[who])
        done = (left < gain) | (_reach(now, low, high, free) < 1e-8)
        finished[who[done]] = True
        going = ~done
        who, now, left = who[going], now.of(going), left[going]
        own, low, high, free = own[going], low[going], high[going], free[going]
        if not who.size:
            break
        step = _step(now, own, low, high, free, damping[who])
        step *= (share[who] / np.maximum(1.0, np.abs(step).max(axis=1, initial=0.0) / longest))[:, None]
        promised = (now.gradient * step).sum(axis=1) - 0.5 * np.einsum("ni,nij,nj->n", step, now.curvature, step)
        there = at(who, own + step)
        steps[who] += 1
        gained = there.value - now.value
        # where less is predicted than the last digits can show, a step must leave less to gain
        tiny = (promised > 0) & (promised < 1e-13 * np.maximum(1.0, np.abs(now.value)))
        rest = _gain(there, ~resting(there, own + step, low, high), least[who])
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
    finished |= np.isfinite(here.value) & (_reach(here, lower, upper, ~resting(here, places, lower, upper)) < 1e-4)
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
            ends = maximize_many(partial(of_some, at, some), own[far], least, most, gain=gain)
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
