"""`multihorizon identify`: can these tables tell the experts' discounts at all?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from multihorizon.commands.console import out, plain_errors, progress_bar
from multihorizon.commands.options import (
    Demos,
    EstimateRest,
    Features,
    Seed,
    Smoothing,
    TemperatureChoice,
    Transitions,
    check_out,
    read_mdps,
    temperature_of,
)
from multihorizon.driver import solve
from multihorizon.files.output import write_all
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.recovery.identification import Identification
from multihorizon.report.analysis import build_problem
from multihorizon.report.identifiability import identify_fitted
from multihorizon.report.identify_page import identify_page
from multihorizon.solution import Solution, Status, for_json, package_version
from multihorizon.tables.demonstrations import read_tables
from multihorizon.tables.dynamics import SMOOTHING
from multihorizon.tables.features import read_features

EXAMPLES = (
    "multihorizon identify decisions.csv --transitions moves.csv",
    "multihorizon identify 1.csv 2.csv --transitions a.csv --transitions b.csv",
)
FILES = ("identify.json", "identify.html")


def identify(
    demos: Demos,
    transitions: Transitions = None,
    features: Features = None,
    temperature: TemperatureChoice = None,
    smoothing: Smoothing = SMOOTHING,
    estimate_rest: EstimateRest = False,
    seed: Seed = 0,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Where to write identify.json and identify.html.")] = None,
) -> None:
    """Say whether these decisions, and any number of others like them, identify the discounts."""
    with plain_errors():
        check_out(out_dir, FILES, demos, transitions, features)
        tables = read_tables(demos)
        matrix = None if features is None else (lambda mdp: read_features(features, mdp))
        problem, remarks = build_problem(tables, read_mdps(transitions), matrix, smoothing, estimate_rest)
        with progress_bar("identify") as progress:
            solution = solve(problem, MaximumLikelihood(temperature_of(temperature)), seed, progress)
            exact = identify_fitted(solution)
        _show(solution, exact, remarks)
        if out_dir is not None:
            _write(out_dir, solution, exact, remarks)


def _show(solution: Solution, exact: Identification | None, remarks: list[str]) -> None:
    out.print(f"These decisions: {solution.status}. {solution.message}", soft_wrap=True)
    if solution.status == Status.NOT_CONVERGED:
        out.print("The fit did not converge, so what follows is about policies that need not be the experts'.", soft_wrap=True)
    if exact is None:
        out.print("Whether exact policies would identify the discounts cannot be told for this problem.", soft_wrap=True)
    else:
        out.print("If the fitted policies were known exactly:")
        out.print(exact.summary(), soft_wrap=True)
    for remark in remarks:
        out.print(remark, style="dim", soft_wrap=True)


def _write(directory: Path, solution: Solution, exact: Identification | None, remarks: list[str]) -> None:
    content = {
        "experts": list(solution.experts),
        "status": None if exact is None else exact.status,
        "fit_status": str(solution.status),
        "identified": solution.evidence["identified"],
        "identification": None if exact is None else exact.to_dict(),
        "message": solution.message,
        "seed": solution.seed,
        "version": package_version(),
    }
    text = json.dumps(for_json(content), indent=1, ensure_ascii=False, allow_nan=False)

    def write(draft: Path) -> None:
        (draft / "identify.json").write_text(text, encoding="utf-8")
        identify_page(solution, exact, remarks).write(draft / "identify.html")

    write_all(directory, write)
    out.print(f"Written to {directory}: {', '.join(FILES)}", soft_wrap=True)
