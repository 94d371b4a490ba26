"""A fit at a known discount by econirl, run by `known_discount.py` in an environment where econirl is installed.

    PYTHON benchmarks/econirl_peer.py TASK.npz

The task has `transitions` `(A,S,S)`, `features` `(S,A,d)`, the `discount`, and one entry per decision of `states`, `actions`,
`next_states` and `episodes`. What is printed, as JSON, is one entry per setting: the log-likelihood, processor seconds of the
first and of the second fit in this process, and the share of the second that JAX spent on tracing and compiling.

Settings are econirl's own, which compute standard errors as ours do, and looser ones, which do not: without standard errors, with
all decisions in one trajectory, and with tolerances that leave fewer digits.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from econirl.core.types import DDCProblem, Panel
from econirl.estimation.nfxp import NFXPEstimator
from econirl.preferences import LinearUtility

LOOSE = [
    {"compute_hessian": False, "optimizer": "BHHH", "inner_tol": 1e-6, "outer_tol": 1e-1},
    {"compute_hessian": False, "optimizer": "BHHH", "inner_tol": 1e-6, "outer_tol": 1e-3},
    {"compute_hessian": False, "optimizer": "L-BFGS-B", "inner_tol": 1e-8, "outer_tol": 1e-2},
]
#: JAX's name for all that it does before it computes.
COMPILING = "/jax/core/compile/"
#: Seconds of the clock that JAX spent on tracing and compiling since the last fit began.
compiling: list[float] = []


def fit(task: dict[str, np.ndarray], panel: Panel, options: dict[str, Any]) -> dict[str, Any]:
    """One fit: its log-likelihood, its processor seconds, and what share of its time went into compiling."""
    states, actions = task["features"].shape[:2]
    problem = DDCProblem(states, actions, discount_factor=float(task["discount"]))
    utility, moves = LinearUtility(jnp.array(task["features"])), jnp.array(task["transitions"])
    compiling.clear()
    begun, clock = time.process_time(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = NFXPEstimator(**options).estimate(panel, utility, problem, moves)
    spent, passed = time.process_time() - begun, time.perf_counter() - clock
    return {"value": float(found.log_likelihood), "seconds": spent, "compiling": min(1.0, sum(compiling) / passed)}


def twice(task: dict[str, np.ndarray], panel: Panel, options: dict[str, Any]) -> dict[str, Any]:
    """The same fit twice: the second may use what the first has compiled."""
    first, second = fit(task, panel, options), fit(task, panel, options)
    return {"options": options, "first": first["seconds"], **second}


def _listen(name: str, seconds: float, **_: Any) -> None:
    if name.startswith(COMPILING):
        compiling.append(seconds)


def main() -> None:
    jax.monitoring.register_event_duration_secs_listener(_listen)
    task = dict(np.load(sys.argv[1]))
    steps = [task[name] for name in ("states", "actions", "next_states")]
    own = twice(task, Panel.from_numpy(*steps, task["episodes"]), {})
    loose = [twice(task, Panel.from_numpy(*steps), options) for options in LOOSE]
    print(json.dumps({"version": version("econirl"), "own": own, "loose": loose}))


if __name__ == "__main__":
    main()
