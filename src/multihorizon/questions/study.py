"""What can this design show? Studies are simulated as designed and fitted again, and what comes out is set beside what went in.

*Design.* A simulated study draws people from the patterns of the study that was run (`schedule.StudyDesign`), lets each act by a
policy in the same tasks, and counts their decisions. In its place there can be one that is planned, a `Schedule`; `design` finds
the best.

*Truth.* After a `Population` people are drawn anew for each study from the fitted population, with a chosen effect of one
covariate or condition if wanted. Under conditions each person decides in the cells of the pattern, and the test of the effect
compares people with themselves. After `MaximumLikelihood` each person has the fitted discount and temperature, or a chosen
discount. The reward is the fitted one.

*Sizes.* Besides the study as designed there are studies with other numbers of decisions per person, of people, and with other
effects, one of these changed at a time. All sizes use the same random numbers, so that they differ by little else than size.

*What is reported* of each size: bias and root mean square error of the discounts, their correlation with the truth within a
study, how often 95% CIs contain the truth; and of the effect its bias, its coverage, and its power, the share of studies
with p < 0.05.

*Bootstrap* is the spread of the estimate over tables that might have been logged instead.

* *parametric*: in each state where an expert decided n times, n new decisions are drawn from the fitted policy; right where the
  model is, and cheap, because the states visited stay as they are.
* *episodes*: each expert's episodes are drawn with replacement; right even where the decisions of one episode depend on each
  other in ways that the model does not have. Needs the table, because a problem holds only counts.

Each sample is fitted again from the estimate, in parallel; sample i uses the i-th child of the seed, so the number
of processes does not change the answer. Fits that did not finish are left out and counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from scipy.special import expit

from multihorizon.checks import (
    Floats,
    Ints,
    Seed,
    as_count,
    as_floats,
    as_jobs,
    as_level,
    as_seed,
    label,
    numbers_of,
    renamed,
)
from multihorizon.choice.model import Likelihood, draw_decisions
from multihorizon.choice.plans import SOFT, Choosing
from multihorizon.choice.settings import check_discounts
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.driver import solve
from multihorizon.files import read_json
from multihorizon.likelihood.estimates import choosing_of, principal_root
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood, resume
from multihorizon.likelihood.search import climb
from multihorizon.parallel import Progress, Run, in_parallel, silent
from multihorizon.population.covariates import Covariates, least_persons
from multihorizon.population.findings import PopulationEvidence, PopulationFindings
from multihorizon.population.solver import Population, remembered
from multihorizon.problem import Problem, require_finite
from multihorizon.questions.schedule import Schedule, StudyDesign, design_under, policies_of, read_design, tables_of
from multihorizon.result import COLOURS, Result, package_version
from multihorizon.solution import Solution, Status
from multihorizon.words import count, decimals, percent_with_error


def simulate_study(
    study: Problem | Solution,
    solver: MaximumLikelihood | Population | None = None,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    *,
    schedule: Schedule | None = None,
    effects: Sequence[float] | None = None,
    term: str | None = None,
    discounts: Mapping[str, float] | None = None,
    decisions: Sequence[int] | None = None,
    people: Sequence[int] | None = None,
    studies: int = 100,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Recovery:
    """Simulate a study as designed many times, fit each again, and compare with the truth.

    Args:
        study: the problem, or a solution of `MaximumLikelihood` or `Population` to take as the truth.
        solver: how studies are fitted, `MaximumLikelihood` or `Population`; by default that of the solution, else
            `MaximumLikelihood()`.
        demonstrations: the table the problem was made of, or one for each task. Then simulated episodes begin where those of the
            study did; without it, people decide again in the states in which they decided.
        schedule: in place of a study that was run, one that is planned, as `design` proposes it. People are those of the
            solution, and `people` is one number: as many people take part, each made after one of the solution's.
        effects: sizes of the effect of one covariate or condition on logit γ, for `Population`. The last one is that of studies
            of other sizes. By default no effect and the fitted one.
        term: the covariate's term in the formula; not needed where there is one besides the intercept.
        discounts: chosen discount factors by name, for `MaximumLikelihood`; others are those of the solution.
        decisions: numbers of decisions per person to try besides the study's own; by default half and twice as many.
        people: numbers of people to try, for `Population`; by default half and twice as many.
        studies: how many studies of each size; at least 2, as a single study has no spread.
        seed: same seed, same answer.
        jobs: processes; −1 is all cores. The digits do not depend on it.
        progress: called after each study.

    Returns:
        For each size of study, errors, coverage and power (`multihorizon.questions.study.Recovery`).

    Raises:
        ValueError: for an expert without decisions, an unknown term or name, or a fit that has no answer to start from.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains
        >>> d = domains.cliff()
        >>> table = Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100)
        >>> found = simulate_study(Problem(d.mdp, table), demonstrations=table, decisions=[], studies=3)
        >>> found.sizes[0].people, found.sizes[0].studies
        (3, 3)
    """
    as_count(studies, "studies", least=2)
    run = Run(as_seed(seed), jobs, progress)
    as_jobs(jobs)
    used = solver or (study.solver_used(MaximumLikelihood, Population) if isinstance(study, Solution) else MaximumLikelihood())
    problem = study.require_problem() if isinstance(study, Solution) else require_finite(study)
    if used.planner is not None or used.stickiness:
        raise ValueError("a simulated study needs neither stickiness nor a planner of your own, got a fit with one")
    covariates = None
    if isinstance(used, Population):
        # A saved fit does not hold under which condition each decision was made.
        if schedule is not None and isinstance(study, Solution) and PopulationEvidence.of(study).population.conditions:
            covariates = remembered(study, used.formula, used.persons, used.reference)
        else:
            covariates = used.covariates(problem)
    whole, within = problem, covariates is not None and bool(covariates.conditions)
    problem = problem if covariates is None else covariates.compared(problem)
    if schedule is not None and demonstrations is not None:
        raise ValueError("a study must have demonstrations or a schedule, got both")
    varied = _check_request(covariates, term, effects, discounts, decisions, None if schedule is not None else people)
    chosen = numbers_of(discounts or {}, problem.names, "discounts", "expert")
    fitted = study if isinstance(study, Solution) else solve(problem, used, seed=run.seed)
    if fitted.status == Status.NOT_CONVERGED or not np.isfinite(fitted.discounts).all() or fitted.temperature is None:
        raise ValueError(f"the study itself must have discounts to recover, got a fit that is {fitted.status}")
    discounts_used = np.where(np.isnan(chosen), fitted.discounts, chosen)
    population = None if covariates is None else PopulationEvidence.of(fitted).population
    truth = Truth(
        fitted.personal_rewards, discounts_used, fitted.temperature, varied, covariates, population, choosing_of(fitted)
    )
    if schedule is None:
        tables = list(whole.tables) if within and demonstrations is None and whole.tables else demonstrations
        design = design_under(whole, tables, covariates) if within and covariates else read_design(problem, demonstrations)
        sizes = _sizes(design, truth, effects, decisions, people)
    else:
        given = fitted.personal_rewards, discounts_used, fitted.temperature
        cells = None
        if covariates is not None and population is not None and within:
            eta = covariates.matrix @ population.effects
            given = given[0][covariates.owner], population.largest_discount * expit(eta[:, 0]), np.exp(eta[:, 1])
            cells = covariates.owner, covariates.frame[list(covariates.conditions)]
        design = schedule.study(problem, used.known_reward, *given, cells, truth.choosing)
        if people and len(people) > 1:
            raise ValueError(f"a schedule is for one number of people, got {' and '.join(map(str, people))}")
        number = people[0] if people else problem.n_experts
        as_count(number, "people", least=1 if covariates is None else least_persons(len(covariates.terms)))
        sizes = [replace(size, people=number) for size in _sizes(design, truth, effects, decisions or [], [])]
    items = [(size, number) for size in sizes for number in range(studies)]
    outcomes: list[Outcome] = []
    for outcome in in_parallel(_Study(design, truth, used, run.seed), items, run.jobs):
        outcomes.append(outcome)
        progress(len(outcomes) / len(items), f"simulated study {len(outcomes)} of {len(items)}")
    if all(outcome.problem for outcome in outcomes):
        raise ValueError(f"no simulated study has an answer: {outcomes[0].problem}")
    results = [SizeResult.of(size, outcomes[i * studies : (i + 1) * studies]) for i, size in enumerate(sizes)]
    return Recovery(type(used).__name__, varied, tuple(results), run.seed)


def _check_request(
    covariates: Covariates | None,
    term: str | None,
    effects: Sequence[float] | None,
    discounts: Mapping[str, float] | None,
    decisions: Sequence[int] | None,
    people: Sequence[int] | None,
) -> str | None:
    """Return the term whose effect is varied; raises, before any work, for what cannot be and for what the solver cannot vary."""
    as_floats(effects or (), "effects")
    check_discounts(discounts)
    for name, numbers in (("decisions", decisions), ("people", people)):
        for number in numbers or ():
            as_count(number, name)
    others = [] if covariates is None else [name for name in covariates.terms if name != "Intercept"]
    if covariates is None and term is not None:
        raise ValueError("a term needs a Population, got MaximumLikelihood")
    if term is None and len(others) > 1:
        raise ValueError(f"term must say which effect is to be recovered, one of {', '.join(others)}; got none")
    if term is not None and term not in others:
        raise ValueError(f"term must be one of {', '.join(others) or 'none'}, got {term}")
    if effects and not others:
        raise ValueError("effects need a Population with a covariate, got none")
    if covariates is None:
        if people is not None:
            raise ValueError("other numbers of people need a Population to draw them from, got MaximumLikelihood")
        return None
    if discounts is not None:
        raise ValueError("chosen discounts need MaximumLikelihood: people of a Population are drawn, got a Population")
    terms = len(covariates.terms)
    if people and min(people) < least_persons(terms):
        least = least_persons(terms)
        raise ValueError(f"people must be at least {least}, as the formula has {terms} terms, got {min(people)}")
    return term or (others[0] if others else None)


@dataclass(frozen=True, eq=False)
class Truth:
    """Who is simulated: people with given discounts and temperatures `(K,)` or, with covariates, new people of a population.

    Everybody's rewards `(K,d)` are those of the study: the shared one, and deviations from it where there are any.
    """

    rewards: Floats
    discounts: Floats
    temperatures: Floats
    term: str | None = None
    covariates: Covariates | None = None
    population: PopulationFindings | None = None
    choosing: Choosing = SOFT

    @property
    def effect(self) -> float:
        """Return the fitted effect of the term on logit γ."""
        return np.nan if self.population is None or self.term is None else self.population.discount[self.term]["estimate"]

    def draw(
        self, members: Ints, effect: float, rng: np.random.Generator, cells: Ints, whose: Ints
    ) -> tuple[Floats, Floats, Floats]:
        """Return discounts and temperatures of the cells of people made after these, with this effect of the term, and the
        discounts of the people on the average of conditions.

        `cells` are theirs, and `whose` says of which of the members each is.
        """
        if self.covariates is None or self.population is None:
            return self.discounts[members], self.temperatures[members], self.discounts[members]
        effects, spread = self.population.effects, self.population.spread
        if self.term is not None:
            effects[self.covariates.terms.index(self.term), 0] = effect
        largest = self.population.largest_discount
        if self.covariates.conditions:
            root = principal_root(np.array(self.population.person_covariance))
            own = (rng.normal(size=(members.size, len(root))) @ root.T).reshape(members.size, -1, 2)
            matrix, random = self.covariates.matrix[cells], self.covariates.random[cells]
            eta = matrix @ effects + np.einsum("cq,cqk->ck", random, own[whose])
            mean = self.covariates.typical[members] @ effects
            mean += np.einsum("cq,cqk->ck", self.covariates.typical_random[members], own)
            return largest * expit(eta[:, 0]), np.exp(eta[:, 1]), largest * expit(mean[:, 0])
        rho = spread["correlation"]["estimate"]
        widths = np.array([spread[kind]["estimate"] for kind in ("discount", "temperature")])
        root = widths[:, None] * np.array([[1.0, 0.0], [rho, np.sqrt(max(0.0, 1 - rho**2))]])
        eta = self.covariates.matrix[members] @ effects + rng.normal(size=(members.size, 2)) @ root.T
        drawn = largest * expit(eta[:, 0])
        return drawn, np.exp(eta[:, 1]), drawn


@dataclass(frozen=True)
class Size:
    """The size of a study: how many people, mean decisions of each, and the effect on logit γ, NaN where there is none."""

    people: int
    decisions: float
    effect: float


def _sizes(
    design: StudyDesign,
    truth: Truth,
    effects: Sequence[float] | None,
    decisions: Sequence[int] | None,
    people: Sequence[int] | None,
) -> list[Size]:
    """Return the study as designed first, then one change at a time."""
    k, designed = len(design.persons), design.decisions
    tried = effects or ([np.nan] if truth.term is None else [0.0, truth.effect])
    if decisions is None:
        decisions = [round(0.5 * designed), round(2.0 * designed)]
    if people is None:
        people = [] if truth.covariates is None else [round(0.5 * k), 2 * k]
    main = Size(k, designed, float(tried[-1]))
    sizes = [main, *(replace(main, effect=float(effect)) for effect in tried[:-1])]
    sizes += [replace(main, decisions=float(number)) for number in decisions]
    sizes += [replace(main, people=int(number)) for number in people]
    return list(dict.fromkeys(sizes))


@dataclass(frozen=True, eq=False)
class Outcome:
    """One simulated study.

    Attributes:
        truth, estimates: true and estimated discounts `(n,)`.
        intervals: of the discounts `(n,2)`.
        effect: the estimate of the effect, both ends of its interval, and its p-value.
        problem: why there is no answer; empty where there is one.
    """

    truth: Floats
    estimates: Floats
    intervals: Floats
    effect: Sequence[float] = (np.nan, np.nan, np.nan, np.nan)
    problem: str = ""

    @classmethod
    def of(cls, solution: Solution, truth: Floats, term: str | None) -> Outcome:
        """Return what a fitted study says."""
        if solution.status == Status.NOT_CONVERGED:
            return cls.without_answer(truth, "the fit did not converge")
        identified = solution.evidence.get("identified", solution.status != Status.NOT_IDENTIFIED)
        outcome = cls(truth, np.where(identified, solution.discounts, np.nan), solution.confidence_intervals(0.95))
        if term is None:
            return outcome
        effect = PopulationEvidence.of(solution).population.discount[term]
        return replace(outcome, effect=[effect["estimate"], *effect["interval"], effect["p"]])

    @classmethod
    def without_answer(cls, truth: Floats, problem: str) -> Outcome:
        """Return a study whose fit has no answer."""
        return cls(truth, np.full(truth.size, np.nan), np.full((truth.size, 2), np.nan), problem=problem)


@dataclass(frozen=True, eq=False)
class _Study:
    """One simulated study after another: an item is a size and the study's number."""

    design: StudyDesign
    truth: Truth
    solver: MaximumLikelihood | Population
    seed: int

    def __call__(self, item: tuple[Size, int]) -> Outcome:
        size, number = item
        seeds = np.random.SeedSequence([self.seed, number]).generate_state(3)
        members = self.design.draw_people(size.people, np.random.default_rng(seeds[0]))
        cells, whose = self.design.cells_of(members)
        problem, patterns = self.design.of_cells(cells)
        rng = np.random.default_rng(seeds[1])
        under, temperatures, discounts = self.truth.draw(members, size.effect, rng, cells, whose)
        given = self.truth.rewards[members[whose]], under, temperatures, self.truth.choosing
        policies = policies_of(problem, self.solver.known_reward, *given)
        share = size.decisions / self.design.decisions
        simulated = self.design.simulate(problem, patterns, policies, share, int(seeds[2]))
        try:
            study = self.design.together(simulated, members, cells, whose)
            solution = solve(study, self._solver(members), seed=number)
        except ValueError as error:
            return Outcome.without_answer(discounts, str(error))
        return Outcome.of(solution, discounts, self.truth.term)

    def _solver(self, members: Ints) -> MaximumLikelihood | Population:
        """Return the solver, with covariates for the people of this study."""
        if not isinstance(self.solver, Population) or self.solver.persons is None:
            return self.solver
        labels = [label(value, "column expert of persons") for value in self.solver.persons["expert"]]
        rows = self.solver.persons.set_axis(labels, axis=0).loc[[self.design.persons[k] for k in members]]
        frame = rows.assign(expert=self.design.names_of(members)).reset_index(drop=True)
        return replace(self.solver, persons=frame, missing="fail")


