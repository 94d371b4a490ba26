"""The same persons under several conditions, in rows and figures, and their section of a page.

A cell is a person under one combination of conditions. Where there are several conditions, what is said of a person at a level of
one of them is the mean of the logits of the person's cells at that level. A number with many values is cut into bins with about
equally many cells.

*Distribution.* Shrunken discounts lie closer together than persons do. So the shaded areas are the posteriors of the cells put
together: with m and e the mean and the standard error of the logit of a cell's discount, the mixture of all N(m, e²).

*Sample.* Of very many persons some are drawn, at equal distances in the order of their mean logits, so that those who are drawn
differ as all do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from multihorizon.checks import Floats, Ints
from multihorizon.horizon import Horizon
from multihorizon.population.evidence import PopulationFindings
from multihorizon.report.charts import (
    UNITS,
    Axis,
    Beside,
    Block,
    Chart,
    Line,
    Mark,
    Panel,
    Section,
    Shares,
    TableBlock,
)
from multihorizon.report.population import at_means, logit_axis, number_ticks, without_means
from multihorizon.tables import Role, Table
from multihorizon.words import decimals, percent, shortened, significant

#: Persons who are drawn one by one; of more, a sample, in which single lines can be seen.
MOST_DRAWN, SAMPLE = 300, 100


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
        typical: the logit of the typical discount at each level `(k,)`; of a number, the mean of the persons' logits.
    """

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
        """The persons who are drawn."""
        return evenly(np.nanmean(self.logits, axis=1), number if (number := len(self.persons)) <= MOST_DRAWN else SAMPLE)


def by_condition(population: PopulationFindings, column: str) -> ByCondition:
    """The cells by one of the population's conditions."""
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
        said, met = [str(name) for pair in pairs for name in pair["levels"]], sorted(names.unique())
        levels = [name for name in dict.fromkeys([*said, *met]) if name in set(met)]
        level, places = pd.Index(levels).get_indexer(pd.Index(names)), np.arange(len(levels), dtype=np.float64)
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


#: A page with the figures of more conditions would be hard to read.
MOST_CONDITIONS = 4


def condition_figures(population: PopulationFindings, horizon: Horizon, place: Mapping[str, int]) -> list[Block]:
    """The discounts under each combination of conditions, and the persons over each condition; nothing where there are none.

    `place` is the number of each person on the page; empty where the page shows nobody alone.
    """
    if population.cells is None:
        return []
    drawn = population.conditions[:MOST_CONDITIONS]
    columns = sorted((by_condition(population, column) for column in drawn), key=lambda by: by.is_number)
    figures: list[Block] = [] if all(by.is_number for by in columns) else [_distributions(population, horizon, place)]
    return [*figures, *(_persons(population, by, horizon, place) for by in columns)]


def expected_table(population: PopulationFindings, horizon: Horizon) -> Table:
    """What is typical under each condition, what to expect of new persons, and how much is known of each."""
    rows = condition_rows(population)
    frame = pd.DataFrame(
        {
            "persons with": [row.name for row in rows],
            "how many": [row.persons for row in rows],
            "decisions": [row.decisions for row in rows],
            "typical discount": [row.typical for row in rows],
            horizon.many: [horizon(row.typical) for row in rows],
            "95 % interval": [tuple(row.typical_interval) for row in rows],
            "95 % of new persons": [tuple(row.new_person_interval) for row in rows],
            "mean reliability": [decimals(row.reliability, 2) for row in rows],
        }
    )
    roles: dict[str, Role] = {"decisions": "count", horizon.many: "horizon", "mean reliability": "amount"}
    roles |= {"typical discount": "discount", "95 % interval": "discount", "95 % of new persons": "discount"}
    return Table(frame, "Discounts of the same persons under each condition", roles=roles)


