"""Very many people: what `analyse` and `multihorizon fit` find, say, write and draw where nobody is fitted alone."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.special import expit
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.analysis import Analysis, of_people
from multihorizon.cli import app
from multihorizon.horizon import Horizon
from multihorizon.parallel import limited
from multihorizon.problem import CountedTask
from multihorizon.questions.differences import difference_words
from multihorizon.report.files import write_fit
from multihorizon.report.fit_page import fit_page
from multihorizon.solution import Status

TASK = mh.domains.space_adventure(mini_blocks=24)
PEOPLE = TASK.persons(10, seed=1, temperatures=2.0)


@pytest.fixture(autouse=True)
def few_are_a_crowd():
    with limited(alone=9):
        yield


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The files of a study."""
    folder = tmp_path_factory.mktemp("study")
    PEOPLE.demonstrations.to_frame().to_csv(folder / "decisions.csv", index=False)
    TASK.mdp.to_npz(folder / "task.npz")
    PEOPLE.frame.to_csv(folder / "persons.csv", index=False)
    states = np.repeat(TASK.mdp.state_names, TASK.mdp.n_actions)
    points = {"state": states, "action": np.tile(TASK.mdp.action_names, TASK.mdp.n_states), "points": TASK.reward.ravel()}
    pd.DataFrame(points).to_csv(folder / "points.csv", index=False)
    return folder


def fit(study, *arguments):
    known = ["--transitions", study / "task.npz", "--known-reward", study / "points.csv"]
    return CliRunner().invoke(app, ["fit", *map(str, [study / "decisions.csv", *known, *arguments])])


def said(result) -> str:
    return " ".join(result.output.split())


@pytest.fixture(scope="module")
def solution():
    problem = mh.Problem(TASK.mdp, PEOPLE.demonstrations)
    return mh.solve(problem, mh.Population("~ group", PEOPLE.frame, known_reward=TASK.reward, nodes=5))


def analysed(solution: mh.Solution) -> Analysis:
    """What is known of the people of a solution."""
    return of_people(solution, solution.problem, 240, ["A remark."])


@pytest.mark.slow
def test_a_crowd_is_fitted_as_one_and_its_words_are_those_of_a_small_study(study, tmp_path, golden) -> None:
    asked = ["--persons", study / "persons.csv", "--formula", "~ group", "--out", tmp_path / "out"]
    with limited(alone=10):
        few = fit(study, "--quick", *asked)
    assert few.exit_code == 0, few.output
    one_by_one = json.loads((tmp_path / "out" / "result.json").read_text())
    many = fit(study, *asked)
    assert many.exit_code == 0, many.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "people.parquet",
        "report.html",
        "result.json",
        "reward.csv",
        "solution.json",
        "task.npz",
    ]
    golden(many.output)
    start, end = "Effects on the logit of the discount", "where 0 is no knowledge and 1 is exact."
    part = said(many)[said(many).index(start) : said(many).index(end)]
    assert part in said(few)
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    population, before = found["population"], one_by_one["population"]
    for name in ("discount", "temperature", "contrasts", "spread", "predictions", "degrees", "persons", "status"):
        assert population[name] == before[name]
    for name in ("experts", "groups", "covariates", "individuals", "discounts", "intervals", "temperatures"):
        assert population[name] == "people.parquet"
    for name in ("experts", "discounts", "intervals", "temperatures", "decisions_by_expert"):
        assert found[name] == "people.parquet"
    assert found["decisions"] == one_by_one["decisions"]
    assert found["options"]["formula"] == "~ group"
    rows = pd.read_parquet(tmp_path / "out" / "people.parquet").set_index("expert")
    assert list(rows.index) == before["experts"]
    assert rows["shrunken_discount"].tolist() == before["discounts"]
    assert rows[["shrunken_low", "shrunken_high"]].to_numpy().tolist() == before["intervals"]
    assert rows["shrunken_temperature"].tolist() == before["temperatures"]
    assert rows["reliability"].tolist() == before["individuals"]["discount_reliability"]
    assert rows["covariate_group"].tolist() == before["covariates"]["group"]
    assert rows["decisions"].tolist() == one_by_one["decisions_by_expert"]
    assert (rows["left_out"] == "").all()
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("Do discounts differ with the covariates?") < page.index("How far do they look ahead?")
    golden(page)
    with limited(alone=10):
        assert fit(study, "--quick", "--out", tmp_path / "out").exit_code == 0
    assert not (tmp_path / "out" / "people.parquet").exists()


