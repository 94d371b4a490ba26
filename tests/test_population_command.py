"""`multihorizon fit --persons --formula`: group effects in the terminal, the files and the report, and bad input."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import FitOptions, app
from multihorizon.cli.console import population_of, read_decisions
from multihorizon.parallel import limited

TASK = mh.domains.space_adventure(mini_blocks=24)
PEOPLE = TASK.persons(10, seed=1, temperatures=2.0)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The files of a study, and the options that name them."""
    folder = tmp_path_factory.mktemp("study")
    PEOPLE.demonstrations.to_frame().to_csv(folder / "decisions.csv", index=False)
    TASK.mdp.to_npz(folder / "task.npz")
    PEOPLE.frame.to_csv(folder / "persons.csv", index=False)
    states = np.repeat(TASK.mdp.state_names, TASK.mdp.n_actions)
    points = {"state": states, "action": np.tile(TASK.mdp.action_names, TASK.mdp.n_states), "points": TASK.reward.ravel()}
    pd.DataFrame(points).to_csv(folder / "points.csv", index=False)
    return folder


def fit(study, *arguments):
    known = ["--transitions", study / "task.npz", "--known-reward", study / "points.csv", "--quick"]
    return CliRunner().invoke(app, ["fit", *map(str, [study / "decisions.csv", *known, *arguments])])


def recover(study, *arguments):
    known = ["--transitions", study / "task.npz", "--known-reward", study / "points.csv", "--studies", 2]
    return CliRunner().invoke(app, ["recover", *map(str, [study / "decisions.csv", *known, *arguments])])


@pytest.fixture(scope="module")
def compared(study):
    """What a fit with two covariates printed, and the folder that it wrote."""
    result = fit(study, "--persons", study / "persons.csv", "--formula", "~ group + age", "--out", study / "out")
    assert result.exit_code == 0, result.output
    return result, study / "out"


@pytest.mark.slow
def test_group_effects_come_first(compared, golden) -> None:
    result, out = compared
    assert result.output.index("group[T.training]") < result.output.index("Planning horizons")
    population = json.loads((out / "result.json").read_text())["population"]
    assert population["status"] == "converged"
    assert list(population["discount"]) == ["Intercept", "group[T.training]", "age"]
    for effect in population["discount"].values():
        assert effect["interval"][0] < effect["estimate"] < effect["interval"][1]
        assert 0 <= effect["p"] <= 1
    page = (out / "report.html").read_text()
    assert page.index("Groups and people") < page.index("Planning horizons")
    assert page.index("Do discounts differ with the covariates?") < page.index("How far do they look ahead?")
    pairs = population["contrasts"]["discount"]
    assert [(row["column"], row["p"]) for row in pairs] == [
        ("group", population["discount"]["group[T.training]"]["p"]),
        ("age", population["discount"]["age"]["p"]),
    ]
    assert all(row["p"] > 0.05 for row in pairs)
    golden(page)
    opening = json.loads((out / "result.json").read_text())["answer"]
    golden(opening)
    assert opening in " ".join(result.output.split())


