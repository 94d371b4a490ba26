"""What the fitted policies would identify if they were known exactly: could any number of decisions in this task tell?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from multihorizon.problem import Problem
from multihorizon.recovery.identification import Identification
from multihorizon.recovery.identify import identify
from multihorizon.solution import Solution, Status

#: Up to this many states of all tasks the exact equations are also searched where they are not linear.
SEARCHED_STATES = 200
#: Up to this many states of all experts together, the fitted policies go through `identify`: its time grows with the square.
IDENTIFIED_STATES = 3000


def identification(solution: Solution) -> Identification | None:
    """What exact policies would identify where nothing is known; for large problems only where it matters most."""
    problem, known = solution.require_problem(), solution.evidence["known"]
    if known["reward"] or any(known["discounts"]):
        return None
    states = sum(expert.mdp.n_states for expert in problem.experts)
    small = states <= (IDENTIFIED_STATES if problem.tabular else SEARCHED_STATES)
    return identify_fitted(solution) if small or solution.status == Status.NOT_IDENTIFIED else None


def identify_fitted(solution: Solution) -> Identification | None:
    """Whether the fitted policies, if known exactly, would identify the discounts; None where it cannot be told."""
    per_expert = solution.temperature is not None and bool(np.ptp(solution.temperature) > 0)
    lam = 1.0 if solution.temperature is None else float(solution.temperature[0])
    try:
        return identify(fitted_problem(solution), temperature="per_expert" if per_expert else lam)
    except ValueError:
        return None


def fitted_problem(solution: Solution) -> Problem:
    """The solution's problem with each expert's decisions replaced by the fitted policy."""
    problem = solution.require_problem()
    return problem.with_experts(
        replace(expert, kind="policy", policy=policy, counts=None)
        for expert, policy in zip(problem.experts, solution.policies(), strict=True)
    )
