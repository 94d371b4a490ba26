"""The likelihood of logged decisions, and its exact derivatives through the soft Bellman fixed point.

Expert k, with discount γ and temperature λ, is seen to take action a in state s `N(s,a)` times, `n(s) = Σ_a N(s,a)`. Under reward
parameters θ the log-likelihood of these choices, given the states in which they were made, is

    L = Σ_k Σ_{s,a} N(s,a) log π(a|s),   λ log π(a|s) = Q(s,a) − V(s),   Q = R₀ + F θ + γ T V,   V(s) = λ log Σ_a exp(Q(s,a)/λ),

with R₀ the known part of the reward, if there is one. It is undiscounted: each decision counts once, whenever it was made. V
solves a fixed-point equation (the nested fixed point of Rust, 1987) and is differentiated through it. With `P = P_π`, `H` the
entropy of π and `πF` the policy's average of F's rows,

    dV = (I − γP)^{-1} [πF dθ + P V dγ + H dλ],      dQ = F dθ + T V dγ + γ T dV,
    d log π(a|s) = (dQ(s,a) − dV(s))/λ − log π(a|s) dλ/λ.

*Backwards*: with `G = (N − nπ)/λ` and one adjoint solve `w = (I − γPᵀ)^{-1} γ TᵀG` an expert's gradient is `Fᵀ(G + π w)` in θ,
`⟨G + π w, TV⟩` in γ and `w·H − Σ (nH + N log π)/λ` in λ; the cost does not depend on how many parameters there are.
*Forwards*: the rows ψ(s,a) of d log π give the Fisher information `Σ n(s) π(a|s) ψψᵀ`, one solve with a right-hand side for each
parameter that is not structurally zero.

What is maximised is `L − ½ Σ ρ_j θ_j² − ½ (x−c)ᵀA(x−c) + bᵀ(x−c)`: ρ is a ridge, and the other term holds what is known of
x besides the decisions, such as the spread of temperatures, or the decisions of experts who are not looked at again.
A common factor of all λ and θ leaves every policy as it is; where no part of the reward is known, this direction is open.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.experts import Expert
from multihorizon.likelihood.engine import Engine, Features, Resolvents, engine_for
from multihorizon.mdp import MDP
from multihorizon.planning.weighted_plan import log_policies
from multihorizon.problem import Problem
from multihorizon.tolerances import ENDLESS_DISCOUNT

#: Log-temperatures stay within ±5: beyond a factor of 148 a temperature is only a certain or a uniform policy.
LOG_TEMPERATURE_BOUND = 5.0
#: Persons are planned together as long as their derivatives fit into this many numbers.
BATCH_NUMBERS = 2_000_000


@dataclass(frozen=True, eq=False)
class Persons:
    """Persons in one task, planned together: counts `(A,S,n)`, visits `(S,n)`, and whose they are `(n,)`.

    `positions` are their places among the problem's experts (one for each person and task), `owners` their numbers as persons.
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

    @cached_property
    def visited_rows(self) -> Ints:
        """The rows a·S+s of available actions in states where anyone decided."""
        seen = (self.visits > 0).any(axis=1, keepdims=True) & self.mdp.available
        return np.flatnonzero(seen.T.ravel())

    def reward(self, theta: Floats) -> Floats:
        """The expected immediate reward `(A·S,)`."""
        total: Floats = self.known_reward + self.features.matrix @ theta
        return total

    def arrival_reward(self, theta: Floats) -> Floats:
        """The part of the reward `(S,)` that is paid on arrival, and so moves with the transitions."""
        return np.zeros(self.mdp.n_states) if self.arrival is None else self.arrival @ theta


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The term `−½ (x−c)ᵀA(x−c) + bᵀ(x−c)` of the objective: centre c, slope b, matrix A."""

    centre: Floats
    slope: Floats
    matrix: Floats

    def __call__(self, x: Floats) -> float:
        """Its value at x."""
        return float((self.slope - 0.5 * self.matrix @ (x - self.centre)) @ (x - self.centre))

    def gradient(self, x: Floats) -> Floats:
        """Its gradient at x."""
        return self.slope - self.matrix @ (x - self.centre)

    def without(self, positions: slice, put: int) -> Quadratic:
        """The same term where `put` parameters, of which it says nothing, stand in place of others of which it says nothing."""
        keep = [*range(positions.start), *range(positions.stop, self.centre.size)]
        size = len(keep) + put
        room = [*range(positions.start), *range(positions.start + put, size)]
        centre, slope, matrix = np.zeros(size), np.zeros(size), np.zeros((size, size))
        centre[room], slope[room] = self.centre[keep], self.slope[keep]
        matrix[np.ix_(room, room)] = self.matrix[np.ix_(keep, keep)]
        return Quadratic(centre, slope, matrix)


@dataclass(frozen=True)
class Settings:
    """What a likelihood is told besides the problem.

    Attributes:
        groups: for each of the K experts which discount is theirs; by default 0, …, K−1. Equal numbers share a discount.
        discounts: known discounts `(K,)`, NaN where they are free; None where all are.
        temperature_groups: for each expert which temperature is theirs, as in `groups`.
        temperatures: known temperatures `(K,)`, NaN where they are free; None stands for 1 everywhere.
        reward: known reward parameters `(d,)`; None where they are free.
    """

    groups: tuple[int, ...] | None = None
    discounts: Floats | None = None
    temperature_groups: tuple[int, ...] | None = None
    temperatures: Floats | None = None
    reward: Floats | None = None


class Likelihood:
    """The log-likelihood of a problem's demonstrations as a function of `x = (θ, γ, log λ)`.

    x has d reward parameters, one discount for each group, and one log-temperature for each expert. What is known keeps its
    value: `fixed` marks it.

    Attributes:
        lower, upper: bounds `(p,)` of the parameters.
        fixed: mask `(p,)` of what is known.
        penalty: the quadratic term of the objective; None for none.
        ridge: the weights ρ `(d,)`.
    """

    #: How many numbers say how far ahead an expert looks: the discount alone.
    n_coordinates = 1

    def __init__(
        self,
        problem: Problem,
        settings: Settings | None = None,
        penalty: Quadratic | None = None,
        ridge: Floats | float = 0.0,
    ) -> None:
        self.problem = problem
        self.settings = settings or Settings()
        self.penalty = penalty
        self.ridge: Floats = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (problem.n_parameters,))
        self.batches = tuple(_batches(problem, self.settings.reward is None))
        self.decisions = float(sum(batch.visits.sum() for batch in self.batches))
        self._lay_out()

    def _lay_out(self) -> None:
        """Where each parameter stands in x, what is known of it, and its bounds."""
        self.groups = _numbers(self.settings.groups, self.problem.n_experts)
        self.temperature_groups = _numbers(self.settings.temperature_groups, self.problem.n_experts)
        self.n_reward = self.problem.n_parameters
        self.n_discounts = (int(self.groups.max()) + 1) * self.n_coordinates
        self.n_temperatures = int(self.temperature_groups.max()) + 1
        self.known = self._known()
        self.fixed = ~np.isnan(self.known)
        self.lower, self.upper = self._bounds()

    @property
    def size(self) -> int:
        """p, the number of parameters, known ones included."""
        return self.n_reward + self.n_discounts + self.n_temperatures

    @property
    def discount_slice(self) -> slice:
        """Where the discounts stand in x."""
        return slice(self.n_reward, self.n_reward + self.n_discounts)

    @property
    def temperature_slice(self) -> slice:
        """Where the log-temperatures stand in x."""
        return slice(self.n_reward + self.n_discounts, self.size)

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

    def pack(self, reward: Floats, discounts: Floats, temperatures: Floats | None = None) -> Floats:
        """x from a reward, one discount and one temperature for each group, clipped to the bounds; what is known stays.

        Where the scale is free, temperatures are divided by their geometric mean, and the reward with them.
        """
        heat = np.ones(self.n_temperatures) if temperatures is None else np.asarray(temperatures, dtype=np.float64)
        scale = float(np.exp(np.log(heat).mean())) if self.scale_is_free else 1.0
        x = np.concatenate([reward / scale, discounts, np.log(heat / scale)])
        packed: Floats = np.clip(np.where(self.fixed, self.known, x), self.lower, self.upper)
        return packed

    def at(self, x: Floats, near: Point | None = None) -> Point | None:
        """The model at x, its plans started from those of a `near` point; None where a soft value is infinite."""
        plans = []
        theta, gamma, lam = self.reward(x), self.discounts(x), self.temperatures(x)
        for i, batch in enumerate(self.batches):
            start = None if near is None else near.plans[i].values
            plan = _plan(batch, batch.reward(theta), gamma[batch.owners], lam[batch.owners], start)
            if plan is None:
                return None
            plans.append(plan)
        value = sum(float((b.counts * p.finite_log).sum()) for b, p in zip(self.batches, plans, strict=True))
        objective = value - 0.5 * float(self.ridge @ theta**2) + (0.0 if self.penalty is None else self.penalty(x))
        return Point(self, x, tuple(plans), value, objective)

    def of_experts(self, experts: Sequence[int], penalty: Quadratic | None = None) -> Likelihood:
        """The likelihood of some experts alone, in the problem's order, with the same knowledge and another quadratic term."""
        members = sorted(experts)
        entries = [i for i, owner in enumerate(self.problem.owner) if owner in members]
        told = self.settings
        part = Settings(
            groups=_renumbered(self.groups[members]),
            discounts=None if told.discounts is None else told.discounts[members],
            temperature_groups=_renumbered(self.temperature_groups[members]),
            temperatures=None if told.temperatures is None else told.temperatures[members],
            reward=told.reward,
        )
        return Likelihood(self.problem.with_experts(self.problem.experts[i] for i in entries), part, penalty)

    def with_counts(self, counts: Sequence[Floats]) -> Self:
        """The same likelihood of other decisions: counts `(S,A)` for each of the problem's experts and tasks."""
        experts = (replace(expert, counts=c) for expert, c in zip(self.problem.experts, counts, strict=True))
        changed = copy.copy(self)
        changed.problem = self.problem.with_experts(experts)
        changed.batches = tuple(_recounted(batch, [counts[i] for i in batch.positions]) for batch in self.batches)
        changed.decisions = float(sum(batch.visits.sum() for batch in changed.batches))
        return changed

    def holding(self, penalty: Quadratic | None = None, ridge: Floats | float = 0.0) -> Self:
        """The same likelihood with other penalties."""
        changed = copy.copy(self)
        changed.penalty = penalty
        changed.ridge = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (self.n_reward,))
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
        k, told = self.problem.n_experts, self.settings
        if told.reward is not None:
            known[: self.n_reward] = told.reward
        if told.discounts is not None:
            known[self.discount_slice] = _agreed(told.discounts, self.groups)
        temperatures = np.ones(k) if told.temperatures is None else told.temperatures
        known[self.temperature_slice] = np.log(_agreed(temperatures, self.temperature_groups))
        return known

    def _bounds(self) -> tuple[Floats, Floats]:
        endless = any(batch.mdp.never_ends().any() for batch in self.batches)
        d, heat = self.n_reward, np.full(self.n_temperatures, LOG_TEMPERATURE_BOUND)
        lower = np.concatenate([np.full(d, -np.inf), np.zeros(self.n_discounts), -heat])
        top = ENDLESS_DISCOUNT if endless else 1.0
        upper = np.concatenate([np.full(d, np.inf), np.full(self.n_discounts, top), heat])
        return np.where(self.fixed, self.known, lower), np.where(self.fixed, self.known, upper)


