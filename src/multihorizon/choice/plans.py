"""Plans of experts in states that are listed: three engines, what moves with their parameters, and estimated transitions.

In the symbols of `model`:

*Planning.* The n people in one task share its transitions T `(A·S,S)`, and are planned together: values are `(S,n)`, action
values `(A,S,n)`. Three engines plan and solve with `I − γP`, by the structure of the task:

* `Episodic`: no state can be visited twice (steps left, say). States are sorted into levels, each of which leads to lower ones
  only. One backward pass over the levels is the exact plan, and one pass is a linear solve: there is no fixed point to find.
* `Small`: Newton's method on the soft Bellman equation with dense matrices, all people together.
* `Large`: anything else. Sparse matrices, one person after the other.

Newton's iteration and its stopping rule are those of `soft_plan`.

*Values of the future.* An engine backs values up as "soft", "max" or "mean" (`planning.plan`). Backups move with Q by weights ω
and with log λ by a rise, and all derivatives are with `I − γ Σ_a ω T` in place of `I − γP`.

*Habits.* Choices may have more in them than the plan, which does not foresee it. With l the action before and κ ≥ 0 its pull, a
choice is drawn from `π_c ∝ exp((Q + κ [a = l])/λ)`, and with probability ε it is a lapse, any of the available actions alike:

    p(a|s,l) = (1 − ε) π_c(a) + ε/|A(s)|.

So decisions are counted by context: c = l·S + s with the last action l, which is A in the first decision of an episode. Without
κ contexts are states. With `y` weights of log p, `z = y (1−ε)π_c/p` are those of `log π_c`, and `Σ y (1/|A| − π_c)/p` is the
derivative in ε.

*Durations.* Where moves take time, a person with discount γ plans in the task as it is seen at γ (`MDP.at`): G(γ) takes the place
of T, here and in what is paid on arrival. Such people are planned one by one, because each has transitions of their own. With ρ
what arrivals pay and `u = ρ + γV`, Q moves with γ by `G V + G' u` in place of `T V`.

*Estimated transitions give way within their own error.* A table shows a row `T(·|s,a)` through `m(s')` counted moves; p̂ is the
estimate, and `m = size · p̂`. To hold T at p̂ while everything else is fitted would take the error of p̂ for a finding about
experts: other temperatures, another discount, a model that does not fit. So T is fitted too: what is maximised is the likelihood
of decisions and moves, `L(x,T) + Σ m log T`. Each move has a number t, and `T ∝ p̂ exp(t)` within its row. The common level of a
row's numbers does not change T. It is held by counting moves as they would come in a time in which one expects the size of the
row (Poisson):

    ℓ(t) = Σ m (t − exp(t) + 1),

whose maximum over the level is `Σ m log(T/p̂)`. Its gradient is `m (1 − exp(t))`, and its curvature is diagonal, `m exp(t)`. At a
maximum the decisions pull as hard the other way, and because T is curved in t this adds `m (1 − exp(t))`: m in all. Rows with one
possible next state have nothing to give way, and rows that are known exactly have no numbers. A row's change moves expert k's
immediate reward: `dR_k(s,a) = Σ_s' dT(s'|s,a) u_k(s')` with `u_k = ρ + γ_k V_k`, ρ the reward paid on arrival. So
`dR_k/dt(s') = T(s') (u_k(s') − Σ T u_k)`.

*Estimated durations give way alike.* What comes of a decision is a next state s' and a time τ. The likelihood of both factors
into that of s', as above, and that of τ given s', `Σ m(τ) log q(τ|s,a,s')`. So the times of each kind of move, of moves that
share them, have numbers t of their own, `q ∝ q̂ exp(t)`, whether transitions are estimated or known. With G(γ) in place of T, a
number of transitions moves R by `G(s') u(s') − T(s') Σ G u`, and one of times by a sum over all moves from (s,a) of its kind of

    dR_k/dt(τ) = T(s') q(τ) (γ_k^(τ−1) − Σ q γ_k^(τ−1)) u_k(s').

Where moves took more than five times, neighbouring ones give way together, in five parts of about equal probability.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.mdp import MDP, episodic_levels
from multihorizon.planning.linear import Resolvent, policy_resolvent
from multihorizon.planning.plan import (
    INFINITE,
    MAX_NEWTON_STEPS,
    ROUNDED_RESIDUAL,
    STALLED_RESIDUAL,
    Value,
    backed_up,
    backup_derivative,
    check_policy,
    log_policies,
    mean_values,
    plan,
    soft_plan,
)
from multihorizon.problem import Problem, require_counts


class Decided(Protocol):
    """Decisions that are planned together: how often each action was taken, its first axis, and how often anything was."""

    @property
    def counts(self) -> Floats:
        """Return how often each choice was made `(A,…)`."""
        ...

    @property
    def visits(self) -> Floats:
        """Return its sum over the actions."""
        ...


class Choices:
    """What follows from `log π`, whose first axis is the action."""

    log: Floats

    @cached_property
    def policy(self) -> Floats:
        """Return the probabilities π, of the shape of `log`."""
        return np.exp(self.log)

    @cached_property
    def finite_log(self) -> Floats:
        """Return `log π` with 0 in place of −inf: actions that cannot be taken have no counts, and 0·(−inf) must not be NaN."""
        return np.where(np.isfinite(self.log), self.log, 0.0)

    @cached_property
    def entropy(self) -> Floats:
        """Return the entropy of each choice."""
        total: Floats = -(self.policy * self.finite_log).sum(axis=0)
        return total


#: With more levels than this, a pass over them is slower than Newton's method.
MOST_LEVELS = 200
#: Into so many parts the times of a move are put together to give way; five parts keep nine tenths of the variance of γ^τ.
MOST_PARTS = 5


@dataclass(frozen=True, eq=False)
class Resolvents:
    """Solves with `I − γP` of each person's policy: `(I − γP)^{-1} b`, and `(I − γPᵀ)^{-1} b`, for `(S,n,q)`.

    `factors` are those of each person, where they are kept.
    """

    solve: Callable[[Floats], Floats]
    solve_transposed: Callable[[Floats], Floats]
    factors: Sequence[Resolvent] = ()


#: A planner of somebody's own: from a task, its expected immediate reward `(S,A)`, a discount and a temperature to a policy.
Planner = Callable[[MDP, Floats, float, float], Any]


def value_name(value: Value | Planner) -> str:
    """Return what a way to value the future, or a planner of somebody's own, is called."""
    return value if isinstance(value, str) else getattr(value, "__qualname__", type(value).__name__)


