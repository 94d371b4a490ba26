"""The paper's test: is there a reward that explains all experts at given discounts?

At fixed Γ the experts' equations are linear in the reward and the value functions, `Φ x = b` with x = (θ, V_1, …, V_n):

    F θ − (1 ⊗ I − γ_i T_A) V_i = λ log π_i        for every expert i (for one number per state, F = T_A).

They have a solution exactly if `rank(Φ|b) = rank Φ`, and one up to the constants only if that rank is `K|S| + |S| − 1` (all
states ordinary) or `K|S| + |S|` (with a terminal state, whose row says V = 0). Ranks count the singular values above `tolerance`
times the largest; b is scaled to that size before it is appended, so that the same tolerance judges it. `rank_test` does this.

`feasibility_grid` asks the same for a million points in seconds. There is a solution iff the experts' rewards can be made equal,
`û_k − γ_k V̂_k + (N − γ_k P_k N) z_k = r` for all k (`one_expert`), in the unknowns r and z_k. Subtracting the mean over k removes
r. What is left has K·dim N columns and, after all vectors are written in one orthonormal basis, a few dozen rows, whatever the
number of states. One small singular value decomposition per point, done for many points at once, gives the distance of the
experts' rewards from each other: a root mean square in units of the reward, so that "almost feasible" can be seen.

A grid can miss a curve of solutions: it sees only the points that lie on it. `identify` does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints, as_discount, as_positive
from multihorizon.experts import Expert
from multihorizon.parallel import in_parallel
from multihorizon.problem import Problem
from multihorizon.progress import Progress, silent
from multihorizon.recovery.one_expert import PolicyEquations, RewardFamily, read_equations, reward_families
from multihorizon.search import Grid
from multihorizon.tolerances import TINY

#: Directions below this share of the largest singular value are not used to explain anything.
SMALLEST_USED = 1e-10
#: Points that one batch holds.
BATCH = 5000


@dataclass(frozen=True, eq=False)
class RankTest:
    """Ranks of Φ and (Φ|b), with the spectra they come from and the number of unknowns."""

    rank: int
    augmented_rank: int
    unknowns: int
    singular_values: Floats
    augmented_singular_values: Floats
    tolerance: float

    @property
    def feasible(self) -> bool:
        """Whether some reward reproduces the experts at these discounts."""
        return self.rank == self.augmented_rank


@dataclass(frozen=True, eq=False)
class RankGrid:
    """The test on a grid: discounts `(n,K)`, ranks `(n,)` of Φ and of (Φ|b)."""

    discounts: Floats
    rank: Ints
    augmented_rank: Ints

    @property
    def feasible(self) -> Bools:
        """Where some reward reproduces the experts, `(n,)`."""
        mask: Bools = self.rank == self.augmented_rank
        return mask


def rank_test(problem: Problem, discounts: Sequence[float], temperature: float = 1.0, tolerance: float = 1e-9) -> RankTest:
    """The ranks of Φ and (Φ|b) at given discounts; dense, for small problems.

    Args:
        problem: experts given as policies without zero entries.
        discounts: one for each expert.
        temperature: the entropy weight λ.
        tolerance: singular values below this share of the largest count as zero.

    Example:
        >>> from multihorizon.domains import toy
        >>> d = toy(ending="absorbing")
        >>> found = rank_test(Problem(d.mdp, d.mce_experts()[:2]), [0.2, 0.7])
        >>> found.rank, found.augmented_rank
        (11, 11)
    """
    if len(discounts) != problem.n_experts:
        raise ValueError(f"discounts must have {problem.n_experts} entries, received {len(discounts)}")
    gammas = [as_discount(gamma) for gamma in discounts]
    as_positive(temperature, "temperature")
    as_positive(tolerance, "tolerance")
    blocks = [_Block(expert, read_equations(expert)) for expert in problem.experts]
    return _test(problem, blocks, gammas, temperature, tolerance)


class _Block:
    """One expert's rows: all available actions of all states, and `V = 0` once for each terminal state."""

    def __init__(self, expert: Expert, equations: PolicyEquations) -> None:
        mdp = expert.mdp
        keep = (mdp.available & (~mdp.terminal[:, None] | (np.arange(mdp.n_actions) == 0))).T.ravel()
        self.n_states = mdp.n_states
        self.features = sp.csr_array(expert.feature_matrix).toarray()[keep]
        self.following = mdp.stacked.toarray()[keep]
        self.here = np.tile(np.eye(mdp.n_states), (mdp.n_actions, 1))[keep]
        self.logs = equations.log_policy.T.ravel()[keep]


