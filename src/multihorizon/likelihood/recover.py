"""Can this design tell? Studies are simulated as designed and fitted again, and what comes out is set beside what went in.

*Truth.* After a `Population` persons are drawn anew for each study from the fitted population, with a chosen effect of one
covariate if wanted. After `MaximumLikelihood` each person has the fitted discount and temperature, or a chosen discount. The
reward is the fitted one. The tasks and starts are those of the study (`study_design.py`).

*Sizes.* Besides the study as designed there are studies with other numbers of decisions per person, of people, and with other
effects, one of these changed at a time. All sizes use the same random numbers, so that they differ by little else than size.

*What is reported* of each size: bias and root mean square error of the discounts, their correlation with the truth within a
study, how often 95 % intervals contain the truth; and of the effect its bias, its coverage, and its power, the share of studies
with p < 0.05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.special import expit

from multihorizon.checks import Floats, Ints, as_count, as_floats, label
from multihorizon.driver import solve
from multihorizon.likelihood.covariates import PERSON, SPARE_PERSONS
from multihorizon.likelihood.known import by_name, check_discounts
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.likelihood.population import Population
from multihorizon.likelihood.recovered import Outcome, Recovery, Size, SizeResult
from multihorizon.likelihood.study_design import Design, names_of, policies_of, read_design
from multihorizon.parallel import as_jobs, in_parallel
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.solution import Solution, Status
from multihorizon.tables.demonstrations import Demonstrations

#: Numbers of decisions and of people that are tried besides those of the study, as multiples of them.
MULTIPLES = (0.5, 2.0)
#: A single study has no spread.
LEAST_STUDIES = 2


def recover(
    study: Problem | Solution,
    solver: MaximumLikelihood | Population | None = None,
    demonstrations: Demonstrations | Sequence[Demonstrations] | None = None,
    *,
    effects: Sequence[float] | None = None,
    term: str | None = None,
    discounts: Mapping[str, float] | None = None,
    decisions: Sequence[int] | None = None,
    people: Sequence[int] | None = None,
    studies: int = 100,
    jobs: int = 1,
    seed: int = 0,
    progress: Progress = silent,
) -> Recovery:
    """Simulate a study as designed, fit it again, and compare.

    Args:
        study: the problem, or a solution of `MaximumLikelihood` or `Population` to take as the truth.
        solver: how studies are fitted, `MaximumLikelihood` or `Population`; by default that of the solution, else
            `MaximumLikelihood()`.
        demonstrations: the table the problem was made of, or one for each task. Then simulated episodes begin where those of the
            study did; without it, persons decide again in the states in which they decided.
        effects: sizes of the effect of one covariate on logit γ, for `Population`. The last one is that of studies of other
            sizes. By default no effect and the fitted one.
        term: the covariate's term in the formula; not needed where there is one besides the intercept.
        discounts: chosen discounts by name, for `MaximumLikelihood`; others are those of the solution.
        decisions: numbers of decisions per person to try besides the study's own; by default half and twice as many.
        people: numbers of people to try, for `Population`; by default half and twice as many.
        studies: how many studies of each size.
        jobs: processes; −1 is all cores. The digits do not depend on it.
        seed: same seed, same answer.
        progress: called after each study.

    Raises:
        ValueError: for an expert without decisions, an unknown term or name, or a fit that has no answer to start from.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains
        >>> d = domains.cliff()
        >>> table = Demonstrations.simulate(d.mdp, d.mce_experts(), episodes=100)
        >>> found = recover(Problem(d.mdp, table), demonstrations=table, decisions=[], studies=3)
        >>> found.sizes[0].people, found.sizes[0].studies
        (3, 3)
    """
    as_count(studies, "studies", least=LEAST_STUDIES)
    as_jobs(jobs)
    problem = study if isinstance(study, Problem) else study.require_problem()
    used = solver or (MaximumLikelihood() if isinstance(study, Problem) else _solver_of(study))
    problem = used.compared(problem) if isinstance(used, Population) else problem
    design = read_design(problem, demonstrations)
    varied = _term(used, problem, term)
    _check_request(used, problem, varied, effects, discounts, decisions, people)
    chosen = by_name(problem, discounts or {}, "discount")
    fitted = _with_answer(solve(problem, used, seed) if isinstance(study, Problem) else study)
    truth = _truth(fitted, used, problem, varied, chosen)
    sizes = _sizes(design, truth, effects, decisions, people)
    task = _Study(design, truth, used, seed)
    items = [(size, number) for size in sizes for number in range(studies)]
    outcomes: list[Outcome] = []
    for outcome in in_parallel(task, items, jobs):
        outcomes.append(outcome)
        progress(len(outcomes) / len(items), f"simulated study {len(outcomes)} of {len(items)}")
    if all(outcome.problem for outcome in outcomes):
        raise ValueError(f"no simulated study has an answer: {outcomes[0].problem}")
    results = [SizeResult.of(size, outcomes[i * studies : (i + 1) * studies]) for i, size in enumerate(sizes)]
    return Recovery(type(used).__name__, truth.term, tuple(results), seed)


@dataclass(frozen=True, eq=False)
class _FixedPersons:
    """Persons with given discounts and temperatures `(K,)`."""

    reward: Floats
    discounts: Floats
    temperatures: Floats
    term: str | None = None
    effect: float = np.nan

    def draw(self, members: Ints, effect: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Discounts and temperatures of persons made after these."""
        return self.discounts[members], self.temperatures[members]


