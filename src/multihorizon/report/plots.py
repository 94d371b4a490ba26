"""Figures: rewards, policies, what each policy is worth as the discount grows, how horizons are distributed, and how those of
the same people change with a condition.

Each function draws on a given matplotlib axes (or makes one) and returns it. Grids are drawn as grids; MDPs without a grid
shape as bars and tables. Colours: one diverging map around zero for rewards, one qualitative cycle for experts and policies.
`plot_walks` shows where people go who share a reward but not a horizon, by the best path of each from one start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import logit

from multihorizon.checks import Floats, Ints, as_floats, as_shape
from multihorizon.mdp import MDP
from multihorizon.planning.breakpoints import DiscountInterval, discount_intervals
from multihorizon.planning.plan import evaluate, one_hot, plan
from multihorizon.population.findings import PopulationEvidence, PopulationFindings
from multihorizon.result import COLOURS, literal
from multihorizon.solution import Solution
from multihorizon.words import decimals, significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Actions drawn as arrows on a grid: rows down and columns to the right.
ARROWS = {"right": (0, 1), "down": (1, 0), "left": (0, -1), "up": (-1, 0)}
#: Above this many cells numbers and arrows in them cannot be read.
READABLE_CELLS = 150


def _new_figure(width: float, height: float) -> Figure:
    """Return a fresh figure, without touching pyplot's global state."""
    from matplotlib.figure import Figure  # noqa: PLC0415  a picture is drawn: only now is matplotlib needed

    return Figure(figsize=(width, height), layout="constrained")


def new_axes(width: float = 5.0, height: float = 4.0) -> Axes:
    """Return a fresh axes on a figure of its own."""
    return _new_figure(width, height).subplots()


def save(axes_or_figure: Axes | Figure, path: str | Path) -> None:
    """Write the figure of an axes to a file, its format by the file's ending."""
    figure = axes_or_figure.get_figure(root=True)
    assert figure is not None
    figure.savefig(path, dpi=150, metadata={"Date": None} if str(path).endswith(".svg") else None)


def plot_reward(mdp: MDP, reward: Any, ax: Axes | None = None, title: str = "Reward", limit: float | None = None) -> Axes:
    """Draw a reward `(S,)` as a heat map on the grid, or as bars where the MDP has no grid shape; NaN, not known, is grey.

    `limit` is the reward with the darkest colour, by default the largest: give one limit to maps that are compared.
    """
    values = np.asarray(reward, dtype=np.float64)
    if np.isinf(values).any():
        raise ValueError("reward must be finite, or NaN where it is not known, got an infinity")
    as_shape(values, (mdp.n_states,), "reward")
    ax = ax or new_axes()
    ax.set_title(title)
    if mdp.grid_shape is None:
        return _bars(mdp, values, ax)
    limit = limit or float(np.abs(np.nan_to_num(values)).max()) or 1.0
    ax.set_facecolor("0.8")
    image = ax.imshow(values.reshape(mdp.grid_shape), cmap="RdBu", vmin=-limit, vmax=limit)
    _frame(mdp, ax)
    if mdp.n_states > READABLE_CELLS:
        ax.figure.colorbar(image, ax=ax, shrink=0.8, label="reward on arrival")
    else:
        whole = bool(np.allclose(np.nan_to_num(values), np.round(np.nan_to_num(values)), atol=1e-9))
        for (row, column), value in np.ndenumerate(values.reshape(mdp.grid_shape)):
            shade = "white" if abs(value) > 0.6 * limit else "black"
            text = "?" if np.isnan(value) else f"{value + 0.0:.{0 if whole else 2}f}"
            ax.text(column, row, text, ha="center", va="center", color=shade, fontsize=9)
    return ax


