"""`multihorizon fit`: from a table of who did what in which state to planning horizons with error bars."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table

from multihorizon.commands.console import out, plain_errors, progress_bar
from multihorizon.commands.options import (
    Demos,
    EstimateRest,
    Features,
    Pairs,
    Ridge,
    Seed,
    Smoothing,
    Temperature,
    TemperatureChoice,
    Transitions,
    check_out,
    read_mdps,
    temperature_of,
)
from multihorizon.report.analysis import Analysis, analyse
from multihorizon.report.fit_report import FILES, write_fit
from multihorizon.report.formats import discount_text, interval_text, sizes, steps_text
from multihorizon.report.words import wide_intervals
from multihorizon.tables.demonstrations import read_tables
from multihorizon.tables.dynamics import SMOOTHING
from multihorizon.tables.features import read_features

#: The terminal lists the experts one by one up to this many; `people.csv` lists all.
LISTED_EXPERTS = 60


def fit(
    demos: Demos,
    transitions: Transitions = None,
    features: Features = None,
    temperature: TemperatureChoice = Temperature.SHARED,
    smoothing: Smoothing = SMOOTHING,
    estimate_rest: EstimateRest = False,
    ridge: Ridge = None,
    pairs: Pairs = False,
    seed: Seed = 0,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Where to write results and the report.")] = None,
) -> None:
    """Estimate each expert's planning horizon and the reward they share from logged decisions."""
    with plain_errors():
        if smoothing < 0:
            raise ValueError(f"--smoothing must be at least 0, received {smoothing:g}")
        check_out(out_dir, FILES, demos, transitions, features)
        tables = read_tables(demos)
        options = {
            "demonstrations": [path.name for path in demos],
            "transitions": [path.name for path in transitions] if transitions else "estimated",
            "features": features.name if features else None,
            "temperature": str(temperature),
            "estimate_rest": estimate_rest,
            "smoothing": smoothing if estimate_rest or not transitions else None,
            "ridge": ridge,
        }
        with progress_bar("fit") as progress:
            analysis = analyse(
                tables,
                read_mdps(transitions),
                None if features is None else (lambda mdp: read_features(features, mdp)),
                temperature_of(temperature),
                smoothing,
                ridge,
                seed,
                progress,
                estimate_rest,
                pairs,
            )
        _show(analysis)
        if out_dir is not None:
            write_fit(out_dir, analysis, options)
            out.print(f"Written to {out_dir}: {', '.join(FILES)}", soft_wrap=True)


def _show(analysis: Analysis) -> None:
    for text in analysis.warnings:
        out.print(text, style="bold red", soft_wrap=True)
    out.print(sizes(analysis))
    if len(analysis.given) <= LISTED_EXPERTS:
        out.print(_table(analysis))
    for verdict in analysis.verdicts:
        out.print(f"{verdict.question} {verdict.answer}. {verdict.reasons}", soft_wrap=True)
    if not all(analysis.given) or analysis.withheld or wide_intervals(analysis):
        out.print("What to collect next:")
        for line in analysis.advice:
            out.print(f"  - {line}", soft_wrap=True)
    for remark in analysis.remarks:
        out.print(remark, style="dim", soft_wrap=True)


def _table(analysis: Analysis) -> Table:
    """One row per expert, from the shortest horizon to the longest."""
    reach = "1/(1−γ) in steps" if np.isinf(analysis.steps) else f"in steps of a task of {analysis.steps}"
    table = Table(title=f"Planning horizons {reach} ({analysis.solution.status})")
    table.add_column("expert", overflow="fold", min_width=12)
    for header in ("horizon", "discount", "95 % interval", "temperature", "pseudo-R²"):
        table.add_column(header, justify="right", min_width=14 if "%" in header else len(header))
    for k in analysis.order:
        table.add_row(analysis.solution.experts[k], *_cells(analysis, k))
    return table


def _cells(analysis: Analysis, k: int) -> tuple[str, ...]:
    heat = analysis.solution.temperature
    rest = ("–" if heat is None else f"{heat[k]:.2f}", f"{analysis.explained[k]:.2f}")
    if not analysis.given[k]:
        return "–", "–", analysis.reasons[k], *rest
    gamma = float(analysis.solution.discounts[k])
    return steps_text(analysis, gamma), discount_text(analysis, gamma), interval_text(analysis, k), *rest
