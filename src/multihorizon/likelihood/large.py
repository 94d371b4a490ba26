"""Fits with so many rewards that a dense information matrix is out of the question: matrix-free products.

A product of the Fisher information with a vector v is one forward solve (`J v`, how log π moves along v) and one adjoint solve
(`Jᵀ W (J v)`) per expert. Climbs take their steps from such products (`metric`). Where no products are at hand, as with
look-ahead that is not exponential, the climb is L-BFGS-B on the gradient by adjoints.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import minimize

from multihorizon.checks import Bools, Floats
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.persons import next_values
from multihorizon.progress import Progress, silent

#: Above this many rewards, or parameters in all, nothing of size p×p is formed: an information matrix costs the cube of them.
DENSE_REWARDS, DENSE_PARAMETERS = 700, 3000
#: Rewards beyond this many cannot be told apart by any table of decisions in reasonable time.
MOST_REWARDS = 20_000
#: Iterations of L-BFGS-B that stand for one step of Fisher scoring, and the pairs of vectors that it remembers.
ITERATIONS_PER_STEP, MEMORY = 5, 30


def is_large(likelihood: Likelihood) -> bool:
    """Whether a dense information matrix is out of the question."""
    return likelihood.n_reward > DENSE_REWARDS or likelihood.size > DENSE_PARAMETERS


def require_size(n_rewards: int) -> None:
    """Raise where there are too many rewards to be estimated one by one."""
    if n_rewards > MOST_REWARDS:
        raise ValueError(
            f"a reward for each of {n_rewards:,} states is more than can be estimated (at most {MOST_REWARDS:,}): "
            "tie the rewards of similar states together with features"
        )


def quasi_newton(start: Point, fixed: Bools, max_steps: int, progress: Progress = silent) -> tuple[Point, int, bool]:
    """The best point L-BFGS-B reaches, its iterations, and whether it says that it converged."""
    model, free = start.likelihood, ~fixed
    kept: dict[str, Point] = {"best": start, "last": start}

    def negative(z: Floats) -> tuple[float, Floats]:
        x = start.x.copy()
        x[free] = z
        point = model.at(x, kept["last"])
        if point is None:
            return np.inf, np.zeros(z.size)
        kept["last"] = point
        if point.objective > kept["best"].objective:
            kept["best"] = point
        return -point.objective / model.decisions, -point.gradient[free] / model.decisions

    bounds = list(zip(model.lower[free], model.upper[free], strict=True))
    most = ITERATIONS_PER_STEP * max_steps
    steps = itertools.count(1)

    def tell(_: Floats) -> None:
        number = next(steps)
        progress(number / most, f"step {number}: log-likelihood {kept['best'].value:.2f}")

    options = {"maxiter": most, "maxcor": MEMORY, "ftol": 1e-14, "gtol": 1e-7}
    end = minimize(negative, start.x[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options, callback=tell)
    return kept["best"], int(end.nit), bool(end.success)


def information_product(point: Point, v: Floats) -> Floats:
    """The Fisher information times a vector `(p,)`."""
    model = point.likelihood
    product = point.pull_back([weights * choices_along(point, i, v) for i, weights in enumerate(point.weights)])
    product[model.transition_slice] += point.move_information * v[model.transition_slice]
    return product


def choices_along(point: Point, i: int, v: Floats) -> Floats:
    """`J v`, how log π `(A,S,n)` of one batch moves along v."""
    model, plan, batch = point.likelihood, point.plans[i], point.batches[i]
    mdp, n = batch.mdp, batch.owners.size
    heat = plan.lam * v[model.temperature_slice][model.temperature_groups[batch.owners]]
    paid = (batch.features.matrix @ v[: model.n_reward]).reshape(mdp.n_actions, mdp.n_states, 1)
    if (found := model.moves_of(batch)) is not None:
        moves, place = found
        changes = np.zeros((mdp.stacked.shape[0], n))
        np.add.at(changes, moves.rows, point.worth_of_moves[i] * v[place, None])
        paid = paid + changes.reshape(mdp.n_actions, mdp.n_states, n)
    direct = paid + v[model.discount_slice][model.groups[batch.owners]] * next_values(batch, plan)
    source = (plan.policy * direct).sum(axis=0) + heat * plan.entropy
    moved = point.resolvents[i].solve(np.where(mdp.terminal[:, None], 0.0, source)[:, :, None])[:, :, 0]
    later = (mdp.stacked @ moved).reshape(mdp.n_actions, mdp.n_states, n)
    change = (direct + plan.gamma * later - moved - heat * plan.finite_log) / plan.lam
    return np.where(np.isfinite(plan.log), change, 0.0)
