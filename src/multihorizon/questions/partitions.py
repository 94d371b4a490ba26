"""Partitions of experts into groups that share a reward, weighed by what their rewards explain of the decisions.

The members of a group share a reward θ, and each has a discount γ. The score of a group is the log-likelihood L of its fit less a
price for each parameter that the decisions determine,

    score = L − c · tr[I (I + Λ)⁻¹],        c = max(1, ½ log of the decisions per determined parameter of the experts alone).

The trace counts parameters by how much the decisions say of them: I is the Fisher information, Λ the precision of a wide prior
(`θ_j f_j ~ N(0, σ²)` with f_j the largest value of feature j, a uniform γ, and `log λ ~ N(0, 1)` where temperatures are free). At
c = 1 the score estimates the log-likelihood of as many held-out decisions (Akaike). The logarithm makes the number of groups
consistent, as in Schwarz's criterion (BIC). BIC itself charges the full price for rewards of states that nobody visited, so with
few decisions it would claim that everybody shares a goal. A marginal likelihood would prefer the better determined of two groups
for a newcomer, because it takes goals to have nothing in common, while often they differ in a few states only. The spread σ is
that with which the experts alone have the best score at c = 1. It keeps every climb finite: there is always a maximum.

Where decisions of an episode go together, the log-likelihood is divided by how many times as much it varies as one of independent
decisions (quasi-likelihood, as in QAIC), and decisions count as so many fewer.

A partition of the experts into groups has the sum of its groups' scores, and a probability in proportion to the exponential of
that sum (Akaike's weights). The search begins with single experts and merges the two groups whose merging promises most, as long
as any gains. From there the best partition is taken again and again, and its neighbours are tried: one expert in another group or
alone, or two groups merged.

A fit takes long, and most groups are not worth one. So each expert's log-likelihood, at the best discount and temperature, is
expanded to second order around the reward of the group in which the expert is. The sum of these parabolas and of the prior has
its maximum in closed form, which estimates the score of any group. A group is fitted unless the estimate puts its partition far
below the best. Pairs that were never fitted together say so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from scipy.special import softmax

from multihorizon.checks import Floats
from multihorizon.choice.model import Temperature, read_settings
from multihorizon.choice.tabular import Likelihood, Point
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.maximum_likelihood import choice_probability_start, own_discounts
from multihorizon.parallel import Progress, silent
from multihorizon.problem import Problem
from multihorizon.questions.shared_goal import temperature_prior
from multihorizon.words import decimals

#: The probability from which something counts as sure.
SURE = 0.95

Group = frozenset[int]
Partition = frozenset[Group]


@dataclass(frozen=True, eq=False)
class GroupFit:
    """The most likely point of a group, how many parameters its decisions determine, and whether the climb ended."""

    point: Point
    determined: float
    finished: bool


@dataclass(frozen=True, eq=False)
class Parabola:
    """An expert's log-likelihood near a reward, at the best discount and temperature: `constant + slopeᵀ θ − ½ θᵀ J θ`.

    `J = A − B C⁻¹ Bᵀ` with `rewards` A `(d,d)`, `across` B `(d,f)` and `own` C `(f,f)`, the information of the decisions in the
    rewards, in them and the f free numbers of the expert, and in these. `prior` `(f,)` is the precision of what is known of them.
    """

    constant: float
    slope: Floats
    rewards: Floats
    across: Floats
    own: Floats
    prior: Floats

    def taken(self, precision: Floats) -> Floats:
        """`B C⁻¹ Bᵀ` `(d,d)`: what is lost where one's own numbers are not known, but for this precision `(f,)`."""
        lost: Floats = self.across @ np.linalg.solve(self.own + np.diag(precision), self.across.T)
        return lost


