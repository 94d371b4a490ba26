"""Starting points from concave problems: a logit for each expert, then one linear system for reward and discounts.

*First*, for each expert alone, the choices are a multinomial logit, `Q = M(s,a)ᵀ u`, concave in u, in which no discount occurs.
*Second*, `u_k = θ + γ_k v_k` with `v_k` the projection of `log Σ_a exp Q_k` is linear in (θ, Γ) with one θ for all: generalised
least squares, weighted by the information about u_k. Where steps end episodes for good, the arrivals that end them have
coefficients of their own, which are θ alone. The answer is biased, because v_k holds the error of u_k, but near.

The logits are also what the joint model is compared with: they fit anything that the basis can say about choices, so the joint
model's loss of likelihood against them tests one reward and one discount for each expert.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
from scipy.stats import qmc

from multihorizon.checks import Floats
from multihorizon.continuous.design import Decisions, Design
from multihorizon.continuous.information import project
from multihorizon.continuous.sieve_likelihood import SieveModel, SievePoint
from multihorizon.continuous.values import decision_values, soft_values

#: The logits' own penalty, and the gain below which their Newton steps end.
LOGIT_RIDGE, LOGIT_GAIN, LOGIT_STEPS = 0.03, 1e-3, 30
#: Discounts of a start stay inside these bounds. Other starts have all discounts at one of the levels, or are scattered.
START_BOUNDS, LEVELS, SCATTERED = (0.02, 0.97), (0.1, 0.5, 0.9), 8


@dataclass(frozen=True, eq=False)
class Logit:
    """One expert's choices without a plan: coefficients u, their information, the log-likelihood, and projected values."""

    coefficients: Floats
    information: Floats
    value: float
    values: Floats


def fit_logits(design: Design) -> list[Logit]:
    """The logit of each expert."""
    return [_fit(design, decisions) for decisions in design.decisions]


def coefficients_of(design: Design, logit: Logit) -> Floats:
    """The coefficients of Q `(A,p)` that a logit amounts to."""
    found: Floats = _loads(design) @ logit.coefficients
    return found


def starts(model: SieveModel, logits: list[Logit]) -> list[SievePoint]:
    """Points to climb from: first the solution of the linear system, then others by likelihood, at a few levels and scattered."""
    levels = [np.full(model.n_discounts, level) for level in LEVELS]
    scattered = START_BOUNDS[1] * qmc.Halton(model.n_discounts, rng=np.random.default_rng(0)).random(SCATTERED)
    solved = [_second_stage(model, logits, gammas) for gammas in (None, *levels, *scattered)]
    points = [model.at(model.pack(theta, gammas)) for theta, gammas in solved]
    others = sorted((point for point in points[1:] if point is not None), key=lambda point: -point.objective)
    found = others if points[0] is None else [points[0], *others]
    if not found:
        found = [
            point for point in (model.at(model.pack(np.zeros(model.n_reward), level)) for level in levels) if point is not None
        ]
    return found


def _fit(design: Design, decisions: Decisions) -> Logit:
    loads = _loads(design)
    u = np.zeros(loads.shape[2])
    value, gradient, information = _logit(decisions, loads, u)
    for _ in range(LOGIT_STEPS):
        curvature = information + LOGIT_RIDGE * np.eye(u.size)
        slope = gradient - LOGIT_RIDGE * u
        step = la.solve(curvature, slope, assume_a="pos")
        promised, scale = float(slope @ step), 1.0
        if promised < LOGIT_GAIN:
            break
        while True:
            trial = u + scale * step
            found = _logit(decisions, loads, trial)
            gain = found[0] - value - 0.5 * LOGIT_RIDGE * float(trial @ trial - u @ u)
            if gain > 0.1 * scale * promised or scale < 1e-6:
                break
            scale /= 2
        u, (value, gradient, information) = trial, found
    live = u[: design.functions]
    ended = u[design.functions :] if design.ends else live
    q = design.expected_on @ live + (design.expected_paid - design.expected_on) @ ended
    return Logit(u, information, value, design.projection @ soft_values(q, design.points_available, 1.0)[0])


def _loads(design: Design) -> Floats:
    """What u is multiplied with, `(A,p,q)`: arrivals that go on and, where there are any, arrivals that end the episode."""
    on, paid = design.stage.going_on, design.stage.paid
    return np.concatenate([on, paid - on], axis=2) if design.ends else on


def _logit(decisions: Decisions, loads: Floats, u: Floats) -> tuple[float, Floats, Floats]:
    """Log-likelihood, gradient and information of a logit at u."""
    log = soft_values(decision_values(decisions, loads @ u), decisions.available, 1.0)[1]
    policy = np.exp(log)
    value = float(log[decisions.action, np.arange(decisions.action.size)].sum())
    missed = [row.T @ y for row, y in zip(decisions.rows, decisions.counts - policy, strict=True)]
    gradient = np.einsum("apq,ap->q", loads, np.stack(missed), optimize=True)
    information = np.einsum("apq,apr->qr", loads, project(decisions, policy, loads), optimize=True)
    return value, gradient, information


def _second_stage(model: SieveModel, logits: list[Logit], gammas: Floats | None) -> tuple[Floats, Floats]:
    """θ and the discounts of each group by generalised least squares; θ alone where the discounts are given."""
    f, groups = model.n_reward, model.n_discounts
    size = f if gammas is not None else f + groups
    matrix, target = np.zeros((size, size)), np.zeros(size)
    for k, logit in enumerate(logits):
        q = logit.coefficients.size
        rows = np.zeros((q, size))
        rows[:, :f] = np.vstack([np.eye(f)] * (q // f))
        wanted = logit.coefficients.copy()
        if gammas is None:
            rows[:f, f + model.groups[k]] = logit.values
        else:
            wanted[:f] -= gammas[model.groups[k]] * logit.values
        matrix += rows.T @ logit.information @ rows
        target += rows.T @ logit.information @ wanted
    matrix[:f, :f] += model.rough_matrix[:f, :f] + LOGIT_RIDGE * np.eye(f)
    matrix[np.diag_indices_from(matrix)] += 1e-10 * np.diag(matrix).max()
    solved = la.solve(matrix, target, assume_a="sym")
    return solved[:f], np.clip(solved[f:], *START_BOUNDS) if gammas is None else gammas
