"""The bound over a box is above g* everywhere in it, and close to it where the box is small."""

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.programs.certificate import Relaxation
from multihorizon.programs.inner import Inner
from multihorizon.programs.margins import build_margins


def signed_features() -> mh.Problem:
    """A reward with features of both signs, so that every sign case of the curvature terms is met."""
    mdp = mh.domains.random_mdp(5, 3, branching=3, n_terminal=1, seed=4)
    features = np.random.default_rng(2).normal(size=(15, 6))
    reward = (features @ np.array([1.0, -1.0, 0.5, 0.3, -0.2, 0.8])).reshape(3, 5).T
    return mh.Problem(mdp, [mh.plan(mdp, reward, g).optimal_actions for g in (0.1, 0.9)], features=features)


PROBLEMS = {
    "cliff": lambda: mh.Problem(mh.domains.cliff().mdp, mh.domains.cliff().lp_experts()),
    "ties": lambda: mh.Problem(mh.domains.big_small().mdp, mh.domains.big_small().lp_action_sets()),
    "features": signed_features,
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_bound_holds_in_the_box_and_tightens_with_it(name):
    margins = build_margins(PROBLEMS[name]())
    every = np.ones(len(margins.strict), dtype=bool)
    inner, relaxation = Inner(margins, "worst", 0.0, 1.0), Relaxation(margins, every, 0.0, 1.0)
    rng = np.random.default_rng(5)
    centre = np.linspace(0.3, 0.8, margins.n_experts)
    widths = (0.4, 0.1, 1e-6)
    bounds = []
    for width in widths:
        low, high = np.clip(centre - width / 2, 0, 1), np.clip(centre + width / 2, 0, 1)
        bounds.append(relaxation.box(low, high, 0.0)[0])
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
        assert Relaxation(margins, every, l1, 1.0).box(gamma, gamma + 1e-7, 0.0)[0] == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("name", PROBLEMS)
def test_relaxed_rows_are_above_the_exact_ones_for_any_reward(name):
    margins = build_margins(PROBLEMS[name]())
    relaxation = Relaxation(margins, np.ones(len(margins.strict), dtype=bool), 0.0, 1.0)
    rng = np.random.default_rng(1)
    low, high = 0.1, 0.9
    for share, k in ((s, k) for s in (0.2, 0.5, 0.8) for k in range(margins.n_experts)):
        rows = relaxation.relaxed(k, low, high)
        gammas = np.full(margins.n_experts, low + share * (high - low))
        for theta in rng.normal(size=(20, margins.n_parameters)):
            point = margins.continuation(theta, gammas)
            exact = (margins.strict.matrix @ point)[margins.strict.expert == k]
            tied = (margins.ties.matrix @ point)[margins.ties.expert == k]
            above = rows.positive @ np.maximum(theta, 0) + rows.negative @ np.maximum(-theta, 0) + rows.product @ (share * theta)
            assert (above >= np.concatenate([exact, tied, -tied]) - 1e-9).all()
