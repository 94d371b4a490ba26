"""The most likely population: Newton's method on the marginal likelihood, with nodes that follow each person.

*Persons.* Nodes start around the mode of each person's η given the decisions. Newton's method finds it for all persons at once,
from the best of nine points. After that they follow the mean and covariance that the quadrature itself gives.

*Information.* By Louis (1982) the information about ψ is that of complete data less what is lost because η is not seen:

    J = E[−∂² log p(decisions, η)] − Var(∂ log p(decisions, η)),     both given the decisions.

In b, c and L it is had by differences of the exact gradient, which costs no planning. In θ the first term is the Fisher
information, averaged over three nodes per dimension, and the second comes from the scores at the nodes.

*Steps.* A step solves `J δ = g` in the directions of which J says something, is shortened until nodes that were placed for the
last ψ still hold, and halved until the objective rises. Then the nodes are placed anew, up to `PLACEMENTS` times. A round with
few nodes comes first. The search ends when `√(gᵀJ⁻¹g)`, the distance to the maximum in standard errors, is below `STOP`. Up to
`CLOSE` the answer counts as the maximum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from multihorizon.checks import Floats
from multihorizon.likelihood.likelihood import Likelihood
from multihorizon.likelihood.marginal import (
    Layout,
    Marginal,
    Persons,
    Value,
    adapted_nodes,
    own_precision,
    person_scores,
    person_values,
    plan_at,
    standard_nodes,
)
from multihorizon.progress import Progress, part_of, silent

#: The distance to the maximum, in standard errors, at which the search ends, the steps after which it is given up, and the
#: distance that still counts as the maximum.
STOP, MAX_STEPS, CLOSE = 1e-6, 60, 2e-3
#: After so many steps the nodes stay where they are: moving them would change the integrals more than a step does.
PLACEMENTS = 15
#: Where the first round ends, after how many steps it is given up, and its nodes.
FIRST_STOP, FIRST_STEPS, FIRST_NODES = 0.1, 15, 7
#: Nodes over which the Fisher information is averaged.
INFORMATION_NODES = 3
#: Directions of J, scaled to a unit diagonal, with an eigenvalue below this share of the largest are left alone.
FLAT_DIRECTION = 1e-7
#: The longest step of the means, in standard deviations between persons, and of the logarithms of these.
LONGEST_MEAN, LONGEST_LOG_SPREAD = 1.0, 0.7
#: Differences are taken over this share of a standard error.
DIFFERENCE = 1e-2
#: Newton steps towards each person's mode, the step of their differences, and the least curvature in standard units of the prior.
MODE_STEPS, MODE_DIFFERENCE, LEAST_CURVATURE = 40, 1e-4, 0.2


@dataclass(frozen=True, eq=False)
class Maximum:
    """Where the search ended: ψ, the value and the nodes there, J, the distance to the maximum, and the number of steps."""

    psi: Floats
    value: Value
    marginal: Marginal
    information: Floats
    persons: Persons
    distance: float
    steps: int

    @property
    def finished(self) -> bool:
        """Whether nothing is left to gain."""
        return self.distance <= CLOSE


def maximise(layout: Layout, psi: Floats, persons: Persons, nodes: int, largest: float, progress: Progress = silent) -> Maximum:
    """Climb from ψ, first with few nodes; `persons` are the first places of the nodes."""
    near = _climb(layout, psi, persons, min(nodes, FIRST_NODES), largest, FIRST_STOP, FIRST_STEPS, part_of(progress, 0.0, 0.5))
    return _climb(layout, near.psi, near.persons, nodes, largest, STOP, MAX_STEPS, part_of(progress, 0.5, 1.0))


def maximum_at(start: Maximum, j: int, value: float, along: Floats) -> Maximum:
    """The maximum where ψ_j has this value, from one near by; `along` `(size,)` is how the others move with ψ_j.

    Nodes are few. They move as far as the prior moves each person's mean, and what decisions say of a person (Λ) is kept.
    """
    layout, persons = start.marginal.layout, start.persons
    move = (value - start.psi[j]) * along
    move[j] = value - start.psi[j]
    share = persons.covariance @ np.linalg.inv(layout.unpack(start.psi).covariance)
    mean = persons.mean + (share @ (layout.linear @ move)[:, :, None])[:, :, 0]
    moved = replace(persons, mean=mean, precision=start.marginal.nodes.precisions)
    largest = start.marginal.largest
    return _climb(layout, start.psi + move, moved, FIRST_NODES, largest, CLOSE, MAX_STEPS, silent, held=j)


def _climb(
    layout: Layout,
    psi: Floats,
    persons: Persons,
    nodes: int,
    largest: float,
    stop: float,
    max_steps: int,
    progress: Progress,
    held: int | None = None,
) -> Maximum:
    marginal, steps, own = Marginal(layout, adapted_nodes(persons, nodes), largest), 0, persons.precision
    while True:
        value = marginal.at(psi)
        if value is None:
            raise ValueError("the soft values must be finite at the first parameters: check rewards and transitions")
        persons = _moved(persons, marginal, psi, value)
        matrix = information(marginal, psi, value, persons)
        step = newton_step(matrix, value.gradient, held)
        distance = float(np.sqrt(np.maximum(value.gradient @ step, 0.0)))
        progress(min(0.95, steps / 20), f"marginal log-likelihood {value.persons.sum():.2f}")
        if distance <= stop or steps == max_steps:
            return Maximum(psi, value, marginal, matrix, persons, distance, steps)
        reached = _advance(marginal, psi, value, step)
        if reached is None:
            return Maximum(psi, value, marginal, matrix, persons, distance, steps)
        psi, steps = reached[0], steps + 1
        persons = _moved(persons, marginal, *reached)
        if held is not None:
            persons = replace(persons, precision=own)
        if steps <= PLACEMENTS:
            marginal = Marginal(layout, adapted_nodes(persons, nodes), largest)


def information(marginal: Marginal, psi: Floats, value: Value, persons: Persons) -> Floats:
    """J `(size,size)`."""
    layout = marginal.layout
    matrix = np.zeros((layout.size, layout.size))
    for j in range(layout.free.size, layout.size):
        matrix[:, j] = matrix[j, :] = -_slope(marginal, psi, j)
    if layout.free.size:
        matrix[layout.reward, layout.reward] = _reward_information(marginal, psi, value, persons)
    rest = slice(layout.free.size, layout.size)
    matrix[rest, rest] = (matrix[rest, rest] + matrix[rest, rest].T) / 2
    return matrix


def newton_step(matrix: Floats, gradient: Floats, held: int | None = None) -> Floats:
    """`J⁻¹ g` in the directions of which J says something, each with the size of its curvature; ψ_held stays where it is."""
    if held is not None:
        others = np.arange(gradient.size) != held
        step = np.zeros(gradient.size)
        step[others] = newton_step(matrix[np.ix_(others, others)], gradient[others])
        return step
    scale, values, vectors = _spectrum(matrix)
    kept = np.abs(values) > FLAT_DIRECTION * np.abs(values).max()
    along = vectors[:, kept].T @ (gradient / scale) / np.abs(values[kept])
    found: Floats = vectors[:, kept] @ along / scale
    return found


def covariance_of(matrix: Floats) -> tuple[Floats, Floats]:
    """The inverse of J where it is positive, and how much of each parameter lies in other directions `(size,)`."""
    scale, values, vectors = _spectrum(matrix)
    kept = values > FLAT_DIRECTION * np.abs(values).max()
    inverse = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T / np.outer(scale, scale)
    return inverse, np.linalg.norm(vectors[:, ~kept], axis=1)


def modes(model: Likelihood, theta: Floats, centre: Floats, root: Floats, largest: float) -> Persons:
    """Each person's mode and curvature under the prior `N(centre_i, root rootᵀ)`, in standard units of the prior."""
    z, best = np.zeros_like(centre), np.full(len(centre), -np.inf)
    for start in [(a, b) for a in (0.0, -2.0, 2.0) for b in (0.0, -2.0, 2.0)]:
        tried = np.broadcast_to(np.array(start), centre.shape)
        found = _penalised(model, theta, centre, root, tried, largest)
        z, best = np.where((found > best)[:, None], tried, z), np.maximum(found, best)
    damping = np.zeros(len(centre))
    for _ in range(MODE_STEPS):
        gradient, curvature = _person_curvature(model, theta, centre, root, z, largest)
        damped = curvature + damping[:, None, None] * np.eye(2)
        step = np.linalg.solve(damped, gradient[:, :, None])[:, :, 0]
        step /= np.maximum(1.0, np.abs(step).max(axis=1, keepdims=True))
        found = _penalised(model, theta, centre, root, z + step, largest)
        better = found >= best
        z, best = np.where(better[:, None], z + step, z), np.where(better, found, best)
        damping = np.where(better, damping / 4, 4 * damping + 1)
        if np.abs(step).max() < MODE_DIFFERENCE * 10:
            break
    curvature = _person_curvature(model, theta, centre, root, z, largest)[1]
    covariance = root @ np.linalg.inv(curvature) @ root.T
    return Persons(centre + z @ root.T, covariance, own_precision(covariance, root @ root.T))


