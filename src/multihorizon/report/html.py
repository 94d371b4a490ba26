"""A self-contained page: one HTML file with its style, script and figures inside, which needs no network.

A page is a title, a line under it, opening blocks, and sections of blocks. Blocks are made by `paragraph`, `table`, `figure`,
`listing`, `badge`, `cards` and `warning` here, and by the drawings of `charts` and `explorer`. All text goes through `text`, so a
label is shown as it is, whatever it contains. What a reader can do with a page is described in `shell`.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from multihorizon.report.shell import asset, controls, script, security_policy, text

#: The longest text of a cell that is kept on one line.
SHORT = 24
#: Tables with more rows are folded.
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
    """A whole page; `render` gives the HTML, `write` a file.

    `experts` are the names that a reader can choose from, by the number that `data-experts` uses, in the order of the list.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = ""
    opening: Sequence[str] = ()
    experts: Sequence[tuple[int, str]] = ()

    def render(self) -> str:
        """The page as one string."""
        body = "\n".join(
            f'<section id="part-{i}"><h2>{text(section.heading)}</h2>\n{"".join(section.blocks)}</section>'
            for i, section in enumerate(self.sections, 1)
        )
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{security_policy()}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{text(self.title)}</title><style>{asset('page.css')}</style></head>\n<body><main>"
            f'<h1>{text(self.title)}</h1><p class="lead">{text(self.lead)}</p>\n{self._contents()}'
            f"{controls(self.experts, 'in-steps' in body)}\n{''.join(self.opening)}\n{body}"
            f"<footer>{text(self.footer)}</footer></main><script>{script()}</script></body></html>\n"
        )

    def _contents(self) -> str:
        links = [f'<li><a href="#part-{i}">{text(section.heading)}</a></li>' for i, section in enumerate(self.sections, 1)]
        return f'<nav aria-label="Sections"><ul>{"".join(links)}</ul></nav>' if len(links) > 1 else ""

    def write(self, path: str | Path) -> None:
        """Write the page as UTF-8."""
        Path(path).write_text(self.render(), encoding="utf-8", newline="\n")


def paragraph(content: str) -> str:
    """A paragraph."""
    return f"<p>{text(content)}</p>"


def badge(content: str, kind: str = "") -> str:
    """A short verdict that stands out; `kind` is "good", "bad" or nothing."""
    return f'<p><span class="badge {text(kind)}">{text(content)}</span></p>'


def listing(content: str) -> str:
    """Text with its line breaks kept."""
    return f"<pre>{text(content)}</pre>"


def side_by_side(blocks: Sequence[str]) -> str:
    """Blocks beside each other where there is room."""
    return f'<div class="beside">{"".join(blocks)}</div>'


def warning(content: str) -> str:
    """What a reader must know before anything else."""
    return f'<p class="warning">{text(content)}</p>'


def cards(verdicts: Sequence[tuple[str, str, str]]) -> str:
    """Questions side by side, each with its answer and a kind: "good", "caution" or "bad"."""
    parts = [
        f'<div class="card {text(kind)}"><h3>{text(question)}</h3><strong>{text(answer)}</strong></div>'
        for question, answer, kind in verdicts
    ]
    return f'<div class="cards">{"".join(parts)}</div>'


def whose(experts: Sequence[int]) -> str:
    """The attribute that says to whom a row, a cell or a mark belongs."""
    return f' data-experts="{" ".join(map(str, experts))}"' if experts else ""


class Bar(NamedTuple):
    """A cell that draws an estimate and its interval on a scale; NaN leaves a part out."""

    low: float
    value: float
    high: float
    scale: tuple[float, float]

    def draw(self, kind: str = "") -> str:
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
        name = f' class="{kind}"' if kind else ""
        return f'<svg{name} viewBox="0 0 100 20" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'


class Either(NamedTuple):
    """A look-ahead as a discount and in steps: the reader chooses which is shown. `key` sorts, NaN last."""

    discount: str | Bar
    steps: str | Bar
    key: float = float("nan")

    def draw(self) -> str:
        """Both, of which the style shows one."""
        if isinstance(self.discount, Bar) and isinstance(self.steps, Bar):
            return self.discount.draw("in-discount") + self.steps.draw("in-steps")
        if self.discount == self.steps:
            return text(show(self.discount))
        parts = [("in-discount", self.discount), ("in-both", " · "), ("in-steps", self.steps)]
        return "".join(f'<span class="{kind}">{text(show(value))}</span>' for kind, value in parts)


class Raw(NamedTuple):
    """A cell that is HTML already; `words` says how wide it is."""

    html: str
    words: str


Cell = str | float | int | Bar | Either | Raw | None


def table(
    headers: Sequence[str | Either],
    rows: Sequence[Sequence[Cell]],
    caption: str = "",
    experts: Sequence[Sequence[int]] = (),
    columns: Sequence[Sequence[int]] = (),
) -> str:
    """A table that scrolls sideways where it does not fit; numbers are right-aligned. A long one is folded.

    `experts` says for each row, and `columns` for each column, which experts it belongs to.
    """
    kind = [_cell_class([row[i] for row in rows]) for i in range(len(headers))]
    own = [whose(of) for of in columns] or [""] * len(headers)
    head = "".join(f'<th class="{k}"{o}>{_inner(h)}</th>' for h, k, o in zip(headers, kind, own, strict=True))
    lines = []
    for row, of in zip(rows, experts or [()] * len(rows), strict=True):
        cells = "".join(_cell(cell, k, o) for cell, k, o in zip(row, kind, own, strict=True))
        lines.append(f"<tr{whose(of)}>{cells}</tr>")
    long = len(rows) > LONG_TABLE
    title = f"<caption>{text(caption)}</caption>" if caption and not long else ""
    label = f' aria-label="{text(caption)}"' if caption and long else ""
    drawn = (
        f'<div class="scroll"><table{label}>{title}<thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
    )
    return f"<details><summary>{text(caption or 'Table')} ({len(rows):,} rows)</summary>{drawn}</details>" if long else drawn


def _cell(cell: Cell, kind: str, own: str) -> str:
    key = cell.value if isinstance(cell, Bar) else cell.key if isinstance(cell, Either) else None
    sort = "" if key is None else f' data-key="{f"{key:.6g}" if key == key else ""}"'
    return f'<td class="{kind}"{sort}{own}>{_inner(cell)}</td>'


def _inner(cell: Cell) -> str:
    if isinstance(cell, Bar | Either):
        return cell.draw()
    return cell.html if isinstance(cell, Raw) else text(show(cell))


def _cell_class(column: Sequence[Cell]) -> str:
    """Numbers to the right; short texts on one line."""
    plain = [cell.discount if isinstance(cell, Either) else cell.words if isinstance(cell, Raw) else cell for cell in column]
    if any(isinstance(cell, Bar) for cell in plain):
        return "bar"
    texts = [show(cell) for cell in plain]
    if column and all(NUMBER.fullmatch(content) for content in texts):
        return "number"
    return "short" if all(len(content) <= SHORT for content in texts) else "text"


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
    picture = f'<img alt="{text(caption)}" src="data:image/svg+xml;base64,{data}">'
    return framed(picture, caption, int(PIXELS * whole.get_size_inches()[0]))


def framed(picture: str, caption: str, width: int) -> str:
    """A picture, at most so many pixels wide, with its caption."""
    return f'<figure style="max-width: {width}px">{picture}<figcaption>{text(caption)}</figcaption></figure>'
