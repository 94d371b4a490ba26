"""The figures of a fit: discounts with their intervals, the reward, calibration, and held-out likelihood."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from multihorizon.checks import Floats
from multihorizon.likelihood.model_checks import MODELS, ModelChecks
from multihorizon.report.analysis import Analysis
from multihorizon.report.plots import COLOURS, literal, new_axes, plot_reward


def plot_discounts(analysis: Analysis) -> Axes:
    """Discounts with their intervals, from the shortest horizon to the longest; those not identified come last."""
    solution = analysis.solution
    known = np.array(analysis.identified)
    order = np.argsort(np.where(known, solution.discounts, 2.0), kind="stable")
    ax = new_axes(5.2, 1.1 + 0.38 * len(order))
    for row, k in enumerate(order):
        if not known[k]:
            ax.plot([0, 1], [row, row], color="0.8", lw=2, ls=":")
            ax.text(0.5, row, "not identified", ha="center", va="center", color="0.35", backgroundcolor="white", fontsize=9)
            continue
        ax.plot(analysis.intervals[k], [row, row], color=COLOURS[0], lw=3, solid_capstyle="butt", alpha=0.45)
        ax.plot(solution.discounts[k], row, "o", color=COLOURS[0], ms=6)
    ax.set_yticks(range(len(order)), literal([solution.experts[k] for k in order]))
    ax.set(xlim=(-0.02, 1.02), ylim=(len(order) - 0.5, -0.5), xlabel="discount γ (95 % interval)")
    _plain(ax)
    top = ax.secondary_xaxis("top")
    ticks = [0.0, 0.5, 0.8, 0.9, 0.95]
    top.set_xticks(ticks, [f"{1 / (1 - t):.3g}" for t in ticks])
    top.set_xlabel("effective horizon 1/(1−γ), steps")
    return ax


def plot_fitted_reward(analysis: Analysis) -> Axes:
    """The reward as a heat map where the states are a grid, else as bars; of very many, the largest."""
    problem, reward = analysis.problem, analysis.solution.reward
    mdp = problem.experts[0].mdp
    if problem.parameter_names == mdp.state_names and mdp.grid_shape is not None:
        return plot_reward(mdp, reward, new_axes(5.2, 5.2 * mdp.grid_shape[0] / mdp.grid_shape[1] * 0.85 + 0.6), "")
    most = min(len(reward), 40)
    order = np.argsort(-np.abs(reward - np.median(reward)))[:most]
    order = order[np.argsort(reward[order])]
    ax = new_axes(5.2, 0.8 + 0.24 * most)
    ax.barh(range(most), reward[order], color=[COLOURS[0] if v >= 0 else COLOURS[4] for v in reward[order]])
    ax.axvline(0, color="0.3", lw=0.8)
    ax.set_yticks(range(most), literal([problem.parameter_names[i] for i in order]))
    ax.set(xlabel="reward", ylim=(-0.6, most - 0.4))
    _plain(ax)
    return ax


def plot_calibration(checks: ModelChecks) -> Axes:
    """Share of held-out decisions taken against the predicted probability, with two standard errors."""
    predicted, taken, weight = checks.calibration.T
    ax = new_axes(4.6, 4.2)
    ax.plot([0, 1], [0, 1], color="0.7", lw=1)
    error: Floats = 2 * np.sqrt(predicted * (1 - predicted) / weight)
    ax.errorbar(predicted, taken, yerr=error, fmt="o", color=COLOURS[0], ms=5, capsize=3)
    ax.set(
        xlabel="predicted probability of an action", ylabel="share of held-out decisions", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02)
    )
    _plain(ax)
    return ax


def plot_held_out(checks: ModelChecks) -> Axes:
    """Held-out log-likelihood of each expert's decisions by model, as what it falls short of the best one."""
    best = np.max([checks.held_out[name] for name in MODELS], axis=0)
    ax = new_axes(5.2, 1.6 + 0.4 * len(checks.experts))
    for number, name in enumerate(MODELS):
        loss = best - checks.held_out[name]
        ax.plot(loss, range(len(checks.experts)), "os^D"[number], color=COLOURS[number], label=name, ms=6, alpha=0.85)
    ax.set_yticks(range(len(checks.experts)), literal(checks.experts))
    ax.set(xlabel="log-likelihood a decision short of the best (0 is best)", ylim=(len(checks.experts) - 0.5, -0.5))
    whole = ax.get_figure(root=True)
    assert whole is not None
    whole.legend(frameon=False, fontsize=9, loc="outside upper center", ncols=2)
    _plain(ax)
    return ax


def _plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="x", color="0.92", zorder=0)
    ax.set_axisbelow(True)
