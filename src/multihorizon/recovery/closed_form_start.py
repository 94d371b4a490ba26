"""A start for estimation from demonstrations: the closed form on smoothed frequencies.

Frequencies make the equations of `closed_form` noisy, so its answer is a start: the equations are weighted by the counts
(the Fisher information of a state's logits), and of a few candidates the one with the largest likelihood of the decisions,
`Σ N(s,a) log π(a|s)`, is returned. Candidates are the solution of the linear system, the minimisers of variable projection
from a few discounts, and each with its reward shrunk, because noise inflates rewards. The result is finite and its discounts
are inside (0,1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from multihorizon.checks import Floats
from multihorizon.problem import Problem
from multihorizon.recovery.closed_form import expert_lines, in_order_of_content, read_equations, state_columns
from multihorizon.recovery.feature_form import FeatureForm
from multihorizon.recovery.identify import LARGE, Temperature, read_temperature
from multihorizon.recovery.linear_system import Rows, build_system, solve_system
from multihorizon.recovery.recomputed import log_likelihood
from multihorizon.recovery.variable_projection import StateForm, minimise, project

#: Discounts of a start stay this far inside [0,1], so that an optimiser can move them both ways.
MARGIN = 0.01
SHRINKS = (1.0, 0.5, 0.2)


@dataclass(frozen=True, eq=False)
class Start:
    """Discounts `(K,)`, reward parameters, temperatures `(K,)`, and the log-likelihood of the decisions under them."""

    discounts: Floats
    reward: Floats
    temperature: Floats
    log_likelihood: float


def closed_form_start(problem: Problem, smoothing: float = 0.5, temperature: Temperature = 1.0) -> Start:
    """A finite start for maximum likelihood from demonstrations (policies count as one decision a state).

    Args:
        problem: experts given as demonstrations or policies.
        smoothing: added to each available action's count.
        temperature: shared λ, or "per_expert" with the first expert's fixed to 1.
    """
    lam = read_temperature(temperature)
    ordered = in_order_of_content(problem, smoothing)
    start = _most_likely(ordered, lam, smoothing)
    place = [ordered.names.index(name) for name in problem.names]
    scale = float(start.temperature[place[0]]) if lam is None else 1.0
    return Start(start.discounts[place], start.reward / scale, start.temperature[place] / scale, start.log_likelihood)


def _most_likely(problem: Problem, lam: float | None, smoothing: float) -> Start:
    form, guesses = _form(problem, lam, smoothing)
    k = problem.n_experts
    guesses += [np.full(k, 0.5), np.full(k, 0.9), np.linspace(0.2, 0.8, k)]
    candidates: list[tuple[Floats, Floats, Floats]] = []
    for guess in guesses:
        for point in (project(form, guess), minimise(form, guess)):
            reward, lams = form.read(point.discounts, point.x)
            lams = np.clip(np.nan_to_num(lams, nan=1.0), 0.1, 10.0)
            candidates += [(np.clip(point.discounts, MARGIN, 1 - MARGIN), np.nan_to_num(reward) * s, lams) for s in SHRINKS]
    scored = [Start(*candidate, log_likelihood(problem, *candidate)) for candidate in candidates]
    return max(scored, key=lambda start: start.log_likelihood)


def _form(problem: Problem, lam: float | None, smoothing: float) -> tuple[Any, list[Floats]]:
    """The equations with weights, and the linear system's answer where there is one."""
    if any(state_columns(problem, expert) is None for expert in problem.experts):
        return FeatureForm(problem, lam, [read_equations(expert, smoothing) for expert in problem.experts]), []
    draws = 2 if sum(expert.mdp.n_states for expert in problem.experts) > LARGE else 32
    rows = Rows(expert_lines(problem, 1.0, draws, smoothing), problem.n_parameters)
    system = build_system(rows, problem.n_experts, lam)
    answer = solve_system(system)
    return StateForm(rows, problem.n_experts, lam), [np.clip(system.read(answer.y)[0], 0.0, 1.0)]
