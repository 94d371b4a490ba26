"""Posterior: draws of reward, discounts and temperatures given the decisions and priors, by NUTS on the library's own gradients.

*Density.* Parameters without bounds, u, have the density

    p(u | decisions) ∝ exp L(x(u)) p(u).

For `MaximumLikelihood` x = (θ, γ, log λ, t) is that of the model of choice (`choice.model`), with the bounded look-ahead
`γ = Γ expit(u)`. Γ is 1, or slightly less where a task may never end. Other families of look-ahead have their coordinates, which
are numbers between 0 and 1, in the place of γ. Where nothing sets the scale of the reward, log-temperatures have the mean 0, and
u are their differences. For `Population` u is ψ = (θ, b, c, L), and L the sum of log p_i, people averaged out
(`population.marginal`). No term for estimated means is added to it, because means are drawn and not estimated.

*Priors* take the place of the penalties and weak priors of the fits. With f_j the largest entry of feature j:

| name | `MaximumLikelihood` | `Population` |
|---|---|---|
| reward | `θ_j f_j ~ N(0, (20 λ₀)²)`, λ₀ the geometric mean of known temperatures, else 1 | the same |
| discount | γ uniform, or `logit γ ~ N(m, s²)` | `X b ~ N(m, s²)` on average of cells, m = 0, s = 1.5 |
| temperature | `log λ ~ N(m, s²)` | `X c ~ N(m, s²)` on average of cells |
| spread | none | standard deviations half-normal with scale 2, correlations LKJ with shape 2 |

A prior "on average of cells" has the precision `XᵀX/(n s²)` for the effects, n the number of cells: it does not depend on how
covariates are coded. N(0, 1.5²) on the logit is nearly uniform in γ. By default m and s of log λ are 0 and 1; with a known reward
they are the logarithm of its largest entry and 2, and with some temperatures known their mean and 1. Where a fit has pooled
temperatures with a spread τ, they are `N(μ, τ²)` with `μ ~ N(m, s²)`. Estimated transitions t have the prior that was counted:
within each row a Dirichlet distribution with the counted moves.

*Sampling.* Where reward and discount nearly trade off, the density is narrow in some directions and wide in others. With û its
mode, by damped Newton steps, and `H = R Rᵀ` the Fisher information plus the curvature of the priors at û, the sampler moves
`z = Rᵀ(u − û)`, in which the density is nearly standard normal. Each chain starts at a draw from N(0, 2²) and has a random
stream of its own, so draws depend on the seed alone, and not on how many processes there are. A chain with divergences is drawn
once more, with shorter steps.

*The quadrature of `Population`* keeps its nodes where they are at û while it samples. At draws from a normal distribution half as
wide again as that of H, log p is compared with that of nodes placed anew. Where it is off with a standard deviation above 0.02,
more nodes are taken; where 41 are too few, or the reward is free, nodes follow ψ. What it is off at 40 of the draws of the
posterior is measured by the next finer rule, and returned. Given ψ, each person is drawn from 100 places around their mean, by
importance weights.

*What the priors decide.* With S the covariance of u under the prior, `S^{-1/2} Cov(u | decisions) S^{-1/2}` has eigenvalues near
1 in directions of which the decisions say nothing. Directions with eigenvalues above ½ are open. For each parameter the width of
the central 95% of the posterior is divided by that of the prior, and the share of its posterior variance that open directions
explain is measured (R² of a regression, of ranks turned into normal scores). The prior decides a parameter where the widths
differ by less than 30%, or where this share is above ½. The second rule is needed: a constant that could be added to all of d
rewards leaves each of them √d times narrower than its prior, although the decisions say nothing of it.
"""

from __future__ import annotations

import copy
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import import_module
from typing import Any, cast

import numpy as np
import pandas as pd
import scipy.linalg as la
from scipy.special import expit, log_expit, logit, ndtri
from scipy.stats import rankdata

from multihorizon.checks import Floats, Ints, Seed, as_count, as_floats, as_positive, as_seed, first_few
from multihorizon.choice.deviations import NearlyShared
from multihorizon.choice.model import ChoicePoint, Likelihood, ListedModel
from multihorizon.choice.plans import Persons
from multihorizon.choice.weighted import WeightedLikelihood
from multihorizon.driver import solve
from multihorizon.estimate import Draws, Sampled
from multihorizon.horizon import Depth, Exponential
from multihorizon.likelihood.estimates import LikelihoodEvidence
from multihorizon.likelihood.look_ahead import fit_lookahead
from multihorizon.likelihood.maximum_likelihood import WEAK_PRIOR, MaximumLikelihood, resume
from multihorizon.numerics.newton import Local, maximize_many
from multihorizon.parallel import Progress, Run, in_parallel, limits, silent
from multihorizon.population.covariates import Covariates
from multihorizon.population.marginal import Marginal
from multihorizon.population.maximum import Maximum
from multihorizon.population.solver import Population
from multihorizon.problem import Problem
from multihorizon.result import package_version
from multihorizon.solution import SOFT_ALONE, Solution
from multihorizon.words import decimals, significant

#: Reported quantities: the names of their dimensions, and draws `(n,…)`.
Reported = dict[str, tuple[tuple[str, ...], Floats]]


@dataclass(frozen=True)
class Priors:
    """What is believed before the decisions; None stands for what the model suggests."""

    reward: float = WEAK_PRIOR
    discount: tuple[float, float] | None = None
    temperature: tuple[float, float] | None = None
    spread: float | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any] | None, people: bool) -> Priors:
        """Return the priors of a mapping; `people` says that they are those of a population."""
        names = ["reward", "discount", "temperature", *(["spread"] if people else [])]
        if given is not None and not isinstance(given, Mapping):
            raise ValueError(f"priors must map names to numbers, such as {{'reward': 10}}, got {given!r}")
        scales: dict[str, Any] = {"discount": (0.0, 1.5), "spread": 2.0} if people else {}
        for name, value in (given or {}).items():
            if name not in names:
                raise ValueError(f"priors must be of {', '.join(names)}, got {name!r}")
            if name in ("reward", "spread"):
                scales[name] = as_positive(value, f"the prior of {name}")
            elif name == "discount" and isinstance(value, str):
                if value != "uniform" or people:
                    words = "two numbers, the mean and the standard deviation of logit γ" + ("" if people else ', or "uniform"')
                    raise ValueError(f"the prior of discount must be {words}, got {value!r}")
            else:
                what = "logit γ" if name == "discount" else "log λ"
                pair = as_floats(value, f"the prior of {name}")
                if pair.shape != (2,) or not pair[1] > 0:
                    words = f"two numbers, the mean and the positive standard deviation of {what}"
                    raise ValueError(f"the prior of {name} must be {words}, got {value!r}")
                scales[name] = (float(pair[0]), float(pair[1]))
        return cls(**scales)


