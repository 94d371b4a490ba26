"""What the paper's algorithms make of demonstrations, and of experts who were observed in some states only."""

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.entropy.mce import Dual, count_errors

CLIFF = mh.domains.cliff()
LIVE = np.flatnonzero(~CLIFF.mdp.terminal)


def with_gaps(experts, gap):
    """Each expert is not observed in another state."""
    experts = [expert.copy() for expert in experts]
    for expert, state in zip(experts, LIVE, strict=False):
        expert[state] = gap
    return experts


@pytest.mark.parametrize("domain", [CLIFF, mh.domains.big_small()], ids=lambda domain: domain.name)
def test_discounts_are_recovered_exactly_from_experts_who_were_not_observed_everywhere(domain):
    experts = [expert.copy() for expert in domain.soft_experts()]
    gaps = np.flatnonzero(~domain.mdp.terminal)[:2]
    for expert, state in zip(experts, gaps, strict=False):
        expert[state] = np.nan
    problem = mh.Problem(domain.mdp, experts)
    report = mh.identify(problem)
    assert report.status == "unique"
    np.testing.assert_allclose(report.discounts, domain.soft_discounts, atol=1e-8)
    for solver, precision in ((mh.ClosedForm(), 1e-8), (mh.MPMCE(), 1e-4)):
        solution = mh.solve(problem, solver)
        assert solution.status in ("optimal", "converged")
        np.testing.assert_allclose(solution.discounts, domain.soft_discounts, atol=precision)
    for expert, policy in zip(domain.soft_experts(), solution.policies(), strict=True):
        seen = ~problem.experts[0].mdp.terminal & ~np.isin(np.arange(domain.mdp.n_states), gaps)
        np.testing.assert_allclose(policy[seen], expert[seen], atol=1e-4)


def test_what_arrival_where_an_expert_was_not_observed_is_worth_to_the_expert_is_a_parameter() -> None:
    """It is the reward of the state and the discounted value from there on."""
    problem = mh.Problem(CLIFF.mdp, with_gaps(CLIFF.soft_experts(), np.nan), names=["ann", "ben", "cleo"])
    state = CLIFF.mdp.state_names[LIVE[1]]
    assert problem.parameter_names[-2] == f"value of {state} to ben"
    solution = mh.solve(problem, mh.ClosedForm())
    gamma = CLIFF.soft_discounts[1]
    worth = CLIFF.reward[LIVE[1]] + gamma * mh.soft_plan(CLIFF.mdp, CLIFF.reward, gamma).values[LIVE[1]]
    assert solution.reward[-2] == pytest.approx(worth, abs=1e-6)
    assert solution.reward[list(problem.parameter_names).index(state)] == pytest.approx(CLIFF.reward[LIVE[1]], abs=1e-6)


def test_features_keep_their_weights_where_an_expert_was_not_observed() -> None:
    arrival = np.stack([CLIFF.reward > 0, CLIFF.reward < -5, CLIFF.reward == -2, CLIFF.reward == -1], axis=1) / 1.0
    weights = np.linalg.lstsq(arrival, CLIFF.reward)[0]
    for given in ({"arrival_features": arrival}, {"features": CLIFF.mdp.stacked @ arrival}):
        problem = mh.Problem(CLIFF.mdp, with_gaps(CLIFF.soft_experts(), np.nan), **given)
        solution = mh.solve(problem, mh.ClosedForm())
        assert solution.status == "optimal"
        np.testing.assert_allclose(solution.discounts, CLIFF.soft_discounts, atol=1e-6)
        np.testing.assert_allclose(solution.reward[:4], weights, atol=1e-5)


@pytest.mark.parametrize(
    "solver", [mh.MPLP(reward_bound=20), mh.NaiveLP(), mh.LPIRL(discount=0.5), mh.MCE(0.5), mh.MPML(starts=1, tolerance=1e-3)]
)
def test_every_solver_of_the_paper_takes_experts_who_were_not_observed_everywhere(solver) -> None:
    hard = isinstance(solver, mh.MPLP | mh.NaiveLP | mh.LPIRL)
    experts = with_gaps(CLIFF.hard_experts(), -1) if hard else with_gaps(CLIFF.soft_experts(), np.nan)
    solution = mh.solve(mh.Problem(CLIFF.mdp, experts), solver)
    assert np.isfinite(solution.reward).all()
    if isinstance(solver, mh.MPLP):  # the actions that were observed are best under the answer
        assert solution.evidence["reproduced"] == {"0": True, "1": True, "2": True}
        for policy, actions in zip(solution.policies(), experts, strict=True):
            seen = LIVE[actions[LIVE] >= 0]
            np.testing.assert_array_equal(policy.argmax(axis=1)[seen], actions[seen])


def test_both_ways_to_leave_a_state_out_say_the_same() -> None:
    actions = with_gaps(CLIFF.hard_experts(), -1)
    rows = [np.where((each >= 0)[:, None], np.eye(4)[np.maximum(each, 0)], np.nan) for each in actions]
    answers = [mh.solve(mh.Problem(CLIFF.mdp, each), mh.LPIRL(discount=0.4)) for each in (actions, rows)]
    for answer in answers[1:]:
        assert answer.objective == pytest.approx(answers[0].objective)


def test_rows_of_terminal_states_may_be_left_out_too() -> None:
    """There is nothing to observe there."""
    rows = [np.where(CLIFF.mdp.terminal[:, None], np.nan, policy) for policy in CLIFF.soft_experts()]
    actions = [np.where(CLIFF.mdp.terminal, -1, each) for each in CLIFF.hard_experts()]
    np.testing.assert_allclose(mh.identify(mh.Problem(CLIFF.mdp, rows)).discounts, CLIFF.soft_discounts, atol=1e-8)
    for given, whole in ((rows, CLIFF.soft_experts()), (actions, CLIFF.hard_experts())):
        made, same = mh.Problem(CLIFF.mdp, given), mh.Problem(CLIFF.mdp, whole)
        assert made.parameter_names == same.parameter_names
        for one, other in zip(made.experts, same.experts, strict=True):
            np.testing.assert_array_equal(one.policy, other.policy)


