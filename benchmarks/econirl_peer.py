"""A fit at a known discount by econirl, run by `known_discount.py` in an environment where econirl is installed.

    PYTHON benchmarks/econirl_peer.py TASK.npz OPTIONS

The task has `transitions` `(A,S,S)`, `features` `(S,A,d)`, the `discount`, and one entry per decision of `states`, `actions`,
`next_states` and `episodes`. OPTIONS are those of econirl's nested fixed point, as JSON. The fit is made twice, since the second
may use what the first has compiled. What is printed, as JSON, is the log-likelihood, the processor seconds of both fits, and the
share of the second that JAX spent on tracing and compiling.
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

#: JAX's name for all that it does before it computes.
COMPILING = "/jax/core/compile/"
#: Seconds of the clock that went into it since the last fit began.
compiling: list[float] = []


def fit(task: dict[str, np.ndarray], options: dict[str, Any]) -> dict[str, Any]:
    """One fit: its log-likelihood, its processor seconds, and what share of its time went into compiling."""
    panel = Panel.from_numpy(*(task[name] for name in ("states", "actions", "next_states", "episodes")))
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


def _listen(name: str, seconds: float, **_: Any) -> None:
    if name.startswith(COMPILING):
        compiling.append(seconds)


def main() -> None:
    jax.monitoring.register_event_duration_secs_listener(_listen)
    task, options = dict(np.load(sys.argv[1])), json.loads(sys.argv[2])
    first, second = fit(task, options), fit(task, options)
    print(json.dumps({"version": version("econirl"), "first": first["seconds"], **second}))


if __name__ == "__main__":
    main()
