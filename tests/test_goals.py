"""Who shares a goal with whom, from policies: right groups, no wrong link, and honest words where nothing can be told."""

import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.exact.equations import in_order_of_content, joint_equations, read_equations, reward_families
from multihorizon.exact.linear_systems import LinearSystem, pair_systems


def random_case(seed, states, experts, n_goals, n_terminal=0):
    """A problem, the goal of each expert, the rewards of the goals, and the discounts."""
    rng = np.random.default_rng(seed)
    mdp = mh.domains.random_mdp(states, 3, min(states, 5), n_terminal=n_terminal, seed=seed)
    rewards = rng.normal(size=(n_goals, states))
    goals = [k % n_goals for k in range(experts)]
    discounts = rng.uniform(0, 0.95, size=experts)
    return (
        mdp,
        [mh.soft_plan(mdp, rewards[g], gamma).policy for g, gamma in zip(goals, discounts, strict=True)],
        goals,
        rewards,
        discounts,
    )


def named(goals):
    return {frozenset(str(k) for k, goal in enumerate(goals) if goal == g) for g in set(goals)}


@pytest.mark.parametrize(
    ("seed", "states", "experts", "n_goals", "n_terminal"),
    [(0, 4, 4, 2, 0), (1, 5, 6, 3, 0), (2, 8, 7, 2, 1), (3, 12, 9, 4, 2), (4, 30, 8, 3, 0), (5, 60, 12, 4, 1)],
)
def test_groups_rewards_and_discounts_of_exact_policies(seed, states, experts, n_goals, n_terminal):
    mdp, policies, goals, rewards, discounts = random_case(seed, states, experts, n_goals, n_terminal)
    found = mh.goals(mh.Problem(mdp, policies))
    assert {frozenset(group) for group in found.groups} == named(goals)
    assert not found.undecided
    assert len(found.pairs) == experts * (experts - 1) // 2
    for pair in found.pairs:
        same = goals[int(pair.experts[0])] == goals[int(pair.experts[1])]
        assert pair.verdict == ("share" if same else "differ")
        assert (found.misfits[tuple(int(name) for name in pair.experts)] > 5) != same
    for group, solution in zip(found.groups, found.solutions, strict=True):
        members = [int(name) for name in group]
        assert solution.experts == group
        assert solution.status == "unique"
        np.testing.assert_allclose(solution.discounts, discounts[members], atol=1e-8)
        gap = (solution.reward - rewards[goals[members[0]]])[solution.reward_identified]
        np.testing.assert_allclose(gap - gap.mean() * solution.free_constant, 0, atol=1e-8)
    np.testing.assert_allclose(found.discounts, discounts, atol=1e-8)


@pytest.mark.parametrize(("seed", "states"), [(0, 4), (1, 6), (2, 15), (3, 40)])
def test_errors_make_links_uncertain_but_never_wrong(seed, states):
    mdp, policies, goals, _, _ = random_case(seed, states, 6, 2)
    rng = np.random.default_rng(seed)
    moved = [policy * np.exp(1e-3 * rng.standard_normal(policy.shape)) for policy in policies]
    found = mh.goals(mh.Problem(mdp, [p / p.sum(axis=1, keepdims=True) for p in moved]), tolerance=1e-3)
    for group in found.groups:
        assert len({goals[int(name)] for name in group}) == 1
    for pair in found.pairs:
        same = goals[int(pair.experts[0])] == goals[int(pair.experts[1])]
        assert pair.verdict != ("differ" if same else "share")
    if states == 40:
        assert {frozenset(group) for group in found.groups} == named(goals)


def test_few_equations_link_nobody_when_policies_have_errors(golden):
    """Four states leave a pair one equation to spare: with errors of 1% unrelated rewards would fit by accident."""
    mdp, policies, _, _, _ = random_case(1, 4, 2, 1)
    exact, rough = mh.goals(mh.Problem(mdp, policies)), mh.goals(mh.Problem(mdp, policies), tolerance=1e-2)
    assert (exact.pairs[0].verdict, rough.pairs[0].verdict) == ("share", "cannot tell")
    assert exact.solutions[0].surplus == 1
    assert rough.undecided == ((0, 1),)
    golden(rough.sentences())


def test_the_same_goal_pursued_with_other_decisiveness():
    mdp = mh.domains.random_mdp(10, 3, seed=3)
    reward, other = np.random.default_rng(1).normal(size=(2, 10))
    cases = ((reward, 0.3, 1.0), (reward, 0.8, 2.0), (other, 0.5, 1.0), (other, 0.9, 0.5))
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, r, gamma, lam).policy for r, gamma, lam in cases], names=list("abcd"))
    assert mh.goals(problem).groups == (("a",), ("b",), ("c",), ("d",))
    found = mh.goals(problem, temperature="per_expert")
    assert found.groups == (("a", "b"), ("c", "d"))
    np.testing.assert_allclose(found.solutions[0].temperature, [1, 2], atol=1e-7)
    np.testing.assert_allclose(found.solutions[1].temperature, [1, 0.5], atol=1e-7)
    np.testing.assert_allclose(found.discounts, [0.3, 0.8, 0.5, 0.9], atol=1e-8)


