"""Problems and equations that several test files pose."""

import numpy as np

import multihorizon as mh
from multihorizon.exact.equations import (
    LIMITS,
    StateEquations,
    in_order_of_content,
    joint_equations,
    read_equations,
    reward_families,
)
from multihorizon.exact.identify import judge


def equations_of(problem, temperature=1.0):
    """The equations of all experts, as `identify` poses them."""
    return joint_equations(problem, temperature)


def identified(problem, temperature=1.0, limits=LIMITS, least_rows=4):
    """Identify states' rewards as `identify` does, with other limits of size."""
    ordered = in_order_of_content(problem, 0.5)
    lam = None if temperature == "per_expert" else temperature
    families = reward_families(ordered, [read_equations(expert) for expert in ordered.experts], 1e-8, limits)
    none = np.full(problem.n_experts, np.nan)
    equations = StateEquations(ordered, [read_equations(each) for each in ordered.experts], lam, 1e-8, none, families, least_rows)
    return judge(equations).report().listed_as(problem.names, free_temperatures=lam is None)


def features_of(mdp, seed):
    """Arrival features shared by several states and one action cost."""
    rng = np.random.default_rng(seed)
    arrival = mdp.stacked @ rng.normal(size=(mdp.n_states, 3))
    cost = np.repeat(np.arange(mdp.n_actions) == 0, mdp.n_states)[:, None] * ~np.tile(mdp.terminal, mdp.n_actions)[:, None]
    return np.hstack([arrival, cost])


def acting_best(domain: mh.domains.Domain, order=(0, 1, 2)) -> mh.Problem:
    experts = domain.hard_experts()
    return mh.Problem(domain.mdp, [experts[i] for i in order])
