"""People in rows and figures, and their sections of a page: a population, its groups, and the same people under several
conditions. `questions/differences.py` has the sentences.

Of very many people none has a row or a dot. Histograms stand in their place, so the page is as large for a million people as
for two thousand.

*Conditions.* A cell is a person under one combination of conditions. Where there are several conditions, what is said of a person
at a level of one of them is the mean of the logits of the person's cells at that level. A number with many values is cut into
bins with about equally many cells.

*Distribution.* Shrunken discounts lie closer together than people do. So the shaded areas are the posteriors of the cells put
together: with m and e the mean and the standard error of the logit of a cell's discount, the mixture of all N(m, e²).

*Sample.* Of very many people some are drawn, at equal distances in the order of their mean logits, so that those who are drawn
differ as all do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from multihorizon.checks import Floats
from multihorizon.horizon import Horizon
from multihorizon.numerics.distributions import t_ppf
from multihorizon.population.findings import PopulationEvidence, PopulationFindings
from multihorizon.population.solver import absent_words
from multihorizon.population.types import types_words
from multihorizon.questions.differences import differences_of, population_columns, population_words
from multihorizon.questions.fitted import Fitted
from multihorizon.questions.people import PEOPLE, GroupSummary, People
from multihorizon.report.charts import (
    DIAGONAL,
    UNITS,
    Axis,
    Bar,
    Beside,
    Block,
    Chart,
    Either,
    Line,
    Mark,
    Notice,
    PageTable,
    Panel,
    Section,
    Shares,
    TableBlock,
    Unit,
    look_ahead,
    look_ahead_range,
    number_ticks,
)
from multihorizon.report.plots import ByCondition, by_condition, evenly
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL, Role, Table, decimals, in_words, interval_text, p_text, percent, shortened, significant


def contrast_rows(population: PopulationFindings, horizon: Horizon) -> list[tuple[str, str, str, str, str]]:
    """Return who is compared, typical discounts, horizons, the difference of logits with its interval, and p, as they are
    printed."""
    rows = []
    for pair in population.contrasts["discount"]:
        (first, second) = pair["levels"]
        (a, b) = pair["typical"]
        places = _places(pair["standard_error"])
        low, high = pair["interval"]
        ends = "" if np.isnan(low + high) else f" ({low:.{places}f} to {high:.{places}f})"
        who, typical = f"{pair['column']}: {second} against {first}", f"{decimals(b, 3)}, {decimals(a, 3)}"
        reach, difference = f"{horizon.number(b)}, {horizon.number(a)}", f"{pair['estimate']:.{places}f}{ends}"
        rows.append((who, typical, reach, difference, p_text(pair["adjusted"], "")))
    return rows


def effect_rows(population: PopulationFindings, kind: str) -> list[tuple[str, str | None, str, str]]:
    """Return term, estimate, interval and p-value as they are printed; factors with several terms have a row of their own."""
    rows: list[tuple[str, str | None, str, str]] = []
    for term, effect in population[kind].items():
        (low, high) = effect["interval"]
        places = _places(effect["standard_error"])
        interval = "–" if np.isnan(low + high) else f"{low:.{places}f} to {high:.{places}f}"
        rows.append((term, decimals(effect["estimate"], places), interval, p_text(effect["p"], "")))
    for name, test in population.factors[kind].items():
        text = "–" if np.isnan(test["F"]) else f"F({test['degrees'][0]}, {test['degrees'][1]}) = {decimals(test['F'], 2)}"
        rows.append((f"{name}, all terms together", None, text, p_text(test["p"], "")))
    return rows


def compared_with(population: PopulationFindings) -> str:
    """Return the groups that terms compare with, such as "compared with noise = low"; empty where no term compares with one."""
    order = [pair["column"] for pair in population.contrasts["discount"]]  # that of the formula
    levels = population.references or {}
    pairs = [
        f"{column} = {shortened(str(levels[column]), 40)}" for column in dict.fromkeys([*order, *levels]) if column in levels
    ]
    return f"compared with {in_words(pairs)}" if pairs else ""


def _places(error: float) -> int:
    """Return decimals that show two digits of a standard error, and at least two: effects per year of age are small."""
    return int(np.clip(1 - np.floor(np.log10(error)), 2, 6)) if error > 0 else 2


def population_section(findings: Fitted, solution: Solution) -> Section:
    """Return the section on groups and people; the pictures that answer what was asked stand before it."""
    population, horizon = PopulationEvidence.of(solution).population, findings.horizon
    if solution.status != Status.CONVERGED:
        return Section("Groups and people", [Notice(f"The population could not be estimated. {solution.message}")])
    blocks: list[str | Block] = [*map(Notice, absent_words(population.left_out, population.persons, most=1000))]
    blocks.append(" ".join(population_words(solution, horizon)))
    blocks.append(Beside([_shrinkage_figure(findings, solution), *predicted_figures(findings)]))
    if population.cells is not None:  # what to expect under each condition has a section of its own
        return Section("Groups and people", [*blocks, *effect_blocks(population, horizon), _persons(findings)])
    sizes = pd.Series(population.groups).value_counts()
    expected = expected_table(population, {name: int(sizes.get(name, 0)) for name in population.predictions}, horizon)
    return Section("Groups and people", [*blocks, expected, *effect_blocks(population, horizon), _persons(findings)])


def expected_table(population: PopulationFindings, sizes: dict[str, int], horizon: Horizon, rest: str = "") -> PageTable:
    """Return what to expect of people of these groups, of which there are so many; `rest` says which groups are left out."""
    rows = [
        [
            name,
            f"{number:,}",
            look_ahead(population.predictions[name]["typical_discount"], horizon),
            look_ahead_range(population.predictions[name]["typical_interval"], horizon),
            look_ahead_range(population.predictions[name]["new_person_interval"], horizon),
        ]
        for name, number in sizes.items()
    ]
    typical = Either("typical discount", f"typical horizon, {horizon.many}")
    headers = ["people like", "how many", typical, "95% CI", "95% of new people"]
    return PageTable(headers, rows, f"What to expect of people with these covariates{rest}")


def effect_blocks(population: PopulationFindings, horizon: Horizon) -> list[str | Block]:
    """Return contrasts, and the effects on discount and temperature, as tables."""
    blocks: list[str | Block] = []
    rows, most = contrast_rows(population, horizon), 1000  # more rows would make the page slow
    if rows:
        headers = ["people with", "typical discounts", f"in {horizon.many}", "difference of logits, 95% CI", "p"]
        caption = "People who differ in one covariate alone; p-values of several pairs have Holm's correction"
        if len(rows) > most:
            first = np.argsort([pair["adjusted"] for pair in population.contrasts["discount"]], kind="stable")[:most]
            caption += f"; shown are the {most:,} with the smallest p-values of {len(rows):,}"
            rows = [rows[k] for k in sorted(first)]
        blocks.append(TableBlock(Table.of(headers, rows, caption)))
    whom = f", {words}" if (words := compared_with(population)) else ""
    for kind, caption in (
        ("discount", f"Effects on the logit of the discount{whom}: positive numbers stand for longer horizons"),
        ("temperature", f"Effects on the logarithm of the temperature{whom}: positive numbers stand for more random choices"),
    ):
        effects = population[kind].values()
        ends = [0.0, *(end for effect in effects for end in effect["interval"] if not np.isnan(end))]
        bars: list[Bar | None] = [Bar(e["interval"][0], e["estimate"], e["interval"][1], (min(ends), max(ends))) for e in effects]
        bars += [None] * len(population.factors[kind])
        drawn = [[*row, bar] for row, bar in zip(effect_rows(population, kind), bars, strict=True)]
        blocks.append(TableBlock(Table.of(["term", "estimate", "95% CI or test", "p", ""], drawn, caption)))
    same = " Conditions are compared within the same people, so what makes people differ from each other does not blur it."
    blocks.append(
        "The logit of a discount γ is log(γ/(1−γ)). People differ around the mean of their group, so a difference between "
        "groups is judged by the number of people, not by the number of decisions (Student's t with "
        f"{population.degrees} degrees of freedom).{same if population.cells is not None else ''}"
    )
    return blocks


def distribution_section(population: PopulationFindings, horizon: Horizon) -> list[Section]:
    """Return the section on how horizons are distributed where no shape was assumed; none where the population is normal."""
    if population.distribution is None:
        return []
    blocks: list[str | Block] = [
        "Here no shape of the distribution was assumed. Its most likely form is a few points: what decisions blur cannot be told "
        "from points, so these are a picture of where people are, not the people themselves.",
    ]
    rows = []
    for name, group in population.distribution.items():
        blocks.append(Beside([_free_figure(population, name, horizon), _free_map(population, name, horizon)]))
        for kind in group["types"]:
            spread = f"{'at most ' if kind['at_most'] else ''}{decimals(kind['spread'], 2)}"
            rows.append((name, kind["share"], kind["discount"], kind["temperature"], spread))
    headers = ["people", "share", "typical discount", "typical temperature", "spread of the logit"]
    roles: dict[str, Role] = {"share": "share", "typical discount": "discount", "typical temperature": "amount"}
    blocks.append(TableBlock(Table.of(headers, rows, "Clear types", roles=roles), horizon=horizon))
    figures = [
        [
            name,
            len(group["weights"]),
            group["log_likelihood"],
            group["normal_log_likelihood"],
            significant(group["gap"], 2),
            significant(group["refinement"]["gain"], 2),
        ]
        for name, group in population.distribution.items()
    ]
    of_fits = ["persons", "points", "log-likelihood", "of the normal population", "gap", "last refinement"]
    blocks.append(TableBlock(Table.of(of_fits, figures, "Log-likelihood of the nonparametric distribution (NPMLE)")))
    asked = min(group["types_decided"]["persons"] for group in population.distribution.values())
    blocks.append(
        "No weights on these points and on the other nodes of the grid are more likely by more than the gap, and points at half "
        "the distance added no more than the last refinement. Types are counted by normal distributions: as many as the Bayesian "
        "information criterion asks for. Those without a valley between them, where the density falls below half of the lower "
        "peak, are one type. The free distribution has more points than there are types."
        + (f" Nodes were placed and types counted with {asked:,} people." if asked < population.persons else "")
    )
    return [Section("How horizons are distributed", blocks)]


def types_section(population: PopulationFindings, horizon: Horizon) -> list[Section]:
    """Return the section on types, where these were asked for."""
    types = population.types
    if types is None:
        return []
    posterior = population.individuals["posterior"]
    numbers = range(types["number"])
    rows = [
        [
            k + 1,
            f"{percent(types['shares'][k])} ± {decimals(100 * 1.96 * types['share_errors'][k], 0)}",
            types["discounts"][k] if types["identified"][k] else np.nan,
            tuple(types["intervals"][k]),
            types["temperatures"][k],
            types["likeliest"][k],
        ]
        for k in numbers
    ]
    headers = ["type", "share, 95% CI", "discount", "95% CI", "temperature", "likeliest for"]
    roles: dict[str, Role] = {"discount": "discount", "95% CI": "discount", "temperature": "amount"}
    of_types = Table.of(headers, rows, "Types, from the shortest horizon to the longest", roles=roles)
    edges = np.linspace(0, 1, 21)
    lines = []
    shares = [np.histogram(posterior[:, k], edges)[0] / len(posterior) for k in numbers]
    top = max(float(share.max()) for share in shares)
    high = top * (1.05 + 0.07 * len(shares))  # the names of the types stand above
    for k, share in enumerate(shares):
        outline = list(zip(np.repeat(edges, 2).tolist(), [0.0, *np.repeat(share, 2).tolist(), 0.0], strict=True))
        lines.append(Line(outline, f"type {k + 1}", label_at=high * (0.97 - 0.06 * k), colour=k))
    ticks = [(share, decimals(100 * share, 0)) for share in round_shares(top)]
    certain = f"On average, the likeliest type of a person or an episode has a probability of {percent(types['certainty'])}."
    figure = Chart(
        f"How likely each person or episode is of each type. {certain}",
        [Panel(Axis("probability of the type"), Axis("% of people or episodes", ticks, 0.0, high), [], lines)],
    )
    tests = [
        [
            test["types"],
            test["log_likelihood"],
            _number(test["statistic"]),
            _number(test["largest"]),
            test["simulations"],
            _number(test["p"]),
        ]
        for test in types["tests"]
    ]
    shown = any(types["identified"])
    blocks: list[str | Block] = [types_words(types), *([TableBlock(of_types, horizon=horizon), figure] if shown else [])]
    caption = "Is one more type needed? p by simulated studies"
    if any(test["p"] is not None for test in types["tests"]):
        headers = ["types", "log-likelihood", "gain of one more, twice", "at most by chance", "simulated studies", "p"]
        blocks.append(TableBlock(Table.of(headers, tests, caption)))
    return [Section("Types", blocks)]


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _free_figure(population: PopulationFindings, name: str, horizon: Horizon) -> Chart:
    """Return the free distribution of the discount as bars, under the normal curve of the same people."""
    assert population.distribution is not None
    mixture = population.distribution[name]
    group = population.predictions[name]
    largest = population.largest_discount
    logits = _logits(mixture["discounts"], largest)
    weights = np.array(mixture["weights"])
    centre = float(logit(group["typical_discount"] / largest))
    spread = population.spread["discount"]["estimate"]
    ends = (min(float(logits.min()), centre - 3 * spread) - 0.25, max(float(logits.max()), centre + 3 * spread) + 0.25)
    edges = np.linspace(*ends, 1 + int(np.clip((ends[1] - ends[0]) / 0.25, 12, 60)))
    bars = np.histogram(logits, edges, weights=weights)[0]
    x = np.linspace(*ends, 121)
    curve = np.exp(-0.5 * ((x - centre) / spread) ** 2) / (spread * np.sqrt(2 * np.pi)) * (edges[1] - edges[0])
    top = 1.1 * max(float(bars.max()), float(curve.max()))
    outline = list(zip(np.repeat(edges, 2).tolist(), [0.0, *np.repeat(bars, 2).tolist(), 0.0], strict=True))
    lines = [Line(outline, kind="area"), Line(list(zip(x.tolist(), curve.tolist(), strict=True)), colour=1)]
    y = Axis("% of people", [(share, decimals(100 * share, 0)) for share in round_shares(top)], 0.0, top)
    panels = [Panel(logit_axis(horizon, unit, largest, ends), y, [], lines, f"in-{unit}") for unit in UNITS]
    return Chart(f"Discounts of {shortened(name, 60)}: bars without any assumption, the line if they are normal.", panels)


def _free_map(population: PopulationFindings, name: str, horizon: Horizon) -> Chart:
    """Return the points of the free distribution over discount and temperature, as large as their weights."""
    assert population.distribution is not None
    mixture = population.distribution[name]
    largest = population.largest_discount
    logits = _logits(mixture["discounts"], largest)
    heights = np.log(mixture["temperatures"])
    marks = [
        Mark(
            x,
            y,
            f"γ {decimals(discount, 3)}, temperature {significant(np.exp(y), 3)}\n{percent(weight)} of people",
            size=1.5 + 18 * float(np.sqrt(weight)),
        )
        for x, y, discount, weight in zip(
            logits.tolist(), heights.tolist(), mixture["discounts"], mixture["weights"], strict=True
        )
    ]
    ends = float(logits.min()) - 0.25, float(logits.max()) + 0.25
    y = log_axis("temperature, on a logarithmic scale", float(heights.min()) - 0.5, float(heights.max()) + 0.5)
    panels = [Panel(logit_axis(horizon, unit, largest, ends), y, marks, (), f"in-{unit}") for unit in UNITS]
    return Chart("The same with temperatures: the larger a point, the more people it stands for.", panels)


def _logits(discounts: Sequence[float], largest: float) -> Floats:
    share = np.clip(np.array(discounts) / largest, 1e-12, 1 - 1e-12)
    return np.log(share) - np.log1p(-share)


def round_shares(top: float) -> list[float]:
    """Round shares from 0 to the top of an axis."""
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if 6 * step >= top or step == 0.5)
    return [i * step for i in range(int(top / step) + 1)]


def _persons(findings: Fitted) -> PageTable:
    """Return shrunken beside raw discounts."""
    assert findings.population is not None
    columns = population_columns(findings, findings.population)
    raw, horizon = findings.solution.discounts, findings.horizon
    where = _on_average(PopulationEvidence.of(findings.population).population)
    compared = columns["shrunken_discount"].dropna()
    order = [int(k) for k in compared.index[np.argsort(compared)]]
    rows = []
    for k in order:
        row = columns.iloc[k]
        interval = look_ahead_range((float(row["shrunken_low"]), float(row["shrunken_high"])), horizon)
        raw_look = look_ahead(float(raw[k]), horizon) if findings.given[k] else None
        shrunken = look_ahead(float(row["shrunken_discount"]), horizon)
        rows.append([findings.solution.experts[k], raw_look, shrunken, interval, decimals(row["reliability"], 2)])
    own_look = Either("raw discount", f"raw horizon, {horizon.many}")
    headers = ["person", own_look, "shrunken", "95% CI", "reliability"]
    return PageTable(headers, rows, f"Shrunken{where} beside raw discounts", [[k] for k in order])


def population_figures(findings: Fitted, solution: Solution) -> list[Block]:
    """Return the pictures that answer what was asked: the distribution and the people of each group, and people over each
    number."""
    population = PopulationEvidence.of(solution).population
    numbers = list(dict.fromkeys(pair["column"] for pair in population.contrasts["discount"] if pair["number"]))[:2]
    figures: list[Block] = [_number_figure(findings, solution, column) for column in numbers]
    if numbers and len(population.predictions) == 1:
        return figures
    of_groups = [_groups_figure(findings, solution, kind) for kind in ("discount", "temperature")]
    return [*of_groups[: 1 if numbers else 2], *figures]


def _groups_figure(findings: Fitted, solution: Solution, kind: str) -> Chart:
    """Return shrunken discounts or temperatures as dots and the distribution of each group as a curve, on the logit or the
    log scale.
    """
    population = PopulationEvidence.of(solution).population
    standard = np.linspace(-3, 3, 61)
    largest = population.largest_discount
    spread = population.spread[kind]["estimate"]
    persons = population.individuals["logit_discount" if kind == "discount" else "log_temperature"]
    at = at_means(population)
    lines, marks, names = [], [], []
    order = sorted(population.predictions, key=lambda name: population.predictions[name]["typical_discount"])
    colours = {name: i for i, name in enumerate(population.predictions)}
    for i, name in enumerate(order):
        group, colour = population.predictions[name], colours[name]
        centre = logit(group["typical_discount"] / largest) if kind == "discount" else np.log(group["typical_temperature"])
        places, heights = float(centre) + spread * standard, i + 0.6 * np.exp(-0.5 * standard**2)
        curve = list(zip(places.tolist(), heights.tolist(), strict=True))
        lines.append(Line([(curve[0][0], i), *curve], kind="area", colour=colour))
        lines += _typical(population, name, kind, float(i), 0.6)
        names.append((i + 0.2, shortened(without_means(name, at), 30)))
        for k in (k for k, of in enumerate(population.groups) if of == name):
            expert = findings.solution.experts.index(solution.experts[k])
            marks.append(Mark(float(persons[k]), i - 0.1, _tip(findings, solution, k, name), [expert], colour=colour))
    ends = [x for line in lines for x, _ in line.points] + persons.tolist()
    y = Axis("" if len(order) > 1 else "persons", names if len(order) > 1 else (), -0.3, float(len(order)))
    if kind == "discount":
        panels = [Panel(logit_axis(findings.horizon, unit, largest, ends), y, marks, lines, f"in-{unit}") for unit in UNITS]
    else:
        panels = [Panel(log_axis("temperature, on a logarithmic scale", min(ends), max(ends)), y, marks, lines)]
    whose = f"their group{f', at {at}' if at else ''}" if len(order) > 1 else "all people"
    what = "" if kind == "discount" else "How much people choose at random: the higher the temperature, the more. "
    caption = f"{what}People as dots below the distribution of {whose}; the cross is what is typical, with its 95% CI."
    return Chart(caption, panels, max(56.0 + 90 * len(order), 200.0) if len(order) <= 6 else 56.0 + 60 * len(order))


def _typical(population: PopulationFindings, name: str, kind: str, row: float, height: float) -> list[Line]:
    """Return what is typical of a group as a stroke upward, and its 95% CI along the foot of it."""
    group, largest = population.predictions[name], population.largest_discount
    if kind == "discount":
        centre, low, high = logit(np.array([group["typical_discount"], *group["typical_interval"]]) / largest).tolist()
        ends = " to ".join(decimals(end, 3) for end in group["typical_interval"])
        tip = f"{name}: typical γ {decimals(group['typical_discount'], 3)}, 95% CI {ends}"
    else:
        centre = float(np.log(group["typical_temperature"]))
        reach = (
            t_ppf((1 + LEVEL) / 2, population.degrees) * np.sqrt(group["covariance"][1][1]) if "covariance" in group else np.nan
        )
        low, high = centre - reach, centre + reach
        ends = interval_text(np.exp(low), np.exp(high), significant)
        tip = f"{name}: typical temperature {significant(group['typical_temperature'])}, 95% CI {ends}"
    lines = [Line([(centre, row), (centre, row + height)], kind="typical", tip=tip)]
    if np.isfinite([low, high]).all():
        lines.append(Line([(low, row), (high, row)], kind="typical"))
    return lines


def _number_figure(findings: Fitted, solution: Solution, column: str) -> Chart:
    """Return shrunken discounts of people over a number, and the line of what is typical where it is straight on the logit
    scale.
    """
    population = PopulationEvidence.of(solution).population
    values = np.array(population.covariates[column], dtype=np.float64)
    largest = population.largest_discount
    persons = np.array(population.individuals["logit_discount"])
    groups = list(population.predictions)
    colours = [groups.index(name) if len(groups) <= 5 else 0 for name in population.groups]
    marks = [
        Mark(
            float(values[k]),
            float(persons[k]),
            _tip(findings, solution, k, f"{column} = {values[k]:g}"),
            [findings.solution.experts.index(solution.experts[k])],
            colour=colours[k],
        )
        for k in range(values.size)
    ]
    pad = 0.03 * float(np.ptp(values))
    low, high = float(values.min()) - pad, float(values.max()) + pad
    lines = []
    straight = any(each.name == column and each.pairs for each in differences_of(population, "discount"))
    for colour, name in enumerate(groups if straight and len(groups) <= 5 else ()):
        lines += _line_of_group(population, column, name, np.linspace(low, high, 25), colour if len(set(colours)) > 1 else 0)
    heights = [y for line in lines if line.kind != "area" for _, y in line.points]
    ends = min([float(persons.min()) - 0.2, *heights]), max([float(persons.max()) + 0.2, *heights])
    if len(set(colours)) > 1:  # the names of the groups stand above
        room = 0.07 * (ends[1] - ends[0])
        at = at_means(population)
        ends = ends[0], ends[1] + room * len(groups)
        for i, name in enumerate(groups):
            lines.append(Line([], shortened(without_means(name, at), 40), label_at=ends[1] - room * (i + 0.6), colour=i))
    x = Axis(shortened(column, 50), number_ticks(low, high), low, high)
    panels = [Panel(x, logit_axis(findings.horizon, unit, largest, ends), marks, lines, f"in-{unit}") for unit in UNITS]
    typical = "; a thick line is what is typical, within its 95% band" if lines and lines[0].points else ""
    return Chart(f"Shrunken discounts of people over {column}{typical}.", panels)


def _line_of_group(population: PopulationFindings, column: str, name: str, x: Floats, colour: int) -> list[Line]:
    """Return what is typical of a group over a number, with a 95% band where the terms of the formula are known to be plain.

    With b the effects, C their covariance and a(x) the row of the group in the design, the line is `a(x)ᵀb`, and the band
    `± t √(a(x)ᵀ C a(x))`, with Student's t of the people's degrees of freedom. A row that does not give the group's own mean at
    the mean of the number has terms of another kind, such as products, and no line.
    """
    levels = dict(part.split(" = ", 1) for part in name.split(", ") if " = " in part)
    terms = list(population.discount)
    means = {number: float(np.mean(each)) for number, each in population.covariates.items() if each.dtype.kind in "fiu"}
    known = {"Intercept": 1.0} | {f"{of}[T.{level}]": 1.0 for of, level in levels.items()} | means
    row = np.array([known.get(term, 0.0) for term in terms])
    effects = np.array([population.discount[term]["estimate"] for term in terms])
    centre = float(logit(population.predictions[name]["typical_discount"] / population.largest_discount))
    if column not in terms or abs(row @ effects - centre) > 0.02 * (1 + abs(centre)):
        return []
    rows = np.repeat(row[None], x.size, axis=0)
    rows[:, terms.index(column)] = x
    middle = rows @ effects
    variance = np.einsum("ij,jk,ik->i", rows, np.array(population.discount_covariance), rows)
    half = t_ppf((1 + LEVEL) / 2, population.degrees) * np.sqrt(np.maximum(variance, 0.0))
    above, below = (list(zip(x.tolist(), (middle + sign * half).tolist(), strict=True)) for sign in (1, -1))
    typical = Line(list(zip(x.tolist(), middle.tolist(), strict=True)), kind="stroke thick", colour=colour)
    return [Line([*above, *below[::-1]], kind="area", colour=colour), typical]


def predicted_figures(findings: Fitted) -> list[Block]:
    """For each of the largest groups, what its people chose against what the population predicts of them."""
    figures: list[Block] = []
    for group in findings.predicted:
        marks = []
        for row in group.rows:
            expected = f"{decimals(row.predicted, 2)} ({decimals(row.low, 2)} to {decimals(row.high, 2)})"
            taken = f"taken {decimals(row.taken, 2)}\nof {decimals(row.choices, 0)} choices"
            marks.append(Mark(row.predicted, row.taken, f"predicted {expected}, {taken}", up=(row.low, row.high)))
        whose = "" if len(findings.predicted) == 1 else f" with {shortened(group.name, 60)}"
        caption = (
            f"Choices of people{whose}: dots are the shares taken, and strokes are where 95% of them are expected from the "
            "people's other decisions."
        )
        panel = Panel(Axis("predicted probability of an action"), Axis("share of the decisions"), marks, [DIAGONAL])
        figures.append(Chart(caption, [panel]))
    return figures


def _shrinkage_figure(findings: Fitted, solution: Solution) -> Chart:
    """Return shrunken against raw discounts, with the line on which both agree."""
    raw = findings.solution.discounts
    places = [findings.solution.experts.index(name) for name in solution.experts]
    marks = [
        Mark(float(raw[i]), float(solution.discounts[k]), f"{_tip(findings, solution, k)}\nraw γ {decimals(raw[i], 3)}", [i])
        for k, i in enumerate(places)
        if findings.given[i]
    ]
    where = _on_average(PopulationEvidence.of(solution).population)
    caption = f"Shrunken{where} against raw discounts: what a person's decisions leave open, the population fills in."
    return Chart(caption, [Panel(Axis("raw discount"), Axis("shrunken discount"), marks, [DIAGONAL])])


def _on_average(population: PopulationFindings) -> str:
    return "" if population.cells is None else ", at average conditions,"


def _tip(findings: Fitted, solution: Solution, k: int, *group: str) -> str:
    discount = float(solution.discounts[k])
    reach = f"shrunken γ {decimals(discount, 3)}, {findings.horizon.text(discount)}"
    return "\n".join([solution.experts[k], *group, reach])


def at_means(population: PopulationFindings) -> str:
    """Return the numbers of the formula at their means, with which the name of each prediction ends; empty where there are
    none."""
    numbers = {pair["column"] for pair in population.contrasts["discount"] if pair["number"]}
    parts: list[str] = next(iter(population.predictions)).split(", ")
    first = len(parts)
    while first and parts[first - 1].partition(" = ")[0] in numbers:
        first -= 1
    return ", ".join(parts[first:])


def without_means(name: str, at: str) -> str:
    """Return the name of a prediction without the numbers at their means."""
    return name.removesuffix(at).removesuffix(", ") or "everyone"


def log_axis(label: str, low: float, high: float) -> Axis:
    """Return an axis over these natural logarithms, with round numbers."""
    for steps in ((1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1,)):
        ticks = [(float(np.log(m * 10.0**e)), f"{m * 10.0**e:g}") for e in range(-12, 13) for m in steps]
        inside = [tick for tick in ticks if low <= tick[0] <= high]
        if len(inside) <= 8:
            break
    return Axis(label, inside, low, high)


def logit_axis(horizon: Horizon, unit: Unit, largest: float, ends: Sequence[float]) -> Axis:
    """Return an axis over these logits, with numbers that do not touch."""
    low = min(ends)
    high = max(ends)
    coarse = (0.001, 0.01, 0.05, 0.2, 0.5, 0.8, 0.95, 0.99, 0.999)
    fine = (0.1, 0.3, 0.4, 0.6, 0.7, 0.75, 0.85, 0.9, 0.97, 0.98, 0.995)  # where the axis is short
    ticks: list[tuple[float, str]] = []
    for gamma in (*coarse, *fine):
        place = float(logit(gamma / largest)) if gamma < largest else inf
        near = min((abs(place - other) for other, _ in ticks), default=inf)
        text = f"{gamma:g}"
        if unit == "steps":
            text = horizon.number(gamma)
        new = all(text != other for _, other in ticks)  # in a short task several discounts have one horizon
        if low <= place <= high and near > (0.09 if gamma in coarse else 0.15) * (high - low) and new:
            ticks.append((place, text))
    label = (
        "discount γ, on the logit scale"
        if unit == "discount"
        else f"horizon in {horizon.many}, on the logit scale of the discount"
    )
    return Axis(label, sorted(ticks), low, high)


def shown_groups(people: People, most: int) -> tuple[list[GroupSummary], str]:
    """Return at most so many groups, those with the most people, in their order, and a sentence where some are not among
    them."""
    groups = people.groups
    if len(groups) <= most:
        return groups, ""
    largest = sorted(range(len(groups)), key=lambda i: -groups[i].persons)[:most]
    return [groups[i] for i in sorted(largest)], f" Shown are the {most} largest of {len(groups):,} groups."


def groups_section(fitted: Fitted, people: People) -> Section:
    """Return how discounts are distributed in each group, what to expect of new people, and the effects."""
    horizon = fitted.horizon
    blocks: list[str | Block] = [Beside(predicted_figures(fitted))]
    if people.population.cells is None:  # else what to expect under each condition has a section of its own
        groups, rest = shown_groups(people, 500)
        sizes = {group.name: group.persons for group in groups}
        blocks.append(expected_table(people.population, sizes, horizon, f".{rest}"))
    return Section("Groups", [*blocks, *effect_blocks(people.population, horizon)])


def groups_figure(people: People, horizon: Horizon) -> Chart:
    """Draw for each group a histogram of shrunken discounts under the distribution of its people, on the logit scale."""
    population = people.population
    standard = np.linspace(-3, 3, 61)
    largest = population.largest_discount
    spread = population.spread["discount"]["estimate"]
    groups, rest = shown_groups(people, 12)
    persons = population.individuals["logit_discount"]
    centres = logit(np.array([group.typical for group in groups]) / largest)
    # All but the outermost people: one of a million may lie anywhere.
    low, high = np.quantile(persons, [0.001, 0.999])
    ends = min(low, (centres - 3 * spread).min()), max(high, (centres + 3 * spread).max())
    edges = np.linspace(*ends, 81)
    bars = [np.histogram(persons[population.groups == group.name], edges)[0] for group in groups]
    heights = [bar / max(bar.sum(), 1) / np.diff(edges) for bar in bars]
    curve = np.exp(-0.5 * standard**2) / (spread * np.sqrt(2 * np.pi))
    unit = 0.75 / max(curve.max(), max(height.max() for height in heights))
    tall = max(unit, 0.25 / curve.max())  # where shrunken discounts lie very close together, a line to scale would be flat
    lines, names = [], []
    for row, (group, centre, height) in enumerate(zip(reversed(groups), centres[::-1], reversed(heights), strict=True)):
        colour = len(groups) - 1 - row
        lines.append(Line(_outline(edges, row + unit * height, row), kind="area", colour=colour))
        over = list(zip((centre + spread * standard).tolist(), (row + tall * curve).tolist(), strict=True))
        lines.append(Line(over, colour=colour))
        lines += _typical(population, group.name, "discount", float(row), 0.3)
        names.append((row + 0.3, shortened(group.name, 30)))
    y = Axis("", names, -0.1, float(len(groups)))
    panels = [Panel(logit_axis(horizon, unit, largest, ends), y, [], lines, f"in-{unit}") for unit in UNITS]
    caption = (
        "Areas are the people's shrunken discounts; lines are the distribution of their group, from which new people come; the "
        "cross is what is typical, with its 95% CI. The less the decisions of each person say, the closer together the "
        "shrunken discounts lie."
        f"{' Lines are drawn higher than to scale.' if tall > unit else ''}{rest}"
    )
    return Chart(caption, panels, float(np.clip(56 + 90 * len(groups), 340, 760)))


def temperatures_figure(people: People) -> Chart:
    """Draw shrunken temperatures by group; all but those of the outermost people."""
    logs = people.units["log_temperature"].to_numpy()
    low, high = (float(end) for end in np.quantile(logs, [0.001, 0.999]))
    low, high = low - 0.05, high + 0.05
    ticks = [(float(place), significant(np.exp(place), 2)) for place in np.linspace(low, high, 7)[1:-1]]
    axis = Axis("shrunken temperature, on a logarithmic scale", ticks, low, high)
    return _distribution(people, logs, axis, "How much people choose at random: the higher the temperature, the more.")


def _outline(edges: Floats, heights: Floats, base: float) -> list[tuple[float, float]]:
    """Return the outline of a histogram, from its left foot to its right."""
    x = np.repeat(edges, 2)
    y = np.concatenate([[base], np.repeat(heights, 2), [base]])
    return list(zip(x.tolist(), y.tolist(), strict=True))


def persons_section(people: People, horizon: Horizon) -> Section:
    """Return how much is known of each person."""
    widths = (people.units["high"] - people.units["low"]).to_numpy()
    reliability = people.units["discount_reliability"].to_numpy()
    of_each = "How much the decisions say of each person."
    figures = [
        _distribution(people, reliability, Axis("reliability of a person's discount"), of_each),
        _distribution(people, widths, Axis("width of a person's 95% CI"), "How wide the intervals of discounts are."),
    ]
    groups = shown_groups(people, 500)
    rows = [
        [
            group.name,
            look_ahead(group.middle[1], horizon),
            look_ahead_range((group.middle[0], group.middle[2]), horizon),
            decimals(group.reliability, 2),
            decimals(group.decisions / max(group.persons, 1), 1),
        ]
        for group in groups[0]
    ]
    middle = Either("median shrunken discount", f"median shrunken horizon, {horizon.many}")
    headers = ["people with", middle, "half of them", "mean reliability", "decisions per person"]
    blocks: list[str | Block] = [
        f"{PEOPLE} has a row for each person: the shrunken discount with its 95% CI, the temperature, the reliability, "
        "and the covariates. Reliability is 1 where a person's own decisions settle the discount, and 0 where they say nothing. "
        "Then the person has the discount that is typical of the group.",
        Beside(figures),
        PageTable(headers, rows, f"Shrunken discounts by group.{groups[1]}"),
    ]
    return Section("People", blocks)


def _distribution(people: People, values: Floats, axis: Axis, caption: str) -> Chart:
    """Return a histogram over an axis, with a line for each of the largest groups."""
    groups = shown_groups(people, 5)[0]
    edges = np.linspace(axis.low, axis.high, 51)
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
    ticks = [(share, decimals(100 * share, 0)) for share in round_shares(top)]
    return Chart(caption, [Panel(axis, Axis("% of the people of a group", ticks, 0.0, high), [], lines)])


def explained_table(people: People) -> list[str | Block]:
    """Return what the model explains of each group's decisions; nothing where that is not known by group."""
    groups, rest = shown_groups(people, 500)
    if not groups or np.isnan([group.explained for group in groups]).any():
        return []
    rows = [[group.name, f"{group.decisions:,}", percent(group.explained)] for group in groups]
    return [PageTable(["people with", "decisions", "explained"], rows, f"What the model explains, by group.{rest}")]


