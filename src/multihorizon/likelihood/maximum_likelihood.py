"""Maximum likelihood: reward, discounts and temperatures from logged decisions, with standard errors.

Maximises the undiscounted choice likelihood `Σ_k Σ N_k(s,a) log π_{θ,γ_k}(a|s)` of `likelihood.py` over θ, 0 ≤ γ ≤ 1 and, if
asked for, one temperature an expert. One start is the closed form on smoothed frequencies. For others Γ is scattered and θ is the
least-squares fit to the frequencies at that Γ (`starts.py`); the most likely few are climbed by damped Fisher scoring
(`ascent.py`), and the best is climbed to the end. Convergence is the projected gradient per decision, recomputed at the answer.

The likelihood is not concave in (θ, Γ), hence several starts. Where two ends are equally likely with other discounts, or where
the Fisher information is singular in the direction of a discount, the answer is NOT_IDENTIFIED.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.stats import qmc

from multihorizon.checks import Floats, as_count, as_floats, as_positive
from multihorizon.likelihood.ascent import MAX_STEPS, Climb, climb, projected_gradient
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.starts import choice_probability_start
from multihorizon.likelihood.uncertainty import Precision, ProfileIntervals, precision
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.recovery.closed_form import closed_form_start
from multihorizon.solution import Solution, Status

#: The ridge that is used by itself where no logged decision could have earned one of the rewards.
AUTOMATIC_RIDGE = 1e-4
#: The projected gradient per decision at or below which the answer counts as converged.
CONVERGED_GRADIENT = 1e-5
#: Steps of the first and the second round: half the starts are given up after the first, all but the best after the second.
ROUNDS = (8, 30)
#: Up to this many states of all tasks the closed form is also sought where its equations are not linear.
SEARCHED_STATES = 200
#: Two ends are equally likely when their log-likelihoods differ by no more, and differ when a discount does by as much.
SAME_LIKELIHOOD, OTHER_DISCOUNT = 1e-3, 0.02


@dataclass(frozen=True)
class MaximumLikelihood:
    """The most likely reward, discounts and temperatures of demonstrations.

    Maximises `Σ_k Σ N_k(s,a) log π_{θ,γ_k}(a|s) − ridge/2 ‖θ‖²`; the solution's `objective` is the log-likelihood, its `residual`
    the largest entry of the projected gradient per decision.

    Args:
        temperature: λ > 0 of all experts (it sets the scale of the reward), or "per_expert": λ is 1 for the first and free for
            the others.
        ridge: weight of the penalty; None uses none, but 1e-4 where no logged decision could have earned one of the rewards.
        starts: how many climbs are carried on, of twice as many begun and four times as many points tried.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains, solve
        >>> d = domains.big_small()
        >>> problem = Problem(d.mdp, Demonstrations.simulate(d.mdp, d.mce_experts(), episodes=1000))
        >>> solution = solve(problem, MaximumLikelihood(starts=2))
        >>> str(solution.status), bool(abs(solution.discounts - d.mce_discounts).max() < 0.1)
        ('converged', True)
    """

    temperature: float | Literal["per_expert"] = 1.0
    ridge: float | None = None
    starts: int = 4

    def __post_init__(self) -> None:
        if self.temperature != "per_expert":
            if isinstance(self.temperature, str):
                raise ValueError(f'temperature must be a positive number or "per_expert", received {self.temperature!r}')
            as_positive(self.temperature, "temperature")
        if self.ridge is not None and float(as_floats(self.ridge, "ridge")) < 0:
            raise ValueError(f"ridge must be at least 0, received {self.ridge}")
        as_count(self.starts, "starts")

    def likelihood(self, problem: Problem, groups: tuple[int, ...] | None = None) -> Likelihood:
        """The likelihood this maximises; experts with equal numbers in `groups` share a discount."""
        ridge = (AUTOMATIC_RIDGE if never_earned(problem).any() else 0.0) if self.ridge is None else self.ridge
        return Likelihood(problem, self.temperature == "per_expert", ridge, groups)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Climb from several starts; `seed` scatters the discounts they begin with."""
        likelihood = self.likelihood(problem)
        best, ends = maximize(likelihood, self.starts, seed, progress, _closed_form(likelihood))
        found = precision(best.point)
        return self._solution(problem, best, ends, found)

    def _solution(self, problem: Problem, best: Climb, ends: list[Climb], found: Precision) -> Solution:
        point, model = best.point, best.point.likelihood
        scale = self.temperature if isinstance(self.temperature, float | int) else 1.0
        residual = projected_gradient(point)
        others = _equally_likely(best, ends)
        identified = found.discounts_identified & (not others)
        errors = found.standard_errors[model.discount_slice]
        status = _status(bool(identified.all()), best.finished and residual <= CONVERGED_GRADIENT)
        return Solution(
            solver="MaximumLikelihood",
            status=status,
            message=_message(problem, best, found, identified, others, residual),
            experts=problem.names,
            discounts=model.discounts(point.x),
            reward=scale * model.reward(point.x),
            objective=point.value,
            residual=residual,
            temperature=scale * model.temperatures(point.x),
            standard_errors=np.where(identified, errors, np.nan),
            interval_source=ProfileIntervals(model, point.x, identified, errors),
            evidence={
                "log_likelihood": point.value,
                "decisions": model.decisions,
                "identified": identified.tolist(),
                "unidentified_directions": found.nullity,
                "information_spectrum": found.spectrum.tolist(),
                "reward_standard_errors": _or_none(scale * found.standard_errors[: model.n_reward]),
                "ridge": model.ridge,
                "steps": best.steps,
                "starts": [_end(end) for end in ends],
                "equally_likely": [_end(end) for end in others],
                "per_expert_temperature": model.per_expert_temperature,
            },
        )


