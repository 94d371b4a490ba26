"""The pages say what is so: their code runs, what it prints is what they show, and their links lead somewhere.

Each page runs in an empty folder, from top to bottom and with one set of names: blocks of Python, and in blocks of `console` the
lines that begin with `$ multihorizon`. A block of `text` right after, or the rest of a `console` block, is what must have been
printed: each of its lines in this order, numbers within a little. A line … stands for lines left out.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import math
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

import multihorizon as mh
from multihorizon.cli import app

ROOT = Path(__file__).parent.parent
PAGES = sorted(
    path
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if not {"build", "gallery", "made", "names", "commands.md"} & set(path.relative_to(ROOT).parts)
)
BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*(?:e-?\d+)?")
#: Optimisers on other machines stop a little earlier or later.
RELATIVE, ABSOLUTE = 0.05, 0.02


def blocks(text: str) -> list[tuple[str, str, bool]]:
    """The kind and the content of each block, and whether it follows the one before with nothing between them."""
    found, end = [], -1
    for match in BLOCK.finditer(text):
        found.append((match[1], match[2], end >= 0 and not text[end : match.start()].strip()))
        end = match.end()
    return found


def run_python(code: str, page: str, names: dict[str, object]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(code, page, "exec"), names)
    return said.getvalue()


def run_console(block: str) -> tuple[str, str]:
    """What the commands of a block print, and what the page says they do."""
    said, shown = "", ""
    for line in block.replace("\\\n", " ").splitlines():
        if line.startswith("$ multihorizon"):
            done = CliRunner().invoke(app, shlex.split(line)[2:])
            assert done.exit_code == 0, f"{line}\n{done.output}"
            said += done.stdout
        elif not line.startswith("$ "):
            shown += f"{line}\n"
    return said, shown


def same(shown: str, said: str) -> bool:
    """Whether two lines agree: words exactly, spaces in any number, numbers within a little."""
    words = [re.sub(r"[\s─━]+", " ", NUMBER.sub("#", line)).strip() for line in (shown, said)]
    numbers = [[float(text.replace(",", "")) for text in NUMBER.findall(line)] for line in (shown, said)]
    pairs = zip(*numbers, strict=False)
    return words[0] == words[1] and all(math.isclose(*pair, rel_tol=RELATIVE, abs_tol=ABSOLUTE) for pair in pairs)


def missing(shown: str, said: str) -> list[str]:
    """The lines shown on the page that were not printed in this order."""
    printed = iter(line for line in said.splitlines() if line.strip())
    lines = [line for line in shown.splitlines() if line.strip() and line.strip() != "…"]
    return [line for line in lines if not any(same(line, other) for other in printed)]


def _case(page: Path):
    """A page as a case: the long ones run with the slow tests."""
    name = page.relative_to(ROOT).as_posix()
    long = name.startswith("docs/tutorials/") or name in (
        "README.md",
        "docs/questions.md",
        "docs/start.md",
        "docs/how-to/check-a-log.md",
        "docs/how-to/constrain-the-model.md",
        "docs/how-to/design-a-study.md",
        "docs/how-to/explore-a-report.md",
        "docs/how-to/latent-classes.md",
        "docs/how-to/person-or-situation.md",
        "docs/how-to/posteriors.md",
    )
    marks = [pytest.mark.slow] if long else []
    if name == "docs/how-to/posteriors.md":
        lacks = importlib.util.find_spec("nutpie") is None or importlib.util.find_spec("arviz_stats") is None
        marks.append(pytest.mark.skipif(lacks, reason="nutpie and arviz-stats are not installed"))
    return pytest.param(page, id=name, marks=marks)


@pytest.mark.parametrize("page", [_case(page) for page in PAGES])
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page: Path, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    said = ""
    for kind, content, follows in blocks(page.read_text(encoding="utf-8")):
        shown = ""
        if kind == "python":
            said = run_python(content, page.name, names)
        elif kind == "console":
            said, shown = run_console(content)
        elif follows:
            shown = content
        assert missing(shown, said) == [], said


@pytest.mark.parametrize("page", [pytest.param(page, id=page.relative_to(ROOT).as_posix()) for page in PAGES])
def test_code_on_a_page_is_seen_whole(page: Path) -> None:
    """At 1280 pixels a page has room for 110 columns; what programs print is wrapped by the build of the site."""
    text = page.read_text(encoding="utf-8")
    code = [
        (kind, line)
        for kind, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
        for line in body.splitlines()
    ]
    typed = [line for kind, line in code if kind in ("python", "sh") or (kind == "console" and line.startswith("$ "))]
    assert [line for line in typed if len(line) > 110] == []


def test_a_page_that_shows_something_else_is_found() -> None:
    said = "one line\n\n│ ann │ 0.200 │\n━━━━\nlast 1,000\n"
    assert missing("│ ann │ 0.21 │\n…\nlast 1,001\n", said) == []
    assert missing("│ ann │ 0.30 │\n", said) == ["│ ann │ 0.30 │"]
    assert missing("last 1,000\none line\n", said) == ["one line"]


#: What readers of several fields search for, and the page that they want.
SEARCHED = {
    "choice perseveration": "how-to/how-people-choose.md",
    "counterfactual": "tutorials/what-if.md",
    "dynamic discrete choice": "explanation/model.md",
    "inverse reinforcement learning": "index.md",
    "inverse temperature": "questions.md",
    "lapse rate": "how-to/how-people-choose.md",
    "latent class": "how-to/latent-classes.md",
    "parameter recovery": "how-to/design-a-study.md",
    "partial identification": "explanation/identifiability.md",
    "power analysis": "glossary.md",
    "random effects": "tutorials/compare-groups.md",
    "semi-markov": "how-to/durations.md",
    "softmax": "explanation/model.md",
    "specification curve": "glossary.md",
    "stacking": "glossary.md",
    "within-subject": "tutorials/within-subject.md",
}


@pytest.mark.parametrize("words", SEARCHED)
def test_what_a_field_calls_it_is_on_its_page(words: str) -> None:
    text = (ROOT / "docs" / SEARCHED[words]).read_text(encoding="utf-8")
    assert words in re.sub(r"[\s*]+", " ", text).lower()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_the_links_of_the_pages_at_the_top_lead_to_files(name: str) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", (ROOT / name).read_text(encoding="utf-8"))
    assert [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()] == []


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api" / "index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^   (\w+)$", text, flags=re.MULTILINE)) | {"datasets", "domains", "theory"}
    assert listed - {"members", "imported"} == set(mh.__all__)
    assert set(re.findall(r"^   domains\.(\w+)$", text, flags=re.MULTILINE)) <= set(mh.domains.__all__)


def test_links_that_lead_nowhere_equations_and_pages_that_need_a_network_are_found(tmp_path) -> None:
    spec = importlib.util.spec_from_file_location("check_links", ROOT / "docs" / "check_links.py")
    check_links = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(check_links)
    (tmp_path / "good.html").write_text(
        '<h1 id="top">Ä</h1><a href="bad.html">b</a><a href="#top">t</a><a href="https://a.org/x">o</a>'
    )
    (tmp_path / "raw.html").write_text("<p>So <code>$$</code> is code, and $$x$$ was not drawn.</p>")
    (tmp_path / "bad.html").write_text(
        '<a href="good.html#top">fine</a><a href="good.html#none">1</a><a href="gone.html">2</a><a href="http:/a.org">3</a>'
        '<img src="gone.png"><script src="https://cdn.org/x.js"></script><a href="http://plain.org">4</a>'
    )
    assert check_links.problems(tmp_path) == [
        "bad.html loads https://cdn.org/x.js from another site",
        "bad.html links to good.html#none, which is not there",
        "bad.html links to gone.html, which is not there",
        "bad.html links to gone.png, which is not there",
        "bad.html has a link that is not in form: http:/a.org",
        "bad.html has a link that is not in form: http://plain.org",
        "raw.html shows $$: an equation is not drawn",
    ]
