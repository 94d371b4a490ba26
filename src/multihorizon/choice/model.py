"""What any model of choice offers to a fit, an interval or an analysis.

A model gives the log-likelihood `L(x)` of decisions as a function of `x = (θ, γ, log λ, t)`: d reward parameters, how far each
group of experts looks ahead (a discount, or a few coordinates), the logarithm of each temperature and, where estimated
transitions give way, one number for each of their moves. What is known keeps its value; the rest moves inside bounds. What is
maximised is

    L(x) − ½ θᵀRθ − ½ (x−c)ᵀA(x−c) + bᵀ(x−c).

R is a ridge: weights `(d,)`, or a matrix `(d,d)` such as the roughness of a function. The other term holds what is known of x
besides the decisions, such as the spread of temperatures, or the decisions of experts who are not looked at again. Logged moves
add the log-likelihood of t (`tabular`). A common factor of all λ and θ leaves every policy as it is; where no part of the reward
is known, this direction is open.

Three models: `tabular.Likelihood` (states in a list), `weighted.WeightedLikelihood` (look-ahead that is not a discount) and
`sieve_model.SieveModel` (states that are vectors). Each says how it plans (`at`) and how choices move with x, backwards
(`ChoicePoint.pull_back`) and forwards (`ChoicePoint.blocks`). Layout, penalties, gradient and curvature are the same for all.

What the user knows of discounts, temperatures, rewards and groups is read from options by name into the problem's order.

*Clusters* are episodes, or experts with all their episodes. Decisions of different clusters are independent of each other; those
of one need not be. Only sums over the decisions of a cluster are needed, `Σ_(s,a) N_e(s,a) y(s,a)`, so only counts N_e are kept.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol, Self, cast, get_args

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import (
    LARGEST_UNIT,
    Bools,
    Floats,
    Ints,
    Sparse,
    as_discount,
    as_floats,
    as_positive,
    first_few,
    label,
    numbers_of,
    read_only,
)
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.mdp import MDP
from multihorizon.numerics.newton import Dense, Metric, resting
from multihorizon.problem import AnyProblem, Expert, Problem, require_counts
from multihorizon.words import significant

#: What is independent of each other; "auto" lets a test of the decisions choose between decisions and episodes.
Unit = Literal["decision", "episode", "expert"]


Choice = Literal["auto", "decision", "episode", "expert"]
NO_EPISODES = "the problem does not hold the episodes of its decisions"


def check_cluster(value: object) -> None:
    """Raise unless this says what is independent of each other."""
    if value not in get_args(Choice):
        raise ValueError(f"cluster must be one of {', '.join(get_args(Choice))}, received {value!r}")


@dataclass(frozen=True, eq=False)
class Clusters:
    """The decisions of a problem's experts by cluster.

    Attributes:
        unit: what a cluster is.
        counts: for each of the problem's experts how often each cluster took each decision `(n,A·S)`, in rows a·S + s of the MDP.
        numbers: for each of them the number of each cluster `(n,)` among all.
    """

    unit: Unit
    counts: tuple[Sparse, ...]
    numbers: tuple[Ints, ...]

    @classmethod
    def of(cls, problem: Problem, unit: Unit, tables: Sequence[Demonstrations] | None = None) -> Clusters | str:
        """The clusters of a problem; or why they are not known.

        Args:
            problem: whose experts have decisions.
            unit: "episode" or "expert".
            tables: where the decisions come from, one for each task in order; by default those the problem was made of.
        """
        if unit == "expert":
            counts = tuple(sp.csr_array(require_counts(expert).T.ravel()[None]) for expert in problem.experts)
            return cls(unit, counts, tuple(np.array([owner]) for owner in problem.owner))
        listed = sources(problem, tables)
        if isinstance(listed, str):
            return listed
        split: dict[int, tuple[int, Ints, Sparse]] = {}
        found, numbers, size = [], [], 0
        for expert, (table, k) in zip(problem.experts, listed, strict=True):
            if id(table) not in split:
                owner = table.by_episode.expert
                split[id(table)] = size, owner, table.choices_by(expert.mdp, np.arange(owner.size), owner.size)
                size += owner.size
            first, owner, made = split[id(table)]
            episodes = np.flatnonzero(owner == k)
            counts = made[episodes]
            if not np.array_equal(counts.sum(axis=0), require_counts(expert).T.ravel()):
                return NO_EPISODES
            found.append(counts)
            numbers.append(first + episodes)
        return cls(unit, tuple(found), tuple(numbers))


def sources(problem: Problem, tables: Sequence[Demonstrations] | None = None) -> list[tuple[Demonstrations, int]] | str:
    """The table of each of the problem's experts, and their number in it; or why it is not known.

    The tables are those given, one for each task in order, or by default those the problem was made of.
    """
    if tables is not None:
        listed = [(table, k) for table in tables for k in range(len(table.experts))]
        return listed if len(listed) == len(problem.experts) else NO_EPISODES
    listed = []
    for expert in problem.experts:
        if expert.table is None or expert.name not in expert.table.experts:
            return NO_EPISODES
        listed.append((expert.table, expert.table.experts.index(expert.name)))
    return listed


Temperature = float | Literal["shared", "pooled", "per_expert"] | Mapping[str, float]
#: Above this many rewards, or parameters in all, nothing of size p×p is formed: an information matrix costs the cube of them.
DENSE_REWARDS, DENSE_PARAMETERS = 700, 3000


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The term `−½ (x−c)ᵀA(x−c) + bᵀ(x−c)` of the objective: centre c, slope b, and a matrix A, dense or sparse."""

    centre: Floats
    slope: Floats
    matrix: Floats | Sparse

    def __call__(self, x: Floats) -> float:
        """Its value at x."""
        return float((self.slope - 0.5 * self.matrix @ (x - self.centre)) @ (x - self.centre))

    def gradient(self, x: Floats) -> Floats:
        """Its gradient at x."""
        return self.slope - self.matrix @ (x - self.centre)

    def without(self, positions: slice, put: int) -> Quadratic:
        """The same term without the parameters at `positions`, and with `put` new ones there, of which it says nothing."""
        size = self.centre.size - (positions.stop - positions.start) + put
        keep = np.r_[: positions.start, positions.stop : self.centre.size]
        room = np.r_[: positions.start, positions.start + put : size]
        centre, slope = np.zeros(size), np.zeros(size)
        centre[room], slope[room] = self.centre[keep], self.slope[keep]
        return Quadratic(centre, slope, placed(sp.csr_array(self.matrix)[keep][:, keep], room, size))


