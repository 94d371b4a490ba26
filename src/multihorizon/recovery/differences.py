"""Action differences of one MDP: which functions of the next state its actions can tell apart.

D holds, for each state and available action, the row of transition probabilities less the state's mean over its actions, with
weights. This module builds D and solves `D u = b` by least squares; `null_space` finds null(D): what no action can tell apart.

States that no transition enters are left out: nothing depends on their reward.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.mdp import MDP
from multihorizon.recovery.null_space import null_space
from multihorizon.tolerances import TINY

#: Smaller entries of D are rounding from the subtraction of equal probabilities.
SMALLEST_ENTRY = 1e-15


class Differences:
    """The operator D of one MDP with weighted rows: which states are entered, null(D), and least-squares solves.

    Weights `(S,A)` must be 0 where an action is not available.

    Attributes:
        entered: indices of the states that some transition enters; D's columns.
        null_space: null(D).
    """

    def __init__(self, mdp: MDP, weights: Floats) -> None:
        self.mdp = mdp
        self.entered: Ints = np.flatnonzero(mdp.entered)
        self._weights = weights
        self._totals = np.maximum(weights.sum(axis=1), TINY)
        self._root = np.sqrt(np.where(mdp.live, weights, 0.0).T, order="C")
        self.matrix = self._centred_rows()
        self.null_space = null_space(self.matrix)

    def solve(self, log_policy: Floats, rough: bool = False) -> Floats:
        """û on the entered states, `(|entered|, m)` from logarithms `(S,A,m)`: the least-squares solution of `D û = ℓ − mean`.

        A `rough` solution, for noise of which only the size matters, has one or two digits where there are many states.
        """
        solutions = np.empty((log_policy.shape[2], self.entered.size))
        for number, solution in enumerate(solutions):
            solution[:] = self.null_space.solve(self._centred(log_policy[:, :, number]), rough)
        return solutions.T

    def fit(self, log_policy: Floats) -> tuple[Floats, float]:
        """û `(|entered|,)` from logarithms `(S,A)`, and its misfit.

        The misfit is the root mean square of the weighted `D û − (ℓ − mean)`: the part of log π that no reward and discount can
        explain.
        """
        right = self._centred(log_policy)
        solution = self.null_space.solve(right, rough=False)
        right -= self.matrix @ solution
        return solution, float(np.linalg.norm(right)) / np.sqrt(max(int(self.mdp.live.sum()), 1))

    def _centred(self, values: Floats) -> Floats:
        """Values `(S,A)` less their state's weighted mean, times the root of their weight, in the order `a·S + s` of D's rows."""
        centred: Floats = np.subtract(values.T, np.vecdot(self._weights, values) / self._totals, order="C")
        centred *= self._root
        return centred.ravel()

    def _centred_rows(self) -> Sparse:
        """D: one row for each action and state, which is 0 where the action is not available or the state is terminal."""
        mean = self.mdp.under(self._weights / self._totals[:, None])
        mean.sort_indices()
        blocks = []
        for action, root in enumerate(self._root):
            block = sp.csr_array(self.mdp.transition(action) - mean)
            scale = np.repeat(root, np.diff(block.indptr))
            block.data *= scale
            block.data[np.abs(block.data) <= SMALLEST_ENTRY * scale] = 0.0
            block.eliminate_zeros()
            blocks.append(block)
        stacked = sp.csr_array(sp.vstack(blocks, format="csr"))
        return stacked if self.entered.size == self.mdp.n_states else stacked[:, self.entered]
