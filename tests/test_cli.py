import contextlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon import domains
from multihorizon.cli import COMMANDS, EXAMPLES, app, console, load
from multihorizon.cli.console import TimeLeft
from multihorizon.cli.fit import TOUR as FILES

RUN = CliRunner()


@pytest.mark.slow
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
    true = dict(zip(("Ann", "Ben", "Cleo"), domains.meadow().soft_discounts, strict=True))
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
    ("typed", "completed"), [("multihorizon re", {"recover", "reproduce"}), ("multihorizon fit --tran", {"--transitions"})]
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


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["demo", "--help"]])
def test_the_module_runs_as_a_program(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "multihorizon", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_progress_is_shown_in_lines_where_there_is_no_terminal(capsys) -> None:
    def lines(seconds, *reports):
        now = [0.0]
        with console.progress_bar("fit", clock=lambda: now[0]) as progress:
            for report in reports:
                now[0] += seconds
                progress(*report)
        return capsys.readouterr().err.splitlines()

    steady = [(0.05 * i, f"pair {i}") for i in range(1, 9)]
    assert lines(10, *steady)[-1] == "fit: 40% done, about 2 min left: pair 8"
    assert lines(5, *steady)[-1] == "fit: 40% done, about 1 min left: pair 8"
    assert lines(1, *steady) == []
    assert lines(10, (0.25, "climb")) == ["fit: 25% done: climb"]  # one place says nothing about the pace
    assert [line[:8] for line in lines(10, (0.25, "one part"), (0.23, "begins again"))] == ["fit: 25%", "fit: 25%"]
    assert lines(100, (0.0, "climb")) == ["fit: 0% done: climb"]


@pytest.mark.slow
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
        "print([m for m in ('numpy', 'scipy', 'pandas', 'matplotlib', 'multihorizon.cli.fit') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
    for name in COMMANDS:
        assert load(name).help.splitlines()[0] in run.stdout


def test_the_help_of_fit_stands_in_panels_and_names_no_types() -> None:
    said = RUN.invoke(app, ["fit", "--help"], env={"COLUMNS": "100"}).output
    titles = [said.index(f"─ {title} ─") for title in ("Arguments", "Input", "Model", "Groups", "Inference", "Output")]
    assert titles == sorted(titles)
    assert "<bool>" not in said
    assert "─ Options ─" not in said
    assert titles[1] < said.index("--cut-off") < titles[2]
    assert titles[3] < said.index("--formula") < titles[4]
    assert said.index("--out ") > titles[5]
    assert said.index("--help ") > titles[5]
    assert "<bool>" not in RUN.invoke(app, ["--help"]).output


def test_of_many_people_the_answer_stays_on_the_screen(tmp_path) -> None:
    """The terminal lists five people at each end; the answer is said again at the end, and then where the report is."""
    meadow = mh.domains.meadow()
    discounts = np.linspace(0.2, 0.85, 40)
    policies = [mh.soft_plan(meadow.mdp, meadow.reward, discount).policy for discount in discounts]
    names = [f"P{number:02}" for number in range(1, 41)]
    mh.Demonstrations.simulate(meadow.mdp, policies, 20, names=names).to_csv(tmp_path / "walks.csv")
    meadow.mdp.to_npz(tmp_path / "task.npz")
    points = pd.DataFrame({"state": meadow.mdp.state_names, "points": meadow.reward})
    points.to_csv(tmp_path / "points.csv", index=False)
    typed = ["fit", "walks.csv", "--transitions", "task.npz", "--known-reward", "points.csv", "--quick"]
    with contextlib.chdir(tmp_path):
        alone = RUN.invoke(app, typed).stdout.splitlines()
        kept = RUN.invoke(app, [*typed, "--out", "result"]).stdout.splitlines()
    listed = [line for line in kept if line.startswith("│ P")]
    people = pd.read_csv(tmp_path / "result" / "people.csv").sort_values("discount")["expert"].tolist()
    assert [line.split()[1] for line in listed] == [*people[:5], *people[-5:]]
    assert "and 30 more, which --out writes to people.csv" in " ".join(kept)
    assert kept[-3] == kept[0] == alone[-2]
    assert kept[0].startswith("Of the 40 experts")
    assert kept[-1] == f"Open {Path('result', 'report.html')} in a browser."
    assert alone[-1].startswith("Add --out FOLDER")
    assert len(kept) < 30


def test_a_misspelt_command_names_the_right_one() -> None:
    result = RUN.invoke(app, ["identfy"])
    assert result.exit_code == 2
    assert "Did you mean 'identify'?" in result.stderr


TYPED = {
    "fit --smoothing -1": "--smoothing must be a number of at least 0",
    "fit --smoothing nan": "--smoothing must be a number of at least 0",
    "fit --ridge inf": "--ridge must be a number of at least 0",
    "fit --jobs 0": "--jobs must be a whole number of at least 1, or -1 for all cores",
    "fit --seed -1": "--seed must be a whole number of at least 0",
    "fit --temperature hot": "--temperature must be one of pooled, shared",
    "fit --discount =0.5": "--discount must be a number from 0 to 1, or NAME=number, got =0.5 with no name",
    "fit --discount ann=2": "--discount must be a number from 0 to 1",
    "fit --lookahead far": "--lookahead must be one of",
    "fit --features none.csv": "--features must be a file, got none.csv, which does not exist",
    "fit --known-reward none.csv": "--known-reward must be a file",
    "fit --persons none.csv": "--persons must be a file",
    "fit --groups .": "--groups must be a file, got ., which is a directory",
    "fit --recovered none.json": "--recovered must be a file",
    "fit --estimate-rest": "--estimate-rest must come with --transitions",
    "fit --transitions d.csv --transitions d.csv": "--transitions must be given once for each table, got 2 for 1",
    "fit --out dangling": "dangling is a link to nowhere, which does not exist",
    "fit --out dangling/deeper": "dangling is a link to nowhere, which does not exist",
    "fit --persons d.csv": "--persons must come with --formula",
    "compare": "--condition must be the name of a column",
    "compare --condition noise --common-discount 2": "--common-discount must be in [0, 1], got 2.0",
    "compare --condition noise --episodes none.csv": "--episodes must be a file",
    "compare --condition noise --jobs 0": "--jobs must be",
    "goals --simulations 3": "--simulations must be a whole number of at least 19",
    "goals --temperature hot": "--temperature must be one of",
    "identify --temperature 0": "--temperature must be one of",
    "identify --seed -1": "--seed must be",
    "recover --studies 1": "--studies must be a whole number of at least 2",
    "recover --people 0": "--people must be a whole number of at least 1, got 0",
    "recover --decisions -5": "--decisions must be a whole number of at least 1, got -5",
    "recover --effect nan": "--effect must be finite",
    "recover --people 20": "--people must come with --formula",
    "recover --term age": "--term must come with --formula",
    "recover --formula ~age": "names age, which no table has",
    "recover --temperature hot": "--temperature must be one of",
    "demo --out dangling": "dangling is a link to nowhere",
    "reproduce --out dangling": "dangling is a link to nowhere",
    "reproduce --out x --jobs 0": "--jobs must be",
    "reproduce --out x --seed -1": "--seed must be",
}


@pytest.mark.parametrize("typed", TYPED)
def test_all_that_is_typed_is_checked_before_any_work(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "d.csv").write_text("no table of decisions\n")  # reading it would end in another sentence
    (tmp_path / "dangling").symlink_to("nowhere")
    command, *options = typed.split()
    tables = [] if command in ("demo", "reproduce") else ["d.csv"]
    result = RUN.invoke(app, [command, *tables, *options])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("multihorizon: ")
    assert TYPED[typed] in " ".join(result.stderr.split())
    assert result.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.csv", "dangling"]


@pytest.mark.parametrize("typed", ["fit|", "fit|d.csv|--out|", "fit|d.csv|--transitions| ", "demo|--out|"])
def test_an_empty_name_is_not_the_current_folder(typed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = RUN.invoke(app, typed.split("|"))
    assert result.exit_code == 2
    assert "got an empty name" in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 5.0])
