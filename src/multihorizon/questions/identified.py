"""Can the data tell? Whose discounts the decisions identify and how narrowly, whether any number could, and what to collect.

Identifiability has two sides that must agree: the Fisher information at the answer (do *these* decisions determine the
discounts?) and `identify` on the fitted policies (could any number of decisions in this task?).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from multihorizon.evidence import Evidence
from multihorizon.exact.identify import Identification, identify
from multihorizon.exact.nearly import discounts_within
from multihorizon.finding import Finding
from multihorizon.likelihood.clusters import independence_words
from multihorizon.likelihood.evidence import LikelihoodEvidence, SieveEvidence, dynamics_unknown
from multihorizon.parallel import Progress
from multihorizon.population.types import open_words
from multihorizon.questions.advice import advice
from multihorizon.questions.fitted import (
    IDLE,
    NAMED_EXPERTS,
    UNENDED,
    UNPREDICTED,
    Asked,
    F,
    Fitted,
    named,
    nobody_better_than_chance,
)
from multihorizon.questions.horizons import interval_text
from multihorizon.questions.people import People
from multihorizon.solution import Solution, Status
from multihorizon.words import LEVEL, VAGUE_WIDTH, count, in_words, percent

QUESTION = "Can the data tell?"
ONE_DISCOUNT = (
    "They do not contradict one discount for all, and one discount cannot be separated from the reward: another one explains the "
    "same choices with another reward."
)


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
        return _of_people(fitted, fitted.people)
    if all(fitted.known) and not fitted.withheld:
        return Finding(QUESTION, "Not asked", " ".join(["No discount was estimated.", *_open_directions(fitted)]), "good")
    unknown = [
        fitted.solution.experts[k] for k in fitted.order if not fitted.identified[k] and fitted.reasons[k] not in (UNENDED, IDLE)
    ]
    converged = fitted.solution.status != Status.NOT_CONVERGED
    if len(unknown) == len(fitted.given) and converged:
        return Finding(QUESTION, "No", _unknown(fitted, unknown), "bad", fitted.identification)
    if fitted.withheld and not nobody_better_than_chance(fitted):
        text = "Whether the data identify the discounts is open until a fit succeeds."
        return Finding(QUESTION, "Not with this fit", text, "bad")
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
        return Finding(QUESTION, "Hardly", reasons, "caution")
    if evidence.basis_too_poor:
        return Finding(QUESTION, "Not with this basis", "Richer functions of the state predict choices better.", "caution")
    return replace(finding, reasons=f"{finding.reasons} The intervals include the error of the learned dynamics.")


def _how_narrowly(fitted: Fitted, unknown: list[str]) -> Finding:
    """Return whose discounts have narrow intervals, wide ones, or none; those of `unknown` experts are not identified."""
    names, number = fitted.solution.experts, len(fitted.given)
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
    parts += [ONE_DISCOUNT] if vague and fitted.one_discount_is_open else []
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
        return Finding(QUESTION, "Yes", reasons, "good", exact)
    if len(useful) == number:
        return Finding(QUESTION, "So far, yes", reasons, "caution", exact)
    if useful or rest:
        answer = f"For {len(useful)} of {number}" if useful else "Barely" if vague else "Not known"
        return Finding(QUESTION, answer, reasons, "caution", exact)
    return Finding(QUESTION, "No", reasons, "bad", exact)


def _of_people(fitted: Fitted, people: People) -> Finding:
    """Say how narrow the intervals of persons are; those of groups stand beside their effects."""
    types = people.population.types
    if types is not None and people.solution.status == Status.NOT_IDENTIFIED and fitted.withheld:
        return Finding(QUESTION, "No", fitted.withheld, "bad")
    if fitted.withheld:
        return Finding(QUESTION, "Not with this fit", "Whether the data identify the discounts is open.", "bad")
    if types is not None:
        return _of_types(types)
    widths = np.diff(people.solution.confidence_intervals(LEVEL), axis=1)[:, 0]
    number, vague = widths.size, int((widths > VAGUE_WIDTH).sum())
    are = "is" if vague == 1 else "are"
    reasons = f"{count(vague, 'interval')} {are} wider than {VAGUE_WIDTH:g}. " if vague else ""
    reasons += (
        f"Half of the 95 % intervals of persons span less than {np.median(widths):.3f}. More decisions of each person narrow "
        "these, and more persons narrow those of groups."
    )
    answer = f"For {number - vague:,} of {number:,}" if vague else "Yes"
    return Finding(QUESTION, answer, reasons, "caution" if 2 * vague > number else "good")


def _of_types(types: dict[str, Any]) -> Finding:
    """Say how narrow the intervals of types are, and how surely each unit belongs to one."""
    widest, sure = float(np.nanmax(np.ptp(types["intervals"], axis=1))), percent(types["certainty"])
    reasons = (
        f"The widest 95 % interval of a type's discount spans {widest:.3f}. The likeliest type of a person or an episode "
        f"has a probability of {sure} on average."
    )
    identified = sum(types["identified"])
    if identified < types["number"]:
        answer = f"For {identified} of {count(types['number'], 'type')}"
        return Finding(QUESTION, answer, f"{reasons} {open_words(types)}", "caution", types)
    narrow = widest <= VAGUE_WIDTH
    return Finding(QUESTION, "Yes" if narrow else "Barely", reasons, "good" if narrow else "caution", types)


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
        ranges = [f"{name} from {low:.3f} to {high:.3f}" for name, (low, high) in pairs if name in unknown]
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
        return f"The decisions identify {whom}; its 95 % interval spans {widths[0]:.3f}."
    if len(fixed) <= NAMED_EXPERTS:
        return f"The decisions identify {whom}; the widest 95 % interval spans {widths.max():.3f}."
    return f"The decisions identify {whom}; half of the 95 % intervals span less than {np.median(widths):.3f}."


def identification(solution: Solution) -> Identification | None:
    """Return what exact policies would identify where nothing is known; for large problems only where it matters most."""
    problem, given = solution.require_problem(), LikelihoodEvidence.of(solution).known
    if given["reward"] or any(given["discounts"]):
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
    problem, lam = solution.require_problem(), np.asarray(solution.temperature)
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


def find_identification(fitted: F, asked: Asked, progress: Progress) -> Iterator[F]:
    """Add what exact policies would identify."""
    yield replace(fitted, identification=identification(fitted.solution))
