"""Margins of experts who choose the best action, as sparse linear functions of the reward and of values.

Expert k follows `π_k` with discount `γ_k`. With reward parameters θ (one number per state for the arrival reward), the feature
matrix F and the *continuation* `x_k = γ_k V_k`,

    V_k = F_{π_k} θ + P_{π_k} x_k,        x_k = γ_k V_k,
    margin(s, a, k) = Q_k(s, π_k(s)) − Q_k(s, a) = (F_{π_k}(s) − F_a(s)) θ + (P_{π_k}(s) − T_a(s)) x_k.

Eliminating `x_k` gives the paper's rows `w_{s,a,k}(γ) = (T_{π_k}(s) − T_a(s)) (I − γ T_{π_k})^{-1}`, which are dense. Kept as
variables, `(θ, x)` make every row as sparse as T, and the discount enters in one place only: the equation `x_k = γ_k V_k`.

An expert with several chosen actions in a state follows the first of them; the others give equations `margin = 0` (ties).
Terminal states and unavailable actions carry no rows, nor do actions that lead where the chosen one leads with the same
reward: their margin is zero whatever the reward. An expert who acts in several tasks has values in each, and one discount.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import ENDLESS_DISCOUNT, ROUNDING, Bools, Floats, Ints
from multihorizon.planning.linear import Resolvent
from multihorizon.planning.plan import one_hot
from multihorizon.problem import Expert, Problem


@dataclass(frozen=True, eq=False)
class Part:
    """One expert in one task: the number `k` of the expert, the policy followed `(S,)`, the states that are not terminal.

    `places` are those of its values among the values of all parts.
    """

    k: int
    expert: Expert
    policy: Ints
    live: Ints
    places: Ints

    @property
    def chosen(self) -> Bools:
        """The actions the expert chooses, `(S,A)`."""
        return self.expert.require_sets()

    @property
    def never_ends(self) -> bool:
        """Whether the policy never ends from some state."""
        mdp = self.expert.mdp
        return bool(mdp.never_ends(one_hot(self.policy, mdp.n_actions)).any())


@dataclass(frozen=True, eq=False)
class MarginRows:
    """Some margins: `matrix` `(m, d+N)` on `(θ, x)`, and which part, expert, state and action each row is about."""

    matrix: Any
    part: Ints
    expert: Ints
    state: Ints
    action: Ints

    def __len__(self) -> int:
        return self.expert.size


@dataclass(frozen=True, eq=False)
class Margins:
    """The margins of K experts.

    `values` `(N, d+N)` gives the values V of all parts from `(θ, x)`, and `owner` `(N,)` says whose discount each falls under.
    `strict` are the margins against actions not chosen, `ties` those that must vanish. `indifferent` are the (part, state) in
    which an action that is not chosen leads where the chosen one does.
    """

    names: tuple[str, ...]
    parts: tuple[Part, ...]
    values: Any
    owner: Ints
    strict: MarginRows
    ties: MarginRows
    indifferent: frozenset[tuple[int, int]]

    @property
    def n_parameters(self) -> int:
        """d, the length of θ."""
        return int(self.values.shape[1] - self.values.shape[0])

    @property
    def n_experts(self) -> int:
        """K."""
        return len(self.names)

    @cached_property
    def limits(self) -> Floats:
        """The largest discount `(K,)` that a search may try."""
        endless = [any(part.never_ends for part in self.parts if part.k == k) for k in range(self.n_experts)]
        return np.where(endless, ENDLESS_DISCOUNT, 1.0)

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Ints]:
        """For each ordered pair (i, j) who differ in a task they share, the strict rows of i against actions that j chooses."""
        found: dict[tuple[int, int], list[Ints]] = {}
        for number, mine in enumerate(self.parts):
            for other in self.parts:
                if mine.k == other.k or mine.expert.mdp is not other.expert.mdp:
                    continue
                rows = np.flatnonzero(self.strict.part == number)
                rows = rows[other.chosen[self.strict.state[rows], self.strict.action[rows]]]
                if rows.size or (other.chosen & ~mine.chosen)[mine.live].any():
                    found.setdefault((mine.k, other.k), []).append(rows)
        return {pair: np.concatenate(rows) for pair, rows in found.items()}

    @cached_property
    def telling(self) -> Ints:
        """The strict rows that tell some pair of experts apart."""
        return np.unique(np.concatenate([*self.pairs.values(), np.empty(0, dtype=np.int64)]))

    @cached_property
    def alike(self) -> list[tuple[int, int]]:
        """Pairs of experts with the same tasks who choose the same actions everywhere: nothing can tell them apart."""
        tasks = [{id(part.expert.mdp) for part in self.parts if part.k == k} for k in range(self.n_experts)]
        return [
            (i, j)
            for j in range(self.n_experts)
            for i in range(j)
            if tasks[i] == tasks[j] and (i, j) not in self.pairs and (j, i) not in self.pairs
        ]

    @property
    def by_choices(self) -> list[int]:
        """The experts in an order that depends on what they choose and not on how they are listed."""
        choices = [b"".join(part.chosen.tobytes() for part in self.parts if part.k == k) for k in range(self.n_experts)]
        return sorted(range(self.n_experts), key=lambda k: choices[k])

    def of(self, experts: Sequence[int]) -> Margins:
        """The margins of some of the experts, numbered in the order given."""
        numbered = [(new, part.expert) for new, k in enumerate(experts) for part in self.parts if part.k == k]
        return _assemble(tuple(self.names[k] for k in experts), numbered)

    def singular(self, discounts: Floats) -> Ints:
        """Experts whose policy never ends from some state and whose discount is 1, so that their values do not exist."""
        return np.flatnonzero((discounts >= 1) & (self.limits < 1))

    def continuation(self, parameters: Floats, discounts: Floats) -> Floats:
        """`(θ, x)`, with each `x_k` solved from its equation."""
        point = np.concatenate([parameters, np.zeros(self.owner.size)])
        immediate = self.values @ point
        for part in self.parts:
            gamma, columns = float(discounts[part.k]), self.n_parameters + part.places
            transitions = self.values[part.places][:, columns]
            point[columns] = gamma * Resolvent(transitions, gamma).solve(immediate[part.places])
        return point


def build_margins(problem: Problem) -> Margins:
    """The margins of a problem; raises for experts who are not given as actions or action sets."""
    return _assemble(problem.names, list(zip(problem.owner, problem.experts, strict=True)))


def _assemble(names: tuple[str, ...], experts: list[tuple[int, Expert]]) -> Margins:
    """The margins of experts in their tasks, each with the number of the expert."""
    parts = _parts(experts)
    blocks = [_margins_of(part, number, parts[-1].places[-1] + 1) for number, part in enumerate(parts)]
    return Margins(
        names=names,
        parts=parts,
        values=sp.vstack([values for values, _, _, _ in blocks], format="csr"),
        owner=np.concatenate([np.full(part.places.size, part.k) for part in parts]),
        strict=_join([strict for _, strict, _, _ in blocks]),
        ties=_join([ties for _, _, ties, _ in blocks]),
        indifferent=frozenset((number, int(s)) for number, (*_, states) in enumerate(blocks) for s in states),
    )


def _parts(experts: list[tuple[int, Expert]]) -> tuple[Part, ...]:
    live = [np.flatnonzero(~expert.mdp.terminal) for _, expert in experts]
    places = np.split(np.arange(sum(map(len, live))), np.cumsum([len(states) for states in live])[:-1])
    return tuple(
        Part(k, expert, expert.require_sets().argmax(axis=1), live[i], places[i]) for i, (k, expert) in enumerate(experts)
    )


def _margins_of(part: Part, number: int, size: int) -> tuple[Any, MarginRows, MarginRows, Ints]:
    """The values, strict rows and ties of one part, and the states in which an action not chosen equals the chosen one."""
    mdp, live, policy = part.expert.mdp, part.live, part.policy
    chosen = _action_values(part, policy[live], live, size)
    others = np.argwhere(mdp.available[live] & (np.arange(mdp.n_actions) != policy[live, None]))
    state, action = live[others[:, 0]], others[:, 1]
    rows = sp.csr_array(chosen[others[:, 0]] - _action_values(part, action, state, size))
    rows.data[np.abs(rows.data) <= ROUNDING] = 0.0
    rows.eliminate_zeros()
    differs = np.diff(rows.indptr) > 0
    tied = part.chosen[state, action]
    strict, ties = (_select(rows, part, number, state, action, differs & which) for which in (~tied, tied))
    return chosen, strict, ties, state[~differs & ~tied]


def _action_values(part: Part, action: Ints, state: Ints, size: int) -> Any:
    """Q of pairs of action and state as rows `[F_a(s) | T_a(s) at the part's places]` on `(θ, x)`."""
    index = action * part.expert.mdp.n_states + state
    features = sp.csr_array(part.expert.feature_matrix[index])
    successors = sp.csr_array(part.expert.mdp.stacked[index][:, part.live])
    before = sp.csr_array((index.size, part.places[0]))
    after = sp.csr_array((index.size, size - before.shape[1] - successors.shape[1]))
    return sp.hstack([features, before, successors, after], format="csr")


def _select(matrix: Any, part: Part, number: int, state: Ints, action: Ints, mask: Bools) -> MarginRows:
    rows = np.flatnonzero(mask)
    return MarginRows(matrix[rows], np.full(rows.size, number), np.full(rows.size, part.k), state[rows], action[rows])


def _join(blocks: list[MarginRows]) -> MarginRows:
    fields = ("part", "expert", "state", "action")
    matrix = sp.csr_array(sp.vstack([block.matrix for block in blocks], format="csr"))
    return MarginRows(matrix, *(np.concatenate([getattr(block, name) for block in blocks]) for name in fields))
