"""Part "generalization": the loss of each learned reward on random task variants (the paper's Table 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

import multihorizon as mh
from multihorizon.domains import Domain
from multihorizon.study.settings import Progress, Settings, study_domains


def compute_generalization(settings: Settings, done: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """`data[domain][algorithm]`: mean and standard deviation of the signed and of the absolute ratio."""
    data: dict[str, Any] = {}
    for number, (name, domain) in enumerate(study_domains().items()):
        progress(number / 3, name)
        data[name] = {
            algorithm: error_of(domain, np.array(found["reward"]), settings) for algorithm, found in done["learned"][name].items()
        }
    return data


def error_of(domain: Domain, reward: Any, settings: Settings) -> dict[str, float]:
    """Signed and absolute generalization error of one reward."""
    error = mh.generalization_error(domain, reward, settings.tasks, settings.seed)
    return {
        "mean": error.mean,
        "std": error.std,
        "median": float(np.median(error.values)),
        "absolute mean": float(error.absolute.mean()),
        "absolute std": float(error.absolute.std()),
        "tasks": settings.tasks,
    }
