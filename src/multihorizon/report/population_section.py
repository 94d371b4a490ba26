"""The population in the report: effects of covariates, a picture of persons and groups, and shrunken beside raw discounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.likelihood.effects import LEVEL
from multihorizon.likelihood.population import absent_words
from multihorizon.report.findings import Findings
from multihorizon.report.formats import decimals, horizon_text, in_words, p_cell, p_text
from multihorizon.report.html import Bar, Cell, Either, Section, paragraph, side_by_side, table, warning
from multihorizon.report.population_figures import groups_figure, shrinkage_figure
from multihorizon.report.rulers import look_ahead, look_ahead_range
from multihorizon.solution import Solution, Status


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


def population_columns(findings: Findings) -> pd.DataFrame:
    """Shrunken values and covariates for `people.csv`, one row per expert in the problem's order; NaN for those left out."""
    found = findings.population
    assert found is not None
    population = found.evidence["population"]
    ends = found.confidence_intervals(LEVEL)
    covariates = {name: values for name, values in population["covariates"].items() if name != "expert"}
    columns = {
        "shrunken_discount": found.discounts,
        "shrunken_low": ends[:, 0],
        "shrunken_high": ends[:, 1],
        "shrunken_temperature": found.temperature,
        "reliability": population["individuals"]["discount_reliability"],
    }
    frame = pd.DataFrame({**columns, **{f"covariate_{name}": values for name, values in covariates.items()}}, found.experts)
    return frame.reindex(findings.solution.experts).reset_index(drop=True)


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
