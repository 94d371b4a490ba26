"""What one policy is worth and where it goes.

For a policy π with `P_π(s,s') = Σ_a π(a|s) T(s'|s,a)` and discount γ, on arrival rewards:

* values       `V = (I − γ P_π)^{-1} Σ_a π(a|·) R(·,a)`, with `λ H(π(·|s))` added to the reward when a temperature λ is given;
* occupancies  `μ(s,a) = μ(s) π(a|s)`, `μ = (I − γ P_πᵀ)^{-1} ρ`, summing to 1/(1−γ) where no state is terminal;
* features     `f = Fᵀ μ`, for the arrival reward `F = T_A`: how often, discounted, each state is entered;
* entropy      `Σ μ(s,a) (−log π(a|s))`, the causal entropy.

A terminal state takes no decision: its value, occupancy and entropy are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from multihorizon.checks import ROW_TOLERANCE, Bools, Floats, Sparse, as_discount, as_floats, as_non_negative, as_shape, first_few
from multihorizon.mdp import MDP
from multihorizon.planning.linear import policy_resolvent


@dataclass(frozen=True)
class Evaluation:
    """Values `(S,)` and action values `(S,A)` of a policy, and the residual of its Bellman equation."""

    values: Floats
    q: Floats
    residual: float


@dataclass(frozen=True)
class Occupancy:
    """Discounted decision counts `(S,A)`, their sums `(S,)`, and the residual of the flow equation."""

    counts: Floats
    residual: float

    @property
    def states(self) -> Floats:
        """`μ(s) = Σ_a μ(s,a)`."""
        sums: Floats = self.counts.sum(axis=1)
        return sums


def check_policy(mdp: MDP, policy: ArrayLike, name: str = "policy") -> Floats:
    """Read a policy `(S,A)`: rows sum to 1 and avoid unavailable actions; rows of terminal states are set uniform."""
    array = as_floats(policy, name).copy()
    as_shape(array, (mdp.n_states, mdp.n_actions), name)
    array[mdp.terminal] = 1 / mdp.n_actions
    if (array < 0).any():
        raise ValueError(f"{name} must not be negative, received {array.min():.6g} {_place(mdp, array < 0)}")
    barred = (array > 0) & ~mdp.available
    if barred.any():
        raise ValueError(f"{name} must not use unavailable actions, received {array[barred][0]:.6g} {_place(mdp, barred)}")
    sums = array.sum(axis=1)
    off = np.abs(sums - 1) > ROW_TOLERANCE
    if off.any():
        state = int(np.flatnonzero(off)[0])
        raise ValueError(
            f"{name} must sum to 1 in every state, received a sum of {sums[state]:.6g} in state {mdp.state_names[state]}"
        )
    rescaled: Floats = array / sums[:, None]
    return rescaled


def require_ending(mdp: MDP, policy: Floats | None, discount: float) -> None:
    """At discount 1, raise unless `policy` (None: any policy) can reach a terminal state from everywhere."""
    if discount < 1:
        return
    endless = mdp.never_ends(policy)
    if endless.any():
        states = first_few([mdp.state_names[i] for i in np.flatnonzero(endless)])
        raise ValueError(f"discount 1 needs a policy that ends from every state, received one that never ends from {states}")


def policy_entropy(policy: Floats) -> Floats:
    """Entropy `(S,)` of each row of a policy."""
    safe = np.where(policy > 0, policy, 1.0)
    entropy: Floats = -(policy * np.log(safe)).sum(axis=1)
    return entropy


def evaluate(mdp: MDP, policy: ArrayLike, reward: ArrayLike, discount: float, temperature: float = 0.0) -> Evaluation:
    """Values of one policy; with a temperature its entropy is rewarded, as in `soft_plan`.

    Example:
        >>> mdp = MDP([[[0, 1], [0, 0]]], terminal=[1])
        >>> evaluate(mdp, [[1.0], [1.0]], [0, 10], 0.9).values.tolist()
        [10.0, 0.0]
    """
    pi = check_policy(mdp, policy)
    gamma = as_discount(discount)
    require_ending(mdp, pi, gamma)
    expected = mdp.expected_reward(reward)
    bonus = np.where(mdp.terminal, 0.0, as_non_negative(temperature, "temperature") * policy_entropy(pi))
    immediate = (pi * expected).sum(axis=1) + bonus
    values = policy_resolvent(mdp, pi, gamma).solve(immediate)
    q = expected + gamma * mdp.expect(values)
    residual = float(np.abs((pi * q).sum(axis=1) + bonus - values).max())
    return Evaluation(values, q, residual)


def occupancy(mdp: MDP, policy: ArrayLike, discount: float) -> Occupancy:
    """Discounted state-action visitation counts of a policy from the initial distribution."""
    pi = check_policy(mdp, policy)
    gamma = as_discount(discount)
    require_ending(mdp, pi, gamma)
    resolvent = policy_resolvent(mdp, pi, gamma)
    visits = resolvent.solve(mdp.initial, transpose=True)
    residual = float(np.abs(mdp.initial + gamma * (resolvent.matrix.T @ visits) - visits).max())
    return Occupancy(np.where(mdp.terminal, 0.0, visits)[:, None] * pi, residual)


def feature_counts(mdp: MDP, policy: ArrayLike, discount: float, features: Floats | Sparse | None = None) -> Floats:
    """Discounted feature counts `Fᵀ μ` of a policy; without `features` `(A·S,d)`, how often each state is entered `(S,)`."""
    matrix = mdp.stacked if features is None else features
    return matrix.T @ occupancy(mdp, policy, discount).counts.T.ravel()


def causal_entropy(mdp: MDP, policy: ArrayLike, discount: float) -> float:
    """Discounted causal entropy `Σ μ(s,a) (−log π(a|s))` of a policy from the initial distribution."""
    return float(occupancy(mdp, policy, discount).states @ policy_entropy(check_policy(mdp, policy)))


def _place(mdp: MDP, mask: Bools) -> str:
    state, action = (int(i) for i in np.argwhere(mask)[0])
    return f"in state {mdp.state_names[state]} on action {mdp.action_names[action]}"
