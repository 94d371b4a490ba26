"""Standard errors and profile intervals against brute force."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import chi2

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.likelihood.intervals import precision, profile_intervals
from multihorizon.likelihood.maximum_likelihood import resume


@pytest.fixture(scope="module")
def solution() -> mh.Solution:
    """Two experts of the cliff with tied rewards, the first of whom does not plan at all."""
    d = mh.domains.cliff()
    ties = np.stack([d.reward == value for value in (-10, -2, -1, 20)], axis=1) / 1.0
    policies = [mh.soft_plan(d.mdp, d.reward, gamma).policy for gamma in (0.0, 0.5)]
    table = mh.Demonstrations.simulate(d.mdp, policies, 300, seed=3)
    return mh.solve(
        mh.Problem(d.mdp, table, features=d.mdp.stacked @ ties), mh.MaximumLikelihood(temperature="shared", ridge=0.0, starts=2)
    )


def brute_profile(point, k: int, value: float) -> float:
    """The likelihood maximised by a general optimiser with one discount fixed."""
    model = point.likelihood
    index = model.n_reward + k
    others = (np.arange(model.size) != index) & ~model.fixed

    def negative(free):
        x = point.x.copy()
        x[others], x[index] = free, value
        here = model.at(x)
        return (1e9, np.zeros(free.size)) if here is None else (-here.objective, -here.gradient[others])

    bounds = list(zip(model.lower[others], model.upper[others], strict=True))
    exact = {"maxiter": 20000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-7}
    best = minimize(negative, point.x[others], jac=True, method="L-BFGS-B", bounds=bounds, options=exact)
    return -float(best.fun)


def test_profile_ends_are_where_brute_force_meets_the_threshold(solution):
    point, target = resume(solution), np.sqrt(chi2.ppf(0.95, 1))
    for k, (low, high) in enumerate(solution.confidence_intervals(0.95)):
        for end in (low, high):
            root = np.sqrt(2 * max(0.0, point.objective - brute_profile(point, k, end)))
            assert root == pytest.approx(target, abs=0.05) or (end in (0.0, 1.0) and root < target)


def test_beside_an_answer_that_is_not_the_maximum_the_interval_is_that_of_the_maximum(solution):
    """With rewards a tenth too large profiles are likelier than this answer; no end is missing for that."""
    best = resume(solution)
    off = best.x.copy()
    off[: best.likelihood.n_reward] *= 1.1
    point = best.likelihood.at(off)
    assert best.objective - point.objective > 0.1
    found = profile_intervals(point, precision(point), np.array([True, True]))
    assert found == pytest.approx(solution.confidence_intervals(0.95), abs=0.01)


def test_interval_at_the_boundary_stops_there(solution):
    low, high = solution.confidence_intervals(0.95)[0]
    assert low == 0.0
    assert 0.0 < high < 0.5


def test_wider_levels_contain_narrower_ones(solution):
    narrow, wide = solution.confidence_intervals(0.5), solution.confidence_intervals(0.99)
    assert (wide[:, 0] <= narrow[:, 0]).all()
    assert (narrow[:, 1] <= wide[:, 1]).all()
    assert (narrow[:, 0] <= solution.discounts).all()
    assert (solution.discounts <= narrow[:, 1]).all()


def test_standard_errors_are_the_inverse_information_and_shrink_with_data(solution):
    point = resume(solution)
    free = np.flatnonzero(~point.likelihood.fixed)
    errors = np.sqrt(np.diag(np.linalg.inv(point.information[np.ix_(free, free)])))
    assert solution.standard_errors == pytest.approx(errors[-2:], rel=1e-6)
    experts = solution.problem.experts
    fourfold = solution.problem.with_experts(replace(expert, counts=4 * expert.counts) for expert in experts)
    quadrupled = Likelihood(fourfold).at(point.x)
    assert precision(quadrupled).standard_errors[free] == pytest.approx(errors / 2, rel=1e-6)


def test_intervals_survive_saving(solution, tmp_path):
    kept = solution.confidence_intervals(0.95)
    solution.to_json(tmp_path / "s.json")
    loaded = mh.Solution.from_json(tmp_path / "s.json")
    assert (loaded.confidence_intervals(0.95) == kept).all()
    with pytest.raises(ValueError, match="read from a file"):
        loaded.confidence_intervals(0.123)


def test_asking_for_intervals_changes_nothing_in_the_solution(solution):
    before = copy.deepcopy(solution.evidence)
    low = solution.confidence_intervals(0.9)
    low[:] = 5.0
    assert solution.evidence == before
    assert (solution.confidence_intervals(0.9) <= 1.0).all()


def test_solvers_without_errors_have_no_intervals(solution):
    other = replace(solution, solver="MPLP", interval_source=None, standard_errors=None)
    with pytest.raises(ValueError, match="need a solution of MaximumLikelihood"):
        other.confidence_intervals(0.95)


@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_bad_levels_are_refused(solution, level):
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        solution.confidence_intervals(level)
