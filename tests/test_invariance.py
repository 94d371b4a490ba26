"""Order and names say nothing: every solver gives the same answer when experts, states and actions are shuffled and renamed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import multihorizon as mh

TOLERANCE = 1e-6
SHUFFLES = (5,)  # leaves none of two, of three or of five experts in its place
COARSE = mh.Grid(0.5, jobs=1)


@dataclass(frozen=True)
class Shuffle:
    """New places: entry i of the shuffled problem is entry `experts[i]`, `states[i]`, `actions[i]` of the plain one."""

    experts: np.ndarray
    states: np.ndarray
    actions: np.ndarray

    def mdp(self, mdp: mh.MDP) -> mh.MDP:
        return mh.MDP(
            mdp.to_array()[np.ix_(self.actions, self.states, self.states)],
            mdp.initial[self.states],
            mdp.terminal[self.states],
            mdp.available[np.ix_(self.states, self.actions)],
            state_names=[f"place {i * 7 % 101}" for i in range(mdp.n_states)],
            action_names=[f"move {i * 5 % 11}" for i in range(mdp.n_actions)],
            sample_sizes=None if mdp.sample_sizes is None else self._rows(mdp.sample_sizes),
        )

    def _rows(self, values: np.ndarray) -> np.ndarray:
        """Numbers of rows a·S + s, moved."""
        return values.reshape(self.actions.size, self.states.size)[np.ix_(self.actions, self.states)].ravel()

    def problem(self, problem: mh.Problem) -> mh.Problem:
        mdp = self.mdp(problem.mdp)
        experts = [self.expert(problem.experts[k], mdp) for k in self.experts]
        arrival = problem.experts[0].arrival
        ties = None if arrival is None else arrival[self.states]
        return mh.Problem(mdp, experts, names=[f"person {i * 3 % 13}" for i in range(len(experts))], arrival_features=ties)

    def expert(self, expert: mh.Expert, mdp: mh.MDP) -> mh.Expert:
        rows = {name: getattr(expert, name) for name in ("policy", "sets", "counts")}
        moved = {name: None if rows[name] is None else rows[name][np.ix_(self.states, self.actions)] for name in rows}
        return mh.Expert(expert.name, mdp, expert.kind, **moved)


def shuffle(problem: mh.Problem, seed: int) -> Shuffle:
    rng = np.random.default_rng(seed)
    sizes = (problem.n_experts, problem.mdp.n_states, problem.mdp.n_actions)
    return Shuffle(*(rng.permutation(size) for size in sizes))


def actions(domain: mh.domains.Domain) -> mh.Problem:
    return mh.Problem(domain.mdp, domain.hard_experts())


def policies(domain: mh.domains.Domain) -> mh.Problem:
    return mh.Problem(domain.mdp, domain.soft_experts())


def decisions(domain: mh.domains.Domain) -> mh.Problem:
    return mh.Problem(domain.mdp, mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 400, seed=3))


def five_on_big_small() -> mh.Problem:
    """Every policy that is optimal at some discount: five of them."""
    domain = mh.domains.big_small(3, 10)
    sets = [interval.optimal_actions for interval in mh.discount_intervals(domain.mdp, domain.reward)]
    return mh.Problem(domain.mdp, sets)


BIG_SMALL, CLIFF = mh.domains.big_small(), mh.domains.cliff()
#: What is compared: "discounts" and "reward" only where the problem determines them, status and objective always.
EVERYTHING, DISCOUNTS, OBJECTIVE = ("discounts", "reward"), ("discounts",), ()
Case = tuple[object, Callable[[], mh.Problem], tuple[str, ...]]
CASES: dict[str, Case] = {
    "LPIRL": (mh.LPIRL(discount=0.5, reward_bound=20.0), lambda: mh.Problem(CLIFF.mdp, CLIFF.hard_experts()[:1]), OBJECTIVE),
    "NaiveLP": (mh.NaiveLP(reward_bound=20.0, search=mh.SequentialLP(starts=2)), lambda: actions(CLIFF), OBJECTIVE),
    "MPLP": (mh.MPLP(reward_bound=20.0, search=mh.SequentialLP(starts=2)), lambda: actions(CLIFF), DISCOUNTS),
    "MPLP, five experts": (mh.MPLP(reward_bound=20.0, search=mh.SequentialLP(starts=1)), five_on_big_small, OBJECTIVE),
    "MPLP on a grid": (mh.MPLP(reward_bound=20.0, search=COARSE), lambda: actions(CLIFF), OBJECTIVE),
    "MCE": (mh.MCE(discount=0.4), lambda: mh.Problem(CLIFF.mdp, CLIFF.soft_experts()[2:]), EVERYTHING),
    "MPML": (mh.MPML(search=COARSE), lambda: mh.Problem(CLIFF.mdp, CLIFF.soft_experts()[1:]), DISCOUNTS),
    "MPMCE": (mh.MPMCE(search=COARSE), lambda: mh.Problem(CLIFF.mdp, CLIFF.soft_experts()[1:]), DISCOUNTS),
    "MPMCE, summed": (mh.MPMCE(gap="summed", search=COARSE), lambda: policies(BIG_SMALL), OBJECTIVE),
    "MPMCE, Bayesian": (mh.MPMCE(search=mh.Bayesian(6, initial=4)), lambda: policies(CLIFF), OBJECTIVE),
    "MPMCE, threshold": (mh.MPMCE(gap="threshold", threshold=2e-3, starts=1), lambda: policies(BIG_SMALL), DISCOUNTS),
    "MPML, climbing": (mh.MPML(starts=2), lambda: mh.Problem(CLIFF.mdp, CLIFF.soft_experts()[1:]), DISCOUNTS),
    "ClosedForm": (mh.ClosedForm(), lambda: policies(CLIFF), EVERYTHING),
    "ClosedForm, temperatures": (mh.ClosedForm(temperature="per_expert"), lambda: policies(BIG_SMALL), EVERYTHING),
    "ClosedForm of decisions": (mh.ClosedForm(), lambda: decisions(BIG_SMALL), EVERYTHING),
    "MaximumLikelihood": (mh.MaximumLikelihood(starts=2), lambda: decisions(BIG_SMALL), EVERYTHING),
    "MaximumLikelihood, temperatures": (
        mh.MaximumLikelihood(temperature="per_expert", starts=2),
        lambda: decisions(BIG_SMALL),
        EVERYTHING,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("label", CASES)
def test_the_answer_does_not_depend_on_order_or_names(label: str) -> None:
    solver, build, compared = CASES[label]
    problem = build()
    plain = mh.solve(problem, solver)
    for places in (shuffle(problem, seed) for seed in SHUFFLES):
        moved = mh.solve(places.problem(problem), solver)
        assert moved.status == plain.status
        assert moved.objective == pytest.approx(plain.objective, rel=TOLERANCE, abs=TOLERANCE)
        if "discounts" in compared:
            np.testing.assert_allclose(moved.discounts, plain.discounts[places.experts], atol=TOLERANCE)
        if "reward" in compared:
            np.testing.assert_allclose(moved.reward, plain.reward[places.states], atol=TOLERANCE * np.ptp(plain.reward))
        if plain.temperature is not None:
            np.testing.assert_allclose(moved.temperature, plain.temperature[places.experts], rtol=TOLERANCE)


def test_intervals_with_estimated_transitions_do_not_depend_on_order_or_names() -> None:
    """Transitions are drawn anew to see their bias: the same random numbers must meet the same rows."""
    mdp = mh.domains.random_mdp(8, 2, branching=3, n_terminal=1, seed=4)
    features = np.random.default_rng(4).normal(size=(8, 2))
    experts = [mh.soft_plan(mdp, features @ [1.0, -1.0], gamma).policy for gamma in (0.3, 0.8)]
    table = mh.Demonstrations.simulate(mdp, experts, 60)
    guess = mh.estimate_mdp(table)
    problem = mh.Problem(guess, table, arrival_features=features[[int(name) for name in guess.state_names]])
    solver = mh.MaximumLikelihood(temperature="shared", starts=1)
    plain = mh.solve(problem, solver).confidence_intervals()
    for places in (shuffle(problem, seed) for seed in SHUFFLES):
        moved = mh.solve(places.problem(problem), solver).confidence_intervals()
        np.testing.assert_allclose(moved, plain[places.experts], atol=TOLERANCE)


@pytest.mark.slow
def test_simulated_decisions_do_not_depend_on_order_or_names() -> None:
    """What is drawn from a fit: the bootstrap's spread, and the p-value that all share one goal."""
    problem, solver = decisions(BIG_SMALL), mh.MaximumLikelihood(temperature="shared", starts=1)
    mdp = mh.domains.random_mdp(6, 3, seed=0)
    goals = 2 * np.random.default_rng(0).normal(size=(2, 6))
    people = [mh.soft_plan(mdp, reward, gamma).policy for reward, gamma in zip(goals, (0.2, 0.7), strict=True)]
    unsure = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, people, 1, max_steps=25, seed=1))
    plain, p_value = mh.bootstrap(mh.solve(problem, solver), 3, jobs=1), mh.goals(unsure, draws=19).test.p_value
    assert 0.05 < p_value < 1
    for seed in SHUFFLES:
        places = shuffle(problem, seed)
        moved = mh.bootstrap(mh.solve(places.problem(problem), solver), 3, jobs=1)
        np.testing.assert_allclose(moved.discounts, plain.discounts[:, places.experts], atol=1e-4)
        assert mh.goals(shuffle(unsure, seed).problem(unsure), draws=19).test.p_value == p_value


