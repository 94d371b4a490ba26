"""`multihorizon goals`: do these people share a goal, and if not, who shares one with whom?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from multihorizon.commands.console import out, plain_errors, progress_bar, show_remarks
from multihorizon.commands.options import (
    Cluster,
    Demos,
    EstimateRest,
    Features,
    Jobs,
    Seed,
    Smoothing,
    TemperatureChoice,
    Transitions,
    check_out,
    read_options,
    read_study,
    temperature_of,
)
from multihorizon.files.output import write_all
from multihorizon.files.saved import write_json
from multihorizon.likelihood.goals import GoalEstimates, goals_of_decisions
from multihorizon.parallel import as_jobs, cluster
from multihorizon.report.goals_section import goals_page
from multihorizon.solution import package_version
from multihorizon.tables.dynamics import SMOOTHING

EXAMPLES = (
    "multihorizon goals decisions.csv --out result",
    "multihorizon goals decisions.csv --transitions moves.csv --out result",
)
FILES = ("goals.json", "goals.html")


def goals(
    demos: Demos,
    transitions: Transitions = None,
    features: Features = None,
    temperature: TemperatureChoice = None,
    smoothing: Smoothing = SMOOTHING,
    estimate_rest: EstimateRest = False,
    simulations: Annotated[int, typer.Option("--simulations", help="Tables drawn at most to test one reward for all.")] = 99,
    jobs: Jobs = 1,
    cluster_at: Cluster = None,
    seed: Seed = 0,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Where to write goals.json and goals.html.")] = None,
) -> None:
    """Say who shares a goal with whom, where rewards and horizons may both differ."""
    with plain_errors(), cluster(cluster_at):
        check_out(out_dir, FILES, demos, transitions, features)
        study = read_study(demos, transitions, features, smoothing, estimate_rest)
        with progress_bar("goals") as progress:
            found = goals_of_decisions(study.problem, temperature_of(temperature), simulations, seed, progress, as_jobs(jobs))
        out.print(found.summary(), soft_wrap=True)
        show_remarks(study.remarks)
        if out_dir is not None:
            options = {**read_options(demos, transitions, features, temperature), "simulations": simulations}
            _write(out_dir, found, study.remarks, seed, options)


def _write(directory: Path, found: GoalEstimates, remarks: list[str], seed: int, options: dict[str, Any]) -> None:
    content = {**found.to_dict(), "summary": found.summary(), "remarks": remarks, "seed": seed, "options": options}

    def write(draft: Path) -> None:
        write_json(draft / "goals.json", {**content, "version": package_version()})
        goals_page(found, remarks, seed).write(draft / "goals.html")

    write_all(directory, write)
    out.print(f"Written to {directory}: {', '.join(FILES)}", soft_wrap=True)
