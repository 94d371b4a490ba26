"""The experts of a fit as a data frame: what `people.csv` holds.

From tables to an answer with everything a reader needs to judge it: what `multihorizon fit` runs.

The steps are public functions of their own: transitions (given, or estimated from the table), the maximum-likelihood fit, model
checks, the verdict on identifiability, profile intervals and tests of shared discounts. Intervals and tests come last: a fit that
did not converge, or predicts worse than a simpler model, gets none. Identifiability has two sides that must agree: the Fisher
information at the answer (do *these* decisions tell the discounts apart?) and `identify` on the fitted policies (could any number
of decisions in this task?).

A fit to states that are vectors, with everything a reader needs to judge it: what `multihorizon fit --state` runs.

The steps are public functions of their own: the fit, tests of shared discounts, and the reward as a function. Three verdicts
say how far the experts look ahead, whether the data can tell, and whether the model fits. The first two, and the test against
chance, are those of every fit (`findings.py`, `words.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from multihorizon.checks import Floats, Ints
from multihorizon.choice.parameters import Temperature
from multihorizon.choice.sieve import LARGEST_DISCOUNT
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.dynamics import describe_estimate, estimate_mdp, require_agreement, require_ends
from multihorizon.data.steps import Steps
from multihorizon.driver import solve
from multihorizon.estimate.intervals import ProfileIntervals
from multihorizon.estimate.maximum_likelihood import MaximumLikelihood, resume
from multihorizon.estimate.population.solver import Population
from multihorizon.estimate.sieve import Functions, SieveLikelihood, dynamics_unknown, functions, unpredicted
from multihorizon.files import look_alikes
from multihorizon.lookahead import Lookahead
from multihorizon.mdp import MDP
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.problem import Problem, SampledProblem
from multihorizon.questions.contrasts import reward_contrasts
from multihorizon.questions.goals import shared_goal_test
from multihorizon.questions.lookahead_comparison import check_comparable, compare_from
from multihorizon.questions.model_checks import check_model
from multihorizon.questions.shared_discount import (
    SharedDiscountTest,
    each_pair,
    sampled_discount_tests,
    shared_discount_test,
    with_holm,
)
from multihorizon.report.findings import (
    LEVEL,
    QUESTION,
    VAGUE_WIDTH,
    Findings,
    GoalCheck,
    Judged,
    Penalty,
    identification,
    not_to_be_used,
    predicts_worse,
)
from multihorizon.report.sections import population_columns
from multihorizon.report.text import (
    Verdict,
    advice,
    count,
    fits,
    headline,
    identifiability_verdict,
    in_words,
    look_ahead_verdict,
    nobody_better_than_chance,
    told_only_if_it_fits,
    verdicts,
    warnings,
)
from multihorizon.solution import Solution, Status


def people_frame(findings: Judged) -> pd.DataFrame:
    """One row per expert: discount, interval, error, horizon, temperature, decisions, pseudo-R², and what to know of them."""
    solution, known = findings.solution, np.array(findings.given)
    discounts = np.where(known, solution.discounts, np.nan)
    frame = pd.DataFrame(
        {
            "expert": solution.experts,
            "discount": discounts,
            "discount_low": findings.intervals[:, 0],
            "discount_high": findings.intervals[:, 1],
            "standard_error": np.nan if findings.withheld else np.where(known, _errors(solution), np.nan),
            "horizon": [findings.horizon(g) if k else np.nan for g, k in zip(discounts, known, strict=True)],
            "temperature": findings.temperatures,
            "episodes": findings.episodes,
            "decisions": findings.decisions.astype(np.int64),
            "pseudo_r2": findings.explained,
            "flags": ["; ".join(_flags(findings, k)) for k in range(known.size)],
        }
    )
    if isinstance(findings, Findings) and findings.population is not None:
        frame = pd.concat([frame, population_columns(findings)], axis=1)
    return frame.iloc[findings.order]


def _errors(solution: Solution) -> Floats:
    return np.full(len(solution.experts), np.nan) if solution.standard_errors is None else solution.standard_errors


def _flags(findings: Judged, k: int) -> list[str]:
    limit, population = limit_of(findings, k), findings.population if isinstance(findings, Findings) else None
    width = float(np.diff(findings.intervals[k])[0])
    cases = {
        findings.reasons[k]: bool(findings.reasons[k]),
        "known discount": findings.known[k],
        f"at the {limit} discount": limit is not None,
        "wide interval": width > VAGUE_WIDTH,
        "no whole interval": findings.given[k] and not findings.known[k] and bool(np.isnan(width)),
        "result not to be used": bool(findings.withheld),
        "left out of the comparison": population is not None and findings.solution.experts[k] not in population.experts,
    }
    return [flag for flag, holds in cases.items() if holds]


def limit_of(findings: Judged, k: int) -> str | None:
    """Whether a discount is no estimate but a limit of what was tried."""
    if not findings.given[k] or findings.known[k]:
        return None
    gamma = float(findings.solution.discounts[k])
    return "largest" if gamma >= findings.largest_discount else "smallest" if gamma <= 0 else None


#: Up to this many experts every pair is tested; with more only on request, because their number grows with the square.
FEW_EXPERTS = 6


class Analysis(Findings):
    """What `analyse` found, in numbers and in words."""

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        return warnings(self, fits(self))

    @property
    def headline(self) -> str:
        """The opening paragraph: who looks how far, whether the data can tell, whether the model fits."""
        return headline(self)

    @property
    def verdicts(self) -> tuple[Verdict, Verdict, Verdict]:
        """The same as three answers with their reasons."""
        return verdicts(self)

    def to_frame(self) -> pd.DataFrame:
        """One row per expert, from the shortest horizon to the longest: the columns of `people.csv`."""
        return people_frame(self)

    @property
    def advice(self) -> list[str]:
        """What to collect next."""
        return advice(self, fits(self))


def build_problem(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None,
    features: Any = None,
    smoothing: float | None = None,
    estimate_rest: bool = False,
) -> tuple[Problem, list[str]]:
    """One problem from one or several tables with their transitions, and remarks on what was assumed.

    Args:
        tables: one for each task.
        mdps: their transitions in the same order, checked against the tables; None estimates them.
        features: None, or a function of an MDP that gives the matrix F and the features' names.
        smoothing: of estimated transitions.
        estimate_rest: whether `mdps` hold only some actions of some states, and the others are estimated.
    """
    remarks = [remark for table in tables for remark in _look_alikes(table)]
    if mdps is not None and len(mdps) != len(tables):
        raise ValueError(f"there must be one file of transitions for each table, received {len(mdps)} for {len(tables)}")
    if mdps is None and estimate_rest:
        raise ValueError("--estimate-rest must come with --transitions to start from, received none: leave it out")
    if mdps is None or estimate_rest:
        known: Sequence[MDP | None] = mdps or [None] * len(tables)
        mdps = [estimate_mdp(table, smoothing, rows) for table, rows in zip(tables, known, strict=True)]
        for table, mdp in zip(tables, mdps, strict=True):
            require_ends(table, mdp)
            remarks += describe_estimate(mdp, smoothing, table)
    problems = []
    for table, mdp in zip(tables, mdps, strict=True):
        remarks += require_agreement(table, mdp)
        matrix, names = (None, None) if features is None else features(mdp)
        problems.append(Problem(mdp, table, features=matrix, feature_names=names))
    return (problems[0] if len(problems) == 1 else Problem.join(*problems)), remarks


def _look_alikes(table: Demonstrations) -> list[str]:
    """What to say of labels that may be one label, spelt in two ways."""
    labels = {"expert": table.experts, "state": table.states, "action": table.actions}
    return [remark for what, names in labels.items() if (remark := look_alikes(names, what))]


def analyse(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None = None,
    features: Any = None,
    temperature: Temperature | None = None,
    smoothing: float | None = None,
    ridge: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
    estimate_rest: bool = False,
    pairs: bool = False,
    quick: bool = False,
    jobs: int = 1,
    keep: Callable[[Analysis], None] | None = None,
    solver: MaximumLikelihood | None = None,
    known_reward: Callable[[MDP], Floats] | None = None,
    lookahead: Sequence[Lookahead] = (),
    population: Population | None = None,
) -> Analysis:
    """Fit tables of decisions and judge the fit.

    Args:
        tables, mdps, features, smoothing, estimate_rest: as in `build_problem`.
        temperature, ridge: as in `MaximumLikelihood`; temperatures are "pooled" unless it is said otherwise.
        seed: fixes all randomness.
        progress: called with the share of the work that is done and where it stands.
        pairs: whether to test every pair of more than `FEW_EXPERTS` experts for a shared discount; of few it is always done.
        quick: leave out tests and model checks, and take intervals from standard errors.
        jobs: processes that share simulations, intervals and tests of pairs; -1 is all cores. The digits do not depend on it.
        keep: called with what is known so far, again and again while the work goes on.
        solver: all options of the fit, in place of `temperature` and `ridge`, which must then be left out.
        known_reward: None, or a function of the MDP that gives the known part of the reward, as in `MaximumLikelihood`.
        lookahead: families of look-ahead to compare on the same decisions.
        population: what to ask about groups and persons, if anything; it is told the known reward.

    Raises:
        ValueError: on tables that do not fit the task, and where a solver comes with options that are its own.
    """
    doubled = {"temperature": temperature, "ridge": ridge, "known_reward": known_reward and solver and solver.known_reward}
    twice = [name for name, value in doubled.items() if value is not None]
    if solver is not None and twice:
        raise ValueError(f"{' and '.join(twice)} must be left out where a solver is given: it has its own, received both")
    solver = solver or MaximumLikelihood("pooled" if temperature is None else temperature, ridge=ridge)
    keep = keep or (lambda found: None)
    problem, remarks = build_problem(tables, mdps, features, smoothing, estimate_rest)
    if known_reward is not None:
        solver = replace(solver, known_reward=known_reward(problem.mdp))
    if lookahead:
        check_comparable(problem, solver)
    if population is not None:
        population.covariates(problem)  # what cannot be used is refused before any work
    solution = _with_temperature_test(solve(problem, solver, seed, part_of(progress, 0.0, 0.15)), problem, solver, seed)
    found = _estimates(solution, tables, remarks, quick)
    if problem.n_experts > 1 and not found.reward_given:
        test = shared_goal_test(solution, seed=seed, progress=part_of(progress, 0.15, 0.2), jobs=jobs)
        found = replace(found, goals=GoalCheck(test).with_own_rewards(solution))
    keep(found)
    if population is not None:
        asked = replace(population, known_reward=solver.known_reward)
        found = replace(found, population=solve(problem, asked, seed, part_of(progress, 0.2, 0.3)))
        keep(found)
    if lookahead:
        found = replace(found, lookahead=compare_from(resume(solution), lookahead, tables, seed, part_of(progress, 0.3, 0.35)))
    penalty = Penalty(solver.ridge, solve(problem, replace(solver, ridge=None), seed)) if solver.ridge else None
    if penalty is not None:
        found = replace(found, withheld=found.withheld or penalty.decides(solution))
    found = replace(found, penalty=penalty, identification=identification(solution))
    if quick:
        return replace(found, intervals=_rough_intervals(found), finished=True)
    found = _with_checks(found, tables, seed, part_of(progress, 0.35, 0.5))
    keep(found)
    if found.goals is not None and not any(found.known) and solver.known_reward is None:
        found = replace(found, goals=found.goals.with_groups(solution, solver.temperature, seed, part_of(progress, 0.5, 0.55)))
        keep(found)
    if found.withheld:
        return replace(found, finished=True)
    found = _with_intervals(found, jobs, part_of(progress, 0.55, 0.8), keep)
    if problem.n_experts > 1 and not all(found.known):
        progress(0.8, "test of one discount for all")
        found = replace(found, shared=shared_discount_test(solution))
        keep(found)
    if not all(found.known) and (pairs or problem.n_experts <= FEW_EXPERTS):
        found = _with_pairs(found, jobs, part_of(progress, 0.85, 1.0), keep)
    return replace(found, finished=True)


def _estimates(solution: Solution, tables: Sequence[Demonstrations], remarks: list[str], quick: bool) -> Analysis:
    """What is known once the fit is done."""
    problem, contrasts = solution.require_problem(), reward_contrasts(solution)
    return Analysis(
        solution=solution,
        intervals=np.full((problem.n_experts, 2), np.nan),
        episodes=_episodes(problem, tables),
        contrasts=contrasts,
        shared=None,
        pairs=[],
        checks=None,
        identification=None,
        penalty=None,
        withheld=not_to_be_used(solution, contrasts),
        remarks=remarks,
        quick=quick,
        finished=False,
    )


def _with_temperature_test(solution: Solution, problem: Problem, solver: MaximumLikelihood, seed: int) -> Solution:
    """Where the user asks for one temperature, the evidence also says whether the decisions reject it."""
    if solver.temperature != "shared" or problem.n_experts == 1:
        return solution
    freer = solve(problem, replace(solver, temperature="pooled"), seed)
    test = {"equal_temperatures_p": freer.evidence["equal_temperatures_p"]}
    return replace(solution, evidence={**solution.evidence, **test})


def _with_checks(found: Analysis, tables: Sequence[Demonstrations], seed: int, progress: Progress) -> Analysis:
    """The same with predictions of held-out episodes, withheld where they are worse than a simpler model's."""
    try:
        checks = check_model(found.solution, tables, seed=seed, progress=progress)
    except ValueError as error:
        return replace(found, remarks=[*found.remarks, f"The model was not checked on held-out episodes: {error}."])
    worse = found.withheld or predicts_worse(checks, found.chance, found.free_rewards)
    return replace(found, checks=checks, withheld=worse)