def maximize(
    likelihood: Likelihood, starts: int, seed: int, progress: Progress = silent, extra: tuple[Floats, ...] = ()
) -> tuple[Climb, list[Climb]]:
    """The best end of climbs from `starts` scattered points and from `extra` ones, and the ends of all of them."""
    points = sorted(_tried(likelihood, 4 * starts, seed), key=lambda point: -point.objective)[: 2 * starts]
    points += [p for p in (likelihood.at(x) for x in extra) if p is not None]
    if not points:
        raise ValueError("no starting point has finite soft values: check that the rewards' features and the transitions agree")
    ends = []
    for number, point in enumerate(points):
        ends.append(climb(point, max_steps=ROUNDS[0]))
        progress(0.5 * (number + 1) / len(points), f"start {number + 1} of {len(points)}: {ends[-1].point.objective:.2f}")
    ends = [_further(end, ROUNDS[1]) for end in _ranked(ends)[:starts]]
    progress(0.9, f"log-likelihood {max(end.point.value for end in ends):.2f}")
    best, *others = _ranked(ends)
    best = _further(best, MAX_STEPS)
    progress(1.0, f"log-likelihood {best.point.value:.2f}")
    return best, [best, *others]


def never_earned(problem: Problem) -> Any:
    """Mask `(d,)` of the reward parameters that no logged decision could have earned."""
    earned = np.zeros(problem.n_parameters)
    for expert in problem.experts:
        if expert.counts is not None:
            earned += abs(expert.feature_matrix).T @ expert.counts.T.ravel()
    return earned == 0


def _closed_form(likelihood: Likelihood) -> tuple[Floats, ...]:
    """The start of the closed form, where its equations are linear or small: with features they must be searched."""
    problem = likelihood.problem
    if not problem.tabular and sum(expert.mdp.n_states for expert in problem.experts) > SEARCHED_STATES:
        return ()
    start = closed_form_start(problem, temperature="per_expert" if likelihood.per_expert_temperature else 1.0)
    return (likelihood.pack(start.reward, start.discounts, start.temperature),)


def _tried(likelihood: Likelihood, count: int, seed: int) -> Iterator[Point]:
    """Starts at scattered discounts: all experts alike, and a low-discrepancy sequence that tells them apart."""
    scattered = qmc.Halton(likelihood.n_discounts, rng=np.random.default_rng(seed)).random(count)
    alike = np.outer([0.1, 0.5, 0.9], np.ones(likelihood.n_discounts))
    for discounts in np.concatenate([alike, 0.98 * scattered]):
        point = choice_probability_start(likelihood, discounts)
        if point is not None:
            yield point


def _ranked(ends: list[Climb]) -> list[Climb]:
    return sorted(ends, key=lambda end: -end.point.objective)


def _further(end: Climb, steps: int) -> Climb:
    """The climb carried on for so many more steps unless it has ended."""
    if end.finished:
        return end
    further = climb(end.point, max_steps=steps)
    return Climb(further.point, end.steps + further.steps, further.finished, further.matrix)


def _equally_likely(best: Climb, ends: list[Climb]) -> list[Climb]:
    """Ends as likely as the best with another discount."""
    model = best.point.likelihood
    return [
        end
        for end in ends
        if end.point.objective >= best.point.objective - SAME_LIKELIHOOD
        and np.abs(model.discounts(end.point.x) - model.discounts(best.point.x)).max() > OTHER_DISCOUNT
    ]


def _status(identified: bool, converged: bool) -> Status:
    if not identified:
        return Status.NOT_IDENTIFIED
    return Status.CONVERGED if converged else Status.NOT_CONVERGED


def _message(problem: Problem, best: Climb, found: Precision, identified: Any, others: list[Climb], residual: float) -> str:
    model = best.point.likelihood
    parts = [f"Log-likelihood {best.point.value:.2f} of {model.decisions:.0f} decisions, gradient {residual:.1e} per decision."]
    if not identified.all():
        names = ", ".join(n for n, known in zip(problem.names, identified, strict=True) if not known)
        why = "other discounts are exactly as likely" if others else "the likelihood is flat in their direction"
        parts.append(f"The discounts of {names} are not identified: {why}.")
    elif found.nullity:
        parts.append(f"The discounts are identified; {found.nullity} direction(s) of the reward are not.")
    if not best.finished:
        parts.append(
            f"The climb was broken off unconverged; the largest reward is {np.abs(model.reward(best.point.x)).max():.3g}. "
            "Where rewards grow without bound, actions never taken leave them open: more decisions or a small ridge help."
        )
    unearned = never_earned(problem)
    if model.ridge and unearned.any():
        names = ", ".join(n for n, never in zip(problem.parameter_names, unearned, strict=True) if never)
        parts.append(f"No logged decision could have earned the reward of {names[:200]}; a ridge of {model.ridge:g} holds it.")
    return " ".join(parts)


def _end(end: Climb) -> dict[str, Any]:
    model = end.point.likelihood
    return {
        "log_likelihood": end.point.value,
        "discounts": model.discounts(end.point.x).tolist(),
        "steps": end.steps,
        "finished": end.finished,
    }


def _or_none(values: Floats) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]
