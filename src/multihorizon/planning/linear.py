"""Linear systems `(I − γP) x = b` and `(I − γPᵀ) x = b` of one policy: the resolvent behind values, occupancies and derivatives.

Three ways, by size and by how often one system is solved:

* a dense factorisation, for few states, or for a few thousand with many transitions;
* a sparse factorisation, exact and quick once it is there. `I − γP` is diagonally dominant, so no pivots are searched;
* iteration, which needs products only: a short series at small discounts, else BiCGSTAB, restarted on the true residual until
  that is rounding. For γ < 1 the spectrum of `I − γP` lies in a disc around 1 of radius γ, so a few dozen products are enough
  unless γ is near 1.

A new sparse system is iterated. It is factorised once its iterations have taken as long as the factorisation takes: then at most
twice the cheaper of the two is spent, whatever the discount and however many right-hand sides follow. Where states are linked
without any order, the factors fill up, and the iteration goes on. `benchmarks/direct_or_iterative.py` measures the switch.

BiCGSTAB (van der Vorst, 1992) is our own for several right-hand sides at once, one in each row. Each row has coefficients of its
own, and is put aside once it has converged. A row fails where a coefficient is not finite or the steps run out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from scipy.linalg import lapack

from multihorizon.checks import TINY, Bools, Floats, Ints, Sparse
from multihorizon.mdp import MDP, is_narrow

#: Up to this many states dense matrices of one policy are quicker than sparse ones.
DENSE_STATES = 60
#: Up to this many states a sparse factorisation takes no longer than one iterative solve.
DIRECT_STATES = 2000


class SingularError(ValueError):
    """`I − γP` cannot be inverted: at discount 1 the policy can go on forever."""


def policy_resolvent(mdp: MDP, policy: Floats, discount: float, **limits: Any) -> Resolvent:
    """Build the resolvent of one policy `(S,A)`: dense for few states, or for somewhat more with many transitions; else sparse.

    On a dozen states a sparse matrix takes a hundred times longer to build than a dense system takes to solve. Where states
    have dozens of successors each, the factors of a sparse matrix fill up anyway.
    """
    mdp = mdp.at(discount)
    if mdp.n_states <= DENSE_STATES:
        return Resolvent(np.einsum("sa,ast->st", policy, mdp.dense), discount)
    if isinstance(mdp.moves, np.ndarray):
        return Resolvent((policy[:, None, :] @ mdp.dense.transpose(1, 0, 2))[:, 0], discount, **limits)
    return matrix_resolvent(mdp, mdp.under(policy), discount, **limits)


def matrix_resolvent(mdp: MDP, matrix: Sparse | Floats, discount: float, **limits: Any) -> Resolvent:
    """Build the resolvent of a policy's `P`; a sparse P is made dense where over 5% of pairs of states have a transition."""
    assert mdp.durations is None, "P must be that of the task as it is seen at the discount"
    if isinstance(matrix, np.ndarray):
        return Resolvent(matrix, discount, **limits)
    if mdp.n_states <= limits.get("direct_states", DIRECT_STATES) and mdp.stacked.nnz > 0.05 * mdp.n_states**2:
        return Resolvent(matrix.toarray(), discount, **limits)
    resolvent = Resolvent(matrix, discount, lambda: mdp.narrow, **limits)
    resolvent.shrinks = bool(mdp.shortest >= 1 and np.min(matrix.data, initial=0.0) >= 0)
    return resolvent


