"""Points to start a likelihood from: conditional choice probabilities at given discounts.

Smoothed frequencies `π̂(a|s) = (N(s,a) + α/A_s)/(n(s) + α)` stand in for an expert's policy (Hotz and Miller, 1993). With π̂
known, the value of going on is linear in θ, `V = (I − γP̂)^{-1}(π̂R + λH(π̂))`, and so is the model's `λ log π = R + γTV − V`. Its
least-squares fit to `λ log π̂`, each row weighted by `n(s) π̂(a|s)`, is a reward for these discounts: what one Fisher step from the
frequencies themselves would give.

How much the experts' temperatures differ: one common value, an estimated spread, or no tie at all.

Equal temperatures turn a noisy expert into a short-sighted one. Free ones run away beside a free reward. In between, the
logarithms of the temperatures are taken to vary around a common value with standard deviation τ:

    L_τ(x) = L(x) − Σ_k (ℓ_k − ℓ̄)² / (2τ²),     ℓ_k = log λ_k.

τ = 0 makes all equal and τ = ∞ sets all free. τ is chosen by the likelihood of the decisions given τ: temperatures are
integrated out by Laplace's method and everything else is profiled out. It maximises `max_x L_τ(x) − (K−1) log τ − ½ log det S_τ`,
S the information of the differences of the ℓ_k, with the penalty, after everything else has been accounted for. Discounts that
rest on a bound count as known there. Twice the gain over τ = 0 tests that all temperatures are equal; on the bound τ = 0 its
distribution is half χ²₀, half χ²₁ where there are enough decisions. With few experts a rejection must also hold against tables
drawn from the fit with equal temperatures, by their gain at the chosen τ (not where states are vectors). Where the test does
not reject, equal temperatures are kept: with few experts a spread that may be chance costs more than it mends.

The search for the most likely answer: starts, climbs, what to do when rewards run away, and pooled temperatures.

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
from typing import Generic, TypeVar, cast

import numpy as np
import scipy.linalg as la
from scipy.stats import chi2, qmc

from multihorizon.checks import Bools, Floats, Sparse
from multihorizon.choice.model import ChoiceModel, ChoicePoint
from multihorizon.choice.parameters import Quadratic, Settings, placed
from multihorizon.choice.tabular import Likelihood, Persons, Plans, Point, draw_decisions
from multihorizon.estimate.ascent import climb, further, polished
from multihorizon.estimate.intervals import precision, profile_information
from multihorizon.exact.closed_form import closed_form_start
from multihorizon.mdp import MDP
from multihorizon.numerics.newton import Ascent, resting
from multihorizon.numerics.spectrum import spectrum
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.problem import Problem

P = TypeVar("P", bound=ChoicePoint)

#: α, how many decisions of an indifferent expert are mixed into each state's frequencies.
SMOOTHING = 1.0
#: Ridge on the reward of a start, relative to the mean diagonal of the normal equations: states without data get 0.
START_RIDGE = 1e-6
#: Relative residual of the least-squares fit where it is made of products.
START_TOLERANCE = 1e-6
#: The least-squares fit uses discounts up to this one: nearer to 1 the values of noisy frequencies explode.
LARGEST_START_DISCOUNT = 0.99


def smoothed_policy(mdp: MDP, counts: Floats) -> Floats:
    """Frequencies `(S,A)` of the available actions, mixed with α decisions of an indifferent expert in each state."""
    uniform = mdp.available / mdp.available.sum(axis=1, keepdims=True)
    policy: Floats = (counts + SMOOTHING * uniform) / (counts.sum(axis=1, keepdims=True) + SMOOTHING)
    return policy


def choice_probability_start(likelihood: Likelihood, discounts: Floats, temperatures: Floats | None = None) -> Point | None:
    """The model at given discounts (one for each group) with the reward that fits the smoothed frequencies best.

    None where the soft values are infinite. With very many rewards the normal equations are solved by products.
    """
    d = likelihood.n_reward
    x = likelihood.pack(np.zeros(d), discounts, temperatures)
    if likelihood.settings.reward is not None:
        return start_at(likelihood, x)
    found = [_frequencies(likelihood, batch, x) for batch in likelihood.batches]
    if likelihood.is_large:  # the information at the frequencies, as if they were a plan
        point = Point(likelihood.holding(None, likelihood.ridge), x, tuple(plan for plan, _ in found), np.nan, np.nan)
        weights = [np.where(w > 0, w * wanted, 0.0) for w, (_, wanted) in zip(point.weights, found, strict=True)]
        free = np.arange(likelihood.size) < d
        reward = point.products().solve(point.pull_back(weights), free, START_RIDGE, START_TOLERANCE)[:d]
        return start_at(likelihood, np.concatenate([reward, x[d:]]))
    normal, target = np.zeros((d, d)), np.zeros(d)
    for plan, wanted in found:
        batch, n = plan.persons, plan.lam.size
        roots = np.sqrt((batch.visits * plan.policy).reshape(-1, n)[batch.visited_rows])
        design = (plan.score_rows()[:, :, :-2] * roots[:, :, None]).reshape(roots.size, -1)
        used = batch.features.used
        normal[np.ix_(used, used)] += design.T @ design
        target[used] += design.T @ (wanted.reshape(-1, n)[batch.visited_rows] * roots).ravel()
    normal[np.diag_indices_from(normal)] += START_RIDGE * max(float(np.trace(normal)) / max(d, 1), 1e-12) + likelihood.ridge
    reward = la.solve(normal, target, assume_a="pos", check_finite=False)
    return start_at(likelihood, np.concatenate([reward, x[d:]]))


def start_at(likelihood: Likelihood, x: Floats) -> Point | None:
    """The model at x, discounts drawn back from 1 where the soft values there are infinite; None if that does not help."""
    for back in (0.0, 1e-3, 1e-2, 1e-1, 0.3):
        tried = x.copy()
        tried[likelihood.discount_slice] = np.minimum(x[likelihood.discount_slice], 1 - back)
        point = likelihood.at(np.clip(tried, likelihood.lower, likelihood.upper))
        if point is not None:
            return point
    return None


def own_discounts(point: Point, tried: Floats) -> Floats:
    """For each group the most likely of some discounts, at the point's reward and temperatures."""
    model = point.likelihood
    scores = np.full((tried.size, model.n_discounts), -np.inf)
    for i, discount in enumerate(tried):
        x = point.x.copy()
        x[model.discount_slice] = discount
        there = model.at(np.clip(x, model.lower, model.upper))
        if there is not None:
            scores[i] = np.bincount(model.groups, model.person_values(there), model.n_discounts)
    best: Floats = tried[scores.argmax(axis=0)]
    return best


