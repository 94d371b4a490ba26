"""Finite Markov decision processes, stored sparse: checked when made, read from gymnasium, saved and read back.

Transitions are one stacked CSR matrix `T_A` of shape (A·S, S) whose row `a·S + s` is `T(·|s,a)`, so that a Q backup of any
vector is a single sparse product. Reward is paid on arrival: `Q(s,a) = Σ_s' T(s'|s,a) [r(s') + γ V(s')]`.

An episode ends in one of two ways, and they are different models:

* a *terminal* state pays its reward on arrival and the episode is over: its rows are zero and its value is 0;
* an *absorbing* state is an ordinary state with a self-loop, which goes on paying.

*Durations.* A move may take a time τ other than one unit, fixed or random, and discounts are per unit of time (semi-Markov):

    Q(s,a) = E[γ^(τ−1) (r(s') + γ V(s'))] = Σ_s' G(s'|s,a) [r(s') + γ V(s')],     G = Σ_τ γ^(τ−1) T_τ,     T = Σ_τ T_τ.

For whole numbers τ this is the task with τ − 1 states of waiting on each move. G has the pattern of T, and takes its place at one
discount: `MDP.at` gives the task as it looks at this discount, and all planning with one discount uses that. A reward that is
paid for a decision, and not on arrival, is paid when the move begins. `G' = dG/dγ` is its `slope`.

*Gymnasium's* tables, `env.unwrapped.P[s][a]`, are lists of (probability, next, reward, terminated). A table may list a successor
twice (FrozenLake at a wall) and may let a state that ended the episode move on (CliffWalking's goal, Taxi's drop-offs). The first
is summed; the second is cut: a state entered with `terminated` is terminal. Rows of states that no episode reaches may disagree
with that. If a reachable row disagrees, no MDP on these states describes the environment, and it is refused.

*Files* (`.npz`) are checked before their sparse matrix is used: wrong pointers crash SciPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import breadth_first_order, reverse_cuthill_mckee

from multihorizon.checks import (
    ROW_TOLERANCE,
    Bools,
    Floats,
    Ints,
    Sparse,
    as_distribution,
    as_floats,
    as_mask,
    as_names,
    as_shape,
    read_only,
)
from multihorizon.files import expanded, read_arrays
from multihorizon.words import significant


def read_transitions(transitions: ArrayLike | Sequence[Sparse]) -> tuple[Sparse, int]:
    """Return one CSR matrix (A·S, S) and A, from an (A,S,S) array or A sparse matrices."""
    if sp.issparse(transitions):
        raise ValueError("transitions must be an (A, S, S) array or a sequence of A sparse matrices, got one sparse matrix")
    if isinstance(transitions, list | tuple) and len(transitions) and all(sp.issparse(m) for m in transitions):
        shapes: set[tuple[int, int]] = {m.shape for m in transitions}
        shape = next(iter(shapes))
        if len(shapes) > 1 or shape[0] != shape[1]:
            raise ValueError(f"transitions must be square matrices of one shape (S, S), got shapes {sorted(shapes)}")
        stacked = sp.csr_array(sp.vstack([sp.csr_array(m) for m in transitions]), dtype=np.float64)
        stacked.sum_duplicates()
        return stacked, len(transitions)
    try:
        array = np.asarray(transitions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("transitions must be an (A, S, S) array of numbers or A sparse matrices of one shape") from error
    if array.ndim != 3 or array.shape[1] != array.shape[2] or array.size == 0:
        raise ValueError(f"transitions must have shape (A, S, S), got {array.shape}")
    return sp.csr_array(array.reshape(-1, array.shape[2])), array.shape[0]


def read_available(available: ArrayLike | None, terminal: Bools, n_actions: int, state_names: tuple[str, ...]) -> Bools:
    """Check the availability mask; at terminal states nothing is chosen, so all actions count as available there."""
    shape = (terminal.size, n_actions)
    if available is None:
        return np.ones(shape, dtype=np.bool_)
    mask = np.asarray(available)
    if mask.dtype != np.bool_:
        raise ValueError(f"available must be a boolean array, got dtype {mask.dtype}")
    as_shape(mask, shape, "available")
    stuck = np.flatnonzero(~mask.any(axis=1) & ~terminal)
    if stuck.size:
        raise ValueError(
            f"available must leave an action in every state that is not terminal, got none in state {state_names[stuck[0]]}"
        )
    return mask | terminal[:, None]


def _checked_rows(mdp: MDP, stacked: Sparse) -> Sparse:
    """Return the rows `a·S + s`, checked to be distributions and rescaled to sum to 1; rows without a decision are dropped."""
    stacked = stacked.copy()
    n = mdp.n_states
    origin = np.repeat(np.arange(stacked.shape[0]), np.diff(stacked.indptr))
    leaving = mdp.terminal[origin % n] & (stacked.indices != origin % n) & (stacked.data > 0)
    for wrong, message in (
        (~np.isfinite(stacked.data), "transitions must be finite, got a NaN or infinity"),
        (stacked.data < 0, "transitions must not be negative, got a negative one"),
        (leaving, "terminal states must have no leaving transitions, got one"),
    ):
        if wrong.any():
            entry = int(np.argmax(wrong))
            action, state = divmod(int(origin[entry]), n)
            move = f"from state {mdp.state_names[state]} to {mdp.state_names[int(stacked.indices[entry])]}"
            raise ValueError(f"{message} {move} under action {mdp.action_names[action]}")
    live = mdp.live.T.ravel()
    with np.errstate(over="ignore"):
        sums = stacked.sum(axis=1)
    off = live & (np.abs(sums - 1) > ROW_TOLERANCE)
    if off.any():
        action, state = divmod(int(np.argmax(off)), n)
        raise ValueError(
            f"transitions from state {mdp.state_names[state]} under action {mdp.action_names[action]} "
            f"must sum to 1, got a sum of {significant(sums[off][0], 6)}"
        )
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=live)
    stacked.data *= np.repeat(scale, np.diff(stacked.indptr))
    stacked.eliminate_zeros()
    if stacked.nnz <= np.iinfo(np.int32).max:  # a product with half the index bytes is a third faster
        stacked.indices, stacked.indptr = stacked.indices.astype(np.int32), stacked.indptr.astype(np.int32)
    return stacked


def read_initial(initial: ArrayLike | None, terminal: Bools, state_names: tuple[str, ...]) -> Floats:
    """Return the probabilities of the first state; by default uniform over the states that are not terminal."""
    if terminal.all():
        raise ValueError("terminal names every state, so no episode can begin: leave at least one state that is not terminal")
    if initial is None:
        return (~terminal) / float((~terminal).sum())
    array = as_distribution(initial, terminal.size, "initial")
    started = np.flatnonzero((array > 0) & terminal)
    if started.size:
        raise ValueError(
            f"initial must not start in a terminal state, got {significant(array[started[0]], 6)} on state "
            f"{state_names[started[0]]}"
        )
    return array


@dataclass(frozen=True, eq=False)
class Durations:
    """The time that moves take: the move from row `rows[i] = a·S + s` to `columns[i]` takes `times[i]` with probability
    `shares[i]`.

    The shares of a move sum to 1. `entries` are the places of these moves in the data of the stacked transitions, and are found
    by the MDP. `unit` is the unit of time, "" where it has no name. Of durations that were estimated, `sizes` `(m,)` says how
    many observed times stand behind the shares of each move; infinite where they are known exactly, None where all are. Moves
    with the same number in `kinds` `(m,)` share their times, so an estimate for one holds for all.
    """

    rows: Ints
    columns: Ints
    times: Floats
    shares: Floats
    entries: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    unit: str = ""
    sizes: Floats | None = None
    kinds: Ints | None = None

    def weights(self, discount: float) -> Floats:
        """Return `E[γ^(τ−1)]` of each move."""
        weights: Floats = np.bincount(self.entries, self.shares * discount ** (self.times - 1)).astype(np.float64, copy=False)
        return weights

    def slopes(self, discount: float) -> Floats:
        """Return the derivative of the weights in γ, `E[(τ−1) γ^(τ−2)]`; infinite at discount 0 for 1 < τ < 2."""
        more = self.times - 1
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            changes = np.where(more == 0, 0.0, more * discount ** (more - 1))
        slopes: Floats = np.bincount(self.entries, self.shares * changes).astype(np.float64, copy=False)
        return slopes

    def drawn(self, stacked: Sparse, rows: Ints, columns: Ints, rng: np.random.Generator) -> Floats:
        """Draw random times of moves."""
        order = np.argsort(self.entries, kind="stable")
        ends = np.cumsum(self.shares[order])
        wanted = _entries(stacked, rows, columns)
        first, last = (np.searchsorted(self.entries[order], wanted, side) for side in ("left", "right"))
        low = np.where(first > 0, ends[first - 1], 0.0)
        place = np.searchsorted(ends, low + rng.random(wanted.size) * (ends[last - 1] - low), side="right")
        times: Floats = self.times[order][np.clip(place, first, last - 1)]
        return times


def _entries(stacked: Sparse, rows: Ints, columns: Ints) -> Ints:
    """Find the places of moves in the data of the stacked transitions; −1 for moves that cannot happen."""
    n = stacked.shape[1]
    origin = np.repeat(np.arange(stacked.shape[0], dtype=np.int64), np.diff(stacked.indptr))
    keys = origin * n + stacked.indices
    wanted = rows.astype(np.int64) * n + columns
    order = np.argsort(keys, kind="stable")
    place = np.minimum(np.searchsorted(keys, wanted, sorter=order), max(keys.size - 1, 0))
    entries: Ints = np.where(keys[order[place]] == wanted, order[place], -1)
    return entries


def read_durations(mdp: MDP, durations: Any) -> Durations | None:
    """Check the durations of a task's moves; None where every move takes one unit of time.

    `durations` is a number, `(S,A)`, one for each move as `(A,S,S)` or A sparse matrices, or a mapping of durations to the parts
    of the transitions that take so long.
    """
    if durations is None:
        return None
    stacked = mdp.stacked
    sizes = None
    kinds = None
    origin = np.repeat(np.arange(stacked.shape[0], dtype=np.int64), np.diff(stacked.indptr))
    if isinstance(durations, Durations):
        possible = _entries(stacked, durations.rows, durations.columns) >= 0  # a probability may have become 0 since
        rows, columns, times, shares = (getattr(durations, name)[possible] for name in ("rows", "columns", "times", "shares"))
        if durations.sizes is not None:
            sizes = read_only(durations.sizes[possible])
            kinds = None if durations.kinds is None else read_only(durations.kinds[possible])
    elif isinstance(durations, Mapping):
        parts = [(_duration(time), read_transitions(part)) for time, part in durations.items()]
        if not parts or any((part.shape, actions) != (stacked.shape, mdp.n_actions) for _, (part, actions) in parts):
            raise ValueError("durations as a mapping must give parts of the transitions, each of their shape, got others")
        layers = [(time, part.tocoo()) for time, (part, _) in parts]
        pieces = [(layer.coords[0], layer.coords[1], np.full(layer.nnz, time), layer.data) for time, layer in layers]
        rows, columns, times, shares = (np.concatenate(piece) for piece in zip(*pieces, strict=True))
        kept = mdp.live.T.ravel()[rows] & (shares != 0)  # actions that are not available are ignored, as in the transitions
        rows, columns, times, shares = rows[kept], columns[kept], times[kept], shares[kept]
        if not (shares > 0).all():
            raise ValueError(
                f"durations must give parts of the transitions that are not negative, got {significant(shares.min(), 6)}"
            )
    else:
        rows = origin
        columns = stacked.indices
        shares = np.ones(stacked.nnz)
        many = isinstance(durations, list | tuple) and len(durations) and all(sp.issparse(m) for m in durations)
        given = read_transitions(durations)[0] if many else as_floats(durations, "durations")
        shape = mdp.n_actions, mdp.n_states, mdp.n_states
        if many or given.ndim == 3:
            as_shape(given, stacked.shape if many else shape, "durations")
            times = np.asarray((given if many else given.reshape(stacked.shape))[origin, stacked.indices])
        elif given.ndim == 0 or given.shape == shape[1::-1]:
            times = np.broadcast_to(given, shape[1::-1]).T.ravel()[origin]
        else:
            raise ValueError(
                f"durations must be a number, have shape {shape[1::-1]} or {shape}, or be a mapping of durations to parts of the "
                f"transitions, got shape {given.shape}"
            )
    entries = _entries(stacked, rows, columns)
    wrong = (entries < 0) | ~(np.isfinite(times) & (times > 0))
    if wrong.any():
        i = int(np.argmax(wrong))
        action, state = divmod(int(rows[i]), mdp.n_states)
        received = "one of a move that cannot happen," if entries[i] < 0 else significant(times[i], 6)
        raise ValueError(
            f"durations must be positive numbers, one for every possible move, got {received} from state "
            f"{mdp.state_names[state]} to {mdp.state_names[int(columns[i])]} under action {mdp.action_names[action]}"
        )
    total = np.bincount(entries, shares, minlength=stacked.nnz)
    if isinstance(durations, Durations) and (np.abs(total - 1) > ROW_TOLERANCE).any():
        raise ValueError("durations must be those of every possible move, got some without")
    if isinstance(durations, Mapping) and (np.abs(total - stacked.data) > ROW_TOLERANCE).any():
        i = int(np.argmax(np.abs(total - stacked.data)))
        action, state = divmod(int(origin[i]), mdp.n_states)
        raise ValueError(
            f"the parts of the transitions that durations give must sum to the transitions, got a sum of "
            f"{significant(total[i], 6)} and "
            f"a transition of {significant(stacked.data[i], 6)} from state {mdp.state_names[state]} to "
            f"{mdp.state_names[int(stacked.indices[i])]} under action {mdp.action_names[action]}"
        )
    if (times == 1).all():
        return None
    shares = shares / total[entries]
    rows, columns, entries = (read_only(np.array(array, dtype=np.int64)) for array in (rows, columns, entries))
    times, shares = (read_only(np.array(array, dtype=np.float64)) for array in (times, shares))
    if sizes is not None and kinds is None:
        kinds = entries
    return Durations(rows, columns, times, shares, entries, getattr(durations, "unit", ""), sizes, kinds)


def _duration(time: object) -> float:
    number = as_floats(time, "a duration")
    if number.ndim or not number > 0:
        raise ValueError(f"a duration must be one positive number, got {time!r}")
    return float(number)


class _Moves(NamedTuple):
    """The columns of a transition table, one entry per move."""

    state: Ints
    action: Ints
    successor: Ints
    probability: Floats
    reward: Floats
    terminated: Bools


def read_gymnasium(env: Any) -> dict[str, Any]:
    """Return the arguments of `MDP` for a tabular environment."""
    moves, initial = _table(env)
    n_states = initial.size
    n_actions = int(moves.action.max()) + 1
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
    """Return the expected immediate reward `(S,A)` of a tabular gymnasium environment.

    Args:
        env: an environment whose `unwrapped.P` lists its moves.

    Returns:
        `(S,A)`, summed over what may happen.

    Example:
        >>> import gymnasium
        >>> float(gymnasium_reward(gymnasium.make("CliffWalking-v1")).min())
        -100.0
    """
    moves, initial = _table(env)
    total = np.zeros((initial.size, int(moves.action.max()) + 1))
    np.add.at(total, (moves.state, moves.action), moves.probability * moves.reward)
    return total


def _table(env: Any) -> tuple[_Moves, Floats]:
    """Read the table, and the initial distribution."""
    bare = getattr(env, "unwrapped", env)
    table = getattr(bare, "P", None)
    if table is None:
        raise ValueError(f"the environment must have a transition table env.unwrapped.P, got {type(bare).__name__} without one")
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
            f"got one from state {int(states[entry])} that goes on"
        )


def read_mdp(arrays: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """Return the arguments of `MDP` from the arrays that `MDP.to_npz` saved."""
    what = "a saved MDP"
    # The arrays of every file: the number of axes of each and the kinds of numbers (NumPy's letters) it may be made of.
    needed = {
        "initial": (1, "fiu"),
        "terminal": (1, "b"),
        "available": (2, "b"),
        "state_names": (1, "U"),
        "action_names": (1, "U"),
        "grid_shape": (1, "iu"),
    }
    missing = sorted({"data", "indices", "indptr", *needed} - set(arrays))
    if missing:
        raise ValueError(f"{path} is not {what}: it lacks {', '.join(missing)}")
    for name, (axes, kinds) in needed.items():
        if arrays[name].ndim != axes or (arrays[name].dtype.kind not in kinds and arrays[name].size):
            raise ValueError(f"{path} is not {what}: {name} has {arrays[name].dtype} of shape {arrays[name].shape}")
    n_states, n_actions = arrays["available"].shape
    rows = n_states * n_actions
    try:
        stacked = read_matrix(arrays, (rows, n_states))
    except ValueError as error:
        raise ValueError(f"{path} is not {what}: {error}") from error
    if stacked is None or not rows:
        raise ValueError(f"{path} is not {what}: its matrix of transitions is damaged")
    return {
        "transitions": [stacked[a * n_states : (a + 1) * n_states] for a in range(n_actions)],
        **{name: arrays[name] for name in ("initial", "terminal", "available")},
        **{name: arrays[name].tolist() for name in ("state_names", "action_names")},
        "grid_shape": tuple(arrays["grid_shape"].tolist()) or None,
        "sample_sizes": arrays.get("sample_sizes"),
        "durations": _saved_durations(arrays, rows, n_states, f"{path} is not {what}: its durations are damaged"),
    }


def read_matrix(arrays: Mapping[str, Any], shape: tuple[int, int], prefix: str = "") -> Sparse | None:
    """Read the sparse matrix `(data, indices, indptr)` of an archive; its names may begin with a prefix; None where it has none.

    Raises:
        ValueError: unless pointers and indices fit the shape, because SciPy reads and writes beyond its arrays where they do not.
    """
    names = [f"{prefix}{part}" for part in ("data", "indices", "indptr")]
    if not set(names) & set(arrays):
        return None
    if not set(names) <= set(arrays):
        raise ValueError(f"it lacks {', '.join(sorted(set(names) - set(arrays)))}")
    data, indices, indptr = (arrays[name] for name in names)
    kinds = [array.dtype.kind if array.size else "i" for array in (data, indices, indptr)]
    sound = (
        all(array.ndim == 1 for array in (data, indices, indptr))
        and kinds[0] in "fiu"
        and kinds[1] in "iu"
        and kinds[2] in "iu"
        and indptr.size == shape[0] + 1
        and indptr[0] == 0
        and indptr[-1] == indices.size == data.size
        and (np.diff(indptr.astype(np.int64)) >= 0).all()
        and (not indices.size or (indices.min() >= 0 and indices.max() < shape[1]))
        and np.isfinite(data).all()
    )
    if not sound:
        raise ValueError(f"its matrix of {prefix.rstrip('_') or 'transitions'} is damaged")
    return sp.csr_array((data.astype(np.float64), indices.astype(np.int64), indptr.astype(np.int64)), shape=shape)


def _saved_durations(arrays: Mapping[str, Any], n_rows: int, n_columns: int, damaged: str) -> Durations | None:
    """Read the durations that `MDP.to_npz` saved, if there were any."""
    names = [f"duration_{name}" for name in ("rows", "columns", "times", "shares")]
    if not set(names) & set(arrays):
        return None
    if not set(names) <= set(arrays) or any(arrays[name].shape != arrays[names[0]].shape for name in names):
        raise ValueError(damaged)
    rows, columns, times, shares = (arrays[name] for name in names)
    kinds = "".join(array.dtype.kind for array in (rows, columns, times, shares))
    if rows.ndim != 1 or not rows.size or kinds[0] not in "iu" or kinds[1] not in "iu" or kinds[2:] != "ff":
        raise ValueError(damaged)
    inside = rows.min() >= 0 and rows.max() < n_rows and columns.min() >= 0 and columns.max() < n_columns
    if not inside or not (shares > 0).all():
        raise ValueError(damaged)
    unit = str(arrays["duration_unit"]) if "duration_unit" in arrays else ""
    durations = Durations(rows.astype(np.int64), columns.astype(np.int64), times, shares, unit=unit)
    if not {"duration_sizes", "duration_kinds"} & set(arrays):
        return durations
    if not {"duration_sizes", "duration_kinds"} <= set(arrays):
        raise ValueError(damaged)
    sizes, kinds = arrays["duration_sizes"], arrays["duration_kinds"]
    sound = sizes.shape == kinds.shape == rows.shape and sizes.dtype.kind == "f" and kinds.dtype.kind in "iu"
    if not sound or not (sizes > 0).all() or kinds.min() < 0:
        raise ValueError(damaged)
    return replace(durations, sizes=sizes, kinds=kinds.astype(np.int64))


class MDP:
    """A finite MDP without reward and discount factor, checked on construction and never changed after.

    Args:
        transitions: `(A,S,S)` array or a sequence of A sparse matrices `(S,S)`; entry `[a, s, t]` is `T(t|s,a)`.
        initial: `(S,)` probabilities of the first state; by default uniform over the states that are not terminal.
        terminal: indices (or a mask) of the states that end the episode. Their rows must be zero or a pure self-loop.
        available: bool `(S,A)`; rows of actions that are not available are ignored. By default all are.
        state_names, action_names: labels used in tables and plots; by default "0", "1", …
        grid_shape: `(height, width)` when states are the cells of a grid in row-major order; used by plots.
        sample_sizes: `(A·S,)`, for transitions that were estimated: the number of observed moves of each row `a·S + s`.
            The covariance of a row `p` is `(diag(p) − p p') / sample_size`; infinite where a row is known exactly. None, the
            default, says that all transitions are exact.
        durations: how long moves take, in the unit of time of the discounts; by default each takes one unit. A number, `(S,A)`
            for each decision, `(A,S,S)` or A sparse matrices for each move, or, for random durations, a mapping of each duration
            to the part of the transitions that takes so long: `{1: T_1, 2.5: T_2}` with `T_1 + T_2` the transitions.

    A fit lets estimated transitions and durations give way within their own error. The MDP of its solution holds the fitted
    ones, and `counted` the `probabilities` before.

    Raises:
        ValueError: naming the place, what was expected and what it got.

    Example:
        >>> mdp = MDP([[[0.1, 0.9], [0, 0]], [[0.5, 0.5], [0, 0]]], terminal=[1])
        >>> mdp.n_states, mdp.n_actions, mdp.initial.tolist()
        (2, 2, [1.0, 0.0])
    """

    def __init__(
        self,
        transitions: ArrayLike | Sequence[Sparse],
        initial: ArrayLike | None = None,
        terminal: ArrayLike = (),
        available: ArrayLike | None = None,
        *,
        state_names: Sequence[object] | None = None,
        action_names: Sequence[object] | None = None,
        grid_shape: tuple[int, int] | None = None,
        sample_sizes: ArrayLike | None = None,
        durations: Any = None,
    ) -> None:
        stacked, n_actions = read_transitions(transitions)
        n_states = stacked.shape[1]
        self.n_states: int = n_states
        self.n_actions: int = n_actions
        self.state_names = as_names(state_names, n_states, "state_names")
        self.action_names = as_names(action_names, n_actions, "action_names")
        self.terminal: Bools = as_mask(terminal, n_states, "terminal")
        self.available: Bools = read_available(available, self.terminal, n_actions, self.state_names)
        #: Mask `(S,A)` of the decisions there are: actions available in states that are not terminal.
        self.live: Bools = self.available & ~self.terminal[:, None]
        self.stacked: Sparse = _checked_rows(self, stacked)
        #: Mask of the states that some move enters; the wall of a grid is terminal, but no move enters it.
        self.entered: Bools = np.zeros(n_states, dtype=np.bool_)
        self.entered[self.stacked.indices] = True
        self.initial: Floats = read_initial(initial, self.terminal, self.state_names)
        sides = np.array(() if grid_shape is None else grid_shape)
        if grid_shape is not None and (sides.shape != (2,) or (sides < 1).any() or sides.prod() != n_states or (sides % 1).any()):
            expected = f"(height, width) of a grid with {n_states} cells, one for each state"
            raise ValueError(f"grid_shape must be {expected}, got {tuple(grid_shape)}")
        self.grid_shape = None if grid_shape is None else (int(sides[0]), int(sides[1]))
        self.counted: Floats | None = None
        #: How long moves take; None where each takes one unit of time.
        self.durations: Durations | None = read_durations(self, durations)
        #: Where this is a task as seen at a discount (`at`): the task, the discount, and the derivative of `stacked` in it.
        self.origin: MDP | None = None
        self.discount: float | None = None
        self.slope: Sparse | None = None
        sizes = None if sample_sizes is None else np.array(sample_sizes, dtype=np.float64)
        if sizes is not None:
            as_shape(sizes, (n_actions * n_states,), "sample_sizes")
            if not (sizes > 0).all():
                raise ValueError(f"sample_sizes must be positive, got {sizes[~(sizes > 0)][0]}")
            sizes.setflags(write=False)
        for array in (self.terminal, self.available, self.live, self.entered, self.initial, self.stacked.data):
            array.setflags(write=False)
        self.sample_sizes: Floats | None = sizes

    def __setattr__(self, name: str, value: object) -> None:
        if "sample_sizes" in self.__dict__:  # the last field that __init__ sets
            raise AttributeError(f"an MDP cannot be changed, got a new {name}: build another MDP")
        super().__setattr__(name, value)

    @classmethod
    def from_sas(
        cls,
        transitions: ArrayLike,
        initial: ArrayLike | None = None,
        terminal: ArrayLike = (),
        available: ArrayLike | None = None,
        **names: Any,
    ) -> MDP:
        """Build from an `(S,A,S)` array, entry `[s, a, t]` = `T(t|s,a)`; the other arguments are those of `MDP`.

        Durations for each move, or parts of the transitions that take so long, are `(S,A,S)`, too.
        """
        times = names.get("durations")
        if isinstance(times, Mapping):
            names["durations"] = {time: as_floats(part, "durations").transpose(1, 0, 2) for time, part in times.items()}
        elif times is not None and np.ndim(times) == 3:
            names["durations"] = as_floats(times, "durations").transpose(1, 0, 2)
        array = as_floats(transitions, "transitions")
        if array.ndim != 3 or array.shape[0] != array.shape[2]:
            raise ValueError(f"transitions must have shape (S, A, S), got {array.shape}")
        return cls(array.transpose(1, 0, 2), initial, terminal, available, **names)

    @classmethod
    def from_frame(cls, frame: Any) -> MDP:
        """Build from a table with the columns `state, action, next_state, probability`, and `duration` where moves take time.

        A state without rows is terminal, and an action without rows is not available. The table is a data frame of pandas,
        polars, pyarrow or DuckDB.

        Raises:
            ValueError: names the row where a column is empty, a move stands twice or probabilities do not sum to 1.

        Example:
            >>> import pandas as pd
            >>> rows = [["a", "go", "b", 0.9], ["a", "go", "a", 0.1], ["a", "stay", "a", 1.0]]
            >>> mdp = MDP.from_frame(pd.DataFrame(rows, columns=["state", "action", "next_state", "probability"]))
            >>> mdp.state_names, mdp.terminal.tolist()
            (('a', 'b'), [False, True])
        """
        built: MDP = import_module("multihorizon.data.side_tables").mdp_from_frame(frame)  # the reader of tables lies above
        return built

    @classmethod
    def from_csv(cls, path: str | Path) -> MDP:
        """Build from a CSV or Parquet file with the columns of `from_frame`."""
        built: MDP = import_module("multihorizon.data.side_tables").mdp_from_csv(path)
        return built

    @classmethod
    def from_gymnasium(cls, env: Any) -> MDP:
        """Build from a gymnasium environment with a transition table `env.unwrapped.P` (FrozenLake, CliffWalking, Taxi).

        Duplicate successors are summed; a state entered with `terminated` is terminal, whatever its own rows say.
        """
        return cls(**read_gymnasium(env))

    def transition(self, action: int) -> Sparse:
        """Return `T_a`, the `(S,S)` CSR matrix of one action."""
        return self.stacked[action * self.n_states : (action + 1) * self.n_states]

    def to_array(self) -> Floats:
        """Return all transitions as a dense `(A,S,S)` array; for small problems."""
        return self.dense.copy()

    @cached_property
    def dense(self) -> Floats:
        """Return the array of `to_array`, made once and read-only; where no transition is zero, a view of `stacked.data`."""
        full = self.stacked.nnz == self.n_actions * self.n_states**2
        array: Floats = self.stacked.data if full else self.stacked.toarray()
        array.setflags(write=False)
        return array.reshape(self.n_actions, self.n_states, self.n_states)

    @cached_property
    def moves(self) -> Sparse | Floats:
        """Return `stacked` in the form for products: a plain array where 40% of all transitions or more are not zero.

        `benchmarks/direct_or_iterative.py` measures from which share on products with a plain array are quicker.
        """
        if self.stacked.nnz < 0.4 * self.n_actions * self.n_states**2:
            return self.stacked
        return self.dense.reshape(self.stacked.shape)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state that is copied and sent to other processes: without the arrays that follow from `stacked`."""
        return {name: value for name, value in vars(self).items() if name not in ("dense", "moves")}

    @property
    def is_estimated(self) -> bool:
        """Say whether some transition probabilities or durations were estimated."""
        return self.sample_sizes is not None or (self.durations is not None and self.durations.sizes is not None)

    @property
    def probabilities(self) -> Floats:
        """Return the entries of `stacked`, and after them the shares of durations where these were estimated."""
        if self.durations is None or self.durations.sizes is None:
            return np.asarray(self.stacked.data)
        return np.concatenate([self.stacked.data, self.durations.shares])

    def with_probabilities(self, data: Floats) -> MDP:
        """Return the task with other probabilities of the same moves, in the order of `probabilities`, or of its first part.

        For what was estimated: `counted` keeps the probabilities that follow from the counted moves alone.
        """
        return self._replaced(data, self.probabilities if self.counted is None else self.counted)

    def without(self, forbidden: Bools) -> MDP:
        """Return the task without some actions, a mask `(S,A)`; raise where a state is left without any."""
        if not (forbidden & self.live).any():
            return self
        available = read_available(self.available & ~forbidden, self.terminal, self.n_actions, self.state_names)
        return self._with(available=available, live=available & ~self.terminal[:, None])

    def starting(self, initial: ArrayLike) -> MDP:
        """Return the task with other probabilities `(S,)` of the first state."""
        return self._with(initial=read_initial(initial, self.terminal, self.state_names))

    def _with(self, **changed: Any) -> MDP:
        """Return a copy with other arrays."""
        other = object.__new__(MDP)
        for array in changed.values():
            if isinstance(array, np.ndarray):
                array.setflags(write=False)
        other.__dict__.update({name: value for name, value in vars(self).items() if name != "narrow"}, **changed)
        if self.origin is not None:
            other.__dict__["origin"] = self.origin._with(**changed)
        return other

    def as_counted(self) -> MDP:
        """Return the task with the transitions that follow from the counted moves alone."""
        return self if self.counted is None else self._replaced(self.counted, None)

    def as_known(self) -> MDP:
        """Return the task as if its transitions and durations had been given: without the error of estimated ones."""
        if not self.is_estimated:
            return self
        durations = None if self.durations is None else replace(self.durations, sizes=None)
        return self._with(durations=durations, sample_sizes=None)

    def _replaced(self, data: Floats, counted: Floats | None) -> MDP:
        other = object.__new__(MDP)
        durations = self.durations
        moves = self.stacked.nnz
        stacked = sp.csr_array((read_only(data[:moves]), self.stacked.indices, self.stacked.indptr), shape=self.stacked.shape)
        if durations is not None and data.size > moves:
            durations = replace(durations, shares=read_only(data[moves:]))
        kept = {name: value for name, value in vars(self).items() if name not in ("dense", "moves", "narrow")}
        other.__dict__.update(kept, stacked=stacked, durations=durations, counted=counted)
        return other

    def lasting(self, durations: Any) -> MDP:
        """Return the task with other durations, as in `MDP`."""
        return self._with(durations=read_durations(self, durations))

    def at(self, discount: float) -> MDP:
        """Return the task as it looks at a discount: without durations, and with `G = Σ_τ γ^(τ−1) T_τ` as transitions.

        Rows of G need not sum to 1. Where all moves take one unit of time, it is the task itself.

        Raises:
            ValueError: at discount 0 where a move takes less than one unit: what is paid then has no limit.
        """
        if self.durations is None:
            return self
        if discount == 0 and self.shortest < 1:
            raise ValueError("discount must be above 0 where a move takes less than one unit of time, got 0")
        seen = self._replaced(self.stacked.data * self.durations.weights(discount), None)
        slope = self.stacked.data * self.durations.slopes(discount)
        moved = sp.csr_array((slope, self.stacked.indices, self.stacked.indptr), shape=self.stacked.shape)
        seen.__dict__.update(durations=None, origin=self, discount=discount, slope=moved)
        return seen

    @property
    def shortest(self) -> float:
        """Return the shortest time that a move takes."""
        durations = self.durations if self.origin is None else self.origin.durations
        return 1.0 if durations is None else float(durations.times.min())

    @property
    def least_discount(self) -> float:
        """Return the smallest discount factor to try: 0, or a little more where values have no slope at 0, for moves of less than
        two units.
        """
        if self.durations is None or ((self.durations.times == 1) | (self.durations.times >= 2)).all():
            return 0.0
        return 0.001

    def expect(self, vector: Floats) -> Floats:
        """Return `Σ_s' T(s'|s,a) vector(s')` as an `(S,A)` array."""
        product: Floats = (self.moves @ vector).reshape(self.n_actions, self.n_states).T
        return product

    def under(self, policy: Floats) -> Sparse:
        """Return `P_π(s,s') = Σ_a π(a|s) T(s'|s,a)` as an `(S,S)` CSR matrix."""
        n, a = self.n_states, self.n_actions
        columns = (np.arange(n, dtype=np.int32)[:, None] + n * np.arange(a, dtype=np.int32)).ravel()
        mix = sp.csr_array((policy.flatten(), columns, np.arange(0, n * a + 1, a, dtype=np.int32)), shape=(n, n * a))
        mix.eliminate_zeros()
        return (mix @ self.stacked).tocsr()

    def expected_reward(self, reward: ArrayLike) -> Floats:
        """Return the expected immediate reward `(S,A)` of a reward `(S,)` paid on arrival, or of one given as `(S,A)`."""
        array = as_floats(reward, "reward")
        if array.shape == (self.n_states,):
            return self.expect(array)
        if array.shape != (self.n_states, self.n_actions):
            raise ValueError(
                f"reward must have shape ({self.n_states},) or ({self.n_states}, {self.n_actions}), got {array.shape}"
            )
        return np.where(self.terminal[:, None], 0.0, array)

    def never_ends(self, policy: Floats | None = None) -> Bools:
        """Mark the states from which `policy` (by default: any policy) has no path to a terminal state."""
        if self.origin is not None:  # with a discount of 0 nothing is left of moves that take long
            return self.origin.never_ends(policy)
        choice = self.available / 1.0 if policy is None else policy
        return steps_into(self.under(choice), self.terminal) < 0

    @cached_property
    def narrow(self) -> bool:
        """Say whether sparse factors of one policy's transitions stay small: some order of the states keeps all moves short."""
        return is_narrow(self.under(self.available / 1.0)) if self.origin is None else self.origin.narrow

    def to_npz(self, path: str | Path) -> None:
        """Write to exactly this path; `MDP.from_npz` reads it back."""
        arrays = {name: getattr(self.stacked, name) for name in ("data", "indices", "indptr")}
        arrays |= {name: getattr(self, name) for name in ("initial", "terminal", "available")}
        arrays |= {name: np.array(getattr(self, name)) for name in ("state_names", "action_names")}
        arrays["grid_shape"] = np.array(self.grid_shape or (), dtype=np.int64)
        if self.sample_sizes is not None:
            arrays["sample_sizes"] = self.sample_sizes
        if self.durations is not None:
            arrays |= {f"duration_{name}": getattr(self.durations, name) for name in ("rows", "columns", "times", "shares")}
            arrays["duration_unit"] = np.array(self.durations.unit)
            if self.durations.sizes is not None:
                arrays["duration_sizes"], arrays["duration_kinds"] = self.durations.sizes, self.durations.kinds
        with expanded(path).open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def from_npz(cls, path: str | Path) -> MDP:
        """Read what `to_npz` wrote.

        Raises:
            ValueError: if the file is another one or damaged, or if what it holds is no MDP.
        """
        return cls.from_arrays(read_arrays(path, "a saved MDP"), path)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], path: str | Path) -> MDP:
        """Return what `to_npz` wrote, from the arrays of a file."""
        arguments = read_mdp(arrays, path)
        try:
            return cls(**arguments)
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"{path}: {error}") from error

    def __repr__(self) -> str:
        ends = int(self.terminal.sum())
        lasting = "" if self.durations is None else ", with durations"
        return f"MDP({self.n_states} states, {self.n_actions} actions, {self.stacked.nnz} transitions, {ends} terminal{lasting})"


