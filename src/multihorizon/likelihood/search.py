"""The search for the maximum of a likelihood: where climbs begin, how they go on, and other maxima beside the answer.

*A climb* stays inside bounds. It is that of `numerics.newton` (L-BFGS-B where neither a matrix nor products are at hand) with the
Fisher information, the curvature that a correct model has on average. Where reward and discount nearly trade off, the likelihood
is a long bent ridge, and steps follow the bend of `f = log π`. A climb stops where less log-likelihood is promised than a
ten-millionth of what moves a confidence interval. Whether that is convergence is for the caller to see from
`ChoicePoint.projected_gradient`, recomputed at the answer.

*Kinks.* Where the future is valued by the best action, the likelihood has kinks where another action becomes the best, and a
maximum may lie on one. Derivatives do not vanish there, and a climb does not end. So it goes on by L-BFGS-B, which crosses kinks,
and has ended where no place near by is higher: of places a part of a standard error away along each parameter, and along the
directions of the information.

*Starts.* Smoothed frequencies `π̂(a|s) = (N(s,a) + α/A_s)/(n(s) + α)` stand in for a policy (Hotz and Miller, 1993). With π̂
known, the value of going on is linear in θ, `V = (I − γP̂)^{-1}(π̂R + λH(π̂))`, and so is the model's `λ log π = R + γTV − V`.
Its least-squares fit to `λ log π̂`, each row weighted by `n(s) π̂(a|s)`, is a reward for given discounts: what one Fisher step
from the frequencies themselves would give. Discounts are scattered; the most likely few starts are climbed, and the
best is climbed to the end. One more start is the closed form on smoothed frequencies.

*Several maxima.* A likelihood of decisions may have several maxima, mostly at discounts far apart: a short-sighted expert with
one reward explains much of what a far-sighted one does with another. Starts are valued with a rough reward, which may be best at
a discount where the maximum is not. So the answer of a search is compared with the profile over each discount, `max {L : γ_k =
g}` at a few g of all sizes: where that comes near to the answer or exceeds it, everything is let go and climbed from there. A
climb that cannot be expected to come near is broken off after few steps, so that most places cost little.

Maxima that are within a confidence interval's reach of the answer are *rivals*: part of what the decisions leave open.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import scipy.linalg as la

from multihorizon.checks import TINY, Bools, Floats, first_few
from multihorizon.choice.model import (
    ChoiceModel,
    ChoicePoint,
    Likelihood,
    Point,
)
from multihorizon.choice.plans import Persons, Plans
from multihorizon.exact.closed_form import closed_form_start
from multihorizon.mdp import MDP
from multihorizon.numerics import newton
from multihorizon.numerics.distributions import chi2_ppf, halton
from multihorizon.numerics.newton import Ascent, Metric, Tolerances
from multihorizon.parallel import Progress, Run, limits, silent
from multihorizon.words import decimals

P = TypeVar("P", bound=ChoicePoint)
#: The projected gradient per decision at or below which an answer counts as converged.
CONVERGED_GRADIENT = 1e-5


def climb(
    start: P,
    fixed: Bools | None = None,
    max_steps: int = 300,
    gain: float = 1e-7,
    metric: Metric | None = None,
    progress: Progress = silent,
    worth: float = -np.inf,
) -> Ascent[P]:
    """Climb from `start` to a local maximum of the objective.

    Args:
        start: where to begin.
        fixed: mask of parameters that stay as they are, besides those that are known.
        max_steps: steps after which the climb is broken off.
        gain: stop when less than this is promised.
        metric: curvature at a neighbouring maximum, with which to begin; without it, the stop is confirmed by a new one.
        progress: called after each step, with its number and the log-likelihood.
        worth: break the climb off where it cannot be expected to reach this objective.
    """
    max_steps = min(max_steps, limits().steps)
    held = start.likelihood.fixed if fixed is None else start.likelihood.fixed | fixed
    start = start.without_derivatives()  # the caller may keep many starts

    def report(steps: int, point: P) -> None:
        progress(steps / max_steps, f"step {steps}: log-likelihood {decimals(point.value, 2)}")

    if start.likelihood.is_large and not isinstance(start, Point):
        end = _quasi_newton(start, held, max_steps, progress)
    else:
        shown = None if progress is silent else report
        end = newton.climb(start, held, Tolerances(gain, max_steps, worth), metric, shown)
        model = end.point.likelihood
        left = max_steps - end.steps
        if not end.finished and left and isinstance(model, Likelihood) and model.by_products and not model.is_large:
            # Steps by products are inexact, and on a flat ridge none of them may rise. There the matrix is worth its time.
            again = cast(P, replace(cast(Any, end.point), likelihood=model.by_matrix()))
            more = newton.climb(again, held, Tolerances(gain, left), None, shown)
            end = replace(more, steps=end.steps + more.steps)
        if not end.finished and has_kinks(model) and max_steps > 20:
            end = _over_kinks(end, held)
    return replace(end, point=end.point.without_derivatives())


def has_kinks(model: ChoiceModel) -> bool:
    """Return whether the likelihood has kinks: where values are those of the best action."""
    return model.settings.value == "max"


def _over_kinks(end: Ascent[P], held: Bools, rounds: int = 3) -> Ascent[P]:
    """Return the climb carried on over kinks, ended where no place near by is higher."""
    for _ in range(rounds):
        further = _quasi_newton(end.point, held, 20, silent)
        higher = _highest_near(further.point, held)
        end = Ascent(higher, end.steps + further.steps, higher is further.point, None)
        if end.finished:
            break
    return end


def _highest_near(point: P, held: Bools) -> P:
    """Return the highest place near by, where it is higher by more than a thousandth of log-likelihood; else the point."""
    model, best = point.likelihood, point
    free = np.flatnonzero(~held)
    information = point.curvature()[np.ix_(free, free)]
    scale = 1 / np.sqrt(np.maximum(np.diag(information), TINY))
    values, vectors = np.linalg.eigh(information * scale[:, None] * scale)
    turned = vectors / np.sqrt(np.maximum(values, 1e-4))
    for direction in np.concatenate([np.eye(free.size), turned.T]):
        for size in (-0.3, -0.03, 0.03, 0.3):
            x = point.x.copy()
            x[free] += size * scale * direction
            there = point.moved(np.clip(x, model.lower, model.upper))
            if there is not None and there.objective > max(best.objective, point.objective + 1e-3):
                best = there
    return best


def left_to_gain(point: ChoicePoint, fixed: Bools) -> float:
    """Return what a climb from here promises where these parameters stay as they are."""
    free = ~(point.likelihood.fixed | fixed | newton.resting(point))
    return newton.left_to_gain(point, point.metric(), free)


def at_maximum(point: ChoicePoint, residual: float) -> bool:
    """Return whether the projected gradient per decision is small or, where the likelihood is so steep that rounding keeps the
    gradient from that, whether a step by Newton's method promises no more than the gain at which climbs stop.
    """
    if residual <= CONVERGED_GRADIENT or left_to_gain(point, np.zeros(point.x.size, dtype=np.bool_)) <= 1e-7:
        return True
    return has_kinks(point.likelihood) and _highest_near(point, point.likelihood.fixed) is point


def polished(end: Ascent[P], max_steps: int = 20, gain: float = 1e-13) -> Ascent[P]:
    """Return the same end with the last digits of its parameters, which a flat likelihood leaves open."""
    if not end.finished:
        return end
    finer = climb(end.point, max_steps=max_steps, gain=gain, metric=end.metric)
    return Ascent(finer.point, end.steps + finer.steps, True, finer.metric)


def _quasi_newton(start: P, held: Bools, max_steps: int, progress: Progress) -> Ascent[P]:
    """Return the best point that L-BFGS-B reaches; five of its iterations stand for one step of Fisher scoring."""
    from scipy.optimize import minimize  # noqa: PLC0415  it takes longer to import than a small fit takes

    model = start.likelihood
    free = ~held
    most = 5 * max_steps
    best = last = start

    def negative(z: Floats) -> tuple[float, Floats]:
        nonlocal best, last
        x = start.x.copy()
        x[free] = z
        point = last.moved(x)
        if point is None:
            return np.inf, np.zeros(z.size)
        last = point
        best = point if point.objective > best.objective else best
        return -point.objective / model.decisions, -point.gradient[free] / model.decisions

    steps = itertools.count(1)

    def report(_: Floats) -> None:
        number = next(steps)
        progress(number / most, f"step {number}: log-likelihood {decimals(best.value, 2)}")

    bounds = list(zip(model.lower[free], model.upper[free], strict=True))
    options = {"maxiter": most, "maxcor": 30, "ftol": 1e-14, "gtol": 1e-7}
    end = minimize(negative, start.x[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=report)
    return Ascent(best, int(end.nit), bool(end.success), None)


#: How much less likely than the answer a maximum may be and be kept: more than the reach of an interval of 99.99%.
WITHIN = 8.0


def ranked(ends: Sequence[Ascent[P]]) -> list[Ascent[P]]:
    """Return the ends, the most likely first."""
    return sorted(ends, key=lambda end: -end.point.objective)


def distinct(ends: Sequence[Ascent[P]]) -> list[Ascent[P]]:
    """Return the ends with different discounts, the most likely first; of those with about the same discounts the most likely."""
    kept: list[Ascent[P]] = []
    for end in ranked(ends):
        if all(_differ(end.point, other.point) for other in kept):
            kept.append(end)
    return kept


def elsewhere(ends: Sequence[Ascent[P]], point: P) -> list[Ascent[P]]:
    """Return the distinct ends with other discounts than this point's, the most likely first."""
    return [end for end in distinct(ends) if _differ(end.point, point)]