def test_the_time_left_that_is_said_never_grows_fivefold(power: float) -> None:
    """Shares of the work are not shares of the time: here the first shares take a small part of it, or a large one."""
    now, said = [0.0], []
    left = TimeLeft(lambda: now[0])
    for second in range(1, 6000, 3):
        now[0] = float(second)
        text = left.after((second / 6000) ** (1 / power))
        if "about" in text:
            said.append(int(text.split()[2]))
    assert all(later <= 2 * first + 1 for i, first in enumerate(said) for later in said[i:])
    if power == 1.0:
        assert said[0] == pytest.approx(99, abs=2)
        assert len(said) > 1900


def test_a_step_that_takes_long_lets_no_bound_of_the_time_left_grow_fivefold() -> None:
    now = [0.0]
    left = TimeLeft(lambda: now[0])
    said = []
    for second in range(1, 1200):
        now[0] = float(second)
        said.append(left.after(0.3 * min(second, 100) / 100 + 1e-6 * second))
    numbers = [int(text.split()[-3]) for text in said if text.endswith("min left")]
    assert "longer than expected" in said[-1]
    assert max(numbers) < 5 * numbers[0]


def test_work_that_takes_much_longer_than_was_said_says_so() -> None:
    now = [0.0]
    left = TimeLeft(lambda: now[0])
    said = []
    for second in range(1, 3000):
        now[0] = float(second)
        said.append(left.after(0.5 * second / 300 if second < 300 else 0.5 + 0.1 * (second - 300) / 2700))
    assert ", about 5 min left" in said
    assert said[-1].startswith(", longer than expected: at least")
