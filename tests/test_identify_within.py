"""`identify(..., within=ε)`: rewards that are nearly the same."""

import json

import numpy as np
import pytest
from posing import features_of
from scipy.optimize import linprog

import multihorizon as mh
from multihorizon.exact.approximate import discounts_within

NAMES = ["anna", "bob", "carla"]


def deviating(mdp, reward, discounts, distance, seed, temperature=1.0):
    """Policies for rewards of their own, none farther than `distance` from the shared one."""
    rng = np.random.default_rng(seed)
    own = [reward + distance * rng.uniform(-1, 1, reward.size) for _ in discounts]
    return [mh.soft_plan(mdp, r, gamma, temperature).policy for r, gamma in zip(own, discounts, strict=True)]


def needed(mdp, policies, discounts):
    """The smallest distance at given discounts, from the Bellman equations themselves; infinite if there is none."""
    S, A, K = mdp.n_states, mdp.n_actions, len(policies)
    T, going = mdp.to_array(), np.flatnonzero(~mdp.terminal)
    width = 1 + S + K * 2 * S
    equal, right, below = [], [], []
    for k, (policy, gamma) in enumerate(zip(policies, discounts, strict=True)):
        own, value = 1 + S + 2 * k * S, 1 + S + (2 * k + 1) * S
        for s in going:
            for a in range(A):
                if not mdp.available[s, a]:
                    continue
                row = np.zeros(width)
                row[own : own + S] = T[a, s]
                row[value : value + S] = gamma * T[a, s]
                row[value + s] -= 1
                equal.append(row)
                right.append(np.log(policy[s, a]))
        for s in np.flatnonzero(mdp.terminal):
            row = np.zeros(width)
            row[value + s] = 1
            equal.append(row)
            right.append(0.0)
        for s in range(S):
            for sign in (1, -1):
                row = np.zeros(width)
                row[own + s], row[1 + s], row[0] = sign, -sign, -1
                below.append(row)
    costs = np.zeros(width)
    costs[0] = 1
    bounds = [(0, None)] + [(None, None)] * (width - 1)
    found = linprog(costs, np.array(below), np.zeros(len(below)), np.array(equal), right, bounds=bounds)
    return found.fun if found.status == 0 else np.inf


@pytest.mark.parametrize("ending", ["terminal", "absorbing"])
@pytest.mark.parametrize("name", ["cliff", "big_small"])
def test_a_distance_of_zero_is_the_shared_reward(name, ending):
    domain = getattr(mh.domains, name)(ending=ending)
    found = mh.identify(mh.Problem(domain.mdp, domain.soft_experts()), within=0.0)
    assert found.status == "unique"
    assert found.within.status == "explained"
    assert found.within.smallest[1] < 1e-5
    assert found.within.settled.all()
    for ends in (found.within.proved, found.within.attained):
        np.testing.assert_allclose(ends, found.intervals, atol=2e-4)


@pytest.mark.parametrize("ending", ["terminal", "absorbing"])
@pytest.mark.parametrize("seed", range(2))
def test_the_truth_lies_in_the_range_and_ranges_grow(ending, seed):
    domain, truth = mh.domains.cliff(ending=ending), (0.1, 0.5, 0.8)
    problem = mh.Problem(domain.mdp, deviating(domain.mdp, domain.reward, truth, 0.4, seed))
    found = mh.identify(problem, within=0.4).within
    assert found.status == "explained"
    assert found.smallest[1] <= 0.4 + 1e-6
    assert (found.proved[:, 0] <= truth).all()
    assert (found.proved[:, 1] >= truth).all()
    assert (found.proved[:, 0] <= found.attained[:, 0]).all()
    assert (found.proved[:, 1] >= found.attained[:, 1]).all()
    wider = mh.identify(problem, within=0.8).within
    assert (wider.proved[:, 0] <= found.attained[:, 0] + 1e-6).all()
    assert (wider.proved[:, 1] >= found.attained[:, 1] - 1e-6).all()
    assert mh.identify(problem, within=0.9 * found.smallest[0]).within.status == "infeasible"
    assert mh.identify(problem, within=1.01 * found.smallest[1]).within.status == "explained"


def test_the_smallest_distance_is_that_of_the_bellman_equations():
    domain = mh.domains.cliff()
    policies = deviating(domain.mdp, domain.reward, (0.1, 0.5, 0.8), 0.4, 1)
    found = mh.identify(mh.Problem(domain.mdp, policies), within=0.4).within
    assert needed(domain.mdp, policies, found.closest) == pytest.approx(found.smallest[1], abs=1e-5)
    for move in 0.02 * np.vstack([np.eye(3), -np.eye(3)]):
        assert needed(domain.mdp, policies, found.closest + move) > found.smallest[0] - 1e-6


