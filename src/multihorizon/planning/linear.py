"""Linear systems `(I − γP) x = b` and `(I − γPᵀ) x = b` of one policy: the resolvent behind values, occupancies and derivatives.

Small systems are factorised once (sparse LU) and solved exactly as often as needed. Large ones are solved iteratively
(BiCGSTAB): for γ < 1 the spectrum of I − γP lies in a disc around 1 of radius γ, so a few dozen products are enough unless
γ is near 1; where the iteration stops short of the tolerance, the factorisation is used after all.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.linalg import lapack

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.mdp import MDP

#: Up to this many states dense matrices of one policy are quicker than sparse ones.
DENSE_STATES = 60
#: Up to this many states they are quicker where more than this share of all pairs of states has a transition.
FILLED_STATES, FILLED_SHARE = 2000, 0.05
#: Up to this many states the LU factors of a planar problem are small and exact solves are cheap.
DIRECT_STATES = 20_000
#: Above this discount the iteration is slower than the factorisation on every grid we measured.
ITERATIVE_DISCOUNT = 0.999


class SingularError(ValueError):
    """`I − γP` cannot be inverted: at discount 1 the policy can go on forever."""


def policy_resolvent(mdp: MDP, policy: Floats, discount: float) -> Resolvent:
    """The resolvent of one policy `(S,A)`: dense for few states, or for somewhat more with many transitions; else sparse.

    On a dozen states a sparse matrix takes a hundred times longer to build than a dense system takes to solve. Where states
    have dozens of successors each, the factors of a sparse matrix fill up anyway.
    """
    if mdp.n_states <= DENSE_STATES:
        return Resolvent(np.einsum("sa,ast->st", policy, mdp.dense), discount)
    matrix = mdp.under(policy)
    filled = mdp.n_states <= FILLED_STATES and mdp.stacked.nnz > FILLED_SHARE * mdp.n_states**2
    return Resolvent(matrix.toarray() if filled else matrix, discount)


class Resolvent:
    """Solves with `I − γP` for one row-substochastic `(S,S)` matrix `P`, sparse or (when small) dense, and one discount."""

    def __init__(self, matrix: Sparse | Floats, discount: float) -> None:
        self.matrix = matrix
        self.discount = discount
        self.dense = isinstance(matrix, np.ndarray)
        identity = np.eye if self.dense else sp.eye_array
        difference = identity(matrix.shape[0]) - discount * matrix
        self.operator: Sparse = difference if self.dense else sp.csr_array(difference)
        self.direct = matrix.shape[0] <= DIRECT_STATES or discount > ITERATIVE_DISCOUNT

    def solve(self, b: Floats, *, transpose: bool = False, tolerance: float = 1e-13, guess: Floats | None = None) -> Floats:
        """The solution x of `(I − γP) x = b`, or of the transposed system, to a relative residual of `tolerance`.

        `b` may have several columns when the system is small enough for the factorisation.
        """
        if self.dense:
            return self._solve_dense(b, transpose)
        if not self.direct and b.ndim == 1:
            x = self._iterate(self.operator.T if transpose else self.operator, b, tolerance, guess)
            if x is not None:
                return x
        solution: Floats = self._factor.solve(b, trans="T" if transpose else "N")
        return solution

    def _solve_dense(self, b: Floats, transpose: bool) -> Floats:
        factors, pivots = self._dense_factor
        found: Floats = lapack.dgetrs(factors, pivots, b, trans=int(transpose))[0]
        return found

    @cached_property
    def _dense_factor(self) -> tuple[Floats, Ints]:
        factors, pivots, singular = lapack.dgetrf(self.operator)
        if singular > 0:
            raise SingularError(f"I − γP is singular at discount {self.discount}: the policy can go on forever")
        return factors, pivots

    @cached_property
    def _factor(self) -> spla.SuperLU:
        try:
            return spla.splu(self.operator.tocsc())
        except RuntimeError as error:
            raise SingularError(f"I − γP is singular at discount {self.discount}: the policy can go on forever") from error

    @staticmethod
    def _iterate(operator: Sparse, b: Floats, tolerance: float, guess: Floats | None) -> Floats | None:
        """BiCGSTAB on the true residual, refined a few times because its own residual drifts; None if it stops short."""
        target = tolerance * float(np.linalg.norm(b))
        x = np.zeros_like(b) if guess is None else guess
        for _ in range(5):
            residual = b - operator @ x
            size = float(np.linalg.norm(residual))
            if size <= target:
                return x
            rtol = max(0.3 * target / size, 1e-8)
            # Scaled to norm 1, because SciPy tests for breakdown against an absolute threshold.
            step, _ = spla.bicgstab(operator, residual / size, rtol=rtol, atol=0.0, maxiter=300)
            x = x + size * step
        return None
