"""Populations on the Space Adventure Task with simulated persons: coverage, size, shrinkage, accuracy and speed.

    python benchmarks/population.py coverage [--studies 200] [--free]   # 40 persons, 250 decisions each
    python benchmarks/population.py size [--studies 200] [--free]       # the same without any effect
    python benchmarks/population.py shrinkage [--studies 20]            # 100 decisions each, against maximum likelihood
    python benchmarks/population.py accuracy [--studies 5]              # 7, 11 and 15 against 41 nodes
    python benchmarks/population.py speed [--free]                      # 285 persons, 420 decisions each

Each study has its own persons, ages and mini-blocks. With `--free` the reward is estimated from five features; otherwise the
points are known.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import multihorizon as mh

GROUP, AGE = 0.6, 0.2
TERMS = {"group[T.training]": GROUP, "age": AGE / 10}


def study(seed: int, persons: int, blocks: int, group: float, age: float, free: bool) -> tuple[Any, Any, mh.Problem, Any]:
    task = mh.domains.space_adventure(blocks, seed=seed)
    people = task.persons(persons, seed=10_000 + seed, group_difference=group, age_slope=age)
    if free:
        problem = mh.Problem(task.mdp, people.demonstrations, features=task.features, feature_names=task.feature_names)
        return task, people, problem, None
    return task, people, mh.Problem(task.mdp, people.demonstrations), task.reward.T.ravel()


def effects(args: argparse.Namespace, group: float, age: float) -> None:
    """How often intervals cover the truth, and how often tests reject."""
    covered, rejected, ends = [], [], []
    for seed in range(args.studies):
        _, people, problem, points = study(seed, 40, 100, group, age, args.free)
        told = mh.solve(problem, mh.Population("~ group + age", people.frame, known_reward=points))
        ends.append(str(told.status))
        found = told.evidence["population"]["discount"]
        truth = {"group[T.training]": group, "age": age / 10}
        covered.append([found[t]["interval"][0] <= truth[t] <= found[t]["interval"][1] for t in truth])
        rejected.append([found[t]["p"] < 0.05 for t in truth])
        if (seed + 1) % 20 == 0:
            shares = [np.round(100 * np.mean(x, axis=0), 1).tolist() for x in (covered, rejected)]
            print(f"{seed + 1} studies: covered {shares[0]} %, rejected {shares[1]} %", flush=True)
    print({status: ends.count(status) for status in set(ends)})


def shrinkage(args: argparse.Namespace) -> None:
    """The root mean squared error of γ_i, shrunken and by maximum likelihood with own temperatures."""
    errors = []
    for seed in range(args.studies):
        _, people, problem, points = study(seed, 40, 40, GROUP, AGE, False)
        alone = mh.solve(problem, mh.MaximumLikelihood(temperature="per_expert", known_reward=points))
        pooled = mh.solve(problem, mh.MaximumLikelihood(known_reward=points))
        shrunken = mh.solve(problem, mh.Population("~ group + age", people.frame, known_reward=points))
        errors.append([np.mean((s.discounts - people.discounts) ** 2) for s in (alone, pooled, shrunken)])
    root = np.sqrt(np.mean(errors, axis=0))
    decisions = alone.evidence["decisions"] / 40
    print(f"{decisions:.0f} decisions each: own temperatures {root[0]:.4f}, pooled temperatures {root[1]:.4f},", end=" ")
    print(f"population {root[2]:.4f}: {100 * (1 - root[2] / root[:2].min()):.0f} % below the better one")


def accuracy(args: argparse.Namespace) -> None:
    """By how much of a standard error effects differ from those with 41 nodes."""
    for seed in range(args.studies):
        _, people, problem, points = study(seed, 40, 100, GROUP, AGE, args.free)
        found = [
            mh.solve(problem, mh.Population("~ group + age", people.frame, known_reward=points, nodes=n)).evidence["population"]
            for n in (7, 11, 15, 41)
        ]
        fine = found[-1]["discount"]
        moved = [
            max(abs(f["discount"][t]["estimate"] - fine[t]["estimate"]) / fine[t]["standard_error"] for t in fine) for f in found
        ]
        print(f"study {seed}: {moved[0]:.4f} with 7 nodes, {moved[1]:.4f} with 11, {moved[2]:.4f} with 15", flush=True)


def speed(args: argparse.Namespace) -> None:
    _, people, problem, points = study(0, 285, 168, GROUP, 0.0, args.free)
    begin = time.process_time()
    told = mh.solve(problem, mh.Population("~ group", people.frame, known_reward=points))
    seconds, decisions = time.process_time() - begin, told.evidence["decisions"] / 285
    print(f"{decisions:.0f} decisions each: {seconds:.0f} processor seconds, {told.status}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["coverage", "size", "shrinkage", "accuracy", "speed"])
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--free", action="store_true")
    told = parser.parse_args()
    runs = {"coverage": lambda a: effects(a, GROUP, AGE), "size": lambda a: effects(a, 0.0, 0.0)}
    runs |= {"shrinkage": shrinkage, "accuracy": accuracy, "speed": speed}
    runs[told.what](told)
