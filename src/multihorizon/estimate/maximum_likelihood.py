"""Maximum likelihood: reward, discounts and temperatures from logged decisions, with standard errors.

Maximises the undiscounted choice likelihood `Σ_k Σ N_k(s,a) log π_{θ,γ_k,λ_k}(a|s)` of `likelihood.py` over θ, 0 ≤ γ ≤ 1 and the
temperatures that are free (`fit.py`). Convergence is the projected gradient per decision, recomputed at the answer. Where two
ends are equally likely with other discounts, or where the Fisher information is singular in the direction of a discount, the
answer is NOT_IDENTIFIED. Where the climb did not end, it is NOT_CONVERGED, whatever else is found, and there are no intervals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from multihorizon.checks import Bools, Floats, as_count, as_non_negative, first_few
from multihorizon.choice.model import LOG_TEMPERATURE_BOUND
from multihorizon.choice.parameters import Temperature, check_discounts, check_temperature, read_settings, with_known_reward
from multihorizon.choice.tabular import Likelihood, Point
from multihorizon.choice.weighted import require_lookahead
from multihorizon.estimate.ascent import projected_gradient
from multihorizon.estimate.intervals import Precision, ProfileIntervals, precision, transition_widening
from multihorizon.estimate.look_ahead import fit_lookahead, lookahead_solution
from multihorizon.estimate.search import Fit, fit, never_earned, temperature_penalty
from multihorizon.lookahead import FAMILIES, Exponential, Lookahead
from multihorizon.numerics.newton import Ascent
from multihorizon.parallel import Progress, silent
from multihorizon.problem import Problem
from multihorizon.solution import FamilyParameters, LikelihoodEvidence, LookaheadEvidence, Solution, Status

#: The projected gradient per decision at or below which the answer counts as converged.
CONVERGED_GRADIENT = 1e-5
#: Two ends are equally likely when their log-likelihoods differ by at most the first number, and are different answers when
#: some discount differs by more than the second.
SAME_LIKELIHOOD, OTHER_DISCOUNT = 1e-3, 0.02


@dataclass(frozen=True)
class MaximumLikelihood:
    """The most likely reward, discounts and temperatures of demonstrations.

    Maximises `Σ_k Σ N_k(s,a) log π_{θ,γ_k,λ_k}(a|s)` less the penalties below. The solution's `objective` is the log-likelihood,
    its `residual` the largest entry of the projected gradient per decision.

    Args:
        temperature: how random the experts' choices are.
            "pooled": equal ones, unless the decisions reject that at the 5 % level. Then each has a temperature, and their
            logarithms vary around a common value with a spread that is estimated.
            "per_expert": each has a temperature of their own, with nothing in common.
            "shared": all have the same; it is 1 unless a known reward sets the scale.
            A number is known and the same for all; a mapping of names to numbers is known for these experts.
            Where nothing sets the scale of the reward, temperatures have a geometric mean of 1.
        discounts: known discounts: one number for all, or a mapping of names to numbers. All others are estimated.
        known_reward: the known part of the reward: `(S,)` paid on arrival, `(S,A)` or `(A·S,)` in rows a·S + s for decisions, or
            a mapping of state names to what they pay on arrival. The problem's features are added to it. In a problem without
            features the reward is then known, and only discounts and temperatures are estimated.
        groups: experts who share one discount, as a mapping of names to labels; all others have their own.
        ridge: weight of the penalty `ridge/2 ‖θ‖²`. None uses none, with two exceptions that the solution's message announces:
            rewards that no logged decision could have earned, and rewards that run away.
        starts: how many climbs go into the second round. The first round has twice as many, from the best of four times as many
            points. In large tasks half as many climbs are made as `starts` says, from the best of fewer points.
        lookahead: the shape in which the future loses weight. With one that is not exponential the task must end after so many
            steps. Then `discounts` are NaN, and each expert's parameters stand in `evidence["lookahead"]`.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains, solve
        >>> d = domains.big_small()
        >>> problem = Problem(d.mdp, Demonstrations.simulate(d.mdp, d.mce_experts(), episodes=1000))
        >>> solution = solve(problem, MaximumLikelihood(starts=2))
        >>> str(solution.status), bool(abs(solution.discounts - d.mce_discounts).max() < 0.1)
        ('converged', True)
    """

    temperature: Temperature = "pooled"
    discounts: float | Mapping[str, float] | None = None
    known_reward: Any = None
    groups: Mapping[str, Any] | None = None
    ridge: float | None = None
    starts: int = 4
    lookahead: Lookahead = field(default_factory=Exponential)

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        check_discounts(self.discounts)
        if self.ridge is not None:
            as_non_negative(self.ridge, "ridge")
        as_count(self.starts, "starts")
        if type(self.lookahead) not in map(type, FAMILIES):
            known = ", ".join(f"{type(family).__name__}()" for family in FAMILIES)
            raise ValueError(f"lookahead must be one of {known}, received {self.lookahead!r}")
        if self.discounts is not None and not isinstance(self.lookahead, Exponential):
            raise ValueError(f"known discounts need an exponential look-ahead, received a {self.lookahead.name} one")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Climb from several starts; `seed` scatters the discounts they begin with."""
        if not isinstance(self.lookahead, Exponential):
            require_lookahead(problem)
        paid, found = self.search(problem, seed, progress)
        if isinstance(self.lookahead, Exponential):
            return _solution(paid, found)
        base = found.best.point
        return lookahead_solution(paid, fit_lookahead(base, self.lookahead), base, found.ridge_reason, CONVERGED_GRADIENT)

    def search(self, problem: Problem, seed: int, progress: Progress) -> tuple[Problem, Fit]:
        """The problem with what is known of the reward, and the most likely answer with discounts."""
        paid, reward = with_known_reward(problem, self.known_reward)
        settings = replace(read_settings(paid, self.temperature, self.discounts, self.groups, reward), moves=True)
        return paid, fit(paid, settings, self.temperature == "pooled", self.ridge, self.starts, seed, progress)