@dataclass(frozen=True, eq=False)
class Plans:
    """The soft plans of persons in one task: values `(S,n)`, `log π` `(A,S,n)`, discounts and temperatures `(n,)`."""

    values: Floats
    log: Floats
    gamma: Floats
    lam: Floats

    @cached_property
    def policy(self) -> Floats:
        """π `(A,S,n)`."""
        return np.exp(self.log)

    @cached_property
    def finite_log(self) -> Floats:
        """`log π` with 0 in place of −inf: actions that cannot be taken have no counts, and 0·(−inf) must not be NaN."""
        return np.where(np.isfinite(self.log), self.log, 0.0)

    @cached_property
    def entropy(self) -> Floats:
        """The entropy of the policy in each state `(S,n)`."""
        total: Floats = -(self.policy * self.finite_log).sum(axis=0)
        return total


@dataclass(frozen=True, eq=False)
class Point:
    """The model at one x: `value` is the log-likelihood, `objective` what is maximised."""

    likelihood: Likelihood
    x: Floats
    plans: tuple[Plans, ...]
    value: float
    objective: float

    @cached_property
    def gradient(self) -> Floats:
        """The gradient `(p,)` of the objective, by one adjoint solve for each expert."""
        model = self.likelihood
        total = self.pull_back([batch.counts for batch in model.batches])
        total[: model.n_reward] -= model.ridge * model.reward(self.x)
        return total if model.penalty is None else total + model.penalty.gradient(self.x)

    def policies(self) -> list[Floats]:
        """The policy `(S,A)` of each of the problem's experts and tasks."""
        found: dict[int, Floats] = {}
        for batch, plan in zip(self.likelihood.batches, self.plans, strict=True):
            found |= {int(place): plan.policy[:, :, i].T for i, place in enumerate(batch.positions)}
        return [found[i] for i in range(len(found))]

    @cached_property
    def resolvents(self) -> tuple[Resolvents, ...]:
        """`I − γP_π` of each batch."""
        return tuple(b.engine.resolvents(p.policy, p.gamma) for b, p in zip(self.likelihood.batches, self.plans, strict=True))

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """`Σ y(s,a) d log π(a|s)` `(p,)` for weights y `(A,S,n)` of each batch: the gradient where they are the counts."""
        model = self.likelihood
        total = np.zeros(model.size)
        for batch, plan, solver, y in zip(model.batches, self.plans, self.resolvents, weights, strict=True):
            moved, flow = reward_pull_back(batch, plan, solver, y)
            total[: model.n_reward] += batch.features.matrix.T @ moved.sum(axis=2).ravel()
            np.add.at(total, model.n_reward + model.groups[batch.owners], (moved * next_values(batch, plan)).sum(axis=(0, 1)))
            direct = (y.sum(axis=0) * plan.entropy).sum(axis=0) + (y * plan.finite_log).sum(axis=(0, 1))
            heat = plan.lam * (flow * plan.entropy).sum(axis=0) - direct
            np.add.at(total, model.temperature_slice.start + model.temperature_groups[batch.owners], heat)
        return total

    @cached_property
    def information(self) -> Floats:
        """The Fisher information `(p,p)` of the decisions, given the states they were made in; dense, for moderate p."""
        total = np.zeros((self.likelihood.size, self.likelihood.size))
        for columns, block in self.blocks():
            total[np.ix_(columns, columns)] += block
        return total

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """For each expert and task the positions in x on which the choices depend, and their Fisher information `(q,q)`."""
        for batch, plan, solver in zip(self.likelihood.batches, self.plans, self.resolvents, strict=True):
            rows, scores = score_rows(batch, plan, solver)
            weights = (batch.visits * plan.policy).reshape(-1, batch.owners.size)[rows]
            weighted = (scores * np.sqrt(weights)[:, :, None]).transpose(1, 0, 2)
            yield from zip(self.columns(batch), weighted.transpose(0, 2, 1) @ weighted, strict=True)

    def columns(self, batch: Persons) -> list[Ints]:
        """For each person of a batch the positions in x on which their choices depend, as `score_rows` orders them."""
        model = self.likelihood
        first_heat = model.temperature_slice.start
        return [
            np.array([*batch.features.used, model.n_reward + model.groups[k], first_heat + model.temperature_groups[k]])
            for k in batch.owners
        ]


