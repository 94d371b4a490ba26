"""Discounts as the only unknowns: variable projection.

For fixed Γ the experts' equations are linear in everything else, `M(Γ) x = h(Γ)`: x holds the reward's parameters, the open
directions z of null(D) and, where temperatures are free, λ_2 … λ_K. With x projected out,

    ρ(Γ) = M x(Γ) − h,      x(Γ) = M⁺ h,      ∂ρ/∂γ_k = (I − M M⁺) (∂M/∂γ_k x − ∂h/∂γ_k) + …,

where the term left out is orthogonal to ρ, so that the gradient of ½‖ρ‖² is exact. The minimiser is a Levenberg–Marquardt
iteration inside the box [0,1]^K with steps of least norm, so that from a point near a curve or a surface of solutions it goes to
a nearby point of it. It stops when a step no longer reduces ‖ρ‖ or is below rounding.

Two forms of M and h:

* `StateForm`, for one reward a state: rows are the experts' `λ(û − γV̂) + (N − γ P_π N) z` less their mean (`closed_form`);
* `feature_form.FeatureForm`, for any features: rows are the Bellman equations with V eliminated by evaluating the policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.recovery.linear_system import ROUNDING, Answer, Rows, block_columns, inflate, open_directions

#: Singular values of M below this share of the largest are dropped when x is projected out.
PROJECTION_RANK = 1e-11
#: Singular values of the Jacobian below this share of the equations' size belong to directions without any effect.
NULL = 1e-8
MAX_STEPS = 100


class Form(Protocol):
    """The equations at given discounts."""

    n_experts: int

    def at(self, discounts: Floats) -> tuple[Floats, Floats]:
        """M and h."""
        ...

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """`∂(M x − h)/∂γ_k` as columns `(rows, K)`."""
        ...

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Reward parameters and temperatures `(K,)` of a solution."""
        ...


@dataclass(frozen=True, eq=False)
class Point:
    """Discounts, the linear unknowns there, the residual ρ, its Jacobian, and orthonormal bases of M's columns and null space."""

    discounts: Floats
    x: Floats
    residual: Floats
    jacobian: Floats
    left: Floats
    null: Floats
    size: float

    @property
    def gap(self) -> float:
        """‖ρ‖."""
        return float(np.linalg.norm(self.residual))


def project(form: Form, discounts: Floats) -> Point:
    """Project the linear unknowns out at given discounts."""
    matrix, right = form.at(discounts)
    if not matrix.shape[1]:
        left, size = np.zeros((right.size, 0)), float(np.linalg.norm(right))
        return Point(discounts, np.zeros(0), -right, form.slopes(discounts, np.zeros(0)), left, np.zeros((0, 0)), size)
    left, values, rights = np.linalg.svd(matrix, full_matrices=matrix.shape[0] < matrix.shape[1])
    rank = int((values > PROJECTION_RANK * max(float(values.max()), 1e-300)).sum())
    left, null = left[:, :rank], rights[rank:].T
    x = rights[:rank].T @ ((left.T @ right) / values[:rank])
    slopes = form.slopes(discounts, x)
    size = float(np.linalg.norm(right) + np.linalg.norm(slopes))
    return Point(discounts, x, left @ (left.T @ right) - right, slopes - left @ (left.T @ slopes), left, null, size)


def minimise(form: Form, start: Floats) -> Point:
    """The nearest local minimiser of ‖ρ(Γ)‖ in the box."""
    point, damping = project(form, np.clip(start, 0.0, 1.0)), 1e-3
    for _ in range(MAX_STEPS):
        step = _step(point, damping)
        if np.abs(step).max(initial=0.0) < 1e-15:
            break
        trial = project(form, np.clip(point.discounts + step, 0.0, 1.0))
        if trial.gap < point.gap:
            point, damping = trial, max(damping / 10, 1e-14)
        elif damping > 1e6 or np.abs(step).max() < 1e-12:
            break
        else:
            damping *= 10
    return point


def _step(point: Point, damping: float) -> Floats:
    """A damped Gauss–Newton step of least norm on the discounts that the box does not hold back."""
    gradient = point.jacobian.T @ point.residual
    held = ((point.discounts <= 0) & (gradient > 0)) | ((point.discounts >= 1) & (gradient < 0))
    step = np.zeros_like(point.discounts)
    if held.all():
        return step
    left, values, right = np.linalg.svd(point.jacobian[:, ~held], full_matrices=False)
    largest = max(float(values.max(initial=0.0)), 1e-140)
    filtered = values / (values**2 + damping * largest**2 * 1e-2)
    filtered[values < 1e-10 * largest] = 0.0
    step[~held] = -right.T @ (filtered * (left.T @ point.residual))
    return step


