"""Several maxima: climbs that do not all end on the same one, and the profile over each discount beside the answer.

A likelihood of decisions may have several maxima, mostly at discounts far apart: a short-sighted expert with one reward explains
much of what a far-sighted one does with another. Starts are valued with a rough reward, which may be best at a discount where the
maximum is not. So the answer of a search is compared with the profile over each discount, `max {L : γ_k = g}` at a few g of all
sizes: where that comes near to the answer or exceeds it, everything is let go and climbed from there. A climb that cannot be
expected to come near is broken off after few steps, so that most places cost little.

Maxima that are within a confidence interval's reach of the answer are *rivals*: part of what the decisions leave open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from multihorizon.checks import TINY, Floats, first_few
from multihorizon.choice.model import ChoicePoint
from multihorizon.likelihood.ascent import P, climb
from multihorizon.numerics.distributions import chi2_ppf
from multihorizon.numerics.newton import Ascent
from multihorizon.parallel import Progress, silent
from multihorizon.words import decimals

#: Where the profile over a discount is looked at, as shares of the largest discount.
LEVELS = (0.05, 0.5, 0.8, 0.95, 0.99)
#: Between which shares of the largest discount it is middling.
THIRDS = (0.33, 0.75)
#: How much less likely than the answer a maximum may be and be kept: more than the reach of an interval of 99.99 %.
WITHIN = 8.0
#: Ends whose discounts differ by no more are one.
SAME = 0.02
#: Of more discounts than this only those are moved which at the answer's reward are about as likely elsewhere.
FEW_DISCOUNTS = 6


def ranked(ends: Sequence[Ascent[P]]) -> list[Ascent[P]]:
    """The ends, the most likely first."""
    return sorted(ends, key=lambda end: -end.point.objective)


def distinct(ends: Sequence[Ascent[P]]) -> list[Ascent[P]]:
    """The ends with different discounts, the most likely first; of those with about the same discounts the most likely."""
    kept: list[Ascent[P]] = []
    for end in ranked(ends):
        if all(_distance(end.point, other.point) > SAME for other in kept):
            kept.append(end)
    return kept


def elsewhere(ends: Sequence[Ascent[P]], point: P) -> list[Ascent[P]]:
    """The distinct ends with other discounts than this point's, the most likely first."""
    return [end for end in distinct(ends) if _distance(end.point, point) > SAME]


def about_rivals(rivals: Sequence[tuple[float, Floats]]) -> list[str]:
    """A sentence on the likeliest other maximum that 95 % intervals reach.

    Of each of them it takes by how much its log-likelihood is lower, and its discounts.
    """
    near = [rival for rival in rivals if 2 * rival[0] <= chi2_ppf(0.95, 1)]
    if not near:
        return []
    missing, discounts = min(near, key=lambda rival: rival[0])
    where = first_few([decimals(discount, 3) for discount in discounts])
    return [
        f"The likelihood has another maximum, lower by only {decimals(missing, 2)}, at the discounts {where}: "
        "intervals reach from the smallest to the largest discount that the decisions allow."
    ]


def _distance(one: ChoicePoint, other: ChoicePoint) -> float:
    """The largest difference of their discounts."""
    return float(np.abs(one.likelihood.discounts(one.x) - other.likelihood.discounts(other.x)).max(initial=0.0))


def spread_over_levels(points: Sequence[P], count: int) -> list[P]:
    """The most likely points, and before them the most likely one with small, middling and large discounts."""
    order = sorted(points, key=lambda point: -point.objective)
    first: dict[int, P] = {}
    for point in order:
        model = point.likelihood
        part = model.discount_slice
        level = float(np.mean(point.x[part] / np.maximum(model.upper[part], TINY)))
        first.setdefault(int(np.digitize(level, THIRDS)), point)
    rest = [point for point in order if all(point is not one for one in first.values())]
    return [*first.values(), *rest[: max(count - len(first), 0)]]


def candidates(top: P, begin: Callable[[Floats], P | None], progress: Progress = silent) -> list[P]:
    """Points on the profiles over the discounts that are about as likely as `top`, or likelier.

    Args:
        top: where the search ended.
        begin: a point to climb from at given discounts, one for each group; None where there is none.
        progress: called after each place.
    """
    model, part = top.likelihood, top.likelihood.discount_slice
    here, largest, near = top.x[part], model.upper[part], []
    places = [
        (group, float(level * largest[group]))
        for group in np.flatnonzero(~model.fixed[part]).tolist()
        for level in _levels_away_from(float(here[group] / largest[group]))
    ]
    if here.size > FEW_DISCOUNTS:
        places = _about_as_likely(top, places)
    for number, (group, discount) in enumerate(places, start=1):
        wanted, held = here.copy(), np.zeros(top.x.size, dtype=np.bool_)
        wanted[group], held[part.start + group] = discount, True
        start = begin(wanted)
        if start is not None:
            there = climb(start, held, max_steps=12, gain=0.1, worth=top.objective - WITHIN).point
            if there.objective > top.objective - WITHIN:
                near.append(there)
        progress(number / len(places), f"profile, place {number} of {len(places)}")
    return near


def _levels_away_from(share: float) -> list[float]:
    """The levels but the nearest, which the answer itself stands for; near 1 a small difference of discounts is a large one."""
    horizons = np.log(np.maximum(1 - np.array([*LEVELS, share]), 1e-3))
    nearest = int(np.abs(horizons[:-1] - horizons[-1]).argmin())
    return [level for i, level in enumerate(LEVELS) if i != nearest]


def _about_as_likely(top: ChoicePoint, places: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The places at which the own decisions of a discount's experts are about as likely as at the answer, given its reward.

    With many experts, one of them hardly moves the reward.
    """
    part, kept = top.likelihood.discount_slice, []
    values = _own_values(top)
    for level in sorted({discount for _, discount in places}):
        x = top.x.copy()
        moved = np.array([group for group, discount in places if discount == level])
        x[part.start + moved] = level
        there = top.moved(x)
        if there is not None:
            own = _own_values(there)
            kept += [(int(group), level) for group in moved if own[group] > values[group] - WITHIN]
    return kept


def _own_values(point: ChoicePoint) -> Floats:
    """The log-likelihood of each discount's experts."""
    model = point.likelihood
    return np.bincount(model.groups, model.person_values(point), model.n_discounts) / 1.0
