"""Models of choice: the log-likelihood of decisions as a function of reward, discounts and temperatures, and its derivatives.

A model gives the log-likelihood `L(x)` of decisions as a function of `x = (θ, γ, log λ, ε, κ, t)`: d reward parameters, how far
each group of experts looks ahead (a discount, or a few coordinates), the logarithm of each temperature, where choices have
habits the share of lapses and the pull of the last action (`plans`) and, where estimated transitions give way, one number for
each of their moves. What is known keeps its value; the rest moves inside bounds. What is
maximised is

    L(x) − ½ θᵀRθ − ½ (x−c)ᵀA(x−c) + bᵀ(x−c).

R is a ridge: weights `(d,)`, or a matrix `(d,d)` such as the roughness of a function. The other term holds what is known of x
besides the decisions, such as the spread of temperatures, or the decisions of experts who are not looked at again. Logged moves
add the log-likelihood of t (`plans`). A common factor of all λ and θ leaves every policy as it is; where no part of the reward
is known, this direction is open.

Three models: `Likelihood` (states in a list), `weighted.WeightedLikelihood` (look-ahead that is not a discount) and
`sieve_model.SieveModel` (continuous states). Each says how it plans (`at`) and how choices move with x, backwards
(`ChoicePoint.pull_back`) and forwards (`ChoicePoint.blocks`). Layout, penalties, gradient and curvature are the same for all.

*Listed states.* Expert k, with discount γ and temperature λ, is seen to take action a in state s `N(s,a)` times, `n(s) = Σ_a
N(s,a)`. Under reward parameters θ the log-likelihood of these choices, given the states in which they were made, is

    L = Σ_k Σ_{s,a} N(s,a) log π(a|s),   λ log π(a|s) = Q(s,a) − V(s),   Q = R₀ + F θ + γ T V,   V(s) = λ log Σ_a exp(Q(s,a)/λ),

with R₀ the known part of the reward, if there is one. It is undiscounted: each decision counts once, whenever it was made. V
solves a fixed-point equation (the nested fixed point of Rust, 1987) and is differentiated through it. With `P = Σ_a π T`, H the
entropy of π and `πF` the policy's average of F's rows,

    dV = (I − γP)^{-1} [πF dθ + P V dγ + H dλ],      dQ = F dθ + T V dγ + γ T dV,
    d log π(a|s) = (dQ(s,a) − dV(s))/λ − log π(a|s) dλ/λ.

*Backwards*: with `G = (N − nπ)/λ` and one adjoint solve `w = (I − γPᵀ)^{-1} γ TᵀG` an expert's gradient is `Fᵀ(G + π w)` in θ,
`⟨G + π w, TV⟩` in γ and `w·H − Σ (nH + N log π)/λ` in λ; the cost does not depend on how many parameters there are.
*Forwards*: the rows ψ(s,a) of d log π, by one solve for each parameter, give the Fisher information `Σ n(s) π(a|s) ψψᵀ`.
*Products* of the information with a vector v are one forward solve (`J v`, how log π moves along v) and one adjoint solve
(`Jᵀ W (J v)`) per expert. With very many parameters they stand in for the matrix.

*For rewards and optimisers of your own* `log_likelihood` gives the value with its gradient. A reward that is computed by a
network of weights w follows by the chain rule, `∂L/∂w = (∂θ/∂w)ᵀ ∂L/∂θ`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Self, cast

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import ArrayLike

from multihorizon.checks import (
    ENDLESS_DISCOUNT,
    TINY,
    Floats,
    Ints,
    Sparse,
    as_floats,
    as_shape,
)
from multihorizon.choice.plans import (
    Choices,
    Decided,
    Engine,
    Habits,
    LoggedMoves,
    Persons,
    Plans,
    logged_moves,
    persons_by_task,
)
from multihorizon.choice.settings import Clusters, Settings, by_last_action
from multihorizon.mdp import MDP, is_narrow
from multihorizon.numerics.newton import Dense, Metric, Products, resting
from multihorizon.parallel import limits
from multihorizon.problem import Problem, require_counts, require_finite


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The term `−½ (x−c)ᵀA(x−c) + bᵀ(x−c)` of the objective: centre c, slope b, and a matrix A, dense or sparse."""

    centre: Floats
    slope: Floats
    matrix: Floats | Sparse

    def __call__(self, x: Floats) -> float:
        """Return its value at x."""
        return float((self.slope - 0.5 * self.matrix @ (x - self.centre)) @ (x - self.centre))

    def gradient(self, x: Floats) -> Floats:
        """Return its gradient at x."""
        return self.slope - self.matrix @ (x - self.centre)

    def without(self, positions: slice, put: int) -> Quadratic:
        """Return the same term without the parameters at `positions`, and with `put` new ones there, of which it says nothing."""
        size = self.centre.size - (positions.stop - positions.start) + put
        keep = np.r_[: positions.start, positions.stop : self.centre.size]
        room = np.r_[: positions.start, positions.start + put : size]
        centre, slope = np.zeros(size), np.zeros(size)
        centre[room], slope[room] = self.centre[keep], self.slope[keep]
        return Quadratic(centre, slope, placed(sp.csr_array(self.matrix)[keep][:, keep], room, size))


def placed(block: Floats | Sparse, room: Ints, size: int) -> Sparse:
    """Return a matrix `(size,size)` that is 0 outside the given rows and columns."""
    entries = sp.coo_array(block)
    return sp.csr_array((entries.data, (room[entries.row], room[entries.col])), shape=(size, size))


