"""`soft_plan` against plain soft value iteration in NumPy and SciPy, on slip grids, in one run.

    python benchmarks/soft_planning.py [--full]

Processor seconds of one thread, the best of ten, or of three on large grids. Value iteration stops at a residual of 1e-10,
`soft_plan` at rounding.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import numpy as np
from rows import KINDS, print_cases, slip_grid

import multihorizon as mh
from multihorizon.planning.plan import SoftPlan

TARGET = 1e-10
DISCOUNTS = (0.5, 0.8, 0.9, 0.95, 0.99)


def sweep(mdp: mh.MDP, expected: np.ndarray, values: np.ndarray, discount: float) -> np.ndarray:
    q = expected + discount * mdp.expect(values)
    peak = q.max(axis=1)
    return np.where(mdp.terminal, 0.0, peak + np.log(np.exp(q - peak[:, None]).sum(axis=1)))


def value_iteration(mdp: mh.MDP, reward: np.ndarray, discount: float) -> tuple[float, int, np.ndarray]:
    start = time.process_time()
    expected = mdp.expect(reward)
    values, residual, sweeps = np.zeros(mdp.n_states), np.inf, 0
    while residual > TARGET:
        backed = sweep(mdp, expected, values, discount)
        residual, values, sweeps = float(np.abs(backed - values).max()), backed, sweeps + 1
    return time.process_time() - start, sweeps, values


def newton(mdp: mh.MDP, reward: np.ndarray, discount: float) -> tuple[float, SoftPlan]:
    start = time.process_time()
    plan = mh.soft_plan(mdp, reward, discount)
    return time.process_time() - start, plan


def compare(side: int, kind: str, discount: float) -> dict[str, object]:
    """The best of ten runs of each, of three where they take long."""
    mdp, reward = slip_grid(side, kind)
    times = 10 if side <= 100 else 3
    ours, plan = min((newton(mdp, reward, discount) for _ in range(times)), key=lambda run: run[0])
    runs = (value_iteration(mdp, reward, discount) for _ in range(times))
    swept, sweeps, values = min(runs, key=lambda run: run[0])
    return {
        "states": mdp.n_states,
        "task": kind,
        "discount": f"{discount:g}",
        "soft_plan, s": ours,
        "residual": plan.residual,
        "value iteration, s": swept,
        "sweeps": sweeps,
        "ratio": ours / swept,
        "difference": float(np.abs(values - plan.values).max()),
    }


def cases(full: bool) -> Iterator[dict[str, object]]:
    """A row for each size, reward and discount."""
    for side, kind, discount in itertools.product((50, 100, 300) if full else (50, 100), KINDS, DISCOUNTS):
        yield compare(side, kind, discount)


if __name__ == "__main__":
    print_cases(cases, __doc__)
