"""Many states that no action distinguishes: sparse null spaces give the answers of dense ones, and large tables do not fail."""

import numpy as np
import pytest
import scipy.sparse as sp
from posing import identified

import multihorizon as mh
from multihorizon.exact import identify as explanation
from multihorizon.exact import least_squares
from multihorizon.exact.equations import Differences
from multihorizon.exact.identify import Identification
from multihorizon.exact.least_squares import SizeLimits

DISCOUNTS = np.array([0.3, 0.6, 0.85])


def single_actions(side: int, slip: float, share: float) -> mh.MDP:
    """A grid in which a share of the states has one action: null(D) is constant on very many parts."""
    rng = np.random.default_rng(0)
    grid = mh.domains.gridworld(side, side, slip=slip, terminal=[(0, side - 1)])
    available = np.array(grid.available)
    for state in np.flatnonzero(rng.random(grid.n_states) < share):
        available[state] = np.arange(4) == rng.integers(4)
    return mh.MDP([grid.transition(a) for a in range(4)], terminal=grid.terminal, available=available)


def few_equations(n_states: int, reach: int = 10) -> mh.MDP:
    """Moves to random neighbours, two actions in half of the states: fewer equations than unknowns everywhere."""
    rng = np.random.default_rng(0)
    start = np.repeat(np.arange(n_states), 4)
    moves = []
    for _ in range(2):
        end = (start + rng.integers(-reach, reach + 1, start.size)) % n_states
        counts = sp.csr_array((rng.random(start.size), (start, end)), shape=(n_states, n_states))
        moves.append(sp.csr_array(sp.diags_array(1 / counts.sum(axis=1)) @ counts))
    available = np.ones((n_states, 2), dtype=bool)
    available[rng.random(n_states) < 0.5, 1] = False
    return mh.MDP(moves, available=available)


def problem(mdp: mh.MDP) -> tuple[mh.Problem, np.ndarray]:
    reward = np.random.default_rng(1).normal(size=mdp.n_states)
    return mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in DISCOUNTS]), reward


def errors(found: Identification, reward: np.ndarray) -> np.ndarray:
    """Errors of the identified rewards, without the constant that stays free."""
    apart = (found.reward - reward)[found.reward_identified]
    return apart - apart.mean() if found.free_constant else apart


TASKS = {
    "corridors": lambda: single_actions(12, 0.0, 0.5),
    "slip": lambda: single_actions(12, 0.1, 0.5),
    "few equations": lambda: few_equations(80),
}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_a_sparse_null_space_gives_the_answer_of_a_dense_one(task):
    posed, reward = problem(TASKS[task]())
    dense = mh.identify(posed)
    sparse = identified(posed, limits=SizeLimits(largest_dense=10, entries=0))
    assert sparse.status == dense.status == "unique"
    np.testing.assert_allclose(sparse.discounts, DISCOUNTS, atol=1e-6)
    assert (sparse.reward_dimension, sparse.surplus) == (dense.reward_dimension, dense.surplus)
    np.testing.assert_array_equal(sparse.reward_identified, dense.reward_identified)
    assert np.abs(errors(sparse, reward)).max(initial=0.0) < 1e-5
    np.testing.assert_allclose(sparse.intervals, dense.intervals, atol=1e-6)


def test_unrelated_rewards_stay_infeasible():
    mdp = single_actions(12, 0.0, 0.5)
    rewards = np.random.default_rng(2).normal(size=(3, mdp.n_states))
    policies = [mh.soft_plan(mdp, reward, gamma).policy for reward, gamma in zip(rewards, DISCOUNTS, strict=True)]
    assert identified(mh.Problem(mdp, policies), limits=SizeLimits(entries=0)).status == "infeasible"


def test_large_tables_with_many_single_actions_are_solved():
    mdp = single_actions(70, 0.0, 0.7)
    assert mdp.n_states > SizeLimits().largest_dense
    solution = mh.solve(problem(mdp)[0], mh.ClosedForm())
    assert solution.status == mh.Status.OPTIMAL
    np.testing.assert_allclose(solution.discounts, DISCOUNTS, atol=1e-8)
    assert solution.residual < 1e-8


