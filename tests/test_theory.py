"""The paper's theory, run on small problems."""

import numpy as np
import pytest

import multihorizon as mh

DOMAINS = [mh.domains.toy, mh.domains.cliff, mh.domains.big_small]


@pytest.mark.parametrize("make", [mh.domains.toy, lambda: mh.domains.toy(ending="absorbing")])
def test_weak_duality_chain(make):
    domain = make()
    chain = mh.theory.duality_chain(mh.Problem(domain.mdp, domain.soft_experts()), domain.soft_discounts, (0.0, 0.5, 0.97))
    assert chain.dual > chain.primal + 0.1
    assert chain.primal > chain.likelihood + 0.1


@pytest.mark.parametrize("make", [mh.domains.toy, pytest.param(mh.domains.cliff, marks=pytest.mark.slow)])
def test_strong_duality_fails_for_one_reward_and_holds_for_one_multiplier_each(make):
    """G* is bounded from below, and H* taken over all discounts tried, as the constraints of Eq. 10 allow."""
    domain, axis = make(), (0.0, 0.5, 0.9)
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    chain = mh.theory.duality_chain(problem, domain.soft_discounts, axis)
    assert chain.dual >= chain.dual_bound > chain.entropy + 0.5
    alone = [
        mh.theory.duality_chain(problem.with_experts([expert]), [gamma], axis)
        for expert, gamma in zip(problem.experts, domain.soft_discounts, strict=True)
    ]
    assert sum(one.entropy for one in alone) == pytest.approx(chain.entropy)
    assert sum(one.dual for one in alone) == pytest.approx(chain.entropy, rel=1e-3)


def test_the_duality_chain_counts_every_task():
    domain = mh.domains.toy()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    once, twice = (
        mh.theory.duality_chain(joined, domain.soft_discounts, (0.0, 0.5, 0.97))
        for joined in (problem, mh.Problem.join(problem, problem))
    )
    for name in ("dual", "primal", "likelihood", "entropy"):
        assert getattr(twice, name) == pytest.approx(2 * getattr(once, name), rel=1e-3)


@pytest.mark.parametrize("make", DOMAINS)
def test_the_expert_is_no_critical_point_of_the_discounted_likelihood(make):
    """Its derivative at the expert is minus that of the expert's entropy, so it is negative: the maximiser lies below."""
    domain = make()
    slopes = mh.theory.likelihood_slopes(domain.mdp, domain.reward, (0.3, 0.6, 0.9))
    assert (slopes.discounted < -0.01).all()
    np.testing.assert_allclose(slopes.discounted, -slopes.entropy, rtol=1e-5)
    assert np.abs(slopes.plain).max() < 1e-7


@pytest.mark.parametrize("make", DOMAINS)
def test_the_summed_gap_is_blind_and_the_mismatch_is_not(make):
    domain = make()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    at_truth = mh.theory.gap_and_mismatch(problem, domain.soft_discounts)
    assert at_truth.mismatch.max() < 1e-8
    for wrong in (domain.soft_discounts[::-1], (0.8, 0.1, 0.4), (0.5, 0.5, 0.5)):
        found = mh.theory.gap_and_mismatch(problem, wrong)
        assert abs(found.gap) < 1e-6
        assert found.mismatch.max() > 1e-2


def test_two_toy_experts_have_full_rank_off_the_diagonal():
    domain = mh.domains.toy(ending="absorbing")
    problem = mh.Problem(domain.mdp, domain.soft_experts()[:2])
    grid = mh.theory.feasibility_grid(problem, mh.Grid(0.05, jobs=1))
    for i, first in enumerate(grid.axis):
        for j, second in enumerate(grid.axis):
            test = mh.theory.rank_test(problem, (first, second))
            assert test.feasible == grid.feasible[i, j] == (i != j)
            assert i == j or test.rank == test.augmented_rank == 11
    with pytest.warns(DeprecationWarning, match="rank_grid"):
        old = mh.rank_grid(problem, 0.25, jobs=1)
    np.testing.assert_array_equal(old.feasible, old.discounts[:, 0] != old.discounts[:, 1])


def test_rank_test_sees_the_truth_and_rejects_its_neighbours():
    domain = mh.domains.cliff()
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    truth = mh.theory.rank_test(problem, domain.soft_discounts)
    assert truth.feasible
    assert truth.rank == truth.unknowns == 48
    assert not mh.theory.rank_test(problem, (0.0, 0.2, 0.53)).feasible
    with pytest.raises(ValueError, match="3 entries"):
        mh.theory.rank_test(problem, (0.1, 0.2))


def test_the_grid_of_the_toy_sees_one_point_of_the_surface():
    """Three toy experts, absorbing: the grid finds the truth and hardly anything else, although a surface is feasible."""
    domain = mh.domains.toy(ending="absorbing")
    problem = mh.Problem(domain.mdp, domain.soft_experts())
    assert mh.theory.rank_test(problem, domain.soft_discounts).feasible
    near = [(0.3 + a, 0.5 + b, 0.95 + c) for a in (-0.05, 0, 0.05) for b in (-0.05, 0, 0.05) for c in (-0.05, 0, 0.05)]
    assert sum(mh.theory.rank_test(problem, point).feasible for point in near) == 1
    assert mh.identify(problem).dimension == 2
