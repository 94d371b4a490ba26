"""How numbers and lists are written: discounts with three decimals, horizons with one, limits as limits.

What a reader must know before any number, what an interval means here, and what to collect next.

What a fit found, in words: an opening paragraph and three verdicts.

The verdicts answer what a reader asks in turn: how far do they look ahead, can the data tell, does the model fit? Each has an
answer of a word or two, a sentence of reasons, and a kind: "good", "caution" or "bad". Where a result must not be used, that
comes first and takes their place in the opening.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from multihorizon.questions.model_checks import Extent, WithinEpisodes, extent
from multihorizon.report.findings import VAGUE_WIDTH, Findings, Judged, effective_horizon, predicts_worse
from multihorizon.solution import Status

#: Longer horizons are not told in numbers.
MOST_STEPS = 1e6


def discount_text(findings: Judged, discount: float) -> str:
    """A discount with three decimals; the largest one tried is shown as a limit."""
    if discount >= findings.largest_discount < 1:
        return f"≥ {findings.largest_discount:g}"
    return f"{discount:.3f}"


def own_discount_text(findings: Judged, k: int) -> str:
    """The discount of expert k; one that was known beforehand is shown as it was given."""
    gamma = float(findings.solution.discounts[k])
    return f"{gamma:g}" if findings.known[k] else discount_text(findings, gamma)


def own_steps_text(findings: Judged, k: int) -> str:
    """The horizon of expert k; that of a known discount is no limit."""
    text = steps_text(findings, float(findings.solution.discounts[k]))
    return text.removeprefix("≥ ") if findings.known[k] else text


def interval_text(findings: Judged, k: int) -> str:
    """The interval of expert k; an end may not have been found, and the largest discount tried is a limit."""
    if findings.known[k]:
        return "known"
    ends = findings.intervals[k]
    if np.isnan(ends).all():
        return "–"
    low, high = ("not found" if np.isnan(end) else discount_text(findings, float(end)) for end in ends)
    return f"{low} to {high}"


def interval_steps_text(findings: Judged, k: int) -> str:
    """The interval of expert k in steps."""
    ends = findings.intervals[k]
    if findings.known[k] or np.isnan(ends).all():
        return interval_text(findings, k)
    low, high = ("not found" if np.isnan(end) else steps_text(findings, float(end)) for end in ends)
    return f"{low} to {high}"


def person_cells(findings: Judged, k: int) -> tuple[str, str, str, str]:
    """Horizon, discount, interval and temperature of expert k as they are shown; the reason where there is no discount."""
    temperature = decimals(findings.temperatures[k], 2) or "–"
    if not findings.given[k]:
        return "–", "–", findings.reasons[k], temperature
    return own_steps_text(findings, k), own_discount_text(findings, k), interval_text(findings, k), temperature


def steps_text(findings: Judged, discount: float) -> str:
    """The horizon of a discount with one decimal; a limit is shown as a limit."""
    text = horizon_text(discount, findings.longest)
    return f"≥ {text}" if findings.largest_discount <= discount < 1 else text


def horizon_text(discount: float, steps: float) -> str:
    """The horizon of a discount in a task of so many steps, with one decimal; nobody tells a million steps from more."""
    reach = effective_horizon(discount, steps)
    if reach > MOST_STEPS:
        return "unlimited" if np.isinf(reach) else "over a million"
    return f"{reach:,.1f}" if reach < 1000 else f"{reach:,.0f}"


def decimals(value: float, digits: int) -> str | None:
    """A number with so many decimals, without a sign before zero; None where it is not known."""
    return None if np.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"


def per_decision(total: float, decisions: float) -> str:
    """A difference of log-likelihood per decision: three decimals, and more where these would show nothing."""
    value = total / decisions
    return f"{value:.3f}" if abs(value) >= 0.01 else np.format_float_positional(value, precision=2, fractional=False, trim="-")


def percent(share: float) -> str:
    """A share in per cent, with a decimal where it is small; never 0 for what is not nothing."""
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %" if share >= 0.0005 else "under 0.1 %"


def p_text(value: float) -> str:
    """A p-value after the letter p."""
    return "unknown" if np.isnan(value) else "< 0.001" if value < 0.001 else f"= {value:.3f}"


def p_cell(value: float) -> str:
    """A p-value in a table."""
    return p_text(value).removeprefix("= ")


def count(number: int, noun: str) -> str:
    """A number of things, in the singular or the plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_words(parts: list[str]) -> str:
    """A list in words; of many, the first few and how many more there are."""
    shown = parts if len(parts) <= 6 else [*parts[:5], f"{len(parts) - 5} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"


def from_to(ends: list[str]) -> str:
    """Both ends of a range, or the one they are."""
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def rounded(number: int) -> str:
    """Two significant digits: it is an estimate."""
    digits = max(0, len(str(number)) - 2)
    return f"{round(number, -digits):,}"


def sizes(findings: Findings) -> str:
    """How many experts, episodes and decisions there are."""
    numbers = {"expert": len(findings.given), "episode": int(findings.episodes.sum()), "decision": int(findings.decisions.sum())}
    return ", ".join(count(number, noun) for noun, number in numbers.items()) + "."


def shortened(label: str, most: int) -> str:
    """A label of at most so many characters, with a sign where some are left out."""
    return label if len(label) <= most else f"{label[: most - 1]}…"


#: An interval this narrow tells most horizons apart; advice on how much more to collect aims at it.
WANTED_WIDTH = 0.1
#: Up to this many experts are named one by one.
NAMED_EXPERTS = 5
#: A test with a smaller p-value counts as a finding.
SIGNIFICANT = 0.05


def warnings(findings: Findings, fits: bool) -> list[str]:
    """What a reader must know before any number: that none may be used, a rejected assumption, a penalty and what it moved.

    `fits` says whether the model fits, as far as that is known.
    """
    texts = (
        _unusable(findings),
        _misfit(findings, fits),
        _goals(findings),
        _unfinished(findings),
        _temperatures(findings),
        _lost_temperatures(findings),
        _penalty(findings),
        _held_rewards(findings),
    )
    return [text for text in texts if text]


def _goals(findings: Findings) -> str:
    """That the experts do not share the reward that the fit gives them, or that nobody knows."""
    goals = findings.goals
    if goals is not None and goals.test.reason:
        return f"Whether the experts share one reward was not tested: {goals.test.reason}."
    if goals is None or not goals.rejected:
        return ""
    return f"The experts do not share one goal. {goals.answer.removeprefix('No. ')}"


def _misfit(findings: Findings, fits: bool) -> str:
    """That the model fails, where different goals are not the reason."""
    if fits or findings.withheld or different_goals(findings):
        return ""
    return "The model does not fit these decisions, so its discounts and its reward may be wrong, whatever their intervals say."


def different_goals(findings: Findings) -> bool:
    """Whether the experts were found to have different goals."""
    return findings.goals is not None and findings.goals.rejected


def _unfinished(findings: Findings) -> str:
    return (
        ""
        if findings.finished
        else "Stopped before the end: intervals, tests and model checks that are missing were not computed."
    )


def _unusable(findings: Findings) -> str:
    if not findings.withheld:
        return ""
    heat = findings.solution.temperature
    own = ", or a temperature for each expert," if heat is not None and heat.size > 1 and np.ptp(heat) == 0 else ","
    return (
        f"Do not use these numbers. {findings.withheld} Intervals and tests are withheld. More decisions, or fewer reward "
        f"parameters (features){own} usually help."
    )


def _held_rewards(findings: Findings) -> str:
    """A penalty that was chosen because the likelihood alone has no answer."""
    reason = findings.solution.evidence.get("ridge_reason")
    if not reason:
        return ""
    return (
        f"These decisions alone do not settle all rewards: {reason}. So rewards far from zero were made a little less likely, "
        "which keeps them finite. Rewards that few decisions touch are pulled towards zero by it."
    )


def _temperatures(findings: Findings) -> str:
    """What must be said where experts who choose more or less at random were given one temperature."""
    heat = findings.solution.temperature
    if heat is None or np.ptp(heat) > 0 or not unequal_temperatures(findings):
        return ""
    return (
        f"One temperature for all experts is rejected (p {p_text(findings.solution.evidence['equal_temperatures_p'])}): some of "
        "them choose more at random than others, and a shared temperature turns that into a difference of horizons. Let each "
        "expert have a temperature."
    )


def _lost_temperatures(findings: Findings) -> str:
    """What must be said where a known reward does not tell how random the choices are."""
    lost = [k for k in findings.order if np.isnan(findings.temperatures[k]) and findings.solution.temperature is not None]
    if not lost:
        return ""
    heat = np.asarray(findings.solution.temperature)[lost]
    names = [findings.solution.experts[k] for k in lost]
    whose = in_words(names) if len(names) <= NAMED_EXPERTS else count(len(names), "expert")
    small = bool((heat < 1).all())
    unit = "small: multiply them by 100" if small else "large: divide them by 100"
    return (
        f"The temperature of {whose} cannot be told with this reward, and discounts cannot be told without it. Either the known "
        f"reward says nothing about these choices, or its numbers are too {unit}, and fit again."
    )


def unequal_temperatures(findings: Judged) -> bool:
    """Whether the decisions contradict one temperature for all experts."""
    p_value = findings.solution.evidence.get("equal_temperatures_p")
    return p_value is not None and p_value < SIGNIFICANT


def _penalty(findings: Findings) -> str:
    """What a penalty the user asked for moved."""
    penalty = findings.penalty
    if penalty is None:
        return ""
    text = f"A penalty on large rewards (ridge {penalty.ridge:g}) was asked for."
    free = penalty.without
    if free.status == Status.NOT_CONVERGED:
        return f"{text} Without it the fit does not converge, so what it moved cannot be told."
    pairs = zip(findings.solution.experts, free.discounts, findings.solution.discounts, strict=True)
    moved = [f"{name} from {before:.3f} to {after:.3f}" for name, before, after in pairs if abs(before - after) >= 0.0005]
    lost = free.objective - findings.solution.objective
    text += f" It costs {lost:.2f} in log-likelihood and moves {in_words(moved) if moved else 'no discount by 0.001 or more'}."
    if (np.argsort(free.discounts) != np.argsort(findings.solution.discounts)).any() and moved:
        text += " It changes the order of the discounts, so do not rely on the order."
    return text


def advice(findings: Findings, fits: bool) -> list[str]:
    """What to collect next; `fits` says whether the model fits, as far as that is known."""
    if different_goals(findings):
        return ["First fit each group that shares a goal by itself: keep the rows of its experts. Then see what is missing."]
    if _lost_temperatures(findings):
        return ["Nothing yet: first see whether the known reward is right, and in a unit that suits the choices."]
    if findings.solution.status == Status.NOT_IDENTIFIED:
        return [
            "The same experts in a variant of the task: other transitions, the same rewards; hand in both tables together.",
            "Another expert with a clearly different horizon in the same task.",
            "Fewer reward parameters: tie the rewards of similar states together with features.",
        ]
    if not fits and not findings.withheld:
        return [
            "More decisions do not mend a model that does not fit. See in the report where it fails: something that the experts "
            "act on may be missing from the states, or from the features."
        ]
    if findings.withheld:
        return ["More decisions of every expert, above all in states where few were made, or fewer reward parameters (features)."]
    if not any(findings.given):
        return ["More decisions of every expert: these are no likelier than by chance."]
    widths = findings.intervals[:, 1] - findings.intervals[:, 0]
    wide = widths > WANTED_WIDTH
    if (np.isnan(widths) & findings.given & ~np.array(findings.known)).any():
        return ["What to collect depends on the intervals, and not all of these are known."]
    if not wide.any():
        return [f"Nothing more is needed: no interval is wider than {WANTED_WIDTH:g}."]
    more = findings.episodes[wide] * ((widths[wide] / WANTED_WIDTH) ** 2 - 1)
    if len(findings.given) > NAMED_EXPERTS:
        wanted = rounded(int(np.ceil(np.median(more))))
        return [f"About {wanted} more episodes of each expert would narrow half of the wider intervals to {WANTED_WIDTH:g}."]
    wanted = from_to([rounded(int(np.ceil(number))) for number in (more.min(), more.max())])
    whom = "every expert" if wide[findings.given].all() else f"the {count(int(wide.sum()), 'expert')} with wider intervals"
    return [f"About {wanted} more episodes of {whom} would narrow every interval to {WANTED_WIDTH:g}."]


def interval_meaning(findings: Findings) -> str:
    """What an interval means here."""
    ends = f"0 or {findings.largest_discount:g}"
    limit = ""
    if findings.largest_discount < 1:
        limit = f" In a task that may never end, {findings.largest_discount:g} is the largest discount tried, and ≥ marks it."
    if findings.quick:
        return f"To save time, a 95 % interval is the estimate and 1.96 standard errors either way, cut at {ends}.{limit}"
    return (
        "A 95 % interval holds every discount that the decisions do not contradict, with all other unknowns free to follow. If "
        "the model is right, 19 of 20 such intervals hold the true discount. An interval that ends at "
        f"{ends} means that the decisions do not exclude even that.{limit}"
    )


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
