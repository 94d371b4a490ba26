"""What a reader must know before any number: that none may be used, or that an assumption is rejected or was not tested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from multihorizon.finding import Finding
from multihorizon.population.types import open_words
from multihorizon.questions.fit import NO_FIT, predicts_worse
from multihorizon.questions.fitted import Fitted, named
from multihorizon.questions.penalty import held_rewards, penalty_words
from multihorizon.questions.people import People
from multihorizon.questions.population_choices import ALONE
from multihorizon.words import FORM_ALONE, p_text


def warnings_of(fitted: Fitted, answers: Mapping[str, Finding]) -> Iterator[str]:
    """Yield that no number may be used, or that an assumption is rejected; an empty text where there is nothing to say."""
    if fitted.withheld:
        yield _unusable(fitted)
    elif answers["fit"].answer == "No" and not fitted.goals_differ:
        yield NO_FIT
    if fitted.people is not None:
        return
    if fitted.goals is not None and fitted.goals_differ:
        yield f"The experts do not share one goal. {fitted.goals.verdict.reasons}"
    if not fitted.finished:
        yield "Stopped before the end: intervals, tests and model checks that are missing were not computed."
    if _one_temperature(fitted) and fitted.unequal_temperatures:
        yield (
            f"One temperature for all experts is rejected (p {p_text(fitted.evidence.equal_temperatures_p or 0.0)}): some of "
            "them choose more at random than others, and a shared temperature turns that into a difference of horizons. Let each "
            "expert have a temperature."
        )
    yield _lost_temperatures(fitted)
    if fitted.sieve is not None and fitted.sieve.basis_too_poor:
        yield "The basis is too poor: richer functions predict choices better, and the discounts may be far off."


def notes_of(fitted: Fitted) -> Iterator[str]:
    """Yield what leaves the numbers as they are, such as penalties; an empty text where there is nothing to say."""
    if fitted.people is not None:
        yield from _notes_of_people(fitted, fitted.people)
        return
    if fitted.goals is not None and fitted.goals.test.reason:
        yield f"Whether the experts share one reward was not tested: {fitted.goals.test.reason}."
    if fitted.functions is None and fitted.problem.by_form_alone and fitted.given[0] and not fitted.known[0]:
        yield "" if fitted.reward_given else FORM_ALONE
    if fitted.checks is not None and ALONE in fitted.checks.held_out:
        alone = predicts_worse(fitted.checks, fitted.chance, fitted.estimated_rewards, ALONE)
        yield alone and f"{alone} So do not use the discounts of single experts that were fitted alone, but the shrunken ones."
    yield "" if fitted.penalty is None else penalty_words(fitted.solution, fitted.penalty)
    yield "" if fitted.likelihood is None else held_rewards(fitted.likelihood.ridge_reason)


def _unusable(fitted: Fitted) -> str:
    """Say that no number may be used, and what usually helps."""
    text = f"Do not use these numbers. {fitted.withheld}"
    of_reward = fitted.state_reward is not None and fitted.withheld == fitted.state_reward.why
    if of_reward or fitted.people is not None:
        return text
    fewer = "fewer reward parameters (features)" if fitted.functions is None else "fewer basis functions"
    each = ", or a temperature for each expert," if _one_temperature(fitted) and len(fitted.given) > 1 else ","
    return f"{text} Intervals and tests are withheld. More decisions, or {fewer}{each} usually help."


def _one_temperature(fitted: Fitted) -> bool:
    """Return whether all experts have the same temperature."""
    return bool(np.ptp(np.asarray(fitted.solution.temperature)) == 0)


def _notes_of_people(fitted: Fitted, people: People) -> Iterator[str]:
    """Yield which types have no discount, and what holds the rewards."""
    types = people.population.types
    if types is not None and not all(types["identified"]) and not fitted.withheld:
        yield open_words(types)
    ridge = 0.0 if people.reward_given else people.solution.options.get("ridge")
    if ridge:
        yield f"A penalty on large rewards (ridge {ridge:g}) was asked for. What it moves is not known."
    yield held_rewards(people.evidence.ridge_reason)


def _lost_temperatures(fitted: Fitted) -> str:
    """Return what must be said where a known reward does not show how random the choices are."""
    regular = [fitted.solution.experts[k] for k in fitted.order if fitted.ranged[k]]
    lost = [fitted.solution.experts[k] for k in fitted.without_temperature]
    text = []
    if regular:
        text.append(
            f"{named(fitted, regular)} chose so regularly that no temperature is too low for them: their discounts are known to "
            "ranges at most, and not to numbers."
        )
    if lost:
        text.append(
            f"The temperature of {named(fitted, lost)} cannot be estimated, and neither can the discount: they chose without "
            "regard to the known reward, or it says nothing about their choices."
        )
    return " ".join(text)
