"""How the time of a maximum-likelihood fit grows with states, experts and decisions.

    python benchmarks/fits.py [--full] [--roads] [--tables]

Processor seconds of one thread, for the fit and for the fit with the intervals of all discounts, and the share of the fit that
goes into the spread of temperatures. The discounts of the experts are spread from 0.3 to 0.95. `--full` adds a reward of 2,025
free numbers, and 10 features on 40,000 states.

`--roads` climbs from one start with the curvature as a matrix and as products, on grids, and where states are linked without any
order: `product_rewards` and `filled_rewards` in `parallel.Limits` come from it. `--tables` gives `multihorizon fit` and
`identify` tables alone, and says when each said first what to expect, or that it was done.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from rows import shown

import multihorizon as mh
from multihorizon.choice.model import Likelihood, Point
from multihorizon.likelihood import maximum_likelihood
from multihorizon.likelihood.search import climb
from multihorizon.numerics.newton import Dense


def grid(side: int, experts: int, episodes: int, features: int = 0) -> mh.Problem:
    """Experts on a slippery grid with two ends, whose reward is free or tied to features drawn at random."""
    rng = np.random.default_rng(0)
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(side - 1, side - 1), (0, 0)])
    arrival = rng.normal(size=(mdp.n_states, features)) if features else None
    reward = -1.0 + 0.5 * rng.normal(size=mdp.n_states)
    reward[-1], reward[0] = 10.0, 3.0
    if arrival is not None:
        reward = arrival @ rng.normal(size=features) / 2
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in np.linspace(0.3, 0.95, experts)]
    table = mh.Demonstrations.simulate(mdp, policies, episodes)
    return mh.Problem(mdp, table, arrival_features=arrival)


def unordered(states: int, successors: int | None = 3) -> mh.MDP:
    """Two actions that lead to random states: to a few of them, or to all."""
    rng, ends = np.random.default_rng(0), max(1, states // 50)
    going, moves = sp.diags_array(np.where(np.arange(states) < ends, 0.0, 1.0)), []
    for _ in range(2):
        if successors is None:
            moves.append(going @ rng.dirichlet(np.full(states, 0.2), size=states))
            continue
        start = np.repeat(np.arange(states), successors)
        counts = (0.1 + rng.random(start.size), (start, rng.integers(states, size=start.size)))
        chances = sp.csr_array(counts, shape=(states, states))
        moves.append(sp.csr_array(going @ sp.diags_array(1 / chances.sum(axis=1)) @ chances))
    return mh.MDP(moves, terminal=list(range(ends)))


def decided(mdp: mh.MDP, experts: int, episodes: int) -> mh.Demonstrations:
    """Decisions of experts with a random reward."""
    reward = np.random.default_rng(1).normal(size=mdp.n_states)
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in np.linspace(0.3, 0.95, experts)]
    return mh.Demonstrations.simulate(mdp, policies, episodes)


def roads(full: bool) -> list[dict[str, object]]:
    """A climb by the matrix and by products, in processor seconds, and what the second leaves of the first's objective."""
    found = []
    for kind, sizes in {"grid": (100, 196, 324, 676, 1024), "sparse": (100, 400, 700, 1200), "dense": (100, 200, 400)}.items():
        for states in sizes if full else sizes[:-1]:
            for experts in (2, 4, 8) if full else (2, 4):
                if kind == "grid":
                    problem = grid(round(states**0.5), experts, 1000)
                else:
                    mdp = unordered(states, 3 if kind == "sparse" else None)
                    problem = mh.Problem(mdp, decided(mdp, experts, 1000))
                model = Likelihood(problem)
                start = maximum_likelihood.choice_probability_start(model, np.linspace(0.3, 0.9, experts))
                assert start is not None
                metric, ends = Point.metric, {}
                for road in ("matrix", "products"):
                    Point.metric = lambda point, road=road: Dense(point.curvature()) if road == "matrix" else point.products()
                    begun = time.process_time()
                    ends[road] = climb(start, max_steps=40).point.objective, time.process_time() - begun
                Point.metric = metric
                (by_matrix, first), (by_products, second) = ends["matrix"], ends["products"]
                row = {"task": kind, "states": states, "experts": experts, "matrix, s": first, "products, s": second}
                taken = second if model.by_products else first
                found.append({**row, "taken / cheaper": taken / min(first, second), "difference": by_products - by_matrix})
    return found