def group_numbers(groups: tuple[int, ...] | None, size: int) -> Ints:
    """Return the group of each expert; without groups, each has their own."""
    return np.arange(size) if groups is None else np.array(groups, dtype=np.int64)


def known_of_groups(values: Floats, groups: Ints) -> Floats:
    """Return the known value of each group; NaN where none is known, or where its members have different ones."""
    shared = np.full(int(groups.max()) + 1, np.nan)
    for group in range(shared.size):
        distinct = np.unique(values[(groups == group) & ~np.isnan(values)])
        if distinct.size == 1:
            shared[group] = distinct[0]
    return shared


def usual_temperature(known_range: float) -> float:
    """Return an eighth of the range of a known reward, at which choices follow it without being certain; 1 where that is 0."""
    return known_range / 8 or 1.0


def log_temperature_bounds(usual: float, known_range: float) -> tuple[float, float]:
    """Return between which log-temperatures the most likely one is looked for, in units of the usual temperature."""
    # Beyond a factor of 148 a temperature is only a certain or a uniform policy. Where a known reward sets the scale, what it
    # pays far ahead may be worth much less than its range, or add up to more.
    low, high = (-6.0, 8.0) if known_range else (-5.0, 5.0)
    return float(np.log(usual)) + low, float(np.log(usual)) + high


#: The largest share of lapses, and the one at which a search begins. At 1 nothing else could be seen.
MOST_LAPSES, FIRST_LAPSES = 0.95, 0.05


