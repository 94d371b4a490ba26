"""The paper's numbered statements that the library judges, each by a computation of its own."""

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.entropy.dual import Dual, minimise_dual
from multihorizon.planning.plan import causal_entropy, feature_counts

DOMAINS = pytest.mark.parametrize("domain", [mh.domains.toy(), mh.domains.big_small(), mh.domains.cliff()], ids=lambda d: d.name)
WRONG = [0.8, 0.2, 0.6]


@DOMAINS
def test_corollary_1_the_constraints_of_eq_12_hold_at_every_discount(domain) -> None:
    """Each expert's feature counts are matched by a reward of the expert's own, and the optimum is the experts' own entropy."""
    problem = mh.Problem(domain.mdp, domain.mce_experts())
    total = 0.0
    for expert, gamma in zip(problem.experts, WRONG, strict=False):
        alone = Dual(problem.with_experts([expert]), np.array([gamma]), np.ones(1))
        answer = minimise_dual(alone, tolerance=1e-8)
        assert np.abs(answer.point.gradient).max() < 1e-8
        assert answer.point.entropy == pytest.approx(causal_entropy(domain.mdp, expert.policy, gamma), rel=1e-6)
        total += answer.point.entropy
    wrong = WRONG[: problem.n_experts]
    assert mh.theory.rank_test(problem, wrong).augmented_rank > mh.theory.rank_test(problem, wrong).rank
    assert total > 0


@DOMAINS
def test_eq_12_taken_literally_rises_with_every_discount(domain) -> None:
    """So the supremum of Eq. 10 lies at discount 1, whatever the experts' own."""
    for policy in domain.mce_experts():
        entropies = [causal_entropy(domain.mdp, policy, gamma) for gamma in (0.0, 0.3, 0.6, 0.9, 0.99)]
        assert (np.diff(entropies) > 0).all()


def test_the_printed_reward_does_not_give_the_toy_experts_back() -> None:
    """The paper's MPMCE reward and discounts on the toy, and the expert with the shortest horizon at the first state."""
    domain = mh.domains.toy()
    reward, discounts = np.array([3.4, 4.2, 3.1, 9.7]), (0.53, 0.82, 0.98)
    experts = domain.mce_experts()
    assert experts[0][0] == pytest.approx([0.670, 0.259, 0.071], abs=1e-3)
    planned = [mh.soft_plan(domain.mdp, reward, gamma).policy for gamma in discounts]
    assert planned[0][0] == pytest.approx([0.377, 0.446, 0.177], abs=1e-3)
    off = []
    for policy, expert, gamma in zip(planned, experts, discounts, strict=True):
        counts = [feature_counts(domain.mdp, each, gamma, domain.mdp.stacked) for each in (policy, expert)]
        off.append(np.abs(counts[0] - counts[1]).max())
    assert off == pytest.approx([0.188, 0.204, 0.019], abs=2e-3)
    assert (reward[1] > reward[2]) != (domain.reward[1] > domain.reward[2])
