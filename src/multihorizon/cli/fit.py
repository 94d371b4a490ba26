"""`multihorizon fit`: from a table of who did what in which state to planning horizons with error bars.

With `--state`, states are columns of numbers.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import typer
from rich.table import Table as RichTable

from multihorizon.analysis import Analysis, analyse
from multihorizon.cli.console import (
    checked,
    cluster_of,
    deviations_of,
    discounts_of,
    families_of,
    out,
    population_of,
    progress_bar,
    read_decisions,
    read_mdps,
    read_options,
    show_remarks,
    temperature_of,
)
from multihorizon.cli.options import FitOptions
from multihorizon.data.side_tables import read_features, read_groups, read_known_reward
from multihorizon.data.steps import Steps
from multihorizon.horizon import Horizon
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.population.evidence import PopulationEvidence
from multihorizon.population.solver import Population, absent_words
from multihorizon.questions.differences import population_words
from multihorizon.questions.horizons import half_life_text, person_cells, sizes
from multihorizon.questions.people import People
from multihorizon.questions.study import Recovery
from multihorizon.report.files import FILES, write_fit
from multihorizon.report.pages import families_table
from multihorizon.report.people import at_means, compared_with, conditions_table, contrast_rows, effect_rows
from multihorizon.solution import Solution, Status
from multihorizon.words import Role, Table, decimals

#: The terminal lists the experts one by one up to this many; `people.csv` lists all.
LISTED_EXPERTS = 60


def fit(options: FitOptions) -> None:
    """Estimate each expert's planning horizon and the reward they share from logged decisions."""
    with checked(options, FILES):
        recovery = None if options.recovered is None else Recovery.from_json(options.recovered)
        recorded = _recorded(options)
        latest: Analysis | None = None
        written = time.monotonic()

        def keep(found: Analysis) -> None:
            """Keep what is known so far for when the work is stopped, and write it if the last writing was ten seconds ago."""
            nonlocal latest, written
            latest = found
            if options.out_dir is not None and time.monotonic() - written >= 10:
                write_fit(options.out_dir, found, recorded, so_far=True)
                written = time.monotonic()

        try:
            with progress_bar("fit") as progress:
                latest = _analyse(options, keep=keep, progress=progress)
        except KeyboardInterrupt:
            if latest is None:
                raise
        analysis = replace(latest, recovery=recovery)
        _show(analysis)
        if options.out_dir is not None:
            files = write_fit(options.out_dir, analysis, recorded)
            out.print(f"Written to {options.out_dir}: {', '.join(files)}", soft_wrap=True)
            out.print(f"Open {options.out_dir / 'report.html'} in a browser.", soft_wrap=True)
        if not analysis.finished:
            raise typer.Exit(130)  # stopped by Ctrl-C, as shells say it


def _analyse(options: FitOptions, **how: Any) -> Analysis:
    """Read what the options name, and analyse it."""
    how |= {"quick": options.quick, "seed": options.seed, "jobs": options.jobs}
    temperature, discounts = temperature_of(options.temperature), discounts_of(options.discount)
    if options.state is not None:
        from multihorizon.likelihood.sieve import SieveLikelihood  # noqa: PLC0415  states are vectors: only now is scikit-learn needed

        solver_of_steps = SieveLikelihood(temperature=temperature, discounts=discounts)
        return analyse(_read_steps(options, options.state), solver=solver_of_steps, **how)
    together = None if options.groups is None else read_groups(options.groups)
    solver = MaximumLikelihood(temperature, discounts, groups=together, ridge=options.ridge)
    population = population_of(options, solver)
    if options.distribution not in ("normal", "free", "types"):
        raise ValueError(f"--distribution must be normal, free or types, received {options.distribution}")
    if options.types is not None and options.distribution != "types":
        raise ValueError(f"--types must come with --distribution types, received {options.distribution}")
    if options.distribution == "free":
        if population is None:
            raise ValueError('--distribution free must come with --formula, received none: "~ 1" asks about everyone together')
        population = replace(population, distribution="free")
    if options.distribution == "types":
        if discounts is not None or together is not None:
            raise ValueError("--distribution types must have discounts of all to find: leave out --discount and --groups")
        population = replace(population or Population(ridge=options.ridge), distribution="types", types=options.types)
    tables, remarks = read_decisions(options, population)
    keep = how.pop("keep")
    found = analyse(
        population=population,
        tables=tables,
        mdps=read_mdps(options.transitions),
        features=None if options.features is None else partial(read_features, options.features),
        smoothing=options.smoothing,
        estimate_rest=options.estimate_rest,
        believed=options.believed,
        pairs=options.pairs,
        solver=solver,
        lookahead=families_of(options.lookahead),
        known_reward=None if options.known_reward is None else partial(read_known_reward, options.known_reward),
        deviations=deviations_of(options.deviations),
        cluster=cluster_of(options.cluster_by),
        keep=lambda latest: keep(replace(latest, remarks=[*latest.remarks, *remarks])),
        **how,
    )
    return replace(found, remarks=[*found.remarks, *remarks])