@pytest.mark.slow
def test_two_experts_by_brute_force():
    """On a grid of discounts every point that the Bellman equations allow is in the range, and the range ends where they do."""
    mdp = mh.domains.gridworld(2, 3, slip=0.1, terminal=[(1, 2)])
    policies = deviating(mdp, np.array([0.0, 1, -1, 2, 0.5, 3]), (0.3, 0.7), 0.05, 3)
    found = mh.identify(mh.Problem(mdp, policies), within=0.05).within
    assert found.settled.all()
    grid = np.linspace(0, 1, 21)
    grid[-1] = 0.9999
    distance = np.array([[needed(mdp, policies, (a, b)) for b in grid] for a in grid])
    inside = np.argwhere(distance <= 0.05)
    assert len(inside)
    for k in range(2):
        assert found.proved[k, 0] <= grid[inside[:, k].min()] + 1e-6
        assert found.proved[k, 1] >= grid[inside[:, k].max()] - 1e-6
        assert grid[inside[:, k].min()] <= found.attained[k, 0] + 0.1
        assert grid[inside[:, k].max()] >= found.attained[k, 1] - 0.1


@pytest.mark.slow
def test_the_toy_is_not_settled_and_says_so():
    domain = mh.domains.toy()
    policies = domain.soft_experts()
    found = mh.identify(mh.Problem(domain.mdp, policies, names=NAMES), within=0.06)
    assert not found.within.settled.all()
    assert "none possible outside" in found.sentences()
    assert (found.within.attained[:, 0] <= found.intervals[:, 0] + 1e-3).all()
    assert (found.within.attained[:, 1] >= found.intervals[:, 1] - 1e-3).all()
    grid = np.stack(np.meshgrid(np.linspace(0, 0.6, 5), np.linspace(0.1, 0.7, 5), np.linspace(0.6, 0.99, 5)), axis=-1)
    possible = [gammas for gammas in grid.reshape(-1, 3) if needed(domain.mdp, policies, gammas) <= 0.06]
    assert possible
    for gammas in possible:
        assert (found.within.proved[:, 0] <= gammas).all()
        assert (found.within.proved[:, 1] >= gammas).all()
        assert (found.within.attained[:, 0] <= gammas + 0.02).all()
        assert (found.within.attained[:, 1] >= gammas - 0.02).all()


def test_order_names_and_the_unit_of_reward_do_not_matter():
    domain = mh.domains.cliff()
    policies = deviating(domain.mdp, domain.reward, (0.1, 0.5, 0.8), 0.4, 1)
    straight = mh.identify(mh.Problem(domain.mdp, policies, names=NAMES), within=0.5).within
    turned = mh.identify(mh.Problem(domain.mdp, policies[::-1], names=["x", "y", "z"]), within=0.5).within
    # Policies for three times the reward at three times the temperature are the same.
    scaled = mh.identify(mh.Problem(domain.mdp, policies), temperature=3.0, within=1.5).within
    for part in ("attained", "proved"):
        np.testing.assert_allclose(getattr(turned, part)[::-1], getattr(straight, part), atol=1e-3)
        np.testing.assert_allclose(getattr(scaled, part), getattr(straight, part), atol=1e-3)
    assert scaled.smallest[1] == pytest.approx(3 * straight.smallest[1], rel=1e-3)


def test_a_large_distance_leaves_everything_open():
    domain = mh.domains.cliff()
    found = mh.identify(mh.Problem(domain.mdp, domain.soft_experts(), names=NAMES), within=100.0)
    assert found.within.open.all()
    assert found.sentences().count("(open)") == 3


def test_features_count_in_units_of_their_size():
    mdp = mh.domains.gridworld(3, 4, slip=0.2, terminal=[(0, 3)])
    features, theta = features_of(mdp, 1), np.array([1.0, -0.5, 2.0, -0.7])
    rng = np.random.default_rng(0)
    own = [theta + 0.2 * rng.uniform(-1, 1, 4) / np.abs(features).max(axis=0) for _ in range(2)]
    policies = [mh.soft_plan(mdp, (features @ w).reshape(4, 12).T, g).policy for w, g in zip(own, (0.3, 0.9), strict=True)]
    ratio = np.array([1.0, 10.0, 0.1, 5.0])
    for scale in (np.ones(4), ratio):
        found = mh.identify(mh.Problem(mdp, policies, features=features * scale), within=0.2).within
        # So few features leave nothing open: each expert fixes the discount alone, and the distance is that of the two rewards.
        np.testing.assert_allclose(found.proved, [[0.3, 0.3], [0.9, 0.9]], atol=1e-5)
        apart = (np.abs(own[0] - own[1]) * np.abs(features).max(axis=0)).max() / 2
        assert found.smallest[1] == pytest.approx(apart, rel=1e-3)


