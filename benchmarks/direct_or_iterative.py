"""Where a sparse factorisation of `I − γP` becomes cheaper than iterative solves, and a plain array than a sparse one.

    python benchmarks/direct_or_iterative.py [--full]

Soft-optimal policies on slip grids. Processor milliseconds of one thread: one iterative solve to 1e-13, one factorisation with
one solve, and one further solve with the factors. `solves` is the number of right-hand sides from which the factorisation is
cheaper. `steps` is how many steps of BiCGSTAB take as long as the factorisation, about the square root of the number of states:
`planning/linear.py` factorises after so many.

Before that, for shares of transitions that are not zero: the time of a sparse product over that of one with a plain array, for
all actions (`q`) and for one action per state (`sweep`), and the same for reading off the rows of one action per state (`rows`).
Above 1, the plain array is quicker. `MDP.moves` is one from 0.4 on, where no product takes much longer.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

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
    direct._factor.solve(b)
    factorised = time.process_time() - begun
    begun = time.process_time()
    for _ in range(5):
        direct._factor.solve(b)
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


def best_time(run: Callable[[], object]) -> float:
    """Processor seconds of one call, the best of ten stretches of calls."""
    times = []
    for _ in range(10):
        begun, calls = time.process_time(), 0
        while time.process_time() - begun < 2e-3:
            run()
            calls += 1
        times.append((time.process_time() - begun) / calls)
    return min(times)


def plain_or_sparse(n_states: int, n_actions: int, share: float) -> dict[str, object]:
    rng, n = np.random.default_rng(0), n_states
    plain = rng.random((n_actions * n, n)) * (rng.random((n_actions * n, n)) < share)
    sparse, values = sp.csr_array(plain), rng.random(n)
    chosen = rng.integers(0, n_actions, n) * n + np.arange(n)
    some, plain_some = sparse[chosen], plain[chosen]
    return {
        "states": n,
        "actions": n_actions,
        "share": share,
        "q": best_time(lambda: sparse @ values) / best_time(lambda: plain @ values),
        "sweep": best_time(lambda: some @ values) / best_time(lambda: plain_some @ values),
        "rows": best_time(lambda: sparse[chosen]) / best_time(lambda: plain[chosen]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="300 × 300 cells as well")
    sides = (20, 30, 40, 60, 100, 200, 300) if parser.parse_args().full else (20, 30, 40, 60, 100)
    for states, actions in ((200, 4), (500, 4), (500, 20), (200, 100), (2000, 4)):
        for share in (0.1, 0.2, 0.3, 0.4, 0.5, 1.0):
            row = plain_or_sparse(states, actions, share)
            print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)
    for side in sides:
        for discount in DISCOUNTS:
            row = compare(side, discount)
            print("  ".join(f"{name} {value:.4g}" for name, value in row.items()), flush=True)


if __name__ == "__main__":
    main()
