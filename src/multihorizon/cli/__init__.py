"""The program `multihorizon`: a thin skin over the library.

A command is a function in one of the modules of `cli/`, and takes options that are declared in `cli/options.py`. The module is
imported when the command is called, so that no help waits for what the work needs. What a command does is shown in the words of
its function's docstring, read from the source.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup
from typer.main import get_command

import multihorizon
from multihorizon.cli.options import EXAMPLES, OPTIONS

#: The commands in the order of the help.
COMMANDS = tuple(OPTIONS)


def _home(name: str) -> str:
    """Return the module of a command."""
    return "fit" if name in ("demo", "check", "fit") else "reproduce" if name == "reproduce" else "questions"


def load(name: str) -> Any:
    """A command with its options and its examples."""
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name, help=_docstring(name), epilog=_paragraphs("Examples:", *EXAMPLES[name]))(_with_arguments(name))
    return get_command(single)


def _with_arguments(name: str) -> Callable[..., None]:
    """A function that has a command's options as its arguments, and imports the command's module when it is called."""
    declared = OPTIONS[name]

    def run(**given: Any) -> None:
        getattr(import_module(f"{__name__}.{_home(name)}"), name)(declared(**given))

    hints = get_type_hints(declared, include_extras=True)
    run.__annotations__ = hints
    signature = inspect.signature(declared)
    arguments = [argument.replace(annotation=hints[argument.name]) for argument in signature.parameters.values()]
    run.__signature__ = signature.replace(parameters=arguments)  # type: ignore[attr-defined]
    return run


def _docstring(name: str) -> str | None:
    """The docstring of a command's function, without importing its module."""
    source = Path(__path__[0], f"{_home(name)}.py")
    functions = ast.parse(source.read_text(encoding="utf-8")).body
    return next(ast.get_docstring(node) for node in functions if isinstance(node, ast.FunctionDef) and node.name == name)


def _paragraphs(*lines: str) -> str:
    """Lines as typer shows them one below the other."""
    return "\n\n".join(lines)


class LoadingGroup(TyperGroup):
    """The program: its commands are placeholders with a name and a docstring until one is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that is called, loaded; its name and the rest of the arguments."""
        name, placeholder, rest = super().resolve_command(ctx, args)
        return name, placeholder if name is None else load(name), rest


app = typer.Typer(
    name="multihorizon",
    cls=LoadingGroup,
    help="Infer the reward several experts share, and how far ahead each of them plans.",
    epilog=_paragraphs(
        "Examples:",
        "multihorizon demo",
        "multihorizon check decisions.csv",
        "multihorizon fit decisions.csv --out result",
        "multihorizon fit decisions.csv --transitions moves.csv --out result",
        "Each command has examples of its own: multihorizon fit --help",
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _placeholder() -> None:
    """Stands for a command that has not been called."""


for _name in COMMANDS:
    app.command(_name, help=_docstring(_name))(_placeholder)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(multihorizon.__version__)
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
    least = 1 << 30
    try:
        resource: Any = import_module("resource")
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    except ImportError:  # on Windows
        limit = -1
    if 0 <= limit < least:  # linear algebra waits for ever for memory that it cannot have
        typer.echo(
            f"multihorizon: there must be a gigabyte of memory for this program, and ulimit -v allows {limit >> 20} MB", err=True
        )
        raise SystemExit(2)
    app()
