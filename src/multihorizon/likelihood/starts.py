"""Points to start a likelihood from: conditional choice probabilities at given discounts.

Smoothed frequencies `π̂(a|s) = (N(s,a) + α/A_s)/(n(s) + α)` stand in for an expert's policy (Hotz and Miller, 1993). With π̂
known, the value of going on is linear in θ, `V = (I − γP̂)^{-1}(π̂F θ + H(π̂))`, and so is the model's `log π = Fθ + γTV − V`. Its
least-squares fit to `log π̂`, each row weighted by `n(s) π̂(a|s)`, is a reward for these discounts: what one Fisher step from the
frequencies themselves would give.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from multihorizon.checks import Floats, Ints
from multihorizon.likelihood.ascent import start_at
from multihorizon.likelihood.large import DENSE_PARAMETERS
from multihorizon.likelihood.likelihood import Choices, Likelihood, Point
from multihorizon.mdp import MDP
from multihorizon.planning.evaluation import policy_entropy
from multihorizon.planning.linear import policy_resolvent
from multihorizon.planning.soft_plan import SoftPlan

#: α, how many decisions of an indifferent expert each state's frequencies are mixed with.
SMOOTHING = 1.0
#: Ridge on the reward of a start, relative to the mean diagonal of the normal equations: states without data get 0.
START_RIDGE = 1e-6


def smoothed_policy(mdp: MDP, counts: Floats, smoothing: float = SMOOTHING) -> Floats:
    """Frequencies `(S,A)` of the available actions, mixed with `smoothing` decisions of an indifferent expert a state."""
    uniform = mdp.available / mdp.available.sum(axis=1, keepdims=True)
    policy: Floats = (counts + smoothing * uniform) / (counts.sum(axis=1, keepdims=True) + smoothing)
    return policy


def choice_probability_start(likelihood: Likelihood, discounts: Floats) -> Point | None:
    """The model at given discounts, one a group, with the reward that fits the smoothed frequencies best.

    None where the soft values are infinite, or there are too many rewards for the normal equations.
    """
    d = likelihood.n_reward
    if likelihood.size > DENSE_PARAMETERS:
        return None
    normal, target = np.zeros((d, d)), np.zeros(d)
    for choices in likelihood.choices:
        gamma = min(float(discounts[choices.discount - d]), 0.99)
        columns, design, wanted = _regression(likelihood, choices, gamma)
        normal[np.ix_(columns, columns)] += design.T @ design
        target[columns] += design.T @ wanted
    normal[np.diag_indices_from(normal)] += START_RIDGE * max(float(np.trace(normal)) / d, 1e-12) + likelihood.ridge
    reward = la.solve(normal, target, assume_a="pos", check_finite=False)
    return start_at(likelihood, likelihood.pack(reward, discounts))


def _regression(likelihood: Likelihood, choices: Choices, gamma: float) -> tuple[Ints, Floats, Floats]:
    """Columns, weighted design matrix and weighted target of one expert's least squares."""
    mdp = choices.expert.mdp
    policy = smoothed_policy(mdp, choices.counts)
    solver = policy_resolvent(mdp, policy, gamma)
    values = solver.solve(np.where(mdp.terminal, 0.0, policy_entropy(policy)))
    plan = SoftPlan(policy, values, gamma * mdp.expect(values), 0.0, 0, 1.0)
    x = np.zeros(likelihood.size)
    x[choices.discount] = gamma
    columns, scores = Point(likelihood, x, (), 0.0, 0.0).scores(choices, plan, solver)
    reward = columns < likelihood.n_reward
    chosen = policy.T.ravel()[choices.rows]
    without_reward = gamma * (mdp.stacked[choices.rows] @ values) - values[choices.states]
    weights = np.sqrt(choices.visits[choices.states] * chosen)
    return columns[reward], scores[:, reward] * weights[:, None], (np.log(chosen) - without_reward) * weights
