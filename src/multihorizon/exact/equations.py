"""What policies say about the discounts and the reward: the equations of one expert, and of all experts together.

*One expert.* A soft-optimal policy π at temperature λ satisfies, with `ℓ(s,a) = λ log π(a|s)` and the reward r paid on arrival,

    ℓ(s,a) = Σ_s' T(s'|s,a) u(s') − V(s),        u = r + γ V,        V = 0 at terminal states.

Subtracting from each action its state's mean over the available actions removes V and leaves `D u = ℓ − mean(ℓ)`, in which no
discount occurs. D holds the action differences of the MDP: for each state and available action the transition probabilities less
the state's mean, with weights (`Differences`). Its null space are the functions of the next state that no action distinguishes.
States that no transition enters are left out: nothing depends on their reward. Hence

1. `u = û + N z` with û the least-squares solution and N a basis of null(D);
2. `V = P_π u + λ H(π)`, the mean of the equations under π itself: `V = V̂ + P_π N z`;
3. `r = u − γ V`, linear in γ once z is known.

Errors in log π reach û and V̂ linearly. They are carried along as columns, whose mean square is the expected one: one column for
each entry of log π where there are few entries, which is exact, and random draws where there are many.

*All experts* act for the same reward. For fixed discounts Γ that is a linear system `M(Γ) x = h(Γ)`. With one reward per state
(`StateEquations`), expert i allows the rewards `λ_k (û − γ_k V̂) + (N − γ_k P_π N) z`, and their differences from the common mean
must be 0: x holds the z of every expert and, where temperatures are free, λ_2 … λ_K. Only lengths of the rows' combinations and
angles between them matter in what follows. So where there are many states and few columns, all columns are first written in one
orthonormal basis of what they span (`SharedReward.compact`), and no later step depends on the number of states.

*Features.* Where the reward is made of features (`FeatureEquations`), expert i's policy is soft-optimal for the parameters θ if
the value of the policy itself, `V = R (F_π θ + λ H(π))` with `R = (I − γP_π)^{-1}`, satisfies every action's Bellman equation:

    F θ + γ T V − V = λ log π,      so      M = F + (γT − 1) R F_π,      h = λ (log π − (γT − 1) R H).

Derivatives in γ follow from `∂V/∂γ = R P_π V`. M is dense, A·S rows for each expert and one column per feature: this is for
problems with a few hundred features. At discount 1 a policy that never ends has no value, so the discount is kept just below.

*Durations.* Where moves take time, `G(γ)` stands for T (`MDP.at`), u no longer comes out without γ, and nothing is linear in γ.
At given discounts the equations are linear in r as before, so they are written like those of features: F, T and P_π are those of
the task as it is seen at γ, `F = G` for one reward per state, and with `G' = dG/dγ` and A what the parameters pay on arrival

    ∂V/∂γ = R (G_π V + G'_π u),      ∂(Fθ + γGV − V)/∂γ = G V + G' u + (γG − 1) ∂V/∂γ,      u = Aθ + γV.

*Variable projection.* At given discounts x is solved for (`JointEquations.project`), which leaves

    ρ(Γ) = M x(Γ) − h,      x(Γ) = M⁺ h,      ∂ρ/∂γ_k = (I − M M⁺) (∂M/∂γ_k x − ∂h/∂γ_k) + …,

where the term left out is orthogonal to ρ, so that the gradient of ½‖ρ‖² is exact. `identify` finds the discounts with ρ = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import LARGEST_SOLVABLE_DISCOUNT, TINY, Bools, Floats, Ints, Sparse, as_positive
from multihorizon.exact.least_squares import Coefficients, ColumnSpace, DenseColumns, SizeLimits, columns_of, null_space
from multihorizon.mdp import MDP
from multihorizon.planning.linear import DENSE_STATES, Resolvent, SingularError, matrix_resolvent
from multihorizon.problem import Expert, Problem, require_finite
from multihorizon.words import significant

#: Residuals beyond this many times what the errors in log π explain make a problem infeasible.
MISFIT = 5.0
#: Up to which sizes null spaces are found in each way.
LIMITS = SizeLimits()
#: The temperature that all experts share, or one for each of them.
PolicyTemperature = float | Literal["per_expert"]


def read_temperature(temperature: PolicyTemperature) -> float | None:
    """Return the shared temperature, or None for one per expert."""
    if isinstance(temperature, str):
        if temperature != "per_expert":
            raise ValueError(f'temperature must be a positive number or "per_expert", got {temperature!r}')
        return None
    return as_positive(temperature, "temperature")


@dataclass(frozen=True, eq=False)
class PolicyEquations:
    """One expert's `log π` `(S,A)`, the policy itself, its MDP, and for demonstrations the smoothed `counts` `(S,A)`.

    `log_policy` is 0, and carries no equation, where an action is not available and at terminal states.
    """

    log_policy: Floats
    policy: Floats
    mdp: MDP
    counts: Floats | None

    @property
    def weights(self) -> Floats:
        """Return the weight of each equation `(S,A)`; 0 where there is none.

        It is 1 for policies. For demonstrations it is the smoothed count: the error of a logarithm of a frequency has a variance
        of one over its count. It is made anew each time, because with very many states it is too large to keep for every expert.
        """
        return self.mdp.live / 1.0 if self.counts is None else self.counts

    @property
    def entropy(self) -> Floats:
        """Return `H(π(·|s))`, `(S,)`; 0 at terminal states."""
        entropy: Floats = -np.vecdot(self.policy, self.log_policy)
        return entropy


def read_equations(expert: Expert, smoothing: float = 0.5) -> PolicyEquations:
    """Return the logarithms of an expert's policy, or of frequencies with `smoothing` added to each available action's count.

    Raises:
        ValueError: for a policy with a zero entry, whose logarithm does not exist, for action sets, and for a
            reward known in part.
    """
    live = expert.mdp.live
    if expert.known_reward is not None:
        raise ValueError(
            f"expert {expert.name} must have no known part of the reward for exact equations, got one: use MaximumLikelihood"
        )
    if expert.counts is not None:
        smoothed = np.where(live, expert.counts + smoothing, 0.0)
        shares = smoothed + expert.mdp.terminal[:, None]
        policy = shares / shares.sum(axis=1, keepdims=True)
        return PolicyEquations(np.log(np.where(live, policy, 1.0)), policy, expert.mdp, smoothed)
    if expert.policy is None:
        raise ValueError(
            f"expert {expert.name} must be given as a policy of probabilities or as demonstrations for this solver, "
            f"got {expert.kind}: use the linear-programming solvers (MPLP) for experts who choose the best action"
        )
    zero = live & (expert.policy < np.finfo(np.float64).tiny)  # smaller numbers have lost their digits
    if zero.any():
        state, action = (int(i) for i in np.argwhere(zero)[0])
        raise ValueError(
            f"expert {expert.name} must give every available action a positive probability, because the equations hold "
            f"log π, got {significant(expert.policy[state, action])} in state {expert.mdp.state_names[state]} "
            f"on action {expert.mdp.action_names[action]}: "
            "use the linear-programming solvers (MPLP) for deterministic experts, or mix in a little of the uniform policy"
        )
    return PolicyEquations(np.log(np.where(live, expert.policy, 1.0)), expert.policy, expert.mdp, None)


def in_order_of_content(problem: Problem, smoothing: float = 0.5) -> Problem:
    """Return the problem with its experts in an order that depends on their behaviour, not on names or listing.

    Experts whose log π is farthest from 0 come first.
    """

    def key(expert: Expert) -> tuple[float, ...]:
        policy = read_equations(expert, smoothing)
        values = policy.log_policy[expert.mdp.live]
        return tuple(-_nine_digits(np.array([values @ values, values.sum(), policy.weights.sum()])))

    experts = require_finite(problem).experts
    return problem.with_experts(sorted(experts, key=key))


def _nine_digits(values: Floats) -> Floats:
    """Round values to the digits that the order of a sum cannot change."""
    fraction, power = np.frexp(values)
    return np.ldexp(np.round(fraction, 9), power)


# One expert.


class Differences:
    """The operator D of one MDP with weighted rows: which states are entered, null(D), and least-squares solves.

    Weights `(S,A)` must be 0 where an action is not available.

    Attributes:
        entered: indices of the states that some transition enters; D's columns.
        ends: whether one of them is terminal.
        matrix: D, one row for each action and state, which is 0 where the action is not available or the state is terminal.
        null_space: null(D).
    """

    def __init__(self, mdp: MDP, weights: Floats, limits: SizeLimits = LIMITS) -> None:
        self.mdp = mdp
        self.entered: Ints = np.flatnonzero(mdp.entered)
        self.ends = bool((mdp.terminal & mdp.entered).any())
        self._weights = weights
        self._totals = np.maximum(weights.sum(axis=1), TINY)
        self._root = np.sqrt(np.where(mdp.live, weights, 0.0).T, order="C")
        self.matrix = self._centred_rows()
        self.null_space = null_space(self.matrix, limits)

    def _centred_rows(self) -> Sparse:
        mean = self.mdp.under(self._weights / self._totals[:, None])
        mean.sort_indices()
        stacked = sp.csr_array(self.mdp.stacked - sp.vstack([mean] * self.mdp.n_actions, format="csr"))
        scale = np.repeat(self._root.ravel(), np.diff(stacked.indptr))
        stacked.data *= scale
        stacked.data[np.abs(stacked.data) <= 1e-15 * scale] = 0.0  # rounding from the subtraction of equal probabilities
        stacked.eliminate_zeros()
        return stacked if self.entered.size == self.mdp.n_states else stacked[:, self.entered]

    def solve(self, log_policy: Floats, rough: bool = False) -> Floats:
        """Solve `D û = ℓ − mean` by least squares on the entered states, `(|entered|, m)`, for logarithms `(S,A,m)`.

        A `rough` solution has one or two digits where there are many states; it is for noise, of which only the size matters.
        """
        right = np.stack([self.centred(log_policy[:, :, number]) for number in range(log_policy.shape[2])], axis=1)
        solve = (rough and self.null_space.solve_roughly) or self.null_space.solve
        return solve(right)

    def centred(self, values: Floats) -> Floats:
        """Subtract each state's weighted mean from values `(S,A)` and scale by the root weight; rows `a·S + s` as in D."""
        centred: Floats = np.subtract(values.T, np.vecdot(self._weights, values) / self._totals, order="C")
        centred *= self._root
        return centred.ravel()


