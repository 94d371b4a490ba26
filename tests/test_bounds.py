"""Bounds over sets of rewards: they hold the truth and every member, and are tight where few directions matter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from multihorizon import MDP, Problem, predict
from multihorizon.domains.grids import cliff, toy
from multihorizon.exact.bounds import discount_members, predicted_bounds
from multihorizon.exact.rewards import ContradictionError, explaining_rewards, read_restrictions
from multihorizon.planning.plan import soft_plan


def partly_forced(rng: np.random.Generator, states: int, actions: int, forced: int) -> MDP:
    """A random task in which the actions do the same in some states, so that rewards are not identified."""
    moves = rng.dirichlet(np.full(states, 0.5), size=(actions, states))
    moves[:, :forced] = moves[0, :forced]
    return MDP(moves)


class Planted:
    """A problem whose truth is known, in a set of rewards, and a change."""

    def __init__(self, seed: int, width: float = 2.0, states: int = 5, forced: int = 3, experts: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.reward = rng.normal(size=states) * 2
        self.mdp, self.after = partly_forced(rng, states, 2, forced), partly_forced(rng, states, 2, 0)
        self.discounts, self.temperatures = rng.uniform(0, 0.95, experts), rng.uniform(0.5, 2, experts)
        self.new = np.where(rng.uniform(size=experts) < 0.5, rng.uniform(0, 0.95, experts), np.nan)
        self.pay, self.forbid = rng.normal(size=(states, 2)), np.zeros((states, 2), dtype=np.bool_)
        self.forbid[-1, 0] = True
        pairs = zip(self.discounts, self.temperatures, strict=True)
        self.problem = Problem(self.mdp, [soft_plan(self.mdp, self.reward, g, lam).policy for g, lam in pairs])
        names = self.problem.parameter_names
        low, high = self.reward - rng.uniform(0, width, states), self.reward + rng.uniform(0, width, states)
        limits = {
            "lower": dict(zip(names, low.tolist(), strict=True)),
            "upper": dict(zip(names, high.tolist(), strict=True)),
        }
        self.restrictions = read_restrictions(names, limits)

    def bounds(self, restricted: bool = True):
        return predicted_bounds(
            self.problem,
            self.discounts,
            self.temperatures,
            mdp=self.after,
            pay=self.pay,
            forbid=self.forbid,
            new_discounts=self.new,
            restrictions=self.restrictions if restricted else None,
        )

    def planned(self, reward: np.ndarray) -> np.ndarray:
        """What experts with this reward do after the change."""
        task, found = self.after.without(self.forbid), []
        for gamma, lam in zip(np.where(np.isnan(self.new), self.discounts, self.new), self.temperatures, strict=True):
            found.append(soft_plan(task, task.expected_reward(reward) + self.pay, gamma, lam).policy)
        return np.array(found)

    def members(self, count: int, seed: int = 0) -> list[np.ndarray]:
        """Rewards of the restricted set, by a walk that goes from limit to limit through random directions."""
        rng = np.random.default_rng(seed)
        _, basis = explaining_rewards(self.problem, self.discounts, self.temperatures)
        (matrix, limits), here, found = self.restrictions, self.reward, []
        for number in range(count):
            direction = basis @ rng.normal(size=basis.shape[1])
            rate, slack = matrix @ direction, np.maximum(limits - matrix @ here, 0.0)
            up = np.min(slack[rate > 1e-12] / rate[rate > 1e-12], initial=50.0)
            down = np.min(slack[rate < -1e-12] / -rate[rate < -1e-12], initial=50.0)
            share = (0.0, 1.0, rng.uniform())[number % 3]  # ends of the line too, where extremes are
            found.append(here + (share * (up + down) - down) * direction)
            here = here + (rng.uniform() * (up + down) - down) * direction
        return found


def test_every_direction_of_the_set_explains_the_experts() -> None:
    planted = Planted(0)
    origin, basis = explaining_rewards(planted.problem, planted.discounts, planted.temperatures)
    assert basis.shape[1] == 3  # a constant among them: two differences of actions for five states
    assert np.abs(basis.T @ basis - np.eye(3)).max() < 1e-12
    assert np.abs(basis.T @ origin).max() < 1e-9
    gap = planted.reward - origin
    assert np.abs(gap - basis @ (basis.T @ gap)).max() < 1e-8  # the truth is a member
    for reward in planted.members(10):
        for policy, gamma, lam in zip(planted.problem.experts, planted.discounts, planted.temperatures, strict=True):
            assert np.abs(soft_plan(planted.mdp, reward, gamma, lam).policy - policy.policy).max() < 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_bounds_hold_the_truth_and_every_member(seed: int) -> None:
    planted = Planted(seed) if seed % 2 else Planted(seed, states=6, forced=4, experts=2)
    found = planted.bounds()
    assert min(found.directions) > 0
    assert found.proved.all()
    assert (found.low <= found.attained_low).all()
    assert (found.attained_high <= found.high).all()
    for reward in (planted.reward, *planted.members(100)):
        policies = planted.planned(reward)
        assert (policies >= found.low - 1e-9).all()
        assert (policies <= found.high + 1e-9).all()


def test_bounds_are_tight_where_few_directions_matter() -> None:
    """What is proved is near what is attained, and both near what a fine sweep of a set of one direction finds."""
    planted = Planted(3, forced=2)
    found = planted.bounds()
    assert found.directions == (1,)
    assert found.status == ("bounded",)
    assert (found.attained_low - found.low).max() <= 1e-3
    assert (found.high - found.attained_high).max() <= 1e-3
    sweep = np.array([planted.planned(reward) for reward in planted.members(600)])
    assert np.abs(sweep.min(axis=0) - found.low).max() < 3e-3
    assert np.abs(sweep.max(axis=0) - found.high).max() < 3e-3
    for k, members in enumerate(found.members):
        assert np.abs(members.min(axis=0) - found.attained_low[k]).max() < 1e-12
        assert np.abs(members.max(axis=0) - found.attained_high[k]).max() < 1e-12


def test_many_directions_are_bounded_without_boxes() -> None:
    planted = Planted(5, width=0.3, states=9, forced=6)
    found = planted.bounds()
    assert found.directions[0] > 3
    assert found.status == ("bounded",)
    assert found.proved.all()
    assert (found.high - found.low).max() < 0.5
    for reward in (planted.reward, *planted.members(100)):
        policies = planted.planned(reward)
        assert (policies >= found.low - 1e-9).all()
        assert (policies <= found.high + 1e-9).all()


def test_where_no_direction_matters_the_answer_is_identified() -> None:
    """A set of rewards, but the old task and discount: every direction of the set is a shaping term."""
    planted = Planted(1)
    same = predicted_bounds(planted.problem, planted.discounts, planted.temperatures, mdp=planted.mdp, pay=planted.pay)
    assert same.status == ("identified",)
    assert same.directions == (0,)
    assert same.proved.all()
    reward = planted.mdp.expected_reward(planted.reward) + planted.pay
    truth = soft_plan(planted.mdp, reward, planted.discounts[0], planted.temperatures[0]).policy
    assert np.abs(same.point[0] - truth).max() < 1e-9
    assert (same.low == same.high).all()


def test_cliff_identifies_what_follows_from_other_transitions() -> None:
    domain = cliff()
    after = domain.tasks(1, seed=3)[0].mdp
    found = predicted_bounds(Problem(domain.mdp, domain.soft_experts()), np.array(domain.soft_discounts), np.ones(3), mdp=after)
    truth = np.array([soft_plan(after, domain.reward, gamma).policy for gamma in domain.soft_discounts])
    assert found.status == ("identified",) * 3
    assert np.abs(found.point - truth).max() < 1e-7


def test_restrictions_that_fix_everything_identify() -> None:
    planted = Planted(2)
    names = planted.problem.parameter_names
    fixed = dict(zip(names, planted.reward.tolist(), strict=True))
    planted.restrictions = read_restrictions(names, {"lower": fixed, "upper": fixed})
    found = planted.bounds()
    assert found.status == ("identified",)
    assert np.abs(found.point - planted.planned(planted.reward)).max() < 1e-6


def test_without_restrictions_nothing_may_be_bounded() -> None:
    found = Planted(4, states=4, forced=3).bounds(restricted=False)
    assert found.status == ("not bounded",)
    open_ = found.high - found.low > 1e-6
    assert open_.any()
    assert (found.low[open_] == 0).all()
    assert (found.high[open_] == 1).all()
    assert (found.attained_high - found.attained_low)[open_].min() > 0.99


def test_the_search_leaves_choices_that_are_nearly_certain() -> None:
    """At a small temperature nearly all choices are certain at the first member, and their probabilities hardly move there."""
    planted = Planted(4, states=4, forced=3)
    planted.temperatures = np.full(1, 0.05)
    policy = soft_plan(planted.mdp, planted.reward, planted.discounts[0], 0.05).policy
    planted.problem = Problem(planted.mdp, [policy])
    found = planted.bounds(restricted=False)
    assert found.status == ("not bounded",)
    assert (found.attained_high - found.attained_low)[found.high > found.low].min() > 0.99


def test_bounds_do_not_depend_on_the_order_of_states_actions_and_experts() -> None:
    planted = Planted(2, states=6, forced=4, experts=2)
    found = planted.bounds()
    rng = np.random.default_rng(0)
    states, actions = rng.permutation(6), np.array([1, 0])

    def moved(mdp: MDP) -> MDP:
        return MDP(mdp.to_array()[actions][:, states][:, :, states])

    mdp, matrix = moved(planted.mdp), planted.restrictions[0][:, states]
    policies = [expert.policy[np.ix_(states, actions)] for expert in planted.problem.experts[::-1]]
    shuffled = rng.permutation(len(matrix))
    other = predicted_bounds(
        Problem(mdp, policies),
        planted.discounts[::-1],
        planted.temperatures[::-1],
        mdp=moved(planted.after),
        pay=planted.pay[np.ix_(states, actions)],
        forbid=planted.forbid[np.ix_(states, actions)],
        new_discounts=planted.new[::-1],
        restrictions=(matrix[shuffled], planted.restrictions[1][shuffled]),
    )
    place = np.ix_([1, 0], states, actions)
    assert other.status == found.status
    assert other.directions == found.directions
    assert np.abs(other.point - found.point[place]).max() < 1e-6
    assert np.abs(other.low - found.low[place]).max() < 1e-3
    assert np.abs(other.high - found.high[place]).max() < 1e-3


def test_features_and_a_larger_task() -> None:
    """A reward of features carries over to new states; one direction of them is open, and bounded by a restriction."""
    rng = np.random.default_rng(6)
    mdp, after = partly_forced(rng, 4, 2, 2), partly_forced(rng, 6, 2, 0)
    pays, new_pays = rng.normal(size=(4, 3)), rng.normal(size=(6, 3))
    theta = rng.normal(size=3)
    policy = soft_plan(mdp, pays @ theta, 0.6).policy
    problem = Problem(mdp, [policy], arrival_features=pays, feature_names=["water", "food", "rest"])
    features = after.stacked @ new_pays
    truth = soft_plan(after, new_pays @ theta, 0.6).policy
    free = predicted_bounds(problem, np.array([0.6]), np.ones(1), mdp=after, features=features)
    assert free.point.shape == (1, 6, 2)
    assert (free.low[0] <= truth + 1e-7).all()
    assert (truth <= free.high[0] + 1e-7).all()
    limits = {"lower": float(theta.min()) - 0.5, "upper": float(theta.max()) + 0.5}
    restricted = read_restrictions(problem.parameter_names, limits)
    held = predicted_bounds(problem, np.array([0.6]), np.ones(1), mdp=after, features=features, restrictions=restricted)
    assert (held.low[0] <= truth + 1e-7).all()
    assert (truth <= held.high[0] + 1e-7).all()
    assert (held.high - held.low <= free.high - free.low + 2e-3).all()


def test_policies_of_different_rewards_are_refused() -> None:
    domain = cliff()
    policies = [soft_plan(domain.mdp, domain.reward, 0.5).policy, soft_plan(domain.mdp, domain.reward[::-1].copy(), 0.5).policy]
    with pytest.raises(ValueError, match="policies that one reward explains"):
        predicted_bounds(Problem(domain.mdp, policies), np.array([0.5, 0.5]), np.ones(2), mdp=domain.mdp)


# Discounts that are a set.


@pytest.mark.slow
def test_a_set_of_discounts_is_followed_and_nothing_is_proved() -> None:
    """The toy's curve of answers: another discount for everybody leaves ranges of .19 to .74, and of .002 to .28."""
    domain = toy()
    problem = Problem(domain.mdp, domain.soft_experts())
    discounts, temperatures = discount_members(problem)
    assert len(discounts) >= 41
    assert (temperatures == 1).all()
    for new, expected in ((0.3, (0.193, 0.544, 0.737)), (0.95, (0.0015, 0.279, 0.280))):
        found = predicted_bounds(problem, discounts, temperatures, mdp=domain.mdp, new_discounts=np.full(3, new))
        assert found.status == ("bounded",) * 3
        assert not found.proved.any()
        assert "at least this wide" in found.remarks[0]
        for k in range(3):
            assert np.abs(np.sort(found.high[k, 0] - found.low[k, 0]) - expected).max() < 2e-3


