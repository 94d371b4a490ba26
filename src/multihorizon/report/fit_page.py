"""The report of a fit: verdicts on top, then horizons, reward, model checks, and how it was made.

Experts stand in one order throughout, from the shortest horizon to the longest. Names of experts and states are text of the page
and never part of a picture, so they may be long and in any script.

The page of a fit to states that are vectors: who looks how far, the reward over pairs of coordinates, and how it was found.

The report of `multihorizon identify`: can these decisions, and any number of others like them, tell the discounts?
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from multihorizon.analysis import (
    LEVEL,
    NAMED_EXPERTS,
    Analysis,
    SampledAnalysis,
    interval_meaning,
    interval_steps_text,
    interval_text,
    most_steps,
    own_discount_text,
    own_steps_text,
    person_cells,
    sizes,
)
from multihorizon.checks import Floats
from multihorizon.estimate.sieve import grid
from multihorizon.exact.identify import Identification
from multihorizon.questions.model_checks import FEWEST_DECISIONS, MODELS, ODD, WORST
from multihorizon.report.charts import (
    Bar,
    Cell,
    Either,
    Page,
    Ruler,
    Section,
    badge,
    cards,
    figure,
    listing,
    look_ahead,
    look_ahead_range,
    paragraph,
    side_by_side,
    table,
    warning,
)
from multihorizon.report.plots import literal
from multihorizon.report.sections import (
    NORMAL_QUANTILE,
    UNIT,
    calibration_figure,
    choices_figure,
    goals_sections,
    lookahead_sections,
    people_figure,
    policy_sections,
    population_cards,
    population_sections,
    recovery_sections,
    reward_figure,
)
from multihorizon.result import package_version
from multihorizon.solution import Solution, Status
from multihorizon.text import count, decimals, p_cell, p_text

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


#: At most so many coordinates have their pairs drawn.
MOST_DRAWN = 4


def sampled_page(found: SampledAnalysis, options: dict[str, Any]) -> Page:
    """The whole page."""
    solution = found.solution
    return Page(
        title="How far ahead do they plan?",
        lead=f"{count(len(solution.experts), 'expert')}, {count(len(found.steps), 'decision')}, in states of "
        f"{count(len(found.steps.coordinates), 'number')}.",
        opening=[
            *(warning(text) for text in found.warnings),
            cards([(verdict.question, verdict.answer, verdict.kind) for verdict in found.verdicts]),
            paragraph(" ".join(verdict.reasons for verdict in found.verdicts)),
        ],
        sections=[
            _horizons_of_steps(found),
            _reward_of_steps(found),
            _dynamics(found),
            _method_of_steps(found, options),
        ],
        footer=f"multihorizon {package_version()}, seed {solution.seed}",
    )


def _horizons_of_steps(found: SampledAnalysis) -> Section:
    rows: list[list[Cell]] = []
    for k, name in enumerate(found.solution.experts):
        low, high = found.intervals[k].tolist()
        bar = Bar(low, float(found.solution.discounts[k]) if found.given[k] else np.nan, high, (0.0, 1.0))
        *look, heat = person_cells(found, k)
        rows.append([name, *look, bar, heat, int(found.decisions[k])])
    headers = ["expert", "horizon in steps", "discount", f"{100 * LEVEL:.0f} % interval", "", "temperature", "decisions"]
    blocks = [table(headers, rows, "Effective horizons are 1/(1 − discount).")]
    if found.pairs:
        tests: list[list[Cell]] = [
            [" and ".join(test.experts), float(test.discount), float(test.statistic), test.degrees, p_cell(test.adjusted)]
            for test in found.pairs
        ]
        blocks.append(
            table(["pair", "one discount", "χ²", "degrees", "p (Holm)"], tests, "Do two experts look equally far ahead?")
        )
    return Section("Who looks how far ahead", blocks)


def _reward_of_steps(found: SampledAnalysis) -> Section:
    """The reward over each pair of the coordinates it depends on; over one, as a curve."""
    names = found.functions.coordinates
    whole = [i for i in range(len(names)) if "=" not in names[i]][:MOST_DRAWN]
    if found.withheld:
        return Section("What they are after", [paragraph("No reward is given, because no maximum of the likelihood was found.")])
    text = "What arriving somewhere pays, measured from the average logged arrival."
    blocks = [paragraph(f"{text} Blue pays more and red less. Grey: nobody was near.")]
    for pair in combinations(whole, 2):
        blocks.append(figure(_surface(found, pair), f"Reward over {names[pair[0]]} and {names[pair[1]]}."))
    if len(whole) == 1:
        blocks.append(figure(_curve(found, whole[0]), f"Reward over {names[whole[0]]}, with 95 % intervals."))
    if found.solution.evidence["left_out"]:
        left = ", ".join(found.solution.evidence["left_out"])
        blocks.append(paragraph(f"Left out, because nobody acts on them: {left}."))
    return Section("What they are after", blocks)


def _surface(found: SampledAnalysis, pair: tuple[int, int]) -> Axes:
    names = found.functions.coordinates
    x, y, reward, near = grid(found.functions, pair)
    shown = np.where(np.isnan(near), np.nan, reward)
    limit = float(np.nanmax(np.abs(shown)))
    axes = Figure(figsize=(5.0, 4.0), layout="constrained").subplots()
    axes.set_facecolor("0.85")
    drawn = axes.pcolormesh(x, y, shown.T, cmap="RdBu", vmin=-limit, vmax=limit, shading="nearest")
    axes.figure.colorbar(drawn, ax=axes, label="reward")
    axes.set_xlabel(literal(names)[pair[0]])
    axes.set_ylabel(literal(names)[pair[1]])
    return axes


def _curve(found: SampledAnalysis, place: int) -> Axes:
    steps = found.functions.point.likelihood.problem.steps
    arrived = steps.next_states[steps.known_next]
    points = np.tile(np.median(arrived, axis=0), (200, 1))
    points[:, place] = np.linspace(arrived[:, place].min(), arrived[:, place].max(), 200)
    reward, error = found.functions.reward(points), found.functions.reward_errors(points)
    axes = Figure(figsize=(5.0, 3.0), layout="constrained").subplots()
    axes.fill_between(points[:, place], reward - 1.96 * error, reward + 1.96 * error, alpha=0.3)
    axes.plot(points[:, place], reward)
    axes.set_xlabel(literal(found.functions.coordinates)[place])
    axes.set_ylabel("reward")
    return axes


def _dynamics(found: SampledAnalysis) -> Section:
    evidence = found.solution.evidence
    rows: list[list[Cell]] = [[name, float(r2)] for name, r2 in evidence["next_state_r2"].items()]
    overlap: list[list[Cell]] = [
        [name, f"{100 * share:.0f} %"] for name, share in zip(found.solution.experts, evidence["overlap"], strict=True)
    ]
    return Section(
        "What the log says about the task",
        [
            paragraph("Where actions lead was learned from the same steps, and tested on every third episode."),
            table(["coordinate", "share of its change that is predicted"], rows),
            table(["expert", "decisions made where others decided too"], overlap),
        ],
    )


def _method_of_steps(found: SampledAnalysis, options: dict[str, Any]) -> Section:
    evidence = found.solution.evidence
    tried: list[list[Cell]] = [
        [str(row["basis"]), int(row["functions"]), float(row["penalty"]), f"{row['held_out']:.5f}"] for row in evidence["tried"]
    ]
    blocks = [
        paragraph(
            f"{found.solution.message} The first stage is {evidence['first_stage']}; the penalty on roughness is "
            f"{evidence['penalty']:g}. Status: {found.solution.status}."
        )
    ]
    if tried:
        blocks.append(table(["basis", "functions", "penalty", "held-out log-likelihood per decision"], tried))
    blocks.append(listing("\n".join(f"{name}: {value}" for name, value in options.items() if value is not None)))
    return Section("How it was found", blocks)


#: What cannot be told is no failure of the fit, but it is bad news.
KINDS = {Status.CONVERGED: "good", Status.NOT_IDENTIFIED: "bad", Status.NOT_CONVERGED: "bad"}


def identify_page(solution: Solution, exact: Identification | None, remarks: Sequence[str]) -> Page:
    """The report: these decisions, exact policies, and how it was made."""
    these = [badge(these_decisions(solution), KINDS.get(solution.status, "")), paragraph(solution.message)]
    if solution.status == Status.NOT_CONVERGED:
        these.append(paragraph("So what follows is about policies that need not be the experts'."))
    else:
        these.append(_experts(solution))
    sections = [
        Section("These decisions", these),
        Section("If the fitted policies were known exactly", _exact(exact, most_steps(solution.require_problem()))),
        Section("How this was made", [paragraph(remark) for remark in remarks or ["Transitions were given."]]),
    ]
    lead = f"{count(len(solution.experts), 'expert')}, {count(int(solution.evidence['decisions']), 'decision')}."
    footer = f"multihorizon {package_version()}, seed {solution.seed}"
    return Page("Can these decisions tell?", lead, sections, footer, experts=list(enumerate(solution.experts)))


def these_decisions(solution: Solution) -> str:
    """Whether the decisions at hand identify the discounts."""
    if solution.status == Status.NOT_CONVERGED:
        return "The fit to these decisions did not converge."
    told, number = sum(solution.evidence["identified"]), len(solution.experts)
    if 0 < told < number:
        return f"These decisions identify {told} of {number} discounts."
    return f"These decisions {'identify' if told else 'do not identify'} the discounts."


def _experts(solution: Solution) -> str:
    """Whether the decisions identify each discount."""
    told, steps = list(solution.evidence["identified"]), most_steps(solution.require_problem())
    rows: list[list[Cell]] = [
        [name, "yes" if known else "no", look_ahead(float(gamma), steps) if known else None]
        for name, known, gamma in zip(solution.experts, told, solution.discounts, strict=True)
    ]
    caption = "Whether these decisions identify each discount"
    headers: list[str | Either] = ["expert", "identified", Either("discount γ", "horizon, steps")]
    return table(headers, rows, caption, [[k] for k in range(len(rows))])


def _exact(exact: Identification | None, steps: float) -> list[str]:
    """What the fitted policies would identify."""
    if exact is None:
        return [paragraph("Whether exact policies would identify the discounts cannot be told for this problem.")]
    ruler = Ruler.over(exact.intervals.ravel().tolist(), steps)
    rows: list[list[Cell]] = [
        [name, look_ahead_range((low, high), steps), ruler.bar(low, float(gamma), high)]
        for name, gamma, (low, high) in zip(exact.experts, exact.discounts, exact.intervals.tolist(), strict=True)
    ]
    caption = "The smallest and the largest discount that explain each expert"
    headers: list[str | Either] = ["expert", Either("discounts", "horizons, steps"), ruler.title]
    ranges = table(headers, rows, caption, [[k] for k in range(len(rows))])
    return [badge(exact.status, "good" if exact.status == "unique" else "bad"), listing(exact.summary()), ranges]
