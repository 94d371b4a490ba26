"""What a fit, an interval or a question needs of any model of choice.

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
`sieve.SieveModel` (states that are vectors). Each says how it plans (`at`) and how choices move with x, backwards
(`ChoicePoint.pull_back`) and forwards (`ChoicePoint.blocks`). Layout, penalties, gradient and curvature are the same for all.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, cast

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.choice.parameters import Quadratic, Settings, group_numbers, known_of_groups, placed
from multihorizon.numerics.newton import Dense, Metric

#: Above this many rewards, or parameters in all, nothing of size p×p is formed: an information matrix costs the cube of them.
DENSE_REWARDS, DENSE_PARAMETERS = 700, 3000
#: Log-temperatures stay within ±5: beyond a factor of 148 a temperature is only a certain or a uniform policy.
LOG_TEMPERATURE_BOUND = 5.0


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
        groups, temperature_groups: for each of the K experts which look-ahead and which temperature is theirs.
        size: p, the number of parameters, known ones included.
        discount_slice, temperature_slice, transition_slice: where discounts (or coordinates of the look-ahead), log-temperatures
            and the numbers stand by which estimated transitions give way.
        lower, upper: bounds `(p,)` of the parameters.
        known: x with the values of what is known, NaN elsewhere; `fixed` `(p,)` marks it.
        known_temperature: the geometric mean of the temperatures that are known, the unit of rewards; 1 where none is.
        scale_is_free: whether a common factor of reward and temperatures is open: no part of either is known.
    """

    batches: Sequence[Decided]
    #: How many numbers say how far ahead an expert looks.
    n_coordinates: int = 1
    #: Whether some decisions have a known reward.
    pays_known: bool = False
    #: How often each move of estimated transitions that gives way was counted.
    move_counts: Floats = np.zeros(0)

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
        rewards = np.full(self.n_reward, np.nan) if settings.reward is None else settings.reward
        ahead = np.full(self.n_discounts, np.nan)
        if settings.discounts is not None:
            ahead[:] = known_of_groups(settings.discounts, self.groups)
        temperatures = np.ones(self.n_experts) if settings.temperatures is None else settings.temperatures
        logs = np.log(known_of_groups(temperatures, self.temperature_groups))
        self.known: Floats = np.concatenate([rewards, ahead, logs, np.full(self.n_transitions, np.nan)])
        self.fixed = ~np.isnan(self.known)
        given = logs[~np.isnan(logs)]
        self.known_temperature = float(np.exp(given.mean())) if given.size else 1.0
        self.scale_is_free = settings.reward is None and not self.pays_known and not given.size
        low, high = self._look_ahead_bounds
        gives_way = 6.0  # an estimated probability may change by a factor of e^6, one way or the other
        lower = np.repeat([-np.inf, low, -LOG_TEMPERATURE_BOUND, -gives_way], sizes)
        upper = np.repeat([np.inf, high, LOG_TEMPERATURE_BOUND, gives_way], sizes)
        self.lower: Floats = np.where(self.fixed, self.known, lower)
        self.upper: Floats = np.where(self.fixed, self.known, upper)

    @abstractmethod
    def at(self, x: Floats, near: ChoicePoint | None = None) -> ChoicePoint | None:
        """The model at x, its plans started from those of a `near` point; None where a value is infinite."""

    @property
    def is_large(self) -> bool:
        """Whether a dense information matrix is out of the question."""
        return self.n_reward > DENSE_REWARDS or self.size > DENSE_PARAMETERS

    @property
    def decisions(self) -> float:
        """How many decisions there are."""
        return float(sum(batch.visits.sum() for batch in self.batches))

    @property
    def feature_sizes(self) -> Floats:
        """The largest entry of each feature `(d,)`; about 1 for functions of a basis."""
        return np.ones(self.n_reward)

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
        given = np.ones(self.n_temperatures) if temperatures is None else np.asarray(temperatures, dtype=np.float64)
        scale = float(np.exp(np.log(given).mean())) if self.scale_is_free else 1.0
        moves = np.zeros(self.n_transitions) if transitions is None else transitions
        x = np.concatenate([reward / scale, discounts, np.log(given / scale), moves])
        return np.clip(np.where(self.fixed, self.known, x), self.lower, self.upper)

    def holding(self, penalty: Quadratic | None = None, ridge: Floats | float = 0.0) -> Self:
        """The same model with other penalties."""
        changed = copy.copy(self)
        changed._hold(penalty, ridge)
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
        return Dense(self.curvature())

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
