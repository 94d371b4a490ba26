"""The linear system in the discounts: all experts must mean the same reward.

Each expert i, whose discount is γ_k, has the rewards `r = λ_k û_i + N_i z_i − γ_k (λ_k V̂_i + P_i N_i z_i)` (`closed_form`).
Equating them gives, on the states of each task,

    λ_k û_i = r + β_k V̂_i − N_i z_i + P_i N_i w_i,        β_k = λ_k γ_k,        w_i = γ_k z_i.

With w_i as an unknown of its own the system is linear in y = Γ, or, with temperatures per expert and λ_1 = 1, in
`y = (λ_2 … λ_K, β_1 … β_K)`. The reward is projected out by subtracting from each row the mean over the rows of the same state,
z and w by an orthonormal basis of their columns; what remains is a tall matrix A with K or 2K − 1 columns.

*Relaxation.* `w_i = γ_k z_i` is dropped, so the true set of discounts is contained in the one found. It is not lost where
`P_i N_i` lies in the span of N_i, as for null(D) = constants without terminal states; then the set is exactly affine.

*Rank at a noise.* A singular direction v_j of A with value s_j counts as identified if the answers it leaves possible
stay within LIMIT: plus and minus three standard deviations `s_j^{-1} w_jᵀ e` of the error e that errors of the given size in
log π cause on the right-hand side, plus the bias `(‖δA v_j‖ / s_j)²` they cause through the matrix itself. Where the
equations hold worse than errors of that size explain, though not so much worse as to be infeasible, the errors are taken to
be as large as they look.

The box 0 ≤ γ ≤ 1 makes it a bounded least-squares problem in few unknowns; ranges over an affine set are linear programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog, lsq_linear

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.recovery.closed_form import Line

#: The largest spread of possible answers at which a direction of discounts counts as identified.
LIMIT = 0.1
#: Directions of nuisance columns below this share of the largest are dropped.
NUISANCE = 1e-10
#: Residuals beyond this many times what the errors in log π explain make a problem infeasible.
MISFIT = 5.0
#: What a projection leaves of a vector below this share of its norm is rounding.
ROUNDING = 1e-11


class Rows:
    """The stacked rows of all lines, and the projection that removes the shared reward from them."""

    def __init__(self, lines: Sequence[Line], n_parameters: int) -> None:
        self.lines = lines
        ends = np.cumsum([0, *(line.u.size for line in lines)])
        self.slices = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.size = int(ends[-1])
        self.parameters: Ints = np.concatenate([line.parameters for line in lines])
        self.root = np.sqrt(np.concatenate([line.weights for line in lines]))
        total = np.bincount(self.parameters, self.root**2, minlength=n_parameters)
        self.known: Bools = total > 0
        self.average = sp.csr_array(
            (self.root / total[self.parameters], (self.parameters, np.arange(self.size))), shape=(n_parameters, self.size)
        )

    def place(self, pieces: Sequence[Floats | None]) -> Floats:
        """Stack one piece per line (None: zeros), weighted, and remove the shared reward."""
        width = next((p.shape[1:] for p in pieces if p is not None), ())
        stacked = np.zeros((self.size, *width))
        for part, piece in zip(self.slices, pieces, strict=True):
            if piece is not None:
                stacked[part] = piece
        weighted = (stacked.T * self.root).T
        removed: Floats = weighted - (self.root * (self.average @ weighted)[self.parameters].T).T
        return removed

    def mean(self, pieces: Sequence[Floats]) -> Floats:
        """The reward `(n_parameters,)`: the weighted mean of what the lines say about each parameter, 0 where none does."""
        reward: Floats = self.average @ (self.root * np.concatenate(pieces))
        return reward


@dataclass(frozen=True, eq=False)
class System:
    """`A y = h` with reward and nuisance projected out, the noise draws of its right-hand side, and what y means.

    `temperature` is the shared λ, or None where each expert has their own. `size` is the norm that A and h had before the
    projection: what is left of them below ROUNDING times it is rounding.
    """

    rows: Rows
    n_experts: int
    temperature: float | None
    matrix: Floats
    right: Floats
    nuisance: Floats
    size: float

    @property
    def scale(self) -> float:
        """The temperature that û and V̂ are multiplied with before the system is built."""
        return 1.0 if self.temperature is None else self.temperature

    @cached_property
    def svd(self) -> tuple[Floats, Floats, Floats]:
        """Left vectors, singular values and right vectors of A."""
        left, values, right = np.linalg.svd(self.matrix, full_matrices=False)
        return left, values, right

    @cached_property
    def change(self) -> tuple[Floats, Floats, Floats]:
        """The map from variables x with plain bounds to y, and the bounds: x = Γ, or x = (λ − β, β) with λ_1 = 1."""
        k = self.n_experts
        if self.temperature is not None:
            return np.eye(k), np.zeros(k), np.ones(k)
        change = np.eye(2 * k - 1)
        change[np.arange(k - 1), np.arange(k, 2 * k - 1)] = 1.0
        upper = np.full(2 * k - 1, np.inf)
        upper[k - 1] = 1.0
        return change, np.zeros(2 * k - 1), upper

    def read(self, y: Floats) -> tuple[Floats, Floats]:
        """Discounts and temperatures `(K,)` of a solution y."""
        if self.temperature is not None:
            return y, np.full(self.n_experts, self.temperature)
        temperature = np.concatenate([[1.0], y[: self.n_experts - 1]])
        return y[self.n_experts - 1 :] / np.maximum(temperature, 1e-300), temperature

    def project(self, pieces: Sequence[Floats | None]) -> Floats:
        """One piece per line with the reward and the nuisance columns removed."""
        placed = self.rows.place(pieces)
        removed: Floats = placed - self.nuisance @ (self.nuisance.T @ placed)
        return removed


def build_system(rows: Rows, n_experts: int, temperature: float | None) -> System:
    """Put the experts' lines together; `temperature` None leaves one per expert free."""
    free = block_columns(rows, [np.hstack([-line.basis, line.pushed]) for line in rows.lines])
    size = float(np.sqrt(sum((line.weights * (line.u**2 + line.v**2)).sum() for line in rows.lines)))
    empty = System(rows, n_experts, temperature, np.zeros((0, 0)), np.zeros(0), _orthonormal(free), size)
    columns, right = _columns(empty, [line.u for line in rows.lines], [line.v for line in rows.lines])
    return replace(empty, matrix=columns, right=right)


