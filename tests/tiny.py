"""One small solution of each kind, which tests of questions and results share."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import multihorizon as mh


class Asked(NamedTuple):
    """A solution, and the table it was fitted to."""

    solution: mh.Solution
    table: Any


def three_steps() -> mh.MDP:
    """Two places, three steps: either stay or change, which succeeds most of the time."""
    moves = np.zeros((2, 8, 8))
    for left in (1, 2, 3):
        for place in (0, 1):
            for action, chance in ((0, 0.1), (1, 0.8)):
                moves[action, 2 * left + place, 2 * (left - 1) + place] = 1 - chance
                moves[action, 2 * left + place, 2 * (left - 1) + 1 - place] = chance
    return mh.MDP(moves, initial=np.eye(8)[6:].mean(axis=0), terminal=[0, 1])


PAYS = np.array([0.0, 2.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0])


def walks() -> mh.Steps:
    """Two experts on a line: one goes to its middle, the other to its end, each most of the time."""
    rng, rows = np.random.default_rng(0), []
    for expert, wanted in (("near", 0.5), ("far", 1.0)):
        for episode in range(6):
            x = rng.random()
            for step in range(20):
                right = rng.random() < (0.8 if x < wanted else 0.2)
                rows.append((expert, episode, step, "right" if right else "left", x))
                x += (0.2 if right else -0.2) + 0.05 * rng.normal()
    return mh.Steps.from_frame(pd.DataFrame(rows, columns=["expert", "episode", "step", "action", "x"]), ["x"])


@cache
def tiny_solutions() -> dict[str, Asked]:
    """One solution of each kind, computed once."""
    mdp = three_steps()
    policies = [mh.soft_plan(mdp, PAYS, discount).policy for discount in (0.2, 0.5, 0.9)]
    table = mh.Demonstrations.simulate(mdp, policies, 40, seed=0)
    problem, steps = mh.Problem(mdp, table, arrival_features=PAYS[:, None]), walks()
    solvers = {
        "lists": mh.MaximumLikelihood(1.0, starts=1),
        "deviations": mh.MaximumLikelihood(1.0, starts=1, deviations=0.3),
        "look-ahead": mh.MaximumLikelihood(1.0, starts=1, lookahead=mh.Hyperbolic()),
        "population": mh.Population(nodes=5),
    }
    found = {kind: Asked(mh.solve(problem, solver), table) for kind, solver in solvers.items()}
    sieve = mh.SieveLikelihood(basis=mh.Splines(4), penalty=0.1, temperature=1.0)
    return found | {"vectors": Asked(mh.solve(mh.SampledProblem(steps), sieve), steps)}