def placed(block: Floats | Sparse, room: Ints, size: int) -> Sparse:
    """A matrix `(size,size)` that is 0 outside the given rows and columns."""
    entries = sp.coo_array(block)
    return sp.csr_array((entries.data, (room[entries.row], room[entries.col])), shape=(size, size))


@dataclass(frozen=True)
class Settings:
    """What is known besides the problem, and which experts share a parameter.

    Attributes:
        groups: for each of the K experts which discount is theirs; by default 0, …, K−1. Equal numbers share a discount.
        discounts: known discounts `(K,)`, NaN where they are free; None where all are.
        temperature_groups: for each expert which temperature is theirs, as in `groups`.
        temperatures: known temperatures `(K,)`, NaN where they are free; None stands for 1 everywhere.
        reward: known reward parameters `(d,)`; None where they are free.
        moves: whether estimated transitions give way within their own error (`tabular`).
    """

    groups: tuple[int, ...] | None = None
    discounts: Floats | None = None
    temperature_groups: tuple[int, ...] | None = None
    temperatures: Floats | None = None
    reward: Floats | None = None
    moves: bool = False


def group_numbers(groups: tuple[int, ...] | None, size: int) -> Ints:
    """The group of each expert; without groups, each has their own."""
    return np.arange(size) if groups is None else np.array(groups, dtype=np.int64)


def known_of_groups(values: Floats, groups: Ints) -> Floats:
    """The known value of each group; NaN where none is known, or where its members have different ones."""
    found = np.full(int(groups.max()) + 1, np.nan)
    for group in range(found.size):
        distinct = np.unique(values[(groups == group) & ~np.isnan(values)])
        if distinct.size == 1:
            found[group] = distinct[0]
    return found


class Decided(Protocol):
    """Decisions that are planned together: how often each action was taken, its first axis, and how often anything was."""

    @property
    def counts(self) -> Floats:
        """How often each choice was made `(A,…)`."""
        ...

    @property
    def visits(self) -> Floats:
        """Its sum over the actions."""
        ...


