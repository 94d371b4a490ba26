"""From a table of who did what in which state to planning horizons with error bars: `demo` shows it, `check` looks at the table,
and `fit` does it. With `--state`, states are columns of numbers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pandas as pd
import typer
from rich.table import Table as RichTable

from multihorizon.analysis import Analysis, analyse
from multihorizon.cli import CheckOptions, DemoOptions, FitOptions
from multihorizon.cli.console import (
    LISTED,
    SHOWN,
    at_the_ends,
    by_name,
    called,
    checked,
    cluster_of,
    deviations_of,
    discounts_of,
    families_of,
    habit_of,
    in_options,
    out,
    population_of,
    progress_bar,
    read_decisions,
    read_mdps,
    read_options,
    show_files,
    show_remarks,
    show_robustness,
    tables_of,
    temperature_of,
    write_answer,
)
from multihorizon.data.check import CHANCE, Issue, TableCheck, check_table, nothing_shared, write_mended
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.reading import file_kind, files_of
from multihorizon.data.side_tables import read_features, read_groups, read_known_reward, read_recoding
from multihorizon.data.steps import Steps
from multihorizon.domains.base import Domain
from multihorizon.domains.grids import meadow, toy
from multihorizon.exact.identify import identify
from multihorizon.files import write_all
from multihorizon.horizon import Horizon
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.mdp import MDP
from multihorizon.parallel import Progress, part_of, silent
from multihorizon.planning.plan import Value
from multihorizon.population.findings import PopulationEvidence, PopulationFindings
from multihorizon.population.solver import Population, absent_words
from multihorizon.problem import Problem, require_counts
from multihorizon.questions.differences import population_words
from multihorizon.questions.horizons import half_life_text, own_steps_text, person_cells, sizes, steps_text
from multihorizon.questions.people import People
from multihorizon.questions.study import Recovery
from multihorizon.report.charts import Badge, Block, Page, Section, TableBlock
from multihorizon.report.files import FILES, asked_solution, write_fit
from multihorizon.report.pages import families_table
from multihorizon.report.people import at_means, compared_with, conditions_table, contrast_rows, effect_rows
from multihorizon.report.plots import best_walk, plot_walks, save
from multihorizon.result import package_version
from multihorizon.solution import Solution, Status
from multihorizon.words import Role, Table, count, decimals, from_to

WALKERS = ("Ann", "Ben", "Cleo")
#: Walks that each walker makes, from places all over the meadow.
WALKS = 300
#: What a step onto a cell brings, with its name and its sign on the map.
GROUND = {6.0: ("snack", "s"), 40.0: ("feast", "F"), -3.0: ("mud", "~"), -0.5: ("grass", "·")}
TOUR = (
    "walks.png",
    "decisions.csv",
    "meadow.npz",
    "result.json",
    "result.npz",
    "people.csv",
    "reward.csv",
    "solution.json",
    "task.npz",
    "report.html",
)


def demo(options: DemoOptions) -> None:
    """Run a ten-second example, and write its data and report."""
    with checked(options, TOUR):
        domain = meadow()
        directory = options.out_dir
        start = domain.mdp.state_names.index("B3")
        walks = [best_walk(domain.mdp, domain.reward, discount, start) for discount in domain.hard_discounts]
        _open_tour(domain, walks)
        with progress_bar("demo") as progress:
            analysis = _fit_tour(directory, domain, walks, progress)
        _show_tour(domain, analysis)
        _close_tour(directory)


def _open_tour(domain: Domain, walks: list[list[int]]) -> None:
    """The three maps side by side."""
    out.print("Three walkers want the same things: a snack (s, 6 points), a feast (F, 40),")
    out.print("and dry feet (~ is mud: each step in it costs 3, other steps half a point).")
    out.print("They start at the same place, @. This is where each of them goes:\n")
    maps = RichTable(box=None, padding=(0, 2), show_header=False)
    maps.add_row(*WALKERS, style="bold")
    maps.add_row(*(f"looks {decimals(Horizon()(discount), 0)} steps ahead" for discount in domain.hard_discounts))
    maps.add_row(*(_meadow_map(domain, walk) for walk in walks))
    out.print(maps)


def _meadow_map(domain: Domain, walk: list[int]) -> str:
    """Return the meadow with one walk drawn as arrows."""
    assert domain.mdp.grid_shape is not None
    width = domain.mdp.grid_shape[1]
    arrows = {1: "→", width: "↓", -1: "←", -width: "↑"}
    signs = [GROUND[reward][1] for reward in domain.reward.tolist()]
    for here, following in pairwise(walk):
        signs[here] = arrows[following - here]
    signs[walk[0]] = "@"
    return "\n".join(" ".join(signs[i : i + width]) for i in range(0, len(signs), width))


def _fit_tour(directory: Path, domain: Domain, walks: list[list[int]], progress: Progress) -> Analysis:
    """Log walks from all over the meadow, fit them, and write everything."""
    progress(0.0, "walking")
    table = Demonstrations.simulate(domain.mdp, domain.soft_experts(), WALKS, names=WALKERS)
    analysis = analyse([table], [domain.mdp], progress=part_of(progress, 0.1, 0.9))
    assert isinstance(analysis, Analysis)
    progress(0.9, "drawing")
    titles = [
        f"{name} looks {decimals(Horizon()(g), 0)} steps ahead" for name, g in zip(WALKERS, domain.hard_discounts, strict=True)
    ]

    def write(draft: Path) -> None:
        table.to_csv(draft / "decisions.csv")
        domain.mdp.to_npz(draft / "meadow.npz")
        save(plot_walks(domain.mdp, domain.reward, walks, titles, "One reward, three horizons"), draft / "walks.png")
        write_fit(draft, analysis, {"demonstrations": ["decisions.csv"], "transitions": ["meadow.npz"]})

    write_all(directory, TOUR, write)
    return analysis


def _show_tour(domain: Domain, analysis: Analysis) -> None:
    """True and found side by side, and a case in which nothing can be found."""
    decisions = int(analysis.decisions.sum())
    out.print(f"\nDoes what they do give that away? From {WALKS} walks of each, {decisions:,} decisions:\n")
    out.print(_horizons(domain, analysis))
    out.print(_wishes(domain, analysis), soft_wrap=True)
    small = toy()
    verdict = identify(Problem(small.mdp, small.soft_experts(), names=["near", "middle", "far"]))
    out.print("Some behaviour cannot show how far ahead people look, however much of it is seen. Then the answer says so.")
    out.print("Three experts of the paper's toy domain, known exactly:")
    out.print("\n".join(verdict.sentences().splitlines()[:4]), soft_wrap=True)


def _horizons(domain: Domain, analysis: Analysis) -> RichTable:
    rows = []
    for k, name in enumerate(analysis.solution.experts):
        true = domain.soft_discounts[WALKERS.index(name)]
        low, high = (steps_text(analysis, float(end)) for end in analysis.intervals[k])
        rows.append((name, analysis.horizon.number(true), own_steps_text(analysis, k), f"{low} to {high}"))
    frame = pd.DataFrame(rows, columns=["walker", "true", "found", "95% CI"])
    roles: dict[str, Role] = dict.fromkeys(frame.columns[1:], "horizon")
    return Table(frame, "How many steps they look ahead", roles=roles).rich()


def _wishes(domain: Domain, analysis: Analysis) -> str:
    """Return the rewards as the report has them, as differences from the average logged step, beside the true ones."""
    experts = analysis.problem.experts
    arrivals = sum(expert.feature_matrix.T @ require_counts(expert).T.ravel() for expert in experts)
    average = float(arrivals @ domain.reward / np.sum(arrivals))
    estimated = {value: float(analysis.contrasts.values[domain.reward == value].mean()) for value in GROUND}
    wishes = [
        f"{name} {decimals(estimated[value], 2)} (true {decimals(value - average, 2)})" for value, (name, _) in GROUND.items()
    ]
    return f"What they want, as points above those of their average step: {', '.join(wishes)}.\n"


def _close_tour(directory: Path) -> None:
    """Where the files are, and what to type next."""
    out.print(f"\nWritten to {directory}: {', '.join(TOUR)}", soft_wrap=True)
    out.print("\nWhat to do next:", style="bold")
    out.print(f"  Open {directory / 'report.html'} in a browser. It is what you get for a table of your own.", soft_wrap=True)
    out.print(f"  It was made from {directory / 'decisions.csv'}, one row per decision, by this command:", soft_wrap=True)
    source, moves = (_typed(directory / name) for name in ("decisions.csv", "meadow.npz"))
    out.print(f"      multihorizon fit {source} --transitions {moves} --out result", soft_wrap=True)
    out.print("  Walks begin anywhere. How much more must the feast, at I3, offer, so that four of five walks of Ann lead there?")
    out.print(f"      multihorizon predict {_typed(directory)} --nudge I3 --chance 0.8", soft_wrap=True)
    out.print("  With a table of your own, type")
    out.print("      multihorizon fit YOUR-TABLE.csv --out result")


def _typed(path: Path) -> str:
    """Return a path as it is typed on a command line."""
    return f'"{path}"' if " " in str(path) else str(path)


def check(options: CheckOptions) -> None:
    """Validate decision logs and suggest fixes.

    The exit code is 0 whatever is found, and 2 where the file cannot be read as a table.
    """
    files = ("check.json", "check.html")
    with checked(options, files):
        paths = tables_of(options)
        if options.state is not None and options.transitions:
            raise ValueError("--state must come without --transitions, which belongs to tasks with a list of states")
        if options.write is not None:
            if len(paths) > 1:
                raise ValueError(
                    f"--write must come with one table, got {len(options.demos)}: fix them one by one, or add --same-task"
                )
            _check_target(options.write, options.demos)
        columns = [name.strip() for name in options.state.split(",")] if options.state is not None else []
        mdps: Sequence[MDP | None] = read_mdps(options) or [None] * len(paths)
        recode = None if options.recode is None else read_recoding(options.recode)
        how: dict[str, Any] = {"believed": options.believed, "columns": called(options), "recode": recode}
        every = [check_table(path, mdp, columns, **how) for path, mdp in zip(paths, mdps, strict=True)]
        between = nothing_shared({one.name: {"action": {*one.log.actions}, "state": {*one.log.states}} for one in every})
        for one_table in every:
            _show_check(one_table)
        for finding in between:
            out.print(f"{finding.what} {in_options(finding.remedy)}", style="bold", soft_wrap=True)
        written = []
        if options.write is not None:
            write_mended(every[0], options.write)
            for line in _mended_words(every[0], options.write):
                out.print(line, soft_wrap=True)
            written = _mended_words(every[0], Path(options.write.name))
        if options.out_dir is not None:
            recorded = by_name(options, "columns", "recode", "transitions", "believed", "same_task", "state", "write")
            contents = [_check_content(one_table) for one_table in every]
            content = contents[0] if len(every) == 1 else {"tables": contents, "findings": [finding.what for finding in between]}
            page = _check_page(every, between, written, options)
            write_answer(options.out_dir, files, {**content, "options": recorded}, page)
        show_files(options.out_dir, files)


def _check_content(table: TableCheck) -> dict[str, Any]:
    """Return the check for JSON, with options of the command line in place of Python's arguments."""
    content = table._content()
    findings = [{**finding, "remedy": in_options(finding["remedy"])} for finding in content["findings"]]
    return {**content, "summary": in_options(content["summary"]), "findings": findings}


