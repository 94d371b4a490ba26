"""Types: people, or episodes without a name, each of one of K types with a discount of its own.

*The model.* Unit i is a person, or one episode whose expert is not known. It is of type k with probability w_k; all types share
the reward θ, and type k has the discount γ_k and the temperature λ_k. With `ℓ_ik = Σ_sa N_i(s,a) log π_k(a|s)`,

    L(θ, γ, λ, w) = Σ_i log Σ_k w_k exp ℓ_ik,        p_ik = w_k exp ℓ_ik / Σ_j w_j exp ℓ_ij,

p_ik the posterior share of type k in unit i. Weights are `w = exp(a)`. Their sum is held as if units came in a time in which one
expects n of them: L has the term `−n (Σ_k w_k − 1)`, and at a maximum the weights sum to 1.

*The climb.* The gradient of L is that of K experts with the counts `Σ_i p_ik N_i`, the maximisation step of expectation and
maximisation (Dempster, Laird and Rubin, 1977). Its curvature is what the units would say if their types were known, C, less what
is missing because they are not (Louis, 1982): with s_ik the derivative of `a_k + ℓ_ik`,

    C − M,    C = Σ_k Fisher information of the counts Σ_i p_ik N_i,    M = Σ_i Σ_k p_ik (s_ik − s̄_i)(s_ik − s̄_i)ᵀ.

Steps with C alone are those of expectation and maximisation, and slow where types overlap. Relative to C the eigenvalues of
`C − M` are the shares of the information that are left. Steps take them by their size, and at least as 1/1000, in the damped
Newton's method of `numerics.newton`: an unfinished climb says so. Standard errors come from `C − M` at the maximum.

*Temperatures.* Where the reward is known, each type has a temperature of its own. Where it is not, all types have the same, 1
unless a known part of the reward sets the scale: of 2,000 unlabelled episodes on the cliff the standard error of a discount of .2
is .06 then, and would be .29 with two temperatures.

*Rewards* that are not known are drawn from a normal distribution around 0 whose deviation τ, in temperatures, the decisions
choose: the deviation that makes them most likely where all parameters are averaged out by Laplace's method (MacKay, 1992), with
`τ² = Σ θ_j² / Σ (1 − c_jj/τ²)`, c the covariance of the rewards. τ is at most 20. With one type and no part of the reward known,
this alone chooses among the pairs of reward and discount that explain the decisions equally well. Then the discount is not
identified, but "one type" can still be right.

*How many types.* K + 1 types are tested against K by `2 (L_{K+1} − L_K)`, both with the τ of K types. Its distribution is not a
χ², so the same number is computed for studies that are simulated from the K fitted types: as many units, whose episodes begin in
the same states and end as the task ends them, cut at the longest that was logged (at their own lengths, where the task need not
end). With e of m simulated numbers at least as large, p is `(1 + e)/(1 + m)`. There are 99, fewer where p is certain to be above
.05, or where none of the first 39 is as large, or none of the first 19 even a third as large (Besag and Clifford, 1991). The
first K that is not rejected is the answer.

*Starts.* From K types to K + 1: each type is cut in two, or a new one is added where it gains most. From one type to two with a
free reward: two types around each of several discounts, with the reward that fits one type there. All are climbed for a few
steps, and the two best to the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg as la
import scipy.sparse as sp
from scipy.special import expit, logit

from multihorizon.checks import TINY, Bools, Floats, Ints, Sparse
from multihorizon.choice.model import Likelihood, Point, temperature_penalty
from multihorizon.choice.plans import Plans
from multihorizon.choice.settings import Settings
from multihorizon.estimate import ExpertValues
from multihorizon.likelihood.maximum_likelihood import WEAK_PRIOR
from multihorizon.likelihood.search import CONVERGED_GRADIENT, choice_probability_start
from multihorizon.numerics.newton import Ascent, Dense, Metric, Tolerances, climb, resting
from multihorizon.numerics.spectrum import spectrum
from multihorizon.parallel import Run, limits
from multihorizon.population.findings import PopulationEvidence, PopulationFindings, TypesEstimate, type_intervals
from multihorizon.problem import Problem, without_decisions
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL, VAGUE_WIDTH, count, decimals, in_words, percent, power_of_ten, significant


@dataclass(frozen=True, eq=False)
class Units:
    """What units decided: the distinct rows `(u,A·S)` of each task, how many units have each `(u,)`, and each one's `(n,)`."""

    tasks: tuple[Sparse, ...]
    times: Floats
    place: Ints

    @classmethod
    def of(cls, problem: Problem) -> Units:
        """Return those of a problem, whose rows are units."""
        counts = sp.csr_array(sp.hstack([task.counts for task in problem.tasks], format="csr"))
        counts.sum_duplicates()
        counts.eliminate_zeros()
        seen: dict[tuple[bytes, bytes], int] = {}
        place = np.empty(counts.shape[0], dtype=np.int64)
        for i, (low, high) in enumerate(pairwise(counts.indptr.tolist())):
            key = counts.indices[low:high].tobytes(), counts.data[low:high].tobytes()
            place[i] = seen.setdefault(key, len(seen))
        first = np.unique(place, return_index=True)[1]
        widths = np.cumsum([0, *(task.counts.shape[1] for task in problem.tasks)]).tolist()
        distinct = counts[first]
        tasks = tuple(sp.csr_array(distinct[:, low:high]) for low, high in pairwise(widths))
        return cls(tasks, np.bincount(place).astype(np.float64), place)


