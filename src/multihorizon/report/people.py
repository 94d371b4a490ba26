"""The experts of a fit as a data frame: what `people.csv` holds."""

from __future__ import annotations

import numpy as np
import pandas as pd

from multihorizon.report.findings import VAGUE_WIDTH, Findings
from multihorizon.report.population_section import population_columns


def people_frame(findings: Findings) -> pd.DataFrame:
    """One row per expert: discount, interval, horizon, temperature, decisions, pseudo-R², and what to know of them."""
    solution, known = findings.solution, np.array(findings.given)
    discounts = np.where(known, solution.discounts, np.nan)
    frame = pd.DataFrame(
        {
            "expert": solution.experts,
            "discount": discounts,
            "discount_low": findings.intervals[:, 0],
            "discount_high": findings.intervals[:, 1],
            "horizon": [findings.horizon(g) if k else np.nan for g, k in zip(discounts, known, strict=True)],
            "temperature": findings.temperatures,
            "episodes": findings.episodes,
            "decisions": findings.decisions.astype(np.int64),
            "pseudo_r2": findings.explained,
            "flags": ["; ".join(_flags(findings, k)) for k in range(known.size)],
        }
    )
    if findings.population is not None:
        frame = pd.concat([frame, population_columns(findings)], axis=1)
    return frame.iloc[findings.order]


def _flags(findings: Findings, k: int) -> list[str]:
    limit = limit_of(findings, k)
    width = float(np.diff(findings.intervals[k])[0])
    cases = {
        findings.reasons[k]: bool(findings.reasons[k]),
        "known discount": findings.known[k],
        f"at the {limit} discount": limit is not None,
        "wide interval": width > VAGUE_WIDTH,
        "no whole interval": findings.given[k] and not findings.known[k] and bool(np.isnan(width)),
        "result not to be used": bool(findings.withheld),
        "left out of the comparison": bool(
            findings.population and findings.solution.experts[k] not in findings.population.experts
        ),
    }
    return [flag for flag, holds in cases.items() if holds]


def limit_of(findings: Findings, k: int) -> str | None:
    """Whether a discount is no estimate but a limit of what was tried."""
    if not findings.given[k] or findings.known[k]:
        return None
    gamma = float(findings.solution.discounts[k])
    return "largest" if gamma >= findings.largest_discount else "smallest" if gamma <= 0 else None
