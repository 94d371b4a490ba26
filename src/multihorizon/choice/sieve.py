"""The sieve: choices in sampled states, whose rewards and values are combinations of basis functions.

    L = Σ_k Σ_i log π_k(a_i|s_i),   λ_k log π_k(a|s) = Q_k(s,a) − V_k(s),   Q_k(s,a) = X_a(s) (C_a θ + γ_k E_a v_k),

with C and E the first stage's coefficients of what is paid and what goes on, and X_a its rows (`basis.py`). The coefficients
v_k of expert k's values are the least-squares fit of `V_k(z) = λ log Σ_a exp(Q_k(z,a)/λ)` to the basis over the *value points*
z: distinct next states of the log, at most 4000 of them, chosen evenly by their distance from the centre, so that no order of
rows or columns matters.

*A plan* solves `v = H V`, H the projection on the basis, by Newton's method. The derivative of the right-hand side is
`γ H Σ_a π_a E_a`, so a step is one dense solve of the size of the basis. It ends when the equation holds to 1e-11 of the
values; it is given up after 60 steps, and where a value is not finite.

*Derivatives* are exact, through the projected values. x = (θ, γ, log λ). Backwards: with `G = (N − π)/λ` the weights on the
coefficients of action a are `X_aᵀ G_a`; they go to θ and γ directly, and to v and from there through one adjoint solve per
expert. Forwards: where the coefficients of Q have derivatives D `(A,p,q)`, the information is `Dᵀ W D` with
`W_ab = Σ_i X_a(s_i)ᵀ [π_a δ_ab − π_a π_b] X_b(s_i)`. Where all actions have the same sparse rows, the products of each row's
entries are laid out once, as one sparse matrix `(p²,n)`, and W is a product of it with the weights of the A(A+1)/2 pairs of
actions. Local functions make this many times faster than dense products. Elsewhere, and where W has more entries than there are
decisions to fill them, the rows of `X_a D_a` are formed and multiplied, block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, Self, final

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.choice.basis import Fitted, LeastSquares, Regressed, Smoothing, factorised, fit_basis, fit_outcomes, roughness
from multihorizon.choice.model import ChoiceModel, ChoicePoint, Choices, Quadratic, Settings
from multihorizon.data.steps import Steps
from multihorizon.planning.plan import log_policies
from multihorizon.problem import SampledProblem

#: The largest discount that is tried: logged steps alone do not show that a task must end.
LARGEST_DISCOUNT = 0.999


@dataclass(frozen=True, eq=False)
class LoggedDecisions:
    """One expert's decisions: X_a at each (A matrices `(n,p)`), the action taken `(n,)`, and what is available `(A,n)`.

    `foreseen` `(n,)` says whether the first stage knows what the action taken leads to.
    """

    rows: list[Sparse]
    action: Ints
    available: Bools
    foreseen: Bools

    @cached_property
    def counts(self) -> Floats:
        """1 for the action taken at each decision, 0 for others, `(A,n)`."""
        return np.asarray(self.action == np.arange(len(self.rows))[:, None], dtype=np.float64)

    @property
    def visits(self) -> Floats:
        """1 for each decision, `(n,)`."""
        return np.ones(self.action.size)

    @cached_property
    def chance(self) -> float:
        """The log-likelihood of the decisions if all available actions were equally likely."""
        return -float(np.log(self.available.sum(axis=0)).sum())

    def choices(self, coefficients: Floats, lam: float) -> Floats:
        """`log π` `(A,n)` from the coefficients `(A,p)` of Q."""
        q = np.stack([row @ c for row, c in zip(self.rows, coefficients, strict=True)])
        return soft_values(q, self.available, lam)[1]

    def predicted(self, coefficients: Floats, lam: float) -> Floats:
        """The log-probability `(n,)` of decisions that the first stage has not seen, from the coefficients `(A,p)` of Q.

        Where it is not known what an action leads to, nothing is predicted of it, and its probability is that of pure chance. The
        other actions share the rest. Otherwise a basis would seem to predict the better, the more actions it rules out.
        """
        log = self.choices(coefficients, lam)
        taken = log[self.action, np.arange(self.action.size)]
        rest = self.available.sum(axis=0) / len(log)
        scores: Floats = np.where(self.foreseen, taken + np.log(rest), -np.log(len(log)))
        return scores

    def summed(self, weights: Floats) -> Floats:
        """`Σ_i X_a(s_i)ᵀ y_a` `(A,p)` for weights y `(A,n)`."""
        return np.stack([row.T @ y for row, y in zip(self.rows, weights, strict=True)])

    def informed(self, policy: Floats, slopes: Floats) -> Floats:
        """`W D` `(A,p,q)` for derivatives D `(A,p,q)` and choices π `(A,n)`."""
        n_actions, p, width = slopes.shape
        if n_actions * p * p > self.action.size * width or self._products is None:
            total = np.zeros(slopes.shape)
            for start in range(0, self.action.size, 8192):  # blocks keep arrays small
                part = slice(start, start + 8192)
                raw = [row[part] @ slope for row, slope in zip(self.rows, slopes, strict=True)]
                mean = sum(p[:, None] * r for p, r in zip(policy[:, part], raw, strict=True))
                for a, (share, r) in enumerate(zip(policy[:, part], raw, strict=True)):
                    total[a] += self.rows[a][part].T @ (share[:, None] * (r - mean))
            return total
        pairs = list(combinations_with_replacement(range(n_actions), 2))
        weights = np.stack([policy[a] * ((a == b) - policy[b]) for a, b in pairs], axis=1)
        matrix = np.empty((n_actions, p, n_actions, p))
        for (a, b), upper in zip(pairs, (self._products @ weights).T.reshape(-1, p, p), strict=True):
            matrix[a, :, b] = matrix[b, :, a] = upper + upper.T - np.diag(np.diag(upper))
        flat: Floats = matrix.reshape(n_actions * p, -1) @ slopes.reshape(-1, width)
        return flat.reshape(slopes.shape)

    @cached_property
    def _products(self) -> Sparse | None:
        """The products of each row's entries, `(p²,n)`; None where actions have rows of their own, or rows are too full."""
        first = self.rows[0]
        widths = np.unique(np.diff(first.indptr))
        n, p = first.shape
        if any(row is not first for row in self.rows) or widths.size != 1:
            return None
        width = int(widths[0])
        i, j = np.triu_indices(width)
        # A sparse product costs about 2.5 dense ones; matrices of more than 5000 coefficients would not fit into memory well.
        if 2.5 * i.size * (len(self.rows) + 1) >= p * p or len(self.rows) * p > 5000:
            return None
        index, value = first.indices.reshape(n, width).astype(np.int64), first.data.reshape(n, width)
        order = np.argsort(index, axis=1)
        index, value = np.take_along_axis(index, order, 1), np.take_along_axis(value, order, 1)
        starts = np.arange(0, n * i.size + 1, i.size)
        cells = (index[:, i] * p + index[:, j]).ravel()
        return sp.csr_array(sp.csr_array(((value[:, i] * value[:, j]).ravel(), cells, starts), shape=(n, p * p)).T)