def _check_target(path: Path, logs: Sequence[Path]) -> None:
    """Raise, before any work, if the fixed table cannot be written there, or would replace what is read."""
    if path.is_dir() or not path.parent.is_dir():
        what = "a folder" if path.is_dir() else f"a file in {path.parent}, which is no folder"
        raise ValueError(f"--write must be a file for the fixed table, got {path}, {what}")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"--write must be in a folder where files can be written, got {path}")
    files = files_of(logs, "demonstrations")
    if path.resolve() in {file.resolve() for file in files} or path.resolve().parent in {log.resolve() for log in logs}:
        raise ValueError(f"--write must be another file than those that are read, got {path}")
    kind = file_kind(path)
    kind_read = file_kind(files[0])
    if kind != kind_read or path.suffix.lower() not in (".csv", ".gz", ".parquet", ".pq"):
        ending = ".parquet" if kind_read == "Parquet" else ".csv or .csv.gz"
        raise ValueError(f"--write must be a file of the same kind as the table, {ending}, got {path}")


def _mended_words(table: TableCheck, path: Path) -> list[str]:
    """Describe the fixed table, in sentences."""
    rows = table.mended.number.size
    left = [finding.kind for finding in table.left]
    lines = [f"Written to {path}: {rows:,} of {count(table.rows, 'row')}.", *table.changes]
    lines = lines if table.changes else [*lines, "There was nothing to fix without guessing."]
    return [*lines, f"Still to be fixed: {', '.join(left)}."] if left else lines


