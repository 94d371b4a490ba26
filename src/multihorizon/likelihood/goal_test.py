"""Do all experts share one reward? A score test at the fit with one reward, with simulated p-values.

Let the reward of expert k be `θ + a_k`, and the hypothesis `a_k = 0` for all. At the fit under the hypothesis, g_k is the score
of expert k's decisions in `(θ, γ_k, log λ_k)` and B_k their Fisher information. What one more step of the fit would explain is
taken out, `r_k = g_k − B_k δ` with `δ = (Σ B)⁻ Σ g`. So it does not matter where exactly the fit stopped, nor what penalty held
it (Neyman's C(α) test). An own discount and temperature can do some of what a_k does: u_k and J_k are score and information of
a_k without that part. A discount that rests on a bound can do nothing: it stays there, as if it were known. With
`a_k ~ N(0, τ²)`, in temperatures for the largest value of each feature, the statistic is

    S_τ = Σ_k u_kᵀ (J_k + τ⁻²)⁻¹ u_k.

A small τ finds differences of many experts that are each too small to be seen; with a large τ it is the likelihood-ratio
statistic, as far as the likelihood is quadratic. Each S_τ is measured in its standard deviations, and the largest counts.

A χ² is not relied on: rewards of states that are rarely visited would spoil it. Decisions are drawn from the fit, in the states
in which the experts decided. Their statistics follow from their scores, with the same B. So no draw is fitted, and a thousand of
them cost less than one fit. The p-value is that of a Monte Carlo test, `(1 + exceedances)/(1 + simulations)`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.likelihood.ascent import resting
from multihorizon.likelihood.bootstrap import decide
from multihorizon.likelihood.large import DENSE_REWARDS, is_large
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.solution import Solution, Status
from multihorizon.tolerances import INFORMATION_RANK_TOLERANCE

#: Standard deviations of the experts' own rewards for which the test is made, in temperatures.
SPREADS = np.array([0.1, 1.0, 10.0])
#: How many tables are drawn unless a caller says otherwise, and from what p-value on one reward is rejected.
SIMULATIONS, TEST_LEVEL = 999, 0.05


@dataclass(frozen=True)
class SharedGoalTest:
    """A test that all experts share one reward.

    Attributes:
        statistic: by how many standard deviations the experts' scores differ more than one reward explains.
        p_value: of the Monte Carlo test; NaN where it was not made.
        simulations: how many tables were drawn.
        reason: why the test was not made; empty where it was.
    """

    statistic: float
    p_value: float
    simulations: int
    reason: str = ""

    @property
    def rejected(self) -> bool:
        """Whether the decisions contradict one reward for all."""
        return self.p_value <= TEST_LEVEL

    @property
    def words(self) -> str:
        """The p-value as it stands in a sentence: the smallest that so many simulations can give is only a bound."""
        least = self.p_value * (self.simulations + 1) < 1.5
        return f"p {'≤' if least else '='} {self.p_value:.2g}"


def shared_goal_test(solution: Solution, simulations: int = SIMULATIONS, seed: int = 0) -> SharedGoalTest:
    """Test that all experts of a maximum-likelihood solution share one reward."""
    reason = _untestable(solution)
    if reason:
        return SharedGoalTest(np.nan, np.nan, 0, reason)
    found = _statistics(_with_own_temperatures(solution), simulations, seed)
    if found[:, -1].mean() < 1e-6:  # degrees of freedom, apart from rounding
        return SharedGoalTest(np.nan, np.nan, 0, "no two experts made decisions that one reward would have to explain together")
    largest = ((found - found.mean(axis=0)) / np.maximum(found.std(axis=0), 1e-12)).max(axis=1)
    exceeded = int((largest[1:] >= largest[0] - 1e-9).sum())
    return SharedGoalTest(float(largest[0]), (1 + exceeded) / (1 + simulations), simulations)


def _untestable(solution: Solution) -> str:
    """Why there is nothing to test, or no way to; empty where there is one."""
    if len(solution.experts) == 1:
        return "there is one expert alone"
    if solution.status == Status.NOT_CONVERGED:
        return "the fit did not end"
    model = resume(solution).likelihood
    if model.settings.reward is not None:
        return "the reward was given"
    if is_large(model):
        return f"that needs at most {DENSE_REWARDS} rewards, and there are {model.n_reward:,}"
    return ""


def _with_own_temperatures(solution: Solution) -> Point:
    """The model at the answer; where temperatures were pooled, each expert is free to have their own."""
    point = resume(solution)
    model = point.likelihood
    if solution.options.get("temperature") != "pooled":
        return point
    own = replace(model.settings, temperatures=np.full(model.problem.n_experts, np.nan), temperature_groups=None)
    freer = Likelihood(model.problem, own)
    apart = freer.at(freer.pack(model.reward(point.x), point.x[model.discount_slice], model.temperatures(point.x)), point)
    assert apart is not None
    return apart


@dataclass(frozen=True, eq=False)
class _Scores:
    """Of one expert in one task: the places in x, the information `(q,q)`, and scores `(1+simulations,q)`, the observed first."""

    owner: int
    places: Ints
    information: Floats
    scores: Floats


def _statistics(point: Point, simulations: int, seed: int) -> Floats:
    """S `(1+simulations,spreads)` of the decisions that were made, and of those drawn."""
    model = point.likelihood
    d, free = model.n_reward, ~model.fixed & ~resting(point)
    parts = _scores(point, simulations, seed)
    step = _common_step(parts, free)
    scale = model.known_temperature / model.feature_sizes
    total = np.zeros((1 + simulations, SPREADS.size))
    for k in range(model.problem.n_experts):
        own = [part for part in parts if part.owner == k]
        places = np.unique(np.concatenate([part.places for part in own]))
        information, left = np.zeros((places.size, places.size)), np.zeros((1 + simulations, places.size))
        for part in own:
            at = np.searchsorted(places, part.places)
            information[np.ix_(at, at)] += part.information
            left[:, at] += part.scores - step[:, part.places] @ part.information
        reward, other = places < d, (places >= d) & free[places]
        explained = information[np.ix_(reward, other)] @ np.linalg.pinv(information[np.ix_(other, other)], hermitian=True)
        unit = scale[places[reward]]
        matrix = (information[np.ix_(reward, reward)] - explained @ information[np.ix_(other, reward)]) * unit[:, None] * unit
        values, vectors = np.linalg.eigh(matrix)
        squares = (((left[:, reward] - left[:, other] @ explained.T) * unit) @ vectors) ** 2
        total += squares @ (1 / (np.maximum(values, 0.0)[:, None] + SPREADS**-2.0))
    return total


def _common_step(parts: list[_Scores], free: Bools) -> Floats:
    """δ `(1+simulations,p)`, the step of all free parameters under the hypothesis, from the observed and the drawn scores."""
    information, scores = np.zeros((free.size, free.size)), np.zeros((len(parts[0].scores), free.size))
    for part in parts:
        information[np.ix_(part.places, part.places)] += part.information
        scores[:, part.places] += part.scores
    sizes = np.sqrt(np.diag(information))
    unit = np.where(free & (sizes > 0), 1 / np.where(sizes > 0, sizes, 1.0), 0.0)
    values, vectors = np.linalg.eigh(information * unit[:, None] * unit)
    kept = values > INFORMATION_RANK_TOLERANCE * values[-1]
    directions = vectors[:, kept] * unit[:, None]
    step: Floats = (scores @ directions / values[kept]) @ directions.T
    return step


def _scores(point: Point, simulations: int, seed: int) -> list[_Scores]:
    """The scores of all experts; experts are drawn in the order of their likelihoods, whatever their names and places are."""
    batches = list(zip(point.likelihood.batches, point.plans, strict=True))
    fits = np.concatenate([(batch.counts * plan.finite_log).sum(axis=(0, 1)) for batch, plan in batches])
    seeds = np.array(np.random.SeedSequence(seed).spawn(fits.size))[np.argsort(np.argsort(np.round(fits, 6), kind="stable"))]
    found: list[_Scores] = []
    for b, (batch, plan) in enumerate(batches):
        rows, columns, slopes = point.scores(b)
        state, action = rows % batch.mdp.n_states, rows // batch.mdp.n_states
        for i, places in enumerate(columns):
            seen = np.flatnonzero(batch.visits[:, i] > 0)
            visits, policy = batch.visits[seen, i], plan.policy[:, seen, i].T
            rng = np.random.default_rng(seeds[len(found)])
            counts = np.concatenate(
                [batch.counts[:, seen, i].T[None], decide(visits, policy, plan.values[seen, i], rng, simulations)]
            )
            own = np.isin(state, seen)
            cells = np.searchsorted(seen, state[own]), action[own]
            expected, slope = visits[:, None] * policy, slopes[own, i]
            information = (slope * expected[cells][:, None]).T @ slope
            found.append(_Scores(int(batch.owners[i]), places, information, (counts - expected)[:, *cells] @ slope))
    return found
