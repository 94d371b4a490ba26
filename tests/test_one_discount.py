"""Experts with one discount: one behaviour does not show it, so no narrow interval may be given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import multihorizon as mh


def noisy_chain(discounts: tuple[float, ...], seed: int, places: int = 9) -> mh.Problem:
    """Places between a near, small and a far, large end, a reward for each of which is estimated."""
    moves = np.zeros((3, places, places))
    for place in range(1, places - 1):
        for action, step in enumerate((-1, 1, 0)):
            moves[action, place, place + step] += 0.8
            moves[action, place, place + 1] += 0.1
            moves[action, place, place - 1] += 0.1
    ends = np.array([0, places - 1])
    moves[:, ends, ends] = 1
    mdp = mh.MDP(moves, terminal=np.isin(np.arange(places), ends), initial=np.eye(places)[places // 2])
    reward = np.full(places, -0.15)
    reward[ends] = 2.0, 5.0
    policies = [mh.soft_plan(mdp, reward, discount, 0.5).policy for discount in discounts]
    return mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 250, seed=seed))


def random_states(discounts: tuple[float, ...], seed: int) -> mh.Problem:
    """Seven states and three actions that lead anywhere."""
    rng = np.random.default_rng(seed)
    mdp, reward = mh.MDP(rng.dirichlet(np.full(7, 0.5), size=(3, 7))), rng.normal(0, 1, 7)
    policies = [mh.soft_plan(mdp, reward, discount, 0.5).policy for discount in discounts]
    return mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 60, seed=seed, max_steps=30))


def grid(discounts: tuple[float, ...], seed: int) -> mh.Problem:
    """A small slippery grid with a goal in a corner and a puddle somewhere."""
    mdp = mh.domains.gridworld(3, 3, slip=0.1, terminal=[(0, 2)])
    reward = np.full(mdp.n_states, -0.1)
    reward[3 + seed % 6], reward[2] = -1.0, 4.0
    policies = [mh.soft_plan(mdp, reward, discount, 0.5).policy for discount in discounts]
    return mh.Problem(mdp, mh.Demonstrations.simulate(mdp, policies, 150, seed=seed, max_steps=30))


@pytest.mark.slow
@pytest.mark.parametrize("family", [noisy_chain, random_states, grid])
def test_three_experts_with_one_discount_are_not_called_known(family):
    wide = []
    for seed in range(5):
        solution = mh.solve(family((0.8, 0.8, 0.8), seed), mh.MaximumLikelihood())
        intervals = solution.confidence_intervals(0.95)
        assert np.isnan(intervals).all() or ((intervals[:, 0] <= 0.8) & (intervals[:, 1] >= 0.8)).all()
        wide.append(not (np.diff(intervals, axis=1) <= 0.5).any())
    assert sum(wide) >= 4  # one test in twenty rejects that they are equal


@pytest.mark.slow
def test_an_interval_holds_all_discounts_where_one_for_all_is_not_rejected():
    """Of this table the profiles alone are narrow enough to be called known."""
    solution = mh.solve(noisy_chain((0.8, 0.8, 0.8), 2, places=13), mh.MaximumLikelihood())
    assert mh.shared_discount_test(solution).p_value > 0.05
    alone = replace(solution.interval_source, checks_one_discount=False, computed={}).compute(0.95)
    assert (np.diff(alone, axis=1) < 0.5).all()
    assert solution.confidence_intervals(0.95) == pytest.approx(np.array([[0.0, 1.0]] * 3))


def test_experts_who_differ_keep_their_intervals():
    solution = mh.solve(noisy_chain((0.2, 0.6, 0.9), 0), mh.MaximumLikelihood())
    assert mh.shared_discount_test(solution).p_value < 0.05
    assert not solution.interval_source.one_discount_is_open(0.95)
    assert (np.diff(solution.confidence_intervals(0.95), axis=1) < 0.9).any()


def test_a_model_with_one_discount_that_is_not_identified_is_no_misfit() -> None:
    """Here the three discounts, which are noise, predict held-out decisions worse than one discount does, whatever it is."""
    problem = random_states((0.8, 0.8, 0.8), 0)
    found = mh.analyse([problem.experts[0].table], [problem.mdp], deviations=0.0)
    assert not found.withheld
    assert found.fit.kind != "bad"
    assert found.intervals == pytest.approx(np.array([[0.0, found.largest_discount]] * 3))
    assert "do not contradict one discount for all" in found.headline
    assert any("clearly different horizon" in text for text in found.advice)
