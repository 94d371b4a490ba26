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

Experts in groups: the likely partitions, how probably two experts share a goal, and what stays open.

A partition of the experts into groups has the sum of its groups' scores (`goal_scores.py`), and a probability in proportion to
the exponential of that sum (Akaike's weights). The search begins with single experts and merges the two groups whose merging
gains most, as long as any does. From there the best partition is taken again and again, and its neighbours are tried: one expert
in another group or alone, or two groups merged. The search ends when no partition within `NEAR` of the best is left, or more than
`MOST_FITS` groups were fitted after the merging. The probability that two experts share a goal is the weight of the partitions
found in which they do.

Experts are put into one group if they are linked by probabilities of at least `SURE`. So a group holds experts who share its goal
beyond reasonable doubt. Whoever is alone may still share a goal with somebody: that is said.

Do all experts share one reward? A test at the fit with one reward, with simulated p-values.

Let the reward of expert k be `θ + a_k` with `a_k ~ N(0, τ²)`, in temperatures for the largest value of each feature. The
hypothesis is `a_k = 0` for all. The statistic is twice the log-likelihood that own rewards gain, less what they cost,

    D = 2 Σ_k max_(a,γ,λ) [L_k(θ + a, γ, λ) − |a|²/(2τ²)] − 2 Σ_k max_(γ,λ) L_k(θ, γ, λ),

at the θ of the fit with one reward. It takes one short climb for each expert, so its cost is near that of the fit.

*Its distribution.* Decisions are drawn from the fit, in the states in which the experts decided. As far as the likelihood is
quadratic, D follows from scores, and no draw need be fitted: with g_k the score of expert k's decisions in `(θ, γ_k, log λ_k)`
and B_k their information, one step `δ = (Σ B)⁻ Σ g` fits all again, `r_k = g_k − B_k δ` is left, and

    S = Σ_k u_kᵀ (J_k + τ⁻²)⁻¹ u_k,

where u_k and J_k are the parts of r_k and B_k in a_k that an own discount and temperature cannot explain. A discount that rests
on a bound explains nothing. The likelihood is not quadratic where decisions are few. So for some draws of each expert the climbs
are made, and D − S of one of them, at random, is added to that expert's part of every S. A χ² would be spoiled by states that
are rarely visited. The p-value is that of a Monte Carlo test, `(1 + exceedances)/(1 + simulations)`.

*Few and many.* Pooled temperatures are free here, with `log λ ~ N(0, 1)`, and rewards are held by the weak prior of `fit.py`.
With more than `CLIMBED_REWARDS` rewards climbs take long, and S stands for D everywhere.

Who shares a goal with whom, from policies or from decisions.

Policies are compared exactly (`recovery/goals.py`). Decisions are grouped by scores (`goal_groups.py`).

Whether all share one reward is tested by itself (`goal_test.py`). Goals differ only if the test rejects, and are shared only if
all are surely in one group. Else: cannot tell.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import comb
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax

from multihorizon.checks import INFORMATION_RANK_TOLERANCE, Bools, Floats, Ints, as_count, label
from multihorizon.choice.model import DENSE_REWARDS
from multihorizon.choice.parameters import Quadratic, Temperature, check_temperature, read_settings
from multihorizon.choice.tabular import Likelihood, Point, decide
from multihorizon.driver import solve
from multihorizon.estimate.ascent import climb
from multihorizon.estimate.maximum_likelihood import MaximumLikelihood, resume
from multihorizon.estimate.search import OWN_DISCOUNTS, WEAK_PRIOR, choice_probability_start, own_discounts
from multihorizon.exact.equations import in_order_of_content
from multihorizon.exact.goals import CANNOT_TELL, DIFFER, SHARE, Goals, goals_frame
from multihorizon.exact.goals import goals as goals_of_policies
from multihorizon.exact.identify import Temperature as PolicyTemperature
from multihorizon.files import for_json
from multihorizon.numerics.newton import Ascent, resting
from multihorizon.parallel import Progress, in_parallel, part_of, silent
from multihorizon.problem import Problem, require_finite
from multihorizon.solution import Solution, Status

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


def finish(end: Ascent[Point], steps: int = MOST_STEPS) -> GroupFit:
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
    matrix = point.curvature()
    discounts = np.arange(model.size)[model.discount_slice]
    matrix[discounts, discounts] += UNIFORM_PRECISION
    free = np.ix_(~model.fixed, ~model.fixed)
    return float(np.trace(np.linalg.solve(matrix[free], point.information[free])))


#: The probability from which something counts as sure.
SURE = 0.95
#: Partitions whose score is further below the best are not looked around: less than a thousandth of its weight.
NEAR = 7.0
#: Partitions are no longer looked around once more groups than this were fitted after the merging. The neighbours of the merged
#: partition are always tried: without them its probability would be 1, however many experts there are.
MOST_FITS = 400
#: A fit that was broken off says that experts differ only where it is behind by more than this.
HOPELESS = 100.0

Partition = frozenset[Group]


def weigh_partitions(scores: Scores, progress: Progress = silent) -> dict[Partition, float]:
    """The likely partitions of the experts with their probabilities."""
    best = _merged(scores, progress)
    found = {best: _score(scores, best)}
    looked_around: set[Partition] = set()
    most = scores.n_fits + MOST_FITS
    while found[best] >= max(found.values()) - NEAR and scores.n_fits <= most:
        looked_around.add(best)
        found |= {near: _score(scores, near) for near in _neighbours(best) if near not in found}
        rest = [partition for partition in found if partition not in looked_around]
        if not rest:
            break
        best = max(rest, key=found.__getitem__)
    return dict(zip(found, softmax(np.array(list(found.values()))).tolist(), strict=True))


def sharing(weights: dict[Partition, float], n_experts: int) -> Floats:
    """The probability `(K,K)` that two experts share a goal; on the diagonal that of a goal nobody shares."""
    shared = np.zeros((n_experts, n_experts))
    for partition, weight in weights.items():
        for group in partition:
            members = sorted(group)
            if len(members) == 1:
                shared[members[0], members[0]] += weight
            for i, j in combinations(members, 2):
                shared[i, j] += weight
                shared[j, i] += weight
    return shared


def sure_groups(shared: Floats) -> list[Group]:
    """Experts who are linked by sure probabilities."""
    number, label = connected_components((shared >= SURE) & ~np.eye(len(shared), dtype=np.bool_), directed=False)
    return [frozenset(np.flatnonzero(label == g).tolist()) for g in range(number)]


def memberships(shared: Floats, groups: Sequence[Group]) -> Floats:
    """The probability `(K,G)` that each expert shares the goal of each group: the mean over its other members.

    For an expert who is a group of one, it is the probability that nobody shares their goal.
    """
    found = np.zeros((len(shared), len(groups)))
    for k in range(len(shared)):
        for g, group in enumerate(groups):
            found[k, g] = shared[k, sorted(group - {k}) or [k]].mean()
    return found


def undecided(scores: Scores, shared: Floats, groups: Sequence[Group]) -> list[tuple[int, int]]:
    """Pairs of groups, by number, for which it is not sure that their goals differ."""
    return [(g, h) for g, h in combinations(range(len(groups)), 2) if not _apart(scores, shared, groups[g], groups[h])]


def _apart(scores: Scores, shared: Floats, first: Group, second: Group) -> bool:
    sure = bool((shared[np.ix_(sorted(first), sorted(second))] <= 1 - SURE).all())
    return sure and (scores(first | second).finished or scores.gain(first, second) < -HOPELESS)


def _merged(scores: Scores, progress: Progress) -> Partition:
    """Merge the two groups that gain most, until no two gain."""
    groups: list[Group] = [frozenset((k,)) for k in range(scores.problem.n_experts)]
    first = len(groups)
    while len(groups) > 1:
        gains = {pair: scores.gain(*pair) for pair in combinations(groups, 2)}
        one, other = max(gains, key=gains.__getitem__)
        if gains[one, other] <= 0:
            break
        groups = [group for group in groups if group not in (one, other)] + [one | other]
        progress(1 - len(groups) / first, f"{len(groups)} groups")
    return frozenset(groups)


def _score(scores: Scores, partition: Partition) -> float:
    return sum(scores.score(group) for group in sorted(partition, key=sorted))


def _neighbours(partition: Partition) -> Iterator[Partition]:
    for first, second in combinations(sorted(partition, key=sorted), 2):
        yield partition - {first, second} | {first | second}
    for group in partition:
        for expert in group:
            rest = group - {expert}
            kept = partition - {group} | ({rest} if rest else set())
            if rest:
                yield kept | {frozenset((expert,))}
            for other in kept - {rest}:
                yield kept - {other} | {other | {expert}}


#: τ, the standard deviation of experts' own rewards, in temperatures.
SPREAD = 3.0
#: How many tables are drawn unless a caller says otherwise, and from what p-value on one reward is rejected.
SIMULATIONS, TEST_LEVEL = 999, 0.05
#: Up to this many rewards experts are climbed for, in so many draws of all experts together, and at least two of each.
CLIMBED_REWARDS, CLIMBED_DRAWS = 100, 100


@dataclass(frozen=True)
class SharedGoalTest:
    """A test that all experts share one reward.

    Attributes:
        statistic: by how many standard deviations own rewards gain more than they would if there were one reward.
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


def shared_goal_test(
    solution: Solution, simulations: int = SIMULATIONS, seed: int = 0, progress: Progress = silent, jobs: int = 1
) -> SharedGoalTest:
    """Test that all experts of a maximum-likelihood solution share one reward; `jobs` processes share the experts."""
    reason = _untestable(solution)
    point = None if reason else _fit_with_one_reward(solution)
    if point is None:
        return SharedGoalTest(np.nan, np.nan, 0, reason or "the fit with one reward did not end")
    experts = _drawn(point, simulations, seed)
    free = ~point.likelihood.fixed & ~resting(point)
    step = _common_step(experts, free)
    quadratic = [expert.gains(expert.scores - step[:, expert.places] @ expert.information, free) for expert in experts]
    if np.mean(quadratic) < 1e-6:  # degrees of freedom, apart from rounding
        return SharedGoalTest(np.nan, np.nan, 0, "no two experts made decisions that one reward would have to explain together")
    total = np.sum(quadratic, axis=0)
    if point.likelihood.n_reward <= CLIMBED_REWARDS:
        total = np.zeros(1 + simulations)
        climbed = in_parallel(partial(_climbed_gains, point.likelihood, point.x), experts, jobs)
        for number, (expert, parts, own) in enumerate(zip(experts, quadratic, climbed, strict=True), start=1):
            beyond = own[1:] - expert.gains(expert.scores, free)[1 : own.size]
            total += np.concatenate([own[:1], parts[1:] + beyond[expert.chosen]])
            progress(number / len(experts), f"rewards of their own: {number} of {len(experts)} experts")
    deviation = (total[0] - total[1:].mean()) / max(float(total[1:].std()), 1e-12)
    exceeded = int((total[1:] >= total[0] - 1e-9 * abs(total[0])).sum())
    return SharedGoalTest(float(deviation), (1 + exceeded) / (1 + simulations), simulations)


def _untestable(solution: Solution) -> str:
    """Why there is nothing to test, or no way to; empty where there is one."""
    if len(solution.experts) == 1:
        return "there is one expert alone"
    if solution.status == Status.NOT_CONVERGED:
        return "the fit did not end"
    model = resume(solution).likelihood
    if model.settings.reward is not None:
        return "the reward was given"
    if model.is_large:
        return f"that needs at most {DENSE_REWARDS} rewards, and there are {model.n_reward:,}"
    return ""


def _fit_with_one_reward(solution: Solution) -> Point | None:
    """The best point under the hypothesis, with the penalties of the test; None where the climb from the answer did not end."""
    point = resume(solution)
    model = point.likelihood
    settings = replace(model.settings, moves=False)  # estimated transitions stay as they were fitted under the hypothesis
    if solution.options.get("temperature") == "pooled":
        settings = replace(settings, temperatures=np.full(model.problem.n_experts, np.nan), temperature_groups=None)
    tested = Likelihood(point.problem, settings)
    tested = tested.holding(temperature_prior(tested), (WEAK_PRIOR * tested.known_temperature / tested.feature_sizes) ** -2.0)
    temperatures = [model.temperatures(point.x)[tested.temperature_groups == g][0] for g in range(tested.n_temperatures)]
    start = tested.at(tested.pack(model.reward(point.x), point.x[model.discount_slice], np.array(temperatures)), point)
    end = None if start is None else climb(start, gain=1e-3)
    return end.point if end is not None and end.finished else None


@dataclass(frozen=True, eq=False)
class _Drawn:
    """The decisions of one expert, those that were made and those drawn.

    Attributes:
        number: of the expert.
        places: the positions in x on which the choices depend.
        information: `(q,q)`, with the precision of what is known of the temperature.
        scores: `(1+simulations,q)`, of the decisions that were made first.
        own: the precision `(q,)` of a_k; 0 for what is no reward.
        tables: the first few draws, for each of the expert's tasks `(m,S,A)`.
        chosen: which of them stands for each simulation.
    """

    number: int
    places: Ints
    information: Floats
    scores: Floats
    own: Floats
    tables: list[Floats]
    chosen: Ints

    def gains(self, scores: Floats, free: Bools) -> Floats:
        """What a_k gains `(1+simulations,)` as far as the likelihood is quadratic, from scores `(1+simulations,q)`."""
        reward, other = self.own > 0, (self.own == 0) & free[self.places]
        explained = self.information[np.ix_(reward, other)] @ np.linalg.pinv(
            self.information[np.ix_(other, other)], hermitian=True
        )
        unit = self.own[reward] ** -0.5
        left = self.information[np.ix_(reward, reward)] - explained @ self.information[np.ix_(other, reward)]
        values, vectors = np.linalg.eigh(left * unit[:, None] * unit)
        squares = (((scores[:, reward] - scores[:, other] @ explained.T) * unit) @ vectors) ** 2
        found: Floats = squares @ (1 / (1 + np.maximum(values, 0.0)))
        return found


def _drawn(point: Point, simulations: int, seed: int) -> list[_Drawn]:
    """The experts, drawn in the order of their likelihoods, whatever their names and places are."""
    model = point.likelihood
    batches, number = list(zip(model.batches, point.plans, strict=True)), model.problem.n_experts
    fits = np.zeros(number)
    for batch, plan in batches:
        np.add.at(fits, batch.owners, (batch.counts * plan.finite_log).sum(axis=(0, 1)))
    order = np.argsort(np.argsort(np.round(fits, 6), kind="stable"))
    streams = [np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(number)]
    climbed = min(max(2, CLIMBED_DRAWS // number), simulations)
    parts: dict[int, list[tuple[Ints, Floats, Floats]]] = {k: [] for k in range(number)}
    tables: dict[int, list[tuple[int, Floats]]] = {k: [] for k in range(number)}
    for b, (batch, plan) in enumerate(batches):
        rows, columns, slopes = point.scores(b)
        state, action = rows % batch.mdp.n_states, rows // batch.mdp.n_states
        for i, (k, places) in enumerate(zip(batch.owners.tolist(), columns, strict=True)):
            seen = np.flatnonzero(batch.visits[:, i] > 0)
            visits, policy = batch.visits[seen, i], plan.policy[:, seen, i].T
            made = batch.counts[:, seen, i].T
            counts = np.concatenate([made[None], decide(visits, policy, plan.values[seen, i], streams[order[k]], simulations)])
            own = np.isin(state, seen)
            cells = np.searchsorted(seen, state[own]), action[own]
            expected, slope = visits[:, None] * policy, slopes[own, i]
            scores = (counts - expected)[:, *cells] @ slope
            parts[k].append((places, (slope * expected[cells][:, None]).T @ slope, scores))
            whole = np.zeros((climbed, *batch.counts.shape[1::-1]))
            whole[:, seen] = counts[1 : 1 + climbed]
            tables[k].append((int(batch.positions[i]), whole))
    precisions = np.zeros(model.size)
    precisions[: model.n_reward] = (model.feature_sizes / (SPREAD * model.known_temperature)) ** 2
    found = []
    for k in range(number):
        places = np.unique(np.concatenate([part[0] for part in parts[k]]))
        information, scores = np.zeros((places.size, places.size)), np.zeros((1 + simulations, places.size))
        for own_places, block, own_scores in parts[k]:
            at = np.searchsorted(places, own_places)
            information[np.ix_(at, at)] += block
            scores[:, at] += own_scores
        if model.penalty is not None:
            information += np.diag(model.penalty.matrix.diagonal()[places])
        ordered = [table for _, table in sorted(tables[k], key=lambda entry: entry[0])]
        chosen = streams[order[k]].integers(climbed, size=simulations)
        found.append(_Drawn(k, places, information, scores, precisions[places], ordered, chosen))
    return found


def _common_step(experts: list[_Drawn], free: Bools) -> Floats:
    """δ `(1+simulations,p)`, the step of all free parameters under the hypothesis, from the scores of each table."""
    information, scores = np.zeros((free.size, free.size)), np.zeros((len(experts[0].scores), free.size))
    for expert in experts:
        information[np.ix_(expert.places, expert.places)] += expert.information
        scores[:, expert.places] += expert.scores
    sizes = np.sqrt(np.diag(information))
    unit = np.where(free & (sizes > 0), 1 / np.where(sizes > 0, sizes, 1.0), 0.0)
    values, vectors = np.linalg.eigh(information * unit[:, None] * unit)
    kept = values > INFORMATION_RANK_TOLERANCE * values[-1]
    directions = vectors[:, kept] * unit[:, None]
    step: Floats = (scores @ directions / values[kept]) @ directions.T
    return step


def _climbed_gains(model: Likelihood, together: Floats, expert: _Drawn) -> Floats:
    """What a_k gains over the point x of all experts, by climbs, in the decisions that were made and in the first draws."""
    k, d = expert.number, model.n_reward
    alone = model.of_experts([k])
    x = np.concatenate([together[:d], model.discounts(together)[[k]], np.log(model.temperatures(together)[[k]])])
    precisions = np.concatenate([(model.feature_sizes / (SPREAD * model.known_temperature)) ** 2, np.zeros(2)])
    precisions += 0.0 if (prior := temperature_prior(alone)) is None else prior.matrix.diagonal()
    centre, rewards = np.append(x[:-1], 0.0), np.arange(x.size) < d
    found = []
    for counts in (None, *zip(*expert.tables, strict=True)):
        drawn = alone if counts is None else alone.with_counts(counts)
        # A drawn expert has the temperature of the fit, so that is what is known of it.
        held = drawn.holding(Quadratic(centre if counts is None else x, np.zeros(x.size), np.diag(precisions)))
        start = held.at(x)
        assert start is not None
        shared = climb(start, rewards, gain=1e-3).point
        found.append(2 * (climb(shared, max_steps=50, gain=1e-2).point.objective - shared.objective))
    return np.array(found)


#: With fewer simulations the test can never reject.
LEAST_SIMULATIONS = 19


@dataclass(frozen=True, eq=False)
class GoalEstimates:
    """Experts in groups that share a reward, as far as their decisions tell.

    Attributes:
        experts: all names, in the order of the problem.
        groups: tuples of names; whoever does not surely belong to a group is a group of one.
        solutions: of `MaximumLikelihood`, one for each group, with its intervals and tests.
        test: the test that all share one reward.
        verdict: "share", "differ" or "cannot tell": do all share one reward?
        memberships: the probability `(K,G)` that each expert shares the goal of each group; for an expert who is a group of one,
            that nobody shares it.
        sharing: the probability `(K,K)` that two experts share a goal; on the diagonal that nobody shares the expert's goal.
        undecided: pairs of groups, by number, of which it cannot be told whether they share a reward.
    """

    experts: tuple[str, ...]
    groups: tuple[tuple[str, ...], ...]
    solutions: tuple[Solution, ...]
    test: SharedGoalTest
    verdict: str
    memberships: Floats
    sharing: Floats
    undecided: tuple[tuple[int, int], ...]

    @property
    def discounts(self) -> Floats:
        """The discount of each expert `(K,)`; NaN where it is not identified."""
        found = {name: gamma for solution in self.solutions for name, gamma in _told_discounts(solution).items()}
        return np.array([found[name] for name in self.experts])

    @property
    def ungrouped(self) -> tuple[str, ...]:
        """The experts of whom it cannot be told with whom they share a goal, if with anybody."""
        open_groups = {g for pair in self.undecided for g in pair}
        return tuple(group[0] for g, group in enumerate(self.groups) if len(group) == 1 and g in open_groups)

    def summary(self) -> str:
        """The finding in plain words."""
        lines = [self.headline()]
        for number, (group, solution) in enumerate(zip(self.groups, self.solutions, strict=True), start=1):
            lines.append(f"Goal {number}: {', '.join(group)}. {_describe(solution)}")
        if len(self.undecided) > 1 and len(self.undecided) == comb(len(self.groups), 2):
            return "\n".join([*lines, "Any of these goals may be the same."])
        lines += [f"It cannot be told whether goals {g + 1} and {h + 1} are the same." for g, h in self.undecided]
        return "\n".join(lines)

    def headline(self) -> str:
        """The verdict in a sentence."""
        if len(self.experts) == 1:
            return "One expert alone shares a goal with nobody, and their discount cannot be told."
        p = self.test.words
        if self.verdict == SHARE:
            return f"The decisions speak for one reward that all experts share (test of one reward: {p})."
        if self.verdict == DIFFER:
            return f"The experts do not all share one reward ({p}). The links between them make {len(self.groups)} groups."
        if np.isnan(self.test.p_value):
            return f"Whether the experts share one reward was not tested: {self.test.reason}."
        if len(self.groups) == 1:
            return f"One reward is likelier than several, but explains the decisions less well than it should ({p})."
        return f"Whether the experts share one reward cannot be told from these decisions ({p})."

    def to_frame(self) -> pd.DataFrame:
        """One row per expert: the number of the goal, from 1, and the discount, NaN where it is not identified."""
        return goals_frame(self.experts, self.groups, self.discounts)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings, lists and dicts, as JSON takes them; None where nothing is known."""
        content = {
            "experts": self.experts,
            "groups": self.groups,
            "verdict": self.verdict,
            "test": vars(self.test),
            "discounts": self.discounts,
            "memberships": self.memberships,
            "sharing": self.sharing,
            "undecided": self.undecided,
            "solutions": [_plain(solution) for solution in self.solutions],
        }
        return cast("dict[str, Any]", for_json(content))


def goals(
    problem: Problem,
    temperature: Temperature = 1.0,
    tolerance: float = 1e-8,
    progress: Progress = silent,
    simulations: int = SIMULATIONS,
    seed: int = 0,
    jobs: int = 1,
) -> Goals | GoalEstimates:
    """Group experts by the reward they share, where rewards and discounts may both differ.

    Args:
        problem: experts who are all given as policies without zero entries, or all as demonstrations; one task or several, with
            or without features.
        temperature: for policies a number or "per_expert", for demonstrations as in `MaximumLikelihood`. With "per_expert" and
            "pooled", experts share a goal if their rewards are the same up to a factor.
        tolerance: how large the errors in policies may be, as in `identify`; not used for demonstrations.
        progress: called as the work goes on.
        simulations: for demonstrations how many tables are drawn to test whether all share one reward.
        seed: fixes the simulations.
        jobs: processes that share the work of the test; -1 is all cores. The digits do not depend on it.

    Returns:
        For policies `Goals`, for demonstrations `GoalEstimates`.

    Raises:
        ValueError: on malformed options and experts, and where policies and demonstrations are mixed.

    Example:
        >>> import numpy as np
        >>> from multihorizon import Demonstrations, Problem, domains, soft_plan
        >>> mdp = domains.random_mdp(6, 3, seed=0)
        >>> first, second = 2 * np.random.default_rng(0).normal(size=(2, 6))
        >>> policies = [soft_plan(mdp, r, g).policy for r, g in ((first, 0.2), (second, 0.5), (first, 0.9))]
        >>> table = Demonstrations.simulate(mdp, policies, episodes=20, max_steps=100, names=["ann", "ben", "cem"])
        >>> goals(Problem(mdp, table)).groups
        (('ann', 'cem'), ('ben',))
    """
    if any(expert.counts is None for expert in require_finite(problem).experts):
        return goals_of_policies(problem, cast(PolicyTemperature, temperature), tolerance, progress)
    return goals_of_decisions(problem, temperature, simulations, seed, progress, jobs)


def goals_of_decisions(
    problem: Problem,
    temperature: Temperature = 1.0,
    simulations: int = SIMULATIONS,
    seed: int = 0,
    progress: Progress = silent,
    jobs: int = 1,
) -> GoalEstimates:
    """Group experts, given as demonstrations, by the reward they share; arguments as in `goals`."""
    check_temperature(temperature)
    as_count(simulations, "simulations", least=LEAST_SIMULATIONS)
    if problem.n_parameters > DENSE_REWARDS:
        raise ValueError(
            f"goals can be told apart for at most {DENSE_REWARDS} rewards, received {problem.n_parameters}: "
            "tie the rewards of similar states together with features"
        )
    together = solve(problem, MaximumLikelihood(temperature), seed, part_of(progress, 0.0, 0.1))
    test = shared_goal_test(together, simulations, seed, part_of(progress, 0.1, 0.2), jobs)
    return group_experts(together, test, temperature, seed, part_of(progress, 0.2, 1.0))


def group_experts(
    together: Solution, test: SharedGoalTest, temperature: Temperature, seed: int, progress: Progress = silent
) -> GoalEstimates:
    """Group the experts of a fit with one reward, where the test that all share it is done."""
    problem = together.require_problem()
    scores = Scores(in_order_of_content(problem), temperature)
    shared = sharing(weigh_partitions(scores, part_of(progress, 0.0, 0.9)), problem.n_experts)
    names, order = scores.problem.names, problem.names
    listed = sorted(sure_groups(shared), key=lambda group: min(order.index(names[k]) for k in group))
    open_pairs = undecided(scores, shared, listed) if test.rejected else [(g, h) for h in range(len(listed)) for g in range(h)]
    named = [tuple(sorted((names[k] for k in group), key=order.index)) for group in listed]
    solutions = [together] if len(named) == 1 else [_solve_group(problem, group, temperature, seed) for group in named]
    progress(1.0, f"{len(named)} groups")
    place = [names.index(name) for name in order]
    return GoalEstimates(
        experts=order,
        groups=tuple(named),
        solutions=tuple(solutions),
        test=test,
        verdict=_verdict(len(named), open_pairs, test),
        memberships=memberships(shared, listed)[place],
        sharing=shared[np.ix_(place, place)],
        undecided=tuple(sorted(open_pairs)),
    )


def _verdict(n_groups: int, open_pairs: Sequence[tuple[int, int]], test: SharedGoalTest) -> str:
    if n_groups == 1:
        return SHARE if test.p_value > TEST_LEVEL else CANNOT_TELL
    return DIFFER if test.rejected and len(open_pairs) < comb(n_groups, 2) else CANNOT_TELL


def _solve_group(problem: Problem, group: Sequence[str], temperature: Temperature, seed: int) -> Solution:
    members = problem.with_experts(expert for expert in problem.experts if expert.name in group)
    if isinstance(temperature, Mapping):
        temperature = {key: value for key, value in temperature.items() if label(key, "the name of an expert") in group}
    return solve(members, MaximumLikelihood(temperature), seed)


def _told_discounts(solution: Solution) -> dict[str, float]:
    """Each member's discount, NaN where it is not identified or the fit did not converge."""
    told = zip(solution.experts, solution.discounts, solution.evidence["identified"], strict=True)
    finished = solution.status != Status.NOT_CONVERGED
    return {name: float(gamma) if known and finished else np.nan for name, gamma, known in told}


def _describe(solution: Solution) -> str:
    told = list(_told_discounts(solution).values())
    if solution.status == Status.NOT_CONVERGED:
        return "The fit of this group did not converge, so no discount is given."
    if len(told) == 1 and np.isnan(told[0]):
        return "Alone, so the discount cannot be told."
    listed = ", ".join("not identified" if np.isnan(gamma) else f"{gamma:.3f}" for gamma in told)
    return f"Discounts {listed}."


def _plain(solution: Solution) -> dict[str, Any]:
    return {
        "experts": list(solution.experts),
        "status": str(solution.status),
        "message": solution.message,
        "discounts": list(_told_discounts(solution).values()),
        "intervals": solution.confidence_intervals(),
        "reward": solution.reward,
        "temperatures": solution.temperature,
    }
