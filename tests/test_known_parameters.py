"""What is known is kept, what is tied is shared, and the rest is estimated as well as if it had been alone."""

from __future__ import annotations

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.choice.model import Likelihood, temperature_penalty
from multihorizon.choice.settings import Settings

CLIFF = mh.domains.cliff()


@pytest.fixture(scope="module")
def problem() -> mh.Problem:
    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 500, names=["ann", "bob", "cyd"])
    return mh.Problem(CLIFF.mdp, table)


def test_known_discounts_keep_their_value_and_their_interval_is_a_point(problem):
    solution = mh.solve(problem, mh.MaximumLikelihood(discounts={"bob": 0.2}))
    assert solution.discounts[1] == 0.2
    assert solution.confidence_intervals(0.95)[1] == pytest.approx([0.2, 0.2])
    assert solution.standard_errors[1] == 0.0
    assert (solution.standard_errors[[0, 2]] > 0).all()


def test_all_discounts_known_leave_the_reward(problem):
    solution = mh.solve(problem, mh.MaximumLikelihood(discounts={"ann": 0.0, "bob": 0.2, "cyd": 0.52}, temperature=1.0))
    assert solution.discounts == pytest.approx([0.0, 0.2, 0.52])
    visited = np.isfinite(np.array(solution.evidence["reward_standard_errors"], dtype=float))
    errors = np.array(solution.evidence["reward_standard_errors"], dtype=float)[visited]
    assert (np.abs(solution.reward - CLIFF.reward)[visited] < 4 * errors + 0.5).all()


def test_with_all_discounts_known_there_is_one_start_and_the_answer_has_its_last_digits():
    mdp = mh.domains.gridworld(15, 15, slip=0.1)
    arrival = np.random.default_rng(0).normal(size=(mdp.n_states, 4))
    policy = mh.soft_plan(mdp, arrival @ np.array([1.0, -0.5, 0.2, 0.0]), 0.9).policy
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, [policy], 200), arrival_features=arrival)
    solution = mh.solve(problem, mh.MaximumLikelihood(discounts=0.9, temperature=1.0))
    assert solution.status == mh.Status.CONVERGED
    assert len(solution.evidence["starts"]) == 1
    # A gain of 1e-13 is far below the last digit of the log-likelihood; the gradient still shows it.
    assert solution.residual * solution.evidence["decisions"] < 1e-4


@pytest.mark.parametrize("form", ["states", "rows", "mapping"])
def test_a_known_reward_leaves_discounts_and_one_temperature(problem, form):
    rows = CLIFF.mdp.stacked @ CLIFF.reward
    known = {"states": CLIFF.reward, "rows": rows, "mapping": dict(zip(CLIFF.mdp.state_names, CLIFF.reward, strict=True))}
    solution = mh.solve(problem, mh.MaximumLikelihood(known_reward=known[form], temperature="shared"))
    assert solution.temperature == pytest.approx([1.0] * 3, rel=0.1)
    assert (np.abs(solution.discounts - CLIFF.soft_discounts) < 4 * solution.standard_errors + 0.02).all()
    assert solution.policies()[1] == pytest.approx(CLIFF.soft_experts()[1], abs=0.1)


@pytest.mark.parametrize("kind", [int, float])
def test_states_and_experts_may_be_named_by_numbers(kind):
    numbered = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 100, names=[1, 2, 3])
    problem = mh.Problem(CLIFF.mdp, numbered)
    known = dict(zip(CLIFF.mdp.state_names, CLIFF.reward, strict=True))
    text = mh.solve(problem, mh.MaximumLikelihood(1.0, {"2": 0.2}, known, {"1": "a", "3": "a"}, starts=1))
    by_number = {kind(name): value for name, value in known.items()}
    found = mh.solve(problem, mh.MaximumLikelihood(1.0, {kind(2): 0.2}, by_number, {kind(1): "a", kind(3): "a"}, starts=1))
    assert (found.discounts == text.discounts).all()


