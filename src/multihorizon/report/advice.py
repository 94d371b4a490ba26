"""What a reader must know before any number, what an interval means here, and what to collect next."""

from __future__ import annotations

import numpy as np

from multihorizon.report.findings import Findings, Judged
from multihorizon.report.formats import count, from_to, in_words, p_text, rounded
from multihorizon.solution import Status

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
