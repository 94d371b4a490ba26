"""The fit in which some experts have one discount, how many contrasts that gives up, and whether it leaves the discount open.

Where experts have one discount they act alike, and one behaviour alone does not separate a discount from a reward. If the
decisions do not contradict one discount for all, all discounts are possible, however narrow a profile is: along an open direction
the likelihood takes the best of many chances, and no interval that rests on its maximum has its level there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.choice.model import ChoiceModel
from multihorizon.choice.tabular import Point
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.intervals import precision
from multihorizon.numerics.distributions import chi2_sf
from multihorizon.numerics.newton import Ascent

#: The model at given discounts and temperatures with a reward that fits the frequencies.
Begin = Callable[[Any, Floats, Floats], Point | None]
#: A loss of log-likelihood beyond which the hypothesis is rejected whatever further steps would gain (p < 1e-20).
HOPELESS = 100.0


def one_discount_is_open(point: Point, rejected: float, begin: Begin) -> bool:
    """Whether one discount for all is not rejected at this level, and is then not identified."""
    model = point.likelihood
    members = tuple(range(model.n_experts))
    contrasts = contrasts_of(model, members)
    if not contrasts or model.known[model.discount_slice].size - contrasts != 1 or model.is_large:
        return False
    end = with_one_discount(point, members, begin)
    if not end.finished:
        return False
    degrees = degrees_of(point, end.point, members, contrasts)
    statistic = 2 * (point.objective - end.point.objective)
    # Without a rank that is lost, the decisions say as much of one discount as of several: nothing is open.
    return degrees > contrasts and float(chi2_sf(max(statistic, 0.0), degrees)) > rejected


def contrasts_of(model: ChoiceModel, members: tuple[int, ...]) -> int:
    """How many free discounts one shared discount replaces; 0 where nothing can be tested: known ones that differ, say."""
    groups = np.unique(model.groups[list(members)])
    known = model.known[model.discount_slice][groups]
    distinct = np.unique(known[~np.isnan(known)]).size
    return int(np.isnan(known).sum()) - (1 - distinct) if distinct <= 1 else 0


def degrees_of(point: Point, shared: Point, members: tuple[int, ...], contrasts: int) -> int:
    """Contrasts given up and twice the directions that are open under the hypothesis only; 0 where no rank is lost."""
    model = point.likelihood
    discounts = shared.likelihood.discounts(shared.x)
    # The members' discounts are set apart to see the rank of the information where they differ.
    offsets = 0.2 * (np.arange(len(members)) - (len(members) - 1) / 2)
    discounts[list(members)] = np.clip(discounts[list(members)], 0.2, 0.8) + offsets / len(members)
    grouped = np.array([discounts[model.groups == g][0] for g in range(model.n_discounts)])
    temperatures = np.exp(shared.x[shared.likelihood.temperature_slice])
    moved = shared.x[shared.likelihood.transition_slice]
    apart = model.at(model.pack(shared.likelihood.reward(shared.x), grouped, temperatures, moved))
    full, restricted = precision(point if apart is None else apart), precision(shared)
    return contrasts + 2 * max(restricted.nullity - full.nullity, 0) if full.rank > restricted.rank else 0


def with_one_discount(point: Point, members: tuple[int, ...], begin: Begin) -> Ascent[Point]:
    """The maximum with one discount for the members, from the answer's reward and from fits to the frequencies."""
    model = point.likelihood
    restricted = model.sharing(merged_groups(model, members))
    values = np.array([model.discounts(point.x)[restricted.groups == g].mean() for g in range(restricted.n_discounts)])
    temperatures = np.exp(point.x[model.temperature_slice])
    starts = [
        restricted.at(restricted.pack(model.reward(point.x), values, temperatures, point.x[model.transition_slice])),
        begin(restricted, values, temperatures),
    ]
    ends = [climb(start, max_steps=25) for start in starts if start is not None]
    highest = max(end.point.objective for end in ends)
    # Of equally likely ends, take the one with the smaller rewards: where rewards run away, ranks cannot be computed.
    best = min(
        (end for end in ends if end.point.objective >= highest - 1e-3),
        key=lambda end: float(np.linalg.norm(restricted.reward(end.point.x))),
    )
    hopeless = point.objective - best.point.objective > HOPELESS
    return best if best.finished or hopeless else climb(best.point)


def merged_groups(model: ChoiceModel, members: tuple[int, ...]) -> tuple[int, ...]:
    """The groups of discounts with those of the members joined into one, numbered from 0."""
    joined = np.isin(model.groups, model.groups[list(members)])
    return tuple(pd.factorize(np.where(joined, -1, model.groups))[0].tolist())
