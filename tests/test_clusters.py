"""Decisions that go together: where episodes are independent and decisions are not, tests and intervals know it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.choice.model import Likelihood
from multihorizon.choice.settings import Clusters
from multihorizon.cli import app
from multihorizon.likelihood.clusters import middle, sign_flip_test, within_episodes
from multihorizon.likelihood.maximum_likelihood import resume
from multihorizon.questions.sharing import shared_goal_test

NAMES, PLACES = ("left end", "right end"), 9


def corridor():
    """Nine places; left, right or stay; each end pays, and so does the place beside it."""
    moves = np.zeros((3, PLACES, PLACES))
    for action, step in enumerate((-1, 1, 0)):
        for place in range(PLACES):
            for change, probability in ((step, 0.85), (0, 0.15)):
                moves[action, place, np.clip(place + change, 0, PLACES - 1)] += probability
    ends = np.zeros((PLACES, 2))
    ends[[0, 1], 0], ends[[8, 7], 1] = 1.0, (1.0, 0.5)
    return mh.MDP(moves, initial=np.repeat([0.0, 0.2, 0.0], [2, 5, 2])), (moves @ ends).reshape(-1, 2)


MDP, FEATURES = corridor()


def episodes(modes, discount=0.8, number=60, steps=60, seed=0):
    """Episodes of one expert, each with one of several weights of the features, by lot."""
    frames, rng = [], np.random.default_rng(seed)
    mode = rng.integers(len(modes), size=number)
    for k, weights in enumerate(modes):
        policy = mh.soft_plan(MDP, (FEATURES @ weights).reshape(3, PLACES).T, discount).policy
        own = np.flatnonzero(mode == k)
        frame = mh.Demonstrations.simulate(MDP, [policy], max(own.size, 1), seed=seed + k, max_steps=steps).to_frame()
        frames.append(frame.assign(episode=own[frame["episode"].astype(int)]) if own.size else frame[:0])
    return pd.concat(frames, ignore_index=True)


def by_lot(frame, names=4, seed=0):
    """The same episodes dealt by lot to several names."""
    numbers = np.sort(frame["episode"].unique())
    dealt = pd.Series(np.random.default_rng(seed).permutation(numbers.size) % names, index=numbers)
    return mh.Demonstrations.from_frame(frame.assign(expert=[f"n{k}" for k in dealt[frame["episode"]]]))


def posed(table):
    return mh.Problem(MDP, table, features=FEATURES, feature_names=NAMES)


HIDDEN = ((2.2, 0.2), (0.3, 2.4))
CLEAN = ((1.0, 1.5),)


@pytest.fixture(scope="module")
def hidden():
    """A table in which what is wanted changes from episode to episode, dealt by lot to four names."""
    return by_lot(episodes(HIDDEN), seed=1)


@pytest.fixture(scope="module")
def clean():
    return by_lot(episodes(CLEAN, number=160))


def analysed(table, **options):
    return mh.analyse([table], [MDP], lambda _: (FEATURES, list(NAMES)), quick=True, deviations=0.0, **options)


def test_a_hidden_context_is_no_difference_between_people(hidden, golden):
    before, after = analysed(hidden, cluster="decision"), analysed(hidden)
    assert before.goals.test.p_value <= 0.01
    assert before.independence["unit"] == "decision"
    assert after.independence["unit"] == "episode"
    assert after.goals.test.p_value > 0.05
    assert np.median(np.diff(after.intervals)) > 1.3 * np.median(np.diff(before.intervals))
    golden(after.headline)
    assert after.independence["clusters"] == [15] * 4


def test_clean_decisions_keep_their_intervals(clean):
    solutions = [mh.solve(posed(clean), mh.MaximumLikelihood(cluster=unit)) for unit in ("decision", "auto", "episode")]
    ends = [solution.confidence_intervals() for solution in solutions]
    assert solutions[1].evidence["independence"]["unit"] == "decision"
    assert np.array_equal(ends[0], ends[1])
    widths = [np.diff(each)[:, 0] for each in ends]
    assert np.median(widths[2] / widths[0]) == pytest.approx(1.0, abs=0.08)
    assert solutions[2].discounts == pytest.approx(solutions[0].discounts, abs=1e-6)


def test_experts_who_differ_are_still_told_apart():
    frames = [episodes(CLEAN, 0.3, 40), episodes(CLEAN, 0.9, 40, seed=10), episodes(((1.6, 0.6),), 0.9, 40, seed=20)]
    table = mh.Demonstrations.from_frame(pd.concat([f.assign(expert=name) for f, name in zip(frames, "abc", strict=True)]))
    solution = mh.solve(posed(table), mh.MaximumLikelihood(cluster="episode"))
    assert shared_goal_test(solution).p_value <= 0.01
    two = mh.Demonstrations.from_frame(pd.concat([f.assign(expert=name) for f, name in zip(frames[:2], "ab", strict=True)]))
    same_goal = mh.solve(posed(two), mh.MaximumLikelihood(cluster="episode"))
    assert mh.shared_discount_test(same_goal).p_value <= 0.01
    assert shared_goal_test(same_goal).p_value > 0.05


def test_the_middle_of_the_sandwich_is_the_variance_of_the_episodes_scores(hidden):
    """Scores of episodes by differences of their log-likelihoods, one episode at a time."""
    point = resume(mh.solve(posed(hidden), mh.MaximumLikelihood(cluster="episode", temperature="shared")))
    model, free = point.likelihood, np.flatnonzero(~point.likelihood.fixed)
    clusters = Clusters.of(model.problem, "episode")
    scores = [np.zeros((counts.shape[0], free.size)) for counts in clusters.counts]
    for column, place in enumerate(free):
        sides = [model.at(point.x + h * np.eye(1, point.x.size, place).ravel()) for h in (1e-5, -1e-5)]
        for k, counts in enumerate(clusters.counts):
            logs = [np.log(side.policies()[k]).T.ravel() for side in sides]
            scores[k][:, column] = counts @ (logs[0] - logs[1]) / 2e-5
    wanted = sum(len(own) / (len(own) - 1) * np.cov(own.T, ddof=0) * len(own) for own in scores)
    assert middle(point)[np.ix_(free, free)] == pytest.approx(wanted, rel=1e-5, abs=1e-5)


def test_names_and_their_order_change_no_p_value(hidden):
    frame = hidden.to_frame()
    other = frame.assign(expert=frame["expert"].map({"n0": "z", "n1": "b", "n2": "a", "n3": "y"}))
    pairs = []
    for table in (hidden, mh.Demonstrations.from_frame(other)):
        solution = mh.solve(posed(table), mh.MaximumLikelihood(cluster="episode"))
        pairs.append((shared_goal_test(solution).p_value, mh.shared_discount_test(solution).p_value))
    assert pairs[0] == pytest.approx(pairs[1], abs=1e-9)


def test_units_of_features_change_nothing(hidden):
    ends = []
    for unit in (1.0, 1000.0):
        problem = mh.Problem(MDP, hidden, features=FEATURES * unit, feature_names=NAMES)
        solution = mh.solve(problem, mh.MaximumLikelihood(cluster="auto"))
        ends.append((solution.standard_errors, within_episodes(resume(solution)).p_value, shared_goal_test(solution).p_value))
    assert ends[0][0] == pytest.approx(ends[1][0], rel=1e-4)
    assert ends[0][1:] == ends[1][1:]


@pytest.mark.slow
def test_goals_take_episodes_as_the_unit(hidden, golden):
    before, after = (mh.goals(posed(hidden), "pooled", 199, cluster=unit) for unit in ("decision", "auto"))
    assert before.test.rejected
    assert not after.test.rejected
    assert after.verdict != "differ"
    golden(after.sentences())


def test_few_episodes_are_said_and_widen_intervals(golden):
    table = by_lot(episodes(HIDDEN, number=12, steps=150))
    solution = mh.solve(posed(table), mh.MaximumLikelihood(cluster="episode"))
    assert max(solution.evidence["independence"]["freedom"]) < 4
    golden(solution.message)
    frame = table.to_frame()
    single = mh.Demonstrations.from_frame(frame[frame["episode"] == frame.groupby("expert")["episode"].transform("first")])
    said = mh.solve(posed(single), mh.MaximumLikelihood(cluster="episode")).evidence["independence"]
    assert said["unit"] == "decision"
    assert said["reason"] == "every expert has a single episode"


def test_experts_are_the_unit_where_groups_share_discounts(hidden):
    groups = {"n0": "one", "n1": "one", "n2": "two", "n3": "two"}
    solution = mh.solve(posed(hidden), mh.MaximumLikelihood(groups=groups, cluster="expert"))
    assert solution.evidence["independence"]["unit"] == "expert"
    assert np.isfinite(solution.standard_errors).all()
    with pytest.raises(ValueError, match="give groups of experts who share one"):
        mh.solve(posed(hidden), mh.MaximumLikelihood(cluster="expert"))
    with pytest.raises(ValueError, match="cluster must be one of auto, decision, episode, expert, got 'day'"):
        mh.MaximumLikelihood(cluster="day")


def test_episodes_that_are_not_known_are_asked_for(hidden):
    counts = posed(hidden)
    bare = counts.with_experts(
        mh.Expert(e.name, MDP, "demonstrations", counts=e.counts, features=e.features) for e in counts.experts
    )
    with pytest.raises(ValueError, match="the problem does not hold the episodes of its decisions"):
        mh.solve(bare, mh.MaximumLikelihood(cluster="episode"))
    assert mh.solve(bare, mh.MaximumLikelihood(cluster="auto")).evidence["independence"]["unit"] == "decision"


def test_the_unit_is_chosen_on_the_command_line(hidden, tmp_path):
    hidden.to_csv(tmp_path / "table.csv")
    MDP.to_npz(tmp_path / "mdp.npz")
    s, a = np.divmod(np.arange(3 * PLACES), 3)
    rows = pd.DataFrame({"state": np.array(MDP.state_names)[s], "action": np.array(MDP.action_names)[a]})
    rows[[*NAMES]] = FEATURES[a * PLACES + s]
    rows.to_csv(tmp_path / "features.csv", index=False)
    files = [
        str(tmp_path / "table.csv"),
        "--transitions",
        str(tmp_path / "mdp.npz"),
        "--features",
        str(tmp_path / "features.csv"),
    ]
    command = ["fit", *files, "--quick", "--deviations", "0", "--cluster-by", "decision", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "out" / "result.json").read_text())["independence"]["unit"] == "decision"
    result = CliRunner().invoke(app, ["goals", *files, "--cluster-by", "day"])
    assert result.exit_code == 2
    assert "--cluster-by must be one of auto, decision, episode, expert, got day" in " ".join(result.output.split())


@pytest.mark.slow
def test_a_deal_by_lot_is_rejected_as_seldom_as_it_should_be():
    """At the fit with one discount, which no deal changes."""
    frame, p_values = episodes(HIDDEN, number=96, seed=200), []
    problem = posed(by_lot(frame, 8))
    one = mh.MaximumLikelihood(groups=dict.fromkeys(problem.names, "all"), temperature="shared")
    together = mh.solve(problem, one)
    for deal in range(100):
        problem = posed(by_lot(frame, 8, deal))
        model = Likelihood(problem).clustered(Clusters.of(problem, "episode"))
        contrasts = np.zeros((model.size, 7))
        contrasts[model.discount_slice] = np.eye(8)[:, 1:] - np.eye(8)[:, :1]
        point = model.at(model.pack(together.reward, together.discounts))
        p_values.append(sign_flip_test(point, contrasts)[1])
    assert np.mean(np.array(p_values) <= 0.05) <= 0.1
    assert 0.4 < np.mean(p_values) < 0.6


def test_people_one_by_one_take_episodes_as_the_unit_where_that_is_asked_for():
    frame = pd.concat([episodes(CLEAN, number=4, steps=30, seed=10 * k).assign(expert=f"p{k}") for k in range(8)])
    paid = (FEATURES @ CLEAN[0]).reshape(3, PLACES).T
    problem = mh.Problem(MDP, mh.Demonstrations.from_frame(frame))
    solver = mh.MaximumLikelihood("per_expert", known_reward=paid, cluster="episode")
    assert mh.solve(problem, solver).evidence["independence"]["unit"] == "episode"


def test_predictions_of_a_fit_without_its_episodes_say_so(hidden):
    solution = mh.solve(posed(hidden), mh.MaximumLikelihood(cluster="episode"))
    problem = solution.problem.with_experts(replace(expert, table=None) for expert in solution.problem.experts)
    saved = replace(solution, problem=problem, interval_source=None)
    widths = []
    for fit in (solution, saved):
        found = mh.predict(fit, discount=0.5, draws=100)
        assert ("does not hold its episodes" in found.sentences()) == (fit is saved)
        widths.append(np.nanmean(found.to_frame()["high"] - found.to_frame()["low"]))
    assert widths[0] > widths[1]
