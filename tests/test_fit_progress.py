"""What `multihorizon fit` leaves behind while it works, when it is stopped, and when writing fails."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest
import typer
from fitting import fit, small_files

from multihorizon.cli import FitOptions
from multihorizon.cli.fit import fit as command
from multihorizon.files import _machine, finish_exchange, write_all


def test_nothing_is_left_where_writing_fails(tmp_path):
    def write(draft):
        (draft / "one").write_text("half")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        write_all(tmp_path / "out", ["one"], write)
    assert list(tmp_path.iterdir()) == []


def study(folder, out) -> FitOptions:
    return FitOptions([folder / "demos.csv"], transitions=[folder / "mdp.npz"], out_dir=out)


def stop_at(words: str):
    """Ctrl-C when the work has come to this message."""

    def watch(share: float, message: str) -> None:
        if message == words:
            raise KeyboardInterrupt

    return watch


@pytest.mark.slow
@pytest.mark.parametrize("after", ["model checks", "intervals"])
def test_ctrl_c_keeps_what_is_done(after, grid_folder, tmp_path, capsys):
    stages = {"model checks": "fold 2: one goal and nearly one goal", "intervals": "test of one discount for all"}
    with pytest.raises(typer.Exit) as stopped:
        command(study(grid_folder, tmp_path), watch=stop_at(stages[after]))
    assert stopped.value.exit_code == 130
    output = capsys.readouterr().out
    assert "Stopped before the end" in output
    content = json.loads((tmp_path / "result.json").read_text())
    assert not content["finished"]
    assert all(gamma is not None for gamma in content["discounts"])
    assert (content["intervals"][0][0] is None) == (after == "model checks")
    assert content["model_checks"]["held_out"]
    assert "Stopped before the end" in (tmp_path / "report.html").read_text()
    verdict = content["verdicts"][1]
    assert (verdict["answer"], verdict["kind"]) == ("Not known" if after == "model checks" else "So far, yes", "caution")
    assert ("stopped before there were intervals for Ann & <Co>, Bo and Cy" in verdict["reasons"]) == (after == "model checks")
    assert "Can the data tell? Yes" not in output


@pytest.mark.slow
def test_results_are_written_as_they_come_and_pairs_are_corrected_only_when_all_are_there(grid_folder, tmp_path):
    seen = []

    def look(share: float, message: str) -> None:
        if message == "test of one discount for all":
            seen.append(sorted(path.name for path in (tmp_path / "whole").iterdir()))

    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "report.html").write_text("of an older fit")
    command(study(grid_folder, tmp_path / "whole"), clock=itertools.count(step=10).__next__, watch=look)
    assert seen == [["people.csv", "result.json"]]
    with pytest.raises(typer.Exit) as stopped:
        command(study(grid_folder, tmp_path / "part"), watch=stop_at("pair 2 of 3"))
    assert stopped.value.exit_code == 130
    whole, part = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "part"))
    assert whole["finished"]
    assert len(whole["pairwise_tests"]) == 3
    assert all(test["adjusted"] >= test["p_value"] for test in whole["pairwise_tests"])
    assert part["pairwise_tests"] == [{**whole["pairwise_tests"][0], "adjusted": None}]


@pytest.mark.slow
def test_a_full_disk_is_named_and_leaves_the_old_files(grid_folder, tmp_path):
    arguments = (grid_folder / "demos.csv", "--transitions", grid_folder / "mdp.npz", "--quick", "--out", tmp_path / "out")
    assert fit(*arguments).exit_code == 0
    before = {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    with small_files():
        result = fit(*arguments)
    assert result.exit_code == 2
    assert f"multihorizon: {tmp_path / 'out'}: File too large" in result.stderr
    assert {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before


def test_files_of_two_runs_never_stand_side_by_side(tmp_path):
    """The program is killed after 0, 1, … moves: what is left of the files that belong together is all old or all new, and the
    next run makes it whole."""
    script = """
import os, signal
from pathlib import Path
from multihorizon.files import write_all

replace = os.replace
for moves in range(7):
    folder = Path(str(moves))
    folder.mkdir()
    for name in ("result.json", "report.html", "people.csv", "mine.txt"):
        (folder / name).write_text("old")
    if os.fork() == 0:
        def replace_or_die(*paths):
            global moves
            if moves == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            moves -= 1
            replace(*paths)

        def write(draft):
            for name in ("result.json", "people.csv"):
                (draft / name).write_text("new")

        os.replace = replace_or_die
        write_all(folder, ["result.json", "report.html", "people.csv", "reward.csv"], write)
        os._exit(0)
    assert (os.wait()[1] == 0) == (moves >= 6)
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)
    old, new = (
        dict.fromkeys(("result.json", "report.html", "people.csv"), "old"),
        dict.fromkeys(("result.json", "people.csv"), "new"),
    )
    for moves in range(7):
        folder = tmp_path / str(moves)
        texts = {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}
        assert texts.pop("mine.txt") == "old"
        assert len(set(texts.values())) <= 1, moves
        if moves < 6:  # the one that was not killed has nothing to make whole
            with pytest.warns(UserWarning, match="an earlier run was stopped"):
                finish_exchange(folder)
        texts = {path.name: path.read_text() for path in folder.iterdir()}
        assert texts.pop("mine.txt") == "old"
        assert texts == (old if moves == 0 else new), moves


def test_a_list_of_files_moves_nothing_from_elsewhere(tmp_path):
    """Of a folder from elsewhere that says that a run was killed in it."""
    (tmp_path / "secret").write_text("mine")
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    draft = tmp_path / "result" / f".unfinished-{_machine()}-{gone.pid}-x"
    (draft / "new").mkdir(parents=True)
    (draft / "new" / "result.json").write_text("new")
    (draft / "replaces.json").write_text(json.dumps({"replaced": ["../secret", str(tmp_path / "secret")]}))
    with pytest.warns(UserWarning, match="are now in place"):
        finish_exchange(tmp_path / "result")
    assert (tmp_path / "secret").read_text() == "mine"
    assert [path.name for path in (tmp_path / "result").iterdir()] == ["result.json"]


def test_sigterm_ends_the_program_and_leaves_nothing_behind(tmp_path):
    """In the middle of writing: the older files are whole, and no draft is left."""
    script = """
import os, signal, time
from pathlib import Path
from multihorizon.cli.console import ending_with_its_work
from multihorizon.files import write_all

def write(draft):
    (draft / "one").write_text("new")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)

Path("out").mkdir()
Path("out/one").write_text("old")
with ending_with_its_work():
    write_all(Path("out"), ["one"], write)
"""
    ended = subprocess.run([sys.executable, "-c", script], cwd=tmp_path)
    assert ended.returncode == 128 + 15
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == {"one": "old"}
