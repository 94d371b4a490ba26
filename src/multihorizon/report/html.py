"""A self-contained page: one HTML file with its style and figures inside, which needs no network.

A page is a title, a line under it, opening blocks, and sections of blocks. Blocks are made by `paragraph`, `table`, `figure`,
`listing`, `badge`, `cards` and `warning`, which escape all text handed to them. The style reads on a telephone and on a desk, in
light and dark. Text in figures stays text, so that every script can be read. Tables of many rows are folded; a click on a heading
sorts them, and without scripts they are still complete.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

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
.badge.bad, .card.bad { border-left-color: #d55e00; } .badge.good, .card.good { border-left-color: #009e73; }
.card.caution { border-left-color: #e69f00; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 0.8rem; margin: 1rem 0; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 0 0.8rem;
  align-items: start; }
.card { background: var(--card); border: 1px solid var(--line); border-left: 6px solid var(--mark); border-radius: 8px;
  padding: 0.6rem 0.8rem; }
.card h3 { margin: 0; font-size: 0.9rem; font-weight: 600; color: var(--soft); }
.card strong { display: block; font-size: 1.25rem; }
.warning { border: 2px solid #d55e00; border-radius: 8px; padding: 0.6rem 0.8rem; font-weight: 600; max-width: none; }
td.text, th.text { overflow-wrap: anywhere; min-width: 11rem; max-width: 22rem; }
th.bar { min-width: 7rem; width: 25%; } table:has(th.bar) { width: 100%; }
td.bar svg { display: block; width: 100%; height: 1.2rem; color: var(--mark); }
summary { cursor: pointer; color: var(--mark); margin: 0.6rem 0; } table.sortable th { cursor: pointer; }
@media (max-width: 34rem) { table { font-size: 0.85rem; } th, td { padding-right: 0.5rem; } td.bar, th.bar { display: none; }
  td.text, th.text { min-width: 5.5rem; } }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 0.8rem; white-space: pre-wrap;
  overflow-wrap: anywhere; font-size: 0.85rem; }
footer { margin-top: 3rem; font-size: 0.85rem; }
"""

#: Sorts a table by the column whose heading is clicked: numbers as numbers, text as text. Cells without a number come last.
SCRIPT = """
document.querySelectorAll("table.sortable th").forEach((head) => head.addEventListener("click", () => {
  const body = head.closest("table").tBodies[0], column = head.cellIndex, down = head.dataset.down !== "1";
  const key = (row) => { const text = row.cells[column].dataset.key ?? row.cells[column].textContent;
    const number = parseFloat(text.replace(/[≥<=,]/g, "")); return Number.isNaN(number) ? text : number; };
  const sign = down ? 1 : -1;
  head.dataset.down = down ? "1" : "0";
  [...body.rows].sort((a, b) => { const x = key(a), y = key(b);
    return typeof x === typeof y ? sign * (x > y ? 1 : x < y ? -1 : 0) : typeof x === "number" ? -1 : 1; })
    .forEach((row) => body.append(row));
}));
"""

#: The longest text of a cell that is kept on one line.
SHORT = 24
#: Tables with more rows are folded and can be sorted.
LONG_TABLE = 20
#: What a cell with a number looks like.
NUMBER = re.compile(r"[≥<=\s\d.,%−+–-]*(to[\s\d.,−-]*)?")
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
    opening: Sequence[str] = ()

    def render(self) -> str:
        """The page as one string."""
        body = "\n".join(
            f"<section><h2>{escape(section.heading)}</h2>\n{''.join(section.blocks)}</section>" for section in self.sections
        )
        script = f"<script>{SCRIPT}</script>" if 'class="sortable"' in body else ""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style></head>\n<body><main>"
            f'<h1>{escape(self.title)}</h1><p class="lead">{escape(self.lead)}</p>\n{"".join(self.opening)}\n{body}'
            f"<footer>{escape(self.footer)}</footer></main>{script}</body></html>\n"
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


def side_by_side(blocks: Sequence[str]) -> str:
    """Blocks beside each other where there is room."""
    return f'<div class="beside">{"".join(blocks)}</div>'


def warning(text: str) -> str:
    """What a reader must know before anything else."""
    return f'<p class="warning">{escape(text)}</p>'


