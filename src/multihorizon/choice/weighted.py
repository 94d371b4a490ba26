"""The likelihood of decisions for any family of look-ahead weights, and its exact derivatives.

As in `likelihood.py`, `L = Σ_k Σ N(s,a) log π(a|s)`, but each person plans with the step discounts ρ of their family
(`lookahead.py`) by the recursion of `planning.weighted_plan`. It takes H backups and is differentiated as it stands.
With π_t the choices planned for t steps from now, H_t their entropy and P_t = Σ_a π_t T,

    dV_t = π_t F dθ + ρ_{t+1} P_t dV_{t+1} + P_t V_{t+1} dρ_{t+1} + H_t dλ,
    d log π = (F dθ + ρ_1 T dV_1 + T V_1 dρ_1 − dV_0)/λ − log π dλ/λ,

and dρ follows from the coordinates of the family by the chain rule.
*Backwards*: with `G = (N − nπ)/λ` the adjoints are `w_1 = ρ_1 TᵀG` and `w_{t+1} = ρ_{t+1} Tᵀ(π_t w_t)`. The gradient is
`Fᵀ(G + Σ π_t w_t)` in θ, `⟨G, TV_1⟩` in ρ_1, `⟨π_t w_t, TV_{t+1}⟩` in ρ_{t+1}, and `Σ w_t·H_t − Σ (nH_0 + N log π)/λ` in λ.
*Forwards*: rows of d log π give the Fisher information.

x = (θ, coordinates of each group's look-ahead, log λ). Climbs, penalties and standard errors are those of `Likelihood`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.choice.parameters import Quadratic, Settings
from multihorizon.choice.tabular import DENSE_REWARDS, MOST_LEVELS, Likelihood, Persons, Plans, Point, require_counts
from multihorizon.lookahead import Depth, Exponential, Lookahead
from multihorizon.mdp import MDP
from multihorizon.planning.plan import steps_left, weighted_plan
from multihorizon.planning.soft_plan import INFINITE
from multihorizon.problem import Problem


@dataclass(frozen=True, eq=False)
class WeightedPlans(Plans):
    """Plans of persons in one task, for now and for each later step.

    Attributes:
        later_values: V_t `(H+1,S,n)`; the first is `values`.
        later_log: `log π_t` `(H,A,S,n)`; the first is `log`.
        step_discounts: ρ `(H−1,n)`.
        slopes: derivatives of ρ by the coordinates `(H−1,n,m)`.
    """

    later_values: Floats
    later_log: Floats
    step_discounts: Floats
    slopes: Floats

    @cached_property
    def choices(self) -> Floats:
        """π_t `(H,A,S,n)`."""
        return np.exp(self.later_log)

    @cached_property
    def entropies(self) -> Floats:
        """The entropy of π_t in each state `(H,S,n)`."""
        total: Floats = -(self.choices * np.where(np.isfinite(self.later_log), self.later_log, 0.0)).sum(axis=1)
        return total


class WeightedLikelihood(Likelihood):
    """The log-likelihood as a function of `x = (θ, coordinates of the look-ahead, log λ)`.

    Attributes:
        family: the family of look-ahead weights.
        steps: H, the most steps that anyone could look ahead from a state in which they decided.
        person_steps: the same for each of the K experts.
        n_coordinates: m, how many coordinates a person has.
    """

    has_products = False

    def __init__(
        self,
        problem: Problem,
        family: Lookahead,
        settings: Settings | None = None,
        penalty: Quadratic | None = None,
        ridge: Floats | float = 0.0,
    ) -> None:
        self.family = family
        super().__init__(problem, settings, penalty, ridge)

    def _lay_out(self) -> None:
        self.person_steps = person_steps(self.problem)
        self.steps = int(self.person_steps.max())
        self.n_coordinates = len(self.family.parameters(self.steps))
        super()._lay_out()

    @property
    def n_groups(self) -> int:
        """How many groups of experts share their look-ahead; by default each expert is one."""
        return int(self.groups.max()) + 1

    def coordinates(self, x: Floats) -> Floats:
        """Each expert's coordinates `(K,m)`."""
        shared: Floats = x[self.discount_slice].reshape(self.n_groups, self.n_coordinates)[self.groups]
        return shared

    def discounts(self, x: Floats) -> Floats:
        """Each expert's discount where the family has one, NaN elsewhere."""
        own = self.coordinates(x)
        return own[:, 0].copy() if isinstance(self.family, Exponential) else np.full(len(own), np.nan)

    def columns_of(self, expert: int) -> Ints:
        """The positions in x of an expert's coordinates `(m,)`."""
        first = self.n_reward + int(self.groups[expert]) * self.n_coordinates
        return np.arange(first, first + self.n_coordinates)

    def at(self, x: Floats, near: Point | None = None) -> WeightedPoint | None:
        """The model at x; None where a value is infinite. The recursion needs no start."""
        theta, lam = self.reward(x), self.temperatures(x)
        rho, slopes = self.family.step_discounts(self.coordinates(x), self.steps)
        plans = []
        for batch in self.batches:
            who = batch.owners
            values, log = weighted_plan(batch.mdp, batch.reward(theta), rho[:, who], lam[who])
            if not np.abs(values).max(initial=0.0) < INFINITE:
                return None
            plans.append(WeightedPlans(values[0], log[0], rho[:1, who], lam[who], values, log, rho[:, who], slopes[:, who]))
        value = sum(float((b.counts * p.finite_log).sum()) for b, p in zip(self.batches, plans, strict=True))
        objective = value - 0.5 * float(self.ridge @ theta**2) + (0.0 if self.penalty is None else self.penalty(x))
        return WeightedPoint(self, x, tuple(plans), value, objective)

    def _bounds(self) -> tuple[Floats, Floats]:
        lower, upper = super()._bounds()
        if isinstance(self.family, Depth):
            lower[self.discount_slice], upper[self.discount_slice] = 1.0, float(self.steps)
        return lower, upper


