"""Where people go who share a reward but not a horizon: the best path of each from one start, as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from multihorizon.checks import Floats
from multihorizon.mdp import MDP
from multihorizon.planning.plan import plan
from multihorizon.report.plots import COLOURS, literal

#: What costs most is brown, what costs little is green, what pays is gold.
GROUND = LinearSegmentedColormap.from_list("ground", ["#b08d6a", "#e4efd9", "#f6d55c"])


def best_walk(mdp: MDP, reward: Floats, discount: float, start: int) -> list[int]:
    """The states that the best policy visits from a start, following the likeliest move, until the end or until it returns."""
    policy = plan(mdp, reward, discount).policy
    walk = [start]
    while not mdp.terminal[walk[-1]]:
        moves = mdp.transition(int(policy[walk[-1]].argmax()))[[walk[-1]]].toarray()
        following = int(moves.argmax())
        if following in walk:
            break
        walk.append(following)
    return walk


def plot_walks(mdp: MDP, reward: Floats, walks: Sequence[Sequence[int]], titles: Sequence[str], heading: str) -> Figure:
    """One map of a grid for each walk, side by side; numbers stand in the cells that pay or cost most."""
    assert mdp.grid_shape is not None
    height, width = mdp.grid_shape
    figure = Figure(figsize=(3.4 * len(walks), 3.4 * height / width + 0.85), layout="constrained")
    figure.suptitle(heading, fontsize=14, fontweight="bold")
    panels = figure.subplots(1, len(walks), squeeze=False)[0]
    for number, (ax, walk, title) in enumerate(zip(panels, walks, titles, strict=True)):
        _map(mdp, reward, ax)
        rows, columns = np.divmod(np.asarray(walk), width)
        colour = COLOURS[(0, 4, 2)[number % 3]]
        ax.plot(columns[:-1], rows[:-1], color=colour, lw=3.5, solid_capstyle="round")
        tip = 0.45 * columns[-2:].sum() + 0.1 * columns[-1], 0.45 * rows[-2:].sum() + 0.1 * rows[-1]
        arrow = {"arrowstyle": "-|>", "color": colour, "lw": 3.5, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 18}
        ax.annotate("", tip, (columns[-2], rows[-2]), arrowprops=arrow)
        ax.plot(columns[0], rows[0], "o", color=colour, markersize=9)
        ax.set_title(literal([title])[0], fontsize=11)
    return figure


def _map(mdp: MDP, reward: Floats, ax: Axes) -> None:
    """The ground, coloured by the reward, with a number where something pays or costs most."""
    assert mdp.grid_shape is not None
    cost, pay = min(float(reward.min()), -1e-9), max(float(reward.max()), 1e-9)
    shade = np.where(reward < 0, 0.5 * (1 - reward / cost), 0.5 + 0.5 * np.sqrt(np.maximum(reward, 0) / pay))
    ax.imshow(shade.reshape(mdp.grid_shape), cmap=GROUND, vmin=0, vmax=1)
    for state in np.flatnonzero((reward > 0) | (reward == cost)).tolist():
        row, column = divmod(state, mdp.grid_shape[1])
        text, colour = f"{reward[state]:+g}".replace("-", "−"), "black" if reward[state] > 0 else "white"
        ax.text(column, row + 0.02, text, ha="center", va="center", fontsize=9, fontweight="bold", color=colour, zorder=5)
    ax.set_xticks(np.arange(mdp.grid_shape[1] + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(mdp.grid_shape[0] + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="white", lw=1)
    ax.tick_params(which="both", length=0, labelleft=False, labelbottom=False)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
