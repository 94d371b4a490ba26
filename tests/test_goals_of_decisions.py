"""Who shares a goal with whom, from decisions: right groups, honest doubt, and scores that count what decisions determine."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.likelihood.search import climb
from multihorizon.numerics.newton import resting
from multihorizon.parallel import Run, limited
from multihorizon.questions.goals import Goals, Scores, parabolas, sharing_probabilities, weigh_partitions
from multihorizon.questions.sharing import _climbed_gains, _common_step, _drawn, _fit_with_one_reward, shared_goal_test

MDP = mh.domains.random_mdp(6, 3, seed=0)
REWARDS = 2 * np.random.default_rng(0).normal(size=(2, 6))
DISCOUNTS = (0.2, 0.9, 0.6, 0.4)


def policies(goals, temperatures=(1.0, 1.0, 1.0, 1.0)):
    told = zip(goals, DISCOUNTS, temperatures, strict=False)
    return [mh.soft_plan(MDP, REWARDS[g], gamma, lam).policy for g, gamma, lam in told]


def decided(goals, decisions, seed=0, names=None, temperatures=(1.0, 1.0, 1.0, 1.0)):
    """A problem in which each expert made so many decisions."""
    acted = policies(goals, temperatures)
    return mh.Problem(MDP, mh.Demonstrations.simulate(MDP, acted, 1, max_steps=decisions, seed=seed, names=names))


@pytest.fixture(scope="module")
def two() -> Goals[mh.Solution]:
    """Four experts with two goals."""
    return mh.goals(decided([0, 1, 0, 1], 5000))


@pytest.mark.slow
def test_two_goals_are_distinguished(two):
    found = two
    assert found.groups == (("0", "2"), ("1", "3"))
    assert found.verdict == "differ"
    assert found.test.p_value == 0.001  # the smallest that 999 simulations can give
    assert not found.undecided
    np.testing.assert_allclose(found.memberships, [[1, 0], [0, 1], [1, 0], [0, 1]], atol=0.01)
    for group, solution in zip(found.groups, found.solutions, strict=True):
        assert solution.experts == group
        low, high = solution.confidence_intervals(0.99).T
        true = np.array(DISCOUNTS)[[int(name) for name in group]]
        assert ((low <= true) & (true <= high)).all()
    for pair in found.pairs:
        same = int(pair.experts[0]) % 2 == int(pair.experts[1]) % 2
        assert pair.verdict == ("share" if same else "differ")
        assert pair.probability == pytest.approx(float(same), abs=0.05)
    assert found.sentences().startswith(
        "The experts do not all share one reward (p ≤ 0.001). The links between them make 2 groups."
    )


@pytest.mark.slow
def test_one_goal_is_one_group(golden):
    found = mh.goals(decided([0, 0, 0], 3000, seed=1), draws=99)
    assert found.groups == (("0", "1", "2"),)
    assert found.verdict == "share"
    assert found.test.p_value > 0.05
    assert found.test.simulations == 0  # τ = 0 is not rejected, so nothing needs to be confirmed by simulations
    golden(found.headline())
    low, high = found.solutions[0].confidence_intervals(0.99).T
    assert ((low <= DISCOUNTS[:3]) & (high >= DISCOUNTS[:3])).all()


@pytest.mark.slow
def test_few_decisions_cannot_tell(golden):
    found = mh.goals(decided([0, 1, 0], 6), draws=19)
    assert found.verdict == "cannot tell"
    assert found.groups == (("0",), ("1",), ("2",))
    assert found.undecided == ((0, 1), (0, 2), (1, 2))
    assert found.ungrouped == ("0", "1", "2")
    assert np.isnan(found.discounts).all()
    golden(found.sentences())


@pytest.mark.slow
def test_an_expert_whose_decisions_say_nothing_is_left_open():
    much, little = decided([0, 1, 0], 3000), decided([0, 1, 0], 2, seed=3)
    experts = [*much.experts, mh.Expert("shy", MDP, "demonstrations", counts=little.experts[2].counts)]
    found = mh.goals(mh.Problem(MDP, experts))
    assert found.groups == (("0", "2"), ("1",), ("shy",))
    assert found.verdict == "differ"
    assert (0, 1) not in found.undecided
    assert (0, 2) in found.undecided
    assert found.ungrouped == ("1", "shy")
    assert np.isnan(found.discounts[[1, 3]]).all()


def test_tasks_without_a_common_state_say_nothing_of_each_other():
    table = mh.Demonstrations.simulate(MDP, policies([0, 0]), 1, max_steps=800, names=["here", "there"])
    elsewhere = mh.MDP(MDP.to_array(), state_names=[f"elsewhere {i}" for i in range(6)])
    here, there = (expert.counts for expert in mh.Problem(MDP, table).experts)
    joined = mh.Problem.join(
        mh.Problem(MDP, [mh.Expert("here", MDP, "demonstrations", counts=here)]),
        mh.Problem(elsewhere, [mh.Expert("there", elsewhere, "demonstrations", counts=there)]),
    )
    scores = Scores(joined, 1.0)
    assert abs(scores.gain(frozenset((0,)), frozenset((1,)))) < 0.1
    found = mh.goals(joined, draws=19)
    assert found.verdict == "cannot tell"
    assert found.groups == (("here",), ("there",))


def test_one_expert_shares_with_nobody():
    found = mh.goals(decided([0], 500))
    assert found.sentences().startswith("One expert alone shares a goal with nobody")
    assert found.verdict == "cannot tell"
    assert np.isnan(found.discounts).all()
    assert np.isnan(found.test.p_value)


def test_equal_behaviour_is_one_goal_of_unknown_discount(golden):
    problem = decided([0], 2000)
    twin = mh.Expert("twin", MDP, "demonstrations", counts=problem.experts[0].counts)
    found = mh.goals(mh.Problem(MDP, [problem.experts[0], twin]), draws=19)
    assert found.groups == (("0", "twin"),)
    assert np.isnan(found.discounts).all()
    golden(found.sentences())


@pytest.mark.slow
def test_decisiveness_is_no_goal_of_its_own():
    problem = decided([0, 0, 0], 4000, temperatures=(1.0, 0.4, 2.0))
    assert shared_goal_test(mh.solve(problem, mh.MaximumLikelihood(1.0, starts=1)), 19).rejected
    found = mh.goals(problem, temperature="per_expert", draws=99)
    assert found.groups == (("0", "1", "2"),)
    assert found.verdict == "share"


@pytest.mark.slow
def test_order_and_names_do_not_matter():
    problem = decided([0, 1, 0], 60, names=["a", "b", "c"])
    straight, turned = (mh.goals(mh.Problem(MDP, list(problem.experts)[::step]), draws=19) for step in (1, -1))
    assert {frozenset(g) for g in turned.groups} == {frozenset(g) for g in straight.groups}
    assert turned.test.p_value == straight.test.p_value
    np.testing.assert_allclose(turned.sharing, straight.sharing[::-1, ::-1], atol=1e-6)


def test_the_price_counts_what_the_decisions_determine():
    """Of an expert alone many decisions determine the contrasts of six rewards, and no discount; few determine nothing."""
    for times, determined in ((1e-3, 0.0), (1e5, 6 - 1)):
        expert = mh.Expert("alone", MDP, "demonstrations", counts=times * policies([0])[0])
        assert Scores(mh.Problem(MDP, [expert]), 1.0)(frozenset((0,))).determined == pytest.approx(determined, abs=0.1)


def test_goals_that_differ_in_two_states_do_not_draw_experts_to_the_better_known_one():
    mdp = mh.domains.gridworld(5, 6, slip=0.1, terminal=[(0, 5), (4, 5)])
    up, down = np.full((2, 30), -0.2)
    up[[5, 29]], down[[5, 29]] = (6.0, 0.5), (0.5, 6.0)
    walkers = [(up, 0.4), (down, 0.9), (up, 0.95), (down, 0.6), (up, 0.75), (down, 0.3)]
    acted = [mh.soft_plan(mdp, reward, discount).policy for reward, discount in walkers]
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, acted, 100))
    scores = Scores(problem, 1.0)
    right = scores.score(frozenset((0, 2, 4))) + scores.score(frozenset((1, 3, 5)))
    wrong = scores.score(frozenset((0, 4))) + scores.score(frozenset((1, 2, 3, 5)))
    assert right > wrong + 3


@pytest.mark.slow
def test_probabilities_of_partitions_and_of_sharing():
    problem = decided([0, 1, 0], 40)
    weights, unexplored = weigh_partitions(Scores(problem, 1.0))
    assert len(weights) == 5  # all partitions of three experts
    assert unexplored == 0
    assert sum(weights.values()) == pytest.approx(1)
    shared = sharing_probabilities(weights, 3)
    np.testing.assert_allclose(shared, shared.T)
    found = mh.goals(problem, draws=19)
    place = [found.experts.index(name) for name in problem.names]
    np.testing.assert_allclose(found.sharing[np.ix_(place, place)], shared, atol=1e-6)
    assert sorted(name for group in found.groups for name in group) == ["0", "1", "2"]
    assert ((found.memberships >= 0) & (found.memberships <= 1 + 1e-12)).all()


def test_many_experts_of_whom_nothing_is_known_are_not_sure_of_anything():
    class Indifferent:
        """Every partition into groups is nearly as good as any other; single experts are the best by a hair."""

        problem = SimpleNamespace(n_experts=16)
        hopeless = 15.0

        def __init__(self) -> None:
            self.fits = {frozenset((k,)) for k in range(16)}

        @property
        def n_fits(self) -> int:
            return len(self.fits)

        def fitted(self, group) -> bool:
            return group in self.fits

        def look_from(self, partition) -> None:
            pass

        def score(self, group) -> float:
            self.fits.add(group)
            return -0.01 * (len(group) - 1)

        def gain(self, first, second) -> float:
            return self.score(first | second) - self.score(first) - self.score(second)

        def promise(self, new, old) -> float:
            return -0.01 * (sum(len(group) - 1 for group in new) - sum(len(group) - 1 for group in old))

    weights, unexplored = weigh_partitions(Indifferent())
    shared = sharing_probabilities(weights, 16)
    assert (np.diag(shared) < 0.95).all()
    assert shared.min() > 0
    assert unexplored > 100


def test_parabolas_are_the_log_likelihood_near_a_reward():
    """Around a group's reward they have the value and the slope of the log-likelihood, and add up to the score of the group."""
    scores = Scores(decided([0, 0, 0], 400), 1.0)
    everybody = frozenset(range(3))
    fit = scores(everybody)
    scores.look_from([everybody])
    assert scores.estimate(everybody) == pytest.approx(scores.score(everybody), abs=0.1)
    model, d = fit.point.likelihood, 6
    move = 0.01 * np.random.default_rng(0).normal(size=d)
    values = []
    for sign in (-1, 1):  # discounts follow the reward
        x = fit.point.x.copy()
        x[:d] += sign * move
        held = np.arange(model.size) < d
        values.append(model.person_values(climb(model.at(x), held, gain=1e-12).point))
    theta = fit.point.x[:d]
    for k, near in enumerate(parabolas(fit)):
        curvature = near.rewards - near.taken(near.prior)
        low, middle, high = (
            near.constant + t @ near.slope - 0.5 * t @ curvature @ t for t in (theta - move, theta, theta + move)
        )
        assert middle == pytest.approx(model.person_values(fit.point)[k], abs=1e-9)
        assert high - low == pytest.approx(values[1][k] - values[0][k], rel=0.1, abs=1e-3)