def conditions_section(population: PopulationFindings, horizon: Horizon, written: str) -> list[Section]:
    """The section on conditions, whose figures open the page; none where the formula has none.

    Args:
        population: what was found.
        horizon: how far ahead discounts look in the task.
        written: the file that has a row for each person and condition.
    """
    if population.cells is None:
        return []
    blocks: list[str | Block] = []
    if len(population.conditions) > MOST_CONDITIONS:
        blocks.append(f"Drawn above are the first {MOST_CONDITIONS} of {len(population.conditions)} conditions.")
    rows, largest = condition_rows(population), 500
    every = expected_table(population, horizon)
    shown = every.select(*(str(name) for name in every.frame if name != horizon.many)).head(largest)
    rest = f" Shown are the first {largest} of {len(rows):,}." if len(rows) > largest else ""
    at = f", at {where}" if (where := at_means(population)) else ""
    caption = f"What to expect under each condition{at}, and how much is known of a person.{rest}"
    blocks.append(TableBlock(replace(shown, caption=caption), horizon=horizon))
    blocks.append(Beside(_variance(population)))
    blocks.append(_spreads(population))
    blocks.append(
        f"{written} has a row for each person and condition: the shrunken discount with its 95 % interval, the temperature, the "
        "number of decisions and the reliability."
    )
    return [Section("The same persons under each condition", blocks)]


@dataclass(frozen=True)
class ConditionRow:
    """What is known under one combination of conditions, as `PopulationFindings.predictions` say it, and the mean reliability of
    a person's discount there; numbers, which are at their mean, are not part of the name."""

    name: str
    persons: int
    decisions: float
    typical: float
    typical_interval: tuple[float, float]
    new_person_interval: tuple[float, float]
    reliability: float


def condition_rows(population: PopulationFindings) -> list[ConditionRow]:
    """One for each combination of conditions and of groups of persons, with numbers at their mean."""
    cells = population.cells
    assert cells is not None
    here = pd.DataFrame({name: cells[name] for name in ("expert", "pattern", "decisions", "discount_reliability")})
    by = here.groupby("pattern")
    size, decisions, reliability = by["expert"].nunique(), by["decisions"].sum(), by["discount_reliability"].mean()
    at = at_means(population)
    return [
        ConditionRow(
            without_means(name, at),
            int(size.get(name, 0)),
            float(decisions.get(name, 0)),
            found["typical_discount"],
            tuple(found["typical_interval"]),
            tuple(found["new_person_interval"]),
            float(reliability.get(name, np.nan)),
        )
        for name, found in _in_order(population).items()
    ]


def _in_order(population: PopulationFindings) -> dict[str, Any]:
    """The predictions, beginning with what others are compared with."""
    first = [f"{column} = {level}" for column, level in (population.references or {}).items()]
    names = sorted(population.predictions, key=lambda name: [part not in name.split(", ") for part in first])
    return {name: population.predictions[name] for name in names}


