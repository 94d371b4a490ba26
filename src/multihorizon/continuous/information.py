"""The information of choices about the coefficients of Q: `W_ab = Σ_i X_a(s_i)ᵀ [π_a δ_ab − π_a π_b] X_b(s_i)`.

Whatever the coefficients depend on, with derivatives D `(A,p,q)`, its information is `Dᵀ W D`. Where all actions have the same
sparse rows, the products of each row's entries are laid out once, as one sparse matrix `(p²,n)`, and W is a product of it with
the weights of the A(A+1)/2 pairs of actions. Local functions make this many times faster than dense products. Elsewhere, and
where W has more entries than there are decisions to fill them, the rows of `X_a D_a` are formed and multiplied, block by block.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np

from multihorizon.checks import Floats
from multihorizon.continuous.design import Decisions
from multihorizon.continuous.outcomes import BLOCK


def project(decisions: Decisions, policy: Floats, slopes: Floats) -> Floats:
    """`W D` `(A,p,q)` for derivatives D `(A,p,q)` and choices π `(A,n)`."""
    (n, p), width = decisions.rows[0].shape, slopes.shape[2]
    if len(slopes) * p * p <= n * width and decisions.products is not None:
        matrix = _information(decisions, policy)
        flat: Floats = (matrix @ slopes.reshape(-1, slopes.shape[2])).reshape(slopes.shape)
        return flat
    total = np.zeros(slopes.shape)
    for start in range(0, decisions.action.size, BLOCK):
        part = slice(start, start + BLOCK)
        raw = [row[part] @ slope for row, slope in zip(decisions.rows, slopes, strict=True)]
        mean = sum(p[:, None] * r for p, r in zip(policy[:, part], raw, strict=True))
        for a, (p, r) in enumerate(zip(policy[:, part], raw, strict=True)):
            total[a] += decisions.rows[a][part].T @ (p[:, None] * (r - mean))
    return total


def _information(decisions: Decisions, policy: Floats) -> Floats:
    """W `(A·p,A·p)` by sparse products."""
    n_actions, p = len(policy), decisions.rows[0].shape[1]
    pairs = list(combinations_with_replacement(range(n_actions), 2))
    weights = np.stack([policy[a] * ((a == b) - policy[b]) for a, b in pairs], axis=1)
    assert decisions.products is not None
    blocks = (decisions.products @ weights).T.reshape(len(pairs), p, p)
    found = np.empty((n_actions, p, n_actions, p))
    for (a, b), upper in zip(pairs, blocks, strict=True):
        found[a, :, b] = upper + upper.T - np.diag(np.diag(upper))
        found[b, :, a] = found[a, :, b]
    return found.reshape(n_actions * p, n_actions * p)
