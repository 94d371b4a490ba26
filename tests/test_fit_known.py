"""`multihorizon fit` with rewards, discounts and temperatures that are known, and experts who share a discount."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from fitting import NAMES, fit, one_sentence

import multihorizon as mh


@pytest.fixture(scope="module")
def told(grid_folder):
    """The reward the experts were told, by state, and by state and action."""
    d = mh.domains.big_small()
    pd.DataFrame({"state": d.mdp.state_names, "pay": d.reward}).to_csv(grid_folder / "told.csv", index=False)
    pairs = [(s, a) for s in range(18) for a in range(4) if not d.mdp.terminal[s]]
    expected = (d.mdp.stacked @ d.reward).reshape(4, 18)
    rows = [(d.mdp.state_names[s], d.mdp.action_names[a], expected[a, s]) for s, a in pairs]
    pd.DataFrame(rows, columns=["state", "action", "pay"]).to_csv(grid_folder / "told_by_action.csv", index=False)
    (grid_folder / "groups.csv").write_text("expert,group\nBo,all\nCy,all\n")
    (grid_folder / "of_zoe.csv").write_text("expert,group\nZoe,all\n")
    (grid_folder / "twice.csv").write_text("expert,group\nBo,all\nBo,one\n")
    return grid_folder


def test_known_rewards_and_discounts_are_kept(told, tmp_path, golden):
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
    assert answers[0]["discounts"] == pytest.approx(mh.domains.big_small().soft_discounts, abs=0.1)
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
    golden(answers[0]["headline"])
    assert answers[0]["reward"]["17"] == 20
    assert answers[1]["reward"] == {}


@pytest.mark.slow
def test_all_discounts_known_is_said_and_not_called_a_finding(told, tmp_path):
    result = fit(told / "demos.csv", "--transitions", told / "mdp.npz", "--discount", "0.5", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["discounts"] == [0.5, 0.5, 0.5]
    assert content["intervals"] == [[0.5, 0.5]] * 3
    assert content["shared_discount_test"] is None
    assert content["pairwise_tests"] is None
    assert [v["answer"] for v in content["verdicts"]][:2] == ["2.0 steps (discount 0.5), as known", "Not asked"]
    assert "identify every discount" not in result.output


@pytest.mark.slow
def test_groups_share_a_discount_and_known_temperatures_stay(told, tmp_path):
    options = ["--groups", told / "groups.csv", "--temperature", "Bo=1.5", "--deviations", 0, "--out", tmp_path]
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
        (["--discount", "Zoe=0.5"], "must name experts among"),
        (["--discount", "Bo=1.5"], "--discount must be a number from 0 to 1"),
        (["--discount", "0.5", "--discount", "Bo=0.5"], "--discount must be given once for all experts"),
        (["--discount", "Bo=0.5", "--discount", "Bo=0.6"], "--discount must be given once for all experts"),
        (["--discount", "nan"], "--discount must be a number from 0 to 1"),
        (["--temperature", "-1"], "--temperature must be one of pooled, shared, per-expert, a positive number up to"),
        (["--temperature", "warm"], "--temperature must be one of pooled, shared, per-expert, a positive number up to"),
        (["--temperature", "Bo=0"], "--temperature must be one of pooled, shared, per-expert, a positive number up to"),
        (["--temperature", "Zoe=1"], "must name experts among"),
        (["--temperature", "pooled", "--temperature", "1"], "--temperature must be given once for all experts"),
        (["--groups", "of_zoe.csv"], "groups name Zoe, but there is no expert of that name"),
        (["--groups", "told.csv"], "got none named expert"),
        (["--groups", "twice.csv"], "twice.csv, line 3: there must be one row for expert Bo, got another"),
        (["--groups", "groups.csv", "--discount", "Bo=0.5", "--discount", "Cy=0.6"], "share one discount, but different ones"),
        (["--known-reward", "features.csv"], "must have one column with the known reward, got big, small, step"),
        (["--known-reward", "missing.csv"], "--known-reward must be a file"),
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


def test_a_known_reward_that_says_nothing_is_not_passed_over(told, tmp_path, golden):
    """A constant reward says nothing about choices."""
    pd.DataFrame({"state": range(18), "pay": 1.0}).to_csv(tmp_path / "pay.csv", index=False)
    arguments = [told / "demos.csv", "--transitions", told / "mdp.npz", "--known-reward", tmp_path / "pay.csv", "--discount", 0.9]
    result = fit(*arguments, "--quick", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    golden(result.output)
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["status"] == "not identified"
    assert content["temperatures"] == [None] * 3
    assert pd.read_csv(tmp_path / "out" / "people.csv")["temperature"].isna().all()


def test_a_known_reward_that_says_nothing_of_one_temperature():
    """What rounding leaves of the information on a temperature is none, where nothing else is estimated."""
    moves = np.array([[[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]]] * 2)
    mdp = mh.MDP(moves, terminal=[2])
    table = mh.Demonstrations.simulate(mdp, [np.full((3, 2), 0.5)] * 2, 5, seed=0)
    found = mh.solve(mh.Problem(mdp, table), mh.MaximumLikelihood("shared", known_reward=np.ones(3), discounts=0.5))
    assert found.status == mh.Status.NOT_IDENTIFIED
    assert found.evidence.lost_temperatures == [True, True]


@pytest.mark.parametrize("temperature", ["pooled", "per-expert"])
def test_the_unit_of_a_known_reward_does_not_matter(temperature, told, tmp_path):
    """The same discounts, and temperatures in the unit of the points, with points times 0.001, 1 and 1,000."""
    found = []
    for factor in (1.0, 1e-3, 1e3):
        pay = factor * mh.domains.big_small().reward
        pd.DataFrame({"state": range(18), "pay": pay}).to_csv(tmp_path / "pay.csv", index=False)
        arguments = [told / "demos.csv", "--transitions", told / "mdp.npz", "--known-reward", tmp_path / "pay.csv"]
        result = fit(*arguments, "--temperature", temperature, "--quick", "--out", tmp_path / "out")
        assert result.exit_code == 0, result.output
        people = pd.read_csv(tmp_path / "out" / "people.csv").set_index("expert").sort_index()
        found.append(people.assign(temperature=people["temperature"] / factor))
    numbers = ["discount", "standard_error", "temperature"]
    assert np.isfinite(found[0][numbers]).all(axis=None)
    for other in found[1:]:
        assert np.allclose(other[numbers], found[0][numbers], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("largest", "option"), [(1e99, "--known-reward"), (1e99, "--features"), (1e-300, "--features")])
def test_numbers_that_no_computer_can_weigh_are_refused(largest, option, told, tmp_path):
    pd.DataFrame({"state": range(18), "pay": [0.0] * 17 + [largest]}).to_csv(tmp_path / "pay.csv", index=False)
    result = fit(told / "demos.csv", "--transitions", told / "mdp.npz", option, tmp_path / "pay.csv")
    one_sentence(result, f"the largest number of column pay must be between 0.0001 and 1e+08, got {largest:g}: use another")
