"""Frames of pandas, polars, pyarrow and DuckDB: one table gives the same digits, and results go out to polars and pyarrow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tiny import PAYS, three_steps, tiny_solutions, walks

import multihorizon as mh
from multihorizon.checks import as_frame, is_frame
from multihorizon.exact.rewards import read_restrictions

#: The same table in each library. A relation of DuckDB is read from Arrow, as reading it from pandas would lose dates.
LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "pandas with its own missing values": lambda frame: frame.convert_dtypes(),
    "pandas over pyarrow": lambda frame: arrow(frame).to_pandas(types_mapper=pd.ArrowDtype),
    "polars": pl.from_pandas,
    "lazy polars": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": lambda frame: arrow(frame),
    "DuckDB": lambda frame: duckdb.from_arrow(arrow(frame)),
}


def arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)


@pytest.fixture(params=LIBRARIES)
def into(request: pytest.FixtureRequest) -> Callable[[pd.DataFrame], Any]:
    """What turns a frame of pandas into one of a library."""
    return LIBRARIES[request.param]


def decisions() -> pd.DataFrame:
    """Two experts with numbers for names, the next state of some of whose decisions is missing, under all kinds of conditions."""
    frame = pd.DataFrame(
        {
            "expert": [2, 2, 2, 10, 10, 10],
            "episode": [1, 1, 2, 1, 1, 3],
            "step": [0, 1, 0, 0, 1, 0],
            "state": [7, 8, 7, 7, 8, 7],
            "action": ["go", "stay", "go", "stay", "go", "go"],
            "next_state": [8.0, np.nan, 8.0, 8.0, np.nan, np.nan],
            "noise": ["low", "low", None, "high", "high", "low"],
            "load": [1.5, 1.5, 2.5, np.nan, np.nan, 0.1],
            "site": [1, 1, 2, 3, 3, 3],
            "dark": [True, True, False, True, True, False],
            "day": [date(2026, 1, 31)] * 2 + [date(2026, 2, 1)] * 4,
        }
    )
    return frame.astype({"next_state": object}).where(frame.notna(), None).astype({"next_state": float, "load": float})


def described(table: mh.Demonstrations) -> tuple[Any, ...]:
    """All that a table of decisions holds."""
    conditions = None if table.conditions is None else table.conditions.astype(object).where(table.conditions.notna(), None)
    rows = table.to_frame()[["expert", "episode", "step", "state", "action"]].to_dict("list")
    held = None if conditions is None else conditions.astype({"day": str}).to_dict("list") if "day" in conditions else None
    return table.experts, table.states, table.actions, table.next_state.tolist(), rows, held


def test_decisions_are_the_same(into: Callable[[pd.DataFrame], Any]) -> None:
    columns = ["noise", "load", "site", "dark", "day"]
    expected = mh.Demonstrations.from_frame(decisions(), cut_off=True, conditions=columns)
    found = mh.Demonstrations.from_frame(into(decisions()), cut_off=True, conditions=columns)
    assert described(found) == described(expected)
    assert found.experts == ("2", "10")
    assert found.states == ("7", "8")
    assert set(map(str, found.conditions["day"])) == {"2026-01-31", "2026-02-01"}
    assert found.same_decisions(expected)


def test_a_date_is_one_label_in_every_table(into: Callable[[pd.DataFrame], Any], tmp_path) -> None:
    frame = decisions().assign(state=decisions()["day"]).drop(columns=["next_state", "day"])
    frame.to_csv(tmp_path / "log.csv", index=False)
    arrow(frame).to_pandas().to_parquet(tmp_path / "log.parquet", index=False)
    found = [
        mh.Demonstrations.from_frame(into(frame), cut_off=True),
        *(mh.Demonstrations.from_files(tmp_path / name, cut_off=True) for name in ("log.csv", "log.parquet")),
    ]
    assert {table.states for table in found} == {("2026-01-31", "2026-02-01")}


def test_names_that_are_missing_throughout(into: Callable[[pd.DataFrame], Any]) -> None:
    frame = decisions().drop(columns="next_state").query("episode != 1 or expert == 2")
    for given in (frame.drop(columns="expert"), frame.assign(expert=None)):
        assert mh.Demonstrations.from_frame(into(given), cut_off=True, unnamed=True).experts == ("1", "2", "3")


def test_conditions_of_episodes_are_the_same(into: Callable[[pd.DataFrame], Any]) -> None:
    plain = mh.Demonstrations.from_frame(decisions(), cut_off=True)
    episodes = decisions().drop_duplicates(["expert", "episode"])[["expert", "episode", "noise", "load", "site", "dark", "day"]]
    assert described(plain.under(into(episodes))) == described(plain.under(episodes))


def test_steps_are_the_same(into: Callable[[pd.DataFrame], Any]) -> None:
    frame = decisions().drop(columns=["state", "next_state"])
    x = np.array([0.1, 0.7, 1 / 3, 2e-9, 5.0, 1e12])
    frame = frame.assign(x=x, next_x=[0.7, np.nan, 3.0, 5.0, np.nan, 4.0], place=["a", "b", "a", "b", "a", "c"])
    frame["next_place"] = ["b", None, "a", "a", None, "b"]
    frame["terminated"] = [False, False, True, False, False, True]
    expected, found = (mh.Steps.from_frame(given, ["x", "place"]) for given in (frame, into(frame)))
    assert found.coordinates == expected.coordinates == ("x", "place=a", "place=b", "place=c")
    for name in ("states", "next_states", "terminated", "expert", "episode", "step", "action"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_transitions_are_the_same(into: Callable[[pd.DataFrame], Any]) -> None:
    rows = [(1, "go", 2, 1 / 3), (1, "go", 3, 2 / 3), (2, "go", 3, 1.0), (1, "stay", 1, 1.0)]
    frame = pd.DataFrame(rows, columns=["state", "action", "next_state", "probability"])
    expected, found = mh.MDP.from_frame(frame), mh.MDP.from_frame(into(frame))
    assert (found.state_names, found.action_names) == (expected.state_names, expected.action_names)
    np.testing.assert_array_equal(found.stacked.toarray(), expected.stacked.toarray())


@cache
def persons() -> tuple[Any, mh.Problem, pd.DataFrame]:
    task = mh.domains.space_adventure(mini_blocks=10)
    people = task.persons(10)
    frame = people.frame.astype({"expert": int}).assign(
        site=pd.Categorical(np.resize(["south", "north", "south", "south"], 10), ["south", "north"]),
        right=np.resize([True, True, False], 10),
        score=[*range(8), None, 5],
        kind=np.resize([1.0, 2.0, np.nan, 2.0], 10),
        day=np.resize([date(2026, 1, 31), date(2026, 1, 1)], 10),
    )
    return task, mh.Problem(task.mdp, people.demonstrations), frame


@pytest.mark.parametrize("formula", ["~ group + age", "~ site + score", "~ right + day", "~ C(kind)"])
def test_the_design_of_a_study_is_the_same(into: Callable[[pd.DataFrame], Any], formula: str) -> None:
    _, problem, frame = persons()
    given = into(frame)
    if isinstance(given, pl.DataFrame | pl.LazyFrame | duckdb.DuckDBPyRelation):  # they forget the order of categories
        frame = frame.assign(site=frame["site"].astype(str))
    expected, found = (mh.Population(formula, each).covariates(problem) for each in (frame, given))
    assert (found.terms, found.names, found.left_out) == (expected.terms, expected.names, expected.left_out)
    assert (found.patterns, found.references) == (expected.patterns, expected.references)
    np.testing.assert_array_equal(found.matrix, expected.matrix)


def test_the_declared_order_of_groups_decides_which_they_are_compared_with() -> None:
    _, problem, frame = persons()
    kind = pl.Enum(["south", "north"])
    table = pl.from_pandas(frame.assign(site=frame["site"].astype(str)))
    of_polars = table.with_columns(pl.col("site").cast(kind))
    relation = duckdb.from_arrow(table.to_arrow()).project("* REPLACE (site::ENUM('south', 'north') AS site)")
    for given in (frame, of_polars, of_polars.lazy(), of_polars.to_arrow(), relation):
        assert mh.Population("~ site", given).covariates(problem).references == {"site": "south"}
    categories = table.with_columns(pl.col("site").cast(pl.Categorical))
    assert mh.Population("~ site", categories).covariates(problem).references == {"site": "north"}


@cache
def study() -> tuple[mh.Problem, pd.DataFrame, mh.Population, mh.Solution]:
    """Nine people of two groups, and what is found of them with a table of pandas."""
    mdp = three_steps()
    policies = [mh.soft_plan(mdp, PAYS, discount).policy for discount in np.linspace(0.1, 0.9, 9)]
    table = mh.Demonstrations.simulate(mdp, policies, 20, seed=0)
    frame = pd.DataFrame({"expert": range(9), "group": ["b", "a"] * 4 + ["b"], "age": [30, 20, 50, 40, 35, 28, None, 61, 20]})
    problem, solver = mh.Problem(mdp, table), mh.Population("~ group + age", frame, known_reward=PAYS, nodes=3)
    return problem, frame, solver, mh.solve(problem, solver)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["polars", "pyarrow", "DuckDB"])
def test_a_study_is_the_same_to_the_last_digit(library: str) -> None:
    problem, frame, solver, expected = study()
    found = mh.solve(problem, mh.Population(solver.formula, LIBRARIES[library](frame), known_reward=PAYS, nodes=3))
    np.testing.assert_array_equal(found.discounts, expected.discounts)
    assert found.evidence["population"]["discount"] == expected.evidence["population"]["discount"]
    assert found.options["persons"]["group"] == expected.options["persons"]["group"]


@pytest.mark.slow
def test_new_persons_are_the_same(into: Callable[[pd.DataFrame], Any]) -> None:
    _, _, solver, solution = study()
    new = pd.DataFrame({"group": ["a", "b"], "age": [30, 41]})
    np.testing.assert_array_equal(solver.predict(solution, into(new)), solver.predict(solution, new))
    expected, found = (mh.track(solution, person).update("6", "1") for person in (new[:1], into(new[:1])))
    assert found.discount == expected.discount
    with pytest.raises(ValueError, match="person must have one row, got 2"):
        mh.track(solution, into(new))


def test_predictions_are_the_same(into: Callable[[pd.DataFrame], Any]) -> None:
    problem = mh.Problem(three_steps(), [mh.soft_plan(three_steps(), PAYS, discount).policy for discount in (0.2, 0.9)])
    pay = pd.DataFrame({"state": [2, 3, 4], "action": [None, "1", "0"], "amount": [1, 2.5, 1 / 3]})
    forbid = pd.DataFrame({"state": [6], "action": [0]})
    changes = {"pay": pay, "forbid": forbid}
    options: dict[str, Any] = {"discount": {"0": 0.2, "1": 0.9}, "draws": 20}
    expected = mh.predict(problem, **changes, **options)
    found = mh.predict(problem, **{name: into(frame) for name, frame in changes.items()}, **options)
    np.testing.assert_array_equal(found.after, expected.after)
    assert not np.array_equal(found.after, found.before)


def test_restrictions_are_the_same(into: Callable[[pd.DataFrame], Any]) -> None:
    frame = pd.DataFrame({"smaller": [1, None, None], "larger": [2.0, None, None], "state": [None, "1", "3"]})
    frame = frame.assign(lower=[None, 0.5, None], upper=[np.nan, 1, 1 / 3])
    for given in (into(frame), [into(frame)], (into(frame), into(frame))):
        rows, limits = read_restrictions(["1", "2", "3"], given)
        expected = read_restrictions(["1", "2", "3"], frame)
        np.testing.assert_array_equal(rows[:4], expected[0])
        np.testing.assert_array_equal(limits[:4], expected[1])


@pytest.mark.slow
def test_rewards_of_states_are_the_same(into: Callable[[pd.DataFrame], Any]) -> None:
    rewards = mh.reward_functions(tiny_solutions()["vectors"].solution)
    frame = pd.DataFrame({"name": ["a", "b"], "x": [0.2, 1 / 3]})
    np.testing.assert_array_equal(rewards.reward(into(frame)), rewards.reward([[0.2], [1 / 3]]))
    with pytest.raises(ValueError, match="must have the columns x, got none named x"):
        rewards.reward(into(frame[["name"]]))


def test_numbers_are_the_same(into: Callable[[pd.DataFrame], Any], tmp_path) -> None:
    mdp = three_steps()
    table = mh.Demonstrations.simulate(mdp, [mh.soft_plan(mdp, PAYS, 0.5).policy], 20)
    paid = pd.DataFrame({"0": PAYS, "1": PAYS / 3})
    problem = mh.Problem(mdp, table, arrival_features=into(paid))
    np.testing.assert_array_equal(problem.experts[0].arrival.toarray(), paid.to_numpy())
    solution = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood(1.0, known_reward=into(paid)))
    assert solution.discounts == mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood(1.0, known_reward=paid)).discounts
    solution.to_json(tmp_path / "solution.json")
    assert mh.Solution.from_json(tmp_path / "solution.json").options["known_reward"]["0"] == PAYS.tolist()


def everything() -> pl.DataFrame:
    """A column of every kind, with an empty cell."""
    columns = {
        "whole": [1, None],
        "large": [2**53 + 1, None],
        "number": [0.1, None],
        "text": ["ü", None],
        "true": [True, None],
        "day": [date(2026, 1, 31), None],
        "moment": [datetime(2026, 1, 31, 10, 0, 0, 500), None],
        "there": [datetime(2026, 1, 31, 10, tzinfo=UTC), None],
        "price": [Decimal("1.10"), None],
        "took": [timedelta(days=1), None],
        "at": [time(10), None],
        "empty": [None, None],
    }
    return pl.DataFrame(columns).with_columns(
        small=pl.Series([0.1, None], dtype=pl.Float32),
        byte=pl.Series([255, None], dtype=pl.UInt8),
        huge=pl.Series([3, None], dtype=pl.Int128),
        level=pl.Series(["b", None], dtype=pl.Enum(["b", "a"])),
    )


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # DuckDB uses what pandas 4 will not have
def test_every_kind_of_column_is_the_same_from_every_library() -> None:
    table = everything()
    table = table.with_columns(there=table["there"].dt.convert_time_zone("UTC"))
    over = table.drop("huge").to_arrow()
    relation = duckdb.from_arrow(over).project("* REPLACE (level::ENUM('b', 'a') AS level)")
    duckdb.execute("SET TimeZone = 'UTC'")
    expected = as_frame(table, "it")
    assert expected["large"].tolist() == [2**53 + 1, None]
    assert expected["price"][0] == 1.1
    assert expected["day"][0] == "2026-01-31"
    assert expected["huge"][0] == 3
    assert str(expected["there"][0]) == "2026-01-31 10:00:00+00:00"
    assert list(expected["level"].cat.categories) == ["b", "a"]
    old = duckdb.sql("SELECT unnest([9007199254740993, NULL]) AS n").df()["n"].dtype == float  # DuckDB of old rounds numbers
    for given in (table.lazy(), over, over.to_pandas(types_mapper=pd.ArrowDtype), relation):
        if given is relation and old:
            with pytest.raises(ValueError, match="column large of it must be text, got whole numbers above"):
                as_frame(given, "it")
            given = relation.project("* EXCLUDE large")
        found = as_frame(given, "it")
        for column in found:
            assert found[column].isna().tolist() == [column == "empty", True]
            if column != "empty":
                assert found[column][0] == expected[column][0]
                assert found[column].dtype.kind == expected[column].dtype.kind


def test_nested_cells_are_refused_in_one_sentence() -> None:
    rows = pl.DataFrame({"expert": [["Ann"]], "episode": 0, "step": 0, "state": "a", "action": "go"})
    with pytest.raises(ValueError, match="column expert must hold text or numbers, got lists or other nested values"):
        mh.Demonstrations.from_frame(rows)


@pytest.mark.parametrize("given", ["log.csv", {"expert": ["Ann"]}, [("Ann", 0)], None, np.zeros((2, 2)), pl.Series([1])])
def test_what_is_no_frame_is_refused_in_one_sentence(given: Any) -> None:
    assert not is_frame(given)
    sentence = "must be a data frame of pandas, polars, pyarrow or DuckDB, got "
    with pytest.raises(ValueError, match=f"a table of decisions {sentence}{type(given).__name__}: from_csv"):
        mh.Demonstrations.from_frame(given)
    with pytest.raises(ValueError, match=f"a table of decisions {sentence}{type(given).__name__}: from_file reads"):
        mh.Steps.from_frame(given, ["x"])
    with pytest.raises(ValueError, match=f"the table of transitions {sentence}"):
        mh.MDP.from_frame(given)
    with pytest.raises(ValueError, match=f"the table of episodes {sentence}"):
        mh.Demonstrations.from_frame(decisions(), cut_off=True).under(given)
    if given is not None and not isinstance(given, dict):  # columns by name are taken
        with pytest.raises(ValueError, match=f"persons {sentence}"):
            mh.Population("~ group", given)


def test_a_column_that_is_there_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="a data frame must have each column once, got one of them twice"):
        mh.Demonstrations.from_frame(pa.table([[1], [2]], names=["expert", "expert"]))


def test_tables_go_out_as_they_came_in() -> None:
    table = mh.Demonstrations.from_frame(decisions(), cut_off=True, conditions=["noise", "load", "site", "dark"])
    for out in (table.to_polars(), table.to_arrow()):
        again = mh.Demonstrations.from_frame(out, cut_off=True, conditions=["noise", "load", "site", "dark"])
        assert again.same_decisions(table)
        pd.testing.assert_frame_equal(again.conditions, table.conditions)
    assert table.to_polars()["load"].to_list()[3:] == [None, None, 0.1]
    assert table.to_polars()["dark"].dtype == pl.Boolean
    steps = walks()
    np.testing.assert_array_equal(mh.Steps.from_frame(steps.to_polars(), ["x"]).states, steps.states)


def test_what_is_not_known_is_null_in_polars_and_pyarrow() -> None:
    mdp = three_steps()
    problem = mh.Problem(mdp, mh.Demonstrations.simulate(mdp, [mh.soft_plan(mdp, PAYS, 0.5).policy], 20))
    solution = mh.solve(problem, mh.MaximumLikelihood(1.0, known_reward=PAYS))
    frame, table = solution.to_frame(0.9), solution.to_polars(level=0.9)
    assert isinstance(table, pl.DataFrame)
    assert table.columns == solution.to_arrow(level=0.9).column_names == list(frame.columns)
    assert table["discount"].to_list() == frame["discount"].tolist()
    unknown = mh.Solution("s", mh.Status.CONVERGED, "", ("a", "b"), np.array([1.0, np.nan]), np.zeros(2), 0.0, 0.0)
    assert unknown.to_polars()["discount"].to_list() == [1.0, None]
    assert unknown.to_arrow()["horizon"].to_pylist() == [np.inf, None]


@pytest.mark.slow
def test_polars_needs_no_pyarrow_and_what_is_not_there_is_named() -> None:
    code = """
import sys
sys.modules["pyarrow"] = None
import duckdb, polars as pl, multihorizon as mh
rows = pl.DataFrame({"expert": ["Ann"] * 2, "episode": [0, 1], "step": 0, "state": "a", "action": ["go", "stay"]})
rows = rows.with_columns(next_state=pl.Series([1, None]))
table = mh.Demonstrations.from_frame(rows, cut_off=True)
again = mh.Demonstrations.from_frame(table.to_polars().lazy(), cut_off=True)
relation = duckdb.sql("SELECT 'Ann' AS expert, 0 AS episode, 0 AS step, 'a' AS state, 'go' AS action")
print(again.same_decisions(table), mh.Demonstrations.from_frame(relation, cut_off=True).experts)
try:
    table.to_arrow()
except ValueError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.splitlines()
    assert found == ["True ('Ann',)", "a table of pyarrow needs this package: pip install pyarrow"]
