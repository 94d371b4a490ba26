"""The options that several commands share, and how the files they name are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from multihorizon.checks import as_discount, as_positive
from multihorizon.files.output import check_output
from multihorizon.likelihood.known import Temperature
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.likelihood.population import Population
from multihorizon.lookahead import FAMILIES, Exponential, Lookahead, family_named
from multihorizon.mdp import MDP
from multihorizon.problem import Problem
from multihorizon.report.analysis import build_problem
from multihorizon.tables.demonstrations import Demonstrations, read_tables
from multihorizon.tables.features import read_features
from multihorizon.tables.persons import read_persons
from multihorizon.tables.transitions import read_transitions

Demos = Annotated[
    list[Path],
    typer.Argument(
        metavar="TABLES",
        help="CSV or Parquet: expert, episode, step, state, action[, next_state]; one file, or one folder of files, per task.",
    ),
]
Transitions = Annotated[
    list[Path] | None,
    typer.Option("--transitions", help="npz of MDP.to_npz, or CSV: state, action, next_state, probability; once for each table."),
]
Features = Annotated[
    Path | None, typer.Option("--features", help="CSV: state[, action], then one column per feature of the reward.")
]
TemperatureChoice = Annotated[
    list[str] | None,
    typer.Option(
        "--temperature",
        metavar="CHOICE|[NAME=]VALUE",
        help="How random choices are: pooled (the default: equal unless the decisions reject that), shared, per-expert, or a "
        "known number, of one expert or of all; NAME=VALUE may be repeated.",
    ),
]
Smoothing = Annotated[
    float, typer.Option("--smoothing", help="Moves added to each state and action when transitions are estimated.")
]
EstimateRest = Annotated[
    bool,
    typer.Option("--estimate-rest", help="Estimate from next_state the actions and states that --transitions leaves out."),
]
Ridge = Annotated[float | None, typer.Option("--ridge", help="Weight of a penalty on large rewards; by default none is needed.")]
Discounts = Annotated[
    list[str] | None,
    typer.Option("--discount", metavar="[NAME=]VALUE", help="A known discount, of one expert or of all; may be repeated."),
]
KnownReward = Annotated[
    Path | None, typer.Option("--known-reward", help="CSV: state[, action], then one column with the reward that is known.")
]
Groups = Annotated[Path | None, typer.Option("--groups", help="CSV: expert, group; the experts of one group share one discount.")]
PersonsFile = Annotated[
    Path | None, typer.Option("--persons", help="CSV: expert, then covariates, one row per person; use with --formula.")
]
Formula = Annotated[
    str | None, typer.Option("--formula", help='The covariates that discounts may depend on, as in R: "~ group + age".')
]
StateColumns = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="X1,X2,…", help="The columns of numbers that are the state; where actions lead is then learned."
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="Leave out tests and model checks; take intervals from standard errors.")]
Jobs = Annotated[int, typer.Option("--jobs", help="Processes to use; -1 is all cores. The answer does not depend on it.")]
Cluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="ADDRESS", help="Work on a Dask cluster, in place of --jobs: tcp://host:8786."),
]
Pairs = Annotated[bool, typer.Option("--pairs", help="Compare every pair of experts, even of many.")]
LookaheadChoice = Annotated[
    str | None,
    typer.Option(
        "--lookahead",
        help="Compare shapes of look-ahead: depth, hyperbolic, quasi-hyperbolic, free-weights, or all of them.",
    ),
]
Recovered = Annotated[
    Path | None, typer.Option("--recovered", help="recover.json of multihorizon recover, to be shown in the report.")
]
Seed = Annotated[int, typer.Option("--seed", help="Fixes all randomness.")]


@dataclass(frozen=True, eq=False)
class Study:
    """What a command was given: the tables, the problem they make, and remarks on what was assumed."""

    tables: list[Demonstrations]
    problem: Problem
    remarks: list[str]


def read_study(
    demos: Demos, transitions: Transitions, features: Features, smoothing: Smoothing, estimate_rest: EstimateRest
) -> Study:
    """The tables of decisions with their transitions and features."""
    tables = read_tables(demos)
    matrix = None if features is None else (lambda mdp: read_features(features, mdp))
    return Study(tables, *build_problem(tables, read_mdps(transitions), matrix, smoothing, estimate_rest))


def read_options(demos: Demos, transitions: Transitions, features: Features, temperature: TemperatureChoice) -> dict[str, Any]:
    """What results say of these options: names of files, never where they lie."""
    return {
        "demonstrations": [path.name for path in demos],
        "transitions": [path.name for path in transitions] if transitions else "estimated",
        "features": features.name if features else None,
        "temperature": ", ".join(temperature) if temperature else "pooled",
    }


def read_mdps(transitions: list[Path] | None) -> list[MDP] | None:
    """The given transitions, or None to have them estimated."""
    return [read_transitions(path) for path in transitions] if transitions else None


def temperature_of(texts: list[str] | None) -> Temperature:
    """The solver's option for a choice on the command line: a word, one number for all, or numbers by name."""
    words: dict[str, Temperature] = {"pooled": "pooled", "shared": "shared", "per-expert": "per_expert"}
    if not texts:
        return "pooled"
    if len(texts) == 1 and texts[0] in words:
        return words[texts[0]]
    return _numbers(texts, "--temperature", as_positive, f"one of {', '.join(words)}, a positive number or NAME=number")


