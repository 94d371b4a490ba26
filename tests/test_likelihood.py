"""The likelihood's derivatives against finite differences, and its invariances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.likelihood.likelihood import Likelihood, Point

STEP = 1e-5


def random_problem(features: bool = False, seed: int = 0, terminal: int = 1) -> mh.Problem:
    mdp = mh.domains.random_mdp(6, 3, branching=3, n_terminal=terminal, seed=seed)
    rng = np.random.default_rng(seed)
    policies = [mh.soft_plan(mdp, rng.normal(size=6), gamma).policy for gamma in (0.3, 0.8)]
    table = mh.Demonstrations.simulate(mdp, policies, 50, seed=seed, max_steps=20)
    return mh.Problem(mdp, table, features=rng.normal(size=(18, 4)) if features else None)


def point_of(problem: mh.Problem, per_expert: bool, ridge: float = 0.3) -> Point:
    likelihood = Likelihood(problem, per_expert, ridge)
    reward = np.random.default_rng(1).normal(size=problem.n_parameters)
    point = likelihood.at(likelihood.pack(reward, np.array([0.4, 0.7]), np.array([1.0, 1.7])))
    assert point is not None
    return point


def differences(point: Point, function) -> np.ndarray:
    rows = []
    for direction in np.eye(point.x.size):
        ahead, behind = (point.likelihood.at(point.x + sign * STEP * direction) for sign in (1, -1))
        rows.append((function(ahead) - function(behind)) / (2 * STEP))
    return np.array(rows)


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("per_expert", [False, True])
def test_gradient_is_the_finite_difference(features, per_expert):
    point = point_of(random_problem(features), per_expert)
    assert point.gradient == pytest.approx(differences(point, lambda p: p.objective), abs=1e-5)


@pytest.mark.parametrize("per_expert", [False, True])
def test_information_is_the_scores_second_moment(per_expert):
    point = point_of(random_problem(), per_expert)
    total = np.zeros_like(point.information)
    for i, choices in enumerate(point.likelihood.choices):
        scores = differences(point, lambda p, i=i: p.plans[i].log_policy)
        weights = choices.visits[:, None] * point.plans[i].policy
        total += np.einsum("sa,isa,jsa->ij", weights, scores, scores)
    assert point.information == pytest.approx(total, abs=1e-5)


def test_expected_gradient_vanishes_at_the_truth():
    """With counts equal to their expectation the score is zero at the parameters they came from."""
    d = mh.domains.cliff()
    table = mh.Demonstrations.simulate(d.mdp, d.mce_experts(), 20)
    problem = mh.Problem(d.mdp, table)
    expected = problem.with_experts(
        replace(expert, counts=expert.counts.sum(axis=1, keepdims=True) * policy)
        for expert, policy in zip(problem.experts, d.mce_experts(), strict=True)
    )
    likelihood = Likelihood(expected)
    point = likelihood.at(likelihood.pack(d.reward, np.array(d.mce_discounts)))
    assert np.abs(point.gradient).max() < 1e-9


def test_a_common_scale_of_temperature_and_reward_changes_nothing():
    likelihood = Likelihood(random_problem(), per_expert_temperature=True)
    reward, discounts = np.arange(6.0), np.array([0.2, 0.9])
    one = likelihood.at(likelihood.pack(reward, discounts, np.array([1.0, 2.0])))
    ten = likelihood.at(likelihood.pack(10 * reward, discounts, np.array([10.0, 20.0])))
    assert one.value == pytest.approx(ten.value)


def test_unavailable_actions_and_certain_choices_give_no_nan():
    available = np.array([[True, False], [True, True], [True, True]])
    transitions = np.zeros((2, 3, 3))
    transitions[0, 0, 1] = transitions[0, 1, 2] = transitions[1, 1, 0] = 1.0
    mdp = mh.MDP(transitions, terminal=[2], available=available)
    table = mh.Demonstrations.simulate(mdp, [np.array([[1, 0], [1, 0], [0.5, 0.5]])], 5)
    likelihood = Likelihood(mh.Problem(mdp, table))
    point = likelihood.at(likelihood.pack(np.array([0.0, 0.0, 2000.0]), np.array([0.5])))
    assert point.value == pytest.approx(0.0)
    assert np.isfinite(point.gradient).all()
    assert np.isfinite(point.information).all()


def test_joined_tasks_add_up():
    first, second = random_problem(seed=0), random_problem(seed=1)
    joined = Likelihood(mh.Problem.join(first, second))
    reward, discounts = np.linspace(-1, 1, 6), np.array([0.3, 0.6])
    parts = [Likelihood(p) for p in (first, second)]
    values = [part.at(part.pack(reward, discounts)) for part in parts]
    whole = joined.at(joined.pack(reward, discounts))
    assert whole.value == pytest.approx(sum(v.value for v in values))
    assert whole.gradient == pytest.approx(sum(v.gradient for v in values))
    assert whole.information == pytest.approx(sum(v.information for v in values))


def test_experts_without_demonstrations_are_refused():
    d = mh.domains.cliff()
    with pytest.raises(ValueError, match="expert 0 must be given as demonstrations"):
        Likelihood(mh.Problem(d.mdp, d.mce_experts()))