@pytest.mark.slow
def test_a_factor_of_three_levels_has_one_test_in_terminal_files_and_report(study, tmp_path, golden) -> None:
    PEOPLE.frame.assign(site=np.resize(["a", "b", "c"], 10)).to_csv(tmp_path / "persons.csv", index=False)
    result = fit(study, "--persons", tmp_path / "persons.csv", "--formula", "~ site", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    test = json.loads((tmp_path / "out" / "result.json").read_text())["population"]["factors"]["discount"]["site"]
    assert test["degrees"] == [2, 7]
    assert test["terms"] == ["site[T.b]", "site[T.c]"]
    shown = f"F(2, 7) = {test['F']:.2f}"
    assert shown in result.output
    page = (tmp_path / "out" / "report.html").read_text()
    assert shown in page
    assert all(f">site = {name}</text>" in page for name in "abc")  # the legend of the groups' figure
    golden(result.output)


@pytest.mark.slow
def test_the_finding_says_who_looks_further_ahead_and_who_chooses_more_at_random(tmp_path, golden) -> None:
    task = mh.domains.space_adventure(mini_blocks=40)
    old = np.resize([True, False], 16)
    people = task.persons(16, seed=1, discounts=np.where(old, 0.5, 0.9), temperatures=np.where(old, 6.0, 2.0))
    people.demonstrations.to_frame().to_csv(tmp_path / "decisions.csv", index=False)
    task.mdp.to_npz(tmp_path / "task.npz")
    points = (
        pd.DataFrame(task.reward, index=task.mdp.state_names, columns=task.mdp.action_names).rename_axis("state").reset_index()
    )
    points.melt("state", var_name="action", value_name="points").to_csv(tmp_path / "points.csv", index=False)
    frame = people.frame.assign(cohort=np.where(old, "old", "young"), years=np.where(old, 70.0, 20.0) + np.arange(16) % 3)
    frame.to_csv(tmp_path / "persons.csv", index=False)
    for formula, reference in (("~ cohort", ["--reference", "cohort=young"]), ("~ years", [])):
        result = fit(tmp_path, "--persons", tmp_path / "persons.csv", "--formula", formula, *reference, "--out", tmp_path / "out")
        assert result.exit_code == 0, result.output
        output, page = " ".join(result.output.split()), (tmp_path / "out" / "report.html").read_text()
        golden(output, page)
        (pair,) = json.loads((tmp_path / "out" / "result.json").read_text())["population"]["contrasts"]["discount"]
        assert max(pair["typical"]) == pytest.approx(0.9, abs=0.05)
        assert min(pair["typical"]) == pytest.approx(0.5, abs=0.1)
        reach = [1 + g + g**2 for g in pair["typical"]]  # of a task of three steps
        assert pair["steps"] == pytest.approx(reach)
        low, high = sorted(reach)
        assert f"or {high:.1f} and {low:.1f} steps, " in output


def test_a_reference_that_is_none_is_refused(study) -> None:
    asked = ["--persons", study / "persons.csv", "--formula", "~ group"]
    for options, said in (
        ((*asked, "--reference", "group"), "--reference must be COLUMN=GROUP, once for each column, got group"),
        ((*asked, "--reference", "group=HC"), "reference of group must be one of control, training, got HC"),
        ((*asked, "--reference", "site=a"), "reference must name a column of the formula '~ group', got site"),
        (("--reference", "group=control"), "--reference must come with --formula that names columns"),
    ):
        result = fit(study, *options)
        assert result.exit_code == 2
        assert said in " ".join(result.output.split())


def test_people_gain_shrunken_values_and_covariates(compared) -> None:
    people = pd.read_csv(compared[1] / "people.csv").set_index("expert")
    result = json.loads((compared[1] / "result.json").read_text())
    shrunken = dict(zip(result["experts"], result["population"]["discounts"], strict=True))
    for expert, row in people.iterrows():
        assert row["shrunken_discount"] == pytest.approx(shrunken[str(expert)])
        assert row["shrunken_low"] < row["shrunken_discount"] < row["shrunken_high"]
        assert row["covariate_group"] == PEOPLE.frame.set_index("expert").loc[str(expert), "group"]


def test_without_persons_nothing_is_said_of_a_population(study, tmp_path) -> None:
    result = fit(study, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "out" / "result.json").read_text())["population"] is None
    assert "Groups and people" not in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("formula", "change", "said"),
    [
        (None, lambda frame: frame, "--persons must come with --formula"),
        ("", lambda frame: frame, "--persons must come with --formula"),
        ("~ grp", lambda frame: frame, "names grp"),
        ("~ group +", lambda frame: frame, "must join columns by +"),
        ('~ np.save("x", age)', lambda frame: frame, "must not hold \"np.save('x', age)\": use columns, numbers, operators"),
        ('~ __import__("os").system("touch x")', lambda frame: frame, "must not hold"),
        ("~ age + months", lambda frame: frame.assign(months=12 * frame["age"]), "must add something to Intercept, age"),
        ("~ site", lambda frame: frame.assign(site="s" + frame["expert"]), "got nobody who can be compared"),
        ("~ site", lambda frame: frame.assign(site=["a", *"b" * 9]), "without 1 (the only one of their site)"),
        ("~ age", lambda frame: frame.assign(age=["forty", *range(9)]), "must hold numbers, as for most, got 'forty' for 1"),
        ("~ age", lambda frame: frame.assign(age=[1e300, *range(9)]), "must be neither above 1e100 nor all below 1e-100"),
        ("~ group", lambda frame: frame.rename(columns={"expert": "who"}), "must have the columns expert"),
        ("~ site", lambda frame: frame.assign(site=1), "must vary"),
    ],
)
@pytest.mark.parametrize("command", [fit, recover])
def test_bad_input_gets_one_sentence_and_nothing_is_written(study, tmp_path, formula, change, said, command, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    change(PEOPLE.frame).to_csv(tmp_path / "persons.csv", index=False)
    asked = [] if formula is None else ["--formula", formula]
    result = command(study, "--persons", tmp_path / "persons.csv", *asked, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())
    assert [path.name for path in tmp_path.iterdir()] == ["persons.csv"]


@pytest.mark.slow
def test_persons_without_covariates_are_left_out_and_named_everywhere(study, tmp_path) -> None:
    frame = PEOPLE.frame.astype({"age": object})
    frame["age"] = ["NA", "", "n/a", *frame["age"][3:]]
    frame.iloc[:-1].to_csv(tmp_path / "persons.csv", index=False)
    asked = ["--persons", tmp_path / "persons.csv", "--formula", "~ age"]
    result = fit(study, *asked, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    said = "4 of 10 people are left out of the comparison: 10 (no row in the table of people); 1, 2, 3 (no age)."
    assert said in " ".join(result.output.split())
    assert said in (tmp_path / "out" / "report.html").read_text()
    population = json.loads((tmp_path / "out" / "result.json").read_text())["population"]
    assert population["left_out"] == {"10": "no row in the table of people", **dict.fromkeys("123", "no age")}
    assert population["experts"] == ["4", "5", "6", "7", "8", "9"]
    people = pd.read_csv(tmp_path / "out" / "people.csv", dtype={"expert": str}).set_index("expert")
    assert len(people) == 10
    for name in people.index:
        gone = name in population["left_out"]
        assert np.isnan(people.loc[name, "shrunken_discount"]) == gone
        assert ("left out of the comparison" in str(people.loc[name, "flags"])) == gone
    for options, said in (
        ((*asked, "--missing", "fail"), "got 10 (no row in the table of people); 1, 2, 3 (no age)"),
        ((*asked, "--missing", "ignore"), "--missing must be drop or fail, got ignore"),
        (("--missing", "fail"), "--missing must come with --formula that names columns"),
    ):
        result = fit(study, *options)
        assert result.exit_code == 2
        assert said in " ".join(result.output.split())


def test_known_discounts_leave_nothing_to_explain(study) -> None:
    result = fit(study, "--persons", study / "persons.csv", "--formula", "~ group", "--discount", "0.9")
    assert result.exit_code == 2
    assert "leave out --discount" in " ".join(result.output.split())


@pytest.mark.slow
def test_a_free_distribution_is_shown_in_the_terminal_the_files_and_the_report(study, tmp_path, golden) -> None:
    result = fit(study, "--formula", "~ 1", "--distribution", "free", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    golden(result.output)
    written = json.loads((tmp_path / "out" / "result.json").read_text())
    found = written["population"]["distribution"]["everyone"]
    assert sum(found["weights"]) == pytest.approx(1)
    assert found["gap"] <= 1e-5
    assert found["log_likelihood"] > found["normal_log_likelihood"]
    assert written["options"]["distribution"] == "free"
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("Groups and people") < page.index("How horizons are distributed") < page.index("Planning horizons")


def test_a_free_distribution_that_cannot_be_had_is_refused(study) -> None:
    for arguments, words in (
        (["--distribution", "free"], "--distribution free must come with --formula"),
        (["--formula", "~ 1", "--distribution", "kinds"], "--distribution must be normal, free or types, got kinds"),
        (["--persons", study / "persons.csv", "--formula", "~ age", "--distribution", "free"], "got the numbers of age"),
    ):
        result = fit(study, *arguments)
        assert result.exit_code == 2
        assert words in " ".join(result.output.split())


@pytest.fixture(scope="module")
def conditions(tmp_path_factory):
    """A study under two conditions: decisions with the column noise, the episodes of a table of their own, and people."""
    folder = tmp_path_factory.mktemp("conditions")
    frame = PEOPLE.demonstrations.to_frame()
    number = frame["episode"].astype(int)
    frame.to_csv(folder / "plain.csv", index=False)
    frame.assign(noise=np.where(number % 2, "high", "low"), block=number // 4).to_csv(folder / "decisions.csv", index=False)
    episodes = frame.drop_duplicates(["expert", "episode"])[["expert", "episode"]]
    number = episodes["episode"].astype(int)
    episodes.assign(noise=np.where(number % 2, "high", "low"), minutes=number / 2).to_csv(folder / "episodes.csv", index=False)
    PEOPLE.frame.to_csv(folder / "persons.csv", index=False)
    return folder


def read(folder, demos: str, formula: str, **given: str):
    """The tables of a command line, and its remarks."""
    files = {name: folder / file for name, file in given.items()}
    options = FitOptions([folder / demos], formula=formula, **files)
    return read_decisions(options, population_of(options, mh.MaximumLikelihood()))


def test_columns_of_the_formula_are_read_where_they_are(conditions) -> None:
    (table,), remarks = read(conditions, "decisions.csv", "~ noise + group", persons="persons.csv")
    assert list(table.conditions) == ["noise"]
    assert remarks == []
    (beside,), remarks = read(conditions, "plain.csv", "~ noise + group", persons="persons.csv", episodes="episodes.csv")
    assert remarks == []
    pd.testing.assert_frame_equal(beside.conditions, table.conditions, check_dtype=False)
    (both,), _ = read(conditions, "decisions.csv", "~ block + minutes", episodes="episodes.csv")
    assert list(both.conditions) == ["block", "minutes"]
    assert read(conditions, "decisions.csv", "~ group", persons="persons.csv")[0][0].conditions is None
    assert read(conditions, "decisions.csv", "~ 1")[0][0].conditions is None


def test_rows_about_other_episodes_are_left_out_and_counted(conditions, tmp_path) -> None:
    episodes = pd.read_csv(conditions / "episodes.csv", dtype=str)
    pd.concat([episodes, pd.DataFrame({"expert": ["nobody"], "episode": ["0"]})]).to_csv(tmp_path / "more.csv", index=False)
    (table,), remarks = read(conditions, "plain.csv", "~ noise", episodes=tmp_path / "more.csv")
    assert table.conditions["noise"].notna().all()
    assert remarks == ["1 row of more.csv is about an episode that no table of decisions has, and was left out."]
    episodes.iloc[3:].to_csv(tmp_path / "fewer.csv", index=False)
    (table,), _ = read(conditions, "plain.csv", "~ noise", episodes=tmp_path / "fewer.csv")
    assert table.conditions["noise"].isna().sum() == 3


def change(column: str, place: int, value: object):
    def changed(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.astype({column: object})
        frame.loc[place, column] = value
        return frame

    return changed


@pytest.mark.parametrize(
    ("formula", "decisions", "episodes", "said"),
    [
        ("~ noise", change("noise", 3, "none"), None, "condition noise must be the same in a whole episode, got 'none'"),
        (
            "~ sound",
            None,
            None,
            "'~ sound' names sound, which no table has: {0}/persons.csv has group, age; {0}/d.csv has noise,",
        ),
        ("~ age", lambda f: f.assign(age=30), None, "column age must be in one table, got it in {0}/persons"),
        ("~ noise", None, lambda f: f, "got it in {0}/e.csv and in {0}/d.csv: drop it from one of them"),
        ("~ group", None, lambda f: f, "e.csv must have a column that the formula names, got none: leave it out"),
        ("~ 1", None, lambda f: f, "--episodes must come with --formula that names its columns, got none"),
        ("~ minutes", None, lambda f: pd.concat([f, f[:1]]), "there must be one row for episode 0 of expert 1, got another"),
        ("~ minutes", None, lambda f: f.drop(columns="episode"), "must have the columns expert, episode, got none named"),
        (
            "~ minutes",
            None,
            lambda f: f.assign(expert="x" + f["expert"]),
            "about episodes of {0}/d.csv, got none that is there",
        ),
        ("~ state", None, lambda f: f.assign(state="x"), "a condition must be another column than expert, episode, step, state"),
    ],
)
def test_conditions_that_cannot_be_used_get_one_sentence(conditions, tmp_path, formula, decisions, episodes, said) -> None:
    frame = pd.read_csv(conditions / "decisions.csv", dtype=str)
    (frame if decisions is None else decisions(frame)).to_csv(tmp_path / "d.csv", index=False)
    PEOPLE.frame.to_csv(tmp_path / "persons.csv", index=False)
    asked = ["--persons", tmp_path / "persons.csv", "--formula", formula]
    if episodes is not None:
        episodes(pd.read_csv(conditions / "episodes.csv", dtype=str)).to_csv(tmp_path / "e.csv", index=False)
        asked += ["--episodes", tmp_path / "e.csv"]
    result = CliRunner().invoke(app, ["fit", *map(str, [tmp_path / "d.csv", *asked])])
    assert result.exit_code == 2, result.output
    assert said.format(tmp_path) in " ".join(result.output.split())


def test_vectors_take_no_conditions(conditions) -> None:
    path = str(conditions / "decisions.csv")
    result = CliRunner().invoke(app, ["fit", path, "--state", "block", "--episodes", str(conditions / "episodes.csv")])
    assert result.exit_code == 2
    assert "--state must come without --episodes" in " ".join(result.output.split())


@pytest.mark.slow
def test_conditions_give_one_answer_whichever_way_they_are_read(study, conditions, tmp_path) -> None:
    known = ["--transitions", study / "task.npz", "--known-reward", study / "points.csv", "--quick"]
    asked = ["--formula", "~ noise + group", "--persons", conditions / "persons.csv"]

    def answer(demos: str, *others: object, files: tuple[str, ...] = ("people.csv",)) -> dict:
        out = tmp_path / "out"
        result = CliRunner().invoke(app, ["fit", *map(str, [conditions / demos, *known, *asked, *others, "--out", out])])
        assert result.exit_code == 0, result.output
        assert all((out / file).exists() for file in files)
        found = json.loads((out / "result.json").read_text())
        return found["population"] | {"options": found["options"]}

    within = answer("decisions.csv")
    assert list(within["discount"]) == ["Intercept", "noise[T.low]", "group[T.training]"]
    beside = answer("plain.csv", "--episodes", conditions / "episodes.csv")
    assert beside["options"]["episodes"] == "episodes.csv"
    frame = pd.read_csv(conditions / "decisions.csv", dtype=str, keep_default_na=False)
    frame.assign(note="x" * (16_000_000 // len(frame))).to_csv(conditions / "large.csv", index=False)
    with limited(alone=9):
        many = answer("large.csv", files=("people.parquet", "conditions.parquet"))
    for other in (beside, many):
        for name in ("discount", "temperature", "spread", "variance"):
            assert other[name] == within[name]


@pytest.mark.slow
def test_reward_and_transitions_are_both_estimated(tmp_path) -> None:
    """Eight people who save, without rules: tables of drawn transitions cut patches that those of the fit read afterwards."""
    moves, earned = np.zeros((3, 6, 6)), np.zeros((6, 3, 2))
    for wealth in range(6):
        for spent in range(3):
            left = wealth - min(spent, wealth)
            earned[wealth, spent] = np.sqrt(wealth - left), left == 0
            for income, chance in enumerate((0.5, 0.3, 0.2)):
                moves[spent, wealth, min(left + income, 5)] += chance
    mdp = mh.MDP(moves, state_names=[f"w{i}" for i in range(6)], action_names=["save", "one", "two"])
    logits = 0.5 + np.arange(8) % 2 + 0.4 * np.random.default_rng(0).normal(size=8)
    policies = [mh.soft_plan(mdp, earned @ [1.0, -1.0], float(expit(x)), 0.5).policy for x in logits]
    table = mh.Demonstrations.simulate(mdp, policies, 4, max_steps=30, names=[f"p{i}" for i in range(8)])
    table.to_csv(tmp_path / "decisions.csv")
    pd.DataFrame({"expert": table.experts, "group": ["a", "b"] * 4}).to_csv(tmp_path / "persons.csv", index=False)
    places = {"state": np.repeat(mdp.state_names, 3), "action": np.tile(mdp.action_names, 6)}
    features = pd.DataFrame(earned.reshape(-1, 2), columns=["spent", "broke"]).assign(**places)
    features.to_csv(tmp_path / "features.csv", index=False)
    files = ["--features", tmp_path / "features.csv", "--persons", tmp_path / "persons.csv"]
    arguments = [tmp_path / "decisions.csv", *files, "--formula", "~ group", "--cut-off", "--quick", "--out", tmp_path / "out"]
    result = CliRunner().invoke(app, ["fit", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    effect = json.loads((tmp_path / "out" / "result.json").read_text())["population"]["discount"]["group[T.b]"]
    assert effect["interval"][0] < effect["estimate"] < effect["interval"][1]
