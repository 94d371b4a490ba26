"""The report on identifiability: sets with proof, honesty under noise, features, endings."""

from dataclasses import replace

import numpy as np
import pytest
from posing import equations_of, features_of
from scipy.optimize import least_squares

import multihorizon as mh
from multihorizon.exact.identify import minimise


def toy_problem(ending, members=(0, 1, 2)):
    domain = mh.domains.toy(ending=ending)
    experts = domain.soft_experts()
    return domain, mh.Problem(domain.mdp, [experts[i] for i in members])


@pytest.mark.parametrize(("ending", "dimension"), [("terminal", 1), ("absorbing", 2)])
def test_the_toy_domain_is_not_identifiable(ending, dimension, golden):
    domain, problem = toy_problem(ending)
    found = mh.identify(problem)
    assert (found.status, found.dimension) == ("set", dimension)
    first, second = found.members
    assert np.linalg.norm(first.discounts - second.discounts) > 0.1
    for member in found.members:
        for gamma, expert in zip(member.discounts, domain.soft_experts(), strict=True):
            assert np.abs(mh.soft_plan(domain.mdp, member.reward, gamma).policy - expert).max() < 1e-10
    assert (found.intervals[:, 0] <= np.array(domain.soft_discounts) + 1e-9).all()
    assert (found.intervals[:, 1] >= np.array(domain.soft_discounts) - 1e-9).all()
    golden(found.sentences())


def test_the_order_of_the_toy_experts_can_be_reversed():
    domain, problem = toy_problem("absorbing")
    form = equations_of(problem)
    point = minimise(form, np.array([0.702, 0.542, 0.158]))
    assert point.discounts[0] > point.discounts[1] > point.discounts[2]
    for gamma, expert in zip(point.discounts, domain.soft_experts(), strict=True):
        np.testing.assert_allclose(mh.soft_plan(domain.mdp, point.reward, gamma).policy, expert, atol=1e-12)


def test_the_ranges_of_the_terminal_toy_are_those_of_a_brute_force_search():
    _, problem = toy_problem("terminal")
    form = equations_of(problem)
    axis = np.linspace(0.1, 0.9, 4)
    points = [minimise(form, np.array([a, b, c])) for a in axis for b in axis for c in axis]
    solutions = np.array([p.discounts for p in points if p.gap < 1e-10])
    ranges = mh.identify(problem).intervals
    assert (solutions >= ranges[:, 0] - 1e-6).all()
    assert (solutions <= ranges[:, 1] + 1e-6).all()
    np.testing.assert_allclose(solutions.min(axis=0), ranges[:, 0], atol=0.02)


def test_one_expert_alone_says_nothing_of_their_discount():
    domain = mh.domains.cliff(ending="absorbing")
    found = mh.identify(mh.Problem(domain.mdp, domain.soft_experts()[2:]))
    assert (found.status, found.dimension) == ("set", 1)
    np.testing.assert_allclose(found.intervals, [[0.0, 1.0]], atol=1e-6)
    assert max(m.error for m in found.members) < 1e-10


def test_affine_sets_have_ranges_from_linear_programs():
    """Two experts with the same policy: any common discount explains them, and the set is the diagonal."""
    mdp = mh.domains.random_mdp(8, 3, seed=2)
    policy = mh.soft_plan(mdp, np.arange(8.0) / 4, 0.6).policy
    found = mh.identify(mh.Problem(mdp, [policy, policy]))
    assert (found.status, found.dimension) == ("set", 1)
    np.testing.assert_allclose(found.intervals, [[0, 1], [0, 1]], atol=1e-6)
    for member in found.members:
        assert abs(member.discounts[0] - member.discounts[1]) < 1e-8
        assert member.error < 1e-10
    free = mh.identify(mh.Problem(mdp, [policy, policy]), temperature="per_expert")
    assert free.status == "set"
    assert free.dimension >= 1


def test_policies_without_a_common_reward_are_infeasible(golden):
    mdp = mh.domains.random_mdp(10, 3, seed=4)
    rng = np.random.default_rng(0)
    experts = [mh.soft_plan(mdp, rng.normal(size=10), gamma).policy for gamma in (0.3, 0.8)]
    found = mh.identify(mh.Problem(mdp, experts))
    assert found.status == "infeasible"
    assert found.residual > 1e-2
    golden(found.sentences())
    outside = mh.identify(mh.Problem(mdp, [rng.dirichlet(np.ones(3), 10) for _ in range(2)]))
    assert outside.status == "infeasible"


