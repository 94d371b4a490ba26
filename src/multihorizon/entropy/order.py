"""An order of the experts that does not depend on how they are listed or named."""

from __future__ import annotations

import numpy as np

from multihorizon.entropy.dual import expert_policy
from multihorizon.planning.evaluation import causal_entropy, feature_counts
from multihorizon.problem import Problem


def expert_order(problem: Problem) -> list[int]:
    """The experts in an order that depends on what they do, not on how they are listed: largest entropy first.

    The entropy is the causal one at discount 1/2. A search that draws its discounts in this order gives the same answer
    however the experts are listed or named.
    """
    keys = np.zeros((problem.n_experts, 2))
    for expert, owner in zip(problem.experts, problem.owner, strict=True):
        policy = expert_policy(expert)
        counts = feature_counts(expert.mdp, policy, 0.5, expert.feature_matrix)
        keys[owner] -= causal_entropy(expert.mdp, policy, 0.5), float(np.linalg.norm(counts))
    return [int(k) for k in np.lexsort(np.round(keys, 9).T[::-1])]
