"""`multihorizon goals`: do these people share a goal, and if not, who shares one with whom?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from multihorizon.cli.console import checked, out, progress_bar, read_options, read_study, show_remarks, temperature_of
from multihorizon.cli.options import GoalsOptions
from multihorizon.files import write_all, write_json
from multihorizon.questions.goals import Goals, goals_of_decisions
from multihorizon.report.question_pages import goals_page
from multihorizon.result import package_version
from multihorizon.solution import Solution

FILES = ("goals.json", "goals.html")


def goals(options: GoalsOptions) -> None:
    """Say who shares a goal with whom, where rewards and horizons may both differ."""
    with checked(options, FILES):
        study = read_study(options)
        with progress_bar("goals") as progress:
            found = goals_of_decisions(
                study.problem,
                temperature_of(options.temperature),
                options.simulations,
                seed=options.seed,
                jobs=options.jobs,
                progress=progress,
            )
        out.print(found.summary(), soft_wrap=True)
        show_remarks(study.remarks)
        if options.out_dir is not None:
            recorded = {**read_options(options), "simulations": options.simulations}
            _write(options.out_dir, found, study.remarks, options.seed, recorded)


def _write(directory: Path, found: Goals[Solution], remarks: list[str], seed: int, options: dict[str, Any]) -> None:
    content = {**found.to_dict(), "summary": found.summary(), "remarks": remarks, "seed": seed, "options": options}

    def write(draft: Path) -> None:
        write_json(draft / "goals.json", {**content, "version": package_version()})
        goals_page(found, remarks, seed).write(draft / "goals.html")

    write_all(directory, FILES, write)
    out.print(f"Written to {directory}: {', '.join(FILES)}", soft_wrap=True)
