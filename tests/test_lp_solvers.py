"""LPIRL, NaiveLP and MPLP with their searches, on the paper's domains and on problems made to fail."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.programs import climb
from multihorizon.programs import inner as inner_module
from multihorizon.programs.contradiction import contradiction
from multihorizon.programs.highs import LPStatus, solve_lp
from multihorizon.programs.inner import Inner
from multihorizon.programs.margins import build_margins
from multihorizon.programs.model import program
from multihorizon.progress import silent
from multihorizon.search import SearchResult

#: domain, reward bound, optimum and discounts (l1 = 0, one action per state), found by an independent prototype
REFERENCE = {
    "toy": (mh.domains.toy(), 10, 1.579075, (0, 0.3294, 1)),
    "cliff": (mh.domains.cliff(), 20, 2.593949, (0, 0.4258, 0.8306)),
    "big-small": (mh.domains.big_small(), 20, 1.727574, (0.3402, 0.7459, 1)),
    "big-small 4": (mh.domains.big_small(4), 20, 1.487822, (0.4982, 0.7852, 1)),
}


def problem_of(domain: mh.domains.Domain, order=(0, 1, 2)) -> mh.Problem:
    experts = domain.lp_experts()
    return mh.Problem(domain.mdp, [experts[i] for i in order])


@pytest.mark.parametrize("name", REFERENCE)
def test_every_start_reaches_the_global_optimum(name):
    domain, bound, optimum, discounts = REFERENCE[name]
    solution = mh.solve(problem_of(domain), mh.MPLP(reward_bound=bound), seed=3)
    assert solution.status == mh.Status.CONVERGED
    assert len(solution.evidence["starts"]) == 8
    for start in solution.evidence["starts"]:
        assert start["objective"] == pytest.approx(optimum, rel=1e-5)
    np.testing.assert_allclose(solution.discounts, discounts, atol=2e-4)


def deterministic_cliff(side: int) -> mh.Problem:
    """Experts who differ in one or two states: four of the six orders explain them, and the best has steep sides."""
    domain = mh.domains.cliff(side, side, slip=0.0)
    plans = [mh.plan(domain.mdp, domain.reward, gamma) for gamma in (0.45, 0.55, 0.8)]
    return mh.Problem(domain.mdp, [plan.optimal_actions.argmax(axis=1) for plan in plans])


def test_one_start_finds_the_best_of_several_orders():
    problem = deterministic_cliff(8)
    solution = mh.solve(problem, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.CONVERGED
    assert solution.evidence["order"] == [["0"], ["1"], ["2"]]
    inner = Inner(build_margins(problem), "worst", 0.0, 20.0)
    values = {}
    for gammas in np.sort(np.random.default_rng(0).uniform(size=(20, 3)), axis=1):
        for order in itertools.permutations(range(3)):
            values.setdefault(order, []).append(inner(gammas[list(order)]))
    assert sum(max(found) > 0 for found in values.values()) > 2
    assert max(map(max, values.values())) < solution.objective


def test_a_step_lets_no_discount_overtake():
    inner = Inner(build_margins(deterministic_cliff(6)), "worst", 0.0, 20.0)
    overtaken = 0
    for gamma in np.sort(np.random.default_rng(1).uniform(size=(10, 3)), axis=1):
        point = inner.at(gamma)
        for keep_order in (True, False):
            moving = {"values": point.values, "steps": (-gamma, 1 - gamma), "keep_order": keep_order}
            result = solve_lp(program(inner.layout, gamma, point.omega, l1=0.0, bound=20.0, **moving))
            ordered = (np.diff(gamma + result.values[inner.layout.columns.steps]) > 0).all()
            assert ordered or not keep_order
            overtaken += not ordered
    assert overtaken > 0


def test_starts_stay_in_the_order_that_won():
    inner = Inner(build_margins(deterministic_cliff(6)), "worst", 0.0, 20.0)
    found = mh.SequentialLP(starts=4).run(inner, 3)
    first, *others = found.evidence["starts"]
    later = found.trace.discounts[-sum(start["evaluations"] for start in others) :]
    assert (np.diff(later, axis=1) > 0).all()
    for start in others:
        assert start["objective"] == pytest.approx(first["objective"], rel=1e-6)


def test_a_climb_with_all_rows_does_not_ask_which_rows_can_be_positive(monkeypatch):
    problem, asked = deterministic_cliff(8), []
    whole = Inner.omega
    monkeypatch.setattr(Inner, "omega", lambda *arguments: asked.append(arguments) or whole(*arguments))
    solution = mh.solve(problem, mh.MPLP(reward_bound=20))
    assert solution.evidence["omega_sizes"] == solution.evidence["rows"]
    assert not asked
    # There are such Γ close to the answer, where two experts are about to overtake each other.
    gamma = solution.discounts[[0, 0, 2]] + [0.0, 1e-9, 0.0]
    assert not Inner(build_margins(problem), "worst", 0.0, 20.0).at(gamma).has_reward
    assert asked


def test_steps_ruled_out_by_a_few_rows_lead_no_higher(monkeypatch):
    problem = deterministic_cliff(8)
    solver = mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=3))
    plain = mh.solve(problem, solver)
    monkeypatch.setattr(inner_module, "MOST_SIMPLEX_ROWS", 0)
    checked = []

    def checking(inner, point, step):
        out = whole(inner, point, step)
        checked.append((out, inner.at(step.discounts).objective <= point.objective))
        return out

    whole = climb._ruled_out
    monkeypatch.setattr(climb, "_ruled_out", checking)
    screened = mh.solve(problem, solver)
    found, useless = np.array(checked).T
    assert (found <= useless).all()
    assert found.sum() > 0.7 * useless.sum() > 0
    assert screened.objective == pytest.approx(plain.objective, rel=1e-8)
    np.testing.assert_allclose(screened.discounts, plain.discounts, atol=1e-4)
    assert len(screened.trace) < len(plain.trace)


def test_experts_who_act_alike_may_overtake():
    problem = deterministic_cliff(4)
    sets = problem.experts[0].require_sets()
    inner = Inner(build_margins(mh.Problem(problem.mdp, [sets, sets, problem.experts[2].require_sets()])), "worst", 0.0, 20.0)
    gamma = np.array([0.2, 0.4, 0.7])
    lp = program(inner.layout, gamma, inner.at(gamma).omega, l1=0.0, bound=20.0, keep_order=True)
    np.testing.assert_allclose(lp.row_lower[inner.layout.rows.order], [-np.inf, -0.45, -0.27])


@pytest.mark.parametrize("name", ["toy", "cliff", "big-small"])
def test_what_the_answer_means(name):
    domain, bound, _, _ = REFERENCE[name]
    problem = problem_of(domain)
    solution = mh.solve(problem, mh.MPLP(reward_bound=bound, search=mh.SequentialLP(starts=1)))
    evidence = solution.evidence
    assert evidence["order"] == [["0"], ["1"], ["2"]]
    assert all(evidence["reproduced"].values())
    assert solution.residual < 1e-7
    assert evidence["worst_margin"] == pytest.approx(solution.objective, rel=1e-6)
    for k, (low, high) in enumerate(evidence["intervals"].values()):
        assert low <= solution.discounts[k] <= high
        chosen = problem.experts[k].require_sets()
        for gamma in np.linspace(low + 1e-6, high - 1e-6, 5):
            optimal = mh.plan(domain.mdp, solution.reward, gamma, tie_tolerance=1e-7).optimal_actions
            assert optimal[chosen & ~domain.mdp.terminal[:, None]].all()
        for beyond in (low - 1e-4, high + 1e-4):
            if 0 <= beyond <= 1:
                optimal = mh.plan(domain.mdp, solution.reward, beyond).optimal_actions
                assert not optimal[chosen & ~domain.mdp.terminal[:, None]].all()


def test_swapping_experts_swaps_discounts():
    domain, bound, _, _ = REFERENCE["cliff"]
    one = mh.solve(problem_of(domain), mh.MPLP(reward_bound=bound, search=mh.SequentialLP(starts=2)))
    other = mh.solve(problem_of(domain, (2, 0, 1)), mh.MPLP(reward_bound=bound, search=mh.SequentialLP(starts=2)))
    np.testing.assert_allclose(other.discounts, one.discounts[[2, 0, 1]], atol=1e-5)
    np.testing.assert_allclose(other.reward, one.reward, atol=1e-4)


def five_horizons(order) -> mh.Problem:
    """The five policies of big-small with a long corridor, each optimal in an interval of discounts."""
    domain = mh.domains.big_small(3, 10)
    policies = [interval.optimal_actions.argmax(axis=1) for interval in mh.discount_intervals(domain.mdp, domain.reward)]
    assert len(policies) == 5
    names = [f"expert {i}" if i not in order[:n] else f"twin of {i}" for n, i in enumerate(order)]
    return mh.Problem(domain.mdp, [policies[i] for i in order], names=names)


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (2, 4, 3, 0, 1)])
def test_the_answer_for_five_experts_does_not_depend_on_their_order(order):
    """Several orders explain these experts, and most spread-out discounts explain none of them."""
    solution = mh.solve(five_horizons(order), mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.CONVERGED
    assert solution.objective == pytest.approx(0.932463, rel=1e-5)
    assert solution.evidence["order"] == [[f"expert {i}"] for i in range(5)]
    found = dict(zip(solution.experts, solution.discounts, strict=True))
    # The top is flat: where the objective is known to nine digits, the discounts are known to four or five.
    np.testing.assert_allclose([found[f"expert {i}"] for i in range(5)], [0.58276, 0.74743, 0.89331, 0.96378, 1], atol=1e-4)


def seven_horizons() -> mh.Problem:
    """The policies of a random task that are optimal on a wide interval of discounts, from short horizons to long ones."""
    mdp = mh.domains.random_mdp(12, 4, branching=2, n_terminal=1, seed=0)
    intervals = mh.discount_intervals(mdp, np.random.default_rng(0).normal(size=12))
    wide = [interval.optimal_actions.argmax(axis=1) for interval in intervals if interval.high - interval.low > 1e-3]
    policies = dict.fromkeys(tuple(policy.tolist()) for policy in wide)
    assert len(policies) == 7
    return mh.Problem(mdp, [np.array(policy) for policy in policies])


def test_the_order_of_seven_experts_is_found_however_they_are_listed():
    problem = seven_horizons()
    solver = mh.MPLP(reward_bound=10, search=mh.SequentialLP(starts=1))
    straight = mh.solve(problem, solver)
    assert straight.evidence["order"] == [[name] for name in problem.names]
    order = np.random.default_rng(4).permutation(7)
    shuffled = mh.solve(mh.Problem(problem.mdp, [problem.experts[k].sets for k in order]), solver)
    assert shuffled.objective == pytest.approx(straight.objective, rel=1e-9)
    np.testing.assert_allclose(shuffled.discounts, straight.discounts[order], atol=1e-9)


def test_experts_who_act_alike_do_not_hide_the_order_of_five_others():
    problem = five_horizons((3, 1, 0, 3, 4, 2))
    solution = mh.solve(problem, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.INDISTINGUISHABLE
    assert solution.objective == pytest.approx(0.932463, rel=1e-5)


def test_a_search_whose_steps_all_fail_has_not_converged(monkeypatch):
    whole = Inner.solve

    def failing(inner, name, *arguments, **options):
        result = whole(inner, name, *arguments, **options)
        return replace(result, status=LPStatus.FAILED) if "step" in name else result

    monkeypatch.setattr(Inner, "solve", failing)
    solution = mh.solve(problem_of(mh.domains.cliff()), mh.MPLP(reward_bound=20))
    assert solution.objective < 2.59
    assert solution.status == mh.Status.NOT_CONVERGED
    assert not any(start["converged"] for start in solution.evidence["starts"])


def test_an_objective_that_cannot_be_computed_is_neither_a_number_nor_infeasible(monkeypatch):
    whole = Inner.solve

    def failing(*arguments, **options):
        return replace(whole(*arguments, **options), status=LPStatus.FAILED)

    monkeypatch.setattr(Inner, "solve", failing)
    for search in (mh.SequentialLP(starts=2), mh.Grid(0.5, jobs=1)):
        solution = mh.solve(problem_of(mh.domains.toy()), mh.MPLP(search=search))
        assert np.isnan(solution.trace.values).all()
        assert np.isnan(solution.objective)
        assert solution.status == mh.Status.NOT_CONVERGED
        assert "HiGHS" in solution.message


def test_one_failing_program_does_not_stop_a_search(monkeypatch):
    whole, count = Inner.solve, itertools.count()

    def failing(inner, name, *arguments, **options):
        result = whole(inner, name, *arguments, **options)
        return replace(result, status=LPStatus.FAILED) if next(count) % 7 == 3 else result

    monkeypatch.setattr(Inner, "solve", failing)
    solution = mh.solve(problem_of(mh.domains.cliff()), mh.MPLP(reward_bound=20))
    assert solution.objective == pytest.approx(2.593949, rel=1e-5)


def two_tasks() -> mh.Problem:
    """Two experts in two variants of a grid: each expert has one discount, and states of one name share their reward."""
    problems = []
    for slip in (0.1, 0.3):
        domain = mh.domains.cliff(slip=slip)
        policies = [mh.plan(domain.mdp, domain.reward, gamma).optimal_actions.argmax(axis=1) for gamma in (0.1, 0.8)]
        problems.append(mh.Problem(domain.mdp, policies, names=["near", "far"]))
    return mh.Problem.join(*problems)


def test_experts_of_several_tasks_have_one_discount():
    joined = two_tasks()
    solution = mh.solve(joined, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=2)))
    assert solution.status == mh.Status.CONVERGED
    assert solution.experts == ("near", "far")
    assert all(solution.evidence["reproduced"].values())
    for policy, expert in zip(solution.policies(), joined.experts, strict=True):
        np.testing.assert_array_equal(
            policy.argmax(axis=1)[~expert.mdp.terminal], expert.policy.argmax(axis=1)[~expert.mdp.terminal]
        )
    parts = [mh.Problem(e.mdp, [e.sets, f.sets]) for e, f in (joined.experts[:2], joined.experts[2:])]
    alone = [mh.solve(part, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=2))).objective for part in parts]
    assert 0 < solution.objective <= min(alone) + 1e-7
    proved = mh.solve(joined, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=2), certify=0.5, certify_seconds=2, jobs=1))
    assert proved.evidence["certificate"]["upper"] >= solution.objective


@pytest.mark.parametrize("solver", [mh.LPIRL(discount=0.3, reward_bound=20), mh.NaiveLP(reward_bound=20)])
def test_every_solver_takes_joined_tasks(solver):
    solution = mh.solve(two_tasks(), solver)
    assert solution.discounts.shape == (2,)
    assert solution.residual < 1e-5


def test_joining_a_task_with_itself_changes_nothing():
    problem = problem_of(mh.domains.toy())
    once, twice = (
        mh.solve(p, mh.MPLP(reward_bound=10, search=mh.SequentialLP(starts=1)))
        for p in (problem, mh.Problem.join(problem, problem))
    )
    assert twice.objective == pytest.approx(once.objective, rel=1e-7)
    np.testing.assert_allclose(twice.discounts, once.discounts, atol=1e-6)


def test_answer_scales_with_the_reward_bound():
    problem = problem_of(mh.domains.toy())
    one, ten = (mh.solve(problem, mh.MPLP(reward_bound=b, search=mh.SequentialLP(starts=1))) for b in (1.0, 10.0))
    assert ten.objective == pytest.approx(10 * one.objective, rel=1e-6)
    np.testing.assert_allclose(ten.reward, 10 * one.reward, atol=1e-5)


def test_grid_agrees_with_sequential_lp_to_grid_accuracy():
    problem = problem_of(mh.domains.toy())
    grid = mh.solve(problem, mh.MPLP(reward_bound=10, search=mh.Grid(step=0.1, jobs=1)))
    sequential = mh.solve(problem, mh.MPLP(reward_bound=10))
    assert len(grid.trace) == 11**3
    assert grid.objective <= sequential.objective + 1e-7
    np.testing.assert_allclose(grid.discounts, sequential.discounts, atol=0.1)
    slopes = np.abs(Inner(build_margins(problem), "worst", 0.0, 10.0).at(grid.discounts).gradient)
    assert sequential.objective - grid.objective < 2 * slopes.sum() * 0.1


def test_naive_extension_ties_at_one_with_the_reward_on_the_goal_alone():
    problem = problem_of(mh.domains.toy())
    naive = mh.solve(problem, mh.NaiveLP(l1=0.02, reward_bound=10))
    assert naive.status == mh.Status.INDISTINGUISHABLE
    assert ["1", "2"] in naive.evidence["indistinguishable"]
    np.testing.assert_allclose(naive.discounts, [0, 1, 1], atol=1e-6)
    np.testing.assert_allclose(naive.reward, [0, 0, 0, 10], atol=1e-5)
    sequential = mh.solve(problem, mh.MPLP(reward_bound=10))
    assert sequential.evidence["indistinguishable"] == []
    assert np.abs(sequential.reward[1:3]).min() > 1


@pytest.mark.parametrize("name", ["toy", "cliff", "big-small"])
def test_naive_extension_ends_with_a_status_without_l1(name):
    """With θ in no way held back its programs are degenerate; on big-small HiGHS' simplex gives up on one of them."""
    domain, bound, _, _ = REFERENCE[name]
    solution = mh.solve(problem_of(domain), mh.NaiveLP(reward_bound=bound))
    assert solution.status == mh.Status.INDISTINGUISHABLE
    assert solution.residual < 1e-5


