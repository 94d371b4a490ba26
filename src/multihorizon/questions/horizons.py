"""How far do they look ahead? Each expert's horizon in words, or those of very many persons and of types."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from multihorizon.finding import Finding
from multihorizon.horizon import Horizon
from multihorizon.likelihood.evidence import LikelihoodEvidence
from multihorizon.likelihood.intervals import ProfileIntervals, ProfilesApart
from multihorizon.numerics.distributions import chi2_ppf, t_ppf
from multihorizon.parallel import Progress, part_of
from multihorizon.questions.cautions import notes_of, warnings_of
from multihorizon.questions.differences import typical_unknown
from multihorizon.questions.fitted import IDLE, NAMED_EXPERTS, OPEN, Asked, F, Fitted, named
from multihorizon.questions.people import PEOPLE, People
from multihorizon.questions.shared_discount import SharedDiscountTest, each_pair, shared_discount_test, with_holm
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL, VAGUE_WIDTH, count, decimals, in_words, p_text

QUESTION = "How far do they look ahead?"


def look_ahead(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding:
    """Say who looks how far ahead."""
    return replace(_look_ahead(fitted, answers), content=content(fitted))


def _look_ahead(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding:
    """Say it in the words of few experts, of many, of very many people or of types."""
    if fitted.withheld:
        return Finding(QUESTION, "No usable answer", fitted.withheld, "bad")
    if fitted.people is not None:
        return _of_people(fitted.people, fitted.horizon)
    order = [k for k in fitted.order if fitted.given[k]]
    if not order:
        return Finding(QUESTION, "Unknown", _no_number(fitted), "bad")
    clear, vague = ([k for k in order if fitted.sure[k] == sure] for sure in (True, False))
    if not clear:
        return Finding(QUESTION, "Unknown", _not_shown(fitted, vague), "caution")
    answer, reasons = _of_few(fitted, clear) if len(clear) <= NAMED_EXPERTS else _of_many(fitted, clear, vague)
    if all(fitted.known):
        return Finding(QUESTION, f"{answer}, as known", "All discounts were known; none was estimated.", "good")
    if fitted.shared is not None and not np.isnan(fitted.shared.p_value):
        differ = fitted.shared.p_value < 1 - LEVEL
        reasons += "; they do not all look equally far" if differ else "; the decisions do not show that they differ"
        reasons += f", p {p_text(fitted.shared.p_value)}"
    reasons += "."
    if vague:
        answer += f"; unknown for {named(fitted, [fitted.solution.experts[k] for k in vague])}"
        reasons += f" {_not_shown(fitted, vague)}"
    warned = any(warnings_of(fitted, answers)) or any(notes_of(fitted))
    if np.ptp(np.asarray(fitted.solution.temperature)) > 0 and fitted.unequal_temperatures:
        reasons += " They also differ in how much they choose at random: their temperatures stand beside the discounts."
    return Finding(QUESTION, answer, reasons, "caution" if warned or vague else "good", fitted.shared)


def _no_number(fitted: Fitted) -> str:
    """Say why no expert has a number."""
    why = set(fitted.reasons)
    if why == {IDLE}:
        return "These decisions do not show how far ahead anybody looks: they are no likelier than by chance."
    if why == {OPEN}:
        return "These decisions do not show how far ahead anybody looks: other discounts explain them as well."
    return "These decisions determine no expert's discount."


def _of_few(fitted: Fitted, clear: list[int]) -> tuple[str, str]:
    """Name each horizon with its discount and interval."""
    experts = fitted.solution.experts
    gammas = [own_discount_text(fitted, k) for k in clear]
    several = len(clear) > 1
    alike = len(set(gammas)) == 1
    reach = in_words([own_steps_text(fitted, k) for k in (clear[:1] if alike else clear)])
    answer = f"{reach} {fitted.horizon.many} (discount{'' if alike else 's'} {gammas[0] if alike else in_words(gammas)})"
    ends = [f"{gamma} ({interval_text(fitted, k)})" for gamma, k in zip(gammas, clear, strict=True)]
    each = f"{'discounts' if several else 'a discount of'} {in_words(ends)}, 95 % intervals in brackets"
    who = f"{in_words([experts[k] for k in clear])} look{'' if several else 's'}"
    return answer, f"{who} {reach} {fitted.horizon.many} ahead: {each}"


def _of_many(fitted: Fitted, clear: list[int], vague: list[int]) -> tuple[str, str]:
    """Name the quartiles of the horizons."""
    quartiles = np.quantile(fitted.solution.discounts[clear], [0.25, 0.5, 0.75]).tolist()
    low, middle, high = (steps_text(fitted, gamma) for gamma in quartiles)
    given = sum(fitted.known)
    were = f"; {count(given, 'discount')} of these {'was' if given == 1 else 'were'} known" if given else ""
    whose = f"Of the {len(clear)} experts" + (" whose intervals are narrow enough to say" if vague else "")
    reasons = (
        f"{whose} a quarter look less than {low} {fitted.horizon.many} ahead, half less than {middle}, and a quarter more than "
        f"{high} (discounts {in_words([f'{gamma:.3f}' for gamma in quartiles])}){were}"
    )
    return f"Half of them less than {middle} {fitted.horizon.many}, half more", reasons


def _not_shown(fitted: Fitted, vague: list[int]) -> str:
    """Say of experts whose intervals are wide, or not known, that there is no number for them, and why."""
    names, wide = fitted.solution.experts, [k for k in vague if not np.isnan(fitted.intervals[k]).any()]
    lost, parts = [names[k] for k in vague if k not in wide], []
    if wide and len(fitted.given) <= NAMED_EXPERTS:
        ranges = in_words([f"{names[k]} from {interval_text(fitted, k)}" for k in wide])
        parts.append(
            f"How far ahead {named(fitted, [names[k] for k in wide])} look{'s' * (len(wide) == 1)} is not known: the "
            f"95 % intervals leave discounts of {ranges}."
        )
    elif wide:
        parts.append(
            f"How far ahead {count(len(wide), 'expert')} look{'s' * (len(wide) == 1)} is not known: half of the range of "
            "discounts, or more, lies in their 95 % intervals."
        )
    if lost:
        why = "their intervals were not computed" if not fitted.finished else "no whole interval was found for them"
        parts.append(f"How far ahead {named(fitted, lost)} look{'s' * (len(lost) == 1)} is not known: {why}.")
    return " ".join(parts)


def _of_people(people: People, horizon: Horizon) -> Finding:
    """Say how many look how far ahead, of very many persons."""
    if people.population.types is not None:
        return _of_types(people.population.types, horizon)
    if typical_unknown(people.population):
        reasons = "The 95 % interval of a typical person's discount holds half of the range of discounts, or more."
        return Finding(QUESTION, "Unknown", reasons, "caution")
    low, middle, high = (horizon.number(discount) for discount in people.quartiles)
    reasons = (
        f"Of the {count(len(people.solution.experts), 'person')} a quarter look less than {low} {horizon.many} ahead, half less "
        f"than {middle}, and a quarter more than {high} (discounts "
        f"{in_words([f'{discount:.3f}' for discount in people.quartiles])})."
    )
    return Finding(QUESTION, f"Half of them less than {middle} {horizon.many}, half more", reasons, "good", people.quartiles)


def _of_types(types: dict[str, Any], horizon: Horizon) -> Finding:
    """Name the horizons of the types whose discounts are identified, in intervals that are narrow enough to say."""
    widths = np.ptp(types["intervals"], axis=1)
    clear = np.flatnonzero(np.array(types["identified"]) & (widths <= VAGUE_WIDTH)).tolist()
    rest = types["number"] - len(clear)
    if not clear:
        return Finding(QUESTION, "Unknown", "No type's discount is known well enough to say.", "caution")
    reach = in_words([horizon.number(types["discounts"][k]) for k in clear])
    who = f"{count(len(clear), 'type')} look{'' if len(clear) > 1 else 's'} {reach} {horizon.many} ahead"
    more = "one more" if rest == 1 else f"{rest} more"
    others = f"; of {more} the discount is not known well enough to say" if rest else ""
    return Finding(QUESTION, f"{reach} {horizon.many}", f"{who}{others}.", "caution" if rest else "good", types)


def content(fitted: Fitted) -> dict[str, Any]:
    """Return what is known of each expert; of very many persons the name of the file with their rows, and their quartiles."""
    if fitted.people is not None:
        people = fitted.people
        lists = "experts", "discounts", "intervals", "temperatures", "decisions_by_expert"
        usable = not fitted.withheld and people.population.types is None
        groups = {group.name: asdict(group) for group in people.groups}
        return {
            **dict.fromkeys(lists, PEOPLE),
            "persons": len(people.names),
            "episodes": int(fitted.episodes.sum()),
            "not_done": people.not_done,
            "chance": people.compared_chance,
            "quartiles": people.quartiles if usable else None,
            "by_group": {name: {k: v for k, v in group.items() if k != "name"} for name, group in groups.items()},
        }
    solution, evidence, likelihood = fitted.solution, fitted.evidence, fitted.likelihood
    given = fitted.given
    discounts = [float(discount) if shown else None for discount, shown in zip(solution.discounts, given, strict=True)]
    tests = None if fitted.shared is None else fitted.shared.to_dict()
    return {
        "experts": list(solution.experts),
        "discounts": discounts,
        "intervals": fitted.intervals,
        "known": {"reward": None, "discounts": fitted.known} if likelihood is None else likelihood.known,
        "groups": solution.options.get("groups"),
        "at_limit": fitted.limits,
        "standard_errors": None if fitted.withheld else fitted.standard_errors,
        "effective_horizons": [None if discount is None else fitted.horizon(discount) for discount in discounts],
        "half_lives": [None if discount is None else fitted.horizon.half_life(discount) for discount in discounts],
        "episodes": fitted.episodes,
        "decisions_by_expert": fitted.decisions,
        "pseudo_r2": fitted.explained,
        "temperatures": fitted.temperatures,
        "identified": [shown and not fitted.withheld for shown in given],
        "reasons": {name: reason for name, reason in zip(solution.experts, fitted.reasons, strict=True) if reason},
        "shared_discount_test": tests,
        "pairwise_tests": [test.to_dict() for test in fitted.pairs] or None,
        "equal_temperatures_p": evidence.equal_temperatures_p,
        "deviations": None if likelihood is None else likelihood.deviations,
        "independence": fitted.independence,
        "one_maximum": {"discounts": solution.discounts, "log_likelihood": solution.objective},
    }


def discount_text(fitted: Fitted, discount: float) -> str:
    """Return a discount with three decimals; the largest one tried is shown as a limit."""
    return f"≥ {fitted.largest_discount:g}" if discount >= fitted.largest_discount < 1 else f"{discount:.3f}"


def steps_text(fitted: Fitted, discount: float) -> str:
    """Return the horizon of a discount, without its unit; a limit is shown as a limit."""
    text = fitted.horizon.number(discount)
    return f"≥ {text}" if fitted.largest_discount <= discount < 1 else text


def own_discount_text(fitted: Fitted, k: int) -> str:
    """Return the discount of expert k; one that was known beforehand is shown as it was given."""
    gamma = float(fitted.solution.discounts[k])
    return f"{gamma:g}" if fitted.known[k] else discount_text(fitted, gamma)


def own_steps_text(fitted: Fitted, k: int) -> str:
    """Return the horizon of expert k; that of a known discount is no limit."""
    text = steps_text(fitted, float(fitted.solution.discounts[k]))
    return text.removeprefix("≥ ") if fitted.known[k] else text


def half_life_text(fitted: Fitted, k: int) -> str:
    """Return the delay after which something counts half for expert k."""
    return f"{fitted.horizon.half_life(float(fitted.solution.discounts[k])):,.3g}" if fitted.given[k] else "–"


def interval_text(fitted: Fitted, k: int, write: Callable[[Fitted, float], str] = discount_text) -> str:
    """Return the interval of expert k; an end may not have been found, and the largest discount tried is a limit."""
    ends = fitted.intervals[k]
    if fitted.known[k] or np.isnan(ends).all():
        return "known" if fitted.known[k] else "–"
    low, high = ("not found" if np.isnan(end) else write(fitted, float(end)) for end in ends)
    return f"{low} to {high}"


def person_cells(fitted: Fitted, k: int) -> tuple[str, str, str, str]:
    """Return discount, interval, steps and temperature of expert k as they are shown; the reason where there is no discount."""
    temperature = decimals(fitted.temperatures[k], 2)
    if not fitted.given[k]:
        ends = interval_text(fitted, k)
        return "–", fitted.reasons[k] if ends == "–" else f"{ends}: {fitted.reasons[k]}", "–", temperature
    return own_discount_text(fitted, k), interval_text(fitted, k), own_steps_text(fitted, k), temperature


def sizes(fitted: Fitted) -> str:
    """Return how many experts, episodes and decisions there are, and of how many numbers a state is made that is a vector."""
    numbers = {"expert": fitted.decisions.size, "episode": int(np.sum(fitted.episodes)), "decision": int(fitted.decisions.sum())}
    of_types = fitted.people is not None and fitted.people.population.types is not None
    if of_types and numbers["expert"] == numbers["episode"]:  # episodes without a name
        del numbers["expert"]
    text = ", ".join(count(number, noun) for noun, number in numbers.items())
    if fitted.sieve is not None:
        text += f", in states of {count(len(fitted.sieve.coordinates) + len(fitted.sieve.left_out), 'number')}"
    return f"{text}."


def find_intervals(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add profile intervals as they come; in a hurry those from standard errors, where these say enough."""
    solution = fitted.solution
    if asked.quick and not _needs_profiles(solution):
        assumed = fitted.independence
        freedom = np.array(np.inf if assumed is None else assumed.get("freedom", np.inf), dtype=np.float64)
        half = t_ppf(0.5 + LEVEL / 2, np.where(np.isnan(freedom), np.inf, freedom)) * fitted.standard_errors
        ends = np.clip(solution.discounts[:, None] + half[:, None] * [-1, 1], 0.0, fitted.largest_discount)
        yield replace(fitted, intervals=ends)
        return
    source = solution.interval_source
    assert isinstance(source, ProfileIntervals | ProfilesApart)
    given = (np.array(fitted.given) | np.array(fitted.ranged))[:, None]
    for intervals in source.by_blocks(LEVEL, asked.jobs):
        done = int((given & ~np.isnan(intervals)).any(axis=1).sum())
        progress(done / max(int(given.sum()), 1), f"intervals: {done} of {int(given.sum())} discounts")
        yield replace(fitted, intervals=np.where(given, intervals, np.nan))