@pytest.mark.parametrize("temperature", [1.0, "per_expert"])
def test_features_and_action_costs(temperature):
    mdp = mh.domains.gridworld(3, 4, slip=0.2, terminal=[(0, 3)])
    features, theta = features_of(mdp, 1), np.array([1.0, -0.5, 2.0, -0.7])
    reward = (features @ theta).reshape(4, 12).T
    lams = (1.0, 1.5) if temperature == "per_expert" else (1.0, 1.0)
    experts = [mh.soft_plan(mdp, reward, gamma, lam).policy for gamma, lam in zip((0.3, 0.9), lams, strict=True)]
    found = mh.identify(mh.Problem(mdp, experts, features=features), temperature)
    assert found.status == "unique"
    np.testing.assert_allclose(found.discounts, [0.3, 0.9], atol=1e-9)
    np.testing.assert_allclose(found.temperature, lams, atol=1e-8)
    np.testing.assert_allclose(found.reward, theta, atol=1e-8)


@pytest.mark.parametrize("temperature", [1.0, None])
def test_jacobians_are_finite_differences(temperature):
    domain = mh.domains.cliff()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    tied = mh.Problem(domain.mdp, domain.soft_experts(), features=features_of(domain.mdp, 1))
    here, step = np.array([0.2, 0.4, 0.7]), 1e-6
    for form in (equations_of(problem, temperature), equations_of(tied, temperature)):
        point = form.project(here)
        slopes = form.slopes(here, point.x)
        for k in range(3):
            move = step * (np.arange(3) == k)
            ahead, behind = ((lambda m, h: m @ point.x - h)(*form.at(here + sign * move)) for sign in (1, -1))
            np.testing.assert_allclose(slopes[:, k], (ahead - behind) / (2 * step), atol=1e-6)
            gaps = [form.project(here + sign * move).gap ** 2 / 2 for sign in (1, -1)]
            gradient = (point.jacobian.T @ point.residual)[k]
            np.testing.assert_allclose(gradient, (gaps[0] - gaps[1]) / (2 * step), rtol=1e-4, atol=1e-7)


def test_tabular_features_agree_with_the_closed_form():
    domain = mh.domains.cliff()
    found = mh.identify(mh.Problem(domain.mdp, domain.soft_experts(), features=domain.mdp.stacked))
    assert found.status == "unique"
    np.testing.assert_allclose(found.discounts, domain.soft_discounts, atol=1e-8)


def test_another_task_identifies_what_one_task_leaves_open():
    names, problems = ["a", "b", "c"], []
    for chances in ((0.95, 0.9, 0.6), (0.4, 0.8, 0.7)):
        domain = mh.domains.toy(chances=chances)
        problems.append(mh.Problem(domain.mdp, domain.soft_experts(), names=names))
    assert mh.identify(problems[0]).status == "set"
    joined = mh.identify(mh.Problem.join(*problems))
    assert joined.status == "unique"
    np.testing.assert_allclose(joined.discounts, (0.3, 0.5, 0.95), atol=1e-7)


def test_bad_options_get_a_sentence():
    _, problem = toy_problem("terminal")
    with pytest.raises(ValueError, match="tolerance"):
        mh.identify(problem, tolerance=-1.0)
    with pytest.raises(ValueError, match="per_expert"):
        mh.identify(problem, temperature="each")


def test_fixing_a_discount_settles_the_toy_with_a_terminal_state():
    _, problem = toy_problem("terminal")
    found = mh.identify(problem, discounts={"0": 0.3})
    assert found.status == "unique"
    np.testing.assert_allclose(found.discounts, [0.3, 0.5, 0.95], atol=1e-8)
    np.testing.assert_allclose(found.intervals[0], [0.3, 0.3])
    np.testing.assert_allclose(found.reward, mh.domains.toy().reward, atol=1e-6)
    _, absorbing = toy_problem("absorbing")
    once = mh.identify(absorbing, discounts={"0": 0.3})
    assert (once.status, once.dimension) == ("set", 1)
    twice = mh.identify(absorbing, discounts={"0": 0.3, "2": 0.95})
    assert twice.status == "unique"
    assert twice.discounts[1] == pytest.approx(0.5, abs=1e-8)
    wrong = mh.identify(problem, discounts={"0": 0.9})
    assert wrong.status == "infeasible"
    with pytest.raises(ValueError, match="at least one discount open"):
        mh.identify(problem, discounts={"0": 0.3, "1": 0.5, "2": 0.9})
    with pytest.raises(ValueError, match="discounts must name"):
        mh.identify(problem, discounts={"zero": 0.3})


