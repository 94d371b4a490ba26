"""The page of a fit: the answer to what was asked and its picture on top, then verdicts, groups, horizons, the reward, what it
makes best, model checks, what to write of it, and how it was made.

States may be a list or vectors, and experts may be fitted one by one or be very many: the page is the same list of sections, and
each function says by itself whether its sections apply. The reward of vectors is drawn over pairs of their coordinates. Experts
stand in one order throughout, from the shortest horizon to the longest. Names of experts and states are text of the page and
never part of a picture, so they may be long and in any script.

To add a section, write a function that gives its `Section`, and name it in `SECTIONS`. Hand tables and marks the numbers of the
experts that a row or a mark belongs to, so that it follows the reader's choice of experts. Write a look-ahead as an `Either`, so
that it follows the choice between discount and horizon. The script finds both by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from multihorizon.analysis import Analysis
from multihorizon.checks import Floats
from multihorizon.likelihood.estimates import SieveEvidence
from multihorizon.mdp import MDP
from multihorizon.population.findings import PopulationEvidence
from multihorizon.problem import Expert, require_counts
from multihorizon.questions.differences import population_words
from multihorizon.questions.goal_comparison import QUESTION, GoalCheck, deviation_words
from multihorizon.questions.horizons import half_life_text, interval_text, own_discount_text, own_steps_text, sizes, steps_text
from multihorizon.questions.model_checks import FEWEST_DECISIONS, ODD, WORST
from multihorizon.questions.people import CONDITIONS
from multihorizon.report.charts import (
    DIAGONAL,
    UNITS,
    Axis,
    Bar,
    Beside,
    Block,
    Cards,
    Chart,
    Either,
    Items,
    Lead,
    Line,
    Listing,
    Mark,
    Notice,
    Page,
    PageTable,
    Panel,
    Quote,
    Ruler,
    Section,
    ShadedPlane,
    Subheading,
    look_ahead,
    look_ahead_range,
    number_ticks,
)
from multihorizon.report.maps import MOST_CELLS, Person, expected_in, explorer, grid_map, heat_map, natural
from multihorizon.report.pages import (
    UNIT_OF_REWARD,
    goals_blocks,
    lookahead_blocks,
    options_text,
    recovery_blocks,
    robustness_blocks,
)
from multihorizon.report.people import (
    condition_figures,
    conditions_section,
    distribution_section,
    explained_table,
    groups_figure,
    groups_section,
    persons_section,
    population_figures,
    population_section,
    shown_groups,
    temperatures_figure,
    types_section,
)
from multihorizon.result import package_version
from multihorizon.solution import Deviations, Solution, Status
from multihorizon.words import LEVEL, count, decimals, p_text, shortened, signed, significant


def fit_page(analysis: Analysis, options: dict[str, Any]) -> Page:
    """Return the report of a fit."""
    people = analysis.people
    answer = answer_blocks(analysis)
    sections = [section for part in SECTIONS for section in part(analysis)]
    figures = _figures(analysis)
    return Page(
        "How far ahead each expert plans" if people is None else "How far ahead people plan",
        sizes(analysis),
        [*sections, writing_section(analysis), _method(analysis, options)],
        f"multihorizon {package_version()}, seed {analysis.solution.seed}",
        [
            *([Beside(figures)] if figures else []),
            *map(Notice, [*analysis.notices[1], *([] if people is None else people.absent)]),
            _cards(analysis),
            *([] if people is None or analysis.withheld else population_words(people.solution, analysis.horizon)),
        ],
        [] if people is not None else [(k, analysis.solution.experts[k]) for k in analysis.order],
        answer,
    )


def _figures(analysis: Analysis) -> list[Block]:
    """Return the pictures that answer what was asked: of groups or conditions where they were asked about, else of each
    expert."""
    if analysis.population is None:
        return [_people_figure(analysis)] if any(analysis.given) and not analysis.withheld else []
    population = PopulationEvidence.of(analysis.population).population
    if analysis.people is not None:
        if analysis.withheld or population.types is not None:
            return []
        of_groups = condition_figures(population, analysis.horizon, {}) or [groups_figure(analysis.people, analysis.horizon)]
        return [*of_groups, temperatures_figure(analysis.people)]
    if analysis.population.status != Status.CONVERGED:
        return []
    place = {name: k for k, name in enumerate(analysis.solution.experts)}
    return condition_figures(population, analysis.horizon, place) or population_figures(analysis, analysis.population)


def _cards(analysis: Analysis) -> Cards:
    """Return every finding with the reasons that the answer on top has not given."""
    found = analysis.findings.values()
    reasons = ["" if each.reasons in analysis.answer else each.reasons.removeprefix(analysis.answer).strip() for each in found]
    return Cards([(each.question, each.answer, why, each.kind) for each, why in zip(found, reasons, strict=True)])


# The sections.


def _people(analysis: Analysis) -> list[Section]:
    """Return groups, conditions and people, where a population was asked about."""
    if analysis.population is None:
        return []
    population, people = PopulationEvidence.of(analysis.population).population, analysis.people
    if people is None:
        first = [population_section(analysis, analysis.population)]
        if analysis.population.status != Status.CONVERGED:
            return first
    elif population.types is not None and (not analysis.withheld or analysis.solution.status == Status.NOT_IDENTIFIED):
        return types_section(population, analysis.horizon)
    elif analysis.withheld:
        return []
    else:
        first = [groups_section(analysis, people)]
    conditions = conditions_section(population, analysis.horizon, "conditions.csv" if people is None else CONDITIONS)
    persons = [] if people is None else [persons_section(people, analysis.horizon)]
    return [*first, *conditions, *distribution_section(population, analysis.horizon), *persons]


def _horizons(analysis: Analysis) -> list[Section]:
    """Return each expert's discount with its interval, and tests of shared discounts."""
    if analysis.people is not None:
        return []
    solution, order = analysis.solution, analysis.order
    ruler = Ruler.over(solution.discounts[analysis.given].tolist(), analysis.horizon)
    rows = []
    for k in order:
        gamma = float(solution.discounts[k]) if analysis.given[k] else np.nan
        look = Either(own_discount_text(analysis, k), own_steps_text(analysis, k), gamma)
        low, high = analysis.intervals[k].tolist()
        rows.append(
            [
                solution.experts[k],
                look if analysis.given[k] else analysis.reasons[k],
                Either(interval_text(analysis, k), interval_text(analysis, k, steps_text), low),
                ruler.bar(low, gamma, high),
                *([half_life_text(analysis, k)] if analysis.horizon.timed else []),
                decimals(analysis.temperatures[k], 2),
                decimals(analysis.decisions[k], 0),
                decimals(analysis.explained[k], 2),
            ]
        )
    title = Either("discount γ", f"horizon, {analysis.horizon.many}")
    half_life = [f"half-life, {analysis.horizon.many}"] if analysis.horizon.timed else []
    headers = ["expert", title, "95% CI", ruler.title, *half_life, "temperature", "decisions", "pseudo-R²"]
    table = PageTable(headers, rows, "Experts from the shortest horizon to the longest", [[k] for k in order])
    drawn = any(analysis.given) and analysis.population is not None  # else the picture opens the page
    blocks: list[str | Block] = [_people_figure(analysis), table] if drawn else [table]
    meaning = f" {_interval_meaning(analysis)}" if analysis.functions is None else ""
    blocks.append(f"{analysis.horizon.meaning}{meaning}")
    blocks.append("Pseudo-R² is 0 for choices explained no better than by chance, and 1 for choices predicted with certainty.")
    if analysis.shared is None:
        return [Section("Planning horizons", blocks)]
    if np.isnan(analysis.shared.p_value):
        why = f": {analysis.shared.reason}" if analysis.shared.reason else ""
        blocks.append(f"Whether all experts share one discount cannot be tested with these data{why}.")
    else:
        held = " (with the penalty that holds the rewards)" if getattr(analysis.evidence, "ridge", 0.0) else ""
        kind = "Test" if analysis.functions is not None else f"Likelihood-ratio test{held}"
        blocks.append(f"{kind} that all experts share one discount: p {p_text(analysis.shared.p_value)}.")
    place = {solution.experts[k]: i for i, k in enumerate(order)}
    tests, pairs = [], []
    for test in sorted(analysis.pairs, key=lambda t: sorted(place[name] for name in t.experts)):
        names = sorted(test.experts, key=place.__getitem__)
        pairs.append([order[place[name]] for name in test.experts])
        p = p_text(test.p_value, ""), p_text(test.adjusted, "")
        tests.append([" and ".join(names), decimals(test.statistic, 2), test.degrees, *p])
    if len(tests) > 1:
        headers = ["same discount?", "χ²", "degrees", "p", "p, all pairs (Holm)"]
        blocks.append(PageTable(headers, tests, "Pairs of experts", pairs))
    return [Section("Planning horizons", blocks)]


