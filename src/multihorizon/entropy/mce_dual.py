"""The convex dual of maximum causal entropy IRL at fixed discounts.

Maximising the experts' causal entropies subject to equal feature counts has, for one reward θ shared by all, the dual

    min_θ  J(θ) = Σ_i ρᵀ V_i(θ) − θᵀ f*_i,        V_i the soft values at discount γ_i and temperature λ_i,

which is convex with gradient `Σ_i (f_i(θ) − f*_i)`, the sum of the mismatches between the feature counts `f = Fᵀ μ` of the
soft-optimal policy and the expert's. With `G = ∂(Q − V)/∂θ` its Hessian is `Σ_i Gᵀ diag(μ π / λ) G`; a product with it
takes two solves with the resolvent, `∂V = (I − γP)^{-1} F_π ∂θ` and its transpose.

The minimiser is Newton's method. Up to DENSE_FEATURES parameters the Hessian is built and damped, `(H + τI)^{-1}`, with τ raised
until J falls as it should: near discount 1 some rewards have no finite value, and damping keeps away from them. Directions
that change no policy, such as a constant reward, are left alone. Beyond, conjugate gradients use products with the Hessian
and an Armijo line search. It stops when the largest entry of the gradient is below the tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse.linalg as spla

from multihorizon.checks import Floats
from multihorizon.experts import Expert
from multihorizon.planning.evaluation import causal_entropy, feature_counts, policy_entropy
from multihorizon.planning.linear import Resolvent
from multihorizon.planning.soft_plan import soft_plan
from multihorizon.problem import Problem

#: Up to this many reward parameters the Hessian is built and factorised.
DENSE_FEATURES = 400
MAX_STEPS = 200


def expert_policy(expert: Expert) -> Floats:
    """The policy whose feature counts are to be matched.

    Raises:
        ValueError: for demonstrations, whose frequencies are no policy in states that were visited seldom or never.
    """
    if expert.counts is not None:
        raise ValueError(
            f"expert {expert.name} must be given as a policy of action probabilities, received demonstrations: matching the "
            "feature counts of smoothed frequencies gives other rewards than the decisions do; use MaximumLikelihood"
        )
    return expert.require_policy()


def expert_order(problem: Problem) -> list[int]:
    """The experts in an order that depends on what they do, not on how they are listed: largest entropy first.

    The entropy is the causal one at discount 1/2. A search that draws its discounts in this order gives the same answer
    however the experts are listed or named.
    """
    keys = np.zeros((problem.n_experts, 2))
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        policy = expert_policy(expert)
        counts = feature_counts(expert.mdp, policy, 0.5, expert.feature_matrix)
        keys[owner] -= causal_entropy(expert.mdp, policy, 0.5), float(np.linalg.norm(counts))
    return [int(k) for k in np.lexsort(np.round(keys, 9).T[::-1])]


@dataclass(frozen=True, eq=False)
class Side:
    """One expert at one θ: soft values, policy, discounted visits `(S,)`, and the mismatch `f − f*` `(d,)`."""

    expert: Expert
    discount: float
    temperature: float
    values: Floats
    policy: Floats
    visits: Floats
    mismatch: Floats
    resolvent: Resolvent = field(repr=False)

    def derivative(self, direction: Floats) -> Floats:
        """`G ∂θ` for directions `(d,m)`, as `(A·S, m)`."""
        moved = np.asarray(self.expert.feature_matrix @ direction)
        weights = self.policy.T.ravel()[:, None]
        n_actions, n_states = self.expert.mdp.n_actions, self.expert.mdp.n_states
        mean = (weights * moved).reshape(n_actions, n_states, -1).sum(axis=0)
        change = self.resolvent.solve(mean[:, 0])[:, None] if mean.shape[1] == 1 else self.resolvent.solve(mean)
        ahead = np.asarray(self.expert.mdp.stacked @ change)
        result: Floats = moved + self.discount * ahead - np.tile(change, (n_actions, 1))
        return result

    def weigh(self) -> Floats:
        """`μ(s) π(a|s) / λ` as `(A·S,)`."""
        weights: Floats = (self.visits[:, None] * self.policy).T.ravel() / self.temperature
        return weights

    def hessian(self) -> Floats:
        """This expert's part of the Hessian, `(d,d)`."""
        derivative = self.derivative(np.eye(self.mismatch.size))
        built: Floats = derivative.T @ (self.weigh()[:, None] * derivative)
        return built

    def product(self, direction: Floats) -> Floats:
        """The Hessian times one direction `(d,)`."""
        y = self.weigh() * self.derivative(direction[:, None])[:, 0]
        pulled = self.resolvent.solve(self.discount * (self.expert.mdp.stacked.T @ y), transpose=True)
        spread = y + (pulled[:, None] * self.policy).T.ravel()
        result: Floats = self.expert.feature_matrix.T @ spread
        return result


