"""What other models of choice cost: people in the built-in task, by populations with known points, against soft values.

    python benchmarks/planners.py [--persons 285 20000] [--rivals 285]

For each number of persons: processor seconds of `Population` with soft values, values by the best action, values by the mean of
choices, and 5% lapses, as ratios to the first. `--rivals` asks `mh.robustness` of that many persons: all rivals of a population.
Persons have 420 decisions.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import multihorizon as mh

OPTIONS: dict[str, dict[str, Any]] = {
    "soft": {},
    "max": {"value": "max"},
    "mean": {"value": "mean"},
    "5% lapses": {"lapse": 0.05},
}


def posed(persons: int) -> tuple[mh.Problem, Any]:
    """Return simulated persons in the built-in task, and its reward."""
    task = mh.domains.space_adventure(168)
    return mh.Problem(task.mdp, task.persons(persons).demonstrations), task.reward


def main() -> None:
    """Print a table of processor seconds."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--persons", type=int, nargs="*", default=[285, 20000])
    parser.add_argument("--rivals", type=int, default=285)
    given = parser.parse_args()
    for persons in given.persons:
        problem, reward = posed(persons)
        first = None
        for name, options in OPTIONS.items():
            begun = time.process_time()
            solution = mh.solve(problem, mh.Population("~ 1", known_reward=reward, **options))
            spent = time.process_time() - begun
            first = first or spent
            print(f"{persons:>7,} persons, {name:<10} {spent:8.1f} s, {spent / first:5.2f} × soft, {solution.status}", flush=True)
    if given.rivals:
        problem, reward = posed(given.rivals)
        begun = time.process_time()
        found = mh.robustness(problem, mh.Population("~ 1", known_reward=reward))
        print(f"{given.rivals:,} persons, {len(found.rivals)} models: {time.process_time() - begun:.1f} s. {found.verdict()}")


if __name__ == "__main__":
    main()
