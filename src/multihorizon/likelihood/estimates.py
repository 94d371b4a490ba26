"""Estimates and evidence of the solvers for decisions: of experts together, of functions of the state, and of look-ahead.

Experts together have `x = (θ, γ, log λ, t)` with the covariance of `likelihood.intervals`, estimated transitions included, and
profile-likelihood intervals. Where goals are nearly shared, deviations follow each draw of x: the most likely ones there, with
the normal errors of Laplace's method.

*Guesses* for the design of a study are drawn with a weak prior beside the information of the fit: rewards of the size of those
found, logits of discounts within about 1, log-temperatures within about a half.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypedDict

import numpy as np
import pandas as pd
from scipy.special import expit, logit, ndtri

from multihorizon.checks import Bools, Floats
from multihorizon.choice.deviations import NearPoint
from multihorizon.choice.model import ChoicePoint, Likelihood
from multihorizon.choice.plans import SOFT, Choosing, Habits, value_name
from multihorizon.estimate import (
    ASIDE,
    Draws,
    Estimate,
    ExpertValues,
    NamedValues,
    NoUncertaintyError,
    Pairs,
    dealt,
    normal_places,
    places_aside,
)
from multihorizon.files import read_numbers
from multihorizon.likelihood.clusters import TakenAsIndependent
from multihorizon.likelihood.intervals import Precision, ProfileIntervals, precision
from multihorizon.numerics.distributions import chi2_ppf
from multihorizon.solution import DecisionEvidence, Deviations, DiscountEvidence, Evidence, Solution
from multihorizon.words import Table, in_words, significant


@dataclass(frozen=True, eq=False, kw_only=True)
class FamilyParameters(Evidence):
    """The family of look-ahead, and each expert's parameters by name."""

    family: str
    parameters: dict[str, list[float]]

    _lengths: ClassVar[dict[str, str]] = {"parameters": "experts"}


@dataclass(frozen=True, eq=False, kw_only=True)
class FittedLookahead(FamilyParameters):
    """A look-ahead that is not exponential.

    Attributes:
        standard_errors, identified: of the parameters, by name.
        weights: d(1), d(2), … of each expert, as far as they could look.
        steps: how far that is.
        depth_profile: the log-likelihood of each depth; None for other families.
        parameter_count: how many parameters the fit has, those of the reward included.
    """

    standard_errors: dict[str, list[float]]
    identified: dict[str, list[bool]]
    weights: list[list[float]]
    steps: list[int]
    depth_profile: list[Any] | None
    parameter_count: int

    _lengths: ClassVar[dict[str, str]] = {"parameters": "experts", "weights": "experts", "steps": "experts"}


class KnownBefore(TypedDict):
    """What was known and not estimated."""

    discounts: list[bool]
    temperatures: list[bool]
    reward: str | None


class HabitFigures(TypedDict):
    """A share of lapses, or the pull of the last action: known, or with its 95% CI and the p-value of none.

    An end of the interval is None where the decisions do not bound it.
    """

    estimate: float
    interval: list[float | None]
    p: float | None


class ChoicePlanner(TypedDict):
    """How the future is valued, and what choices have in them beside the plan; None where that is nothing.

    `other_fixed_points` says whether values that are means of choices have several fixed points at the answer.
    """

    value: str
    lapse: HabitFigures | None
    stickiness: HabitFigures | None
    other_fixed_points: bool


def habits_of(planner: ChoicePlanner | None) -> Floats:
    """Return the share of lapses and the pull of the last action, 0 where there are none."""
    figures = (None, None) if planner is None else (planner["lapse"], planner["stickiness"])
    return np.array([0.0 if each is None else each["estimate"] for each in figures])


def known_planner(choosing: Choosing) -> ChoicePlanner | None:
    """Return how experts choose where all of it is known; None where values are soft and there is nothing else."""
    if choosing == SOFT:
        return None
    numbers = choosing.habits or (0.0, 0.0)
    lapse, stickiness = (HabitFigures(estimate=x, interval=[x, x], p=None) if x else None for x in numbers)
    return ChoicePlanner(value=value_name(choosing.value), lapse=lapse, stickiness=stickiness, other_fixed_points=False)


