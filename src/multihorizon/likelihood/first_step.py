"""What the error of estimated transitions does to the answer: a variance, and a bias.

*Variance.* Only `u_k = ρ + γ_k V_k` is averaged by a row of T (ρ the reward on arrival), so a row's error moves expert k's
immediate reward by `δR_k(s,a) = δT(·|s,a) u_k`. With `B_k = ∂²L/∂x∂R_k` in its expected form the covariance of the answer becomes

    C + C M C,    M = Σ_(s,a) Σ_kl B_k(s,a) B_l(s,a)ᵀ Cov(u_k, u_l | s,a) / m(s,a),

where m is the row's sample size and the covariance is that of the row's distribution.

*Bias.* Noise in T does not average out of a plan: it makes the future look less predictable than it is, or better than it is. The
rows are drawn anew around their estimates, with their sample sizes, and the same decisions are fitted again. The mean change of
the answer estimates the bias, and intervals are moved back by it. Rows are drawn in an order that follows from what the experts
expect of them, so that the same random numbers meet the same rows however states and actions are listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Ints
from multihorizon.likelihood.ascent import climb
from multihorizon.likelihood.large import choices_along, is_large
from multihorizon.likelihood.likelihood import Likelihood, Point
from multihorizon.likelihood.persons import reward_pull_back
from multihorizon.mdp import MDP
from multihorizon.problem import Problem
from multihorizon.tolerances import TINY

#: Digits of what rows lead to, relative to the largest, by which they are put in order.
WORTH_DIGITS = 9
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
    order = {id(task.mdp): task.order() for task in _tasks(point)}
    for _ in range(DRAWS):
        drawn = Likelihood(redrawn(model.problem, rng, order), model.settings, model.penalty, model.ridge)
        start = drawn.at(point.x)
        end = None if start is None else climb(start, max_steps=DRAW_STEPS, gain=DRAW_GAIN)
        if end is not None and end.finished:
            changes.append(drawn.discounts(end.point.x) - model.discounts(point.x))
    return np.mean(changes, axis=0) if changes else np.full(model.problem.n_experts, np.nan)


def redrawn(problem: Problem, rng: np.random.Generator, order: Mapping[int, list[Ints]] | None = None) -> Problem:
    """The problem with estimated rows drawn anew.

    `order` has for each task, by the identity of its MDP, the entries of its estimated rows in the order in which they are drawn;
    by default it is that of the states and actions.
    """
    tasks = {id(expert.mdp): expert.mdp for expert in problem.experts}
    drawn = {key: mdp if mdp.sample_sizes is None else _drawn(mdp, rng, (order or {}).get(key)) for key, mdp in tasks.items()}
    experts = []
    for expert in problem.experts:
        mdp = drawn[id(expert.mdp)]
        features = expert.features if expert.arrival is None else sp.csr_array(mdp.stacked @ expert.arrival)
        experts.append(replace(expert, mdp=mdp, features=features))
    return problem.with_experts(experts)


def _drawn(mdp: MDP, rng: np.random.Generator, order: list[Ints] | None) -> MDP:
    assert mdp.sample_sizes is not None
    stacked, rows = mdp.stacked.copy(), _row_of_entries(mdp)
    for entries in order or np.split(np.arange(rows.size), mdp.stacked.indptr[1:-1]):
        size = mdp.sample_sizes[rows[entries[0]]] if entries.size else np.inf
        if np.isfinite(size):
            draws = max(1, round(float(size)))
            stacked.data[entries] = rng.multinomial(draws, stacked.data[entries] / stacked.data[entries].sum()) / draws
    n = mdp.n_states
    parts = [stacked[a * n : (a + 1) * n] for a in range(mdp.n_actions)]
    return MDP(parts, mdp.initial, mdp.terminal, mdp.available, state_names=mdp.state_names, action_names=mdp.action_names)


def _row_of_entries(mdp: MDP) -> Ints:
    """The row a·S + s of each entry of T."""
    return np.repeat(np.arange(mdp.stacked.shape[0]), np.diff(mdp.stacked.indptr))


def added_variance(point: Point, covariances: Floats) -> Floats:
    """The variance `(m,)` that estimated transitions add to functions of x with these covariances `(m,p)` with x: `diag(C M Cᵀ)`.

    It is made of products, one forward and one adjoint solve for each function, so it serves any number of parameters.
    """
    added = np.zeros(len(covariances))
    for task in _tasks(point):
        if task.mdp.sample_sizes is not None:
            rows, errors = task.reward_errors(task.mdp.sample_sizes)
            for j, along in enumerate(covariances):
                moved = (_moved(point, i, along)[rows] for i in task.batches)
                added[j] += (sum((m * error).sum(axis=1) for m, error in zip(moved, errors, strict=True)) ** 2).sum()
    return added


@dataclass(frozen=True, eq=False)
class _Task:
    """The batches of one MDP: they share its errors."""

    point: Point
    mdp: MDP
    batches: list[int]

    def averaged(self) -> list[Floats]:
        """`u` `(S,n)` of each batch, what a row of T averages."""
        model, plans = self.point.likelihood, self.point.plans
        theta = model.reward(self.point.x)
        return [model.batches[i].arrival_reward(theta)[:, None] + plans[i].gamma * plans[i].values for i in self.batches]

    def reward_errors(self, sizes: Floats) -> tuple[Ints, list[Floats]]:
        """For each entry of the estimated rows its row `(E,)`, and for each batch what its error does to rewards `(E,n)`."""
        rows = _row_of_entries(self.mdp)
        entries = np.flatnonzero(np.isfinite(sizes[rows]))
        rows, after = rows[entries], self.mdp.stacked.indices[entries]
        root = np.sqrt(self.mdp.stacked.data[entries] / sizes[rows])
        return rows, [root[:, None] * (u[after] - (self.mdp.stacked @ u)[rows]) for u in self.averaged()]

    def order(self) -> list[Ints]:
        """The entries of each row, rows and entries in an order that no listing of states, actions and experts changes.

        Rows stand by what their state and they themselves lead to, entries by what they lead to, summed over experts. Rows that
        tie in both are alike for everyone.
        """
        summed = sum(u.sum(axis=1) for u in self.averaged())
        worth = np.round(summed / max(float(np.abs(summed).max()), TINY), WORTH_DIGITS)
        reached = np.round(self.mdp.stacked @ worth, WORTH_DIGITS)
        rows = _row_of_entries(self.mdp)
        sorted_entries = np.lexsort((worth[self.mdp.stacked.indices], rows, reached[rows], worth[rows % self.mdp.n_states]))
        return np.split(sorted_entries, np.flatnonzero(np.diff(rows[sorted_entries])) + 1)


def _tasks(point: Point) -> list[_Task]:
    tasks: dict[int, list[int]] = {}
    for i, batch in enumerate(point.likelihood.batches):
        tasks.setdefault(id(batch.mdp), []).append(i)
    return [_Task(point, point.likelihood.batches[members[0]].mdp, members) for members in tasks.values()]


def _moved(point: Point, i: int, along: Floats) -> Floats:
    """How the score along a direction of x `(p,)` moves with the immediate reward of each person of a batch, `(A·S,n)`."""
    batch, plan = point.likelihood.batches[i], point.plans[i]
    weights = batch.visits * plan.policy * choices_along(point, i, along)
    moved, _ = reward_pull_back(batch, plan, point.resolvents[i], weights)
    return moved.reshape(-1, batch.owners.size)
