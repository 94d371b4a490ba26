"""How long fits take, and what a table of ten million rows costs.

    python benchmarks/fit_speed.py [--rows 10000000]

The cliff with 3 × 1,000 episodes, a 20×20 slippery grid with 3 × 2,000 episodes, and, with `--rows`, reading and fitting a CSV
table of that many rows, with the peak memory of the process.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import multihorizon as mh
from multihorizon import Demonstrations


def timed(what: str, problem: mh.Problem) -> None:
    start = time.perf_counter()
    solution = mh.solve(problem, mh.MaximumLikelihood())
    fitted = time.perf_counter() - start
    solution.confidence_intervals(0.95)
    total = time.perf_counter() - start
    print(f"{what}: fit {fitted:.2f} s, with intervals {total:.2f} s; {solution.status}, discounts {solution.discounts.round(3)}")


def grid() -> tuple[mh.MDP, list[np.ndarray]]:
    mdp = mh.domains.gridworld(20, 20, slip=0.1, terminal=[(19, 19), (0, 0)])
    reward = -1.0 + 0.5 * np.random.default_rng(0).normal(size=400)
    reward[399], reward[0] = 10.0, 3.0
    return mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.3, 0.7, 0.95)]


def many_rows(rows: int) -> None:
    d = mh.domains.cliff()
    frame = mh.Demonstrations.simulate(d.mdp, d.mce_experts(), 3000).to_frame()
    copies = -(-rows // len(frame))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "many.csv"
        for copy in range(copies):
            part = frame.assign(episode=frame["episode"] + f"-{copy}")
            part.to_csv(path, mode="a", header=copy == 0, index=False)
        start = time.perf_counter()
        table = Demonstrations.from_files(path)
        read = time.perf_counter() - start
        mh.impossible_moves(table, d.mdp)
        problem = mh.Problem(d.mdp, table)
        counted = time.perf_counter() - start
        mh.solve(problem, mh.MaximumLikelihood())
        total = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(
        f"{len(table):,} rows: read {read:.1f} s, checked and counted {counted:.1f} s, fitted {total:.1f} s; peak {peak:.1f} GB"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=0)
    options = parser.parse_args()
    print(f"numpy {np.__version__}, pandas {pd.__version__}")
    d = mh.domains.cliff()
    timed("cliff", mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, d.mce_experts(), 1000)))
    mdp, policies = grid()
    timed("20×20 grid", mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 2000)))
    if options.rows:
        many_rows(options.rows)


if __name__ == "__main__":
    main()