def choosing_of(solution: Solution) -> Choosing:
    """Return how the experts of a solution choose."""
    planner = solution.evidence.get("planner")
    if planner is None:
        return SOFT
    habits = Habits(*habits_of(planner).tolist())
    own = solution.options.get("planner")
    if own is not None and not callable(own):
        raise ValueError(f"this fit has a planner of its own, {own}, and a saved fit holds no function: fit again")
    return Choosing(own or planner["value"], habits if any(habits) else None)


def _verdict(name: str, p_value: float | None) -> str:
    """Return what the test of none says."""
    if p_value is None:
        return f"whether a {name} of 0 is rejected is not known, because the search for the fit without it did not end."
    return f"a {name} of 0 {'is rejected' if p_value <= 0.05 else 'is not rejected'} (p = {significant(p_value, 2)})."


def about_planner(planner: ChoicePlanner | None) -> list[str]:
    """Return what is to be said of lapses, of stickiness and of the values of the future."""
    if planner is None:
        return []
    lines = []
    for name, figures, found in (
        ("lapse", planner["lapse"], "A share of {} of the choices are lapses{}"),
        ("stickiness", planner["stickiness"], "The last action is worth {} more than others{}"),
    ):
        if figures is None:
            continue
        low, high = figures["interval"]
        if low is not None and low == high:
            lines.append(found.format(significant(figures["estimate"]), ", as given."))
            continue
        if low is None and high is None:
            lines.append(f"The {name} is not identified: the decisions leave open how large it is.")
            continue
        ends = f"{significant(low)} to {significant(high)}" if low is not None and high is not None else None
        ends = ends or (f"up to {significant(high)}" if high is not None else f"from {significant(low or 0.0)} on")
        lines.append(found.format(significant(figures["estimate"]), f" (95% CI {ends}): ") + _verdict(name, figures["p"]))
    if planner["other_fixed_points"]:
        lines.append(
            "The mean value of choices has several fixed points in this task: the answer is for the one that soft values lead to."
        )
    return lines


class OtherEnd(TypedDict):
    """Where another climb of the search ended."""

    log_likelihood: float
    discounts: list[float]
    steps: int
    finished: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class LikelihoodEvidence(DiscountEvidence, solvers=("MaximumLikelihood",)):
    """What `MaximumLikelihood` says.

    Attributes:
        known: what was known and not estimated: whose discounts, whose temperatures, how much of the reward.
        information_spectrum: eigenvalues of the information matrix.
        reward_standard_errors: None where the decisions say nothing.
        ridge, ridge_weights, ridge_reason: the penalty that holds the rewards, and why there is one.
        lost_temperatures: by expert, whether the temperature is not identified although the scale of the reward is known.
        log_temperature_errors: standard errors of the log temperatures.
        transition_widening: by expert, how much wider estimated transitions make the standard error of the discount.
        transitions: the transitions as the decisions changed them, where they are estimated with the rest.
        equally_likely: other ends of the search that are as likely with other discounts.
        other_maxima: those and maxima that are a little less likely, which confidence intervals reach where they are inside.
        deviations: how far people deviate from the shared reward; None where that was not asked.
        reasons: by expert, why there is no number for the discount; empty where there is one.
        independence: what was taken to be independent of each other.
        planner: how the future is valued, lapses and stickiness; None where values are soft and there are neither.
    """

    known: dict[str, Any]
    information_spectrum: list[float]
    reward_standard_errors: list[float | None]
    ridge: float
    ridge_weights: list[float]
    ridge_reason: str
    lost_temperatures: list[bool]
    log_temperature_errors: list[float | None]
    transition_widening: list[float]
    transitions: list[Any]
    lookahead: FamilyParameters
    equally_likely: list[dict[str, Any]]
    other_maxima: list[dict[str, Any]] | None = None
    deviations: Deviations | None = None
    reasons: list[str] | None = None
    independence: TakenAsIndependent | None = None
    planner: ChoicePlanner | None = None

    _schema: ClassVar[dict[str, Any]] = {
        "known": KnownBefore,
        "transitions": list[Floats],
        "equally_likely": list[OtherEnd],
        "starts": list[OtherEnd],
    }
    _lengths: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("identified", "lost_temperatures", "log_temperature_errors", "transition_widening"), "experts"),
        **dict.fromkeys(("reward_standard_errors", "ridge_weights"), "reward"),
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class LookaheadEvidence(DecisionEvidence, solvers=("MaximumLikelihood",)):
    """What `MaximumLikelihood` says with a look-ahead that is not exponential; `no_discount` says why there is no discount."""

    lookahead: FittedLookahead
    no_discount: str
    ridge_weights: list[float]
    ridge_reason: str
    steps: int
    told_by: ClassVar[str] = "no_discount"

    def lookahead_weights(self) -> list[list[float]]:
        """Return the weights d(1), d(2), … of each expert."""
        return self.lookahead.weights

    def lookahead_parameters(self) -> dict[str, Floats]:
        """Return the parameters of each expert by name."""
        return {name: read_numbers(values) for name, values in self.lookahead.parameters.items()}

    def summary_facts(self) -> dict[str, Any]:
        """Return the same, and the family."""
        return super().summary_facts() | {"look-ahead": self.lookahead.family}

    def expert_tables(self, solution: Solution) -> list[Table]:
        """Return the parameters of each expert with their standard errors."""
        errors = self.lookahead.standard_errors or {}
        columns: dict[str, Any] = {"expert": solution.experts}
        for name, values in self.lookahead_parameters().items():
            columns |= {name: values, f"{name}_standard_error": read_numbers(errors.get(name, [None] * len(values)))}
        return [Table(pd.DataFrame(columns | {"temperature": solution.temperature}), "look-ahead")]