def soft_values(q: Floats, available: Bools, lam: float) -> tuple[Floats, Floats]:
    """V `(m,)` and log π `(A,m)` of action values `(A,m)`."""
    log, values = log_policies(np.where(available, q, -np.inf), np.asarray(lam))
    return values, log


@dataclass(frozen=True, eq=False)
class SieveData:
    """Everything that the likelihood needs of the data: the basis, the first stage, decisions, and the value points.

    Attributes:
        expected_paid: `E[φ(s')|z,a]` at the value points, `(A,m,f)`.
        expected_on: the part of it that goes on, `(A,m,f)`.
        projection: H `(f,m)` gives coefficients from values at the points.
        points_available: whether each action is available at each point, `(A,m)`.
        point_rows: X_a at the points.
        roughness: the matrix `(f,f)` of the penalty on the reward.
    """

    basis: Fitted
    stage: LeastSquares | Regressed
    decisions: tuple[LoggedDecisions, ...]
    expected_paid: Floats
    expected_on: Floats
    projection: Floats
    points_available: Bools
    point_rows: list[Sparse]
    roughness: Floats

    @classmethod
    def of(cls, steps: Steps, transformer: Any, regressor: Any = None, smoothing: Smoothing | None = None) -> SieveData:
        """Fit basis and first stage to the steps, and lay out their decisions; smoothing is chosen if it is not given."""
        basis = fit_basis(transformer, np.vstack([steps.states, steps.next_states[steps.known_next]]), steps.coordinates)
        stage = fit_outcomes(steps, basis, regressor, smoothing)
        points = value_points(steps)
        features, available = basis(points), stage.available(basis(points))
        live = np.flatnonzero(available.any(axis=0))
        rows, features = [row[live] for row in stage.rows(points)], features[live]
        paid = np.stack([row @ c for row, c in zip(rows, stage.paid, strict=True)])
        on = paid if stage.going_on is stage.paid else np.stack([row @ c for row, c in zip(rows, stage.going_on, strict=True)])
        projection = la.cho_solve(factorised((features.T @ features).toarray()), features.T.toarray())
        rough = roughness(basis, steps, points)
        bare = cls(basis, stage, (), paid, on, projection, available[:, live], rows, rough)
        return replace(bare, decisions=bare.decisions_of(steps))

    def decisions_of(self, steps: Steps) -> tuple[LoggedDecisions, ...]:
        """Each expert's decisions among steps, which may be others than those that the first stage was fitted to."""
        found = []
        for k in range(len(steps.experts)):
            own = steps.select(steps.expert == k)
            known = self.stage.available(self.basis(own.states))
            taken = own.action == np.arange(len(own.actions))[:, None]
            foreseen = known[own.action, np.arange(len(own))]
            found.append(LoggedDecisions(self.stage.rows(own.states), own.action, known | taken, foreseen))
        return tuple(found)

    @property
    def functions(self) -> int:
        """How many basis functions there are."""
        return int(self.expected_paid.shape[2])

    @property
    def ends(self) -> bool:
        """Whether some steps end an episode for good."""
        return self.expected_on is not self.expected_paid

    @cached_property
    def level(self) -> Floats | None:
        """The direction `(f,)` of θ in which a constant is added to the reward, where that changes no choice; None elsewhere.

        It changes none where no step ends an episode for good, and what is expected of the functions adds up to a constant too.
        """
        constant = self.basis.constant
        if self.ends or np.abs(self.expected_paid @ constant - 1).max() > 1e-5:
            return None
        return constant / np.linalg.norm(constant)