def _frequencies(likelihood: Likelihood, batch: Persons, x: Floats) -> tuple[Plans, Floats]:
    """The smoothed frequencies of a batch as a plan, and `log π̂` less what is known of the model's `(A,S,n)`."""
    gamma = np.minimum(likelihood.discounts(x)[batch.owners], LARGEST_START_DISCOUNT)
    lam = likelihood.temperatures(x)[batch.owners]
    policy = np.stack([smoothed_policy(batch.mdp, batch.counts[:, :, i].T).T for i in range(gamma.size)], axis=2)
    log = np.log(np.where(policy > 0, policy, 1.0))
    plan = Plans(batch, np.zeros((batch.mdp.n_states, gamma.size)), np.where(policy > 0, log, -np.inf), gamma, lam)
    known = batch.known_reward.reshape(*log.shape[:2], 1)
    source = np.where(batch.mdp.terminal[:, None], 0.0, (policy * known).sum(axis=0) + lam * plan.entropy)
    values = plan.resolvents.solve(source[:, :, None])[:, :, 0]
    without_reward = known + gamma * (batch.mdp.stacked @ values).reshape(log.shape) - values
    return plan, log - without_reward / lam


#: Spreads of log-temperatures that are tried, from 2 % to a factor of 20: every fourth, then the neighbours of the best. The
#: error of a spread is far larger than the distance of neighbours.
SPREADS = np.geomspace(0.02, 3.0, 21)
COARSE = 4
#: Equal temperatures are given up where their p-value is below this.
REJECTED = 0.05
#: Holds the mean log-temperature at 0 to six digits where any mean would do.
LEVEL_WEIGHT = 1e6
#: Tables drawn from equal temperatures that check a rejection, and up to how many experts: with many, χ² does.
DRAWS, SIMULATED_EXPERTS = 39, 12
#: A climb at one spread may leave this much log-likelihood, and is given up after this many steps.
SPREAD_GAIN, SPREAD_STEPS = 1e-3, 100


