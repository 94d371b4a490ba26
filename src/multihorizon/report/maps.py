"""Pictures of a task: a grid as a map with its rewards, and a small task as a graph, both with actions as arrows; and a slider
over the discount, with the best actions of a reward as it moves.

An arrow is a state, an action, and whether it is shown: a page with a slider draws all actions that are best at some discount,
and its script, which knows them by their order, shows and hides them. Without it, the page shows the best actions at one
discount, and the table says for every state where they change.

For small tasks the changes are exact (`planning/breakpoints.py`). Larger ones are planned at many discounts, and a change stands
at the first discount where it was seen. Of many states only some are kept: those with the largest weights, which are decisions
where decisions are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin
from statistics import median
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse.csgraph import dijkstra

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.horizon import Horizon
from multihorizon.mdp import MDP
from multihorizon.planning.breakpoints import DiscountInterval, discount_intervals
from multihorizon.planning.plan import plan
from multihorizon.problem import Expert
from multihorizon.report.charts import UNITS, BestActions, Block, Either, Ruler, TableBlock, Unit, figure_label
from multihorizon.report.plots import ARROWS, READABLE_CELLS
from multihorizon.words import Table, decimals, shortened

#: The most cells of a map that are drawn one by one.
MOST_CELLS = 900
#: The opacity of the largest reward's colour: numbers on it can still be read, in light and in dark.
DARKEST = 0.5
#: Of the moves of an action the likeliest is drawn, and others if they are as likely as this.
LIKELY = 0.15
#: The radius of a state in a graph.
RADIUS = 30.0

Place = tuple[float, float]
Arrow = tuple[int, int, bool]


@dataclass(frozen=True)
class GridMap(Block):
    """The cells of a grid, 48 units wide, row by row.

    Each has a reward as a share of the largest difference from the median, NaN where it is not known, an opacity, a number,
    whether the episode ends there, and a tip. An arrow is whether it is shown, and its path. Names of cells stand in their
    corners, and those of rows and columns at their sides.
    """

    template: ClassVar[str] = "maps.html"
    caption: str
    size: tuple[int, int]
    cells: Sequence[tuple[float, float, str, bool, str]]
    arrows: Sequence[tuple[bool, str]] = ()
    names: Sequence[str] = ()
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()

    @property
    def room(self) -> tuple[float, float]:
        """Return how much the names of rows and columns need, at the left and above."""
        left = 8 + 6.6 * max(map(len, self.rows), default=0) if self.rows else 0.0
        longest = max(map(len, self.columns), default=0)
        return left, (20.0 if longest <= 7 else 10 + 6.6 * longest) if self.columns else 0.0

    @property
    def label(self) -> str:
        """Return the caption, and what the cells say, the palest first where they are many."""
        known = sorted((cell for cell in self.cells if cell[0] == cell[0]), key=lambda cell: cell[0])
        return figure_label(self.caption, [cell[-1] for cell in (known if len(known) > 12 else self.cells)])


def grid_map(
    mdp: MDP,
    values: Floats,
    tips: Sequence[str],
    caption: str,
    arrows: Sequence[Arrow] | None = None,
    scale: tuple[float, float] | None = None,
) -> GridMap:
    """Return the cells of a grid coloured by their rewards `(S,)`, NaN where not known, with actions as arrows where given.

    A cell with the median reward has no colour: most cells of most grids pay the same. Others have the root of their size as
    opacity, so that one large reward does not make all others look alike. A `scale` says which value has no colour, and which
    difference from it has the darkest one, for maps that are compared.
    """
    assert mdp.grid_shape is not None
    height, width = mdp.grid_shape
    above = values - (scale[0] if scale else np.nanmedian(values) if np.isfinite(values).any() else 0.0)
    shares = above / ((scale[1] if scale else float(np.nanmax(np.abs(above), initial=0.0))) or 1.0)
    numbers = [""] * mdp.n_states
    if arrows is None and mdp.n_states <= READABLE_CELLS:
        whole = bool((values[~np.isnan(values)] % 1 == 0).all())
        numbers = [decimals(value, 0 if whole else 2, "?") for value in values]
    opacities = DARKEST * np.sqrt(np.abs(shares))
    ends = mdp.terminal.tolist()
    paths = []
    for state, action, shown in arrows or ():
        row, column = divmod(state, width)
        down, right = ARROWS[mdp.action_names[action]]
        x, y = (column + 0.5) * 48, (row + 0.5) * 48
        tip = x + 17 * right, y + 17 * down
        paths.append((shown, f"M{x:g} {y:g}L{tip[0]:g} {tip[1]:g}{_head(*tip, right, down)}"))
    cells = list(zip(shares.tolist(), opacities.tolist(), numbers, ends, tips, strict=True))
    named = mdp.n_states <= READABLE_CELLS and max(map(len, mdp.state_names)) <= 6
    return GridMap(caption, (48 * width, 48 * height), cells, paths, mdp.state_names if named else ())


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Floats,
    tips: Sequence[str],
    caption: str,
    most: float,
    written: Callable[[float], str] | None = None,
) -> GridMap:
    """Return a table of numbers `(r,c)` as coloured cells, `most` the darkest, with the names of its rows and columns."""
    shares = values.ravel() / (most or 1.0)
    numbers = [""] * shares.size if written is None else [written(value) for value in values.ravel().tolist()]
    opacities = (DARKEST * np.sqrt(np.abs(shares))).tolist()
    cells = list(zip(shares.tolist(), opacities, numbers, [False] * shares.size, tips, strict=True))
    size = 48 * len(columns), 48 * len(rows)
    return GridMap(
        caption, size, cells, rows=[shortened(name, 24) for name in rows], columns=[shortened(name, 16) for name in columns]
    )


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key by which names are sorted as people count, 2 before 10.

    Example:
        >>> sorted(["s10", "s2", "10", "2"], key=natural)
        ['2', '10', 's2', 's10']
    """
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def _head(x: float, y: float, right: float, down: float) -> str:
    """Return two strokes at the tip of an arrow that points to the right by so much and down by so much, of length 1."""
    ends = [(x - 6 * right - side * 4 * down, y - 6 * down + side * 4 * right) for side in (1, -1)]
    return f"M{_point(*ends[0])}L{_point(x, y)}L{_point(*ends[1])}"


