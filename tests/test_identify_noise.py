"""How errors in the policies move what `identify` says."""

import numpy as np
import pytest

import multihorizon as mh

WEAK = np.random.default_rng(7).normal(size=40) / 5


def noisy(policy, size, rng):
    moved = policy * np.exp(size * rng.standard_normal(policy.shape))
    return moved / moved.sum(axis=1, keepdims=True)


def weak_domain():
    """Experts who are nearly uniform, so that small errors in their policies say much about the discounts."""
    return mh.domains.Domain("weak", mh.domains.random_mdp(40, 3, 5, seed=1), WEAK, (), (0.2, 0.9), None)


def near_domain():
    """Experts whose discounts are nearly the same."""
    return mh.domains.Domain("near", mh.domains.random_mdp(6, 2, seed=1), 5 * WEAK[:6], (), (0.5, 0.52), None)


def under_noise(domain, size):
    """What is found in eight problems with errors of one size, given that size as tolerance."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        yield mh.identify(mh.Problem(domain.mdp, [noisy(p, size, rng) for p in domain.soft_experts()]), tolerance=size)


UNIQUE = [(make, size) for make in (mh.domains.cliff, mh.domains.big_small) for size in (1e-6, 1e-4, 1e-2, 3e-2)]


@pytest.mark.parametrize(("make", "size"), [*UNIQUE, (weak_domain, 1e-6), (weak_domain, 1e-4), (near_domain, 1e-6)])
def test_unique_is_claimed_where_noise_does_little(make, size):
    domain = make()
    covered = 0
    for found in under_noise(domain, size):
        assert found.status == "unique"
        assert np.abs(found.discounts - domain.soft_discounts).max() < 0.05
        covered += ((found.intervals[:, 0] <= domain.soft_discounts) & (domain.soft_discounts <= found.intervals[:, 1])).sum()
    assert covered >= 0.8 * 8 * len(domain.soft_discounts)


@pytest.mark.parametrize(
    ("make", "size"), [(weak_domain, 1e-2), (weak_domain, 3e-2), (near_domain, 1e-3), (near_domain, 1e-2), (near_domain, 3e-2)]
)
def test_unique_is_never_claimed_where_noise_moves_the_answer(make, size):
    domain = make()
    errors = []
    for found in under_noise(domain, size):
        assert found.status == "set"
        assert (found.intervals[:, 0] <= domain.soft_discounts).all()
        assert (found.intervals[:, 1] >= domain.soft_discounts).all()
        errors.append(np.abs(found.discounts - domain.soft_discounts).max())
    assert max(errors) > 0.1


def test_noise_beyond_the_tolerance_is_called_infeasible_and_the_size_is_guessed():
    domain = mh.domains.cliff()
    rng = np.random.default_rng(1)
    problem = mh.Problem(domain.mdp, [noisy(p, 1e-4, rng) for p in domain.soft_experts()])
    found = mh.identify(problem)
    assert found.status == "infeasible"
    assert np.abs(found.discounts - domain.soft_discounts).max() < 0.01
    assert 2e-5 < found.tolerance * found.misfit < 5e-4
