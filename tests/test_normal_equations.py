"""Large least-squares solves of the action differences: multigrid and factorisation give the same answers."""

import sys
from functools import partial

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.exact import least_squares
from multihorizon.exact.equations import Differences

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


def differences(mdp: mh.MDP, weighted: bool) -> Differences:
    live = mdp.available & ~mdp.terminal[:, None]
    sizes = np.random.default_rng(0).integers(1, 50, live.shape) if weighted else np.ones(live.shape)
    return Differences(mdp, np.where(live, sizes, 0.0))


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("task", TASKS)
def test_multigrid_and_factorisation_give_the_same_solution(task, weighted, monkeypatch) -> None:
    mdp = TASKS[task]()
    log_policy = np.random.default_rng(1).normal(size=(mdp.n_states, mdp.n_actions, 2))
    factored = differences(mdp, weighted)
    assert isinstance(factored.null_space.solvers[0], least_squares.Factored)
    monkeypatch.setattr(least_squares, "FACTORED", 10)
    iterated = differences(mdp, weighted)
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
def test_conjugate_gradients_stop_where_they_were_asked_to(task, tolerance, monkeypatch) -> None:
    monkeypatch.setattr(least_squares, "FACTORED", 10)
    found = differences(TASKS[task](), weighted=True)
    whole = found.null_space.solvers[0]
    solver = least_squares.Multigrid(whole.matrix, whole.gram, whole.labels, coarsest=20)
    right = np.random.default_rng(2).normal(size=found.matrix.shape[0])
    exact = found.matrix @ solver.solve(right, 1e-12)
    left_over = np.linalg.norm(found.matrix @ solver.solve(right, tolerance) - exact)
    assert 1e-3 * tolerance * np.linalg.norm(exact) < left_over < 3 * tolerance * np.linalg.norm(exact)


@pytest.mark.parametrize("task", ["grid", "two rooms", "unavailable actions"])
def test_multigrid_recovers_discounts_and_reward(task, monkeypatch) -> None:
    mdp = TASKS[task]()
    reward = np.random.default_rng(0).normal(size=mdp.n_states)
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS])
    monkeypatch.setattr(least_squares, "FACTORED", 10)
    found = mh.solve(problem, mh.ClosedForm())
    np.testing.assert_allclose(found.discounts, DISCOUNTS, atol=1e-10)
    assert found.status == mh.Status.OPTIMAL


@pytest.mark.parametrize("factored", [10, 10_000])
def test_a_larger_null_space_is_noticed(factored, monkeypatch) -> None:
    """Two actions in half of the states and one in the others give fewer rows than columns."""
    dense = mh.domains.random_mdp(200, 2, branching=4, seed=0)
    available = np.ones((200, 2), dtype=bool)
    available[::2, 1] = False
    mdp = mh.MDP([dense.transition(a) for a in range(2)], available=available)
    monkeypatch.setattr(least_squares, "FACTORED", factored)
    found = differences(mdp, weighted=False)
    assert not found.null_space.solvers
    assert found.null_space.basis.shape[1] > 1
    assert np.abs(found.matrix @ found.null_space.basis).max() < 1e-12


def test_the_factorisation_takes_over_where_multigrid_does_not_converge(monkeypatch) -> None:
    monkeypatch.setattr(least_squares, "FACTORED", 10)
    monkeypatch.setattr(least_squares, "Multigrid", partial(least_squares.Multigrid, max_iter=1))
    assert isinstance(differences(TASKS["grid"](), weighted=False).null_space.solvers[0], least_squares.Factored)


def test_large_tasks_are_solved_without_pyamg(monkeypatch) -> None:
    mdp = TASKS["grid"]()
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, np.arange(625) % 7, gamma).policy for gamma in DISCOUNTS])
    monkeypatch.setattr(least_squares, "FACTORED", 10)
    monkeypatch.setitem(sys.modules, "pyamg", None)
    assert isinstance(differences(mdp, weighted=False).null_space.solvers[0], least_squares.Factored)
    np.testing.assert_allclose(mh.solve(problem, mh.ClosedForm()).discounts, DISCOUNTS, atol=1e-10)
