"""g*(Γ), Ω and slopes against dense formulas, brute force and finite differences."""

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import multihorizon as mh
from multihorizon.numerics.lp import solve_lp
from multihorizon.programs.inner import Bases, Inner, build_margins, program


def dense_rows(problem: mh.Problem, discounts) -> tuple[np.ndarray, np.ndarray]:
    """The paper's rows w(γ) of all strict margins and of all ties, from dense inverses."""
    mdp = problem.mdp
    T = mdp.to_array()
    strict, ties = [], []
    for expert, gamma in zip(problem.experts, discounts, strict=True):
        sets = expert.require_sets()
        pi = sets.argmax(axis=1)
        P = T[pi, np.arange(mdp.n_states)]
        inverse = np.linalg.inv(np.eye(mdp.n_states) - gamma * P)
        for s, a in itertools.product(np.flatnonzero(~mdp.terminal), range(mdp.n_actions)):
            row = (P[s] - T[a, s]) @ inverse
            if a != pi[s] and mdp.available[s, a] and np.abs(P[s] - T[a, s]).max() > 1e-12:
                (ties if sets[s, a] else strict).append(row)
    d = mdp.n_states
    return np.array(strict).reshape(-1, d), np.array(ties).reshape(-1, d)


def random_problem(seed: int, n_states: int = 4, n_experts: int = 2) -> mh.Problem:
    rng = np.random.default_rng(seed)
    mdp = mh.domains.random_mdp(n_states, 3, branching=2, n_terminal=1, seed=seed)
    if seed % 2:
        policies = [rng.integers(0, 3, n_states) for _ in range(n_experts)]
    else:
        reward = rng.normal(size=n_states)
        policies = [mh.plan(mdp, reward, g).optimal_actions for g in np.linspace(0.1, 0.9, n_experts)]
    return mh.Problem(mdp, policies)


@pytest.mark.parametrize("seed", range(6))
def test_optimum_equals_the_dense_program(seed):
    problem = random_problem(seed)
    gamma = np.array([0.2, 0.8])
    strict, ties = dense_rows(problem, gamma)
    d = problem.n_parameters
    rows = np.hstack([-strict, np.ones((len(strict), 1))])
    equal = {"A_eq": np.hstack([ties, np.zeros((len(ties), 1))]), "b_eq": np.zeros(len(ties))} if len(ties) else {}
    dense = linprog(-np.eye(d + 1)[-1], A_ub=rows, b_ub=np.zeros(len(rows)), bounds=[(-5, 5)] * d + [(0, None)], **equal)
    inner = Inner(build_margins(problem), "worst", 0.0, 5.0)
    every = np.ones(len(strict), dtype=bool)
    assert inner.run(gamma, every).objective == pytest.approx(-dense.fun, abs=1e-7)


@pytest.mark.parametrize("seed", range(12))
def test_omega_is_the_maximal_support(seed):
    """Brute force: a row is in the support if its own margin can be positive while no margin is negative."""
    problem = random_problem(seed)
    gamma = np.array([0.35, 0.7])
    strict, ties = dense_rows(problem, gamma)
    d = problem.n_parameters
    equal = {"A_eq": ties, "b_eq": np.zeros(len(ties))} if len(ties) else {}
    alone = [-linprog(-row, A_ub=-strict, b_ub=np.zeros(len(strict)), bounds=[(-1, 1)] * d, **equal).fun > 1e-7 for row in strict]
    omega = Inner(build_margins(problem), "worst", 0.0, 1.0).omega(gamma)
    assert omega.tolist() == alone


def test_the_random_problems_have_full_partial_and_empty_supports():
    sizes = set()
    for seed in range(12):
        omega = Inner(build_margins(random_problem(seed)), "worst", 0.0, 1.0).omega(np.array([0.35, 0.7]))
        sizes.add("full" if omega.all() else "partial" if omega.any() else "empty")
    assert sizes == {"full", "partial", "empty"}


