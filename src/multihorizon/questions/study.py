"""A study as it was designed, and studies that might be run in its place: the same tasks, the same starts, other persons.

A person of the study is a pattern that can be used again: where their episodes began and how long they could be or, without the
table, in which states they decided how often. A simulated study draws persons from the patterns, lets each act by a policy, and
counts their decisions.

What simulated studies of each size showed: truth against recovery, coverage, and power.

Can this design tell? Studies are simulated as designed and fitted again, and what comes out is set beside what went in.

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
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit

from multihorizon.checks import Floats, Ints, as_count, as_floats, label
from multihorizon.choice.parameters import Settings, by_name, check_discounts, with_known_reward
from multihorizon.choice.tabular import Likelihood, require_counts
from multihorizon.data.demonstrations import Demonstrations, simulate_policy
from multihorizon.driver import solve
from multihorizon.estimate.maximum_likelihood import MaximumLikelihood
from multihorizon.estimate.population.covariates import least_persons
from multihorizon.estimate.population.solver import Population
from multihorizon.files import read_json, write_json
from multihorizon.parallel import Progress, as_jobs, in_parallel, silent
from multihorizon.problem import Problem, require_finite
from multihorizon.questions.bootstrap import tables_of
from multihorizon.result import package_version
from multihorizon.solution import Solution, Status


@dataclass(frozen=True, eq=False)
class Design:
    """Where each of the problem's experts decides.

    Attributes:
        problem: persons and tasks, with their decisions.
        starts: for each of the problem's experts the states in which episodes began; None where only visited states are known.
        lengths: the most decisions of one of their episodes.
    """

    problem: Problem
    starts: tuple[Ints, ...] | None
    lengths: tuple[int, ...]

    @property
    def decisions(self) -> float:
        """The mean number of decisions of a person."""
        return float(sum(require_counts(expert).sum() for expert in self.problem.experts)) / self.problem.n_experts

    def draw_people(self, people: int, rng: np.random.Generator) -> Ints:
        """Which person of the study each of so many is made after: everyone equally often, the rest drawn."""
        k = self.problem.n_experts
        rest = np.sort(rng.permutation(k)[: people % k])
        return np.concatenate([np.tile(np.arange(k), people // k), rest]).astype(np.int64)

    def of_people(self, members: Ints) -> tuple[Problem, Ints]:
        """The problem of these persons with the decisions of their patterns, and the pattern of each of its experts."""
        names = names_of(self.problem, members)
        pairs = [(place, name) for k, name in zip(members, names, strict=True) for place in self._places(int(k))]
        experts = (replace(self.problem.experts[place], name=name) for place, name in pairs)
        return self.problem.with_experts(experts), np.array([place for place, _ in pairs], dtype=np.int64)

    def simulate(self, problem: Problem, patterns: Ints, policies: Sequence[Floats], share: float, seed: int) -> Problem:
        """The problem with new decisions by these policies, `share` times as many as the patterns have."""
        streams = np.random.SeedSequence(seed).spawn(len(policies))
        experts = (
            replace(expert, counts=self._decide(int(place), policy, share, stream))
            for expert, place, policy, stream in zip(problem.experts, patterns, policies, streams, strict=True)
        )
        return problem.with_experts(experts)

    def _places(self, person: int) -> list[int]:
        return [place for place, owner in enumerate(self.problem.owner) if owner == person]

    def _decide(self, place: int, policy: Floats, share: float, stream: np.random.SeedSequence) -> Floats:
        """Counts `(S,A)` of new decisions after one pattern."""
        first, second = stream.spawn(2)
        rng, expert = np.random.default_rng(first), self.problem.experts[place]
        if self.starts is None:
            visits = _scaled_visits(require_counts(expert).sum(axis=1), share, rng)
            return rng.multinomial(visits, policy / policy.sum(axis=1, keepdims=True)).astype(np.float64)
        starts = _scaled_starts(self.starts[place], share, rng)
        columns = simulate_policy(expert.mdp, policy, starts.size, self.lengths[place], second, starts)
        shape = (expert.mdp.n_states, expert.mdp.n_actions)
        flat = np.ravel_multi_index((columns[2], columns[3]), shape)
        return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)


def read_design(problem: Problem, demonstrations: Demonstrations | Sequence[Demonstrations] | None) -> Design:
    """The design of a study, with the starts of its episodes where the tables are given, one for each task in order.

    The tables may hold further experts, whom the problem leaves out.
    """
    if demonstrations is None:
        return Design(problem, None, (0,) * len(problem.experts))
    starts: list[Ints] = []
    lengths: list[int] = []
    for table in tables_of(problem, demonstrations, all_experts=False):
        members = [expert for expert, name in enumerate(table.experts) if name in problem.names]
        if members:
            episodes = table.by_episode
            states = table.match(problem.experts[len(starts)].mdp)[0][episodes.first_state]
            for expert in members:
                own = episodes.expert == expert
                starts.append(states[own])
                lengths.append(int(episodes.length[own].max()))
    return Design(problem, tuple(starts), tuple(lengths))


def names_of(problem: Problem, members: Ints) -> list[str]:
    """A name for each person made after a pattern: the pattern's own for the first, and with a number for each further one."""
    seen: dict[int, int] = {}
    names = []
    for k in members.tolist():
        seen[k] = seen.get(k, 0) + 1
        names.append(problem.names[k] if seen[k] == 1 else f"{problem.names[k]} #{seen[k]}")
    return names


