"""What one expert's policy says about the reward before any discount is known.

A soft-optimal policy π at temperature λ satisfies, with `ℓ(s,a) = λ log π(a|s)` and the reward r paid on arrival,

    ℓ(s,a) = Σ_s' T(s'|s,a) u(s') − V(s),        u = r + γ V,        V = 0 at terminal states.

Subtracting from each action its state's mean over the available actions removes V and leaves `D u = ℓ − mean(ℓ)`, in which
no discount occurs: D is the operator of action differences of the MDP. Hence

1. `u = û + N z` with û the least-squares solution and N a basis of null(D);
2. `V = P_π u + λ H(π)`, the mean of the equations under π itself: `V = V̂ + P_π N z`;
3. `r = u − γ V`, linear in γ once z is known. `linear_system` puts the experts' step 3 together.

States that no transition enters are left out: nothing depends on their reward. In the usual case null(D) holds the constants
only; the guess "constant on each connected component of D's graph" is tested numerically (a sparse factorisation of `DᵀD`
with one state of each component fixed, and the smallest singular value by inverse iteration), and where it fails null(D)
comes from a dense singular value decomposition. Solves are refined on D itself, because `DᵀD` squares its condition number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.sparse.csgraph import connected_components

from multihorizon.checks import Floats, Ints
from multihorizon.experts import Expert
from multihorizon.mdp import MDP
from multihorizon.planning.evaluation import policy_entropy
from multihorizon.problem import Problem

#: Up to this many states the dense decomposition is as fast as the sparse factorisation.
DENSE_STATES = 64
#: The largest D that is decomposed densely when its null space is larger than the constants.
LARGEST_DENSE = 3000
#: Singular values of D below this share of the largest count as zero.
RANK_TOLERANCE = 1e-9
#: Up to this many entries the errors of log π are drawn in the order of their size.
ORDERED_DRAWS = 200_000
#: Steps of iterative refinement of the normal equations.
REFINEMENTS = 3


@dataclass(frozen=True, eq=False)
class Equations:
    """One expert's `log π` and the weight of each equation, both `(S,A)`, and the policy itself.

    Weights are 1 for policies. For demonstrations they are the smoothed counts: the error of a logarithm of a frequency
    has a variance of one over its count.
    """

    log_policy: Floats
    weights: Floats
    policy: Floats


def read_equations(expert: Expert, smoothing: float = 0.5) -> Equations:
    """The logarithms of an expert's policy, or of smoothed frequencies: `smoothing` is added to each available action's count.

    Raises:
        ValueError: for a policy with a zero entry, whose logarithm does not exist, and for action sets.
    """
    live = expert.mdp.available & ~expert.mdp.terminal[:, None]
    if expert.counts is not None:
        weights = np.where(live, expert.counts + smoothing, 0.0)
        policy = np.where(live, weights, 1.0)
        policy /= policy.sum(axis=1, keepdims=True)
    else:
        policy = _positive(expert, live)
        weights = live / 1.0
    log_policy = np.log(np.where(live, policy, 1.0))
    return Equations(log_policy, weights, policy)


def _positive(expert: Expert, live: Any) -> Floats:
    if expert.policy is None:
        raise ValueError(
            f"expert {expert.name} must be given as a policy of probabilities or as demonstrations for this solver, "
            f"received {expert.kind}: use the linear-programming solvers (MPLP) for experts who choose the best action"
        )
    zero = live & (expert.policy <= 0)
    if zero.any():
        state, action = (int(i) for i in np.argwhere(zero)[0])
        raise ValueError(
            f"expert {expert.name} must give every available action a positive probability, because the equations hold "
            f"log π, received 0 in state {expert.mdp.state_names[state]} on action {expert.mdp.action_names[action]}: "
            "use the linear-programming solvers (MPLP) for deterministic experts, or mix in a little of the uniform policy"
        )
    return expert.policy


class Differences:
    """The operator D of one MDP with weighted rows: which states are entered, null(D), and least-squares solves.

    Attributes:
        entered: indices of the states that some transition enters; D's columns.
        basis: `(|entered|, n)` basis N of null(D).
        singular_values: the spectrum of D from the dense decomposition, else estimates of its largest and smallest value
            on the states left after one of each component is fixed.
    """

    def __init__(self, mdp: MDP, weights: Floats) -> None:
        self.mdp = mdp
        live = mdp.available & ~mdp.terminal[:, None]
        self._actions, self._states = np.nonzero(live.T)
        stacked = mdp.stacked.tocsr()
        self.entered: Ints = np.unique(stacked.indices).astype(np.int64)
        rows = stacked[self._actions * mdp.n_states + self._states][:, self.entered]
        self._weights = weights[self._states, self._actions]
        self._share = self._weights / np.bincount(self._states, self._weights, minlength=mdp.n_states)[self._states]
        self.matrix = self._centred(rows)
        self._decompose()

    def solve(self, log_policy: Floats) -> Floats:
        """û on the entered states, `(|entered|,)` or `(|entered|, m)` from logarithms `(S,A)` or `(S,A,m)`."""
        data = log_policy[self._states, self._actions]
        means = np.stack([np.bincount(self._states, self._share * c, minlength=self.mdp.n_states) for c in np.atleast_2d(data.T)])
        centred = data - means.T[self._states].reshape(data.shape)
        root = np.sqrt(self._weights)
        return self._least_squares((root * centred.T).T)

    def misfit(self, log_policy: Floats, solution: Floats) -> float:
        """Root mean square of the weighted `D û − (ℓ − mean)`: what of log π no reward and discount can explain."""
        data = log_policy[self._states, self._actions]
        centred = data - np.bincount(self._states, self._share * data, minlength=self.mdp.n_states)[self._states]
        gap = np.sqrt(self._weights) * centred - self.matrix @ solution
        return float(np.sqrt((gap**2).mean())) if gap.size else 0.0

    def _centred(self, rows: Any) -> Any:
        """Subtract from each row its state's weighted mean, and scale it with the root of its weight."""
        n, count = self.mdp.n_states, self._states.size
        mean = sp.csr_array((self._share, (self._states, np.arange(count))), shape=(n, count)) @ rows
        matrix = sp.csr_array(rows - mean[self._states])
        matrix.data[np.abs(matrix.data) < 1e-15] = 0.0
        matrix.eliminate_zeros()
        return sp.csr_array(sp.diags_array(np.sqrt(self._weights)) @ matrix)

    def _decompose(self) -> None:
        size = self.entered.size
        self._factor = None
        if size > DENSE_STATES and self._factorise():
            return
        if size > LARGEST_DENSE:
            raise ValueError(
                f"the actions of this MDP leave more than a constant per component open on {size} states, and null spaces "
                f"larger than that are computed for at most {LARGEST_DENSE} states"
            )
        left, self.singular_values, right = np.linalg.svd(self.matrix.toarray(), full_matrices=self.matrix.shape[0] < size)
        rank = int((self.singular_values > RANK_TOLERANCE * max(self.singular_values.max(initial=0.0), 1e-300)).sum())
        self._inverse = (right[:rank].T / self.singular_values[:rank]) @ left[:, :rank].T
        self.basis: Floats = np.ones((size, 1)) if rank == size - 1 else right[rank:].T.copy()

    def _factorise(self) -> bool:
        """Factorise `DᵀD` with one state of each component fixed; False if null(D) is larger than the components say."""
        gram = sp.csc_array(self.matrix.T @ self.matrix)
        n_parts, labels = connected_components(gram, directed=False)
        fixed = np.unique(labels, return_index=True)[1]
        self._kept = np.setdiff1d(np.arange(self.entered.size), fixed)
        if n_parts > LARGEST_DENSE or not self._kept.size:
            return False
        grounded = gram[self._kept][:, self._kept]
        try:
            factor = spla.splu(
                grounded.tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
            )
        except RuntimeError:
            return False
        largest = float(np.sqrt(abs(gram).sum(axis=0).max()))
        smallest = _smallest(factor, self._kept.size)
        if not smallest > 10 * np.sqrt(np.finfo(np.float64).eps) * largest:
            return False
        self._factor, self.singular_values = factor, np.array([largest, smallest])
        self.basis = (labels[:, None] == np.arange(n_parts)[None, :]) / 1.0
        return True

    def _least_squares(self, b: Floats) -> Floats:
        if self._factor is None:
            small: Floats = self._inverse @ b
            return small
        solution = np.zeros((self.entered.size, *b.shape[1:]))
        for _ in range(REFINEMENTS):
            solution[self._kept] += self._factor.solve((self.matrix.T @ (b - self.matrix @ solution))[self._kept])
        return solution


