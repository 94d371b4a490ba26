"""Pages of the questions that are asked of a study, and the blocks that the page of a fit shows of them.

- `identify`: do these decisions, or any number of others like them, identify the discounts?
- `goals`: who belongs where, the groups' rewards side by side, and what to do where goals differ.
- `design`: which candidates to use how often, what can be expected of it, and how to check it by simulation.
- `recover`: simulated studies, the truth against what was found, and what more decisions and people would bring.
- `compare`: how well a horizon from one condition predicts another.
- families of look-ahead: how each fits, and each expert's parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.exact.identify import Identification
from multihorizon.files import write_all, write_csv, write_json
from multihorizon.horizon import Horizon
from multihorizon.likelihood.evidence import LikelihoodEvidence
from multihorizon.likelihood.intervals import reward_contrasts
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.questions.carrying_over import CarryingOver
from multihorizon.questions.design import Design
from multihorizon.questions.goal_comparison import QUESTION
from multihorizon.questions.goals import Goals
from multihorizon.questions.lookahead_comparison import FamilyRow, LookaheadComparison
from multihorizon.questions.study import Recovery, SizeResult
from multihorizon.report.charts import (
    DIAGONAL,
    Axis,
    Badge,
    Beside,
    Block,
    Chart,
    Items,
    Line,
    Listing,
    Mark,
    Page,
    Panel,
    Ruler,
    Section,
    TableBlock,
    figure,
)
from multihorizon.report.plots import new_axes, plot_reward
from multihorizon.result import package_version
from multihorizon.solution import Solution, Status
from multihorizon.tables import Role, Table
from multihorizon.words import count, decimals, percent_with_error, plus_minus, significant

#: What a reward of 1 means, for readers of a table of rewards.
UNIT_OF_REWARD = (
    "The unit of a reward: one that is larger by 1 makes the choice that leads to it at once 2.7 times as likely, for an expert "
    "with temperature 1."
)


def identify_page(solution: Solution, exact: Identification | None, remarks: Sequence[str]) -> Page:
    """The report of `multihorizon identify`: these decisions, exact policies, and how it was made."""
    horizon, unfinished = solution.require_problem().horizon, solution.status == Status.NOT_CONVERGED
    evidence, known = LikelihoodEvidence.of(solution), [[k] for k in range(len(solution.experts))]
    # Discounts that are not identified are no failure of the fit, but bad news.
    kinds = {Status.CONVERGED: "good", Status.NOT_IDENTIFIED: "bad", Status.NOT_CONVERGED: "bad"}
    these: list[str | Block] = [Badge(these_decisions(solution), kinds.get(solution.status, "")), solution.message]
    if unfinished:
        these.append("So what follows is about policies that need not be the experts'.")
    else:
        given = list(evidence.identified)
        discounts = np.where(given, solution.discounts, np.nan)
        frame = pd.DataFrame({"expert": solution.experts, "identified": given, "discount": discounts})
        table = Table(frame, "Whether these decisions identify each discount", roles={"discount": "discount"})
        these.append(TableBlock(table, known, horizon=horizon))
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
        exactly.append(TableBlock(ranges, known, horizon=horizon, ruler=ruler, hidden=["discount"]))
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
    )


def these_decisions(solution: Solution) -> str:
    """Whether the decisions at hand identify the discounts."""
    if solution.status == Status.NOT_CONVERGED:
        return "The fit to these decisions did not converge."
    told, number = sum(LikelihoodEvidence.of(solution).identified), len(solution.experts)
    if 0 < told < number:
        return f"These decisions identify {told} of {number} discounts."
    return f"These decisions {'identify' if told else 'do not identify'} the discounts."


def goals_page(found: Goals[Solution], remarks: Sequence[str], seed: int) -> Page:
    """The report of `multihorizon goals`."""
    method = (
        "Groups are compared by how likely one reward makes their decisions, less a price for each parameter. The test of one "
        "reward for all asks whether rewards of their own explain the experts' decisions better, by more than they explain "
        "decisions drawn from the fit with one reward."
    )
    return Page(
        "Who shares a goal with whom",
        found.headline(),
        [Section(QUESTION, goals_blocks(found, found.experts)), Section("How this was made", [method, *remarks])],
        f"multihorizon {package_version()}, seed {seed}",
        experts=list(enumerate(found.experts)),
    )


def goals_blocks(found: Goals[Solution], names: Sequence[str]) -> list[str | Block]:
    """What was found of each expert and each group; `names` numbers the experts of the page."""
    blocks: list[str | Block] = [Listing(found.sentences())]
    if found.withheld:
        return blocks
    if found.verdict == "differ" or found.ungrouped:
        blocks.append(
            "Fit each group by itself: keep the rows of its experts, and run multihorizon fit on them. Experts whose group is "
            "not known need more decisions, above all in states that the others visit."
        )
    horizon = Horizon.of(expert.mdp for solution in found.solutions for expert in solution.require_problem().experts)
    number = {name: g for g, group in enumerate(found.groups) for name in group}
    shares: dict[str, Any] = {f"shares goal {g + 1}": found.memberships[:, g] for g in range(len(found.groups))}
    goal = [f"goal {number[name] + 1}" for name in found.experts]
    roles: dict[str, Role] = {"discount": "discount"}
    for name in shares:
        roles[name] = "chance"
    members = Table(
        pd.DataFrame({"expert": found.experts, "group": goal, "discount": found.discounts} | shares),
        "Who belongs where, with the probability of sharing each goal (alone in a group: with nobody)",
        roles=roles,
    )
    blocks.append(TableBlock(members, [[names.index(name)] for name in found.experts], horizon=horizon))

    columns: dict[str, list[str | None]] = {}
    for g, solution in enumerate(found.solutions):
        if len(solution.experts) > 1:
            columns[f"goal {g + 1}"] = [None] * solution.reward.size
            if solution.status != Status.NOT_CONVERGED:
                contrasts = reward_contrasts(resume(solution))
                pairs = zip(contrasts.values, contrasts.standard_errors, strict=True)
                columns[f"goal {g + 1}"] = [None if np.isnan(value) else plus_minus(value, error) for value, error in pairs]
    if not columns:
        return [*blocks, "No two experts surely share a goal, so no reward is given."]
    problem = found.solutions[0].require_problem()
    average = "; those of states are differences from the average logged step" if problem.tabular else ""
    frame = pd.DataFrame({"state" if problem.tabular else "feature": problem.parameter_names} | columns)
    return [*blocks, UNIT_OF_REWARD, TableBlock(Table(frame, f"Rewards of each goal, ± one standard error{average}"))]


def lookahead_blocks(compared: LookaheadComparison, names: Sequence[str]) -> list[str | Block]:
    """The table of families, and each expert's parameters in them; `names` numbers the experts of the page."""
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
    """How well each family of look-ahead fits, the lowest AIC first."""
    headings = {"log_likelihood": "log-likelihood", "aic": "AIC", "bic": "BIC"}
    headings |= {"free_p": "p in free weights", "best_p": "p against the best"}
    table = Table(compared.to_frame(), "Families, the lowest AIC first", headings=headings)
    return table.select("family", "log_likelihood", "parameters", "aic", "bic", "held_out", "free_p", "best_p", "verdict")


