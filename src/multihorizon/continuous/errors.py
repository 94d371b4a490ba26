"""Standard errors that carry the first stage.

Expert k's plan rests on predictions of `y_k(s') = φ(s')ᵀθ + γ_k φ(s')ᵀv_k 1(s' goes on)`. A logged step i with action a misses
its prediction by `e_ki = y_k(s'_i) − ψ(s_i) (C_a θ + γ_k E_a v_k)`, and so moves the coefficients of Q by `L_a ψ(s_i)ᵀ e_ki`, L
the linear map of `smoothing.System`, and v_k with them. With `B_k` the derivative of the score of x by those coefficients, in
its expected form and with the plan's response,

    x̂ − x ≈ C [ Σ decisions score − Σ_i h_i ],   h_i = Σ_k B_k L_a ψ(s_i)ᵀ e_ki,

C the inverse information. So the covariance is `C + C (Σ_episodes h hᵀ) C`, h summed over the steps of an episode: steps of one
episode may depend on each other. The first term is the second stage's own, the second what learning the dynamics adds.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from multihorizon.checks import Floats
from multihorizon.continuous.outcomes import LeastSquares
from multihorizon.continuous.sieve_likelihood import SieveModel, SievePoint
from multihorizon.continuous.values import SampledPlan, coefficient_slopes
from multihorizon.likelihood.metric import curvature
from multihorizon.likelihood.precision import NULL_COMPONENT, Precision
from multihorizon.tolerances import INFORMATION_RANK_TOLERANCE


def sieve_precision(point: SievePoint) -> tuple[Precision, Floats]:
    """What is identified, with standard errors, and the full covariance `(p,p)`; NaN errors where the first stage has none."""
    model = point.likelihood
    free = np.flatnonzero(~model.fixed)
    bare = curvature(point) - model.rough_matrix
    scale = np.sqrt(np.maximum(np.diag(bare)[free], 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    spectrum, vectors = np.linalg.eigh(bare[np.ix_(free, free)] / np.outer(scale, scale))
    null = spectrum <= INFORMATION_RANK_TOLERANCE * spectrum[-1]
    identified = np.ones(model.size, dtype=np.bool_)
    identified[free] = np.linalg.norm(vectors[:, null], axis=1) <= NULL_COMPONENT
    own = np.zeros((model.size, model.size))
    own[np.ix_(free, free)] = _inverse(curvature(point)[np.ix_(free, free)])
    variance = np.diag(own).copy()
    added = first_stage_scores(point)
    full = own if added is None else own + (own @ added) @ (own @ added).T
    ratio = np.sqrt(np.diag(full) / np.where(variance > 0, variance, np.inf))
    widening = np.full(model.size, np.nan) if added is None else np.where(variance > 0, ratio, 1.0)
    null_space = np.zeros((model.size, int(null.sum())))
    null_space[free] = vectors[:, null] / scale[:, None]
    return Precision(variance, identified, spectrum, own, null_space, widening), full


def _inverse(matrix: Floats) -> Floats:
    """The inverse on the directions that the matrix determines."""
    scale = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    kept = values > INFORMATION_RANK_TOLERANCE * values[-1]
    found: Floats = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T / np.outer(scale, scale)
    return found


def first_stage_scores(point: SievePoint) -> Floats | None:
    """How each episode's errors of prediction move the score of x, `(p,episodes)`; None where another regressor was used."""
    model, design = point.likelihood, point.likelihood.design
    stage = design.stage
    if not isinstance(stage, LeastSquares):
        return None
    steps = model.problem.steps.select(model.problem.steps.known_next)
    features, after = stage.smoothing.inputs(steps.states), design.basis(steps.next_states)
    total = np.zeros((len(steps), model.size))
    for k, plan in enumerate(point.plans):
        future = plan.gamma * (after @ plan.values) * ~steps.terminated
        missed = after @ model.reward(point.x) + future
        moved = stage.equations.solve(_score_by_coefficients(point, k))
        for action in range(len(steps.actions)):
            rows = np.flatnonzero(steps.action == action)
            own = features[rows]
            error = missed[rows] - own @ plan.coefficients[action]
            total[np.ix_(rows, model.places(k))] += error[:, None] * (own @ moved[action])
    episode = steps.episode_numbers
    sums = sp.csr_array((np.ones(episode.size), (episode, np.arange(episode.size))))
    found: Floats = (sums @ total).T
    return found


def _score_by_coefficients(point: SievePoint, k: int) -> Floats:
    """`Σ π dlogπ/dx dlogπ/dc` `(A,p,q)`: how the score of x moves with the coefficients of Q, the values following them."""
    model, design = point.likelihood, point.likelihood.design
    plan = point.plans[k]
    moved = point.loads(k, coefficient_slopes(design, plan) / plan.lam) / plan.lam
    on_values = plan.gamma * np.einsum("apq,apf->fq", moved, design.stage.going_on, optimize=True)
    return moved + _through_values(model, plan, on_values)


def _through_values(model: SieveModel, plan: SampledPlan, on_values: Floats) -> Floats:
    """What weights `(f,q)` on v amount to on the coefficients of Q at the value points, `(A,p,q)`."""
    design = model.design
    points = design.projection.T @ la.lu_solve(plan.resolvent, on_values, trans=1, check_finite=False)
    return np.stack([row.T @ (p[:, None] * points) for row, p in zip(design.point_rows, plan.point_policy, strict=True)])