class Choices:
    """What follows from `log π`, whose first axis is the action."""

    log: Floats

    @cached_property
    def policy(self) -> Floats:
        """The probabilities π, of the shape of `log`."""
        return np.exp(self.log)

    @cached_property
    def finite_log(self) -> Floats:
        """`log π` with 0 in place of −inf: actions that cannot be taken have no counts, and 0·(−inf) must not be NaN."""
        return np.where(np.isfinite(self.log), self.log, 0.0)

    @cached_property
    def entropy(self) -> Floats:
        """The entropy of each choice."""
        total: Floats = -(self.policy * self.finite_log).sum(axis=0)
        return total


def usual_temperature(known_range: float) -> float:
    """An eighth of the range of a known reward, at which choices follow it without being certain; 1 where that is 0."""
    return known_range / 8 or 1.0


def log_temperature_bounds(usual: float, known_range: float) -> tuple[float, float]:
    """Between which log-temperatures the most likely one is looked for, in units of the usual temperature."""
    # Beyond a factor of 148 a temperature is only a certain or a uniform policy. Where a known reward sets the scale, what it
    # pays far ahead may be worth much less than its range, or add up to more.
    low, high = (-6.0, 8.0) if known_range else (-5.0, 5.0)
    return float(np.log(usual)) + low, float(np.log(usual)) + high


