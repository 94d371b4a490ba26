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
from multihorizon.likelihood.parameters import Quadratic, Settings, group_numbers, known_of_groups, renumbered
from multihorizon.likelihood.persons import (
    Persons,
    Plans,
    next_values,
    persons_by_task,
    plan_together,
    recounted,
    reward_pull_back,
    score_rows,
)
from multihorizon.problem import Problem
from multihorizon.tolerances import ENDLESS_DISCOUNT

#: Log-temperatures stay within ±5: beyond a factor of 148 a temperature is only a certain or a uniform policy.
LOG_TEMPERATURE_BOUND = 5.0


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
    #: Whether `large.information_product` knows how choices depend on x.
    has_products = True

    def __init__(
        self, problem: Problem, settings: Settings | None = None, penalty: Quadratic | None = None, ridge: Floats | float = 0.0
    ) -> None:
        self.problem = problem
        self.settings = settings or Settings()
        self.penalty = penalty
        self.ridge: Floats = np.broadcast_to(np.asarray(ridge, dtype=np.float64), (problem.n_parameters,))
        self.batches = tuple(persons_by_task(problem, self.settings.reward is None))
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
            start, own = None if near is None else near.start(i), batch.owners
            plan = plan_together(batch, batch.reward(theta), gamma[own], lam[own], start)
            if plan is None:
                return None
            plans.append(plan)
        value = sum(float((b.counts * p.finite_log).sum()) for b, p in zip(self.batches, plans, strict=True))
        objective = value - 0.5 * float(self.ridge @ theta**2) + (0.0 if self.penalty is None else self.penalty(x))
        return Point(self, x, tuple(plans), value, objective)

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
        lower = np.concatenate([np.full(d, -np.inf), np.zeros(self.n_discounts), -heat])
        top = ENDLESS_DISCOUNT if endless else 1.0
        upper = np.concatenate([np.full(d, np.inf), np.full(self.n_discounts, top), heat])
        return np.where(self.fixed, self.known, lower), np.where(self.fixed, self.known, upper)


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

    def without_derivatives(self) -> Self:
        """The same point without what was derived from it, which takes far more memory and is derived again when asked for."""
        return replace(self, plans=tuple(replace(plan) for plan in self.plans))

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

    def start(self, i: int) -> Start:
        """Where the plans of one batch begin at a neighbouring point: with the solves of this one, if they have been made."""
        return Start(self.plans[i].values, self.resolvents[i] if "resolvents" in vars(self) else None)

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """`Σ y(s,a) d log π(a|s)` `(p,)` for weights y `(A,S,n)` of each batch: the gradient where they are the counts."""
        model = self.likelihood
        total = np.zeros(model.size)
        for batch, plan, solver, y in zip(model.batches, self.plans, self.resolvents, weights, strict=True):
            moved, flow = reward_pull_back(batch, plan, solver, y)
            total[: model.n_reward] += batch.features.transposed @ moved.sum(axis=2).ravel()
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
        for i, (batch, plan) in enumerate(zip(self.likelihood.batches, self.plans, strict=True)):
            rows, columns, scores = self.scores(i)
            weights = (batch.visits * plan.policy).reshape(-1, batch.owners.size)[rows]
            weighted = (scores * np.sqrt(weights)[:, :, None]).transpose(1, 0, 2)
            yield from zip(columns, weighted.transpose(0, 2, 1) @ weighted, strict=True)

    def scores(self, i: int) -> tuple[Ints, list[Ints], Floats]:
        """Of one batch, the rows of visited states, each person's places in x, and `d log π(a|s)` `(rows,n,q)` in them."""
        batch = self.likelihood.batches[i]
        rows, scores = score_rows(batch, self.plans[i], self.resolvents[i])
        return rows, self.columns(batch), scores

    def columns(self, batch: Persons) -> list[Ints]:
        """For each person of a batch the positions in x on which their choices depend, as `score_rows` orders them."""
        model = self.likelihood
        first_heat = model.temperature_slice.start
        return [
            np.array([*batch.features.used, model.n_reward + model.groups[k], first_heat + model.temperature_groups[k]])
            for k in batch.owners
        ]