def tables() -> list[dict[str, object]]:
    """Seconds of the clock until the program says what to expect, or is done; it is stopped then, or after two minutes."""
    wide = mh.domains.gridworld(66, 66, slip=0.1, terminal=[(65, 65)])
    reward = -1.0 + 0.5 * np.random.default_rng(1).normal(size=wide.n_states)
    reward[-1] = 10.0
    sure = [mh.soft_plan(wide, reward, gamma, 0.05).policy for gamma in (0.5, 0.8, 0.95)]
    starts = np.flatnonzero(~wide.terminal)
    few = mh.domains.big_small()
    cases = {
        "a small table": ("fit", mh.Demonstrations.simulate(few.mdp, few.soft_experts(), 100)),
        "4,000 states linked at random": ("fit", decided(unordered(4000), 2, 600)),
        "4,356 states, many with one action": (
            "identify",
            mh.Demonstrations.simulate(wide, sure, starts.size, max_steps=3, starts=starts),
        ),
    }
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (command, table) in cases.items():
            table.to_csv(Path(folder) / "decisions.csv")
            begun = time.perf_counter()
            arguments = [sys.executable, "-m", "multihorizon", command, str(Path(folder) / "decisions.csv")]
            with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
                first = run.stdout.readline() if run.stdout is not None else ""
                seconds = time.perf_counter() - begun
                run.kill()
            found.append({"table": name, "command": command, "first words, s": seconds, "words": first.strip()[:90]})
    return found


def measure(what: str, problem: mh.Problem) -> dict[str, object]:
    judge, spent = maximum_likelihood.estimate_spread, []

    def timed(*arguments: object) -> object:
        begun = time.process_time()
        judged = judge(*arguments)
        spent.append(time.process_time() - begun)
        return judged

    begun = time.process_time()
    maximum_likelihood.estimate_spread = timed
    found = mh.solve(problem, mh.MaximumLikelihood())
    maximum_likelihood.estimate_spread = judge
    fitted = time.process_time() - begun
    found.confidence_intervals(0.95)
    decisions = sum(0.0 if expert.counts is None else float(expert.counts.sum()) for expert in problem.experts)
    return {
        "fit": what,
        "states": problem.mdp.n_states,
        "experts": problem.n_experts,
        "rewards": problem.n_parameters,
        "decisions": int(decisions),
        "fit, s": fitted,
        "of it for temperatures": sum(spent) / fitted,
        "with intervals, s": time.process_time() - begun,
        "status": str(found.status),
    }


def cases(full: bool) -> dict[str, list[dict[str, object]]]:
    """Rows by what grows in them."""
    states = [measure("free reward", grid(side, 3, 1000)) for side in (5, 10, 14, 20)]
    tied = [measure("10 features", grid(side, 3, 1000, 10)) for side in (20, 50, 100)]
    if full:
        states.append(measure("free reward", grid(45, 3, 1000)))
        tied.append(measure("10 features", grid(200, 3, 1000, 10)))
    return {
        "states, each with a reward of its own": states,
        "states, with 10 features": tied,
        "experts": [measure("10 features", grid(10, experts, 200, 10)) for experts in (3, 6, 12, 24)],
        "decisions": [measure("10 features", grid(10, 3, episodes, 10)) for episodes in (100, 1000, 10000)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--full", "--roads", "--tables"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    if options.roads or options.tables:
        for row in [*(roads(options.full) if options.roads else []), *(tables() if options.tables else [])]:
            print(shown(row), flush=True)
        return
    for grows, rows in cases(options.full).items():
        print(grows)
        for row in rows:
            print("  " + shown(row))


if __name__ == "__main__":
    main()
