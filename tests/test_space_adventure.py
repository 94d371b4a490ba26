"""The task of people: its published rules, that travels run out, and that simulated people have the horizons they were given."""

from __future__ import annotations

import numpy as np
import pytest

import multihorizon as mh
from multihorizon.domains.people import Place
from multihorizon.mdp import steps_left

TASK = mh.domains.space_adventure()


def row(state: str, action: str) -> dict[str, float]:
    """Where an action leads, by name."""
    mdp = TASK.mdp
    chances = mdp.transition(mdp.action_names.index(action))[[mdp.state_names.index(state)]].toarray()[0]
    return {mdp.state_names[i]: round(float(chances[i]), 12) for i in np.flatnonzero(chances)}


def test_rules_are_the_published_ones() -> None:
    place = Place((4, 4, 4, 1, 0, 1), "low", 2, 2)
    assert str(place) == "555212 low 2 p3"
    assert place.landings(0) == {3: 1.0}
    assert place.landings(1) == pytest.approx({3: 0.05, 4: 0.9, 5: 0.05})
    assert place._replace(noise="high").landings(1) == pytest.approx({3: 0.25, 4: 0.5, 5: 0.25})
    aimed = [max(place._replace(position=p).landings(1).items(), key=lambda item: item[1])[0] + 1 for p in range(6)]
    assert aimed == [5, 4, 5, 6, 2, 2]
    assert place.points(0.0) == pytest.approx([-10 - 2, 0.05 * -10 + 0.9 * -20 + 0.05 * -10 - 5])


def test_hundred_mini_blocks_of_two_and_three_travels_half_among_asteroids() -> None:
    names = np.array(TASK.mdp.state_names)[TASK.starts]
    kinds = [tuple(name.split()[1:3]) for name in names]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {(n, t): 25 for n in ("low", "high") for t in ("2", "3")}
    assert len(set(names)) == 100
    assert TASK.mdp.initial[TASK.starts] == pytest.approx(0.01)


def test_travels_run_out() -> None:
    assert steps_left(TASK.mdp).max() == 3
    assert not TASK.mdp.never_ends().any()
    left = [int(name.split()[2]) if not name.startswith("end") else 0 for name in TASK.mdp.state_names]
    moves = TASK.mdp.stacked.tocoo()
    source, target = moves.coords[0] % TASK.mdp.n_states, moves.coords[1]
    assert (np.array(left)[source] - np.array(left)[target] == 1).all()


def test_points_are_what_features_say() -> None:
    """20 points for a planet worth 20 and so on, and a jump costs 3 more than a move; the move's 2 are a constant."""
    told = (TASK.features @ np.array([-20.0, -10.0, 10.0, 20.0, -3.0])).reshape(2, -1).T
    live = ~TASK.mdp.terminal
    np.testing.assert_allclose(told[live] - 2.0, TASK.reward[live], atol=1e-12)


def test_planning_earns_what_the_recursion_by_hand_earns() -> None:
    for gamma in (0.0, 0.6, 1.0):
        q = mh.plan(TASK.mdp, TASK.reward, gamma).q
        for start in TASK.starts[:20]:
            planets, noise, left, position = TASK.mdp.state_names[start].split()
            place = Place(tuple(int(v) - 1 for v in planets), noise, int(left), int(position[1]) - 1)
            np.testing.assert_allclose(q[start], place.points(gamma), atol=1e-10)


def test_looking_ahead_matters_in_every_mini_block() -> None:
    near, far = (mh.plan(TASK.mdp, TASK.reward, gamma).policy[TASK.starts] for gamma in (0.0, 1.0))
    assert (near.argmax(axis=1) != far.argmax(axis=1)).all()


def test_persons_play_every_mini_block_once_and_repeat_with_their_seed() -> None:
    one, two, other = (TASK.persons(5, seed=seed) for seed in (3, 3, 4))
    table = one.demonstrations
    assert table.same_decisions(two.demonstrations)
    assert not table.same_decisions(other.demonstrations)
    assert (table.episode_counts == 100).all()
    assert len(table) == 5 * 250
    starts = table.match(TASK.mdp)[0][table.state[table.first_rows]].reshape(5, 100)
    assert (np.sort(starts, axis=1) == np.sort(TASK.starts)).all()
    assert one.frame["expert"].tolist() == list(table.experts)


def test_group_and_age_shift_the_logit_of_the_discount() -> None:
    logit = {}
    for effect in ((0.0, 0.0), (0.6, 0.0), (0.0, 0.5)):
        persons = TASK.persons(6, seed=1, group_difference=effect[0], age_slope=effect[1])
        logit[effect] = np.log(persons.discounts / (1 - persons.discounts))
    frame = persons.frame
    np.testing.assert_allclose(logit[0.6, 0.0] - logit[0.0, 0.0], 0.6 * (frame["group"] == "training"), atol=1e-12)
    np.testing.assert_allclose(logit[0.0, 0.5] - logit[0.0, 0.0], 0.05 * (frame["age"] - 45), atol=1e-12)


def test_horizons_are_recovered_in_points() -> None:
    """Intervals of 95% hold the truth about as often as they say, whether points or features are known."""
    persons = TASK.persons(24, seed=0)
    problem = mh.Problem(TASK.mdp, persons.demonstrations)
    solution = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=TASK.reward))
    low, high = solution.confidence_intervals(0.95).T
    assert ((low <= persons.discounts) & (persons.discounts <= high)).sum() >= 20
    ratio = np.log(solution.temperature / persons.temperatures)
    assert abs(ratio.mean()) < 0.1
    tied = mh.Problem(TASK.mdp, persons.demonstrations, features=TASK.features, feature_names=TASK.feature_names)
    reward = mh.solve(tied, mh.MaximumLikelihood(starts=1)).reward
    assert reward / reward[3] * 20 == pytest.approx([-20, -10, 10, 20, -3], abs=2.5)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: mh.domains.space_adventure(0), "mini_blocks must be a whole number of at least 1"),
        (lambda: mh.domains.space_adventure(travels=()), "travels must hold at least one number"),
        (lambda: mh.domains.space_adventure(travels=(0,)), "travels must be a whole number of at least 1"),
        (lambda: TASK.persons(3, discounts=[0.1, 0.2]), r"discounts must have shape \(3,\)"),
        (lambda: TASK.persons(2, discounts=1.5), "discount must be"),
        (lambda: TASK.persons(2, temperatures=-1), "temperature must be"),
        (lambda: mh.Demonstrations.simulate(TASK.mdp, [TASK.reward * 0 + 0.5], 1, starts=[-1]), "starts must be indices"),
    ],
)
def test_bad_input_gets_one_sentence(make, said) -> None:
    with pytest.raises(ValueError, match=said):
        make()
