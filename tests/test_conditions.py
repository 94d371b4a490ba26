"""Conditions in a formula: what differs between people, cells, what is left out or cannot be told, and planted effects."""

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit

import multihorizon as mh
from multihorizon.horizon import Horizon
from multihorizon.population.covariates import Covariates, read_covariates, read_formula, require_columns
from multihorizon.problem import CountedTask
from multihorizon.questions.differences import difference_words, population_answer, population_words

PERSONS = pd.DataFrame({"expert": [f"p{i}" for i in range(12)], "group": ["a", "b"] * 6, "age": np.arange(20.0, 32.0)})
TASK = mh.domains.cliff().mdp


def crowd_of(**conditions: list[object]) -> mh.Problem:
    """Twelve people with a cell for each value of these lists, which are as long as each other; ten decisions in each."""
    each = len(next(iter(conditions.values())))
    frame = pd.DataFrame({name: values * 12 for name, values in conditions.items()})
    counts = sp.csr_array(np.pad(np.full((len(frame), 1), 10.0), ((0, 0), (0, TASK.n_states * TASK.n_actions - 1))))
    return mh.Problem.of_tasks(
        tuple(PERSONS["expert"]), ("r",), (CountedTask(TASK, counts),), np.repeat(np.arange(12), each), frame
    )


def without(crowd: mh.Problem, rows: list[int]) -> mh.Problem:
    """The crowd without some of its rows."""
    kept = np.delete(np.arange(crowd.cells.owner.size), rows)
    tasks = tuple(replace(task, counts=task.counts[kept]) for task in crowd.tasks)
    frame = crowd.conditions.iloc[kept].reset_index(drop=True)
    return mh.Problem.of_tasks(crowd.names, crowd.parameter_names, tasks, crowd.cells.owner[kept], frame)


NOISE = crowd_of(noise=["low", "high"])
LOW = {"noise": "low"}


def read(formula: str, crowd: mh.Problem = NOISE, persons: pd.DataFrame | None = PERSONS, **options) -> Covariates:
    return read_covariates(formula, persons, crowd, **options)


@pytest.mark.parametrize(
    ("formula", "fixed", "random"),
    [
        ("~ noise", "1 noise", "1"),
        ("~ noise * group + (1 | expert)", "1 noise group noise:group", "1"),
        ("~ noise + (noise | expert)", "1 noise", "1 noise"),
        ("~ noise + (1 + noise|expert)", "1 noise", "1 noise"),
        ("~ (0 + noise | expert) + noise", "1 noise", "noise"),
        ("~ 0 + noise + (noise - 1 | `expert`)", "noise", "noise"),
        ("(1 | expert)", "1", "1"),
        ("~ (1 | expert)", "1", "1"),
        ("noise + ((noise + block) * site | expert) + group", "1 noise group", "1 noise block site noise:site block:site"),
        ("~ `a|b` + C(x, Treatment('(1|y)')) + (1|expert)", "1 a|b C(x, Treatment('(1|y)'))", "1"),
    ],
)
def test_what_stands_before_the_bar_differs_between_persons(formula: str, fixed: str, random: str) -> None:
    found = read_formula(formula)
    assert " ".join(map(str, found.terms)) == fixed
    assert " ".join(map(str, found.random)) == random
    assert "expert" not in found.columns


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("~ noise | expert", "a bar outside parentheses"),
        ("~ (noise || expert)", r"got \|\|"),
        ("~ (1 | group)", "got group after the bar, where only expert is known"),
        ("~ (1 | expert/group)", "something else than expert after the bar"),
        ("~ (1 | expert", "something else than expert after the bar"),
        ("~ (1 | expert) + (0 + noise | expert)", "more than one bar"),
        ("~ (noise | group | expert)", "more than one bar"),
        ("~ ( | expert)", "nothing before the bar"),
        ("~ noise * (1 | expert)", "not added to the rest"),
        ("~ noise - (1 | expert)", "not added to the rest"),
        ("~ (1 | expert):noise", "not added to the rest"),
        ("(1 | expert) ~ noise", "not added to the rest"),
        ("~ ((1 | expert))", "inside other parentheses"),
        ("~ group * (noise + (1 | expert) + age)", "inside other parentheses"),
        ("~ [1 | expert]", "inside other parentheses"),
        ("noise ~ (1 | expert)", "only to the right of ~"),
        ("~ (noise ~ group | expert)", "must join columns"),
        ("~ (. | expert)", "must name its columns"),
        ("~ noise(1 | expert)", "must not hold"),
    ],
)
def test_another_bar_is_refused_in_one_sentence(formula: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"formula.*{said}") as error:
        read_formula(formula)
    assert "\n" not in str(error.value)


