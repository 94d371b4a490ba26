"""Reading the arrays of an MDP: each check raises one sentence that names the states and the action."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import ROW_TOLERANCE, Bools, Floats, Sparse, as_distribution, as_shape


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


def read_grid(shape: Sequence[int] | None, n_states: int) -> tuple[int, int] | None:
    """The height and width of a grid whose cells are the states."""
    if shape is None:
        return None
    if len(shape) != 2 or min(shape) < 1 or any(n != int(n) for n in shape) or shape[0] * shape[1] != n_states:
        raise ValueError(
            f"grid_shape must be (height, width) of a grid with {n_states} cells, one for each state, received {tuple(shape)}"
        )
    return int(shape[0]), int(shape[1])


def read_sample_sizes(sizes: ArrayLike | None, n_rows: int) -> Floats | None:
    """How many observed moves stand behind each row; None where all transitions are exact."""
    if sizes is None:
        return None
    array = np.array(sizes, dtype=np.float64)
    as_shape(array, (n_rows,), "sample_sizes")
    if not (array > 0).all():
        raise ValueError(f"sample_sizes must be positive, received {array[~(array > 0)][0]}")
    array.setflags(write=False)
    return array


@dataclass(frozen=True, eq=False)
class RowChecks:
    """What is needed to check the rows `a·S + s` of stacked transitions and to name a faulty one."""

    state_names: tuple[str, ...]
    action_names: tuple[str, ...]
    terminal: Bools
    available: Bools

    def check(self, stacked: Sparse) -> Sparse:
        """Drop the rows that carry no equation, check that the others are distributions, and rescale them to sum to 1."""
        stacked = stacked.copy()
        if not np.isfinite(stacked.data).all():
            raise ValueError(
                f"transitions must be finite, received a NaN or infinity {self._place(stacked, ~np.isfinite(stacked.data))}"
            )
        if (stacked.data < 0).any():
            raise ValueError(
                f"transitions must not be negative, received a negative one {self._place(stacked, stacked.data < 0)}"
            )
        self._check_ends(stacked)
        live = (self.available & ~self.terminal[:, None]).T.ravel()
        with np.errstate(over="ignore"):
            sums = stacked.sum(axis=1)
        off = live & (np.abs(sums - 1) > ROW_TOLERANCE)
        if off.any():
            action, state = divmod(int(np.flatnonzero(off)[0]), self.terminal.size)
            raise ValueError(
                f"transitions from state {self.state_names[state]} under action {self.action_names[action]} "
                f"must sum to 1, received a sum of {sums[off][0]:.6g}"
            )
        scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=live)
        stacked.data *= np.repeat(scale, np.diff(stacked.indptr))
        stacked.eliminate_zeros()
        if stacked.nnz <= np.iinfo(np.int32).max:  # a product with half the index bytes is a third faster
            stacked.indices, stacked.indptr = stacked.indices.astype(np.int32), stacked.indptr.astype(np.int32)
        return stacked

    def _check_ends(self, stacked: Sparse) -> None:
        rows = np.repeat(np.arange(stacked.shape[0]), np.diff(stacked.indptr))
        states = rows % self.terminal.size
        leaving = self.terminal[states] & (stacked.indices != states) & (stacked.data > 0)
        if leaving.any():
            raise ValueError(f"terminal states must have no leaving transitions, received one {self._place(stacked, leaving)}")

    def _place(self, stacked: Sparse, entries: Bools) -> str:
        entry = int(np.flatnonzero(entries)[0])
        row = int(np.searchsorted(stacked.indptr, entry, side="right")) - 1
        action, state = divmod(row, self.terminal.size)
        target = self.state_names[int(stacked.indices[entry])]
        return f"from state {self.state_names[state]} to {target} under action {self.action_names[action]}"


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
