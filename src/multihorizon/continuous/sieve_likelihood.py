"""The likelihood of decisions in sampled states, and its exact derivatives through the projected values.

    L = Σ_k Σ_i log π_k(a_i|s_i),   λ_k log π_k(a|s) = Q_k(s,a) − V_k(s),   Q_k(s,a) = X_a(s) (C_a θ + γ_k E_a v_k),

with v_k from `values.py`. x = (θ, γ, log λ); bounds, groups, penalties and climbs are those of `likelihood.Likelihood`.
*Backwards*: with `G = (N − π)/λ` the weights on the coefficients of action a are `X_aᵀ G_a`; they go to θ and γ directly, and
to v and from there through one adjoint solve per expert. *Forwards*: the rows of d log π give the Fisher information.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.continuous.design import Decisions, Design
from multihorizon.continuous.information import project
from multihorizon.continuous.sampled import SampledProblem
from multihorizon.continuous.values import SampledPlan, coefficient_slopes, plan_expert, pull_back_values
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.parameters import Quadratic, Settings

#: The largest discount that is tried: logged steps alone do not show that a task must end.
LARGEST_DISCOUNT = 0.999


class SieveModel(Likelihood):
    """The log-likelihood of sampled decisions as a function of `x = (θ, γ, log λ)`."""

    problem: SampledProblem
    has_products = False

    def __init__(
        self,
        problem: SampledProblem,
        design: Design,
        settings: Settings | None = None,
        strength: float = 0.0,
        tied: Quadratic | None = None,
    ) -> None:
        self.problem = problem
        self.design = design
        self.settings = settings or Settings()
        self.strength = strength
        self.ridge = np.zeros(problem.n_parameters)
        self.batches: Any = design.decisions
        self.decisions = float(sum(batch.visits.sum() for batch in design.decisions))
        self._lay_out()
        self.tied = tied
        self.penalty = self._with_roughness(tied)

    def holding(self, penalty: Quadratic | None = None, ridge: Floats | float = 0.0) -> Self:
        """The same likelihood with another quadratic term besides the penalty on roughness; a ridge is not used here."""
        changed = copy.copy(self)
        changed.tied = penalty
        changed.penalty = self._with_roughness(penalty)
        return changed

    def of_strength(self, strength: float) -> Self:
        """The same likelihood with another weight of the penalty on roughness."""
        changed = copy.copy(self)
        changed.strength = strength
        return changed.holding(self.tied)

    @property
    def rough_matrix(self) -> Floats:
        """The curvature `(p,p)` of the penalty on roughness."""
        matrix = np.zeros((self.size, self.size))
        matrix[: self.n_reward, : self.n_reward] = self.strength * self.design.roughness
        return matrix

    def _with_roughness(self, other: Quadratic | None) -> Quadratic:
        zeros = np.zeros(self.size)
        if other is None:
            return Quadratic(zeros, zeros, self.rough_matrix)
        return Quadratic(other.centre, other.slope - self.rough_matrix @ other.centre, other.matrix + self.rough_matrix)

    @property
    def scale_is_free(self) -> bool:
        """Whether a common factor of reward and temperatures is open: no temperature is known."""
        return not self.fixed[self.temperature_slice].any()

    @property
    def feature_sizes(self) -> Floats:
        """1 for every function: a basis function is at most about 1."""
        return np.ones(self.n_reward)

    def _bounds(self) -> tuple[Floats, Floats]:
        n, k = self.n_reward, self.n_discounts
        lower = np.concatenate([np.full(n, -np.inf), np.zeros(k), np.full(self.n_temperatures, -5.0)])
        upper = np.concatenate([np.full(n, np.inf), np.full(k, LARGEST_DISCOUNT), np.full(self.n_temperatures, 5.0)])
        return np.where(self.fixed, self.known, lower), np.where(self.fixed, self.known, upper)

    def at(self, x: Floats, near: Point | None = None) -> SievePoint | None:
        """The model at x, its plans started from those of a `near` point; None where values are not finite."""
        plans = []
        theta, gamma, lam = self.reward(x), self.discounts(x), self.temperatures(x)
        for k, decisions in enumerate(self.design.decisions):
            start = near.plans[k].values if isinstance(near, SievePoint) else None
            plan = plan_expert(self.design, decisions, theta, float(gamma[k]), float(lam[k]), start)
            if plan is None and start is not None:
                plan = plan_expert(self.design, decisions, theta, float(gamma[k]), float(lam[k]), None)
            if plan is None:
                return None
            plans.append(plan)
        value = sum(float((b.counts * p.finite_log).sum()) for b, p in zip(self.design.decisions, plans, strict=True))
        objective = value + (0.0 if self.penalty is None else self.penalty(x))
        return SievePoint(self, x, tuple(plans), value, objective)

    def places(self, expert: int) -> Ints:
        """The positions in x on which an expert's choices depend: θ, their discount, and their log-temperature."""
        heat = self.temperature_slice.start + self.temperature_groups[expert]
        return np.array([*range(self.n_reward), self.n_reward + self.groups[expert], heat])


