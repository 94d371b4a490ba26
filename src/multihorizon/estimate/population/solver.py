"""A population of persons: group differences, how much persons differ, and what is known of each.

Person i has `(logit γ_i, log λ_i) ~ N((X_i b, X_i c), Σ)`, X from a table of persons and a formula, and all share one reward. The
marginal likelihood of `marginal.py` is maximised by `marginal_ascent.py`; γ_i at 0 or 1, persons who choose at random and persons
with few decisions need no special treatment, because what their decisions leave open the population fills in.

`effects.py` says what follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from multihorizon.checks import ENDLESS_DISCOUNT, Floats, as_count, as_floats
from multihorizon.choice.parameters import Settings, read_settings, with_known_reward
from multihorizon.choice.tabular import Likelihood
from multihorizon.estimate.population.covariates import (
    Covariates,
    Missing,
    left_out_words,
    new_rows,
    read_covariates,
    read_formula,
)
from multihorizon.estimate.population.effects import (
    MOVED_CORRELATION,
    MOVED_EFFECT,
    MOVED_SPREAD,
    Inference,
    ShrunkenIntervals,
    predicted,
)
from multihorizon.estimate.population.marginal import WIDEST, Layout, Maximum, maximise, modes
from multihorizon.estimate.precision import precision
from multihorizon.estimate.search import fit
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.problem import Problem
from multihorizon.solution import PopulationEvidence, PopulationFindings, Solution, Status

#: The least standard deviations of logit γ and log λ with which the search begins, and the largest |logit γ| of a person.
FIRST_DEVIATIONS, FIRST_LOGIT = np.array([1.0, 0.5]), 3.0
#: Where the reward is known: discounts, and temperatures relative to the largest reward, of which the most likely begin.
FIRST_DISCOUNTS, FIRST_TEMPERATURES = (0.05, 0.3, 0.6, 0.8, 0.95), (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True, eq=False)
class Population:
    """Discounts and temperatures of many persons, drawn from a population that covariates describe.

    The solution's `discounts` and `temperature` are shrunken towards the population, its `objective` is the marginal
    log-likelihood, its `residual` the distance to the maximum in standard errors. `evidence["population"]` holds the effects of
    covariates on logit γ ("discount") and log λ ("temperature"), one test for each factor of several levels ("factors"), all
    pairs of groups and the quartiles of numbers with what is typical of both ("contrasts"), the spread between persons,
    reliabilities, and predictions. Weak priors hold what the decisions leave open, and `message` says where they matter.

    Args:
        formula: the covariates, as in R: "~ group + age". "~ 1" has none. It is made of columns, numbers, operators, and
            functions such as C, center, scale, log, poly and bs; nothing else in it is run.
        persons: a data frame with the column `expert` and one row per expert; not needed for "~ 1".
        known_reward: the known part of the reward, as in `MaximumLikelihood`.
        ridge: weight of a penalty on the reward, as in `MaximumLikelihood`.
        nodes: nodes of the quadrature for logit γ; log λ has half as many. With 15, effects are exact to a hundredth of their
            standard error.
        missing: what to do with persons who lack a row or a covariate, or are alone in their group: "drop" leaves them out, says
            so in the message, and names them in `evidence["population"]["left_out"]`; "fail" raises.
        reference: for columns of groups, the one that the others are compared with: `{"group": "control"}`. By default it is
            the first in the order of the alphabet.

    Raises:
        ValueError: for a formula that is made of anything else; when solving, where persons and decisions do not belong
            together or the formula cannot be used.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains, soft_plan, solve
        >>> d = domains.cliff()
        >>> policies = [soft_plan(d.mdp, d.reward, gamma).policy for gamma in (0.3, 0.4, 0.5, 0.6, 0.7)]
        >>> problem = Problem(d.mdp, Demonstrations.simulate(d.mdp, policies, episodes=50))
        >>> solution = solve(problem, Population("~ 1", known_reward=d.reward))
        >>> str(solution.status), sorted(solution.evidence["population"]["discount"])
        ('converged', ['Intercept'])
    """

    formula: str = "~ 1"
    persons: pd.DataFrame | None = None
    known_reward: Any = None
    ridge: float | None = None
    nodes: int = 15
    missing: Missing = "drop"
    reference: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.formula, str):
            raise ValueError(f"formula must be a text such as '~ group', received {self.formula!r}")
        read_formula(self.formula)
        if self.persons is not None and not isinstance(self.persons, pd.DataFrame):
            raise ValueError(f"persons must be a data frame, received {type(self.persons).__name__}")
        if self.ridge is not None and float(as_floats(self.ridge, "ridge")) < 0:
            raise ValueError(f"ridge must be at least 0, received {self.ridge}")
        if self.missing not in ("drop", "fail"):
            raise ValueError(f"missing must be drop or fail, received {self.missing!r}")
        if self.reference is not None and not isinstance(self.reference, Mapping):
            raise ValueError(f"reference must map columns to groups, received {self.reference!r}")
        as_count(self.nodes, "nodes", least=3)

    def covariates(self, problem: Problem) -> Covariates:
        """The design of the study; raises where it cannot be used."""
        return read_covariates(self.formula, self.persons, problem.names, self.missing, self.reference)

    def compared(self, problem: Problem) -> Problem:
        """The problem of the persons who can be compared."""
        names = set(self.covariates(problem).names)
        return problem.with_experts(expert for expert in problem.experts if expert.name in names)

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Fit the persons one by one, and from there the population; `seed` scatters the starts of the first fit."""
        covariates, problem = self.covariates(problem), self.compared(problem)
        paid, reward = with_known_reward(problem, self.known_reward)
        model = Likelihood(paid, Settings(temperatures=np.full(paid.n_experts, np.nan), reward=reward))
        start = _known_start(model, reward) if reward is not None else self._start(paid, seed, part_of(progress, 0.0, 0.3))
        layout = Layout(model.holding(None, start.ridge), covariates.matrix @ covariates.units)
        found = _search(layout, start, self.nodes, part_of(progress, 0.3, 1.0))
        return _solution(Inference(covariates, found, start.identified), start.ridge_reason)

    def predict(self, solution: Solution, persons: pd.DataFrame) -> pd.DataFrame:
        """Discounts to expect of persons who were not in the study.

        Args:
            solution: of this solver.
            persons: their covariates, one row per person.

        Returns:
            One row per person: the discount of a typical person with these covariates and its 95 % interval (`low`, `high`), and
            where 95 % of such persons are expected (`person_low`, `person_high`).

        Raises:
            ValueError: for a solution that did not converge, a missing covariate, or a group that did not occur in the study.
        """
        if solution.solver != "Population" or solution.status != Status.CONVERGED:
            raise ValueError(f"a prediction needs a converged Population, received {solution.solver}: {solution.status}")
        found = PopulationEvidence.of(solution).population
        rows = new_rows(self.formula, self.persons, solution.experts, persons, self.reference)
        effects = np.array([effect["estimate"] for effect in found.discount.values()])
        between = found.spread["discount"]["estimate"] ** 2
        covariance = np.array(found.discount_covariance)
        values = predicted(rows, effects, covariance, between, found.largest_discount, found.degrees)
        return pd.DataFrame(values, columns=["discount", "low", "high", "person_low", "person_high"], index=persons.index)

    def _start(self, problem: Problem, seed: int, progress: Progress) -> _Start:
        """The most likely reward where each has a discount and all have one temperature."""
        first = fit(problem, read_settings(problem, "shared", None, None, None), False, self.ridge, 2, seed, progress)
        x, model = first.best.point.x, first.best.point.likelihood
        known = bool(precision(first.best.point).identified[model.discount_slice].any())
        heat = float(model.temperatures(x)[0])
        return _Start(model.reward(x), model.discounts(x), heat, model.ridge, first.ridge_reason, known)


