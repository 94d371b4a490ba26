"""Action differences of one MDP: which functions of the next state its actions can tell apart.

D holds, for each state and available action, the row of transition probabilities less the state's mean over its actions, with
weights. This module solves `D u = b` by least squares and finds null(D), a basis of what no action can tell apart.

States that no transition enters are left out: nothing depends on their reward. In the usual case null(D) holds the constants
only. The guess "constant on each connected part of D's graph" is tested numerically (`normal_equations`). Where it fails null(D)
comes from a dense singular value decomposition.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.mdp import MDP
from multihorizon.recovery.normal_equations import EXACT, ROUGH, NormalSolver, normal_solver
from multihorizon.tolerances import RANK_TOLERANCE, TINY

#: Up to this many states the dense decomposition is as fast as the sparse factorisation.
DENSE_STATES = 64
#: The largest D that is decomposed densely when its null space is larger than the constants.
LARGEST_DENSE = 3000
#: Smaller entries of D are rounding from the subtraction of equal probabilities.
SMALLEST_ENTRY = 1e-15
#: Beyond this many parts of D's graph the constants on them are too many for the systems that follow.
MOST_PARTS = 3000


class Differences:
    """The operator D of one MDP with weighted rows: which states are entered, null(D), and least-squares solves.

    Weights `(S,A)` must be 0 where an action is not available.

    Attributes:
        entered: indices of the states that some transition enters; D's columns.
        basis: `(|entered|, n)` basis N of null(D).
        singular_values: the spectrum of D from the dense decomposition, else estimates of its largest and smallest value
            on the states left after one of each component is fixed.
    """

    def __init__(self, mdp: MDP, weights: Floats) -> None:
        self.mdp = mdp
        self.entered: Ints = np.flatnonzero(mdp.entered)
        self._weights = weights
        self._totals = np.maximum(weights.sum(axis=1), TINY)
        self._root = np.sqrt(np.where(mdp.live, weights, 0.0).T, order="C")
        self.matrix = self._centred_rows()
        self._decompose()

    def solve(self, log_policy: Floats, rough: bool = False) -> Floats:
        """û on the entered states, `(|entered|, m)` from logarithms `(S,A,m)`: the least-squares solution of `D û = ℓ − mean`.

        A `rough` solution, for noise of which only the size matters, has one or two digits where there are many states.
        """
        solutions = np.empty((log_policy.shape[2], self.entered.size))
        for number, solution in enumerate(solutions):
            solution[:] = self._least_squares(self._centred(log_policy[:, :, number]), rough)
        return solutions.T

    def fit(self, log_policy: Floats) -> tuple[Floats, float]:
        """û `(|entered|,)` from logarithms `(S,A)`, and its misfit.

        The misfit is the root mean square of the weighted `D û − (ℓ − mean)`: the part of log π that no reward and discount can
        explain.
        """
        right = self._centred(log_policy)
        solution = self._least_squares(right, rough=False)
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

    def _decompose(self) -> None:
        size = self.entered.size
        self._solver = self._solver_of_parts() if size > DENSE_STATES else None
        if self._solver is not None:
            return
        if size > LARGEST_DENSE:
            raise ValueError(
                f"the actions of this MDP leave more than a constant per component open on {size} states, and null spaces "
                f"larger than that are computed for at most {LARGEST_DENSE} states"
            )
        left, self.singular_values, right = np.linalg.svd(self.matrix.toarray(), full_matrices=self.matrix.shape[0] < size)
        rank = int((self.singular_values > RANK_TOLERANCE * max(self.singular_values.max(initial=0.0), TINY)).sum())
        self._inverse = (right[:rank].T / self.singular_values[:rank]) @ left[:, :rank].T
        self.basis: Floats = np.ones((size, 1)) if rank == size - 1 else right[rank:].T.copy()

    def _solver_of_parts(self) -> NormalSolver | None:
        """Solves, where null(D) holds nothing but one constant on each part of D's graph."""
        gram = sp.csr_array(self.matrix.T.tocsr() @ self.matrix)
        n_parts, labels = connected_components(gram, directed=False)
        if n_parts > MOST_PARTS:
            return None
        solver = normal_solver(self.matrix, gram, labels)
        if solver is not None:
            self.singular_values = np.array([solver.largest, solver.smallest])
            self.basis = (labels[:, None] == np.arange(n_parts)[None, :]) / 1.0
        return solver

    def _least_squares(self, right: Floats, rough: bool) -> Floats:
        if self._solver is None:
            small: Floats = self._inverse @ right
            return small
        return self._solver.solve(right, ROUGH if rough else EXACT)
