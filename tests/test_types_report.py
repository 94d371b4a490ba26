"""Types of people, or of episodes without a name, in the terminal, the files and the report."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.analysis import of_people
from multihorizon.cli import app
from multihorizon.report.fit_page import fit_page

CLIFF = mh.domains.cliff()
POLICIES = [mh.soft_plan(CLIFF.mdp, CLIFF.reward, gamma).policy for gamma in (0.2, 0.8)]
WALKS = mh.Demonstrations.simulate(CLIFF.mdp, POLICIES, episodes=60, seed=0)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Episodes of two types, without names."""
    folder = tmp_path_factory.mktemp("types")
    frame = WALKS.to_frame()
    frame["episode"] = frame.pop("expert") + "/" + frame["episode"]
    frame.to_csv(folder / "decisions.csv", index=False)
    CLIFF.mdp.to_npz(folder / "task.npz")
    pd.DataFrame({"state": CLIFF.mdp.state_names, "reward": CLIFF.reward}).to_csv(folder / "reward.csv", index=False)
    return folder


def fit(study, *arguments):
    known = ["--transitions", study / "task.npz", "--known-reward", study / "reward.csv"]
    return CliRunner().invoke(app, ["fit", *map(str, [study / "decisions.csv", *known, *arguments])])


def test_episodes_without_a_name_are_told_by_type(study, tmp_path, golden) -> None:
    result = fit(study, "--distribution", "types", "--types", 2, "--out", tmp_path)
    assert result.exit_code == 0, result.output
    said = " ".join(result.output.split())
    golden(said)
    found = json.loads((tmp_path / "result.json").read_text())
    types = found["population"]["types"]
    assert types["discounts"][0] == pytest.approx(0.2, abs=0.1)
    assert found["options"]["types"] == 2
    people = pd.read_parquet(tmp_path / "people.parquet")
    assert len(people) == 120
    shares = people[["share_of_type_1", "share_of_type_2"]].to_numpy()
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert people["type"].tolist() == (1 + shares.argmax(axis=1)).tolist()
    assert people["type"].value_counts().sort_index().tolist() == types["likeliest"]
    page = (tmp_path / "report.html").read_text()
    golden(page)


def test_persons_can_be_of_types_too(tmp_path, golden) -> None:
    population = mh.Population(distribution="types", types=2)
    found = mh.analyse(WALKS, [CLIFF.mdp], population=population, known_reward=lambda mdp: CLIFF.reward)
    assert found.people is not None
    assert found.to_frame()["expert"].tolist() == ["0", "1"]
    golden(found.sentences())
    assert [answer.answer for answer in found.verdicts][-1] == "No misfit detected"


def test_what_is_assumed_of_an_unknown_reward_is_said_of_types_too(golden) -> None:
    found = mh.analyse(WALKS, [CLIFF.mdp], population=mh.Population(distribution="types", types=2))
    golden(found.sentences())


def test_a_type_without_a_discount_takes_the_others_not_along(golden) -> None:
    """Those that are identified keep theirs, and nobody is told to give a reward that was given."""
    population = mh.Population(distribution="types", types=2)
    found = mh.analyse(WALKS.unnamed(), [CLIFF.mdp], population=population, known_reward=lambda mdp: CLIFF.reward)
    known = found.people.population
    types = known.types | {"identified": [True, False], "intervals": [known.types["intervals"][0], [np.nan, np.nan]]}
    evidence = replace(found.people.evidence, population=replace(known, types=types))
    solution = replace(found.solution, status=mh.Status.NOT_IDENTIFIED, evidence=evidence)
    part = of_people(solution, found.solution.problem, 120, [])
    assert part.withheld == ""
    golden(part.sentences(), *(verdict.answer for verdict in part.verdicts))
    assert "type 1" in fit_page(part, {}).render()
    nothing = replace(known, types=types | {"identified": [False, False]})
    none = of_people(replace(solution, evidence=replace(evidence, population=nothing)), found.solution.problem, 120, [])
    assert none.withheld


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--types", 2), "--types must come with --distribution types, got normal"),
        (("--distribution", "kinds"), "--distribution must be normal, free or types, got kinds"),
        (("--distribution", "types", "--types", 0), "types must be"),
        (("--distribution", "types", "--pairs"), "pairs must be left out where types are asked for, as nobody is fitted alone"),
        (("--distribution", "types", "--discount", "0.5"), "leave out --discount and --groups"),
        (("--distribution", "types", "--formula", "~ noise"), "types must come with the formula '~ 1'"),
    ],
)
def test_what_cannot_be_asked_of_types_is_refused(study, options, said) -> None:
    result = fit(study, *options)
    assert result.exit_code == 2, result.output
    assert said in " ".join(result.output.split())
