"""Does the reward of a population depend on the state reached alone? The tests of `likelihood.action_rewards` at its maximum.

The marginal likelihood is that of the model that is reported, with covariates, conditions and persons averaged out. A wider
reward adds features whose weights are 0 at the maximum. Its gradient there is exact. Its information is that of decisions at each
cell's mean η: with F the Fisher information of a cell in (θ, c, η) and `η = X (b, c) + Z u`, it is the sum over persons of what
is left once u, of precision `Σ⁻¹`, is eliminated. It is never negative, as what Louis's formula gives may be where the model is
wrong. Estimated transitions are drawn anew, as for the covariance of ψ: what that moves the gradient by lengthens the tails.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from multihorizon.checks import Floats, Ints
from multihorizon.choice.plans import persons_by_task, redrawn
from multihorizon.choice.surfaces import Tables
from multihorizon.likelihood.action_rewards import DRAWS, StateRewardTest, WiderReward, beyond, wider_rewards
from multihorizon.numerics.spectrum import ScoreTest, positive_part, score_test
from multihorizon.population.marginal import Marginal, Maximum, PsiLayout
from multihorizon.problem import Problem
from multihorizon.words import LEVEL

#: The information of so many persons stands for that of more.
MOST_PERSONS = 300


def population_state_reward(found: Maximum) -> StateRewardTest | None:
    """The test at the maximum; None where the reward was given or is made of features by state and action."""
    layout = found.marginal.layout
    arrivals = [task.pooled.arrival_features for task in layout.problem.tasks]
    paid = [each for each in arrivals if each is not None]
    if layout.known is not None or len(paid) < len(arrivals):
        return None
    if not found.finished:
        return StateRewardTest.untested("the fit did not end")
    if any(task.mdp.durations is not None for task in layout.problem.tasks):
        return StateRewardTest.untested("moves take time, and what an action costs may depend on how long it takes")
    rivals = wider_rewards([task.mdp for task in layout.problem.tasks], paid)
    if not rivals:
        return StateRewardTest.untested("there is one action alone")
    tests = [(rival, _tested(found, rival)) for rival in rivals]
    return StateRewardTest.of([(rival, test) for rival, test in tests if test is not None])


def _tested(found: Maximum, wider: WiderReward) -> ScoreTest | None:
    """The score test of a wider reward; None where it adds nothing, or soft values are infinite."""
    layout = found.marginal.layout
    more = _columns(layout.problem, wider)
    d, q = layout.n_reward, more[0].shape[1]
    if not q:
        return None
    ridge, psi = np.concatenate([layout.ridge, np.zeros(q)]), np.insert(found.psi, d, np.zeros(q))
    widened = _widened(layout.problem, more)
    wide = PsiLayout(widened, layout.design, None, ridge, layout.owner, layout.random, layout.largest, layout.jobs)
    wide.tables.patches = layout.tables.patches
    value = Marginal(wide, found.persons, found.marginal.count).at(psi)
    if value is None:
        return None
    new = (np.arange(psi.size) >= d) & (np.arange(psi.size) < d + q)
    free = ~new & (np.arange(psi.size) < wide.spread.start)
    information, priors = _information(found, wide, psi, more), np.zeros((psi.size, psi.size))
    priors[wide.reward, wide.reward] = np.diag(ridge)
    test = score_test(value.gradient, information, priors, free, new)
    estimated = any(task.mdp.sample_sizes is not None for task in widened.tasks)
    if test.degrees and test.p_value <= 1 - LEVEL and estimated:
        return test.calibrated(_gradients(found, wide, more, psi, information))
    return test


def _information(found: Maximum, wide: PsiLayout, psi: Floats, more: list[Floats]) -> Floats:
    """The information of the decisions in ψ, of some of the persons where they are many, and scaled up then."""
    layout, parts = found.marginal.layout, wide.unpack(psi)
    who = np.unique(np.linspace(0, layout.persons - 1, min(MOST_PERSONS, layout.persons)).astype(np.int64))
    cells = layout.cells_of(who)
    problem = _of_cells(layout.problem, cells)
    number = np.array([int(name) for name in problem.names])
    random, rest, owner = layout.random[number], layout.rest[number], layout.owner[number]
    v = found.value.mean[owner].reshape(number.size, -1, 2)
    eta = np.einsum("kq,kqi->ki", random, v) + rest @ parts.effects
    gamma, lam = layout.largest * expit(eta[:, 0]), np.exp(eta[:, 1])
    slope = gamma * (1 - gamma / layout.largest)
    d, k = layout.n_reward, wide.spread.start
    tasks = {id(task.mdp): columns for task, columns in zip(layout.problem.tasks, more, strict=True)}
    total, of_person = np.zeros((psi.size, psi.size)), dict[int, Floats]()
    for batch in persons_by_task(problem, True, {}):
        plan = batch.plan(parts.theta[:d], gamma, lam, None)
        if plan is None:
            continue
        rows, scores, more_scores = batch.visited_rows, plan.score_rows(), plan.along_columns(tasks[id(batch.mdp)])
        weights = (batch.visits * plan.policy).reshape(-1, plan.lam.size)[rows]
        for i, cell in enumerate(batch.owners.tolist()):
            own = np.zeros((rows.size, k + layout.deep))
            own[:, batch.features.used] = scores[:, i, :-2]
            own[:, d : wide.discount.start] = more_scores[:, i]
            near, far = scores[:, i, [-2]] * slope[cell], scores[:, i, [-1]]
            design = layout.design[number[cell]]
            own[:, wide.discount] = near * design
            own[:, wide.temperature] = far * (design @ layout.temperature_basis)
            own[:, k::2], own[:, k + 1 :: 2] = near * random[cell], far * random[cell]
            block = (own * weights[:, [i]]).T @ own
            person = int(owner[cell])
            of_person[person] = of_person.get(person, 0.0) + block
    precision = np.linalg.inv(parts.covariance)
    for block in of_person.values():
        total[:k, :k] += block[:k, :k] - block[:k, k:] @ np.linalg.solve(block[k:, k:] + precision, block[k:, :k])
    return total * layout.persons / who.size


def _of_cells(problem: Problem, cells: Ints) -> Problem:
    """Some cells as experts, whose names are their numbers."""
    tasks = (replace(task, counts=task.counts[cells]) for task in problem.tasks)
    return Problem.of_tasks(tuple(map(str, cells.tolist())), problem.parameter_names, tasks)


def _columns(problem: Problem, wider: WiderReward) -> list[Floats]:
    """What the wider reward adds in each task `(A·S,q)`."""
    tasks = [(one.mdp, arrival) for one in problem.exemplars if (arrival := one.arrival_features) is not None]
    features = [(mdp.stacked @ arrival).toarray() for mdp, arrival in tasks]
    return beyond(features, [wider.columns(mdp, arrival) for mdp, arrival in tasks])


def _widened(problem: Problem, more: list[Floats]) -> Problem:
    """The same persons with the wider reward."""
    tasks = []
    for task, columns in zip(problem.tasks, more, strict=True):
        matrix = sp.csr_array(sp.hstack([task.pooled.feature_matrix, columns]))
        tasks.append(replace(task, features=matrix, arrival=None))
    names = (*problem.parameter_names, *(f"wider reward {number}" for number in range(1, more[0].shape[1] + 1)))
    return Problem.of_tasks(problem.names, names, tasks, problem.cells.owner, problem.conditions)


def _gradients(found: Maximum, wide: PsiLayout, more: list[Floats], psi: Floats, information: Floats) -> Floats:
    """Gradients `(m,p)` of simulated decisions, with transitions drawn anew."""
    rng, moves, here = np.random.default_rng(0), [], Marginal(wide, found.persons, 5).at(psi)
    for _ in range(12):
        drawn = _widened(found.marginal.layout.problem.in_tasks(partial(redrawn, rng=rng)), more)
        again = copy.copy(wide)
        again.tables = Tables(drawn.tasks, wide.largest, wide.tables.theta, wide.free)
        again.tables.patches = wide.tables.patches
        there = Marginal(again, found.persons, 5).at(psi)
        if here is not None and there is not None:
            moves.append(there.gradient - here.gradient)
    values, vectors = np.linalg.eigh(positive_part(information + np.mean([np.outer(move, move) for move in moves], axis=0)))
    gradients: Floats = (rng.normal(size=(DRAWS, values.size)) * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return gradients
