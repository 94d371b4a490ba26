"""ClosedForm on tasks where many states have a single action, so that their actions leave much of the reward's values open.

Two kinds: slip grids, where what is open is constant on very many parts, and moves to random neighbours with two actions in half
of the states, where there are fewer equations than unknowns everywhere. Three experts. Seconds are of the processor.

Run: python benchmarks/null_spaces.py [--full]
"""

import sys
import time
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp
from rows import shown

import multihorizon as mh
from multihorizon.exact.equations import Differences

DISCOUNTS = (0.3, 0.6, 0.85)


def grid(side: int, share: float) -> mh.MDP:
    rng = np.random.default_rng(0)
    free = mh.domains.gridworld(side, side, slip=0.1, terminal=[(0, side - 1)])
    available = np.array(free.available)
    for state in np.flatnonzero(rng.random(free.n_states) < share):
        available[state] = np.arange(4) == rng.integers(4)
    return mh.MDP([free.transition(a) for a in range(4)], terminal=free.terminal, available=available)


def neighbours(n_states: int, reach: int = 10) -> mh.MDP:
    rng = np.random.default_rng(0)
    start, moves = np.repeat(np.arange(n_states), 4), []
    for _ in range(2):
        end = (start + rng.integers(-reach, reach + 1, start.size)) % n_states
        counts = sp.csr_array((rng.random(start.size), (start, end)), shape=(n_states, n_states))
        moves.append(sp.csr_array(sp.diags_array(1 / counts.sum(axis=1)) @ counts))
    available = np.ones((n_states, 2), dtype=bool)
    available[rng.random(n_states) < 0.5, 1] = False
    return mh.MDP(moves, available=available)


def measure(task: str, mdp: mh.MDP) -> dict[str, object]:
    reward = np.random.default_rng(1).normal(size=mdp.n_states)
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS])
    begun = time.process_time()
    found = mh.solve(problem, mh.ClosedForm())
    seconds = time.process_time() - begun
    null = Differences(mdp, mdp.live / 1.0).null_space
    return {
        "task": task,
        "states": mdp.n_states,
        "with one action": int((mdp.available.sum(axis=1) == 1).sum()),
        "open dimensions": null.coefficients.dimension if null.coefficients else null.basis.shape[1],
        "ClosedForm, s": seconds,
        "error in Γ": float(np.abs(found.discounts - DISCOUNTS).max()),
        "residual": found.residual,
        "status": str(found.status),
    }


def cases(full: bool) -> Iterator[dict[str, object]]:
    for side, share in ((60, 0.5), (100, 0.7), (200, 0.7), (300, 0.5))[: None if full else 2]:
        yield measure("grid", grid(side, share))
    for n_states in (3200, 10_000)[: None if full else 1]:
        yield measure("neighbours", neighbours(n_states))


if __name__ == "__main__":
    for row in cases("--full" in sys.argv):
        print(shown(row))