#: A page with the figures of more conditions would be hard to read.
MOST_CONDITIONS = 4


def condition_figures(population: PopulationFindings, horizon: Horizon, place: Mapping[str, int]) -> list[Block]:
    """Return the discounts under each combination of conditions, and the people over each condition; nothing where there are
    none.

    `place` is the number of each person on the page; empty where the page shows nobody alone.
    """
    if population.cells is None:
        return []
    drawn = population.conditions[:MOST_CONDITIONS]
    columns = sorted((by_condition(population, column) for column in drawn), key=lambda by: by.is_number)
    figures: list[Block] = [] if all(by.is_number for by in columns) else [_distributions(population, horizon, place)]
    for by in columns:
        figures.append(_persons_over(population, by, horizon, place))
        if len(by.levels) == 2 and not by.is_number and len(by.drawn) > 2:
            figures.append(_against_each_other(population, by, horizon, place))
    return figures


def _against_each_other(population: PopulationFindings, by: ByCondition, horizon: Horizon, place: Mapping[str, int]) -> Chart:
    """Return each person's discount under the second level of a condition against that under the first."""
    marks = []
    for i in by.drawn.tolist():
        x, y = by.logits[i].tolist()
        if np.isfinite(x + y):
            gammas = (population.largest_discount * expit(by.logits[i])).tolist()
            said = [f"{level}: γ {decimals(gamma, 3)}" for level, gamma in zip(by.levels, gammas, strict=True)]
            tip = "\n".join([*([by.persons[i]] if place else []), *said])
            marks.append(Mark(x, y, tip, _whose(by.persons[i], place), 3.0))
    places = [end for mark in marks for end in (mark.x, mark.y)] or [-1.0, 1.0]
    ends = min(places) - 0.1, max(places) + 0.1
    panels = []
    for unit in UNITS:
        axis = logit_axis(horizon, unit, population.largest_discount, ends)
        x_axis, y_axis = (replace(axis, label=f"{shortened(f'{by.column} = {level}', 24)}: {axis.label}") for level in by.levels)
        panels.append(
            Panel(
                x_axis,
                replace(y_axis, label=y_axis.label.split(",")[0]),
                marks,
                [Line([(ends[0],) * 2, (ends[1],) * 2], kind="frame")],
                f"in-{unit}",
            )
        )
    return Chart(f"Each person's shrunken discount under two levels of {by.column}; on the line both are alike.", panels)