def _check_sizes(table: TableCheck) -> str:
    """Return how much there is of everything."""
    numbers = {
        "row": table.rows,
        "expert": len(table.experts),
        "episode": int(table.experts["episodes"].sum()),
        "decision": int(table.experts["decisions"].sum()),
        "state": len(table.states),
        "action": len(table.actions),
    }
    return ", ".join(count(number, noun) for noun, number in numbers.items() if number) + "."


def _show_check(checked_table: TableCheck) -> None:
    out.print(f"{checked_table.name}: {_check_sizes(checked_table)}", soft_wrap=True)
    listed = 20  # The terminal lists up to so many experts, and states; the page lists all.
    for table in _check_tables(checked_table):
        if 0 < len(table.frame) <= listed:
            out.print(table.rich())
    if checked_table.findings:
        out.print(replace(_check_findings(checked_table), caption="What is wrong, and what is worth knowing").rich(lines=True))
    out.print(
        in_options(checked_table.sentences()),
        style="bold red" if any(finding.refused for finding in checked_table.findings) else "bold",
        soft_wrap=True,
    )


def _check_findings(table: TableCheck) -> Table:
    """Return what is wrong and what is worth knowing, and how to fix it."""
    rows = []
    for finding in table.findings:
        where = f" First: {', '.join(finding.places)}." if finding.places else ""
        refuses = "refuses it" if finding.refused else "takes it with --transitions or --cut-off"
        fit = f"{refuses}; --write fixes it" if finding.mended else refuses if finding.stops else "goes on"
        rows.append((finding.kind, f"{finding.what}{where}", in_options(finding.remedy), fit))
    return Table(pd.DataFrame(rows, columns=["problem", "what was found", "how to fix it", "a fit"]))


