"""Why no reward tells a pair of experts apart under Γ: a Farkas certificate.

For the pair (i, j) let P be the rows of i against actions of j. If every reward with `W θ ≥ 0` has zero margin on all of P, then
`{θ : W θ ≥ 0, Σ_P w θ ≥ 1}` is empty, and by Farkas' lemma there are weights y ≥ 0 with

    Σ_P w  +  Σ_i y_i w_i  =  0            (ties have weights of either sign):

the margins of P and the weighted others sum to zero for every reward, so none of them can be positive. The weights are checked by
multiplying them out; what is left over is the certificate's residual.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats
from multihorizon.programs.highs import INFINITY, LinearProgram, solve_lp
from multihorizon.programs.margins import Margins

#: Weights below this share of the largest are not named.
NAMED_WEIGHT = 1e-6


def contradiction(margins: Margins, discounts: Floats, pair: tuple[int, int]) -> dict[str, Any]:
    """The weights of the rows that contradict each other, largest first, and the residual of the certificate.

    `rows` holds (expert, state, action, weight); it is empty where the two experts differ only in actions that lead to the
    same place, and `residual` is infinite if HiGHS gave no certificate.
    """
    names = margins.names
    answer: dict[str, Any] = {"pair": [names[pair[0]], names[pair[1]]], "discounts": discounts.tolist(), "rows": []}
    target = margins.pairs[pair]
    if not target.size:
        return {**answer, "residual": 0.0}
    lp = _separation(margins, discounts, target)
    ray = solve_lp(lp).ray
    if ray is None or not ray[-1] > 0:
        return {**answer, "residual": INFINITY}
    weights = ray / ray[-1]
    size, strict = margins.owner.size, margins.strict
    multipliers = weights[size : size + len(strict)].copy()
    multipliers[target] += 1.0
    residual = max(float(np.abs(lp.matrix.T @ weights).max()), -float(weights[size : size + len(strict)].min(initial=0.0)))
    heavy = np.argsort(-multipliers, kind="stable")
    heavy = heavy[multipliers[heavy] > NAMED_WEIGHT * multipliers.max()]
    rows = [[*_labels(margins, int(i)), float(multipliers[i])] for i in heavy]
    return {**answer, "rows": rows, "residual": residual}


def _labels(margins: Margins, row: int) -> tuple[str, str, str]:
    """The names of the expert, state and action of a strict row."""
    strict = margins.strict
    mdp = margins.parts[strict.part[row]].expert.mdp
    return margins.names[strict.expert[row]], mdp.state_names[strict.state[row]], mdp.action_names[strict.action[row]]


def _separation(margins: Margins, discounts: Floats, target: Any) -> LinearProgram:
    """Is there a reward with no negative margin and a total of at least 1 on the target rows?"""
    size, m = margins.owner.size, len(margins.strict)
    identity = sp.hstack([sp.csr_array((size, margins.n_parameters)), sp.eye_array(size, format="csr")])
    total = sp.csr_array(margins.strict.matrix[target].sum(axis=0)[None, :])
    continuation = identity - sp.diags_array(discounts[margins.owner]) @ margins.values
    matrix = sp.vstack([continuation, margins.strict.matrix, margins.ties.matrix, total], format="csr")
    lower, upper = np.zeros(matrix.shape[0]), np.zeros(matrix.shape[0])
    upper[size : size + m] = upper[-1] = INFINITY
    lower[-1] = 1.0
    free = np.full(matrix.shape[1], INFINITY)
    return LinearProgram(np.zeros(matrix.shape[1]), sp.csr_array(matrix), lower, upper, -free, free)
