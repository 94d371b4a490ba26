"""How near the estimated discounts are to the truth, and how often the 95 % intervals contain it.

    python benchmarks/coverage.py [--replications 200] [--episodes 1000] [--jobs 2]

For the cliff and big-small domains, three experts each: mean absolute error, bias and coverage of each discount.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from joblib import Parallel, delayed

import multihorizon as mh


def replicate(name: str, episodes: int, seed: int) -> tuple[np.ndarray, np.ndarray, float, str]:
    domain = getattr(mh.domains, name)()
    table = mh.Demonstrations.simulate(domain.mdp, domain.mce_experts(), episodes, seed=seed)
    start = time.perf_counter()
    solution = mh.solve(mh.Problem(domain.mdp, table), mh.MaximumLikelihood())
    intervals = solution.confidence_intervals(0.95)
    return solution.discounts, intervals, time.perf_counter() - start, str(solution.status)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    for name in ("cliff", "big_small"):
        truth = np.array(getattr(mh.domains, name)().mce_discounts)
        runs = Parallel(n_jobs=options.jobs)(
            delayed(replicate)(name, options.episodes, seed) for seed in range(options.replications)
        )
        estimates, intervals = np.array([r[0] for r in runs]), np.array([r[1] for r in runs])
        covered = ((intervals[:, :, 0] <= truth) & (truth <= intervals[:, :, 1])).mean(axis=0)
        converged = sum(r[3] == "converged" for r in runs)
        print(f"{name}: {options.replications} replications of {options.episodes} episodes an expert, {converged} converged")
        print("  truth               ", truth)
        print("  mean |error|, first 20", np.abs(estimates[:20] - truth).mean(axis=0).round(4))
        print("  mean |error|, all   ", np.abs(estimates - truth).mean(axis=0).round(4))
        print("  mean error (bias)   ", (estimates - truth).mean(axis=0).round(4))
        print("  coverage of 95 %    ", covered.round(3))
        print("  mean width          ", (intervals[:, :, 1] - intervals[:, :, 0]).mean(axis=0).round(3))
        print(f"  median seconds, fit and intervals {np.median([r[2] for r in runs]):.2f}", flush=True)


if __name__ == "__main__":
    main()
