"""MCE, MPMCE and MPML: duality, gradients by finite differences, and what each rule can see."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.driver import SearchResult
from multihorizon.entropy.mce import Dual, discount_gradient, minimise_dual
from multihorizon.entropy.mpmce import match
from multihorizon.paper.mpml import discounted_likelihood
from multihorizon.planning.plan import causal_entropy, feature_counts
from multihorizon.solution import Trace


def slip_problem(gamma, ending="terminal"):
    mdp = mh.domains.gridworld(5, 5, slip=0.1, terminal=[(4, 4)] if ending == "terminal" else ())
    reward = np.random.default_rng(0).normal(size=25)
    return mdp, mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy])


@pytest.mark.parametrize("ending", ["terminal", "absorbing"])
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9])
def test_mce_reproduces_the_expert_at_the_true_discount(gamma, ending):
    mdp, problem = slip_problem(gamma, ending)
    found = mh.solve(problem, mh.MCE(discount=gamma))
    assert found.status == "converged"
    assert found.residual < 1e-8
    live = ~mdp.terminal
    np.testing.assert_allclose(found.policies()[0][live], problem.experts[0].policy[live], atol=1e-5)
    counts = feature_counts(mdp, found.policies()[0], gamma)
    np.testing.assert_allclose(counts, feature_counts(mdp, problem.experts[0].policy, gamma), atol=1e-7)


def test_a_reward_for_never_ending_has_no_value_at_discount_one():
    domain = mh.domains.big_small()
    reward = np.where(np.arange(18) == 0, 1000.0, -2.0)
    with pytest.raises(ValueError, match="infinite"):
        mh.soft_plan(domain.mdp, reward, 1.0)


def test_mce_at_discount_one_starts_where_values_exist():
    domain = mh.domains.big_small()
    problem = mh.Problem(domain.mdp, [mh.soft_plan(domain.mdp, domain.reward, 1.0).policy])
    found = mh.solve(problem, mh.MCE(discount=1.0))
    assert found.status == "converged"
    np.testing.assert_allclose(found.policies()[0], problem.experts[0].policy, atol=1e-4)


@pytest.mark.parametrize("discount", [0.98, 0.9999])
def test_the_dual_is_minimised_near_discount_one_too(discount):
    """From no reward Newton's method runs into rewards without a finite value; another start gets there."""
    domain = mh.domains.big_small()
    dual = Dual(mh.Problem(domain.mdp, domain.soft_experts()), np.array([0.2, 0.6, discount]), np.ones(3))
    assert minimise_dual(dual).gradient_norm < 1e-6


def test_the_dual_is_minimised_where_discounts_nearly_agree():
    """The reward that tells such experts apart is in the millions, and no step length keeps the minimisation from it."""
    domain = mh.domains.toy()
    dual = Dual(mh.Problem(domain.mdp, domain.soft_experts()), np.array([0.9998, 0.9999, 0.9997]), np.ones(3))
    found = minimise_dual(dual)
    assert found.converged
    assert found.iterations < 100


def test_mce_value_is_the_experts_entropy():
    """Strong duality at a known discount: the dual's optimum is the causal entropy of the expert."""
    mdp, problem = slip_problem(0.7)
    found = mh.solve(problem, mh.MCE(discount=0.7))
    assert found.objective == pytest.approx(causal_entropy(mdp, problem.experts[0].policy, 0.7), rel=1e-8)


def test_mce_matches_a_policy_that_no_reward_explains_in_its_counts():
    rng = np.random.default_rng(3)
    mdp = mh.domains.random_mdp(6, 3, seed=1)
    policy = rng.dirichlet(np.full(3, 5.0), 6)
    found = mh.solve(mh.Problem(mdp, [policy]), mh.MCE(discount=0.6))
    np.testing.assert_allclose(feature_counts(mdp, found.policies()[0], 0.6), feature_counts(mdp, policy, 0.6), atol=1e-7)
    assert causal_entropy(mdp, found.policies()[0], 0.6) > causal_entropy(mdp, policy, 0.6)