def _interval_meaning(analysis: Analysis) -> str:
    """Return what an interval means here."""
    ends = f"0 or {analysis.largest_discount:g}"
    limit = ""
    if analysis.largest_discount < 1:
        limit = f" In a task that may never end, {analysis.largest_discount:g} is the largest discount tried, and ≥ marks it."
    if analysis.quick:
        return f"To save time, a 95% CI is the estimate and 1.96 standard errors either way, cut at {ends}.{limit}"
    return (
        "A 95% CI holds every discount that the decisions do not contradict, with all other unknowns free to follow. If "
        "the model is right, 19 of 20 such intervals hold the true discount. An interval that ends at "
        f"{ends} means that the decisions do not exclude even that.{limit}"
    )


def _people_figure(analysis: Analysis) -> Block:
    """Draw every discount with its interval, from the shortest horizon at the bottom to the longest; a few experts by name."""
    order = [k for k in analysis.order if analysis.given[k]]
    ruler = Ruler.over(analysis.solution.discounts[order].tolist(), analysis.horizon)
    size = float(np.clip(150 / len(order), 1.5, 4.0))
    named = len(order) <= 24
    panels = []
    for unit in UNITS:
        marks, names = [], []
        for row, k in enumerate(order):
            low, high = (ruler.place(float(end), unit) for end in analysis.intervals[k])
            tip = (
                f"{analysis.solution.experts[k]}\n"
                f"γ {own_discount_text(analysis, k)}, {own_steps_text(analysis, k)} {analysis.horizon.many}\n"
                f"95% CI of γ: {interval_text(analysis, k)}\n{decimals(analysis.decisions[k], 0)} decisions"
            )
            x = ruler.place(float(analysis.solution.discounts[k]), unit)
            y = (row + 0.5) / len(order)
            marks.append(Mark(x, y, tip, [k], size, across=None if np.isnan(low + high) else (low, high)))
            names.append((y, shortened(analysis.solution.experts[k], 30), k))
        experts = Axis("", names) if named else Axis("experts, the longest horizon on top", ())
        panels.append(Panel(ruler.axes[unit], experts, marks, kind=f"in-{unit}"))
    caption = "Each expert's discount with its 95% CI, from the shortest horizon to the longest."
    return Chart(caption, panels, height=float(np.clip(68 + (28 if named else 14) * len(order), 130, 760)))