@dataclass(frozen=True, eq=False)
class RewardFamily:
    """Expert i's rewards `r = λ û + N z − γ (λ V̂ + P_π N z)`, with û and V̂ at temperature 1, on the entered states.

    Attributes:
        owner: whose discount γ is.
        parameters: which entry of the reward each row is.
        basis, pushed: N and P_π N, sparse where they are large; `coefficients` says what z may be then.
        error_u, error_v: `(|entered|, m)`, the errors of û and V̂ caused by errors of size `error` in log π.
        weights: how much each row counts where experts disagree.
        misfit: the part of log π outside D's range, as a root mean square: no reward and discount can explain it.
        ends: whether a move ends an episode, so that a constant added to the reward changes something.
    """

    owner: int
    parameters: Ints
    u: Floats
    v: Floats
    basis: Floats | Sparse
    pushed: Floats | Sparse
    coefficients: Coefficients | None
    error_u: Floats
    error_v: Floats
    weights: Floats
    misfit: float
    error: float
    ends: bool


def reward_families(
    problem: Problem, policies: Sequence[PolicyEquations], error: float, limits: SizeLimits = LIMITS
) -> list[RewardFamily]:
    """Carry out steps 1 and 2 for every expert of a problem with one reward per state; D is factorised once per MDP.

    Args:
        problem: policies or demonstrations, without features, in tasks whose moves take one step.
        policies: the equations of each expert.
        error: the size of the errors in log π that are assumed; demonstrations bring their own.
        limits: up to which sizes null spaces are found in each way.
    """
    shared: dict[int, Differences] = {}
    solved: dict[int, Floats] = {}
    families = []
    for number, (expert, owner, policy) in enumerate(zip(problem.experts, problem.owner, policies, strict=True)):
        columns = state_columns(problem, expert)
        if columns is None:
            raise ValueError(f"expert {expert.name} must have a reward of one number per state for this, got features")
        if expert.counts is not None:
            differences = Differences(expert.mdp, policy.weights, limits)
            size = 1.0
        else:
            differences = shared.get(id(expert.mdp)) or Differences(expert.mdp, policy.weights, limits)
            size = error
            shared[id(expert.mdp)] = differences
        entered, null = differences.entered, differences.null_space
        error_u = solved.get(id(differences))
        if error_u is None:
            error_u = size * differences.solve(log_errors(expert, policy, number), rough=True)
        if id(expert.mdp) in shared and (
            policy.policy.size > LIMITS.ordered_draws or int(expert.mdp.live.sum()) <= LIMITS.exact_errors
        ):
            solved[id(differences)] = error_u  # errors that know nothing of the policy serve all experts
        under = expert.mdp.under(policy.policy)
        under = under if entered.size == expert.mdp.n_states else under[entered][:, entered]
        right = differences.centred(policy.log_policy)
        u = null.solve(right)
        families.append(
            RewardFamily(
                owner=owner,
                parameters=columns[entered],
                u=u,
                v=under @ u + policy.entropy[entered],
                basis=null.basis,
                pushed=under @ null.basis,
                coefficients=null.coefficients,
                error_u=error_u,
                error_v=under @ error_u,
                weights=np.ones(entered.size) if expert.counts is None else 1 / np.maximum((error_u**2).mean(axis=1), 1e-12),
                misfit=float(np.linalg.norm(right - differences.matrix @ u)) / np.sqrt(max(int(expert.mdp.live.sum()), 1)),
                error=size,
                ends=differences.ends,
            )
        )
    return families


