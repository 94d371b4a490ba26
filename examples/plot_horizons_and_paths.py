"""
One reward, three discount factors, three paths
===============================================

Three experts on a meadow share one reward: a snack nearby (+6), a feast far away (+40), and mud (−3 per step). Only their
discount factors differ. From the same start the first takes the snack, the second wades through the mud, and the third walks
around it.
"""

import matplotlib.pyplot as plt
import numpy as np

import multihorizon as mh

meadow = mh.domains.meadow()
height, width = meadow.mdp.grid_shape
figure, panels = plt.subplots(1, 3, figsize=(10, 2.6), layout="constrained")
for ax, discount in zip(panels, meadow.hard_discounts, strict=True):
    policy = mh.plan(meadow.mdp, meadow.reward, discount).policy
    path = [meadow.mdp.state_names.index("B3")]
    while not meadow.mdp.terminal[path[-1]]:
        action = policy[path[-1]].argmax()
        path.append(int(meadow.mdp.to_array()[action, path[-1]].argmax()))
    rows, columns = np.divmod(path, width)
    shade = np.sign(meadow.reward) * np.sqrt(
        np.abs(meadow.reward)
    )  # so that mud and snack are seen beside the feast
    ax.imshow(shade.reshape(height, width), cmap="BrBG", vmin=-4, vmax=4)
    ax.plot(columns, rows, "o-", color="black", lw=2, markersize=4)
    ax.set(
        title=f"γ = {discount}: effective horizon {1 / (1 - discount):.0f}",
        xticks=[],
        yticks=[],
    )
plt.show()
