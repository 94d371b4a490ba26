"""The search for the most likely look-ahead of one family, begun at the fit with discounts.

The reward, the temperatures and how they are held are taken over from the exponential fit, so that families differ in nothing
but their weights. Given these, persons are independent: each begins at the most likely of the values their family tries. Then all
is climbed together (`ascent.py`), and each person is offered the tried values again, until nobody gains.

A depth is a whole number and is not climbed: it is the most likely of 1, …, H, each with the temperature that suits it where the
person has one of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from multihorizon.checks import Floats
from multihorizon.likelihood.ascent import Ascent, climb
from multihorizon.likelihood.fit import POLISHED_GAIN, POLISHING_STEPS
from multihorizon.likelihood.likelihood import Point
from multihorizon.likelihood.temperatures import without_level
from multihorizon.likelihood.weighted_likelihood import WeightedLikelihood, WeightedPoint
from multihorizon.lookahead import Depth, Lookahead
from multihorizon.mdp import MDP
from multihorizon.problem import Problem

#: Tried values are offered again in at most this many rounds; two are usual.
MOST_ROUNDS = 10
#: A tried value must be likelier by this much to be taken.
LEAST_GAIN = 1e-6


@dataclass(frozen=True, eq=False)
class LookaheadFit:
    """The most likely answer of one family; for depths also the log-likelihood `(K,H)` of each."""

    ascent: Ascent
    depth_profile: Floats | None

    @property
    def point(self) -> WeightedPoint:
        """The model at the answer."""
        assert isinstance(self.ascent.point, WeightedPoint)
        return self.ascent.point

    @property
    def model(self) -> WeightedLikelihood:
        """The likelihood that was climbed."""
        return self.point.likelihood


def fit_lookahead(base: Point, family: Lookahead, others: Sequence[WeightedPoint] = ()) -> LookaheadFit:
    """The most likely answer of a family.

    Args:
        base: the answer with discounts.
        family: the family of weights.
        others: answers of other families, at which free weights begin as well.
    """
    likelihood = base.likelihood
    model = WeightedLikelihood(_transitions_as_known(likelihood.problem), family, likelihood.settings, ridge=likelihood.ridge)
    penalty = None if likelihood.penalty is None else likelihood.penalty.without(likelihood.discount_slice, model.n_discounts)
    model = model.holding(penalty, likelihood.ridge)
    starts = [begin_at(model, base)]
    for other in others:
        steps = other.likelihood.family.step_discounts(_of_groups(other), model.steps)[0]
        starts.append(_placed(model, other, steps.T))
    return best_of([search(start) for start in starts])


def best_of(ends: Sequence[LookaheadFit]) -> LookaheadFit:
    """The likeliest end, carried on to the last digits."""
    best = max(ends, key=lambda end: end.point.objective)
    if not best.ascent.finished:
        return best
    finer = climb(best.point, max_steps=POLISHING_STEPS, gain=POLISHED_GAIN)
    return replace(best, ascent=replace(finer, steps=best.ascent.steps + finer.steps, finished=True))


def begin_at(model: WeightedLikelihood, base: Point) -> WeightedPoint:
    """The model at the reward and temperatures of another, with the most likely tried values of each group."""
    some = model.family.tried(model.steps)[[-1]]
    return _offered(_placed(model, base, np.repeat(some, model.n_groups, axis=0)))[0]


def search(start: WeightedPoint) -> LookaheadFit:
    """Climb and offer tried values in turn, until nobody gains by them; unfinished where somebody still does after all rounds."""
    end = climb(start)
    profile = None
    for _ in range(MOST_ROUNDS):
        assert isinstance(end.point, WeightedPoint)
        offered, profile = _offered(end.point)
        if not offered.objective > end.point.objective + LEAST_GAIN:
            break
        further = climb(offered)
        end = replace(further, steps=end.steps + further.steps)
    else:
        end = replace(end, finished=False)
    return LookaheadFit(end, profile)


def _offered(point: WeightedPoint) -> tuple[WeightedPoint, Floats | None]:
    """The point where each group has the likeliest of its own and the tried values; for depths also their profile `(K,H)`."""
    model = point.likelihood
    depths = isinstance(model.family, Depth)
    tried = [_placed(model, point, np.repeat(row[None], model.n_groups, axis=0)) for row in model.family.tried(model.steps)]
    if depths:
        tried = [_own_temperatures(there) for there in tried]
    scores = np.array([person_values(there) for there in tried])
    summed = np.zeros((len(tried), model.n_groups))
    np.add.at(summed.T, model.groups, scores.T)
    own = np.zeros(model.n_groups)
    np.add.at(own, model.groups, person_values(point))
    x = point.x.copy()
    for group in np.flatnonzero(summed.max(axis=0) > own + LEAST_GAIN):
        best = tried[int(summed[:, group].argmax())].x
        for column in _columns(model, int(group), depths):
            x[column] = best[column]
    found = model.at(model.pack(model.reward(x), x[model.discount_slice], np.exp(x[model.temperature_slice])))
    profile = scores.T if depths else None
    return (point if found is None or found.objective < point.objective else found), profile


def _columns(model: WeightedLikelihood, group: int, heats: bool) -> list[int]:
    """The positions in x of a group's coordinates, and of its temperatures where those are its alone."""
    members = np.flatnonzero(model.groups == group)
    columns: list[int] = model.columns_of(int(members[0])).tolist()
    for heat in np.unique(model.temperature_groups[members]) if heats else ():
        if np.isin(np.flatnonzero(model.temperature_groups == heat), members).all():
            columns.append(model.temperature_slice.start + int(heat))
    return columns


