"""How MPLP with SequentialLP grows for three experts: with the states of deterministic cliffs, with the actions of random tasks.

    python benchmarks/lp_scale.py [--sides 7 10 14 20] [--actions 2 4 8 16] [--starts 8]

A row of random tasks is the sum of four. The exponent is that of the time between the first row of a kind and this one.

The experts' discounts are far enough from 0 that the policies at the far end are not decided by rounding (0.45³⁰ is still 1e-10).
With slip the worst margin falls exponentially with the side of the grid, whatever the solver: such problems are ill-posed.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from math import log
from typing import Any

import numpy as np
from rows import shown

import multihorizon as mh
from multihorizon.numerics.lp import LPResult, short_solve, solve_lp
from multihorizon.programs import inner

DISCOUNTS = (0.45, 0.55, 0.8)


solved: list[LPResult] = []


def counted(solve: Callable[..., LPResult]) -> Callable[..., LPResult]:
    """A solve whose results are kept to be counted."""

    def solve_and_keep(*arguments: Any, **options: Any) -> LPResult:
        solved.append(solve(*arguments, **options))
        return solved[-1]

    return solve_and_keep


def measure(problems: Sequence[mh.Problem], starts: int = mh.SequentialLP().starts) -> dict[str, object]:
    """A fit of each problem."""
    inner.solve_lp, inner.short_solve = counted(solve_lp), counted(short_solve)
    solved.clear()
    begun = time.process_time()
    solver = mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=starts))
    found = [mh.solve(problem, solver) for problem in problems]
    return {
        "states": problems[0].mdp.n_states,
        "actions": problems[0].mdp.n_actions,
        "MPLP, s": time.process_time() - begun,
        "memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
        "linear programs": len(solved),
        "worst margin": min(float(one.objective) for one in found),
        "residual": max(float(one.residual) for one in found),
        "policies reproduced": all(all(one.evidence["reproduced"].values()) for one in found),
        "status": ", ".join(sorted({str(one.status) for one in found})),
    }


def cliff(side: int) -> mh.Problem:
    """A square cliff."""
    domain = mh.domains.cliff(side, side, slip=0.0)
    return mh.Problem(domain.mdp, [mh.plan(domain.mdp, domain.reward, g).optimal_actions.argmax(axis=1) for g in DISCOUNTS])


def random_task(n_actions: int, seed: int) -> mh.Problem:
    """Fifty states in no order, three successors for each action."""
    mdp = mh.domains.random_mdp(50, n_actions, branching=3, n_terminal=1, seed=seed)
    reward = np.random.default_rng(seed).normal(size=50)
    return mh.Problem(mdp, [mh.plan(mdp, reward, g).optimal_actions.argmax(axis=1) for g in (0.2, 0.575, 0.95)])


def cases(sides: Sequence[int], actions: Sequence[int], starts: int = mh.SequentialLP().starts) -> list[dict[str, object]]:
    """A row for each size; the first fit of all is not counted, it loads HiGHS."""
    measure([cliff(4)])
    rows: list[dict[str, object]] = []
    for kind, size, sizes in (("cliff", "states", sides), ("random", "actions", actions)):
        first: dict[str, Any] = {}
        for n in sizes:
            problems = [cliff(n)] if kind == "cliff" else [random_task(n, seed) for seed in range(4)]
            row: dict[str, Any] = {"task": kind, **measure(problems, starts)}
            if first:
                row["exponent"] = log(row["MPLP, s"] / first["MPLP, s"]) / log(row[size] / first[size])
            first = first or row
            rows.append(row)
            print(shown(row), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sides", type=int, nargs="+", default=[7, 10, 14, 20])
    parser.add_argument("--actions", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--starts", type=int, default=mh.SequentialLP().starts)
    options = parser.parse_args()
    cases(options.sides, options.actions, options.starts)


if __name__ == "__main__":
    main()
