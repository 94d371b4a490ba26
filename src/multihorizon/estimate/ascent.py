"""Preconditioners for products with the Fisher information: cheap inverses of something like it.

With one reward per state the scores of expert k are `J = D U / λ`, with D the transitions less their mean under the policy and
`U = (I − γP)^{-1}`, so that their information in the rewards is `Uᵀ G U` with the sparse `G = TᵀWT − PᵀNP`, W the weights
`n π/λ²` and N their sums `n/λ²`. The preconditioner has this form for all experts together: the sum of their G, and the U of the
one who looks farthest ahead, which is the largest. Its inverse `(I − γP) G^{-1} (I − γP)ᵀ` takes one sparse factorisation.

Other parameters, and rewards made of features, are divided by the diagonal.

The curvature of the objective, as a matrix or as products: what a climb needs to turn a gradient into a step.

With I the Fisher information, A the penalties' curvature and D the diagonal of `I + A` with a floor, a step solves
`(I + A + μD) δ = b` on the parameters that are free to move.

* `Dense`: the matrix itself, factorised. It costs a solve for each parameter at every new point, and the cube of their number.
* `Products`: conjugate gradients on products (`large.information_product`), each the cost of two gradients, whatever the number
  of parameters. It stops at `TOLERANCE`, because the next step corrects what this one leaves.

Maximising a likelihood inside bounds by damped Fisher scoring.

At x with gradient g and Fisher information I the step δ solves `(I + μD) δ = g` on the parameters that are free to move, D being
the diagonal of I with a floor: Levenberg and Marquardt's method with the curvature that a correct model has on average. Where I
is singular the damped step has no component in its null space, so directions about which the data say nothing stay where they
began. A discount that a step would carry past 0 or 1 is put on the bound and the others' step is computed again; one that rests
on a bound and is pushed outwards is held there. A step is taken when the objective rises by a fair share of what the quadratic
model promises, otherwise μ grows. Where less is promised than the last digits of the objective can show, a step is taken when it
leaves less to gain; otherwise the climb ends. The gradient is new at every point (one adjoint solve per expert); the information,
which costs a solve for each parameter, is computed again only when the steps it gives no longer shrink the gradient quickly.

Where reward and discount nearly trade off, the likelihood is a long bent ridge on which straight steps must be short. From step
`BENT` on each step therefore follows the bend to second order (the geodesic acceleration of Transtrum and Sethna, 2012): with
`f = log π` and its second derivative `f_δδ` along δ, by central differences, the step is `δ + a/2`, `(I + μD) a = −Σ nπ f_δδ df`.

With very many parameters nothing of size p×p is formed: the step comes from products with the information (`metric`).

It stops when half the squared length of the gradient in the metric of the information, the log-likelihood that a step still
promises, is below `GAIN`: a ten-millionth of what moves a confidence interval. Whether that is convergence is for the caller to
see from `projected_gradient`, recomputed at the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import Bools, Floats, Sparse
from multihorizon.choice.tabular import Persons, Plans, Point, information_product, is_large, quasi_newton
from multihorizon.parallel import Progress, silent

#: Added to the diagonal of G, relative to its mean: G does not see a constant added to all rewards, nor states out of reach.
LIFT = 1e-6


def inverse_of_states(point: Point) -> Callable[[Floats], Floats] | None:
    """The preconditioner of the rewards `(d,)` of one task with one reward per state; None for other problems."""
    model = point.likelihood
    if not model.problem.tabular or len({id(batch.mdp) for batch in point.batches}) != 1:
        return None
    pairs = [(batch, plan, i) for batch, plan in zip(point.batches, point.plans, strict=True) for i in range(plan.gamma.size)]
    gram = sum(_gram(*pair) for pair in pairs)
    lift = LIFT * float(gram.diagonal().mean()) + model.ridge
    options = {"SymmetricMode": True}
    try:
        factor = spla.splu(
            sp.csc_array(gram + sp.diags_array(lift)), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options
        )
    except RuntimeError:  # no weights at all
        return None
    batch, plan, i = max(pairs, key=lambda pair: float(pair[1].gamma[pair[2]]))
    forward = sp.csr_array(sp.eye_array(model.n_reward) - float(plan.gamma[i]) * _under(batch, plan, i))
    backward = sp.csr_array(forward.T)
    return lambda b: np.asarray(forward @ factor.solve(backward @ b))


def _under(batch: Persons, plan: Plans, i: int) -> Sparse:
    return batch.mdp.under(plan.policy[:, :, i].T)


def _gram(batch: Persons, plan: Plans, i: int) -> Sparse:
    """`TᵀWT − PᵀNP` of one person."""
    visits = batch.visits[:, i] / plan.lam[i] ** 2
    moves, under = batch.mdp.stacked, _under(batch, plan, i)
    weights = sp.diags_array((visits * plan.policy[:, :, i]).ravel())
    return sp.csr_array(moves.T @ weights @ moves - under.T @ sp.diags_array(visits) @ under)


#: D is at least this share of the largest diagonal entry, so that parameters without information do not make it singular.
FLOOR = 1e-10
#: The same for the diagonal that products use, which is known only roughly.
SMALLEST_SCALE = 1e-6
#: Relative residual at which conjugate gradients stop, and the most of them.
TOLERANCE, MOST_PRODUCTS = 1e-2, 400
#: With more damping than this D is as good a preconditioner as any.
LARGE_DAMPING = 0.1


class Metric(Protocol):
    """The curvature `(p,p)` of the objective at one point."""

    @property
    def scale(self) -> Floats:
        """D `(p,)`."""
        ...

    def times(self, v: Floats) -> Floats:
        """The curvature times a vector."""
        ...

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """δ `(p,)` with `(I + A + μD) δ = b` on the free parameters, and 0 elsewhere."""
        ...


def metric_of(point: Point) -> Metric:
    """The curvature at a point, in the form that suits the number of parameters."""
    return Products(point) if is_large(point.likelihood) else Dense(curvature(point))


def curvature(point: Point) -> Floats:
    """The Fisher information with the curvature of the penalties."""
    model = point.likelihood
    matrix = point.information.copy() if model.penalty is None else point.information + model.penalty.matrix
    d = model.n_reward
    matrix[np.arange(d), np.arange(d)] += model.ridge
    return matrix


class Dense:
    """The curvature as a matrix."""

    def __init__(self, matrix: Floats) -> None:
        self.matrix = matrix
        diagonal = np.diag(matrix)
        self.scale: Floats = np.maximum(diagonal, FLOOR * diagonal.max(initial=0.0))

    def times(self, v: Floats) -> Floats:
        """One product."""
        return self.matrix @ v

    def solve(self, b: Floats, free: Bools, damping: float) -> Floats:
        """By Cholesky's factors of the free block."""
        block = self.matrix[np.ix_(free, free)]
        block[np.diag_indices_from(block)] += damping * self.scale[free]
        found = np.zeros(b.size)
        found[free] = _solve(block, b[free])
        return found


