"""An answer with its uncertainty: what every analysis asks, whoever estimated.

An *estimate* knows the parameters x of an answer by name, their values and bounds, their covariance C, and the directions in
which the data say nothing of them. From these follow standard errors, intervals, contrasts `kᵀx` with variance `kᵀ C k`, and any
number `f(x)` by the delta method. It also draws x and says what each draw means for experts: rewards, discounts, temperatures.
Predictions, the minimum bonus and the design of studies are made of these draws.

Solvers attach an estimate to their solutions. `NormalEstimate` needs a covariance and nothing else, so it serves a solver of your
own; `Exact` stands for solvers without any error; `Sampled` holds draws, such as those of a posterior. The estimates of maximum
likelihood are in `likelihood.estimates`, that of a population is in `population.findings`.

*Normal draws.* x is drawn from `N(x̂, C)` with the symmetric root of C, less the open directions, and random numbers are dealt
out in the order of the estimates: draws do not depend on how experts and states are listed. A draw outside of its bounds is moved
onto them, and what it is correlated with follows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy.special import ndtri

from multihorizon.checks import Bools, Floats, Ints, as_level, as_shape, first_few
from multihorizon.mdp import MDP

#: How far from the estimate the pairs along open directions are.
ASIDE = 1e-3


class NoUncertaintyError(ValueError):
    """There is nothing to draw from; the message says why, to stand after "There are no intervals:"."""


@dataclass(frozen=True, eq=False)
class ExpertValues:
    """What an estimate says of experts `(K,)`: the shared reward `(d,)`, discounts `(K,)` and temperatures `(K,)`.

    `temperatures` is None for experts who choose the best action. `parameters` are the names of the rewards, numbers by default.
    """

    experts: tuple[str, ...]
    reward: Floats
    discounts: Floats
    temperatures: Floats | None
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class NamedValues:
    """The parameters of an estimate: names `(p,)`, values `(p,)` and bounds `(p,2)`."""

    names: tuple[str, ...]
    values: Floats
    bounds: Floats


@dataclass(frozen=True, eq=False)
class Draws:
    """Answers drawn from an estimate: rewards `(d,)` of all draws or `(d,n)`, discounts and temperatures `(K,n)`.

    `deviations` are those of each expert `(K,d,n)` from that reward, None where all share it. `tasks` are the tasks in which
    experts live, one for each draw where transitions are estimated; None where they are known.
    """

    reward: Floats
    discounts: Floats
    temperatures: Floats
    tasks: tuple[MDP, ...] | None = None
    deviations: Floats | None = None

    def reward_of(self, k: int) -> Floats:
        """Return the reward parameters of expert k, `(d,)` or `(d,n)`."""
        return self.reward if self.deviations is None else (self.reward.T + self.deviations[k].T).T

    def rewards_in(self, i: int) -> Floats:
        """Return the reward parameters of the i-th draw, `(d,)` of all or `(d,K)` of each expert."""
        reward = self.reward if self.reward.ndim == 1 else self.reward[:, i]
        return reward if self.deviations is None else reward[:, None] + self.deviations[:, :, i].T


@dataclass(frozen=True, eq=False)
class Pairs:
    """Answers in pairs on both sides of the estimate, so far away (`step`), along directions that the data leave open."""

    draws: Draws
    step: float


@runtime_checkable
class IntervalSource(Protocol):
    """What a solver leaves with its solution so that intervals `(K,2)` of the discount factors can be asked for later, at any
    level.

    A solution with standard errors and nothing else has normal intervals, `γ ± z · se` within [0, 1]. An `Estimate` is one that
    can do more.

    Example:
        >>> StandardErrors(np.array([0.5]), np.array([0.1])).at(0.95).round(2).tolist()
        [[0.3, 0.7]]
    """

    @property
    def computed(self) -> Mapping[float, Floats]:
        """Return the intervals computed so far, by level; these are saved with the solution."""
        ...

    def at(self, level: float) -> Floats:
        """Return the intervals `(K,2)` at this level."""
        ...


@dataclass(frozen=True, eq=False)
class Intervals(ABC):
    """Intervals of the discounts, computed when asked for and then kept by level."""

    computed: dict[float, Floats] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def compute(self, level: float) -> Floats:
        """Compute the intervals `(K,2)` at this level."""

    def at(self, level: float) -> Floats:
        """Return the intervals `(K,2)` at this level; NaN for discounts that are not known and for ends that were not found."""
        if as_level(level) not in self.computed:
            self.computed[level] = self.compute(level)
        return self.computed[level].copy()


@dataclass(frozen=True, eq=False)
class SavedIntervals:
    """The intervals that came with a solution read from a file."""

    computed: Mapping[float, Floats]

    def at(self, level: float) -> Floats:
        """Return the intervals `(K,2)` at a level they were saved with."""
        if level not in self.computed:
            saved = ", ".join(map(str, self.computed)) or "none"
            raise ValueError(
                f"this solution was read from a file: level must be one it was saved with ({saved}), got {level}; "
                f"read with its problem, solution.estimate.at({level}) computes any other"
            )
        return self.computed[level].copy()


@dataclass(frozen=True, eq=False)
class StandardErrors(Intervals):
    """Normal intervals from the `discounts` `(K,)` and their standard `errors` `(K,)`."""

    discounts: Floats
    errors: Floats

    def compute(self, level: float) -> Floats:
        """Compute the intervals, cut at 0 and 1."""
        half = float(ndtri(0.5 + level / 2)) * self.errors
        return np.clip(np.stack([self.discounts - half, self.discounts + half], axis=1), 0.0, 1.0)


class Estimate(Intervals):
    """The parameters of an answer, and how well they are known."""

    @property
    @abstractmethod
    def answer(self) -> ExpertValues:
        """Return what the estimate says of each expert."""

    @property
    @abstractmethod
    def parameters(self) -> NamedValues:
        """Return the parameters, with values and bounds."""

    @abstractmethod
    def covariance(self) -> Floats:
        """Return the covariance `(p,p)` of the parameters; raises NoUncertaintyError where there is none."""

    @abstractmethod
    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Draw n answers; raises NoUncertaintyError where there is no error to draw from."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the parameters."""
        return self.parameters.names

    @property
    def values(self) -> Floats:
        """Return the values of the parameters `(p,)`."""
        return self.parameters.values

    @property
    def open_directions(self) -> Floats:
        """Return directions `(p,k)` in which the data say nothing of the parameters."""
        return np.zeros((len(self.names), 0))

    @property
    def lost(self) -> Bools:
        """Of whom something is not identified `(K,)` that open directions do not show."""
        return np.zeros(len(self.answer.experts), dtype=np.bool_)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what a reader of the draws should know."""
        return ()

    @property
    def left_out(self) -> Mapping[str, str]:
        """Return who was left out of the estimate, and why."""
        return {}

    @property
    def is_exact(self) -> bool:
        """Say whether the answer has no error at all."""
        return False

    @property
    def has_likelihood(self) -> bool:
        """Say whether a likelihood of the decisions of each expert stands behind the answer."""
        return False

    @property
    def population(self) -> Any:
        """Return what was found of the population that experts are drawn from; None where each is estimated alone."""
        return None

    def pairs(self) -> Pairs | None:
        """Return answers on both sides of the estimate along open directions; None where no direction is open."""
        return None

    def ambiguity(self, needs_reward: bool) -> str:
        """Say why other answers explain the experts as well; empty where they do not.

        Args:
            needs_reward: whether the reward matters, or only the policies.
        """
        return ""

    def guesses(self, n: int, seed: int) -> Draws:
        """Draw n answers that a study should be prepared for: from the estimate and a weak prior together.

        Raises:
            NoUncertaintyError: where the answer is taken as it is.
        """
        raise NoUncertaintyError("there is nothing to draw from")

    def belongs_to(self, problem: object) -> bool:
        """Say whether this is an estimate of that problem, and not of another with the same experts."""
        return True

    def of_groups(self) -> Estimate:
        """Return the estimate of a typical and of a new person of each group.

        Raises:
            ValueError: where there are no groups.
        """
        raise ValueError("groups are those of a Population, and this fit has none: fit with a formula, or ask for each person")

    @property
    def standard_errors(self) -> Floats:
        """Return the standard errors `(p,)`; NaN for what is not identified."""
        open_ = np.abs(self.open_directions)
        errors = np.sqrt(np.maximum(np.diag(self.covariance()), 0.0))
        seen: Floats = np.where((open_ > 1e-3 * open_.max(initial=0.0)).any(axis=1), np.nan, errors)
        return seen

    def interval(self, name: str, level: float = 0.95) -> tuple[float, float]:
        """Return the interval of a parameter by its name: that of the discounts where it is one, else normal within its bounds.

        Raises:
            ValueError: for a name that is no parameter.
        """
        experts = {f"discount of {expert}": k for k, expert in enumerate(self.answer.experts)}
        if name in experts:
            low, high = self.at(level)[experts[name]].tolist()
            return low, high
        place = self._place(name)
        half = float(ndtri(0.5 + as_level(level) / 2)) * float(self.standard_errors[place])
        least, largest = self.parameters.bounds[place].tolist()
        value = float(self.values[place])
        return float(np.maximum(value - half, least)), float(np.minimum(value + half, largest))

    def contrast(self, weights: Floats | Mapping[str, float]) -> tuple[float, float]:
        """Return the value of a weighted sum of parameters and its standard error; NaN where the data do not show it.

        Args:
            weights: `(p,)`, or by the names of parameters.
        """
        k = np.zeros(len(self.names))
        open_ = self.open_directions
        if isinstance(weights, Mapping):
            for name, weight in weights.items():
                k[self._place(name)] = weight
        else:
            k = np.asarray(weights, dtype=np.float64)
            as_shape(k, (len(self.names),), "weights")
        value, error = float(k @ self.values), float(np.sqrt(max(float(k @ self.covariance() @ k), 0.0)))
        moved = np.abs(k @ open_).max(initial=0.0) > 1e-6 * np.abs(k).max(initial=0.0)
        return (np.nan, np.nan) if moved else (value, error)

    def delta(self, value: Callable[[Floats], float]) -> tuple[float, float]:
        """Return a number that the parameters `(p,)` determine and its standard error by the delta method."""
        slope = gradient_of(value, self.values)
        return value(self.values), float(np.sqrt(max(float(slope @ self.covariance() @ slope), 0.0)))

    def _place(self, name: str) -> int:
        if name not in self.names:
            raise ValueError(f"name must be a parameter ({first_few(self.names)}), got {name!r}")
        return self.names.index(name)


@dataclass(frozen=True, eq=False)
class PointEstimate(Estimate):
    """An estimate of an answer (`point`): the parameters are its rewards, discounts and logarithms of temperatures."""

    point: ExpertValues

    @property
    def answer(self) -> ExpertValues:
        """Return the answer as it is."""
        return self.point

    @property
    def parameters(self) -> NamedValues:
        """Return rewards, discounts and logarithms of temperatures."""
        return parameters_of(self.point)


@dataclass(frozen=True, eq=False)
class Exact(PointEstimate):
    """An answer without an error.

    Attributes:
        solver: whose it is.
        other_answers: why other discounts and rewards explain the experts as well; empty where they do not.
        other_rewards: why other rewards do, with the same policies.
        of_what: of which parameters there is no error; empty where it is all of them.
    """

    solver: str
    other_answers: str = ""
    other_rewards: str = ""
    of_what: str = ""

    @property
    def is_exact(self) -> bool:
        """There is no error."""
        return True

    def covariance(self) -> Floats:
        """Raise: there is none."""
        raise NoUncertaintyError(f"{self.solver} has no standard errors{self.of_what}")

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Raise: there is nothing to draw from."""
        raise NoUncertaintyError(f"{self.solver} has no standard errors{self.of_what}")

    def ambiguity(self, needs_reward: bool) -> str:
        """Say why other answers, or other rewards where the reward matters, explain the experts as well."""
        return self.other_answers or (self.other_rewards if needs_reward else "")

    def compute(self, level: float) -> Floats:
        """Raise: there are no intervals."""
        raise ValueError(
            f"confidence intervals need a solution of MaximumLikelihood, or one with standard errors, got one of {self.solver}"
        )


