"""The most likely weights of a mixture: the gap bounds what is left, and the answer depends on nothing else."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.optimize import minimize

from multihorizon.checks import Floats, Ints
from multihorizon.numerics.mixture import _blocks, fit_mixture
from multihorizon.parallel import Run

CENTRES = np.linspace(-4, 4, 33)


def normal_log(data: Floats, centres: Floats, deviation: float) -> Floats:
    log: Floats = -0.5 * ((data[:, None] - centres) / deviation) ** 2
    return log


def some_rows(n: int = 80, deviation: float = 0.5, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return normal_log(rng.normal(size=n) + deviation * rng.normal(size=n), CENTRES, deviation)


def value(log: Floats, weights: Floats) -> float:
    return float(np.logaddexp.reduce(log + np.log(np.maximum(weights, 1e-300)), axis=1).sum())


def brute_force(log: Floats) -> float:
    """The maximum by another method: sequential least squares under the constraints, from the uniform weights."""
    size = log.shape[1]

    def loss(weights: Floats) -> tuple[float, Floats]:
        total = np.logaddexp.reduce(log + np.log(np.maximum(weights, 1e-300)), axis=1)
        return -float(total.sum()), -np.exp(log - total[:, None]).sum(axis=0)

    sums = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
    options = {"maxiter": 2000, "ftol": 1e-14}
    found = minimize(
        loss, np.full(size, 1 / size), jac=True, method="SLSQP", bounds=[(0, 1)] * size, constraints=sums, options=options
    )
    return value(log, np.maximum(found.x, 0) / np.maximum(found.x, 0).sum())


def part(log: Floats, rows: Ints, columns: Ints) -> Floats:
    found: Floats = log[np.ix_(rows, columns)]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_maximum_is_that_of_another_method(seed: int) -> None:
    log = some_rows(60, seed=seed)
    found, best = fit_mixture(log, tol=1e-9), brute_force(log)
    assert found.converged
    assert found.log_likelihood == pytest.approx(value(log, found.weights), abs=1e-9)
    assert best <= found.log_likelihood + found.gap + 1e-9
    assert found.log_likelihood == pytest.approx(best, abs=1e-4)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_a_search_that_is_given_up_says_how_far_it_may_be_from_the_maximum(rounds: int) -> None:
    log = some_rows(5000, 0.3)
    full, stopped = fit_mixture(log, tol=1e-9), fit_mixture(log, tol=1e-9, max_rounds=rounds)
    assert full.converged
    assert not stopped.converged
    assert full.log_likelihood - stopped.log_likelihood <= stopped.gap


def test_the_conditions_of_a_maximum_hold() -> None:
    log = some_rows(3000)
    found = fit_mixture(log, tol=1e-9)
    direct = np.exp(log - np.logaddexp.reduce(log + np.log(found.weights + 1e-300), axis=1)[:, None]).mean(axis=0) - 1
    assert found.weights.sum() == pytest.approx(1)
    assert (found.weights >= 0).all()
    np.testing.assert_allclose(found.excess, direct, atol=1e-10)
    assert found.gap == pytest.approx(len(log) * np.log1p(direct.max()), abs=1e-6)
    assert np.abs(found.excess[found.weights > 1e-6]).max() < 1e-4
    assert (found.weights > 0).sum() < 20


def test_rows_and_components_may_come_in_any_order() -> None:
    log, rng = some_rows(200), np.random.default_rng(3)
    rows, columns = rng.permutation(200), rng.permutation(CENTRES.size)
    found, other = fit_mixture(log, tol=1e-10), fit_mixture(log[np.ix_(rows, columns)], tol=1e-10)
    assert other.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-6)
    np.testing.assert_allclose(other.weights, found.weights[columns], atol=1e-3)


def test_two_planted_components_are_found_with_their_weights() -> None:
    rng = np.random.default_rng(1)
    truth = np.where(rng.random(4000) < 0.3, -2.0, 1.0)
    found = fit_mixture(normal_log(truth + 0.3 * rng.normal(size=truth.size), CENTRES, 0.3))
    near = {centre: found.weights[np.abs(CENTRES - centre) < 0.3].sum() for centre in (-2.0, 1.0)}
    assert near[-2.0] == pytest.approx(0.3, abs=0.03)
    assert near[-2.0] + near[1.0] > 0.98


@pytest.mark.slow
def test_blocks_and_processes_give_the_same_digits() -> None:
    rng = np.random.default_rng(0)
    log = normal_log(rng.normal(size=60_000) + 0.5 * rng.normal(size=60_000), np.linspace(-4, 4, 150), 0.5)
    assert len(_blocks(*log.shape)) == 3
    whole, asked = fit_mixture(log), fit_mixture(partial(part, log), log.shape)
    shared = fit_mixture(partial(part, log), log.shape, run=Run(jobs=2))
    assert whole.log_likelihood == asked.log_likelihood == shared.log_likelihood
    assert whole.gap == asked.gap == shared.gap
    np.testing.assert_array_equal(whole.weights, shared.weights)


def test_hopeless_components_and_copies_do_no_harm() -> None:
    rng = np.random.default_rng(2)
    log = some_rows(400, 0.5)
    odd = np.concatenate([log, log[:, ::2], log - 1e4], axis=1) - rng.exponential(1e4, size=(400, 1))
    plain, found = fit_mixture(log, tol=1e-9), fit_mixture(odd, tol=1e-9)
    assert found.converged
    assert found.rows - odd.max(axis=1) == pytest.approx(plain.rows - log.max(axis=1), abs=1e-3)
    # everyone has a component of their own, and a likelihood of 0 or exp(−10⁴) everywhere else
    for floor in (-np.inf, -1e4):
        apart = fit_mixture(np.where(np.arange(3000)[:, None] % 50 == np.arange(50), 0.0, floor))
        assert apart.converged
        np.testing.assert_allclose(apart.weights, 1 / 50, rtol=1e-3)


def test_a_row_that_no_sample_sees_is_covered() -> None:
    log = np.full((5000, 3), -np.inf)
    log[:, 0], log[7] = 0.0, (-np.inf, -5e4, -np.inf)
    found = fit_mixture(log)
    np.testing.assert_allclose(found.weights, [4999 / 5000, 1 / 5000, 0], atol=1e-6)


def test_weights_to_start_from_lead_to_the_same_maximum() -> None:
    log = some_rows(3000)
    found = fit_mixture(log, tol=1e-9)
    again = fit_mixture(log, tol=1e-9, start=found.weights)
    assert again.rounds == 1
    assert again.log_likelihood == pytest.approx(found.log_likelihood, abs=1e-6)


@pytest.mark.parametrize(
    ("log", "more", "words"),
    [
        (np.array([[0.0, np.nan]]), {}, "NaN"),
        (np.array([[0.0, np.inf]]), {}, "infinity"),
        (np.array([[-np.inf, -np.inf]]), {}, "possible under some component"),
        (np.zeros((0, 3)), {}, "rows and components"),
        (np.zeros((2, 3)), {"tol": 0.0}, "tol"),
        (np.zeros((2, 3)), {"start": np.array([1.0, -1.0, 0.0])}, "start must be 3 weights"),
    ],
)
def test_what_cannot_be_used_is_refused(log: Floats, more: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit_mixture(log, **more)  # type: ignore[arg-type]