@pytest.mark.parametrize("terminal", [[(2, 2)], []])
def test_the_equations_of_features_give_the_answer_of_states(terminal):
    mdp = mh.domains.gridworld(3, 3, slip=0.0, terminal=terminal)  # so that the largest entry of each feature is 1
    policies = deviating(mdp, np.random.default_rng(5).normal(size=9), (0.2, 0.7), 0.1, 2)
    states = mh.identify(mh.Problem(mdp, policies), within=0.15).within
    features = discounts_within(mh.Problem(mdp, policies), 0.15, np.ones(2), as_features=True)
    np.testing.assert_allclose(features.smallest, states.smallest, atol=1e-3)
    np.testing.assert_allclose(features.proved, states.proved, atol=2e-3)
    np.testing.assert_allclose(features.attained, states.attained, atol=2e-3)


@pytest.mark.slow
def test_known_discounts_and_another_task_narrow_the_range():
    domain = mh.domains.cliff()
    policies = deviating(domain.mdp, domain.reward, (0.1, 0.5, 0.8), 0.1, 1)
    problem = mh.Problem(domain.mdp, policies, names=NAMES)
    free = mh.identify(problem, within=0.3).within
    held = mh.identify(problem, within=0.3, discounts={"carla": 0.8}).within
    np.testing.assert_allclose(held.proved[2], 0.8, atol=1e-9)
    assert (held.proved[:2, 0] >= free.proved[:2, 0] - 1e-3).all()
    assert (held.proved[:2, 1] <= free.proved[:2, 1] + 1e-3).all()
    toys = [mh.domains.toy(chances=chances) for chances in ((0.95, 0.9, 0.6), (0.4, 0.8, 0.7))]
    joined = mh.Problem.join(*(mh.Problem(toy.mdp, toy.soft_experts(), names=NAMES) for toy in toys))
    start = mh.identify(joined).discounts
    # each expert has one reward in both tasks; more boxes would settle nothing here
    both = discounts_within(joined, 0.0, np.ones(3), starts=[start], most_boxes=50)
    np.testing.assert_allclose(both.attained, np.tile([[0.3], [0.5], [0.95]], 2), atol=1e-3)
    assert (both.proved[:, 0] <= (0.3, 0.5, 0.95)).all()
    assert (both.proved[:, 1] >= (0.3, 0.5, 0.95)).all()


def test_policies_that_no_reward_explains_have_no_distance():
    mdp = mh.domains.random_mdp(10, 3, seed=4)
    rng = np.random.default_rng(0)
    found = mh.identify(mh.Problem(mdp, [rng.dirichlet(np.ones(3), 10) for _ in range(2)]), within=1.0)
    assert found.within.status == "infeasible"
    assert found.to_dict()["within"]["smallest"] == [None, None]
    assert "not soft-optimal for any reward" in found.sentences()


def test_the_finding_is_saved_and_tabled(tmp_path):
    domain = mh.domains.cliff()
    found = mh.identify(mh.Problem(domain.mdp, domain.soft_experts(), names=NAMES), within=0.1)
    found.to_json(tmp_path / "found.json")
    saved = json.loads((tmp_path / "found.json").read_text())["within"]
    np.testing.assert_allclose(saved["proved"], found.within.proved)
    assert (saved["distance"], saved["status"]) == (0.1, "explained")
    frame = found.to_frame()
    np.testing.assert_allclose(frame[["within_low", "within_high"]], found.within.proved)
    assert frame["settled"].all()


def test_bad_input_gets_a_sentence():
    domain = mh.domains.cliff()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    with pytest.raises(ValueError, match="within must be"):
        mh.identify(problem, within=-1.0)
    with pytest.raises(ValueError, match="temperature must be a number"):
        mh.identify(problem, "per_expert", within=1.0)
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 20, seed=1)
    with pytest.raises(ValueError, match="within must be asked of experts given as policies"):
        mh.identify(mh.Problem(domain.mdp, table), within=1.0)
