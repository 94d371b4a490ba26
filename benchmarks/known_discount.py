"""A fit at known discounts against nested fixed points, at equal likelihood.

    python benchmarks/known_discount.py [--full] [--econirl PYTHON]

`MaximumLikelihood(discounts=…)` fits the decisions of one expert through the public option. The tasks are endless slip grids with
six features, and a bus engine of 90 states that is kept or replaced, after Rust (1987). Processor seconds of one thread; ours are
the best of three fits.

The peers are a stand-in of our own, soft value iteration to 1e-10 inside and SciPy's L-BFGS-B with differenced gradients outside,
and econirl, which needs JAX: PYTHON is the interpreter of an environment of its own, made by `pip install econirl`. It fits the
same decisions with its own settings, and with the quickest of a few looser ones that reach our log-likelihood to a millionth
(`econirl_peer.py`). It compiles anew in every fit; its figures are of the second fit in one process, with and without the share
of compiling.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

import multihorizon as mh

#: A log-likelihood is reached when this share of it is missing at most.
REACHED = 1e-6
#: Settings of econirl without standard errors and with tolerances that leave fewer digits than its own.
LOOSER: list[dict[str, object]] = [
    {"compute_hessian": False, "optimizer": "BHHH", "inner_tol": 1e-6, "outer_tol": 1e-1},
    {"compute_hessian": False, "optimizer": "BHHH", "inner_tol": 1e-6, "outer_tol": 1e-3},
    {"compute_hessian": False, "optimizer": "L-BFGS-B", "inner_tol": 1e-8, "outer_tol": 1e-2},
]
#: One thread for all that JAX computes.
ONE_THREAD = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Task:
    """A task with the features `(S,A,d)` of its reward, one discount, and the decisions of one expert."""

    name: str
    mdp: mh.MDP
    features: np.ndarray
    discount: float
    table: mh.Demonstrations

    @property
    def problem(self) -> mh.Problem:
        """What is fitted."""
        rows = self.features.transpose(1, 0, 2).reshape(-1, self.features.shape[2])
        return mh.Problem(self.mdp, self.table, features=rows)

    def save(self, path: Path) -> None:
        """The task as arrays, for other programs."""
        place = self.table.match(self.mdp)
        states, actions = place[0][self.table.state], place[1][self.table.action]
        moves = self.mdp.to_array()
        arrays = {"states": states, "actions": actions, "next_states": place[0][self.table.next_state]}
        episodes = np.zeros_like(states)  # one for all: econirl joins them anew at every evaluation, which takes long
        np.savez(path, transitions=moves, features=self.features, discount=self.discount, episodes=episodes, **arrays)


def grid(side: int, discount: float = 0.95, features: int = 6) -> Task:
    rng = np.random.default_rng(0)
    mdp = mh.domains.gridworld(side, side, slip=0.1)
    arrival = rng.normal(size=(mdp.n_states, features))
    paid = (mdp.stacked @ arrival).reshape(mdp.n_actions, mdp.n_states, features).transpose(1, 0, 2)
    policy = mh.soft_plan(mdp, paid @ (rng.normal(size=features) / 3), discount).policy
    return Task("grid", mdp, paid, discount, mh.Demonstrations.simulate(mdp, [policy], 300, max_steps=100))


def bus(states: int = 90, discount: float = 0.9999) -> Task:
    """Mileage grows by 0, 1 or 2; running costs grow with it, and a new engine, which begins at 0, has a fixed cost."""
    moves = np.zeros((2, states, states))
    for more, probability in enumerate((0.39, 0.6, 0.01)):
        for mileage in range(states):
            moves[0, mileage, min(mileage + more, states - 1)] += probability
            moves[1, mileage, more] += probability
    features = np.zeros((states, 2, 2))
    features[:, 0, 0], features[:, 1, 1] = -0.001 * np.arange(states), -1.0
    mdp = mh.MDP(moves, initial=np.eye(states)[0])
    policy = mh.soft_plan(mdp, features @ np.array([2.6, 9.8]), discount).policy
    return Task("bus", mdp, features, discount, mh.Demonstrations.simulate(mdp, [policy], 100, max_steps=100))


def nested_fixed_point(task: Task) -> float:
    """The log-likelihood that the stand-in reaches."""
    counts = task.table.counts(task.mdp)[0]

    def backup(expected: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        q = expected + task.discount * task.mdp.expect(values)
        peak = q.max(axis=1)
        return q, peak + np.log(np.exp(q - peak[:, None]).sum(axis=1))

    def negative(theta: np.ndarray) -> float:
        values, residual = np.zeros(task.mdp.n_states), np.inf
        while residual > 1e-10:
            q, backed = backup(task.features @ theta, values)
            residual, values = float(np.abs(backed - values).max()), backed
        return -float((counts * (q - values[:, None])).sum())

    start = np.zeros(task.features.shape[2])
    return -float(minimize(negative, start, method="L-BFGS-B", options={"maxiter": 500, "maxfun": 100_000}).fun)


def ours(task: Task) -> tuple[mh.Solution, float]:
    """The fit, and its processor seconds."""
    problem, seconds = task.problem, np.inf
    for _ in range(3):
        begun = time.process_time()
        found = mh.solve(problem, mh.MaximumLikelihood(discounts=task.discount, temperature=1.0))
        seconds = min(seconds, time.process_time() - begun)
    return found, seconds


def against_stand_in(task: Task) -> dict[str, object]:
    found, seconds = ours(task)
    begun = time.process_time()
    reached = nested_fixed_point(task)
    return _row(task, found, seconds, "our stand-in", found.objective - reached, time.process_time() - begun, None)


def against_econirl(task: Task, python: str) -> list[dict[str, object]]:
    """Two rows: econirl with its own settings, and with the quickest looser settings that reach our log-likelihood."""
    found, seconds = ours(task)
    own = econirl(task, python, {})
    looser = [econirl(task, python, settings) for settings in LOOSER]
    enough = [end for end in looser if found.objective - end["value"] <= REACHED * abs(found.objective)]
    ends = {"its own": own, "looser": min(enough, key=lambda end: end["seconds"], default=None)}
    return [
        _row(task, found, seconds, f"econirl {end['version']}, {name}", found.objective - end["value"], end["seconds"], end)
        for name, end in ends.items()
        if end is not None
    ]


def econirl(task: Task, python: str, settings: dict[str, object]) -> dict[str, Any]:
    """What `econirl_peer.py` says of one setting, in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        task.save(Path(folder, "task.npz"))
        program = Path(__file__).with_name("econirl_peer.py")
        command = [python, str(program), str(Path(folder, "task.npz")), json.dumps(settings)]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **ONE_THREAD})
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


def _row(
    task: Task, found: mh.Solution, seconds: float, peer: str, less: float, its: float, end: dict[str, float] | None
) -> dict[str, object]:
    bare = None if end is None else its * (1 - end["compiling"])
    return {
        "task": task.name,
        "states": task.mdp.n_states,
        "fit, s": seconds,
        "status": str(found.status),
        "peer": peer,
        "its likelihood is lower by": less,
        "its fit, s": its,
        "times as fast": its / seconds,
        "without compiling, s": bare,
        "times as fast as that": None if bare is None else bare / seconds,
    }


def rows(full: bool, econirl: str | None) -> list[dict[str, object]]:
    """All comparisons."""
    ours(grid(3))  # loads what is imported on first use
    grids = [grid(side) for side in ((10, 20, 30) if full else (10, 20))]
    found = [against_stand_in(task) for task in grids]
    for task in (*grids, bus()) if econirl else ():
        found += against_econirl(task, str(econirl))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="30 × 30 cells as well")
    parser.add_argument("--econirl", metavar="PYTHON", help="the interpreter of an environment where econirl is installed")
    options = parser.parse_args()
    for row in rows(options.full, options.econirl):
        print(", ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()))


if __name__ == "__main__":
    main()
