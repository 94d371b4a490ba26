import numpy as np
import pytest

import multihorizon as mh
from multihorizon.paper.theory import feasibility_at, rewards_at


def problem(domain, count: int = 3) -> mh.Problem:
    return mh.Problem(domain.mdp, domain.soft_experts()[:count])


DOMAINS = [mh.domains.toy(), mh.domains.toy(ending="absorbing"), mh.domains.big_small(), mh.domains.cliff()]


@pytest.mark.parametrize("domain", DOMAINS, ids=lambda d: f"{d.name}-{int(d.mdp.terminal.sum())}")
def test_the_truth_has_residual_zero_and_agrees_with_the_rank_test(domain) -> None:
    found = problem(domain)
    points = np.array([domain.soft_discounts, *np.random.default_rng(0).uniform(size=(10, 3))])
    residuals = feasibility_at(found, points)
    assert residuals[0] < 1e-12
    assert (residuals[1:] > 1e-4).all()
    for point, residual in zip(points, residuals, strict=True):
        assert mh.theory.rank_test(found, point).feasible == (residual < 1e-10)


def test_the_grid_finds_only_the_truth_on_big_small() -> None:
    grid = mh.theory.feasibility_grid(problem(mh.domains.big_small()), mh.Grid(0.05, jobs=1))
    assert grid.residuals.shape == (21, 21, 21)
    np.testing.assert_allclose(grid.points, [[0.1, 0.45, 0.9]])


@pytest.mark.parametrize("ending", ["terminal", "absorbing"])
def test_two_toy_experts_leave_all_but_the_diagonal_open(ending: str) -> None:
    grid = mh.theory.feasibility_grid(problem(mh.domains.toy(ending=ending), 2), mh.Grid(0.1, jobs=1))
    np.testing.assert_array_equal(grid.feasible, ~np.eye(11, dtype=bool))


def test_the_reward_at_feasible_discounts_reproduces_the_experts() -> None:
    domain = mh.domains.toy()
    two = problem(domain, 2)
    points = np.array([[0.3, 0.5], [0.1, 0.9], [0.8, 0.2]])
    for reward, discounts in zip(rewards_at(two, points), points, strict=True):
        for expert, gamma in zip(two.experts, discounts, strict=True):
            np.testing.assert_allclose(mh.soft_plan(domain.mdp, reward, gamma).policy, expert.policy, atol=1e-10)


def test_the_temperature_scales_the_reward() -> None:
    domain = mh.domains.cliff()
    warm = mh.Problem(domain.mdp, domain.soft_experts(2.0))
    reward = rewards_at(warm, np.array([domain.soft_discounts]), temperature=2.0)[0]
    np.testing.assert_allclose(reward[:8], domain.reward[:8], atol=1e-8)


@pytest.mark.slow
def test_processes_and_batches_change_nothing() -> None:
    two, points = problem(mh.domains.toy(), 2), np.random.default_rng(0).uniform(size=(100, 2))
    shares: list[float] = []
    parts = feasibility_at(two, points, jobs=2, progress=lambda share, _: shares.append(share), batch=20)
    np.testing.assert_allclose(parts, feasibility_at(two, points), atol=1e-14)
    assert shares[-1] == 1


def test_several_tasks_are_refused() -> None:
    toy = mh.domains.toy()
    joined = mh.Problem.join(problem(toy), mh.Problem(toy.tasks(1)[0].mdp, toy.soft_experts()))
    with pytest.raises(ValueError, match="one task"):
        mh.theory.feasibility_grid(joined, mh.Grid(0.5))


def test_a_plain_step_makes_a_grid() -> None:
    two = problem(mh.domains.toy(), 2)
    np.testing.assert_array_equal(
        mh.theory.feasibility_grid(two, 0.25).residuals, mh.theory.feasibility_grid(two, mh.Grid(0.25, jobs=1)).residuals
    )