class ChoiceModel(ABC):
    """The log-likelihood of decisions as a function of x.

    Args:
        n_experts: K, how many people there are.
        n_reward: d, how many reward parameters.
        settings: what is known, and which experts share a parameter.
        bounds: of each coordinate of the look-ahead.
        penalty: the quadratic term of the objective; None for none.
        ridge: R, weights `(d,)` or a matrix `(d,d)`.

    Attributes:
        batches: the decisions, in parts that are planned together.
        decisions: how many there are.
        feature_sizes: the largest entry of each feature `(d,)`; 1 for features without entries and for functions of a basis.
        groups, temperature_groups: for each of the K experts which look-ahead and which temperature is theirs.
        size: p, the number of parameters, known ones included.
        discount_slice, temperature_slice, habit_slice, transition_slice: where discounts (or coordinates of the look-ahead),
            log-temperatures, lapses and stickiness, and the numbers by which estimated transitions give way stand; the last two
            are `beside_slice`.
        lower, upper: bounds `(p,)` of the parameters.
        known: x with the values of what is known, NaN elsewhere; `fixed` `(p,)` marks it.
        known_temperature: the unit of rewards and temperatures: the geometric mean of the temperatures that are known; where none
            is, an eighth of the range of the known reward; 1 where nothing is known.
        scale_is_free: whether a common factor of reward and temperatures is open: no part of either is known.
    """

    batches: Sequence[Decided]
    feature_sizes: Floats
    #: How many numbers say how far ahead an expert looks.
    n_coordinates: int = 1
    #: The range of what is known of the reward; 0 where nothing is.
    known_range: float = 0.0
    #: How often each move of estimated transitions that gives way was counted.
    move_counts: Floats = np.zeros(0)
    #: Which decisions are independent of each other; None where all are.
    clusters: Clusters | None = None

    def __init__(
        self,
        n_experts: int,
        n_reward: int,
        settings: Settings,
        bounds: tuple[float, float],
        penalty: Quadratic | None = None,
        ridge: Floats | float = 0.0,
    ) -> None:
        self.n_experts, self.n_reward = n_experts, n_reward
        self.settings, self.penalty, self._look_ahead_bounds = settings, penalty, bounds
        self.decisions = float(sum(batch.visits.sum() for batch in self.batches))
        self._hold(penalty, ridge)
        self._lay_out()

    def _hold(self, penalty: Quadratic | None, ridge: Floats | float) -> None:
        weights = np.asarray(ridge, dtype=np.float64)
        self.penalty = penalty
        self.ridge: Floats = weights if weights.ndim == 2 else np.broadcast_to(weights, (self.n_reward,))

    def _lay_out(self) -> None:
        """Where each parameter stands in x, what is known of it, and its bounds."""
        settings = self.settings
        self.groups: Ints = group_numbers(settings.groups, self.n_experts)
        self.temperature_groups: Ints = group_numbers(settings.temperature_groups, self.n_experts)
        self.n_discounts = (int(self.groups.max()) + 1) * self.n_coordinates
        self.n_temperatures = int(self.temperature_groups.max()) + 1
        self.n_transitions = self.move_counts.size
        self.n_habits = 2 if settings.has_habits else 0
        sizes = (self.n_reward, self.n_discounts, self.n_temperatures, self.n_habits, self.n_transitions)
        first, second, third, fourth, self.size = np.cumsum(sizes).tolist()
        self.discount_slice, self.temperature_slice = slice(first, second), slice(second, third)
        self.habit_slice, self.transition_slice = slice(third, fourth), slice(fourth, self.size)
        self.beside_slice = slice(third, self.size)
        #: Whether a dense information matrix is out of the question.
        self.is_large = self.n_reward > limits().dense_rewards or self.size > limits().dense_parameters
        rewards = np.full(self.n_reward, np.nan) if settings.reward is None else settings.reward
        ahead = np.full(self.n_discounts, np.nan)
        if settings.discounts is not None:
            ahead[:] = known_of_groups(settings.discounts, self.groups)
        temperatures = np.ones(self.n_experts) if settings.temperatures is None else settings.temperatures
        logs = np.log(known_of_groups(temperatures, self.temperature_groups))
        habits = np.array([settings.lapse, settings.stickiness][: self.n_habits])
        self.known: Floats = np.concatenate([rewards, ahead, logs, habits, np.full(self.n_transitions, np.nan)])
        self.fixed = ~np.isnan(self.known)
        given = logs[~np.isnan(logs)]
        self.known_temperature = float(np.exp(given.mean())) if given.size else usual_temperature(self.known_range)
        self.scale_is_free = settings.reward is None and not self.known_range and not given.size
        low, high = self._look_ahead_bounds
        gives_way = 6.0  # an estimated probability may change by a factor of e^6, one way or the other
        coldest, hottest = log_temperature_bounds(self.known_temperature, self.known_range)
        lower = np.repeat([-np.inf, low, coldest, 0.0, -gives_way], sizes)
        upper = np.repeat([np.inf, high, hottest, MOST_LAPSES, gives_way], sizes)
        # Beyond 20 temperatures an action is repeated, or left, for certain.
        pull = 20 * self.known_temperature
        lower[self.habit_slice][1:], upper[self.habit_slice][1:] = -pull, pull
        self.lower: Floats = np.where(self.fixed, self.known, lower)
        self.upper: Floats = np.where(self.fixed, self.known, upper)

    @abstractmethod
    def at(self, x: Floats, near: ChoicePoint | None = None) -> ChoicePoint | None:
        """Return the model at x, its plans started from those of a `near` point; None where a value is infinite."""

    @abstractmethod
    def person_values(self, point: Any) -> Floats:
        """Return the log-likelihood `(K,)` of each expert's decisions at a point."""

    @property
    def units(self) -> Floats:
        """Return units of x `(p,)`: those of rewards make the largest entry of each feature 1."""
        units = np.ones(self.size)
        units[: self.n_reward] = 1 / self.feature_sizes
        return units

    def reward(self, x: Floats) -> Floats:
        """Return θ `(d,)`."""
        return x[: self.n_reward]

    def discounts(self, x: Floats) -> Floats:
        """Return each expert's discount `(K,)`."""
        return x[self.discount_slice][self.groups]

    def temperatures(self, x: Floats) -> Floats:
        """Return each expert's temperature `(K,)`."""
        return np.exp(x[self.temperature_slice])[self.temperature_groups]

    def habits(self, x: Floats) -> Habits | None:
        """Return the share of lapses and the pull of the last action; None where choices follow the plan alone."""
        return Habits(*x[self.habit_slice].tolist()) if self.settings.has_habits else None

    def of_temperature_groups(self, values: Floats) -> Floats:
        """Return one value for each temperature from one for each expert `(K,)`."""
        return np.array([values[self.temperature_groups == group][0] for group in range(self.n_temperatures)])

    def pack(self, reward: Floats, discounts: Floats, temperatures: Floats | None = None, beside: Floats | None = None) -> Floats:
        """Return x from a reward, one discount and one temperature for each group, clipped to the bounds; what is known stays.

        Where the scale is free, temperatures are divided by their geometric mean, and the reward with them. `beside` are lapses,
        stickiness and how far transitions give way; without it they are where a search begins, and as they were counted.
        """
        usual = np.full(self.n_temperatures, self.known_temperature)
        given = usual if temperatures is None else np.asarray(temperatures, dtype=np.float64)
        scale = float(np.exp(np.log(given).mean())) if self.scale_is_free else 1.0
        x = np.zeros(self.size)
        x[self.beside_slice] = 0.0 if beside is None else beside
        x[self.habit_slice][:1] = FIRST_LAPSES if beside is None else x[self.habit_slice][:1]
        x[self.habit_slice][1:] /= scale
        x[: self.beside_slice.start] = np.concatenate([reward / scale, discounts, np.log(given / scale)])
        return np.clip(np.where(self.fixed, self.known, x), self.lower, self.upper)

    def holding(self, penalty: Quadratic | None = None, ridge: Floats | float = 0.0) -> Self:
        """Return the same model with other penalties."""
        changed = copy.copy(self)
        changed._hold(penalty, ridge)
        return changed

    def clustered(self, clusters: Clusters | None) -> Self:
        """Return the same model where the decisions of a cluster need not be independent of each other."""
        changed = copy.copy(self)
        changed.clusters = clusters
        return changed

    def sharing(self, groups: tuple[int, ...]) -> Self:
        """Return the same model with one discount for each of these groups of experts; a penalty must not speak of discounts."""
        changed = copy.copy(self)
        changed.settings = replace(self.settings, groups=groups)
        changed._lay_out()
        if self.penalty is not None:
            changed.penalty = self.penalty.without(self.discount_slice, changed.n_discounts)
        return changed

    def ridge_times(self, theta: Floats) -> Floats:
        """Return `R θ` `(d,)`."""
        return self.ridge * theta if self.ridge.ndim == 1 else self.ridge @ theta

    def beside(self, x: Floats) -> float:
        """Return what the objective adds to the log-likelihood of the decisions: penalties, and the logged moves."""
        theta = self.reward(x)
        t = x[self.transition_slice]
        penalties = (0.0 if self.penalty is None else self.penalty(x)) - 0.5 * float(theta @ self.ridge_times(theta))
        return penalties + float(self.move_counts @ (t - np.expm1(t)))

    def beside_gradient(self, x: Floats) -> Floats:
        """Return its gradient `(p,)`."""
        total = np.zeros(self.size) if self.penalty is None else self.penalty.gradient(x)
        total[: self.n_reward] -= self.ridge_times(self.reward(x))
        total[self.transition_slice] -= self.move_counts * np.expm1(x[self.transition_slice])
        return total


