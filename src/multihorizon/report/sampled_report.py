"""What a fit to states that are vectors leaves behind: `result.json`, `people.csv`, `reward.csv` and `report.html`, all or none.

`reward.csv` holds the reward and its standard error at states spread over the log; `functions` evaluates it anywhere.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.continuous.design import value_points
from multihorizon.continuous.sieve_likelihood import LARGEST_DISCOUNT
from multihorizon.files.output import write_all, write_csv
from multihorizon.files.saved import write_json
from multihorizon.report.findings import LEVEL
from multihorizon.report.fit_report import STEP_FILES as FIT_FILES
from multihorizon.report.people import limit_of
from multihorizon.report.sampled_analysis import SampledAnalysis
from multihorizon.report.sampled_page import sampled_page
from multihorizon.solution import package_version

STEP_FILES = ("result.json", "people.csv", "reward.csv", "report.html")
#: States at which the reward is written.
STATES = 500


def write_sampled(directory: Path, found: SampledAnalysis, options: dict[str, Any]) -> None:
    """Write all files of a fit."""

    def write(draft: Path) -> None:
        write_json(draft / "result.json", result_of(found, options))
        write_csv(found.to_frame(), draft / "people.csv")
        write_csv(_rewards(found), draft / "reward.csv")
        sampled_page(found, options).write(draft / "report.html")

    write_all(directory, FIT_FILES, write)


def result_of(found: SampledAnalysis, options: dict[str, Any]) -> dict[str, Any]:
    """The content of `result.json`."""
    solution, given, people = found.solution, found.given, found.to_frame().sort_index()
    reward = np.where(bool(found.withheld), np.nan, solution.reward)
    discounts = [float(g) if k else None for g, k in zip(solution.discounts, given, strict=True)]
    return {
        "experts": list(solution.experts),
        "warnings": found.warnings,
        "headline": found.headline,
        "verdicts": [asdict(verdict) for verdict in found.verdicts],
        "withheld": found.withheld or None,
        "finished": found.finished,
        "quick": found.quick,
        "discounts": discounts,
        "intervals": found.intervals.tolist(),
        "level": LEVEL,
        "known": {"discounts": found.known},
        "largest_discount": LARGEST_DISCOUNT,
        "standard_errors": people["standard_error"].tolist(),
        "effective_horizons": [None if g is None else 1 / (1 - g) for g in discounts],
        "temperatures": found.temperatures,
        "reward": dict(zip(solution.require_problem().parameter_names, reward.tolist(), strict=True)),
        "coordinates": solution.evidence["coordinates"],
        "status": str(solution.status),
        "message": solution.message,
        "shared_discount_test": None if found.shared is None else found.shared.to_dict(),
        "pairwise_tests": [test.to_dict() for test in found.pairs] or None,
        "evidence": solution.evidence,
        "identified": found.identified,
        "reasons": {name: reason for name, reason in zip(solution.experts, found.reasons, strict=True) if reason},
        "at_limit": [limit_of(found, k) for k in range(len(given))],
        "episodes": found.episodes.tolist(),
        "pseudo_r2": found.explained.tolist(),
        "decisions_by_expert": found.decisions.tolist(),
        "residual": solution.residual,
        "seconds": solution.seconds,
        "seed": solution.seed,
        "options": options,
        "version": package_version(),
    }


def _rewards(found: SampledAnalysis) -> pd.DataFrame:
    points = value_points(found.functions.point.likelihood.problem.steps)
    chosen = points[np.linspace(0, len(points) - 1, min(len(points), STATES)).round().astype(np.int64)]
    frame = pd.DataFrame(chosen, columns=list(found.functions.coordinates))
    if found.withheld:
        return frame.assign(reward=np.nan, standard_error=np.nan)
    return frame.assign(reward=found.functions.reward(chosen), standard_error=found.functions.reward_errors(chosen))
