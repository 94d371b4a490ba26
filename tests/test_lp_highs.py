"""HiGHS' answers obey duality: primal = dual, signs of duals, Farkas rays."""

from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

from multihorizon.numerics.lp import LinearProgram, LPStatus, solve_lp

INF = np.inf


def random_program(seed: int) -> LinearProgram:
    rng = np.random.default_rng(seed)
    matrix = sp.random_array((6, 8), density=0.6, rng=rng, format="csr")
    inside = rng.normal(size=8)
    activity = matrix @ inside
    return LinearProgram(rng.normal(size=8), matrix, activity - rng.uniform(size=6), activity + 1.0, inside - 1.0, inside + 2.0)


def weighted(positive: np.ndarray, negative: np.ndarray, weights: np.ndarray) -> float:
    return float(np.maximum(weights, 0) @ positive + np.minimum(weights, 0) @ negative)


@pytest.mark.parametrize("seed", range(5))
def test_primal_equals_dual(seed):
    lp = random_program(seed)
    result = solve_lp(lp)
    assert result.optimal
    np.testing.assert_allclose(lp.matrix.T @ result.duals + result.reduced_costs, lp.costs, atol=1e-9)
    dual = weighted(lp.row_upper, lp.row_lower, result.duals) + weighted(lp.upper, lp.lower, result.reduced_costs)
    assert dual == pytest.approx(lp.costs @ result.values, abs=1e-8)
    assert result.objective == pytest.approx(dual, abs=1e-8)


def test_warm_start_gives_the_same_optimum():
    first, second = random_program(1), random_program(1)
    second.costs[:] += 0.1
    warm = solve_lp(second, solve_lp(first).basis)
    assert warm.objective == pytest.approx(solve_lp(second).objective, abs=1e-9)


def test_interior_point_and_a_basis_too_far_away_give_the_same_optimum():
    lp = random_program(2)
    simplex = solve_lp(lp)
    interior = partial(solve_lp, most_simplex_rows=0)
    far = random_program(2)
    far.costs[:] *= -1
    for result in (interior(lp), interior(lp, solve_lp(far).basis, max_warm_steps=0)):
        assert result.optimal
        assert result.objective == pytest.approx(simplex.objective, abs=1e-8)
        np.testing.assert_allclose(lp.matrix.T @ result.duals + result.reduced_costs, lp.costs, atol=1e-8)


def test_farkas_ray_proves_infeasibility():
    matrix = sp.csr_array(np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 0.0]]))
    lp = LinearProgram(np.zeros(2), matrix, np.array([-INF, 2.0, -INF]), np.array([1.0, INF, 9.0]), np.zeros(2), np.full(2, INF))
    result = solve_lp(lp)
    assert result.status == LPStatus.INFEASIBLE
    y = result.ray
    needed = sum(w * (low if w > 0 else up) for w, low, up in zip(y, lp.row_lower, lp.row_upper, strict=True) if w != 0)
    combined = matrix.T @ y
    assert (combined <= 1e-9).all()  # x ≥ 0 without upper bounds: the largest yᵀA x is 0
    assert needed > 1e-9


def test_unbounded_is_a_status():
    lp = LinearProgram(np.ones(1), sp.csr_array(np.array([[1.0]])), np.zeros(1), np.full(1, INF), np.zeros(1), np.full(1, INF))
    assert solve_lp(lp).status == LPStatus.UNBOUNDED
