import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse.linalg import spsolve
from scipy.special import logsumexp, softmax, xlogy

import multihorizon as mh
from multihorizon.planning.linear import policy_resolvent
from multihorizon.planning.plan import first_best

ENDINGS = ("terminal", "absorbing")
DOMAINS = (mh.domains.toy, mh.domains.big_small, mh.domains.cliff)


@st.composite
def problems(draw, least_terminal: int = 0, most_terminal: int = 2):
    n_states = draw(st.integers(3, 8))
    seed = draw(st.integers(0, 10_000))
    mdp = mh.domains.random_mdp(
        n_states,
        draw(st.integers(1, 4)),
        branching=draw(st.integers(1, n_states)),
        n_terminal=draw(st.integers(least_terminal, most_terminal)),
        seed=seed,
    )
    return mdp, np.random.default_rng(seed).normal(size=n_states) * 5, draw(st.floats(0, 0.98))


def linear_program_values(mdp: mh.MDP, reward: np.ndarray, discount: float) -> np.ndarray:
    """The least V with V ≥ T_a (r + γV) for all actions, terminal values 0."""
    live = np.tile(~mdp.terminal, mdp.n_actions)
    matrix = (discount * mdp.stacked.toarray() - np.tile(np.eye(mdp.n_states), (mdp.n_actions, 1)))[live]
    bounds = [(0, 0) if end else (None, None) for end in mdp.terminal]
    return linprog(np.ones(mdp.n_states), matrix, -(mdp.stacked @ reward)[live], bounds=bounds).x


@given(problems())
def test_plan_agrees_with_a_linear_program(problem) -> None:
    mdp, reward, discount = problem
    plan = mh.plan(mdp, reward, discount)
    np.testing.assert_allclose(plan.values, linear_program_values(mdp, reward, discount), atol=1e-6)
    assert plan.residual <= 1e-9


@given(problems(most_terminal=0), st.integers(0, 1000))
def test_shaping_keeps_the_policies(problem, seed) -> None:
    mdp, reward, discount = problem
    potential = np.random.default_rng(seed).normal(size=mdp.n_states)
    expected = mdp.expected_reward(reward)
    shaped = expected + discount * mdp.expect(potential) - potential[:, None]
    np.testing.assert_array_equal(
        mh.plan(mdp, expected, discount).optimal_actions, mh.plan(mdp, shaped, discount).optimal_actions
    )
    np.testing.assert_allclose(
        mh.soft_plan(mdp, expected, discount).policy, mh.soft_plan(mdp, shaped, discount).policy, atol=1e-9
    )


@given(problems())
def test_scaling_the_reward_keeps_ties(problem) -> None:
    mdp, reward, discount = problem
    small = mh.plan(mdp, reward * 1e-6, discount).optimal_actions
    np.testing.assert_array_equal(mh.plan(mdp, reward, discount).optimal_actions, small)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("make", DOMAINS)