@dataclass(frozen=True, eq=False)
class ChoicePoint(ABC):
    """A model at one x: `value` is the log-likelihood of the decisions, `objective` what is maximised.

    `plans` has one entry for each of the model's batches.
    """

    likelihood: ChoiceModel
    x: Floats
    plans: Sequence[Choices]
    value: float
    objective: float

    @abstractmethod
    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """Return `Σ y(s,a) d log π(a|s)` `(p,)` for weights y of each batch: the gradient of L where they are the counts."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """Yield positions in x on which some decisions depend, and the Fisher information `(q,q)` of these."""

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds `(p,)` of x."""
        return self.likelihood.lower, self.likelihood.upper

    @cached_property
    def gradient(self) -> Floats:
        """Return the gradient `(p,)` of the objective."""
        score = self.pull_back([batch.counts for batch in self.likelihood.batches])
        return score + self.likelihood.beside_gradient(self.x)

    def projected_gradient(self) -> float:
        """Return the largest entry of the gradient per decision, leaving out parameters that are known or rest on a bound.

        Weights of features are measured in the units that make the largest entry of their feature 1.
        """
        model = self.likelihood
        scaled = self.gradient * model.units
        return float(np.abs(scaled[~resting(self) & ~model.fixed]).max(initial=0.0)) / model.decisions

    @cached_property
    def weights(self) -> tuple[Floats, ...]:
        """Return how often each choice of each batch is expected: what it weighs in the information."""
        return tuple(batch.visits * plan.policy for batch, plan in zip(self.likelihood.batches, self.plans, strict=True))

    @cached_property
    def information(self) -> Floats:
        """Return the Fisher information `(p,p)` of the decisions, given the states they were made in; dense."""
        total = np.zeros((self.x.size, self.x.size))
        for columns, block in self.blocks():
            total[np.ix_(columns, columns)] += block
        return total

    def curvature(self, ridge: bool = True) -> Floats:
        """Return the Fisher information with the curvature `(p,p)` of the penalties; without that of the ridge, if so wanted."""
        model = self.likelihood
        first = np.arange(self.likelihood.n_reward)
        matrix = self.information.copy() if model.penalty is None else self.information + model.penalty.matrix
        if ridge and model.ridge.ndim == 1:
            matrix[first, first] += model.ridge
        elif ridge:
            matrix[np.ix_(first, first)] += model.ridge
        return matrix

    def metric(self) -> Metric:
        """Return the curvature in the form in which a climb uses it."""
        return Dense(self.curvature(), self.likelihood.units)

    def moved(self, x: Floats) -> Self | None:
        """Return the model at another x, its plans started from those of this point."""
        return cast(Self | None, self.likelihood.at(x, self))

    def bend(self, ahead: Self, behind: Self, share: float) -> Floats:
        """Return `Σ nπ f_δδ df` `(p,)` with `f = log π`, by differences of points that are this share of δ ahead and behind."""
        logs = [[plan.finite_log for plan in point.plans] for point in (self, ahead, behind)]
        return self.pull_back([w * (a - 2 * here + b) / share**2 for w, here, a, b in zip(self.weights, *logs, strict=True)])

    def without_derivatives(self) -> Self:
        """Return the same point without what was derived from it, which takes far more memory and is derived again when asked
        for.
        """
        return replace(self, plans=tuple(replace(cast(Any, plan)) for plan in self.plans))


def temperature_penalty(model: ChoiceModel, spread: float = np.inf) -> Quadratic | None:
    """Return the quadratic term that lets log-temperatures vary around their mean with this standard deviation.

    Where the scale of the reward is open, it also holds the mean at 0, to six digits. None where there is nothing to hold.
    """
    n = model.n_temperatures
    zeros = np.zeros(model.size)
    block = (np.eye(n) - 1 / n) / spread**2 + (1e6 / n if model.scale_is_free else 0.0)
    places = np.arange(model.size)[model.temperature_slice]
    return Quadratic(zeros, zeros, placed(block, places, model.size)) if block.any() else None


class ListedModel(ChoiceModel):
    """A model of decisions in listed states: people by task, whatever the shape of their look-ahead."""

    problem: Problem
    batches: tuple[Persons, ...]

    def __init__(
        self,
        problem: Problem,
        settings: Settings,
        bounds: tuple[float, float],
        penalty: Quadratic | None = None,
        ridge: Floats | float = 0.0,
    ) -> None:
        reward = np.zeros(problem.n_parameters) if settings.reward is None else settings.reward
        self.known_range = max(batch.range_of(reward) for batch in self.batches)
        self.feature_sizes = problem.feature_sizes
        super().__init__(problem.n_experts, problem.n_parameters, settings, bounds, penalty, ridge)

    def with_counts(self, counts: Sequence[Floats]) -> Self:
        """Return the same model of other decisions: counts `(C,A)` for each of the problem's experts and tasks."""
        by_state = (
            c.reshape(-1, *require_counts(e).shape).sum(axis=0) for e, c in zip(self.problem.experts, counts, strict=True)
        )
        experts = (replace(expert, counts=c, conditions=None) for expert, c in zip(self.problem.experts, by_state, strict=True))
        changed = copy.copy(self)
        changed.problem = self.problem.with_experts(experts)
        changed.batches = tuple(batch.recounted(counts) for batch in self.batches)
        changed.decisions = float(sum(batch.visits.sum() for batch in changed.batches))
        changed.clusters = None
        return changed

    def held(self) -> Self:
        """Return the same model where nothing about the task is estimated."""
        return self

    def person_values(self, point: Any) -> Floats:
        """Return the log-likelihood `(K,)` of each expert's decisions at a point."""
        total = np.zeros(self.n_experts)
        for batch, plan in zip(self.batches, point.plans, strict=True):
            np.add.at(total, batch.owners, (batch.counts * plan.finite_log).sum(axis=(0, 1)))
        return total