def test_cells_are_persons_under_the_conditions_that_the_formula_uses() -> None:
    crowd = crowd_of(noise=["low", "low", "high", "high"], block=[1, 2, 1, 2])
    found = read("~ noise * group", crowd)
    assert found.conditions == ("noise",)
    assert found.matrix.shape == (24, 4)
    assert found.owner.tolist() == np.repeat(np.arange(12), 2).tolist()
    assert found.frame["noise"].tolist() == ["high", "low"] * 12  # in order within each person
    assert found.cell.tolist() == [2 * i + k for i in range(12) for k in (1, 1, 0, 0)]
    gathered = found.gathered(crowd)
    assert gathered.tasks[0].counts.sum(axis=1).tolist() == [20.0] * 24
    assert gathered.conditions["noise"].tolist() == found.frame["noise"].tolist()
    assert found.patterns == tuple(f"group = {g}, noise = {n}" for g in "ab" for n in ("high", "low"))
    assert found.person_groups.tolist() == ["group = a", "group = b"] * 6
    assert found.persons.columns.tolist() == ["group"]
    np.testing.assert_allclose(found.typical[0], [1, 0.5, 0, 0])  # the average of both conditions
    np.testing.assert_allclose(found.typical[1], [1, 0.5, 1, 0.5])
    assert found.references == {"group": "a", "noise": "high"}
    assert read("~ noise * group", crowd, reference={"noise": "low"}).references == {"group": "a", "noise": "low"}
    assert read("~ C(noise, contr.sum) + C(group, Treatment('b'))", crowd).references == {"group": "b"}


def test_a_formula_without_conditions_has_persons_for_cells() -> None:
    mine, other = (read("~ group + age", crowd) for crowd in (NOISE, mh.Problem.of_tasks(NOISE.names, (), ())))
    assert mine.conditions == other.conditions == ()
    for each in (mine, other):
        assert each.owner.tolist() == list(range(12))
        np.testing.assert_array_equal(each.matrix, other.matrix)
        np.testing.assert_array_equal(each.typical, each.matrix)
        np.testing.assert_array_equal(each.random, np.ones((12, 1)))
        np.testing.assert_array_equal(each.random_units, np.eye(1))
    assert mine.gathered(NOISE).cells.owner is None
    assert mine.gathered(NOISE).tasks[0].counts.sum(axis=1).tolist() == [20.0] * 12


def test_numbers_that_vary_between_episodes_make_a_cell_for_each_value() -> None:
    crowd = crowd_of(block=[1, 2, 3, 3])
    found = read("~ block + (block | expert)", crowd)
    assert found.matrix.shape == (36, 2)
    assert found.random_terms == ("Intercept", "block")
    np.testing.assert_allclose(found.typical, [[1.0, 2.0]] * 12)
    assert found.patterns == ("block = 2",)
    (comparison,) = found.comparisons
    assert (comparison.is_number, comparison.is_condition) == (True, True)


@pytest.mark.parametrize(
    "formula", ["(noise | expert)", "(0 + noise | expert)", "(noise + block | expert)", "(0 + block | expert)"]
)
def test_what_persons_have_of_their_own_is_searched_in_units_without_correlation(formula: str) -> None:
    crowd = without(crowd_of(noise=["low", "low", "high", "high"], block=[1, 2, 1, 2]), [0, 7, 9])
    found = read(f"~ noise + {formula}", crowd)
    white = found.random @ found.random_units
    np.testing.assert_allclose(white.T @ white / len(white), np.eye(white.shape[1]), atol=1e-12)
    if "block |" not in formula or "noise" in formula:
        np.testing.assert_allclose(white[:, 0], 1.0)


def test_all_ways_to_code_a_slope_are_searched_alike() -> None:
    crowd = without(crowd_of(noise=["low", "high", "none"]), [0, 7, 9, 31])
    ways = [read(f"~ noise + ({part}noise | expert)", crowd, reference=first) for part in ("", "0 + ") for first in (None, LOW)]
    ways.append(read("~ noise + (C(noise, contr.sum) | expert)", crowd))
    first, *others = (
        sorted(zip(each.owner, each.frame["noise"], *(each.random @ each.random_units).T, strict=True)) for each in ways
    )
    for other in others:
        np.testing.assert_allclose([row[2:] for row in other], [row[2:] for row in first], atol=1e-12)


