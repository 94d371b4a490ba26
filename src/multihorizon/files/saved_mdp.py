"""The `.npz` file of an MDP. Its sparse matrix is used only after its pointers were checked: wrong ones crash SciPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from multihorizon.files.saved import read_arrays

_KIND = "a saved MDP"
#: What every file holds: the number of axes of each array and the kinds of numbers (NumPy's letters) it may be made of.
_NEEDED = {
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


def write_mdp(path: str | Path, transitions: sp.csr_array, arrays: dict[str, Any]) -> None:
    """Write the stacked transitions and further arrays to exactly this path."""
    matrix = {"data": transitions.data, "indices": transitions.indices, "indptr": transitions.indptr}
    with Path(path).open("wb") as file:
        np.savez_compressed(file, **matrix, **arrays)


def read_mdp(path: str | Path) -> dict[str, Any]:
    """The arguments of `MDP` that `write_mdp` saved."""
    arrays = read_arrays(path, _KIND)
    missing = sorted(set(_NEEDED) - set(arrays))
    if missing:
        raise ValueError(f"{path} is not {_KIND}: it lacks {', '.join(missing)}")
    for name, (axes, kinds) in _NEEDED.items():
        if arrays[name].ndim != axes or (arrays[name].dtype.kind not in kinds and arrays[name].size):
            raise ValueError(f"{path} is not {_KIND}: {name} has {arrays[name].dtype} of shape {arrays[name].shape}")
    n_states, n_actions = arrays["available"].shape
    stacked = _matrix(path, arrays, n_states, n_actions)
    return {
        "transitions": [stacked[a * n_states : (a + 1) * n_states] for a in range(n_actions)],
        **{name: arrays[name] for name in ("initial", "terminal", "available")},
        **{name: arrays[name].tolist() for name in ("state_names", "action_names")},
        "grid_shape": tuple(arrays["grid_shape"].tolist()) or None,
        "sample_sizes": arrays.get("sample_sizes"),
    }


def _matrix(path: str | Path, arrays: dict[str, NDArray[Any]], n_states: int, n_actions: int) -> sp.csr_array:
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
        raise ValueError(f"{path} is not {_KIND}: its matrix of transitions is damaged")
    return sp.csr_array((data.astype(np.float64), indices.astype(np.int64), indptr.astype(np.int64)), shape=(rows, n_states))
