"""Decisions one by one: probabilities, values, prediction errors and gradients of each, for regressions of other signals."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from test_durations import random_task
from test_planners import best_action, decisions, players, problem_of, savings

import multihorizon as mh
from multihorizon.data.counting import CountedFiles
from multihorizon.data.reading import scan_files
from multihorizon.likelihood.maximum_likelihood import resume

CHOOSING = [
    {},
    {"value": "max"},
    {"value": "soft", "lapse": "estimated"},
    {"stickiness": "estimated"},
    {"lapse": 0.05, "stickiness": 0.3},
]
COLUMNS = ["expert", "episode", "step", "state", "action"]


def agree(solution: mh.Solution, trials: pd.DataFrame) -> None:
    """Require that decisions sum to the fit: their log-likelihood, and its gradient in the discounts."""
    assert np.log(trials.probability).sum() == pytest.approx(solution.evidence["log_likelihood"], abs=1e-8)
    np.testing.assert_allclose(trials.surprise, -np.log(trials.probability), atol=1e-12)
    point = resume(solution)
    slopes = point.pull_back([plan.persons.counts for plan in point.plans])[point.likelihood.discount_slice]
    sums = trials.groupby("expert").discount_gradient.sum()[list(solution.experts)]
    np.testing.assert_allclose(sums, slopes, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("options", CHOOSING)
def test_decisions_sum_to_the_fit_where_states_come_again(options) -> None:
    problem = problem_of(decisions("soft", 0.1, 0.1, 1, each=300))
    solution = mh.solve(problem, mh.MaximumLikelihood(starts=1, temperature="per_expert", **options))
    trials = solution.to_trials()
    agree(solution, trials)
    pd.testing.assert_frame_equal(trials[COLUMNS], problem.tables[0].to_frame()[COLUMNS])


@pytest.mark.parametrize("options", [{}, {"value": "mean", "lapse": 0.1}])
def test_decisions_sum_to_the_fit_of_a_known_reward_in_a_task_that_ends(options) -> None:
    solver = mh.MaximumLikelihood(known_reward=mh.domains.space_adventure().reward, temperature="per_expert", **options)
    solution = mh.solve(players(0.0), solver)
    agree(solution, solution.to_trials())


def test_values_are_those_of_the_plan_and_prediction_errors_those_of_the_moves() -> None:
    frame = decisions("soft", 0.0, 0.0, 1, each=300)
    solution = mh.solve(problem_of(frame), mh.MaximumLikelihood(starts=1, temperature="shared"))
    trials = solution.to_trials()
    mdp, _, features = savings()
    reward = (features @ solution.reward).reshape(2, 6).T
    for k, own in trials.groupby("expert"):
        gamma = solution.discounts[int(k[1])]
        planned = mh.soft_plan(mdp, reward, gamma, solution.temperature[int(k[1])])
        state, action = own.state.astype(int), own.action.astype(int)
        after = frame[frame.expert == k].next_state
        np.testing.assert_allclose(own.value, planned.values[state], atol=1e-8)
        np.testing.assert_allclose(own.q, planned.q[state, action], atol=1e-8)
        np.testing.assert_allclose(own.advantage, (planned.q - (planned.policy * planned.q).sum(1)[:, None])[state, action])
        np.testing.assert_allclose(own.reward, reward[state, action], atol=1e-12)
        error = reward[state, action] + gamma * planned.values[after] - planned.values[state]
        np.testing.assert_allclose(own.prediction_error, error, atol=1e-8)
        entropy = -(planned.policy * np.log(planned.policy)).sum(axis=1)
        np.testing.assert_allclose(own.entropy, entropy[state], atol=1e-9)


def test_what_is_paid_on_arrival_is_that_of_the_state_reached() -> None:
    d = mh.domains.big_small()
    table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100)
    solution = mh.solve(mh.Problem(d.mdp, table), mh.MaximumLikelihood(starts=1, temperature="shared"))
    trials = solution.to_trials()
    np.testing.assert_allclose(trials.reward, solution.reward[table.next_state], atol=1e-12)
    worth = np.array([mh.soft_plan(d.mdp, solution.reward, g).values for g in solution.discounts])
    after = solution.discounts[table.expert] * worth[table.expert, table.next_state]
    errors = solution.reward[table.next_state] + after - worth[table.expert, table.state]
    np.testing.assert_allclose(trials.prediction_error, errors, atol=1e-7)


def test_estimated_transitions_tasks_together_and_moves_that_take_time() -> None:
    d = mh.domains.big_small()
    table = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100)
    solution = mh.solve(mh.Problem(mh.estimate_mdp(table), table), mh.MaximumLikelihood(starts=1))
    agree(solution, solution.to_trials())
    joined = mh.Problem.join(
        mh.Problem(d.mdp, table), mh.Problem(d.mdp, mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 50, 1))
    )
    agree(both := mh.solve(joined, mh.MaximumLikelihood(starts=1)), both.to_trials())


def test_people_of_a_population_decide_at_their_own_discounts_under_each_condition() -> None:
    game = mh.domains.space_adventure()
    frame = players(0.0).tables[0].to_frame()
    frame["noise"] = np.where(frame.episode.astype(int) % 2, "high", "low")
    table = mh.Demonstrations.from_frame(frame, conditions=["noise"])
    problem = mh.Problem(game.mdp, table)
    solution = mh.solve(problem, mh.Population("~ noise", known_reward=game.reward, nodes=5, lapse=0.05, stickiness=0.4))
    trials = solution.to_trials()
    pd.testing.assert_frame_equal(trials[COLUMNS], table.to_frame()[COLUMNS])
    cells = pd.DataFrame({name: solution.evidence["population"].cells[name] for name in ("expert", "noise", "discount")})
    temperature = np.exp(solution.evidence["population"].cells["log_temperature"])
    for i in (0, 7):
        who, noise, discount = cells.loc[i, ["expert", "noise", "discount"]]
        q = mh.soft_plan(game.mdp, game.reward, discount, temperature[i]).q
        own = trials[(trials.expert == who) & (frame.noise == noise)]
        state, action = (
            pd.Index(names).get_indexer(column)
            for names, column in ((game.mdp.state_names, own.state), (game.mdp.action_names, own.action))
        )
        pull = np.where(game.mdp.available, q, -np.inf)[state] / temperature[i]
        last = own.groupby("episode").action.shift()
        for name, column in zip(game.mdp.action_names, pull.T, strict=True):
            column += (last == name) * 0.4 / temperature[i]
        odds = np.exp(pull)
        at_random = game.mdp.available[state] / game.mdp.available[state].sum(axis=1, keepdims=True)
        chances = 0.95 * odds / odds.sum(axis=1, keepdims=True) + 0.05 * at_random
        np.testing.assert_allclose(own.probability, chances[np.arange(len(own)), action], atol=1e-10)


def test_a_planner_of_ones_own_says_probabilities() -> None:
    paid = mh.domains.space_adventure().reward
    own = mh.solve(players(0.0), mh.MaximumLikelihood(known_reward=paid, planner=best_action))
    trials = own.to_trials()
    expected = [
        (e.counts * np.log(np.maximum(policy, 1e-9))).sum() for e, policy in zip(own.problem.experts, own.policies(), strict=True)
    ]
    sums = trials.groupby("expert").surprise.sum()[list(own.experts)]
    np.testing.assert_allclose(-sums, expected, atol=1e-9)
    assert "value" not in trials


def test_a_saved_answer_and_a_table_of_a_file_say_the_same(tmp_path) -> None:
    decisions("soft", 0.0, 0.2, 1, each=300).to_csv(tmp_path / "d.csv", index=False)
    mdp, _, features = savings()
    problem = mh.Problem(mdp, mh.Demonstrations.from_csv(tmp_path / "d.csv", cut_off=True), features=features)
    solution = mh.solve(problem, mh.MaximumLikelihood(starts=1, stickiness="estimated"))
    solution.to_json(tmp_path / "s.json")
    read = mh.Solution.from_json(tmp_path / "s.json", problem)
    pd.testing.assert_frame_equal(read.to_trials(), solution.to_trials())
    short = mh.Solution.from_json(tmp_path / "s.json", problem_of(decisions("soft", 0.0, 0.2, 1, each=90)))
    with pytest.raises(ValueError, match="need the tables of the 900 decisions that were fitted, got tables with 270"):
        short.to_trials()


@pytest.mark.parametrize("solver", [mh.MaximumLikelihood("shared"), mh.Population(nodes=5)])
@pytest.mark.parametrize("kind", ["pairs", "beside features"])
def test_a_saved_answer_with_a_known_reward_takes_the_problem_that_was_fitted(solver, kind, tmp_path) -> None:
    mdp, paid, features = savings()
    table = problem_of(decisions("soft", 0.0, 0.0, 1, each=300)).tables[0]
    problem = mh.Problem(mdp, table, features=features[:, [2]] if kind == "beside features" else None)
    solution = mh.solve(problem, replace(solver, known_reward=paid))
    solution.to_json(tmp_path / "s.json")
    read = mh.Solution.from_json(tmp_path / "s.json", problem)
    np.testing.assert_allclose(read.policies(), solution.policies(), atol=1e-12)
    pd.testing.assert_frame_equal(read.to_trials(), solution.to_trials())


def test_solutions_without_decisions_have_no_trials() -> None:
    d = mh.domains.big_small()
    with pytest.raises(ValueError, match="trials need decisions"):
        mh.solve(mh.Problem(d.mdp, d.soft_experts()), mh.ClosedForm()).to_trials()
    counted = mh.Expert("a", d.mdp, "demonstrations", counts=d.mdp.available / 1.0 * ~d.mdp.terminal[:, None])
    solution = mh.solve(mh.Problem(d.mdp, [counted]), mh.MaximumLikelihood(known_reward=d.reward))
    with pytest.raises(ValueError, match="trials need the order of decisions"):
        solution.to_trials()


@pytest.mark.parametrize("estimated", [False, True])
def test_moves_that_take_time_are_discounted_by_it(estimated) -> None:
    moves, terminal, times = random_task(2)
    world = mh.MDP(moves, terminal=terminal, durations=times)
    reward = np.random.default_rng(0).normal(size=6)
    policies = [mh.soft_plan(world, reward, gamma).policy for gamma in (0.5, 0.9)]
    table = mh.Demonstrations.simulate(world, policies, episodes=60)
    mdp = mh.estimate_mdp(table) if estimated else world
    solution = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood(starts=1, temperature="shared"))
    trials = solution.to_trials()
    assert np.log(trials.probability).sum() == pytest.approx(solution.evidence["log_likelihood"], abs=1e-8)
    if not estimated:
        lasted, gamma = table.times.over - table.times.begun, solution.discounts[table.expert]
        plans = [mh.soft_plan(mdp, solution.reward, g, t) for g, t in zip(solution.discounts, solution.temperature, strict=True)]
        values = np.stack([plan.values for plan in plans])
        later = gamma**lasted * values[table.expert, table.next_state]
        np.testing.assert_allclose(trials.reward, gamma ** (lasted - 1) * solution.reward[table.next_state], atol=1e-9)
        error = trials.reward + later - values[table.expert, table.state]
        np.testing.assert_allclose(trials.prediction_error, error, atol=1e-6)


def test_tables_out_of_memory_are_listed_as_far_as_they_fit(tmp_path) -> None:
    path = tmp_path / "d.csv"
    decisions("soft", 0.0, 0.2, 1, each=300).to_csv(path, index=False)
    mdp, _, features = savings()
    solver = mh.MaximumLikelihood(starts=1, lapse=0.05)
    listed = []
    for table in (CountedFiles(scan_files(str(path), [path]), cut_off=True), mh.Demonstrations.from_csv(path, cut_off=True)):
        listed.append(mh.solve(mh.Problem(mdp, table, features=features), solver).to_trials())
    pd.testing.assert_frame_equal(*listed)
    long = CountedFiles(scan_files(str(path), [path]), cut_off=True, most_rows=500)
    with pytest.raises(ValueError, match="at most 500 decisions to be loaded one by one, got 900"):
        mh.solve(mh.Problem(mdp, long, features=features), solver).to_trials()