def _read_steps(options: FitOptions, state: str) -> Steps:
    """The table of a task whose states are vectors; raises where an option of tasks with a list of states is given as well."""
    columns = [name.strip() for name in state.split(",")]
    if not all(columns):
        raise ValueError(f"--state must name columns separated by commas, received {state!r}")
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
        "--recovered": options.recovered,
        "--smoothing": options.smoothing is not None,
        "--pairs": options.pairs,
        "--cluster": options.cluster_at,
        "--time": options.time,
        "--time-unit": options.time_unit,
    }
    wrong = next((option for option, value in others.items() if value), None)
    if wrong is not None:
        raise ValueError(f"--state must come without {wrong}, which belongs to tasks with a list of states")
    if len(options.demos) != 1:
        raise ValueError(f"--state must come with one table of decisions, received {len(options.demos)}")
    return Steps.from_file(options.demos[0], columns)


def _recorded(options: FitOptions) -> dict[str, Any]:
    """What the files of results say about how they were made."""
    return {
        **read_options(options),
        "state": options.state,
        "discounts": options.discount,
        "known_reward": options.known_reward.name if options.known_reward else None,
        "groups": options.groups.name if options.groups else None,
        "persons": options.persons.name if options.persons else None,
        "episodes": options.episodes.name if options.episodes else None,
        "formula": options.formula,
        "missing": options.missing if options.formula else None,
        "reference": options.reference,
        "distribution": options.distribution if options.formula or options.distribution == "types" else None,
        "types": options.types,
        "estimate_rest": options.estimate_rest,
        "smoothing": options.smoothing if options.estimate_rest or not options.transitions else None,
        "ridge": options.ridge,
        "deviations": options.deviations if options.state is None else None,
        "cluster": options.cluster_by if options.state is None else None,
        "lookahead": options.lookahead,
        "recovered": options.recovered.name if options.recovered else None,
        "pairs": options.pairs,
        "quick": options.quick,
    }


def _open(analysis: Analysis) -> None:
    """What a reader must know before any number, the answer to what was asked, and how much there is."""
    before, after = analysis.notices
    for text in before:
        out.print(text, style="bold red", soft_wrap=True)
    out.print(analysis.answer, style="bold red" if analysis.withheld else "bold", soft_wrap=True)
    for text in after:
        out.print(text, style="bold red", soft_wrap=True)
    out.print(sizes(analysis))


def _show(analysis: Analysis) -> None:
    """Print the answer, tables of groups or experts, and every finding with the reasons that the answer has not given."""
    _open(analysis)
    people = analysis.people
    if analysis.population is not None and not (people is not None and analysis.withheld):
        _show_population(analysis.population, analysis.horizon)
    if people is None and len(analysis.given) <= LISTED_EXPERTS:
        out.print(_table(analysis))
    if people is not None and people.groups and people.population.cells is None and len(people.groups) <= LISTED_EXPERTS:
        out.print(_groups(people))
    if analysis.lookahead is not None:
        # The columns that fit on a terminal; the report has all.
        families = replace(families_table(analysis.lookahead), caption="In what shape they look ahead")
        out.print(families.select("family", "aic", "bic", "held_out", "verdict").rich())
        if analysis.withheld:  # else the answer on top has said it
            out.print(analysis.lookahead.sentences(), soft_wrap=True)
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