@dataclass(frozen=True, eq=False)
class Normal:
    """A normal prior of some entries of u, by their mean and precision."""

    places: slice
    mean: Floats
    precision: Floats

    @cached_property
    def root(self) -> Floats:
        """Return R with `R Rᵀ` the covariance."""
        return np.linalg.cholesky(np.linalg.inv(self.precision))

    def at(self, u: Floats) -> tuple[float, Floats]:
        """Return its logarithm without constants, and the gradient in these entries."""
        pull = -self.precision @ (u[self.places] - self.mean)
        return 0.5 * float(pull @ (u[self.places] - self.mean)), pull

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Return draws `(n,k)`."""
        return self.mean + rng.standard_normal((n, self.mean.size)) @ self.root.T


class Target(ABC):
    """A density to draw from, and what is told of its draws.

    Attributes:
        size: how many numbers u has.
        start: u of the fit.
        normals: the normal priors.
        coordinates: the labels of each dimension of what is reported.
        decided: of what the log-likelihood is kept one by one: "decision" or "expert".
        told: the priors in words.
        has_mode: whether the density has a mode to climb to.
    """

    has_mode: bool = True
    size: int
    start: Floats
    normals: list[Normal]
    coordinates: dict[str, Any]
    decided: str
    told: dict[str, str]

    @abstractmethod
    def at(self, u: Floats) -> tuple[float, Floats] | None:
        """Return the logarithm of the density and its gradient; None where a soft value is infinite."""

    @abstractmethod
    def curvature(self, u: Floats) -> Floats:
        """Return the information of the decisions and the curvature of the priors, positive definite."""

    @abstractmethod
    def prior_draws(self, n: int, rng: np.random.Generator) -> Floats:
        """Return draws of u `(n,size)` from the prior."""

    @abstractmethod
    def report(self, draws: Floats, rng: np.random.Generator, decided: bool) -> tuple[Reported, Floats, float]:
        """Return what is reported of draws `(n,size)`, the log-likelihoods `(n,…)`, and how far the density is off.

        Where nothing has been `decided`, draws are those of the prior.
        """

    def fitted_to(self, mode: Floats, curvature: Floats) -> Target:
        """Return the same density, made ready to be asked very often near its mode."""
        return self

    def normal_priors(self, u: Floats) -> tuple[float, Floats]:
        """Return the logarithms of all normal priors, and their gradient."""
        total = 0.0
        gradient = np.zeros(self.size)
        for prior in self.normals:
            value, pull = prior.at(u)
            total += value
            gradient[prior.places] += pull
        return total, gradient


class Listed(Target):
    """Decisions in listed states, whatever the shape of look-ahead.

    Args:
        point: the model at the fit.
        priors: what is believed before.
        spread: τ of pooled temperatures, where it was estimated.
        draws: how many draws there will be; by these it is decided what the log-likelihood is kept of.
    """

    def __init__(self, point: ChoicePoint, priors: Priors, spread: float | None, draws: int) -> None:
        fitted = cast(ListedModel, point.likelihood)
        if isinstance(fitted, NearlyShared):
            raise ValueError("a posterior needs one reward for all, got personal deviations from it: set deviations to 0")
        self.model = model = fitted.holding()
        if model.is_large:
            raise ValueError(
                f"a posterior needs at most {limits().dense_rewards} rewards and {limits().dense_parameters} parameters, "
                f"got {model.n_reward} and {model.size}: tie the rewards of similar states together with features"
            )
        self.x = np.where(model.fixed, model.known, point.x)
        self.near = point.without_derivatives()
        d, low = model.n_reward, model.discount_slice
        self.rewards = np.flatnonzero(~model.fixed[:d])
        self.ahead = low.start + np.flatnonzero(~model.fixed[low])
        self.warm = model.temperature_slice.start + np.flatnonzero(~model.fixed[model.temperature_slice])
        self.moves = np.arange(model.transition_slice.start, model.transition_slice.stop)
        #: Log-temperatures are their centre and this basis times u.
        self.basis = la.null_space(np.ones((1, self.warm.size))) if model.scale_is_free else np.eye(self.warm.size)
        sizes = np.cumsum([0, self.rewards.size, self.ahead.size, self.basis.shape[1], self.moves.size]).tolist()
        self.reward_part, self.ahead_part, self.warm_part, self.move_part = (slice(*sizes[i : i + 2]) for i in range(4))
        self.size = sizes[-1]
        if not self.size:
            raise ValueError("a posterior needs something that is not known, got a problem in which all is given")
        edge = 1e-3
        self.low, self.range = model.lower[self.ahead], model.upper[self.ahead] - model.lower[self.ahead]
        share = np.clip((point.x[self.ahead] - self.low) / self.range, edge, 1 - edge)
        logs = self.basis.T @ point.x[self.warm]
        self.start = np.concatenate([point.x[self.rewards], logit(share), logs, point.x[self.moves]])
        self.uniform = priors.discount is None
        self.normals = self._normal(priors, spread)
        whole = all(np.array_equal(batch.counts, np.round(batch.counts)) for batch in model.batches)
        self.decided = "decision" if whole and draws * model.decisions <= 25_000_000 else "expert"
        self._label()

    def _normal(self, priors: Priors, spread: float | None) -> list[Normal]:
        """Return the normal priors, and all of them in words."""
        model = self.model
        made = []
        deviation = priors.reward * model.known_temperature / model.feature_sizes[self.rewards]
        self.told = {}
        if self.rewards.size:
            made.append(Normal(self.reward_part, np.zeros(deviation.size), np.diag(deviation**-2)))
            size = f"{priors.reward * model.known_temperature:g}"
            self.told["reward"] = f"N(0, {size}²), in units that make the largest entry of the feature 1"
        name = "the discount" if isinstance(model, Likelihood) else "each coordinate of the look-ahead"
        if self.ahead.size and priors.discount is not None:
            m, s = priors.discount
            made.append(Normal(self.ahead_part, np.full(self.ahead.size, m), np.eye(self.ahead.size) / s**2))
            self.told["discount"] = f"N({m:g}, {s:g}²) of the logit of {name}"
        elif self.ahead.size:
            self.told["discount"] = f"{name} uniform between {self.low[0]:g} and {self.low[0] + self.range[0]:g}"
        n = self.basis.shape[1]
        if n:
            paid = _largest_known(model.batches, model.settings.reward)
            given = bool(model.fixed[model.temperature_slice].any())
            usual = (float(np.log(model.known_temperature)), 1.0) if given or not paid else (float(np.log(paid)), 2.0)
            m, s = priors.temperature or usual
            m = 0.0 if model.scale_is_free else m
            covariance = s**2 * np.eye(self.warm.size)
            words = f"N({m:g}, {s:g}²) of the logarithm of each temperature"
            if priors.temperature is None and spread:
                covariance = spread**2 * np.eye(self.warm.size) + s**2
                words = f"N({m:g}, {s:g}²) of the mean logarithm of temperatures, and N(0, {significant(spread)}²) of deviations"
                words += " from it"
            precision = np.linalg.inv(self.basis.T @ covariance @ self.basis)
            made.append(Normal(self.warm_part, np.full(n, m), precision))
            self.told["temperature"] = words + (", whose mean is 0" if model.scale_is_free else "")
        if self.moves.size:
            timed = isinstance(model, Likelihood) and any(moves.size > moves.moving for moves in model.moves)
            beside = ", and one with the observed times of each kind of move" if timed else ""
            self.told["transitions"] = f"a Dirichlet distribution with the counted moves in each row{beside}"
        return made

    def _label(self) -> None:
        model = self.model
        names = model.problem.names
        self.coordinates = {"expert": list(names), "parameter": [model.problem.parameter_names[i] for i in self.rewards]}
        if self.decided == "decision":
            who: list[tuple[int, int, int, int, int]] = []
            for number, batch in enumerate(model.batches):
                for a, s, i in zip(*np.nonzero(batch.counts), strict=True):
                    who.append((int(batch.positions[i]), int(s), int(a), number, int(i)))
            who.sort()
            times = [int(model.batches[number].counts[a, s, i]) for _, s, a, number, i in who]
            #: The batch, action, state and person of each distinct decision, and how often each was made.
            self.distinct = np.array([(number, a, s, i) for _, s, a, number, i in who])
            self.repeats = np.repeat(np.arange(len(who)), times)
            experts = [model.problem.experts[place] for place, *_ in who]
            labels = {
                "decision_expert": [expert.name for expert in experts],
                "decision_state": [expert.mdp.state_names[s] for expert, (_, s, *_) in zip(experts, who, strict=True)],
                "decision_action": [expert.mdp.action_names[a] for expert, (_, _, a, *_) in zip(experts, who, strict=True)],
            }
            self.coordinates["decision"] = np.arange(self.repeats.size)
            self.coordinates |= {name: ("decision", np.array(each)[self.repeats]) for name, each in labels.items()}

    def place(self, u: Floats) -> Floats:
        """Return x of u."""
        x = self.x.copy()
        x[self.rewards] = u[self.reward_part]
        x[self.ahead] = self.low + self.range * expit(u[self.ahead_part])
        x[self.warm] = self.basis @ u[self.warm_part]
        x[self.moves] = u[self.move_part]
        return x

    def pull(self, u: Floats, gradient: Floats) -> Floats:
        """Return a gradient `(…,p)` in x as one in u."""
        slope = self.range * expit(u[self.ahead_part]) * expit(-u[self.ahead_part])
        parts = gradient[..., self.rewards], gradient[..., self.ahead] * slope, gradient[..., self.warm] @ self.basis
        return np.concatenate([*parts, gradient[..., self.moves]], axis=-1)

    def at(self, u: Floats) -> tuple[float, Floats] | None:
        """Evaluate by one plan and one adjoint solve for each expert. Plans begin at those of the fit, whatever was asked
        before."""
        point = self.model.at(self.place(u), self.near)
        if point is None:
            return None
        held, gradient = self.normal_priors(u)
        gradient += self.pull(u, point.gradient)
        if self.uniform:
            logits = u[self.ahead_part]
            held += float((log_expit(logits) + log_expit(-logits)).sum())
            gradient[self.ahead_part] += 1 - 2 * expit(logits)
        value = point.objective + held
        return (value, gradient) if np.isfinite(value) and np.isfinite(gradient).all() else None

    def curvature(self, u: Floats) -> Floats:
        """Return the Fisher information, carried over to u, and the priors."""
        point = self.model.at(self.place(u), self.near)
        assert point is not None
        total = self.pull(u, self.pull(u, point.information).T)
        for prior in self.normals:
            total[prior.places, prior.places] += prior.precision
        if self.uniform:
            places = np.arange(self.ahead_part.start, self.ahead_part.stop)
            # far out this prior is not curved; 0.3 is the precision of its variance, and nothing is wider than the prior
            total[places, places] += np.maximum(2 * expit(u[places]) * expit(-u[places]), 0.3)
        return total

    def prior_draws(self, n: int, rng: np.random.Generator) -> Floats:
        """Return each part by itself."""
        draws = np.zeros((n, self.size))
        for prior in self.normals:
            draws[:, prior.places] = prior.draw(n, rng)
        if self.uniform:
            draws[:, self.ahead_part] = rng.logistic(size=(n, self.ahead.size))
        counts = self.model.move_counts
        draws[:, self.move_part] = np.log(np.maximum(rng.gamma(counts, size=(n, counts.size)), 1e-300) / counts)
        return draws

    def report(self, draws: Floats, rng: np.random.Generator, decided: bool) -> tuple[Reported, Floats, float]:
        """Return rewards, the parameters of the look-ahead, temperatures, and estimated transitions; plans are exact."""
        model = self.model
        places = np.array([self.place(u) for u in draws])
        reported: Reported = {}
        if self.rewards.size:
            reported["reward"] = ("parameter",), places[:, self.rewards]
        if self.ahead.size and isinstance(model, WeightedLikelihood):
            ahead = np.array([model.family.report(model.coordinates(x))[0] for x in places])
            names = model.family.parameters(model.steps)
            reported |= {name: (("expert",), ahead[:, :, i]) for i, name in enumerate(names)}
        elif self.ahead.size:
            reported["discount"] = ("expert",), np.array([model.discounts(x) for x in places])
        if self.warm.size:
            reported["temperature"] = ("expert",), np.array([model.temperatures(x) for x in places])
        if not decided:
            return reported, np.zeros((len(draws), 0)), 0.0
        logs = [self._log_likelihoods(x) for x in places]
        return reported, np.array(logs), 0.0

    def _log_likelihoods(self, x: Floats) -> Floats:
        point = self.model.at(x, self.near)
        assert point is not None
        if self.decided == "expert":
            return self.model.person_values(point)
        values = np.empty(len(self.distinct))
        for number, plan in enumerate(point.plans):
            of_plan = self.distinct[:, 0] == number
            values[of_plan] = plan.finite_log[tuple(self.distinct[of_plan, 1:].T)]
        return values[self.repeats]


def _largest_known(persons: Sequence[Persons], theta: Floats | None) -> float:
    """Return the largest reward that is known of a decision; 0 where none is."""
    paid = [each.known_reward if theta is None else each.reward(theta) for each in persons]
    return max(float(np.abs(each).max(initial=0.0)) for each in paid)


class PeopleTarget(Target):
    """A population with people averaged out; u is ψ."""

    def __init__(self, covariates: Covariates, maximum: Maximum, priors: Priors) -> None:
        self.covariates, self.maximum = covariates, maximum
        #: This is asked inside a task, on a thread of the sampler.
        self.layout = layout = copy.copy(maximum.marginal.layout)
        layout.jobs = 0
        self.size, self.start = layout.size, maximum.psi
        # from the third row of L on, the density is unbounded where a row is 0, though it has no weight there
        self.has_mode = layout.deep == 2
        self.count = 15
        self.scale = priors.spread or 2.0
        self.marginal: Marginal | None = None
        assert priors.discount is not None
        sizes = layout.problem.feature_sizes
        paid = _largest_known(layout.tables.planners, layout.known)
        m, s = priors.temperature or ((0.0, 1.0) if layout.scale_is_free else (float(np.log(paid or 1.0)), 2.0))
        m = 0.0 if layout.scale_is_free else m
        everyone = np.asarray(np.linalg.lstsq(layout.design, np.ones(len(layout.design)))[0], dtype=np.float64)
        square = layout.design.T @ layout.design / len(layout.design)
        basis = layout.temperature_basis
        centre, deviation = priors.discount
        self.normals = [Normal(layout.discount, centre * everyone, square / deviation**2)]
        self.told = {"discount": f"N({centre:g}, {deviation:g}²) of logit γ, on average of cells"}
        if basis.shape[1]:
            self.normals.append(Normal(layout.temperature, m * basis.T @ everyone, basis.T @ square @ basis / s**2))
            self.told["temperature"] = f"N({m:g}, {s:g}²) of log λ, on average of cells"
        if layout.free.size:
            self.normals.append(
                Normal(layout.reward, np.zeros(layout.free.size), np.diag((sizes / priors.reward)[layout.free] ** 2))
            )
            self.told["reward"] = f"N(0, {priors.reward:g}²), in units that make the largest entry of the feature 1"
        self.told["spread"] = f"standard deviations half-normal with scale {self.scale:g}, correlations LKJ with shape 2"
        terms = list(covariates.terms)
        self.coordinates = {"expert": list(covariates.names), "term": terms, "parameter": list(layout.problem.parameter_names)}
        self.decided = "expert"

    def spread_prior(self, psi: Floats) -> tuple[float, Floats]:
        """Return the logarithm of the prior of the spread, in the coordinates of ψ, and its gradient there.

        Row i of L has the length σ_i, the standard deviation, and a direction whose last entry is l_i. With D rows the volume of
        (row, log L_ii) makes of half-normal σ and of correlations with density `det^{η−1}`, η = 2,
        `Σ −σ_i²/2s² + (D − i + 2η) log l_i + (2 − i) log σ_i`, i = 1, …, D.
        """
        root = self.layout.root(psi[self.layout.spread])
        size = len(root)
        rows, columns = np.tril_indices(size)
        number = np.arange(1, size + 1)
        squares = (root**2).sum(axis=1)
        share, length = size - number + 4.0, 2.0 - number
        share[0] = 0.0  # the first row has no direction
        logs = np.log(np.diag(root)) - 0.5 * np.log(squares)
        value = -0.5 * squares / self.scale**2 + share * logs + 0.5 * length * np.log(squares)
        # by σ_i², and by log L_ii directly
        by_square = -0.5 / self.scale**2 + 0.5 * (length - share) / squares
        entries = root[rows, columns]
        diagonal = rows == columns
        gradient = 2 * by_square[rows] * entries * np.where(diagonal, entries, 1.0) + np.where(diagonal, share[rows], 0.0)
        return float(value.sum()), gradient

    def at(self, u: Floats) -> tuple[float, Floats] | None:
        """Evaluate by the nodes as they are placed, or anew at u."""
        root = self.layout.unpack(u).root
        if not (
            np.abs(root).max() < 1e3 and np.diag(root).min() > 1e-4
        ):  # nobody is in so wide a population, or in so narrow a one
            return None
        fixed = self.marginal
        try:
            parts = (Marginal(self.layout, self.maximum.persons_at(u), self.count) if fixed is None else fixed).scores(u)
        except np.linalg.LinAlgError:  # a population so narrow along some direction that its nodes fall together
            return None
        if parts is None:
            return None
        value, gradient = self.normal_priors(u)
        held, slope = self.spread_prior(u)
        gradient[self.layout.spread] += slope
        gradient += np.sum([part.gradient for part in parts], axis=0)
        value += held + float(sum(part.persons.sum() for part in parts))
        return (value, gradient) if np.isfinite(value) and np.isfinite(gradient).all() else None

    def curvature(self, u: Floats) -> Floats:
        """Differentiate by differences of the gradient in what is not the reward, and in it by what was found at the maximum."""
        layout = self.layout
        step = 1e-4
        total = self.maximum.value.information.copy()
        total[layout.reward, layout.reward] -= np.diag(layout.ridge[layout.free])
        for prior in self.normals:
            total[prior.places, prior.places] += prior.precision
        for j in range(layout.spread.start, layout.spread.stop):
            move = step * np.eye(1, self.size, j).ravel()
            ahead, behind = (self.spread_prior(u + sign * move)[1] for sign in (1, -1))
            total[layout.spread, j] -= (ahead - behind) / (2 * step)
        values, vectors = np.linalg.eigh((total + total.T) / 2)
        wide = np.maximum(np.abs(values), 1e-6 * np.abs(values).max())
        curvature: Floats = (vectors * wide) @ vectors.T
        return curvature

    def fitted_to(self, mode: Floats, curvature: Floats) -> Target:
        """Return nodes that stay where they are, as many as are needed; where the reward is free, or 41 are too few, they
        follow."""
        if self.layout.free.size or self.layout.mixed:
            return self
        back = np.linalg.inv(np.linalg.cholesky(curvature))
        tried = mode + 1.5 * np.random.default_rng(0).standard_normal((20, self.size)) @ back
        ready = copy.copy(self)
        for count in (15, 25, 41):
            ready.marginal = Marginal(self.layout, self.maximum.persons_at(mode), count)
            anew = copy.copy(self)
            anew.count = count
            pairs = [(ready.at(u), anew.at(u)) for u in tried]
            off = [one[0] - two[0] for one, two in pairs if one is not None and two is not None]
            if np.std(off) < 0.02:
                return ready
        return self

    def prior_draws(self, n: int, rng: np.random.Generator) -> Floats:
        """Return each part by itself; correlations row by row of their root, as in Lewandowski and others (2009)."""
        draws = np.zeros((n, self.size))
        for prior in self.normals:
            draws[:, prior.places] = prior.draw(n, rng)
        size = self.layout.deep
        sigma = np.abs(rng.normal(scale=self.scale, size=(n, size)))
        place = self.layout.spread.start
        for i in range(1, size + 1):
            # l_i² is beta with (D − i)/2 + η and (i − 1)/2, and the rest of the direction is uniform
            last = np.ones(n) if i == 1 else rng.beta((size - i) / 2 + 2.0, (i - 1) / 2, size=n)
            direction = rng.standard_normal((n, i - 1))
            direction *= np.sqrt(1 - last)[:, None] / np.maximum(np.linalg.norm(direction, axis=1, keepdims=True), 1e-300)
            draws[:, place : place + i - 1] = sigma[:, [i - 1]] * direction
            draws[:, place + i - 1] = np.log(sigma[:, i - 1] * np.sqrt(last))
            place += i
        return draws

    def report(self, draws: Floats, rng: np.random.Generator, decided: bool) -> tuple[Reported, Floats, float]:
        """Return effects, spreads, rewards, and each person on the average of conditions."""
        layout, covariates = self.layout, self.covariates
        parts = [layout.unpack(psi) for psi in draws]
        effects = np.array([covariates.units @ each.effects for each in parts])
        turn = np.kron(covariates.typical_random.mean(axis=0) @ covariates.random_units, np.eye(2))
        between = np.array([turn @ each.covariance @ turn.T for each in parts])
        sizes = np.sqrt(np.diagonal(between, axis1=1, axis2=2))
        reported: Reported = {
            "discount_effect": (("term",), effects[:, :, 0]),
            "temperature_effect": (("term",), effects[:, :, 1]),
            "discount_spread": ((), sizes[:, 0]),
            "temperature_spread": ((), sizes[:, 1]),
            "correlation": ((), between[:, 0, 1] / sizes.prod(axis=1)),
        }
        if layout.free.size:
            reported["reward"] = ("parameter",), np.array([each.theta for each in parts])
        x, z = covariates.typical @ covariates.units, covariates.typical_random @ covariates.random_units
        rest = x - (z[:, None, :] @ layout.along)[:, 0]
        eta = np.empty((len(draws), layout.persons, 2))
        logs = np.zeros((len(draws), layout.persons if decided else 0))
        check = set(np.linspace(0, len(draws) - 1, 10).astype(int).tolist()) if decided else set()
        off = []
        for k, (psi, each) in enumerate(zip(draws, parts, strict=True)):
            if decided:
                v, logs[k] = self._persons(psi, rng)
            else:
                v = layout.means(each.effects) + rng.standard_normal((layout.persons, layout.deep)) @ each.root.T
            eta[k] = (z[:, :, None] * v.reshape(layout.persons, -1, 2)).sum(axis=1) + rest @ each.effects
            if k in check:
                finer = Marginal(layout, self.maximum.persons_at(psi), 25 if self.count < 25 else 41).scores(psi)
                assert finer is not None
                off.append(float(logs[k].sum() - sum(part.persons.sum() for part in finer)))
        reported["discount"] = ("expert",), layout.largest * expit(eta[:, :, 0])
        reported["temperature"] = ("expert",), np.exp(eta[:, :, 1])
        return reported, logs, float(np.std(off)) if off else 0.0

    def _persons(self, psi: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return a draw of v `(n,D)` given ψ and the decisions, and log p_i `(n,)` as the sampler has it."""
        near = Marginal(self.layout, self.maximum.persons_at(psi), self.count)
        likely = near.scores(psi, rng.standard_normal((100, self.layout.deep)))
        asked = (near if self.marginal is None else self.marginal).scores(psi)
        assert likely is not None
        assert asked is not None
        v = []
        for part in likely:
            below = part.shares.cumsum(axis=1) < rng.random((len(part.shares), 1))
            chosen = np.minimum(below.sum(axis=1), part.shares.shape[1] - 1)
            v.append(part.places[np.arange(len(chosen)), chosen])
        return np.concatenate(v), np.concatenate([part.persons for part in asked])


