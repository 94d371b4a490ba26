"""Exact recovery: known answers on the paper's domains and on random MDPs, and the sentences for what cannot be solved."""

import itertools

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.exact.closed_form import closed_form_start
from multihorizon.exact.equations import Differences, read_equations, state_columns
from multihorizon.exact.least_squares import SizeLimits

PAIRS = [(0, 1, 2), (0, 1), (0, 2), (1, 2)]


def reward_error(mdp, found, truth):
    """The largest error on the states that can be entered, up to a constant where no state is terminal."""
    gap = (found - truth)[np.unique(mdp.stacked.indices)]
    return np.abs(gap if mdp.terminal.any() else gap - gap.mean()).max()


@pytest.mark.parametrize("members", PAIRS)
@pytest.mark.parametrize("make", [mh.domains.big_small, mh.domains.cliff])
@pytest.mark.parametrize("ending", ["terminal", "absorbing"])
def test_recovers_the_paper_domains(make, ending, members):
    domain = make(ending=ending)
    experts = domain.soft_experts()
    solution = mh.solve(mh.Problem(domain.mdp, [experts[i] for i in members]), mh.ClosedForm())
    assert solution.status == "optimal"
    assert np.abs(solution.discounts - np.array(domain.soft_discounts)[list(members)]).max() < 1e-9
    assert reward_error(domain.mdp, solution.reward, domain.reward) < 1e-8
    assert solution.residual < 1e-10
    if ending == "absorbing":
        assert abs(solution.reward[np.unique(domain.mdp.stacked.indices)].mean()) < 1e-9
        assert solution.evidence["reward_dimension"] == 1
    for planned, expert in zip(solution.policies(), [experts[i] for i in members], strict=True):
        np.testing.assert_allclose(planned, expert, atol=1e-10)


@pytest.mark.parametrize("make", [mh.domains.big_small, mh.domains.cliff])
def test_recovers_temperatures_of_their_own(make):
    domain, temperatures = make(), (1.0, 0.7, 1.6)
    pairs = zip(domain.soft_discounts, temperatures, strict=True)
    experts = [mh.soft_plan(domain.mdp, domain.reward, gamma, lam).policy for gamma, lam in pairs]
    solution = mh.solve(mh.Problem(domain.mdp, experts), mh.ClosedForm(temperature="per_expert"))
    np.testing.assert_allclose(solution.discounts, domain.soft_discounts, atol=1e-9)
    np.testing.assert_allclose(solution.temperature, temperatures, atol=1e-8)
    np.testing.assert_allclose(solution.reward, domain.reward, atol=1e-8)
    wrong = mh.solve(mh.Problem(domain.mdp, experts), mh.ClosedForm(temperature=1.0))
    assert wrong.status == "infeasible"


def random_case(seed):
    rng = np.random.default_rng(seed)
    n_states, n_actions, n_experts = int(rng.integers(4, 201)), int(rng.integers(2, 6)), int(rng.integers(2, 7))
    n_terminal = int(rng.integers(0, 3)) if n_states >= 10 else 0
    branching = int(rng.integers(3, 12)) if n_states >= 12 else n_states
    mdp = mh.domains.random_mdp(n_states, n_actions, branching, n_terminal, seed)
    return mdp, rng.normal(size=n_states) * 2, rng.uniform(0, 0.98, n_experts), np.append(1.0, rng.uniform(0.5, 2, n_experts - 1))


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, "per_expert"])
@pytest.mark.parametrize("seed", range(50))
def test_recovers_random_mdps(seed, temperature):
    mdp, reward, discounts, temperatures = random_case(seed)
    lams = temperatures if temperature == "per_expert" else np.ones(discounts.size)
    experts = [mh.soft_plan(mdp, reward, gamma, lam).policy for gamma, lam in zip(discounts, lams, strict=True)]
    solution = mh.solve(mh.Problem(mdp, experts), mh.ClosedForm(temperature=temperature))
    assert solution.status == "optimal"
    assert np.abs(solution.discounts - discounts).max() < 1e-9
    assert np.abs(solution.temperature - lams).max() < 1e-8
    assert reward_error(mdp, solution.reward, reward) < 1e-8