def _check_tables(table: TableCheck) -> list[Table]:
    """Return the tables of what there is."""
    experts = table.experts.copy()
    states = table.states.copy()
    lengths = zip(experts["shortest"], experts["longest"], strict=True)
    experts["per episode"] = [from_to([f"{low:,}", f"{high:,}"]) for low, high in lengths]
    wanted = ["expert", "episodes", "decisions", "per episode", "states", "actions"]
    if "chance_p" in experts:
        experts["chance, p"] = ["too few" if p != p else p for p in experts["chance_p"]]
    roles: dict[str, Role] = {"per episode": "count", "chance, p": "p"}
    states.columns = ["state", "episodes begin", "arrivals", "decisions", "what was done"]
    states["what was done"] = states["what was done"].replace("", "nobody decided here")
    actions = table.actions.set_axis(["action", "decisions", "in so many states"], axis=1)
    of_experts = Table(experts, "Experts", roles=roles).select(*wanted, "chance, p")
    return [of_experts, Table(states, "States"), Table(actions, "Actions")]


def _check_page(every: Sequence[TableCheck], between: Sequence[Issue], written: Sequence[str], options: CheckOptions) -> Page:
    """Return the report."""
    compared = "It was compared with the given transitions." if options.transitions else "It was not compared with transitions."
    sections: list[Section] = []
    for one_table in every:
        of = f": {Path(one_table.name).name}" if len(every) > 1 else ""
        wrong, option = (any(getattr(finding, name) for finding in one_table.findings) for name in ("refused", "stops"))
        badge = Badge("Ready to fit", "good")
        if wrong or option:
            badge = (
                Badge("A fit refuses this table", "bad") if wrong else Badge("A fit needs an option for this table", "caution")
            )
        blocks: list[str | Block] = [badge, in_options(one_table.sentences())]
        if one_table.findings:
            blocks.append(TableBlock(_check_findings(one_table)))
        blocks += written
        holds: list[str | Block] = [compared]
        holds += [TableBlock(table) for table in _check_tables(one_table) if len(table.frame)]
        if "chance_p" in one_table.experts:
            holds.append(
                "The last column of experts is a test of their decisions against equally likely actions in each state. A small p "
                f"says that they do not choose at random; from {CHANCE} on they may."
            )
        sections += [Section(f"What is wrong, and how to fix it{of}", blocks), Section(f"What the table holds{of}", holds)]
    if between:
        sections.insert(0, Section("Between the tables", [f"{finding.what} {in_options(finding.remedy)}" for finding in between]))
    names = [f"{Path(one_table.name).name}: {_check_sizes(one_table)}" for one_table in every]
    title = "What is in this table?" if len(every) == 1 else "What is in these tables?"
    return Page(title, " ".join(names), sections, f"multihorizon {package_version()}")


