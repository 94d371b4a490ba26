"""From tables to an answer with everything a reader needs to judge it: what `multihorizon fit` runs.

The steps are public functions of their own: transitions (given, or estimated from the table), the maximum-likelihood fit, model
checks, the verdict on identifiability, profile intervals and tests of shared discounts. Intervals and tests come last: a fit that
did not converge, or predicts worse than a simpler model, gets none. Identifiability has two sides that must agree: the Fisher
information at the answer (do *these* decisions tell the discounts apart?) and `identify` on the fitted policies (could any number
of decisions in this task?).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from multihorizon.checks import Ints
from multihorizon.driver import solve
from multihorizon.likelihood.contrasts import reward_contrasts
from multihorizon.likelihood.fit import SEARCHED_STATES
from multihorizon.likelihood.horizon_tests import pairwise_tests, shared_discount_test
from multihorizon.likelihood.known import Temperature
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.likelihood.model_checks import check_model
from multihorizon.mdp import MDP
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.recovery.identification import Identification
from multihorizon.recovery.identify import identify
from multihorizon.report import advice, words
from multihorizon.report.findings import LEVEL, Findings, Penalty, not_to_be_used, predicts_worse
from multihorizon.report.words import Verdict
from multihorizon.solution import Solution, Status
from multihorizon.tables.demonstrations import Demonstrations
from multihorizon.tables.dynamics import SMOOTHING, describe_estimate, estimate_mdp, require_possible

#: Every pair of this many experts is tested; of more only on request, because pairs grow as the square of the experts.
FEW_EXPERTS = 6


class Analysis(Findings):
    """What `analyse` found, in numbers and in words."""

    @property
    def warnings(self) -> list[str]:
        """What a reader must know before any number; often nothing."""
        return advice.warnings(self)

    @property
    def headline(self) -> str:
        """The opening paragraph: who looks how far, whether the data can tell, whether the model fits."""
        return words.headline(self)

    @property
    def verdicts(self) -> tuple[Verdict, Verdict, Verdict]:
        """The same as three answers with their reasons."""
        return words.verdicts(self)

    @property
    def advice(self) -> list[str]:
        """What to collect next."""
        return advice.advice(self)


def build_problem(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None,
    features: Any = None,
    smoothing: float = SMOOTHING,
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
    remarks: list[str] = []
    if mdps is not None and len(mdps) != len(tables):
        raise ValueError(f"there must be one file of transitions for each table, received {len(mdps)} for {len(tables)}")
    if mdps is None and estimate_rest:
        raise ValueError("--estimate-rest must come with --transitions to start from, received none: leave it out")
    if mdps is None or estimate_rest:
        known: Sequence[MDP | None] = mdps or [None] * len(tables)
        mdps = [estimate_mdp(table, smoothing, rows) for table, rows in zip(tables, known, strict=True)]
        remarks += [said for mdp in mdps for said in describe_estimate(mdp, smoothing)]
    problems = []
    for table, mdp in zip(tables, mdps, strict=True):
        require_possible(table, mdp)
        matrix, names = (None, None) if features is None else features(mdp)
        problems.append(Problem(mdp, table, features=matrix, feature_names=names))
    return (problems[0] if len(problems) == 1 else Problem.join(*problems)), remarks


def analyse(
    tables: Sequence[Demonstrations],
    mdps: Sequence[MDP] | None = None,
    features: Any = None,
    temperature: Temperature = "pooled",
    smoothing: float = SMOOTHING,
    ridge: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
    estimate_rest: bool = False,
    pairs: bool = False,
) -> Analysis:
    """Fit tables of decisions and judge the fit; arguments as in `build_problem` and `MaximumLikelihood`.

    Every pair of up to `FEW_EXPERTS` experts is tested for a shared discount; `pairs` asks for that with more experts.
    """
    problem, remarks = build_problem(tables, mdps, features, smoothing, estimate_rest)
    solution = solve(problem, MaximumLikelihood(temperature, ridge=ridge), seed, _part(progress, 0.0, 0.4))
    contrasts = reward_contrasts(solution)
    progress(0.4, "model checks")
    try:
        checks = check_model(solution, tables, seed=seed, progress=_part(progress, 0.4, 0.55))
    except ValueError as error:
        checks, remarks = None, [*remarks, f"The model was not checked on held-out episodes: {error}."]
    progress(0.55, "identifiability")
    exact = identify_fitted(solution) if _small(problem) or solution.status == Status.NOT_IDENTIFIED else None
    found = Analysis(
        solution=solution,
        intervals=np.full((problem.n_experts, 2), np.nan),
        episodes=_episodes(problem, tables),
        contrasts=contrasts,
        shared=None,
        pairs=[],
        checks=checks,
        identification=exact,
        penalty=_penalty(problem, temperature, ridge, seed),
        withheld=not_to_be_used(solution, contrasts),
        remarks=remarks,
    )
    if checks is not None and not found.withheld:
        found = replace(found, withheld=predicts_worse(checks, found.chance, problem.n_parameters))
    return found if found.withheld else _with_uncertainty(found, pairs, _part(progress, 0.6, 1.0))


def _with_uncertainty(found: Analysis, pairs: bool, progress: Progress) -> Analysis:
    """The same with intervals and tests."""
    progress(0.0, "intervals")
    intervals = np.where(np.array(found.given)[:, None], found.solution.confidence_intervals(LEVEL), np.nan)
    if found.problem.n_experts == 1:
        return replace(found, intervals=intervals)
    progress(0.4, "tests")
    shared = shared_discount_test(found.solution)
    found = replace(found, intervals=intervals, shared=shared)
    if found.problem.n_experts > FEW_EXPERTS and not pairs:
        return found
    return replace(found, pairs=pairwise_tests(found.solution, _part(progress, 0.4, 1.0)))


def _penalty(problem: Problem, temperature: Temperature, ridge: float | None, seed: int) -> Penalty | None:
    """A penalty that was asked for, beside the fit without it."""
    return Penalty(ridge, solve(problem, MaximumLikelihood(temperature, ridge=0.0), seed)) if ridge else None


def _small(problem: Problem) -> bool:
    return problem.tabular or sum(expert.mdp.n_states for expert in problem.experts) <= SEARCHED_STATES


def fitted_problem(solution: Solution) -> Problem:
    """The solution's problem with each expert's decisions replaced by the fitted policy."""
    problem = solution.require_problem()
    return problem.with_experts(
        replace(expert, kind="policy", policy=policy, counts=None)
        for expert, policy in zip(problem.experts, solution.policies(), strict=True)
    )


def identify_fitted(solution: Solution) -> Identification | None:
    """Whether the fitted policies, if known exactly, would identify the discounts; None where it cannot be told."""
    per_expert = solution.temperature is not None and bool(np.ptp(solution.temperature) > 0)
    lam = 1.0 if solution.temperature is None else float(solution.temperature[0])
    try:
        return identify(fitted_problem(solution), temperature="per_expert" if per_expert else lam)
    except ValueError:
        return None


def _episodes(problem: Problem, tables: Sequence[Demonstrations]) -> Ints:
    total = np.zeros(problem.n_experts, dtype=np.int64)
    for table in tables:
        for name, count in zip(table.experts, table.episode_counts, strict=True):
            total[problem.names.index(name)] += count
    return total


def _part(progress: Progress, low: float, high: float) -> Progress:
    """A progress whose whole is a part of another's."""
    return lambda share, message: progress(low + (high - low) * share, message)