def state_columns(problem: Problem, expert: Expert) -> Ints | None:
    """Return the reward parameter of each of the task's states; None where the reward is made of other features."""
    if expert.features is None:
        return np.arange(expert.mdp.n_states)
    position = {name: i for i, name in enumerate(problem.parameter_names)}
    columns = np.array([position.get(name, -1) for name in expert.mdp.state_names], dtype=np.int64)
    if (columns < 0).any():
        return None
    stacked = expert.mdp.stacked.tocoo()
    placed = sp.csr_array((stacked.data, (stacked.row, columns[stacked.col])), shape=expert.features.shape)
    return columns if abs(placed - expert.features).sum() == 0 else None


def log_errors(expert: Expert, policy: PolicyEquations, seed: int) -> Floats:
    """Return errors `(S,A,m)` of log π whose mean square over the m columns is one over the weight of each equation."""
    live = expert.mdp.live
    count = int(expert.mdp.live.sum())
    if count > LIMITS.exact_errors:
        return drawn_errors(policy, seed, 2 if count > LIMITS.ordered_draws else 8 if expert.counts is None else 32)
    errors = np.zeros((live.size, count))
    errors[live.ravel(), np.arange(count)] = np.sqrt(count / policy.weights[live])
    return errors.reshape(*live.shape, count)


def drawn_errors(policy: PolicyEquations, seed: int, draws: int) -> Floats:
    """Draw random errors `(S,A,m)` of log π with a variance of one over the weight of each equation.

    They are drawn in the order of log π, then of the weights, the states, and the states that follow, so that they are the same
    after states and actions have been relabelled.
    """
    mdp = policy.mdp
    places: Ints = np.flatnonzero(mdp.live.ravel())
    if places.size <= LIMITS.ordered_draws:
        weights = policy.weights
        state = (weights * policy.log_policy**2).sum(axis=1)
        ahead = mdp.expect(state)
        here = np.broadcast_to(state[:, None], ahead.shape)
        keys = [mdp.expect(ahead.sum(axis=1)), ahead, here, weights, policy.log_policy]
        order = np.lexsort([_nine_digits(key).ravel() for key in keys])
        places = order[mdp.live.ravel()[order]]
    generator = np.random.default_rng(seed)
    errors = np.zeros((draws, mdp.live.size))
    for column in errors:
        column[places] = generator.standard_normal(places.size)
    if policy.counts is not None:
        errors[:, places] /= np.sqrt(policy.counts.ravel()[places])
    return errors.T.reshape(*mdp.live.shape, draws)