def test_mce_with_features_and_a_discount_per_expert():
    mdp = mh.domains.gridworld(3, 4, slip=0.2, terminal=[(0, 3)])
    features = np.hstack([mdp.stacked @ np.random.default_rng(1).normal(size=(12, 3)), np.repeat(np.eye(4), 12, axis=0)[:, :1]])
    theta = np.array([1.0, -0.5, 2.0, -0.7])
    reward = (features @ theta).reshape(4, 12).T
    experts = [mh.soft_plan(mdp, reward, gamma).policy for gamma in (0.3, 0.9)]
    found = mh.solve(mh.Problem(mdp, experts, features=features), mh.MCE(discount=[0.3, 0.9]))
    np.testing.assert_allclose(found.reward, theta, atol=1e-5)
    with pytest.raises(ValueError, match="one for each of 2 experts"):
        mh.solve(mh.Problem(mdp, experts), mh.MCE(discount=[0.3, 0.9, 0.5]))


@pytest.mark.parametrize("bad", [{"discount": 1.5}, {"discount": [0.2, -0.1]}, {"discount": 0.5, "temperature": 0.0}])
def test_mce_options_are_checked(bad):
    with pytest.raises(ValueError, match="must be"):
        mh.MCE(**bad)


def test_dual_gradient_and_hessian_are_finite_differences():
    domain, rng = mh.domains.cliff(), np.random.default_rng(0)
    dual = Dual(mh.Problem(domain.mdp, domain.soft_experts()), np.array([0.1, 0.4, 0.7]), np.array([1.0, 0.5, 2.0]))
    theta, v, step = rng.normal(size=12), rng.normal(size=12), 1e-5
    here, ahead, behind = (dual.at(theta + s * step * v) for s in (0, 1, -1))
    assert here.gradient @ v == pytest.approx((ahead.value - behind.value) / (2 * step), rel=1e-7)
    product = np.sum([response.hessian_product(v) for response in here.responses], axis=0)
    np.testing.assert_allclose(product, (ahead.gradient - behind.gradient) / (2 * step), atol=1e-7)


def test_newton_by_products_agrees_with_the_dense_one():
    _, problem = slip_problem(0.6)
    dual = Dual(problem, np.array([0.6]), np.ones(1))
    dense = minimise_dual(dual)
    products = minimise_dual(dual, dense_features=0)
    assert products.converged
    assert products.point.value == pytest.approx(dense.point.value, rel=1e-10)


def test_likelihood_gradient_in_the_discounts_is_a_finite_difference():
    domain = mh.domains.cliff()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    theta, here, lam, step = np.random.default_rng(1).normal(size=12), np.array([0.2, 0.5, 0.8]), np.array([1.0, 0.7, 1.4]), 1e-6

    def likelihood(gammas):
        dual = Dual(problem, gammas, lam)
        return discounted_likelihood(dual, dual.at(theta))

    dual = Dual(problem, here, lam)
    gradient = discount_gradient(dual, dual.at(theta))
    for k in range(3):
        move = step * (np.arange(3) == k)
        assert gradient[k] == pytest.approx((likelihood(here + move) - likelihood(here - move)) / (2 * step), rel=1e-5)