def test_a_known_part_is_added_to_the_features():
    """The goal's reward is told; what the cells cost is estimated."""
    ties = np.stack([CLIFF.reward == value for value in (-10, -2, -1)], axis=1) / 1.0
    goal = np.where(CLIFF.reward == 20, 20.0, 0.0)
    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 1000)
    problem = mh.Problem(CLIFF.mdp, table, arrival_features=ties, feature_names=["cliff", "edge", "path"])
    solution = mh.solve(problem, mh.MaximumLikelihood(known_reward=goal, temperature=1.0))
    errors = np.array(solution.evidence["reward_standard_errors"])
    assert (np.abs(solution.reward - [-10, -2, -1]) < 4 * errors).all()


@pytest.mark.slow
def test_a_known_temperature_of_one_expert_sets_the_scale(problem):
    solution = mh.solve(problem, mh.MaximumLikelihood(temperature={"ann": 2.0}))
    free = mh.solve(problem, mh.MaximumLikelihood(temperature="per_expert"))
    assert solution.temperature[0] == 2.0
    assert solution.objective == pytest.approx(free.objective, abs=1.0)


@pytest.mark.slow
def test_groups_share_one_discount(problem):
    solution = mh.solve(problem, mh.MaximumLikelihood(groups={"ann": "near", "bob": "near"}))
    assert solution.discounts[0] == solution.discounts[1] != solution.discounts[2]
    intervals = solution.confidence_intervals(0.95)
    assert (intervals[0] == intervals[1]).all()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"discounts": {"dan": 0.5}},
            "discounts must name experts among ann, bob, cyd, got 'dan'",
        ),
        ({"temperature": {"dan": 0.5}}, "temperature must name experts among ann, bob"),
        ({"groups": {"dan": "x"}}, "groups name dan"),
        ({"groups": {"ann": 1, "bob": 1}, "discounts": {"ann": 0.1, "bob": 0.2}}, "ann, bob share one discount"),
        ({"known_reward": {"moon": 1.0}}, "known_reward must name states among 0, 1"),
        ({"known_reward": {"0": 1.0}}, "must have a number for every state, got none for '1'"),
        ({"known_reward": {("0", "moon"): 1.0}}, "known_reward must name actions among"),
        ({"known_reward": {("0", "up"): 1.0}}, "must have a number for every action that can be taken, got none for"),
        ({"known_reward": {("0", "up"): 1.0, "1": 2.0}}, "got both: '1' is no pair"),
        ({"known_reward": {("0", "up", "2"): 1.0}}, r"must name pairs \(state, action\), got"),
        ({"known_reward": np.ones(5)}, "must have one number for each of 12 states or 48 pairs of state and action"),
        ({"known_reward": np.ones(12), "discounts": 0.5, "temperature": 1.0}, "are all given: leave out at least one"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(problem, options, match):
    with pytest.raises(ValueError, match=match):
        mh.solve(problem, mh.MaximumLikelihood(**options))


def test_a_saved_solution_is_resumed_with_what_was_known(problem, tmp_path):
    solution = mh.solve(problem, mh.MaximumLikelihood(discounts={"bob": 0.2}))
    solution.to_json(tmp_path / "s.json")
    loaded = mh.Solution.from_json(tmp_path / "s.json", problem=problem)
    assert mh.shared_discount_test(loaded).statistic == pytest.approx(mh.shared_discount_test(solution).statistic, abs=1e-3)


@pytest.mark.parametrize("spread", [0.3, np.inf])
def test_what_holds_temperatures_has_entries_for_temperatures_only(problem, spread):
    """It is the penalty on the variance of the log-temperatures, and on their mean, and it takes no room for the rewards."""
    model = Likelihood(problem, Settings(temperatures=np.full(3, np.nan)))
    held = temperature_penalty(model, spread)
    assert held.matrix.nnz == 9
    x = np.random.default_rng(0).normal(size=model.size)
    logs = x[model.temperature_slice]
    expected = -0.5 * ((logs - logs.mean()) ** 2).sum() / spread**2 - 0.5 * 1e6 * 3 * logs.mean() ** 2
    assert held(x) == pytest.approx(expected)
    fewer = held.without(model.discount_slice, 1)
    assert fewer(np.delete(x, [model.n_reward, model.n_reward + 1])) == pytest.approx(expected)
    assert fewer.matrix.shape == (model.size - 2, model.size - 2)