def _point(x: float, y: float) -> str:
    """Write a point of a path."""
    return f"{decimals(x, 1)} {decimals(y, 1)}"


@dataclass(frozen=True)
class GraphMap(Block):
    """A task as a graph.

    A state is a place, whether the episode ends there, the lines of its name, and a tip. A move is whether it is shown, its paths
    with their widths, and the action's name with its place.
    """

    template: ClassVar[str] = "maps.html"
    caption: str
    size: tuple[float, float]
    radius: float
    states: Sequence[tuple[Place, bool, list[str], str]]
    moves: Sequence[tuple[bool, list[tuple[float, str]], str, Place]]

    @property
    def label(self) -> str:
        """Return the caption, and what the states say."""
        return figure_label(self.caption, [tip for *_, tip in self.states])


def graph_map(mdp: MDP, tips: Sequence[str], caption: str, arrows: Sequence[Arrow]) -> GraphMap | None:
    """Return a small task as a graph, from the first states on the left; None where it has more than 20 states, too many to be
    read."""
    if mdp.n_states > 20:
        return None
    places = _places(mdp)
    width, height = (max(place[i] for place in places) + RADIUS + 30 for i in (0, 1))
    names = [_name_lines(name) for name in mdp.state_names]
    seen, moves = list[tuple[int, int]](), []  # names at one arrow stand below each other
    for state, action, shown in arrows:
        row = mdp.transition(action)[[state]].tocoo()
        likely = sorted(((float(p), int(s)) for p, s in zip(row.data, row.coords[1], strict=True)), reverse=True)
        likely = [move for i, move in enumerate(likely) if i == 0 or move[0] >= LIKELY]
        way = state, int(row.toarray().argmax())
        x, y = _bend(places[state], places[likely[0][1]])[1] if likely else places[state]
        paths = [(0.8 + 1.8 * chance, _bow(places[state], places[target])) for chance, target in likely]
        moves.append((shown, paths, shortened(mdp.action_names[action], 12), (x, y - 4 + 13 * seen.count(way))))
        seen.append(way)
    states = list(zip(places, mdp.terminal.tolist(), names, tips, strict=True))
    return GraphMap(caption, (width, height), RADIUS, states, moves)


