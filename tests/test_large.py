"""The matrix-free route against the dense one, on a problem small enough for both."""

from __future__ import annotations

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.choice.model import Likelihood, temperature_penalty
from multihorizon.choice.settings import Settings
from multihorizon.likelihood.intervals import precision, profile_covariances, profile_information
from multihorizon.likelihood.random_effects import _expected_gains, log_likelihood_given
from multihorizon.likelihood.search import _is_hard, choice_probability_start, climb
from multihorizon.numerics.newton import Dense
from multihorizon.parallel import limited


@pytest.fixture(scope="module")
def problem() -> mh.Problem:
    d = mh.domains.big_small()
    return mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 1000))


@pytest.mark.parametrize("per_expert", [False, True])
def test_products_are_those_of_the_dense_information(problem, per_expert):
    model = Likelihood(problem, Settings(temperatures=np.full(3, np.nan)) if per_expert else None)
    point = model.at(model.pack(mh.domains.big_small().reward, np.array([0.2, 0.5, 0.8]), np.array([1.0, 1.3, 0.7])))
    columns = np.array([point.information_product(direction) for direction in np.eye(model.size)])
    assert columns == pytest.approx(point.information, abs=1e-9 * np.abs(point.information).max())


def test_standard_errors_are_those_of_the_dense_information(problem):
    model = Likelihood(problem)
    point = model.at(model.pack(mh.domains.big_small().reward, np.array([0.2, 0.5, 0.8])))
    dense = precision(point)
    assert dense.covariance is not None
    model.is_large = True
    found, identified, _ = profile_covariances(point)
    assert identified.all()
    assert found[:3] == pytest.approx(dense.covariance[model.discount_slice], abs=0.01 * np.abs(dense.covariance).max())
    assert np.sqrt(np.diag(found[:3, 18:21])) == pytest.approx(dense.standard_errors[model.discount_slice], rel=0.01)


def test_what_weak_decisions_tell_is_not_taken_for_nothing(problem):
    """Experts who choose nearly at random and look almost equally far keep a millionth of their information: it counts."""
    model = Likelihood(problem)
    point = model.at(model.pack(0.02 * mh.domains.big_small().reward, np.array([0.5, 0.51, 0.52])))
    dense = precision(point)
    model.is_large = True
    found, identified, spectrum = profile_covariances(point)
    assert spectrum[0] < 1e-6
    assert identified[:3].all()
    assert np.sqrt(np.diag(found[:3, 18:21])) == pytest.approx(dense.standard_errors[model.discount_slice], rel=0.01)


def test_estimated_transitions_are_in_the_errors_without_matrices_too():
    d = mh.domains.cliff()
    table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 300)
    mdp = mh.estimate_mdp(table)
    model = Likelihood(mh.Problem(mdp, table), Settings(moves=True))
    reward = d.reward[[int(name) for name in mdp.state_names]]
    point = model.at(model.pack(reward, np.array([0.1, 0.3, 0.6])))
    dense = precision(point)
    held = precision(model.held().at(point.x[: model.held().size]))
    assert (dense.standard_errors[model.discount_slice] > 1.01 * held.standard_errors[model.discount_slice]).all()
    model.is_large = True
    found = precision(point)
    assert found.covariance is None
    assert found.standard_errors[model.discount_slice] == pytest.approx(dense.standard_errors[model.discount_slice], rel=1e-5)


def test_both_routes_find_the_same_answer(problem):
    dense = mh.solve(problem, mh.MaximumLikelihood(temperature="shared", starts=1))
    with limited(dense_rewards=5):
        free = mh.solve(problem, mh.MaximumLikelihood(temperature="shared", starts=1))
        intervals = free.confidence_intervals(0.95)
    assert free.status == mh.Status.CONVERGED
    assert free.discounts == pytest.approx(dense.discounts, abs=2e-3)
    assert free.objective == pytest.approx(dense.objective, abs=1e-2)
    assert free.standard_errors == pytest.approx(dense.standard_errors, rel=0.02)
    assert intervals == pytest.approx(dense.confidence_intervals(0.95), abs=2e-3)