@dataclass(frozen=True, eq=False)
class WeightedPoint(Point):
    """The model at one x, with derivatives through the recursion."""

    likelihood: WeightedLikelihood
    plans: tuple[WeightedPlans, ...]

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """`Σ y(s,a) d log π(a|s)` `(p,)` for weights y `(A,S,n)` of each batch."""
        model = self.likelihood
        total = np.zeros(model.size)
        for batch, plan, y in zip(model.batches, self.plans, weights, strict=True):
            moved, rho_slopes, heat = _pulled_back(batch, plan, y)
            total[: model.n_reward] += batch.features.matrix.T @ moved.sum(axis=2).ravel()
            own = np.einsum("tn,tnm->nm", rho_slopes, plan.slopes)
            np.add.at(total, np.array([model.columns_of(k) for k in batch.owners]), own)
            np.add.at(total, model.temperature_slice.start + model.temperature_groups[batch.owners], heat)
        return total

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """For each expert and task the positions in x on which the choices depend, and their Fisher information `(q,q)`."""
        for batch, plan in zip(self.likelihood.batches, self.plans, strict=True):
            rows, scores = weighted_score_rows(batch, plan)
            weights = (batch.visits * plan.policy).reshape(-1, batch.owners.size)[rows]
            weighted = (scores * np.sqrt(weights)[:, :, None]).transpose(1, 0, 2)
            yield from zip(self.columns(batch), weighted.transpose(0, 2, 1) @ weighted, strict=True)

    def columns(self, batch: Persons) -> list[Ints]:
        """For each person of a batch the positions in x on which their choices depend, as `weighted_score_rows` orders them."""
        model = self.likelihood
        heats = model.temperature_slice.start + model.temperature_groups
        return [np.array([*batch.features.used, *model.columns_of(k), heats[k]]) for k in batch.owners]


def require_lookahead(problem: Problem) -> None:
    """Raise, before any work, where a look-ahead that is not exponential cannot be fitted.

    Raises:
        ValueError: for a task in which a state can come again, a very long one, or more rewards than a dense matrix has room for.
    """
    person_steps(problem)
    if problem.n_parameters > DENSE_REWARDS:
        raise ValueError(
            f"a look-ahead that is not exponential needs at most {DENSE_REWARDS} rewards, received {problem.n_parameters}: "
            "tie the rewards of similar states together with features"
        )