def about_rivals(rivals: Sequence[tuple[float, Floats]]) -> list[str]:
    """Return a sentence on the likeliest other maximum that 95% CIs reach.

    Of each of them it takes by how much its log-likelihood is lower, and its discounts.
    """
    near = [rival for rival in rivals if 2 * rival[0] <= chi2_ppf(0.95, 1)]
    if not near:
        return []
    missing, discounts = min(near, key=lambda rival: rival[0])
    where = first_few([decimals(discount, 3) for discount in discounts])
    return [
        f"The likelihood has another maximum, lower by only {decimals(missing, 2)}, at the discounts {where}: "
        "intervals reach from the smallest to the largest discount that the decisions allow."
    ]


def _differ(one: ChoicePoint, other: ChoicePoint) -> bool:
    """Return whether some discount differs by more than ends of climbs do that are one maximum."""
    return bool((np.abs(one.likelihood.discounts(one.x) - other.likelihood.discounts(other.x)) > 0.02).any())


def spread_over_levels(points: Sequence[P], count: int) -> list[P]:
    """Return the most likely points, and before them the most likely one with small, middling and large discounts."""
    order = sorted(points, key=lambda point: -point.objective)
    first: dict[int, P] = {}
    for point in order:
        model = point.likelihood
        part = model.discount_slice
        level = float(np.mean(point.x[part] / np.maximum(model.upper[part], TINY)))
        first.setdefault(int(np.digitize(level, (0.33, 0.75))), point)
    rest = [point for point in order if all(point is not one for one in first.values())]
    return [*first.values(), *rest[: max(count - len(first), 0)]]


