"""What a solver found: the answer, its status, and the evidence for both.

A solution is a value: it can be printed, saved as JSON and handed on. Everything that is an array with a meaning of its own
has a field; what only one solver has to say (an Ω set, a Farkas ray, singular values) goes into its `evidence`, a dataclass of
plain numbers, strings, lists and dicts. There is one such class per kind of solver.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, Literal, NotRequired, Protocol, Self, TypedDict, get_args, get_type_hints, runtime_checkable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtri

from multihorizon.checks import Floats, as_level, as_shape, first_few, read_only
from multihorizon.files import as_declared, read_json, read_numbers, write_json
from multihorizon.horizon import Horizon
from multihorizon.lookahead import step_discounts_of
from multihorizon.mdp import steps_left
from multihorizon.planning.plan import plan, soft_plan, weighted_plan
from multihorizon.problem import AnyProblem, Expert, Problem, require_finite
from multihorizon.result import COLOURS, Result, draw_rows, literal, package_version
from multihorizon.tables import Table
from multihorizon.words import LEVEL, in_words, p_text, percent, shortened


class Status(StrEnum):
    """How a solve ended; `Solution.message` says it in a sentence with the figures."""

    OPTIMAL = "optimal"
    CONVERGED = "converged"
    NOT_CONVERGED = "not converged"
    INDISTINGUISHABLE = "indistinguishable"
    INFEASIBLE = "infeasible"
    NOT_IDENTIFIED = "not identified"


@dataclass(frozen=True, eq=False)
class Trace:
    """Evaluations of an outer search in order: discounts `(n,K)`, objective values `(n,)`, seconds since the start `(n,)`.

    A value is −inf where the discounts are infeasible, and NaN where it could not be computed.
    """

    discounts: Floats
    values: Floats
    seconds: Floats

    def __post_init__(self) -> None:
        if self.discounts.ndim != 2 or not len(self.discounts) == len(self.values) == len(self.seconds):
            shapes = ", ".join(str(array.shape) for array in (self.discounts, self.values, self.seconds))
            raise ValueError(f"a trace must have arrays (n,K), (n,) and (n,), received {shapes}")

    @property
    def best(self) -> Floats:
        """The best value after each evaluation."""
        return np.fmax.accumulate(self.values)

    @property
    def best_discounts(self) -> Floats:
        """The discounts `(K,)` with the best value."""
        found: Floats = self.discounts[int(np.argmax(np.where(np.isnan(self.values), -np.inf, self.values)))]
        return found

    def __len__(self) -> int:
        return self.values.size


@dataclass(frozen=True, eq=False, kw_only=True)
class Evidence(Mapping[str, Any]):
    """What a solver says about its answer: fields, which can also be read by name as in a dict (`evidence["order"]`).

    `other` holds what has no field: the evidence of your own solver or search, or of another version. A field that is None by
    default and was not given does not count as there (`in`, `get`, iteration).
    """

    other: Mapping[str, Any] = field(default_factory=dict, repr=False)
    #: Of fields that are declared loosely, what a file must hold.
    _schema: ClassVar[dict[str, Any]] = {}
    #: The lengths of lists: "experts", "reward", or the name of another field.
    _lengths: ClassVar[dict[str, str]] = {}

    @classmethod
    def of(cls, solution: Solution) -> Self:
        """The evidence of a solution, which must be of this kind."""
        if not isinstance(solution.evidence, cls):
            raise ValueError(f"this needs a solution with {cls.__name__}, received one of {solution.solver}")
        return solution.evidence

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Evidence from a dict. A field that it lacks is None, and what has no field goes to `other`.

        Raises:
            ValueError: where a field is not what it is declared to be.
        """
        known = {name: _declared(content.get(name), kind, name) for name, kind in cls._kinds().items()}
        return cls(**known, other={name: value for name, value in content.items() if name not in known})

    @classmethod
    def _kinds(cls) -> dict[str, Any]:
        """What each field must be."""
        hints = get_type_hints(cls)
        return {f.name: cls._schema.get(f.name, hints[f.name]) for f in fields(cls) if f.name != "other"}

    def lacking(self) -> list[str]:
        """The fields that are None and may not be, as in a file of another version."""
        hints = get_type_hints(type(self))
        return [
            f.name for f in fields(self) if f.name != "other" and getattr(self, f.name) is None and not _may_lack(hints[f.name])
        ]

    def require_lengths(self, sizes: Mapping[str, int]) -> None:
        """Raise unless lists are as long as there are experts and parameters of the reward (`sizes`), or as other fields."""
        for name, of in self._lengths.items():
            value, other = getattr(self, name), sizes.get(of, getattr(self, of, None))
            size = other if isinstance(other, int) else 0 if other is None else len(other)
            for part in value.values() if isinstance(value, Mapping) else () if value is None else (value,):
                if len(part) != size:
                    raise ValueError(f"{name} of the solution must have {size} entries, received {len(part)}")
        for part in vars(self).values():
            if isinstance(part, Evidence):
                part.require_lengths(sizes)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name) if name != "other" and name in self.__dataclass_fields__ else self.other[name]

    def __contains__(self, name: object) -> bool:
        return any(name == known for known in self)

    def __iter__(self) -> Iterator[str]:
        for f in fields(self):
            if f.name != "other" and not (f.default is None and getattr(self, f.name) is None):
                yield f.name
        yield from self.other

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def get(self, name: str, default: Any = None) -> Any:
        """The value of that name, or the default where it is not there."""
        return self[name] if name in self else default  # noqa: SIM401


def _may_lack(kind: Any) -> bool:
    return kind is Any or type(None) in get_args(kind)


def _declared(value: Any, kind: Any, name: str) -> Any:
    """A value from a dict as its field declares it: evidence of its own class, or checked as it is."""
    if value is None:
        return None
    inner = next((k for k in (kind, *get_args(kind)) if isinstance(k, type) and issubclass(k, Evidence | Deviations)), None)
    if inner is None:
        as_declared(value, kind, name)
        return value
    if isinstance(value, inner):
        return value
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be an object, received {value!r}"[:160])
    return inner.read(value)


