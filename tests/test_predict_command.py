"""`multihorizon predict`: from the folder of a fit to what its people will do when something changes."""

import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.analysis import analyse
from multihorizon.cli import app
from multihorizon.report.files import read_fit, write_fit

RUN = CliRunner()
NAMES = ["Ann & <Co>", "Bo", "Cy"]
CLIFF = mh.domains.cliff()
STATES = CLIFF.mdp.state_names


def table():
    return mh.Demonstrations.simulate(CLIFF.mdp, CLIFF.soft_experts(), 60, names=NAMES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A fit on a grid, and tables of changes."""
    folder = tmp_path_factory.mktemp("fitted")
    write_fit(folder / "result", analyse([table()], [CLIFF.mdp], quick=True), {"demonstrations": ["decisions.csv"]})
    end = STATES[int(np.flatnonzero(CLIFF.mdp.terminal & CLIFF.mdp.entered)[0])]
    here = STATES[int(np.flatnonzero(CLIFF.mdp.initial)[0])]
    entered = np.flatnonzero(CLIFF.mdp.entered)
    worst, best = (STATES[entered[int(pick(CLIFF.reward[entered]))]] for pick in (np.argmin, np.argmax))
    written = {
        "pay.csv": f"state,amount\n{end},2\n",
        "paid.csv": f"state,action,amount\n{here},up,1.5\n",
        "closed.csv": f"state,action\n{here},right\n",
        "shut.csv": "state,action\n" + "".join(f"{here},{action}\n" for action in CLIFF.mdp.action_names),
        "start.csv": f"state,probability\n{here},1\n",
        "half.csv": f"state,probability\n{here},0.5\n",
        "unknown.csv": "state,amount\nnowhere,1\n",
        "misspelt.csv": f"state,action\n{here},Right\n",
        "twice.csv": f"state,amount\n{end},1\n{end},2\n",
        "words.csv": f"state,amount\n{end},much\n",
        "bare.csv": f"state,money\n{end},1\n",
        "rising.csv": f"smaller,larger\n{worst},{best}\n",
        "contradiction.csv": f"state,lower,upper\n{end},3,2\n",
        "elsewhere.csv": f"smaller,larger\nnowhere,{end}\n",
    }
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")
    CLIFF.mdp.to_npz(folder / "same.npz")
    other = mh.MDP(np.eye(2)[None, ::-1], state_names=["a", "b"], action_names=["fly"])
    other.to_npz(folder / "other.npz")
    return folder


def run(folder, *arguments, code=0):
    typed = [folder / a if str(a).endswith((".csv", ".npz")) or a == "result" else a for a in arguments]
    result = RUN.invoke(app, ["predict", *map(str, typed)])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize(
    "kind",
    [
        "given",
        pytest.param("estimated", marks=pytest.mark.slow),
        "known reward",
        "known reward of actions",
        "apart",
        "population",
    ],
)
def test_read_fit_gives_back_what_was_fitted(tmp_path, kind):
    """All that an answer needs is in the folder, so that it is the same as from memory."""
    how = {"quick": True}
    if kind in ("known reward", "population"):
        how["known_reward"] = lambda mdp: CLIFF.reward
    if kind == "known reward of actions":
        how["known_reward"] = lambda mdp: (mdp.stacked @ CLIFF.reward).reshape(mdp.n_actions, -1).T
    names, decisions = NAMES, table()
    if kind == "apart":  # many people who share nothing but a known reward
        names = [f"p{i}" for i in range(8)]
        policies = [mh.soft_plan(CLIFF.mdp, CLIFF.reward, gamma).policy for gamma in np.linspace(0.3, 0.95, 8)]
        decisions = mh.Demonstrations.simulate(CLIFF.mdp, policies, 60, names=names)
        how["solver"] = mh.MaximumLikelihood("per_expert", known_reward=CLIFF.reward)
    if kind == "population":
        how["population"] = mh.Population("~ 1", nodes=5)
    found = analyse([decisions], None if kind == "estimated" else [CLIFF.mdp], **how)
    write_fit(tmp_path, found, {})
    solution, content = read_fit(tmp_path)
    assert content["experts"] == names
    assert mh.load(tmp_path).objective == solution.objective
    memory = found.population if kind == "population" else found.solution
    pay = {STATES[3]: 1.0}
    expected, actual = (mh.predict(source, pay=pay, draws=40) for source in (memory, solution))
    for name in ("before", "after", "low", "high"):
        np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), atol=1e-7)
    assert actual.status == expected.status
    assert actual.unit == expected.unit
    assert mh.MDP.from_npz(tmp_path / "task.npz").state_names == memory.problem.mdp.state_names


def test_predict_shows_and_writes_what_follows(folder, tmp_path, golden):
    said = run(folder, "result", "--pay", "pay.csv", "--forbid", "closed.csv", "--out", tmp_path / "out")
    golden(said)
    content = json.loads((tmp_path / "out" / "whatif.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert content["experts"] == NAMES
    assert {bound["status"] for bound in content["bounds"].values()} == {"identified"}
    rows = pd.read_csv(tmp_path / "out" / "whatif.csv", dtype={"state": str})
    row = rows.iloc[int(rows["change"].abs().argmax())]
    assert content["after"][row["expert"]][row["state"]][row["action"]] == pytest.approx(row["after"])
    assert content["before"][row["expert"]][row["state"]][row["action"]] == pytest.approx(row["before"])
    assert row["low"] <= row["after"] <= row["high"]
    assert content["options"]["pay"] == "pay.csv"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["whatif.csv", "whatif.html", "whatif.json"]
    page = (tmp_path / "out" / "whatif.html").read_text(encoding="utf-8")
    assert "Ann &amp; &lt;Co&gt;" in page
    assert "<Co>" not in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pay", "paid.csv"], "Paid besides: 1.5 for up in"),
        (["--discount", "0.5"], "Everybody's discount is 0.5."),
        (["--discount", "Bo=0.5", "--discount", "Cy=0.6"], "New discounts: Bo 0.5 and Cy 0.6."),
        (["--transitions", "same.npz", "--reach", STATES[3]], "chance to"),
        (["--initial", "start.csv"], "Episodes begin elsewhere."),
        (["--pay", "pay.csv", "--restrict", "rising.csv"], "the restrictions on the reward change nothing"),
        (["--discount", "0.5", "--restrict", "rising.csv"], "the fitted policies are taken as exact"),
        (["--nudge", STATES[3], "--chance", "0.9"], f"reach {STATES[3]} with a probability of 90%"),
    ],
)
def test_changes_are_said_in_words(folder, arguments, words):
    assert words in " ".join(run(folder, "result", *arguments).split())


def test_a_bonus_without_an_upper_end_is_a_sentence(folder, tmp_path, golden):
    said = " ".join(run(folder, "result", "--nudge", STATES[2], "--chance", "0.9", "--out", tmp_path / "paid").split())
    written = json.loads((tmp_path / "paid" / "nudge.json").read_text(encoding="utf-8"))["experts"]
    assert written[NAMES[0]]["high"] == "infinity"
    assert written[NAMES[0]]["none_enough"] > 0.025
    page = (tmp_path / "paid" / "nudge.html").read_text(encoding="utf-8")
    golden(said, page)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["result"], "something must change: give --pay, --forbid, --transitions, --initial, --discount or --nudge"),
        (["result", "--pay", "nothing.csv"], "--pay must be a file"),
        (["result", "--pay", "unknown.csv"], "line 2: state 'nowhere' must be one of the"),
        (["result", "--pay", "twice.csv"], "line 3: there must be one row for state"),
        (["result", "--pay", "words.csv"], "column amount must be a number, got 'much'"),
        (["result", "--pay", "bare.csv"], "amount"),
        (["result", "--forbid", "misspelt.csv"], "Did you mean 'right'?"),
        (["result", "--forbid", "shut.csv"], "forbid must leave an action in every state, got none in state"),
        (["result", "--initial", "half.csv"], "initial must"),
        (["result", "--transitions", "other.npz"], "transitions must have the actions"),
        (["result", "--discount", "2"], "--discount must be a number from 0 to 1"),
        (["result", "--discount", "bo=0.5"], "Did you mean 'Bo'?"),
        (["result", "--discount", "0.5", "--restrict", "contradiction.csv"], "the restrictions contradict each other"),
        (["result", "--discount", "0.5", "--restrict", "elsewhere.csv"], "line 2: state 'nowhere' must be one of the"),
        (["result", "--pay", "pay.csv", "--reach", "nowhere"], "states must name states among"),
        (["result", "--pay", "pay.csv", "--typical"], "groups are those of a Population"),
        (["result", "--pay", "pay.csv", "--features", "pay.csv"], "--features must come with --transitions"),
        (["result", "--pay", "pay.csv", "--chance", "0.5"], "--chance must come with --nudge"),
        (["result", "--nudge", STATES[3], "--pay", "pay.csv"], "--nudge must come without --pay"),
        (["result", "--nudge", f"{STATES[3]}:"], "must be a state, or a state and an action"),
        (["result", "--nudge", "nowhere"], "state must name states among"),
        (["nowhere", "--pay", "pay.csv"], "a folder that a fit wrote, got nowhere, which does not exist"),
        (["pay.csv", "--pay", "pay.csv"], "a file"),
        (["result", "--pay", "pay.csv", "--out", "pay.csv"], "--out must be a directory"),
    ],
)
def test_what_cannot_be_predicted_is_said_in_one_sentence(folder, arguments, words):
    said = run(folder, *arguments, code=2)
    assert words in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda place: (place / "task.npz").unlink(), "has no task.npz to go on from: it was written by an older version"),
        (lambda place: (place / "result.json").unlink(), "a folder without result.json"),
        (lambda place: shutil.copy(place / "result.npz", place / "task.npz"), "was not written by a fit of this version"),
        (lambda place: (place / "task.npz").write_bytes(b"PK"), "task.npz is not the task of a fit"),
        (lambda place: (place / "solution.json").write_text("{}"), "is not a saved solution: it lacks"),
    ],
)
def test_a_folder_that_is_no_whole_fit_is_refused(folder, tmp_path, spoil, words):
    place = tmp_path / "spoilt"
    shutil.copytree(folder / "result", place)
    spoil(place)
    said = run(folder, place, "--pay", "pay.csv", code=2)
    assert words in said
    assert len(said.strip().splitlines()) == 1


#: What somebody changed in the arrays of a saved task; of matrices, what crashes SciPy.
EDITED_ARRAYS = {
    "pointers of counts decrease": ("counts_indptr", lambda a: a[::-1]),
    "pointers of counts beyond the data": ("counts_indptr", lambda a: np.append(a[:-1], 10**9)),
    "pointers of counts below zero": ("counts_indptr", lambda a: np.concatenate([a[:1], [-(10**9)], a[2:]])),
    "pointers of counts too few": ("counts_indptr", lambda a: a[:2]),
    "columns of counts outside": ("counts_indices", lambda a: np.append(a[:-1], 10**12)),
    "columns of counts below zero": ("counts_indices", lambda a: np.append(a[:-1], -(10**12))),
    "columns of counts are decimals": ("counts_indices", lambda a: a + 0.5),
    "counts are text": ("counts_data", lambda a: a.astype(str)),
    "counts without end": ("counts_data", lambda a: a * np.inf),
    "counts below zero": ("counts_data", lambda a: -a),
    "nobody decided": ("counts_data", lambda a: a * 0),
    "counts of another fit": ("counts_data", lambda a: a * 2),
    "counts beyond all numbers of decisions": ("counts_data", lambda a: a * 1e200),
    "one expert more": ("experts", lambda a: np.append(a, "Di")),
    "one expert twice": ("experts", lambda a: a[[0, 0, 1]]),
    "experts are numbers": ("experts", lambda a: np.arange(a.size)),
    "parameters of another task": ("parameters", lambda a: a[::-1]),
    "the schema is a list": ("schema", lambda a: np.array([1, 1])),
    "the pointers of moves beyond the data": ("indptr", lambda a: a + 1),
    "sample sizes of text": ("sample_sizes", lambda a: np.array(["many"])),
    "a known reward of another length": ("known_reward", lambda a: np.zeros(3)),
    "features without their pointers": ("features_data", lambda a: np.zeros(3)),
}


@pytest.mark.parametrize("case", EDITED_ARRAYS)
def test_edited_arrays_are_refused_before_they_are_used(case, folder, tmp_path):
    shutil.copytree(folder / "result", tmp_path / "edited")
    name, change = EDITED_ARRAYS[case]
    with np.load(tmp_path / "edited" / "task.npz") as file:
        arrays = dict(file)
    np.savez(tmp_path / "edited" / "task.npz", **arrays | {name: np.asarray(change(arrays.get(name)))})
    with pytest.raises(ValueError, match=r"task\.npz") as error:
        read_fit(tmp_path / "edited")
    assert "\n" not in str(error.value)


#: What somebody changed in the JSON of a saved fit: the file, the place, and what stands there.
EDITED_JSON = {
    "options are null": ("solution.json", ("options",), None),
    "options of another solver": ("solution.json", ("options",), {"colour": "red"}),
    "groups are true": ("solution.json", ("options", "ridge"), True),
    "deviations are a number": ("solution.json", ("evidence", "deviations"), 3),
    "deviations lack an entry": ("solution.json", ("evidence", "deviations"), {"spread": 0.0}),
    "another solver": ("solution.json", ("solver",), "Population"),
    "a solver of nobody": ("solution.json", ("solver",), "Oracle"),
    "evidence is a list": ("solution.json", ("evidence",), []),
    "evidence is lost": ("solution.json", ("evidence",), {}),
    "a temperature without end": ("solution.json", ("temperature",), ["infinity"] * 3),
    "one parameter too few": ("solution.json", ("reward",), [0.0]),
    "no parameters": ("solution.json", ("reward",), []),
    "identified is null": ("solution.json", ("evidence", "identified"), None),
    "identified of one": ("solution.json", ("evidence", "identified"), [True]),
    "penalties of one": ("solution.json", ("evidence", "ridge_weights"), [0.0]),
    "look-ahead is text": ("solution.json", ("evidence", "lookahead"), "far"),
    "transitions are text": ("solution.json", ("evidence", "transitions"), ["x"]),
    "a seed in words": ("solution.json", ("seed",), "zero"),
    "a discount of 400 digits": ("solution.json", ("discounts",), [10**400, 0, 0]),
    "a reward of 1e308": ("solution.json", ("objective",), 1e308),
    "a discount that is not a number": ("solution.json", ("discounts",), [float("nan")] * 3),
    "intervals of one": ("solution.json", ("confidence_intervals",), {"0.95": [[0, 1]]}),
    "intervals at no level": ("solution.json", ("confidence_intervals",), {"much": [[0, 1]] * 3}),
    "an endless episode of no steps": ("solution.json", ("horizon",), {"longest": -1, "unit": None}),
    "warnings are a number": ("result.json", ("warnings",), 5),
    "the options of the fit are null": ("result.json", ("options",), None),
}


@pytest.mark.parametrize("case", EDITED_JSON)
def test_edited_json_is_refused_before_it_is_used(case, folder, tmp_path):
    shutil.copytree(folder / "result", tmp_path / "edited")
    name, place, value = EDITED_JSON[case]
    content = json.loads((tmp_path / "edited" / name).read_text())
    within = content
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value
    (tmp_path / "edited" / name).write_text(json.dumps(content))
    with pytest.raises(ValueError, match=name.replace(".", r"\.")) as error:
        read_fit(tmp_path / "edited")
    assert "\n" not in str(error.value)


def test_a_fit_without_an_answer_is_not_gone_on_from(folder, tmp_path):
    place = tmp_path / "withheld"
    shutil.copytree(folder / "result", place)
    for name in ("solution.json", "task.npz"):
        (place / name).unlink()
    content = json.loads((place / "result.json").read_text())
    for change, words in (
        ({"withheld": "A reward runs away."}, "the fit gave no answer. A reward runs away."),
        ({"options": {"demonstrations": ["a.csv", "b.csv"]}}, "the fit joins 2 tasks, and this needs one"),
        ({"coordinates": ["x"]}, "its states are vectors"),
        ({"finished": False}, "the fit was stopped before it was done"),
    ):
        (place / "result.json").write_text(json.dumps({**content, **change}))
        assert words in run(folder, place, "--pay", "pay.csv", code=2)


def test_the_report_of_a_fit_says_how_to_go_on(folder):
    page = (folder / "result" / "report.html").read_text(encoding="utf-8")
    assert "multihorizon predict RESULT --pay pay.csv --out whatif" in page


def test_features_of_a_new_task_are_known_by_their_names(tmp_path, golden):
    features = np.stack([CLIFF.reward.clip(min=0), CLIFF.reward.clip(max=0)], axis=1) / 10.0
    problem = mh.Problem(CLIFF.mdp, table(), features=CLIFF.mdp.stacked @ features, feature_names=["good", "bad"])
    found = analyse([table()], [CLIFF.mdp], lambda mdp: (problem.experts[0].features, ("good", "bad")), deviations=0, quick=True)
    write_fit(tmp_path / "result", found, {})
    CLIFF.mdp.to_npz(tmp_path / "same.npz")
    frame = pd.DataFrame({"state": STATES, "bad": features[:, 1], "good": features[:, 0]})
    frame.to_csv(tmp_path / "kinds.csv", index=False)
    frame.rename(columns={"good": "fine"}).to_csv(tmp_path / "others.csv", index=False)
    said = run(tmp_path, "result", "--transitions", "same.npz", "--features", "kinds.csv")
    golden(said)
    said = run(tmp_path, "result", "--transitions", "same.npz", "--features", "others.csv", code=2)
    assert "--features must have the columns of the fit, good, bad, got bad, fine" in said


@pytest.mark.slow
def test_what_is_known_of_the_reward_bounds_what_nothing_else_does(tmp_path, golden):
    """The toy's rewards are a curve: another discount may lead anywhere, unless the reward is said to rise."""
    d = mh.domains.toy()
    decisions = mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 400, names=["near", "middle", "far"])
    write_fit(tmp_path / "result", analyse([decisions], [d.mdp], quick=True), {})
    rising = "".join(f"{low},{high}\n" for low, high in zip(d.mdp.state_names, d.mdp.state_names[1:], strict=False))
    (tmp_path / "rising.csv").write_text(f"smaller,larger\n{rising}")
    open_ = run(tmp_path, "result", "--discount", "0.5")
    golden(open_)
    bounded = run(tmp_path, "result", "--discount", "0.5", "--restrict", "rising.csv", "--out", tmp_path / "out")
    golden(bounded)
    bounds = json.loads((tmp_path / "out" / "whatif.json").read_text())["bounds"]["far"]
    assert bounds["status"] == "bounded"
    assert not bounds["proved"]
    assert "bounded, attained" in (tmp_path / "out" / "whatif.html").read_text(encoding="utf-8")