def test_action_sets_recover_the_shape_of_big_small():
    domain = mh.domains.big_small()
    solution = mh.solve(
        mh.Problem(domain.mdp, domain.lp_action_sets()), mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=2))
    )
    steps = domain.reward == -2
    assert all(solution.evidence["reproduced"].values())
    far = np.array([abs(row - 2) + abs(column - 5) for row in range(3) for column in range(6)])
    for distance in np.unique(far[steps]):
        assert np.ptp(solution.reward[steps & (far == distance)]) < 1e-5
    assert solution.reward[domain.reward == 2] > solution.reward[steps].max() + 1
    assert solution.reward[domain.reward == 20] > solution.reward[domain.reward == 2] + 1


def test_action_sets_drop_rows_on_a_face_where_the_objective_jumps():
    """Why objectives with different Ω are not compared by the search: one step off the face nothing is left of the optimum."""
    domain = mh.domains.big_small()
    inner = Inner(build_margins(mh.Problem(domain.mdp, domain.lp_action_sets())), "worst", 0.0, 20.0)
    face, beside = inner.at(np.array([1.0, 0.665, 0.0])), inner.at(np.array([1.0, 0.665, 1e-4]))
    assert face.omega.sum() < beside.omega.sum() < face.omega.size
    assert face.objective > 1.3 > 0.01 > beside.objective
    assert inner.run(face.discounts, np.ones(face.omega.size, dtype=bool)).objective < 1e-6


