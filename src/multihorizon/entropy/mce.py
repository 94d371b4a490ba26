"""Maximum causal entropy IRL at known discounts, by its convex dual.

Maximising the experts' causal entropies subject to equal feature counts has, for one reward θ shared by all, the dual

    min_θ  J(θ) = Σ_i ρᵀ V_i(θ) − θᵀ f*_i,        V_i the soft values at discount γ_i and temperature λ_i,

which is convex with gradient `Σ_i (f_i(θ) − f*_i)`, the sum of the mismatches between the feature counts `f = Fᵀ μ` of the
soft-optimal policy and the expert's. With `G = ∂(Q − V)/∂θ` its Hessian is `Σ_i Gᵀ diag(μ π / λ) G`; a product with it
takes two solves with the resolvent, `∂V = (I − γP)^{-1} F_π ∂θ` and its transpose.

It is minimised by SciPy's trust-region Newton methods: with the Hessian up to 600 parameters, with products beyond.
Near discount 1 some rewards have no finite value; there J counts as infinite, and the trust region keeps away. Directions that
change no policy, such as a constant reward, are flat and left alone. The minimum is reached when the largest entry of the
gradient, recomputed, is below the tolerance.

**In the discounts** the minimum moves as the discounted likelihood of the paper's MPML-IRL does,

    L(θ, Γ) = Σ_i Σ μ*_i(s,a) log π_{θ,γ}(a|s) = Σ_i (θᵀ f*_i − ρᵀ V_i(θ)) / λ,      μ*_i the expert's discounted visits at γ,

whose maximiser in θ at fixed Γ is the dual's minimiser. With `R = (I − γP_π)^{-1}` for the policy planned from θ and `R*` for the
expert's,

    ∂(ρᵀV)/∂γ = ρᵀ R P_π V,      ∂(θᵀf*)/∂γ = ρᵀ R* P_π* R* r_π*,      r_π* = Σ_a π*(a|·) (F θ)(·,a).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.optimize import minimize

from multihorizon.checks import ROUNDING, Floats, as_discount, as_positive, first_few
from multihorizon.mdp import refuse_durations
from multihorizon.parallel import Progress, silent
from multihorizon.planning.linear import Resolvent
from multihorizon.planning.plan import causal_entropy, feature_counts, occupancy, policy_entropy, soft_plan
from multihorizon.problem import Expert, Problem
from multihorizon.solution import Evidence, Solution, Status
from multihorizon.words import power_of_ten, significant

#: Curvatures below this share of the largest belong to rewards that change no policy.
FLAT = 1e-12


def expert_policy(expert: Expert) -> Floats:
    """Return the policy whose feature counts are to be matched; raises for demonstrations (see `Problem.observed_policies`)."""
    return expert.require_policy()


@dataclass(frozen=True, eq=False)
class Response:
    """One expert's soft-optimal response to θ: values, policy, discounted visits `(S,)`, and the mismatch `f − f*` `(d,)`."""

    expert: Expert
    discount: float
    temperature: float
    values: Floats
    policy: Floats
    visits: Floats
    mismatch: Floats
    resolvent: Resolvent = field(repr=False)

    def advantage_change(self, direction: Floats) -> Floats:
        """Return `G ∂θ` for directions `(d,m)`, as `(A·S, m)`."""
        moved = np.asarray(self.expert.feature_matrix @ direction)
        weights = self.policy.T.ravel()[:, None]
        n_actions, n_states = self.expert.mdp.n_actions, self.expert.mdp.n_states
        mean = (weights * moved).reshape(n_actions, n_states, -1).sum(axis=0)
        change = self.resolvent.solve(mean[:, 0])[:, None] if mean.shape[1] == 1 else self.resolvent.solve(mean)
        ahead = np.asarray(self.expert.mdp.stacked @ change)
        return moved + self.discount * ahead - np.tile(change, (n_actions, 1))

    @property
    def weights(self) -> Floats:
        """Return `μ(s) π(a|s) / λ` as `(A·S,)`."""
        return (self.visits[:, None] * self.policy).T.ravel() / self.temperature

    def hessian(self) -> Floats:
        """Return this expert's part of the Hessian, `(d,d)`."""
        derivative = self.advantage_change(np.eye(self.mismatch.size))
        return derivative.T @ (self.weights[:, None] * derivative)

    def hessian_product(self, direction: Floats) -> Floats:
        """Return the Hessian times one direction `(d,)`."""
        y = self.weights * self.advantage_change(direction[:, None])[:, 0]
        pulled = self.resolvent.solve(self.discount * (self.expert.mdp.stacked.T @ y), transpose=True)
        spread = y + (pulled[:, None] * self.policy).T.ravel()
        result: Floats = self.expert.feature_matrix.T @ spread
        return result