class Products:
    """The curvature as products at one point."""

    def __init__(self, point: Point) -> None:
        self.point = point
        diagonal = _diagonal(point)
        self.scale: Floats = np.maximum(diagonal, SMALLEST_SCALE * diagonal.max(initial=0.0))
        self._rewards = inverse_of_states(point)
        self._solved: tuple[Floats, Floats] | None = None

    def times(self, v: Floats) -> Floats:
        """One forward and one adjoint solve for each expert."""
        model = self.point.likelihood
        product = information_product(self.point, v)
        product[: model.n_reward] += model.ridge * v[: model.n_reward]
        return product if model.penalty is None else product + model.penalty.matrix @ v

    def solve(self, b: Floats, free: Bools, damping: float, tolerance: float = TOLERANCE) -> Floats:
        """By preconditioned conjugate gradients, begun at the last solution for the same b."""
        inside = np.where(free, b, 0.0)
        target = tolerance**2 * float(inside @ self._preconditioned(inside, free, damping))
        x, left = np.zeros(b.size), inside
        if self._solved is not None and self._solved[0] is b:
            x = np.where(free, self._solved[1], 0.0)
            left = np.where(free, b - self._damped(x, damping), 0.0)
        direction, last = np.zeros(b.size), 1.0
        for _ in range(MOST_PRODUCTS):
            moved = self._preconditioned(left, free, damping)
            size = float(left @ moved)
            if size <= target:
                break
            direction = moved + (size / last) * direction
            along = self._damped(direction, damping)
            curved = float(direction @ along)
            if curved <= 0:
                break
            x = x + (size / curved) * direction
            left = left - (size / curved) * np.where(free, along, 0.0)
            last = size
        self._solved = (b, x)
        return x

    def _preconditioned(self, v: Floats, free: Bools, damping: float) -> Floats:
        """A rough inverse times a vector that is 0 outside the free parameters."""
        rough = v / ((1 + damping) * self.scale)
        if self._rewards is not None and damping < LARGE_DAMPING:
            d = self.point.likelihood.n_reward
            rough[:d] = self._rewards(v[:d])
        return np.where(free, rough, 0.0)

    def _damped(self, v: Floats, damping: float) -> Floats:
        product: Floats = self.times(v) + damping * self.scale * v
        return product