def test_discounted_likelihood_is_the_expectation_it_stands_for():
    domain = mh.domains.cliff()
    problem, gammas = mh.Problem(domain.mdp, domain.soft_experts()), np.array([0.2, 0.5, 0.8])
    dual, theta = Dual(problem, gammas, np.full(3, 0.8)), np.random.default_rng(2).normal(size=12)
    direct = 0.0
    for expert, gamma in zip(problem.experts, gammas, strict=True):
        logs = mh.soft_plan(domain.mdp, theta, gamma, 0.8).log_policy
        direct += float((mh.occupancy(domain.mdp, expert.policy, gamma).counts * logs).sum())
    assert discounted_likelihood(dual, dual.at(theta)) == pytest.approx(direct, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("make", [mh.domains.toy, mh.domains.big_small, mh.domains.cliff])
def test_the_mismatch_and_the_entropy_move_with_the_discounts_as_finite_differences_say(make):
    domain, here, step = make(), np.array([0.35, 0.55, 0.8]), 1e-5
    problem = mh.Problem(domain.mdp, domain.soft_experts())

    def at(gammas):
        dual = Dual(problem, gammas, np.full(3, 0.7))
        return match(dual, minimise_dual(dual, tolerance=1e-11).point)

    plain = at(here)
    for k in range(3):
        move = step * (np.arange(3) == k)
        ahead, behind = at(here + move), at(here - move)
        assert plain.entropy_gradient[k] == pytest.approx((ahead.point.entropy - behind.point.entropy) / (2 * step), abs=1e-6)
        np.testing.assert_allclose(plain.derivative[:, :, k], (ahead.mismatch - behind.mismatch) / (2 * step), atol=1e-7)


def test_one_person_in_two_tasks_moves_both_mismatches():
    first, second = mh.domains.cliff(), mh.domains.cliff(slip=0.3)
    parts = [mh.Problem(d.mdp, [mh.soft_plan(d.mdp, d.reward, g).policy for g in (0.2, 0.6)]) for d in (first, second)]
    joined, here, step = mh.Problem.join(*parts), np.array([0.3, 0.5]), 1e-5

    def at(gammas):
        dual = Dual(joined, gammas, np.ones(2))
        return match(dual, minimise_dual(dual, tolerance=1e-11).point)

    for k in range(2):
        move = step * (np.arange(2) == k)
        slope = (at(here + move).mismatch - at(here - move).mismatch) / (2 * step)
        np.testing.assert_allclose(at(here).derivative[:, :, k], slope, atol=1e-6)


@dataclass(frozen=True)
class Points:
    """A search over a few given points."""

    points: tuple[tuple[float, ...], ...]

    def run(self, objective, n_experts, seed=0, progress=None):
        values = np.array([objective(np.array(point)) for point in self.points])
        return SearchResult(Trace(np.array(self.points), values, np.zeros(values.size)))


AROUND = Points(((0.4, 0.52), (0.2, 0.7), (0.2, 0.52), (0.52, 0.2), (0.6, 0.8), (0.0, 0.4)))


def two_cliff_experts():
    domain = mh.domains.cliff()
    return mh.Problem(domain.mdp, [domain.soft_experts()[i] for i in (1, 2)])


def test_mpmce_picks_the_truth_where_each_expert_is_matched():
    found = mh.solve(two_cliff_experts(), mh.MPMCE(search=AROUND))
    assert found.discounts.tolist() == [0.2, 0.52]
    assert found.status == "converged"
    assert found.objective == pytest.approx(found.evidence["entropy"], rel=1e-4)
    matched = (found.trace.discounts == [0.2, 0.52]).all(axis=1)
    assert (found.trace.values[~matched] < 0).all()


def test_mpmce_away_from_the_truth_is_not_converged():
    found = mh.solve(two_cliff_experts(), mh.MPMCE(search=Points(((0.6, 0.8), (0.3, 0.6)))))
    assert found.status == "not converged"
    assert found.residual == pytest.approx(found.objective**2, rel=1e-4)


def test_the_summed_rule_calls_every_discount_feasible_and_climbs_in_entropy():
    found = mh.solve(two_cliff_experts(), mh.MPMCE(gap="summed", search=AROUND))
    assert (found.trace.values > 0).all()
    assert found.discounts.tolist() == [0.6, 0.8]
    assert abs(found.evidence["summed_gap"]) < 1e-5
    assert found.residual > 0.05
    with pytest.raises(ValueError, match="gap must be"):
        mh.MPMCE(gap="both")


@pytest.mark.slow
def test_within_a_threshold_the_entropy_pulls_the_discounts_up_and_keeps_their_order():
    domain = mh.domains.big_small()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    tight, wide = (mh.solve(problem, mh.MPMCE(gap="threshold", threshold=e, starts=1)) for e in (1e-4, 3e-3))
    np.testing.assert_allclose(tight.discounts, domain.soft_discounts, atol=0.01)
    assert wide.status == "converged"
    assert wide.evidence["entropy_within_reach"] < 1e-5
    assert 0.99 * 3e-3 < wide.residual <= 3e-3
    assert wide.objective > tight.objective
    assert (wide.discounts > tight.discounts).all()
    assert (np.diff(wide.discounts) > 0).all()


@pytest.mark.slow
def test_no_discounts_nearby_pass_the_threshold_with_more_entropy():
    domain, threshold = mh.domains.big_small(), 3e-3
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    found = mh.solve(problem, mh.MPMCE(gap="threshold", threshold=threshold, starts=1))
    rng = np.random.default_rng(0)
    near = Points(tuple(map(tuple, np.clip(found.discounts + rng.uniform(-0.05, 0.05, (60, 3)), 0, 1))))
    others = mh.solve(problem, mh.MPMCE(gap="threshold", threshold=threshold, search=near))
    assert (others.trace.values > 0).any()
    assert others.objective < found.objective + 1e-3


def test_a_climb_that_did_not_end_is_not_converged(golden):
    domain = mh.domains.big_small()
    solver = mh.MPMCE(gap="threshold", threshold=1e-2, starts=1, max_steps=1)
    found = mh.solve(mh.Problem(domain.mdp, domain.soft_experts()), solver)
    assert found.status == "not converged"
    golden(found.message)


def test_a_known_part_of_the_reward_is_paid_to_expert_and_model_alike():
    """Splitting the reward into a known and an unknown part changes neither the dual nor the likelihood."""
    domain, gammas, known = mh.domains.cliff(), np.array([0.2, 0.6]), np.random.default_rng(5).normal(size=12)
    plain = mh.Problem(domain.mdp, [mh.soft_plan(domain.mdp, domain.reward, gamma).policy for gamma in gammas])
    told = plain.with_experts(replace(expert, known_reward=domain.mdp.stacked @ known) for expert in plain.experts)
    for theta in np.random.default_rng(6).normal(size=(3, 12)):
        whole, rest = (Dual(problem, gammas, np.ones(2)) for problem in (plain, told))
        here, there = whole.at(theta), rest.at(theta - known)
        assert there.value == pytest.approx(here.value)
        assert discounted_likelihood(rest, there) == pytest.approx(discounted_likelihood(whole, here))
        np.testing.assert_allclose(discount_gradient(rest, there), discount_gradient(whole, here))


def test_without_discounting_every_task_gets_a_cost_to_begin_with():
    """In either task alone no reward at all has infinite soft values, so a start must know of both."""
    domain = mh.domains.big_small()
    moves = [domain.mdp.transition(a) for a in range(4)]
    twin = mh.MDP(moves, domain.mdp.initial, domain.mdp.terminal, state_names=[f"other {i}" for i in range(18)])
    policy = mh.soft_plan(domain.mdp, domain.reward, 1.0).policy
    here, there = (mh.Problem(mdp, [policy], names=["ann"]) for mdp in (domain.mdp, twin))
    alone = mh.solve(here, mh.MCE(discount=1.0))
    for joined in (mh.Problem.join(here, there), mh.Problem.join(there, here)):
        found = mh.solve(joined, mh.MCE(discount=1.0))
        assert found.status == "converged"
        np.testing.assert_allclose(found.reward, np.tile(alone.reward, 2), atol=1e-6)


def test_the_objective_of_discounts_that_just_pass_is_their_entropy():
    """The climb aims a little below the threshold; what passes is decided by the threshold itself."""
    mdp, rewards = mh.domains.random_mdp(5, 2, seed=1), np.random.default_rng(3).normal(size=(2, 5))
    problem = mh.Problem(mdp, [mh.soft_plan(mdp, r, g).policy for r, g in zip(rewards, (0.3, 0.6), strict=True)])
    least = mh.solve(problem, mh.MPMCE(gap="threshold", threshold=1e-9, starts=1)).residual
    found = mh.solve(problem, mh.MPMCE(gap="threshold", threshold=1.0005 * least, starts=1))
    assert found.status == mh.Status.CONVERGED
    assert found.objective == pytest.approx(found.evidence["entropy"])


@pytest.mark.slow
def test_a_climb_whose_end_could_not_be_checked_is_not_converged(monkeypatch, golden):
    monkeypatch.setattr("multihorizon.entropy.mpmce.entropy_within_reach", lambda *_: np.nan)
    domain = mh.domains.big_small()
    found = mh.solve(mh.Problem(domain.mdp, domain.soft_experts()), mh.MPMCE(gap="threshold", threshold=1e-2, starts=1))
    assert found.status == mh.Status.NOT_CONVERGED
    golden(found.message)


def test_a_threshold_nobody_passes_is_not_converged(golden):
    found = mh.solve(two_cliff_experts(), mh.MPMCE(gap="threshold", search=Points(((0.6, 0.8), (0.3, 0.6)))))
    assert found.status == "not converged"
    golden(found.message)
    assert found.residual == pytest.approx(-1e-3 * found.objective, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("gap", ["per_expert", "summed", "threshold"])
def test_an_inner_problem_that_did_not_finish_is_no_answer(gap, golden):
    found = mh.solve(two_cliff_experts(), mh.MPMCE(gap=gap, search=AROUND, inner_tolerance=1e-30))
    assert np.isnan(found.trace.values).all()
    assert found.status == "not converged"
    golden(found.message)
    assert mh.solve(two_cliff_experts(), mh.MPML(search=AROUND, tolerance=1e-30)).status == "not converged"
    assert mh.solve(two_cliff_experts(), mh.MPML(starts=1, tolerance=1e-30)).status == "not converged"


def test_mpmce_takes_a_bayesian_search_and_repeats_it_with_the_same_seed():
    solver = mh.MPMCE(search=mh.Bayesian(4, initial=3))
    first, second = (mh.solve(two_cliff_experts(), solver, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.trace.discounts, second.trace.discounts)


def test_mpml_prefers_discounts_that_are_not_the_experts():
    mdp = mh.domains.random_mdp(5, 2, seed=0)
    experts = [mh.soft_plan(mdp, [1.0, -1.0, 0.5, 2.0, 0.0], gamma).policy for gamma in (0.3, 0.7)]
    problem = mh.Problem(mdp, experts)
    climbed = mh.solve(problem, mh.MPML(starts=2))
    truth = Dual(problem, np.array([0.3, 0.7]), np.ones(2))
    assert climbed.objective > discounted_likelihood(truth, minimise_dual(truth).point) + 0.1
    assert climbed.discounts.max() < 0.3
    searched = mh.solve(problem, mh.MPML(search=Points(((0.1, 0.2), (0.3, 0.7), (0.5, 0.5)))))
    assert searched.discounts.tolist() == [0.1, 0.2]
    assert climbed.objective >= searched.objective


def outside(seed: int) -> tuple[mh.MDP, np.ndarray]:
    """A task that is not the paper's: dense or sparse, every third with an end."""
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.full(12, 0.3), size=(3, 12))
    if seed % 2:
        moves = np.where(moves >= np.sort(moves, axis=2)[..., [-3]], moves, 0.0)
        moves /= moves.sum(axis=2, keepdims=True)
    ends = [11] if seed % 3 == 0 else []
    moves[:, ends] = 0.0
    return mh.MDP(moves, initial=np.append(np.full(11, 1 / 11), 0), terminal=ends), rng.normal(size=12)


@pytest.mark.parametrize("seed", range(4))
def test_the_default_is_right_outside_the_paper(seed: int) -> None:
    """Bayesian search was off by up to .38 there; each expert alone gives the discounts at which all agree."""
    mdp, reward = outside(seed)
    truth = [0.3, 0.7, 0.9, 0.97]
    found = mh.solve(mh.Problem(mdp, [mh.soft_plan(mdp, reward, gamma).policy for gamma in truth]), mh.MPMCE())
    assert found.status == "converged"
    assert found.discounts == pytest.approx(truth, abs=1e-6)
    assert found.residual < 1e-8


def test_experts_who_share_no_reward_are_not_matched(golden) -> None:
    mdp, reward = outside(1)
    others = np.random.default_rng(9).normal(size=12)
    experts = [mh.soft_plan(mdp, wanted, gamma).policy for wanted, gamma in ((reward, 0.3), (others, 0.7), (reward, 0.9))]
    found = mh.solve(mh.Problem(mdp, experts), mh.MPMCE(starts=1))
    assert found.status == "not converged"
    golden(found.message)


@pytest.mark.slow
def test_the_toy_says_that_other_discounts_match_as_well() -> None:
    domain = mh.domains.toy()
    found = mh.solve(mh.Problem(domain.mdp, domain.soft_experts()), mh.MPMCE())
    assert found.status == "not identified"
    assert found.residual < 1e-6
