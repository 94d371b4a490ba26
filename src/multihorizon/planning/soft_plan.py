"""Entropy-regularised planning by Newton's method.

The soft Bellman operator is `(BV)(s) = λ log Σ_a exp(Q_V(s,a)/λ)`, `Q_V = R + γ T V`, over the actions available in s, and its
derivative is `γ P_π` with π the softmax policy of `Q_V`. Newton's step `V ← V + (I − γ P_π)^{-1} (BV − V)` is soft policy
iteration: from the second iterate on V rises monotonically to the solution, and the last steps converge quadratically, so a
handful of them do the work of hundreds of sweeps. The residual may rise on the way, the error cannot: the step is a
contraction toward the solution. It stops when the residual is rounding, or is near it and no longer falls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from multihorizon.checks import Floats, as_discount, as_positive
from multihorizon.mdp import MDP
from multihorizon.planning.evaluation import require_ending
from multihorizon.planning.linear import SingularError, policy_resolvent

#: Newton's method takes about ten steps on every problem we know.
MAX_NEWTON_STEPS = 100
#: The residual, relative to the largest value, below which nothing but rounding is left.
ROUNDED_RESIDUAL = 4 * np.finfo(np.float64).eps
#: The residual, relative to the largest value, below which a step that does not reduce it ends the iteration.
STALLED_RESIDUAL = 1e-9


@dataclass(frozen=True)
class SoftPlan:
    """The soft-optimal `policy` (S,A), `values` (S,) and `q` (S,A); `residual` is `max |BV − V|` recomputed from the answer."""

    policy: Floats
    values: Floats
    q: Floats
    residual: float
    iterations: int
    temperature: float

    @property
    def log_policy(self) -> Floats:
        """`log π(a|s)` without the underflow of taking the logarithm of a tiny probability; −inf where unavailable."""
        scaled = self.q / self.temperature
        peak = scaled.max(axis=1, keepdims=True)
        log: Floats = scaled - peak - np.log(np.exp(scaled - peak).sum(axis=1, keepdims=True))
        return log


def soft_plan(mdp: MDP, reward: ArrayLike, discount: float, temperature: float = 1.0, start: Floats | None = None) -> SoftPlan:
    """The optimal policy of `mdp` when entropy is rewarded with weight `temperature`.

    Args:
        mdp: the decision process.
        reward: `(S,)` paid on arrival, or expected immediate reward `(S,A)`.
        discount: in [0,1]; 1 is legal where a terminal state can be reached from everywhere and the soft value is finite.
        temperature: λ > 0.
        start: values `(S,)` to start from, such as those of a neighbouring problem.

    Raises:
        ValueError: on malformed input, or at discount 1 where the soft value is infinite.

    Example:
        >>> mdp = MDP([[[0, 1], [0, 0]], [[0, 1], [0, 0]]], terminal=[1])
        >>> soft_plan(mdp, [0, 10], 0.9).policy[0].tolist()
        [0.5, 0.5]
    """
    gamma, lam = as_discount(discount), as_positive(temperature, "temperature")
    expected = np.where(mdp.available, mdp.expected_reward(reward), -np.inf)
    require_ending(mdp, None, gamma)
    values = np.zeros(mdp.n_states) if start is None else np.where(mdp.terminal, 0.0, start)
    backed, q, policy = _backup(mdp, expected, values, gamma, lam)
    residual = float(np.abs(backed - values).max())
    for iterations in range(MAX_NEWTON_STEPS):  # noqa: B007
        if residual <= ROUNDED_RESIDUAL * max(1.0, float(np.abs(values).max())):
            break
        moved = values + _newton_step(mdp, policy, backed - values, gamma, residual)
        _require_finite(moved, gamma)
        candidate = _backup(mdp, expected, moved, gamma, lam)
        reached = float(np.abs(candidate[0] - moved).max())
        if not reached < residual and residual <= STALLED_RESIDUAL * max(1.0, float(np.abs(values).max())):
            break
        values, (backed, q, policy), residual = moved, candidate, reached
    else:
        _require_finite(np.full(1, np.inf), gamma)
    return SoftPlan(policy, values, q, residual, iterations, lam)


def _newton_step(mdp: MDP, policy: Floats, defect: Floats, gamma: float, residual: float) -> Floats:
    """`(I − γP_π)^{-1}(BV − V)`, solved no more exactly than the quadratic convergence of Newton's method can use."""
    tolerance = min(1e-2, max(1e-13, 1e-1 * residual))
    try:
        return policy_resolvent(mdp, policy, gamma).solve(defect, tolerance=tolerance)
    except SingularError:
        return np.full(mdp.n_states, np.inf)


def _backup(mdp: MDP, expected: Floats, values: Floats, gamma: float, lam: float) -> tuple[Floats, Floats, Floats]:
    """`BV`, the action values and the softmax policy; terminal states keep value 0 and a uniform row."""
    q = expected + gamma * mdp.expect(values)
    peak = q.max(axis=1)
    weights = np.exp((q - peak[:, None]) / lam)
    mass = weights.sum(axis=1)
    backed = np.where(mdp.terminal, 0.0, peak + lam * np.log(mass))
    return backed, q, weights / mass[:, None]


def _require_finite(values: Floats, gamma: float) -> None:
    if not np.isfinite(values).all() or np.abs(values).max() > 1e15:
        raise ValueError(
            f"the soft value at discount {gamma} is infinite or could not be reached in {MAX_NEWTON_STEPS} Newton steps: "
            "going on forever pays more than ending; lower the discount or the temperature"
        )
