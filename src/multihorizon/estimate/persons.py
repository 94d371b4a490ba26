"""Persons one by one: the most likely discount and temperature of each, where the reward is known.

Where the reward is known in full and nobody shares a discount or a temperature, the likelihood is a product over persons, and its
maximum is that of each person. It is the maximum that a climb of all parameters together finds, at a cost that grows with the
number of persons and no faster: no matrix of all parameters, and nobody waits for the slowest.

Each person begins at the likeliest places of a grid that all share, on 16 discounts and 21 temperatures: the likeliest, and
others that none of their neighbours exceeds, if they are not far below (`choice.apart`). From there each climbs on plans of their
own to the exact maximum (`numerics.each`). Whom two ends with different discounts fit equally well is not identified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from multihorizon.checks import Bools, Floats, Ints, Sparse, first_few
from multihorizon.choice.apart import FromPlans, table_on
from multihorizon.choice.model import LOG_TEMPERATURE_BOUND, Settings
from multihorizon.choice.surfaces import Tables
from multihorizon.estimate.ascent import CONVERGED_GRADIENT
from multihorizon.estimate.intervals import ProfilesApart, precision_apart
from multihorizon.numerics.each import Local, climb_each, resting
from multihorizon.parallel import Progress, silent
from multihorizon.problem import Crowd, Problem
from multihorizon.solution import FamilyParameters, LikelihoodEvidence, Solution, Status

#: How many persons are taken together.
BLOCK = 4096
#: The grid on which persons begin: shares of the largest discount, and log-temperatures.
SHARES = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995, 0.999, 0.9999, 1.0])
LOGS = np.linspace(-LOG_TEMPERATURE_BOUND, LOG_TEMPERATURE_BOUND, 21)


class PersonsApart:
    """Persons with a known reward, and between which discounts and log-temperatures each may be.

    Attributes:
        tables: what plans for them.
        counts: their decisions `(n,rows)`.
        lower, upper: bounds `(n,2)` of (γ, log λ); what is known has one value.
    """

    def __init__(self, crowd: Crowd, settings: Settings) -> None:
        assert settings.reward is not None
        crowd = crowd.by_person()
        self.crowd, self.largest = crowd, crowd.largest_discount
        self.tables = Tables(crowd.tasks, self.largest, settings.reward, np.zeros(0, dtype=np.int64))
        self.counts: Sparse = self.tables.counts(crowd.tasks)
        n, none = crowd.n_experts, np.full(crowd.n_experts, np.nan)
        temperatures = np.ones(n) if settings.temperatures is None else settings.temperatures
        known = np.stack([none if settings.discounts is None else settings.discounts, np.log(temperatures)], axis=1)
        self.fixed: Bools = ~np.isnan(known)
        least = max(planner.mdp.least_discount for planner in self.tables.planners)
        self.lower: Floats = np.where(self.fixed, known, [least, -LOG_TEMPERATURE_BOUND])
        self.upper: Floats = np.where(self.fixed, known, [self.largest, LOG_TEMPERATURE_BOUND])

    def fit(self, progress: Progress = silent) -> PersonsFit:
        """The maximum of each person."""
        n, grid = self.crowd.n_experts, _Grid(self)
        found = PersonsFit(
            np.zeros((n, 2)),
            Local(np.zeros(n), np.zeros((n, 2)), np.zeros((n, 2, 2))),
            np.zeros(n, dtype=np.int64),
            np.zeros(n, dtype=np.bool_),
            np.full(n, np.nan),
        )
        for low in range(0, n, BLOCK):
            self._climb(np.arange(low, min(low + BLOCK, n)), grid, found)
            progress(min(1.0, (low + BLOCK) / n), f"{min(low + BLOCK, n):,} of {n:,} persons")
        return found

    def _climb(self, who: Ints, grid: _Grid, found: PersonsFit) -> None:
        """Climb from the starts of some persons, and keep each one's best end."""
        owner, places = grid.starts(who)
        here = FromPlans(self.tables, self.counts[who[owner]])
        ends = climb_each(here, places, self.lower[who[owner]], self.upper[who[owner]], gain=1e-13)
        # the best end of each person comes first
        order = np.lexsort((-ends.here.value, owner))
        first = order[np.unique(owner[order], return_index=True)[1]]
        found.places[who], found.steps[who], found.finished[who] = ends.places[first], ends.steps[first], ends.finished[first]
        found.here.put(who, ends.here.of(first), np.ones(who.size, dtype=np.bool_))
        best = first[owner]
        as_likely = ends.finished & (ends.here.value >= ends.here.value[best] - 1e-3)
        as_likely &= np.abs(ends.places[:, 0] - ends.places[best, 0]) > 0.02
        found.others[who[owner[as_likely]]] = ends.places[as_likely, 0]


@dataclass(frozen=True, eq=False)
class PersonsFit:
    """The maxima of persons.

    Attributes:
        places: γ and log λ `(n,2)`.
        here: what is known there, with the Fisher information.
        steps, finished: of the climbs.
        others: another discount that is as likely `(n,)`; NaN where there is none.
    """

    places: Floats
    here: Local
    steps: Ints
    finished: Bools
    others: Floats

    def slopes(self, model: PersonsApart) -> Floats:
        """The largest entry of each person's gradient `(n,)`, leaving out what is known or rests on a bound."""
        free = ~resting(self.here, self.places, model.lower, model.upper) & ~model.fixed
        found: Floats = np.where(free, np.abs(self.here.gradient), 0.0).max(axis=1)
        return found


