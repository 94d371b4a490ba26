"""What every analysis asks of an answer with its uncertainty, whoever estimated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tiny import tiny_solutions

import multihorizon as mh
from multihorizon.estimate import Exact, ExpertValues, NormalEstimate, NoUncertaintyError
from multihorizon.parallel import silent
from multihorizon.questions.posterior import sampled_estimate
from multihorizon.report.pages import write_whatif
from multihorizon.solution import Evidence

CLIFF, DISCOUNTS = mh.domains.cliff(), np.array([0.3, 0.5, 0.7])


@dataclass(frozen=True, eq=False, kw_only=True)
class GridEvidence(Evidence, solvers=("OnGrid",)):
    """What the solver of a stranger says."""

    likelihoods: list[float]


@dataclass(frozen=True)
class OnGrid:
    """A solver that is not of the library: the likeliest discount of a grid for a known reward, with the curvature there."""

    step: float = 0.02

    def solve(self, problem, seed=0, progress=silent):
        grid = np.arange(self.step, 1.0, self.step)
        plans = [np.log(np.maximum(mh.soft_plan(CLIFF.mdp, CLIFF.reward, gamma).policy, 1e-300)) for gamma in grid]
        values = np.array([[float((expert.counts * log).sum()) for log in plans] for expert in problem.experts])
        best, rows = values.argmax(axis=1).clip(1, grid.size - 2), np.arange(len(values))
        bend = (2 * values[rows, best] - values[rows, best - 1] - values[rows, best + 1]) / self.step**2
        answer = ExpertValues(problem.names, CLIFF.reward, grid[best], np.ones(len(best)), problem.parameter_names)
        estimate = NormalEstimate(answer, np.diag(np.concatenate([0 * CLIFF.reward, 1 / bend])))
        evidence = GridEvidence(likelihoods=values.max(axis=1).tolist())
        status, words, top = mh.Status.CONVERGED, ["The likeliest place of a grid."], float(values.max(axis=1).sum())
        how = {"objective": top, "residual": 0.0, "evidence": evidence, "standard_errors": 1 / np.sqrt(bend)}
        return mh.Solution.of("OnGrid", problem, estimate, status, words, **how)


@cache
def strange() -> mh.Solution:
    policies = [mh.soft_plan(CLIFF.mdp, CLIFF.reward, gamma).policy for gamma in DISCOUNTS]
    demonstrations = mh.Demonstrations.simulate(CLIFF.mdp, policies, episodes=300, names=["near", "middle", "far"])
    return mh.solve(mh.Problem(CLIFF.mdp, demonstrations), OnGrid())


def test_a_solver_of_your_own_has_intervals_and_tables() -> None:
    solution = strange()
    low, high = solution.confidence_intervals(0.95).T
    assert (low <= DISCOUNTS).all()
    assert (high >= DISCOUNTS).all()
    assert (high - low < 0.5).all()
    np.testing.assert_allclose(solution.estimate.interval("discount of far"), [low[2], high[2]])
    assert {"discount_low", "discount_high"} <= set(solution.to_frame(0.95))
    assert "95" in str(solution)
    assert "<table" in solution._repr_html_()


def test_a_solver_of_your_own_has_predictions_with_intervals_and_a_page(tmp_path: Path) -> None:
    prediction = mh.predict(strange(), pay={"4": 2.0}, draws=50)
    live = np.broadcast_to(CLIFF.mdp.live, prediction.after.shape)
    assert prediction.status == ("identified",) * 3
    assert (prediction.low[live] <= prediction.after[live] + 0.01).all()
    assert (prediction.high - prediction.low)[live].max() > 0.005
    assert not any("no intervals" in remark for remark in prediction.remarks)
    bonus = mh.nudge(strange(), state="4", action="right", chance=0.9, draws=20)
    assert np.isfinite(bonus.low).any()
    files = write_whatif(tmp_path, prediction, {"result": "mine"})
    assert "near" in (tmp_path / files[-1]).read_text(encoding="utf-8")


def test_a_solution_of_your_own_is_read_back_with_its_evidence_and_its_errors(tmp_path: Path) -> None:
    solution = strange()
    solution.to_json(tmp_path / "s.json")
    back = mh.Solution.from_json(tmp_path / "s.json", solution.problem)
    assert isinstance(back.evidence, GridEvidence)
    assert back.evidence.likelihoods == solution.evidence["likelihoods"]
    assert back.solver_used() == OnGrid()
    np.testing.assert_allclose(back.confidence_intervals(0.9), solution.confidence_intervals(0.9))
    first, again = (mh.predict(one, forbid={"4": "right"}, draws=30) for one in (solution, back))
    np.testing.assert_array_equal(first.low, again.low)


def test_a_study_can_be_designed_around_the_guess_of_a_solver_of_your_own() -> None:
    planned = mh.design(CLIFF.mdp, strange(), draws=4)
    assert planned.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["lists", pytest.param("deviations", marks=pytest.mark.slow), "population"])
def test_every_estimate_answers_by_name(kind: str) -> None:
    solution = tiny_solutions()[kind].solution
    estimate = solution.estimate
    size = len(estimate.names)
    assert estimate.values.shape == estimate.standard_errors.shape == (size,)
    assert estimate.covariance().shape == (size, size)
    assert len(set(estimate.names)) == size
    for place in np.flatnonzero(np.isfinite(estimate.standard_errors)):
        name = estimate.names[place]
        low, high = estimate.interval(name)
        if kind == "deviations" and name.startswith("discount"):
            assert np.isnan([low, high]).all(), name  # which is not found next to deviations that are this large
        else:
            assert low <= estimate.values[place] <= high, name
        value, error = estimate.contrast({name: 1.0})
        assert (value, error) == pytest.approx((estimate.values[place], estimate.standard_errors[place]))
        there, error = estimate.delta(lambda x, place=place: float(2 * x[place]))
        assert there == pytest.approx(2 * estimate.values[place])
        assert error == pytest.approx(2 * np.sqrt(max(estimate.covariance()[place, place], 0.0)), abs=1e-6)
    drawn = estimate.draw(2000, np.random.default_rng(0))
    assert drawn.discounts.shape == (len(solution.experts), 2000)
    off = np.abs(np.median(drawn.discounts, axis=1) - solution.discounts)
    assert (off <= np.nan_to_num(0.02 + 0.5 * solution.standard_errors, nan=0.2)).all()
    with pytest.raises(ValueError, match="name must be a parameter"):
        estimate.interval("nothing")


def test_an_exact_answer_says_that_it_has_no_error() -> None:
    problem = mh.Problem(CLIFF.mdp, CLIFF.soft_experts())
    estimate = mh.solve(problem, mh.MCE(discount=0.4)).estimate
    assert isinstance(estimate, Exact)
    assert estimate.is_exact
    assert estimate.ambiguity(needs_reward=True)
    assert not estimate.ambiguity(needs_reward=False)
    with pytest.raises(NoUncertaintyError, match="MCE has no standard errors"):
        estimate.draw(2, np.random.default_rng(0))


def test_open_directions_have_no_standard_error_and_are_told_apart_from_what_is_known() -> None:
    answer = ExpertValues(("a",), np.array([1.0, 2.0]), np.array([0.5]), np.ones(1), ("x", "y"))
    open_ = np.array([[1.0], [1.0], [0.0]]) / np.sqrt(2)
    covariance = 0.01 * (np.eye(3) - open_ @ open_.T)
    estimate = NormalEstimate(answer, covariance, open_)
    assert np.isnan(estimate.standard_errors[:2]).all()
    assert np.isfinite(estimate.standard_errors[2])
    assert estimate.contrast({"reward of x": 1.0, "reward of y": -1.0})[1] == pytest.approx(np.sqrt(0.02))
    assert np.isnan(estimate.contrast({"reward of x": 1.0})).all()
    pairs = estimate.pairs()
    assert pairs is not None
    assert pairs.draws.reward.shape == (2, 4)
    drawn = estimate.draw(100, np.random.default_rng(0)).reward
    np.testing.assert_allclose(drawn.sum(axis=0), 3.0)


def test_a_solution_is_predicted_with_the_draws_of_a_posterior() -> None:
    solution, rng = strange(), np.random.default_rng(0)
    drawn = rng.normal(solution.discounts, [0.01, 0.02, 0.03], (4, 250, 3))
    estimate = sampled_estimate({"posterior": {"discount": drawn}}, solution)
    errors = dict(zip(estimate.names, estimate.standard_errors, strict=True))
    np.testing.assert_allclose([errors[f"discount of {name}"] for name in solution.experts], [0.01, 0.02, 0.03], rtol=0.1)
    np.testing.assert_allclose(estimate.interval("discount of far"), solution.discounts[2] + [-0.06, 0.06], atol=0.01)
    believed = replace(solution, interval_source=estimate)
    wide, narrow = (mh.predict(one, pay={"4": 2.0}, draws=100) for one in (solution, believed))
    assert (narrow.high - narrow.low)[0].max() < (wide.high - wide.low)[0].max()
    assert replace(solution, interval_source=None, standard_errors=None).estimate.is_exact
