"""What is best at each look-ahead: a slider over the discount, and the best actions of a reward as it moves.

The best actions of all discounts are computed here (`stretches`) and stored in the page as numbers: where they change, and which
actions come and go there. The script only shows and hides what is drawn. Without it, the page shows the best actions at one
discount, and the table says for every state where they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import numpy as np

from multihorizon.checks import Floats
from multihorizon.mdp import MDP
from multihorizon.report.charts import UNITS_RULERS, Cell, Either, Raw, Ruler, Unit, data_block, paragraph, table, text, whose
from multihorizon.report.maps import LIKELY, PLANNED_STATES, TRIED, Stretches, best_actions, graph_map, grid_map, has_arrows
from multihorizon.text import horizon_text

#: The most states of a table, and the most changes that are marked on the slider's scale.
MOST_ROWS, MOST_CHANGES = 200, 300


class Person(NamedTuple):
    """An expert on the slider: the number that `data-experts` uses, the name, and the discount."""

    number: int
    name: str
    discount: float


@dataclass(frozen=True, eq=False)
class Task:
    """What is planned for: a task with the reward of each action `(S,A)`.

    `values` `(S,)` colour the cells of a grid, NaN where not known; `tips` tell of each state; `weights` `(S,)` say which states
    matter most where not all can be shown; `steps` is the most steps an episode can have.
    """

    mdp: MDP
    reward: Floats
    values: Floats
    tips: Sequence[str]
    weights: Floats
    steps: float


def explorer(task: Task, people: Sequence[Person], number: int = 1) -> list[str]:
    """The blocks of a slider over the discount; `number` tells the sliders of a page apart."""
    mdp = task.mdp
    found = best_actions(mdp, task.reward, task.weights, None if has_arrows(mdp) else MOST_ROWS)
    if found is None:
        return [paragraph(f"The task has {mdp.n_states:,} states. Best actions are shown for at most {PLANNED_STATES:,}.")]
    start = float(median(person.discount for person in people)) if people else 0.5
    ruler = Ruler.over([*(person.discount for person in people), *found.changes], task.steps)
    infinite = bool(np.isinf(task.steps))
    data = {
        "changes": [round(change, 9) for change in found.changes],
        "toggles": found.toggles,
        "start": start,
        "steps": None if infinite else task.steps,
        "farthest": ruler.farthest,
    }
    said = f'<output for="look-{number}">Shown at γ = {start:.4f}, {horizon_text(start, task.steps)} steps.</output>'
    parts = [_drawing(task, found, start), _controls(found, people, ruler, number), said, _table(found, task, start)]
    remarks = [paragraph(line) for line in _remarks(found)]
    return [f'<div class="explorer">{data_block(data)}{"".join(parts)}</div>', *remarks]


def _drawing(task: Task, found: Stretches, start: float) -> str:
    best = found.best_at(start)
    if has_arrows(task.mdp):
        caption = "Arrows: the best actions at the look-ahead that stands below, thick where they have just become best. "
        caption += "Blue cells pay more than the middle one, orange cells less. " if task.values.any() else ""
        caption += "Dashed frames end the episode." if task.mdp.terminal.any() else ""
        return grid_map(task.mdp, task.values, task.tips, caption.strip(), found, best)
    caption = "Arrows: where the best actions lead at the look-ahead that stands below; wider ones are likelier. "
    caption += f"Moves with a chance below {LIKELY:g} are left out, unless they are the likeliest."
    return graph_map(task.mdp, task.tips, caption, found, best) or ""


def _controls(found: Stretches, people: Sequence[Person], ruler: Ruler, number: int) -> str:
    options = "".join(f'<option value="{p.discount:.6g}"{whose([p.number])}>{text(p.name)}</option>' for p in people)
    ask = "<option value=''>choose an expert</option>"
    chooser = f'<label>As far as <select autocomplete="off">{ask}{options}</select></label>' if people else ""
    return (
        '<div class="controls" hidden><button type="button" class="before">Previous change</button>'
        f'<button type="button" class="after">Next change</button>{chooser}'
        f'<div class="slide"><label for="look-{number}">Look-ahead: <span class="in-discount">discount γ</span>'
        f'<span class="in-steps">steps, on a logarithmic scale</span></label>{_strip(found, people, ruler)}'
        f'<input type="range" id="look-{number}" min="0" max="100" autocomplete="off"></div></div>'
    )


def _strip(found: Stretches, people: Sequence[Person], ruler: Ruler) -> str:
    """The scale above the slider, with the experts as dots and the changes as strokes."""
    label = "Experts as dots and changes of the best actions as strokes, on the scale of the slider."
    panels = "".join(f'<g class="in-{unit}">{_scale(found, people, ruler, unit)}</g>' for unit in UNITS_RULERS)
    return f'<svg class="chart strip" role="img" aria-label="{label}">{panels}</svg>'


def _scale(found: Stretches, people: Sequence[Person], ruler: Ruler, unit: Unit) -> str:
    parts = [
        f'<text class="soft" x="{100 * at:.2f}%" y="13" text-anchor="middle">{label}</text>' for at, label in ruler.ticks(unit)
    ]
    for change in found.changes[1 : MOST_CHANGES + 1]:
        at = f"{100 * ruler.place(change, unit):.2f}%"
        parts.append(f'<line class="frame" x1="{at}" x2="{at}" y1="20" y2="40"/>')
    for person in people:
        tip = f"{person.name}\nγ {person.discount:.3f}, {horizon_text(person.discount, ruler.steps)} steps"
        dot = f'cx="{100 * ruler.place(person.discount, unit):.2f}%" cy="30" r="6"'
        parts.append(f'<circle class="mark dot" {dot}{whose([person.number])}><title>{text(tip)}</title></circle>')
    return "".join(parts)


def _table(found: Stretches, task: Task, start: float) -> str:
    """For every state the best actions at the chosen look-ahead, and where they change."""
    best, names = found.best_at(start), found.mdp.action_names
    own: dict[int, list[str]] = {state: [] for state in found.states}
    for i, (state, action) in enumerate(found.pairs):
        own[state].append(f'<span class="choice{" on" * (i in best)}">{text(names[action])}</span>')
    rows: list[list[Cell]] = []
    for state, changes in found.by_state().items():
        by_discount, by_steps = (_ranges(found, changes, task.steps, unit) for unit in UNITS_RULERS)
        now = Raw("".join(own[state]), max((names[a] for _, actions in changes for a in actions), key=len, default=""))
        rows.append([found.mdp.state_names[state], now, Either(by_discount, by_steps)])
    headers: list[str | Either] = [
        "state",
        "best at the chosen look-ahead",
        Either("best actions by discount γ", "best actions by horizon in steps"),
    ]
    return f'<div class="choices">{table(headers, rows, "The best actions of each state, and where they change")}</div>'


def _ranges(found: Stretches, changes: Sequence[tuple[float, list[int]]], steps: float, unit: Unit) -> str:
    """Best actions with the look-ahead up to which they are best."""
    parts, names = [], found.mdp.action_names
    for i, (_, actions) in enumerate(changes):
        chosen = " or ".join(names[a] for a in actions)
        if i + 1 < len(changes):
            end = changes[i + 1][0]
            discount = f"{end:.4f}" if found.exact else f"{end:g}"
            chosen += f" up to {discount if unit == 'discount' else horizon_text(end, steps)}"
        parts.append(chosen)
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])}, then {parts[-1]}"


def _remarks(found: Stretches) -> list[str]:
    """What a reader must know of how the stretches were found."""
    remarks = []
    if not found.exact:
        remarks.append(
            f"The best actions were computed at {len(TRIED)} discounts up to {TRIED[-1]:g}; a change may lie up to 0.01 below "
            "the place where it is shown."
        )
    deciding = int((~found.mdp.terminal).sum())
    if len(found.states) < deciding:
        remarks.append(f"Shown are the {len(found.states):,} states with the most decisions, of {deciding:,}.")
    return remarks