def _columns(system: System, us: Sequence[Floats], vs: Sequence[Floats]) -> tuple[Floats, Floats]:
    """A and h from û and V̂ of each line (or from one draw of their errors)."""
    lines, scale = system.rows.lines, system.scale
    columns = []
    if system.temperature is None:
        for k in range(1, system.n_experts):
            columns.append(system.project([-u if line.owner == k else None for line, u in zip(lines, us, strict=True)]))
    for k in range(system.n_experts):
        columns.append(system.project([scale * v if line.owner == k else None for line, v in zip(lines, vs, strict=True)]))
    own = [system.temperature is not None or line.owner == 0 for line in lines]
    right = system.project([scale * u if mine else None for mine, u in zip(own, us, strict=True)])
    return np.stack(columns, axis=1), right


def block_columns(rows: Rows, blocks: Sequence[Floats]) -> Floats:
    """Block-diagonal columns with the shared reward removed."""
    placed = []
    for number, block in enumerate(blocks):
        placed.append(rows.place([block if i == number else None for i in range(len(blocks))]))
    return np.hstack(placed)


def _orthonormal(columns: Floats) -> Floats:
    if not columns.size:
        return columns
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    return left[:, values > NUISANCE * max(float(values.max()), 1e-300)]


@dataclass(frozen=True, eq=False)
class Answer:
    """The closest y, and which directions of it the equations leave open at the given noise.

    `spread` `(K,)` is the half-width that the noise gives each discount in the identified directions; `free` the right singular
    vectors that are open, `(n, len(y))`; `gap` and `expected` are the norm of `A y − h` and what the noise explains of it.
    """

    y: Floats
    fixed: Floats
    coefficients: Floats
    free: Floats
    singular_values: Floats
    spread: Floats
    gap: float
    expected: float

    @property
    def feasible(self) -> bool:
        """Whether the equations hold up to the noise."""
        return self.gap <= MISFIT * self.expected


def solve_system(system: System) -> Answer:
    """Bounded least squares, and the rank at the noise of the lines."""
    outside = max(line.misfit / max(line.error, ROUNDING) for line in system.rows.lines)
    left, values, right = system.svd
    change, lower, upper = system.change
    full = lsq_linear(values[:, None] * right @ change, left.T @ system.right, (lower, upper), method="bvls", tol=1e-15)
    y = _inside(change @ full.x, left, values, right, system)
    spreads, biases, expected = _noise(system, y)
    gap = float(np.linalg.norm(system.matrix @ y - system.right))
    spreads, biases = inflate(spreads, biases, max(outside, gap / expected))
    effect = np.array([_effect(system, y, direction).max() for direction in right])
    open_ = open_directions(spreads, biases, effect) | (values <= ROUNDING * system.size)
    each = np.stack([_effect(system, y, d)[: system.n_experts] for d in right]) * (2 * spreads + biases)[:, None]
    spread = np.sqrt((each[~open_] ** 2).sum(axis=0)) if (~open_).any() else np.zeros(system.n_experts)
    return Answer(y, right[~open_], right[~open_] @ y, right[open_], values, spread, gap, expected)