def candidates(top: P, begin: Callable[[Floats], P | None], run: Run | None = None) -> list[P]:
    """Return points on the profiles over the discounts that are about as likely as `top`, or likelier.

    Args:
        top: where the search ended.
        begin: a point to climb from at given discounts, one for each group; None where there is none.
        run: reports the progress after each place.
    """
    model, part = top.likelihood, top.likelihood.discount_slice
    here = top.x[part]
    largest = model.upper[part]
    near = []
    places = [
        (group, float(level * largest[group]))
        for group in np.flatnonzero(~model.fixed[part]).tolist()
        for level in _levels_away_from(float(here[group] / largest[group]))
    ]
    if here.size > 6:  # of many discounts, only those that at the answer's reward are about as likely elsewhere
        places = _about_as_likely(top, places)
    for number, (group, discount) in enumerate(places, start=1):
        wanted = here.copy()
        held = np.zeros(top.x.size, dtype=np.bool_)
        wanted[group], held[part.start + group] = discount, True
        start = begin(wanted)
        if start is not None:
            there = climb(start, held, max_steps=12, gain=0.1, worth=top.objective - WITHIN).point
            if there.objective > top.objective - WITHIN:
                near.append(there)
        (run or Run()).progress(number / len(places), f"profile, place {number} of {len(places)}")
    return near


def _levels_away_from(share: float) -> list[float]:
    """Return the levels but the nearest, which the answer itself stands for; near 1 a small difference of discounts is a large
    one.
    """
    levels = [0.05, 0.5, 0.8, 0.95, 0.99]
    horizons = np.log(np.maximum(1 - np.array([*levels, share]), 1e-3))
    nearest = int(np.abs(horizons[:-1] - horizons[-1]).argmin())
    return [level for i, level in enumerate(levels) if i != nearest]


