"""Pictures of a task: a grid as a map with its rewards, and a small task as a graph, both with actions as arrows.

An arrow is a state, an action, and whether it is shown: a page with a slider draws all actions that are best at some discount,
and its script, which knows them by their order, shows and hides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin
from typing import ClassVar

import numpy as np
from scipy.sparse.csgraph import dijkstra

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.mdp import MDP
from multihorizon.report.charts import Block
from multihorizon.report.plots import ARROWS, READABLE_CELLS
from multihorizon.words import decimals, shortened

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
    whether the episode ends there, and a tip. An arrow is whether it is shown, and its path.
    """

    template: ClassVar[str] = "maps.html"
    caption: str
    size: tuple[int, int]
    cells: Sequence[tuple[float, float, str, bool, str]]
    arrows: Sequence[tuple[bool, str]]


def grid_map(
    mdp: MDP,
    values: Floats,
    tips: Sequence[str],
    caption: str,
    arrows: Sequence[Arrow] | None = None,
    scale: tuple[float, float] | None = None,
) -> GridMap:
    """The cells of a grid coloured by their rewards `(S,)`, NaN where not known, with actions as arrows where given.

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
        numbers = [decimals(value, 2, "?") for value in values]
    opacities, ends, paths = DARKEST * np.sqrt(np.abs(shares)), mdp.terminal.tolist(), []
    for state, action, shown in arrows or ():
        row, column = divmod(state, width)
        down, right = ARROWS[mdp.action_names[action]]
        x, y = (column + 0.5) * 48, (row + 0.5) * 48
        tip = x + 17 * right, y + 17 * down
        paths.append((shown, f"M{x:g} {y:g}L{tip[0]:g} {tip[1]:g}{_head(*tip, right, down)}"))
    cells = list(zip(shares.tolist(), opacities.tolist(), numbers, ends, tips, strict=True))
    return GridMap(caption, (48 * width, 48 * height), cells, paths)


def _head(x: float, y: float, right: float, down: float) -> str:
    """Two strokes at the tip of an arrow that points to the right by so much and down by so much, of length 1."""
    ends = [(x - 6 * right - side * 4 * down, y - 6 * down + side * 4 * right) for side in (1, -1)]
    return f"M{ends[0][0]:.1f} {ends[0][1]:.1f}L{x:.1f} {y:.1f}L{ends[1][0]:.1f} {ends[1][1]:.1f}"


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


def graph_map(mdp: MDP, tips: Sequence[str], caption: str, arrows: Sequence[Arrow]) -> GraphMap | None:
    """A small task as a graph, from the first states on the left; None where it has more than 20 states, too many to be read."""
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
    """A name on one line of at most 9 characters, or its words on two; what does not fit is left out."""
    words = name.split()
    lines = [name] if len(name) <= 9 or len(words) < 2 else [words[0], " ".join(words[1:])]
    return [shortened(line, 9) for line in lines]


def _places(mdp: MDP) -> list[Place]:
    """States in layers from left to right, and in a layer next to where they are reached from; in a circle where they crowd."""
    across, down = 150.0, 100.0
    reach = np.asarray((mdp.under(mdp.available / 1.0) > 0).todense(), dtype=np.bool_) & ~mdp.terminal[:, None]
    depth = _depths(mdp, reach & ~np.eye(mdp.n_states, dtype=np.bool_))
    layers = [np.flatnonzero(depth == d).tolist() for d in range(int(depth.max()) + 1)]
    tallest, places = max(map(len, layers)), [(0.0, 0.0)] * mdp.n_states
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
    return np.unique(np.where(ends, last, depth), return_inverse=True)[1]


def _bend(start: Place, end: Place) -> tuple[Place, Place]:
    """The point that bends a curve between two states, and the middle of the curve; there and back do not meet."""
    (x, y), (u, v) = start, end
    if start == end:
        return (x, y - 3.4 * RADIUS), (x, y - 2.2 * RADIUS)
    bend = (x + u) / 2 + 0.16 * (v - y), (y + v) / 2 - 0.16 * (u - x)
    return bend, ((x + u) / 4 + bend[0] / 2, (y + v) / 4 + bend[1] / 2)


def _bow(start: Place, end: Place) -> str:
    """The path of an arrow between two states, from the edge of one circle to that of the other."""
    bend, _ = _bend(start, end)
    if start == end:  # a loop above the state
        start, end = (start[0] - 8, start[1]), (end[0] + 8, end[1])

    def edge(centre: Place) -> Place:
        share = (RADIUS + 2) / (hypot(bend[0] - centre[0], bend[1] - centre[1]) or 1.0)
        return centre[0] + share * (bend[0] - centre[0]), centre[1] + share * (bend[1] - centre[1])

    (x, y), (u, v) = edge(start), edge(end)
    size = hypot(u - bend[0], v - bend[1]) or 1.0
    head = _head(u, v, (u - bend[0]) / size, (v - bend[1]) / size)
    return f"M{x:.1f} {y:.1f}Q{bend[0]:.1f} {bend[1]:.1f} {u:.1f} {v:.1f}{head}"