@dataclass(frozen=True, eq=False, kw_only=True)
class ProgramEvidence(Evidence):
    """What `LPIRL`, `NaiveLP` and `MPLP` say.

    Attributes:
        starts: what each start of the search reached.
        agreeing: how many other climbs, from points of their own, ended as high as the best one.
        intervals: by expert, the discounts at which its policy is optimal under the reward found.
        order: the experts from the shortest horizon to the longest; those with one discount share a place.
        reproduced: by expert, whether its policy is optimal under the answer.
        omega_sizes, rows: by expert, how many of its margins are in Ω, and how many there are.
        worst_margin: the least margin in Ω.
        violation: by how much the worst row is violated.
        indistinguishable: pairs of experts that no reward distinguishes at these discounts.
        contradiction: where no reward was found, margins that cannot all be positive, with their weights.
        certificate: the proof of how far the answer is from the optimum, where one was tried.
        other_decisions: of demonstrations, by expert, the share of decisions for another action than the most frequent one.
        doubtful_states: of demonstrations, by expert, the states in which the most frequent action is not clearly ahead of the
            second (sign test at 5 %).
    """

    starts: list[dict[str, Any]] | None = None
    agreeing: int | None = None
    intervals: dict[str, list[float]] | None = None
    order: list[list[str]] | None = None
    reproduced: dict[str, bool] | None = None
    omega_sizes: dict[str, int] | None = None
    rows: dict[str, int] | None = None
    worst_margin: float | None = None
    violation: float | None = None
    indistinguishable: list[list[str]] | None = None
    contradiction: dict[str, Any] | None = None
    certificate: dict[str, Any] | None = None
    other_decisions: dict[str, float] | None = None
    doubtful_states: dict[str, list[str]] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class EntropyEvidence(Evidence):
    """What `MCE`, `MPML` and `MPMCE` say.

    Attributes:
        summed_gap: the paper's duality gap `θᵀ Σ_k (f_k − f*_k)`.
        mismatch: the length of each expert's `f_k − f*_k`.
        entropy: the summed causal entropies of the soft-optimal policies.
        dual_gradient: the largest entry of the dual's gradient.
        entropy_within_reach: the entropy that discounts nearby promise beyond the answer's, where a climb led to it.
        count_errors: of demonstrations, the standard error of each expert's feature counts, as a length: what a mismatch of
            the right answer is expected to be.
    """

    summed_gap: float
    mismatch: list[float]
    entropy: float
    dual_gradient: float
    entropy_within_reach: float | None = None
    count_errors: list[float] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ClosedFormEvidence(Evidence):
    """What `ClosedForm` says: the report of `identify`, with None where nothing is known."""

    status: str
    dimension: int
    discounts: list[float | None]
    intervals: list[list[float | None]]
    reward: list[float | None]
    reward_identified: list[bool]
    residual: float
    singular_values: list[float]
    temperature: list[float]
    members: list[dict[str, Any]]
    tolerance: float
    misfit: float
    surplus: int
    coincidence: float
    from_counts: bool
    experts: list[str]
    reward_dimension: int
    free_constant: bool
    unknown_parameters: list[str]
    gaps: list[list[list[float]]] | None = None
    caution: str | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class DecisionEvidence(Evidence):
    """What every fit to decisions says: their log-likelihood and their number."""

    log_likelihood: float
    decisions: float


@dataclass(frozen=True, eq=False, kw_only=True)
class DiscountEvidence(DecisionEvidence):
    """What a fit of one discount per expert says, for listed states and for vectors.

    Attributes:
        identified: by expert, whether the decisions identify the discount.
        unidentified_directions: of the reward.
        temperature_spread: the spread of log temperatures between experts, None where none was estimated.
        equal_temperatures_p: the p-value of one temperature for all, None where it was not tested.
        steps: of the climb.
        starts: what each climb reached.
    """

    identified: list[bool]
    unidentified_directions: int
    temperature_spread: float | None
    equal_temperatures_p: float | None
    steps: int
    starts: list[dict[str, Any]]

    _lengths: ClassVar[dict[str, str]] = {"identified": "experts"}


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


class IfShared(TypedDict):
    """What one reward for all would give."""

    discounts: Floats
    standard_errors: Floats
    log_likelihood: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Deviations:
    """How far the goals of persons are from the one they nearly share: person k's reward is `θ + δ_k`, `δ_k ~ N(0, τ²W)`.

    Attributes:
        spread: τ, in units of reward; 0 where the decisions do not contradict one reward for all.
        estimated: the most likely τ, also where it is not taken.
        interval: the ends of the 95 % interval of τ.
        p_shared: the p-value of τ = 0; NaN where τ was given.
        share_of_range: τ as a share of the range of the shared reward, and the ends of its interval.
        choices_moved: how many choices in a hundred deviations of that size move, and the ends of that interval.
        values, errors: each person's deviation `(K,d)` from the shared reward, and its posterior standard deviation.
        if_shared: "discounts", "standard_errors" `(K,)` and "log_likelihood" of one reward for all, which is τ = 0.
        given: whether τ was given and not estimated.
    """

    spread: float
    estimated: float
    interval: Floats
    p_shared: float
    share_of_range: Floats
    choices_moved: Floats
    values: Floats
    errors: Floats
    if_shared: dict[str, Any]
    given: bool

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> Self:
        """Deviations from a dict, as files have them; raises ValueError where they are something else."""
        kinds = {**get_type_hints(cls), "if_shared": IfShared}
        if content.keys() != kinds.keys():
            raise ValueError(f"deviations must have the entries {', '.join(kinds)}, received {', '.join(map(str, content))}")
        for name, kind in kinds.items():
            as_declared(content[name], kind, f"deviations: {name}")
        return cls(**content)

    def __post_init__(self) -> None:
        """Lists and null, as files have them, become arrays and NaN."""
        for name in ("interval", "share_of_range", "choices_moved", "values", "errors"):
            object.__setattr__(self, name, read_numbers(getattr(self, name)))
        for name in ("spread", "estimated", "p_shared"):
            object.__setattr__(self, name, float(read_numbers(getattr(self, name))))
        shared = {name: read_numbers(value) for name, value in self.if_shared.items()}
        object.__setattr__(self, "if_shared", shared | {"log_likelihood": float(shared["log_likelihood"])})


