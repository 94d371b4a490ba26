"""BiCGSTAB for several right-hand sides, one in each row (van der Vorst, 1992).

Each row has its own coefficients, and is put aside once it has converged. A row stops where its residual is small enough, and
fails where a coefficient is not finite or the steps run out.
"""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Bools, Floats, Sparse


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def bicgstab(operator: Sparse, right: Floats, shares: Floats, most_steps: int) -> tuple[Floats, Bools, int]:
    """Approximate solutions `(m,n)` for right-hand sides `(m,n)`, which of them converged `(m,)`, and the number of steps.

    Args:
        operator: `(n,n)`.
        right: the right-hand sides.
        shares: for each of them the share of its norm that the residual may keep.
        most_steps: steps after which the rest is given up.
    """
    size = np.sqrt(_dots(right, right))
    found, done, rows = np.zeros_like(right), size == 0, np.flatnonzero(size > 0)
    r = right[rows] / size[rows, None]
    shadow, x, p = r.copy(), np.zeros_like(r), r.copy()
    rho = _dots(shadow, r)
    for step in range(most_steps if rows.size else 0):
        v = products(operator, p)
        alpha = rho / _dots(shadow, v)
        r -= alpha[:, None] * v
        t = products(operator, r)
        omega = _dots(t, r) / _dots(t, t)
        x += alpha[:, None] * p
        x += omega[:, None] * r
        r -= omega[:, None] * t
        left = np.sqrt(_dots(r, r))
        ended = (left <= shares[rows]) | ~np.isfinite(left)
        if ended.any():
            found[rows[ended]], done[rows[ended]] = x[ended] * size[rows[ended], None], np.isfinite(left[ended])
            if ended.all():
                return found, done, step + 1
            rows = rows[~ended]
            r, shadow, x, p, v = (array[~ended] for array in (r, shadow, x, p, v))
            rho, alpha, omega = rho[~ended], alpha[~ended], omega[~ended]
        before, rho = rho, _dots(shadow, r)
        p -= omega[:, None] * v
        p *= ((rho / before) * (alpha / omega))[:, None]
        p += r
    found[rows] = x * size[rows, None]
    return found, done, most_steps


def products(operator: Sparse, rows: Floats) -> Floats:
    """The product with each row. One product with all of them would read the matrix once, but give columns, slow to work on."""
    return (operator @ rows[0])[None, :] if len(rows) == 1 else np.stack([operator @ row for row in rows])


def _dots(a: Floats, b: Floats) -> Floats:
    """The products of the rows of two arrays."""
    dots: Floats = np.vecdot(a, b)
    return dots
