"""An answer checked against the experts: everything here is computed again from discounts, reward and temperatures alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from multihorizon.checks import Floats
from multihorizon.experts import Expert
from multihorizon.planning.evaluation import policy_entropy
from multihorizon.planning.linear import Resolvent
from multihorizon.planning.soft_plan import soft_plan
from multihorizon.problem import Problem
from multihorizon.recovery.closed_form import Equations, read_equations
from multihorizon.tolerances import LARGEST_SOLVABLE_DISCOUNT


def bellman_residual(
    problem: Problem, equations: Sequence[Equations], discounts: Floats, reward: Floats, temperature: Floats
) -> float:
    """`max |(Q − V)/λ − log π*|` with V and Q the values of the experts' own policies under the answer.

    It is 0 exactly if every expert is soft-optimal. Its unit is that of log π.
    """
    cases = zip(problem.experts, equations, problem.owner, strict=True)
    return max(_one_residual(expert, e, reward, float(discounts[k]), float(temperature[k])) for expert, e, k in cases)


def _one_residual(expert: Expert, equations: Equations, reward: Floats, gamma: float, lam: float) -> float:
    mdp = expert.mdp
    live = equations.weights > 0
    policy = np.where(live, equations.policy, 0.0)
    immediate = expert.expected_reward(reward)
    bonus = np.where(mdp.terminal, 0.0, lam * policy_entropy(equations.policy))
    if gamma > LARGEST_SOLVABLE_DISCOUNT and mdp.never_ends(equations.policy).any():
        gamma = LARGEST_SOLVABLE_DISCOUNT
    values = Resolvent(mdp.under(policy), gamma).solve((policy * immediate).sum(axis=1) + bonus)
    advantage = immediate + gamma * mdp.expect(values) - values[:, None]
    return float(np.abs(advantage / lam - equations.log_policy)[live].max(initial=0.0))


def reproduction_error(
    problem: Problem, equations: Sequence[Equations], discounts: Floats, reward: Floats, temperature: Floats
) -> float:
    """`max |π − π*|` over experts, states and actions, with π planned again from the answer."""
    worst = 0.0
    for expert, e, owner in zip(problem.experts, equations, problem.owner, strict=True):
        planned = soft_plan(expert.mdp, expert.expected_reward(reward), float(discounts[owner]), float(temperature[owner]))
        worst = max(worst, float(np.abs(planned.policy - e.policy)[~expert.mdp.terminal].max(initial=0.0)))
    return worst


def log_likelihood(problem: Problem, discounts: Floats, reward: Floats, temperature: Floats) -> float:
    """`Σ N(s,a) log π(a|s)`; experts given as policies count with weight 1 in every state; −inf where no plan exists."""
    total = 0.0
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        counts = expert.counts if expert.counts is not None else read_equations(expert).policy
        live = ~expert.mdp.terminal[:, None] & (counts > 0)
        try:
            planned = soft_plan(expert.mdp, expert.expected_reward(reward), float(discounts[owner]), float(temperature[owner]))
        except ValueError:
            return -np.inf
        total += float((counts * np.where(live, planned.log_policy, 0.0))[live].sum())
    return total