@dataclass(frozen=True, eq=False)
class _DrawnPersons:
    """Persons of a population: design X `(K,p)`, effects `(p,2)` on logit γ and log λ, and a root `(2,2)` of their covariance."""

    reward: Floats
    matrix: Floats
    effects: Floats
    root: Floats
    largest: float
    terms: tuple[str, ...]
    term: str | None

    @property
    def effect(self) -> float:
        """The fitted effect of the term on logit γ."""
        return np.nan if self.term is None else float(self.effects[self.terms.index(self.term), 0])

    def draw(self, members: Ints, effect: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Discounts and temperatures of new persons with the covariates of these."""
        effects = self.effects.copy()
        if self.term is not None:
            effects[self.terms.index(self.term), 0] = effect
        eta = self.matrix[members] @ effects + rng.normal(size=(members.size, 2)) @ self.root.T
        return self.largest * expit(eta[:, 0]), np.exp(eta[:, 1])


_Truth = _FixedPersons | _DrawnPersons


def _check_request(
    solver: MaximumLikelihood | Population,
    problem: Problem,
    term: str | None,
    effects: Sequence[float] | None,
    discounts: Mapping[str, float] | None,
    decisions: Sequence[int] | None,
    people: Sequence[int] | None,
) -> None:
    """Raise, before any work, for numbers that cannot be and for what this solver cannot vary."""
    as_floats(effects or (), "effects")
    check_discounts(discounts)
    for number in decisions or ():
        as_count(number, "decisions")
    for number in people or ():
        as_count(number, "people")
    if effects and term is None:
        raise ValueError("effects need a Population with a covariate, received none")
    if people is not None and not isinstance(solver, Population):
        raise ValueError("other numbers of people need a Population to draw them from, received MaximumLikelihood")
    if people and isinstance(solver, Population):
        terms = len(solver.covariates(problem).terms)
        if min(people) < terms + SPARE_PERSONS:
            raise ValueError(
                f"people must be at least {terms + SPARE_PERSONS}, as the formula has {terms} terms, received {min(people)}"
            )
    if discounts is not None and isinstance(solver, Population):
        raise ValueError("chosen discounts need MaximumLikelihood: persons of a Population are drawn, received a Population")


def _with_answer(found: Solution) -> Solution:
    if found.status == Status.NOT_CONVERGED or not np.isfinite(found.discounts).all():
        raise ValueError(f"the study itself must have discounts to recover, received a fit that is {found.status}")
    return found


def _solver_of(solution: Solution) -> MaximumLikelihood | Population:
    options = {name: value for name, value in solution.options.items() if name != "lookahead"}
    try:
        if solution.solver == "Population":
            persons = options.pop("persons", None)
            return Population(persons=None if persons is None else pd.DataFrame(persons), **options)
        if solution.solver == "MaximumLikelihood":
            return MaximumLikelihood(**options)
    except TypeError as error:  # of options that were read from a file and are none of the solver's
        raise ValueError(f"the options of the solution are none of {solution.solver}: {error}") from error
    raise ValueError(f"recover needs a solution of MaximumLikelihood or Population, received one of {solution.solver}")


def _truth(
    fitted: Solution,
    solver: MaximumLikelihood | Population,
    problem: Problem,
    term: str | None,
    chosen: Floats,
) -> _Truth:
    """The persons that are simulated; `chosen` are discounts `(K,)` that replace the fitted ones, NaN where those stay."""
    assert fitted.temperature is not None
    if not isinstance(solver, Population):
        discounts = np.where(np.isnan(chosen), fitted.discounts, chosen)
        return _FixedPersons(fitted.reward, discounts, fitted.temperature)
    covariates = solver.covariates(problem)
    population = fitted.evidence["population"]
    effects = np.array(
        [[population[kind][name]["estimate"] for kind in ("discount", "temperature")] for name in covariates.terms]
    )
    widths = np.array([population["spread"][kind]["estimate"] for kind in ("discount", "temperature")])
    rho = population["spread"]["correlation"]["estimate"]
    root = widths[:, None] * np.array([[1.0, 0.0], [rho, np.sqrt(max(0.0, 1 - rho**2))]])
    return _DrawnPersons(fitted.reward, covariates.matrix, effects, root, population["largest_discount"], covariates.terms, term)


def _term(solver: MaximumLikelihood | Population, problem: Problem, term: str | None) -> str | None:
    """The term whose effect is varied."""
    if not isinstance(solver, Population):
        if term is not None:
            raise ValueError(f"a term needs a Population, received {type(solver).__name__}")
        return None
    others = [name for name in solver.covariates(problem).terms if name != "Intercept"]
    if term is None and len(others) > 1:
        raise ValueError(f"term must say which effect is to be recovered, one of {', '.join(others)}; received none")
    if term is not None and term not in others:
        raise ValueError(f"term must be one of {', '.join(others) or 'none'}, received {term}")
    return term or (others[0] if others else None)


def _sizes(
    design: Design,
    truth: _Truth,
    effects: Sequence[float] | None,
    decisions: Sequence[int] | None,
    people: Sequence[int] | None,
) -> list[Size]:
    """The study as designed first, then one change at a time."""
    k, own = design.problem.n_experts, design.decisions
    drawn = isinstance(truth, _DrawnPersons)
    tried = effects or ([np.nan] if truth.term is None else [0.0, truth.effect])
    main = Size(k, own, float(tried[-1]))
    found = [main, *(replace(main, effect=float(effect)) for effect in tried[:-1])]
    for number in [round(own * m) for m in MULTIPLES] if decisions is None else decisions:
        found.append(replace(main, decisions=float(number)))
    for number in ([round(k * m) for m in MULTIPLES] if people is None else people) if drawn else ():
        found.append(replace(main, people=int(number)))
    return list(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class _Study:
    """One simulated study after another: an item is a size and the study's number."""

    design: Design
    truth: _Truth
    solver: MaximumLikelihood | Population
    seed: int

    def __call__(self, item: tuple[Size, int]) -> Outcome:
        size, number = item
        seeds = np.random.SeedSequence([self.seed, number]).generate_state(3)
        members = self.design.draw_people(size.people, np.random.default_rng(seeds[0]))
        problem, patterns = self.design.of_people(members)
        discounts, temperatures = self.truth.draw(members, size.effect, np.random.default_rng(seeds[1]))
        policies = policies_of(problem, self.solver.known_reward, self.truth.reward, discounts, temperatures)
        share = size.decisions / self.design.decisions
        simulated = self.design.simulate(problem, patterns, policies, share, int(seeds[2]))
        try:
            found = solve(simulated, self._solver(members), number)
        except ValueError as error:
            return Outcome.without_answer(discounts, size.effect, str(error))
        return Outcome.of(found, discounts, size.effect, self.truth.term)

    def _solver(self, members: Ints) -> MaximumLikelihood | Population:
        """The solver, with covariates for the persons of this study."""
        if not isinstance(self.solver, Population) or self.solver.persons is None:
            return self.solver
        names = self.design.problem.names
        labels = [label(value, f"column {PERSON} of persons") for value in self.solver.persons[PERSON]]
        rows = self.solver.persons.assign(**{PERSON: labels}).set_index(PERSON)
        frame: pd.DataFrame = rows.loc[[names[k] for k in members]].reset_index()
        frame[PERSON] = names_of(self.design.problem, members)
        return replace(self.solver, persons=frame, missing="fail")