def renumbered(groups: Ints) -> tuple[int, ...]:
    """Return the same groups with the numbers 0, 1, … in order of appearance."""
    number = {g: i for i, g in enumerate(dict.fromkeys(groups.tolist()))}
    return tuple(number[g] for g in groups.tolist())


class Likelihood(ListedModel):
    """The log-likelihood of a problem's demonstrations as a function of `x = (θ, γ, log λ, ε, κ, t)`.

    Attributes:
        moves: the logged moves of each task whose transitions give way; their information is diagonal, `move_counts`.
        narrow: whether the factors of sparse matrices stay small, as on a grid, where it matters for how to climb.
    """

    def __init__(
        self, problem: Problem, settings: Settings | None = None, penalty: Quadratic | None = None, ridge: Floats | float = 0.0
    ) -> None:
        settings = settings or Settings()
        self.problem = problem.in_tasks(MDP.as_counted) if settings.moves else problem
        self.moves = logged_moves(self.problem) if settings.moves else ()
        sizes = {moves.task: moves.size for moves in self.moves}
        self.move_counts = np.concatenate([np.zeros(0), *(moves.counts for moves in self.moves)])
        by_last = by_last_action(self.problem) if settings.stickiness != 0 else None
        self.batches = persons_by_task(self.problem, settings.reward is None, sizes, settings.value, by_last)
        endless = any(batch.mdp.never_ends().any() for batch in self.batches)
        bounds = (max(batch.mdp.least_discount for batch in self.batches), ENDLESS_DISCOUNT if endless else 1.0)
        super().__init__(problem, settings, bounds, penalty, ridge)
        tasks = {batch.task: batch.mdp for batch in self.batches}.values() if self.n_reward > limits().product_rewards else ()
        self.narrow = all(is_narrow(mdp.under(mdp.available / 1.0), 4.0) for mdp in tasks)

    @property
    def by_products(self) -> bool:
        """Return whether a climb takes the curvature as products with vectors, which then cost less than the matrix."""
        if self.narrow or self.size > limits().dense_parameters:
            return self.is_large or self.n_reward > limits().product_rewards
        return self.n_reward > 1000  # where factors fill up, products need as many solves with full ones

    def by_matrix(self) -> Self:
        """Return the same likelihood, whose climbs take the curvature as a matrix."""
        changed = copy.copy(self)
        changed.narrow = False
        return changed

    def place_of(self, mdp: MDP) -> Ints:
        """Return where the numbers stand by which the transitions of one task give way."""
        sizes = [moves.size for moves in self.moves]
        number = [moves.mdp for moves in self.moves].index(mdp)
        places: Ints = self.transition_slice.start + sum(sizes[:number]) + np.arange(sizes[number])
        return places

    def moves_of(self, batch: Persons) -> tuple[LoggedMoves, Ints] | None:
        """Return the logged moves of a batch's task and their places in x; None where no move gives way."""
        moves = next((moves for moves in self.moves if moves.task == batch.task and moves.size), None)
        return None if moves is None else (moves, self.place_of(moves.mdp))

    def transitions_at(self, x: Floats) -> dict[int, Floats]:
        """Return for each task in which something gives way all its probabilities, in the order of `MDP.probabilities`."""
        return {moves.task: moves.probabilities(x[self.place_of(moves.mdp)]) for moves in self.moves}

    def at(self, x: Floats, near: ChoicePoint | None = None) -> Point | None:
        """Return the model at x, its plans started from those of a `near` point; None where a soft value is infinite."""
        plans = self.plans(self.in_tasks(x), x, self.reward(x), near.plans if isinstance(near, Point) else None)
        if plans is None:
            return None
        value = sum(float((plan.persons.counts * plan.finite_log).sum()) for plan in plans)
        return Point(self, x, plans, value, value + self.beside(x))

    def in_tasks(self, x: Floats) -> tuple[Persons, ...]:
        """Return the batches in tasks whose transitions have given way as x says, and as people with these discounts see
        them.
        """
        tasks: dict[int, tuple[MDP, Engine]] = {}
        for batch in self.batches if x[self.transition_slice].any() else ():
            if (moving := self.moves_of(batch)) is not None and batch.task not in tasks:
                mdp = batch.mdp.with_probabilities(moving[0].probabilities(x[moving[1]]))
                tasks[batch.task] = mdp, batch.engine.of(mdp)
        moved = (batch.in_task(*tasks[batch.task]) if batch.task in tasks else batch for batch in self.batches)
        gamma = self.discounts(x)
        return tuple(batch.at(float(gamma[batch.owners[0]])) for batch in moved)

    def plans(
        self, batches: Sequence[Persons], x: Floats, theta: Floats, near: Sequence[Plans] | None
    ) -> tuple[Plans, ...] | None:
        """Return the plans of batches with the discounts and temperatures of x, under a reward `(d,)` of all or `(K,d)`
        of each.
        """
        gamma = self.discounts(x)
        lam = self.temperatures(x)
        habits = self.habits(x)
        plans = []
        for i, batch in enumerate(batches):
            plan = batch.plan(theta, gamma, lam, None if near is None else near[i], habits)
            if plan is None:
                return None
            plans.append(plan)
        return tuple(plans)

    def of_experts(self, experts: Sequence[int]) -> Likelihood:
        """Return the likelihood of some experts alone, in the problem's order, with the same knowledge and without penalties."""
        members = sorted(experts)
        entries = [i for i, owner in enumerate(self.problem.owner) if owner in members]
        settings = self.settings
        part = replace(
            settings,
            groups=renumbered(self.groups[members]),
            discounts=None if settings.discounts is None else settings.discounts[members],
            temperature_groups=renumbered(self.temperature_groups[members]),
            temperatures=None if settings.temperatures is None else settings.temperatures[members],
        )
        return Likelihood(self.problem.with_experts(self.problem.experts[i] for i in entries), part)

    def held(self) -> Self:
        """Return the same likelihood where transitions and durations stay as they were counted."""
        changed = copy.copy(self)
        changed.moves = ()
        changed.move_counts = np.zeros(0)
        changed._lay_out()
        if self.penalty is not None:
            changed.penalty = self.penalty.without(self.transition_slice, 0)
        return changed