#: What `multihorizon compare` writes.
COMPARED = ("compare.json", "compare.csv", "compare.html")


def write_comparison(directory: Path, found: CarryingOver, options: dict[str, Any], remarks: Sequence[str] = ()) -> None:
    """Write all files of predictions from one condition to another."""

    def write(draft: Path) -> None:
        content = {**found.to_dict(), "notes": remarks, "options": options, "version": package_version()}
        write_json(draft / "compare.json", content)
        write_csv(found.to_frame(), draft / "compare.csv")
        compare_page(found, options, remarks).write(draft / "compare.html")

    write_all(directory, COMPARED, write)


def compare_page(found: CarryingOver, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """The report of predictions from one condition to another."""
    answer, pairs = found.answer, found.pairs
    caption = (
        "What each person's own horizon gains per decision over one discount for everybody, the line at 0, with its 95 % "
        "interval."
    )
    picture = figure(found.plot(new_axes(7.0, 1.6 + 0.45 * len(pairs))), caption)
    meaning = (
        "Everything is fitted to the decisions under the first condition, and nothing of the second is used before its decisions "
        "are predicted, but the shift that all others have in common. Own horizons, and temperatures beside one discount for "
        "everybody, are averaged over what is likely for the person. By chance all available actions are equally likely. "
        "Intervals are over persons."
    )
    badge, sentences = Badge(answer.answer, "" if answer.kind == "caution" else answer.kind), found.sentences().splitlines()[1:]
    return Page(
        "Carried from one condition to another",
        f"{found.condition}: {', '.join(found.levels)}; {count(len({*(e for pair in pairs for e in pair.experts)}), 'person')}.",
        [
            Section(answer.question, [badge, answer.reasons, Items(sentences), picture]),
            Section("How well each predicts", [TableBlock(carried_table(found)), meaning]),
            Section("How this was made", [*remarks, f"Options: {options_text(options)}."]),
        ],
        f"multihorizon {package_version()}, seed {options.get('seed', 0)}",
    )


def carried_table(found: CarryingOver) -> Table:
    """How well each condition predicts another."""
    headings = {"common_discount": "the one discount", "gain": "own − one discount", "gain_low": "95 % interval"}
    roles: dict[str, Role] = {"common_discount": "discount", "own": "score", "one_discount": "score", "chance": "score"}
    drawn = "gain", "gain_low", "gain_high"
    caption = "Log-likelihood of a decision; nearer to zero is better"
    table = Table(found.to_frame(), caption, drawn, bars=False, roles=roles, headings=headings)
    return table.select(*(str(name) for name in table.frame if name != "gain_error"))


#: What `multihorizon design` writes.
DESIGNED = ("design.json", "design.csv", "schedule.csv", "spread_out.csv", "design.html")


def write_design(directory: Path, found: Design, options: dict[str, Any], check: str, remarks: Sequence[str] = ()) -> None:
    """Write all files of a design; `check` is the command that simulates it."""

    def write(draft: Path) -> None:
        write_json(draft / "design.json", {**found._content(), "check": check, "notes": remarks, "options": options})
        write_csv(found.to_frame(), draft / "design.csv")
        write_csv(found.schedule.to_frame(), draft / "schedule.csv", read_again=True)
        write_csv(replace(found.schedule, times=found.spread_times).to_frame(), draft / "spread_out.csv", read_again=True)
        design_page(found, options, check, remarks).write(draft / "design.html")

    write_all(directory, DESIGNED, write)


def design_page(found: Design, options: dict[str, Any], check: str, remarks: Sequence[str] = ()) -> Page:
    """The report of a design."""
    used = int((found.times > 0).sum())
    words = (
        "The design hardly matters; " if found.hardly_matters else "Most episodes are of one kind; " if found.one_sided else ""
    )
    words += (
        f"{used} of {count(len(found.candidates), 'candidate')} are used; the proved gap is {significant(100 * found.gap, 2)} %"
    )
    good = "" if found.hardly_matters or found.one_sided else "good"
    badge = Badge(words[0].upper() + words[1:], good if found.status == Status.OPTIMAL else "bad")
    pictures: list[Block] = [
        figure(found.plot(new_axes(5.0, 0.9 + 0.22 * min(used, 25))), "How often each person is given each candidate")
    ]
    tasks, rows = found.schedule.tasks, found.schedule.candidates
    if len(tasks) == 1 and all(len(row.starts) == 1 for row in rows) and tasks[0].n_states <= 400:
        begun = np.zeros(tasks[0].n_states)
        np.add.at(begun, [row.starts[0] for row in rows], found.times)
        drawn = plot_reward(tasks[0], begun, title="")
        if tasks[0].grid_shape is None:
            drawn.set_ylabel("episodes")
        pictures.append(figure(drawn, "In which states episodes begin, and how many of each person"))
    given, errors, sizes = found._tables(compute=True)
    what = "discounts" if found.scale == "discount" else "the effect on the logit of the discount"
    choice = ": more persons, or more decisions of each?" if found.scale == "logit" else ""
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
        f"{count(found.persons, 'person')}, {decimals(found.size, 0)} {found.unit} each.",
        [
            Section(
                "What each person is given",
                [
                    badge,
                    Items(found.sentences().splitlines()),
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
        f"multihorizon {package_version()}, seed {found.seed}",
    )


#: What `multihorizon recover` writes.
FILES = ("recover.json", "recover.csv", "recover.html")


def write_recovery(directory: Path, found: Recovery, options: dict[str, Any], remarks: Sequence[str] = ()) -> None:
    """Write all files of simulated studies."""

    def write(draft: Path) -> None:
        write_json(draft / "recover.json", {**found.to_dict(), "remarks": remarks, "options": options})
        write_csv(found.to_frame(), draft / "recover.csv")
        recover_page(found, options, remarks).write(draft / "recover.html")

    write_all(directory, FILES, write)


def recover_page(found: Recovery, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """The report of simulated studies."""
    return Page(
        "What can this design show?",
        f"{found.sizes[0].studies} simulated studies of each size, fitted by {found.solver}",
        [
            Section("Truth and recovery", recovery_blocks(found)),
            Section("How this was made", [*remarks, f"Options: {options_text(options)}."]),
        ],
        f"multihorizon {package_version()}, seed {found.seed}",
    )


def options_text(options: dict[str, Any]) -> str:
    """The options that were given, in a row."""
    given = {name: value for name, value in options.items() if value is not None}
    return "; ".join(f"{k}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in given.items())


def recovery_blocks(found: Recovery) -> list[str | Block]:
    """What simulated studies showed: pictures and a table."""
    pictures = [_truth_figure(found.sizes[0])]
    effects = [size for size in _along(found, "effect") if np.isfinite(size.power)]
    if len(effects) > 1:
        pictures.append(_power_figure(effects, found.term))
    for name, label in (("decisions", "decisions per person"), ("people", "people")):
        sizes = _along(found, name)
        if len(sizes) > 1:
            pictures.append(_sizes_figure(sizes, name, label))
    meaning = (
        "Bias and error are those of the discounts; the error is the root mean square. Coverage is the share of 95 % intervals "
        "that contain the truth. Power is the share of studies with p < 0.05. With an effect of 0 it is the share of false "
        "alarms, which should be near 5 %. The number after ± is the standard error of a share with so many simulated studies."
    )
    return [found.sentences(), Beside(pictures), TableBlock(sizes_table(found)), meaning]


def _truth_figure(size: SizeResult) -> Chart:
    """Estimated against true discounts."""
    most = 1500  # more dots would make the page slow
    pairs = np.column_stack([size.truth.ravel(), size.estimates.ravel()])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    shown = pairs[np.linspace(0, len(pairs) - 1, min(len(pairs), most)).astype(int)]
    marks = [Mark(x, y, f"true {decimals(x, 3)}\nestimated {decimals(y, 3)}", size=2.5) for x, y in shown.tolist()]
    few = f" Shown are {most:,} of {len(pairs):,}, evenly drawn." if len(pairs) > most else ""
    caption = f"Each dot is a simulated person in the study as designed.{few}"
    return Chart(caption, [Panel(Axis("true discount"), Axis("estimated discount"), marks, [DIAGONAL])])


def _power_figure(sizes: Sequence[SizeResult], term: str | None) -> Chart:
    """Power against the true size of the effect."""
    x, marks = [size.effect for size in sizes], []
    for size in sizes:
        error = size.share_error(size.power)
        tip = f"true effect {decimals(size.effect, 2)}\npower {percent_with_error(size.power, error)}"
        marks.append(Mark(size.effect, size.power, tip, up=(size.power - error, size.power + error)))
    lines = [Line([(min(x), 0.05), (max(x), 0.05)], kind="frame"), Line([(mark.x, mark.y) for mark in marks])]
    axis = Axis("true effect on the logit of the discount", [(at, significant(at, 2)) for at in x], min(x), max(x))
    caption = f"How often a study sees an effect of {term}. The thin line stands at 0.05, the level of the test."
    return Chart(caption, [Panel(axis, Axis("power"), marks, lines)])


def _sizes_figure(sizes: Sequence[SizeResult], name: str, label: str) -> Chart:
    """Error, coverage and power against one of the numbers that can be chosen."""
    x = [float(getattr(size, name)) for size in sizes]
    found = [("error of a discount", [s.error for s in sizes]), ("coverage of discounts", [s.coverage for s in sizes])]
    if any(np.isfinite(size.power) for size in sizes):
        found.append((f"power, effect {significant(sizes[0].effect, 2)}", [s.power for s in sizes]))
    lines, marks = [Line([(0.0, 0.95), (max(x), 0.95)], kind="frame")], []
    for colour, (kind, values) in enumerate(found):
        points = [(at, value) for at, value in zip(x, values, strict=True) if np.isfinite(value)]
        lines.append(Line(points, kind, colour=colour))
        marks += [
            Mark(at, value, f"{decimals(at, 0)} {label}\n{kind}: {decimals(value, 3)}", colour=colour) for at, value in points
        ]
    axis = Axis(label, [(at, decimals(at, 0)) for at in x], 0.0, max(x))
    caption = f"How the answer changes with the number of {label}. The thin line stands at 0.95."
    return Chart(caption, [Panel(axis, Axis("error, or share of studies"), marks, lines)])


def sizes_table(found: Recovery) -> Table:
    """What simulated studies of each size showed."""
    rows = []
    for size in found.sizes:
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


def _along(found: Recovery, name: str) -> list[SizeResult]:
    """The study as designed and those that differ from it in one number only, in the order of that number."""
    first, others = found.sizes[0], [other for other in ("people", "decisions", "effect") if other != name]

    def same(size: SizeResult) -> bool:
        pairs = [(getattr(size, other), getattr(first, other)) for other in others]
        return all(a == b or (np.isnan(a) and np.isnan(b)) for a, b in pairs)

    return sorted((size for size in found.sizes if same(size)), key=lambda size: float(getattr(size, name)))
