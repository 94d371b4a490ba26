"""A small network as the reward
=============================

The library's rewards are linear in their parameters. Any other differentiable reward needs the gradient of the log-likelihood in
the reward of each state, which `mh.log_likelihood` gives, and the chain rule. Here a network of one hidden layer turns the
coordinates of a cell into its reward. It is written in plain NumPy, so that nothing else need be installed.
"""

# %%
# The task: a state is a cell of a square, and its reward is a network's function of the two coordinates.

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

import multihorizon as mh

DISCOUNTS = np.array([0.4, 0.75, 0.93])
SIDE, HIDDEN = 6, 8

mdp = mh.domains.random_mdp(SIDE * SIDE, 4, seed=0, branching=3)
row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
inputs = np.stack([row, column, np.full(SIDE * SIDE, SIDE - 1)], axis=1) * 2 / (SIDE - 1) - [
    1,
    1,
    1,
]

shapes = [(3, HIDDEN), (HIDDEN,)]
sizes = [int(np.prod(shape)) for shape in shapes]


def network(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The reward `(S,)` and its Jacobian `(S,w)`."""
    first, second = weights[: sizes[0]].reshape(shapes[0]), weights[sizes[0] :]
    hidden = np.tanh(inputs @ first)
    slope = inputs[:, :, None] * ((1 - hidden**2) * second)[:, None, :]
    return hidden @ second, np.hstack([slope.reshape(len(inputs), -1), hidden])


# %%
# The experts act for the reward of a network with random weights.

rng = np.random.default_rng(3)
true = network(1.5 * rng.normal(size=sum(sizes)))[0]
policies = [mh.soft_plan(mdp, true, gamma).policy for gamma in DISCOUNTS]
counts = [
    np.stack([rng.multinomial(300, row) for row in policy]).astype(float) for policy in policies
]
experts = [
    mh.Expert(name, mdp, "demonstrations", counts=own)
    for name, own in zip("abc", counts, strict=True)
]
problem = mh.Problem(mdp, experts)

# %%
# Minus the log-likelihood, and its gradient by the chain rule. With PyTorch, `reward` is `net(inputs)`, and in place of the
# product with the Jacobian stands `reward.backward(torch.from_numpy(-found.reward))`; the discount factors are a parameter like
# the others. With JAX, `jax.vjp(net, weights)` gives the function that takes `-found.reward` to the gradient of the weights.


def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
    """Minus the log-likelihood with a small penalty on the weights, and its gradient."""
    weights, logits = x[:-3], x[-3:]
    reward, jacobian = network(weights)
    gamma = expit(logits)
    found = mh.log_likelihood(problem, reward, gamma)
    gradient = np.concatenate(
        [-jacobian.T @ found.reward + 0.02 * weights, -found.discounts * gamma * (1 - gamma)]
    )
    return -found.value + 0.01 * weights @ weights, gradient


# %%
# A network has local maxima, so the best of a few starts counts.


def fit(starts: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """The reward `(S,)` and the discount factors `(3,)` of the best start."""
    ends = [
        minimize(
            loss,
            np.append(rng.normal(size=sum(sizes)), np.zeros(3)),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 500},
        )
        for _ in range(starts)
    ]
    best = min(ends, key=lambda end: end.fun).x
    return network(best[:-3])[0], expit(best[-3:])


reward, discounts = fit()
print("discount factors", discounts.round(3), "true", DISCOUNTS)
print("correlation with the true reward", np.corrcoef(reward, true)[0, 1].round(3))

figure, axes = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
for ax, values, title in zip(
    axes, (true, reward), ("true reward", "learned by the network"), strict=True
):
    figure.colorbar(
        ax.imshow((values - values.mean()).reshape(SIDE, SIDE), cmap="RdBu", vmin=-4, vmax=4),
        ax=ax,
        shrink=0.8,
    )
    ax.set(title=title, xticks=[], yticks=[])
plt.show()
