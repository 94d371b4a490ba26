"""Which discounts on a grid let some reward explain all experts, a million points in seconds.

At fixed Γ the paper's system `Φ x = b` has a solution iff the experts' rewards can be made equal (`closed_form`):

    û_k − γ_k V̂_k + (N − γ_k P_k N) z_k = r      for all k,

in the unknowns r and z_k. Subtracting the mean over k removes r. What is left has K·dim N columns and, after all vectors are
written in one orthonormal basis, a few dozen rows, whatever the number of states; one small singular value decomposition a
point, done for many points at once, gives the distance of the experts' rewards from each other. `rank(Φ|b) = rank(Φ)` iff it
is 0; it is reported as a root mean square in units of the reward, so that "almost feasible" can be seen and not only guessed.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed

from multihorizon.checks import Bools, Floats, as_positive
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.recovery.closed_form import Line, expert_lines
from multihorizon.search import Grid

#: Directions below this share of the largest singular value are not used to explain anything.
RANK_TOLERANCE = 1e-10
#: Points that one batch holds.
BATCH = 5000


@dataclass(frozen=True, eq=False)
class FeasibilityGrid:
    """`residuals[i, j, …]` is how far the experts' rewards stay apart at the discounts `(axis[i], axis[j], …)`."""

    axis: Floats
    residuals: Floats
    tolerance: float

    @property
    def feasible(self) -> Bools:
        """Mask of the grid points with a residual up to the tolerance."""
        mask: Bools = self.residuals <= self.tolerance
        return mask

    @property
    def points(self) -> Floats:
        """The discounts `(n,K)` of the feasible points."""
        found: Floats = self.axis[np.argwhere(self.feasible)]
        return found


def feasibility_grid(
    problem: Problem, grid: Grid | float, temperature: float = 1.0, tolerance: float = 1e-8, progress: Progress = silent
) -> FeasibilityGrid:
    """The paper's rank test on a grid of discounts, as a residual.

    Args:
        problem: one task, a reward of one number a state, experts given as policies without zero entries.
        grid: the step, or a `Grid` of step and number of processes.
        temperature: the entropy weight the experts share.
        tolerance: residual, in units of the reward, up to which a point counts as feasible.
        progress: called as batches finish.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> feasibility_grid(Problem(d.mdp, d.mce_experts()[1:]), Grid(0.04, jobs=1)).points.tolist()
        [[0.2, 0.52]]
    """
    as_positive(tolerance, "tolerance")
    grid = grid if isinstance(grid, Grid) else Grid(grid)
    axis = grid.axis()
    points = np.array(list(itertools.product(axis, repeat=problem.n_experts)))
    residuals = feasibility_at(problem, points, temperature, grid.jobs, progress)
    return FeasibilityGrid(axis, residuals.reshape((axis.size,) * problem.n_experts), tolerance)


def feasibility_at(
    problem: Problem, points: Floats, temperature: float = 1.0, jobs: int = 1, progress: Progress = silent
) -> Floats:
    """The residual `(m,)` at each of the discounts `(m,K)`: 0 where some reward explains all experts."""
    vectors = _reduce(_lines(problem), as_positive(temperature, "temperature"))
    batches = np.array_split(points, max(1, len(points) // BATCH))
    pool = Parallel(n_jobs=jobs if len(batches) > 1 else 1, return_as="generator")
    found: list[Floats] = []
    for part in pool(delayed(_batch)(vectors, batch) for batch in batches):
        found.append(part)
        progress(len(found) / len(batches), "feasibility of the grid")
    return np.concatenate(found)


def _lines(problem: Problem) -> list[Line]:
    """What each expert says of the reward; raises where there are several tasks."""
    if len({id(expert.mdp) for expert in problem.experts}) > 1:
        raise ValueError("a grid of discounts needs a problem with one task, received one that joins several MDPs")
    return expert_lines(problem, error=1e-8, draws=1)


@dataclass(frozen=True, eq=False)
class _Vectors:
    """û, V̂ `(K,n)` and N, P N `(K,n,p)` of all experts in one orthonormal basis; `states` is how many states they stand for."""

    u: Floats
    v: Floats
    basis: Floats
    pushed: Floats
    states: int


def _reduce(lines: list[Line], lam: float) -> _Vectors:
    u = lam * np.stack([line.u for line in lines])
    v = lam * np.stack([line.v for line in lines])
    basis, pushed = np.stack([line.basis for line in lines]), np.stack([line.pushed for line in lines])
    columns = np.concatenate([u.T, v.T, *basis, *pushed], axis=1)
    frame = np.linalg.qr(columns)[0] if columns.shape[1] < columns.shape[0] else np.eye(columns.shape[0])
    turned = (u @ frame, v @ frame, frame.T @ basis, frame.T @ pushed)
    return _Vectors(*turned, states=u.shape[1])


def _batch(vectors: _Vectors, points: Floats) -> Floats:
    """Distances by projection on the range of the nuisance columns, for a batch of points."""
    n_experts, size, width = vectors.basis.shape
    count = len(points)
    data = vectors.u - points[:, :, None] * vectors.v
    data = data - data.mean(axis=1, keepdims=True)
    blocks = vectors.basis - points[:, :, None, None] * vectors.pushed
    matrix = np.zeros((count, n_experts, size, n_experts, width))
    for k in range(n_experts):
        matrix[:, :, :, k] = -blocks[:, None, k] / n_experts
        matrix[:, k, :, k] += blocks[:, k]
    left, values, _ = np.linalg.svd(matrix.reshape(count, n_experts * size, n_experts * width), full_matrices=False)
    used = left * (values > RANK_TOLERANCE * values.max(axis=1, keepdims=True))[:, None, :]
    flat = data.reshape(count, -1, 1)
    rest = flat - used @ (used.transpose(0, 2, 1) @ flat)
    distance: Floats = np.sqrt((rest[:, :, 0] ** 2).sum(axis=1) / (n_experts * vectors.states))
    return distance


def rewards_at(problem: Problem, points: Floats, temperature: float = 1.0) -> Floats:
    """The reward `(m,S)` that explains the experts best at each of the discounts `(m,K)`; of several, the one with least z.

    Entries of states that no transition enters are 0.
    """
    lam = as_positive(temperature, "temperature")
    lines = _lines(problem)
    rewards = np.zeros((len(points), problem.n_parameters))
    for row, discounts in zip(rewards, points, strict=True):
        row[lines[0].parameters] = _reward(lines, discounts, lam)
    return rewards


def _reward(lines: list[Line], discounts: Floats, lam: float) -> Floats:
    data = [lam * (line.u - gamma * line.v) for line, gamma in zip(lines, discounts, strict=True)]
    blocks = [line.basis - gamma * line.pushed for line, gamma in zip(lines, discounts, strict=True)]
    mean = np.mean(data, axis=0)
    shared = np.concatenate(blocks, axis=1) / len(lines)
    width = blocks[0].shape[1]
    rows = [-shared.copy() for _ in blocks]
    for k, block in enumerate(blocks):
        rows[k][:, k * width : (k + 1) * width] += block
    z = np.linalg.lstsq(np.concatenate(rows), -np.concatenate([d - mean for d in data]), rcond=RANK_TOLERANCE)[0]
    reward: Floats = mean + shared @ z
    return reward
