"""Action differences of one MDP: which functions of the next state its actions can tell apart.

D holds, for each state and available action, the row of transition probabilities less the state's mean over its actions, with
weights. This module builds D and solves `D u = b` by least squares; `null_space` finds null(D): what no action can tell apart.

States that no transition enters are left out: nothing depends on their reward.

What one expert's policy says about the reward before any discount is known.

A soft-optimal policy π at temperature λ satisfies, with `ℓ(s,a) = λ log π(a|s)` and the reward r paid on arrival,

    ℓ(s,a) = Σ_s' T(s'|s,a) u(s') − V(s),        u = r + γ V,        V = 0 at terminal states.

Subtracting from each action its state's mean over the available actions removes V and leaves `D u = ℓ − mean(ℓ)`, in which
no discount occurs: D is the operator of action differences of the MDP (`differences`). Hence

1. `u = û + N z` with û the least-squares solution and N a basis of null(D);
2. `V = P_π u + λ H(π)`, the mean of the equations under π itself: `V = V̂ + P_π N z`;
3. `r = u − γ V`, linear in γ once z is known. `joint_equations` puts the experts' step 3 together.

Errors in log π reach û and V̂ linearly. They are carried along as columns, whose mean square is the expected one: one column for
each entry of log π where there are few entries, which is exact, and random draws where there are many.

The system of all experts at given discounts: linear in everything else.

All experts act for the same reward. For fixed discounts Γ that is a linear system `M(Γ) x = h(Γ)`. With one reward per state,
expert i allows the rewards `λ_k (û − γ_k V̂) + (N − γ_k P_π N) z` (`one_expert`), and their differences from the common mean
must be 0: x holds the z of every expert and, where temperatures are free, λ_2 … λ_K. `feature_equations` has the system for other
features.

Only lengths of the rows' combinations and angles between them matter in what follows. So where there are many states and few
columns, all columns are first written in one orthonormal basis of what they span (`SharedReward.compact`), and no later step
depends on the number of states.

`linear_system` makes the system linear in Γ as well; `solution_set` solves it for Γ.

The system of all experts at given discounts when the reward is made of features.

Expert i's policy is soft-optimal for the reward parameters θ if the value of the policy itself,
`V = (I − γP_π)^{-1} (F_π θ + λ H(π))`, satisfies the Bellman equation of every action:

    F θ + γ T V − V = λ log π,      so      M = F + (γT − 1) R F_π,      h = λ (log π − (γT − 1) R H),      R = (I − γP_π)^{-1}.

Derivatives in γ follow from `∂V/∂γ = R P_π V`. M is dense, A·S rows for each expert and one column per feature: this is for
problems with a few hundred features. At discount 1 a policy that never ends has no value, so the discount is kept just below.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import LARGEST_SOLVABLE_DISCOUNT, TINY, Bools, Floats, Ints, Sparse
from multihorizon.exact.least_squares import Coefficients, DenseColumns, null_space
from multihorizon.mdp import MDP
from multihorizon.planning.linear import DENSE_STATES, Resolvent
from multihorizon.problem import Expert, Problem

#: Smaller entries of D are rounding from the subtraction of equal probabilities.
SMALLEST_ENTRY = 1e-15


class Differences:
    """The operator D of one MDP with weighted rows: which states are entered, null(D), and least-squares solves.

    Weights `(S,A)` must be 0 where an action is not available.

    Attributes:
        entered: indices of the states that some transition enters; D's columns.
        null_space: null(D).
    """

    def __init__(self, mdp: MDP, weights: Floats) -> None:
        self.mdp = mdp
        self.entered: Ints = np.flatnonzero(mdp.entered)
        self._weights = weights
        self._totals = np.maximum(weights.sum(axis=1), TINY)
        self._root = np.sqrt(np.where(mdp.live, weights, 0.0).T, order="C")
        self.matrix = self._centred_rows()
        self.null_space = null_space(self.matrix)

    def solve(self, log_policy: Floats, rough: bool = False) -> Floats:
        """û on the entered states, `(|entered|, m)` from logarithms `(S,A,m)`: the least-squares solution of `D û = ℓ − mean`.

        A `rough` solution, for noise of which only the size matters, has one or two digits where there are many states.
        """
        solutions = np.empty((log_policy.shape[2], self.entered.size))
        for number, solution in enumerate(solutions):
            solution[:] = self.null_space.solve(self._centred(log_policy[:, :, number]), rough)
        return solutions.T

    def fit(self, log_policy: Floats) -> tuple[Floats, float]:
        """û `(|entered|,)` from logarithms `(S,A)`, and its misfit.

        The misfit is the root mean square of the weighted `D û − (ℓ − mean)`: the part of log π that no reward and discount can
        explain.
        """
        right = self._centred(log_policy)
        solution = self.null_space.solve(right, False)
        right -= self.matrix @ solution
        return solution, float(np.linalg.norm(right)) / np.sqrt(max(int(self.mdp.live.sum()), 1))

    def _centred(self, values: Floats) -> Floats:
        """Values `(S,A)` less their state's weighted mean, times the root of their weight, in the order `a·S + s` of D's rows."""
        centred: Floats = np.subtract(values.T, np.vecdot(self._weights, values) / self._totals, order="C")
        centred *= self._root
        return centred.ravel()

    def _centred_rows(self) -> Sparse:
        """D: one row for each action and state, which is 0 where the action is not available or the state is terminal."""
        mean = self.mdp.under(self._weights / self._totals[:, None])
        mean.sort_indices()
        blocks = []
        for action, root in enumerate(self._root):
            block = sp.csr_array(self.mdp.transition(action) - mean)
            scale = np.repeat(root, np.diff(block.indptr))
            block.data *= scale
            block.data[np.abs(block.data) <= SMALLEST_ENTRY * scale] = 0.0
            block.eliminate_zeros()
            blocks.append(block)
        stacked = sp.csr_array(sp.vstack(blocks, format="csr"))
        return stacked if self.entered.size == self.mdp.n_states else stacked[:, self.entered]


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


#: Equations are made compact where they have at least this many rows for each column, and this many rows are read at once.
LEAST_ROWS, ROWS_AT_ONCE = 4, 4096


@dataclass(frozen=True, eq=False)
class ErrorEffect:
    """What errors in one expert's log π do, as columns: to the residual `M x − h`, and to its slope in the owner's discount."""

    owner: int
    residual: Floats
    slope: Floats


class JointEquations(Protocol):
    """The equations of all experts at given discounts `(K,)`."""

    n_experts: int

    @property
    def coefficients(self) -> Coefficients | None:
        """What x may be where M is sparse."""
        ...

    def at(self, discounts: Floats) -> tuple[Floats | Sparse, Floats]:
        """M and h."""
        ...

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """`∂(M x − h)/∂γ_k` as columns `(rows, K)`."""
        ...

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Reward parameters and temperatures `(K,)` of a solution."""
        ...

    def errors(self, discounts: Floats, x: Floats) -> list[ErrorEffect]:
        """What errors in the policies do at a solution, expert by expert."""
        ...


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
        self.average = sp.csr_array(
            (self.root / total[self.parameters], (self.parameters, np.arange(self.size))), shape=(n_parameters, self.size)
        )

    @cached_property
    def compact(self) -> SharedReward:
        """The same equations with few rows, where there are few columns: all columns in one orthonormal basis of what they span.

        Lengths and angles stay the same, and nothing else is asked of the rows. It needs rows that all count alike and belong to
        the same states for every family; otherwise it is this very object.
        """
        first = self.families[0].parameters
        alike = all(np.array_equal(family.parameters, first) for family in self.families) and bool((self.root == 1).all())
        pieces = {id(piece): piece for family in self.families for piece in _pieces(family)}
        if not alike or any(sp.issparse(piece) for piece in pieces.values()):
            return self
        columns = {key: piece.reshape(first.size, -1) for key, piece in pieces.items()}
        if LEAST_ROWS * sum(column.shape[1] for column in columns.values()) > first.size:
            return self
        found = dict(zip(columns, _coordinates(list(columns.values())), strict=True))
        return SharedReward([_moved(family, found) for family in self.families], len(next(iter(found.values()))))

    @property
    def misfit(self) -> float:
        """The largest part of any expert's log π that no reward and discount can explain, in units of its assumed error."""
        return max(family.misfit / max(family.error, DenseColumns.rounding) for family in self.families)

    def place(self, pieces: dict[int, Floats]) -> Floats:
        """Stack pieces by the number of their family (zeros elsewhere), weighted, and remove the shared reward."""
        width = next(iter(pieces.values())).shape[1:] if pieces else ()
        stacked = np.zeros((self.size, *width))
        for number, piece in pieces.items():
            part = self.slices[number]
            stacked[part] = (piece.T * self.root[part]).T
        removed: Floats = stacked - (self.root * (self.average @ stacked)[self.parameters].T).T
        return removed

    def place_owned(self, owner: int, pieces: Sequence[Floats]) -> Floats:
        """Place the pieces of one owner's families; the other families get zeros."""
        return self.place({i: p for i, (f, p) in enumerate(zip(self.families, pieces, strict=True)) if f.owner == owner})

    def blocks(self, pieces: Sequence[Floats | Sparse]) -> Floats | Sparse:
        """Block-diagonal columns with the shared reward removed, sparse if a piece is."""
        if all(isinstance(piece, np.ndarray) for piece in pieces):
            return np.hstack([self.place({number: np.asarray(piece)}) for number, piece in enumerate(pieces)])
        weighted = sp.csr_array(sp.diags_array(self.root) @ sp.block_diag(pieces, format="csr"))
        rows = np.arange(self.size)
        spread = sp.csr_array((self.root, (rows, self.parameters)), shape=self.average.T.shape)
        return sp.csr_array(weighted - spread @ (self.average @ weighted))

    def coefficients(self) -> list[Coefficients] | None:
        """What the z of each family may be where the blocks are sparse."""
        if all(family.coefficients is None for family in self.families):
            return None
        return [f.coefficients or Coefficients.free(f.basis.shape[1]) for f in self.families]

    def mean(self, pieces: Sequence[Floats]) -> Floats:
        """The reward `(n_parameters,)`: the weighted mean of what the families say about each entry, 0 where none does."""
        reward: Floats = self.average @ (self.root * np.concatenate(pieces))
        return reward


