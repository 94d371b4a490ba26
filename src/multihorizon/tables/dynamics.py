"""Transitions from the table itself, and the table checked against given ones.

*Estimated.* With `n(s,a,t)` the logged moves from s to t under a, and `q(t|s)` the share of t among all moves from s,

    T̂(t|s,a) = (n(s,a,t) + α q(t|s)) / (n(s,a) + α).

The α added moves go where moves from s usually go, whatever the action; a larger α makes the actions of a state more alike. The
covariance of the row is that of `n(s,a)` independent moves, shrunk as the row is:

    Cov T̂(·|s,a) = (diag(p) − p p') n / (n + α)²,   p = T̂(·|s,a),   n = n(s,a),

so `MDP.sample_sizes` is `(n + α)² / n`. The error of q is left out: it has the small weight α / (n + α).

A state in which nobody decided is terminal: episodes ended there. The initial distribution is the share of each state among the
episodes' first ones.

*Actions nobody took.* Nothing in the table says where such an action leads, and no other state can stand in: "down" may mean
something else there. So it counts as unavailable, and a fit learns nothing from the fact that nobody took it. `untaken_actions`
lists them. Where the user knows where they lead, `known` supplies those rows, and avoiding them counts as evidence.

*Given.* A logged move of probability 0 contradicts the transitions; `impossible_moves` lists them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from multihorizon.checks import Bools, Ints, as_floats
from multihorizon.files.labels import in_order, positions
from multihorizon.mdp import MDP
from multihorizon.tables.cells import Decision
from multihorizon.tables.demonstrations import Demonstrations
from multihorizon.tolerances import SMOOTHING

#: A sentence lists at most this many items.
LISTED = 5


def estimate_mdp(demonstrations: Demonstrations, smoothing: float = SMOOTHING, known: MDP | None = None) -> MDP:
    """The MDP of a table with `next_state`, under the table's names for states and actions.

    Args:
        demonstrations: decisions with their next states.
        smoothing: α ≥ 0.
        known: transitions that need no estimating. Each action that is available in a state that is not terminal there keeps its
            row; all other rows are estimated. It may name states and actions that the table does not.

    Returns:
        An MDP whose `sample_sizes` say how many moves stand behind each row.

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
    states, actions = _names(demonstrations, known)
    n, cells = len(states), demonstrations.cells
    place = positions(demonstrations.states, states, "state")
    state, arrived = place[cells.state], place[cells.next_state]
    rows = positions(demonstrations.actions, actions, "action")[cells.action] * n + state
    given, is_given = _given_rows(known, states, actions)
    _require_next(demonstrations, ~is_given[rows])
    logged = cells.next_state >= 0
    moves = _counts(rows[logged], arrived[logged], cells.count[logged], (len(actions) * n, n))
    pooled = _counts(state[logged], arrived[logged], cells.count[logged], (n, n))
    taken = moves.sum(axis=1)
    estimated = (taken > 0) & ~is_given
    stacked = sp.csr_array(given + sp.diags_array(1.0 * estimated) @ _smoothed(moves, pooled, alpha))
    available = (estimated | is_given).reshape(len(actions), n).T
    begun = np.bincount(place[: len(demonstrations.states)], demonstrations.first_states, minlength=n)
    return MDP(
        [stacked[a * n : (a + 1) * n] for a in range(len(actions))],
        initial=begun / begun.sum(),
        terminal=~available.any(axis=1),
        available=available,
        state_names=states,
        action_names=actions,
        sample_sizes=np.where(estimated, (taken + alpha) ** 2 / np.maximum(taken, 1.0), np.inf),
    )


def untaken_actions(mdp: MDP) -> dict[str, tuple[str, ...]]:
    """Of an estimated MDP, the actions that nobody took, by state: they count as unavailable there.

    Example:
        >>> rows = [("ann", 0, 0, "x", "go", "y"), ("ann", 0, 1, "y", "stay", "z")]
        >>> columns = ["expert", "episode", "step", "state", "action", "next_state"]
        >>> untaken_actions(estimate_mdp(Demonstrations.from_frame(pd.DataFrame(rows, columns=columns))))
        {'x': ('stay',), 'y': ('go',)}
    """
    missing = ~mdp.available & ~mdp.terminal[:, None]
    return {
        mdp.state_names[s]: tuple(mdp.action_names[a] for a in np.flatnonzero(missing[s]))
        for s in np.flatnonzero(missing.any(axis=1))
    }


def describe_estimate(mdp: MDP, smoothing: float) -> list[str]:
    """What was assumed where transitions were estimated, in sentences for a report."""
    ends = [name for name, end in zip(mdp.state_names, mdp.terminal, strict=True) if end]
    sentences = [
        f"Transitions were estimated from next_state, with {smoothing:g} smoothing moves per state and action. "
        f"States in which nobody decided end an episode: {_listed(ends) if ends else 'there are none'}."
    ]
    untaken = untaken_actions(mdp)
    if untaken:
        places = [f"{', '.join(actions)} in {state}" for state, actions in untaken.items()]
        sentences.append(
            f"Nobody took {_listed(places)}. Where these actions lead is not known, so they were left out: that everybody avoids "
            "them is not counted as evidence, and rewards of places they may lead to can be far too high. If they are possible, "
            "list where they lead in a CSV with the columns state, action, next_state, probability, and give it with "
            "--transitions FILE --estimate-rest."
        )
    return sentences


