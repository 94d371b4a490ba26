import json
import shlex
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from multihorizon import domains
from multihorizon.cli import COMMANDS, app, load
from multihorizon.commands import console
from multihorizon.commands.demo import FILES
from multihorizon.commands.options import EXAMPLES

RUN = CliRunner()


def test_the_demo_shows_three_ways_finds_the_horizons_and_says_what_to_type_next(tmp_path) -> None:
    result = RUN.invoke(app, ["demo", "--out", str(tmp_path / "d")])
    assert result.exit_code == 0, result.output
    opening, ending = result.output.split("Does what they do")[0], result.output.split("What to do next:")[1]
    for row in ("s ← · · · · · · ·", "· @ → → → → → → F", "s · → → → → → → ↑"):
        assert row in opening
    assert "a curve of them explains the same behaviour" in result.output
    assert (tmp_path / "d" / "walks.png").read_bytes()[:4] == b"\x89PNG"
    assert {path.name for path in (tmp_path / "d").iterdir()} == set(FILES)
    content = json.loads((tmp_path / "d" / "result.json").read_text(encoding="utf-8"))
    true = dict(zip(("Ann", "Ben", "Cleo"), domains.meadow().mce_discounts, strict=True))
    for name, (low, high) in zip(content["experts"], content["intervals"], strict=True):
        assert low <= true[name] <= high
    command = next(line for line in ending.splitlines() if "--transitions" in line)
    again = RUN.invoke(app, [*command.split()[1:-1], str(tmp_path / "again"), "--quick"])
    assert again.exit_code == 0, again.output
    found = json.loads((tmp_path / "again" / "result.json").read_text(encoding="utf-8"))
    assert found["discounts"] == content["discounts"]


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_name_options_that_it_has(name: str) -> None:
    help_text = RUN.invoke(app, [name, "--help"]).output
    for example in EXAMPLES[name]:
        first, second, *words = shlex.split(example)
        assert (first, second) == ("multihorizon", name)
        assert example in help_text
        assert all(word in help_text.split("Examples:")[0] for word in words if word.startswith("--"))


def test_what_is_misspelt_is_suggested(tmp_path) -> None:
    (tmp_path / "decisions.csv").write_text("person,episode,step,state,action\n")
    assert "Did you mean 'fit'" in RUN.invoke(app, ["fitt"]).output
    assert "--transitions" in RUN.invoke(app, ["fit", "a.csv", "--transition", "b"]).output
    missing = RUN.invoke(app, ["fit", str(tmp_path / "decision.csv")])
    assert missing.exit_code == 2
    assert f"did you mean {tmp_path / 'decisions.csv'}?" in missing.stderr
    assert "rename or add expert (who decided)" in RUN.invoke(app, ["fit", str(tmp_path / "decisions.csv")]).stderr


@pytest.mark.parametrize(
    ("typed", "completed"), [("multihorizon re", {"recover", "reproduce"}), ("multihorizon fit --tr", {"--transitions"})]
)
def test_a_shell_completes_commands_and_options(typed: str, completed: set[str]) -> None:
    asked = {"_MULTIHORIZON_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = RUN.invoke(app, [], prog_name="multihorizon", env=asked)
    assert set(done.output.split()) == completed


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


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_loads_nothing_that_the_work_needs(name: str) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from multihorizon.cli import app\n"
        f"print(CliRunner().invoke(app, ['{name}', '--help'], env={{'COLUMNS': '200'}}).output)\n"
        f"heavy = ('numpy', 'scipy', 'pandas', 'duckdb', 'joblib', 'matplotlib', 'multihorizon.commands.{name}')\n"
        "print([m for m in heavy if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
    assert EXAMPLES[name][0] in run.stdout
    assert "--out" in run.stdout


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
