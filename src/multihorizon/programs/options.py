"""Checks of options that several LP solvers share."""

from __future__ import annotations

from typing import Any

import numpy as np

from multihorizon.search import Search


def check_l1(value: Any) -> float:
    """Read the weight of ‖θ‖₁: a finite number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= float(value) < np.inf:
        raise ValueError(f"l1 must be a number of at least 0, received {value!r}")
    return float(value)


def check_search(value: Any) -> Search:
    """Read an outer search."""
    if isinstance(value, type) or not hasattr(value, "run"):
        raise ValueError(f"search must be a search such as SequentialLP() or Grid(step=0.05), received {value!r}")
    search: Search = value
    return search