class ChoiceModel(ABC):
    """The log-likelihood of decisions as a function of x.

    Args:
        n_experts: K, how many persons there are.
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
        discount_slice, temperature_slice, transition_slice: where discounts (or coordinates of the look-ahead), log-temperatures
            and the numbers stand by which estimated transitions give way.
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
        sizes = (self.n_reward, self.n_discounts, self.n_temperatures, self.n_transitions)
        first, second, third, self.size = np.cumsum(sizes).tolist()
        self.discount_slice, self.temperature_slice = slice(first, second), slice(second, third)
        self.transition_slice = slice(third, self.size)
        #: Whether a dense information matrix is out of the question.
        self.is_large = self.n_reward > DENSE_REWARDS or self.size > DENSE_PARAMETERS
        rewards = np.full(self.n_reward, np.nan) if settings.reward is None else settings.reward
        ahead = np.full(self.n_discounts, np.nan)
        if settings.discounts is not None:
            ahead[:] = known_of_groups(settings.discounts, self.groups)
        temperatures = np.ones(self.n_experts) if settings.temperatures is None else settings.temperatures
        logs = np.log(known_of_groups(temperatures, self.temperature_groups))
        self.known: Floats = np.concatenate([rewards, ahead, logs, np.full(self.n_transitions, np.nan)])
        self.fixed = ~np.isnan(self.known)
        given = logs[~np.isnan(logs)]
        self.known_temperature = float(np.exp(given.mean())) if given.size else usual_temperature(self.known_range)
        self.scale_is_free = settings.reward is None and not self.known_range and not given.size
        low, high = self._look_ahead_bounds
        gives_way = 6.0  # an estimated probability may change by a factor of e^6, one way or the other
        coldest, hottest = log_temperature_bounds(self.known_temperature, self.known_range)
        lower = np.repeat([-np.inf, low, coldest, -gives_way], sizes)
        upper = np.repeat([np.inf, high, hottest, gives_way], sizes)
        self.lower: Floats = np.where(self.fixed, self.known, lower)
        self.upper: Floats = np.where(self.fixed, self.known, upper)

    @abstractmethod
    def at(self, x: Floats, near: ChoicePoint | None = None) -> ChoicePoint | None:
        """The model at x, its plans started from those of a `near` point; None where a value is infinite."""

    @abstractmethod
    def person_values(self, point: Any) -> Floats:
        """The log-likelihood `(K,)` of each expert's decisions at a point."""

    @property
    def units(self) -> Floats:
        """Units of x `(p,)`: those of rewards make the largest entry of each feature 1."""
        found = np.ones(self.size)
        found[: self.n_reward] = 1 / self.feature_sizes
        return found

    def reward(self, x: Floats) -> Floats:
        """θ `(d,)`."""
        return x[: self.n_reward]

    def discounts(self, x: Floats) -> Floats:
        """Each expert's discount `(K,)`."""
        return x[self.discount_slice][self.groups]

    def temperatures(self, x: Floats) -> Floats:
        """Each expert's temperature `(K,)`."""
        return np.exp(x[self.temperature_slice])[self.temperature_groups]

    def of_temperature_groups(self, values: Floats) -> Floats:
        """One value for each temperature from one for each expert `(K,)`."""
        return np.array([values[self.temperature_groups == group][0] for group in range(self.n_temperatures)])

    def pack(
        self, reward: Floats, discounts: Floats, temperatures: Floats | None = None, transitions: Floats | None = None
    ) -> Floats:
        """x from a reward, one discount and one temperature for each group, clipped to the bounds; what is known stays.

        Where the scale is free, temperatures are divided by their geometric mean, and the reward with them. Transitions are as
        they were counted unless it is given how far they give way.
        """
        usual = np.full(self.n_temperatures, self.known_temperature)
        given = usual if temperatures is None else np.asarray(temperatures, dtype=np.float64)
        scale = float(np.exp(np.log(given).mean())) if self.scale_is_free else 1.0
        moves = np.zeros(self.n_transitions) if transitions is None else transitions
        x = np.concatenate([reward / scale, discounts, np.log(given / scale), moves])
        return np.clip(np.where(self.fixed, self.known, x), self.lower, self.upper)

    def holding(self, penalty: Quadratic | None = None, ridge: Floats | float = 0.0) -> Self:
        """The same model with other penalties."""
        changed = copy.copy(self)
        changed._hold(penalty, ridge)
        return changed

    def clustered(self, clusters: Clusters | None) -> Self:
        """The same model where the decisions of a cluster need not be independent of each other."""
        changed = copy.copy(self)
        changed.clusters = clusters
        return changed

    def sharing(self, groups: tuple[int, ...]) -> Self:
        """The same model with one discount for each of these groups of experts; a penalty must not speak of discounts."""
        changed = copy.copy(self)
        changed.settings = replace(self.settings, groups=groups)
        changed._lay_out()
        if self.penalty is not None:
            changed.penalty = self.penalty.without(self.discount_slice, changed.n_discounts)
        return changed

    def ridge_times(self, theta: Floats) -> Floats:
        """`R θ` `(d,)`."""
        return self.ridge * theta if self.ridge.ndim == 1 else self.ridge @ theta

    def beside(self, x: Floats) -> float:
        """What the objective adds to the log-likelihood of the decisions: penalties, and the logged moves."""
        theta, t = self.reward(x), x[self.transition_slice]
        penalties = (0.0 if self.penalty is None else self.penalty(x)) - 0.5 * float(theta @ self.ridge_times(theta))
        return penalties + float(self.move_counts @ (t - np.expm1(t)))

    def beside_gradient(self, x: Floats) -> Floats:
        """Its gradient `(p,)`."""
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
        """`Σ y(s,a) d log π(a|s)` `(p,)` for weights y of each batch: the gradient of L where they are the counts."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[Ints, Floats]]:
        """Positions in x on which some decisions depend, and the Fisher information `(q,q)` of these."""

    @property
    def bounds(self) -> tuple[Floats, Floats]:
        """The lower and upper bounds `(p,)` of x."""
        return self.likelihood.lower, self.likelihood.upper

    @cached_property
    def gradient(self) -> Floats:
        """The gradient `(p,)` of the objective."""
        score = self.pull_back([batch.counts for batch in self.likelihood.batches])
        return score + self.likelihood.beside_gradient(self.x)

    def projected_gradient(self) -> float:
        """The largest entry of the gradient per decision, leaving out parameters that are known or rest on a bound.

        Weights of features are measured in the units that make the largest entry of their feature 1.
        """
        model = self.likelihood
        scaled = self.gradient * model.units
        return float(np.abs(scaled[~resting(self) & ~model.fixed]).max(initial=0.0)) / model.decisions

    @cached_property
    def weights(self) -> tuple[Floats, ...]:
        """How often each choice of each batch is expected: what it weighs in the information."""
        return tuple(batch.visits * plan.policy for batch, plan in zip(self.likelihood.batches, self.plans, strict=True))

    @cached_property
    def information(self) -> Floats:
        """The Fisher information `(p,p)` of the decisions, given the states they were made in; dense."""
        total = np.zeros((self.x.size, self.x.size))
        for columns, block in self.blocks():
            total[np.ix_(columns, columns)] += block
        return total

    def curvature(self, ridge: bool = True) -> Floats:
        """The Fisher information with the curvature `(p,p)` of the penalties; without that of the ridge, if so wanted."""
        model, first = self.likelihood, np.arange(self.likelihood.n_reward)
        matrix = self.information.copy() if model.penalty is None else self.information + model.penalty.matrix
        if ridge and model.ridge.ndim == 1:
            matrix[first, first] += model.ridge
        elif ridge:
            matrix[np.ix_(first, first)] += model.ridge
        return matrix

    def metric(self) -> Metric:
        """The curvature in the form in which a climb uses it."""
        return Dense(self.curvature(), self.likelihood.units)

    def moved(self, x: Floats) -> Self | None:
        """The model at another x, its plans started from those of this point."""
        return cast(Self | None, self.likelihood.at(x, self))

    def bend(self, ahead: Self, behind: Self, share: float) -> Floats:
        """`Σ nπ f_δδ df` `(p,)` with `f = log π`, by differences of points that are this share of δ ahead and behind."""
        logs = [[plan.finite_log for plan in point.plans] for point in (self, ahead, behind)]
        return self.pull_back([w * (a - 2 * here + b) / share**2 for w, here, a, b in zip(self.weights, *logs, strict=True)])

    def without_derivatives(self) -> Self:
        """The same point without what was derived from it, which takes far more memory and is derived again when asked for."""
        return replace(self, plans=tuple(replace(cast(Any, plan)) for plan in self.plans))


def temperature_penalty(model: ChoiceModel, spread: float = np.inf) -> Quadratic | None:
    """The quadratic term that lets log-temperatures vary around their mean with this standard deviation.

    Where the scale of the reward is open, it also holds the mean at 0, to six digits. None where there is nothing to hold.
    """
    n, zeros = model.n_temperatures, np.zeros(model.size)
    block = (np.eye(n) - 1 / n) / spread**2 + (1e6 / n if model.scale_is_free else 0.0)
    places = np.arange(model.size)[model.temperature_slice]
    return Quadratic(zeros, zeros, placed(block, places, model.size)) if block.any() else None


def check_temperature(value: Any) -> None:
    """Raise unless this is one of the ways to say what is known of temperatures."""
    words = ("shared", "pooled", "per_expert")
    if isinstance(value, Mapping):
        for name, number in value.items():
            as_positive(number, f"temperature of {name}")
    elif isinstance(value, str):
        if value not in words:
            raise ValueError(
                "temperature must be a positive number, a mapping of names to such numbers, "
                f"or one of {', '.join(words)}, received {value!r}"
            )
    else:
        as_positive(value, "temperature")


def check_discounts(value: Any) -> None:
    """Raise unless this is one known discount, a mapping of names to known discounts, or None."""
    if isinstance(value, Mapping):
        for name, number in value.items():
            as_discount(number, f"discount of {name}")
    elif value is not None:
        as_discount(value)


def read_settings(
    problem: Problem, temperature: Temperature, discounts: Any, groups: Mapping[str, Any] | None, reward: Floats | None
) -> Settings:
    """What is known and what is tied, in the problem's order. Temperatures that are to be pooled begin as equal ones."""
    k = problem.n_experts
    scale_known = reward is not None or any(one.known_reward is not None for one in problem.exemplars)
    temperatures: Floats | None = None
    together: tuple[int, ...] | None = None
    if isinstance(temperature, Mapping):
        temperatures = numbers_of(temperature, problem.names, "temperature", "expert")
    elif temperature == "per_expert":
        temperatures = np.full(k, np.nan) if k > 1 or scale_known else None
    elif isinstance(temperature, str):
        temperatures, together = (np.full(k, np.nan), (0,) * k) if scale_known else (None, None)
    else:
        temperatures = np.full(k, float(temperature))
    known = None
    if discounts is not None:
        many = isinstance(discounts, Mapping)
        known = numbers_of(discounts, problem.names, "discounts", "expert") if many else np.full(k, as_discount(discounts))
        for k in np.flatnonzero((known == 1) & _endless(problem))[:1]:  # without discounting the values would be infinite
            raise ValueError(f"the discount of {problem.names[k]} must be below 1, because the task may never end, received 1")
    shared = _read_groups(problem, groups, known)
    free = temperatures is not None and np.isnan(temperatures).any()
    if known is not None and not np.isnan(known).any() and not free and reward is not None:
        raise ValueError("rewards, discounts and temperatures are all given: leave out at least one of them to be estimated")
    return Settings(shared, known, together, temperatures, reward)