def _pieces(family: RewardFamily) -> tuple[Floats, ...]:
    """All columns of a family."""
    return family.u, family.v, family.basis, family.pushed, family.error_u, family.error_v


def _moved(family: RewardFamily, found: dict[int, Floats]) -> RewardFamily:
    """The family with other rows: `found` has what takes the place of each of its arrays."""
    u, v, basis, pushed, error_u, error_v = (found[id(piece)] for piece in _pieces(family))
    rows: Ints = np.arange(len(u))
    family = replace(family, parameters=rows, weights=np.ones(rows.size), u=u[:, 0], v=v[:, 0])
    return replace(family, basis=basis, pushed=pushed, error_u=error_u, error_v=error_v)


def _coordinates(blocks: Sequence[Floats]) -> list[Floats]:
    """The columns of all blocks in one orthonormal basis: R of their QR decomposition, a few rows at a time."""
    corner: Any = np.zeros((0, sum(block.shape[1] for block in blocks)))
    for start in range(0, len(blocks[0]), ROWS_AT_ONCE):
        rows = np.hstack([block[start : start + ROWS_AT_ONCE] for block in blocks])
        corner = np.linalg.qr(np.vstack([corner, rows]), mode="r")
    return np.split(corner, np.cumsum([block.shape[1] for block in blocks])[:-1], axis=1)