@dataclass(frozen=True, eq=False)
class SizeResult:
    """What studies of one size showed.

    Attributes:
        people, decisions, effect: the size.
        studies: how many were simulated.
        unanswered: how many of them have no answer, and the first reason.
        truth, estimates: discounts `(studies,n)`; estimates are NaN where a discount is not identified, and in a study without an
            answer.
        bias, error: mean and root mean square of the estimates' errors.
        correlation: of truth and estimate within a study, on average; NaN where people do not differ.
        coverage, coverage_error: how often a 95% CI contains the true discount, and the standard error of that share
            from its spread between studies.
        without_interval: the share of discounts for which there was no interval.
        effect_bias, effect_error: mean and standard deviation of the effect's estimates, less the truth.
        effect_coverage: how often its 95% CI contains the true effect.
        power: the share of studies with p < 0.05; without an effect, the size of the test.
    """

    people: int
    decisions: float
    effect: float
    studies: int
    unanswered: int
    reason: str
    truth: Floats
    estimates: Floats
    bias: float
    error: float
    correlation: float
    coverage: float
    coverage_error: float
    without_interval: float
    effect_bias: float
    effect_error: float
    effect_coverage: float
    power: float

    @classmethod
    def of(cls, size: Size, outcomes: Sequence[Outcome]) -> SizeResult:
        """Return the summary of some studies of one size."""
        truth, estimates = np.array([o.truth for o in outcomes]), np.array([o.estimates for o in outcomes])
        ends = np.array([o.intervals for o in outcomes])
        has_interval = np.isfinite(ends).all(axis=2)
        inside = np.where(has_interval, (ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1]), np.nan)
        shares = _finite(np.array([_mean(study) for study in inside]))
        effects, low, high, p = np.array([o.effect for o in outcomes]).T
        held = np.where(np.isfinite(low + high), (low <= size.effect) & (size.effect <= high), np.nan)
        reasons = [o.problem for o in outcomes if o.problem]
        return cls(
            **asdict(size),
            studies=len(outcomes),
            unanswered=len(reasons),
            reason=reasons[0] if reasons else "",
            truth=truth,
            estimates=estimates,
            bias=_mean(estimates - truth),
            error=float(np.sqrt(_mean((estimates - truth) ** 2))),
            correlation=_mean(np.array([_correlation(a, b) for a, b in zip(truth, estimates, strict=True)])),
            coverage=_mean(inside),
            coverage_error=float(shares.std(ddof=1) / np.sqrt(shares.size)) if shares.size > 1 else np.nan,
            without_interval=float(1 - has_interval.mean()),
            effect_bias=_mean(effects - size.effect),
            effect_error=float(np.std(_finite(effects))) if _finite(effects).size else np.nan,
            effect_coverage=_mean(held),
            power=_mean(np.where(np.isfinite(p), p < 0.05, np.nan)),
        )

    def share_error(self, share: float) -> float:
        """Return the standard error of a share of studies, with one more on either side: it is not 0 where all studies agree."""
        answered = self.studies - self.unanswered
        likely = (share * answered + 1) / (answered + 2)
        return float(np.sqrt(likely * (1 - likely) / (answered + 2)))

    def numbers(self) -> dict[str, Any]:
        """Return the summary without the estimates of each study."""
        return {name: value for name, value in asdict(self).items() if name not in ("truth", "estimates")}


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _mean(values: Floats) -> float:
    finite = _finite(values)
    return float(finite.mean()) if finite.size else np.nan