def parabolas(fit: GroupFit) -> list[Parabola]:
    """One for each member of a group, in their order, around the group's reward."""
    point, model, d = fit.point, fit.point.likelihood, fit.point.likelihood.n_reward
    values, theta = model.person_values(point), model.reward(point.x)
    slopes, matrices = np.zeros((model.n_experts, d)), np.zeros((model.n_experts, d + 2, d + 2))
    for i, plan in enumerate(point.plans):
        rows, columns, scores = point.scores(i)
        counts = plan.persons.counts.reshape(-1, plan.lam.size)[rows]
        for n, k in enumerate(plan.persons.owners):
            slopes[k, columns[n][:-2]] += counts[:, n] @ scores[:, n, :-2]
    for k, places, block in point.own_blocks():
        places = np.array([*places[:-2], d, d + 1])
        matrices[k][np.ix_(places, places)] += block
    found = []
    for matrix, slope, value, group in zip(matrices, slopes, values, model.temperature_groups, strict=True):
        free = [d] if model.fixed[model.temperature_slice][group] else [d, d + 1]
        # Nothing is known of a discount, but an expert who does not look ahead at all would leave no matrix to solve with.
        prior = np.array([1e-6, 1.0])[: len(free)]
        near = Parabola(0.0, slope, matrix[:d, :d], matrix[:d, free], matrix[np.ix_(free, free)], prior)
        moved = (near.rewards - near.taken(prior)) @ theta
        # At the best discount and temperature nothing is left to gain by them; what a bound holds back is left out.
        found.append(replace(near, constant=float(value - slope @ theta - 0.5 * theta @ moved), slope=slope + moved))
    return found