@dataclass(frozen=True, eq=False)
class Spread(Generic[P]):
    """The chosen τ, the fit with it, the p-value of equal temperatures, and whether the climbs at all τ that were tried ended.

    The p-value is NaN where none of them did.
    """

    value: float
    ascent: Ascent[P]
    p_equal: float
    complete: bool


def temperature_penalty(likelihood: ChoiceModel, spread: float = np.inf) -> Quadratic | None:
    """The quadratic term that lets log-temperatures vary around their mean with this standard deviation.

    Where the scale of the reward is open, it also holds the mean at 0. None where there is nothing to hold.
    """
    n, zeros = likelihood.n_temperatures, np.zeros(likelihood.size)
    block = (np.eye(n) - 1 / n) / spread**2 + (LEVEL_WEIGHT / n if likelihood.scale_is_free else 0.0)
    return Quadratic(zeros, zeros, _of_temperatures(likelihood, block)) if block.any() else None


def without_level(likelihood: ChoiceModel) -> Quadratic | None:
    """The likelihood's quadratic term without what holds the mean log-temperature, for a reward that stays as it is."""
    penalty, n = likelihood.penalty, likelihood.n_temperatures
    if penalty is None or not likelihood.scale_is_free:
        return penalty
    level = _of_temperatures(likelihood, np.full((n, n), LEVEL_WEIGHT / n))
    return Quadratic(penalty.centre, penalty.slope, penalty.matrix - level)


def _of_temperatures(likelihood: ChoiceModel, block: Floats) -> Sparse:
    """A matrix `(p,p)` that is 0 outside the log-temperatures."""
    return placed(block, np.arange(likelihood.size)[likelihood.temperature_slice], likelihood.size)


def estimate_spread(equal: Ascent[P], free: ChoiceModel) -> Spread[P]:
    """The most likely spread, from the fit with equal temperatures.

    Args:
        equal: the fit in which all temperatures are one.
        free: the same likelihood with a temperature for each expert.
    """
    reference = log_likelihood_given(equal.point, 0.0)
    ends: dict[int, tuple[float, Ascent[P]]] = {}
    unfinished: list[int] = []

    def gain(index: int) -> None:
        """The gain of one spread over equal temperatures, climbed from the nearest spread that is done."""
        near = min(ends, key=lambda done: abs(done - index), default=None)
        end = _fit(free, float(SPREADS[index]), equal.point if near is None else ends[near][1].point)
        if end is None:
            unfinished.append(index)
        else:
            ends[index] = (log_likelihood_given(end.point.without_derivatives(), float(SPREADS[index])) - reference, end)

    for index in range(0, SPREADS.size, COARSE):
        gain(index)
    best = max(ends, key=lambda i: ends[i][0], default=0)
    for step in (2, 1):
        for index in (best - step, best + step):
            if 0 <= index < SPREADS.size:
                gain(index)
        best = max(ends, key=lambda i: ends[i][0], default=0)
    if not ends:
        return Spread(0.0, equal, np.nan, complete=False)
    if best == 0:
        return Spread(0.0, equal, 1.0, not unfinished)
    gained, end = ends[best]
    p_equal = 0.5 * float(chi2.sf(2 * gained, 1)) if gained > 0 else 1.0
    few = not free.is_large and free.n_experts <= SIMULATED_EXPERTS
    if p_equal < REJECTED and few and isinstance(free, Likelihood) and isinstance(equal.point, Point):
        p_equal = max(p_equal, _simulated(equal.point, free, float(SPREADS[best]), gained))
    if p_equal > REJECTED:
        return Spread(0.0, equal, p_equal, not unfinished)
    return Spread(float(SPREADS[best]), climb(end.point), p_equal, not unfinished)