def _distributions(population: PopulationFindings, horizon: Horizon, place: Mapping[str, int]) -> Chart:
    """The discounts under each combination of conditions, one above the other, with the persons as dots where they are few."""
    cells, largest, most = population.cells, population.largest_discount, 12
    assert cells is not None
    pattern = pd.Categorical(cells["pattern"], list(_in_order(population)))
    total = np.bincount(pattern.codes, cells["decisions"], minlength=len(pattern.categories))
    some = sorted(np.argsort(-total, kind="stable")[:most].tolist())
    rest = f" Shown are the {most} of {total.size:,} with the most decisions." if total.size > most else ""
    middle, error, few = cells["logit_discount"], cells["logit_discount_error"], cells["discount"].size <= 4 * MOST_DRAWN
    # All but the outermost persons: one of a million may lie anywhere.
    low, high = np.quantile(middle, [0.0, 1.0] if few else [0.001, 0.999])
    x = np.linspace(low - 1, high + 1, 121)
    at, of_pattern, curves = at_means(population), [np.flatnonzero(pattern.codes == k) for k in some], []
    for here in of_pattern:
        sample = here[evenly(middle[here], 2000)]
        wide = np.maximum(error[sample], 0.02 * (x[-1] - x[0]))  # what is known exactly would be a line without a width
        curves.append(np.mean(np.exp(-0.5 * ((x[:, None] - middle[sample]) / wide) ** 2) / wide, axis=1))
    unit, lines, marks = 0.75 / max(float(curve.max()) for curve in curves), [], []
    for colour, (k, here, curve) in enumerate(zip(some, of_pattern, curves, strict=True)):
        name, row = str(pattern.categories[k]), float(len(some) - 1 - colour)
        outline = [(float(x[0]), row), *zip(x.tolist(), (row + unit * curve).tolist(), strict=True), (float(x[-1]), row)]
        lines.append(Line(outline, shortened(without_means(name, at), 40), "area", row + 0.6, colour=colour))
        typical = float(logit(population.predictions[name]["typical_discount"] / largest))
        lines.append(Line([(typical, row - 0.2), (typical, row + 0.75)], kind="typical"))
        for i in here.tolist() if few else ():
            who, gamma = str(cells["expert"][i]), float(cells["discount"][i])
            tip = f"{who}\n{without_means(name, at)}\nshrunken γ {decimals(gamma, 3)}, {horizon.text(gamma)}"
            marks.append(Mark(float(middle[i]), row - 0.1, tip, _whose(who, place), 3.0, colour=colour))
    y = Axis("conditions", (), -0.25, float(len(some)))
    panels = [Panel(logit_axis(horizon, unit, largest, x.tolist()), y, marks, lines, f"in-{unit}") for unit in UNITS]
    caption = (
        f"Areas are the discounts of all persons under each condition{', dots are persons' if few else ''}, and a thick stroke "
        f"is the typical discount.{rest}"
    )
    return Chart(caption, panels, float(np.clip(56 + 90 * len(some), 340, 760)))


def evenly(values: Floats, most: int) -> Ints:
    """Where at most so many of the values stand, from the smallest to the largest at equal distances in their order."""
    order = np.argsort(values, kind="stable")
    found: Ints = order[np.linspace(0, order.size - 1, min(most, order.size)).astype(np.int64)]
    return found


def _whose(name: str, place: Mapping[str, int]) -> list[int]:
    return [place[name]] if name in place else []