def inflate(spreads: Floats, biases: Floats, misfit: float) -> tuple[Floats, Floats]:
    """Standard deviations and biases for errors as large as the misfit of the equations shows them to be."""
    factor = min(max(1.0, misfit), MISFIT)
    return spreads * factor, biases * factor**2


def open_directions(spreads: Floats, biases: Floats, effect: Floats) -> Bools:
    """Directions along which the noise leaves a range of discounts wider than LIMIT."""
    wide: Bools = (6 * spreads + biases) * effect > LIMIT
    return wide


def _inside(y: Floats, left: Floats, values: Floats, right: Floats, system: System) -> Floats:
    """The unbounded solution where it respects the box up to rounding, because it is the more exact one."""
    good = values > 1e-13 * max(float(values.max(initial=0.0)), 1e-300)
    plain = right[good].T @ ((left.T @ system.right)[good] / values[good])
    change, lower, upper = system.change
    x = np.linalg.solve(change, plain)
    slack = 1e-9 * max(1.0, float(np.abs(x).max()))
    if good.all() and (x >= lower - slack).all() and (x <= upper + slack).all():
        bounded: Floats = change @ np.clip(x, lower, upper)
        return bounded
    return y


def _noise(system: System, y: Floats) -> tuple[Floats, Floats, float]:
    """Per singular direction the standard deviation of y and its bias; the expected norm of the residual."""
    left, values, right = system.svd
    lines = system.rows.lines
    sides, biases, norms = [], [], []
    for draw in range(lines[0].noise_u.shape[1]):
        columns, side = _columns(system, [line.noise_u[:, draw] for line in lines], [line.noise_v[:, draw] for line in lines])
        error = side - columns @ y
        sides.append(left.T @ error)
        biases.append(((columns @ right.T) ** 2).sum(axis=0))
        norms.append(float(error @ error))
    safe = np.maximum(values, 1e-140)
    deviation = np.sqrt(np.mean(np.square(sides), axis=0)) / safe
    expected = max(float(np.sqrt(np.mean(norms))), ROUNDING * system.size, 1e-140)
    return deviation, np.mean(biases, axis=0) / safe**2, expected


def _effect(system: System, y: Floats, direction: Floats) -> Floats:
    """How much a unit step along `direction` moves each discount, and, relatively, each temperature."""
    if system.temperature is not None:
        return np.abs(direction)
    k = system.n_experts
    gamma, temperature = system.read(y)
    moved = np.concatenate([[0.0], direction[: k - 1]])
    safe = np.maximum(np.abs(temperature), 1e-12)
    return np.concatenate([np.abs(direction[k - 1 :] - gamma * moved) / safe, np.abs(moved) / safe])


def discount_ranges(system: System, answer: Answer) -> tuple[Floats, list[Floats]]:
    """Each discount's range `(K,2)` over the affine set of y in the box, by linear programs, and the points that attain them.

    An end whose program fails is 0 or 1: nothing bounds it.

    With free temperatures the discount β_k/λ_k is a ratio; the program is made linear by scaling y so that λ_k = 1.
    """
    change = system.change[0]
    n = change.shape[0]
    limits, points = np.zeros((system.n_experts, 2)), []
    for k in range(system.n_experts):
        for side, sign in enumerate((1.0, -1.0)):
            solution = _extreme(system, answer, k, sign)
            if solution is None:
                limits[k, side] = float(side)
                continue
            y = change @ (solution[:n] / solution[n])
            limits[k, side] = np.clip(system.read(y)[0][k], 0.0, 1.0)
            points.append(y)
    return limits, points


def _extreme(system: System, answer: Answer, k: int, sign: float) -> Floats | None:
    """Minimise (sign 1) or maximise (sign −1) one discount over `(x t, t)`; None if the program fails."""
    change, _, upper = system.change
    n = change.shape[0]
    objective = np.zeros(n + 1)
    scaling = np.zeros(n + 1)
    if system.temperature is not None or k == 0:
        scaling[n] = 1.0
    else:
        scaling[:n] = change[k - 1]
    objective[n - system.n_experts + k] = sign
    equal = np.vstack([np.hstack([answer.fixed @ change, -answer.coefficients[:, None]]), scaling])
    bounded = np.flatnonzero(np.isfinite(upper))
    below = np.zeros((bounded.size, n + 1))
    below[np.arange(bounded.size), bounded] = 1.0
    below[:, n] = -upper[bounded]
    goal = np.append(np.zeros(answer.fixed.shape[0]), 1.0)
    result: Any = linprog(objective, below, np.zeros(bounded.size), equal, goal, bounds=(0, None), method="highs")
    return None if result.status != 0 or result.x[n] <= 1e-12 else np.asarray(result.x)