class TypesModel:
    """L as a function of `x = (θ, γ, log λ, a)`, where K experts stand for the types.

    Args:
        problem: the units, each with a row of counts.
        units: what they decided.
        types: K.
        reward: known reward parameters `(d,)`; None where they are free.
        ridge: weights `(d,)` of the penalty on the reward.

    Attributes:
        planner: the likelihood of K experts, whose counts say only where anyone decided.
        parts: for each of its batches and each task in it, the units' decisions `(u,rows)`, which plans are in the task, and
            their types. Decisions are dense where they are few.
        shares: where the logarithms a of the weights stand in x.
    """

    def __init__(self, problem: Problem, units: Units, types: int, reward: Floats | None, ridge: Floats) -> None:
        self.problem, self.units, self.types, self.reward, self.ridge = problem, units, types, reward, ridge
        experts = [replace(task.pooled, name=f"type {k + 1}") for task in problem.tasks for k in range(types)]
        free = np.full(types, np.nan)
        settings = Settings(reward=reward)
        if reward is not None:
            settings = replace(settings, temperatures=free)
        elif any(task.known_reward is not None for task in problem.tasks):
            settings = replace(settings, temperatures=free, temperature_groups=(0,) * types)
        planner = Likelihood(Problem._of(experts, problem.parameter_names), settings)
        self.planner = planner.holding(temperature_penalty(planner), ridge)
        self.n = float(units.times.sum())
        self.size = planner.size + types
        self.shares = slice(planner.size, self.size)
        self.fixed: Bools = np.append(planner.fixed, np.zeros(types, dtype=np.bool_))
        # a type with a thousandth of a unit is no type; at a maximum weights are at most 1
        self.lower: Floats = np.append(planner.lower, np.full(types, np.log(1e-3 / self.n)))
        self.upper: Floats = np.append(planner.upper, np.ones(types))
        self.parts: list[list[tuple[Any, Ints, Ints]]] = []
        for batch in planner.batches:
            tasks = batch.positions // types
            parts = []
            for task in np.unique(tasks).tolist():
                counts = units.tasks[task][:, batch.visited_rows]
                plans = np.flatnonzero(tasks == task)
                few = counts.shape[0] * counts.shape[1] <= 2_000_000
                parts.append((counts.toarray() if few else counts, plans, batch.positions[plans] % types))
            self.parts.append(parts)

    @property
    def largest(self) -> float:
        """Return the largest discount to try."""
        return float(self.planner.upper[self.planner.discount_slice].max())

    def with_types(self, types: int, ridge: Floats) -> TypesModel:
        """Return the same units with other types, or another penalty."""
        return TypesModel(self.problem, self.units, types, self.reward, ridge)

    def pack(self, reward: Floats, discounts: Floats, temperatures: Floats, shares: Floats) -> Floats:
        """Return x from a reward and one discount, temperature and weight for each type; temperatures that are shared are their
        mean."""
        if self.planner.n_temperatures < self.types:
            temperatures = np.exp([np.log(temperatures).mean()])
        x = np.append(self.planner.pack(reward, discounts, temperatures), np.log(np.maximum(shares, 1e-300)))
        packed: Floats = np.clip(x, self.lower, self.upper)
        return packed

    def at(self, x: Floats, near: TypesPoint | None = None) -> TypesPoint | None:
        """Return the model at x; None where a soft value is infinite."""
        plans = self.planner.at(x[: self.planner.size], None if near is None else near.plans)
        if plans is None:
            return None
        log = np.tile(x[self.shares], (self.units.times.size, 1))
        for plan, parts in zip(plans.plans, self.parts, strict=True):
            table = plan.finite_log.reshape(-1, plan.lam.size)[plan.persons.visited_rows]
            for counts, which, kinds in parts:
                log[:, kinds] += counts @ table[:, which]
        return TypesPoint(self, x, plans, log)