def test_persons_who_cannot_be_compared_are_named_and_keep_their_row(study, tmp_path) -> None:
    frame = PEOPLE.frame.astype({"age": object})
    frame["age"] = ["NA", *frame["age"][1:]]
    frame.iloc[:-1].to_csv(tmp_path / "persons.csv", index=False)
    asked = ["--persons", tmp_path / "persons.csv", "--formula", "~ age", "--out", tmp_path / "out"]
    result = fit(study, *asked)
    assert result.exit_code == 0, result.output
    words = "2 of 10 people are left out of the comparison: 10 (no row in the table of people); 1 (no age)."
    assert words in said(result)
    assert words in (tmp_path / "out" / "report.html").read_text()
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert found["population"]["left_out"] == {"no row in the table of people": 1, "no age": 1}
    rows = pd.read_parquet(tmp_path / "out" / "people.parquet").set_index("expert")
    assert len(rows) == 10
    absent = {"10": "no row in the table of people", "1": "no age"}
    assert rows["left_out"].to_dict() == {name: absent.get(name, "") for name in rows.index}
    for column in ("shrunken_discount", "shrunken_low", "reliability", "covariate_age"):
        assert (rows[column].isna() == (rows["left_out"] != "")).all()
    assert (rows["decisions"] > 0).all()
    refused = fit(study, *asked[:4], "--missing", "fail")
    assert refused.exit_code == 2
    assert "got 10 (no row in the table of people); 1 (no age)" in said(refused)


@pytest.mark.parametrize(
    ("formula", "change", "words"),
    [
        ("~ grp", lambda frame: frame, "names grp"),
        ("~ site", lambda frame: frame.assign(site=["a", *"b" * 9]), "without 1 (the only one of their site)"),
        ("~ site", lambda frame: frame.assign(site=1), "must vary"),
        ("~ group", lambda frame: frame.assign(expert="x" + frame["expert"]), "got nobody who can be compared"),
    ],
)
def test_bad_input_gets_the_same_sentence_and_nothing_is_written(study, tmp_path, formula, change, words) -> None:
    change(PEOPLE.frame).to_csv(tmp_path / "persons.csv", index=False)
    result = fit(study, "--persons", tmp_path / "persons.csv", "--formula", formula, "--out", tmp_path / "out")
    assert result.exit_code == 2, result.output
    assert words in said(result)
    assert [path.name for path in tmp_path.iterdir()] == ["persons.csv"]


def test_what_is_asked_of_each_person_is_refused(study) -> None:
    asked = ["--persons", study / "persons.csv", "--formula", "~ group"]
    for option, words in ((["--pairs"], "pairs must be left out"), (["--lookahead", "all"], "lookahead must be left out")):
        result = fit(study, *asked, *option)
        assert result.exit_code == 2
        assert words in said(result)


@pytest.mark.slow
def test_without_a_population_many_experts_are_fitted_one_by_one() -> None:
    domain = mh.domains.cliff()
    table = mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 100)
    with limited(alone=1):
        assert mh.analyse(table, [domain.mdp], quick=True, deviations=0.0).people is None


def test_numbers_that_may_not_be_used_are_given_nowhere(solution, tmp_path, golden) -> None:
    found = analysed(replace(solution, status=Status.NOT_CONVERGED, message="The search ended early."))
    assert found.warnings == ["Do not use these numbers. The population could not be estimated. The search ended early."]
    assert found.sentences() == found.warnings[0]
    assert {verdict.kind for verdict in found.verdicts} == {"bad"}
    assert found.people.groups == []
    frame = found.to_frame()
    assert frame[["shrunken_discount", "shrunken_low", "shrunken_high", "shrunken_temperature", "reliability"]].isna().all().all()
    write_fit(tmp_path / "out", found, {})
    page = (tmp_path / "out" / "report.html").read_text()
    golden(page)
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["withheld"] == found.withheld
    assert content["by_group"] == {}
    assert content["quartiles"] is None


def test_decisions_at_random_say_nothing(solution) -> None:
    by_chance = -float(solution.evidence["decisions"]) * np.log(2)
    assert analysed(solution).withheld == ""
    evidence = replace(solution.evidence, log_likelihood=by_chance + 1.0)
    found = analysed(replace(solution, evidence=evidence))
    assert found.people.compared_chance == pytest.approx(by_chance)
    assert found.withheld == "These decisions are no likelier than by chance, so they say nothing about discounts."
    assert found.verdicts[-1].answer == "No"
    assert found.to_frame()["shrunken_discount"].isna().all()