def conditions_table(population: PopulationFindings, horizon: Horizon) -> Table:
    """Return what is typical under each condition, what to expect of new people, and how much is known of each."""
    rows = condition_rows(population)
    frame = pd.DataFrame(
        {
            "people with": [row.name for row in rows],
            "how many": [row.persons for row in rows],
            "decisions": [row.decisions for row in rows],
            "typical discount": [row.typical for row in rows],
            horizon.many: [horizon(row.typical) for row in rows],
            "95% CI": [tuple(row.typical_interval) for row in rows],
            "95% of new people": [tuple(row.new_person_interval) for row in rows],
            "mean reliability": [decimals(row.reliability, 2) for row in rows],
        }
    )
    roles: dict[str, Role] = {"decisions": "count", horizon.many: "horizon", "mean reliability": "amount"}
    roles |= {"typical discount": "discount", "95% CI": "discount", "95% of new people": "discount"}
    return Table(frame, "Discounts of the same people under each condition", roles=roles)


def conditions_section(population: PopulationFindings, horizon: Horizon, written: str) -> list[Section]:
    """Return the section on conditions, whose figures open the page; none where the formula has none.

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
    rows = condition_rows(population)
    largest = 500
    every = conditions_table(population, horizon)
    shown = every.select(*(str(name) for name in every.frame if name != horizon.many)).head(largest)
    rest = f" Shown are the first {largest} of {len(rows):,}." if len(rows) > largest else ""
    at = f", at {where}" if (where := at_means(population)) else ""
    caption = f"What to expect under each condition{at}, and how much is known of a person.{rest}"
    blocks.append(TableBlock(replace(shown, caption=caption), horizon=horizon))
    blocks.append(Beside(_variance(population)))
    blocks.append(_spreads(population))
    blocks.append(
        f"{written} has a row for each person and condition: the shrunken discount with its 95% CI, the temperature, the "
        "number of decisions and the reliability."
    )
    return [Section("The same people under each condition", blocks)]


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
    """Return one row per combination of conditions and groups, with numeric covariates at their mean."""
    cells = population.cells
    assert cells is not None
    here = pd.DataFrame({name: cells[name] for name in ("expert", "pattern", "decisions", "discount_reliability")})
    by = here.groupby("pattern")
    size = by["expert"].nunique()
    decisions = by["decisions"].sum()
    reliability = by["discount_reliability"].mean()
    at = at_means(population)
    return [
        ConditionRow(
            without_means(name, at),
            int(size.get(name, 0)),
            float(decisions.get(name, 0)),
            shares["typical_discount"],
            tuple(shares["typical_interval"]),
            tuple(shares["new_person_interval"]),
            float(reliability.get(name, np.nan)),
        )
        for name, shares in _in_order(population).items()
    ]


def _in_order(population: PopulationFindings) -> dict[str, Any]:
    """Return the predictions, beginning with what others are compared with."""
    first = [f"{column} = {level}" for column, level in (population.references or {}).items()]
    names = sorted(population.predictions, key=lambda name: [part not in name.split(", ") for part in first])
    return {name: population.predictions[name] for name in names}


def _distributions(population: PopulationFindings, horizon: Horizon, place: Mapping[str, int]) -> Chart:
    """Return the discounts under each combination of conditions, one above the other, with the people as dots where they are
    few."""
    cells = population.cells
    largest = population.largest_discount
    most = 12
    assert cells is not None
    pattern = pd.Categorical(cells["pattern"], list(_in_order(population)))
    total = np.bincount(pattern.codes, cells["decisions"], minlength=len(pattern.categories))
    some = sorted(np.argsort(-total, kind="stable")[:most].tolist())
    rest = f" Shown are the {most} of {total.size:,} with the most decisions." if total.size > most else ""
    middle, error, few = (
        cells["logit_discount"],
        cells["logit_discount_error"],
        cells["discount"].size <= 4 * ByCondition.most_drawn,
    )
    # All but the outermost people: one of a million may lie anywhere.
    low, high = np.quantile(middle, [0.0, 1.0] if few else [0.001, 0.999])
    x = np.linspace(low - 1, high + 1, 121)
    at = at_means(population)
    of_pattern = [np.flatnonzero(pattern.codes == k) for k in some]
    curves = []
    for here in of_pattern:
        sample = here[evenly(middle[here], 2000)]
        wide = np.maximum(error[sample], 0.02 * (x[-1] - x[0]))  # what is known exactly would be a line without a width
        curves.append(np.mean(np.exp(-0.5 * ((x[:, None] - middle[sample]) / wide) ** 2) / wide, axis=1))
    unit = 0.75 / max(float(curve.max()) for curve in curves)
    lines, marks, names = [], [], []
    who, _ = pd.factorize(cells["expert"])  # a colour is a group of people here as in the other figures
    groups = pd.Index(sorted(pd.unique(population.groups)))
    for number, (k, here, curve) in enumerate(zip(some, of_pattern, curves, strict=True)):
        name = str(pattern.categories[k])
        row = float(len(some) - 1 - number)
        colour = int(groups.get_loc(population.groups[who[here[0]]])) if here.size and len(groups) <= 5 else 0
        outline = [(float(x[0]), row), *zip(x.tolist(), (row + unit * curve).tolist(), strict=True), (float(x[-1]), row)]
        lines.append(Line(outline, kind="area", colour=colour))
        lines += _typical(population, name, "discount", row, 0.75)
        names.append((row + 0.25, shortened(without_means(name, at), 30)))
        for i in here.tolist() if few else ():
            person = str(cells["expert"][i])
            gamma = float(cells["discount"][i])
            tip = f"{person}\n{without_means(name, at)}\nshrunken γ {decimals(gamma, 3)}, {horizon.text(gamma)}"
            marks.append(Mark(float(middle[i]), row - 0.1, tip, _whose(person, place), 3.0, colour=colour))
    y = Axis("", names, -0.25, float(len(some)))
    panels = [Panel(logit_axis(horizon, unit, largest, x.tolist()), y, marks, lines, f"in-{unit}") for unit in UNITS]
    caption = (
        f"Areas are the discounts of all people under each condition{', dots are people' if few else ''}, and a cross is "
        f"the typical discount with its 95% CI.{rest}"
    )
    return Chart(caption, panels, float(np.clip(56 + 90 * len(some), 340, 760)))


def _whose(name: str, place: Mapping[str, int]) -> list[int]:
    return [place[name]] if name in place else []


def _persons_over(population: PopulationFindings, by: ByCondition, horizon: Horizon, place: Mapping[str, int]) -> Chart:
    """Return a line through the discounts of each person, and thick ones through those that are typical."""
    cells = population.cells
    most = 12
    number = len(by.persons)
    assert cells is not None
    total = np.bincount(by.level, cells["decisions"], minlength=len(by.levels))
    some = np.arange(total.size) if by.is_number else np.sort(np.argsort(-total, kind="stable")[:most])
    places = (by.places[some] if by.is_number else np.arange(some.size)).tolist()
    logits = by.logits[:, some]
    who = by.drawn
    # People stand in the cells in their order, so that a person's group is known; of many groups none has a colour.
    groups = sorted(pd.unique(population.groups))
    colours = pd.Index(groups).get_indexer(pd.Index(population.groups)) if len(groups) <= 5 else np.zeros(number, dtype=np.int64)
    lines, marks = [], []
    if by.is_number:
        low, high = np.nanquantile(logits, [0.1, 0.9], axis=0).tolist()
        around = [*zip(places, high, strict=True), *zip(places[::-1], low[::-1], strict=True)]
        lines.append(Line(around, kind="area"))
    for i in who.tolist():
        seen = np.flatnonzero(~np.isnan(logits[i])).tolist()
        tip = ""
        if place:
            gammas = population.largest_discount * expit(logits[i])
            said = [f"{by.column} = {by.levels[some[k]]}: γ {decimals(gammas[k], 3)}, {horizon.text(gammas[k])}" for k in seen]
            tip = "\n".join([by.persons[i], *said[:8], *(["…"] if len(said) > 8 else [])])
        points = [(places[k], float(logits[i, k])) for k in seen]
        whose = _whose(by.persons[i], place)
        colour = int(colours[i])
        if len(seen) > 1:
            lines.append(Line(points, kind="person", colour=colour, tip=tip, experts=whose))
        marks += [Mark(x, y, tip, whose, 2.5, colour=colour) for x, y in points if len(seen) == 1]
    ends = float(np.nanmin(logits[who])) - 0.1, float(np.nanmax(logits[who])) + 0.1
    if colours.any():
        room = 0.07 * (ends[1] - ends[0])
        ends = ends[0], ends[1] + room * len(groups)  # the names of the groups stand above
        for k, name in enumerate(groups):
            of_group = logits[colours == k]
            points = [(x, float(np.nanmean(y))) for x, y in zip(places, of_group.T, strict=True) if not np.isnan(y).all()]
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
        f"{f', and the band holds 80% of all people at each {by.column}' if by.is_number else ''}."
    ]
    if population.person_terms == ["Intercept"]:
        caption.append("That they are parallel in the logit is no finding: the formula has everybody change alike.")
    if marks:
        caption.append("A dot is a person who was seen under one condition only.")
    if number > ByCondition.most_drawn:
        caption.append(f"Drawn are {ByCondition.sample} of {number:,} people, evenly from the shortest horizon to the longest.")
    if len(by.levels) > some.size:
        caption.append(f"Shown are the {most} of {len(by.levels)} levels with the most decisions.")
    return Chart(" ".join(caption), panels)


def _variance(population: PopulationFindings) -> list[Block]:
    """Return how much of a horizon is the person and how much the situation, as a bar; the same of a temperature."""
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
        sure = "" if np.isnan(low + high) else f" What lies between people is {percent(low)} to {percent(high)} (95% CI)."
        bars.append(Shares(parts, f"{caption}, {significant(shares['total'], 2)} in all.{sure}"))
    return bars


def _spreads(population: PopulationFindings) -> TableBlock:
    """Return how much people differ, and how much the effects of conditions differ between them."""

    def size(spreads: Mapping[str, Any]) -> str:
        low, high = spreads["interval"]
        ends = "" if np.isnan(low + high) else f" ({decimals(low, 2)} to {decimals(high, 2)})"
        return f"{decimals(spreads['estimate'], 2)}{ends}"

    spreads = {"persons, at average conditions": population.spread}
    spreads |= {f"the effect of {term}": slope for term, slope in (population.slopes or {}).items()}
    rows = [[name, size(spread["discount"]), size(spread["temperature"])] for name, spread in spreads.items()]
    headers = ["what differs", "logit of the discount", "logarithm of the temperature"]
    return TableBlock(Table.of(headers, rows, "Standard deviations between people, with 95% CIs"))