def _name_lines(name: str) -> list[str]:
    """Return a name on one line of at most 9 characters, or its words on two; what does not fit is left out."""
    words = name.split()
    lines = [name] if len(name) <= 9 or len(words) < 2 else [words[0], " ".join(words[1:])]
    return [shortened(line, 9) for line in lines]


def _places(mdp: MDP) -> list[Place]:
    """Return states in layers from left to right, and in a layer next to where they are reached from; in a circle where they
    crowd.
    """
    across, down = 150.0, 100.0
    reach = np.asarray((mdp.under(mdp.available / 1.0) > 0).todense(), dtype=np.bool_) & ~mdp.terminal[:, None]
    depth = _depths(mdp, reach & ~np.eye(mdp.n_states, dtype=np.bool_))
    layers = [np.flatnonzero(depth == d).tolist() for d in range(int(depth.max()) + 1)]
    tallest = max(map(len, layers))
    places = [(0.0, 0.0)] * mdp.n_states
    if len(layers) > 7 or tallest > 5 or tallest > len(layers) + 1:
        around = max(2.0 * RADIUS, mdp.n_states * 1.2 * down / (2 * pi))
        middle = around + RADIUS + 60
        for i, s in enumerate(s for layer in layers for s in sorted(layer, key=lambda s: mdp.state_names[s])):
            angle = 2 * pi * i / mdp.n_states - pi / 2
            places[s] = (middle + around * cos(angle), middle + around * sin(angle))
        return places
    for number, layer in enumerate(layers):
        above = {s: [places[b][1] for b in np.flatnonzero(reach[:, s] & (depth < number))] or [0.0] for s in layer}
        layer.sort(key=lambda s: (sum(above[s]) / len(above[s]), mdp.state_names[s]))
        for i, s in enumerate(layer):
            places[s] = (30 + RADIUS + across * number, 40 + RADIUS + down * (i + (tallest - len(layer)) / 2))
    return places


def _depths(mdp: MDP, moves: Bools) -> Ints:
    """Return the layer of each state `(S,)`: its longest way from the first ones, or the shortest where states recur. Ends come
    last."""
    nearest = dijkstra(moves / 1.0, indices=np.flatnonzero(mdp.initial > 0), unweighted=True, min_only=True)
    depth = farthest = np.where(np.isinf(nearest), np.max(nearest, where=np.isfinite(nearest), initial=0) + 1, nearest)
    for _ in range(mdp.n_states + 1):
        before = farthest
        farthest = np.maximum(farthest, np.max(np.where(moves, farthest[:, None] + 1, 0), axis=0))
        if (farthest == before).all():
            depth = farthest
            break
    ends = mdp.terminal & moves.any(axis=0)
    last = np.max(depth, where=~mdp.terminal, initial=0) + 1
    return np.unique(np.where(ends, last, depth), return_inverse=True)[1]


def _bend(start: Place, end: Place) -> tuple[Place, Place]:
    """Return the point that bends a curve between two states, and the middle of the curve; there and back do not meet."""
    (x, y), (u, v) = start, end
    if start == end:
        return (x, y - 3.4 * RADIUS), (x, y - 2.2 * RADIUS)
    bend = (x + u) / 2 + 0.16 * (v - y), (y + v) / 2 - 0.16 * (u - x)
    return bend, ((x + u) / 4 + bend[0] / 2, (y + v) / 4 + bend[1] / 2)


