"""Planning for many persons at once: soft values and linear solves of one task, with one column for each person.

Persons in one task share its transitions T `(A·S,S)` and its expected immediate reward R `(A·S,)`; each has a discount γ and a
temperature λ. With n persons, values are `(S,n)` and action values `(A,S,n)`:

    Q = R + γ T V,    V(s) = λ log Σ_a exp(Q(s,a)/λ),    P = Σ_a π(a|s) T(·|s,a).

Derivatives need `(I − γP)^{-1} B` and `(I − γPᵀ)^{-1} b`. Three engines give these, by the structure of the task:

* `Episodic`: no state can be visited twice (steps left, say). States are sorted into levels, each of which leads to lower ones
  only. One backward pass over the levels is the exact plan, and one pass is a linear solve: there is no fixed point to find.
* `Small`: up to `SMALL_STATES` states. Newton's method on the soft Bellman equation with dense matrices, all persons together.
* `Large`: anything else. Sparse matrices, one person after the other.

Newton's iteration and its stopping rule are those of `planning.soft_plan`.

Transitions that come from the table itself give way within their own error.

A table tells of a row `T(·|s,a)` through `m(s')` counted moves; p̂ is the estimate, and `m = size · p̂`. To hold T at p̂
while everything else is fitted would take the error of p̂ for a finding about experts: other temperatures, another discount, a
model that does not fit. So T is fitted too: what is maximised is the likelihood of decisions and moves, `L(x,T) + Σ m log T`.

Each move has a number t, and `T ∝ p̂ exp(t)` within its row. The common level of a row's numbers does not change T. It is held
by counting moves as they would come in a time in which one expects the size of the row (Poisson):

    ℓ(t) = Σ m (t − exp(t) + 1),

whose maximum over the level is `Σ m log(T/p̂)`. Its gradient is `m (1 − exp(t))`, and its curvature is diagonal, `m exp(t)`. At a
maximum the decisions pull as hard the other way, and because T is curved in t this adds `m (1 − exp(t))`: m in all.
Rows with one possible next state have nothing to give way, and rows that are known exactly have no numbers.

A row's change moves expert k's immediate reward: `dR_k(s,a) = Σ_s' dT(s'|s,a) u_k(s')` with `u_k = ρ + γ_k V_k`, ρ the reward
paid on arrival. So `dR_k/dt(s') = T(s') (u_k(s') − Σ T u_k)`.

Persons who act in one task: planned together, with the exact derivatives of their choices.

With `P = P_π`, `H` the entropy of π and `πF` the policy's average of F's rows, a plan is differentiated through its fixed point:

    dV = (I − γP)^{-1} [πF dθ + P V dγ + H dλ],      dQ = F dθ + T V dγ + γ T dV,
    d log π(a|s) = (dQ(s,a) − dV(s))/λ − log π(a|s) dλ/λ.

`score_rows` gives these rows for all parameters (one forward solve with a right-hand side for each). `reward_pull_back` gives
`Σ y d log π` for weights y in the immediate reward (one adjoint solve, whatever the number of parameters).

The likelihood of logged decisions, and its exact derivatives through the soft Bellman fixed point.

Expert k, with discount γ and temperature λ, is seen to take action a in state s `N(s,a)` times, `n(s) = Σ_a N(s,a)`. Under reward
parameters θ the log-likelihood of these choices, given the states in which they were made, is

    L = Σ_k Σ_{s,a} N(s,a) log π(a|s),   λ log π(a|s) = Q(s,a) − V(s),   Q = R₀ + F θ + γ T V,   V(s) = λ log Σ_a exp(Q(s,a)/λ),

with R₀ the known part of the reward, if there is one. It is undiscounted: each decision counts once, whenever it was made. V
solves a fixed-point equation (the nested fixed point of Rust, 1987) and is differentiated through it (`persons.py`).

*Backwards*: with `G = (N − nπ)/λ` and one adjoint solve `w = (I − γPᵀ)^{-1} γ TᵀG` an expert's gradient is `Fᵀ(G + π w)` in θ,
`⟨G + π w, TV⟩` in γ and `w·H − Σ (nH + N log π)/λ` in λ; the cost does not depend on how many parameters there are.
*Forwards*: the rows ψ(s,a) of d log π give the Fisher information `Σ n(s) π(a|s) ψψᵀ`.

What is maximised is `L − ½ Σ ρ_j θ_j² − ½ (x−c)ᵀA(x−c) + bᵀ(x−c)`: ρ is a ridge, and the other term holds what is known of
x besides the decisions, such as the spread of temperatures, or the decisions of experts who are not looked at again.
A common factor of all λ and θ leaves every policy as it is; where no part of the reward is known, this direction is open.

Where transitions were estimated, x may also hold how far they give way, and the objective the log-likelihood of the logged moves
(`logged_moves.py`).

Fits with so many rewards that a dense information matrix is out of the question: matrix-free products.

A product of the Fisher information with a vector v is one forward solve (`J v`, how log π moves along v) and one adjoint solve
(`Jᵀ W (J v)`) per expert. Climbs take their steps from such products (`metric`). Where no products are at hand, as with
look-ahead that is not exponential, the climb is L-BFGS-B on the gradient by adjoints.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
import scipy.sparse as sp
from scipy.optimize import minimize

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Bools, Floats, Ints, Sparse
from multihorizon.choice.parameters import Quadratic, Settings, group_numbers, known_of_groups, renumbered
from multihorizon.mdp import MDP
from multihorizon.parallel import Progress, silent
from multihorizon.planning.linear import Resolvent, policy_resolvent
from multihorizon.planning.plan import episodic_levels, log_policies
from multihorizon.planning.soft_plan import INFINITE, MAX_NEWTON_STEPS, ROUNDED_RESIDUAL, STALLED_RESIDUAL, soft_plan
from multihorizon.problem import Expert, Problem

#: Up to this many states dense matrices for all persons are faster than sparse ones for each.
SMALL_STATES = 128
#: With more levels than this, a pass over them is slower than Newton's method.
MOST_LEVELS = 200
#: Relative residuals of iterative solves: of how choices move, which decides the length of a step and standard errors, and of the
#: adjoint, which decides where a climb ends.
FORWARD, BACKWARD = 1e-9, 1e-12


class Resolvents(Protocol):
    """Solves with `I − γP` of each person's policy."""

    def solve(self, b: Floats) -> Floats:
        """`(I − γP)^{-1} b` for `(S,n,q)`."""
        ...

    def solve_transposed(self, b: Floats) -> Floats:
        """`(I − γPᵀ)^{-1} b` for `(S,n)`."""
        ...