def _simulated(equal: Point, free: Likelihood, spread: float, gained: float) -> float:
    """The p-value by tables drawn from the fit with equal temperatures: 0 where none of them gains as much by this spread.

    It is broken off once it is certain to be too large. A table whose climbs do not end counts as one that gains as much.
    """
    rng, as_much, number = np.random.default_rng(0), 0, 0
    while number < DRAWS and 1 + as_much <= REJECTED * (1 + DRAWS):
        number += 1
        counts = draw_decisions(equal, rng)
        start = equal.likelihood.with_counts(counts).at(equal.x, equal)
        alike = None if start is None else climb(start, max_steps=SPREAD_STEPS, gain=SPREAD_GAIN)
        end = _fit(free.with_counts(counts), spread, alike.point) if alike is not None and alike.finished else None
        if alike is None or end is None:
            as_much += 1
        else:
            as_much += log_likelihood_given(end.point, spread) - log_likelihood_given(alike.point, 0.0) >= gained
    return (1 + as_much) / (1 + number) if as_much else 0.0


def _fit(free: ChoiceModel, spread: float, start: P) -> Ascent[P] | None:
    """The best point with this spread, or None where the climb to it was broken off."""
    model = free.holding(temperature_penalty(free, spread), free.ridge)
    old = start.likelihood
    temperatures = old.temperatures(start.x)
    each = np.array([temperatures[free.temperature_groups == g][0] for g in range(free.n_temperatures)])
    x = model.pack(old.reward(start.x), start.x[old.discount_slice], each, start.x[old.transition_slice])
    begin = cast(P | None, model.at(x))
    end = None if begin is None else climb(begin, max_steps=SPREAD_STEPS, gain=SPREAD_GAIN)
    return end if end is not None and end.finished else None


def log_likelihood_given(point: ChoicePoint, spread: float) -> float:
    """The log-likelihood of the decisions given the spread of temperatures, which are integrated out; without constants."""
    model = point.likelihood
    if not spread:
        return point.objective
    n, first = model.n_temperatures, 0
    if isinstance(point, Point) and model.is_large:
        first, free = model.n_reward, ~model.fixed[model.n_reward : model.transition_slice.start]
        matrix = profile_information(point)[0]
    else:
        known = resting(point)
        known[model.temperature_slice] = False
        free = ~model.fixed & ~known
        matrix = point.curvature()[np.ix_(free, free)]
    contrasts = np.zeros((free.size, n - 1))
    differences = np.linalg.qr(np.column_stack([np.ones(n), np.eye(n)[:, : n - 1]]))[0][:, 1:]
    contrasts[model.temperature_slice.start - first :][:n] = differences
    covariance = contrasts[free].T @ spectrum(matrix).solve(contrasts[free])
    return point.objective - (n - 1) * float(np.log(spread)) + 0.5 * float(np.linalg.slogdet(covariance)[1])


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

    best: Ascent[Point]
    ends: list[Ascent[Point]]
    spread: Spread[Point] | None
    ridge_reason: str


def fit(
    problem: Problem, settings: Settings, pooled: bool, ridge: float | None, starts: int, seed: int, progress: Progress = silent
) -> Fit:
    """Fit without a penalty where there is a maximum, and with a weak one where rewards run away."""
    if problem.n_parameters > 20_000:
        raise ValueError(
            f"a reward for each of {problem.n_parameters:,} states is more than can be estimated (at most 20,000): "
            "tie the rewards of similar states together with features"
        )
    model = Likelihood(problem, settings)
    model = model.holding(temperature_penalty(model), 0.0 if ridge is None else ridge)
    extra = _closed_form(model)
    if ridge is not None:
        return _fit_fit(model, pooled, starts, seed, progress, extra, "")
    reason = ""
    if settings.reward is None and never_earned(problem).any():
        reason = "no logged decision could have earned some of the rewards"
        model = model.holding(model.penalty, UNEARNED_RIDGE)
    found = _fit_fit(model, pooled, starts, seed, part_of(progress, 0.0, 0.5), extra, reason, give_up=True)
    if settings.reward is not None or holds(found):
        return found
    deviation = WEAK_PRIOR * model.known_temperature / model.feature_sizes
    held = model.holding(model.penalty, np.maximum(model.ridge, deviation**-2))
    return _fit_fit(
        held, pooled, starts, seed, part_of(progress, 0.5, 1.0), extra, "the larger some of them are made, the better they fit"
    )


