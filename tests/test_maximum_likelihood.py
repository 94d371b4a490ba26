"""Estimates against planted answers, symmetry, and the verdict on identifiability."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.search import climb


def simulated(domain, episodes=1000, seed=0, **options) -> mh.Problem:
    return mh.Problem(domain.mdp, mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes, seed=seed), **options)


def expected(problem: mh.Problem, policies, decisions: float) -> mh.Problem:
    """The problem with each count replaced by what `decisions` in every state are expected to give."""
    return problem.with_experts(
        replace(expert, counts=np.where(expert.mdp.terminal[:, None], 0.0, decisions * policy))
        for expert, policy in zip(problem.experts, policies, strict=True)
    )


@pytest.fixture(scope="module")
def cliff_solution() -> mh.Solution:
    return mh.solve(simulated(mh.domains.cliff()), mh.MaximumLikelihood())


@pytest.mark.parametrize("name", ["cliff", "big_small"])
def test_expected_counts_give_back_the_truth(name):
    d = getattr(mh.domains, name)()
    solution = mh.solve(expected(simulated(d, 10), d.soft_experts(), 1e4), mh.MaximumLikelihood())
    assert solution.status == mh.Status.CONVERGED
    assert solution.discounts == pytest.approx(d.soft_discounts, abs=1e-3)
    assert solution.reward == pytest.approx(d.reward, abs=0.05)


def test_estimate_is_a_maximum(cliff_solution):
    assert cliff_solution.status == mh.Status.CONVERGED
    assert cliff_solution.residual < 1e-5
    point = resume(cliff_solution)
    assert point.value == pytest.approx(cliff_solution.objective)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = np.clip(point.x + 0.05 * rng.normal(size=point.x.size), point.likelihood.lower, point.likelihood.upper)
        assert point.likelihood.at(x).value < point.value


def test_swapping_experts_swaps_discounts(cliff_solution):
    problem = cliff_solution.problem
    swapped = mh.solve(mh.Problem(problem.mdp, problem.experts[::-1]), mh.MaximumLikelihood())
    assert swapped.discounts == pytest.approx(cliff_solution.discounts[::-1], abs=1e-3)
    assert swapped.objective == pytest.approx(cliff_solution.objective, abs=1e-4)


def test_same_seed_same_answer(cliff_solution):
    again = mh.solve(cliff_solution.problem, mh.MaximumLikelihood())
    assert (again.discounts == cliff_solution.discounts).all()


def test_temperature_scales_the_reward_only(cliff_solution):
    warm = mh.solve(cliff_solution.problem, mh.MaximumLikelihood(temperature=2.5, starts=2))
    assert warm.discounts == pytest.approx(cliff_solution.discounts, abs=1e-3)
    assert warm.reward == pytest.approx(2.5 * cliff_solution.reward, abs=0.2)
    assert warm.policies()[1] == pytest.approx(cliff_solution.policies()[1], abs=1e-3)


def test_per_expert_temperatures_are_found():
    d = mh.domains.big_small()
    temperatures = (1.0, 2.0, 3.0)
    policies = [mh.soft_plan(d.mdp, d.reward, g, t).policy for g, t in zip(d.soft_discounts, temperatures, strict=True)]
    solution = mh.solve(expected(simulated(d, 10), policies, 1e4), mh.MaximumLikelihood(temperature="per_expert"))
    assert solution.status == mh.Status.CONVERGED
    assert solution.temperature == pytest.approx(np.array(temperatures) / 6 ** (1 / 3), rel=0.01)
    assert solution.discounts == pytest.approx(d.soft_discounts, abs=0.01)


def test_features_tie_the_reward():
    d = mh.domains.cliff()
    ties = np.stack([d.reward == value for value in (-10, -2, -1, 20)], axis=1) / 1.0
    names = ["cliff", "edge", "path", "goal"]
    solution = mh.solve(simulated(d, 300, features=d.mdp.stacked @ ties, feature_names=names), mh.MaximumLikelihood(starts=2))
    assert solution.status == mh.Status.CONVERGED
    assert solution.reward.shape == (4,)
    assert (np.abs(solution.discounts - d.soft_discounts) < 4 * np.maximum(solution.standard_errors, 0.02)).all()


def toy_problem(mdp: mh.MDP, episodes: int, seed: int) -> mh.Problem:
    d = mh.domains.toy()
    policies = [mh.soft_plan(mdp, d.reward, gamma).policy for gamma in (0.3, 0.8)]
    return mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, episodes, seed=seed, names=["near", "far"]))


def test_two_toy_experts_are_not_identified_until_a_second_task_joins():
    d = mh.domains.toy()
    alone = toy_problem(d.mdp, 3000, 0)
    solution = mh.solve(alone, mh.MaximumLikelihood(starts=2))
    assert solution.status == mh.Status.NOT_IDENTIFIED
    assert np.isnan(solution.standard_errors).all()
    assert np.isnan(solution.confidence_intervals(0.95)).all()
    assert "not identified" in solution.message
    both = mh.Problem.join(alone, toy_problem(d.tasks(1, seed=0)[0].mdp, 3000, 1))
    joined = mh.solve(both, mh.MaximumLikelihood())
    assert joined.status == mh.Status.CONVERGED
    low, high = joined.confidence_intervals(0.99).T
    assert ((low <= [0.3, 0.8]) & (high >= [0.3, 0.8])).all()
    assert (high - low < 0.5).all()


def test_absorbing_ends_leave_only_the_rewards_level_open():
    d = mh.domains.cliff(ending="absorbing")
    problem = expected(simulated(d, 10), d.soft_experts(), 1e4)
    solution = mh.solve(problem, mh.MaximumLikelihood(starts=2))
    assert solution.status == mh.Status.CONVERGED
    assert solution.evidence["unidentified_directions"] == 1
    assert solution.discounts == pytest.approx(d.soft_discounts, abs=1e-2)
    assert solution.reward - solution.reward.mean() == pytest.approx(d.reward - d.reward.mean(), abs=0.2)


def test_reward_that_nobody_could_earn_is_held_by_a_ridge():
    transitions = np.zeros((2, 4, 4))
    transitions[0, 0, 1] = transitions[1, 0, 2] = transitions[:, 1, 2] = transitions[:, 3, 2] = 1.0
    mdp = mh.MDP(transitions, initial=[1, 0, 0, 0], terminal=[2], state_names=["start", "way", "end", "moon"])
    table = mh.Demonstrations.simulate(mdp, [np.full((4, 2), 0.5)], 100)
    solution = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood(starts=1))
    assert solution.evidence["ridge"] == 1e-4
    assert "start, moon" in solution.message


def test_flat_start_is_climbed_to_the_same_place(cliff_solution):
    """From the zero reward and equal discounts the climb ends where the chosen starts end."""
    model = resume(cliff_solution).likelihood
    end = climb(model.at(model.pack(np.zeros(12), np.full(3, 0.3))))
    assert end.point.value == pytest.approx(cliff_solution.objective, abs=1e-3)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"temperature": -1.0}, "temperature must be a positive number"),
        ({"temperature": "cold"}, "temperature must be a positive number, a mapping .* or one of shared, pooled, per_expert"),
        ({"temperature": {"ann": 0.0}}, "temperature of ann must be a positive number"),
        ({"discounts": 1.5}, r"discount must be in \[0, 1\]"),
        ({"discounts": {"ann": -0.1}}, r"discount of ann must be in \[0, 1\]"),
        ({"ridge": -1.0}, "ridge must be a number of at least 0"),
        ({"starts": 0}, "starts must be a whole number"),
    ],
)
def test_bad_options_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        mh.MaximumLikelihood(**options)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 89])
def test_answers_at_discount_one_can_be_planned_again(seed):
    """Two experts alike leave rewards open, and the climb may end at discount 1, where soft values are barely finite."""
    d = mh.domains.big_small()
    policy = mh.soft_plan(d.mdp, d.reward, 0.4).policy
    problem = mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, [policy, policy], 500, seed=seed))
    solution = mh.solve(problem, mh.MaximumLikelihood())
    assert resume(solution).value == pytest.approx(solution.objective, abs=1e-3)
    assert np.isfinite(solution.policies()).all()


def test_bent_ridges_are_climbed_in_few_steps():
    """Reward and discount nearly trade off in this pair of tasks; straight steps need more than 300."""
    d = mh.domains.toy()
    both = mh.Problem.join(toy_problem(d.mdp, 3000, 0), toy_problem(d.tasks(1, seed=2)[0].mdp, 3000, 1))
    model = Likelihood(both)
    end = climb(model.at(model.pack(d.reward, np.array([0.3, 0.8]))))
    assert end.finished
    assert end.steps < 100


def test_a_climb_ends_on_a_bound_where_the_digits_of_the_likelihood_end() -> None:
    """Two goals taken for one push a discount to 1; what pushes it further outwards is nothing left to gain."""
    mdp = mh.domains.gridworld(4, 5, slip=0.1, terminal=[(0, 4), (3, 4)])
    up, down = np.full((2, 20), -0.2)
    up[4], up[19], down[4], down[19] = 6.0, 0.5, 0.5, 6.0
    policies = [mh.soft_plan(mdp, *walker).policy for walker in ((up, 0.4), (down, 0.9), (up, 0.95), (down, 0.6))]
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 200))
    found = mh.solve(problem, mh.MaximumLikelihood("shared"))
    assert found.status == mh.Status.CONVERGED
    assert found.discounts[2] == 1
    assert found.residual < 1e-8