def _with_intervals(found: Analysis, jobs: int, progress: Progress, keep: Callable[[Analysis], None]) -> Analysis:
    """The same with the solution's profile intervals, as they come."""
    source = found.solution.interval_source
    assert isinstance(source, ProfileIntervals)
    given = np.array(found.given)[:, None]
    for intervals in source.by_blocks(LEVEL, jobs):
        found = replace(found, intervals=np.where(given, intervals, np.nan))
        done = int((given & ~np.isnan(intervals)).any(axis=1).sum())
        progress(done / max(int(given.sum()), 1), f"intervals: {done} of {int(given.sum())} discounts")
        keep(found)
    return found


def _rough_intervals(found: Analysis) -> Floats:
    """Intervals from standard errors, cut at the discounts that can be tried."""
    errors = found.solution.standard_errors
    if errors is None or found.withheld:
        return found.intervals
    half = norm.ppf(0.5 + LEVEL / 2) * np.where(found.given, errors, np.nan)
    ends = found.solution.discounts[:, None] + half[:, None] * [-1, 1]
    cut: Floats = np.clip(ends, 0.0, found.largest_discount)
    return cut


def _with_pairs(found: Analysis, jobs: int, progress: Progress, keep: Callable[[Analysis], None]) -> Analysis:
    """The same with tests of every pair, as they come; they are corrected for their number when all are there."""
    tests: list[SharedDiscountTest] = []
    for test in each_pair(found.solution, progress, jobs):
        tests.append(replace(test, adjusted=np.nan))
        found = replace(found, pairs=list(tests))
        keep(found)
    return replace(found, pairs=with_holm(tests))


