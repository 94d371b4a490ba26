"""How well one reward explains the decisions of some experts: the score of a group.

The members of a group share a reward θ, and each has a discount γ. Their score is the log-likelihood L of the fit less a price
for each parameter that the decisions determine,

    score = L − c · tr[I (I + Λ)⁻¹],        c = max(1, ½ log of the decisions per determined parameter of the experts alone).

The trace counts parameters by how much the decisions say of them: I is the Fisher information, Λ the precision of a wide prior
(`θ_j f_j ~ N(0, σ²)` with f_j the largest value of feature j, a uniform γ, and `log λ ~ N(0, 1)` where temperatures are free). At
c = 1 the score estimates the log-likelihood of as many held-out decisions (Akaike). The logarithm makes the number of groups
consistent, as in Schwarz's criterion (BIC). BIC itself charges the full price for rewards of states that nobody visited, so with
few decisions it would claim that everybody shares a goal. A marginal likelihood would prefer the better determined of two groups
for a newcomer, because it takes goals to have nothing in common, while often they differ in a few states only.

The spread σ is the one of `SPREADS` with which the experts alone have the best score at c = 1. It keeps every climb finite: there
is always a maximum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from multihorizon.checks import Floats
from multihorizon.likelihood.ascent import Ascent, climb
from multihorizon.likelihood.fit import OWN_DISCOUNTS
from multihorizon.likelihood.known import Temperature, read_settings
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.metric import curvature
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
    """The most likely point of a group, how many parameters its decisions determine, and whether the climb ended."""

    point: Point
    determined: float
    finished: bool


class Scores:
    """The scores of any groups of a problem's experts, each computed once."""

    def __init__(self, problem: Problem, temperature: Temperature) -> None:
        self.problem = problem
        free = "per_expert" if temperature == "pooled" else temperature
        self._everyone = Likelihood(problem, read_settings(problem, free, None, None, None))
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

    def score(self, group: Group) -> float:
        """The score of a group."""
        fit = self(group)
        return fit.point.value - self.price * fit.determined

    def gain(self, first: Group, second: Group) -> float:
        """The score that one reward of two groups gains against one each."""
        return self.score(first | second) - self.score(first) - self.score(second)

    def model(self, group: Group) -> Likelihood:
        """The likelihood of a group, with the prior as its penalty."""
        model = self._everyone.of_experts(sorted(group))
        return model.holding(temperature_prior(model), self._ridge)

    def _choose_spread(self) -> None:
        """The spread of rewards under which the experts alone have the best score, and the price of a parameter."""
        tried: list[tuple[float, Floats, dict[Group, GroupFit]]] = []
        for spread in SPREADS:
            self._ridge = (self._everyone.feature_sizes / (spread * self._everyone.known_temperature)) ** 2
            self._fits = {}
            singles = [self(frozenset((k,))) for k in range(self.problem.n_experts)]
            tried.append((sum(fit.point.value - fit.determined for fit in singles), self._ridge, self._fits))
        _, self._ridge, self._fits = max(tried, key=lambda one: one[0])
        determined = sum(fit.determined for fit in self._fits.values())
        self.price = max(1.0, 0.5 * float(np.log(self._everyone.decisions / determined))) if determined > 0 else 1.0


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
    return GroupFit(end.point, _determined(end.point), end.finished)


def _starts(model: Likelihood) -> Iterator[Point]:
    for discount in ALIKE:
        point = choice_probability_start(model, np.full(model.n_discounts, discount))
        if point is None:
            continue
        yield point
        apart = None if model.n_discounts == 1 else choice_probability_start(model, own_discounts(point, OWN_DISCOUNTS))
        if apart is not None:
            yield apart


def temperature_prior(model: Likelihood) -> Quadratic | None:
    """The term of the objective that says `log λ ~ N(0, 1)` of free temperatures; None where there are none."""
    free, zeros = np.zeros(model.size), np.zeros(model.size)
    free[model.temperature_slice] = ~model.fixed[model.temperature_slice]
    return Quadratic(zeros, zeros, np.diag(free / TEMPERATURE_SPREAD**2)) if free.any() else None


def _determined(point: Point) -> float:
    """How many free parameters the decisions determine, each counted by the share of its precision that is not the prior's."""
    model = point.likelihood
    matrix = curvature(point)
    discounts = np.arange(model.size)[model.discount_slice]
    matrix[discounts, discounts] += UNIFORM_PRECISION
    free = np.ix_(~model.fixed, ~model.fixed)
    return float(np.trace(np.linalg.solve(matrix[free], point.information[free])))