@dataclass(frozen=True, eq=False)
class NormalEstimate(PointEstimate):
    """An answer with temperatures and the covariance of its rewards, discounts and logarithms of temperatures, in this order.

    Attributes:
        errors: the covariance `(d+2K,d+2K)`, or `(d+K,d+K)` where temperatures are known.
        open_: directions in which the data say nothing, with one row for each row of the covariance.
        largest: the largest discount there is.

    Example:
        >>> point = ExpertValues(("ann",), np.array([1.0, 2.0]), np.array([0.5]), np.ones(1))
        >>> estimate = NormalEstimate(point, np.diag([0.1, 0.1, 0.01]) ** 2)
        >>> [round(end, 2) for end in estimate.interval("discount of ann")]
        [0.48, 0.52]
    """

    errors: Floats
    open_: Floats | None = None
    largest: float = 1.0

    def __post_init__(self) -> None:
        if self.point.temperatures is None:
            raise ValueError("a normal estimate must have temperatures, got an answer without")
        size, k = len(self.names), len(self.point.experts)
        if self.errors.shape != (size - k, size - k):
            as_shape(self.errors, (size, size), "the covariance of an estimate")
        if self.open_ is not None:
            as_shape(self.open_, (len(self.errors), self.open_.shape[-1]), "the open directions of an estimate")

    @property
    def parameters(self) -> NamedValues:
        """Return rewards, discounts and logarithms of temperatures."""
        return parameters_of(self.point, self.largest)

    def covariance(self) -> Floats:
        """Return the covariance, with zeros for what is known."""
        room = len(self.names) - len(self.errors)
        return np.pad(self.errors, (0, room))

    @property
    def open_directions(self) -> Floats:
        """Return directions in which the data say nothing."""
        if self.open_ is None:
            return np.zeros((len(self.names), 0))
        return np.pad(self.open_, ((0, len(self.names) - len(self.open_)), (0, 0)))

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Draw n answers."""
        followed = np.arange(self.point.reward.size, len(self.names))
        errors = self.covariance()
        return self._seen_at(normal_places(n, rng, self.parameters, errors, self.open_directions, followed))

    def pairs(self) -> Pairs | None:
        """Return answers on both sides of the estimate along open directions."""
        sides = places_aside(self.parameters, self.open_directions, np.ones(len(self.names)))
        return None if sides is None else Pairs(self._seen_at(sides), ASIDE)

    def _seen_at(self, places: Floats) -> Draws:
        """Cut the parameters `(n,p)` into rewards, discounts and temperatures."""
        d = self.point.reward.size
        k = len(self.point.experts)
        return Draws(places[:, :d].T, places[:, d : d + k].T, np.exp(places[:, d + k :].T))

    def compute(self, level: float) -> Floats:
        """Return normal intervals of the discounts, cut at those that there are."""
        d = self.point.reward.size
        k = len(self.point.experts)
        half = ndtri(0.5 + level / 2) * self.standard_errors[d : d + k, None]
        ends: Floats = np.clip(self.point.discounts[:, None] + half * [-1, 1], 0.0, self.largest)
        return ends


@dataclass(frozen=True, eq=False)
class Sampled(PointEstimate):
    """An answer with draws of it, such as those of a posterior."""

    drawn: Draws

    def covariance(self) -> Floats:
        """Return the covariance of the draws."""
        reward = np.broadcast_to(self.drawn.reward.T, (self.drawn.discounts.shape[1], self.point.reward.size))
        return np.atleast_2d(np.cov(np.column_stack([reward, self.drawn.discounts.T, np.log(self.drawn.temperatures.T)]).T))

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Choose n of the draws at random."""
        drawn = self.drawn
        which = rng.choice(drawn.discounts.shape[1], n, replace=n > drawn.discounts.shape[1])
        reward = drawn.reward if drawn.reward.ndim == 1 else drawn.reward[:, which]
        return Draws(reward, drawn.discounts[:, which], drawn.temperatures[:, which])

    def compute(self, level: float) -> Floats:
        """Return the quantiles of the discounts."""
        return np.stack(interval_ends(self.drawn.discounts, level, 1, (0.0, 1.0)), axis=1)