@dataclass(frozen=True, eq=False)
class Start:
    """Where planning begins: the soft values `(S,n)` of a neighbouring point, and its solves where they are at hand."""

    values: Floats
    resolvents: Resolvents | None = None


class Engine(Protocol):
    """How a task is planned in."""

    def values(self, reward: Floats, gamma: Floats, lam: Floats, start: Start | None) -> Floats | None:
        """The soft values `(S,n)`; None where one is infinite."""
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
    return Small(mdp) if mdp.n_states <= SMALL_STATES else Large(mdp)


class Episodic:
    """Backward passes over the levels of a task without cycles."""

    def __init__(self, mdp: MDP, levels: list[Ints]) -> None:
        self.mdp = mdp
        self.levels = levels
        a, s = mdp.n_actions, mdp.n_states
        self.moves = [mdp.stacked[(np.arange(a)[:, None] * s + level).ravel()] for level in levels]
        self.closed = [np.where(mdp.available[level].T, 0.0, -np.inf)[:, :, None] for level in levels]

    def values(self, reward: Floats, gamma: Floats, lam: Floats, start: Start | None) -> Floats | None:
        """One backward pass; it needs no start."""
        a, s = self.mdp.n_actions, self.mdp.n_states
        values = np.zeros((s, gamma.size))
        rewards = reward.reshape(a, s, 1)
        for level, moves, closed in zip(self.levels, self.moves, self.closed, strict=True):
            later = (moves @ values).reshape(a, level.size, -1)
            values[level] = log_policies(rewards[:, level] + gamma * later + closed, lam)[1]
        return values if np.abs(values).max(initial=0.0) < INFINITE else None

    def of(self, mdp: MDP) -> Episodic:
        """The same levels."""
        return Episodic(mdp, self.levels)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """Passes over the levels."""
        return _Passes(self, policy * gamma)


class _Passes:
    def __init__(self, engine: Episodic, weights: Floats) -> None:
        self.engine = engine
        self.weights = weights

    def solve(self, b: Floats) -> Floats:
        x = np.where(self.engine.mdp.terminal[:, None, None], b, 0.0)
        n, q = b.shape[1:]
        for level, moves in zip(self.engine.levels, self.engine.moves, strict=True):
            later = (moves @ x.reshape(-1, n * q)).reshape(-1, level.size, n, q)
            x[level] = b[level] + np.einsum("amn,amnq->mnq", self.weights[:, level], later)
        return x

    def solve_transposed(self, b: Floats) -> Floats:
        x = b.copy()
        for level, moves in zip(reversed(self.engine.levels), reversed(self.engine.moves), strict=True):
            flow = self.weights[:, level] * x[level]
            x += moves.T @ flow.reshape(-1, b.shape[1])
        return x


class Small:
    """Newton's method with dense matrices for all persons together."""

    def __init__(self, mdp: MDP) -> None:
        self.mdp = mdp
        self.stacked: Floats = mdp.stacked.toarray()
        self.by_state = self.stacked.reshape(mdp.n_actions, mdp.n_states, -1).transpose(1, 0, 2).copy()
        self.identity = np.eye(mdp.n_states)
        self.closed = np.where(mdp.available.T, 0.0, -np.inf)[:, :, None]

    def values(self, reward: Floats, gamma: Floats, lam: Floats, start: Start | None) -> Floats | None:
        """Newton's iterates of each person until the residual is rounding."""
        values = np.zeros((self.mdp.n_states, gamma.size)) if start is None else np.where(gamma < 1, start.values, 0.0)
        residual = np.full(gamma.size, np.inf)
        active = np.arange(gamma.size)
        moved = values[:, active]
        for _ in range(MAX_NEWTON_STEPS + 1):
            policy, defect = self._backup(reward, moved, gamma[active], lam[active])
            found = np.abs(defect).max(axis=0)
            scale = np.maximum(1.0, np.abs(moved).max(axis=0))
            better = found < residual[active]
            stalled = ~better & (residual[active] <= STALLED_RESIDUAL * np.maximum(1.0, np.abs(values[:, active]).max(axis=0)))
            keep = ~stalled
            values[:, active[keep]], residual[active[keep]] = moved[:, keep], found[keep]
            going = keep & (found > ROUNDED_RESIDUAL * scale)
            if not going.any():
                return values
            active, policy, defect, moved = active[going], policy[:, :, going], defect[:, going], moved[:, going]
            step = self._newton(policy, defect, gamma[active])
            if step is None:
                return None
            moved = moved + step
            if not np.abs(moved).max() < INFINITE:
                return None
        return None

    def of(self, mdp: MDP) -> Small:
        """Dense again."""
        return Small(mdp)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """One dense inverse for each person."""
        inverses: Floats = np.linalg.inv(self._operator(policy, gamma)).astype(np.float64, copy=False)
        return _Inverses(inverses)

    def _operator(self, policy: Floats, gamma: Floats) -> Floats:
        """`I − γP` `(n,S,S)`; endings keep a row of the identity."""
        under = (policy.transpose(1, 2, 0) @ self.by_state).transpose(1, 0, 2)
        operator: Floats = self.identity - gamma[:, None, None] * under
        return operator

    def _backup(self, reward: Floats, values: Floats, gamma: Floats, lam: Floats) -> tuple[Floats, Floats]:
        """The policy at these values, and how far they are from their backup."""
        a, s = self.mdp.n_actions, self.mdp.n_states
        q = reward.reshape(a, s, 1) + gamma * (self.stacked @ values).reshape(a, s, -1) + self.closed
        log, backed = log_policies(q, lam)
        return np.exp(log), np.where(self.mdp.terminal[:, None], 0.0, backed) - values

    def _newton(self, policy: Floats, defect: Floats, gamma: Floats) -> Floats | None:
        try:
            step = np.linalg.solve(self._operator(policy, gamma), defect.T[:, :, None])[:, :, 0].T
        except np.linalg.LinAlgError:
            return None
        return step.astype(np.float64, copy=False)