def posterior(
    study: Solution | Problem,
    solver: MaximumLikelihood | Population | None = None,
    priors: Mapping[str, Any] | None = None,
    *,
    draws: int = 500,
    tune: int = 400,
    chains: int = 4,
    seed: Seed = 0,
    jobs: int = 1,
    progress: Progress = silent,
) -> Any:
    """Draw reward, discount factors and temperatures given the decisions and priors.

    It needs the extra `bayes`: `pip install 'multihorizon[bayes]'`.

    Args:
        study: a solution of `MaximumLikelihood` or `Population`, or a problem to solve with `solver`.
        solver: for a problem, how it is modelled; by default `MaximumLikelihood()`.
        priors: what is believed before, by name; what is left out has its default.
            `"reward"`: the standard deviation of rewards, in temperatures and in units of the largest entry of each feature; 20.
            `"discount"`: the mean and the standard deviation of logit γ. By default γ is uniform, which is `"uniform"`; in a
            population the typical person has (0, 1.5). Coordinates of another look-ahead have the same prior.
            `"temperature"`: the mean and the standard deviation of log λ; by default (0, 1), and with a known reward the
            logarithm of its largest entry, and 2. Pooled temperatures vary with the spread of the fit.
            `"spread"`: in a population, the scale of the half-normal standard deviations between people; 2.
        draws: of each chain, after `tune` others in which the sampler adapts.
        tune: those.
        chains: how many.
        seed: same seed, same draws.
        jobs: processes that share the chains; −1 for all cores. The draws do not depend on it.
        progress: called as chains finish.

    Returns:
        ArviZ's `DataTree` with the groups `posterior`, `sample_stats`, `log_likelihood` (by decision; by expert for a population
        and where single decisions would be too many), `prior`, and `widths`, which sets the widths of prior and posterior
        against each other for each parameter. Its attributes have the priors in words, the largest R̂ and the least bulk ESS of
        all parameters, divergences, processor seconds, `warnings`, and all of this as a text, `summary`.

    Raises:
        ValueError: without the extra; for other solvers, a look-ahead by depths, more parameters than a dense matrix has room
            for, and priors that are none.

    Example:
        >>> import multihorizon as mh
        >>> d = mh.domains.cliff()
        >>> table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=200)
        >>> tree = mh.posterior(mh.Problem(d.mdp, table))  # doctest: +SKIP
        >>> tree.posterior.discount.mean(("chain", "draw"))  # doctest: +SKIP
    """
    as_count(draws, "draws", least=4)
    as_count(tune, "tune", least=1)
    as_count(chains, "chains")
    run = Run(as_seed(seed), jobs, progress)
    _extra()
    begun = time.process_time()
    target = _target(study, solver, priors, draws * chains, run.part(0.0, 0.2))
    mode, curvature = _mode(target)
    target = target.fitted_to(mode, curvature)
    spent = time.process_time() - begun
    parts = []
    seeds = np.random.SeedSequence(run.seed).spawn(chains + 1)
    for part in in_parallel(partial(_chain, target, mode, curvature, draws, tune), seeds[:chains], run.jobs):
        parts.append(part)
        progress(0.2 + 0.75 * len(parts) / chains, f"chain {len(parts)} of {chains}")
    begun = time.process_time()
    tree = _tree(target, parts, np.random.default_rng(seeds[-1]))
    spent += time.process_time() - begun + sum(part.seconds for part in parts)
    tree.attrs |= {"processor_seconds": spent, "seed": run.seed, "tune": tune}
    tree.attrs["summary"] = _summary(tree)
    progress(1.0, "done")
    return tree


