"""Everything that the likelihood needs of the data, computed once: rows at the decisions and at the points of value.

At a decision in s the value of action a is `Q(s,a) = X_a(s) (C_a θ + γ E_a v)` with v the coefficients of the expert's values.
Those are the least-squares fit of `V(z) = λ log Σ_a exp(Q(z,a)/λ)` to the basis over the *value points* z: distinct next states
of the log, at most `POINTS` of them, chosen evenly by their distance from the centre, so that no order of rows or columns
matters.

The information of choices about the coefficients of Q: `W_ab = Σ_i X_a(s_i)ᵀ [π_a δ_ab − π_a π_b] X_b(s_i)`.

Whatever the coefficients depend on, with derivatives D `(A,p,q)`, its information is `Dᵀ W D`. Where all actions have the same
sparse rows, the products of each row's entries are laid out once, as one sparse matrix `(p²,n)`, and W is a product of it with
the weights of the A(A+1)/2 pairs of actions. Local functions make this many times faster than dense products. Elsewhere, and
where W has more entries than there are decisions to fill them, the rows of `X_a D_a` are formed and multiplied, block by block.

The plan of one expert: projected soft values, solved by Newton's method.

With `w_paid = θ`, `Q(z,a) = E[φ|z,a]ᵀθ + γ E[φ 1(goes on)|z,a]ᵀ v` and `V(z) = λ log Σ_a exp(Q(z,a)/λ)` at the value points z,
the coefficients v solve `v = H V`, H the least-squares projection on the basis. The derivative of the right-hand side is `γ H
Σ_a π_a E_a`, so a Newton step is one dense solve of the size of the basis. It ends when the equation holds to `TOLERANCE` of
the values; it is given up after `MOST_STEPS`, and where a value is not finite.

The likelihood of decisions in sampled states, and its exact derivatives through the projected values.

    L = Σ_k Σ_i log π_k(a_i|s_i),   λ_k log π_k(a|s) = Q_k(s,a) − V_k(s),   Q_k(s,a) = X_a(s) (C_a θ + γ_k E_a v_k),

with v_k from `values.py`. x = (θ, γ, log λ); bounds, groups, penalties and climbs are those of `likelihood.Likelihood`.
*Backwards*: with `G = (N − π)/λ` the weights on the coefficients of action a are `X_aᵀ G_a`; they go to θ and γ directly, and
to v and from there through one adjoint solve per expert. *Forwards*: the rows of d log π give the Fisher information.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import Any, Self, final

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from multihorizon.checks import Bools, Floats, Ints, Sparse
from multihorizon.choice.basis import BLOCK, FirstStage, Fitted, Smoothing, fit_basis, fit_outcomes, roughness
from multihorizon.choice.model import ChoiceModel, ChoicePoint, Choices
from multihorizon.choice.parameters import Quadratic, Settings
from multihorizon.data.steps import Steps
from multihorizon.problem import SampledProblem

#: Value points: enough that their choice moves a discount by far less than its standard error.
POINTS = 4000
#: A sparse product costs this many dense ones, for each pair of actions.
SPARSE_COST = 2.5
#: Coefficients of all actions beyond which their information matrix would not fit into memory well.
MOST_DENSE = 5000
#: Added to the diagonal of the projection, relative to its mean.
STABILITY = 1e-9


@dataclass(frozen=True, eq=False)
class Decisions:
    """One expert's decisions: X_a at each (A matrices `(n,p)`), the action taken, what is available, and weights of 1.

    `counts` `(A,n)` marks the action taken; `visits` `(n,)` says that each decision was made once; `foreseen` `(n,)` says whether
    the first stage knows what the action taken leads to.
    """

    rows: list[Sparse]
    action: Ints
    available: Bools
    counts: Floats
    visits: Floats
    foreseen: Bools

    @cached_property
    def chance(self) -> float:
        """The log-likelihood of the decisions if all available actions were equally likely."""
        return -float(np.log(self.available.sum(axis=0)).sum())

    @cached_property
    def products(self) -> Sparse | None:
        """The products of each row's entries, `(p²,n)`; None where actions have rows of their own, or rows are too full."""
        first = self.rows[0]
        widths = np.unique(np.diff(first.indptr))
        n, p = first.shape
        if any(row is not first for row in self.rows) or widths.size != 1:
            return None
        width = int(widths[0])
        i, j = np.triu_indices(width)
        if SPARSE_COST * i.size * (len(self.rows) + 1) >= p * p or len(self.rows) * p > MOST_DENSE:
            return None
        index, value = first.indices.reshape(n, width).astype(np.int64), first.data.reshape(n, width)
        order = np.argsort(index, axis=1)
        index, value = np.take_along_axis(index, order, 1), np.take_along_axis(value, order, 1)
        starts = np.arange(0, n * i.size + 1, i.size)
        cells = (index[:, i] * p + index[:, j]).ravel()
        return sp.csr_array(sp.csr_array(((value[:, i] * value[:, j]).ravel(), cells, starts), shape=(n, p * p)).T)


