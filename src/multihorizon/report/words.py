"""What a fit found, in words: an opening paragraph and three verdicts.

The verdicts answer what a reader asks in turn: how far do they look ahead, can the data tell, does the model fit? Each has an
answer of a word or two, a sentence of reasons, and a kind: "good", "caution" or "bad". Where a result must not be used, that
comes first and takes their place in the opening.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from multihorizon.likelihood.model_checks import Extent, WithinEpisodes, extent
from multihorizon.report.advice import NAMED_EXPERTS, SIGNIFICANT, different_goals, unequal_temperatures
from multihorizon.report.findings import VAGUE_WIDTH, Findings, Judged, predicts_worse
from multihorizon.report.formats import (
    count,
    from_to,
    in_words,
    interval_text,
    own_discount_text,
    own_steps_text,
    p_text,
    per_decision,
    percent,
    steps_text,
)
from multihorizon.solution import Status

Kind = Literal["good", "caution", "bad"]
#: Choices of one episode that go together with no larger p-value mean that the model does not fit; up to 0.05 it is in doubt.
HIDDEN_CONTEXT = 0.001


@dataclass(frozen=True)
class Verdict:
    """The answer to one question: a word or two, and the reasons in a sentence or two."""

    question: str
    answer: str
    reasons: str
    kind: Kind


def verdicts(findings: Findings) -> tuple[Verdict, Verdict, Verdict]:
    """How far do they look ahead? Can the data tell? Does the model fit?"""
    fit = fit_verdict(findings)
    return look_ahead_verdict(findings), told_only_if_it_fits(identifiability_verdict(findings), fit), fit


def fits(findings: Findings) -> bool:
    """Whether nothing says that the model does not fit."""
    return fit_verdict(findings).answer != "No"


def told_only_if_it_fits(tell: Verdict, fit: Verdict) -> Verdict:
    """What the data can tell beside the verdict on the fit: intervals of a model that does not fit promise nothing."""
    if fit.answer != "No" or tell.kind == "bad" or tell.answer == "Not asked":
        return tell
    reasons = f"{tell.reasons} But all this holds only if the model is right, and it does not fit."
    return Verdict(tell.question, "Only if the model were right" if tell.kind == "good" else tell.answer, reasons, "caution")


def headline(findings: Findings) -> str:
    """The opening paragraph."""
    look, tell, fit = verdicts(findings)
    return " ".join([*findings.warnings, *([] if findings.withheld else [look.reasons]), tell.reasons, fit.reasons])


def look_ahead_verdict(findings: Judged) -> Verdict:
    """Who looks how far ahead."""
    question = "How far do they look ahead?"
    if findings.withheld:
        return Verdict(question, "No usable answer", findings.withheld, "bad")
    order = [k for k in findings.order if findings.given[k]]
    if not order:
        return Verdict(question, "Unknown", "No expert's discount can be told from these decisions.", "bad")
    answer = from_to([own_steps_text(findings, k) for k in (order[0], order[-1])]) + " steps"
    if all(findings.known):
        return Verdict(question, f"{answer}, as known", "All discounts were known; none was estimated.", "good")
    reasons = _each(findings, order) if len(order) <= NAMED_EXPERTS else _crowd(findings, order)
    return Verdict(question, answer, f"{reasons}{_difference(findings)}", "caution" if findings.warnings else "good")


def identifiability_verdict(findings: Judged) -> Verdict:
    """Whether the decisions identify the discounts, and how narrowly."""
    question, number = "Can the data tell?", len(findings.given)
    if all(findings.known) and not findings.withheld:
        return Verdict(question, "Not asked", " ".join(["No discount was estimated.", *_open_directions(findings)]), "good")
    converged = findings.solution.status != Status.NOT_CONVERGED
    unknown = [findings.solution.experts[k] for k in findings.order if not findings.identified[k]]
    if len(unknown) == number and converged:
        return Verdict(question, "No", _unknown(findings, unknown), "bad")
    if findings.withheld and not nobody_better_than_chance(findings):
        text = "Whether the data can tell the discounts is open until a fit succeeds."
        return Verdict(question, "Not with this fit", text, "bad")
    names, given, sure = findings.solution.experts, findings.given, findings.sure
    useful, told = [k for k in findings.order if sure[k]], [k for k in findings.order if given[k] and not sure[k]]
    vague, missing = ([k for k in told if np.isnan(findings.intervals[k]).any() == lost] for lost in (False, True))
    idle = [names[k] for k in findings.order if findings.reasons[k] == "no better than chance"]
    parts = [_unknown(findings, unknown)] if unknown and converged else []
    if idle:
        parts.append(f"The decisions of {_named(findings, idle)} are no likelier than by chance, so no discount is given.")
    parts += [_too_few(findings, vague)] if vague else []
    parts += [_no_interval(findings, missing)] if missing else []
    parts += [_widths(findings, useful)] if useful else []
    parts += _open_directions(findings)
    if len(useful) == number:
        answer, kind = ("Yes", "good") if findings.finished else ("So far, yes", "caution")
    elif useful or told:
        answer, kind = f"For {len(useful)} of {number}" if useful else "Barely" if vague else "Not known", "caution"
    else:
        answer, kind = "No", "bad"
    return Verdict(question, answer, " ".join(parts), cast(Kind, kind))


def nobody_better_than_chance(findings: Judged) -> bool:
    """Whether the decisions of all experts are no likelier than by chance."""
    return all(reason == "no better than chance" for reason in findings.reasons)


def _too_few(findings: Judged, vague: list[int]) -> str:
    if len(findings.given) > NAMED_EXPERTS:
        are = "is" if len(vague) == 1 else "are"
        return f"{count(len(vague), 'interval')} {are} wider than {VAGUE_WIDTH:g}: too few decisions to say much."
    whose = "The decisions" if len(vague) == len(findings.given) else "Some experts' decisions"
    ranges = [f"{findings.solution.experts[k]} from {interval_text(findings, k)}" for k in vague]
    return f"{whose} are too few to say much: they leave {in_words(ranges)}."


def _no_interval(findings: Judged, missing: list[int]) -> str:
    """What to say of discounts without a whole interval: the work was stopped, or an end was not found."""
    names = [findings.solution.experts[k] for k in missing]
    if not findings.finished:
        return f"The work was stopped before there were intervals for {_named(findings, names)}."
    if len(findings.given) <= NAMED_EXPERTS:
        names = [f"{name} ({interval_text(findings, k)})" for name, k in zip(names, missing, strict=True)]
    how_sure = "this discount is" if len(names) == 1 else "these discounts are"
    return f"No whole interval was found for {_named(findings, names)}, so it is not known how sure {how_sure}."


def _named(findings: Judged, names: list[str]) -> str:
    """The experts by name, or their number in a crowd."""
    return in_words(names) if len(findings.given) <= NAMED_EXPERTS else count(len(names), "expert")


def _widths(findings: Judged, useful: list[int]) -> str:
    """How narrowly the discounts are told that were estimated and have an interval."""
    known = findings.known
    estimated = [k for k in useful if not known[k]]
    if not estimated:
        return "The other discounts were known."
    widths = findings.intervals[estimated, 1] - findings.intervals[estimated, 0]
    whom = "every discount that was not known" if any(known) else "every discount"
    if len(useful) < len(known):
        names = [findings.solution.experts[k] for k in estimated]
        whom = f"the {'discount' if len(names) == 1 else 'discounts'} of {_named(findings, names)}"
    if len(estimated) == 1:
        return f"The decisions identify {whom}; its 95 % interval spans {widths[0]:.3f}."
    if len(known) <= NAMED_EXPERTS:
        return f"The decisions identify {whom}; the widest 95 % interval spans {widths.max():.3f}."
    return f"The decisions identify {whom}; half of the 95 % intervals span less than {np.median(widths):.3f}."


def fit_verdict(findings: Findings) -> Verdict:
    """Whether the model predicts decisions it has not seen, better than simpler models and as well as the experts' own habits."""
    question, checks = "Does the model fit?", findings.checks
    if checks is None:
        return Verdict(question, "Not checked", "Whether the model predicts new decisions was not checked.", "caution")
    total = {name: float(values @ checks.decisions) for name, values in checks.held_out.items()}
    number = float(checks.decisions.sum())
    gain = total["this model"] - float(findings.chance @ checks.decisions)
    worse = predicts_worse(checks, findings.chance, findings.free_rewards)
    if gain <= 0:
        worse = worse or "The model predicts held-out decisions no better than chance."
    together = _together(checks.within)
    if checks.within.p_value <= HIDDEN_CONTEXT:
        return Verdict(question, "No", f"The model does not fit: {together} {worse}".strip(), "bad")
    if worse:
        return Verdict(question, "No", worse, "bad")
    if findings.withheld:
        return Verdict(question, "Not with this fit", "Whether the model fits is open until a fit succeeds.", "bad")
    better = f"it predicts held-out decisions better than chance, by {per_decision(gain, number)} in log-likelihood per decision"
    lost = total["own frequencies"] - total["this model"]
    if findings.choices_repeat and lost > 3 * np.sqrt(2 * (findings.free_rewards + len(checks.experts))):
        return Verdict(question, "No", _habits(findings, per_decision(lost, number)), "bad")
    how = extent(findings.misfits)
    if not how.odd:
        alone = "no state stands out" if how.compared else "no state repeats often enough to be compared alone"
        if checks.within.p_value <= SIGNIFICANT:
            reasons = f"State by state the model fits: {better}, and {alone}. But {together}"
            return Verdict(question, "Perhaps not", reasons, "caution")
        return Verdict(question, "Yes", f"The model fits: {better}, and {alone}.{together}", "good")
    where = "does not fit" if how.answer == "No" else f"fits {how.answer[0].lower()}{how.answer[1:]}"
    reasons = f"The model {where}: {better}. {_odd_states(findings, how)}"
    reasons += f" Besides, {together}" if checks.within.p_value <= SIGNIFICANT else together
    return Verdict(question, how.answer, reasons, "bad" if how.answer == "No" else "caution")


