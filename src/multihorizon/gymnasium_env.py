"""Reading gymnasium's tabular environments: `env.unwrapped.P[s][a]` is a list of (probability, next, reward, terminated).

A table may list a successor twice (FrozenLake at a wall) and may let a state that ended the episode move on (CliffWalking's
goal, Taxi's drop-offs). The first is summed; the second is cut: a state entered with `terminated` is terminal. Rows of states
that no episode reaches are allowed to disagree with that; a reachable disagreement has no MDP on these states and is refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order

from multihorizon.checks import Bools, Floats


def read_gymnasium(env: Any) -> dict[str, Any]:
    """The arguments of `MDP` for a tabular environment."""
    rows, initial = _table(env)
    states, actions, nexts, probabilities, _, terminated = rows
    n_states, n_actions = initial.size, int(actions.max()) + 1
    terminal = np.zeros(n_states, dtype=np.bool_)
    terminal[nexts[terminated & (probabilities > 0)]] = True
    _check_reachable(rows, terminal, initial)
    live = ~terminal[states]
    stacked = sp.csr_array(
        (probabilities[live], (actions[live] * n_states + states[live], nexts[live])),
        shape=(n_actions * n_states, n_states),
    )
    return {
        "transitions": [stacked[a * n_states : (a + 1) * n_states] for a in range(n_actions)],
        "initial": initial,
        "terminal": terminal,
    }


def gymnasium_reward(env: Any) -> Floats:
    """The expected immediate reward `(S,A)` of a tabular gymnasium environment."""
    (states, actions, _, probabilities, rewards, _), initial = _table(env)
    total = np.zeros((initial.size, int(actions.max()) + 1))
    np.add.at(total, (states, actions), probabilities * rewards)
    return total


def _table(env: Any) -> tuple[tuple[Any, ...], Floats]:
    """The table as six columns (state, action, next, probability, reward, terminated), and the initial distribution."""
    bare = getattr(env, "unwrapped", env)
    table = getattr(bare, "P", None)
    if table is None:
        raise ValueError(
            f"the environment must have a transition table env.unwrapped.P, received {type(bare).__name__} without one"
        )
    entries = [(s, a, n, p, r, t) for s, row in table.items() for a, outs in row.items() for p, n, r, t in outs]
    states, actions, nexts, probabilities, rewards, terminated = (np.array(column) for column in zip(*entries, strict=True))
    n_states = len(table)
    initial = getattr(bare, "initial_state_distrib", None)
    start = np.full(n_states, 1 / n_states) if initial is None else np.asarray(initial, dtype=np.float64)
    return (states, actions, nexts, probabilities, rewards, terminated.astype(np.bool_)), start


def _check_reachable(rows: tuple[Any, ...], terminal: Bools, initial: Floats) -> None:
    """Refuse a state that a reachable transition enters without ending although another one ends there."""
    states, _, nexts, probabilities, _, terminated = rows
    n = terminal.size
    moves = (probabilities > 0) & ~terminal[states]
    starts = np.flatnonzero(initial)
    sources = np.concatenate([states[moves], np.full(starts.size, n)])
    graph = sp.csr_array((np.ones(sources.size), (sources, np.concatenate([nexts[moves], starts]))), shape=(n + 1, n + 1))
    reachable = np.zeros(n + 1, dtype=np.bool_)
    reachable[breadth_first_order(graph, n, return_predecessors=False)] = True
    clash = moves & reachable[states] & terminal[nexts] & ~terminated
    if clash.any():
        entry = int(np.flatnonzero(clash)[0])
        raise ValueError(
            f"the environment must end every episode that enters state {int(nexts[entry])}, or none, "
            f"received one from state {int(states[entry])} that goes on"
        )