def test_decisions_without_a_condition_are_left_out_and_counted() -> None:
    crowd = crowd_of(noise=["low", "high", None])
    found = read("~ noise", crowd)
    assert len(found.owner) == 24
    assert found.cell.reshape(12, 3)[:, 2].tolist() == [-1] * 12
    assert found.cautions == ("Left out are 120 decisions of 12 people without noise.",)
    assert found.gathered(crowd).tasks[0].counts.sum() == 240
    assert found.left_out == {}
    with pytest.raises(ValueError, match='missing="fail", got 120 decisions of 12 people without noise'):
        read("~ noise", crowd, missing="fail")


def test_a_person_without_any_known_condition_is_left_out_and_named() -> None:
    crowd = crowd_of(noise=["low", "high"])
    crowd.conditions.loc[[2, 3, 5], "noise"] = np.nan
    persons = PERSONS.assign(group=["c", *PERSONS["group"][1:]])
    found = read("~ noise + group", crowd, persons)
    assert found.left_out == {"p1": "no noise", "p0": "the only one of their group"}
    assert found.names == tuple(f"p{i}" for i in range(2, 12))
    assert len(found.owner) == 19
    assert found.cautions == (
        "Left out are 10 decisions of 1 person without noise.",
        "1 of 10 people was seen under one condition only, which tells nothing of changes within people.",
    )
    gathered = found.gathered(crowd)
    assert gathered.names == found.names
    assert gathered.tasks[0].counts.sum() == 190


def test_a_condition_under_which_nobody_was_seen_twice_compares_persons() -> None:
    names, noise = NOISE.names, ["low", "high"] * 6
    crowd = mh.Problem.of_tasks(names, (), (), np.arange(12), pd.DataFrame({"noise": noise}))
    found = read("~ noise", crowd)
    assert found.conditions == ()
    by_table = read("~ noise", mh.Problem.of_tasks(names, (), ()), PERSONS.assign(noise=noise))
    np.testing.assert_array_equal(found.matrix, by_table.matrix)
    assert "Nobody was seen under two values of noise" in found.cautions[0]
    assert by_table.cautions == ()


def test_the_order_of_persons_and_rows_does_not_matter() -> None:
    crowd = crowd_of(noise=["low", "high"], block=[2, 1])
    turned = mh.Problem.of_tasks(crowd.names, (), (), crowd.cells.owner, crowd.conditions.iloc[::-1].reset_index(drop=True))
    one, other = (read("~ noise + (noise | expert)", each) for each in (crowd, turned))
    np.testing.assert_array_equal(one.matrix, other.matrix)
    assert one.cell.tolist() == [i ^ 1 for i in other.cell.tolist()]


@pytest.mark.parametrize(
    ("formula", "crowd", "said"),
    [
        (
            "~ noise",
            crowd_of(noise=["low", "low"]),
            "column noise of episodes must vary, got low for everyone: leave it out",
        ),
        ("~ noise + (noise | expert)", crowd_of(noise=["low"]), "column noise of episodes must vary"),
        ("~ noise", crowd_of(noise=["low", [1]]), "column noise of episodes must hold text or numbers"),
        ("~ block", crowd_of(block=[1, 2, "three"]), "column block of episodes must hold numbers, as for most, got 'three'"),
        ("~ noise + double", crowd_of(noise=[1, 2], double=[2, 4]), "the term double must add something to Intercept, noise"),
        ("~ noise + (noise + double | expert)", crowd_of(noise=[1, 2], double=[2, 4]), "the term double must add something"),
        (
            "~ nois",
            NOISE,
            "names nois, which neither people nor episodes have: the columns of people are expert, group, age, and",
        ),
        ("~ group", crowd_of(group=["a", "b"]), "column group must be one of people or one of episodes, got it in both"),
        ("~ C(block) + group", crowd_of(block=list(range(40))), ""),
        ("~ (C(block) | expert)", crowd_of(block=[1, 2, 3, 4, 5]), "at most 3 terms may differ between people, .* got 5"),
        ("~ (0 | expert)", NOISE, "and at least 1, got 0"),
        (
            "~ age + (age | expert)",
            NOISE,
            r"how the effect of age differs .* nobody was seen under two values .* write \(1 \| exp",
        ),
        ("~ group + (group | expert)", NOISE, "nobody was seen under two values of it"),
        ("~ noise + (noise + age | expert)", NOISE, "not seen under enough combinations"),
        ("~ noise + (0 + noise:age | expert)", NOISE, "not seen under enough combinations"),
        ("~ noise + (noise | expert)", without(NOISE, list(range(20))), "1 terms need at least 3 people, got 2"),
        ("~ noise + (noise | expert)", without(NOISE, list(range(0, 20, 2))), "too few were seen under two values of it"),
        ("~ (block + I(block**2) | expert)", crowd_of(block=[1, 2]), "must add something|enough combinations"),
        ("~ poly(block, 4)", crowd_of(block=[1, 2, 3]), "cannot be used|must add something|finite"),
    ],
)
def test_what_cells_cannot_tell_is_said_in_one_sentence(formula: str, crowd: mh.Problem, said: str) -> None:
    if not said:
        assert read(formula, crowd).matrix.shape == (480, 41)
        return
    with pytest.raises(ValueError, match=said) as error:
        read(formula, crowd)
    assert "\n" not in str(error.value)