def _own_temperatures(point: WeightedPoint) -> WeightedPoint:
    """The point with the most likely temperatures at its reward and depths, where they are free.

    The reward sets the scale here, so the temperatures' common level is not held.
    """
    model = point.likelihood
    held = np.ones(model.size, dtype=np.bool_)
    held[model.temperature_slice] = False
    if (held | model.fixed).all():
        return point
    start = model.holding(without_level(model), model.ridge).at(point.x)
    assert start is not None
    found = climb(start, held).point
    assert isinstance(found, WeightedPoint)
    return found


def _placed(model: WeightedLikelihood, base: Point, coordinates: Floats) -> WeightedPoint:
    """The model at the reward and temperatures of another, and at these coordinates `(G,m)`."""
    likelihood = base.likelihood
    x = np.concatenate([likelihood.reward(base.x), coordinates.ravel(), base.x[likelihood.temperature_slice]])
    point = model.at(np.clip(x, model.lower, model.upper))
    if point is None:
        raise ValueError("the values of the task must be finite under the reward that fits best, received infinite ones")
    return point


def _of_groups(point: WeightedPoint) -> Floats:
    """The coordinates of each group `(G,m)`."""
    model = point.likelihood
    return point.x[model.discount_slice].reshape(model.n_groups, model.n_coordinates)


def person_values(point: WeightedPoint) -> Floats:
    """The log-likelihood of each expert's decisions `(K,)`."""
    total = np.zeros(point.likelihood.problem.n_experts)
    for batch, plan in zip(point.likelihood.batches, point.plans, strict=True):
        np.add.at(total, batch.owners, (batch.counts * plan.finite_log).sum(axis=(0, 1)))
    return total


def _transitions_as_known(problem: Problem) -> Problem:
    """The problem without the errors of estimated transitions, which are not carried through these plans."""
    twins: dict[int, MDP] = {}
    for expert in problem.experts:
        twin = copy.copy(expert.mdp)
        object.__setattr__(twin, "sample_sizes", None)
        twins.setdefault(id(expert.mdp), expert.mdp if expert.mdp.sample_sizes is None else twin)
    return problem.with_experts(replace(expert, mdp=twins[id(expert.mdp)]) for expert in problem.experts)