def resume(solution: Solution) -> Point:
    """The model at the answer of a maximum-likelihood solution."""
    source = solution.interval_source
    if isinstance(source, ProfileIntervals) and source.problem is solution.problem:
        return source.point
    if solution.solver != "MaximumLikelihood":
        reasons = {
            "Population": "the discounts of its persons come from one distribution, and only MaximumLikelihood leaves each free",
            "SieveLikelihood": "its states are vectors, and this needs states in a list",
        }
        why = reasons.get(solution.solver, "its answer is not that of a likelihood of decisions")
        raise ValueError(f"this needs a solution of MaximumLikelihood, received one of {solution.solver}: {why}")
    if isinstance(solution.evidence, LookaheadEvidence):
        raise ValueError(f"this needs a solution with discounts: {solution.evidence.no_discount}")
    point = _rebuilt(solution)
    if point is None:
        raise ValueError("the solution's soft values must be finite, received a problem that does not fit it")
    return point


def _rebuilt(solution: Solution) -> Point | None:
    """The model at the answer of a solution that was read from a file."""
    options = MaximumLikelihood(**{name: value for name, value in solution.options.items() if name != "lookahead"})
    problem, reward = with_known_reward(solution.require_problem(), options.known_reward)
    settings = replace(read_settings(problem, options.temperature, options.discounts, options.groups, reward), moves=True)
    evidence = LikelihoodEvidence.of(solution)
    model = Likelihood(problem, settings)
    model = model.holding(temperature_penalty(model), np.array(evidence.ridge_weights))
    temperatures = np.ones(problem.n_experts) if solution.temperature is None else solution.temperature
    if evidence.temperature_spread:
        own = read_settings(problem, "per_expert", options.discounts, options.groups, reward)
        each = Likelihood(problem, replace(own, moves=True))
        model = each.holding(temperature_penalty(each, evidence.temperature_spread), model.ridge)
    discounts = np.array([solution.discounts[model.groups == g][0] for g in range(model.n_discounts)])
    heats = np.array([temperatures[model.temperature_groups == g][0] for g in range(model.n_temperatures)])
    fitted = {id(counted.mdp): expert.mdp for counted, expert in zip(model.problem.experts, problem.experts, strict=True)}
    changes = [moves.numbers(fitted[id(moves.mdp)]) for moves in model.moves]
    return model.at(model.pack(solution.reward, discounts, heats, np.concatenate(changes) if changes else None))


def _solution(problem: Problem, found: Fit) -> Solution:
    best = found.best
    model = best.point.likelihood
    point = best.point
    problem = point.problem if model.moves else problem
    precise = precision(point)
    residual = projected_gradient(point)
    others = _equally_likely(found.ends)
    identified = precise.identified[model.discount_slice][model.groups] & (not others)
    converged = best.finished and residual <= CONVERGED_GRADIENT
    errors = precise.standard_errors[model.discount_slice][model.groups]
    lost = _lost_temperatures(point, precise)
    identified &= ~lost | model.fixed[model.discount_slice][model.groups]
    return Solution(
        solver="MaximumLikelihood",
        status=_status(bool(identified.all() and not lost.any()), converged),
        message=_message(problem, found, precise, identified, lost, bool(others), residual),
        experts=problem.names,
        discounts=model.discounts(point.x),
        reward=model.reward(point.x).copy(),
        objective=point.value,
        residual=residual,
        temperature=model.temperatures(point.x),
        standard_errors=np.where(identified & converged, errors, np.nan),
        problem=problem,
        interval_source=ProfileIntervals(model, point.x, identified & converged, problem),
        evidence=LikelihoodEvidence(
            log_likelihood=point.value,
            decisions=model.decisions,
            identified=identified.tolist(),
            known=_known(model),
            unidentified_directions=precise.nullity,
            information_spectrum=precise.spectrum.tolist(),
            reward_standard_errors=_or_none(precise.standard_errors[: model.n_reward]),
            ridge=float(np.max(model.ridge, initial=0.0)),
            ridge_weights=model.ridge.tolist(),
            ridge_reason=found.ridge_reason,
            temperature_spread=None if found.spread is None else found.spread.value,
            equal_temperatures_p=None if found.spread is None else found.spread.p_equal,
            lost_temperatures=lost.tolist(),
            log_temperature_errors=_or_none(precise.standard_errors[model.temperature_slice][model.temperature_groups]),
            transition_widening=transition_widening(point, precise)[model.discount_slice][model.groups].tolist(),
            transitions=[entries.tolist() for entries in model.transitions_at(point.x).values()],
            lookahead=FamilyParameters(family="exponential", parameters={"discount": model.discounts(point.x).tolist()}),
            steps=best.steps,
            starts=[_end(end) for end in found.ends],
            equally_likely=[_end(end) for end in others],
        ),
    )


