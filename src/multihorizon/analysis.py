"""From tables to findings, for every kind of state: what `mh.analyse` and `multihorizon fit` run.

`analyse` prepares (transitions are given, or estimated from the tables), fits once, and carries out the analyses of `STEPS` in
their order. Where states are vectors, the fit is `SieveLikelihood`, and where nobody can be fitted alone, that of a `Population`;
each step says itself which kinds of fit it applies to.

*Withheld.* A fit that did not converge, or predicts worse than a simpler model, is not to be used: from then on the steps that
rest on it are left out. That is the one rule.

*Words.* What is found is an `Analysis`: every number of it is computed once, and all words follow from the numbers, as answers to
`QUESTIONS`. Where a result must not be used, that comes first.

*Goals.* Real people rarely share a reward to the last digit. So unless it is asked for one reward, personal deviations from it
are estimated, and kept where the decisions reject that there are none. Whether the goal is one, nearly one, or several is judged
on held-out decisions (`goal_comparison`). Experts who do not plan as the model says, or who act on something that it leaves out,
look as if they had different goals, too. So where one reward is rejected, the choices are compared with the model once more, each
expert with a reward of their own. Only if that fits are different goals the finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Floats, Frame, Ints, Seed, as_seed
from multihorizon.choice.settings import Choice, Temperature
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.dynamics import counted_in_one_unit, untaken_actions
from multihorizon.data.steps import Steps
from multihorizon.driver import as_mdps, as_tables, build_problem, solve
from multihorizon.horizon import Lookahead
from multihorizon.likelihood.estimates import LikelihoodEvidence, SieveEvidence
from multihorizon.likelihood.intervals import Contrasts, reward_contrasts
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood, resume
from multihorizon.mdp import MDP
from multihorizon.parallel import Progress, Run, limits, silent
from multihorizon.population.findings import PopulationEvidence
from multihorizon.population.solver import Population
from multihorizon.problem import Problem, SampledProblem
from multihorizon.questions import differences, horizons
from multihorizon.questions.differences import compare_persons, difference_words, population_words
from multihorizon.questions.fitted import (
    Asked,
    FitKind,
    Fitted,
    Penalty,
    check_fit,
    check_state_reward,
    checked_goals,
    find_goals,
    model_fit,
    not_to_be_used,
    notes_of,
    warnings_of,
)
from multihorizon.questions.goal_comparison import GoalCheck, deviation_words
from multihorizon.questions.horizons import check_discounts, find_identification, find_intervals, identifiability
from multihorizon.questions.lookahead_comparison import check_comparable, compare_from
from multihorizon.questions.people import People, is_crowd
from multihorizon.questions.robustness import robustness
from multihorizon.questions.sharing import SharedGoalTest, fit_and_test, with_one_reward
from multihorizon.result import Result, draw_rows, package_version
from multihorizon.solution import SOFT_ALONE, DecisionEvidence, Solution, Status
from multihorizon.words import LEVEL, VAGUE_WIDTH, Finding, Table, in_words, p_text, percent, without_empty

if TYPE_CHECKING:
    from multihorizon.likelihood.sieve import SieveLikelihood

NO_DEVIATIONS = f"Personal deviations from one reward were not estimated: that needs {SOFT_ALONE}. All experts have one reward."
#: What is asked of a fit: each may rest on the answers before it, and is None where it does not arise. A question is added here.
QUESTIONS: dict[str, Callable[[Fitted, Mapping[str, Finding]], Finding | None]] = {
    "fit": model_fit,
    "goals": lambda fitted, _: None if fitted.goals is None else fitted.goals.verdict,
    "state reward": lambda fitted, _: None if fitted.state_reward is None else fitted.state_reward.verdict,
    "identified": identifiability,
    "horizons": horizons.look_ahead,
    "differences": differences.differences,
}
#: The order in which a reader asks.
READING_ORDER = ("differences", "horizons", "identified", "fit", "goals", "state reward")


@dataclass(frozen=True, eq=False, kw_only=True)
class Analysis(Fitted, Result):
    """What `analyse` found: the numbers of the fit and of each analysis (`Fitted`), and the words that follow from them."""

    @cached_property
    def findings(self) -> dict[str, Finding]:
        """Return the answers to `QUESTIONS`, in the order in which a reader asks."""
        answers: dict[str, Finding] = {}
        for name, question in QUESTIONS.items():
            finding = question(self, answers)
            if finding is not None:
                answers[name] = finding
        return {name: answers[name] for name in READING_ORDER if name in answers}

    @property
    def fit(self) -> Finding:
        """Does the model fit?"""
        return self.findings["fit"]

    @cached_property
    def warnings(self) -> list[str]:
        """Return what a reader must know before any number; often nothing."""
        return [text for text in warnings_of(self, self.findings) if text] + self.notes

    @cached_property
    def notes(self) -> list[str]:
        """Of the warnings those that leave the numbers as they are: what was not tested, and penalties."""
        return [text for text in notes_of(self) if text]

    @cached_property
    def notices(self) -> tuple[list[str], list[str]]:
        """Return the warnings before the answer, and those after it. The answer itself begins with why no number may be used."""
        if self.withheld:
            return [], self.warnings[1:]
        return [text for text in self.warnings if text not in self.notes], self.notes

    @property
    def verdicts(self) -> tuple[Finding, ...]:
        """Return what is found of the fit; of a population in which nobody is fitted alone, first whether discounts differ in
        it."""
        skipped = () if self.people is not None else ("differences",)
        return tuple(finding for name, finding in self.findings.items() if name not in skipped)

    @cached_property
    def about_deviations(self) -> str:
        """Return what the reader must know of the model beside the numbers; empty where there is one reward for all."""
        if self.deviations is None:
            return ""
        words = deviation_words(self.deviations)
        if self.deviations.given:
            return f"Goals are taken to be shared nearly, as was asked for: {words}."
        nearly = self.goals is not None and self.goals.nearly
        first = "The experts nearly share one goal" if nearly else "The experts do not share one reward"
        one = f"one reward for all is rejected (p {p_text(self.deviations.p_shared)})"
        return f"{first}: {one}, and {words}. Discounts and intervals allow for that; ask for one reward with deviations 0."

    @cached_property
    def answer(self) -> str:
        """Return the answer to what was asked, in a sentence or two: what terminal, report and `result.json` open with.

        Of a population it is whether discounts differ with its covariates, else who looks how far ahead. Where numbers must not
        be used, that comes first.
        """
        differ = [] if self.population is None else difference_words(self.population, self.horizon)
        choosing = [self.choosing] if self.choosing else []
        if self.withheld and self.population is not None and self.people is None:
            return " ".join([self.warnings[0], "People were compared in a separate fit:", *differ])
        if self.withheld:
            return self.warnings[0]
        shape = [] if self.lookahead is None else [self.lookahead.sentences()]
        nearly = [self.about_deviations] if self.about_deviations else []
        if self.population is None:
            return " ".join([*shape, self.findings["horizons"].reasons, *nearly, *choosing])
        return " ".join([*differ, *shape, *nearly, *choosing])

    @cached_property
    def headline(self) -> str:
        """Return the opening paragraph: the answer to what was asked, who looks how far, whether the data can tell, whether the
        model fits."""
        if self.people is not None:
            return self._headline_of_people(self.people)
        look, identified = self.findings["horizons"], self.findings["identified"]
        if self.withheld:
            return " ".join([self.answer, *self.warnings[1:], identified.reasons, self.fit.reasons])
        horizons_too = [] if self.population is None else [look.reasons]
        survives = [self.rests_on] if self.rests_on else []
        return " ".join([*self.warnings, self.answer, *survives, *horizons_too, identified.reasons, self.fit.reasons])

    def _headline_of_people(self, people: People) -> str:
        differ = self.findings.get("differences")
        if self.withheld:
            types = [] if differ is None or people.population.types is None else [differ.reasons]
            return " ".join([*types, *self.warnings, *people.absent])
        words = [] if differ is not None else [self.answer, *population_words(people.solution, self.horizon)]
        words += [self.rests_on] if self.rests_on else []
        return " ".join([*self.warnings, *people.absent, *words, *(finding.reasons for finding in self.verdicts)])

    @property
    def advice(self) -> list[str]:
        """Return what to collect next; nothing where nobody is fitted alone."""
        advice: list[str] = self.findings["identified"].content.get("collect_next", [])
        return advice

    def sentences(self) -> str:
        """Return the opening paragraph."""
        return self.headline

    def _facts(self) -> dict[str, Any]:
        solution = self.solution
        evidence = DecisionEvidence.of(self.solution)
        facts: dict[str, Any] = {"solver": solution.solver, "status": str(solution.status), "experts": len(self.decisions)}
        facts |= {} if self.people is None else {"experts compared": len(solution.experts)}
        facts |= {"episodes": int(self.episodes.sum()), "decisions": int(evidence.decisions)}
        return facts | {"log-likelihood": evidence.log_likelihood}

    def _columns(self) -> tuple[str, str, str, str]:
        """Return the columns that are drawn."""
        kind = "discount" if self.people is None else "shrunken"
        value = "discount" if self.people is None else "shrunken_discount"
        return "expert", value, f"{kind}_low", f"{kind}_high"

    def _tables(self, compute: bool) -> list[Table]:
        """List the tables: groups first where there are any; then the experts, the tests and the reward. Of very many people
        the groups alone."""
        drawn = self._columns()
        usable = self.population is not None and not (self.people is not None and self.withheld)
        tables = self.population.evidence.expert_tables(self.population) if self.population is not None and usable else []
        if self.people is not None:
            return tables or [Table(without_empty(self.to_frame(), drawn), "persons", drawn[1:])]
        frame = self.to_frame()
        errors = "standard_error", "horizon", "half_life", "temperature", "decisions", "flags"
        shown = without_empty(frame[[name for name in (*drawn, *errors) if name in frame]], drawn)
        tables.append(Table(shown, f"experts, with {percent(LEVEL)} CIs", drawn[1:]))
        tests = self._tests()
        tables += [] if tests.empty else [Table(tests, "tests")]
        if self.reward_given:
            return tables
        reward = without_empty(self.reward_frame().reset_index(), ("difference",))
        return [*tables, Table(reward, "reward", ("difference",))]

    def _tests(self) -> pd.DataFrame:
        """Return one row for each test of a shared discount or reward."""
        rows: list[dict[str, Any]] = [
            {"hypothesis": f"one discount for {in_words([*test.experts])}", "statistic": test.statistic}
            | {"degrees": test.degrees, "p_value": test.p_value, "adjusted": test.adjusted}
            for test in (self.shared, *self.pairs)
            if test is not None
        ]
        if self.goals is not None and not self.goals.test.reason:
            test = self.goals.test
            rows.append({"hypothesis": "one reward for all", "statistic": test.statistic, "p_value": test.p_value})
        return pd.DataFrame(rows)

    def _height(self) -> float:
        return super()._height() if self.people is None or self.withheld else self.solution._height()

    def _draw(self, ax: Any) -> None:
        if self.people is not None and not self.withheld:
            self.solution._draw(ax)
            return
        draw_rows(ax, self.to_frame(), *self._columns())
        if self.people is None:
            ax.set_xlim(-0.02, 1.02)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per expert, from the shortest horizon to the longest: the columns of `people.csv`.

        Of a population in which nobody is fitted alone, one row for each person in the tables.
        """
        if self.people is not None:
            return self.people.to_frame()
        shown = np.where(self.given, self.solution.discounts, np.nan)
        frame = pd.DataFrame(
            {
                "expert": self.solution.experts,
                "discount": shown,
                "discount_low": self.intervals[:, 0],
                "discount_high": self.intervals[:, 1],
                "standard_error": self.standard_errors,
                "horizon": [self.horizon(g) for g in shown.tolist()],
                **({"half_life": [self.horizon.half_life(g) for g in shown.tolist()]} if self.horizon.timed else {}),
                "temperature": self.temperatures,
                "episodes": self.episodes,
                "decisions": self.decisions.astype(np.int64),
                "pseudo_r2": self.explained,
                "flags": ["; ".join(self._flags(k)) for k in range(shown.size)],
            }
        )
        if self.population is not None:
            frame = pd.concat([frame, differences.population_columns(self, self.population)], axis=1)
        return frame.iloc[self.order]

    def conditions_frame(self) -> pd.DataFrame | None:
        """Return one row per person and condition: the columns of `conditions.csv`.

        None where the formula has no conditions, or the population could not be estimated.
        """
        solution = self.population
        if solution is None or solution.status != Status.CONVERGED or (self.people is not None and self.withheld):
            return None
        return PopulationEvidence.of(solution).population.conditions_frame()

    def reward_frame(self) -> pd.DataFrame:
        """Return one row per parameter of the reward, by name, with standard errors.

        Where experts were fitted, the difference of each reward (from the average logged step; of features from zero) stands
        beside it. NaN where the decisions do not determine them or they are withheld.
        """
        assert self.solution.problem is not None
        names = pd.Index(self.solution.problem.parameter_names, name="parameter")
        frame = pd.DataFrame({"reward": self.solution.reward, "standard_error": np.nan}, names)
        hidden = np.nan if self.withheld else 1.0
        if self.people is not None:
            errors = np.array(self.people.evidence.reward_standard_errors, dtype=np.float64)
            return frame.assign(standard_error=errors) * hidden
        if self.likelihood is not None:
            errors = np.array(self.likelihood.reward_standard_errors, dtype=np.float64)
            determined = np.isfinite(errors) | (errors.size > limits().dense_rewards)  # of so many, errors are not computed
            determined &= self.solution.status != Status.NOT_IDENTIFIED
            frame = frame.assign(reward=frame["reward"].where(determined), standard_error=np.where(determined, errors, np.nan))
        frame["difference"], frame["difference_standard_error"] = self.contrasts.values, self.contrasts.standard_errors
        return frame * hidden

    def _flags(self, k: int) -> list[str]:
        limit = self.limits[k]
        width = float(np.diff(self.intervals[k])[0])
        cases = {
            self.reasons[k]: bool(self.reasons[k]),
            "known discount": self.known[k],
            f"at the {limit} discount": limit is not None,
            "wide interval": width > VAGUE_WIDTH,
            "no whole interval": self.given[k] and not self.known[k] and bool(np.isnan(width)),
            "result not to be used": bool(self.withheld),
            "left out of the comparison": self.population is not None and self.solution.experts[k] not in self.population.experts,
        }
        return [flag for flag, holds in cases.items() if holds]

    def _content(self) -> dict[str, Any]:
        """Return what `result.json` holds: the parts of every analysis; what a kind of state does not have is null."""
        rewards = self.reward_frame()
        one_by_one = self.functions is None and not self.reward_given
        content = self._about() | {
            "reward": rewards["reward"].to_dict(),
            "reward_standard_errors": rewards["standard_error"].to_dict() if one_by_one else None,
            "population": None if self.population is None else differences.content(self, self.population),
        }
        if self.people is None:
            content |= dict.fromkeys(("goals", "state_reward")) | self._of_single_experts(rewards if one_by_one else None)
        for finding in self.findings.values():
            content |= finding.content
        return content

    def _about(self) -> dict[str, Any]:
        """Return what holds for every fit."""
        solution = self.solution
        evidence = DecisionEvidence.of(self.solution)
        return {
            "schema": 2,
            "warnings": self.warnings,
            "answer": self.answer,
            "headline": self.headline,
            "verdicts": [{name: getattr(finding, name) for name in Finding.said} for finding in self.verdicts],
            "withheld": self.withheld or None,
            "finished": self.finished,
            "quick": self.quick,
            "level": LEVEL,
            "largest_discount": self.largest_discount,
            "longest_episode": self.horizon.longest,
            "time_unit": self.horizon.unit,
            "decisions": evidence.decisions,
            "status": str(solution.status),
            "message": solution.message,
            "residual": solution.residual,
            "ridge": evidence.get("ridge"),
            "planner": evidence.get("planner") if self.population is None else self.population.evidence.get("planner"),
            "recovery": _plain(self.recovery),
            "rests_on": self.rests_on or None,
            "robustness": _plain(self.robustness),
            "remarks": self.remarks,
            "seconds": solution.seconds,
            "seed": solution.seed,
            "version": package_version(),
        }

    def _of_single_experts(self, rewards: pd.DataFrame | None) -> dict[str, Any]:
        """Return what else is known where experts were fitted alone; `rewards` are those of states or features."""
        mdps = self.problem.mdps if self.sieve is None else ()
        names = {"difference": "estimate", "difference_standard_error": "standard_error"}
        return {
            "reward_contrasts": None if rewards is None else rewards[[*names]].rename(columns=names).to_dict("index"),
            "coordinates": None if self.sieve is None else self.sieve.coordinates,
            "lookahead": _plain(self.lookahead),
            "penalty": _plain(self.penalty),
            "untaken_actions": [untaken_actions(mdp) for mdp in mdps if mdp.sample_sizes is not None],
            "evidence": self.sieve,
        }


