"""Estimated transitions, and tables that contradict given ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import multihorizon as mh
from multihorizon.tables.dynamics import require_possible


def table(rows: list[tuple]) -> mh.Demonstrations:
    return mh.Demonstrations.from_frame(
        pd.DataFrame(rows, columns=["expert", "episode", "step", "state", "action", "next_state"])
    )


SMALL = [("A", 0, 0, "x", "go", "y"), ("A", 1, 0, "x", "go", "y"), ("A", 2, 0, "x", "go", "z"), ("A", 3, 0, "x", "stay", "x")]


def test_estimate_is_the_stated_formula():
    mdp = mh.estimate_mdp(table([*SMALL[:3], ("A", 3, 0, "x", "stay", "x"), ("A", 3, 1, "x", "go", "y")]), smoothing=2.0)
    assert mdp.state_names == ("x", "y", "z")
    share = np.array([1, 3, 1]) / 5
    go = (np.array([0, 3, 1]) + 2 * share) / (4 + 2)
    assert mdp.to_array()[0, 0] == pytest.approx(go)
    assert mdp.to_array()[1, 0] == pytest.approx((np.array([1, 0, 0]) + 2 * share) / 3)
    assert mdp.terminal.tolist() == [False, True, True]
    assert mdp.initial.tolist() == [1, 0, 0]


def test_actions_nobody_took_are_unavailable():
    rows = [("A", 0, 0, "x", "go", "y"), ("A", 0, 1, "y", "stay", "z")]
    mdp = mh.estimate_mdp(table(rows))
    assert mdp.available[:2].tolist() == [[True, False], [False, True]]


def test_estimate_approaches_the_truth():
    mdp = mh.domains.cliff().mdp
    uniform = np.full((12, 4), 0.25)
    estimated = mh.estimate_mdp(mh.Demonstrations.simulate(mdp, [uniform], 5000))
    assert np.abs(estimated.to_array() - mdp.to_array()).max() < 0.05


def test_missing_next_states_are_refused():
    frame = table(SMALL).to_frame()
    with pytest.raises(ValueError, match="must have a column next_state"):
        mh.estimate_mdp(mh.Demonstrations.from_frame(frame.drop(columns="next_state")))


def test_negative_smoothing_is_refused():
    with pytest.raises(ValueError, match="smoothing must be at least 0"):
        mh.estimate_mdp(table(SMALL), smoothing=-1)


def test_impossible_moves_are_listed_with_how_often_and_where_first():
    mdp = mh.MDP(
        [[[0, 1, 0], [0, 0, 0], [0, 0, 0]], [[1, 0, 0], [0, 0, 0], [0, 0, 0]]],
        terminal=[1, 2],
        state_names=["x", "y", "z"],
        action_names=["go", "stay"],
    )
    found = mh.impossible_moves(table([*SMALL, ("A", 4, 0, "x", "go", "z")]), mdp)
    assert found[["state", "action", "next_state", "count", "episode"]].to_numpy().tolist() == [["x", "go", "z", 2, "2"]]
    with pytest.raises(ValueError, match="1 impossible moves: from x by go to z"):
        require_possible(table(SMALL), mdp)
    assert mh.impossible_moves(table(SMALL[:2]), mdp).empty


def test_possible_tables_have_no_impossible_moves():
    d = mh.domains.cliff()
    assert mh.impossible_moves(mh.Demonstrations.simulate(d.mdp, d.mce_experts(), 100), d.mdp).empty