class KnownBefore(TypedDict):
    """What was known and not estimated."""

    discounts: list[bool]
    temperatures: list[bool]
    reward: str | None


class TakenAsIndependent(TypedDict):
    """What a fit took to be independent of each other.

    `unit` is "decision", "episode" or "expert"; `p_value` is that of the test that chose it, None where there was none, and
    `reason` says why it is not the unit that the test asked for. By expert, where it is no decision: how many `clusters` there
    are, how much wider they make the standard error of the discount (`widening`), and the degrees of freedom of its interval,
    None for very many.
    """

    unit: Literal["decision", "episode", "expert"]
    p_value: float | None
    reason: str
    clusters: NotRequired[list[int]]
    widening: NotRequired[list[float]]
    freedom: NotRequired[list[float | None]]


class OtherEnd(TypedDict):
    """Where another climb of the search ended."""

    log_likelihood: float
    discounts: list[float]
    steps: int
    finished: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class LikelihoodEvidence(DiscountEvidence):
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
        deviations: how far persons deviate from the shared reward; None where that was not asked.
        reasons: by expert, why there is no number for the discount; empty where there is one.
        independence: what was taken to be independent of each other.
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
class LookaheadEvidence(DecisionEvidence):
    """What `MaximumLikelihood` says with a look-ahead that is not exponential; `no_discount` says why there is no discount."""

    lookahead: FittedLookahead
    no_discount: str
    ridge_weights: list[float]
    ridge_reason: str
    steps: int


@dataclass(frozen=True, eq=False, kw_only=True)
class SieveEvidence(DiscountEvidence):
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
    """The coordinates of whose change state and action predict less than 2 %; one that never changes is predicted."""
    return [name for name, share in next_state_r2.items() if share <= 0.02]


def dynamics_unknown(next_state_r2: Mapping[str, float]) -> bool:
    """Whether half of the coordinates or more are not predicted."""
    return 2 * len(unpredicted(next_state_r2)) >= len(next_state_r2)


#: What is known of a person under one combination of conditions, in `PopulationFindings.cells`.
CELL_NUMBERS = (
    *("decisions", "discount", "low", "high", "logit_discount", "logit_discount_error"),
    *("log_temperature", "log_temperature_error", "correlation", "discount_reliability"),
)


class Effect(TypedDict):
    """The effect of one term."""

    estimate: float
    standard_error: float
    interval: tuple[float, float]
    p: float


class Spread(TypedDict):
    """A standard deviation between persons, or another number with its interval."""

    estimate: float
    interval: tuple[float, float]


class TypicalPerson(TypedDict):
    """What is typical of a group; version 0.2 kept no covariances."""

    typical_discount: float
    typical_interval: tuple[float, float]
    new_person_interval: tuple[float, float]
    typical_temperature: float
    covariance: NotRequired[Floats]
    between: NotRequired[Floats]
    reward_covariance: NotRequired[Floats]