def _questions(analysis: Analysis) -> list[Section]:
    """Return what else was asked: the shape of look-ahead, simulated studies of this design, and whether goals are shared."""
    names = analysis.solution.experts
    sections: list[Section] = []
    if analysis.lookahead is not None:
        sections.append(Section("In what shape they look ahead", lookahead_blocks(analysis.lookahead, names)))
    if analysis.robustness is not None:
        heading = "Does the conclusion survive other models of choice?"
        sections.append(Section(heading, [analysis.robustness.verdict(), *robustness_blocks(analysis.robustness)]))
    if analysis.recovery is not None:
        sections.append(Section("What can this design show?", recovery_blocks(analysis.recovery)))
    if analysis.goals is not None and analysis.kind == "experts":
        groups = None if analysis.goals.model_fails else analysis.goals.groups
        blocks = [analysis.goals.answer, *_goal_models(analysis, analysis.goals), *_deviations(analysis)]
        sections.append(Section(QUESTION, [*blocks, *([] if groups is None else goals_blocks(groups, names))]))
    return sections


def _goal_models(analysis: Analysis, goals: GoalCheck) -> list[str | Block]:
    """Return one goal, nearly one and several on held-out decisions."""
    compared = goals.comparison
    if compared is None or len(compared.held_out) < 2:
        return []
    rows = []
    for model, held_out, difference, error, supported in compared.to_frame().itertuples(index=False, name=None):
        gain = "–" if model == "one goal" else f"{signed(difference, 4)} ± {decimals(error, 4)}"
        rows.append([model, decimals(held_out, 4), gain, "supported" if supported else ""])
    meaning = (
        "Each half of the episodes was predicted by models fitted to the other half: with one reward, with deviations of each "
        "expert from it, and with a reward for each group of experts. Numbers nearer to zero are better."
    )
    headers = ["model", "held-out log-likelihood per decision", "difference from one goal, ± one standard error", ""]
    return [meaning, PageTable(headers, rows, f"Goals on {decimals(compared.decisions, 0)} held-out decisions")]


def _deviations(analysis: Analysis) -> list[str | Block]:
    """Return how far goals deviate from the shared one, whose do most and where, and the discounts beside those of one reward."""
    deviations, solution, problem = analysis.deviations, analysis.solution, analysis.problem
    if deviations is None:
        return []
    low, high = (
        "not found" if np.isnan(end) else "any size" if np.isinf(end) else significant(end, 3) for end in deviations.interval
    )
    interval = "" if deviations.given else f" (95% CI {low} to {high})"
    words = deviation_words(deviations)
    text = f"Deviations have a standard deviation of {significant(deviations.spread, 3)}{interval} in units of reward: {words}."
    names, values = problem.parameter_names, deviations.values
    places = sorted(np.ndindex(*values.shape), key=lambda place: (-abs(values[place]), place))[:10]
    rows = [
        [
            solution.experts[place[0]],
            names[place[1]],
            signed(float(values[place]), 2),
            decimals(float(deviations.errors[place]), 2),
        ]
        for place in places
    ]
    kind = "state" if problem.tabular else "feature"
    headers = ["expert", kind, "deviation", "standard error"]
    largest = PageTable(headers, rows, "The largest deviations from the shared reward", [[k] for k, _ in places])
    return [text, *_deviation_maps(analysis, deviations), largest, *_discounts_beside(analysis, deviations)]


def _deviation_maps(analysis: Analysis, deviations: Deviations) -> list[Block]:
    """Return deviations of the experts who deviate most, on the grid of the states where they are one, else by expert and
    state."""
    problem, solution, values = analysis.problem, analysis.solution, deviations.values
    mdp = problem.experts[0].mdp
    most = float(np.abs(values).max())
    names = problem.parameter_names

    def tips(k: int) -> list[str]:
        pairs = zip(names, values[k], deviations.errors[k], strict=True)
        return [f"{solution.experts[k]}\n{name}: {signed(value, 2)} ± {decimals(error, 2)}" for name, value, error in pairs]

    experts = sorted(range(len(values)), key=lambda k: (-float(np.abs(values[k]).max()), k))
    colours = "Blue is more than what all share, orange less. Point at a cell to see its number."
    if names == mdp.state_names and mdp.grid_shape is not None and mdp.n_states <= MOST_CELLS:
        maps = [
            grid_map(mdp, values[k], tips(k), f"{solution.experts[k]}: deviations from the shared reward.", scale=(0.0, most))
            for k in experts[:4]
        ]
        few = f"Shown are those who deviate most, {len(maps)} of {len(values)}. " if len(values) > len(maps) else ""
        return [Beside(maps), Items([f"{few}{colours}"])]
    rows = analysis.order if len(experts) <= 40 else experts[:40]
    columns = sorted(np.argsort(-np.abs(values).max(axis=0), kind="stable")[:24].tolist(), key=lambda j: natural(names[j]))
    said = [tips(k)[j] for k in rows for j in columns]
    what = "state" if problem.tabular else "feature"
    caption = (
        f"Deviations from the shared reward: one row per expert, from the shortest horizon down, one column per {what}. {colours}"
    )
    shown = [solution.experts[k] for k in rows], [names[j] for j in columns]
    return [heat_map(*shown, values[np.ix_(rows, columns)], said, caption, most)]


