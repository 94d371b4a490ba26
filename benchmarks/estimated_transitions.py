"""Transitions estimated from the same table as everything else: do intervals hold, and are tests and checks at their level?

    python benchmarks/estimated_transitions.py [--tasks lake,cliff,meadow] [--episodes 100,500] [--replications 200] [--jobs 2]
    python benchmarks/estimated_transitions.py --known          # the same tables with the true transitions, to compare

Three experts with one reward and equal temperatures in FrozenLake 4×4 (slippery), the cliff and the meadow. Each table goes
through `analyse`, as `multihorizon fit` does. For each task and number of episodes: the share of 95% intervals that contain the
true discount, among those with both ends and with an end that was not found counted as open; how often the decisions are said to
have different temperatures, different goals, one discount, or not to fit; and seconds.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import dataclass

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium
import numpy as np
from joblib import Parallel, delayed

import multihorizon as mh


@dataclass(frozen=True)
class Run:
    """What one table gave."""

    discounts: np.ndarray
    intervals: np.ndarray
    temperatures_p: float
    goals_p: float
    shared_p: float
    fit: str
    seconds: float


def task(name: str) -> tuple[mh.MDP, np.ndarray, tuple[float, ...], float]:
    """The MDP, the reward, the discounts and the temperature."""
    if name == "lake":
        mdp = mh.MDP.from_gymnasium(gymnasium.make("FrozenLake-v1", map_name="4x4", is_slippery=True))
        return mdp, np.eye(16)[15], (0.7, 0.9, 0.98), 0.1
    domain = getattr(mh.domains, name)()
    return domain.mdp, domain.reward, {"cliff": (0.3, 0.5, 0.8), "meadow": (0.5, 0.8, 0.97)}[name], 1.0


def run(name: str, episodes: int, seed: int, known: bool) -> Run:
    warnings.simplefilter("ignore")
    mdp, reward, discounts, temperature = task(name)
    policies = [mh.soft_plan(mdp, reward, gamma, temperature).policy for gamma in discounts]
    table = mh.Demonstrations.simulate(mdp, policies, episodes, seed=seed)
    start = time.process_time()
    found = mh.analyse([table], [mdp] if known else None)
    p = found.solution.evidence["equal_temperatures_p"]
    return Run(
        discounts=found.solution.discounts,
        intervals=found.intervals,
        temperatures_p=np.nan if p is None else p,
        goals_p=np.nan if found.goals is None else found.goals.test.p_value,
        shared_p=np.nan if found.shared is None else found.shared.p_value,
        fit=found.verdicts[2].answer,
        seconds=time.process_time() - start,
    )


def report(name: str, episodes: int, runs: list[Run]) -> None:
    truth = np.array(task(name)[2])
    ends = np.array([r.intervals for r in runs])
    whole = ~np.isnan(ends).any(axis=2)
    some = ~np.isnan(ends).all(axis=2)
    inside = (np.nan_to_num(ends[:, :, 0], nan=0.0) <= truth + 1e-9) & (truth - 1e-9 <= np.nan_to_num(ends[:, :, 1], nan=1.0))
    answers = [r.fit for r in runs]
    levels = {what: np.array([getattr(r, f"{what}_p") for r in runs]) for what in ("temperatures", "goals", "shared")}
    print(f"{name}, {episodes} episodes per expert: {len(runs)} tables")
    print(
        "  coverage, both ends   ", ((inside & whole).sum(axis=0) / np.maximum(whole.sum(axis=0), 1)).round(3), whole.sum(axis=0)
    )
    print("  with open ends     ", ((inside & some).sum(axis=0) / np.maximum(some.sum(axis=0), 1)).round(3), some.sum(axis=0))
    print("  mean error            ", np.nanmean([r.discounts - truth for r in runs], axis=0).round(4))
    print("  mean width            ", np.nanmean(ends[:, :, 1] - ends[:, :, 0], axis=0).round(3))
    print(f"  temperatures differ    {np.nanmean(levels['temperatures'] < 0.05):.3f}")
    print(f"  goals differ           {np.nanmean(levels['goals'] <= 0.05):.3f}")
    print(f"  one discount rejected  {np.nanmean(levels['shared'] < 0.05):.3f}   (true: they differ)")
    print("  does the model fit     ", {answer: answers.count(answer) for answer in sorted(set(answers))})
    print(f"  median seconds         {np.median([r.seconds for r in runs]):.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", default="lake,cliff,meadow")
    parser.add_argument("--episodes", default="100,500")
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="seed of the first table")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--known", action="store_true")
    options = parser.parse_args()
    for episodes in map(int, options.episodes.split(",")):
        for name in options.tasks.split(","):
            seeds = range(options.first, options.first + options.replications)
            report(name, episodes, Parallel(options.jobs)(delayed(run)(name, episodes, seed, options.known) for seed in seeds))


if __name__ == "__main__":
    main()