def _bow(start: Place, end: Place) -> str:
    """Return the path of an arrow between two states, from the edge of one circle to that of the other."""
    bend, _ = _bend(start, end)
    if start == end:  # a loop above the state
        start, end = (start[0] - 8, start[1]), (end[0] + 8, end[1])

    def edge(centre: Place) -> Place:
        share = (RADIUS + 2) / (hypot(bend[0] - centre[0], bend[1] - centre[1]) or 1.0)
        return centre[0] + share * (bend[0] - centre[0]), centre[1] + share * (bend[1] - centre[1])

    (x, y), (u, v) = edge(start), edge(end)
    size = hypot(u - bend[0], v - bend[1]) or 1.0
    head = _head(u, v, (u - bend[0]) / size, (v - bend[1]) / size)
    return f"M{_point(x, y)}Q{_point(*bend)} {_point(u, v)}{head}"


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
        """Return positions in `pairs` of the best actions at a discount."""
        best: set[int] = set()
        for change, toggled in zip(self.changes, self.toggles, strict=True):
            if change > discount:
                break
            best ^= set(toggled)
        return best

    def by_state(self) -> dict[int, list[tuple[float, list[int]]]]:
        """For each state, where its best actions change, and to which ones."""
        result: dict[int, list[tuple[float, list[int]]]] = {state: [] for state in self.states}
        best: dict[int, set[int]] = {state: set() for state in self.states}
        for change, toggled in zip(self.changes, self.toggles, strict=True):
            for position in toggled:
                best[self.pairs[position][0]] ^= {self.pairs[position][1]}
            for state in sorted({self.pairs[position][0] for position in toggled}):
                result[state].append((change, sorted(best[state])))
        return result


#: The expected immediate reward `(S,A)`; a function of the discount where moves take time.
Expected = Floats | Callable[[float], Floats]


def expected_in(expert: Expert, parameters: Floats) -> Expected:
    """Return what reward parameters `(d,)` pay in an expert's task."""
    if expert.mdp.durations is None:
        return expert.expected_reward(parameters)
    return lambda discount: expert.at(discount).expected_reward(parameters)


def best_actions(
    mdp: MDP, reward: Expected, weights: Floats | None = None, most_states: int | None = None, exact_states: int = 300
) -> Stretches:
    """Return the best actions of a reward `(S,A)` over all discounts.

    Args:
        mdp: the task.
        reward: the expected immediate reward, or, where moves take time, a function that gives it at a discount.
        weights: `(S,)`, the states to keep first; by default the order of the task.
        most_states: how many states to keep; by default all.
        exact_states: up to so many states the changes are exact; the time of that grows with states times changes.
    """
    intervals: list[DiscountInterval] = []
    tried: tuple[float, ...] = ()
    if mdp.n_states <= exact_states and not callable(reward):
        try:
            intervals = discount_intervals(mdp, reward)
        except RuntimeError:  # rounding keeps the exact sweep from settling
            intervals = []
    if not intervals:
        tried = (*(i / 100 for i in range(100)), 0.995)
        # The first stretch is what is best just above 0: at 0 itself, actions that pay the same at once are all best.
        levels = [max(discount, 0.01) for discount in tried]
        sets = [plan(mdp, reward(level) if callable(reward) else reward, level).optimal_actions for level in levels]
        intervals = [DiscountInterval(low, high, best) for low, high, best in zip(tried, (*tried[1:], 1.0), sets, strict=True)]
    states: Ints = np.flatnonzero(~mdp.terminal)
    if most_states is not None and states.size > most_states:
        rank = np.zeros(states.size) if weights is None else -weights[states]
        states = np.sort(states[np.argsort(rank, kind="stable")[:most_states]])
    kept = [interval.optimal_actions[states] & mdp.available[states] for interval in intervals]
    pairs = np.argwhere(np.any(kept, axis=0))
    before = np.zeros(len(pairs), dtype=np.bool_)
    changes: list[float] = []
    toggles: list[tuple[int, ...]] = []
    for interval, best in zip(intervals, kept, strict=True):
        now = best[tuple(pairs.T)]
        changed = np.flatnonzero(now != before)
        if changed.size or not changes:
            changes.append(float(interval.low))
            toggles.append(tuple(changed.tolist()))
        before = now
    chosen = tuple((int(states[s]), int(a)) for s, a in pairs)
    return Stretches(mdp, tuple(states.tolist()), chosen, tuple(changes), tuple(toggles), tried)