def _moved(before: Persons, marginal: Marginal, psi: Floats, value: Value) -> Persons:
    """Where the nodes should be: at the moments of the quadrature. Few nodes may miss a part, so no spread shrinks at once."""
    mean, covariance = marginal.moments(value.shares)
    own = own_precision(covariance, marginal.layout.unpack(psi).covariance)
    return Persons(mean, covariance + 0.05 * before.covariance, own)


def _advance(marginal: Marginal, psi: Floats, value: Value, step: Floats) -> tuple[Floats, Value] | None:
    layout, parts = marginal.layout, marginal.layout.unpack(psi)
    means = np.abs(layout.linear @ step).max(axis=0) / np.sqrt(np.diag(parts.covariance))
    logs = np.abs(step[layout.spread] / np.array([1.0, parts.root[1, 1], 1.0])).max()
    share = min(1.0, LONGEST_MEAN / max(float(means.max()), 1e-300), LONGEST_LOG_SPREAD / max(float(logs), 1e-300))
    promised = float(value.gradient @ step)
    for _ in range(12):
        reached = marginal.at(psi + share * step)
        if reached is not None and reached.objective - value.objective > 1e-4 * share * promised:
            return psi + share * step, reached
        share /= 2
    return None


def _slope(marginal: Marginal, psi: Floats, j: int) -> Floats:
    """The derivative of the gradient in ψ_j, which is not a reward."""
    deviations = np.sqrt(np.diag(marginal.layout.unpack(psi).covariance))
    unit = 1.0 if j >= marginal.layout.spread.start else float(deviations.min())
    h = DIFFERENCE * unit / np.sqrt(len(marginal.layout.design))
    shift = np.zeros(psi.size)
    shift[j] = h
    ahead, behind = marginal.at(psi + shift), marginal.at(psi - shift)
    assert ahead is not None
    assert behind is not None
    slope: Floats = (ahead.gradient - behind.gradient) / (2 * h)
    return slope


