"""Soft planning on a large slip grid: Newton's method against plain soft value iteration, in one run.

    python benchmarks/soft_planning.py [side]

Prints the time to build the grid, and the time each method takes to the same residual.
"""

import sys
import time

import numpy as np

import multihorizon as mh

TARGET = 1e-10


def sweep(mdp: mh.MDP, expected: np.ndarray, values: np.ndarray, discount: float) -> np.ndarray:
    q = expected + discount * mdp.expect(values)
    peak = q.max(axis=1)
    return np.where(mdp.terminal, 0.0, peak + np.log(np.exp(q - peak[:, None]).sum(axis=1)))


def main(side: int = 500, discount: float = 0.9) -> None:
    start = time.perf_counter()
    mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(0, side - 1)])
    print(f"{mdp.n_states} states, {mdp.n_actions} actions: built in {time.perf_counter() - start:.2f} s")
    reward = np.full(mdp.n_states, -0.1)
    reward[side - 1] = 10.0

    start = time.perf_counter()
    soft = mh.soft_plan(mdp, reward, discount)
    newton = time.perf_counter() - start
    print(f"Newton: {soft.iterations} steps, residual {soft.residual:.1e}, {newton:.2f} s")

    start = time.perf_counter()
    expected = mdp.expect(reward)
    values, residual, sweeps = np.zeros(mdp.n_states), np.inf, 0
    while residual > TARGET:
        backed = sweep(mdp, expected, values, discount)
        residual, values, sweeps = float(np.abs(backed - values).max()), backed, sweeps + 1
    iteration = time.perf_counter() - start
    print(f"value iteration: {sweeps} sweeps, residual {residual:.1e}, {iteration:.2f} s")
    print(f"Newton is {iteration / newton:.1f} times as fast; largest difference {np.abs(values - soft.values).max():.1e}")


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
