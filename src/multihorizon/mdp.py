"""Finite Markov decision processes, stored sparse: checked when made, read from gymnasium, saved and read back.

Transitions are one stacked CSR matrix `T_A` of shape (A·S, S) whose row `a·S + s` is `T(·|s,a)`, so that a Q backup of any
vector is a single sparse product. Reward is paid on arrival: `Q(s,a) = Σ_s' T(s'|s,a) [r(s') + γ V(s')]`.

An episode ends in one of two ways, and they are different models:

* a *terminal* state pays its reward on arrival and the episode is over: its rows are zero and its value is 0;
* an *absorbing* state is an ordinary state with a self-loop, which goes on paying.

*Gymnasium's* tables, `env.unwrapped.P[s][a]`, are lists of (probability, next, reward, terminated). A table may list a successor
twice (FrozenLake at a wall) and may let a state that ended the episode move on (CliffWalking's goal, Taxi's drop-offs). The first
is summed; the second is cut: a state entered with `terminated` is terminal. Rows of states that no episode reaches may disagree
with that. If a reachable row disagrees, no MDP on these states describes the environment, and it is refused.

*Files* (`.npz`) are checked before their sparse matrix is used: wrong pointers crash SciPy.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
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
from multihorizon.files import read_arrays


def read_transitions(transitions: ArrayLike | Sequence[Sparse]) -> tuple[Sparse, int]:
    """One CSR matrix (A·S, S) and A, from an (A,S,S) array or A sparse matrices."""
    if sp.issparse(transitions):
        raise ValueError("transitions must be an (A, S, S) array or a sequence of A sparse matrices, received one sparse matrix")
    if isinstance(transitions, list | tuple) and len(transitions) and all(sp.issparse(m) for m in transitions):
        shapes: set[tuple[int, int]] = {m.shape for m in transitions}
        shape = next(iter(shapes))
        if len(shapes) > 1 or shape[0] != shape[1]:
            raise ValueError(f"transitions must be square matrices of one shape (S, S), received shapes {sorted(shapes)}")
        stacked = sp.csr_array(sp.vstack([sp.csr_array(m) for m in transitions]), dtype=np.float64)
        stacked.sum_duplicates()
        return stacked, len(transitions)
    try:
        array = np.asarray(transitions, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError("transitions must be an (A, S, S) array of numbers or A sparse matrices of one shape") from error
    if array.ndim != 3 or array.shape[1] != array.shape[2] or array.size == 0:
        raise ValueError(f"transitions must have shape (A, S, S), received {array.shape}")
    return sp.csr_array(array.reshape(-1, array.shape[2])), array.shape[0]


def read_available(available: ArrayLike | None, terminal: Bools, n_actions: int, state_names: tuple[str, ...]) -> Bools:
    """Check the availability mask; at terminal states nothing is chosen, so all actions count as available there."""
    shape = (terminal.size, n_actions)
    if available is None:
        return np.ones(shape, dtype=np.bool_)
    mask = np.asarray(available)
    if mask.dtype != np.bool_:
        raise ValueError(f"available must be a boolean array, received dtype {mask.dtype}")
    as_shape(mask, shape, "available")
    stuck = np.flatnonzero(~mask.any(axis=1) & ~terminal)
    if stuck.size:
        raise ValueError(
            f"available must leave an action in every state that is not terminal, received none in state {state_names[stuck[0]]}"
        )
    return mask | terminal[:, None]


def _checked_rows(mdp: MDP, stacked: Sparse) -> Sparse:
    """The rows `a·S + s`: what carries no equation dropped, the others checked to be distributions and rescaled to sum to 1."""
    stacked, n = stacked.copy(), mdp.n_states
    origin = np.repeat(np.arange(stacked.shape[0]), np.diff(stacked.indptr))
    leaving = mdp.terminal[origin % n] & (stacked.indices != origin % n) & (stacked.data > 0)
    for wrong, message in (
        (~np.isfinite(stacked.data), "transitions must be finite, received a NaN or infinity"),
        (stacked.data < 0, "transitions must not be negative, received a negative one"),
        (leaving, "terminal states must have no leaving transitions, received one"),
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
            f"must sum to 1, received a sum of {sums[off][0]:.6g}"
        )
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=live)
    stacked.data *= np.repeat(scale, np.diff(stacked.indptr))
    stacked.eliminate_zeros()
    if stacked.nnz <= np.iinfo(np.int32).max:  # a product with half the index bytes is a third faster
        stacked.indices, stacked.indptr = stacked.indices.astype(np.int32), stacked.indptr.astype(np.int32)
    return stacked


def read_initial(initial: ArrayLike | None, terminal: Bools, state_names: tuple[str, ...]) -> Floats:
    """The probabilities of the first state; by default uniform over the states that are not terminal."""
    if terminal.all():
        raise ValueError("terminal names every state, so no episode can begin: leave at least one state that is not terminal")
    if initial is None:
        return (~terminal) / float((~terminal).sum())
    array = as_distribution(initial, terminal.size, "initial")
    started = np.flatnonzero((array > 0) & terminal)
    if started.size:
        raise ValueError(
            f"initial must not start in a terminal state, received {array[started[0]]:.6g} on state {state_names[started[0]]}"
        )
    return array


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


def read_mdp(path: str | Path) -> dict[str, Any]:
    """The arguments of `MDP` that `MDP.to_npz` saved."""
    what = "a saved MDP"
    arrays = read_arrays(path, what)
    # What every file holds: the number of axes of each array and the kinds of numbers (NumPy's letters) it may be made of.
    needed = {
        "data": (1, "fiu"),
        "indices": (1, "iu"),
        "indptr": (1, "iu"),
        "initial": (1, "fiu"),
        "terminal": (1, "b"),
        "available": (2, "b"),
        "state_names": (1, "U"),
        "action_names": (1, "U"),
        "grid_shape": (1, "iu"),
    }
    missing = sorted(set(needed) - set(arrays))
    if missing:
        raise ValueError(f"{path} is not {what}: it lacks {', '.join(missing)}")
    for name, (axes, kinds) in needed.items():
        if arrays[name].ndim != axes or (arrays[name].dtype.kind not in kinds and arrays[name].size):
            raise ValueError(f"{path} is not {what}: {name} has {arrays[name].dtype} of shape {arrays[name].shape}")
    n_states, n_actions = arrays["available"].shape
    data, indices, indptr = (arrays[name] for name in ("data", "indices", "indptr"))
    rows = n_states * n_actions
    sound = (
        rows > 0
        and indptr.size == rows + 1
        and indptr[0] == 0
        and indptr[-1] == indices.size == data.size
        and (np.diff(indptr.astype(np.int64)) >= 0).all()
        and (not indices.size or (indices.min() >= 0 and indices.max() < n_states))
    )
    if not sound:
        raise ValueError(f"{path} is not {what}: its matrix of transitions is damaged")
    entries = data.astype(np.float64), indices.astype(np.int64), indptr.astype(np.int64)
    stacked = sp.csr_array(entries, shape=(rows, n_states))
    return {
        "transitions": [stacked[a * n_states : (a + 1) * n_states] for a in range(n_actions)],
        **{name: arrays[name] for name in ("initial", "terminal", "available")},
        **{name: arrays[name].tolist() for name in ("state_names", "action_names")},
        "grid_shape": tuple(arrays["grid_shape"].tolist()) or None,
        "sample_sizes": arrays.get("sample_sizes"),
    }


class MDP:
    """A finite MDP without reward and discount, checked on construction and never changed after.

    Args:
        transitions: `(A,S,S)` array or a sequence of A sparse matrices `(S,S)`; entry `[a, s, t]` is `T(t|s,a)`.
        initial: `(S,)` probabilities of the first state; by default uniform over the states that are not terminal.
        terminal: indices (or a mask) of the states that end the episode. Their rows must be zero or a pure self-loop.
        available: bool `(S,A)`; rows of actions that are not available are ignored. By default all are.
        state_names, action_names: labels used in tables and plots; by default "0", "1", …
        grid_shape: `(height, width)` when states are the cells of a grid in row-major order; used by plots.
        sample_sizes: `(A·S,)`, for transitions that were estimated: how many observed moves stand behind each row `a·S + s`.
            The covariance of a row `p` is `(diag(p) − p p') / sample_size`; infinite where a row is known exactly. None, the
            default, says that all transitions are exact.

    A fit lets estimated transitions give way within their own error. The MDP of its solution holds the fitted ones, and
    `counted` the entries of `stacked` before.

    Raises:
        ValueError: naming the place, the expected and the received.

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
        #: Mask of the states that some move enters; the wall of a grid is terminal, but nobody enters it.
        self.entered: Bools = np.zeros(n_states, dtype=np.bool_)
        self.entered[self.stacked.indices] = True
        self.initial: Floats = read_initial(initial, self.terminal, self.state_names)
        sides = np.array(() if grid_shape is None else grid_shape)
        if grid_shape is not None and (sides.shape != (2,) or (sides < 1).any() or sides.prod() != n_states or (sides % 1).any()):
            expected = f"(height, width) of a grid with {n_states} cells, one for each state"
            raise ValueError(f"grid_shape must be {expected}, received {tuple(grid_shape)}")
        self.grid_shape = None if grid_shape is None else (int(sides[0]), int(sides[1]))
        self.counted: Floats | None = None
        sizes = None if sample_sizes is None else np.array(sample_sizes, dtype=np.float64)
        if sizes is not None:
            as_shape(sizes, (n_actions * n_states,), "sample_sizes")
            if not (sizes > 0).all():
                raise ValueError(f"sample_sizes must be positive, received {sizes[~(sizes > 0)][0]}")
            sizes.setflags(write=False)
        for array in (self.terminal, self.available, self.live, self.entered, self.initial, self.stacked.data):
            array.setflags(write=False)
        self.sample_sizes: Floats | None = sizes

    def __setattr__(self, name: str, value: object) -> None:
        if "sample_sizes" in self.__dict__:  # the last field that __init__ sets
            raise AttributeError(f"an MDP cannot be changed, received a new {name}: build another MDP")
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
        """Build from an `(S,A,S)` array, entry `[s, a, t]` = `T(t|s,a)`; the other arguments are those of `MDP`."""
        array = as_floats(transitions, "transitions")
        if array.ndim != 3 or array.shape[0] != array.shape[2]:
            raise ValueError(f"transitions must have shape (S, A, S), received {array.shape}")
        return cls(array.transpose(1, 0, 2), initial, terminal, available, **names)

    @classmethod
    def from_gymnasium(cls, env: Any) -> MDP:
        """Build from a gymnasium environment with a transition table `env.unwrapped.P` (FrozenLake, CliffWalking, Taxi).

        Duplicate successors are summed; a state entered with `terminated` is terminal, whatever its own rows say.
        """
        return cls(**read_gymnasium(env))

    def transition(self, action: int) -> Sparse:
        """`T_a`, the `(S,S)` CSR matrix of one action."""
        return self.stacked[action * self.n_states : (action + 1) * self.n_states]

    def to_array(self) -> Floats:
        """All transitions as a dense `(A,S,S)` array; for small problems."""
        return self.dense.copy()

    @cached_property
    def dense(self) -> Floats:
        """What `to_array` gives, made once and read-only."""
        return read_only(self.stacked.toarray().reshape(self.n_actions, self.n_states, self.n_states))

    def with_probabilities(self, data: Floats) -> MDP:
        """The same task with other probabilities of the same moves, in the order of `stacked.data`.

        For estimated transitions: `counted` keeps the probabilities that follow from the counted moves alone.
        """
        return self._replaced(data, self.stacked.data if self.counted is None else self.counted)

    def without(self, forbidden: Bools) -> MDP:
        """The same task in which some actions, a mask `(S,A)`, cannot be taken; raises where a state is left without any."""
        if not (forbidden & self.live).any():
            return self
        available = read_available(self.available & ~forbidden, self.terminal, self.n_actions, self.state_names)
        return self._with(available=available, live=available & ~self.terminal[:, None])

    def starting(self, initial: ArrayLike) -> MDP:
        """The same task with other probabilities `(S,)` of the first state."""
        return self._with(initial=read_initial(initial, self.terminal, self.state_names))

    def _with(self, **changed: Any) -> MDP:
        """A copy with other arrays."""
        other = object.__new__(MDP)
        for array in changed.values():
            array.setflags(write=False)
        other.__dict__.update({name: value for name, value in vars(self).items() if name != "narrow"}, **changed)
        return other

    def as_counted(self) -> MDP:
        """The same task with the transitions that follow from the counted moves alone."""
        return self if self.counted is None else self._replaced(self.counted, None)

    def as_known(self) -> MDP:
        """The same task as if its transitions had been given: without the error of estimated ones."""
        if self.sample_sizes is None:
            return self
        other = copy.copy(self)
        object.__setattr__(other, "sample_sizes", None)
        return other

    def _replaced(self, data: Floats, counted: Floats | None) -> MDP:
        other = object.__new__(MDP)
        stacked = sp.csr_array((read_only(data), self.stacked.indices, self.stacked.indptr), shape=self.stacked.shape)
        kept = {name: value for name, value in vars(self).items() if name not in ("dense", "narrow")}
        other.__dict__.update(kept, stacked=stacked, counted=counted)
        return other

    def expect(self, vector: Floats) -> Floats:
        """`Σ_s' T(s'|s,a) vector(s')` as an `(S,A)` array."""
        product: Floats = (self.stacked @ vector).reshape(self.n_actions, self.n_states).T
        return product

    def under(self, policy: Floats) -> Sparse:
        """`P_π(s,s') = Σ_a π(a|s) T(s'|s,a)` as an `(S,S)` CSR matrix."""
        n, a = self.n_states, self.n_actions
        columns = (np.arange(n, dtype=np.int32)[:, None] + n * np.arange(a, dtype=np.int32)).ravel()
        mix = sp.csr_array((policy.flatten(), columns, np.arange(0, n * a + 1, a, dtype=np.int32)), shape=(n, n * a))
        mix.eliminate_zeros()
        return (mix @ self.stacked).tocsr()

    def expected_reward(self, reward: ArrayLike) -> Floats:
        """The expected immediate reward `(S,A)` of a reward `(S,)` paid on arrival, or of one given as `(S,A)`."""
        array = as_floats(reward, "reward")
        if array.shape == (self.n_states,):
            return self.expect(array)
        if array.shape != (self.n_states, self.n_actions):
            raise ValueError(
                f"reward must have shape ({self.n_states},) or ({self.n_states}, {self.n_actions}), received {array.shape}"
            )
        return np.where(self.terminal[:, None], 0.0, array)

    def never_ends(self, policy: Floats | None = None) -> Bools:
        """Mask of the states from which `policy` (by default: any policy) has no path to a terminal state."""
        choice = self.available / 1.0 if policy is None else policy
        return steps_into(self.under(choice), self.terminal) < 0

    @cached_property
    def narrow(self) -> bool:
        """Whether sparse factors of one policy's transitions stay small: some order of the states keeps all moves short."""
        return is_narrow(self.under(self.available / 1.0))

    def to_npz(self, path: str | Path) -> None:
        """Write to exactly this path; `MDP.from_npz` reads it back."""
        arrays = {name: getattr(self.stacked, name) for name in ("data", "indices", "indptr")}
        arrays |= {name: getattr(self, name) for name in ("initial", "terminal", "available")}
        arrays |= {name: np.array(getattr(self, name)) for name in ("state_names", "action_names")}
        arrays["grid_shape"] = np.array(self.grid_shape or (), dtype=np.int64)
        if self.sample_sizes is not None:
            arrays["sample_sizes"] = self.sample_sizes
        with Path(path).open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def from_npz(cls, path: str | Path) -> MDP:
        """Read what `to_npz` wrote.

        Raises:
            ValueError: if the file is another one or damaged, or if what it holds is no MDP.
        """
        arguments = read_mdp(path)
        try:
            return cls(**arguments)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def __repr__(self) -> str:
        ends = int(self.terminal.sum())
        return f"MDP({self.n_states} states, {self.n_actions} actions, {self.stacked.nnz} transitions, {ends} terminal)"


