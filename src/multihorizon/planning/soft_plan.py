"""Entropy-regularised planning by Newton's method.

The soft Bellman operator is `(BV)(s) = λ log Σ_a exp(Q_V(s,a)/λ)`, `Q_V = R + γ T V`, over the actions available in s, and its
derivative is `γ P_π` with π the softmax policy of `Q_V`. Newton's step `V ← V + (I − γ P_π)^{-1} (BV − V)` is soft policy
iteration: from the second iterate on V rises monotonically to the solution, and the last steps converge quadratically, so a
handful of them do the work of hundreds of sweeps. The residual may rise on the way, the error cannot: the step is a
contraction toward the solution. It stops when the residual is rounding, or is near it and no longer falls.

On more than a few states a few sweeps `V ← BV` come first, which cost less than a step and bring it near. `P_π` is kept from step
to step while each leaves less than 3 % of the residual, and a step is solved to a few digits only: all steps together then
take hardly more products than one exact solve. `benchmarks/soft_planning.py` compares with sweeps alone.

**Other weights of the future.** A person weighs what happens t steps from now by d(t), d(1) = 1, and plans today for today's
weights: tomorrow's self may want another plan, and the person does not expect that (the *naive* person). They maximise
`E Σ_t d(t) [R_t + λ H_t]`, R the expected immediate reward `(A·S,)`, λ the temperature and H the entropy of the choice. With the
step discounts `ρ_t = d(t+1)/d(t)` and V_t the value of a state t steps from now, in units of that step's weight,

    Q_t = R + ρ_{t+1} T V_{t+1},    V_t(s) = λ log Σ_a exp(Q_t(s,a)/λ),    log π(a|s) = (Q_0(s,a) − V_0(s))/λ.

After H steps, the most that the task allows, nothing is left and V_H = 0. With ρ_t = γ for all t, V_t is the soft value at
discount γ in every state from which the task ends in H − t steps, and π is the policy of `soft_plan`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from multihorizon.checks import Floats, as_discount, as_positive
from multihorizon.mdp import MDP
from multihorizon.planning.evaluation import require_ending
from multihorizon.planning.linear import DENSE_STATES, Resolvent, SingularError, policy_resolvent
from multihorizon.planning.plan import Actions

#: Newton's method takes about ten steps on every problem we know.
MAX_NEWTON_STEPS = 100
#: The residual, relative to the largest value, below which nothing but rounding is left.
ROUNDED_RESIDUAL = 4 * np.finfo(np.float64).eps
#: The residual, relative to the largest value, below which a step that does not reduce it ends the iteration.
STALLED_RESIDUAL = 1e-9
#: Values beyond this without discounting are infinite: going on forever pays.
INFINITE = 1e15


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
        return log_policies(self.q.T, self.temperature)[0].T


def soft_plan(
    mdp: MDP,
    reward: ArrayLike,
    discount: float,
    temperature: float = 1.0,
    start: Floats | None = None,
    resolvent: Resolvent | None = None,
) -> SoftPlan:
    """The optimal policy of `mdp` when entropy is rewarded with weight `temperature`.

    Args:
        mdp: the decision process.
        reward: `(S,)` paid on arrival, or expected immediate reward `(S,A)`.
        discount: in [0,1]; 1 is legal where a terminal state can be reached from everywhere and the soft value is finite.
        temperature: λ > 0.
        start: values `(S,)` to start from, such as those of a neighbouring problem.
        resolvent: solves with `I − γP` of that neighbour's policy, for the first step; by default they are made.

    Raises:
        ValueError: on malformed input, where the soft value is infinite (at discount 1), or where it could not be reached.

    Example:
        >>> mdp = MDP([[[0, 1], [0, 0]], [[0, 1], [0, 0]]], terminal=[1])
        >>> soft_plan(mdp, [0, 10], 0.9).policy[0].tolist()
        [0.5, 0.5]
    """
    gamma, lam = as_discount(discount), as_positive(temperature, "temperature")
    table = Actions(mdp, np.where(mdp.available, mdp.expected_reward(reward), -np.inf))
    require_ending(mdp, None, gamma)
    values = np.zeros(mdp.n_states) if start is None else np.where(mdp.terminal, 0.0, start)
    for _ in range(25 if start is None and gamma < 1 and mdp.n_states > DENSE_STATES else 0):
        before, values = values, _backup(table, values, gamma, lam).values
        if float(np.abs(values - before).max()) <= 3e-3 * float(np.abs(values).max()):
            break
    here = _backup(table, values, gamma, lam)
    residual = float(np.abs(here.values - values).max())
    for iterations in range(MAX_NEWTON_STEPS):  # noqa: B007
        if residual <= ROUNDED_RESIDUAL * max(1.0, float(np.abs(values).max())):
            break
        resolvent = resolvent or policy_resolvent(mdp, here.policy, gamma)
        moved = values + _newton_step(resolvent, here.values - values, residual / max(1.0, float(np.abs(values).max())))
        if not np.abs(moved).max() < (INFINITE if gamma == 1 else np.inf):
            _refuse(gamma)
        there = _backup(table, moved, gamma, lam)
        reached = float(np.abs(there.values - moved).max())
        if not reached < residual and residual <= STALLED_RESIDUAL * max(1.0, float(np.abs(values).max())):
            break
        resolvent = resolvent if reached < 0.03 * residual else None
        values, here, residual = moved, there, reached
    else:
        _refuse(gamma)
    return SoftPlan(here.policy, values, here.q.T, residual, iterations, lam)


def _newton_step(resolvent: Resolvent, defect: Floats, relative: float) -> Floats:
    """`(I − γP_π)^{-1}(BV − V)`, solved no more exactly than the next step can use: to two to four digits."""
    try:
        return resolvent.solve(defect, tolerance=min(1e-2, max(1e-4, relative)))
    except SingularError:
        return np.full(defect.size, np.inf)


class _Backup(NamedTuple):
    """`BV` `(S,)`, the action values and their exponentials `(A,S)`, and the sums `(S,)` of these over the actions."""

    values: Floats
    q: Floats
    weights: Floats
    mass: Floats

    @property
    def policy(self) -> Floats:
        """The softmax policy `(S,A)`; uniform at terminal states."""
        return (self.weights / self.mass).T


def _backup(table: Actions, values: Floats, gamma: float, lam: float) -> _Backup:
    """One application of B. Unlike `log_policies` it needs no logarithms of the policy, and saves a pass over the actions."""
    q = table.q(values, gamma)
    peak = q.max(axis=0)
    weights = q - peak
    weights /= lam
    np.exp(weights, out=weights)
    mass = weights.sum(axis=0)
    backed = peak + lam * np.log(mass)
    backed[table.mdp.terminal] = 0.0
    return _Backup(backed, q, weights, mass)


def _refuse(gamma: float) -> NoReturn:
    reason = (
        "going on forever pays more than ending; lower the discount or the temperature"
        if gamma == 1
        else "check the sizes of rewards and temperature"
    )
    raise ValueError(
        f"the soft value at discount {gamma} is infinite or could not be reached in {MAX_NEWTON_STEPS} Newton steps: {reason}"
    )


def weighted_plan(mdp: MDP, reward: Floats, step_discounts: Floats, temperatures: Floats) -> tuple[Floats, Floats]:
    """The values `(H+1,S,n)` of states 0, …, H steps from now, and the logarithms `(H,A,S,n)` of the choices planned for them.

    Args:
        mdp: a task of at most H steps.
        reward: the expected immediate reward `(A·S,)` of rows a·S + s.
        step_discounts: ρ `(H−1,n)`.
        temperatures: λ `(n,)`.
    """
    a, s, n = mdp.n_actions, mdp.n_states, temperatures.size
    steps = len(step_discounts) + 1
    now = np.where(mdp.available.T.ravel(), reward, -np.inf).reshape(a, s, 1)
    values, log = np.zeros((steps + 1, s, n)), np.empty((steps, a, s, n))
    for t in reversed(range(steps)):
        q = now if t == steps - 1 else now + step_discounts[t] * (mdp.stacked @ values[t + 1]).reshape(a, s, n)
        log[t], found = log_policies(q, temperatures)
        values[t] = np.where(mdp.terminal[:, None], 0.0, found)
    return values, log


def log_policies(q: Floats, temperatures: Floats | float) -> tuple[Floats, Floats]:
    """`log π` of action values `(A,S)` or `(A,S,n)`, −inf where an action is unavailable, and `λ log Σ_a exp(Q/λ)`."""
    scaled = q / temperatures
    peak = scaled.max(axis=0)
    shifted = scaled - peak
    total = np.log(np.exp(shifted).sum(axis=0))
    return shifted - total, temperatures * (peak + total)
