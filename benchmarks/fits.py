"""How the time of a maximum-likelihood fit grows with states, experts and decisions.

    python benchmarks/fits.py [--full]

Processor seconds of one thread, for the fit and for the fit with the intervals of all discounts. The discounts of the experts are
spread from 0.3 to 0.95. `--full` adds a reward of 1,600 free numbers, and 10 features on 40,000 states.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rows import shown

import multihorizon as mh


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


def measure(what: str, problem: mh.Problem) -> dict[str, object]:
    begun = time.process_time()
    found = mh.solve(problem, mh.MaximumLikelihood())
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
        "with intervals, s": time.process_time() - begun,
        "status": str(found.status),
    }


def cases(full: bool) -> dict[str, list[dict[str, object]]]:
    """Rows by what grows in them."""
    states = [measure("free reward", grid(side, 3, 1000)) for side in (5, 10, 20)]
    tied = [measure("10 features", grid(side, 3, 1000, 10)) for side in (20, 50, 100)]
    if full:
        states.append(measure("free reward", grid(40, 3, 4000)))
        tied.append(measure("10 features", grid(200, 3, 1000, 10)))
    return {
        "states, each with a reward of its own": states,
        "states, with 10 features": tied,
        "experts": [measure("10 features", grid(10, experts, 200, 10)) for experts in (3, 6, 12, 24)],
        "decisions": [measure("10 features", grid(10, 3, episodes, 10)) for episodes in (100, 1000, 10000)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    for grows, rows in cases(parser.parse_args().full).items():
        print(grows)
        for row in rows:
            print("  " + shown(row))


if __name__ == "__main__":
    main()