class _Inverses:
    def __init__(self, inverses: Floats) -> None:
        self.inverses = inverses

    def solve(self, b: Floats) -> Floats:
        found: Floats = (self.inverses @ b.transpose(1, 0, 2)).transpose(1, 0, 2)
        return found

    def solve_transposed(self, b: Floats) -> Floats:
        found: Floats = (b.T[:, None, :] @ self.inverses)[:, 0, :].T
        return found


class Large:
    """Sparse planning, one person after the other."""

    def __init__(self, mdp: MDP) -> None:
        self.mdp = mdp

    def values(self, reward: Floats, gamma: Floats, lam: Floats, start: Start | None) -> Floats | None:
        """Each person's soft plan, begun at `start` except at discount 1, where a neighbour can lead to a false fixed point."""
        expected = reward.reshape(self.mdp.n_actions, self.mdp.n_states).T
        found = np.empty((self.mdp.n_states, gamma.size))
        for i, (g, heat) in enumerate(zip(gamma, lam, strict=True)):
            try:
                begin = (None, None) if start is None or g == 1.0 else (start.values[:, i], _factor_of(start.resolvents, i))
                found[:, i] = soft_plan(self.mdp, expected, float(g), float(heat), *begin).values
            except ValueError:  # the soft values are infinite
                return None
        return found

    def of(self, mdp: MDP) -> Large:
        """Sparse again."""
        return Large(mdp)

    def resolvents(self, policy: Floats, gamma: Floats) -> Resolvents:
        """One sparse factorisation, or iteration, for each person."""
        return _Factors([policy_resolvent(self.mdp, policy[:, :, i].T, float(g)) for i, g in enumerate(gamma)])


def _factor_of(resolvents: Resolvents | None, i: int) -> Resolvent | None:
    """The solves of one person, where there are such."""
    return resolvents.factors[i] if isinstance(resolvents, _Factors) else None


class _Factors:
    def __init__(self, factors: list[Resolvent]) -> None:
        self.factors = factors

    def solve(self, b: Floats) -> Floats:
        columns = [f.solve(np.ascontiguousarray(b[:, i]), tolerance=FORWARD) for i, f in enumerate(self.factors)]
        return np.stack(columns, axis=1)

    def solve_transposed(self, b: Floats) -> Floats:
        return np.stack(
            [factor.solve(b[:, i], transpose=True, tolerance=BACKWARD) for i, factor in enumerate(self.factors)], axis=1
        )


class Features:
    """The reward features F `(A·S,d)` of one task, and their averages under policies.

    `used` are the columns in which derivatives are taken: those with entries, and none where the weights are known.
    """

    #: Up to this many numbers F is also kept dense.
    DENSE = 4_000_000

    def __init__(self, matrix: Any, mdp: MDP, free: bool = True) -> None:
        self.matrix = sp.csr_array(matrix)
        self.mdp = mdp
        self.free = free
        filled = np.flatnonzero(np.bincount(self.matrix.indices, minlength=self.matrix.shape[1])).astype(np.int64)
        self.used: Ints = filled if free else filled[:0]

    @cached_property
    def transposed(self) -> Any:
        """`Fᵀ` `(d,A·S)`."""
        return self.matrix.T

    @cached_property
    def dense(self) -> Floats | None:
        """F `(A·S,used)` where that is small, else None."""
        if self.matrix.shape[0] * self.used.size > self.DENSE:
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
            mean: Floats = policy.transpose(1, 2, 0) @ self.dense.reshape(a, s, -1).transpose(1, 0, 2)
            return mean
        blocks = [self.matrix[i * s : (i + 1) * s][:, self.used] for i in range(a)]
        columns = []
        for person in range(policy.shape[2]):
            columns.append(sum((sp.diags_array(policy[i, :, person]) @ blocks[i]).toarray() for i in range(a)))
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class LoggedMoves:
    """The moves of one task that may give way: places in `mdp.stacked.data`, rows a·S + s, p̂, and counts m, all `(E,)`.

    `number` numbers their rows from 0. `task` is the number of the MDP among those of the problem, which holds the estimate.
    """

    task: int
    mdp: MDP
    entries: Ints
    rows: Ints
    number: Ints
    estimate: Floats
    counts: Floats

    @property
    def size(self) -> int:
        """How many moves there are."""
        return self.entries.size

    def held(self) -> LoggedMoves:
        """The same task where no move gives way."""
        none = np.zeros(0, dtype=np.int64)
        return replace(self, entries=none, rows=none, number=none, estimate=self.estimate[none], counts=self.counts[none])

    def probabilities(self, t: Floats) -> Floats:
        """All entries of T, in the order of `mdp.stacked.data`, where the moves give way by t `(E,)`."""
        data: Floats = self.mdp.stacked.data.copy()
        weights: Floats = self.estimate * np.exp(t)
        data[self.entries] = weights / np.bincount(self.number, weights)[self.number]
        return data

    def numbers(self, mdp: MDP) -> Floats:
        """The t `(E,)` with which the moves have the probabilities of an MDP."""
        found: Floats = np.log(mdp.stacked.data[self.entries] / self.estimate)
        return found

    def value(self, t: Floats) -> float:
        """The log-likelihood of the counted moves, less that of the estimate."""
        return float(self.counts @ (t - np.expm1(t)))

    def gradient(self, t: Floats) -> Floats:
        """Its gradient `(E,)`."""
        slope: Floats = -self.counts * np.expm1(t)
        return slope

    def worth(self, mdp: MDP, reached: Floats) -> Floats:
        """How immediate rewards `(E,n)` move with t where states are worth `reached` `(S,n)` to those who arrive."""
        mean = (mdp.stacked @ reached)[self.rows]
        found: Floats = mdp.stacked.data[self.entries, None] * (reached[mdp.stacked.indices[self.entries]] - mean)
        return found


def logged_moves(problem: Problem) -> tuple[LoggedMoves, ...]:
    """The moves that may give way, of each task that has such; the problem's transitions are those that were counted."""
    found = []
    for task, mdp in enumerate({id(expert.mdp): expert.mdp for expert in problem.experts}.values()):
        if mdp.sample_sizes is None:
            continue
        widths = np.diff(mdp.stacked.indptr)
        rows = np.repeat(np.arange(widths.size), widths)
        entries = np.flatnonzero(np.isfinite(mdp.sample_sizes[rows]) & (widths[rows] > 1) & (mdp.stacked.data > 0))
        rows, estimate = rows[entries], mdp.stacked.data[entries]
        number = np.unique(rows, return_inverse=True)[1]
        found.append(LoggedMoves(task, mdp, entries, rows, number, estimate, mdp.sample_sizes[rows] * estimate))
    return tuple(found)