class Person(NamedTuple):
    """An expert on the slider: the number that `data-experts` uses, the name, and the discount."""

    number: int
    name: str
    discount: float


class Scale(NamedTuple):
    """A scale above the slider: numbers, changes and experts at places from 0 to 1."""

    unit: Unit
    ticks: Sequence[tuple[Any, ...]]
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
    """Return the blocks of a slider over the discount.

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
    stretches = best_actions(mdp, reward, weights, None if on_grid else most_rows, exact_states)
    start = float(median(person.discount for person in people)) if people else 0.5
    best = stretches.best_at(start)
    arrows = [(state, action, i in best) for i, (state, action) in enumerate(stretches.pairs)]
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
    ruler = Ruler.over([*(person.discount for person in people), *stretches.changes], horizon)
    scales, marked = [], stretches.changes[1:301]  # more strokes would make the scale black
    for unit in UNITS:
        places = [[ruler.place(gamma, unit) for gamma in gammas] for gammas in (marked, [p.discount for p in people])]
        scales.append(Scale(unit, ruler.axes[unit].ticks, *places))
    data = {
        "changes": [round(change, 9) for change in stretches.changes],
        "toggles": stretches.toggles,
        "start": start,
        "steps": None if np.isinf(horizon.longest) else horizon.longest,
        "nearest": ruler.nearest,
        "farthest": ruler.farthest,
        "timed": horizon.timed,
        "many": horizon.many,
    }
    said = f"Shown at γ = {decimals(start, 4)}, {horizon.number(start)} {horizon.many}."
    dots = [f"{p.name}\nγ {decimals(p.discount, 3)}, {horizon.number(p.discount)} {horizon.many}" for p in people]
    blocks: list[str | Block] = [Explorer(number, data, said, drawing, _table(stretches, best, horizon), people, dots, scales)]
    if stretches.tried:
        blocks.append(
            f"The best actions were computed at {len(stretches.tried)} discounts up to {stretches.tried[-1]:g}; a change may "
            "lie up to 0.01 below the place where it is shown."
        )
    deciding = int((~mdp.terminal).sum())
    if len(stretches.states) < deciding:
        blocks.append(f"Shown are the {len(stretches.states):,} states with the most decisions, of {deciding:,}.")
    return blocks


def _table(stretches: Stretches, best: set[int], horizon: Horizon) -> TableBlock:
    """For every state the best actions at the chosen look-ahead, and where they change."""
    names = stretches.mdp.action_names

    def ranges(changes: Sequence[tuple[float, list[int]]], unit: Unit) -> str:
        """Return best actions with the look-ahead up to which they are best."""
        parts = [" or ".join(names[a] for a in actions) for _, actions in changes]
        for i, (end, _) in enumerate(changes[1:]):
            discount = f"{end:g}" if stretches.tried else decimals(end, 4)
            parts[i] += f" up to {discount if unit == 'discount' else horizon.number(end)}"
        return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, then {parts[-1]}"

    actions_in: dict[int, list[tuple[str, bool]]] = {state: [] for state in stretches.states}
    for i, (state, action) in enumerate(stretches.pairs):
        actions_in[state].append((names[action], i in best))
    rows = []
    for state, changes in stretches.by_state().items():
        by_discount, by_steps = (ranges(changes, unit) for unit in UNITS)
        rows.append([stretches.mdp.state_names[state], BestActions(actions_in[state]), Either(by_discount, by_steps)])
    by_look_ahead = Either("best actions by discount γ", f"best actions by horizon in {horizon.many}")
    columns = ["state", "best at the chosen look-ahead", "changes"]
    caption = "The best actions of each state, and where they change"
    return TableBlock(Table(pd.DataFrame(rows, columns=columns), caption), headers={"changes": by_look_ahead})
