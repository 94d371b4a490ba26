"""The paper's statements as checks that can be run: each returns the numbers that a statement is about.

* Is there a reward at given discounts? `rank_test`, `feasibility_at`; the same on a grid: `feasibility_grid`.
* Theorem 2, the chain of the dual, the primal and the discounted likelihood: `duality_chain`.
* Proposition 1, the slope of the discounted likelihood at the experts' own discounts: `likelihood_slopes`.
* The summed gap of Algorithm 2 and the mismatch of each expert: `gap_and_mismatch`.
"""

from multihorizon.entropy.theory import (
    DualityChain,
    GapAndMismatch,
    LikelihoodSlopes,
    duality_chain,
    gap_and_mismatch,
    likelihood_slopes,
)
from multihorizon.recovery.feasibility import (
    FeasibilityGrid,
    RankTest,
    feasibility_at,
    feasibility_grid,
    rank_test,
    rewards_at,
)

__all__ = [
    "DualityChain",
    "FeasibilityGrid",
    "GapAndMismatch",
    "LikelihoodSlopes",
    "RankTest",
    "duality_chain",
    "feasibility_at",
    "feasibility_grid",
    "gap_and_mismatch",
    "likelihood_slopes",
    "rank_test",
    "rewards_at",
]
