"""`multihorizon recover`: could this study have told? Simulated as designed, fitted again, compared."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from multihorizon.commands.console import out, plain_errors, progress_bar, show_remarks
from multihorizon.commands.options import (
    Cluster,
    Demos,
    EstimateRest,
    Features,
    Formula,
    Jobs,
    KnownReward,
    PersonsFile,
    Ridge,
    Seed,
    Smoothing,
    TemperatureChoice,
    Transitions,
    check_out,
    population_of,
    read_options,
    read_study,
    temperature_of,
)
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.likelihood.population import Population
from multihorizon.likelihood.recover import recover as simulate_studies
from multihorizon.likelihood.recovered import Recovery
from multihorizon.parallel import as_jobs, cluster
from multihorizon.report.recover_page import FILES, size_cells, write_recovery
from multihorizon.tables.dynamics import SMOOTHING
from multihorizon.tables.features import read_known_reward

EXAMPLES = (
    "multihorizon recover decisions.csv --transitions moves.csv --studies 100",
    "multihorizon recover decisions.csv --decisions 100 --people 50 --out plan",
    'multihorizon recover log.csv --persons who.csv --formula "~ group" --effect 1',
)
#: The columns that fit on a terminal; the report has all.
SHOWN = ("people", "decisions", "effect", "error", "correlation", "coverage", "power")
Effects = Annotated[
    list[float] | None,
    typer.Option("--effect", help="An effect of a covariate on the logit of the discount; the last one is that of other sizes."),
]
Term = Annotated[str | None, typer.Option("--term", help="The covariate's term in the formula, where there are several.")]
Decisions = Annotated[
    list[int] | None,
    typer.Option("--decisions", help="A number of decisions per person to try; by default half and twice as many."),
]
People = Annotated[
    list[int] | None, typer.Option("--people", help="A number of people to try; by default half and twice as many.")
]


def recover(
    demos: Demos,
    transitions: Transitions = None,
    features: Features = None,
    temperature: TemperatureChoice = None,
    known_reward: KnownReward = None,
    persons: PersonsFile = None,
    formula: Formula = None,
    effect: Effects = None,
    term: Term = None,
    decisions: Decisions = None,
    people: People = None,
    studies: Annotated[int, typer.Option("--studies", help="Simulated studies of each size.")] = 100,
    smoothing: Smoothing = SMOOTHING,
    estimate_rest: EstimateRest = False,
    ridge: Ridge = None,
    jobs: Jobs = 1,
    cluster_at: Cluster = None,
    seed: Seed = 0,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Where to write results and the report.")] = None,
) -> None:
    """Simulate the study as designed, fit it again, and say what it could have told."""
    with plain_errors(), cluster(cluster_at):
        check_out(out_dir, FILES, demos, transitions, features, known_reward, persons)
        if temperature and formula:
            raise ValueError("--temperature must come without --formula: in a population each person has a temperature")
        study = read_study(demos, transitions, features, smoothing, estimate_rest)
        known = None if known_reward is None else read_known_reward(known_reward, study.problem.mdp)
        plain = MaximumLikelihood(temperature_of(temperature), known_reward=known, ridge=ridge)
        solver: MaximumLikelihood | Population = population_of(persons, formula, plain) or plain
        with progress_bar("recover") as progress:
            found = simulate_studies(
                study.problem,
                solver,
                study.tables,
                effects=effect,
                term=term,
                decisions=decisions,
                people=people,
                studies=studies,
                jobs=as_jobs(jobs),
                seed=seed,
                progress=progress,
            )
        _show(found)
        show_remarks(study.remarks)
        if out_dir is not None:
            read = read_options(demos, transitions, features, temperature)
            heat = None if formula else read["temperature"]  # a population has one for each person
            options = {**read, "temperature": heat, "formula": formula, "effect": effect, "studies": studies}
            write_recovery(out_dir, found, options, study.remarks)
            out.print(f"Written to {out_dir}: {', '.join(FILES)}", soft_wrap=True)


def _show(found: Recovery) -> None:
    table = Table(title="The study as designed first, then one change at a time")
    for header in SHOWN:
        table.add_column(header, justify="right")
    for size in found.sizes:
        cells = size_cells(size)
        table.add_row(*(cells[header] for header in SHOWN))
    out.print(table)
    out.print(found.summary, soft_wrap=True)
