"""The figures of a population: persons and the distribution of their group, and what the population adds to each person."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy.special import logit

from multihorizon.report.charts import Axis, Line, Mark, Panel, chart, diagonal
from multihorizon.report.findings import Findings
from multihorizon.report.formats import horizon_text
from multihorizon.report.rulers import UNITS, Unit
from multihorizon.solution import Solution

#: Discounts that are marked on the logit scale, and how near to each other they may stand, as a share of the axis.
TICKS, NEAREST = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999), 0.09
#: Colours that the page's style has.
COLOURS = 5
SCALES: dict[Unit, str] = {
    "discount": "discount γ, on the logit scale",
    "steps": "horizon in steps, on the logit scale of the discount",
}


def groups_figure(findings: Findings, found: Solution) -> str:
    """Shrunken discounts as dots and the distribution of each group as a curve, on the logit scale."""
    population = found.evidence["population"]
    largest, spread = population["largest_discount"], population["spread"]["discount"]["estimate"]
    persons = np.array(population["individuals"]["logit_discount"])
    place = findings.solution.experts.index
    lines, marks = [], []
    for i, (name, group) in enumerate(population["predictions"].items()):
        centre = float(logit(group["typical_discount"] / largest))
        grid = centre + spread * np.linspace(-3, 3, 61)
        heights = i + 0.8 * np.exp(-0.5 * np.linspace(-3, 3, 61) ** 2)
        lines.append(
            Line([(float(grid[0]), i), *zip(grid.tolist(), heights.tolist(), strict=True)], "", i % COLOURS, filled=True)
        )
        for k in (k for k, of in enumerate(population["groups"]) if of == name):
            marks.append(
                Mark(float(persons[k]), i - 0.1, _tip(findings, found, k, name), [place(found.experts[k])], colour=i % COLOURS)
            )
    ends = [x for line in lines for x, _ in line.points] + persons.tolist()
    y = Axis("groups", (), -0.3, float(len(lines)))
    panels = [Panel(_logit_axis(findings, unit, largest, ends), y, marks, lines, f"in-{unit}") for unit in UNITS]
    caption = "Persons as dots below the distribution of their group; groups from the bottom in the order of the table below."
    return chart(caption, panels)


def shrinkage_figure(findings: Findings, found: Solution) -> str:
    """Shrunken against raw discounts, with the line on which both agree."""
    raw = findings.solution.discounts
    places = [findings.solution.experts.index(name) for name in found.experts]
    marks = [
        Mark(float(raw[i]), float(found.discounts[k]), f"{_tip(findings, found, k)}\nraw γ {raw[i]:.3f}", [i])
        for k, i in enumerate(places)
        if findings.given[i]
    ]
    caption = "Shrunken against raw discounts: what a person's decisions leave open, the population fills in."
    return chart(caption, [Panel(Axis("raw discount"), Axis("shrunken discount"), marks, [diagonal()])])


def _tip(findings: Findings, found: Solution, k: int, group: str = "") -> str:
    discount = float(found.discounts[k])
    look_ahead = f"shrunken γ {discount:.3f}, {horizon_text(discount, findings.steps)} steps"
    return "\n".join([found.experts[k], *([group] if group else []), look_ahead])


def _logit_axis(findings: Findings, unit: Unit, largest: float, ends: Sequence[float]) -> Axis:
    """An axis over these logits, with numbers that do not touch."""
    low, high = min(ends), max(ends)
    places = [(float(logit(g / largest)), f"{g:g}" if unit == "discount" else horizon_text(g, findings.steps)) for g in TICKS]
    inside = [tick for tick in places if low <= tick[0] <= high]
    apart = inside[:1] + [after for before, after in pairwise(inside) if after[0] - before[0] > NEAREST * (high - low)]
    return Axis(SCALES[unit], apart, low, high)