@dataclass(frozen=True, eq=False)
class DualPoint:
    """θ, `J(θ)`, and each expert's side of it."""

    theta: Floats
    value: float
    sides: tuple[Side, ...]

    @property
    def gradient(self) -> Floats:
        """`Σ_i (f_i − f*_i)`."""
        total: Floats = np.sum([side.mismatch for side in self.sides], axis=0)
        return total

    @property
    def gap(self) -> float:
        """The paper's duality gap `l = θᵀ Σ_i (f_i − f*_i)`."""
        return float(self.theta @ self.gradient)

    @property
    def largest_mismatch(self) -> float:
        """The largest entry of any expert's `f_i − f*_i`."""
        return max(float(np.abs(side.mismatch).max()) for side in self.sides)

    @property
    def entropy(self) -> float:
        """`Σ_i H_i`, the causal entropies of the soft-optimal policies."""
        return float(sum(side.visits @ policy_entropy(side.policy) for side in self.sides))


class Dual:
    """The dual of a problem at given discounts and temperatures `(K,)`."""

    def __init__(self, problem: Problem, discounts: Floats, temperatures: Floats) -> None:
        self.problem = problem
        self.discounts, self.temperatures = discounts, temperatures
        self.policies = [expert_policy(expert) for expert in problem.experts]
        self.targets = [
            feature_counts(e.mdp, pi, float(discounts[o]), e.feature_matrix)
            for e, o, pi in zip(problem.experts, problem.owner, self.policies, strict=True)
        ]

    @property
    def expert_entropy(self) -> float:
        """`Σ_i H*_i`, the causal entropies of the experts at these discounts."""
        triples = zip(self.problem.experts, self.problem.owner, self.policies, strict=True)
        return sum(causal_entropy(e.mdp, pi, float(self.discounts[o])) for e, o, pi in triples)

    def at(self, theta: Floats, before: DualPoint | None = None) -> DualPoint | None:
        """Plan for every expert; None where a soft value is infinite."""
        sides, value = [], 0.0
        for number, (expert, owner) in enumerate(zip(self.problem.experts, self.problem.owner, strict=True)):
            gamma, lam = float(self.discounts[owner]), float(self.temperatures[owner])
            start = None if before is None else before.sides[number].values
            try:
                found = soft_plan(expert.mdp, expert.expected_reward(theta), gamma, lam, start)
                policy = np.where(expert.mdp.terminal[:, None], 0.0, found.policy)
                resolvent = Resolvent(expert.mdp.under(policy), gamma)
                visits = np.where(expert.mdp.terminal, 0.0, resolvent.solve(expert.mdp.initial, transpose=True))
            except (ValueError, RuntimeError):
                return None
            counts = expert.feature_matrix.T @ (visits[:, None] * policy).T.ravel()
            sides.append(Side(expert, gamma, lam, found.values, policy, visits, counts - self.targets[number], resolvent))
            value += float(expert.mdp.initial @ found.values - theta @ self.targets[number])
        return DualPoint(theta, value, tuple(sides))


@dataclass(frozen=True, eq=False)
class DualSolution:
    """The dual's minimiser; `gradient_norm` is the largest entry of the gradient, recomputed at the end."""

    point: DualPoint
    gradient_norm: float
    iterations: int
    converged: bool