@dataclass(frozen=True, eq=False, kw_only=True)
class PopulationFindings(Evidence):
    """What a comparison of persons found.

    A *cell* is a person under one combination of conditions. What is said of cells is None for a formula without conditions.

    Attributes:
        persons, left_out, degrees: how many are compared, who is left out and why, and the degrees of freedom.
        discount, temperature: the effects of the covariates on each, by term.
        factors, contrasts: the same by factor, and between the levels of each factor.
        columns_of: the terms of each covariate.
        references: for columns of groups whose terms compare with one group, that group.
        discount_covariance, temperature_covariance: of the effects on each.
        weak_priors, cautions: how far weak priors move the findings, and the sentences that say so.
        spread: the spread between persons.
        predictions: by group, the discount of a typical person with its interval and that of a new person, the temperature, the
            "covariance" of logit γ and log λ of a typical person, their covariance "between" persons, and their
            "reward_covariance" `(2,d)` with the reward.
        groups, covariates: of each person, as arrays `(n,)`.
        individuals: each person's discount and temperature, shrunken towards those of similar persons, and the log-likelihood of
            the person's decisions, all as arrays `(n,)`.
        largest_discount, steps: the largest discount that is tried, and the steps of the climb.
        distribution: where no shape was assumed, by group: the most likely points with their weights, the types, and what the
            task cannot show; None where the population is normal.
        cells: of each cell, as arrays `(m,)`: "expert", "pattern" (which of `predictions` it belongs to), its conditions by name,
            "decisions", the shrunken "discount" with the ends "low" and "high" of its 95 % interval, "logit_discount" and
            "log_temperature" with their errors ("logit_discount_error", "log_temperature_error") and their "correlation", and
            "discount_reliability".
            Then `predictions` are those of persons under conditions, and `groups` and `individuals` are at average conditions.
        variance: for "discount" and "temperature", the shares of the variance between cells that belong to the "person", to the
            "covariates" of persons, to the "condition" (the same change for everyone) and to "person_by_condition" (changes that
            differ between persons), and the variance itself ("total"); of logit γ and log λ. "between_low" and "between_high" are
            the ends of the 95 % interval of the share of person and covariates together.
        slopes: for each effect that differs between persons, the standard deviation of the one on "discount" and "temperature":
            "estimate" and "interval".
        alike: for each effect that is the same for everybody by the formula, the p-values of that: "discount", "temperature".
        person_terms, person_covariance: what persons have of their own, and its covariance `(2q,2q)`: of the first term on logit
            γ, then on log λ, of the second term on logit γ, and so on.
        reward_covariance, open_reward: the covariance `(d,d)` of the parameters of the reward that were estimated, and directions
            `(d,k)` in which the decisions say nothing of them.
        person_reward_covariance: of logit γ and log λ of each person with these parameters `(n,2,d)`; None where that would be
            more than a million numbers.
        types: where types were asked for, their "number" and whether it was "chosen" by "tests" (one row for each number), and of
            each type the share, discount, 95 % interval, temperature, and for how many units it is the likeliest; None otherwise.
            Then there are no effects, and `individuals` has the "posterior" shares `(n,K)` of the types in each unit.
        state_reward: the test that the reward depends on the state reached alone (`StateRewardTest.to_dict`); None where that was
            not assumed.
    """

    persons: int
    left_out: dict[str, str]
    degrees: int
    discount: dict[str, dict[str, Any]]
    temperature: dict[str, dict[str, Any]]
    factors: dict[str, Any]
    contrasts: dict[str, Any]
    columns_of: dict[str, list[str]]
    discount_covariance: list[list[float]]
    weak_priors: dict[str, Any]
    spread: dict[str, Any]
    predictions: Any
    groups: NDArray[Any]
    covariates: dict[str, NDArray[Any]]
    individuals: dict[str, Floats]
    largest_discount: float
    steps: int
    cautions: list[str]
    distribution: dict[str, dict[str, Any]] | None = None
    temperature_covariance: list[list[float]] | None = None
    cells: dict[str, NDArray[Any]] | None = None
    variance: dict[str, dict[str, float]] | None = None
    slopes: dict[str, dict[str, Any]] | None = None
    types: dict[str, Any] | None = None
    alike: dict[str, dict[str, float]] | None = None
    person_terms: list[str] | None = None
    person_covariance: list[list[float]] | None = None
    references: dict[str, str] | None = None
    reward_covariance: Floats | None = None
    open_reward: Floats | None = None
    person_reward_covariance: Floats | None = None
    state_reward: dict[str, Any] | None = None

    _schema: ClassVar[dict[str, Any]] = {
        "left_out": dict[str, str],
        "discount": dict[str, Effect],
        "temperature": dict[str, Effect],
        "spread": dict[str, Spread],
        "predictions": dict[str, TypicalPerson],
        "slopes": dict[str, dict[str, Spread]],
        "factors": dict[str, dict[str, dict[str, Any]]],
        "contrasts": dict[str, list[dict[str, Any]]],
        "covariates": dict[str, list[Any]],
        "individuals": dict[str, Floats],
        "discount_covariance": Floats,
        "temperature_covariance": Floats,
        "person_covariance": Floats,
        "cells": dict[str, list[Any]],
    }
    _lengths: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("groups", "covariates", "individuals", "person_reward_covariance"), "experts"),
        "discount_covariance": "discount",
        "temperature_covariance": "temperature",
        "open_reward": "reward_covariance",
    }

    def require_lengths(self, sizes: Mapping[str, int]) -> None:
        """The same, and that covariances have the shape of what they are about."""
        super().require_lengths(sizes)
        free = 0 if self.reward_covariance is None else len(self.reward_covariance)
        shapes = {"covariance": (2, 2), "between": (2, 2), "reward_covariance": (2, free)}
        arrays: dict[str, tuple[Any, tuple[int, ...]]] = {"reward_covariance": (self.reward_covariance, (free, free))}
        arrays["person_reward_covariance"] = (self.person_reward_covariance, (sizes["experts"], 2, free))
        for group, typical in (self.predictions or {}).items():
            arrays |= {f"{name} of {group}": (typical.get(name), shape) for name, shape in shapes.items()}
        for name, (value, shape) in arrays.items():
            if value is not None and np.size(value):
                as_shape(np.asarray(value), shape, f"{name} of the solution")

    def __post_init__(self) -> None:
        """Lists, as files have them, become arrays: there may be a million persons."""
        arrays: dict[str, Any] = {
            "groups": np.atleast_1d(np.asarray(self.groups, dtype=object)),
            "covariates": {name: pd.Series(values).to_numpy() for name, values in (self.covariates or {}).items()},
            "individuals": {name: read_numbers(values) for name, values in (self.individuals or {}).items()},
        }
        if self.cells is not None:
            arrays["cells"] = {
                name: read_numbers(values) if name in CELL_NUMBERS else pd.Series(values).to_numpy()
                for name, values in self.cells.items()
            }
        for name in ("reward_covariance", "open_reward", "person_reward_covariance"):
            if self[name] is not None:
                arrays[name] = np.asarray(self[name], dtype=np.float64)
        for name, value in arrays.items():
            object.__setattr__(self, name, value)

    def shown(self) -> list[Table]:
        """What was found of groups, as tables: the effects of covariates, typical persons of each group, pairs of groups, and how
        persons differ; or the types."""
        if self.types is not None:
            columns = {name: self.types[f"{name}s"] for name in ("share", "share_error", "discount")}
            low, high = np.array(self.types["intervals"]).T
            more = {"low": low, "high": high, "temperature": self.types["temperatures"], "likeliest_for": self.types["likeliest"]}
            frame = pd.DataFrame({"type": range(1, self.types["number"] + 1), **columns, **more})
            return [Table(frame, f"types, with {percent(LEVEL)} intervals", ("discount", "low", "high"))]

        def row(found: Mapping[str, Any], error: bool = False) -> dict[str, Any]:
            known = {"estimate": found["estimate"], **({"standard_error": found["standard_error"]} if error else {})}
            return known | {"low": found["interval"][0], "high": found["interval"][1]}

        kinds = ("discount", "temperature")
        effects = [
            {"effect_on": f"{scale} {kind}", "term": term, **row(found, error=True), "p": found["p"]}
            for kind, scale in zip(kinds, ("logit", "log"), strict=True)
            for term, found in self[kind].items()
        ]
        tests = [
            {"effect_on": kind, "of": name, "F": test["F"], "degrees": ", ".join(map(str, test["degrees"])), "p": test["p"]}
            for kind in kinds
            for name, test in self.factors[kind].items()
        ]
        whose = pd.Series(np.arange(len(self.groups)) if self.cells is None else self.cells["expert"])
        sizes = whose.groupby(self.groups if self.cells is None else self.cells["pattern"]).nunique()
        groups = [
            {"persons_like": name, "persons": int(sizes.get(name, 0)), "estimate": group["typical_discount"]}
            | dict(zip(("low", "high"), group["typical_interval"], strict=True))
            | dict(zip(("new_person_low", "new_person_high"), group["new_person_interval"], strict=True))
            for name, group in self.predictions.items()
        ]
        pairs = [
            {
                "compared": f"{pair['column']}: {pair['levels'][1]} against {pair['levels'][0]}",
                **row(pair),
                "adjusted": pair["adjusted"],
            }
            for pair in self.contrasts["discount"]
        ]
        spread = [{"standard_deviation_of": name, **row(self.spread[name])} for name in kinds if name in self.spread]
        for term, slope in (self.slopes or {}).items():
            spread += [{"standard_deviation_of": f"the effect of {term} on {name}", **row(slope[name])} for name in kinds]
        bars = ("estimate", "low", "high")
        tables = {
            f"effects, with {percent(LEVEL)} intervals": effects,
            "all terms of a covariate together": tests,
            "typical discounts": groups,
            "differences of logit discounts, p-values with Holm's correction": pairs,
            "spread between persons, of logit discount and log temperature": spread,
        }
        return [Table(pd.DataFrame(rows), caption, bars) for caption, rows in tables.items() if rows]

    @property
    def conditions(self) -> tuple[str, ...]:
        """The names of the conditions; none where the formula has none."""
        return tuple(name for name in self.cells or () if name not in ("expert", "pattern", *CELL_NUMBERS))

    def conditions_frame(self) -> pd.DataFrame | None:
        """One row per person and condition: the columns of `conditions.csv`. None where the formula has no conditions."""
        if self.cells is None:
            return None
        return pd.DataFrame(
            {
                "expert": self.cells["expert"],
                **{f"condition_{name}": self.cells[name] for name in self.conditions},
                "decisions": self.cells["decisions"].astype(np.int64),
                "shrunken_discount": self.cells["discount"],
                "shrunken_low": self.cells["low"],
                "shrunken_high": self.cells["high"],
                "shrunken_temperature": np.exp(self.cells["log_temperature"]),
                "reliability": self.cells["discount_reliability"],
            }
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class PopulationEvidence(DecisionEvidence):
    """What `Population` says: the findings, how the shared reward is held, and how far persons deviate from it, if asked."""

    population: PopulationFindings
    reward_standard_errors: list[float | None]
    ridge: float
    ridge_reason: str
    deviations: Deviations | None = None

    _lengths: ClassVar[dict[str, str]] = {"reward_standard_errors": "reward"}


def read_evidence(solver: str, content: Mapping[str, Any]) -> Evidence:
    """The evidence of that solver from a dict, as files and solvers of your own have it."""
    if solver == "MaximumLikelihood":
        ahead = content.get("lookahead")
        return (LookaheadEvidence if isinstance(ahead, Mapping) and "weights" in ahead else LikelihoodEvidence).read(content)
    kinds: dict[str, type[Evidence]] = dict.fromkeys(("LPIRL", "NaiveLP", "MPLP"), ProgramEvidence)
    kinds |= dict.fromkeys(("MCE", "MPML", "MPMCE"), EntropyEvidence)
    kinds |= {"ClosedForm": ClosedFormEvidence, "SieveLikelihood": SieveEvidence, "Population": PopulationEvidence}
    return kinds.get(solver, Evidence).read(content)


@runtime_checkable
class IntervalSource(Protocol):
    """What a solver leaves with its solution so that intervals `(K,2)` of the discounts can be asked for later, at any level.

    A solution with standard errors and nothing else has normal intervals, `γ ± z · se` within [0, 1].
    """

    @property
    def computed(self) -> Mapping[float, Floats]:
        """The intervals computed so far, by level; these are saved with the solution."""
        ...

    def at(self, level: float) -> Floats:
        """The intervals `(K,2)` at this level."""
        ...


@dataclass(frozen=True, eq=False)
class SavedIntervals:
    """The intervals that came with a solution read from a file."""

    computed: Mapping[float, Floats]

    def at(self, level: float) -> Floats:
        """The intervals `(K,2)` at a level they were saved with."""
        if level not in self.computed:
            saved = ", ".join(map(str, self.computed)) or "none"
            raise ValueError(
                f"this solution was read from a file: level must be one it was saved with ({saved}), received {level}"
            )
        return self.computed[level].copy()


@dataclass(frozen=True, eq=False)
class StandardErrors:
    """Normal intervals from the `discounts` `(K,)` and their standard `errors` `(K,)`."""

    discounts: Floats
    errors: Floats
    computed: dict[float, Floats] = field(default_factory=dict)

    def at(self, level: float) -> Floats:
        """The intervals `(K,2)` at this level."""
        half = float(ndtri(0.5 + as_level(level) / 2)) * self.errors
        found: Floats = np.clip(np.stack([self.discounts - half, self.discounts + half], axis=1), 0.0, 1.0)
        self.computed[level] = found
        return np.array(found)


@dataclass(frozen=True, eq=False)
class Solution(Result):
    """The shared reward and each expert's discount.

    `reward` is `(S,)` paid on arrival, or `(d,)` weights of the problem's features. `temperature` is None for experts who
    choose the best action, else the entropy weight `(K,)`. `residual` is recomputed from the answer; each solver's docstring
    says of which equation. `evidence` has fields by kind of solver; a dict becomes `Evidence`. The arrays cannot be written to.
    `problem` is kept in memory and not saved; of `interval_source`, what it has computed is saved; where a solver gives standard
    errors alone, intervals follow from these. `task_horizon` is that of a problem that is not at hand.
    """

    solver: str
    status: Status
    message: str
    experts: tuple[str, ...]
    discounts: Floats
    reward: Floats
    objective: float
    residual: float
    temperature: Floats | None = None
    trace: Trace | None = None
    standard_errors: Floats | None = None
    evidence: Evidence = field(default_factory=Evidence)
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    seconds: float = 0.0
    problem: AnyProblem | None = None
    interval_source: IntervalSource | None = None
    task_horizon: Horizon = field(default_factory=Horizon)

    def __post_init__(self) -> None:
        if not all(isinstance(name, str) for name in self.experts):
            raise ValueError(f"experts of the solution must be names, received {self.experts[:5]}")
        limits = {"discounts": 1.0, "temperature": np.inf, "standard_errors": np.inf}
        for name, high in limits.items():
            values = getattr(self, name)
            if values is not None or name == "discounts":
                as_shape(np.asarray(values), (len(self.experts),), f"{name} of the solution")
                outside = (values < 0) | (values > high)  # NaN stands for what is not known
                if outside.any():
                    expected = f"from 0 to {high:g}" if np.isfinite(high) else "at least 0"
                    raise ValueError(f"{name} of the solution must be {expected}, received {values[outside][0]:g}")
        if np.ndim(self.reward) != 1:
            raise ValueError(f"reward of the solution must have one axis, received shape {np.shape(self.reward)}")
        if self.problem is not None and self.problem.names != self.experts:
            raise ValueError(
                f"problem must be that of the experts {first_few(self.experts)}, received {first_few(self.problem.names)}"
            )
        # a reward that is known for pairs has no parameters, whatever the problem it was fitted to had
        if self.problem is not None and self.reward.size and self.problem.n_parameters not in (0, self.reward.size):
            raise ValueError(f"reward of the solution must have {self.problem.n_parameters} entries, received {self.reward.size}")
        if not isinstance(self.evidence, Evidence):
            object.__setattr__(self, "evidence", read_evidence(self.solver, self.evidence))
        if isinstance(found := self.evidence.get("deviations"), Deviations):
            as_shape(found.values, (len(self.experts), self.reward.size), "deviations of the solution")
        for name in ("discounts", "reward", "temperature", "standard_errors"):
            array = getattr(self, name)
            object.__setattr__(self, name, None if array is None else read_only(array))
        if self.interval_source is None and self.standard_errors is not None:
            object.__setattr__(self, "interval_source", StandardErrors(self.discounts, self.standard_errors))

    @property
    def horizon(self) -> Horizon:
        """How far ahead discounts look in the task; of a solution without a problem, as it was saved."""
        return self.task_horizon if self.problem is None else self.problem.horizon

    @property
    def personal_rewards(self) -> Floats:
        """Each expert's reward `(K,d)`: the shared one, and what the expert deviates from it where goals are nearly shared."""
        found, shape = self.evidence.get("deviations"), (len(self.experts), self.reward.size)
        return read_only(self.reward + found.values) if isinstance(found, Deviations) else np.broadcast_to(self.reward, shape)

    def policies(self) -> list[Floats]:
        """The policy `(S,A)` of each of the problem's experts under the answer: optimal, or soft-optimal at a temperature."""
        problem = self.require_problem()
        if not (np.isfinite(self.discounts).all() or self._weights) or not np.isfinite(self.reward).all():
            raise ValueError(f"this solution has no answer to plan with: its status is {self.status}")
        rewards, owners = self.personal_rewards, zip(problem.experts, problem.owner, strict=True)
        seen = ((expert.at(float(self.discounts[owner])), owner) for expert, owner in owners)
        return [self._policy(expert, owner, expert.expected_reward(rewards[owner])) for expert, owner in seen]

    def _policy(self, expert: Expert, owner: int, reward: Floats) -> Floats:
        discount = float(self.discounts[owner])
        if self._weights and self.temperature is not None:
            weights, left = self._weights[owner], steps_left(expert.mdp)
            steps, temperature = step_discounts_of(weights)[:, None], self.temperature[owner : owner + 1]
            log = weighted_plan(expert.mdp, reward.T.ravel(), steps, temperature)[1][0, :, :, 0]
            # In states from which a plan needs weights that are not known, so is the policy.
            known = np.zeros(len(reward), dtype=np.bool_) if left is None else left <= len(weights)
            return np.where(known[:, None], np.exp(log.T), np.nan)
        if self.temperature is None:
            return plan(expert.mdp, reward, discount).policy
        return soft_plan(expert.mdp, reward, discount, float(self.temperature[owner])).policy

    @property
    def _weights(self) -> list[list[float]]:
        """The look-ahead weights of each expert where they are not those of a discount."""
        return self.evidence.lookahead.weights if isinstance(self.evidence, LookaheadEvidence) else []

    @property
    def _parameters(self) -> dict[str, Floats]:
        """The parameters `(K,)` of a look-ahead that is not exponential, by name; none for discounts."""
        found = self.evidence.lookahead.parameters if isinstance(self.evidence, LookaheadEvidence) else {}
        return {name: read_numbers(values) for name, values in found.items()}

    def confidence_intervals(self, level: float = 0.95) -> Floats:
        """Intervals `(K,2)` of the discounts: profile-likelihood intervals of `MaximumLikelihood`, else what the solver offers.

        An interval ends at 0 or 1 where the data do not contradict it; a discount that is not identified has NaN.

        Raises:
            ValueError: for other solvers, or for a level that a solution read from a file was not saved with.
        """
        if self.interval_source is None:
            raise ValueError(
                "confidence intervals need a solution of MaximumLikelihood, or one with standard errors, "
                f"received one of {self.solver}"
            )
        return self.interval_source.at(level)

    def sentences(self) -> str:
        """Solver, status and message; what is not identified; and of more than 60 experts the quartiles."""
        lines = [f"{self.solver}: {self.status}. {self.message}"]
        if not self._identified.all():
            lines.append(
                f"Not identified: the discounts of {in_words([*np.array(self.experts, dtype=object)[~self._identified]])}."
            )
        if open_ := self.evidence.get("unidentified_directions"):
            lines.append(f"Of the reward {open_:,} {'direction is' if open_ == 1 else 'directions are'} not identified.")
        for name, values in (self._parameters or {"discount": self.discounts}).items():
            if len(self.experts) > 60 and not np.isnan(values).all():
                low, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75])
                lines.append(f"Quartiles of {name}: {low:.4f}, {middle:.4f}, {high:.4f}.")
        return "\n".join(lines)

    @property
    def _identified(self) -> NDArray[np.bool_]:
        """Of whom the discount is identified `(K,)`, as far as the solver says."""
        said = self.evidence.identified if isinstance(self.evidence, DiscountEvidence) else None
        return np.ones(len(self.experts), dtype=np.bool_) if said is None else np.array(said, dtype=np.bool_)

    def _level(self, compute: bool) -> float | None:
        """The level of the intervals that are shown: 95 %, or another that is known; None where there are none."""
        if self.interval_source is None:
            return None
        known = self.interval_source.computed
        can = compute and not isinstance(self.interval_source, SavedIntervals)
        return LEVEL if can or LEVEL in known else max(known, default=None)

    def _facts(self) -> dict[str, Any]:
        found = {"solver": self.solver, "status": str(self.status), "experts": len(self.experts)}
        if isinstance(self.evidence, DecisionEvidence):
            found |= {"decisions": self.evidence.decisions, "log-likelihood": self.evidence.log_likelihood}
        found |= {"parameters of the reward": self.reward.size, "residual": self.residual}
        if isinstance(self.evidence, DiscountEvidence) and self.evidence.equal_temperatures_p is not None:
            found["one temperature for all, p"] = p_text(self.evidence.equal_temperatures_p, "")
        if isinstance(self.evidence, LookaheadEvidence):
            found["look-ahead"] = self.evidence.lookahead.family
        return found

    def _tables(self, compute: bool) -> list[Table]:
        """Of a population the groups, of others the experts; then the reward. A discount that is not identified is a dash."""
        tables = self.population_tables()
        if tables:
            pass
        elif isinstance(self.evidence, LookaheadEvidence):
            errors = self.evidence.lookahead.standard_errors or {}
            columns: dict[str, Any] = {"expert": self.experts}
            for name, values in self._parameters.items():
                columns |= {name: values, f"{name}_standard_error": read_numbers(errors.get(name, [None] * len(values)))}
            tables = [Table(pd.DataFrame(columns | {"temperature": self.temperature}), "look-ahead")]
        else:
            level = self._level(compute)
            frame = self.to_frame(level)
            ahead = [name for name in ("horizon", "half_life") if name in frame]
            order = ("expert", "discount", "standard_error", "discount_low", "discount_high", *ahead, "temperature")
            frame = frame[[name for name in order if name in frame]]
            frame.loc[~self._identified, ["discount", *ahead]] = np.nan
            caption = "discounts" if level is None else f"discounts, with {percent(level)} intervals"
            tables = [Table(frame, caption, ("discount", *(() if level is None else ("discount_low", "discount_high"))))]
        errors = self.evidence.get("reward_standard_errors")
        if self.problem is None or (errors is not None and not any(errors)):  # the whole reward was given
            return tables
        reward = self.reward_frame()
        if errors is not None and len(errors) == len(reward):
            reward["standard_error"] = read_numbers(errors)
        return [*tables, Table(reward, "reward", ("reward",))]

    @property
    def _population(self) -> PopulationFindings | None:
        """What was found of groups or types; None for other solvers, and where there is no answer."""
        known = isinstance(self.evidence, PopulationEvidence) and self.status == Status.CONVERGED
        return PopulationEvidence.of(self).population if known else None

    def population_tables(self) -> list[Table]:
        """What `Population` found of groups or types, as tables; none for other solvers, and where it has no answer."""
        return [] if self._population is None else self._population.shown()

    def _height(self) -> float:
        found = self._population
        rows = (
            len(self.experts) if found is None else 3 * len(found.predictions) if found.types is None else found.types["number"]
        )
        return 2.4 if rows > 200 else min(0.7 + 0.2 * rows, 9.0)

    def _draw(self, ax: Any) -> None:
        """Each discount with its interval. Of a population, the persons of each group, and what is typical of it in black."""
        first, found = self._tables(compute=True)[0], self._population
        if found is None or found.types is not None:
            label = first.frame.columns[0]
            draw_rows(ax, first.frame, label, *(first.drawn or first.frame.columns[1:2]))
            ax.set_xlim(*((-0.02, 1.02) if first.drawn else (None, None)))
            return
        group_of, discounts = (
            (found.groups, self.discounts) if found.cells is None else (found.cells["pattern"], found.cells["discount"])
        )
        names = list(found.predictions)
        for row, name in enumerate(names):
            own = np.sort(discounts[group_of == name])
            own = own[np.linspace(0, own.size - 1, min(own.size, 300)).round().astype(np.int64)]
            apart = 0.25 * (np.arange(own.size) * 0.618 % 1 - 0.5)  # persons with one discount do not hide each other
            ax.plot(own, row + 0.2 + apart, "o", color=COLOURS[5], alpha=0.6, markersize=2.5, linestyle="none")
            ax.hlines(row - 0.2, *found.predictions[name]["typical_interval"], color="0.2", linewidth=1.5)
            ax.plot([found.predictions[name]["typical_discount"]], [row - 0.2], "D", color="black")
        ax.set_yticks(range(len(names)), [literal(shortened(name, 28)) for name in names])
        ax.set(xlabel="discount", xlim=(-0.02, 1.02), ylim=(len(names) - 0.5, -0.5))

    def __repr__(self) -> str:
        return f"Solution({self.solver}, {self.status}, experts {first_few(self.experts)})"

    def to_frame(self, level: float | None = None) -> pd.DataFrame:
        """One row per expert: the discount and the effective planning horizon (`Horizon`), the temperature and the standard error
        where there are any, the parameters of another look-ahead, and with a level the ends of the confidence interval. What is
        not known is NaN.
        """
        ahead, gammas = self.horizon, self.discounts.tolist()
        columns: dict[str, Any] = {"expert": self.experts, "discount": self.discounts}
        columns["horizon"] = [ahead(gamma) for gamma in gammas]
        if ahead.timed:
            columns["half_life"] = [ahead.half_life(gamma) for gamma in gammas]
        columns |= {"standard_error": self.standard_errors, "temperature": self.temperature, **self._parameters}
        if level is not None:
            columns["discount_low"], columns["discount_high"] = self.confidence_intervals(level).T
        return pd.DataFrame({name: values for name, values in columns.items() if values is not None})

    def reward_frame(self) -> pd.DataFrame:
        """One row per state, or per feature where rewards are tied, or per basis function: its name and its reward."""
        problem = self.problem or self.require_problem()
        return pd.DataFrame({"parameter": problem.parameter_names, "reward": self.reward})

    def require_problem(self) -> Problem:
        """The finite problem this solves; a solution read from a file needs it handed back."""
        if self.problem is None:
            raise ValueError("this solution was read from a file: hand its problem to Solution.from_json(path, problem=…)")
        return require_finite(self.problem)

    def to_json(self, path: str | Path) -> None:
        """Write everything but the problem, with version, seed and options; what is not known is null."""
        apart = ("problem", "trace", "interval_source", "task_horizon")
        content = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}
        content["trace"] = None if self.trace is None else vars(self.trace)
        content["confidence_intervals"] = None if self.interval_source is None else dict(self.interval_source.computed)
        content["horizon"] = asdict(self.horizon)
        content["version"] = package_version()
        write_json(path, content)

    @classmethod
    def from_json(cls, path: str | Path, problem: AnyProblem | None = None) -> Solution:
        """Read what `to_json` wrote; hand the problem in to use `policies()`."""
        content = read_json(path, "a saved solution")
        missing = {f.name for f in fields(cls)} - {"problem", "interval_source", "task_horizon"} - set(content)
        if missing:
            raise ValueError(f"{path} is not a saved solution: it lacks {', '.join(sorted(missing))}")
        try:
            found = _fields_from(content)
            fitted = found["evidence"].transitions if isinstance(found["evidence"], LikelihoodEvidence) else None
            if problem is not None and fitted:
                problem = require_finite(problem).with_transitions([read_numbers(data) for data in fitted])
            solution = cls(**found, problem=problem)
            solution.evidence.require_lengths({"experts": len(solution.experts), "reward": solution.reward.size})
            return solution
        except ValueError as error:
            raise ValueError(f"{path} is not a saved solution: {error}") from error


