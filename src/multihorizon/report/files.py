"""What a fit leaves behind: `result.json`, `result.npz`, `people.csv`, `reward.csv` and `report.html`, all or none.

Where the formula has conditions, `conditions.csv` has a row for each person and condition. Of very many people there are
`people.parquet` and `conditions.parquet` in place of these tables, and no `result.npz`: it would hold the same numbers.

A number that the data do not determine is null in the JSON, NaN in the arrays and empty in the CSV. Where states are vectors,
`reward.csv` holds the reward at states spread over the log; `reward_functions` evaluates it anywhere.

To go on from a fit without its tables, there are `solution.json`, which `Solution.from_json` reads, and `task.npz`: the
transitions, which `MDP.from_npz` reads, and beside them how often each person took each action in each state. `read_fit` puts the
two together. They are written of a fit to one task with a list of states, if it gave an answer and its arrays are not very large.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired, TypedDict

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.analysis import Analysis
from multihorizon.checks import LARGEST_NUMBER, Floats, as_floats, as_names, as_shape, first_few
from multihorizon.data.reading import connect, text
from multihorizon.files import (
    as_declared,
    expanded,
    finish_exchange,
    for_json,
    read_arrays,
    read_json,
    write_all,
    write_csv,
    write_json,
)
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.mdp import MDP, read_matrix
from multihorizon.population.solver import Population
from multihorizon.problem import CountedTask, Problem
from multihorizon.questions.people import CONDITIONS, PEOPLE
from multihorizon.report.charts import Block, Listing, Page, Section
from multihorizon.report.fit_page import fit_page
from multihorizon.result import package_version
from multihorizon.solution import Solution

#: What `read_fit` needs.
SOLUTION, TASK = "solution.json", "task.npz"
FILES = (
    "result.json",
    "result.npz",
    "people.csv",
    PEOPLE,
    "conditions.csv",
    CONDITIONS,
    "reward.csv",
    "trials.csv",
    SOLUTION,
    TASK,
    "report.html",
)


def write_fit(
    directory: Path, analysis: Analysis, options: dict[str, Any], *, so_far: bool = False, trials: pd.DataFrame | None = None
) -> tuple[str, ...]:
    """Write all files of a fit, or what is known `so_far`: `result.json` and `people.csv`. Those of an older fit are removed.

    `trials` are what the fit says of each decision, where that was asked for.

    Returns the names of the files.
    """

    def write(draft: Path) -> None:
        content = result_of(analysis, options)
        people = analysis.to_frame()
        rewards = analysis.reward_frame()
        conditions = analysis.conditions_frame()
        write_json(draft / "result.json", content)
        if trials is not None:
            write_csv(trials, draft / "trials.csv")
        if analysis.people is not None:
            _write_parquet(people, draft / PEOPLE)
            if conditions is not None:
                _write_parquet(conditions, draft / CONDITIONS)
            write_csv(rewards.rename_axis("parameter").reset_index(), draft / "reward.csv")
            _write_solution(draft, analysis)
            _with_next(fit_page(analysis, options), analysis).write(draft / "report.html")
            return
        write_csv(people, draft / "people.csv")
        if so_far:
            return
        if conditions is not None:
            write_csv(conditions, draft / "conditions.csv")
        write_csv(_reward_table(analysis, rewards), draft / "reward.csv")
        np.savez_compressed(
            draft / "result.npz",
            experts=np.array(analysis.solution.experts),
            discounts=np.where(analysis.given, analysis.solution.discounts, np.nan),
            intervals=analysis.intervals,
            reward=rewards["reward"].to_numpy(),
            reward_names=np.array(rewards.index, dtype=str),
            version=np.array(package_version()),
            seed=np.array(analysis.solution.seed),
            options=np.array(json.dumps(for_json(options))),
            **{f"policy_{i}": policy for i, policy in enumerate(analysis.policies)},  # type: ignore[arg-type]
        )
        _write_solution(draft, analysis)
        _with_next(fit_page(analysis, options), analysis).write(draft / "report.html")

    return write_all(directory, FILES, write)


def _write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table of a million rows in a second; columns that are neither numbers nor truth values become text."""
    with connect() as database:
        database.execute("SET GLOBAL pandas_analyze_sample = 0")  # a look at some cells would not show the type of all
        database.register("table_of_rows", frame)
        database.execute(f"COPY table_of_rows TO {text(str(path))} (FORMAT parquet)")


def result_of(analysis: Analysis, options: dict[str, Any]) -> dict[str, Any]:
    """Return the content of `result.json`."""
    return {**analysis._content(), "options": options}


def _reward_table(analysis: Analysis, rewards: pd.DataFrame) -> pd.DataFrame:
    """Return the reward with its standard error: of each state or feature, or at states spread over the log."""
    if analysis.functions is not None:
        frame = analysis.functions.to_frame()
        return frame.assign(reward=np.nan, standard_error=np.nan) if analysis.withheld else frame
    kind = "state" if analysis.problem.parameter_names == analysis.problem.experts[0].mdp.state_names else "parameter"
    return rewards.rename_axis(kind).reset_index()