def fit(options: FitOptions, *, clock: Callable[[], float] = time.monotonic, watch: Progress = silent) -> None:
    """Estimate each expert's planning horizon and the reward they share from logged decisions."""
    with checked(options, FILES):
        if options.trials and options.out_dir is None:
            raise ValueError("--trials must come with --out, the folder for trials.csv, got none")
        recovery = None if options.recovered is None else Recovery.from_json(options.recovered)
        recorded = _recorded(options)
        latest: Analysis | None = None
        written = clock()

        def keep(so_far: Analysis) -> None:
            """Keep what is known so far for when the work is stopped, and write it if the last writing was ten seconds ago."""
            nonlocal latest, written
            latest = so_far
            if options.out_dir is not None and clock() - written >= 10:
                write_fit(options.out_dir, so_far, recorded, so_far=True)
                written = clock()

        try:
            with progress_bar("fit") as shown:

                def progress(share: float, message: str) -> None:
                    shown(share, message)
                    watch(share, message)

                latest = _analyse(options, keep=keep, progress=progress)
        except KeyboardInterrupt:
            if latest is None:
                raise
        analysis = replace(latest, recovery=recovery)
        trials = None
        if options.trials:
            try:
                trials = asked_solution(analysis).to_trials()
            except ValueError as error:
                analysis = replace(analysis, remarks=[*analysis.remarks, f"trials.csv is not written: {error}."])
        _show(analysis)
        files = () if options.out_dir is None else write_fit(options.out_dir, analysis, recorded, trials=trials)
        show_files(options.out_dir, files)
        if not analysis.finished:
            raise typer.Exit(130)  # stopped by Ctrl-C, as shells say it


