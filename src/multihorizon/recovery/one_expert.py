"""What one expert's policy says about the reward before any discount is known.

A soft-optimal policy π at temperature λ satisfies, with `ℓ(s,a) = λ log π(a|s)` and the reward r paid on arrival,

    ℓ(s,a) = Σ_s' T(s'|s,a) u(s') − V(s),        u = r + γ V,        V = 0 at terminal states.

Subtracting from each action its state's mean over the available actions removes V and leaves `D u = ℓ − mean(ℓ)`, in which
no discount occurs: D is the operator of action differences of the MDP (`differences`). Hence

1. `u = û + N z` with û the least-squares solution and N a basis of null(D);
2. `V = P_π u + λ H(π)`, the mean of the equations under π itself: `V = V̂ + P_π N z`;
3. `r = u − γ V`, linear in γ once z is known. `joint_equations` puts the experts' step 3 together.

Errors in log π reach û and V̂ linearly. They are carried along as columns, whose mean square is the expected one: one column for
each entry of log π where there are few entries, which is exact, and random draws where there are many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.experts import Expert
from multihorizon.mdp import MDP
from multihorizon.problem import Problem
from multihorizon.recovery.column_space import Coefficients
from multihorizon.recovery.differences import Differences

#: Up to the first number of entries of log π the effect of errors is exact. Up to the second, draws are made in `_content_order`.
EXACT_ERRORS, ORDERED_DRAWS = 300, 50_000
#: Random draws of the errors of policies, of counts, and of problems with more entries than `ORDERED_DRAWS`.
DRAWS, COUNT_DRAWS, LARGE_DRAWS = 8, 32, 2


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
        """The weight of each equation `(S,A)`; 0 where there is none.

        It is 1 for policies. For demonstrations it is the smoothed count: the error of a logarithm of a frequency has a variance
        of one over its count. It is made anew each time, because with very many states it is too large to keep for every expert.
        """
        return self.mdp.live / 1.0 if self.counts is None else self.counts

    @property
    def entropy(self) -> Floats:
        """`H(π(·|s))`, `(S,)`; 0 at terminal states."""
        entropy: Floats = -np.vecdot(self.policy, self.log_policy)
        return entropy

    def under(self) -> Sparse:
        """`P_π`; rows of terminal states are 0."""
        return self.mdp.under(self.policy)


def read_equations(expert: Expert, smoothing: float = 0.5) -> PolicyEquations:
    """The logarithms of an expert's policy, or of frequencies with `smoothing` added to each available action's count.

    Raises:
        ValueError: for a policy with a zero entry, whose logarithm does not exist, for action sets, and for a
            reward known in part.
    """
    if expert.known_reward is not None:
        raise ValueError(
            f"expert {expert.name} must have no known part of the reward for exact equations, received one: use MaximumLikelihood"
        )
    live = expert.mdp.live
    if expert.counts is not None:
        counts, policy = np.where(live, expert.counts + smoothing, 0.0), expert.frequencies(smoothing)
    else:
        counts, policy = None, _positive(expert, live)
    return PolicyEquations(np.log(np.where(live, policy, 1.0)), policy, expert.mdp, counts)


def _positive(expert: Expert, live: Bools) -> Floats:
    if expert.policy is None:
        raise ValueError(
            f"expert {expert.name} must be given as a policy of probabilities or as demonstrations for this solver, "
            f"received {expert.kind}: use the linear-programming solvers (MPLP) for experts who choose the best action"
        )
    zero = live & (expert.policy < np.finfo(np.float64).tiny)  # smaller numbers have lost their digits
    if zero.any():
        state, action = (int(i) for i in np.argwhere(zero)[0])
        raise ValueError(
            f"expert {expert.name} must give every available action a positive probability, because the equations hold "
            f"log π, received {expert.policy[state, action]:.3g} in state {expert.mdp.state_names[state]} "
            f"on action {expert.mdp.action_names[action]}: "
            "use the linear-programming solvers (MPLP) for deterministic experts, or mix in a little of the uniform policy"
        )
    return expert.policy


@dataclass(frozen=True, eq=False)
class RewardFamily:
    """Expert i's rewards `r = λ û + N z − γ (λ V̂ + P_π N z)`, with û and V̂ at temperature 1, on the entered states.

    `basis` N and `pushed` P_π N are sparse where they are large; `coefficients` says what z may be then. `parameters` says which
    entry of the reward each row is, `owner` whose discount γ is. The columns of `error_u` and `error_v`,
    `(|entered|, m)`, are the errors of û and V̂ caused by errors of size `error` in log π; `misfit` is the part of log π outside
    D's range, in the same units; `weights` is how much each row counts where experts disagree.
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


