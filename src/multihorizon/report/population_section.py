"""The population in the report: effects of covariates, a picture of persons and groups, and shrunken beside raw discounts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from multihorizon.likelihood.effects import LEVEL
from multihorizon.likelihood.population import absent_words
from multihorizon.report.findings import Findings
from multihorizon.report.formats import decimals, p_cell, p_text
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
    blocks.append(paragraph(" ".join(population_words(found))))
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
    tests = tested(found.evidence["population"], "discount")
    clear = _clear(tests)
    return [(question, f"Yes, with {', '.join(clear)}" if clear else "Not that can be told", "good")] if tests else []


def _clear(tests: dict[str, float]) -> list[str]:
    """The covariates whose effect is more than chance."""
    return [name for name, p in tests.items() if p < 1 - LEVEL]


def population_words(found: Solution) -> list[str]:
    """What was found of groups and persons, in sentences."""
    population = found.evidence["population"]
    tests = tested(population, "discount")
    clear = [f"{name} (p {p_text(tests[name])})" for name in _clear(tests)]
    words = []
    if clear:
        words.append(f"Discounts differ with {', '.join(clear)}.")
    elif tests:
        words.append(f"No difference of discounts with {', '.join(tests)} can be told from chance.")
    spread, share = population["spread"]["discount"], float(np.mean(population["individuals"]["discount_reliability"]))
    size = f"{spread['estimate']:.2f} ({spread['interval'][0]:.2f} to {spread['interval'][1]:.2f})"
    words.append(f"Between persons the logit of the discount has a standard deviation of {size}.")
    words.append(f"The mean reliability of a person's discount is {share:.2f}, where 0 is no knowledge and 1 is exact.")
    return [*words, *population["cautions"]]


def tested(population: dict[str, Any], kind: str) -> dict[str, float]:
    """The p-value of each covariate: of a factor with several terms that of all together, of others that of the term."""
    factors = population["factors"][kind]
    joined = {term for factor in factors.values() for term in factor["terms"]}
    single = {term: e["p"] for term, e in population[kind].items() if term != "Intercept" and term not in joined}
    return {**{name: factor["p"] for name, factor in factors.items()}, **single}


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
