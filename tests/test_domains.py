import numpy as np
import pytest

import multihorizon as mh

ACTIONS = ("right", "down", "left", "up")
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))

MAKERS = (mh.domains.toy, mh.domains.big_small, mh.domains.cliff)


def brute_force_grid(height: int, width: int, slip: float, walls: set[tuple[int, int]]) -> np.ndarray:
    """Transitions cell by cell, as one would write them down."""
    transitions = np.zeros((4, height * width, height * width))
    for row in range(height):
        for column in range(width):
            if (row, column) in walls:
                continue
            for action in range(4):
                for direction, (down, right) in enumerate(MOVES):
                    cell = (row + down, column + right)
                    if not (0 <= cell[0] < height and 0 <= cell[1] < width) or cell in walls:
                        cell = (row, column)
                    chance = 1 - slip if direction == action else slip / 3
                    transitions[action, row * width + column, cell[0] * width + cell[1]] += chance
    return transitions


@pytest.mark.parametrize("slip", [0.0, 0.3, 1.0])
def test_gridworld_agrees_with_a_loop_over_cells(slip: float) -> None:
    walls = {(1, 1), (2, 3)}
    mdp = mh.domains.gridworld(4, 5, slip, walls=list(walls))
    np.testing.assert_allclose(mdp.to_array(), brute_force_grid(4, 5, slip, walls), atol=1e-15)
    assert mdp.action_names == ACTIONS
    assert mdp.grid_shape == (4, 5)
    assert (mdp.initial[mdp.terminal] == 0).all()


def test_cells_as_mask_pairs_and_indices_are_the_same() -> None:
    mask = np.zeros((3, 4), dtype=bool)
    mask[0, 3] = True
    models = [mh.domains.gridworld(3, 4, terminal=cells) for cells in (mask, [(0, 3)], [3])]
    for model in models:
        assert np.flatnonzero(model.terminal).tolist() == [3]


@pytest.mark.parametrize("make", MAKERS)
def test_endings_are_two_models(make) -> None:
    ends, stays = make(), make(ending="absorbing")
    assert ends.mdp.terminal.any()
    assert not stays.mdp.terminal.any()
    np.testing.assert_allclose(stays.mdp.stacked.sum(axis=1), 1.0)
    np.testing.assert_array_equal(ends.mdp.initial, stays.mdp.initial)
    np.testing.assert_array_equal(ends.reward, stays.reward)


def test_toy_value_functions_are_the_closed_forms() -> None:
    domain = mh.domains.toy()
    for gamma in (0.0, 0.4, 1.0):
        exact = [9.5 / (1 - 0.05 * gamma), 0.9 * (6 + 10 * gamma) / (1 - 0.1 * gamma), 0.6 * (7 + 10 * gamma) / (1 - 0.4 * gamma)]
        found = [mh.evaluate(domain.mdp, np.eye(3)[[a] * 4], domain.reward, gamma).values[0] for a in range(3)]
        assert found == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("make", MAKERS)
def test_experts_of_a_domain_differ(make) -> None:
    domain = make()
    actions = domain.hard_experts()
    assert len({tuple(a) for a in actions}) == 3
    for chosen, sets, discount in zip(actions, domain.hard_action_sets(), domain.hard_discounts, strict=True):
        assert sets[np.arange(chosen.size), chosen].all()
        plan = mh.plan(domain.mdp, domain.reward, discount)
        np.testing.assert_array_equal(plan.policy.argmax(axis=1), chosen)
    for policy, discount in zip(domain.soft_experts(0.5), domain.soft_discounts, strict=True):
        np.testing.assert_allclose(policy, mh.soft_plan(domain.mdp, domain.reward, discount, 0.5).policy)


def test_lp_experts_lie_in_the_intervals_the_paper_prints() -> None:
    printed = {
        "toy": [(0, 0.43), (0.43, 0.87), (0.87, 1)],
        "big-small": [(0, 0.2), (0.2, 0.68), (0.87, 1)],
        "cliff": [(0.06, 0.28), (0.28, 0.52), (0.52, 0.95)],
    }
    for make in MAKERS:
        domain = make()
        for discount, (low, high) in zip(domain.hard_discounts, printed[domain.name], strict=True):
            assert low <= discount <= high


@pytest.mark.parametrize("make", MAKERS)
def test_tasks_are_seeded_variants(make) -> None:
    domain = make()
    tasks, again, others = domain.tasks(5, seed=1), domain.tasks(5, seed=1), domain.tasks(5, seed=2)
    assert [t.discount for t in tasks] == [t.discount for t in again]
    assert [t.discount for t in tasks] != [t.discount for t in others]
    for task in tasks:
        assert task.mdp.n_states == domain.mdp.n_states
        np.testing.assert_array_equal(task.mdp.terminal, domain.mdp.terminal)
        assert (task.mdp.stacked != domain.mdp.stacked).nnz > 0


def test_random_mdp_has_the_asked_for_shape() -> None:
    mdp = mh.domains.random_mdp(10, 3, branching=4, n_terminal=2, seed=5)
    assert mdp.stacked.nnz == 3 * 8 * 4
    assert np.flatnonzero(mdp.terminal).tolist() == [8, 9]
