"""Outer searches over the experts' discounts Γ ∈ [0,1]^K, for solvers whose problem is easy once Γ is fixed.

A search maximises `objective(Γ)`, which may be −inf where Γ is infeasible, and returns the trace of its evaluations.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from joblib import Parallel, delayed

from multihorizon.checks import Floats, as_count, as_positive
from multihorizon.progress import Progress, silent
from multihorizon.solution import Trace

Objective = Callable[[Floats], float]


class Search(Protocol):
    """What a solver asks of an outer search."""

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> Trace:
        """Maximise `objective` over [0,1]^n_experts."""
        ...


def check_search(value: Any) -> Search:
    """Read an outer search."""
    if isinstance(value, type) or not hasattr(value, "run"):
        raise ValueError(f"search must be a search such as SequentialLP() or Grid(step=0.05), received {value!r}")
    search: Search = value
    return search


@dataclass(frozen=True)
class Grid:
    """Every point of a regular grid with spacing `step`, ends included, on `jobs` processes (−1: all cores)."""

    step: float = 0.01
    jobs: int = -1

    def __post_init__(self) -> None:
        if as_positive(self.step, "step") > 1:
            raise ValueError(f"step must be at most 1, received {self.step}")

    def axis(self) -> Floats:
        """The grid's discounts on one axis."""
        return np.linspace(0.0, 1.0, round(1 / self.step) + 1)

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> Trace:
        """Evaluate all points, in chunks so that one task of a process is worth its start; the grid uses no randomness."""
        points = np.array(list(itertools.product(self.axis(), repeat=n_experts)))
        chunks = np.array_split(points, max(1, min(200, len(points) // 20)))
        start = time.perf_counter()
        values: list[Floats] = []
        seconds: list[Floats] = []
        pool = Parallel(n_jobs=self.jobs if len(chunks) > 1 else 1, return_as="generator")
        for done, part in enumerate(pool(delayed(_evaluate)(objective, chunk) for chunk in chunks), start=1):
            values.append(part)
            seconds.append(np.full(part.size, time.perf_counter() - start))
            progress(done / len(chunks), f"grid: best {max(v.max() for v in values):.6g}")
        return Trace(points, np.concatenate(values), np.concatenate(seconds))


@dataclass(frozen=True)
class Bayesian:
    """Bayesian optimisation (the paper's Algorithms 1 and 2): a Gaussian process on the objective, `initial` uniform points,
    then the maximiser of the acquisition function until `max_evaluations` are spent."""

    max_evaluations: int = 100
    initial: int = 10

    def __post_init__(self) -> None:
        as_count(self.initial, "initial")
        as_count(self.max_evaluations, "max_evaluations", least=self.initial)

    def run(self, objective: Objective, n_experts: int, seed: int = 0, progress: Progress = silent) -> Trace:
        """Evaluate one point after the other; the same seed gives the same points."""
        optimizer = _optimizer(n_experts, seed)
        uniform = np.random.default_rng(seed).uniform(size=(self.initial, n_experts))
        start = time.perf_counter()
        points: list[Floats] = []
        values: list[float] = []
        seconds: list[float] = []
        for number in range(self.max_evaluations):
            point = uniform[number] if number < self.initial else _suggest(optimizer, n_experts)
            points.append(point)
            values.append(float(objective(point)))
            seconds.append(time.perf_counter() - start)
            optimizer.register(params=_named(point), target=_finite(values))
            progress((number + 1) / self.max_evaluations, f"Bayesian: best {max(values):.6g}")
        return Trace(np.array(points), np.array(values), np.array(seconds))


def _evaluate(objective: Objective, points: Floats) -> Floats:
    return np.array([objective(point) for point in points])


def _named(point: Floats) -> dict[str, float]:
    return {f"discount{i:03d}": float(x) for i, x in enumerate(point)}


def _optimizer(n_experts: int, seed: int) -> Any:
    # Imported here because it takes most of a second, which only a Bayesian search should cost.
    from bayes_opt import BayesianOptimization, acquisition  # noqa: PLC0415

    return BayesianOptimization(
        f=None,
        pbounds=dict.fromkeys(_named(np.zeros(n_experts)), (0.0, 1.0)),
        acquisition_function=acquisition.ExpectedImprovement(xi=0.0),
        random_state=seed,
        verbose=0,
        allow_duplicate_points=True,
    )


def _suggest(optimizer: Any, n_experts: int) -> Floats:
    suggested = optimizer.suggest()
    return np.array([suggested[name] for name in _named(np.zeros(n_experts))], dtype=np.float64)


def _finite(values: list[float]) -> float:
    """The newest value, or, where it is −inf, the worst finite one so far: a Gaussian process takes finite data only."""
    if np.isfinite(values[-1]):
        return values[-1]
    return min([value for value in values if np.isfinite(value)], default=0.0)
