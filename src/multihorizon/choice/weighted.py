"""The likelihood of decisions for any family of look-ahead weights, and its exact derivatives.

As in `model`, `L = Σ_k Σ N(s,a) log π(a|s)`, but each person plans with the step discounts ρ of their family (`lookahead`) by
the recursion of `weighted_plan`. It takes H backups and is differentiated as it stands.
With π_t the choices planned for t steps from now, H_t their entropy and P_t = Σ_a π_t T,

    dV_t = π_t F dθ + ρ_{t+1} P_t dV_{t+1} + P_t V_{t+1} dρ_{t+1} + H_t dλ,
    d log π = (F dθ + ρ_1 T dV_1 + T V_1 dρ_1 − dV_0)/λ − log π dλ/λ,

and dρ follows from the coordinates of the family by the chain rule.
*Backwards*: with `G = (N − nπ)/λ` the adjoints are `w_1 = ρ_1 TᵀG` and `w_{t+1} = ρ_{t+1} Tᵀ(π_t w_t)`. The gradient is
`Fᵀ(G + Σ π_t w_t)` in θ, `⟨G, TV_1⟩` in ρ_1, `⟨π_t w_t, TV_{t+1}⟩` in ρ_{t+1}, and `Σ w_t·H_t − Σ (nH_0 + N log π)/λ` in λ.
*Forwards*: rows of d log π give the Fisher information.

x = (θ, coordinates of each group's look-ahead, log λ).

Where a state can come again, nobody looks more than `FARTHEST` steps ahead: what comes later has no weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.choice.model import ChoicePoint, ListedModel, Quadratic
from multihorizon.choice.plans import MOST_LEVELS, Choices, Persons, persons_by_task
from multihorizon.choice.settings import Settings, with_known_reward
from multihorizon.horizon import Depth, Exponential, Lookahead
from multihorizon.mdp import MDP, refuse_durations, steps_left
from multihorizon.parallel import limits
from multihorizon.planning.plan import INFINITE, weighted_plan
from multihorizon.problem import Problem, require_counts

#: How many steps ahead anyone looks where a state can come again.
FARTHEST = 40


@dataclass(frozen=True, eq=False)
class WeightedPlans(Choices):
    """Plans of people in one task, for now and for each later step.

    Attributes:
        values: V_t `(H+1,S,n)`.
        log: `log π` `(A,S,n)`.
        later_log: `log π_t` `(H,A,S,n)`; the first is `log`.
        lam: temperatures `(n,)`.
        step_discounts: ρ `(H−1,n)`.
        slopes: derivatives of ρ by the coordinates `(H−1,n,m)`.
    """

    persons: Persons
    values: Floats
    log: Floats
    later_log: Floats
    lam: Floats
    step_discounts: Floats
    slopes: Floats

    @cached_property
    def choices(self) -> Floats:
        """Return π_t `(H,A,S,n)`."""
        return np.exp(self.later_log)

    @cached_property
    def entropies(self) -> Floats:
        """Return the entropy of π_t in each state `(H,S,n)`."""
        total: Floats = -(self.choices * np.where(np.isfinite(self.later_log), self.later_log, 0.0)).sum(axis=1)
        return total

    def pull_back(self, y: Floats) -> tuple[Floats, Floats, Floats]:
        """Return `Σ y d log π` by the immediate reward `(A,S,n)`, by ρ `(H−1,n)`, and by log λ `(n,)`."""
        mdp, n = self.persons.mdp, self.lam.size
        on_q = (y - y.sum(axis=0) * self.policy) / self.lam
        by_temperature = -(y.sum(axis=0) * self.entropy).sum(axis=0) - (y * self.finite_log).sum(axis=(0, 1))
        moved = on_q.copy()
        by_rho = np.zeros_like(self.step_discounts)
        for t, rho in enumerate(self.step_discounts):
            carried = self.persons.back @ on_q.reshape(-1, n)
            carried[mdp.terminal] = 0.0
            by_rho[t] = (carried * self.values[t + 1]).sum(axis=0)
            on_value = rho * carried
            by_temperature += self.lam * (on_value * self.entropies[t + 1]).sum(axis=0)
            on_q = (self.choices[t + 1] * on_value).reshape(y.shape)
            moved += on_q
        return moved, by_rho, by_temperature

    def score_rows(self) -> Floats:
        """Return `d log π(a|s)` `(rows,n,q)` at the rows of visited states, in θ's used columns, the coordinates and log λ.

        The recursion runs from the last step to now, with u the derivatives `(S,n,q)` of `ρ_t V_t`.
        """
        mdp, features, rows, (a, s, n) = self.persons.mdp, self.persons.features, self.persons.visited_rows, self.log.shape
        used = features.used.size
        q = used + self.slopes.shape[2] + 1
        u = np.zeros((s, n, q))
        for t in reversed(range(len(self.choices))):
            reached = (mdp.stacked @ u.reshape(s, -1)).reshape(a, s, n, q)
            now = np.einsum("asn,asnq->snq", self.choices[t], reached)
            now[:, :, :used] += features.averages(self.choices[t])
            now[:, :, -1] += self.lam * self.entropies[t]
            now[mdp.terminal] = 0.0
            if t:
                u = self.step_discounts[t - 1][:, None] * now
                u[:, :, used:-1] += self.values[t][:, :, None] * self.slopes[t - 1]
        scores: Floats = reached.reshape(a * s, n, q)[rows] - now[rows % s]
        scores[:, :, :used] += features.rows(rows)[:, None, :]
        scores[:, :, -1] -= self.lam * self.finite_log.reshape(-1, n)[rows]
        scores /= self.lam[:, None]
        return scores


def weighted_plans(persons: Persons, theta: Floats, lam: Floats, rho: Floats, slopes: Floats) -> WeightedPlans | None:
    """Return plans under temperatures `(K,)`, step discounts `(H−1,K)` and their slopes of all; None where a value is
    infinite.
    """
    who = persons.owners
    values, log = weighted_plan(persons.mdp, persons.reward(theta), rho[:, who], lam[who])
    if not (np.abs(values).max(axis=(0, 1), initial=0.0) < INFINITE * lam[who]).all():
        return None
    return WeightedPlans(persons, values, log[0], log, lam[who], rho[:, who], slopes[:, who])


@final
class WeightedLikelihood(ListedModel):
    """The log-likelihood as a function of `x = (θ, coordinates of the look-ahead, log λ)`.

    Attributes:
        family: the family of look-ahead weights.
        steps: H, the most steps that anyone could look ahead from a state in which they decided, or that anyone does.
        person_steps: the same for each of the K experts.
        n_coordinates: m, how many coordinates a person has.
    """

    def __init__(
        self,
        problem: Problem,
        family: Lookahead,
        settings: Settings | None = None,
        penalty: Quadratic | None = None,
        ridge: Floats | float = 0.0,
        steps: int | None = None,
    ) -> None:
        settings = settings or Settings()
        self.family = family
        self.problem = problem
        self.person_steps = person_steps(problem) if steps is None else np.full(problem.n_experts, steps)
        self.steps = int(self.person_steps.max())
        self.n_coordinates = len(family.parameters(self.steps))
        self.batches = persons_by_task(problem, settings.reward is None, {})
        bounds = (1.0, float(self.steps)) if isinstance(family, Depth) else (0.0, 1.0)
        super().__init__(problem, settings, bounds, penalty, ridge)

    @property
    def n_groups(self) -> int:
        """Return how many groups of experts share their look-ahead; by default each expert is one."""
        return int(self.groups.max()) + 1

    def coordinates(self, x: Floats) -> Floats:
        """Return each expert's coordinates `(K,m)`."""
        return x[self.discount_slice].reshape(self.n_groups, self.n_coordinates)[self.groups]

    def discounts(self, x: Floats) -> Floats:
        """Return each expert's discount where the family has one, NaN elsewhere."""
        coordinates = self.coordinates(x)
        return coordinates[:, 0].copy() if isinstance(self.family, Exponential) else np.full(len(coordinates), np.nan)

    def columns_of(self, expert: int) -> Ints:
        """Return the positions in x of an expert's coordinates `(m,)`."""
        first = self.n_reward + int(self.groups[expert]) * self.n_coordinates
        return np.arange(first, first + self.n_coordinates)

    def at(self, x: Floats, near: ChoicePoint | None = None) -> WeightedPoint | None:
        """Return the model at x; None where a value is infinite. The recursion needs no start."""
        theta = x[: self.n_reward]
        lam = self.temperatures(x)
        rho, slopes = self.family.step_discounts(self.coordinates(x), self.steps)
        plans = []
        for batch in self.batches:
            plan = weighted_plans(batch, theta, lam, rho, slopes)
            if plan is None:
                return None
            plans.append(plan)
        value = sum(float((plan.persons.counts * plan.finite_log).sum()) for plan in plans)
        return WeightedPoint(self, x, tuple(plans), value, value + self.beside(x))


