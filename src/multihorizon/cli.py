"""The program `multihorizon`: a thin skin over the library, one module per command."""

from __future__ import annotations

from typing import Annotated

import typer

from multihorizon.commands.demo import demo
from multihorizon.commands.fit import fit
from multihorizon.commands.goals import goals
from multihorizon.commands.identify import identify
from multihorizon.commands.recover import recover
from multihorizon.commands.reproduce import reproduce
from multihorizon.solution import package_version

app = typer.Typer(
    name="multihorizon",
    help="Infer the reward several experts share, and how far ahead each of them plans.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(fit)
app.command()(goals)
app.command()(identify)
app.command()(recover)
app.command()(reproduce)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(package_version())
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Infer the reward several experts share, and how far ahead each of them plans."""


def main() -> None:
    """Entry point of the console script."""
    app()
