"""Do discounts and temperatures differ with covariates and conditions? What `Population` found, in sentences.

Effects are on the logit of the discount, log(γ/(1−γ)), and on the logarithm of the temperature. A difference between two groups,
or between the quartiles of a number, is a contrast; contrasts of several pairs have Holm's correction. A difference with a
condition is one between the same persons.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from multihorizon.estimate.population.free import distribution_words
from multihorizon.estimate.population.types import types_words
from multihorizon.solution import PopulationEvidence, PopulationFindings, Solution, Status
from multihorizon.words import LEVEL, Answer, horizon_text, in_words, p_text, percent


@dataclass(frozen=True)
class Difference:
    """Whether discounts or temperatures differ with a column, or with a term of several columns.

    Attributes:
        name: of the column, or of the term.
        p: of the test that they do not.
        pairs: its contrasts, if it is a column: all pairs of groups, or the quartiles of its numbers. Each is turned so that its
            second level has the larger discount or temperature.
        within: the conditions among its columns: what they change was seen in the same persons.
        by: the other columns of a term that has conditions among them: with these the change differs.
    """

    name: str
    p: float
    pairs: list[dict[str, Any]]
    within: tuple[str, ...] = ()
    by: tuple[str, ...] = ()

    @property
    def clear(self) -> bool:
        """Whether the difference is more than chance."""
        return self.p < 1 - LEVEL

    @property
    def changes(self) -> str:
        """Of a term of conditions and other columns: that the changes differ, as the beginning of a sentence; else empty."""
        if self.pairs or not (self.within and self.by):
            return ""
        return f"How discounts change with {in_words([*self.within])} differs with {in_words([*self.by])}"

    @property
    def clear_pairs(self) -> list[dict[str, Any]]:
        """The contrasts that are more than chance after Holm's correction."""
        return [pair for pair in self.pairs if pair["adjusted"] < 1 - LEVEL]

    @property
    def named_pairs(self) -> list[dict[str, Any]]:
        """Those that are said one by one: all of up to six, and the three with the largest differences of more."""
        clear = self.clear_pairs
        return clear if len(clear) <= 6 else sorted(clear, key=lambda pair: -abs(pair["estimate"]))[:3]

    @property
    def counted(self) -> list[str]:
        """How many contrasts are clear, as a sentence before those that are said; nothing where all are."""
        clear, pairs = len(self.clear_pairs), len(self.pairs)
        return [f"{clear:,} of {pairs:,} pairs differ after Holm's correction; these differ most."] if clear > 6 else []


def differences_of(population: PopulationFindings, kind: str) -> list[Difference]:
    """One for each column that stands alone in its terms, then one for each term that has several columns or bends.

    A column of two groups, or of numbers, has the p-value of its contrast, and one of several groups that of all its terms
    together. Where it also interacts with another, its groups are compared on the mean of the other's.
    """
    factors, columns_of = population.factors[kind], population.columns_of
    joined = {term: name for name, factor in factors.items() for term in factor["terms"]}
    tests = {joined.get(term, term): e["p"] for term, e in population[kind].items() if columns_of[term]}
    tests |= {name: factor["p"] for name, factor in factors.items()}
    found = []
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
        found.append(Difference(column, p, turned, (column,) if column in population.conditions else ()))
        tests = {name: p for name, p in tests.items() if list(columns_of[name]) != [column]}
    for name, p in tests.items():
        parts = [tuple(c for c in columns_of[name] if (c in population.conditions) == inside) for inside in (True, False)]
        found.append(Difference(name, p, [], *parts))
    return found


def population_answer(found: Solution, steps: float) -> Answer | None:
    """Whether discounts differ with the covariates; None where none was asked. The task has so many steps."""
    population = PopulationEvidence.of(found).population
    question = "Do discounts differ with the conditions?" if population.conditions else "Do discounts differ with the covariates?"
    if found.status != Status.CONVERGED:
        return Answer(question, "No usable answer", f"The population could not be estimated. {found.message}", "bad")
    differences = differences_of(population, "discount")
    reasons, clear = " ".join(population_words(found, steps)), [difference for difference in differences if difference.clear]
    if not clear:
        return Answer(question, "No more than by chance", reasons, "good") if differences else None
    one = clear[0].pairs[0] if len(clear) == 1 and len(clear[0].pairs) == 1 else None
    if one is None or one["number"]:
        return Answer(question, f"Yes, with {', '.join(difference.name for difference in clear)}", reasons, "good")
    near, far = one["levels"]
    who = f"further with {far} than with {near}" if clear[0].within else f"{far} look further than {near}"
    return Answer(question, f"Yes: {who}", reasons, "good")


