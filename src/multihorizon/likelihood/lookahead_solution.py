"""What a fit with weights that are not exponential says: parameters with their errors, and how many there are.

A parameter of a family has its error from the Fisher information by the chain rule. Where the decisions say nothing of it (of δ
where β is 0, for example), it is not identified: it is NaN and has no error. Errors take the transitions as known, and the
message says so where they were estimated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from multihorizon.checks import Bools, Floats, as_level, first_few
from multihorizon.likelihood.ascent import projected_gradient
from multihorizon.likelihood.likelihood import Point
from multihorizon.likelihood.lookahead_fit import LEAST_GAIN, LookaheadFit
from multihorizon.likelihood.precision import precision, scaled_spectrum
from multihorizon.likelihood.weighted_likelihood import WeightedLikelihood
from multihorizon.lookahead import Depth, weights_of
from multihorizon.problem import Problem
from multihorizon.solution import Solution, Status
from multihorizon.tolerances import INFORMATION_RANK_TOLERANCE

#: A parameter that moves by more than this share of the largest movement along a direction without information is not identified.
NULL_SHARE = 1e-3


@dataclass(frozen=True, eq=False)
class Parameters:
    """Values, standard errors and what is identified, each `(K,m)`, of a family's parameters. A depth has no standard error."""

    names: tuple[str, ...]
    values: Floats
    errors: Floats
    identified: Bools

    def columns(self, table: Floats | Bools) -> dict[str, list[Any]]:
        """One list of K entries for each parameter."""
        return {name: table[:, j].tolist() for j, name in enumerate(self.names)}


@dataclass(frozen=True)
class NoIntervals:
    """The intervals of discounts that do not exist."""

    experts: int
    computed: Mapping[float, Floats] = field(default_factory=dict)

    def at(self, level: float) -> Floats:
        """NaN: this look-ahead has no discount."""
        as_level(level)
        return np.full((self.experts, 2), np.nan)


def parameters_of(found: LookaheadFit) -> Parameters:
    """The parameters of each expert's look-ahead."""
    model = found.model
    if isinstance(model.family, Depth):
        return _depths(found)
    values, slopes = model.family.report(model.coordinates(found.point.x))
    errors, identified = np.zeros_like(values), np.ones(values.shape, dtype=np.bool_)
    precise = precision(found.point)
    assert precise.covariance is not None
    size = NULL_SHARE * np.abs(precise.null_space).max(initial=0.0)
    for k, slope in enumerate(slopes):
        own = model.columns_of(k)
        with np.errstate(invalid="ignore"):  # a weight of 0 is an infinite κ
            errors[k] = np.sqrt(np.diag(slope @ precise.covariance[np.ix_(own, own)] @ slope.T))
            identified[k] = ~(np.abs(slope @ precise.null_space[own]).max(axis=1, initial=0.0) > size)
    names = model.family.parameters(model.steps)
    finite = identified & np.isfinite(values)
    return Parameters(names, np.where(identified, values, np.nan), np.where(finite, errors, np.nan), identified)


def _depths(found: LookaheadFit) -> Parameters:
    """Depths, no deeper than a person could look; one that is as likely as another depth is not identified."""
    model, profile = found.model, found.depth_profile
    assert profile is not None
    deepest = model.person_steps[:, None]
    depths = np.minimum(model.coordinates(found.point.x), deepest)
    reached = np.where(np.arange(1, model.steps + 1) <= deepest, profile, -np.inf)
    near = reached >= reached.max(axis=1, keepdims=True) - LEAST_GAIN
    identified = near.sum(axis=1, keepdims=True) == 1
    return Parameters(("depth",), np.where(identified, depths, np.nan), np.full(depths.shape, np.nan), identified)


