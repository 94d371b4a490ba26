"""What the error of estimated transitions does to the answer: a variance, and a bias.

*Variance.* Only `u_k = ρ + γ_k V_k` is averaged by a row of T (ρ the reward on arrival), so a row's error moves expert k's
immediate reward by `δR_k(s,a) = δT(·|s,a) u_k`. With `B_k = ∂²L/∂x∂R_k` in its expected form the covariance of the answer becomes

    C + C M C,    M = Σ_(s,a) Σ_kl B_k(s,a) B_l(s,a)ᵀ Cov(u_k, u_l | s,a) / m(s,a),

where m is the row's sample size and the covariance is that of the row's distribution.

*Bias.* Noise in T does not average out of a plan: it makes the future look less predictable than it is, or better than it is. The
rows are drawn anew around their estimates, with their sample sizes, and the same decisions are fitted again. The mean change of
the answer estimates the bias, and intervals are moved back by it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.large import choices_along, is_large
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.persons import reward_pull_back
from multihorizon.mdp import MDP
from multihorizon.problem import Problem

#: Draws of the transitions for the bias, and when one of their fits is near enough.
DRAWS, DRAW_GAIN, DRAW_STEPS = 40, 1e-3, 60


def discount_bias(point: Point) -> Floats:
    """The bias `(K,)` of the discounts that estimated transitions bring; NaN where no draw could be fitted.

    It is 0 where they are known. With very many rewards it is not computed, and 0 as well.
    """
    model = point.likelihood
    rng = np.random.default_rng(0)
    changes = []
    if is_large(model) or all(batch.mdp.sample_sizes is None for batch in model.batches):
        return np.zeros(model.problem.n_experts)
    for _ in range(DRAWS):
        drawn = Likelihood(redrawn(model.problem, rng), model.settings, model.penalty, model.ridge)
        start = drawn.at(point.x)
        end = None if start is None else climb(start, max_steps=DRAW_STEPS, gain=DRAW_GAIN)
        if end is not None and end.finished:
            changes.append(drawn.discounts(end.point.x) - model.discounts(point.x))
    return np.mean(changes, axis=0) if changes else np.full(model.problem.n_experts, np.nan)


def redrawn(problem: Problem, rng: np.random.Generator) -> Problem:
    """The problem with estimated rows drawn anew."""
    tasks = {id(expert.mdp): expert.mdp for expert in problem.experts}
    drawn = {key: mdp if mdp.sample_sizes is None else _drawn(mdp, rng) for key, mdp in tasks.items()}
    experts = []
    for expert in problem.experts:
        mdp = drawn[id(expert.mdp)]
        features = expert.features if expert.arrival is None else sp.csr_array(mdp.stacked @ expert.arrival)
        experts.append(replace(expert, mdp=mdp, features=features))
    return problem.with_experts(experts)


def _drawn(mdp: MDP, rng: np.random.Generator) -> MDP:
    assert mdp.sample_sizes is not None
    stacked = mdp.stacked.copy()
    for row in np.flatnonzero(np.isfinite(mdp.sample_sizes)):
        cells = slice(stacked.indptr[row], stacked.indptr[row + 1])
        size = max(1, round(float(mdp.sample_sizes[row])))
        stacked.data[cells] = rng.multinomial(size, stacked.data[cells] / stacked.data[cells].sum()) / size
    n = mdp.n_states
    rows = [stacked[a * n : (a + 1) * n] for a in range(mdp.n_actions)]
    return MDP(rows, mdp.initial, mdp.terminal, mdp.available, state_names=mdp.state_names, action_names=mdp.action_names)


def added_variance(point: Point, covariances: Floats) -> Floats:
    """The variance `(m,)` that estimated transitions add to functions of x with these covariances `(m,p)` with x: `diag(C M Cᵀ)`.

    It is made of products, one forward and one adjoint solve for each function, so it serves any number of parameters.
    """
    added = np.zeros(len(covariances))
    for batches in _tasks(point):
        mdp = point.likelihood.batches[batches[0]].mdp
        if mdp.sample_sizes is not None:
            rows, spreads = _reward_errors(point, batches, mdp, mdp.sample_sizes)
            for j, along in enumerate(covariances):
                moved = (_moved(point, i, along)[rows] for i in batches)
                added[j] += (sum((m * spread).sum(axis=1) for m, spread in zip(moved, spreads, strict=True)) ** 2).sum()
    return added


def _tasks(point: Point) -> list[list[int]]:
    """The batches of each MDP: they share its errors."""
    tasks: dict[int, list[int]] = {}
    for i, batch in enumerate(point.likelihood.batches):
        tasks.setdefault(id(batch.mdp), []).append(i)
    return list(tasks.values())


def _reward_errors(point: Point, batches: list[int], mdp: MDP, sizes: Floats) -> tuple[Ints, list[Floats]]:
    """For each entry of the estimated rows of T its row `(E,)`, and for each batch what its error does to rewards `(E,n)`."""
    rows = np.repeat(np.arange(mdp.stacked.shape[0]), np.diff(mdp.stacked.indptr))
    entries = np.flatnonzero(np.isfinite(sizes[rows]))
    rows, after = rows[entries], mdp.stacked.indices[entries]
    root = np.sqrt(mdp.stacked.data[entries] / sizes[rows])
    spreads = []
    for i in batches:
        batch, plan = point.likelihood.batches[i], point.plans[i]
        averaged = batch.arrival_reward(point.likelihood.reward(point.x))[:, None] + plan.gamma * plan.values
        spreads.append(root[:, None] * (averaged[after] - (mdp.stacked @ averaged)[rows]))
    return rows, spreads


def _moved(point: Point, i: int, along: Floats) -> Floats:
    """How the score along a direction of x `(p,)` moves with the immediate reward of each person of a batch, `(A·S,n)`."""
    batch, plan = point.likelihood.batches[i], point.plans[i]
    weights = batch.visits * plan.policy * choices_along(point, i, along)
    moved, _ = reward_pull_back(batch, plan, point.resolvents[i], weights)
    return moved.reshape(-1, batch.owners.size)
