"""Experts fitted one by one where the reward is known: the most likely discount and temperature of each, and its interval.

Where the reward is known in full and nobody shares a discount or a temperature, the likelihood is a product over people, and its
maximum is that of each person. It is the maximum that a climb of all parameters together finds, at a cost that grows with the
number of people and no faster: no matrix of all parameters, and nobody waits for the slowest.

Given the reward people are independent, and `ℓ_i(γ, log λ)` is a function of two numbers. With ψ the rows of d log π its
gradient is `Σ N ψ` and the Fisher information `Σ n π ψψᵀ`: one plan and two solves for each person, many people together. Where
to begin is read from one table of policies on a grid of (γ, log λ) that all people share: with P the table, `N_i P` has
ℓ_i at every place of the grid.

Each person begins at the likeliest places of a grid that all share, on 16 discounts and 24 temperatures: the likeliest, and
others that none of their neighbours exceeds, if they are not far below. From there each climbs on plans of their
own to the exact maximum (`numerics.newton`). Temperatures are looked for relative to the range of the known reward, so that its
unit does not matter. Whom two ends with different discounts fit equally well is not identified.

*Who goes on forever.* In a task that can end, a soft value at discount 1 is infinite where going on pays. Near 1 it has lost its
digits. There the largest discount is that of endless tasks.

*Separation.* Whoever always takes the best action is the likelier the lower the temperature: it has no maximum. Their decisions
are certain at all discounts at which these actions are best, and at no others: the discount is known to a range, its profile
interval, and not to a number. Whoever chooses without regard to the reward is as likely at the highest temperature, and of their
discount nothing is known.

*Failures.* People share nothing, so they fail alone: whose climb did not end has no answer, and everybody else keeps theirs.

*Errors and intervals.* The information is a matrix `(2,2)` for each person. Profiles are those of `numerics.newton`, for many
people at once and with the signed root to a millionth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from scipy.special import logit

from multihorizon.checks import ENDLESS_DISCOUNT, TINY, Bools, Floats, Ints, Sparse, as_level, first_few
from multihorizon.choice.model import log_temperature_bounds, usual_temperature
from multihorizon.choice.plans import Choosing, Habits, Own, Persons, Plans
from multihorizon.choice.settings import Settings
from multihorizon.choice.surfaces import Tables
from multihorizon.estimate import (
    Draws,
    Estimate,
    ExpertValues,
    Intervals,
    NamedValues,
    dealt,
    parameters_of,
)
from multihorizon.likelihood.estimates import FamilyParameters, LikelihoodEvidence, known_planner, numbers_or_none
from multihorizon.likelihood.search import CONVERGED_GRADIENT
from multihorizon.numerics.distributions import chi2_ppf
from multihorizon.numerics.newton import Ends, Local, at_bounds, maximize_many, of_some, profile_ends
from multihorizon.parallel import Progress, limits, silent
from multihorizon.planning.linear import SingularError
from multihorizon.problem import Problem
from multihorizon.solution import Solution, Status
from multihorizon.words import decimals, power_of_ten


def table_on(tables: Tables, gamma: Floats, log_temperatures: Floats) -> Floats:
    """Return `log π` `(rows,G·H)` at all pairs of discounts `(G,)` and log-temperatures `(H,)`; −inf where a soft value is
    infinite.
    """
    with np.errstate(divide="ignore"):
        x = logit(gamma / tables.largest)
    return tables.exact(np.array([(a, b) for a in x for b in log_temperatures]))


def persons_together(tables: Tables) -> int:
    """Return how many people are taken together, each with a few starts: as many as have soft values of some million numbers."""
    states = sum(planner.mdp.n_states for planner in tables.planners)
    return int(np.clip(limits().block // states, 16, 4096))


def at_places(tables: Tables, counts: Sparse, places: Floats) -> Local:
    """Return what is known of people with these counts `(n,rows)`, each at a place `(n,2)`."""
    n = len(places)
    known_there = Local(np.zeros(n), np.zeros((n, 2)), np.zeros((n, 2, 2)))
    for who in np.array_split(np.arange(n), max(1, -(-n // persons_together(tables)))):
        there = FromPlans(tables, counts[who])(np.arange(who.size), places[who])
        known_there.put(who, there, np.ones(who.size, dtype=np.bool_))
    return known_there


class FromPlans:
    """ℓ of people with these counts `(n,rows)` at places (γ, log λ), planned there."""

    def __init__(self, tables: Tables, counts: Sparse) -> None:
        self.tables, self.counts = tables, counts
        #: The soft values `(S,n)` of each task that were found last, at which the next plans begin.
        self._values = [np.full((planner.mdp.n_states, counts.shape[0]), np.nan) for planner in tables.planners]

    def __call__(self, who: Ints, places: Floats) -> Local:
        """Return value, gradient and Fisher information; −inf where a soft value is infinite."""
        m = who.size
        local = Local(np.zeros(m), np.zeros((m, 2)), np.zeros((m, 2, 2)))
        for task, planner in enumerate(self.tables.planners):
            # as many people together as have derivatives of a million numbers
            size = max(1, 1_000_000 // (2 * planner.mdp.n_actions * planner.mdp.n_states)) if planner.mdp.durations is None else 1
            for low in range(0, m, size):
                self._add(local, task, who, places, np.arange(low, min(low + size, m)))
        return local

    def _add(self, local: Local, task: int, who: Ints, places: Floats, part: Ints) -> None:
        """Add what the decisions in one task say of some of the people."""
        planner, persons = self.tables.planners[task], who[part]
        begin = self._values[task][:, persons]
        gamma = places[part, 0]
        lam = np.exp(places[part, 1])
        everybody = replace(planner, owners=np.arange(part.size))
        placed = everybody.at(float(gamma[0]))  # one by one where moves take time
        near = None if np.isnan(begin).any() else Plans(placed, begin, begin, gamma, lam)
        plans = placed.plan(self.tables.theta, gamma, lam, near, self.tables.choosing.habits)
        scores = None if plans is None else _scores(plans, self.tables, everybody)
        if (plans is None or scores is None) and part.size > 1:  # some of them have infinite values
            for half in np.array_split(part, 2):
                self._add(local, task, who, places, half)
            return
        if plans is None or scores is None:
            local.value[part] = -np.inf
            return
        self._values[task][:, persons] = plans.values
        first = sum(self.tables.sizes[:task])
        rows = slice(first, first + self.tables.sizes[task])
        counts = self.counts[persons][:, rows].toarray()
        log = plans.log.reshape(-1, part.size)[planner.visited_rows]
        expected = (self.tables.same_state[rows, rows] @ counts.T) * np.exp(log)
        local.value[part] += (counts * log.T).sum(axis=1)
        local.gradient[part] += np.einsum("nr,rnk->nk", counts, scores)
        local.curvature[part] += np.einsum("rn,rnk,rnl->nkl", expected, scores, scores, optimize=True)


def _scores(plans: Plans, tables: Tables, everybody: Persons) -> Floats | None:
    """Return `d log π` in the rows of visited states; None where somebody goes on forever, to the last digit, without
    discounting.

    A planner of somebody's own has no derivatives: those are differences.
    """
    persons, rows, step = plans.persons, plans.persons.visited_rows, 1e-4
    if isinstance(persons.engine, Own):
        scores = []
        for by_gamma, by_lam in ((step, 0.0), (0.0, step)):
            least = everybody.mdp.least_discount
            ends = [np.clip(plans.gamma + sign * by_gamma, least, tables.largest) for sign in (1, -1)]
            sides = [
                everybody.at(float(gamma[0])).plan(
                    tables.theta, gamma, plans.lam * np.exp(sign * by_lam), None, tables.choosing.habits
                )
                for sign, gamma in zip((1, -1), ends, strict=True)
            ]
            width = ends[0] - ends[1] if by_gamma else 2 * step
            logs = [side.log.reshape(-1, plans.lam.size)[rows] for side in sides if side is not None]
            scores.append((logs[0] - logs[1]) / width)
        return np.stack(scores, axis=2)
    try:
        return plans.score_rows()
    except (np.linalg.LinAlgError, SingularError):
        return None


#: How much less likely than another place one may be that counts as equally likely.
AS_LIKELY = 1e-3


class PersonsApart:
    """People with a known reward, and between which discounts and log-temperatures each may be.

    Attributes:
        tables: what plans for them.
        counts: their decisions `(n,rows)`.
        usual: the temperature that is usual with this reward.
        lower, upper: bounds `(n,2)` of (γ, log λ); what is known has one value.
    """

    def __init__(self, problem: Problem, settings: Settings) -> None:
        assert settings.reward is not None
        problem = problem.by_person()
        self.largest = problem.largest_discount
        habits = Habits(settings.lapse, settings.stickiness) if settings.has_habits else None
        none, choosing = np.zeros(0, dtype=np.int64), Choosing(settings.value, habits)
        self.tables = Tables(problem.tasks, self.largest, settings.reward, none, choosing=choosing)
        self.counts: Sparse = self.tables.counts(problem.tasks)
        n = problem.n_experts
        none = np.full(problem.n_experts, np.nan)
        temperatures = np.ones(n) if settings.temperatures is None else settings.temperatures
        given = np.stack([none if settings.discounts is None else settings.discounts, np.log(temperatures)], axis=1)
        self.fixed: Bools = ~np.isnan(given)
        least = max(planner.mdp.least_discount for planner in self.tables.planners)
        paid = max(planner.range_of(settings.reward) for planner in self.tables.planners)
        self.usual = usual_temperature(paid)
        coldest, hottest = log_temperature_bounds(self.usual, paid)
        self.lower: Floats = np.where(self.fixed, given, [least, coldest])
        self.upper: Floats = np.where(self.fixed, given, [self.largest, hottest])

    def fit(self, progress: Progress = silent) -> PersonsFit:
        """Return the maximum of each person."""
        n = len(self.lower)
        grid = _Grid(self)
        nobody = np.zeros(n, dtype=np.bool_)
        maxima = PersonsFit(
            np.zeros((n, 2)),
            Local(np.zeros(n), np.zeros((n, 2)), np.zeros((n, 2, 2))),
            np.zeros(n, dtype=np.int64),
            nobody.copy(),
            np.full(n, np.nan),
            [],
            nobody.copy(),
            nobody.copy(),
        )
        size = persons_together(self.tables)
        for low in range(0, n, size):
            self._climb(np.arange(low, min(low + size, n)), grid, maxima)
            progress(min(1.0, (low + size) / n), f"{min(low + size, n):,} of {n:,} persons")
        return maxima

    def _climb(self, who: Ints, grid: _Grid, maxima: PersonsFit) -> None:
        """Climb from the starts of some people, and keep each one's best end."""
        owner, places, along = grid.starts(who)
        here = FromPlans(self.tables, self.counts[who[owner]])
        ends = self._within_reach(here, who[owner], maximize_many(here, places, *self._bounds(who[owner]), gain=1e-13))
        # the best end of each person comes first
        order = np.lexsort((-ends.here.value, owner))
        first = order[np.unique(owner[order], return_index=True)[1]]
        maxima.places[who], maxima.steps[who], maxima.finished[who] = ends.places[first], ends.steps[first], ends.finished[first]
        maxima.here.put(who, ends.here.of(first), np.ones(who.size, dtype=np.bool_))
        best = first[owner]
        as_likely = ends.finished & (ends.here.value >= ends.here.value[best] - AS_LIKELY)
        # Other places may lie inside an interval of any level that is asked for.
        likely = along.values > maxima.here.value[who][along.owner] - 12.0
        maxima.along.append(OtherPlaces(who[along.owner[likely]], along.places[likely], along.values[likely]))
        maxima.along.append(OtherPlaces(who[owner[ends.finished]], ends.places[ends.finished], ends.here.value[ends.finished]))
        as_likely &= np.abs(ends.places[:, 0] - ends.places[best, 0]) > 0.02
        maxima.another[who[owner[as_likely]]] = ends.places[as_likely, 0]
        self._to_the_ends(who, maxima)

    def _bounds(self, who: Ints) -> tuple[Floats, Floats]:
        return self.lower[who], self.upper[who]

    def _within_reach(self, here: FromPlans, who: Ints, ends: Ends) -> Ends:
        """Return the same ends; of climbs towards a discount of 1, where `who` would go on forever, others below."""
        far = np.flatnonzero((ends.places[:, 0] > ENDLESS_DISCOUNT) & ~self.fixed[who, 0])
        at_one = ends.places[far].copy()
        at_one[:, 0] = 1.0
        forever = far[~np.isfinite(here(far, at_one).value)] if far.size else far
        if not forever.size:
            return ends
        self.upper[who[forever], 0] = ENDLESS_DISCOUNT
        lower, upper = self._bounds(who[forever])
        again = maximize_many(
            partial(of_some, here, forever), np.clip(ends.places[forever], lower, upper), lower, upper, gain=1e-13
        )
        ends.places[forever], ends.steps[forever], ends.finished[forever] = again.places, again.steps, again.finished
        ends.here.put(forever, again.here, np.ones(forever.size, dtype=np.bool_))
        return ends

    def _to_the_ends(self, who: Ints, maxima: PersonsFit) -> None:
        """See who is as likely at a temperature below all that are tried, and who at the highest."""
        here = FromPlans(self.tables, self.counts[who])
        (lower, upper) = self._bounds(who)
        for mask, logs in ((maxima.separated, lower[:, 1] - 3.0), (maxima.hottest, upper[:, 1])):
            there = here(np.arange(who.size), np.stack([maxima.places[who, 0], logs], axis=1))
            mask[who] = ~self.fixed[who, 1] & (there.value >= maxima.here.value[who] - AS_LIKELY)
        maxima.hottest[maxima.separated] = False  # there was nothing to choose


