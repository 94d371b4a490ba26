"""Goals that are nearly shared: are intervals true, is the test, and how long does it take?

* `coverage`: three experts (discounts .3, .5, .8) of the cliff or of big-small, whose rewards deviate from the domain's in each
  state by a normal of this standard deviation. How often the 95% intervals of the discounts hold the truth, with deviations
  estimated and with one reward for all; their median widths; how often τ = 0 is rejected; τ. At a deviation of 0 the rejections
  are the size of the test.
* `speed`: processor seconds, with intervals, of three experts in grids and random tasks of 40 and more states, and of many people
  with a few features.

Run: python benchmarks/deviations.py coverage [--domain cliff] [--deviation 0.5] [--tables 200] [--episodes 500] [--first 0]
         [--temperature shared]
     python benchmarks/deviations.py speed [--people 50] [--features 5]
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scipy.sparse as sp

import multihorizon as mh
from multihorizon import domains

DISCOUNTS = np.array([0.3, 0.5, 0.8])


def study(domain: str, deviation: float, episodes: int, seed: int) -> mh.Problem:
    """A table of three experts whose rewards deviate from the domain's."""
    d, rng = getattr(domains, domain)(), np.random.default_rng(seed)
    rewards = np.asarray(d.reward) + deviation * rng.standard_normal((DISCOUNTS.size, d.mdp.n_states))
    policies = [mh.soft_plan(d.mdp, reward, gamma).policy for reward, gamma in zip(rewards, DISCOUNTS, strict=True)]
    return mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, policies, episodes=episodes, seed=seed))


def coverage(domain: str, deviation: float, tables: int, episodes: int, first: int, temperature: str) -> None:
    """How often intervals hold the truth."""
    hits: dict[str, list[np.ndarray]] = {"one reward": [], "deviations": []}
    widths: dict[str, list[np.ndarray]] = {"one reward": [], "deviations": []}
    rejected, spreads, low, lost, start = [], [], [], 0, time.process_time()
    for seed in range(first, first + tables):
        problem = study(domain, deviation, episodes, seed)
        solver = mh.MaximumLikelihood(temperature=temperature, deviations="estimated")  # type: ignore[arg-type]
        found = mh.solve(problem, solver)
        evidence = found.evidence["deviations"]
        shared = found if not evidence.spread else mh.solve(problem, mh.MaximumLikelihood(temperature=temperature))  # type: ignore[arg-type]
        for name, solution in (("one reward", shared), ("deviations", found)):
            ends = solution.confidence_intervals()
            # an end that was not found counts as a miss, and so does an interval that is not there
            hits[name].append((ends[:, 0] <= DISCOUNTS) & (ends[:, 1] >= DISCOUNTS))
            widths[name].append(ends[:, 1] - ends[:, 0])
        lost += int(np.isnan(widths["deviations"][-1]).any())
        rejected.append(evidence.p_shared < 0.05)
        spreads.append(evidence.estimated)
        low.append(evidence.interval[0] <= deviation <= evidence.interval[1])
        if (seed - first + 1) % 20 == 0 or seed == first + tables - 1:
            n, seconds = seed - first + 1, (time.process_time() - start) / (seed - first + 1)
            print(f"{domain}, deviations {deviation:g}, {n} tables, {seconds:.1f} processor seconds each")
            for name in hits:
                share, width = np.mean(hits[name], axis=0).round(3), np.nanmedian(widths[name], axis=0).round(3)
                print(f"  {name:10s} coverage {share} widths {width}")
            print(f"  one reward rejected in {np.mean(rejected):.3f}; τ {np.mean(spreads):.3f} ± {np.std(spreads):.3f},", end=" ")
            print(f"its interval holds the truth in {np.mean(low):.3f}; tables with an interval missing: {lost}", flush=True)


def speed(people: int, features: int) -> None:
    """Processor seconds with intervals."""
    rng = np.random.default_rng(0)
    tasks = {
        "cliff, 40 states": domains.cliff(5, 8).mdp,
        "big-small, 40 states": domains.big_small(5, 8).mdp,
        "random, 40 states, 4 successors": domains.random_mdp(40, 4, 4, 2, seed=0),
        "random and dense, 40 states": domains.random_mdp(40, 4, n_terminal=2, seed=0),
        "cliff, 100 states": domains.cliff(10, 10).mdp,
    }
    for what, mdp in tasks.items():
        shared = rng.normal(0, 2, mdp.n_states)
        rewards = shared + 0.3 * rng.standard_normal((3, mdp.n_states))
        policies = [mh.soft_plan(mdp, reward, gamma).policy for reward, gamma in zip(rewards, DISCOUNTS, strict=True)]
        timed(f"three experts, {what}", mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, episodes=500, max_steps=50)))
    mdp = domains.big_small().mdp
    pairs = rng.normal(size=(mdp.stacked.shape[0], features))
    weights = rng.normal(size=features)
    names, policies = [], []
    for i in range(people):
        reward = pairs @ (weights + 0.3 * rng.standard_normal(features))
        policies.append(mh.soft_plan(mdp, reward.reshape(mdp.n_actions, -1).T, rng.uniform(0.2, 0.9)).policy)
        names.append(f"p{i}")
    demonstrations = mh.Demonstrations.simulate(mdp, policies, episodes=40, max_steps=20, seed=0, names=names)
    problem = mh.Problem(mdp, demonstrations, features=sp.csr_array(pairs))
    timed(f"{people} people, {features} features", problem)


def timed(what: str, problem: mh.Problem) -> None:
    start = time.process_time()
    found = mh.solve(problem, mh.MaximumLikelihood(deviations="estimated"))
    fitted = time.process_time() - start
    found.confidence_intervals()
    evidence = found.evidence["deviations"]
    print(
        f"{what}: fit {fitted:.1f} s, intervals {time.process_time() - start - fitted:.1f} s; {found.status}; "
        f"τ {evidence.estimated:.3f} {evidence.interval.round(3)}, p {evidence.p_shared:.2g}",
        flush=True,
    )


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    part = commands.add_parser("coverage")
    part.add_argument("--domain", default="cliff")
    part.add_argument("--deviation", type=float, default=0.5)
    part.add_argument("--tables", type=int, default=200)
    part.add_argument("--episodes", type=int, default=500)
    part.add_argument("--first", type=int, default=0, help="The seed of the first table.")
    part.add_argument("--temperature", default="shared")
    part = commands.add_parser("speed")
    part.add_argument("--people", type=int, default=50)
    part.add_argument("--features", type=int, default=5)
    options = vars(parser.parse_args())
    {"coverage": coverage, "speed": speed}[options.pop("command")](**options)


if __name__ == "__main__":
    main()