def test_the_order_of_the_states_does_not_matter():
    mdp = single_actions(40, 0.1, 0.7)
    posed, _ = problem(mdp)
    order = np.random.default_rng(3).permutation(mdp.n_states)
    moved = mh.MDP(
        [mdp.transition(a)[order][:, order] for a in range(4)], terminal=mdp.terminal[order], available=mdp.available[order]
    )
    policies = [expert.policy[order] for expert in posed.experts]
    first, second = mh.identify(posed), mh.identify(mh.Problem(moved, policies))
    assert sp.issparse(Differences(mdp, mdp.live / 1.0).null_space.basis)
    np.testing.assert_allclose(first.discounts, second.discounts, atol=1e-8)
    np.testing.assert_array_equal(first.reward_identified[order], second.reward_identified)
    known = second.reward_identified
    np.testing.assert_allclose(first.reward[order][known], second.reward[known], atol=1e-5)


def test_large_and_small_parts_are_solved_apart():
    mdp = single_actions(20, 0.0, 0.5)
    limits = SizeLimits(factored=50)
    solvers = Differences(mdp, mdp.live / 1.0, limits).null_space.solvers
    assert [type(solver) for solver in solvers] == [least_squares.Multigrid, least_squares.Factored]
    np.testing.assert_allclose(identified(problem(mdp)[0], limits=limits).discounts, DISCOUNTS, atol=1e-9)


def test_an_answer_that_does_not_reproduce_the_policies_is_refused(monkeypatch):
    monkeypatch.setattr(explanation, "bellman_residual", lambda *_: 1e-3)
    with pytest.raises(ValueError, match="too weak in some directions to be solved"):
        mh.identify(problem(single_actions(8, 0.1, 0.2))[0])


def test_a_grid_of_discounts_is_refused_where_very_much_is_open():
    with pytest.raises(ValueError, match="distinguish most states, got one of"):
        mh.theory.feasibility_grid(problem(single_actions(40, 0.1, 0.7))[0], 0.5)


@pytest.mark.parametrize("bound", [False, True])
def test_sparse_columns_project_and_count_as_dense_ones_do(bound):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(60, 20)) * (rng.random((60, 20)) < 0.3)
    matrix[:, 19] = matrix[:, 0] - 2 * matrix[:, 1]
    constraints = np.zeros((0, 20)) if not bound else np.eye(3, 20, 4) - np.eye(3, 20, 8)
    allowed = np.linalg.svd(np.vstack([constraints, np.zeros((20, 20))]))[2][len(constraints) :].T
    coefficients = least_squares.Coefficients(sp.csr_array(constraints), allowed.shape[1])
    sparse = least_squares.SparseColumns(sp.csr_array(matrix), coefficients)
    dense = least_squares.DenseColumns(matrix @ allowed, 1e-11)
    vectors = rng.normal(size=(60, 3))
    np.testing.assert_allclose(sparse.outside(vectors), dense.outside(vectors), atol=1e-9)
    np.testing.assert_allclose(sparse.solve(vectors), allowed @ dense.solve(vectors), atol=1e-4)
    assert (sparse.rank, sparse.nullity) == (dense.rank, dense.nullity)
    moves = sparse.null
    assert np.abs(matrix @ moves).max() < 1e-9
    assert np.linalg.matrix_rank(moves, tol=1e-6) == sparse.nullity


def test_a_task_without_any_choice_says_so():
    """One action everywhere: D has no rows, and nothing is known."""
    chain = sp.csr_array(np.roll(np.eye(80), 1, axis=1))
    mdp = mh.MDP([chain])
    found = mh.identify(mh.Problem(mdp, [np.ones((80, 1))] * 2))
    assert found.status == "set"
    assert not found.reward_identified.any()
