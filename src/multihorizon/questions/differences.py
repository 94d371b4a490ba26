"""Do discounts and temperatures differ with covariates and conditions? What `Population` found, in sentences.

Effects are on the logit of the discount, log(γ/(1−γ)), and on the logarithm of the temperature. A difference between two groups,
or between the quartiles of a number, is a contrast; contrasts of several pairs have Holm's correction. A difference with a
condition is one between the same people.

*Answers* (`difference_words`) are what a report opens with: one sentence for each column of the formula. A difference d of logits
around their mean m is a difference of discounts `G (σ(m + d/2) − σ(m − d/2))`, with G the largest discount and σ the logistic
function. It increases with d, so both ends of the interval of d give those of the interval of discounts, which holds 0 where the
test finds nothing. For a number, d is that of a round unit: the largest of 1, 5, 10, 50, … that fits twice between the quartiles,
and such parts of 1.

It also says what a population says of groups and people as columns of `people.csv` and as part of `result.json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from multihorizon.driver import solve
from multihorizon.horizon import Horizon
from multihorizon.parallel import Run
from multihorizon.population.findings import PopulationEvidence, PopulationFindings
from multihorizon.population.free import distribution_words
from multihorizon.population.types import number_words, types_words
from multihorizon.questions.fitted import Asked, F, Fitted
from multihorizon.questions.people import CONDITIONS, PEOPLE, artefact, unit_columns
from multihorizon.solution import Solution, Status
from multihorizon.words import (
    LEVEL,
    VAGUE_WIDTH,
    Finding,
    Kind,
    count,
    decimals,
    in_words,
    p_text,
    percent,
    shortened,
    significant,
)


@dataclass(frozen=True)
class Difference:
    """Whether discounts or temperatures differ with a column, or with a term of several columns.

    Attributes:
        name: of the column, or of the term.
        p: of the test that they do not.
        pairs: its contrasts, if it is a column: all pairs of groups, or the quartiles of its numbers. Each is turned so that its
            second level has the larger discount or temperature.
        within: the conditions among its columns: what they change was seen in the same people.
        by: the other columns of a term that has conditions among them: with these the change differs.
    """

    name: str
    p: float
    pairs: list[dict[str, Any]]
    within: tuple[str, ...] = ()
    by: tuple[str, ...] = ()

    @property
    def clear(self) -> bool:
        """Return whether the difference is more than chance."""
        return self.p < 1 - LEVEL

    @property
    def changes(self) -> str:
        """Of a term of conditions and other columns: that the changes differ, as the beginning of a sentence; else empty."""
        if self.pairs or not (self.within and self.by):
            return ""
        return f"How discounts change with {in_words([*self.within])} differs with {in_words([*self.by])}"

    @property
    def clear_pairs(self) -> list[dict[str, Any]]:
        """Return the contrasts that are more than chance after Holm's correction."""
        return [pair for pair in self.pairs if pair["adjusted"] < 1 - LEVEL]

    @property
    def said(self) -> str:
        """Return the name as it is said: that of the column, or of the columns that a term joins."""
        return self.name if self.pairs or len(self.columns) < 2 else f"{in_words([*self.columns])} together"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns of a term that is no column."""
        return (*self.within, *self.by)


def differences_of(population: PopulationFindings, kind: str) -> list[Difference]:
    """Return one curve per column that is alone in its terms, then one per term with several columns or a curve.

    A column of two groups, or of numbers, has the p-value of its contrast, and one of several groups that of all its terms
    together. Where it also interacts with another, its groups are compared on the mean of the other's.
    """
    factors = population.factors[kind]
    columns_of = population.columns_of
    joined = {term: name for name, factor in factors.items() for term in factor["terms"]}
    tests = {joined.get(term, term): e["p"] for term, e in population[kind].items() if columns_of[term]}
    tests |= {name: factor["p"] for name, factor in factors.items()}
    differences = []
    for column in dict.fromkeys(row["column"] for row in population.contrasts[kind]):
        pairs = [row for row in population.contrasts[kind] if row["column"] == column]
        terms = [name for name in tests if column in columns_of[name]]
        alone = len(terms) == 1 and list(columns_of[terms[0]]) == [column]
        if pairs[0]["number"] and not (alone and terms[0] not in factors):
            continue
        p = tests[terms[0]] if alone else float(np.nanmin([row["adjusted"] for row in pairs]))
        turned = [
            pair if pair["estimate"] >= 0 else {**pair, "levels": pair["levels"][::-1], "typical": pair["typical"][::-1]}
            for pair in pairs
        ]
        differences.append(Difference(column, p, turned, (column,) if column in population.conditions else ()))
        tests = {name: p for name, p in tests.items() if list(columns_of[name]) != [column]}
    for name, p in tests.items():
        parts = [tuple(c for c in columns_of[name] if (c in population.conditions) == inside) for inside in (True, False)]
        differences.append(Difference(name, p, [], *parts))
    return differences


def typical_unknown(population: PopulationFindings) -> bool:
    """Return whether nobody can say how far ahead a typical person looks: in every group the 95% CI of the discount is
    wide."""
    widths = [np.ptp(group["typical_interval"]) for group in population.predictions.values()]
    return bool(widths) and min(widths) > VAGUE_WIDTH


def population_answer(solution: Solution, horizon: Horizon) -> Finding | None:
    """Say whether discounts differ with the covariates, or how many types there are; None where neither was asked.

    `horizon` is that of the task.
    """
    population = PopulationEvidence.of(solution).population
    if population.types is not None:
        return _number_of_types(solution, population.types)
    question = "Do discounts differ with the conditions?" if population.conditions else "Do discounts differ with the covariates?"
    if solution.status != Status.CONVERGED or artefact(population):
        return Finding(question, "No usable answer", " ".join(difference_words(solution, horizon)), "bad")
    differences = differences_of(population, "discount")
    reasons = " ".join([*difference_words(solution, horizon), *population_words(solution, horizon)])
    clear = [difference for difference in differences if difference.clear]
    if not clear and differences and typical_unknown(population):
        return Finding(question, "Unknown", reasons, "caution", differences)
    if not clear:
        return Finding(question, "No more than by chance", reasons, "good", differences) if differences else None
    one = clear[0].pairs[0] if len(clear) == 1 and len(clear[0].pairs) == 1 else None
    if one is None or one["number"]:
        return Finding(question, f"Yes, with {', '.join(difference.said for difference in clear)}", reasons, "good", differences)
    near, far = one["levels"]
    who = f"further with {far} than with {near}" if clear[0].within else f"{far} look further than {near}"
    return Finding(question, f"Yes: {who}", reasons, "good", differences)


def _number_of_types(solution: Solution, types: dict[str, Any]) -> Finding | None:
    """Say how many types there are; nothing where the search did not end."""
    if solution.status == Status.NOT_CONVERGED:
        return None
    kind: Kind = "good" if types["chosen"] and types["tests"][-1]["p"] > 1 - LEVEL else "caution"
    return Finding("How many types are there?", count(types["number"], "type"), number_words(types), kind, types["tests"])


def difference_words(solution: Solution, horizon: Horizon) -> list[str]:
    """Return the answer to what the formula asks, a sentence for each of its columns; `horizon` is that of the task.

    Without covariates it is how far a typical person looks ahead, and of types how many there are. Where the population could not
    be estimated, that is all.
    """
    population = PopulationEvidence.of(solution).population
    if population.types is not None and solution.status != Status.NOT_CONVERGED:
        return [types_words(population.types)]
    if solution.status != Status.CONVERGED:
        return [f"The population could not be estimated. {solution.message}"]
    if why := artefact(population):
        return [why]
    differences = differences_of(population, "discount")
    beside = [text for text in population.cautions if _of_intervals(text)]
    if not differences:
        return [*(_typical_person(name, group, horizon) for name, group in population.predictions.items()), *beside]
    hotter = {difference.name: difference for difference in differences_of(population, "temperature") if difference.clear}
    words = []
    if typical_unknown(population) and not any(difference.clear for difference in differences):
        columns = in_words(list(dict.fromkeys(difference.said for difference in differences)))
        words = [
            f"The data show neither how far ahead people look nor that it differs with {columns}: in every group the 95% CI"
            " of the typical discount holds half of the range of discounts, or more."
        ]
        differences = []
    for difference in sorted(differences, key=lambda difference: not difference.clear):
        tail = hotter.pop(difference.name, None)
        largest = population.largest_discount
        if difference.changes:
            words.append(f"{difference.changes} {_beyond_chance(difference)}.")
        elif not difference.pairs:
            words.append(f"Discounts differ with {difference.said} {_beyond_chance(difference)}.")
        elif len(difference.pairs) > 1:
            words.append(_several_groups(difference, largest))
            words += [] if tail is None else _temperatures_differ(tail)
        else:
            words.append(f"{_pair(difference, largest, horizon)}{_also_at_random(difference, tail)}.")
    words += [text for difference in hotter.values() for text in _temperatures_differ(difference)]
    return [*words, *beside]


def population_words(solution: Solution, horizon: Horizon) -> list[str]:
    """Return what else was found: how much people differ, how much is known of each, and what to mind."""
    population = PopulationEvidence.of(solution).population
    if population.types is not None:
        return []
    spread = population.spread["discount"]
    share = float(np.mean(population.individuals["discount_reliability"]))
    size = f"{decimals(spread['estimate'], 2)} ({decimals(spread['interval'][0], 2)} to {decimals(spread['interval'][1], 2)})"
    where = ", on the average of conditions," if population.conditions else ""
    words = [f"Between people the logit of the discount{where} has a standard deviation of {size}."]
    words.append(f"The mean reliability of a person's discount is {decimals(share, 2)}, where 0 is no knowledge and 1 is exact.")
    words += [*_slopes_differ(population), *_person_or_condition(population)]
    others = [text for text in population.cautions if not _of_intervals(text)]
    return [*words, *others, *distribution_words(population.distribution or {}, horizon)]


def _of_intervals(caution: str) -> bool:
    """Return whether a caution speaks of the intervals of effects or of typical people, and so belongs to the answer."""
    return "interval" in caution or "typical person" in caution


def _slopes_differ(population: PopulationFindings) -> list[str]:
    """Return how differently people change with the conditions."""
    words = []
    for term, slope in (population.slopes or {}).items():
        spread, (low, high) = slope["discount"], slope["discount"]["interval"]
        size = f"a standard deviation of {decimals(spread['estimate'], 2)} ({decimals(low, 2)} to {decimals(high, 2)})"
        if high > 8 * low:  # intervals of standard deviations never hold 0
            words.append(
                f"How much the effect of {term} on that logit differs between people is hardly known: by {size}, or not at all."
            )
        else:
            words.append(f"The effect of {term} on that logit differs between people with {size}.")
    return words


def _person_or_condition(population: PopulationFindings) -> list[str]:
    """Return how much of the horizons is the person and how much the condition, as far as the decisions tell."""
    shares = (population.variance or {}).get("discount", {})
    names = {
        "person": "is between people",
        "covariates": "goes with their covariates",
        "condition": "is the condition",
        "person_by_condition": "is how differently it changes them",
    }
    parts = [f"{percent(shares[name])} {words}" for name, words in names.items() if shares.get(name, 0.0) >= 0.005]
    if not parts:
        return []
    low, high = shares.get("between_low", np.nan), shares.get("between_high", np.nan)
    verdict = f"whether it is more the person or the condition is open, as {percent(low)} to {percent(high)} may be the person"
    if low > 0.5:
        verdict = "how far someone looks ahead is mostly the person"
    if high < 0.5:
        verdict = "how far someone looks ahead is mostly the condition"
    return [f"Of the variance of logit γ, {in_words(parts)}{'' if np.isnan(low + high) else f': {verdict}'}."]


def _typical_person(name: str, group: dict[str, Any], horizon: Horizon) -> str:
    """Return how far a typical person looks ahead, where nothing else was asked."""
    gamma, (low, high), (least, most) = group["typical_discount"], group["typical_interval"], group["new_person_interval"]
    whom = "" if name == "everyone" else f" with {name}"
    if high - low > VAGUE_WIDTH:
        wide = f"the 95% CI of the discount is {decimals(low, 2)} to {decimals(high, 2)}"
        return f"How far ahead a typical person{whom} looks is not known: {wide}."
    return (
        f"A typical person{whom} looks {horizon.text(gamma)} ahead: a discount of {decimals(gamma, 2)} (95% CI "
        f"{decimals(low, 2)} to {decimals(high, 2)}). Of new people 95% have discounts from {decimals(least, 2)} to "
        f"{decimals(most, 2)}, or look {horizon.interval(least, most)} {horizon.many} ahead."
    )


def _beyond_chance(difference: Difference) -> str:
    p = f"p {p_text(difference.p)}"
    return f"({p})" if difference.clear else f"by no more than chance ({p})"


def named_group(column: str, *levels: str) -> str:
    """Return groups by their names, such as "the young group", "the Oslo and Turin groups" or "the group with ill = yes"."""
    names = [shortened(level, 60) for level in levels]
    s = "s" if len(levels) > 1 else ""
    plain = all(any(c.isalpha() for c in name) and name.lower() not in ("true", "false", "yes", "no") for name in names)
    if not plain:
        return f"the group{s} with {column} = {in_words(names)}"
    if all(name.lower().endswith("group") for name in names):
        return f"the {in_words(names)}"
    return f"the {in_words(names)} group{s}"


def _pair(difference: Difference, largest: float, horizon: Horizon) -> str:
    """Say of two groups, two conditions or a number: who looks further ahead than whom, or that the data do not show it."""
    (pair,), column = difference.pairs, difference.name
    (near, far), (low, high) = pair["levels"], pair["typical"]
    mean, sign = (
        float(np.mean(logit(np.clip(np.array([low, high]) / largest, 1e-12, 1 - 1e-12)))),
        np.sign(pair["estimate"]) or 1.0,
    )

    def apart(d: float) -> float:  # the difference of discounts that a difference of logits is
        return float(largest * (expit(mean + d / 2) - expit(mean - d / 2)))

    ends = sorted(apart(float(sign * end)) for end in pair["interval"])
    has_interval = not np.isnan(sum(ends))
    size = f"difference {_size(high - low)}{f' ({_size(ends[0])} to {_size(ends[1])})' if has_interval else ''}"
    p = f"p {p_text(pair['adjusted'])}"
    reach = f"or {horizon.number(high)} and {horizon.text(low)}"
    if pair["number"]:
        values, levels = (low, high) if sign > 0 else (high, low), (near, far) if pair["estimate"] >= 0 else (far, near)
        at = f"{decimals(values[0], 2)} at {levels[0]} and {decimals(values[1], 2)} at {levels[1]}"
        if difference.clear:
            whom = "the same people" if difference.within else "people"
            unit = round_unit(float(levels[1]) - float(levels[0]))
            change = apart(float(pair["estimate"]) * unit / (float(levels[1]) - float(levels[0])))
            look, goes = ("further", "rises") if change > 0 else ("less far", "falls")
            steps_at = f"{horizon.number(values[0])} and {horizon.text(values[1])}"
            return (
                f"With higher {column} {whom} look {look} ahead: for each {unit:g} of {column} the typical discount {goes} by "
                f"about {_size(abs(change))}; it is {at}, or {steps_at}, {p}"
            )
        missing = f"The data do not show that discounts change with {column}: typical discounts {at}"
    elif difference.within:
        if difference.clear:
            whom = f"With {column} {far} the same people look further ahead than with {column} {near}"
            return f"{whom}: typical discounts {decimals(high, 2)} and {decimals(low, 2)}, {reach}, {size}, {p}"
        whom = f"that the same people look further ahead with {column} {far} than with {column} {near}"
        missing = f"The data do not show {whom}: typical discounts {decimals(high, 2)} and {decimals(low, 2)}"
    else:
        if difference.clear:
            first, other = named_group(column, far), named_group(column, near)
            whom = f"{first[0].upper()}{first[1:]} looks further ahead than {other}"
            return f"{whom}: typical discounts {decimals(high, 2)} and {decimals(low, 2)}, {reach}, {size}, {p}"
        whom = f"between {named_group(column, far)} and {named_group(column, near)}"
        missing = f"The data do not show a difference {whom}: typical discounts {decimals(high, 2)} and {decimals(low, 2)}"
    most = f"; a difference of up to {_size(max(map(abs, ends)))} would be compatible" if has_interval else ""
    return f"{missing}, {p}{most}"


def _size(value: float) -> str:
    """Return a difference of discounts with two decimals, and more where these would show nothing."""
    return decimals(value, 2 if abs(value) >= 0.01 or value == 0 else 3) or "unknown"


def round_unit(distance: float) -> float:
    """Return the largest of 1, 5, 10, 50, … and of such parts of 1 that fits twice into a distance.

    Example:
        >>> [round_unit(distance) for distance in (35.0, 12.0, 0.3)]
        [10.0, 5.0, 0.1]
    """
    power = 10.0 ** np.floor(np.log10(distance / 2) + 1e-9)
    return float(5 * power if 10 * power <= distance * (1 + 1e-9) else power)


def _also_at_random(difference: Difference, hotter: Difference | None) -> str:
    """Return what temperatures add to the sentence on a pair; nothing where they do not differ."""
    if hotter is None:
        return ""
    (ahead,), (pair,) = difference.pairs, hotter.pairs
    (_, hot) = pair["levels"]
    times = np.exp(abs(pair["estimate"]))
    p = f"p {p_text(pair['adjusted'])}"
    if pair["number"]:
        more = "more" if pair["estimate"] >= 0 else "less"
        whom = "they also" if difference.clear else "but people"
        return f"; {whom} choose {more} at random with higher {difference.name} ({p})"
    if not difference.clear:
        if difference.within:
            with_it = f"{difference.name} {hot}: temperatures are {significant(times, 2)} times as high"
            return f"; but they choose more at random with {with_it} ({p})"
        whom = named_group(difference.name, hot)
        return f"; but {whom} chooses more at random: its temperature is {significant(times, 2)} times as high ({p})"
    more, times = ("more", times) if hot == ahead["levels"][1] else ("less", 1 / times)
    them = "they also choose" if difference.within else "it also chooses"
    return f"; {them} {more} at random, with a temperature {significant(times, 2)} times as high ({p})"


def _several_groups(difference: Difference, largest: float) -> str:
    """Return which of several groups, or conditions, look further ahead than which, or that the data do not show it."""
    column, pairs = difference.name, difference.pairs
    typical = {level: value for pair in pairs for level, value in zip(pair["levels"], pair["typical"], strict=True)}
    order = sorted(typical, key=lambda level: -typical[level])
    named = [f"{decimals(typical[level], 2)} for {shortened(level, 60)}" for level in order]
    each = f"typical discounts {f'are {in_words(named)}' if len(order) <= 6 else f'go from {named[-1]} to {named[0]}'}"
    clear = {frozenset(pair["levels"]): pair for pair in difference.clear_pairs}
    whole = f"Discounts differ with {column} (p {p_text(difference.p)})"
    if not difference.clear:
        ends = [end for pair in pairs for end in pair["interval"] if not np.isnan(end)]
        middle = float(np.mean(logit(np.clip(np.array([*typical.values()]) / largest, 1e-12, 1 - 1e-12))))
        most = max((abs(float(largest * (expit(middle + d / 2) - expit(middle - d / 2)))) for d in ends), default=np.nan)
        rest = "" if np.isnan(most) else f"; between two of them a difference of up to {_size(most)} would be compatible"
        return f"The data do not show that discounts differ with {column} (p {p_text(difference.p)}): {each}{rest}."
    if not clear:
        return f"{whole}, but those of no two groups after Holm's correction: {each}."
    worst = max(pair["adjusted"] for pair in clear.values())
    for cut in range(1, len(order)):
        above, below = order[:cut], order[cut:]
        if set(clear) == {frozenset((one, other)) for one in above for other in below} and len(order) <= 6:
            values = in_words([f"{decimals(typical[level], 2)}" for level in order])
            look = f"typical discounts {values}, p {p_text(worst)} by Holm"
            if difference.within:
                whom = f"With {column} {in_words(above)} the same people look further ahead than with {column} {in_words(below)}"
                return f"{whom}: {look}."
            first = named_group(column, *above)
            looks = "look" if cut > 1 else "looks"
            return f"{first[0].upper()}{first[1:]} {looks} further ahead than {named_group(column, *below)}: {look}."
    if len(clear) == len(pairs):
        return f"{whole}: {each}; all pairs differ after Holm's correction (p {p_text(worst)} or less)."
    if len(clear) > 6:
        return f"{whole}: {each}; {len(clear):,} of {len(pairs):,} pairs differ after Holm's correction."
    said = [f"{far} and {near} (p {p_text(pair['adjusted'])})" for pair in clear.values() for near, far in [pair["levels"]]]
    return f"{whole}: {each}; after Holm's correction {in_words(said)} differ."


def _temperatures_differ(difference: Difference) -> list[str]:
    """Return who chooses more at random than whom, where temperatures differ."""
    column, clear = difference.name, difference.clear_pairs
    whole = f"Temperatures differ with {difference.said} (p {p_text(difference.p)})"
    if not clear:
        return [f"{whole}."]
    named = clear if len(clear) <= 6 else sorted(clear, key=lambda pair: -abs(pair["estimate"]))[:3]
    words = []
    for pair in named:
        (low, high) = pair["levels"]
        times = f"{significant(np.exp(abs(pair['estimate'])), 2)} times"
        how = f"(p {p_text(pair['adjusted'])})"
        if pair["number"]:
            more = "higher" if pair["estimate"] >= 0 else "lower"
            at = f"the temperature at {column} {high} is {times} that at {low} {how}."
            whom = f"With {more} {column} the same people" if difference.within else f"With {more} {column} people"
            words.append(f"{whom} choose more at random: {at}")
        elif difference.within:
            whom = f"With {column} {high} the same people choose more at random than with {column} {low}"
            words.append(f"{whom}: their temperature is {times} as high {how}.")
        else:
            whom = named_group(column, high)
            whom = f"{whom[0].upper()}{whom[1:]} chooses more at random than {named_group(column, low)}"
            words.append(f"{whom}: its temperature is {times} as high {how}.")
    some = f"{whole}. {len(clear):,} of {len(difference.pairs):,} pairs differ after Holm's correction; these differ most."
    return words if len(clear) <= 6 else [some, *words]


def differences(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding | None:
    """Say whether discounts differ with what was asked about, or how many types there are."""
    return None if fitted.population is None else population_answer(fitted.population, fitted.horizon)


def population_columns(fitted: Fitted, solution: Solution) -> pd.DataFrame:
    """Return shrunken values and covariates, one row per expert in the problem's order; NaN for those left out."""
    population = PopulationEvidence.of(solution).population
    ends = solution.confidence_intervals(LEVEL)
    columns = {
        "shrunken_discount": solution.discounts,
        "shrunken_low": ends[:, 0],
        "shrunken_high": ends[:, 1],
        "shrunken_temperature": solution.temperature,
        **unit_columns(population),
        **{f"covariate_{name}": values for name, values in population.covariates.items() if name != "expert"},
    }
    return pd.DataFrame(columns, solution.experts).reindex(fitted.solution.experts).reset_index(drop=True)