# All experts.


@dataclass(frozen=True, eq=False)
class Explanation:
    """Discounts `(K,)` with the linear unknowns x solved for: an explanation of the experts, if ρ is small enough.

    Attributes:
        equations: of all experts.
        residual, gap: ρ and its norm.
        jacobian: the derivatives of ρ in the discounts that are not known.
        columns: those of M.
        size: of the equations; what is below a share of it is rounding.
    """

    equations: JointEquations
    discounts: Floats
    x: Floats
    residual: Floats
    gap: float
    jacobian: Floats
    columns: ColumnSpace
    size: float

    @property
    def rounding(self) -> float:
        """Return the norm up to which a residual is rounding."""
        return self.columns.rounding * self.size

    @property
    def no_effect(self) -> float:
        """Return the norm up to which a direction of the Jacobian counts as one without any effect."""
        return max(1e-8 * self.size, self.rounding)

    @cached_property
    def reward(self) -> Floats:
        """Return the reward parameters `(d,)`, with mean 0 where a constant is free."""
        return self._centred(self.equations.reward(self.discounts, self.x))

    @cached_property
    def temperature(self) -> Floats:
        """Return the temperatures `(K,)`."""
        return self.equations.temperatures(self.x)

    def fixed(self) -> Bools:
        """Mark the reward parameters `(d,)` that the equations fix at these discounts, apart from a free constant."""
        fixed = self.equations.entered.copy()
        raw = self.equations.reward(self.discounts, self.x)
        for move in self.columns.null.T:
            fixed &= np.abs(self._centred(self.equations.reward(self.discounts, self.x + move) - raw)) <= 1e-6
        return fixed

    def _centred(self, reward: Floats) -> Floats:
        if not self.equations.free_constant:
            return reward
        entered = self.equations.entered
        return np.where(entered, reward - reward[entered].mean(), 0.0)


def bellman_residual(point: Explanation) -> float:
    """Return `max |(Q − V)/λ − log π*|` with V and Q the values of the experts' own policies under the answer.

    It is 0 exactly if every expert is soft-optimal. Its unit is that of log π. V is solved for from the answer; where the
    equations hold values, these only speed up the solve. Where a policy never ends, or not before rounding hides it, a discount
    of 1 is read as a little less.
    """
    equations, reward = point.equations, point.reward
    worst = 0.0
    values = equations.values(point.x)
    constant = (
        float((equations.reward(point.discounts, point.x) - reward)[equations.entered].mean()) if equations.free_constant else 0.0
    )
    for expert, policy, owner, guess in zip(
        equations.problem.experts, equations.policies, equations.problem.owner, values, strict=True
    ):
        gamma = max(float(point.discounts[owner]), expert.mdp.least_discount)
        lam = float(point.temperature[owner])
        if gamma > LARGEST_SOLVABLE_DISCOUNT and expert.mdp.never_ends(policy.policy).any():
            gamma = LARGEST_SOLVABLE_DISCOUNT
        try:
            near = guess if guess is None or not constant else guess - constant / (1 - gamma)  # every move pays it
            residual = _one_residual(expert, policy, reward, gamma, lam, near)
        except SingularError:
            if gamma <= LARGEST_SOLVABLE_DISCOUNT:
                raise
            residual = _one_residual(expert, policy, reward, LARGEST_SOLVABLE_DISCOUNT, lam, guess)
        worst = max(worst, residual)
    return worst


def _one_residual(
    expert: Expert, policy: PolicyEquations, reward: Floats, gamma: float, lam: float, guess: Floats | None
) -> float:
    expert = expert.at(gamma)
    mdp = expert.mdp
    immediate = expert.expected_reward(reward)
    under = mdp.under(policy.policy)
    earned = np.where(mdp.terminal, 0.0, np.vecdot(policy.policy, immediate)) + lam * policy.entropy
    # One backup also gives values to states that no transition enters.
    start = None if guess is None else earned + gamma * (under @ guess)
    values = matrix_resolvent(mdp, under, gamma).solve(earned, guess=start)
    gap = (immediate + gamma * mdp.expect(values) - values[:, None]) / lam - policy.log_policy
    return float(np.abs(gap).max(where=mdp.live, initial=0.0))