def _analyse(options: FitOptions, **how: Any) -> Analysis:
    """Read what the options name, and analyse it."""
    how |= {"quick": options.quick, "seed": options.seed, "jobs": options.jobs}
    temperature = temperature_of(options.temperature)
    discounts = discounts_of(options.discount)
    if options.state is not None:
        from multihorizon.likelihood.sieve import SieveLikelihood  # noqa: PLC0415  states are vectors: only now is scikit-learn needed

        solver_of_steps = SieveLikelihood(temperature=temperature, discounts=discounts)
        return analyse(_read_steps(options, options.state), solver=solver_of_steps, **how)
    together = None if options.groups is None else read_groups(options.groups, called(options))
    if options.value not in get_args(Value):
        raise ValueError(f"--value must be one of {', '.join(get_args(Value))}, got {options.value}")
    solver = MaximumLikelihood(
        temperature,
        discounts,
        groups=together,
        ridge=options.ridge,
        value=cast(Value, options.value),
        lapse=habit_of(options.lapse, "--lapse"),
        stickiness=habit_of(options.stickiness, "--stickiness"),
    )
    population = population_of(options, solver)
    if options.distribution not in ("normal", "free", "types"):
        raise ValueError(f"--distribution must be normal, free or types, got {options.distribution}")
    if options.types is not None and options.distribution != "types":
        raise ValueError(f"--types must come with --distribution types, got {options.distribution}")
    if options.distribution == "free":
        if population is None:
            raise ValueError('--distribution free must come with --formula, got none: "~ 1" asks about everyone together')
        population = replace(population, distribution="free")
    if options.distribution == "types":
        if discounts is not None or together is not None:
            raise ValueError("--distribution types must have discounts of all to find: leave out --discount and --groups")
        if (solver.value, solver.lapse, solver.stickiness) != ("soft", 0, 0):
            raise ValueError("--distribution types must come without --value, --lapse and --stickiness")
        population = replace(population or Population(ridge=options.ridge), distribution="types", types=options.types)
    tables, remarks = read_decisions(options, population)
    keep = how.pop("keep")
    analysis = analyse(
        population=population,
        tables=tables,
        mdps=read_mdps(options),
        features=None if options.features is None else partial(read_features, options.features, columns=called(options)),
        smoothing=options.smoothing,
        estimate_rest=options.estimate_rest,
        believed=options.believed,
        pairs=options.pairs,
        rivals=options.rivals,
        solver=solver,
        lookahead=families_of(options.lookahead),
        known_reward=None
        if options.known_reward is None
        else partial(read_known_reward, options.known_reward, columns=called(options)),
        deviations=deviations_of(options.deviations),
        cluster=cluster_of(options.cluster_by),
        keep=lambda latest: keep(replace(latest, remarks=[*latest.remarks, *remarks])),
        **how,
    )
    return replace(analysis, remarks=[*analysis.remarks, *remarks])


def _read_steps(options: FitOptions, state: str) -> Steps:
    """Return the table of a task whose states are vectors; raises where an option of tasks with a list of states is given as
    well.
    """
    columns = [name.strip() for name in state.split(",")]
    if not all(columns):
        raise ValueError(f"--state must name columns separated by commas, got {state!r}")
    others = {
        "--transitions": options.transitions,
        "--features": options.features,
        "--known-reward": options.known_reward,
        "--groups": options.groups,
        "--persons": options.persons,
        "--episodes": options.episodes,
        "--formula": options.formula,
        "--missing": options.missing != "drop",
        "--reference": options.reference,
        "--distribution": options.distribution != "normal",
        "--types": options.types is not None,
        "--estimate-rest": options.estimate_rest,
        "--believed": options.believed,
        "--same-task": options.same_task,
        "--ridge": options.ridge is not None,
        "--deviations": options.deviations != "estimated",
        "--cluster-by": options.cluster_by != "auto",
        "--lookahead": options.lookahead,
        "--value": options.value != "soft",
        "--lapse": options.lapse != "0",
        "--stickiness": options.stickiness != "0",
        "--trials": options.trials,
        "--recovered": options.recovered,
        "--smoothing": options.smoothing is not None,
        "--pairs": options.pairs,
        "--rivals": options.rivals,
        "--cluster": options.cluster_at,
        "--time": options.time,
        "--time-unit": options.time_unit,
    }
    wrong = next((option for option, value in others.items() if value), None)
    if wrong is not None:
        raise ValueError(f"--state must come without {wrong}, which belongs to tasks with a list of states")
    if len(options.demos) != 1:
        raise ValueError(f"--state must come with one table of decisions, got {len(options.demos)}")
    return Steps.from_file(options.demos[0], columns, called(options))


def _recorded(options: FitOptions) -> dict[str, Any]:
    """Return what the files of results say about how they were made."""
    return {
        **read_options(options),
        "state": options.state,
        "discounts": options.discount,
        **by_name(options, "known_reward", "groups", "persons", "episodes", "formula"),
        "missing": options.missing if options.formula else None,
        "reference": options.reference,
        "distribution": options.distribution if options.formula or options.distribution == "types" else None,
        "types": options.types,
        "estimate_rest": options.estimate_rest,
        "smoothing": options.smoothing if options.estimate_rest or not options.transitions else None,
        "ridge": options.ridge,
        "deviations": options.deviations if options.state is None else None,
        "cluster": options.cluster_by if options.state is None else None,
        "value": options.value if options.value != "soft" else None,
        "lapse": options.lapse if options.lapse != "0" else None,
        "stickiness": options.stickiness if options.stickiness != "0" else None,
        "rivals": options.rivals or None,
        **by_name(options, "lookahead", "recovered", "pairs", "quick"),
    }