@dataclass(frozen=True, eq=False)
class DualPoint:
    """θ, `J(θ)`, and each expert's response to it."""

    theta: Floats
    value: float
    responses: tuple[Response, ...]

    @property
    def gradient(self) -> Floats:
        """Return `Σ_i (f_i − f*_i)`."""
        total: Floats = np.sum([response.mismatch for response in self.responses], axis=0)
        return total

    def hessian(self) -> Floats:
        """Return the second derivative of J, `(d,d)`."""
        total: Floats = np.sum([response.hessian() for response in self.responses], axis=0)
        return total

    def hessian_product(self, direction: Floats) -> Floats:
        """Return the Hessian times one direction `(d,)`."""
        total: Floats = np.sum([response.hessian_product(direction) for response in self.responses], axis=0)
        return total

    @property
    def gap(self) -> float:
        """Return the paper's duality gap `l = θᵀ Σ_i (f_i − f*_i)`."""
        return float(self.theta @ self.gradient)

    @property
    def largest_mismatch(self) -> float:
        """Return the largest entry of any expert's `f_i − f*_i`."""
        return max(float(np.abs(response.mismatch).max()) for response in self.responses)

    @property
    def entropy(self) -> float:
        """Return `Σ_i H_i`, the causal entropies of the soft-optimal policies."""
        return float(sum(response.visits @ policy_entropy(response.policy) for response in self.responses))


class Dual:
    """The dual of a problem at given discounts and temperatures `(K,)`.

    `targets` are the experts' feature counts f*, and `paid` is what the known part of the reward pays them, if there is one.
    """

    def __init__(self, problem: Problem, discounts: Floats, temperatures: Floats) -> None:
        refuse_durations(problem.mdps, "a solver of maximum causal entropy")
        self.problem = problem
        self.discounts, self.temperatures = discounts, temperatures
        self.policies = [expert_policy(expert) for expert in problem.experts]
        self.targets: list[Floats] = []
        self.paid: list[float] = []
        for expert, owner, policy in zip(problem.experts, problem.owner, self.policies, strict=True):
            counts = occupancy(expert.mdp, policy, float(discounts[owner])).counts.T.ravel()
            self.targets.append(expert.feature_matrix.T @ counts)
            self.paid.append(0.0 if expert.known_reward is None else float(expert.known_reward @ counts))

    @property
    def expert_entropy(self) -> float:
        """Return `Σ_i H*_i`, the causal entropies of the experts at these discounts."""
        triples = zip(self.problem.experts, self.problem.owner, self.policies, strict=True)
        return sum(causal_entropy(e.mdp, pi, float(self.discounts[o])) for e, o, pi in triples)

    def at(self, theta: Floats, before: DualPoint | None = None) -> DualPoint | None:
        """Plan for every expert; None where a soft value is infinite."""
        responses = []
        value = 0.0
        for number, (expert, owner) in enumerate(zip(self.problem.experts, self.problem.owner, strict=True)):
            gamma, lam = float(self.discounts[owner]), float(self.temperatures[owner])
            start = None if before is None else before.responses[number].values
            try:
                plan = soft_plan(expert.mdp, expert.expected_reward(theta), gamma, lam, start=start)
                policy = np.where(expert.mdp.terminal[:, None], 0.0, plan.policy)
                resolvent = Resolvent(expert.mdp.under(policy), gamma)
                visits = np.where(expert.mdp.terminal, 0.0, resolvent.solve(expert.mdp.initial, transpose=True))
            except (ValueError, RuntimeError):
                return None
            counts = expert.feature_matrix.T @ (visits[:, None] * policy).T.ravel()
            responses.append(Response(expert, gamma, lam, plan.values, policy, visits, counts - self.targets[number], resolvent))
            value += float(expert.mdp.initial @ plan.values - theta @ self.targets[number]) - self.paid[number]
        return DualPoint(theta, value, tuple(responses))


