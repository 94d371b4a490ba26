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

from multihorizon.analysis import QUESTION
from multihorizon.exact.identify import Identification
from multihorizon.files import write_all, write_csv, write_json
from multihorizon.horizon import Horizon
from multihorizon.likelihood.intervals import reward_contrasts
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.questions.carrying_over import MODELS, Carried, CarryingOver
from multihorizon.questions.design import Design
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
    Either,
    Items,
    Line,
    Listing,
    Mark,
    Page,
    PageTable,
    Panel,
    Ruler,
    Section,
    figure,
    look_ahead,
    look_ahead_range,
)
from multihorizon.report.plots import new_axes, plot_reward
from multihorizon.result import package_version
from multihorizon.solution import LikelihoodEvidence, Solution, Status
from multihorizon.words import count, decimals, p_text

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
        rows = [
            [name, "yes" if told else "no", look_ahead(float(gamma), horizon) if told else None]
            for name, told, gamma in zip(solution.experts, evidence.identified, solution.discounts, strict=True)
        ]
        headers = ["expert", "identified", Either("discount γ", f"horizon, {horizon.many}")]
        these.append(PageTable(headers, rows, "Whether these decisions identify each discount", known))
    exactly: list[str | Block] = ["Whether exact policies would identify the discounts cannot be said for this problem."]
    if exact is not None:
        ruler = Ruler.over(exact.intervals.ravel().tolist(), horizon)
        ranges = [
            [name, look_ahead_range((low, high), horizon), ruler.bar(low, float(gamma), high)]
            for name, gamma, (low, high) in zip(exact.experts, exact.discounts, exact.intervals.tolist(), strict=True)
        ]
        headers = ["expert", Either("discounts", f"horizons, {horizon.many}"), ruler.title]
        exactly = [Badge(exact.status, "good" if exact.status == "unique" else "bad"), Listing(exact.sentences())]
        exactly.append(PageTable(headers, ranges, "The smallest and the largest discount that explain each expert", known))
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
    members = [
        [name, f"goal {number[name] + 1}", look_ahead(float(gamma), horizon), *(decimals(float(p), 2) for p in chances)]
        for name, gamma, chances in zip(found.experts, found.discounts, found.memberships, strict=True)
    ]
    look = Either("discount γ", f"horizon, {horizon.many}")
    headers = ["expert", "group", look, *(f"shares goal {g + 1}" for g in range(len(found.groups)))]
    caption = "Who belongs where, with the probability of sharing each goal (alone in a group: with nobody)"
    blocks.append(PageTable(headers, members, caption, [[names.index(name)] for name in found.experts]))

    columns: dict[int, list[str | None]] = {}
    for g, solution in enumerate(found.solutions):
        if len(solution.experts) > 1:
            columns[g] = [None] * solution.reward.size
            if solution.status != Status.NOT_CONVERGED:
                contrasts = reward_contrasts(resume(solution))
                pairs = zip(contrasts.values, contrasts.standard_errors, strict=True)
                columns[g] = [None if np.isnan(value) else f"{value:.2f} ± {error:.2f}" for value, error in pairs]
    if not columns:
        return [*blocks, "No two experts surely share a goal, so no reward is given."]
    problem = found.solutions[0].require_problem()
    rows = [[name, *(cells[i] for cells in columns.values())] for i, name in enumerate(problem.parameter_names)]
    average = "; those of states are differences from the average logged step" if problem.tabular else ""
    kinds = ["state" if problem.tabular else "feature", *(f"goal {g + 1}" for g in columns)]
    return [*blocks, UNIT_OF_REWARD, PageTable(kinds, rows, f"Rewards of each goal, ± one standard error{average}")]


def lookahead_blocks(compared: LookaheadComparison, names: Sequence[str]) -> list[str | Block]:
    """The table of families, and each expert's parameters in them; `names` numbers the experts of the page."""
    meaning = (
        f"Each family says how the weight of a later step falls; tasks have up to {compared.steps} steps. A lower AIC or BIC is "
        "better, and so is a held-out log-likelihood nearer to zero. A small p in free weights says that the family's shape is "
        "too narrow. A small p against the best says that the decisions distinguish the two."
    )
    cells = [family_cells(row) for row in compared.rows]
    families = PageTable(list(cells[0]), [list(row.values()) for row in cells], "Families, the lowest AIC first")
    parameters = [(row, name) for row in compared.rows for name in row.details["parameters"]]

    def parameter(row: FamilyRow, name: str, k: int) -> str:
        value, error = row.details["parameters"][name][k], row.details["standard_errors"][name][k]
        if value != value:
            return "not identified"
        shown = f"{value:.0f}" if name == "depth" else f"{value:.2f}"
        return shown if error != error else f"{shown} ± {error:.2f}"

    people = [[name, *(parameter(*of, k) for of in parameters)] for k, name in enumerate(compared.experts)]
    headers = ["expert", *(f"{row.family}: {name}" for row, name in parameters)]
    places = [[names.index(name)] for name in compared.experts]
    of_each = PageTable(headers, people, "Each expert's look-ahead in each family", places)
    return [compared.sentences(), families, meaning, of_each]