def reward_pull_back(batch: Persons, plan: Plans, solver: Resolvents, y: Floats) -> tuple[Floats, Floats]:
    """`Σ y d log π / dR` `(A,S,n)` for the immediate reward R, and the adjoint w `(S,n)`."""
    slack = (y - y.sum(axis=0) * plan.policy) / plan.lam
    n = batch.owners.size
    flow = solver.solve_transposed(plan.gamma * (batch.mdp.stacked.T @ slack.reshape(-1, n)))
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


def require_counts(expert: Expert) -> Floats:
    """The decision counts `(S,A)` of an expert; raises unless demonstrations were given."""
    if expert.counts is None:
        raise ValueError(f"expert {expert.name} must be given as demonstrations for a likelihood, received {expert.kind}")
    if not expert.counts.sum() > 0:
        raise ValueError(f"expert {expert.name} must have at least one decision, received none")
    return expert.counts


def _plan(batch: Persons, reward: Floats, gamma: Floats, lam: Floats, start: Floats | None) -> Plans | None:
    values = batch.engine.values(reward, gamma, lam, start)
    if values is None:
        return None
    a, s = batch.mdp.n_actions, batch.mdp.n_states
    closed = np.where(batch.mdp.available.T, 0.0, -np.inf)[:, :, None]
    q = reward.reshape(a, s, 1) + gamma * (batch.mdp.stacked @ values).reshape(a, s, -1) + closed
    return Plans(values, log_policies(q, lam)[0], gamma, lam)