def test_an_expert_who_was_observed_nowhere_is_refused() -> None:
    with pytest.raises(ValueError, match="must be observed in at least one state"):
        mh.Problem(CLIFF.mdp, [np.full((12, 4), np.nan)])
    half = CLIFF.soft_experts()[0]
    half[LIVE[0], 0] = np.nan
    with pytest.raises(ValueError, match="policy of expert 0 must be finite"):
        mh.Problem(CLIFF.mdp, [half])


def test_the_error_of_feature_counts_is_the_spread_over_tables() -> None:
    """Frequencies of N choices in each state move the feature counts as the delta method says."""
    policy, rng = CLIFF.soft_experts()[2], np.random.default_rng(0)
    lengths, said = [], []
    for _ in range(200):
        counts = np.stack([rng.multinomial(300, row) for row in policy]) / 1.0
        logged = mh.Problem(CLIFF.mdp, [mh.Expert("ann", CLIFF.mdp, "demonstrations", counts=counts)])
        dual = Dual(logged.observed_policies(), np.array([0.8]), np.ones(1))
        exact = Dual(mh.Problem(CLIFF.mdp, [policy]), np.array([0.8]), np.ones(1))
        lengths.append(np.linalg.norm(dual.targets[0] - exact.targets[0]))
        said += count_errors(dual, logged)
    assert np.sqrt(np.mean(np.square(lengths))) == pytest.approx(np.mean(said), rel=0.1)


def test_maximum_causal_entropy_takes_demonstrations_and_says_their_error(tmp_path) -> None:
    domain = mh.domains.big_small()
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 2000, seed=0, names=["ann", "ben", "cleo"])
    problem = mh.Problem(domain.mdp, table)
    solution = mh.solve(problem, mh.MPMCE())
    assert solution.status == "converged"
    np.testing.assert_allclose(solution.discounts, domain.soft_discounts, atol=0.05)
    errors = solution.evidence["count_errors"]
    assert all(0 < mismatch < 3 * error for mismatch, error in zip(solution.evidence["mismatch"], errors, strict=True))
    assert "standard error in brackets: ann" in solution.message
    solution.to_json(tmp_path / "solution.json")
    read = mh.Solution.from_json(tmp_path / "solution.json")
    np.testing.assert_allclose(read.confidence_intervals(), solution.confidence_intervals())
    known = mh.solve(problem, mh.MCE(domain.soft_discounts))
    assert known.status == "converged"
    assert known.evidence["count_errors"] == pytest.approx(errors, rel=0.2)


def test_discounts_that_match_within_the_error_of_the_counts_are_a_set_and_not_one_answer() -> None:
    """The least mismatch of 100 episodes is far from the truth, and nothing but the counts' error says so."""
    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 100, seed=0)
    solution = mh.solve(mh.Problem(CLIFF.mdp, table), mh.MPMCE(starts=1))
    assert np.abs(solution.discounts - CLIFF.soft_discounts).max() > 0.15
    assert solution.status == "not identified"
    assert "no interval is known, because the first-order errors of 0" in solution.message
    np.testing.assert_array_equal(solution.confidence_intervals(0.95), [[0.0, 1.0]] * 3)
    assert "within the error" not in mh.solve(mh.Problem(CLIFF.mdp, CLIFF.soft_experts()), mh.MPMCE(starts=1)).message


@pytest.mark.slow
def test_standard_errors_of_the_least_mismatch_are_its_spread_over_tables() -> None:
    domain, answers = mh.domains.big_small(), []
    for seed in range(20):
        table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 1000, seed=seed)
        answers.append(mh.solve(mh.Problem(domain.mdp, table), mh.MPMCE()))
    errors = np.array([answer.discounts - domain.soft_discounts for answer in answers])
    spread = np.array([answer.standard_errors for answer in answers])
    np.testing.assert_allclose(np.sqrt((errors**2).mean(axis=0)), np.sqrt((spread**2).mean(axis=0)), rtol=0.5)


@pytest.mark.slow
def test_linear_programs_take_the_most_frequent_actions_and_say_how_doubtful_these_are() -> None:
    uniform = CLIFF.mdp.available / CLIFF.mdp.available.sum(axis=1, keepdims=True)
    policies = [0.95 * np.eye(4)[actions] + 0.05 * uniform for actions in CLIFF.hard_experts()]
    table = mh.Demonstrations.simulate(CLIFF.mdp, policies, 300, seed=0)
    logged = mh.solve(mh.Problem(CLIFF.mdp, table), mh.MPLP(reward_bound=20))
    exact = mh.solve(mh.Problem(CLIFF.mdp, CLIFF.hard_experts()), mh.MPLP(reward_bound=20))
    assert logged.objective == pytest.approx(exact.objective)
    np.testing.assert_allclose(logged.discounts, exact.discounts, atol=1e-6)
    assert all(0.02 < share < 0.06 for share in logged.evidence["other_decisions"].values())
    assert logged.evidence["doubtful_states"] == {"0": [], "1": [], "2": []}
    assert "another action than the most frequent" in logged.message
    few = mh.solve(mh.Problem(CLIFF.mdp, mh.Demonstrations.simulate(CLIFF.mdp, policies, 3, seed=0)), mh.MPLP(reward_bound=20))
    assert any(few.evidence["doubtful_states"].values())
