"""
Optimal policies on the cliff, by discount factor
=================================================

One reward (top left) and the optimal policy for every discount factor from 0 to 1. It changes at five breakpoints, two of
which are so close together that a grid of discount factors in steps of 0.01 has only one.
"""

import matplotlib.pyplot as plt

import multihorizon as mh
from multihorizon.report.plots import plot_policy, plot_reward

cliff = mh.domains.cliff()
intervals = mh.discount_intervals(cliff.mdp, cliff.reward)
figure, axes = plt.subplots(2, 4, figsize=(13, 5.4), layout="constrained")
plot_reward(cliff.mdp, cliff.reward, axes[0, 0], "The reward")
for ax, interval in zip(axes.ravel()[1:], intervals, strict=False):
    plot_policy(
        cliff.mdp, interval.optimal_actions, ax, f"γ from {interval.low:.4f} to {interval.high:.4f}"
    )
axes[1, 3].set_visible(False)
plt.show()
