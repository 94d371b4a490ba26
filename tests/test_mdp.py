import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import multihorizon as mh
from multihorizon.mdp import steps_into

gymnasium = pytest.importorskip("gymnasium")


def chain(loop: float = 0.0) -> list[list[list[float]]]:
    return [[[loop, 1 - loop, 0], [0, loop, 1 - loop], [0, 0, 0]]]


def test_dense_sparse_and_sas_are_one_mdp() -> None:
    dense = np.random.default_rng(0).dirichlet(np.ones(4), size=(3, 4))
    models = [mh.MDP(dense), mh.MDP([sp.coo_matrix(m) for m in dense]), mh.MDP.from_sas(dense.transpose(1, 0, 2))]
    for model in models:
        np.testing.assert_allclose(model.to_array(), dense, atol=1e-15)
        assert model.stacked.shape == (12, 4)


def test_axis_order_is_not_guessed() -> None:
    square = np.random.default_rng(0).dirichlet(np.ones(3), size=(3, 3))
    assert np.abs(mh.MDP(square).to_array() - mh.MDP.from_sas(square).to_array()).max() > 0.1


def test_initial_is_uniform_over_states_that_are_not_terminal() -> None:
    assert mh.MDP(chain(), terminal=[2]).initial.tolist() == [0.5, 0.5, 0.0]


def test_terminal_self_loop_is_dropped_and_absorbing_is_kept() -> None:
    looped = [[[0, 1.0], [0, 1.0]]]
    assert mh.MDP(looped, terminal=[1]).stacked.nnz == 1
    assert mh.MDP(looped).stacked.nnz == 2


def test_rows_of_unavailable_actions_are_ignored() -> None:
    available = np.array([[True, False], [True, True]])
    mdp = mh.MDP([[[0, 1.0], [1.0, 0]], [[7.0, 7.0], [0, 1.0]]], available=available)
    assert mdp.transition(1)[[0]].nnz == 0
    assert np.isneginf(mh.plan(mdp, [0, 1], 0.5).q[0, 1])
    assert mh.soft_plan(mdp, [0, 1], 0.5).policy[0].tolist() == [1.0, 0.0]


def test_rows_within_rounding_are_rescaled() -> None:
    mdp = mh.MDP([[[0.3333333, 0.6666666], [0, 1]]])
    np.testing.assert_allclose(mdp.stacked.sum(axis=1), 1.0, atol=1e-15)


