"""`plan` against quantecon's modified policy iteration, in one run: filled and sparse random tasks, and slip grids.

    python benchmarks/planning.py [--full]

Filled tasks lead from every state to every other, sparse ones to five at random. Their reward is random, and given for arrival
in a state `(S,)`, or for states and actions `(S,A)`. Grids have a goal in one corner with a cost for each step, full of ties, or
a random reward. Processor seconds of one thread, the best of five. quantecon runs twice: with its own settings, which leave
errors, and until its values are within 1e-9 of exact, left out where that takes more than 30 times as many steps. `plan` always
answers exactly. `wrong` counts states for which quantecon's own settings choose an action that is not optimal.

It needs `pip install quantecon`. Building its tables is not counted, nor compiling it; it gets plain arrays for filled tasks and
sparse ones for the others, and `R(s,a)` ready-made. For a reward `(S,)`, `plan` finds `R(s,a)` itself, which is counted. `first`
is the first plan of a new MDP, with what the MDP keeps from then on.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from quantecon.markov import DiscreteDP
from rows import KINDS, print_cases, slip_grid

import multihorizon as mh


def sparse_task(n_states: int) -> mh.MDP:
    """Four actions, each with five successors drawn at random for every state."""
    rng, n = np.random.default_rng(0), n_states
    rows = np.repeat(np.arange(n), 5)
    chances = [rng.dirichlet(np.ones(5), size=n).ravel() for _ in range(4)]
    return mh.MDP([sp.csr_array((chance, (rows, rng.integers(0, n, 5 * n))), shape=(n, n)) for chance in chances])


def tasks(full: bool) -> Iterator[tuple[str, mh.MDP, np.ndarray, tuple[float, ...]]]:
    """What is planned for, by name, and at which discounts."""
    rng = np.random.default_rng(1)
    for states, actions in ((500, 20), (200, 100)):
        filled = mh.domains.random_mdp(states, actions, seed=1)
        yield "filled, (S,)", filled, rng.normal(size=states), (0.9, 0.99, 0.999, 0.9999)
        yield "filled, (S,A)", filled, rng.normal(size=(states, actions)), (0.9, 0.99, 0.999, 0.9999)
    for states in (2_500, 10_000, 90_000) if full else (2_500, 10_000):
        sparse = sparse_task(states)
        yield "sparse, (S,)", sparse, rng.normal(size=states), (0.9, 0.99, 0.999)
        yield "sparse, (S,A)", sparse, rng.normal(size=(states, 4)), (0.9, 0.99, 0.999)
    for side in (50, 100, 300) if full else (50, 100):
        for kind in KINDS:
            yield f"grid, {kind}", *slip_grid(side, kind), (0.9, 0.95, 0.99, 0.999)


def as_quantecon(mdp: mh.MDP, reward: np.ndarray, discount: float) -> DiscreteDP:
    """The same task for quantecon; endings become states that stay and pay nothing."""
    filled = mdp.stacked.nnz == mdp.n_actions * mdp.n_states**2
    if filled and mdp.available.all() and not mdp.terminal.any():
        transitions = np.ascontiguousarray(mdp.to_array().transpose(1, 0, 2))
        return DiscreteDP(np.ascontiguousarray(mdp.expected_reward(reward)), transitions, discount)
    states, actions = np.nonzero(mdp.available)
    ends = np.flatnonzero(mdp.terminal[states])
    loops = sp.csr_array((np.ones(ends.size), (ends, states[ends])), shape=(states.size, mdp.n_states))
    rows = sp.csr_matrix(mdp.stacked[actions * mdp.n_states + states] + loops)
    return DiscreteDP(mdp.expected_reward(reward)[states, actions], rows, discount, states, actions)


def seconds(run: Callable[[], Any], times: int = 5) -> tuple[float, Any]:
    best, found = np.inf, None
    for _ in range(times):
        start = time.process_time()
        found = run()
        best = min(best, time.process_time() - start)
        if best > 0.5:
            break
    return best, found


def unused(mdp: mh.MDP) -> mh.MDP:
    """The MDP without what it keeps from earlier plans."""
    other = copy.copy(mdp)
    for name in ("dense", "moves", "narrow"):
        other.__dict__.pop(name, None)
    return other


def compare(name: str, mdp: mh.MDP, reward: np.ndarray, discount: float) -> dict[str, object]:
    """Seconds of `plan` and of quantecon, with its own settings and to 1e-9, and how many of its own actions are wrong."""
    peer = as_quantecon(mdp, reward, discount)
    own, rough = seconds(lambda: peer.solve(method="mpi"))
    first, _ = seconds(lambda: mh.plan(unused(mdp), reward, discount))
    ours, plan = seconds(lambda: mh.plan(mdp, reward, discount))
    exact = peer.solve(method="mpi", epsilon=1e-9, max_iter=30 * rough.num_iter)
    reached = exact.num_iter < 30 * rough.num_iter
    finished = seconds(lambda: peer.solve(method="mpi", epsilon=1e-9, max_iter=10**6), 2)[0] if reached else None
    return {
        "task": name,
        "states": mdp.n_states,
        "actions": mdp.n_actions,
        "discount": f"{discount:g}",
        "plan, s": ours,
        "first, s": first,
        "residual": plan.residual,
        "quantecon, s": own,
        "its wrong actions": int((~plan.optimal_actions[np.arange(mdp.n_states), rough.sigma]).sum()),
        "ratio": ours / own,
        "quantecon to 1e-9, s": finished,
        "ratio to it": None if finished is None else ours / finished,
    }


def cases(full: bool) -> Iterator[dict[str, object]]:
    """A row for each task and discount."""
    for small in (slip_grid(5, "goal"), (mh.domains.random_mdp(5, 2), np.arange(5.0))):
        as_quantecon(*small, 0.9).solve(method="mpi")  # compiled on first use
    for name, mdp, reward, discounts in tasks(full):
        for discount in discounts:
            yield compare(name, mdp, reward, discount)


if __name__ == "__main__":
    print_cases(cases, __doc__)