def test_persons_are_counted_for_their_terms_and_cells_for_conditions() -> None:
    crowd = crowd_of(block=[1, 2, 3, 4])
    some = crowd.some(np.arange(4))
    assert read("~ poly(block, 3)", some).matrix.shape == (16, 4)
    with pytest.raises(ValueError, match="3 terms need at least 5 people, got 4"):
        read("~ block + group + age", some)


def test_columns_of_both_tables_are_known() -> None:
    assert require_columns(read_formula("~ noise + age"), PERSONS, ["noise"]) == list(PERSONS.columns)
    with pytest.raises(ValueError, match="names age, which neither people nor episodes have: the columns of people are none"):
        require_columns(read_formula("~ noise + age"), None, ["noise"])


GAME = mh.domains.space_adventure(mini_blocks=24)
POINTS = GAME.reward.T.ravel()


@cache
def planted(slope: float = 0.0) -> tuple[mh.Demonstrations, np.ndarray]:
    """Thirty people with low noise and with high, which lowers logit γ by 1, and the logits `(60,)` of their cells."""
    rng, frames = np.random.default_rng(1), []
    own, change, warm = rng.normal(1.8, 0.8, 30), rng.normal(-1.0, slope, 30), np.exp(rng.normal(1.7, 0.3, 30))
    logits = np.stack([own, own + change], axis=1)
    for k, noise in enumerate(("low", "high")):
        table = GAME.persons(30, seed=k, discounts=expit(logits[:, k]), temperatures=warm).demonstrations.to_frame()
        frames.append(table.assign(episode=[f"{noise} {e}" for e in table["episode"]], noise=noise))
    return mh.Demonstrations.from_frame(pd.concat(frames), conditions=["noise"]), logits.ravel()


def solved(formula: str, table: mh.Demonstrations, **options) -> mh.Solution:
    return mh.solve(mh.Problem(GAME.mdp, table), mh.Population(formula, known_reward=POINTS, nodes=7, **options))


@pytest.fixture(scope="module")
def solution() -> mh.Solution:
    return solved("~ noise", planted()[0], reference=LOW)


def test_a_planted_effect_of_a_condition_is_found(solution: mh.Solution) -> None:
    found, truth = solution.evidence["population"], planted()[1]
    assert solution.status == mh.Status.CONVERGED
    effect = found.discount["noise[T.high]"]
    assert abs(effect["estimate"] + 1.0) < 2 * effect["standard_error"]
    assert effect["p"] < 0.01
    assert found.degrees == 28
    low, high = found.spread["discount"]["interval"]
    assert low < 0.8 < high
    cells = found.cells
    assert cells["expert"].tolist() == [name for name in solution.experts for _ in range(2)]
    assert cells["noise"].tolist() == ["low", "high"] * 30
    assert cells["decisions"].sum() == solution.evidence["decisions"]
    assert np.corrcoef(cells["logit_discount"], truth)[0, 1] > 0.7
    inside = (cells["low"] < expit(truth)) & (expit(truth) < cells["high"])
    assert inside.mean() > 0.88
    # people on the average of both conditions
    assert found.individuals["logit_discount"] == pytest.approx(cells["logit_discount"].reshape(30, 2).mean(axis=1), abs=1e-6)
    assert found.slopes == {}
    for shares in found.variance.values():
        assert shares["person"] + shares["condition"] == pytest.approx(1.0)
        assert shares["between_low"] < shares["person"] <= shares["between_high"]
    size = found.spread["discount"]["estimate"] ** 2
    assert found.variance["discount"]["person"] * found.variance["discount"]["total"] == pytest.approx(size)


