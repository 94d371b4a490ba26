"""What is best at each look-ahead: a slider over the discount, and the best actions of a reward as it moves.

The best actions of all discounts are computed here and stored in the page as numbers: where they change, and which actions come
and go there. The script only shows and hides what is drawn. Without it, the page shows the best actions at one discount, and the
table says for every state where they change.

For small tasks the changes are exact (`planning/breakpoints.py`). Larger ones are planned at many discounts, and a change stands
at the first discount where it was seen. Of many states only some are kept: those with the largest weights, which are decisions
where decisions are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd

from multihorizon.checks import Floats, Ints
from multihorizon.horizon import Horizon
from multihorizon.mdp import MDP
from multihorizon.planning.breakpoints import DiscountInterval, discount_intervals
from multihorizon.planning.plan import plan
from multihorizon.problem import Expert
from multihorizon.report.charts import UNITS, BestActions, Block, Either, Ruler, TableBlock, Unit
from multihorizon.report.maps import LIKELY, MOST_CELLS, GraphMap, GridMap, graph_map, grid_map
from multihorizon.report.plots import ARROWS
from multihorizon.tables import Table
from multihorizon.words import decimals


@dataclass(frozen=True)
class Stretches:
    """Stretches of discounts with the same best actions.

    Attributes:
        mdp: the task.
        states: the states that are kept, in the task's order.
        pairs: pairs of state and action that are best somewhere, by state.
        changes: where each stretch begins; the first begins at 0 and the last ends at 1.
        toggles: for each stretch, the positions in `pairs` that come or go where it begins.
        tried: the discounts that were planned at; empty where the changes are exact.
    """

    mdp: MDP
    states: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    changes: tuple[float, ...]
    toggles: tuple[tuple[int, ...], ...]
    tried: tuple[float, ...]

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


#: The expected immediate reward `(S,A)`; a function of the discount where moves take time.
Expected = Floats | Callable[[float], Floats]


def expected_in(expert: Expert, parameters: Floats) -> Expected:
    """What reward parameters `(d,)` pay in an expert's task."""
    if expert.mdp.durations is None:
        return expert.expected_reward(parameters)
    return lambda discount: expert.at(discount).expected_reward(parameters)


def best_actions(
    mdp: MDP, reward: Expected, weights: Floats | None = None, most_states: int | None = None, exact_states: int = 300
) -> Stretches:
    """The best actions of a reward `(S,A)` over all discounts.

    Args:
        mdp: the task.
        reward: the expected immediate reward, or, where moves take time, a function that gives it at a discount.
        weights: `(S,)`, the states to keep first; by default the order of the task.
        most_states: how many states to keep; by default all.
        exact_states: up to so many states the changes are exact; the time of that grows with states times changes.
    """
    found: list[DiscountInterval] = []
    tried: tuple[float, ...] = ()
    if mdp.n_states <= exact_states and not callable(reward):
        try:
            found = discount_intervals(mdp, reward)
        except RuntimeError:  # rounding keeps the exact sweep from settling
            found = []
    if not found:
        tried = (*(i / 100 for i in range(100)), 0.995)
        # The first stretch is what is best just above 0: at 0 itself, actions that pay the same at once are all best.
        levels = [max(discount, 0.01) for discount in tried]
        sets = [plan(mdp, reward(level) if callable(reward) else reward, level).optimal_actions for level in levels]
        found = [DiscountInterval(low, high, best) for low, high, best in zip(tried, (*tried[1:], 1.0), sets, strict=True)]
    states: Ints = np.flatnonzero(~mdp.terminal)
    if most_states is not None and states.size > most_states:
        rank = np.zeros(states.size) if weights is None else -weights[states]
        states = np.sort(states[np.argsort(rank, kind="stable")[:most_states]])
    kept = [interval.optimal_actions[states] & mdp.available[states] for interval in found]
    pairs = np.argwhere(np.any(kept, axis=0))
    before = np.zeros(len(pairs), dtype=np.bool_)
    changes: list[float] = []
    toggles: list[tuple[int, ...]] = []
    for interval, best in zip(found, kept, strict=True):
        now = best[tuple(pairs.T)]
        changed = np.flatnonzero(now != before)
        if changed.size or not changes:
            changes.append(float(interval.low))
            toggles.append(tuple(changed.tolist()))
        before = now
    own = tuple((int(states[s]), int(a)) for s, a in pairs)
    return Stretches(mdp, tuple(states.tolist()), own, tuple(changes), tuple(toggles), tried)


class Person(NamedTuple):
    """An expert on the slider: the number that `data-experts` uses, the name, and the discount."""

    number: int
    name: str
    discount: float


class Scale(NamedTuple):
    """A scale above the slider: numbers, changes and experts at places from 0 to 1."""

    unit: Unit
    ticks: Sequence[tuple[float, str]]
    changes: Sequence[float]
    experts: Sequence[float]


@dataclass(frozen=True)
class Explorer(Block):
    """A slider with what it shows; `number` distinguishes the sliders of a page, and `tips` say what stands at each expert."""

    template: ClassVar[str] = "explorer.html"
    number: int
    data: dict[str, Any]
    said: str
    drawing: GridMap | GraphMap | None
    table: TableBlock
    people: Sequence[Person]
    tips: Sequence[str]
    scales: Sequence[Scale]


