import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from multihorizon.cli import COMMANDS, app, load
from multihorizon.commands import console

RUN = CliRunner()


def test_demo_prints_the_intervals_and_writes_the_pictures(tmp_path) -> None:
    result = RUN.invoke(app, ["demo", "--out", str(tmp_path / "d")])
    assert result.exit_code == 0, result.output
    for number in ("0.052770", "0.284165", "0.528912", "0.954859"):
        assert number in result.output
    for name in ("policies.png", "reward.png", "learned.png", "values.png"):
        assert (tmp_path / "d" / name).read_bytes()[:4] == b"\x89PNG"
    content = json.loads((tmp_path / "d" / "demo.json").read_text())
    assert [round(i["high"], 3) for i in content["intervals"]] == [0.053, 0.053, 0.284, 0.529, 0.955, 1.0]
    assert content["version"]
    assert content["answers"]["action probabilities"]["discounts"] == pytest.approx([0, 0.2, 0.52], abs=1e-9)
    assert content["answers"]["500 episodes each"]["discounts"] == pytest.approx([0, 0.2, 0.52], abs=0.15)
    assert "a curve of them explains the same behaviour" in result.output


def test_bad_output_place_is_one_sentence_and_exit_code_two(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    result = RUN.invoke(app, ["demo", "--out", str(tmp_path / "file")])
    assert result.exit_code == 2
    assert "must be a directory" in result.stderr
    assert "Traceback" not in result.output + result.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["demo", "--help"]])
def test_the_module_runs_as_a_program(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "multihorizon", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_progress_is_told_in_lines_where_there_is_no_terminal(monkeypatch, capsys) -> None:
    monkeypatch.setattr(console, "LINE_SECONDS", 0.0)
    with console.progress_bar("fit") as progress:
        progress(0.25, "pair 87 of 190")
    assert capsys.readouterr().err == "fit: 25% done, less than a minute left: pair 87 of 190\n"
    monkeypatch.setattr(console, "LINE_SECONDS", 10.0)
    with console.progress_bar("fit") as progress:
        progress(0.25, "pair 87 of 190")
    assert capsys.readouterr().err == ""


def test_the_time_left_follows_from_the_share_done() -> None:
    assert console._time_left(0.25, 100.0) == ", about 5 min left"
    assert console._time_left(0.0, 100.0) == ""


def test_the_help_loads_no_command_and_shows_what_each_does() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from multihorizon.cli import app\n"
        "print(CliRunner().invoke(app, ['--help'], env={'COLUMNS': '200'}).output)\n"
        "print([m for m in ('numpy', 'scipy', 'pandas', 'matplotlib', 'multihorizon.commands.fit') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
    for name in COMMANDS:
        assert load(name).help.splitlines()[0] in run.stdout


def test_a_misspelt_command_names_the_right_one() -> None:
    result = RUN.invoke(app, ["identfy"])
    assert result.exit_code == 2
    assert "Did you mean 'identify'?" in result.stderr
