"""What to collect next: which decisions would narrow the intervals most, and what should come before more decisions."""

from __future__ import annotations

import numpy as np

from multihorizon.finding import Finding
from multihorizon.likelihood.state_reward import REMEDY
from multihorizon.questions.fitted import NAMED_EXPERTS, Fitted, named
from multihorizon.solution import Status
from multihorizon.words import VAGUE_WIDTH

#: An interval this narrow distinguishes most horizons.
WANTED_WIDTH = 0.1


def advice(fitted: Fitted, fit: Finding) -> list[str]:
    """Return what to collect next, one sentence for each thing."""
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
            "More decisions do not mend a model that does not fit. See in the report where it fails: something that the experts "
            "act on may be missing from the states, or from the features."
        ]
    if not any(fitted.given):
        return [
            "First see whether these choices depend on where actions lead: they are no likelier than by chance. If they do not, "
            "more decisions say no more."
        ]
    widths = fitted.intervals[:, 1] - fitted.intervals[:, 0]
    wide = widths > WANTED_WIDTH
    if fitted.one_discount_is_open and (widths > VAGUE_WIDTH).any():
        return separating
    if (np.isnan(widths) & fitted.given & ~np.array(fitted.known)).any():
        return ["What to collect depends on the intervals, and not all of these are known."]
    if not wide.any():
        return [f"Nothing more is needed: no interval is wider than {WANTED_WIDTH:g}."]
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
    more = fitted.episodes[wide] * ((widths[wide] / WANTED_WIDTH) ** 2 - 1)

    def rounded(number: float) -> str:  # two significant digits: it is an estimate
        whole = int(np.ceil(number))
        return f"{round(whole, -max(0, len(str(whole)) - 2)):,}"

    if len(fitted.given) > NAMED_EXPERTS:
        wanted = rounded(float(np.median(more)))
        return [
            f"About {wanted} more episodes like these, of each, would narrow half of the wider intervals to {WANTED_WIDTH:g}.",
            *rest,
        ]
    wanted = rounded(float(more.max()))
    names = [fitted.solution.experts[k] for k in np.flatnonzero(wide)]
    whom = "every expert" if wide[fitted.given].all() else named(fitted, names)
    return [f"About {wanted} more episodes like these, of {whom}, would narrow their intervals to {WANTED_WIDTH:g}.", *rest]
