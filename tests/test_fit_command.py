"""`multihorizon fit` from files to files: answers, verdicts and what the files hold."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from fitting import NAMES, fit
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.report.files import FILES


@pytest.mark.slow
def test_fit_writes_everything_a_reader_needs(grid_folder, tmp_path, golden):
    result = fit(grid_folder / "demos.csv", "--transitions", grid_folder / "mdp.npz", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    of_others = {"people.parquet", "conditions.csv", "conditions.parquet", "trials.csv"}
    assert {p.name for p in (tmp_path / "out").iterdir()} == set(FILES) - of_others
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["experts"] == NAMES
    assert content["status"] == "converged"
    assert content["version"]
    assert content["seed"] == 0
    assert content["options"]["temperature"] == "pooled"
    assert list(content["reward"]) == [str(i) for i in range(18)]
    truth = mh.domains.big_small().soft_discounts
    assert content["discounts"] == pytest.approx(truth, abs=0.12)
    assert all(low <= gamma <= high for gamma, (low, high) in zip(content["discounts"], content["intervals"], strict=True))
    golden(result.output)
    with np.load(tmp_path / "out" / "result.npz") as arrays:
        assert arrays["discounts"] == pytest.approx(content["discounts"])
        assert arrays["policy_2"].shape == (18, 4)
    assert pd.read_csv(tmp_path / "out" / "reward.csv")["reward"].tolist() == pytest.approx(list(content["reward"].values()))


@pytest.mark.slow
def test_report_is_self_contained_and_escapes_names(grid_folder, tmp_path):
    fit(grid_folder / "demos.csv", "--transitions", grid_folder / "mdp.npz", "--out", tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Ann &amp; &lt;Co&gt;" in page
    assert "<Co>" not in page
    assert all(link.startswith("#") for link in re.findall(r'(?:src|href)="([^"]*)"', page))
    assert "://" not in page
    assert page.count("<figure") == 5
    assert 'name="viewport"' in page


@pytest.mark.slow
def test_transitions_as_csv_give_the_same_answer(grid_folder, tmp_path):
    for name in ("mdp.npz", "mdp.csv"):
        assert fit(grid_folder / "demos.csv", "--transitions", grid_folder / name, "--out", tmp_path / name).exit_code == 0
    one, two = (json.loads((tmp_path / n / "result.json").read_text()) for n in ("mdp.npz", "mdp.csv"))
    assert one["discounts"] == pytest.approx(two["discounts"], abs=1e-4)


@pytest.mark.slow
def test_features_tie_rewards(grid_folder, tmp_path):
    arguments = ["--transitions", grid_folder / "mdp.npz", "--features", grid_folder / "features.csv", "--out", tmp_path]
    assert fit(grid_folder / "demos.csv", *arguments).exit_code == 0
    content = json.loads((tmp_path / "result.json").read_text())
    assert list(content["reward"]) == ["big", "small", "step"]
    assert content["reward"]["big"] == pytest.approx(20, abs=6)


@pytest.mark.slow
def test_transitions_are_estimated_where_none_are_given(grid_folder, golden):
    result = fit(grid_folder / "demos.csv")
    assert result.exit_code == 0, result.output
    golden(result.output)


@pytest.mark.slow
def test_temperature_per_expert(grid_folder, tmp_path):
    arguments = ["--transitions", grid_folder / "mdp.npz", "--temperature", "per-expert", "--out", tmp_path]
    assert fit(grid_folder / "demos.csv", *arguments).exit_code == 0
    content = json.loads((tmp_path / "result.json").read_text())
    assert len(set(content["temperatures"])) == 3
    assert "temperature" not in content


@pytest.mark.slow
def test_parquet_gives_the_same_table(grid_walks, grid_folder, tmp_path):
    grid_walks.to_parquet(tmp_path / "demos.parquet")
    assert fit(tmp_path / "demos.parquet", "--transitions", grid_folder / "mdp.npz").exit_code == 0


def test_one_expert_alone_is_fitted_and_judged(grid_walks, grid_folder, tmp_path):
    grid_walks[grid_walks["expert"] == "Bo"].to_csv(tmp_path / "one.csv", index=False)
    result = fit(tmp_path / "one.csv", "--transitions", grid_folder / "mdp.npz", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "out" / "result.json").read_text())
    assert content["experts"] == ["Bo"]
    assert content["shared_discount_test"] is None
    assert content["status"] == "not identified"


@pytest.mark.slow
def test_labels_are_shown_as_they_are(tmp_path) -> None:
    domain = mh.domains.cliff()
    names = ["[/a]", "[bold]", "$x^^$"]
    mh.Demonstrations.simulate(domain.mdp, domain.soft_experts(), 60, names=names).to_csv(tmp_path / "d.CSV")
    domain.mdp.to_npz(tmp_path / "m.npz")
    arguments = ["fit", str(tmp_path / "d.CSV"), "--transitions", str(tmp_path / "m.npz"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    for name in names:
        assert name in result.output
    assert "[bold]" in (tmp_path / "out" / "report.html").read_text()


def test_few_decisions_are_not_sold_as_an_answer(golden) -> None:
    domain = mh.domains.random_mdp(6, 2, seed=3)
    reward = np.random.default_rng(0).normal(size=6) * 2
    policies = [mh.soft_plan(domain, reward, gamma).policy for gamma in (0.2, 0.8)]
    demos = mh.Demonstrations.simulate(domain, policies, 20, max_steps=15)
    found = mh.analyse([demos], [domain])
    assert all(found.identified)
    assert np.nanmax(found.intervals[:, 1] - found.intervals[:, 0]) > 0.5
    golden(found.verdicts[1].reasons)


def test_no_number_is_a_headline_where_its_interval_says_nothing(golden) -> None:
    """An estimate whose interval covers half of the range is no answer, and no number of episodes is promised to mend it."""
    domain = mh.domains.random_mdp(6, 2, seed=3)
    reward = np.random.default_rng(0).normal(size=6) * 2
    policies = [mh.soft_plan(domain, reward, gamma).policy for gamma in (0.2, 0.5, 0.8)]
    table = mh.Demonstrations.simulate(domain, policies, 60, max_steps=15, names=["Ann", "Ben", "Cleo"])
    sure = mh.analyse(table, [domain], quick=True)
    narrow = np.clip(sure.solution.discounts[:, None] + np.array([-0.05, 0.06]), 0, 1)
    sure, wide = replace(sure, intervals=narrow), replace(sure, intervals=np.tile([0.001, 1.0], (3, 1)))
    numbers = {f"{gamma:.3f}" for gamma in sure.solution.discounts} | {sure.horizon.number(g) for g in sure.solution.discounts}
    assert all(number in sure.answer for number in numbers)
    look = wide.verdicts[0]
    assert look.answer == "Unknown"
    assert look.kind != "good"
    assert not [number for number in numbers if number in f"{wide.answer} {look.answer}"]
    golden(*wide.advice, *sure.advice)
    mixed = replace(sure, intervals=np.array([[0.0, 0.9], narrow[1], narrow[2]]))
    golden(mixed.verdicts[0].answer)
    assert f"{mixed.solution.discounts[0]:.3f}" not in mixed.answer
    assert f"{mixed.solution.discounts[1]:.3f}" in mixed.answer
    assert mixed.verdicts[0].kind == "caution"
    spread = " to ".join(sure.horizon.number(sure.solution.discounts[k]) for k in (sure.order[0], sure.order[-1]))
    assert spread not in sure.verdicts[0].answer


def test_nothing_to_choose_is_not_identified() -> None:
    mdp = mh.domains.random_mdp(4, 1)
    demos = mh.Demonstrations.simulate(mdp, [np.ones((4, 1))] * 2, 20, max_steps=10)
    solution = mh.solve(mh.Problem(mdp, demos), mh.MaximumLikelihood())
    assert solution.status == mh.Status.NOT_IDENTIFIED
    assert np.isnan(solution.standard_errors).all()


def test_actions_nobody_took_are_reported_and_can_be_supplied(tmp_path, golden) -> None:
    """Nobody jumps off: the report says so, and a file with the jump alone is combined with what is estimated."""
    outcomes = [("go", "town")] * 126 + [("go", "cliff")] * 14 + [("wait", "town")] * 18 + [("wait", "cliff")] * 42
    rows = [("A", i, 0, "x", action, after) for i, (action, after) in enumerate(outcomes)]
    rows += [("A", i, 1, "town", "jump", "home") for i, (_, after) in enumerate(outcomes) if after == "town"]
    columns = ["expert", "episode", "step", "state", "action", "next_state"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "demos.csv", index=False)
    result = fit(tmp_path / "demos.csv", "--out", tmp_path / "without")
    golden(result.output)
    known = [("x", "jump", "cliff", 1.0), ("town", "go", "home", 1.0), ("town", "wait", "home", 1.0)]
    pd.DataFrame(known, columns=["state", "action", "next_state", "probability"]).to_csv(tmp_path / "known.csv", index=False)
    result = fit(tmp_path / "demos.csv", "--transitions", tmp_path / "known.csv", "--estimate-rest", "--out", tmp_path / "with")
    assert result.exit_code == 0, result.output
    golden(result.output)
    without, given = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("without", "with"))
    assert without["untaken_actions"] == [{"town": ["go", "wait"], "x": ["jump"]}]
    assert given["untaken_actions"] == [{}]


def test_quick_leaves_out_tests_and_checks_and_says_so(grid_folder, tmp_path, golden):
    arguments = ["--transitions", grid_folder / "mdp.npz", "--quick", "--out", tmp_path]
    result = fit(grid_folder / "demos.csv", *arguments)
    assert result.exit_code == 0, result.output
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["quick"]
    assert content["shared_discount_test"] is None
    assert "held_out" not in content["model_checks"]
    errors, discounts = np.array(content["standard_errors"]), np.array(content["discounts"])
    assert np.array(content["intervals"])[:, 1] == pytest.approx(np.minimum(discounts + 1.959964 * errors, 1.0), abs=1e-4)
    golden(result.output, (tmp_path / "report.html").read_text())


@pytest.mark.slow
def test_the_answer_does_not_depend_on_the_number_of_processes(grid_folder, tmp_path):
    for jobs in (1, 2):
        assert (
            fit(
                grid_folder / "demos.csv", "--transitions", grid_folder / "mdp.npz", "--jobs", jobs, "--out", tmp_path / str(jobs)
            ).exit_code
            == 0
        )
    one, two = (json.loads((tmp_path / str(jobs) / "result.json").read_text()) for jobs in (1, 2))
    for part in ("discounts", "intervals", "pairwise_tests", "reward"):
        assert one[part] == two[part]


@pytest.mark.slow
def test_labels_that_differ_in_capitals_are_pointed_out(grid_walks, tmp_path):
    changed = grid_walks.replace({"action": {"up": "Up"}}).iloc[:400]
    mixed = grid_walks.iloc[400:]
    pd.concat([changed, mixed]).to_csv(tmp_path / "mixed.csv", index=False)
    result = fit(tmp_path / "mixed.csv", "--quick", "--out", tmp_path / "out")
    said = "Some actions differ only in capitals or blanks and count as different: 'Up' and 'up'."
    assert said in result.output
    assert any(said in remark for remark in json.loads((tmp_path / "out" / "result.json").read_text())["remarks"])


@pytest.mark.slow
def test_intervals_are_the_same_wherever_they_are_asked_for(tmp_path):
    """With estimated transitions the command once wrote other intervals than the solution gave."""
    cliff = mh.domains.cliff()
    mh.Demonstrations.simulate(cliff.mdp, cliff.soft_experts(), 60).to_csv(tmp_path / "walks.csv")
    result = fit(tmp_path / "walks.csv", "--deviations", 0, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    table = mh.Demonstrations.from_csv(tmp_path / "walks.csv")
    solution = mh.solve(mh.Problem(mh.estimate_mdp(table), table), mh.MaximumLikelihood())
    written = json.loads((tmp_path / "out" / "result.json").read_text())["intervals"]
    assert np.array(written, dtype=float) == pytest.approx(solution.confidence_intervals(0.95), abs=1e-9, nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3])
def test_the_error_of_estimated_transitions_is_no_difference_of_temperatures(seed, tmp_path):
    """On FrozenLake such tables once got temperatures from 0.7 to 1.5, with p below 0.001."""
    gymnasium = pytest.importorskip("gymnasium")
    lake = mh.MDP.from_gymnasium(gymnasium.make("FrozenLake-v1", map_name="4x4", is_slippery=True))
    policies = [mh.soft_plan(lake, np.eye(16)[15], gamma, 0.1).policy for gamma in (0.7, 0.9, 0.98)]
    mh.Demonstrations.simulate(lake, policies, 400, seed=seed).to_csv(tmp_path / "walks.csv")
    result = fit(tmp_path / "walks.csv", "--quick", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "out" / "result.json").read_text())
    assert found["temperatures"] == [1.0, 1.0, 1.0]
    assert found["intervals"][0][0] <= 0.7 <= found["intervals"][0][1]


def test_choices_at_random_say_nothing_of_goals_and_more_of_them_are_not_asked_for() -> None:
    domain = mh.domains.random_mdp(6, 2, seed=3)
    table = mh.Demonstrations.simulate(domain, [np.full((6, 2), 0.5)] * 3, 40, max_steps=15, names=["Ann", "Ben", "Cleo"])
    found = mh.analyse(table, [domain], quick=True)
    assert found.reasons == ["no better than chance"] * 3
    assert found.goals.verdict.kind != "good"
    assert not any(text.startswith("More decisions") for text in found.advice)
