"""The one driver: a problem and a solver give a solution."""

from __future__ import annotations

import time
from dataclasses import asdict, is_dataclass, replace
from typing import Any, Protocol

import pandas as pd

from multihorizon.checks import as_count
from multihorizon.problem import Problem
from multihorizon.progress import Progress, part_of, silent
from multihorizon.solution import Solution


class Solver(Protocol):
    """A small frozen dataclass of options with one method."""

    def solve(self, problem: Problem, seed: int = 0, progress: Progress = silent) -> Solution:
        """Solve the problem; `seed` fixes all randomness."""
        ...


def solve(problem: Problem, solver: Solver, seed: int = 0, progress: Progress = silent) -> Solution:
    """Infer the shared reward and the experts' discounts.

    Args:
        problem: MDP and experts.
        solver: one of the solver dataclasses, holding its options.
        seed: a whole number that fixes all randomness; the same seed gives the same answer.
        progress: called with the share of work done and a message.

    Returns:
        The solution, with solver, options, seed and time recorded. Infeasible, not identified and not converged are statuses.
    """
    if not isinstance(problem, Problem):
        raise ValueError(f"problem must be a Problem, received {type(problem).__name__}")
    if isinstance(solver, type) or not hasattr(solver, "solve"):
        raise ValueError(f"solver must be a solver such as MPLP(), received {solver!r}")
    as_count(seed, "seed", least=0)
    start = time.perf_counter()
    solution = solver.solve(problem, seed, part_of(progress, 0.0, 1.0))
    return replace(
        solution,
        problem=problem if solution.problem is None else solution.problem,
        options=_options(solver),
        seed=seed,
        seconds=time.perf_counter() - start,
        experts=(solution.problem or problem).names,
    )


def _options(solver: Solver) -> dict[str, Any]:
    """The solver's options by name, a nested search with the name of its class, a data frame as lists by column."""
    if not is_dataclass(solver) or isinstance(solver, type):
        return {}
    options = asdict(solver)
    for name in options:
        value = getattr(solver, name)
        if is_dataclass(value) and not isinstance(value, type):
            options[name] = {"kind": type(value).__name__, **options[name]}
        elif isinstance(value, pd.DataFrame):
            options[name] = value.to_dict("list")
        elif hasattr(value, "get_params"):  # an estimator of scikit-learn
            options[name] = str(value)
    return options
