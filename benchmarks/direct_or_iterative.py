"""Where a sparse factorisation of `I − γP` becomes cheaper than iterative solves: how many solves pay for it.

    python benchmarks/direct_or_iterative.py [--full]

Soft-optimal policies on slip grids. Processor milliseconds of one thread: one iterative solve to 1e-13, one factorisation with
one solve, and one further solve with the factors. `solves` is the number of right-hand sides from which the factorisation is
cheaper. `steps` is how many steps of BiCGSTAB take as long as the factorisation, about the square root of the number of states:
`planning/linear.py` factorises after so many.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import multihorizon as mh
from multihorizon.planning import linear

DISCOUNTS = (0.5, 0.9, 0.99, 0.999)


def compare(side: int, discount: float) -> dict[str, object]:
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(0, side - 1)])
    reward = np.random.default_rng(0).normal(size=mdp.n_states)
    matrix = mdp.under(mh.soft_plan(mdp, reward, discount).policy)
    b = np.random.default_rng(1).normal(size=mdp.n_states)
    iterative = linear.Resolvent(matrix, discount)
    begun = time.process_time()
    iterative._iterate(b[None, :], False, 1e-13, np.zeros((1, b.size)))
    once = time.process_time() - begun
    direct = linear.Resolvent(matrix, discount)
    begun = time.process_time()
    direct._solve_factored(b, False)
    factorised = time.process_time() - begun
    begun = time.process_time()
    for _ in range(5):
        direct._solve_factored(b, False)
    further = (time.process_time() - begun) / 5
    return {
        "states": mdp.n_states,
        "discount": discount,
        "iterative, ms": 1e3 * once,
        "factorised, ms": 1e3 * factorised,
        "further solve, ms": 1e3 * further,
        "solves": float(np.ceil((factorised - further) / (once - further))) if once > further else np.inf,
        "steps": factorised / once * iterative._steps if iterative._steps else np.nan,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="300 × 300 cells as well")
    sides = (20, 30, 40, 60, 100, 200, 300) if parser.parse_args().full else (20, 30, 40, 60, 100)
    for side in sides:
        for discount in DISCOUNTS:
            row = compare(side, discount)
            print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
