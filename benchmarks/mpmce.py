"""MPMCE by Bayesian search beside the truth and the paper's table: both rules for the gap, several seeds.

Run: python benchmarks/mpmce.py [--seeds 5] [--evaluations 50]
"""

import argparse
import time

import numpy as np

import multihorizon as mh

PAPER = {"toy": (0.53, 0.82, 0.98), "big-small": (0.30, 0.62, 0.98), "cliff": (0.0, 0.31, 0.55)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--evaluations", type=int, default=50)
    options = parser.parse_args()
    for gap in ("per_expert", "summed"):
        for domain in (mh.domains.big_small(), mh.domains.cliff(), mh.domains.toy()):
            report(domain, gap, options.seeds, options.evaluations)


def report(domain: mh.domains.Domain, gap: str, seeds: int, evaluations: int) -> None:
    problem = mh.Problem(domain.mdp, domain.mce_experts())
    print(f"\n{domain.name}, gap={gap}: truth {domain.mce_discounts}, the paper's MPMCE {PAPER[domain.name]}")
    within = 0
    for seed in range(seeds):
        start = time.perf_counter()
        found = mh.solve(problem, mh.MPMCE(gap=gap, search=mh.Bayesian(evaluations)), seed=seed)
        error = float(np.abs(found.discounts - domain.mce_discounts).max())
        within += error <= 0.1
        print(
            f"  seed {seed}: {found.discounts.round(3).tolist()}  error {error:.3f}  mismatch {found.residual:.1e}  "
            f"summed gap {found.evidence['summed_gap']:.1e}  {time.perf_counter() - start:.1f} s",
            flush=True,
        )
    print(f"  within 0.1 of the truth: {within} of {seeds}", flush=True)


if __name__ == "__main__":
    main()