class Engine(Protocol):
    """How a task is planned in, and how the future is valued."""

    value: Any

    def values(self, reward: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Floats | None:
        """Return the values `(S,n)`, begun at those of a neighbouring plan; None where one is infinite.

        The expected immediate reward is `(A·S,)` of all people, or `(A·S,n)` of each.
        """
        ...

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """Solves under the policies, or other weights of actions, `(A,S,n)`."""
        ...

    def of(self, mdp: MDP) -> Engine:
        """Return the same engine for other probabilities of the same moves."""
        ...


def engine_for(mdp: MDP, value: Value | Planner = "soft") -> Engine:
    """Return the engine that suits the task's structure, or the one of a planner of somebody's own."""
    if callable(value):
        return Own(mdp, value)
    levels = episodic_levels(mdp)
    if levels is not None and len(levels) <= MOST_LEVELS:
        return Episodic(mdp, levels, value)
    return Small(mdp, value) if mdp.n_states <= 128 else Large(mdp, value)  # up to there dense matrices for all are faster


def one_by_one(mdp: MDP, reward: Floats, gamma: Floats, lam: Floats, value: Value) -> Floats | None:
    """Return the values `(S,n)` of people planned one after the other, which are not soft."""
    expected = reward.reshape(mdp.n_actions, mdp.n_states, -1).transpose(2, 1, 0)
    values = np.empty((mdp.n_states, gamma.size))
    for i, (g, temperature) in enumerate(zip(gamma.tolist(), lam.tolist(), strict=True)):
        now = expected[min(i, len(expected) - 1)]
        try:
            values[:, i] = plan(mdp, now, g).values if value == "max" else mean_values(mdp, now, g, temperature)
        except ValueError:  # values are infinite, or were not reached
            return None
    return values


class Episodic:
    """Backward passes over the levels of a task without cycles."""

    def __init__(self, mdp: MDP, levels: list[Ints], value: Value = "soft") -> None:
        self.mdp, self.value = mdp, value
        self.levels = levels
        a, s = mdp.n_actions, mdp.n_states
        self.moves = [mdp.stacked[(np.arange(a)[:, None] * s + level).ravel()] for level in levels]
        self.closed = [np.where(mdp.available[level].T, 0.0, -np.inf)[:, :, None] for level in levels]

    def values(self, reward: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Floats | None:
        """Plan by one backward pass; it needs no start."""
        a, s = self.mdp.n_actions, self.mdp.n_states
        values = np.zeros((s, gamma.size))
        rewards = reward.reshape(a, s, -1)
        for level, moves, closed in zip(self.levels, self.moves, self.closed, strict=True):
            later = (moves @ values).reshape(a, level.size, -1)
            values[level] = backed_up(rewards[:, level] + gamma * later + closed, lam, self.value)
        return values if (np.abs(values).max(axis=0, initial=0.0) < INFINITE * lam).all() else None

    def of(self, mdp: MDP) -> Episodic:
        """Return the same levels."""
        return Episodic(mdp, self.levels, self.value)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """Solve by passes over the levels."""
        weights = policy * gamma

        def solve(b: Floats) -> Floats:
            x = np.where(self.mdp.terminal[:, None, None], b, 0.0)
            n, q = b.shape[1:]
            for level, moves in zip(self.levels, self.moves, strict=True):
                later = (moves @ x.reshape(-1, n * q)).reshape(-1, level.size, n, q)
                x[level] = b[level] + np.einsum("amn,amnq->mnq", weights[:, level], later)
            return x

        def solve_transposed(b: Floats) -> Floats:
            x = b.copy()
            flat = x.reshape(len(x), -1)
            for level, moves in zip(reversed(self.levels), reversed(self.moves), strict=True):
                flow = weights[:, level, :, None] * x[level]
                flat += moves.T @ flow.reshape(-1, flat.shape[1])
            return x

        return Resolvents(solve, solve_transposed)


class Small:
    """Newton's method with dense matrices for all people together."""

    def __init__(self, mdp: MDP, value: Value = "soft") -> None:
        self.mdp, self.value = mdp, value
        self.stacked: Floats = mdp.stacked.toarray()
        self.by_state = self.stacked.reshape(mdp.n_actions, mdp.n_states, -1).transpose(1, 0, 2).copy()
        self.identity = np.eye(mdp.n_states)
        self.closed = np.where(mdp.available.T, 0.0, -np.inf)[:, :, None]

    def values(self, reward: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Floats | None:
        """Plan by Newton's method, each person until the residual is rounding."""
        if self.value == "mean" or (self.value == "max" and (gamma == 1).any()):
            return one_by_one(self.mdp, reward, gamma, lam, self.value)
        a, s = self.mdp.n_actions, self.mdp.n_states
        rewards = reward.reshape(a, s, -1)
        values = np.zeros((s, gamma.size)) if near is None else np.where(gamma < 1, near.values, 0.0)
        residual = np.full(gamma.size, np.inf)
        active = np.arange(gamma.size)
        moved = values[:, active]
        for _ in range(MAX_NEWTON_STEPS + 1):
            later = gamma[active] * (self.stacked @ moved).reshape(a, s, -1)
            now = rewards if rewards.shape[2] == 1 else rewards[:, :, active]
            log, backed = log_policies(now + later + self.closed, lam[active])
            if self.value == "max":
                backed = (now + later + self.closed).max(axis=0)
            defect = np.where(self.mdp.terminal[:, None], 0.0, backed) - moved
            defects = np.abs(defect).max(axis=0)
            scale = np.maximum(lam[active], np.abs(moved).max(axis=0))
            better = defects < residual[active]
            size = np.maximum(lam[active], np.abs(values[:, active]).max(axis=0))
            stalled = ~better & (residual[active] <= STALLED_RESIDUAL * size)
            keep = ~stalled
            values[:, active[keep]], residual[active[keep]] = moved[:, keep], defects[keep]
            going = keep & (defects > ROUNDED_RESIDUAL * scale)
            if not going.any():
                return values
            active = active[going]
            weights, _ = backup_derivative(log[:, :, going], moved[:, going], lam[active], self.value)
            operator = self._operator(weights, gamma[active])
            try:
                moved = moved[:, going] + np.linalg.solve(operator, defect[:, going].T[:, :, None])[:, :, 0].T
            except np.linalg.LinAlgError:
                return None
            if not (np.abs(moved).max(axis=0) < INFINITE * lam[active]).all():
                return None
        return None

    def of(self, mdp: MDP) -> Small:
        """Return a dense engine again."""
        return Small(mdp, self.value)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """Return one dense inverse for each person."""
        inverses: Any = np.linalg.inv(self._operator(policy, gamma))
        return Resolvents(
            lambda b: (inverses @ b.transpose(1, 0, 2)).transpose(1, 0, 2),
            lambda b: (b.transpose(1, 2, 0) @ inverses).transpose(2, 0, 1),
        )

    def _operator(self, policy: Floats, gamma: Floats) -> Floats:
        """Return `I − γP` `(n,S,S)`; endings keep a row of the identity."""
        under = (policy.transpose(1, 2, 0) @ self.by_state).transpose(1, 0, 2)
        operator: Floats = self.identity - gamma[:, None, None] * under
        return operator


class Large:
    """Sparse planning, one person after the other."""

    def __init__(self, mdp: MDP, value: Value = "soft") -> None:
        self.mdp, self.value = mdp, value

    def values(self, reward: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Floats | None:
        """Return each person's plan, begun at `near` except at discount 1, where a neighbour can lead to a false fixed point."""
        if self.value != "soft":
            return one_by_one(self.mdp, reward, gamma, lam, self.value)
        expected = reward.reshape(self.mdp.n_actions, self.mdp.n_states, -1).transpose(2, 1, 0)
        values = np.empty((self.mdp.n_states, gamma.size))
        factors = getattr(vars(near).get("resolvents"), "factors", ()) if near is not None else ()  # where they have been made
        for i, (g, temperature) in enumerate(zip(gamma, lam, strict=True)):
            start, factor = None, None
            if near is not None and g < 1:
                start, factor = near.values[:, i], factors[i] if factors else None
            try:
                now = expected[min(i, len(expected) - 1)]
                values[:, i] = soft_plan(self.mdp, now, float(g), float(temperature), start=start, resolvent=factor).values
            except ValueError:  # the soft values are infinite
                return None
        return values

    def of(self, mdp: MDP) -> Large:
        """Return a sparse engine again."""
        return Large(mdp, self.value)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """Return one sparse factorisation, or iteration, for each person."""
        factors = [policy_resolvent(self.mdp, policy[:, :, i].T, float(g)) for i, g in enumerate(gamma)]

        def solve(b: Floats) -> Floats:
            # How choices move decides the length of a step and standard errors.
            columns = [factor.solve(np.ascontiguousarray(b[:, i]), tolerance=1e-9) for i, factor in enumerate(factors)]
            return np.stack(columns, axis=1)

        def solve_transposed(b: Floats) -> Floats:
            # The adjoint decides where a climb ends.
            one = b.shape[2] == 1
            columns = [
                factor.solve(b[:, i, 0] if one else np.ascontiguousarray(b[:, i]), transpose=True, tolerance=1e-12)
                for i, factor in enumerate(factors)
            ]
            return np.stack(columns, axis=1).reshape(b.shape)

        return Resolvents(solve, solve_transposed, factors)


class Own:
    """A planner of somebody's own, which says policies and nothing of values."""

    def __init__(self, mdp: MDP, value: Planner) -> None:
        self.mdp, self.value = mdp, value

    def log_policies(self, reward: Floats, gamma: Floats, lam: Floats) -> Floats:
        """Return log π `(A,S,n)`; chances below a billionth count as that."""
        paid = reward.reshape(self.mdp.n_actions, self.mdp.n_states, -1)
        log = np.full((self.mdp.n_actions, self.mdp.n_states, gamma.size), -np.inf)
        for i, (g, temperature) in enumerate(zip(gamma.tolist(), lam.tolist(), strict=True)):
            given = self.value(self.mdp, paid[:, :, min(i, paid.shape[2] - 1)].T, g, temperature)
            policy = check_policy(self.mdp, given, "the planner's policy").T
            log[:, :, i] = np.where(self.mdp.available.T, np.log(np.maximum(policy, 1e-9)), -np.inf)
        return log

    def values(self, reward: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Floats | None:
        """Return zeros `(S,n)`: such a planner has no values."""
        return np.zeros((self.mdp.n_states, gamma.size))

    def of(self, mdp: MDP) -> Own:
        """Return the same planner in another task."""
        return Own(mdp, self.value)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """Raise: without values there is nothing to solve for."""
        raise ValueError("a planner of your own says nothing of values: this needs soft values")


class Features:
    """The reward features F `(A·S,d)` of one task, and their averages under policies.

    `used` are the columns in which derivatives are taken: those with entries, and none where the weights are known.
    """

    def __init__(self, matrix: Any, mdp: MDP, free: bool = True, used: Ints | None = None) -> None:
        self.matrix = sp.csr_array(matrix)
        self.mdp = mdp
        self.free = free
        filled = np.flatnonzero(np.bincount(self.matrix.indices, minlength=self.matrix.shape[1])).astype(np.int64)
        self.used: Ints = (filled if free else filled[:0]) if used is None else used

    @cached_property
    def transposed(self) -> Any:
        """Return `Fᵀ` `(d,A·S)`."""
        return self.matrix.T

    @cached_property
    def dense(self) -> Floats | None:
        """Return F `(A·S,used)` where that is small, else None."""
        if self.matrix.shape[0] * self.used.size > 4_000_000:
            return None
        array: Floats = self.matrix[:, self.used].toarray()
        return array

    def rows(self, rows: Ints) -> Floats:
        """Return some rows of F in the used columns, dense."""
        if self.dense is not None:
            return self.dense[rows]
        array: Floats = self.matrix[rows][:, self.used].toarray()
        return array

    def averages(self, policy: Floats) -> Floats:
        """Return `Σ_a π(a|s) F(s,a)` `(S,n,used)` of policies `(A,S,n)`."""
        a, s = self.mdp.n_actions, self.mdp.n_states
        if self.dense is not None:
            return policy.transpose(1, 2, 0) @ self.dense.reshape(a, s, -1).transpose(1, 0, 2)
        blocks = [self.matrix[i * s : (i + 1) * s][:, self.used] for i in range(a)]
        columns = []
        for person in range(policy.shape[2]):
            columns.append(sum((sp.diags_array(policy[i, :, person]) @ blocks[i]).toarray() for i in range(a)))
        return np.stack(columns, axis=1)


class Habits(NamedTuple):
    """What choices have in them beside the plan: the share ε of lapses, and the pull κ of the last action."""

    lapse: float
    stickiness: float


class Choosing(NamedTuple):
    """How choices are made: how the future is valued, or by which planner, and the habits."""

    value: Value | Planner = "soft"
    habits: Habits | None = None


#: Soft values, and choices that follow the plan alone.
SOFT = Choosing()


@dataclass(frozen=True, eq=False)
class Persons:
    """People in one task, planned together: counts `(A,C,n)`, visits `(C,n)`, and whose they are `(n,)`.

    Contexts C are the states S or, where decisions are counted `by_last` action, one for each last action and state.
    `positions` are their places among the problem's experts (one for each person and task), `owners` their numbers as people,
    `task` is the number of the MDP among those of the problem.
    """

    mdp: MDP
    engine: Engine
    features: Features
    known_reward: Floats
    known_arrival: Floats | None
    arrival: Sparse | None
    counts: Floats
    visits: Floats
    positions: Ints
    owners: Ints
    task: int
    by_last: bool = False

    @cached_property
    def visited_rows(self) -> Ints:
        """Return the rows a·C+c of available actions in contexts where anyone decided."""
        seen = (self.visits > 0).any(axis=1, keepdims=True) & np.tile(self.mdp.available, (self.last_actions, 1))
        return np.flatnonzero(seen.T.ravel())

    @property
    def last_actions(self) -> int:
        """Return how many last actions are told apart: A + 1, or 1 where they do not matter."""
        return self.mdp.n_actions + 1 if self.by_last else 1

    def rows_of_task(self, rows: Ints) -> Ints:
        """Return the rows a·S+s of the task for rows a·C+c."""
        states, contexts = self.mdp.n_states, self.mdp.n_states * self.last_actions
        return rows // contexts * states + rows % states if self.by_last else rows

    @cached_property
    def repeated(self) -> Floats:
        """Return where an action is the last one `(A,C,1)`."""
        same = np.eye(self.mdp.n_actions, self.last_actions) if self.by_last else np.zeros((self.mdp.n_actions, 1))
        return np.repeat(same, self.mdp.n_states, axis=1)[:, :, None]

    @cached_property
    def at_random(self) -> Floats:
        """Return the chances of available actions that are all alike `(A,C,1)`."""
        alike = self.mdp.available / self.mdp.available.sum(axis=1, keepdims=True)
        return np.tile(alike.T, (1, self.last_actions))[:, :, None]

    def by_state(self, counts: Floats) -> Floats:
        """Return sums `(A,S,…)` over the last actions of what is said of contexts `(A,C,…)`."""
        if not self.by_last:
            return counts
        total: Floats = counts.reshape(len(counts), self.last_actions, self.mdp.n_states, *counts.shape[2:]).sum(axis=1)
        return total

    def pooled(self) -> Persons:
        """Return the same people, their decisions counted by state alone."""
        counts = self.by_state(self.counts)
        return replace(self, counts=counts, visits=counts.sum(axis=0), by_last=False) if self.by_last else self

    @cached_property
    def back(self) -> Sparse:
        """Return `Tᵀ` `(S,A·S)`."""
        return self.mdp.stacked.T

    def in_task(self, mdp: MDP, engine: Engine) -> Persons:
        """Return the same people where the same moves have other probabilities."""
        features = self.features
        known_reward = self.known_reward
        if self.arrival is not None:
            features = Features(mdp.stacked @ self.arrival, mdp, self.features.free, self.features.used)
        if self.known_arrival is not None:
            known_reward = mdp.stacked @ self.known_arrival
        return replace(self, mdp=mdp, engine=engine, features=features, known_reward=known_reward)

    def at(self, discount: float) -> Persons:
        """Return the same people in the task as all of them see it at one discount."""
        if self.mdp.durations is None:
            return self
        seen = self.mdp.at(discount)
        return self.in_task(seen, self.engine.of(seen))

    def recounted(self, counts: Sequence[Floats]) -> Persons:
        """Return the same people with other decisions `(C,A)`, given for each of the problem's experts."""
        stacked = np.stack([counts[i].T for i in self.positions], axis=2)
        stacked = np.where(np.tile(self.mdp.terminal, self.last_actions)[None, :, None], 0.0, stacked)
        return replace(self, counts=stacked, visits=stacked.sum(axis=0))

    def reward(self, theta: Floats) -> Floats:
        """Return the expected immediate reward `(A·S,)` of all under θ `(d,)`, or `(A·S,n)` of each where everybody has one
        `(K,d)`.
        """
        if theta.ndim == 1:
            total: Floats = self.known_reward + self.features.matrix @ theta
        else:
            total = self.known_reward[:, None] + self.features.matrix @ theta[self.owners].T
        return total

    def range_of(self, theta: Floats) -> float:
        """Return the range of what decisions pay at once under θ `(d,)`; with 0, which is what follows an end, where there is
        one.
        """
        seen = self.at(0.5)  # where moves take time, what is paid meanwhile is discounted
        paid = seen.reward(theta)[seen.mdp.live.T.ravel()]
        low, high = float(paid.min(initial=np.inf)), float(paid.max(initial=-np.inf))
        if self.mdp.terminal.any():
            low = min(low, 0.0)
            high = max(high, 0.0)
        return high - low if np.isfinite(high - low) else 0.0

    def on_arrival(self, theta: Floats) -> Floats:
        """Return what is paid on arrival under θ `(d,)` of all, or `(K,d)` of each, `(S,1)` or `(S,n)`."""
        paid: Floats = np.zeros((self.mdp.n_states, 1))
        if self.known_arrival is not None:
            paid = paid + self.known_arrival[:, None]
        if self.arrival is not None:
            paid = paid + self.arrival @ (theta[:, None] if theta.ndim == 1 else theta[self.owners].T)
        return paid

    def plan(self, theta: Floats, gamma: Floats, lam: Floats, near: Plans | None, habits: Habits | None = None) -> Plans | None:
        """Return their plans under discounts and temperatures `(K,)` of all; None where a value is infinite."""
        assert self.mdp.durations is None, "where moves take time, people plan in the task as they see it"
        reward = self.reward(theta)
        gamma = gamma[self.owners]
        lam = lam[self.owners]
        values = self.engine.values(reward, gamma, lam, near)
        if values is None:
            return None
        a, s = self.mdp.n_actions, self.mdp.n_states
        paid = None if self.mdp.slope is None else self.on_arrival(theta)
        if isinstance(self.engine, Own):
            log = self.engine.log_policies(reward, gamma, lam)
        else:
            closed = np.where(self.mdp.available.T, 0.0, -np.inf)[:, :, None]
            q = reward.reshape(a, s, -1) + gamma * (self.mdp.stacked @ values).reshape(a, s, -1) + closed
            log = log_policies(q, lam)[0]
        if habits is None:
            return Plans(self, values, log, gamma, lam, paid)
        drawn = log_policies(np.tile(log, (1, self.last_actions, 1)) + habits.stickiness * self.repeated / lam, 1.0)[0]
        with np.errstate(divide="ignore"):  # no lapses, and no such action
            mixed = np.logaddexp(np.log1p(-habits.lapse) + drawn, np.log(habits.lapse * self.at_random))
        return Plans(self, values, mixed if habits.lapse else drawn, gamma, lam, paid, log, drawn, habits)


def persons_by_task(
    problem: Problem,
    free: bool,
    moves: Mapping[int, int],
    value: Value | Planner = "soft",
    by_last: Sequence[Floats] | None = None,
) -> tuple[Persons, ...]:
    """Return the problem's experts by task, in batches that fit into memory; `moves` says how many moves of a task give way.

    `by_last` are the decisions of each expert by context `(C,A)`; without them they are counted by state.
    """
    number = {id(mdp): task for task, mdp in enumerate(problem.mdps)}
    batches = []
    for members in problem.by_task():
        first = problem.experts[members[0]]
        mdp = first.mdp
        task = number[id(first.mdp)]
        features = Features(first.feature_matrix, mdp, free)
        engine = engine_for(mdp, value)
        rows = mdp.n_actions * mdp.n_states
        contexts = 1 if by_last is None else mdp.n_actions + 1
        # People are planned together as long as their derivatives fit into a million numbers.
        derivatives = features.used.size + 2 + moves.get(task, 0)
        size = max(1, 1_000_000 // (rows * contexts * derivatives)) if mdp.durations is None else 1
        for low in range(0, len(members), size):
            some = members[low : low + size]
            counts = np.stack([(require_counts(problem.experts[i]) if by_last is None else by_last[i]).T for i in some], axis=2)
            counts = np.where(np.tile(mdp.terminal, contexts)[None, :, None], 0.0, counts)
            batches.append(
                Persons(
                    mdp=mdp,
                    engine=engine,
                    features=features,
                    known_reward=np.zeros(rows) if first.known_reward is None else first.known_reward,
                    known_arrival=first.known_arrival,
                    arrival=first.arrival_features,
                    counts=counts,
                    visits=counts.sum(axis=0),
                    positions=np.array(some, dtype=np.int64),
                    owners=np.array([problem.owner[i] for i in some], dtype=np.int64),
                    task=task,
                    by_last=by_last is not None,
                )
            )
    return tuple(batches)


class Pulled(NamedTuple):
    """Sums `Σ y d log p` in the immediate reward R `(A,S,n)`, in log λ `(n,)`, and in ε and κ `(2,)`; none without habits."""

    reward: Floats
    log_temperature: Floats
    habits: Floats


@dataclass(frozen=True, eq=False)
class Plans(Choices):
    """The plans of people in one task: values `(S,n)`, `log p` `(A,C,n)` of choices, discounts and temperatures `(n,)`.

    The task of `persons` has the transitions with which they plan. Where moves take time, `paid` `(S,1)` or `(S,n)` is what θ
    pays on arrival. With `habits`, `planned` `(A,S,n)` are the logarithms of the choices that the plan alone makes, and `drawn`
    `(A,C,n)` those of choices that are no lapses.
    """

    persons: Persons
    values: Floats
    log: Floats
    gamma: Floats
    lam: Floats
    paid: Floats | None = None
    planned: Floats | None = None
    drawn: Floats | None = None
    habits: Habits | None = None

    @cached_property
    def backup(self) -> tuple[Floats, Floats]:
        """Return how values move with Q `(A,S,n)`, and with log λ `(S,n)`."""
        if self.habits is None and self.persons.engine.value == "soft":
            return self.policy, self.lam * self.entropy
        log = self.log if self.planned is None else self.planned
        return backup_derivative(log, self.values, self.lam, self.persons.engine.value)

    @cached_property
    def resolvents(self) -> Resolvents:
        """Solves with `I − γP`, P the transitions under the weights of the backup."""
        return self.persons.engine.resolvents(self.backup[0], self.gamma)

    @cached_property
    def next_values(self) -> Floats:
        """Return `T V` `(A,S,n)`, how action values move with γ; where moves take time `G V + G' u`."""
        mdp = self.persons.mdp
        expected: Floats = mdp.stacked @ self.values
        if mdp.slope is not None and self.paid is not None:
            expected += mdp.slope @ (self.paid + self.gamma * self.values)
        return expected.reshape(mdp.n_actions, mdp.n_states, -1)

    @cached_property
    def _deliberate(self) -> tuple[Floats, Floats]:
        """Return the chances of choices that are no lapses, and their logarithms with 0 for −inf, `(A,C,n)`."""
        if self.drawn is None:
            return self.policy, self.finite_log
        return np.exp(self.drawn), np.where(np.isfinite(self.drawn), self.drawn, 0.0)

    @cached_property
    def _kept(self) -> Floats:
        """Return how likely a choice was no lapse `(A,C,n)`."""
        assert self.habits is not None
        share: Floats = (1 - self.habits.lapse) * np.exp(self._deliberate[1] - self.finite_log)
        return np.where(np.isfinite(self.log), share, 0.0)

    @cached_property
    def _by_lapse(self) -> Floats:
        """Return `d log p / dε` `(A,C,n)`."""
        moved: Floats = (self.persons.at_random - self._deliberate[0]) * np.exp(np.minimum(-self.finite_log, 300.0))
        return moved

    def pull_back(self, y: Floats) -> Pulled:
        """Return `Σ y d log p` for weights y `(A,C,n)`."""
        chances, logs = self._deliberate
        habits = np.zeros(0)
        if self.habits is not None:
            by_lapse = float((y * self._by_lapse).sum())
            y = y * self._kept
        slack = y - y.sum(axis=0) * chances
        direct = (slack * logs).sum(axis=(0, 1))
        if self.habits is not None:
            habits = np.array([by_lapse, float((slack * self.persons.repeated / self.lam).sum())])
        slack = self.persons.by_state(slack) / self.lam
        later = self.gamma * (self.persons.back @ slack.reshape(-1, self.lam.size))
        flow = self.resolvents.solve_transposed(later[:, :, None])[:, :, 0]
        flow[self.persons.mdp.terminal] = 0.0
        weights, rise = self.backup
        return Pulled(slack + weights * flow, (flow * rise).sum(axis=0) - direct, habits)

    def score_rows(self) -> Floats:
        """Return `d log p(a|c)` `(rows,n,q)` at the rows of visited contexts, in θ's used columns, γ and log λ."""
        return self.scores(self.persons.visited_rows)[0]

    def scores(self, rows: Ints) -> tuple[Floats, Floats]:
        """Return `d log p(a|c)` `(rows,n,q)` in θ's used columns, γ and log λ, and `dV` `(S,n,q)`.

        The rows a·C + c are those of all available actions in some contexts.
        """
        mdp, features, n = self.persons.mdp, self.persons.features, self.lam.size
        weights, rise = self.backup
        ahead = (weights * self.next_values).sum(axis=0)
        moved = self.resolvents.solve(
            np.concatenate(
                [features.averages(weights), ahead[:, :, None], np.where(mdp.terminal[:, None], 0.0, rise)[:, :, None]], axis=2
            )
        )
        of_task = self.persons.rows_of_task(rows)
        scores = self._later(moved, of_task)
        scores[:, :, :-2] += features.rows(of_task)[:, None, :]
        scores[:, :, -2] += self.next_values.reshape(-1, n)[of_task]
        scores[:, :, -1] -= self.lam * self._deliberate[1].reshape(-1, n)[rows]
        scores /= self.lam[:, None]
        return self._of_choices(scores, rows), moved

    def reward_rows(self, wanted: Ints) -> Floats:
        """Return `d log p(a|c)` `(rows,n,E)` at the rows of visited contexts in the immediate rewards of some rows a·S + s
        `(E,)`.
        """
        rows, n, s = self.persons.visited_rows, self.lam.size, self.persons.mdp.n_states
        of_task = self.persons.rows_of_task(rows)
        distinct, number = np.unique(wanted % s, return_inverse=True)
        unit = np.zeros((s, n, distinct.size))
        unit[distinct, :, np.arange(distinct.size)] = 1.0
        slopes = self._later(self.resolvents.solve(unit), of_task)
        scores: Floats = slopes[:, :, number] * self.backup[0].reshape(-1, n)[wanted].T
        scores += (of_task[:, None] == wanted)[:, None, :]
        scores /= self.lam[:, None]
        return self._of_choices(scores, rows)

    def along_columns(self, columns: Floats) -> Floats:
        """Return `d log p(a|c)` `(rows,n,q)` at the rows of visited contexts in weights of columns `(A·S,q)` of the immediate
        reward.
        """
        rows, (a, s) = self.persons.visited_rows, (self.persons.mdp.n_actions, self.persons.mdp.n_states)
        of_task = self.persons.rows_of_task(rows)
        averages = np.einsum("asn,asq->snq", self.backup[0], columns.reshape(a, s, -1))
        scores = self._later(self.resolvents.solve(averages), of_task)
        scores += columns[of_task][:, None]
        scores /= self.lam[:, None]
        return self._of_choices(scores, rows)

    def habit_rows(self) -> Floats:
        """Return `d log p(a|c)` `(rows,n,2)` at the rows of visited contexts in ε and κ."""
        rows, n = self.persons.visited_rows, self.lam.size
        pull = np.broadcast_to(self.persons.repeated, self.log.shape).reshape(-1, n)[rows] / self.lam
        by_lapse = self._by_lapse.reshape(-1, n)[rows]
        return np.concatenate([by_lapse[:, :, None], self._of_choices(pull[:, :, None], rows)], axis=2)

    def along(self, change: Floats, log_temperature: Floats, habits: Floats) -> Floats:
        """Return how log p `(A,C,n)` moves where Q moves by `(A,S,n)`, log λ by `(n,)`, and ε and κ by `(2,)`."""
        chances, logs = self._deliberate
        moved: Floats = np.tile(change / self.lam, (1, self.persons.last_actions, 1)) - log_temperature * logs
        if self.habits is not None:
            moved += habits[1] * self.persons.repeated / self.lam
        moved -= (chances * moved).sum(axis=0)
        if self.habits is not None:
            moved = moved * self._kept + habits[0] * self._by_lapse
        return np.where(np.isfinite(self.log), moved, 0.0)

    def _later(self, moved: Floats, rows: Ints) -> Floats:
        """Return `γ T dV` `(rows,n,q)` at some rows a·S + s, where values move by `(S,n,q)`; less dV where that is their mean."""
        mdp, (s, n, q) = self.persons.mdp, moved.shape
        moved[mdp.terminal] = 0.0
        later: Floats = self.gamma[:, None] * (mdp.stacked[rows] @ moved.reshape(s, -1)).reshape(-1, n, q)
        if self._is_soft:
            later -= moved[rows % s]
        return later

    @property
    def _is_soft(self) -> bool:
        """Return whether values move as the mean of action values over the choices does."""
        return self.habits is None and self.persons.engine.value == "soft"

    def _of_choices(self, slopes: Floats, rows: Ints) -> Floats:
        """Return `d log p` `(rows,n,q)` where Q/λ moves by these; the rows a·C + c are those of all actions in some contexts."""
        if self._is_soft:
            return slopes
        n = self.lam.size
        context, number = np.unique(rows % (self.persons.mdp.n_states * self.persons.last_actions), return_inverse=True)
        members = sp.csr_array((np.ones(rows.size), (number, np.arange(rows.size))), shape=(context.size, rows.size))
        chances = self._deliberate[0].reshape(-1, n)[rows]
        means = members @ (chances[:, :, None] * slopes).reshape(rows.size, -1)
        centred: Floats = slopes - means[number].reshape(slopes.shape)
        return centred if self.habits is None else centred * self._kept.reshape(-1, n)[rows][:, :, None]


@dataclass(frozen=True, eq=False)
class LoggedMoves:
    """What may give way of one task: the moves of estimated rows, and after them the times that estimated moves take.

    Each has a number t, of which there are E. A number may move the reward of several decisions, where moves share their times:
    so many effects F. `task` is the number of the MDP among those of the problem, which holds the estimate.

    Attributes:
        moving: the first numbers, and the first effects, are those of so many moves.
        group: `(E,)`, within which probabilities sum to 1: the row of a move, the kind of a time.
        estimate: `(E,)` p̂ of a next state in its row, q̂ of times in their kind.
        counts: `(E,)` the counts m behind them.
        entries, rows: `(F,)` the place of an effect's move in `mdp.stacked.data`, and its row a·S + s.
        of: `(F,)` the number t that has the effect.
        parts: for each of the task's durations the effect `(m,)` that it is part of, or −1.
    """

    task: int
    mdp: MDP
    moving: int
    group: Ints
    estimate: Floats
    counts: Floats
    entries: Ints
    rows: Ints
    of: Ints
    parts: Ints

    @property
    def size(self) -> int:
        """Return how many numbers there are."""
        return self.estimate.size

    def probabilities(self, t: Floats) -> Floats:
        """Return all probabilities of the task, in the order of `MDP.probabilities`, where they give way by t `(E,)`."""
        data: Floats = self.mdp.probabilities.copy()
        weights: Floats = self.estimate * np.exp(t)
        weights /= np.bincount(self.group, weights)[self.group]
        data[self.entries[: self.moving]] = weights[: self.moving]
        lasting = np.flatnonzero(self.parts >= 0)
        data[self.mdp.stacked.nnz + lasting] *= (weights / self.estimate)[self.of[self.parts[lasting]]]
        return data

    def numbers(self, mdp: MDP) -> Floats:
        """Return the t `(E,)` with which they have the probabilities of an MDP."""
        numbers: Floats = np.zeros(self.size)
        places = self.entries[: self.moving]
        numbers[: self.moving] = np.log(mdp.stacked.data[places] / self.estimate[: self.moving])
        if mdp.durations is not None:
            shares, estimates = self._of_times(mdp.durations.shares), self._of_times(self.mdp.probabilities[mdp.stacked.nnz :])
            numbers[self.of[self.moving :]] = np.log(shares[self.moving :] / estimates[self.moving :])
        return numbers

    def worth(self, plan: Plans, theta: Floats) -> Floats:
        """Return how each person's immediate reward moves with t, by each effect `(F,n)`."""
        return self.change(plan.persons.mdp, plan.persons.on_arrival(theta) + plan.gamma * plan.values)

    def change(self, mdp: MDP, reached: Floats) -> Floats:
        """Return how `T u`, or `G u` where moves take time, moves with t, by each effect `(F,…)`, for values u `(S,…)`."""
        moves = mdp.stacked
        flat = reached.reshape(mdp.n_states, -1)
        seen, chances = moves.data[self.entries], moves.data[self.entries]
        ahead = flat[moves.indices[self.entries]]
        taken = slice(0, self.moving)
        change = np.empty_like(ahead)
        if mdp.origin is not None:
            chances = mdp.origin.stacked.data[self.entries]
            if (durations := mdp.origin.durations) is not None and mdp.discount is not None:
                later = chances * self._of_times(durations.shares * mdp.discount ** (durations.times - 1))
                later -= seen * self._of_times(durations.shares)
                change = later[:, None] * ahead
        means = (moves @ flat)[self.rows[taken]]
        change[taken] = seen[taken, None] * ahead[taken] - chances[taken, None] * means
        effects: Floats = change.reshape(-1, *reached.shape[1:])
        return effects

    def summed(self, effects: Floats) -> Floats:
        """Return sums `(…,E)` of what is said of effects `(…,F)`, over those of each number."""
        if self.of.size == self.size:  # one effect for each
            return effects
        gather = sp.csr_array((np.ones(self.of.size), (self.of, np.arange(self.of.size))), shape=(self.size, self.of.size))
        summed: Floats = (gather @ effects.reshape(-1, self.of.size).T).T
        return summed.reshape(*effects.shape[:-1], self.size)

    def _of_times(self, values: Floats) -> Floats:
        """Return sums `(F,)` of numbers of the task's durations over those that are part of an effect; 0 for moves."""
        lasting = self.parts >= 0
        total: Floats = np.bincount(self.parts[lasting], values[lasting], minlength=self.of.size).astype(np.float64)
        return total


def logged_moves(problem: Problem) -> tuple[LoggedMoves, ...]:
    """Return what may give way of each task in which something was estimated; the problem's tasks are as they were counted."""
    logged = []
    for task, mdp in enumerate(problem.mdps):
        if not mdp.is_estimated:
            continue
        widths = np.diff(mdp.stacked.indptr)
        row_of = np.repeat(np.arange(widths.size), widths)
        sizes = np.full(widths.size, np.inf) if mdp.sample_sizes is None else mdp.sample_sizes
        entries = np.flatnonzero(np.isfinite(sizes[row_of]) & (widths[row_of] > 1) & (mdp.stacked.data > 0))
        moving = entries.size
        estimate = mdp.stacked.data[entries]
        group, counts, of = (
            np.unique(row_of[entries], return_inverse=True)[1],
            sizes[row_of[entries]] * estimate,
            np.arange(moving),
        )
        part = _parts_of_durations(mdp)
        parts = np.zeros(0, dtype=np.int64)
        durations = mdp.durations
        if durations is not None and durations.sizes is not None and durations.kinds is not None:
            parts = np.full(part.size, -1)
            lasting = part >= 0
            of_part, kind = part[lasting], durations.kinds[lasting]
            effects, first, parts[lasting] = _numbered(durations.entries[lasting] * MOST_PARTS + of_part)
            numbers, begins, number = _numbered(kind * MOST_PARTS + of_part)
            shares = np.bincount(parts[lasting], durations.shares[lasting])[parts[lasting][begins]]
            estimate, of = np.concatenate([estimate, shares]), np.concatenate([of, moving + number[first]])
            group = np.concatenate([group, numbers // MOST_PARTS + group.max(initial=-1) + 1])
            counts = np.concatenate([counts, durations.sizes[lasting][begins] * shares])
            entries = np.concatenate([entries, effects // MOST_PARTS])
            parts = np.where(lasting, parts + moving, -1)
        group = np.unique(group, return_inverse=True)[1]
        logged.append(LoggedMoves(task, mdp, moving, group, estimate, counts, entries, row_of[entries], of, parts))
    return tuple(logged)


def _numbered(keys: Any) -> tuple[Any, Ints, Ints]:
    """Return the distinct keys, the first place of each, and the number of the key at every place."""
    distinct, first, number = np.unique(keys, return_index=True, return_inverse=True)
    return distinct, first, number


def _parts_of_durations(mdp: MDP) -> Ints:
    """Return for each of the task's durations `(m,)` the part of its kind with which it gives way, −1 where there is nothing to
    give.

    Parts are the times of estimated moves that took at least two; more than `MOST_PARTS` go together.
    """
    durations = mdp.durations
    if durations is None or durations.sizes is None:
        return np.full(0 if durations is None else durations.times.size, -1)
    order = np.lexsort((durations.times, durations.entries))
    entries, shares = durations.entries[order], durations.shares[order]
    first = np.searchsorted(entries, entries)
    pieces = np.bincount(entries)[entries]
    ends = np.cumsum(shares)
    middle = ends - shares / 2 - (ends - shares)[first]
    place = (middle * MOST_PARTS).astype(np.int64).clip(0, MOST_PARTS - 1)
    gives = np.isfinite(durations.sizes[order]) & (pieces > 1) & (mdp.stacked.data[entries] > 0)
    parts = np.full(order.size, -1)
    parts[order] = np.where(gives, np.where(pieces <= MOST_PARTS, np.arange(order.size) - first, place), -1)
    return parts


def redrawn(mdp: MDP, rng: np.random.Generator) -> MDP:
    """Return the task with estimated rows, and the times of estimated kinds of moves, drawn anew around their estimates."""
    if not mdp.is_estimated:
        return mdp
    data = mdp.probabilities.copy()
    durations = mdp.durations
    moves = mdp.stacked.nnz
    if mdp.sample_sizes is not None:
        ends = mdp.stacked.indptr
        for row, size in enumerate(mdp.sample_sizes.tolist()):
            data[ends[row] : ends[row + 1]] = _drawn_anew(data[ends[row] : ends[row + 1]], size, rng)
    if durations is not None and durations.sizes is not None and durations.kinds is not None:
        for kind in np.unique(durations.kinds).tolist():
            entries = np.flatnonzero(durations.kinds == kind)
            _, first, number = _numbered(durations.times[entries])
            drawn = _drawn_anew(durations.shares[entries[first]], float(durations.sizes[entries[0]]), rng)
            data[moves + entries] = drawn[number]
    return mdp.with_probabilities(data)


def _drawn_anew(chances: Floats, size: float, rng: np.random.Generator) -> Floats:
    """Return the shares of so many draws; the same chances where they are known exactly."""
    if not np.isfinite(size) or chances.size < 2:
        return chances
    draws = max(1, round(size))
    shares: Floats = rng.multinomial(draws, chances / chances.sum()) / draws
    return shares
