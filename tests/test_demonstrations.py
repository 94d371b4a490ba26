from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import multihorizon as mh
from multihorizon.data.counting import in_order_of_file

DOMAIN = mh.domains.cliff()
POLICIES = DOMAIN.soft_experts()


def test_simulation_is_seeded_and_follows_policy_and_transitions() -> None:
    demos = mh.Demonstrations.simulate(DOMAIN.mdp, POLICIES, 3000, seed=1)
    again = mh.Demonstrations.simulate(DOMAIN.mdp, POLICIES, 3000, seed=1)
    np.testing.assert_array_equal(demos.state, again.state)
    assert demos.episode_counts.tolist() == [3000, 3000, 3000]
    counts = demos.counts(DOMAIN.mdp)
    for policy, count in zip(POLICIES, counts, strict=True):
        visits = count.sum(axis=1)
        seen = visits > 500
        assert seen.sum() >= 5
        error = np.abs(count[seen] / visits[seen, None] - policy[seen])
        assert (error < 4.5 * np.sqrt(policy[seen] * (1 - policy[seen]) / visits[seen, None]) + 1e-3).all()
    moves = np.zeros((4, 12, 12))
    np.add.at(moves, (demos.action, demos.state, demos.next_state), 1)
    assert (moves[DOMAIN.mdp.to_array() == 0] == 0).all()
    busy = moves.sum(axis=2) > 1000
    frequencies = moves[busy] / moves[busy].sum(axis=1, keepdims=True)
    assert np.abs(frequencies - DOMAIN.mdp.to_array()[busy]).max() < 0.05


def test_first_states_follow_the_initial_distribution() -> None:
    demos = mh.Demonstrations.simulate(mh.domains.toy().mdp, mh.domains.toy().soft_experts(), 50)
    assert (demos.state[demos.step == 0] == 0).all()


def test_episodes_end_in_a_terminal_state_or_at_the_limit() -> None:
    demos = mh.Demonstrations.simulate(DOMAIN.mdp, POLICIES[:1], 200, max_steps=7)
    frame = demos.to_frame()
    last = frame.groupby("episode")["step"].idxmax()
    ended = DOMAIN.mdp.terminal[frame.loc[last, "next_state"].astype(int)]
    assert (ended | (frame.loc[last, "step"].to_numpy() == 6)).all()
    assert frame["step"].max() <= 6


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame"])
def test_round_trip_with_names(kind: str, tmp_path) -> None:
    domain = mh.domains.toy()
    demos = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 20, names=["short", "middle", "far"])
    if kind == "frame":
        back = mh.Demonstrations.from_frame(demos.to_frame())
    else:
        if kind == "parquet":
            pytest.importorskip("pyarrow")
        getattr(demos, f"to_{kind}")(tmp_path / "d")
        back = getattr(mh.Demonstrations, f"from_{kind}")(tmp_path / "d")
    assert sorted(back.experts) == sorted(demos.experts)
    order = [back.experts.index(name) for name in demos.experts]
    np.testing.assert_array_equal(back.counts(domain.mdp)[order], demos.counts(domain.mdp))
    assert back.to_frame()["next_state"].isin(domain.mdp.state_names).all()


def frame(**columns) -> pd.DataFrame:
    rows = {"expert": ["a"] * 3, "episode": [0] * 3, "step": [0, 1, 2], "state": [0, 10, 2], "action": [0, 1, 0]}
    return pd.DataFrame({**rows, **columns})


def test_labels_of_any_type_match_by_text() -> None:
    mdp = mh.MDP(np.full((2, 3, 3), 1 / 3), state_names=[0, 2, 10])
    for states in ([0, 10, 2], [0.0, 10.0, 2.0], ["0", "10", "2"]):
        counts = mh.Demonstrations.from_frame(frame(state=states)).counts(mdp)
        assert counts[0].sum(axis=1).tolist() == [1, 1, 1]
        assert counts[0, 2].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("label", "names", "closest"),
    [
        ("2", [f"s{i}" for i in sorted(range(12), key=str)], "s2"),
        ("2", ["x", "y", "z"], None),
        ("home", ["Home", "road", "town"], "Home"),
        ("s02", ["s1", "s2", "s12"], "s2"),
        ("raod", ["home", "road", "town"], "road"),
        ("2", ["a2", "b2", "c"], None),
    ],
)
def test_no_label_is_taken_for_another_name(label: str, names: list[str], closest: str | None) -> None:
    mdp = mh.MDP(np.full((2, len(names), len(names)), 1 / len(names)), state_names=names)
    with pytest.raises(ValueError, match=f"state '{label}' must be one of the {len(names)} states") as caught:
        mh.Demonstrations.from_frame(frame(state=[label] * 3)).counts(mdp)
    assert str(caught.value).endswith(
        f"Did you mean '{closest}'? Names must agree letter by letter" if closest else "to the transitions"
    )