def _correlation(truth: Floats, estimates: Floats) -> float:
    finite = np.isfinite(estimates)
    if finite.sum() < 3 or not truth[finite].std() > 0 or not estimates[finite].std() > 0:
        return np.nan
    return float(np.corrcoef(truth[finite], estimates[finite])[0, 1])


@dataclass(frozen=True, eq=False)
class Recovery(Result):
    """What simulated studies showed; `sizes[0]` is the study as designed."""

    solver: str
    term: str | None
    sizes: tuple[SizeResult, ...]
    seed: int

    def headline(self) -> str:
        """Return the power of the study as designed and the smallest other one with 80%, or else how exact discounts are."""
        first = self.sizes[0]
        if np.isnan(first.error):
            return "No simulated study identified a discount."

        def of(size: SizeResult) -> str:
            return f"{count(size.people, 'participant')} with {decimals(size.decisions, 0)} decisions each"

        if self.term is None or not first.effect or np.isnan(first.power):
            covered = f"95% CIs contain the truth in {decimals(100 * first.coverage, 0)}% of cases"
            return f"{of(first)} give discounts to within ±{decimals(first.error, 2)} (root mean square), and {covered}."
        power = percent_with_error(first.power, first.share_error(first.power))
        text = f"{of(first)} give {power} power to detect an effect of {decimals(first.effect, 2)} of {self.term}"
        larger = [size for size in self.sizes if size.effect == first.effect and size.power >= 0.8]
        if first.power >= 0.8 or not larger:
            return f"{text}."
        least = min(larger, key=lambda size: size.people * size.decisions)
        return f"{text}; {of(least)} give {percent_with_error(least.power, least.share_error(least.power))}."

    def sentences(self) -> str:
        """Return the result in a few sentences."""
        first = self.sizes[0]
        people = "1 person" if first.people == 1 else f"{first.people} people"
        size = f"{first.studies} studies of {people} with {decimals(first.decisions, 0)} decisions each"
        if np.isnan(first.error):
            return f"{size} were simulated, and none of them identified a discount."
        words = [
            f"{size} were simulated: discounts are recovered to ±{decimals(first.error, 2)} (root mean square), "
            f"and 95% CIs contain the truth in {decimals(100 * first.coverage, 0)}% of cases."
        ]
        if first.without_interval:
            words.append(f"For {decimals(100 * first.without_interval, 0)}% of the discounts there is no interval.")
        if np.isfinite(first.correlation):
            words.append(f"Within a study true and estimated discounts correlate by {decimals(first.correlation, 2)} on average.")
        if self.term is not None and first.effect:
            power = percent_with_error(first.power, first.share_error(first.power))
            words.append(
                f"An effect of {decimals(first.effect, 2)} of {self.term} on the logit of the discount is seen in {power} of "
                "studies."
            )
        unanswered = sum(size.unanswered for size in self.sizes)
        if unanswered:
            reason = next(size.reason for size in self.sizes if size.unanswered)
            words.append(f"{unanswered} studies have no answer; the first because {reason}.")
        return " ".join(words)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per size, the study as designed first."""
        return pd.DataFrame([size.numbers() for size in self.sizes])

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and dicts; what is not known is NaN."""
        sizes = [{**size.numbers(), "truth": size.truth.tolist(), "estimates": size.estimates.tolist()} for size in self.sizes]
        said = {"summary": self.sentences(), "solver": self.solver, "term": self.term, "level": 0.95, "seed": self.seed}
        return {**said, "sizes": sizes, "version": package_version()}

    _content = to_dict

    @classmethod
    def from_json(cls, path: str | Path) -> Recovery:
        """Read what `to_json` has written.

        Raises:
            ValueError: for a file that is something else.
        """
        content = read_json(path, "a saved Recovery")
        try:
            sizes = []
            for size in content["sizes"]:
                numbers: dict[str, Any] = {f.name: np.nan if size[f.name] is None else size[f.name] for f in fields(SizeResult)}
                arrays = {name: np.array(numbers[name], dtype=np.float64) for name in ("truth", "estimates")}
                sizes.append(SizeResult(**{**numbers, **arrays}))
            return cls(content["solver"], content["term"], tuple(sizes), content["seed"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a saved Recovery: it holds something else") from error

    def _facts(self) -> dict[str, Any]:
        return {"solver": self.solver, **({} if self.term is None else {"effect of": self.term})}

    def _height(self) -> float:
        return 3.3

    def _draw(self, ax: Any) -> None:
        """Draw estimated against true discounts of the study as designed."""
        ax.plot([0, 1], [0, 1], color="0.6")
        ax.plot(self.sizes[0].truth.ravel(), self.sizes[0].estimates.ravel(), "o", color=COLOURS[0], alpha=0.5)
        ax.set(xlabel="true discount", ylabel="estimated discount")


Kind = Literal["parametric", "episodes"]


@dataclass(frozen=True, eq=False)
class Bootstrap(Result):
    """Discounts `(B,K)` and rewards `(B,d)` of the samples whose fit finished, and how many did not."""

    _drawn: ClassVar[tuple[str, ...]] = ("expert", "discount", "low", "high")

    kind: Kind
    experts: tuple[str, ...]
    discounts: Floats
    rewards: Floats
    failed: int

    @property
    def standard_errors(self) -> Floats:
        """Return standard deviation of each discount `(K,)`."""
        deviations: Floats = self.discounts.std(axis=0, ddof=1)
        return deviations

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """Return percentile intervals `(K,2)` of the discounts."""
        tails = [(1 - as_level(level)) / 2, (1 + level) / 2]
        return np.quantile(self.discounts, tails, axis=0).T

    def sentences(self) -> str:
        """Return how many tables were drawn and how."""
        drawn = "decisions were drawn from the fit" if self.kind == "parametric" else "episodes were drawn with replacement"
        first = f"In {len(self.discounts)} tables {drawn}; {self.failed} further fits did not finish."
        return f"{first} From low to high are 95% of the discounts."

    def to_frame(self) -> pd.DataFrame:
        """Return one row per expert: mean and standard error of the discount, and the ends of the 95% percentile interval."""
        low, high = self.confidence_intervals().T
        columns = {"discount": self.discounts.mean(axis=0), "standard_error": self.standard_errors, "low": low, "high": high}
        return pd.DataFrame({"expert": self.experts, **columns})


@renamed(samples="draws")
def bootstrap(
    solution: Solution,
    draws: int = 200,
    kind: Kind = "parametric",
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    *,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Bootstrap:
    """Fit `draws` tables drawn around a maximum-likelihood solution.

    Args:
        solution: of `MaximumLikelihood`, with its problem.
        draws: how many tables.
        kind: "parametric" or "episodes".
        demonstrations: for "episodes" the table the problem was made of, or one for each task; by default the problem's own.
        seed: same seed, same answer.
        jobs: processes; −1 for all cores. The digits do not depend on it.
        progress: called as samples finish.

    Returns:
        The discounts `(draws,K)` and rewards of all fits that finished, with standard errors and percentile intervals
        (`multihorizon.questions.study.Bootstrap`).

    Raises:
        ValueError: for solutions of other solvers, and where fewer than two fits finished.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100, seed=0)
        >>> problem = mh.Problem(d.mdp, table)
        >>> solution = mh.solve(problem, mh.MaximumLikelihood(1.0))
        >>> mh.bootstrap(solution, draws=5).discounts.shape
        (5, 3)
    """
    as_count(draws, "draws", least=2)
    point = resume(solution)
    model = point.likelihood
    if kind not in ("parametric", "episodes"):
        raise ValueError(f'kind must be "parametric" or "episodes", got {kind!r}')
    if kind == "episodes" and model.settings.stickiness:
        raise ValueError('a bootstrap of a fit with stickiness must be "parametric", got "episodes"')
    tables = None if kind == "parametric" else tables_of(model.problem, demonstrations)
    seeds = np.random.SeedSequence(as_seed(seed)).spawn(draws)
    # Forty tasks are enough for many processes, and few enough that starting one costs little.
    chunks = [[seeds[i] for i in chunk] for chunk in np.array_split(np.arange(draws), min(draws, 40))]
    ends: list[Floats | None] = []
    for part in in_parallel(partial(_refit, model, point.x, tables), chunks, jobs):
        ends += part
        progress(len(ends) / draws, f"bootstrap {len(ends)} of {draws}")
    kept = np.array([x for x in ends if x is not None])
    if len(kept) < 2:
        raise ValueError(f"fewer than two of {draws} bootstrap fits finished: the problem is too close to not being identified")
    discounts = np.array([model.discounts(x) for x in kept])
    return Bootstrap(kind, solution.experts, discounts, kept[:, : model.n_reward], draws - len(kept))


def _refit(
    likelihood: Likelihood, x: Floats, tables: list[Demonstrations] | None, seeds: Sequence[np.random.SeedSequence]
) -> list[Floats | None]:
    """Return the parameters of the refitted samples, None where a fit did not finish."""
    point = likelihood.at(x)
    assert point is not None
    ends: list[Floats | None] = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        counts = draw_decisions(point, rng) if tables is None else _draw_episodes(likelihood.problem, tables, rng)
        start = likelihood.with_counts(counts).at(x, point)
        end = None if start is None else climb(start)
        ends.append(end.point.x if end is not None and end.finished else None)
    return ends


def _draw_episodes(problem: Problem, tables: list[Demonstrations], rng: np.random.Generator) -> list[Floats]:
    """Return the counts of tables in which each expert's episodes are drawn with replacement."""
    counts: list[Floats] = []
    for table in tables:
        owners = table.by_episode.expert
        times = np.zeros(owners.size)
        for expert in range(len(table.experts)):
            episodes = np.flatnonzero(owners == expert)
            times[episodes] = rng.multinomial(episodes.size, np.full(episodes.size, 1 / episodes.size)) if episodes.size else 0
        counts += list(table.counts_of_episodes(problem.experts[len(counts)].mdp, times))
    return counts