@dataclass(frozen=True, eq=False, kw_only=True)
class SieveEvidence(DiscountEvidence, solvers=("SieveLikelihood",)):
    """What `SieveLikelihood` says.

    Attributes:
        chance: the log-likelihood of choices at random.
        unrestricted_logits: the log-likelihood of logits of each expert's own.
        explained_share: how much of the way from the first to the second the fit goes.
        basis, functions, penalty: the functions of the state, their number, and the penalty on roughness.
        tried: the bases and penalties that were compared, with their held-out log-likelihoods.
        first_stage, first_stage_smoothing, first_stage_widening: how next states are predicted, with which weights, and how much
            wider its error makes the standard errors of the discounts.
        resamples: how many times episodes were drawn again for the standard errors.
        overlap: by expert, the share of its decisions made where others act too.
        coordinates, left_out, relevance_p: the coordinates used, those left out, and how far each matters.
        next_state_r2: by coordinate, how well state and action predict its change.
        richer_basis, basis_too_poor: how much better more functions predict, and whether that is too much.
    """

    chance: float
    unrestricted_logits: float
    explained_share: float
    basis: str
    functions: int
    penalty: float
    tried: list[dict[str, Any]]
    first_stage: str
    first_stage_smoothing: dict[str, float | str] | None
    first_stage_widening: list[float] | None
    resamples: int
    overlap: list[float]
    coordinates: list[str]
    left_out: list[str]
    relevance_p: dict[str, float]
    next_state_r2: dict[str, float]
    richer_basis: dict[str, float]
    basis_too_poor: bool


def unpredicted(next_state_r2: Mapping[str, float]) -> list[str]:
    """Return the coordinates of whose change state and action predict less than 2%; one that never changes is predicted."""
    return [name for name, share in next_state_r2.items() if share <= 0.02]


def dynamics_unknown(next_state_r2: Mapping[str, float]) -> bool:
    """Return whether half of the coordinates or more are not predicted."""
    return 2 * len(unpredicted(next_state_r2)) >= len(next_state_r2)