def test_3_and_3_0_in_a_file_are_one_state(tmp_path) -> None:
    rows = ["a,1,0,3,go,4.0", "a,1,1,4,go,3.0", "a,1,2,3.0,go,03", "a,1,3,03,go,-1.0"]
    (tmp_path / "d.csv").write_text("\n".join(["expert,episode,step,state,action,next_state", *rows]) + "\n")
    assert mh.Demonstrations.from_csv(tmp_path / "d.csv").states == ("-1", "03", "3", "4")


def test_blank_labels_are_refused(tmp_path) -> None:
    for blank in (" ", "\u00a0", "\u200b", "\x1b"):
        (tmp_path / "d.csv").write_text(f"expert,episode,step,state,action\na,1,0,x,go\na,1,1,{blank},go\n", encoding="utf-8")
        with pytest.raises(ValueError, match=r"d\.csv, line 3: column state must be a label that can be seen"):
            mh.Demonstrations.from_csv(tmp_path / "d.csv")


def test_formulas_are_quoted_in_csv_files_and_read_back(tmp_path) -> None:
    states = ["=cmd|'/c calc'!A0", "+1+2", "@x", "-1", "'=x", "-a"]
    demos = mh.Demonstrations.from_frame(
        pd.DataFrame({"expert": "=ann", "episode": 0, "step": range(6), "state": states, "action": "go"})
    )
    demos.to_csv(tmp_path / "d.csv")
    text = (tmp_path / "d.csv").read_text()
    assert not any(cell[:1] in "=+@" for line in text.splitlines()[1:] for cell in line.replace('"', "").split(","))
    back = mh.Demonstrations.from_csv(tmp_path / "d.csv")
    assert back.same_decisions(demos)


def test_whole_number_labels_sort_as_numbers() -> None:
    assert mh.Demonstrations.from_frame(frame()).states == ("0", "2", "10")


def test_decisions_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        mh.Demonstrations.from_frame(frame()).state[0] = 1


def test_rows_may_come_in_any_order() -> None:
    shuffled = frame().sample(frac=1, random_state=3)
    back = mh.Demonstrations.from_frame(shuffled)
    assert back.step.tolist() == [0, 1, 2]


def test_a_step_count_from_one_is_fine() -> None:
    assert mh.Demonstrations.from_frame(frame(step=[1, 2, 3])).step.tolist() == [1, 2, 3]


def test_a_label_named_na_is_a_label(tmp_path) -> None:
    (tmp_path / "d.csv").write_text("expert,episode,step,state,action\nNA,1,0,NA,null\n")
    demos = mh.Demonstrations.from_csv(tmp_path / "d.csv")
    assert (demos.experts, demos.states, demos.actions) == (("NA",), ("NA",), ("null",))


def test_a_blank_next_state_is_taken_from_the_next_step() -> None:
    demos = mh.Demonstrations.from_frame(frame(next_state=[None, 2, None]))
    assert [demos.states[i] if i >= 0 else None for i in demos.next_state] == ["10", "2", None]
    with pytest.raises(ValueError, match="step 2 must have a next_state to estimate transitions from"):
        mh.estimate_mdp(demos)


def test_labels_that_are_the_same_number_keep_one_order() -> None:
    demos = mh.Demonstrations.from_frame(frame(state=["1", "01", "001"]))
    assert demos.states == ("001", "01", "1")


