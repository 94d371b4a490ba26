"""Pages of the questions that are asked of a study, and the blocks that the page of a fit shows of them.

- `identify`: do these decisions, or any number of others like them, identify the discounts?
- `goals`: who belongs where, the groups' rewards side by side, and what to do where goals differ.
- `design`: which candidates to use how often, what can be expected of it, and how to check it by simulation.
- `recover`: simulated studies, the truth against what was found, and what more decisions and people would bring.
- `compare`: how well a horizon from one condition predicts another.
- families of look-ahead: how each fits, and each expert's parameters.
- `predict`: what people do before and after a change, side by side, and how sure that is; or the smallest bonus with which they
  do something, and how they respond to others.

*Before and after.* Of few people there is a row for each choice that changes and a pair of maps for each person; of many there
are distributions. The left map shows what was done before: arrows are the likeliest actions, and cells are coloured by how often
they are visited. The right one shows what is done after, coloured by the difference, on the same scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.exact.identify import Identification
from multihorizon.files import write_all, write_csv, write_json
from multihorizon.horizon import Horizon
from multihorizon.likelihood.estimates import LikelihoodEvidence
from multihorizon.likelihood.intervals import reward_contrasts
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.questions.carrying_over import CarryingOver
from multihorizon.questions.design import Design
from multihorizon.questions.goal_comparison import QUESTION
from multihorizon.questions.goals import Goals
from multihorizon.questions.lookahead_comparison import FamilyRow, LookaheadComparison
from multihorizon.questions.robustness import Robustness
from multihorizon.questions.study import Recovery, SizeResult
from multihorizon.questions.whatif.nudge import SHARES, Nudge
from multihorizon.questions.whatif.predict import BOUNDED, IDENTIFIED, NOT_BOUNDED, Prediction
from multihorizon.report.charts import (
    DIAGONAL,
    Axis,
    Badge,
    Beside,
    Block,
    Cards,
    Chart,
    Items,
    Lead,
    Line,
    Listing,
    Mark,
    Page,
    Panel,
    Ruler,
    Section,
    Subheading,
    TableBlock,
    number_ticks,
)
from multihorizon.report.maps import MOST_CELLS, Arrow, GraphMap, GridMap, graph_map, grid_map, heat_map, natural
from multihorizon.report.plots import ARROWS
from multihorizon.result import package_version
from multihorizon.solution import Solution, Status
from multihorizon.words import (
    UNKNOWN,
    Finding,
    Role,
    Table,
    count,
    decimals,
    in_words,
    interval_text,
    percent,
    percent_with_error,
    plus_minus,
    shortened,
    signed,
    significant,
)

#: What each command writes.
FILES = {
    "compare": ("compare.json", "compare.csv", "compare.html"),
    "design": ("design.json", "design.csv", "schedule.csv", "spread_out.csv", "design.html"),
    "recover": ("recover.json", "recover.csv", "recover.html"),
    "robustness": ("robustness.json", "robustness.csv", "robustness.html"),
    "whatif": ("whatif.json", "whatif.csv", "whatif.html"),
    "nudge": ("nudge.json", "nudge.csv", "nudge.html"),
}
#: What a reward of 1 means, for readers of a table of rewards.
UNIT_OF_REWARD = (
    "The unit of a reward: one that is larger by 1 makes the choice that leads to it at once 2.7 times as likely, for an expert "
    "with temperature 1."
)


def identify_page(solution: Solution, exact: Identification | None, remarks: Sequence[str]) -> Page:
    """Return the report of `multihorizon identify`: these decisions, exact policies, and how it was made."""
    horizon = solution.require_problem().horizon
    unfinished = solution.status == Status.NOT_CONVERGED
    evidence = LikelihoodEvidence.of(solution)
    experts_of_rows = [[k] for k in range(len(solution.experts))]
    these: list[str | Block] = [solution.message]
    if unfinished:
        these.append("So what follows is about policies that need not be the experts'.")
    else:
        given = list(evidence.identified)
        discounts = np.where(given, solution.discounts, np.nan)
        frame = pd.DataFrame({"expert": solution.experts, "identified": given, "discount": discounts})
        table = Table(frame, "Whether these decisions identify each discount", roles={"discount": "discount"})
        these.append(TableBlock(table, experts_of_rows, horizon=horizon))
    exactly: list[str | Block] = ["Whether exact policies would identify the discounts cannot be said for this problem."]
    if exact is not None:
        ruler = Ruler.over(exact.intervals.ravel().tolist(), horizon)
        low, high = exact.intervals.T
        frame = pd.DataFrame({"expert": exact.experts, "discount": exact.discounts, "low": low, "high": high})
        ranges = Table(
            frame,
            "The smallest and the largest discount that explain each expert",
            ("discount", "low", "high"),
            roles={"discount": "discount"},
            headings={"low": "discounts"},
        )
        exactly = [Badge(exact.status, "good" if exact.status == "unique" else "bad"), Listing(exact.sentences())]
        exactly.append(TableBlock(ranges, experts_of_rows, horizon=horizon, ruler=ruler, hidden=["discount"]))
    return Page(
        "Do these decisions identify the discounts?",
        f"{count(len(solution.experts), 'expert')}, {count(int(evidence.decisions), 'decision')}.",
        [
            Section("These decisions", these),
            *([] if evidence.known["reward"] else [Section("If the fitted policies were known exactly", exactly)]),
            Section("How this was made", remarks or ["Transitions were given."]),
        ],
        f"multihorizon {package_version()}, seed {solution.seed}",
        experts=list(enumerate(solution.experts)),
        answer=[Lead(these_decisions(solution))],
    )


def these_decisions(solution: Solution) -> str:
    """Return whether the decisions at hand identify the discounts."""
    if solution.status == Status.NOT_CONVERGED:
        return "The fit to these decisions did not converge."
    identified = sum(LikelihoodEvidence.of(solution).identified)
    number = len(solution.experts)
    if 0 < identified < number:
        return f"These decisions identify {identified} of {number} discounts."
    return f"These decisions {'identify' if identified else 'do not identify'} the discounts."


def goals_page(goals: Goals[Solution], remarks: Sequence[str], seed: int) -> Page:
    """Return the report of `multihorizon goals`."""
    method = (
        "Groups are compared by how likely one reward makes their decisions, less a price for each parameter. The test of one "
        "reward for all asks whether rewards of their own explain the experts' decisions better, by more than they explain "
        "decisions drawn from the fit with one reward."
    )
    return Page(
        "Who shares a goal with whom",
        f"{count(len(goals.experts), 'expert')}, {count(len(goals.groups), 'group')}.",
        [Section(QUESTION, goals_blocks(goals, goals.experts)), Section("How this was made", [method, *remarks])],
        f"multihorizon {package_version()}, seed {seed}",
        experts=list(enumerate(goals.experts)),
        answer=[Lead(goals.headline())],
    )


def goals_blocks(goals: Goals[Solution], names: Sequence[str]) -> list[str | Block]:
    """Return what was found of each expert and each group; `names` numbers the experts of the page."""
    blocks: list[str | Block] = [Items(goals.sentences().splitlines())]
    if goals.withheld:
        return blocks
    if goals.verdict == "differ" or goals.ungrouped:
        blocks.append(
            "Fit each group by itself: keep the rows of its experts, and run multihorizon fit on them. Experts whose group is "
            "not known need more decisions, above all in states that the others visit."
        )
    horizon = Horizon.of(expert.mdp for solution in goals.solutions for expert in solution.require_problem().experts)
    number = {name: g for g, group in enumerate(goals.groups) for name in group}
    shares: dict[str, Any] = {f"shares goal {g + 1}": goals.memberships[:, g] for g in range(len(goals.groups))}
    goal = [f"goal {number[name] + 1}" for name in goals.experts]
    roles: dict[str, Role] = {"discount": "discount"}
    for name in shares:
        roles[name] = "chance"
    members = Table(
        pd.DataFrame({"expert": goals.experts, "group": goal, "discount": goals.discounts} | shares),
        "Who belongs where, with the probability of sharing each goal (alone in a group: with nobody)",
        roles=roles,
    )
    blocks.append(TableBlock(members, [[names.index(name)] for name in goals.experts], horizon=horizon))
    if len(goals.groups) > 1 and len(goals.experts) <= 40:
        order = sorted(range(len(goals.experts)), key=lambda k: (number[goals.experts[k]], k))
        tips = [f"{goals.experts[k]} {goal}: {percent(shares[goal][k])}" for k in order for goal in shares]
        caption = "How likely each expert shares each goal."
        rows = [goals.experts[k] for k in order]
        blocks.append(
            heat_map(rows, [f"goal {g + 1}" for g in range(len(shares))], goals.memberships[order], tips, caption, 1.0, percent)
        )

    columns: dict[str, list[str | None]] = {}
    for g, solution in enumerate(goals.solutions):
        if len(solution.experts) > 1:
            columns[f"goal {g + 1}"] = [None] * solution.reward.size
            if solution.status != Status.NOT_CONVERGED:
                contrasts = reward_contrasts(resume(solution))
                pairs = zip(contrasts.values, contrasts.standard_errors, strict=True)
                columns[f"goal {g + 1}"] = [None if np.isnan(value) else plus_minus(value, error) for value, error in pairs]
    if not columns:
        return [*blocks, "No two experts surely share a goal, so no reward is given."]
    problem = goals.solutions[0].require_problem()
    average = "; those of states are differences from the average logged step" if problem.tabular else ""
    frame = pd.DataFrame({"state" if problem.tabular else "feature": problem.parameter_names} | columns)
    return [*blocks, UNIT_OF_REWARD, TableBlock(Table(frame, f"Rewards of each goal, ± one standard error{average}"))]


def lookahead_blocks(compared: LookaheadComparison, names: Sequence[str]) -> list[str | Block]:
    """Return the table of families, and each expert's parameters in them; `names` numbers the experts of the page."""
    meaning = (
        f"Each family says how the weight of a later step falls; tasks have up to {compared.steps} steps. A lower AIC or BIC is "
        "better, and so is a held-out log-likelihood nearer to zero. A small p in free weights says that the family's shape is "
        "too narrow. A small p against the best says that the decisions distinguish the two."
    )
    families = TableBlock(families_table(compared))
    parameters = [(row, name) for row in compared.rows for name in row.details["parameters"]]

    def parameter(row: FamilyRow, name: str, k: int) -> str:
        value, error = row.details["parameters"][name][k], row.details["standard_errors"][name][k]
        if value != value:
            return "not identified"
        return plus_minus(value, error, 0 if name == "depth" else 2)

    experts = range(len(compared.experts))
    frame = pd.DataFrame({f"{row.family}: {name}": [parameter(row, name, k) for k in experts] for row, name in parameters})
    frame.insert(0, "expert", compared.experts)
    table = Table(frame, "Each expert's look-ahead in each family", labels=[str(name) for name in frame])
    of_each = TableBlock(table, [[names.index(name)] for name in compared.experts])
    return [compared.sentences(), families, meaning, of_each]