def plot_policy(mdp: MDP, policy: Any, ax: Axes | None = None, title: str = "Policy") -> Axes:
    """Draw a policy `(S,A)` as arrows on the grid, longer for likelier actions; optimal-action sets bool `(S,A)` get one arrow
    each.

    Without a grid shape, a table of states and actions.
    """
    choice = np.asarray(policy)
    as_shape(choice, (mdp.n_states, mdp.n_actions), "policy")
    ax = ax or new_axes()
    ax.set_title(title)
    if mdp.grid_shape is None or not ARROWS.keys() >= set(mdp.action_names):
        return _table(mdp, choice / 1.0, ax)
    ax.imshow(np.zeros(mdp.grid_shape), cmap="Greys", vmin=0, vmax=1)
    _frame(mdp, ax)
    weights = choice.astype(np.float64) if choice.dtype == np.bool_ else choice / choice.max(axis=1, keepdims=True)
    states, actions = np.nonzero((weights > 0.05) & ~mdp.terminal[:, None])  # fainter arrows cannot be seen
    rows, columns = np.divmod(states, mdp.grid_shape[1])
    lengths = 0.38 * weights[states, actions]
    downs, rights = (np.array([ARROWS[name][axis] for name in mdp.action_names])[actions] * lengths for axis in (0, 1))
    ax.quiver(columns, rows, rights, downs, angles="xy", scale_units="xy", scale=1, width=0.012, color=COLOURS[0])
    return ax


