"""The paper's statements as checks that can be run: each returns the numbers that a statement is about.

**Is there a reward that explains all experts at given discounts?** At fixed Γ the experts' equations are linear in the reward
and the value functions, `Φ x = b` with x = (θ, V_1, …, V_n):

    F θ − (1 ⊗ I − γ_i T_A) V_i = λ log π_i        for every expert i (for one number per state, F = T_A).

They have a solution exactly if `rank(Φ|b) = rank Φ`, and one up to the constants only if that rank is `K|S| + |S| − 1` (all
states ordinary) or `K|S| + |S|` (with a terminal state, whose row says V = 0). Ranks count the singular values above `tolerance`
times the largest; b is scaled to that size before it is appended, so that the same tolerance judges it. `rank_test` does this.

`feasibility_grid` asks the same for a million points in seconds. There is a solution iff the experts' rewards can be made equal,
`û_k − γ_k V̂_k + (N − γ_k P_k N) z_k = r` for all k (`exact/equations.py`), in the unknowns r and z_k. Subtracting the mean over
k removes r. What is left has K·dim N columns and, after all vectors are written in one orthonormal basis, a few dozen rows,
whatever the number of states. One small singular value decomposition per point, done for many points at once, gives the distance
of the experts' rewards from each other: a root mean square in units of the reward, so that "almost feasible" can be seen. A grid
can miss a curve of solutions: it sees only the points that lie on it. `identify` does not.

**Theorem 2**, the chain `G* ≥ H* ≥ −L*` of the dual, the primal and the discounted likelihood: `duality_chain`. The paper's dual
has one reward for all experts, and with it strong duality fails. Eq. 10 has multipliers of its own for each expert.

**Proposition 1**, the expert is no critical point of the discounted likelihood, but is one of the plain likelihood:
`likelihood_slopes`.

**The summed duality gap** of Algorithm 2 vanishes at every Γ, the mismatch per expert does not: `gap_and_mismatch`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from multihorizon.checks import TINY, Bools, Floats, Ints, as_discount, as_positive
from multihorizon.driver import Grid
from multihorizon.entropy.mce import Dual, discount_gradient, minimise_dual
from multihorizon.exact.equations import RewardFamily, read_equations, reward_families
from multihorizon.mdp import MDP
from multihorizon.parallel import Progress, in_parallel, silent
from multihorizon.planning.plan import soft_plan
from multihorizon.problem import Problem

#: Directions below this share of the largest singular value are not used to explain anything.
SMALLEST_USED = 1e-10


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
        """Say whether some reward reproduces the experts at these discounts."""
        return self.rank == self.augmented_rank


def rank_test(problem: Problem, discounts: Sequence[float], temperature: float = 1.0, tolerance: float = 1e-9) -> RankTest:
    """Return the ranks of Φ and (Φ|b) of Proposition 2 at given discounts; dense, for small problems.

    Args:
        problem: experts given as policies without zero entries.
        discounts: one for each expert.
        temperature: the entropy weight λ.
        tolerance: singular values below this share of the largest count as zero.

    Returns:
        Both ranks, the spectra they come from, and whether some reward reproduces the experts (`feasible`).

    Example:
        >>> from multihorizon.domains import toy
        >>> d = toy(ending="absorbing")
        >>> found = rank_test(Problem(d.mdp, d.soft_experts()[:2]), [0.2, 0.7])
        >>> found.rank, found.augmented_rank
        (11, 11)
    """
    if len(discounts) != problem.n_experts:
        raise ValueError(f"discounts must have {problem.n_experts} entries, got {len(discounts)}")
    gammas = [as_discount(gamma) for gamma in discounts]
    as_positive(temperature, "temperature")
    as_positive(tolerance, "tolerance")
    rows = []
    logs = []
    column = problem.n_parameters
    width = column + sum(expert.mdp.n_states for expert in problem.experts)
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        expert = expert.at(gammas[owner])
        mdp = expert.mdp
        # All available actions of all states, and V = 0 once for each terminal state.
        keep = (mdp.available & (~mdp.terminal[:, None] | (np.arange(mdp.n_actions) == 0))).T.ravel()
        here = np.tile(np.eye(mdp.n_states), (mdp.n_actions, 1))[keep]
        row = np.zeros((len(here), width))
        row[:, : problem.n_parameters] = sp.csr_array(expert.feature_matrix).toarray()[keep]
        row[:, column : column + mdp.n_states] = gammas[owner] * mdp.stacked.toarray()[keep] - here
        column += mdp.n_states
        rows.append(row)
        logs.append(read_equations(expert).log_policy.T.ravel()[keep])
    phi = np.vstack(rows)
    b = temperature * np.concatenate(logs)
    values = np.asarray(np.linalg.svd(phi, compute_uv=False), dtype=np.float64)
    scaled = b * (values[0] / max(float(np.linalg.norm(b)), TINY))
    augmented = np.asarray(np.linalg.svd(np.column_stack([phi, scaled]), compute_uv=False), dtype=np.float64)
    rank, augmented_rank = (int((spectrum > tolerance * values[0]).sum()) for spectrum in (values, augmented))
    return RankTest(rank, augmented_rank, width, values, augmented, tolerance)


@dataclass(frozen=True, eq=False)
class RankGrid:
    """The test on a grid: discounts `(n,K)`, ranks `(n,)` of Φ and of (Φ|b)."""

    discounts: Floats
    rank: Ints
    augmented_rank: Ints

    @property
    def feasible(self) -> Bools:
        """Return where some reward reproduces the experts, `(n,)`."""
        mask: Bools = self.rank == self.augmented_rank
        return mask


def rank_grid(problem: Problem, step: float, temperature: float = 1.0, tolerance: float = 1e-9, jobs: int = 1) -> RankGrid:
    """Return the rank test on every point of a regular grid over [0,1]^K. Deprecated: use `feasibility_grid`."""
    points = np.array(list(itertools.product(Grid(step).axis(), repeat=problem.n_experts)))
    test = partial(rank_test, problem, temperature=temperature, tolerance=tolerance)
    tests = list(in_parallel(test, points.tolist(), jobs if len(points) > 100 else 1))
    return RankGrid(points, np.array([one.rank for one in tests]), np.array([one.augmented_rank for one in tests]))


@dataclass(frozen=True, eq=False)
class FeasibilityGrid:
    """`residuals[i, j, …]` is how far the experts' rewards stay apart at the discounts `(axis[i], axis[j], …)`."""

    axis: Floats
    residuals: Floats
    tolerance: float

    @property
    def feasible(self) -> Bools:
        """Mask of the grid points with a residual up to the tolerance."""
        return self.residuals <= self.tolerance

    @property
    def points(self) -> Floats:
        """Return the discounts `(n,K)` of the feasible points."""
        return self.axis[np.argwhere(self.feasible)]