def minimise_dual(dual: Dual, start: Floats | None = None, tolerance: float = 1e-9) -> DualSolution:
    """Newton's method from `start` (0 by default); `tolerance` bounds the largest entry of the gradient.

    Where it stops short of the tolerance, it begins again at another start, and the smallest gradient is kept.
    """
    found: list[DualSolution] = []
    for point in map(dual.at, _starts(dual, start)):
        if point is not None:
            found.append(_newton(dual, point, tolerance))
            if found[-1].converged:
                return found[-1]
    if not found:
        raise ValueError(f"no reward was found at which the soft values at discounts {dual.discounts.tolist()} are finite")
    return min(found, key=lambda solution: solution.gradient_norm)


def _newton(dual: Dual, point: DualPoint, tolerance: float) -> DualSolution:
    iterations, damping = 0, 0.0
    while iterations < MAX_STEPS and np.abs(point.gradient).max() > tolerance:
        iterations += 1
        if dual.problem.n_parameters <= DENSE_FEATURES:
            moved, damping = _damped_step(dual, point, damping)
        else:
            moved = _line_search(dual, point, _conjugate_direction(point))
        if moved is None:
            break
        point = moved
    norm = float(np.abs(point.gradient).max())
    return DualSolution(point, norm, iterations, norm <= tolerance)


def _starts(dual: Dual, start: Floats | None) -> Iterator[Floats]:
    """The given start, no reward, and a cost of every decision that outweighs its entropy: at discount 1 only that has values."""
    if start is not None:
        yield start
    yield np.zeros(dual.problem.n_parameters)
    expert = dual.problem.experts[0]
    live = (expert.mdp.available & ~expert.mdp.terminal[:, None]).T.ravel()
    cost = -2 * float(dual.temperatures.max()) * np.log(expert.mdp.n_actions)
    yield spla.lsqr(expert.feature_matrix, cost * live)[0]


def _damped_step(dual: Dual, point: DualPoint, damping: float) -> tuple[DualPoint | None, float]:
    """A step with the smallest damping, from the given one up, that is accepted; the damping to begin with next."""
    hessian = np.sum([side.hessian() for side in point.sides], axis=0)
    curvatures, axes = np.linalg.eigh(hessian)
    largest = max(float(curvatures[-1]), 1e-300)
    slopes = np.where(curvatures > 1e-13 * largest, axes.T @ point.gradient, 0.0)
    for _ in range(40):
        direction = -axes @ (slopes / np.maximum(curvatures + damping, 1e-13 * largest))
        moved = dual.at(point.theta + direction, point)
        if moved is not None and _accepted(point, moved, float(point.gradient @ direction)):
            return moved, damping / 10 if damping > 1e-12 * largest else 0.0
        damping = max(8 * damping, 1e-10 * largest)
    return None, damping


def _accepted(point: DualPoint, moved: DualPoint, slope: float) -> bool:
    """A fall of J in proportion to the slope; where J no longer resolves a fall, a smaller gradient."""
    rounding = 1e-14 * max(1.0, abs(point.value))
    if moved.value <= point.value + 1e-4 * slope - rounding:
        return True
    smaller = np.linalg.norm(moved.gradient) < 0.9 * np.linalg.norm(point.gradient)
    return bool(moved.value <= point.value + 10 * rounding and smaller)


def _conjugate_direction(point: DualPoint) -> Floats:
    gradient, width = point.gradient, point.theta.size
    operator = spla.LinearOperator((width, width), matvec=lambda x: _product(point.sides, x), dtype=np.float64)
    size = float(np.linalg.norm(gradient))
    solved, _ = spla.cg(operator, -gradient / size, rtol=min(0.1, max(1e-6, size)), atol=0.0, maxiter=200)
    return size * np.asarray(solved, dtype=np.float64)


def _product(sides: Sequence[Side], direction: Floats) -> Floats:
    total: Floats = np.sum([side.product(np.asarray(direction).ravel()) for side in sides], axis=0)
    return total


def _line_search(dual: Dual, point: DualPoint, direction: Floats) -> DualPoint | None:
    """Halve the step until it is accepted."""
    slope = float(point.gradient @ direction)
    if slope >= 0:
        direction, slope = -point.gradient, -float(point.gradient @ point.gradient)
    step = 1.0
    for _ in range(40):
        moved = dual.at(point.theta + step * direction, point)
        if moved is not None and _accepted(point, moved, step * slope):
            return moved
        step /= 2
    return None