def test_four_states_two_actions_two_experts_are_enough():
    mdp = mh.domains.random_mdp(4, 2, seed=3)
    experts = [mh.soft_plan(mdp, [1.0, -2.0, 0.5, 3.0], gamma).policy for gamma in (0.35, 0.8)]
    np.testing.assert_allclose(mh.solve(mh.Problem(mdp, experts), mh.ClosedForm()).discounts, [0.35, 0.8], atol=1e-9)


def test_swapping_experts_swaps_discounts():
    domain = mh.domains.cliff()
    experts = domain.soft_experts()
    for order in itertools.permutations(range(3)):
        found = mh.solve(mh.Problem(domain.mdp, [experts[i] for i in order]), mh.ClosedForm()).discounts
        np.testing.assert_allclose(found, np.array(domain.soft_discounts)[list(order)], atol=1e-9)


def test_actions_that_are_not_available():
    rng = np.random.default_rng(5)
    dense = mh.domains.random_mdp(30, 3, seed=5).to_array()
    available = rng.random((30, 3)) < 0.7
    available[:, 0] |= ~available.any(axis=1)
    mdp = mh.MDP(dense, available=available)
    reward = rng.normal(size=30)
    experts = [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.4, 0.85)]
    assert (available.sum(axis=1) == 1).any()
    solution = mh.solve(mh.Problem(mdp, experts), mh.ClosedForm())
    np.testing.assert_allclose(solution.discounts, [0.4, 0.85], atol=1e-9)
    assert reward_error(mdp, solution.reward, reward) < 1e-8


def test_unentered_states_are_reported_and_carry_no_reward():
    transitions = mh.domains.random_mdp(6, 2, seed=1).to_array()
    transitions[:, :, 2] = 0
    transitions /= transitions.sum(axis=2, keepdims=True)
    mdp = mh.MDP(transitions)
    reward = np.array([1.0, 0.0, 50.0, -1.0, 2.0, 0.3])
    found = mh.identify(mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.2, 0.7)]))
    assert found.unknown_parameters == ("2",)
    assert found.reward[2] == 0
    np.testing.assert_allclose(found.discounts, [0.2, 0.7], atol=1e-9)


def test_the_sparse_path_agrees_with_the_dense_one():
    mdp = mh.domains.gridworld(7, 8, slip=0.2, terminal=[(0, 0)])
    log_policy = np.random.default_rng(0).normal(size=(56, 4, 1))
    dense = Differences(mdp, np.ones((56, 4)))
    sparse = Differences(mdp, np.ones((56, 4)), SizeLimits(dense=0))
    assert dense.null_space.basis.shape == sparse.null_space.basis.shape == (56, 1)
    difference = dense.solve(log_policy) - sparse.solve(log_policy)
    assert np.ptp(difference) < 1e-10


def test_a_null_space_larger_than_the_constants_is_found_by_both_paths():
    mdp = mh.domains.toy().mdp
    assert Differences(mdp, np.ones((4, 3))).null_space.basis.shape == (4, 2)
    found = Differences(mdp, np.ones((4, 3)), SizeLimits(dense=0))
    assert found.null_space.basis.shape == (4, 2)
    assert np.abs(found.matrix @ found.null_space.basis).max() < 1e-12


def test_zero_probabilities_get_a_sentence():
    domain = mh.domains.cliff()
    policy = domain.soft_experts()[1].copy()
    policy[5] = [0.5, 0.5, 0.0, 0.0]
    with pytest.raises(
        ValueError, match=r"expert b must give every available action a positive probability.*state 5 on action left"
    ):
        mh.solve(mh.Problem(domain.mdp, [domain.soft_experts()[0], policy], names=["a", "b"]), mh.ClosedForm())
    with pytest.raises(ValueError, match="linear-programming"):
        mh.solve(mh.Problem(domain.mdp, domain.hard_action_sets()), mh.ClosedForm())


