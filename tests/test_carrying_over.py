"""Carrying over: a horizon of the person predicts under another condition, one of the situation does not."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import multihorizon as mh
from multihorizon.questions import carrying_over
from multihorizon.questions.carrying_over import MODELS, CarryingOver, Spread, Together, _dealt, _Fits, _Fitted, _gain, together

DOMAIN = mh.domains.cliff()
PERSONS, EPISODES = 16, 40


def study(discounts: np.ndarray, values: tuple[str, ...], seed: int = 0, names: list[str] | None = None) -> pd.DataFrame:
    """Decisions of people who have a discount `(K,C)` under each condition."""
    frames = []
    for column, value in enumerate(values):
        policies = [mh.soft_plan(DOMAIN.mdp, DOMAIN.reward, gamma).policy for gamma in discounts[:, column]]
        table = mh.Demonstrations.simulate(DOMAIN.mdp, policies, EPISODES, seed=seed + 100 * column, names=names)
        frames.append(
            table.to_frame().assign(episode=lambda rows, at=column: rows["episode"].astype(int) + 1000 * at, noise=value)
        )
    return pd.concat(frames, ignore_index=True)


def asked(rows: pd.DataFrame, **options: object) -> CarryingOver:
    """What is found of such decisions, with the reward known."""
    table = mh.Demonstrations.from_frame(rows, conditions=["noise"])
    return mh.carry_over(mh.Problem(DOMAIN.mdp, table), table, "noise", **{"known_reward": DOMAIN.reward, **options})


def averaged(population: dict[str, Any], seen: np.ndarray, predicted: np.ndarray, reward: np.ndarray = DOMAIN.reward) -> float:
    """The log-likelihood of decisions, each predicted by itself from those that were seen, by sums over a grid of one's own."""
    centre = [population[kind]["Intercept"]["estimate"] for kind in ("discount", "temperature")]
    sizes = [population["spread"][kind]["estimate"] for kind in ("discount", "temperature")]
    rho, steps = population["spread"]["correlation"]["estimate"], np.arange(-4.0, 4.01, 0.2)
    log, policies = [], []
    for a, b in itertools.product(steps, steps):
        gamma, temperature = 1 / (1 + np.exp(-centre[0] - sizes[0] * a)), np.exp(centre[1] + sizes[1] * b)
        policy = mh.soft_plan(DOMAIN.mdp, reward, gamma * population["largest_discount"], temperature).policy
        policies.append(policy)
        own = (seen * np.log(np.where(seen > 0, policy, 1.0))).sum()
        log.append(own - (a**2 - 2 * rho * a * b + b**2) / (2 * (1 - rho**2)))
    shares = np.exp(np.array(log) - max(log))
    mean = np.tensordot(shares / shares.sum(), np.array(policies), 1)
    return float((predicted * np.log(np.where(predicted > 0, mean, 1.0))).sum())


@pytest.fixture(scope="module")
def of_persons() -> pd.DataFrame:
    """Each person has one discount under both conditions."""
    own = np.random.default_rng(0).permutation(np.linspace(0.05, 0.95, PERSONS))
    return study(np.stack([own, own], axis=1), ("high", "low"))