def test_the_fit_is_compared_with_chance(solution) -> None:
    found = analysed(solution)
    explained = 1 - solution.objective / found.people.compared_chance
    assert f"the model explains {100 * explained:.0f}% of it." in found.verdicts[-1].reasons


def test_quartiles_are_those_of_persons_and_not_of_shrunken_values(solution) -> None:
    """People who are drawn from the posteriors have these quartiles."""
    found, rng = analysed(solution), np.random.default_rng(0)
    known = found.people.population.individuals
    drawn = expit(known["logit_discount"] + known["logit_discount_error"] * rng.standard_normal((100_000, 10)))
    assert found.people.quartiles == pytest.approx(np.quantile(drawn, [0.25, 0.5, 0.75]), abs=0.01)


def test_groups_are_summed_up(solution) -> None:
    found = analysed(solution)
    frame = found.to_frame()
    assert [group.name for group in found.people.groups] == ["group = control", "group = training"]
    for group in found.people.groups:
        rows = frame[frame["covariate_group"] == group.name.removeprefix("group = ")]
        assert group.persons == len(rows)
        assert group.decisions == rows["decisions"].sum()
        assert group.middle == pytest.approx(tuple(np.quantile(rows["shrunken_discount"], [0.25, 0.5, 0.75])))
        assert group.reliability == pytest.approx(rows["reliability"].mean())


def enlarged(solution: mh.Solution, persons: int, groups: int) -> Analysis:
    """The same people again and again, in so many groups."""
    pick, found = np.arange(persons) % len(solution.experts), solution.evidence["population"]
    names = [f"site = {i}" for i in range(groups)]
    pairs = [{**found.contrasts["discount"][0], "adjusted": (1 + i) / (groups * 5)} for i in range(5 * groups)]
    population = replace(
        found,
        persons=persons,
        groups=np.array(names, dtype=object)[np.arange(persons) % groups],
        covariates={"site": np.arange(persons) % groups},
        individuals={name: values[pick] for name, values in found.individuals.items()},
        predictions=dict.fromkeys(names, found.predictions["group = control"]),
        contrasts={**found.contrasts, "discount": pairs},
    )
    problem = solution.problem
    tasks = tuple(replace(task, counts=task.counts[pick]) for task in problem.tasks)
    many = replace(
        solution,
        experts=tuple(f"p{i}" for i in range(persons)),
        discounts=solution.discounts[pick],
        temperature=solution.temperature[pick],
        standard_errors=solution.standard_errors[pick],
        evidence=replace(solution.evidence, population=population, log_likelihood=solution.objective * persons / 10),
        interval_source=None,
        problem=None,
    )
    everybody = mh.Problem.of_tasks(many.experts, problem.parameter_names, tasks)
    return of_people(many, everybody, 24 * persons, [])


def test_the_page_stays_small_with_many_persons_and_many_groups(solution, golden) -> None:
    few = len(fit_page(enlarged(solution, 100, 2), {}).render())
    assert len(fit_page(enlarged(solution, 3_000, 2), {}).render()) < 1.1 * few
    page = fit_page(enlarged(solution, 4_000, 2_000), {}).render()
    assert len(page) < 2_000_000
    golden(page)


def test_labels_are_shown_as_they_are(solution) -> None:
    found = solution.evidence["population"]
    names = {"group = control": "group = <b>&", "group = training": "group = x"}
    population = replace(
        found,
        groups=np.array([names[name] for name in found.groups], dtype=object),
        predictions={names[name]: group for name, group in found.predictions.items()},
    )
    page = fit_page(analysed(replace(solution, evidence=replace(solution.evidence, population=population))), {}).render()
    assert "<b>&" not in page
    assert "group = &lt;b&gt;&amp;" in page


def test_the_model_explains_a_share_of_chance_in_each_group(solution, golden) -> None:
    found = analysed(solution)
    own = found.people.population.individuals["log_likelihood"]
    assert own.sum() == pytest.approx(solution.objective)
    for group in found.people.groups:
        here = found.people.population.groups == group.name
        assert group.explained == pytest.approx(1 - own[here].sum() / found.people.chance[here].sum())
    golden(fit_page(found, {}).render())


