"""Choices in states that are listed: the likelihood of logged decisions, and its exact derivatives through the plans.

Expert k, with discount γ and temperature λ, is seen to take action a in state s `N(s,a)` times, `n(s) = Σ_a N(s,a)`. Under reward
parameters θ the log-likelihood of these choices, given the states in which they were made, is

    L = Σ_k Σ_{s,a} N(s,a) log π(a|s),   λ log π(a|s) = Q(s,a) − V(s),   Q = R₀ + F θ + γ T V,   V(s) = λ log Σ_a exp(Q(s,a)/λ),

with R₀ the known part of the reward, if there is one. It is undiscounted: each decision counts once, whenever it was made. V
solves a fixed-point equation (the nested fixed point of Rust, 1987) and is differentiated through it. With `P = Σ_a π T`, H the
entropy of π and `πF` the policy's average of F's rows,

    dV = (I − γP)^{-1} [πF dθ + P V dγ + H dλ],      dQ = F dθ + T V dγ + γ T dV,
    d log π(a|s) = (dQ(s,a) − dV(s))/λ − log π(a|s) dλ/λ.

*Backwards*: with `G = (N − nπ)/λ` and one adjoint solve `w = (I − γPᵀ)^{-1} γ TᵀG` an expert's gradient is `Fᵀ(G + π w)` in θ,
`⟨G + π w, TV⟩` in γ and `w·H − Σ (nH + N log π)/λ` in λ; the cost does not depend on how many parameters there are.
*Forwards*: the rows ψ(s,a) of d log π, by one solve for each parameter, give the Fisher information `Σ n(s) π(a|s) ψψᵀ`.
*Products* of the information with a vector v are one forward solve (`J v`, how log π moves along v) and one adjoint solve
(`Jᵀ W (J v)`) per expert. With very many parameters they stand in for the matrix.

*Planning.* The n persons in one task share its transitions T `(A·S,S)`, and are planned together: values are `(S,n)`, action
values `(A,S,n)`. Three engines plan and solve with `I − γP`, by the structure of the task:

* `Episodic`: no state can be visited twice (steps left, say). States are sorted into levels, each of which leads to lower ones
  only. One backward pass over the levels is the exact plan, and one pass is a linear solve: there is no fixed point to find.
* `Small`: Newton's method on the soft Bellman equation with dense matrices, all persons together.
* `Large`: anything else. Sparse matrices, one person after the other.

Newton's iteration and its stopping rule are those of `soft_plan`.

*Durations.* Where moves take time, a person with discount γ plans in the task as it is seen at γ (`MDP.at`): G(γ) takes the place
of T, here and in what is paid on arrival. Such persons are planned one by one, because each has transitions of their own. With ρ
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

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Floats, Ints, Sparse
from multihorizon.choice.model import DENSE_PARAMETERS, ChoiceModel, ChoicePoint, Choices, Quadratic, Settings
from multihorizon.mdp import MDP, episodic_levels, is_narrow
from multihorizon.numerics.newton import Metric, Products
from multihorizon.planning.linear import Resolvent, policy_resolvent
from multihorizon.planning.plan import (
    INFINITE,
    MAX_NEWTON_STEPS,
    ROUNDED_RESIDUAL,
    STALLED_RESIDUAL,
    log_policies,
    soft_plan,
)
from multihorizon.problem import Problem, require_counts

#: With more levels than this, a pass over them is slower than Newton's method.
MOST_LEVELS = 200
#: With more rewards than this, products with the curvature cost less than the matrix where sparse factors stay small
#: (`benchmarks/fits.py --roads`).
PRODUCT_REWARDS = 300
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


class Engine(Protocol):
    """How a task is planned in."""

    def values(self, reward: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Floats | None:
        """The soft values `(S,n)`, begun at those of a neighbouring plan; None where one is infinite.

        The expected immediate reward is `(A·S,)` of all persons, or `(A·S,n)` of each.
        """
        ...

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """Solves under the policies `(A,S,n)`."""
        ...

    def of(self, mdp: MDP) -> Engine:
        """The same engine for other probabilities of the same moves."""
        ...


def engine_for(mdp: MDP) -> Engine:
    """The engine that suits the task's structure."""
    levels = episodic_levels(mdp)
    if levels is not None and len(levels) <= MOST_LEVELS:
        return Episodic(mdp, levels)
    return Small(mdp) if mdp.n_states <= 128 else Large(mdp)  # up to there dense matrices for all are faster


