"""The likelihood of logged decisions, and its exact derivatives through the soft Bellman fixed point.

Expert k, with discount γ and temperature λ, is seen to take action a in state s `N(s,a)` times, `n(s) = Σ_a N(s,a)`. Under reward
parameters θ the log-likelihood of these choices, given the states in which they were made, is

    L = Σ_k Σ_{s,a} N(s,a) log π(a|s),   λ log π(a|s) = Q(s,a) − V(s),   Q = F θ + γ T V,   V(s) = λ log Σ_a exp(Q(s,a)/λ).

It is undiscounted: each decision counts once, whenever it was made. V solves a fixed-point equation (the nested fixed point of
Rust, 1987) and is differentiated through it. With `P = P_π`, `H` the entropy of π and `πF` the policy's average of F's rows,

    dV = (I − γP)^{-1} [πF dθ + P V dγ + H dλ],      dQ = F dθ + T V dγ + γ T dV,
    d log π(a|s) = (dQ(s,a) − dV(s))/λ − log π(a|s) dλ/λ.

*Backwards*: with `G = (N − nπ)/λ` and one adjoint solve `w = (I − γPᵀ)^{-1} γ TᵀG` an expert's gradient is `Fᵀ(G + π w)` in θ,
`⟨G, TV⟩ + w·PV` in γ and `w·H − Σ (nH + N log π)/λ` in λ; the cost does not depend on how many parameters there are.
*Forwards*: the rows ψ(s,a) of d log π give the Fisher information `Σ n(s) π(a|s) ψψᵀ`, one solve with a right-hand side for each
parameter that is not structurally zero.

Temperatures enter by their logarithms, the first expert's being 0: a common factor of λ and θ leaves every policy as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints
from multihorizon.experts import Expert
from multihorizon.planning.evaluation import policy_entropy
from multihorizon.planning.linear import Resolvent, policy_resolvent
from multihorizon.planning.soft_plan import SoftPlan, soft_plan
from multihorizon.problem import Problem

#: The largest discount tried where some state never ends and a discount of 1 has no finite values.
ENDLESS_DISCOUNT = 0.9999
#: Log-temperatures stay within ±5: beyond a factor of 148 a temperature is only a certain or a uniform policy.
LOG_TEMPERATURE_BOUND = 5.0
#: Up to this many numbers the features are kept as a dense array for averaging under a policy.
DENSE_FEATURES = 2_000_000


@dataclass(frozen=True, eq=False)
class Choices:
    """One expert's decisions in one task: counts `(S,A)`, and the rows a·S+s of actions that could be taken where some were.

    `moves` are these rows of T, `used` the columns of F that have entries at all.
    `discount` and `temperature` are positions in the parameter vector; −1 stands for a temperature fixed at 1.
    """

    expert: Expert
    counts: Floats
    visits: Floats
    rows: Ints
    states: Ints
    moves: Any
    used: Ints
    discount: int
    temperature: int

    @cached_property
    def design(self) -> Floats:
        """The rows of F, dense, in the columns `used`."""
        dense: Floats = sp.csr_array(self.expert.feature_matrix)[self.rows][:, self.used].toarray()
        return dense

    @cached_property
    def dense_features(self) -> Floats | None:
        """F as `(A,S,used)` where that is small, else None."""
        features, mdp = self.expert.feature_matrix, self.expert.mdp
        if features.shape[0] * self.used.size > DENSE_FEATURES:
            return None
        dense: Floats = features[:, self.used].toarray().reshape(mdp.n_actions, mdp.n_states, -1)
        return dense

    def mean_features(self, policy: Floats) -> Floats:
        """`πF = Σ_a π(a|s) F(s,a)` as a dense `(S,used)` array."""
        dense = self.dense_features
        if dense is not None:
            mean: Floats = np.einsum("sa,asj->sj", policy, dense)
            return mean
        n = self.expert.mdp.n_states
        total = np.zeros((n, self.used.size))
        for action, chosen in enumerate(policy.T):
            block = self.expert.feature_matrix[action * n : (action + 1) * n][:, self.used]
            total += (sp.diags_array(chosen) @ block).toarray()
        return total


class Likelihood:
    """The log-likelihood of a problem's demonstrations as a function of `x = (θ, γ, log λ)`.

    Args:
        problem: its experts must be given as demonstrations.
        per_expert_temperature: whether all experts but the first have a temperature of their own.
        ridge: weight of the penalty `ridge/2 ‖θ‖²` that is taken off.
        groups: for each of the K experts which discount is theirs; by default 0, …, K−1. Equal numbers share a discount.

    Attributes:
        lower, upper: bounds `(p,)` of the parameters.
    """

    def __init__(
        self,
        problem: Problem,
        per_expert_temperature: bool = False,
        ridge: float = 0.0,
        groups: Sequence[int] | None = None,
    ) -> None:
        self.problem = problem
        self.ridge = ridge
        self.per_expert_temperature = per_expert_temperature
        self.groups = tuple(range(problem.n_experts)) if groups is None else tuple(groups)
        self.n_reward = problem.n_parameters
        self.n_discounts = max(self.groups) + 1
        self.n_temperatures = problem.n_experts - 1 if per_expert_temperature else 0
        self.choices = tuple(self._choices(e, o) for e, o in zip(problem.experts, problem.owner, strict=True))
        self.decisions = float(sum(c.visits.sum() for c in self.choices))
        self.lower, self.upper = self._bounds()

    @property
    def size(self) -> int:
        """p, the number of parameters."""
        return self.n_reward + self.n_discounts + self.n_temperatures

    @cached_property
    def feature_sizes(self) -> Floats:
        """The largest entry of each feature over all experts, at least 1."""
        sizes = [abs(expert.feature_matrix).max(axis=0).toarray().ravel() for expert in self.problem.experts]
        largest: Floats = np.maximum(1.0, np.max(sizes, axis=0))
        return largest

    @property
    def discount_slice(self) -> slice:
        """Where the discounts stand in x."""
        return slice(self.n_reward, self.n_reward + self.n_discounts)

    def reward(self, x: Floats) -> Floats:
        """θ `(d,)`."""
        return x[: self.n_reward]

    def discounts(self, x: Floats) -> Floats:
        """Each expert's discount `(K,)`."""
        shared: Floats = x[self.discount_slice][list(self.groups)]
        return shared

    def temperatures(self, x: Floats) -> Floats:
        """Each expert's temperature `(K,)`."""
        free = np.exp(x[self.discount_slice.stop :])
        return np.array([1.0, *free]) if self.per_expert_temperature else np.ones(self.problem.n_experts)

    def pack(self, reward: Floats, discounts: Floats, temperatures: Floats | None = None) -> Floats:
        """x from a reward, one discount a group, and the experts' temperatures, clipped to the bounds.

        Temperatures relative to the first expert's count, and the reward is rescaled with them.
        """
        scale = 1.0 if temperatures is None else float(temperatures[0])
        free = np.zeros(0) if not self.per_expert_temperature else np.zeros(self.n_temperatures)
        if temperatures is not None and self.per_expert_temperature:
            free = np.log(temperatures[1:] / scale)
        packed: Floats = np.clip(np.concatenate([reward / scale, discounts, free]), self.lower, self.upper)
        return packed

    def at(self, x: Floats, near: Point | None = None) -> Point | None:
        """The model at x, its plans started from those of a `near` point; None where a soft value is infinite."""
        plans = []
        for i, choices in enumerate(self.choices):
            plan = self._plan(choices, x, None if near is None else near.plans[i].values)
            if plan is None:
                return None
            plans.append(plan)
        value = sum(float((c.counts * finite_log(p)).sum()) for c, p in zip(self.choices, plans, strict=True))
        theta = self.reward(x)
        return Point(self, x, tuple(plans), value, value - 0.5 * self.ridge * float(theta @ theta))

    def _plan(self, choices: Choices, x: Floats, start: Floats | None) -> SoftPlan | None:
        gamma, lam = self.settings(choices, x)
        if gamma == 1.0:
            # Where going on pays more than ending, Newton's method from a neighbour can find a fixed point that is not the value.
            start = None
        try:
            return soft_plan(choices.expert.mdp, choices.expert.expected_reward(self.reward(x)), gamma, lam, start)
        except ValueError:  # the soft values are infinite
            return None

    def settings(self, choices: Choices, x: Floats) -> tuple[float, float]:
        """The discount and the temperature of one expert at x."""
        lam = 1.0 if choices.temperature < 0 else float(np.exp(x[choices.temperature]))
        return float(x[choices.discount]), lam

    def _choices(self, expert: Expert, owner: int) -> Choices:
        counts = require_counts(expert)
        mdp = expert.mdp
        visits = np.where(mdp.terminal, 0.0, counts.sum(axis=1))
        rows = np.flatnonzero(((visits > 0)[:, None] & mdp.available).T.ravel())
        temperature = self.discount_slice.stop + owner - 1 if self.per_expert_temperature and owner > 0 else -1
        features = sp.csr_array(expert.feature_matrix)
        used = np.unique(features.indices).astype(np.int64)
        return Choices(
            expert=expert,
            counts=counts,
            visits=visits,
            rows=rows,
            states=rows % mdp.n_states,
            moves=mdp.stacked[rows],
            used=used,
            discount=self.n_reward + self.groups[owner],
            temperature=temperature,
        )

    def _bounds(self) -> tuple[Floats, Floats]:
        endless = any(c.expert.mdp.never_ends().any() for c in self.choices)
        lower = np.concatenate(
            [np.full(self.n_reward, -np.inf), np.zeros(self.n_discounts), np.full(self.n_temperatures, -LOG_TEMPERATURE_BOUND)]
        )
        top = ENDLESS_DISCOUNT if endless else 1.0
        upper = np.concatenate(
            [
                np.full(self.n_reward, np.inf),
                np.full(self.n_discounts, top),
                np.full(self.n_temperatures, LOG_TEMPERATURE_BOUND),
            ]
        )
        return lower, upper