def asked_solution(analysis: Analysis) -> Solution:
    """Return the solution that answers what was asked: that of the population, where one was asked about."""
    return analysis.solution if analysis.population is None else analysis.population


def goes_on(analysis: Analysis) -> bool:
    """Return whether `read_fit` can go on from a fit: it gave an answer in one task with a list of states, and is not too
    large."""
    solution = asked_solution(analysis)
    if analysis.withheld or solution.problem is None or not solution.problem.mdps:
        return False
    problem = solution.require_problem()
    first, *others = problem.tasks
    # About 20 numbers of each person are in the solution; with more than so many in all it takes seconds.
    return not others and first.mdp.stacked.nnz + first.counts.nnz + 20 * len(problem.names) <= 2_000_000


def _with_next(page: Page, analysis: Analysis) -> Page:
    """Return the page with how to go on from it, before how it was made."""
    if not goes_on(analysis):
        return page
    blocks: list[str | Block] = [
        "The folder of this report holds what is needed to say what these people will do when something changes: when a visit is "
        "paid for, a way is closed, the task is another one, or somebody looks farther ahead. RESULT is this folder:",
        Listing("multihorizon predict RESULT --pay pay.csv --out whatif\nmultihorizon predict RESULT --nudge STATE --chance 0.8"),
        "The first says what follows where pay.csv has the columns state and amount, and the second how much would have to be "
        "paid. multihorizon predict --help lists the other changes.",
    ]
    further: list[str | Block] = [
        "The same folder can be the pilot of a further study. This says which episodes to give people, how often, and what to "
        "expect:",
        Listing("multihorizon design --pilot RESULT --episodes 100 --out design"),
    ]
    next_ = [Section("What if something changes?", blocks), Section("Which study to run next?", further)]
    return replace(page, sections=[*page.sections[:-1], *next_, page.sections[-1]])


def _write_solution(draft: Path, analysis: Analysis) -> None:
    """Write what `read_fit` reads, if there is something to go on from."""
    if not goes_on(analysis):
        return
    solution = asked_solution(analysis)
    problem = solution.require_problem().by_person().in_tasks(MDP.as_counted)
    (task,) = problem.tasks
    solution.to_json(draft / SOLUTION)
    task.mdp.to_npz(draft / TASK)
    with np.load(draft / TASK) as arrays:
        content = dict(arrays)
    content |= {
        "schema": np.array(1),
        "experts": np.array(problem.names),
        "parameters": np.array(problem.parameter_names, dtype=np.str_),  # none where the reward is known
    }
    for name in ("counts", "features", "arrival"):
        matrix = getattr(task, name)
        if matrix is not None:
            parts = {part: getattr(sp.csr_array(matrix), part) for part in ("data", "indices", "indptr")}
            content |= {f"{name}_{part}": np.asarray(value) for part, value in parts.items()}
    for name in ("known_reward", "known_arrival"):
        if getattr(task, name) is not None:
            content[name] = getattr(task, name)
    with (draft / TASK).open("wb") as file:
        np.savez_compressed(file, **content)


class _Result(TypedDict):
    """What `result.json` must hold to be gone on from."""

    warnings: list[str]
    options: dict[str, Any]
    withheld: NotRequired[str | None]


def load(folder: str | Path) -> Solution:
    """Read the solution of a fit, with its problem, from the folder that `multihorizon fit --out` wrote.

    Args:
        folder: of the fit.

    Returns:
        The solution, which `predict`, `nudge`, `design` and all other analyses take. After a fit with a formula it is that of the
        population.

    Raises:
        ValueError: if the folder holds no fit, or one that cannot be used further: it gave no answer, joins several tasks, or its
            states are vectors.

    Example:
        >>> import multihorizon as mh
        >>> mh.load("no such folder")
        Traceback (most recent call last):
        ValueError: the result must be a folder that a fit wrote, got no such folder, which does not exist
    """
    return read_fit(Path(folder))[0]


