"""Margins of experts who choose the best action, as sparse linear functions of the reward and of values.

Expert k follows `π_k` with discount `γ_k`. With reward parameters θ (one number a state for the arrival reward), the feature
matrix F and the *continuation* `x_k = γ_k V_k`,

    V_k = F_{π_k} θ + P_{π_k} x_k,        x_k = γ_k V_k,
    margin(s, a, k) = Q_k(s, π_k(s)) − Q_k(s, a) = (F_{π_k}(s) − F_a(s)) θ + (P_{π_k}(s) − T_a(s)) x_k.

Eliminating `x_k` gives the paper's rows `w_{s,a,k}(γ) = (T_{π_k}(s) − T_a(s)) (I − γ T_{π_k})^{-1}`, which are dense. Kept as
variables, `(θ, x)` make every row as sparse as T, and the discount enters in one place only: the equation `x_k = γ_k V_k`.

An expert with several chosen actions in a state follows the first of them; the others give equations `margin = 0` (ties).
Terminal states and unavailable actions carry no rows, nor do actions that lead where the chosen one leads with the same
reward: their margin is zero whatever the reward.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.experts import Expert
from multihorizon.planning.linear import Resolvent
from multihorizon.planning.plan import one_hot
from multihorizon.problem import Problem

#: A row whose coefficients are all below this vanishes whatever the reward: the two actions are one.
SAME = 1e-12
#: Where a policy never ends, `(I − γT_π)` is singular at 1; searches stop here for that expert.
ENDLESS_LIMIT = 0.999


@dataclass(frozen=True, eq=False)
class Rows:
    """Some margins: `matrix` `(m, d + K·n)` on `(θ, x_1, …, x_K)`, and which expert, state and action each row is about."""

    matrix: Any
    expert: Ints
    state: Ints
    action: Ints

    def __len__(self) -> int:
        return self.expert.size


@dataclass(frozen=True, eq=False)
class Margins:
    """The margins of all experts of a problem.

    `values` `(K·n, d + K·n)` gives `V` from `(θ, x)` on the n states that are not terminal; `strict` are the margins against
    actions not chosen, `ties` those that must vanish. `indifferent` `(K,S)` marks states in which an action that is not chosen
    leads where the chosen one does. `limits` `(K,)` is the largest discount a search may try.
    """

    problem: Problem
    live: Ints
    policies: tuple[Ints, ...]
    values: Any
    strict: Rows
    ties: Rows
    indifferent: Bools
    limits: Floats

    @property
    def n_parameters(self) -> int:
        """d, the length of θ."""
        return self.problem.n_parameters

    @property
    def n_experts(self) -> int:
        """K."""
        return self.problem.n_experts

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Ints]:
        """For each ordered pair (i, j) the strict rows of i against actions that j chooses, where there are any."""
        chosen = np.stack([expert.require_sets() for expert in self.problem.experts])
        found = {}
        for i in range(self.n_experts):
            for j in range(self.n_experts):
                mine = (self.strict.expert == i) & chosen[j, self.strict.state, self.strict.action]
                differ = (chosen[j] & ~chosen[i])[self.live].any()
                if i != j and (mine.any() or differ):
                    found[i, j] = np.flatnonzero(mine)
        return found

    @property
    def alike(self) -> list[tuple[int, int]]:
        """Pairs of experts who choose the same actions everywhere: nothing can tell them apart."""
        k = self.n_experts
        return [(i, j) for i in range(k) for j in range(i + 1, k) if (i, j) not in self.pairs and (j, i) not in self.pairs]

    def singular(self, discounts: Floats) -> Ints:
        """Experts whose policy never ends from some state and whose discount is 1, so that their values do not exist."""
        return np.flatnonzero((discounts >= 1) & (self.limits < 1))

    def continuation(self, parameters: Floats, discounts: Floats) -> Floats:
        """`(θ, x)`, with each `x_k` solved from its equation."""
        n, d = self.live.size, self.n_parameters
        point = np.concatenate([parameters, np.zeros(self.n_experts * n)])
        immediate = self.values @ point
        for k, gamma in enumerate(discounts):
            block = slice(k * n, (k + 1) * n)
            transitions = self.values[block, d + k * n : d + (k + 1) * n]
            point[d + k * n : d + (k + 1) * n] = gamma * Resolvent(transitions, float(gamma)).solve(immediate[block])
        return point


def build_margins(problem: Problem) -> Margins:
    """The margins of a problem with one task; raises for experts who are not given as actions or action sets."""
    mdp = problem.mdp
    live = np.flatnonzero(~mdp.terminal)
    parts = [_expert_blocks(problem, k, live) for k in range(problem.n_experts)]
    policies = tuple(part[0] for part in parts)
    endless = [bool(mdp.never_ends(one_hot(pi, mdp.n_actions)).any()) for pi in policies]
    return Margins(
        problem=problem,
        live=live,
        policies=policies,
        values=sp.vstack([part[1] for part in parts], format="csr"),
        strict=_join([part[2] for part in parts]),
        ties=_join([part[3] for part in parts]),
        indifferent=np.stack([part[4] for part in parts]),
        limits=np.where(endless, ENDLESS_LIMIT, 1.0),
    )


def _expert_blocks(problem: Problem, k: int, live: Ints) -> tuple[Ints, Any, Rows, Rows, Bools]:
    expert = problem.experts[k]
    sets = expert.require_sets()
    policy: Ints = sets.argmax(axis=1)
    chosen = _wide(expert, problem, k, policy[live], live, live)
    others = np.argwhere(expert.mdp.available[live] & (np.arange(expert.mdp.n_actions) != policy[live, None]))
    index, action = others[:, 0], others[:, 1]
    state = live[index]
    rows = sp.csr_array(chosen[index] - _wide(expert, problem, k, action, state, live))
    moving = abs(rows).max(axis=1).toarray().ravel() > SAME if len(index) else np.zeros(0, dtype=np.bool_)
    kept = sets[state, action]
    indifferent = np.zeros(expert.mdp.n_states, dtype=np.bool_)
    indifferent[state[~moving & ~kept]] = True
    strict, ties = (_rows(rows, k, state, action, moving & part) for part in (~kept, kept))
    return policy, chosen, strict, ties, indifferent


def _wide(expert: Expert, problem: Problem, k: int, action: Ints, state: Ints, live: Ints) -> Any:
    """Rows `[F_a(s) | 0 … T_a(s) … 0]` on `(θ, x)` for pairs of action and state."""
    index = action * expert.mdp.n_states + state
    features = sp.csr_array(expert.feature_matrix[index])
    successors = sp.csr_array(expert.mdp.stacked[index][:, live])
    before = sp.csr_array((index.size, k * live.size))
    after = sp.csr_array((index.size, (problem.n_experts - k - 1) * live.size))
    return sp.hstack([features, before, successors, after], format="csr")


def _rows(matrix: Any, k: int, state: Ints, action: Ints, mask: Bools) -> Rows:
    picked = np.flatnonzero(mask)
    return Rows(matrix[picked], np.full(picked.size, k), state[picked], action[picked])


def _join(parts: list[Rows]) -> Rows:
    matrix = sp.csr_array(sp.vstack([part.matrix for part in parts], format="csr"))
    matrix.data[np.abs(matrix.data) <= SAME] = 0.0
    matrix.eliminate_zeros()
    return Rows(
        matrix,
        np.concatenate([part.expert for part in parts]),
        np.concatenate([part.state for part in parts]),
        np.concatenate([part.action for part in parts]),
    )