@pytest.mark.parametrize("discount", [0.0, 0.3, 0.9, 0.999])
def test_bellman_equation_and_policy_values(make, ending, discount) -> None:
    domain = make(ending=ending)
    plan = mh.plan(domain.mdp, domain.reward, discount)
    np.testing.assert_allclose(plan.q.max(axis=1), plan.values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(mh.evaluate(domain.mdp, plan.policy, domain.reward, discount).values, plan.values, rtol=1e-9)
    assert (plan.policy.argmax(axis=1) == plan.optimal_actions.argmax(axis=1)).all()


def test_tied_grids_end_and_all_ties_are_found() -> None:
    mdp = mh.domains.gridworld(25, 25, terminal=[(24, 24)])
    reward = np.zeros(625)
    reward[-1] = 1.0
    plan = mh.plan(mdp, reward, 0.95)
    optimal = plan.optimal_actions.reshape(25, 25, 4)
    assert (optimal[:-1, :-1] == [True, True, False, False]).all()
    assert (optimal[-1, :-1] == [True, False, False, False]).all()


def test_a_reward_of_zero_leaves_every_action_optimal() -> None:
    mdp = mh.domains.cliff().mdp
    assert mh.plan(mdp, np.zeros(12), 0.9).optimal_actions.all()


def test_a_vast_penalty_does_not_blur_the_other_actions() -> None:
    transitions = np.zeros((3, 4, 4))
    transitions[0, 0, 1] = transitions[1, 0, 2] = transitions[2, 0, 3] = 1.0
    mdp = mh.MDP(transitions, terminal=[1, 2, 3])
    for penalty, gain in ((-1e9, 0.05), (-1e6, 1e-5), (-1e12, 0.5)):
        reward = [0.0, 0.0, gain, penalty]
        plan = mh.plan(mdp, reward, 0.9)
        assert plan.optimal_actions[0].tolist() == [False, True, False]
        assert plan.policy[0].tolist() == [0.0, 1.0, 0.0]
        assert [i.optimal_actions[0].tolist() for i in mh.discount_intervals(mdp, reward)] == [[False, True, False]]


def test_discount_zero_is_myopic() -> None:
    domain = mh.domains.cliff()
    expected = domain.mdp.expect(domain.reward)
    np.testing.assert_allclose(mh.plan(domain.mdp, domain.reward, 0.0).values, expected.max(axis=1))


@pytest.mark.parametrize("make", DOMAINS)
def test_discount_one_is_the_limit(make) -> None:
    domain = make()
    at_one = mh.plan(domain.mdp, domain.reward, 1.0)
    near = mh.plan(domain.mdp, domain.reward, 1 - 1e-9)
    np.testing.assert_allclose(at_one.values, near.values, atol=1e-5)
    assert at_one.residual < 1e-10


def test_discount_one_without_an_end_names_the_states() -> None:
    domain = mh.domains.toy(ending="absorbing")
    for call in (mh.plan, mh.soft_plan):
        with pytest.raises(ValueError, match="never ends from s0, s1, s2, s3"):
            call(domain.mdp, domain.reward, 1.0)


def test_discount_one_where_looping_pays_names_the_states() -> None:
    mdp = mh.MDP([[[0, 1], [0, 0]], [[1, 0], [0, 0]]], terminal=[1], state_names=["inn", "home"])
    with pytest.raises(ValueError, match="never ends from inn"):
        mh.plan(mdp, [1.0, 0.0], 1.0)
    with pytest.raises(ValueError, match=r"soft value at discount 1\.0 is infinite"):
        mh.soft_plan(mdp, [1.0, 0.0], 1.0)


def test_rewards_of_states_and_of_actions_agree() -> None:
    domain = mh.domains.cliff()
    by_state = mh.plan(domain.mdp, domain.reward, 0.7)
    by_action = mh.plan(domain.mdp, domain.mdp.expect(domain.reward), 0.7)
    np.testing.assert_allclose(by_state.values, by_action.values)


def big_task(kind: str, side: int = 40) -> tuple[mh.MDP, np.ndarray]:
    """Tasks of 1,600 states, which are solved directly, or of more than 2,000, which are not."""
    n, corner = side * side, (0, side - 1)
    if kind == "ties":
        mdp = mh.domains.gridworld(side, side, slip=0.1, terminal=[corner])
        return mdp, np.where(np.arange(n) == side - 1, 10.0, -0.1)
    if kind == "no ending":
        return mh.domains.gridworld(side, side, slip=0.2), np.random.default_rng(1).normal(size=n)
    if kind == "unreachable":  # the right half is behind a wall
        mdp = mh.domains.gridworld(side, side, slip=0.1, walls=[(i, side // 2) for i in range(side)], terminal=[(0, 0)])
        return mdp, np.random.default_rng(2).normal(size=n)
    grid = mh.domains.gridworld(side, side, slip=0.1, terminal=[corner])
    available = np.random.default_rng(3).random((n, 4)) < 0.7
    available[~available.any(axis=1), 0] = True
    moves = [grid.transition(a) for a in range(4)]
    return mh.MDP(moves, terminal=grid.terminal, available=available), np.random.default_rng(4).normal(size=n)


def values_of(mdp: mh.MDP, policy: np.ndarray, paid: np.ndarray, discount: float) -> np.ndarray:
    """The values of a policy that earns `paid` `(S,)`, by one sparse factorisation."""
    matrix = sp.eye_array(mdp.n_states, format="csc") - discount * sp.csc_array(mdp.under(policy))
    return spsolve(matrix, paid)


def require_optimal(plan, worse: np.ndarray, mdp: mh.MDP) -> None:
    """The optimal actions are those that are worse than the best by at most 1e-10 of the range of values, and rounding."""
    tied, decides = 1e-10 * np.ptp(plan.values), ~mdp.terminal
    assert plan.optimal_actions[decides][worse[decides] <= 0.9 * tied].all()
    assert not plan.optimal_actions[decides][worse[decides] > 1.1 * tied + 2e-12 * np.abs(plan.values).max()].any()


TASKS = ("ties", "no ending", "unreachable", "unavailable")


@pytest.mark.slow
@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("kind", TASKS)
def test_large_plans_have_the_values_of_a_direct_solution(kind, discount) -> None:
    mdp, reward = big_task(kind, side=46)
    hard, soft = mh.plan(mdp, reward, discount), mh.soft_plan(mdp, reward, discount)
    immediate = np.where(mdp.terminal[:, None], 0.0, mdp.expected_reward(reward))
    best = np.eye(mdp.n_actions)[hard.q.argmax(axis=1)]
    values = values_of(mdp, best, (best * immediate).sum(axis=1), discount)
    scale = np.abs(values).max()
    np.testing.assert_allclose(hard.values, values, rtol=0, atol=1e-11 * scale)
    q = np.where(mdp.available, immediate + discount * mdp.expect(values), -np.inf)
    highest = np.where(mdp.terminal, 0.0, q.max(axis=1))
    np.testing.assert_allclose(highest, values, rtol=0, atol=1e-11 * scale)  # nothing is better, so the values are optimal
    require_optimal(hard, highest[:, None] - q, mdp)
    assert hard.residual <= 1e-11 * scale
    assert (hard.q[~mdp.available & ~mdp.terminal[:, None]] == -np.inf).all()
    entropy = -xlogy(soft.policy, soft.policy).sum(axis=1)
    soft_values = values_of(
        mdp, soft.policy, np.where(mdp.terminal, 0.0, (soft.policy * immediate).sum(axis=1) + entropy), discount
    )
    np.testing.assert_allclose(soft.values, soft_values, rtol=0, atol=1e-11 * np.abs(soft_values).max())


def policy_iteration(mdp: mh.MDP, reward: np.ndarray, discount: float) -> tuple[np.ndarray, int]:
    """The optimal values and the number of policies on the way from the myopic one."""
    paid, states = mdp.expected_reward(reward), np.arange(mdp.n_states)
    q, policies = np.where(mdp.available, paid, -np.inf), 0
    actions = q.argmax(axis=1)
    while True:
        policies += 1
        better = values_of(mdp, np.eye(mdp.n_actions)[actions], np.where(mdp.terminal, 0.0, paid[states, actions]), discount)
        q = np.where(mdp.available, paid + discount * mdp.expect(better), -np.inf)
        improved = q.max(axis=1) > q[states, actions] + 1e-12 * np.abs(better).max()
        if not (improved & ~mdp.terminal).any():
            return better, policies
        actions = np.where(improved, q.argmax(axis=1), actions)


@pytest.mark.parametrize("discount", [0.9, 0.999])
@pytest.mark.parametrize("kind", TASKS)
def test_plans_end_where_policy_iteration_from_the_myopic_policy_does_and_sooner(kind, discount) -> None:
    mdp, reward = big_task(kind)
    swept = mh.plan(mdp, reward, discount)
    values, policies = policy_iteration(mdp, reward, discount)
    assert policies > swept.iterations
    scale = np.abs(values).max()
    np.testing.assert_allclose(swept.values, values, atol=1e-10 * scale)
    q = np.where(mdp.available, mdp.expected_reward(reward) + discount * mdp.expect(values), -np.inf)
    if kind != "ties":  # a long path of steps, each of which gains no more than rounding, can blur a tie of the myopic start
        require_optimal(swept, q.max(axis=1)[:, None] - q, mdp)


def test_discount_one_on_a_large_grid_solves_the_bellman_equation() -> None:
    mdp, reward = big_task("ties")
    found = mh.plan(mdp, reward, 1.0)
    q = mdp.expected_reward(reward) + mdp.expect(found.values)
    np.testing.assert_allclose(np.where(mdp.terminal, 0.0, q.max(axis=1)), found.values, atol=1e-10)


def test_a_large_grid_is_not_factorised_for_one_plan(monkeypatch) -> None:
    mdp = mh.domains.gridworld(110, 110, slip=0.1, terminal=[(0, 109)])
    reward = np.where(np.arange(110**2) == 109, 10.0, -0.1)
    monkeypatch.setattr("scipy.sparse.linalg.splu", lambda *_, **__: pytest.fail("factorised a large problem"))
    assert mh.plan(mdp, reward, 0.9).residual < 1e-10
    assert mh.soft_plan(mdp, reward, 0.9).residual < 1e-10


@pytest.mark.slow
@pytest.mark.parametrize("factor_steps", [1.0, 1e9])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("discount", [0.0, 0.3, 0.9, 0.999])
def test_one_system_gives_the_same_solutions_iterated_and_factorised(discount, transpose, factor_steps) -> None:
    mdp, reward = big_task("no ending")
    columns = np.random.default_rng(0).normal(size=(1600, 40))
    policy = mh.soft_plan(mdp, reward, 0.9).policy
    resolvent = policy_resolvent(mdp, policy, discount, direct_states=10, factor_steps=factor_steps)
    matrix = np.eye(1600) - discount * resolvent.matrix.toarray()
    expected = np.linalg.solve(matrix.T if transpose else matrix, columns)
    found = resolvent.solve(columns, transpose=transpose)
    np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())


@pytest.mark.slow
def test_a_task_whose_factors_would_fill_up_is_iterated() -> None:
    mdp = mh.domains.random_mdp(2500, 3, branching=4, seed=0)
    resolvent = policy_resolvent(mdp, np.full((2500, 3), 1 / 3), 0.95, factor_steps=0.0)
    b = np.random.default_rng(0).normal(size=(2500, 5))
    x = resolvent.solve(b)
    np.testing.assert_allclose(x - 0.95 * (resolvent.matrix @ x), b, atol=1e-11)
    assert "_factor" not in vars(resolvent)


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("make", DOMAINS)
@pytest.mark.parametrize("temperature", [0.1, 1.0, 10.0])
def test_soft_plan_takes_few_newton_steps(make, ending, temperature) -> None:
    domain = make(ending=ending)
    soft = mh.soft_plan(domain.mdp, domain.reward, 0.99, temperature)
    assert soft.iterations <= 10
    assert soft.residual < 1e-10
    q = domain.mdp.expect(domain.reward + 0.99 * soft.values)
    peak = q.max(axis=1)
    backed = peak + temperature * np.log(np.exp((q - peak[:, None]) / temperature).sum(axis=1))
    np.testing.assert_allclose(np.where(domain.mdp.terminal, 0, backed), soft.values, rtol=1e-12, atol=1e-10)


@given(problems())
def test_soft_values_are_those_of_the_policy_and_of_value_iteration(problem) -> None:
    mdp, reward, discount = problem
    soft = mh.soft_plan(mdp, reward, discount, 0.7)
    np.testing.assert_allclose(mh.evaluate(mdp, soft.policy, reward, discount, 0.7).values, soft.values, atol=1e-7, rtol=1e-9)
    np.testing.assert_allclose(np.exp(soft.log_policy), soft.policy, atol=1e-12)
    other = np.random.default_rng(0).dirichlet(np.ones(mdp.n_actions), size=mdp.n_states)
    assert (mh.evaluate(mdp, other, reward, discount, 0.7).values <= soft.values + 1e-8).all()


def test_soft_plan_nears_plan_as_the_temperature_falls() -> None:
    domain = mh.domains.cliff()
    hard = mh.plan(domain.mdp, domain.reward, 0.9).values
    gaps = [np.abs(mh.soft_plan(domain.mdp, domain.reward, 0.9, t).values - hard).max() for t in (1.0, 0.1, 0.01)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] <= 0.01 * np.log(4) / 0.1


def test_soft_plan_from_its_own_answer_takes_no_step() -> None:
    domain = mh.domains.cliff()
    soft = mh.soft_plan(domain.mdp, domain.reward, 0.9)
    assert mh.soft_plan(domain.mdp, domain.reward, 0.9, start=soft.values).iterations == 0


def test_soft_values_scale_with_reward_and_temperature() -> None:
    """Below discount 1 no value is infinite, whatever the unit of the reward."""
    domain = mh.domains.cliff()
    one, vast = (mh.soft_plan(domain.mdp, unit * domain.reward, 0.5, unit) for unit in (1.0, 1e20))
    np.testing.assert_allclose(vast.values, 1e20 * one.values, rtol=1e-12)
    np.testing.assert_allclose(vast.policy, one.policy, rtol=1e-12)


def test_soft_plan_keeps_probabilities_of_vast_rewards_finite() -> None:
    domain = mh.domains.cliff()
    soft = mh.soft_plan(domain.mdp, domain.reward * 1e4, 0.9)
    assert np.isfinite(soft.policy).all()
    assert np.isfinite(soft.log_policy).all()
    assert soft.log_policy.min() < -1000


def filled_task(kind: str) -> tuple[mh.MDP, np.ndarray]:
    """Tasks of 150 states whose transitions are all there, or many of them."""
    rng = np.random.default_rng(5)
    mdp = mh.domains.random_mdp(150, 12, branching=75 if kind == "partly" else None, n_terminal=5 * (kind == "endings"), seed=6)
    if kind == "unavailable":
        mdp = mdp.without(rng.random((150, 12)) < 0.4 * (np.arange(12) > 0))
    return mdp, rng.normal(size=(150, 12)) if kind == "action rewards" else rng.normal(size=150)


FILLED = ("endless", "partly", "endings", "unavailable", "action rewards")


@pytest.mark.parametrize("discount", [0.0, 0.9, 0.999, 0.9999])
@pytest.mark.parametrize("kind", FILLED)
def test_plans_with_plain_and_with_sparse_transitions_agree(kind, discount) -> None:
    mdp, reward = filled_task(kind)
    assert isinstance(mdp.moves, np.ndarray)
    found, soft = mh.plan(mdp, reward, discount), mh.soft_plan(mdp, reward, discount)
    mdp.__dict__["moves"] = mdp.stacked
    sparse, sparse_soft = mh.plan(mdp, reward, discount), mh.soft_plan(mdp, reward, discount)
    scale = np.abs(sparse.values).max()
    np.testing.assert_allclose(found.values, sparse.values, atol=3e-12 * scale)
    np.testing.assert_array_equal(found.optimal_actions, sparse.optimal_actions)
    np.testing.assert_allclose(soft.values, sparse_soft.values, atol=1e-11 * np.abs(soft.values).max())


@pytest.mark.parametrize("discount", [0.5, 0.99, 0.9999])
@pytest.mark.parametrize("kind", FILLED)
def test_plans_that_end_with_sweeps_are_as_exact_as_a_solve(kind, discount) -> None:
    mdp, reward = filled_task(kind)
    found = mh.plan(mdp, reward, discount)
    expected = np.where(mdp.available, mdp.expected_reward(reward), -np.inf)
    q = expected + discount * mdp.expect(found.values)
    scale = np.abs(found.values).max()
    assert (q <= found.values[:, None] + 1e-12 * scale).all()  # nothing gains, whatever bounds ruled out on the way
    chosen = found.policy.argmax(axis=1)
    matrix = np.eye(150) - discount * mdp.to_array()[chosen, np.arange(150)]
    exact = np.linalg.solve(matrix, expected[np.arange(150), chosen])
    np.testing.assert_allclose(found.values, exact, atol=3e-12 * scale)


def test_the_first_best_action_is_the_first_of_equals() -> None:
    q = np.random.default_rng(0).integers(0, 3, size=(5, 2000)) / 1.0
    q[0, ::3] = -np.inf
    np.testing.assert_array_equal(first_best(q, q.max(axis=0)), q.argmax(axis=0))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("discount", [0.3, 0.99])
def test_large_filled_systems_are_iterated(discount, transpose) -> None:
    mdp, reward = filled_task("endless")
    policy = mh.soft_plan(mdp, reward, 0.9).policy
    columns = np.random.default_rng(0).normal(size=(150, 3))
    factored = policy_resolvent(mdp, policy, discount).solve(columns, transpose=transpose)
    resolvent = policy_resolvent(mdp, policy, discount, direct_states=10, dense_steps=np.inf)
    iterated = resolvent.solve(columns, transpose=transpose)
    assert "_dense_factor" not in vars(resolvent)
    np.testing.assert_allclose(iterated, factored, atol=1e-11 * np.abs(factored).max())


@given(problems(), st.sampled_from(["soft", "max", "mean"]), st.sampled_from([0.3, 1.0, 4.0]))
def test_each_value_of_the_future_solves_its_equation(problem, value, temperature) -> None:
    mdp, reward, discount = problem
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # several fixed points: either solves the equation
        plan = mh.soft_plan(mdp, reward, discount, temperature, value)
    q = mdp.expected_reward(reward) + discount * mdp.expect(plan.values)
    np.testing.assert_allclose(plan.policy, softmax(q / temperature, axis=1), atol=1e-9)
    backed = {
        "soft": temperature * logsumexp(q / temperature, axis=1),
        "max": q.max(axis=1),
        "mean": (softmax(q / temperature, axis=1) * q).sum(axis=1),
    }[value]
    np.testing.assert_allclose(plan.values, np.where(mdp.terminal, 0.0, backed), atol=1e-8 * max(1, abs(q).max()))


def test_the_mean_is_exact_where_no_state_comes_twice() -> None:
    task = mh.domains.space_adventure()
    plan = mh.soft_plan(task.mdp, task.reward, 0.9, 2.0, "mean")
    # a policy is worth what its own choices are worth
    np.testing.assert_allclose(mh.evaluate(task.mdp, plan.policy, task.reward, 0.9).values, plan.values, atol=1e-10)


def test_a_second_fixed_point_is_said() -> None:
    # Staying pays a little more the more one will stay: choices near chance and choices near certainty both fit.
    mdp = mh.MDP([[[1, 0], [0, 0]], [[0, 1], [0, 0]]], terminal=[1])
    with pytest.warns(UserWarning, match="several fixed points"):
        plan = mh.soft_plan(mdp, [[0.01, 0], [0, 0]], 0.99, 0.1, "mean")
    assert plan.values[0] == pytest.approx(0.99526463)
    assert plan.other_values[0] == pytest.approx(0.01233291)
    with pytest.raises(ValueError, match="value must be one of soft, max, mean"):
        mh.soft_plan(mdp, [0.0, 0.0], 0.9, 1.0, "hard")
