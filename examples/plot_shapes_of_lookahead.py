"""
Shapes of discounting
=====================

Which weight has a reward t steps from now? Exponential discounting is one answer. In tasks with a limited number of steps,
hyperbolic and other shapes can be fitted to the same decisions and compared (`compare_lookahead`).
"""

import matplotlib.pyplot as plt
import numpy as np

steps = np.arange(1, 11)
shapes = {
    "exponential, γ = 0.8": 0.8 ** (steps - 1),
    "depth, n = 4": (steps <= 4).astype(float),
    "hyperbolic, κ = 0.5": 1 / (1 + 0.5 * (steps - 1)),
    "quasi-hyperbolic, β = 0.6, δ = 0.95": np.where(steps == 1, 1, 0.6 * 0.95 ** (steps - 1)),
}
figure, ax = plt.subplots(figsize=(6.5, 4), layout="constrained")
for label, weights in shapes.items():
    ax.plot(steps, weights, "o-", label=label)
ax.set(xlabel="steps from now", ylabel="weight", ylim=(0, 1.05), xticks=steps)
ax.legend(frameon=False)
plt.show()