def _episodes(problem: Problem, tables: Sequence[Demonstrations]) -> Ints:
    total = np.zeros(problem.n_experts, dtype=np.int64)
    for table in tables:
        for name, episodes in zip(table.experts, table.episode_counts, strict=True):
            total[problem.names.index(name)] += episodes
    return total


#: The model fits well where it explains this share of what the choices' own logits explain, and next states are predicted at all.
WELL_EXPLAINED = 0.95
#: What is said of one reward for all experts.
NOT_TESTED = "This was not tested: there is no test of it yet for states that are vectors."


@dataclass(frozen=True, eq=False, kw_only=True)
class SampledAnalysis(Judged):
    """What `analyse_steps` found, in numbers and in words. `quick` leaves out the tests."""

    steps: Steps
    functions: Functions

    @property
    def known(self) -> list[bool]:
        """Whether each discount was known beforehand, and so was not estimated."""
        told = self.solution.options.get("discounts")
        return [name in told if isinstance(told, dict) else told is not None for name in self.solution.experts]

    @property
    def longest(self) -> float:
        """Infinite: logged steps alone do not show that a task must end."""
        return np.inf

    @property
    def largest_discount(self) -> float:
        """The largest discount the fit tries."""
        return LARGEST_DISCOUNT

    @property
    def rewards_told(self) -> int:
        """The basis functions of the reward, less the directions that stay open."""
        evidence = self.solution.evidence
        return max(0, int(evidence["functions"]) - int(evidence["unidentified_directions"]))

    @cached_property
    def decisions(self) -> Floats:
        """Decisions of each expert `(K,)`."""
        return np.array([float(batch.visits.sum()) for batch in self.functions.point.likelihood.design.decisions])

    @cached_property
    def chance(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` if all available actions were equally likely."""
        batches = self.functions.point.likelihood.design.decisions
        return np.array([batch.chance for batch in batches]) / self.decisions

    @cached_property
    def fitted(self) -> Floats:
        """Log-likelihood per decision of each expert `(K,)` under the fitted policy."""
        point = self.functions.point
        pairs = zip(point.likelihood.design.decisions, point.plans, strict=True)
        return np.array([float((batch.counts * plan.finite_log).sum()) for batch, plan in pairs]) / self.decisions

    @property
    def verdicts(self) -> tuple[Verdict, Verdict, Verdict]:
        """How far do they look ahead? Can the data tell? Does the model fit?"""
        fit = _fits(self)
        return look_ahead_verdict(self), told_only_if_it_fits(_can_tell(self), fit), fit

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        found = [f"Do not use these numbers. {self.withheld}"] if self.withheld else []
        if self.solution.evidence["basis_too_poor"]:
            found.append("The basis is too poor: richer functions predict choices better, and the discounts may be far off.")
        return found

    @property
    def headline(self) -> str:
        """The opening paragraph."""
        look, tell, fit = self.verdicts
        goals = [] if len(self.solution.experts) == 1 else [f"{QUESTION} {NOT_TESTED}"]
        return " ".join([*self.warnings, *goals, *([] if self.withheld else [look.reasons]), tell.reasons, fit.reasons])

    def to_frame(self) -> pd.DataFrame:
        """One row per expert, from the shortest horizon to the longest: the columns of `people.csv`."""
        return people_frame(self)


def analyse_steps(
    steps: Steps, solver: SieveLikelihood | None = None, seed: int = 0, quick: bool = False, progress: Progress = silent
) -> SampledAnalysis:
    """Fit logged steps and judge the fit.

    Args:
        steps: the decisions.
        solver: the options of the fit.
        seed: fixes all randomness.
        quick: leave out tests of shared discounts.
        progress: called with the share of the work that is done and where it stands.
    """
    solution = solve(SampledProblem(steps), solver or SieveLikelihood(), seed, part_of(progress, 0.0, 0.7))
    tested = not quick and solution.status is Status.CONVERGED
    shared, pairs = sampled_discount_tests(solution, part_of(progress, 0.7, 1.0)) if tested else (None, [])
    found = SampledAnalysis(
        solution=solution,
        intervals=solution.confidence_intervals(LEVEL),
        episodes=np.array([np.unique(steps.episode_numbers[steps.expert == k]).size for k in range(len(steps.experts))]),
        shared=shared,
        pairs=pairs,
        withheld=not_to_be_used(solution),
        quick=quick,
        steps=steps,
        functions=functions(solution),
    )
    return replace(found, intervals=np.where(np.array(found.given)[:, None], found.intervals, np.nan))


def _can_tell(found: SampledAnalysis) -> Verdict:
    """The verdict of every fit, and what learned dynamics and a basis add to it."""
    told, evidence = identifiability_verdict(found), found.solution.evidence
    if told.kind == "bad" or all(found.known):
        return told
    if dynamics_unknown(evidence["next_state_r2"]):
        reasons = "State and action do not predict next states, so plans are not known."
        return Verdict(told.question, "Hardly", reasons, "caution")
    if evidence["basis_too_poor"]:
        reasons = "Richer functions of the state predict choices better."
        return Verdict(told.question, "Not with this basis", reasons, "caution")
    return replace(told, reasons=f"{told.reasons} The intervals include the error of the learned dynamics.")


def _fits(found: SampledAnalysis) -> Verdict:
    question, evidence = "Does the model fit?", found.solution.evidence
    if nobody_better_than_chance(found):
        return Verdict(question, "No", "The model explains the decisions no better than chance.", "bad")
    if found.withheld:
        return Verdict(question, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")
    share = float(evidence["explained_share"])
    weak = unpredicted(evidence["next_state_r2"])
    reasons = (
        f"One reward and {count(len(found.solution.experts), 'discount')} explain {100 * share:.0f} % of what the same functions "
        "explain of the choices without any plan. Whether something outside the state changes between episodes was not tested."
    )
    if weak:
        reasons += f" How {in_words(weak)} will change is hardly predicted by state and action."
    good = share >= WELL_EXPLAINED and not weak
    return Verdict(question, "Yes" if good else "In part", reasons, "good" if good else "caution")