@pytest.mark.parametrize("bad", [{"temperature": "own"}, {"temperature": -1.0}, {"tolerance": 0.0}, {"smoothing": 0.0}])
def test_options_are_checked(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        mh.ClosedForm(**bad)


def test_joined_tasks_share_a_discount_and_a_reward():
    first, second = mh.domains.toy(), mh.domains.toy(chances=(0.5, 0.7, 0.8))
    discounts, problems = (0.3, 0.95), []
    for domain in (first, second):
        policies = [mh.soft_plan(domain.mdp, domain.reward, gamma).policy for gamma in discounts]
        problems.append(mh.Problem(domain.mdp, policies, names=["short", "long"]))
    joined = mh.Problem.join(*problems)
    assert state_columns(joined, joined.experts[3]) is not None
    solution = mh.solve(joined, mh.ClosedForm())
    assert solution.status == "optimal"
    np.testing.assert_allclose(solution.discounts, discounts, atol=1e-8)
    np.testing.assert_allclose(solution.reward, first.reward, atol=1e-6)


def test_start_from_demonstrations_is_near_the_truth_and_always_finite():
    domain = mh.domains.cliff()
    many = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes=20_000, seed=1)
    start = closed_form_start(mh.Problem(domain.mdp, many))
    assert np.abs(start.discounts - domain.soft_discounts).max() < 0.25
    few = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), episodes=1, seed=2)
    for temperature in (1.0, "per_expert"):
        start = closed_form_start(mh.Problem(domain.mdp, few), temperature=temperature)
        assert np.isfinite(start.reward).all()
        assert np.isfinite(start.log_likelihood)
        assert ((start.discounts > 0) & (start.discounts < 1)).all()
    solution = mh.solve(mh.Problem(domain.mdp, few), mh.ClosedForm())
    assert "added to each count" in solution.message


@pytest.mark.parametrize("smoothing", [0.5, 5.0])
def test_decisions_get_the_status_and_the_residual_that_are_theirs(smoothing):
    """The residual is that of the frequencies smoothed as asked, here computed by hand from the answer."""
    domain = mh.domains.cliff()
    demonstrations = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 30, seed=0)
    problem = mh.Problem(domain.mdp, demonstrations)
    solution = mh.solve(problem, mh.ClosedForm(smoothing=smoothing))
    assert solution.status == "not identified"
    live, worst = ~domain.mdp.terminal, 0.0
    steps = domain.mdp.to_array()
    for expert, gamma in zip(problem.experts, solution.discounts, strict=True):
        policy = (expert.counts + smoothing) / (expert.counts + smoothing).sum(axis=1, keepdims=True)
        policy[~live] = 0.0
        logs = np.log(np.where(policy > 0, policy, 1.0))
        immediate = (steps @ solution.reward).T
        moved = np.einsum("sa,ast->st", policy, steps)
        values = np.linalg.solve(np.eye(12) - gamma * moved, (policy * (immediate - logs)).sum(axis=1))
        gap = immediate + gamma * (steps @ values).T - values[:, None] - logs
        worst = max(worst, np.abs(gap[live]).max())
    assert solution.residual == pytest.approx(worst)
    assert f"{smoothing:g} added to each count" in solution.message


def test_many_decisions_of_a_plain_task_converge():
    mdp = mh.domains.random_mdp(5, 2, seed=3)
    reward = np.array([2.0, -1.0, 0.0, 1.0, -2.0])
    counts = [np.round(1e9 * mh.soft_plan(mdp, reward, gamma).policy) for gamma in (0.2, 0.9)]
    experts = [mh.Expert(str(k), mdp, "demonstrations", counts=c) for k, c in enumerate(counts)]
    solution = mh.solve(mh.Problem(mdp, experts), mh.ClosedForm())
    assert solution.status == "converged"
    np.testing.assert_allclose(solution.discounts, [0.2, 0.9], atol=0.05)


def test_frequencies_leave_out_what_is_not_available():
    """Decisions of a task in which half the states have fewer actions: as many as one likes give the policies themselves."""
    available = np.ones((6, 3), dtype=bool)
    available[::2, 2] = False
    mdp = mh.MDP(mh.domains.random_mdp(6, 3, seed=2).to_array(), available=available)
    policies = [mh.soft_plan(mdp, np.arange(6.0) / 2, gamma).policy for gamma in (0.2, 0.8)]
    experts = [mh.Expert(str(k), mdp, "demonstrations", counts=np.round(1e12 * p)) for k, p in enumerate(policies)]
    for expert, policy in zip(experts, policies, strict=True):
        frequencies = read_equations(expert, 0.5).policy
        np.testing.assert_allclose(frequencies, policy, atol=1e-9)
        assert (frequencies[~available] == 0).all()
    np.testing.assert_allclose(mh.solve(mh.Problem(mdp, experts), mh.ClosedForm()).discounts, [0.2, 0.8], atol=1e-5)