def test_policies_that_are_taken_as_exact_have_no_interval(folder, golden):
    """With restrictions the error of the fit is not in the answer, and an interval without width would say that there is none."""
    shown = run(folder, "result", "--pay", "paid.csv", "--restrict", "rising.csv")
    golden(shown)
    assert not re.search(r"(\d\.\d+) to \1 ", shown)


def test_stopping_leaves_nothing_behind(folder, tmp_path, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("multihorizon.cli.questions.predicted", stop)
    run(folder, "result", "--pay", "pay.csv", "--out", tmp_path / "out", code=130)
    assert not (tmp_path / "out").exists()


def test_the_page_opens_in_a_browser(folder, tmp_path, tab):
    run(folder, "result", "--pay", "pay.csv", "--out", tmp_path)
    tab.open(tmp_path / "whatif.html")
    assert tab.errors == []
    headings = tab.run("[...document.querySelectorAll('h2')].map(h => h.textContent)")
    assert headings[:4] == ["What changes?", "Can it be said what they will do?", "On the map", "What comes of it"]
    assert tab.run("document.querySelectorAll('svg.chart').length") == 2 * len(NAMES)
    for width in (390, 1280):
        tab.open(tmp_path / "whatif.html", width=width)
        assert tab.run("document.documentElement.scrollWidth <= innerWidth")
    column = "[...document.querySelectorAll('table')[0].tBodies[0].rows].map(r => Number(r.cells[3].textContent))"
    unsorted = tab.run(column)
    tab.click("table th:nth-child(4) button")
    assert tab.run(column) == sorted(unsorted)


def test_of_many_people_there_are_distributions(tmp_path, golden):
    mdp = CLIFF.mdp
    policies = [mh.soft_plan(mdp, CLIFF.reward, gamma).policy for gamma in np.linspace(0.3, 0.95, 15)]
    table = mh.Demonstrations.simulate(mdp, policies, 60, names=[f"p{i}" for i in range(15)])
    found = analyse([table], [mdp], quick=True, known_reward=lambda mdp: CLIFF.reward)
    write_fit(tmp_path / "result", found, {})
    (tmp_path / "closed.csv").write_text(f"state,action\n{STATES[int(np.flatnonzero(mdp.initial)[0])]},up\n")
    said = run(tmp_path, "result", "--forbid", "closed.csv", "--out", tmp_path / "out")
    golden(said)
    assert len(said.splitlines()) < 60
    page = (tmp_path / "out" / "whatif.html").read_text(encoding="utf-8")
    golden(page)
    assert len(pd.read_csv(tmp_path / "out" / "whatif.csv")) == 15 * int(mdp.live.sum())


def test_outcomes_over_rounds_need_no_change(folder, tmp_path, golden):
    said = run(folder, "result", "--rounds", "5", "--out", tmp_path / "out")
    golden(said)
    saved = json.loads((tmp_path / "out" / "whatif.json").read_text())
    assert saved["options"]["rounds"] == 5
    assert "mean state" in {row["quantity"] for row in saved["outcomes"]}
    assert "--rounds must be a whole number" in run(folder, "result", "--rounds", "0", code=2)
    assert "--nudge must come without --rounds" in run(folder, "result", "--nudge", STATES[3], "--rounds", "5", code=2)


def test_groups_come_with_the_smallest_bonus(folder, tmp_path):
    (tmp_path / "who.csv").write_text(f"expert,group\n{NAMES[0]},near\nBo,far\nCy,far\n")
    asked = ["--nudge", STATES[3], "--groups", str(tmp_path / "who.csv"), "--out", tmp_path / "out"]
    run(folder, "result", *asked)
    saved = json.loads((tmp_path / "out" / "nudge.json").read_text())
    assert [(row["group"], row["persons"]) for row in saved["enough"]][::2] == [("", 3), ("near", 1), ("far", 2)]
    assert "The bonus that is enough" in (tmp_path / "out" / "nudge.html").read_text()
    assert "--groups must come with --nudge" in run(folder, "result", "--rounds", "5", *asked[2:4], code=2)
