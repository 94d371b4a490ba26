"""Estimates where the data are few, one-sided or second-hand: what is told must hold, and what is not known must not be told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.choice.plans import redrawn
from multihorizon.choice.settings import Settings
from multihorizon.likelihood.intervals import precision, reward_contrasts, transition_widening
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.random_effects import log_likelihood_given
from multihorizon.likelihood.search import climb
from multihorizon.numerics import newton
from multihorizon.numerics.newton import Ascent, Tolerances
from multihorizon.parallel import limited

CLIFF = mh.domains.cliff()


def bus(n_bins: int = 15) -> mh.Problem:
    """One fleet that keeps an engine, at a cost that grows with its use, or replaces it."""
    moves = np.zeros((2, n_bins, n_bins))
    for use in range(n_bins):
        for more, chance in enumerate((0.4, 0.6)):
            moves[0, use, min(use + more, n_bins - 1)] += chance
            moves[1, use, more] += chance
    mdp = mh.MDP(moves, initial=np.eye(n_bins)[0], action_names=["keep", "replace"])
    features = np.zeros((2 * n_bins, 2))
    features[:n_bins, 0], features[n_bins:, 1] = -np.arange(n_bins), -1.0
    cost = (features @ [0.3, 5.0]).reshape(2, n_bins).T
    table = mh.Demonstrations.simulate(mdp, [mh.soft_plan(mdp, cost, 0.9).policy], 4, seed=1, max_steps=150)
    return mh.Problem(mdp, table, features=features, feature_names=["use", "replacement"])


def test_an_interval_ends_at_zero_exactly_where_zero_is_not_contradicted():
    problem = bus()
    free = mh.solve(problem, mh.MaximumLikelihood())
    without = mh.solve(problem, mh.MaximumLikelihood(discounts=0.0))
    low, high = free.confidence_intervals(0.95)[0]
    assert 2 * (free.objective - without.objective) < 3.84
    assert (low, high) == (0.0, pytest.approx(0.9999))


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_both_ends_are_there_where_the_reward_moves_far_along_the_profile(seed):
    """90 bins, of which an engine moves through two at most; costs and discount trade off from one end to the other."""
    bins, steps = 90, (0.3919, 0.5953, 0.0128)
    moves = np.zeros((2, bins, bins))
    for use in range(bins):
        for more, chance in enumerate(steps):
            moves[0, use, min(use + more, bins - 1)] += chance
            moves[1, use, more] += chance
    mdp, features = mh.MDP(moves), np.zeros((2 * bins, 2))
    features[:bins, 0], features[bins:, 1] = -0.001 * np.arange(bins), -1.0
    policy = mh.soft_plan(mdp, (features @ [2.293, 10.07]).reshape(2, bins).T, 0.9999).policy
    table = mh.Demonstrations.simulate(mdp, [policy], 37, seed=seed, max_steps=117, starts=[0] * 37)
    problem = mh.Problem(mdp, table, features=features)
    free, without = (mh.solve(problem, mh.MaximumLikelihood(discounts=fixed)) for fixed in (None, 0.0))
    assert 2 * (free.objective - without.objective) < 3.84
    assert free.confidence_intervals(0.95)[0] == pytest.approx([0.0, 0.9999])


def test_ends_whose_climbs_do_not_finish_are_reached_by_what_they_promise():
    """A climb that is stopped leaves no end of an interval open where the likelihood is finite."""
    solution = mh.solve(bus(), mh.MaximumLikelihood())
    finished = mh.solve(bus(), mh.MaximumLikelihood()).confidence_intervals(0.5)
    with limited(steps=1):
        assert solution.confidence_intervals(0.5) == pytest.approx(finished, abs=0.01)


def test_an_unfinished_fit_has_no_intervals_and_no_standard_errors():
    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 100)
    with limited(steps=1):
        solution = mh.solve(mh.Problem(CLIFF.mdp, table), mh.MaximumLikelihood(temperature="shared", starts=1))
    assert solution.status == mh.Status.NOT_CONVERGED
    assert np.isnan(solution.standard_errors).all()
    assert np.isnan(solution.confidence_intervals(0.95)).all()
    assert "do not use" in solution.message


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_few_decisions_give_a_wide_answer_that_holds(seed):
    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 30, seed=seed)
    solution = mh.solve(mh.Problem(CLIFF.mdp, table), mh.MaximumLikelihood())
    low, high = solution.confidence_intervals(0.95).T
    assert solution.status == mh.Status.CONVERGED
    assert np.abs(solution.reward).max() < 3 / np.sqrt(solution.evidence["ridge"])  # three deviations of the prior that holds it
    assert "penalty" in solution.message
    assert ((low <= CLIFF.soft_discounts) & (CLIFF.soft_discounts <= high)).all()


def test_well_determined_answers_are_not_penalised():
    d = mh.domains.big_small()
    table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 3000)
    solution = mh.solve(mh.Problem(d.mdp, table), mh.MaximumLikelihood())
    assert solution.evidence["ridge"] == 0.0
    assert solution.evidence["ridge_reason"] == ""


@pytest.fixture(scope="module")
def unequal() -> mh.Solution:
    """Three experts who look equally far ahead, with different temperatures."""
    policies = [mh.soft_plan(CLIFF.mdp, CLIFF.reward, 0.6, lam).policy for lam in (1.0, 0.4, 3.0)]
    table = mh.Demonstrations.simulate(CLIFF.mdp, policies, 500, seed=0)
    return mh.solve(mh.Problem(CLIFF.mdp, table), mh.MaximumLikelihood(starts=2))


@pytest.mark.slow
def test_temperatures_are_not_mistaken_for_horizons(unequal):
    solution = unequal
    low, high = solution.confidence_intervals(0.95).T
    assert solution.evidence["equal_temperatures_p"] < 1e-6
    assert ((low <= 0.6) & (high >= 0.6)).all()
    assert solution.temperature / solution.temperature[0] == pytest.approx([1.0, 0.4, 3.0], rel=0.3)


def test_a_test_of_temperatures_that_did_not_end_is_not_passed(unequal, monkeypatch):
    climb = newton.climb

    def broken_off(start: object, held: object, tol: Tolerances, *rest: object) -> Ascent:
        """No climb that compares spreads makes a step."""
        return climb(start, held, replace(tol, max_steps=0) if tol.gain == 1e-3 else tol, *rest)

    monkeypatch.setattr(newton, "climb", broken_off)
    solution = mh.solve(unequal.problem, mh.MaximumLikelihood(ridge=0.0, starts=1))
    assert np.isnan(solution.evidence["equal_temperatures_p"])
    assert "the test of equal temperatures is not reliable" in solution.message


@pytest.mark.slow
def test_equal_temperatures_are_kept_where_nothing_speaks_against_them():
    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 500, seed=0)
    solution = mh.solve(mh.Problem(CLIFF.mdp, table), mh.MaximumLikelihood())
    assert solution.evidence["equal_temperatures_p"] > 0.05
    assert (solution.temperature == 1.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("temperature", ["pooled", "per_expert"])
def test_a_person_at_chance_spoils_nobody_wherever_they_stand(temperature):
    policies = [np.full((12, 4), 0.25), *(mh.soft_plan(CLIFF.mdp, CLIFF.reward, g).policy for g in (0.3, 0.6))]
    problem = mh.Problem(CLIFF.mdp, mh.Demonstrations.simulate(CLIFF.mdp, policies, 500, seed=1, names=["a", "b", "c"]))
    moved = problem.with_experts([problem.experts[k] for k in (2, 0, 1)])
    first, second = (mh.solve(p, mh.MaximumLikelihood(temperature, starts=1)) for p in (problem, moved))
    assert first.status == second.status == mh.Status.CONVERGED
    assert second.discounts == pytest.approx(first.discounts[[2, 0, 1]], abs=1e-6)
    assert second.standard_errors == pytest.approx(first.standard_errors[[2, 0, 1]], rel=1e-3)
    assert np.isfinite(first.standard_errors).all()


def test_free_temperatures_do_not_run_away():
    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 100)
    solution = mh.solve(mh.Problem(CLIFF.mdp, table), mh.MaximumLikelihood(temperature="per_expert"))
    assert solution.status == mh.Status.CONVERGED
    assert np.abs(np.log(solution.temperature)).max() < 1.5


def test_a_whole_number_is_a_temperature_too():
    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 500)
    problem = mh.Problem(CLIFF.mdp, table)
    one, two = (mh.solve(problem, mh.MaximumLikelihood(temperature=t, ridge=0.0)) for t in (1.0, np.int64(2)))
    assert two.temperature == pytest.approx([2.0] * 3)
    assert two.reward - two.reward.mean() == pytest.approx(2 * (one.reward - one.reward.mean()), abs=0.1)


def estimated_problem(seed: int = 0, moves: int = 60) -> mh.Problem:
    mdp = mh.domains.random_mdp(8, 2, branching=3, n_terminal=1, seed=4)
    features = np.random.default_rng(4).normal(size=(8, 2))
    policies = [mh.soft_plan(mdp, features @ [1.0, -1.0], gamma).policy for gamma in (0.3, 0.8)]
    table = mh.Demonstrations.simulate(mdp, policies, moves, seed=seed)
    guess = mh.estimate_mdp(table)
    own = features[[int(name) for name in guess.state_names]]
    return mh.Problem(guess, table, arrival_features=own)


@pytest.fixture(scope="module")
def estimated() -> mh.Solution:
    """A solution with transitions estimated from few moves."""
    return mh.solve(estimated_problem(), mh.MaximumLikelihood(temperature="shared"))


def test_the_error_of_estimated_transitions_is_somewhat_less_than_redrawing_them_gives():
    """Estimates with rows drawn anew and held vary more: the decisions, too, say where moves lead."""
    point = resume(mh.solve(estimated_problem(moves=3000), mh.MaximumLikelihood(temperature="shared")))
    model, errors = point.likelihood, precision(point).standard_errors
    given = errors / transition_widening(point, precision(point))
    rng, found = np.random.default_rng(0), []
    for _ in range(100):
        drawn = Likelihood(
            model.problem.in_tasks(lambda mdp: redrawn(mdp, rng)), replace(model.settings, moves=False), ridge=model.ridge
        )
        found.append(drawn.discounts(climb(drawn.at(point.x[: drawn.size]), gain=1e-4).point.x))
    added = np.sqrt(errors**2 - given**2)[model.discount_slice]
    assert (0.6 * np.std(found, axis=0) < added).all()
    assert (added < 1.1 * np.std(found, axis=0)).all()


def test_estimated_transitions_widen_intervals_and_known_ones_do_not(estimated):
    assert (np.array(estimated.evidence["transition_widening"]) > 1.05).all()
    known = mh.solve(
        mh.Problem(CLIFF.mdp, mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 300)),
        mh.MaximumLikelihood(1.0, starts=1),
    )
    assert known.evidence["transition_widening"] == [1.0, 1.0, 1.0]


def test_estimated_transitions_widen_contrasts_of_rewards_too(estimated):
    """Weights of features are contrasts already, so their errors are those of the solution."""
    point = resume(estimated)
    found = reward_contrasts(point)
    assert found.values == pytest.approx(estimated.reward)
    assert found.standard_errors == pytest.approx(estimated.evidence["reward_standard_errors"])
    assert (transition_widening(point, precision(point))[:2] > 1.05).all()


def test_transitions_give_way_to_decisions_and_their_gradient_is_exact():
    problem = estimated_problem()
    model = Likelihood(problem, Settings(moves=True))
    rng = np.random.default_rng(0)
    x = model.pack(np.array([1.0, -1.0]), np.array([0.3, 0.8]), beside=0.3 * rng.normal(size=model.moves[0].size))
    point, step = model.at(x), 1e-5 * rng.normal(size=x.size)
    change = (model.at(x + step).objective - model.at(x - step).objective) / 2
    assert change == pytest.approx(point.gradient @ step, rel=1e-6)
    assert point.information_product(step) == pytest.approx(point.information @ step, abs=1e-12)
    assert point.plans[0].persons.mdp.stacked.sum(axis=1) == pytest.approx(problem.mdp.stacked.sum(axis=1))


def test_one_discount_is_tested_by_the_likelihood_of_the_decisions_not_by_a_penalised_maximum(unequal):
    """With temperatures that differ, a test with a known spread in which temperatures are integrated out."""
    solution = unequal
    spread, point = solution.evidence["temperature_spread"], resume(solution)
    assert spread > 0
    test = mh.shared_discount_test(solution)
    assert test.p_value > 0.01
    shared = climb(point.likelihood.sharing((0, 0, 0)).at(np.concatenate([point.x[:12], [0.6], point.x[15:]]))).point
    loss = log_likelihood_given(point, spread) - log_likelihood_given(shared, spread)
    assert test.statistic == pytest.approx(2 * loss, abs=0.01)
    assert test.statistic != pytest.approx(2 * (point.objective - shared.objective), abs=0.01)


def test_a_saved_solution_keeps_the_transitions_that_were_fitted(estimated, tmp_path):
    problem, solution = estimated_problem(), estimated
    assert np.abs(solution.require_problem().mdp.stacked - problem.mdp.stacked).max() > 1e-4
    solution.to_json(tmp_path / "s.json")
    again = mh.Solution.from_json(tmp_path / "s.json", problem=problem)
    assert np.array(again.policies()) == pytest.approx(np.array(solution.policies()), abs=1e-12)
    assert resume(again).objective == pytest.approx(resume(solution).objective, abs=1e-8)
    assert resume(solution).objective > resume(solution).likelihood.held().at(resume(solution).x[:6]).objective


@pytest.mark.slow
def test_equal_temperatures_are_not_given_up_for_a_discount_that_rests_on_its_bound():
    """One in five such tables was once given different temperatures, though free ones fit no better."""
    cliff = mh.domains.cliff()
    policies = [mh.soft_plan(cliff.mdp, cliff.reward, gamma).policy for gamma in (0.3, 0.5, 0.8)]
    for seed in (5, 6, 7):
        table = mh.Demonstrations.simulate(cliff.mdp, policies, 100, seed=seed)
        solution = mh.solve(mh.Problem(mh.estimate_mdp(table), table), mh.MaximumLikelihood())
        assert solution.evidence["equal_temperatures_p"] > 0.05


def test_more_rewards_than_can_be_estimated_are_refused_at_once():
    states = 20_001
    ahead = sp.csr_array((np.ones(states), (np.arange(states), np.minimum(np.arange(states) + 1, states - 1))))
    mdp = mh.MDP([ahead, sp.eye_array(states, format="csr")], terminal=[states - 1])
    rows = pd.DataFrame({"expert": "a", "episode": 0, "step": [0, 1], "state": [0, 1], "action": 0})
    with pytest.raises(ValueError, match=r"a reward for each of 20,001 states is more than can be estimated .* features"):
        mh.solve(mh.Problem(mdp, mh.Demonstrations.from_frame(rows)), mh.MaximumLikelihood())


@pytest.mark.slow
def test_a_start_that_fails_is_left_out(monkeypatch):
    def fails(*_: object) -> None:
        raise ValueError("no such start")

    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 300)
    monkeypatch.setattr("multihorizon.likelihood.search.closed_form_start", fails)
    assert mh.solve(mh.Problem(CLIFF.mdp, table), mh.MaximumLikelihood()).status == mh.Status.CONVERGED


@pytest.mark.slow
def test_rows_of_few_moves_do_not_follow_the_decisions_that_train_a_check():
    """Decisions of exactly the model were once predicted worse than if nobody looked ahead, by 18 in log-likelihood."""
    mdp, features = mh.domains.random_mdp(20, 3, branching=8, n_terminal=1, seed=4), np.random.default_rng(0).normal(size=(60, 2))
    reward = (features @ [1.0, -1.0]).reshape(3, 20).T
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.3, 0.8)]
    table = mh.Demonstrations.simulate(mdp, policies, 25, seed=0, max_steps=12)
    guess = mh.estimate_mdp(table)
    places = np.ix_([int(name) for name in guess.action_names], [int(name) for name in guess.state_names])
    problem = mh.Problem(guess, table, features=features.reshape(3, 20, 2)[places].reshape(-1, 2))
    checks = mh.check_model(mh.solve(problem, mh.MaximumLikelihood("shared", starts=1)), table)
    model, nobody = (float(checks.held_out[name] @ checks.decisions) for name in ("this model", "discount 0"))
    assert model > nobody - 3
