"""Answers as data frames: one row per expert, in the numbers of the answer, with NaN for what is not known."""

import numpy as np
import pytest

import multihorizon as mh

CLIFF = mh.domains.cliff()
TABLE = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 300, names=["far", "near", "middle"])


@pytest.mark.slow
def test_a_solution_of_decisions_has_errors_temperatures_and_intervals() -> None:
    solution = mh.solve(mh.Problem(CLIFF.mdp, TABLE), mh.MaximumLikelihood())
    frame = solution.to_frame(0.9)
    assert list(frame.columns) == [
        *("expert", "discount", "horizon", "standard_error", "temperature", "discount_low", "discount_high"),
    ]
    assert tuple(frame["expert"]) == solution.experts
    np.testing.assert_array_equal(frame["horizon"], 1 / (1 - solution.discounts))
    np.testing.assert_array_equal(frame[["discount_low", "discount_high"]], solution.confidence_intervals(0.9))
    assert (frame["discount_low"] <= frame["discount"]).all()
    reward = solution.reward_frame().set_index("parameter")["reward"]
    assert tuple(reward.index) == CLIFF.mdp.state_names
    np.testing.assert_array_equal(reward, solution.reward)


def test_columns_that_a_solver_does_not_have_are_left_out() -> None:
    solution = mh.solve(mh.Problem(CLIFF.mdp, CLIFF.hard_experts()), mh.MPLP(reward_bound=20))
    assert list(solution.to_frame().columns) == ["expert", "discount", "horizon"]
    with pytest.raises(ValueError, match="need a solution of MaximumLikelihood"):
        solution.to_frame(0.95)


def test_an_endless_horizon_is_infinite_and_an_unknown_one_is_nan() -> None:
    solution = mh.Solution("s", mh.Status.CONVERGED, "", ("a", "b"), np.array([1.0, np.nan]), np.zeros(2), 0.0, 0.0)
    frame = solution.to_frame()
    assert frame["horizon"][0] == np.inf
    assert np.isnan(frame["horizon"][1])
    with pytest.raises(ValueError, match="was read from a file"):
        solution.reward_frame()


def test_other_shapes_of_look_ahead_bring_their_parameters() -> None:
    task = mh.domains.space_adventure(mini_blocks=20)
    people = task.persons(3)
    solver = mh.MaximumLikelihood("per_expert", known_reward=task.reward, lookahead=mh.Hyperbolic())
    solution = mh.solve(mh.Problem(task.mdp, people.demonstrations), solver)
    (name,) = solution.evidence["lookahead"]["parameters"]
    frame = solution.to_frame()
    assert frame["discount"].isna().all()
    np.testing.assert_array_equal(frame[name], solution.evidence["lookahead"]["parameters"][name])


def test_what_is_not_identified_is_nan_and_has_its_range() -> None:
    toy = mh.domains.toy()
    found = mh.identify(mh.Problem(toy.mdp, toy.soft_experts(), names=["near", "middle", "far"]))
    frame = found.to_frame().set_index("expert")
    assert frame["discount"].isna().all()
    np.testing.assert_array_equal(frame[["discount_low", "discount_high"]], found.intervals)
    assert frame["discount_low"]["near"] < 0.3 < frame["discount_high"]["near"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["policies", "decisions"])
def test_goals_number_the_groups_from_one(kind: str) -> None:
    other = CLIFF.reward[::-1].copy()
    rewards, discounts = [CLIFF.reward, other, CLIFF.reward, other], [0.3, 0.4, 0.8, 0.9]
    policies = [mh.soft_plan(CLIFF.mdp, reward, gamma).policy for reward, gamma in zip(rewards, discounts, strict=True)]
    names = ["a", "b", "c", "d"]
    data = policies if kind == "policies" else mh.Demonstrations.simulate(CLIFF.mdp, policies, 400, names=names)
    problem = mh.Problem(CLIFF.mdp, data, names=names) if kind == "policies" else mh.Problem(CLIFF.mdp, data)
    found = mh.goals(problem)
    frame = found.to_frame().set_index("expert")
    assert {name: frame["goal"][name] for group in found.groups for name in group} == {
        name: number for number, group in enumerate(found.groups, start=1) for name in group
    }
    np.testing.assert_array_equal(frame["discount"], found.discounts)


@pytest.mark.slow
def test_an_analysis_lists_its_experts_from_the_shortest_horizon_to_the_longest() -> None:
    frame = mh.analyse([TABLE], [CLIFF.mdp], quick=True).to_frame()
    assert frame["discount"].is_monotonic_increasing
    assert set(frame["expert"]) == {"far", "near", "middle"}
    assert (frame["decisions"] > 0).all()