def noisy(episodes: int = 6) -> pd.DataFrame:
    """A table of three experts whose episodes are noisy or not, in blocks of two."""
    frame = mh.Demonstrations.simulate(DOMAIN.mdp, POLICIES, episodes, 3, 12, names=["b", "a", "10"]).to_frame()
    number = frame["episode"].astype(int)
    return frame.assign(noise=np.where(number % 2, "high", "low"), block=number // 2)


@pytest.mark.parametrize("kind", ["frame", "csv", "parquet"])
def test_conditions_have_one_row_per_episode_whatever_the_order_of_rows(kind: str, tmp_path) -> None:
    frame = noisy().sample(frac=1, random_state=0)
    if kind == "frame":
        table = mh.Demonstrations.from_frame(frame, conditions=["noise", "block"])
    else:
        getattr(frame, f"to_{kind}")(tmp_path / f"d.{kind}", index=False)
        table = mh.Demonstrations.from_files(tmp_path / f"d.{kind}", conditions=["noise", "block"])
    assert table.experts == ("10", "a", "b")
    assert table.conditions.to_dict("list") == {"noise": ["low", "high"] * 9, "block": [0, 0, 1, 1, 2, 2] * 3}
    assert table.conditions["block"].dtype.kind == "i"
    again = mh.Demonstrations.from_frame(table.to_frame(), conditions=["block", "noise"])
    pd.testing.assert_frame_equal(again.conditions[["noise", "block"]], table.conditions, check_dtype=False)
    late = table.select(np.repeat(table.conditions["block"] == 2, table.by_episode.length).to_numpy())
    assert late.conditions.to_dict("list") == {"noise": ["low", "high"] * 3, "block": [2] * 6}
    assert mh.Demonstrations.from_frame(frame).conditions is None


def test_what_is_missing_of_a_condition_stays_missing_and_the_rest_are_numbers(tmp_path) -> None:
    frame = noisy().assign(block=lambda f: f["block"].astype(str).where(f["noise"] == "low", "NA"))
    frame.to_csv(tmp_path / "d.csv", index=False)
    table = mh.Demonstrations.from_csv(tmp_path / "d.csv", conditions=["block"])
    np.testing.assert_array_equal(table.conditions["block"], [0, np.nan, 1, np.nan, 2, np.nan] * 3)


def test_a_condition_that_varies_within_an_episode_is_refused_with_its_row(tmp_path) -> None:
    frame = noisy()
    frame.loc[frame.index[3], "noise"] = "none"
    frame.to_csv(tmp_path / "d.csv", index=False)
    words = r"condition noise must be the same in a whole episode, got 'none' after 'low': correct it, give the steps from "
    with pytest.raises(ValueError, match=rf"d\.csv, line 5 \(expert b, episode 0, step 3\): {words}"):
        mh.Demonstrations.from_csv(tmp_path / "d.csv", conditions=["noise"])
    with pytest.raises(ValueError, match=f"^expert b, episode 0, step 3: {words}"):
        mh.Demonstrations.from_frame(frame, conditions=["noise"])
    frame.loc[frame.index[3], "noise"] = None
    with pytest.raises(ValueError, match="got an empty cell after 'low'"):
        mh.Demonstrations.from_frame(frame, conditions=["noise"])
    with pytest.raises(ValueError, match="the table must have the column noize to be a condition, got noise, block"):
        mh.Demonstrations.from_frame(frame, conditions=["noize"])
    with pytest.raises(ValueError, match="conditions must be a list of columns, got the text 'noise'"):
        mh.Demonstrations.from_frame(frame, conditions="noise")
    with pytest.raises(ValueError, match=r"a condition must be another column than expert, episode, .*, got state"):
        mh.Demonstrations.from_frame(frame, conditions=["state"])


def test_conditions_of_another_table_are_found_by_expert_and_episode() -> None:
    frame = noisy()
    whole = mh.Demonstrations.from_frame(frame, conditions=["noise", "block"])
    about = frame.drop_duplicates(["expert", "episode"])[["episode", "noise", "expert", "block"]].sample(frac=1, random_state=1)
    plain = mh.Demonstrations.from_frame(frame)
    found = plain.under(about.astype({"episode": int}))
    pd.testing.assert_frame_equal(found.conditions, whole.conditions, check_dtype=False)
    assert plain.conditions is None
    both = mh.Demonstrations.from_frame(frame, conditions=["noise"]).under(about.drop(columns="noise"))
    pd.testing.assert_frame_equal(both.conditions, whole.conditions, check_dtype=False)
    some = about[about["expert"] != "a"]
    others = pd.DataFrame({"expert": "c", "episode": 0, "noise": "low", "block": 0}, index=[0])
    found = plain.under(pd.concat([some, others]))
    assert found.conditions["noise"].isna().tolist() == [False] * 6 + [True] * 6 + [False] * 6
    with pytest.raises(ValueError, match=r"row 18 \(counted from 0\): there must be one row for episode 2 of expert a, got"):
        plain.under(pd.concat([about, about[(about["expert"] == "a") & (about["episode"] == "2")]]))
    with pytest.raises(ValueError, match="must have the columns expert, episode, got none named episode"):
        plain.under(about.drop(columns="episode"))
    with pytest.raises(ValueError, match="must have a column besides expert and episode for each condition, got none"):
        plain.under(about[["expert", "episode"]])
    with pytest.raises(ValueError, match="it has episode 0 of expert c, and the decisions have episode 0 of expert 10"):
        plain.under(others)
    with pytest.raises(ValueError, match="condition noise must be in the table or in the table of episodes, got it in both"):
        whole.under(about)


def test_episodes_without_a_name_are_experts_of_their_own(tmp_path: Path) -> None:
    d = mh.domains.cliff()
    named = mh.Demonstrations.simulate(d.mdp, d.soft_experts()[:1], episodes=12)
    rows = named.to_frame()
    each = named.unnamed()
    assert each.experts == named.episodes
    assert each.counts(d.mdp).sum(axis=0).tolist() == named.counts(d.mdp)[0].tolist()
    rows.drop(columns="expert").to_csv(tmp_path / "missing.csv", index=False)
    rows.assign(expert="").to_csv(tmp_path / "blank.csv", index=False)
    rows.drop(columns="expert").to_parquet(tmp_path / "missing.parquet")
    read = [
        mh.Demonstrations.from_files(tmp_path / name, unnamed=True) for name in ("missing.csv", "blank.csv", "missing.parquet")
    ]
    for table in [*read, mh.Demonstrations.from_frame(rows.drop(columns="expert"), unnamed=True)]:
        assert table.experts == named.episodes
        assert table.counts(d.mdp).tolist() == each.counts(d.mdp).tolist()
    assert mh.Demonstrations.from_frame(rows, unnamed=True).experts == named.experts
    with pytest.raises(ValueError, match="expert"):
        mh.Demonstrations.from_csv(tmp_path / "missing.csv")
    with pytest.raises(ValueError, match="episode"):
        mh.Demonstrations.from_frame(rows.drop(columns=["expert", "episode"]), unnamed=True)


def test_cells_do_not_depend_on_names_and_order(tmp_path) -> None:
    frame = noisy()
    (tmp_path / "parts").mkdir()
    for number, (_, rows) in enumerate(frame.sample(frac=1, random_state=2).groupby("noise")):
        rows.to_csv(tmp_path / "parts" / f"{number}.csv", index=False)
    renamed = frame.assign(
        expert=frame["expert"].map({"b": "x", "a": "z", "10": "y"}),
        episode="e" + frame["episode"],
        noise=frame["noise"].map({"low": "zero", "high": "alarm"}),
        block=10 - frame["block"],
    )
    conditions = ["noise", "block"]
    tables = [
        mh.Demonstrations.from_frame(frame, conditions=conditions),
        mh.Demonstrations.from_files(tmp_path / "parts", conditions=conditions),
        mh.Demonstrations.from_frame(renamed.sample(frac=1, random_state=3), conditions=conditions[::-1]),
    ]
    back = {"x": "b", "z": "a", "y": "10", "zero": "low", "alarm": "high"}
    found = []
    for table in tables:
        crowd = mh.Problem(DOMAIN.mdp, table)
        rows = zip(crowd.cells.owner, crowd.conditions["noise"], crowd.conditions["block"], strict=True)
        keys = [(crowd.names[who], noise, int(block)) for who, noise, block in rows]
        if "x" in table.experts:
            keys = [(back[who], back[noise], 10 - block) for who, noise, block in keys]
        found.append({key: counts.tobytes() for key, counts in zip(keys, crowd.tasks[0].counts.toarray(), strict=True)})
    assert len(found[0]) == 18
    assert found[0] == found[1] == found[2]


def test_a_query_that_fails_leaves_the_database_with_all_its_threads() -> None:
    database = duckdb.connect()
    before = database.execute("SELECT current_setting('threads')").fetchone()
    with pytest.raises(duckdb.Error), in_order_of_file(database):
        database.execute("SELECT * FROM nowhere")
    assert database.execute("SELECT current_setting('threads')").fetchone() == before
