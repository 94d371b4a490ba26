"""What the solvers for decisions say about their answers: `MaximumLikelihood` and `SieveLikelihood`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NotRequired, TypedDict

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.files import read_numbers
from multihorizon.solution import DecisionEvidence, Deviations, DiscountEvidence, Evidence, Solution
from multihorizon.words import Table


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
class LookaheadEvidence(DecisionEvidence, solvers=("MaximumLikelihood",)):
    """What `MaximumLikelihood` says with a look-ahead that is not exponential; `no_discount` says why there is no discount."""

    lookahead: FittedLookahead
    no_discount: str
    ridge_weights: list[float]
    ridge_reason: str
    steps: int

    @classmethod
    def fits(cls, content: Mapping[str, Any]) -> bool:
        """Say whether there are weights."""
        ahead = content.get("lookahead")
        return isinstance(ahead, Mapping) and "weights" in ahead

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
    """The coordinates of whose change state and action predict less than 2 %; one that never changes is predicted."""
    return [name for name, share in next_state_r2.items() if share <= 0.02]


def dynamics_unknown(next_state_r2: Mapping[str, float]) -> bool:
    """Whether half of the coordinates or more are not predicted."""
    return 2 * len(unpredicted(next_state_r2)) >= len(next_state_r2)


def numbers_or_none(values: Floats) -> list[float | None]:
    """Return the numbers, with None for those that are not finite."""
    return [float(value) if np.isfinite(value) else None for value in values]
