"""The page on the commands of the program, made from what they say of themselves in `--help`."""

from typing import Any

from multihorizon.cli import COMMANDS, EXAMPLES, load

HEAD = """# The commands

`multihorizon COMMAND --help` prints the same in a terminal. `python -m multihorizon` is the same program.
`multihorizon --install-completion` teaches your shell to complete commands and options. Bad input ends with one sentence and exit
code 2; then nothing is written.
"""


def page() -> str:
    """All commands, each with its options and examples."""
    return "\n".join([HEAD, *(_command(name) for name in COMMANDS)])


def _command(name: str) -> str:
    command = load(name)
    rows = [
        f"| {_typed(parameter)} | {(parameter.help or '').replace('|', chr(92) + '|')} |"
        for parameter in command.params
    ]
    table = "\n".join(["| you type | meaning |", "|---|---|", *rows])
    examples = "\n".join(EXAMPLES[name])
    return f"## {name}\n\n{command.help}\n\n{table}\n\n```sh\n{examples}\n```\n"


def _typed(parameter: Any) -> str:
    """What is typed for an argument or an option, and that it must be, if so."""
    first = parameter.opts[0]
    text = first if first.startswith("--") else parameter.metavar
    value = "" if getattr(parameter, "is_flag", True) else f" {parameter.metavar or 'VALUE'}"
    shown = f"{text}{value}".replace("|", "\\|")
    return f"`{shown}`{' (needed)' if parameter.required else ''}"
