"""Preconditioners for products with the Fisher information: cheap inverses of something like it.

With one reward per state the scores of expert k are `J = D U / λ`, with D the transitions less their mean under the policy and
`U = (I − γP)^{-1}`, so that their information in the rewards is `Uᵀ G U` with the sparse `G = TᵀWT − PᵀNP`, W the weights
`n π/λ²` and N their sums `n/λ²`. The preconditioner has this form for all experts together: the sum of their G, and the U of the
one who looks farthest ahead, which is the largest. Its inverse `(I − γP) G^{-1} (I − γP)ᵀ` takes one sparse factorisation.

Other parameters, and rewards made of features, are divided by the diagonal.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla

from multihorizon.checks import Floats, Sparse
from multihorizon.likelihood.likelihood import Point
from multihorizon.likelihood.persons import Persons, Plans

#: Added to the diagonal of G, relative to its mean: G does not see a constant added to all rewards, nor states out of reach.
LIFT = 1e-6


def inverse_of_states(point: Point) -> Callable[[Floats], Floats] | None:
    """The preconditioner of the rewards `(d,)` of one task with one reward per state; None for other problems."""
    model = point.likelihood
    if not model.problem.tabular or len({id(batch.mdp) for batch in point.batches}) != 1:
        return None
    pairs = [(batch, plan, i) for batch, plan in zip(point.batches, point.plans, strict=True) for i in range(plan.gamma.size)]
    gram = sum(_gram(*pair) for pair in pairs)
    lift = LIFT * float(gram.diagonal().mean()) + model.ridge
    options = {"SymmetricMode": True}
    try:
        factor = spla.splu(
            sp.csc_array(gram + sp.diags_array(lift)), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options
        )
    except RuntimeError:  # no weights at all
        return None
    batch, plan, i = max(pairs, key=lambda pair: float(pair[1].gamma[pair[2]]))
    forward = sp.csr_array(sp.eye_array(model.n_reward) - float(plan.gamma[i]) * _under(batch, plan, i))
    backward = sp.csr_array(forward.T)
    return lambda b: np.asarray(forward @ factor.solve(backward @ b))


def _under(batch: Persons, plan: Plans, i: int) -> Sparse:
    return batch.mdp.under(plan.policy[:, :, i].T)


def _gram(batch: Persons, plan: Plans, i: int) -> Sparse:
    """`TᵀWT − PᵀNP` of one person."""
    visits = batch.visits[:, i] / plan.lam[i] ** 2
    moves, under = batch.mdp.stacked, _under(batch, plan, i)
    weights = sp.diags_array((visits * plan.policy[:, :, i]).ravel())
    return sp.csr_array(moves.T @ weights @ moves - under.T @ sp.diags_array(visits) @ under)
