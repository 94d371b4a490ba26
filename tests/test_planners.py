"""How experts choose: values by the best action or the mean of choices, lapses, and stickiness."""

import itertools
from functools import cache

import numpy as np
import pandas as pd
import pytest

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.choice.settings import Settings

DISCOUNTS = (0.3, 0.7, 0.92)
HABITS = list(itertools.product(("soft", "max", "mean"), (0.0, np.nan), (0.0, np.nan)))


def savings() -> tuple[mh.MDP, np.ndarray, np.ndarray]:
    """Six levels of wealth: spending pays now and costs a level, most of the time; being rich pays most."""
    moves = np.zeros((2, 6, 6))
    for level in range(6):
        moves[0, level, max(level - 1, 0)] += 0.9
        moves[0, level, level] += 0.1
        moves[1, level, min(level + 1, 5)] += 0.8
        moves[1, level, level] += 0.2
    paid = np.zeros((6, 2))
    paid[:, 0] = 0, 1, 1, 1, 1, 3
    return mh.MDP(moves, initial=np.full(6, 1 / 6)), paid, np.eye(12, 6)


def decisions(value: str, lapse: float, stickiness: float, seed: int, each: int = 1500) -> pd.DataFrame:
    """Draw decisions in the savings task with a sampler of the test's own, at a temperature of a quarter."""
    mdp, paid, _ = savings()
    rng = np.random.default_rng(seed)
    moves = np.stack([mdp.transition(action).toarray() for action in (0, 1)])
    rows = []
    for k, discount in enumerate(DISCOUNTS):
        worth = mh.soft_plan(mdp, paid, discount, 0.25, value).q / 0.25
        for episode in range(each // 30):
            state, last = int(rng.integers(6)), None
            for step in range(30):
                pull = worth[state].copy()
                if last is not None:
                    pull[last] += stickiness / 0.25
                chances = np.exp(pull - pull.max())
                chances = (1 - lapse) * chances / chances.sum() + lapse / 2
                action = int(rng.random() > chances[0])
                after = int(rng.choice(6, p=moves[action, state]))
                rows.append((f"e{k}", episode, step, state, action, after))
                state, last = after, action
    return pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"])


def problem_of(frame: pd.DataFrame) -> mh.Problem:
    mdp, _, features = savings()
    return mh.Problem(mdp, mh.Demonstrations.from_frame(frame, cut_off=True), features=features)


@cache
def lapsing() -> mh.Problem:
    return problem_of(decisions("soft", 0.25, 0.0, 1))


@cache
def fitted_lapses() -> mh.Solution:
    return mh.solve(lapsing(), mh.MaximumLikelihood(lapse="estimated", starts=2))


def tasks() -> list[tuple[mh.MDP, np.ndarray | None]]:
    game = mh.domains.space_adventure()
    return [
        (mh.domains.big_small().mdp, None),
        (mh.domains.random_mdp(6, 3, branching=2, n_terminal=1, seed=3), None),
        (game.mdp, game.features),
    ]


@pytest.mark.parametrize(("value", "lapse", "stickiness"), HABITS)
@pytest.mark.parametrize("task", range(3))
def test_derivatives_of_each_model_of_choice(task, value, lapse, stickiness) -> None:
    mdp, features = tasks()[task]
    rng = np.random.default_rng(0)
    policies = [mh.soft_plan(mdp, rng.normal(size=mdp.n_states), discount).policy for discount in (0.3, 0.8)]
    lengths = {} if mdp.terminal.any() else {"max_steps": 30}
    table = mh.Demonstrations.simulate(mdp, policies, episodes=10, seed=1, **lengths)
    settings = Settings(value=value, lapse=lapse, stickiness=stickiness, temperatures=np.full(2, np.nan))
    model = Likelihood(mh.Problem(mdp, table, features=features), settings)
    beside = np.array([0.12, 0.4]) if settings.has_habits else None
    x = model.pack(rng.normal(size=model.n_reward), np.array([0.35, 0.7]), np.array([0.8, 1.3]), beside)
    point = model.at(x)
    gradient = point.pull_back([batch.counts for batch in model.batches])
    for i in np.flatnonzero(~model.fixed)[-8:]:
        step = 1e-6 * np.eye(x.size)[i]
        slope = (model.at(x + step).value - model.at(x - step).value) / 2e-6
        assert slope == pytest.approx(gradient[i], abs=1e-5 * abs(gradient).max())
    along = rng.normal(size=x.size)
    np.testing.assert_allclose(point.information @ along, point.information_product(along), rtol=1e-8, atol=1e-7)


def test_lapses_are_found_and_make_discounts_right() -> None:
    plain, found = mh.solve(lapsing(), mh.MaximumLikelihood(starts=1)), fitted_lapses()
    assert found.objective > plain.objective + 2
    lapse = found.evidence["planner"]["lapse"]
    assert lapse["interval"][0] < 0.25 < lapse["interval"][1]
    assert lapse["p"] < 1e-3
    inside = lambda s: [low <= g <= high for g, (low, high) in zip(DISCOUNTS, s.confidence_intervals(), strict=True)]  # noqa: E731
    assert all(inside(found))
    assert not any(inside(plain))  # the model without lapses is sure, and wrong
    assert "a lapse of 0 is rejected" in found.message


def test_no_lapses_rest_on_the_edge() -> None:
    solution = mh.solve(problem_of(decisions("soft", 0.0, 0.0, 3, each=600)), mh.MaximumLikelihood(lapse="estimated"))
    lapse = solution.evidence["planner"]["lapse"]
    assert str(solution.status) == "converged"
    assert lapse["estimate"] < 0.05
    assert lapse["interval"][0] == 0
    assert lapse["p"] > 0.05


def test_stickiness_is_found_and_known_numbers_stay() -> None:
    problem = problem_of(decisions("soft", 0.0, 0.2, 1, each=900))
    found = mh.solve(problem, mh.MaximumLikelihood(stickiness="estimated")).evidence["planner"]["stickiness"]
    assert found["interval"][0] < 0.8 < found["interval"][1]  # in units of the temperature
    given = mh.solve(problem, mh.MaximumLikelihood(stickiness=0.8, lapse=0.01))
    assert given.evidence["planner"]["stickiness"] == {"estimate": 0.8, "interval": [0.8, 0.8], "p": None}


def test_values_by_the_best_action_are_told_from_soft_ones() -> None:
    problem = problem_of(decisions("max", 0.0, 0.0, 0))
    best = mh.solve(problem, mh.MaximumLikelihood(value="max"))
    assert best.objective > mh.solve(problem, mh.MaximumLikelihood()).objective
    np.testing.assert_allclose(best.discounts, DISCOUNTS, atol=0.1)
    # the plans of the answer are those of values by the best action
    q = mh.plan(problem.mdp, (savings()[2] @ best.reward).reshape(2, 6).T, best.discounts[0]).q
    np.testing.assert_allclose(best.policies()[0], np.exp(q) / np.exp(q).sum(axis=1, keepdims=True), atol=1e-8)


def test_labels_and_order_do_not_matter() -> None:
    frame = decisions("soft", 0.1, 0.1, 5, each=300)
    solver = mh.MaximumLikelihood(lapse="estimated", stickiness="estimated", starts=2)
    answer = mh.solve(problem_of(frame), solver)
    mdp, _, features = savings()
    order = np.array([3, 0, 5, 1, 4, 2])  # the state that was i is now order[i]; actions change places
    moves = np.zeros((2, 6, 6))
    for action in (0, 1):
        moves[1 - action][np.ix_(order, order)] = mdp.transition(action).toarray()
    renamed = frame.assign(state=order[frame.state], next_state=order[frame.next_state], action=1 - frame.action)
    shuffled = renamed.sample(frac=1, random_state=0).replace({"expert": {"e0": "z", "e1": "a", "e2": "m"}})
    weights = np.zeros((12, 6))
    for action, state in itertools.product((0, 1), range(6)):
        weights[(1 - action) * 6 + order[state]] = features[action * 6 + state]
    table = mh.Demonstrations.from_frame(shuffled, cut_off=True)
    again = mh.solve(mh.Problem(mh.MDP(moves, initial=np.full(6, 1 / 6)), table, features=weights), solver)
    place = [again.experts.index(name) for name in ("z", "a", "m")]
    np.testing.assert_allclose(again.discounts[place], answer.discounts, atol=1e-6)
    assert again.evidence["planner"]["lapse"]["estimate"] == pytest.approx(
        answer.evidence["planner"]["lapse"]["estimate"], abs=1e-6
    )


def test_a_saved_answer_answers_again(tmp_path) -> None:
    solution = fitted_lapses()
    solution.to_json(tmp_path / "s.json")
    read = mh.Solution.from_json(tmp_path / "s.json", lapsing())
    assert read.evidence["planner"] == solution.evidence["planner"]
    np.testing.assert_allclose(read.estimate.covariance(), solution.estimate.covariance(), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(read.policies(), solution.policies(), atol=1e-12)
    assert min(policy.min() for policy in read.policies()) >= 0.5 * solution.evidence["planner"]["lapse"]["estimate"]


def test_a_table_out_of_memory_counts_last_actions_alike(tmp_path) -> None:
    frame = decisions("soft", 0.0, 0.2, 1, each=300)
    frame.to_csv(tmp_path / "d.csv", index=False)
    mdp, _, _ = savings()
    for table in (
        mh.Demonstrations.from_csv(tmp_path / "d.csv", cut_off=True),
        mh.Demonstrations.from_frame(frame, cut_off=True),
    ):
        counts = table.choices_by(mdp, table.by_episode.expert, 3, by_last=True).toarray().reshape(3, 2, 3, 6)
        first = frame[frame.step == 0].groupby("expert").size()
        np.testing.assert_array_equal(counts[:, :, 2].sum(axis=(1, 2)), first)
        both = frame[(frame.expert == "e1") & (frame.action == 1) & (frame.action.shift() == 0) & (frame.step > 0)]
        assert counts[1, 1, 0].sum() == len(both)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"value": "hard"}, "value must be one of soft, max, mean"),
        ({"lapse": "some"}, 'lapse must be a number or "estimated"'),
        ({"lapse": 1.0}, "lapse must be below 1"),
        ({"lapse": -0.1}, "lapse must be a number of at least 0"),
        ({"stickiness": float("nan")}, "stickiness must be a finite number"),
        ({"lapse": 0.1, "deviations": "estimated"}, "personal deviations need value"),
        ({"value": "max", "lookahead": mh.Hyperbolic()}, "look-ahead needs value"),
    ],
)
def test_bad_options_are_refused(options, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        mh.MaximumLikelihood(**options)


def test_stickiness_needs_the_order_of_decisions() -> None:
    pooled = mh.Problem(lapsing().mdp, [mh.Expert("a", lapsing().mdp, "demonstrations", counts=np.ones((6, 2)))])
    with pytest.raises(ValueError, match="stickiness needs the order of decisions"):
        mh.solve(pooled, mh.MaximumLikelihood(stickiness="estimated"))


def best_action(task: mh.MDP, reward: np.ndarray, discount: float, temperature: float) -> np.ndarray:
    """A planner of the test's own: values by the best action."""
    chances = np.exp((q := mh.plan(task, reward, discount).q / temperature) - q.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)


@cache
def players(lapse: float) -> mh.Problem:
    """Twenty people in a short game, who value the future by the best action and lapse now and then."""
    game, rng = mh.domains.space_adventure(), np.random.default_rng(0)
    uniform = game.mdp.available / game.mdp.available.sum(axis=1, keepdims=True)
    discounts, temperatures = 1 / (1 + np.exp(-rng.normal(1.0, 0.8, 20))), np.exp(rng.normal(np.log(3.0), 0.4, 20))
    plans = [best_action(game.mdp, game.reward, *pair) for pair in zip(discounts, temperatures, strict=True)]
    policies = [(1 - lapse) * policy + lapse * uniform for policy in plans]
    return mh.Problem(game.mdp, mh.Demonstrations.simulate(game.mdp, policies, episodes=20, seed=1))


def test_a_planner_of_ones_own_gets_what_the_library_gets_with_derivatives() -> None:
    paid = mh.domains.space_adventure().reward
    ours = mh.solve(players(0.0), mh.MaximumLikelihood(temperature="per_expert", known_reward=paid, value="max"))
    own = mh.solve(players(0.0), mh.MaximumLikelihood(known_reward=paid, planner=best_action))
    assert own.objective == pytest.approx(ours.objective, abs=1e-6)
    finite = np.isfinite(ours.standard_errors) & np.isfinite(own.standard_errors)
    np.testing.assert_allclose(own.discounts[finite], ours.discounts[finite], atol=1e-3)
    assert own.evidence["planner"]["value"] == "best_action"
    np.testing.assert_allclose(own.policies()[0].sum(axis=1), 1)


@pytest.mark.slow
def test_people_who_lapse_are_found_in_a_population() -> None:
    paid = mh.domains.space_adventure().reward
    blind = mh.solve(players(0.15), mh.Population(known_reward=paid, value="max", nodes=5))
    found = mh.solve(players(0.15), mh.Population(known_reward=paid, value="max", lapse="estimated", nodes=5))
    lapse = found.evidence["planner"]["lapse"]
    assert lapse["interval"][0] < 0.15 < lapse["interval"][1]
    assert lapse["p"] < 1e-3
    assert found.objective > blind.objective + 5
    low, high = found.evidence["population"]["discount"]["Intercept"]["interval"]
    assert low < 1.0 < high
    given = mh.solve(players(0.15), mh.Population(known_reward=paid, value="max", lapse=lapse["estimate"], nodes=5))
    assert given.objective == pytest.approx(found.objective, abs=1e-2)


def test_decisions_of_people_without_an_answer_are_not_counted_among_those_of_the_log_likelihood() -> None:
    game, rng = mh.domains.space_adventure(), np.random.default_rng(0)
    discounts, temperatures = 1 / (1 + np.exp(-rng.normal(1.0, 0.8, 40))), np.exp(rng.normal(np.log(3), 0.4, 40))
    policies = [mh.soft_plan(game.mdp, game.reward, *pair).policy for pair in zip(discounts, temperatures, strict=True)]
    problem = mh.Problem(game.mdp, mh.Demonstrations.simulate(game.mdp, policies, episodes=20, seed=0))
    solution = mh.solve(problem, mh.MaximumLikelihood("per_expert", known_reward=game.reward, value="max"))
    counts = {expert.name: np.asarray(expert.counts) for expert in problem.experts}
    unfinished = [name for name, why in zip(solution.experts, solution.evidence["reasons"], strict=True) if "did not end" in why]
    assert len(unfinished) == 1  # the likelihood of values by the best action has kinks
    assert solution.evidence["decisions"] == sum(counts[name].sum() for name in counts if name not in unfinished)


@pytest.mark.parametrize(
    ("solver", "sentence"),
    [
        (lambda: mh.MaximumLikelihood(planner="best_action"), "planner must be a function, got its name"),
        (lambda: mh.MaximumLikelihood(planner=1), "planner must be a function of a task"),
        (lambda: mh.MaximumLikelihood(planner=best_action, value="max"), "leave out value"),
        (lambda: mh.Population(planner=best_action, lapse="often"), "lapse must be a number"),
        (lambda: mh.Population(value="max", distribution="types"), "types and personal deviations need value"),
    ],
)
def test_bad_planners_are_refused(solver, sentence) -> None:
    with pytest.raises(ValueError, match=sentence):
        solver()


def test_a_planner_needs_a_known_reward_and_must_return_policies() -> None:
    with pytest.raises(ValueError, match="needs a known reward"):
        mh.solve(players(0.0), mh.MaximumLikelihood(planner=best_action))
    with pytest.raises(ValueError, match="needs a known reward"):
        mh.solve(players(0.0), mh.Population(planner=best_action))
    paid = mh.domains.space_adventure().reward
    with pytest.raises(ValueError, match="the planner's policy must sum to 1"):
        mh.solve(players(0.0), mh.Population(known_reward=paid, planner=lambda task, *_: task.available / 1.0))


def foreseeing(mdp: mh.MDP, reward: np.ndarray, beta: float, delta: float, temperature: float) -> np.ndarray:
    """Choices of a person with present bias who foresees them, by recursion over the states to come."""
    moves = np.stack([mdp.transition(action).toarray() for action in range(mdp.n_actions)])
    known: dict[int, tuple[float, np.ndarray]] = {}

    def at(state: int) -> tuple[float, np.ndarray]:
        if state not in known:
            later = np.array(
                [moves[a, state] @ [at(s)[0] if moves[a, state, s] else 0.0 for s in range(len(reward))] for a in (0, 1)]
            )
            pull = (reward[state] + beta * delta * later) / temperature
            chances = np.exp(pull - pull.max()) / np.exp(pull - pull.max()).sum()
            worth = chances @ (reward[state] + delta * later - temperature * np.log(chances))
            known[state] = (0.0 if mdp.terminal[state] else worth), chances
        return known[state]

    return np.array([at(state)[1] for state in range(len(reward))])


def test_present_bias_foreseen_and_not() -> None:
    rng, moves = np.random.default_rng(0), np.zeros((2, 7, 7))
    for state in range(6):
        for action in (0, 1):
            moves[action, state, state + 1 :] = rng.dirichlet(np.ones(6 - state))
    mdp, reward = mh.MDP(moves, terminal=[6]), np.vstack([rng.normal(size=(6, 2)) * 2, [[0, 0]]])
    wise = mh.PresentBias(0.6, sophisticated=True)(mdp, reward, 0.9, 0.7)
    np.testing.assert_allclose(wise[:6], foreseeing(mdp, reward, 0.6, 0.9, 0.7)[:6], atol=1e-12)
    naive = mh.PresentBias(0.6)(mdp, reward, 0.9, 0.7)
    later = mh.soft_plan(mdp, reward, 0.9, 0.7).values
    pull = (reward + 0.54 * mdp.expect(later)) / 0.7
    np.testing.assert_allclose(naive, np.exp(pull) / np.exp(pull).sum(axis=1, keepdims=True), atol=1e-12)
    assert abs(wise - naive).max() > 1e-5
    for foreseen in (False, True):  # without present bias nobody is surprised
        again, paid, _ = savings()
        unbiased = mh.PresentBias(1.0, sophisticated=foreseen)(again, paid, 0.9, 0.25)
        np.testing.assert_allclose(unbiased, mh.soft_plan(again, paid, 0.9, 0.25).policy, atol=1e-9)
        assert np.isfinite(mh.PresentBias(0.5, sophisticated=foreseen)(again, paid, 0.9, 0.25)).all()
    with pytest.raises(ValueError, match="beta must be at most 1"):
        mh.PresentBias(1.5)


def test_stickiness_of_a_population() -> None:
    """Twenty people in the savings task who repeat themselves: κ of half a temperature, and the last action is counted."""
    mdp, paid, _ = savings()
    moves = np.stack([mdp.transition(action).toarray() for action in (0, 1)])
    rng, rows = np.random.default_rng(0), []
    for k in range(20):
        discount, temperature = 1 / (1 + np.exp(-rng.normal(1.0, 0.7))), np.exp(rng.normal(-1.0, 0.3))
        worth = mh.soft_plan(mdp, paid, discount, temperature).q
        for episode in range(4):
            state, last = int(rng.integers(6)), None
            for step in range(25):
                pull = (worth[state] + (0.2 * (np.arange(2) == last) if last is not None else 0.0)) / temperature
                action = int(rng.random() > 1 / (1 + np.exp(pull[1] - pull[0])))
                after = int(rng.choice(6, p=moves[action, state]))
                rows.append((f"p{k:02d}", episode, step, state, action, after))
                state, last = after, action
    frame = pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"])
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(frame, cut_off=True))
    found = mh.solve(problem, mh.Population(known_reward=paid, stickiness="estimated", nodes=5))
    figures = found.evidence["planner"]["stickiness"]
    assert figures["interval"][0] < 0.2 < figures["interval"][1]
    assert figures["p"] < 0.01
    assert "the last action is worth" in found.message.lower()
    given = mh.solve(problem, mh.Population(known_reward=paid, stickiness=figures["estimate"], nodes=5))
    assert given.objective == pytest.approx(found.objective, abs=1e-2)
    with pytest.raises(ValueError, match="one estimated, got both"):
        mh.Population(lapse="estimated", stickiness="estimated")