def value_points(steps: Steps, most: int = 4000) -> Floats:
    """Distinct states `(m,d)` from which the logged steps go on, evenly chosen where there are many.

    4000 are enough that their choice moves a discount by far less than its standard error.
    """
    arrived = steps.next_states[steps.known_next & ~steps.terminated]
    distinct = np.unique(arrived if len(arrived) else steps.states, axis=0)
    if len(distinct) <= most:
        return distinct
    spread = distinct.std(axis=0)
    far = (((distinct - distinct.mean(axis=0)) / np.where(spread > 0, spread, 1.0)) ** 2).sum(axis=1)
    return distinct[np.argsort(far, kind="stable")[np.linspace(0, len(distinct) - 1, most).round().astype(np.int64)]]


@dataclass(frozen=True, eq=False)
class SampledPlan(Choices):
    """One expert's plan: coefficients v of the values, choices at the points and at the decisions, and the resolvent.

    `coefficients` `(A,p)` are those of Q in X_a; `point_policy` `(A,m)` and `point_entropy` `(m,)` are of the choices at the
    points; `log` `(A,n)` are log-probabilities at the decisions, `-inf` where an action is not available; `resolvent` is the
    factorised `I − γ H Σ_a π_a E_a`.
    """

    values: Floats
    gamma: float
    lam: float
    coefficients: Floats
    point_policy: Floats
    point_entropy: Floats
    log: Floats
    resolvent: Any

    @cached_property
    def surprise(self) -> Floats:
        """`π_a` times the direct derivative of `log π_a` by log λ, `−(log π_a + entropy)`, at each decision, `(A,n)`."""
        return -self.policy * (self.finite_log + self.entropy)

    def at_points(self, on_values: Floats, data: SieveData) -> Floats:
        """What weights `(f,…)` on v amount to on V at the value points, `(m,…)`."""
        found: Floats = data.projection.T @ la.lu_solve(self.resolvent, on_values, trans=1, check_finite=False)
        return found

    def slopes(self, data: SieveData) -> Floats:
        """The derivatives `(A,p,f+2)` of the coefficients of Q by θ, γ and log λ."""
        paid = _average(self.point_policy, data.expected_paid)
        on = _average(self.point_policy, data.expected_on) if data.ends else paid
        loads = np.column_stack([paid, on @ self.values, self.lam * self.point_entropy])
        values = la.lu_solve(self.resolvent, data.projection @ loads, check_finite=False)
        slopes: Floats = self.gamma * (data.stage.going_on @ values)
        slopes[:, :, : data.functions] += data.stage.paid
        slopes[:, :, data.functions] += data.stage.going_on @ self.values
        return slopes