def plot_values_by_discount(
    mdp: MDP,
    reward: Any,
    policies: Sequence[Any] | None = None,
    labels: Sequence[str] | None = None,
    marks: Sequence[float] = (),
    ax: Axes | None = None,
    title: str = "Value of each policy against the discount",
) -> Axes:
    """Draw the value of each policy from the initial distribution as the discount grows, with the breakpoints marked.

    Args:
        mdp, reward: the problem; the reward is `(S,)` or `(S,A)`.
        policies: policies `(S,A)` to follow; by default the first optimal one of each discount interval.
        labels: one for each policy.
        marks: discounts to mark with dashed lines in the colours of the policies, such as those a solver learned.
        ax: axes to draw on.
        title: the title.
    """
    ax = ax or new_axes(6.5, 4.2)
    intervals = discount_intervals(mdp, reward)
    if policies is None:
        policies = [one_hot(i.optimal_actions.argmax(axis=1), mdp.n_actions) for i in intervals]
        labels = labels or [f"optimal on [{decimals(i.low, 3)}, {decimals(i.high, 3)}]" for i in intervals]
    names = labels or [f"policy {i}" for i in range(len(policies))]
    endless = any(mdp.never_ends(as_floats(policy, "policy")).any() for policy in policies)
    grid = np.linspace(0, 0.99 if endless else 1, 201)
    for number, policy in enumerate(policies):
        values = [float(mdp.initial @ evaluate(mdp, policy, reward, gamma).values) for gamma in grid]
        ax.plot(grid, values, color=COLOURS[number % len(COLOURS)], label=literal(names[number]), lw=2)
    for interval in intervals[:-1]:
        ax.axvline(interval.high, color="0.6", lw=0.8, zorder=0)
        ax.text(
            interval.high, 1.0, decimals(interval.high, 3), transform=ax.get_xaxis_transform(), ha="right", va="top", rotation=90
        )
    for number, mark in enumerate(marks):
        ax.axvline(mark, color=COLOURS[number % len(COLOURS)], ls="--", lw=1.5)
    ax.set(title=title, xlabel="discount γ", ylabel="value from the initial state")
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_distribution(solution: Solution, group: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw how horizons are distributed: the free distribution of `Population` as bars, with the normal one as a line.

    `group` is one of the groups that have a distribution of their own, by default the first.
    """
    population = PopulationEvidence.of(solution).population
    if population.distribution is None:
        raise ValueError('this needs a solution of Population(distribution="free"), got one of a normal population')
    name = next(iter(population.distribution)) if group is None else group
    if name not in population.distribution:
        raise ValueError(f"group must be one of {', '.join(population.distribution)}, got {group}")
    mixture = population.distribution[name]
    largest = population.largest_discount
    logits = logit(np.clip(np.array(mixture["discounts"]) / largest, 1e-12, 1 - 1e-12))
    centre = float(logit(population.predictions[name]["typical_discount"] / largest))
    spread = population.spread["discount"]["estimate"]
    low, high = min(logits.min(), centre - 3 * spread) - 0.25, max(logits.max(), centre + 3 * spread) + 0.25
    edges = np.linspace(low, high, 1 + int(np.clip((high - low) / 0.25, 12, 60)))
    x = np.linspace(low, high, 200)
    ax = ax or new_axes(6.0, 3.6)
    ax.hist(logits, edges.tolist(), weights=mixture["weights"], color=COLOURS[5], label="no shape assumed")
    curve = np.exp(-0.5 * ((x - centre) / spread) ** 2) / (spread * np.sqrt(2 * np.pi)) * (edges[1] - edges[0])
    ax.plot(x, curve, color=COLOURS[4], label="normal")
    ax.set_xticks(*_discount_ticks(low, high, largest))
    ax.set(xlabel="discount γ, on the logit scale", ylabel="share of people", title=literal(name))
    ax.legend(frameon=False)
    return ax


def plot_conditions(solution: Solution, condition: str | None = None, ax: Axes | None = None) -> Axes:
    """Draw how the same people change with a condition: a thin line joins the shrunken discounts of each, and the thick line
    is what is typical. Of more than 300 people 100 are drawn, evenly from the shortest horizon to the longest.

    `condition` is one of those in the formula of `Population`, by default the first.
    """
    population = PopulationEvidence.of(solution).population
    if not population.conditions:
        raise ValueError("this needs a solution of Population with a condition in its formula, got one without")
    name = population.conditions[0] if condition is None else condition
    if name not in population.conditions:
        raise ValueError(f"condition must be one of {', '.join(population.conditions)}, got {condition}")
    by = by_condition(population, name)
    ax = ax or new_axes(5.0, 4.2)
    for logits in by.logits[by.drawn]:
        seen = ~np.isnan(logits)
        alone = "o" if seen.sum() == 1 else ""
        ax.plot(by.places[seen], logits[seen], color=COLOURS[0], alpha=0.4, lw=1, marker=alone, markersize=3)
    ax.plot(by.places, by.typical, color="black", lw=3.5)
    if not by.is_number:
        ax.set_xticks(by.places, [literal(level) for level in by.levels])
        ax.set_xlim(-0.4, len(by.levels) - 0.6)
    low, high = ax.get_ylim()
    ax.set_yticks(*_discount_ticks(low, high, population.largest_discount))
    ax.set(xlabel=literal(name), ylabel="discount γ, on the logit scale")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _discount_ticks(low: float, high: float, largest: float) -> tuple[list[float], list[str]]:
    """Round discounts between two logits: where they stand, and what is written there."""
    gammas = [
        g for g in (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999) if g < largest and low <= logit(g / largest) <= high
    ]
    return [float(logit(gamma / largest)) for gamma in gammas], [f"{gamma:g}" for gamma in gammas]


def plot_intervals(mdp: MDP, reward: Any, intervals: Sequence[DiscountInterval]) -> Figure:
    """Draw the reward and the optimal policy of every discount interval side by side."""
    columns = min(4, len(intervals) + 1)
    rows = -(-(len(intervals) + 1) // columns)
    height, width = mdp.grid_shape or (3, 4)
    figure = _new_figure(columns * 4.2, rows * (4.1 * height / width + 0.35))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    plot_reward(mdp, reward, axes[0], "The reward the experts share")
    for ax, interval in zip(axes[1:], intervals, strict=False):
        plot_policy(
            mdp, interval.optimal_actions, ax, f"Optimal for γ from {decimals(interval.low, 4)} to {decimals(interval.high, 4)}"
        )
    for ax in axes[len(intervals) + 1 :]:
        ax.set_visible(False)
    return figure


def _frame(mdp: MDP, ax: Axes) -> None:
    """Cell borders, and hatched frames in terminal cells."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415  a picture is drawn: only now is matplotlib needed

    assert mdp.grid_shape is not None
    height, width = mdp.grid_shape
    ax.set(xticks=[], yticks=[])
    if mdp.n_states > READABLE_CELLS:
        return
    for state in range(mdp.n_states):
        row, column = divmod(state, width)
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, fill=False, ec="0.75", lw=0.8))
    for end in np.flatnonzero(mdp.terminal).tolist():
        row, column = divmod(end, width)
        ax.add_patch(Rectangle((column - 0.46, row - 0.46), 0.92, 0.92, fill=False, ec="0.55", lw=1.6, hatch="//", alpha=0.7))
    ax.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    if mdp.terminal.any():
        ax.set_xlabel("hatched: the episode ends", fontsize=9)


