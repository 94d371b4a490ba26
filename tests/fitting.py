"""`multihorizon fit` as tests call it, and what bad input must look like."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from click.testing import Result
from typer.testing import CliRunner

from multihorizon.cli import app

RUN = CliRunner()
#: The experts of the table that most tests fit.
NAMES = ["Ann & <Co>", "Bo", "Cy"]


@contextmanager
def small_files(most: int = 20_000) -> Iterator[None]:
    """No file may become longer: writing fails, as on a disk that is full."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


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
