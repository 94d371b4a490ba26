"""The figures of a fit: discounts with their intervals, the reward on its grid, fitted against observed choices, calibration."""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Bools, Floats
from multihorizon.likelihood.model_checks import FEWEST_DECISIONS, ModelChecks, compared_choices
from multihorizon.report.charts import MOST_DOTS, Axis, Mark, Panel, chart, diagonal
from multihorizon.report.findings import Findings
from multihorizon.report.formats import decimals, interval_text, own_discount_text, own_steps_text
from multihorizon.report.html import figure
from multihorizon.report.maps import MOST_CELLS, grid_map
from multihorizon.report.plots import new_axes, plot_reward
from multihorizon.report.rulers import LABELS, UNITS, Ruler

#: Half the width of an interval at the level of the report, in standard errors.
NORMAL_QUANTILE = 1.96


def people_figure(findings: Findings, ruler: Ruler) -> str:
    """Every discount with its interval, from the shortest horizon at the bottom to the longest."""
    order = [k for k in findings.order if findings.given[k]]
    size = float(np.clip(150 / len(order), 1.5, 4.0))
    panels = []
    for unit in UNITS:
        marks = []
        for row, k in enumerate(order):
            discount = float(findings.solution.discounts[k])
            low, high = (ruler.place(float(end), unit) for end in findings.intervals[k])
            ends = None if np.isnan(low + high) else (low, high)
            y = (row + 0.5) / len(order)
            marks.append(Mark(ruler.place(discount, unit), y, _person_tip(findings, k), [k], size, across=ends))
        x = Axis(LABELS[unit], ruler.ticks(unit))
        panels.append(Panel(x, Axis("experts, the longest horizon on top", ()), marks, kind=f"in-{unit}"))
    caption = "Each expert's discount with its 95 % interval, from the shortest horizon to the longest."
    return chart(caption, panels, height=float(np.clip(60 + 14 * len(order), 200, 560)))


def _person_tip(findings: Findings, k: int) -> str:
    look_ahead = f"γ {own_discount_text(findings, k)}, {own_steps_text(findings, k)} steps"
    interval, decisions = f"95 % interval of γ: {interval_text(findings, k)}", f"{findings.decisions[k]:,.0f} decisions"
    return "\n".join([findings.solution.experts[k], look_ahead, interval, decisions])


def state_tips(findings: Findings, names: tuple[str, ...], terminal: Bools) -> list[str]:
    """What a state tells: its name, its reward where the reward is one number per state, and whether the episode ends there."""
    values, half = findings.contrasts.values, NORMAL_QUANTILE * findings.contrasts.standard_errors
    column = {name: i for i, name in enumerate(findings.problem.parameter_names)} if _by_state(findings) else {}
    tips = []
    for name, end in zip(names, terminal, strict=True):
        lines = [f"state {name}"]
        if name in column:
            i = column[name]
            value, low, high = (decimals(float(x), 2) for x in (values[i], values[i] - half[i], values[i] + half[i]))
            lines.append("reward not identified" if value is None else f"reward {value}")
            lines += [f"95 % interval {low} to {high}"] if value and low else []
        tips.append("\n".join([*lines, *(["the episode ends here"] if end else [])]))
    return tips


def _by_state(findings: Findings) -> bool:
    return findings.problem.tabular and not findings.reward_given


def state_values(findings: Findings, names: tuple[str, ...]) -> Floats:
    """The reward of each state of a task, as differences; zero where rewards are not those of states."""
    if not _by_state(findings):
        return np.zeros(len(names))
    column = {name: i for i, name in enumerate(findings.problem.parameter_names)}
    found: Floats = findings.contrasts.values[[column[name] for name in names]]
    return found


def reward_figure(findings: Findings) -> str | None:
    """The reward as differences from its mean on the grid of the states; None where the states are no grid."""
    mdp = findings.problem.experts[0].mdp
    if findings.problem.parameter_names != mdp.state_names or mdp.grid_shape is None:
        return None
    values, caption = state_values(findings, mdp.state_names), "Rewards as differences from the average logged step. "
    if mdp.n_states > MOST_CELLS:
        height, width = mdp.grid_shape
        drawn = plot_reward(mdp, values, new_axes(5.2, 5.2 * height / width * 0.85 + 0.6), "")
        return figure(drawn, f"{caption}Grey is not known.")
    caption += "Blue cells pay more than the middle one, orange cells less; grey is not known. Dashed frames end the episode."
    return grid_map(mdp, values, state_tips(findings, mdp.state_names, mdp.terminal), caption)


def choices_figure(findings: Findings) -> str | None:
    """The share of each action in a state against the fitted probability; None where no state has enough decisions."""
    number = {name: k for k, name in enumerate(findings.solution.experts)}
    each, found = findings.choices_repeat, []
    for choices in compared_choices(findings.problem, findings.policies):
        mdp, whom = choices.mdp, [number[choices.expert]] if each else []
        open_states = (choices.visits >= FEWEST_DECISIONS) & (mdp.available.sum(axis=1) > 1)
        for s, a in np.argwhere(open_states[:, None] & mdp.available):
            visits = float(choices.visits[s])
            shares = float(choices.expected[s, a]) / visits, float(choices.taken[s, a]) / visits
            tip = f"{choices.expert if each else 'all experts'}\n{mdp.state_names[s]}: {mdp.action_names[a]}\n"
            tip += f"fitted {shares[0]:.2f}, taken {shares[1]:.2f} of {visits:,.0f} decisions"
            found.append((visits, Mark(*shares, tip, whom, float(np.clip(0.6 * visits**0.25, 1.5, 5)))))
    if not found:
        return None
    kept = sorted(found, key=lambda pair: -pair[0])[:MOST_DOTS]
    dots = "one dot per expert, state and action" if each else "one dot per state and action, all experts together"
    few = f" Shown are the {MOST_DOTS:,} dots with the most decisions, of {len(found):,}." if len(found) > MOST_DOTS else ""
    caption = f"Fitted against observed choices: {dots}; larger dots stand for more decisions.{few}"
    axes = Axis("fitted probability"), Axis("share of the decisions")
    return chart(caption, [Panel(*axes, [mark for _, mark in kept], [diagonal()])])


def calibration_figure(checks: ModelChecks) -> str:
    """Share of held-out decisions taken against the predicted probability, with two standard errors."""
    marks = []
    for predicted, taken, weight in checks.calibration.tolist():
        half = 2 * np.sqrt(predicted * (1 - predicted) / weight)
        tip = f"predicted {predicted:.2f}, taken {taken:.2f}\nof {weight:,.0f} choices"
        marks.append(Mark(predicted, taken, tip, up=(taken - half, taken + half)))
    caption = "Held-out calibration: points on the line mean that predicted probabilities hold. Strokes are two standard errors."
    axes = Axis("predicted probability of an action"), Axis("share of held-out decisions")
    return chart(caption, [Panel(*axes, marks, [diagonal()])])