def _bars(mdp: MDP, values: Floats, ax: Axes) -> Axes:
    shown = np.arange(mdp.n_states) if mdp.n_states <= READABLE_CELLS else np.sort(np.argsort(-np.abs(values))[:READABLE_CELLS])
    ax.bar(range(shown.size), values[shown], color=[COLOURS[0] if v >= 0 else COLOURS[4] for v in values[shown]])
    ax.axhline(0, color="0.3", lw=0.8)
    ax.set_xticks(range(shown.size), [literal(mdp.state_names[i]) for i in shown], rotation=90 if shown.size > 12 else 0)
    ax.set_ylabel("reward on arrival")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _table(mdp: MDP, weights: Floats, ax: Axes) -> Axes:
    shown = np.flatnonzero(~mdp.terminal)[:READABLE_CELLS]
    ax.imshow(weights[shown], cmap="Blues", vmin=0, vmax=1, aspect="auto")
    ax.set_xticks(range(mdp.n_actions), [*map(literal, mdp.action_names)])
    ax.set_yticks(range(shown.size), [literal(mdp.state_names[i]) for i in shown])
    if weights[shown].size <= READABLE_CELLS:
        for (row, column), value in np.ndenumerate(weights[shown]):
            ax.text(
                column,
                row,
                significant(value, 2),
                ha="center",
                va="center",
                color="white" if value > 0.6 else "black",
                fontsize=9,
            )
    return ax


def best_walk(mdp: MDP, reward: Floats, discount: float, start: int) -> list[int]:
    """Return the states that the best policy visits from a start, following the likeliest move, until the end or until it
    returns."""
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
    """Draw one map of a grid for each walk, side by side; numbers stand in the cells that pay or cost most."""
    assert mdp.grid_shape is not None
    height, width = mdp.grid_shape
    figure = _new_figure(3.4 * len(walks), 3.4 * height / width + 0.85)
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
        ax.set_title(literal(title), fontsize=11)
    return figure


def _map(mdp: MDP, reward: Floats, ax: Axes) -> None:
    """The ground, coloured by the reward, with a number where something pays or costs most."""
    from matplotlib.colors import LinearSegmentedColormap  # noqa: PLC0415  a picture is drawn: only now is matplotlib needed

    assert mdp.grid_shape is not None
    cost = min(float(reward.min()), -1e-9)
    pay = max(float(reward.max()), 1e-9)
    shade = np.where(reward < 0, 0.5 * (1 - reward / cost), 0.5 + 0.5 * np.sqrt(np.maximum(reward, 0) / pay))
    # What costs most is brown, what costs little is green, what pays is gold.
    colours = LinearSegmentedColormap.from_list("ground", ["#b08d6a", "#e4efd9", "#f6d55c"])
    ax.imshow(shade.reshape(mdp.grid_shape), cmap=colours, vmin=0, vmax=1)
    for state in np.flatnonzero((reward > 0) | (reward == cost)).tolist():
        row, column = divmod(state, mdp.grid_shape[1])
        text = f"{reward[state]:+g}".replace("-", "−")
        colour = "black" if reward[state] > 0 else "white"
        ax.text(column, row + 0.02, text, ha="center", va="center", fontsize=9, fontweight="bold", color=colour, zorder=5)
    ax.set_xticks(np.arange(mdp.grid_shape[1] + 1) - 0.5, minor=True)
    ax.set_yticks(np.arange(mdp.grid_shape[0] + 1) - 0.5, minor=True)
    ax.grid(which="minor", color="white", lw=1)
    ax.tick_params(which="both", length=0, labelleft=False, labelbottom=False)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)