def test_features_tie_rewards():
    domain = mh.domains.big_small()
    shape = np.stack([domain.reward == 2, domain.reward == 20, domain.reward == -2], axis=1).astype(float)
    problem = mh.Problem(domain.mdp, domain.lp_action_sets(), features=domain.mdp.stacked @ shape)
    solution = mh.solve(problem, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=2)))
    assert solution.reward.shape == (3,)
    assert all(solution.evidence["reproduced"].values())
    assert solution.reward[1] > solution.reward[0] > solution.reward[2]


def test_single_known_discount():
    domain = mh.domains.cliff()
    solution = mh.solve(mh.Problem(domain.mdp, domain.lp_experts()[1:2]), mh.LPIRL(discount=0.4, reward_bound=20))
    assert solution.status == mh.Status.OPTIMAL
    assert solution.evidence["reproduced"] == {"0": True}
    assert solution.residual < 1e-6


def test_a_large_l1_weight_ends_in_a_status_not_in_a_zero_reward():
    solution = mh.solve(problem_of(mh.domains.toy()), mh.MPLP(l1=10.0, reward_bound=10, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.NOT_IDENTIFIED
    moderate = mh.solve(problem_of(mh.domains.toy()), mh.MPLP(l1=0.02, reward_bound=10, search=mh.SequentialLP(starts=2)))
    assert moderate.status == mh.Status.CONVERGED
    assert 0 < moderate.objective < 1.579


def contradicting() -> mh.Problem:
    """Two actions lead to two ends. Experts 0 and 1 prefer different ends, which no discount can explain."""
    stop = np.zeros((2, 3, 3))
    stop[0, 0, 1] = stop[1, 0, 2] = 1.0
    mdp = mh.MDP(stop, terminal=[1, 2], state_names=["start", "left", "right"], action_names=["go left", "go right"])
    return mh.Problem(mdp, [np.array([0, 0, 0]), np.array([1, 0, 0])], names=["Ann", "Bob"])


def test_contradicting_experts_end_in_a_certificate():
    solution = mh.solve(contradicting(), mh.MPLP(certify=0.01, certify_seconds=5, jobs=1))
    assert solution.status == mh.Status.INFEASIBLE
    assert "Ann" in solution.message
    assert "Bob" in solution.message
    assert np.isnan(solution.reward).all()
    proof = solution.evidence["contradiction"]
    assert proof["residual"] < 1e-9
    assert sorted(row[:3] for row in proof["rows"]) == [["Ann", "start", "go right"], ["Bob", "start", "go left"]]
    assert solution.evidence["certificate"]["proved"]


def test_farkas_weights_cancel_every_reward():
    problem = problem_of(mh.domains.big_small())
    margins = build_margins(problem)
    inner = Inner(margins, "worst", 0.0, 1.0)
    point = next(p for p in map(inner.at, np.random.default_rng(0).uniform(size=(50, 3))) if p.unseparated)
    gamma = point.discounts
    proof = contradiction(margins, gamma, point.unseparated[0])
    assert proof["residual"] < 1e-7
    where = {(e, s, a): i for i, (e, s, a) in enumerate(zip(*_labels(margins), strict=True))}
    weights = np.zeros(len(margins.strict))
    for expert, state, action, weight in proof["rows"]:
        weights[where[expert, state, action]] = weight
    for seed in range(3):
        reward = np.random.default_rng(seed).normal(size=problem.n_parameters)
        total = weights @ (margins.strict.matrix @ margins.continuation(reward, gamma))
        assert abs(total) < 1e-4 * weights.sum()


def _labels(margins):
    names, mdp = margins.names, margins.parts[0].expert.mdp
    rows = margins.strict
    return (
        [names[k] for k in rows.expert],
        [mdp.state_names[s] for s in rows.state],
        [mdp.action_names[a] for a in rows.action],
    )


def test_experts_who_act_alike_are_named():
    domain = mh.domains.cliff()
    experts = domain.lp_experts()
    problem = mh.Problem(domain.mdp, [experts[0], experts[0], experts[2]], names=["a", "b", "c"])
    solution = mh.solve(problem, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.INDISTINGUISHABLE
    assert solution.evidence["indistinguishable"] == [["a", "b"]]
    assert all(solution.evidence["reproduced"].values())


def test_a_policy_that_never_ends_excludes_discount_one():
    problem = mh.Problem(mh.domains.toy(ending="absorbing").mdp, mh.domains.toy().lp_experts())
    fixed = mh.solve(problem, mh.LPIRL(discount=1.0))
    assert fixed.status == mh.Status.INFEASIBLE
    assert "never ends" in fixed.message
    searched = mh.solve(problem, mh.MPLP(search=mh.SequentialLP(starts=2)))
    assert searched.status == mh.Status.CONVERGED
    assert searched.discounts.max() == 0.9999
    assert searched.objective == pytest.approx(0.00147767, rel=1e-4)


def test_certificate_bounds_the_toy_and_covers_all_discounts():
    problem = problem_of(mh.domains.toy())
    solution = mh.solve(problem, mh.MPLP(reward_bound=10, certify=0.01, certify_seconds=30, jobs=1))
    proof = solution.evidence["certificate"]
    assert solution.status == mh.Status.OPTIMAL
    assert proof["proved"]
    assert proof["covers_all"]
    assert solution.objective <= proof["upper"] <= 1.0101 * solution.objective


def test_certificate_out_of_time_reports_the_bound_reached():
    domain = mh.domains.cliff()
    solution = mh.solve(problem_of(domain), mh.MPLP(reward_bound=20, certify=1e-4, certify_seconds=0.5, jobs=1))
    proof = solution.evidence["certificate"]
    assert solution.status == mh.Status.CONVERGED
    assert not proof["proved"]
    assert solution.objective < proof["upper"] < np.inf
    inner = Inner(build_margins(problem_of(domain)), "worst", 0.0, 20.0)
    rng = np.random.default_rng(0)
    assert max(inner(rng.uniform(size=3)) for _ in range(50)) <= proof["upper"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"l1": -1.0}, "l1"),
        ({"reward_bound": 0.0}, "reward_bound"),
        ({"search": "grid"}, "search"),
        ({"certify": 0.0}, "certify"),
    ],
)
def test_bad_options_are_named(options, named):
    with pytest.raises(ValueError, match=named):
        mh.MPLP(**options)


