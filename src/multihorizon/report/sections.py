"""The figures of a fit: discounts with their intervals, the reward on its grid, fitted against observed choices, calibration.

The figures of a population: persons and the distribution of their group, and what the population adds to each person.

The population in the report: effects of covariates, a picture of persons and groups, and shrunken beside raw discounts.

The part of a report on the shape of look-ahead: the table of families, and each expert's parameters.

Goals on a page: who belongs where, the groups' rewards side by side, and what to do where goals differ.

The section of a report on what the learned reward makes best, as the look-ahead grows.

The report of simulated studies: truth against recovery, and what more decisions and people would bring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logit

from multihorizon.analysis import (
    QUESTION,
    Findings,
    interval_text,
    most_steps,
    own_discount_text,
    own_steps_text,
    population_columns,
)
from multihorizon.checks import Bools, Floats
from multihorizon.estimate.population.effects import LEVEL
from multihorizon.estimate.population.solver import absent_words
from multihorizon.exact.goals import DIFFER
from multihorizon.files import write_all, write_csv, write_json
from multihorizon.problem import Expert
from multihorizon.questions.contrasts import reward_contrasts
from multihorizon.questions.goals import GoalEstimates
from multihorizon.questions.lookahead_comparison import FamilyRow, LookaheadComparison
from multihorizon.questions.model_checks import FEWEST_DECISIONS, ModelChecks, compared_choices
from multihorizon.questions.study import COVERAGE, SEEN, Recovery, SizeResult
from multihorizon.report.charts import (
    LABELS,
    MOST_DOTS,
    UNITS_RULERS,
    Axis,
    Bar,
    Cell,
    Either,
    Line,
    Mark,
    Page,
    Panel,
    Ruler,
    Section,
    Unit,
    chart,
    diagonal,
    figure,
    listing,
    look_ahead,
    look_ahead_range,
    paragraph,
    side_by_side,
    table,
    text,
    warning,
)
from multihorizon.report.explorer import Person, Task, explorer
from multihorizon.report.maps import MOST_CELLS, grid_map
from multihorizon.report.plots import new_axes, plot_reward
from multihorizon.result import package_version
from multihorizon.solution import Solution, Status
from multihorizon.text import count, decimals, horizon_text, in_words, p_cell, p_text

#: Half the width of an interval at the level of the report, in standard errors.
NORMAL_QUANTILE = 1.96


def people_figure(findings: Findings, ruler: Ruler) -> str:
    """Every discount with its interval, from the shortest horizon at the bottom to the longest."""
    order = [k for k in findings.order if findings.given[k]]
    size = float(np.clip(150 / len(order), 1.5, 4.0))
    panels = []
    for unit in UNITS_RULERS:
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
    panels = [Panel(_logit_axis(findings, unit, largest, ends), y, marks, lines, f"in-{unit}") for unit in UNITS_RULERS]
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


def population_sections(findings: Findings) -> list[Section]:
    """The section on groups, or nothing where no population was fitted."""
    found = findings.population
    if found is None:
        return []
    population = found.evidence["population"]
    if found.status != Status.CONVERGED:
        return [Section("Groups and persons", [warning(f"The population could not be estimated. {found.message}")])]
    blocks = [*(warning(text) for text in absent_words(population["left_out"], population["persons"], most=1000))]
    blocks.append(paragraph(" ".join(population_words(found, findings.steps))))
    blocks += [_contrasts(population, findings.steps)] if population["contrasts"]["discount"] else []
    blocks += [_effects(population, kind, caption) for kind, caption in CAPTIONS.items()]
    blocks.append(paragraph(EXPLANATION.format(degrees=population["degrees"])))
    blocks.append(side_by_side([groups_figure(findings, found), shrinkage_figure(findings, found)]))
    return [Section("Groups and persons", [*blocks, _predictions(population, findings.steps), _persons(findings)])]


CAPTIONS = {
    "discount": "Effects on the logit of the discount: positive numbers stand for longer horizons",
    "temperature": "Effects on the logarithm of the temperature: positive numbers stand for more random choices",
}
EXPLANATION = (
    "The logit of a discount γ is log(γ/(1−γ)). Persons differ around the mean of their group, so a difference between groups is "
    "judged by the number of persons, not by the number of decisions (Student's t with {degrees} degrees of freedom)."
)


def population_cards(findings: Findings) -> list[tuple[str, str, str]]:
    """The question on the covariates with its answer and kind, for the top of the page; nothing where none was asked."""
    found, question = findings.population, "Do discounts differ with the covariates?"
    if found is None:
        return []
    if found.status != Status.CONVERGED:
        return [(question, "No usable answer", "bad")]
    differences = differences_of(found.evidence["population"], "discount")
    clear = [difference for difference in differences if difference.clear]
    if not clear:
        return [(question, "Not that can be told", "good")] if differences else []
    one = clear[0].pairs[0] if len(clear) == 1 and len(clear[0].pairs) == 1 else None
    if one is None or one["number"]:
        return [(question, f"Yes, with {', '.join(difference.name for difference in clear)}", "good")]
    near, far = _from_low_to_high(one)["levels"]
    return [(question, f"Yes: {far} look further than {near}", "good")]


@dataclass(frozen=True)
class Difference:
    """Whether discounts or temperatures differ with a column, or with a term of several columns.

    Attributes:
        name: of the column, or of the term.
        p: of the test that they do not.
        pairs: its contrasts, if it is a column: all pairs of groups, or the quartiles of its numbers.
    """

    name: str
    p: float
    pairs: list[dict[str, Any]]

    @property
    def clear(self) -> bool:
        """Whether the difference is more than chance."""
        return self.p < 1 - LEVEL


def differences_of(population: dict[str, Any], kind: str) -> list[Difference]:
    """One for each column that stands alone in its terms, then one for each term that has several columns or bends.

    A column of two groups, or of numbers, has the p-value of its contrast, and one of several groups that of all its terms
    together. Where it also interacts with another, its groups are compared on the mean of the other's.
    """
    factors, columns_of = population["factors"][kind], population["columns_of"]
    joined = {term: name for name, factor in factors.items() for term in factor["terms"]}
    tests = {joined.get(term, term): e["p"] for term, e in population[kind].items() if columns_of[term]}
    tests |= {name: factor["p"] for name, factor in factors.items()}
    found = []
    for column in dict.fromkeys(row["column"] for row in population["contrasts"][kind]):
        pairs = [row for row in population["contrasts"][kind] if row["column"] == column]
        terms = [name for name in tests if column in columns_of[name]]
        alone = len(terms) == 1 and list(columns_of[terms[0]]) == [column]
        if pairs[0]["number"] and not (alone and terms[0] not in factors):
            continue
        p = tests[terms[0]] if alone else float(np.nanmin([row["adjusted"] for row in pairs]))
        found.append(Difference(column, p, pairs))
        tests = {name: p for name, p in tests.items() if list(columns_of[name]) != [column]}
    return [*found, *(Difference(name, p, []) for name, p in tests.items())]


def _from_low_to_high(pair: dict[str, Any]) -> dict[str, Any]:
    """A contrast turned so that its second level has the larger discount or temperature."""
    if pair["estimate"] >= 0:
        return pair
    return {**pair, "levels": pair["levels"][::-1], "typical": pair["typical"][::-1]}


def population_words(found: Solution, steps: float) -> list[str]:
    """What was found of groups and persons, in sentences; the task has so many steps."""
    population = found.evidence["population"]
    differences = differences_of(population, "discount")
    words = [text for difference in differences if difference.clear for text in _discounts_differ(difference, steps)]
    rest = [difference.name for difference in differences if not difference.clear]
    if rest:
        words.append(f"No difference of discounts with {in_words(rest)} can be told from chance.")
    hotter = [difference for difference in differences_of(population, "temperature") if difference.clear]
    words += [text for difference in hotter for text in _temperatures_differ(difference)]
    spread, share = population["spread"]["discount"], float(np.mean(population["individuals"]["discount_reliability"]))
    size = f"{spread['estimate']:.2f} ({spread['interval'][0]:.2f} to {spread['interval'][1]:.2f})"
    words.append(f"Between persons the logit of the discount has a standard deviation of {size}.")
    words.append(f"The mean reliability of a person's discount is {share:.2f}, where 0 is no knowledge and 1 is exact.")
    return [*words, *population["cautions"]]


def _discounts_differ(difference: Difference, steps: float) -> list[str]:
    """Who looks further ahead than whom, and how far, where discounts differ."""
    column, p = difference.name, p_text(difference.p)
    clear = [_from_low_to_high(pair) for pair in difference.pairs if pair["adjusted"] < 1 - LEVEL]
    if not difference.pairs:
        return [f"Discounts differ with {column} (p {p})."]
    if len(difference.pairs) > 1 and not clear:
        return [f"Discounts differ with {column} (p {p}), but no two groups can be told apart after Holm's correction."]
    words = [f"Discounts differ with {column} (p {p})."] if len(difference.pairs) > 1 else []
    for pair in clear if len(difference.pairs) > 1 else map(_from_low_to_high, difference.pairs):
        (near, far), (low, high) = pair["levels"], pair["typical"]
        reach = f"{high:.2f} and {low:.2f}, or {horizon_text(high, steps)} and {horizon_text(low, steps)} steps"
        corrected = " by Holm" if len(difference.pairs) > 1 else ""
        how = f"(p {p_text(pair['adjusted'])}{corrected})"
        if pair["number"]:
            longer = "higher" if pair["estimate"] >= 0 else "lower"
            at = f"typical discounts at {column} {far} and {near} are {reach} {how}."
            words.append(f"Persons with {longer} {column} look further ahead: {at}")
        else:
            whom = f"Persons with {column} = {far} look further ahead than those with {column} = {near}"
            words.append(f"{whom}: typical discounts {reach} {how}.")
    return words


def _temperatures_differ(difference: Difference) -> list[str]:
    """Who chooses more at random than whom, where temperatures differ."""
    column, p = difference.name, p_text(difference.p)
    clear = [_from_low_to_high(pair) for pair in difference.pairs if pair["adjusted"] < 1 - LEVEL]
    if not clear:
        return [f"Temperatures differ with {column} (p {p})."]
    words = []
    for pair in clear:
        (cool, warm), times = pair["levels"], f"{np.exp(abs(pair['estimate'])):.2g} times"
        how = f"(p {p_text(pair['adjusted'])})"
        if pair["number"]:
            more = "higher" if pair["estimate"] >= 0 else "lower"
            at = f"the temperature at {column} {warm} is {times} that at {cool} {how}."
            words.append(f"Persons with {more} {column} choose more at random: {at}")
        else:
            whom = f"Persons with {column} = {warm} choose more at random than those with {column} = {cool}"
            words.append(f"{whom}: their temperature is {times} as high {how}.")
    return words


def contrast_rows(population: dict[str, Any], steps: float) -> list[tuple[str, str, str, str, str]]:
    """Who is compared, typical discounts, steps, the difference of logits with its interval, and p, as they are printed."""
    rows = []
    for pair in population["contrasts"]["discount"]:
        (first, second), (a, b), places = pair["levels"], pair["typical"], _places(pair["standard_error"])
        low, high = pair["interval"]
        ends = "" if np.isnan(low + high) else f" ({low:.{places}f} to {high:.{places}f})"
        rows.append(
            (
                f"{pair['column']}: {second} against {first}",
                f"{b:.3f}, {a:.3f}",
                f"{horizon_text(b, steps)}, {horizon_text(a, steps)}",
                f"{pair['estimate']:.{places}f}{ends}",
                str(p_cell(pair["adjusted"]) or "–"),
            )
        )
    return rows


def effect_rows(population: dict[str, Any], kind: str) -> list[tuple[str, str | None, str, str]]:
    """Term, estimate, interval and p-value as they are printed; factors with several terms have a row of their own."""
    rows: list[tuple[str, str | None, str, str]] = []
    for term, effect in population[kind].items():
        (low, high), places = effect["interval"], _places(effect["standard_error"])
        interval = "–" if np.isnan(low + high) else f"{low:.{places}f} to {high:.{places}f}"
        rows.append((term, decimals(effect["estimate"], places), interval, str(p_cell(effect["p"]) or "–")))
    for name, test in population["factors"][kind].items():
        text = "–" if np.isnan(test["F"]) else f"F({test['degrees'][0]}, {test['degrees'][1]}) = {test['F']:.2f}"
        rows.append((f"{name}, all terms together", None, text, str(p_cell(test["p"]) or "–")))
    return rows


def _places(error: float) -> int:
    """Decimals that show two digits of a standard error, and at least two: effects per year of age are small."""
    return int(np.clip(1 - np.floor(np.log10(error)), 2, 6)) if error > 0 else 2


def _effects(population: dict[str, Any], kind: str, caption: str) -> str:
    ends = [end for effect in population[kind].values() for end in effect["interval"] if not np.isnan(end)]
    scale = (min([0.0, *ends]), max([0.0, *ends]))
    bars: list[Cell] = [Bar(e["interval"][0], e["estimate"], e["interval"][1], scale) for e in population[kind].values()]
    bars += [None] * len(population["factors"][kind])
    rows: list[list[Cell]] = [[*row, bar] for row, bar in zip(effect_rows(population, kind), bars, strict=True)]
    return table(["term", "estimate", "95 % interval or test", "p", ""], rows, caption)


def _contrasts(population: dict[str, Any], steps: float) -> str:
    headers: list[str | Either] = ["persons with", "typical discounts", "in steps", "difference of logits, 95 % interval", "p"]
    caption = "Persons who differ in one covariate alone; p-values of several pairs have Holm's correction"
    return table(headers, [list(row) for row in contrast_rows(population, steps)], caption)


def _predictions(population: dict[str, Any], steps: float) -> str:
    rows: list[list[Cell]] = [
        [
            name,
            population["groups"].count(name),
            look_ahead(found["typical_discount"], steps),
            look_ahead_range(found["typical_interval"], steps),
            look_ahead_range(found["new_person_interval"], steps),
        ]
        for name, found in population["predictions"].items()
    ]
    typical = Either("typical discount", "typical horizon, steps")
    headers: list[str | Either] = ["persons like", "how many", typical, "95 % interval", "95 % of new persons"]
    return table(headers, rows, "What to expect of persons with these covariates")


def _persons(findings: Findings) -> str:
    columns, raw = population_columns(findings), findings.solution.discounts
    compared = columns["shrunken_discount"].dropna()
    order = [int(k) for k in compared.index[np.argsort(compared)]]
    rows: list[list[Cell]] = []
    for k in order:
        row = columns.iloc[k]
        interval = look_ahead_range((float(row["shrunken_low"]), float(row["shrunken_high"])), findings.steps)
        own = look_ahead(float(raw[k]), findings.steps) if findings.given[k] else None
        shrunken = look_ahead(float(row["shrunken_discount"]), findings.steps)
        rows.append([findings.solution.experts[k], own, shrunken, interval, decimals(row["reliability"], 2)])
    headers: list[str | Either] = [
        "person",
        Either("raw discount", "raw horizon, steps"),
        "shrunken",
        "95 % interval",
        "reliability",
    ]
    return table(headers, rows, "Shrunken beside raw discounts", [[k] for k in order])


def lookahead_sections(found: Findings) -> list[Section]:
    """The section, where families were compared."""
    return [] if found.lookahead is None else [lookahead_section(found.lookahead, found.solution.experts)]


def lookahead_section(compared: LookaheadComparison, numbered: Sequence[str]) -> Section:
    """The table of families, and each expert's parameters in them; `numbered` are the experts of the page."""
    text = (
        f"Each family says how the weight of a later step falls; tasks have up to {compared.steps} steps. A lower AIC or BIC is "
        "better, and so is a held-out log-likelihood nearer to zero. A small p in free weights says that the family's shape is "
        "too narrow. A small p against the best says that the decisions tell the two apart."
    )
    cells = [family_cells(row) for row in compared.rows]
    rows: list[list[Cell]] = [list(row.values()) for row in cells]
    blocks = [paragraph(compared.summary), table(list(cells[0]), rows, "Families, the lowest AIC first"), paragraph(text)]
    names = [(row, name) for row in compared.rows for name in row.details["parameters"]]
    headers = ["expert", *(f"{row.family}: {name}" for row, name in names)]
    people: list[list[Cell]] = [
        [expert, *(_parameter(row, name, k) for row, name in names)] for k, expert in enumerate(compared.experts)
    ]
    place = {name: [k] for k, name in enumerate(numbered)}
    each = table(headers, people, "Each expert's look-ahead in each family", [place[expert] for expert in compared.experts])
    return Section("In what shape they look ahead", [*blocks, each])