class Episodic:
    """Backward passes over the levels of a task without cycles."""

    def __init__(self, mdp: MDP, levels: list[Ints]) -> None:
        self.mdp = mdp
        self.levels = levels
        a, s = mdp.n_actions, mdp.n_states
        self.moves = [mdp.stacked[(np.arange(a)[:, None] * s + level).ravel()] for level in levels]
        self.closed = [np.where(mdp.available[level].T, 0.0, -np.inf)[:, :, None] for level in levels]

    def values(self, reward: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Floats | None:
        """One backward pass; it needs no start."""
        a, s = self.mdp.n_actions, self.mdp.n_states
        values = np.zeros((s, gamma.size))
        rewards = reward.reshape(a, s, -1)
        for level, moves, closed in zip(self.levels, self.moves, self.closed, strict=True):
            later = (moves @ values).reshape(a, level.size, -1)
            values[level] = log_policies(rewards[:, level] + gamma * later + closed, lam)[1]
        return values if (np.abs(values).max(axis=0, initial=0.0) < INFINITE * lam).all() else None

    def of(self, mdp: MDP) -> Episodic:
        """The same levels."""
        return Episodic(mdp, self.levels)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """Passes over the levels."""
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
    """Newton's method with dense matrices for all persons together."""

    def __init__(self, mdp: MDP) -> None:
        self.mdp = mdp
        self.stacked: Floats = mdp.stacked.toarray()
        self.by_state = self.stacked.reshape(mdp.n_actions, mdp.n_states, -1).transpose(1, 0, 2).copy()
        self.identity = np.eye(mdp.n_states)
        self.closed = np.where(mdp.available.T, 0.0, -np.inf)[:, :, None]

    def values(self, reward: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Floats | None:
        """Newton's iterates of each person until the residual is rounding."""
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
            defect = np.where(self.mdp.terminal[:, None], 0.0, backed) - moved
            found = np.abs(defect).max(axis=0)
            scale = np.maximum(lam[active], np.abs(moved).max(axis=0))
            better = found < residual[active]
            size = np.maximum(lam[active], np.abs(values[:, active]).max(axis=0))
            stalled = ~better & (residual[active] <= STALLED_RESIDUAL * size)
            keep = ~stalled
            values[:, active[keep]], residual[active[keep]] = moved[:, keep], found[keep]
            going = keep & (found > ROUNDED_RESIDUAL * scale)
            if not going.any():
                return values
            active = active[going]
            operator = self._operator(np.exp(log[:, :, going]), gamma[active])
            try:
                moved = moved[:, going] + np.linalg.solve(operator, defect[:, going].T[:, :, None])[:, :, 0].T
            except np.linalg.LinAlgError:
                return None
            if not (np.abs(moved).max(axis=0) < INFINITE * lam[active]).all():
                return None
        return None

    def of(self, mdp: MDP) -> Small:
        """Dense again."""
        return Small(mdp)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """One dense inverse for each person."""
        inverses: Any = np.linalg.inv(self._operator(policy, gamma))
        return Resolvents(
            lambda b: (inverses @ b.transpose(1, 0, 2)).transpose(1, 0, 2),
            lambda b: (b.transpose(1, 2, 0) @ inverses).transpose(2, 0, 1),
        )

    def _operator(self, policy: Floats, gamma: Floats) -> Floats:
        """`I − γP` `(n,S,S)`; endings keep a row of the identity."""
        under = (policy.transpose(1, 2, 0) @ self.by_state).transpose(1, 0, 2)
        operator: Floats = self.identity - gamma[:, None, None] * under
        return operator


class Large:
    """Sparse planning, one person after the other."""

    def __init__(self, mdp: MDP) -> None:
        self.mdp = mdp

    def values(self, reward: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Floats | None:
        """Each person's soft plan, begun at `near` except at discount 1, where a neighbour can lead to a false fixed point."""
        expected = reward.reshape(self.mdp.n_actions, self.mdp.n_states, -1).transpose(2, 1, 0)
        found = np.empty((self.mdp.n_states, gamma.size))
        factors = getattr(vars(near).get("resolvents"), "factors", ()) if near is not None else ()  # where they have been made
        for i, (g, temperature) in enumerate(zip(gamma, lam, strict=True)):
            begin: tuple[Floats | None, Resolvent | None] = (None, None)
            if near is not None and g < 1:
                begin = near.values[:, i], factors[i] if factors else None
            try:
                now = expected[min(i, len(expected) - 1)]
                found[:, i] = soft_plan(self.mdp, now, float(g), float(temperature), *begin).values
            except ValueError:  # the soft values are infinite
                return None
        return found

    def of(self, mdp: MDP) -> Large:
        """Sparse again."""
        return Large(mdp)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """One sparse factorisation, or iteration, for each person."""
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
        """`Fᵀ` `(d,A·S)`."""
        return self.matrix.T

    @cached_property
    def dense(self) -> Floats | None:
        """F `(A·S,used)` where that is small, else None."""
        if self.matrix.shape[0] * self.used.size > 4_000_000:
            return None
        array: Floats = self.matrix[:, self.used].toarray()
        return array

    def rows(self, rows: Ints) -> Floats:
        """Some rows of F in the used columns, dense."""
        if self.dense is not None:
            return self.dense[rows]
        array: Floats = self.matrix[rows][:, self.used].toarray()
        return array

    def averages(self, policy: Floats) -> Floats:
        """`Σ_a π(a|s) F(s,a)` `(S,n,used)` of policies `(A,S,n)`."""
        a, s = self.mdp.n_actions, self.mdp.n_states
        if self.dense is not None:
            return policy.transpose(1, 2, 0) @ self.dense.reshape(a, s, -1).transpose(1, 0, 2)
        blocks = [self.matrix[i * s : (i + 1) * s][:, self.used] for i in range(a)]
        columns = []
        for person in range(policy.shape[2]):
            columns.append(sum((sp.diags_array(policy[i, :, person]) @ blocks[i]).toarray() for i in range(a)))
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons in one task, planned together: counts `(A,S,n)`, visits `(S,n)`, and whose they are `(n,)`.

    `positions` are their places among the problem's experts (one for each person and task), `owners` their numbers as persons,
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

    @cached_property
    def visited_rows(self) -> Ints:
        """The rows a·S+s of available actions in states where anyone decided."""
        seen = (self.visits > 0).any(axis=1, keepdims=True) & self.mdp.available
        return np.flatnonzero(seen.T.ravel())

    @cached_property
    def back(self) -> Sparse:
        """`Tᵀ` `(S,A·S)`."""
        return self.mdp.stacked.T

    def in_task(self, mdp: MDP, engine: Engine) -> Persons:
        """The same persons where the same moves have other probabilities."""
        features, known = self.features, self.known_reward
        if self.arrival is not None:
            features = Features(mdp.stacked @ self.arrival, mdp, self.features.free, self.features.used)
        if self.known_arrival is not None:
            known = mdp.stacked @ self.known_arrival
        return replace(self, mdp=mdp, engine=engine, features=features, known_reward=known)

    def at(self, discount: float) -> Persons:
        """The same persons in the task as all of them see it at one discount."""
        seen = self.mdp.at(discount)
        return self if seen is self.mdp else self.in_task(seen, self.engine.of(seen))

    def recounted(self, counts: Sequence[Floats]) -> Persons:
        """The same persons with other decisions `(S,A)`, given for each of the problem's experts."""
        stacked = np.stack([counts[i].T for i in self.positions], axis=2)
        stacked = np.where(self.mdp.terminal[None, :, None], 0.0, stacked)
        return replace(self, counts=stacked, visits=stacked.sum(axis=0))

    def reward(self, theta: Floats) -> Floats:
        """The expected immediate reward `(A·S,)` of all under θ `(d,)`, or `(A·S,n)` of each where everybody has one `(K,d)`."""
        if theta.ndim == 1:
            total: Floats = self.known_reward + self.features.matrix @ theta
        else:
            total = self.known_reward[:, None] + self.features.matrix @ theta[self.owners].T
        return total

    def range_of(self, theta: Floats) -> float:
        """The range of what decisions pay at once under θ `(d,)`; with 0, which is what follows an end, where there is one."""
        seen = self.at(0.5)  # where moves take time, what is paid meanwhile is discounted
        paid = seen.reward(theta)[seen.mdp.live.T.ravel()]
        low, high = float(paid.min(initial=np.inf)), float(paid.max(initial=-np.inf))
        if self.mdp.terminal.any():
            low, high = min(low, 0.0), max(high, 0.0)
        return high - low if np.isfinite(high - low) else 0.0

    def on_arrival(self, theta: Floats) -> Floats:
        """What is paid on arrival under θ `(d,)` of all, or `(K,d)` of each, `(S,1)` or `(S,n)`."""
        paid: Floats = np.zeros((self.mdp.n_states, 1))
        if self.known_arrival is not None:
            paid = paid + self.known_arrival[:, None]
        if self.arrival is not None:
            paid = paid + self.arrival @ (theta[:, None] if theta.ndim == 1 else theta[self.owners].T)
        return paid

    def plan(self, theta: Floats, gamma: Floats, lam: Floats, near: Plans | None) -> Plans | None:
        """Their soft plans under discounts and temperatures `(K,)` of all; None where a soft value is infinite."""
        assert self.mdp.durations is None, "where moves take time, persons plan in the task as they see it"
        reward, gamma, lam = self.reward(theta), gamma[self.owners], lam[self.owners]
        values = self.engine.values(reward, gamma, lam, near)
        if values is None:
            return None
        a, s = self.mdp.n_actions, self.mdp.n_states
        closed = np.where(self.mdp.available.T, 0.0, -np.inf)[:, :, None]
        q = reward.reshape(a, s, -1) + gamma * (self.mdp.stacked @ values).reshape(a, s, -1) + closed
        return Plans(
            self, values, log_policies(q, lam)[0], gamma, lam, None if self.mdp.slope is None else self.on_arrival(theta)
        )


def persons_by_task(problem: Problem, free: bool, moves: Mapping[int, int]) -> tuple[Persons, ...]:
    """The problem's experts by task, in batches that fit into memory; `moves` says how many moves of a task give way."""
    number = {id(mdp): task for task, mdp in enumerate(problem.mdps)}
    found = []
    for members in problem.by_task():
        first = problem.experts[members[0]]
        mdp, task = first.mdp, number[id(first.mdp)]
        features, engine = Features(first.feature_matrix, mdp, free), engine_for(mdp)
        rows = mdp.n_actions * mdp.n_states
        # Persons are planned together as long as their derivatives fit into a million numbers.
        size = max(1, 1_000_000 // (rows * (features.used.size + 2 + moves.get(task, 0)))) if mdp.durations is None else 1
        for low in range(0, len(members), size):
            some = members[low : low + size]
            counts = np.stack([require_counts(problem.experts[i]).T for i in some], axis=2)
            counts = np.where(mdp.terminal[None, :, None], 0.0, counts)
            found.append(
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
                )
            )
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Plans(Choices):
    """The soft plans of persons in one task: values `(S,n)`, `log π` `(A,S,n)`, discounts and temperatures `(n,)`.

    The task of `persons` has the transitions with which they plan. Where moves take time, `paid` `(S,1)` or `(S,n)` is what θ
    pays on arrival.
    """

    persons: Persons
    values: Floats
    log: Floats
    gamma: Floats
    lam: Floats
    paid: Floats | None = None

    @cached_property
    def resolvents(self) -> Resolvents:
        """Solves with `I − γP`."""
        return self.persons.engine.resolvents(self.policy, self.gamma)

    @cached_property
    def next_values(self) -> Floats:
        """`T V` `(A,S,n)`, how action values move with γ; where moves take time `G V + G' u`."""
        mdp = self.persons.mdp
        found: Floats = mdp.stacked @ self.values
        if mdp.slope is not None and self.paid is not None:
            found += mdp.slope @ (self.paid + self.gamma * self.values)
        return found.reshape(self.log.shape)

    def pull_back(self, y: Floats) -> tuple[Floats, Floats]:
        """`Σ y d log π / dR` `(A,S,n)` for the immediate reward R, and the adjoint w `(S,n)`, for weights y `(A,S,n)`."""
        slack = (y - y.sum(axis=0) * self.policy) / self.lam
        later = self.gamma * (self.persons.back @ slack.reshape(-1, self.lam.size))
        flow = self.resolvents.solve_transposed(later[:, :, None])[:, :, 0]
        flow[self.persons.mdp.terminal] = 0.0
        return slack + self.policy * flow, flow

    def score_rows(self) -> Floats:
        """`d log π(a|s)` `(rows,n,q)` at the rows of visited states, in θ's used columns, γ and log λ."""
        return self.scores(self.persons.visited_rows)[0]

    def scores(self, rows: Ints) -> tuple[Floats, Floats]:
        """`d log π(a|s)` `(rows,n,q)` at some rows a·S + s, in θ's used columns, γ and log λ, and `dV` `(S,n,q)`."""
        mdp, features, n = self.persons.mdp, self.persons.features, self.lam.size
        randomness = np.where(mdp.terminal[:, None], 0.0, self.lam * self.entropy)
        ahead = (self.policy * self.next_values).sum(axis=0)
        moved = self.resolvents.solve(
            np.concatenate([features.averages(self.policy), ahead[:, :, None], randomness[:, :, None]], axis=2)
        )
        scores = self._later(moved, rows)
        scores[:, :, :-2] += features.rows(rows)[:, None, :]
        scores[:, :, -2] += self.next_values.reshape(-1, n)[rows]
        scores[:, :, -1] -= self.lam * self.finite_log.reshape(-1, n)[rows]
        scores /= self.lam[:, None]
        return scores, moved

    def reward_rows(self, wanted: Ints) -> Floats:
        """`d log π(a|s)` `(rows,n,E)` at the rows of visited states in the immediate rewards of some rows a·S + s `(E,)`."""
        rows, n, s = self.persons.visited_rows, self.lam.size, self.persons.mdp.n_states
        distinct, number = np.unique(wanted % s, return_inverse=True)
        unit = np.zeros((s, n, distinct.size))
        unit[distinct, :, np.arange(distinct.size)] = 1.0
        found = self._later(self.resolvents.solve(unit), rows)
        scores: Floats = found[:, :, number] * self.policy.reshape(-1, n)[wanted].T
        scores += (rows[:, None] == wanted)[:, None, :]
        scores /= self.lam[:, None]
        return scores

    def along_columns(self, columns: Floats) -> Floats:
        """`d log π(a|s)` `(rows,n,q)` at the rows of visited states in weights of columns `(A·S,q)` of the immediate reward."""
        rows, (a, s, _) = self.persons.visited_rows, self.log.shape
        averages = np.einsum("asn,asq->snq", self.policy, columns.reshape(a, s, -1))
        scores = self._later(self.resolvents.solve(averages), rows)
        scores += columns[rows][:, None]
        scores /= self.lam[:, None]
        return scores

    def _later(self, moved: Floats, rows: Ints) -> Floats:
        """`γ T dV − dV` `(rows,n,q)` at some rows a·S + s, where values move by `(S,n,q)`."""
        mdp, (s, n, q) = self.persons.mdp, moved.shape
        moved[mdp.terminal] = 0.0
        found: Floats = self.gamma[:, None] * (mdp.stacked[rows] @ moved.reshape(s, -1)).reshape(-1, n, q)
        found -= moved[rows % s]
        return found


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
        """How many numbers there are."""
        return self.estimate.size

    def probabilities(self, t: Floats) -> Floats:
        """All probabilities of the task, in the order of `MDP.probabilities`, where they give way by t `(E,)`."""
        data: Floats = self.mdp.probabilities.copy()
        weights: Floats = self.estimate * np.exp(t)
        weights /= np.bincount(self.group, weights)[self.group]
        data[self.entries[: self.moving]] = weights[: self.moving]
        lasting = np.flatnonzero(self.parts >= 0)
        data[self.mdp.stacked.nnz + lasting] *= (weights / self.estimate)[self.of[self.parts[lasting]]]
        return data

    def numbers(self, mdp: MDP) -> Floats:
        """The t `(E,)` with which they have the probabilities of an MDP."""
        found: Floats = np.zeros(self.size)
        places = self.entries[: self.moving]
        found[: self.moving] = np.log(mdp.stacked.data[places] / self.estimate[: self.moving])
        if mdp.durations is not None:
            shares, estimates = self._of_times(mdp.durations.shares), self._of_times(self.mdp.probabilities[mdp.stacked.nnz :])
            found[self.of[self.moving :]] = np.log(shares[self.moving :] / estimates[self.moving :])
        return found

    def worth(self, plan: Plans, theta: Floats) -> Floats:
        """How each person's immediate reward moves with t, by each effect `(F,n)`."""
        return self.change(plan.persons.mdp, plan.persons.on_arrival(theta) + plan.gamma * plan.values)

    def change(self, mdp: MDP, reached: Floats) -> Floats:
        """How `T u`, or `G u` where moves take time, moves with t, by each effect `(F,…)`, for values u `(S,…)`."""
        moves, flat = mdp.stacked, reached.reshape(mdp.n_states, -1)
        seen, chances = moves.data[self.entries], moves.data[self.entries]
        ahead, taken = flat[moves.indices[self.entries]], slice(0, self.moving)
        found = np.empty_like(ahead)
        if mdp.origin is not None:
            chances = mdp.origin.stacked.data[self.entries]
            if (durations := mdp.origin.durations) is not None and mdp.discount is not None:
                later = chances * self._of_times(durations.shares * mdp.discount ** (durations.times - 1))
                later -= seen * self._of_times(durations.shares)
                found = later[:, None] * ahead
        means = (moves @ flat)[self.rows[taken]]
        found[taken] = seen[taken, None] * ahead[taken] - chances[taken, None] * means
        effects: Floats = found.reshape(-1, *reached.shape[1:])
        return effects

    def summed(self, effects: Floats) -> Floats:
        """Sums `(…,E)` of what is said of effects `(…,F)`, over those of each number."""
        if self.of.size == self.size:  # one effect for each
            return effects
        gather = sp.csr_array((np.ones(self.of.size), (self.of, np.arange(self.of.size))), shape=(self.size, self.of.size))
        found: Floats = (gather @ effects.reshape(-1, self.of.size).T).T
        return found.reshape(*effects.shape[:-1], self.size)

    def _of_times(self, values: Floats) -> Floats:
        """Sums `(F,)` of numbers of the task's durations over those that are part of an effect; 0 for moves."""
        lasting = self.parts >= 0
        total: Floats = np.bincount(self.parts[lasting], values[lasting], minlength=self.of.size).astype(np.float64)
        return total


def logged_moves(problem: Problem) -> tuple[LoggedMoves, ...]:
    """What may give way of each task in which something was estimated; the problem's tasks are as they were counted."""
    found = []
    for task, mdp in enumerate(problem.mdps):
        if not mdp.is_estimated:
            continue
        widths = np.diff(mdp.stacked.indptr)
        row_of = np.repeat(np.arange(widths.size), widths)
        sizes = np.full(widths.size, np.inf) if mdp.sample_sizes is None else mdp.sample_sizes
        entries = np.flatnonzero(np.isfinite(sizes[row_of]) & (widths[row_of] > 1) & (mdp.stacked.data > 0))
        moving, estimate = entries.size, mdp.stacked.data[entries]
        group, counts, of = (
            np.unique(row_of[entries], return_inverse=True)[1],
            sizes[row_of[entries]] * estimate,
            np.arange(moving),
        )
        part, parts, durations = _parts_of_durations(mdp), np.zeros(0, dtype=np.int64), mdp.durations
        if durations is not None and durations.sizes is not None and durations.kinds is not None:
            parts, lasting = np.full(part.size, -1), part >= 0
            own, kind = part[lasting], durations.kinds[lasting]
            effects, first, parts[lasting] = _numbered(durations.entries[lasting] * MOST_PARTS + own)
            numbers, begins, number = _numbered(kind * MOST_PARTS + own)
            shares = np.bincount(parts[lasting], durations.shares[lasting])[parts[lasting][begins]]
            estimate, of = np.concatenate([estimate, shares]), np.concatenate([of, moving + number[first]])
            group = np.concatenate([group, numbers // MOST_PARTS + group.max(initial=-1) + 1])
            counts = np.concatenate([counts, durations.sizes[lasting][begins] * shares])
            entries, parts = np.concatenate([entries, effects // MOST_PARTS]), np.where(lasting, parts + moving, -1)
        group = np.unique(group, return_inverse=True)[1]
        found.append(LoggedMoves(task, mdp, moving, group, estimate, counts, entries, row_of[entries], of, parts))
    return tuple(found)


def _numbered(keys: Any) -> tuple[Any, Ints, Ints]:
    """The distinct keys, the first place of each, and the number of the key at every place."""
    distinct, first, number = np.unique(keys, return_index=True, return_inverse=True)
    return distinct, first, number


def _parts_of_durations(mdp: MDP) -> Ints:
    """For each of the task's durations `(m,)` the part of its kind with which it gives way, −1 where there is nothing to give.

    Parts are the times of estimated moves that took at least two; more than `MOST_PARTS` go together.
    """
    durations = mdp.durations
    if durations is None or durations.sizes is None:
        return np.full(0 if durations is None else durations.times.size, -1)
    order = np.lexsort((durations.times, durations.entries))
    entries, shares = durations.entries[order], durations.shares[order]
    first = np.searchsorted(entries, entries)
    pieces, ends = np.bincount(entries)[entries], np.cumsum(shares)
    middle = ends - shares / 2 - (ends - shares)[first]
    place = (middle * MOST_PARTS).astype(np.int64).clip(0, MOST_PARTS - 1)
    gives = np.isfinite(durations.sizes[order]) & (pieces > 1) & (mdp.stacked.data[entries] > 0)
    found = np.full(order.size, -1)
    found[order] = np.where(gives, np.where(pieces <= MOST_PARTS, np.arange(order.size) - first, place), -1)
    return found


def redrawn(mdp: MDP, rng: np.random.Generator) -> MDP:
    """The task with estimated rows, and the times of estimated kinds of moves, drawn anew around their estimates."""
    if not mdp.is_estimated:
        return mdp
    data, durations, moves = mdp.probabilities.copy(), mdp.durations, mdp.stacked.nnz
    if mdp.sample_sizes is not None:
        ends = mdp.stacked.indptr
        for row, size in enumerate(mdp.sample_sizes.tolist()):
            data[ends[row] : ends[row + 1]] = _drawn_anew(data[ends[row] : ends[row + 1]], size, rng)
    if durations is not None and durations.sizes is not None and durations.kinds is not None:
        for kind in np.unique(durations.kinds).tolist():
            own = np.flatnonzero(durations.kinds == kind)
            _, first, number = _numbered(durations.times[own])
            drawn = _drawn_anew(durations.shares[own[first]], float(durations.sizes[own[0]]), rng)
            data[moves + own] = drawn[number]
    return mdp.with_probabilities(data)


def _drawn_anew(chances: Floats, size: float, rng: np.random.Generator) -> Floats:
    """The shares of so many draws; the same chances where they are known exactly."""
    if not np.isfinite(size) or chances.size < 2:
        return chances
    draws = max(1, round(size))
    shares: Floats = rng.multinomial(draws, chances / chances.sum()) / draws
    return shares


class ListedModel(ChoiceModel):
    """A model of decisions in listed states: persons by task, whatever the shape of their look-ahead."""

    problem: Problem
    batches: tuple[Persons, ...]

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        bounds: tuple[float, float],
        penalty: Quadratic | None = None,
        ridge: Floats | float = 0.0,
    ) -> None:
        known = np.zeros(problem.n_parameters) if settings.reward is None else settings.reward
        self.known_range = max(batch.range_of(known) for batch in self.batches)
        self.feature_sizes = problem.feature_sizes
        super().__init__(problem.n_experts, problem.n_parameters, settings, bounds, penalty, ridge)

    def with_counts(self, counts: Sequence[Floats]) -> Self:
        """The same model of other decisions: counts `(S,A)` for each of the problem's experts and tasks."""
        experts = (replace(expert, counts=c, conditions=None) for expert, c in zip(self.problem.experts, counts, strict=True))
        changed = copy.copy(self)
        changed.problem = self.problem.with_experts(experts)
        changed.batches = tuple(batch.recounted(counts) for batch in self.batches)
        changed.decisions = float(sum(batch.visits.sum() for batch in changed.batches))
        changed.clusters = None
        return changed

    def held(self) -> Self:
        """The same model where nothing about the task is estimated."""
        return self

    def person_values(self, point: Any) -> Floats:
        """The log-likelihood `(K,)` of each expert's decisions at a point."""
        total = np.zeros(self.n_experts)
        for batch, plan in zip(self.batches, point.plans, strict=True):
            np.add.at(total, batch.owners, (batch.counts * plan.finite_log).sum(axis=(0, 1)))
        return total


def renumbered(groups: Ints) -> tuple[int, ...]:
    """The same groups with the numbers 0, 1, … in order of appearance."""
    number = {g: i for i, g in enumerate(dict.fromkeys(groups.tolist()))}
    return tuple(number[g] for g in groups.tolist())


class Likelihood(ListedModel):
    """The log-likelihood of a problem's demonstrations as a function of `x = (θ, γ, log λ, t)`.

    Attributes:
        moves: the logged moves of each task whose transitions give way; their information is diagonal, `move_counts`.
        narrow: whether the factors of sparse matrices stay small, as on a grid, where it matters for how to climb.
    """

    def __init__(
        self, problem: Problem, settings: Settings | None = None, penalty: Quadratic | None = None, ridge: Floats | float = 0.0
    ) -> None:
        settings = settings or Settings()
        self.problem = problem.in_tasks(MDP.as_counted) if settings.moves else problem
        self.moves = logged_moves(self.problem) if settings.moves else ()
        sizes = {moves.task: moves.size for moves in self.moves}
        self.move_counts = np.concatenate([np.zeros(0), *(moves.counts for moves in self.moves)])
        self.batches = persons_by_task(self.problem, settings.reward is None, sizes)
        endless = any(batch.mdp.never_ends().any() for batch in self.batches)
        bounds = (max(batch.mdp.least_discount for batch in self.batches), ENDLESS_DISCOUNT if endless else 1.0)
        super().__init__(problem, settings, bounds, penalty, ridge)
        tasks = {batch.task: batch.mdp for batch in self.batches}.values() if self.n_reward > PRODUCT_REWARDS else ()
        self.narrow = all(is_narrow(mdp.under(mdp.available / 1.0), 4.0) for mdp in tasks)

    @property
    def by_products(self) -> bool:
        """Whether a climb takes the curvature as products with vectors, which then cost less than the matrix."""
        if self.narrow or self.size > DENSE_PARAMETERS:
            return self.is_large or self.n_reward > PRODUCT_REWARDS
        return self.n_reward > 1000  # where factors fill up, products need as many solves with full ones

    def by_matrix(self) -> Self:
        """The same likelihood, whose climbs take the curvature as a matrix."""
        changed = copy.copy(self)
        changed.narrow = False
        return changed

    def place_of(self, mdp: MDP) -> Ints:
        """Where the numbers stand by which the transitions of one task give way."""
        sizes = [moves.size for moves in self.moves]
        number = [moves.mdp for moves in self.moves].index(mdp)
        places: Ints = self.transition_slice.start + sum(sizes[:number]) + np.arange(sizes[number])
        return places

    def moves_of(self, batch: Persons) -> tuple[LoggedMoves, Ints] | None:
        """The logged moves of a batch's task and their places in x; None where no move gives way."""
        moves = next((moves for moves in self.moves if moves.task == batch.task and moves.size), None)
        return None if moves is None else (moves, self.place_of(moves.mdp))

    def transitions_at(self, x: Floats) -> dict[int, Floats]:
        """For each task in which something gives way all its probabilities, in the order of `MDP.probabilities`."""
        return {moves.task: moves.probabilities(x[self.place_of(moves.mdp)]) for moves in self.moves}

    def at(self, x: Floats, near: ChoicePoint | None = None) -> Point | None:
        """The model at x, its plans started from those of a `near` point; None where a soft value is infinite."""
        plans = self.plans(self.in_tasks(x), x, self.reward(x), near.plans if isinstance(near, Point) else None)
        if plans is None:
            return None
        value = sum(float((plan.persons.counts * plan.finite_log).sum()) for plan in plans)
        return Point(self, x, plans, value, value + self.beside(x))

    def in_tasks(self, x: Floats) -> tuple[Persons, ...]:
        """The batches in tasks whose transitions have given way as x says, and as persons with these discounts see them."""
        tasks: dict[int, tuple[MDP, Engine]] = {}
        for batch in self.batches if x[self.transition_slice].any() else ():
            if (found := self.moves_of(batch)) is not None and batch.task not in tasks:
                mdp = batch.mdp.with_probabilities(found[0].probabilities(x[found[1]]))
                tasks[batch.task] = mdp, batch.engine.of(mdp)
        moved = (batch.in_task(*tasks[batch.task]) if batch.task in tasks else batch for batch in self.batches)
        gamma = self.discounts(x)
        return tuple(batch.at(float(gamma[batch.owners[0]])) for batch in moved)

    def plans(
        self, batches: Sequence[Persons], x: Floats, theta: Floats, near: Sequence[Plans] | None
    ) -> tuple[Plans, ...] | None:
        """The plans of batches with the discounts and temperatures of x, under a reward `(d,)` of all or `(K,d)` of each."""
        gamma, lam, plans = self.discounts(x), self.temperatures(x), []
        for i, batch in enumerate(batches):
            plan = batch.plan(theta, gamma, lam, None if near is None else near[i])
            if plan is None:
                return None
            plans.append(plan)
        return tuple(plans)

    def of_experts(self, experts: Sequence[int]) -> Likelihood:
        """The likelihood of some experts alone, in the problem's order, with the same knowledge and without penalties."""
        members = sorted(experts)
        entries = [i for i, owner in enumerate(self.problem.owner) if owner in members]
        settings = self.settings
        part = replace(
            settings,
            groups=renumbered(self.groups[members]),
            discounts=None if settings.discounts is None else settings.discounts[members],
            temperature_groups=renumbered(self.temperature_groups[members]),
            temperatures=None if settings.temperatures is None else settings.temperatures[members],
        )
        return Likelihood(self.problem.with_experts(self.problem.experts[i] for i in entries), part)

    def held(self) -> Self:
        """The same likelihood where transitions and durations stay as they were counted."""
        changed = copy.copy(self)
        changed.moves, changed.move_counts = (), np.zeros(0)
        changed._lay_out()
        if self.penalty is not None:
            changed.penalty = self.penalty.without(self.transition_slice, 0)
        return changed


@dataclass(frozen=True, eq=False)
class Point(ChoicePoint):
    """The likelihood at one x."""

    likelihood: Likelihood
    plans: tuple[Plans, ...]

    @cached_property
    def problem(self) -> Problem:
        """The problem with the transitions of this point."""
        pairs = ((old.mdp, plan.persons.mdp) for old, plan in zip(self.likelihood.batches, self.plans, strict=True))
        tasks = {id(old): mdp if mdp.origin is None else mdp.origin for old, mdp in pairs}
        return self.likelihood.problem.in_tasks(lambda mdp: tasks[id(mdp)])

    def policies(self) -> list[Floats]:
        """The policy `(S,A)` of each of the problem's experts and tasks."""
        pairs = [(int(place), plan.policy[:, :, i].T) for plan in self.plans for i, place in enumerate(plan.persons.positions)]
        return [policy for _, policy in sorted(pairs, key=lambda pair: pair[0])]

    @cached_property
    def worth_of_moves(self) -> tuple[Floats, ...]:
        """For each batch, how each person's immediate reward moves with t, by each effect `(F,n)` of the task's logged moves."""
        pairs = [(plan, self.likelihood.moves_of(plan.persons)) for plan in self.plans]
        return tuple(np.zeros((0, p.lam.size)) if found is None else found[0].worth(p, self.rewards) for p, found in pairs)

    @property
    def rewards(self) -> Floats:
        """θ `(d,)`, or that of each expert `(K,d)`."""
        return self.likelihood.reward(self.x)

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """`Σ y(s,a) d log π(a|s)` `(p,)` for weights y `(A,S,n)` of each batch, by one adjoint solve for each expert."""
        model = self.likelihood
        total = np.zeros(model.size)
        for i, (plan, y) in enumerate(zip(self.plans, weights, strict=True)):
            batch = plan.persons
            moved, flow = plan.pull_back(y)
            if (found := model.moves_of(batch)) is not None:
                rows = moved.reshape(-1, batch.owners.size)[found[0].rows]
                total[found[1]] += found[0].summed((rows * self.worth_of_moves[i]).sum(axis=1))
            total[: model.n_reward] += batch.features.transposed @ moved.sum(axis=2).ravel()
            np.add.at(total, model.n_reward + model.groups[batch.owners], (moved * plan.next_values).sum(axis=(0, 1)))
            direct = (y.sum(axis=0) * plan.entropy).sum(axis=0) + (y * plan.finite_log).sum(axis=(0, 1))
            slope = plan.lam * (flow * plan.entropy).sum(axis=0) - direct
            np.add.at(total, model.temperature_slice.start + model.temperature_groups[batch.owners], slope)
        return total

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """Positions in x on which choices depend and their Fisher information `(q,q)`, by expert and task; then the moves'."""
        yield from ((places, block) for _, places, block in self.own_blocks())
        for moves in self.likelihood.moves:
            yield self.likelihood.place_of(moves.mdp), np.diag(moves.counts)

    def own_blocks(self) -> Iterator[tuple[int, Ints, Floats]]:
        """Each expert, in each task: the number, positions in x, and the information of the decisions in them."""
        for i, plan in enumerate(self.plans):
            rows, columns, scores = self.scores(i)
            weights = self.weights[i].reshape(-1, plan.lam.size)[rows]
            weighted = (scores * np.sqrt(weights)[:, :, None]).transpose(1, 0, 2)
            yield from zip(plan.persons.owners.tolist(), columns, weighted.transpose(0, 2, 1) @ weighted, strict=True)

    def scores(self, i: int) -> tuple[Ints, list[Ints], Floats]:
        """Of one batch, the rows of visited states, each person's places in x, and `d log π(a|s)` `(rows,n,q)` in them."""
        model, plan, batch = self.likelihood, self.plans[i], self.plans[i].persons
        scores, first = plan.score_rows(), model.temperature_slice.start
        columns = [
            np.array([*batch.features.used, model.n_reward + model.groups[k], first + model.temperature_groups[k]])
            for k in batch.owners
        ]
        if (found := model.moves_of(batch)) is not None:
            moves, place = found
            moved = moves.summed(plan.reward_rows(moves.rows) * self.worth_of_moves[i].T)
            scores = np.concatenate([scores, moved], axis=2)
            columns = [np.concatenate([c, place]) for c in columns]
        return batch.visited_rows, columns, scores

    def metric(self) -> Metric:
        """The curvature of the objective: a matrix or, with many parameters, products."""
        return self.products() if self.likelihood.by_products else super().metric()

    def products(self) -> Products:
        """The curvature as products, with a diagonal that scales the rewards and a preconditioner of them."""
        model = self.likelihood

        def times(v: Floats) -> Floats:
            product = self.information_product(v)
            product[: model.n_reward] += model.ridge * v[: model.n_reward]
            return product if model.penalty is None else product + model.penalty.matrix @ v

        # In the rewards the diagonal is without what they do to later decisions, which is enough to scale them.
        diagonal = np.zeros(model.size)
        diagonal[model.transition_slice] = model.move_counts
        for i, plan in enumerate(self.plans):
            weights = (self.weights[i] / plan.lam**2).reshape(-1, plan.lam.size)
            diagonal[: model.n_reward] += plan.persons.features.matrix.power(2).T @ weights.sum(axis=1)
            if (found := model.moves_of(plan.persons)) is not None:
                diagonal[found[1]] += found[0].summed((weights[found[0].rows] * self.worth_of_moves[i] ** 2).sum(axis=1))
        diagonal[: model.n_reward] += model.ridge
        for k in range(model.n_reward, model.transition_slice.start):
            if not model.fixed[k]:
                diagonal[k] = self.information_product(np.eye(1, model.size, k).ravel())[k]
        if model.penalty is not None:
            diagonal += model.penalty.matrix.diagonal()
        inverse = self._inverse_of_states()
        return Products(times, diagonal, None if inverse is None else (model.n_reward, inverse))

    def information_product(self, v: Floats) -> Floats:
        """The Fisher information times a vector `(p,)`."""
        model = self.likelihood
        product = self.pull_back([weights * self._choices_along(i, v) for i, weights in enumerate(self.weights)])
        product[model.transition_slice] += model.move_counts * v[model.transition_slice]
        return product

    def _choices_along(self, i: int, v: Floats) -> Floats:
        """`J v`, how log π `(A,S,n)` of one batch moves along v."""
        model, plan, batch = self.likelihood, self.plans[i], self.plans[i].persons
        mdp, n = batch.mdp, batch.owners.size
        rise = plan.lam * v[model.temperature_slice][model.temperature_groups[batch.owners]]
        paid = (batch.features.matrix @ v[: model.n_reward]).reshape(mdp.n_actions, mdp.n_states, 1)
        if (found := model.moves_of(batch)) is not None:
            moves, place = found
            changes = np.zeros((mdp.stacked.shape[0], n))
            np.add.at(changes, moves.rows, self.worth_of_moves[i] * v[place][moves.of, None])
            paid = paid + changes.reshape(mdp.n_actions, mdp.n_states, n)
        direct = paid + v[model.discount_slice][model.groups[batch.owners]] * plan.next_values
        source = (plan.policy * direct).sum(axis=0) + rise * plan.entropy
        moved = plan.resolvents.solve(np.where(mdp.terminal[:, None], 0.0, source)[:, :, None])[:, :, 0]
        later = (mdp.stacked @ moved).reshape(mdp.n_actions, mdp.n_states, n)
        change = (direct + plan.gamma * later - moved - rise * plan.finite_log) / plan.lam
        return np.where(np.isfinite(plan.log), change, 0.0)

    def _inverse_of_states(self) -> Callable[[Floats], Floats] | None:
        """A rough inverse of the information in the rewards `(d,)`, for one task with one reward per state; None elsewhere.

        Where states are linked without any order, its factors fill up, and a diagonal needs fewer steps.
        The scores of expert k are `J = D U / λ`, with D the transitions less their mean under the policy and `U = (I − γP)^{-1}`,
        so that their information in the rewards is `Uᵀ G U` with the sparse `G = TᵀWT − PᵀNP`, W the weights `n π/λ²` and N their
        sums `n/λ²`. The inverse has this form for all experts together: the sum of their G, and the U of the one who looks
        farthest ahead, which is the largest. `(I − γP) G^{-1} (I − γP)ᵀ` takes one sparse factorisation.
        """
        model = self.likelihood
        if not model.narrow or not model.problem.tabular or len({id(plan.persons.mdp) for plan in self.plans}) != 1:
            return None
        moves = self.plans[0].persons.mdp.stacked
        gram: Any = 0.0
        farthest: tuple[float, Any] = (-1.0, None)
        for plan in self.plans:
            for i in range(plan.gamma.size):
                visits = plan.persons.visits[:, i] / plan.lam[i] ** 2
                under = plan.persons.mdp.under(plan.policy[:, :, i].T)
                weights = sp.diags_array((visits * plan.policy[:, :, i]).ravel())
                gram = gram + sp.csr_array(moves.T @ weights @ moves - under.T @ sp.diags_array(visits) @ under)
                if plan.gamma[i] > farthest[0]:
                    farthest = float(plan.gamma[i]), under
        # G does not see a constant added to all rewards, nor states out of reach.
        lifted = sp.csc_array(gram + sp.diags_array(1e-6 * float(gram.diagonal().mean()) + model.ridge))
        options = {"SymmetricMode": True}
        try:
            factor = spla.splu(lifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
        except RuntimeError:  # no weights at all
            return None
        forward = sp.csr_array(sp.eye_array(model.n_reward) - farthest[0] * farthest[1])
        backward = sp.csr_array(forward.T)
        return lambda b: np.asarray(forward @ factor.solve(backward @ b))


def draw_decisions(point: Point, rng: np.random.Generator) -> list[Floats]:
    """New decisions, as counts, from the fitted policies in the states in which each expert decided.

    Experts are drawn in the order of their likelihoods, states in that of their values, and actions in that of their
    probabilities, so that the same random numbers meet the same choices however all of them are listed.
    """
    people: list[tuple[float, int, Floats, Floats, Floats]] = []
    for plan in point.plans:
        batch = plan.persons
        fits = (batch.counts * plan.finite_log).sum(axis=(0, 1))
        for i, place in enumerate(batch.positions.tolist()):
            people.append((float(fits[i]), place, batch.visits[:, i], plan.policy[:, :, i].T, plan.values[:, i]))
    drawn = {}
    for _, place, visits, policy, values in sorted(people, key=lambda person: round(person[0], 6)):
        drawn[place] = decide(visits, policy, values, rng, 1)[0]
    return [drawn[place] for place in range(len(drawn))]


def decide(visits: Floats, policy: Floats, values: Floats, rng: np.random.Generator, times: int) -> Floats:
    """Decisions `(times,S,A)` of one expert, drawn so many times."""
    states = np.argsort(np.round(values / max(float(np.abs(values).max()), TINY), 9), kind="stable")
    actions = np.argsort(np.round(policy, 9), axis=1, kind="stable")[states]
    chances = np.take_along_axis(policy[states], actions, axis=1)
    chances /= chances.sum(axis=1, keepdims=True)
    counts = np.zeros((times, *policy.shape))
    counts[:, states[:, None], actions] = rng.multinomial(visits[states].astype(np.int64), chances, size=(times, states.size))
    return counts