@pytest.mark.slow
def test_features():
    mdp = mh.domains.gridworld(3, 4, slip=0.2, terminal=[(0, 3)])
    rng = np.random.default_rng(0)
    features = mdp.stacked @ rng.normal(size=(12, 3))
    weights = np.array([[1.0, -0.5, 2.0], [-1.0, 1.0, 0.5]])
    cases = ((0, 0.3), (1, 0.4), (0, 0.9), (1, 0.8))
    experts = [mh.soft_plan(mdp, (features @ weights[g]).reshape(4, 12).T, gamma).policy for g, gamma in cases]
    found = mh.goals(mh.Problem(mdp, experts, features=features))
    assert found.groups == (("0", "2"), ("1", "3"))
    np.testing.assert_allclose(found.discounts, [0.3, 0.4, 0.9, 0.8], atol=1e-8)
    np.testing.assert_allclose(found.solutions[0].reward, weights[0], atol=1e-7)


@pytest.mark.slow
def test_joined_tasks():
    """The toy domain alone tells nothing about pairs; with a variant of the task it tells who shares a goal."""
    problems = []
    rewards = np.array([[0.0, 2.0, -1.0, 3.0], [1.0, -2.0, 2.0, 0.5]])
    cases = ((0, 0.3), (1, 0.4), (0, 0.9), (1, 0.8))
    for chances in ((0.95, 0.9, 0.6), (0.4, 0.8, 0.7), (0.6, 0.3, 0.9)):
        mdp = mh.domains.toy(chances=chances).mdp
        problems.append(mh.Problem(mdp, [mh.soft_plan(mdp, rewards[g], gamma).policy for g, gamma in cases], names=list("abcd")))
    assert {pair.verdict for pair in mh.goals(problems[0]).pairs} == {"cannot tell"}
    found = mh.goals(mh.Problem.join(*problems))
    assert found.groups == (("a", "c"), ("b", "d"))
    np.testing.assert_allclose(found.discounts, [0.3, 0.4, 0.9, 0.8], atol=1e-7)


@pytest.mark.slow
def test_what_pairs_cannot_tell_more_experts_can():
    """Four toy experts have as many equations as unknowns: one answer, but any four would have one. Five can be contradicted."""
    domain = mh.domains.toy()
    discounts = (0.1, 0.3, 0.5, 0.7, 0.95)
    experts = [mh.soft_plan(domain.mdp, domain.reward, gamma).policy for gamma in discounts]
    found = mh.goals(mh.Problem(domain.mdp, experts))
    assert {pair.verdict for pair in found.pairs} == {"cannot tell"}
    assert found.groups == (("0", "1", "2", "3", "4"),)
    np.testing.assert_allclose(found.discounts, discounts, atol=1e-7)
    four = mh.Problem(domain.mdp, experts[1:])
    assert (mh.identify(four).status, mh.identify(four).surplus) == ("unique", 0)
    assert len(mh.goals(four).groups) == 4
    assert len(mh.goals(four).undecided) == 6


@pytest.mark.parametrize("temperature", [1.0, 1.7, None])
@pytest.mark.parametrize(
    ("seed", "states", "n_terminal", "error"),
    [(0, 4, 0, 1e-8), (1, 9, 1, 1e-8), (2, 30, 0, 1e-3), (3, 90, 2, 1e-2), (4, 8, 0, 1e-1)],
)
def test_systems_of_all_pairs_are_those_of_each_pair(seed, states, n_terminal, error, temperature):
    """The residual in units of errors, and whether directions stay open; one pair of equal policies leaves one open."""
    mdp, policies, _, _, _ = random_case(seed, states, 5, 2, n_terminal)
    rng = np.random.default_rng(seed)
    moved = [policy * np.exp(error * rng.standard_normal(policy.shape)) for policy in policies]
    moved = [policy / policy.sum(axis=1, keepdims=True) for policy in moved]
    problem = in_order_of_content(mh.Problem(mdp, [*moved, moved[0]]))
    families = reward_families(problem, [read_equations(expert) for expert in problem.experts], error)
    found = pair_systems(families, problem.n_parameters, temperature)
    for i, j in combinations(range(6), 2):
        pair = [replace(families[i], owner=0), replace(families[j], owner=1)]
        both = problem.with_experts([problem.experts[i], problem.experts[j]])
        equations = joint_equations(both, temperature, error, families=pair)
        alone = LinearSystem(equations).directions
        misfit = max(equations.outside, alone.gap / alone.expected)
        assert found.misfit[i, j] == pytest.approx(misfit, rel=1e-6, abs=1e-3)
        infeasible = misfit > 5
        assert found.tight[i, j] == (not infeasible and not alone.free.size)
        if not n_terminal:
            assert found.infeasible[i, j] == infeasible
            assert found.loose[i, j] == (not infeasible and alone.free.size > 0)