def local_answer(form: Form, point: Point, draws: Sequence[Form], outside: float) -> Answer:
    """Which directions of the discounts are open at a solution, by the rule of `linear_system`, from forms with noise added.

    `outside` is the misfit of log π that no discounts can remove, in units of its assumed error. The answer's spread covers
    the directions that noise leaves open, not those in which the equations do not change at all: these have to be walked.
    """
    left, values, right = np.linalg.svd(point.jacobian, full_matrices=False)
    values, right = _complete(values, right, form.n_experts)
    sides, biases, norms = [], [], []
    for noisy in draws:
        matrix, side = noisy.at(point.discounts)
        error = _outside(point, matrix @ point.x - side) - point.residual
        change = _outside(point, noisy.slopes(point.discounts, point.x)) - point.jacobian
        sides.append(np.append(left.T @ error, np.zeros(values.size - left.shape[1])))
        biases.append(((change @ right.T) ** 2).sum(axis=0))
        norms.append(float(error @ error))
    safe = np.maximum(values, 1e-140)
    expected = max(float(np.sqrt(np.mean(norms))), ROUNDING * point.size, 1e-140)
    spreads, bias = np.sqrt(np.mean(np.square(sides), axis=0)) / safe, np.mean(biases, axis=0) / safe**2
    spreads, bias = inflate(spreads, bias, max(outside, point.gap / expected))
    null = values <= NULL * point.size
    open_ = open_directions(spreads, bias, np.abs(right).max(axis=1)) | null
    spread = np.sqrt(((np.abs(right) * np.minimum(2 * spreads + bias, 1.0)[:, None])[~null] ** 2).sum(axis=0))
    fixed = right[~open_]
    return Answer(point.discounts, fixed, fixed @ point.discounts, right[open_], values, spread, point.gap, expected)


def _outside(point: Point, vectors: Floats) -> Floats:
    return vectors - point.left @ (point.left.T @ vectors)


def _complete(values: Floats, right: Floats, size: int) -> tuple[Floats, Floats]:
    """Right singular vectors filled up to a full basis where there are fewer rows than discounts."""
    if right.shape[0] == size:
        return values, right
    return np.append(values, np.zeros(size - values.size)), np.linalg.svd(right, full_matrices=True)[2]


class StateForm:
    """M and h for one reward a state; x = (z of every line, then λ_2 … λ_K where temperatures are free)."""

    def __init__(self, rows: Rows, n_experts: int, temperature: float | None) -> None:
        self.rows, self.n_experts, self.temperature = rows, n_experts, temperature
        self._ends = np.cumsum([0, *(line.basis.shape[1] for line in rows.lines)])
        self._basis = block_columns(rows, [line.basis for line in rows.lines])
        self._pushed = block_columns(rows, [line.pushed for line in rows.lines])
        self._owners: Ints = np.repeat([line.owner for line in rows.lines], np.diff(self._ends))
        self._u = [self._placed(k, [line.u for line in rows.lines]) for k in range(n_experts)]
        self._v = [self._placed(k, [line.v for line in rows.lines]) for k in range(n_experts)]

    def _placed(self, owner: int, pieces: list[Floats]) -> Floats:
        return self.rows.place([p if line.owner == owner else None for line, p in zip(self.rows.lines, pieces, strict=True)])

    def all_shifted(self) -> list[StateForm]:
        """The form with each draw of the noise."""
        return [self.shifted(draw) for draw in range(self.rows.lines[0].noise_u.shape[1])]

    def shifted(self, draw: int) -> StateForm:
        """The form with one draw of the noise added to û and V̂."""
        lines = [replace(line, u=line.u + line.noise_u[:, draw], v=line.v + line.noise_v[:, draw]) for line in self.rows.lines]
        return StateForm(Rows(lines, self.rows.known.size), self.n_experts, self.temperature)

    def at(self, discounts: Floats) -> tuple[Floats, Floats]:
        """Columns for z and free temperatures, and minus the part with a known temperature."""
        said = [u - gamma * v for u, v, gamma in zip(self._u, self._v, discounts, strict=True)]
        matrix = self._basis - discounts[self._owners] * self._pushed
        if self.temperature is not None:
            return matrix, -self.temperature * np.sum(said, axis=0)
        return np.column_stack([matrix, *said[1:]]), -said[0]

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """`−(λ V̂ + P_π N z)` on the rows of each owner: minus the value function."""
        temperature = self._temperatures(x)
        z = x[: self._ends[-1]]
        columns = [
            -temperature[k] * self._v[k] - self._pushed[:, self._owners == k] @ z[self._owners == k]
            for k in range(self.n_experts)
        ]
        return np.stack(columns, axis=1)

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """The reward is the mean of what the lines say."""
        temperature = self._temperatures(x)
        pieces = []
        for line, a, b in zip(self.rows.lines, self._ends[:-1], self._ends[1:], strict=True):
            gamma, lam = discounts[line.owner], temperature[line.owner]
            pieces.append(lam * (line.u - gamma * line.v) + (line.basis - gamma * line.pushed) @ x[a:b])
        return self.rows.mean(pieces), temperature

    def _temperatures(self, x: Floats) -> Floats:
        if self.temperature is not None:
            return np.full(self.n_experts, self.temperature)
        return np.concatenate([[1.0], x[self._ends[-1] :]])


class Pinned:
    """A form in which some discounts are known: the others are its unknowns, in the same order."""

    def __init__(self, inner: Form, values: Floats) -> None:
        """`values` `(K,)` holds the known discounts and NaN elsewhere."""
        self.inner, self._values = inner, values
        self._free = np.isnan(values)
        self.n_experts = int(self._free.sum())

    def expand(self, discounts: Floats) -> Floats:
        """All K discounts (or rows of them) from the unknown ones, with the known ones in their places."""
        full = np.array(
            np.broadcast_to(self._values.reshape(-1, *[1] * (discounts.ndim - 1)), (self._values.size, *discounts.shape[1:]))
        )
        full[self._free] = discounts
        return full

    def at(self, discounts: Floats) -> tuple[Floats, Floats]:
        """M and h."""
        return self.inner.at(self.expand(discounts))

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """The columns of the unknown discounts."""
        return self.inner.slopes(self.expand(discounts), x)[:, self._free]

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Reward and temperatures."""
        return self.inner.read(self.expand(discounts), x)