def families_table(compared: LookaheadComparison) -> Table:
    """Return how well each family of look-ahead fits, the lowest AIC first."""
    headings = {"log_likelihood": "log-likelihood", "aic": "AIC", "bic": "BIC"}
    headings |= {"free_p": "p in free weights", "best_p": "p against the best"}
    table = Table(compared.to_frame(), "Families, the lowest AIC first", headings=headings)
    return table.select("family", "log_likelihood", "parameters", "aic", "bic", "held_out", "free_p", "best_p", "verdict")


def write_comparison(directory: Path, carried: CarryingOver, options: dict[str, Any], remarks: Sequence[str] = ()) -> None:
    """Write all files of predictions from one condition to another."""

    def write(draft: Path) -> None:
        content = {**carried.to_dict(), "notes": remarks, "options": options, "version": package_version()}
        write_json(draft / "compare.json", content)
        write_csv(carried.to_frame(), draft / "compare.csv")
        compare_page(carried, options, remarks).write(draft / "compare.html")

    write_all(directory, FILES["compare"], write)


def compare_page(carried: CarryingOver, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """Return the report of predictions from one condition to another."""
    answer, pairs = carried.answer, carried.pairs
    caption = "What each person's own horizon gains per decision over one discount for everybody, the line at 0, with its 95% CI."
    picture = Chart(caption, [_gains_panel(carried)], 70.0 + 34 * len(pairs))
    meaning = (
        "Everything is fitted to the decisions under the first condition, and nothing of the second is used before its decisions "
        "are predicted, but the shift that all others have in common. Own horizons, and temperatures beside one discount for "
        "everybody, are averaged over what is likely for the person. By chance all available actions are equally likely. "
        "Intervals are over people."
    )
    told = carried.headline().removeprefix(f"{answer.answer}. ")  # above
    further = [line for line in (answer.reasons.removeprefix(told).strip(), *carried.sentences().splitlines()[1:]) if line]
    return Page(
        "Carried from one condition to another",
        f"{carried.condition}: {', '.join(carried.levels)}; "
        f"{count(len({*(e for pair in pairs for e in pair.experts)}), 'person')}.",
        [
            Section(answer.question, [Items(further), picture]),
            Section("How well each predicts", [TableBlock(carried_table(carried)), meaning]),
            Section("How this was made", [*remarks, f"Options: {options_text(options)}."]),
        ],
        f"multihorizon {package_version()}, seed {options.get('seed', 0)}",
        answer=[Lead(carried.headline())],
    )


def write_robustness(directory: Path, found: Robustness, options: dict[str, Any], remarks: Sequence[str] = ()) -> None:
    """Write all files of an answer under rival models of choice."""

    def write(draft: Path) -> None:
        content = {**found._content(), "notes": remarks, "options": options, "version": package_version()}
        write_json(draft / "robustness.json", content)
        write_csv(found.to_frame(), draft / "robustness.csv")
        robustness_page(found, options, remarks).write(draft / "robustness.html")

    write_all(directory, FILES["robustness"], write)


def robustness_page(found: Robustness, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """Return the report of an answer under rival models of choice: the verdict first, and a specification curve."""
    return Page(
        "Does the conclusion survive other models of choice?",
        f"{count(len(found.rivals), 'model')}, {count(len(found.experts), 'expert')}.",
        [
            Section("The same question under each model", robustness_blocks(found)),
            Section("How this was made", [*remarks, f"Options: {options_text(options)}."]),
        ],
        f"multihorizon {package_version()}, seed {options.get('seed', 0)}",
        answer=[Lead(found.verdict())],
    )


def robustness_blocks(found: Robustness) -> list[str | Block]:
    """Return the specification curve, held-out predictions beside it, and each model in a table."""
    held_out = f"by {found.unit}s that were held out, beyond two standard errors"
    if not found.unit:
        held_out = "by their log-likelihood less the number of parameters, as nothing could be held out"
    meaning = (
        "Each model of choice was fitted to the same decisions. Those that predict worse than the best are faded: "
        f"{held_out}. A conclusion is the same where no order is turned round, and no estimate of either lies outside of the "
        "other's 95% CI."
    )
    charts = [_specification_curve(found)]
    if any(np.isfinite(rival.held_out) for rival in found.rivals):
        charts.append(_held_out_chart(found))
    return [Items(found.sentences().splitlines()[1:]), Beside(charts), TableBlock(rivals_table(found)), meaning]


def rivals_table(found: Robustness) -> Table:
    """Return one row for each model: how well it predicts, its weight among all, and what becomes of the conclusion."""
    rows = []
    for r in found.rivals:
        held_out = "–" if np.isnan(r.held_out) else f"{decimals(r.held_out, 4)} ± {decimals(r.error, 4)}".replace("-", "−")
        rows.append((r.name, held_out, r.weight, "yes" if r.predicts else "no", r.conclusion))
    headers = "model", "held out, per decision", "weight", "predicts as well", "conclusion"
    roles: dict[str, Role] = {"weight": "share"}
    return Table.of(headers, rows, "Models of choice", roles=roles)


def _specification_curve(found: Robustness) -> Chart:
    """Draw the estimate of each model with its interval, by expert or contrast; of many those that differ most."""
    frame = found.to_frame()
    named = "contrast" if found.contrasts else "expert"
    most = 6
    spans = frame[frame["predicts"]].groupby(named, sort=False)["estimate"].agg(np.ptp).fillna(0.0)
    chosen = list(dict.fromkeys(frame[named]))
    if len(chosen) > most:
        widest = set(spans.sort_values(ascending=False, kind="stable").index[:most])
        chosen = [name for name in chosen if name in widest]
    rows = [
        (name, row) for name in chosen for row in frame[(frame[named] == name) & frame["estimate"].notna()].to_dict("records")
    ]
    rows = sorted(rows, key=lambda pair: (chosen.index(pair[0]), pair[1]["estimate"]))
    marks, ticks = [], []
    for place, (name, row) in enumerate(rows):
        y = 1 - (place + 0.5) / len(rows)
        low, high = float(row["low"]), float(row["high"])
        between = "" if np.isnan(low + high) else f"\n95% CI {interval_text(low, high, lambda end: decimals(end, 3))}"
        tip = f"{name}, {row['rival']}\n{decimals(row['estimate'], 3)}{between}\n{row['conclusion']}"
        across = None if np.isnan(low + high) else (low, high)
        place_of = found.experts.index(name) if name in found.experts else 0
        marks.append(Mark(row["estimate"], y, tip, across=across, colour=chosen.index(name), faded=not row["predicts"]))
        label = f"{name}: {row['rival']}" if len(chosen) > 1 else row["rival"]
        ticks.append((y, shortened(label, 34), *([place_of] if not found.contrasts else [])))
    if found.contrasts:
        ends = [0.0, *(end for mark in marks for end in mark.across or (mark.x,))]
        room = 0.1 * (max(ends) - min(ends)) or 0.1
        low, high = min(ends) - room, max(ends) + room
        axis = Axis("difference in the logit of the discount", number_ticks(low, high), low, high)
        lines = [Line([(0.0, 0.0), (0.0, 1.0)], kind="frame")]
    else:
        axis, lines = Axis("discount γ"), []
    few = (
        f" Shown are the {most} of {len(dict.fromkeys(frame[named]))} that differ most."
        if len(chosen) == most < frame[named].nunique()
        else ""
    )
    caption = f"Each model's estimate with its 95% CI, grouped by {named}; faded where the model predicts worse.{few}"
    return Chart(caption, [Panel(axis, Axis("", ticks), marks, lines)], 70.0 + 22 * len(rows))


def _held_out_chart(found: Robustness) -> Chart:
    """Draw how well each model predicts what was held out, with one standard error."""
    shown = sorted((r for r in found.rivals if np.isfinite(r.held_out)), key=lambda rival: -rival.held_out)
    marks, ticks = [], []
    for place, rival in enumerate(shown):
        y = 1 - (place + 0.5) / len(shown)
        across = rival.held_out - rival.error, rival.held_out + rival.error
        tip = f"{rival.name}\n{decimals(rival.held_out, 4)} ± {decimals(rival.error, 4)}"
        marks.append(Mark(rival.held_out, y, tip, across=across, faded=not rival.predicts))
        ticks.append((y, shortened(rival.name, 34)))
    ends = [end for mark in marks for end in mark.across or ()]
    room = 0.1 * (max(ends) - min(ends)) or 0.1
    low, high = min(ends) - room, max(ends) + room
    axis = Axis("held-out log-likelihood per decision", number_ticks(low, high), low, high)
    caption = "How well each model predicts what was held out, per decision, ± one standard error."
    return Chart(caption, [Panel(axis, Axis("", ticks), marks)], 70.0 + 22 * len(shown))


def _gains_panel(carried: CarryingOver) -> Panel:
    """Return what own horizons gain from each condition to another, with intervals."""
    marks, ticks, rows = [], [], len(carried.pairs)
    for row, pair in enumerate(carried.pairs):
        gain, y = pair.gain(), 1 - (row + 0.5) / rows
        ticks.append((y, shortened(pair.label, 30)))
        if not np.isnan(gain.low + gain.high):
            interval = interval_text(gain.low, gain.high, lambda end: decimals(end, 4))
            tip = f"{pair.label}\ngain {decimals(gain.estimate, 4)}\n95% CI {interval}"
            marks.append(Mark(gain.estimate, y, tip, across=(gain.low, gain.high)))
    ends = [0.0, *(end for mark in marks for end in mark.across or ())]
    room = 0.1 * (max(ends) - min(ends)) or 0.1
    low, high = min(ends) - room, max(ends) + room
    axis = Axis("gain in log-likelihood per decision", number_ticks(low, high), low, high)
    return Panel(axis, Axis("", ticks), marks, [Line([(0.0, 0.0), (0.0, 1.0)], kind="frame")])


def carried_table(carried: CarryingOver) -> Table:
    """Return how well each condition predicts another."""
    headings = {"common_discount": "the one discount", "gain": "own − one discount", "gain_low": "95% CI"}
    roles: dict[str, Role] = {"common_discount": "discount", "own": "score", "one_discount": "score", "chance": "score"}
    drawn = "gain", "gain_low", "gain_high"
    caption = "Log-likelihood of a decision; nearer to zero is better"
    table = Table(carried.to_frame(), caption, drawn, bars=False, roles=roles, headings=headings)
    return table.select(*(str(name) for name in table.frame if name != "gain_error"))


def write_design(directory: Path, design: Design, options: dict[str, Any], check: str, remarks: Sequence[str] = ()) -> None:
    """Write all files of a design; `check` is the command that simulates it."""

    def write(draft: Path) -> None:
        write_json(draft / "design.json", {**design._content(), "check": check, "notes": remarks, "options": options})
        write_csv(design.to_frame(), draft / "design.csv")
        write_csv(design.schedule.to_frame(), draft / "schedule.csv", read_again=True)
        write_csv(replace(design.schedule, times=design.spread_times).to_frame(), draft / "spread_out.csv", read_again=True)
        design_page(design, options, check, remarks).write(draft / "design.html")

    write_all(directory, FILES["design"], write)


def design_page(design: Design, options: dict[str, Any], check: str, remarks: Sequence[str] = ()) -> Page:
    """Return the report of a design."""
    used = int((design.times > 0).sum())
    words = (
        "The design hardly matters; " if design.hardly_matters else "Most episodes are of one kind; " if design.one_sided else ""
    )
    words += (
        f"{used} of {count(len(design.candidates), 'candidate')} are used; the proved gap is {significant(100 * design.gap, 2)}%"
    )
    good = "" if design.hardly_matters or design.one_sided else "good"
    badge = Badge(words[0].upper() + words[1:], good if design.status == Status.OPTIMAL else "bad")
    pictures: list[Block] = [_times_figure(design)]
    tasks, rows = design.schedule.tasks, design.schedule.candidates
    on_grid = len(tasks) == 1 and tasks[0].grid_shape is not None and tasks[0].n_states <= MOST_CELLS
    if on_grid and all(len(row.starts) == 1 for row in rows):
        begun = np.zeros(tasks[0].n_states)
        np.add.at(begun, [row.starts[0] for row in rows], design.times)
        tips = [f"{name}: {decimals(times, 0)} episodes" for name, times in zip(tasks[0].state_names, begun, strict=True)]
        caption = "In which states episodes begin, and how many of each person."
        pictures.append(grid_map(tasks[0], begun, tips, caption, scale=(0.0, float(begun.max()))))
    if len(design.sizes) > 1:
        pictures.append(_design_sizes_figure(design))
    given, errors, sizes = design._tables(compute=True)
    what = "discounts" if design.scale == "discount" else "the effect on the logit of the discount"
    choice = ": more people, or more decisions of each?" if design.scale == "logit" else ""
    sizes = replace(sizes, caption=f"{sizes.caption}{choice}")
    method = (
        "Each candidate is judged by what it is expected to say about the targets after rewards and temperatures are accounted "
        "for. The study makes the information about all targets together as large as possible: the determinant of their "
        "information matrix. The uniform study gives all candidates equally often, in fractions where need be, and costs the "
        "same. The proof holds for the draws that stand for what the pilot leaves open. Standard errors are those of large "
        "samples; a simulation shows what they miss:"
    )
    return Page(
        "Which study to run",
        f"{count(design.persons, 'person')}, {decimals(design.size, 0)} {design.unit} each.",
        [
            Section(
                "What each person is given",
                [
                    badge,
                    Items([line for line in design.sentences().splitlines() if line not in design.headline()]),
                    Beside(pictures),
                    TableBlock(given),
                ],
            ),
            Section(
                "What it can be expected to show",
                [TableBlock(replace(errors, caption=f"{errors.caption} of {what}")), TableBlock(sizes)],
            ),
            Section("How this was made", [method, Listing(check), *remarks, f"Options: {options_text(options)}."]),
        ],
        f"multihorizon {package_version()}, seed {design.seed}",
        answer=[Lead(design.headline())],
    )


def _times_figure(design: Design) -> Chart:
    """Return how often each candidate is used as a bar, with a stroke where the uniform study stands; the 25 most used."""
    order = np.argsort(-design.times, kind="stable")[: min(25, int((design.times > 0).sum()))].tolist()
    most = max(float(design.times[order].max()), float(design.uniform_times[order].max()))
    lines, ticks = [], []
    for row, j in enumerate(order):
        y, half = 1 - (row + 0.5) / len(order), 0.3 / len(order)
        times, even = float(design.times[j]), float(design.uniform_times[j])
        bar = [(0.0, y - half), (times, y - half), (times, y + half), (0.0, y + half)]
        tip = f"{design.candidates[j]}: {decimals(times, 0)} times\nuniform study {decimals(even, 1)}"
        lines += [Line(bar, kind="part", tip=tip), Line([(even, y - 1.3 * half), (even, y + 1.3 * half)], kind="typical")]
        ticks.append((y, shortened(design.candidates[j], 28)))
    axis = Axis("times per person", number_ticks(0.0, most), 0.0, 1.03 * most)
    caption = "How often each person is given each candidate; the strokes across are a study that uses all equally often."
    return Chart(caption, [Panel(axis, Axis("", ticks), [], lines)], 70.0 + 24 * len(order))


def _design_sizes_figure(design: Design) -> Chart:
    """Return the power of studies of other sizes, or without a difference that is looked for their standard error."""
    power = bool(np.isfinite(design.difference))
    column, label = ("power", "power") if power else ("largest_standard_error", "largest standard error")
    high = 1.0 if power else 1.1 * float(design.sizes[column].max())
    lines, marks = [], []
    if power:
        lines.append(Line([(0.0, 0.8), (1.05 * float(design.sizes["decisions"].max()), 0.8)], kind="frame"))
    for colour, persons in enumerate(design.sizes["persons"].unique().tolist()):
        rows = design.sizes[design.sizes["persons"] == persons]
        points = list(zip(rows["decisions"].tolist(), rows[column].tolist(), strict=True))
        people = count(persons, "person")
        lines.append(Line(points, people, label_at=high * (0.06 + 0.07 * colour), colour=colour))
        for x, y in points:
            said = percent(y) if power else significant(y)
            marks.append(Mark(x, y, f"{people}, {decimals(x, 0)} decisions each\n{label} {said}", colour=colour))
    most = 1.05 * max(mark.x for mark in marks)
    x_axis = Axis("decisions of each person", number_ticks(0.0, most), 0.0, most)
    y_axis = Axis(label, number_ticks(0.0, high), 0.0, high)
    what = (
        "How likely studies of other sizes are to see the difference; the thin line is 80%."
        if power
        else ("How exact studies of other sizes are.")
    )
    return Chart(what, [Panel(x_axis, y_axis, marks, lines)])


def write_recovery(directory: Path, recovery: Recovery, options: dict[str, Any], remarks: Sequence[str] = ()) -> None:
    """Write all files of simulated studies."""

    def write(draft: Path) -> None:
        write_json(draft / "recover.json", {**recovery.to_dict(), "remarks": remarks, "options": options})
        write_csv(recovery.to_frame(), draft / "recover.csv")
        recover_page(recovery, options, remarks).write(draft / "recover.html")

    write_all(directory, FILES["recover"], write)


def recover_page(recovery: Recovery, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """Return the report of simulated studies."""
    return Page(
        "What can this design show?",
        f"{recovery.sizes[0].studies} simulated studies of each size, fitted by {recovery.solver}",
        [
            Section("Truth and recovery", recovery_blocks(recovery)),
            Section("How this was made", [*remarks, f"Options: {options_text(options)}."]),
        ],
        f"multihorizon {package_version()}, seed {recovery.seed}",
        answer=[Lead(recovery.headline())],
    )


def options_text(options: dict[str, Any]) -> str:
    """Return the options that were given, in a row."""
    given = {name: value for name, value in options.items() if value is not None}
    return "; ".join(f"{k}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in given.items())


def recovery_blocks(recovery: Recovery) -> list[str | Block]:
    """Return what simulated studies showed: pictures and a table."""
    pictures = [_truth_figure(recovery.sizes[0])]
    effects = [size for size in _along(recovery, "effect") if np.isfinite(size.power)]
    if len(effects) > 1:
        pictures.append(_power_figure(effects, recovery.term))
    for name, label in (("decisions", "decisions per person"), ("people", "people")):
        sizes = _along(recovery, name)
        if len(sizes) > 1:
            pictures.append(_sizes_figure(sizes, name, label))
    meaning = (
        "Bias and error are those of the discounts; the error is the root mean square. Coverage is the share of 95% CIs "
        "that contain the truth. Power is the share of studies with p < 0.05. With an effect of 0 it is the share of false "
        "alarms, which should be near 5%. The number after ± is the standard error of a share with so many simulated studies."
    )
    return [recovery.sentences(), Beside(pictures), TableBlock(sizes_table(recovery)), meaning]


def _truth_figure(size: SizeResult) -> Chart:
    """Return estimated against true discounts."""
    most = 1500  # more dots would make the page slow
    pairs = np.column_stack([size.truth.ravel(), size.estimates.ravel()])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    shown = pairs[np.linspace(0, len(pairs) - 1, min(len(pairs), most)).astype(int)]
    marks = [Mark(x, y, f"true {decimals(x, 3)}\nestimated {decimals(y, 3)}", size=2.5) for x, y in shown.tolist()]
    few = f" Shown are {most:,} of {len(pairs):,}, evenly drawn." if len(pairs) > most else ""
    caption = f"Each dot is a simulated person in the study as designed.{few}"
    return Chart(caption, [Panel(Axis("true discount"), Axis("estimated discount"), marks, [DIAGONAL])])


def _power_figure(sizes: Sequence[SizeResult], term: str | None) -> Chart:
    """Return power against the true size of the effect."""
    x = [size.effect for size in sizes]
    marks = []
    for size in sizes:
        error = size.share_error(size.power)
        tip = f"true effect {decimals(size.effect, 2)}\npower {percent_with_error(size.power, error)}"
        marks.append(Mark(size.effect, size.power, tip, up=(size.power - error, size.power + error)))
    lines = [Line([(min(x), 0.05), (max(x), 0.05)], kind="frame"), Line([(mark.x, mark.y) for mark in marks])]
    axis = Axis("true effect on the logit of the discount", [(at, significant(at, 2)) for at in x], min(x), max(x))
    caption = f"How often a study sees an effect of {term}. The thin line stands at 0.05, the level of the test."
    return Chart(caption, [Panel(axis, Axis("power"), marks, lines)])


def _sizes_figure(sizes: Sequence[SizeResult], name: str, label: str) -> Chart:
    """Return error, coverage and power against one of the numbers that can be chosen."""
    x = [float(getattr(size, name)) for size in sizes]
    series = [("error of a discount", [s.error for s in sizes]), ("coverage of discounts", [s.coverage for s in sizes])]
    if any(np.isfinite(size.power) for size in sizes):
        series.append((f"power, effect {significant(sizes[0].effect, 2)}", [s.power for s in sizes]))
    lines, marks = [Line([(0.0, 0.95), (max(x), 0.95)], kind="frame")], []
    for colour, (kind, values) in enumerate(series):
        points = [(at, value) for at, value in zip(x, values, strict=True) if np.isfinite(value)]
        lines.append(Line(points, kind, colour=colour))
        marks += [
            Mark(at, value, f"{decimals(at, 0)} {label}\n{kind}: {decimals(value, 3)}", colour=colour) for at, value in points
        ]
    axis = Axis(label, [(at, decimals(at, 0)) for at in x], 0.0, max(x))
    caption = f"How the answer changes with the number of {label}. The thin line stands at 0.95."
    return Chart(caption, [Panel(axis, Axis("error, or share of studies"), marks, lines)])


def sizes_table(recovery: Recovery) -> Table:
    """Return what simulated studies of each size showed."""
    rows = []
    for size in recovery.sizes:
        coverage = percent_with_error(size.coverage, size.coverage_error)
        of_effect = percent_with_error(size.effect_coverage, size.share_error(size.effect_coverage))
        power = percent_with_error(size.power, size.share_error(size.power))
        numbers = size.people, size.decisions, size.effect, size.bias, size.error, size.correlation
        rows.append((*numbers, coverage, of_effect, power, size.unanswered))
    columns = ["people", "decisions", "effect", "bias", "error", "correlation"]
    columns += ["coverage", "coverage of the effect", "power", "no answer"]
    roles: dict[str, Role] = {"decisions": "count", "coverage": "share", "coverage of the effect": "share", "power": "share"}
    for name in columns[2:6]:
        roles[name] = "amount"
    return Table(pd.DataFrame(rows, columns=columns), "The study as designed first, then one change at a time", roles=roles)


def _along(recovery: Recovery, name: str) -> list[SizeResult]:
    """Return the study as designed and those that differ from it in one number only, in the order of that number."""
    first = recovery.sizes[0]
    others = [other for other in ("people", "decisions", "effect") if other != name]

    def same(size: SizeResult) -> bool:
        pairs = [(getattr(size, other), getattr(first, other)) for other in others]
        return all(a == b or (np.isnan(a) and np.isnan(b)) for a, b in pairs)

    return sorted((size for size in recovery.sizes if same(size)), key=lambda size: float(getattr(size, name)))


#: Up to so many people have rows and maps of their own.
FEW = 12
#: How many rows a reader sees at once.
TOP = 12


def write_whatif(
    directory: Path, answer: Prediction | Nudge, options: dict[str, Any], remarks: Sequence[str] = ()
) -> tuple[str, ...]:
    """Write all files of a prediction or of the smallest bonus; returns their names."""
    files, page = (FILES["whatif"], whatif_page) if isinstance(answer, Prediction) else (FILES["nudge"], nudge_page)

    def write(draft: Path) -> None:
        content = {"kind": type(answer).__name__, **answer._content(), "notes": list(remarks), "options": options}
        write_json(draft / files[0], {**content, "version": package_version()})
        write_csv(answer.to_frame(), draft / files[1])
        page(answer, options, remarks).write(draft / files[2])  # type: ignore[arg-type]

    write_all(directory, files, write)
    return files


def verdict(prediction: Prediction) -> Finding:
    """Return how much of what follows is known, in words."""
    question = "Can it be said what they will do?"
    by_status = list(zip(prediction.experts, prediction.status, strict=True))
    identified, some, none = (
        [name for name, status in by_status if status == kind] for kind in (IDENTIFIED, BOUNDED, NOT_BOUNDED)
    )
    reasons = []
    if identified:
        sure = bool((prediction.high > prediction.low + _EXACT).any())
        ends = f", with {percent(prediction.level)} CIs" if sure else ""
        everybody = f"all {len(identified)}" if len(identified) == len(prediction.experts) > 6 else in_words(identified)
        reasons.append(f"Identified for {everybody}: what was seen says what follows{ends}.")
    for proved in (True, False):
        judged = zip(prediction.experts, prediction.status, prediction.proved.tolist(), strict=True)
        names = [name for name, status, sure in judged if status == BOUNDED and sure == proved]
        if names:
            how = "and it is proved that none lies outside" if proved else "which were attained: the range is at least this wide"
            reasons.append(f"Bounded for {in_words(names)}: several answers explain the same, between the given ends, {how}.")
    if none:
        reasons.append(
            f"Not bounded for {in_words(none)}: nothing that was seen says what follows, and the number is one of many."
        )
    if not some and not none:
        return Finding(question, "Yes", " ".join(reasons), "good")
    if len(none) == len(prediction.experts):
        return Finding(question, "No", " ".join(reasons), "bad")
    return Finding(question, "Within bounds" if not none else "For some", " ".join(reasons), "caution")


#: Ends that differ by no more are of policies that are taken as exact: there is no interval.
_EXACT = 1e-9


def largest_changes(prediction: Prediction, rows: int | None = None) -> Table:
    """Return the choices that change, the largest change first, with whether bounds are proved.

    Where there are two actions, one changes as the other does: the row of the one that is chosen more often stands for both.
    """
    choices = prediction._tables(compute=True)[0]
    frame = prediction.to_frame()
    proved = dict(zip(prediction.experts, prediction.proved.tolist(), strict=True))
    frame["status"] = [
        ("bounded, proved" if proved[expert] else "bounded, attained") if status == BOUNDED else status
        for expert, status in zip(frame["expert"], frame["status"], strict=True)
    ]
    mdp = prediction.change.mdp
    of_two = {mdp.state_names[s] for s in np.flatnonzero(mdp.live.sum(axis=1) == 2)}
    frame = frame[~(frame["state"].isin(of_two) & (frame["change"] < 0))]
    size = frame["change"].abs().to_numpy()
    order = np.argsort(-np.nan_to_num(size, nan=np.inf), kind="stable")
    frame = frame.iloc[[i for i in order if not size[i] < 5e-4][:rows]]
    return replace(choices, frame=_without_exact(frame), caption="The largest changes of a choice")


def _without_exact(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows without intervals of what is taken as exact."""
    frame = frame.copy()
    frame.loc[frame["high"] <= frame["low"] + _EXACT, ["low", "high"]] = np.nan
    return frame


def outcomes_table(prediction: Prediction) -> Table:
    """Return the outcomes but for visits, which are many."""
    frame = prediction.outcomes[prediction.outcomes["quantity"] != "visits"]
    named = (frame["quantity"] + " " + frame["state"]).str.strip()
    frame = _without_exact(frame.drop(columns=["quantity", "state"]))
    frame.insert(1, "outcome", named)
    return replace(prediction._tables(compute=True)[1], frame=frame, caption="Outcomes before and after")


def whatif_page(prediction: Prediction, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """Return the report of a prediction."""
    answer = verdict(prediction)
    remarks = [*prediction.remarks, *remarks]
    if prediction.change.pay.any():
        remarks = [prediction.unit, *remarks]
    if len(prediction.experts) <= FEW:
        sections = [*_maps_of_each(prediction), _outcomes(prediction), _choices(prediction)]
    else:
        sections = [*_map_of_all(prediction), _outcomes_of_many(prediction), _distributions(prediction)]
    every = "whatif.csv has a row for each person, state and action, and whatif.json also has all outcomes."
    return Page(
        "What they will do after the change",
        f"{count(len(prediction.experts), 'person')}, {count(len(prediction.states), 'state')}.",
        [*sections, Section("How this was made", [every, f"Options: {options_text(options)}."])],
        f"multihorizon {package_version()}, seed {options.get('seed', 0)}",
        opening=[
            Cards(
                [
                    ("What changes?", " ".join(changes_in_words(prediction)), "", ""),
                    (answer.question, answer.answer, answer.reasons, answer.kind),
                ]
            ),
            *([Items(remarks)] if remarks else []),
        ],
        experts=list(enumerate(prediction.experts)),
        answer=[Lead(prediction.headline())],
    )


def changes_in_words(prediction: Prediction) -> list[str]:
    """Return what changes, a sentence for each kind of change."""
    change = prediction.change
    mdp = prediction.change.mdp
    parts = list[str]()
    direct = change.direct
    paid = [f"{change.arrival[s]:g} on arrival in {mdp.state_names[s]}" for s in np.flatnonzero(change.arrival)]
    paid += [
        f"{direct[s, a]:g} for {mdp.action_names[a]} in {mdp.state_names[s]}" for s, a in np.argwhere(np.abs(direct) > 1e-12)
    ]
    if paid:
        parts.append(f"Paid besides: {in_words(paid)}.")
    banned = [f"{mdp.action_names[a]} in {mdp.state_names[s]}" for s, a in np.argwhere(change.forbid & mdp.live)]
    if banned:
        parts.append(f"Forbidden: {in_words(banned)}.")
    if change.moved:
        parts.append(f"The task is replaced by one with {count(mdp.n_states, 'state')}.")
    named = [(prediction.experts[k], change.discounts[k]) for k in np.flatnonzero(np.isfinite(change.discounts))]
    if named and len(named) == len(prediction.experts) and np.ptp([gamma for _, gamma in named]) == 0:
        parts.append(f"Everybody's discount is {named[0][1]:g}.")
    elif named:
        parts.append(f"New discounts: {in_words([f'{name} {gamma:g}' for name, gamma in named])}.")
    if change.elsewhere:
        parts.append("Episodes begin elsewhere.")
    return parts or ["Nothing changes."]


def _choices(prediction: Prediction) -> Section:
    """Return a row for each choice that changes."""
    changed = largest_changes(prediction)
    heading = "What each of them chooses"
    number = len(changed.frame)
    if not number:
        return Section(heading, ["No choice changes by more than 0.0005."])
    meaning = "Numbers are the probabilities of an action in a state, before and after."
    blocks: list[str | Block] = [meaning, _of_experts(prediction, changed.head(TOP))]
    if number > TOP:
        most = 300  # `whatif.csv` has all
        few = f"the {most} largest of {number:,}" if number > most else "the largest first"
        blocks.append(_of_experts(prediction, changed.head(most, f"Choices that change, {few}")))
    return Section(heading, blocks)


def _of_experts(prediction: Prediction, table: Table) -> TableBlock:
    """Return a table with rows of experts, as a block."""
    place = {name: k for k, name in enumerate(prediction.experts)}
    return TableBlock(table, [[place[name]] for name in table.frame["expert"]])


def _outcomes(prediction: Prediction) -> Section:
    """Return a row for each outcome."""
    table = outcomes_table(prediction)
    return Section(
        "What comes of it", [_outcomes_mean(prediction), *([_of_experts(prediction, table)] if len(table.frame) else [])]
    )


def _outcomes_mean(prediction: Prediction) -> str:
    """Return what the outcomes are."""
    rounds = prediction.change.rounds
    if rounds is not None:
        return (
            f"A chance is that of reaching the state in the first {count(rounds, 'decision')}, and steps are those until it is "
            "first reached, where it is. Means are over the decisions made; a mean reward includes what is paid besides."
        )
    return (
        "A chance is that of reaching the state in an episode, and steps are those until it is first reached, where it is. "
        "Rewards are those of an episode, what is paid besides included; a discounted one counts later steps less, as the "
        "person does."
    )


def changed_choices(prediction: Prediction) -> list[tuple[int, int]]:
    """Return the states and actions whose probability changes most on average over people, at most 40."""
    size = np.where(
        prediction.change.mdp.live, np.nan_to_num(np.abs(prediction.after - prediction._before_there())).mean(axis=0), -1.0
    )
    order = [divmod(int(i), size.shape[1]) for i in np.argsort(-size, axis=None, kind="stable")[:40]]
    return [(s, a) for s, a in order if size[s, a] >= 5e-4]


def choices_of_many(prediction: Prediction, rows: int | None = None) -> Table:
    """Return how the choices of many people change, those that change most on average first."""
    content = []
    for s, a in changed_choices(prediction)[:rows]:
        before, after = prediction._before_there()[:, s, a], prediction.after[:, s, a]
        low, high = np.quantile(after, [0.1, 0.9])
        more, less = int((after - before > 0.05).sum()), int((before - after > 0.05).sum())
        numbers = float(before.mean()), float(after.mean()), float(low), float(high), more, less
        content.append((prediction.states[s], prediction.actions[a], *numbers))
    return _of_many(
        content, ["state", "action", "before", "after", "low", "high", "more", "less"], "The largest changes of a choice"
    )


def outcomes_of_many(prediction: Prediction, rows: int | None = None) -> Table:
    """Return how the outcomes of many people change."""
    content = []
    outcomes = prediction.outcomes[prediction.outcomes["quantity"] != "visits"]
    for (quantity, state), part in outcomes.groupby(["quantity", "state"], sort=False):
        before = part["before"].to_numpy(float)
        after = part["after"].to_numpy(float)
        if not np.isnan(after).all():
            low, high = np.nanquantile(after, [0.1, 0.9])
            mean = np.nan if np.isnan(before).all() else float(np.nanmean(before))
            sure = f"{int((part['status'] == IDENTIFIED).sum())} of {len(part)}"
            content.append((f"{quantity} {state}".strip(), mean, float(np.nanmean(after)), float(low), float(high), sure))
    return _of_many(content[:rows], ["outcome", "before", "after", "low", "high", "identified"], "What comes of it")


def _of_many(content: list[tuple[Any, ...]], columns: list[str], caption: str) -> Table:
    """Return means over people, and where most of them are."""
    frame = _without_exact(pd.DataFrame(content, columns=columns))
    roles: dict[str, Role] = {"before": "chance", "after": "chance"}
    return Table(frame, caption, ("after", "low", "high"), bars=False, roles=roles, headings={"low": "80% of people"})


def _distributions(prediction: Prediction) -> Section:
    """Of many people: the choices that change most on average, before against after, and how people are spread."""
    heading = "What they choose"
    chosen = changed_choices(prediction)
    if not chosen:
        return Section(heading, ["No choice changes by more than 0.0005 on average."])
    meaning = (
        "Numbers are means over people, where 80% of people are after the change, and how many choose it more or less often "
        "by over 0.05."
    )
    table = replace(choices_of_many(prediction, TOP), caption="The choices that change most on average")
    first = dict(reversed(chosen))  # of each state the choice that changes most
    pictures = [_scatter(prediction, s, first[s]) for s in list(reversed(first))[:2]]
    return Section(heading, [Beside(pictures), TableBlock(table), meaning])


def _scatter(prediction: Prediction, s: int, a: int) -> Chart:
    """Return one choice of everybody, after against before."""
    before = prediction._before_there()
    marks = []
    crowded = len(prediction.experts) > 60
    for k, name in enumerate(prediction.experts):
        low, high = float(prediction.low[k, s, a]), float(prediction.high[k, s, a])
        x, y = float(before[k, s, a]), float(prediction.after[k, s, a])
        if np.isnan(x + y):
            continue
        interval = UNKNOWN if high <= low + _EXACT else interval_text(low, high, lambda end: decimals(end, 3))
        tip = f"{name}\nbefore {decimals(x, 3)}\nafter {decimals(y, 3)}\ninterval {interval}\n{prediction.status[k]}"
        marks.append(Mark(x, y, tip, [k], 2.5, up=None if crowded or np.isnan(low + high) else (low, high)))
    caption = f"{prediction.actions[a]} in {prediction.states[s]}: each dot is a person. On the line nothing changes."
    return Chart(caption, [Panel(Axis("probability before"), Axis("probability after"), marks, [DIAGONAL])])


def _outcomes_of_many(prediction: Prediction) -> Section:
    """Of many people: how outcomes are distributed."""
    table = replace(outcomes_of_many(prediction), caption="Outcomes, means over people")
    return Section("What comes of it", [_outcomes_mean(prediction), *([TableBlock(table)] if len(table.frame) else [])])


def _maps_of_each(prediction: Prediction) -> list[Section]:
    """Before and after side by side, for each person."""
    blocks: list[str | Block] = []
    visits = _visits(prediction)
    before = prediction._before_there()
    for k, name in enumerate(prediction.experts):
        pair = _pair(prediction, before[k], prediction.after[k], visits[0][k], visits[1][k])
        blocks += [Subheading(name), Beside(pair)] if pair else []
    return [Section("On the map", blocks)] if blocks else []


def _map_of_all(prediction: Prediction) -> list[Section]:
    """Before and after side by side, on average over people."""
    visits = _visits(prediction)
    mean = [values.mean(axis=0) for values in (prediction._before_there(), prediction.after, *visits)]
    pair = _pair(prediction, *mean)
    return [Section("On the map, on average", [Beside(pair)])] if pair else []


def _visits(prediction: Prediction) -> tuple[Floats, Floats]:
    """Return how often each state is visited before and after `(K,S')`; 0 where nobody comes, NaN where that is not finite."""
    place = {name: s for s, name in enumerate(prediction.states)}
    person = {name: k for k, name in enumerate(prediction.experts)}
    rows = prediction.outcomes[prediction.outcomes["quantity"] == "visits"]
    numbers = np.zeros((2, len(prediction.experts), len(prediction.states)))
    who = rows["expert"].map(person).to_numpy()
    where = rows["state"].map(place).to_numpy()
    for i, column in enumerate(("before", "after")):
        numbers[i, who, where] = rows[column].to_numpy(float)
    return numbers[0], numbers[1]


def _pair(prediction: Prediction, old: Floats, new: Floats, visited: Floats, visits: Floats) -> list[Block]:
    """Return two maps of one policy before and after `(S',A)`; none where the task is neither a grid nor small."""
    mdp = prediction.change.mdp
    on_grid = mdp.grid_shape is not None and ARROWS.keys() >= set(mdp.action_names)
    if mdp.n_states > MOST_CELLS:
        return []
    tips = []
    for s, name in enumerate(prediction.states):
        times = (decimals(values[s], 2, "unknown") for values in (visited, visits))
        lines = [f"state {name}", f"visits {', then '.join(times)}"]
        for a in np.flatnonzero(mdp.live[s]):
            lines.append(f"{prediction.actions[a]} {decimals(old[s, a], 3, 'unknown')}, then {decimals(new[s, a], 3)}")
        tips.append("\n".join(lines))
    scale = (0.0, float(np.nan_to_num([visited, visits]).max()))
    pair = list[Block]()
    for policy, values, when, colours in (
        (old, visited, "Before", "Darker cells are visited more often."),
        (new, visits - visited, "After", "Blue cells are visited more often than before, orange cells less."),
    ):
        caption = f"{when}. Arrows are the likeliest actions."
        arrows = _likeliest(mdp.live, policy)
        drawn: GridMap | GraphMap | None
        if np.isnan(values).any():
            values = np.zeros_like(values)
            colours = "How often cells are visited is not finite."
        if on_grid:
            drawn = grid_map(mdp, values, tips, f"{caption} {colours}", arrows, scale)
        else:
            drawn = graph_map(mdp, tips, caption, arrows)
        if drawn is None:
            return _heat_pair(prediction, old, new)
        pair.append(drawn)
    return pair


def _heat_pair(prediction: Prediction, old: Floats, new: Floats) -> list[Block]:
    """Return the probabilities of actions before, and how they change, in the 20 states where they change most."""
    live, change = prediction.change.mdp.live, np.nan_to_num(new - old)
    most_in = np.where(live, np.abs(change), 0.0).max(axis=1)
    states = [int(s) for s in np.argsort(-most_in, kind="stable")[:20] if most_in[s] >= 5e-4]
    states.sort(key=lambda s: natural(prediction.states[s]))
    if not states or live.shape[1] > 12:
        return []
    names = [prediction.states[s] for s in states], list(prediction.actions)
    tips = [
        f"{prediction.actions[a]} in {prediction.states[s]}: {decimals(old[s, a], 3, 'unknown')}, then {decimals(new[s, a], 3)}"
        for s in states
        for a in range(live.shape[1])
    ]
    allowed = live[states]
    before = np.where(allowed, old[states], np.nan)
    changed = np.where(allowed, change[states], np.nan)
    first = "Before: the probability of each action, in the states where choices change most."
    then = "After: how much more likely it is (blue), or less (orange)."
    shown = (partial(decimals, digits=2, unknown=""), lambda value: "" if np.isnan(value) else signed(value, 2))
    return [heat_map(*names, before, tips, first, 1.0, shown[0]), heat_map(*names, changed, tips, then, 1.0, shown[1])]


def _likeliest(live: Any, policy: Floats) -> list[Arrow]:
    """Return the likeliest action of each state, and others that are nearly as likely."""
    shares = np.where(live, np.nan_to_num(policy), 0.0)
    best = shares.max(axis=1, keepdims=True)
    return [(int(s), int(a), True) for s, a in np.argwhere((shares >= 0.9 * best) & (best > 0))]


def nudge_page(answer: Nudge, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """Return the report of the smallest bonus with which people do something."""
    picture = _response_figure(answer)
    table = TableBlock(bonuses(answer), [[k] for k in range(len(answer.experts))])
    enough = [TableBlock(enough_table(answer))] if len(answer.enough) else []
    return Page(
        "How much must be paid",
        f"{count(len(answer.experts), 'person')}.",
        [
            Section("Who needs how much", [Items(answer.notes()), *enough, picture, table]),
            Section("How this was made", [*remarks, f"Options: {options_text(options)}."]),
        ],
        f"multihorizon {package_version()}, seed {options.get('seed', 0)}",
        experts=list(enumerate(answer.experts)),
        answer=[Lead(answer.headline())],
    )


def _response_figure(answer: Nudge) -> Chart:
    """Return how the probability grows with the bonus; of few experts with the bonus that each needs and its interval."""
    few = len(answer.experts) <= 5
    curves = list(answer.curves.groupby("expert", sort=False))
    most = float(answer.curves["bonus"].max()) or 1.0
    lowest = min(answer.chance, float(answer.curves["chance"].min()))
    low = max(lowest - 0.05, 0.0) - (0.07 * len(curves) * (1 - lowest) if few else 0.0)  # the names stand below the curves
    lines = [Line([(0.0, answer.chance), (most, answer.chance)], kind="frame")]
    marks = []
    for colour, (name, rows) in enumerate(curves):
        k = answer.experts.index(str(name))
        points = list(zip(rows["bonus"].tolist(), rows["chance"].tolist(), strict=True))
        if not few:
            lines.append(Line(points, kind="person", tip=str(name), experts=[k]))
            continue
        at = low + (0.03 + 0.06 * colour) * (1.02 - low)
        lines.append(Line(points, shortened(str(name), 30), label_at=at, colour=colour, experts=[k]))
        bonus, ends = float(answer.bonus[k]), (float(answer.low[k]), float(answer.high[k]))
        if np.isfinite(bonus):
            across = None if np.isnan(ends[0]) or ends[0] == ends[1] else (ends[0], min(ends[1], most))
            said = interval_text(*ends, significant)
            tip = f"{name}\nbonus {significant(bonus)}{f', 95% CI {said}' if across else ''}"
            marks.append(Mark(bonus, max(answer.chance, float(answer.before[k])), tip, [k], across=across, colour=colour))
    caption = "How the probability grows with the bonus; the thin line is the one that is asked for"
    caption += ", and a dot the bonus that is needed, with its interval." if few else ". Each curve is a person."
    x = Axis("bonus" if answer.comparable else "bonus, in temperatures of each expert", number_ticks(0.0, most), 0.0, 1.03 * most)
    what = f"choose {answer.action} in {answer.state}" if answer.action else f"reach {answer.state}"
    ticks = [tick for tick in number_ticks(0.0, 1.0) if tick[0] >= max(lowest - 0.1, 0.0)]
    y = Axis(f"probability to {shortened(what, 34)}", ticks, low, 1.02)
    return Chart(caption, [Panel(x, y, marks, lines)])


def enough_table(nudged: Nudge) -> Table:
    """Return the bonus that is enough for half of the people and for most of them, by group."""
    frame = nudged.enough.copy()
    frame["group"] = frame["group"].replace("", "everyone")
    frame["share"] = frame["share"].map(SHARES)
    frame["bonus"] = [bonus if np.isfinite(bonus) else "none is enough" for bonus in frame["bonus"]]
    frame = frame.rename(columns={"share": "enough for", "group": "participants", "persons": "how many"})
    roles: dict[str, Role] = {"bonus": "amount"}
    return Table(frame, "The bonus that is enough", ("bonus", "low", "high"), bars=False, roles=roles)


def bonuses(nudged: Nudge, rows: int | None = None) -> Table:
    """Return the bonus that each needs."""
    frame = nudged.to_frame()
    words: dict[str, float | str] = {"already": 0.0, "infinite": "none is enough", "not found": "not found"}
    frame["bonus"] = frame["answer"].map(words).where(frame["answer"] != "found", frame["bonus"]).astype(object)
    roles: dict[str, Role] = {"discount": "discount", "before": "share", "bonus": "amount"}
    table = Table(
        frame.head(len(frame) if rows is None else rows),
        "The smallest bonus that is enough",
        ("bonus", "low", "high"),
        bars=False,
        roles=roles,
        headings={"before": "without"},
    )
    return table.select("expert", "discount", "before", "bonus", "low", "high", "status")
