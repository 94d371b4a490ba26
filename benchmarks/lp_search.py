"""Searches of MPLP side by side: optimum from every start, Bayesian optimisation's shortfall, and the ratio of times.

python benchmarks/lp_search.py [--seeds 5] [--evaluations 100]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import multihorizon as mh

CASES = [(mh.domains.toy(), 10), (mh.domains.cliff(), 20), (mh.domains.big_small(), 20), (mh.domains.big_small(4), 20)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=100)
    options = parser.parse_args()
    for domain, bound in CASES:
        problem = mh.Problem(domain.mdp, domain.hard_experts())
        start = time.perf_counter()
        found = mh.solve(problem, mh.MPLP(reward_bound=bound))
        seconds = time.perf_counter() - start
        tops = np.array([s["objective"] for s in found.evidence["starts"]])
        print(f"{domain.name} ({domain.mdp.n_states} states): {found.objective:.6f} at {found.discounts.round(4)}, ", end="")
        print(f"starts within {1 - tops.min() / tops.max():.1e}, {len(found.trace)} evaluations, {seconds:.2f} s", flush=True)
        shares, times = [], []
        for seed in range(options.seeds):
            start = time.perf_counter()
            search = mh.Bayesian(max_evaluations=options.evaluations)
            other = mh.solve(problem, mh.MPLP(reward_bound=bound, search=search), seed=seed)
            times.append(time.perf_counter() - start)
            shares.append(other.objective / found.objective)
        reached = sum(share >= 0.98 for share in shares)
        print(f"  Bayesian({options.evaluations}): shares {np.round(shares, 4)}, {reached} of {len(shares)} reach 98%, ", end="")
        print(f"{np.mean(times):.1f} s each, {np.mean(times) / seconds:.0f} times SequentialLP's", flush=True)


if __name__ == "__main__":
    main()