@dataclass(frozen=True, eq=False)
class _Start:
    """Where the search begins: a reward, discounts, one temperature, and the penalty that holds the reward.

    `identified` says whether the decisions identify anybody's discount at all.
    """

    reward: Floats
    discounts: Floats
    temperature: float
    ridge: Floats
    ridge_reason: str = ""
    identified: bool = True


def _known_start(model: Likelihood, reward: Floats) -> _Start:
    """The most likely of some discounts and temperatures for everyone, where the reward is known."""
    n = model.problem.n_experts
    size = max(float(np.abs(batch.reward(reward)).max()) for batch in model.batches) or 1.0
    tried = [(g, size * heat) for g in FIRST_DISCOUNTS for heat in FIRST_TEMPERATURES]
    points = (model.at(np.concatenate([reward, np.full(n, g), np.full(n, np.log(heat))])) for g, heat in tried)
    values = [-np.inf if point is None else point.value for point in points]
    gamma, heat = tried[int(np.argmax(values))]
    return _Start(reward, np.full(n, gamma), heat, np.zeros(model.n_reward))


def _search(layout: Layout, start: _Start, nodes: int, progress: Progress) -> Maximum:
    """The maximum, from each person's mode at the start."""
    model = layout.model
    largest = ENDLESS_DISCOUNT if any(batch.mdp.never_ends().any() for batch in model.batches) else 1.0
    edge = expit(-FIRST_LOGIT)
    logits = logit(np.clip(start.discounts / largest, edge, 1 - edge))
    deviations = np.maximum(FIRST_DEVIATIONS, [logits.std(), 0.0])
    psi = layout.pack(start.reward, np.array([logits.mean(), np.log(start.temperature)]), deviations)
    parts = layout.unpack(psi)
    persons = modes(model, parts.theta, layout.design @ parts.effects, parts.root, largest)
    return maximise(layout, psi, persons, nodes, largest, progress)


