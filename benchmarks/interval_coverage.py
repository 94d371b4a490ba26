"""How near the estimated discounts are to the truth, and how often the 95% intervals contain it.

    python benchmarks/interval_coverage.py [--replications 200] [--episodes 1000] [--jobs 2] [--domains cliff,big_small]
    python benchmarks/interval_coverage.py --episodes 30 --domains cliff    # few decisions: rewards must be held by a weak prior
    python benchmarks/interval_coverage.py --moves 20                       # transitions estimated from the same table

For each domain, three experts: mean absolute error, bias and coverage of each discount, over everything that reports an interval.
With `--moves` the experts act in a random task, the table has about so many moves per state and action, and the transitions are
estimated from it. Coverage is then also shown for intervals that take the estimated transitions as exact.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np
from joblib import Parallel, delayed

import multihorizon as mh

DISCOUNTS = (0.3, 0.6, 0.9)


@dataclass(frozen=True)
class Run:
    """What one replication found; `exact` holds the intervals that take estimated transitions as known."""

    discounts: np.ndarray
    intervals: np.ndarray
    exact: np.ndarray | None
    seconds: float
    status: str
    held: bool


def fitted(problem: mh.Problem, exact: mh.Problem | None) -> Run:
    start = time.process_time()
    solution = mh.solve(problem, mh.MaximumLikelihood())
    intervals = solution.confidence_intervals(0.95)
    seconds = time.process_time() - start
    narrow = None if exact is None else mh.solve(exact, mh.MaximumLikelihood()).confidence_intervals(0.95)
    held = bool(solution.evidence["ridge_reason"])
    return Run(solution.discounts, intervals, narrow, seconds, str(solution.status), held)


def given(name: str, episodes: int, seed: int) -> Run:
    domain = getattr(mh.domains, name)()
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes, seed=seed)
    return fitted(mh.Problem(domain.mdp, table), None)


def estimated(moves: float, seed: int) -> Run:
    """A random task of 30 states, 3 actions and 3 successors each, with a reward of three features earned on arrival."""
    mdp = mh.domains.random_mdp(30, 3, branching=3, n_terminal=1, seed=5)
    features = np.random.default_rng(5).normal(size=(30, 3))
    reward = features @ [2.0, -1.0, 1.0]
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS]
    pilot = mh.Demonstrations.simulate(mdp, policies, 500, seed=0)
    episodes = max(2, round(500 * moves * 29 * 3 / len(pilot)))
    table = mh.Demonstrations.simulate(mdp, policies, episodes, seed=seed)
    guess = mh.estimate_mdp(table)
    own = features[[int(name) for name in guess.state_names]]
    rows = [guess.stacked[a * guess.n_states : (a + 1) * guess.n_states] for a in range(guess.n_actions)]
    names = {"state_names": guess.state_names, "action_names": guess.action_names}
    exact = mh.MDP(rows, guess.initial, guess.terminal, guess.available, **names)
    return fitted(*(mh.Problem(task, table, arrival_features=own) for task in (guess, exact)))


def covered(intervals: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The share of known intervals `(n,K,2)` that contain the truth."""
    known = ~np.isnan(intervals).any(axis=2)
    inside = (intervals[:, :, 0] <= truth + 1e-9) & (truth - 1e-9 <= intervals[:, :, 1])
    return (inside & known).sum(axis=0) / np.maximum(known.sum(axis=0), 1)


def report(title: str, truth: np.ndarray, runs: list[Run]) -> None:
    estimates, intervals = np.array([r.discounts for r in runs]), np.array([r.intervals for r in runs])
    converged, held = sum(r.status == "converged" for r in runs), sum(r.held for r in runs)
    print(f"{title}: {len(runs)} replications, {converged} converged, {held} with rewards held by a weak prior")
    print("  truth                 ", truth)
    print("  mean |error|, first 20", np.abs(estimates[:20] - truth).mean(axis=0).round(4))
    print("  mean |error|, all     ", np.abs(estimates - truth).mean(axis=0).round(4))
    print("  mean error (bias)     ", (estimates - truth).mean(axis=0).round(4))
    print("  intervals reported    ", (~np.isnan(intervals).any(axis=2)).sum(axis=0))
    print("  coverage of 95%      ", covered(intervals, truth).round(3))
    if runs[0].exact is not None:
        print("  taken as exact        ", covered(np.array([r.exact for r in runs]), truth).round(3))
    print("  mean width            ", np.nanmean(intervals[:, :, 1] - intervals[:, :, 0], axis=0).round(3))
    print(f"  median processor seconds, fit and intervals {np.median([r.seconds for r in runs]):.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--domains", default="cliff,big_small")
    parser.add_argument("--moves", type=float)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seeds, pool = range(options.replications), Parallel(n_jobs=options.jobs)
    if options.moves is not None:
        runs = pool(delayed(estimated)(options.moves, seed) for seed in seeds)
        report(f"transitions estimated, {options.moves:g} moves per state and action", np.array(DISCOUNTS), runs)
        return
    for name in options.domains.split(","):
        runs = pool(delayed(given)(name, options.episodes, seed) for seed in seeds)
        truth = np.array(getattr(mh.domains, name)().soft_discounts)
        report(f"{name}, {options.episodes} episodes per expert", truth, runs)


if __name__ == "__main__":
    main()