@dataclass(frozen=True, eq=False)
class Point:
    """The model at one x: `value` is the log-likelihood, `objective` what is maximised, the ridge's penalty taken off."""

    likelihood: Likelihood
    x: Floats
    plans: tuple[SoftPlan, ...]
    value: float
    objective: float

    @cached_property
    def gradient(self) -> Floats:
        """The gradient `(p,)` of the objective, by one adjoint solve an expert."""
        total = self.pull_back([choices.counts for choices in self.likelihood.choices])
        total[: self.likelihood.n_reward] -= self.likelihood.ridge * self.likelihood.reward(self.x)
        return total

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """`Σ y(s,a) d log π(a|s)` `(p,)` for weights y `(S,A)` of each expert: the gradient where they are the counts."""
        total = np.zeros(self.likelihood.size)
        for choices, plan, solver, y in zip(self.likelihood.choices, self.plans, self.resolvents, weights, strict=True):
            self._add_pull_back(total, choices, plan, solver, y)
        return total

    @cached_property
    def resolvents(self) -> tuple[Resolvent, ...]:
        """`I − γP_π` of each expert, factorised once."""
        return tuple(
            policy_resolvent(c.expert.mdp, p.policy, self.likelihood.settings(c, self.x)[0])
            for c, p in zip(self.likelihood.choices, self.plans, strict=True)
        )

    def _add_pull_back(self, total: Floats, choices: Choices, plan: SoftPlan, solver: Resolvent, y: Floats) -> None:
        gamma, lam = self.likelihood.settings(choices, self.x)
        mdp, log = choices.expert.mdp, finite_log(plan)
        sums = y.sum(axis=1)
        slack = (y - sums[:, None] * plan.policy) / lam
        weights = np.where(mdp.terminal, 0.0, solver.solve(gamma * (mdp.stacked.T @ slack.T.ravel()), transpose=True))
        next_values = mdp.expect(plan.values)
        moved = slack + plan.policy * weights[:, None]
        total[: self.likelihood.n_reward] += choices.expert.feature_matrix.T @ moved.T.ravel()
        total[choices.discount] += float((moved * next_values).sum())
        if choices.temperature >= 0:
            entropy = policy_entropy(plan.policy)
            direct = float((sums * entropy).sum() + (y * log).sum()) / lam
            total[choices.temperature] += lam * (float(weights @ entropy) - direct)

    @cached_property
    def information(self) -> Floats:
        """The Fisher information `(p,p)` of the decisions, given the states they were made in; dense, for moderate p."""
        model = self.likelihood
        total = np.zeros((model.size, model.size))
        for choices, plan, solver in zip(model.choices, self.plans, self.resolvents, strict=True):
            columns, scores = self.scores(choices, plan, solver)
            weights = choices.visits[choices.states] * plan.policy.T.ravel()[choices.rows]
            scores *= np.sqrt(weights)[:, None]
            total[np.ix_(columns, columns)] += scores.T @ scores
        return total

    def scores(self, choices: Choices, plan: SoftPlan, solver: Resolvent) -> tuple[Ints, Floats]:
        """Columns of x on which the choices depend, and `d log π(a|s)` in them for each of the expert's rows."""
        gamma, lam = self.likelihood.settings(choices, self.x)
        mdp = choices.expert.mdp
        sources = [choices.mean_features(plan.policy), (solver.matrix @ plan.values)[:, None]]
        direct = [choices.design, (choices.moves @ plan.values)[:, None]]
        columns = [*choices.used.tolist(), choices.discount]
        if choices.temperature >= 0:
            sources.append(lam * np.where(mdp.terminal, 0.0, policy_entropy(plan.policy))[:, None])
            log = plan.log_policy.T.ravel()[choices.rows]
            direct.append(-(lam * log)[:, None])
            columns.append(choices.temperature)
        moved = solver.solve(np.hstack(sources))
        scores = np.hstack(direct)
        scores += gamma * (choices.moves @ moved)
        scores -= moved[choices.states]
        scores /= lam
        return np.array(columns, dtype=np.int64), scores


def require_counts(expert: Expert) -> Floats:
    """The decision counts `(S,A)` of an expert; raises unless demonstrations were given."""
    if expert.counts is None:
        raise ValueError(f"expert {expert.name} must be given as demonstrations for a likelihood, received {expert.kind}")
    if not expert.counts.sum() > 0:
        raise ValueError(f"expert {expert.name} must have at least one decision, received none")
    return expert.counts


def finite_log(plan: SoftPlan) -> Floats:
    """`log π` with 0 in place of −inf: actions that cannot be taken have no counts, and 0·(−inf) must not be NaN."""
    log = plan.log_policy
    return np.where(np.isfinite(log), log, 0.0)
