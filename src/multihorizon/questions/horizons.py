"""How far do they look ahead, and can the data tell? Horizons in words, and whose discounts the decisions identify how narrowly.

*Identifiability* has two sides that must agree: the Fisher information at the answer (do *these* decisions determine the
discounts?) and `identify` on the fitted policies (could any number of decisions in this task?).

*What to collect next*: which decisions would narrow the intervals most, and what should come before more decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from multihorizon.exact.approximate import discounts_within
from multihorizon.exact.identify import Identification, identify
from multihorizon.horizon import Horizon
from multihorizon.likelihood.action_rewards import REMEDY
from multihorizon.likelihood.clusters import independence_words
from multihorizon.likelihood.estimates import LikelihoodEvidence, SieveEvidence, dynamics_unknown
from multihorizon.likelihood.intervals import ProfileIntervals
from multihorizon.likelihood.separate import ProfilesApart
from multihorizon.numerics.distributions import chi2_ppf, t_ppf
from multihorizon.parallel import Run
from multihorizon.population.types import open_words
from multihorizon.questions.differences import typical_unknown
from multihorizon.questions.fitted import (
    IDLE,
    NAMED_EXPERTS,
    OPEN,
    UNENDED,
    UNPREDICTED,
    Asked,
    F,
    Fitted,
    named,
    nobody_better_than_chance,
    notes_of,
    warnings_of,
)
from multihorizon.questions.people import PEOPLE, People
from multihorizon.questions.sharing import SharedDiscountTest, each_pair, shared_discount_test, with_holm
from multihorizon.solution import SOFT_ALONE, Evidence, Solution, Status
from multihorizon.words import LEVEL, VAGUE_WIDTH, Finding, count, decimals, in_words, p_text, percent

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
        reasons += " They also differ in how much they choose at random: the table lists their temperatures beside the discounts."
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
    alike = len(set(gammas)) == 1
    reach = in_words([own_steps_text(fitted, k) for k in (clear[:1] if alike else clear)])
    answer = f"{reach} {fitted.horizon.many} (discount{'' if alike else 's'} {gammas[0] if alike else in_words(gammas)})"
    each = list[str]()
    for k, gamma in zip(clear, gammas, strict=True):
        steps, ends = own_steps_text(fitted, k), interval_text(fitted, k)
        if each:
            each.append(f"{experts[k]} {steps} ({gamma}, {ends})")
        else:
            interval = ends if fitted.known[k] else f"95% CI {ends}"
            each.append(f"{experts[k]} looks {steps} {fitted.horizon.many} ahead (discount {gamma}, {interval})")
    return answer, in_words(each)


def _of_many(fitted: Fitted, clear: list[int], vague: list[int]) -> tuple[str, str]:
    """Name the quartiles of the horizons."""
    quartiles = np.quantile(fitted.solution.discounts[clear], [0.25, 0.5, 0.75]).tolist()
    low, middle, high = (steps_text(fitted, gamma) for gamma in quartiles)
    given = sum(fitted.known)
    were = f"; {count(given, 'discount')} of these {'was' if given == 1 else 'were'} known" if given else ""
    whose = f"Of the {len(clear)} experts" + (" whose intervals are narrow enough to say" if vague else "")
    reasons = (
        f"{whose} a quarter look less than {low} {fitted.horizon.many} ahead, half less than {middle}, and a quarter more than "
        f"{high} (discounts {in_words([decimals(gamma, 3) for gamma in quartiles])}){were}"
    )
    return f"Half of them less than {middle} {fitted.horizon.many}, half more", reasons


def _not_shown(fitted: Fitted, vague: list[int]) -> str:
    """Say of experts whose intervals are wide, or not known, that there is no number for them, and why."""
    names = fitted.solution.experts
    wide = [k for k in vague if not np.isnan(fitted.intervals[k]).any()]
    lost = [names[k] for k in vague if k not in wide]
    parts = []
    if wide and len(fitted.given) <= NAMED_EXPERTS:
        ranges = in_words([f"{names[k]} from {interval_text(fitted, k)}" for k in wide])
        parts.append(
            f"How far ahead {named(fitted, [names[k] for k in wide])} look{'s' * (len(wide) == 1)} is not known: the "
            f"95% CIs leave discounts of {ranges}."
        )
    elif wide:
        parts.append(
            f"How far ahead {count(len(wide), 'expert')} look{'s' * (len(wide) == 1)} is not known: half of the range of "
            "discounts, or more, lies in their 95% CIs."
        )
    if lost:
        why = "their intervals were not computed" if not fitted.finished else "no whole interval was found for them"
        parts.append(f"How far ahead {named(fitted, lost)} look{'s' * (len(lost) == 1)} is not known: {why}.")
    return " ".join(parts)


def _of_people(people: People, horizon: Horizon) -> Finding:
    """Say how many look how far ahead, of very many people."""
    if people.population.types is not None:
        return _of_types(people.population.types, horizon)
    if typical_unknown(people.population):
        reasons = "The 95% CI of a typical person's discount holds half of the range of discounts, or more."
        return Finding(QUESTION, "Unknown", reasons, "caution")
    low, middle, high = (horizon.number(discount) for discount in people.quartiles)
    reasons = (
        f"Of the {count(len(people.solution.experts), 'person')} a quarter look less than {low} {horizon.many} ahead, half less "
        f"than {middle}, and a quarter more than {high} (discounts "
        f"{in_words([decimals(discount, 3) for discount in people.quartiles])})."
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
    """Return what is known of each expert; of very many people the name of the file with their rows, and their quartiles."""
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
    return {
        "experts": list(solution.experts),
        "discounts": discounts,
        "intervals": fitted.intervals,
        "known": {"reward": None, "discounts": fitted.known} if likelihood is None else likelihood.known,
        "groups": solution.options.get("groups"),
        "at_limit": fitted.limits,
        "standard_errors": None if fitted.withheld else fitted.standard_errors,
        "effective_horizons": [None if discount is None else fitted.horizon(discount) for discount in discounts],
        "episodes": fitted.episodes,
        "decisions_by_expert": fitted.decisions,
        "pseudo_r2": fitted.explained,
        "temperatures": fitted.temperatures,
        "identified": [shown and not fitted.withheld for shown in given],
        "reasons": {name: reason for name, reason in zip(solution.experts, fitted.reasons, strict=True) if reason},
        "half_lives": [None if discount is None else fitted.horizon.half_life(discount) for discount in discounts],
        "equal_temperatures_p": evidence.equal_temperatures_p,
        "deviations": None if likelihood is None else likelihood.deviations,
        "independence": fitted.independence,
        "one_maximum": {"discounts": solution.discounts, "log_likelihood": solution.objective},
        "shared_discount_test": None if fitted.shared is None else fitted.shared.to_dict(),
        "pairwise_tests": [test.to_dict() for test in fitted.pairs] or None,
    }


def discount_text(fitted: Fitted, discount: float) -> str:
    """Return a discount with three decimals; the largest one tried is shown as a limit."""
    return f"≥ {fitted.largest_discount:g}" if discount >= fitted.largest_discount < 1 else decimals(discount, 3)


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


def find_intervals(fitted: F, asked: Asked, run: Run) -> Iterator[F]:
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
    for intervals in source.by_blocks(LEVEL, run.jobs):
        done = int((given & ~np.isnan(intervals)).any(axis=1).sum())
        run.progress(done / max(int(given.sum()), 1), f"intervals: {done} of {int(given.sum())} discounts")
        yield replace(fitted, intervals=np.where(given, intervals, np.nan))


def _needs_profiles(solution: Solution) -> bool:
    """Return whether an interval reaches other maxima or an open direction, of which no standard error speaks."""
    evidence = LikelihoodEvidence.of(solution)
    source = solution.interval_source
    lower = [evidence.log_likelihood - end["log_likelihood"] for end in evidence.other_maxima or []]
    if any(2 * missing <= chi2_ppf(LEVEL, 1) for missing in lower):
        return True
    return isinstance(source, ProfileIntervals) and source.one_discount_is_open(LEVEL)


def check_discounts(fitted: F, asked: Asked, run: Run) -> Iterator[F]:
    """Add the test that all experts have one discount, and those of all pairs where they are few or asked for."""
    number = len(fitted.known)
    unsure = fitted.kind == "vectors" and fitted.solution.status != Status.CONVERGED
    if number == 1 or all(fitted.known) or unsure:
        return
    run.progress(0.0, "test of one discount for all")
    shared = shared_discount_test(fitted.solution)
    fitted = replace(fitted, shared=shared, pairs=[shared] if number == 2 and not np.isnan(shared.statistic) else [])
    yield fitted
    every_pair = asked.pairs or number <= 6 or fitted.kind == "vectors"
    if number == 2 or not every_pair:
        return
    tests: list[SharedDiscountTest] = []
    for pair in each_pair(fitted.solution, run.part(0.25, 1.0)):
        tests.append(replace(pair, adjusted=np.nan))  # corrected for their number when all are there
        yield replace(fitted, pairs=list(tests))
    yield replace(fitted, pairs=with_holm(tests).tests)


TELL = "Can the data tell?"


def identifiability(fitted: Fitted, answers: Mapping[str, Finding]) -> Finding:
    """Say whether the decisions identify the discounts, and what to collect next."""
    finding = _identifiability(fitted, answers["fit"])
    if fitted.people is not None:
        return finding
    exact = None if fitted.identification is None else fitted.identification.to_dict()
    content = {"identification": exact, "verdict": finding.reasons, "collect_next": advice(fitted, answers["fit"])}
    return replace(finding, content=content)


def _identifiability(fitted: Fitted, fit: Finding) -> Finding:
    """Say whether the decisions identify the discounts, and how narrowly; a model that does not fit promises nothing."""
    if fitted.people is not None:
        return _widths_of_people(fitted, fitted.people)
    if all(fitted.known) and not fitted.withheld:
        return Finding(TELL, "Not asked", " ".join(["No discount was estimated.", *_open_directions(fitted)]), "good")
    unknown = [
        fitted.solution.experts[k] for k in fitted.order if not fitted.identified[k] and fitted.reasons[k] not in (UNENDED, IDLE)
    ]
    converged = fitted.solution.status != Status.NOT_CONVERGED
    if len(unknown) == len(fitted.given) and converged:
        return Finding(TELL, "No", _unknown(fitted, unknown), "bad", fitted.identification)
    if fitted.withheld and not nobody_better_than_chance(fitted):
        text = "Whether the data identify the discounts is open until a fit succeeds."
        return Finding(TELL, "Not with this fit", text, "bad")
    finding = _how_narrowly(fitted, unknown if converged else [])
    if finding.kind == "bad":
        return finding
    if fitted.sieve is not None and not all(fitted.known):
        finding = _with_learned_dynamics(finding, fitted.sieve)
    if fit.answer != "No":
        return finding
    answer = "Only if the model were right" if finding.kind == "good" else finding.answer
    reasons = f"{finding.reasons} But all this holds only if the model is right, and it does not fit."
    return replace(finding, answer=answer, reasons=reasons, kind="caution")


def _with_learned_dynamics(finding: Finding, evidence: SieveEvidence) -> Finding:
    """Add what learned dynamics and a basis change."""
    if dynamics_unknown(evidence.next_state_r2):
        reasons = "State and action do not predict next states, so plans are not known."
        return Finding(TELL, "Hardly", reasons, "caution")
    if evidence.basis_too_poor:
        return Finding(TELL, "Not with this basis", "Richer functions of the state predict choices better.", "caution")
    return replace(finding, reasons=f"{finding.reasons} The intervals include the error of the learned dynamics.")


def _how_narrowly(fitted: Fitted, unknown: list[str]) -> Finding:
    """Return whose discounts have narrow intervals, wide ones, or none; those of `unknown` experts are not identified."""
    names = fitted.solution.experts
    number = len(fitted.given)
    useful = [k for k in fitted.order if fitted.sure[k]]
    rest = [k for k in fitted.order if fitted.given[k] and not fitted.sure[k]]
    vague, missing = ([k for k in rest if np.isnan(fitted.intervals[k]).any() == lost] for lost in (False, True))
    idle = [names[k] for k in fitted.order if fitted.reasons[k] == IDLE]
    broken = [names[k] for k in fitted.order if fitted.reasons[k] == UNENDED]
    parts = [_unknown(fitted, unknown)] if unknown else []
    if failed := [names[k] for k in fitted.order if fitted.reasons[k] == UNPREDICTED]:
        parts.append(
            f"Of {named(fitted, failed)}, half of the decisions predict the other half worse than chance, so no number is given."
        )
    if broken:
        parts.append(f"The search for the discount of {named(fitted, broken)} did not end, so no number is given.")
    if idle:
        parts.append(f"The decisions of {named(fitted, idle)} are no likelier than by chance, so no discount is given.")
    if vague and number > NAMED_EXPERTS:
        are = "is" if len(vague) == 1 else "are"
        why = ": goals differ too much to say more" if fitted.widened[vague].any() else ""
        parts.append(f"{count(len(vague), 'interval')} {are} wider than {VAGUE_WIDTH:g}{why}.")
    elif vague:
        whose = "The decisions" if len(vague) == number else "Some experts' decisions"
        ranges = [f"{names[k]} from {interval_text(fitted, k)}" for k in vague]
        if fitted.widened[vague].any():
            parts.append(f"Goals differ too much between experts to say more: they leave {in_words(ranges)}.")
        else:
            parts.append(f"{whose} say little: they leave {in_words(ranges)}.")
    if vague and fitted.one_discount_is_open:
        parts.append(
            "They do not contradict one discount for all, and one discount cannot be separated from the reward: another one "
            "explains the same choices with another reward."
        )
    if missing and not fitted.finished:
        parts.append(f"The work was stopped before there were intervals for {named(fitted, [names[k] for k in missing])}.")
    elif missing:
        listed = [names[k] if number > NAMED_EXPERTS else f"{names[k]} ({interval_text(fitted, k)})" for k in missing]
        how_sure = "this discount is" if len(missing) == 1 else "these discounts are"
        parts.append(f"No whole interval was found for {named(fitted, listed)}, so it is not known how sure {how_sure}.")
    parts += [_widths(fitted, useful)] if useful else []
    parts += independence_words(fitted.independence)
    reasons = " ".join([*parts, *_open_directions(fitted)])
    exact = fitted.identification
    if len(useful) == number and fitted.finished:
        return Finding(TELL, "Yes", reasons, "good", exact)
    if len(useful) == number:
        return Finding(TELL, "So far, yes", reasons, "caution", exact)
    if useful or rest:
        answer = f"For {len(useful)} of {number}" if useful else "Barely" if vague else "Not known"
        return Finding(TELL, answer, reasons, "caution", exact)
    return Finding(TELL, "No", reasons, "bad", exact)


def _widths_of_people(fitted: Fitted, people: People) -> Finding:
    """Say how narrow the intervals of people are; those of groups stand beside their effects."""
    types = people.population.types
    if types is not None and people.solution.status == Status.NOT_IDENTIFIED and fitted.withheld:
        return Finding(TELL, "No", fitted.withheld, "bad")
    if fitted.withheld:
        return Finding(TELL, "Not with this fit", "Whether the data identify the discounts is open.", "bad")
    if types is not None:
        return _widths_of_types(types)
    widths = np.diff(people.solution.confidence_intervals(LEVEL), axis=1)[:, 0]
    number = widths.size
    vague = int((widths > VAGUE_WIDTH).sum())
    are = "is" if vague == 1 else "are"
    reasons = f"{count(vague, 'interval')} {are} wider than {VAGUE_WIDTH:g}. " if vague else ""
    reasons += (
        f"Half of the 95% CIs of people span less than {decimals(np.median(widths), 3)}. More decisions of each "
        "person narrow these, and more people narrow those of groups."
    )
    answer = f"For {number - vague:,} of {number:,}" if vague else "Yes"
    return Finding(TELL, answer, reasons, "caution" if 2 * vague > number else "good")


def _widths_of_types(types: dict[str, Any]) -> Finding:
    """Say how narrow the intervals of types are, and how surely each unit belongs to one."""
    widest = float(np.nanmax(np.ptp(types["intervals"], axis=1)))
    sure = percent(types["certainty"])
    reasons = (
        f"The widest 95% CI of a type's discount spans {decimals(widest, 3)}. The likeliest type of a person or an "
        f"episode has a probability of {sure} on average."
    )
    identified = sum(types["identified"])
    if identified < types["number"]:
        answer = f"For {identified} of {count(types['number'], 'type')}"
        return Finding(TELL, answer, f"{reasons} {open_words(types)}", "caution", types)
    narrow = widest <= VAGUE_WIDTH
    return Finding(TELL, "Yes" if narrow else "Barely", reasons, "good" if narrow else "caution", types)


def _unknown(fitted: Fitted, unknown: list[str]) -> str:
    """Return what to say of experts whose discounts are not identified."""
    if fitted.reward_given:
        ranged = [fitted.solution.experts[k] for k in fitted.order if fitted.ranged[k]]
        rest = [name for name in unknown if name not in ranged]
        parts = []
        if rest:
            parts.append(f"Other discounts make the decisions of {named(fitted, rest)} as likely, so no number is given.")
        if ranged:
            parts.append(
                f"The decisions of {named(fitted, ranged)} fit a range of discounts equally well, so no number is given."
            )
        return " ".join(parts)
    exact = fitted.identification
    how = "as likely, as far as can be computed" if exact is not None and exact.status == "unique" else "exactly as likely"
    text = f"Other discounts, with another reward, make the decisions of {named(fitted, unknown)} {how}. So no number is given."
    if exact is not None and exact.status == "set":
        pairs = zip(exact.experts, exact.intervals, strict=True)
        ranges = [f"{name} from {decimals(low, 3)} to {decimals(high, 3)}" for name, (low, high) in pairs if name in unknown]
        text += f" More decisions of the same kind would not help: even exact policies leave {in_words(ranges)}."
    return text


def _open_directions(fitted: Fitted) -> list[str]:
    free = fitted.evidence.unidentified_directions
    stays = "stays" if free == 1 else "stay"
    directions = count(free, "direction").capitalize()
    return [f"{directions} of the reward {stays} open, such as a constant added to all of it."] if free else []


def _widths(fitted: Fitted, useful: list[int]) -> str:
    """Return how narrow the intervals are of the discounts that were estimated."""
    fixed = fitted.known
    estimated = [k for k in useful if not fixed[k]]
    if not estimated:
        return "The other discounts were known."
    widths = fitted.intervals[estimated, 1] - fitted.intervals[estimated, 0]
    whom = "every discount that was not known" if any(fixed) else "every discount"
    if len(useful) < len(fixed):
        names = [fitted.solution.experts[k] for k in estimated]
        whom = f"the {'discount' if len(names) == 1 else 'discounts'} of {named(fitted, names)}"
    if len(estimated) == 1:
        return f"The decisions identify {whom}; its 95% CI spans {decimals(widths[0], 3)}."
    if len(fixed) <= NAMED_EXPERTS:
        return f"The decisions identify {whom}; the widest 95% CI spans {decimals(widths.max(), 3)}."
    return f"The decisions identify {whom}; half of the 95% CIs span less than {decimals(np.median(widths), 3)}."


def identification(solution: Solution) -> Identification | None:
    """Return what exact policies would identify where nothing is known; for large problems only where it matters most."""
    problem = solution.require_problem()
    given = LikelihoodEvidence.of(solution).known
    if given["reward"] or any(given["discounts"]) or not solution.is_soft:
        return None
    # The time of `identify` grows with the square of the states, and it searches where the equations are not linear.
    linear = problem.tabular and all(mdp.durations is None for mdp in problem.mdps)
    small = sum(expert.mdp.n_states for expert in problem.experts) <= (3000 if linear else 200)
    return identify_fitted(solution) if small or solution.status == Status.NOT_IDENTIFIED else None


def identify_fitted(solution: Solution, within: float | None = None) -> Identification | None:
    """Return whether the fitted policies, if known exactly, would identify the discounts.

    None where that cannot be computed, and where the reward is known, as it is computed of rewards that are not.

    With `within`, also which discounts explain them at the fitted temperatures if rewards may differ by that much from a shared
    one.
    """
    if LikelihoodEvidence.of(solution).known["reward"]:
        return None
    solution.require_soft("exact identification")
    problem = solution.require_problem()
    lam = np.asarray(solution.temperature)
    shared = replace(solution, evidence=Evidence())  # without deviations, which no two exact policies would have in common
    exact = problem.with_experts(
        replace(expert, kind="policy", policy=policy, counts=None, conditions=None)
        for expert, policy in zip(problem.experts, shared.policies(), strict=True)
    )
    try:
        exactly = identify(exact, temperature="per_expert" if np.ptp(lam) > 0 else float(lam[0]))
    except ValueError:
        return None
    if within is None:
        return exactly
    starts = [np.asarray(solution.discounts), exactly.discounts, *(member.discounts for member in exactly.members)]
    return replace(exactly, within=discounts_within(exact, within, lam, starts=starts))


def find_identification(fitted: F, asked: Asked, run: Run) -> Iterator[F]:
    """Add what exact policies would identify."""
    soft = fitted.solution.is_soft
    remarks = [] if soft else [f"What exact policies would identify was not computed: that needs {SOFT_ALONE}."]
    yield replace(fitted, identification=identification(fitted.solution), remarks=[*fitted.remarks, *remarks])


def advice(fitted: Fitted, fit: Finding) -> list[str]:
    """Return what to collect next, one sentence for each thing; an interval of the width distinguishes most horizons."""
    fewer = "Fewer reward parameters: tie the rewards of similar states together with features."
    if fitted.functions is not None:
        fewer = "A smaller basis: fewer functions of the state."
    separating = [
        "The same experts in a variant of the task: other transitions, the same rewards; hand in both tables together.",
        "Another expert with a clearly different horizon in the same task.",
        fewer,
    ]
    if fitted.goals_differ:
        return ["First fit each group that shares a goal by itself: keep the rows of its experts. Then see what is missing."]
    if fitted.state_reward is not None and fitted.state_reward.clear:
        return [REMEDY]
    if 2 * len(fitted.without_temperature) > len(fitted.given):
        return ["Nothing yet: first see whether the known reward is what these experts act for."]
    if fitted.solution.status == Status.NOT_IDENTIFIED and fitted.reward_given and not any(fitted.given):
        return ["More decisions of the same experts, above all in states where near and far rewards lie in different directions."]
    if fitted.solution.status == Status.NOT_IDENTIFIED and not fitted.reward_given:
        return separating
    if fitted.withheld:
        fewer = "reward parameters (features)" if fitted.functions is None else "basis functions"
        return [f"More decisions of every expert, above all in states where few were made, or fewer {fewer}."]
    if fit.answer == "No":
        return [
            "More decisions do not help a model that does not fit. See in the report where it fails: something that the experts "
            "act on may be missing from the states, or from the features."
        ]
    if not any(fitted.given):
        return [
            "First see whether these choices depend on where actions lead: they are no likelier than by chance. If they do not, "
            "more decisions say no more."
        ]
    widths = fitted.intervals[:, 1] - fitted.intervals[:, 0]
    wanted_width = 0.1
    wide = widths > wanted_width
    if fitted.one_discount_is_open and (widths > VAGUE_WIDTH).any():
        return separating
    if (np.isnan(widths) & fitted.given & ~np.array(fitted.known)).any():
        return ["What to collect depends on the intervals, and not all of these are known."]
    if not wide.any():
        return [f"Nothing more is needed: no interval is wider than {wanted_width:g}."]
    if fitted.widened[wide].any():
        return [
            "More decisions of the same experts would narrow intervals little, because goals differ between them. More experts "
            "would, or the same ones in further tasks, or features that tie the rewards of similar states together."
        ]
    vague = [fitted.solution.experts[k] for k in np.flatnonzero(widths > VAGUE_WIDTH)]
    unclear = (
        f"How many more decisions it would take cannot be foreseen for {named(fitted, vague)}: these leave half of the range of "
        "discounts open, or more. See first whether these choices depend on where actions lead. If they do, the same experts in "
        "a task where longer and shorter horizons choose otherwise say most."
    )
    wide &= widths <= VAGUE_WIDTH  # only near the estimate do intervals narrow with the root of the number of decisions
    if not wide.any():
        return [unclear]
    rest = [unclear] if vague else []
    more = fitted.episodes[wide] * ((widths[wide] / wanted_width) ** 2 - 1)

    def rounded(number: float) -> str:  # two significant digits: it is an estimate
        whole = int(np.ceil(number))
        return f"{round(whole, -max(0, len(str(whole)) - 2)):,}"

    if len(fitted.given) > NAMED_EXPERTS:
        wanted = rounded(float(np.median(more)))
        return [
            f"About {wanted} more episodes like these, of each, would narrow half of the wider intervals to {wanted_width:g}.",
            *rest,
        ]
    wanted = rounded(float(more.max()))
    names = [fitted.solution.experts[k] for k in np.flatnonzero(wide)]
    whom = "every expert" if wide[fitted.given].all() else named(fitted, names)
    return [f"About {wanted} more episodes like these, of {whom}, would narrow their intervals to {wanted_width:g}.", *rest]