def _about_as_likely(top: ChoicePoint, places: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return the places at which the own decisions of a discount's experts are about as likely as at the answer, given its
    reward.

    With many experts, one of them hardly moves the reward.
    """
    part = top.likelihood.discount_slice
    kept = []
    values = _own_values(top)
    for level in sorted({discount for _, discount in places}):
        x = top.x.copy()
        moved = np.array([group for group, discount in places if discount == level])
        x[part.start + moved] = level
        there = top.moved(x)
        if there is not None:
            reached = _own_values(there)
            kept += [(int(group), level) for group in moved if reached[group] > values[group] - WITHIN]
    return kept


def _own_values(point: ChoicePoint) -> Floats:
    """Return the log-likelihood of each discount's experts."""
    model = point.likelihood
    return np.bincount(model.groups, model.person_values(point), model.n_discounts) / 1.0


def maximize(
    likelihood: Likelihood,
    starts: int,
    run: Run,
    extra: Sequence[Floats] = (),
    give_up: bool = False,
) -> tuple[Ascent[Point], list[Ascent[Point]]]:
    """Return the best end of climbs from `starts` scattered points and from `extra` ones, and distinct ends of all of them.

    Some climbs begin at small, some at middling and some at large discounts. Those that came to the same place are one after the
    first round, half of the rest are given up, and all but the best after the second. Estimated transitions give way once the
    rest is near. With `give_up` a climb whose rewards run away is broken off early.
    """
    # Fewer starts are tried and climbed where a step takes long.
    tried, climbed = 4 * starts, (3 * starts + 1) // 2
    if likelihood.n_reward > 150 or sum(batch.mdp.n_states * batch.owners.size for batch in likelihood.batches) > 20_000:
        tried = 0 if likelihood.is_large else starts
        climbed = max(1, starts // 2)
    first, second = 8, 30  # steps of the first and the second round
    held = likelihood.held() if likelihood.moves else likelihood
    points = spread_over_levels(list(_tried(held, tried, np.random.default_rng(run.seed))), climbed)
    points += [p for p in (held.at(x[: held.size]) for x in extra) if p is not None]
    if not points:
        raise ValueError("no starting point has finite soft values: check that the rewards' features and the transitions agree")
    ends: list[Ascent[Point]] = []
    for number, point in enumerate(points, start=1):
        part = run.part(0.5 * (number - 1) / len(points), 0.5 * number / len(points))
        ends.append(end := climb(point, max_steps=first, progress=part.progress))
        run.progress(0.5 * number / len(points), f"start {number} of {len(points)}: {decimals(end.point.objective, 2)}")
    ends = distinct(_each_further(distinct(ends)[:starts], second))
    run.progress(0.9, f"log-likelihood {decimals(max(end.point.value for end in ends), 2)}")
    if likelihood.moves:
        ends = distinct(_each_further([_giving_way(likelihood, end) for end in ends], second))
    best, *others = ends
    # Rewards run away where some action in a visited state has become so unlikely.
    runs_away = min(float((plan.finite_log * (plan.persons.visits > 0)).min()) for plan in best.point.plans) < -30
    if not best.finished and not (give_up and runs_away):
        best = _further(best, 300, progress=run.part(0.9, 1.0).progress)
    run.progress(1.0, f"log-likelihood {decimals(best.point.value, 2)}")
    return best, [best, *others]


def compared_with_profile(
    best: Ascent[Point], ends: Sequence[Ascent[Point]], run: Run | None = None
) -> tuple[Ascent[Point], list[Ascent[Point]]]:
    """Return the best end and all distinct ones once the profile over each discount has been looked at (`likelihood.search`)."""
    run = run or Run()
    likelihood = best.point.likelihood
    held = likelihood
    top = best.point
    if likelihood.moves:
        held = likelihood.held()
        start = held.at(top.x[: held.size])
        if start is None:
            return best, list(ends)
        top = climb(start, max_steps=60, gain=1e-2).point
    temperatures = np.exp(top.x[held.temperature_slice])

    def begin(discounts: Floats) -> Point | None:
        return choice_probability_start(held, discounts, temperatures)

    reached: list[Ascent[Point]] = []
    for start in candidates(top, begin, run.part(0.0, 0.7)):
        reached.append(climb(start, max_steps=60, gain=1e-2, worth=top.objective - WITHIN))
    others = [end for end in elsewhere(reached, top) if end.point.objective > top.objective - WITHIN]
    for number, place in enumerate(others, start=1):
        start = _giving_way(likelihood, place).point if likelihood.moves else place.point
        end = climb(start, worth=best.point.objective - WITHIN)
        ends = [*ends, end]
        best = max(best, end, key=lambda one: one.point.objective)
        run.progress(0.7 + 0.3 * number / len(others), f"log-likelihood {decimals(best.point.value, 2)}")
    return best, [best, *elsewhere(ends, best.point)]


def _giving_way(likelihood: Likelihood, end: Ascent[Point]) -> Ascent[Point]:
    """Return the same place where transitions may give way."""
    start = likelihood.at(np.concatenate([end.point.x, np.zeros(likelihood.n_transitions)]))
    assert start is not None
    return replace(end, point=start, finished=False)


def _each_further(ends: Sequence[Ascent[P]], max_steps: int) -> list[Ascent[P]]:
    """Return the climbs carried on, the most likely first; those that cannot come near the best are broken off."""
    reached: list[Ascent[P]] = []
    for end in ranked(ends):
        worth = max((other.point.objective for other in reached), default=-np.inf) - WITHIN
        reached.append(end if end.finished else _further(end, max_steps, worth=worth))
    return reached


def _further(end: Ascent[P], max_steps: int, progress: Progress = silent, worth: float = -np.inf) -> Ascent[P]:
    """Return the climb carried on for so many more steps."""
    more = climb(end.point, max_steps=max_steps, progress=progress, worth=worth)
    return replace(more, steps=end.steps + more.steps)


def _is_hard(likelihood: Likelihood) -> bool:
    """Return whether a task links its states without any order, or has a single action in many of very many states."""
    tasks = {batch.task: batch.mdp for batch in likelihood.batches}.values()
    single = max(float((mdp.available.sum(axis=1) == 1).mean()) for mdp in tasks)
    return not all(mdp.narrow for mdp in tasks) or (likelihood.is_large and single > 0.1)


def _closed_form(likelihood: Likelihood) -> list[Floats]:
    """Return the start of the closed form where there are few experts and its equations are linear: with features they are not,
    and neither are they where moves take time. In hard tasks it costs more than all climbs.
    """
    problem = likelihood.problem
    timed = any(batch.mdp.durations is not None for batch in likelihood.batches)
    if timed or likelihood.fixed[: likelihood.n_reward].any() or problem.n_experts > 12 or not problem.tabular:
        return []
    if _is_hard(likelihood):
        return []
    try:
        start = closed_form_start(problem)
    except ValueError:  # the frequencies' equations cannot be solved; the other starts remain
        return []
    grouped = np.bincount(likelihood.groups, start.discounts) / np.bincount(likelihood.groups)
    return [likelihood.pack(start.reward, grouped)]


def _tried(likelihood: Likelihood, count: int, rng: np.random.Generator) -> Iterator[Point]:
    """Starts at scattered discounts: all experts alike, each at their own best, and a sequence that sets them apart.

    Where all discounts are known there is nothing to scatter, and one start. With many experts there are too many combinations.
    """
    given = likelihood.known[likelihood.discount_slice]
    n = likelihood.n_discounts
    tried: list[Floats] = [] if np.isnan(given).any() else [given]
    if not tried:
        for level in (0.1, 0.5, 0.9):
            alike = choice_probability_start(likelihood, np.full(n, level))
            if alike is not None:
                yield alike
                tried.append(own_discounts(alike))
        if n <= 12 and count:
            tried += list(0.98 * halton(n, count, rng.spawn(1)[0]))
    for discounts in tried:
        point = choice_probability_start(likelihood, discounts)
        if point is not None:
            yield point


def choice_probability_start(likelihood: Likelihood, discounts: Floats, temperatures: Floats | None = None) -> Point | None:
    """Return the model at given discounts (one for each group) with the reward that fits the smoothed frequencies best.

    None where the soft values are infinite. With many rewards the normal equations are solved by products.
    """
    d = likelihood.n_reward
    x = likelihood.pack(np.zeros(d), discounts, temperatures)
    if likelihood.settings.reward is None:
        plans = [_frequencies(likelihood, batch, x) for batch in likelihood.batches]
        ridge = 1e-6  # relative to the mean diagonal of the normal equations: states without data get 0
        if likelihood.by_products:  # the information at the frequencies, as if they were a plan
            point = Point(likelihood.holding(None, likelihood.ridge), x, tuple(plan for plan, _ in plans), np.nan, np.nan)
            vars(point)["weights"] = tuple(plan.persons.visits * plan.policy for plan, _ in plans)
            weights = [np.where(w > 0, w * wanted, 0.0) for w, (_, wanted) in zip(point.weights, plans, strict=True)]
            x[:d] = point.products().solve(point.pull_back(weights), np.arange(x.size) < d, ridge, tol=1e-6)[:d]
        else:
            normal, target = np.zeros((d, d)), np.zeros(d)
            for plan, wanted in plans:
                batch, n = plan.persons, plan.lam.size
                roots = np.sqrt((batch.visits * plan.policy).reshape(-1, n)[batch.visited_rows])
                design = (plan.score_rows()[:, :, :-2] * roots[:, :, None]).reshape(roots.size, -1)
                used = batch.features.used
                normal[np.ix_(used, used)] += design.T @ design
                target[used] += design.T @ (wanted.reshape(-1, n)[batch.visited_rows] * roots).ravel()
            normal[np.diag_indices_from(normal)] += likelihood.ridge
            sizes = likelihood.feature_sizes
            normal /= np.outer(sizes, sizes)
            normal[np.diag_indices_from(normal)] += ridge * max(float(np.trace(normal)) / max(d, 1), 1e-12)
            x[:d] = la.solve(normal, target / sizes, assume_a="pos", check_finite=False) / sizes
    for back in (0.0, 1e-3, 1e-2, 1e-1, 0.3):  # discounts are drawn back from 1 where the soft values there are infinite
        tried = x.copy()
        tried[likelihood.discount_slice] = np.minimum(x[likelihood.discount_slice], 1 - back)
        start = likelihood.at(np.clip(tried, likelihood.lower, likelihood.upper))
        if start is not None:
            return start
    return None


def _frequencies(likelihood: Likelihood, batch: Persons, x: Floats) -> tuple[Plans, Floats]:
    """Return the smoothed frequencies of a batch as a plan, and `log π̂` less what is known of the model's `(A,S,n)`."""
    gamma = np.minimum(likelihood.discounts(x)[batch.owners], 0.99)  # nearer to 1 the values of noisy frequencies explode
    lam = likelihood.temperatures(x)[batch.owners]
    batch = batch.pooled().at(max(float(gamma[0]), batch.mdp.least_discount))
    policy = smoothed_policy(batch.mdp, batch.counts)
    log = np.log(np.where(policy > 0, policy, 1.0))
    plan = Plans(batch, np.zeros((batch.mdp.n_states, gamma.size)), np.where(policy > 0, log, -np.inf), gamma, lam)
    # Solves are with the frequencies themselves: exp(log π̂) has other last digits, and a climb that does not end magnifies them.
    vars(plan)["resolvents"] = batch.engine.resolvents(policy, gamma)
    vars(plan)["backup"] = plan.policy, lam * plan.entropy  # soft values will do for a start, whatever values the model has
    paid = batch.known_reward.reshape(*log.shape[:2], 1)
    source = np.where(batch.mdp.terminal[:, None], 0.0, (policy * paid).sum(axis=0) + lam * plan.entropy)
    values = plan.resolvents.solve(source[:, :, None])[:, :, 0]
    without_reward = paid + gamma * (batch.mdp.stacked @ values).reshape(log.shape) - values
    return plan, log - without_reward / lam


def smoothed_policy(mdp: MDP, counts: Floats) -> Floats:
    """Return frequencies `(A,S,n)` of the available actions, mixed with one decision of an indifferent expert in each state."""
    uniform = mdp.available / mdp.available.sum(axis=1, keepdims=True)
    policy: Floats = (counts + uniform.T[:, :, None]) / (counts.sum(axis=0) + 1)
    return policy


def own_discounts(point: Point) -> Floats:
    """Return for each group the most likely of some discounts, at the point's reward and temperatures."""
    model = point.likelihood
    tried = np.array([0.0, 0.2, 0.4, 0.6, 0.75, 0.85, 0.92, 0.97, 1.0])
    scores = np.full((tried.size, model.n_discounts), -np.inf)
    for i, discount in enumerate(tried):
        x = point.x.copy()
        x[model.discount_slice] = discount
        there = model.at(np.clip(x, model.lower, model.upper))
        if there is not None:
            scores[i] = np.bincount(model.groups, model.person_values(there), model.n_discounts)
    best: Floats = tried[scores.argmax(axis=0)]
    return best
