"""Write the walks in CONTRIBUTING.md from the code: which modules a reader meets in four flows, in which order, and how often.

A function counts once, where it is first called. A module is entered when the function called next stands in it and the one
before did not; every time after the first is a return, a page that must be turned back.

Run: python docs/draw_walks.py
"""

import ast
import contextlib
import io
import sys
import tempfile
from collections import Counter
from itertools import groupby
from pathlib import Path

import pandas as pd

import multihorizon as mh
from multihorizon.cli import app

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "multihorizon"
PAGE = ROOT / "CONTRIBUTING.md"
START, END = "<!-- walks: written by docs/draw_walks.py -->", "<!-- end of walks -->"


def identify():
    """Policies to a verdict."""
    cliff = mh.domains.cliff()
    problem = mh.Problem(cliff.mdp, cliff.soft_experts())
    return "mh.identify(problem)", lambda: mh.identify(problem)


def programs():
    """Best actions to a reward."""
    cliff = mh.domains.cliff()
    problem = mh.Problem(cliff.mdp, cliff.hard_experts())
    return "mh.solve(problem, mh.MPLP())", lambda: mh.solve(problem, mh.MPLP())


def population():
    """Decisions of persons to effects of their groups."""
    cliff, names = mh.domains.cliff(), [f"p{i}" for i in range(8)]
    policies = [
        mh.soft_plan(cliff.mdp, cliff.reward, g).policy
        for g in (0.3, 0.4, 0.5, 0.6, 0.7, 0.35, 0.45, 0.55)
    ]
    problem = mh.Problem(
        cliff.mdp, mh.Demonstrations.simulate(cliff.mdp, policies, episodes=60, names=names)
    )
    solver = mh.Population("~ group", pd.DataFrame({"expert": names, "group": list("aabbaabb")}))
    return 'mh.solve(problem, mh.Population("~ group", persons))', lambda: mh.solve(problem, solver)


def fit():
    """A table to a report."""
    folder = tempfile.mkdtemp()
    app(["demo", "--out", f"{folder}/demo"], standalone_mode=False)
    words = [
        "fit",
        f"{folder}/demo/decisions.csv",
        "--transitions",
        f"{folder}/demo/meadow.npz",
        "--out",
        f"{folder}/result",
    ]
    return "multihorizon fit decisions.csv --transitions moves.npz --out result", lambda: app(
        words, standalone_mode=False
    )


def met(run) -> list[str]:
    """The module of each function, in the order in which functions are first called."""
    root, seen, order = f"{SOURCE}/", set(), []

    def look(frame, event, _):
        code = frame.f_code
        if (
            event == "call"
            and code.co_filename.startswith(root)
            and code.co_filename.endswith(".py")
            and code.co_name != "<module>"
            and code.co_flags & 1
        ):
            key = code.co_filename, code.co_qualname
            if key not in seen:
                seen.add(key)
                order.append(code.co_filename.removeprefix(root))

    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(None)
    return order


def idea(module: str) -> str:
    """The first sentence of a module's docstring."""
    text = ast.get_docstring(ast.parse((SOURCE / module).read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).split(". ")[0].rstrip(".:").replace("|", "\\|")


def walk(title: str, order: list[str]) -> str:
    """One walk: the modules in the order in which they are first entered."""
    functions, visits = Counter(order), Counter(module for module, _ in groupby(order))
    returns = sum(visits.values()) - len(visits)
    lines = [
        f"### `{title}`",
        "",
        f"{len(order)} functions in {len(visits)} modules, {returns} returns to a module already left.",
        "",
    ]
    lines += ["| module | functions | entered | its idea |", "|---|---|---|---|"]
    lines += [f"| `{m}` | {functions[m]} | {visits[m]} | {idea(m)} |" for m in dict.fromkeys(order)]
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its walks written anew."""
    walks = []
    for flow in (identify, programs, population, fit):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            title, run = flow()
            order = met(run)
        walks.append(walk(title, order))
    before, after = text.split(START)[0], text.split(END)[1]
    return "\n\n".join([f"{before}{START}", *walks, f"{END}{after}"])


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