def parameters_of(answer: ExpertValues, largest: float = 1.0) -> NamedValues:
    """Name the rewards, discounts and logarithms of temperatures of an answer."""
    d = answer.reward.size
    k = len(answer.experts)
    rewards = answer.parameters if len(answer.parameters) == d else range(d)
    names = [f"reward of {name}" for name in rewards]
    kinds = ("discount",) if answer.temperatures is None else ("discount", "log temperature")
    names += [f"{kind} of {expert}" for kind in kinds for expert in answer.experts]
    logs = np.zeros(0) if answer.temperatures is None else np.log(answer.temperatures)
    bounds = np.repeat([[-np.inf, np.inf], [0.0, largest], [-np.inf, np.inf]], [d, k, logs.size], axis=0)
    return NamedValues(tuple(names), np.concatenate([answer.reward, answer.discounts, logs]), bounds)


def gradient_of(value: Callable[[Floats], float], x: Floats, first: int = 0) -> Floats:
    """Return the gradient of a number by central differences; it does not depend on the parameters before the `first`."""
    slope = np.zeros(x.size)
    step = 1e-5
    for j in range(first, x.size):
        move = np.zeros(x.size)
        move[j] = step
        slope[j] = (value(x + move) - value(x - move)) / (2 * step)
    return slope