def test_stochastic_experts_are_refused():
    domain = mh.domains.cliff()
    with pytest.raises(ValueError, match="linear-programming"):
        mh.solve(mh.Problem(domain.mdp, domain.mce_experts()), mh.MPLP())


def test_solution_survives_json(tmp_path):
    solution = mh.solve(contradicting(), mh.MPLP(search=mh.SequentialLP(starts=1)))
    solution.to_json(tmp_path / "s.json")
    assert mh.Solution.from_json(tmp_path / "s.json").status == mh.Status.INFEASIBLE


@dataclass(frozen=True)
class At:
    """A search that looks at one Γ."""

    discounts: tuple[float, ...]

    def run(self, objective, n_experts, seed=0, progress=silent):
        point = np.array(self.discounts)
        return SearchResult(mh.Trace(point[None], np.array([objective(point)]), np.zeros(1)))


def test_a_discount_on_the_limit_of_endless_policies_is_said() -> None:
    domain = mh.domains.cliff(ending="absorbing")
    experts = [mh.plan(domain.mdp, domain.reward, gamma).policy.argmax(axis=1) for gamma in (0.1, 0.4, 0.8)]
    problem = mh.Problem(domain.mdp, experts)
    resting = mh.solve(problem, mh.MPLP(search=At((0.9999, 0.9974, 0.9951))))
    assert resting.status == mh.Status.CONVERGED
    assert "; 0 rest on the limit 0.9999" in resting.message
    assert "rest on the limit" not in mh.solve(problem, mh.MPLP(search=At((0.9932, 0.396, 0.8999)))).message
    known = mh.solve(mh.Problem(domain.mdp, experts[:1]), mh.LPIRL(discount=0.9999))
    assert "rest on the limit" not in known.message
