from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from scipy.optimize import brentq
from test_planning import problems

import multihorizon as mh


def breakpoints(domain) -> list[float]:
    return [interval.high for interval in mh.discount_intervals(domain.mdp, domain.reward)[:-1]]


def test_toy_breakpoints_are_roots_of_the_closed_form_values() -> None:
    values = [
        lambda g: 0.95 * 10 / (1 - 0.05 * g),
        lambda g: 0.9 * (6 + 10 * g) / (1 - 0.1 * g),
        lambda g: 0.6 * (7 + 10 * g) / (1 - 0.4 * g),
    ]
    first = brentq(lambda g: values[0](g) - values[1](g), 0, 1, xtol=1e-15)
    second = brentq(lambda g: values[1](g) - values[2](g), 0.6, 1, xtol=1e-15)
    assert breakpoints(mh.domains.toy()) == pytest.approx([first, second], abs=1e-12)
    assert [first, second] == pytest.approx([0.432239, 0.876408], abs=5e-7)


def test_big_small_breakpoints_depend_on_the_difference_of_distances() -> None:
    """A cell d steps from the small and d + n from the big goal switches where 2 = −2(1 + … + γ^{n−1}) + 20 γⁿ + …"""

    def gain(n: int):
        return lambda g: -2 * sum(g**i for i in range(n)) + 20 * g**n - 2

    exact = [brentq(gain(n), 0, 1, xtol=1e-15) for n in (1, 3, 5)]
    assert exact == pytest.approx([0.2, 0.6798, 0.8639], abs=5e-5)
    for height in (3, 4):
        assert breakpoints(mh.domains.big_small(height)) == pytest.approx(exact, abs=1e-12)


def test_cliff_breakpoints() -> None:
    """Five, of which the first two (0.05277 and 0.05286) are one on any ordinary grid."""
    found = breakpoints(mh.domains.cliff())
    assert found == pytest.approx([0.05277, 0.05286, 0.28416, 0.52891, 0.95486], abs=5e-6)


@pytest.mark.parametrize("domain", [mh.domains.toy(), mh.domains.big_small(), mh.domains.cliff(), mh.domains.cliff(4, 5)])
def test_breakpoints_are_where_neighbours_are_equally_good(domain) -> None:
    intervals = mh.discount_intervals(domain.mdp, domain.reward)
    for left, right in pairwise(intervals):
        assert left.high == right.low
        values = [
            mh.evaluate(
                domain.mdp, np.eye(domain.mdp.n_actions)[i.optimal_actions.argmax(axis=1)], domain.reward, left.high
            ).values
            for i in (left, right)
        ]
        np.testing.assert_allclose(values[0], values[1], rtol=1e-9, atol=1e-9)


@given(problems())
def test_intervals_agree_with_planning_at_random_discounts(problem) -> None:
    mdp, reward, _ = problem
    intervals = mh.discount_intervals(mdp, reward)
    assert intervals[0].low == 0
    assert intervals[-1].high == 1
    edges = np.array([i.high for i in intervals[:-1]])
    for discount in np.random.default_rng(1).uniform(0.01, 0.99, 40):
        if edges.size and np.abs(edges - discount).min() < 1e-4:
            continue
        inside = next(i for i in intervals if i.low <= discount <= i.high)
        np.testing.assert_array_equal(inside.optimal_actions, mh.plan(mdp, reward, discount).optimal_actions)


def test_a_policy_that_returns_in_a_sliver_is_found() -> None:
    """One action pays −1, x, −1 over three steps against 0: it is best only between two close roots of x γ = 1 + γ²."""
    transitions = np.zeros((2, 5, 5))
    transitions[0, 0, 1] = transitions[1, 0, 4] = 1.0
    for state in (1, 2):
        transitions[:, state, state + 1] = 1.0
    mdp = mh.MDP(transitions, initial=[1, 0, 0, 0, 0], terminal=[3, 4])
    # Arrival rewards: state 1 pays −1, state 2 pays x, state 3 pays −y with roots of −1 + xγ − yγ² at 0.5 ± 1e-4.
    low, high = 0.5 - 1e-4, 0.5 + 1e-4
    y = 1 / (low * high)
    reward = np.array([0, -1.0, y * (low + high), -y, 0])
    assert [i.high for i in mh.discount_intervals(mdp, reward)[:-1]] == pytest.approx([low, high], abs=1e-9)


def test_absorbing_endings_reach_one() -> None:
    domain = mh.domains.cliff(ending="absorbing")
    intervals = mh.discount_intervals(domain.mdp, domain.reward)
    assert intervals[-1].high == 1
    far = mh.plan(domain.mdp, domain.reward, 1 - 1e-5).optimal_actions
    np.testing.assert_array_equal(intervals[-1].optimal_actions, far)


def test_unavailable_actions_are_never_optimal() -> None:
    domain = mh.domains.cliff()
    available = np.ones((12, 4), dtype=bool)
    available[4:, 0] = False
    mdp = mh.MDP(list(domain.mdp.to_array()), terminal=domain.mdp.terminal, available=available)
    for interval in mh.discount_intervals(mdp, domain.reward):
        assert not (interval.optimal_actions & ~available).any()


def test_scaling_the_reward_keeps_the_breakpoints() -> None:
    domain = mh.domains.cliff()
    for scale in (1e-6, 1e6):
        scaled = [i.high for i in mh.discount_intervals(domain.mdp, domain.reward * scale)[:-1]]
        assert scaled == pytest.approx(breakpoints(domain), abs=1e-9)
