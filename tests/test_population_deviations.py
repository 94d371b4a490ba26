"""People of a population whose rewards are only nearly shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logsumexp

import multihorizon as mh
from multihorizon.choice.deviations import own_rewards
from multihorizon.choice.surfaces import Tables
from multihorizon.parallel import Run
from multihorizon.population.marginal import Marginal
from multihorizon.solution import Deviations, Solution

STATES, ACTIONS = 8, 3
MDP = mh.domains.random_mdp(STATES, ACTIONS, branching=3, n_terminal=1, seed=3)
FEATURES = MDP.stacked @ np.random.default_rng(3).uniform(-1, 1, size=(STATES, 2))
COMMON = np.array([2.0, -1.5]) / np.abs(FEATURES).max(axis=0)


def paid(theta: np.ndarray, known: float = 0.0) -> np.ndarray:
    """A reward of features, and besides so many times the number of the state."""
    return (FEATURES @ theta + known * (MDP.stacked @ np.arange(STATES))).reshape(ACTIONS, STATES).T


def study(people: int, decisions: int, spread: float, seed: int = 0, known: float = 0.0) -> tuple[mh.Problem, np.ndarray]:
    """People with rewards of their own, and their deviations."""
    rng = np.random.default_rng(seed)
    own = spread * rng.normal(size=(people, 2)) / np.abs(FEATURES).max(axis=0)
    eta = rng.normal(size=(people, 2)) * [1.0, 0.3] + [0.5, 0.0]
    policies = [
        mh.soft_plan(MDP, paid(COMMON + delta, known), float(expit(x)), float(np.exp(y))).policy
        for delta, (x, y) in zip(own, eta, strict=True)
    ]
    drawn = mh.Demonstrations.simulate(MDP, policies, decisions, seed).to_frame()
    table = mh.Demonstrations.from_frame(drawn.groupby("expert", sort=False).head(decisions))
    problem = mh.Problem(MDP, table, features=FEATURES)
    return problem, own[[int(name) for name in problem.names]]


def test_deviations_are_averaged_out() -> None:
    problem, _ = study(4, 60, 0.5)
    crowd, deviation = problem, 0.4 / np.abs(FEATURES).max(axis=0)
    tables = Tables(crowd.tasks, crowd.largest_discount, COMMON, np.arange(2))
    counts = tables.counts(crowd.tasks)
    eta = np.random.default_rng(1).normal(size=(4, 3, 2)) * [1.0, 0.3]
    assert tables.prepare(tables.patches.of(eta))
    surface = tables.surface(counts, eta)
    found = own_rewards(tables, counts, eta, surface, deviation)
    z, w = np.polynomial.hermite_e.hermegauss(15)
    places, weights = np.array([(a, b) for a in z for b in z]), np.outer(w, w).ravel() / (2 * np.pi)
    for i in range(4):
        made = crowd.tasks[0].counts[[i]].toarray().reshape(ACTIONS, STATES).T
        for q in range(3):
            gamma, lam = crowd.largest_discount * expit(eta[i, q, 0]), np.exp(eta[i, q, 1])
            log = []
            for place in places:
                policy = mh.soft_plan(MDP, paid(COMMON + deviation * place), float(gamma), float(lam)).policy
                log.append((made * np.log(np.where(policy > 0, policy, 1.0))).sum())
            exact = logsumexp(log, b=weights)
            mean = (np.exp(np.array(log) - exact) * weights) @ (places * deviation)
            # what is averaged out matters, and is right to a twentieth of it
            assert abs(found.log_likelihoods[i, q] - exact) < 0.03 + 0.05 * abs(exact - surface.log_likelihoods[i, q])
            np.testing.assert_allclose(found.mode[i, q], mean, atol=0.15 * deviation.max())


def test_the_gradient_is_that_of_the_value() -> None:
    problem, _ = study(6, 50, 0.5)
    found = mh.Population(nodes=5, tolerance=0.1).search(problem, Run())[1]
    marginal = Marginal(found.marginal.layout.deviating(0.5), found.persons, 5)
    rng, value = np.random.default_rng(0), marginal.at(found.psi)
    assert value is not None
    for _ in range(3):
        along = rng.normal(size=found.psi.size)
        ahead, behind = (marginal.at(found.psi + sign * 1e-4 * along, full=False) for sign in (1, -1))
        assert ahead is not None
        assert behind is not None
        slope = (ahead.objective - behind.objective) / 2e-4
        assert abs(slope - value.gradient @ along) < 1e-4 * max(1.0, abs(slope))


@pytest.mark.slow
def test_tiny_deviations_change_nothing() -> None:
    problem, _ = study(8, 40, 0.0)
    options: dict[str, Any] = {"nodes": 7, "tolerance": 1e-4}
    shared = mh.solve(problem, mh.Population(**options))
    nearly = mh.solve(problem, mh.Population(deviations=1e-3, **options))
    assert "deviations" not in shared.evidence
    told = nearly.evidence["deviations"]
    assert isinstance(told, Deviations)
    assert told.given
    assert told.spread == 1e-3
    assert np.isnan(told.p_shared)
    assert abs(nearly.objective - shared.objective) < 1e-2
    np.testing.assert_allclose(nearly.discounts, shared.discounts, atol=2e-3)
    np.testing.assert_allclose(told.if_shared["discounts"], shared.discounts, atol=1e-12)


@pytest.mark.slow
def test_they_are_found_where_there_are_some(tmp_path: Path) -> None:
    problem, truth = study(20, 80, 0.7)
    found = mh.solve(problem, mh.Population(deviations="estimated", nodes=7, tolerance=1e-3))
    told = found.evidence["deviations"]
    assert told.p_shared < 0.01
    assert told.interval[0] < 0.7 < told.interval[1]
    assert told.spread == told.estimated
    assert "only nearly shared" in found.message
    assert np.corrcoef(told.values.ravel(), truth.ravel())[0, 1] > 0.35
    assert np.mean(np.abs(told.values - truth) < 2 * told.errors) > 0.8
    assert 0 < told.choices_moved[1] < told.choices_moved[0] < told.choices_moved[2] < 100
    assert found.objective > told.if_shared["log_likelihood"] + 2
    np.testing.assert_allclose(found.personal_rewards, found.reward + told.values)
    found.to_json(tmp_path / "solution.json")
    again = Solution.from_json(tmp_path / "solution.json", problem)
    np.testing.assert_allclose(again.evidence["deviations"].values, told.values)


@pytest.mark.slow
def test_the_order_of_persons_changes_nothing() -> None:
    problem, _ = study(6, 40, 0.5)
    given = mh.Population(deviations=0.5, nodes=5, tolerance=1e-3)
    one, two = (mh.solve(each, given) for each in (problem, problem.with_experts(reversed(problem.experts))))
    np.testing.assert_allclose(one.discounts[::-1], two.discounts, atol=2e-3)
    values = [each.evidence["deviations"].values for each in (one, two)]
    np.testing.assert_allclose(values[0][::-1], values[1], atol=5e-3)


@pytest.mark.slow
def test_none_are_found_where_there_are_none() -> None:
    problem, _ = study(12, 40, 0.0, seed=2)
    found = mh.solve(problem, mh.Population(deviations="estimated", nodes=7, tolerance=1e-3))
    told = found.evidence["deviations"]
    assert told.p_shared > 0.05
    assert told.spread == 0.0
    assert told.interval[0] == 0.0
    assert not told.values.any()
    assert "One reward for all is not rejected" in found.message
    np.testing.assert_allclose(found.discounts, mh.solve(problem, mh.Population(nodes=7, tolerance=1e-3)).discounts)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"deviations": -1}, "at least 0"),
        ({"deviations": "some"}, "estimated"),
        ({"deviations": 0.5, "distribution": "free"}, "distribution='normal'"),
        ({"deviations": 0.5, "distribution": "types"}, "distribution='normal'"),
    ],
)
def test_what_cannot_be_asked_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mh.Population(**options)


def test_where_they_cannot_be_had_is_said() -> None:
    problem, _ = study(4, 20, 0.0)
    tabular = mh.Problem(MDP, problem.experts[0].table) if problem.experts[0].table is not None else None
    assert tabular is not None
    with pytest.raises(ValueError, match="known in full"):
        mh.solve(tabular, mh.Population(known_reward=np.zeros(STATES), deviations="estimated"))
    frame = problem.experts[0].table.to_frame()  # type: ignore[union-attr]
    frame["condition"] = np.where(frame["episode"].astype(int) % 2 == 0, "a", "b")
    table = mh.Demonstrations.from_frame(frame, conditions=["condition"])
    with pytest.raises(ValueError, match="without conditions"):
        mh.solve(mh.Problem(MDP, table, features=FEATURES), mh.Population("~ condition", deviations=0.5))


@pytest.mark.slow
def test_features_beside_a_known_reward_may_be_deviated_in() -> None:
    problem, _ = study(8, 60, 0.5, known=1.0)
    solver = mh.Population(known_reward=np.arange(float(STATES)), deviations=0.5, nodes=5, tolerance=1e-3)
    found = mh.solve(problem, solver)
    assert str(found.status) == "converged"
    assert found.evidence["deviations"].values.shape == (8, 2)
    np.testing.assert_allclose(found.reward, COMMON, atol=3.0)