@pytest.fixture
def unshifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is known of how conditions hang together, and no shift is taken out."""
    monkeypatch.setattr(carrying_over, "together", lambda a, b, *_: (Together(a, b), None))


@pytest.fixture(scope="module")
def found(of_persons: pd.DataFrame) -> CarryingOver:
    return asked(of_persons)


@pytest.mark.slow
def test_a_horizon_of_the_person_is_carried(found: CarryingOver, golden) -> None:
    assert found.levels == ("high", "low")
    assert [(pair.origin, pair.target) for pair in found.pairs] == [("high", "low"), ("low", "high")]
    assert all(pair.gain().clear for pair in found.pairs)
    assert found.answer.answer == "At least in part to the person"
    assert found.kept.clear
    (both,) = found.together
    assert both.correlation_low > 0.5
    assert both.p_apart > 0.05
    assert both.p_shift > 0.05
    golden(found.sentences())
    for pair in found.pairs:
        assert pair.mean("own") > pair.mean("one_discount") > pair.mean("chance")


@pytest.mark.slow
def test_a_horizon_of_the_situation_is_not() -> None:
    rng, even = np.random.default_rng(1), np.linspace(0.05, 0.95, PERSONS)
    found = asked(study(np.stack([rng.permutation(even), rng.permutation(even)], axis=1), ("high", "low")))
    assert not any(pair.gain().clear for pair in found.pairs)
    assert found.answer.answer == "At least in part to the situation"
    (both,) = found.together
    assert both.correlation_low < 0 < both.correlation_high
    assert both.p_apart < 0.01


@pytest.mark.slow
def test_a_trait_is_a_trait_where_everybody_changes_alike() -> None:
    logits = np.linspace(-1.5, 1.5, PERSONS)
    discounts = 1 / (1 + np.exp(-np.stack([logits + 0.5, logits - 0.5], axis=1)))
    found = asked(study(discounts, ("high", "low")))
    (both,) = found.together
    assert (both.origin, both.target) == ("high", "low")
    assert both.shift_low < -1 < both.shift_high < 0
    assert both.correlation_low > 0.5
    assert both.p_apart > 0.05
    assert found.answer.answer == "At least in part to the person, after a shift that all have in common"
    assert all(pair.gain().clear for pair in found.pairs)


def spreads(rng: np.random.Generator, n: int, own: float, other: float, shift: float) -> list[Spread]:
    """What would be found under two conditions of people whose decisions say where they are but for 0.5."""
    x, y, found = own * rng.normal(size=n), 0.3 * rng.normal(size=n), []
    error = np.array([[0.25, 0.06], [0.06, 0.04]])
    for number in range(2):
        mean = np.array([1.0 + shift * number, 0.0])
        prior = np.diag([own**2 + other**2 + 0.01, 0.09])
        seen = np.column_stack([mean[0] + x + other * rng.normal(size=n), y]) + rng.multivariate_normal([0, 0], error, n)
        covariance = np.linalg.inv(np.linalg.inv(error) + np.linalg.inv(prior))
        means = (covariance @ (np.linalg.inv(error) @ seen.T + (np.linalg.inv(prior) @ mean)[:, None])).T
        found.append(Spread(mean, prior, means, np.tile(covariance, (n, 1, 1))))
    return found


@pytest.mark.parametrize(
    ("own", "other", "shift", "person", "apart"),
    [(0.8, 0.0, -0.7, True, False), (0.0, 0.8, 0.0, False, True), (0.8, 0.8, 0.0, True, True), (0.0, 0.0, 0.0, False, False)],
    ids=["trait", "state", "both", "neither"],
)
def test_persons_situations_and_shifts_are_told_apart(own: float, other: float, shift: float, person: bool, apart: bool) -> None:
    said, others = together("a", "b", *spreads(np.random.default_rng(1), 60, own, other, shift))
    assert others is not None
    assert (said.p_person < 0.025) == person
    assert (said.correlation_low > 0) == person
    assert (said.p_apart < 0.05) == apart
    assert said.shift_low < shift < said.shift_high
    assert others.mean(axis=0) == pytest.approx([said.shift, 0.0], abs=0.1)
    assert said.apart == pytest.approx(np.sqrt(2) * other, abs=0.3)


def test_a_shift_alone_denies_nobody_a_trait() -> None:
    """That all change alike does not make horizons the situation's where it is open whether they correlate."""
    shifted, _ = together("a", "b", *spreads(np.random.default_rng(3), 60, 0.0, 0.0, -0.7))
    assert shifted.p_shift < 0.05 < shifted.p_apart
    answer = CarryingOver("noise", ("a", "b"), (), (shifted,), ()).answer
    assert answer.answer == "These decisions do not tell, but for a change that all have in common"
    assert answer.kind == "caution"


def test_the_other_way_round_the_shift_has_the_other_sign() -> None:
    first, second = spreads(np.random.default_rng(2), 12, 0.8, 0.4, -0.7)
    there, back = (together("a", "b", *pair)[0] for pair in ((first, second), (second, first)))
    assert back.shift == pytest.approx(-there.shift, abs=0.02)
    assert back.correlation == pytest.approx(there.correlation, abs=0.05)
    assert back.p_person == pytest.approx(there.p_person, abs=0.01)


