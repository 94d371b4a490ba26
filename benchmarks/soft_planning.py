"""`soft_plan` against plain soft value iteration in NumPy and SciPy, on slip grids, in one run.

    python benchmarks/soft_planning.py [--full]

Processor seconds of one thread, the best of three. Value iteration stops at a residual of 1e-10, `soft_plan` at rounding.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import multihorizon as mh
from multihorizon.planning.soft_plan import SoftPlan

TARGET = 1e-10
DISCOUNTS = (0.5, 0.8, 0.9, 0.95, 0.99)


def sweep(mdp: mh.MDP, expected: np.ndarray, values: np.ndarray, discount: float) -> np.ndarray:
    q = expected + discount * mdp.expect(values)
    peak = q.max(axis=1)
    return np.where(mdp.terminal, 0.0, peak + np.log(np.exp(q - peak[:, None]).sum(axis=1)))


def value_iteration(mdp: mh.MDP, reward: np.ndarray, discount: float) -> tuple[float, int, np.ndarray]:
    start = time.process_time()
    expected = mdp.expect(reward)
    values, residual, sweeps = np.zeros(mdp.n_states), np.inf, 0
    while residual > TARGET:
        backed = sweep(mdp, expected, values, discount)
        residual, values, sweeps = float(np.abs(backed - values).max()), backed, sweeps + 1
    return time.process_time() - start, sweeps, values


def newton(mdp: mh.MDP, reward: np.ndarray, discount: float) -> tuple[float, SoftPlan]:
    start = time.process_time()
    plan = mh.soft_plan(mdp, reward, discount)
    return time.process_time() - start, plan


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true", help="300 × 300 cells as well")
    sides = (50, 100, 300) if parser.parse_args().full else (50, 100)
    print("states  task    discount  soft_plan  steps  residual   sweeps: seconds  number  ratio  difference")
    for side in sides:
        mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[(0, side - 1)])
        rewards = {"goal": np.full(mdp.n_states, -0.1), "random": np.random.default_rng(0).normal(size=mdp.n_states)}
        rewards["goal"][side - 1] = 10.0
        for kind, reward in rewards.items():
            for discount in DISCOUNTS:
                ours, plan = min((newton(mdp, reward, discount) for _ in range(3)), key=lambda run: run[0])
                swept, sweeps, values = min(
                    (value_iteration(mdp, reward, discount) for _ in range(3 if side <= 100 else 1)), key=lambda run: run[0]
                )
                print(
                    f"{mdp.n_states:6d}  {kind:6}  {discount:8}  {ours:9.4f}  {plan.iterations:5d}  {plan.residual:8.1e}   "
                    f"{swept:15.4f}  {sweeps:6d}  {ours / swept:5.2f}  {np.abs(values - plan.values).max():10.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
