"""`multihorizon check`: all problems of a table at once, how to mend each, and what can be mended without guessing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from fitting import RUN, fit, one_sentence

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.data.check import STOPPING, chance_p_values, check_table, write_mended

CLIFF = mh.domains.cliff()
COLUMNS = ["expert", "episode", "step", "state", "action", "next_state"]


def check(*arguments: object):
    return RUN.invoke(app, ["check", *(str(a) for a in arguments)])


@pytest.fixture(scope="module")
def walks() -> pd.DataFrame:
    policies = [*CLIFF.soft_experts(), np.full((12, 4), 0.25)]
    return mh.Demonstrations.simulate(CLIFF.mdp, policies, 20, names=["Ann", "Bo", "Cy", "Coin"]).to_frame()


@pytest.fixture(scope="module")
def long_walks() -> pd.DataFrame:
    """Walks that a fit has much less work with, as few of its parameters are hardly known."""
    return mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 100, names=["Ann", "Bo", "Cy"]).to_frame()


def found(path: Path, *options: object) -> dict:
    """What the command found, by kind; it must have ended well."""
    result = check(path, *options, "--out", path.parent / "out")
    assert result.exit_code == 0, result.output
    content = json.loads((path.parent / "out" / "check.json").read_text())
    page = (path.parent / "out" / "check.html").read_text()
    assert all(finding["kind"] in page for finding in content["findings"])
    return {**content, "kinds": {finding["kind"]: finding for finding in content["findings"]}}


def damaged(walks: pd.DataFrame) -> pd.DataFrame:
    """What can be mended: a blank action, a blank state, a lost row, a repeated row, a row without a step."""
    table = walks.astype({"step": object}).assign(note="x, y")
    inside = table.index[(table["expert"] == "Ann") & (table["step"] == 3)][:5]
    table.loc[inside[0], "action"] = None
    table.loc[inside[0] - 1, "next_state"] = None
    table.loc[inside[1], "state"] = None
    table.loc[inside[2], "step"] = "three"
    table = table.drop(index=inside[3])
    return pd.concat([table, table.loc[[inside[4]]]])


def test_a_good_table_is_described_and_nothing_is_wrong(walks, tmp_path, golden):
    walks[walks["expert"] != "Coin"].to_csv(tmp_path / "d.csv", index=False)
    CLIFF.mdp.to_npz(tmp_path / "mdp.npz")
    result = found(tmp_path / "d.csv", "--transitions", tmp_path / "mdp.npz")
    assert result["summary"] == "Nothing is wrong with this table."
    ann = result["experts"][0]
    assert (ann["expert"], ann["episodes"], ann["states"], ann["actions"]) == ("Ann", 20, 8, 4)
    assert ann["decisions"] == (walks["expert"] == "Ann").sum()
    assert sum(state["decisions"] for state in result["states"]) == (walks["expert"] != "Coin").sum()
    assert {state["state"] for state in result["states"] if not state["decisions"]} == {"0", "1", "2", "3"}
    printed = check(tmp_path / "d.csv").stdout
    golden(printed)


def test_all_problems_are_listed_with_their_places_and_remedies(walks, tmp_path, golden):
    table = damaged(walks)
    table.loc[table.index[200], "action"] = "LEFT"
    table.loc[table.drop_duplicates(["expert", "episode"], keep="last").index[-5:-1], "next_state"] = None
    other = table.iloc[[300]].assign(action=lambda f: f["action"].map({"up": "down"}).fillna("up"))
    pd.concat([table, other]).to_csv(tmp_path / "d.csv", index=False)
    result = found(tmp_path / "d.csv")
    stops = [kind for kind, finding in result["kinds"].items() if finding["stops"]]
    assert stops == ["blank state", "blank action", "step", "duplicate step", "gap", "cut off"]
    assert [result["kinds"][kind]["count"] for kind in stops] == [1, 1, 1, 2, 2, 4]
    assert [kind for kind in stops if result["kinds"][kind]["mended"]] == ["blank state", "blank action", "step", "gap"]
    assert result["kinds"]["blank action"]["places"] == ["line 5"]
    assert {"look-alike actions", "chance"} <= result["kinds"].keys()
    assert result["kinds"]["look-alike actions"]["remedy"].endswith("give them one name, in the table or with --recode.")
    golden(result["summary"], *(finding["what"] for finding in result["findings"]))
    assert all(finding["remedy"].endswith((".", "…")) for finding in result["findings"])


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_what_can_be_mended_is_mended_without_guessing(ending, walks, tmp_path, golden):
    log, mended = tmp_path / f"d.{ending}", tmp_path / f"mended.{ending}"
    table = damaged(walks)
    if ending == "parquet":
        table.assign(step=pd.to_numeric(table["step"], errors="coerce")).to_parquet(log, index=False)
    else:
        table.to_csv(log, index=False)
    with pytest.raises(ValueError, match="must not be empty"):
        mh.Demonstrations.from_files(log)
    result = check(log, "--write", mended)
    assert result.exit_code == 0, result.output
    golden(result.stdout)
    again = mh.Demonstrations.from_files(mended)
    assert mh.estimate_mdp(again).n_states == 12
    frame = again.to_frame()
    frame["episode"] = frame["episode"].str.removesuffix(" part 2")
    both = frame.merge(walks.astype({"episode": str}), on=["expert", "episode", "step"], suffixes=("", "_true"))
    assert len(both) == len(walks) - 3
    for column in ("state", "action", "next_state"):
        assert (both[column] == both[f"{column}_true"]).all()
    raw = pd.read_parquet(mended) if ending == "parquet" else pd.read_csv(mended)
    assert list(raw.columns) == [*COLUMNS, "note"]
    assert (raw["note"] == "x, y").all()
    assert "part 2" in " ".join(raw["episode"].astype(str))
    assert "Ready to fit" in check(mended).stdout


def test_a_folder_is_one_table_and_places_name_the_file(walks, tmp_path):
    (tmp_path / "logs").mkdir()
    for name, rows in walks.groupby("expert"):
        rows.to_csv(tmp_path / "logs" / f"{name}.csv", index=False)
    with (tmp_path / "logs" / "Bo.csv").open("a") as file:
        file.write("Bo,late,0,8,,9\n")
    result = found(tmp_path / "logs")
    assert result["kinds"]["blank action"]["places"] == [f"Bo.csv, line {(walks['expert'] == 'Bo').sum() + 2}"]


def test_what_contradicts_the_transitions_is_listed(walks, tmp_path, golden):
    swapped = mh.MDP(CLIFF.mdp.to_array()[[1, 0, 2, 3]], terminal=CLIFF.mdp.terminal, action_names=CLIFF.mdp.action_names)
    swapped.to_npz(tmp_path / "swapped.npz")
    table = walks.copy()
    table.loc[0, "state"], table.loc[5, "action"] = "3", "jump"
    table.loc[table.drop_duplicates(["expert", "episode"], keep="last").index[-1], "next_state"] = "moon"
    table.to_csv(tmp_path / "d.csv", index=False)
    result = found(tmp_path / "d.csv", "--transitions", tmp_path / "swapped.npz")
    kinds = result["kinds"]
    assert {"unknown state", "unknown action", "terminal state", "unlikely move"} <= kinds.keys()
    assert all(kinds[kind]["stops"] and not kinds[kind]["mended"] for kind in ("unknown state", "unlikely move"))
    golden(kinds["unknown state"]["what"], kinds["unlikely move"]["what"])


def test_states_that_are_vectors_are_checked_by_their_columns(tmp_path, golden):
    steps = mh.domains.navigation().simulate(60, length=10).to_frame()
    steps.loc[3, "x"] = np.nan
    steps.drop(index=25).to_csv(tmp_path / "d.csv", index=False)
    refused = fit(tmp_path / "d.csv", "--state", "x,y")
    one_sentence(refused, f"multihorizon check {tmp_path / 'd.csv'} --state x,y lists every problem of the table")
    result = check(tmp_path / "d.csv", "--state", "x,y", "--write", tmp_path / "mended.csv")
    assert result.exit_code == 0, result.output
    golden(result.stdout)
    assert len(mh.Steps.from_file(tmp_path / "mended.csv", ["x", "y"])) == len(steps) - 2


def test_the_test_of_chance_keeps_its_level_and_finds_who_chooses():
    """Coin flips with few decisions in many states are called random 19 times in 20; a weak preference is found."""
    rng, states = np.random.default_rng(0), np.repeat(np.arange(12), 5)
    rows = [(f"coin {k}", s, "ab"[rng.integers(2)]) for k in range(400) for s in states]
    rows += [(f"weak {k}", s, "ab"[int(rng.random() < 0.85)]) for k in range(50) for s in states]
    rows += [("one", 0, "a")]
    frame = pd.DataFrame(rows, columns=["expert", "state", "action"])
    frame = frame.assign(episode=np.arange(len(frame)), step=0)
    table = mh.Demonstrations.from_frame(frame)
    p_values = pd.Series(chance_p_values(table, None), index=table.experts)
    assert np.mean(p_values.filter(like="coin") < 0.05) == pytest.approx(0.05, abs=0.025)
    assert np.mean(p_values.filter(like="weak") < 0.05) > 0.9
    assert np.isnan(p_values["one"])


def test_bad_input_is_one_sentence(walks, tmp_path):
    walks.to_csv(tmp_path / "d.csv", index=False)
    walks.drop(columns="action").to_csv(tmp_path / "short.csv", index=False)
    (tmp_path / "empty.csv").write_text(",".join(COLUMNS) + "\n")
    (tmp_path / "blank.csv").write_text(",".join(COLUMNS) + "\n" + "," * 5 + "\n")
    for said, *arguments in [
        ("does not exist", "none.csv"),
        ("got none named action", "short.csv"),
        ("must have at least one row", "empty.csv"),
        ("must have a row with all of expert", "blank.csv"),
        ("--write must come with one table, got 2", "d.csv", tmp_path / "short.csv", "--write", tmp_path / "m.csv"),
        ("--believed must come with --transitions", "d.csv", "--believed"),
        ("must name each file once", "d.csv", tmp_path / "d.csv", "--same-task"),
        ("--write must be another file", "d.csv", "--write", tmp_path / "d.csv"),
        ("of the same kind as the table, .csv or .csv.gz", "d.csv", "--write", tmp_path / "d.parquet"),
        ("which is no folder", "d.csv", "--write", tmp_path / "none" / "d.csv"),
        ("got none named x", "d.csv", "--state", "x"),
        ("--state must come without --transitions", "d.csv", "--state", "x", "--transitions", tmp_path / "d.csv"),
    ]:
        one_sentence(check(tmp_path / arguments[0], *arguments[1:], "--out", tmp_path / "out"), said)
    assert not (tmp_path / "out").exists()


def test_fit_points_to_it_from_the_refusal_of_a_table(walks, tmp_path):
    damaged(walks).to_csv(tmp_path / "my log.csv", index=False)
    CLIFF.mdp.to_npz(tmp_path / "mdp.npz")
    walks.assign(action="jump").to_csv(tmp_path / "jump.csv", index=False)
    hint = "lists every problem of the table and how to fix it"
    for command in ("fit", "identify", "goals"):
        result = RUN.invoke(app, [command, str(tmp_path / "my log.csv")])
        one_sentence(result, f"multihorizon check '{tmp_path / 'my log.csv'}' {hint}")
        result = RUN.invoke(app, [command, str(tmp_path / "jump.csv"), "--transitions", str(tmp_path / "mdp.npz")])
        one_sentence(result, f"multihorizon check {tmp_path / 'jump.csv'} --transitions FILE {hint}")
    assert hint not in fit(tmp_path / "none.csv").stderr


@pytest.mark.slow
def test_whatever_is_wrong_the_mended_table_is_read_or_what_is_left_is_named(walks, tmp_path):
    """Random damage: cells emptied, exchanged or nonsense, rows lost and doubled. Nothing is ever made up."""
    rng, small = np.random.default_rng(0), walks[walks["episode"].astype(int) < 3]
    read = 0
    for _ in range(25):
        table = small.astype(object)
        for _ in range(int(rng.integers(1, 8))):
            row, column = rng.choice(table.index), rng.choice(COLUMNS)
            table.loc[row, column] = [None, " ", "1e99", table[column].iloc[0]][rng.integers(4)]
        table = table.drop(index=rng.choice(table.index, 2)).sample(frac=1, random_state=1)
        pd.concat([table, table.iloc[:1]]).to_csv(tmp_path / "d.csv", index=False)
        checked = check_table(tmp_path / "d.csv", CLIFF.mdp)
        write_mended(checked, tmp_path / "mended.csv")
        refused = [finding.kind for finding in check_table(tmp_path / "mended.csv").left if finding.kind not in STOPPING]
        if not refused:
            read += 1
            frame = mh.Demonstrations.from_files(tmp_path / "mended.csv", cut_off=True).to_frame()
            assert len(frame) == checked.mended.number.size
        else:
            with pytest.raises(ValueError):
                mh.Demonstrations.from_files(tmp_path / "mended.csv", cut_off=True)
    assert 3 < read < 25


def test_a_table_that_a_fit_takes_with_an_option_is_not_refused(walks, tmp_path, golden):
    """Without next_state a fit needs transitions, or to know that episodes simply stop."""
    people = walks[walks["expert"] != "Coin"]
    people.drop(columns="next_state").to_csv(tmp_path / "d.csv", index=False)
    result = found(tmp_path / "d.csv")
    golden(result["summary"], (tmp_path / "out" / "check.html").read_text())


@pytest.mark.slow
def test_a_fit_takes_a_table_without_next_states_where_the_transitions_are_given(long_walks, tmp_path):
    CLIFF.mdp.to_npz(tmp_path / "mdp.npz")
    long_walks.drop(columns="next_state").to_csv(tmp_path / "d.csv", index=False)
    taken = fit(tmp_path / "d.csv", "--transitions", tmp_path / "mdp.npz", "--quick", "--deviations", 0)
    assert taken.exit_code == 0, taken.output


def believed() -> mh.MDP:
    """The cliff as somebody sees it who believes that every way leads to the next state on it."""
    moves = CLIFF.mdp.to_array()
    wrong = np.roll(moves, 1, axis=2) * ~CLIFF.mdp.terminal[None, :, None]
    return mh.MDP(wrong, terminal=CLIFF.mdp.terminal, action_names=CLIFF.mdp.action_names)


def test_transitions_that_people_believe_in_may_contradict_the_table(walks, tmp_path):
    walks[walks["expert"] != "Coin"].to_csv(tmp_path / "d.csv", index=False)
    believed().to_npz(tmp_path / "believed.npz")
    options = ("--transitions", tmp_path / "believed.npz")
    refused = fit(tmp_path / "d.csv", *options, "--quick", "--deviations", 0)
    assert refused.exit_code == 2
    assert "--believed" in refused.stderr
    assert {"impossible move"} <= found(tmp_path / "d.csv", *options)["kinds"].keys()
    assert not {"impossible move", "unlikely move"} & found(tmp_path / "d.csv", *options, "--believed")["kinds"].keys()
    with pytest.raises(ValueError, match="believed must come with the transitions"):
        mh.analyse(mh.Demonstrations.from_csv(tmp_path / "d.csv"), believed=True)


@pytest.mark.slow
def test_a_fit_takes_transitions_that_people_believe_in(long_walks, tmp_path, golden):
    long_walks.to_csv(tmp_path / "d.csv", index=False)
    believed().to_npz(tmp_path / "believed.npz")
    options = ("--transitions", tmp_path / "believed.npz")
    taken = fit(tmp_path / "d.csv", *options, "--believed", "--quick", "--deviations", 0)
    assert taken.exit_code == 0, taken.output
    golden(taken.output)
    table = mh.Demonstrations.from_csv(tmp_path / "d.csv")
    analysis = mh.analyse(table, believed(), believed=True, quick=True, deviations=0.0)
    assert analysis.solution.problem.mdp.sample_sizes is None


def test_several_files_are_several_tasks_or_one(walks, tmp_path, golden):
    people = walks[walks["expert"] != "Coin"]
    people[people["expert"] != "Cy"].to_csv(tmp_path / "a.csv", index=False)
    other = people[people["expert"] == "Cy"]
    other.assign(action=other["action"].map(lambda name: f"go {name}")).to_csv(tmp_path / "b.csv", index=False)
    files = tmp_path / "a.csv", tmp_path / "b.csv"
    result = check(*files, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "out" / "check.json").read_text())
    assert [len(table["experts"]) for table in content["tables"]] == [2, 1]
    golden(content["findings"][0])
    one = found(files[0], files[1], "--same-task")
    assert [expert["expert"] for expert in one["experts"]] == ["Ann", "Bo", "Cy"]
    golden(one["kinds"]["no actions in common"]["what"])
    assert not one["kinds"]["no actions in common"]["stops"]
    other.to_csv(tmp_path / "b.csv", index=False)
    assert "no actions in common" not in found(files[0], files[1], "--same-task")["kinds"]


@pytest.mark.slow
def test_several_files_of_one_task_are_fitted_as_one_table(long_walks, tmp_path):
    files = tmp_path / "a.csv", tmp_path / "b.csv"
    long_walks[long_walks["expert"] != "Cy"].to_csv(files[0], index=False)
    long_walks[long_walks["expert"] == "Cy"].to_csv(files[1], index=False)
    CLIFF.mdp.to_npz(tmp_path / "mdp.npz")
    options = ("--transitions", tmp_path / "mdp.npz", "--quick", "--deviations", 0, "--out", tmp_path / "fit")
    taken = fit(*files, "--same-task", *options)
    assert taken.exit_code == 0, taken.output
    long_walks.to_csv(tmp_path / "all.csv", index=False)
    together = mh.analyse(mh.Demonstrations.from_csv(tmp_path / "all.csv"), CLIFF.mdp, quick=True, deviations=0.0)
    discounts = json.loads((tmp_path / "fit" / "result.json").read_text())["discounts"]
    assert discounts == pytest.approx(together.solution.discounts.tolist(), abs=1e-6)
    assert "given once for each table, got 1 for 2" in fit(*files, *options[:2]).stderr


def test_people_who_are_judged_together_need_not_be_distinguished_alone(tmp_path):
    """Forty people who each met a state once or twice, as in a game with many states: together they clearly choose."""
    task = mh.domains.space_adventure(mini_blocks=60)
    people = task.persons(40, group_difference=0.8).demonstrations
    assert np.isnan(chance_p_values(people, task.mdp)).all()
    people.to_csv(tmp_path / "d.csv")
    task.mdp.to_npz(tmp_path / "task.npz")
    kinds = {finding.kind for finding in check_table(tmp_path / "d.csv", task.mdp).findings}
    assert not {"few decisions", "chance"} & kinds
    coins = people.to_frame()
    coins["action"] = np.random.default_rng(0).choice(["move", "jump"], len(coins))
    coins.to_csv(tmp_path / "coins.csv", index=False)
    (few,) = (f for f in check_table(tmp_path / "coins.csv").findings if f.kind == "few decisions")
    assert few.count == 40