def population_of(persons: Path | None, formula: str | None, solver: MaximumLikelihood) -> Population | None:
    """What is asked about groups and persons; nothing without a table of persons and a formula."""
    if persons is None and formula is None:
        return None
    if persons is not None and not (formula or "").strip():
        raise ValueError('--persons must come with --formula, received none: "~ group" compares the groups of a column group')
    if persons is None and formula is not None and formula.strip(" ~1"):
        raise ValueError(f"--formula {formula} must come with --persons FILE, the table with its columns, received none")
    if solver.discounts is not None or solver.groups is not None:
        raise ValueError("--formula must have discounts of all experts to explain: leave out --discount and --groups")
    rows = None if persons is None else read_persons(persons)
    return Population(formula or "~ 1", rows, known_reward=solver.known_reward, ridge=solver.ridge)


def families_of(text: str | None) -> tuple[Lookahead, ...]:
    """The families of look-ahead to compare; the exponential one is always among them."""
    if text is None:
        return ()
    return FAMILIES if text == "all" else (Exponential(), family_named(text, "--lookahead", "all"))


def discounts_of(texts: list[str] | None) -> float | dict[str, float] | None:
    """The known discounts on the command line: one for all, or by name."""
    return _numbers(texts, "--discount", as_discount, "a number from 0 to 1, or NAME=number") if texts else None


def _numbers(texts: list[str], option: str, check: Callable[[object, str], float], expected: str) -> float | dict[str, float]:
    """One number for all experts, or one for each name."""
    names = [text.rpartition("=")[0] for text in texts]
    if len(texts) > 1 and (not all(names) or len(set(names)) < len(names)):
        raise ValueError(f"{option} must be given once for all experts, or once for each name, received {', '.join(texts)}")
    try:
        numbers = [check(float(text.rpartition("=")[2]), option) for text in texts]
    except ValueError:
        raise ValueError(f"{option} must be {expected}, received {', '.join(texts)}") from None
    return dict(zip(names, numbers, strict=True)) if names[0] else numbers[0]


def check_out(directory: Path | None, files: Sequence[str], demos: Demos, transitions: Transitions, *others: Path | None) -> None:
    """Raise, before any work, if `--out` cannot take these files or would replace what is read."""
    if directory is not None:
        check_output(directory, files, [*demos, *(transitions or ()), *(path for path in others if path is not None)])
