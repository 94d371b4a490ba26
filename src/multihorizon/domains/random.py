"""Random MDPs for tests and benchmarks."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import as_count
from multihorizon.mdp import MDP


def random_mdp(n_states: int, n_actions: int, branching: int | None = None, n_terminal: int = 0, seed: int = 0) -> MDP:
    """An MDP whose rows are flat Dirichlet over `branching` random successors (by default all states).

    The last `n_terminal` states are terminal.

    Example:
        >>> random_mdp(5, 2, branching=3).stacked.nnz
        30
    """
    n_states, n_actions = as_count(n_states, "n_states"), as_count(n_actions, "n_actions")
    branching = n_states if branching is None else as_count(branching, "branching")
    if branching > n_states:
        raise ValueError(f"branching must be at most the {n_states} states, received {branching}")
    if as_count(n_terminal, "n_terminal", least=0) >= n_states:
        raise ValueError(f"n_terminal must be below the {n_states} states, received {n_terminal}")
    rng = np.random.default_rng(seed)
    live = n_states - n_terminal
    rows = np.repeat(np.arange(live), branching)

    def one_action() -> sp.csr_array:
        successors = rng.random((live, n_states)).argpartition(branching - 1, axis=1)[:, :branching]
        chances = rng.dirichlet(np.ones(branching), size=live)
        return sp.csr_array((chances.ravel(), (rows, successors.ravel())), shape=(n_states, n_states))

    return MDP([one_action() for _ in range(n_actions)], terminal=np.arange(live, n_states))