def _least_squares(dual: Dual) -> Floats:
    """Return the reward that comes nearest to `F θ + γ T V_i − V_i = λ log π*_i`, a row weighted by how often the expert decides
    so.

    For experts who are soft-optimal for one reward at these discounts it is the answer.
    """
    parts, rights = [], []
    for number, (expert, owner, policy) in enumerate(zip(dual.problem.experts, dual.problem.owner, dual.policies, strict=True)):
        mdp = expert.mdp
        gamma = float(dual.discounts[owner])
        lam = float(dual.temperatures[owner])
        counts = occupancy(mdp, policy, gamma).counts.T.ravel()
        with np.errstate(divide="ignore"):
            logs = lam * np.log(policy).T.ravel()
        if expert.known_reward is not None:
            logs = logs - expert.known_reward
        weights = np.sqrt(np.where(np.isfinite(logs), np.maximum(counts, 0.0), 0.0))
        live = sp.diags_array(np.where(mdp.terminal, 0.0, 1.0))
        values = (gamma * mdp.stacked - sp.vstack([sp.eye_array(mdp.n_states)] * mdp.n_actions)) @ live
        blocks = [sp.csr_array((values.shape[0], each.mdp.n_states)) for each in dual.problem.experts]
        blocks[number] = values
        parts.append(sp.diags_array(weights) @ sp.hstack([expert.feature_matrix, *blocks], format="csr"))
        rights.append(weights * np.where(np.isfinite(logs), logs, 0.0))
    answer = np.linalg.lstsq(sp.vstack(parts).toarray(), np.concatenate(rights), rcond=1e-12)[0]
    theta: Floats = answer[: dual.problem.n_parameters]
    return theta


def count_errors(dual: Dual, problem: Problem) -> list[float] | None:
    """Return the standard error of each expert's feature counts `f*`, as a length; None where no expert is given as
    demonstrations.
    """
    if all(expert.counts is None for expert in problem.experts):
        return None
    return [float(np.linalg.norm(factor)) for factor in error_factors(dual, problem)]


def error_factors(dual: Dual, problem: Problem) -> Iterator[Floats]:
    """Yield for each expert X `(A·S,d)` such that XᵀX is the covariance of the feature counts.

    `problem` holds the decisions, and the dual the same experts as `observed_policies`. An error `δπ(·|s)` of the frequencies
    moves the counts by `μ(s) Σ_a δπ(a|s) g(s,a)`, where `g = F + γ T R F_π` are the counts from `(s,a)` on. Frequencies of N(s)
    independent choices have the covariance `(diag(π) − ππᵀ) / N(s)`, hence

        Cov(f*) = Σ_s μ(s)² / N(s)  Σ_a π(a|s) h(s,a) h(s,a)ᵀ,      h(s,a) = g(s,a) − Σ_b π(b|s) g(s,b).
    """
    for logged, expert, owner in zip(problem.experts, dual.problem.experts, dual.problem.owner, strict=True):
        if logged.counts is None:
            yield np.zeros((1, dual.problem.n_parameters))
            continue
        mdp = expert.mdp
        gamma = float(dual.discounts[owner])
        policy = np.where(mdp.terminal[:, None], 0.0, expert.require_policy())
        resolvent = Resolvent(mdp.under(policy), gamma)
        visits = np.where(mdp.terminal, 0.0, resolvent.solve(mdp.initial, transpose=True))
        features = expert.feature_matrix.toarray()
        each = policy.T[:, :, None]
        start = (each * features.reshape(mdp.n_actions, mdp.n_states, -1)).sum(axis=0)
        onward = (features + gamma * (mdp.stacked @ resolvent.solve(start))).reshape(mdp.n_actions, mdp.n_states, -1)
        weights = visits / np.sqrt(np.maximum(logged.counts.sum(axis=1), 1.0))
        spread = np.sqrt(each) * (onward - (each * onward).sum(axis=0)) * weights[:, None]
        yield spread.reshape(-1, features.shape[1])