def feasibility_grid(
    problem: Problem, grid: Grid | float, temperature: float = 1.0, tolerance: float = 1e-8, *, progress: Progress = silent
) -> FeasibilityGrid:
    """Return the rank test of Proposition 2 on a grid of discounts, as a residual.

    Args:
        problem: one task, a reward of one number per state, experts given as policies without zero entries.
        grid: the step, or a `Grid` of step and number of processes.
        temperature: the entropy weight the experts share.
        tolerance: residual, in units of the reward, up to which a point counts as feasible.
        progress: called as batches finish.

    Returns:
        `residuals` with one axis for each expert, the `axis`, and the feasible `points`.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> feasibility_grid(Problem(d.mdp, d.soft_experts()[1:]), Grid(0.04, jobs=1)).points.tolist()
        [[0.2, 0.52]]
    """
    as_positive(tolerance, "tolerance")
    grid = grid if isinstance(grid, Grid) else Grid(grid)
    axis = grid.axis()
    points = np.array(list(itertools.product(axis, repeat=problem.n_experts)))
    residuals = feasibility_at(problem, points, temperature, jobs=grid.jobs, progress=progress)
    return FeasibilityGrid(axis, residuals.reshape((axis.size,) * problem.n_experts), tolerance)


def feasibility_at(
    problem: Problem, points: Floats, temperature: float = 1.0, batch: int = 5000, *, jobs: int = 1, progress: Progress = silent
) -> Floats:
    """Return how far the experts' rewards stay apart at each of some discounts.

    Args:
        problem: one task, a reward of one number per state, experts given as policies without zero entries.
        points: `(m,K)`.
        temperature: the entropy weight the experts share.
        batch: how many points are worked on at a time.
        jobs: processes that share the batches; -1 is all cores.
        progress: called as batches finish.

    Returns:
        `(m,)`, in units of the reward: 0 where some reward explains all experts.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> far = feasibility_at(Problem(d.mdp, d.soft_experts()), np.array([d.soft_discounts, (0.1, 0.2, 0.3)]))
        >>> (far > 1e-6).tolist()
        [False, True]
    """
    families = _families(problem)
    lam = as_positive(temperature, "temperature")
    u, v = (lam * np.stack([getattr(family, name) for family in families]) for name in ("u", "v"))
    basis, pushed = np.stack([family.basis for family in families]), np.stack([family.pushed for family in families])
    # All vectors in one orthonormal basis.
    columns = np.concatenate([u.T, v.T, *basis, *pushed], axis=1)
    frame = np.linalg.qr(columns)[0] if columns.shape[1] < columns.shape[0] else np.eye(columns.shape[0])
    distances = partial(_distances, u @ frame, v @ frame, frame.T @ basis, frame.T @ pushed, u.shape[1])
    batches = np.array_split(points, max(1, len(points) // batch))
    parts: list[Floats] = []
    for part in in_parallel(distances, batches, jobs):
        parts.append(part)
        progress(len(parts) / len(batches), "feasibility of the grid")
    return np.concatenate(parts)


def _families(problem: Problem) -> list[RewardFamily]:
    """Return what each expert says of the reward; raises where there are several tasks."""
    if len(problem.mdps) > 1:
        raise ValueError("a grid of discounts needs a problem with one task, got one that joins several MDPs")
    families = reward_families(problem, [read_equations(expert) for expert in problem.experts], error=1e-8)
    if any(sp.issparse(family.basis) for family in families):
        raise ValueError(
            "a grid of discounts needs a task whose actions distinguish most states, got one of "
            f"{families[0].u.size} states with very many that they do not: use identify"
        )
    return families


def _distances(u: Floats, v: Floats, basis: Floats, pushed: Floats, states: int, points: Floats) -> Floats:
    """Return distances by projection on the range of the nuisance columns, for a batch of points: û, V̂ `(K,n)`, N, P N
    `(K,n,p)`.
    """
    n_experts, size, width = basis.shape
    count = len(points)
    data = u - points[:, :, None] * v
    data = data - data.mean(axis=1, keepdims=True)
    blocks = basis - points[:, :, None, None] * pushed
    matrix = np.zeros((count, n_experts, size, n_experts, width))
    for k in range(n_experts):
        matrix[:, :, :, k] = -blocks[:, None, k] / n_experts
        matrix[:, k, :, k] += blocks[:, k]
    left, values, _ = np.linalg.svd(matrix.reshape(count, n_experts * size, n_experts * width), full_matrices=False)
    used = left * (values > SMALLEST_USED * values.max(axis=1, keepdims=True))[:, None, :]
    flat = data.reshape(count, -1, 1)
    rest = flat - used @ (used.transpose(0, 2, 1) @ flat)
    distance: Floats = np.sqrt((rest[:, :, 0] ** 2).sum(axis=1) / (n_experts * states))
    return distance


def rewards_at(problem: Problem, points: Floats, temperature: float = 1.0) -> Floats:
    """Return the reward that explains the experts best at each of some discounts; of several, the one with least z.

    Args:
        problem: one task, a reward of one number per state, experts given as policies without zero entries.
        points: discounts `(m,K)`.
        temperature: the entropy weight the experts share.

    Returns:
        `(m,S)`; entries of states that no transition enters are 0.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> rewards_at(Problem(d.mdp, d.soft_experts()), np.array([d.soft_discounts])).round(6)[0, :4].tolist()
        [-10.0, -10.0, -10.0, 20.0]
    """
    lam = as_positive(temperature, "temperature")
    families = _families(problem)
    rewards = np.zeros((len(points), problem.n_parameters))
    for row, discounts in zip(rewards, points, strict=True):
        pairs = list(zip(families, discounts, strict=True))
        data = [lam * (family.u - gamma * family.v) for family, gamma in pairs]
        blocks = [family.basis - gamma * family.pushed for family, gamma in pairs]
        mean = np.mean(data, axis=0)
        shared = np.concatenate(blocks, axis=1) / len(families)
        width = blocks[0].shape[1]
        sides = [-shared.copy() for _ in blocks]
        for k, block in enumerate(blocks):
            sides[k][:, k * width : (k + 1) * width] += block
        z = np.linalg.lstsq(np.concatenate(sides), -np.concatenate([d - mean for d in data]), rcond=SMALLEST_USED)[0]
        row[families[0].parameters] = mean + shared @ z
    return rewards


@dataclass(frozen=True)
class DualityChain:
    """`dual` ≥ G*, `primal` = H* over the feasible discounts given, `likelihood` ≥ −L*; the theorem says dual ≥ primal ≥ −L*.

    `dual_bound` ≤ G* bounds the dual from below, and `entropy` is H* over all discounts given, which Eq. 10 as printed allows.
    So strong duality fails where `dual_bound` is larger than `entropy`.
    """

    dual: float
    primal: float
    likelihood: float
    dual_bound: float
    entropy: float


def duality_chain(problem: Problem, feasible: Sequence[float], axis: Sequence[float], temperature: float = 1.0) -> DualityChain:
    """Return the three values of Theorem 2, with discounts restricted to `axis` and the feasible point.

    With `f(θ, Γ) = Σ_k ρᵀV_k − θᵀf*_k`: H* is the experts' entropy at their own discounts (`feasible`), the only ones of an
    identified problem that one reward explains; `G* = min_θ max_Γ f` separates over experts for fixed θ, is convex in θ, and is
    minimised by smoothing the maxima; `−L* = min_Γ min_θ f`. The first three values are attained by some θ and Γ. The true G*
    and −L* may be smaller than returned, by what the optimisation missed. The smooth function is above the maxima by at most
    `Σ_k log n_k / s`, with n_k discounts and sharpness s, so its minimum less that bounds G* from below.

    Args:
        problem: experts given as policies.
        feasible: the experts' discounts.
        axis: the other discounts that are tried for each of them.
        temperature: the entropy weight λ.

    Returns:
        `dual`, `primal`, `likelihood`, `dual_bound` and `entropy`.

    Example:
        >>> from multihorizon.domains import toy
        >>> chain = duality_chain(Problem(toy().mdp, toy().soft_experts()), (0.3, 0.5, 0.95), (0.0, 0.9))
        >>> chain.dual_bound > chain.entropy > chain.primal > chain.likelihood
        True
    """
    lam = np.full(problem.n_experts, temperature)
    discounts = np.asarray(feasible, dtype=np.float64)
    levels = [np.unique([*axis, gamma]) for gamma in discounts]
    primal_dual = Dual(problem, discounts, lam)
    matched = minimise_dual(primal_dual).point
    # The part of the dual that belongs to expert k, in all of their tasks, at each of their discounts.
    grids = []
    for k, level in enumerate(levels):
        part = problem.with_experts(e for e, owner in zip(problem.experts, problem.owner, strict=True) if owner == k)
        grids.append([Dual(part, np.array([gamma]), np.array([temperature])) for gamma in level])
    theta = matched.theta
    for sharpness in (3.0, 30.0, 300.0):
        theta = minimize(_smoothed, theta, (grids, sharpness), jac=True, method="L-BFGS-B").x
    candidates = [sum(max(_value(dual, t)[0] for dual in row) for row in grids) for t in (matched.theta, theta)]
    # The last minimum once more, to all digits: the bound is none above it.
    strict = {"ftol": 1e-14, "gtol": 1e-9, "maxiter": 2000}
    smooth = minimize(_smoothed, theta, (grids, sharpness), jac=True, method="L-BFGS-B", options=strict)
    bound = float(smooth.fun) - float(np.log([level.size for level in levels]).sum()) / sharpness
    entropy = temperature * sum(max(dual.expert_entropy for dual in row) for row in grids)
    lowest = minimise_dual(Dual(problem, np.array([level.min() for level in levels]), lam)).point.value
    primal = temperature * primal_dual.expert_entropy
    return DualityChain(min(candidates), primal, min(lowest, matched.value), bound, entropy)


def _value(dual: Dual, theta: Floats) -> tuple[float, Floats]:
    point = dual.at(theta)
    if point is None:
        return np.inf, np.zeros_like(theta)
    return point.value, point.gradient


def _smoothed(theta: Floats, grids: list[list[Dual]], sharpness: float) -> tuple[float, Floats]:
    """Return `Σ_k (1/s) log Σ_γ exp(s f_k(θ,γ))` and its gradient."""
    total = 0.0
    gradient = np.zeros_like(theta)
    for row in grids:
        values, slopes = zip(*(_value(dual, theta) for dual in row), strict=True)
        peak = max(values)
        weights = np.exp(sharpness * (np.array(values) - peak))
        total += peak + float(np.log(weights.sum())) / sharpness
        gradient += (weights / weights.sum()) @ np.array(slopes)
    return total, gradient


@dataclass(frozen=True)
class LikelihoodSlopes:
    """Derivatives in logit γ at the expert, per expert `(K,)`, and what the discounted one should be: `−∂H/∂ logit γ`."""

    discounted: Floats
    plain: Floats
    entropy: Floats


def likelihood_slopes(mdp: MDP, reward: Any, discounts: Sequence[float], temperature: float = 1.0) -> LikelihoodSlopes:
    """Return derivatives of the likelihoods in logit γ at the experts' reward and discounts: Eq. 24 and Proposition 1.

    That of the discounted likelihood of Eq. 11 is exact; those of the plain one, `Σ_s Σ_a π*(a|s) log π_γ(a|s)`, and of the
    entropy are taken numerically.

    Args:
        mdp: the decision process.
        reward: `(S,)`, of all experts.
        discounts: one for each expert.
        temperature: the entropy weight λ.

    Returns:
        `discounted`, `plain` and `entropy`, each `(K,)`.

    Example:
        >>> from multihorizon.domains import toy
        >>> likelihood_slopes(toy().mdp, toy().reward, [0.3, 0.5, 0.95]).discounted.round(3).tolist()
        [-0.083, -0.256, -0.089]
    """
    gammas = np.asarray(discounts, dtype=np.float64)
    experts = [soft_plan(mdp, reward, gamma, temperature).policy for gamma in gammas]
    dual = Dual(Problem(mdp, experts), gammas, np.full(gammas.size, temperature))
    at = dual.at(np.asarray(reward, dtype=np.float64))
    assert at is not None

    def plain(gamma: float, policy: Floats) -> float:
        return float((policy * soft_plan(mdp, reward, gamma, temperature).log_policy)[mdp.live].sum())

    def entropy(gamma: float, policy: Floats) -> float:
        return Dual(Problem(mdp, [policy]), np.array([gamma]), np.ones(1)).expert_entropy

    def slopes(function: Callable[[float, Floats], float]) -> Floats:
        ends = [(max(gamma - 1e-5, 0.0), min(gamma + 1e-5, 1.0), policy) for gamma, policy in zip(gammas, experts, strict=True)]
        return np.array([(function(high, policy) - function(low, policy)) / (high - low) for low, high, policy in ends])

    chain = gammas * (1 - gammas)
    return LikelihoodSlopes(chain * discount_gradient(dual, at), chain * slopes(plain), chain * slopes(entropy))


@dataclass(frozen=True)
class GapAndMismatch:
    """At the dual's optimum for given discounts: the paper's gap `θᵀ Σ_k (f_k − f*_k)` and each `‖f_k − f*_k‖`."""

    gap: float
    mismatch: Floats


def gap_and_mismatch(problem: Problem, discounts: Sequence[float], temperature: float = 1.0) -> GapAndMismatch:
    """Return the summed gap of Algorithm 2 and each expert's mismatch at given discounts.

    Args:
        problem: experts given as policies.
        discounts: one for each expert.
        temperature: the entropy weight λ.

    Returns:
        `gap`, and `mismatch` `(n,)`; NaN where the dual's minimum was not reached.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> wrong = gap_and_mismatch(Problem(d.mdp, d.soft_experts()), (0.5, 0.2, 0.0))
        >>> abs(wrong.gap) < 1e-9, bool(wrong.mismatch.max() > 0.1)
        (True, True)
    """
    gammas = np.asarray(discounts, dtype=np.float64)
    minimum = minimise_dual(Dual(problem, gammas, np.full(problem.n_experts, temperature)))
    if minimum.gradient_norm > 1e-6:
        return GapAndMismatch(np.nan, np.full(len(problem.experts), np.nan))
    return GapAndMismatch(
        minimum.point.gap, np.array([np.linalg.norm(response.mismatch) for response in minimum.point.responses])
    )


__all__ = [
    "DualityChain",
    "FeasibilityGrid",
    "GapAndMismatch",
    "LikelihoodSlopes",
    "RankTest",
    "duality_chain",
    "feasibility_at",
    "feasibility_grid",
    "gap_and_mismatch",
    "likelihood_slopes",
    "rank_test",
    "rewards_at",
]