@dataclass(eq=False)
class JointEquations(ABC):
    """The equations `M x = h` of all experts at given discounts `(K,)`.

    Attributes:
        problem: the experts.
        policies: the equations of each of them.
        temperature: the λ that all share, or None where each expert has their own and the first has 1.
        tolerance: the size of the errors in log π that are assumed; demonstrations bring their own.
        known: the discounts `(K,)` that are known, NaN elsewhere; `unknown` marks the others.
        from_counts: whether frequencies of decisions stand in for policies.
        coefficients: what x may be where M is sparse.
        outside: the misfit of log π that no discounts can remove, in units of its assumed error.
        entered: the reward parameters `(d,)` that some equation holds.
        free_constant: whether a constant added to the reward of every state changes nothing, because no move ends an episode.
    """

    problem: Problem
    policies: Sequence[PolicyEquations]
    temperature: float | None
    tolerance: float
    known: Floats

    coefficients: Coefficients | None = field(default=None, init=False)
    outside: float = field(default=0.0, init=False)
    free_constant: bool = field(default=False, init=False)
    entered: Bools = field(init=False)
    n_linear: int = field(init=False)  # how many entries of x come before the free temperatures

    def __post_init__(self) -> None:
        self.n_experts = self.known.size
        self.unknown: Bools = np.isnan(self.known)
        self.from_counts = any(expert.counts is not None for expert in self.problem.experts)

    @abstractmethod
    def at(self, discounts: Floats) -> tuple[Floats | Sparse, Floats]:
        """Return M and h."""

    @abstractmethod
    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """Return `∂(M x − h)/∂γ_k` as columns `(rows, K)`."""

    @abstractmethod
    def reward(self, discounts: Floats, x: Floats) -> Floats:
        """Return the reward parameters `(d,)` of a solution."""

    @abstractmethod
    def values(self, x: Floats) -> list[Floats | None]:
        """Return each expert's value function `(S,)`, where the equations hold it."""

    @abstractmethod
    def errors(self, discounts: Floats, x: Floats) -> Iterator[tuple[int, Floats, Floats]]:
        """Yield the effect of errors in the policies at a solution, expert by expert.

        Yields the owner of the discount and, as columns, the changes of `M x − h` and of its slope in that discount.
        """

    @abstractmethod
    def scale(self, discounts: Floats, x: Floats) -> tuple[int, float]:
        """Count the rows that test whether the reward is shared, and return how much the reward varies from row to row."""

    def temperatures(self, x: Floats) -> Floats:
        """Return the temperatures `(K,)` of a solution."""
        if self.temperature is not None:
            return np.full(self.n_experts, self.temperature)
        return np.concatenate([[1.0], x[self.n_linear :]])

    def project(self, discounts: Floats) -> Explanation:
        """Solve for the linear unknowns at given discounts, moved into [0,1]; known discounts keep their values."""
        discounts = np.where(self.unknown, np.clip(discounts, 0.0, 1.0), self.known)
        matrix, right = self.at(discounts)
        columns = columns_of(matrix, 1e-11, self.coefficients)
        x = columns.solve(right)
        slopes = self.slopes(discounts, x)[:, self.unknown]
        size = float(np.linalg.norm(right) + np.linalg.norm(slopes))
        outside = columns.outside(np.column_stack([right, slopes]))
        gap = float(np.linalg.norm(outside[:, 0]))
        return Explanation(self, discounts, x, -outside[:, 0], gap, outside[:, 1:], columns, size)


class SharedReward:
    """The stacked rows of all families, and the projection that removes the reward they share."""

    def __init__(self, families: Sequence[RewardFamily], n_parameters: int) -> None:
        self.families = families
        ends = np.cumsum([0, *(family.u.size for family in families)])
        self.slices = [slice(int(a), int(b)) for a, b in pairwise(ends)]
        self.size = int(ends[-1])
        self.parameters: Ints = np.concatenate([family.parameters for family in families])
        self.root = np.sqrt(np.concatenate([family.weights for family in families]))
        total = np.bincount(self.parameters, self.root**2, minlength=n_parameters)
        self.entered: Bools = total > 0
        self.left = 1 - self.root**2 / total[self.parameters]  # what of the square of one entry is left without the shared reward
        self.average = sp.csr_array(
            (self.root / total[self.parameters], (self.parameters, np.arange(self.size))), shape=(n_parameters, self.size)
        )

    def compact(self, least_rows: float = 4) -> SharedReward:
        """Write the equations in few rows where there are few columns: all columns in one orthonormal basis of their span.

        Lengths and angles stay the same, and nothing else is asked of the rows. All rows must have the same weight and belong to
        the same states for every family; otherwise the object itself is returned.
        """
        first = self.families[0].parameters
        alike = all(np.array_equal(family.parameters, first) for family in self.families) and bool((self.root == 1).all())
        names = ("u", "v", "basis", "pushed")
        pieces = {id(piece): piece for family in self.families for piece in (getattr(family, name) for name in names)}
        if not alike or any(sp.issparse(piece) for piece in pieces.values()):
            return self
        blocks = [piece.reshape(first.size, -1) for piece in pieces.values()]
        widths = [block.shape[1] for block in blocks]
        size = sum(widths) + max(family.error_u.shape[1] + family.error_v.shape[1] for family in self.families)
        if least_rows * size > first.size:
            return self
        span, corner = np.linalg.qr(np.hstack(blocks))
        compacted = dict(zip(pieces, np.split(corner, np.cumsum(widths)[:-1], axis=1), strict=True))
        rows = np.arange(size)
        moved = []
        for family in self.families:
            columns: dict[str, Any] = {}
            for name in names:
                columns[name] = np.zeros((size, compacted[id(getattr(family, name))].shape[1]))
                columns[name][: len(corner)] = compacted[id(getattr(family, name))]
            columns["u"], columns["v"] = columns["u"][:, 0], columns["v"][:, 0]
            # Outside the span, errors of one expert meet no column and no error of another, so all experts may share these rows.
            errors = np.hstack([family.error_u, family.error_v])
            placed = np.zeros((size, 2 * family.error_u.shape[1]))
            placed[: len(corner)] = span.T @ errors
            outside = np.linalg.qr(errors - span @ placed[: len(corner)], mode="r")
            placed[len(corner) : len(corner) + len(outside)] = outside
            columns["error_u"], columns["error_v"] = np.split(placed, 2, axis=1)
            moved.append(replace(family, parameters=rows, weights=np.ones(size), **columns))
        return SharedReward(moved, size)

    def place(self, pieces: dict[int, Floats]) -> Floats:
        """Stack pieces by the number of their family (zeros elsewhere), weighted, and remove the shared reward."""
        width = next(iter(pieces.values())).shape[1:] if pieces else ()
        stacked = np.zeros((self.size, *width))
        for number, piece in pieces.items():
            part = self.slices[number]
            stacked[part] = (piece.T * self.root[part]).T
        removed: Floats = stacked - (self.root * (self.average @ stacked)[self.parameters].T).T
        return removed

    def blocks(self, pieces: Sequence[Floats | Sparse]) -> Floats | Sparse:
        """Build block-diagonal columns with the shared reward removed, sparse if a piece is."""
        if all(isinstance(piece, np.ndarray) for piece in pieces):
            return np.hstack([self.place({number: np.asarray(piece)}) for number, piece in enumerate(pieces)])
        weighted = sp.csr_array(sp.diags_array(self.root) @ sp.block_diag(pieces, format="csr"))
        rows = np.arange(self.size)
        spread = sp.csr_array((self.root, (rows, self.parameters)), shape=self.average.T.shape)
        return sp.csr_array(weighted - spread @ (self.average @ weighted))

    def coefficients(self) -> list[Coefficients] | None:
        """Return the constraints on the z of each family where the blocks are sparse, None where they are dense."""
        if all(family.coefficients is None for family in self.families):
            return None
        return [family.coefficients or Coefficients.free(family.basis.shape[1]) for family in self.families]


