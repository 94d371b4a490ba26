"""What `Population` says about its answer: effects, the spread between people, each of them, conditions and types.

*Estimates* are those of each of its people, of a typical and a new person of each group, and of people of types. Of people `η =
(logit γ, log λ)` is about normal together with the shared reward θ. With a draw θ̂ + A z, A Aᵀ its covariance, η follows by `B
z`, B its covariance with the reward times `A⁻ᵀ`; what is left of its covariance, less `B Bᵀ`, is drawn with it. What is typical
of a group is known by Student's t, and a new person of it also differs as people do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NotRequired, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri

from multihorizon.checks import Floats, as_shape
from multihorizon.estimate import Draws, Estimate, ExpertValues, NamedValues, NoUncertaintyError, Pairs, PointEstimate, dealt
from multihorizon.likelihood.estimates import ChoicePlanner
from multihorizon.numerics.spectrum import positive_part
from multihorizon.result import COLOURS, literal
from multihorizon.solution import DecisionEvidence, Deviations, Evidence, Solution, Status
from multihorizon.words import LEVEL, Table, percent, shortened

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


class SpreadContent(TypedDict):
    """A standard deviation between people, or another number with its interval."""

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
    """What a comparison of people found.

    A *cell* is a person under one combination of conditions. What is said of cells is None for a formula without conditions.

    Attributes:
        persons, left_out, degrees: how many are compared, who is left out and why, and the degrees of freedom.
        discount, temperature: the effects of the covariates on each, by term.
        factors, contrasts: the same by factor, and between the levels of each factor.
        columns_of: the terms of each covariate.
        references: for columns of groups whose terms compare with one group, that group.
        discount_covariance, temperature_covariance: of the effects on each.
        weak_priors, cautions: how far weak priors move the findings, and the sentences that say so.
        spread: the spread between people.
        predictions: by group, the discount of a typical person with its interval and that of a new person, the temperature, the
            "covariance" of logit γ and log λ of a typical person, their covariance "between" people, and their
            "reward_covariance" `(2,d)` with the reward.
        groups, covariates: of each person, as arrays `(n,)`.
        individuals: each person's discount and temperature, shrunken towards those of similar people, and the log-likelihood of
            the person's decisions, all as arrays `(n,)`.
        largest_discount, steps: the largest discount that is tried, and the steps of the climb.
        distribution: where no shape was assumed, by group: the most likely points with their weights, the types, and what the
            task cannot show; None where the population is normal.
        cells: of each cell, as arrays `(m,)`: "expert", "pattern" (which of `predictions` it belongs to), its conditions by name,
            "decisions", the shrunken "discount" with the ends "low" and "high" of its 95% CI, "logit_discount" and
            "log_temperature" with their errors ("logit_discount_error", "log_temperature_error") and their "correlation", and
            "discount_reliability".
            Then `predictions` are those of people under conditions, and `groups` and `individuals` are at average conditions.
        variance: for "discount" and "temperature", the shares of the variance between cells that belong to the "person", to the
            "covariates" of people, to the "condition" (the same change for everyone) and to "person_by_condition" (changes that
            differ between people), and the variance itself ("total"); of logit γ and log λ. "between_low" and "between_high" are
            the ends of the 95% CI of the share of person and covariates together.
        slopes: for each effect that differs between people, the standard deviation of the one on "discount" and "temperature":
            "estimate" and "interval".
        alike: for each effect that is the same for everybody by the formula, the p-values of that: "discount", "temperature".
        person_terms, person_covariance: what people have of their own, and its covariance `(2q,2q)`: of the first term on logit
            γ, then on log λ, of the second term on logit γ, and so on.
        reward_covariance, open_reward: the covariance `(d,d)` of the parameters of the reward that were estimated, and directions
            `(d,k)` in which the decisions say nothing of them.
        person_reward_covariance: of logit γ and log λ of each person with these parameters `(n,2,d)`; None where that would be
            more than a million numbers.
        types: where types were asked for, their "number" and whether it was "chosen" by "tests" (one row for each number), and of
            each type the share, discount, 95% CI, temperature, and for how many units it is the likeliest; None otherwise.
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
        "spread": dict[str, SpreadContent],
        "predictions": dict[str, TypicalPerson],
        "slopes": dict[str, dict[str, SpreadContent]],
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

    @property
    def effects(self) -> Floats:
        """Return the effects `(p,2)` of each term on logit γ and log λ."""
        return np.array([[kind[term]["estimate"] for kind in (self.discount, self.temperature)] for term in self.discount])

    @property
    def effect_covariances(self) -> tuple[Floats, Floats]:
        """Return the covariances `(p,p)` of the effects on logit γ and on log λ; 0 where a file of an older version has none."""
        nothing = np.zeros((len(self.discount),) * 2)
        first, second = (
            nothing if each is None else np.array(each) for each in (self.discount_covariance, self.temperature_covariance)
        )
        return first, second

    @property
    def between(self) -> Floats:
        """Return Σ `(2q,2q)`, the covariance of what people have of their own, in the units of Z."""
        if self.person_covariance is not None:
            return np.array(self.person_covariance)
        sizes = np.array([self.spread[kind]["estimate"] for kind in ("discount", "temperature")])
        rho = self.spread["correlation"]["estimate"]
        covariance: Floats = np.outer(sizes, sizes) * np.array([[1.0, rho], [rho, 1.0]])
        return covariance

    def require_lengths(self, sizes: Mapping[str, int]) -> None:
        """Check the lengths, and that covariances have the shape of what they are about."""
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
        """Lists, as files have them, become arrays: there may be a million people."""
        arrays: dict[str, Any] = {
            "groups": np.atleast_1d(np.asarray(self.groups, dtype=object)),
            "covariates": {name: pd.Series(values).to_numpy() for name, values in (self.covariates or {}).items()},
            "individuals": {name: np.array(values, dtype=np.float64) for name, values in (self.individuals or {}).items()},
        }
        if self.cells is not None:
            arrays["cells"] = {
                name: np.array(values, dtype=np.float64) if name in CELL_NUMBERS else pd.Series(values).to_numpy()
                for name, values in self.cells.items()
            }
        for name in ("reward_covariance", "open_reward", "person_reward_covariance"):
            if (value := getattr(self, name)) is not None:
                arrays[name] = np.asarray(value, dtype=np.float64)
        for name, value in arrays.items():
            object.__setattr__(self, name, value)

    def shown(self) -> list[Table]:
        """Return what was found of groups, as tables: the effects of covariates, typical people of each group, pairs of groups,
        and how people differ; or the types."""
        if self.types is not None:
            columns = {name: self.types[f"{name}s"] for name in ("share", "share_error", "discount")}
            low, high = np.array(self.types["intervals"]).T
            more = {"low": low, "high": high, "temperature": self.types["temperatures"], "likeliest_for": self.types["likeliest"]}
            frame = pd.DataFrame({"type": range(1, self.types["number"] + 1), **columns, **more})
            return [Table(frame, f"types, with {percent(LEVEL)} CIs", ("discount", "low", "high"))]

        def row(number: Mapping[str, Any], error: bool = False) -> dict[str, Any]:
            content = {"estimate": number["estimate"], **({"standard_error": number["standard_error"]} if error else {})}
            return content | {"low": number["interval"][0], "high": number["interval"][1]}

        kinds = ("discount", "temperature")
        effects = [
            {"effect_on": f"{scale} {kind}", "term": term, **row(effect, error=True), "p": effect["p"]}
            for kind, scale in zip(kinds, ("logit", "log"), strict=True)
            for term, effect in self[kind].items()
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
            f"effects, with {percent(LEVEL)} CIs": effects,
            "all terms of a covariate together": tests,
            "typical discounts": groups,
            "differences of logit discounts, p-values with Holm's correction": pairs,
            "spread between people, of logit discount and log temperature": spread,
        }
        return [Table(pd.DataFrame(rows), caption, bars) for caption, rows in tables.items() if rows]

    @property
    def conditions(self) -> tuple[str, ...]:
        """Return the names of the conditions; none where the formula has none."""
        return tuple(name for name in self.cells or () if name not in ("expert", "pattern", *CELL_NUMBERS))

    def conditions_frame(self) -> pd.DataFrame | None:
        """Return one row per person and condition: the columns of `conditions.csv`. None where the formula has no conditions."""
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
class PopulationEvidence(DecisionEvidence, solvers=("Population",)):
    """What `Population` says: the findings, how the shared reward is held, and how far people deviate from it, if asked."""

    population: PopulationFindings
    reward_standard_errors: list[float | None]
    ridge: float
    ridge_reason: str
    deviations: Deviations | None = None
    planner: ChoicePlanner | None = None

    _lengths: ClassVar[dict[str, str]] = {"reward_standard_errors": "reward"}

    def expert_tables(self, solution: Solution) -> list[Table]:
        """Return what was found of groups or types; nothing where there is no answer."""
        return self.population.shown() if solution.status == Status.CONVERGED else []

    def picture_rows(self, experts: int) -> float:
        """Return three rows for each group, or one for each type."""
        types = self.population.types
        return 3 * len(self.population.predictions) if types is None else types["number"]

    def draw_experts(self, ax: Any, solution: Solution) -> bool:
        """Draw the people of each group, and what is typical of it in black."""
        population = self.population
        if solution.status != Status.CONVERGED or population.types is not None:
            return False
        group_of, discounts = (
            (population.groups, solution.discounts)
            if population.cells is None
            else (population.cells["pattern"], population.cells["discount"])
        )
        names = list(population.predictions)
        for row, name in enumerate(names):
            members = np.sort(discounts[group_of == name])
            members = members[np.linspace(0, members.size - 1, min(members.size, 300)).round().astype(np.int64)]
            apart = 0.25 * (np.arange(members.size) * 0.618 % 1 - 0.5)  # people with one discount do not hide each other
            ax.plot(members, row + 0.2 + apart, "o", color=COLOURS[5], alpha=0.6, markersize=2.5, linestyle="none")
            ax.hlines(row - 0.2, *population.predictions[name]["typical_interval"], color="0.2", linewidth=1.5)
            ax.plot([population.predictions[name]["typical_discount"]], [row - 0.2], "D", color="black")
        ax.set_yticks(range(len(names)), [literal(shortened(name, 28)) for name in names])
        ax.set(xlabel="discount", xlim=(-0.02, 1.02), ylim=(len(names) - 0.5, -0.5))
        return True


