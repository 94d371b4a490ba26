"""Types of people, and of episodes without a name: the likelihood, its derivatives, the search, and how many there are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.population.types import Begun, Simulator, TypesModel, TypesPoint, Units, ascend, one_more, one_type

CLIFF = mh.domains.cliff()


def episodes(*discounts: float, number: int = 300, seed: int = 0) -> mh.Demonstrations:
    """So many unlabelled episodes of each type."""
    policies = [mh.soft_plan(CLIFF.mdp, CLIFF.reward, gamma).policy for gamma in discounts]
    return mh.Demonstrations.simulate(CLIFF.mdp, policies, episodes=number, seed=seed).unnamed()


def model(table: mh.Demonstrations, types: int, reward: Any = None, ridge: float = 0.01) -> TypesModel:
    crowd = mh.Problem(CLIFF.mdp, table)
    return TypesModel(crowd, Units.of(crowd), types, reward, np.full(12, 0.0 if reward is not None else ridge))


def at_truth(model: TypesModel, *discounts: float) -> TypesPoint:
    k = len(discounts)
    point = model.at(model.pack(CLIFF.reward, np.array(discounts), np.ones(k), np.full(k, 1 / k)))
    assert point is not None
    return point


@pytest.mark.parametrize("known", [True, False])
def test_one_type_is_one_expert(known: bool) -> None:
    table = episodes(0.5)
    options: dict[str, Any] = {"known_reward": CLIFF.reward} if known else {"ridge": 0.1}
    found = mh.solve(mh.Problem(CLIFF.mdp, table), mh.Population(distribution="types", types=1, **options))
    counts = table.counts(CLIFF.mdp).sum(axis=0)
    expert = mh.problem.Expert("everybody", CLIFF.mdp, "demonstrations", counts=counts)
    alone = mh.solve(mh.Problem(CLIFF.mdp, [expert]), mh.MaximumLikelihood(temperature="shared", **options))
    assert found.objective == pytest.approx(alone.objective, rel=1e-8)
    assert found.discounts == pytest.approx(alone.discounts[0], abs=1e-3)
    assert found.evidence["population"]["types"]["shares"] == [1.0]


@pytest.mark.parametrize("reward", [None, CLIFF.reward])
def test_gradient_by_differences(reward: Any) -> None:
    own = model(episodes(0.2, 0.8, number=40), 3, reward)
    x = at_truth(own, 0.15, 0.5, 0.8).x + np.where(own.fixed, 0.0, np.linspace(-0.1, 0.1, own.size))
    point = own.at(x)
    assert point is not None
    for j in np.flatnonzero(~own.fixed):
        step = 1e-5 * np.eye(own.size)[j]
        ahead, behind = own.at(x + step), own.at(x - step)
        assert ahead is not None
        assert behind is not None
        assert point.gradient[j] == pytest.approx((ahead.objective - behind.objective) / 2e-5, rel=1e-4, abs=1e-3)


def test_observed_information_by_differences() -> None:
    """What is complete less what is missing is the curvature, but for what vanishes on average where the model is right."""
    own = model(episodes(0.2, 0.8, number=4000), 2)
    point = at_truth(own, 0.2, 0.8)
    complete, missing = point.informations
    free = np.flatnonzero(~own.fixed)
    numeric = np.zeros((own.size, own.size))
    for j in free:
        step = 1e-4 * np.eye(own.size)[j]
        ahead, behind = own.at(point.x + step), own.at(point.x - step)
        assert ahead is not None
        assert behind is not None
        numeric[j] = (behind.gradient - ahead.gradient) / 2e-4
    ours = (complete - missing + point.held)[np.ix_(free, free)]
    scale = np.sqrt(np.outer(np.diag(complete)[free], np.diag(complete)[free]))
    assert np.abs((ours - numeric[np.ix_(free, free)]) / scale).max() < 0.03


def test_weights_sum_to_one_and_a_climb_never_falls() -> None:
    own = model(episodes(0.2, 0.8), 2)
    values = [ascend(at_truth(own, 0.4, 0.6), steps).point.objective for steps in range(8)]
    assert np.all(np.diff(values) >= 0)
    end = ascend(at_truth(own, 0.4, 0.6))
    assert end.finished
    assert end.point.weights.sum() == pytest.approx(1.0, abs=1e-5)
    shares = own.units.times @ end.point.posterior / own.n
    assert shares == pytest.approx(end.point.weights, abs=1e-4)


def test_one_more_type_is_never_less_likely() -> None:
    end = one_type(model(episodes(0.2, 0.8), 1))
    more = one_more(end)
    assert more.finished
    assert more.point.objective > end.point.objective + 20
    assert one_more(more).point.objective > more.point.objective - 1e-3


def test_types_are_found_in_their_order_with_an_unknown_reward(tmp_path: Path) -> None:
    table = episodes(0.8, 0.2, number=1000, seed=4)
    found = mh.solve(mh.Problem(CLIFF.mdp, table), mh.Population(distribution="types", types=2))
    types = found.evidence["population"]["types"]
    assert found.status == mh.Status.CONVERGED
    assert np.abs(np.array(types["discounts"]) - [0.2, 0.8]).max() < 0.15
    assert types["intervals"][0][1] < types["intervals"][1][0]
    posterior = found.evidence["population"]["individuals"]["posterior"]
    assert posterior.shape == (2000, 2)
    assert posterior.sum(axis=1) == pytest.approx(1.0)
    assert posterior[:1000, 1].mean() > 0.65 > 0.35 > posterior[1000:, 1].mean()
    low, high = found.confidence_intervals().T
    assert np.all((low <= found.discounts) & (found.discounts <= high))
    found.to_json(tmp_path / "solution.json")
    again = mh.Solution.from_json(tmp_path / "solution.json")
    assert again.evidence["population"]["individuals"]["posterior"].tolist() == posterior.tolist()
    assert again.evidence["population"]["types"] == types


@pytest.mark.parametrize(("discounts", "types"), [((0.2, 0.8), 2), ((0.5,), None)])
def test_the_answer_does_not_depend_on_order_and_names(discounts: tuple[float, ...], types: int | None) -> None:
    rows = episodes(*discounts, number=150).to_frame()
    solver = mh.Population(distribution="types", types=types)
    problems = [mh.Problem(CLIFF.mdp, mh.Demonstrations.from_frame(rows))]
    states, actions, named = np.random.default_rng(1).permutation(12), np.array([2, 0, 3, 1]), CLIFF.mdp
    turned = mh.MDP(
        [named.stacked.toarray().reshape(4, 12, 12)[a][states][:, states] for a in actions],
        named.initial[states],
        np.flatnonzero(named.terminal[states]),
        state_names=[named.state_names[s] for s in states],
        action_names=[named.action_names[a] for a in actions],
    )
    renamed = rows.assign(expert=[name[::-1] for name in rows["expert"]])
    problems.append(mh.Problem(turned, mh.Demonstrations.from_frame(renamed)))
    first, second = (mh.solve(problem, solver).evidence["population"]["types"] for problem in problems)
    assert first["number"] == second["number"] == len(discounts)
    if types:
        assert first["discounts"] == pytest.approx(second["discounts"], abs=1e-4)
    assert first["shares"] == pytest.approx(second["shares"], abs=1e-4)
    assert [test["simulations"] for test in first["tests"]] == [test["simulations"] for test in second["tests"]]


def test_one_type_with_an_unknown_reward_is_found_but_its_discount_is_not() -> None:
    found = mh.solve(mh.Problem(CLIFF.mdp, episodes(0.5, number=400)), mh.Population(distribution="types"))
    types = found.evidence["population"]["types"]
    assert types["number"] == 1
    assert types["identified"] == [False]
    assert found.status == mh.Status.NOT_IDENTIFIED
    assert "not identified" in found.message
    assert np.isnan(found.confidence_intervals()).all()


@pytest.mark.slow
def test_persons_with_a_known_reward_have_types_with_temperatures() -> None:
    discounts, temperatures = np.where(np.arange(60) < 20, 0.3, 0.9), np.where(np.arange(60) < 20, 1.0, 3.0)
    pairs = zip(discounts, temperatures, strict=True)
    policies = [mh.soft_plan(CLIFF.mdp, CLIFF.reward, *pair).policy for pair in pairs]
    table = mh.Demonstrations.simulate(CLIFF.mdp, policies, episodes=6, seed=5)
    solver = mh.Population(distribution="types", known_reward=CLIFF.reward)
    types = mh.solve(mh.Problem(CLIFF.mdp, table), solver).evidence["population"]["types"]
    assert types["number"] == 2
    assert types["shares"] == pytest.approx([1 / 3, 2 / 3], abs=0.15)
    assert types["discounts"] == pytest.approx([0.3, 0.9], abs=0.12)
    assert types["temperatures"] == pytest.approx([1.0, 3.0], rel=0.4)
    given = mh.solve(mh.Problem(CLIFF.mdp, table), replace(solver, types=2)).evidence["population"]["types"]
    assert given["discounts"] == pytest.approx(types["discounts"], abs=1e-6)


def test_persons_in_two_tasks() -> None:
    other, crowds, problems = mh.domains.cliff(slip=0.3).mdp, [], []
    for seed, mdp in enumerate((CLIFF.mdp, other)):
        policies = [mh.soft_plan(mdp, CLIFF.reward, gamma).policy for gamma in np.repeat([0.2, 0.8], [20, 40])]
        table = mh.Demonstrations.simulate(mdp, policies, episodes=4, seed=seed)
        crowds.append(mh.Problem(mdp, table))
        problems.append(mh.Problem(mdp, table))
    joined = mh.Problem.join(*crowds)
    begun = Begun.of(joined)
    assert begun is not None
    assert np.bincount(begun.task).tolist() == [240, 240]
    solver = mh.Population(distribution="types", types=2)
    found = [mh.solve(problem, solver).evidence["population"]["types"] for problem in (joined, mh.Problem.join(*problems))]
    assert found[0]["discounts"] == pytest.approx([0.2, 0.8], abs=0.15)
    assert found[0]["discounts"] == pytest.approx(found[1]["discounts"], abs=1e-5)
    assert found[0]["shares"] == pytest.approx([1 / 3, 2 / 3], abs=0.15)


def test_simulated_studies_have_the_design_of_the_real_one() -> None:
    table = episodes(0.2, 0.8, number=2000)
    own = model(table, 2)
    begun = Begun.of(own.problem)
    assert begun is not None
    drawn = Simulator(at_truth(own, 0.2, 0.8), begun).draw(np.random.default_rng(0))
    real, made = (np.asarray(crowd.tasks[0].counts.sum(axis=0)) for crowd in (own.problem, drawn))
    assert drawn.n_experts == 4000
    assert made.sum() == pytest.approx(real.sum(), rel=0.05)
    assert np.abs(made - real).max() < 6 * np.sqrt(real.max())


@pytest.mark.slow
def test_p_values_are_calibrated() -> None:
    found = []
    for seed in range(8):
        fit = mh.solve(mh.Problem(CLIFF.mdp, episodes(0.5, number=100, seed=seed)), mh.Population(distribution="types"))
        found.append(fit.evidence["population"]["types"]["tests"][0]["p"])
    assert 0.25 < np.mean(found) < 0.85
    assert np.sum(np.array(found) <= 0.05) <= 3


def test_refusals() -> None:
    table = episodes(0.2, 0.8, number=2)
    problem = mh.Problem(CLIFF.mdp, table)
    with pytest.raises(ValueError, match="types must be"):
        mh.Population(distribution="types", types=0)
    with pytest.raises(ValueError, match="formula '~ 1', got '~ group'"):
        mh.Population("~ group", distribution="types")
    with pytest.raises(ValueError, match="must come with distribution='types'"):
        mh.Population(types=2)
    with pytest.raises(ValueError, match="at least as many units as types, got 4 and 5"):
        mh.solve(problem, mh.Population(distribution="types", types=5))
    bare = problem.with_experts(replace(expert, table=None) for expert in problem.experts)
    with pytest.raises(ValueError, match="simulating episodes"):
        mh.solve(bare, mh.Population(distribution="types"))
    assert mh.solve(bare, mh.Population(distribution="types", types=1)).evidence["population"]["types"]["number"] == 1
    task = problem.tasks[0]
    idle = mh.Problem.of_tasks(problem.names, problem.parameter_names, [replace(task, counts=0 * task.counts)])
    with pytest.raises(ValueError, match="at least one decision"):
        mh.solve(idle, mh.Population(distribution="types", types=1))
    many = mh.domains.cliff(27, 27)
    drawn = mh.Demonstrations.simulate(many.mdp, [mh.soft_plan(many.mdp, many.reward, 0.5).policy], episodes=2).unnamed()
    with pytest.raises(ValueError, match="at most 700 unknown rewards, got 729"):
        mh.solve(mh.Problem(many.mdp, drawn), mh.Population(distribution="types", types=2))