def redrawn(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with estimated rows drawn anew around their estimates, with their sample sizes."""
    return problem.in_tasks(lambda mdp: mdp if mdp.sample_sizes is None else _drawn(mdp, rng))


def _drawn(mdp: MDP, rng: np.random.Generator) -> MDP:
    assert mdp.sample_sizes is not None
    data, ends = mdp.stacked.data.copy(), mdp.stacked.indptr
    for row, size in enumerate(mdp.sample_sizes):
        part = slice(ends[row], ends[row + 1])
        if np.isfinite(size) and data[part].size:
            draws = max(1, round(float(size)))
            data[part] = rng.multinomial(draws, data[part] / data[part].sum()) / draws
    return mdp.with_probabilities(data)


#: Persons are planned together as long as their derivatives fit into this many numbers.
BATCH_NUMBERS = 1_000_000


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
        features = self.features
        if self.arrival is not None:
            features = Features(mdp.stacked @ self.arrival, mdp, self.features.free)
        return replace(self, mdp=mdp, engine=engine, features=features)

    def reward(self, theta: Floats) -> Floats:
        """The expected immediate reward `(A·S,)`."""
        total: Floats = self.known_reward + self.features.matrix @ theta
        return total

    def arrival_reward(self, theta: Floats) -> Floats:
        """The part of the reward `(S,)` that is paid on arrival, and so moves with the transitions."""
        return np.zeros(self.mdp.n_states) if self.arrival is None else self.arrival @ theta


class Choices:
    """What follows from `log π`, whose first axis is the action."""

    log: Floats

    @cached_property
    def policy(self) -> Floats:
        """The probabilities π, of the shape of `log`."""
        return np.exp(self.log)

    @cached_property
    def finite_log(self) -> Floats:
        """`log π` with 0 in place of −inf: actions that cannot be taken have no counts, and 0·(−inf) must not be NaN."""
        return np.where(np.isfinite(self.log), self.log, 0.0)

    @cached_property
    def entropy(self) -> Floats:
        """The entropy of each choice."""
        total: Floats = -(self.policy * self.finite_log).sum(axis=0)
        return total


@dataclass(frozen=True, eq=False)
class Plans(Choices):
    """The soft plans of persons in one task: values `(S,n)`, `log π` `(A,S,n)`, discounts and temperatures `(n,)`."""

    values: Floats
    log: Floats
    gamma: Floats
    lam: Floats


def plan_together(batch: Persons, reward: Floats, gamma: Floats, lam: Floats, start: Start | None) -> Plans | None:
    """The soft plans of all persons of a batch; None where a soft value is infinite."""
    values = batch.engine.values(reward, gamma, lam, start)
    if values is None:
        return None
    a, s = batch.mdp.n_actions, batch.mdp.n_states
    closed = np.where(batch.mdp.available.T, 0.0, -np.inf)[:, :, None]
    q = reward.reshape(a, s, 1) + gamma * (batch.mdp.stacked @ values).reshape(a, s, -1) + closed
    return Plans(values, log_policies(q, lam)[0], gamma, lam)


def reward_pull_back(batch: Persons, plan: Plans, solver: Resolvents, y: Floats) -> tuple[Floats, Floats]:
    """`Σ y d log π / dR` `(A,S,n)` for the immediate reward R, and the adjoint w `(S,n)`."""
    slack = (y - y.sum(axis=0) * plan.policy) / plan.lam
    n = batch.owners.size
    flow = solver.solve_transposed(plan.gamma * (batch.back @ slack.reshape(-1, n)))
    flow[batch.mdp.terminal] = 0.0
    return slack + plan.policy * flow, flow


def next_values(batch: Persons, plan: Plans) -> Floats:
    """`T V` `(A,S,n)`."""
    found: Floats = (batch.mdp.stacked @ plan.values).reshape(plan.log.shape)
    return found


def score_rows(batch: Persons, plan: Plans, solver: Resolvents) -> tuple[Ints, Floats]:
    """The rows of visited states, and `d log π(a|s)` `(rows,n,q)` there in θ's used columns, γ and log λ."""
    rows, n = batch.visited_rows, batch.owners.size
    states = rows % batch.mdp.n_states
    later = next_values(batch, plan)
    heat = np.where(batch.mdp.terminal[:, None], 0.0, plan.lam * plan.entropy)
    sources = [batch.features.averages(plan.policy), (plan.policy * later).sum(axis=0)[:, :, None], heat[:, :, None]]
    moved = solver.solve(np.concatenate(sources, axis=2))
    moved[batch.mdp.terminal] = 0.0
    q = moved.shape[2]
    scores = plan.gamma[:, None] * (batch.mdp.stacked[rows] @ moved.reshape(-1, n * q)).reshape(-1, n, q)
    scores -= moved[states]
    scores[:, :, :-2] += batch.features.rows(rows)[:, None, :]
    scores[:, :, -2] += later.reshape(-1, n)[rows]
    scores[:, :, -1] -= plan.lam * plan.finite_log.reshape(-1, n)[rows]
    scores /= plan.lam[:, None]
    return rows, scores


def reward_rows(batch: Persons, plan: Plans, solver: Resolvents, wanted: Ints) -> Floats:
    """`d log π(a|s)` `(rows,n,E)` at the rows of visited states in the immediate rewards of some rows a·S + s `(E,)`."""
    rows, n, s = batch.visited_rows, batch.owners.size, batch.mdp.n_states
    distinct, number = np.unique(wanted % s, return_inverse=True)
    unit = np.zeros((s, n, distinct.size))
    unit[distinct, :, np.arange(distinct.size)] = 1.0
    moved = solver.solve(unit)
    moved[batch.mdp.terminal] = 0.0
    found = plan.gamma[:, None] * (batch.mdp.stacked[rows] @ moved.reshape(s, -1)).reshape(-1, n, distinct.size)
    found -= moved[rows % s]
    scores: Floats = found[:, :, number] * plan.policy.reshape(-1, n)[wanted].T
    scores += (rows[:, None] == wanted)[:, None, :]
    scores /= plan.lam[:, None]
    return scores


def persons_by_task(problem: Problem, free: bool, moves: Mapping[int, int]) -> list[Persons]:
    """The problem's experts by task, in batches that fit into memory; `moves` says how many moves of a task give way."""
    number = {key: task for task, key in enumerate(dict.fromkeys(id(expert.mdp) for expert in problem.experts))}
    tasks: dict[tuple[int, bytes], list[int]] = {}
    for i, expert in enumerate(problem.experts):
        tasks.setdefault((id(expert.mdp), _fingerprint(expert)), []).append(i)
    found = []
    for members in tasks.values():
        first = problem.experts[members[0]]
        features = Features(first.feature_matrix, first.mdp, free)
        engine = engine_for(first.mdp)
        rows = first.mdp.n_actions * first.mdp.n_states
        size = max(1, BATCH_NUMBERS // (rows * (features.used.size + 2 + moves.get(number[id(first.mdp)], 0))))
        for low in range(0, len(members), size):
            found.append(_batch(problem, members[low : low + size], engine, features, number[id(first.mdp)]))
    return found


def _fingerprint(expert: Expert) -> bytes:
    """Equal for experts with the same reward features and the same known reward, whatever object holds them."""
    parts = [] if expert.features is None else [expert.features.indptr, expert.features.indices, expert.features.data]
    parts += [] if expert.known_reward is None else [expert.known_reward]
    return b"|".join(np.ascontiguousarray(part).tobytes() for part in parts)


def _batch(problem: Problem, members: list[int], engine: Engine, features: Features, task: int) -> Persons:
    first = problem.experts[members[0]]
    mdp = first.mdp
    counts = np.stack([require_counts(problem.experts[i]).T for i in members], axis=2)
    counts = np.where(mdp.terminal[None, :, None], 0.0, counts)
    return Persons(
        mdp=mdp,
        engine=engine,
        features=features,
        known_reward=np.zeros(mdp.stacked.shape[0]) if first.known_reward is None else first.known_reward,
        arrival=first.arrival_features,
        counts=counts,
        visits=counts.sum(axis=0),
        positions=np.array(members, dtype=np.int64),
        owners=np.array([problem.owner[i] for i in members], dtype=np.int64),
        task=task,
    )


def recounted(batch: Persons, counts: Sequence[Floats]) -> Persons:
    """The same persons with other decisions `(S,A)`."""
    stacked = np.where(batch.mdp.terminal[None, :, None], 0.0, np.stack([c.T for c in counts], axis=2))
    return replace(batch, counts=stacked, visits=stacked.sum(axis=0))


def require_counts(expert: Expert) -> Floats:
    """The decision counts `(S,A)` of an expert; raises unless demonstrations were given."""
    if expert.counts is None:
        raise ValueError(f"expert {expert.name} must be given as demonstrations for a likelihood, received {expert.kind}")
    if not expert.counts.sum() > 0:
        raise ValueError(f"expert {expert.name} must have at least one decision, received none")
    return expert.counts


#: Log-temperatures stay within ±5: beyond a factor of 148 a temperature is only a certain or a uniform policy.
LOG_TEMPERATURE_BOUND = 5.0
#: An estimated probability may change by a factor of e^6, one way or the other.
GIVES_WAY = 6.0


class Likelihood:
    """The log-likelihood of a problem's demonstrations as a function of `x = (θ, γ, log λ, t)`.

    x has d reward parameters, one discount for each group, one log-temperature for each expert and, where estimated transitions
    give way, one number for each of their moves. What is known keeps its value: `fixed` marks it.

    Attributes:
        lower, upper: bounds `(p,)` of the parameters.
        fixed: mask `(p,)` of what is known.
        penalty: the quadratic term of the objective; None for none.
        ridge: the weights ρ `(d,)`.
    """

    #: How many numbers say how far ahead an expert looks: the discount alone.
    n_coordinates = 1
    #: Whether `large.information_product` knows how choices depend on x.
    has_products = True
    #: The logged moves of each task whose transitions give way.
    moves: tuple[LoggedMoves, ...] = ()

    def __init__(
        self, problem: Problem, settings: Settings | None = None, penalty: Quadratic | None = None, ridge: Floats | float = 0.0
    ) -> None:
        self.settings = settings or Settings()
        self.problem = problem.in_tasks(MDP.as_counted) if self.settings.moves else problem
        self.penalty = penalty
        self.ridge: Floats = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (problem.n_parameters,))
        self.moves = logged_moves(self.problem) if self.settings.moves else ()
        sizes = {moves.task: moves.size for moves in self.moves}
        self.batches = tuple(persons_by_task(self.problem, self.settings.reward is None, sizes))
        self.decisions = float(sum(batch.visits.sum() for batch in self.batches))
        self._lay_out()

    def _lay_out(self) -> None:
        """Where each parameter stands in x, what is known of it, and its bounds."""
        self.groups = group_numbers(self.settings.groups, self.problem.n_experts)
        self.temperature_groups = group_numbers(self.settings.temperature_groups, self.problem.n_experts)
        self.n_reward = self.problem.n_parameters
        self.n_discounts = (int(self.groups.max()) + 1) * self.n_coordinates
        self.n_temperatures = int(self.temperature_groups.max()) + 1
        self.known = self._known()
        self.fixed = ~np.isnan(self.known)
        self.lower, self.upper = self._bounds()

    @property
    def size(self) -> int:
        """p, the number of parameters, known ones included."""
        return self.n_reward + self.n_discounts + self.n_temperatures + sum(moves.size for moves in self.moves)

    @property
    def discount_slice(self) -> slice:
        """Where the discounts stand in x."""
        return slice(self.n_reward, self.n_reward + self.n_discounts)

    @property
    def temperature_slice(self) -> slice:
        """Where the log-temperatures stand in x."""
        first = self.n_reward + self.n_discounts
        return slice(first, first + self.n_temperatures)

    @property
    def transition_slice(self) -> slice:
        """Where the numbers stand by which estimated transitions give way."""
        return slice(self.n_reward + self.n_discounts + self.n_temperatures, self.size)

    def moves_of(self, batch: Persons) -> tuple[LoggedMoves, Ints] | None:
        """The logged moves of a batch's task and their places in x; None where no move gives way."""
        moves = next((moves for moves in self.moves if moves.task == batch.task and moves.size), None)
        return None if moves is None else (moves, self.place_of(moves.mdp))

    def place_of(self, mdp: MDP) -> Ints:
        """Where the numbers stand by which the transitions of one task give way."""
        sizes = [moves.size for moves in self.moves]
        number = [moves.mdp for moves in self.moves].index(mdp)
        places: Ints = self.transition_slice.start + sum(sizes[:number]) + np.arange(sizes[number])
        return places

    @property
    def scale_is_free(self) -> bool:
        """Whether a common factor of reward and temperatures is open: no part of the reward and no temperature is known."""
        known = any(batch.known_reward.any() for batch in self.batches) or self.settings.reward is not None
        return not known and not self.fixed[self.temperature_slice].any()

    @property
    def known_temperature(self) -> float:
        """The geometric mean of the temperatures that are known, the unit of rewards; 1 where none is."""
        known = self.known[self.temperature_slice]
        return float(np.exp(np.nanmean(known))) if np.isfinite(known).any() else 1.0

    @cached_property
    def feature_sizes(self) -> Floats:
        """The largest entry of each feature over all experts, 1 for features without entries."""
        sizes = [abs(batch.features.matrix).max(axis=0).toarray().ravel() for batch in self.batches]
        largest: Floats = np.max(sizes, axis=0)
        return np.where(largest > 0, largest, 1.0)

    def reward(self, x: Floats) -> Floats:
        """θ `(d,)`."""
        return x[: self.n_reward]

    def discounts(self, x: Floats) -> Floats:
        """Each expert's discount `(K,)`."""
        shared: Floats = x[self.discount_slice][self.groups]
        return shared

    def temperatures(self, x: Floats) -> Floats:
        """Each expert's temperature `(K,)`."""
        found: Floats = np.exp(x[self.temperature_slice])[self.temperature_groups]
        return found

    def pack(
        self, reward: Floats, discounts: Floats, temperatures: Floats | None = None, transitions: Floats | None = None
    ) -> Floats:
        """x from a reward, one discount and one temperature for each group, clipped to the bounds; what is known stays.

        Where the scale is free, temperatures are divided by their geometric mean, and the reward with them. Transitions are as
        they were counted unless it is given how far they give way.
        """
        heat = np.ones(self.n_temperatures) if temperatures is None else np.asarray(temperatures, dtype=np.float64)
        scale = float(np.exp(np.log(heat).mean())) if self.scale_is_free else 1.0
        given = np.zeros(self.size - self.transition_slice.start) if transitions is None else transitions
        x = np.concatenate([reward / scale, discounts, np.log(heat / scale), given])
        packed: Floats = np.clip(np.where(self.fixed, self.known, x), self.lower, self.upper)
        return packed

    def at(self, x: Floats, near: Point | None = None) -> Point | None:
        """The model at x, its plans started from those of a `near` point; None where a soft value is infinite."""
        plans = []
        theta, gamma, lam = self.reward(x), self.discounts(x), self.temperatures(x)
        batches = self._batches_at(x)
        for i, batch in enumerate(batches):
            start, own = None if near is None else near.start(i), batch.owners
            plan = plan_together(batch, batch.reward(theta), gamma[own], lam[own], start)
            if plan is None:
                return None
            plans.append(plan)
        value = sum(float((b.counts * p.finite_log).sum()) for b, p in zip(self.batches, plans, strict=True))
        objective = value - 0.5 * float(self.ridge @ theta**2) + (0.0 if self.penalty is None else self.penalty(x))
        objective += sum(moves.value(t) for moves, t in self.moves_at(x))
        return Point(self, x, tuple(plans), value, objective, batches)

    def moves_at(self, x: Floats) -> Iterator[tuple[LoggedMoves, Floats]]:
        """The logged moves of each task, and how far they give way."""
        first = self.transition_slice.start
        for moves in self.moves:
            yield moves, x[first : first + moves.size]
            first += moves.size

    def _batches_at(self, x: Floats) -> tuple[Persons, ...]:
        """The persons where transitions have given way."""
        if not x[self.transition_slice].any():
            return self.batches
        tasks = {}
        for moves, t in self.moves_at(x):
            mdp = moves.mdp.with_probabilities(moves.probabilities(t))
            tasks[moves.task] = mdp, next(b for b in self.batches if b.task == moves.task).engine.of(mdp)
        return tuple(b.in_task(*tasks[b.task]) if b.task in tasks else b for b in self.batches)

    def of_experts(self, experts: Sequence[int]) -> Likelihood:
        """The likelihood of some experts alone, in the problem's order, with the same knowledge and without penalties."""
        members = sorted(experts)
        entries = [i for i, owner in enumerate(self.problem.owner) if owner in members]
        settings = self.settings
        part = Settings(
            groups=renumbered(self.groups[members]),
            discounts=None if settings.discounts is None else settings.discounts[members],
            temperature_groups=renumbered(self.temperature_groups[members]),
            temperatures=None if settings.temperatures is None else settings.temperatures[members],
            reward=settings.reward,
            moves=settings.moves,
        )
        return Likelihood(self.problem.with_experts(self.problem.experts[i] for i in entries), part)

    def with_counts(self, counts: Sequence[Floats]) -> Self:
        """The same likelihood of other decisions: counts `(S,A)` for each of the problem's experts and tasks."""
        experts = (replace(expert, counts=c) for expert, c in zip(self.problem.experts, counts, strict=True))
        changed = copy.copy(self)
        changed.problem = self.problem.with_experts(experts)
        changed.batches = tuple(recounted(batch, [counts[i] for i in batch.positions]) for batch in self.batches)
        changed.decisions = float(sum(batch.visits.sum() for batch in changed.batches))
        return changed

    def holding(self, penalty: Quadratic | None = None, ridge: Floats | float = 0.0) -> Self:
        """The same likelihood with other penalties."""
        changed = copy.copy(self)
        changed.penalty = penalty
        changed.ridge = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (self.n_reward,))
        return changed

    def held(self) -> Likelihood:
        """The same likelihood where transitions stay as they were counted."""
        changed = copy.copy(self)
        changed.moves = tuple(moves.held() for moves in self.moves)
        changed._lay_out()
        if self.penalty is not None:
            changed.penalty = self.penalty.without(self.transition_slice, 0)
        return changed

    def sharing(self, groups: tuple[int, ...]) -> Likelihood:
        """The same likelihood with one discount for each of these groups of experts; a penalty must not speak of discounts."""
        changed = copy.copy(self)
        changed.settings = replace(self.settings, groups=groups)
        changed._lay_out()
        if self.penalty is not None:
            changed.penalty = self.penalty.without(self.discount_slice, changed.n_discounts)
        return changed

    def _known(self) -> Floats:
        """x with the values of what is known, NaN elsewhere."""
        known = np.full(self.size, np.nan)
        k, settings = self.problem.n_experts, self.settings
        if settings.reward is not None:
            known[: self.n_reward] = settings.reward
        if settings.discounts is not None:
            known[self.discount_slice] = known_of_groups(settings.discounts, self.groups)
        heats = np.ones(k) if settings.temperatures is None else settings.temperatures
        known[self.temperature_slice] = np.log(known_of_groups(heats, self.temperature_groups))
        return known

    def _bounds(self) -> tuple[Floats, Floats]:
        endless = any(batch.mdp.never_ends().any() for batch in self.batches)
        d, heat = self.n_reward, np.full(self.n_temperatures, LOG_TEMPERATURE_BOUND)
        free = np.full(self.size - self.transition_slice.start, GIVES_WAY)
        lower = np.concatenate([np.full(d, -np.inf), np.zeros(self.n_discounts), -heat, -free])
        top = ENDLESS_DISCOUNT if endless else 1.0
        upper = np.concatenate([np.full(d, np.inf), np.full(self.n_discounts, top), heat, free])
        return np.where(self.fixed, self.known, lower), np.where(self.fixed, self.known, upper)