@dataclass(frozen=True, eq=False)
class PopulationEstimate(PointEstimate):
    """The people of a population.

    Attributes:
        findings: what was found of groups.
        converged: whether the population has an answer.
        withheld: why there are no draws; empty where there are.
        mean, errors: of η `(K,2)` and `(K,2,2)`.
        with_reward: its covariance `(K,2,d)` with the parameters of the reward that are estimated.
        degrees: of Student's t; infinite for a normal distribution.
        deviations: of each person from the shared reward; None where all share it.
        notes: what a reader of the draws should know.
    """

    findings: PopulationFindings
    converged: bool
    withheld: str
    mean: Floats
    errors: Floats
    with_reward: Floats
    degrees: float = np.inf
    deviations: Deviations | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: ExpertValues, evidence: PopulationEvidence, converged: bool) -> PopulationEstimate:
        """Read the people from what a solution keeps of them."""
        population, individuals = evidence.population, evidence.population.individuals
        withheld = ""
        if not converged:
            withheld = "the population is not identified"
        elif population.reward_covariance is None and any(error != 0 for error in evidence.reward_standard_errors):
            withheld = "the fit was saved by an earlier version, without the covariance of the reward: fit the table again"
        size = len(answer.experts)
        errors = np.stack([individuals["logit_discount_error"], individuals["log_temperature_error"]], axis=1)
        covariance = errors[:, :, None] * errors[:, None, :]
        covariance[:, [0, 1], [1, 0]] *= individuals.get("correlation", np.zeros(size))[:, None]
        free = 0 if population.reward_covariance is None else len(population.reward_covariance)
        together = population.person_reward_covariance
        notes = []
        if population.reward_covariance is not None and together is None:
            notes.append("People are so many that the shared reward is drawn apart from them.")
        if evidence.deviations is not None:
            notes.append("Deviations from the shared reward are drawn apart from it.")
        if population.conditions:
            notes.append("People are described on the average of conditions.")
        return cls(
            answer,
            population,
            converged,
            withheld,
            np.stack([individuals["logit_discount"], individuals["log_temperature"]], axis=1),
            covariance,
            np.zeros((size, 2, free)) if together is None else together,
            deviations=evidence.deviations,
            notes=tuple(notes),
        )

    def of_groups(self) -> PopulationEstimate:
        """Return the estimate of a typical and of a new person of each group."""
        population = self.findings
        free = self.with_reward.shape[2]
        labels, discounts, temperatures, covariances, with_reward = [], [], [], [], []
        for name, group in population.predictions.items():
            if "covariance" not in group:
                raise ValueError("this fit was saved by an earlier version, which kept too little of groups: fit the table again")
            typical, between = np.array(group["covariance"]), np.array(group["between"])
            for who, covariance in (("typical", typical), ("new", typical + between)):
                labels.append(f"{who} person" if name == "everyone" else f"{who} person of {name}")
                discounts.append(group["typical_discount"])
                temperatures.append(group["typical_temperature"])
                covariances.append(covariance)
                with_reward.append(np.array(group["reward_covariance"]).reshape(2, free))
        gamma, lam = np.array(discounts), np.array(temperatures)
        note = "Typical and new people are taken to have the shared reward, without a deviation of their own."
        return replace(
            self,
            point=replace(self.point, experts=tuple(labels), discounts=gamma, temperatures=lam),
            mean=np.stack([logit(np.clip(gamma / population.largest_discount, 1e-9, 1 - 1e-9)), np.log(lam)], axis=1),
            errors=np.array(covariances),
            with_reward=np.array(with_reward),
            degrees=population.degrees,
            deviations=None,
            notes=(note,) if self.deviations is not None else (),
            computed={},
        )

    @property
    def population(self) -> PopulationFindings:
        """Return what was found of groups."""
        return self.findings

    @cached_property
    def parameters(self) -> NamedValues:
        """Return rewards, logits of discounts and logarithms of temperatures."""
        names = [f"reward of {name}" for name in self.point.parameters or range(self.point.reward.size)]
        names += [f"{kind} of {expert}" for kind in ("logit discount", "log temperature") for expert in self.point.experts]
        values = np.concatenate([self.point.reward, self.mean.T.ravel()])
        return NamedValues(tuple(names), values, np.tile([-np.inf, np.inf], (values.size, 1)))

    def covariance(self, most: int = 3000) -> Floats:
        """Return the covariance of all parameters, where they are at most so many."""
        self._require_draws()
        d = self.point.reward.size
        k = len(self.mean)
        size = len(self.names)
        if size > most:
            raise NoUncertaintyError(f"the covariance of {size:,} parameters is not written out, of {most:,} at most")
        matrix = np.zeros((size, size))
        who = np.arange(k)
        if self.findings.reward_covariance is not None:
            matrix[:d, :d] = self.findings.reward_covariance
        for i in (0, 1):
            if self.with_reward.shape[2] == d:
                matrix[d + i * k + who, :d] = self.with_reward[:, i]
                matrix[:d, d + i * k + who] = self.with_reward[:, i].T
            for j in (0, 1):
                matrix[d + i * k + who, d + j * k + who] = self.errors[:, i, j]
        return matrix

    @property
    def open_directions(self) -> Floats:
        """Return directions of the reward in which the decisions say nothing."""
        ways = self.findings.open_reward
        return super().open_directions if ways is None else np.pad(ways, ((0, len(self.names) - len(ways)), (0, 0)))

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what a reader of the draws should know."""
        return self.notes

    @property
    def left_out(self) -> Mapping[str, str]:
        """Return who was left out, and why."""
        return self.findings.left_out

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Draw the shared reward and each person."""
        self._require_draws()
        z = np.stack([dealt(rng, n, *self.mean.T).T for _ in range(2)])
        scale = np.ones(n)
        if np.isfinite(self.degrees):
            scale = np.sqrt(self.degrees / rng.chisquare(self.degrees, n))
        reward, left, covariance = self.point.reward, self.errors, self.findings.reward_covariance
        moved = np.zeros((len(self.mean), 2, n))
        if covariance is not None:
            values, vectors = np.linalg.eigh(covariance)
            kept = values > 1e-12 * values.max(initial=0.0)
            root, inverse = ((vectors[:, kept] * values[kept] ** power) @ vectors[:, kept].T for power in (0.5, -0.5))
            noise = dealt(rng, n, reward, np.sqrt(np.maximum(np.diag(covariance), 0.0)))
            along = self.with_reward @ inverse
            reward = (reward + scale[:, None] * (noise @ root)).T
            moved = along @ noise.T
            left = positive_part(left - along @ along.transpose(0, 2, 1))
        first = np.sqrt(left[:, 0, 0])
        second = left[:, 1, 0] / np.where(first > 0, first, 1.0)
        rest = np.sqrt(np.maximum(left[:, 1, 1] - second**2, 0.0))
        moved[:, 0] += first[:, None] * z[0]
        moved[:, 1] += second[:, None] * z[0] + rest[:, None] * z[1]
        eta = self.mean[:, :, None] + scale * moved
        deviations = None
        if self.deviations is not None:
            values, errors = self.deviations.values, self.deviations.errors
            noise = dealt(rng, n, values.ravel(), errors.ravel())
            deviations = values[:, :, None] + errors[:, :, None] * noise.T.reshape(*errors.shape, n)
        return Draws(reward, self.findings.largest_discount * expit(eta[:, 0]), np.exp(eta[:, 1]), deviations=deviations)

    def pairs(self) -> Pairs | None:
        """Return rewards on both sides of the estimate along the open directions."""
        ways = self.findings.open_reward
        step = 1e-3
        if ways is None or not ways.size:
            return None
        ways = ways @ np.random.default_rng(0).standard_normal((ways.shape[1], 2))
        ways /= np.abs(ways).max(axis=0)
        sides = np.stack([self.point.reward + sign * step * way for way in ways.T for sign in (-1, 1)], axis=1)
        one = np.ones(sides.shape[1])
        deviations = None if self.deviations is None else np.multiply.outer(self.deviations.values, one)
        discounts, temperatures = (
            np.outer(values, one) for values in (self.point.discounts, np.asarray(self.point.temperatures))
        )
        return Pairs(Draws(sides, discounts, temperatures, deviations=deviations), step)

    def compute(self, level: float) -> Floats:
        """Return intervals of the discounts, normal on the scale of their logits; NaN where the population did not converge."""
        half = ndtri(0.5 + level / 2) * np.sqrt(self.errors[:, 0, 0]) * (1.0 if self.converged else np.nan)
        ends: Floats = self.findings.largest_discount * expit(self.mean[:, :1] + half[:, None] * [-1, 1])
        return ends

    def _require_draws(self) -> None:
        if self.withheld:
            raise NoUncertaintyError(self.withheld)