def family_cells(row: FamilyRow) -> dict[str, str]:
    """One row of the table of families, by header."""
    return {
        "family": row.family,
        "log-likelihood": f"{row.log_likelihood:.2f}",
        "parameters": f"{row.parameters}",
        "AIC": f"{row.aic:.1f}",
        "BIC": f"{row.bic:.1f}",
        "held out": decimals(row.held_out, 1) or "–",
        "p in free weights": p_cell(row.free_p) if row.free_degrees else "–",
        "p against the best": p_cell(row.best_p),
        "verdict": row.verdict,
    }


def _parameter(row: FamilyRow, name: str, k: int) -> Cell:
    value, error = row.details["parameters"][name][k], row.details["standard_errors"][name][k]
    if value != value:
        return "not identified"
    shown = f"{value:.0f}" if name == "depth" else f"{value:.2f}"
    return shown if error != error else f"{shown} ± {error:.2f}"


ADVICE = (
    "Fit each group by itself: keep the rows of its experts, and run multihorizon fit on them. Experts of whom it cannot be "
    "told need more decisions, above all in states that the others visit."
)
UNIT = (
    "The unit of a reward: one that is larger by 1 makes the choice that leads to it at once 2.7 times as likely, for an expert "
    "with temperature 1."
)


def goals_sections(found: Findings) -> list[Section]:
    """The section of a fit's report, where the test was made."""
    if found.goals is None:
        return []
    blocks = [paragraph(found.goals.answer)]
    if found.goals.groups is not None and not found.goals.model_fails:
        blocks += [listing(found.goals.groups.summary()), *_blocks(found.goals.groups, found.solution.experts)]
    return [Section(QUESTION, blocks)]


