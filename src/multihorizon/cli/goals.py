"""`multihorizon goals`: do these people share a goal, and if not, who shares one with whom?"""

from __future__ import annotations

from multihorizon.cli.console import (
    checked,
    cluster_of,
    out,
    progress_bar,
    read_options,
    read_study,
    show_remarks,
    temperature_of,
    write_answer,
)
from multihorizon.cli.options import GoalsOptions
from multihorizon.questions.goals import goals_of_decisions
from multihorizon.report.pages import goals_page

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
                cluster=cluster_of(options.cluster_by),
                seed=options.seed,
                jobs=options.jobs,
                progress=progress,
            )
        out.print(found.sentences(), soft_wrap=True)
        show_remarks(study.remarks)
        if options.out_dir is not None:
            recorded = {**read_options(options), "simulations": options.simulations, "cluster": options.cluster_by}
            content = {**found.to_dict(), "summary": found.sentences(), "remarks": study.remarks, "seed": options.seed}
            page = goals_page(found, study.remarks, options.seed)
            write_answer(options.out_dir, FILES, {**content, "options": recorded}, page)