def _fit_fit(
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
    return Fit(polished(best), ends, spread, reason)


def maximize(
    likelihood: Likelihood,
    starts: int,
    seed: int,
    progress: Progress = silent,
    extra: Sequence[Floats] = (),
    give_up: bool = False,
) -> tuple[Ascent[Point], list[Ascent[Point]]]:
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
    for number, point in enumerate(points, start=1):
        ends.append(end := climb(point, max_steps=ROUNDS[0]))
        progress(0.5 * number / len(points), f"start {number} of {len(points)}: {end.point.objective:.2f}")
    ends = [end if end.finished else further(end, ROUNDS[1]) for end in _ranked(ends)[:starts]]
    progress(0.9, f"log-likelihood {max(end.point.value for end in ends):.2f}")
    if likelihood.moves:
        ends = [_released(likelihood, end) for end in _distinct(_ranked(ends))]
    best, *others = _ranked(ends)
    if not (give_up and smallest_choice(best.point) < RUNAWAY_CHOICE):
        best = best if best.finished else further(best, 300, progress=part_of(progress, 0.9, 1.0))
    progress(1.0, f"log-likelihood {best.point.value:.2f}")
    return best, [best, *others]


def _numbers(likelihood: Likelihood, starts: int) -> tuple[int, int]:
    """How many scattered points are tried, and how many of the best are climbed from: fewer where a step takes long."""
    if likelihood.is_large:
        return 0, max(1, starts // 2)
    big = sum(batch.mdp.n_states * batch.owners.size for batch in likelihood.batches) > BIG_TASKS
    return (starts, max(1, starts // 2)) if big else (4 * starts, 2 * starts)


def holds(found: Fit) -> bool:
    """Whether the decisions alone hold the rewards: all climbs ended, and no reward and no choice in a visited state is vague."""
    point = found.best.point
    model = point.likelihood
    finished = found.best.finished and (found.spread is None or found.spread.complete)
    if not finished or model.is_large:
        return finished
    precise = precision(point)
    assert precise.covariance is not None
    known = precise.identified[: model.n_reward]  # a reward about which the decisions say nothing is no sign
    errors = np.sqrt(np.diag(precise.covariance))[: model.n_reward][known] * model.feature_sizes[known]
    return float(errors.max(initial=0.0)) <= VAGUE_REWARD and choice_error(point, precise.covariance) <= VAGUE_CHOICE


def choice_error(point: Point, covariance: Floats) -> float:
    """The largest standard error of `log π(a|s)` over the states in which someone decided."""
    largest = 0.0
    for number, plan in enumerate(point.plans):
        batch, (rows, columns, scores) = plan.persons, point.scores(number)
        visited = batch.visits[rows % batch.mdp.n_states] > 0
        for i, places in enumerate(columns):
            own = scores[visited[:, i], i]
            variances = ((own @ covariance[np.ix_(places, places)]) * own).sum(axis=1)
            largest = max(largest, float(variances.max(initial=0.0)))
    return float(np.sqrt(largest))


def smallest_choice(point: Point) -> float:
    """The smallest `log π(a|s)` of an available action over the states in which someone decided."""
    return min(float((plan.finite_log * (plan.persons.visits > 0)).min()) for plan in point.plans)


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


def _ranked(ends: list[Ascent[Point]]) -> list[Ascent[Point]]:
    return sorted(ends, key=lambda end: -end.point.objective)


def _distinct(ends: list[Ascent[Point]]) -> list[Ascent[Point]]:
    """Of ranked ends those with other discounts than the ones before them."""
    kept: list[Ascent[Point]] = []
    for end in ends:
        discounts = [other.point.x[other.point.likelihood.discount_slice] for other in (*kept, end)]
        if all(np.abs(discounts[-1] - earlier).max() > 1e-3 for earlier in discounts[:-1]):
            kept.append(end)
    return kept


def _released(likelihood: Likelihood, end: Ascent[Point]) -> Ascent[Point]:
    """The climb carried on with transitions that give way."""
    start = likelihood.at(np.concatenate([end.point.x, np.zeros(likelihood.size - end.point.x.size)]))
    assert start is not None
    return further(replace(end, point=start), ROUNDS[1])
