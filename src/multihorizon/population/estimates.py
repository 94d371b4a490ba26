"""The estimates of a population: each of its people, a typical and a new person of each group, and people of types.

Of people `η = (logit γ, log λ)` is about normal together with the shared reward θ. With a draw θ̂ + A z, A Aᵀ its covariance, η
follows by `B z`, B its covariance with the reward times `A⁻ᵀ`; what is left of its covariance, less `B Bᵀ`, is drawn with it.
What is typical of a group is known by Student's t, and a new person of it also differs as people do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import expit, logit, ndtri

from multihorizon.checks import Floats
from multihorizon.estimate import Draws, Estimate, ExpertValues, NamedValues, NoUncertaintyError, Pairs, PointEstimate, dealt
from multihorizon.numerics.spectrum import positive_part
from multihorizon.population.evidence import PopulationEvidence, PopulationFindings
from multihorizon.solution import Deviations

#: The most parameters of which the covariance is written out.
MOST_PARAMETERS = 3000


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
        population, own = evidence.population, evidence.population.individuals
        withheld = ""
        if not converged:
            withheld = "the population is not identified"
        elif population.reward_covariance is None and any(error != 0 for error in evidence.reward_standard_errors):
            withheld = "the fit was saved by an earlier version, without the covariance of the reward: fit the table again"
        size = len(answer.experts)
        errors = np.stack([own["logit_discount_error"], own["log_temperature_error"]], axis=1)
        covariance = errors[:, :, None] * errors[:, None, :]
        covariance[:, [0, 1], [1, 0]] *= own.get("correlation", np.zeros(size))[:, None]
        free = 0 if population.reward_covariance is None else len(population.reward_covariance)
        together, notes = population.person_reward_covariance, []
        if population.reward_covariance is not None and together is None:
            notes.append("Persons are so many that the shared reward is drawn apart from them.")
        if evidence.deviations is not None:
            notes.append("Deviations from the shared reward are drawn apart from it.")
        if population.conditions:
            notes.append("Persons are described on the average of conditions.")
        return cls(
            answer,
            population,
            converged,
            withheld,
            np.stack([own["logit_discount"], own["log_temperature"]], axis=1),
            covariance,
            np.zeros((size, 2, free)) if together is None else together,
            deviations=evidence.deviations,
            notes=tuple(notes),
        )

    def of_groups(self) -> PopulationEstimate:
        """Return the estimate of a typical and of a new person of each group."""
        population, free = self.findings, self.with_reward.shape[2]
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
        note = "Typical and new persons are taken to have the shared reward, without a deviation of their own."
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
        """What was found of groups."""
        return self.findings

    @cached_property
    def parameters(self) -> NamedValues:
        """Rewards, logits of discounts and logarithms of temperatures."""
        names = [f"reward of {name}" for name in self.point.parameters or range(self.point.reward.size)]
        names += [f"{kind} of {expert}" for kind in ("logit discount", "log temperature") for expert in self.point.experts]
        values = np.concatenate([self.point.reward, self.mean.T.ravel()])
        return NamedValues(tuple(names), values, np.tile([-np.inf, np.inf], (values.size, 1)))

    def covariance(self) -> Floats:
        """Return the covariance of all parameters."""
        self._require_draws()
        d, k, size = self.point.reward.size, len(self.mean), len(self.names)
        if size > MOST_PARAMETERS:
            raise NoUncertaintyError(f"the covariance of {size:,} parameters is not written out, of {MOST_PARAMETERS:,} at most")
        matrix, who = np.zeros((size, size)), np.arange(k)
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
        """Directions of the reward in which the decisions say nothing."""
        ways = self.findings.open_reward
        return super().open_directions if ways is None else np.pad(ways, ((0, len(self.names) - len(ways)), (0, 0)))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader of the draws should know."""
        return self.notes

    @property
    def left_out(self) -> Mapping[str, str]:
        """Who was left out, and why."""
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
            reward, moved = (reward + scale[:, None] * (noise @ root)).T, along @ noise.T
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
        ways, step = self.findings.open_reward, 1e-3
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
        """What was found of the types."""
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
        """The discounts of the types."""
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
