"""`multihorizon fit` and `identify` from files to files: answers, verdicts, and one sentence for every malformed input."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.files.output import write_all
from multihorizon.report.fit_report import FILES
from multihorizon.report.html import Page, Section, badge, listing, paragraph, table

RUN = CliRunner()
NAMES = ["Ann & <Co>", "Bo", "Cy"]


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    d = mh.domains.big_small()
    return mh.Demonstrations.simulate(d.mdp, d.mce_experts(), 300, seed=0, names=NAMES).to_frame()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, frame):
    folder = tmp_path_factory.mktemp("inputs")
    frame.to_csv(folder / "demos.csv", index=False)
    mdp = mh.domains.big_small().mdp
    mdp.to_npz(folder / "mdp.npz")
    rows = [
        (mdp.state_names[row % 18], mdp.action_names[row // 18], mdp.state_names[column], value)
        for row, column, value in zip(*mdp.stacked.tocoo().coords, mdp.stacked.tocoo().data, strict=True)
    ]
    pd.DataFrame(rows, columns=["state", "action", "next_state", "probability"]).to_csv(folder / "mdp.csv", index=False)
    reward = mh.domains.big_small().reward
    pd.DataFrame({"state": range(18), "big": reward == 20, "small": reward == 2, "step": reward == -2}).astype(int).to_csv(
        folder / "features.csv", index=False
    )
    return folder


def fit(*arguments) -> object:
    return RUN.invoke(app, ["fit", *(str(a) for a in arguments)])


def test_fit_writes_everything_a_reader_needs(folder, tmp_path):
    result = fit(folder / "demos.csv", "--transitions", folder / "mdp.npz", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(FILES)
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["experts"] == NAMES
    assert content["status"] == "converged"
    assert content["version"]
    assert content["seed"] == 0
    assert content["options"]["temperature"] == "pooled"
    assert list(content["reward"]) == [str(i) for i in range(18)]
    truth = mh.domains.big_small().mce_discounts
    assert content["discounts"] == pytest.approx(truth, abs=0.12)
    assert all(low <= gamma <= high for gamma, (low, high) in zip(content["discounts"], content["intervals"], strict=True))
    for text in ("Ann & <Co>", "900 episodes", "95 % interval", "1/(1−γ)"):
        assert text in result.output
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        assert arrays["discounts"] == pytest.approx(content["discounts"])
        assert arrays["policy_2"].shape == (18, 4)
    assert pd.read_csv(tmp_path / "out" / "reward.csv")["reward"].tolist() == pytest.approx(list(content["reward"].values()))


def test_report_is_self_contained_and_escapes_names(folder, tmp_path):
    fit(folder / "demos.csv", "--transitions", folder / "mdp.npz", "--out", tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Ann &amp; &lt;Co&gt;" in page
    assert "<Co>" not in page
    assert all(link.startswith("#") for link in re.findall(r'(?:src|href)="([^"]*)"', page))
    assert "://" not in page
    assert page.count("<figure") == 4
    assert 'name="viewport"' in page


def test_transitions_as_csv_give_the_same_answer(folder, tmp_path):
    for name in ("mdp.npz", "mdp.csv"):
        assert fit(folder / "demos.csv", "--transitions", folder / name, "--out", tmp_path / name).exit_code == 0
    one, two = (json.loads((tmp_path / n / "result.json").read_text()) for n in ("mdp.npz", "mdp.csv"))
    assert one["discounts"] == pytest.approx(two["discounts"], abs=1e-4)


def test_features_tie_rewards(folder, tmp_path):
    arguments = ["--transitions", folder / "mdp.npz", "--features", folder / "features.csv", "--out", tmp_path]
    assert fit(folder / "demos.csv", *arguments).exit_code == 0
    content = json.loads((tmp_path / "result.json").read_text())
    assert list(content["reward"]) == ["big", "small", "step"]
    assert content["reward"]["big"] == pytest.approx(20, abs=6)


def test_transitions_are_estimated_where_none_are_given(folder):
    result = fit(folder / "demos.csv")
    assert result.exit_code == 0, result.output
    assert "Transitions were estimated from next_state, with 0.5 smoothing" in result.output


def test_temperature_per_expert(folder, tmp_path):
    arguments = ["--transitions", folder / "mdp.npz", "--temperature", "per-expert", "--out", tmp_path]
    assert fit(folder / "demos.csv", *arguments).exit_code == 0
    assert len(set(json.loads((tmp_path / "result.json").read_text())["temperature"])) == 3


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    d = mh.domains.toy()
    for number, mdp in enumerate((d.mdp, d.tasks(1, seed=0)[0].mdp)):
        policies = [mh.soft_plan(mdp, d.reward, gamma).policy for gamma in (0.3, 0.8)]
        mh.Demonstrations.simulate(mdp, policies, 2000, seed=number, names=["near", "far"]).to_csv(folder / f"{number}.csv")
        mdp.to_npz(folder / f"{number}.npz")
    return folder


def test_toy_is_not_identified_and_no_number_is_given(toys, tmp_path):
    result = fit(toys / "0.csv", "--transitions", toys / "0.npz", "--out", tmp_path)
    assert result.exit_code == 0
    assert "not identified" in result.output
    assert "variant of the task" in result.output
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["status"] == "not identified"
    assert content["discounts"] == [None, None]
    assert content["intervals"] == [[None, None], [None, None]]
    assert content["identification"]["status"] == "set"
    assert "not identified" in (tmp_path / "report.html").read_text()


def test_a_second_toy_identifies_both(toys, tmp_path):
    arguments = [toys / "0.csv", toys / "1.csv", "--transitions", toys / "0.npz", "--transitions", toys / "1.npz"]
    assert fit(*arguments, "--out", tmp_path).exit_code == 0
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["status"] == "converged"
    for name, truth in (("near", 0.3), ("far", 0.8)):
        low, high = content["intervals"][content["experts"].index(name)]
        assert low <= truth <= high


def test_identify_says_what_exact_policies_would_tell(toys, folder, tmp_path):
    result = RUN.invoke(app, ["identify", str(toys / "0.csv"), "--transitions", str(toys / "0.npz"), "--out", str(tmp_path)])
    assert result.exit_code == 0
    assert "do not identify" in result.output
    saved = json.loads((tmp_path / "identify.json").read_text())
    assert (saved["status"], saved["fit_status"]) == ("set", "not identified")
    open_ = [high - low > 0.1 for low, high in saved["identification"]["intervals"]]
    assert [gamma is None for gamma in saved["identification"]["discounts"]] == open_
    page = (tmp_path / "identify.html").read_text(encoding="utf-8")
    assert page.index("These decisions") < page.index("If the fitted policies were known exactly")
    assert html.escape(saved["message"]) in page
    assert "(s)" not in result.output
    result = RUN.invoke(app, ["identify", str(folder / "demos.csv"), "--transitions", str(folder / "mdp.npz")])
    assert "The experts identify their discounts" in result.output


#: Rows of the simulated table: its first and its last, and the first of an episode of several steps.
FIRST, SECOND, LAST = 0, -2, -1


def change(column: str, value, row: int = 5) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def changed(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.astype({column: object})
        frame.loc[frame.index[row] if row >= -1 else frame.index[frame["step"] == 1][0] - 1, column] = value
        return frame

    return changed


MALFORMED = {
    "missing column": (lambda f: f.drop(columns="action"), "received none named action"),
    "renamed column": (lambda f: f.rename(columns={"expert": "person"}), "received none named expert"),
    "unknown state": (change("next_state", "moon", LAST), "state 'moon' must be one of"),
    "unknown state and action": (lambda f: f.assign(state="s" + f["state"], next_state="s" + f["next_state"]), "must be one of"),
    "unknown action": (change("action", "jump"), "action 'jump' must be one of"),
    "gap in the steps": (lambda f: f.drop(index=f.index[f["step"] == 2][0] - 1), "must be followed by step"),
    "duplicate row": (lambda f: pd.concat([f, f.iloc[[3]]]), "must occur once"),
    "missing state": (change("state", None), "column state must not be empty"),
    "missing action": (change("action", None), "column action must not be empty"),
    "missing expert": (change("expert", None), "column expert must not be empty"),
    "step is text": (change("step", "first"), "column step must be a whole number"),
    "step is a fraction": (change("step", 1.5), "column step must be a whole number"),
    "next state disagrees": (change("next_state", "17", SECOND), "but the next step is in"),
    "no rows": (lambda f: f.iloc[:0], "at least one row"),
    "decision in a terminal state": (change("state", "17", FIRST), "is terminal: nothing is decided"),
    "mixed types": (change("state", "3.7", FIRST), "state '3.7' must be one of"),
    "an expert without rows": (lambda f: f.assign(expert=f["expert"].where(f["expert"] != "Bo", None)), "column expert must not"),
    "impossible move": (lambda f: impossible(f), "impossible move: from"),
}


def impossible(frame: pd.DataFrame) -> pd.DataFrame:
    """The last decision of the table jumps across the grid."""
    frame = frame.copy()
    last = frame.index[-1]
    frame.loc[last, "next_state"] = "0" if frame.loc[last, "next_state"] != "0" else "5"
    return frame


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_tables_get_one_sentence_and_nothing_is_written(name, folder, frame, tmp_path):
    damage, said = MALFORMED[name]
    damage(frame.copy()).to_csv(tmp_path / "bad.csv", index=False)
    result = fit(tmp_path / "bad.csv", "--transitions", folder / "mdp.npz", "--out", tmp_path / "out")
    one_sentence(result, said)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


def one_sentence(result, said: str | None) -> None:
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("multihorizon: ")
    assert said is None or said in lines[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "must be a CSV table with a header"),
        (b'expert,episode\n"unclosed', "line 2: a quotation mark is opened here"),
        (b"\xff\xfe\x00\x01", "must be a CSV table"),
        (b"\x00" * 100, "a file that is no text"),
        (b"expert;episode;step;state;action\nA;0;0;x;go\n", "separated by semicolons: save it with commas"),
    ],
)
def test_files_that_are_no_tables(content, said, folder, tmp_path):
    (tmp_path / "bad.csv").write_bytes(content)
    one_sentence(fit(tmp_path / "bad.csv", "--transitions", folder / "mdp.npz", "--out", tmp_path / "out"), said)
    assert not (tmp_path / "out").exists()


def test_other_bad_inputs(folder, frame, tmp_path):
    demos, mdp = folder / "demos.csv", folder / "mdp.npz"
    one_sentence(fit(tmp_path / "none.csv"), "does not exist")
    one_sentence(fit(folder), "features.csv must begin like demos.csv, with the columns expert")
    one_sentence(fit(folder / "mdp.npz"), "must be a .csv or .parquet file")
    one_sentence(fit(demos, "--transitions", tmp_path / "none.npz"), "does not exist")
    (tmp_path / "broken.npz").write_bytes(b"PK not a zip")
    one_sentence(fit(demos, "--transitions", tmp_path / "broken.npz"), "broken.npz is not a saved MDP: it is no .npz file")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not parquet")
    one_sentence(fit(tmp_path / "broken.parquet"), "is damaged or no Parquet file")
    one_sentence(fit(demos, "--transitions", mdp, "--transitions", mdp), "one file of transitions for each table")
    frame.drop(columns="next_state").to_csv(tmp_path / "short.csv", index=False)
    one_sentence(fit(tmp_path / "short.csv"), "must have a column next_state")
    (tmp_path / "features.csv").write_text("state,pay\n0,1\n")
    one_sentence(fit(demos, "--transitions", mdp, "--features", tmp_path / "features.csv"), "must have one row for state 1")
    (tmp_path / "file").write_text("")
    one_sentence(fit(demos, "--transitions", mdp, "--out", tmp_path / "file"), "--out must be a directory")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("state,action,next_state\n0,right,1\n", "none named probability"),
        ("state,action,next_state,probability\n0,right,1,0.5\n", "must sum to 1"),
        ("state,action,next_state,probability\n0,right,1,much\n", "column probability must be a number"),
        ("state,action,next_state,probability\n0,right,1,1\n0,right,1,1\n", "must be listed once"),
        ("state,action,next_state,probability\n0,right,,1\n", "column next_state must not be empty"),
    ],
)
def test_malformed_transitions(rows, said, folder, tmp_path):
    (tmp_path / "t.csv").write_text(rows)
    one_sentence(fit(folder / "demos.csv", "--transitions", tmp_path / "t.csv"), said)


def test_parquet_gives_the_same_table(frame, folder, tmp_path):
    frame.to_parquet(tmp_path / "demos.parquet")
    assert fit(tmp_path / "demos.parquet", "--transitions", folder / "mdp.npz").exit_code == 0


def test_nothing_is_left_where_writing_fails(tmp_path):
    def write(draft):
        (draft / "one").write_text("half")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        write_all(tmp_path / "out", write)
    assert list(tmp_path.iterdir()) == []


def test_pages_escape_all_text():
    page = Page(
        "<t>", "<l>", [Section("<h>", [paragraph("<p>"), badge("<b>"), listing("<c>"), table(["<d>"], [["<e>"]])])], "<f>"
    )
    body = page.render()
    for letter in "tlhbcdef":
        assert f"&lt;{letter}&gt;" in body


def test_one_expert_alone_is_fitted_and_judged(frame, folder, tmp_path):
    frame[frame["expert"] == "Bo"].to_csv(tmp_path / "one.csv", index=False)
    result = fit(tmp_path / "one.csv", "--transitions", folder / "mdp.npz", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["experts"] == ["Bo"]
    assert content["shared_discount_test"] is None
    assert content["status"] == "not identified"


def test_labels_are_shown_as_they_are(tmp_path) -> None:
    domain = mh.domains.cliff()
    names = ["[/a]", "[bold]", "$x^^$"]
    mh.Demonstrations.simulate(domain.mdp, domain.mce_experts(), 60, names=names).to_csv(tmp_path / "d.CSV")
    domain.mdp.to_npz(tmp_path / "m.npz")
    arguments = ["fit", str(tmp_path / "d.CSV"), "--transitions", str(tmp_path / "m.npz"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for name in names:
        assert name in result.output
    assert "[bold]" in (tmp_path / "out" / "report.html").read_text()


def test_few_decisions_are_not_sold_as_an_answer() -> None:
    domain = mh.domains.random_mdp(6, 2, seed=3)
    reward = np.random.default_rng(0).normal(size=6) * 2
    policies = [mh.soft_plan(domain, reward, gamma).policy for gamma in (0.2, 0.8)]
    demos = mh.Demonstrations.simulate(domain, policies, 20, max_steps=15)
    found = mh.analyse([demos], [domain])
    assert all(found.identified)
    assert np.nanmax(found.intervals[:, 1] - found.intervals[:, 0]) > 0.5
    assert "too few to say much" in found.verdicts[1].reasons


def test_nothing_to_choose_is_not_identified() -> None:
    mdp = mh.domains.random_mdp(4, 1)
    demos = mh.Demonstrations.simulate(mdp, [np.ones((4, 1))] * 2, 20, max_steps=10)
    solution = mh.solve(mh.Problem(mdp, demos), mh.MaximumLikelihood())
    assert solution.status == mh.Status.NOT_IDENTIFIED
    assert np.isnan(solution.standard_errors).all()


def test_actions_nobody_took_are_reported_and_can_be_supplied(tmp_path) -> None:
    """Nobody jumps off: the report says so, and a file with the jump alone is combined with what is estimated."""
    outcomes = [("go", "town")] * 126 + [("go", "cliff")] * 14 + [("wait", "town")] * 18 + [("wait", "cliff")] * 42
    rows = [("A", i, 0, "x", action, after) for i, (action, after) in enumerate(outcomes)]
    rows += [("A", i, 1, "town", "jump", "home") for i, (_, after) in enumerate(outcomes) if after == "town"]
    columns = ["expert", "episode", "step", "state", "action", "next_state"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "demos.csv", index=False)
    result = fit(tmp_path / "demos.csv", "--out", tmp_path / "without")
    assert "Nobody took go, wait in town; jump in x." in result.output
    known = [("x", "jump", "cliff", 1.0), ("town", "go", "home", 1.0), ("town", "wait", "home", 1.0)]
    pd.DataFrame(known, columns=["state", "action", "next_state", "probability"]).to_csv(tmp_path / "known.csv", index=False)
    result = fit(tmp_path / "demos.csv", "--transitions", tmp_path / "known.csv", "--estimate-rest", "--out", tmp_path / "with")
    assert result.exit_code == 0, result.output
    assert "Nobody took" not in result.output
    without, given = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("without", "with"))
    assert without["untaken_actions"] == [{"town": ["go", "wait"], "x": ["jump"]}]
    assert given["untaken_actions"] == [{}]


@pytest.fixture(scope="module")
def told(folder):
    """The reward the experts were told, by state, and by state and action."""
    d = mh.domains.big_small()
    pd.DataFrame({"state": d.mdp.state_names, "pay": d.reward}).to_csv(folder / "told.csv", index=False)
    pairs = [(s, a) for s in range(18) for a in range(4) if not d.mdp.terminal[s]]
    expected = (d.mdp.stacked @ d.reward).reshape(4, 18)
    rows = [(d.mdp.state_names[s], d.mdp.action_names[a], expected[a, s]) for s, a in pairs]
    pd.DataFrame(rows, columns=["state", "action", "pay"]).to_csv(folder / "told_by_action.csv", index=False)
    (folder / "groups.csv").write_text("expert,group\nBo,all\nCy,all\n")
    (folder / "of_zoe.csv").write_text("expert,group\nZoe,all\n")
    (folder / "twice.csv").write_text("expert,group\nBo,all\nBo,one\n")
    return folder


def test_known_rewards_and_discounts_are_kept(told, tmp_path):
    arguments = [
        told / "demos.csv",
        "--transitions",
        told / "mdp.npz",
        "--temperature",
        "shared",
        "--discount",
        "Cy=0.9",
        "--quick",
    ]
    answers = []
    for name in ("told.csv", "told_by_action.csv"):
        result = fit(*arguments, "--known-reward", told / name, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
        answers.append(json.loads((tmp_path / name / "result.json").read_text()))
    assert answers[0]["discounts"] == pytest.approx(answers[1]["discounts"], abs=1e-5)
    assert answers[0]["discounts"][2] == 0.9
    assert answers[0]["intervals"][2] == [0.9, 0.9]
    assert answers[0]["discounts"] == pytest.approx(mh.domains.big_small().mce_discounts, abs=0.1)
    assert answers[0]["reward"] == dict(zip(map(str, range(18)), mh.domains.big_small().reward, strict=True))
    assert answers[1]["reward"] == {}
    assert "none of it was estimated" in (tmp_path / "told.csv" / "report.html").read_text()
    assert answers[0]["temperatures"] == pytest.approx([1, 1, 1], abs=0.2)
    for answer in answers:
        known = {"discounts": [False, False, True], "temperatures": [False, False, False], "reward": "all"}
        assert answer["known"] == known
        assert answer["identification"] is None
    people = pd.read_csv(tmp_path / "told.csv" / "people.csv").set_index("expert")
    assert people["flags"]["Cy"] == "known discount"
    assert "(discount 0.9, known)" in answers[0]["headline"]
    assert answers[0]["reward"]["17"] == 20
    assert answers[1]["reward"] == {}


def test_all_discounts_known_is_said_and_not_called_a_finding(told, tmp_path):
    result = fit(told / "demos.csv", "--transitions", told / "mdp.npz", "--discount", "0.5", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["discounts"] == [0.5, 0.5, 0.5]
    assert content["intervals"] == [[0.5, 0.5]] * 3
    assert content["shared_discount_test"] is None
    assert content["pairwise_tests"] is None
    assert [v["answer"] for v in content["verdicts"]][:2] == ["2.0 steps, as known", "Not asked"]
    assert "identify every discount" not in result.output


def test_groups_share_a_discount_and_known_temperatures_stay(told, tmp_path):
    options = ["--groups", told / "groups.csv", "--temperature", "Bo=1.5", "--out", tmp_path]
    result = fit(told / "demos.csv", "--transitions", told / "mdp.npz", *options)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["discounts"][1] == content["discounts"][2] != content["discounts"][0]
    assert content["intervals"][1] == content["intervals"][2]
    assert content["groups"] == {"Bo": "all", "Cy": "all"}
    assert content["known"]["temperatures"] == [False, True, False]
    assert content["temperatures"][1] == pytest.approx(1.5)
    assert content["shared_discount_test"]["degrees"] % 2 == 1  # one contrast, and two for each direction that opens
    assert [test["experts"] for test in content["pairwise_tests"]] == [[NAMES[0], "Bo"], [NAMES[0], "Cy"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--discount", "Zoe=0.5"], "no expert of that name"),
        (["--discount", "Bo=1.5"], "--discount must be a number from 0 to 1"),
        (["--discount", "0.5", "--discount", "Bo=0.5"], "--discount must be given once for all experts"),
        (["--discount", "Bo=0.5", "--discount", "Bo=0.6"], "--discount must be given once for all experts"),
        (["--discount", "nan"], "--discount must be a number from 0 to 1"),
        (["--temperature", "-1"], "--temperature must be one of pooled, shared, per-expert, a positive number or NAME=number"),
        (["--temperature", "warm"], "--temperature must be one of pooled, shared, per-expert, a positive number or NAME=number"),
        (["--temperature", "Bo=0"], "--temperature must be one of pooled, shared, per-expert, a positive number or NAME=number"),
        (["--temperature", "Zoe=1"], "no expert of that name"),
        (["--temperature", "pooled", "--temperature", "1"], "--temperature must be given once for all experts"),
        (["--groups", "of_zoe.csv"], "groups name Zoe, but there is no expert of that name"),
        (["--groups", "told.csv"], "received none named expert"),
        (["--groups", "twice.csv"], "twice.csv, line 3: there must be one row for expert Bo, received another"),
        (["--groups", "groups.csv", "--discount", "Bo=0.5", "--discount", "Cy=0.6"], "share one discount, but different ones"),
        (["--known-reward", "features.csv"], "must have one column with the known reward, received big, small, step"),
        (["--known-reward", "told.csv", "--temperature", "1", "--discount", "0.5"], "leave out at least one"),
        (["--jobs", "0"], "jobs must be a whole number of at least 1"),
    ],
)
def test_wrong_knowledge_gets_one_sentence_and_nothing_is_written(options, said, told, tmp_path):
    options = [told / o if o.endswith(".csv") else o for o in options]
    one_sentence(fit(told / "demos.csv", "--transitions", told / "mdp.npz", *options, "--out", tmp_path / "out"), said)
    assert list(tmp_path.iterdir()) == []


def test_a_known_reward_of_a_state_that_does_not_exist(told, tmp_path):
    (tmp_path / "told.csv").write_text((told / "told.csv").read_text() + "moon,3\n")
    result = fit(told / "demos.csv", "--transitions", told / "mdp.npz", "--known-reward", tmp_path / "told.csv")
    one_sentence(result, "state 'moon' must be one of")


def test_quick_leaves_out_tests_and_checks_and_says_so(folder, tmp_path):
    arguments = ["--transitions", folder / "mdp.npz", "--quick", "--out", tmp_path]
    result = fit(folder / "demos.csv", *arguments)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["quick"]
    assert content["shared_discount_test"] is None
    assert "held_out" not in content["model_checks"]
    errors, discounts = np.array(content["standard_errors"]), np.array(content["discounts"])
    assert np.array(content["intervals"])[:, 1] == pytest.approx(np.minimum(discounts + 1.959964 * errors, 1.0), abs=1e-4)
    assert "Does the model fit? Not checked" in result.output
    assert "1.96 standard errors" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("after", ["model checks", "intervals"])
def test_ctrl_c_keeps_what_is_done(after, folder, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    stage = {"model checks": "profile_intervals", "intervals": "shared_discount_test"}[after]
    monkeypatch.setattr(f"multihorizon.report.analysis.{stage}", interrupted)
    result = fit(folder / "demos.csv", "--transitions", folder / "mdp.npz", "--out", tmp_path)
    assert result.exit_code == 130
    assert "Stopped before the end" in result.output
    content = json.loads((tmp_path / "result.json").read_text())
    assert not content["finished"]
    assert all(gamma is not None for gamma in content["discounts"])
    assert (content["intervals"][0][0] is None) == (after == "model checks")
    assert content["model_checks"]["held_out"]
    assert "Stopped before the end" in (tmp_path / "report.html").read_text()


def test_results_are_written_as_they_come(folder, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("multihorizon.commands.fit.WRITING_SECONDS", 0.0)
    monkeypatch.setattr(
        "multihorizon.report.analysis.shared_discount_test",
        lambda solution: seen.append(sorted(p.name for p in tmp_path.iterdir())),
    )
    assert fit(folder / "demos.csv", "--transitions", folder / "mdp.npz", "--out", tmp_path).exit_code == 0
    assert seen == [["people.csv", "result.json"]]
    assert json.loads((tmp_path / "result.json").read_text())["finished"]


def test_the_answer_does_not_depend_on_the_number_of_processes(folder, tmp_path):
    for jobs in (1, 2):
        assert (
            fit(
                folder / "demos.csv", "--transitions", folder / "mdp.npz", "--jobs", jobs, "--out", tmp_path / str(jobs)
            ).exit_code
            == 0
        )
    one, two = (json.loads((tmp_path / str(jobs) / "result.json").read_text()) for jobs in (1, 2))
    for part in ("discounts", "intervals", "pairwise_tests", "reward"):
        assert one[part] == two[part]