def is_narrow(matrix: Sparse) -> bool:
    """Whether some order of the states brings linked ones, on average, within ten square roots of their number.

    On grids and the like some order does. Where links have no order, every order leaves them apart by a share of the number.
    """
    n = matrix.shape[0]
    links = sp.csr_array(abs(matrix) + abs(matrix).T)
    place = np.empty(n, dtype=np.int64)
    place[reverse_cuthill_mckee(links, symmetric_mode=True)] = np.arange(n)
    lengths = place[np.repeat(np.arange(n), np.diff(links.indptr))] - place[links.indices]
    return bool(np.sqrt((lengths.astype(np.float64) ** 2).mean()) <= 10 * np.sqrt(n)) if lengths.size else True


def steps_into(matrix: Sparse, targets: Bools) -> Ints:
    """For each state the next one on a shortest path of `matrix` into `targets`; itself for a target, −1 if there is no path.

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
    """The states that are not terminal, sorted so that each level leads to earlier ones and endings only; None for cycles."""
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


def steps_left(mdp: MDP) -> Ints | None:
    """How many decisions an episode can still have in each state, `(S,)`, at most; None where it can come back to a state."""
    levels = episodic_levels(mdp)
    if levels is None:
        return None
    left = np.zeros(mdp.n_states, dtype=np.int64)
    for number, level in enumerate(levels):
        left[level] = number + 1
    return left
