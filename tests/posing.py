"""Problems and equations that several test files pose."""

import numpy as np

import multihorizon as mh
from multihorizon.exact.equations import joint_equations


def equations_of(problem, temperature=1.0):
    """The equations of all experts, as `identify` poses them."""
    return joint_equations(problem, temperature)


def features_of(mdp, seed):
    """Arrival features shared by several states and one action cost."""
    rng = np.random.default_rng(seed)
    arrival = mdp.stacked @ rng.normal(size=(mdp.n_states, 3))
    cost = np.repeat(np.arange(mdp.n_actions) == 0, mdp.n_states)[:, None] * ~np.tile(mdp.terminal, mdp.n_actions)[:, None]
    return np.hstack([arrival, cost])


def acting_best(domain: mh.domains.Domain, order=(0, 1, 2)) -> mh.Problem:
    experts = domain.lp_experts()
    return mh.Problem(domain.mdp, [experts[i] for i in order])