@dataclass(frozen=True, eq=False)
class Point:
    """The model at one x: `value` is the log-likelihood, `objective` what is maximised."""

    likelihood: Likelihood
    x: Floats
    plans: tuple[Plans, ...]
    value: float
    objective: float
    moved: tuple[Persons, ...] | None = None

    @property
    def batches(self) -> tuple[Persons, ...]:
        """The persons by task, with the transitions of this point."""
        return self.likelihood.batches if self.moved is None else self.moved

    @cached_property
    def gradient(self) -> Floats:
        """The gradient `(p,)` of the objective, by one adjoint solve for each expert."""
        model = self.likelihood
        total = self.pull_back([batch.counts for batch in self.batches])
        total[: model.n_reward] -= model.ridge * model.reward(self.x)
        if model.moves:
            total[model.transition_slice] += np.concatenate([moves.gradient(t) for moves, t in model.moves_at(self.x)])
        return total if model.penalty is None else total + model.penalty.gradient(self.x)

    @cached_property
    def weights(self) -> tuple[Floats, ...]:
        """How often each choice `(A,S,n)` of each batch is expected: what it weighs in the information."""
        return tuple(batch.visits * plan.policy for batch, plan in zip(self.batches, self.plans, strict=True))

    def without_derivatives(self) -> Self:
        """The same point without what was derived from it, which takes far more memory and is derived again when asked for."""
        return replace(self, plans=tuple(replace(plan) for plan in self.plans))

    @cached_property
    def problem(self) -> Problem:
        """The problem with the transitions of this point."""
        tasks = {id(old.mdp): new.mdp for old, new in zip(self.likelihood.batches, self.batches, strict=True)}
        return self.likelihood.problem.in_tasks(lambda mdp: tasks[id(mdp)])

    def policies(self) -> list[Floats]:
        """The policy `(S,A)` of each of the problem's experts and tasks."""
        found: dict[int, Floats] = {}
        for batch, plan in zip(self.batches, self.plans, strict=True):
            found |= {int(place): plan.policy[:, :, i].T for i, place in enumerate(batch.positions)}
        return [found[i] for i in range(len(found))]

    @cached_property
    def resolvents(self) -> tuple[Resolvents, ...]:
        """`I − γP_π` of each batch."""
        return tuple(b.engine.resolvents(p.policy, p.gamma) for b, p in zip(self.batches, self.plans, strict=True))

    def start(self, i: int) -> Start:
        """Where the plans of one batch begin at a neighbouring point: with the solves of this one, if they have been made."""
        return Start(self.plans[i].values, self.resolvents[i] if "resolvents" in vars(self) else None)

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """`Σ y(s,a) d log π(a|s)` `(p,)` for weights y `(A,S,n)` of each batch: the gradient where they are the counts."""
        model = self.likelihood
        total = np.zeros(model.size)
        for i, (batch, plan, solver, y) in enumerate(zip(self.batches, self.plans, self.resolvents, weights, strict=True)):
            moved, flow = reward_pull_back(batch, plan, solver, y)
            if (found := model.moves_of(batch)) is not None:
                rows = moved.reshape(-1, batch.owners.size)[found[0].rows]
                total[found[1]] += (rows * self.worth_of_moves[i]).sum(axis=1)
            total[: model.n_reward] += batch.features.transposed @ moved.sum(axis=2).ravel()
            np.add.at(total, model.n_reward + model.groups[batch.owners], (moved * next_values(batch, plan)).sum(axis=(0, 1)))
            direct = (y.sum(axis=0) * plan.entropy).sum(axis=0) + (y * plan.finite_log).sum(axis=(0, 1))
            heat = plan.lam * (flow * plan.entropy).sum(axis=0) - direct
            np.add.at(total, model.temperature_slice.start + model.temperature_groups[batch.owners], heat)
        return total

    @cached_property
    def worth_of_moves(self) -> tuple[Floats, ...]:
        """For each batch, how each person's immediate reward `(E,n)` moves with the numbers t of the task's logged moves."""
        found = []
        theta = self.likelihood.reward(self.x)
        for batch, plan in zip(self.batches, self.plans, strict=True):
            reached = batch.arrival_reward(theta)[:, None] + plan.gamma * plan.values
            moves = self.likelihood.moves_of(batch)
            found.append(np.zeros((0, batch.owners.size)) if moves is None else moves[0].worth(batch.mdp, reached))
        return tuple(found)

    @cached_property
    def information(self) -> Floats:
        """The Fisher information `(p,p)` of the decisions, given the states they were made in, and of the logged moves; dense."""
        model = self.likelihood
        total = np.zeros((model.size, model.size))
        for columns, block in self.blocks():
            total[np.ix_(columns, columns)] += block
        place = np.arange(model.size)[model.transition_slice]
        total[place, place] += self.move_information
        return total

    @property
    def move_information(self) -> Floats:
        """The information of the logged moves, which is diagonal."""
        parts = [moves.counts for moves in self.likelihood.moves]
        return np.concatenate(parts) if parts else np.zeros(0)

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """For each expert and task the positions in x on which the choices depend, and their Fisher information `(q,q)`."""
        for i, batch in enumerate(self.batches):
            rows, columns, scores = self.scores(i)
            weights = self.weights[i].reshape(-1, batch.owners.size)[rows]
            weighted = (scores * np.sqrt(weights)[:, :, None]).transpose(1, 0, 2)
            yield from zip(columns, weighted.transpose(0, 2, 1) @ weighted, strict=True)

    def scores(self, i: int) -> tuple[Ints, list[Ints], Floats]:
        """Of one batch, the rows of visited states, each person's places in x, and `d log π(a|s)` `(rows,n,q)` in them."""
        model, batch = self.likelihood, self.batches[i]
        rows, scores = score_rows(batch, self.plans[i], self.resolvents[i])
        first_heat, own = model.temperature_slice.start, batch.features.used
        columns = [
            np.array([*own, model.n_reward + model.groups[k], first_heat + model.temperature_groups[k]]) for k in batch.owners
        ]
        if (found := model.moves_of(batch)) is not None:
            moves, place = found
            direct = reward_rows(batch, self.plans[i], self.resolvents[i], moves.rows)
            scores = np.concatenate([scores, direct * self.worth_of_moves[i].T], axis=2)
            columns = [np.concatenate([c, place]) for c in columns]
        return rows, columns, scores