def _endless(problem: Problem) -> Bools:
    """Who `(K,)` acts in a task that may never end."""
    endless = np.zeros(problem.n_experts, dtype=np.bool_)
    owner = np.array(problem.owner, dtype=np.int64)
    for members in problem.by_task():
        endless[owner[members]] |= bool(problem.experts[members[0]].mdp.never_ends().any())
    return endless


def _read_groups(problem: AnyProblem, groups: Mapping[str, Any] | None, known: Floats | None) -> tuple[int, ...] | None:
    """The number of each expert's group; members of one cannot have different known discounts."""
    if groups is None:
        return None
    if not isinstance(groups, Mapping):
        raise ValueError(f"groups must be a mapping of experts to the names of their groups, received {type(groups).__name__}")
    members = {label(name, "the name of an expert in groups"): str(group) for name, group in groups.items()}
    everybody = set(problem.names)
    unknown = [name for name in members if name not in everybody]
    if unknown:
        names = first_few(problem.names)
        raise ValueError(f"groups name {unknown[0]}, but there is no expert of that name: the experts are {names}")
    keys = [("group", members[name]) if name in members else ("alone", name) for name in problem.names]
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    given = np.full(len(keys), np.nan) if known is None else known
    together: dict[tuple[str, str], list[int]] = {}
    for k, key in enumerate(keys):
        together.setdefault(key, []).append(k)
    for own in together.values():
        distinct = sorted({float(given[k]) for k in own if not np.isnan(given[k])})
        if len(distinct) > 1:
            names = ", ".join(problem.names[k] for k in own)
            raise ValueError(f"{names} share one discount, but different ones are given: {', '.join(map(str, distinct))}")
    return tuple(number[key] for key in keys)