def _discounts_beside(analysis: Analysis, deviations: Deviations) -> list[Block]:
    """Return the discounts of the nearly shared goal beside those of one reward for all, as a table and a picture."""
    alike = deviations.if_shared["discounts"]
    errors = 1.96 * deviations.if_shared["standard_errors"]
    ends = np.clip(np.stack([alike - errors, alike + errors], axis=1), 0.0, analysis.largest_discount)
    order = [k for k in analysis.order if analysis.given[k]]
    if not order:
        return []
    ruler = Ruler.over([*analysis.solution.discounts[order].tolist(), *alike[order].tolist()], analysis.horizon)
    rows = [
        [
            analysis.solution.experts[k],
            Either(own_discount_text(analysis, k), own_steps_text(analysis, k), float(analysis.solution.discounts[k])),
            Either(interval_text(analysis, k), interval_text(analysis, k, steps_text), float(analysis.intervals[k, 0])),
            look_ahead(float(alike[k]), analysis.horizon),
            look_ahead_range(ends[k].tolist(), analysis.horizon),
        ]
        for k in order
    ]
    headers = ["expert", "nearly one goal", "95% CI", "one goal", "95% CI from standard errors"]
    caption = "Look-ahead where goals are nearly shared, and what it would be with one reward for all"
    table = PageTable(headers, rows, caption, [[k] for k in order])
    panels = []
    for unit in UNITS:
        marks = []
        for row, k in enumerate(order):
            models = (("nearly one goal", analysis.solution.discounts[k], analysis.intervals[k]), ("one goal", alike[k], ends[k]))
            for colour, (name, gamma, interval) in enumerate(models):
                low, high = (ruler.place(float(end), unit) for end in interval)
                tip = f"{analysis.solution.experts[k]}, {name}\nγ {decimals(float(gamma), 3)}"
                y = 1 - (row + 0.35 + 0.3 * colour) / len(order)
                across = None if np.isnan(low + high) else (low, high)
                marks.append(Mark(ruler.place(float(gamma), unit), y, tip, [k], across=across, colour=colour))
        panels.append(Panel(ruler.axes[unit], Axis("experts, the shortest horizon on top", ()), marks, kind=f"in-{unit}"))
    height = float(np.clip(80 + 30 * len(order), 160, 560))
    return [
        table,
        Chart("The same: of each pair, the upper one allows for deviations, the lower one has one reward.", panels, height),
    ]


def _identifiability(analysis: Analysis) -> list[Section]:
    if analysis.kind != "experts":
        return []
    finding = analysis.findings["identified"]
    blocks: list[str | Block] = [finding.reasons, "What to collect next:", Items(finding.content["collect_next"])]
    if analysis.identification is not None and analysis.solution.status == Status.NOT_IDENTIFIED:
        blocks += ["If the fitted policies were known exactly:", Listing(analysis.identification.sentences())]
    return [Section("Can the data tell?", blocks)]


def _reward(analysis: Analysis) -> list[Section]:
    """Return the reward with its intervals: as differences where experts were fitted, on the grid of the states where they are
    one."""
    if analysis.sieve is not None:
        return [_reward_over_coordinates(analysis, analysis.sieve)]
    heading = "The reward they share"
    if analysis.people is not None and analysis.withheld:
        return []
    if analysis.reward_given:
        return [Section(heading, ["The reward was given, so none of it was estimated."])]
    if analysis.withheld:
        return [Section(heading, [f"No reward is given. {analysis.withheld}"])]
    if analysis.people is not None:
        frame = analysis.reward_frame()
        names = [*map(str, frame.index)]
        values = frame["reward"].to_numpy()
        half = 1.96 * frame["standard_error"].to_numpy()
        return [Section(heading, [UNIT_OF_REWARD, _rewards_table("parameter", "reward", names, values, half)])]
    problem = analysis.problem
    values = analysis.contrasts.values
    half = 1.96 * analysis.contrasts.standard_errors
    if np.isnan(values).all():
        return [Section(heading, ["Many rewards explain the decisions equally well, so none is given."])]
    kind, against, also = "feature", "zero, that is, from not having the feature", ""
    if problem.tabular:
        kind, against = "state", "the reward of the average logged step"
        also = " A constant added to all rewards does not change the differences."
    blocks: list[str | Block] = [f"Differences from {against}, with 95% CIs. {UNIT_OF_REWARD}{also}"]
    mdp = problem.experts[0].mdp
    if problem.parameter_names == mdp.state_names and mdp.grid_shape is not None:
        blocks.append(_reward_map(analysis, mdp, mdp.grid_shape))
    column = "difference" if problem.tabular else "weight"
    return [Section(heading, [*blocks, _rewards_table(kind, column, problem.parameter_names, values, half)])]


def _reward_map(analysis: Analysis, mdp: MDP, shape: tuple[int, int]) -> Block:
    """Draw the rewards of states on their grid."""
    of_states, tips = _states(analysis, mdp)
    caption = "Rewards as differences from the average logged step. "
    if mdp.n_states > MOST_CELLS:
        height, width = shape
        middle = float(np.nanmedian(of_states))
        most = float(np.nanmax(np.abs(of_states - middle)))
        cells = ShadedPlane(np.arange(width + 1.0), np.arange(height + 1.0), of_states.reshape(shape).T, middle, most)
        across, down = (number_ticks(0.0, float(size)) for size in (width, height))
        axes = Axis("column", across, 0.0, width), Axis("row", down, height, 0.0)
        text = f"{caption}Blue cells pay more than the middle one, orange cells less; grey is not known."
        return Chart(text, [Panel(*axes, [], surface=cells)], float(np.clip(56 + 358 * height / width, 150, 760)))
    caption += "Blue cells pay more than the middle one, orange cells less; grey is not known. "
    return grid_map(mdp, of_states, tips, f"{caption}Dashed frames end the episode.")


