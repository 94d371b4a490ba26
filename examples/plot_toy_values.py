"""
The optimal action depends on the discount factor
=================================================

In the paper's toy domain only one state offers a choice. Each of its three actions is optimal for some discount
factors. `discount_intervals` computes the breakpoints exactly, without a grid.
"""

import matplotlib.pyplot as plt
import numpy as np

import multihorizon as mh

toy = mh.domains.toy()
discounts = np.linspace(0, 1, 101)
figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for action in range(toy.mdp.n_actions):
    policy = np.zeros((toy.mdp.n_states, toy.mdp.n_actions))
    policy[:, action] = 1
    values = [
        toy.mdp.initial @ mh.evaluate(toy.mdp, policy, toy.reward, discount).values
        for discount in discounts
    ]
    ax.plot(discounts, values, lw=2, label=f"always a{action}")
for interval in mh.discount_intervals(toy.mdp, toy.reward)[:-1]:
    ax.axvline(interval.high, color="0.6", ls=":")
    ax.annotate(f"{interval.high:.6f}", (interval.high, 0), rotation=90, ha="right", va="bottom")
ax.set(xlabel="discount factor γ", ylabel="value of the first state")
ax.legend(frameon=False)
plt.show()
