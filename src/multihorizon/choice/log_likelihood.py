"""The log-likelihood of decisions with its exact gradient, for rewards and optimisers of your own.

The value is `Σ_k Σ N_k(s,a) log π_k(a|s)` of experts who are soft-optimal for the reward θ at their discount factor γ_k and
temperature λ_k. Its derivatives in θ, γ and λ are those of `choice.tabular`: one adjoint solve for each expert, however many
parameters there are. A reward that is computed by a network of weights w follows by the chain rule, `∂L/∂w = (∂θ/∂w)ᵀ ∂L/∂θ`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from multihorizon.checks import Floats, as_floats, as_shape
from multihorizon.choice.tabular import Likelihood
from multihorizon.problem import Problem, require_finite


@dataclass(frozen=True, eq=False)
class LogLikelihood:
    """A log-likelihood and its gradient.

    Attributes:
        value: `Σ_k Σ N_k(s,a) log π_k(a|s)`; −inf where the value of some state is infinite.
        reward: its derivative in the reward parameters `(d,)`.
        discounts: its derivatives in the discount factors `(K,)`.
        temperatures: its derivatives in the temperatures `(K,)`.
    """

    value: float
    reward: Floats
    discounts: Floats
    temperatures: Floats


def log_likelihood(
    problem: Problem,
    reward: ArrayLike,
    discounts: float | Sequence[float] | Floats,
    temperatures: float | Sequence[float] | Floats = 1.0,
) -> LogLikelihood:
    """Compute the log-likelihood of the decisions of a problem, and its gradient.

    Args:
        problem: experts given as demonstrations. Calls with the same problem reuse what does not depend on the parameters.
        reward: the reward parameters `(d,)`: one number per state, paid on arrival, or the weights of the features.
        discounts: one discount factor for all experts, or one for each `(K,)`.
        temperatures: one temperature for all experts, or one for each `(K,)`.

    Returns:
        The value, and its derivatives in the reward `(d,)`, the discount factors `(K,)` and the temperatures `(K,)`.

    Raises:
        ValueError: for experts who are not given as demonstrations, and for parameters of another shape or out of range.

    References:
        J. Rust (1987). Optimal replacement of GMC bus engines. Econometrica 55, 999-1033.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains
        >>> d = domains.cliff()
        >>> problem = Problem(d.mdp, Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100, seed=0))
        >>> at_truth = log_likelihood(problem, d.reward, d.soft_discounts)
        >>> at_truth.value > log_likelihood(problem, 0 * d.reward, d.soft_discounts).value, at_truth.reward.shape
        (True, (12,))
    """
    theta = as_floats(reward, "reward")
    model = _model(require_finite(problem))
    as_shape(theta, (problem.n_parameters,), "reward")
    gamma, lam = (_of_each(value, problem, name) for value, name in ((discounts, "discounts"), (temperatures, "temperatures")))
    if ((gamma < 0) | (gamma > 1)).any():
        raise ValueError(f"discounts must be in [0, 1], received {gamma[(gamma < 0) | (gamma > 1)][0]:g}")
    if (lam <= 0).any():
        raise ValueError(f"temperatures must be positive, received {lam[lam <= 0][0]:g}")
    point = model.at(np.concatenate([theta, np.minimum(gamma, model.upper[theta.size : theta.size + gamma.size]), np.log(lam)]))
    if point is None:
        return LogLikelihood(-np.inf, np.full(theta.size, np.nan), np.full(gamma.size, np.nan), np.full(lam.size, np.nan))
    gradient = point.pull_back([plan.persons.counts for plan in point.plans])
    d, k = theta.size, gamma.size
    return LogLikelihood(point.value, gradient[:d], gradient[d : d + k], gradient[d + k :] / lam)


@lru_cache(maxsize=2)
def _model(problem: Problem) -> Likelihood:
    return Likelihood(problem)


def _of_each(given: float | Sequence[float] | Floats, problem: Problem, name: str) -> Floats:
    values = np.atleast_1d(as_floats(given, name))
    if values.shape not in ((1,), (problem.n_experts,)):
        raise ValueError(
            f"{name} must be one number or one for each of {problem.n_experts} experts, received shape {values.shape}"
        )
    return np.broadcast_to(values, (problem.n_experts,)).copy()