class _Grid:
    """One table of policies for everybody, from which starts are read."""

    def __init__(self, model: PersonsApart) -> None:
        self.model = model
        # what is known and the same for many has a place on the grid
        known = [np.unique(model.lower[model.fixed[:, k], k]) for k in (0, 1)]
        self.gamma, self.logs = (
            np.union1d(nodes, own) if own.size <= 5 else nodes
            for nodes, own in zip((model.largest * SHARES, LOGS), known, strict=True)
        )
        self.table = table_on(model.tables, self.gamma, self.logs)

    def starts(self, who: Ints) -> tuple[Ints, Floats]:
        """Whose starts they are, as numbers among `who`, and where `(K,2)`."""
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
        return owner[kept], np.clip(places, *bounds)


def persons_solution(problem: Problem | Crowd, model: PersonsApart, found: PersonsFit) -> Solution:
    """What is known of persons who were fitted one by one."""
    precise, slopes = precision_apart(found.here.curvature, model.fixed), found.slopes(model)
    discounts, temperatures, twice = found.places[:, 0], np.exp(found.places[:, 1]), np.isfinite(found.others)
    # Temperatures that ran to the end of what is tried, or in which the likelihood is flat.
    ended = np.abs(found.places[:, 1]) >= LOG_TEMPERATURE_BOUND
    lost = ~model.fixed[:, 1] & (ended | ~precise.identified[:, 1])
    identified = precise.identified[:, 0] & ~twice & (~lost | model.fixed[:, 0])
    converged = found.finished & (slopes <= CONVERGED_GRADIENT * model.counts.sum(axis=1))
    status = Status.CONVERGED if identified.all() and not lost.any() else Status.NOT_IDENTIFIED
    value, decisions = float(found.here.value.sum()), float(model.counts.sum())
    residual = float(slopes.max()) / decisions
    message = [f"Log-likelihood {value:.2f} of {decisions:.0f} decisions, gradient {residual:.1e} per decision."]
    message += left_open(problem.names, identified, twice, lost)
    if not converged.all():
        names = first_few([name for name, done in zip(problem.names, converged, strict=True) if not done])
        message.append(f"The climb of {names} was broken off unconverged: do not use these answers.")
    other = np.where(twice, found.others, discounts)
    reward = model.tables.theta
    return Solution(
        solver="MaximumLikelihood",
        status=status if converged.all() else Status.NOT_CONVERGED,
        message=" ".join(message),
        experts=problem.names,
        discounts=discounts,
        reward=reward.copy(),
        objective=value,
        residual=residual,
        temperature=temperatures,
        standard_errors=np.where(identified & converged, precise.standard_errors[:, 0], np.nan),
        problem=problem,
        interval_source=ProfilesApart(
            model.tables,
            model.counts,
            model.lower,
            model.upper,
            found.places,
            found.here,
            precise.standard_errors[:, 0],
            identified & converged,
        ),
        evidence=LikelihoodEvidence(
            log_likelihood=value,
            decisions=decisions,
            identified=identified.tolist(),
            known={
                "discounts": model.fixed[:, 0].tolist(),
                "temperatures": model.fixed[:, 1].tolist(),
                "reward": "all",
            },
            unidentified_directions=precise.nullity,
            information_spectrum=precise.spectrum.tolist(),
            reward_standard_errors=[0.0] * reward.size,
            ridge=0.0,
            ridge_weights=[0.0] * reward.size,
            ridge_reason="",
            temperature_spread=None,
            equal_temperatures_p=None,
            lost_temperatures=lost.tolist(),
            log_temperature_errors=[float(v) if np.isfinite(v) else None for v in precise.standard_errors[:, 1]],
            transition_widening=[1.0] * discounts.size,
            transitions=[],
            lookahead=FamilyParameters(family="exponential", parameters={"discount": discounts.tolist()}),
            steps=int(found.steps.max()),
            starts=[_end(value, discounts, found)],
            equally_likely=[_end(value, other, found)] if twice.any() else [],
        ),
    )


def left_open(names: Sequence[str], identified: Bools, twice: Bools, lost: Bools) -> list[str]:
    """Sentences on discounts and temperatures that the decisions do not identify; `twice` are those that others are as likely."""

    def those(mask: Bools) -> str:
        return first_few([name for name, marked in zip(names, mask, strict=True) if marked])

    said = []
    for mask, why in ((twice, "other discounts are as likely"), (~twice, "the likelihood is flat in their direction")):
        if (mask & ~identified).any():
            said.append(f"The discounts of {those(mask & ~identified)} are not identified: {why}.")
    if lost.any():
        said.append(
            f"The temperature of {those(lost)} is not identified: the known reward does not say how random the choices are."
        )
    return said


def _end(value: float, discounts: Floats, found: PersonsFit) -> dict[str, object]:
    steps, finished = int(found.steps.max()), bool(found.finished.all())
    return {"log_likelihood": value, "discounts": discounts.tolist(), "steps": steps, "finished": finished}
