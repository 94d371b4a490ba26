"""Exclusion restrictions for one expert: the published statements about its discount, and bad input."""

import numpy as np
import pytest
from scipy.optimize import root

import multihorizon as mh

FIRST, SECOND = ((0, "go"), (2, "go")), ((1, "go"), (3, "go"))


def chain():
    """Waiting leads from 0 to 1, 2 and the end, going from 0 to 2 and elsewhere to the end, as does everything in 3."""
    moves = {"wait": [1, 2, 4, 4, 4], "go": [2, 4, 4, 4, 4]}
    transitions = np.array([np.eye(5)[there] for there in moves.values()])
    return mh.MDP(transitions, terminal=[4], state_names=["0", "1", "2", "3", "end"], action_names=[*moves])


def expert(discount=0.6, temperature=1.0):
    """An expert for whom going pays 2 in states 0 and 2, and 0.5 in states 1 and 3."""
    reward = np.outer([2.0, 0.5, 2.0, 0.5, 0.0], [0.0, 1.0])
    return mh.Problem(chain(), [mh.soft_plan(chain(), reward, discount, temperature).policy], names=["anna"])


def by_pair(answer, reward):
    return dict(zip(answer.problem.parameter_names, reward.tolist(), strict=True))


def restricted(zeros, lift=0.0):
    """An expert for whom one restriction is 3 times the polynomial in γ with these zeros, raised by `lift`; and the restriction.

    Waiting leads on from state to state. Going leads from 0 to 2, and to the end elsewhere.
    """
    last = len(zeros)
    moves = np.eye(last + 2)[[[*range(1, last + 2), last + 1], [2, *[last + 1] * (last + 1)]]]
    powers = 3.0 * np.poly(zeros)[::-1]  # that of γ^j at j
    waits = np.append(0.5, np.cumsum(powers[:0:-1])[::-1])  # −log π(wait)
    wait = np.exp(-waits)
    wait[0] = 1 / (1 + (1 / wait[last] - 1) * np.exp(powers[0] + lift))
    policy = np.vstack([np.stack([wait, 1 - wait], axis=1), [0.5, 0.5]])
    problem = mh.Problem(mh.MDP(moves, terminal=[last + 1], action_names=["wait", "go"]), [policy])
    return problem, [((0, "go"), (last, "go"))]


def test_one_restriction_can_leave_two_discounts():
    """Abbring and Daljord (2020): the equation in the discount is nonlinear and may have several solutions."""
    answer = mh.identify(expert(), zero_action="wait", equal_rewards=[FIRST])
    assert (answer.status, answer.dimension, answer.zero_action, answer.double_roots) == ("set", 0, "wait", ())
    low, high = (float(member.discounts[0]) for member in answer.members)
    assert (round(low, 4), round(high, 10)) == (0.222, 0.6)
    np.testing.assert_allclose(answer.intervals, [[low, high]], atol=1e-6)
    np.testing.assert_allclose(answer.gaps, [[[low, high]]], atol=1e-6)
    for member in answer.members:
        assert member.error < 1e-12
        paid = answer.problem.experts[0].expected_reward(member.reward)
        assert paid[0, 1] == paid[2, 1]
        assert (paid[:, 0] == 0).all()
        again = mh.soft_plan(chain(), paid, float(member.discounts[0])).policy
        np.testing.assert_allclose(again, answer.problem.experts[0].policy, atol=1e-12)
    true = by_pair(answer, answer.members[1].reward)
    assert true == pytest.approx({"go in 0 = go in 2": 2.0, "go in 1": 0.5, "go in 3": 0.5})
    assert "discount 0.2220 or 0.6000, none found between" in answer.sentences()
    assert "the reward of wait to be 0" in answer.sentences()
    assert "0.222  0.600" in answer.summary()
    assert answer.to_dict()["zero_action"] == "wait"


def test_a_second_restriction_decides():
    answer = mh.identify(expert(), zero_action="wait", equal_rewards=[FIRST, SECOND])
    assert answer.status == "unique"
    assert answer.discounts[0] == pytest.approx(0.6, abs=1e-9)
    assert by_pair(answer, answer.reward) == pytest.approx({"go in 0 = go in 2": 2.0, "go in 1 = go in 3": 0.5})
    assert answer.residual < 1e-12
    assert answer.misfit < 1


def test_restrictions_that_contradict_each_other_explain_nothing():
    answer = mh.identify(expert(), zero_action="wait", equal_rewards=[FIRST, ((1, "go"), (2, "go"))])
    assert answer.status == "infeasible"
    assert answer.residual > 0.01
    assert "No discount explains the expert with these equal rewards" in answer.sentences()


