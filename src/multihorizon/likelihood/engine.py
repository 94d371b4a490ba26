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
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints
from multihorizon.mdp import MDP
from multihorizon.planning.linear import Resolvent, policy_resolvent
from multihorizon.planning.soft_plan import INFINITE, MAX_NEWTON_STEPS, ROUNDED_RESIDUAL, STALLED_RESIDUAL, soft_plan
from multihorizon.planning.weighted_plan import episodic_levels, log_policies

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