@pytest.mark.parametrize("objective", ["worst", "sum"])
def test_the_linearised_program_promises_what_a_short_step_brings(objective):
    d = mh.domains.cliff()
    inner = Inner(build_margins(mh.Problem(d.mdp, d.hard_experts())), objective, 0.0, 20.0)
    gamma = np.array([0.113, 0.391, 0.777])
    point = inner.at(gamma)
    for step in (*1e-6 * np.eye(3), *-1e-6 * np.eye(3)):
        lp = program(inner.layout, gamma, point.omega, l1=0.0, bound=20.0, values=point.values, steps=(step, step))
        promised = solve_lp(lp).objective - point.objective
        assert promised == pytest.approx(inner(gamma + step) - point.objective, rel=1e-3, abs=1e-11)


def test_l1_is_a_trade_off_and_the_least_norm_is_least():
    d = mh.domains.big_small()
    margins = build_margins(mh.Problem(d.mdp, d.hard_experts()))
    gamma = np.array([0.34, 0.74, 0.95])
    plain = Inner(margins, "worst", 0.0, 20.0)
    point = plain.at(gamma)
    least = plain.least(point)
    assert np.abs(least.parameters).sum() < 0.9 * np.abs(point.parameters).sum()
    worst = (margins.strict.matrix @ margins.continuation(least.parameters, gamma)).min()
    assert worst == pytest.approx(point.objective, rel=1e-6)
    sparse = Inner(margins, "worst", 0.005, 20.0).at(gamma)
    assert np.abs(sparse.parameters).sum() <= np.abs(least.parameters).sum() + 1e-6
    assert sparse.objective <= point.objective


def test_equal_discounts_make_differing_experts_indistinguishable():
    d = mh.domains.cliff()
    inner = Inner(build_margins(mh.Problem(d.mdp, d.hard_experts())), "worst", 0.0, 20.0)
    point = inner.at(np.array([0.2, 0.5, 0.5]))
    assert point.objective == -np.inf
    assert {(1, 2), (2, 1)} <= set(point.unseparated)


@pytest.mark.parametrize("seed", range(6))
def test_some_rows_bound_the_objective_and_those_with_a_price_decide_it(seed):
    inner = Inner(build_margins(random_problem(seed, n_states=8)), "worst", 0.0, 5.0)
    gamma = np.array([0.2, 0.8])
    whole = inner.run(gamma, inner.every)
    rng = np.random.default_rng(seed)
    for size in (3, 6, 9):
        assert inner.ceiling(gamma, rng.choice(len(inner.every), size, replace=False)) >= whole.objective - 1e-9
    priced = np.flatnonzero(np.abs(whole.duals[inner.layout.rows.strict]) > 1e-9)
    assert priced.size < len(inner.every)
    assert inner.ceiling(gamma, priced) == pytest.approx(whole.objective, abs=1e-8)
    assert inner.ceiling(gamma, np.empty(0, dtype=int)) == np.inf


def test_a_program_starts_from_the_nearest_basis_in_the_same_order():
    bases = Bases()
    assert bases.nearest("step", np.array([0.2, 0.6])) is None
    bases.keep("objective", np.array([0.2, 0.6]), "same place")
    for number, gamma in enumerate([(0.4, 0.5), (0.5, 0.4), (0.1, 0.9), (0.4, 0.5)]):
        bases.keep("step", np.array(gamma), number)
    assert bases.nearest("step", np.array([0.1, 0.8])) == 2
    assert bases.nearest("step", np.array([0.4, 0.49])) == 3
    assert bases.nearest("step", np.array([0.49, 0.41])) == 1
    assert bases.nearest("step", np.array([0.45, 0.44])) == 1
    assert bases.nearest("step", np.array([0.2, 0.6])) == 3
    assert bases.nearest("step", np.array([0.0, 0.6]), like="objective") == 2
    assert bases.nearest("step", np.array([0.8, 0.2]), like="objective") == 1
    assert bases.nearest("relative step", np.array([0.2, 0.6]), like="objective") == "same place"


def test_only_the_last_bases_are_kept():
    bases = Bases()
    for number in range(300):
        bases.keep("objective", np.array([number / (300)]), number)
    assert bases.nearest("objective", np.zeros(1)) == 200
