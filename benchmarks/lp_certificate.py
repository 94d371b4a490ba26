"""How long it takes to prove that the answer of MPLP is within 1% of the optimum, and which gap is proved where time ends first.

    python benchmarks/lp_certificate.py [--full] [--seconds 300] [--jobs 1]

The paper's domains; four and five experts, whose policies are all that big-small and the cliff have; ties; a random task with
eight actions; and with `--full` deterministic cliffs of 100 and of 400 states.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
from lp_scale import cliff
from rows import shown

import multihorizon as mh
from multihorizon.domains.base import Domain


def every_policy(domain: Domain, some: slice = slice(None)) -> mh.Problem:
    """An expert for each policy that is optimal at some discount, or for some of them."""
    intervals = mh.discount_intervals(domain.mdp, domain.reward)[some]
    return mh.Problem(domain.mdp, [interval.optimal_actions.argmax(axis=1) for interval in intervals])


def random_task() -> mh.Problem:
    mdp = mh.domains.random_mdp(30, 8, branching=3, n_terminal=1, seed=2)
    reward = np.random.default_rng(2).normal(size=30)
    return mh.Problem(mdp, [mh.plan(mdp, reward, g).optimal_actions.argmax(axis=1) for g in (0.1, 0.5, 0.95)])


def small(domain: Domain) -> mh.Problem:
    return mh.Problem(domain.mdp, domain.hard_experts())


CASES: dict[str, Callable[[], mh.Problem]] = {
    "toy": lambda: small(mh.domains.toy()),
    "cliff": lambda: small(mh.domains.cliff()),
    "big-small": lambda: small(mh.domains.big_small()),
    "big-small with ties": lambda: mh.Problem(mh.domains.big_small().mdp, mh.domains.big_small().hard_action_sets()),
    "random, 8 actions": random_task,
    "cliff, 4 policies": lambda: every_policy(mh.domains.cliff(), slice(1, 5)),
    "big-small 3×8, 5 policies": lambda: every_policy(mh.domains.big_small(3, 8)),
}
LARGE: dict[str, Callable[[], mh.Problem]] = {"cliff 10×10": lambda: cliff(10), "cliff 20×20": lambda: cliff(20)}


def cases(full: bool, seconds: float = 300.0, jobs: int = 1) -> Iterator[dict[str, object]]:
    """A row for each problem."""
    for name, pose in (CASES | (LARGE if full else {})).items():
        problem = pose()
        solver = mh.MPLP(reward_bound=20, certify=0.01, certify_seconds=seconds, jobs=jobs)
        begun = time.process_time()
        found = mh.solve(problem, solver)
        proof = found.evidence["certificate"]
        yield {
            "problem": name,
            "experts": problem.n_experts,
            "states": problem.mdp.n_states,
            "worst margin": float(found.objective),
            "bound": proof["upper"],
            "gap, %": 100 * proof["gap"],
            "proved": proof["proved"],
            "boxes": proof["boxes"],
            "search and proof, s": time.process_time() - begun,
            "clock of the proof, s": proof["seconds"],
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="100 and 400 states as well")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    for row in cases(options.full, options.seconds, options.jobs):
        print(shown(row), flush=True)


if __name__ == "__main__":
    main()