def test_pairs_that_follow_from_their_group_say_so():
    mdp, policies, goals, _, _ = random_case(7, 20, 9, 2)
    found = mh.goals(mh.Problem(mdp, policies))
    out = [pair for pair in found.pairs if pair.left_out]
    assert len(out) == 6 + 3  # of groups of five and four, those without the first member
    assert all(pair.verdict == "share" and "identified together" in pair.left_out for pair in out)
    for pair in out:
        a, b = pair.experts
        assert goals[int(a)] == goals[int(b)]
        assert mh.identify(mh.Problem(mdp, [policies[int(a)], policies[int(b)]])).status == "unique"


def test_one_expert(golden):
    domain = mh.domains.cliff()
    found = mh.goals(mh.Problem(domain.mdp, domain.soft_experts()[:1], names=["ann"]))
    assert found.groups == (("ann",),)
    assert np.isnan(found.discounts).all()
    assert found.to_dict()["discounts"] == [None]
    golden(found.sentences())


def test_equal_policies_link_nobody_by_themselves():
    mdp, policies, _, _, discounts = random_case(2, 9, 2, 1)
    twins = mh.goals(mh.Problem(mdp, [policies[0], policies[0]]))
    assert [pair.verdict for pair in twins.pairs] == ["cannot tell"]
    assert len(twins.groups) == 2
    third = mh.goals(mh.Problem(mdp, [policies[0], policies[0], policies[1]]))
    assert third.groups == (("0", "1", "2"),)
    np.testing.assert_allclose(third.discounts, discounts[[0, 0, 1]], atol=1e-8)


def test_tasks_without_a_common_state_tell_nothing():
    mdp, policies, _, _, _ = random_case(3, 7, 2, 1)
    other = mh.MDP(mdp.to_array(), state_names=[f"elsewhere {i}" for i in range(7)])
    joined = mh.Problem.join(mh.Problem(mdp, policies[:1], names=["here"]), mh.Problem(other, policies[1:], names=["there"]))
    found = mh.goals(joined)
    assert [pair.verdict for pair in found.pairs] == ["cannot tell"]
    assert found.groups == (("here",), ("there",))


def test_an_expert_whom_no_reward_explains_stands_apart(golden):
    mdp, policies, _, _, _ = random_case(4, 10, 2, 1)
    erratic = np.random.default_rng(0).dirichlet(np.ones(3), 10)
    found = mh.goals(mh.Problem(mdp, [*policies, erratic]))
    assert found.groups == (("0", "1"), ("2",))
    assert found.solutions[1].status == "infeasible"
    golden(found.sentences())


def test_order_and_names_do_not_matter():
    mdp, policies, goals, _, _ = random_case(5, 11, 7, 3)
    straight = mh.goals(mh.Problem(mdp, policies))
    order = np.random.default_rng(0).permutation(7)
    turned = mh.goals(mh.Problem(mdp, [policies[k] for k in order], names=[str(k) for k in order]))
    assert {frozenset(g) for g in turned.groups} == {frozenset(g) for g in straight.groups} == named(goals)
    np.testing.assert_allclose(turned.discounts, straight.discounts[order], atol=1e-10)
    np.testing.assert_allclose(turned.misfits, straight.misfits[np.ix_(order, order)], rtol=1e-2)
    assert [set(a) < set(b) for a, b in combinations(turned.groups, 2)] == [False] * 3


def test_the_report_is_plain_json():
    mdp, policies, _, _, _ = random_case(6, 6, 3, 2)
    plain = json.loads(json.dumps(mh.goals(mh.Problem(mdp, policies)).to_dict(), allow_nan=False))
    assert plain["groups"] == [["0", "2"], ["1"]]
    assert plain["discounts"][1] is None
    assert {pair["verdict"] for pair in plain["pairs"]} == {"share", "differ"}


def test_bad_options_get_a_sentence():
    domain = mh.domains.cliff()
    with pytest.raises(ValueError, match="tolerance"):
        mh.goals(mh.Problem(domain.mdp, domain.soft_experts()), tolerance=0)
    with pytest.raises(ValueError, match="per_expert"):
        mh.goals(mh.Problem(domain.mdp, domain.soft_experts()), temperature="each")