@dataclass(frozen=True, eq=False)
class Design:
    """The basis, the first stage, the experts' decisions, and the value points.

    Attributes:
        expected_paid: `E[φ(s')|z,a]` at the value points, `(A,m,f)`.
        expected_on: the part of it that goes on, `(A,m,f)`.
        projection: `(f,m)` gives coefficients from values at the points.
        points_available: whether each action is available at each point, `(A,m)`.
        point_rows: X_a at the points.
        roughness: the matrix `(f,f)` of the penalty on the reward.
    """

    basis: Fitted
    stage: FirstStage
    decisions: tuple[Decisions, ...]
    expected_paid: Floats
    expected_on: Floats
    projection: Floats
    points_available: Bools
    point_rows: list[Sparse]
    roughness: Floats

    @property
    def functions(self) -> int:
        """How many basis functions there are."""
        return int(self.expected_paid.shape[2])

    @property
    def ends(self) -> bool:
        """Whether some steps end an episode for good."""
        return self.expected_on is not self.expected_paid

    def decisions_of(self, steps: Steps) -> tuple[Decisions, ...]:
        """The decisions of other steps in the same basis, with the same first stage."""
        return tuple(_decisions(steps.select(steps.expert == k), self.basis, self.stage) for k in range(len(steps.experts)))


def make_design(steps: Steps, transformer: Any, regressor: Any = None, smoothing: Smoothing | None = None) -> Design:
    """Fit basis and first stage to the steps, and lay out their decisions; a first stage's smoothing is chosen if not given."""
    seen = steps.known_next
    basis = fit_basis(transformer, np.vstack([steps.states, steps.next_states[seen]]), steps.coordinates)
    stage = fit_outcomes(steps, basis, regressor, smoothing)
    points = value_points(steps)
    features = basis(points)
    rows = stage.rows(features, points)
    available = stage.available(features)
    live = available.any(axis=0)
    rows, available = [row[np.flatnonzero(live)] for row in rows], available[:, live]
    paid = np.stack([row @ c for row, c in zip(rows, stage.paid, strict=True)])
    on = paid if stage.going_on is stage.paid else np.stack([row @ c for row, c in zip(rows, stage.going_on, strict=True)])
    rough = roughness(basis, steps, points)
    bare = Design(basis, stage, (), paid, on, _projection(features[np.flatnonzero(live)]), available, rows, rough)
    return Design(**{**vars(bare), "decisions": bare.decisions_of(steps)})


def value_points(steps: Steps) -> Floats:
    """Distinct states `(m,d)` from which the logged steps go on, evenly chosen where there are many."""
    arrived = steps.next_states[steps.known_next & ~steps.terminated]
    distinct = np.unique(arrived if len(arrived) else steps.states, axis=0)
    if len(distinct) <= POINTS:
        return distinct
    spread = distinct.std(axis=0)
    far = (((distinct - distinct.mean(axis=0)) / np.where(spread > 0, spread, 1.0)) ** 2).sum(axis=1)
    return distinct[np.argsort(far, kind="stable")[np.linspace(0, len(distinct) - 1, POINTS).round().astype(np.int64)]]


def _decisions(steps: Steps, basis: Fitted, stage: FirstStage) -> Decisions:
    features, n = basis(steps.states), len(steps)
    taken = steps.action == np.arange(len(steps.actions))[:, None]
    known = stage.available(features)
    foreseen = known[steps.action, np.arange(n)]
    return Decisions(stage.rows(features, steps.states), steps.action, known | taken, taken / 1.0, np.ones(n), foreseen)


def _projection(features: Sparse) -> Floats:
    gram = (features.T @ features).toarray()
    gram[np.diag_indices_from(gram)] += STABILITY * np.trace(gram) / len(gram)
    solved: Floats = la.solve(gram, features.T.toarray(), assume_a="pos")
    return solved