class Scores:
    """The scores of any groups of a problem's experts, each computed once, and estimates of those that were not."""

    #: A partition that is estimated so far below the best, with a millionth of its weight, is not worth a fit.
    hopeless = 15.0

    def __init__(self, problem: Problem, temperature: Temperature, dispersion: float = 1.0) -> None:
        self.problem, self.dispersion = problem, dispersion
        free = "per_expert" if temperature == "pooled" else temperature
        self._everyone = Likelihood(problem, read_settings(problem, free, None, None, None))
        tried: list[tuple[float, Floats, dict[Group, GroupFit]]] = []
        for spread in (0.3, 1.0, 3.0, 10.0):  # of rewards, in temperatures
            self._ridge = (self._everyone.feature_sizes / (spread * self._everyone.known_temperature)) ** 2
            self._fits: dict[Group, GroupFit] = {}
            singles = [self(frozenset((k,))) for k in range(problem.n_experts)]
            tried.append((sum(fit.point.value / dispersion - fit.determined for fit in singles), self._ridge, self._fits))
        _, self._ridge, self._fits = max(tried, key=lambda one: one[0])
        determined = sum(fit.determined for fit in self._fits.values())
        counted = self._everyone.decisions / dispersion
        self.price = max(1.0, 0.5 * float(np.log(counted / determined))) if determined > 0 else 1.0
        self._near: dict[int, tuple[Group, Parabola]] = {}
        self._estimates: dict[frozenset[tuple[int, Group]], float] = {}
        self.left_out: dict[tuple[int, int], float] = {}

    def __call__(self, group: Group) -> GroupFit:
        """The fit of a group of experts, by their numbers, with the prior as its penalty."""
        if group not in self._fits:
            alone = -np.inf if len(group) == 1 else sum(self(frozenset((k,))).point.objective for k in sorted(group))
            model = self._everyone.of_experts(sorted(group))
            # A climb so far below the members alone is broken off early.
            self._fits[group] = best_fit(model.holding(temperature_prior(model), self._ridge), alone - 1000.0)
        return self._fits[group]

    def fitted(self, group: Group) -> bool:
        """Whether a group was fitted."""
        return group in self._fits

    @property
    def n_fits(self) -> int:
        """How many groups were fitted."""
        return len(self._fits)

    def score(self, group: Group) -> float:
        """The score of a group."""
        fit = self(group)
        return fit.point.value / self.dispersion - self.price * fit.determined

    def gain(self, first: Group, second: Group) -> float:
        """The score that one reward of two groups gains against one each."""
        return self.score(first | second) - self.score(first) - self.score(second)

    def look_from(self, partition: Collection[Group]) -> None:
        """Expand each expert's log-likelihood around the reward of its group in a partition."""
        for group in partition:
            if any(self._near.get(k, (None,))[0] != group for k in group):
                self._near |= {k: (group, near) for k, near in zip(sorted(group), parabolas(self(group)), strict=True)}

    def estimate(self, group: Group) -> float:
        """The score of a group, without a fit."""
        key = frozenset((k, self._near[k][0]) for k in group)
        if key not in self._estimates:
            members = [self._near[k][1] for k in sorted(group)]
            rewards, ridge = np.sum([near.rewards for near in members], axis=0), np.diag(self._ridge)
            curvature = rewards - np.sum([near.taken(near.prior) for near in members], axis=0)
            slope = np.sum([near.slope for near in members], axis=0)
            theta = np.linalg.solve(curvature + ridge, slope)
            value = sum(near.constant for near in members) + slope @ theta - 0.5 * theta @ curvature @ theta
            # Parameters count as in a fit, where 2π stands for a uniform discount: tr[I (I + Λ)⁻¹] = p − tr[Λ (I + Λ)⁻¹].
            counted = [near.prior + 2 * np.pi * (np.arange(near.prior.size) == 0) for near in members]
            lost = np.sum([near.taken(prior) for near, prior in zip(members, counted, strict=True)], axis=0)
            inverse = np.linalg.inv(rewards - lost + ridge)
            determined = theta.size - float(np.diag(inverse) @ self._ridge)
            for near, prior in zip(members, counted, strict=True):
                alone = np.linalg.inv(near.own + np.diag(prior))
                moved = near.across @ alone
                determined += prior.size - float(prior @ np.diag(alone + moved.T @ inverse @ moved))
            self._estimates[key] = float(value / self.dispersion - self.price * determined)
        return self._estimates[key]

    def promise(self, new: Collection[Group], old: Collection[Group]) -> float:
        """What some groups would gain in place of others: exactly where all were fitted, else by estimates."""
        if all(map(self.fitted, new)):
            return sum(map(self.score, new)) - sum(map(self.score, old))
        return sum(map(self.estimate, new)) - sum(map(self.estimate, old))

    def leave_out(self, new: Collection[Group], below: float) -> None:
        """Keep in mind that groups were not fitted, and how far below the best partition they were estimated."""
        for group in new:
            if not self.fitted(group):
                for pair in combinations(sorted(group), 2):
                    self.left_out[pair] = min(self.left_out.get(pair, np.inf), below)

    def why_left_out(self, first: int, second: int) -> str:
        """Why two experts were never fitted together; empty where they were."""
        pair = min(first, second), max(first, second)
        if pair not in self.left_out or any(first in group and second in group for group in self._fits):
            return ""
        return f"never fitted together: by an estimate {decimals(self.left_out[pair], 0)} below the best"

    def apart(self, first: Group, second: Group, shared: Floats) -> bool:
        """Whether it is sure that the goals of two groups differ; `shared` are the probabilities between their members."""
        sure, both = bool((shared <= 1 - SURE).all()), first | second
        if sure and not self.fitted(both) and self.promise([both], [first, second]) < -self.hopeless:
            return True
        # A fit that was broken off says that experts differ only where it is far behind.
        return sure and (self(both).finished or self.gain(first, second) < -100.0)


def best_fit(model: Likelihood, least: float) -> GroupFit:
    """The best end of climbs from discounts that are all alike, and from each member's own best.

    A climb whose objective is still below `least` when the ends are compared is broken off there.
    """
    points = sorted(_starts(model), key=lambda point: -point.objective)[:2]
    if not points:
        raise ValueError("no starting point has finite soft values: check that the rewards' features and the transitions agree")
    end = max((climb(point, max_steps=8, gain=1e-3) for point in points), key=lambda end: end.point.objective)
    if not end.finished and end.point.objective >= least:
        end = climb(end.point, max_steps=150, gain=1e-3)
    return GroupFit(end.point, determined_parameters(end.point), end.finished)


