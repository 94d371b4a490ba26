"""People one by one, where the reward is known: the same answers as all parameters climbed together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import chi2

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.choice.settings import Settings, read_settings, with_known_reward
from multihorizon.likelihood.intervals import ProfileIntervals
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.separate import PersonsApart, ProfilesApart
from multihorizon.parallel import limited
from multihorizon.problem import Problem


def people_of(n: int = 40, blocks: int = 20, seed: int = 0) -> tuple[Problem, np.ndarray]:
    """Simulated people of the Space Adventure Task, and the points they play for."""
    task = mh.domains.space_adventure(blocks, seed=seed)
    people = task.persons(n, seed=seed, group_difference=0.6, age_slope=0.0)
    return mh.Problem(task.mdp, people.demonstrations), task.reward.T.ravel()


def both_roads(problem: Problem, options: mh.MaximumLikelihood) -> tuple[mh.Solution, mh.Solution]:
    """The solution one by one, and that of all parameters together."""
    apart = mh.solve(problem, options)
    assert isinstance(apart.interval_source, ProfilesApart)
    with limited(joint=problem.n_experts + 1):
        together = mh.solve(problem, options)
    assert isinstance(together.interval_source, ProfileIntervals)
    return apart, together


def assert_same(apart: mh.Solution, together: mh.Solution) -> None:
    """The same answer, and the same said about it."""
    known = np.array(together.evidence["identified"])
    lost = np.array(together.evidence["lost_temperatures"])
    assert apart.objective == pytest.approx(together.objective, abs=1e-8 * known.size)
    assert np.allclose(apart.discounts[known], together.discounts[known], atol=1e-6)
    assert np.allclose(np.log(apart.temperature)[~lost], np.log(together.temperature)[~lost], atol=1e-5)
    assert np.allclose(apart.standard_errors, together.standard_errors, rtol=1e-5, atol=1e-7, equal_nan=True)
    assert apart.status == together.status
    assert apart.message.split("gradient")[0] == together.message.split("gradient")[0]
    assert apart.message.split("per decision.")[1] == together.message.split("per decision.")[1]
    assert apart.residual < 1e-8
    for name in ("identified", "known", "unidentified_directions", "lost_temperatures", "decisions", "reward_standard_errors"):
        assert apart.evidence[name] == together.evidence[name], name
    # whether episodes are independent is asked of all together only
    assert set(together.evidence) - set(apart.evidence) <= {"independence"}


def test_both_roads_agree():
    problem, points = people_of()
    apart, together = both_roads(problem, mh.MaximumLikelihood("per_expert", known_reward=points))
    assert_same(apart, together)
    assert ((apart.discounts == 0) | (apart.discounts == 1)).any()  # some people are on a bound


def test_both_roads_agree_on_temperatures_and_discounts_that_are_known():
    problem, points = people_of(12)
    names = problem.names
    known = {"temperature": dict.fromkeys(names[:5], 20.0), "discounts": dict.fromkeys(names[3:9], 0.7)}
    for options in (mh.MaximumLikelihood(25.0, known_reward=points), mh.MaximumLikelihood(**known, known_reward=points)):
        apart, together = both_roads(problem, options)
        assert_same(apart, together)
        if options.discounts is not None:
            assert (apart.confidence_intervals()[4:9] == 0.7).all()


def test_both_roads_agree_where_states_come_again():
    """On the cliff some people choose at random, so that neither their discount nor their temperature is known."""
    d, rng = mh.domains.cliff(), np.random.default_rng(0)
    persons = np.stack([rng.uniform(0.2, 0.9, 38), rng.uniform(1, 4, 38)], axis=1)
    policies = [mh.soft_plan(d.mdp, d.reward, *person).policy for person in persons.tolist()]
    policies += [d.mdp.available / d.mdp.available.sum(axis=1, keepdims=True)] * 2
    problem = mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, policies, 20, max_steps=30, seed=1))
    apart, together = both_roads(problem, mh.MaximumLikelihood("per_expert", known_reward=d.reward))
    # where they differ, each person's own maximum is the likelier one
    assert apart.objective >= together.objective - 1e-7
    assert (np.abs(apart.discounts - together.discounts) < 1e-6).mean() > 0.9
    assert np.array_equal(apart.evidence["lost_temperatures"], together.evidence["lost_temperatures"])


def brute(problem: Problem, points: np.ndarray, k: int, gamma: float) -> float:
    """The log-likelihood of one person at a discount, with the most likely temperature."""
    paid, reward = with_known_reward(problem.with_experts([problem.experts[k]]), points)
    model = Likelihood(paid, read_settings(paid, "per_expert", None, None, reward))

    def negative(log_temperature: float) -> float:
        point = model.at(np.array([gamma, log_temperature]))
        return np.inf if point is None else -point.value

    found = [minimize_scalar(negative, bounds=(low, low + 2.5), options={"xatol": 1e-9}) for low in (-5.0, -2.5, 0.0, 2.5)]
    return -min(float(each.fun) for each in found)


def test_profile_ends_are_where_brute_force_meets_the_threshold():
    problem, points = people_of()
    solution = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=points))
    target = chi2.ppf(0.95, 1) / 2
    for k, (low, high) in list(enumerate(solution.confidence_intervals(0.95)))[:6]:
        top = brute(problem, points, k, float(solution.discounts[k]))
        for end in (low, high):
            lost = top - brute(problem, points, k, float(end))
            assert lost == pytest.approx(target, abs=1e-4) or (end in (0.0, 1.0) and lost < target)


def test_intervals_of_both_roads_agree():
    """All together, ends are found to a hundredth of the root of a deviance, which is what they differ by."""
    problem, points = people_of(16)
    apart, together = both_roads(problem, mh.MaximumLikelihood("per_expert", known_reward=points))
    found, other = apart.confidence_intervals(0.9), together.confidence_intervals(0.9)
    width = np.maximum(found[:, 1] - found[:, 0], 1e-3)[:, None]
    assert not np.isnan(found).any()
    assert (np.abs(found - other) / width).max() < 0.01
    assert (np.abs(found - other) < 1e-2).all()


def test_questions_go_on_from_the_answer():
    problem, points = people_of()
    solution = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=points))
    assert resume(solution).value == pytest.approx(solution.objective, abs=1e-8)
    assert resume(solution).projected_gradient() < 1e-8


def test_neither_the_order_of_persons_nor_who_else_is_there_matters():
    problem, points = people_of(60)
    options = mh.MaximumLikelihood("per_expert", known_reward=points)
    everyone = mh.solve(problem, options)
    who = np.random.default_rng(0).permutation(60)[:45]
    some = mh.solve(problem.with_experts(problem.experts[i] for i in who), options)
    assert np.allclose(some.discounts, everyone.discounts[who], atol=1e-6)
    assert np.allclose(some.confidence_intervals(0.9), everyone.confidence_intervals(0.9)[who], atol=1e-5)


def test_infinite_values_are_no_obstacle():
    """Where a walk need not end, whoever hardly cares where it goes has infinite values at a discount of 1."""
    mdp = mh.domains.gridworld(3, 4, slip=0.1, terminal=[(2, 3)])
    reward = np.where(np.arange(12) == 11, 5.0, -0.2)
    rng = np.random.default_rng(0)
    persons = np.stack([rng.uniform(0.5, 0.99, 20), rng.uniform(0.3, 1, 20)], axis=1)
    policies = [mh.soft_plan(mdp, reward, *person).policy for person in persons.tolist()]
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 10, max_steps=40, seed=0))
    solution = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=reward))
    known = np.array(solution.evidence["identified"])
    assert solution.status in (mh.Status.CONVERGED, mh.Status.NOT_IDENTIFIED)
    assert known.mean() > 0.8
    intervals = solution.confidence_intervals()[known]
    assert (intervals[:, 0] <= solution.discounts[known] + 1e-9).all()
    assert (intervals[:, 1] >= solution.discounts[known] - 1e-9).all()


def test_few_people_have_the_answers_that_they_have_among_many():
    problem, points = people_of()
    options = mh.MaximumLikelihood("per_expert", known_reward=points)
    one_by_one, few = mh.solve(problem, options), mh.solve(problem.some(np.arange(3)), options)
    assert few.experts == problem.names[:3]
    assert np.allclose(few.discounts, one_by_one.discounts[:3], atol=1e-6)


def test_persons_of_several_tasks_have_one_discount():
    first, points = people_of(blocks=10)
    second, others = people_of(blocks=10, seed=1)
    known = [with_known_reward(problem, paid)[0] for problem, paid in ((first, points), (second, others))]
    problem = Problem._of([*known[0].experts, *known[1].experts[:20]], ())
    settings = Settings(temperatures=np.full(40, np.nan), reward=np.zeros(0))
    found = PersonsApart(problem, settings).fit()
    point = Likelihood(problem, settings).at(found.places.T.ravel())
    assert found.finished.all()
    assert np.allclose(point.likelihood.person_values(point), found.here.value, atol=1e-9)
    assert point.projected_gradient() < 1e-8
    assert np.allclose(np.diag(point.information), found.here.curvature[:, [0, 1], [0, 1]].T.ravel())


def test_whoever_always_takes_the_best_action_has_no_temperature():
    """The likelihood is 1 over a whole region: all is found that can be, and neither number is identified."""
    task = mh.domains.space_adventure(20, seed=0)
    best = mh.plan(task.mdp, task.reward, 0.97).policy
    noisy = [mh.soft_plan(task.mdp, task.reward, 0.9, 20.0).policy] * 9
    table = mh.Demonstrations.simulate(task.mdp, [best, *noisy], 40, seed=0)
    apart = mh.solve(mh.Problem(task.mdp, table), mh.MaximumLikelihood("per_expert", known_reward=task.reward))
    assert apart.status == mh.Status.NOT_IDENTIFIED
    assert apart.evidence["identified"] == [False] + 9 * [True]
    assert "unconverged" not in apart.message
    assert np.isfinite(apart.confidence_intervals()[1:]).all()


def corridor(length: int = 9) -> tuple[mh.MDP, np.ndarray]:
    """A slippery corridor between a near, small and a far, large end, and what arriving in each state pays."""
    moves = np.zeros((3, length, length))
    for place in range(1, length - 1):
        for action, step in enumerate((-1, 1, 0)):
            moves[action, place, place + step] += 0.8
            moves[action, place, place - 1] += 0.1
            moves[action, place, place + 1] += 0.1
    initial = np.zeros(length)
    initial[2:5] = 1 / 3
    reward = np.full(length, -0.1)
    reward[[0, -1]] = 2.0, 6.0
    return mh.MDP(moves, initial=initial, terminal=[0, length - 1]), reward


@pytest.fixture(scope="module")
def wide() -> tuple[mh.Problem, np.ndarray]:
    """Forty people of whom some hardly ever err and some nearly choose by lot; the first always takes the best action."""
    mdp, reward = corridor()
    rng = np.random.default_rng(3)
    persons = np.stack([1 / (1 + np.exp(-rng.normal(1.2, 1.0, 40))), np.exp(rng.normal(-0.7, 1.2, 40))], axis=1)
    policies = [mh.soft_plan(mdp, reward, *person).policy for person in persons.tolist()]
    policies[0] = mh.plan(mdp, reward, 0.8).policy
    policies[1] = mdp.available / mdp.available.sum(axis=1, keepdims=True)
    return mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 6, max_steps=40, seed=1)), reward


def test_the_unit_of_the_points_does_not_matter(wide):
    problem, reward = wide
    usual, *others = (mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=f * reward)) for f in (1.0, 0.01, 100.0))
    assert sum(usual.evidence["identified"]) > 25
    for factor, found in zip((0.01, 100.0), others, strict=True):
        assert found.evidence["reasons"] == usual.evidence["reasons"]
        given = np.array(usual.evidence["identified"])
        assert np.allclose(found.discounts[given], usual.discounts[given], atol=1e-5)
        assert np.allclose(found.temperature[given], factor * usual.temperature[given], rtol=1e-4)
        assert np.allclose(found.confidence_intervals(), usual.confidence_intervals(), atol=1e-4, equal_nan=True)


def test_whoever_always_takes_the_best_action_has_a_range_of_discounts(wide):
    problem, reward = wide
    found = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=reward))
    assert found.evidence["reasons"][0] == "always the best action"
    assert found.evidence["lost_temperatures"][0]
    assert np.isnan(found.standard_errors[0])
    low, high = found.confidence_intervals()[0]
    assert low < 0.8 < high
    # inside, the actions taken are the best ones; a little outside they are not
    taken = np.asarray(problem.experts[0].counts)
    mdp = problem.experts[0].mdp

    def all_best(gamma: float) -> bool:
        return bool((taken <= 1e9 * mh.plan(mdp, reward, gamma).optimal_actions).all())

    assert all_best(0.5 * (low + high))
    assert low < 0.01 or not all_best(low - 0.02)
    assert high > 0.99 or not all_best(high + 0.02)


def test_whoever_chooses_by_lot_is_named_and_takes_no_one_along(wide):
    problem, reward = wide
    found = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=reward))
    assert found.evidence["lost_temperatures"][1] or found.standard_errors[1] > 0.1
    others = mh.solve(problem.with_experts(problem.experts[2:]), mh.MaximumLikelihood("per_expert", known_reward=reward))
    assert np.array_equal(found.evidence["reasons"][2:], others.evidence["reasons"])
    assert np.allclose(found.confidence_intervals()[2:], others.confidence_intervals(), atol=1e-6, equal_nan=True)


def test_a_climb_that_breaks_takes_nobody_along(wide, monkeypatch):
    problem, reward = wide
    options = mh.MaximumLikelihood("per_expert", known_reward=reward)
    whole = mh.solve(problem, options)
    real = PersonsApart.fit

    def broken(self, *how):
        fit = real(self, *how)
        fit.finished[[4, 7]] = False
        return fit

    monkeypatch.setattr(PersonsApart, "fit", broken)
    found = mh.solve(problem, options)
    assert [found.evidence["reasons"][k] for k in (4, 7)] == ["the search did not end"] * 2
    assert np.isnan(found.standard_errors[[4, 7]]).all()
    assert np.isnan(found.confidence_intervals()[[4, 7]]).all()
    assert found.status != mh.Status.NOT_CONVERGED
    rest = np.setdiff1d(np.arange(40), [4, 7])
    assert np.array_equal(found.standard_errors[rest], whole.standard_errors[rest], equal_nan=True)
    assert np.array_equal(found.confidence_intervals()[rest], whole.confidence_intervals()[rest], equal_nan=True)


def test_an_interval_reaches_across_places_that_are_less_likely():
    """Every end is where the likelihood, maximised over the temperature on a fine grid, leaves the interval for good."""
    mdp, reward = corridor()
    rng = np.random.default_rng(5)
    persons = np.stack([rng.uniform(0.3, 0.98, 40), np.exp(rng.normal(-0.5, 1.2, 40))], axis=1)
    policies = [mh.soft_plan(mdp, reward, *person).policy for person in persons.tolist()]
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 3, max_steps=40, seed=2))
    found = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=reward))
    source, ends = found.interval_source, found.confidence_intervals()
    whole = np.isfinite(ends).all(axis=1)
    assert whole.sum() > 25
    grid = np.linspace(0.02, 0.98, 25)
    logs = np.linspace(source.lower[0, 1], source.upper[0, 1], 113)
    likely = source.tables.exact(np.array([(np.log(g / (1 - g)), v) for g in grid for v in logs]))
    profile = (source.counts @ likely).reshape(40, 25, 113).max(axis=2)
    inside = source.here.value[:, None] - profile <= 0.5 * chi2.ppf(0.95, 1) - 0.02
    for k in np.flatnonzero(whole):
        assert (np.clip(grid[inside[k]], *ends[k]) == grid[inside[k]]).all(), k