def policies_of(problem: Problem, known: Any, reward: Floats, discounts: Floats, temperatures: Floats) -> list[Floats]:
    """The policy `(S,A)` of each of the problem's experts and tasks under one reward and each person's parameters.

    `known` is the known part of the reward, as in `MaximumLikelihood`, `reward` the parameters of the rest.
    """
    paid = with_known_reward(problem, known)[0]
    model = Likelihood(paid, Settings(temperatures=np.full(problem.n_experts, np.nan)))
    point = model.at(np.concatenate([reward, discounts, np.log(temperatures)]))
    if point is None:
        raise ValueError("the values of the task must be finite under the parameters to be recovered, received infinite ones")
    return point.policies()


def _scaled_starts(starts: Ints, share: float, rng: np.random.Generator) -> Ints:
    """`share` times as many starts: all equally often, the rest drawn."""
    wanted = max(1, round(share * starts.size))
    return np.concatenate([np.tile(starts, wanted // starts.size), rng.permutation(starts)[: wanted % starts.size]])


def _scaled_visits(visits: Floats, share: float, rng: np.random.Generator) -> Ints:
    """`share` times as many visits, in states drawn in proportion to those of the study."""
    if share == 1.0:
        return visits.astype(np.int64)
    return rng.multinomial(max(1, round(share * visits.sum())), visits / visits.sum()).astype(np.int64)


COVERAGE = 0.95
#: A study sees an effect where its p-value is below this.
SEEN = 0.05


@dataclass(frozen=True)
class Size:
    """The size of a study: how many people, mean decisions of each, and the effect on logit γ, NaN where there is none."""

    people: int
    decisions: float
    effect: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """One simulated study: true and estimated discounts `(n,)` with intervals `(n,2)`, and the effect's estimate, interval and p.

    `problem` says why there is no answer; it is empty where there is one.
    """

    truth: Floats
    estimates: Floats
    intervals: Floats
    effect: float
    effect_estimate: float
    effect_interval: tuple[float, float]
    effect_p: float
    problem: str = ""

    @classmethod
    def of(cls, found: Solution, truth: Floats, effect: float, term: str | None) -> Outcome:
        """What a fitted study says."""
        if found.status == Status.NOT_CONVERGED:
            return cls.without_answer(truth, effect, "the fit did not converge")
        intervals = found.confidence_intervals(COVERAGE)
        told = found.evidence.get("identified", found.status != Status.NOT_IDENTIFIED)
        estimates = np.where(told, found.discounts, np.nan)
        if term is None:
            return cls(truth, estimates, intervals, effect, np.nan, (np.nan, np.nan), np.nan)
        seen = found.evidence["population"]["discount"][term]
        low, high = seen["interval"]
        return cls(truth, estimates, intervals, effect, seen["estimate"], (low, high), seen["p"])

    @classmethod
    def without_answer(cls, truth: Floats, effect: float, problem: str) -> Outcome:
        """A study whose fit has no answer."""
        nothing = np.full(truth.size, np.nan)
        return cls(truth, nothing, np.full((truth.size, 2), np.nan), effect, np.nan, (np.nan, np.nan), np.nan, problem)


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
        correlation: of truth and estimate within a study, on average; NaN where persons do not differ.
        coverage, coverage_error: how often a 95 % interval contains the true discount, and the standard error of that share
            from its spread between studies.
        without_interval: the share of discounts for which there was no interval.
        effect_bias, effect_error: mean and standard deviation of the effect's estimates, less the truth.
        effect_coverage: how often its 95 % interval contains the true effect.
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
        """The summary of some studies of one size."""
        truth, found = np.array([o.truth for o in outcomes]), np.array([o.estimates for o in outcomes])
        ends = np.array([o.intervals for o in outcomes])
        inside = (ends[:, :, 0] <= truth) & (truth <= ends[:, :, 1])
        known = np.isfinite(ends).all(axis=2)
        effects = np.array([o.effect_estimate for o in outcomes])
        seen = np.array([o.effect_interval for o in outcomes])
        held = (seen[:, 0] <= size.effect) & (size.effect <= seen[:, 1])
        p = np.array([o.effect_p for o in outcomes])
        reasons = [o.problem for o in outcomes if o.problem]
        return cls(
            size.people,
            size.decisions,
            size.effect,
            len(outcomes),
            len(reasons),
            reasons[0] if reasons else "",
            truth,
            found,
            bias=_mean(found - truth),
            error=float(np.sqrt(_mean((found - truth) ** 2))),
            correlation=_mean(np.array([_correlation(a, b) for a, b in zip(truth, found, strict=True)])),
            coverage=_mean(np.where(known, inside, np.nan)),
            coverage_error=_error_of_mean(np.array([_mean(row) for row in np.where(known, inside, np.nan)])),
            without_interval=float(1 - known.mean()),
            effect_bias=_mean(effects - size.effect),
            effect_error=float(np.std(effects[np.isfinite(effects)])) if np.isfinite(effects).any() else np.nan,
            effect_coverage=_mean(np.where(np.isfinite(seen).all(axis=1), held, np.nan)),
            power=_mean(np.where(np.isfinite(p), p < SEEN, np.nan)),
        )

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> SizeResult:
        """What `Recovery.to_json` has written of one size."""
        numbers = {field.name: content[field.name] for field in fields(cls)}
        unknown = {name: np.nan for name, value in numbers.items() if value is None}
        arrays = {name: np.array(numbers[name], dtype=np.float64) for name in ("truth", "estimates")}
        return cls(**{**numbers, **unknown, **arrays})

    def share_error(self, share: float) -> float:
        """The standard error of a share of studies, with one more on either side: it is not 0 where all studies agree."""
        answered = self.studies - self.unanswered
        likely = (share * answered + 1) / (answered + 2)
        return float(np.sqrt(likely * (1 - likely) / (answered + 2)))

    def numbers(self) -> dict[str, Any]:
        """The summary without the estimates of each study."""
        return {name: value for name, value in asdict(self).items() if name not in ("truth", "estimates")}


@dataclass(frozen=True, eq=False)
class Recovery:
    """What simulated studies showed; `sizes[0]` is the study as designed."""

    solver: str
    term: str | None
    sizes: tuple[SizeResult, ...]
    seed: int

    @property
    def summary(self) -> str:
        """The result in a few sentences."""
        first = self.sizes[0]
        size = f"{first.studies} studies of {_count(first.people, 'person', 'people')} with {first.decisions:.0f} decisions each"
        if np.isnan(first.error):
            return f"{size} were simulated, and none of them identified a discount."
        said = [
            f"{size} were simulated: discounts are recovered to ±{first.error:.2f} (root mean square), "
            f"and 95 % intervals contain the truth in {100 * first.coverage:.0f} % of cases."
        ]
        if first.without_interval:
            said.append(f"For {100 * first.without_interval:.0f} % of the discounts there is no interval.")
        if np.isfinite(first.correlation):
            said.append(f"Within a study true and estimated discounts correlate by {first.correlation:.2f} on average.")
        if self.term is not None and first.effect:
            power = f"{100 * first.power:.0f} ± {100 * first.share_error(first.power):.0f} %"
            said.append(
                f"An effect of {first.effect:.2f} of {self.term} on the logit of the discount is seen in {power} of studies."
            )
        if any(size.unanswered for size in self.sizes):
            lost = next(size for size in self.sizes if size.unanswered)
            said.append(f"{sum(size.unanswered for size in self.sizes)} studies have no answer; the first because {lost.reason}.")
        return " ".join(said)

    def to_frame(self) -> pd.DataFrame:
        """One row per size, the study as designed first."""
        return pd.DataFrame([size.numbers() for size in self.sizes])

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and dicts; what is not known is NaN."""
        return {
            "summary": self.summary,
            "solver": self.solver,
            "term": self.term,
            "level": COVERAGE,
            "seed": self.seed,
            "sizes": [
                {**size.numbers(), "truth": size.truth.tolist(), "estimates": size.estimates.tolist()} for size in self.sizes
            ],
            "version": package_version(),
        }

    def to_json(self, path: str | Path) -> None:
        """Write everything; what is not known is null."""
        write_json(path, self.to_dict())

    @classmethod
    def from_json(cls, path: str | Path) -> Recovery:
        """Read what `to_json` has written.

        Raises:
            ValueError: for a file that is something else.
        """
        content = read_json(path, "a recover.json of multihorizon recover")
        try:
            sizes = tuple(SizeResult.from_dict(size) for size in content["sizes"])
            return cls(content["solver"], content["term"], sizes, content["seed"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not a recover.json of multihorizon recover: it holds something else") from error

    def __str__(self) -> str:
        columns = ["people", "decisions", "effect", "bias", "error", "correlation", "coverage", "effect_coverage", "power"]
        return f"{self.to_frame()[columns].round(3).to_string(index=False)}\n{self.summary}"


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else np.nan


def _error_of_mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.std(ddof=1) / np.sqrt(known.size)) if known.size > 1 else np.nan


def _correlation(truth: Floats, found: Floats) -> float:
    known = np.isfinite(found)
    if known.sum() < 3 or not truth[known].std() > 0 or not found[known].std() > 0:
        return np.nan
    return float(np.corrcoef(truth[known], found[known])[0, 1])


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


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
    used = solver or (_solver_of(study) if isinstance(study, Solution) else MaximumLikelihood())
    problem = study.require_problem() if isinstance(study, Solution) else require_finite(study)
    problem = used.covariates(problem).compared(problem) if isinstance(used, Population) else problem
    design = read_design(problem, demonstrations)
    varied = _term(used, problem, term)
    _check_request(used, problem, varied, effects, discounts, decisions, people)
    chosen = by_name(problem, discounts or {}, "discount")
    fitted = _with_answer(study if isinstance(study, Solution) else solve(problem, used, seed))
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
        if min(people) < least_persons(terms):
            raise ValueError(
                f"people must be at least {least_persons(terms)}, as the formula has {terms} terms, received {min(people)}"
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
        labels = [label(value, "column expert of persons") for value in self.solver.persons["expert"]]
        rows = self.solver.persons.assign(expert=labels).set_index("expert")
        frame: pd.DataFrame = rows.loc[[names[k] for k in members]].reset_index()
        frame["expert"] = names_of(self.design.problem, members)
        return replace(self.solver, persons=frame, missing="fail")
