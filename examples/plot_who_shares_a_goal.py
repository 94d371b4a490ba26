"""
Clusters of experts who share a reward
======================================

Six people walk on one grid. Three of them want to reach the upper right corner and three the lower right one, with
different discount factors. From 300 walks of each, `goals` estimates the probability that two of them share a reward.
"""

import matplotlib.pyplot as plt
import numpy as np

import multihorizon as mh

grid = mh.domains.gridworld(5, 6, slip=0.1, terminal=[(0, 5), (4, 5)])
up, down = np.full((2, 30), -0.2)
up[5], up[29] = 6.0, 0.5
down[5], down[29] = 0.5, 6.0
walkers = {
    "ann": (up, 0.4),
    "ben": (down, 0.9),
    "cem": (up, 0.95),
    "dia": (down, 0.6),
    "eva": (up, 0.75),
    "fay": (down, 0.3),
}
policies = [mh.soft_plan(grid, reward, discount).policy for reward, discount in walkers.values()]
walks = mh.Demonstrations.simulate(grid, policies, episodes=300, names=list(walkers))
found = mh.goals(mh.Problem(grid, walks))
print(found.sentences())

order = [found.experts.index(name) for group in found.groups for name in group]
names = [found.experts[k] for k in order]
chance = found.sharing[np.ix_(order, order)]
np.fill_diagonal(chance, np.nan)
figure, ax = plt.subplots(figsize=(5, 4.2), layout="constrained")
image = ax.imshow(chance, cmap="Blues", vmin=0, vmax=1)
ax.set_xticks(range(len(names)), names)
ax.set_yticks(range(len(names)), names)
figure.colorbar(image, label="probability that two share a goal")
plt.show()