@pytest.mark.slow
def test_what_estimates_leave_out_changes_no_verdict():
    """Eight experts, two goals: most fits of two and more are left out, and pairs that were never fitted together say so."""
    mdp = mh.domains.random_mdp(20, 3, 4, seed=0)
    rewards, discounts = np.random.default_rng(0).normal(size=(2, 20)), np.linspace(0.2, 0.9, 8)
    acted = [mh.soft_plan(mdp, rewards[k % 2], gamma).policy for k, gamma in enumerate(discounts)]
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, acted, 20, max_steps=30))
    found = mh.goals(problem, draws=19)
    with limited(hopeless=np.inf):
        whole = mh.goals(problem, draws=19)
    assert found.groups == whole.groups == (("0", "2", "4", "6"), ("1", "3", "5", "7"))
    assert [pair.verdict for pair in found.pairs] == [pair.verdict for pair in whole.pairs]
    np.testing.assert_allclose(found.sharing, whole.sharing, atol=1e-3)
    assert not any(pair.left_out for pair in whole.pairs)
    out = [pair for pair in found.pairs if pair.left_out]
    assert len(out) > 8  # of the 16 pairs with different goals
    assert all(pair.verdict == "differ" and "never fitted together" in pair.left_out for pair in out)


def test_a_known_temperature_stays_with_its_expert_in_a_group():
    problem = decided([0, 1, 0], 300, names=[1, 2, 3])
    found = mh.goals(problem, temperature={1: 0.7, 2: 1.3, 3: 1.3}, draws=19)
    given = {name: float(t) for s in found.solutions for name, t in zip(s.experts, s.temperature, strict=True)}
    assert given == {"1": 0.7, "2": 1.3, "3": 1.3}