def _plain(result: Any) -> dict[str, Any] | None:
    return None if result is None else result.to_dict()


# What was asked, and the fit.


def analyse(
    tables: Demonstrations | Frame | Sequence[Demonstrations | Frame] | Steps,
    mdps: MDP | Sequence[MDP] | None = None,
    features: Any = None,
    *,
    temperature: Temperature | None = None,
    smoothing: float | None = None,
    ridge: float | None = None,
    estimate_rest: bool = False,
    believed: bool = False,
    pairs: bool = False,
    rivals: bool = False,
    quick: bool = False,
    keep: Callable[[Analysis], None] = lambda analysis: None,
    solver: MaximumLikelihood | SieveLikelihood | None = None,
    known_reward: Any = None,
    deviations: float | Literal["estimated"] | None = None,
    cluster: Choice | None = None,
    lookahead: Sequence[Lookahead] = (),
    population: Population | None = None,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Analysis:
    """Fit tables of decisions and judge the fit.

    With a population of more than 2,000 people, or of types, nobody is fitted alone: the population is all that is estimated,
    and the analyses that need each person's own fit are left out.

    Args:
        tables: the decisions: a table or a data frame, one for each task, or `Steps` where states are vectors. With `Steps`, only
            `temperature`, `solver`, `quick`, `keep`, `seed`, `jobs` and `progress` may be given.
        mdps, features, smoothing, estimate_rest, believed: as in `build_problem`.
        temperature, ridge: as in `MaximumLikelihood`; temperatures are "pooled" unless it is said otherwise.
        pairs: whether to test every pair of more than six experts for a shared discount factor; of few it is always done.
        rivals: whether to ask the same question under rival models of choice (`mh.robustness`), which takes several fits.
        quick: leave out tests and model checks, and take intervals from standard errors.
        keep: called with what is known so far, again and again while the work goes on.
        solver: all options of the fit, in place of `temperature` and `ridge`, which must then be left out.
        known_reward: the known part of the reward, as in `MaximumLikelihood`, or a function of the MDP that gives it.
        deviations: how far each expert's reward may be from the shared one, as in `MaximumLikelihood`. By default it is
            "estimated", and that of the solver where one is given. Where it cannot be had, one reward is fitted, and a remark
            says so. From a reward that is known in full nobody deviates unless a number is given.
        cluster: what standard errors, intervals and tests take to be independent, as in `MaximumLikelihood`. By default it is
            "auto", and that of the solver where one is given that does not take decisions. Of a population the people are.
        lookahead: families of look-ahead to compare on the same decisions.
        population: what to ask about groups, people and the conditions of the tables, if anything; the known reward is handed on
            to it.
        seed: fixes all randomness.
        jobs: processes that share simulations, intervals and tests of pairs; -1 is all cores. The digits do not depend on it.
        progress: called with the share of the work that is done and the current step.

    Returns:
        Everything that was asked, as `multihorizon.analysis.Analysis`; `summary()`, `to_json(path)` and `plot()` show it.

    Raises:
        ValueError: on tables that do not fit the task, and where a solver comes with options that are its own.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100, seed=0)
        >>> mh.analyse(table, d.mdp, quick=True).solution.experts
        ('0', '1', '2')
    """
    run = Run(as_seed(seed), jobs, progress)
    doubled = {
        "temperature": temperature,
        "ridge": ridge,
        "known_reward": None if known_reward is None else getattr(solver, "known_reward", None),
    }
    doubled["deviations"] = None if deviations is None else getattr(solver, "deviations", 0.0) or None
    twice = [name for name, value in doubled.items() if value is not None]
    if solver is not None and twice:
        raise ValueError(f"{' and '.join(twice)} must be left out where a solver is given: it has its own, got both")
    if isinstance(tables, Steps):
        of_lists = {"mdps": mdps, "features": features, "smoothing": smoothing, "ridge": ridge, "known_reward": known_reward}
        of_lists |= {"deviations": deviations or None, "cluster": None if cluster == "auto" else cluster}
        of_lists |= {"population": population, "pairs": pairs or None, "lookahead": lookahead or None}
        of_lists |= {"estimate_rest": estimate_rest or None, "believed": believed or None, "rivals": rivals or None}
        of_vectors = _solver_of_vectors(solver, "pooled" if temperature is None else temperature, of_lists)
        fit, rest = run.parts(4, 1)
        asked = Asked(problem=SampledProblem(tables), quick=quick)
        return _carried_out(_fit_to_vectors(asked.problem, tables, of_vectors, quick, fit), asked, keep, rest)
    if not isinstance(solver, MaximumLikelihood | None):
        what = type(solver).__name__
        if getattr(solver, "takes", None) is SampledProblem:
            raise ValueError(f"{what} is for continuous states: hand in Steps, got tables with a list of states")
        raise ValueError(f"solver must be MaximumLikelihood(…), got {what}: use solve(problem, {what}()) with other solvers")
    if deviations is None:
        deviations = "estimated" if solver is None else solver.deviations
    unlike = [] if solver is None or solver.is_soft or deviations != "estimated" else [NO_DEVIATIONS]
    deviations = 0.0 if unlike else deviations
    if cluster is None:
        cluster = "auto" if solver is None or solver.cluster == "decision" else solver.cluster
    solver = replace(
        solver or MaximumLikelihood("pooled" if temperature is None else temperature, ridge=ridge),
        deviations=deviations,
        cluster=cluster,
    )
    listed = as_tables(tables)
    together = population is not None and (is_crowd(listed) or population.distribution == "types")
    if together:
        _refuse(is_crowd(listed), pairs=pairs, lookahead=bool(lookahead))
    problem, remarks = build_problem(listed, as_mdps(mdps), features, smoothing, estimate_rest, believed)
    reward = (
        known_reward(problem.mdp) if callable(known_reward) else solver.known_reward if known_reward is None else known_reward
    )
    discounts = None if solver.discounts is None else counted_in_one_unit(solver.discounts, listed)
    asked = Asked(
        problem=problem,
        tables=listed,
        likelihood=replace(solver, known_reward=reward, discounts=discounts),
        population=None if population is None else replace(population, known_reward=reward, jobs=jobs),
        lookahead=lookahead,
        pairs=pairs,
        rivals=rivals,
        quick=quick,
        remarks=[*remarks, *unlike],
    )
    if together:
        return _carried_out(_fit_to_people(asked, problem, run), asked, keep, run)
    fit, rest = run.parts(1, 4)
    return _carried_out(_fit_to_lists(asked, problem, fit), asked, keep, rest)


def _solver_of_vectors(solver: Any, temperature: Temperature, of_lists: dict[str, Any]) -> SieveLikelihood:
    """Return the solver where states are vectors; nothing of `of_lists` may be given there."""
    from multihorizon.likelihood.sieve import SieveLikelihood  # noqa: PLC0415  states are vectors: only now is scikit-learn needed

    wrong = [name for name, value in of_lists.items() if value is not None]
    if wrong or not isinstance(solver, SieveLikelihood | None):
        what = " and ".join(wrong) or type(solver).__name__
        raise ValueError(f"Steps must come without what belongs to tasks with a list of states, got {what}")
    return solver or SieveLikelihood(temperature=temperature)


def _refuse(many: bool, **options: bool) -> None:
    """Raise where an option needs each person's own fit."""
    refused = [name for name, asked in options.items() if asked]
    if refused:
        why = "where types are asked for, as nobody is fitted alone"
        why = "with so many people: fit a sample of them to ask for it" if many else why
        raise ValueError(f"{' and '.join(refused)} must be left out {why}")


def _fit_to_lists(asked: Asked, problem: Problem, run: Run) -> Analysis:
    """Fit tables of a task with a list of states, and test that all experts share one reward."""
    if asked.lookahead:
        check_comparable(problem, asked.likelihood)
    if asked.population is not None:
        asked.population.covariates(problem)  # what cannot be used is refused before any work
    solver, solution, goal_test, refused = fit_and_test(problem, asked.likelihood, run=run)
    if solver.temperature == "shared" and problem.n_experts > 1:  # do the decisions reject what the user asks for?
        freer = solve(problem, replace(solver, temperature="pooled"), seed=run.seed)
        p_value = LikelihoodEvidence.of(freer).equal_temperatures_p
        solution = replace(solution, evidence=replace(LikelihoodEvidence.of(solution), equal_temperatures_p=p_value))
    policies = solution.policies()
    point = resume(solution)
    contrasts = reward_contrasts(point)
    people = _decisions(problem, policies)
    if point.likelihood.settings.stickiness:  # choices follow more than the policies
        people["fitted"] = point.likelihood.person_values(point)
    decisions = people["decisions"].to_numpy()
    evidence = LikelihoodEvidence.of(solution)
    estimated = 0 if evidence.known["reward"] == "all" else problem.n_parameters
    never_ends = np.any([mdp.never_ends().any() for mdp in problem.mdps])
    analysis = Analysis(
        solution=solution,
        intervals=np.full((problem.n_experts, 2), np.nan),
        episodes=_episodes(asked.tables, problem.names),
        decisions=decisions,
        chance=people["chance"].to_numpy() / decisions,
        fitted=people["fitted"].to_numpy() / decisions,
        known=list(evidence.known["discounts"]),
        horizon=problem.horizon,
        largest_discount=ENDLESS_DISCOUNT if never_ends else 1.0,
        estimated_rewards=estimated,
        determined_rewards=max(0, min(estimated - evidence.unidentified_directions, int(people["shown"].sum()))),
        withheld=not_to_be_used(solution, contrasts),
        policies=policies,
        contrasts=contrasts,
        remarks=[*asked.remarks, *refused],
        quick=asked.quick,
    )
    return analysis if goal_test is None else replace(analysis, goals=checked_goals(analysis, goal_test))


def _episodes(tables: Sequence[Demonstrations], names: Sequence[str]) -> Ints:
    """Return how many episodes each expert has `(K,)`."""
    episodes = dict.fromkeys(names, 0)
    for table in tables:
        for name, number in zip(table.experts, table.episode_counts, strict=True):
            episodes[name] += int(number)
    return np.array(list(episodes.values()))


def _decisions(problem: Problem, policies: Sequence[Floats]) -> pd.DataFrame:
    """Return each expert's decisions, their log-likelihoods by chance and in the fit, and the choices that they could show."""
    rows = []
    for expert, owner, policy in zip(problem.experts, problem.owner, policies, strict=True):
        counts = np.asarray(expert.counts)
        actions = expert.mdp.available.sum(axis=1)
        visits = counts.sum(axis=1)
        chance = -float(visits @ np.log(np.maximum(actions, 1)))
        fitted = float((counts * np.log(np.maximum(policy, TINY))).sum())
        rows.append((owner, float(visits.sum()), chance, fitted, int((actions - 1)[visits > 0].sum())))
    columns = ["person", "decisions", "chance", "fitted", "shown"]
    return pd.DataFrame(rows, columns=columns).groupby("person").sum()


def _fit_to_vectors(problem: Any, steps: Steps, solver: SieveLikelihood, quick: bool, run: Run) -> Analysis:
    """Fit steps whose states are vectors."""
    from multihorizon.choice.sieve_model import LARGEST_DISCOUNT  # noqa: PLC0415  states are vectors: only now is scikit-learn needed
    from multihorizon.likelihood.sieve import reward_functions  # noqa: PLC0415

    solution = solve(problem, solver, seed=run.seed, progress=run.progress)
    evidence = SieveEvidence.of(solution)
    fixed = solution.options.get("discounts")
    made = reward_functions(solution)
    batches = made.point.likelihood.data.decisions
    plans = made.point.plans
    size = len(steps.experts)
    decisions = np.array([float(batch.visits.sum()) for batch in batches])
    totals = [float((batch.counts * plan.finite_log).sum()) for batch, plan in zip(batches, plans, strict=True)]
    no_test = SharedGoalTest(np.nan, np.nan, 0, "there is no test of it yet for continuous states")
    unknown = np.full(solution.reward.size, np.nan)
    analysis = Analysis(
        solution=solution,
        intervals=solution.confidence_intervals(LEVEL),
        episodes=np.array([np.unique(steps.episode_numbers[steps.expert == k]).size for k in range(size)]),
        decisions=decisions,
        chance=np.array([batch.chance for batch in batches]) / decisions,
        fitted=np.array(totals) / decisions,
        known=[name in fixed if isinstance(fixed, dict) else fixed is not None for name in solution.experts],
        horizon=solution.horizon,
        largest_discount=LARGEST_DISCOUNT,
        estimated_rewards=evidence.functions,
        determined_rewards=max(0, evidence.functions - evidence.unidentified_directions),
        contrasts=Contrasts(unknown, unknown),
        withheld=not_to_be_used(solution),
        goals=GoalCheck(no_test) if size > 1 else None,
        functions=made,
        quick=quick,
    )
    return replace(analysis, intervals=np.where(np.array(analysis.given)[:, None], analysis.intervals, np.nan))


def _fit_to_people(asked: Asked, everybody: Problem, run: Run) -> Analysis:
    """Fit a population in which nobody is fitted alone."""
    assert asked.population is not None
    solution = solve(everybody, asked.population, seed=run.seed, progress=run.progress)
    episodes = sum(int(table.episode_counts.sum()) for table in asked.tables)
    return of_people(solution, everybody, episodes, asked.remarks)


def of_people(solution: Solution, everybody: Problem, episodes: int, remarks: Sequence[str]) -> Analysis:
    """Return what is known once a population is solved in which nobody is fitted alone.

    Args:
        solution: of `Population`; some of `everybody` may be left out of it.
        everybody: all who are in the tables.
        episodes: how many there are.
        remarks: how the result was made.
    """
    people = People.of(solution, everybody)
    unknown = np.full(len(people.names), np.nan)
    rewards_unknown = np.full(solution.reward.size, np.nan)
    return Analysis(
        solution=solution,
        population=solution,
        people=people,
        intervals=np.stack([unknown, unknown], axis=1),
        episodes=np.array([episodes]),
        decisions=people.decisions,
        chance=people.chance / people.decisions,
        fitted=unknown,
        known=[False] * len(people.names),
        horizon=everybody.horizon,
        largest_discount=people.population.largest_discount,
        estimated_rewards=0 if people.reward_given else solution.reward.size,
        determined_rewards=0,
        contrasts=Contrasts(rewards_unknown, rewards_unknown),
        withheld=people.withheld,
        remarks=[*remarks],
        finished=True,
    )


# The analyses.


@dataclass(frozen=True)
class Step:
    """One analysis of a fit.

    Attributes:
        carry_out: adds its results to what is known so far, as they come.
        weight: its share of the work, against those of the other steps.
        wanted: whether it was asked for.
        rests_on_fit: whether it is withheld where the fit is not to be used.
        kinds: of fits that it applies to (`Fitted.kind`).
    """

    carry_out: Callable[[Analysis, Asked, Run], Iterator[Analysis]]
    weight: float
    wanted: Callable[[Asked], bool] = lambda asked: True
    rests_on_fit: bool = False
    kinds: tuple[FitKind, ...] = ("experts",)


def _carried_out(analysis: Analysis, asked: Asked, keep: Callable[[Analysis], None], run: Run) -> Analysis:
    """Carry out every step that applies, one after the other; those that rest on the fit only where it may be used."""
    steps = [step for step in STEPS if analysis.kind in step.kinds and step.wanted(asked)]
    if not steps:
        return replace(analysis, finished=True)
    parts = run.parts(*[step.weight for step in steps])
    keep(analysis)
    for step, part in zip(steps, parts, strict=True):
        if step.rests_on_fit and analysis.withheld:
            continue
        for latest in step.carry_out(analysis, asked, part):
            analysis = latest
            keep(analysis)
    return replace(analysis, finished=True)


def _compare_lookahead(analysis: Analysis, asked: Asked, run: Run) -> Iterator[Analysis]:
    """Add families of look-ahead on the same decisions."""
    base = with_one_reward(resume(analysis.solution))
    compared = compare_from(base, asked.lookahead, asked.tables, run=run)
    also = [] if analysis.deviations is None else ["Families of look-ahead were compared with one reward for all."]
    yield replace(analysis, lookahead=compared, remarks=[*analysis.remarks, *also])


def _ask_rivals(analysis: Analysis, asked: Asked, run: Run) -> Iterator[Analysis]:
    """Add the answer under rival models of choice."""
    try:
        found = robustness(analysis, quick=asked.quick, seed=run.seed, jobs=run.jobs, progress=run.progress)
    except ValueError as error:
        yield replace(analysis, remarks=[*analysis.remarks, f"Rival models of choice were not asked: {error}."])
        return
    yield replace(analysis, robustness=found)


def _weigh_penalty(analysis: Analysis, asked: Asked, run: Run) -> Iterator[Analysis]:
    """Add what a penalty moves; a fit that the penalty decides is not to be used."""
    solver = replace(asked.likelihood, deviations=analysis.solution.options["deviations"], ridge=None)
    penalty = Penalty(asked.likelihood.ridge or 0.0, solve(analysis.problem, solver, seed=run.seed))
    yield replace(analysis, penalty=penalty, withheld=analysis.withheld or penalty.decides(analysis.solution))


def _thorough(asked: Asked) -> bool:
    return not asked.quick


#: The analyses of a fit, in their order. An analysis is added here.
STEPS = (
    Step(compare_persons, 8, lambda asked: asked.population is not None),
    Step(_weigh_penalty, 1, lambda asked: bool(asked.likelihood.ridge)),
    Step(check_state_reward, 2),
    Step(_compare_lookahead, 5, lambda asked: bool(asked.lookahead)),
    Step(find_identification, 1),
    Step(check_fit, 15, _thorough),
    Step(find_goals, 5, _thorough),
    Step(find_intervals, 25, rests_on_fit=True),
    Step(check_discounts, 20, _thorough, rests_on_fit=True, kinds=("experts", "vectors")),
    Step(_ask_rivals, 60, lambda asked: asked.rivals, rests_on_fit=True, kinds=("experts", "people")),
)


def analyse_steps(
    steps: Steps, solver: SieveLikelihood | None = None, seed: int = 0, quick: bool = False, progress: Progress = silent
) -> Analysis:
    """Call `analyse` for continuous states: its old name there."""
    return analyse(steps, solver=solver, quick=quick, seed=seed, progress=progress)
