"""
Rewards, true and learned
=========================

Experts of the big-small and the cliff domain choose the best action, each with a discount factor of their own. `MPLP` gets only
their actions. The reward it learns has much of the structure of the true one: goals that exceed their neighbours, and places
to avoid.
"""

import matplotlib.pyplot as plt
import numpy as np

import multihorizon as mh
from multihorizon.report.plots import plot_reward

figure, axes = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
for row, domain in zip(axes, (mh.domains.big_small(), mh.domains.cliff()), strict=True):
    solution = mh.solve(mh.Problem(domain.mdp, domain.hard_experts()), mh.MPLP(reward_bound=20))
    discounts = ", ".join(f"{discount:.2f}" for discount in solution.discounts)
    plot_reward(domain.mdp, domain.reward, row[0], f"{domain.name}: the true reward")
    plot_reward(
        domain.mdp, np.round(solution.reward, 1), row[1], f"learned, with the discounts {discounts}"
    )
plt.show()
