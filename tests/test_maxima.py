"""Likelihoods with several maxima: the answer is the highest, and intervals reach what is as likely."""

from __future__ import annotations

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.likelihood import maximum_likelihood
from multihorizon.likelihood.search import choice_probability_start, maximize


def careers(seed: int) -> tuple[mh.MDP, np.ndarray, mh.Demonstrations]:
    """Two kinds of people under one name, whose last choice is part of the state: going on is cheap, and the last state pays."""
    rng = np.random.default_rng(seed)
    choices, years = int(rng.integers(2, 4)), int(rng.integers(6, 12))
    states = (years + 1) * choices
    moves, features = np.zeros((choices, states, states)), np.zeros((choices, states, 3 * choices - 2))
    for last in range(years * choices):
        for choice in range(choices):
            moves[choice, last, last - last % choices + choices + choice] = 1
            features[choice, last, choice - 1] = choice > 0
            features[choice, last, choices - 1 + choice] = choice != last % choices
            features[choice, last, 2 * choices - 2 + choice] += choice > 0 and last >= (years - 1) * choices
    ends = np.arange(years * choices, states)
    moves[:, ends, ends] = 1
    mdp, rows = mh.MDP(moves, terminal=np.arange(states) >= years * choices), features.reshape(choices * states, -1)
    policies = []
    for discount in rng.choice([0, 0.3, 0.6, 0.9, 0.97, 0.99, 1.0], 2):
        costs = [rng.normal(0, 0.6, choices - 1), -np.abs(rng.normal(1.5, 1, choices)), rng.normal(0, 6, choices - 1)]
        reward = (rows @ np.concatenate(costs)).reshape(choices, states).T
        policies.append(mh.soft_plan(mdp, reward, float(discount)).policy)
    share = rng.uniform(0.2, 0.8)
    table = mh.Demonstrations.simulate(mdp, [share * policies[0] + (1 - share) * policies[1]], 500, seed=seed)
    return mdp, rows, table


def problem(seed: int) -> mh.Problem:
    """The same as a problem."""
    mdp, rows, table = careers(seed)
    return mh.Problem(mdp, table, features=rows)


def test_no_discount_is_likelier_than_the_answer():
    posed = problem(202)
    solution = mh.solve(posed, mh.MaximumLikelihood())
    assert solution.status == mh.Status.CONVERGED
    for discount in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 1.0):
        fixed = mh.solve(posed, mh.MaximumLikelihood(discounts=discount))
        assert fixed.objective <= solution.objective + 1e-3


def test_a_search_that_ends_on_the_lower_maximum_is_put_right_by_the_profile(monkeypatch):
    """Whatever the starts are: here all of them lead to a short-sighted answer."""

    def short_sighted(likelihood, *arguments, **options):
        best = maximize(likelihood, *arguments, **options)[0]
        end = maximum_likelihood.climb(choice_probability_start(likelihood, np.array([0.0])))
        assert end.finished
        assert end.point.objective < best.point.objective - 0.1
        return end, [end]

    posed = problem(202)
    expected = mh.solve(posed, mh.MaximumLikelihood())
    monkeypatch.setattr(maximum_likelihood, "maximize", short_sighted)
    found = mh.solve(posed, mh.MaximumLikelihood())
    assert found.objective == pytest.approx(expected.objective, abs=1e-6)
    assert found.discounts == pytest.approx(expected.discounts, abs=1e-4)


def test_two_maxima_within_their_error_are_both_said_and_both_in_the_interval():
    solution = mh.solve(problem(120), mh.MaximumLikelihood())
    (other,) = solution.evidence["other_maxima"]
    assert 0 < 2 * (solution.objective - other["log_likelihood"]) < 3.84
    assert abs(other["discounts"][0] - solution.discounts[0]) > 0.9
    assert "another maximum" in solution.message
    low, high = solution.confidence_intervals(0.95)[0]
    assert low <= min(other["discounts"][0], solution.discounts[0])
    assert high >= max(other["discounts"][0], solution.discounts[0])
    narrow = solution.confidence_intervals(0.3)[0]
    assert narrow[0] > 0.5  # at this level the other one is outside


def test_a_quick_analysis_reaches_the_other_maximum_as_well():
    mdp, rows, table = careers(120)
    found = mh.analyse([table], [mdp], lambda mdp: (rows, [f"feature {i}" for i in range(rows.shape[1])]), quick=True)
    assert found.intervals[0].tolist() == pytest.approx(found.solution.confidence_intervals(0.95)[0].tolist())
    assert found.intervals[0][1] - found.intervals[0][0] > 0.9