def _needs_profiles(solution: Solution) -> bool:
    """Return whether an interval reaches other maxima or an open direction, of which no standard error speaks."""
    evidence, source = LikelihoodEvidence.of(solution), solution.interval_source
    lower = [evidence.log_likelihood - end["log_likelihood"] for end in evidence.other_maxima or []]
    if any(2 * missing <= chi2_ppf(LEVEL, 1) for missing in lower):
        return True
    return isinstance(source, ProfileIntervals) and source.one_discount_is_open(LEVEL)


def check_discounts(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add the test that all experts have one discount, and those of all pairs where they are few or asked for."""
    number = len(fitted.known)
    unsure = fitted.kind == "vectors" and fitted.solution.status != Status.CONVERGED
    if number == 1 or all(fitted.known) or unsure:
        return
    progress(0.0, "test of one discount for all")
    shared = shared_discount_test(fitted.solution)
    fitted = replace(fitted, shared=shared, pairs=[shared] if number == 2 and not np.isnan(shared.statistic) else [])
    yield fitted
    every_pair = asked.pairs or number <= 6 or fitted.kind == "vectors"
    if number == 2 or not every_pair:
        return
    tests: list[SharedDiscountTest] = []
    for pair in each_pair(fitted.solution, jobs=asked.jobs, progress=part_of(progress, 0.25, 1.0)):
        tests.append(replace(pair, adjusted=np.nan))  # corrected for their number when all are there
        yield replace(fitted, pairs=list(tests))
    yield replace(fitted, pairs=with_holm(tests).tests)
