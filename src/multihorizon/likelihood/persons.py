"""Persons who act in one task: planned together, with the exact derivatives of their choices.

With `P = P_π`, `H` the entropy of π and `πF` the policy's average of F's rows, a plan is differentiated through its fixed point:

    dV = (I − γP)^{-1} [πF dθ + P V dγ + H dλ],      dQ = F dθ + T V dγ + γ T dV,
    d log π(a|s) = (dQ(s,a) − dV(s))/λ − log π(a|s) dλ/λ.

`score_rows` gives these rows for all parameters (one forward solve with a right-hand side for each). `reward_pull_back` gives
`Σ y d log π` for weights y in the immediate reward (one adjoint solve, whatever the number of parameters).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.experts import Expert
from multihorizon.likelihood.engine import Engine, Features, Resolvents, Start, engine_for
from multihorizon.mdp import MDP
from multihorizon.planning.weighted_plan import log_policies
from multihorizon.problem import Problem

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