@dataclass(frozen=True, eq=False)
class DualSolution:
    """The dual's minimiser; `gradient_norm` is the largest entry of the gradient, recomputed at the end."""

    point: DualPoint
    gradient_norm: float
    iterations: int
    converged: bool


def minimise_dual(dual: Dual, start: Floats | None = None, tolerance: float = 1e-9, dense_features: int = 600) -> DualSolution:
    """Minimise from `start` (no reward by default); `tolerance` bounds the largest entry of the gradient.

    Up to `dense_features` parameters the Hessian is computed.
    Where it stops short of the tolerance, it begins again at another start, and the smallest gradient is kept.
    """
    solutions: list[DualSolution] = []
    for point in map(dual.at, _starts(dual, start, dense_features)):
        if point is not None:
            solutions.append(_newton(dual, point, tolerance, dense_features))
            if solutions[-1].converged:
                return solutions[-1]
    if not solutions:
        raise ValueError(f"no reward was found at which the soft values at discounts {dual.discounts.tolist()} are finite")
    return min(solutions, key=lambda solution: solution.gradient_norm)


def _starts(dual: Dual, start: Floats | None, dense_features: int) -> Iterator[Floats]:
    """Yield the given start, the reward of least squares, none, and a cost of each decision above its entropy.

    At discount 1 only the last has values.
    """
    if start is not None:
        yield start
    elif dual.problem.n_parameters + sum(expert.mdp.n_states for expert in dual.problem.experts) <= 3 * dense_features:
        yield _least_squares(dual)
    yield np.zeros(dual.problem.n_parameters)
    tasks = {id(expert.feature_matrix): expert for expert in dual.problem.experts}.values()
    costs = [-2 * float(dual.temperatures.max()) * np.log(task.mdp.n_actions) * task.mdp.live.T.ravel() for task in tasks]
    yield spla.lsqr(sp.vstack([task.feature_matrix for task in tasks], format="csr"), np.concatenate(costs))[0]


def _newton(dual: Dual, start: DualPoint, tolerance: float, dense_features: int) -> DualSolution:
    """Return SciPy's trust-region Newton method from one point; it stops by the gradient's length, which bounds its largest
    entry.
    """
    path = _Path(dual, start)
    dense = start.theta.size <= dense_features
    with np.errstate(invalid="ignore"):
        result = minimize(
            path.value,
            start.theta,
            jac=lambda theta: path.reached(theta).gradient,
            hess=(lambda theta: path.reached(theta).hessian()) if dense else None,
            hessp=None if dense else (lambda theta, direction: path.reached(theta).hessian_product(direction)),
            method="trust-exact" if dense else "trust-ncg",
            # Where two discounts are nearly equal, only rewards of millions distinguish the experts.
            options={"gtol": tolerance, "maxiter": 200, "max_trust_radius": 1e10},
        )
    point = path.reached(result.x)
    # Three plain Newton steps, each of which squares the error, while they halve the gradient, toward the reward of least length
    # with these policies. Near the minimum J itself no longer shows which of two points is lower, and where it is nearly flat a
    # gradient of 1e-8 can leave a reward far from its limit.
    for number in range(3 if dense else 0):
        curvatures, axes = np.linalg.eigh(point.hessian())
        curved = curvatures > FLAT * curvatures[-1]
        along = axes[:, curved]
        moved = dual.at(along @ (along.T @ point.theta - (along.T @ point.gradient) / curvatures[curved]), point)
        enough = 1.0 if number == 0 else 0.5
        if moved is None or np.abs(moved.gradient).max() > enough * np.abs(point.gradient).max() + ROUNDING:
            break
        point = moved
    norm = float(np.abs(point.gradient).max())
    return DualSolution(point, norm, int(result.nit), norm <= tolerance)


