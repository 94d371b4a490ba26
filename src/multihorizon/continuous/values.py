"""The plan of one expert: projected soft values, solved by Newton's method.

With `w_paid = θ`, `Q(z,a) = E[φ|z,a]ᵀθ + γ E[φ 1(goes on)|z,a]ᵀ v` and `V(z) = λ log Σ_a exp(Q(z,a)/λ)` at the value points z,
the coefficients v solve `v = H V`, H the least-squares projection on the basis. The derivative of the right-hand side is `γ H
Σ_a π_a E_a`, so a Newton step is one dense solve of the size of the basis. It ends when the equation holds to `TOLERANCE` of
the values; it is given up after `MOST_STEPS`, and where a value is not finite.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg as la

from multihorizon.checks import Bools, Floats
from multihorizon.continuous.design import Decisions, Design
from multihorizon.likelihood.persons import Choices

TOLERANCE, MOST_STEPS = 1e-11, 60


@dataclass(frozen=True, eq=False)
class SampledPlan(Choices):
    """One expert's plan: coefficients v of the values, choices at the points and at the decisions, and the resolvent.

    `coefficients` `(A,p)` are those of Q in X_a; `log` `(A,n)` are log-probabilities at the decisions, `-inf` where an action is
    not available; `resolvent` is the factorised `I − γ H Σ_a π_a E_a`.
    """

    values: Floats
    gamma: float
    lam: float
    coefficients: Floats
    point_log: Floats
    log: Floats
    resolvent: Any

    @cached_property
    def point_policy(self) -> Floats:
        """The probability of each action at the value points, `(A,m)`."""
        return np.exp(self.point_log)

    @cached_property
    def point_entropy(self) -> Floats:
        """The entropy of the choice at each value point, `(m,)`."""
        total: Floats = -(self.point_policy * np.where(np.isfinite(self.point_log), self.point_log, 0.0)).sum(axis=0)
        return total


def soft_values(q: Floats, available: Bools, lam: float) -> tuple[Floats, Floats]:
    """V `(m,)` and log π `(A,m)` of action values `(A,m)`."""
    allowed = np.where(available, q / lam, -np.inf)
    top = allowed.max(axis=0)
    total = top + np.log(np.exp(allowed - top).sum(axis=0))
    return lam * total, allowed - total


def plan_expert(
    design: Design, decisions: Decisions, theta: Floats, gamma: float, lam: float, start: Floats | None
) -> SampledPlan | None:
    """The plan for a reward θ, a discount and a temperature; None where no finite values solve the equation."""
    v = np.zeros(design.functions) if start is None else start
    earned = design.expected_paid @ theta
    change = np.inf
    for _ in range(MOST_STEPS):
        total, log = soft_values(earned + gamma * (design.expected_on @ v), design.points_available, lam)
        target = design.projection @ total
        average = _average(np.exp(log), design.expected_on)
        resolvent = la.lu_factor(np.eye(v.size) - gamma * (design.projection @ average), check_finite=False)
        change = float(np.abs(target - v).max())
        if not np.isfinite(change):
            return None
        if change <= TOLERANCE * (1 + np.abs(v).max()):
            coefficients = design.stage.paid @ theta + gamma * (design.stage.going_on @ v)
            q = decision_values(decisions, coefficients)
            return SampledPlan(v, gamma, lam, coefficients, log, soft_values(q, decisions.available, lam)[1], resolvent)
        v = v + la.lu_solve(resolvent, target - v, check_finite=False)
    return None


def decision_values(decisions: Decisions, coefficients: Floats) -> Floats:
    """Q `(A,n)` at the decisions from its coefficients `(A,p)`."""
    return np.stack([row @ c for row, c in zip(decisions.rows, coefficients, strict=True)])


def predicted_scores(decisions: Decisions, coefficients: Floats, lam: float) -> Floats:
    """The log-probability `(n,)` of decisions that the first stage has not seen, from the coefficients `(A,p)` of Q.

    Where it is not known what an action leads to, nothing is predicted of it, and its probability is that of pure chance. The
    other actions share the rest. Otherwise a basis would seem to predict the better, the more actions it rules out.
    """
    log = soft_values(decision_values(decisions, coefficients), decisions.available, lam)[1]
    taken = log[decisions.action, np.arange(decisions.action.size)]
    rest: Floats = decisions.available.sum(axis=0) / len(log)
    scores: Floats = np.where(decisions.foreseen, taken + np.log(rest), -np.log(len(log)))
    return scores


def _average(policy: Floats, expected: Floats) -> Floats:
    """`Σ_a π_a(z) E[…|z,a]` `(m,f)`."""
    total: Floats = policy[0][:, None] * expected[0]
    for p, e in zip(policy[1:], expected[1:], strict=True):
        total += p[:, None] * e
    return total


def value_slopes(design: Design, plan: SampledPlan) -> Floats:
    """The derivatives `(f,f+2)` of v by θ, by γ, and by log λ."""
    paid = _average(plan.point_policy, design.expected_paid)
    on = paid if not design.ends else _average(plan.point_policy, design.expected_on)
    loads = np.column_stack([paid, on @ plan.values, plan.lam * plan.point_entropy])
    slopes: Floats = la.lu_solve(plan.resolvent, design.projection @ loads, check_finite=False)
    return slopes


def coefficient_slopes(design: Design, plan: SampledPlan) -> Floats:
    """The derivatives `(A,p,f+2)` of the coefficients of Q by θ, γ and log λ."""
    slopes = plan.gamma * (design.stage.going_on @ value_slopes(design, plan))
    slopes[:, :, : design.functions] += design.stage.paid
    slopes[:, :, design.functions] += design.stage.going_on @ plan.values
    return slopes


def pull_back_values(design: Design, plan: SampledPlan, loads: Floats) -> tuple[Floats, float, float, Floats]:
    """What weights `(f,)` on v amount to on θ `(f,)`, γ and log λ, and on V at the value points `(m,)`."""
    onto_points: Floats = design.projection.T @ la.lu_solve(plan.resolvent, loads, trans=1, check_finite=False)
    weighted = plan.point_policy * onto_points
    theta = np.einsum("am,amf->f", weighted, design.expected_paid, optimize=True)
    on = theta if not design.ends else np.einsum("am,amf->f", weighted, design.expected_on, optimize=True)
    return theta, float(on @ plan.values), float(plan.lam * (onto_points @ plan.point_entropy)), onto_points