def refuse_durations(mdps: Iterable[MDP], what: str) -> None:
    """Raise where a task has durations, in a sentence that begins with what does not take them."""
    if any(mdp.durations is not None for mdp in mdps):
        raise ValueError(
            f"{what} must have a task in which every move takes one unit of time, got one with durations: leave them out, "
            "or use MaximumLikelihood, Population or ClosedForm with discounts"
        )


def is_narrow(matrix: Sparse, roots: float = 10.0) -> bool:
    """Say whether some order of the states brings linked ones, on average, within `roots` square roots of their number.

    On grids and the like some order does. Where links have no order, every order leaves them apart by a share of the number.
    """
    n = matrix.shape[0]
    links = sp.csr_array(abs(matrix) + abs(matrix).T)
    place = np.empty(n, dtype=np.int64)
    place[reverse_cuthill_mckee(links, symmetric_mode=True)] = np.arange(n)
    lengths = place[np.repeat(np.arange(n), np.diff(links.indptr))] - place[links.indices]
    return bool(np.sqrt((lengths.astype(np.float64) ** 2).mean()) <= roots * np.sqrt(n)) if lengths.size else True


def steps_into(matrix: Sparse, targets: Bools) -> Ints:
    """Return, for each state, the next one on a shortest path of `matrix` into `targets`; itself for a target, −1 without a path.

    One breadth-first search on the reversed graph, from an extra node that points at every target.
    """
    n = targets.size
    ends = np.flatnonzero(targets)
    source = sp.csr_array((np.ones(ends.size), ends, [0, ends.size]), shape=(1, n))
    graph = sp.vstack([sp.csr_array(matrix).T, source], format="csr")
    graph = sp.csr_array((graph.data, graph.indices, graph.indptr), shape=(n + 1, n + 1))
    _, nearer = breadth_first_order(graph, n)
    return np.where(targets, np.arange(n), np.maximum(nearer[:n], -1)).astype(np.int64)


