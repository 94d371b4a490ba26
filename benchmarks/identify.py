"""`identify` on random, grid and dense tasks: how its time grows with states and with experts.

Random tasks have three actions with four successors each, dense ones lead everywhere, grids slip. Discounts lie between 0.2 and
0.9. Seconds are of the processor, the best of three. The exponent is that of their growth from the row before.

Run: python benchmarks/identify.py [--full]
"""

import time
from collections.abc import Iterator

import numpy as np
from rows import TASKS, exponents, print_cases, task

import multihorizon as mh


def measure(kind: str, states: int, experts: int) -> dict[str, object]:
    mdp = task(kind, states)
    reward, discounts = np.random.default_rng(0).normal(size=mdp.n_states), np.linspace(0.2, 0.9, experts)
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in discounts])
    seconds = []
    for _ in range(3):
        begun = time.process_time()
        found = mh.identify(problem)
        seconds.append(time.process_time() - begun)
    return {
        "task": kind,
        "states": mdp.n_states,
        "experts": experts,
        "identify, s": min(seconds),
        "exponent": None,
        "error in Γ": float(np.abs(found.discounts - discounts).max()),
        "residual": found.residual,
        "status": found.status,
    }


def cases(full: bool) -> Iterator[dict[str, object]]:
    measure("random", 100, 3)  # loads what is imported on first use
    for kind in TASKS:
        sizes = [100, 200, 400, 800, 1600, *([6400] if full and kind != "dense" else [])]
        yield from exponents([measure(kind, states, 3) for states in sizes], "states", "identify, s")
        yield from exponents([measure(kind, 400, experts) for experts in (3, 6, 12, 24)], "experts", "identify, s")


if __name__ == "__main__":
    print_cases(cases, __doc__)