@pytest.mark.parametrize("name", ["toy", "big_small", "cliff"])
def test_the_verdict_does_not_depend_on_order_or_names(name: str) -> None:
    problem = policies(getattr(mh.domains, name)())
    plain = mh.identify(problem)
    for places in (shuffle(problem, seed) for seed in SHUFFLES):
        moved = mh.identify(places.problem(problem))
        assert (moved.status, moved.dimension) == (plain.status, plain.dimension)
        np.testing.assert_allclose(moved.intervals, plain.intervals[places.experts], atol=TOLERANCE)
        if plain.status == "unique":
            np.testing.assert_allclose(moved.discounts, plain.discounts[places.experts], atol=TOLERANCE)
            np.testing.assert_allclose(moved.reward, plain.reward[places.states], atol=TOLERANCE * np.ptp(plain.reward))


def test_a_table_is_read_the_same_whatever_its_labels_and_the_order_of_its_rows() -> None:
    table = mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 30, seed=0).to_frame()
    other = table.assign(
        state=[f"place {99 - int(s)}" for s in table["state"]],
        next_state=[f"place {99 - int(s)}" for s in table["next_state"]],
        expert=[f"person {9 - int(e)}" for e in table["expert"]],
    ).sample(frac=1.0, random_state=0)
    plain, moved = mh.Demonstrations.from_frame(table), mh.Demonstrations.from_frame(other)
    names = [f"place {99 - int(s)}" for s in CLIFF.mdp.state_names]
    renamed = mh.MDP(
        CLIFF.mdp.to_array(), CLIFF.mdp.initial, CLIFF.mdp.terminal, state_names=names, action_names=CLIFF.mdp.action_names
    )
    by_name = dict(zip(moved.experts, moved.counts(renamed), strict=True))
    for name, counts in zip(plain.experts, plain.counts(CLIFF.mdp), strict=True):
        np.testing.assert_array_equal(by_name[f"person {9 - int(name)}"], counts)
