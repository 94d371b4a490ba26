"""Part "thresholds": how the discounts that MPMCE learns move with the threshold within which experts are matched.

The paper's discussion says that features are matched "within some threshold", and does not print it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import multihorizon as mh
from multihorizon.domains import Domain
from multihorizon.study.generalize import error_of
from multihorizon.study.learned import describe
from multihorizon.study.settings import TEMPERATURE, THRESHOLD, Progress, Settings, study_domains


def compute(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """`data[domain]`: one row per threshold, from the smallest to the largest."""
    cases = [(name, domain, threshold) for name, domain in study_domains().items() for threshold in settings.thresholds]
    data: dict[str, Any] = {}
    for number, (name, domain, threshold) in enumerate(cases):
        progress(number / len(cases), f"threshold {threshold:g} on {name}")
        known = done["learned"][name]["MPMCE, threshold"] if threshold == THRESHOLD else None
        data.setdefault(name, []).append(_row(domain, threshold, known or _solve(domain, threshold, settings), settings))
    return data


def _solve(domain: Domain, threshold: float, settings: Settings) -> dict[str, Any]:
    problem = mh.Problem(domain.mdp, domain.mce_experts(TEMPERATURE))
    solver = mh.MPMCE(TEMPERATURE, gap="threshold", threshold=threshold)
    return describe(mh.solve(problem, solver, settings.seed), domain.mce_discounts)


def _row(domain: Domain, threshold: float, found: dict[str, Any], settings: Settings) -> dict[str, Any]:
    kept = ("status", "discounts", "true", "ordered", "objective", "residual")
    error = error_of(domain, np.array(found["reward"]), settings)
    return {"threshold": threshold, **{key: found[key] for key in kept}, "error": error}