def count_parameters(model: WeightedLikelihood, base: Point) -> int:
    """How many parameters a family has: what the decisions can tell of rewards and temperatures, and each group's look-ahead.

    A look-ahead has no more parameters than a person can look steps ahead, less the first.
    """
    likelihood = base.likelihood
    others = ~likelihood.fixed
    others[likelihood.discount_slice] = False
    values = scaled_spectrum(base.information[np.ix_(others, others)])[0] if others.any() else np.zeros(1)
    shared = int((values > INFORMATION_RANK_TOLERANCE * max(values[-1], 1.0)).sum())
    return shared + sum(lookahead_counts(model))


def lookahead_counts(model: WeightedLikelihood) -> list[int]:
    """How many parameters of look-ahead each group has."""
    reach = [int(model.person_steps[model.groups == group].max()) - 1 for group in range(model.n_groups)]
    return [min(model.n_coordinates, steps) for steps in reach]


def lookahead_evidence(found: LookaheadFit, base: Point) -> dict[str, Any]:
    """What `Solution.evidence["lookahead"]` holds."""
    model, parameters = found.model, parameters_of(found)
    return {
        "family": model.family.name,
        "parameters": parameters.columns(parameters.values),
        "standard_errors": parameters.columns(parameters.errors),
        "identified": parameters.columns(parameters.identified),
        "weights": _weights(found),
        "steps": model.person_steps.tolist(),
        "depth_profile": None if found.depth_profile is None else found.depth_profile.tolist(),
        "parameter_count": count_parameters(model, base),
    }


def _weights(found: LookaheadFit) -> list[list[float]]:
    """The weights d(1), d(2), … of each expert, as far as they could look."""
    model = found.model
    weights = weights_of(model.family.step_discounts(model.coordinates(found.point.x), model.steps)[0])
    return [row[:steps].tolist() for row, steps in zip(weights, model.person_steps, strict=True)]


def lookahead_solution(
    problem: Problem, found: LookaheadFit, base: Point, ridge_reason: str, converged_gradient: float
) -> Solution:
    """The solution of a fit with weights that are not exponential."""
    point, model = found.point, found.model
    evidence = lookahead_evidence(found, base)
    identified = all(all(column) for column in evidence["identified"].values())
    residual = projected_gradient(point)
    converged = found.ascent.finished and residual <= converged_gradient
    status = Status.CONVERGED if converged else Status.NOT_CONVERGED
    return Solution(
        solver="MaximumLikelihood",
        status=status if identified or not converged else Status.NOT_IDENTIFIED,
        message=_message(problem, found, evidence, residual),
        experts=problem.names,
        discounts=np.full(problem.n_experts, np.nan),
        reward=model.reward(point.x).copy(),
        objective=point.value,
        residual=residual,
        temperature=model.temperatures(point.x),
        problem=problem,
        interval_source=NoIntervals(problem.n_experts),
        evidence={
            "log_likelihood": point.value,
            "decisions": model.decisions,
            "lookahead": evidence,
            "no_discount": f"a {model.family.name} look-ahead has no single discount: its parameters stand under lookahead",
            "ridge_weights": model.ridge.tolist(),
            "ridge_reason": ridge_reason,
            "steps": found.ascent.steps,
        },
    )


def _message(problem: Problem, found: LookaheadFit, evidence: dict[str, Any], residual: float) -> str:
    model = found.model
    parts = [
        f"Log-likelihood {found.point.value:.2f} of {model.decisions:.0f} decisions with {model.family.name} look-ahead, "
        f"gradient {residual:.1e} per decision."
    ]
    for name, column in evidence["identified"].items():
        unknown = [expert for expert, known in zip(problem.names, column, strict=True) if not known]
        if unknown:
            parts.append(f"The decisions do not tell {name} of {first_few(unknown)}.")
    if any(expert.mdp.sample_sizes is not None for expert in problem.experts):
        parts.append("Standard errors take the estimated transitions as known.")
    if not found.ascent.finished:
        parts.append("The climb was broken off unconverged: do not use this answer.")
    return " ".join(parts)
