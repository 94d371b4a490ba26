"""How MPLP with SequentialLP grows with the number of states, on deterministic cliff grids with three experts.

    python benchmarks/lp_scale.py [--sides 10 15 20 30] [--starts 1]

The experts' discounts are far enough from 0 that the policies at the far end are not decided by rounding (0.45³⁰ is still 1e-10).
With slip the worst margin falls exponentially with the side of the grid, whatever the solver: such problems are ill-posed.
"""

from __future__ import annotations

import argparse
import resource
import time

import multihorizon as mh

DISCOUNTS = (0.45, 0.55, 0.8)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sides", type=int, nargs="+", default=[10, 15, 20, 30])
    parser.add_argument("--starts", type=int, default=1)
    options = parser.parse_args()
    for side in options.sides:
        domain = mh.domains.cliff(side, side, slip=0.0)
        experts = [mh.plan(domain.mdp, domain.reward, g).optimal_actions.argmax(axis=1) for g in DISCOUNTS]
        start = time.perf_counter()
        solver = mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=options.starts))
        found = mh.solve(mh.Problem(domain.mdp, experts), solver)
        seconds, memory = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(f"{domain.mdp.n_states} states: {seconds:.1f} s, {memory:.2f} GB, {found.status}, {found.message}", flush=True)
        print(f"  {len(found.trace)} evaluations, residual {found.residual:.1e}, reproduced {found.evidence.get('reproduced')}")


if __name__ == "__main__":
    main()