def _diagonal(point: Point) -> Floats:
    """The diagonal of the curvature: in the rewards without what they do to later decisions, which is enough to scale them."""
    model = point.likelihood
    total = np.zeros(model.size)
    total[model.transition_slice] = point.move_information
    for i, (batch, plan) in enumerate(zip(point.batches, point.plans, strict=True)):
        weights = (point.weights[i] / plan.lam**2).reshape(-1, batch.owners.size)
        total[: model.n_reward] += batch.features.matrix.power(2).T @ weights.sum(axis=1)
        if (found := model.moves_of(batch)) is not None:
            total[found[1]] += (weights[found[0].rows] * point.worth_of_moves[i] ** 2).sum(axis=1)
    total[: model.n_reward] += model.ridge
    for k in range(model.n_reward, model.transition_slice.start):
        if not model.fixed[k]:
            total[k] = information_product(point, np.eye(1, model.size, k).ravel())[k]
    return total if model.penalty is None else total + model.penalty.matrix.diagonal()


def _solve(matrix: Floats, b: Floats) -> Floats:
    """Solve a positive definite system; rounding can make a nearly singular one indefinite, and then it is shifted."""
    if not b.size or not matrix.any():
        return np.zeros(b.size)
    shift = 0.0
    for _ in range(20):
        try:
            factor = la.cho_factor(matrix + shift * np.eye(b.size), check_finite=False)
        except la.LinAlgError:
            shift = max(10 * shift, 1e-14 * float(np.diag(matrix).max()))
            continue
        solution: Floats = la.cho_solve(factor, b, check_finite=False)
        return solution
    raise ValueError("the Fisher information must be finite, received a matrix that cannot be factorised")


GAIN = 1e-7
MAX_STEPS = 300
#: Damping relative to D: the first, the least, and the most; a climb that needs more than the most ends.
FIRST_DAMPING, LEAST_DAMPING, MOST_DAMPING = 1e-3, 1e-8, 1e12
#: Gains below this share of the objective are lost in its rounding.
LOST_GAIN = 1e-14
#: The information is kept while each step leaves no more than this share of the promised gain.
SHRINK = 0.05
#: From this step on the bend of the ridge is followed; easy problems are solved before.
BENT = 6
#: The part of a step by which second derivatives are differenced, and the longest acceleration relative to the step.
DIFFERENCE, MOST_BEND = 0.1, 1.5


@dataclass(frozen=True, eq=False)
class Ascent:
    """Where a climb ended, how many steps it took, whether it stopped because nothing was left, and the last curvature."""

    point: Point
    steps: int
    finished: bool
    metric: Metric | None


def climb(
    start: Point,
    fixed: Bools | None = None,
    max_steps: int = MAX_STEPS,
    gain: float = GAIN,
    metric: Metric | None = None,
    progress: Progress = silent,
) -> Ascent:
    """Climb from `start` to a local maximum of the objective.

    Args:
        start: where to begin.
        fixed: mask of parameters that stay as they are.
        max_steps: steps after which the climb is broken off.
        gain: stop when less than this is promised.
        progress: told of the steps where there are very many parameters, and each takes long.
        metric: curvature at a neighbouring maximum, with which to begin; without it, the stop is confirmed by a new one.
    """
    held = start.likelihood.fixed if fixed is None else start.likelihood.fixed | fixed
    start = start.without_derivatives()  # the caller may keep many starts
    if is_large(start.likelihood) and not start.likelihood.has_products:
        return Ascent(*quasi_newton(start, held, max_steps, progress), None)
    point, damping, last = start, FIRST_DAMPING if metric is None else LEAST_DAMPING, np.inf
    confirm, fresh = metric is None, metric is None
    metric = metric or metric_of(start)
    for steps in range(max_steps):
        free = ~held & ~resting(point)
        promised = _left_to_gain(point, metric, free)
        if not fresh and (promised > SHRINK * last or (confirm and promised < gain)):
            metric, fresh = metric_of(point), True
            promised = _left_to_gain(point, metric, free)
        if promised < gain:
            return Ascent(point.without_derivatives(), steps, True, metric)
        reached, damping = _advance(point, metric, free, damping, steps >= BENT)
        if reached is None and not fresh:
            metric, fresh, damping = metric_of(point), True, FIRST_DAMPING
            reached, damping = _advance(point, metric, free, damping, steps >= BENT)
        if reached is None:
            return Ascent(point.without_derivatives(), steps, False, metric)
        point, last, fresh = reached, promised, False
        progress((steps + 1) / max_steps, f"step {steps + 1}: log-likelihood {point.value:.2f}")
    return Ascent(point.without_derivatives(), max_steps, False, metric)