def _test(
    problem: Problem, blocks: Sequence[_Block], discounts: Sequence[float], temperature: float, tolerance: float
) -> RankTest:
    width = problem.n_parameters + sum(block.n_states for block in blocks)
    rows, column = [], problem.n_parameters
    for block, owner in zip(blocks, problem.owner, strict=True):
        row = np.zeros((block.logs.size, width))
        row[:, : problem.n_parameters] = block.features
        row[:, column : column + block.n_states] = float(discounts[owner]) * block.following - block.here
        column += block.n_states
        rows.append(row)
    phi, b = np.vstack(rows), temperature * np.concatenate([block.logs for block in blocks])
    values = np.linalg.svd(phi, compute_uv=False)
    scaled = b * (values[0] / max(float(np.linalg.norm(b)), TINY))
    augmented = np.linalg.svd(np.column_stack([phi, scaled]), compute_uv=False)
    return RankTest(
        _rank(values, values[0], tolerance), _rank(augmented, values[0], tolerance), width, values, augmented, tolerance
    )


def _rank(values: Floats, largest: float, tolerance: float) -> int:
    return int((values > tolerance * largest).sum())


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
        problem: one task, a reward of one number per state, experts given as policies without zero entries.
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
    vectors = _reduce(_families(problem), as_positive(temperature, "temperature"))
    batches = np.array_split(points, max(1, len(points) // BATCH))
    found: list[Floats] = []
    for part in in_parallel(partial(_batch, vectors), batches, jobs):
        found.append(part)
        progress(len(found) / len(batches), "feasibility of the grid")
    return np.concatenate(found)


def _families(problem: Problem) -> list[RewardFamily]:
    """What each expert says of the reward; raises where there are several tasks."""
    if len({id(expert.mdp) for expert in problem.experts}) > 1:
        raise ValueError("a grid of discounts needs a problem with one task, received one that joins several MDPs")
    families = reward_families(problem, [read_equations(expert) for expert in problem.experts], error=1e-8)
    if any(sp.issparse(family.basis) for family in families):
        raise ValueError(
            f"a grid of discounts needs a task whose actions tell most states apart, received one of {families[0].u.size} states "
            "with very many that they do not: use identify"
        )
    return families


@dataclass(frozen=True, eq=False)
class _Vectors:
    """û, V̂ `(K,n)` and N, P N `(K,n,p)` of all experts in one orthonormal basis; `states` is how many states they stand for."""

    u: Floats
    v: Floats
    basis: Floats
    pushed: Floats
    states: int


def _reduce(families: list[RewardFamily], lam: float) -> _Vectors:
    u = lam * np.stack([family.u for family in families])
    v = lam * np.stack([family.v for family in families])
    basis, pushed = np.stack([family.basis for family in families]), np.stack([family.pushed for family in families])
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
    used = left * (values > SMALLEST_USED * values.max(axis=1, keepdims=True))[:, None, :]
    flat = data.reshape(count, -1, 1)
    rest = flat - used @ (used.transpose(0, 2, 1) @ flat)
    distance: Floats = np.sqrt((rest[:, :, 0] ** 2).sum(axis=1) / (n_experts * vectors.states))
    return distance


def rewards_at(problem: Problem, points: Floats, temperature: float = 1.0) -> Floats:
    """The reward `(m,S)` that explains the experts best at each of the discounts `(m,K)`; of several, the one with least z.

    Entries of states that no transition enters are 0.
    """
    lam = as_positive(temperature, "temperature")
    families = _families(problem)
    rewards = np.zeros((len(points), problem.n_parameters))
    for row, discounts in zip(rewards, points, strict=True):
        row[families[0].parameters] = _reward(families, discounts, lam)
    return rewards


def _reward(families: list[RewardFamily], discounts: Floats, lam: float) -> Floats:
    data = [lam * (family.u - gamma * family.v) for family, gamma in zip(families, discounts, strict=True)]
    blocks = [family.basis - gamma * family.pushed for family, gamma in zip(families, discounts, strict=True)]
    mean = np.mean(data, axis=0)
    shared = np.concatenate(blocks, axis=1) / len(families)
    width = blocks[0].shape[1]
    rows = [-shared.copy() for _ in blocks]
    for k, block in enumerate(blocks):
        rows[k][:, k * width : (k + 1) * width] += block
    z = np.linalg.lstsq(np.concatenate(rows), -np.concatenate([d - mean for d in data]), rcond=SMALLEST_USED)[0]
    reward: Floats = mean + shared @ z
    return reward


def rank_grid(problem: Problem, step: float, temperature: float = 1.0, tolerance: float = 1e-9, jobs: int = -1) -> RankGrid:
    """The rank test on every point of a regular grid over [0,1]^K. Deprecated: use `feasibility_grid`."""
    points = np.array(list(itertools.product(Grid(step).axis(), repeat=problem.n_experts)))
    test = partial(rank_test, problem, temperature=temperature, tolerance=tolerance)
    tests = in_parallel(test, points.tolist(), jobs if len(points) > 100 else 1)
    ranks = np.array([(found.rank, found.augmented_rank) for found in tests], dtype=np.int64)
    return RankGrid(points, ranks[:, 0], ranks[:, 1])