def _persons(population: PopulationFindings, by: ByCondition, horizon: Horizon, place: Mapping[str, int]) -> Chart:
    """A line through the discounts of each person, and thick ones through those that are typical."""
    cells, most, number = population.cells, 12, len(by.persons)
    assert cells is not None
    total = np.bincount(by.level, cells["decisions"], minlength=len(by.levels))
    some = np.arange(total.size) if by.is_number else np.sort(np.argsort(-total, kind="stable")[:most])
    places, logits = (by.places[some] if by.is_number else np.arange(some.size)).tolist(), by.logits[:, some]
    who = by.drawn
    # Persons stand in the cells in their order, so that a person's group is known; of many groups none has a colour.
    groups = sorted(pd.unique(population.groups))
    colours = pd.Index(groups).get_indexer(pd.Index(population.groups)) if len(groups) <= 5 else np.zeros(number, dtype=np.int64)
    lines, marks = [], []
    if by.is_number:
        low, high = np.nanquantile(logits, [0.1, 0.9], axis=0).tolist()
        around = [*zip(places, high, strict=True), *zip(places[::-1], low[::-1], strict=True)]
        lines.append(Line(around, kind="area"))
    for i in who.tolist():
        seen, tip = np.flatnonzero(~np.isnan(logits[i])).tolist(), ""
        if place:
            gammas = population.largest_discount * expit(logits[i])
            said = [f"{by.column} = {by.levels[some[k]]}: γ {decimals(gammas[k], 3)}, {horizon.text(gammas[k])}" for k in seen]
            tip = "\n".join([by.persons[i], *said[:8], *(["…"] if len(said) > 8 else [])])
        points, whose, colour = [(places[k], float(logits[i, k])) for k in seen], _whose(by.persons[i], place), int(colours[i])
        if len(seen) > 1:
            lines.append(Line(points, kind="person", colour=colour, tip=tip, experts=whose))
        marks += [Mark(x, y, tip, whose, 2.5, colour=colour) for x, y in points if len(seen) == 1]
    ends = float(np.nanmin(logits[who])) - 0.1, float(np.nanmax(logits[who])) + 0.1
    if colours.any():
        room = 0.07 * (ends[1] - ends[0])
        ends = ends[0], ends[1] + room * len(groups)  # the names of the groups stand above
        for k, name in enumerate(groups):
            own = logits[colours == k]
            points = [(x, float(np.nanmean(y))) for x, y in zip(places, own.T, strict=True) if not np.isnan(y).all()]
            lines.append(Line(points, shortened(name, 40), "stroke thick", ends[1] - room * (k + 0.6), colour=k))
    else:
        lines.append(Line(list(zip(places, by.typical[some].tolist(), strict=True)), kind="typical"))
    label = shortened(by.column, 50)
    if by.is_number:
        pad = 0.03 * (places[-1] - places[0])
        low, high = places[0] - pad, places[-1] + pad
        x = Axis(label, number_ticks(low, high), low, high)
    else:
        width = max(4, 50 // some.size)
        x = Axis(label, [(k, shortened(by.levels[level], width)) for k, level in enumerate(some)], -0.4, some.size - 0.6)
    panels = [
        Panel(x, logit_axis(horizon, unit, population.largest_discount, ends), marks, lines, f"in-{unit}") for unit in UNITS
    ]
    caption = [
        f"A thin line joins the shrunken discounts of one person; the thick {'lines are' if colours.any() else 'line is'} "
        f"{'the means of groups' if colours.any() else 'what is typical'}"
        f"{f', and the band holds 80 % of all persons at each {by.column}' if by.is_number else ''}."
    ]
    if population.person_terms == ["Intercept"]:
        caption.append("That they are parallel in the logit is no finding: the formula has everybody change alike.")
    if marks:
        caption.append("A dot is a person who was seen under one condition only.")
    if number > MOST_DRAWN:
        caption.append(f"Drawn are {SAMPLE} of {number:,} persons, evenly from the shortest horizon to the longest.")
    if len(by.levels) > some.size:
        caption.append(f"Shown are the {most} of {len(by.levels)} levels with the most decisions.")
    return Chart(" ".join(caption), panels)


def _variance(population: PopulationFindings) -> list[Block]:
    """How much of a horizon is the person and how much the situation, as a bar; the same of a temperature."""
    names = {
        "person": "the person, whatever the condition",
        "covariates": "what the covariates say of the person",
        "condition": "the situation, which changes everyone alike",
        "person_by_condition": "what the situation changes in this person more or less than in others",
    }
    bars: list[Block] = []
    for kind, whole, scale in (
        ("discount", "horizon", "logit of the discount"),
        ("temperature", "temperature", "logarithm of the temperature"),
    ):
        shares = (population.variance or {}).get(kind, {})
        parts = [(f"{percent(shares[name])}: {words}", shares[name]) for name, words in names.items() if shares.get(name, 0) > 0]
        if not parts:
            continue
        caption = f"How much of a {whole} is the person, how much the situation: shares of the variance of the {scale}"
        low, high = shares.get("between_low", np.nan), shares.get("between_high", np.nan)
        sure = "" if np.isnan(low + high) else f" What lies between persons is {percent(low)} to {percent(high)} (95 % interval)."
        bars.append(Shares(parts, f"{caption}, {significant(shares['total'], 2)} in all.{sure}"))
    return bars


def _spreads(population: PopulationFindings) -> TableBlock:
    """How much persons differ, and how much the effects of conditions differ between them."""

    def size(found: Mapping[str, Any]) -> str:
        low, high = found["interval"]
        ends = "" if np.isnan(low + high) else f" ({decimals(low, 2)} to {decimals(high, 2)})"
        return f"{decimals(found['estimate'], 2)}{ends}"

    found = {"persons, at average conditions": population.spread}
    found |= {f"the effect of {term}": slope for term, slope in (population.slopes or {}).items()}
    rows = [[name, size(spread["discount"]), size(spread["temperature"])] for name, spread in found.items()]
    headers = ["what differs", "logit of the discount", "logarithm of the temperature"]
    return TableBlock(Table.of(headers, rows, "Standard deviations between persons, with 95 % intervals"))