def explorer(
    mdp: MDP,
    reward: Expected,
    people: Sequence[Person],
    *,
    values: Floats,
    tips: Sequence[str],
    weights: Floats,
    horizon: Horizon,
    number: int = 1,
    most_rows: int = 200,
    exact_states: int = 300,
    planned_states: int = 3000,
) -> list[str | Block]:
    """The blocks of a slider over the discount.

    Args:
        mdp, reward: the task, and the expected reward of each action `(S,A)`, as in `best_actions`.
        people: the experts whose discounts stand on the slider.
        values: `(S,)`, which colour the cells of a grid; NaN where not known.
        tips: what each state says under the pointer.
        weights: `(S,)`, which states matter most where not all can be shown.
        horizon: how far ahead discounts look in the task.
        number: distinguishes the sliders of a page.
        most_rows: the most states of the table.
        exact_states: up to so many states the changes are exact.
        planned_states: the most states of a task that is planned again and again; a larger one would keep its reader waiting.
    """
    if mdp.n_states > planned_states:
        return [f"The task has {mdp.n_states:,} states. Best actions are shown for at most {planned_states:,}."]
    on_grid = mdp.grid_shape is not None and ARROWS.keys() >= set(mdp.action_names) and mdp.n_states <= MOST_CELLS
    found = best_actions(mdp, reward, weights, None if on_grid else most_rows, exact_states)
    start = float(median(person.discount for person in people)) if people else 0.5
    best = found.best_at(start)
    arrows = [(state, action, i in best) for i, (state, action) in enumerate(found.pairs)]
    drawing: GridMap | GraphMap | None
    if on_grid:
        caption = "Arrows: the best actions at the look-ahead chosen below, thick where they have just become best. "
        caption += "Blue cells pay more than the middle one, orange cells less. " if values.any() else ""
        caption += "Dashed frames end the episode." if mdp.terminal.any() else ""
        drawing = grid_map(mdp, values, tips, caption.strip(), arrows)
    else:
        caption = "Arrows: where the best actions lead at the look-ahead chosen below; wider ones are likelier. "
        caption += f"Moves with a chance below {LIKELY:g} are left out, unless they are the likeliest."
        drawing = graph_map(mdp, tips, caption, arrows)
    ruler = Ruler.over([*(person.discount for person in people), *found.changes], horizon)
    scales, marked = [], found.changes[1:301]  # more strokes would make the scale black
    for unit in UNITS:
        places = [[ruler.place(gamma, unit) for gamma in gammas] for gammas in (marked, [p.discount for p in people])]
        scales.append(Scale(unit, ruler.axis(unit).ticks, *places))
    data = {
        "changes": [round(change, 9) for change in found.changes],
        "toggles": found.toggles,
        "start": start,
        "steps": None if np.isinf(horizon.longest) else horizon.longest,
        "nearest": ruler.nearest,
        "farthest": ruler.farthest,
        "timed": horizon.timed,
        "many": horizon.many,
    }
    said = f"Shown at γ = {decimals(start, 4)}, {horizon.text(start)}."
    dots = [f"{p.name}\nγ {decimals(p.discount, 3)}, {horizon.text(p.discount)}" for p in people]
    blocks: list[str | Block] = [Explorer(number, data, said, drawing, _table(found, best, horizon), people, dots, scales)]
    if found.tried:
        blocks.append(
            f"The best actions were computed at {len(found.tried)} discounts up to {found.tried[-1]:g}; a change may lie up to "
            "0.01 below the place where it is shown."
        )
    deciding = int((~mdp.terminal).sum())
    if len(found.states) < deciding:
        blocks.append(f"Shown are the {len(found.states):,} states with the most decisions, of {deciding:,}.")
    return blocks


def _table(found: Stretches, best: set[int], horizon: Horizon) -> TableBlock:
    """For every state the best actions at the chosen look-ahead, and where they change."""
    names = found.mdp.action_names

    def ranges(changes: Sequence[tuple[float, list[int]]], unit: Unit) -> str:
        """Best actions with the look-ahead up to which they are best."""
        parts = [" or ".join(names[a] for a in actions) for _, actions in changes]
        for i, (end, _) in enumerate(changes[1:]):
            discount = f"{end:g}" if found.tried else decimals(end, 4)
            parts[i] += f" up to {discount if unit == 'discount' else horizon.number(end)}"
        return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, then {parts[-1]}"

    own: dict[int, list[tuple[str, bool]]] = {state: [] for state in found.states}
    for i, (state, action) in enumerate(found.pairs):
        own[state].append((names[action], i in best))
    rows = []
    for state, changes in found.by_state().items():
        by_discount, by_steps = (ranges(changes, unit) for unit in UNITS)
        rows.append([found.mdp.state_names[state], BestActions(own[state]), Either(by_discount, by_steps)])
    by_look_ahead = Either("best actions by discount γ", f"best actions by horizon in {horizon.many}")
    columns = ["state", "best at the chosen look-ahead", "changes"]
    caption = "The best actions of each state, and where they change"
    return TableBlock(Table(pd.DataFrame(rows, columns=columns), caption), headers={"changes": by_look_ahead})
