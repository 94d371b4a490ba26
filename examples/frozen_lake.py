"""Planning horizons on FrozenLake
===============================

Planning horizons on gymnasium's FrozenLake, from logged episodes alone.

.. code-block:: console

    $ pip install multihorizon[gymnasium]
    $ python examples/frozen_lake.py

Three experts cross the slippery 4×4 lake for one reward: the goal pays, a hole costs, and each step on ice costs a little. They
differ in their discount factors. The fit gets only the logged episodes: transitions are estimated from them, and the discount
factors come with confidence intervals.
"""

from __future__ import annotations

import argparse

import gymnasium
import matplotlib.pyplot as plt
import numpy as np

import multihorizon as mh
from multihorizon.analysis import Analysis
from multihorizon.report.plots import plot_reward

DISCOUNTS = {"hasty": 0.5, "careful": 0.8, "patient": 0.95}
MOVES = ("left", "down", "right", "up")


def lake() -> tuple[mh.MDP, np.ndarray]:
    """The lake as an MDP with named cells, and the reward `(S,)` on arrival."""
    env = gymnasium.make("FrozenLake-v1", is_slippery=True)
    plain = mh.MDP.from_gymnasium(env)
    letters = env.unwrapped.desc.astype(str).ravel()
    words = {"S": "start", "F": "ice", "H": "hole", "G": "goal"}
    names = [f"{words[letter]} {i}" for i, letter in enumerate(letters)]
    reward = np.select([letters == "G", letters == "H"], [8.0, -3.0], -0.3)
    # The game begins in one corner; episodes that begin anywhere visit all of the lake.
    mdp = mh.MDP(
        plain.to_array(),
        None,
        plain.terminal,
        state_names=names,
        action_names=MOVES,
        grid_shape=(4, 4),
    )
    return mdp, reward


def main(episodes: int = 2000, quiet: bool = False) -> Analysis:
    """Run the example and return the analysis."""
    mdp, reward = lake()
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS.values()]
    table = mh.Demonstrations.simulate(mdp, policies, episodes, seed=0, names=list(DISCOUNTS))
    analysis = mh.analyse([table])
    say = (lambda *_: None) if quiet else print
    say(f"{len(table)} decisions; {analysis.remarks[0]}")
    for k, name in enumerate(analysis.solution.experts):
        low, high = analysis.intervals[k]
        say(
            f"{name}: planted {DISCOUNTS[name]}, found {analysis.solution.discounts[k]:.3f}, interval {low:.3f} to {high:.3f}"
        )
    return analysis


def draw(analysis: Analysis) -> None:
    """The reward that was found, and the discounts with their intervals beside the planted ones."""
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    solution, (mdp, _) = analysis.solution, lake()
    reward = solution.reward_frame().set_index("parameter")["reward"].reindex(mdp.state_names)
    plot_reward(mdp, reward, left, "The reward that was found")
    low, high = analysis.intervals.T
    right.hlines(range(len(low)), low, high, lw=4)
    right.plot(
        [DISCOUNTS[name] for name in solution.experts],
        range(len(low)),
        "k|",
        markersize=16,
        label="planted",
    )
    right.set_yticks(range(len(low)), solution.experts)
    right.set(xlabel="discount factor γ, 95% CI", xlim=(0, 1), ylim=(-0.5, len(low) - 0.5))
    right.legend(frameon=False)
    plt.show()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Planning horizons on FrozenLake.")
    parser.add_argument("--episodes", type=int, default=2000)
    draw(main(parser.parse_args().episodes))