def test_steps_by_products_are_those_of_the_matrix(problem):
    model = Likelihood(problem, Settings(temperatures=np.full(3, np.nan)))
    model = model.holding(temperature_penalty(model, 0.3), 0.1)
    point = model.at(model.pack(mh.domains.big_small().reward, np.array([0.2, 0.5, 0.8]), np.array([1.0, 1.3, 0.7])))
    dense, products = Dense(point.curvature()), point.products()
    free = np.ones(model.size, dtype=bool)
    free[[0, 3, -1]] = False
    assert products.times(point.gradient) == pytest.approx(dense.times(point.gradient), rel=1e-8)
    for damping in (1e-2, 10.0):
        damped = dense.matrix + damping * np.diag(products.scale)
        expected = np.linalg.solve(damped[np.ix_(free, free)], point.gradient[free])
        found = products.solve(point.gradient, free, damping, 1e-10)
        assert found[free] == pytest.approx(expected, rel=1e-6)
        assert not found[~free].any()


def test_starts_by_products_are_those_of_the_matrix(problem):
    model = Likelihood(problem)
    discounts = np.array([0.2, 0.5, 0.8])
    dense = choice_probability_start(model, discounts)
    model.is_large = True
    assert choice_probability_start(model, discounts).objective == pytest.approx(dense.objective, rel=1e-3)


def test_what_is_not_identified_is_seen_without_matrices():
    d = mh.domains.toy()
    policies = [mh.soft_plan(d.mdp, d.reward, gamma).policy for gamma in (0.3, 0.8)]
    problem = mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, policies, 3000))
    with limited(dense_rewards=3):
        assert mh.solve(problem, mh.MaximumLikelihood(temperature="shared", starts=1)).status == mh.Status.NOT_IDENTIFIED


def test_the_matrix_and_products_give_the_same_answer_intervals_and_errors(problem):
    matrix = mh.solve(problem, mh.MaximumLikelihood(starts=1))
    with limited(product_rewards=5):
        assert Likelihood(problem).by_products
        products = mh.solve(problem, mh.MaximumLikelihood(starts=1))
        intervals = products.confidence_intervals(0.95)
    assert products.objective == pytest.approx(matrix.objective, abs=1e-6)
    assert intervals == pytest.approx(matrix.confidence_intervals(0.95), abs=1e-4)
    errors = [solution.evidence["reward_standard_errors"] for solution in (matrix, products)]
    assert np.array(errors[1], float) == pytest.approx(np.array(errors[0], float), rel=1e-4, nan_ok=True)


def test_what_is_left_of_the_information_is_the_same_by_both_roads(problem):
    model = Likelihood(problem, Settings(temperatures=np.full(3, np.nan)))
    model = model.holding(temperature_penalty(model, 0.3))
    point = model.at(model.pack(np.linspace(-1, 1, model.n_reward), np.array([0.2, 0.5, 0.8])))
    by_matrix = profile_information(point)[0]
    model.is_large = True
    assert model.by_products
    assert profile_information(point)[0] == pytest.approx(by_matrix, rel=1e-6, abs=1e-6 * np.abs(by_matrix).max())


def test_the_expected_gain_of_a_spread_is_exact_where_it_was_climbed_and_close_beside_it(problem):
    model = Likelihood(problem, Settings(temperatures=np.full(3, np.nan)))
    equal = mh.solve(problem, mh.MaximumLikelihood(temperature="shared", starts=1))
    spreads = np.array([0.1, 0.13, 0.2])
    ends = []
    for spread in spreads:
        held = model.holding(temperature_penalty(model, float(spread)))
        ends.append(climb(held.at(held.pack(equal.reward, equal.discounts))).point)
    found = [log_likelihood_given(end, float(spread)) for end, spread in zip(ends, spreads, strict=True)]
    expected = _expected_gains(ends[1], 0.13, spreads)
    assert expected[1] == pytest.approx(found[1], abs=1e-6)
    assert expected == pytest.approx(found, abs=0.05)


def test_a_task_without_order_is_hard_and_a_grid_is_not():
    rng, n = np.random.default_rng(0), 900
    moves = np.zeros((2, n, n))
    for action in moves:
        action[np.arange(n)[:, None], rng.integers(n, size=(n, 3))] += 1 / 3
        action /= action.sum(axis=1, keepdims=True)
    grid = mh.domains.gridworld(30, 30, slip=0.1)
    for mdp, hard in ((mh.MDP(moves), True), (grid, False)):
        table = mh.Demonstrations.simulate(mdp, [mdp.available / mdp.available.sum(axis=1, keepdims=True)] * 2, 5)
        model = Likelihood(mh.Problem(mdp, table))
        assert _is_hard(model) is hard
        assert model.by_products is not hard