@dataclass(eq=False)
class StateEquations(JointEquations):
    """M and h for one reward per state; x = (z of every family, then λ_2 … λ_K where temperatures are free).

    `families` are the rewards that each expert allows, `shared` their rows of all states, `rows` these in few rows where possible
    and where there are at least `least_rows` for each column.
    """

    families: Sequence[RewardFamily]
    least_rows: float = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        families = self.families
        self.shared = SharedReward(families, self.problem.n_parameters)
        self.rows = self.shared.compact(self.least_rows)
        self.entered = self.shared.entered
        self.outside = max(family.misfit / max(family.error, DenseColumns.rounding) for family in families)
        self.free_constant = not any(family.ends for family in families)
        few = self.rows.families
        self._ends = np.cumsum([0, *(family.basis.shape[1] for family in few)])
        self.n_linear = int(self._ends[-1])
        self._basis = self.rows.blocks([family.basis for family in few])
        self._pushed = self.rows.blocks([family.pushed for family in few])
        self._owners: Ints = np.repeat([family.owner for family in few], np.diff(self._ends))
        owned = [[(i, family) for i, family in enumerate(few) if family.owner == k] for k in range(self.n_experts)]
        self.u = [self.rows.place({i: family.u for i, family in mine}) for mine in owned]
        self.v = [self.rows.place({i: family.v for i, family in mine}) for mine in owned]
        parts = self.shared.coefficients()
        if parts is not None:
            self.coefficients = Coefficients.side_by_side(
                parts if self.temperature is not None else [*parts, Coefficients.free(self.n_experts - 1)]
            )

    def at(self, discounts: Floats) -> tuple[Floats | Sparse, Floats]:
        """Return the columns for z and free temperatures, and minus the part with a known temperature."""
        rewards = [u - gamma * v for u, v, gamma in zip(self.u, self.v, discounts, strict=True)]
        matrix = self._basis - self._pushed * discounts[self._owners]
        if self.temperature is not None:
            return matrix, -self.temperature * np.sum(rewards, axis=0)
        if isinstance(matrix, np.ndarray):
            return np.column_stack([matrix, *rewards[1:]]), -rewards[0]
        return sp.csr_array(sp.hstack([matrix, *(sp.csr_array(r[:, None]) for r in rewards[1:])])), -rewards[0]

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """Return `−(λ V̂ + P_π N z)` on the rows of each owner: minus the value function."""
        z = x[: self.n_linear]
        parts = enumerate(zip(self.temperatures(x), self.v, strict=True))
        return np.stack([-lam * v - self._pushed @ np.where(self._owners == k, z, 0.0) for k, (lam, v) in parts], axis=1)

    def reward(self, discounts: Floats, x: Floats) -> Floats:
        """Return the weighted mean of the families' values for each entry, 0 where none has one."""
        temperature = self.temperatures(x)
        pieces = []
        for family, (a, b) in zip(self.shared.families, pairwise(self._ends), strict=True):
            gamma, lam = discounts[family.owner], temperature[family.owner]
            pieces.append(lam * (family.u - gamma * family.v) + (family.basis - gamma * family.pushed) @ x[a:b])
        reward: Floats = self.shared.average @ (self.shared.root * np.concatenate(pieces))
        return reward

    def values(self, x: Floats) -> list[Floats | None]:
        """Return `λ V̂ + P_π N z` on the entered states, 0 at the others."""
        temperature = self.temperatures(x)
        functions: list[Floats | None] = []
        for expert, family, (a, b) in zip(self.problem.experts, self.shared.families, pairwise(self._ends), strict=True):
            values = np.zeros(expert.mdp.n_states)
            values[expert.mdp.entered] = temperature[family.owner] * family.v + family.pushed @ x[a:b]
            functions.append(values)
        return functions

    def errors(self, discounts: Floats, x: Floats) -> Iterator[tuple[int, Floats, Floats]]:
        """Yield `λ (δû − γ δV̂)` and its slope `−λ δV̂`."""
        for number, family in enumerate(self.rows.families):
            lam = float(self.temperatures(x)[family.owner])
            gamma = float(discounts[family.owner])
            slope = self.rows.place({number: -lam * family.error_v})
            yield family.owner, self.rows.place({number: lam * family.error_u}) + gamma * slope, slope

    def scale(self, discounts: Floats, x: Floats) -> tuple[int, float]:
        """Count all rows but those that fix the reward itself."""
        reward = self.reward(discounts, x)
        varying = self.shared.root * (reward - reward[self.entered].mean())[self.shared.parameters]
        return self.shared.size - int(self.entered.sum()), float(np.sqrt((varying**2).mean()))