def plan_sampled(
    data: SieveData, decisions: LoggedDecisions, theta: Floats, gamma: float, lam: float, start: Floats | None
) -> SampledPlan | None:
    """The plan for a reward θ, a discount and a temperature; None where no finite values solve the equation."""
    v = np.zeros(data.functions) if start is None else start
    earned = data.expected_paid @ theta
    for _ in range(60):
        total, log = soft_values(earned + gamma * (data.expected_on @ v), data.points_available, lam)
        policy, target = np.exp(log), data.projection @ total
        average = _average(policy, data.expected_on)
        resolvent = la.lu_factor(np.eye(v.size) - gamma * (data.projection @ average), check_finite=False)
        change = float(np.abs(target - v).max())
        if not np.isfinite(change):
            return None
        if change <= 1e-11 * (1 + np.abs(v).max()):
            coefficients = data.stage.paid @ theta + gamma * (data.stage.going_on @ v)
            entropy = -(policy * np.where(np.isfinite(log), log, 0.0)).sum(axis=0)
            return SampledPlan(v, gamma, lam, coefficients, policy, entropy, decisions.choices(coefficients, lam), resolvent)
        v = v + la.lu_solve(resolvent, target - v, check_finite=False)
    return None


def _average(policy: Floats, expected: Floats) -> Floats:
    """`Σ_a π_a(z) E[…|z,a]` `(m,f)`."""
    total: Floats = policy[0][:, None] * expected[0]
    for p, e in zip(policy[1:], expected[1:], strict=True):
        total += p[:, None] * e
    return total


