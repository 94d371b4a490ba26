"""`multihorizon recover`: what could this study have shown? Simulated as designed, fitted again, compared."""

from __future__ import annotations

from dataclasses import replace

from rich.table import Table

from multihorizon.cli.console import (
    checked,
    out,
    population_of,
    progress_bar,
    read_options,
    read_study,
    show_remarks,
    temperature_of,
)
from multihorizon.cli.options import RecoverOptions
from multihorizon.data.side_tables import read_known_reward
from multihorizon.estimate.maximum_likelihood import MaximumLikelihood
from multihorizon.estimate.population.covariates import read_formula
from multihorizon.estimate.population.solver import Population
from multihorizon.questions.study import Recovery, simulate_study
from multihorizon.report.question_pages import FILES, size_cells, write_recovery


def recover(options: RecoverOptions) -> None:
    """Simulate the study as designed, fit it again, and say what it could have shown."""
    with checked(options, FILES):
        if options.temperature and options.formula:
            raise ValueError("--temperature must come without --formula: in a population each person has a temperature")
        plain = MaximumLikelihood(temperature_of(options.temperature), ridge=options.ridge)
        population = population_of(options, plain)
        for option, value in {"--people": options.people, "--effect": options.effect, "--term": options.term}.items():
            if population is None and value:
                raise ValueError(f"{option} must come with --formula, which describes the people to draw, received none")
        if population is not None:
            known_columns = [] if population.persons is None else list(map(str, population.persons.columns))
            unknown = [column for column in read_formula(population.formula).columns if column not in known_columns]
            if unknown:
                raise ValueError(
                    f"--formula {options.formula} must come with --persons FILE that has its columns, and names {unknown[0]}, "
                    "which it does not have: recover draws new persons, and cannot put them under conditions"
                )
        study = read_study(options)
        known = None if options.known_reward is None else read_known_reward(options.known_reward, study.problem.mdp)
        solver: MaximumLikelihood | Population = replace(population or plain, known_reward=known)
        with progress_bar("recover") as progress:
            found = simulate_study(
                study.problem,
                solver,
                study.tables,
                effects=options.effect,
                term=options.term,
                decisions=options.decisions,
                people=options.people,
                studies=options.studies,
                jobs=options.jobs,
                seed=options.seed,
                progress=progress,
            )
        _show(found)
        show_remarks(study.remarks)
        if options.out_dir is not None:
            read = read_options(options)
            recorded = {
                **read,
                "temperature": None if options.formula else read["temperature"],  # a population has one for each person
                "formula": options.formula,
                "missing": options.missing if options.formula else None,
                "reference": options.reference,
                "effect": options.effect,
                "studies": options.studies,
            }
            write_recovery(options.out_dir, found, recorded, study.remarks)
            out.print(f"Written to {options.out_dir}: {', '.join(FILES)}", soft_wrap=True)


def _show(found: Recovery) -> None:
    table = Table(title="The study as designed first, then one change at a time")
    # The columns that fit on a terminal; the report has all.
    shown = ("people", "decisions", "effect", "error", "correlation", "coverage", "power")
    for header in shown:
        table.add_column(header, justify="right")
    for size in found.sizes:
        cells = size_cells(size)
        table.add_row(*(cells[header] for header in shown))
    out.print(table)
    out.print(found.sentences(), soft_wrap=True)
