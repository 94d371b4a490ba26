"""How MPLP with SequentialLP grows with the number of states, on deterministic cliff grids with three experts.

    python benchmarks/lp_scale.py [--sides 10 15 20 30] [--starts 1]

The experts' discounts are far enough from 0 that the policies at the far end are not decided by rounding (0.45³⁰ is still 1e-10).
With slip the worst margin falls exponentially with the side of the grid, whatever the solver: such problems are ill-posed.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

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


def measure(side: int, starts: int = mh.SequentialLP().starts) -> dict[str, object]:
    """One fit on a square cliff."""
    inner.solve_lp, inner.short_solve = counted(solve_lp), counted(short_solve)
    solved.clear()
    domain = mh.domains.cliff(side, side, slip=0.0)
    experts = [mh.plan(domain.mdp, domain.reward, g).optimal_actions.argmax(axis=1) for g in DISCOUNTS]
    begun = time.process_time()
    solver = mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=starts))
    found = mh.solve(mh.Problem(domain.mdp, experts), solver)
    return {
        "states": domain.mdp.n_states,
        "starts": starts,
        "MPLP, s": time.process_time() - begun,
        "memory, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
        "linear programs": len(solved),
        "worst margin": float(found.objective),
        "residual": float(found.residual),
        "policies reproduced": all(found.evidence["reproduced"].values()),
        "status": str(found.status),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sides", type=int, nargs="+", default=[10, 15, 20, 30])
    parser.add_argument("--starts", type=int, default=1)
    options = parser.parse_args()
    for side in options.sides:
        row = measure(side, options.starts)
        print(shown(row), flush=True)


if __name__ == "__main__":
    main()
