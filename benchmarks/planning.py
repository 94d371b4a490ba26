"""`plan` against quantecon's modified policy iteration, on slip grids, in one run.

    python benchmarks/planning.py [--full]

Two tasks: a goal in one corner with a cost for each step, full of ties, and a random reward. Processor seconds of one thread, the
best of three. quantecon runs twice: with its own settings, which leave errors, and until its values are within 1e-9 of exact.
`plan` always answers exactly. `wrong` counts states for which quantecon's own settings choose an action that is not optimal.
It needs `pip install quantecon`; building its tables is not counted.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from quantecon.markov import DiscreteDP
from rows import KINDS, print_cases, slip_grid

import multihorizon as mh

DISCOUNTS = (0.95, 0.99, 0.999)


def as_quantecon(mdp: mh.MDP, reward: np.ndarray, discount: float) -> DiscreteDP:
    """The same task for quantecon; endings become states that stay and pay nothing."""
    states, actions = np.nonzero(mdp.available)
    ends = np.flatnonzero(mdp.terminal[states])
    loops = sp.csr_array((np.ones(ends.size), (ends, states[ends])), shape=(states.size, mdp.n_states))
    rows = sp.csr_matrix(mdp.stacked[actions * mdp.n_states + states] + loops)
    return DiscreteDP(mdp.expected_reward(reward)[states, actions], rows, discount, states, actions)


def seconds(run: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    best, found = np.inf, None
    for _ in range(times):
        start = time.process_time()
        found = run()
        best = min(best, time.process_time() - start)
        if best > 2:
            break
    return best, found


def compare(side: int, kind: str, discount: float) -> dict[str, object]:
    """Seconds of `plan` and of quantecon, with its own settings and to 1e-9, and how many of its own actions are wrong."""
    mdp, reward = slip_grid(side, kind)
    ours, plan = seconds(lambda: mh.plan(mdp, reward, discount))
    peer = as_quantecon(mdp, reward, discount)
    own, rough = seconds(lambda: peer.solve(method="mpi"))
    exact, _ = seconds(lambda: peer.solve(method="mpi", epsilon=1e-9, max_iter=10**6))
    return {
        "states": mdp.n_states,
        "task": kind,
        "discount": discount,
        "plan, s": ours,
        "residual": plan.residual,
        "quantecon, s": own,
        "its wrong actions": int((~plan.optimal_actions[np.arange(mdp.n_states), rough.sigma]).sum()),
        "ratio": ours / own,
        "quantecon to 1e-9, s": exact,
        "ratio to it": ours / exact,
    }


def cases(full: bool) -> Iterator[dict[str, object]]:
    """A row for each size, reward and discount."""
    as_quantecon(*slip_grid(5, "goal"), 0.9).solve(method="mpi")  # compiled on first use
    for side, kind, discount in itertools.product((100, 300) if full else (100,), KINDS, DISCOUNTS):
        yield compare(side, kind, discount)


if __name__ == "__main__":
    print_cases(cases, __doc__)
