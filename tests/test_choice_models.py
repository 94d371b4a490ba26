"""What every model of choice promises, whatever its states and its look-ahead are."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from test_lookahead import simulated, steps_task

import multihorizon as mh
from multihorizon.choice.deviations import NearlyShared
from multihorizon.choice.model import ChoiceModel, Likelihood, temperature_penalty
from multihorizon.choice.settings import Settings
from multihorizon.choice.sieve_model import SieveData, SieveModel
from multihorizon.choice.weighted import WeightedLikelihood
from multihorizon.likelihood.intervals import precision
from multihorizon.likelihood.search import climb

FREE = Settings(temperatures=np.array([1.0, np.nan]))


def listed() -> Likelihood:
    return Likelihood(simulated(steps_task(), [[1.0, 0.5, 0.25], [1.0, 0.8, 0.64]]), FREE)


def weighted() -> WeightedLikelihood:
    return WeightedLikelihood(simulated(steps_task(), [[1.0, 0.5, 0.25], [1.0, 0.8, 0.64]]), mh.QuasiHyperbolic(), FREE)


def sieve() -> SieveModel:
    steps = mh.domains.navigation().simulate(60, seed=3)
    data = SieveData.of(steps, mh.Splines(4))
    settings = Settings(temperatures=np.array([1.0, np.nan, 1.0]))
    return SieveModel(mh.SampledProblem(steps, data.basis.names), data, settings, 0.1)


def nearly() -> Likelihood:
    return NearlyShared.of(listed(), 0.4)


@pytest.mark.slow
@pytest.mark.parametrize("make", [listed, weighted, sieve, nearly])
def test_models_keep_the_protocol(make: Callable[[], ChoiceModel]) -> None:
    model = make()
    model = model.holding(temperature_penalty(model, 0.5), model.ridge if model.ridge.any() else 0.3)
    rng = np.random.default_rng(1)
    x = model.pack(rng.normal(size=model.n_reward), rng.uniform(0.2, 0.7, model.n_discounts))
    assert (x[model.fixed] == model.known[model.fixed]).all()
    assert ((model.lower <= x) & (x <= model.upper)).all()
    point = model.at(x)
    assert point is not None
    step = np.where(model.fixed, 0.0, 1e-6 * rng.normal(size=model.size))
    change = model.at(x + step, point).objective - model.at(x - step, point).objective
    assert change == pytest.approx(2 * point.gradient @ step, rel=1e-4)
    expected = [batch.visits * plan.policy for batch, plan in zip(model.batches, point.plans, strict=True)]
    assert np.abs(point.pull_back(expected)).max() < 1e-7 * model.decisions  # scores are 0 on average
    np.testing.assert_allclose(point.information, point.information.T, atol=1e-8 * np.abs(point.information).max())
    assert np.linalg.eigvalsh(point.curvature()).min() > -1e-8 * np.abs(point.curvature()).max()
    assert model.sharing((0,) * model.n_experts).n_discounts == model.n_coordinates
    end = climb(point)
    assert end.finished
    assert end.point.objective > point.objective
    assert end.point.projected_gradient() < 1e-5
    assert precision(end.point).variance.min() >= 0