@final
@dataclass(frozen=True, eq=False)
class WeightedPoint(ChoicePoint):
    """The model at one x, with derivatives through the recursion."""

    likelihood: WeightedLikelihood
    plans: tuple[WeightedPlans, ...]

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """Return `Σ y(s,a) d log π(a|s)` `(p,)` for weights y `(A,S,n)` of each batch."""
        model = self.likelihood
        total = np.zeros(model.size)
        for plan, y in zip(self.plans, weights, strict=True):
            moved, by_rho, by_temperature = plan.pull_back(y)
            owners, features = plan.persons.owners, plan.persons.features
            total[: model.n_reward] += features.transposed @ moved.sum(axis=2).ravel()
            along_slopes = np.einsum("tn,tnm->nm", by_rho, plan.slopes)
            np.add.at(total, np.array([model.columns_of(k) for k in owners]), along_slopes)
            np.add.at(total, model.temperature_slice.start + model.temperature_groups[owners], by_temperature)
        return total

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """Yield for each expert and task the positions in x on which the choices depend, and their Fisher information `(q,q)`."""
        model, first = self.likelihood, self.likelihood.temperature_slice.start
        for plan, expected in zip(self.plans, self.weights, strict=True):
            persons = plan.persons
            weights = expected.reshape(-1, persons.owners.size)[persons.visited_rows]
            weighted = (plan.score_rows() * np.sqrt(weights)[:, :, None]).transpose(1, 0, 2)
            for k, block in zip(persons.owners, weighted.transpose(0, 2, 1) @ weighted, strict=True):
                columns = [*persons.features.used, *model.columns_of(k), first + model.temperature_groups[k]]
                yield np.array(columns), block