def _groups(people: People) -> RichTable:
    """One row per group: what is typical, what to expect of new persons, and how much is known of each."""
    headers = "persons like", "how many", "typical", "95 % of new persons", "reliability"
    rows = []
    for group in people.groups:
        new = tuple(group.new_person_interval)
        rows.append((group.name, group.persons, group.typical, new, decimals(group.reliability, 2)))
    roles: dict[str, Role] = {"typical": "discount", "95 % of new persons": "discount", "reliability": "amount"}
    return Table.of(headers, rows, "Discounts to expect, and how much is known of each person", roles=roles).rich()


def _show_population(found: Solution, horizon: Horizon) -> None:
    """Effects on the discount, one row per term, what they are in discounts and horizons, and what else was found."""
    population = PopulationEvidence.of(found).population
    if found.status != Status.CONVERGED and (population.types is None or not any(population.types["identified"])):
        return  # which the answer on top has said
    for text in absent_words(population.left_out, population.persons):
        out.print(text, style="bold", soft_wrap=True)
    if population.types is not None:
        out.print(_types(population.types, horizon))
        return
    headers = "term", "estimate", "95 % interval or test", "p"
    roles: dict[str, Role] = {"estimate": "number", "95 % interval or test": "number", "p": "p"}
    rows = effect_rows(population, "discount")
    table = Table.of(headers, rows, "Effects on the logit of the discount", roles=roles).rich()
    table.caption = compared_with(population) or None
    out.print(table)
    contrasts = contrast_rows(population, horizon)
    if contrasts and len(contrasts) <= LISTED_EXPERTS:
        headers = "persons with", "typical discounts", f"in {horizon.many}", "p"
        pairs = [(who, discounts, reach, p) for who, discounts, reach, _, p in contrasts]
        caption = f"In discounts and {horizon.many}; pairs with Holm's correction"
        roles = {"typical discounts": "discount", f"in {horizon.many}": "horizon", "p": "p"}
        out.print(Table.of(headers, pairs, caption, roles=roles).rich())
    if population.cells is not None and len(population.predictions) <= LISTED_EXPERTS:
        at = f", at {where}" if (where := at_means(population)) else ""
        shown = replace(conditions_table(population, horizon), headings={"mean reliability": "reliability"})
        shown = shown.select(
            "persons with", "how many", "typical discount", horizon.many, "95 % of new persons", "mean reliability"
        )
        out.print(replace(shown, caption=f"{shown.caption}{at}").rich())
    out.print(" ".join(population_words(found, horizon)), soft_wrap=True)


def _types(types: dict[str, Any], horizon: Horizon) -> RichTable:
    """One row per type, from the shortest horizon to the longest."""
    rows = []
    for k, (share, discount, ends) in enumerate(zip(types["shares"], types["discounts"], types["intervals"], strict=True)):
        given = (discount, tuple(ends), horizon(discount)) if types["identified"][k] else (np.nan, "not identified", np.nan)
        rows.append((k + 1, share, *given, types["likeliest"][k]))
    headers = "type", "share", "discount", "95 % interval", horizon.many, "likeliest for"
    roles: dict[str, Role] = {"share": "share", "discount": "discount", "95 % interval": "discount", horizon.many: "horizon"}
    return Table.of(headers, rows, "Types", roles=roles).rich()


def _table(analysis: Analysis) -> RichTable:
    """One row per expert, from the shortest horizon to the longest."""
    ahead, rows = analysis.horizon, []
    for k in analysis.order:
        *cells, temperature = person_cells(analysis, k)
        cells += [half_life_text(analysis, k)] if ahead.timed else []
        rows.append((analysis.solution.experts[k], *cells, temperature, decimals(analysis.explained[k], 2)))
    numbers = "discount", "95 % interval", ahead.many, *(["half-life"] if ahead.timed else []), "temperature", "R²"
    roles: dict[str, Role] = {}
    for name in numbers:
        roles[name] = "amount"
    caption = f"Planning horizons: discounts γ, and {ahead.many} {ahead.formula} ({analysis.solution.status})"
    return Table.of(("expert", *numbers), rows, caption, roles=roles).rich()