@pytest.mark.slow
def test_fourteen_experts_of_two_goals_are_not_said_to_share_one(golden):
    """One reward is tested for any number of experts, and the first words say what was found."""
    told = zip([0, 1] * 7, np.linspace(0.1, 0.95, 14), strict=True)
    acted = [mh.soft_plan(MDP, REWARDS[g], gamma).policy for g, gamma in told]
    table = mh.Demonstrations.simulate(MDP, acted, 4, max_steps=100, seed=1)
    found = mh.analyse([table], [MDP], quick=True)
    assert found.goals.test.p_value == 0.001
    assert found.headline.startswith("The experts do not share one goal. One reward for all is rejected (p ≤ 0.001)")
    golden(found.goals.answer)


@pytest.mark.slow
def test_the_test_of_one_reward_keeps_its_level_with_few_decisions():
    acted = [mh.soft_plan(MDP, REWARDS[0], gamma).policy for gamma in np.linspace(0.1, 0.95, 8)]
    p_values = []
    for seed in range(5):  # `benchmarks/goals.py` measures the level with hundreds
        problem = mh.Problem(MDP, mh.Demonstrations.simulate(MDP, acted, 1, max_steps=40, seed=seed))
        p_values.append(shared_goal_test(mh.solve(problem, mh.MaximumLikelihood(1.0, starts=1)), 99, run=Run(seed)).p_value)
    assert np.sum(np.array(p_values) <= 0.05) <= 1
    assert 0.2 < np.mean(p_values) < 0.8


