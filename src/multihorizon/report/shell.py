"""Around every page: inert text, the style, the script with its controls, and what a browser may do.

Without scripts a page shows every number. The script (`assets/*.js`) adds controls, and finds what they act on by these names:

- `data-experts="2 5"`: a row, cell or mark that belongs to experts 2 and 5. It is hidden unless both are chosen.
- `class="in-discount"` and `class="in-steps"`: the same look-ahead as a discount and in steps. One of them is shown.
- `class="mark"` with a `<title>`: a mark in a figure, and what it tells under the pointer.

The page's own policy (a `Content-Security-Policy`) lets the browser run this one script, known by its hash, and load nothing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Any

from multihorizon.files.labels import visible

#: The parts of the script, in order.
SCRIPTS = ("page.js", "tables.js", "figures.js", "explorer.js")


def text(value: str) -> str:
    """Text for the page or for an attribute: markup and characters that change the direction of writing are shown, not obeyed."""
    return escape(visible(value))


def data_block(value: Any) -> str:
    """Data for the script, as JSON in which nothing can end the block or be taken for markup."""
    content = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII: line separators are written out
    for character in "<>&":
        content = content.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json">{content}</script>'


def controls(experts: Sequence[tuple[int, str]], units: bool) -> str:
    """What acts on the whole page. It is hidden until the script runs."""
    return (
        f'<div class="controls page" hidden>{UNITS if units else ""}{THEMES}{_chooser(experts) if len(experts) > 1 else ""}</div>'
    )


UNITS = (
    '<fieldset><legend>Look-ahead</legend><label><input type="radio" name="unit" class="unit" value="discount" checked '
    'autocomplete="off"> discount γ</label><label><input type="radio" name="unit" class="unit" value="steps" '
    'autocomplete="off"> steps</label></fieldset>'
)
THEMES = (
    '<label>Colours <select class="theme" autocomplete="off"><option value="">as the system</option>'
    '<option value="light">light</option><option value="dark">dark</option></select></label>'
)


def _chooser(experts: Sequence[tuple[int, str]]) -> str:
    box = '<li><label><input type="checkbox" value="{}" checked autocomplete="off"> {}</label></li>'
    boxes = "".join(box.format(number, text(name)) for number, name in experts)
    return (
        f'<details class="chooser"><summary>Experts: <output>all {len(experts)}</output></summary><label>Find '
        '<input type="search" class="find" autocomplete="off"></label> <button type="button" class="every">All listed'
        f'</button> <button type="button" class="none">None listed</button><ul>{boxes}</ul></details>'
    )


@cache
def asset(name: str) -> str:
    """The text of a file that is part of every page."""
    return resources.files("multihorizon.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """The script of every page."""
    return "".join(asset(name) for name in SCRIPTS)


@cache
def security_policy() -> str:
    """Nothing may be loaded, and no script may run but this page's own."""
    digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode("ascii")
    rules = ["default-src 'none'", "img-src data:", "style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'"]
    return escape("; ".join([*rules, "base-uri 'none'", "form-action 'none'"]), quote=False)