@dataclass(frozen=True, eq=False)
class TypesPoint:
    """The model at one x: the plans of the types, and `a_k + ℓ_ik` `(u,K)` of the distinct units."""

    model: TypesModel
    x: Floats
    plans: Point
    log: Floats

    @property
    def reward(self) -> Floats:
        """Return θ `(d,)`."""
        return self.model.planner.reward(self.x)

    @property
    def discounts(self) -> Floats:
        """Return γ `(K,)`."""
        return self.model.planner.discounts(self.x)

    @property
    def temperatures(self) -> Floats:
        """Return λ `(K,)`."""
        return self.model.planner.temperatures(self.x)

    @property
    def weights(self) -> Floats:
        """Return w `(K,)`, which sum to 1 at a maximum."""
        return np.exp(self.x[self.model.shares])

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Of x."""
        return self.model.lower, self.model.upper

    @cached_property
    def marginal(self) -> Floats:
        """Return the log-likelihood `(u,)` of each distinct unit."""
        top: Floats = self.log.max(axis=1)
        log_likelihoods: Floats = top + np.log(np.exp(self.log - top[:, None]).sum(axis=1))
        return log_likelihoods

    @cached_property
    def posterior(self) -> Floats:
        """Return p `(u,K)`."""
        return np.exp(self.log - self.marginal[:, None])

    @cached_property
    def value(self) -> float:
        """Return L."""
        return float(self.model.units.times @ self.marginal) - self.model.n * (float(self.weights.sum()) - 1)

    @cached_property
    def objective(self) -> float:
        """Return L less the penalties."""
        return self.value + self.model.planner.beside(self.x[: self.model.planner.size])

    @cached_property
    def pooled(self) -> list[Floats]:
        """For each batch the decisions `(A,S,n)` of its plans, `Σ_i p_ik N_i`."""
        shares = self.model.units.times[:, None] * self.posterior
        pooled = []
        for plan, parts in zip(self.plans.plans, self.model.parts, strict=True):
            weighted = np.zeros((plan.log.shape[0] * plan.log.shape[1], plan.lam.size))
            for counts, which, kinds in parts:
                weighted[np.ix_(plan.persons.visited_rows, which)] = counts.T @ shares[:, kinds]
            pooled.append(weighted.reshape(plan.log.shape))
        return pooled

    @cached_property
    def gradient(self) -> Floats:
        """Of the objective `(p,)`."""
        model = self.model
        of_planner = self.plans.pull_back(self.pooled) + model.planner.beside_gradient(self.x[: model.planner.size])
        return np.append(of_planner, model.units.times @ self.posterior - model.n * self.weights)

    @cached_property
    def informations(self) -> tuple[Floats, Floats]:
        """Return C and M `(p,p)`."""
        model, times = self.model, self.model.units.times
        complete, missing = np.zeros((model.size, model.size)), np.zeros((model.size, model.size))
        parts = []  # of each plan, the units' decisions, its type, places in x, and derivatives of log π there
        for i, (plan, of_tasks) in enumerate(zip(self.plans.plans, model.parts, strict=True)):
            rows, places, scores = self.plans.scores(i)
            expected = (self.pooled[i].sum(axis=0) * plan.policy).reshape(-1, plan.lam.size)[rows]
            for counts, which, kinds in of_tasks:
                for j, kind in zip(which.tolist(), kinds.tolist(), strict=True):
                    slopes = scores[:, j]
                    complete[np.ix_(places[j], places[j])] += slopes.T @ (expected[:, j, None] * slopes)
                    parts.append((counts, kind, places[j], slopes))
        share = np.arange(model.shares.start, model.size)
        complete[share, share] += model.n * self.weights
        together = max(1, 20_000_000 // (model.types * model.size))  # units at a time, for the memory
        for low in range(0, times.size, together):
            some = slice(low, low + together)
            each = np.zeros((model.types, times[some].size, model.size))  # s_ik
            for counts, kind, places_of, slopes in parts:
                each[kind][:, places_of] += counts[some] @ slopes
            each[np.arange(model.types), :, share] = 1.0
            each -= np.einsum("uk,kup->up", self.posterior[some], each)
            for kind in range(model.types):
                missing += each[kind].T @ ((times * self.posterior[:, kind])[some, None] * each[kind])
        return complete, missing

    @cached_property
    def held(self) -> Floats:
        """Return the curvature `(p,p)` of the penalties."""
        planner = self.model.planner
        matrix = np.zeros((self.model.size, self.model.size))
        if planner.penalty is not None:
            matrix[: planner.size, : planner.size] += planner.penalty.matrix
        first = np.arange(planner.n_reward)
        matrix[first, first] += planner.ridge
        return matrix

    def metric(self) -> Metric:
        """Return `C − M` where it is well above 0, and what is left of C otherwise."""
        complete, missing = self.informations
        complete = complete + self.held
        sizes = np.diag(complete)
        scale = 1 / np.sqrt(np.maximum(sizes, 1e-10 * sizes.max()))  # nothing is known of a type without a weight
        root = la.cholesky(complete * np.outer(scale, scale) + 1e-9 * np.eye(sizes.size), lower=True)
        inner = la.solve_triangular(root, missing * np.outer(scale, scale), lower=True)
        inner = la.solve_triangular(root, inner.T, lower=True)
        left, vectors = np.linalg.eigh(np.eye(sizes.size) - (inner + inner.T) / 2)
        half = (root @ vectors) / scale[:, None]
        return Dense((half * np.maximum(np.abs(left), 1e-3)) @ half.T)

    def moved(self, x: Floats) -> TypesPoint | None:
        """Return the model at another x."""
        return self.model.at(x, self)

    def bend(self, ahead: TypesPoint, behind: TypesPoint, share: float) -> Floats:
        """Return how the policies of the types bend along a step, as in `ChoicePoint`."""
        logs = [[plan.finite_log for plan in point.plans.plans] for point in (self, ahead, behind)]
        expected = [pooled.sum(axis=0) * plan.policy for pooled, plan in zip(self.pooled, self.plans.plans, strict=True)]
        bends = [w * (a - 2 * here + b) / share**2 for w, here, a, b in zip(expected, *logs, strict=True)]
        return np.append(self.plans.pull_back(bends), np.zeros(self.model.types))

    def projected_gradient(self) -> float:
        """Return the largest entry of the gradient for each decision, without what is known or rests on a bound."""
        model = self.model
        scaled = self.gradient.copy()
        scaled[: model.planner.n_reward] /= model.planner.feature_sizes
        decisions = sum(float(model.units.times @ counts.sum(axis=1)) for counts in model.units.tasks)
        return float(np.abs(scaled[~resting(self) & ~model.fixed]).max(initial=0.0)) / decisions

    @cached_property
    def covariance(self) -> Floats:
        """Of x `(p,p)`, with the penalties; 0 for what is known, and without directions of which nothing is known."""
        free = np.flatnonzero(~self.model.fixed)
        covariance = np.zeros((self.model.size, self.model.size))
        matrix = self.informations[0] - self.informations[1] + self.held
        covariance[np.ix_(free, free)] = spectrum(matrix[np.ix_(free, free)], tol=1e-9).inverse
        return covariance

    def identified(self) -> Bools:
        """Return whether the decisions alone, without the penalty on the reward, say anything of each discount `(K,)`."""
        planner = self.model.planner
        free = np.flatnonzero(~self.model.fixed)
        matrix = self.informations[0] - self.informations[1] + self.held
        first = np.arange(planner.n_reward)
        matrix[first, first] -= planner.ridge
        determined = np.ones(self.model.size, dtype=np.bool_)
        determined[free] = spectrum(matrix[np.ix_(free, free)], tol=1e-9).identified()
        return determined[planner.discount_slice]


def ascend(start: TypesPoint, steps: int = 300, gain: float = 1e-7, held: Bools | None = None) -> Ascent[TypesPoint]:
    """Climb to a local maximum of the objective, some parameters held."""
    fixed = start.model.fixed if held is None else start.model.fixed | held
    end = climb(start, fixed, Tolerances(gain, steps))
    if not end.finished and end.steps < steps:  # stuck just before a bound, on which a new climb puts it
        end = climb(end.point, fixed, Tolerances(gain, steps))
    return end


def _best(ends: list[Ascent[TypesPoint]]) -> Ascent[TypesPoint]:
    return max(ends, key=lambda end: end.point.objective)


def one_type(model: TypesModel) -> Ascent[TypesPoint]:
    """Return the most likely answer with one type."""
    planner = model.planner
    starts: list[TypesPoint | None]
    if model.reward is None:
        begun = (choice_probability_start(planner, np.array([level * model.largest])) for level in (0.1, 0.5, 0.9))
        starts = [model.at(np.append(start.x, 0.0)) for start in begun if start is not None]
    else:
        rewards = [task.pooled.at(0.5).expected_reward(model.reward) for task in model.problem.tasks]
        size = max(float(np.abs(reward).max()) for reward in rewards) or 1.0
        pairs = product((0.05, 0.3, 0.6, 0.8, 0.95), size * np.array([0.01, 0.03, 0.1, 0.3, 1.0, 3.0]))
        tried = [
            model.at(model.pack(model.reward, np.array([g * model.largest]), np.array([temperature]), np.ones(1)))
            for g, temperature in pairs
        ]
        starts = [*sorted((p for p in tried if p is not None), key=lambda point: -point.objective)[:2]]
    points = [start for start in starts if start is not None]
    if not points:
        raise ValueError("no starting point has finite soft values: check that the rewards' features and the transitions agree")
    return _best([ascend(point) for point in points])


def _apart(discount: float, largest: float) -> list[float]:
    """Return two discounts around one, a logit on either side."""
    middle = logit(np.clip(discount / largest, 0.01, 0.99))
    return [float(largest * expit(middle - 1)), float(largest * expit(middle + 1))]


def _one_more_starts(point: TypesPoint, more: TypesModel) -> Iterator[TypesPoint | None]:
    """Yield points of the model with one more type from which to climb."""
    model, theta, gamma, lam, w = point.model, point.reward, point.discounts, point.temperatures, point.weights
    grid = more.largest * np.array([0.05, 0.3, 0.6, 0.85, 0.97])
    if model.types == 1 and model.reward is None:
        held = np.zeros(model.size, dtype=np.bool_)
        held[model.planner.discount_slice] = True
        for level in more.largest * np.array([0.1, 0.3, 0.5, 0.7, 0.9]):
            start = model.at(np.where(held, level, point.x), point)
            if start is not None:
                alone = ascend(start, 8, 1e-2, held).point
                yield more.at(more.pack(alone.reward, np.array(_apart(level, more.largest)), np.repeat(lam, 2), np.full(2, 0.5)))
        return
    by_temperature = model.planner.n_temperatures == model.types and model.reward is not None
    for j in range(model.types):
        halves = np.append(np.delete(w, j), [w[j] / 2] * 2)
        rest, others = np.delete(gamma, j), np.delete(lam, j)
        apart = np.append(rest, _apart(gamma[j], more.largest))
        yield more.at(more.pack(theta, apart, np.append(others, [lam[j]] * 2), halves))
        if by_temperature:
            yield more.at(more.pack(theta, np.append(rest, [gamma[j]] * 2), np.append(others, [lam[j] / 2, lam[j] * 2]), halves))
    typical = float(np.exp(w @ np.log(lam) / w.sum()))
    tried = [
        more.at(more.pack(theta, np.append(gamma, g), np.append(lam, factor * typical), np.append(0.8 * w, 0.2)))
        for g, factor in product(grid, (1 / 3, 1.0, 3.0) if by_temperature else (1.0,))
    ]
    yield from sorted((p for p in tried if p is not None), key=lambda p: -p.objective)[:2]


def one_more(end: Ascent[TypesPoint], gain: float = 1e-5) -> Ascent[TypesPoint]:
    """Return the most likely answer with one more type and the same penalty."""
    more = end.point.model.with_types(end.point.model.types + 1, end.point.model.ridge)
    starts = [start for start in _one_more_starts(end.point, more) if start is not None]
    ends = sorted((ascend(start, 8, 1e-3) for start in starts), key=lambda each: -each.point.objective)
    return _best([each if each.finished and gain >= 1e-3 else ascend(each.point, gain=gain) for each in ends[:2]])


def with_likely_rewards(end: Ascent[TypesPoint]) -> tuple[Ascent[TypesPoint], float]:
    """Return the answer with the deviation τ of rewards that the decisions choose, and τ."""
    planner = end.point.model.planner
    sizes, tau = planner.feature_sizes, np.inf
    for _ in range(30):
        ridge = end.point.model.planner.ridge
        errors = np.diag(end.point.covariance)[: planner.n_reward]
        determined = float((1 - ridge * errors).sum())
        size = float(((end.point.reward * sizes) ** 2).sum())
        new = float(np.clip(np.sqrt(size / max(determined, 1e-9)), 0.1, WEAK_PRIOR))
        if abs(new - tau) < 0.01 * new:
            break
        tau = new
        model = end.point.model.with_types(end.point.model.types, (sizes / tau) ** 2)
        start = model.at(end.point.x)
        assert start is not None
        end = ascend(start)
    return end, tau


def in_order(point: TypesPoint) -> TypesPoint:
    """Return the same answer with types in the order of their discounts, and then of their temperatures."""
    order = np.lexsort((point.temperatures, point.discounts))
    model = point.model
    x = model.pack(point.reward, point.discounts[order], point.temperatures[order], point.weights[order])
    ordered = model.at(x)
    assert ordered is not None
    return ordered


@dataclass(frozen=True, eq=False)
class Begun:
    """Episodes `(E,)` of units: whose they are, the task, the first state, and the most decisions they can have."""

    unit: Ints
    task: Ints
    state: Ints
    most: Ints

    @classmethod
    def of(cls, problem: Problem) -> Begun | None:
        """Return those of a problem; None where some units come from no table of episodes."""
        place = pd.Index(problem.names)
        parts = []
        for number, task in enumerate(problem.tasks):
            endless = bool(task.mdp.never_ends().any())
            for table in task.tables:
                episodes = table.by_episode
                unit = place.get_indexer(pd.Index(table.experts))[episodes.expert]
                state = table.match(task.mdp)[0][episodes.first_state]
                most = episodes.length if endless else np.full(unit.size, episodes.length.max())
                kept = (unit >= 0) & ~task.mdp.terminal[state]
                parts.append(np.stack([unit, np.full(unit.size, number), state, most])[:, kept])
        begun = cls(*np.concatenate([np.zeros((4, 0), dtype=np.int64), *parts], axis=1))
        return begun if np.unique(begun.unit).size == len(problem.names) else None


class Simulator:
    """Draws studies from fitted types: units with the same episodes, each unit of a type that is drawn, deciding as it does.

    States are taken in the order of their values, actions in that of their probabilities, and units in that of their episodes,
    so that the same random numbers meet the same decisions however all of them are listed.
    """

    def __init__(self, point: TypesPoint, begun: Begun) -> None:
        self.problem = point.model.problem
        self.weights = point.weights / point.weights.sum()
        k = point.model.types
        plans = dict[tuple[int, int], tuple[Plans, int]]()
        for plan in point.plans.plans:
            plans |= {divmod(place, k): (plan, j) for j, place in enumerate(plan.persons.positions.tolist())}
        self.tables, ranks = [], []
        for number, task in enumerate(self.problem.tasks):
            of_task = [plans[number, kind] for kind in range(k)]
            values = np.stack([plan.values[:, j] for plan, j in of_task], axis=1) @ self.weights
            order = np.argsort(np.round(values / max(float(np.abs(values).max()), TINY), 9), kind="stable")
            policies = np.stack([plan.policy[:, :, j].T for plan, j in of_task])
            actions = np.argsort(np.round(policies, 9), axis=2, kind="stable")
            chances = np.take_along_axis(policies, actions, axis=2).cumsum(axis=2)
            moves = sp.csr_array(task.mdp.stacked[:, order])
            moves.sort_indices()
            self.tables.append((order, actions, chances, moves, np.cumsum(moves.data)))
            ranks.append(np.argsort(order))
        rank = [ranks[task][state] for task, state in zip(begun.task.tolist(), begun.state.tolist(), strict=True)]
        keys: dict[int, list[tuple[int, int, int]]] = {}
        for unit, *key in zip(begun.unit.tolist(), begun.task.tolist(), map(int, rank), begun.most.tolist(), strict=True):
            keys.setdefault(unit, []).append((key[0], key[1], key[2]))
        listed = sorted(sorted(episodes) for episodes in keys.values())
        self.unit: Ints = np.repeat(np.arange(len(listed)), [len(episodes) for episodes in listed])
        self.task, self.first, self.most = np.array([key for episodes in listed for key in episodes], dtype=np.int64).T

    def draw(self, rng: np.random.Generator) -> Problem:
        """Return one study."""
        n = int(self.unit[-1]) + 1
        kinds = rng.choice(self.weights.size, size=n, p=self.weights)
        tasks = []
        for number, (task, (order, actions, chances, moves, ends)) in enumerate(
            zip(self.problem.tasks, self.tables, strict=True)
        ):
            mdp = task.mdp
            running = np.flatnonzero(self.task == number)
            state = order[self.first[running]]
            left = self.most[running]
            cells = [np.zeros(0, dtype=np.int64)]
            while running.size:
                kind = kinds[self.unit[running]]
                running_chances = chances[kind, state]
                drawn = (rng.random((running.size, 1)) * running_chances[:, -1:] >= running_chances).sum(axis=1)
                row = actions[kind, state, np.minimum(drawn, mdp.n_actions - 1)] * mdp.n_states + state
                cells.append(self.unit[running] * moves.shape[0] + row)
                # the next state is found by bisection in the running sum of all transitions, between the ends of its row
                start, end = moves.indptr[row], moves.indptr[row + 1]
                low = np.where(start > 0, ends[start - 1], 0.0)
                entry = np.searchsorted(ends, low + rng.random(row.size) * (ends[end - 1] - low), side="right")
                state = order[moves.indices[np.clip(entry, start, end - 1)]]
                left = left - 1
                alive = (left > 0) & ~mdp.terminal[state]
                running, state, left = running[alive], state[alive], left[alive]
            cell, times = np.unique(np.concatenate(cells), return_counts=True)
            places = cell // moves.shape[0], cell % moves.shape[0]
            counts = sp.csr_array((times.astype(np.float64), places), shape=(n, moves.shape[0]))
            tasks.append(replace(task, counts=counts, tables=()))
        return Problem.of_tasks(tuple(map(str, range(n))), self.problem.parameter_names, tasks)


def gained(few: Ascent[TypesPoint], more: Ascent[TypesPoint]) -> float:
    """Return `2 (L_{K+1} − L_K)`, which cannot be negative."""
    return max(0.0, 2 * (more.point.objective - few.point.objective))


def number_test(few: Ascent[TypesPoint], statistic: float, begun: Begun, rng: np.random.Generator, run: Run) -> dict[str, Any]:
    """Return the test of one more type than these, which gained so much: "p", the number of "simulations", and the "largest" gain
    there.

    A study whose climbs do not end counts as one that gains as much.
    """
    simulator = Simulator(few.point, begun)
    model = few.point.model
    draws, as_much, number, largest = 99, 0, 0, 0.0
    while number < draws and 1 + as_much <= 0.05 * (1 + draws):
        if (number >= 39 and not as_much) or (number >= 19 and 3 * largest < statistic):
            break
        number += 1
        drawn = simulator.draw(rng)
        start = TypesModel(drawn, Units.of(drawn), model.types, model.reward, model.ridge).at(few.point.x)
        again = None if start is None else ascend(start, gain=1e-4)
        value = np.inf
        if again is not None and again.finished:
            further = one_more(again, 1e-3)
            value = gained(again, further) if further.finished else np.inf
        as_much = as_much + (value >= statistic)
        largest = max(largest, value)
        run.progress(number / draws, f"{count(model.types, 'type')} in study {number} of at most {draws}")
    return {"p": (1 + as_much) / (1 + number), "simulations": number, "largest": largest}


@dataclass(frozen=True, eq=False)
class TypesFit:
    """The types, in order.

    Attributes:
        end: the climb to the maximum.
        tests: one row for each number of types that was fitted: "types", the "log_likelihood", and of the test of one more type
            the "statistic", "p", the number of "simulations" and the "largest" statistic there, None where it was not made; and
            whether all climbs were "finished".
        deviation: that of the rewards, in temperatures; None where it was not estimated.
    """

    end: Ascent[TypesPoint]
    tests: list[dict[str, Any]]
    deviation: float | None

    @property
    def converged(self) -> bool:
        """Return whether the climb ended at a maximum."""
        return self.end.finished and self.end.point.projected_gradient() <= CONVERGED_GRADIENT


def fit_types(problem: Problem, reward: Floats | None, types: int | None, ridge: float | None, run: Run) -> TypesFit:
    """Return so many types, or as many as tests find; the seed of the run is that of the simulated studies."""
    for number in np.flatnonzero(sum(np.asarray(task.counts.sum(axis=1)).ravel() for task in problem.tasks) == 0)[:1]:
        raise without_decisions(problem.names[number])
    if types is not None and problem.n_experts < types:
        raise ValueError(f"there must be at least as many units as types, got {problem.n_experts} and {types}: ask for fewer")
    if reward is None and problem.n_parameters > limits().dense_rewards:
        raise ValueError(
            f"types can be found with at most {limits().dense_rewards} unknown rewards, got {problem.n_parameters:,}: give "
            "the reward, or tie the rewards of similar states together with features"
        )
    begun = Begun.of(problem) if types is None else None
    if types is None and begun is None:
        raise ValueError(
            "the number of types is found by simulating episodes, got counts of decisions without their table: give types, "
            "or Demonstrations"
        )
    units = Units.of(problem)
    rng = np.random.default_rng(run.seed)
    deviation = None
    model = TypesModel(problem, units, 1, reward, np.full(problem.n_parameters, 0.0 if ridge is None else ridge))
    likely = reward is None and ridge is None
    if likely:
        model = model.with_types(1, (model.planner.feature_sizes / WEAK_PRIOR) ** 2)
    end = one_type(model)
    tests = []
    most = min(6, problem.n_experts) if types is None else types  # nobody could tell more apart, nor read them
    for k in range(1, most + 1):
        if likely:
            end, deviation = with_likely_rewards(end)
        row: dict[str, Any] = {"types": k, "log_likelihood": end.point.value, "finished": end.finished}
        row |= {"statistic": None, "p": None, "simulations": 0, "largest": None}
        tests.append(row)
        part = run.part(1 - 0.6 ** (k - 1), 1 - 0.6**k)
        part.progress(0.0, f"{count(k, 'type')}: log-likelihood {decimals(end.point.value, 2)}")
        if k == most and types is not None:
            break
        more = one_more(end) if k < problem.n_experts else end
        row |= {"statistic": gained(end, more), "finished": end.finished and more.finished}
        if begun is not None:
            row |= number_test(end, row["statistic"], begun, rng, part)
            if row["p"] > 0.05 or k == most:
                break
        end = more
    start = in_order(end.point)
    return TypesFit(ascend(start, gain=1e-10) if end.finished else replace(end, point=start), tests, deviation)


def types_solution(problem: Problem, fit: TypesFit) -> Solution:
    """Return what is known of the types and of each unit; the problem has the known reward."""
    point, model, planner = fit.end.point, fit.end.point.model, fit.end.point.model.planner
    identified = point.identified()
    usable = fit.converged and bool(identified.all())
    covariance, d = point.covariance, planner.n_reward
    errors = np.where(identified & fit.converged, np.sqrt(np.diag(covariance)[planner.discount_slice]), np.nan)
    shares = point.weights / point.weights.sum()
    moved = np.diag(shares) - np.outer(shares, shares)
    of_shares = moved @ covariance[model.shares, model.shares] @ moved
    logs = np.sqrt(np.diag(covariance)[planner.temperature_slice])[planner.temperature_groups]
    posterior = point.posterior[model.units.place]
    discounts = posterior @ point.discounts
    spread = posterior @ (point.discounts**2 + np.where(identified, errors, 0.0) ** 2) - discounts**2
    spread[posterior[:, ~identified].sum(axis=1) > 1 - LEVEL] = np.nan
    residual = point.projected_gradient()
    decisions = sum(float(task.counts.sum()) for task in problem.tasks)
    types = {
        "number": model.types,
        "chosen": fit.tests[-1]["p"] is not None,
        "reward_known": model.reward is not None,
        "shares": shares.tolist(),
        "share_errors": np.sqrt(np.maximum(np.diag(of_shares), 0.0)).tolist(),
        "discounts": point.discounts.tolist(),
        "intervals": type_intervals(point.discounts, errors, model.largest, LEVEL).tolist(),
        "standard_errors": errors.tolist(),
        "identified": identified.tolist(),
        "temperatures": point.temperatures.tolist(),
        "log_temperature_errors": logs.tolist(),
        "likeliest": np.bincount(posterior.argmax(axis=1), minlength=model.types).tolist(),
        "certainty": float(posterior.max(axis=1).mean()),
        "tests": fit.tests,
        "reward_deviation": fit.deviation,
    }
    findings = PopulationFindings(
        persons=problem.n_experts,
        left_out={},
        degrees=problem.n_experts - int((~model.fixed).sum()),
        discount={},
        temperature={},
        factors={"discount": {}, "temperature": {}},
        contrasts={"discount": [], "temperature": []},
        columns_of={},
        discount_covariance=[],
        weak_priors={},
        spread={},
        predictions={},
        groups=np.full(problem.n_experts, "everyone", dtype=object),
        covariates={},
        individuals={"posterior": posterior, "log_likelihood": point.marginal[model.units.place]},
        largest_discount=model.largest,
        steps=fit.end.steps,
        cautions=[],
        types=types,
    )
    answer = ExpertValues(problem.names, point.reward.copy(), discounts, posterior @ point.temperatures, problem.parameter_names)
    source = TypesEstimate(answer, point.discounts, errors, posterior, model.largest, findings)
    words = [
        f"Log-likelihood {decimals(point.value, 2)} of {decimals(decisions, 0)} decisions of {count(problem.n_experts, 'unit')}.",
        number_words(types),
    ]
    if not fit.converged:
        words.append(
            f"The optimiser stopped before converging, with a gradient of {power_of_ten(residual)} per decision: "
            "do not use this answer."
        )
    elif not usable:
        words.append(open_words(types))
    broken = [str(test["types"]) for test in fit.tests if not test["finished"]]
    if broken and types["chosen"]:
        words.append(f"Fits in the test of {in_words(broken)} and one more types did not converge: their number is not reliable.")
    if fit.deviation is not None:
        words.append(
            f"Rewards have a normal prior with mean 0 and a standard deviation of {significant(fit.deviation)} temperatures, "
            f"{'the largest that is tried' if fit.deviation >= WEAK_PRIOR else 'which the decisions chose'}."
        )
    status = Status.CONVERGED if usable else Status.NOT_IDENTIFIED if fit.converged else Status.NOT_CONVERGED
    reward_errors = np.sqrt(np.diag(covariance)[:d])
    return Solution.of(
        "Population",
        problem,
        source,
        status,
        words,
        objective=point.value,
        residual=residual,
        evidence=PopulationEvidence(
            population=findings,
            log_likelihood=point.value,
            decisions=decisions,
            reward_standard_errors=[float(error) if usable or model.reward is not None else None for error in reward_errors],
            ridge=float(np.max(model.ridge, initial=0.0)),
            ridge_reason="",
        ),
        standard_errors=np.sqrt(np.maximum(spread, 0.0)),
    )


def number_words(types: Mapping[str, Any]) -> str:
    """Return how many types there are, and how that is known, in a sentence or two."""
    number = count(types["number"], "type")
    last = types["tests"][-1]
    if not types["chosen"]:
        return f"{number} {'was' if types['number'] == 1 else 'were'} asked for."
    tried = f"{count(last['simulations'], 'simulated study')}".replace("studys", "studies")
    if last["p"] <= 0.05:
        return (
            f"At least {number}: more were not tried, although one more fits better than by chance (p = "
            f"{decimals(last['p'], 2)})."
        )
    fewer = ""
    if types["number"] > 1:
        test = types["tests"][-2]
        fewer = f"The last of them gains {decimals(test['statistic'], 1)} in twice the log-likelihood, and by chance, in "
        fewer += (
            f"{test['simulations']} simulated studies, at most {decimals(test['largest'], 1)} (p = {decimals(test['p'], 3)}). "
        )
    one_more = f"One more does not fit better than by chance (p = {decimals(last['p'], 2)}, by {tried})."
    return f"{number} {'is' if types['number'] == 1 else 'are'} enough. {fewer}{one_more}"


def open_words(types: Mapping[str, Any]) -> str:
    """Return which discounts are not identified, and why, in a sentence."""
    given = types.get("reward_known", False)
    if types["number"] == 1:
        why = "others are as likely" if given else "with one type, other rewards explain the same decisions as well"
        return f"The discount of the one type is not identified: {why}."
    names = [f"type {k + 1}" for k, identified in enumerate(types["identified"]) if not identified]
    instead = "ask for fewer types" if given else "ask for fewer types, or give the reward"
    return f"The discount of {in_words(names)} is not identified: {instead}."


def types_words(types: Mapping[str, Any]) -> str:
    """Return the types in a sentence or two: how many, their shares, and their discounts."""
    each = [
        f"{percent(share)} have a discount "
        + (
            f"of {decimals(discount, 3)} ({decimals(low, 3)} to {decimals(high, 3)})"
            if high - low <= VAGUE_WIDTH
            else f"from {decimals(low, 3)} to {decimals(high, 3)}"
        )
        for share, discount, (low, high), identified in zip(
            types["shares"], types["discounts"], types["intervals"], types["identified"], strict=True
        )
        if identified
    ]
    parts = [
        number_words(types),
        *([f"{in_words(each)}."] if each else []),
        *([] if all(types["identified"]) else [open_words(types)]),
    ]
    return " ".join(parts)
