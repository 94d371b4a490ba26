"""The best actions of a reward as the discount grows, kept small: where they change, and which actions come and go there.

For tasks of up to `EXACT_STATES` states the changes are exact (`planning/breakpoints.py`). For larger ones the task is planned at
the discounts of `TRIED`, and a change stands at the first discount where it was seen. Of many states only some are kept: those
with the largest weights, which are decisions where decisions are known.

Pictures of a task: a grid as a map with its rewards and the best actions as arrows, and a small task as a graph.

Arrows of all actions that are best at some discount are drawn; the page shows those that are best at the discount of the slider.
They stand in the order of `Stretches.pairs`, by which the script knows them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin
from typing import Any

import numpy as np
from scipy.sparse.csgraph import dijkstra

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.mdp import MDP
from multihorizon.planning.breakpoints import DiscountInterval, discount_intervals
from multihorizon.planning.plan import plan
from multihorizon.report.charts import framed, text
from multihorizon.report.plots import ARROWS, READABLE_CELLS
from multihorizon.text import shortened

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


#: The side of a cell, the length of an arrow in it, and the most cells of a map.
CELL, ARROW, MOST_CELLS = 48, 17, 900
#: How strongly the largest reward colours its cell: numbers on it can still be read, in light and in dark. Others colour it with
#: the root of their size, so that one large reward does not make all others look alike.
DARKEST = 0.5
#: A graph has at most so many states. They stand in layers if there are at most so many, with at most so many states in a layer.
MOST_NODES, MOST_LAYERS, MOST_IN_LAYER = 20, 7, 5
#: The distance between layers and between the states in them, and the size of a state.
ACROSS, DOWN, RADIUS = 150.0, 100.0, 30.0
#: The longest line of a name in a state, in characters.
NAME_LINE = 9
#: Of the moves of an action the likeliest is drawn, and others if they are as likely as this.
LIKELY = 0.15


def grid_map(
    mdp: MDP, values: Floats, tips: Sequence[str], caption: str, stretches: Stretches | None = None, best: Collection[int] = ()
) -> str:
    """The cells of a grid coloured by their rewards `(S,)`, NaN where not known; with the best actions as arrows where given.

    A cell with the median reward has no colour: most cells of most grids pay the same.
    """
    assert mdp.grid_shape is not None
    height, width = mdp.grid_shape
    above = values - (np.nanmedian(values) if np.isfinite(values).any() else 0.0)
    largest = float(np.nanmax(np.abs(above), initial=0.0)) or 1.0
    numbers = stretches is None and mdp.n_states <= READABLE_CELLS
    cells = [_cell(mdp, s, float(above[s]) / largest, tips[s], f"{values[s] + 0.0:.2f}" * numbers) for s in range(mdp.n_states)]
    arrows = [] if stretches is None else [_arrow(mdp, s, a, i in best) for i, (s, a) in enumerate(stretches.pairs)]
    return _picture("".join(cells) + f'<g class="choices">{"".join(arrows)}</g>', caption, width * CELL, height * CELL, 1.4)


def has_arrows(mdp: MDP) -> bool:
    """Whether a task is a grid whose actions have directions, small enough to be drawn."""
    return mdp.grid_shape is not None and ARROWS.keys() >= set(mdp.action_names) and mdp.n_states <= MOST_CELLS


def _picture(body: str, caption: str, width: float, height: float, zoom: float) -> str:
    size = f'viewBox="-1 -1 {width + 2:g} {height + 2:g}"'
    drawn = f'<svg class="chart" role="img" aria-label="{text(caption)}" {size}>{body}</svg>'
    return framed(drawn, caption, min(max(int(zoom * width) + 30, 400), 760))


def _cell(mdp: MDP, state: int, share: float, tip: str, number: str) -> str:
    row, column = divmod(state, (mdp.grid_shape or (1, 1))[1])
    x, y = column * CELL, row * CELL
    kind = "unknown" if np.isnan(share) else "plus" if share >= 0 else "less"
    shade = "" if np.isnan(share) else f' fill-opacity="{DARKEST * abs(share) ** 0.5:.3f}"'
    parts = [f'<rect class="{kind}" x="{x}" y="{y}" width="{CELL}" height="{CELL}"{shade}/>']
    parts.append(f'<rect class="frame" x="{x}" y="{y}" width="{CELL}" height="{CELL}"/>')
    if mdp.terminal[state]:
        parts.append(f'<rect class="frame end" x="{x + 4}" y="{y + 4}" width="{CELL - 8}" height="{CELL - 8}"/>')
    if number:
        shown = "?" if np.isnan(share) else number
        parts.append(f'<text x="{x + CELL / 2:g}" y="{y + CELL / 2 + 4:g}" text-anchor="middle">{shown}</text>')
    return f'<g class="mark"><title>{text(tip)}</title>{"".join(parts)}</g>'


def _arrow(mdp: MDP, state: int, action: int, on: bool) -> str:
    row, column = divmod(state, (mdp.grid_shape or (1, 1))[1])
    down, right = ARROWS[mdp.action_names[action]]
    x, y = (column + 0.5) * CELL, (row + 0.5) * CELL
    tip_x, tip_y = x + ARROW * right, y + ARROW * down
    return f'<path class="choice arrow{" on" * on}" d="M{x:g} {y:g}L{tip_x:g} {tip_y:g}{_head(tip_x, tip_y, right, down)}"/>'


def _head(x: float, y: float, right: float, down: float) -> str:
    """Two strokes at the tip of an arrow that points to the right by so much and down by so much, of length 1."""
    ends = [(x - 6 * right - side * 4 * down, y - 6 * down + side * 4 * right) for side in (1, -1)]
    return f"M{ends[0][0]:.1f} {ends[0][1]:.1f}L{x:.1f} {y:.1f}L{ends[1][0]:.1f} {ends[1][1]:.1f}"


def graph_map(mdp: MDP, tips: Sequence[str], caption: str, stretches: Stretches, best: Collection[int]) -> str | None:
    """A small task as a graph, from the first states on the left; None where it has too many states to be read."""
    places = _places(mdp)
    if places is None:
        return None
    likeliest = [(s, int(mdp.transition(a)[[s]].toarray().argmax())) for s, a in stretches.pairs]
    ranks = [likeliest[:i].count(way) for i, way in enumerate(likeliest)]  # names at one arrow stand below each other
    choices = [_moves(mdp, places, s, a, i in best, ranks[i]) for i, (s, a) in enumerate(stretches.pairs)]
    nodes = [_node(mdp, places[s], s, tips[s]) for s in range(mdp.n_states)]
    body = "".join(nodes) + f'<g class="choices">{"".join(choices)}</g>'
    width, height = (max(place[i] for place in places) + RADIUS + 30 for i in (0, 1))
    return _picture(body, caption, width, height, 1.3)


def _places(mdp: MDP) -> list[tuple[float, float]] | None:
    """States in layers from left to right, and in a layer next to where they are reached from; in a circle where they crowd."""
    if mdp.n_states > MOST_NODES:
        return None
    reach = np.asarray((mdp.under(mdp.available / 1.0) > 0).todense(), dtype=np.bool_) & ~mdp.terminal[:, None]
    depth = _depths(mdp, reach & ~np.eye(mdp.n_states, dtype=np.bool_))
    layers = [np.flatnonzero(depth == d).tolist() for d in range(int(depth.max()) + 1)]
    tallest, places = max(map(len, layers)), [(0.0, 0.0)] * mdp.n_states
    if len(layers) > MOST_LAYERS or tallest > MOST_IN_LAYER or tallest > len(layers) + 1:
        return _circle([s for layer in layers for s in sorted(layer, key=lambda s: mdp.state_names[s])])
    for number, layer in enumerate(layers):
        above = {s: [places[b][1] for b in np.flatnonzero(reach[:, s] & (depth < number))] or [0.0] for s in layer}
        layer.sort(key=lambda s: (sum(above[s]) / len(above[s]), mdp.state_names[s]))
        for i, s in enumerate(layer):
            places[s] = (30 + RADIUS + ACROSS * number, 40 + RADIUS + DOWN * (i + (tallest - len(layer)) / 2))
    return places


def _circle(order: Sequence[int]) -> list[tuple[float, float]]:
    """States around a circle in this order."""
    around, places = max(2.0 * RADIUS, len(order) * 1.2 * DOWN / (2 * pi)), [(0.0, 0.0)] * len(order)
    middle = around + RADIUS + 60
    for i, state in enumerate(order):
        angle = 2 * pi * i / len(order) - pi / 2
        places[state] = (middle + around * cos(angle), middle + around * sin(angle))
    return places


def _depths(mdp: MDP, moves: Bools) -> Ints:
    """The layer of each state `(S,)`: its longest way from the first ones, or the shortest where states recur. Ends come last."""
    nearest = dijkstra(moves / 1.0, indices=np.flatnonzero(mdp.initial > 0), unweighted=True, min_only=True)
    depth = farthest = np.where(np.isinf(nearest), np.max(nearest, where=np.isfinite(nearest), initial=0) + 1, nearest)
    for _ in range(mdp.n_states + 1):
        before, farthest = farthest, np.maximum(farthest, np.max(np.where(moves, farthest[:, None] + 1, 0), axis=0))
        if (farthest == before).all():
            depth = farthest
            break
    ends = mdp.terminal & moves.any(axis=0)
    last = np.max(depth, where=~mdp.terminal, initial=0) + 1
    found: Ints = np.unique(np.where(ends, last, depth), return_inverse=True)[1]
    return found


def _node(mdp: MDP, place: tuple[float, float], state: int, tip: str) -> str:
    x, y = place
    kind = "node end" if mdp.terminal[state] else "node"
    lines = _name_lines(mdp.state_names[state])
    top = y + 4 - 6 * (len(lines) - 1)
    names = "".join(
        f'<text class="name" x="{x:.1f}" y="{top + 12 * i:.1f}" text-anchor="middle">{text(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<g class="mark"><title>{text(tip)}</title><circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS:g}"/>{names}</g>'
    )


def _name_lines(name: str) -> list[str]:
    """A name on one line, or its words on two; what does not fit is left out."""
    words = name.split()
    lines = [name] if len(name) <= NAME_LINE or len(words) < 2 else [words[0], " ".join(words[1:])]
    return [shortened(line, NAME_LINE) for line in lines]


def _moves(mdp: MDP, places: Sequence[tuple[float, float]], state: int, action: int, on: bool, rank: int) -> str:
    """An action as arrows to the states it leads to, wider for likelier ones, with its name at the likeliest."""
    row = mdp.transition(action)[[state]].tocoo()
    moves = sorted(((float(p), int(s)) for p, s in zip(row.data, row.coords[1], strict=True)), reverse=True)
    moves = [move for i, move in enumerate(moves) if i == 0 or move[0] >= LIKELY]
    parts = [_bow(places[state], places[target], chance) for chance, target in moves]
    x, y = _bend(places[state], places[moves[0][1]])[1] if moves else places[state]
    label = text(shortened(mdp.action_names[action], 12))
    name = f'<text x="{x:.1f}" y="{y - 4 + 13 * rank:.1f}" text-anchor="middle">{label}</text>'
    return f'<g class="choice{" on" * on}">{"".join(parts)}{name}</g>'


def _bend(start: tuple[float, float], end: tuple[float, float]) -> tuple[tuple[float, float], tuple[float, float]]:
    """The point that bends a curve between two states, and the middle of the curve; there and back do not meet."""
    (x, y), (u, v) = start, end
    if start == end:
        return (x, y - 3.4 * RADIUS), (x, y - 2.2 * RADIUS)
    bend = (x + u) / 2 + 0.16 * (v - y), (y + v) / 2 - 0.16 * (u - x)
    return bend, ((x + u) / 4 + bend[0] / 2, (y + v) / 4 + bend[1] / 2)


def _bow(start: tuple[float, float], end: tuple[float, float], chance: float) -> str:
    bend, _ = _bend(start, end)
    if start == end:  # a loop above the state
        start, end = (start[0] - 8, start[1]), (end[0] + 8, end[1])
    (x, y), (u, v) = _toward(start, bend), _toward(end, bend)
    size = hypot(u - bend[0], v - bend[1]) or 1.0
    head = _head(u, v, (u - bend[0]) / size, (v - bend[1]) / size)
    wide = f'stroke-width="{0.8 + 1.8 * chance:.2g}"'
    return f'<path class="arrow" {wide} d="M{x:.1f} {y:.1f}Q{bend[0]:.1f} {bend[1]:.1f} {u:.1f} {v:.1f}{head}"/>'


def _toward(center: tuple[float, float], bend: tuple[float, float]) -> tuple[float, float]:
    """Where a curve leaves the circle of a state."""
    length = hypot(bend[0] - center[0], bend[1] - center[1]) or 1.0
    return tuple(c + (RADIUS + 2) * (b - c) / length for c, b in zip(center, bend, strict=True))  # type: ignore[return-value]