def test_without_a_restriction_every_discount_explains_a_single_expert():
    """Rust (1994); Magnac and Thesmar (2002)."""
    answer = mh.identify(expert(), zero_action="wait")
    assert (answer.status, answer.dimension) == ("set", 1)
    np.testing.assert_array_equal(answer.intervals, [[0.0, 1.0]])
    assert max(member.error for member in answer.members) < 1e-12
    assert answer.residual < 1e-12
    policy = answer.problem.experts[0].policy
    waits = chain().transition(0).toarray()
    for gamma in np.linspace(0, 0.99, 12):
        values = -np.linalg.solve(np.eye(5) - gamma * waits, np.where(chain().terminal, 0.0, np.log(policy[:, 0])))
        paid = np.log(policy) + values[:, None] - gamma * chain().expect(values)
        np.testing.assert_allclose(paid[:4, 0], 0.0, atol=1e-12)
        np.testing.assert_allclose(mh.soft_plan(chain(), paid, gamma).policy[:4], policy[:4], atol=1e-12)


def test_a_restriction_that_holds_at_every_discount_decides_nothing():
    answer = mh.identify(expert(), zero_action="wait", equal_rewards=[SECOND])
    assert answer.status == "unique"
    same = mh.MDP(np.ones((2, 3, 3)) / 3)
    reward = np.outer([1.0, 1.0, 2.0], [0.0, 1.0])
    problem = mh.Problem(same, [mh.soft_plan(same, reward, 0.5).policy])
    vacuous = mh.identify(problem, zero_action=0, equal_rewards=[((0, 1), (1, 1))])
    assert (vacuous.status, vacuous.dimension) == ("set", 1)
    np.testing.assert_array_equal(vacuous.intervals, [[0.0, 1.0]])


def test_a_double_root_is_said_to_be_one():
    problem, pairs = restricted((0.4, 0.4))
    answer = mh.identify(problem, zero_action="wait", equal_rewards=pairs)
    assert answer.status == "unique"
    np.testing.assert_allclose([*answer.double_roots, answer.discounts[0]], 0.4, atol=1e-7)
    assert 1e-5 < np.ptp(answer.intervals) < 1e-2
    assert "double root" in answer.sentences()
    problem, pairs = restricted((0.395, 0.405))
    apart = mh.identify(problem, zero_action="wait", equal_rewards=pairs)
    np.testing.assert_allclose([m.discounts[0] for m in apart.members], [0.395, 0.405], atol=1e-5)
    assert apart.double_roots == ()


def test_errors_that_lift_a_double_root_do_not_hide_it_between_two_others():
    zeros = (0.03, 0.2, 0.2, 0.4)
    problem, pairs = restricted(zeros, lift=-1e-5)
    exact = mh.identify(problem, zero_action="wait", equal_rewards=pairs)
    np.testing.assert_allclose([m.discounts[0] for m in exact.members], [0.03, 0.4], atol=1e-3)
    answer = mh.identify(problem, tolerance=1e-5, zero_action="wait", equal_rewards=pairs)
    np.testing.assert_allclose([m.discounts[0] for m in answer.members], [0.03, 0.2, 0.4], atol=5e-3)
    np.testing.assert_allclose(answer.double_roots, [0.2], atol=5e-3)


@pytest.mark.parametrize("seed", range(6))
def test_every_sign_change_of_a_fine_grid_is_an_answer_and_so_is_the_truth(seed):
    rng = np.random.default_rng(seed)
    mdp = mh.domains.random_mdp(7, 3, seed=seed)
    reward = 2 * rng.normal(size=(7, 3))
    reward[:, 0], reward[1, 1] = 0.0, reward[0, 1]
    gamma, lam = float(rng.uniform(0, 0.98)), 0.7
    policy = mh.soft_plan(mdp, reward, gamma, lam).policy
    names = mdp.state_names, mdp.action_names
    pair = ((names[0][0], names[1][1]), (names[0][1], names[1][1]))
    answer = mh.identify(mh.Problem(mdp, [policy]), lam, zero_action=names[1][0], equal_rewards=[pair])
    found = [m.discounts[0] for m in answer.members] or [*answer.discounts]
    assert min(abs(one - gamma) for one in found) < 1e-7
    logs, moves = lam * np.log(policy), mdp.to_array()
    grid = np.linspace(0, 0.999, 2000)
    values = [-np.linalg.solve(np.eye(7) - g * moves[0], logs[:, 0]) for g in grid]
    gaps = [
        (logs[0, 1] + v[0] - g * moves[1, 0] @ v) - (logs[1, 1] + v[1] - g * moves[1, 1] @ v)
        for g, v in zip(grid, values, strict=True)
    ]
    crossed = grid[:-1][np.diff(np.sign(gaps)) != 0]
    assert len(crossed) <= len(found)
    for place in crossed:
        assert min(abs(one - place) for one in found) < 1e-3


def test_larger_errors_in_the_policy_widen_the_answer():
    problem = expert()
    noisy = problem.experts[0].policy * np.exp(1e-3 * np.random.default_rng(0).normal(size=(5, 2)))
    noisy = mh.Problem(chain(), [noisy / noisy.sum(axis=1, keepdims=True)])
    assert mh.identify(noisy, zero_action="wait", equal_rewards=[FIRST, SECOND]).status == "infeasible"
    answer = mh.identify(noisy, tolerance=1e-3, zero_action="wait", equal_rewards=[FIRST, SECOND])
    low, high = answer.intervals[0]
    assert answer.status == "unique"
    assert low < 0.6 < high
    assert 1e-4 < high - low < 0.1


