"""`multihorizon recover`: what could this study have shown? Simulated as designed, fitted again, compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from multihorizon.cli.console import (
    checked,
    features_in,
    out,
    population_of,
    progress_bar,
    read_mdps,
    read_options,
    read_study,
    show_remarks,
    temperature_of,
)
from multihorizon.cli.options import RecoverOptions
from multihorizon.data.side_tables import read_known_reward
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.population.covariates import read_formula
from multihorizon.population.solver import Population
from multihorizon.problem import Problem
from multihorizon.questions.schedule import Schedule
from multihorizon.questions.study import Recovery, simulate_study
from multihorizon.report.files import read_fit
from multihorizon.report.pages import FILES, sizes_table, write_recovery
from multihorizon.solution import Solution


def recover(options: RecoverOptions) -> None:
    """Simulate the study as designed, fit it again, and say what it could have shown."""
    with checked(options, FILES):
        if options.pilot is not None or options.schedule is not None:
            _recover_planned(options)
            return
        if not options.demos:
            raise ValueError(
                "the decisions of a study must be given, or --pilot and --schedule of one that is planned, received none"
            )
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
        read = read_options(options)
        recorded = {
            **read,
            "temperature": None if options.formula else read["temperature"],  # a population has one for each person
            "formula": options.formula,
            "missing": options.missing if options.formula else None,
            "reference": options.reference,
        }
        _simulate(options, study.problem, solver, recorded, study.remarks, demonstrations=study.tables)


def _recover_planned(options: RecoverOptions) -> None:
    """Simulate a study that was planned after a pilot."""
    if options.pilot is None or options.schedule is None:
        lacking = "--schedule" if options.schedule is None else "--pilot"
        raise ValueError(f"--pilot and --schedule must come together, received none for {lacking}")
    others = ("smoothing", "temperature", "known_reward", "persons", "formula", "reference", "ridge", "time")
    wrong = "demos" if options.demos else next((name for name in others if getattr(options, name)), None)
    if wrong is not None:
        what = "tables of decisions" if wrong == "demos" else f"--{wrong.replace('_', '-')}"
        raise ValueError(f"--pilot must come without {what}: the study is fitted as the pilot was, received both")
    pilot = read_fit(options.pilot)[0]
    problem = pilot.require_problem()
    tasks = read_mdps(options.transitions) or list(problem.mdps)
    schedule = Schedule.read(options.schedule, [mdp.as_known() for mdp in tasks])
    if options.features is not None:
        if len(tasks) > 1:
            raise ValueError("--features must come with one of --transitions, received several")
        schedule = replace(schedule, features=(features_in(options.features, tasks[0], problem.parameter_names),))
    solver = pilot.solver_used(MaximumLikelihood, Population)
    if isinstance(solver, MaximumLikelihood) and not getattr(pilot.evidence.get("deviations"), "spread", 0.0):
        solver = replace(solver, deviations=0.0)  # all share one reward, and so do the simulated ones
    recorded = {"pilot": options.pilot.resolve().name, "schedule": options.schedule.name, "people": options.people}
    _simulate(options, pilot, solver, recorded, [], schedule=schedule)


def _simulate(
    options: RecoverOptions,
    study: Problem | Solution,
    solver: MaximumLikelihood | Population,
    recorded: dict[str, Any],
    remarks: Sequence[str],
    **design: Any,
) -> None:
    """Simulate a study with this design, show what came out, and write it if asked to."""
    with progress_bar("recover") as progress:
        found = simulate_study(
            study,
            solver,
            **design,
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
    show_remarks(remarks)
    if options.out_dir is not None:
        made = {**recorded, "effect": options.effect, "studies": options.studies}
        write_recovery(options.out_dir, found, made, remarks)
        out.print(f"Written to {options.out_dir}: {', '.join(FILES)}", soft_wrap=True)


def _show(found: Recovery) -> None:
    # The columns that fit on a terminal; the report has all.
    shown = sizes_table(found).select("people", "decisions", "effect", "error", "correlation", "coverage", "power")
    out.print(shown.rich())
    out.print(found.sentences(), soft_wrap=True)
