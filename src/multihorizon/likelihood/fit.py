"""The search for the most likely answer: starts, climbs, what to do when rewards run away, and pooled temperatures.

The likelihood is not concave in (θ, Γ), hence several starts. One is the closed form on smoothed frequencies. For others Γ is
scattered and θ is the least-squares fit to the frequencies at that Γ (`starts.py`); the most likely few are climbed by damped
Fisher scoring (`ascent.py`), and the best is climbed to the end.

*Separation.* Where some action is never taken, or all experts look equally far ahead, the likelihood may rise forever as rewards
grow, and has no maximum. Signs of it are a climb that does not end, a `log π(a|s)` of a visited state whose standard error is
beyond `VAGUE_CHOICE`, and a reward whose standard error is beyond `VAGUE_REWARD`. Then, unless a ridge is given, the reward is
held by the penalty `½ Σ (θ_j f_j / WEAK_PRIOR)²`, f_j the largest value of feature j: a normal prior, so wide that it moves
rewards which the decisions determine by a small part of their standard error. The solution announces it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.stats import qmc

from multihorizon.checks import Bools, Floats
from multihorizon.likelihood.ascent import MAX_STEPS, Ascent, climb
from multihorizon.likelihood.large import is_large, require_size
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.parameters import Settings
from multihorizon.likelihood.precision import precision
from multihorizon.likelihood.starts import choice_probability_start, own_discounts
from multihorizon.likelihood.temperatures import Spread, estimate_spread, temperature_penalty
from multihorizon.parallel import in_parallel
from multihorizon.problem import Problem
from multihorizon.progress import Progress, part_of, silent
from multihorizon.recovery.closed_form import closed_form_start

#: The ridge that is used by itself where no logged decision could have earned one of the rewards.
UNEARNED_RIDGE = 1e-4
#: A climb runs away if it has not ended after both rounds and some action in a visited state has a log-probability below this.
RUNAWAY_CHOICE = -30.0
#: A log-probability with a larger standard error is not held by the decisions: odds that may be anything up to e^20 and more.
VAGUE_CHOICE = 10.0
#: The same for a reward, in temperatures.
VAGUE_REWARD = 100.0
#: Standard deviation, in temperatures, of the prior that then holds the rewards.
WEAK_PRIOR = 20.0
#: The best climb ends when less than this is left to gain, or after this many further steps.
POLISHED_GAIN, POLISHING_STEPS = 1e-13, 20
#: Steps of the first and the second round: half the starts are given up after the first, all but the best after the second.
ROUNDS = (8, 30)
#: Above this many states, counted for each expert, fewer starts are tried and climbed; with very many rewards none are scattered.
BIG_TASKS = 20_000
#: Up to this many experts the discounts of starts are scattered in all combinations; beyond, each expert's own best is taken.
SCATTERED_EXPERTS = 12
#: Discounts that are tried for each expert alone once a reward is at hand.
OWN_DISCOUNTS = np.array([0.0, 0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.97, 1.0])


@dataclass(frozen=True, eq=False)
class Fit:
    """The best end, the ends of all climbs carried on, the spread of temperatures, and why there is a ridge."""

    best: Ascent
    ends: list[Ascent]
    spread: Spread | None
    ridge_reason: str


def fit(
    problem: Problem, settings: Settings, pooled: bool, ridge: float | None, starts: int, seed: int, progress: Progress = silent
) -> Fit:
    """Fit without a penalty where there is a maximum, and with a weak one where rewards run away."""
    require_size(problem.n_parameters)
    model = Likelihood(problem, settings)
    model = model.holding(temperature_penalty(model), 0.0 if ridge is None else ridge)
    extra = _closed_form(model)
    if ridge is not None:
        return _fit(model, pooled, starts, seed, progress, extra, "")
    reason = ""
    if settings.reward is None and never_earned(problem).any():
        reason = "no logged decision could have earned some of the rewards"
        model = model.holding(model.penalty, UNEARNED_RIDGE)
    found = _fit(model, pooled, starts, seed, part_of(progress, 0.0, 0.5), extra, reason, give_up=True)
    if settings.reward is not None or holds(found):
        return found
    deviation = WEAK_PRIOR * model.known_temperature / model.feature_sizes
    held = model.holding(model.penalty, np.maximum(model.ridge, deviation**-2))
    return _fit(
        held, pooled, starts, seed, part_of(progress, 0.5, 1.0), extra, "the larger some of them are made, the better they fit"
    )


def _fit(
    model: Likelihood,
    pooled: bool,
    starts: int,
    seed: int,
    progress: Progress,
    extra: Sequence[Floats],
    reason: str,
    give_up: bool = False,
) -> Fit:
    """The most likely answer with the penalties of this model, temperatures pooled if asked for."""
    best, ends = maximize(model, starts, seed, part_of(progress, 0.0, 0.7), extra, give_up)
    spread = None
    if pooled and model.problem.n_experts > 1 and best.finished:
        each = replace(model.settings, temperatures=np.full(model.problem.n_experts, np.nan), temperature_groups=None)
        spread = estimate_spread(best, Likelihood(model.problem, each, ridge=model.ridge))
        best = spread.ascent
    progress(1.0, f"log-likelihood {best.point.value:.2f}")
    return Fit(_polished(best), ends, spread, reason)


def maximize(
    likelihood: Likelihood,
    starts: int,
    seed: int,
    progress: Progress = silent,
    extra: Sequence[Floats] = (),
    give_up: bool = False,
) -> tuple[Ascent, list[Ascent]]:
    """The best end of climbs from `starts` scattered points and from `extra` ones, and the ends of all of them.

    Estimated transitions give way once the rest is near. With `give_up` a climb whose rewards run away is broken off early.
    """
    tried, climbed = _numbers(likelihood, starts)
    held = likelihood.held() if likelihood.moves else likelihood
    points = sorted(_tried(held, tried, seed), key=lambda point: -point.objective)[:climbed]
    points += [p for p in (held.at(x[: held.size]) for x in extra) if p is not None]
    if not points:
        raise ValueError("no starting point has finite soft values: check that the rewards' features and the transitions agree")
    ends = []
    for number, end in enumerate(in_parallel(partial(climb, max_steps=ROUNDS[0]), points, jobs=1), start=1):
        ends.append(end)
        progress(0.5 * number / len(points), f"start {number} of {len(points)}: {end.point.objective:.2f}")
    ends = list(in_parallel(partial(_further, steps=ROUNDS[1]), _ranked(ends)[:starts], jobs=1))
    progress(0.9, f"log-likelihood {max(end.point.value for end in ends):.2f}")
    if likelihood.moves:
        ends = list(in_parallel(partial(_released, likelihood), _distinct(_ranked(ends)), jobs=1))
    best, *others = _ranked(ends)
    if not (give_up and smallest_choice(best.point) < RUNAWAY_CHOICE):
        best = _further(best, MAX_STEPS, part_of(progress, 0.9, 1.0))
    progress(1.0, f"log-likelihood {best.point.value:.2f}")
    return best, [best, *others]


def _numbers(likelihood: Likelihood, starts: int) -> tuple[int, int]:
    """How many scattered points are tried, and how many of the best are climbed from: fewer where a step takes long."""
    if is_large(likelihood):
        return 0, max(1, starts // 2)
    big = sum(batch.mdp.n_states * batch.owners.size for batch in likelihood.batches) > BIG_TASKS
    return (starts, max(1, starts // 2)) if big else (4 * starts, 2 * starts)


def holds(found: Fit) -> bool:
    """Whether the decisions alone hold the rewards: all climbs ended, and no reward and no choice in a visited state is vague."""
    point = found.best.point
    model = point.likelihood
    finished = found.best.finished and (found.spread is None or found.spread.complete)
    if not finished or is_large(model):
        return finished
    precise = precision(point)
    assert precise.covariance is not None
    known = precise.identified[: model.n_reward]  # a reward about which the decisions say nothing is no sign
    errors = np.sqrt(np.diag(precise.covariance))[: model.n_reward][known] * model.feature_sizes[known]
    return float(errors.max(initial=0.0)) <= VAGUE_REWARD and choice_error(point, precise.covariance) <= VAGUE_CHOICE


def choice_error(point: Point, covariance: Floats) -> float:
    """The largest standard error of `log π(a|s)` over the states in which someone decided."""
    largest = 0.0
    for number, batch in enumerate(point.batches):
        rows, columns, scores = point.scores(number)
        visited = batch.visits[rows % batch.mdp.n_states] > 0
        for i, places in enumerate(columns):
            own = scores[visited[:, i], i]
            variances = ((own @ covariance[np.ix_(places, places)]) * own).sum(axis=1)
            largest = max(largest, float(variances.max(initial=0.0)))
    return float(np.sqrt(largest))


def smallest_choice(point: Point) -> float:
    """The smallest `log π(a|s)` of an available action over the states in which someone decided."""
    batches = zip(point.likelihood.batches, point.plans, strict=True)
    return min(float((plan.finite_log * (batch.visits > 0)).min()) for batch, plan in batches)


def never_earned(problem: Problem) -> Bools:
    """Mask `(d,)` of the reward parameters that no logged decision could have earned."""
    earned = np.zeros(problem.n_parameters)
    for expert in problem.experts:
        if expert.counts is not None:
            earned += abs(expert.feature_matrix).T @ expert.counts.T.ravel()
    mask: Bools = earned == 0
    return mask


def _closed_form(likelihood: Likelihood) -> list[Floats]:
    """The start of the closed form where there are few experts and its equations are linear: with features they are not."""
    problem = likelihood.problem
    if likelihood.fixed[: likelihood.n_reward].any() or problem.n_experts > SCATTERED_EXPERTS or not problem.tabular:
        return []
    try:
        start = closed_form_start(problem)
    except ValueError:  # the frequencies' equations cannot be solved; the other starts remain
        return []
    grouped = np.array([start.discounts[likelihood.groups == g].mean() for g in range(likelihood.n_discounts)])
    return [likelihood.pack(start.reward, grouped)]


def _tried(likelihood: Likelihood, count: int, seed: int) -> Iterator[Point]:
    """Starts at scattered discounts: all experts alike, each at their own best, and a sequence that tells them apart.

    Where all discounts are known there is nothing to scatter, and one start.
    """
    known = likelihood.known[likelihood.discount_slice]
    if not np.isnan(known).any():
        point = choice_probability_start(likelihood, known)
        if point is not None:
            yield point
        return
    alike = [choice_probability_start(likelihood, np.full(likelihood.n_discounts, g)) for g in (0.1, 0.5, 0.9)]
    for point in alike:
        if point is None:
            continue
        yield point
        apart = choice_probability_start(likelihood, own_discounts(point, OWN_DISCOUNTS))
        if apart is not None:
            yield apart
    if likelihood.n_discounts > SCATTERED_EXPERTS or not count:
        return
    for discounts in 0.98 * qmc.Halton(likelihood.n_discounts, rng=np.random.default_rng(seed)).random(count):
        scattered = choice_probability_start(likelihood, discounts)
        if scattered is not None:
            yield scattered


def _ranked(ends: list[Ascent]) -> list[Ascent]:
    return sorted(ends, key=lambda end: -end.point.objective)


def _further(end: Ascent, steps: int, progress: Progress = silent) -> Ascent:
    """The climb carried on for so many more steps unless it has ended."""
    if end.finished:
        return end
    further = climb(end.point, max_steps=steps, progress=progress)
    return Ascent(further.point, end.steps + further.steps, further.finished, further.metric)


def _distinct(ends: list[Ascent]) -> list[Ascent]:
    """Of ranked ends those with other discounts than the ones before them."""
    kept: list[Ascent] = []
    for end in ends:
        discounts = [other.point.x[other.point.likelihood.discount_slice] for other in (*kept, end)]
        if all(np.abs(discounts[-1] - earlier).max() > 1e-3 for earlier in discounts[:-1]):
            kept.append(end)
    return kept


def _released(likelihood: Likelihood, end: Ascent) -> Ascent:
    """The climb carried on with transitions that give way."""
    start = likelihood.at(np.concatenate([end.point.x, np.zeros(likelihood.size - end.point.x.size)]))
    assert start is not None
    further = climb(start, max_steps=ROUNDS[1])
    return Ascent(further.point, end.steps + further.steps, further.finished, further.metric)


def _polished(end: Ascent) -> Ascent:
    """The same end with the last digits of its parameters, which a flat likelihood leaves open."""
    if not end.finished:
        return end
    finer = climb(end.point, max_steps=POLISHING_STEPS, gain=POLISHED_GAIN, metric=end.metric)
    return Ascent(finer.point, end.steps + finer.steps, True, finer.metric)
