"""From tables to an answer with everything a reader needs to judge it: what `multihorizon fit` runs.

The steps are public functions of their own: transitions (given, or estimated from the table), the maximum-likelihood fit, model
checks, the verdict on identifiability, profile intervals and tests of shared discounts. Intervals and tests come last: a fit that
did not converge, or predicts worse than a simpler model, gets none. Identifiability has two sides that must agree: the Fisher
information at the answer (do *these* decisions tell the discounts apart?) and `identify` on the fitted policies (could any number
of decisions in this task?).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import norm

from multihorizon.checks import Floats, Ints
from multihorizon.driver import solve
from multihorizon.files.labels import look_alikes
from multihorizon.likelihood.contrasts import reward_contrasts
from multihorizon.likelihood.goal_test import shared_goal_test
from multihorizon.likelihood.horizon_tests import SharedDiscountTest, each_pair, shared_discount_test, with_holm
from multihorizon.likelihood.intervals import ProfileIntervals
from multihorizon.likelihood.known import Temperature
from multihorizon.likelihood.lookahead_comparison import check_comparable, compare_from
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood, resume
from multihorizon.likelihood.model_checks import check_model
from multihorizon.likelihood.population import Population
from multihorizon.lookahead import Lookahead
from multihorizon.mdp import MDP
from multihorizon.problem import Problem
from multihorizon.progress import Progress, part_of, silent
from multihorizon.report import advice, words
from multihorizon.report.findings import LEVEL, Findings, Penalty, not_to_be_used, predicts_worse
from multihorizon.report.goal_check import GoalCheck
from multihorizon.report.identifiability import identification
from multihorizon.report.people import people_frame
from multihorizon.report.words import Verdict
from multihorizon.solution import Solution
from multihorizon.tables.demonstrations import Demonstrations
from multihorizon.tables.dynamics import describe_estimate, estimate_mdp, require_agreement, require_ends

#: Up to this many experts every pair is tested; with more only on request, because their number grows with the square.
FEW_EXPERTS = 6


class Analysis(Findings):
    """What `analyse` found, in numbers and in words."""

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        return advice.warnings(self, words.fits(self))

    @property
    def headline(self) -> str:
        """The opening paragraph: who looks how far, whether the data can tell, whether the model fits."""
        return words.headline(self)

    @property
    def verdicts(self) -> tuple[Verdict, Verdict, Verdict]:
        """The same as three answers with their reasons."""
        return words.verdicts(self)

    def to_frame(self) -> pd.DataFrame:
        """One row per expert, from the shortest horizon to the longest: the columns of `people.csv`."""
        return people_frame(self)

    @property
    def advice(self) -> list[str]:
        """What to collect next."""
        return advice.advice(self, words.fits(self))


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
        for name, count in zip(table.experts, table.episode_counts, strict=True):
            total[problem.names.index(name)] += count
    return total
