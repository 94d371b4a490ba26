"""The figures of a fit: the reward on its grid, fitted against observed choices, calibration, and many horizons at once."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from multihorizon.checks import Floats
from multihorizon.likelihood.model_checks import ModelChecks
from multihorizon.report.findings import Findings
from multihorizon.report.misfit import FEWEST_DECISIONS, compared_choices
from multihorizon.report.plots import COLOURS, new_axes, plot_reward

#: With more dots than this a picture is stored as pixels: each dot of a drawing takes a hundred bytes.
MANY_DOTS = 1000


def plot_reward_map(findings: Findings) -> Axes | None:
    """The reward as differences from its mean on the grid of the states; None where the states are not a grid."""
    mdp = findings.problem.experts[0].mdp
    if findings.problem.parameter_names != mdp.state_names or mdp.grid_shape is None:
        return None
    height, width = mdp.grid_shape
    return plot_reward(mdp, findings.contrasts.values, new_axes(5.2, 5.2 * height / width * 0.85 + 0.6), "")


def plot_choices(findings: Findings) -> Axes | None:
    """The share of each action in a state against the fitted probability; None where no state has enough decisions."""
    parts = []
    for choices in compared_choices(findings):
        visits = np.broadcast_to(choices.visits[:, None], choices.taken.shape)
        many = choices.mdp.available & (choices.mdp.available.sum(axis=1, keepdims=True) > 1)
        seen = (visits >= FEWEST_DECISIONS) & many
        parts.append((choices.expected[seen] / visits[seen], choices.taken[seen] / visits[seen], visits[seen]))
    fitted, observed, decisions = (np.concatenate(column) for column in zip(*parts, strict=True))
    if not fitted.size:
        return None
    ax = _square("fitted probability", "share of the decisions")
    sizes = np.clip(2 * np.sqrt(decisions), 6, 80)
    ax.scatter(fitted, observed, s=sizes, color=COLOURS[0], alpha=0.4, linewidths=0, rasterized=fitted.size > MANY_DOTS)
    return ax


def plot_calibration(checks: ModelChecks) -> Axes:
    """Share of held-out decisions taken against the predicted probability, with two standard errors."""
    predicted, taken, weight = checks.calibration.T
    ax = _square("predicted probability of an action", "share of held-out decisions")
    error: Floats = 2 * np.sqrt(predicted * (1 - predicted) / weight)
    ax.errorbar(predicted, taken, yerr=error, fmt="o", color=COLOURS[0], ms=5, capsize=3)
    return ax


def plot_horizons(findings: Findings) -> Axes:
    """How many experts have which discount."""
    known = findings.solution.discounts[findings.given]
    ax = new_axes(5.2, 2.4)
    ax.hist(known, bins=np.linspace(0, 1, 21).tolist(), color=COLOURS[0], edgecolor="white")
    ax.set(xlim=(0, 1), xlabel="discount γ", ylabel="experts")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    _plain(ax)
    return ax


def plot_people(findings: Findings) -> Axes:
    """Every discount with its interval, from the shortest horizon to the longest; names are in the table."""
    order = [k for k in findings.order if findings.given[k]]
    ax = new_axes(5.2, 2.8)
    ax.vlines(
        range(len(order)), *findings.intervals[order].T, color=COLOURS[0], alpha=0.45, lw=max(0.6, min(4, 150 / len(order)))
    )
    ax.plot(range(len(order)), findings.solution.discounts[order], ".", color=COLOURS[0], ms=5)
    ax.set(ylim=(-0.02, 1.02), xlabel="experts, from the shortest horizon to the longest", ylabel="discount γ", xticks=[])
    _plain(ax)
    return ax


def _square(xlabel: str, ylabel: str) -> Axes:
    """Axes from 0 to 1 both ways, with the line on which both agree."""
    ax = new_axes(4.6, 4.2)
    ax.plot([0, 1], [0, 1], color="0.7", lw=1)
    ax.set(xlabel=xlabel, ylabel=ylabel, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    _plain(ax)
    return ax


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", color="0.92", zorder=0)
    ax.set_axisbelow(True)
