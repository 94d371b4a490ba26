"""Points to start a likelihood from: conditional choice probabilities at given discounts.

Smoothed frequencies `π̂(a|s) = (N(s,a) + α/A_s)/(n(s) + α)` stand in for an expert's policy (Hotz and Miller, 1993). With π̂
known, the value of going on is linear in θ, `V = (I − γP̂)^{-1}(π̂R + λH(π̂))`, and so is the model's `λ log π = R + γTV − V`. Its
least-squares fit to `λ log π̂`, each row weighted by `n(s) π̂(a|s)`, is a reward for these discounts: what one Fisher step from the
frequencies themselves would give.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la

from multihorizon.checks import Floats
from multihorizon.likelihood.engine import Resolvents
from multihorizon.likelihood.large import is_large
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.metric import Products
from multihorizon.likelihood.persons import Persons, Plans, score_rows
from multihorizon.mdp import MDP

#: α, how many decisions of an indifferent expert are mixed into each state's frequencies.
SMOOTHING = 1.0
#: Ridge on the reward of a start, relative to the mean diagonal of the normal equations: states without data get 0.
START_RIDGE = 1e-6
#: Relative residual of the least-squares fit where it is made of products.
START_TOLERANCE = 1e-6
#: The least-squares fit uses discounts up to this one: nearer to 1 the values of noisy frequencies explode.
LARGEST_START_DISCOUNT = 0.99


def smoothed_policy(mdp: MDP, counts: Floats) -> Floats:
    """Frequencies `(S,A)` of the available actions, mixed with α decisions of an indifferent expert in each state."""
    uniform = mdp.available / mdp.available.sum(axis=1, keepdims=True)
    policy: Floats = (counts + SMOOTHING * uniform) / (counts.sum(axis=1, keepdims=True) + SMOOTHING)
    return policy


def choice_probability_start(likelihood: Likelihood, discounts: Floats, temperatures: Floats | None = None) -> Point | None:
    """The model at given discounts (one for each group) with the reward that fits the smoothed frequencies best.

    None where the soft values are infinite. With very many rewards the normal equations are solved by products.
    """
    d = likelihood.n_reward
    x = likelihood.pack(np.zeros(d), discounts, temperatures)
    if likelihood.settings.reward is not None:
        return start_at(likelihood, x)
    if is_large(likelihood):
        return start_at(likelihood, np.concatenate([_large_regression(likelihood, x), x[d:]]))
    normal, target = np.zeros((d, d)), np.zeros(d)
    for batch in likelihood.batches:
        design, wanted = _regression(likelihood, batch, x)
        used = batch.features.used
        normal[np.ix_(used, used)] += design.T @ design
        target[used] += design.T @ wanted
    normal[np.diag_indices_from(normal)] += START_RIDGE * max(float(np.trace(normal)) / max(d, 1), 1e-12) + likelihood.ridge
    reward = la.solve(normal, target, assume_a="pos", check_finite=False)
    return start_at(likelihood, np.concatenate([reward, x[d:]]))


def start_at(likelihood: Likelihood, x: Floats) -> Point | None:
    """The model at x, discounts drawn back from 1 where the soft values there are infinite; None if that does not help."""
    for back in (0.0, 1e-3, 1e-2, 1e-1, 0.3):
        tried = x.copy()
        tried[likelihood.discount_slice] = np.minimum(x[likelihood.discount_slice], 1 - back)
        point = likelihood.at(np.clip(tried, likelihood.lower, likelihood.upper))
        if point is not None:
            return point
    return None


def own_discounts(point: Point, tried: Floats) -> Floats:
    """For each group the most likely of some discounts, at the point's reward and temperatures."""
    model = point.likelihood
    scores = np.full((tried.size, model.n_discounts), -np.inf)
    for i, discount in enumerate(tried):
        x = point.x.copy()
        x[model.discount_slice] = discount
        there = model.at(np.clip(x, model.lower, model.upper))
        if there is not None:
            scores[i] = 0.0
            for batch, plan in zip(model.batches, there.plans, strict=True):
                np.add.at(scores[i], model.groups[batch.owners], (batch.counts * plan.finite_log).sum(axis=(0, 1)))
    best: Floats = tried[scores.argmax(axis=0)]
    return best


def _regression(likelihood: Likelihood, batch: Persons, x: Floats) -> tuple[Floats, Floats]:
    """Weighted design matrix in the used columns and weighted target of one batch's least squares."""
    plan, solver, wanted = _frequencies(likelihood, batch, x)
    n = plan.gamma.size
    rows, scores = score_rows(batch, plan, solver)
    weights = np.sqrt((batch.visits * plan.policy).reshape(-1, n)[rows])
    q = scores.shape[2] - 2
    target = wanted.reshape(-1, n)[rows]
    return (scores[:, :, :q] * weights[:, :, None]).reshape(target.size, q), (target * weights).ravel()


def _large_regression(likelihood: Likelihood, x: Floats) -> Floats:
    """The same reward from products with the design: the information at the frequencies, as if they were a plan."""
    d = likelihood.n_reward
    found = [_frequencies(likelihood, batch, x) for batch in likelihood.batches]
    point = Point(likelihood.holding(None, likelihood.ridge), x, tuple(plan for plan, _, _ in found), np.nan, np.nan)
    pairs = zip(likelihood.batches, found, strict=True)
    target = point.pull_back([np.where(plan.policy > 0, batch.visits * plan.policy * w, 0.0) for batch, (plan, _, w) in pairs])
    free = np.arange(likelihood.size) < d
    return Products(point).solve(target, free, START_RIDGE, START_TOLERANCE)[:d]


def _frequencies(likelihood: Likelihood, batch: Persons, x: Floats) -> tuple[Plans, Resolvents, Floats]:
    """The smoothed frequencies of a batch as a plan, its solves, and `log π̂` less what is known of the model's `(A,S,n)`."""
    gamma = np.minimum(likelihood.discounts(x)[batch.owners], LARGEST_START_DISCOUNT)
    lam = likelihood.temperatures(x)[batch.owners]
    policies = [smoothed_policy(batch.mdp, batch.counts[:, :, i].T).T for i in range(gamma.size)]
    policy = np.stack(policies, axis=2)
    log = np.log(np.where(policy > 0, policy, 1.0))
    plan = Plans(np.zeros((batch.mdp.n_states, gamma.size)), np.where(policy > 0, log, -np.inf), gamma, lam)
    solver = batch.engine.resolvents(policy, gamma)
    known = batch.known_reward.reshape(*log.shape[:2], 1)
    source = np.where(batch.mdp.terminal[:, None], 0.0, (policy * known).sum(axis=0) + lam * plan.entropy)
    values = solver.solve(source[:, :, None])[:, :, 0]
    without_reward = known + gamma * (batch.mdp.stacked @ values).reshape(log.shape) - values
    return plan, solver, log - without_reward / lam