@dataclass(eq=False)
class FeatureEquations(JointEquations):
    """M and h for any features; x = (θ, then λ_2 … λ_K where temperatures are free)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.n_linear = self.problem.n_parameters
        self.entered = np.ones(self.n_linear, dtype=np.bool_)
        self._tasks = [_Task(expert, policy) for expert, policy in zip(self.problem.experts, self.policies, strict=True)]
        if all(state_columns(self.problem, expert) is not None for expert in self.problem.experts):
            entries = sum(task.n_rows for task in self._tasks) * self.n_linear
            most = 100_000_000  # dense, 800 MB
            if entries > most:
                raise ValueError(
                    f"the exact equations of a task with durations must have at most {most:,} entries, got {entries:,}: use "
                    "MaximumLikelihood, or tie the rewards of states together with features"
                )
            columns = [expert.feature_matrix.indices for expert in self.problem.experts]
            self.entered = np.bincount(np.concatenate(columns), minlength=self.n_linear) > 0
            # A constant is free if it changes nothing at any discount. Three discounts are enough to see that.
            kept = [task.residual(gamma, np.ones(self.n_linear), 0.0) for task in self._tasks for gamma in (0.2, 0.5, 0.8)]
            self.free_constant = max(float(np.abs(rows).max(initial=0.0)) for rows in kept) < 1e-9
        ends = np.cumsum([0, *(task.n_rows for task in self._tasks)])
        self._size = int(ends[-1])
        self._rows = [slice(int(a), int(b)) for a, b in pairwise(ends)]

    def _each(self) -> Iterator[tuple[_Task, int, slice]]:
        return zip(self._tasks, self.problem.owner, self._rows, strict=True)

    def at(self, discounts: Floats) -> tuple[Floats, Floats]:
        """Return M and h of all experts."""
        matrix = np.zeros((self._size, self.n_linear + (0 if self.temperature is not None else self.n_experts - 1)))
        right = np.zeros(self._size)
        for task, owner, rows in self._each():
            features, logs = task.bellman(discounts[owner])
            matrix[rows, : self.n_linear] = features
            if self.temperature is not None or owner == 0:
                right[rows] = -(self.temperature or 1.0) * logs
            else:
                matrix[rows, self.n_linear + owner - 1] = logs
        return matrix, right

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """Return `T V + (γT − 1) R P_π V` on the rows of each owner."""
        columns = np.zeros((self._size, self.n_experts))
        temperature = self.temperatures(x)
        for task, owner, rows in self._each():
            columns[rows, owner] = task.slope(discounts[owner], x[: self.n_linear], temperature[owner])
        return columns

    def reward(self, discounts: Floats, x: Floats) -> Floats:
        """Return θ."""
        return x[: self.n_linear]

    def values(self, x: Floats) -> list[Floats | None]:
        """Return None for each expert: the values are not among the unknowns."""
        return [None] * len(self.policies)

    def errors(self, discounts: Floats, x: Floats) -> Iterator[tuple[int, Floats, Floats]]:
        """Yield differences of the equations of policies with errors from those without; each draw costs an evaluation."""
        theta = x[: self.n_linear]
        temperature = self.temperatures(x)
        draws = 8
        for number, (task, owner, rows) in enumerate(self._each()):
            expert, policy = self.problem.experts[number], self.policies[number]
            at = discounts[owner], theta, temperature[owner]
            drawn = drawn_errors(policy, number, draws) * (self.tolerance if expert.counts is None else 1.0)
            residual, slope = np.zeros((2, self._size, draws))
            for m in range(draws):
                wrong = policy.policy * np.exp(drawn[:, :, m])
                wrong /= wrong.sum(axis=1, keepdims=True)
                logs = np.log(np.where(policy.mdp.live, wrong, 1.0))
                moved = _Task(expert, replace(policy, log_policy=logs, policy=wrong))
                residual[rows, m] = moved.residual(*at) - task.residual(*at)
                slope[rows, m] = moved.slope(*at) - task.slope(*at)
            yield owner, residual, slope

    def scale(self, discounts: Floats, x: Floats) -> tuple[int, float]:
        """Count all rows but those that one expert alone leaves over; the reward is the expected immediate one."""
        matrix = self.at(discounts)[0]
        slopes = self.slopes(discounts, x)
        common = 0
        rewards = []
        for task, owner, rows in self._each():
            common += int(np.linalg.matrix_rank(np.column_stack([matrix[rows], slopes[rows, owner]])))
            rewards.append(task.rewards(x[: self.n_linear]))
        return common, float(np.concatenate(rewards).std())


class _SeenAt(NamedTuple):
    """Transitions and features of the rows, P_π, `F_π` and the entropy, and, where moves take time, G' of the rows."""

    following: Sparse
    features: Floats
    under: Floats | Sparse
    immediate: Floats
    slope: Sparse | None