@pytest.mark.slow
def test_members_meet_the_restrictions_up_to_their_ends() -> None:
    """The toy's own reward begins at 0, so the true discounts lie where `r ≥ 0` ends."""
    domain = toy()
    problem = Problem(domain.mdp, domain.soft_experts())
    discounts, _ = discount_members(problem, restrictions=read_restrictions(problem.parameter_names, {"lower": 0, "upper": 12}))
    assert np.abs(discounts.max(axis=0) - domain.soft_discounts).max() < 1e-5
    assert np.ptp(discounts[:, 0]) < 0.1
    with pytest.raises(ContradictionError, match="s3 ≤ -100"):
        discount_members(problem, restrictions=read_restrictions(problem.parameter_names, {"upper": {"s3": -100}}))


# Restrictions.


def test_restrictions_are_read_in_every_form() -> None:
    names = ["a", "b", "3"]
    frame = pd.DataFrame(
        {"smaller": ["a", None], "larger": [3.0, None], "state": [None, "b"], "lower": [None, 1], "upper": [None, 2]}
    )
    matrix, limits = read_restrictions(names, frame)
    assert matrix.tolist() == [[1, 0, -1], [0, -1, 0], [0, 1, 0]]
    assert limits.tolist() == [0, -1, 2]
    both = read_restrictions(names, [frame, (np.eye(3), np.ones(3)), {"rising": ["a", "b", 3]}])
    assert both[0].shape == (8, 3)
    assert both[0][-2:].tolist() == [[1, -1, 0], [0, 1, -1]]
    assert read_restrictions(names, None)[0].shape == (0, 3)
    assert read_restrictions(names, pd.DataFrame({"feature": ["a"], "upper": [4]}))[1].tolist() == [4]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rising": ["a", "z"]}, "must name reward parameters among a, b, got 'z'"),
        ({"falling": ["a"]}, "must be called rising, lower or upper, got falling"),
        (pd.DataFrame({"smaller": ["a"]}), "must have the columns smaller and larger"),
        (pd.DataFrame({"smaller": ["a"], "larger": [None]}), "row 1 of the restrictions must be filled in whole"),
        ((np.eye(3), np.ones(3)), r"A of restrictions A r ≤ b must have shape \(3, 2\)"),
        ("rising", "restrictions must be a pair"),
    ],
)
def test_restrictions_that_cannot_be_read(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_restrictions(["a", "b"], given)


def test_contradictory_restrictions_are_named() -> None:
    domain = cliff()
    problem, discounts = Problem(domain.mdp, domain.soft_experts()), np.array(domain.soft_discounts)
    names = list(problem.parameter_names)

    def bounds(given: object) -> None:
        restrictions = read_restrictions(names, given)
        predicted_bounds(problem, discounts, np.ones(3), mdp=domain.mdp, restrictions=restrictions)

    with pytest.raises(ContradictionError, match=r"contradict each other: no reward has .* ≥ 3 and .* ≤ 2$"):
        bounds([{"lower": 0, "upper": 9}, {"lower": {names[1]: 3}}, {"upper": {names[1]: 2}}])
    best, worst = names[int(np.argmax(domain.reward))], names[int(np.argmin(domain.reward))]
    with pytest.raises(
        ContradictionError, match=f"contradict the policies: no reward that explains the experts has {best} ≤ {worst}$"
    ):
        bounds([{"rising": [best, worst]}, {"lower": -1000}])


# As a prediction.


def test_a_prediction_shows_bounds_and_what_outcomes_attain() -> None:
    planted = Planted(3, forced=2)
    gamma = float(planted.discounts[0])
    problem = Problem(planted.mdp, [soft_plan(planted.mdp, planted.reward, gamma).policy])
    found = predict(problem, discount=gamma, transitions=planted.after, restrictions=planted.restrictions)
    assert found.status == ("bounded",)
    assert found.proved.all()
    visits = found.outcomes[found.outcomes["quantity"] == "visits"]
    assert (visits["low"] <= visits["after"]).all()
    assert (visits["after"] <= visits["high"]).all()
    assert (visits["low"] < visits["high"]).any()


def test_limits_that_no_number_keeps_are_refused_where_they_are_read() -> None:
    """Also where nothing depends on the reward, as with a bonus."""
    with pytest.raises(ContradictionError, match="no reward has home ≥ 10 and home ≤ 5"):
        read_restrictions(["home", "town"], {"lower": {"home": 10}, "upper": 5})
