"""Fits with so many rewards that a dense information matrix is out of the question: quasi-Newton steps and matrix-free products.

The climb is L-BFGS-B on the gradient by adjoints, whose cost does not depend on the number of rewards. A product of the Fisher
information with a vector v is one forward solve (`J v`, how log π moves along v) and one adjoint solve (`Jᵀ W (J v)`) an expert.
For the discounts' standard errors the reward is profiled out, `S = I_γγ − I_γθ I_θθ^{-1} I_θγ`, with conjugate gradients on
`I_θθ`; they approach S from above, so stopping them early makes a standard error too small, by as much as their tolerance allows.
A discount whose share of S is lost in that tolerance is not identified. Standard errors of the rewards are not computed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse.linalg as spla
from scipy.optimize import minimize

from multihorizon.checks import Bools, Floats
from multihorizon.likelihood.likelihood import Choices, Point, finite_log
from multihorizon.planning.evaluation import policy_entropy

#: Above this many parameters nothing of size p×p is formed.
DENSE_PARAMETERS = 2500
#: Iterations of L-BFGS-B to one step of Fisher scoring, and the pairs of vectors it remembers.
ITERATIONS_A_STEP, MEMORY = 5, 30
#: Relative residual of the conjugate gradients, and the most of them.
TOLERANCE, MOST_PRODUCTS = 1e-4, 500
#: A discount keeps at least this share of its information when the reward is profiled out, or it is not identified.
SHARE = 1e-4


def quasi_newton(start: Point, fixed: Bools, max_steps: int) -> tuple[Point, int, bool]:
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
    options = {"maxiter": ITERATIONS_A_STEP * max_steps, "maxcor": MEMORY, "ftol": 1e-14, "gtol": 1e-7}
    end = minimize(negative, start.x[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return kept["best"], int(end.nit), bool(end.success)


def information_product(point: Point, v: Floats) -> Floats:
    """The Fisher information times a vector `(p,)`."""
    weighted = [
        choices.visits[:, None] * plan.policy * _along(point, choices, i, v)
        for i, (choices, plan) in enumerate(zip(point.likelihood.choices, point.plans, strict=True))
    ]
    return point.pull_back(weighted)


def profile_information(point: Point) -> tuple[Floats, Floats]:
    """S `(m,m)` of the discounts and log-temperatures with the reward profiled out, and their own information `(m,)`."""
    d, size = point.likelihood.n_reward, point.likelihood.size
    operator = spla.LinearOperator((d, d), matvec=lambda v: information_product(point, np.append(v, np.zeros(size - d)))[:d])
    columns, solved = [], []
    for k in range(d, size):
        column = information_product(point, np.eye(1, size, k).ravel())
        columns.append(column)
        solved.append(spla.cg(operator, column[:d], rtol=TOLERANCE, maxiter=MOST_PRODUCTS)[0])
    own = np.array([column[d:] for column in columns])
    cross = np.array([column[:d] for column in columns])
    profiled: Floats = own - cross @ np.array(solved).T
    return 0.5 * (profiled + profiled.T), np.diag(own).copy()


def discount_errors(point: Point) -> tuple[Floats, Floats]:
    """Standard errors `(m,)` of the discounts and log-temperatures, NaN where not identified, and the scaled spectrum `(m,)`."""
    profiled, own = profile_information(point)
    scale = np.sqrt(np.where(own > 0, own, 1.0))
    spectrum, vectors = np.linalg.eigh(profiled / np.outer(scale, scale))
    known = spectrum > SHARE
    lost = np.linalg.norm(vectors[:, ~known], axis=1) > 1e-3
    variance = (vectors[:, known] ** 2 / spectrum[known]).sum(axis=1) / scale**2
    return np.where(lost, np.nan, np.sqrt(variance)), spectrum


def _along(point: Point, choices: Choices, i: int, v: Floats) -> Any:
    """`J v`, how log π `(S,A)` of one expert moves along v."""
    model, plan = point.likelihood, point.plans[i]
    mdp, (gamma, lam) = choices.expert.mdp, model.settings(choices, point.x)
    heat = lam * v[choices.temperature] if choices.temperature >= 0 else 0.0
    direct = choices.expert.expected_reward(v[: model.n_reward]) + v[choices.discount] * mdp.expect(plan.values)
    direct = np.where(mdp.available & ~mdp.terminal[:, None], direct, 0.0)
    source = (plan.policy * direct).sum(axis=1) + heat * policy_entropy(plan.policy)
    moved = np.where(mdp.terminal, 0.0, point.resolvents[i].solve(np.where(mdp.terminal, 0.0, source)))
    change = (direct + gamma * mdp.expect(moved) - moved[:, None]) / lam
    return np.where(mdp.available, change - heat * finite_log(plan) / lam, 0.0)