@final
class SieveModel(ChoiceModel):
    """The log-likelihood of sampled decisions of `x = (θ, γ, log λ)`; its ridge is `strength` times the roughness."""

    def __init__(
        self,
        problem: SampledProblem,
        data: SieveData,
        settings: Settings,
        strength: float = 0.0,
        penalty: Quadratic | None = None,
    ) -> None:
        self.problem, self.data, self.strength = problem, data, strength
        self.batches, self.feature_sizes = data.decisions, np.ones(problem.n_parameters)
        bounds, ridge = (0.0, LARGEST_DISCOUNT), strength * data.roughness
        super().__init__(problem.n_experts, problem.n_parameters, settings, bounds, penalty, ridge)

    def of_strength(self, strength: float) -> Self:
        """The same likelihood with another weight of the penalty on roughness."""
        changed = self.holding(self.penalty, strength * self.data.roughness)
        changed.strength = strength
        return changed

    def at(self, x: Floats, near: ChoicePoint | None = None) -> SievePoint | None:
        """The model at x, its plans started from those of a `near` point; None where values are not finite."""
        plans = []
        theta, gamma, lam = x[: self.n_reward], self.discounts(x), self.temperatures(x)
        for k, decisions in enumerate(self.data.decisions):
            starts = [near.plans[k].values, None] if isinstance(near, SievePoint) else [None]
            tried = (plan_sampled(self.data, decisions, theta, float(gamma[k]), float(lam[k]), start) for start in starts)
            plan = next((plan for plan in tried if plan is not None), None)
            if plan is None:
                return None
            plans.append(plan)
        value = sum(float((b.counts * p.finite_log).sum()) for b, p in zip(self.data.decisions, plans, strict=True))
        return SievePoint(self, x, tuple(plans), value, value + self.beside(x))

    def person_values(self, point: Any) -> Floats:
        """The log-likelihood `(K,)` of each expert's decisions at a point."""
        return np.array([(b.counts * p.finite_log).sum() for b, p in zip(self.data.decisions, point.plans, strict=True)])

    def places(self, expert: int) -> Ints:
        """The positions in x on which an expert's choices depend: θ, their discount, and their log-temperature."""
        temperature = self.temperature_slice.start + self.temperature_groups[expert]
        return np.array([*range(self.n_reward), self.n_reward + self.groups[expert], temperature])


@final
@dataclass(frozen=True, eq=False)
class SievePoint(ChoicePoint):
    """The model at one x, with derivatives through the projected values."""

    likelihood: SieveModel
    plans: tuple[SampledPlan, ...]

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """`Σ y d log π(a|s)` `(p,)` for weights y `(A,n)` of each expert's decisions."""
        model, data = self.likelihood, self.likelihood.data
        total = np.zeros(model.size)
        for k, (batch, plan, y) in enumerate(zip(data.decisions, self.plans, weights, strict=True)):
            loads = batch.summed((y - y.sum(axis=0) * plan.policy) / plan.lam)
            on_values = np.einsum("ap,apf->f", loads, data.stage.going_on, optimize=True)
            points = plan.at_points(plan.gamma * on_values, data)
            paid = np.einsum("am,amf->f", plan.point_policy * points, data.expected_paid, optimize=True)
            on = np.einsum("am,amf->f", plan.point_policy * points, data.expected_on, optimize=True) if data.ends else paid
            theta = paid + np.einsum("ap,apf->f", loads, data.stage.paid, optimize=True)
            direct = float((y * plan.finite_log).sum() + y.sum(axis=0) @ plan.entropy)
            temperature = float(plan.lam * (points @ plan.point_entropy)) - direct
            total[model.places(k)] += np.array([*theta, float((on + on_values) @ plan.values), temperature])
        return total

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """For each expert the positions in x on which the choices depend, and their Fisher information `(q,q)`."""
        for k, plan in enumerate(self.plans):
            slopes = plan.slopes(self.likelihood.data) / plan.lam
            block = np.einsum("apq,apr->qr", slopes, self.loads(k, slopes), optimize=True)
            summed = self.likelihood.data.decisions[k].summed(plan.surprise)
            block[-1] += np.einsum("apq,ap->q", slopes, summed, optimize=True)
            block[-1, -1] += float((plan.surprise * -(plan.finite_log + plan.entropy)).sum())
            if (level := self.likelihood.data.level) is not None:
                # A discount near 1 makes rounding a million times larger. What it says of a constant must not count.
                inside = slice(0, level.size)
                block[inside] -= np.outer(level, level @ block[inside])
                block[:, inside] -= np.outer(block[:, inside] @ level, level)
            yield self.likelihood.places(k), block

    def loads(self, expert: int, slopes: Floats) -> Floats:
        """`λ Σ_i Σ_b π_b (d log π_b/dc_a) (d log π_b/dx)` `(A,p,q)` for derivatives `(A,p,q)` of the coefficients c of Q/λ."""
        plan, batch = self.plans[expert], self.likelihood.data.decisions[expert]
        found = batch.informed(plan.policy, slopes)
        found[:, :, -1] += batch.summed(plan.surprise)
        return found