def cards(verdicts: Sequence[tuple[str, str, str]]) -> str:
    """Questions side by side, each with its answer and a kind: "good", "caution" or "bad"."""
    parts = [
        f'<div class="card {escape(kind)}"><h3>{escape(question)}</h3><strong>{escape(answer)}</strong></div>'
        for question, answer, kind in verdicts
    ]
    return f'<div class="cards">{"".join(parts)}</div>'


class Bar(NamedTuple):
    """A cell that draws an estimate and its interval on a scale; NaN leaves a part out."""

    low: float
    value: float
    high: float
    scale: tuple[float, float]

    def draw(self) -> str:
        """The drawing, with the scale's zero or start as a line."""
        start, end = self.scale
        low, value, high = (100 * (x - start) / ((end - start) or 1.0) for x in (self.low, self.value, self.high))
        zero = min(max(-100 * start / ((end - start) or 1.0), 0.0), 100.0)
        parts = [f'<path d="M{zero:.1f} 0V20" stroke="currentColor" opacity=".35" vector-effect="non-scaling-stroke"/>']
        if low == low and high == high:
            parts.append(
                f'<path d="M{low:.1f} 10H{max(high, low + 0.5):.1f}" stroke="currentColor" stroke-width="6" opacity=".45"/>'
            )
        if value == value:
            parts.append(f'<path d="M{value - 0.8:.1f} 10H{value + 0.8:.1f}" stroke="currentColor" stroke-width="14"/>')
        return f'<svg viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'


Cell = str | float | int | Bar | None


def table(headers: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str = "") -> str:
    """A table that scrolls sideways where it does not fit; numbers are right-aligned. A long one is folded and can be sorted."""
    kind = [_cell_class([row[i] for row in rows]) for i in range(len(headers))]
    head = "".join(f'<th class="{k}">{escape(h)}</th>' for h, k in zip(headers, kind, strict=True))
    body = "".join("<tr>" + "".join(_cell(cell, k) for cell, k in zip(row, kind, strict=True)) + "</tr>" for row in rows)
    long = len(rows) > LONG_TABLE
    title = f"<caption>{escape(caption)}</caption>" if caption and not long else ""
    sortable = ' class="sortable"' if long else ""
    drawn = f'<div class="scroll"><table{sortable}>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    return f"<details><summary>{escape(caption or 'Table')} ({len(rows):,} rows)</summary>{drawn}</details>" if long else drawn


def _cell(cell: Cell, kind: str) -> str:
    if isinstance(cell, Bar):
        return f'<td class="bar" data-key="{cell.value:.6g}">{cell.draw()}</td>'
    return f'<td class="{kind}">{escape(show(cell))}</td>'


def _cell_class(column: Sequence[Cell]) -> str:
    """Numbers to the right; short texts on one line."""
    if any(isinstance(cell, Bar) for cell in column):
        return "bar"
    texts = [show(cell) for cell in column]
    if column and all(NUMBER.fullmatch(text) for text in texts):
        return "number"
    return "short" if all(len(text) <= SHORT for text in texts) else "text"


def show(value: Any) -> str:
    """A cell: numbers short, what is missing as a dash."""
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    if isinstance(value, float):
        return f"{value:.0f}" if value == round(value) and abs(value) >= 1000 else f"{value:.4g}"
    return str(value)


def figure(drawing: Axes | Figure, caption: str) -> str:
    """A matplotlib figure as an inline SVG picture; the caption is also its text for readers who cannot see it."""
    whole = drawing if isinstance(drawing, Figure) else drawing.get_figure(root=True)
    assert whole is not None
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "multihorizon", "svg.fonttype": "none"}), warnings.catch_warnings():
        # The browser draws the text, with fonts of its own for scripts that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        whole.savefig(buffer, format="svg", metadata={"Date": None})
    data = base64.b64encode(buffer.getvalue()).decode("ascii")
    text = escape(caption, quote=True)
    width = int(PIXELS * whole.get_size_inches()[0])
    picture = f'<img alt="{text}" src="data:image/svg+xml;base64,{data}">'
    return f'<figure style="max-width: {width}px">{picture}<figcaption>{text}</figcaption></figure>'