def goals_page(found: GoalEstimates, remarks: list[str], seed: int) -> Page:
    """The report of `multihorizon goals`."""
    method = [
        paragraph(
            "Groups are compared by how likely one reward makes their decisions, less a price for each parameter. The test of "
            "one reward for all asks whether rewards of their own explain the experts' decisions better, by more than they "
            "explain decisions drawn from the fit with one reward."
        ),
        *(paragraph(remark) for remark in remarks),
    ]
    names = found.experts
    sections = [Section(QUESTION, [listing(found.summary()), *_blocks(found, names)]), Section("How this was made", method)]
    footer = f"multihorizon {package_version()}, seed {seed}"
    return Page("Who shares a goal with whom", found.headline(), sections, footer, experts=list(enumerate(names)))


def _blocks(found: GoalEstimates, names: Sequence[str]) -> list[str]:
    """What was found of each expert and each group; `names` numbers the experts of the page."""
    advice = [paragraph(ADVICE)] if found.verdict == DIFFER or found.ungrouped else []
    return [*advice, _members(found, names), _rewards(found)]


def _members(found: GoalEstimates, names: Sequence[str]) -> str:
    place = {name: [k] for k, name in enumerate(names)}
    steps = max(most_steps(solution.require_problem()) for solution in found.solutions)
    number = {name: g for g, group in enumerate(found.groups) for name in group}
    rows: list[list[Cell]] = [
        [name, f"goal {number[name] + 1}", look_ahead(float(gamma), steps), *(decimals(float(p), 2) for p in chances)]
        for name, gamma, chances in zip(found.experts, found.discounts, found.memberships, strict=True)
    ]
    look = Either("discount γ", "horizon, steps")
    headers: list[str | Either] = ["expert", "group", look, *(f"shares goal {g + 1}" for g in range(len(found.groups)))]
    caption = "Who belongs where, with the probability of sharing each goal (alone in a group: with nobody)"
    return table(headers, rows, caption, [place[name] for name in found.experts])


