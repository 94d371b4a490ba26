"""The best actions of a reward as the discount grows, kept small: where they change, and which actions come and go there.

For tasks of up to `EXACT_STATES` states the changes are exact (`planning/breakpoints.py`). For larger ones the task is planned at
the discounts of `TRIED`, and a change stands at the first discount where it was seen. Of many states only some are kept: those
with the largest weights, which are decisions where decisions are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.mdp import MDP
from multihorizon.planning.breakpoints import DiscountInterval, discount_intervals
from multihorizon.planning.plan import plan

#: Up to this many states the changes are exact: the time of the exact sweep grows with states times changes.
EXACT_STATES = 300
#: Up to this many states the task is planned at each discount of `TRIED`; a larger one would keep its reader waiting.
PLANNED_STATES = 3000
#: The first stretch is what is best just above 0: at 0 itself, actions that pay the same at once are all best.
NEAR_ZERO = 0.01
TRIED = (*(i / 100 for i in range(100)), 0.995)


@dataclass(frozen=True)
class Stretches:
    """Stretches of discounts with the same best actions.

    Attributes:
        mdp: the task.
        states: the states that are kept, in the task's order.
        pairs: pairs of state and action that are best somewhere, by state.
        changes: where each stretch begins; the first begins at 0 and the last ends at 1.
        toggles: for each stretch, the positions in `pairs` that come or go where it begins.
        exact: whether the changes are exact.
    """

    mdp: MDP
    states: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    changes: tuple[float, ...]
    toggles: tuple[tuple[int, ...], ...]
    exact: bool

    def best_at(self, discount: float) -> set[int]:
        """Positions in `pairs` of the best actions at a discount."""
        best: set[int] = set()
        for change, toggled in zip(self.changes, self.toggles, strict=True):
            if change > discount:
                break
            best ^= set(toggled)
        return best

    def by_state(self) -> dict[int, list[tuple[float, list[int]]]]:
        """For each state, where its best actions change, and to which ones."""
        found: dict[int, list[tuple[float, list[int]]]] = {state: [] for state in self.states}
        best: dict[int, set[int]] = {state: set() for state in self.states}
        for change, toggled in zip(self.changes, self.toggles, strict=True):
            for position in toggled:
                best[self.pairs[position][0]] ^= {self.pairs[position][1]}
            for state in sorted({self.pairs[position][0] for position in toggled}):
                found[state].append((change, sorted(best[state])))
        return found


def best_actions(mdp: MDP, reward: Floats, weights: Floats | None = None, most_states: int | None = None) -> Stretches | None:
    """The best actions of a reward `(S,A)` over all discounts; None where the task is too large to plan again and again.

    Args:
        mdp: the task.
        reward: the expected immediate reward.
        weights: `(S,)`, the states to keep first; by default the order of the task.
        most_states: how many states to keep; by default all.
    """
    if mdp.n_states > PLANNED_STATES:
        return None
    found = _exact(mdp, reward)
    exact = found is not None
    found = found or _planned(mdp, reward)
    states = _kept(mdp, weights, most_states)
    sets = [interval.optimal_actions[states] & mdp.available[states] for interval in found]
    pairs = np.argwhere(np.any(sets, axis=0))
    lows, toggles = _toggles([interval.low for interval in found], sets, pairs)
    own = tuple((int(states[s]), int(a)) for s, a in pairs)
    return Stretches(mdp, tuple(states.tolist()), own, lows, toggles, exact)


def _kept(mdp: MDP, weights: Floats | None, most: int | None) -> Ints:
    """The states with something to decide, at most so many, in the task's order."""
    deciding: Ints = np.flatnonzero(~mdp.terminal)
    if most is None or deciding.size <= most:
        return deciding
    rank = np.zeros(deciding.size) if weights is None else -weights[deciding]
    return np.sort(deciding[np.argsort(rank, kind="stable")[:most]])


def _exact(mdp: MDP, reward: Floats) -> list[DiscountInterval] | None:
    """The exact intervals, where the task is small enough for them; None where rounding keeps the sweep from settling too."""
    if mdp.n_states > EXACT_STATES:
        return None
    try:
        return discount_intervals(mdp, reward)
    except RuntimeError:
        return None


def _planned(mdp: MDP, reward: Floats) -> list[DiscountInterval]:
    sets = [plan(mdp, reward, max(discount, NEAR_ZERO)).optimal_actions for discount in TRIED]
    return [DiscountInterval(low, high, best) for low, high, best in zip(TRIED, (*TRIED[1:], 1.0), sets, strict=True)]


def _toggles(lows: Sequence[float], sets: Sequence[Bools], pairs: Any) -> tuple[tuple[float, ...], tuple[tuple[int, ...], ...]]:
    """Where the kept states change, and what changes there."""
    before = np.zeros(len(pairs), dtype=np.bool_)
    changes: list[float] = []
    toggles: list[tuple[int, ...]] = []
    for low, best in zip(lows, sets, strict=True):
        now = best[tuple(pairs.T)]
        changed = np.flatnonzero(now != before)
        if changed.size or not changes:
            changes.append(float(low))
            toggles.append(tuple(changed.tolist()))
        before = now
    return tuple(changes), tuple(toggles)
