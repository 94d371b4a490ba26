"""Planning horizons in a continuous task
======================================

Planning horizons of drivers in MountainCar, whose states are two numbers and whose dynamics nobody tells the fit.

.. code-block:: console

    $ pip install 'multihorizon[gymnasium]'
    $ python examples/mountain_car.py

A car stands in a valley and is too weak to climb out at once: who wants the flag on the right must first roll back to the left.
Three drivers like to be high up, and the flag most of all. They look 2, 5 and 20 decisions ahead. A decision holds the throttle
for eight frames of Gymnasium's MountainCar, and wind adds noise to the speed. The drivers are soft-optimal in the task on a
fine grid.

The fit sees position, speed and throttle, and nothing else, and learns where the throttle leads. It puts the drivers in the right
order. How far they look ahead it gets wrong: with 81,000 decisions it finds 0.38, 0.66 and 0.75 instead of 0.5, 0.8 and 0.95, the
intervals do not hold the truth, and the reward does not rise towards the flag. The drivers plan on a grid that blurs their moves,
which the fit cannot see, and this is a likely reason. Take it as an example of how to set up a fit, and of its limits.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import scipy.sparse as sp

import multihorizon as mh

DISCOUNTS = {"hasty": 0.5, "steady": 0.8, "patient": 0.95}
THROTTLE = ("back", "none", "forward")
#: Frames per decision, the wind's effect on the speed, and the points of the grid along each coordinate.
FRAMES, WIND, GRID = 8, 0.006, 41
HEIGHT, FLAG = 1.5, 6.0


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

    def drive(self, states: np.ndarray, action: np.ndarray, wind: np.ndarray) -> np.ndarray:
        """Positions and speeds `(n,2)` after one decision; whoever reaches the flag stays there."""
        x, v = states[:, 0].copy(), states[:, 1].copy()
        for _ in range(FRAMES):
            v = np.clip(v + (action - 1) * self.physics.force - np.cos(3 * x) * self.physics.gravity, -self.high[1], self.high[1])
            going = x < self.high[0]
            x = np.where(going, np.clip(x + v, self.low[0], self.high[0]), x)
            v = np.where((x <= self.low[0]) & (v < 0), 0.0, v)
        return np.column_stack([x, np.clip(v + wind, self.low[1], self.high[1])])

    def reward(self, states: np.ndarray) -> np.ndarray:
        """What arriving in states `(n,2)` pays: height, and being near the flag."""
        return HEIGHT * np.sin(3 * states[:, 0]) + FLAG * np.exp(-(((states[:, 0] - self.high[0]) / 0.2) ** 2))

    @cached_property
    def grid(self) -> np.ndarray:
        """The points `(GRID²,2)` of the grid."""
        axes = [np.linspace(low, high, GRID) for low, high in zip(self.low, self.high, strict=True)]
        return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)

    def weights(self, states: np.ndarray) -> sp.csr_array:
        """How states `(n,2)` are mixed from the four grid points around them."""
        place = np.clip((states - self.low) / (self.high - self.low), 0, 1) * (GRID - 1)
        corner = np.minimum(place.astype(int), GRID - 2)
        part = place - corner
        found = sp.csr_array((len(states), GRID * GRID))
        for i in (0, 1):
            for j in (0, 1):
                share = np.abs(1 - i - part[:, 0]) * np.abs(1 - j - part[:, 1])
                cells = (corner[:, 0] + i) * GRID + corner[:, 1] + j
                found = found + sp.csr_array((share, (np.arange(len(states)), cells)), shape=found.shape)
        return sp.csr_array(found)

    @cached_property
    def task(self) -> mh.MDP:
        """The task on the grid: the wind is averaged over three values, and grid points at the flag are terminal."""
        nodes, shares = np.sqrt(3.0) * WIND * np.array([-1, 0, 1]), np.array([1, 4, 1]) / 6
        end = self.grid[:, 0] >= self.high[0]
        moves = []
        for action in range(3):
            taken = np.full(len(self.grid), action)
            rows = [self.weights(self.drive(self.grid, taken, np.full(len(self.grid), gust))) for gust in nodes]
            moves.append(sp.diags_array(1.0 * ~end) @ sum(share * row for share, row in zip(shares, rows, strict=True)))
        return mh.MDP(moves, terminal=np.flatnonzero(end))


def log(car: Car, decisions: int, seed: int = 0) -> mh.Steps:
    """What the three drivers did: at least this many decisions each, in episodes of at most 40."""
    rng = np.random.default_rng(seed)
    rows: list[pd.DataFrame] = []
    for name, gamma in DISCOUNTS.items():
        q = mh.soft_plan(car.task, car.reward(car.grid), gamma).q
        cars = decisions // 15
        state = np.column_stack([rng.uniform(car.low[0], 0.4, cars), rng.uniform(-0.05, 0.05, cars)])
        running = np.arange(cars)
        for step in range(40):
            value = car.weights(state) @ q
            chance = np.exp(value - value.max(axis=1, keepdims=True))
            ladder = (chance / chance.sum(axis=1, keepdims=True)).cumsum(axis=1)
            action = (rng.uniform(size=(len(state), 1)) > ladder[:, :-1]).sum(axis=1)
            after = car.drive(state, action, WIND * rng.standard_normal(len(state)))
            done = after[:, 0] >= car.high[0]
            columns = {"expert": name, "episode": running, "step": step, "action": np.array(THROTTLE)[action], "terminated": done}
            columns |= {"position": state[:, 0], "speed": state[:, 1], "next_position": after[:, 0], "next_speed": after[:, 1]}
            rows.append(pd.DataFrame(columns))
            state, running = after[~done], running[~done]
    return mh.Steps.from_frame(pd.concat(rows), ["position", "speed"])


def main(decisions: int = 15_000, quick: bool = False) -> mh.Solution:
    """Run the example and return the solution; `quick` takes a small basis and prints nothing."""
    car = Car(gymnasium.make("MountainCar-v0").unwrapped)
    steps = log(car, decisions)
    options = mh.SieveLikelihood(basis=mh.Splines(6), penalty=0.1) if quick else mh.SieveLikelihood()
    solution = mh.solve(mh.SampledProblem(steps), options)
    if quick:
        return solution
    ends = solution.confidence_intervals(0.95)
    print(f"{len(steps):,} decisions, {solution.evidence['functions']} basis functions; {solution.status}")
    for name, gamma, (low, high) in zip(solution.experts, solution.discounts, ends, strict=True):
        print(f"  {name:8} true {DISCOUNTS[name]:.2f}  found {gamma:.3f}  95 % interval {low:.3f} to {high:.3f}")
    found = mh.functions(solution)
    for place in (-1.0, -0.5, 0.0, 0.45):
        print(f"  reward at position {place:5.2f}, standing still: {found.reward([[place, 0.0]])[0]:6.2f}")
    return solution


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=15_000, help="about how many decisions per driver")
    main(parser.parse_args().decisions)