def test_an_mdp_cannot_be_changed() -> None:
    mdp = mh.MDP(chain(), terminal=[2])
    with pytest.raises(ValueError, match="read-only"):
        mdp.initial[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        mdp.stacked.data[0] = 0.5


def test_npz_round_trip(tmp_path) -> None:
    mdp = mh.domains.cliff().mdp
    named = mh.MDP(
        list(mdp.to_array()), mdp.initial, mdp.terminal, mdp.available, action_names=list("abcd"), grid_shape=mdp.grid_shape
    )
    named.to_npz(tmp_path / "m.npz")
    back = mh.MDP.from_npz(tmp_path / "m.npz")
    assert (back.stacked != named.stacked).nnz == 0
    assert back.action_names == named.action_names
    assert back.state_names == named.state_names
    assert back.grid_shape == (3, 4)
    np.testing.assert_array_equal(back.terminal, named.terminal)
    np.testing.assert_array_equal(back.initial, named.initial)


def test_under_and_expect_agree() -> None:
    mdp = mh.domains.random_mdp(6, 3, branching=2, seed=1)
    policy = np.random.default_rng(2).dirichlet(np.ones(3), size=6)
    vector = np.arange(6.0)
    np.testing.assert_allclose(mdp.under(policy) @ vector, (policy * mdp.expect(vector)).sum(axis=1))


def test_steps_into_follows_the_graph() -> None:
    matrix = sp.csr_array(np.array([[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1.0]]))
    assert steps_into(matrix, np.array([False, False, True, False])).tolist() == [1, 2, 2, -1]


@pytest.mark.parametrize(
    ("name", "terminal"),
    [("FrozenLake-v1", [5, 7, 11, 12, 15]), ("CliffWalking-v1", [47]), ("Taxi-v3", [0, 85, 410, 475])],
)
def test_gymnasium_tables(name: str, terminal: list[int]) -> None:
    newest = max(spec for spec in gymnasium.registry if spec.split("-")[0] == name.split("-")[0])
    env = gymnasium.make(newest)
    mdp = mh.MDP.from_gymnasium(env)
    assert np.flatnonzero(mdp.terminal).tolist() == terminal
    sums = mdp.stacked.sum(axis=1).reshape(mdp.n_actions, -1)
    np.testing.assert_allclose(sums[:, ~mdp.terminal], 1.0)
    assert (sums[:, mdp.terminal] == 0).all()
    plan = mh.plan(mdp, mh.gymnasium_reward(env), 0.95)
    assert plan.residual < 1e-10


def test_frozen_lake_sums_duplicate_successors() -> None:
    env = gymnasium.make("FrozenLake-v1")
    mdp = mh.MDP.from_gymnasium(env)
    listed = env.unwrapped.P[0][0]
    stays = sum(p for p, state, _, _ in listed if state == 0)
    assert len([1 for _, state, _, _ in listed if state == 0]) == 2
    assert mdp.to_array()[0, 0, 0] == pytest.approx(stays)


def test_gymnasium_reward_of_frozen_lake_is_the_chance_of_the_goal() -> None:
    reward = mh.gymnasium_reward(gymnasium.make("FrozenLake-v1"))
    assert reward[14, 2] == pytest.approx(1 / 3)
    assert reward[0].tolist() == [0, 0, 0, 0]


class Table:
    def __init__(self, table: dict, initial: list[float]) -> None:
        self.P, self.initial_state_distrib, self.unwrapped = table, initial, self


def test_a_reachable_state_that_sometimes_ends_is_refused() -> None:
    table = {0: {0: [(0.5, 1, 0, True), (0.5, 1, 0, False)]}, 1: {0: [(1.0, 0, 0, False)]}}
    with pytest.raises(ValueError, match="state 1, or none"):
        mh.MDP.from_gymnasium(Table(table, [1.0, 0.0]))


@pytest.mark.slow
def test_a_thousand_by_thousand_grid_is_built() -> None:
    mdp = mh.domains.gridworld(1000, 1000, slip=0.1, terminal=[(0, 999)])
    assert mdp.n_states == 1_000_000
    np.testing.assert_allclose(mdp.transition(0)[[5]].sum(), 1.0)


def test_the_fields_of_an_mdp_cannot_be_replaced() -> None:
    mdp = mh.domains.toy().mdp
    with pytest.raises(AttributeError, match="an MDP cannot be changed, got a new terminal"):
        mdp.terminal = np.zeros(4, dtype=bool)
    with pytest.raises(ValueError, match="read-only"):
        mdp.terminal[0] = True
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mdp)).terminal, mdp.terminal)


def test_filled_transitions_are_multiplied_as_a_plain_array_without_a_copy() -> None:
    full, half, few = (mh.domains.random_mdp(30, 2, branching=b, seed=0) for b in (None, 15, 5))
    sent = len(pickle.dumps(half))
    assert np.shares_memory(full.moves, full.stacked.data)
    assert isinstance(half.moves, np.ndarray)
    assert few.moves is few.stacked
    for mdp in (full, half, few):
        np.testing.assert_array_equal(mdp.dense, [mdp.transition(a).toarray() for a in range(2)])
        with pytest.raises(ValueError, match="read-only"):
            mdp.dense[0, 0, 0] = 1.0
    assert len(pickle.dumps(half)) == sent
    moved = half.with_probabilities(np.full(half.stacked.nnz, 1 / 15))
    np.testing.assert_array_equal(moved.moves, moved.stacked.toarray())
