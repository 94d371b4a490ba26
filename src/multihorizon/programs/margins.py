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
class ExpertTask:
    """Expert number `k` in one task: the actions chosen `(S,A)`, the policy followed `(S,)`, the states that are not terminal.

    `places` are those of its values among the values of all experts and tasks.
    """

    k: int
    expert: Expert
    chosen: Bools
    policy: Ints
    live: Ints
    places: Ints

    def q_rows(self, action: Ints, state: Ints, size: int) -> Any:
        """Return Q of pairs of action and state as rows `[F_a(s) | T_a(s) at the places]` on `(θ, x)`, where x has that size."""
        index = action * self.expert.mdp.n_states + state
        features = sp.csr_array(self.expert.feature_matrix[index])
        successors = sp.csr_array(self.expert.mdp.stacked[index][:, self.live])
        before = sp.csr_array((index.size, self.places[0]))
        after = sp.csr_array((index.size, size - before.shape[1] - successors.shape[1]))
        return sp.hstack([features, before, successors, after], format="csr")


@dataclass(frozen=True, eq=False)
class MarginRows:
    """Some margins: `matrix` `(m, d+N)` on `(θ, x)`, and which task, expert, state and action each row is about."""

    matrix: Any
    task: Ints
    expert: Ints
    state: Ints
    action: Ints

    def __len__(self) -> int:
        return self.expert.size


@dataclass(frozen=True, eq=False)
class Margins:
    """The margins of K experts.

    `values` `(N, d+N)` gives the values V in all tasks from `(θ, x)`, and `owner` `(N,)` says whose discount each falls under.
    `strict` are the margins against actions not chosen, `ties` those that must vanish. `indifferent` are the (task, state) in
    which an action that is not chosen leads where the chosen one does.
    """

    names: tuple[str, ...]
    tasks: tuple[ExpertTask, ...]
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
        """The largest discount `(K,)` that a search may try: below 1 where the policy never ends from some state."""
        limits = np.ones(self.n_experts)
        for task in self.tasks:
            mdp = task.expert.mdp
            if mdp.never_ends(one_hot(task.policy, mdp.n_actions)).any():
                limits[task.k] = ENDLESS_DISCOUNT
        return limits

    @cached_property
    def pairs(self) -> dict[tuple[int, int], Ints]:
        """For each ordered pair (i, j) who differ in a task they share, the strict rows of i against actions that j chooses."""
        telling_rows: dict[tuple[int, int], list[Ints]] = {}
        for number, mine in enumerate(self.tasks):
            for other in self.tasks:
                if mine.k == other.k or (mine.expert.whole or mine.expert.mdp) is not (other.expert.whole or other.expert.mdp):
                    continue
                rows = np.flatnonzero(self.strict.task == number)
                both = np.intersect1d(mine.live, other.live)  # where both experts were observed
                rows = rows[np.isin(self.strict.state[rows], both)]
                rows = rows[other.chosen[self.strict.state[rows], self.strict.action[rows]]]
                if rows.size or (other.chosen & ~mine.chosen)[both].any():
                    telling_rows.setdefault((mine.k, other.k), []).append(rows)
        return {pair: np.concatenate(rows) for pair, rows in telling_rows.items()}

    @cached_property
    def telling(self) -> Ints:
        """The strict rows that distinguish some pair of experts."""
        return np.unique(np.concatenate([*self.pairs.values(), np.empty(0, dtype=np.int64)]))

    @cached_property
    def alike(self) -> list[tuple[int, int]]:
        """Pairs of experts with the same tasks who choose the same actions everywhere: nothing distinguishes them."""
        tasks = [{id(task.expert.mdp) for task in self.tasks if task.k == k} for k in range(self.n_experts)]
        return [
            (i, j)
            for j in range(self.n_experts)
            for i in range(j)
            if tasks[i] == tasks[j] and (i, j) not in self.pairs and (j, i) not in self.pairs
        ]

    def of(self, experts: Sequence[int]) -> Margins:
        """Return the margins of some of the experts, numbered in the order given."""
        numbered = [(new, task.expert) for new, k in enumerate(experts) for task in self.tasks if task.k == k]
        return _assemble(tuple(self.names[k] for k in experts), numbered)

    def continuation(self, parameters: Floats, discounts: Floats) -> Floats:
        """Return `(θ, x)`, with each `x_k` solved from its equation."""
        point = np.concatenate([parameters, np.zeros(self.owner.size)])
        immediate = self.values @ point
        for task in self.tasks:
            gamma = float(discounts[task.k])
            columns = self.n_parameters + task.places
            transitions = self.values[task.places][:, columns]
            point[columns] = gamma * Resolvent(transitions, gamma).solve(immediate[task.places])
        return point


def build_margins(problem: Problem) -> Margins:
    """Build the margins of a problem; raise for experts who are not given as actions or action sets."""
    return _assemble(problem.names, list(zip(problem.owner, problem.experts, strict=True)))


def _assemble(names: tuple[str, ...], experts: list[tuple[int, Expert]]) -> Margins:
    """Assemble the margins of experts in their tasks, each with the number of the expert."""
    tasks, values, indifferent = [], [], []
    rows: dict[str, list[tuple[Any, Ints, Ints, Ints, Ints]]] = {"strict": [], "ties": []}
    size = sum(int((~expert.mdp.terminal).sum()) for _, expert in experts)
    filled = 0
    for number, (k, expert) in enumerate(experts):
        mdp = expert.mdp
        chosen = expert.require_sets()
        live = np.flatnonzero(~mdp.terminal)
        policy = chosen.argmax(axis=1)
        task = ExpertTask(k, expert, chosen, policy, live, filled + np.arange(live.size))
        filled += live.size
        followed = task.q_rows(policy[live], live, size)
        others = np.argwhere(mdp.available[live] & (np.arange(mdp.n_actions) != policy[live, None]))
        state = live[others[:, 0]]
        action = others[:, 1]
        margins = sp.csr_array(followed[others[:, 0]] - task.q_rows(action, state, size))
        margins.data[np.abs(margins.data) <= ROUNDING] = 0.0
        margins.eliminate_zeros()
        differs = np.diff(margins.indptr) > 0
        tied = chosen[state, action]
        for kind, of_kind in (("strict", ~tied), ("ties", tied)):
            these = np.flatnonzero(differs & of_kind)
            numbers = (np.full(these.size, number), np.full(these.size, k))
            rows[kind].append((margins[these], *numbers, state[these], action[these]))
        tasks.append(task)
        values.append(followed)
        indifferent += [(number, int(s)) for s in state[~differs & ~tied]]

    def joined(kind: str) -> MarginRows:
        matrices, *columns = zip(*rows[kind], strict=True)
        return MarginRows(sp.csr_array(sp.vstack(matrices, format="csr")), *(np.concatenate(column) for column in columns))

    owner = np.concatenate([np.full(task.places.size, task.k) for task in tasks])
    whole = sp.vstack(values, format="csr")
    return Margins(names, tuple(tasks), whole, owner, joined("strict"), joined("ties"), frozenset(indifferent))
