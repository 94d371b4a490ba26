"""What a fit leaves behind: `result.json`, `result.npz`, `people.csv`, `reward.csv` and `report.html`, all or none.

Where the formula has conditions, `conditions.csv` has a row for each person and condition. Of very many persons there are
`people.parquet` and `conditions.parquet` in place of these tables, and no `result.npz`: it would hold the same numbers.

A number that the data do not determine is null in the JSON, NaN in the arrays and empty in the CSV. Where states are vectors,
`reward.csv` holds the reward at states spread over the log; `reward_functions` evaluates it anywhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.analysis import Analysis
from multihorizon.crowd import CONDITIONS, PEOPLE, CrowdAnalysis
from multihorizon.data.reading import connect, text
from multihorizon.files import for_json, write_all, write_csv, write_json
from multihorizon.report.crowd_page import crowd_page
from multihorizon.report.fit_page import fit_page
from multihorizon.result import package_version

FILES = ("result.json", "result.npz", "people.csv", PEOPLE, "conditions.csv", CONDITIONS, "reward.csv", "report.html")


def write_fit(
    directory: Path, found: Analysis | CrowdAnalysis, options: dict[str, Any], *, so_far: bool = False
) -> tuple[str, ...]:
    """Write all files of a fit, or what is known `so_far`: `result.json` and `people.csv`. Those of an older fit are removed.

    Returns the names of the files.
    """

    def write(draft: Path) -> None:
        content, people, conditions = result_of(found, options), found.to_frame(), found.conditions_frame()
        write_json(draft / "result.json", content)
        if isinstance(found, CrowdAnalysis):
            _write_parquet(people, draft / PEOPLE)
            if conditions is not None:
                _write_parquet(conditions, draft / CONDITIONS)
            write_csv(found.reward_frame().rename_axis("parameter").reset_index(), draft / "reward.csv")
            crowd_page(found, options).write(draft / "report.html")
            return
        write_csv(people, draft / "people.csv")
        if so_far:
            return
        if conditions is not None:
            write_csv(conditions, draft / "conditions.csv")
        write_csv(_reward_frame(found), draft / "reward.csv")
        reward = found.reward_frame()["reward"]
        np.savez_compressed(
            draft / "result.npz",
            experts=np.array(found.solution.experts),
            discounts=np.where(found.given, found.solution.discounts, np.nan),
            intervals=found.intervals,
            reward=reward.to_numpy(),
            reward_names=np.array(reward.index, dtype=str),
            version=np.array(package_version()),
            seed=np.array(found.solution.seed),
            options=np.array(json.dumps(for_json(options))),
            **{f"policy_{i}": policy for i, policy in enumerate(found.policies)},  # type: ignore[arg-type]
        )
        fit_page(found, options).write(draft / "report.html")

    write_all(directory, FILES, write)
    return tuple(name for name in FILES if (directory / name).is_file())


def _write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """Write a table of a million rows in a second; columns that are neither numbers nor truth values become text."""
    with connect() as database:
        database.execute("SET GLOBAL pandas_analyze_sample = 0")  # a look at some cells would not show the type of all
        database.register("table_of_rows", frame)
        database.execute(f"COPY table_of_rows TO {text(str(path))} (FORMAT parquet)")


def result_of(found: Analysis | CrowdAnalysis, options: dict[str, Any]) -> dict[str, Any]:
    """The content of `result.json`."""
    return {**found._content(), "options": options}


def _reward_frame(found: Analysis) -> pd.DataFrame:
    """The reward with its standard error: of each state or feature, or at states spread over the log."""
    if found.functions is not None:
        frame = found.functions.to_frame()
        return frame.assign(reward=np.nan, standard_error=np.nan) if found.withheld else frame
    kind = "state" if found.problem.parameter_names == found.problem.experts[0].mdp.state_names else "parameter"
    return found.reward_frame().rename_axis(kind).reset_index()
