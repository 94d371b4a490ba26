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

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.large import is_large
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.persons import reward_pull_back, score_rows
from multihorizon.mdp import MDP
from multihorizon.problem import Problem

#: Draws of the transitions for the bias, and when one of their fits is near enough.
DRAWS, DRAW_GAIN, DRAW_STEPS = 40, 1e-3, 60


def discount_bias(point: Point) -> Floats:
    """The bias `(K,)` of the discounts that estimated transitions bring; 0 where they are known or rewards are very many."""
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
    return np.mean(changes, axis=0) if changes else np.zeros(model.problem.n_experts)


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


def added_variance(point: Point, covariance: Floats) -> Floats:
    """The variance `(p,)` that estimated transitions add: `diag(C M C)`."""
    added = np.zeros(point.likelihood.size)
    for batches in _tasks(point):
        if point.likelihood.batches[batches[0]].mdp.sample_sizes is not None:
            added += ((covariance @ _score_errors(point, batches)) ** 2).sum(axis=1)
    return added


def _tasks(point: Point) -> list[list[int]]:
    """The batches of each MDP: they share its errors."""
    tasks: dict[int, list[int]] = {}
    for i, batch in enumerate(point.likelihood.batches):
        tasks.setdefault(id(batch.mdp), []).append(i)
    return list(tasks.values())


def _score_errors(point: Point, batches: list[int]) -> Floats:
    """A root of M, `(p,E)` with one column for each entry of the estimated rows."""
    mdp = point.likelihood.batches[batches[0]].mdp
    assert mdp.sample_sizes is not None
    rows = np.repeat(np.arange(mdp.stacked.shape[0]), np.diff(mdp.stacked.indptr))
    entries = np.flatnonzero(np.isfinite(mdp.sample_sizes[rows]))
    rows, after = rows[entries], mdp.stacked.indices[entries]
    root = np.sqrt(mdp.stacked.data[entries] / mdp.sample_sizes[rows])
    total = np.zeros((point.likelihood.size, entries.size))
    for i in batches:
        batch, plan = point.likelihood.batches[i], point.plans[i]
        averaged = batch.arrival_reward(point.likelihood.reward(point.x))[:, None] + plan.gamma * plan.values
        spread = root[:, None] * (averaged[after] - (mdp.stacked @ averaged)[rows])
        for columns, moved in _cross_information(point, i):
            np.add.at(total, columns, (moved[rows] * spread).T)
    return total


def _cross_information(point: Point, i: int) -> Iterator[tuple[Ints, Floats]]:
    """How the score of x moves with each person's immediate reward: positions in x `(n,)` and derivatives `(A·S,n)`, in turn."""
    batch, plan, solver = point.likelihood.batches[i], point.plans[i], point.resolvents[i]
    rows, scores = score_rows(batch, plan, solver)
    n = batch.owners.size
    weights = (batch.visits * plan.policy).reshape(-1, n)[rows]
    columns = np.array(point.columns(batch))
    for j in range(scores.shape[2]):
        y = np.zeros((plan.log.shape[0] * plan.log.shape[1], n))
        y[rows] = weights * scores[:, :, j]
        moved, _ = reward_pull_back(batch, plan, solver, y.reshape(plan.log.shape))
        yield columns[:, j], moved.reshape(-1, n)
