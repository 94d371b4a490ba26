"""Very many persons on a page: how groups differ, how persons are distributed, and what to expect of new ones.

No person has a row or a dot. Histograms stand in their place, so the page is as large for a million persons as for two thousand.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logit

from multihorizon.checks import Floats
from multihorizon.horizon import Horizon
from multihorizon.questions.fitted import Fitted
from multihorizon.questions.people import PEOPLE, GroupSummary, People
from multihorizon.report.charts import (
    UNITS,
    Axis,
    Beside,
    Block,
    Chart,
    Either,
    Line,
    PageTable,
    Panel,
    Section,
    look_ahead,
    look_ahead_range,
)
from multihorizon.report.population import effect_blocks, expected_table, logit_axis, predicted_figures, round_shares
from multihorizon.words import decimals, percent, shortened


def shown_groups(people: People, most: int) -> tuple[list[GroupSummary], str]:
    """Return at most so many groups, those with the most persons, in their order, and a sentence where some are not among
    them."""
    groups = people.groups
    if len(groups) <= most:
        return groups, ""
    largest = sorted(range(len(groups)), key=lambda i: -groups[i].persons)[:most]
    return [groups[i] for i in sorted(largest)], f" Shown are the {most} largest of {len(groups):,} groups."


def groups_section(fitted: Fitted, people: People) -> Section:
    """Return how discounts are distributed in each group, what to expect of new persons, and the effects."""
    horizon = fitted.horizon
    blocks: list[str | Block] = [Beside(predicted_figures(fitted))]
    if people.population.cells is None:  # else what to expect under each condition has a section of its own
        groups, rest = shown_groups(people, 500)
        sizes = {group.name: group.persons for group in groups}
        blocks.append(expected_table(people.population, sizes, horizon, f".{rest}"))
    return Section("Groups", [*blocks, *effect_blocks(people.population, horizon)])


def groups_figure(people: People, horizon: Horizon) -> Chart:
    """Draw for each group a histogram of shrunken discounts under the distribution of its persons, on the logit scale."""
    population, standard = people.population, np.linspace(-3, 3, 61)
    largest, spread = population.largest_discount, population.spread["discount"]["estimate"]
    groups, rest = shown_groups(people, 12)
    persons = population.individuals["logit_discount"]
    centres = logit(np.array([group.typical for group in groups]) / largest)
    # All but the outermost persons: one of a million may lie anywhere.
    low, high = np.quantile(persons, [0.001, 0.999])
    ends = min(low, (centres - 3 * spread).min()), max(high, (centres + 3 * spread).max())
    edges = np.linspace(*ends, 81)
    bars = [np.histogram(persons[population.groups == group.name], edges)[0] for group in groups]
    heights = [bar / max(bar.sum(), 1) / np.diff(edges) for bar in bars]
    curve = np.exp(-0.5 * standard**2) / (spread * np.sqrt(2 * np.pi))
    unit = 0.75 / max(curve.max(), max(height.max() for height in heights))
    tall = max(unit, 0.25 / curve.max())  # where shrunken discounts lie very close together, a line to scale would be flat
    lines = []
    for row, (group, centre, height) in enumerate(zip(reversed(groups), centres[::-1], reversed(heights), strict=True)):
        colour = len(groups) - 1 - row
        lines.append(Line(_outline(edges, row + unit * height, row), kind="area", colour=colour))
        over = list(zip((centre + spread * standard).tolist(), (row + tall * curve).tolist(), strict=True))
        lines.append(Line(over, shortened(group.name, 40), label_at=row + 0.8, colour=colour))
    y = Axis("groups", (), -0.1, float(len(groups)))
    panels = [Panel(logit_axis(horizon, unit, largest, ends), y, [], lines, f"in-{unit}") for unit in UNITS]
    caption = (
        "Areas are the persons' shrunken discounts; lines are the distribution of their group, from which new persons come. The "
        "less the decisions of each person say, the closer together the shrunken discounts lie."
        f"{' Lines are drawn higher than to scale.' if tall > unit else ''}{rest}"
    )
    return Chart(caption, panels, float(np.clip(56 + 90 * len(groups), 340, 760)))


def temperatures_figure(people: People) -> Chart:
    """Draw shrunken temperatures by group; all but those of the outermost persons."""
    logs = people.units["log_temperature"].to_numpy()
    low, high = (float(end) for end in np.quantile(logs, [0.001, 0.999]))
    low, high = low - 0.05, high + 0.05
    ticks = [(float(place), f"{np.exp(place):.2g}") for place in np.linspace(low, high, 7)[1:-1]]
    axis = Axis("shrunken temperature, on a logarithmic scale", ticks, low, high)
    return _distribution(people, logs, axis, "How much persons choose at random: the higher the temperature, the more.")


def _outline(edges: Floats, heights: Floats, base: float) -> list[tuple[float, float]]:
    """Return the outline of a histogram, from its left foot to its right."""
    x = np.repeat(edges, 2)
    y = np.concatenate([[base], np.repeat(heights, 2), [base]])
    return list(zip(x.tolist(), y.tolist(), strict=True))


def persons_section(people: People, horizon: Horizon) -> Section:
    """Return how much is known of each person."""
    widths, known = (people.units["high"] - people.units["low"]).to_numpy(), people.units["discount_reliability"].to_numpy()
    of_each = "How much the decisions say of each person."
    figures = [
        _distribution(people, known, Axis("reliability of a person's discount"), of_each),
        _distribution(people, widths, Axis("width of a person's 95 % interval"), "How wide the intervals of discounts are."),
    ]
    groups = shown_groups(people, 500)
    rows = [
        [
            group.name,
            look_ahead(group.middle[1], horizon),
            look_ahead_range((group.middle[0], group.middle[2]), horizon),
            decimals(group.reliability, 2),
            f"{group.decisions / max(group.persons, 1):,.1f}",
        ]
        for group in groups[0]
    ]
    middle = Either("median shrunken discount", f"median shrunken horizon, {horizon.many}")
    headers = ["persons with", middle, "half of them", "mean reliability", "decisions per person"]
    blocks: list[str | Block] = [
        f"{PEOPLE} has a row for each person: the shrunken discount with its 95 % interval, the temperature, the reliability, "
        "and the covariates. Reliability is 1 where a person's own decisions settle the discount, and 0 where they say nothing. "
        "Then the person has the discount that is typical of the group.",
        Beside(figures),
        PageTable(headers, rows, f"Shrunken discounts by group.{groups[1]}"),
    ]
    return Section("Persons", blocks)


def _distribution(people: People, values: Floats, axis: Axis, caption: str) -> Chart:
    """Return a histogram over an axis, with a line for each of the largest groups."""
    groups, edges = shown_groups(people, 5)[0], np.linspace(axis.low, axis.high, 51)
    shares = []
    for group in groups:
        number = np.histogram(values[people.units["group"] == group.name], edges)[0]
        shares.append(number / max(number.sum(), 1))
    top = max(float(share.max()) for share in shares) or 1.0
    high = top * (1.05 + 0.06 * len(groups))  # the names of the groups stand above
    lines = []
    for i, (group, share) in enumerate(zip(groups, shares, strict=True)):
        name = shortened(group.name, 40) if len(groups) > 1 else ""
        lines.append(Line(_outline(edges, share, 0.0), name, label_at=high * (0.96 - 0.06 * i), colour=i))
    ticks = [(share, f"{100 * share:.0f}") for share in round_shares(top)]
    return Chart(caption, [Panel(axis, Axis("% of the persons of a group", ticks, 0.0, high), [], lines)])


def explained_table(people: People) -> list[str | Block]:
    """Return what the model explains of each group's decisions; nothing where that is not known by group."""
    groups, rest = shown_groups(people, 500)
    if not groups or np.isnan([group.explained for group in groups]).any():
        return []
    rows = [[group.name, f"{group.decisions:,}", percent(group.explained)] for group in groups]
    return [PageTable(["persons with", "decisions", "explained"], rows, f"What the model explains, by group.{rest}")]
