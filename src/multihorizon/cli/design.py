"""`multihorizon design`: from the folder of a pilot's fit to the study to run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from multihorizon.cli.console import checked, features_in, out, progress_bar, read_mdps, show_remarks
from multihorizon.cli.options import DesignOptions
from multihorizon.questions.design import Design
from multihorizon.questions.design import design as designed
from multihorizon.report.files import read_fit
from multihorizon.report.pages import DESIGNED, write_design

#: How many candidates the terminal shows; `design.csv` has all.
SHOWN = 15


def design(options: DesignOptions) -> None:
    """Say which study to run: which episodes, how often, and what can be expected of it.

    The candidates are used so that the decisions say most about how far people look ahead.
    """
    with checked(options, DESIGNED):
        pilot, fitted = read_fit(options.pilot)
        remarks = [f"The report of the pilot warns: {text}" for text in fitted.get("warnings") or ()]
        tasks = read_mdps(options.transitions)
        if options.features is not None and (tasks is None or len(options.features) != len(tasks)):
            given = 0 if tasks is None else len(tasks)
            raise ValueError(
                f"--features must be given once for each of --transitions, received {len(options.features)} for {given}"
            )
        features = None
        if options.features is not None and tasks is not None:
            names = pilot.problem.parameter_names  # type: ignore[union-attr]
            features = [features_in(path, mdp, names) for path, mdp in zip(options.features, tasks, strict=True)]
        with progress_bar("design") as progress:
            found = designed(
                tasks,
                pilot,
                options.candidates,
                persons=options.persons,
                episodes=options.most_episodes,
                decisions=options.decisions,
                budget=options.budget,
                width=options.width,
                difference=options.difference,
                term=options.term,
                features=features,
                length=_mean_length(fitted),
                draws=options.draws,
                seed=options.seed,
                progress=progress,
            )
        _show(found)
        show_remarks(remarks)
        if options.out_dir is not None:
            write_design(options.out_dir, found, _recorded(options), _check(options, found, named=True), remarks)
            out.print(f"Written to {options.out_dir}: {', '.join(DESIGNED)}", soft_wrap=True)
            out.print(f"Check it by simulation: {_check(options, found)}", soft_wrap=True)


def _mean_length(fitted: dict[str, Any]) -> int | None:
    """How many decisions an episode of the pilot had on average, rounded up; None where its result does not say it."""
    episodes, decisions = (np.sum(fitted.get(name) or 0) for name in ("episodes", "decisions"))
    return int(np.ceil(decisions / episodes)) if episodes > 0 and decisions > 0 else None


def _check(options: DesignOptions, found: Design, named: bool = False) -> str:
    """The command that simulates the study as designed; with files by their names alone, where it is kept."""

    def shown(path: Path) -> str:
        return path.resolve().name if named else str(path)

    assert options.out_dir is not None
    words = ["multihorizon", "recover", "--pilot", shown(options.pilot), "--schedule", shown(options.out_dir) + "/schedule.csv"]
    for path in options.transitions or ():
        words += ["--transitions", shown(path)]
    for path in options.features or ():
        words += ["--features", shown(path)]
    words += ["--people", str(found.persons)]
    if found.scale == "logit" and found.targets[0] != "Intercept":
        words += ["--term", found.targets[0]]
        words += ["--effect", f"{found.difference:g}"] if found.difference == found.difference else []
    return shlex.join(words)


def _recorded(options: DesignOptions) -> dict[str, Any]:
    """What the files say about how they were made: names of files, never where they lie."""
    return {
        "pilot": options.pilot.resolve().name,
        "transitions": [path.name for path in options.transitions] if options.transitions else None,
        "candidates": options.candidates.name if options.candidates else None,
        "features": [path.name for path in options.features] if options.features else None,
        "persons": options.persons,
        "decisions": options.decisions,
        "episodes": options.most_episodes,
        "budget": options.budget,
        "width": options.width,
        "difference": options.difference,
        "term": options.term,
        "draws": options.draws,
        "seed": options.seed,
    }


def _show(found: Design) -> None:
    given, errors, _ = found._tables(compute=True)
    out.print(given.rich(SHOWN))
    if len(given.frame) > SHOWN:
        out.print(f"… and {len(given.frame) - SHOWN} more, which --out writes to design.csv.")
    out.print(errors.rich(SHOWN))
    out.print(found.sentences(), soft_wrap=True)