@pytest.mark.slow
def test_a_fourth_expert_settles_the_toy_only_if_it_has_a_terminal_state():
    for ending, status in (("terminal", "unique"), ("absorbing", "set")):
        domain = mh.domains.toy(ending=ending)
        experts = [mh.soft_plan(domain.mdp, domain.reward, gamma).policy for gamma in (0.3, 0.5, 0.7, 0.95)]
        assert mh.identify(mh.Problem(domain.mdp, experts)).status == status


def test_one_expert_with_a_terminal_state_leaves_the_discount_open():
    domain = mh.domains.big_small()
    found = mh.identify(mh.Problem(domain.mdp, domain.soft_experts()[:1]))
    assert (found.status, found.dimension) == ("set", 1)
    assert np.ptp(found.intervals) > 0.9
    assert max(member.error for member in found.members) < 1e-10


@pytest.mark.slow
def test_decisions_that_leave_a_direction_open_bound_nothing():
    """Demonstrations of a cliff: ranges from the errors of the counts would miss the third discount in half of these tables."""
    domain = mh.domains.cliff()
    for seed in range(5):
        demonstrations = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes=100, seed=seed)
        found = mh.identify(mh.Problem(domain.mdp, demonstrations))
        assert found.status == "set"
        np.testing.assert_array_equal(found.intervals, [[0, 1]] * 3)


def test_states_without_a_choice():
    rng = np.random.default_rng(0)
    available = np.ones((60, 3), dtype=bool)
    available[rng.random(60) < 0.5, 1:] = False
    mdp = mh.MDP(mh.domains.random_mdp(60, 3, 5, seed=1).to_array(), available=available)
    reward = rng.normal(size=60) * 2
    found = mh.identify(mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.3, 0.6, 0.9)]))
    assert found.status == "unique"
    np.testing.assert_allclose(found.discounts, [0.3, 0.6, 0.9], atol=1e-8)


def test_a_wall_is_no_ending():
    """Nobody enters the wall and no move ends the episode, so a constant reward is free and the mean is set to 0."""
    rng = np.random.default_rng(0)
    mdp = mh.domains.gridworld(2, 3, slip=0.2, walls=[(0, 1)], absorbing=[(1, 2)])
    reward = rng.normal(size=6)
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.3, 0.7)])
    found = mh.identify(problem)
    entered = np.arange(6) != 1
    np.testing.assert_allclose(found.reward[entered], reward[entered] - reward[entered].mean(), atol=1e-8)


@pytest.mark.slow
def test_decisions_confirm_what_is_said_of_them():
    """No pair of members is shown whose likelihood is worse, no policy is said to be reproduced, and the truth is possible."""
    compared = 0
    for domain in (mh.domains.cliff(), mh.domains.toy(ending="absorbing")):  # the second one has members to show
        demonstrations = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 1000, seed=0)
        problem = mh.Problem(domain.mdp, demonstrations)
        found = mh.identify(problem)
        assert found.status == "set"
        assert "reproduces" not in found.sentences()
        truth = np.array(domain.soft_discounts)
        assert ((found.intervals[:, 0] <= truth) & (truth <= found.intervals[:, 1])).all()
        likelihoods = []
        for member in found.members:
            policies = [mh.soft_plan(domain.mdp, member.reward, gamma).policy for gamma in member.discounts]
            likelihoods.append(
                sum((e.counts * np.log(p))[e.counts > 0].sum() for e, p in zip(problem.experts, policies, strict=True))
            )
            assert likelihoods[-1] == pytest.approx(member.log_likelihood)
        assert np.ptp(likelihoods or [0.0]) < 4
        compared += len(likelihoods)
    assert compared


def test_what_is_not_identified_is_null():
    _, problem = toy_problem("terminal")
    plain = mh.identify(problem).to_dict()
    assert plain["discounts"] == [None] * 3
    assert plain["reward"] == [None] * 4
    assert mh.solve(problem, mh.ClosedForm()).evidence["reward"] == [None] * 4
    # The first state is never entered and there is no end: all but its reward is known, up to a constant.
    transitions = mh.domains.random_mdp(5, 2, seed=1).to_array()
    transitions[:, :, 0] = 0.0
    mdp = mh.MDP(transitions / transitions.sum(axis=2, keepdims=True))
    reward = np.array([7.0, 1.0, -1.0, 2.0, -2.0])
    found = mh.identify(mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.2, 0.8)]))
    assert found.status == "unique"
    assert found.to_dict()["reward"][0] is None
    np.testing.assert_allclose(found.to_dict()["reward"][1:], reward[1:], atol=1e-7)
    assert found.reward_identified.tolist() == [False, True, True, True, True]