def _open(analysis: Analysis) -> None:
    """What a reader must know before any number, the answer to what was asked, and how much there is."""
    before, after = analysis.notices
    for text in before:
        out.print(text, style="bold red", soft_wrap=True)
    out.print(analysis.answer, style="bold red" if analysis.withheld else "bold", soft_wrap=True)
    for text in after:
        out.print(text, style="bold red", soft_wrap=True)
    if analysis.rests_on:
        asks = " Add --rivals to ask them." if analysis.robustness is None else ""
        out.print(f"{analysis.rests_on}{asks}", soft_wrap=True)
    out.print(sizes(analysis))


def _show(analysis: Analysis) -> None:
    """Print the answer, tables of groups or experts, and every finding with the reasons that the answer has not given."""
    _open(analysis)
    people = analysis.people
    if analysis.population is not None and not (people is not None and analysis.withheld):
        _show_population(analysis.population, analysis.horizon)
    if people is None:
        out.print(_table(analysis))
    if people is not None and people.groups and people.population.cells is None and len(people.groups) <= LISTED:
        out.print(_groups(people))
    if analysis.lookahead is not None:
        # The columns that fit on a terminal; the report has all.
        families = replace(families_table(analysis.lookahead), caption="In what shape they look ahead")
        out.print(families.select("family", "aic", "bic", "held_out", "verdict").rich())
        if analysis.withheld:  # else the answer on top has said it
            out.print(analysis.lookahead.sentences(), soft_wrap=True)
    if analysis.robustness is not None:
        show_robustness(analysis.robustness)
    if analysis.recovery is not None:
        out.print(analysis.recovery.sentences(), soft_wrap=True)
    for finding in analysis.verdicts:
        if people is not None and not analysis.withheld and finding is analysis.findings.get("differences"):
            continue  # which the population's words have answered
        reasons = "" if finding.reasons in analysis.answer else f" {finding.reasons}"
        out.print(f"{finding.question} {finding.answer}.{reasons}", soft_wrap=True)
    if people is None and (not all(analysis.sure) or analysis.withheld or analysis.goals_differ):
        out.print("What to collect next:")
        for line in analysis.advice:
            out.print(f"  - {line}", soft_wrap=True)
    show_remarks(analysis.remarks)
    if len(analysis.given) > LISTED:  # by now the answer on top is off the screen
        out.print(analysis.answer, style="bold red" if analysis.withheld else "bold", soft_wrap=True)


def _groups(people: People) -> RichTable:
    """Return one row per group: what is typical, what to expect of new people, and how much is known of each."""
    headers = "people like", "how many", "typical", "95% of new people", "reliability"
    rows = []
    for group in people.groups:
        new = tuple(group.new_person_interval)
        rows.append((group.name, group.persons, group.typical, new, decimals(group.reliability, 2)))
    roles: dict[str, Role] = {"typical": "discount", "95% of new people": "discount", "reliability": "amount"}
    return Table.of(headers, rows, "Discounts to expect, and how much is known of each person", roles=roles).rich()


