"""How far persons of a population are from sharing a reward: the spread τ of their deviations, its test, and what it means.

Person i acts for the reward `θ + δ_i`, `δ_i ~ N(0, τ²W)`, W diagonal with 1/f², f the largest value of each feature. `marginal`
has the likelihood l(ψ; τ) with persons and deviations averaged out. τ is judged by

    C(τ) = max_ψ l(ψ; τ) − ½ log det(J_θ + Λ),

J_θ the information about θ where effects are not known, and Λ the precision of a wide prior, of 20 temperatures: the most likely
τ is too small, because θ was fitted to the same persons, and this corrects for it as l does for effects. The search, the test of
τ = 0 (half χ²₀, half χ²₁) and the interval are those of `likelihood.random_effects`. On the way nodes are few, as many for τ = 0
as for all others. Where τ is kept, the maximum is found anew with as many nodes as it takes.

*Persons.* With the shares P_q of the nodes, a person's deviation has the mean `Σ P_q δ̂_q`, and the variance `Σ P_q (A_q +
δ̂_q²)` less the square of that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from multihorizon.checks import Floats
from multihorizon.choice.deviations import states_visited
from multihorizon.likelihood.random_effects import LEAST, MOST, crossing, highest
from multihorizon.numerics.distributions import chi2_ppf, chi2_sf
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.population.marginal import Maximum, climb, finish, node_shares
from multihorizon.solution import Deviations
from multihorizon.words import significant


@dataclass(frozen=True, eq=False)
class PopulationSpread:
    """What was found of τ.

    Attributes:
        shared: the maximum where all have one reward.
        found: that of the answer, which may be the same.
        spread: τ of the answer.
        estimated, interval, p_shared, given: as in `Deviations`.
        complete: whether the climbs at all spreads that were tried ended.
    """

    shared: Maximum
    found: Maximum
    spread: float
    estimated: float
    interval: tuple[float, float]
    p_shared: float
    given: bool
    complete: bool

    def described(self, discounts: Floats, standard_errors: Floats) -> Deviations:
        """In words that a reader can use; under τ = 0 persons have these discounts, with these standard errors."""
        layout = self.found.marginal.layout
        sizes, reward = layout.problem.reward_sizes, layout.unpack(self.found.psi).theta
        span = float(np.ptp(reward * sizes)) if reward.size > 1 else float(np.abs(reward * sizes).max(initial=0.0))
        values = errors = np.zeros((layout.persons, reward.size))
        if self.spread:
            values, errors = deviations_of_persons(self.found)
        spreads = np.array([self.estimated, *self.interval])
        return Deviations(
            spread=self.spread,
            estimated=self.estimated,
            interval=np.array(self.interval),
            p_shared=self.p_shared,
            share_of_range=spreads / span if span else np.full(3, np.nan),
            choices_moved=np.minimum(np.where(np.isfinite(spreads), spreads, np.nan) * choices_moved(self.found), 100.0),
            values=values,
            errors=errors,
            if_shared={
                "discounts": discounts,
                "standard_errors": standard_errors,
                "log_likelihood": float(self.shared.value.persons.sum()),
            },
            given=self.given,
        )

    def words(self) -> list[str]:
        """What is to be said of it."""
        if self.given:
            return [
                f"Each person's reward deviates from the common one with a standard deviation of "
                f"{significant(self.spread)}, as given."
            ]
        p = f"= {significant(self.p_shared, 2)}" if self.p_shared < 0.5 else "≥ 0.5"
        lines = [f"One reward for all is not rejected (p {p})."] if self.complete else []
        if self.spread:
            low, high = self.interval
            lines = [
                f"Goals are only nearly shared: one reward for all is rejected (p = "
                f"{significant(self.p_shared, 2)}), and each person's "
                f"deviates from the common one with a standard deviation of {significant(self.spread)} (95 % "
                f"interval {significant(low)} to "
                f"{significant(high)})."
            ]
        if not self.complete:
            lines.append("Climbs at some sizes of deviations did not end: the test of one reward for all is not reliable.")
        return lines


def restricted(found: Maximum) -> float:
    """C: the objective less half the logarithm of the determinant of the information about θ, with a wide prior."""
    layout = found.marginal.layout
    theta, effects = layout.reward, slice(layout.reward.stop, layout.spread.start)
    information = found.value.information
    across = information[effects, theta]
    left = information[theta, theta] - across.T @ np.linalg.lstsq(information[effects, effects], across)[0]
    wide = (layout.problem.reward_sizes / (20 * typical_temperature(found))) ** 2
    return found.value.objective - 0.5 * float(np.linalg.slogdet((left + left.T) / 2 + np.diag(wide[layout.free]))[1])


def typical_temperature(found: Maximum) -> float:
    """The geometric mean of temperatures."""
    layout = found.marginal.layout
    return float(np.exp((layout.design @ layout.unpack(found.psi).effects)[:, 1].mean()))


class _SpreadProfile:
    """Maxima with different spreads, each begun at the nearest one that is done."""

    def __init__(self, shared: Maximum) -> None:
        self.layout = shared.marginal.layout
        self.start = climb(self.layout, shared.psi, shared.persons, FEW, ENOUGH, 60, silent)
        self.reference, self.complete = restricted(self.start), self.start.finished
        self.ends: dict[float, Maximum] = {}
        self.gains: dict[float, float] = {}

    def gain(self, spread: float) -> float:
        """`C(τ) − C(0)`; minus infinity where the climb did not end."""
        if spread not in self.gains:
            near = min(self.ends, key=lambda done: abs(np.log(done / spread)), default=None)
            begin = self.start if near is None else self.ends[near]
            found = climb(self.layout.deviating(spread), begin.psi, begin.persons, FEW, ENOUGH, 60, silent)
            if found.finished:
                self.ends[spread] = found
            else:
                self.complete = False
            self.gains[spread] = restricted(found) - self.reference if found.finished else -np.inf
        return self.gains[spread]


#: Nodes for logit γ on the way to τ, and how many standard errors from the maximum a climb may end there.
FEW, ENOUGH = 7, 2e-3


def nearly_shared(
    shared: Maximum,
    wanted: float | Literal["estimated"],
    nodes: int | None,
    tol: float,
    max_iter: int,
    progress: Progress = silent,
) -> PopulationSpread:
    """The maximum with deviations of a wanted spread, or of the most likely one where the decisions reject 0 at the 5 % level."""
    layout = shared.marginal.layout
    if wanted != "estimated":
        near = climb(layout.deviating(wanted), shared.psi, shared.persons, FEW, 0.1, max_iter, part_of(progress, 0.0, 0.5))
        found = finish(near.marginal.layout, near.psi, near.persons, nodes, tol, max_iter, part_of(progress, 0.5, 1.0))
        return PopulationSpread(shared, found, wanted, wanted, (wanted, wanted), np.nan, True, True)
    search, unit = _SpreadProfile(shared), typical_temperature(shared)
    low, high = LEAST * unit, MOST * unit
    best = highest(search.gain, low, high, [0.3 * unit, 0.1 * unit, unit])
    progress(0.5, f"deviations of {significant(best)}")
    gained = search.gains[best]
    if not np.isfinite(gained):
        return PopulationSpread(shared, shared, 0.0, np.nan, (np.nan, np.nan), np.nan, False, False)
    target, top = 0.5 * float(chi2_ppf(0.95, 1)), max(gained, 0.0)
    lower = 0.0 if top <= target else crossing(search.gain, best, low, top - target)
    interval = lower, crossing(search.gain, best, high, top - target)
    progress(0.8, f"deviations of {significant(best)}")
    p = 0.5 * float(chi2_sf(2 * gained, 1)) if gained > 0 else 1.0
    if p > 0.05:
        return PopulationSpread(shared, shared, 0.0, best if gained > 0 else 0.0, interval, p, False, search.complete)
    near = search.ends[best]
    found = finish(near.marginal.layout, near.psi, near.persons, nodes, tol, max_iter, part_of(progress, 0.8, 1.0))
    return PopulationSpread(shared, found, best, best, interval, p, False, search.complete)


def deviations_of_persons(found: Maximum) -> tuple[Floats, Floats]:
    """Mean and standard deviation `(n,d)` of each person's deviation, given the decisions."""
    means, errors = [], []
    for _, shares, near in node_shares(found):
        own = near.own_reward
        assert own is not None
        mean = (shares[:, :, None] * own.mode).sum(axis=1)
        squares = np.diagonal(own.covariance, axis1=2, axis2=3) + own.mode**2
        means.append(mean)
        errors.append(np.sqrt((shares[:, :, None] * squares).sum(axis=1) - mean**2))
    return np.concatenate(means), np.concatenate(errors)


def choices_moved(found: Maximum) -> float:
    """How many choices in a hundred deviations with τ = 1 move, to first order, where persons are at their means."""
    layout = found.marginal.layout
    tables, eta = layout.tables.at(layout.unpack(found.psi).theta), found.persons.mean[:, None]
    if not tables.prepare(tables.patches.of(eta)):
        return np.nan
    visited = states_visited(tables, layout.counts)
    n, s, a = visited.shape
    log, slopes = tables.lines(visited.reshape(n, -1), eta, tables.surface(layout.counts, eta))
    made = np.take_along_axis(np.pad(layout.counts.toarray(), ((0, 0), (0, 1))), visited.reshape(n, -1), axis=1).reshape(n, s, a)
    moved = np.sqrt(((slopes / layout.problem.reward_sizes) ** 2).sum(axis=3)).reshape(n, s, a)
    chances = np.exp(log.reshape(n, s, a)) * made.sum(axis=2, keepdims=True)
    return 100 * 0.5 * float(np.sqrt(2 / np.pi) * (chances * moved).sum() / made.sum())