def population_words(found: Solution, steps: float) -> list[str]:
    """What was found of groups and persons, in sentences; the task has so many steps."""
    population = PopulationEvidence.of(found).population
    if population.types is not None:
        return [types_words(population.types)]
    differences = differences_of(population, "discount")
    words = [text for difference in differences if difference.clear for text in _discounts_differ(difference, steps)]
    rest = [difference for difference in differences if not difference.clear]
    plain = [difference.name for difference in rest if not difference.changes]
    if plain:
        words.append(f"Discounts differ with {in_words(plain)} by no more than chance.")
    words += [f"{difference.changes} by no more than chance." for difference in rest if difference.changes]
    hotter = [difference for difference in differences_of(population, "temperature") if difference.clear]
    words += [text for difference in hotter for text in _temperatures_differ(difference)]
    spread, share = population.spread["discount"], float(np.mean(population.individuals["discount_reliability"]))
    size = f"{spread['estimate']:.2f} ({spread['interval'][0]:.2f} to {spread['interval'][1]:.2f})"
    where = ", on the average of conditions," if population.conditions else ""
    words.append(f"Between persons the logit of the discount{where} has a standard deviation of {size}.")
    words.append(f"The mean reliability of a person's discount is {share:.2f}, where 0 is no knowledge and 1 is exact.")
    words += [*_slopes_differ(population), *_person_or_condition(population)]
    return [*words, *population.cautions, *distribution_words(population.distribution or {}, steps)]


def _slopes_differ(population: PopulationFindings) -> list[str]:
    """How differently persons change with the conditions."""
    words = []
    for term, slope in (population.slopes or {}).items():
        found, (low, high) = slope["discount"], slope["discount"]["interval"]
        size = f"a standard deviation of {found['estimate']:.2f} ({low:.2f} to {high:.2f})"
        if high > 8 * low:  # intervals of standard deviations never hold 0
            words.append(
                f"How much the effect of {term} on that logit differs between persons is hardly known: by {size}, or not at all."
            )
        else:
            words.append(f"The effect of {term} on that logit differs between persons with {size}.")
    return words


def _person_or_condition(population: PopulationFindings) -> list[str]:
    """How much of the horizons is the person and how much the condition, as far as the decisions tell."""
    shares = (population.variance or {}).get("discount", {})
    names = {
        "person": "is between persons",
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


def _discounts_differ(difference: Difference, steps: float) -> list[str]:
    """Who looks further ahead than whom, and how far, where discounts differ."""
    column, several = difference.name, len(difference.pairs) > 1
    whole = f"Discounts differ with {column} (p {p_text(difference.p)})"
    if difference.changes:
        return [f"{difference.changes} (p {p_text(difference.p)})."]
    if several and not difference.clear_pairs:
        return [f"{whole}, but those of no two groups after Holm's correction."]
    words = [f"{whole}.", *difference.counted] if several or not difference.pairs else []
    for pair in difference.named_pairs if several else difference.pairs:
        (near, far), (low, high) = pair["levels"], pair["typical"]
        reach = f"{high:.2f} and {low:.2f}, or {horizon_text(high, steps)} and {horizon_text(low, steps)} steps"
        how = f"(p {p_text(pair['adjusted'])}{' by Holm' if several else ''})"
        if pair["number"]:
            longer = "higher" if pair["estimate"] >= 0 else "lower"
            at = f"typical discounts at {column} {far} and {near} are {reach} {how}."
            whom = f"With {longer} {column} the same persons" if difference.within else f"Persons with {longer} {column}"
            words.append(f"{whom} look further ahead: {at}")
        elif difference.within:
            whom = f"With {column} = {far} the same persons look further ahead than with {column} = {near}"
            words.append(f"{whom}: typical discounts {reach} {how}.")
        else:
            whom = f"Persons with {column} = {far} look further ahead than those with {column} = {near}"
            words.append(f"{whom}: typical discounts {reach} {how}.")
    return words


def _temperatures_differ(difference: Difference) -> list[str]:
    """Who chooses more at random than whom, where temperatures differ."""
    column, counted = difference.name, difference.counted
    words = [f"Temperatures differ with {column} (p {p_text(difference.p)}).", *counted] if counted else []
    for pair in difference.named_pairs:
        (low, high), times = pair["levels"], f"{np.exp(abs(pair['estimate'])):.2g} times"
        how = f"(p {p_text(pair['adjusted'])})"
        if pair["number"]:
            more = "higher" if pair["estimate"] >= 0 else "lower"
            at = f"the temperature at {column} {high} is {times} that at {low} {how}."
            whom = f"With {more} {column} the same persons" if difference.within else f"Persons with {more} {column}"
            words.append(f"{whom} choose more at random: {at}")
        elif difference.within:
            whom = f"With {column} = {high} the same persons choose more at random than with {column} = {low}"
            words.append(f"{whom}: their temperature is {times} as high {how}.")
        else:
            whom = f"Persons with {column} = {high} choose more at random than those with {column} = {low}"
            words.append(f"{whom}: their temperature is {times} as high {how}.")
    return words or [f"Temperatures differ with {column} (p {p_text(difference.p)})."]