@dataclass(frozen=True, eq=False)
class Point(ChoicePoint):
    """The likelihood at one x."""

    likelihood: Likelihood
    plans: tuple[Plans, ...]

    @cached_property
    def problem(self) -> Problem:
        """Return the problem with the transitions of this point."""
        pairs = ((old.mdp, plan.persons.mdp) for old, plan in zip(self.likelihood.batches, self.plans, strict=True))
        tasks = {id(old): mdp if mdp.origin is None else mdp.origin for old, mdp in pairs}
        return self.likelihood.problem.in_tasks(lambda mdp: tasks[id(mdp)])

    def policies(self) -> list[Floats]:
        """Return the policy `(S,A)` of each of the problem's experts and tasks."""
        pairs = [(int(place), plan.policy[:, :, i].T) for plan in self.plans for i, place in enumerate(plan.persons.positions)]
        return [policy for _, policy in sorted(pairs, key=lambda pair: pair[0])]

    @cached_property
    def worth_of_moves(self) -> tuple[Floats, ...]:
        """Return for each batch, how each person's immediate reward moves with t, by each effect `(F,n)` of the task's logged
        moves.
        """
        pairs = [(plan, self.likelihood.moves_of(plan.persons)) for plan in self.plans]
        return tuple(np.zeros((0, p.lam.size)) if moving is None else moving[0].worth(p, self.rewards) for p, moving in pairs)

    @property
    def rewards(self) -> Floats:
        """Return θ `(d,)`, or that of each expert `(K,d)`."""
        return self.likelihood.reward(self.x)

    def pull_back(self, weights: Sequence[Floats]) -> Floats:
        """Return `Σ y(s,a) d log π(a|s)` `(p,)` for weights y `(A,S,n)` of each batch, by one adjoint solve for each expert."""
        model = self.likelihood
        total = np.zeros(model.size)
        for i, (plan, y) in enumerate(zip(self.plans, weights, strict=True)):
            batch = plan.persons
            moved, by_temperature, by_habits = plan.pull_back(y)
            if (moving := model.moves_of(batch)) is not None:
                rows = moved.reshape(-1, batch.owners.size)[moving[0].rows]
                total[moving[1]] += moving[0].summed((rows * self.worth_of_moves[i]).sum(axis=1))
            total[: model.n_reward] += batch.features.transposed @ moved.sum(axis=2).ravel()
            np.add.at(total, model.n_reward + model.groups[batch.owners], (moved * plan.next_values).sum(axis=(0, 1)))
            np.add.at(total, model.temperature_slice.start + model.temperature_groups[batch.owners], by_temperature)
            if by_habits.size:
                total[model.habit_slice] += by_habits
        return total

    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """Yield positions in x on which choices depend and their Fisher information `(q,q)`, by expert and task; then the
        moves'.
        """
        yield from ((places, block) for _, places, block in self.own_blocks())
        for moves in self.likelihood.moves:
            yield self.likelihood.place_of(moves.mdp), np.diag(moves.counts)

    def own_blocks(self) -> Iterator[tuple[int, Ints, Floats]]:
        """Yield each expert, in each task: the number, positions in x, and the information of the decisions in them."""
        for i, plan in enumerate(self.plans):
            rows, columns, scores = self.scores(i)
            weights = self.weights[i].reshape(-1, plan.lam.size)[rows]
            weighted = (scores * np.sqrt(weights)[:, :, None]).transpose(1, 0, 2)
            yield from zip(plan.persons.owners.tolist(), columns, weighted.transpose(0, 2, 1) @ weighted, strict=True)

    def scores(self, i: int) -> tuple[Ints, list[Ints], Floats]:
        """Return of one batch, the rows of visited contexts, each person's places in x, and `d log p` `(rows,n,q)` in them."""
        model = self.likelihood
        plan = self.plans[i]
        batch = self.plans[i].persons
        scores = plan.score_rows()
        first = model.temperature_slice.start
        columns = [
            np.array([*batch.features.used, model.n_reward + model.groups[k], first + model.temperature_groups[k]])
            for k in batch.owners
        ]
        if (moving := model.moves_of(batch)) is not None:
            moves, place = moving
            moved = moves.summed(plan.reward_rows(moves.rows) * self.worth_of_moves[i].T)
            scores = np.concatenate([scores, moved], axis=2)
            columns = [np.concatenate([c, place]) for c in columns]
        if plan.habits is not None:
            scores = np.concatenate([scores, plan.habit_rows()], axis=2)
            columns = [np.concatenate([c, np.arange(model.size)[model.habit_slice]]) for c in columns]
        return batch.visited_rows, columns, scores

    def metric(self) -> Metric:
        """Return the curvature of the objective: a matrix or, with many parameters, products."""
        return self.products() if self.likelihood.by_products else super().metric()

    def products(self) -> Products:
        """Return the curvature as products, with a diagonal that scales the rewards and a preconditioner of them."""
        model = self.likelihood

        def times(v: Floats) -> Floats:
            product = self.information_product(v)
            product[: model.n_reward] += model.ridge * v[: model.n_reward]
            return product if model.penalty is None else product + model.penalty.matrix @ v

        # In the rewards the diagonal is without what they do to later decisions, which is enough to scale them.
        diagonal = np.zeros(model.size)
        diagonal[model.transition_slice] = model.move_counts
        for i, plan in enumerate(self.plans):
            weights = (plan.persons.by_state(self.weights[i]) / plan.lam**2).reshape(-1, plan.lam.size)
            diagonal[: model.n_reward] += plan.persons.features.matrix.power(2).T @ weights.sum(axis=1)
            if (moving := model.moves_of(plan.persons)) is not None:
                diagonal[moving[1]] += moving[0].summed((weights[moving[0].rows] * self.worth_of_moves[i] ** 2).sum(axis=1))
        diagonal[: model.n_reward] += model.ridge
        for k in range(model.n_reward, model.transition_slice.start):
            if not model.fixed[k]:
                diagonal[k] = self.information_product(np.eye(1, model.size, k).ravel())[k]
        if model.penalty is not None:
            diagonal += model.penalty.matrix.diagonal()
        inverse = self._inverse_of_states()
        return Products(times, diagonal, None if inverse is None else (model.n_reward, inverse))

    def information_product(self, v: Floats) -> Floats:
        """Return the Fisher information times a vector `(p,)`."""
        model = self.likelihood
        product = self.pull_back([weights * self._choices_along(i, v) for i, weights in enumerate(self.weights)])
        product[model.transition_slice] += model.move_counts * v[model.transition_slice]
        return product

    def _choices_along(self, i: int, v: Floats) -> Floats:
        """Return `J v`, how log π `(A,S,n)` of one batch moves along v."""
        model = self.likelihood
        plan = self.plans[i]
        batch = self.plans[i].persons
        mdp, n = batch.mdp, batch.owners.size
        hotter = v[model.temperature_slice][model.temperature_groups[batch.owners]]
        weights, rise = plan.backup
        paid = (batch.features.matrix @ v[: model.n_reward]).reshape(mdp.n_actions, mdp.n_states, 1)
        if (moving := model.moves_of(batch)) is not None:
            moves, place = moving
            changes = np.zeros((mdp.stacked.shape[0], n))
            np.add.at(changes, moves.rows, self.worth_of_moves[i] * v[place][moves.of, None])
            paid = paid + changes.reshape(mdp.n_actions, mdp.n_states, n)
        direct = paid + v[model.discount_slice][model.groups[batch.owners]] * plan.next_values
        source = (weights * direct).sum(axis=0) + rise * hotter
        moved = plan.resolvents.solve(np.where(mdp.terminal[:, None], 0.0, source)[:, :, None])[:, :, 0]
        later = (mdp.stacked @ moved).reshape(mdp.n_actions, mdp.n_states, n)
        return plan.along(direct + plan.gamma * later, hotter, v[model.habit_slice])

    def _inverse_of_states(self) -> Callable[[Floats], Floats] | None:
        """Return a rough inverse of the information in the rewards `(d,)`, for one task with one reward per state; None
        elsewhere.

        Where states are linked without any order, its factors fill up, and a diagonal needs fewer steps.
        The scores of expert k are `J = D U / λ`, with D the transitions less their mean under the policy and `U = (I − γP)^{-1}`,
        so that their information in the rewards is `Uᵀ G U` with the sparse `G = TᵀWT − PᵀNP`, W the weights `n π/λ²` and N their
        sums `n/λ²`. The inverse has this form for all experts together: the sum of their G, and the U of the one who looks
        farthest ahead, which is the largest. `(I − γP) G^{-1} (I − γP)ᵀ` takes one sparse factorisation.
        """
        model = self.likelihood
        if not model.narrow or not model.problem.tabular or len({id(plan.persons.mdp) for plan in self.plans}) != 1:
            return None
        moves = self.plans[0].persons.mdp.stacked
        gram: Any = 0.0
        farthest: tuple[float, Any] = (-1.0, None)
        for plan in self.plans:
            for i in range(plan.gamma.size):
                batch = plan.persons.pooled()
                chosen = plan.backup[0][:, :, i]
                visits = batch.visits[:, i] / plan.lam[i] ** 2
                under = batch.mdp.under(chosen.T)
                weights = sp.diags_array((visits * chosen).ravel())
                gram = gram + sp.csr_array(moves.T @ weights @ moves - under.T @ sp.diags_array(visits) @ under)
                if plan.gamma[i] > farthest[0]:
                    farthest = float(plan.gamma[i]), under
        # G does not see a constant added to all rewards, nor states out of reach.
        lifted = sp.csc_array(gram + sp.diags_array(1e-6 * float(gram.diagonal().mean()) + model.ridge))
        options = {"SymmetricMode": True}
        try:
            factor = spla.splu(lifted, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
        except RuntimeError:  # no weights at all
            return None
        forward = sp.csr_array(sp.eye_array(model.n_reward) - farthest[0] * farthest[1])
        backward = sp.csr_array(forward.T)
        return lambda b: np.asarray(forward @ factor.solve(backward @ b))


def draw_decisions(point: Point, rng: np.random.Generator) -> list[Floats]:
    """Return new decisions, as counts, from the fitted policies in the states in which each expert decided.

    Experts are drawn in the order of their likelihoods, states in that of their values, and actions in that of their
    probabilities, so that the same random numbers meet the same choices however all of them are listed.
    """
    people: list[tuple[float, int, Floats, Floats, Floats]] = []
    for plan in point.plans:
        batch = plan.persons
        fits = (batch.counts * plan.finite_log).sum(axis=(0, 1))
        for i, place in enumerate(batch.positions.tolist()):
            values = np.tile(plan.values[:, i], batch.last_actions)
            people.append((float(fits[i]), place, batch.visits[:, i], plan.policy[:, :, i].T, values))
    drawn = {}
    for _, place, visits, policy, values in sorted(people, key=lambda person: round(person[0], 6)):
        drawn[place] = decide(visits, policy, values, rng, 1)[0]
    return [drawn[place] for place in range(len(drawn))]


def decide(visits: Floats, policy: Floats, values: Floats, rng: np.random.Generator, times: int) -> Floats:
    """Return decisions `(times,S,A)` of one expert, drawn so many times."""
    states = np.argsort(np.round(values / max(float(np.abs(values).max()), TINY), 9), kind="stable")
    actions = np.argsort(np.round(policy, 9), axis=1, kind="stable")[states]
    chances = np.take_along_axis(policy[states], actions, axis=1)
    chances /= chances.sum(axis=1, keepdims=True)
    counts = np.zeros((times, *policy.shape))
    counts[:, states[:, None], actions] = rng.multinomial(visits[states].astype(np.int64), chances, size=(times, states.size))
    return counts


@dataclass(frozen=True, eq=False)
class LogLikelihood:
    """A log-likelihood and its gradient.

    Attributes:
        value: `Σ_k Σ N_k(s,a) log π_k(a|s)`; −inf where the value of some state is infinite.
        reward: its derivative in the reward parameters `(d,)`.
        discounts: its derivatives in the discount factors `(K,)`.
        temperatures: its derivatives in the temperatures `(K,)`.
    """

    value: float
    reward: Floats
    discounts: Floats
    temperatures: Floats


def log_likelihood(
    problem: Problem,
    reward: ArrayLike,
    discounts: float | Sequence[float] | Floats,
    temperatures: float | Sequence[float] | Floats = 1.0,
) -> LogLikelihood:
    """Compute the log-likelihood of the decisions of a problem, and its gradient.

    Args:
        problem: experts given as demonstrations. Calls with the same problem reuse what does not depend on the parameters.
        reward: the reward parameters `(d,)`: one number per state, paid on arrival, or the weights of the features.
        discounts: one discount factor for all experts, or one for each `(K,)`.
        temperatures: one temperature for all experts, or one for each `(K,)`.

    Returns:
        The value, and its derivatives in the reward `(d,)`, the discount factors `(K,)` and the temperatures `(K,)`.

    Raises:
        ValueError: for experts who are not given as demonstrations, and for parameters of another shape or out of range.

    References:
        J. Rust (1987). Optimal replacement of GMC bus engines. Econometrica 55, 999-1033.

    Example:
        >>> from multihorizon import Demonstrations, Problem, domains
        >>> d = domains.cliff()
        >>> problem = Problem(d.mdp, Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100, seed=0))
        >>> at_truth = log_likelihood(problem, d.reward, d.soft_discounts)
        >>> at_truth.value > log_likelihood(problem, 0 * d.reward, d.soft_discounts).value, at_truth.reward.shape
        (True, (12,))
    """
    theta = as_floats(reward, "reward")
    model = _model(require_finite(problem))
    as_shape(theta, (problem.n_parameters,), "reward")
    gamma, lam = (_of_each(value, problem, name) for value, name in ((discounts, "discounts"), (temperatures, "temperatures")))
    if ((gamma < 0) | (gamma > 1)).any():
        raise ValueError(f"discounts must be in [0, 1], got {gamma[(gamma < 0) | (gamma > 1)][0]:g}")
    if (lam <= 0).any():
        raise ValueError(f"temperatures must be positive, got {lam[lam <= 0][0]:g}")
    point = model.at(np.concatenate([theta, np.minimum(gamma, model.upper[theta.size : theta.size + gamma.size]), np.log(lam)]))
    if point is None:
        return LogLikelihood(-np.inf, np.full(theta.size, np.nan), np.full(gamma.size, np.nan), np.full(lam.size, np.nan))
    gradient = point.pull_back([plan.persons.counts for plan in point.plans])
    d, k = theta.size, gamma.size
    return LogLikelihood(point.value, gradient[:d], gradient[d : d + k], gradient[d + k :] / lam)


@lru_cache(maxsize=2)
def _model(problem: Problem) -> Likelihood:
    return Likelihood(problem)


def _of_each(given: float | Sequence[float] | Floats, problem: Problem, name: str) -> Floats:
    values = np.atleast_1d(as_floats(given, name))
    if values.shape not in ((1,), (problem.n_experts,)):
        raise ValueError(f"{name} must be one number or one for each of {problem.n_experts} experts, got shape {values.shape}")
    return np.broadcast_to(values, (problem.n_experts,)).copy()