def test_limits_are_printed_as_limits(golden):
    _, problem = toy_problem("terminal")
    words = mh.identify(problem).sentences()
    golden(words)
    _, problem = toy_problem("absorbing")
    words = mh.identify(problem).sentences()
    assert words.count("any discount from 0 to 1") == 3
    golden(words)


def one_to_one(*moves):
    """A task in which each action permutes the states."""
    return mh.MDP(np.eye(len(moves[0]))[np.array(moves)])


def possible(task, policies, expert, discount):
    """Whether some reward, values and discounts of the others explain the policies, by equations and a search of its own."""
    moves = [task.transition(action).toarray() for action in range(task.n_actions)]
    n, size = task.n_states, len(policies)
    logs = np.concatenate([np.log(policy[:, action]) for policy in policies for action in range(len(moves))])

    def misfit(others):
        discounts = np.insert(others, expert, discount)
        blocks = []
        for who in range(size):
            for move in moves:
                block = np.zeros((n, n * (1 + size)))
                block[:, :n] = move
                block[:, n * (1 + who) : n * (2 + who)] = discounts[who] * move - np.eye(n)
                blocks.append(block)
        matrix = np.vstack(blocks)
        return logs - matrix @ np.linalg.lstsq(matrix, logs, rcond=1e-10)[0]

    starts = np.array([[0.5, 0.5], [0.1, 0.1], [0.3, 0.9], [0.8, 0.8]])
    return min(least_squares(misfit, start, bounds=(0, 1), xtol=1e-12).cost for start in starts) < 1e-14


def test_a_set_in_two_pieces_is_not_called_any_discount(golden):
    """Expert 0's discount may be small or large, and nothing between: a grid with equations of its own finds none there."""
    task = one_to_one([3, 0, 1, 4, 2], [2, 3, 1, 4, 0])
    reward, discounts = np.array([-0.72, -0.8, 2.306, 1.403, 0.603]), (0.041, 0.655, 0.617)
    policies = [mh.soft_plan(task, reward, gamma).policy for gamma in discounts]
    found = mh.identify(mh.Problem(task, policies))
    np.testing.assert_allclose(found.intervals[0], [0, 1], atol=1e-6)
    ((low, high),) = found.gaps[0]
    golden(found.sentences())
    for discount in (0.1, 0.3, 0.4, 0.6, 0.8):
        assert possible(task, policies, 0, discount) == (not low < discount < high)
    turned = mh.identify(mh.Problem(task, policies[::-1], names=["c", "b", "a"]))
    np.testing.assert_allclose(turned.gaps[2], found.gaps[0], atol=1e-6)
    assert mh.solve(mh.Problem(task, policies), mh.ClosedForm()).evidence.gaps[0] == [[low, high]]


def test_separate_explanations_are_no_range(golden):
    """Two explanations and nothing between: the discounts of both are given, not the range that they span."""
    task, reward = deterministic([[0, 2, 0], [2, 1, 0], [0, 1, 0]], 2), np.array([0.93, -0.51, 0.03])
    found = mh.identify(mh.Problem(task, [mh.soft_plan(task, reward, gamma).policy for gamma in (0.706, 0.2, 0.552)]))
    assert (found.status, found.dimension) == ("set", 0)
    golden(found.sentences())


def test_nothing_is_said_of_ranges_where_nothing_explains_the_experts():
    mdp = mh.domains.random_mdp(10, 3, seed=4)
    rng = np.random.default_rng(0)
    found = mh.identify(mh.Problem(mdp, [rng.dirichlet(np.ones(3), 10) for _ in range(2)]))
    assert np.isnan(found.intervals).all()
    assert found.to_dict()["intervals"] == [[None, None], [None, None]]


def test_a_set_that_leaves_the_box_at_once_is_described_as_such(golden):
    """The curve through these discounts rises in all three, so that within the box it is the one point (0, 0.34, 1)."""
    mdp, reward = mh.domains.toy().mdp, np.array([28.6, 2.7, -12.5, 4.9])
    found = mh.identify(mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.0, 0.34, 1.0)]))
    assert (found.status, found.dimension) == ("set", 1)
    np.testing.assert_allclose(found.discounts, [0.0, 0.34, 1.0], atol=1e-6)
    golden(found.sentences())
    assert not found.members


def test_a_reward_known_in_part_is_refused():
    d = mh.domains.cliff()
    problem = mh.Problem(d.mdp, d.soft_experts(), names=["a", "b", "c"])
    paid = problem.with_experts(replace(e, known_reward=np.ones(d.mdp.n_states * 4)) for e in problem.experts)
    for solve in (mh.identify, lambda p: mh.solve(p, mh.ClosedForm()), mh.goals):
        with pytest.raises(ValueError, match="must have no known part of the reward"):
            solve(paid)


