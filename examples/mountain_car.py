"""Planning horizons in a continuous task
======================================

Planning horizons of drivers in MountainCar, whose states are two numbers and whose dynamics are learned from the log.

.. code-block:: console

    $ pip install 'multihorizon[gymnasium]'
    $ python examples/mountain_car.py

A car in a valley is too weak to drive out at once: to reach the flag on the right it must first roll back to the left. Being
low costs, and the costs end at the flag. Three drivers have effective horizons of 2, 5 and 20 decisions. A decision holds the
throttle for eight frames of Gymnasium's MountainCar, while a gust of wind pushes the car about as hard as its engine does.

The drivers are soft-optimal in the true task: they plan on a grid of 201 by 201 points with values interpolated between them, and
choose by what each throttle leads to from exactly where they are.

The fit sees position, speed and throttle, and nothing else, and learns where the throttle leads. From 60,000 decisions it finds
discounts of 0.55, 0.82 and 0.96 instead of 0.5, 0.8 and 0.95; each 95% CI holds the truth. The reward rises from the
bottom of the valley to the flag as the true one does. It takes about a minute. This is the
picture that it draws:

.. image:: ../images/mountain-car.png
   :alt: The reward that was found, along the valley, beside the true one; and the discounts with their intervals.

"""

# sphinx_gallery_thumbnail_path = 'images/mountain-car.png'

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy.sparse as sp

import multihorizon as mh

DISCOUNTS = {"hasty": 0.5, "steady": 0.8, "patient": 0.95}
THROTTLE = ("back", "none", "forward")
#: Frames per decision, the standard deviation of the wind's force, and the points of the grid along each coordinate.
FRAMES, WIND, GRID = 8, 0.001, 201
#: What being one unit lower costs per decision.
COST = 3.0


@dataclass(frozen=True)
class Car:
    """Gymnasium's MountainCar with a decision every few frames, for many cars at once."""

    physics: Any

    @property
    def low(self) -> np.ndarray:
        """The least position and speed."""
        return np.array([self.physics.min_position, -self.physics.max_speed])

    @property
    def high(self) -> np.ndarray:
        """The position of the flag and the largest speed."""
        return np.array([self.physics.goal_position, self.physics.max_speed])

    def drive(self, states: np.ndarray, throttle: Any, wind: Any) -> np.ndarray:
        """Positions and speeds `(n,2)` after one decision; who reaches the flag stays there."""
        x, v = states.T.copy()
        for _ in range(FRAMES):
            going = x < self.high[0]
            push = (throttle - 1) * self.physics.force + wind - np.cos(3 * x) * self.physics.gravity
            v = np.where(going, np.clip(v + push, self.low[1], self.high[1]), v)
            x = np.where(going, np.clip(x + v, self.low[0], self.high[0]), x)
            v = np.where((x <= self.low[0]) & (v < 0), 0.0, v)
        return np.column_stack([x, v])

    def reward(self, states: np.ndarray) -> np.ndarray:
        """What arriving in states `(n,2)` pays: nothing at the top, less the lower."""
        return COST * (np.sin(3 * states[:, 0]) - 1)

    @cached_property
    def grid(self) -> np.ndarray:
        """The points `(GRID²,2)` of the grid; the last position is just before the flag."""
        axes = [
            np.linspace(low, high, GRID)
            for low, high in zip(self.low, self.high - [1e-9, 0], strict=True)
        ]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)

    def mixed(self, states: np.ndarray) -> sp.csr_array:
        """States `(n,2)` as mixtures of the four grid points around them, or as the flag, which is the last column."""
        place = np.clip((states - self.low) / (self.high - self.low), 0, 1) * (GRID - 1)
        corner = np.minimum(place.astype(int), GRID - 2)
        part = place - corner
        done = states[:, 0] >= self.high[0]
        found = sp.csr_array(
            (1.0 * done, (np.arange(len(states)), np.full(len(states), GRID**2))),
            (len(states), GRID**2 + 1),
        )
        for i, j in np.ndindex(2, 2):
            share = np.abs(1 - i - part[:, 0]) * np.abs(1 - j - part[:, 1]) * ~done
            cells = (corner[:, 0] + i) * GRID + corner[:, 1] + j
            found = found + sp.csr_array((share, (np.arange(len(states)), cells)), found.shape)
        return sp.csr_array(found)

    def moves(self, states: np.ndarray) -> list[sp.csr_array]:
        """Where each throttle leads from states `(n,2)`: mixtures, the wind averaged by quadrature."""
        gusts, shares = np.polynomial.hermite_e.hermegauss(7)
        parts = list(zip(WIND * gusts, shares / shares.sum(), strict=True))
        return [
            sum(share * self.mixed(self.drive(states, a, gust)) for gust, share in parts)
            for a in range(3)
        ]

    @cached_property
    def task(self) -> mh.MDP:
        """The task on the grid, with the flag as its terminal state."""
        stay = sp.csr_array((1, GRID**2 + 1))
        return mh.MDP(
            [sp.vstack([rows, stay], format="csr") for rows in self.moves(self.grid)],
            terminal=[GRID**2],
        )

    @cached_property
    def paid(self) -> np.ndarray:
        """The reward of arriving at each grid point, and at the flag."""
        return self.reward(np.vstack([self.grid, self.high]))