def normal_places(
    n: int,
    rng: np.random.Generator,
    parameters: NamedValues,
    covariance: Floats,
    open_directions: Floats,
    followed: Ints,
    ordered: int | None = None,
) -> Floats:
    """Draw parameters `(n,p)` around their values, inside their bounds.

    Args:
        n, rng: how many, and from what.
        parameters: values and bounds.
        covariance: of the parameters `(p,p)`.
        open_directions: along which nothing is drawn `(p,k)`.
        followed: the places of parameters that the others follow where a draw puts them on a bound.
        ordered: how many parameters, the first ones, are dealt random numbers by the order of their values; by default all.
    """
    values, (low, high) = parameters.values, parameters.bounds.T
    across = np.linalg.qr(open_directions)[0] if open_directions.shape[1] else open_directions
    squares, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(squares, 0.0))) @ vectors.T
    root -= across @ (across.T @ root)
    first = values[:ordered]
    errors = np.sqrt(np.maximum(np.diag(covariance)[: first.size], 0.0))
    z = np.concatenate([dealt(rng, n, first, errors), rng.standard_normal((n, values.size - first.size))], axis=1)
    x, covariance = values + z @ root.T, root @ root.T
    among = followed[np.diag(covariance)[followed] > 1e-12]
    held = np.zeros(x.shape, dtype=np.bool_)
    for _ in range(3):
        outside = np.zeros(x.shape, dtype=np.bool_)
        outside[:, among] = ((x < low) | (x > high))[:, among]
        if not (outside & ~held).any():
            break
        held |= outside
        for row in np.flatnonzero(outside.any(axis=1)):
            columns = np.flatnonzero(held[row])
            gap = np.clip(x[row, columns], low[columns], high[columns]) - x[row, columns]
            x[row] += covariance[:, columns] @ np.linalg.lstsq(covariance[np.ix_(columns, columns)], gap, rcond=None)[0]
    inside: Floats = np.clip(x, low, high)
    return inside