def _lost_temperatures(point: Point, precise: Precision) -> Bools:
    """Whose temperature `(K,)` is not told although the scale of the reward is known: it ran to the end of what is tried, or the
    likelihood is flat in it.
    """
    model = point.likelihood
    part = model.temperature_slice
    ended = np.abs(point.x[part]) >= LOG_TEMPERATURE_BOUND
    lost: Bools = ~model.fixed[part] & (ended | ~precise.identified[part]) & (not model.scale_is_free)
    return lost[model.temperature_groups]


def _known(model: Likelihood) -> dict[str, Any]:
    """What was known and not estimated: whose discounts, whose temperatures, and how much of the reward."""
    settings = model.settings
    part = any(expert.known_reward is not None for expert in model.problem.experts)
    heats = model.fixed[model.temperature_slice] & (settings.temperatures is not None)
    return {
        "discounts": model.fixed[model.discount_slice][model.groups].tolist(),
        "temperatures": heats[model.temperature_groups].tolist(),
        "reward": "all" if settings.reward is not None else "in part" if part else None,
    }


def _equally_likely(ends: list[Ascent[Point]]) -> list[Ascent[Point]]:
    """Ends of one search that are as likely as its best with another discount."""
    first = ends[0]
    model = first.point.likelihood
    return [
        end
        for end in ends
        if end.point.objective >= first.point.objective - SAME_LIKELIHOOD
        and np.abs(model.discounts(end.point.x) - model.discounts(first.point.x)).max() > OTHER_DISCOUNT
    ]


def _status(identified: bool, converged: bool) -> Status:
    if not converged:
        return Status.NOT_CONVERGED
    return Status.CONVERGED if identified else Status.NOT_IDENTIFIED


def _message(
    problem: Problem, found: Fit, precise: Precision, identified: Bools, lost: Bools, others: bool, residual: float
) -> str:
    best, model = found.best, found.best.point.likelihood
    parts = [f"Log-likelihood {best.point.value:.2f} of {model.decisions:.0f} decisions, gradient {residual:.1e} per decision."]
    if not identified.all():
        names = ", ".join(n for n, known in zip(problem.names, identified, strict=True) if not known)
        why = "other discounts are as likely" if others else "the likelihood is flat in their direction"
        parts.append(f"The discounts of {names} are not identified: {why}.")
    if lost.any():
        names = ", ".join(n for n, gone in zip(problem.names, lost, strict=True) if gone)
        parts.append(f"The temperature of {names} is not identified: the known reward does not say how random the choices are.")
    elif precise.nullity and identified.all():
        directions = "one direction" if precise.nullity == 1 else f"{precise.nullity} directions"
        parts.append(f"The discounts are identified; {directions} of the reward cannot be told from the decisions.")
    if not best.finished:
        largest = np.abs(model.reward(best.point.x)).max(initial=0.0)
        parts.append(f"The climb was broken off unconverged, at a largest reward of {largest:.3g}: do not use this answer.")
    elif residual > CONVERGED_GRADIENT:
        parts.append(f"The gradient is above {CONVERGED_GRADIENT:g} per decision: do not use this answer.")
    if found.spread is not None and not found.spread.complete:
        parts.append("Climbs at some spreads of the temperatures did not end: the test of equal temperatures is not reliable.")
    return " ".join([*parts, *_ridge_words(problem, found, model)])


def _ridge_words(problem: Problem, found: Fit, model: Likelihood) -> list[str]:
    weight = float(np.max(model.ridge, initial=0.0))
    if not weight:
        return []
    sentences = [
        f"A penalty of weight {weight:.3g} holds the rewards" + (f": {found.ridge_reason}." if found.ridge_reason else ".")
    ]
    unearned = never_earned(problem)
    if unearned.any():
        names = [n for n, never in zip(problem.parameter_names, unearned, strict=True) if never]
        sentences.append(f"No logged decision could have earned the reward of {first_few(names)}.")
    return sentences


def _end(end: Ascent[Point]) -> dict[str, Any]:
    model = end.point.likelihood
    return {
        "log_likelihood": end.point.value,
        "discounts": model.discounts(end.point.x).tolist(),
        "steps": end.steps,
        "finished": end.finished,
    }


def _or_none(values: Floats) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]
