"""`multihorizon fit --state`: from a table whose states are columns of numbers to planning horizons with error bars."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from multihorizon.commands.console import out, progress_bar
from multihorizon.continuous.solver import SieveLikelihood
from multihorizon.likelihood.known import Temperature
from multihorizon.report.formats import person_cells
from multihorizon.report.goal_check import QUESTION
from multihorizon.report.sampled_analysis import NOT_TESTED, SampledAnalysis, analyse_steps
from multihorizon.report.sampled_report import STEP_FILES, write_sampled
from multihorizon.tables.steps import Steps


def fit_steps(
    demos: Sequence[Path],
    state: str,
    others: dict[str, Any],
    known: tuple[Temperature, float | dict[str, float] | None],
    quick: bool,
    seed: int,
    out_dir: Path | None,
) -> None:
    """Fit, show and write. `others` are options of finite tasks, which must not be given; `known` temperatures and discounts."""
    columns = _state_columns(state, others)
    if len(demos) != 1:
        raise ValueError(f"--state must come with one table of decisions, received {len(demos)}")
    steps = Steps.from_file(demos[0], columns)
    with progress_bar("fit") as progress:
        found = analyse_steps(steps, SieveLikelihood(temperature=known[0], discounts=known[1]), seed, quick, progress)
    _show(found)
    if out_dir is not None:
        options = {
            "demonstrations": demos[0].name,
            "state": columns,
            "temperature": known[0],
            "discounts": known[1],
            "quick": quick,
        }
        write_sampled(out_dir, found, options)
        out.print(f"Written to {out_dir}: {', '.join(STEP_FILES)}", soft_wrap=True)
        out.print(f"Open {out_dir / 'report.html'} in a browser.", soft_wrap=True)


def _state_columns(text: str, others: dict[str, Any]) -> list[str]:
    """The columns named on the command line; raises where an option of finite tasks is given as well."""
    columns = [name.strip() for name in text.split(",")]
    if not all(columns):
        raise ValueError(f"--state must name columns separated by commas, received {text!r}")
    wrong = next((option for option, value in others.items() if value), None)
    if wrong is not None:
        raise ValueError(f"--state must come without {wrong}, which belongs to tasks with a list of states")
    return columns


def _show(found: SampledAnalysis) -> None:
    for text in found.warnings:
        out.print(text, style="bold red", soft_wrap=True)
    table = Table(title=f"{len(found.steps):,} decisions, {found.solution.evidence['functions']} basis functions")
    for header in ("expert", "horizon", "discount", "95 % interval", "temperature"):
        table.add_column(header, justify="left" if header == "expert" else "right")
    for k, name in enumerate(found.solution.experts):
        table.add_row(name, *person_cells(found, k))
    out.print(table)
    if len(found.solution.experts) > 1:
        out.print(f"{QUESTION} {NOT_TESTED}", soft_wrap=True)
    for verdict in found.verdicts:
        out.print(f"{verdict.question} {verdict.answer}. {verdict.reasons}", soft_wrap=True)
