"""The settings of the documentation site; `python docs/build.py` builds it."""

import contextlib
import inspect
import io
import re
import sys
import textwrap
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config, GoogleDocstring

import multihorizon as mh
from multihorizon import analysis
from multihorizon.cli import app as program
from multihorizon.likelihood import sieve
from multihorizon.questions import fitted

sys.path.insert(0, str(Path(__file__).parent))
import draw_idea
import list_commands

# Types that the analysis imports for type checkers alone; without them no type of it could be linked.
fitted.RewardFunctions, analysis.SieveLikelihood = sieve.RewardFunctions, sieve.SieveLikelihood  # type: ignore[attr-defined]

DOCS = Path(__file__).parent
ROOT = DOCS.parent
MADE = DOCS / "made"

project = "multihorizon"
author = "The multihorizon authors"
project_copyright = author
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "version"
]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_gallery.gen_gallery",
    "cards",
    "charts",
    "equations",
]
html_math_renderer = "mathml"
exclude_patterns = ["build", "made", "**sg_execution_times.rst"]
# Types of other packages, and types of our own that users never name, have no page here.
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|np|pandas|pd|scipy|matplotlib|collections|pathlib)\..*"),
    ("py:.*", r"multihorizon\..*"),
    # Half of a type that holds a comma inside brackets.
    ("py:class", r"float \| ~.*"),
    ("py:exc", r"NoUncertaintyError"),
]

# Pages: names in backquotes are code, links to headings work down to the third level.
default_role = "code"
smartquotes = False  # options begin with two hyphens
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3

# The reference: from docstrings and signatures; the names are those at the front door.
autosummary_generate = True
autosummary_ignore_module_all = False
# `goals` and `Goals` would be one file where file names do not tell small letters from capitals.
PUBLIC = [*mh.__all__, *(f"domains.{name}" for name in mh.domains.__all__)]
autosummary_filename_map = {
    f"multihorizon.{name}": f"multihorizon.{name}-function"
    for name in PUBLIC
    if name.islower() and any(name == other.lower() != other for other in PUBLIC)
}
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

# The gallery: the scripts are run, and the pictures they draw are shown. The example on intensive care needs data of its own.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/(plot_|frozen_lake)",
    "ignore_pattern": r"icu_sepsis",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 10_000,
    "within_subsection_order": "FileNameSortKey",
    "plot_gallery": "True",
    "abort_on_example_error": True,
}

# The look: nothing is loaded from the network, so pages and search work offline.
html_theme = "furo"
html_title = f"multihorizon {release}"
html_show_sourcelink = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["made"]  # the report of the demo, which the front page opens
templates_path = ["templates"]


class Sections(GoogleDocstring):
    """A docstring with sections. What is returned is told in sentences: words before a colon are no type."""

    def _consume_returns_section(
        self, preprocess_types: bool = False
    ) -> list[tuple[str, str, list[str]]]:
        lines = self._dedent(self._consume_to_next_section())
        return [("", "", lines)] if lines else []


