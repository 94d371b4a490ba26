"""Posteriors: how well and how fast they are sampled, whether they are calibrated, and how they compare with profile intervals.

    python benchmarks/posterior.py cliff
    python benchmarks/posterior.py people FOLDER
    python benchmarks/posterior.py calibration [--tables 200]
    python benchmarks/posterior.py intervals

*Cliff*: three experts with discounts .3, .5 and .8, 500 episodes each, 12 rewards. *People*: the study of a folder, as in
`recorded_people.py`, as a population with a known reward. Both print R̂, bulk ESS, divergences and processor seconds.

*Calibration* (Talts and others, 2018): parameters are drawn from the prior, decisions from the parameters, and the posterior of
these decisions is sampled. The rank of the true value among 19 draws, far apart in the chain, is uniform on 0, …, 19 if and only
if draws are those of the posterior. Ranks of each parameter are tested by χ² in 10 bins, and by one test of all of them, with
Bonferroni's correction. Here three experts choose in a task of three steps, with two rewards.

*Intervals*: 95% intervals of the discounts by the posterior and by the profile likelihood, side by side.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from recorded_people import Study
from scipy.stats import chisquare

import multihorizon as mh


def cliff_problem() -> mh.Problem:
    domain = mh.domains.cliff()
    policies = [mh.soft_plan(domain.mdp, domain.reward, discount).policy for discount in (0.3, 0.5, 0.8)]
    return mh.Problem(domain.mdp, mh.Demonstrations.simulate(domain.mdp, policies, episodes=500))


def cliff() -> None:
    print(mh.posterior(cliff_problem()).attrs["summary"])


def people(folder: Path) -> None:
    study = Study(folder)
    print(mh.posterior(study.problem, mh.Population(known_reward=study.points)).attrs["summary"])


def intervals() -> None:
    solution = mh.solve(cliff_problem(), mh.MaximumLikelihood())
    tree = mh.posterior(solution)
    ends = tree["posterior"]["discount"].quantile([0.025, 0.975], ("chain", "draw")).values.T
    for name, profile, drawn in zip(solution.experts, solution.confidence_intervals(), ends, strict=True):
        print(f"expert {name}: profile {profile[0]:.3f} to {profile[1]:.3f}, posterior {drawn[0]:.3f} to {drawn[1]:.3f}")


def task() -> tuple[mh.MDP, np.ndarray]:
    """Two places and three steps, and the two states in which something may be paid at the end or on the way."""
    moves = np.zeros((2, 8, 8))
    for left in (1, 2, 3):
        for place in (0, 1):
            for action, chance in ((0, 0.1), (1, 0.8)):
                moves[action, 2 * left + place, 2 * (left - 1) + place] = 1 - chance
                moves[action, 2 * left + place, 2 * (left - 1) + 1 - place] = chance
    mdp = mh.MDP(moves, initial=np.eye(8)[6:].mean(axis=0), terminal=[0, 1])
    pays = np.zeros((8, 2))
    pays[1, 0], pays[[2, 4], 1] = 1.0, 1.0
    return mdp, pays


def ranks(number: int, size: float = 3.0, kept: int = 19) -> tuple[np.ndarray, int]:
    """The ranks of two rewards and three discounts in one table, and how many draws diverged."""
    (mdp, pays), rng = task(), np.random.default_rng(number)
    theta, discounts = size * rng.standard_normal(2), rng.random(3)
    policies = [mh.soft_plan(mdp, pays @ theta, float(discount)).policy for discount in discounts]
    table = mh.Demonstrations.simulate(mdp, policies, 30, seed=number)
    problem = mh.Problem(mdp, table, arrival_features=pays, feature_names=["end", "way"])
    solver = mh.MaximumLikelihood(1.0, starts=1)
    tree = mh.posterior(problem, solver, {"reward": size}, draws=10 * kept, tune=100, chains=1, seed=number)
    draws = np.concatenate([tree["posterior"][name].values[0] for name in ("reward", "discount")], axis=1)[5::10]
    return (draws < np.concatenate([theta, discounts])).sum(axis=0), tree.attrs["divergences"]


def calibration(tables: int) -> None:
    found, begin = [], time.process_time()
    for number in range(tables):
        found.append(ranks(number))
        if (number + 1) % 20 == 0:
            print(f"{number + 1} tables, {time.process_time() - begin:.0f} processor seconds", flush=True)
    uniform(np.array([each for each, _ in found]), sum(diverged for _, diverged in found))


def uniform(found: np.ndarray, diverged: int) -> None:
    """Print the histograms of ranks `(tables,5)` and their tests."""
    counts = np.array([np.bincount(column, minlength=10) for column in found.T // 2])
    p_values = chisquare(counts, axis=1).pvalue
    for name, row, p in zip(("end", "way", *(f"discount {i}" for i in range(3))), counts, p_values, strict=True):
        print(f"{name:12} {row.tolist()}  p = {p:.3f}")
    print(f"all together p = {min(1.0, len(p_values) * p_values.min()):.3f}, {diverged} divergences")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", choices=("cliff", "people", "calibration", "intervals"))
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--tables", type=int, default=200)
    asked = parser.parse_args()
    if asked.mode == "people":
        if asked.folder is None:
            parser.error("people needs the folder of a study")
        people(asked.folder)
    elif asked.mode == "calibration":
        calibration(asked.tables)
    else:
        {"cliff": cliff, "intervals": intervals}[asked.mode]()