def _together(within: WithinEpisodes) -> str:
    """What it says that choices of one episode go together, or why that was not tested; empty where they do not."""
    if within.reason:
        return f" Whether something outside the state column changes between episodes was not tested: {within.reason}."
    if within.p_value > SIGNIFICANT:
        return ""
    clear = within.p_value <= HIDDEN_CONTEXT
    return (
        f"choices of one episode go together more than their states explain (p {'≤' if clear else '='} {within.p_value:.3f}). So "
        f"something outside the state column, such as the goal, {'changes' if clear else 'may change'} between episodes; "
        "if it was recorded, make it part of the state."
    )


def _odd_states(findings: Findings, how: Extent) -> str:
    """The states in which choices differ from the model by more than chance, in words."""
    worst = in_words(list(dict.fromkeys(misfit.state for misfit in findings.misfits[: how.odd]))[:3])
    cases = f"{how.odd:,} of the {count(how.compared, 'case')} with enough decisions ({percent(how.odd / how.compared)})"
    return (
        f"Choices differ from it by more than chance in {cases}, most in {worst}. In these cases {percent(how.missed)} of the "
        f"decisions would have to be others, which is {percent(how.missed_of_all)} of all."
    )


def _habits(findings: Findings, lost: str) -> str:
    why = "The experts do something that one shared reward and one discount each cannot explain."
    if different_goals(findings):
        why = "They do not share one goal."
    return (
        f"The model does not fit: each expert's own habits predict held-out decisions better, by {lost} in log-likelihood per "
        f"decision. {why}"
    )