def with_known_reward(problem: Problem, known: Any) -> tuple[Problem, Floats | None]:
    """The problem with a known part of the reward, and the known reward parameters where the reward is known in full.

    Where the problem has no features and the reward is known for states and actions, no reward parameters are left.

    `known` is `(S,)` paid on arrival, `(S,A)` or `(A·S,)` in rows a·S + s for decisions, or a mapping of state names to what
    they pay on arrival.
    """
    if known is None:
        return problem, None
    numbers = as_floats(list(known.values()) if isinstance(known, Mapping) else known, "known_reward")
    if np.abs(numbers).max(initial=0.0) > LARGEST_UNIT:
        largest = np.abs(numbers).max()
        raise ValueError(
            f"known_reward must have numbers of at most {LARGEST_UNIT:g}, received {significant(largest)}: use another unit"
        )
    if problem.tabular and isinstance(known, Mapping):
        return problem, _by_state(problem.parameter_names, known)
    if problem.tabular and numbers.shape == (problem.n_parameters,):
        return problem, numbers
    of_task = {id(mdp): (*_paid(mdp, known), sp.csr_array((mdp.stacked.shape[0], 0))) for mdp in problem.mdps}

    def pay(expert: Expert) -> Expert:
        reward, arrival, nothing = of_task[id(expert.mdp)]
        return expert.paid(reward, arrival, nothing if problem.tabular else expert.features)

    paid = problem.in_settings(pay, () if problem.tabular else None)
    return paid, None if paid.n_parameters else np.zeros(0)


def _paid(mdp: MDP, known: Any) -> tuple[Floats, Floats | None]:
    """What is paid for each decision, in rows a·S + s, and on arrival where it is paid there."""
    states, rows = mdp.n_states, mdp.n_actions * mdp.n_states
    array = _by_state(mdp.state_names, known) if isinstance(known, Mapping) else as_floats(known, "known_reward")
    if array.shape == (states, mdp.n_actions):
        array = array.T.ravel()
    if array.shape not in ((states,), (rows,)):
        raise ValueError(
            f"known_reward must have one number for each of {states} states or {rows} pairs of state and action, "
            f"received shape {array.shape}"
        )
    if array.shape == (states,) and mdp.durations is not None:
        raise ValueError(
            "known_reward must be given for states and actions where moves take time and the reward is made of features, "
            "received one that is paid on arrival"
        )
    if array.shape == (states,):
        return read_only(mdp.stacked @ array), read_only(array)
    return read_only(np.where(mdp.live.T.ravel(), array, 0.0)), None


def _by_state(names: tuple[str, ...], known: Mapping[str, float]) -> Floats:
    """Return the known reward `(n,)` from a mapping that names every state."""
    reward = numbers_of(known, names, "known_reward", "state")
    missing = np.flatnonzero(np.isnan(reward))
    if missing.size:
        raise ValueError(f"known_reward must have a number for every state, received none for {names[missing[0]]!r}")
    return reward
