"""The page of very many persons: how groups differ, how persons are distributed, and what to expect of new ones.

No person has a row or a dot. Histograms stand in their place, so the page is as large for a million persons as for two thousand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logit

from multihorizon.analysis import sizes
from multihorizon.checks import Floats
from multihorizon.crowd import CONDITIONS, PEOPLE, CrowdAnalysis, GroupSummary
from multihorizon.questions.differences import population_words
from multihorizon.report.charts import (
    UNITS,
    Axis,
    Bar,
    Beside,
    Block,
    Cards,
    Chart,
    Either,
    Line,
    Notice,
    Page,
    PageTable,
    Panel,
    Section,
    Subheading,
    look_ahead,
    look_ahead_range,
)
from multihorizon.report.conditions import condition_figures, conditions_section
from multihorizon.report.explorer import Person, expected_in, explorer
from multihorizon.report.population import (
    distribution_section,
    effect_blocks,
    logit_axis,
    predicted_figures,
    round_shares,
    types_section,
)
from multihorizon.report.question_pages import UNIT_OF_REWARD, options_text, recovery_blocks
from multihorizon.report.writing import answer_blocks, notices, writing_section
from multihorizon.result import package_version
from multihorizon.solution import Status
from multihorizon.words import LEVEL, count, decimals, percent, shortened


def crowd_page(found: CrowdAnalysis, options: dict[str, Any]) -> Page:
    """The report of a fit of very many persons."""
    cards = [(verdict.question, verdict.answer, verdict.kind) for verdict in found.verdicts]
    opening: list[str | Block] = [*map(Notice, [*notices(found)[1], *found.absent]), Cards(cards)]
    sections = []
    if found.withheld and found.solution.status == Status.NOT_IDENTIFIED:
        sections = types_section(found.population, found.horizon)
    elif not found.withheld and found.population.types is not None:
        opening.append(" ".join(verdict.reasons for verdict in found.verdicts[-3:-1]))
        sections = [*types_section(found.population, found.horizon), _reward(found), *_best_by_look_ahead(found)]
    elif not found.withheld:
        figures = condition_figures(found.population, found.horizon, {}) or [_groups_figure(found)]
        opening = [Beside([*figures, _temperatures_figure(found)]), *opening]
        opening.append(" ".join(population_words(found.solution, found.horizon)))
        opening.append(" ".join(verdict.reasons for verdict in found.verdicts[-3:-1]))
        sections = [_groups(found), *conditions_section(found.population, found.horizon, CONDITIONS)]
        sections += [*distribution_section(found.population, found.horizon), _persons(found), _reward(found)]
        sections += _best_by_look_ahead(found)
    if found.recovery is not None:
        sections.append(Section("What can this design show?", recovery_blocks(found.recovery)))
    return Page(
        "How far ahead people plan",
        sizes(found),
        [*sections, _fit(found), writing_section(found), _method(found, options)],
        f"multihorizon {package_version()}, seed {found.solution.seed}",
        opening,
        answer=answer_blocks(found),
    )


def shown_groups(found: CrowdAnalysis, most: int) -> tuple[list[GroupSummary], str]:
    """At most so many groups, those with the most persons, in their order, and a sentence where some are not among them."""
    groups = found.groups
    if len(groups) <= most:
        return groups, ""
    largest = sorted(range(len(groups)), key=lambda i: -groups[i].persons)[:most]
    return [groups[i] for i in sorted(largest)], f" Shown are the {most} largest of {len(groups):,} groups."


def _groups(found: CrowdAnalysis) -> Section:
    """How discounts are distributed in each group, what to expect of new persons, and the effects."""
    horizon = found.horizon
    if found.population.cells is not None:  # what to expect under each condition has a section of its own
        return Section("Groups", [Beside(predicted_figures(found)), *effect_blocks(found.population, horizon)])
    groups, rest = shown_groups(found, 500)
    rows = [
        [
            group.name,
            f"{group.persons:,}",
            look_ahead(group.typical, horizon),
            look_ahead_range(group.typical_interval, horizon),
            look_ahead_range(group.new_person_interval, horizon),
        ]
        for group in groups
    ]
    typical = Either("typical discount", f"typical horizon, {horizon.many}")
    headers = ["persons like", "how many", typical, "95 % interval", "95 % of new persons"]
    expected = PageTable(headers, rows, f"What to expect of persons with these covariates.{rest}")
    return Section("Groups", [Beside(predicted_figures(found)), expected, *effect_blocks(found.population, horizon)])


def _groups_figure(found: CrowdAnalysis) -> Chart:
    """For each group a histogram of shrunken discounts under the distribution of its persons, on the logit scale."""
    population, standard = found.population, np.linspace(-3, 3, 61)
    largest, spread = population.largest_discount, population.spread["discount"]["estimate"]
    groups, rest = shown_groups(found, 12)
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
    panels = [Panel(logit_axis(found.horizon, unit, largest, ends), y, [], lines, f"in-{unit}") for unit in UNITS]
    caption = (
        "Areas are the persons' shrunken discounts; lines are the distribution of their group, from which new persons come. The "
        "less the decisions of each person say, the closer together the shrunken discounts lie."
        f"{' Lines are drawn higher than to scale.' if tall > unit else ''}{rest}"
    )
    return Chart(caption, panels, float(np.clip(56 + 90 * len(groups), 340, 760)))


def _temperatures_figure(found: CrowdAnalysis) -> Chart:
    """Shrunken temperatures by group; all but those of the outermost persons."""
    logs = found.units["log_temperature"].to_numpy()
    low, high = (float(end) for end in np.quantile(logs, [0.001, 0.999]))
    low, high = low - 0.05, high + 0.05
    ticks = [(float(place), f"{np.exp(place):.2g}") for place in np.linspace(low, high, 7)[1:-1]]
    axis = Axis("shrunken temperature, on a logarithmic scale", ticks, low, high)
    return _distribution(found, logs, axis, "How much persons choose at random: the higher the temperature, the more.")


def _outline(edges: Floats, heights: Floats, base: float) -> list[tuple[float, float]]:
    """The outline of a histogram, from its left foot to its right."""
    x = np.repeat(edges, 2)
    y = np.concatenate([[base], np.repeat(heights, 2), [base]])
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _persons(found: CrowdAnalysis) -> Section:
    """How much is known of each person."""
    widths, known = (found.units["high"] - found.units["low"]).to_numpy(), found.units["discount_reliability"].to_numpy()
    of_each = "How much the decisions say of each person."
    figures = [
        _distribution(found, known, Axis("reliability of a person's discount"), of_each),
        _distribution(found, widths, Axis("width of a person's 95 % interval"), "How wide the intervals of discounts are."),
    ]
    horizon, groups = found.horizon, shown_groups(found, 500)
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


def _distribution(found: CrowdAnalysis, values: Floats, axis: Axis, caption: str) -> Chart:
    """A histogram over an axis, with a line for each of the largest groups."""
    groups, edges = shown_groups(found, 5)[0], np.linspace(axis.low, axis.high, 51)
    shares = []
    for group in groups:
        number = np.histogram(values[found.units["group"] == group.name], edges)[0]
        shares.append(number / max(number.sum(), 1))
    top = max(float(share.max()) for share in shares) or 1.0
    high = top * (1.05 + 0.06 * len(groups))  # the names of the groups stand above
    lines = []
    for i, (group, share) in enumerate(zip(groups, shares, strict=True)):
        name = shortened(group.name, 40) if len(groups) > 1 else ""
        lines.append(Line(_outline(edges, share, 0.0), name, label_at=high * (0.96 - 0.06 * i), colour=i))
    ticks = [(share, f"{100 * share:.0f}") for share in round_shares(top)]
    return Chart(caption, [Panel(axis, Axis("% of the persons of a group", ticks, 0.0, high), [], lines)])


def _reward(found: CrowdAnalysis) -> Section:
    """The reward with its intervals."""
    heading = "The reward they share"
    if found.reward_given:
        return Section(heading, ["The reward was given, so none of it was estimated."])
    frame = found.reward_frame().sort_values("reward", ascending=False, kind="stable")
    values, half = frame["reward"].to_numpy(), 1.96 * frame["standard_error"].to_numpy()
    scale = float(np.nanmin([0.0, *(values - half)])), float(np.nanmax([0.0, *(values + half)]))
    rows = []
    for name, value, wide in zip(frame.index, values.tolist(), half.tolist(), strict=True):
        low, high = value - wide, value + wide
        rows.append([str(name), decimals(value, 2), f"{low:.2f} to {high:.2f}", Bar(low, value, high, scale)])
    caption = "Rewards from the largest to the smallest"
    return Section(heading, [UNIT_OF_REWARD, PageTable(["parameter", "reward", "95 % interval", ""], rows, caption)])


def _best_by_look_ahead(found: CrowdAnalysis) -> list[Section]:
    """What the reward makes best as the look-ahead grows, for the first tasks; nothing without the problem."""
    if found.solution.problem is None:
        return []
    problem, most_tasks = found.solution.require_problem(), 4
    typical = [Person(k, group.name, group.typical) for k, group in enumerate(shown_groups(found, 12)[0])]
    if found.population.types is not None:
        types = found.population.types
        typical = [
            Person(k, f"type {k + 1}", discount)
            for k, (discount, identified) in enumerate(zip(types["discounts"], types["identified"], strict=True))
            if identified
        ]
    blocks: list[str | Block] = [
        "The same reward makes other actions best for those who look farther ahead. The slider goes through the discounts and "
        f"shows the best actions of the {'given' if found.reward_given else 'learned'} reward at each. On it "
        f"{'stands the typical person of each group' if found.population.types is None else 'stand the types'}."
    ]
    for number, task in enumerate(problem.tasks[:most_tasks], 1):
        if len(problem.tasks) > 1:
            blocks.append(Subheading(f"Task {number} of {len(problem.tasks)}"))
        everybody = task.pooled
        assert everybody.counts is not None
        blocks += explorer(
            task.mdp,
            expected_in(everybody, found.solution.reward),
            typical,
            values=np.zeros(task.mdp.n_states),
            tips=[f"state {name}" for name in task.mdp.state_names],
            weights=everybody.counts.sum(axis=1),
            horizon=found.horizon,
            number=number,
        )
    if len(problem.tasks) > most_tasks:
        blocks.append(f"Shown are {most_tasks} of {count(len(problem.tasks), 'task')}.")
    return [Section("What is best, by look-ahead", blocks)]


def _fit(found: CrowdAnalysis) -> Section:
    """The decisions against chance, by group where that is known."""
    blocks: list[str | Block] = [found.verdicts[-1].reasons]
    groups, rest = shown_groups(found, 500)
    rows = [[group.name, f"{group.decisions:,}", percent(group.explained)] for group in groups]
    if not np.isnan([group.explained for group in groups]).any() and rows:
        blocks.append(PageTable(["persons with", "decisions", "explained"], rows, f"What the model explains, by group.{rest}"))
    return Section("Does the model fit?", blocks)


def _method(found: CrowdAnalysis, options: dict[str, Any]) -> Section:
    size = f"The tables have {count(len(found.persons), 'person')}, of whom {found.population.persons:,} are compared."
    made = f"Options: {options_text(options)}; level of the intervals: {LEVEL:g}."
    return Section("How this was made", [found.solution.message, size, *found.remarks, made])