def impossible_moves(demonstrations: Demonstrations, mdp: MDP) -> pd.DataFrame:
    """The logged moves that the MDP gives probability 0, one row each: `state, action, next_state`, how often, and where first.

    Decisions without a next state are not looked at.
    """
    cells, found = demonstrations.cells, _impossible(demonstrations, mdp)
    rows = [
        (
            demonstrations.states[cells.state[cell]],
            demonstrations.actions[cells.action[cell]],
            demonstrations.states[cells.next_state[cell]],
            count,
            decision.expert,
            decision.episode,
            decision.step,
        )
        for cell, count, decision in found
    ]
    return pd.DataFrame(rows, columns=["state", "action", "next_state", "count", "expert", "episode", "step"])


def require_possible(demonstrations: Demonstrations, mdp: MDP) -> None:
    """Raise one sentence that lists the impossible moves, if there are any."""
    found, cells = _impossible(demonstrations, mdp), demonstrations.cells
    if not found:
        return
    moves = [
        f"from {demonstrations.states[cells.state[cell]]} by {demonstrations.actions[cells.action[cell]]} "
        f"to {demonstrations.states[cells.next_state[cell]]} ({decision})"
        for cell, _, decision in found
    ]
    listed = f"{len(moves)} impossible move{'s' if len(moves) > 1 else ''}: {_listed(moves)}"
    raise ValueError(f"the decisions must agree with the transitions, received {listed}")


def _impossible(demonstrations: Demonstrations, mdp: MDP) -> list[tuple[int, int, Decision]]:
    """The moves of probability 0, in the order in which they first occur: a cell of each, how often, and the first decision."""
    demonstrations.counts(mdp)
    cells, (states, actions) = demonstrations.cells, demonstrations.match(mdp)
    rows = actions[cells.action] * mdp.n_states + states[cells.state]
    known = cells.next_state >= 0
    wrong = np.flatnonzero(known & ~_entries(mdp.stacked, rows, np.where(known, states[cells.next_state], 0)))
    moves: dict[tuple[int, int], list[tuple[int, Decision]]] = {}
    for cell, decision in zip(wrong.tolist(), demonstrations.decisions.first(wrong) if wrong.size else (), strict=True):
        moves.setdefault((int(rows[cell]), int(cells.next_state[cell])), []).append((cell, decision))
    found = []
    for pairs in moves.values():
        cell, decision = min(pairs, key=lambda pair: pair[1].order)
        found.append((cell, int(cells.count[[number for number, _ in pairs]].sum()), decision))
    return sorted(found, key=lambda move: move[2].order)


def _listed(items: list[str]) -> str:
    rest = "" if len(items) <= LISTED else f"; and {len(items) - LISTED} more"
    return "; ".join(items[:LISTED]) + rest


def _names(demonstrations: Demonstrations, known: MDP | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The states and the actions of the table and of what is known."""
    if known is None:
        return demonstrations.states, demonstrations.actions
    states, actions = {*demonstrations.states, *known.state_names}, {*demonstrations.actions, *known.action_names}
    return in_order(states), in_order(actions)


def _given_rows(known: MDP | None, states: tuple[str, ...], actions: tuple[str, ...]) -> tuple[Any, Bools]:
    """The known rows at their places among the given names, `(A·S,S)`, and which they are, `(A·S,)`."""
    shape = (len(actions) * len(states), len(states))
    if known is None:
        return sp.csr_array(shape), np.zeros(shape[0], dtype=np.bool_)
    place, column = positions(known.action_names, actions, "action"), positions(known.state_names, states, "state")
    rows = (place[:, None] * len(states) + column).ravel()
    entries = known.stacked.tocoo()
    matrix = sp.csr_array((entries.data, (rows[entries.coords[0]], column[entries.coords[1]])), shape=shape)
    is_given = np.zeros(shape[0], dtype=np.bool_)
    is_given[rows] = known.live.T.ravel()
    return matrix, is_given


def _smoothed(moves: Any, pooled: Any, alpha: float) -> Any:
    """T̂ in the rows that have moves, zero in the others."""
    taken, n_states = moves.sum(axis=1), moves.shape[1]
    share = sp.diags_array(1 / np.maximum(pooled.sum(axis=1), 1.0)) @ pooled
    rows = np.flatnonzero(taken)
    state_of = sp.csr_array((np.ones(rows.size), (rows, rows % n_states)), shape=moves.shape)
    scale = sp.diags_array(np.where(taken > 0, 1 / (taken + alpha + (taken == 0)), 0.0))
    return scale @ (moves + alpha * (state_of @ share))


def _require_next(demonstrations: Demonstrations, needed: Bools) -> None:
    missing = (demonstrations.cells.next_state < 0) & needed
    if missing.all():
        raise ValueError(
            f"{demonstrations.name} must have a column next_state to estimate transitions from, received none: "
            "add it, or give the transitions"
        )
    if missing.any():
        decision = demonstrations.first(missing)[1]
        raise ValueError(
            f"{decision} must have a next_state to estimate transitions from, received none: "
            "after the last step, it is the name of how the episode ended"
        )


def _counts(rows: Ints, columns: Ints, counts: Ints, shape: tuple[int, int]) -> Any:
    """How often each row moved to each column, as a CSR matrix."""
    cells, place = np.unique(rows * shape[1] + columns, return_inverse=True)
    return sp.csr_array((np.bincount(place, counts, minlength=cells.size), np.divmod(cells, shape[1])), shape=shape)


def _entries(matrix: Any, rows: Ints, columns: Ints) -> Bools:
    """Whether the matrix has a positive entry at each of the given places, by looking each distinct one up once."""
    width = matrix.shape[1]
    cells = np.unique(np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) * width + matrix.indices)
    wanted = rows * width + columns
    place = np.minimum(np.searchsorted(cells, wanted), max(cells.size - 1, 0))
    found: Bools = cells[place] == wanted if cells.size else np.zeros(wanted.size, dtype=np.bool_)
    return found
