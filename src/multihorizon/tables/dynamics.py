"""Transitions from the table itself, and the table checked against given ones.

*Estimated.* With `n(s,a,t)` the logged moves from s to t under a, and `q(t|s)` the share of t among all moves from s,

    T̂(t|s,a) = (n(s,a,t) + α q(t|s)) / (n(s,a) + α).

α moves are added that know where one goes from s, not by which action; a larger α makes the actions of a state more alike. An
action that nobody took in a state is unavailable there, because nothing is known of where it leads. A state in which nobody
decided is terminal: episodes ended on it. The initial distribution is the share of each state among the episodes' first ones.

*Given.* A logged move of probability 0 contradicts the transitions; `impossible_moves` lists them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.checks import Ints, as_floats
from multihorizon.mdp import MDP
from multihorizon.tables.demonstrations import Demonstrations

#: α: half a move a state and action, little against the dozens that an estimate needs anyway.
SMOOTHING = 0.5


def estimate_mdp(demonstrations: Demonstrations, smoothing: float = SMOOTHING) -> MDP:
    """The MDP of a table with `next_state`, with the table's states and actions as names.

    Args:
        demonstrations: decisions with their next states.
        smoothing: α ≥ 0.

    Raises:
        ValueError: where a next state is missing, or every state is one in which nobody decided.

    Example:
        >>> from multihorizon.domains import cliff
        >>> table = Demonstrations.simulate(cliff().mdp, cliff().mce_experts(), episodes=200)
        >>> estimate_mdp(table).n_states
        12
    """
    alpha = float(as_floats(smoothing, "smoothing"))
    if alpha < 0:
        raise ValueError(f"smoothing must be at least 0, received {alpha}")
    _require_next(demonstrations)
    n_states, n_actions = len(demonstrations.states), len(demonstrations.actions)
    moves = _counts(demonstrations, demonstrations.action * n_states + demonstrations.state, n_actions * n_states)
    pooled = _counts(demonstrations, demonstrations.state, n_states)
    taken = moves.sum(axis=1)
    share = sp.diags_array(1 / np.maximum(pooled.sum(axis=1), 1.0)) @ pooled
    rows = np.flatnonzero(taken)
    known = sp.csr_array((np.ones(rows.size), (rows, rows % n_states)), shape=(taken.size, n_states))
    scale = sp.diags_array(np.where(taken > 0, 1 / (taken + alpha), 0.0))
    stacked = (scale @ (moves + alpha * (known @ share))).tocsr()
    available = (taken > 0).reshape(n_actions, n_states).T
    decided = available.any(axis=1)
    first = demonstrations.first_rows
    return MDP(
        [stacked[a * n_states : (a + 1) * n_states] for a in range(n_actions)],
        initial=np.bincount(demonstrations.state[first], minlength=n_states) / first.size,
        terminal=~decided,
        available=available,
        state_names=demonstrations.states,
        action_names=demonstrations.actions,
    )


def impossible_moves(demonstrations: Demonstrations, mdp: MDP) -> pd.DataFrame:
    """The logged moves that the MDP gives probability 0, one row each: `state, action, next_state`, how often, and where first.

    Decisions without a next state are not looked at.
    """
    demonstrations.counts(mdp)
    known = np.flatnonzero(demonstrations.next_state >= 0)
    states, actions = demonstrations.match(mdp)
    rows = actions[demonstrations.action[known]] * mdp.n_states + states[demonstrations.state[known]]
    arrived = states[demonstrations.next_state[known]]
    possible = _entries(mdp.stacked, rows, arrived)
    wrong = known[~possible]
    frame = demonstrations.select(wrong).to_frame()
    if frame.empty:
        return pd.DataFrame(columns=["state", "action", "next_state", "count", "expert", "episode", "step"])
    groups = frame.groupby(["state", "action", "next_state"], sort=False)
    listed = groups.agg(count=("step", "size"), expert=("expert", "first"), episode=("episode", "first"), step=("step", "first"))
    return listed.reset_index()


def require_possible(demonstrations: Demonstrations, mdp: MDP, most: int = 5) -> None:
    """Raise one sentence that lists the impossible moves, if there are any."""
    wrong = impossible_moves(demonstrations, mdp)
    if wrong.empty:
        return
    listed = "; ".join(
        f"from {row.state} by {row.action} to {row.next_state} (expert {row.expert}, episode {row.episode}, step {row.step})"
        for row in wrong.head(most).itertuples()
    )
    rest = "" if len(wrong) <= most else f"; and {len(wrong) - most} more"
    raise ValueError(f"the table must agree with the transitions, received {len(wrong)} impossible moves: {listed}{rest}")


def _require_next(demonstrations: Demonstrations) -> None:
    missing = np.flatnonzero(demonstrations.next_state < 0)
    if missing.size == len(demonstrations):
        raise ValueError("without transitions the table must have a column next_state to estimate them from, received none")
    if missing.size:
        row = int(missing[0])
        raise ValueError(f"{demonstrations.where(row)} must have a next_state to estimate transitions from, received none")


def _counts(demonstrations: Demonstrations, rows: Ints, n_rows: int) -> Any:
    """How often each row moved to each state, `(n_rows, S)` CSR."""
    n_states = len(demonstrations.states)
    cells, counts = np.unique(rows * n_states + demonstrations.next_state, return_counts=True)
    return sp.csr_array((counts / 1.0, np.divmod(cells, n_states)), shape=(n_rows, n_states))


def _entries(matrix: Any, rows: Ints, columns: Ints) -> Any:
    """Whether the matrix has a positive entry at each of the given places, by looking each distinct one up once."""
    width = matrix.shape[1]
    cells = np.unique(np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) * width + matrix.indices)
    wanted = rows * width + columns
    place = np.minimum(np.searchsorted(cells, wanted), max(cells.size - 1, 0))
    return cells[place] == wanted if cells.size else np.zeros(wanted.size, dtype=np.bool_)