def test_a_maximum_on_a_kink_is_an_end() -> None:
    """Where values are those of the best action the likelihood has kinks, on which derivatives do not vanish."""
    meadow = mh.domains.meadow()
    table = mh.Demonstrations.simulate(meadow.mdp, meadow.soft_experts(), episodes=150, seed=1)
    problem = mh.Problem(meadow.mdp, table)
    best = mh.solve(problem, mh.MaximumLikelihood(value="max", starts=2))
    assert str(best.status) == "converged"
    soft = mh.solve(problem, mh.MaximumLikelihood(starts=2))
    assert soft.objective > best.objective  # the experts value the future with entropy


def test_the_unit_of_rewards_scales_stickiness_and_its_interval_alone() -> None:
    frame, paid = decisions("soft", 0.1, 0.1, 5, each=300), savings()[1]
    mdp = savings()[0]
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(frame, cut_off=True))
    habits = {"lapse": "estimated", "stickiness": "estimated", "temperature": "per_expert"}
    answers = [mh.solve(problem, mh.MaximumLikelihood(known_reward=scale * paid, **habits)) for scale in (1.0, 1e3, 1e-3)]
    figures = [answer.evidence["planner"] for answer in answers]
    for answer, found, scale in zip(answers[1:], figures[1:], (1e3, 1e-3), strict=True):
        np.testing.assert_allclose(answer.discounts, answers[0].discounts, atol=1e-5)
        np.testing.assert_allclose(found["lapse"]["interval"], figures[0]["lapse"]["interval"], atol=1e-5)
        ours = np.array(found["stickiness"]["interval"]) / scale
        np.testing.assert_allclose(ours, figures[0]["stickiness"]["interval"], rtol=1e-4, atol=1e-6)