def sampled_estimate(tree: Any, solution: Solution) -> Sampled:
    """Return a posterior as the estimate of its solution: `replace(solution, interval_source=…)` is predicted with its draws.

    Args:
        tree: what `posterior` returned.
        solution: of the same decisions; what was known and not drawn has its values.
    """
    draws = tree["posterior"]
    size = np.asarray(tree["posterior"]["discount"])[..., 0].size
    values_of = {"reward": solution.reward, "discount": solution.discounts, "temperature": solution.answer.temperatures}
    reward, discounts, temperatures = (
        np.asarray(draws[name]).reshape(size, -1).T if name in draws else np.repeat(np.asarray(values)[:, None], size, axis=1)
        for name, values in values_of.items()
    )
    return Sampled(solution.answer, Draws(reward, discounts, temperatures))


def _extra() -> tuple[Any, Any, Any]:
    """Return the sampler, ArviZ's statistics, and xarray; a sentence where they are missing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old ArviZ, which nutpie loads, announces its next version
            return import_module("nutpie"), import_module("arviz_stats"), import_module("xarray")
    except ImportError as error:
        raise ValueError(f"a posterior needs nutpie and ArviZ: pip install 'multihorizon[bayes]' ({error})") from error


def _target(study: Any, solver: Any, priors: Mapping[str, Any] | None, draws: int, run: Run) -> Target:
    """Return the density of a study, whether it is solved already or not."""
    problem: Any
    if isinstance(study, Solution):
        if solver is not None:
            raise ValueError("a solution has its solver: leave out solver, or give the problem")
        solver = study.solver_used(MaximumLikelihood, Population)
        problem = study.require_problem()
    elif isinstance(study, Problem):
        solver = MaximumLikelihood() if solver is None else solver
        problem = study
    else:
        raise ValueError(f"a posterior needs a solution or a problem with listed states, got {type(study).__name__}")
    people = isinstance(solver, Population)
    if not isinstance(solver, MaximumLikelihood | Population):
        raise ValueError(f"a posterior needs MaximumLikelihood or Population, got {type(solver).__name__}")
    if not solver.is_soft:
        raise ValueError(f"a posterior needs {SOFT_ALONE}, got a fit with others")
    read = Priors.read(priors, people)
    if isinstance(solver, Population):
        if solver.distribution != "normal":
            raise ValueError(f"a posterior needs a normal population, got distribution={solver.distribution!r}")
        covariates, maximum, *_ = solver.search(problem, run)
        return PeopleTarget(covariates, maximum, read)
    if not isinstance(solver.lookahead, Exponential):
        if isinstance(solver.lookahead, Depth):
            raise ValueError("a posterior needs a look-ahead that varies smoothly, got depths, which are whole numbers")
        best = solver.search(problem, run)[1]
        spread = None if best.spread is None else best.spread.value
        return Listed(fit_lookahead(best.best.point, solver.lookahead).point, read, spread, draws)
    solution = study if isinstance(study, Solution) else solve(problem, solver, seed=run.seed, progress=run.progress)
    return Listed(resume(solution), read, LikelihoodEvidence.of(solution).temperature_spread, draws)


def _mode(target: Target) -> tuple[Floats, Floats]:
    """Return the mode of the density, near enough to centre the sampler there, and the curvature at it; the fit where it has no
    mode."""
    u = target.start
    if target.at(u) is None:
        raise ValueError("the soft values must be finite at the fit: check rewards and transitions")
    if target.has_mode:

        def at(_: Ints, places: Floats) -> Local:
            there = target.at(places[0])
            if there is None:
                return Local(np.full(1, -np.inf), np.zeros((1, u.size)), np.zeros((1, u.size, u.size)))
            value, gradient = there
            return Local(np.array([value]), gradient[None], target.curvature(places[0])[None])

        # the rest is less than a twentieth of a standard deviation
        u = maximize_many(at, u[None], gain=1e-3, max_steps=100, halving=True, secant=False).places[0]
    return u, target.curvature(u)


@dataclass(frozen=True, eq=False)
class Chain:
    """Draws of u `(n,size)`, what the sampler says of each, what is reported, and processor seconds."""

    draws: Floats
    stats: dict[str, Any]
    reported: Reported
    log_likelihood: Floats
    off: float
    seconds: float


def _chain(target: Target, mode: Floats, curvature: Floats, draws: int, tune: int, seeds: np.random.SeedSequence) -> Chain:
    """Return one chain, with random numbers of its own."""
    nutpie = _extra()[0]
    begun = time.process_time()
    from_pyfunc = import_module("nutpie.compiled_pyfunc").from_pyfunc
    target, rng = (
        copy.deepcopy(target),
        np.random.default_rng(seeds),
    )  # tables grow as they are asked, and no chain may see others
    root = np.linalg.cholesky(curvature)
    back = la.solve_triangular(root, np.eye(target.size), lower=True).T

    failures: list[Exception] = []

    def density(z: Floats, **_: Any) -> tuple[float, Floats]:
        value = None
        try:
            with np.errstate(all="ignore"):  # far out numbers may overflow, and then there is no density
                value = target.at(mode + back @ z)
        except Exception as error:  # the sampler's thread would not survive it
            failures.append(error)
        return (-np.inf, np.zeros(z.size)) if value is None else (value[0], value[1] @ back)

    def first(number: int) -> Floats:
        return 2 * np.random.default_rng(number).standard_normal(target.size)

    model = from_pyfunc(
        target.size,
        lambda: density,
        lambda *_: lambda z, **_more: {"z": z},
        [np.dtype(np.float64)],
        [(target.size,)],
        ["z"],
        make_initial_point_fn=first,
    )
    seed = int(rng.integers(2**31))
    for accept in (0.97, 0.995):  # steps are short, because a reward that must only be low enough makes a steep wall
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of an old ArviZ, which keeps what nutpie found
            trace = nutpie.sample(
                model,
                draws=draws,
                tune=tune,
                chains=1,
                cores=1,
                seed=seed,
                target_accept=accept,
                progress_bar=False,
                save_warmup=False,
            )
        if failures:
            raise failures[0]
        z = np.asarray(trace["posterior"]["z"])[0]
        if len(z) < draws:  # the sampler ends early where someone interrupts it
            raise KeyboardInterrupt
        if not np.asarray(trace["sample_stats"]["diverging"]).any():
            break
    places = mode + z @ back.T
    names = {"diverging": "diverging", "depth": "tree_depth", "n_steps": "n_steps", "energy": "energy"}  # and by ArviZ's
    names |= {"logp": "lp", "mean_tree_accept": "acceptance_rate", "step_size": "step_size"}
    notes = trace["sample_stats"]
    stats = {names[name]: np.asarray(notes[name])[0] for name in names if name in notes}
    reported, logs, off = target.report(places, rng, decided=True)
    return Chain(places, stats, reported, logs, off, time.process_time() - begun)


def _tree(target: Target, parts: Sequence[Chain], rng: np.random.Generator) -> Any:
    """Return all chains as a `DataTree`, with prior draws, widths, and what was measured of them."""
    _, statistics, xarray = _extra()
    n = 4000  # prior draws: enough for the ends of central 95% CIs
    before = target.prior_draws(n, rng)
    prior = target.report(before, rng, decided=False)[0]

    def dataset(chains: Sequence[Mapping[str, tuple[tuple[str, ...], Any]]]) -> Any:
        variables = {
            name: (("chain", "draw", *dims), np.stack([chain[name][1] for chain in chains]))
            for name, (dims, _) in chains[0].items()
        }
        used = {dim for dims, _ in variables.values() for dim in dims}
        kept = {
            name: values
            for name, values in target.coordinates.items()
            if (values[0] if isinstance(values, tuple) else name) in used
        }
        draws = next(iter(variables.values()))[1].shape[1]
        return xarray.Dataset(variables, {"chain": np.arange(len(chains)), "draw": np.arange(draws), **kept})

    after = dataset([part.reported for part in parts])
    groups = {
        "/posterior": after,
        "/sample_stats": dataset([{name: ((), values) for name, values in part.stats.items()} for part in parts]),
        "/log_likelihood": dataset([{"decisions": ((target.decided,), part.log_likelihood)} for part in parts]),
        "/prior": dataset([prior]),
    }
    drawn = xarray.Dataset({"u": (("chain", "draw", "place"), np.stack([part.draws for part in parts]))})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of quantities that are known, and so do not vary
        rhat, ess = (
            np.concatenate(
                [
                    np.ravel(measured[name])
                    for each in (drawn, after)
                    for measured in (measure(each),)
                    for name in measured.data_vars
                ]
            )
            for measure in (statistics.rhat, partial(statistics.ess, method="bulk"))
        )
    free = np.arange(rhat.size) < target.size  # a chain that never moves has no numbers, and must not seem to be well
    rhat, ess = np.where(free & np.isnan(rhat), np.inf, rhat), np.where(free & np.isnan(ess), 0.0, ess)
    rhat, ess = rhat[~np.isnan(rhat)], ess[~np.isnan(ess)]
    widths, open_directions = _widths(target, parts, before, prior)
    groups["/widths"] = xarray.Dataset.from_dataframe(widths.set_index("quantity"))
    measured = {
        "max_rhat": float(rhat.max(initial=1.0)) if len(parts) > 1 else np.nan,
        "min_ess_bulk": float(ess.min(initial=np.inf)),
        "divergences": int(sum(part.stats["diverging"].sum() for part in parts)),
        "quadrature_error": max(part.off for part in parts),
        "open_directions": open_directions,
    }
    tree = xarray.DataTree.from_dict(groups)
    priors = {f"prior_{name}": words for name, words in target.told.items()}
    said = {"log_likelihood_of": target.decided, "sampler": "nutpie", "inference_library": "multihorizon"}
    tree.attrs = {**said, "inference_library_version": package_version(), **priors, **measured}
    tree.attrs["warnings"] = _warnings(tree, widths)
    return tree


def _widths(target: Target, parts: Sequence[Chain], before: Floats, prior: Reported) -> tuple[pd.DataFrame, int]:
    """Return prior against posterior for each reported number, and how many directions the decisions leave open."""
    after = np.concatenate([part.draws for part in parts])
    if target.size > 50:  # of so many numbers draws show the variances, not how they are correlated
        scale = np.diag(1 / before.std(axis=0))
    else:
        scale = la.solve_triangular(
            np.linalg.cholesky(np.cov(before, rowvar=False).reshape(2 * (target.size,))), np.eye(target.size), lower=True
        )
    standard = (after - after.mean(axis=0)) @ scale.T
    values, vectors = np.linalg.eigh(np.cov(standard, rowvar=False).reshape(2 * (target.size,)))
    left = standard @ vectors[:, values > 0.5]
    rows = []
    for name, (dims, was) in prior.items():
        now = np.concatenate([part.reported[name][1] for part in parts])
        labels = target.coordinates[dims[0]] if dims else [None]
        for i, label in enumerate(labels):
            old, new = (each[:, i] if dims else each for each in (was, now))
            if np.ptp(new) == 0 and np.ptp(old) == 0:  # it is known
                continue
            ends = [float(end) for each in (old, new) for end in np.quantile(each, (0.025, 0.975))]
            scores = ndtri((rankdata(new) - 0.5) / len(new))
            fitted = left @ np.linalg.lstsq(left, scores)[0] if left.shape[1] else np.zeros(len(new))
            ratio = (ends[3] - ends[2]) / max(ends[1] - ends[0], 1e-300)
            share = float(fitted.var() / max(scores.var(), 1e-300))
            rows.append((name if label is None else f"{name}[{label}]", *ends, ratio, share, ratio > 0.7 or share > 0.5))
    columns = ["quantity", "prior_low", "prior_high", "posterior_low", "posterior_high", "ratio", "open_share", "prior_decides"]
    return pd.DataFrame(rows, columns=columns), left.shape[1]


def _warnings(tree: Any, widths: pd.DataFrame) -> list[str]:
    """Return what a reader must know before the draws are used."""
    attributes = tree.attrs
    words = []
    if not attributes["max_rhat"] < 1.01:
        said = (
            "one chain alone has no R̂"
            if np.isnan(attributes["max_rhat"])
            else f"the largest R̂ is {decimals(attributes['max_rhat'], 3)}, not below 1.01"
        )
        words.append(f"It is not shown that the chains agree: {said}. Draw more, and more chains.")
    if attributes["min_ess_bulk"] < 400:
        words.append(
            f"The least bulk ESS is {decimals(attributes['min_ess_bulk'], 0)}, below 400: ends of intervals are not yet reliable."
        )
    if attributes["divergences"]:
        words.append(f"{attributes['divergences']} draws diverged: parts of the posterior may not have been reached.")
    if attributes["quadrature_error"] > 0.1:
        words.append(f"The integral over people is off by {significant(attributes['quadrature_error'], 2)} in the log-density.")
    decided = widths["quantity"][widths["prior_decides"].astype(bool)].tolist()
    if decided:
        words.append(f"The prior decides, and not the decisions: {first_few(decided)}.")
    return words


def _summary(tree: Any) -> str:
    """Return all of it in words and one table."""
    attributes = tree.attrs
    size = dict(tree["posterior"].sizes)
    lines = [
        f"{size['chain']} chains with {size['draw']} draws each, "
        f"{decimals(attributes['processor_seconds'], 0)} processor seconds.",
        f"Largest R̂ {decimals(attributes['max_rhat'], 3)}, least bulk ESS {decimals(attributes['min_ess_bulk'], 0)}, "
        f"{attributes['divergences']} divergences, {attributes['open_directions']} directions that the decisions leave open.",
        *(f"Prior of {name.removeprefix('prior_')}: {words}." for name, words in attributes.items() if name.startswith("prior_")),
        *attributes["warnings"],
        "",
        f"{'':30} {'prior 95%':>21} {'posterior 95%':>21} {'ratio':>6}  prior decides",
    ]
    rows = tree["widths"].to_dataset().to_dataframe()
    for name, row in list(rows.iterrows())[:60]:
        ends = [
            f"{significant(row[low]):>9} … {significant(row[high]):>9}"
            for low, high in (("prior_low", "prior_high"), ("posterior_low", "posterior_high"))
        ]
        lines.append(
            f"{name!s:30} {ends[0]} {ends[1]} {decimals(row['ratio'], 2):>6}  {'yes' if row['prior_decides'] else ''}".rstrip()
        )
    if len(rows) > 60:
        lines.append(f"… and {len(rows) - 60} more in the group widths")
    return "\n".join(lines)
