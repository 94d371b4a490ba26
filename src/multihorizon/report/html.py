"""A self-contained page: one HTML file with its style and figures inside, which needs no network and no script.

A page is a title, a line under it, and sections of blocks. Blocks are made by `paragraph`, `table`, `figure`, `listing` and
`badge`, which escape all text handed to them. The style reads on a telephone and on a desk, in light and dark.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

STYLE = """
:root { color-scheme: light dark;
  --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --paper: #ffffff; --card: #f6f8fa; --mark: #0072b2; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ecf1; --soft: #a3aebb; --line: #3a434f; --paper: #14181d; --card: #1d232b; --mark: #56b4e9; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2.5rem 0 0.5rem; padding-top: 0.8rem; border-top: 1px solid var(--line); }
p { margin: 0.6rem 0; max-width: 46rem; overflow-wrap: anywhere; }
.lead, figcaption, caption, footer { color: var(--soft); }
.scroll { overflow-x: auto; margin: 0.8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.95rem; min-width: min(100%, 20rem); }
caption { text-align: left; padding-bottom: 0.4rem; font-size: 0.9rem; }
th, td { padding: 0.35rem 0.8rem 0.35rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { font-weight: 600; } td.number, th.number { text-align: right; } td.number, td.short { white-space: nowrap; }
figure { margin: 1rem 0; padding: 0.8rem; background: #ffffff; border: 1px solid var(--line); border-radius: 8px; }
figure img { display: block; width: 100%; height: auto; } figcaption { font-size: 0.9rem; padding-top: 0.5rem; color: #5b6675; }
.badge { display: inline-block; padding: 0.15rem 0.7rem; border-radius: 1rem; background: var(--card);
  border: 1px solid var(--line); border-left: 6px solid var(--mark); font-weight: 600; }
.badge.bad { border-left-color: #d55e00; } .badge.good { border-left-color: #009e73; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.8rem; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: 0.85rem; }
footer { margin-top: 3rem; font-size: 0.85rem; }
"""

#: The longest text of a cell that is kept on one line.
SHORT = 24
#: Widest display of an inch of a figure: text in it is then about as large as the page's.
PIXELS = 125


@dataclass(frozen=True)
class Section:
    """A heading and its blocks, which are pieces of HTML."""

    heading: str
    blocks: Sequence[str]


@dataclass(frozen=True)
class Page:
    """A whole page; `render` gives the HTML, `write` a file."""

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = ""

    def render(self) -> str:
        """The page as one string."""
        body = "\n".join(
            f"<section><h2>{escape(section.heading)}</h2>\n{''.join(section.blocks)}</section>" for section in self.sections
        )
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style></head>\n<body><main>"
            f'<h1>{escape(self.title)}</h1><p class="lead">{escape(self.lead)}</p>\n{body}'
            f"<footer>{escape(self.footer)}</footer></main></body></html>\n"
        )

    def write(self, path: str | Path) -> None:
        """Write the page as UTF-8."""
        Path(path).write_text(self.render(), encoding="utf-8")


def paragraph(text: str) -> str:
    """A paragraph."""
    return f"<p>{escape(text)}</p>"


def badge(text: str, kind: str = "") -> str:
    """A short verdict that stands out; `kind` is "good", "bad" or nothing."""
    return f'<p><span class="badge {escape(kind)}">{escape(text)}</span></p>'


def listing(text: str) -> str:
    """Text with its line breaks kept."""
    return f"<pre>{escape(text)}</pre>"


def table(headers: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """A table that scrolls sideways where it does not fit; cells that are not text are right-aligned."""
    columns = [[row[i] for row in rows] for i in range(len(headers))]
    kind = [_cell_class(column) for column in columns]
    head = "".join(f"<th{k}>{escape(h)}</th>" for h, k in zip(headers, kind, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{k}>{escape(show(cell))}</td>" for cell, k in zip(row, kind, strict=True)) + "</tr>" for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell_class(column: list[Any]) -> str:
    """Numbers to the right; short texts on one line."""
    if column and all(not isinstance(cell, str) for cell in column):
        return ' class="number"'
    return ' class="short"' if all(len(show(cell)) <= SHORT for cell in column) else ""


def show(value: Any) -> str:
    """A cell: numbers short, what is missing as a dash."""
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    if isinstance(value, float):
        return f"{value:.0f}" if value == round(value) and abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def figure(drawing: Axes | Figure, caption: str) -> str:
    """A matplotlib figure as an inline SVG picture; the caption is its text for who cannot see it."""
    whole = drawing if isinstance(drawing, Figure) else drawing.get_figure(root=True)
    assert whole is not None
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "multihorizon"}):
        whole.savefig(buffer, format="svg", metadata={"Date": None})
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    text = escape(caption, quote=True)
    width = int(PIXELS * whole.get_size_inches()[0])
    picture = f'<img alt="{text}" src="data:image/svg+xml;base64,{data}">'
    return f'<figure style="max-width: {width}px">{picture}<figcaption>{text}</figcaption></figure>'
