"""The estimates of maximum likelihood: of experts together, of people who share nothing, and of functions of the state.

Experts together have `x = (θ, γ, log λ, t)` with the covariance of `likelihood.intervals`, estimated transitions included, and
profile-likelihood intervals. Where goals are nearly shared, deviations follow each draw of x: the most likely ones there, with
the normal errors of Laplace's method. People apart have a matrix `(2,2)` each.

*Guesses* for the design of a study are drawn with a weak prior beside the information of the fit: rewards of the size of those
found, logits of discounts within about 1, log-temperatures within about a half.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, logit, ndtri

from multihorizon.checks import TINY, Bools, Floats
from multihorizon.choice.deviations import NearPoint
from multihorizon.choice.model import ChoicePoint
from multihorizon.choice.tabular import Likelihood
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
    parameters_of,
    places_aside,
)
from multihorizon.likelihood.evidence import LikelihoodEvidence
from multihorizon.likelihood.intervals import Precision, ProfileIntervals, ProfilesApart, precision, precision_apart
from multihorizon.numerics.distributions import chi2_ppf
from multihorizon.words import in_words


class ModelEstimate(Estimate):
    """An estimate at a point of a model of choice; `ahead` is what its parameters of look-ahead are called."""

    ahead: ClassVar[str] = "discount"

    @property
    @abstractmethod
    def model(self) -> Any:
        """The model."""

    @property
    @abstractmethod
    def vector(self) -> Floats:
        """The place of the answer `(p,)`."""

    @cached_property
    @abstractmethod
    def precise(self) -> Precision:
        """What is identified, and how well."""

    @property
    def answer(self) -> ExpertValues:
        """The answer in the order of the experts."""
        model, x = self.model, self.vector
        return ExpertValues(
            model.problem.names, model.reward(x).copy(), model.discounts(x), model.temperatures(x), self._rewards()
        )

    @cached_property
    def parameters(self) -> NamedValues:
        """Rewards, discounts and logarithms of temperatures of each group, and transitions."""
        model = self.model
        names = [f"reward of {name}" for name in self._rewards()]
        for kind, groups, part in (
            (self.ahead, model.groups, model.discount_slice),
            ("log temperature", model.temperature_groups, model.temperature_slice),
        ):
            members = [[model.problem.names[k] for k in np.flatnonzero(groups == g)] for g in range(part.stop - part.start)]
            names += [f"{kind} of {in_words(each)}" if each else f"{kind} {g + 1}" for g, each in enumerate(members)]
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
        """The standard errors `(p,)`; NaN for what is not identified."""
        return self.precise.standard_errors

    @property
    def open_directions(self) -> Floats:
        """Directions in which the decisions say nothing."""
        return self.precise.null_space

    def places(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw parameters `(n,p)`; transitions keep the order of the task."""
        model = self.model
        among = np.arange(model.discount_slice.start, model.temperature_slice.stop)
        followed, ordered = among[~model.fixed[among]], int(model.transition_slice.start)
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
        """Whether a likelihood of the decisions of each expert stands behind the answer."""
        return True

    @property
    def model(self) -> Likelihood:
        """The model."""
        return self.likelihood

    @property
    def vector(self) -> Floats:
        """The place of the answer."""
        return self.x

    @cached_property
    def precise(self) -> Precision:
        """What is identified, and how well."""
        return precision(self.point)

    def belongs_to(self, problem: object) -> bool:
        """Say whether this is an estimate of that problem."""
        return self.problem is problem

    @property
    def lost(self) -> Bools:
        """Of whom the temperature is not identified; everybody where other discounts are as likely."""
        if self.evidence is None:
            return np.zeros(len(self.problem.names), dtype=np.bool_)
        return np.array(self.evidence.lost_temperatures, dtype=np.bool_) | bool(self.evidence.equally_likely)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What draws do not allow for."""
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
        point, x, noise = self.point, self.places(n, rng), None
        if isinstance(point, NearPoint):
            noise = dealt(rng, n, point.deviations.ravel(), np.diagonal(point.curvatures, axis1=1, axis2=2).ravel())
        return self.seen_at(x, noise)

    def seen_at(self, places: Floats, noise: Floats | None = None) -> Draws:
        """Return what places `(n,p)` mean for the experts, estimated transitions and deviations included.

        `noise` `(n,K·d)` is that of deviations; without it they are the most likely ones at each place.
        """
        point, plain, tasks = self.point, super().seen_at(places), None
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
        gamma, theta = np.clip(point.x[ahead], 0.03, 0.97), point.x[: model.n_reward]
        slope = np.ones(model.size)
        slope[ahead] = gamma * (1 - gamma)
        reward = max(1.0, float(np.ptp(theta)) / 2) if theta.size else 1.0
        scales = np.repeat(
            [reward, 1.0, 0.5, 1.0], [model.n_reward, model.n_discounts, model.n_temperatures, model.n_transitions]
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
    """Deviations `(K,d,n)` at places x `(n,p)`: the most likely ones there, and around them the normal ones of Laplace's method.

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
        """The model."""
        return self.place.likelihood

    @property
    def vector(self) -> Floats:
        """The place of the answer."""
        return self.place.x

    @cached_property
    def precise(self) -> Precision:
        """What is identified, and how well."""
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
        """The standard errors `(p,)`; NaN for what is not identified."""
        return self.widened.standard_errors

    def compute(self, level: float) -> Floats:
        """Return normal intervals of the discounts."""
        half, centre = ndtri(0.5 + level / 2) * self.errors, self.answer.discounts
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
        """The answer, without discounts."""
        point, model = self.place, self.model
        none = np.full(len(model.problem.names), np.nan)
        return ExpertValues(model.problem.names, model.reward(point.x), none, model.temperatures(point.x), self._rewards())

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Raise: a draw has no discounts."""
        raise NoUncertaintyError(self.why)

    def compute(self, level: float) -> Floats:
        """Return no intervals: there are no discounts."""
        return np.full((len(self.model.problem.names), 2), np.nan)


@dataclass(frozen=True, eq=False)
class ApartEstimate(ProfilesApart, Estimate):
    """People who share nothing but a known reward; `experts` are their names, `reward` is what is known."""

    experts: tuple[str, ...]
    reward: Floats

    @property
    def has_likelihood(self) -> bool:
        """Whether a likelihood of the decisions of each expert stands behind the answer."""
        return True

    @property
    def answer(self) -> ExpertValues:
        """The answer of each person."""
        return ExpertValues(self.experts, self.reward, self.places[:, 0], np.exp(self.places[:, 1]))

    @property
    def parameters(self) -> NamedValues:
        """All discounts, then the logarithms of all temperatures: the reward is known."""
        nothing = ExpertValues(self.experts, np.zeros(0), self.places[:, 0], np.exp(self.places[:, 1]))
        bounds = np.concatenate([np.stack([self.lower[:, k], self.upper[:, k]], axis=1) for k in (0, 1)])
        return NamedValues(parameters_of(nothing).names, self.places.T.ravel(), bounds)

    @cached_property
    def roots(self) -> Floats:
        """The symmetric roots `(n,2,2)` of the covariances of each person; 0 in the direction of what is known or open."""
        fixed, curvature = self.lower == self.upper, self.here.curvature.copy()
        one_known = fixed.any(axis=1)
        curvature[one_known, 0, 1] = curvature[one_known, 1, 0] = 0.0
        values, vectors = np.linalg.eigh(curvature)
        inverse = np.where(values > 1e-12 * values.max(), 1 / np.sqrt(np.maximum(values, TINY)), 0.0)
        roots: Floats = (vectors * inverse[:, None, :]) @ vectors.transpose(0, 2, 1)
        return roots

    def covariance(self) -> Floats:
        """Return the covariance: a matrix of diagonal blocks `(n,n)`."""
        free = np.where(self.lower == self.upper, 0.0, 1.0)
        blocks = np.einsum("kij,klj,ki,kl->kil", self.roots, self.roots, free, free)
        n = len(blocks)
        matrix = np.zeros((2 * n, 2 * n))
        for i in (0, 1):
            for j in (0, 1):
                matrix[i * n + np.arange(n), j * n + np.arange(n)] = blocks[:, i, j]
        return matrix

    @property
    def lost(self) -> Bools:
        """Of whom the discount or the temperature is not identified."""
        fixed, curvature = self.lower == self.upper, self.here.curvature
        return ~precision_apart(curvature, fixed).identified.all(axis=1) | ~self.known

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Draw n answers of each person."""
        fixed = self.lower == self.upper
        z = np.stack([dealt(rng, n, self.places[:, 0], self.places[:, 1]) for _ in range(2)])
        steps = np.where(fixed[:, :, None], 0.0, np.einsum("kij,jbk->kib", self.roots, z))
        places = np.clip(self.places[:, :, None] + steps, self.lower[:, :, None], self.upper[:, :, None])
        return Draws(self.reward, places[:, 0], np.exp(places[:, 1]))


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