def beside(matrix: Floats | Sparse, columns: Sequence[Floats]) -> Floats | Sparse:
    """The matrix with dense columns put beside it."""
    if isinstance(matrix, np.ndarray):
        return np.column_stack([matrix, *columns])
    return sp.csr_array(sp.hstack([matrix, *(sp.csr_array(column[:, None]) for column in columns)]))


class StateEquations:
    """M and h for one reward per state; x = (z of every family, then λ_2 … λ_K where temperatures are free)."""

    def __init__(self, shared: SharedReward, n_experts: int, temperature: float | None) -> None:
        self.shared, self.n_experts, self.temperature = shared, n_experts, temperature
        rows, families = shared.compact, shared.compact.families
        self._ends = np.cumsum([0, *(family.basis.shape[1] for family in families)])
        self._basis = rows.blocks([family.basis for family in families])
        self._pushed = rows.blocks([family.pushed for family in families])
        self._owners: Ints = np.repeat([family.owner for family in families], np.diff(self._ends))
        self._u = [rows.place_owned(k, [family.u for family in families]) for k in range(n_experts)]
        self._v = [rows.place_owned(k, [family.v for family in families]) for k in range(n_experts)]

    @cached_property
    def coefficients(self) -> Coefficients | None:
        """What z may be; temperatures are free."""
        parts = self.shared.coefficients()
        if parts is None:
            return None
        more = [] if self.temperature is not None else [Coefficients.free(self.n_experts - 1)]
        return Coefficients.side_by_side([*parts, *more])

    def at(self, discounts: Floats) -> tuple[Floats | Sparse, Floats]:
        """Columns for z and free temperatures, and minus the part with a known temperature."""
        rewards = [u - gamma * v for u, v, gamma in zip(self._u, self._v, discounts, strict=True)]
        matrix = self._basis - self._pushed * discounts[self._owners]
        if self.temperature is not None:
            return matrix, -self.temperature * np.sum(rewards, axis=0)
        return beside(matrix, rewards[1:]), -rewards[0]

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """`−(λ V̂ + P_π N z)` on the rows of each owner: minus the value function."""
        temperature = self._temperatures(x)
        z = x[: self._ends[-1]]
        columns = [
            -temperature[k] * self._v[k] - self._pushed @ np.where(self._owners == k, z, 0.0) for k in range(self.n_experts)
        ]
        return np.stack(columns, axis=1)

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """The reward is the mean of what the families say."""
        temperature = self._temperatures(x)
        pieces = []
        for family, (a, b) in zip(self.shared.families, pairwise(self._ends), strict=True):
            gamma, lam = discounts[family.owner], temperature[family.owner]
            pieces.append(lam * (family.u - gamma * family.v) + (family.basis - gamma * family.pushed) @ x[a:b])
        return self.shared.mean(pieces), temperature

    def values(self, x: Floats) -> list[Floats]:
        """Each family's value function `λ V̂ + P_π N z` on its entered states."""
        temperature = self._temperatures(x)
        parts = zip(self.shared.families, pairwise(self._ends), strict=True)
        return [temperature[family.owner] * family.v + family.pushed @ x[a:b] for family, (a, b) in parts]

    def errors(self, discounts: Floats, x: Floats) -> list[ErrorEffect]:
        """`λ (δû − γ δV̂)` and its slope `−λ δV̂`."""
        effects = []
        rows = self.shared.compact
        for number, family in enumerate(rows.families):
            lam, gamma = float(self._temperatures(x)[family.owner]), float(discounts[family.owner])
            slope = rows.place({number: -lam * family.error_v})
            effects.append(ErrorEffect(family.owner, rows.place({number: lam * family.error_u}) + gamma * slope, slope))
        return effects

    def common_equations(self, discounts: Floats, x: Floats) -> int:
        """How many rows say something about whether the reward is shared: all but those that fix the reward itself."""
        return self.shared.size - int(self.shared.entered.sum())

    def reward_scale(self, discounts: Floats, x: Floats) -> float:
        """How much the reward varies from row to row, in the units of the residual."""
        reward = self.read(discounts, x)[0]
        varying = self.shared.root * (reward - reward[self.shared.entered].mean())[self.shared.parameters]
        return float(np.sqrt((varying**2).mean()))

    def _temperatures(self, x: Floats) -> Floats:
        if self.temperature is not None:
            return np.full(self.n_experts, self.temperature)
        return np.concatenate([[1.0], x[self._ends[-1] :]])


