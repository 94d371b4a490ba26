"""Large least-squares solves of the action differences: three ways give the same answers."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from posing import identified

import multihorizon as mh
from multihorizon.exact import least_squares
from multihorizon.exact.equations import Differences
from multihorizon.exact.least_squares import SizeLimits

DISCOUNTS = (0.3, 0.6, 0.9)


def walled() -> mh.MDP:
    """Two rooms that no move connects, so that null(D) holds a constant for each."""
    return mh.domains.gridworld(24, 25, slip=0.2, walls=[(i, 12) for i in range(24)], terminal=[(0, 0)])


def masked() -> mh.MDP:
    """A grid on which some actions are not available."""
    grid = mh.domains.gridworld(24, 24, slip=0.2, terminal=[(0, 0)])
    available = np.random.default_rng(3).random((576, 4)) < 0.9
    available[available.sum(axis=1) < 2] = True
    return mh.MDP([grid.transition(a) for a in range(4)], terminal=grid.terminal, available=available)


TASKS = {
    "grid": lambda: mh.domains.gridworld(25, 25, slip=0.1, terminal=[(12, 12)]),
    "no ending": lambda: mh.domains.gridworld(25, 25, slip=0.1),
    "two rooms": walled,
    "unavailable actions": masked,
    "random": lambda: mh.domains.random_mdp(500, 4, branching=3, seed=1),
}


def differences(mdp: mh.MDP, weighted: bool, **limits) -> Differences:
    live = mdp.available & ~mdp.terminal[:, None]
    sizes = np.random.default_rng(0).integers(1, 50, live.shape) if weighted else np.ones(live.shape)
    return Differences(mdp, np.where(live, sizes, 0.0), SizeLimits(**limits))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("states", "actions", "branching"), [(400, 3, 4), (700, 4, 8), (500, 3, 3)])
def test_conjugate_gradients_on_scaled_columns_give_the_solution_of_the_factorisation(
    states, actions, branching, weighted
) -> None:
    mdp = mh.domains.random_mdp(states, actions, branching, n_terminal=2, seed=1)
    log_policy = np.random.default_rng(1).normal(size=(mdp.n_states, mdp.n_actions, 3))
    scaled = differences(mdp, weighted)
    assert isinstance(scaled.null_space.solvers[0], least_squares.Scaled)
    factored = differences(mdp, weighted, scaled=False)
    assert isinstance(factored.null_space.solvers[0], least_squares.Factored)
    np.testing.assert_array_equal(scaled.null_space.basis, factored.null_space.basis)
    size = np.abs(factored.solve(log_policy)).max()
    np.testing.assert_allclose(scaled.solve(log_policy), factored.solve(log_policy), atol=1e-12 * size, rtol=0)
    rough, exact = scaled.solve(log_policy, rough=True), scaled.solve(log_policy)
    gaps = [np.linalg.norm(scaled.matrix @ (rough - exact)[:, i]) / np.linalg.norm(scaled.matrix @ exact[:, i]) for i in range(3)]
    assert 1e-6 < max(gaps) < 0.1
    values = np.linalg.svd(scaled.matrix.toarray(), compute_uv=False)
    smallest = values[states - scaled.null_space.basis.shape[1] - 1]  # besides those of the constants
    assert smallest * 0.999 < scaled.null_space.solvers[0].smallest < 10 * smallest


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_multigrid_and_factorisation_give_the_same_solution(task, weighted) -> None:
    mdp = TASKS[task]()
    log_policy = np.random.default_rng(1).normal(size=(mdp.n_states, mdp.n_actions, 2))
    factored = differences(mdp, weighted, scaled=False)
    assert isinstance(factored.null_space.solvers[0], least_squares.Factored)
    iterated = differences(mdp, weighted, scaled=False, factored=10)
    assert isinstance(iterated.null_space.solvers[0], least_squares.Multigrid)
    np.testing.assert_array_equal(iterated.null_space.basis, factored.null_space.basis)
    apart = iterated.solve(log_policy) - factored.solve(log_policy)
    apart -= factored.null_space.basis @ np.linalg.lstsq(factored.null_space.basis, apart, rcond=None)[0]
    assert np.abs(apart).max() <= 1e-9 * np.abs(factored.solve(log_policy)).max()
    rough = iterated.solve(log_policy, rough=True)
    exact = iterated.solve(log_policy)
    assert np.linalg.norm(iterated.matrix @ (rough - exact)) <= 0.2 * np.linalg.norm(iterated.matrix @ exact)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-5])
def test_conjugate_gradients_stop_where_they_were_asked_to(task, tolerance) -> None:
    found = differences(TASKS[task](), weighted=True, scaled=False, factored=10)
    whole = found.null_space.solvers[0]
    solver = least_squares.Multigrid(whole.matrix, whole.gram, whole.labels, coarsest=20)
    right = np.random.default_rng(2).normal(size=found.matrix.shape[0])
    exact = found.matrix @ solver.solve(right, 1e-12)
    left_over = np.linalg.norm(found.matrix @ solver.solve(right, tolerance) - exact)
    assert 1e-3 * tolerance * np.linalg.norm(exact) < left_over < 3 * tolerance * np.linalg.norm(exact)


@pytest.mark.parametrize("task", ["grid", "two rooms", "unavailable actions"])
def test_multigrid_recovers_discounts_and_reward(task) -> None:
    mdp = TASKS[task]()
    reward = np.random.default_rng(0).normal(size=mdp.n_states)
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS])
    found = identified(problem, limits=SizeLimits(factored=10))
    np.testing.assert_allclose(found.discounts, DISCOUNTS, atol=1e-10)
    assert found.status == "unique"


@pytest.mark.parametrize(("factored", "states"), [(10, 200), (10_000, 200), (10_000, 400)])
def test_a_larger_null_space_is_noticed(factored, states) -> None:
    """Two actions in half of the states and one in the others give fewer rows than columns."""
    dense = mh.domains.random_mdp(states, 2, branching=4, seed=0)
    available = np.ones((states, 2), dtype=bool)
    available[::2, 1] = False
    mdp = mh.MDP([dense.transition(a) for a in range(2)], available=available)
    found = differences(mdp, weighted=False, factored=factored)
    assert not found.null_space.solvers
    assert found.null_space.basis.shape[1] > 1
    assert np.abs(found.matrix @ found.null_space.basis).max() < 1e-12


def test_conjugate_gradients_refuse_a_null_space_that_they_do_not_know() -> None:
    """Two states that are entered together, with equal chances, cannot be told apart; all others can."""
    found = differences(mh.domains.random_mdp(400, 3, branching=6, seed=0), weighted=False)
    twin = sp.csr_array(sp.hstack([found.matrix, found.matrix[:, [7]]]))
    assert least_squares.Scaled(found.matrix, np.zeros(400, dtype=np.int64)).smallest > 0.01
    with pytest.raises(least_squares.NotSolvedError):
        least_squares.Scaled(twin, np.zeros(401, dtype=np.int64))


def test_the_factorisation_takes_over_where_multigrid_does_not_converge() -> None:
    found = differences(TASKS["grid"](), weighted=False, factored=10, multigrid_steps=1)
    assert isinstance(found.null_space.solvers[0], least_squares.Factored)


def test_large_tasks_are_solved_without_pyamg(monkeypatch) -> None:
    mdp = TASKS["grid"]()
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, np.arange(625) % 7, gamma).policy for gamma in DISCOUNTS])
    monkeypatch.setitem(sys.modules, "pyamg", None)
    assert isinstance(differences(mdp, weighted=False, factored=10).null_space.solvers[0], least_squares.Factored)
    np.testing.assert_allclose(identified(problem, limits=SizeLimits(factored=10)).discounts, DISCOUNTS, atol=1e-10)