def test_scores_are_gradients_and_leave_nothing_to_gain_at_the_fit():
    point = resume(mh.solve(decided([0, 1, 0], 300), mh.MaximumLikelihood("per_expert")))
    experts, (batch,) = _drawn(point, 3, Run()), point.likelihood.batches
    for k, expert in enumerate(experts):
        own = point.pull_back([batch.counts * (batch.owners == k)])
        np.testing.assert_allclose(expert.scores[0], own[expert.places], rtol=1e-5, atol=1e-8)
    free = ~point.likelihood.fixed & ~resting(point)
    np.testing.assert_allclose(_common_step(experts, free)[0], 0, atol=1e-3)
    assert np.abs(_common_step(experts, free)[1:]).max() > 0.01


def test_gains_by_climbs_are_those_of_scores_where_decisions_are_many():
    many = [np.round(100_000 * policy) for policy in policies([0, 0, 0])]
    experts = [mh.Expert(str(k), MDP, "demonstrations", counts=counts) for k, counts in enumerate(many)]
    point = _fit_with_one_reward(mh.solve(mh.Problem(MDP, experts), mh.MaximumLikelihood(1.0, starts=1)))
    for expert in _drawn(point, 4, Run()):
        quadratic = expert.gains(expert.scores, ~point.likelihood.fixed)
        np.testing.assert_allclose(_climbed_gains(point.likelihood, point.x, expert)[1:], quadratic[1:], rtol=0.05, atol=0.05)


def test_where_one_reward_cannot_be_tested_a_note_and_the_verdict_say_so():
    tables = [mh.Demonstrations.simulate(MDP, policies([0]), 4, max_steps=100, names=[name]) for name in ("here", "there")]
    elsewhere = mh.MDP(MDP.to_array(), state_names=[f"elsewhere {i}" for i in range(6)])
    tables[1] = mh.Demonstrations.simulate(elsewhere, policies([0]), 4, max_steps=100, names=["there"])
    found = mh.analyse(tables, [MDP, elsewhere], quick=True)
    assert any(note.startswith("Whether the experts share one reward was not tested") for note in found.notes)
    assert found.goals.verdict.answer == "This was not tested"
    assert found.goals.verdict.content["goals"]["p_value"] is None
    assert not found.goals.rejected
    unfinished = replace(mh.solve(decided([0, 0], 50), mh.MaximumLikelihood(1.0)), status=mh.Status.NOT_CONVERGED)
    assert shared_goal_test(unfinished).reason == "the fit did not end"


def test_the_report_is_plain_json(two):
    plain = json.loads(json.dumps(two.to_dict(), allow_nan=False))
    assert plain["groups"] == [["0", "2"], ["1", "3"]]
    assert plain["verdict"] == "differ"
    assert [len(row) for row in plain["memberships"]] == [2, 2, 2, 2]
    assert [solution["experts"] for solution in plain["solutions"]] == plain["groups"]
    assert plain["discounts"][1] == plain["solutions"][1]["discounts"][0]


def test_bad_input_gets_a_sentence():
    table = decided([0, 0], 100)
    with pytest.raises(ValueError, match="draws must be"):
        mh.goals(table, draws=5)
    with pytest.raises(ValueError, match="temperature must be"):
        mh.goals(table, temperature="each")
    mixed = mh.Problem(MDP, [table.experts[0], policies([0])[0]])
    with pytest.raises(ValueError, match="given as a policy like the others, got demonstrations"):
        mh.goals(mixed)
    empty = mh.Expert("absent", MDP, "demonstrations", counts=np.zeros((6, 3)))
    with pytest.raises(ValueError, match="absent must have at least one decision"):
        mh.goals(mh.Problem(MDP, [table.experts[0], empty]))
    large = mh.domains.gridworld(30, 30, slip=0.1)
    demonstrations = mh.Demonstrations.simulate(large, [np.full((900, large.n_actions), 1 / large.n_actions)] * 2, 2)
    with pytest.raises(ValueError, match="at most 700 rewards"):
        mh.goals(mh.Problem(large, demonstrations))
