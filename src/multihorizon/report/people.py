"""The experts of a fit as a data frame: what `people.csv` holds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.report.findings import VAGUE_WIDTH, Findings, Judged
from multihorizon.report.population_section import population_columns
from multihorizon.solution import Solution


def people_frame(findings: Judged) -> pd.DataFrame:
    """One row per expert: discount, interval, error, horizon, temperature, decisions, pseudo-R², and what to know of them."""
    solution, known = findings.solution, np.array(findings.given)
    discounts = np.where(known, solution.discounts, np.nan)
    frame = pd.DataFrame(
        {
            "expert": solution.experts,
            "discount": discounts,
            "discount_low": findings.intervals[:, 0],
            "discount_high": findings.intervals[:, 1],
            "standard_error": np.nan if findings.withheld else np.where(known, _errors(solution), np.nan),
            "horizon": [findings.horizon(g) if k else np.nan for g, k in zip(discounts, known, strict=True)],
            "temperature": findings.temperatures,
            "episodes": findings.episodes,
            "decisions": findings.decisions.astype(np.int64),
            "pseudo_r2": findings.explained,
            "flags": ["; ".join(_flags(findings, k)) for k in range(known.size)],
        }
    )
    if isinstance(findings, Findings) and findings.population is not None:
        frame = pd.concat([frame, population_columns(findings)], axis=1)
    return frame.iloc[findings.order]


def _errors(solution: Solution) -> Floats:
    return np.full(len(solution.experts), np.nan) if solution.standard_errors is None else solution.standard_errors


def _flags(findings: Judged, k: int) -> list[str]:
    limit, population = limit_of(findings, k), findings.population if isinstance(findings, Findings) else None
    width = float(np.diff(findings.intervals[k])[0])
    cases = {
        findings.reasons[k]: bool(findings.reasons[k]),
        "known discount": findings.known[k],
        f"at the {limit} discount": limit is not None,
        "wide interval": width > VAGUE_WIDTH,
        "no whole interval": findings.given[k] and not findings.known[k] and bool(np.isnan(width)),
        "result not to be used": bool(findings.withheld),
        "left out of the comparison": population is not None and findings.solution.experts[k] not in population.experts,
    }
    return [flag for flag, holds in cases.items() if holds]


def limit_of(findings: Judged, k: int) -> str | None:
    """Whether a discount is no estimate but a limit of what was tried."""
    if not findings.given[k] or findings.known[k]:
        return None
    gamma = float(findings.solution.discounts[k])
    return "largest" if gamma >= findings.largest_discount else "smallest" if gamma <= 0 else None