def test_the_same_persons_tell_more_than_different_ones(solution: mh.Solution) -> None:
    table = planted()[0].to_frame()
    table["expert"] = table["expert"] + table["noise"]
    apart = solved("~ noise", mh.Demonstrations.from_frame(table, conditions=["noise"]), reference=LOW)
    errors = [s.evidence["population"].discount["noise[T.high]"]["standard_error"] for s in (solution, apart)]
    assert errors[0] < 0.8 * errors[1]
    assert apart.evidence["population"].cells is None
    assert "Nobody was seen under two values of noise" in apart.message


@pytest.mark.slow
def test_order_and_names_of_persons_and_conditions_do_not_matter(solution: mh.Solution) -> None:
    table = planted()[0].to_frame().sample(frac=1, random_state=0).sort_values(["episode", "step"])
    table["expert"] = [f"x{(7 * int(name)) % 31}" for name in table["expert"]]
    table["noise"] = table["noise"].map({"low": "z", "high": "a"})
    other = solved("~ noise", mh.Demonstrations.from_frame(table, conditions=["noise"]))
    mine, turned = (s.evidence["population"] for s in (solution, other))
    assert turned.discount["noise[T.z]"]["estimate"] == pytest.approx(-mine.discount["noise[T.high]"]["estimate"], abs=1e-5)
    assert turned.discount["noise[T.z]"]["p"] == pytest.approx(mine.discount["noise[T.high]"]["p"], rel=1e-3)
    assert turned.spread["discount"]["estimate"] == pytest.approx(mine.spread["discount"]["estimate"], abs=1e-5)
    pairs = {(f"x{(7 * int(e)) % 31}", {"low": "z", "high": "a"}[c]): g for e, c, g in zip(*cells_of(mine), strict=True)}
    for expert, noise, discount in zip(*cells_of(turned), strict=True):
        assert pairs[expert, noise] == pytest.approx(discount, abs=1e-5)
    assert turned.variance["discount"] == pytest.approx(mine.variance["discount"], abs=1e-4)


def cells_of(found) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.cells["expert"], found.cells["noise"], found.cells["discount"]


@pytest.mark.slow
def test_a_crowd_and_a_problem_give_one_answer(solution: mh.Solution) -> None:
    crowd = mh.Problem(GAME.mdp, planted()[0])
    other = mh.solve(crowd, mh.Population("~ noise", known_reward=POINTS, nodes=7, reference=LOW))
    np.testing.assert_allclose(other.evidence["population"].cells["discount"], solution.evidence["population"].cells["discount"])


def test_conditions_survive_a_file_and_new_persons_are_predicted_under_them(solution: mh.Solution, tmp_path) -> None:
    solution.to_json(tmp_path / "population.json")
    again = mh.Solution.from_json(tmp_path / "population.json", mh.Problem(GAME.mdp, planted()[0]))
    mine, read_back = (s.evidence["population"] for s in (solution, again))
    assert read_back.variance == mine.variance
    assert read_back.cells["noise"].tolist() == mine.cells["noise"].tolist()
    np.testing.assert_array_equal(read_back.cells["low"], mine.cells["low"])
    solver, new = mh.Population("~ noise", reference=LOW), pd.DataFrame({"noise": ["high", "low"]})
    for each in (solution, again):
        rows = solver.predict(each, new)
        for i, noise in enumerate(new["noise"]):
            expected = mine.predictions[f"noise = {noise}"]
            assert rows["discount"][i] == pytest.approx(expected["typical_discount"])
            assert rows.loc[i, ["person_low", "person_high"]].tolist() == pytest.approx(expected["new_person_interval"])
    with pytest.raises(ValueError, match="value in column noise"):
        solver.predict(solution, pd.DataFrame({"age": [3]}))
    followed = mh.track(again, {"noise": "high"}).now
    assert followed.discount_interval == pytest.approx(mine.predictions["noise = high"]["new_person_interval"], abs=0.01)


