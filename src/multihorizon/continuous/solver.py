"""Reward, discounts and temperatures from decisions in states that are vectors, with dynamics learned from the same log.

The steps: coordinates that nobody acts on are left out, basis and penalty are chosen by held-out likelihood (`selection.py`),
the first stage is fitted (`outcomes.py`), climbs begin at the two-stage answer (`two_stage.py`) and end at a maximum of the
joint likelihood (`sieve_likelihood.py`), temperatures are set free where the decisions reject equal ones, and standard errors
carry the first stage (`errors.py`). Where the data cannot tell (`limits.py`, or an information matrix that is singular in the
direction of a discount), the answer is NOT_IDENTIFIED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import chi2

from multihorizon.checks import Floats, as_count, as_floats, first_few
from multihorizon.continuous.answer import Found, make_solution
from multihorizon.continuous.basis import Splines
from multihorizon.continuous.design import Design, make_design
from multihorizon.continuous.errors import first_stage_scores
from multihorizon.continuous.resampling import resampled
from multihorizon.continuous.sampled import SampledProblem, require_sampled
from multihorizon.continuous.selection import Choice, choose, relevant_coordinates
from multihorizon.continuous.sieve_likelihood import LARGEST_DISCOUNT, SieveModel
from multihorizon.continuous.two_stage import fit_logits, starts
from multihorizon.likelihood.ascent import Ascent, climb
from multihorizon.likelihood.known import Temperature, check_discounts, check_temperature
from multihorizon.likelihood.parameters import Settings
from multihorizon.likelihood.temperatures import estimate_spread, temperature_penalty
from multihorizon.problem import Problem
from multihorizon.progress import Progress, part_of, silent
from multihorizon.solution import Solution
from multihorizon.tables.steps import Steps

#: The climb to the answer stops when less log-likelihood than this is promised. A few more steps give the last digits.
GAIN, POLISHED_GAIN, POLISHING_STEPS = 1e-6, 1e-11, 4
#: Starts of the first round, its steps, and the gain below which a climb in it stops; the best is climbed to the end. Where
#: decisions times functions are no more than `SMALL`, climbs cost little, and all starts are climbed.
FIRST_ROUND, FIRST_STEPS, FIRST_GAIN, SMALL = 3, 8, 0.1, 3e5
#: Equal temperatures are given up where their p-value is below this. It is small because free temperatures cost precision, and
#: because the error of a basis looks like a small difference of temperatures.
REJECTED = 0.001
#: Resampled tables where a regressor of the user's leaves no other way to standard errors.
RESAMPLES = 30


@dataclass(frozen=True)
class SieveLikelihood:
    """The most likely reward, discounts and temperatures of decisions in sampled states.

    Maximises `Σ_k Σ_i log π_k(a_i|s_i) − penalty/2 θᵀRθ` with `r(s) = φ(s)ᵀθ`, R its roughness, and values solved inside.
    The solution's `reward` holds θ; `functions(solution)` evaluates rewards, values and policies anywhere.

    Args:
        basis: a scikit-learn transformer of states, such as `Splines(9)`, `RBFSampler()` or `OneHotEncoder()`. None chooses
            the size of a spline basis by held-out likelihood, and leaves out coordinates on which nobody acts.
        regressor: a scikit-learn regressor of φ(s') on state and action; None is least squares on φ(s) for each action. With a
            regressor, standard errors come from resampled episodes.
        penalty: weight of the penalty on the reward's roughness; None chooses it by held-out likelihood.
        temperature: "pooled", "shared", "per_expert", a number or a mapping, as in `MaximumLikelihood`.
        discounts: known discounts: one number for all, or a mapping of names to numbers.
        resamples: how many times to fit resampled episodes for standard errors. 0 takes them from the information matrix and the
            first stage's errors of prediction, which is right where least squares is the first stage.

    Example:
        >>> from multihorizon import SampledProblem, solve
        >>> from multihorizon.domains import navigation
        >>> problem = SampledProblem(navigation().simulate(decisions=1200))
        >>> solution = solve(problem, SieveLikelihood(basis=Splines(4), penalty=0.1))
        >>> str(solution.status), bool((np.diff(solution.discounts) > 0).all())
        ('converged', True)
    """

    basis: Any = None
    regressor: Any = None
    penalty: float | None = None
    temperature: Temperature = "pooled"
    discounts: float | Mapping[str, float] | None = None
    resamples: int = 0

    def __post_init__(self) -> None:
        for name, method in (("basis", "transform"), ("regressor", "predict")):
            given = getattr(self, name)
            if given is not None and (isinstance(given, type) or not all(hasattr(given, m) for m in ("fit", method))):
                raise ValueError(f"{name} must have the methods fit and {method} of scikit-learn, received {given!r}")
        if self.penalty is not None and not float(as_floats(self.penalty, "penalty")) > 0:
            raise ValueError(f"penalty must be above 0, received {self.penalty}")
        check_temperature(self.temperature)
        check_discounts(self.discounts)
        as_count(self.resamples, "resamples", least=0)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Fit; `seed` draws resampled episodes."""
        sampled = require_sampled(problem)
        settings = _settings(sampled, self.temperature, self.discounts)
        kept, relevance = relevant_coordinates(sampled.steps) if self.basis is None else (None, {})
        steps = sampled.steps if kept is None else sampled.steps.keeping(kept)
        basis = _with_sources(self.basis, steps)
        choice = choose(steps, basis, self.penalty, self.regressor, settings, part_of(progress, 0.0, 0.5))
        progress(0.5, "fit")
        found = _fit(steps, choice, self, settings)
        progress(0.8, "standard errors")
        count = self.resamples or (RESAMPLES if self.regressor is not None else 0)
        drawn = resampled(found.end.point, choice, self.regressor, count, seed, part_of(progress, 0.8, 1.0)) if count else None
        return make_solution(sampled, found, choice, relevance, drawn, self.basis is not None, self.regressor)


def _settings(problem: SampledProblem, temperature: Temperature, discounts: Any) -> Settings:
    """What is known, in the problem's order; temperatures that are to be pooled begin as equal ones."""
    k = problem.n_experts
    heat = np.full(k, np.nan if temperature == "per_expert" and k > 1 else 1.0)
    if isinstance(temperature, Mapping):
        heat = _by_name(problem, temperature, "temperature")
    elif not isinstance(temperature, str):
        heat = np.full(k, float(temperature))
    known = None
    if discounts is not None:
        known = _by_name(problem, discounts, "discount") if isinstance(discounts, Mapping) else np.full(k, float(discounts))
        if (known > LARGEST_DISCOUNT).any():
            raise ValueError(
                f"a known discount must be at most {LARGEST_DISCOUNT}, because steps alone show no end, received more"
            )
    return Settings(discounts=known, temperatures=heat)


def _by_name(problem: SampledProblem, values: Mapping[str, float], what: str) -> Floats:
    found = np.full(problem.n_experts, np.nan)
    for name, value in values.items():
        if str(name) not in problem.names:
            known = first_few(problem.names)
            raise ValueError(f"the {what} of {name} is given, but there is no expert of that name: the experts are {known}")
        found[problem.names.index(str(name))] = float(value)
    return found


def _with_sources(basis: Any, steps: Steps) -> Any:
    """A spline basis that knows which columns are the indicators of one category."""
    return Splines(basis.size, steps.sources) if isinstance(basis, Splines) and basis.sources is None else basis


def _model(steps: Steps, design: Design, settings: Settings, penalty: float) -> SieveModel:
    bare = SieveModel(SampledProblem(steps).with_basis(design.basis.names), design, settings, penalty)
    return bare.holding(temperature_penalty(bare))


def _fit(steps: Steps, choice: Choice, solver: SieveLikelihood, settings: Settings) -> Found:
    """Climb from the best starts, and set temperatures free where the decisions ask for it."""
    design = make_design(steps, choice.transformer, solver.regressor)
    logits = fit_logits(design)
    model = _model(steps, design, settings, choice.penalty)
    begin = starts(model, logits)
    if not begin:
        raise ValueError("no starting point has finite values: the steps do not determine what actions lead to")
    small = len(steps) * design.functions <= SMALL
    count, most = (len(begin), 5 * FIRST_STEPS) if small else (FIRST_ROUND, FIRST_STEPS)
    ends = [climb(start, max_steps=most, gain=FIRST_GAIN) for start in begin[:count]]
    ends.sort(key=lambda end: -end.point.objective)
    best = _polished(climb(ends[0].point, gain=GAIN))
    p_equal, spread = None, None
    if solver.temperature == "pooled" and len(steps.experts) > 1 and best.finished:
        free = _model(steps, design, replace(settings, temperatures=np.full(len(steps.experts), np.nan)), choice.penalty)
        p_equal = _equal_temperatures(best, free)
        if p_equal < REJECTED:
            found = estimate_spread(best, free)
            best, spread = found.ascent, found.value
    return Found(best, ends, logits, p_equal, spread)


def _polished(end: Ascent) -> Ascent:
    """The same end with the last digits of its parameters, which a flat likelihood leaves open."""
    if not end.finished:
        return end
    finer = climb(end.point, max_steps=POLISHING_STEPS, gain=POLISHED_GAIN, metric=end.metric)
    return Ascent(finer.point, end.steps + finer.steps, True, finer.metric)


def _equal_temperatures(equal: Ascent, free: SieveModel) -> float:
    """The p-value of equal temperatures by a score test whose variance carries the first stage."""
    point = free.at(free.pack(equal.point.likelihood.reward(equal.point.x), equal.point.x[equal.point.likelihood.discount_slice]))
    if point is None:
        return 1.0
    heats = np.arange(free.temperature_slice.start, free.size)
    rest = np.flatnonzero(~free.fixed[: heats[0]])
    information = point.information
    inner = (information + free.rough_matrix)[np.ix_(rest, rest)]
    weights = np.zeros((heats.size, free.size))
    weights[:, heats] = np.eye(heats.size)
    weights[:, rest] = -np.linalg.lstsq(inner, information[np.ix_(rest, heats)], rcond=1e-12)[0].T
    contrasts = (np.eye(heats.size)[1:] - np.eye(heats.size)[:1]) @ weights
    added = first_stage_scores(point)
    meat = information if added is None else information + added @ added.T
    score = contrasts @ point.gradient
    statistic = float(score @ np.linalg.lstsq(contrasts @ meat @ contrasts.T, score, rcond=1e-12)[0])
    return float(chi2.sf(statistic, heats.size - 1))