def log(car: Car, decisions: int, seed: int = 0) -> mh.Steps:
    """What the three drivers did: this many decisions each, in episodes of at most 40."""
    rng = np.random.default_rng(seed)
    tables: list[pd.DataFrame] = []
    for name, gamma in DISCOUNTS.items():
        worth = car.paid + gamma * mh.soft_plan(car.task, car.paid, gamma).values
        running = np.arange(decisions // 5)
        state = np.column_stack(
            [rng.uniform(car.low[0], 0.45, running.size), rng.uniform(-0.05, 0.05, running.size)]
        )
        drives: list[pd.DataFrame] = []
        for step in range(40):
            value = np.column_stack([rows @ worth for rows in car.moves(state)])
            chance = np.exp(value - value.max(axis=1, keepdims=True))
            ladder = (chance / chance.sum(axis=1, keepdims=True)).cumsum(axis=1)
            action = (rng.uniform(size=(len(state), 1)) > ladder[:, :-1]).sum(axis=1)
            after = car.drive(state, action, WIND * rng.standard_normal(len(state)))
            done = after[:, 0] >= car.high[0]
            columns = {
                "expert": name,
                "episode": running,
                "step": step,
                "action": np.array(THROTTLE)[action],
                "terminated": done,
            }
            columns |= {
                "position": state[:, 0],
                "speed": state[:, 1],
                "next_position": after[:, 0],
                "next_speed": after[:, 1],
            }
            drives.append(pd.DataFrame(columns))
            state, running = after[~done], running[~done]
        tables.append(pd.concat(drives).sort_values(["episode", "step"]).head(decisions))
    return mh.Steps.from_frame(pd.concat(tables), ["position", "speed"])


def main(decisions: int = 20_000, quick: bool = False) -> mh.Solution:
    """Run the example and return the solution; `quick` takes a small basis and prints nothing."""
    car = Car(gymnasium.make("MountainCar-v0").unwrapped)
    steps = log(car, decisions)
    options = (
        mh.SieveLikelihood(basis=mh.Splines(6), penalty=0.1) if quick else mh.SieveLikelihood()
    )
    solution = mh.solve(mh.SampledProblem(steps), options)
    if quick:
        return solution
    ends = solution.confidence_intervals(0.95)
    print(
        f"{len(steps):,} decisions, {solution.evidence['functions']} basis functions; {solution.status}"
    )
    for name, gamma, (low, high) in zip(solution.experts, solution.discounts, ends, strict=True):
        print(
            f"  {name:8} true {DISCOUNTS[name]:.2f}  found {gamma:.3f}  95% CI {low:.3f} to {high:.3f}"
        )
    found = mh.reward_functions(solution)
    for place in np.column_stack([[-1.0, -0.5, 0.0, 0.45], np.zeros(4)]):
        value, error, true = (
            found.reward([place])[0],
            found.reward_errors([place])[0],
            car.reward(place[None])[0],
        )
        print(
            f"  reward at position {place[0]:5.2f}, standing still: {value:5.2f} ± {error:.2f}, true {true:5.2f}"
        )
    return solution


def draw(solution: mh.Solution, path: str) -> None:
    """The reward along the valley, standing still, with the true one; and the discounts with their intervals."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    places = np.column_stack([np.linspace(-1.1, 0.45, 120), np.zeros(120)])
    found, true = mh.reward_functions(solution), Car(gymnasium.make("MountainCar-v0").unwrapped)
    value, error = found.reward(places), 1.96 * found.reward_errors(places)
    left.fill_between(places[:, 0], value - error, value + error, alpha=0.25)
    left.plot(places[:, 0], value, label="found, 95% CI")
    left.plot(places[:, 0], true.reward(places), "k--", label="true")
    left.set(xlabel="position; the flag stands at 0.5", ylabel="reward")
    left.legend(frameon=False)
    low, high = solution.confidence_intervals(0.95).T
    right.hlines(range(len(low)), low, high, lw=4)
    planted = [DISCOUNTS[name] for name in solution.experts]
    right.plot(planted, range(len(low)), "k|", markersize=16, label="true")
    right.set_yticks(range(len(low)), solution.experts)
    right.set(xlabel="discount, 95% CI", xlim=(0, 1), ylim=(-0.5, len(low) - 0.5))
    right.legend(frameon=False)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--decisions", type=int, default=20_000, help="how many decisions per driver"
    )
    parser.add_argument("--picture", default="mountain-car.png", help="where the picture goes")
    options = parser.parse_args()
    draw(main(options.decisions), options.picture)
