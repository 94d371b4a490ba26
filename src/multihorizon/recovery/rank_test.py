"""The paper's rank test: is there a reward at given discounts?

At fixed Γ the experts' equations are linear in the reward and the value functions, `Φ x = b` with x = (θ, V_1, …, V_n):

    F θ − (1 ⊗ I − γ_i T_A) V_i = λ log π_i        for every expert i (for one number a state, F = T_A).

They have a solution exactly if `rank(Φ|b) = rank Φ`, and one up to the constants only if that rank is `K|S| + |S| − 1` (all
states ordinary) or `K|S| + |S|` (with a terminal state, whose row says V = 0). Ranks count the singular values above `tolerance`
times the largest; b is scaled to that size before it is appended, so that the same tolerance judges it.

A grid of this test can miss a curve of solutions: it sees only the points that lie on it. `identify` does not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed

from multihorizon.checks import Bools, Floats, Ints, as_discount, as_positive
from multihorizon.experts import Expert
from multihorizon.problem import Problem
from multihorizon.recovery.closed_form import Equations, read_equations
from multihorizon.search import Grid


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


def rank_grid(problem: Problem, step: float, temperature: float = 1.0, tolerance: float = 1e-9, jobs: int = -1) -> RankGrid:
    """The test on every point of a regular grid over [0,1]^K with spacing `step`, on `jobs` processes (−1: all cores)."""
    points = np.array(list(itertools.product(Grid(step).axis(), repeat=problem.n_experts)))
    chunks = np.array_split(points, max(1, min(64, len(points) // 100)))
    run = Parallel(n_jobs=jobs if len(chunks) > 1 else 1)
    ranks = np.concatenate(run(delayed(_ranks)(problem, chunk, temperature, tolerance) for chunk in chunks))
    return RankGrid(points, ranks[:, 0], ranks[:, 1])


def _ranks(problem: Problem, points: Floats, temperature: float, tolerance: float) -> Ints:
    blocks = [_Block(expert, read_equations(expert)) for expert in problem.experts]
    tests = [_test(problem, blocks, point, temperature, tolerance) for point in points]
    return np.array([(test.rank, test.augmented_rank) for test in tests], dtype=np.int64)


class _Block:
    """One expert's rows: all available actions of all states, and `V = 0` once for each terminal state."""

    def __init__(self, expert: Expert, equations: Equations) -> None:
        mdp = expert.mdp
        keep = (mdp.available & (~mdp.terminal[:, None] | (np.arange(mdp.n_actions) == 0))).T.ravel()
        self.n_states = mdp.n_states
        self.features = sp.csr_array(expert.feature_matrix).toarray()[keep]
        self.following = mdp.stacked.toarray()[keep]
        self.here = np.tile(np.eye(mdp.n_states), (mdp.n_actions, 1))[keep]
        self.logs = equations.log_policy.T.ravel()[keep]


def _test(problem: Problem, blocks: Sequence[_Block], discounts: Any, temperature: float, tolerance: float) -> RankTest:
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
    scaled = b * (values[0] / max(float(np.linalg.norm(b)), 1e-300))
    augmented = np.linalg.svd(np.column_stack([phi, scaled]), compute_uv=False)
    return RankTest(
        _rank(values, values[0], tolerance), _rank(augmented, values[0], tolerance), width, values, augmented, tolerance
    )


def _rank(values: Floats, largest: float, tolerance: float) -> int:
    return int((values > tolerance * largest).sum())