def _each(findings: Judged, order: list[int]) -> str:
    parts = []
    for k in order:
        interval = f"discount {own_discount_text(findings, k)}, {interval_text(findings, k)}"
        parts.append(f"{findings.solution.experts[k]} {own_steps_text(findings, k)} ({interval})")
    return f"Steps that each expert looks ahead, with 95 % intervals: {'; '.join(parts)}."


def _crowd(findings: Judged, order: list[int]) -> str:
    known = findings.solution.discounts[order]
    low, middle, high = (float(g) for g in np.quantile(known, [0.25, 0.5, 0.75]))
    return (
        f"Half of the {len(order)} experts look between {steps_text(findings, low)} and {steps_text(findings, high)} steps ahead "
        f"(discounts {low:.3f} to {high:.3f}, median {middle:.3f}){_of_these(findings)}."
    )


def _of_these(findings: Judged) -> str:
    number = sum(findings.known)
    return f"; {count(number, 'discount')} of these {'was' if number == 1 else 'were'} known" if number else ""


def _difference(findings: Judged) -> str:
    """Whether the experts differ in their horizons, and in how decided they are."""
    heat = findings.solution.temperature
    also = ""
    if heat is not None and np.ptp(heat) > 0 and unequal_temperatures(findings):
        also = " They also differ in how much they choose at random: their temperatures stand beside the discounts."
    return _horizons_differ(findings) + also


def _horizons_differ(findings: Judged) -> str:
    test = findings.shared
    if test is None or np.isnan(test.p_value):
        return ""
    if test.p_value < SIGNIFICANT:
        return f" They do not all look equally far: p {p_text(test.p_value)}."
    return f" The decisions do not show that they differ: p {p_text(test.p_value)}."


def _unknown(findings: Judged, unknown: list[str]) -> str:
    exact = findings.identification if isinstance(findings, Findings) else None
    how = "as likely, as far as can be computed" if exact is not None and exact.status == "unique" else "exactly as likely"
    text = (
        f"Other discounts, with another reward, make the decisions of {_named(findings, unknown)} {how}. So no number is given."
    )
    if exact is not None and exact.status == "set":
        pairs = zip(exact.experts, exact.intervals, strict=True)
        ranges = [f"{name} from {low:.3f} to {high:.3f}" for name, (low, high) in pairs if name in unknown]
        text += f" More decisions of the same kind would not help: even exact policies leave {in_words(ranges)}."
    return text


def _open_directions(findings: Judged) -> list[str]:
    free = findings.solution.evidence["unidentified_directions"]
    if not free:
        return []
    stays = "stays" if free == 1 else "stay"
    return [f"{count(free, 'direction').capitalize()} of the reward {stays} open, such as a constant added to all of it."]