def draw_decisions(point: Point, rng: np.random.Generator) -> list[Floats]:
    """New decisions, as counts, from the fitted policies in the states in which each expert decided.

    Experts are drawn in the order of their likelihoods, states in that of their values, and actions in that of their
    probabilities, so that the same random numbers meet the same choices however all of them are listed.
    """
    people: list[tuple[float, int, Floats, Floats, Floats]] = []
    for batch, plan in zip(point.batches, point.plans, strict=True):
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


#: Above this many rewards, or parameters in all, nothing of size p×p is formed: an information matrix costs the cube of them.
DENSE_REWARDS, DENSE_PARAMETERS = 700, 3000
#: Rewards beyond this many cannot be told apart by any table of decisions in reasonable time.
MOST_REWARDS = 20_000
#: Iterations of L-BFGS-B that stand for one step of Fisher scoring, and the pairs of vectors that it remembers.
ITERATIONS_PER_STEP, MEMORY = 5, 30


def is_large(likelihood: Likelihood) -> bool:
    """Whether a dense information matrix is out of the question."""
    return likelihood.n_reward > DENSE_REWARDS or likelihood.size > DENSE_PARAMETERS


def require_size(n_rewards: int) -> None:
    """Raise where there are too many rewards to be estimated one by one."""
    if n_rewards > MOST_REWARDS:
        raise ValueError(
            f"a reward for each of {n_rewards:,} states is more than can be estimated (at most {MOST_REWARDS:,}): "
            "tie the rewards of similar states together with features"
        )


