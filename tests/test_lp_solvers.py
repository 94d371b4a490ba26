"""LPIRL, NaiveLP and MPLP with their searches, on the paper's domains and on problems made to fail."""

from dataclasses import dataclass

import numpy as np
import pytest
from posing import acting_best

import multihorizon as mh
from multihorizon.driver import SearchResult
from multihorizon.parallel import silent
from multihorizon.programs.inner import Inner, build_margins
from multihorizon.programs.solvers import contradiction
from multihorizon.solution import Trace

#: domain, reward bound, optimum and discounts (l1 = 0, one action per state), found by an independent prototype
REFERENCE = {
    "toy": (mh.domains.toy(), 10, 1.579075, (0, 0.3294, 1)),
    "cliff": (mh.domains.cliff(), 20, 2.593949, (0, 0.4258, 0.8306)),
    "big-small": (mh.domains.big_small(), 20, 1.727574, (0.3402, 0.7459, 1)),
    "big-small 4": (mh.domains.big_small(4), 20, 1.487822, (0.4982, 0.7852, 1)),
}


@pytest.mark.parametrize("name", REFERENCE)
def test_every_start_reaches_the_global_optimum(name):
    domain, bound, optimum, discounts = REFERENCE[name]
    solution = mh.solve(acting_best(domain), mh.MPLP(reward_bound=bound), seed=3)
    assert solution.status in (mh.Status.CONVERGED, mh.Status.OPTIMAL)
    assert len(solution.evidence["starts"]) == 8
    for start in solution.evidence["starts"]:
        assert start["objective"] == pytest.approx(optimum, rel=1e-5)
    np.testing.assert_allclose(solution.discounts, discounts, atol=2e-4)


@pytest.mark.parametrize("name", ["toy", "cliff", "big-small"])
def test_what_the_answer_means(name):
    domain, bound, _, _ = REFERENCE[name]
    problem = acting_best(domain)
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
    one = mh.solve(acting_best(domain), mh.MPLP(reward_bound=bound, search=mh.SequentialLP(starts=2)))
    other = mh.solve(acting_best(domain, (2, 0, 1)), mh.MPLP(reward_bound=bound, search=mh.SequentialLP(starts=2)))
    np.testing.assert_allclose(other.discounts, one.discounts[[2, 0, 1]], atol=1e-5)
    np.testing.assert_allclose(other.reward, one.reward, atol=1e-4)


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
    assert solution.status == mh.Status.OPTIMAL
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
    problem = acting_best(mh.domains.toy())
    once, twice = (
        mh.solve(p, mh.MPLP(reward_bound=10, search=mh.SequentialLP(starts=1)))
        for p in (problem, mh.Problem.join(problem, problem))
    )
    assert twice.objective == pytest.approx(once.objective, rel=1e-7)
    np.testing.assert_allclose(twice.discounts, once.discounts, atol=1e-6)


def test_answer_scales_with_the_reward_bound():
    problem = acting_best(mh.domains.toy())
    one, ten = (mh.solve(problem, mh.MPLP(reward_bound=b, search=mh.SequentialLP(starts=1))) for b in (1.0, 10.0))
    assert ten.objective == pytest.approx(10 * one.objective, rel=1e-6)
    np.testing.assert_allclose(ten.reward, 10 * one.reward, atol=1e-5)


@pytest.mark.slow
def test_grid_agrees_with_sequential_lp_to_grid_accuracy():
    problem = acting_best(mh.domains.toy())
    grid = mh.solve(problem, mh.MPLP(reward_bound=10, search=mh.Grid(step=0.1, jobs=1)))
    sequential = mh.solve(problem, mh.MPLP(reward_bound=10))
    assert len(grid.trace) == 11**3
    assert grid.objective <= sequential.objective + 1e-7
    np.testing.assert_allclose(grid.discounts, sequential.discounts, atol=0.1)
    assert sequential.objective - grid.objective < 0.5 * sequential.objective


