"""Reading gymnasium's tabular environments: `env.unwrapped.P[s][a]` is a list of (probability, next, reward, terminated).

A table may list a successor twice (FrozenLake at a wall) and may let a state that ended the episode move on (CliffWalking's
goal, Taxi's drop-offs). The first is summed; the second is cut: a state entered with `terminated` is terminal. Rows of states
that no episode reaches may disagree with that. If a reachable row disagrees, no MDP on these states describes the environment,
and it is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order

from multihorizon.checks import Bools, Floats, Ints


class _Moves(NamedTuple):
    """The columns of a transition table, one entry per move."""

    state: Ints
    action: Ints
    successor: Ints
    probability: Floats
    reward: Floats
    terminated: Bools


def read_gymnasium(env: Any) -> dict[str, Any]:
    """The arguments of `MDP` for a tabular environment."""
    moves, initial = _table(env)
    n_states, n_actions = initial.size, int(moves.action.max()) + 1
    terminal = np.zeros(n_states, dtype=np.bool_)
    terminal[moves.successor[moves.terminated & (moves.probability > 0)]] = True
    _check_reachable(moves, terminal, initial)
    live = ~terminal[moves.state]
    rows = moves.action[live] * n_states + moves.state[live]
    stacked = sp.csr_array((moves.probability[live], (rows, moves.successor[live])), shape=(n_actions * n_states, n_states))
    return {
        "transitions": [stacked[a * n_states : (a + 1) * n_states] for a in range(n_actions)],
        "initial": initial,
        "terminal": terminal,
    }


def gymnasium_reward(env: Any) -> Floats:
    """The expected immediate reward `(S,A)` of a tabular gymnasium environment."""
    moves, initial = _table(env)
    total = np.zeros((initial.size, int(moves.action.max()) + 1))
    np.add.at(total, (moves.state, moves.action), moves.probability * moves.reward)
    return total


def _table(env: Any) -> tuple[_Moves, Floats]:
    """The table, and the initial distribution."""
    bare = getattr(env, "unwrapped", env)
    table = getattr(bare, "P", None)
    if table is None:
        raise ValueError(
            f"the environment must have a transition table env.unwrapped.P, received {type(bare).__name__} without one"
        )
    entries = [(s, a, n, p, r, t) for s, row in table.items() for a, outs in row.items() for p, n, r, t in outs]
    moves = _Moves(*(np.array(column) for column in zip(*entries, strict=True)))
    n_states = len(table)
    initial = getattr(bare, "initial_state_distrib", None)
    start = np.full(n_states, 1 / n_states) if initial is None else np.asarray(initial, dtype=np.float64)
    return moves._replace(terminated=moves.terminated.astype(np.bool_)), start


def _check_reachable(table: _Moves, terminal: Bools, initial: Floats) -> None:
    """Refuse a state that a reachable transition enters without ending although another one ends there."""
    states, nexts = table.state, table.successor
    n = terminal.size
    moves = (table.probability > 0) & ~terminal[states]
    starts = np.flatnonzero(initial)
    sources = np.concatenate([states[moves], np.full(starts.size, n)])
    graph = sp.csr_array((np.ones(sources.size), (sources, np.concatenate([nexts[moves], starts]))), shape=(n + 1, n + 1))
    reachable = np.zeros(n + 1, dtype=np.bool_)
    reachable[breadth_first_order(graph, n, return_predecessors=False)] = True
    clash = moves & reachable[states] & terminal[nexts] & ~table.terminated
    if clash.any():
        entry = int(np.flatnonzero(clash)[0])
        raise ValueError(
            f"the environment must end every episode that enters state {int(nexts[entry])}, or none, "
            f"received one from state {int(states[entry])} that goes on"
        )