def test_sentences_name_the_condition_and_the_person(solution: mh.Solution) -> None:
    (said,) = difference_words(solution, Horizon(3))
    assert said.startswith("With noise low the same people look further ahead than with noise high: typical discounts 0.")
    words = " ".join(population_words(solution, Horizon(3)))
    assert "Of the variance of logit γ, " in words
    assert "% is between people and " in words
    answer = population_answer(solution, Horizon(3))
    assert answer.question == "Do discounts differ with the conditions?"
    assert answer.answer == "Yes: further with low than with high"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((0.6, 0.9), "70% is between people and 30% is the condition: how far someone looks ahead is mostly the person."),
        ((0.1, 0.4), "30% is the condition: how far someone looks ahead is mostly the condition."),
        ((0.3, 0.9), "whether it is more the person or the condition is open, as 30% to 90% may be the person."),
        ((np.nan, np.nan), "70% is between people and 30% is the condition."),
    ],
)
def test_what_is_open_is_said_to_be_open(solution: mh.Solution, ends: tuple[float, float], said: str) -> None:
    found = solution.evidence["population"]
    shares = {"person": 0.7, "covariates": 0.0, "condition": 0.3, "person_by_condition": 0.001, "total": 1.0}
    shares |= {"between_low": ends[0], "between_high": ends[1]}
    changed = replace(found, variance={"discount": shares, "temperature": shares})
    assert said in " ".join(
        population_words(replace(solution, evidence=replace(solution.evidence, population=changed)), Horizon(3))
    )


@pytest.mark.slow
def test_a_person_seen_under_one_condition_only_stays_in() -> None:
    table = planted()[0].to_frame()
    alone = (table["expert"] == "3") & (table["noise"] == "high")
    found = solved("~ noise", mh.Demonstrations.from_frame(table[~alone], conditions=["noise"]), reference=LOW)
    assert "1 of 30 people was seen under one condition only, which tells nothing of changes within people." in found.message
    assert len(found.evidence["population"].cells["expert"]) == 59
    assert "3" in found.experts


@pytest.mark.slow
def test_persons_may_differ_in_how_a_condition_changes_them() -> None:
    one, other = (solved(f"~ noise + ({part}noise | expert)", planted(0.8)[0], reference=LOW) for part in ("", "0 + "))
    mine, turned = (s.evidence["population"] for s in (one, other))
    slope = mine.slopes["noise[T.high]"]["discount"]
    assert slope["interval"][0] < 0.8 < slope["interval"][1]
    assert mine.variance["discount"]["person_by_condition"] > 0.02
    assert sum(
        mine.variance["discount"][k] for k in ("person", "covariates", "condition", "person_by_condition")
    ) == pytest.approx(1)
    assert turned.discount["noise[T.high]"]["estimate"] == pytest.approx(mine.discount["noise[T.high]"]["estimate"], abs=1e-5)
    assert turned.spread["discount"]["estimate"] == pytest.approx(mine.spread["discount"]["estimate"], abs=1e-5)
    assert list(turned.slopes) == ["noise[low]", "noise[high]"]
    # the spread of new people is that of their condition
    covariance = np.array(turned.person_covariance)
    assert turned.slopes["noise[low]"]["discount"]["estimate"] == pytest.approx(np.sqrt(covariance[0, 0]))
    whole, part = (np.array(each.person_covariance) for each in (turned, mine))
    assert part[0, 0] == pytest.approx(whole[0, 0], abs=1e-4)
    vague = {"noise[T.high]": {"discount": {"estimate": 0.4, "interval": [0.1, 1.6]}}}
    for slopes, said in (
        (mine.slopes, "The effect of noise[T.high] on that logit differs between people with a standard deviation of 0."),
        (vague, "is hardly known: by a standard deviation of 0.40 (0.10 to 1.60), or not at all."),
    ):
        told = replace(one, evidence=replace(one.evidence, population=replace(mine, slopes=slopes)))
        assert said in " ".join(population_words(told, Horizon(3)))


def test_what_conditions_cannot_be_asked_is_said_in_one_sentence(solution: mh.Solution) -> None:
    table = planted()[0]
    with pytest.raises(ValueError, match=r"the nonparametric distribution \(free\) must have no conditions, got noise"):
        solved("~ noise", table, distribution="free")
    named = mh.Demonstrations.from_frame(table.to_frame().rename(columns={"noise": "low"}), conditions=["low"])
    with pytest.raises(ValueError, match="a condition must not be called low, as a result is"):
        solved("~ low", named)