def test_present_bias_and_discount_follow_from_two_restrictions_in_a_task_that_ends():
    """Abbring, Daljord and Iskhakov (2025): with sophisticated present bias each restriction is a polynomial in β and δ.

    With C = V − (1 − β)δ P_π V, the policy of a sophisticated agent has λ log π = r + βδ T V − C.
    """
    rng = np.random.default_rng(1)
    n = 6
    moves = np.zeros((2, n, n))
    for state in range(n - 1):
        moves[:, state, state + 1 :] = rng.dirichlet(np.ones(n - 1 - state), size=2)
    mdp = mh.MDP(moves, terminal=[n - 1])
    reward = np.outer([1.0, 1.0, -0.5, 1.0, 0.3, 0.0], [0.0, 1.0])  # the same in states 0, 1 and 3
    beta, delta = 0.6, 0.9
    policy = mh.PresentBias(beta, sophisticated=True)(mdp, reward, delta, 1.0)
    logs = np.where(mdp.live, np.log(policy), 0.0)
    chosen = np.einsum("sa,ast->st", np.where(mdp.live, policy, 0.0), moves)

    def differences(unknown):
        bias, discount = unknown
        seen = discount * (bias * moves[0] + (1 - bias) * chosen)
        values = -np.linalg.solve(np.eye(n) - seen, logs[:, 0])
        paid = logs[:, 1] + values - (1 - bias) * discount * chosen @ values - bias * discount * moves[1] @ values
        return paid[0] - paid[1], paid[0] - paid[3]

    np.testing.assert_allclose(differences((beta, delta)), 0.0, atol=1e-12)
    solved = [root(differences, start) for start in rng.uniform(0.05, 1.0, size=(30, 2))]
    inside = [s.x for s in solved if s.success and (s.x > 0).all() and (s.x <= 1).all() and np.abs(s.fun).max() < 1e-10]
    assert inside
    assert min(np.abs(x - [beta, delta]).max() for x in inside) < 1e-8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"equal_rewards": [FIRST]}, "must come with zero_action"),
        ({"equal_rewards": 5}, "must come with zero_action"),
        ({"zero_action": "wiat"}, "Did you mean 'wait'"),
        ({"zero_action": "wait", "equal_rewards": [((0, "goo"), (2, "go"))]}, "equal_rewards must name actions among wait, go"),
        ({"zero_action": "wait", "equal_rewards": [((9, "go"), (2, "go"))]}, "equal_rewards must name states among"),
        ({"zero_action": "wait", "equal_rewards": [(0, "go")]}, "must hold entries"),
        ({"zero_action": "wait", "equal_rewards": "go"}, "must hold entries"),
        ({"zero_action": "wait", "equal_rewards": [FIRST, FIRST[::-1]]}, "each restriction once"),
        ({"zero_action": "wait", "equal_rewards": [((0, "go"), (0, "go"))]}, "two different pairs"),
        ({"zero_action": "wait", "equal_rewards": [((0, "wait"), (1, "wait"))]}, "both rewards are 0"),
        ({"zero_action": "wait", "equal_rewards": [((0, "go"), ("end", "go"))]}, "the state is terminal"),
        ({"zero_action": "wait", "equal_rewards": [((s, "go"), (0, "wait")) for s in range(4)]}, "must leave rewards"),
        ({"zero_action": "wait", "within": 0.1}, "within must come without zero_action"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        mh.identify(expert(), **options)


def test_several_experts_features_and_decisions_are_refused():
    problem = expert()
    policy = problem.experts[0].policy
    with pytest.raises(ValueError, match="one expert in one task, got 2"):
        mh.identify(mh.Problem(chain(), [policy, policy]), zero_action="wait")
    with pytest.raises(ValueError, match="got a problem with features"):
        mh.identify(mh.Problem(chain(), [policy], features=np.ones((10, 1))), zero_action="wait")
    unseen = np.where(np.outer(np.arange(5) == 1, [1, 1]), np.nan, policy)
    with pytest.raises(ValueError, match="states in which the expert was not observed"):
        mh.identify(mh.Problem(chain(), [unseen]), zero_action="wait")
    walks = mh.Demonstrations.simulate(chain(), [policy], 20, seed=0)
    with pytest.raises(ValueError, match="must be given as a policy"):
        mh.identify(mh.Problem(chain(), walks), zero_action="wait")
    without = chain().without(np.outer(np.arange(5) == 1, [True, False]))
    alone = np.where(np.outer(np.arange(5) == 1, [1, 1]), [0.0, 1.0], policy)
    with pytest.raises(ValueError, match="must be available in every state, got none in 1"):
        mh.identify(mh.Problem(without, [alone]), zero_action="wait")
