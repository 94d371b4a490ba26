"""The likelihood of logged decisions, and its exact derivatives through the soft Bellman fixed point.

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
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.likelihood.engine import Resolvents, Start
from multihorizon.likelihood.logged_moves import LoggedMoves, logged_moves
from multihorizon.likelihood.parameters import Quadratic, Settings, group_numbers, known_of_groups, renumbered
from multihorizon.likelihood.persons import (
    Persons,
    Plans,
    next_values,
    persons_by_task,
    plan_together,
    recounted,
    reward_pull_back,
    reward_rows,
    score_rows,
)
from multihorizon.mdp import MDP
from multihorizon.problem import Problem
from multihorizon.tolerances import ENDLESS_DISCOUNT, TINY

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