def _numbers(groups: tuple[int, ...] | None, size: int) -> Ints:
    return np.arange(size) if groups is None else np.array(groups, dtype=np.int64)


def _agreed(values: Floats, groups: Ints) -> Floats:
    """The known value of each group; NaN where none is known, or where its members have different ones."""
    found = np.full(int(groups.max()) + 1, np.nan)
    for group in range(found.size):
        told = np.unique(values[(groups == group) & ~np.isnan(values)])
        if told.size == 1:
            found[group] = told[0]
    return found


def _renumbered(groups: Ints) -> tuple[int, ...]:
    """The same groups with the numbers 0, 1, … in order of appearance."""
    number = {g: i for i, g in enumerate(dict.fromkeys(groups.tolist()))}
    return tuple(number[g] for g in groups.tolist())


def _batches(problem: Problem, free: bool) -> list[Persons]:
    """The problem's experts by task, in batches that fit into memory."""
    tasks: dict[tuple[int, bytes], list[int]] = {}
    for i, expert in enumerate(problem.experts):
        tasks.setdefault((id(expert.mdp), _fingerprint(expert)), []).append(i)
    found = []
    for members in tasks.values():
        first = problem.experts[members[0]]
        features = Features(first.feature_matrix, first.mdp, free)
        engine = engine_for(first.mdp)
        rows = first.mdp.n_actions * first.mdp.n_states
        size = max(1, BATCH_NUMBERS // (rows * (features.used.size + 2)))
        for low in range(0, len(members), size):
            found.append(_batch(problem, members[low : low + size], engine, features))
    return found


def _fingerprint(expert: Expert) -> bytes:
    """Equal for experts with the same reward features and the same known reward, whatever object holds them."""
    parts = [] if expert.features is None else [expert.features.indptr, expert.features.indices, expert.features.data]
    parts += [] if expert.known_reward is None else [expert.known_reward]
    return b"|".join(np.ascontiguousarray(part).tobytes() for part in parts)


def _batch(problem: Problem, members: list[int], engine: Engine, features: Features) -> Persons:
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
    )


def _recounted(batch: Persons, counts: Sequence[Floats]) -> Persons:
    stacked = np.where(batch.mdp.terminal[None, :, None], 0.0, np.stack([c.T for c in counts], axis=2))
    return replace(batch, counts=stacked, visits=stacked.sum(axis=0))