def project(decisions: Decisions, policy: Floats, slopes: Floats) -> Floats:
    """`W D` `(A,p,q)` for derivatives D `(A,p,q)` and choices π `(A,n)`."""
    (n, p), width = decisions.rows[0].shape, slopes.shape[2]
    if len(slopes) * p * p <= n * width and decisions.products is not None:
        matrix = _information(decisions, policy)
        flat: Floats = (matrix @ slopes.reshape(-1, slopes.shape[2])).reshape(slopes.shape)
        return flat
    total = np.zeros(slopes.shape)
    for start in range(0, decisions.action.size, BLOCK):
        part = slice(start, start + BLOCK)
        raw = [row[part] @ slope for row, slope in zip(decisions.rows, slopes, strict=True)]
        mean = sum(p[:, None] * r for p, r in zip(policy[:, part], raw, strict=True))
        for a, (p, r) in enumerate(zip(policy[:, part], raw, strict=True)):
            total[a] += decisions.rows[a][part].T @ (p[:, None] * (r - mean))
    return total


def _information(decisions: Decisions, policy: Floats) -> Floats:
    """W `(A·p,A·p)` by sparse products."""
    n_actions, p = len(policy), decisions.rows[0].shape[1]
    pairs = list(combinations_with_replacement(range(n_actions), 2))
    weights = np.stack([policy[a] * ((a == b) - policy[b]) for a, b in pairs], axis=1)
    assert decisions.products is not None
    blocks = (decisions.products @ weights).T.reshape(len(pairs), p, p)
    found = np.empty((n_actions, p, n_actions, p))
    for (a, b), upper in zip(pairs, blocks, strict=True):
        found[a, :, b] = upper + upper.T - np.diag(np.diag(upper))
        found[b, :, a] = found[a, :, b]
    return found.reshape(n_actions * p, n_actions * p)


TOLERANCE, MOST_STEPS = 1e-11, 60


@dataclass(frozen=True, eq=False)
class SampledPlan(Choices):
    """One expert's plan: coefficients v of the values, choices at the points and at the decisions, and the resolvent.

    `coefficients` `(A,p)` are those of Q in X_a; `log` `(A,n)` are log-probabilities at the decisions, `-inf` where an action is
    not available; `resolvent` is the factorised `I − γ H Σ_a π_a E_a`.
    """

    values: Floats
    gamma: float
    lam: float
    coefficients: Floats
    point_log: Floats
    log: Floats
    resolvent: Any

    @cached_property
    def point_policy(self) -> Floats:
        """The probability of each action at the value points, `(A,m)`."""
        return np.exp(self.point_log)

    @cached_property
    def point_entropy(self) -> Floats:
        """The entropy of the choice at each value point, `(m,)`."""
        total: Floats = -(self.point_policy * np.where(np.isfinite(self.point_log), self.point_log, 0.0)).sum(axis=0)
        return total


def soft_values(q: Floats, available: Bools, lam: float) -> tuple[Floats, Floats]:
    """V `(m,)` and log π `(A,m)` of action values `(A,m)`."""
    allowed = np.where(available, q / lam, -np.inf)
    top = allowed.max(axis=0)
    total = top + np.log(np.exp(allowed - top).sum(axis=0))
    return lam * total, allowed - total


def plan_expert(
    design: Design, decisions: Decisions, theta: Floats, gamma: float, lam: float, start: Floats | None
) -> SampledPlan | None:
    """The plan for a reward θ, a discount and a temperature; None where no finite values solve the equation."""
    v = np.zeros(design.functions) if start is None else start
    earned = design.expected_paid @ theta
    change = np.inf
    for _ in range(MOST_STEPS):
        total, log = soft_values(earned + gamma * (design.expected_on @ v), design.points_available, lam)
        target = design.projection @ total
        average = _average(np.exp(log), design.expected_on)
        resolvent = la.lu_factor(np.eye(v.size) - gamma * (design.projection @ average), check_finite=False)
        change = float(np.abs(target - v).max())
        if not np.isfinite(change):
            return None
        if change <= TOLERANCE * (1 + np.abs(v).max()):
            coefficients = design.stage.paid @ theta + gamma * (design.stage.going_on @ v)
            q = decision_values(decisions, coefficients)
            return SampledPlan(v, gamma, lam, coefficients, log, soft_values(q, decisions.available, lam)[1], resolvent)
        v = v + la.lu_solve(resolvent, target - v, check_finite=False)
    return None


def decision_values(decisions: Decisions, coefficients: Floats) -> Floats:
    """Q `(A,n)` at the decisions from its coefficients `(A,p)`."""
    return np.stack([row @ c for row, c in zip(decisions.rows, coefficients, strict=True)])


