"""Conditions in a formula: which part differs between persons, cells, who and what is left out, and what cannot be told."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import multihorizon as mh
from multihorizon.estimate.population.covariates import Covariates, read_covariates, read_formula, require_columns
from multihorizon.problem import Crowd, CrowdTask

PERSONS = pd.DataFrame({"expert": [f"p{i}" for i in range(12)], "group": ["a", "b"] * 6, "age": np.arange(20.0, 32.0)})
TASK = mh.domains.cliff().mdp


def crowd_of(**conditions: list[object]) -> Crowd:
    """Twelve persons with a cell for each value of these lists, which are as long as each other; ten decisions in each."""
    each = len(next(iter(conditions.values())))
    frame = pd.DataFrame({name: values * 12 for name, values in conditions.items()})
    counts = sp.csr_array(np.pad(np.full((len(frame), 1), 10.0), ((0, 0), (0, TASK.n_states * TASK.n_actions - 1))))
    return Crowd(tuple(PERSONS["expert"]), ("r",), (CrowdTask(TASK, counts),), np.repeat(np.arange(12), each), frame)


def without(crowd: Crowd, rows: list[int]) -> Crowd:
    """The crowd without some of its rows."""
    kept = np.delete(np.arange(crowd.owner.size), rows)
    tasks = tuple(replace(task, counts=task.counts[kept]) for task in crowd.tasks)
    return replace(crowd, tasks=tasks, owner=crowd.owner[kept], conditions=crowd.conditions.iloc[kept].reset_index(drop=True))


NOISE = crowd_of(noise=["low", "high"])


def read(formula: str, crowd: Crowd = NOISE, persons: pd.DataFrame | None = PERSONS, **options) -> Covariates:
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
        ("~ (noise || expert)", r"received \|\|"),
        ("~ (1 | group)", "received group after the bar, where only expert is known"),
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
    assert found.references == {"group": "a", "noise": "high"}
    np.testing.assert_allclose(found.typical[0], [1, 0.5, 0, 0])  # the average of both conditions
    np.testing.assert_allclose(found.typical[1], [1, 0.5, 1, 0.5])
    assert read("~ noise * group", crowd, reference={"noise": "low"}).references["noise"] == "low"


def test_a_formula_without_conditions_has_persons_for_cells() -> None:
    mine, other = (read("~ group + age", crowd) for crowd in (NOISE, Crowd(NOISE.names, (), ())))
    assert mine.conditions == other.conditions == ()
    for each in (mine, other):
        assert each.owner.tolist() == list(range(12))
        np.testing.assert_array_equal(each.matrix, other.matrix)
        np.testing.assert_array_equal(each.typical, each.matrix)
        np.testing.assert_array_equal(each.random, np.ones((12, 1)))
        np.testing.assert_array_equal(each.random_units, np.eye(1))
    assert mine.gathered(NOISE).owner is None
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
    "formula", ["(noise | expert)", "(0 + noise | expert)", "(noise * block | expert)", "(0 + block | expert)"]
)
def test_what_persons_have_of_their_own_is_searched_in_units_without_correlation(formula: str) -> None:
    crowd = without(crowd_of(noise=["low", "low", "high", "high"], block=[1, 2, 1, 2]), [0, 7, 9])
    found = read(f"~ noise + {formula}", crowd)
    white = found.random @ found.random_units
    np.testing.assert_allclose(white.T @ white / len(white), np.eye(white.shape[1]), atol=1e-12)
    if "block |" not in formula or "noise" in formula:
        np.testing.assert_allclose(white[:, 0], 1.0)


def test_both_ways_to_write_a_slope_are_searched_alike() -> None:
    one, other = (read(f"~ noise + ({part}noise | expert)") for part in ("", "0 + "))
    first, second = (each.random @ each.random_units for each in (one, other))
    np.testing.assert_allclose(np.abs(first), np.abs(second))


def test_decisions_without_a_condition_are_left_out_and_counted() -> None:
    crowd = crowd_of(noise=["low", "high", None])
    found = read("~ noise", crowd)
    assert len(found.owner) == 24
    assert found.cell.reshape(12, 3)[:, 2].tolist() == [-1] * 12
    assert found.cautions == ("Left out are 120 decisions of 12 persons without noise.",)
    assert found.gathered(crowd).tasks[0].counts.sum() == 240
    assert found.left_out == {}
    with pytest.raises(ValueError, match="--missing fail, received 120 decisions of 12 persons without noise"):
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
        "1 of 10 persons was seen under one condition only, which tells nothing of changes within persons.",
    )
    gathered = found.gathered(crowd)
    assert gathered.names == found.names
    assert gathered.tasks[0].counts.sum() == 190


def test_a_condition_under_which_nobody_was_seen_twice_compares_persons() -> None:
    names, noise = NOISE.names, ["low", "high"] * 6
    crowd = Crowd(names, (), (), np.arange(12), pd.DataFrame({"noise": noise}))
    found = read("~ noise", crowd)
    assert found.conditions == ()
    by_table = read("~ noise", Crowd(names, (), ()), PERSONS.assign(noise=noise))
    np.testing.assert_array_equal(found.matrix, by_table.matrix)
    assert "Nobody was seen under two values of noise" in found.cautions[0]
    assert by_table.cautions == ()


def test_the_order_of_persons_and_rows_does_not_matter() -> None:
    crowd = crowd_of(noise=["low", "high"], block=[2, 1])
    turned = Crowd(crowd.names, (), (), crowd.owner, crowd.conditions.iloc[::-1].reset_index(drop=True))
    one, other = (read("~ noise + (noise | expert)", each) for each in (crowd, turned))
    np.testing.assert_array_equal(one.matrix, other.matrix)
    assert one.cell.tolist() == [i ^ 1 for i in other.cell.tolist()]


@pytest.mark.parametrize(
    ("formula", "crowd", "said"),
    [
        (
            "~ noise",
            crowd_of(noise=["low", "low"]),
            "column noise of episodes must vary, received low for everyone: leave it out",
        ),
        ("~ noise + (noise | expert)", crowd_of(noise=["low"]), "column noise of episodes must vary"),
        ("~ noise", crowd_of(noise=["low", [1]]), "column noise of episodes must hold text or numbers"),
        ("~ block", crowd_of(block=[1, 2, "three"]), "column block of episodes must hold numbers, as for most, received 'three'"),
        ("~ noise + double", crowd_of(noise=[1, 2], double=[2, 4]), "the term double must add something to Intercept, noise"),
        ("~ noise + (noise + double | expert)", crowd_of(noise=[1, 2], double=[2, 4]), "the term double must add something"),
        (
            "~ nois",
            NOISE,
            "names nois, which neither persons nor episodes have: the columns of persons are expert, group, age, and",
        ),
        ("~ group", crowd_of(group=["a", "b"]), "column group must be one of persons or one of episodes, received it in both"),
        ("~ C(block) + group", crowd_of(block=list(range(40))), ""),
        ("~ (C(block) | expert)", crowd_of(block=[1, 2, 3, 4, 5]), "at most 4 terms may differ between persons, .* received 5"),
        ("~ (0 | expert)", NOISE, "and at least 1, received 0"),
        (
            "~ age + (age | expert)",
            NOISE,
            r"how the effect of age differs .* nobody was seen under two values .* write \(1 \| exp",
        ),
        ("~ group + (group | expert)", NOISE, "nobody was seen under two values of it"),
        ("~ noise + (noise + age | expert)", NOISE, "not seen under enough combinations"),
        ("~ noise + (noise:group | expert)", NOISE, "not seen under enough combinations"),
        ("~ noise + (noise | expert)", without(NOISE, list(range(20))), "1 terms need at least 3 persons, received 2"),
        ("~ noise + (noise | expert)", without(NOISE, list(range(0, 20, 2))), "too few were seen under two values of it"),
        ("~ (bs(block, df=3) | expert)", crowd_of(block=[1, 2, 3]), "must add something|enough combinations"),
        ("~ poly(block, 4)", crowd_of(block=[1, 2, 3]), "cannot be used|must add something|finite"),
    ],
)
def test_what_cells_cannot_tell_is_said_in_one_sentence(formula: str, crowd: Crowd, said: str) -> None:
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
    with pytest.raises(ValueError, match="3 terms need at least 5 persons, received 4"):
        read("~ block + group + age", some)


def test_columns_of_both_tables_are_known() -> None:
    assert require_columns(read_formula("~ noise + age"), PERSONS, ["noise"]) == list(PERSONS.columns)
    with pytest.raises(ValueError, match="names age, which neither persons nor episodes have: the columns of persons are none"):
        require_columns(read_formula("~ noise + age"), None, ["noise"])