def determined_parameters(point: Point) -> float:
    """Return how many parameters the decisions determine: each counts by the share of its precision that is not the prior's."""
    model = point.likelihood
    matrix, discounts = point.curvature(), np.arange(model.size)[model.discount_slice]
    matrix[discounts, discounts] += 2 * np.pi  # which stands for a uniform discount
    free = np.ix_(~model.fixed, ~model.fixed)
    return float(np.trace(np.linalg.solve(matrix[free], point.information[free])))


def _starts(model: Likelihood) -> Iterator[Point]:
    for discount in (0.1, 0.5, 0.9):
        point = choice_probability_start(model, np.full(model.n_discounts, discount))
        if point is None:
            continue
        yield point
        apart = None if model.n_discounts == 1 else choice_probability_start(model, own_discounts(point))
        if apart is not None:
            yield apart


def weigh_partitions(
    scores: Scores, progress: Progress = silent, near: float = 7.0, max_fits: int = 400
) -> tuple[dict[Partition, float], int]:
    """The likely partitions of the experts with their probabilities, and how many near the best were not looked around.

    Partitions whose score is further than `near` below the best are not looked around: they have less than a thousandth of its
    weight. None is once more than `max_fits` groups were fitted after the merging. The neighbours of the merged partition are
    always tried, unless they are hopeless: without them its probability would be 1, however many experts there are.
    """
    best = merged(scores, progress)
    found = {best: partition_score(scores, best)}
    rest, most = [best], scores.n_fits + max_fits
    looked_around: set[Partition] = set()
    while rest and scores.n_fits <= most:
        best = max(rest, key=found.__getitem__)
        looked_around.add(best)
        scores.look_from(best)
        for close in _neighbours(best):
            if close in found:
                continue
            below = max(found.values()) - found[best] - scores.promise(close - best, best - close)
            if below > scores.hopeless and not all(map(scores.fitted, close - best)):
                scores.leave_out(close - best, below)
            else:
                found[close] = partition_score(scores, close)
        least = max(found.values()) - near
        rest = [partition for partition in found if partition not in looked_around and found[partition] >= least]
    return dict(zip(found, softmax(np.array(list(found.values()))).tolist(), strict=True)), len(rest)


def merged(scores: Scores, progress: Progress) -> Partition:
    """Merge the two groups that promise most and do gain, until no two gain: all that are not hopeless have been fitted then."""
    groups: list[Group] = [frozenset((k,)) for k in range(scores.problem.n_experts)]
    first = len(groups)
    scores.look_from(groups)
    while True:
        promises = {(one, other): scores.promise([one | other], [one, other]) for one, other in combinations(groups, 2)}
        open_ = {
            pair: p for pair, p in promises.items() if p > 0 or (p >= -scores.hopeless and not scores.fitted(pair[0] | pair[1]))
        }
        if not open_:
            break
        one, other = max(open_, key=open_.__getitem__)
        if scores.gain(one, other) > 0:
            groups = [group for group in groups if group not in (one, other)] + [one | other]
            scores.look_from(groups)
            progress(1 - len(groups) / first, f"{len(groups)} groups")
    return frozenset(groups)


def partition_score(scores: Scores, partition: Partition) -> float:
    """Return the score of a partition, the sum of its groups'."""
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


def sharing_probabilities(weights: dict[Partition, float], n_experts: int) -> Floats:
    """The probability `(K,K)` that two experts share a goal; on the diagonal that of a goal nobody shares."""
    shared = np.zeros((n_experts, n_experts))
    for partition, weight in weights.items():
        for group in map(sorted, partition):
            if len(group) == 1:
                shared[group[0], group[0]] += weight
            for i, j in combinations(group, 2):
                shared[i, j] += weight
                shared[j, i] += weight
    return shared