def quasi_newton(start: Point, fixed: Bools, max_steps: int, progress: Progress = silent) -> tuple[Point, int, bool]:
    """The best point L-BFGS-B reaches, its iterations, and whether it says that it converged."""
    model, free = start.likelihood, ~fixed
    kept: dict[str, Point] = {"best": start, "last": start}

    def negative(z: Floats) -> tuple[float, Floats]:
        x = start.x.copy()
        x[free] = z
        point = model.at(x, kept["last"])
        if point is None:
            return np.inf, np.zeros(z.size)
        kept["last"] = point
        if point.objective > kept["best"].objective:
            kept["best"] = point
        return -point.objective / model.decisions, -point.gradient[free] / model.decisions

    bounds = list(zip(model.lower[free], model.upper[free], strict=True))
    most = ITERATIONS_PER_STEP * max_steps
    steps = itertools.count(1)

    def tell(_: Floats) -> None:
        number = next(steps)
        progress(number / most, f"step {number}: log-likelihood {kept['best'].value:.2f}")

    options = {"maxiter": most, "maxcor": MEMORY, "ftol": 1e-14, "gtol": 1e-7}
    end = minimize(negative, start.x[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=tell)
    return kept["best"], int(end.nit), bool(end.success)


def information_product(point: Point, v: Floats) -> Floats:
    """The Fisher information times a vector `(p,)`."""
    model = point.likelihood
    product = point.pull_back([weights * choices_along(point, i, v) for i, weights in enumerate(point.weights)])
    product[model.transition_slice] += point.move_information * v[model.transition_slice]
    return product


def choices_along(point: Point, i: int, v: Floats) -> Floats:
    """`J v`, how log π `(A,S,n)` of one batch moves along v."""
    model, plan, batch = point.likelihood, point.plans[i], point.batches[i]
    mdp, n = batch.mdp, batch.owners.size
    heat = plan.lam * v[model.temperature_slice][model.temperature_groups[batch.owners]]
    paid = (batch.features.matrix @ v[: model.n_reward]).reshape(mdp.n_actions, mdp.n_states, 1)
    if (found := model.moves_of(batch)) is not None:
        moves, place = found
        changes = np.zeros((mdp.stacked.shape[0], n))
        np.add.at(changes, moves.rows, point.worth_of_moves[i] * v[place, None])
        paid = paid + changes.reshape(mdp.n_actions, mdp.n_states, n)
    direct = paid + v[model.discount_slice][model.groups[batch.owners]] * next_values(batch, plan)
    source = (plan.policy * direct).sum(axis=0) + heat * plan.entropy
    moved = point.resolvents[i].solve(np.where(mdp.terminal[:, None], 0.0, source)[:, :, None])[:, :, 0]
    later = (mdp.stacked @ moved).reshape(mdp.n_actions, mdp.n_states, n)
    change = (direct + plan.gamma * later - moved - heat * plan.finite_log) / plan.lam
    return np.where(np.isfinite(plan.log), change, 0.0)