def _rewards(found: GoalEstimates) -> str:
    """One column for each group of two or more."""
    columns = {g: _reward_cells(s) for g, s in enumerate(found.solutions) if len(s.experts) > 1}
    if not columns:
        return paragraph("No two experts surely share a goal, so no reward is given.")
    problem = found.solutions[0].require_problem()
    rows: list[list[Cell]] = [[name, *(cells[i] for cells in columns.values())] for i, name in enumerate(problem.parameter_names)]
    kind = "state" if problem.tabular else "feature"
    average = "; those of states are differences from the average logged step" if problem.tabular else ""
    listed = table([kind, *(f"goal {g + 1}" for g in columns)], rows, f"Rewards of each goal, ± one standard error{average}")
    return f"{paragraph(UNIT)}{listed}"


def _reward_cells(solution: Solution) -> list[str | None]:
    if solution.status == Status.NOT_CONVERGED:
        return [None] * solution.reward.size
    found = reward_contrasts(solution)
    pairs = zip(found.values, found.standard_errors, strict=True)
    return [None if np.isnan(value) else f"{value:.2f} ± {error:.2f}" for value, error in pairs]


#: The most tasks with a slider; of several tasks the first ones are shown.
MOST_TASKS = 4
HEADING = "What is best, by look-ahead"


