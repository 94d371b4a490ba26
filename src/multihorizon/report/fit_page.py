"""The report of a fit: verdicts on top, then horizons, reward, model checks, and how it was made.

Experts stand in one order throughout, from the shortest horizon to the longest. Names of experts and states are text of the page
and never part of a picture, so they may be long and in any script.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from multihorizon.checks import Floats
from multihorizon.likelihood.model_checks import FEWEST_DECISIONS, MODELS, ODD, WORST
from multihorizon.report.advice import NAMED_EXPERTS, interval_meaning
from multihorizon.report.analysis import Analysis
from multihorizon.report.findings import LEVEL
from multihorizon.report.fit_figures import NORMAL_QUANTILE, calibration_figure, choices_figure, people_figure, reward_figure
from multihorizon.report.formats import (
    count,
    decimals,
    interval_steps_text,
    interval_text,
    own_discount_text,
    own_steps_text,
    p_cell,
    p_text,
    sizes,
)
from multihorizon.report.goals_section import UNIT, goals_sections
from multihorizon.report.html import Bar, Cell, Either, Page, Section, cards, listing, paragraph, side_by_side, table, warning
from multihorizon.report.lookahead_section import lookahead_sections
from multihorizon.report.policy_section import policy_sections
from multihorizon.report.population_section import population_cards, population_sections
from multihorizon.report.recover_page import recovery_sections
from multihorizon.report.rulers import Ruler
from multihorizon.solution import Status, package_version

#: Up to this many experts the decisions of each are listed state by state.
LISTED_EXPERTS = 8


def fit_page(analysis: Analysis, options: dict[str, Any]) -> Page:
    """The report."""
    found = analysis
    return Page(
        "How far ahead each expert plans",
        sizes(found),
        [
            *population_sections(found),
            _horizons(found),
            *lookahead_sections(found),
            *recovery_sections(found),
            *goals_sections(found),
            _identifiability(found),
            _reward(found),
            *policy_sections(found),
            _fit(found),
            _decisions(found),
            _method(found, options),
        ],
        f"multihorizon {package_version()}, seed {found.solution.seed}",
        [
            *(warning(text) for text in found.warnings),
            cards([*population_cards(found), *((v.question, v.answer, v.kind) for v in found.verdicts)]),
            paragraph(" ".join(v.reasons for v in found.verdicts)),
        ],
        [(k, found.solution.experts[k]) for k in found.order],
    )


def _horizons(found: Analysis) -> Section:
    steps = "1/(1−γ) steps" if np.isinf(found.steps) else f"1 + γ + γ² + … over the {found.steps} steps of the task"
    look, ruler = Either("discount γ", "horizon, steps"), Ruler.over(found.solution.discounts[found.given].tolist(), found.steps)
    headers: list[str | Either] = ["expert", look, "95 % interval", ruler.title, "temperature", "decisions", "pseudo-R²"]
    rows = [_person(found, k, ruler) for k in found.order]
    blocks = [table(headers, rows, "Experts from the shortest horizon to the longest", [[k] for k in found.order])]
    if sum(found.given) > NAMED_EXPERTS:
        blocks.insert(0, people_figure(found, ruler))
    blocks.append(paragraph(f"The horizon is {steps}. {interval_meaning(found)}"))
    blocks.append(
        paragraph("Pseudo-R² is 0 for choices explained no better than by chance, and 1 for choices predicted with certainty.")
    )
    return Section("Planning horizons", [*blocks, *_tests(found)])


def _person(found: Analysis, k: int, ruler: Ruler) -> list[Cell]:
    solution, known = found.solution, found.given[k]
    gamma = float(solution.discounts[k]) if known else np.nan
    low, high = (float(end) for end in found.intervals[k])
    look = Either(own_discount_text(found, k), own_steps_text(found, k), gamma) if known else found.reasons[k]
    heat = decimals(found.temperatures[k], 2)
    return [
        solution.experts[k],
        look,
        Either(interval_text(found, k), interval_steps_text(found, k), low),
        ruler.bar(low, gamma, high),
        heat,
        f"{found.decisions[k]:,.0f}",
        decimals(found.explained[k], 2),
    ]


def _tests(found: Analysis) -> list[str]:
    if found.shared is None:
        return []
    if np.isnan(found.shared.p_value):
        text = "Whether all experts share one discount cannot be tested with these data."
    else:
        held = " (with the penalty that holds the rewards)" if found.solution.evidence["ridge"] else ""
        text = f"Likelihood-ratio test{held} that all experts share one discount: p {p_text(found.shared.p_value)}."
    place = {found.solution.experts[k]: i for i, k in enumerate(found.order)}
    rows: list[list[Cell]] = []
    pairs: list[list[int]] = []
    for test in sorted(found.pairs, key=lambda t: sorted(place[name] for name in t.experts)):
        pairs.append([found.order[place[name]] for name in test.experts])
        names = sorted(test.experts, key=place.__getitem__)
        rows.append([" and ".join(names), decimals(test.statistic, 2), test.degrees, p_cell(test.p_value), p_cell(test.adjusted)])
    headers = ["same discount?", "χ²", "degrees", "p", "p, all pairs (Holm)"]
    return [paragraph(text), table(headers, rows, "Pairs of experts", pairs) if len(rows) > 1 else ""]


def _identifiability(found: Analysis) -> Section:
    blocks = [paragraph(found.verdicts[1].reasons), paragraph("What to collect next:")]
    blocks.append("<ul>" + "".join(f"<li>{paragraph(line)}</li>" for line in found.advice) + "</ul>")
    if found.identification is not None and found.solution.status == Status.NOT_IDENTIFIED:
        blocks += [paragraph("If the fitted policies were known exactly:"), listing(found.identification.summary())]
    return Section("Can the data tell?", blocks)


def _reward(found: Analysis) -> Section:
    tabular, values, errors = found.problem.tabular, found.contrasts.values, found.contrasts.standard_errors
    against = "the reward of the average logged step" if tabular else "zero, that is, from not having the feature"
    text = f"Differences from {against}, with 95 % intervals. {UNIT}"
    text += " A constant added to all rewards does not change the differences." if tabular else ""
    if found.reward_given:
        return Section("The reward they share", [paragraph("The reward was given, so none of it was estimated.")])
    if found.withheld:
        return Section("The reward they share", [paragraph(f"No reward is given. {found.withheld}")])
    blocks = [paragraph(text)]
    if np.isnan(values).all():
        blocks = [paragraph("Many rewards explain the decisions equally well, so none is given.")]
    else:
        drawn = reward_figure(found)
        blocks += [drawn] if drawn is not None else []
        blocks.append(_reward_table(found, values, NORMAL_QUANTILE * errors))
    return Section("The reward they share", blocks)


def _reward_table(found: Analysis, values: Any, half: Any) -> str:
    names = found.problem.parameter_names
    scale = (min(0.0, float(np.nanmin(values - half))), max(0.0, float(np.nanmax(values + half))))
    order = sorted(range(len(names)), key=lambda i: (np.isnan(values[i]), -float(np.nan_to_num(values[i]))))
    rows: list[list[Cell]] = [
        [
            names[i],
            decimals(values[i], 2),
            "not identified" if np.isnan(values[i]) else f"{values[i] - half[i]:.2f} to {values[i] + half[i]:.2f}",
            Bar(values[i] - half[i], values[i], values[i] + half[i], scale),
        ]
        for i in order
    ]
    kind = "state" if found.problem.tabular else "feature"
    return table(
        [kind, "difference" if found.problem.tabular else "weight", "95 % interval", ""],
        rows,
        "Rewards from the largest to the smallest",
    )


def _fit(found: Analysis) -> Section:
    blocks = [paragraph(found.verdicts[2].reasons)]
    each = found.choices_repeat
    drawn = [choices_figure(found), None if found.checks is None else calibration_figure(found.checks)]
    blocks += [side_by_side([picture for picture in drawn if picture]), *_held_out(found, each)]
    return Section("Does the model fit?", [*blocks, *_worst_states(found), *_not_explained(found)])


def _worst_states(found: Analysis) -> list[str]:
    """The states where choices differ from the model by more than chance."""
    compared = found.misfits
    odd = [misfit for misfit in compared if misfit.p_value < ODD]
    if not compared:
        return [paragraph(f"No state has the {FEWEST_DECISIONS} decisions that a comparison with the model needs.")]
    if not odd:
        cases = count(len(compared), "comparison")
        return [paragraph(f"Choices in a state differ from the model by no more than chance in any of {cases}.")]
    rows: list[list[Cell]] = [
        [m.state, m.expert, m.decisions, m.action, decimals(m.taken, 2), decimals(m.predicted, 2), p_cell(m.p_value)]
        for m in odd[:WORST]
    ]
    headers = ["state", "expert", "decisions", "action", "share taken", "predicted", "p (Bonferroni)"]
    caption = (
        f"Where choices differ most from the model, with the action most out of line ({len(odd)} of {len(compared)} comparisons)"
    )
    number = {name: [k] for k, name in enumerate(found.solution.experts)}
    return [table(headers, rows, caption, [number.get(m.expert, []) for m in odd[:WORST]])]


def _held_out(found: Analysis, own_frequencies: bool) -> list[str]:
    checks = found.checks
    if checks is None:
        return []
    models = [model for model in MODELS if own_frequencies or model != "own frequencies"]
    rows: list[list[Cell]] = [
        [checks.experts[k], *(decimals(checks.held_out[m][k], 3) for m in models), decimals(found.chance[k], 3)]
        for k in found.order
    ]
    return [
        paragraph(
            "Each half of the episodes was predicted by a model fitted to the other half. Numbers nearer to zero are better."
        ),
        table(["expert", *models, "chance"], rows, "Mean held-out log-likelihood per decision", [[k] for k in found.order]),
    ]


def _not_explained(found: Analysis) -> list[str]:
    """The experts whose decisions the model does not explain."""
    held_out = None if found.checks is None else found.checks.held_out["this model"]
    lost = [
        k
        for k in sorted(found.order, key=lambda k: float(found.explained[k]))
        if found.reasons[k] == "no better than chance" or (held_out is not None and held_out[k] < found.chance[k])
    ]
    if not lost:
        return (
            [paragraph("Every expert's held-out decisions are predicted better than by chance.")] if held_out is not None else []
        )
    rows: list[list[Cell]] = [
        [
            found.solution.experts[k],
            f"{found.decisions[k]:,.0f}",
            decimals(found.explained[k], 2),
            None if held_out is None else decimals(held_out[k] - found.chance[k], 3),
        ]
        for k in lost
    ]
    headers = ["expert", "decisions", "pseudo-R²", "held out, against chance"]
    return [table(headers, rows, "Who is not explained", [[k] for k in lost])]


def _decisions(found: Analysis) -> Section:
    """How many decisions each expert made in each state."""
    names = found.problem.names
    decisions: dict[str, Floats] = {}
    for expert, owner in zip(found.problem.experts, found.problem.owner, strict=True):
        assert expert.counts is not None
        for state in np.flatnonzero(expert.counts.sum(axis=1)):
            row = decisions.setdefault(expert.mdp.state_names[state], np.zeros(len(names)))
            row[owner] += expert.counts[state].sum()
    few = len(names) <= LISTED_EXPERTS
    headers = ["state", *([names[k] for k in found.order] if few else ["decisions", "experts who decided"])]
    rows: list[list[Cell]] = [
        [state, *([int(row[k]) for k in found.order] if few else [int(row.sum()), int((row > 0).sum())])]
        for state, row in decisions.items()
    ]
    columns = [[], *([k] for k in found.order)] if few else []
    return Section("Decisions by state", [table(headers, rows, "Decisions in each state", columns=columns)])


def _method(found: Analysis, options: dict[str, Any]) -> Section:
    remarks = [paragraph(text) for text in (found.solution.message, *found.remarks)]
    settings = "; ".join(f"{k}: {', '.join(v) if isinstance(v, list) else v}" for k, v in options.items() if v is not None)
    return Section("How this was made", [*remarks, paragraph(f"Options: {settings}; level of the intervals: {LEVEL:g}.")])