class KnownDiscounts:
    """Equations in which some discounts are known: the others are the unknowns, in the same order."""

    def __init__(self, inner: JointEquations, values: Floats) -> None:
        """`values` `(K,)` holds the known discounts and NaN elsewhere."""
        self.inner, self._values = inner, values
        self._free = np.isnan(values)
        self.n_experts = int(self._free.sum())

    def expand(self, discounts: Floats) -> Floats:
        """All K discounts (or rows of them) from the unknown ones, with the known ones in their places."""
        known = self._values.reshape(-1, *[1] * (discounts.ndim - 1))
        full = np.array(np.broadcast_to(known, (self._values.size, *discounts.shape[1:])))
        full[self._free] = discounts
        return full

    @property
    def coefficients(self) -> Coefficients | None:
        """Those of all experts."""
        return self.inner.coefficients

    def at(self, discounts: Floats) -> tuple[Floats | Sparse, Floats]:
        """M and h."""
        return self.inner.at(self.expand(discounts))

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """The columns of the unknown discounts."""
        return self.inner.slopes(self.expand(discounts), x)[:, self._free]

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Reward and temperatures."""
        return self.inner.read(self.expand(discounts), x)

    def errors(self, discounts: Floats, x: Floats) -> list[ErrorEffect]:
        """The effects, with a slope only in unknown discounts."""
        number = np.cumsum(self._free) - 1
        effects = self.inner.errors(self.expand(discounts), x)
        return [
            replace(e, owner=int(number[e.owner])) if self._free[e.owner] else replace(e, owner=0, slope=0.0 * e.slope)
            for e in effects
        ]


#: Draws of the errors of log π; each costs an evaluation of the policy.
FEATURE_DRAWS = 8


class FeatureEquations:
    """M and h for any features; x = (θ, then λ_2 … λ_K where temperatures are free)."""

    coefficients = None

    def __init__(
        self, problem: Problem, equations: Sequence[PolicyEquations], temperature: float | None, error: float = 0.0
    ) -> None:
        """`error` is the size of the errors in log π that are assumed; demonstrations bring their own."""
        self.problem, self.temperature = problem, temperature
        self.n_experts, self.n_features = problem.n_experts, problem.n_parameters
        self._equations, self._error = equations, error
        self._tasks = [_Task(expert, e) for expert, e in zip(problem.experts, equations, strict=True)]
        self._ends = np.cumsum([0, *(task.n_rows for task in self._tasks)])

    def at(self, discounts: Floats) -> tuple[Floats, Floats]:
        """M and h of all experts."""
        matrix = np.zeros((int(self._ends[-1]), self.n_features + (0 if self.temperature is not None else self.n_experts - 1)))
        right = np.zeros(matrix.shape[0])
        for task, owner, rows in self._each():
            features, logs = task.bellman(discounts[owner])
            matrix[rows, : self.n_features] = features
            if self.temperature is not None or owner == 0:
                right[rows] = -(self.temperature or 1.0) * logs
            else:
                matrix[rows, self.n_features + owner - 1] = logs
        return matrix, right

    def slopes(self, discounts: Floats, x: Floats) -> Floats:
        """`T V + (γT − 1) R P_π V` on the rows of each owner."""
        columns = np.zeros((int(self._ends[-1]), self.n_experts))
        theta, temperature = self.read(discounts, x)
        for task, owner, rows in self._each():
            columns[rows, owner] = task.slope(discounts[owner], theta, temperature[owner])
        return columns

    def read(self, discounts: Floats, x: Floats) -> tuple[Floats, Floats]:
        """θ and the temperatures."""
        theta = x[: self.n_features]
        if self.temperature is not None:
            return theta, np.full(self.n_experts, self.temperature)
        return theta, np.concatenate([[1.0], x[self.n_features :]])

    def errors(self, discounts: Floats, x: Floats) -> list[ErrorEffect]:
        """Differences of the equations of policies with errors from those without."""
        theta, temperature = self.read(discounts, x)
        effects = []
        for number, (task, owner, rows) in enumerate(self._each()):
            expert, e = self.problem.experts[number], self._equations[number]
            gamma, lam = discounts[owner], temperature[owner]
            drawn = drawn_errors(expert.mdp, e, number, FEATURE_DRAWS) * (self._error if expert.counts is None else 1.0)
            moved = [_Task(expert, _shifted(e, drawn[:, :, m])) for m in range(FEATURE_DRAWS)]
            residual, slope = np.zeros((2, int(self._ends[-1]), FEATURE_DRAWS))
            residual[rows] = np.stack([t.residual(gamma, theta, lam) - task.residual(gamma, theta, lam) for t in moved], axis=1)
            slope[rows] = np.stack([t.slope(gamma, theta, lam) - task.slope(gamma, theta, lam) for t in moved], axis=1)
            effects.append(ErrorEffect(owner, residual, slope))
        return effects

    def common_equations(self, discounts: Floats, x: Floats) -> int:
        """How many rows say something about whether the reward is shared: all but those that one expert alone leaves over."""
        matrix, slopes = self.at(discounts)[0], self.slopes(discounts, x)
        return sum(
            int(np.linalg.matrix_rank(np.column_stack([matrix[rows], slopes[rows, owner]]))) for _, owner, rows in self._each()
        )

    def reward_scale(self, discounts: Floats, x: Floats) -> float:
        """How much the expected immediate reward varies from row to row, in the units of the residual."""
        rewards = np.concatenate([task.rewards(x[: self.n_features]) for task in self._tasks])
        return float(rewards.std())

    def _each(self) -> Iterator[tuple[_Task, int, slice]]:
        rows = [slice(int(a), int(b)) for a, b in pairwise(self._ends)]
        return zip(self._tasks, self.problem.owner, rows, strict=True)


def _shifted(equations: PolicyEquations, errors: Floats) -> PolicyEquations:
    """The equations of the policy with errors `(S,A)` added to log π."""
    policy = equations.policy * np.exp(errors)
    policy /= policy.sum(axis=1, keepdims=True)
    return replace(equations, log_policy=np.log(np.where(equations.mdp.live, policy, 1.0)), policy=policy)


class _Task:
    """One expert's Bellman equations: the available actions of the states that are not terminal."""

    def __init__(self, expert: Expert, equations: PolicyEquations) -> None:
        mdp = expert.mdp
        live = mdp.live
        actions, self._states = np.nonzero(live.T)
        self.n_rows = self._states.size
        chosen = actions * mdp.n_states + self._states
        self._root = np.sqrt(equations.weights[self._states, actions])
        self._next = mdp.stacked[chosen]
        self._features = sp.csr_array(expert.feature_matrix)[chosen].toarray()
        self._logs = equations.log_policy[self._states, actions]
        policy = np.where(live, equations.policy, 0.0)
        under = equations.under()
        self._under = under.toarray() if mdp.n_states <= DENSE_STATES else under
        mix = sp.csr_array((policy[self._states, actions], (self._states, np.arange(self.n_rows))), (mdp.n_states, self.n_rows))
        self._immediate = np.column_stack([mix @ self._features, equations.entropy])
        self._largest = LARGEST_SOLVABLE_DISCOUNT if mdp.never_ends(equations.policy).any() else 1.0

    def rewards(self, theta: Floats) -> Floats:
        """The expected immediate reward of each row, times the root of its weight."""
        found: Floats = self._root * (self._features @ theta)
        return found

    def bellman(self, discount: float) -> tuple[Floats, Floats]:
        """The rows of M that belong to θ, and the column that belongs to the temperature."""
        gamma = min(float(discount), self._largest)
        values = Resolvent(self._under, gamma).solve(self._immediate)
        rows = np.column_stack([self._features, -self._logs]) + gamma * (self._next @ values) - values[self._states]
        weighted = (rows.T * self._root).T
        return weighted[:, :-1], weighted[:, -1]

    def residual(self, discount: float, theta: Floats, temperature: float) -> Floats:
        """`F θ + γ T V − V − λ log π` on the rows, times the root of their weights."""
        features, logs = self.bellman(discount)
        found: Floats = features @ theta + temperature * logs
        return found

    def slope(self, discount: float, theta: Floats, temperature: float) -> Floats:
        """The derivative of the residual in γ."""
        gamma = min(float(discount), self._largest)
        resolvent = Resolvent(self._under, gamma)
        values = resolvent.solve(self._immediate @ np.append(theta, temperature))
        change = resolvent.solve(self._under @ values)
        rows: Floats = self._next @ values + gamma * (self._next @ change) - change[self._states]
        return rows * self._root