def test_who_never_repeats_and_who_never_could_have_no_limits_of_stickiness() -> None:
    mdp, paid, _ = savings()
    turns = [("a", i, t, (i + t) % 2, t % 2) for i in range(20) for t in range(10)]
    frame = pd.DataFrame(turns, columns=["expert", "episode", "step", "state", "action"])
    swap = mh.MDP(np.tile(np.eye(6)[[1, 0, 3, 4, 5, 2]], (2, 1, 1)))
    solver = mh.MaximumLikelihood(known_reward=paid, stickiness="estimated", temperature="per_expert")
    never = mh.solve(mh.Problem(swap, mh.Demonstrations.from_frame(frame, cut_off=True)), solver)
    low, high = never.evidence["planner"]["stickiness"]["interval"]
    assert low is None
    assert high < 0
    assert "95% CI up to -" in never.message
    alone = decisions("soft", 0.0, 0.1, 5, each=900).query("step == 0")
    once = mh.solve(mh.Problem(mdp, mh.Demonstrations.from_frame(alone, cut_off=True)), solver)
    assert once.evidence["planner"]["stickiness"]["interval"] == [None, None]
    assert "The stickiness is not identified" in once.message


def test_present_bias_is_fitted_where_states_come_again() -> None:
    mdp, paid, _ = savings()
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(decisions("soft", 0.0, 0.0, 5, each=300), cut_off=True))
    ours = mh.solve(problem, mh.MaximumLikelihood(known_reward=paid, temperature="per_expert"))
    own = mh.solve(problem, mh.MaximumLikelihood(known_reward=paid, planner=mh.PresentBias(1.0)))
    assert own.objective == pytest.approx(ours.objective, abs=1e-6)
    np.testing.assert_allclose(own.discounts, ours.discounts, atol=1e-4)