def _rewards_table(kind: str, column: str, names: Sequence[str], values: Floats, half: Floats) -> PageTable:
    """Return rewards with their intervals, from the largest to the smallest."""
    scale = min(0.0, float(np.nanmin(values - half))), max(0.0, float(np.nanmax(values + half)))
    order = sorted(range(values.size), key=lambda i: (np.isnan(values[i]), -float(np.nan_to_num(values[i]))))
    rows = []
    for i in order:
        value, low, high = float(values[i]), float(values[i] - half[i]), float(values[i] + half[i])
        interval = "not identified" if np.isnan(value) else f"{decimals(low, 2)} to {decimals(high, 2)}"
        rows.append([names[i], decimals(value, 2), interval, Bar(low, value, high, scale)])
    return PageTable([kind, column, "95% CI", ""], rows, "Rewards from the largest to the smallest")


def _states(analysis: Analysis, mdp: MDP) -> tuple[Floats, list[str]]:
    """Return the reward of each state, zero where rewards are not those of states, and what a state says under the pointer."""
    rewards: dict[str, tuple[float, float]] = {}
    if analysis.people is None and analysis.problem.tabular and not analysis.reward_given:
        pairs = zip(analysis.contrasts.values.tolist(), (1.96 * analysis.contrasts.standard_errors).tolist(), strict=True)
        rewards = dict(zip(analysis.problem.parameter_names, pairs, strict=True))
    tips = []
    for name, end in zip(mdp.state_names, mdp.terminal, strict=True):
        lines = [f"state {name}"]
        if name in rewards:
            value, half = rewards[name]
            lines.append("reward not identified" if np.isnan(value) else f"reward {decimals(value, 2)}")
            if not np.isnan(value - half):
                lines.append(f"95% CI {decimals(value - half, 2)} to {decimals(value + half, 2)}")
        tips.append("\n".join([*lines, *(["the episode ends here"] if end else [])]))
    return np.array([rewards[name][0] if rewards else 0.0 for name in mdp.state_names]), tips


def _best_by_look_ahead(analysis: Analysis) -> list[Section]:
    """Return what the reward makes best as the look-ahead grows, for the first four tasks; nothing without the problem."""
    heading, most_tasks = "What is best, by look-ahead", 4
    if analysis.sieve is not None or (analysis.people is not None and (analysis.withheld or analysis.solution.problem is None)):
        return []
    if analysis.withheld or (analysis.people is None and analysis.solution.status == Status.NOT_IDENTIFIED):
        return [Section(heading, ["No reward is known well enough to say what it makes best."])]
    kind = "given" if analysis.reward_given else "learned"
    blocks: list[str | Block] = [
        "The same reward makes other actions best for those who look farther ahead. The slider goes through the discounts and "
        f"shows the best actions of the {kind} reward at each. {_on_the_slider(analysis)}"
    ]
    if analysis.people is None:
        blocks += _doubts_of_reward(analysis)
    tasks, marked = _tasks(analysis), _marked(analysis)
    for number, (expert, decisions) in enumerate(tasks[:most_tasks], 1):
        if len(tasks) > 1:
            blocks.append(Subheading(f"Task {number} of {len(tasks)}"))
        values, tips = _states(analysis, expert.mdp)
        reward = expected_in(expert, analysis.solution.reward)
        blocks += explorer(
            expert.mdp, reward, marked, values=values, tips=tips, weights=decisions, horizon=analysis.horizon, number=number
        )
    if len(tasks) > most_tasks:
        blocks.append(f"Shown are {most_tasks} of {count(len(tasks), 'task')}.")
    return [Section(heading, blocks)]


def _on_the_slider(analysis: Analysis) -> str:
    """Return whose discounts are marked on the slider."""
    if analysis.people is None:
        return "Experts choose these more often than others, but not always."
    types = analysis.people.population.types
    return f"On it {'stands the typical person of each group' if types is None else 'stand the types'}."


def _doubts_of_reward(analysis: Analysis) -> list[str]:
    """Return why what the reward makes best may not hold."""
    texts = []
    unknown = 0 if analysis.reward_given else int(np.isnan(analysis.contrasts.values).sum())
    if unknown:
        what = count(unknown, "state" if analysis.problem.tabular else "feature")
        texts.append(f"The decisions do not determine the reward of {what}, so best actions that depend on it are not known.")
    if analysis.goals is not None and analysis.goals.rejected:
        texts.append("One reward for all experts is rejected, so what it makes best must not be believed either.")
    elif analysis.deviations is not None:
        texts.append("This is the reward that all share; each expert's own deviates from it.")
    if not analysis.reward_given:
        texts.append("The reward is an estimate: where it is changed a little, the best actions change at other discounts.")
    return texts


def _tasks(analysis: Analysis) -> list[tuple[Expert, Floats]]:
    """Return an expert of each task who made all decisions there, and how many these are in each of its states."""
    everybody = [task.pooled for task in analysis.solution.require_problem().tasks]
    return [(expert, require_counts(expert).sum(axis=1)) for expert in everybody]


def _marked(analysis: Analysis) -> list[Person]:
    """Return who is marked on the slider: experts, or what is typical of the largest groups, or types."""
    if analysis.people is None:
        discounts = analysis.solution.discounts
        return [Person(k, analysis.solution.experts[k], float(discounts[k])) for k in analysis.order if analysis.given[k]]
    types = analysis.people.population.types
    if types is None:
        return [Person(k, group.name, group.typical) for k, group in enumerate(shown_groups(analysis.people, 12)[0])]
    pairs = enumerate(zip(types["discounts"], types["identified"], strict=True))
    return [Person(k, f"type {k + 1}", discount) for k, (discount, identified) in pairs if identified]


