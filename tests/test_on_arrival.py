"""What is paid on arrival follows the transitions: where they are estimated and give way, and in a file as in Python."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.choice.settings import Settings, with_known_reward
from multihorizon.data.side_tables import read_features

STATES = ["well", "ill", "worse", "cured", "dead"]
PAIN = np.array([[0.0, 0.0], [0.4, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])  # pain, death


def clinic() -> mh.MDP:
    """Wait or treat a patient, who is cured or dies in the end."""
    wait = [[0.7, 0.2, 0.0, 0.1, 0.0], [0.1, 0.5, 0.3, 0.05, 0.05], [0.0, 0.2, 0.5, 0.0, 0.3], [0] * 5, [0] * 5]
    treat = [[0.4, 0.1, 0.0, 0.4, 0.1], [0.5, 0.1, 0.0, 0.2, 0.2], [0.3, 0.4, 0.1, 0.1, 0.1], [0] * 5, [0] * 5]
    return mh.MDP([wait, treat], terminal=[3, 4], initial=[0, 0.5, 0.5, 0, 0], state_names=STATES, action_names=["wait", "treat"])


def walks(episodes: int = 60) -> mh.Demonstrations:
    policies = [mh.soft_plan(clinic(), PAIN @ [-1.0, -2.0], gamma, 0.5).policy for gamma in (0.2, 0.9)]
    return mh.Demonstrations.simulate(clinic(), policies, episodes, seed=3, names=["near", "far"])


def test_features_of_states_in_a_file_are_paid_on_arrival(tmp_path: Path) -> None:
    """`fit --features` is the same as `arrival_features` in Python, also where transitions are estimated and give way."""
    path = tmp_path / "pain.csv"
    pd.DataFrame(PAIN, columns=["pain", "death"]).assign(state=STATES).to_csv(path, index=False)
    table = walks()
    found = mh.analyse([table], features=partial(read_features, path), deviations=0.0, quick=True).solution
    mdp = mh.estimate_mdp(table)
    rows = [STATES.index(name) for name in mdp.state_names]
    problem = mh.Problem(mdp, table, arrival_features=PAIN[rows], feature_names=["pain", "death"])
    expected = mh.solve(problem, mh.MaximumLikelihood(temperature="pooled"))
    np.testing.assert_allclose(found.discounts, expected.discounts, atol=1e-9)
    np.testing.assert_allclose(found.standard_errors, expected.standard_errors, rtol=1e-7)
    expert = found.problem.experts[0]
    assert np.abs(expert.mdp.stacked - mdp.stacked).max() > 1e-4  # the fitted transitions are others
    np.testing.assert_allclose(expert.feature_matrix.toarray(), expert.mdp.stacked @ PAIN[rows], atol=1e-12)


def test_a_known_reward_on_arrival_follows_transitions_that_give_way() -> None:
    table = walks()
    mdp = mh.estimate_mdp(table)
    place = [STATES.index(name) for name in mdp.state_names]
    known, death = -PAIN[place, 0], PAIN[place, 1:]
    problem = mh.Problem(mdp, table, arrival_features=death, feature_names=["death"])
    paid = with_known_reward(problem, known)[0]
    model = Likelihood(paid, Settings(temperatures=np.array([0.5, 0.5])))
    rng = np.random.default_rng(0)
    x = model.pack(np.array([-2.0]), np.array([0.2, 0.9]))
    x[model.transition_slice] = 0.3 * rng.normal(size=model.move_counts.size)
    point = model.at(x)
    assert point is not None
    mdp = point.plans[0].persons.mdp
    np.testing.assert_allclose(point.problem.experts[0].known_reward, mdp.stacked @ known, atol=1e-12)
    for policy, gamma in zip(point.policies(), (0.2, 0.9), strict=True):
        right = mh.soft_plan(mdp, known - 2.0 * death[:, 0], gamma, 0.5).policy
        np.testing.assert_allclose(policy[~mdp.terminal], right[~mdp.terminal], atol=1e-9)
    step = np.where(model.fixed, 0.0, 1e-6 * rng.normal(size=model.size))
    change = model.at(x + step, point).objective - model.at(x - step, point).objective
    assert change == pytest.approx(2 * point.gradient @ step, rel=1e-4)