class Resolvent:
    """Solves with `I − γP` for one row-substochastic `(S,S)` matrix `P`, sparse or (when small) dense, and one discount."""

    def __init__(
        self,
        matrix: Sparse | Floats,
        discount: float,
        narrow: Callable[[], bool] | None = None,
        direct_states: float = DIRECT_STATES,
        factor_steps: float = 1.0,
        dense_steps: float = 1 / 35,
    ) -> None:
        """Keep the system.

        Args:
            matrix: P.
            discount: γ.
            narrow: says whether the factors stay small, where someone else knows; it is asked only when it matters.
            direct_states: up to this many states a sparse factorisation takes no longer than one iterative solve.
            factor_steps: that of S states takes about as long as `factor_steps · √S` steps of BiCGSTAB on one right-hand side.
            dense_steps: a dense one takes as long as `dense_steps · S` steps.
        """
        self.direct_states = direct_states
        self.factor_steps = factor_steps
        self.dense_steps = dense_steps
        self.matrix = matrix
        self.narrow = narrow
        self.discount = discount
        self.dense = isinstance(matrix, np.ndarray)
        #: Whether a product with γP leaves at most γ of the largest entry; not so where moves take less than one unit of time.
        self.shrinks = True
        self._steps = 0

    @cached_property
    def operator(self) -> Any:
        """Return `I − γP`."""
        if self.dense:
            return np.eye(self.matrix.shape[0]) - self.discount * self.matrix
        return sp.csr_array(sp.eye_array(self.matrix.shape[0], format="csr") - self.discount * self.matrix)

    def solve(self, b: Floats, *, transpose: bool = False, tolerance: float = 1e-13, guess: Floats | None = None) -> Floats:
        """Solve `(I − γP) x = b`, or the transposed system; `b` may have several columns.

        The largest residual is at most `tolerance` of the largest entry of b, or rounding in x, whichever is larger. A `guess` of
        one solution that has six digits already is refined without a factorisation.
        """
        near = guess is not None and not transpose and self._nearly(b, guess)
        # Each right-hand side is expected to take 15 steps before the first has been solved.
        if near or not self._direct(self._steps + (15 * b.shape[1] if b.ndim == 2 else 0)):
            rows = np.ascontiguousarray(b.reshape(b.shape[0], -1).T)
            x = self._iterate(rows, transpose, tolerance, rows if guess is None else guess[None, :])
            if x is not None:
                return x.T.reshape(b.shape)
        if self.dense:
            factors, pivots = self._dense_factor
            dense: Floats = lapack.dgetrs(factors, pivots, b, trans=int(transpose))[0]
            return dense
        solved: Floats = self._factor.solve(b, trans="T" if transpose else "N")
        return solved

    def _nearly(self, b: Floats, guess: Floats) -> bool:
        """Say whether a guess solves the system to six digits."""
        left = np.abs(b - guess + self.discount * (self.matrix @ guess)).max(initial=0.0)
        return bool(left <= 1e-6 * np.abs(b).max(initial=0.0))

    def _direct(self, steps: int) -> bool:
        """Say whether a factorisation exists, or is worth its time after so many steps taken or to come."""
        n = self.matrix.shape[0]
        if n <= self.direct_states or "_factor" in self.__dict__ or "_dense_factor" in self.__dict__:
            return True
        return steps > self.dense_steps * n if self.dense else steps > self.factor_steps * np.sqrt(n) and self._narrow

    @cached_property
    def _narrow(self) -> bool:
        return is_narrow(self.matrix) if self.narrow is None else self.narrow()

    @cached_property
    def _discounted(self) -> Any:
        return self.discount * self.matrix

    @cached_property
    def _transposed(self) -> Any:
        return self.operator.T if self.dense else sp.csr_array(self.operator.T)

    @cached_property
    def _dense_factor(self) -> tuple[Floats, Ints]:
        factors, pivots, singular = lapack.dgetrf(self.operator)
        if singular > 0:
            raise SingularError(f"I − γP is singular at discount {self.discount}: the policy can go on forever")
        return factors, pivots

    @cached_property
    def _factor(self) -> spla.SuperLU:
        dominant = np.min(self.matrix.data, initial=0.0) >= 0  # not so for the derivative of a value that is a mean of choices
        options = {"SymmetricMode": True} if dominant else {}
        order, threshold = ("MMD_AT_PLUS_A", 0.0) if dominant else ("COLAMD", 1.0)
        try:
            return spla.splu(self.operator.tocsc(), permc_spec=order, diag_pivot_thresh=threshold, options=options)
        except RuntimeError as error:
            raise SingularError(f"I − γP is singular at discount {self.discount}: the policy can go on forever") from error

    def _iterate(self, b: Floats, transpose: bool, tolerance: float, x: Floats) -> Floats | None:
        """Iterate a short series, or BiCGSTAB restarted on the true residual; return None if it stops short.

        Right-hand sides and solutions are rows.
        """
        matrix = self.matrix.T if transpose else self.matrix
        wanted = tolerance * np.abs(b).max(axis=1)
        if x is b and not transpose and self._terms(tolerance):
            return self._series(b, x, wanted, self._terms(tolerance))
        # A system that needs more than eight restarts, or 400 steps in one run, is factorised.
        for _ in range(8):
            residual = products(matrix, x)
            residual *= self.discount
            residual += b
            residual -= x
            largest = np.abs(residual).max(axis=1)
            # A residual of eight units in the last place of the solution is rounding.
            target = np.maximum(wanted, 8 * np.finfo(np.float64).eps * np.abs(x).max(axis=1))
            if (largest <= target).all():
                return x
            share = target / np.maximum(largest, TINY)
            if not transpose and self._terms(float(share.min())):
                return self._series(b, x, target, self._terms(float(share.min())))
            operator = self._transposed if transpose else self.operator
            step, solved, steps = bicgstab(operator, residual, np.clip(0.3 * share, 1e-8, 1.0), 400)
            self._steps += steps * b.shape[0]
            if not solved.all():
                return None
            x = x + step
        return None

    def _terms(self, share: float) -> int:
        """Count the terms of the series that leave this share of the residual, each γ of it; 0 where there are more than 24."""
        if not self.shrinks or self.discount**24 > share:
            return 0
        return 1 if self.discount == 0 else max(1, int(np.ceil(np.log(share) / np.log(self.discount))))

    def _series(self, b: Floats, x: Floats, target: Floats, terms: int) -> Floats:
        """Repeat `x ← b + γPx` for so many terms, or fewer where enough; one more term's change is the residual before it."""
        for term in range(terms):
            last = x
            x = products(self._discounted, x)
            x += b
            if term % 8 == 7 and (np.abs(x - last).max(axis=1) <= target).all():
                break
        return x


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def bicgstab(operator: Sparse, right: Floats, shares: Floats, most_steps: int) -> tuple[Floats, Bools, int]:
    """Return approximate solutions `(m,n)` for right-hand sides `(m,n)`, the mask `(m,)` of those that converged, and the steps.

    Args:
        operator: `(n,n)`.
        right: the right-hand sides.
        shares: for each of them the share of its norm that the residual may keep.
        most_steps: number of steps after which the rest is abandoned.
    """
    size = np.sqrt(np.vecdot(right, right))
    solutions = np.zeros_like(right)
    done = size == 0
    rows = np.flatnonzero(size > 0)
    r = right[rows] / size[rows, None]
    shadow = r.copy()
    x = np.zeros_like(r)
    p = r.copy()
    rho = np.vecdot(shadow, r)
    for step in range(most_steps if rows.size else 0):
        v = products(operator, p)
        alpha = rho / np.vecdot(shadow, v)
        r -= alpha[:, None] * v
        t = products(operator, r)
        omega = np.vecdot(t, r) / np.vecdot(t, t)
        x += alpha[:, None] * p
        x += omega[:, None] * r
        r -= omega[:, None] * t
        left = np.sqrt(np.vecdot(r, r))
        ended = (left <= shares[rows]) | ~np.isfinite(left)
        if ended.any():
            solutions[rows[ended]] = x[ended] * size[rows[ended], None]
            done[rows[ended]] = np.isfinite(left[ended])
            if ended.all():
                return solutions, done, step + 1
            rows = rows[~ended]
            r, shadow, x, p, v = (array[~ended] for array in (r, shadow, x, p, v))
            rho, alpha, omega = rho[~ended], alpha[~ended], omega[~ended]
        before = rho
        rho = np.vecdot(shadow, r)
        p -= omega[:, None] * v
        p *= ((rho / before) * (alpha / omega))[:, None]
        p += r
    solutions[rows] = x * size[rows, None]
    return solutions, done, most_steps


def products(operator: Sparse, rows: Floats) -> Floats:
    """Multiply with each row. One product with all rows would read the matrix once, but its columns are slow to work on."""
    return (operator @ rows[0])[None, :] if len(rows) == 1 else np.stack([operator @ row for row in rows])