def read_sections(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Read `Args:`, `Returns:` and `Raises:` in docstrings; those of properties have no sections, and may hold a colon."""
    if what not in ("property", "attribute"):
        for place, line in reversed([*enumerate(lines)]):
            if re.fullmatch(r"(Attributes? (of|that)|Of each) .*:", line):
                lines[place : place + 1] = [line, "", "Attributes:"]
        lines[:] = Sections(lines, Config(), app, what, name, obj, options).lines()
        for place, line in reversed([*enumerate(lines)]):  # properties have an entry of their own
            attribute = re.fullmatch(r"\.\. attribute:: (\w+)", line)
            if attribute and isinstance(
                inspect.getattr_static(obj, attribute[1], None), (property, cached_property)
            ):
                lines.insert(place + 1, "   :no-index:")


def to_front_door(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Point a type that is named by the module it lives in to its page, which has the public name."""
    home, _, name = node["reftarget"].rpartition(".")
    if not home.startswith("multihorizon.") or name not in mh.__all__:
        return None
    node["reftarget"] = f"multihorizon.{name}"
    return env.domains["py"].resolve_xref(
        env, node["refdoc"], app.builder, "obj", node["reftarget"], node, content
    )


def write_made(app: Sphinx, config: Any) -> None:
    """Write what the code makes for the pages: the page on the commands, and the report that the front page opens."""
    (DOCS / "api" / "commands.md").write_text(list_commands.page(), encoding="utf-8")
    if not MADE.exists():
        with contextlib.redirect_stdout(io.StringIO()):
            program(["demo", "--out", str(MADE / "demo")], standalone_mode=False)


def draw_maps(app: Sphinx, docname: str, source: list[str]) -> None:
    """On the front page, put drawings that follow its colours and width in the place of the README's picture."""
    if docname == "index":
        source[0] = re.sub(
            r"!\[[^]]*\]\(images/idea.png\)",
            f"```{{raw}} html\n{draw_idea.front_page()}```",
            source[0],
        )


def link_gallery(app: Sphinx, doctree: nodes.document) -> None:
    """Point links to scripts, which the changelog has for readers of the repository, to their pages in the gallery."""
    for node in doctree.findall(pending_xref):
        if node["reftarget"].startswith("examples/plot_"):
            page = f"gallery/{Path(node['reftarget']).stem}"
            node["refdomain"], node["reftarget"], node["reftargetid"] = "doc", page, None


#: Pages that have moved, and where their readers are led.
MOVED = {
    "explanation/lookahead": "how-to/lookahead",
    "explanation/recorded-people": "tutorials/recorded-people",
    "explanation/reversed-orders": "explanation/linear-programs",
    "how-to/choose-a-solver": "choose-a-method",
    "how-to/cluster": "how-to/large-data",
    "how-to/data-frames": "how-to/large-data",
    "how-to/features": "how-to/constrain-the-model",
    "how-to/known-parameters": "how-to/constrain-the-model",
    "how-to/large-tables": "how-to/large-data",
    "how-to/several-tasks": "how-to/constrain-the-model",
    "how-to/what-if": "tutorials/what-if",
    "tutorials/study-of-people": "tutorials/compare-groups",
    "tutorials/table-of-decisions": "data-format",
}


def write_redirects(app: Sphinx, error: Exception | None) -> None:
    """Lead readers of pages that have moved to where their text is now."""
    for old, new in MOVED.items():
        page = Path(app.outdir) / f"{old}.html"
        page.write_text(
            f'<!doctype html><title>Moved</title><meta http-equiv="refresh" content="0; url=../{new}.html">'
            f'<a href="../{new}.html">This page has moved.</a>\n',
            encoding="utf-8",
        )


def wrap_sentences(app: Sphinx, doctree: nodes.document) -> None:
    """Break long sentences in what programs print, as a terminal does; tables and commands stay as they are."""
    for block in doctree.findall(nodes.literal_block):
        if block.get("language") in ("console", "text", "none"):
            text = "\n".join(_wrapped(line) for line in block.astext().split("\n"))
            block.rawsource, block.children = text, []
            block += nodes.Text(text)


def _wrapped(line: str) -> str:
    """A line, broken where it is a long sentence."""
    if (
        len(line) <= 100
        or line.startswith("$ ")
        or any(sign in line for sign in "│┃━─")
        or "   " in line.strip()
    ):
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.fill(
        line, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def setup(app: Sphinx) -> None:
    """Hook the functions above into the build."""
    app.connect("config-inited", write_made)
    app.connect("autodoc-process-docstring", read_sections)
    app.connect("source-read", draw_maps)
    app.connect("doctree-read", wrap_sentences)
    app.connect("doctree-read", link_gallery)
    app.connect("missing-reference", to_front_door)
    app.connect("build-finished", write_redirects)