class _Path:
    """The points of one minimisation: SciPy asks for value, gradient and curvature of a point in turn.

    The lowest point is kept: a trust-region method returns to it from every step that it rejects.
    """

    def __init__(self, dual: Dual, start: DualPoint) -> None:
        self.dual, self.lowest, self.last = dual, start, start

    def value(self, theta: Floats) -> float:
        """Return `J(θ)`, infinite where a soft value is."""
        point = self._at(theta)
        return np.inf if point is None else point.value

    def reached(self, theta: Floats) -> DualPoint:
        """Return the point; where its value is infinite, the lowest one, because SciPy asks for derivatives before it rejects."""
        return self._at(theta) or self.lowest

    def _at(self, theta: Floats) -> DualPoint | None:
        for visited in (self.last, self.lowest):
            if np.array_equal(theta, visited.theta):
                return visited
        point = self.dual.at(np.array(theta), self.lowest)
        if point is not None:
            self.last = point
            self.lowest = min(self.lowest, point, key=lambda visited: visited.value)
        return point


def discount_gradient(dual: Dual, point: DualPoint) -> Floats:
    """Return `∂L/∂γ_k` `(K,)` at fixed θ; at the maximiser in θ also the gradient of `max_θ L`."""
    gradient = np.zeros(dual.problem.n_experts)
    for response, owner, policy in zip(point.responses, dual.problem.owner, dual.policies, strict=True):
        mdp = response.expert.mdp
        soft = float(response.visits @ (mdp.under(response.policy) @ response.values))
        pi = np.where(mdp.terminal[:, None], 0.0, policy)
        matrix = mdp.under(pi)
        resolvent = Resolvent(matrix, response.discount)
        worth = resolvent.solve((pi * response.expert.expected_reward(point.theta)).sum(axis=1))
        visits = resolvent.solve(mdp.initial, transpose=True)
        gradient[owner] += (float(visits @ (matrix @ worth)) - soft) / response.temperature
    return gradient


def expert_order(problem: Problem) -> list[int]:
    """Return the experts in an order that depends on what they do, not on how they are listed: largest entropy first.

    The entropy is the causal one at discount 1/2. A search that draws its discounts in this order gives the same answer
    however the experts are listed or named.
    """
    keys = np.zeros((problem.n_experts, 2))
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        policy = expert_policy(expert)
        counts = feature_counts(expert.mdp, policy, 0.5, expert.feature_matrix)
        keys[owner] -= causal_entropy(expert.mdp, policy, 0.5), float(np.linalg.norm(counts))
    return [int(k) for k in np.lexsort(np.round(keys, 9).T[::-1])]


@dataclass(frozen=True, eq=False, kw_only=True)
class EntropyEvidence(Evidence, solvers=("MCE", "MPML", "MPMCE")):
    """What `MCE`, `MPML` and `MPMCE` say.

    Attributes:
        summed_gap: the paper's duality gap `θᵀ Σ_k (f_k − f*_k)`.
        mismatch: the length of each expert's `f_k − f*_k`.
        entropy: the summed causal entropies of the soft-optimal policies.
        dual_gradient: the largest entry of the dual's gradient.
        entropy_within_reach: the entropy that discounts nearby promise beyond the answer's, where a climb led to it.
        count_errors: of demonstrations, the standard error of each expert's feature counts, as a length: what a mismatch of
            the right answer is expected to be.
    """

    summed_gap: float
    mismatch: list[float]
    entropy: float
    dual_gradient: float
    entropy_within_reach: float | None = None
    count_errors: list[float] | None = None

    def ambiguity(self, solver: str, needs_reward: bool) -> str:
        """Say that the policies do not determine the reward, where it matters."""
        why = f"The reward of {solver} may be one of many that explain the policies: hand in what identify(problem) finds."
        return why if needs_reward else ""


