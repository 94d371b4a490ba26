"""The options that several commands share, and how the files they name are read."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from multihorizon.files.output import check_output
from multihorizon.mdp import MDP
from multihorizon.tables.transitions import read_transitions


class Temperature(StrEnum):
    """Whether all experts are equally decided in their choices, or each has a temperature."""

    SHARED = "shared"
    PER_EXPERT = "per-expert"


Demos = Annotated[
    list[Path],
    typer.Argument(
        metavar="DEMOS…", help="CSV or Parquet: expert, episode, step, state, action[, next_state]; one file per task."
    ),
]
Transitions = Annotated[
    list[Path] | None,
    typer.Option("--transitions", help="npz of MDP.to_npz, or CSV: state, action, next_state, probability; once for each DEMOS."),
]
Features = Annotated[
    Path | None, typer.Option("--features", help="CSV: state[, action], then one column per feature of the reward.")
]
TemperatureChoice = Annotated[Temperature, typer.Option("--temperature", help="One temperature for all experts, or one each.")]
Smoothing = Annotated[
    float, typer.Option("--smoothing", help="Moves added to each state and action when transitions are estimated.")
]
EstimateRest = Annotated[
    bool,
    typer.Option("--estimate-rest", help="Estimate from next_state the actions and states that --transitions leaves out."),
]
Ridge = Annotated[float | None, typer.Option("--ridge", help="Weight of a penalty on large rewards; by default none is needed.")]
Pairs = Annotated[bool, typer.Option("--pairs", help="Compare every pair of experts, also of many.")]
Seed = Annotated[int, typer.Option("--seed", help="Fixes all randomness.")]


def read_mdps(transitions: list[Path] | None) -> list[MDP] | None:
    """The given transitions, or None to have them estimated."""
    return [read_transitions(path) for path in transitions] if transitions else None


def temperature_of(choice: Temperature) -> float | Literal["per_expert"]:
    """The solver's option for a choice on the command line."""
    return 1.0 if choice == Temperature.SHARED else "per_expert"


def check_out(directory: Path | None, files: Sequence[str], demos: Demos, transitions: Transitions, features: Features) -> None:
    """Raise, before any work, if `--out` cannot take these files or would replace what is read."""
    if directory is not None:
        check_output(directory, files, [*demos, *(transitions or ()), *([features] if features else ())])
