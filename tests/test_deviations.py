"""Goals that are nearly shared: the marginal likelihood, its derivatives, the spread of deviations, and what the answer says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

import multihorizon as mh
from multihorizon.checks import Floats
from multihorizon.choice.deviations import NearlyShared
from multihorizon.choice.model import Likelihood, temperature_penalty
from multihorizon.choice.settings import Settings
from multihorizon.likelihood.estimates import LikelihoodEvidence
from multihorizon.likelihood.intervals import precision
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.random_effects import choices_moved, restricted
from multihorizon.mdp import MDP
from multihorizon.solution import Deviations

GAMMAS = (0.3, 0.5, 0.8)
ESTIMATED = mh.MaximumLikelihood(deviations="estimated", temperature="shared", starts=2)


def study(sd: float, episodes: int = 200, seed: int = 0, names: tuple[str, ...] = ("a", "b", "c")) -> mh.Problem:
    """Three experts of big-small whose rewards deviate from the domain's with this standard deviation."""
    d, rng = mh.domains.big_small(), np.random.default_rng(seed)
    rewards = [np.asarray(d.reward) + sd * rng.standard_normal(d.mdp.n_states) for _ in GAMMAS]
    policies = [mh.soft_plan(d.mdp, reward, gamma).policy for reward, gamma in zip(rewards, GAMMAS, strict=True)]
    return mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, policies, episodes=episodes, seed=seed, names=names))


def deviations(solution: mh.Solution) -> Deviations:
    found = LikelihoodEvidence.of(solution).deviations
    assert found is not None
    return found


def with_features(problem: mh.Problem, features: Floats) -> mh.Problem:
    """The same decisions where a few features of pairs pay."""
    matrix = sp.csr_array(features)
    names = tuple(f"f{j}" for j in range(matrix.shape[1]))
    return problem.with_experts((replace(expert, features=matrix) for expert in problem.experts), names)


def nearly(problem: mh.Problem, spread: float, moves: bool = False, ridge: float = 0.01) -> NearlyShared:
    model = Likelihood(problem, Settings(temperatures=np.full(problem.n_experts, np.nan), moves=moves))
    return NearlyShared.of(model.holding(temperature_penalty(model), ridge), spread)


@pytest.mark.parametrize("moves", [False, True])
def test_the_gradient_is_that_of_the_value(moves: bool) -> None:
    d = mh.domains.cliff()
    old, reward = d.mdp, np.asarray(d.reward)
    problem = mh.Problem(old, mh.Demonstrations.simulate(old, d.soft_experts(), episodes=100))
    if moves:  # transitions that were estimated give way
        sizes = np.full(old.n_actions * old.n_states, 40.0)
        parts = [old.stacked[a * old.n_states : (a + 1) * old.n_states] for a in range(old.n_actions)]
        counted = MDP(parts, old.initial, old.terminal, old.available, sample_sizes=sizes)
        problem = problem.in_tasks(lambda _: counted)
    model = nearly(problem, 0.5, moves)
    x = model.pack(reward, np.array([0.4, 0.5, 0.7]), np.array([0.9, 1.0, 1.2]))
    assert bool(model.n_transitions) == moves
    x[model.transition_slice] = np.random.default_rng(2).normal(0, 0.05, model.n_transitions)
    point, rng = model.at(x), np.random.default_rng(1)
    assert point is not None
    for _ in range(4):
        along = np.where(model.fixed, 0.0, rng.normal(size=model.size))
        ahead, behind = (model.at(x + sign * 1e-4 * along, point) for sign in (1, -1))
        assert ahead is not None
        assert behind is not None
        assert (ahead.objective - behind.objective) / 2e-4 == pytest.approx(point.gradient @ along, rel=1e-4, abs=1e-3)


def test_the_value_is_the_integral_over_deviations() -> None:
    """One feature: Laplace's method against a fine grid of deviations."""
    mdp, spread = mh.domains.big_small().mdp, 0.3
    pairs = np.random.default_rng(3).normal(size=(mdp.stacked.shape[0], 1))
    policies = [
        mh.soft_plan(mdp, w * pairs.reshape(mdp.n_actions, -1).T, g).policy for w, g in zip((0.8, 1.1, 1.4), GAMMAS, strict=True)
    ]
    problem = with_features(mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, episodes=5, max_steps=20)), pairs)
    plain = Likelihood(problem, Settings())
    model, x = NearlyShared.of(plain, spread), plain.pack(np.array([1.0]), np.array(GAMMAS))
    grid = np.linspace(-8, 8, 401) * spread / plain.feature_sizes[0]
    total = np.zeros((grid.size, 3))
    for i, delta in enumerate(grid):
        moved = x.copy()
        moved[0] += delta
        total[i] = plain.person_values(plain.at(moved))
    prior = -0.5 * (grid * plain.feature_sizes[0] / spread) ** 2
    exact = logsumexp(total + (prior - logsumexp(prior))[:, None], axis=0).sum()
    assert model.at(x).value == pytest.approx(exact, abs=0.02)
    assert abs(exact - plain.at(x).value) > 0.1  # so that the test could fail


def test_small_deviations_are_none_and_large_ones_leave_each_alone() -> None:
    problem = study(0.3)
    shared = mh.solve(problem, replace(ESTIMATED, deviations=0.0))
    tiny = mh.solve(problem, replace(ESTIMATED, deviations=1e-5))
    assert tiny.objective == pytest.approx(shared.objective, abs=1e-5)
    np.testing.assert_allclose(tiny.discounts, shared.discounts, atol=1e-5)
    errors = []
    for spread in (0.1, 1.0, 10.0, 1000.0):
        model = nearly(problem, spread)
        x = model.pack(np.asarray(mh.domains.big_small().reward), np.array(GAMMAS))
        errors.append(np.sqrt(precision(model.at(x)).variance[model.discount_slice]))
    assert (np.diff(errors, axis=0) > 0).all()  # the more rewards may differ, the less is known of discounts
    assert (errors[-1] > 1).all()