def predicted_scores(decisions: Decisions, coefficients: Floats, lam: float) -> Floats:
    """The log-probability `(n,)` of decisions that the first stage has not seen, from the coefficients `(A,p)` of Q.

    Where it is not known what an action leads to, nothing is predicted of it, and its probability is that of pure chance. The
    other actions share the rest. Otherwise a basis would seem to predict the better, the more actions it rules out.
    """
    log = soft_values(decision_values(decisions, coefficients), decisions.available, lam)[1]
    taken = log[decisions.action, np.arange(decisions.action.size)]
    rest: Floats = decisions.available.sum(axis=0) / len(log)
    scores: Floats = np.where(decisions.foreseen, taken + np.log(rest), -np.log(len(log)))
    return scores


def _average(policy: Floats, expected: Floats) -> Floats:
    """`Σ_a π_a(z) E[…|z,a]` `(m,f)`."""
    total: Floats = policy[0][:, None] * expected[0]
    for p, e in zip(policy[1:], expected[1:], strict=True):
        total += p[:, None] * e
    return total


def value_slopes(design: Design, plan: SampledPlan) -> Floats:
    """The derivatives `(f,f+2)` of v by θ, by γ, and by log λ."""
    paid = _average(plan.point_policy, design.expected_paid)
    on = paid if not design.ends else _average(plan.point_policy, design.expected_on)
    loads = np.column_stack([paid, on @ plan.values, plan.lam * plan.point_entropy])
    slopes: Floats = la.lu_solve(plan.resolvent, design.projection @ loads, check_finite=False)
    return slopes


def coefficient_slopes(design: Design, plan: SampledPlan) -> Floats:
    """The derivatives `(A,p,f+2)` of the coefficients of Q by θ, γ and log λ."""
    slopes = plan.gamma * (design.stage.going_on @ value_slopes(design, plan))
    slopes[:, :, : design.functions] += design.stage.paid
    slopes[:, :, design.functions] += design.stage.going_on @ plan.values
    return slopes


def pull_back_values(design: Design, plan: SampledPlan, loads: Floats) -> tuple[Floats, float, float, Floats]:
    """What weights `(f,)` on v amount to on θ `(f,)`, γ and log λ, and on V at the value points `(m,)`."""
    onto_points: Floats = design.projection.T @ la.lu_solve(plan.resolvent, loads, trans=1, check_finite=False)
    weighted = plan.point_policy * onto_points
    theta = np.einsum("am,amf->f", weighted, design.expected_paid, optimize=True)
    on = theta if not design.ends else np.einsum("am,amf->f", weighted, design.expected_on, optimize=True)
    return theta, float(on @ plan.values), float(plan.lam * (onto_points @ plan.point_entropy)), onto_points


#: The largest discount that is tried: logged steps alone do not show that a task must end.
LARGEST_DISCOUNT = 0.999


@final
class SieveModel(ChoiceModel):
    """The log-likelihood of sampled decisions of `x = (θ, γ, log λ)`; its ridge is `strength` times the roughness."""

    def __init__(
        self,
        problem: SampledProblem,
        design: Design,
        settings: Settings | None = None,
        strength: float = 0.0,
        penalty: Quadratic | None = None,
    ) -> None:
        self.problem = problem
        self.design = design
        self.batches = design.decisions
        self.strength = strength
        bounds = (0.0, LARGEST_DISCOUNT)
        ridge = strength * design.roughness
        super().__init__(problem.n_experts, problem.n_parameters, settings or Settings(), bounds, penalty, ridge)

    def of_strength(self, strength: float) -> Self:
        """The same likelihood with another weight of the penalty on roughness."""
        changed = self.holding(self.penalty, strength * self.design.roughness)
        changed.strength = strength
        return changed

    def at(self, x: Floats, near: ChoicePoint | None = None) -> SievePoint | None:
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
        return SievePoint(self, x, tuple(plans), value, value + self.beside(x))

    def places(self, expert: int) -> Ints:
        """The positions in x on which an expert's choices depend: θ, their discount, and their log-temperature."""
        heat = self.temperature_slice.start + self.temperature_groups[expert]
        return np.array([*range(self.n_reward), self.n_reward + self.groups[expert], heat])


@final
@dataclass(frozen=True, eq=False)
class SievePoint(ChoicePoint):
    """The model at one x, with derivatives through the projected values."""

    likelihood: SieveModel
    plans: tuple[SampledPlan, ...]

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
