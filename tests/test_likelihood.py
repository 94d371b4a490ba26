"""The likelihood's derivatives against finite differences, and its invariances."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.choice import plans as engine
from multihorizon.choice.model import Likelihood, Point, Quadratic
from multihorizon.choice.settings import Settings

STEP = 1e-5


def random_problem(features: bool = False, seed: int = 0, terminal: int = 1) -> mh.Problem:
    mdp = mh.domains.random_mdp(6, 3, branching=3, n_terminal=terminal, seed=seed)
    rng = np.random.default_rng(seed)
    policies = [mh.soft_plan(mdp, rng.normal(size=6), gamma).policy for gamma in (0.3, 0.8)]
    table = mh.Demonstrations.simulate(mdp, policies, 50, seed=seed, max_steps=20)
    return mh.Problem(mdp, table, features=rng.normal(size=(18, 4)) if features else None)


FREE = Settings(temperatures=np.full(2, np.nan))


def point_of(problem: mh.Problem, per_expert: bool, ridge: float = 0.3) -> Point:
    likelihood = Likelihood(problem, FREE if per_expert else None, ridge=ridge)
    reward = np.random.default_rng(1).normal(size=problem.n_parameters)
    point = likelihood.at(likelihood.pack(reward, np.array([0.4, 0.7]), np.array([1.0, 1.7])))
    assert point is not None
    return point


def differences(point: Point, function) -> np.ndarray:
    rows = []
    for direction, fixed in zip(np.eye(point.x.size), point.likelihood.fixed, strict=True):
        ahead, behind = (point.likelihood.at(point.x + sign * STEP * direction) for sign in (1, -1))
        rows.append((0.0 if fixed else 1.0) * (function(ahead) - function(behind)) / (2 * STEP))
    return np.array(rows)


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("per_expert", [False, True])
def test_gradient_is_the_finite_difference(features, per_expert):
    point = point_of(random_problem(features), per_expert)
    free = ~point.likelihood.fixed
    assert point.gradient[free] == pytest.approx(differences(point, lambda p: p.objective)[free], abs=1e-5)


@pytest.mark.parametrize("per_expert", [False, True])
def test_information_is_the_scores_second_moment(per_expert):
    point = point_of(random_problem(), per_expert)
    scores = differences(point, lambda p: p.plans[0].log)
    weights = point.likelihood.batches[0].visits * point.plans[0].policy
    total = np.einsum("asn,iasn,jasn->ij", weights, scores, scores)
    free = np.ix_(*2 * [~point.likelihood.fixed])
    assert point.information[free] == pytest.approx(total[free], abs=1e-5)


def test_expected_gradient_vanishes_at_the_truth():
    """With counts equal to their expectation the score is zero at the parameters they came from."""
    d = mh.domains.cliff()
    table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 20)
    problem = mh.Problem(d.mdp, table)
    expected = problem.with_experts(
        replace(expert, counts=expert.counts.sum(axis=1, keepdims=True) * policy)
        for expert, policy in zip(problem.experts, d.soft_experts(), strict=True)
    )
    likelihood = Likelihood(expected)
    point = likelihood.at(likelihood.pack(d.reward, np.array(d.soft_discounts)))
    assert np.abs(point.gradient[~likelihood.fixed]).max() < 1e-9


def test_a_common_scale_of_temperature_and_reward_changes_nothing():
    likelihood = Likelihood(random_problem(), FREE)
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
        Likelihood(mh.Problem(d.mdp, d.soft_experts()))


def steps_left(horizon: int = 3) -> mh.MDP:
    """Three places on a ring and the steps left: no state can be visited twice."""
    n = 3 * horizon + 3
    transitions = np.zeros((2, n, n))
    for left in range(1, horizon + 1):
        for place in range(3):
            for action in range(2):
                after = 3 * (left - 1)
                transitions[action, 3 * left + place, after + (place + 1 + action) % 3] += 0.8
                transitions[action, 3 * left + place, after + place] += 0.2
    return mh.MDP(transitions, initial=np.repeat([0, 1 / 3], [n - 3, 3]), terminal=[0, 1, 2])


def engines(mdp: mh.MDP) -> list[engine.Engine]:
    levels = engine.episodic_levels(mdp)
    return [engine.Small(mdp), engine.Large(mdp), *([] if levels is None else [engine.Episodic(mdp, levels)])]


@pytest.mark.parametrize("mdp", [mh.domains.cliff().mdp, mh.domains.toy(ending="absorbing").mdp, steps_left()], ids=str)
def test_all_engines_plan_and_solve_alike(mdp):
    """Each is checked against planning for one expert at a time, and its solves against their own equation."""
    rng = np.random.default_rng(0)
    reward = rng.normal(size=mdp.stacked.shape[0]) * (mdp.stacked.sum(axis=1) > 0)
    gamma, lam = np.array([0.0, 0.5, 0.99]), np.array([1.0, 0.3, 2.0])
    plans = [mh.soft_plan(mdp, reward.reshape(mdp.n_actions, -1).T, g, heat) for g, heat in zip(gamma, lam, strict=True)]
    policy = np.stack([plan.policy.T for plan in plans], axis=2)
    b = rng.normal(size=(mdp.n_states, 3, 2))
    for one in engines(mdp):
        values = one.values(reward, gamma, lam, None)
        assert values == pytest.approx(np.stack([plan.values for plan in plans], axis=1), abs=1e-9)
        solver = one.resolvents(policy, gamma)
        x, y = solver.solve(b), solver.solve_transposed(b)
        for n, plan in enumerate(plans):
            under = mdp.under(plan.policy)
            assert x[:, n] - gamma[n] * (under @ x[:, n]) == pytest.approx(b[:, n], abs=1e-9)
            assert y[:, n] - gamma[n] * (under.T @ y[:, n]) == pytest.approx(b[:, n], abs=1e-9)


def test_levels_lead_to_lower_ones_and_cycles_are_seen():
    mdp = steps_left()
    levels = engine.episodic_levels(mdp)
    assert [sorted(level.tolist()) for level in levels] == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert engine.episodic_levels(mh.domains.cliff().mdp) is None


def test_infinite_values_are_told_by_every_engine():
    """At discount 1 and 5 for every step, wandering about pays for ever."""
    mdp = mh.domains.big_small().mdp
    reward = 5.0 * (mdp.stacked.sum(axis=1) > 0)
    for one in (engine.Small(mdp), engine.Large(mdp)):
        assert one.values(reward, np.ones(1), np.ones(1), None) is None


def test_known_rewards_discounts_and_temperatures_keep_their_value():
    problem = random_problem()
    told = Settings(discounts=np.array([np.nan, 0.7]), temperatures=np.array([np.nan, 2.0]), reward=np.linspace(-1, 1, 6))
    likelihood = Likelihood(problem, told)
    x = likelihood.pack(np.zeros(6), np.array([0.4, 0.1]), np.array([1.5, 9.0]))
    assert likelihood.reward(x) == pytest.approx(np.linspace(-1, 1, 6))
    assert likelihood.discounts(x) == pytest.approx([0.4, 0.7])
    assert likelihood.temperatures(x) == pytest.approx([1.5, 2.0])
    assert not likelihood.scale_is_free


def test_the_quadratic_term_is_part_of_the_objective_and_its_gradient():
    problem = random_problem()
    plain = Likelihood(problem, FREE)
    rng = np.random.default_rng(5)
    root = rng.normal(size=(plain.size, plain.size))
    held = plain.holding(Quadratic(rng.normal(size=plain.size), rng.normal(size=plain.size), root @ root.T))
    point = held.at(held.pack(rng.normal(size=6), np.array([0.4, 0.7]), np.array([1.0, 1.7])))
    assert point.gradient == pytest.approx(differences(point, lambda p: p.objective), rel=1e-6, abs=1e-4)


def test_a_part_of_the_experts_is_the_likelihood_of_these_alone():
    problem = random_problem()
    whole = Likelihood(problem, FREE)
    x = whole.pack(np.linspace(-1, 1, 6), np.array([0.4, 0.7]), np.array([1.0, 1.7]))
    parts = [whole.of_experts([k]) for k in range(2)]
    values = [part.at(x[[*range(6), 6 + k, 8 + k]]).value for k, part in enumerate(parts)]
    assert sum(values) == pytest.approx(whole.at(x).value)


def test_plans_begun_with_the_solves_of_a_neighbour_are_the_same():
    """On more states than are planned for together, a step begins with the neighbour's linear system."""
    mdp = mh.domains.gridworld(12, 12, slip=0.1)
    table = mh.Demonstrations.simulate(mdp, [mh.soft_plan(mdp, np.arange(144) / 50, 0.9).policy], 20, max_steps=20)
    model = Likelihood(mh.Problem(mdp, table))
    rng = np.random.default_rng(0)
    here = model.at(model.pack(rng.normal(size=144), np.array([0.9])))
    assert here.gradient.size == model.size  # makes the solves
    for change in (1e-6, 0.1, 3.0):
        x = model.pack(model.reward(here.x) + change * rng.normal(size=144), np.array([0.9 - change / 10]))
        near, far = model.at(x, here), model.at(x)
        np.testing.assert_allclose(near.plans[0].values, far.plans[0].values, rtol=0, atol=1e-10)