class _SavedTrace(TypedDict):
    discounts: Floats
    values: Floats
    seconds: Floats


class _SavedHorizon(TypedDict):
    longest: float
    unit: str | None


#: What a saved solution holds, besides its evidence. Version 0.2 saved no horizon.
_SAVED = {
    **dict.fromkeys(("solver", "status", "message", "version"), str),
    **dict.fromkeys(("objective", "residual", "seconds"), float),
    **dict.fromkeys(("discounts", "reward"), Floats),
    **dict.fromkeys(("temperature", "standard_errors"), Floats | None),
    "experts": list[str],
    "options": dict[str, Any],
    "evidence": dict[str, Any],
    "seed": int,
    "trace": _SavedTrace | None,
    "confidence_intervals": dict[str, Floats] | None,
    "horizon": _SavedHorizon | None,
}


def _fields_from(content: dict[str, Any]) -> dict[str, Any]:
    """The fields of a solution from what a file holds; ValueError where that is something else."""
    for name, value in content.items():
        if name not in _SAVED:
            raise ValueError(f"it has an entry {name!r}, which no solution has")
        as_declared(value, _SAVED[name], name)
    known = {key: value for key, value in content.items() if key not in ("version", "confidence_intervals", "horizon")}
    for name in ("discounts", "reward", "temperature", "standard_errors"):
        known[name] = None if known[name] is None else read_numbers(known[name])
    for name in ("objective", "residual", "seconds"):
        known[name] = float(read_numbers(known[name]))
    if known["trace"] is not None:
        known["trace"] = Trace(**{name: read_numbers(known["trace"][name]) for name in ("discounts", "values", "seconds")})
    saved, task, experts = content.get("confidence_intervals"), content.get("horizon"), tuple(content["experts"])
    intervals = None if saved is None else SavedIntervals({as_level(float(k)): read_numbers(v) for k, v in saved.items()})
    for level, ends in () if intervals is None else intervals.computed.items():
        as_shape(ends, (len(experts), 2), f"confidence intervals at the level {level:g}")
    if task is not None:
        longest = float(read_numbers(task["longest"]))
        if not longest > 0:
            raise ValueError(f"horizon must have a longest episode above 0, received {longest:g}")
        known["task_horizon"] = Horizon(longest, task["unit"])
    evidence = read_evidence(content["solver"], content["evidence"])
    return known | {"interval_source": intervals, "status": Status(known["status"]), "experts": experts, "evidence": evidence}