def resting(point: Point) -> Bools:
    """Parameters on a bound which the gradient pushes outwards."""
    low, high, g = point.likelihood.lower, point.likelihood.upper, point.gradient
    mask: Bools = ((point.x <= low) & (g <= 0)) | ((point.x >= high) & (g >= 0))
    return mask


def projected_gradient(point: Point) -> float:
    """The largest entry of the gradient per decision, leaving out parameters that are known or rest on a bound.

    Weights of features larger than 1 are measured in the units that make their feature at most 1.
    """
    model = point.likelihood
    scaled = point.gradient.copy()
    scaled[: model.n_reward] /= np.maximum(1.0, model.feature_sizes)
    return float(np.abs(scaled[~resting(point) & ~model.fixed]).max(initial=0.0)) / model.decisions


def _advance(point: Point, metric: Metric, free: Bools, damping: float, bend: bool) -> tuple[Point | None, float]:
    """The next point, with as much damping as it takes, or None; and the damping to go on with."""
    model = point.likelihood
    while damping < MOST_DAMPING:
        step = _step(point, metric, free, damping)
        promised = float(point.gradient @ step - 0.5 * step @ metric.times(step))
        curve = _bend(point, metric, free, damping, step) if bend and promised > 0 else 0.0
        reached = model.at(np.clip(point.x + step + curve, model.lower, model.upper), point) if promised > 0 else None
        if reached is not None and promised < LOST_GAIN * abs(point.objective):
            better = _left_to_gain(reached, metric, free & ~resting(reached)) < _left_to_gain(point, metric, free)
            return (reached, max(0.1 * damping, LEAST_DAMPING)) if better else (None, damping)
        gained = -np.inf if reached is None else reached.objective - point.objective
        if gained > 1e-3 * promised:
            factor = 0.1 if gained > 0.7 * promised else (1.0 if gained > 0.25 * promised else 4.0)
            return reached, max(damping * factor, LEAST_DAMPING)
        damping = max(damping * 8, FIRST_DAMPING / 8)
    return None, damping


def _bend(point: Point, metric: Metric, free: Bools, damping: float, step: Floats) -> Floats:
    """Half the acceleration that keeps a step on a bent ridge; 0 where it is too large to be trusted or cannot be had."""
    model, none = point.likelihood, np.zeros(step.size)
    ahead, behind = (model.at(np.clip(point.x + sign * DIFFERENCE * step, model.lower, model.upper), point) for sign in (1, -1))
    if ahead is None or behind is None:
        return none
    second = [
        weights * (a.finite_log - 2 * here.finite_log + b.finite_log) / DIFFERENCE**2
        for weights, here, a, b in zip(point.weights, point.plans, ahead.plans, behind.plans, strict=True)
    ]
    curve = -0.5 * metric.solve(point.pull_back(second), free, damping)
    scale = metric.scale
    return curve if curve @ (scale * curve) <= (0.5 * MOST_BEND) ** 2 * (step @ (scale * step)) else none


def _left_to_gain(point: Point, metric: Metric, free: Bools) -> float:
    """`½ gᵀ I^{-1} g` on the free parameters."""
    return 0.5 * float(point.gradient @ metric.solve(point.gradient, free, LEAST_DAMPING))


def _step(point: Point, metric: Metric, free: Bools, damping: float) -> Floats:
    """The damped step on the free parameters; those that would leave the bounds go to the bound, and the rest follow."""
    model, x = point.likelihood, point.x
    step, moving = metric.solve(point.gradient, free, damping), free.copy()
    for _ in range(model.n_discounts + model.n_temperatures):
        out = moving & ((x + step < model.lower) | (x + step > model.upper))
        if not out.any():
            break
        moving &= ~out
        step = np.where(moving, 0.0, np.clip(x + step, model.lower, model.upper) - x)
        step += metric.solve(point.gradient - metric.times(step), moving, damping)
    return step
