"""Does the test of "the reward depends on the state reached alone" hold its level, and what does it prevent?

    python benchmarks/state_reward.py [--families treatment,chain,keys] [--tables 60] [--episodes 60] [--power] [--fishing 3]

Data come from `foreign.py`, which shares no code with the library, with the rules given.

* Size: rewards are paid on arrival in `treatment`, `chain` and `keys`. Each table has three people with discounts .5, .75 and .9;
  the share of tables at p ≤ .05 and at p ≤ .001, with a reward for each state.
* Power (`--power`): the same tables where actions cost something besides, .5 temperatures for the second and 1 for the third.
* Fishing: six people with one goal who are paid for fish taken: what is said of goals without the points.
"""

from __future__ import annotations

import argparse
import os
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import foreign
import numpy as np

import multihorizon as mh
from multihorizon.questions.sharing import state_reward_test


def rules(task: foreign.Task) -> mh.MDP:
    """The task as the library knows it."""
    return mh.MDP(
        task.transitions, initial=task.initial, terminal=task.terminal, state_names=task.states, action_names=task.actions
    )


def p_value(name: str, seed: int, episodes: int, costly: bool) -> float:
    """The p-value of one table."""
    task = foreign.FAMILIES[name]()
    if costly:
        costs = np.zeros((len(task.states), len(task.actions), 1))
        costs[:, 1], costs[:, 2] = -0.25, -0.5
        features = np.concatenate([task.features, costs], axis=2)
        paid = foreign.replace(task, features=features, weights=np.append(task.weights, 1.0))
    else:
        paid = task
    policies = {f"p{g}": foreign.policy(paid, g, 0.5) for g in (0.5, 0.75, 0.9)}
    table = mh.Demonstrations.from_frame(foreign.sample(task, policies, episodes, np.random.default_rng(seed)))
    test = state_reward_test(mh.solve(mh.Problem(rules(task), table), mh.MaximumLikelihood()))
    assert test is not None
    return test.p_value


def fishing(seed: int) -> str:
    """What is said of six people with one goal."""
    task = foreign.fishing()
    policies = {f"p{i}": foreign.policy(task, g, 0.5) for i, g in enumerate(2 * (0.4, 0.6, 0.75))}
    table = mh.Demonstrations.from_frame(foreign.sample(task, policies, 40, np.random.default_rng(seed)))
    found = mh.analyse([table], [rules(task)], quick=True)
    assert found.goals is not None
    before = "would be said to have different goals" if found.goals.test.rejected else "would be said to share a goal"
    test = found.state_reward
    assert test is not None
    said = f"now: {found.goals.verdict.answer}, χ² {test.statistic:.0f}, p {test.p_value:.1e}"
    return f"before: they {before} ({found.goals.test.words}); {said}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", default="treatment,chain,keys")
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--power", action="store_true")
    parser.add_argument("--fishing", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in filter(None, options.families.split(",")):
        p = np.array([p_value(name, seed, options.episodes, options.power) for seed in range(options.tables)])
        print(
            f"{name:>10}: {p.size} tables, p ≤ .05 in {(p <= 0.05).mean():.3f}, p ≤ .001 in {(p <= 0.001).mean():.3f}", flush=True
        )
    for seed in range(options.fishing):
        print(f"   fishing: {fishing(seed)}", flush=True)


if __name__ == "__main__":
    main()
