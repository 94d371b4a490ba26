"""How often the pairwise test calls two experts different who share one discount.

python benchmarks/pairwise_level.py [--replications 200] [--episodes 500] [--jobs 2]
"""

from __future__ import annotations

import argparse

import numpy as np
from joblib import Parallel, delayed

import multihorizon as mh


def replicate(name: str, episodes: int, seed: int) -> float:
    domain = getattr(mh.domains, name)()
    discounts = (0.4, 0.4, 0.75)
    policies = [mh.soft_plan(domain.mdp, domain.reward, gamma).policy for gamma in discounts]
    table = mh.Demonstrations.simulate(domain.mdp, policies, episodes, seed=seed)
    solution = mh.solve(mh.Problem(domain.mdp, table), mh.MaximumLikelihood())
    return mh.pairwise_tests(solution)[0].p_value


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    for name in ("cliff", "big_small"):
        p = np.array(
            Parallel(n_jobs=options.jobs)(
                delayed(replicate)(name, options.episodes, seed) for seed in range(options.replications)
            )
        )
        print(
            f"{name}: rejected at 5 % in {100 * (p < 0.05).mean():.1f} % of {p.size}; at 10 % in {100 * (p < 0.1).mean():.1f} %"
        )


if __name__ == "__main__":
    main()
