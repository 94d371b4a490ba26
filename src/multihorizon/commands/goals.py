"""`multihorizon goals`: do these people share a goal, and if not, who shares one with whom?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from multihorizon.commands.console import out, plain_errors, progress_bar
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
    read_mdps,
    temperature_of,
)
from multihorizon.files.output import write_all
from multihorizon.likelihood.goals import GoalEstimates, goals_of_decisions
from multihorizon.parallel import as_jobs, cluster
from multihorizon.report.analysis import build_problem
from multihorizon.report.goals_section import goals_page
from multihorizon.solution import for_json, package_version
from multihorizon.tables.demonstrations import read_tables
from multihorizon.tables.dynamics import SMOOTHING
from multihorizon.tables.features import read_features

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
        matrix = None if features is None else (lambda mdp: read_features(features, mdp))
        problem, remarks = build_problem(read_tables(demos), read_mdps(transitions), matrix, smoothing, estimate_rest)
        with progress_bar("goals") as progress:
            found = goals_of_decisions(problem, temperature_of(temperature), simulations, seed, progress, as_jobs(jobs))
        out.print(found.summary(), soft_wrap=True)
        for remark in remarks:
            out.print(remark, style="dim", soft_wrap=True)
        if out_dir is not None:
            _write(out_dir, found, remarks, seed)


def _write(directory: Path, found: GoalEstimates, remarks: list[str], seed: int) -> None:
    content = {**found.to_dict(), "summary": found.summary(), "remarks": remarks, "seed": seed, "version": package_version()}
    text = json.dumps(for_json(content), indent=1, ensure_ascii=False, allow_nan=False)

    def write(draft: Path) -> None:
        (draft / "goals.json").write_text(text, encoding="utf-8")
        goals_page(found, remarks, seed).write(draft / "goals.html")

    write_all(directory, write)
    out.print(f"Written to {directory}: {', '.join(FILES)}", soft_wrap=True)
