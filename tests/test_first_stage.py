"""The first stage of states that are vectors: its penalised least squares, what is chosen, and fast cars."""

import numpy as np
import pytest
import scipy.sparse as sp

import multihorizon as mh
from multihorizon.choice.sieve_model import (
    LeastSquares,
    SmoothedSystem,
    Smoothing,
    fit_basis,
    fit_outcomes,
    step_sums,
    unsmoothed,
)


@pytest.fixture(scope="module")
def problem():
    """Features, actions and targets of 200 steps with three actions, the last of them rare."""
    rng = np.random.default_rng(0)
    states = rng.uniform(size=(200, 1))
    inputs = fit_basis(mh.Splines(6), states, ["x"])
    action = np.minimum(rng.integers(0, 20, 200) // 9, 2)
    targets = np.column_stack([np.sin(6 * states[:, 0]) + 0.1 * action, states[:, 0] ** 2]) + 0.1 * rng.normal(size=(200, 2))
    return inputs, inputs(states), action, sp.csr_array(targets)


def objective(coefficients, features, action, targets, smoothing: Smoothing) -> float:
    """What the coefficients are to minimise, written out."""
    rows, mean = features.toarray(), coefficients.mean(axis=0)
    predicted = np.stack([rows[i] @ coefficients[a] for i, a in enumerate(action)])
    total = ((targets.toarray() - predicted) ** 2).sum() + smoothing.common * len(coefficients) * _form(mean, smoothing.rough)
    for own in coefficients:
        total += smoothing.own * _form(own - mean, smoothing.rough) + smoothing.pooling * ((own - mean) ** 2).sum()
    return float(total)


def _form(c, matrix) -> float:
    return float((c * (matrix @ c)).sum())


@pytest.mark.parametrize("weights", [(0.3, 0.3, 0.0), (0.1, 2.0, 0.5), (1.0, 0.2, 3.0)])
def test_coefficients_minimise_the_objective(problem, weights) -> None:
    inputs, features, action, targets = problem
    smoothing = Smoothing(inputs, inputs.transformer.second_differences(), *weights)
    sums = step_sums(features, action, targets, 3)
    found = SmoothedSystem(sums.grams, smoothing).solve(sums.loads)
    least = objective(found, features, action, targets, smoothing)
    rng = np.random.default_rng(1)
    for _ in range(5):
        step = rng.normal(size=found.shape)
        slopes = [(objective(found + t * step, features, action, targets, smoothing) - least) / t for t in (1e-4, -1e-4)]
        assert slopes[0] > 0 > slopes[1]
        assert sum(slopes) == pytest.approx(0, abs=1e-5)
    errors = targets.toarray() - np.stack([features[[i]].toarray()[0] @ found[a] for i, a in enumerate(action)])
    assert sums.error(found) == pytest.approx(float((errors**2).sum()))


def test_without_weights_each_action_is_alone(problem) -> None:
    inputs, features, action, targets = problem
    sums = step_sums(features, action, targets, 3)
    found = SmoothedSystem(sums.grams, unsmoothed(inputs)).solve(sums.loads)
    for a in range(2):
        rows = np.flatnonzero(action == a)
        alone = np.linalg.lstsq(features[rows].toarray(), targets[rows].toarray(), rcond=None)[0]
        np.testing.assert_allclose(found[a], alone, atol=1e-5)


def test_the_solution_is_a_symmetric_map(problem) -> None:
    """Standard errors use the same map backwards."""
    inputs, features, action, targets = problem
    smoothing = Smoothing(inputs, inputs.transformer.second_differences(), 0.1, 1.0, 0.4)
    solve = SmoothedSystem(step_sums(features, action, targets, 3).grams, smoothing).solve
    a, b = np.random.default_rng(2).normal(size=(2, 3, 6, 1))
    assert float((a * solve(b)).sum()) == pytest.approx(float((b * solve(a)).sum()))


def test_pooling_draws_a_rare_action_to_the_others(problem) -> None:
    inputs, features, action, targets = problem
    sums = step_sums(features, action, targets, 3)
    far = []
    for pooling in (0.01, 1.0, 1000.0):
        found = SmoothedSystem(sums.grams, Smoothing(inputs, np.zeros((6, 6)), pooling=pooling)).solve(sums.loads)
        far.append(np.abs(found[2] - found[:2].mean(axis=0)).max())
    assert far[0] > far[1] > far[2]
    assert far[2] < 0.05


def test_second_differences_are_of_neighbours() -> None:
    """Coefficients that are linear in both coordinates are not rough; a product of pairs has a block for each pair."""
    states = np.random.default_rng(0).uniform(size=(300, 3))
    two = mh.Splines(5).fit(states[:, :2])
    i, j = np.divmod(np.arange(25.0), 5)
    assert np.abs(two.second_differences() @ (2 * i - 3 * j + 1)).max() < 1e-12
    bent = i**2
    assert bent @ two.second_differences() @ bent == pytest.approx(5 * 3 * 4)
    three = mh.Splines(8).fit(states)
    assert three.second_differences().shape == (192, 192)
    labels = mh.Splines(4, [0, 0]).fit(np.eye(2)[[0, 1, 1, 0]])
    assert not labels.second_differences().any()


def fast(seed: int, noise: float) -> mh.Steps:
    """A place and a speed: in one step the place moves by eight times the speed, and an action changes the speed a little."""
    rng = np.random.default_rng(seed)
    states = np.column_stack([rng.uniform(size=3000), rng.uniform(-0.1, 0.1, 3000)])
    action = rng.integers(0, 2, 3000)
    speed = states[:, 1] + 0.005 * (2 * action - 1)
    after = np.column_stack([(states[:, 0] + 8 * speed + noise * rng.normal(size=3000)) % 1, speed])
    columns = {"expert": rng.integers(0, 2, 3000), "episode": np.arange(3000), "step": np.zeros(3000, dtype=np.int64)}
    return mh.Steps(
        **columns,
        action=action,
        states=states,
        next_states=after,
        terminated=np.zeros(3000, dtype=np.bool_),
        experts=("a", "b"),
        episodes=tuple(str(i) for i in range(3000)),
        actions=("down", "up"),
        coordinates=("place", "speed"),
        sources=(0, 1),
    )


@pytest.mark.slow
def test_what_follows_a_fast_state_needs_finer_functions() -> None:
    steps, fresh = fast(0, 0.02), fast(1, 0.02)
    basis = fit_basis(mh.Splines(6), steps.states, steps.coordinates)
    stage = fit_outcomes(steps, basis)
    assert isinstance(stage, LeastSquares)
    assert stage.smoothing.inputs.transformer.size > 6
    alone = fit_outcomes(steps, basis, smoothing=unsmoothed(basis))
    errors = []
    for found in (stage, alone):
        rows = found.rows(fresh.states)
        predicted = np.stack([rows[a][[i]].toarray()[0] @ found.paid[a] for i, a in enumerate(fresh.action[:500])])
        errors.append(float(((predicted - basis(fresh.next_states[:500]).toarray()) ** 2).sum()))
    assert errors[0] < 0.6 * errors[1]


def test_labels_are_not_smoothed() -> None:
    domain = mh.domains.cliff()
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes=30, seed=1).to_frame()
    steps = mh.Steps.from_frame(table.assign(state="s" + table.state, next_state="s" + table.next_state), ["state"])
    basis = fit_basis(mh.Splines(4, steps.sources), steps.states, steps.coordinates)
    stage = fit_outcomes(steps, basis)
    assert isinstance(stage, LeastSquares)
    assert stage.smoothing.inputs is basis
    assert (stage.smoothing.common, stage.smoothing.own, stage.smoothing.pooling) == (0, 0, 0)