def _fit(analysis: Analysis) -> list[Section]:
    """Compare choices with fitted and predicted ones, and name who and what is not explained."""
    if analysis.sieve is not None:
        return []
    blocks: list[str | Block] = [analysis.fit.reasons]
    if analysis.people is not None:
        return [Section(analysis.fit.question, [*blocks, *explained_table(analysis.people)])]
    figures = [_choices_figure(analysis)]
    checks = analysis.checks
    if checks is not None:
        marks = []
        for predicted, taken, weight in checks.calibration.tolist():
            half = 2 * np.sqrt(predicted * (1 - predicted) / weight)
            tip = f"predicted {decimals(predicted, 2)}, taken {decimals(taken, 2)}\nof {decimals(weight, 0)} choices"
            marks.append(Mark(predicted, taken, tip, up=(taken - half, taken + half)))
        axes = Axis("predicted probability of an action"), Axis("share of held-out decisions")
        caption = "Held-out calibration: points on the line mean that predicted probabilities hold. "
        figures.append(Chart(f"{caption}Strokes are two standard errors.", [Panel(*axes, marks, [DIAGONAL])]))
    blocks.append(Beside([drawn for drawn in figures if drawn is not None]))
    if checks is not None:
        repeat = analysis.compared is not None and analysis.compared.repeat
        models = [model for model in checks.held_out if repeat or model != "own frequencies"]
        titles = list(models)
        if np.allclose(checks.held_out["one shared discount"], checks.held_out["discount 0"], rtol=0, atol=1e-3):
            models.remove("discount 0")  # one discount for all that the decisions do not tell from 0 is no other model
            titles = ["one shared discount, as with discount 0" if m == "one shared discount" else m for m in models]
        rows = [
            [checks.experts[k], *(decimals(checks.held_out[m][k], 3) for m in models), decimals(analysis.chance[k], 3)]
            for k in analysis.order
        ]
        blocks.append(
            "Each half of the episodes was predicted by a model fitted to the other half. Numbers nearer to zero are better."
        )
        caption = "Mean held-out log-likelihood per decision"
        blocks.append(PageTable(["expert", *titles, "chance"], rows, caption, [[k] for k in analysis.order]))
    return [Section(analysis.fit.question, [*blocks, _worst_states(analysis), *_not_explained(analysis)])]


def _choices_figure(analysis: Analysis) -> Chart | None:
    """Draw the share of each action in a state against the fitted probability; None where no state has enough decisions."""
    number = {name: k for k, name in enumerate(analysis.solution.experts)}
    if analysis.compared is None:
        return None
    each, dots, most = analysis.compared.repeat, [], 1500  # more dots would make the page slow
    for choices in analysis.compared.choices:
        cells = np.argwhere(choices.cases[:, None] & choices.mdp.available)
        dots += [(float(choices.visits[s]), choices, s, a) for s, a in cells]
    if not dots:
        return None
    marks = []
    for visits, choices, s, a in sorted(dots, key=lambda dot: -dot[0])[:most]:
        fitted, taken = float(choices.expected[s, a]) / visits, float(choices.taken[s, a]) / visits
        tip = (
            f"{choices.expert if each else 'all experts'}\n{choices.mdp.state_names[s]}: {choices.mdp.action_names[a]}\n"
            f"fitted {decimals(fitted, 2)}, taken {decimals(taken, 2)} of {decimals(visits, 0)} decisions"
        )
        whose = [number[choices.expert]] if choices.expert in number else []
        marks.append(Mark(fitted, taken, tip, whose, min(max(0.6 * visits**0.25, 1.5), 5.0)))
    one = "one dot per expert, state and action" if each else "one dot per state and action, all experts together"
    few = f" Shown are the {most:,} dots with the most decisions, of {len(dots):,}." if len(dots) > most else ""
    caption = f"Fitted against observed choices: {one}; larger dots stand for more decisions.{few}"
    return Chart(caption, [Panel(Axis("fitted probability"), Axis("share of the decisions"), marks, [DIAGONAL])])


def _worst_states(analysis: Analysis) -> str | PageTable:
    """Return the states where choices differ from the model by more than chance."""
    compared = analysis.misfits
    odd = [misfit for misfit in compared if misfit.p_value < ODD]
    if not compared:
        return f"No state has the {FEWEST_DECISIONS} decisions that a comparison with the model needs."
    if not odd:
        cases = count(len(compared), "comparison")
        return f"Choices in a state differ from the model by no more than chance in any of {cases}."
    rows = [
        [m.state, m.expert, m.decisions, m.action, decimals(m.taken, 2), decimals(m.predicted, 2), p_text(m.p_value, "")]
        for m in odd[:WORST]
    ]
    headers = ["state", "expert", "decisions", "action", "share taken", "predicted", "p (Bonferroni)"]
    cases = f"{len(odd)} of {len(compared)} comparisons"
    number = {name: [k] for k, name in enumerate(analysis.solution.experts)}
    return PageTable(
        headers,
        rows,
        f"Where choices differ most from the model, with the action most out of line ({cases})",
        [number.get(m.expert, []) for m in odd[:WORST]],
    )