def _solution(answer: Inference, ridge_reason: str) -> Solution:
    found = answer.found
    marginal, model = found.marginal, found.marginal.layout.model
    gammas, shares = marginal.discounts(), answer.shares
    discounts = np.minimum((shares * gammas).sum(axis=1), marginal.largest)
    persons, known = answer.persons(), answer.status == Status.CONVERGED
    wider = persons.covariance[:, 0, 0] / marginal.moments(shares)[1][:, 0, 0]
    errors = np.sqrt((shares * (gammas - discounts[:, None]) ** 2).sum(axis=1) * wider)
    reward_errors = np.zeros(model.n_reward)
    reward_errors[marginal.layout.free] = np.sqrt(np.diag(answer.covariance)[marginal.layout.reward])
    return Solution(
        solver="Population",
        status=answer.status,
        message=_message(answer, ridge_reason),
        experts=model.problem.names,
        discounts=discounts,
        reward=answer.parts.theta,
        objective=float(found.value.persons.sum()),
        residual=found.distance,
        temperature=np.exp(persons.mean[:, 1]),
        standard_errors=np.where(known, errors, np.nan),
        problem=model.problem,
        interval_source=ShrunkenIntervals(persons.mean[:, 0], np.sqrt(persons.covariance[:, 0, 0]), marginal.largest, known),
        evidence=PopulationEvidence(
            population=PopulationFindings(**answer.to_dict(), cautions=prior_words(answer)),
            log_likelihood=float(found.value.persons.sum()),
            decisions=model.decisions,
            reward_standard_errors=[float(error) if known else None for error in reward_errors],
            ridge=float(np.max(model.ridge, initial=0.0)),
            ridge_reason=ridge_reason,
        ),
    )


def _message(answer: Inference, ridge_reason: str) -> str:
    found, model = answer.found, answer.found.marginal.layout.model
    size = f"{model.decisions:.0f} decisions of {model.problem.n_experts} persons"
    parts = [
        f"Marginal log-likelihood {found.value.persons.sum():.2f} of {size}.",
        *absent_words(answer.covariates.left_out, model.problem.n_experts),
    ]
    if answer.status == Status.NOT_IDENTIFIED:
        parts.append("The effects on the discount are not identified: the likelihood is flat in their direction.")
    if not found.finished:
        parts.append(f"The search ended {found.distance:.2g} standard errors from the maximum: do not use this answer.")
    parts += prior_words(answer)
    if ridge_reason:
        parts.append(f"A penalty of weight {model.ridge.max():.3g} holds the rewards: {ridge_reason}.")
    return " ".join(parts)


def absent_words(left_out: Mapping[str, str], compared: int, most: int = 5) -> list[str]:
    """Who is left out besides so many persons who are compared, as a sentence; nothing where nobody is."""
    are = "is" if len(left_out) == 1 else "are"
    number = f"{len(left_out)} of {len(left_out) + compared} persons {are} left out of the comparison"
    return [f"{number}: {left_out_words(left_out, most)}."] if left_out else []


def prior_words(answer: Inference) -> list[str]:
    """Where weak priors matter, and by how much; nothing where there is no answer."""
    if answer.status != Status.CONVERGED:
        return []
    moved = answer.moved_by_priors()
    words = [
        f"The decisions hardly bound the effect of {term} on the discount: a weak prior, for logits within {WIDEST:g} of 0, "
        f"moves it by {abs(errors):.1f} standard errors, and the far end of its interval is that of the prior."
        for term, errors in moved["effects"].items()
        if abs(errors) > MOVED_EFFECT
    ]
    for kind, share in moved["spread"].items():
        if abs(share) > MOVED_SPREAD:
            size = f"{100 * abs(share):.0f} % {'larger' if share > 0 else 'smaller'}"
            words.append(f"The spread of {kind}s between persons is hardly determined: a weak prior makes it about {size}.")
    drawn = moved["correlation"]["moved"]
    if abs(drawn) > MOVED_CORRELATION:
        words.append(
            "The correlation of discounts and temperatures between persons is hardly determined: "
            f"a weak prior moves it by about {abs(drawn):.1f} towards 0."
        )
    return words
