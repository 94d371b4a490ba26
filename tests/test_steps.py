"""Tables of steps: what is read, what is linked, and what is refused."""

import numpy as np
import pandas as pd
import pytest

import multihorizon as mh


def frame(**changes) -> pd.DataFrame:
    columns = {
        "expert": ["a", "a", "a", "b", "b"],
        "episode": [1, 1, 1, 1, 1],
        "step": [0, 1, 2, 0, 1],
        "action": ["l", "r", "l", "r", "l"],
        "x": [0.0, 0.5, 1.0, 2.0, 1.5],
        "colour": ["red", "blue", "red", "blue", "green"],
    }
    return pd.DataFrame({**columns, **changes})


def test_next_states_come_from_the_next_row() -> None:
    steps = mh.Steps.from_frame(frame().iloc[::-1], ["x"])
    np.testing.assert_array_equal(steps.next_states[:, 0], [0.5, 1.0, np.nan, 1.5, np.nan])
    assert steps.known_next.tolist() == [True, True, False, True, False]
    assert steps.episode_numbers.tolist() == [0, 0, 0, 1, 1]


def test_next_columns_fill_the_last_row() -> None:
    steps = mh.Steps.from_frame(frame(next_x=[0.5, None, 3.0, None, None]), ["x"])
    np.testing.assert_array_equal(steps.next_states[:, 0], [0.5, 1.0, 3.0, 1.5, np.nan])


def test_categories_become_indicators() -> None:
    steps = mh.Steps.from_frame(frame(), ["x", "colour"])
    assert steps.coordinates == ("x", "colour=blue", "colour=green", "colour=red")
    assert steps.sources == (0, 1, 1, 1)
    assert steps.states[0].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert steps.next_states[0].tolist() == [0.5, 1.0, 0.0, 0.0]
    rows = mh.Splines(4, steps.sources).fit_transform(steps.states)
    np.testing.assert_allclose(rows.sum(axis=1), 1)


def test_a_table_goes_to_a_file_and_back(tmp_path) -> None:
    steps = mh.domains.navigation().simulate(60, length=10)
    steps.to_csv(tmp_path / "steps.csv")
    again = mh.Steps.from_file(tmp_path / "steps.csv", ["x", "y"])
    order = [again.experts.index(name) for name in steps.experts]
    np.testing.assert_allclose(np.sort(again.states, axis=0), np.sort(steps.states, axis=0))
    assert sorted(order) == [0, 1, 2]


def test_the_end_of_an_episode_is_read() -> None:
    steps = mh.Steps.from_frame(frame(terminated=[0, 0, 1, 0, 0], next_x=[None, None, 9.0, None, None]), ["x"])
    assert steps.terminated.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("table", "state", "sentence"),
    [
        (frame(), [], "at least one column"),
        (frame(), ["x", "x"], "named once"),
        (frame(), ["step"], "other columns"),
        (frame(), ["y"], "got none named y"),
        (frame(x=[0.0, "?", 1.0, 2.0, 1.5]), ["x"], "row 1 .* column x must be a number"),
        (frame(x=[0.0, None, 1.0, 2.0, 1.5]), ["x"], "row 1 .* column x must be a number, got an empty cell"),
        (frame(x=[0.0, np.inf, 1.0, 2.0, 1.5]), ["x"], "column x must be a number"),
        (frame(step=[0, 1, 1, 0, 1]), ["x"], "each step must occur once"),
        (frame(step=[0, 1, 3, 0, 1]), ["x"], "must be followed by step 2, got step 3"),
        (frame(action=["l"] * 5), ["x"], "at least two different actions"),
        (frame(next_x=[0.7, None, None, None, None]), ["x"], "differ from the state of the next step"),
        (frame(terminated=[1, 0, 0, 0, 0]), ["x"], "but the episode goes on"),
        (frame(terminated=[0, 0, 1, 0, 0]), ["x"], "must have its next state"),
        (frame(terminated=[0, 0, "maybe", 0, 0]), ["x"], "must be 0 or 1, got 'maybe'"),
        (frame(step=[0, 0, 0, 0, 0], episode=[1, 2, 3, 1, 2]), ["x"], "only episodes of one step"),
    ],
)
def test_bad_tables_are_refused(table: pd.DataFrame, state: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        mh.Steps.from_frame(table, state)


def test_numbers_without_a_finite_square_and_tables_of_three_steps_are_refused():
    rows = [("ann", 0, i, "lr"[i % 2], 0.1 * i) for i in range(12)]
    frame = pd.DataFrame(rows, columns=["expert", "episode", "step", "action", "x"])
    with pytest.raises(ValueError, match=r"column x must be a number of at most 1e\+100 in size, got 1e\+308"):
        mh.Steps.from_frame(frame.assign(x=[1e308, *frame["x"][1:]]), ["x"])
    few = mh.Steps.from_frame(frame.iloc[:3], ["x"])
    with pytest.raises(ValueError, match="must hold more decisions whose next state is known, got 3 decisions"):
        mh.solve(mh.SampledProblem(few), mh.SieveLikelihood())