@dataclass(frozen=True, eq=False)
class PersonsFit:
    """The maxima of people.

    Attributes:
        places: γ and log λ `(n,2)`.
        here: what is known there, with the Fisher information.
        steps, finished: of the climbs.
        another: another discount that is as likely `(n,)`; NaN where there is none.
        along: where climbs ended, and the likeliest places of the grid at each discount.
        separated, hottest: who is as likely at a temperature below all that are tried, and who at the highest.
    """

    places: Floats
    here: Local
    steps: Ints
    finished: Bools
    another: Floats
    along: list[OtherPlaces]
    separated: Bools
    hottest: Bools

    @property
    def others(self) -> OtherPlaces:
        """Return other places than the maxima."""
        parts = zip(*((part.owner, part.places, part.values) for part in self.along), strict=True)
        return OtherPlaces(*(np.concatenate(part) for part in parts))

    def slopes(self, model: PersonsApart) -> Floats:
        """Return the largest entry of each person's gradient `(n,)`, leaving out what is known or rests on a bound.

        A parameter that is known to less than 1 is measured in its standard errors: near a discount of 0 or 1 it may be known to
        a millionth.
        """
        free = ~at_bounds(self.places, self.here.gradient, model.lower, model.upper) & ~model.fixed
        sizes = np.sqrt(np.maximum(np.diagonal(self.here.curvature, axis1=1, axis2=2), 1.0))
        largest: Floats = np.where(free, np.abs(self.here.gradient) / sizes, 0.0).max(axis=1)
        return largest