@pytest.mark.slow
@pytest.mark.usefixtures("unshifted")
def test_figures_are_those_of_the_models_that_are_fitted_under_the_other_condition(of_persons: pd.DataFrame) -> None:
    found = asked(of_persons)
    tables = {value: mh.Demonstrations.from_frame(rows) for value, rows in of_persons.groupby("noise")}
    pair = found.pairs[0]
    counts = tables["low"].counts(DOMAIN.mdp)
    population = mh.solve(mh.Problem(DOMAIN.mdp, tables["high"]), mh.Population(known_reward=DOMAIN.reward)).evidence[
        "population"
    ]
    for person in (0, PERSONS - 1):
        seen = tables["high"].counts(DOMAIN.mdp)[person]
        assert pair.log_likelihoods["own"][person] * pair.decisions[person] == pytest.approx(
            averaged(population, seen, counts[person]), abs=0.02
        )
    chances = np.log(DOMAIN.mdp.available.sum(axis=1))
    expected = [-(own.sum(axis=1) * chances).sum() / own.sum() for own in counts]
    assert pair.log_likelihoods["chance"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_neither_names_nor_order_nor_workers_matter(of_persons: pd.DataFrame, found: CarryingOver) -> None:
    moved = of_persons.sample(frac=1.0, random_state=0)
    moved["expert"] = "z" + (99 - moved["expert"].astype(int)).astype(str)
    again = asked(moved, jobs=2)
    columns = found.to_frame().columns.drop(["from", "to"])
    assert again.to_frame()[columns].to_numpy() == pytest.approx(found.to_frame()[columns].to_numpy(), abs=1e-5, nan_ok=True)
    renamed = asked(of_persons.assign(noise=of_persons["noise"].map({"high": "z", "low": "a"})))
    order = [1, 0]
    assert renamed.to_frame()[columns].to_numpy()[order] == pytest.approx(
        found.to_frame()[columns].to_numpy(), abs=1e-9, nan_ok=True
    )


def test_the_decisions_under_each_condition_are_those_of_its_episodes(of_persons: pd.DataFrame) -> None:
    table = mh.Demonstrations.from_frame(of_persons, conditions=["noise"])
    problem = mh.Problem(DOMAIN.mdp, table)
    levels, parts, told = _dealt(problem, [table], "noise")
    assert levels == ("high", "low")
    assert told == []
    assert np.array_equal(sum(np.array(part) for part in parts.values()), [expert.counts for expert in problem.experts])
    for level in levels:
        rows = of_persons[of_persons["noise"] == level].groupby("expert", sort=False).size()
        assert np.array(parts[level]).sum(axis=(1, 2)).tolist() == rows.tolist()


def test_a_gain_is_a_ratio_over_persons() -> None:
    persons = pd.DataFrame({"gain": [2.0, 1.0, 6.0], "decisions": [10.0, 10.0, 20.0]}, index=["a", "b", "c"])
    gain = _gain(persons)
    assert gain.estimate == pytest.approx(9 / 40)
    assert gain.error == pytest.approx(np.sqrt(1.5 * ((2 - 2.25) ** 2 + (1 - 2.25) ** 2 + (6 - 4.5) ** 2)) / 40)
    assert gain.high - gain.estimate == pytest.approx(4.302652729696 * gain.error)
    halves = pd.concat([persons / 2, persons / 2])
    assert _gain(halves) == pytest.approx(gain)
    assert np.isnan(_gain(persons[:1]).estimate)


@pytest.fixture
def unfitted(monkeypatch: pytest.MonkeyPatch) -> dict[int, Spread | None]:
    """Everybody has a discount of 0.5 and a temperature of 1, without a search.

    Of as many people as are put in here the spread is this one; with None their search does not end.
    """
    spread_of: dict[int, Spread | None] = {}

    def fit(known: np.ndarray, discount: object, seed: int, problem: mh.Problem) -> _Fits:
        # what several tasks know of their rewards comes on top of the parameters
        reward = known if problem.tabular else np.zeros(problem.n_parameters)
        places, shares = np.zeros((problem.n_experts, 1, 2)), np.ones((problem.n_experts, 1))
        n = problem.n_experts
        own = _Fitted(problem.names, places, shares, 1, 0.5, reward, spread_of.get(n, 0) is not None, spread_of.get(n))
        return _Fits(own, replace(own, finished=True))

    monkeypatch.setattr(carrying_over, "_fit", fit)
    return spread_of


@pytest.mark.usefixtures("unfitted")
def test_three_conditions_and_persons_who_were_seen_under_some_of_them(golden) -> None:
    own = np.linspace(0.1, 0.9, 4)
    rows = study(np.stack([own, own, own], axis=1), ("a", "b", "c"), names=["Ann", "Bo", "Cy", "Di"])
    rows = rows[~((rows["expert"] == "Ann") & (rows["noise"] == "b"))]
    rows.loc[(rows["expert"] == "Di") & (rows["episode"] == 2), "noise"] = None
    found = asked(rows)
    assert len(found.pairs) == 6
    seen = {(pair.origin, pair.target): pair for pair in found.pairs}
    assert seen["a", "b"].experts == ("Bo", "Cy", "Di")
    assert seen["b", "a"].left_out == ("Ann",)
    assert seen["a", "c"].experts == ("Ann", "Bo", "Cy", "Di")
    assert all(pair.gain().estimate == 0 for pair in found.pairs)
    assert [(each.origin, each.target) for each in found.together] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert found.answer.answer == "No usable answer"
    golden(*found.remarks)


def test_a_search_that_does_not_end_gives_no_number(of_persons: pd.DataFrame, unfitted: dict[int, Spread | None], golden) -> None:
    unfitted[PERSONS] = None
    found = asked(of_persons)
    assert found.answer.answer == "No usable answer"
    golden(found.answer.reasons)
    assert found.to_frame()["own"].isna().all()
    assert found.to_frame()["one_discount"].notna().all()
    golden(found.sentences())
    assert set(MODELS) <= set(found.to_frame().columns)


def test_a_pair_whose_search_does_not_end_is_left_out_alone(unfitted: dict[int, Spread | None], golden) -> None:
    own = np.linspace(0.1, 0.9, 8)
    rows = study(np.stack([own, own, own], axis=1), ("a", "b", "c"), names=[f"p{k}" for k in range(8)])
    rows = rows[~((rows["expert"] == "p0") & (rows["noise"] == "c"))]
    rows = rows[~((rows["expert"] == "p1") & (rows["noise"] == "b"))]
    (told, _), unfitted[6] = spreads(np.random.default_rng(0), 7, 0.8, 0.0, 0.0), None
    unfitted[7] = told
    found = asked(rows)
    known = {(each.origin, each.target): not np.isnan(each.p_person) for each in found.together}
    assert known == {("a", "b"): True, ("a", "c"): True, ("b", "c"): False}
    assert found.answer.answer != "No usable answer"
    golden(found.answer.reasons)
    assert {(pair.origin, pair.target) for pair in found.pairs if not pair.reason} == {
        ("a", "b"),
        ("b", "a"),
        ("a", "c"),
        ("c", "a"),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("unshifted")
def test_an_unknown_reward_is_that_of_the_other_condition(of_persons: pd.DataFrame) -> None:
    rows = of_persons[of_persons["expert"].astype(int) < 5]
    table = mh.Demonstrations.from_frame(rows, conditions=["noise"])
    problem = mh.Problem(DOMAIN.mdp, table, arrival_features=DOMAIN.reward[:, None], feature_names=["pay"])
    found = mh.carry_over(problem, table, "noise", common_discount=0.5)
    assert all(pair.common_discount == 0.5 for pair in found.pairs)
    kept = mh.Demonstrations.from_frame(rows[rows["noise"] == "high"])
    solution = mh.solve(mh.Problem(DOMAIN.mdp, kept, arrival_features=DOMAIN.reward[:, None]), mh.Population())
    under = mh.Demonstrations.from_frame(rows[rows["noise"] == "low"])
    seen, counts = kept.counts(DOMAIN.mdp), under.counts(DOMAIN.mdp)
    reward, population = DOMAIN.reward * solution.reward[0], solution.evidence["population"]
    total = sum(averaged(population, first, second, reward) for first, second in zip(seen, counts, strict=True))
    assert found.pairs[0].mean("own") == pytest.approx(total / counts.sum(), abs=2e-3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.assign(noise="low"), "must have from 2 to 12 values, got 1: low"),
        (lambda rows: rows.assign(noise=rows["episode"]), "must have groups as values, got numbers: make groups of them"),
        (lambda rows: rows.assign(noise="e" + rows["episode"].astype(str)), "from 2 to 12 values, got 80"),
        (lambda rows: rows.rename(columns={"noise": "day"}), "condition noise must be known of the episodes"),
        (
            lambda rows: rows.assign(noise=np.where(rows["expert"].astype(int) % 2, "high", "low")),
            "at least three people must be seen under two values of noise, got fewer",
        ),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_sentence(of_persons: pd.DataFrame, change, words: str) -> None:
    rows = change(of_persons)
    conditions = [column for column in ("noise", "day") if column in rows]
    table = mh.Demonstrations.from_frame(rows, conditions=conditions)
    with pytest.raises(ValueError, match=words) as refusal:
        mh.carry_over(mh.Problem(DOMAIN.mdp, table), table, "noise", known_reward=DOMAIN.reward)
    assert "\n" not in str(refusal.value)


def test_rewards_that_the_other_condition_says_nothing_of_are_refused() -> None:
    """Two tasks in one table, without a state in common: nothing that is learned in one is known in the other."""
    rows = [
        (who, 10 * episode + side, 0, f"start {side}", ("left", "right")[(episode + who) % 3 == 0], f"end {side} {episode % 2}")
        for who in range(3)
        for episode in range(6)
        for side in (0, 1)
    ]
    frame = pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"])
    frame["noise"] = np.where(frame["state"] == "start 0", "high", "low")
    table = mh.Demonstrations.from_frame(frame, conditions=["noise"])
    with pytest.raises(ValueError, match="got none in common: give a known reward, or features"):
        mh.carry_over(mh.Problem(mh.estimate_mdp(table), table), table, "noise")


@pytest.mark.usefixtures("unfitted")
def test_the_conditions_may_be_tasks_of_their_own() -> None:
    """Everybody's episodes under high are in one table, and those under low in another, with other transitions."""
    tasks = [DOMAIN.mdp, DOMAIN.tasks(1, seed=0)[0].mdp]
    tables, names = [], [["Ann", "Bo", "Cy", "Di"], ["Cy", "Di", "Eve", "Ann"]]
    for number, (mdp, own, noise) in enumerate(zip(tasks, names, ("high", "low"), strict=True)):
        policies = [mh.soft_plan(mdp, DOMAIN.reward, gamma).policy for gamma in (0.2, 0.5, 0.7, 0.8)]
        rows = mh.Demonstrations.simulate(mdp, policies, 6, seed=number, names=own).to_frame()
        tables.append(mh.Demonstrations.from_frame(rows.assign(noise=noise), conditions=["noise"]))
    problem = mh.Problem.join(*(mh.Problem(mdp, table) for mdp, table in zip(tasks, tables, strict=True)))
    found = mh.carry_over(problem, tables, "noise", known_reward=DOMAIN.reward)
    assert [pair.experts for pair in found.pairs[:2]] == 2 * [("Ann", "Cy", "Di")]
    for pair, table, mdp in zip(found.pairs[:2], tables[::-1], tasks[::-1], strict=True):
        own = [table.experts.index(name) for name in pair.experts]
        counts = table.counts(mdp)[own]
        assert pair.decisions.tolist() == counts.sum(axis=(1, 2)).tolist()
        log = np.log(mh.soft_plan(mdp, DOMAIN.reward, 0.5).policy, where=counts.sum(axis=0) > 0, out=np.zeros(counts.shape[1:]))
        assert pair.log_likelihoods["own"] == pytest.approx((counts * log).sum(axis=(1, 2)) / pair.decisions, abs=1e-5)


@pytest.mark.slow
def test_three_persons_who_decide_little_are_no_crash(of_persons: pd.DataFrame) -> None:
    few = of_persons[(of_persons["expert"].astype(int) < 3) & (of_persons["episode"].astype(int) % 1000 < 2)]
    found = asked(few)
    assert all(len(pair.experts) == 3 for pair in found.pairs)
    assert found.sentences()