def family_cells(row: FamilyRow) -> dict[str, str]:
    """One row of the table of families, by header."""
    return {
        "family": row.family,
        "log-likelihood": f"{row.log_likelihood:.2f}",
        "parameters": f"{row.parameters}",
        "AIC": f"{row.aic:.1f}",
        "BIC": f"{row.bic:.1f}",
        "held out": decimals(row.held_out, 1) or "–",
        "p in free weights": p_text(row.free_p, "") if row.free_degrees else "–",
        "p against the best": p_text(row.best_p, ""),
        "verdict": row.verdict,
    }


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
    cells = [carried_cells(pair) for pair in pairs]
    rows = [list(row.values()) for row in cells]
    table = PageTable(list(cells[0]), rows, "Log-likelihood of a decision; nearer to zero is better")
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
            Section("How well each predicts", [table, meaning]),
            Section("How this was made", [*remarks, f"Options: {options_text(options)}."]),
        ],
        f"multihorizon {package_version()}, seed {options.get('seed', 0)}",
    )


def carried_cells(pair: Carried) -> dict[str, str]:
    """One row of the table of predictions, by header."""
    gain = pair.gain()
    known = not np.isnan(gain.estimate)
    return {
        "from": pair.origin,
        "to": pair.target,
        "persons": f"{len(pair.experts):,}",
        "decisions": f"{pair.decisions.sum():,.0f}",
        **{model.replace("_", " "): decimals(pair.mean(model), 3) or "–" for model in MODELS},
        "the one discount": decimals(pair.common_discount, 3) or "–",
        "own − one discount": decimals(gain.estimate, 4) or "–",
        "95 % interval": f"{gain.low:.4f} to {gain.high:.4f}" if known else "–",
    }


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
    words += f"{used} of {count(len(found.candidates), 'candidate')} are used; the proved gap is {100 * found.gap:.2g} %"
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
    errors, table = found.errors_frame(), found.to_frame().sort_values("times", ascending=False, kind="stable")
    error_rows = [[str(row[0]), *(decimals(value, 4) for value in row[1:])] for row in errors.to_numpy().tolist()]
    headers = [name.replace("_", " ") for name in errors.columns]
    what = "discounts" if found.scale == "discount" else "the effect on the logit of the discount"
    columns = table[table["times"] > 0][["candidate", "times", "weight", "episodes"]].to_numpy().tolist()
    candidate_rows = [[name, f"{times:,}", decimals(weight, 4), f"{episodes}"] for name, times, weight, episodes in columns]
    size_rows = [
        [f"{persons:,.0f}", f"{decisions:,.0f}", f"{in_all:,.0f}", decimals(error, 4), decimals(power, 2) or "–"]
        for persons, decisions, in_all, error, power in found.sizes.to_numpy().tolist()
    ]
    named = ["persons", "decisions of each", "decisions in all", "largest standard error", "power"]
    if not np.isfinite(found.difference):
        named, size_rows = named[:-1], [row[:-1] for row in size_rows]
    choice = ": more persons, or more decisions of each?" if found.scale == "logit" else ""
    sizes = PageTable(named, size_rows, f"Studies of other sizes, with the same shares{choice}")
    method = (
        "Each candidate is judged by what it is expected to say about the targets after rewards and temperatures are accounted "
        "for. The study makes the information about all targets together as large as possible: the determinant of their "
        "information matrix. The uniform study gives all candidates equally often, in fractions where need be, and costs the "
        "same. The proof holds for the draws that stand for what the pilot leaves open. Standard errors are those of large "
        "samples; a simulation shows what they miss:"
    )
    return Page(
        "Which study to run",
        f"{count(found.persons, 'person')}, {found.size:,.0f} {found.unit} each.",
        [
            Section(
                "What each person is given",
                [
                    badge,
                    Items(found.sentences().splitlines()),
                    Beside(pictures),
                    PageTable(
                        ["candidate", "times", "best share before rounding", "episodes each time"],
                        candidate_rows,
                        "The candidates that are used",
                    ),
                ],
            ),
            Section(
                "What it can be expected to show", [PageTable(headers, error_rows, f"Expected standard errors of {what}"), sizes]
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
    cells = [size_cells(size) for size in found.sizes]
    rows = [list(row.values()) for row in cells]
    meaning = (
        "Bias and error are those of the discounts; the error is the root mean square. Coverage is the share of 95 % intervals "
        "that contain the truth. Power is the share of studies with p < 0.05. With an effect of 0 it is the share of false "
        "alarms, which should be near 5 %. The number after ± is the standard error of a share with so many simulated studies."
    )
    table = PageTable(list(cells[0]), rows, "The study as designed first, then one change at a time")
    return [found.sentences(), Beside(pictures), table, meaning]


def _truth_figure(size: SizeResult) -> Chart:
    """Estimated against true discounts."""
    most = 1500  # more dots would make the page slow
    pairs = np.column_stack([size.truth.ravel(), size.estimates.ravel()])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    shown = pairs[np.linspace(0, len(pairs) - 1, min(len(pairs), most)).astype(int)]
    marks = [Mark(x, y, f"true {x:.3f}\nestimated {y:.3f}", size=2.5) for x, y in shown.tolist()]
    few = f" Shown are {most:,} of {len(pairs):,}, evenly drawn." if len(pairs) > most else ""
    caption = f"Each dot is a simulated person in the study as designed.{few}"
    return Chart(caption, [Panel(Axis("true discount"), Axis("estimated discount"), marks, [DIAGONAL])])


def _power_figure(sizes: Sequence[SizeResult], term: str | None) -> Chart:
    """Power against the true size of the effect."""
    x, marks = [size.effect for size in sizes], []
    for size in sizes:
        error = size.share_error(size.power)
        tip = f"true effect {size.effect:.2f}\npower {_share(size.power, error)}"
        marks.append(Mark(size.effect, size.power, tip, up=(size.power - error, size.power + error)))
    lines = [Line([(min(x), 0.05), (max(x), 0.05)], kind="frame"), Line([(mark.x, mark.y) for mark in marks])]
    axis = Axis("true effect on the logit of the discount", [(at, f"{at:.2g}") for at in x], min(x), max(x))
    caption = f"How often a study sees an effect of {term}. The thin line stands at 0.05, the level of the test."
    return Chart(caption, [Panel(axis, Axis("power"), marks, lines)])


def _sizes_figure(sizes: Sequence[SizeResult], name: str, label: str) -> Chart:
    """Error, coverage and power against one of the numbers that can be chosen."""
    x = [float(getattr(size, name)) for size in sizes]
    found = [("error of a discount", [s.error for s in sizes]), ("coverage of discounts", [s.coverage for s in sizes])]
    if any(np.isfinite(size.power) for size in sizes):
        found.append((f"power, effect {sizes[0].effect:.2g}", [s.power for s in sizes]))
    lines, marks = [Line([(0.0, 0.95), (max(x), 0.95)], kind="frame")], []
    for colour, (kind, values) in enumerate(found):
        points = [(at, value) for at, value in zip(x, values, strict=True) if np.isfinite(value)]
        lines.append(Line(points, kind, colour=colour))
        marks += [Mark(at, value, f"{at:,.0f} {label}\n{kind}: {value:.3f}", colour=colour) for at, value in points]
    axis = Axis(label, [(at, f"{at:,.0f}") for at in x], 0.0, max(x))
    caption = f"How the answer changes with the number of {label}. The thin line stands at 0.95."
    return Chart(caption, [Panel(axis, Axis("error, or share of studies"), marks, lines)])


def size_cells(size: SizeResult) -> dict[str, str]:
    """One row of the table of sizes, by header."""
    return {
        "people": f"{size.people}",
        "decisions": f"{size.decisions:.0f}",
        "effect": decimals(size.effect, 2) or "–",
        "bias": decimals(size.bias, 3) or "–",
        "error": decimals(size.error, 3) or "–",
        "correlation": decimals(size.correlation, 2) or "–",
        "coverage": _share(size.coverage, size.coverage_error),
        "coverage of the effect": _share(size.effect_coverage, size.share_error(size.effect_coverage)),
        "power": _share(size.power, size.share_error(size.power)),
        "no answer": f"{size.unanswered}",
    }


def _share(share: float, error: float) -> str:
    """A share with its standard error."""
    return "–" if np.isnan(share) else f"{100 * share:.0f} ± {100 * error:.0f} %"


def _along(found: Recovery, name: str) -> list[SizeResult]:
    """The study as designed and those that differ from it in one number only, in the order of that number."""
    first, others = found.sizes[0], [other for other in ("people", "decisions", "effect") if other != name]

    def same(size: SizeResult) -> bool:
        pairs = [(getattr(size, other), getattr(first, other)) for other in others]
        return all(a == b or (np.isnan(a) and np.isnan(b)) for a, b in pairs)

    return sorted((size for size in found.sizes if same(size)), key=lambda size: float(getattr(size, name)))
