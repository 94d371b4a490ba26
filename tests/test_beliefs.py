"""People who plan with transitions that do not hold: beliefs apart from the task in which they decide."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

import multihorizon as mh

DISCOUNTS = (0.3, 0.7, 0.9)


def ladder(slip: float) -> mh.MDP:
    """Seven rungs: climbing slips back with this probability, resting stays, and the top rung pays."""
    moves = np.zeros((2, 7, 7))
    for rung in range(7):
        moves[0, rung, rung] = 1.0
        moves[1, rung, min(rung + 1, 6)] += 1 - slip
        moves[1, rung, max(rung - 2, 0)] += slip
    return mh.MDP(moves, initial=np.full(7, 1 / 7), action_names=["rest", "climb"])


def paid() -> np.ndarray:
    """Resting pays a little everywhere; on the top rung much."""
    reward = np.zeros((7, 2))
    reward[:, 0] = 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0
    return reward


def choices(mdp: mh.MDP, discount: float) -> np.ndarray:
    """Plan by iteration, at a temperature of a half: a planner of the test's own."""
    values = np.zeros(7)
    moves = np.stack([mdp.transition(action).toarray() for action in (0, 1)])
    for _ in range(2000):
        q = (paid() + discount * (moves @ values).T) / 0.5
        values = 0.5 * np.log(np.exp(q - q.max()).sum(axis=1)) + 0.5 * q.max()
    odds = np.exp(q - q.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def logged(beliefs: list[mh.MDP], world: mh.MDP, seed: int, episodes: int = 80) -> mh.Demonstrations:
    """Draw decisions of people who plan with their beliefs and move in the world."""
    rng = np.random.default_rng(seed)
    moves = np.stack([world.transition(action).toarray() for action in (0, 1)])
    rows = []
    for name, discount, belief in zip(("Ann", "Ben", "Cleo"), DISCOUNTS, beliefs, strict=True):
        policy = choices(belief, discount)
        for episode in range(episodes):
            state = int(rng.integers(7))
            for step in range(20):
                action = int(rng.random() < policy[state, 1])
                after = int(rng.choice(7, p=moves[action, state]))
                rows.append((name, episode, step, state, ("rest", "climb")[action], after))
                state = after
    frame = pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"])
    return mh.Demonstrations.from_frame(frame, cut_off=True)


CAREFUL, WORLD = ladder(0.45), ladder(0.1)
SOLVER = mh.MaximumLikelihood("shared", known_reward=paid())


@cache
def study() -> mh.Demonstrations:
    return logged([CAREFUL] * 3, WORLD, seed=1)


def inside(solution: mh.Solution) -> list[bool]:
    return [low <= g <= high for g, (low, high) in zip(DISCOUNTS, solution.confidence_intervals(), strict=True)]


def test_discounts_are_right_with_the_beliefs_and_wrong_without() -> None:
    known = mh.solve(mh.Problem(WORLD, study(), believed=CAREFUL), SOLVER)
    blind = mh.solve(mh.Problem(WORLD, study()), SOLVER)
    assert all(inside(known))
    assert not any(inside(blind))
    np.testing.assert_allclose(known.policies()[1], choices(CAREFUL, known.discounts[1]), atol=0.05)


def test_beliefs_may_differ_between_people_and_are_given_as_arrays() -> None:
    moves = np.stack([CAREFUL.transition(action).toarray() for action in (0, 1)])
    table = logged([CAREFUL, WORLD, CAREFUL], WORLD, seed=2)
    problem = mh.Problem(WORLD, table, believed={"Ann": moves, "Cleo": CAREFUL})
    solution = mh.solve(problem, SOLVER)
    assert solution.experts == ("Ann", "Ben", "Cleo")
    assert all(inside(solution))
    with pytest.raises(ValueError, match="experts who believe in the same transitions, got different beliefs"):
        mh.predict(solution, pay={"6": 1.0})
    trials = solution.to_trials()
    assert np.log(trials.probability).sum() == pytest.approx(solution.objective, abs=1e-8)
    pd.testing.assert_frame_equal(trials[["expert", "episode", "step"]], table.to_frame()[["expert", "episode", "step"]])


@pytest.mark.parametrize(
    ("believed", "sentence"),
    [
        (mh.domains.big_small().mdp, "must have the state names of the task"),
        ({"nobody": CAREFUL}, "believed must name experts"),
        (mh.estimate_mdp(study(), smoothing=0.5), "must be known probabilities|must have the"),
    ],
)
def test_beliefs_about_another_task_are_refused(believed, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        mh.Problem(WORLD, study(), believed=believed)


def test_predictions_plan_with_the_beliefs_and_move_in_the_world() -> None:
    solution = mh.solve(mh.Problem(WORLD, study(), believed=CAREFUL), SOLVER)
    bonus = {("2", "climb"): 1.0}
    found = mh.predict(solution, pay=bonus, draws=100, rounds=5)
    extra = np.zeros((7, 2))
    extra[2, 1] = 1.0
    moves = np.stack([WORLD.transition(action).toarray() for action in (0, 1)])
    for k in range(3):
        policy = mh.soft_plan(CAREFUL, paid() + extra, solution.discounts[k], solution.temperature[k]).policy
        np.testing.assert_allclose(found.after[k], policy, atol=1e-8)
        here, visits = np.full(7, 1 / 7), np.zeros(7)
        for _ in range(5):
            visits += here
            here = np.einsum("s,sa,ast->t", here, policy, moves)
        rows = found.outcomes[(found.outcomes.expert == solution.experts[k]) & (found.outcomes.quantity == "visits")]
        np.testing.assert_allclose(rows.after, visits, atol=1e-8)
        assert ((rows.low <= rows.after) & (rows.after <= rows.high)).all()


def test_what_is_paid_on_arrival_is_expected_under_the_beliefs() -> None:
    features = np.eye(7)
    problem = mh.Problem(WORLD, study(), arrival_features=features, believed=CAREFUL)
    np.testing.assert_array_equal(problem.experts[0].feature_matrix.toarray(), CAREFUL.stacked.toarray())
    assert problem.experts[0].world is WORLD
    np.testing.assert_allclose(problem.mdp.initial, WORLD.initial)


def test_studies_are_simulated_in_the_world() -> None:
    problem = mh.Problem(WORLD, study(), believed=CAREFUL)
    frame = mh.simulate_study(mh.solve(problem, SOLVER), studies=4, seed=0).to_frame()
    assert (abs(frame.bias) < 0.05).all()
    assert (frame.coverage == 1).all()


def test_what_does_not_tell_beliefs_from_the_world_says_so() -> None:
    solution = mh.solve(mh.Problem(WORLD, study(), believed=CAREFUL), SOLVER)
    with pytest.raises(ValueError, match="nudge needs experts who believe in the transitions that hold"):
        mh.nudge(solution, state="6", chance=0.9)
    with pytest.raises(ValueError, match="design needs experts who believe"):
        mh.design(WORLD, solution, episodes=10)
    with pytest.raises(ValueError, match="a prediction of other transitions needs experts who believe"):
        mh.predict(solution, transitions=WORLD)