def _show_population(solution: Solution, horizon: Horizon) -> None:
    """Effects on the discount, one row per term, what they are in discounts and horizons, and what else was found."""
    population = PopulationEvidence.of(solution).population
    if solution.status != Status.CONVERGED and (population.types is None or not any(population.types["identified"])):
        return  # which the answer on top has said
    for text in absent_words(population.left_out, population.persons):
        out.print(text, style="bold", soft_wrap=True)
    if population.types is not None:
        out.print(_types(population.types, horizon))
        return
    headers = "term", "estimate", "95% CI or test", "p"
    roles: dict[str, Role] = {"estimate": "number", "95% CI or test": "number", "p": "p"}
    rows = effect_rows(population, "discount")
    if population.cells is None and 1 < len(population.predictions) <= LISTED:
        out.print(_typical(population, horizon))
    table = Table.of(headers, rows, "Effects on the logit of the discount", roles=roles).rich()
    table.caption = compared_with(population) or None
    out.print(table)
    contrasts = contrast_rows(population, horizon)
    if contrasts and len(contrasts) <= LISTED:
        headers = "people with", "typical discounts", f"in {horizon.many}", "p"
        pairs = [(who, discounts, reach, p) for who, discounts, reach, _, p in contrasts]
        caption = f"In discounts and {horizon.many}; pairs with Holm's correction"
        roles = {"typical discounts": "discount", f"in {horizon.many}": "horizon", "p": "p"}
        out.print(Table.of(headers, pairs, caption, roles=roles).rich())
    if population.cells is not None and len(population.predictions) <= LISTED:
        at = f", at {where}" if (where := at_means(population)) else ""
        shown = replace(conditions_table(population, horizon), headings={"mean reliability": "reliability"})
        shown = shown.select("people with", "how many", "typical discount", horizon.many, "95% of new people", "mean reliability")
        out.print(replace(shown, caption=f"{shown.caption}{at}").rich())
    out.print(" ".join(population_words(solution, horizon)), soft_wrap=True)


def _typical(population: PopulationFindings, horizon: Horizon) -> RichTable:
    """Return one row per group: how many there are, and the discount and horizon of a typical person, with the interval."""
    number = pd.Series(population.groups).value_counts()
    rows = []
    for name, group in population.predictions.items():
        discount = group["typical_discount"]
        rows.append((name, int(number.get(name, 0)), discount, tuple(group["typical_interval"]), horizon(discount)))
    headers = "people like", "how many", "typical discount", "95% CI", horizon.many
    roles: dict[str, Role] = {"typical discount": "discount", "95% CI": "discount", horizon.many: "horizon"}
    return Table.of(headers, rows, "Groups", roles=roles).rich()


def _types(types: dict[str, Any], horizon: Horizon) -> RichTable:
    """Return one row per type, from the shortest horizon to the longest."""
    rows = []
    for k, (share, discount, ends) in enumerate(zip(types["shares"], types["discounts"], types["intervals"], strict=True)):
        given = (discount, tuple(ends), horizon(discount)) if types["identified"][k] else (np.nan, "not identified", np.nan)
        rows.append((k + 1, share, *given, types["likeliest"][k]))
    headers = "type", "share", "discount", "95% CI", horizon.many, "likeliest for"
    roles: dict[str, Role] = {"share": "share", "discount": "discount", "95% CI": "discount", horizon.many: "horizon"}
    return Table.of(headers, rows, "Types", roles=roles).rich()


def _table(analysis: Analysis) -> RichTable:
    """Return one row per expert, from the shortest horizon to the longest; of many experts those at the ends."""
    ahead = analysis.horizon
    order = at_the_ends(analysis.order, [k for k in analysis.order if analysis.given[k]])
    rows = []
    for k in order:
        *cells, temperature = person_cells(analysis, k)
        cells += [half_life_text(analysis, k)] if ahead.timed else []
        rows.append((analysis.solution.experts[k], *cells, temperature, decimals(analysis.explained[k], 2)))
    numbers = "discount", "95% CI", ahead.many, *(["half-life"] if ahead.timed else []), "temperature", "R²"
    roles: dict[str, Role] = {}
    for name in numbers:
        roles[name] = "amount"
    caption = f"Planning horizons: discounts γ, and {ahead.many} {ahead.formula} ({analysis.solution.status})"
    table = Table.of(("expert", *numbers), rows, caption, roles=roles).rich()
    if len(order) < len(analysis.order):
        if len(order) == 2 * SHOWN:
            table.rows[SHOWN - 1].end_section = True
        table.caption = f"and {len(analysis.order) - len(order)} more, which --out writes to people.csv"
    return table