def _not_explained(analysis: Analysis) -> list[str | Block]:
    """Return the experts whose decisions the model does not explain."""
    held_out = None if analysis.checks is None else analysis.checks.held_out["this model"]
    lost = [
        k
        for k in sorted(analysis.order, key=lambda k: float(analysis.explained[k]))
        if analysis.reasons[k] == "no better than chance" or (held_out is not None and held_out[k] < analysis.chance[k])
    ]
    if not lost:
        return [] if held_out is None else ["Every expert's held-out decisions are predicted better than by chance."]
    rows = [
        [
            analysis.solution.experts[k],
            decimals(analysis.decisions[k], 0),
            decimals(analysis.explained[k], 2),
            None if held_out is None else decimals(held_out[k] - analysis.chance[k], 3),
        ]
        for k in lost
    ]
    headers = ["expert", "decisions", "pseudo-R²", "held out, against chance"]
    return [PageTable(headers, rows, "Who is not explained", [[k] for k in lost])]


def _decisions(analysis: Analysis) -> list[Section]:
    """Return how many decisions each expert made in each state; of more than eight experts, how many all of them made."""
    if analysis.kind != "experts":
        return []
    names = analysis.problem.names
    decisions = dict[str, Floats]()
    for expert, owner in zip(analysis.problem.experts, analysis.problem.owner, strict=True):
        assert expert.counts is not None
        for state in np.flatnonzero(expert.counts.sum(axis=1)):
            row = decisions.setdefault(expert.mdp.state_names[state], np.zeros(len(names)))
            row[owner] += expert.counts[state].sum()
    few = len(names) <= 8
    headers = ["state", *([names[k] for k in analysis.order] if few else ["decisions", "experts who decided"])]
    rows = [
        [state, *([int(row[k]) for k in analysis.order] if few else [int(row.sum()), int((row > 0).sum())])]
        for state, row in sorted(decisions.items(), key=lambda item: natural(item[0]))
    ]
    columns = [[], *([k] for k in analysis.order)] if few else []
    return [Section("Decisions by state", [PageTable(headers, rows, "Decisions in each state", columns=columns)])]


def _reward_over_coordinates(analysis: Analysis, evidence: SieveEvidence) -> Section:
    """Return the reward over each pair of the first four coordinates it depends on; over one, as a curve."""
    heading = "The reward they share"
    functions = analysis.functions
    assert functions is not None
    names = functions.coordinates
    whole = [i for i in range(len(names)) if "=" not in names[i]][:4]
    if analysis.withheld:
        return Section(heading, ["No reward is given, because no maximum of the likelihood was found."])
    text = "What arriving somewhere pays, measured from the average logged arrival."
    blocks: list[str | Block] = [text]
    for places in combinations(whole, min(2, len(whole))) if whole else ():
        over = [names[i] for i in places]
        if len(places) == 1:
            x, reward, half = functions.curve(places[0])
            low, high = float((reward - half).min()), float((reward + half).max())
            above, below = (list(zip(x.tolist(), ends.tolist(), strict=True)) for ends in (reward + half, reward - half))
            curve = Line(list(zip(x.tolist(), reward.tolist(), strict=True)), kind="stroke thick")
            along = Axis(over[0], number_ticks(float(x[0]), float(x[-1])), float(x[0]), float(x[-1]))
            panel = Panel(
                along, Axis("reward", number_ticks(low, high), low, high), [], [Line([*above, *below[::-1]], kind="area"), curve]
            )
            blocks.append(Chart(f"Reward over {over[0]}, with 95% CIs.", [panel]))
            continue
        x, y, shown = functions.surface(places)
        across, up = (
            Axis(n, number_ticks(e[0], e[-1]), e[0], e[-1]) for n, e in zip(over, (x.tolist(), y.tolist()), strict=True)
        )
        x, y = (np.concatenate([each[:1], (each[1:] + each[:-1]) / 2, each[-1:]]) for each in (x, y))
        low, high = float(np.nanmin(shown)), float(np.nanmax(shown))
        surface = ShadedPlane(x, y, shown, 0.0, max(-low, high))
        caption = (
            f"Reward over {' and '.join(over)}, from {significant(low)} to {significant(high)}. Blue pays more and orange less; "
            "grey: nobody was near."
        )
        blocks.append(Chart(caption, [Panel(across, up, [], surface=surface)], 400.0))
    if evidence.left_out:
        blocks.append(f"Left out, because nobody acts on them: {', '.join(evidence.left_out)}.")
    return Section(heading, blocks)


def _dynamics(analysis: Analysis) -> list[Section]:
    """Return how well the log says where actions lead, and who decided where others did too."""
    evidence = analysis.sieve
    if evidence is None:
        return []
    predicted = [[name, float(r2)] for name, r2 in evidence.next_state_r2.items()]
    overlap = [
        [name, f"{decimals(100 * share, 0)}%"] for name, share in zip(analysis.solution.experts, evidence.overlap, strict=True)
    ]
    numbers = [[k] for k in range(len(overlap))]
    blocks: list[str | Block] = ["Where actions lead was learned from the same steps, and tested on every third episode."]
    blocks.append(PageTable(["coordinate", "share of its change that is predicted"], predicted))
    blocks.append(PageTable(["expert", "decisions made where others decided too"], overlap, experts=numbers))
    return [Section("What the log says about the task", blocks)]


def _method(analysis: Analysis, options: dict[str, Any]) -> Section:
    blocks = list[str | Block]([analysis.solution.message])
    if analysis.people is not None:
        compared = f"{analysis.people.population.persons:,}"
        blocks.append(f"The tables have {count(len(analysis.people.names), 'person')}, of whom {compared} are compared.")
    if analysis.sieve is not None:
        evidence = analysis.sieve
        blocks.append(f"The first stage is {evidence.first_stage}; the penalty on roughness is {evidence.penalty:g}.")
        rows = [
            [str(row["basis"]), int(row["functions"]), float(row["penalty"]), decimals(row["held_out"], 5)]
            for row in evidence.tried
        ]
        headers = ["basis", "functions", "penalty", "held-out log-likelihood per decision"]
        blocks += [PageTable(headers, rows)] if rows else []
    blocks += analysis.remarks
    blocks.append(f"Options: {options_text(options)}; level of the intervals: {LEVEL:g}.")
    return Section("How this was made", blocks)