@dataclass(frozen=True, eq=False)
class SievePoint(Point):
    """The model at one x, with derivatives through the projected values."""

    likelihood: SieveModel
    plans: tuple[SampledPlan, ...]  # type: ignore[assignment]

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """`Σ y d log π(a|s)` `(p,)` for weights y `(A,n)` of each expert's decisions."""
        model, design = self.likelihood, self.likelihood.design
        total = np.zeros(model.size)
        for k, (batch, plan, y) in enumerate(zip(design.decisions, self.plans, weights, strict=True)):
            on_q = (y - y.sum(axis=0) * plan.policy) / plan.lam
            loads = _summed(batch, on_q)
            on_values = np.einsum("ap,apf->f", loads, design.stage.going_on, optimize=True)
            theta, discount, heat, _ = pull_back_values(design, plan, plan.gamma * on_values)
            theta = theta + np.einsum("ap,apf->f", loads, design.stage.paid, optimize=True)
            direct = -float((y * plan.finite_log).sum() + y.sum(axis=0) @ plan.entropy)
            total[model.places(k)] += np.array([*theta, discount + float(on_values @ plan.values), heat + direct])
        return total

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """For each expert the positions in x on which the choices depend, and their Fisher information `(q,q)`."""
        for k, plan in enumerate(self.plans):
            slopes = coefficient_slopes(self.likelihood.design, plan) / plan.lam
            surprise = _surprise(plan)
            block = np.einsum("apq,apr->qr", slopes, self.loads(k, slopes), optimize=True)
            block[-1] += np.einsum("apq,ap->q", slopes, _summed(self.likelihood.design.decisions[k], surprise), optimize=True)
            block[-1, -1] += float((surprise * -(plan.finite_log + plan.entropy)).sum())
            yield self.likelihood.places(k), block

    def loads(self, expert: int, slopes: Floats) -> Floats:
        """`λ Σ_i Σ_b π_b (d log π_b/dc_a) (d log π_b/dx)` `(A,p,q)` for derivatives `(A,p,q)` of the coefficients c of Q/λ."""
        plan, batch = self.plans[expert], self.likelihood.design.decisions[expert]
        found = project(batch, plan.policy, slopes)
        found[:, :, -1] += _summed(batch, _surprise(plan))
        return found


def _surprise(plan: SampledPlan) -> Floats:
    """`π_a` times the direct derivative of `log π_a` by log λ, `−(log π_a + entropy)`, at each decision, `(A,n)`."""
    found: Floats = -plan.policy * (plan.finite_log + plan.entropy)
    return found


def _summed(decisions: Decisions, weights: Floats) -> Floats:
    """`Σ_i X_a(s_i)ᵀ y_a` `(A,p)` for weights y `(A,n)`."""
    return np.stack([row.T @ y for row, y in zip(decisions.rows, weights, strict=True)])
