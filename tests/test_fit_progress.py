"""What `multihorizon fit` leaves behind while it works, when it is stopped, and when writing fails."""

from __future__ import annotations

import json

import pytest
from fitting import fit

from multihorizon.files.output import write_all
from multihorizon.likelihood.horizon_tests import each_pair


def test_nothing_is_left_where_writing_fails(tmp_path):
    def write(draft):
        (draft / "one").write_text("half")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        write_all(tmp_path / "out", write)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("after", ["model checks", "intervals"])
def test_ctrl_c_keeps_what_is_done(after, grid_folder, tmp_path, monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    stage = {"model checks": "profile_intervals", "intervals": "shared_discount_test"}[after]
    monkeypatch.setattr(f"multihorizon.report.analysis.{stage}", interrupted)
    result = fit(grid_folder / "demos.csv", "--transitions", grid_folder / "mdp.npz", "--out", tmp_path)
    assert result.exit_code == 130
    assert "Stopped before the end" in result.output
    content = json.loads((tmp_path / "result.json").read_text())
    assert not content["finished"]
    assert all(gamma is not None for gamma in content["discounts"])
    assert (content["intervals"][0][0] is None) == (after == "model checks")
    assert content["model_checks"]["held_out"]
    assert "Stopped before the end" in (tmp_path / "report.html").read_text()


def test_pairs_are_corrected_for_their_number_only_when_all_are_there(grid_folder, tmp_path, monkeypatch):
    whole = fit(grid_folder / "demos.csv", "--transitions", grid_folder / "mdp.npz", "--out", tmp_path / "whole")
    assert whole.exit_code == 0, whole.output

    def broken_off(solution, progress, jobs):
        yield next(each_pair(solution))
        raise KeyboardInterrupt

    monkeypatch.setattr("multihorizon.report.analysis.each_pair", broken_off)
    part = fit(grid_folder / "demos.csv", "--transitions", grid_folder / "mdp.npz", "--out", tmp_path / "part")
    assert part.exit_code == 130
    done, begun = (json.loads((tmp_path / name / "result.json").read_text())["pairwise_tests"] for name in ("whole", "part"))
    assert len(done) == 3
    assert all(test["adjusted"] >= test["p_value"] for test in done)
    assert begun == [{**done[0], "adjusted": None}]


def test_results_are_written_as_they_come(grid_folder, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("multihorizon.commands.fit.WRITING_SECONDS", 0.0)
    monkeypatch.setattr(
        "multihorizon.report.analysis.shared_discount_test",
        lambda solution: seen.append(sorted(p.name for p in tmp_path.iterdir())),
    )
    assert fit(grid_folder / "demos.csv", "--transitions", grid_folder / "mdp.npz", "--out", tmp_path).exit_code == 0
    assert seen == [["people.csv", "result.json"]]
    assert json.loads((tmp_path / "result.json").read_text())["finished"]