#: The sections of the page, in their order.
SECTIONS: tuple[Callable[[Analysis], list[Section]], ...] = (
    _people,
    _horizons,
    _questions,
    _identifiability,
    _reward,
    _best_by_look_ahead,
    _dynamics,
    _fit,
    _decisions,
)


def answer_blocks(analysis: Analysis) -> list[str | Block]:
    """Return what a reader must know before any number, and the answer to what was asked."""
    answer = Notice(analysis.answer) if analysis.withheld else Lead(analysis.answer)
    asks = "" if analysis.robustness is not None else " multihorizon robustness RESULT asks them, with the folder of this report."
    return [*map(Notice, analysis.notices[0]), answer, *([analysis.rests_on + asks] if analysis.rests_on else [])]


def writing_section(analysis: Analysis) -> Section:
    """Return a paragraph on the method and one on the result, as they can stand in a paper, and the references."""
    heading = "What to write, and how to cite"
    blocks: list[str | Block] = []
    if analysis.withheld:
        blocks.append("There is no result to write about yet: see on top why.")
    else:
        asked = analysis.reported_population
        method = _of_population(asked) if asked is not None else _of_experts(analysis) if analysis.people is None else ""
        blocks.append("A paragraph on the method and one on the result, to be copied and changed:")
        blocks.append(Quote(f"{_model(analysis)} {method}"))
        blocks.append(Quote(f"{analysis.answer} {analysis.fit.reasons}"))
    version = package_version()
    blocks.append("Cite the software with its version, and the paper on experts with one reward and several horizons:")
    blocks.append(
        Listing(
            "@software{multihorizon,\n"
            "  author  = {{The multihorizon authors}},\n"
            "  title   = {multihorizon: one reward, several planning horizons},\n"
            f"  version = {{{version}}}\n"
            "}\n"
            "@article{yao_multiple_horizons,\n"
            "  author  = {Yao, Jiayu and Pan, Weiwei and Doshi-Velez, Finale and Engelhardt, Barbara E.},\n"
            "  title   = {Inverse Reinforcement Learning with Multiple Planning Horizons},\n"
            "  journal = {arXiv},\n"
            "  year    = {2024},\n"
            "  doi     = {10.48550/arXiv.2409.18051}\n"
            "}"
        )
    )
    return Section(heading, blocks)


def _model(analysis: Analysis) -> str:
    """Return what was observed, and how choices are thought to come about."""
    episodes, decisions = int(np.sum(analysis.episodes)), int(analysis.decisions.sum())
    seen = f"{count(analysis.decisions.size, 'person')} made {count(decisions, 'decision')} in {count(episodes, 'episode')}."
    if analysis.population is not None and (compared := len(analysis.population.experts)) < analysis.decisions.size:
        seen += f" Of these, {count(compared, 'person')} {'was' if compared == 1 else 'were'} compared."
    reward = "The reward was given." if analysis.reward_given else "One reward, shared by all, was estimated with the rest."
    if analysis.deviations is not None:
        spread = "was given" if analysis.deviations.given else "was estimated with the rest"
        reward = f"Each person's reward deviates normally from a common one; the spread of these deviations {spread}."
    return (
        f"{seen} How far ahead each of them plans was estimated with multihorizon {package_version()}. A person with discount γ "
        "and temperature λ is taken to choose an action with a probability proportional to exp(Q/λ), where Q is the expected sum "
        f"of rewards and of λ times the entropy of later choices, those t {analysis.horizon.many} ahead weighted by γ to the "
        f"power t. {reward}"
    )


def _of_population(analysis: Solution) -> str:
    population = PopulationEvidence.of(analysis).population
    if population.types is not None:
        how = "their number was tested by simulation" if population.types["chosen"] else "their number was given"
        return f"People were taken to be of {population.types['number']} types, each with a discount and a temperature; {how}."
    formula = analysis.options.get("formula") or "~ 1"
    within = population.conditions
    mixed = " Conditions were compared within people." if within else ""
    columns = [row["column"] for row in population.contrasts["discount"]]
    holm = len(set(columns)) < len(columns)
    return (
        "The logit of γ and the logarithm of λ were taken to vary normally between people around means that follow the formula "
        f"{formula}, and people were averaged out.{mixed} Effects were tested by Student's t with {population.degrees} degrees "
        f"of freedom{', and pairs of groups with Holm’s correction' if holm else ''}. Intervals are 95% CIs."
    )


def _of_experts(analysis: Analysis) -> str:
    if analysis.sieve is not None:
        return (
            f"Reward and values were taken to be sums of {analysis.sieve.functions} functions of the state, and next states were "
            "predicted from the same decisions. Parameters were estimated by maximum likelihood, with 95% CIs that hold "
            "the error of both."
        )
    how = "standard errors" if analysis.quick else "the profile likelihood"
    several = " That discounts are equal was tested by likelihood ratios." if analysis.shared is not None else ""
    several += " Pairs have Holm’s correction." if len(analysis.pairs) > 1 else ""
    held = " A penalty holds the rewards." if analysis.likelihood is not None and analysis.likelihood.ridge else ""
    return f"Parameters were estimated by maximum likelihood, with 95% CIs by {how}.{held}{several}"