def _reward_information(marginal: Marginal, psi: Floats, value: Value, persons: Persons) -> Floats:
    """The block of J in θ."""
    layout, theta = marginal.layout, marginal.layout.unpack(psi).theta
    free, model = layout.free, layout.model
    total = np.diag(model.ridge[free])
    scores = marginal.scores(theta)
    gaps = scores - np.einsum("nq,nqd->nd", value.shares, scores)[:, None, :]
    total -= np.einsum("nq,nqd,nqe->de", value.shares, gaps, gaps, optimize=True)
    coarse = adapted_nodes(persons, INFORMATION_NODES)
    for j, weight in enumerate(standard_nodes(INFORMATION_NODES)[1]):
        point = plan_at(model, theta, coarse.places[:, j], marginal.largest)
        assert point is not None
        total += weight * point.information[np.ix_(free, free)]
    return total


def _penalised(model: Likelihood, theta: Floats, centre: Floats, root: Floats, z: Floats, largest: float) -> Floats:
    point = plan_at(model, theta, centre + z @ root.T, largest)
    return np.full(len(z), -np.inf) if point is None else person_values(point) - 0.5 * (z**2).sum(axis=1)


def _person_gradient(model: Likelihood, theta: Floats, centre: Floats, root: Floats, z: Floats, largest: float) -> Floats:
    """The derivative `(n,2)` of the penalised log-likelihood in z, `η = centre + root z`."""
    eta = centre + z @ root.T
    point = plan_at(model, theta, eta, largest)
    if point is None:
        raise ValueError("soft values must be finite where a person's mode is sought: check rewards and transitions")
    scores = person_scores(point)[:, -2:]
    share = expit(eta[:, 0])
    scores[:, 0] *= largest * share * (1 - share)
    found: Floats = scores @ root - z
    return found


def _person_curvature(
    model: Likelihood, theta: Floats, centre: Floats, root: Floats, z: Floats, largest: float
) -> tuple[Floats, Floats]:
    """The derivative in z and the curvature `(n,2,2)`, made positive definite."""
    here = _person_gradient(model, theta, centre, root, z, largest)
    moved = [_person_gradient(model, theta, centre, root, z + h, largest) for h in MODE_DIFFERENCE * np.eye(2)]
    matrix = -np.stack([(m - here) / MODE_DIFFERENCE for m in moved], axis=2)
    values, vectors = np.linalg.eigh((matrix + matrix.transpose(0, 2, 1)) / 2)
    return here, (vectors * np.maximum(values, LEAST_CURVATURE)[:, None, :]) @ vectors.transpose(0, 2, 1)


def _spectrum(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """The scale that gives a unit diagonal, and eigenvalues and vectors of the scaled matrix."""
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2 / np.outer(scale, scale))
    return scale, values, vectors
