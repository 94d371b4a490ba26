"""Finite Markov decision processes, stored sparse.

Transitions are one stacked CSR matrix `T_A` of shape (A·S, S) whose row `a·S + s` is `T(·|s,a)`, so that a Q backup of any
vector is a single sparse product. Reward is paid on arrival: `Q(s,a) = Σ_s' T(s'|s,a) [r(s') + γ V(s')]`.

An episode ends in one of two ways, and they are different models:

* a *terminal* state pays its reward on arrival and the episode is over: its rows are zero and its value is 0;
* an *absorbing* state is an ordinary state with a self-loop, which goes on paying.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.csgraph import breadth_first_order, reverse_cuthill_mckee

from multihorizon.checks import Bools, Floats, Ints, Sparse, as_floats, as_mask, as_names, read_only
from multihorizon.files.saved_mdp import read_mdp, write_mdp
from multihorizon.gymnasium_env import read_gymnasium
from multihorizon.mdp_arrays import RowChecks, read_available, read_grid, read_initial, read_sample_sizes, read_transitions

#: On grids and the like some order of the states puts linked ones a few square roots of their number apart. Where links have no
#: order, every order leaves them apart by a share of the number itself.
NARROW = 10


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
        self.stacked: Sparse = RowChecks(self.state_names, self.action_names, self.terminal, self.available).check(stacked)
        self.initial: Floats = read_initial(initial, self.terminal, self.state_names)
        self.grid_shape = read_grid(grid_shape, n_states)
        self.counted: Floats | None = None
        self.sample_sizes: Floats | None = read_sample_sizes(sample_sizes, n_actions * n_states)
        for array in (self.terminal, self.available, self.initial, self.stacked.data):
            array.setflags(write=False)

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

    def as_counted(self) -> MDP:
        """The same task with the transitions that follow from the counted moves alone."""
        return self if self.counted is None else self._replaced(self.counted, None)

    def _replaced(self, data: Floats, counted: Floats | None) -> MDP:
        other = object.__new__(MDP)
        kept = ("n_states", "n_actions", "state_names", "action_names", "terminal", "available", "initial", "grid_shape")
        stacked = sp.csr_array((read_only(data), self.stacked.indices, self.stacked.indptr), shape=self.stacked.shape)
        fields = {name: getattr(self, name) for name in kept}
        other.__dict__.update(fields, stacked=stacked, counted=counted, sample_sizes=self.sample_sizes)
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
    def live(self) -> Bools:
        """Mask `(S,A)` of the decisions there are: actions available in states that are not terminal."""
        return read_only(self.available & ~self.terminal[:, None])

    @cached_property
    def entered(self) -> Bools:
        """Mask of the states that some move enters; the wall of a grid is terminal, but nobody enters it."""
        entered = np.zeros(self.n_states, dtype=np.bool_)
        entered[self.stacked.indices] = True
        return entered

    @property
    def entered_ends(self) -> Bools:
        """Mask of the terminal states that some move enters."""
        return self.terminal & self.entered

    @cached_property
    def narrow(self) -> bool:
        """Whether sparse factors of one policy's transitions stay small: some order of the states keeps all moves short."""
        return is_narrow(self.under(self.available / 1.0))

    def to_npz(self, path: str | Path) -> None:
        """Write to exactly this path; `MDP.from_npz` reads it back."""
        arrays = {name: getattr(self, name) for name in ("initial", "terminal", "available")}
        arrays |= {name: np.array(getattr(self, name)) for name in ("state_names", "action_names")}
        arrays["grid_shape"] = np.array(self.grid_shape or (), dtype=np.int64)
        if self.sample_sizes is not None:
            arrays["sample_sizes"] = self.sample_sizes
        write_mdp(path, self.stacked, arrays)

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
    """Whether some order of the states brings linked ones, on average, within `NARROW` square roots of their number."""
    n = matrix.shape[0]
    links = sp.csr_array(abs(matrix) + abs(matrix).T)
    place = np.empty(n, dtype=np.int64)
    place[reverse_cuthill_mckee(links, symmetric_mode=True)] = np.arange(n)
    lengths = place[np.repeat(np.arange(n), np.diff(links.indptr))] - place[links.indices]
    return bool(np.sqrt((lengths.astype(np.float64) ** 2).mean()) <= NARROW * np.sqrt(n)) if lengths.size else True


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