def test_without_covariates_and_with_an_unknown_reward_there_is_a_page_too(tmp_path, golden) -> None:
    def tied(mdp: mh.MDP):
        return TASK.features, TASK.feature_names

    found = mh.analyse(PEOPLE.demonstrations, [TASK.mdp], tied, population=mh.Population("~ 1", ridge=0.01))
    assert found.people is not None
    assert len(found.verdicts) == 3
    assert found.warnings[0].startswith("A penalty on large rewards (ridge 0.01) was asked for.")
    assert [group.name for group in found.people.groups] == ["everyone"]
    golden(found.headline)
    write_fit(tmp_path / "out", found, {})
    assert list(pd.read_csv(tmp_path / "out" / "reward.csv")["parameter"]) == list(TASK.feature_names)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "is jump" in page
    golden(page)


def test_very_many_people_are_never_made_dense() -> None:
    """Dense counts of all of them would take 32 terabytes."""
    n, side = 100_000, 100
    mdp = mh.domains.gridworld(side, side, terminal=[(side - 1, side - 1)])
    rows = mdp.n_states * mdp.n_actions
    counts = sp.csr_array((np.ones(n), (np.arange(n), np.arange(n) % side)), shape=(n, rows))
    problem = mh.Problem.of_tasks(tuple(map(str, range(n))), mdp.state_names, [CountedTask(mdp, counts)])
    joined = mh.Problem.join(
        problem, problem.some(np.arange(0, n, 2)).in_tasks(lambda task: task.with_probabilities(task.stacked.data))
    )
    for made in (problem, pickle.loads(pickle.dumps(problem)), joined.by_person()):
        assert made.n_experts == n
        assert made.experts[150].counts.sum() == 1
        assert made.experts[150].name == "150"
    assert (len(problem.experts), len(joined.experts), len(joined.mdps)) == (n, n + n // 2, 2)
    with pytest.raises(ValueError, match="experts who are fitted together in 10,000 states with 4 actions would take about"):
        mh.solve(problem, mh.MaximumLikelihood())


def test_everybody_of_a_population_has_a_policy(solution) -> None:
    policies = solution.policies()
    assert [policy.shape for policy in policies] == [(TASK.mdp.n_states, TASK.mdp.n_actions)] * solution.problem.n_experts


def test_of_many_groups_only_the_most_different_are_named(solution, golden) -> None:
    found = solution.evidence["population"]
    pair = found.contrasts["discount"][0]
    pairs = [
        {**pair, "column": "site", "levels": [f"s{i}", f"t{i}"], "estimate": float(i), "adjusted": 0.001, "p": 0.001}
        for i in range(1, 101)
    ]
    effects = {**found.discount, "site[T.b]": {**found.discount["Intercept"], "p": 0.001}}
    population = replace(
        found,
        discount=effects,
        discount_covariance=np.eye(len(effects)),
        contrasts={"discount": pairs, "temperature": []},
        columns_of={**found.columns_of, "site[T.b]": ["site"]},
    )
    words = " ".join(difference_words(replace(solution, evidence=replace(solution.evidence, population=population)), Horizon(3)))
    golden(words)
    population = replace(population, contrasts={"discount": pairs, "temperature": pairs})
    words = " ".join(difference_words(replace(solution, evidence=replace(solution.evidence, population=population)), Horizon(3)))
    golden(words)
    assert words.count("chooses more at random than") == 3
    assert words.index("The t100 group chooses") < words.index("The t99 group chooses") < words.index("The t98 group chooses")


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_opens_without_errors_and_without_sideways_scroll(tab, solution, tmp_path, width) -> None:
    problem = mh.Problem(TASK.mdp, PEOPLE.demonstrations)
    many = mh.solve(problem, mh.Population("~ group", PEOPLE.frame, known_reward=TASK.reward))
    fit_page(of_people(many, problem, 240, []), {}).write(tmp_path / "report.html")
    tab.open(tmp_path / "report.html", width)
    assert tab.errors == []
    assert tab.run("document.documentElement.scrollWidth") <= width
    shown = "[...document.querySelectorAll('svg.chart g.in-steps')].some((g) => g.getClientRects().length)"
    assert not tab.run(shown)
    tab.click("input.unit[value=steps]")
    assert tab.run(shown)
    places = "[...document.querySelectorAll('.explorer select option')].map((o) => o.textContent)"
    assert "group = training" in " ".join(tab.run(places))