# The cells of a population by a condition.


@dataclass(frozen=True, eq=False)
class ByCondition:
    """The cells of a population by one of its conditions.

    Attributes:
        column: the name of the condition.
        is_number: whether it is a number, and not the name of a group.
        levels: the names of its levels `(k,)`; the one that others are compared with comes first.
        places: where they stand on an axis `(k,)`.
        level: of each cell `(m,)`.
        persons: their names `(n,)`.
        logits: of each person's discount at each level `(n,k)`; NaN where the person has no decisions.
        typical: the logit of the typical discount at each level `(k,)`; of a number, the mean of the people's logits.
    """

    #: People who are drawn one by one; of more, a sample, in which single lines can be seen.
    most_drawn: ClassVar[int] = 300
    sample: ClassVar[int] = 100

    column: str
    is_number: bool
    levels: list[str]
    places: Floats
    level: Ints
    persons: list[str]
    logits: Floats
    typical: Floats

    @property
    def drawn(self) -> Ints:
        """Return the people who are drawn."""
        number = len(self.persons)
        return evenly(np.nanmean(self.logits, axis=1), number if number <= self.most_drawn else self.sample)


def by_condition(population: PopulationFindings, column: str) -> ByCondition:
    """Return the cells by one of the population's conditions."""
    cells = population.cells
    assert cells is not None
    pairs = [pair for pair in population.contrasts["discount"] if pair["column"] == column]
    values = pd.Series(cells[column])
    is_number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
    if pairs:
        is_number = bool(pairs[0]["number"])
    if is_number:
        most, numbers = 30, values.to_numpy(dtype=np.float64)  # more points would make no line smoother
        edges = np.unique(numbers)
        if edges.size > most:
            edges = np.unique(np.quantile(numbers, np.linspace(0, 1, most + 1)[:-1]))
        level = np.searchsorted(edges, numbers, side="right") - 1
        places = np.bincount(level, numbers) / np.bincount(level)
        levels = [significant(place, 4) for place in places]
    else:
        names = values.astype(str)
        said = [str(name) for pair in pairs for name in pair["levels"]]
        met = sorted(names.unique())
        levels = [name for name in dict.fromkeys([*said, *met]) if name in set(met)]
        level = pd.Index(levels).get_indexer(pd.Index(names))
        places = np.arange(len(levels), dtype=np.float64)
    who, persons = pd.factorize(cells["expert"])
    at, size = who * len(levels) + level, len(persons) * len(levels)
    number = np.bincount(at, minlength=size)
    with np.errstate(invalid="ignore"):
        logits = (np.bincount(at, cells["logit_discount"], minlength=size) / number).reshape(len(persons), len(levels))
    typical = np.nanmean(logits, axis=0)
    for pair in () if is_number else pairs:
        for name, discount in zip(map(str, pair["levels"]), pair["typical"], strict=True):
            if name in levels:
                typical[levels.index(name)] = logit(discount / population.largest_discount)
    return ByCondition(column, is_number, levels, places, level, [str(name) for name in persons], logits, typical)


def evenly(values: Floats, most: int) -> Ints:
    """Return where at most so many of the values stand, from the smallest to the largest at equal distances in their order."""
    order = np.argsort(values, kind="stable")
    result: Ints = order[np.linspace(0, order.size - 1, min(most, order.size)).astype(np.int64)]
    return result