def person_steps(problem: Problem) -> Ints:
    """The most steps `(K,)` that each expert could look ahead from a state in which they decided.

    Raises:
        ValueError: for a task in which a state can come again, or a very long one.
    """
    found = np.ones(problem.n_experts, dtype=np.int64)
    left: dict[int, Ints] = {}
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        if id(expert.mdp) not in left:
            left[id(expert.mdp)] = _require_end(expert.mdp)
        visited = require_counts(expert).sum(axis=1) > 0
        found[owner] = max(found[owner], left[id(expert.mdp)][visited].max(initial=1))
    return found


def _require_end(mdp: MDP) -> Ints:
    left = steps_left(mdp)
    if left is None:
        raise ValueError(
            "a look-ahead that is not exponential needs a task with a limited number of steps, "
            "received one in which a state can come again: let states say how many steps are left"
        )
    if left.max() > MOST_LEVELS:
        raise ValueError(
            f"a look-ahead that is not exponential needs a task of at most {MOST_LEVELS} steps, received {left.max()}"
        )
    return left


def _pulled_back(batch: Persons, plan: WeightedPlans, y: Floats) -> tuple[Floats, Floats, Floats]:
    """`Σ y d log π` by the immediate reward `(A,S,n)`, by ρ `(H−1,n)`, and by log λ `(n,)`."""
    shape, n = y.shape, y.shape[2]
    on_q = (y - y.sum(axis=0) * plan.policy) / plan.lam
    heat = -(y.sum(axis=0) * plan.entropy).sum(axis=0) - (y * plan.finite_log).sum(axis=(0, 1))
    moved, by_rho = on_q.copy(), np.zeros_like(plan.step_discounts)
    for t, rho in enumerate(plan.step_discounts):
        carried = batch.mdp.stacked.T @ on_q.reshape(-1, n)
        carried[batch.mdp.terminal] = 0.0
        by_rho[t] = (carried * plan.later_values[t + 1]).sum(axis=0)
        on_value = rho * carried
        heat += plan.lam * (on_value * plan.entropies[t + 1]).sum(axis=0)
        on_q = (plan.choices[t + 1] * on_value).reshape(shape)
        moved += on_q
    return moved, by_rho, heat


def weighted_score_rows(batch: Persons, plan: WeightedPlans) -> tuple[Ints, Floats]:
    """The rows of visited states, and `d log π(a|s)` `(rows,n,q)` there in θ's used columns, the coordinates and log λ."""
    rows, n = batch.visited_rows, batch.owners.size
    u, now = _value_slopes(batch, plan)
    scores = (batch.mdp.stacked[rows] @ u.reshape(batch.mdp.n_states, -1)).reshape(rows.size, n, -1)
    scores -= now[rows % batch.mdp.n_states]
    scores[:, :, : batch.features.used.size] += batch.features.rows(rows)[:, None, :]
    scores[:, :, -1] -= plan.lam * plan.finite_log.reshape(-1, n)[rows]
    return rows, scores / plan.lam[:, None]


def _value_slopes(batch: Persons, plan: WeightedPlans) -> tuple[Floats, Floats]:
    """The derivatives `(S,n,q)` of `ρ_1 V_1` and of V_0, by the recursion from the last step to now."""
    a, s, n = plan.log.shape
    q = batch.features.used.size + plan.slopes.shape[2] + 1
    u = np.zeros((s, n, q))
    for t in reversed(range(len(plan.choices))):
        after = u
        reached = (batch.mdp.stacked @ after.reshape(s, -1)).reshape(a, s, n, q)
        now = np.einsum("asn,asnq->snq", plan.choices[t], reached)
        now[:, :, : batch.features.used.size] += batch.features.averages(plan.choices[t])
        now[:, :, -1] += plan.lam * plan.entropies[t]
        now[batch.mdp.terminal] = 0.0
        if t:
            u = plan.step_discounts[t - 1][:, None] * now
            u[:, :, batch.features.used.size : -1] += plan.later_values[t][:, :, None] * plan.slopes[t - 1]
    return after, now