def deterministic(moves, ends):
    """A task from `moves[action][state]`, the next state; `ends` is the terminal state."""
    transitions = np.eye(len(moves[0]))[np.array(moves)]
    transitions[:, ends] = 0.0
    return mh.MDP(transitions, terminal=[ends])


@pytest.mark.parametrize(
    ("task", "reward", "discounts"),
    [
        (deterministic([[0, 0, 0], [0, 2, 0], [0, 0, 0]], 2), [0.344, -0.326, 0.708], [0.877, 0.538]),
        (
            deterministic([[0, 2, 2, 4, 3], [0, 2, 2, 4, 1], [0, 2, 2, 4, 3]], 0),
            [-0.457, 1.068, -1.5, -0.877, 1.975],
            [0.295, 0.676],
        ),
    ],
)
def test_a_set_that_reaches_discount_1_of_an_endless_policy_is_no_reason_to_refuse(task, reward, discounts):
    """At discount 1 the values of such a policy do not exist, so the explanation shown must be another one of the set."""
    found = mh.identify(mh.Problem(task, [mh.soft_plan(task, np.array(reward), gamma).policy for gamma in discounts]))
    assert found.status == "set"
    assert found.residual < 1e-9
    np.testing.assert_allclose(found.intervals, [[0, 1], [0, 1]], atol=1e-6)


def random_task(seed):
    """A small task, deterministic or not, with or without terminal states and forbidden actions; a reward; 2 or 3 discounts."""
    rng = np.random.default_rng(seed)
    n_states, n_actions, n_experts = (int(rng.integers(*limits)) for limits in ((3, 9), (2, 5), (2, 4)))
    certain = rng.random() < 0.6
    transitions = np.zeros((n_actions, n_states, n_states))
    for action, state in np.ndindex(n_actions, n_states):
        if certain:
            transitions[action, state, rng.integers(n_states)] = 1
        else:
            count = int(rng.integers(1, min(n_states, 4) + 1))
            transitions[action, state, rng.choice(n_states, count, replace=False)] = rng.dirichlet(np.ones(count))
    terminal = np.zeros(n_states, dtype=bool)
    if rng.random() < 0.5:
        terminal[rng.choice(n_states, int(rng.integers(1, 3)), replace=False)] = True
    transitions[:, terminal] = 0
    available = None
    if rng.random() < 0.3:
        available = rng.random((n_states, n_actions)) < 0.7
        available[np.arange(n_states), rng.integers(n_actions, size=n_states)] = True
    mdp = mh.MDP(transitions, terminal=terminal, available=available)
    reward, kind = rng.normal(size=n_states).round(3), rng.random(n_experts)
    near_1, anywhere = 1 - 10 ** rng.uniform(-4, -1, n_experts), rng.random(n_experts).round(3)
    return mdp, reward, np.where(kind < 0.1, 0.0, np.where(kind < 0.25, near_1, anywhere))


#: Without tasks in which a probability rounds to 0. The last ones were refused, called infeasible, or given one of two answers.
@pytest.mark.slow
@pytest.mark.parametrize("seed", [*sorted({*range(40)} - {0, 10, 12, 16, 34, 37, 38}), 160, 185, 413, 456, 535, 837, 881, 1366])
def test_a_random_task_gets_an_answer_that_holds_the_truth(seed):
    mdp, reward, discounts = random_task(seed)
    policies = [mh.soft_plan(mdp, reward, gamma).policy for gamma in discounts]
    found = mh.identify(mh.Problem(mdp, policies))
    if found.status == "unique":
        np.testing.assert_allclose(found.discounts, discounts, atol=1e-6)
    else:
        assert found.status == "set"
        assert (found.intervals[:, 0] <= discounts + 1e-6).all()
        assert (found.intervals[:, 1] >= discounts - 1e-6).all()


def test_a_probability_that_has_lost_its_digits_is_refused():
    """Below 2e-308 a float keeps few digits, and log π is off by more than any tolerance."""
    policy = np.array([[1.0, 1e-310], [0.5, 0.5]])
    mdp = mh.MDP([[[0, 1], [0, 1]], [[1, 0], [1, 0]]])
    with pytest.raises(ValueError, match="got 1e-310 in state 0 on action 1"):
        mh.identify(mh.Problem(mdp, [policy, np.full((2, 2), 0.5)]))