def policy_sections(found: Findings) -> list[Section]:
    """The section, where there is a reward that can be planned with."""
    if found.withheld or found.solution.status == Status.NOT_IDENTIFIED:
        return [Section(HEADING, [paragraph("No reward is known well enough to say what it makes best.")])]
    tasks: dict[int, list[Expert]] = {}
    for expert in found.problem.experts:
        tasks.setdefault(id(expert.mdp), []).append(expert)
    blocks = [paragraph(line) for line in _opening(found)]
    for number, experts in enumerate(list(tasks.values())[:MOST_TASKS], 1):
        blocks += [f"<h3>{text(f'Task {number} of {len(tasks)}')}</h3>"] if len(tasks) > 1 else []
        blocks += explorer(_task(found, experts), _people(found), number)
    if len(tasks) > MOST_TASKS:
        blocks.append(paragraph(f"Shown are {MOST_TASKS} of {count(len(tasks), 'task')}."))
    return [Section(HEADING, blocks)]


def _opening(found: Findings) -> list[str]:
    whose = "given" if found.reward_given else "learned"
    lines = [
        "The same reward makes other actions best for those who look farther ahead. The slider goes through the discounts and "
        f"shows the best actions of the {whose} reward at each. Experts choose these more often than others, but not always."
    ]
    unknown = 0 if found.reward_given else int(np.isnan(found.contrasts.values).sum())
    if unknown:
        what = count(unknown, "state" if found.problem.tabular else "feature")
        lines.append(f"The decisions do not determine the reward of {what}, so best actions that depend on it are not known.")
    if found.goals is not None and found.goals.rejected:
        lines.append("One reward for all experts is rejected, so what it makes best must not be believed either.")
    if not found.reward_given:
        lines.append("The reward is an estimate: where it is changed a little, the best actions change at other discounts.")
    return lines


