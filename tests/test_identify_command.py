"""`multihorizon identify`, and `fit` where one task does not identify the discounts and two do."""

from __future__ import annotations

import html
import json
import re
from dataclasses import replace

import pytest
from fitting import RUN, fit

import multihorizon as mh
from multihorizon.cli import app
from multihorizon.report.pages import identify_page


@pytest.fixture(scope="module")
def toys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toys")
    d = mh.domains.toy()
    for number, mdp in enumerate((d.mdp, d.tasks(1, seed=0)[0].mdp)):
        policies = [mh.soft_plan(mdp, d.reward, gamma).policy for gamma in (0.3, 0.8)]
        mh.Demonstrations.simulate(mdp, policies, 2000, seed=number, names=["near", "far"]).to_csv(folder / f"{number}.csv")
        mdp.to_npz(folder / f"{number}.npz")
    return folder


def test_toy_is_not_identified_and_no_number_is_given(toys, tmp_path, golden):
    result = fit(toys / "0.csv", "--transitions", toys / "0.npz", "--quick", "--deviations", 0, "--out", tmp_path)
    assert result.exit_code == 0
    golden(result.output)
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["status"] == "not identified"
    assert content["discounts"] == [None, None]
    assert content["intervals"] == [[None, None], [None, None]]
    assert content["identification"]["status"] == "set"
    assert "not identified" in (tmp_path / "report.html").read_text()


@pytest.mark.slow
def test_a_second_toy_identifies_both(toys, tmp_path):
    arguments = [toys / "0.csv", toys / "1.csv", "--transitions", toys / "0.npz", "--transitions", toys / "1.npz"]
    assert fit(*arguments, "--deviations", 0, "--out", tmp_path).exit_code == 0
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["status"] == "converged"
    for name, truth in (("near", 0.3), ("far", 0.8)):
        low, high = content["intervals"][content["experts"].index(name)]
        assert low <= truth <= high


def test_identify_takes_a_known_reward(toys, tmp_path, golden):
    """The toy leaves discounts open; with its reward known, they are identified."""
    d = mh.domains.toy()
    rows = "".join(f"{state},{pay}\n" for state, pay in zip(d.mdp.state_names, d.reward, strict=True))
    (tmp_path / "points.csv").write_text(f"state,pay\n{rows}")
    arguments = ["identify", str(toys / "0.csv"), "--transitions", str(toys / "0.npz"), "--out", str(tmp_path / "out")]
    result = RUN.invoke(app, [*arguments, "--known-reward", str(tmp_path / "points.csv")])
    assert result.exit_code == 0, result.output
    golden(result.output)
    intervals = dict(re.findall(r"(near|far): [\d.]+ \(([\d.]+ to [\d.]+)\)", result.output))
    for name, truth in (("near", 0.3), ("far", 0.8)):
        low, high = map(float, intervals[name].split(" to "))
        assert truth - 0.1 < low < truth < high < truth + 0.1
    saved = json.loads((tmp_path / "out" / "identify.json").read_text())
    assert (saved["identified"], saved["options"]["known_reward"]) == ([True, True], "points.csv")
    refused = RUN.invoke(app, [*arguments, "--known-reward", str(tmp_path / "points.csv"), "--within", "0.1"])
    assert refused.exit_code == 2
    assert "--within must come without --known-reward" in refused.output


def test_identify_says_what_exact_policies_would_tell(toys, grid_folder, tmp_path, golden):
    result = RUN.invoke(app, ["identify", str(toys / "0.csv"), "--transitions", str(toys / "0.npz"), "--out", str(tmp_path)])
    assert result.exit_code == 0
    golden(result.output)
    saved = json.loads((tmp_path / "identify.json").read_text())
    assert (saved["status"], saved["fit_status"]) == ("set", "not identified")
    assert (saved["options"]["demonstrations"], saved["options"]["transitions"], saved["remarks"]) == (["0.csv"], ["0.npz"], [])
    open_ = [high - low > 0.1 for low, high in saved["identification"]["intervals"]]
    assert [gamma is None for gamma in saved["identification"]["discounts"]] == open_
    page = (tmp_path / "identify.html").read_text(encoding="utf-8")
    assert page.index("These decisions") < page.index("If the fitted policies were known exactly")
    assert html.escape(saved["message"]) in page
    result = RUN.invoke(app, ["identify", str(grid_folder / "demos.csv"), "--transitions", str(grid_folder / "mdp.npz")])
    golden(result.output)


def test_identify_says_which_discounts_are_possible_if_rewards_are_nearly_the_same(grid_folder, tmp_path, golden):
    command = ["identify", str(grid_folder / "demos.csv"), "--transitions", str(grid_folder / "mdp.npz"), "--within"]
    result = RUN.invoke(app, [*command, "0.1", "--out", str(tmp_path)])
    assert result.exit_code == 0
    golden(result.output)
    saved = json.loads((tmp_path / "identify.json").read_text())
    assert saved["options"]["within"] == 0.1
    found = saved["identification"]["within"]
    assert found["status"] == "explained"
    for gamma, (low, high) in zip(saved["identification"]["discounts"], found["proved"], strict=True):
        assert low <= gamma <= high
    assert "by up to 0.1 from a shared one" in (tmp_path / "identify.html").read_text(encoding="utf-8")
    assert "--within must be" in RUN.invoke(app, [*command, "-1"]).output


def test_a_fit_that_did_not_end_says_of_nobody_that_they_are_identified(toys, golden):
    table = mh.Demonstrations.from_csv(toys / "1.csv")
    solution = mh.solve(mh.Problem(mh.MDP.from_npz(toys / "1.npz"), table), mh.MaximumLikelihood())
    page = identify_page(replace(solution, status=mh.Status.NOT_CONVERGED), None, []).render()
    golden(page)
    assert not re.search(r"<td[^>]*>yes</td>", page)
