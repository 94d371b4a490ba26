"""`multihorizon fit` as tests call it, and what bad input must look like."""

from __future__ import annotations

from click.testing import Result
from typer.testing import CliRunner

from multihorizon.cli import app

RUN = CliRunner()
#: The experts of the table that most tests fit.
NAMES = ["Ann & <Co>", "Bo", "Cy"]


def fit(*arguments: object) -> Result:
    """Run the command."""
    return RUN.invoke(app, ["fit", *(str(a) for a in arguments)])


def one_sentence(result: Result, said: str) -> None:
    """Bad input: one line that says so, and exit code 2."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("multihorizon: ")
    assert said in lines[0]