def _smallest(factor: Any, size: int, steps: int = 4) -> float:
    """An estimate, from above, of the smallest singular value of D by inverse iteration on the factorised `DᵀD`."""
    vector = np.random.default_rng(0).standard_normal(size)
    growth = np.inf
    for _ in range(steps):
        vector = factor.solve(vector / np.linalg.norm(vector))
        growth = float(np.linalg.norm(vector))
    return 1 / np.sqrt(growth) if np.isfinite(growth) else 0.0


@dataclass(frozen=True, eq=False)
class Line:
    """Expert i's rewards `r = λ û + N z − γ (λ V̂ + P_π N z)`, at temperature 1 and on the entered states of their task.

    `parameters` says which entry of the reward each row is. `noise_u` and `noise_v`, `(|entered|, m)`, are m draws of the
    errors of û and V̂ caused by errors of size `error` in log π; `misfit` is the part of log π outside D's range, in the same
    units; `weights` is how much each row counts where experts disagree.
    """

    owner: int
    parameters: Ints
    u: Floats
    v: Floats
    basis: Floats
    pushed: Floats
    noise_u: Floats
    noise_v: Floats
    weights: Floats
    misfit: float
    error: float


def expert_lines(problem: Problem, error: float, draws: int, smoothing: float = 0.5) -> list[Line]:
    """Steps 1 and 2 for every expert of a problem whose reward is one number per state; D is factorised once per MDP.

    Args:
        problem: policies or demonstrations, without features.
        error: the size of the errors in log π that the noise draws assume; demonstrations bring their own.
        draws: how many draws.
        smoothing: added to each available action's count of demonstrations.
    """
    shared: dict[int, Differences] = {}
    lines = []
    for number, (expert, owner) in enumerate(zip(problem.experts, problem.owner, strict=True)):
        equations = read_equations(expert, smoothing)
        if expert.counts is not None:
            differences = Differences(expert.mdp, equations.weights)
        else:
            differences = shared.get(id(expert.mdp)) or Differences(expert.mdp, equations.weights)
            shared[id(expert.mdp)] = differences
        columns = state_columns(problem, expert)
        if columns is None:
            raise ValueError(f"expert {expert.name} must have a reward of one number per state for this, received features")
        size = error if expert.counts is None else 1.0
        noise = size * log_errors(expert, equations, number, draws)
        lines.append(_line(expert, owner, columns, differences, equations, noise, size))
    return lines