def test_discounts_are_open_where_deviations_may_be_anything() -> None:
    given = mh.MaximumLikelihood(known_reward=mh.domains.big_small().reward, temperature=1.0, deviations=30.0)
    solution = mh.solve(study(0.3), given)
    assert "not identified" in solution.message
    assert solution.status == "not identified"
    assert np.isnan(solution.confidence_intervals()).any()
    assert deviations(solution).given


def test_none_are_found_where_there_are_none() -> None:
    problem = study(0.0)
    solution, shared = mh.solve(problem, ESTIMATED), mh.solve(problem, replace(ESTIMATED, deviations=0.0))
    found = deviations(solution)
    assert found.spread == 0
    assert found.p_shared > 0.05
    assert found.interval[0] == 0
    assert found.interval[1] < 0.5
    assert solution.objective == shared.objective
    assert LikelihoodEvidence.of(shared).deviations is None
    np.testing.assert_array_equal(solution.discounts, shared.discounts)
    np.testing.assert_array_equal(solution.personal_rewards, np.tile(shared.reward, (3, 1)))


def test_they_are_found_where_there_are_some(tmp_path: Path) -> None:
    solution = mh.solve(study(0.5, episodes=400, seed=1), ESTIMATED)
    found = deviations(solution)
    assert solution.status == "converged"
    assert solution.residual < 1e-6
    assert found.p_shared < 1e-6
    assert found.interval[0] < 0.5 < found.interval[1]
    assert found.interval[0] < found.spread < found.interval[1]
    assert found.share_of_range[0] == pytest.approx(found.spread / np.ptp(solution.reward))
    assert 1 < found.choices_moved[0] < 30
    assert solution.objective > found.if_shared["log_likelihood"]
    intervals = solution.confidence_intervals()
    assert ((intervals[:, 0] < GAMMAS) & (intervals[:, 1] > GAMMAS)).all()
    assert (np.diff(intervals, axis=1)[:, 0] > 3.9 * found.if_shared["standard_errors"]).all()
    # deviations are far smaller where nothing was seen, and their errors are the prior's
    assert (found.errors <= found.spread * (1 + 1e-9)).all()
    assert np.abs(found.values).max() < 4 * found.spread
    solution.to_json(tmp_path / "solution.json")
    again = mh.Solution.from_json(tmp_path / "solution.json")
    assert deviations(again).spread == found.spread
    point = resume(replace(again, problem=solution.problem))
    assert point.value == pytest.approx(solution.objective, abs=1e-6)
    assert isinstance(point.likelihood, NearlyShared)


@pytest.mark.slow
def test_names_and_order_do_not_matter() -> None:
    problem = study(0.5)
    first = mh.solve(problem, ESTIMATED)
    order = [2, 0, 1]
    again = mh.solve(problem.with_experts([problem.experts[i] for i in order]), ESTIMATED)
    np.testing.assert_allclose(again.discounts, first.discounts[order], atol=1e-5)
    np.testing.assert_allclose(deviations(again).values, deviations(first).values[order], atol=1e-4)
    assert deviations(again).p_shared == pytest.approx(deviations(first).p_shared, rel=1e-3)


def test_units_of_features_do_not_matter() -> None:
    problem = study(0.4, episodes=60)
    mdp = problem.experts[0].mdp
    pairs = np.random.default_rng(3).normal(size=(mdp.stacked.shape[0], 3))
    given = replace(ESTIMATED, deviations=0.4)
    one, other = (mh.solve(with_features(problem, pairs * units), given) for units in (1.0, np.array([100.0, 1.0, 0.01])))
    assert other.objective == pytest.approx(one.objective, abs=1e-5)
    np.testing.assert_allclose(other.discounts, one.discounts, atol=1e-3)


def test_a_known_reward_can_be_deviated_from() -> None:
    solution = mh.solve(study(0.5), mh.MaximumLikelihood(known_reward=mh.domains.big_small().reward, deviations="estimated"))
    found = deviations(solution)
    assert found.p_shared < 0.05
    assert 0.2 < found.spread < 1.0
    np.testing.assert_array_equal(solution.reward, mh.domains.big_small().reward)
    model = Likelihood(study(0.5), Settings(reward=np.asarray(mh.domains.big_small().reward)))
    there = model.at(model.pack(np.asarray(mh.domains.big_small().reward), solution.discounts))
    assert choices_moved(there, found.spread) == pytest.approx(found.choices_moved[0], rel=0.3)
    assert np.abs(solution.discounts - GAMMAS).max() < 0.2


def test_the_restricted_likelihood_is_that_of_a_variance() -> None:
    """With a reward that is known there is nothing to integrate out but discounts."""
    problem = study(0.2)
    model = Likelihood(problem, Settings(discounts=np.array(GAMMAS), reward=np.asarray(mh.domains.big_small().reward)))
    point = model.at(model.known)
    assert restricted(point) == point.objective


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"deviations": -1.0}, "deviations must be"),
        ({"deviations": "some"}, "deviations must be"),
        ({"deviations": np.nan}, "deviations must be"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mh.MaximumLikelihood(**options)  # type: ignore[arg-type]


def test_one_expert_has_nobody_to_deviate_from() -> None:
    problem = study(0.1, episodes=20)
    with pytest.raises(ValueError, match="at least two experts"):
        mh.solve(problem.with_experts(problem.experts[:1]), ESTIMATED)
