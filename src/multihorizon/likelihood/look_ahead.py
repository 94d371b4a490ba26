"""The most likely look-ahead of a family that is not exponential, begun at the fit with discounts, and what it says.

The reward, the temperatures and how they are held are taken over from the exponential fit, so that families differ in nothing
but their weights. Given these, people are independent: each begins at the most likely of the values their family tries. Then all
is climbed together (`ascent`), and each person is offered the tried values again, until nobody gains. A depth is a whole number
and is not climbed: it is the most likely of 1, …, H, each with the temperature that suits it where the person has one of their
own.

A parameter of a family has its error from the Fisher information by the chain rule. Where the decisions say nothing of it (of δ
where β is 0, for example), it is not identified: it is NaN and has no error. Errors take the transitions as known, and the
message says so where they were estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multihorizon.checks import Bools, Floats, first_few
from multihorizon.choice.model import ChoicePoint, Point, temperature_penalty
from multihorizon.choice.weighted import WeightedLikelihood, WeightedPoint
from multihorizon.horizon import Depth, Lookahead, weights_of
from multihorizon.likelihood.estimates import FittedLookahead, LookaheadEstimate, LookaheadEvidence
from multihorizon.likelihood.intervals import precision
from multihorizon.likelihood.search import CONVERGED_GRADIENT, climb, polished
from multihorizon.mdp import MDP
from multihorizon.numerics.newton import Ascent
from multihorizon.numerics.spectrum import spectrum
from multihorizon.problem import Problem
from multihorizon.solution import Solution, Status
from multihorizon.words import decimals, power_of_ten

#: A tried value must be likelier by this much to be taken; values that differ by less are equally likely.
LEAST_GAIN = 1e-6


@dataclass(frozen=True, eq=False)
class LookaheadFit:
    """The most likely answer of one family; for depths also the log-likelihood `(K,H)` of each."""

    ascent: Ascent[WeightedPoint]
    depth_profile: Floats | None

    @property
    def point(self) -> WeightedPoint:
        """Return the model at the answer."""
        return self.ascent.point

    @property
    def model(self) -> WeightedLikelihood:
        """Return the likelihood that was climbed."""
        return self.point.likelihood


def fit_lookahead(base: Point, family: Lookahead, others: Sequence[WeightedPoint] = (), steps: int | None = None) -> LookaheadFit:
    """Return the most likely answer of a family.

    Args:
        base: the answer with discounts.
        family: the family of weights.
        others: answers of other families, at which free weights begin as well.
        steps: how many steps everyone looks ahead; by default as many as the task has.
    """
    likelihood = base.likelihood
    # these plans do not carry the error of estimated transitions
    model = WeightedLikelihood(likelihood.problem.in_tasks(MDP.as_known), family, likelihood.settings, steps=steps)
    penalty = None if likelihood.penalty is None else likelihood.penalty.without(likelihood.discount_slice, model.n_discounts)
    model = model.holding(penalty, likelihood.ridge)
    starts = [_offered(_everyone_at(model, base, family.tried(model.steps)[-1]))[0]]
    for other in others:
        theirs = other.likelihood
        groups = other.x[theirs.discount_slice].reshape(theirs.n_groups, -1)
        starts.append(_placed(model, other, theirs.family.step_discounts(groups, model.steps)[0].T))
    best = max((search(start) for start in starts), key=lambda end: end.point.objective)
    return replace(best, ascent=polished(replace(best.ascent, metric=None)))


def search(start: WeightedPoint, max_rounds: int = 10) -> LookaheadFit:
    """Climb and offer tried values in turn, until nobody gains by them; unfinished where somebody still does after all rounds."""
    end = climb(start)
    profile = None
    for _ in range(max_rounds):
        offered, profile = _offered(end.point)
        if not offered.objective > end.point.objective + LEAST_GAIN:
            break
        further = climb(offered)
        end = replace(further, steps=end.steps + further.steps)
    else:
        end = replace(end, finished=False)
    return LookaheadFit(end, profile)


def _placed(model: WeightedLikelihood, base: ChoicePoint, coordinates: Floats) -> WeightedPoint:
    """Return the model at the reward and temperatures of another, and at these coordinates `(G,m)`."""
    likelihood = base.likelihood
    x = np.concatenate([likelihood.reward(base.x), coordinates.ravel(), base.x[likelihood.temperature_slice]])
    point = model.at(np.clip(x, model.lower, model.upper))
    if point is None:
        raise ValueError("the values of the task must be finite under the reward that fits best, got infinite ones")
    return point


def _everyone_at(model: WeightedLikelihood, base: ChoicePoint, coordinates: Floats) -> WeightedPoint:
    """Return the same where all groups have the same coordinates `(m,)`."""
    return _placed(model, base, np.tile(coordinates, (model.n_groups, 1)))


def _offered(point: WeightedPoint) -> tuple[WeightedPoint, Floats | None]:
    """Return the point where each group has the likeliest of its own and the tried values; for depths also their profile
    `(K,H)`.
    """
    model = point.likelihood
    depths = isinstance(model.family, Depth)
    tried = [_everyone_at(model, point, row) for row in model.family.tried(model.steps)]
    if depths:
        tried = [_own_temperatures(there) for there in tried]
    scores = np.array([model.person_values(there) for there in tried])
    summed = np.array([np.bincount(model.groups, values) for values in scores])
    current = np.bincount(model.groups, model.person_values(point))
    x = point.x.copy()
    for group in np.flatnonzero(summed.max(axis=0) > current + LEAST_GAIN):
        best = tried[int(summed[:, group].argmax())].x
        members = np.flatnonzero(model.groups == group)
        columns = model.columns_of(int(members[0])).tolist()
        for number in np.unique(model.temperature_groups[members]) if depths else ():
            if np.isin(np.flatnonzero(model.temperature_groups == number), members).all():  # it is theirs alone
                columns.append(model.temperature_slice.start + int(number))
        x[columns] = best[columns]
    point_there = model.at(model.pack(model.reward(x), x[model.discount_slice], np.exp(x[model.temperature_slice])))
    return (
        point if point_there is None or point_there.objective < point.objective else point_there
    ), scores.T if depths else None


def _own_temperatures(point: WeightedPoint) -> WeightedPoint:
    """Return the point with the most likely temperatures at its reward and depths, where they are free.

    The reward sets the scale here, so the temperatures' common level is not held.
    """
    model = point.likelihood
    held = np.ones(model.size, dtype=np.bool_)
    held[model.temperature_slice] = False
    if (held | model.fixed).all():
        return point
    penalty = model.penalty
    level = temperature_penalty(model)
    if penalty is not None and level is not None:
        penalty = replace(penalty, matrix=penalty.matrix - level.matrix)
    start = model.holding(penalty, model.ridge).at(point.x)
    assert start is not None
    return climb(start, held).point


def _parameters(fit: LookaheadFit) -> tuple[Floats, Floats, Bools]:
    """Return values, standard errors and what is identified, each `(K,m)`, of a family's parameters. A depth has no standard
    error.
    """
    model, profile = fit.model, fit.depth_profile
    if profile is not None:
        # Depths are no deeper than a person could look; one that is as likely as another depth is not identified.
        deepest = model.person_steps[:, None]
        depths = np.minimum(model.coordinates(fit.point.x), deepest)
        reached = np.where(np.arange(1, model.steps + 1) <= deepest, profile, -np.inf)
        near = reached >= reached.max(axis=1, keepdims=True) - LEAST_GAIN
        identified = near.sum(axis=1, keepdims=True) == 1
        return np.where(identified, depths, np.nan), np.full(depths.shape, np.nan), identified
    values, slopes = model.family.report(model.coordinates(fit.point.x))
    errors = np.zeros_like(values)
    identified = np.ones(values.shape, dtype=np.bool_)
    precise = precision(fit.point)
    assert precise.covariance is not None
    # Not identified is what moves by more than this along a direction without information.
    size = 1e-3 * np.abs(precise.null_space).max(initial=0.0)
    for k, slope in enumerate(slopes):
        columns = model.columns_of(k)
        with np.errstate(invalid="ignore"):  # a weight of 0 is an infinite κ
            errors[k] = np.sqrt(np.diag(slope @ precise.covariance[np.ix_(columns, columns)] @ slope.T))
            identified[k] = ~(np.abs(slope @ precise.null_space[columns]).max(axis=1, initial=0.0) > size)
    return np.where(identified, values, np.nan), np.where(identified & np.isfinite(values), errors, np.nan), identified


def lookahead_counts(model: WeightedLikelihood) -> list[int]:
    """Return how many parameters of look-ahead each group has: no more than a person can look steps ahead, less the first."""
    reach = [int(model.person_steps[model.groups == group].max()) - 1 for group in range(model.n_groups)]
    return [min(model.n_coordinates, steps) for steps in reach]


def lookahead_evidence(fit: LookaheadFit, base: Point) -> dict[str, Any]:
    """Return what `Solution.evidence["lookahead"]` holds."""
    model, likelihood = fit.model, base.likelihood
    names = ("depth",) if fit.depth_profile is not None else model.family.parameters(model.steps)
    tables = [{name: table[:, j].tolist() for j, name in enumerate(names)} for table in _parameters(fit)]
    weights = weights_of(model.family.step_discounts(model.coordinates(fit.point.x), model.steps)[0])
    others = ~likelihood.fixed  # of rewards and temperatures count as many parameters as the decisions determine
    others[likelihood.discount_slice] = False
    return {
        "family": model.family.name,
        **dict(zip(("parameters", "standard_errors", "identified"), tables, strict=True)),
        "weights": [row[:steps].tolist() for row, steps in zip(weights, model.person_steps, strict=True)],
        "steps": model.person_steps.tolist(),
        "depth_profile": None if fit.depth_profile is None else fit.depth_profile.tolist(),
        "parameter_count": spectrum(base.information[np.ix_(others, others)]).rank + sum(lookahead_counts(model)),
    }


def lookahead_solution(problem: Problem, fit: LookaheadFit, base: Point, ridge_reason: str) -> Solution:
    """Return the solution of a fit with weights that are not exponential."""
    point, model = fit.point, fit.model
    evidence = lookahead_evidence(fit, base)
    identified = all(all(column) for column in evidence["identified"].values())
    residual = point.projected_gradient()
    converged = fit.ascent.finished and residual <= CONVERGED_GRADIENT
    status = Status.CONVERGED if converged else Status.NOT_CONVERGED
    why = f"a {model.family.name} look-ahead has no single discount: its parameters are under lookahead"
    return Solution.of(
        "MaximumLikelihood",
        problem,
        LookaheadEstimate(point, why),
        status if identified or not converged else Status.NOT_IDENTIFIED,
        _message(problem, fit, evidence, residual),
        objective=point.value,
        residual=residual,
        evidence=LookaheadEvidence(
            log_likelihood=point.value,
            decisions=model.decisions,
            lookahead=FittedLookahead(**evidence),
            no_discount=why,
            ridge_weights=model.ridge.tolist(),
            ridge_reason=ridge_reason,
            steps=fit.ascent.steps,
        ),
    )


def _message(problem: Problem, fit: LookaheadFit, evidence: dict[str, Any], residual: float) -> list[str]:
    model = fit.model
    parts = [
        f"Log-likelihood {decimals(fit.point.value, 2)} of {decimals(model.decisions, 0)} decisions with "
        f"{model.family.name} look-ahead, "
        f"gradient {power_of_ten(residual)} per decision."
    ]
    for name, column in evidence["identified"].items():
        unknown = [expert for expert, is_identified in zip(problem.names, column, strict=True) if not is_identified]
        if unknown:
            parts.append(f"The decisions do not show {name} of {first_few(unknown)}.")
    if any(mdp.sample_sizes is not None for mdp in problem.mdps):
        parts.append("Standard errors take the estimated transitions as known.")
    if not fit.ascent.finished:
        parts.append("The optimiser stopped before converging: do not use this answer.")
    return parts