def test_naive_extension_ties_at_one_with_the_reward_on_the_goal_alone():
    problem = acting_best(mh.domains.toy())
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
    solution = mh.solve(acting_best(domain), mh.NaiveLP(reward_bound=bound))
    assert solution.status == mh.Status.INDISTINGUISHABLE
    assert solution.residual < 1e-5


def test_action_sets_recover_the_shape_of_big_small():
    domain = mh.domains.big_small()
    solution = mh.solve(
        mh.Problem(domain.mdp, domain.hard_action_sets()), mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=2))
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
    inner = Inner(build_margins(mh.Problem(domain.mdp, domain.hard_action_sets())), "worst", 0.0, 20.0)
    face, beside = inner.at(np.array([1.0, 0.665, 0.0])), inner.at(np.array([1.0, 0.665, 1e-4]))
    assert face.omega.sum() < beside.omega.sum() < face.omega.size
    assert face.objective > 1.3 > 0.01 > beside.objective
    assert inner.run(face.discounts, np.ones(face.omega.size, dtype=bool)).objective < 1e-6


def test_features_tie_rewards():
    domain = mh.domains.big_small()
    shape = np.stack([domain.reward == 2, domain.reward == 20, domain.reward == -2], axis=1).astype(float)
    problem = mh.Problem(domain.mdp, domain.hard_action_sets(), features=domain.mdp.stacked @ shape)
    solution = mh.solve(problem, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=2)))
    assert solution.reward.shape == (3,)
    assert all(solution.evidence["reproduced"].values())
    assert solution.reward[1] > solution.reward[0] > solution.reward[2]


def test_single_known_discount():
    domain = mh.domains.cliff()
    solution = mh.solve(mh.Problem(domain.mdp, domain.hard_experts()[1:2]), mh.LPIRL(discount=0.4, reward_bound=20))
    assert solution.status == mh.Status.OPTIMAL
    assert solution.evidence["reproduced"] == {"0": True}
    assert solution.residual < 1e-6