class _Grid:
    """One table of policies for everybody, from which starts are read."""

    def __init__(self, model: PersonsApart) -> None:
        self.model = model
        shares = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995, 0.999, 0.9999, 1.0])
        logs = np.array([*np.linspace(-6, 4, 21), 5.0, 6.5, 8.0])
        # what is known and the same for many has a place on the grid
        given = [np.unique(model.lower[model.fixed[:, k], k]) for k in (0, 1)]
        self.gamma, self.logs = (
            np.union1d(nodes, extra) if extra.size <= 5 else nodes
            for nodes, extra in zip((model.largest * shares, logs + np.log(model.usual)), given, strict=True)
        )
        self.table = table_on(model.tables, self.gamma, self.logs)

    def starts(self, who: Ints) -> tuple[Ints, Floats, OtherPlaces]:
        """Return whose starts they are, as numbers among `who`, and where `(K,2)`; and everybody's likeliest place at each
        discount.
        """
        model, g, h = self.model, self.gamma.size, self.logs.size
        value = (model.counts[who] @ self.table).reshape(-1, g, h)
        # what is known leaves the nearest nodes
        for axis, nodes in ((0, self.gamma), (1, self.logs)):
            held = model.fixed[who, axis]
            gap = np.abs(nodes - model.lower[who, axis, None])
            away = held[:, None] & (gap > gap.min(axis=1, keepdims=True))
            value[np.broadcast_to(away[:, :, None] if axis == 0 else away[:, None, :], value.shape)] = -np.inf
        padded = np.pad(value, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
        around = [padded[:, 1 + a : 1 + a + g, 1 + b : 1 + b + h] for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]
        top = value.max(axis=(1, 2), keepdims=True)
        # between the places of the grid a person may be a few units likelier than on them
        peak = (value >= np.max(around, axis=0)) & (value >= top - 5.0) & np.isfinite(value)
        owner, i, j = np.nonzero(peak)
        order = np.lexsort((-value[owner, i, j], owner))
        rank = np.arange(order.size) - np.searchsorted(owner[order], owner[order])
        kept = order[rank < 4]
        places = np.stack([self.gamma[i[kept]], self.logs[j[kept]]], axis=1)
        bounds = model.lower[who[owner[kept]]], model.upper[who[owner[kept]]]
        best = value.argmax(axis=2)
        number, place = np.nonzero(np.isfinite(np.take_along_axis(value, best[:, :, None], axis=2)[:, :, 0]))
        warm = best[number, place]
        along = OtherPlaces(number, np.stack([self.gamma[place], self.logs[warm]], axis=1), value[number, place, warm])
        return owner[kept], np.clip(places, *bounds), along


class Reason:
    """Why there is no number for a person's discount, as `reasons` has it."""

    UNFINISHED = "the search did not end"
    SEPARATED = "always the best action"
    RANDOM = "chooses without regard to the reward"
    COLDEST = "the lower the temperature, the likelier"
    ANOTHER = "another discount is as likely"
    FLAT = "the likelihood is flat"


def persons_solution(problem: Problem, model: PersonsApart, maxima: PersonsFit) -> Solution:
    """Return what is known of people who were fitted one by one."""
    precise = precision_apart(maxima.here.curvature, model.fixed)
    slopes = maxima.slopes(model)
    discounts = maxima.places[:, 0]
    twice = np.isfinite(maxima.another)
    converged = maxima.finished & (slopes <= CONVERGED_GRADIENT * model.counts.sum(axis=1))
    coldest = ~model.fixed[:, 1] & (maxima.places[:, 1] <= model.lower[:, 1])
    lost = (coldest | maxima.separated | maxima.hottest | ~precise.identified[:, 1]) & ~model.fixed[:, 1]
    reasons = np.full(discounts.size, "", dtype=object)
    reasons[~precise.identified[:, 0] | lost] = Reason.FLAT
    reasons[twice] = Reason.ANOTHER
    reasons[coldest] = Reason.COLDEST
    reasons[maxima.separated] = Reason.SEPARATED
    reasons[maxima.hottest] = Reason.RANDOM
    reasons[model.fixed[:, 0]] = ""
    reasons[~converged] = Reason.UNFINISHED
    identified = reasons == ""
    status = Status.CONVERGED if identified.all() and not lost.any() else Status.NOT_IDENTIFIED
    value, decisions = float(maxima.here.value[converged].sum()), float(model.counts[converged].sum())
    residual = float(slopes[converged].max(initial=0.0)) / max(decisions, 1.0)
    message = [
        f"Log-likelihood {decimals(value, 2)} of {decimals(decisions, 0)} decisions, gradient "
        f"{power_of_ten(residual)} per decision."
    ]
    message += left_open(problem.names, reasons.tolist())
    other = np.where(twice, maxima.another, discounts)
    reward = model.tables.theta
    evidence = LikelihoodEvidence(
        log_likelihood=value,
        decisions=decisions,
        identified=identified.tolist(),
        reasons=reasons.tolist(),
        known={"discounts": model.fixed[:, 0].tolist(), "temperatures": model.fixed[:, 1].tolist(), "reward": "all"},
        unidentified_directions=0,
        information_spectrum=precise.spectrum.tolist(),
        reward_standard_errors=[0.0] * reward.size,
        ridge=0.0,
        ridge_weights=[0.0] * reward.size,
        ridge_reason="",
        temperature_spread=None,
        equal_temperatures_p=None,
        lost_temperatures=lost.tolist(),
        log_temperature_errors=numbers_or_none(np.where(lost, np.nan, precise.standard_errors[:, 1])),
        transition_widening=[1.0] * discounts.size,
        transitions=[],
        lookahead=FamilyParameters(family="exponential", parameters={"discount": discounts.tolist()}),
        steps=int(maxima.steps.max()),
        starts=[_end(value, discounts, maxima)],
        equally_likely=[_end(value, other, maxima)] if twice.any() else [],
        planner=known_planner(model.tables.choosing),
    )
    estimate = ApartEstimate(
        model.tables,
        model.counts,
        model.lower,
        model.upper,
        maxima.places,
        maxima.here,
        precise.standard_errors[:, 0],
        identified | (reasons == Reason.SEPARATED) | (reasons == Reason.COLDEST),
        maxima.others,
        problem.names,
        reward.copy(),
    )
    return Solution.of(
        "MaximumLikelihood",
        problem,
        estimate,
        status if converged.any() else Status.NOT_CONVERGED,
        message,
        objective=value,
        residual=residual,
        evidence=evidence,
        standard_errors=np.where(identified, precise.standard_errors[:, 0], np.nan),
    )


def left_open(names: Sequence[str], reasons: Sequence[str]) -> list[str]:
    """Return sentences on discounts that the decisions do not identify, by the reasons why."""
    why = {
        Reason.ANOTHER: "The discounts of {} are not identified: other discounts are as likely.",
        Reason.FLAT: "The discounts of {} are not identified: the likelihood is flat in their direction.",
        Reason.SEPARATED: "{} always took an action that is best at some discount: the discount is known to a range, and the "
        "temperature only to be low.",
        Reason.COLDEST: "The lower the temperature of {}, the likelier are their decisions, with discounts that follow: the "
        "discount is known to a range at most.",
        Reason.RANDOM: "{} chose without regard to the known reward, so that neither the temperature nor the discount is "
        "identified.",
        Reason.UNFINISHED: "The optimiser stopped before converging for {}: they have no answer{others}.",
    }
    others = "" if all(each == Reason.UNFINISHED for each in reasons) else ", and all others keep theirs"
    those = {reason: [name for name, each in zip(names, reasons, strict=True) if each == reason] for reason in why}
    return [sentence.format(first_few(those[reason]), others=others) for reason, sentence in why.items() if those[reason]]


def _end(value: float, discounts: Floats, maxima: PersonsFit) -> dict[str, object]:
    steps = int(maxima.steps.max())
    finished = bool(maxima.finished.all())
    return {"log_likelihood": value, "discounts": discounts.tolist(), "steps": steps, "finished": finished}


@dataclass(frozen=True, eq=False)
class PrecisionApart:
    """Standard errors and what is identified, both `(n,2)`, of people who share nothing; and the spectrum of the information.

    As in `Precision`, errors are 0 for what is known and NaN for what is not identified. `nullity` counts the directions, of all
    people, of which the decisions say nothing.
    """

    standard_errors: Floats
    identified: Bools
    spectrum: Floats
    nullity: int


def precision_apart(information: Floats, fixed: Bools) -> PrecisionApart:
    """Return the same from the Fisher information `(n,2,2)` of each person, where some parameters `(n,2)` are known."""
    diagonal = np.diagonal(information, axis1=1, axis2=2)
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = information / (scale[:, :, None] * scale[:, None, :])
    # what is known is far from everything else, and comes last
    scaled[fixed[:, 0] | fixed[:, 1], 0, 1] = scaled[fixed[:, 0] | fixed[:, 1], 1, 0] = 0.0
    for k in (0, 1):
        scaled[fixed[:, k], k, k] = 10.0
    values, vectors = np.linalg.eigh(scaled)
    free = values < 5.0
    largest = float(values[free].max(initial=0.0))
    open_ = free & (values <= 1e-12 * largest)
    share = np.where(open_[:, None, :], np.abs(vectors), 0.0)
    identified = fixed | (np.sqrt((share**2).sum(axis=2)) <= 1e-3)
    inverse = np.where(free & ~open_, 1 / np.where(open_, 1.0, values), 0.0)
    errors = np.sqrt((vectors**2 * inverse[:, None, :]).sum(axis=2)) / scale
    return PrecisionApart(np.where(identified, errors, np.nan), identified, np.sort(values[free]), int(open_.sum()))


@dataclass(frozen=True, eq=False)
class OtherPlaces:
    """Places where people are likely to be besides their maximum: whose they are `(K,)`, where `(K,2)`, the values `(K,)`."""

    owner: Ints
    places: Floats
    values: Floats

    def above(self, who: Ints, least: Floats) -> tuple[Ints, Floats]:
        """Return of some people, the places whose values are above each one's least `(n,)`, with their numbers among `who`."""
        place = np.full(max(int(self.owner.max(initial=-1)), int(who.max(initial=-1))) + 1, -1)
        place[who] = np.arange(who.size)
        number = place[self.owner]
        kept = np.flatnonzero((number >= 0) & (self.values > np.append(least, np.inf)[number]))
        return number[kept], self.places[kept]


@dataclass(frozen=True, eq=False)
class ProfilesApart(Intervals):
    """Profile-likelihood intervals of the discounts of people who share nothing but a known reward.

    Attributes:
        tables, counts: what plans for the people, and their decisions `(n,rows)`.
        lower, upper: bounds `(n,2)` of (γ, log λ).
        places, here: the maxima `(n,2)`, and what is known there.
        errors: standard errors of the discounts `(n,)`.
        known: of whom there is an interval `(n,)`.
        others: other places. An interval reaches at least to the farthest that are inside, across places that are not.
    """

    tables: Tables
    counts: Sparse
    lower: Floats
    upper: Floats
    places: Floats
    here: Local
    errors: Floats
    known: Bools
    others: OtherPlaces

    def compute(self, level: float) -> Floats:
        """Return all of them."""
        *_, intervals = self.by_blocks(level)
        return intervals

    def by_blocks(self, level: float, jobs: int = 1) -> Iterator[Floats]:
        """Yield the intervals `(n,2)` as they come, many people at a time, with NaN for the rest; all of them are kept.

        People are few milliseconds of work, and `jobs` would not make them fewer.
        """
        target = float(np.sqrt(chi2_ppf(as_level(level), 1)))
        given = self.lower[:, 0] == self.upper[:, 0]
        intervals = np.where(given[:, None], self.places[:, [0, 0]], np.nan)
        wanted = np.flatnonzero(self.known & ~given)
        for who in np.array_split(wanted, max(1, -(-wanted.size // persons_together(self.tables)))):
            for side, sign in enumerate((-1, 1)):
                intervals[who, side] = self._ends(who, sign, target)
            yield intervals.copy()
        self.computed[level] = intervals

    def _ends(self, who: Ints, sign: int, target: float) -> Floats:
        """Return the lower (sign −1) or upper (1) ends of some people; NaN where they are not found."""
        errors = np.where(self.errors[who] < 0.3, self.errors[who], 0.3)
        first = np.maximum(target * errors, 1e-4)
        plans = FromPlans(self.tables, self.counts[who])
        lower = self.lower[who]
        upper = self.upper[who]
        begin, top = self._farthest(who, sign, target, plans)
        ends, ended = profile_ends(plans, begin, top, first, target, sign, lower, upper)
        if (rest := np.flatnonzero(~ended & (upper[:, 0] > ENDLESS_DISCOUNT) & (begin[:, 0] < ENDLESS_DISCOUNT))).size:
            # at a discount of 1 they might go on forever, and near it values have lost their digits
            upper[rest, 0] = ENDLESS_DISCOUNT
            again = partial(of_some, plans, rest)
            bounds = (lower[rest], upper[rest])
            ends[rest], ended[rest] = profile_ends(again, begin[rest], top.of(rest), first[rest], target, sign, *bounds)
        return np.where(ended, ends, np.nan)

    def _farthest(self, who: Ints, sign: int, target: float, plans: FromPlans) -> tuple[Floats, Local]:
        """Return where to begin: at the farthest place on this side that is known to be inside, and what is known there."""
        begin = self.places[who].copy()
        top = self.here.of(who)
        inside = self.others.above(who, top.value - 0.5 * target**2)
        for person, place in zip(*inside, strict=True):
            if sign * (place[0] - begin[person, 0]) > 0:
                begin[person] = place
        moved = np.flatnonzero((begin != self.places[who]).any(axis=1))
        if moved.size:
            there = plans(moved, begin[moved])
            top.gradient[moved], top.curvature[moved] = there.gradient, there.curvature
        return begin, top


@dataclass(frozen=True, eq=False)
class ApartEstimate(ProfilesApart, Estimate):
    """People who share nothing but a known reward; `experts` are their names, `reward` is what is known."""

    experts: tuple[str, ...]
    reward: Floats

    @property
    def has_likelihood(self) -> bool:
        """Return whether a likelihood of the decisions of each expert stands behind the answer."""
        return True

    @property
    def answer(self) -> ExpertValues:
        """Return the answer of each person."""
        return ExpertValues(self.experts, self.reward, self.places[:, 0], np.exp(self.places[:, 1]))

    @property
    def parameters(self) -> NamedValues:
        """Return all discounts, then the logarithms of all temperatures: the reward is known."""
        nothing = ExpertValues(self.experts, np.zeros(0), self.places[:, 0], np.exp(self.places[:, 1]))
        bounds = np.concatenate([np.stack([self.lower[:, k], self.upper[:, k]], axis=1) for k in (0, 1)])
        return NamedValues(parameters_of(nothing).names, self.places.T.ravel(), bounds)

    @cached_property
    def roots(self) -> Floats:
        """Return the symmetric roots `(n,2,2)` of the covariances of each person; 0 in the direction of what is known or open."""
        fixed = self.lower == self.upper
        curvature = self.here.curvature.copy()
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
        """Return of whom the discount or the temperature is not identified."""
        fixed = self.lower == self.upper
        curvature = self.here.curvature
        return ~precision_apart(curvature, fixed).identified.all(axis=1) | ~self.known

    def draw(self, n: int, rng: np.random.Generator) -> Draws:
        """Draw n answers of each person."""
        fixed = self.lower == self.upper
        z = np.stack([dealt(rng, n, self.places[:, 0], self.places[:, 1]) for _ in range(2)])
        steps = np.where(fixed[:, :, None], 0.0, np.einsum("kij,jbk->kib", self.roots, z))
        places = np.clip(self.places[:, :, None] + steps, self.lower[:, :, None], self.upper[:, :, None])
        return Draws(self.reward, places[:, 0], np.exp(places[:, 1]))
