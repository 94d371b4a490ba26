"""`multihorizon reproduce`: the paper's tables and figures, ours beside theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.table import Table as RichTable

from multihorizon.cli import ReproduceOptions
from multihorizon.cli.console import checked, err, out, progress_bar
from multihorizon.files import write_all
from multihorizon.paper.claims import Claim, all_claims
from multihorizon.paper.report import (
    draw_figures,
    load_domain,
    study_domain,
    write_domain,
    write_figures,
    write_page,
    write_report,
)
from multihorizon.paper.study import PARTS, StudySettings, read_timings, run_part
from multihorizon.words import Table

PAGES = ("report.html", "paper.md")


def reproduce(options: ReproduceOptions) -> None:
    """Regenerate the paper's study part by part; a run that was stopped goes on where it left off."""
    with checked(options, PAGES):
        kind = StudySettings.quickly if options.quick else StudySettings
        settings = kind(seed=options.seed, jobs=options.jobs)
        directory = options.out_dir
        if options.domain is not None:
            out.print(_claims(_own_domain(options.domain, directory, settings)))
            out.print(f"Written to {directory}: report.html, paper.md")
            return
        try:
            claims = _write_up(directory, _compute(directory, settings), settings)
        except KeyboardInterrupt:
            err.print(f"Stopped. What was finished is kept in {directory}: give the same command again to go on from there.")
            raise typer.Exit(130) from None
        if options.quick:
            out.print("A quick run: fewer tasks, evaluations and grid points than the paper's.")
        out.print(_claims(claims))
        out.print(f"Written to {directory}: report.html, paper.md, figures/, data/")


def _own_domain(name: str, directory: Path, settings: StudySettings) -> list[Claim]:
    """Return the paper's questions asked of a reader's domain, and their page."""
    domain = load_domain(name)
    with progress_bar(domain.name) as progress:
        claims, table = study_domain(domain, settings, progress)
        write_all(directory, PAGES, lambda draft: write_domain(draft, domain, claims, table, settings))
    return claims


def _compute(directory: Path, settings: StudySettings) -> dict[str, Any]:
    """Return every part's numbers, each written when it is finished."""
    data: dict[str, Any] = {}
    for number, part in enumerate(PARTS, start=1):
        with progress_bar(f"{number}/{len(PARTS)} {part.title}") as progress:
            fresh = run_part(part, directory, settings, data, progress)
        out.print(f"{part.title}: {'done' if fresh else 'kept from an earlier run'}")
    return data


def _write_up(directory: Path, data: dict[str, Any], settings: StudySettings) -> list[Claim]:
    """Return figures, report and page, all or none."""
    claims = all_claims(data)
    timings = read_timings(directory)
    with progress_bar("figures and report") as progress:

        def write(draft: Path) -> None:
            (draft / "figures").mkdir()
            drawings = draw_figures(data, timings, progress)
            write_figures(draft / "figures", drawings)
            progress(1.0, "report")
            write_report(draft, data, drawings, claims, settings)
            write_page(draft, data, claims, settings)

        write_all(directory, PAGES, write)
    return claims


def _claims(claims: list[Claim]) -> RichTable:
    rows = [(claim.topic, claim.ours, claim.verdict) for claim in claims]
    return Table.of(("claim", "ours", "verdict"), rows, "The paper and us").rich()