def _people(found: Findings) -> list[Person]:
    order = [k for k in found.order if found.given[k]]
    return [Person(k, found.solution.experts[k], float(found.solution.discounts[k])) for k in order]


def _task(found: Findings, experts: list[Expert]) -> Task:
    mdp = experts[0].mdp
    reward = experts[0].expected_reward(found.solution.reward)
    decisions: Floats = np.sum([expert.counts.sum(axis=1) for expert in experts if expert.counts is not None], axis=0)
    names = mdp.state_names
    return Task(mdp, reward, state_values(found, names), state_tips(found, names, mdp.terminal), decisions, found.steps)


FILES = ("recover.json", "recover.csv", "recover.html")


def write_recovery(directory: Path, found: Recovery, options: dict[str, Any], remarks: Sequence[str] = ()) -> None:
    """Write all files of simulated studies."""

    def write(draft: Path) -> None:
        write_json(draft / "recover.json", {**found.to_dict(), "remarks": remarks, "options": options})
        write_csv(found.to_frame(), draft / "recover.csv")
        recover_page(found, options, remarks).write(draft / "recover.html")

    write_all(directory, FILES, write)


def recover_page(found: Recovery, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """The report."""
    given = "; ".join(f"{k}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in options.items() if v is not None)
    return Page(
        "Can this design tell?",
        f"{found.sizes[0].studies} simulated studies of each size, fitted by {found.solver}",
        [
            Section("Truth and recovery", recovery_blocks(found)),
            Section("How this was made", [*(paragraph(remark) for remark in remarks), paragraph(f"Options: {given}.")]),
        ],
        f"multihorizon {package_version()}, seed {found.seed}",
    )


def recovery_sections(findings: Findings) -> list[Section]:
    """The section of a fit's report, where a recovery was handed in."""
    return [] if findings.recovery is None else [Section("Can this design tell?", recovery_blocks(findings.recovery))]


def recovery_blocks(found: Recovery) -> list[str]:
    """What simulated studies showed: pictures and a table."""
    pictures = [recovery_figure(found.sizes[0])]
    effects = [size for size in _along(found, "effect") if np.isfinite(size.power)]
    if len(effects) > 1:
        pictures.append(power_figure(effects, found.term))
    for name, label in (("decisions", "decisions per person"), ("people", "people")):
        sizes = _along(found, name)
        if len(sizes) > 1:
            pictures.append(sizes_figure(sizes, name, label))
    return [paragraph(found.summary), side_by_side(pictures), _table(found), paragraph(MEANING)]


MEANING = (
    "Bias and error are those of the discounts; the error is the root mean square. Coverage is the share of 95 % intervals "
    "that contain the truth. Power is the share of studies with p < 0.05. With an effect of 0 it is the share of false alarms, "
    "which should be near 5 %. The number after ± is the standard error of a share with so many simulated studies."
)


def recovery_figure(size: SizeResult) -> str:
    """Estimated against true discounts."""
    pairs = np.column_stack([size.truth.ravel(), size.estimates.ravel()])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    shown = pairs[np.linspace(0, len(pairs) - 1, min(len(pairs), MOST_DOTS)).astype(int)]
    marks = [Mark(x, y, f"true {x:.3f}\nestimated {y:.3f}", size=2.5) for x, y in shown.tolist()]
    few = f" Shown are {MOST_DOTS:,} of {len(pairs):,}, evenly drawn." if len(pairs) > MOST_DOTS else ""
    caption = f"Each dot is a simulated person in the study as designed.{few}"
    return chart(caption, [Panel(Axis("true discount"), Axis("estimated discount"), marks, [diagonal()])])


def power_figure(sizes: Sequence[SizeResult], term: str | None) -> str:
    """Power against the true size of the effect."""
    x = [size.effect for size in sizes]
    marks = []
    for size in sizes:
        error = size.share_error(size.power)
        tip = f"true effect {size.effect:.2f}\npower {_share(size.power, error)}"
        marks.append(Mark(size.effect, size.power, tip, up=(size.power - error, size.power + error)))
    lines = [Line([(min(x), SEEN), (max(x), SEEN)], plain=True), Line([(mark.x, mark.y) for mark in marks])]
    axis = Axis("true effect on the logit of the discount", [(at, f"{at:.2g}") for at in x], min(x), max(x))
    caption = f"How often a study sees an effect of {term}. The line stands at {SEEN:g}, the level of the test."
    return chart(caption, [Panel(axis, Axis("power"), marks, lines)])


def sizes_figure(sizes: Sequence[SizeResult], name: str, label: str) -> str:
    """Error, coverage and power against one of the numbers that can be chosen."""
    x = [float(getattr(size, name)) for size in sizes]
    found = [("error of a discount", [s.error for s in sizes]), ("coverage of discounts", [s.coverage for s in sizes])]
    if any(np.isfinite(size.power) for size in sizes):
        found.append((f"power, effect {sizes[0].effect:.2g}", [s.power for s in sizes]))
    lines = [Line([(0.0, COVERAGE), (max(x), COVERAGE)], plain=True)]
    marks = []
    for colour, (kind, values) in enumerate(found):
        points = [(at, value) for at, value in zip(x, values, strict=True) if np.isfinite(value)]
        lines.append(Line(points, kind, colour))
        marks += [Mark(at, value, f"{at:,.0f} {label}\n{kind}: {value:.3f}", colour=colour) for at, value in points]
    axis = Axis(label, [(at, f"{at:,.0f}") for at in x], 0.0, max(x))
    caption = f"How the answer changes with the number of {label}. The line stands at {COVERAGE:g}."
    return chart(caption, [Panel(axis, Axis("error, or share of studies"), marks, lines)])


def size_cells(size: SizeResult) -> dict[str, str]:
    """One row of the table of sizes, by header."""
    return {
        "people": f"{size.people}",
        "decisions": f"{size.decisions:.0f}",
        "effect": decimals(size.effect, 2) or "–",
        "bias": decimals(size.bias, 3) or "–",
        "error": decimals(size.error, 3) or "–",
        "correlation": decimals(size.correlation, 2) or "–",
        "coverage": _share(size.coverage, size.coverage_error),
        "coverage of the effect": _share(size.effect_coverage, size.share_error(size.effect_coverage)),
        "power": _share(size.power, size.share_error(size.power)),
        "no answer": f"{size.unanswered}",
    }


def _table(found: Recovery) -> str:
    cells = [size_cells(size) for size in found.sizes]
    rows: list[list[Cell]] = [list(row.values()) for row in cells]
    return table(list(cells[0]), rows, "The study as designed first, then one change at a time")


def _share(share: float, error: float) -> str:
    """A share with its standard error."""
    return "–" if np.isnan(share) else f"{100 * share:.0f} ± {100 * error:.0f} %"


def _along(found: Recovery, name: str) -> list[SizeResult]:
    """The study as designed and those that differ from it in one number only, in the order of that number."""
    first = found.sizes[0]
    others = [other for other in ("people", "decisions", "effect") if other != name]

    def same(size: SizeResult) -> bool:
        pairs = [(getattr(size, other), getattr(first, other)) for other in others]
        return all(a == b or (np.isnan(a) and np.isnan(b)) for a, b in pairs)

    return sorted((size for size in found.sizes if same(size)), key=lambda size: float(getattr(size, name)))