def numbers_or_none(values: Floats) -> list[float | None]:
    """Return the numbers, with None for those that are not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]


class ModelEstimate(Estimate):
    """An estimate at a point of a model of choice; `ahead` is what its parameters of look-ahead are called."""

    ahead: ClassVar[str] = "discount"

    @property
    @abstractmethod
    def model(self) -> Any:
        """Return the model."""

    @property
    @abstractmethod
    def vector(self) -> Floats:
        """Return the place of the answer `(p,)`."""

    @cached_property
    @abstractmethod
    def precise(self) -> Precision:
        """Return what is identified, and how well."""

    @property
    def answer(self) -> ExpertValues:
        """Return the answer in the order of the experts."""
        model, x = self.model, self.vector
        return ExpertValues(
            model.problem.names, model.reward(x).copy(), model.discounts(x), model.temperatures(x), self._rewards()
        )

    @cached_property
    def parameters(self) -> NamedValues:
        """Return rewards, discounts and logarithms of temperatures of each group, and transitions."""
        model = self.model
        names = [f"reward of {name}" for name in self._rewards()]
        for kind, groups, part in (
            (self.ahead, model.groups, model.discount_slice),
            ("log temperature", model.temperature_groups, model.temperature_slice),
        ):
            members = [[model.problem.names[k] for k in np.flatnonzero(groups == g)] for g in range(part.stop - part.start)]
            names += [f"{kind} of {in_words(each)}" if each else f"{kind} {g + 1}" for g, each in enumerate(members)]
        names += ["lapse", "stickiness"][: model.habit_slice.stop - model.habit_slice.start]
        names += [f"transition {i}" for i in range(model.size - len(names))]
        return NamedValues(tuple(names), self.vector, np.stack([model.lower, model.upper], axis=1))

    def _rewards(self) -> tuple[str, ...]:
        names: tuple[str, ...] = tuple(self.model.problem.parameter_names)
        size = int(self.model.n_reward)
        return names if len(names) == size else tuple(map(str, range(size)))

    def covariance(self) -> Floats:
        """Return the covariance of all parameters."""
        if self.precise.covariance is None:
            raise NoUncertaintyError("there are too many reward parameters for their covariance")
        return self.precise.covariance

    @property
    def standard_errors(self) -> Floats:
        """Return the standard errors `(p,)`; NaN for what is not identified."""
        return self.precise.standard_errors

    @property
    def open_directions(self) -> Floats:
        """Return directions in which the decisions say nothing."""
        return self.precise.null_space

    def places(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw parameters `(n,p)`; transitions keep the order of the task."""
        model = self.model
        among = np.arange(model.discount_slice.start, model.habit_slice.stop)
        followed = among[~model.fixed[among]]
        ordered = int(model.transition_slice.start)
        return normal_places(n, rng, self.parameters, self.covariance(), self.open_directions, followed, ordered)

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Draw n answers."""
        return self.seen_at(self.places(n, rng))

    def pairs(self) -> Pairs | None:
        """Return answers on both sides of the estimate; the unit of a reward makes the largest entry of its feature 1."""
        sizes = np.ones(self.model.size)
        sizes[: self.model.n_reward] = 1 / self.model.feature_sizes
        sides = places_aside(self.parameters, self.open_directions, sizes)
        return None if sides is None else Pairs(self.seen_at(sides), ASIDE)

    def seen_at(self, places: Floats) -> Draws:
        """Return rewards, discounts and temperatures at places `(n,p)`."""
        model = self.model
        discounts = np.stack([model.discounts(x) for x in places], axis=1)
        temperatures = np.stack([model.temperatures(x) for x in places], axis=1)
        return Draws(np.stack([model.reward(x) for x in places], axis=1), discounts, temperatures)


@dataclass(frozen=True, eq=False)
class JointEstimate(ProfileIntervals, ModelEstimate):
    """Experts together: x with profile-likelihood intervals of the discounts.

    `evidence` is that of the solution: of whom something else is not identified, and what was taken to be independent.
    """

    evidence: LikelihoodEvidence | None = None

    @property
    def has_likelihood(self) -> bool:
        """Return whether a likelihood of the decisions of each expert stands behind the answer."""
        return True

    @property
    def model(self) -> Likelihood:
        """Return the model."""
        return self.likelihood

    @property
    def vector(self) -> Floats:
        """Return the place of the answer."""
        return self.x

    @cached_property
    def precise(self) -> Precision:
        """Return what is identified, and how well."""
        return precision(self.point)

    def belongs_to(self, problem: object) -> bool:
        """Say whether this is an estimate of that problem."""
        return self.problem is problem

    @property
    def lost(self) -> Bools:
        """Return of whom the temperature is not identified; everybody where other discounts are as likely."""
        if self.evidence is None:
            return np.zeros(len(self.problem.names), dtype=np.bool_)
        return np.array(self.evidence.lost_temperatures, dtype=np.bool_) | bool(self.evidence.equally_likely)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what draws do not allow for."""
        if self.evidence is None:
            return ()
        lines = ["Other discounts are as likely, so that nothing bounds what follows."] if self.evidence.equally_likely else []
        unit = (self.evidence.independence or {"unit": "decision"})["unit"]
        if unit != "decision" and self.likelihood.clusters is None:
            lines.append(
                f"The unit of the fit is the {unit}, but a saved fit does not hold its {unit}s: these intervals take every "
                "decision as independent of every other, and are too narrow."
            )
        return tuple(lines)

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Draw n answers."""
        point = self.point
        x = self.places(n, rng)
        noise = None
        if isinstance(point, NearPoint):
            noise = dealt(rng, n, point.deviations.ravel(), np.diagonal(point.curvatures, axis1=1, axis2=2).ravel())
        return self.seen_at(x, noise)

    def seen_at(self, places: Floats, noise: Floats | None = None) -> Draws:
        """Return what places `(n,p)` mean for the experts, estimated transitions and deviations included.

        `noise` `(n,K·d)` is that of deviations; without it they are the most likely ones at each place.
        """
        point = self.point
        plain = super().seen_at(places)
        tasks = None
        model = point.likelihood
        if model.moves and model.moves[0].size:
            entries = [model.transitions_at(x)[0] for x in places]
            tasks = tuple(self.problem.mdps[0].with_probabilities(data) for data in entries)
        deviations = _deviations_at(point, places, noise) if isinstance(point, NearPoint) else None
        return Draws(plain.reward, plain.discounts, plain.temperatures, tasks, deviations)

    def guesses(self, n: int, seed: int) -> Draws:
        """Draw n answers from the fit and a weak prior together, in pairs of opposite sign."""
        point, model = self.point, self.likelihood
        free = np.flatnonzero(~model.fixed)
        ahead, warm = model.discount_slice, model.temperature_slice
        gamma = np.clip(point.x[ahead], 0.03, 0.97)
        theta = point.x[: model.n_reward]
        slope = np.ones(model.size)
        slope[ahead] = gamma * (1 - gamma)
        reward = max(1.0, float(np.ptp(theta)) / 2) if theta.size else 1.0
        scales = np.repeat(
            [reward, 1.0, 0.5, 0.5, 1.0],
            [model.n_reward, model.n_discounts, model.n_temperatures, model.n_habits, model.n_transitions],
        )
        scales[: model.n_reward] /= np.maximum(1.0, model.feature_sizes)
        # In these units the prior is the identity.
        unit = (slope * scales)[free]
        root = principal_root(np.linalg.inv(point.curvature()[np.ix_(free, free)] * np.outer(unit, unit) + np.eye(free.size)))
        places = []
        for z in paired_normal(n, free.size, seed):
            move = np.zeros(model.size)
            move[free] = scales[free] * (root @ z)
            x = point.x + move
            logits = np.clip(logit(gamma) + move[ahead], -4.0, 4.0)
            x[ahead] = np.where(model.fixed[ahead], point.x[ahead], model.upper[ahead] * expit(logits))
            x[warm] = np.clip(x[warm], -5.0, 5.0)
            places.append(x)
        return super().seen_at(np.array(places))


def _deviations_at(point: NearPoint, x: Floats, noise: Floats | None) -> Floats:
    """Return deviations `(K,d,n)` at places x `(n,p)`: the most likely ones there, and around them the normal ones of Laplace's
    method.

    NaN where the most likely ones are not found, so that there is no plan.
    """
    deviations = np.full((*point.deviations.shape, len(x)), np.nan)
    for i, each in enumerate(x):
        there = point.likelihood.at(each, point)
        if there is not None:
            deviations[:, :, i] = there.deviations
            if noise is not None:
                values, vectors = np.linalg.eigh(there.curvatures)
                root = (vectors / np.sqrt(values)[:, None, :]) @ vectors.transpose(0, 2, 1)
                deviations[:, :, i] += (root @ noise[i].reshape(*point.deviations.shape, 1))[:, :, 0]
    return deviations


@dataclass(frozen=True, eq=False)
class PlacedEstimate(ModelEstimate):
    """An estimate that keeps the model at its answer (`place`)."""

    place: ChoicePoint

    @property
    def model(self) -> Any:
        """Return the model."""
        return self.place.likelihood

    @property
    def vector(self) -> Floats:
        """Return the place of the answer."""
        return self.place.x

    @cached_property
    def precise(self) -> Precision:
        """Return what is identified, and how well."""
        return precision(self.place)


@dataclass(frozen=True, eq=False)
class FunctionEstimate(PlacedEstimate):
    """Functions of the state: normal intervals of the discounts, cut at the discounts that can be tried.

    Attributes:
        errors: standard errors of the discounts `(K,)`.
        widened: what is identified, with standard errors that the first stage widens.
        matrix: the covariance `(p,p)`, the error of the first stage included.
        largest: the largest discount that is tried.
        rivals: other maxima of the likelihood: by how much they are lower, and their discounts `(K,)`. An interval covers those
            that its level reaches.
    """

    errors: Floats
    widened: Precision
    matrix: Floats
    largest: float
    rivals: tuple[tuple[float, Floats], ...] = ()

    def covariance(self) -> Floats:
        """Return the covariance of all parameters."""
        return self.matrix

    @property
    def standard_errors(self) -> Floats:
        """Return the standard errors `(p,)`; NaN for what is not identified."""
        return self.widened.standard_errors

    def compute(self, level: float) -> Floats:
        """Return normal intervals of the discounts."""
        half = ndtri(0.5 + level / 2) * self.errors
        centre = self.answer.discounts
        reached = [centre, *(place for lower, place in self.rivals if 2 * lower <= chi2_ppf(level, 1))]
        ends: Floats = np.stack([np.min(reached, axis=0) - half, np.max(reached, axis=0) + half], axis=1)
        return np.clip(ends, 0.0, self.largest)


@dataclass(frozen=True, eq=False)
class LookaheadEstimate(PlacedEstimate):
    """Experts whose look-ahead has no single discount; `why` says so."""

    ahead = "look-ahead"
    why: str

    @property
    def answer(self) -> ExpertValues:
        """Return the answer, without discounts."""
        point, model = self.place, self.model
        none = np.full(len(model.problem.names), np.nan)
        return ExpertValues(model.problem.names, model.reward(point.x), none, model.temperatures(point.x), self._rewards())

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Raise: a draw has no discounts."""
        raise NoUncertaintyError(self.why)

    def compute(self, level: float) -> Floats:
        """Return no intervals: there are no discounts."""
        return np.full((len(self.model.problem.names), 2), np.nan)


def principal_root(covariance: Any) -> Floats:
    """Return a root of a covariance, its columns the principal directions, that does not depend on how parameters are listed."""
    values, vectors = np.linalg.eigh(covariance)
    signs = np.sign(np.round((vectors**3).sum(axis=0), 12))
    root: Floats = vectors * np.where(signs == 0, 1.0, signs) * np.sqrt(np.maximum(values, 0.0))
    return root


def paired_normal(draws: int, size: int, seed: int) -> Floats:
    """Draw standard normal numbers `(draws,size)` in pairs of opposite sign; those of the widest directions come first."""
    half = np.random.default_rng(seed).normal(size=((draws + 1) // 2, size))[:, ::-1]
    return np.stack([half, -half], axis=1).reshape(-1, size)[:draws]