def reward_families(problem: Problem, equations: Sequence[PolicyEquations], error: float) -> list[RewardFamily]:
    """Steps 1 and 2 for every expert of a problem whose reward is one number per state; D is factorised once per MDP.

    Args:
        problem: policies or demonstrations, without features.
        equations: those of each expert.
        error: the size of the errors in log π that are assumed; demonstrations bring their own.
    """
    shared: dict[int, Differences] = {}
    solved: dict[int, Floats] = {}
    families = []
    for number, (expert, owner, e) in enumerate(zip(problem.experts, problem.owner, equations, strict=True)):
        columns = state_columns(problem, expert)
        if columns is None:
            raise ValueError(f"expert {expert.name} must have a reward of one number per state for this, received features")
        if expert.counts is not None:
            differences, size = Differences(expert.mdp, e.weights), 1.0
        else:
            differences, size = shared.get(id(expert.mdp)) or Differences(expert.mdp, e.weights), error
            shared[id(expert.mdp)] = differences
        error_u = solved.get(id(differences))
        if error_u is None:
            error_u = size * differences.solve(log_errors(expert, e, number), rough=True)
        if id(expert.mdp) in shared and e.policy.size > ORDERED_DRAWS:
            solved[id(differences)] = error_u  # errors that know nothing of the policy serve all experts
        families.append(_family(expert, owner, columns, differences, e, error_u, size))
    return families


def state_columns(problem: Problem, expert: Expert) -> Ints | None:
    """The reward parameter of each of the task's states; None where the reward is made of other features."""
    if expert.features is None:
        return np.arange(expert.mdp.n_states)
    position = {name: i for i, name in enumerate(problem.parameter_names)}
    columns = np.array([position.get(name, -1) for name in expert.mdp.state_names], dtype=np.int64)
    if (columns < 0).any():
        return None
    stacked = expert.mdp.stacked.tocoo()
    placed = sp.csr_array((stacked.data, (stacked.row, columns[stacked.col])), shape=expert.features.shape)
    return columns if abs(placed - expert.features).sum() == 0 else None


def _family(
    expert: Expert,
    owner: int,
    columns: Ints,
    differences: Differences,
    equations: PolicyEquations,
    error_u: Floats,
    size: float,
) -> RewardFamily:
    entered, null = differences.entered, differences.null_space
    under = equations.under()
    under = under if entered.size == expert.mdp.n_states else under[entered][:, entered]
    u, misfit = differences.fit(equations.log_policy)
    weights = np.ones(entered.size) if expert.counts is None else 1 / np.maximum((error_u**2).mean(axis=1), 1e-12)
    return RewardFamily(
        owner=owner,
        parameters=columns[entered],
        u=u,
        v=under @ u + equations.entropy[entered],
        basis=null.basis,
        pushed=under @ null.basis,
        coefficients=null.coefficients,
        error_u=error_u,
        error_v=under @ error_u,
        weights=weights,
        misfit=misfit,
        error=size,
    )


def log_errors(expert: Expert, equations: PolicyEquations, seed: int) -> Floats:
    """Errors `(S,A,m)` of log π, with a mean square over the m columns of one over the weight of each equation."""
    shape, count = equations.policy.shape, int(expert.mdp.live.sum())
    if count > EXACT_ERRORS:
        draws = LARGE_DRAWS if count > ORDERED_DRAWS else DRAWS if expert.counts is None else COUNT_DRAWS
        return drawn_errors(expert.mdp, equations, seed, draws)
    errors = np.zeros((shape[0] * shape[1], count))
    errors[expert.mdp.live.ravel(), np.arange(count)] = np.sqrt(count / equations.weights[expert.mdp.live])
    return errors.reshape(*shape, count)


def drawn_errors(mdp: MDP, equations: PolicyEquations, seed: int, draws: int) -> Floats:
    """Random errors `(S,A,m)` of log π with a variance of one over the weight of each equation."""
    live: Bools | Ints = mdp.live.ravel()
    count = int(live.sum())
    if count <= ORDERED_DRAWS:
        places = np.flatnonzero(live)
        live = places[_content_order(mdp, equations)[places].argsort()]
    generator = np.random.default_rng(seed)
    errors = np.zeros((draws, mdp.live.size))
    for column in errors:
        column[live] = generator.standard_normal(count)
    if equations.counts is not None:
        errors[:, live] /= np.sqrt(equations.counts.ravel()[live])
    return errors.T.reshape(*mdp.live.shape, draws)


def _content_order(mdp: MDP, equations: PolicyEquations) -> Ints:
    """The place of each entry `(S·A,)` by log π, then by its weight, its state, and the states it leads to.

    Errors drawn in this order are the same after states and actions have been relabelled.
    """
    weights = equations.weights
    state = (weights * equations.log_policy**2).sum(axis=1)
    ahead = mdp.expect(state)
    here = np.broadcast_to(state[:, None], ahead.shape)
    keys = [mdp.expect(ahead.sum(axis=1)), ahead, here, weights, equations.log_policy]
    order = np.lexsort([_nine_digits(key).ravel() for key in keys])
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    return place


def in_order_of_content(problem: Problem, smoothing: float = 0.5) -> Problem:
    """The problem with its experts in an order that depends on what they do, not on how they are named or listed.

    The most decided come first: those whose log π is farthest from 0.
    """

    def key(expert: Expert) -> tuple[float, ...]:
        equations = read_equations(expert, smoothing)
        values = equations.log_policy[expert.mdp.live]
        return tuple(-_nine_digits(np.array([values @ values, values.sum(), equations.weights.sum()])))

    return problem.with_experts(sorted(problem.experts, key=key))


def _nine_digits(values: Floats) -> Floats:
    """Values rounded to the digits that the order of a sum cannot change."""
    fraction, power = np.frexp(values)
    rounded: Floats = np.ldexp(np.round(fraction, 9), power)
    return rounded
