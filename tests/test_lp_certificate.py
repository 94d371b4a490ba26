"""The bound over a box is above g* everywhere in it, and close to it where the box is small."""

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.numerics.lp import dual_bound, solve_lp
from multihorizon.parallel import Run
from multihorizon.programs.inner import Inner, build_margins
from multihorizon.programs.search import Relaxation, bound_optimum


def signed_features() -> mh.Problem:
    """A reward with features of both signs, so that values and bounds of them of every sign are met."""
    mdp = mh.domains.random_mdp(5, 3, branching=3, n_terminal=1, seed=4)
    features = np.random.default_rng(2).normal(size=(15, 6))
    reward = (features @ np.array([1.0, -1.0, 0.5, 0.3, -0.2, 0.8])).reshape(3, 5).T
    return mh.Problem(mdp, [mh.plan(mdp, reward, g).optimal_actions for g in (0.1, 0.9)], features=features)


PROBLEMS = {
    "cliff": lambda: mh.Problem(mh.domains.cliff().mdp, mh.domains.cliff().hard_experts()),
    "ties": lambda: mh.Problem(mh.domains.big_small().mdp, mh.domains.big_small().hard_action_sets()),
    "features": signed_features,
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_bound_holds_in_the_box_and_tightens_with_it(name):
    margins = build_margins(PROBLEMS[name]())
    every = np.ones(len(margins.strict), dtype=bool)
    inner, relaxation = Inner(margins, "worst", 0.0, 1.0), Relaxation(margins, every, 0.0)
    rng = np.random.default_rng(5)
    centre = np.linspace(0.3, 0.8, margins.n_experts)
    widths = (0.4, 0.1, 1e-6)
    bounds = []
    for width in widths:
        low, high = np.clip(centre - width / 2, 0, 1), np.clip(centre + width / 2, 0, 1)
        bounds.append(relaxation.box(low, high, np.inf, 0.0).bound)
        inside = [inner.run(rng.uniform(low, high), every).objective for _ in range(10)]
        assert max(inside) <= bounds[-1] + 1e-9
    exact = inner.run(centre, every).objective
    assert exact > 0
    assert bounds[0] > bounds[1] > bounds[2]
    assert bounds[2] == pytest.approx(exact, abs=1e-5)


def test_bound_accounts_for_l1():
    margins = build_margins(PROBLEMS["cliff"]())
    every = np.ones(len(margins.strict), dtype=bool)
    gamma = np.array([0.1, 0.4, 0.8])
    for l1 in (0.0, 0.002):
        exact = Inner(margins, "worst", l1, 1.0).run(gamma, every).objective
        bound = Relaxation(margins, every, l1).box(gamma, gamma + 1e-7, np.inf, 0.0).bound
        assert bound == pytest.approx(exact, abs=1e-5)
        assert bound >= exact - 1e-12


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_reward_and_discount_of_a_box_is_in_its_program(name):
    """Its parts (1−λ)(θ, x) and λ(θ, x) satisfy every row that asks for no margin, and have their shares of the margins."""
    margins = build_margins(PROBLEMS[name]())
    relaxation, rng = Relaxation(margins, np.ones(len(margins.strict), dtype=bool), 0.0), np.random.default_rng(1)
    k, columns, n, m = margins.n_experts, relaxation.columns, margins.owner.size, len(margins.strict)
    low, high = rng.uniform(0, 0.5, size=k), rng.uniform(0.5, 1, size=k)
    program = relaxation.program(low, high, np.inf)
    for theta in rng.uniform(-1, 1, size=(20, margins.n_parameters)):
        place = rng.uniform(size=k)
        point = margins.continuation(theta, low + place * (high - low))
        x, share = point[margins.n_parameters :], place[margins.owner]
        inside = np.zeros(program.costs.size)
        inside[columns.positive], inside[columns.share], inside[columns.place] = theta, np.outer(place, theta).ravel(), place
        inside[columns.first], inside[columns.second] = (1 - share) * x, share * x
        assert (inside <= program.upper + 1e-12).all()
        assert (inside >= program.lower - 1e-12).all()
        rows = program.matrix @ inside
        ends = 2 * n, 2 * n + 2 * len(margins.ties), 2 * n + 2 * len(margins.ties) + 2 * m
        others = np.r_[0 : ends[0], ends[2] : rows.size]
        assert (rows[others] >= program.row_lower[others] - 1e-9).all()
        assert (rows[others] <= program.row_upper[others] + 1e-9).all()
        for kind, begin in ((margins.ties, ends[0]), (margins.strict, ends[1])):
            exact, of_end = kind.matrix @ point, place[kind.expert]
            found = rows[begin : begin + 2 * len(kind)].reshape(2, -1)
            np.testing.assert_allclose(found, [(1 - of_end) * exact, of_end * exact], atol=1e-9)


def test_prices_of_any_quality_give_a_bound_that_holds():
    margins = build_margins(PROBLEMS["ties"]())
    relaxation = Relaxation(margins, np.ones(len(margins.strict), dtype=bool), 0.0)
    program = relaxation.program(np.array([0.1, 0.3, 0.5]), np.array([0.4, 0.8, 1.0]), np.inf)
    result = solve_lp(program)
    assert dual_bound(program, result.duals) == pytest.approx(result.objective, rel=1e-6)
    rng = np.random.default_rng(3)
    for size in (1e-9, 1e-4, 1.0):
        assert dual_bound(program, result.duals + size * rng.normal(size=result.duals.size)) >= result.objective - 1e-9


@pytest.mark.slow
def test_a_proof_is_the_same_for_any_number_of_processes():
    """With so narrow a gap the first round, which is one process, does not end it."""
    domain = mh.domains.big_small()
    inner = Inner(build_margins(mh.Problem(domain.mdp, domain.hard_experts())), "worst", 0.0, 20.0)
    point = inner.at(np.array([0.34024833, 0.74585255, 1.0]))
    one, two = (bound_optimum(inner, point, 0.001, 120.0, Run(jobs=jobs))[0] for jobs in (1, 2))
    assert one.proved
    assert (one.upper, one.boxes, one.proved) == (two.upper, two.boxes, two.proved)


def test_a_proof_finds_the_hill_that_the_search_missed():
    """Experts of a task that never ends: the search stops far below what discounts close to 1 allow."""
    domain = mh.domains.cliff(ending="absorbing")
    problem = mh.Problem(
        domain.mdp, [mh.plan(domain.mdp, domain.reward, gamma).policy.argmax(axis=1) for gamma in (0.1, 0.4, 0.8)]
    )
    solution = mh.solve(problem, mh.MPLP(reward_bound=20, certify=0.01, certify_seconds=30))
    inner = Inner(build_margins(problem), "worst", 0.0, 20.0)
    assert solution.objective == pytest.approx(inner(solution.discounts), rel=1e-9)
    assert solution.objective > 33.8
    assert "the proof came upon it" in solution.message
    assert solution.evidence["certificate"]["objective"] == pytest.approx(solution.objective)


def test_an_answer_at_the_edge_is_found_before_it_is_said_that_there_is_none() -> None:
    """Two experts whom a reward distinguishes only where one of them does not look ahead, in an order that no start had."""
    moves = np.zeros((2, 4, 4))
    moves[0, [0, 2], [2, 1]] = moves[1, [0, 1, 2], [1, 2, 0]] = 1.0
    moves[0, 1, [0, 3]] = 0.4, 0.6
    problem = mh.Problem(mh.MDP(moves, terminal=[3]), [np.array([0, 1, 0, 0]), np.array([1, 0, 1, 1])])
    found = mh.solve(problem, mh.MPLP(certify=0.01))
    assert found.status == "optimal"
    assert found.objective == pytest.approx(0.59988, abs=1e-4)


def test_that_there_is_no_answer_is_proved_by_a_pair_that_nothing_distinguishes() -> None:
    """Who is paid on arrival at once wants one door or the other, however far they look ahead."""
    moves = np.zeros((2, 4, 4))
    moves[0, [0, 3], [1, 0]], moves[1, [0, 3], [2, 0]] = 1.0, 1.0
    experts = [np.array([0, 0, 0, 0]), np.array([1, 0, 0, 0])]
    found = mh.solve(mh.Problem(mh.MDP(moves, terminal=[1, 2]), experts), mh.MPLP(certify=0.01))
    assert found.status == "infeasible"
    assert "proved: no reward distinguishes all experts at any discounts" in found.message
    assert found.evidence["certificate"]["proved"]


@pytest.mark.parametrize("seed", range(12))
def test_no_proof_denies_an_answer_that_is_there(seed) -> None:
    """Experts with arbitrary choices: where it is proved that there is no answer, no discounts of a grid have one."""
    rng = np.random.default_rng(seed)
    moves = np.zeros((2, 4, 4))
    for a, s in np.ndindex(2, 3):
        moves[a, s, rng.choice(4, 2, replace=False)] = rng.dirichlet(np.ones(2))
    problem = mh.Problem(mh.MDP(moves, terminal=[3]), [np.append(rng.integers(0, 2, 3), 0) for _ in range(2)])
    found = mh.solve(problem, mh.MPLP(certify=0.01, certify_seconds=5))
    inner = Inner(build_margins(problem), "worst", 0.0, 1.0)
    values = [inner.at(inner.margins.limits * np.array(at)).objective for at in np.ndindex(11, 11) for at in [np.array(at) / 10]]
    certificate = found.evidence["certificate"]
    assert max(values) <= certificate["upper"] + 1e-6
    if certificate["proved"] and certificate["upper"] <= 1e-6:
        assert found.status == "infeasible"
    assert max(values) <= 1e-6 or found.status != "infeasible"
