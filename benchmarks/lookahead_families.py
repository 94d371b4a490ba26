"""How often the shape of look-ahead is recovered: people of each family play the Space Adventure Task of two and three steps.

    python benchmarks/lookahead_families.py [--studies 20] [--people 40] [--mini-blocks 100] [--jobs 1] [--family depth]

`--first 20` begins with study number 20. A mini-block has 2.5 decisions on average. The points are known, and each person has a
temperature of their own. For each true family: how often it has the lowest AIC, how often it is at least not told from the family
that has, and how often the decisions tell it from exponential look-ahead.
"""

from __future__ import annotations

import argparse
from collections import Counter

import numpy as np

import multihorizon as mh
from multihorizon.horizon import FAMILIES, family_named
from multihorizon.parallel import in_parallel
from multihorizon.planning.plan import weighted_plan


def coordinates(name: str, people: int, rng: np.random.Generator) -> np.ndarray:
    """People of a family. Discounts are those of the simulated persons, and the weight of the second step is like theirs."""
    gamma = 1 / (1 + np.exp(-rng.normal(1.8, 0.8, people)))
    drawn = {
        "exponential": gamma[:, None],
        "depth": rng.integers(1, 4, (people, 1)).astype(float),
        "hyperbolic": gamma[:, None],
        "quasi-hyperbolic": np.column_stack([rng.uniform(0.3, 0.9, people), rng.uniform(0.8, 1.0, people)]),
        "free weights": np.column_stack([rng.uniform(0.7, 1.0, people), rng.uniform(0.0, 0.6, people)]),
    }
    return drawn[name]


def study(case: tuple[str, int, int, int]) -> tuple[str, tuple[str, ...]]:
    """The family of the lowest AIC, and all that are not told from it."""
    name, people, blocks, seed = case
    task = mh.domains.space_adventure(mini_blocks=blocks, seed=seed)
    rng = np.random.default_rng(seed)
    rho = family_named(name).step_discounts(coordinates(name, people, rng), 3)[0]
    heat = np.exp(rng.normal(np.log(6.0), 0.3, people))
    log = weighted_plan(task.mdp, task.reward.T.ravel(), rho, heat)[1][0]
    problem = mh.Problem(task.mdp, task.simulate(list(np.exp(log).transpose(2, 1, 0)), seed))
    solver = mh.MaximumLikelihood("per_expert", known_reward=task.reward)
    found = mh.compare_lookahead(problem, solver=solver)
    return found.best, found.candidates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, value in (("--studies", 20), ("--people", 40), ("--mini-blocks", 100), ("--jobs", 1), ("--first", 0)):
        parser.add_argument(option, type=int, default=value)
    parser.add_argument("--family", choices=[family.name for family in FAMILIES], help="only this one")
    given = parser.parse_args()
    for family in FAMILIES if given.family is None else [family_named(given.family)]:
        seeds = range(given.first, given.first + given.studies)
        cases = [(family.name, given.people, given.mini_blocks, seed) for seed in seeds]
        found = list(in_parallel(study, cases, given.jobs))
        best = Counter(first for first, _ in found)
        kept = sum(family.name in candidates for _, candidates in found)
        apart = sum("exponential" not in candidates for _, candidates in found)
        print(
            f"{family.name:17} lowest AIC {best[family.name]:3d}, not told from it {kept:3d}, told from exponential {apart:3d} "
            f"of {given.studies}; lowest AIC: {dict(best)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