def test_a_large_l1_weight_ends_in_a_status_not_in_a_zero_reward():
    solution = mh.solve(acting_best(mh.domains.toy()), mh.MPLP(l1=10.0, reward_bound=10, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.NOT_IDENTIFIED
    moderate = mh.solve(acting_best(mh.domains.toy()), mh.MPLP(l1=0.02, reward_bound=10, search=mh.SequentialLP(starts=2)))
    assert moderate.status == mh.Status.OPTIMAL
    assert 0 < moderate.objective < 1.579


def contradicting() -> mh.Problem:
    """Two actions lead to two ends. Experts 0 and 1 prefer different ends, which no discount can explain."""
    stop = np.zeros((2, 3, 3))
    stop[0, 0, 1] = stop[1, 0, 2] = 1.0
    mdp = mh.MDP(stop, terminal=[1, 2], state_names=["start", "left", "right"], action_names=["go left", "go right"])
    return mh.Problem(mdp, [np.array([0, 0, 0]), np.array([1, 0, 0])], names=["Ann", "Bob"])


def test_contradicting_experts_end_in_a_certificate(golden):
    solution = mh.solve(contradicting(), mh.MPLP(certify=0.01, certify_seconds=5, jobs=1))
    assert solution.status == mh.Status.INFEASIBLE
    golden(solution.message)
    assert np.isnan(solution.reward).all()
    proof = solution.evidence["contradiction"]
    assert proof["residual"] < 1e-9
    assert sorted(row[:3] for row in proof["rows"]) == [["Ann", "start", "go right"], ["Bob", "start", "go left"]]
    assert solution.evidence["certificate"]["proved"]


def test_farkas_weights_cancel_every_reward():
    problem = acting_best(mh.domains.big_small())
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
    names, mdp = margins.names, margins.tasks[0].expert.mdp
    rows = margins.strict
    return (
        [names[k] for k in rows.expert],
        [mdp.state_names[s] for s in rows.state],
        [mdp.action_names[a] for a in rows.action],
    )


def test_experts_who_act_alike_are_named(golden):
    domain = mh.domains.cliff()
    experts = domain.hard_experts()
    problem = mh.Problem(domain.mdp, [experts[0], experts[0], experts[2]], names=["a", "b", "c"])
    solution = mh.solve(problem, mh.MPLP(reward_bound=20, search=mh.SequentialLP(starts=1)))
    assert solution.status == mh.Status.INDISTINGUISHABLE
    assert solution.evidence["indistinguishable"] == [["a", "b"]]
    golden(solution.message)
    assert all(solution.evidence["reproduced"].values())


def test_a_policy_that_never_ends_excludes_discount_one(golden):
    problem = mh.Problem(mh.domains.toy(ending="absorbing").mdp, mh.domains.toy().hard_experts())
    fixed = mh.solve(problem, mh.LPIRL(discount=1.0))
    assert fixed.status == mh.Status.INFEASIBLE
    golden(fixed.message)
    searched = mh.solve(problem, mh.MPLP(search=mh.SequentialLP(starts=2)))
    assert searched.status == mh.Status.CONVERGED
    assert searched.discounts.max() == 0.9999
    assert searched.objective == pytest.approx(0.00147767, rel=1e-4)


def test_certificate_bounds_the_toy_and_covers_all_discounts():
    problem = acting_best(mh.domains.toy())
    solution = mh.solve(problem, mh.MPLP(reward_bound=10, certify=0.01, certify_seconds=30, jobs=1))
    proof = solution.evidence["certificate"]
    assert solution.status == mh.Status.OPTIMAL
    assert proof["proved"]
    assert proof["covers_all"]
    assert solution.objective <= proof["upper"] <= 1.0101 * solution.objective


def test_certificate_out_of_time_reports_the_bound_reached():
    domain = mh.domains.cliff()
    solution = mh.solve(acting_best(domain), mh.MPLP(reward_bound=20, certify=1e-4, certify_seconds=0.5, jobs=1))
    proof = solution.evidence["certificate"]
    assert solution.status == mh.Status.CONVERGED
    assert not proof["proved"]
    assert "not proved" in solution.message
    assert solution.objective < proof["upper"] < np.inf
    inner = Inner(build_margins(acting_best(domain)), "worst", 0.0, 20.0)
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
        mh.solve(mh.Problem(domain.mdp, domain.soft_experts()), mh.MPLP())


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
        return SearchResult(Trace(point[None], np.array([objective(point)]), np.zeros(1)))


def test_a_discount_on_the_limit_of_endless_policies_is_said() -> None:
    domain = mh.domains.cliff(ending="absorbing")
    experts = [mh.plan(domain.mdp, domain.reward, gamma).policy.argmax(axis=1) for gamma in (0.1, 0.4, 0.8)]
    problem = mh.Problem(domain.mdp, experts)
    resting = mh.solve(problem, mh.MPLP(search=At((0.9999, 0.9974, 0.9951))))
    assert resting.status == mh.Status.NOT_CONVERGED  # nothing but the one point was tried
    assert "; 0 rest on the limit 0.9999" in resting.message
    assert "rest on the limit" not in mh.solve(problem, mh.MPLP(search=At((0.9932, 0.396, 0.8999)))).message
    known = mh.solve(mh.Problem(domain.mdp, experts[:1]), mh.LPIRL(discount=0.9999))
    assert "rest on the limit" not in known.message


def test_a_simplex_method_that_goes_round_in_a_circle_is_stopped() -> None:
    """One of the programs of this search never ended; other ways to solve it do."""
    stay, leave, ride = 0.5236856645019057, 0.9121651889912897, 0.5296295960761109
    moves = np.zeros((2, 5, 5))
    moves[0, [0, 1, 2], [3, 0, 2]] = moves[1, [0, 1, 2, 3], [0, 1, 1, 3]] = 1.0
    moves[0, 3, [1, 3]], moves[0, 4, [1, 2]], moves[1, 4, [2, 4]] = ((p, 1 - p) for p in (stay, leave, ride))
    experts = [np.array([0, 1, 1, 1, 0]), np.array([0, 0, 1, 0, 1])]
    found = mh.solve(mh.Problem(mh.MDP(moves), experts), mh.MPLP())
    assert found.status == "optimal"
    assert all(found.evidence["reproduced"].values())
