"""What tests share: repeatable examples of hypothesis without deadlines, one browser, recorded words, and a small study."""

import difflib
import html
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from browser import MISSING, Tab, browser
from fitting import NAMES
from hypothesis import settings

import multihorizon as mh

settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("repeatable")
os.environ["COLUMNS"] = "100"  # of the terminal, whose lines the recorded words are
NUMBER = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?")


def words_of(text: str) -> str:
    """Return the sentences of a terminal or of a page, one per line, without cells of tables, seconds, versions, folders."""
    if "<html" in text:
        text = re.sub(r"(?s)<(script|style|svg|tbody)\b.*?</\1>", "", text)
        text = html.unescape(re.sub(r"(?:\s*</?[a-z!][^>]*>\s*)+", "\n", text))
    else:
        text = " ".join(re.sub(r"(?m)^.*\d+% done.*$", "", text).split())  # progress depends on the clock
    text = re.sub(r"\b\d+(\.\d+)? s\b", "SECONDS", text.replace(mh.__version__, "VERSION"))
    text = re.sub(r"\btest_\w+?\d+\b", "FOLDER", re.sub(r"/\S*/pytest-\S*/", "", text))
    text = re.sub(r"(?<=\w[.:?]) +(?=[A-Z])", "\n", text)
    return "\n".join(line.strip() for line in text.split("\n") if re.search(r"[^\W\d]", line))


def same_words(recorded: str, line: str) -> bool:
    """Whether two lines have the same words, and numbers that differ by at most 5 % or the last digit shown.

    Residuals, which are written with a negative power of ten, are what rounding leaves, and may be any.
    """
    recorded, line = (re.sub(r"[-−]?\d(\.\d+)?e-\d+", "RESIDUAL", text) for text in (recorded, line))
    if NUMBER.split(recorded) != NUMBER.split(line):
        return False
    for pair in zip(NUMBER.findall(recorded), NUMBER.findall(line), strict=True):
        old, new = (float(number.replace(",", "")) for number in pair)
        last_digit = 10.0 ** -len(pair[0].partition(".")[2]) if "." in pair[0] else float(old >= 10)
        if abs(new - old) > max(0.05 * abs(old), 1.5 * last_digit, 1e-6):
            return False
    return True


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare texts with those recorded for this test in `tests/golden/`; with GOLDEN=record in the environment, record them."""
    path = Path(__file__).parent / "golden" / f"{request.path.stem}.txt"
    calls = iter(range(1, 1000))

    def compare(*texts: str) -> None:
        title = f"{request.node.name} {next(calls)}"
        written = re.split(r"^=== (.+)\n", path.read_text(encoding="utf-8") if path.exists() else "", flags=re.MULTILINE)
        sections = dict(zip(written[1::2], written[2::2], strict=True))
        lines = [line for text in texts for line in words_of(text).split("\n")]
        if os.environ.get("GOLDEN") == "record":
            sections[title] = "\n".join(lines) + "\n"
            path.write_text("".join(f"=== {name}\n{sections[name]}" for name in sorted(sections)), encoding="utf-8")
        recorded = sections.get(title, "").splitlines()
        if len(recorded) == len(lines):
            lines = [old if same_words(old, new) else new for old, new in zip(recorded, lines, strict=True)]
        if recorded != lines:
            difference = "\n".join(difflib.unified_diff(recorded, lines, f"recorded in {path.name}", title, lineterm="", n=0))
            pytest.fail(f"{difference}\nIf these words are meant, record them: GOLDEN=record pytest {request.node.nodeid}")

    return compare


@pytest.fixture(scope="session")
def running_browser() -> Iterator[Tab]:
    """Headless Chromium, started once."""
    if MISSING:
        pytest.skip(MISSING)
    with browser() as tab:
        yield tab


@pytest.fixture
def tab(running_browser: Tab) -> Tab:
    """A tab of the browser, as a reader with light colours has it."""
    running_browser.media("light")
    return running_browser


@pytest.fixture(scope="session")
def grid_walks() -> pd.DataFrame:
    """Decisions of three experts on the grid of the paper."""
    d = mh.domains.big_small()
    return mh.Demonstrations.simulate(d.mdp, d.soft_experts(), 300, seed=0, names=NAMES).to_frame()


@pytest.fixture(scope="session")
def grid_folder(tmp_path_factory: pytest.TempPathFactory, grid_walks: pd.DataFrame) -> Path:
    """The decisions, the transitions in two formats, and features that tie the rewards."""
    folder = tmp_path_factory.mktemp("inputs")
    grid_walks.to_csv(folder / "demos.csv", index=False)
    mdp = mh.domains.big_small().mdp
    mdp.to_npz(folder / "mdp.npz")
    rows = [
        (mdp.state_names[row % 18], mdp.action_names[row // 18], mdp.state_names[column], value)
        for row, column, value in zip(*mdp.stacked.tocoo().coords, mdp.stacked.tocoo().data, strict=True)
    ]
    pd.DataFrame(rows, columns=["state", "action", "next_state", "probability"]).to_csv(folder / "mdp.csv", index=False)
    reward = mh.domains.big_small().reward
    pd.DataFrame({"state": range(18), "big": reward == 20, "small": reward == 2, "step": reward == -2}).astype(int).to_csv(
        folder / "features.csv", index=False
    )
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Examples in docstrings that fit functions or whole studies take seconds."""
    for item in items:
        if item.nodeid.startswith(
            (
                "src/multihorizon/likelihood/sieve.py",
                "src/multihorizon/questions/study.py",
                "src/multihorizon/questions/carrying_over.py",
            )
        ):
            item.add_marker(pytest.mark.slow)
