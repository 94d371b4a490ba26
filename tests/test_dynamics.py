"""Estimated transitions, and tables that contradict given ones."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy

import multihorizon as mh
from multihorizon.data.dynamics import describe_estimate, impossible_moves, require_agreement, unlikely_moves, untaken_actions
from multihorizon.driver import build_problem


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
    with pytest.raises(ValueError, match="the table must have a column next_state"):
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
    found = impossible_moves(table([*SMALL, ("A", 4, 0, "x", "go", "z")]), mdp)
    assert found[["state", "action", "next_state", "count", "episode"]].to_numpy().tolist() == [["x", "go", "z", 2, "2"]]
    with pytest.raises(ValueError, match="1 impossible move: from x by go to z"):
        require_agreement(table(SMALL), mdp)
    assert impossible_moves(table(SMALL[:2]), mdp).empty


def test_possible_tables_have_no_impossible_moves():
    d = mh.domains.cliff()
    assert impossible_moves(mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 100), d.mdp).empty


def test_sample_sizes_are_those_of_the_stated_covariance():
    """All 27 tables of three moves, weighted by their chances: the estimate has the covariance (diag(p) − p p') / sample_size."""
    truth = np.array([0.2, 0.5, 0.3])
    outcomes = list(itertools.product(range(3), repeat=3))
    chances = np.array([truth[list(outcome)].prod() for outcome in outcomes])
    estimates, sizes = [], set()
    for outcome in outcomes:
        rows = [("A", i, 0, "x", "go", "xyz"[t]) for i, t in enumerate(outcome)]
        rows += [("A", 7 + i, 0, "x", "stay", "xyz"[i]) for i in range(3)]
        mdp = mh.estimate_mdp(table(rows), smoothing=0.0)
        estimates.append(mdp.to_array()[0, 0])
        sizes.add(mdp.sample_sizes[0])
    assert sizes == {3.0}
    errors = np.array(estimates) - truth
    covariance = (chances[:, None] * errors).T @ errors
    assert covariance == pytest.approx((np.diag(truth) - np.outer(truth, truth)) / 3)
    assert mh.estimate_mdp(table(rows), smoothing=2.0).sample_sizes[0] == 5.0**2 / 3


def test_exact_transitions_have_no_sample_sizes():
    assert mh.domains.cliff().mdp.sample_sizes is None


def test_nothing_is_called_estimated_where_all_was_given(golden):
    _, remarks = build_problem([table(SMALL)], [mh.estimate_mdp(table(SMALL))], estimate_rest=True)
    golden(*remarks)


def test_actions_nobody_took_are_named_with_what_to_do(golden):
    mdp = mh.estimate_mdp(table([("A", 0, 0, "x", "go", "y"), ("A", 0, 1, "y", "stay", "z")]))
    assert untaken_actions(mdp) == {"x": ("stay",), "y": ("go",)}
    said = " ".join(describe_estimate(mdp, 0.5))
    golden(said)
    assert "Nobody took" not in " ".join(describe_estimate(mh.estimate_mdp(table(SMALL[:2])), 0.5))


def test_known_rows_are_kept_and_the_rest_is_estimated():
    known = mh.MDP(
        [[[0, 1], [0, 0]]], terminal=[1], state_names=["x", "cliff"], action_names=["jump"], available=[[True], [True]]
    )
    rows = [("A", 0, 0, "x", "go", "y"), ("A", 1, 0, "x", "go", "x"), ("A", 1, 1, "x", "jump", "cliff")]
    mdp = mh.estimate_mdp(table(rows), known=known)
    assert mdp.state_names == ("cliff", "x", "y")
    assert mdp.terminal.tolist() == [True, False, True]
    assert mdp.available[1].all()
    go, jump = (mdp.to_array()[mdp.action_names.index(name), 1] for name in ("go", "jump"))
    assert jump.tolist() == [1, 0, 0]
    assert go.sum() == pytest.approx(1)
    assert mdp.sample_sizes[3 + 1] == np.inf
    assert mdp.sample_sizes[0 + 1] == 2.5**2 / 2


def test_avoiding_a_known_action_lowers_the_reward_of_where_it_leads():
    """Nobody jumps. Without the jump's transitions that teaches nothing; with them the cliff is worse than the town."""
    outcomes = [("go", "town")] * 126 + [("go", "cliff")] * 14 + [("wait", "town")] * 18 + [("wait", "cliff")] * 42
    rows = [("A", episode, 0, "x", action, after) for episode, (action, after) in enumerate(outcomes)]
    known = mh.MDP.from_frame(pd.DataFrame({"state": ["x"], "action": ["jump"], "next_state": ["cliff"], "probability": [1.0]}))
    without, given = mh.estimate_mdp(table(rows)), mh.estimate_mdp(table(rows), known=known)
    gap = []
    for mdp in (without, given):
        reward = mh.solve(mh.Problem(mdp, table(rows)), mh.MaximumLikelihood()).reward
        gap.append(reward[mdp.state_names.index("town")] - reward[mdp.state_names.index("cliff")])
    assert "jump" not in without.action_names
    assert gap[0] == pytest.approx(np.log(0.7 / 0.3) / 0.6, abs=0.05)
    assert gap[1] > gap[0] + 1


@pytest.mark.slow
def test_supplied_actions_mend_the_reward_of_an_avoided_cliff():
    """Nobody steps off the cliff. Its cells are worth −10; left out, such steps make one look good; supplied, all look bad."""
    domain = mh.domains.cliff()
    truth = domain.mdp
    demos = mh.Demonstrations.simulate(truth, domain.soft_experts(), 30, seed=0)
    estimated = mh.estimate_mdp(demos)
    untaken = untaken_actions(estimated)
    moves = [
        (state, action, truth.state_names[t], p)
        for state, actions in untaken.items()
        for action in actions
        for t, p in enumerate(truth.to_array()[truth.action_names.index(action), truth.state_names.index(state)])
        if p
    ]
    known = mh.MDP.from_frame(pd.DataFrame(moves, columns=["state", "action", "next_state", "probability"]))
    completed = mh.estimate_mdp(demos, known=known)
    assert untaken
    assert not untaken_actions(completed)
    cliff = [completed.state_names.index(truth.state_names[s]) for s in np.flatnonzero(domain.reward == -10)]
    without, mended = (mh.solve(mh.Problem(mdp, demos), mh.MaximumLikelihood()) for mdp in (estimated, completed))
    assert without.reward[cliff].max() > 10
    assert mended.reward[cliff].max() < -4
    assert mended.discounts == pytest.approx(domain.soft_discounts, abs=0.1)


#: Three states and an end; "left" and "right" are slippery.
SLIPPERY = [
    [[0.8, 0.1, 0.05, 0.05], [0.8, 0.1, 0.05, 0.05], [0.1, 0.8, 0.05, 0.05], [0, 0, 0, 0]],
    [[0.1, 0.8, 0.05, 0.05], [0.05, 0.1, 0.8, 0.05], [0.05, 0.05, 0.1, 0.8], [0, 0, 0, 0]],
]


def slippery(transitions=SLIPPERY, terminal=(3,)) -> mh.MDP:
    return mh.MDP(transitions, terminal=list(terminal), initial=[1, 0, 0, 0], action_names=["left", "right"], state_names="abcz")


def walks(episodes: int, seed: int = 0) -> mh.Demonstrations:
    return mh.Demonstrations.simulate(slippery(), [np.full((4, 2), 0.5)], episodes, seed)


def test_moves_that_are_possible_and_yet_contradict_the_transitions_are_refused():
    swapped, uniform = SLIPPERY[::-1], np.where(np.array(SLIPPERY) > 0, 0.25, 0)
    with pytest.raises(ValueError, match=r"in state '.', '.*' led to .* better with its moves by '.*': are two"):
        require_agreement(walks(10), slippery(swapped))
    with pytest.raises(ValueError, match=r"in state 'a', 'left' led to 'a' in 74% of 42 moves, and the .* say 25%"):
        require_agreement(walks(20), slippery(uniform))
    found = unlikely_moves(walks(30), slippery(swapped))
    assert len(found) == 6
    assert found["p_value"].max() < 0.001
    assert found["distance"].min() > 0.4


def test_moves_that_agree_are_not_refused_and_small_differences_are_remarks(golden):
    for seed in range(40):
        assert require_agreement(walks(1 + seed, seed), slippery()) == []
    shifted = np.array(SLIPPERY)
    shifted[0, 0, :2] = 0.77, 0.13
    (remark,) = require_agreement(walks(5000), slippery(shifted))
    golden(remark)


def test_many_rows_with_few_moves_each_contradict_together():
    """No row has enough moves to tell, all of them together do."""
    n, rng = 60, np.random.default_rng(0)
    true = np.full((n, 3), 0.05)
    true[np.arange(n), rng.integers(3, size=n)] = 0.9
    rows = [("A", 4 * s + i, 0, str(s), "go", "xyz"[rng.choice(3, p=true[s])]) for s in range(n) for i in range(4)]
    given = [(str(s), "go", t, 1 / 3) for s in range(n) for t in "xyz"]
    mdp = mh.MDP.from_frame(pd.DataFrame(given, columns=["state", "action", "next_state", "probability"]))
    with pytest.raises(ValueError, match="contradict the transitions: in state"):
        require_agreement(table(rows), mdp)


def test_the_bound_on_relative_entropy_holds_exactly():
    """All tables of n moves among three states, weighted by their chances, against the bound of the module's docstring."""
    truth = np.array([0.85, 0.1, 0.05])
    for n in (1, 2, 5, 12):
        counts = np.array([(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)])
        chances = scipy.stats.multinomial.pmf(counts, n, truth)
        x = scipy.special.rel_entr(counts / n, truth).sum(axis=1) * n
        for limit in np.linspace(2.01, 12, 50):
            assert chances[x >= limit].sum() <= np.exp(2 - limit) * (limit / 2) ** 2


def test_states_where_every_episode_stops_must_be_terminal():
    on = np.array(SLIPPERY)
    on[:, 3, 0] = 1.0
    with pytest.raises(ValueError, match="every episode of the table that comes to z stops there, and in the trans"):
        require_agreement(walks(20), slippery(on, ()))
    on[:, 3, 0], on[:, 3, 3] = 0.0, 1.0
    (remark,) = require_agreement(walks(20), slippery(on, ()))
    assert remark.startswith(
        "Every episode of the table that comes to z stops there. In the transitions the state goes on for ever"
    )
    cut = mh.Demonstrations.simulate(slippery(on, ()), [np.full((4, 2), 0.5)], 30, max_steps=4)
    assert require_agreement(cut, slippery(on, ())) == []


def test_only_rows_that_were_given_are_tested():
    estimated = mh.estimate_mdp(walks(3))
    assert require_agreement(walks(3), estimated) == []


CUT_OFF = [("A", 0, 0, "x", "go", "y"), ("A", 0, 1, "y", "go", "x"), ("A", 0, 2, "x", "go", None), ("A", 1, 0, "x", "stay", "y")]


def test_the_last_decision_of_a_session_that_was_cut_off_counts(golden):
    frame = pd.DataFrame(CUT_OFF, columns=["expert", "episode", "step", "state", "action", "next_state"])
    with pytest.raises(ValueError, match=r"step 2 must have a next_state .* if it simply stopped, say so with cut_off=True"):
        mh.estimate_mdp(mh.Demonstrations.from_frame(frame))
    demos = mh.Demonstrations.from_frame(frame, cut_off=True)
    mdp = mh.estimate_mdp(demos, smoothing=0.0)
    assert mdp.to_array()[0, 0].tolist() == [0, 1]
    assert demos.counts(mdp)[0].tolist() == [[2, 1], [1, 0]]
    golden(*describe_estimate(mdp, 0.0, demos))


def test_a_cut_off_decision_that_leads_nobody_knows_where_is_left_out_and_named(golden):
    frame = table([*SMALL, ("B", 9, 0, "x", "go", "z"), ("B", 9, 1, "z", "sing", None)]).to_frame()
    demos = mh.Demonstrations.from_frame(frame, cut_off=True)
    mdp = mh.estimate_mdp(demos)
    assert demos.counts(mdp).sum() == 5
    assert mdp.terminal.tolist() == [False, True, True]
    golden(*describe_estimate(mdp, 0.5, demos))
    assert mh.analyse([demos], quick=True, deviations=0.0).problem.n_experts == 2


def test_where_all_episodes_are_cut_off_no_column_next_state_is_needed():
    frame = pd.DataFrame(CUT_OFF[:3], columns=["expert", "episode", "step", "state", "action", "next_state"])
    demos = mh.Demonstrations.from_frame(frame.drop(columns="next_state"), cut_off=True)
    assert [demos.states[i] if i >= 0 else None for i in demos.next_state] == ["y", "x", None]
    assert demos.select(slice(0, 2)).cut_off


def test_moves_that_nobody_saw_are_no_evidence_against_given_transitions() -> None:
    """Where the last next_state of each episode is blank, just the moves into the endings are unknown."""
    mdp = mh.MDP(
        np.array([[[0.6, 0.4], [0, 0]], [[0.1, 0.9], [0, 0]]]),
        terminal=[1],
        state_names=["here", "end"],
        action_names=["stay", "go"],
    )
    rows = mh.Demonstrations.simulate(mdp, [np.full((2, 2), 0.5)], 300).to_frame()
    last = rows["next_state"] == "end"
    blank = rows.assign(next_state=rows["next_state"].mask(last, None))
    whole, cut = mh.Demonstrations.from_frame(rows), mh.Demonstrations.from_frame(blank, cut_off=True)
    assert require_agreement(whole, mdp) == require_agreement(cut, mdp) == []
    swapped = mh.MDP(mdp.to_array()[::-1], terminal=[1], state_names=mdp.state_names, action_names=mdp.action_names)
    with pytest.raises(ValueError, match="are two actions confused"):
        require_agreement(whole, swapped)