def episodic_levels(mdp: MDP) -> list[Ints] | None:
    """Sort the states that are not terminal so that each level leads to earlier ones and endings only; None for cycles."""
    moves = sp.csr_array(mdp.under(mdp.available / 1.0))
    graph = sp.csr_array((moves.data > 0, moves.indices, moves.indptr), shape=moves.shape).astype(np.int64)
    waiting = ~mdp.terminal
    open_successors = graph @ waiting.astype(np.int64)
    into = graph.T.tocsr()
    levels: list[Ints] = []
    while waiting.any():
        ready = np.flatnonzero(waiting & (open_successors == 0))
        if not ready.size:
            return None
        levels.append(ready)
        waiting[ready] = False
        np.subtract.at(open_successors, into[ready].indices, 1)
    return levels


def time_left(mdp: MDP) -> Floats | None:
    """Return the most time that an episode can still take in each state, `(S,)`; None where it can come back to a state."""
    levels = episodic_levels(mdp)
    durations = mdp.durations
    if levels is None or durations is None:
        return None
    longest = np.zeros(mdp.stacked.nnz)
    np.maximum.at(longest, durations.entries, durations.times)
    origin = np.repeat(np.arange(mdp.stacked.shape[0]), np.diff(mdp.stacked.indptr)) % mdp.n_states
    moves = sp.csr_array((np.arange(longest.size), (origin, np.arange(longest.size))), shape=(mdp.n_states, longest.size))
    left = np.zeros(mdp.n_states)
    for level in levels:
        for state in level:
            here = moves.indices[moves.indptr[state] : moves.indptr[state + 1]]
            left[state] = (longest[here] + left[mdp.stacked.indices[here]]).max(initial=0.0)
    return left


def steps_left(mdp: MDP) -> Ints | None:
    """Return the most decisions that an episode can still have in each state, `(S,)`; None where it can come back to a state."""
    levels = episodic_levels(mdp)
    if levels is None:
        return None
    left = np.zeros(mdp.n_states, dtype=np.int64)
    for number, level in enumerate(levels):
        left[level] = number + 1
    return left