@dataclass(frozen=True, eq=False)
class TypesEstimate(PointEstimate):
    """Units of a few types, whose discounts and standard errors are `(K,)`; `posterior` is the share of each type in each unit.

    The likeliest types that together have the probability of the level are taken, and the interval of a unit reaches from the
    lowest to the highest end of theirs.
    """

    discounts: Floats
    errors: Floats
    posterior: Floats
    largest: float
    findings: PopulationFindings

    @property
    def population(self) -> PopulationFindings:
        """Return what was found of the types."""
        return self.findings

    @classmethod
    def of(cls, answer: ExpertValues, evidence: PopulationEvidence) -> TypesEstimate:
        """Read the types from what a solution keeps of them."""
        population = evidence.population
        types: Mapping[str, Any] = population.types or {}
        discounts, errors = (np.array(types[name], dtype=np.float64) for name in ("discounts", "standard_errors"))
        return cls(answer, discounts, errors, population.individuals["posterior"], population.largest_discount, population)

    @property
    def parameters(self) -> NamedValues:
        """Return the discounts of the types."""
        names = tuple(f"discount of type {k + 1}" for k in range(self.discounts.size))
        return NamedValues(names, self.discounts, np.tile([0.0, self.largest], (self.discounts.size, 1)))

    def covariance(self) -> Floats:
        """Return the variances; types are taken as uncorrelated."""
        return np.diag(self.errors**2)

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Raise: a unit is of one type or of another."""
        raise NoUncertaintyError("units of a type have none of their own")

    def of_groups(self) -> Estimate:
        """Raise: there are types in place of groups."""
        raise ValueError("types have no groups: ask for each unit")

    def compute(self, level: float) -> Floats:
        """Return the intervals of the units `(n,2)`; NaN for those who may be of a type whose discount is not identified."""
        order = np.argsort(-self.posterior, axis=1, kind="stable")
        before = np.cumsum(np.take_along_axis(self.posterior, order, axis=1), axis=1)
        before = np.concatenate([np.zeros((len(order), 1)), before[:, :-1]], axis=1)
        taken = np.empty(order.shape, dtype=np.bool_)
        np.put_along_axis(taken, order, before < level, axis=1)
        low, high = type_intervals(self.discounts, self.errors, self.largest, level).T
        return np.stack([np.where(taken, low, np.inf).min(axis=1), np.where(taken, high, -np.inf).max(axis=1)], axis=1)


def type_intervals(discounts: Floats, errors: Floats, largest: float, level: float) -> Floats:
    """Return the intervals `(K,2)` of types with these discounts and standard errors."""
    half = ndtri(0.5 + level / 2) * errors
    ends: Floats = np.clip(discounts[:, None] + half[:, None] * [-1, 1], 0.0, largest)
    return ends