def test_a_planner_of_ones_own_plans_where_moves_take_time() -> None:
    mdp, paid, _ = savings()
    moves = np.stack([mdp.transition(action).toarray() for action in (0, 1)])
    lasting = mh.MDP(moves, initial=np.full(6, 1 / 6), durations=np.where(moves > 0, np.array([1.0, 2.0])[:, None, None], 0.0))
    frame = decisions("max", 0.2, 0.0, 2, each=300)
    problem = mh.Problem(lasting, mh.Demonstrations.from_frame(frame, cut_off=True))
    ours = mh.solve(problem, mh.MaximumLikelihood(known_reward=paid, temperature="per_expert", value="max"))

    def own(task: mh.MDP, reward: np.ndarray, discount: float, temperature: float) -> np.ndarray:
        return mh.soft_plan(task, reward, discount, temperature, "max").policy

    found = mh.solve(problem, mh.MaximumLikelihood(known_reward=paid, planner=own))
    assert str(found.status) == str(ours.status) == "converged"
    assert found.objective == pytest.approx(ours.objective, abs=1e-5)
    np.testing.assert_allclose(found.discounts, ours.discounts, atol=1e-3)


def test_a_free_distribution_where_no_choice_depends_on_the_discount_leaves_every_share_open() -> None:
    mdp, _, _ = savings()
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(decisions("soft", 0.0, 0.0, 0, each=60), cut_off=True))
    solver = mh.Population(known_reward=np.tile([0.0, 0.01], (6, 1)), distribution="free", nodes=5)
    found = mh.solve(problem, solver).evidence["population"]["distribution"]["everyone"]
    assert found["indistinguishable"]["interval"] == [0.0, 1.0]


def test_a_planner_that_draws_lots_leaves_nobody_an_answer() -> None:
    rng = np.random.default_rng(0)

    def lots(task: mh.MDP, *_: object) -> np.ndarray:
        chances = task.available * (0.1 + rng.random(task.available.shape))
        return chances / chances.sum(axis=1, keepdims=True)

    mdp, paid, _ = savings()
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(decisions("soft", 0.0, 0.0, 5, each=60), cut_off=True))
    solution = mh.solve(problem, mh.MaximumLikelihood(known_reward=paid, planner=lots))
    assert str(solution.status) == "not converged"
    assert "others keep theirs" not in solution.message


def test_people_who_only_lapse_have_an_interval_of_lapses_that_ends_at_one() -> None:
    mdp, paid, _ = savings()
    frame = decisions("soft", 0.0, 0.0, 5, each=90)
    frame["action"] = np.random.default_rng(0).integers(0, 2, len(frame))
    problem = mh.Problem(mdp, mh.Demonstrations.from_frame(frame.drop(columns="next_state"), cut_off=True))
    solution = mh.solve(problem, mh.MaximumLikelihood(known_reward=paid, temperature=0.25, lapse="estimated"))
    assert solution.evidence["planner"]["lapse"]["interval"][1] == 1.0