def read_fit(directory: Path) -> tuple[Solution, dict[str, Any]]:
    """Read the solution of a fit with its problem, from the folder that `write_fit` filled, and the content of `result.json`.

    Raises:
        ValueError: in one sentence, where the folder holds no fit, or one that cannot be gone on from.
    """
    directory = expanded(directory)
    finish_exchange(directory)
    if not (directory / "result.json").is_file():
        state = (
            "a folder without result.json" if directory.is_dir() else "a file" if directory.exists() else "which does not exist"
        )
        raise ValueError(f"the result must be a folder that a fit wrote, got {directory}, {state}")
    content = read_json(directory / "result.json", "the result of a fit")
    try:
        as_declared(content, _Result, "the result")
    except ValueError as error:
        raise ValueError(f"{directory / 'result.json'} is not the result of a fit: {error}") from error
    for name in (SOLUTION, TASK):
        if not (directory / name).is_file():
            raise ValueError(f"{directory} has no {name} to go on from: {_why_not(content)}")
    arrays = read_arrays(directory / TASK, "the task of a fit")
    solution = Solution.from_json(directory / SOLUTION, _problem_from(arrays, directory / TASK))
    if missing := solution.evidence.lacking():
        needed = f"must have {', '.join(missing)} in its evidence, as each {solution.solver} writes it"
        raise ValueError(f"{directory / SOLUTION} {needed}, got none: fit again")
    for name in ("temperature", "reward"):
        largest = np.nanmax(np.abs(np.asarray(getattr(solution, name), dtype=np.float64)), initial=0.0)
        if largest > LARGEST_NUMBER:
            received = f"at most {LARGEST_NUMBER:g}, got {largest:g}"
            raise ValueError(f"{directory / SOLUTION}: {name} must be {received}: fit again")
    try:
        solution.solver_used(MaximumLikelihood, Population)
    except ValueError as error:
        raise ValueError(f"{directory / SOLUTION} is not the solution of a fit: {error}") from error
    (task,) = solution.require_problem().tasks
    taken = float(task.counts.sum())
    decisions = float(solution.evidence["decisions"])
    if not np.isclose(taken, decisions):
        raise ValueError(
            f"{directory / SOLUTION} and {TASK} must be of one fit, got {decisions:,.10g} decisions in the one and "
            f"{taken:,.10g} in the other: fit again"
        )
    return solution, content


def _problem_from(arrays: dict[str, Any], path: Path) -> Problem:
    """Return the people of a fit and their task; ValueError, naming the file, where it holds something else."""
    wrong = f"{path} is not the task of a fit"
    schema = arrays.get("schema", np.array(0))
    if schema.shape or schema.dtype.kind not in "iu" or schema != 1:
        raise ValueError(f"{path} was not written by a fit of this version: fit again")
    mdp = MDP.from_arrays(arrays, path)
    # The axes of each array and the kinds of values (NumPy's letters) it may hold.
    needed = {"experts": (1, "U"), "parameters": (1, "U")}
    for name, (axes, kinds) in needed.items():
        array = arrays.get(name)
        # An empty list of parameters, where nothing of the reward is estimated, may be one of numbers.
        if array is None or array.ndim != axes or (array.size and array.dtype.kind not in kinds):
            raise ValueError(f"{wrong}: its entry {name} is missing or damaged; fit again")
    try:
        return _persons_of(mdp, arrays)
    except ValueError as error:
        raise ValueError(f"{wrong}: {error}; fit again") from error


def _why_not(content: dict[str, Any]) -> str:
    """Return why a folder with this `result.json` has nothing to go on from, and what to do."""
    tables = (content.get("options") or {}).get("demonstrations")
    if content.get("withheld"):
        return f"the fit gave no answer. {content['withheld']}"
    if content.get("finished") is False:
        return "the fit was stopped before it was done; fit again"
    if content.get("coordinates"):
        return "its states are vectors, and this needs a list of states"
    if isinstance(tables, list) and len(tables) > 1:
        return f"the fit joins {len(tables)} tasks, and this needs one; fit the task in question by itself"
    return "it was written by an older version, or is very large; fit again"


def _persons_of(mdp: MDP, arrays: dict[str, Any]) -> Problem:
    """Return the people of a saved task; ValueError where its arrays do not fit the task."""
    rows = mdp.n_states * mdp.n_actions
    names = arrays["experts"].tolist()
    parameters = arrays["parameters"].tolist()
    experts, parameters = (as_names(of, len(of), what) for of, what in ((names, "experts"), (parameters, "parameters")))
    counts = read_matrix(arrays, (len(experts), rows), "counts_")
    features = read_matrix(arrays, (rows, len(parameters)), "features_")
    arrival = read_matrix(arrays, (mdp.n_states, len(parameters)), "arrival_")
    paid: dict[str, Floats] = {}
    for name, size in (("known_reward", rows), ("known_arrival", mdp.n_states)):
        if name in arrays:
            paid[name] = as_floats(arrays[name], name)
            as_shape(paid[name], (size,), name)
    if features is None and parameters != mdp.state_names:
        raise ValueError(f"parameters must be the states where there are no features, got {first_few(parameters)}")
    if counts is None or (counts.data < 0).any() or not (counts.sum(axis=1) > 0).all():
        raise ValueError("counts must not be negative, and those of each expert must have one above 0")
    task = CountedTask(mdp, counts, features, arrival, paid.get("known_reward"), paid.get("known_arrival"))
    _ = task.pooled  # checks that what was counted can be done
    return Problem.of_tasks(experts, parameters, (task,))
