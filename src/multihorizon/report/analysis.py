"""From tables to an answer with everything a reader needs to judge it: what `multihorizon fit` runs.

The steps are public functions of their own: transitions (given, or estimated from the table), the maximum-likelihood fit, profile
intervals, tests of shared discounts, model checks, and the verdict on identifiability. The verdict has two sides that must agree:
the Fisher information at the answer (do *these* decisions tell the discounts apart?) and `identify` on the fitted policies (could
any number of decisions in this task?).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.likelihood.horizon_tests import SharedDiscountTest, pairwise_tests, shared_discount_test
from multihorizon.likelihood.maximum_likelihood import SEARCHED_STATES, MaximumLikelihood
from multihorizon.likelihood.model_checks import ModelChecks, check_model
from multihorizon.mdp import MDP
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.recovery.identification import Identification
from multihorizon.recovery.identify import identify
from multihorizon.solution import Solution, Status
from multihorizon.solve import solve
from multihorizon.tables.demonstrations import Demonstrations
from multihorizon.tables.dynamics import SMOOTHING, describe_estimate, estimate_mdp, require_possible

LEVEL = 0.95
#: An interval this narrow tells most horizons apart; advice on how much more to collect aims at it.
WANTED_WIDTH = 0.1
#: An interval wider than this says little about a discount.
VAGUE_WIDTH = 0.5


@dataclass(frozen=True, eq=False)
class Analysis:
    """A fitted solution with intervals `(K,2)`, episodes `(K,)`, tests, checks, the verdict, and remarks on how it was made."""

    solution: Solution
    intervals: Floats
    episodes: Ints
    shared: SharedDiscountTest | None
    pairs: list[SharedDiscountTest]
    checks: ModelChecks | None
    identification: Identification | None
    remarks: list[str]

    @property
    def problem(self) -> Problem:
        """The problem that was fitted."""
        return self.solution.require_problem()

    @property
    def identified(self) -> list[bool]:
        """Whether each discount is identified by the decisions."""
        return list(self.solution.evidence["identified"])


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
    temperature: float | Literal["per_expert"] = 1.0,
    smoothing: float = SMOOTHING,
    ridge: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
    estimate_rest: bool = False,
) -> Analysis:
    """Fit tables of decisions and judge the fit; arguments as in `build_problem` and `MaximumLikelihood`."""
    problem, remarks = build_problem(tables, mdps, features, smoothing, estimate_rest)
    solution = solve(problem, MaximumLikelihood(temperature, ridge), seed, _part(progress, 0.0, 0.5))
    progress(0.5, "intervals")
    intervals = solution.confidence_intervals(LEVEL)
    several = problem.n_experts > 1
    shared = shared_discount_test(solution) if several else None
    pairs = pairwise_tests(solution, _part(progress, 0.6, 0.75)) if several else []
    try:
        checks = check_model(solution, tables, seed=seed, progress=_part(progress, 0.75, 0.9))
    except ValueError as error:
        checks, remarks = None, [*remarks, f"The model was not checked on held-out episodes: {error}."]
    progress(0.9, "identifiability")
    small = problem.tabular or sum(expert.mdp.n_states for expert in problem.experts) <= SEARCHED_STATES
    verdict = identify_fitted(solution) if small or solution.status == Status.NOT_IDENTIFIED else None
    progress(1.0, "done")
    return Analysis(solution, intervals, _episodes(problem, tables), shared, pairs, checks, verdict, remarks)


def fitted_problem(solution: Solution) -> Problem:
    """The solution's problem with each expert's decisions replaced by the fitted policy."""
    problem = solution.require_problem()
    return problem.with_experts(
        replace(expert, kind="policy", policy=policy, counts=None)
        for expert, policy in zip(problem.experts, solution.policies(), strict=True)
    )


def identify_fitted(solution: Solution) -> Identification | None:
    """Whether the fitted policies, if known exactly, would identify the discounts; None where it cannot be told."""
    per_expert = bool(solution.evidence.get("per_expert_temperature"))
    lam = 1.0 if solution.temperature is None else float(solution.temperature[0])
    try:
        return identify(fitted_problem(solution), temperature="per_expert" if per_expert else lam)
    except ValueError:
        return None


def verdict(analysis: Analysis) -> str:
    """The identifiability of the discounts in words."""
    names = analysis.solution.experts
    unknown = [n for n, known in zip(names, analysis.identified, strict=True) if not known]
    exact = analysis.identification
    if not unknown:
        extra = analysis.solution.evidence["unidentified_directions"]
        level = f" Of the reward, {extra} direction(s) stay open, such as a constant added to all of it." if extra else ""
        vague = wide_intervals(analysis)
        if vague:
            return (
                "The decisions identify every discount in principle, but they are too few to say much: they leave "
                f"{'; '.join(vague)}.{level}"
            )
        return f"The decisions identify every discount: no other discounts make them as likely.{level}"
    said = f"The discounts of {', '.join(unknown)} are not identified: other discounts, with another reward, make the decisions "
    said += "exactly as likely, so no number is given for them."
    if exact is not None and exact.status == "set":
        ranges = "; ".join(
            f"{name} from {low:.2f} to {high:.2f}" for name, (low, high) in zip(names, exact.intervals, strict=True)
        )
        said += f" Nor would more decisions of the same kind help: even exact policies leave {ranges}."
    return said


def wide_intervals(analysis: Analysis) -> list[str]:
    """The identified discounts whose intervals are so wide that the estimate says little, in words."""
    cases = zip(analysis.solution.experts, analysis.identified, analysis.intervals, strict=True)
    return [f"{name} from {low:.2f} to {high:.2f}" for name, known, (low, high) in cases if known and high - low > VAGUE_WIDTH]


def advice(analysis: Analysis) -> list[str]:
    """What to collect next."""
    if analysis.solution.status == Status.NOT_IDENTIFIED:
        return [
            "The same experts in a variant of the task: other transitions, the same rewards; hand both tables in together.",
            "Another expert with a clearly different horizon in the same task.",
            "Fewer reward parameters: tie the rewards of similar states together with features.",
        ]
    found = []
    for name, pair, episodes in zip(analysis.solution.experts, analysis.intervals, analysis.episodes, strict=True):
        width = float(pair[1] - pair[0])
        if width > WANTED_WIDTH:
            more = int(np.ceil(episodes * ((width / WANTED_WIDTH) ** 2 - 1)))
            found.append(
                f"{name}: about {_rounded(more)} more episodes would narrow the interval from {width:.2f} to {WANTED_WIDTH:.2f}."
            )
    return found or ["Nothing more is needed for intervals narrower than 0.1."]


def _episodes(problem: Problem, tables: Sequence[Demonstrations]) -> Ints:
    total = np.zeros(problem.n_experts, dtype=np.int64)
    for table in tables:
        for name, count in zip(table.experts, table.episode_counts, strict=True):
            total[problem.names.index(name)] += count
    return total


def _rounded(number: int) -> str:
    """Two significant digits: it is an estimate."""
    digits = max(0, len(str(number)) - 2)
    return f"{round(number, -digits):,}"


def _part(progress: Progress, low: float, high: float) -> Progress:
    """A progress whose whole is a part of another's."""
    return lambda share, message: progress(low + (high - low) * share, message)