def require_lookahead(problem: Problem, known_reward: Any = None) -> None:
    """Raise, before any work, where a look-ahead that is not exponential cannot be fitted.

    Raises:
        ValueError: for a very long task, or more rewards than a dense matrix has room for.
    """
    person_steps(problem)
    rewards = with_known_reward(problem, known_reward)[0].n_parameters
    if rewards > limits().dense_rewards:
        raise ValueError(
            f"a look-ahead that is not exponential needs at most {limits().dense_rewards} rewards, got {rewards}: "
            "tie the rewards of similar states together with features"
        )


def person_steps(problem: Problem) -> Ints:
    """Return the most steps `(K,)` that each expert could look ahead from a state in which they decided.

    Raises:
        ValueError: for a very long task.
    """
    most = np.ones(problem.n_experts, dtype=np.int64)
    left: dict[int, Ints] = {}
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        if id(expert.mdp) not in left:
            left[id(expert.mdp)] = steps_ahead(expert.mdp)
        visited = require_counts(expert).sum(axis=1) > 0
        most[owner] = max(most[owner], left[id(expert.mdp)][visited].max(initial=1))
    return most


def steps_ahead(mdp: MDP) -> Ints:
    """Return the most steps `(S,)` that anyone looks ahead in each state: those that are left; raises where they are many."""
    refuse_durations([mdp], "a look-ahead that is not exponential")
    ahead = steps_left(mdp)
    if ahead is None:
        return np.where(mdp.terminal, 0, FARTHEST)
    if ahead.max() > MOST_LEVELS:
        raise ValueError(f"a look-ahead that is not exponential needs a task of at most {MOST_LEVELS} steps, got {ahead.max()}")
    return ahead