def content(fitted: Fitted, solution: Solution) -> dict[str, Any]:
    """Return effects of covariates, the spread between people, and shrunken people; of very many, their file."""
    evidence = PopulationEvidence.of(solution)
    population = evidence.population
    pairs = [
        {**pair, "steps": [fitted.horizon(discount) for discount in pair["typical"]]} for pair in population.contrasts["discount"]
    ]
    part = {
        "status": str(solution.status),
        "message": solution.message,
        "experts": solution.experts,
        **population,
        "contrasts": {**population.contrasts, "discount": pairs},
        "predicted_by_group": [asdict(group) for group in fitted.predicted],
    }
    if fitted.people is None:
        part |= {"discounts": solution.discounts, "intervals": solution.confidence_intervals(LEVEL)}
        return part | {"temperatures": solution.temperature}
    lists = "experts", "groups", "covariates", "individuals", "discounts", "intervals", "temperatures"
    reasons = pd.Series(population.left_out, dtype=object).value_counts()
    part |= dict.fromkeys(lists, PEOPLE) | ({} if population.cells is None else {"cells": CONDITIONS})
    part |= {"left_out": {str(reason): int(number) for reason, number in reasons.items()}}
    return part | {"log_likelihood": evidence.log_likelihood}


def compare_persons(fitted: F, asked: Asked, run: Run) -> Iterator[F]:
    """Add the population, in which groups and people are compared."""
    assert asked.population is not None
    yield replace(fitted, population=solve(fitted.problem, asked.population, seed=run.seed, progress=run.progress))