@dataclass(frozen=True)
class MCE:
    """Maximum-causal-entropy IRL at known discount factors: the paper's Eq. 8 and 9 (Ziebart 2010; Zeng et al. 2022).

    Among all policies that match the experts' feature counts it is the one of largest causal entropy; its multipliers θ are the
    reward. Minimises the convex dual `Σ_k ρᵀ V_k(θ) − θᵀ f*_k` by Newton's method. The solution's `residual` is the largest entry
    of the dual's gradient, recomputed at the answer, and `objective` the dual's value, which at the optimum is the entropy.

    Demonstrations count with their frequencies (`Problem.observed_policies`). The error that their number leaves in each expert's
    feature counts is `evidence["count_errors"]`, to be compared with `evidence["mismatch"]`.

    Args:
        discount: one number for all experts, or one for each; it has no default.
        temperature: the entropy weight λ that all experts share.
        tolerance: the largest entry of the gradient at which the iteration stops.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> problem = mh.Problem(d.mdp, d.soft_experts())
        >>> str(mh.solve(problem, MCE(discount=d.soft_discounts)).status)
        'converged'
    """

    discount: float | Sequence[float]
    temperature: float = 1.0
    tolerance: float = 1e-8

    def __post_init__(self) -> None:
        for value in np.atleast_1d(np.asarray(self.discount, dtype=object)):
            as_discount(value)
        as_positive(self.temperature, "temperature")
        as_positive(self.tolerance, "tolerance")

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Minimise the dual; nothing in it is random."""
        progress(0.0, "MCE: minimising the dual")
        given = np.atleast_1d(np.asarray(self.discount, dtype=np.float64))
        if given.size not in (1, problem.n_experts):
            raise ValueError(f"discount must be one number or one for each of {problem.n_experts} experts, got {given.size}")
        discounts = np.broadcast_to(given, (problem.n_experts,)).copy()
        temperature = np.full(problem.n_experts, float(self.temperature))
        observed = problem.observed_policies()
        dual = Dual(observed, discounts, temperature)
        minimum = minimise_dual(dual, tolerance=self.tolerance)
        errors = count_errors(dual, problem)
        reached = f"dual gradient {power_of_ten(minimum.gradient_norm)} after {minimum.iterations} Newton steps"
        return Solution(
            solver="MCE",
            status=Status.CONVERGED if minimum.converged else Status.NOT_CONVERGED,
            message=reached
            + ("" if minimum.converged else f", short of {self.tolerance:g}: the counts may be out of reach")
            + about_errors(minimum, errors),
            problem=observed,
            experts=problem.names,
            discounts=discounts,
            reward=minimum.point.theta,
            objective=minimum.point.value,
            residual=minimum.gradient_norm,
            temperature=temperature,
            evidence=entropy_evidence(minimum, errors),
        )


def about_errors(minimum: DualSolution, errors: list[float] | None) -> str:
    """Return the error of feature counts that come from demonstrations beside the mismatch, in words."""
    if errors is None:
        return ""
    pairs = zip(minimum.point.responses, errors, strict=True)
    each = [
        f"{pair[0].expert.name} {significant(np.linalg.norm(pair[0].mismatch), 2)} ({significant(pair[1], 2)})" for pair in pairs
    ]
    return f"; mismatch of the feature counts, and their standard error in brackets: {first_few(each)}"


def entropy_evidence(
    minimum: DualSolution, count_errors: list[float] | None = None, within_reach: float | None = None
) -> EntropyEvidence:
    """Return the summed gap, each expert's mismatch and the entropy at a dual solution."""
    return EntropyEvidence(
        summed_gap=minimum.point.gap,
        mismatch=[float(np.linalg.norm(response.mismatch)) for response in minimum.point.responses],
        entropy=minimum.point.entropy,
        dual_gradient=minimum.gradient_norm,
        entropy_within_reach=within_reach,
        count_errors=count_errors,
    )
