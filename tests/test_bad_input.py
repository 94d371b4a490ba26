"""Malformed input: each raises one sentence that names the place."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import multihorizon as mh

GOOD = np.array([[[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 0]]] * 2)
MDP = mh.MDP(GOOD, terminal=[2], state_names=["home", "road", "town"], action_names=["walk", "ride"])
ROWS = {
    "expert": ["ann", "ann", "bob"],
    "episode": [0, 0, 0],
    "step": [0, 1, 0],
    "state": ["home", "road", "home"],
    "action": ["walk", "ride", "ride"],
    "next_state": ["road", "town", "home"],
}


def changed(index: tuple[int, int, int], value: float) -> np.ndarray:
    array = GOOD.copy()
    array[index] = value
    return array


def table(**columns) -> pd.DataFrame:
    return pd.DataFrame({**ROWS, **columns})


NO_RIDE = mh.MDP(
    GOOD,
    terminal=[2],
    available=np.array([[True, False], [True, True], [True, True]]),
    state_names=MDP.state_names,
    action_names=MDP.action_names,
)
POLICY = np.array([[0.5, 0.5], [0.2, 0.8], [0.5, 0.5]])

MDP_CASES = {
    "not three axes": (lambda: mh.MDP(np.eye(3)), r"transitions must have shape \(A, S, S\), got \(3, 3\)"),
    "not square": (lambda: mh.MDP(np.zeros((2, 3, 4))), r"shape \(A, S, S\), got \(2, 3, 4\)"),
    "sas of wrong shape": (lambda: mh.MDP.from_sas(np.zeros((3, 2, 2))), r"shape \(S, A, S\), got \(3, 2, 2\)"),
    "one sparse matrix": (lambda: mh.MDP(sp.eye_array(3)), "got one sparse matrix"),
    "sparse of two shapes": (lambda: mh.MDP([sp.eye_array(2), sp.eye_array(3)]), "matrices of one shape"),
    "NaN": (lambda: mh.MDP(changed((0, 0, 0), np.nan), terminal=[2]), "finite.* from state 0 to 0 under action 0"),
    "negative": (lambda: mh.MDP(changed((1, 1, 1), -0.5), terminal=[2]), "negative.* from state 1 to 1 under action 1"),
    "row off by 1e-3": (lambda: mh.MDP(changed((0, 0, 0), 0.501), terminal=[2]), "state 0 under action 0 must sum to 1.*1.001"),
    "empty row not terminal": (lambda: mh.MDP(GOOD), "state 2 under action 0 must sum to 1, got a sum of 0"),
    "terminal leaves": (lambda: mh.MDP(changed((0, 2, 0), 1.0), terminal=[2]), "no leaving transitions.* from state 2 to 0"),
    "terminal out of range": (lambda: mh.MDP(GOOD, terminal=[3]), "terminal must hold indices from 0 to 2, got 3"),
    "terminal mask too short": (lambda: mh.MDP(GOOD, terminal=[True]), r"mask must have shape \(3,\), got \(1,\)"),
    "terminal everywhere": (lambda: mh.MDP(np.zeros((1, 2, 2)), terminal=[0, 1]), "terminal names every state"),
    "initial of wrong length": (lambda: mh.MDP(GOOD, [1.0], [2]), r"initial must have shape \(3,\), got \(1,\)"),
    "initial does not sum": (lambda: mh.MDP(GOOD, [0.5, 0.4, 0], [2]), "initial must sum to 1, got a sum of 0.9"),
    "initial in a terminal": (lambda: mh.MDP(GOOD, [0.5, 0, 0.5], [2]), "must not start in a terminal state"),
    "no action available": (lambda: mh.MDP(GOOD, None, [2], np.zeros((3, 2), dtype=bool)), "got none in state 0"),
    "available not boolean": (lambda: mh.MDP(GOOD, None, [2], np.ones((3, 2))), "available must be a boolean array"),
    "names of wrong length": (lambda: mh.MDP(GOOD, None, [2], state_names=["a"]), "state_names must have 3 entries, got 1"),
    "names not distinct": (lambda: mh.MDP(GOOD, None, [2], action_names=["a", "a"]), "action_names must be distinct.*'a' twice"),
    "grid of wrong size": (
        lambda: mh.MDP(GOOD, None, [2], grid_shape=(2, 2)),
        "grid_shape must be .* with 3 cells, one for each state",
    ),
    "no table": (lambda: mh.MDP.from_gymnasium(object()), "must have a transition table"),
}

PLAN_CASES = {
    "discount above 1": (lambda: mh.plan(MDP, [0, 0, 1], 1.5), r"discount must be in \[0, 1\], got 1.5"),
    "discount negative": (lambda: mh.soft_plan(MDP, [0, 0, 1], -0.1), r"discount must be in \[0, 1\], got -0.1"),
    "discount NaN": (lambda: mh.plan(MDP, [0, 0, 1], float("nan")), r"discount must be in \[0, 1\], got nan"),
    "discount a list": (lambda: mh.plan(MDP, [0, 0, 1], [0.5]), "discount must be one number"),
    "discount text": (lambda: mh.plan(MDP, [0, 0, 1], "high"), "discount must be one number.*'high'"),
    "temperature zero": (lambda: mh.soft_plan(MDP, [0, 0, 1], 0.5, 0.0), "temperature must be a positive number, got 0"),
    "temperature text": (lambda: mh.MCE(discount=0.5, temperature="2"), "temperature must be a positive number, got '2'"),
    "temperature of a truth value": (lambda: mh.soft_plan(MDP, [0, 0, 1], 0.5, np.True_), "positive number, got True"),
    "temperature NaN": (
        lambda: mh.evaluate(MDP, POLICY, [0, 0, 1], 0.5, float("nan")),
        "temperature must be a number of at least 0, got nan",
    ),
    "tie tolerance NaN": (
        lambda: mh.plan(MDP, [0, 0, 1], 0.5, tie_tolerance=float("nan")),
        "tie_tolerance must be a number of at least 0, got nan",
    ),
    "discount complex": (lambda: mh.plan(MDP, [0, 0, 1], 0.5j), "discount must be one number.*got 0.5j"),
    "reward of wrong shape": (lambda: mh.plan(MDP, [0, 1], 0.5), r"reward must have shape \(3,\) or \(3, 2\), got \(2,\)"),
    "reward NaN": (lambda: mh.plan(MDP, [0, np.nan, 1], 0.5), "reward must be finite, got nan at 1"),
    "reward one NaN": (lambda: mh.plan(MDP, np.nan, 0.5), "reward must be finite, got nan$"),
    "discount of NumPy": (lambda: mh.plan(MDP, [0, 0, 1], [np.float64("nan")]), r"discount must be one number.*got \[nan\]"),
    "temperature of NumPy": (
        lambda: mh.soft_plan(MDP, [0, 0, 1], 0.5, [np.float64(2)]),
        r"temperature must be.*got \[2.0\]",
    ),
    "reward text": (lambda: mh.plan(MDP, ["a", "b", "c"], 0.5), "reward must be numbers"),
    "policy row": (lambda: mh.occupancy(MDP, POLICY * 0.9, 0.5), "policy must sum to 1 in every state.* 0.9 in state home"),
    "policy negative": (
        lambda: mh.evaluate(MDP, [[1.5, -0.5], [1, 0], [1, 0]], [0, 0, 1], 0.5),
        "negative.* in state home on action ride",
    ),
}

EXPERT_CASES = {
    "experts missing": (lambda: mh.Problem(MDP, None), "experts must be a list of expert data or Demonstrations"),
    "no experts": (lambda: mh.Problem(MDP, []), "at least one expert, got none"),
    "actions out of range": (lambda: mh.Problem(MDP, [[0, 2, 0]]), "expert 0 must be from 0 to 1, got 2 in state road"),
    "actions of wrong length": (
        lambda: mh.Problem(MDP, [[0, 1]]),
        r"actions of expert 0 must have shape \(3,\), got \(2,\)",
    ),
    "fractional actions": (lambda: mh.Problem(MDP, [[0.5, 1, 0]]), "expert 0 as one action per state must be whole numbers"),
    "empty set": (lambda: mh.Problem(MDP, [np.array([[True, False], [False, False], [True, True]])]), "none in state road"),
    "set of wrong shape": (
        lambda: mh.Problem(MDP, [np.ones((2, 2), dtype=bool)]),
        r"must have shape \(3, 2\), got \(2, 2\)",
    ),
    "policy of wrong shape": (lambda: mh.Problem(MDP, [POLICY, POLICY[:2]]), r"policy of expert 1 must have shape \(3, 2\)"),
    "expert of wrong shape": (
        lambda: mh.Expert("ann", MDP, "demonstrations", counts=np.ones((2, 3))),
        r"counts of expert ann must have shape \(3, 2\), got \(2, 3\)",
    ),
    "expert with negative counts": (
        lambda: mh.Problem(MDP, [mh.Expert("ann", MDP, "demonstrations", counts=-np.ones((3, 2)))]),
        r"counts of expert ann must be finite and not negative, got -1\.0",
    ),
    "expert whose rows do not sum to 1": (
        lambda: mh.Expert("ann", MDP, "policy", policy=7 * POLICY),
        "policy of expert ann must sum to 1 in every state, got a sum of 7 in state home",
    ),
    "expert changed to NaN": (
        lambda: replace(mh.Problem(MDP, [POLICY]).experts[0], policy=np.full((3, 2), np.nan)),
        "policy of expert 0 must be finite",
    ),
    "expert without a choice": (
        lambda: mh.Expert("ann", MDP, "action sets", sets=np.zeros((3, 2), dtype=bool)),
        "expert ann must choose at least one action in every state, got none in state home",
    ),
    "expert with counts of what is not available": (
        lambda: mh.Expert("ann", NO_RIDE, "demonstrations", counts=np.ones((3, 2))),
        "counts of expert ann must be of available actions, got ride in state home",
    ),
    "known reward in a linear program": (
        lambda: mh.solve(
            mh.Problem(MDP, [mh.Expert("ann", MDP, "actions", sets=np.eye(2, dtype=bool)[[0, 0, 0]], known_reward=np.ones(6))]),
            mh.LPIRL(discount=0.5),
        ),
        "expert ann must have no known part of the reward for a linear-programming solver, got one",
    ),
    "expert without data": (lambda: mh.Expert("ann", MDP, "policy", counts=np.ones((3, 2))), "got kind 'policy' without"),
    "names not distinct": (lambda: mh.Problem(MDP, [POLICY] * 2, names=["a", "a"]), "must be distinct.*'a' twice"),
    "features of wrong shape": (
        lambda: mh.Problem(MDP, [POLICY], features=np.ones((3, 1))),
        r"features must have shape \(6, d\)",
    ),
    "features NaN": (lambda: mh.Problem(MDP, [POLICY], features=np.full((6, 1), np.nan)), "features must be finite"),
    "sparse arrival features NaN": (
        lambda: mh.Problem(MDP, [POLICY], arrival_features=sp.csr_array([[np.nan], [0], [1]])),
        "arrival_features must be finite, got a NaN or infinity",
    ),
    "joined features differ": (
        lambda: mh.Problem.join(mh.Problem(MDP, [POLICY]), mh.Problem(MDP, [POLICY], features=np.ones((6, 1)))),
        "must have the same features",
    ),
}

TABLE_CASES = {
    "missing column": (lambda: mh.Demonstrations.from_frame(table().drop(columns="action")), "none named action"),
    "no rows": (lambda: mh.Demonstrations.from_frame(table().head(0)), "at least one row"),
    "duplicate step": (
        lambda: mh.Demonstrations.from_frame(table(step=[0, 0, 0])),
        "each step must occur once, got it in row 0 .* and row 1",
    ),
    "gap": (lambda: mh.Demonstrations.from_frame(table(step=[0, 2, 0])), "followed by step 1, got step 2"),
    "fractional step": (
        lambda: mh.Demonstrations.from_frame(table(step=[0, 0.5, 0])),
        "row 1 .*column step must be a whole number, got 0.5",
    ),
    "step text": (lambda: mh.Demonstrations.from_frame(table(step=["0", "one", "0"])), "row 1 .*a whole number, got 'one'"),
    "missing state": (
        lambda: mh.Demonstrations.from_frame(table(state=["home", None, "home"])),
        "row 1 .*state must not be empty",
    ),
    "wrong next state": (
        lambda: mh.Demonstrations.from_frame(table(next_state=["town", "town", "home"])),
        "ann, episode 0, step 0: next_state is 'town', but the next step is in 'road'",
    ),
    "unknown state": (
        lambda: mh.Problem(MDP, mh.Demonstrations.from_frame(table(state=["home", "road", "moon"]))),
        "state 'moon' must be one of the 3 states of the transitions",
    ),
    "unknown action": (
        lambda: mh.Problem(MDP, mh.Demonstrations.from_frame(table(action=["walk", "swim", "ride"]))),
        "action 'swim' must be one of the 2 actions of the transitions",
    ),
    "decision in a terminal state": (
        lambda: mh.Problem(MDP, mh.Demonstrations.from_frame(table(state=["home", "road", "town"]))),
        "expert bob, episode 0, step 0: state 'town' is terminal: nothing is decided there",
    ),
    "policies that do not fit": (lambda: mh.Demonstrations.simulate(MDP, [POLICY[:2]], 5), "policy of expert 0 must have shape"),
    "no policies": (lambda: mh.Demonstrations.simulate(MDP, [], 5), "policies must hold at least one policy"),
    "a column twice": (
        lambda: mh.Demonstrations.from_frame(pd.concat([table(), table()[["state"]]], axis=1)),
        "each column once, got state twice",
    ),
    "no episodes": (lambda: mh.Demonstrations.simulate(MDP, [POLICY], 0), "episodes must be a whole number of at least 1"),
}

OPTION_CASES = {
    "ending": (lambda: mh.domains.toy(ending="never"), 'ending must be "terminal" or "absorbing", got \'never\''),
    "slip": (lambda: mh.domains.cliff(slip=1.5), r"slip must be in \[0, 1\], got 1.5"),
    "size": (lambda: mh.domains.gridworld(0, 3), "height must be a whole number of at least 1, got 0"),
    "cell outside": (lambda: mh.domains.gridworld(2, 2, terminal=[(2, 0)]), r"terminal must hold cells of a 2×2 grid"),
    "terminal states": (lambda: mh.domains.random_mdp(3, 2, n_terminal=3), "n_terminal must be below the 3 states, got 3"),
    "tasks": (
        lambda: mh.generalization_error(mh.domains.toy(), np.zeros(4), tasks=[]),
        "tasks must hold at least one task, got none",
    ),
    "branching": (lambda: mh.domains.random_mdp(3, 2, branching=4), "branching must be at most the 3 states, got 4"),
    "grid step": (lambda: mh.Grid(step=0), "step must be a positive number"),
    "evaluations": (lambda: mh.Bayesian(max_evaluations=5, initial=10), "max_evaluations must be a whole number of at least 10"),
    "search of MPMCE": (lambda: mh.MPMCE(search="x"), "search must be a search .* got 'x'"),
    "search of MPML": (lambda: mh.MPML(1.0, "x"), "search must be a search .* got 'x'"),
    "reward bound": (lambda: mh.MPLP(reward_bound=1e9), "reward_bound must be from 1e-4 to 1e6, got 1e\\+09"),
    "solver class": (lambda: mh.solve(mh.Problem(MDP, [POLICY]), mh.Grid), "solver must be a solver"),
    "seed": (lambda: mh.solve(mh.Problem(MDP, [POLICY]), mh.ClosedForm(), seed=-1), "seed must be a whole number of at least 0"),
    "problem": (lambda: mh.solve(MDP, mh.Grid()), "problem must be a Problem, got MDP"),
}

SOLVED = mh.solve(
    mh.Problem(MDP, mh.Demonstrations.simulate(MDP, [POLICY, POLICY[:, ::-1]], 20)),
    mh.MaximumLikelihood(1.0, starts=1, deviations=0.0),
)

QUESTION_CASES = {
    "analyse nothing": (lambda: mh.analyse(None), "tables must be a data frame or Demonstrations.* got NoneType"),
    "analyse a path": (lambda: mh.analyse("d.csv"), "tables must be .* got str: Demonstrations.from_files reads files"),
    "analyse a list of numbers": (lambda: mh.analyse([1, 2]), "tables must be .* got int"),
    "transitions as an array": (lambda: mh.analyse(table(), GOOD), "mdps must be an MDP, or a list.* got ndarray"),
    "another number of transitions": (lambda: mh.analyse([table()], [MDP, MDP]), "transitions for each table, got 2 for 1"),
    "analyse an empty list": (lambda: mh.analyse([]), "tables must hold at least one table, got none"),
    "features that are no function": (lambda: mh.analyse(table(), MDP, features=3), "features must be a function.*got int"),
    "a problem of a data frame": (lambda: mh.Problem(MDP, table()), "got DataFrame: Demonstrations.from_frame reads it"),
    "a domain that is a number": (lambda: mh.generalization_error(5, [0.0]), "domain must be a Domain .*got int"),
    "predict states": (lambda: mh.predict(SOLVED, pay={"town": 1.0}, states=3), "states must name states among home, road, town"),
    "predict seed": (lambda: mh.predict(SOLVED, pay={"town": 1.0}, seed="x"), "seed must be a whole number of at least 0.*'x'"),
    "nudge seed": (lambda: mh.nudge(SOLVED, state="town", seed=-1), "seed must be a whole number of at least 0, got -1"),
    "design a number": (lambda: mh.design(5, SOLVED), "tasks must be an MDP, or several of them, got int"),
    "a seed of 400 digits": (lambda: mh.predict(SOLVED, pay={"town": 1.0}, seed=10**400), "seed must be at most"),
    "more processes than there are": (lambda: mh.predict(SOLVED, pay={"town": 1.0}, jobs=10**9), "jobs must be at most 4096"),
    "deviations without a square": (lambda: mh.MaximumLikelihood(deviations=1e300), r"deviations must be at most 1e\+100"),
    "groups as a list": (
        lambda: mh.solve(SOLVED.problem, mh.MaximumLikelihood(1.0, groups=["a"])),
        "groups must be a mapping of experts to the names of their groups, got list",
    ),
}

CASES = {**MDP_CASES, **PLAN_CASES, **EXPERT_CASES, **TABLE_CASES, **OPTION_CASES, **QUESTION_CASES}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_gets_one_clear_sentence(case: str) -> None:
    call, sentence = CASES[case]
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_number_in_an_array_without_axes_is_a_number() -> None:
    assert mh.plan(MDP, [0, 0, 1], np.array(0.5)).values[1] == mh.plan(MDP, [0, 0, 1], 0.5).values[1]


def test_an_unavailable_action_in_a_table_is_named() -> None:
    mdp = mh.MDP(
        GOOD,
        terminal=[2],
        available=np.array([[True, False], [True, True], [True, True]]),
        state_names=MDP.state_names,
        action_names=MDP.action_names,
    )
    with pytest.raises(ValueError, match="bob, episode 0, step 0: action 'ride' in state 'home' is not available"):
        mh.Problem(mdp, mh.Demonstrations.from_frame(table()))
    with pytest.raises(ValueError, match=r"unavailable actions, got 0\.5 in state home on action ride"):
        mh.Problem(mdp, [POLICY])
    with pytest.raises(ValueError, match="expert 0 must choose available actions, got ride in state home"):
        mh.Problem(mdp, [[1, 0, 0]])


def test_files_that_are_something_else_are_refused(tmp_path) -> None:
    np.savez(tmp_path / "other.npz", x=1)
    with pytest.raises(ValueError, match="not a saved MDP"):
        mh.MDP.from_npz(tmp_path / "other.npz")
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match="not a saved MDP"):
        mh.MDP.from_npz(tmp_path / "text.npz")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match="must be a CSV table"):
        mh.Demonstrations.from_csv(tmp_path / "empty.csv")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ValueError, match="not a saved solution"):
        mh.Solution.from_json(tmp_path / "other.json")


def test_a_data_frame_and_one_task_are_analysed_as_they_are() -> None:
    rows = SOLVED.problem.experts[0].table.to_frame()
    plain, known = mh.analyse(rows, quick=True, deviations=0.0), mh.analyse(rows, MDP, quick=True, deviations=0.0)
    assert plain.solution.problem.mdp.sample_sizes is not None
    assert known.solution.problem.mdp is MDP
