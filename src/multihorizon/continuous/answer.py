"""The answer of a fit as a `Solution`: what is identified, how sure it is, and the evidence for both."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.stats import norm

from multihorizon.checks import Bools, Floats
from multihorizon.continuous import limits
from multihorizon.continuous.basis import Splines
from multihorizon.continuous.errors import sieve_precision
from multihorizon.continuous.held_out import held_out_rows
from multihorizon.continuous.outcomes import Regressed, next_state_r2
from multihorizon.continuous.sampled import SampledProblem
from multihorizon.continuous.selection import Choice, basis_name, sizes_for
from multihorizon.continuous.sieve_likelihood import LARGEST_DISCOUNT, SieveModel, SievePoint
from multihorizon.continuous.two_stage import Logit
from multihorizon.likelihood.ascent import Ascent, projected_gradient
from multihorizon.likelihood.maximum_likelihood import CONVERGED_GRADIENT
from multihorizon.solution import Solution, Status
from multihorizon.tables.steps import Steps


@dataclass(frozen=True, eq=False)
class Found:
    """The answer of one fit, the ends of all its climbs, and what the logits of the same basis reach."""

    end: Ascent
    ends: list[Ascent]
    logits: list[Logit]
    p_equal: float | None
    spread: float | None


@dataclass(frozen=True, eq=False)
class SieveIntervals:
    """Intervals of the discounts from their standard errors, cut at the discounts that can be tried."""

    point: SievePoint
    errors: Floats
    computed: dict[float, Floats] = field(default_factory=dict)

    def at(self, level: float) -> Floats:
        """The intervals `(K,2)` at this level; NaN for discounts that are not known."""
        if not 0 < level < 1:
            raise ValueError(f"level must be between 0 and 1, received {level}")
        if level not in self.computed:
            half = norm.ppf(0.5 + level / 2) * self.errors
            ends = self.point.likelihood.discounts(self.point.x)[:, None] + half[:, None] * [-1, 1]
            self.computed[level] = np.clip(ends, 0.0, LARGEST_DISCOUNT)
        return self.computed[level].copy()


def resume_sieve(solution: Solution) -> SievePoint:
    """The model at the answer of a solution as `solve` returned it."""
    source = solution.interval_source
    if not isinstance(source, SieveIntervals):
        raise ValueError(
            "this needs a solution of SieveLikelihood as solve returned it, received another one; a file holds its numbers, "
            "but not its functions: solve again"
        )
    return source.point


def make_solution(
    problem: SampledProblem,
    found: Found,
    choice: Choice,
    relevance: dict[str, float],
    drawn: Floats | None,
    basis_given: bool,
    regressor: Any,
) -> Solution:
    """The solution of a fit. `drawn` are discounts of resampled episodes, None where standard errors are analytic."""
    point = found.end.point
    assert isinstance(point, SievePoint)
    model, steps = point.likelihood, point.likelihood.problem.steps
    precise = sieve_precision(point)[0]
    shares = limits.overlap(model.design, steps)
    known = model.fixed[model.discount_slice][model.groups]
    apart = limits.comparable(shares) | known.any()
    identified = (precise.identified[model.discount_slice][model.groups] & apart) | known
    residual = projected_gradient(point)
    converged = found.end.finished and residual <= CONVERGED_GRADIENT
    errors = _errors(model, precise.standard_errors, drawn)
    errors = np.where(known, 0.0, np.where(identified & converged, errors, np.nan))
    poor = _poor(steps, choice, basis_given, regressor)
    status = Status.NOT_CONVERGED if not converged else Status.CONVERGED if identified.all() else Status.NOT_IDENTIFIED
    evidence = _evidence(point, found, choice, precise, drawn) | {
        "identified": identified.tolist(),
        "overlap": shares.tolist(),
        "coordinates": list(steps.coordinates),
        "left_out": [name for name in problem.steps.coordinates if name not in steps.coordinates],
        "relevance_p": relevance,
        "next_state_r2": next_state_r2(steps, held_out_rows(steps), model.design.stage.smoothing, regressor),
        "richer_basis": {"gain_share": poor[0], "standard_errors": poor[1]},
        "basis_too_poor": bool(poor[0] > limits.POOR_SHARE and poor[1] > limits.POOR_ERRORS),
    }
    return Solution(
        solver="SieveLikelihood",
        status=status,
        message=_message(problem, point, residual, identified, apart, converged, evidence),
        experts=problem.names,
        discounts=model.discounts(point.x),
        reward=model.reward(point.x).copy(),
        objective=point.value,
        residual=residual,
        temperature=model.temperatures(point.x),
        standard_errors=errors,
        problem=problem.with_basis(model.design.basis.names),
        interval_source=SieveIntervals(point, errors),
        evidence=evidence,
    )


def _errors(model: SieveModel, analytic: Floats, drawn: Floats | None) -> Floats:
    errors: Floats = analytic[model.discount_slice][model.groups] if drawn is None else drawn.std(axis=0, ddof=1)
    return errors


def _poor(steps: Steps, choice: Choice, basis_given: bool, regressor: Any) -> tuple[float, float]:
    """How much better a richer basis predicts; only asked where the basis was given, or is the largest that is tried."""
    largest = isinstance(choice.transformer, Splines) and choice.transformer.size >= max(sizes_for(steps))
    if not basis_given and not largest:
        return 0.0, 0.0
    return limits.richer_gain(steps, choice.transformer)


def _evidence(point: SievePoint, found: Found, choice: Choice, precise: Any, drawn: Floats | None) -> dict[str, Any]:
    model = point.likelihood
    chance = sum(batch.chance for batch in model.design.decisions)
    unrestricted = sum(logit.value for logit in found.logits)
    return {
        "log_likelihood": point.value,
        "decisions": model.decisions,
        "chance": chance,
        "unrestricted_logits": unrestricted,
        "explained_share": (point.value - chance) / max(unrestricted - chance, 1e-12),
        "basis": basis_name(choice.transformer),
        "functions": model.design.functions,
        "penalty": choice.penalty,
        "tried": choice.tried,
        "first_stage": "regressor" if isinstance(model.design.stage, Regressed) else "least squares",
        "first_stage_smoothing": _smoothing(model),
        "first_stage_widening": precise.widening[model.discount_slice][model.groups].tolist() if drawn is None else None,
        "resamples": 0 if drawn is None else len(drawn),
        "unidentified_directions": precise.nullity,
        "equal_temperatures_p": found.p_equal,
        "temperature_spread": found.spread,
        "steps": found.end.steps,
        "starts": [
            {"log_likelihood": end.point.value, "discounts": end.point.likelihood.discounts(end.point.x).tolist()}
            for end in found.ends
        ],
    }


def _smoothing(model: SieveModel) -> dict[str, float | str] | None:
    """The functions of the state that predict next states, and the weights of the first stage; None with a regressor."""
    found = model.design.stage.smoothing
    if found is None:
        return None
    weights = {"common": found.common, "own": found.own, "pooling": found.pooling}
    return {"functions": basis_name(found.inputs.transformer), **weights}


def _message(
    problem: SampledProblem,
    point: SievePoint,
    residual: float,
    identified: Bools,
    apart: Bools,
    converged: bool,
    evidence: dict[str, Any],
) -> str:
    model = point.likelihood
    parts = [
        f"Log-likelihood {point.value:.2f} of {model.decisions:.0f} decisions, gradient {residual:.1e} per decision, "
        f"{model.design.functions} basis functions of {', '.join(evidence['coordinates'])}."
    ]
    if not identified.all():
        names = ", ".join(name for name, known in zip(problem.names, identified, strict=True) if not known)
        why = "the likelihood is flat in their direction" if apart[~identified].all() else "they act where no other expert acts"
        if problem.n_experts == 1:
            why = "any discount explains one expert with some reward"
        parts.append(f"The discounts of {names} are not identified: {why}.")
    if evidence["basis_too_poor"]:
        parts.append("The basis is too poor: richer functions predict choices better, and the discounts may be far off.")
    if limits.dynamics_unknown(evidence["next_state_r2"]):
        names = ", ".join(limits.unpredicted(evidence["next_state_r2"]))
        parts.append(
            f"State and action do not predict how {names} will change, so what actions lead to is not known: do not rely on the "
            "discounts."
        )
    if not converged:
        parts.append("The climb was broken off unconverged: do not use this answer.")
    return " ".join(parts)
