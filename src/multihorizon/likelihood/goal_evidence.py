"""How much the decisions of some experts speak for one reward: the evidence of a group.

The evidence of a group is the marginal likelihood of its decisions when its members share a reward θ and each has a discount γ,

    m = ∫ p(decisions | θ, γ, λ) p(θ, γ, λ),    θ_j f_j ~ N(0, σ²),  γ uniform,  log λ ~ N(0, 1) where temperatures are free,

with f_j the largest value of feature j. Laplace's approximation around the most likely point, with Fisher information I and the
prior's precision Λ, is

    log m = max (L + log-prior, without constants) + ½ log det Λ − ½ log det (I + Λ).

A uniform discount has Λ = 2π, which is right both where the decisions say nothing of it and where they say much. The formula is
the Schwarz criterion (BIC) in which a parameter is charged by what the decisions say of it. BIC itself charges the full price for
rewards of states that nobody visited, so with few decisions it would claim that everybody shares a goal.

The spread σ is the one of `SPREADS` under which the decisions of each expert alone are the likeliest. It also keeps every climb
finite: there is always a maximum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from multihorizon.checks import Floats
from multihorizon.likelihood.ascent import Ascent, climb, curvature
from multihorizon.likelihood.fit import OWN_DISCOUNTS
from multihorizon.likelihood.known import Temperature, read_settings
from multihorizon.likelihood.large import DENSE_REWARDS, is_large
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.parameters import Quadratic
from multihorizon.likelihood.starts import choice_probability_start, own_discounts
from multihorizon.problem import Problem

#: Standard deviations of rewards that are tried, in temperatures.
SPREADS = (0.3, 1.0, 3.0, 10.0)
#: Standard deviation of free log-temperatures.
TEMPERATURE_SPREAD = 1.0
#: The precision that stands for a uniform discount.
UNIFORM_PRECISION = 2 * np.pi
#: Discounts of all members at which climbs begin.
ALIKE = (0.1, 0.5, 0.9)
#: Climbs stop where so little is left to gain, are compared after so many steps, and are given up after so many more.
CLIMB_GAIN, COMPARED_STEPS, MOST_STEPS = 1e-3, 8, 150
#: The climb of a group is broken off early where its log-likelihood is so far below that of its members alone.
GIVEN_UP = 1000.0

Group = frozenset[int]


@dataclass(frozen=True, eq=False)
class GroupFit:
    """The most likely point of a group, the logarithm of its evidence, and whether the climb ended."""

    point: Point
    log_evidence: float
    finished: bool


class Evidence:
    """The evidence of any group of a problem's experts, computed once for each group."""

    def __init__(self, problem: Problem, temperature: Temperature) -> None:
        self.problem = problem
        free = "per_expert" if temperature == "pooled" else temperature
        self._everyone = Likelihood(problem, read_settings(problem, free, None, None, None))
        if is_large(self._everyone):
            raise ValueError(
                f"goals can be told apart for at most {DENSE_REWARDS} rewards, received {problem.n_parameters}: "
                "tie the rewards of similar states together with features"
            )
        self._fits: dict[Group, GroupFit] = {}
        self._choose_spread()

    def __call__(self, group: Group) -> GroupFit:
        """The fit of a group of experts, by their numbers."""
        if group not in self._fits:
            alone = -np.inf if len(group) == 1 else sum(self(frozenset((k,))).point.objective for k in sorted(group))
            self._fits[group] = best_fit(self.model(group), alone - GIVEN_UP)
        return self._fits[group]

    @property
    def n_fits(self) -> int:
        """How many groups were fitted."""
        return len(self._fits)

    def gain(self, first: Group, second: Group) -> float:
        """The logarithm of the Bayes factor for one reward of two groups, against one each."""
        return self(first | second).log_evidence - self(first).log_evidence - self(second).log_evidence

    def model(self, group: Group) -> Likelihood:
        """The likelihood of a group, with the prior as its penalty."""
        model = self._everyone.of_experts(sorted(group))
        return model.holding(_temperature_prior(model), self._ridge)

    def _choose_spread(self) -> None:
        """The spread of rewards under which the decisions of each expert alone are the likeliest."""
        singles = [frozenset((k,)) for k in range(self.problem.n_experts)]
        tried: list[tuple[float, float, Floats, dict[Group, GroupFit]]] = []
        for spread in SPREADS:
            self._ridge = (self._everyone.feature_sizes / (spread * self._everyone.known_temperature)) ** 2
            self._fits = {}
            total = sum(self(single).log_evidence for single in singles)
            tried.append((total, spread, self._ridge, self._fits))
        _, self.spread, self._ridge, self._fits = max(tried, key=lambda one: one[0])


def best_fit(model: Likelihood, least: float) -> GroupFit:
    """The best end of climbs from discounts that are all alike, and from each member's own best.

    A climb whose objective is still below `least` when the ends are compared is broken off there.
    """
    points = sorted(_starts(model), key=lambda point: -point.objective)[:2]
    if not points:
        raise ValueError("no starting point has finite soft values: check that the rewards' features and the transitions agree")
    ends = [climb(point, max_steps=COMPARED_STEPS, gain=CLIMB_GAIN) for point in points]
    best = max(ends, key=lambda end: end.point.objective)
    return finish(best, 0 if best.point.objective < least else MOST_STEPS)


def finish(end: Ascent, steps: int = MOST_STEPS) -> GroupFit:
    """The fit at the end of a climb that is carried on for so many steps where it has not ended."""
    if not end.finished and steps:
        end = climb(end.point, max_steps=steps, gain=CLIMB_GAIN)
    return GroupFit(end.point, _log_evidence(end.point), end.finished)


def _starts(model: Likelihood) -> Iterator[Point]:
    for discount in ALIKE:
        point = choice_probability_start(model, np.full(model.n_discounts, discount))
        if point is None:
            continue
        yield point
        apart = None if model.n_discounts == 1 else choice_probability_start(model, own_discounts(point, OWN_DISCOUNTS))
        if apart is not None:
            yield apart


def _temperature_prior(model: Likelihood) -> Quadratic | None:
    free = ~model.fixed
    free[: model.temperature_slice.start] = False
    zeros = np.zeros(model.size)
    return Quadratic(zeros, zeros, np.diag(free / TEMPERATURE_SPREAD**2)) if free.any() else None


def _log_evidence(point: Point) -> float:
    """Laplace's approximation of the logarithm of the marginal likelihood, up to a constant of the problem."""
    model = point.likelihood
    precisions = np.full(model.size, TEMPERATURE_SPREAD**-2)
    precisions[: model.n_reward] = model.ridge
    precisions[model.discount_slice] = UNIFORM_PRECISION
    matrix = curvature(point)
    discounts = np.arange(model.size)[model.discount_slice]
    matrix[discounts, discounts] += UNIFORM_PRECISION
    free = ~model.fixed
    determinant = float(np.linalg.slogdet(matrix[np.ix_(free, free)])[1])
    return point.objective + 0.5 * float(np.log(precisions[free]).sum()) - 0.5 * determinant