def in_order_of_content(problem: Problem, smoothing: float = 0.5) -> Problem:
    """The problem with its experts in an order that depends on what they do, not on how they are named or listed.

    The most decided come first: those whose log π is farthest from 0.
    """

    def key(expert: Expert) -> tuple[float, ...]:
        equations = read_equations(expert, smoothing)
        values = equations.log_policy[equations.weights > 0]
        return tuple(-_nine_digits(np.array([values @ values, values.sum(), equations.weights.sum()])))

    return problem.with_experts(sorted(problem.experts, key=key))


def log_errors(expert: Expert, equations: Equations, seed: int | tuple[int, ...], draws: int) -> Floats:
    """Draws `(S,A,m)` of errors in log π with a variance of one over the weight of each equation.

    Entries are drawn in an order of content, so that relabelled states and actions get the same errors; among very many
    entries the order no longer matters.
    """
    noise = np.zeros((equations.log_policy.size, draws))
    live = np.flatnonzero(equations.weights.ravel() > 0)
    if live.size <= ORDERED_DRAWS:
        live = live[_content_order(expert.mdp, equations).ravel()[live].argsort()]
    noise[live] = np.random.default_rng(seed).standard_normal((live.size, draws))
    noise[live] /= np.sqrt(equations.weights.ravel()[live])[:, None]
    return noise.reshape(*equations.log_policy.shape, draws)


def _content_order(mdp: MDP, equations: Equations) -> Ints:
    """The place `(S,A)` of each entry by log π, then by its weight, its state, and the states it leads to."""
    state = (equations.weights * equations.log_policy**2).sum(axis=1)
    ahead = mdp.expect(state)
    here = np.broadcast_to(state[:, None], ahead.shape)
    keys = [mdp.expect(ahead.sum(axis=1)), ahead, here, equations.weights, equations.log_policy]
    order = np.lexsort([_nine_digits(key).ravel() for key in keys])
    place = np.empty(order.size, dtype=np.int64)
    place[order] = np.arange(order.size)
    return place.reshape(ahead.shape)


def _nine_digits(values: Floats) -> Floats:
    """Values without the digits that the order of a sum can change."""
    fraction, power = np.frexp(values)
    rounded: Floats = np.ldexp(np.round(fraction, 9), power)
    return rounded


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


def _line(
    expert: Expert,
    owner: int,
    columns: Ints,
    differences: Differences,
    equations: Equations,
    noise: Floats,
    error: float,
) -> Line:
    mdp, entered = expert.mdp, differences.entered
    stay = mdp.under(np.where(mdp.terminal[:, None], 0.0, equations.policy))[entered][:, entered]
    entropy = np.where(mdp.terminal, 0.0, policy_entropy(equations.policy))[entered]
    both = differences.solve(np.concatenate([equations.log_policy[..., None], noise], axis=2))
    u, noise_u = np.ascontiguousarray(both[:, 0]), both[:, 1:]
    weights = np.ones(entered.size) if expert.counts is None else 1 / np.maximum((noise_u**2).mean(axis=1), 1e-12)
    return Line(
        owner,
        columns[entered],
        u,
        stay @ u + entropy,
        differences.basis,
        stay @ differences.basis,
        noise_u,
        stay @ noise_u,
        weights,
        differences.misfit(equations.log_policy, u),
        error,
    )