class _Task:
    """One expert's Bellman equations: the available actions of the states that are not terminal."""

    def __init__(self, expert: Expert, policy: PolicyEquations) -> None:
        mdp = expert.mdp
        live = mdp.live
        actions, self._states = np.nonzero(live.T)
        self.n_rows = self._states.size
        self._chosen = actions * mdp.n_states + self._states
        self._root = np.sqrt(policy.weights[self._states, actions])
        self._logs = policy.log_policy[self._states, actions]
        chances = np.where(live, policy.policy, 0.0)[self._states, actions]
        self._mix = sp.csr_array((chances, (self._states, np.arange(self.n_rows))), (mdp.n_states, self.n_rows))
        self._expert, self._policy = expert, policy
        self._largest = LARGEST_SOLVABLE_DISCOUNT if mdp.never_ends(policy.policy).any() else 1.0
        self._seen = self._at(0.5)

    def _at(self, discount: float) -> _SeenAt:
        """Build the parts of the equations at a discount; they do not depend on it where every move takes one unit of time."""
        expert = self._expert.at(discount)
        policy = self._policy
        mdp = expert.mdp
        features = sp.csr_array(expert.feature_matrix)[self._chosen].toarray()
        under = mdp.under(policy.policy)
        under = under.toarray() if mdp.n_states <= DENSE_STATES else under
        immediate = np.column_stack([self._mix @ features, policy.entropy])
        return _SeenAt(
            mdp.stacked[self._chosen], features, under, immediate, None if mdp.slope is None else mdp.slope[self._chosen]
        )

    def _read(self, discount: float) -> tuple[float, _SeenAt]:
        """Return the discount, kept where values exist, and the parts of the equations there."""
        gamma = max(min(float(discount), self._largest), self._expert.mdp.least_discount)
        return gamma, self._seen if self._expert.mdp.durations is None else self._at(gamma)

    def rewards(self, theta: Floats) -> Floats:
        """Return the expected immediate reward of each row, times the root of its weight."""
        weighted: Floats = self._root * (self._seen.features @ theta)
        return weighted

    def bellman(self, discount: float) -> tuple[Floats, Floats]:
        """Return the rows of M that belong to θ, and the column that belongs to the temperature."""
        gamma, seen = self._read(discount)
        values = Resolvent(seen.under, gamma).solve(seen.immediate)
        rows = np.column_stack([seen.features, -self._logs]) + gamma * (seen.following @ values) - values[self._states]
        weighted = (rows.T * self._root).T
        return weighted[:, :-1], weighted[:, -1]

    def residual(self, discount: float, theta: Floats, temperature: float) -> Floats:
        """Return `F θ + γ T V − V − λ log π` on the rows, times the root of their weights."""
        features, logs = self.bellman(discount)
        return features @ theta + temperature * logs

    def slope(self, discount: float, theta: Floats, temperature: float) -> Floats:
        """Return the derivative of the residual in γ."""
        gamma, seen = self._read(discount)
        resolvent = Resolvent(seen.under, gamma)
        values = resolvent.solve(seen.immediate @ np.append(theta, temperature))
        direct: Floats = seen.following @ values
        source = seen.under @ values
        if seen.slope is not None:
            arrival = self._expert.arrival_features
            more = seen.slope @ (gamma * values if arrival is None else arrival @ theta + gamma * values)
            direct = direct + more
            source = source + self._mix @ more
        change = resolvent.solve(source)
        rows: Floats = direct + gamma * (seen.following @ change) - change[self._states]
        return rows * self._root


def joint_equations(
    problem: Problem,
    temperature: float | None = 1.0,
    tolerance: float = 1e-8,
    known: Floats | None = None,
    smoothing: float = 0.5,
    families: Sequence[RewardFamily] | None = None,
) -> JointEquations:
    """Build the equations of all experts, with one reward per state or a reward made of features.

    By default no discount is known. `families` are given where they have been computed before.
    """
    known = np.full(problem.n_experts, np.nan) if known is None else known
    policies = [read_equations(expert, smoothing) for expert in problem.experts]
    if has_features(problem):
        return FeatureEquations(problem, policies, temperature, tolerance, known)
    families = reward_families(problem, policies, tolerance) if families is None else families
    return StateEquations(problem, policies, temperature, tolerance, known, families)


def has_features(problem: Problem) -> bool:
    """Say whether the equations are those of features: the reward is not one number per state, or moves take time."""
    return any(expert.mdp.durations is not None or state_columns(problem, expert) is None for expert in problem.experts)