def places_aside(parameters: NamedValues, open_directions: Floats, sizes: Floats) -> Floats | None:
    """Return parameters `(4,p)` on both sides of the values, along two directions in general position among the open ones.

    What moves along any open direction moves along one in general position. `sizes` `(p,)` are the natural units.
    """
    if not open_directions.shape[1]:
        return None
    ways = open_directions @ np.random.default_rng(0).standard_normal((open_directions.shape[1], 2))
    ways /= np.maximum(np.abs(ways / sizes[:, None]).max(axis=0), 1e-300)
    aside = np.stack([parameters.values + sign * ASIDE * way for way in ways.T for sign in (-1, 1)])
    inside: Floats = np.clip(aside, *parameters.bounds.T)
    return inside


def dealt(rng: np.random.Generator, n: int, estimate: Floats, error: Floats) -> Floats:
    """Draw standard normal numbers `(n,p)`, dealt out in the order of estimates `(p,)` and, where equal, of their errors."""
    numbers = np.empty((n, estimate.size))
    numbers[:, np.lexsort((np.round(error, 7), np.round(estimate, 7)))] = rng.standard_normal((n, estimate.size))
    return numbers


def interval_ends(drawn: Floats, level: float, axis: int, possible: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return the lower and the upper end of what was drawn: one more draw lies between them with `level` as its probability.

    A draw without a value (NaN) may have any `possible` one: it counts as the least for the lower end and as the largest for the
    upper one. So both ends cover it, and where such draws are many, the interval is all that is possible.
    """
    ends = []
    for share, other in zip(((1 - level) / 2, (1 + level) / 2), possible, strict=True):
        ordered = np.sort(np.where(np.isnan(drawn), other, drawn), axis=axis)
        n = ordered.shape[axis]
        place = min(max((n + 1) * share - 1, 0.0), n - 1.0)
        below = int(place)
        end: Floats = ordered.take(below, axis=axis)
        if place > below:
            end = (1 - place + below) * end + (place - below) * ordered.take(below + 1, axis=axis)
        ends.append(end)
    return ends[0], ends[1]
