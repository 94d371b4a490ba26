"""How often the pairwise test calls two experts different who share one discount.

python benchmarks/pairwise_level.py [--replications 200] [--episodes 500] [--jobs 2]
"""

from __future__ import annotations

import argparse
import itertools

import numpy as np
from joblib import Parallel, delayed

import multihorizon as mh


def replicate(name: str, discounts: tuple[float, ...], episodes: int, seed: int) -> float:
    domain = getattr(mh.domains, name)()
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
    for name, discounts in itertools.product(("cliff", "big_small"), ((0.4, 0.4, 0.75), (0.4, 0.4))):
        p = np.array(
            Parallel(n_jobs=options.jobs)(
                delayed(replicate)(name, discounts, options.episodes, seed) for seed in range(options.replications)
            )
        )
        at_five, at_ten = (100 * (p < level).mean() for level in (0.05, 0.1))
        print(f"{name} {discounts}: of {p.size}, {at_five:.1f}% rejected at 5% and {at_ten:.1f}% at 10%", flush=True)


if __name__ == "__main__":
    main()
