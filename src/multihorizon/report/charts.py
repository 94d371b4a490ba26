"""Around every page: inert text, the style, the script with its controls, and what a browser may do.

Without scripts a page shows every number. The script (`assets/*.js`) adds controls, and finds what they act on by these names:

- `data-experts="2 5"`: a row, cell or mark that belongs to experts 2 and 5. It is hidden unless both are chosen.
- `class="in-discount"` and `class="in-steps"`: the same look-ahead as a discount and in steps. One of them is shown.
- `class="mark"` with a `<title>`: a mark in a figure, and what it tells under the pointer.

The page's own policy (a `Content-Security-Policy`) lets the browser run this one script, known by its hash, and load nothing.

A self-contained page: one HTML file with its style, script and figures inside, which needs no network.

A page is a title, a line under it, opening blocks, and sections of blocks. Blocks are made by `paragraph`, `table`, `figure`,
`listing`, `badge`, `cards` and `warning` here, and by the drawings of `charts` and `explorer`. All text goes through `text`, so a
label is shown as it is, whatever it contains. What a reader can do with a page is described in `shell`.

Charts drawn as SVG in the page: marks tell their numbers under the pointer, and belong to experts who can be chosen.

A chart has one panel, or one for each unit of look-ahead, of which the page shows one. Axes run from 0 to 1 unless they say
otherwise. Colours come from the page's style, so a chart is light or dark as the page is.

Two rulers for one look-ahead: the discount γ itself, and the effective horizon in steps on a logarithmic scale.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import resources
from math import ceil, inf, isnan, log, log10
from pathlib import Path
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from multihorizon.files import visible
from multihorizon.text import effective_horizon, horizon_text

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


#: The size of a chart and the room around its panel, in the units of its drawing, which are about pixels.
WIDTH, HEIGHT = 420.0, 340.0
LEFT, RIGHT, TOP, BOTTOM = 48.0, 14.0, 12.0, 44.0
#: The most dots of a figure.
MOST_DOTS = 1500
#: Numbers from 0 to 1.
FIFTHS = [(share, f"{share:g}") for share in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)]


class Axis(NamedTuple):
    """A label, the range, and numbers at places of it."""

    label: str
    ticks: Sequence[tuple[float, str]] = FIFTHS
    low: float = 0.0
    high: float = 1.0


class Mark(NamedTuple):
    """A dot with what it tells; `across` or `up` is an interval drawn through it, and `colour` counts from 0."""

    x: float
    y: float
    tip: str
    experts: Sequence[int] = ()
    size: float = 4.0
    across: tuple[float, float] | None = None
    up: tuple[float, float] | None = None
    colour: int = 0


class Line(NamedTuple):
    """A line through points, drawn under the marks; a label stands in the legend, and `filled` shades what is below."""

    points: Sequence[tuple[float, float]]
    label: str = ""
    colour: int = 0
    plain: bool = False
    filled: bool = False


@dataclass(frozen=True)
class Panel:
    """Axes with their marks; `kind` is a class that the page's style shows or hides."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    lines: Sequence[Line] = field(default=())
    kind: str = ""

    def draw(self, height: float) -> str:
        """The panel as a group of SVG."""
        pen = _Pen(self.x, self.y, height)
        parts = [pen.axes(), *(pen.line(line) for line in self.lines), *(pen.mark(mark) for mark in self.marks)]
        named = [line for line in self.lines if line.label]
        parts += [pen.legend(i, line) for i, line in enumerate(named)]
        return f'<g class="{self.kind}">{"".join(parts)}</g>'


def chart(caption: str, panels: Sequence[Panel], height: float = HEIGHT) -> str:
    """A figure of one panel, or of one for each unit; the caption is also its text for readers who cannot see it."""
    body = "".join(panel.draw(height) for panel in panels)
    drawn = f'<svg class="chart" role="img" aria-label="{text(caption)}" viewBox="0 0 {WIDTH:g} {height:g}">{body}</svg>'
    return framed(drawn, caption, 560)


def diagonal() -> Line:
    """The line on which both axes agree."""
    return Line([(0.0, 0.0), (1.0, 1.0)], plain=True)


@dataclass(frozen=True)
class _Pen:
    """From values to places in the drawing."""

    x: Axis
    y: Axis
    height: float

    def right(self, value: float) -> float:
        share = (value - self.x.low) / ((self.x.high - self.x.low) or 1.0)
        return LEFT + min(max(share, -0.02), 1.02) * (WIDTH - LEFT - RIGHT)

    def down(self, value: float) -> float:
        share = (value - self.y.low) / ((self.y.high - self.y.low) or 1.0)
        return self.height - BOTTOM - min(max(share, -0.02), 1.02) * (self.height - TOP - BOTTOM)

    def axes(self) -> str:
        bottom, end = self.height - BOTTOM, WIDTH - RIGHT
        parts = []
        for value, label in self.x.ticks:
            at = self.right(value)
            parts.append(f'<path class="grid" d="M{at:.1f} {TOP:g}V{bottom:g}"/>')
            parts.append(f'<text class="soft" x="{at:.1f}" y="{bottom + 16:g}" text-anchor="middle">{text(label)}</text>')
        for value, label in self.y.ticks:
            at = self.down(value)
            parts.append(f'<path class="grid" d="M{LEFT:g} {at:.1f}H{end:g}"/>')
            parts.append(f'<text class="soft" x="{LEFT - 6:g}" y="{at + 4:.1f}" text-anchor="end">{text(label)}</text>')
        middle = (TOP + bottom) / 2
        parts.append(f'<path class="frame" d="M{LEFT:g} {TOP:g}V{bottom:g}H{end:g}"/>')
        parts.append(f'<text x="{(LEFT + end) / 2:g}" y="{self.height - 8:g}" text-anchor="middle">{text(self.x.label)}</text>')
        parts.append(f'<text transform="translate(12 {middle:g}) rotate(-90)" text-anchor="middle">{text(self.y.label)}</text>')
        return "".join(parts)

    def mark(self, mark: Mark) -> str:
        x, y, colour = self.right(mark.x), self.down(mark.y), f" c{mark.colour}" if mark.colour else ""
        place = f'cx="{x:.1f}" cy="{y:.1f}" r="{mark.size:.3g}"'
        title = f"<title>{text(mark.tip)}</title>"
        reach = self._reach(mark, x, y)
        if not reach:
            return f'<circle class="mark dot{colour}" {place}{whose(mark.experts)}>{title}</circle>'
        parts = f'<path class="stroke" stroke-width="{mark.size:.3g}" d="{reach}"/><circle class="dot" {place}/>'
        return f'<g class="mark{colour}"{whose(mark.experts)}>{title}{parts}</g>'

    def _reach(self, mark: Mark, x: float, y: float) -> str:
        """The path of the interval through a mark, if it has one."""
        if mark.across is not None:
            return f"M{self.right(mark.across[0]):.1f} {y:.1f}H{self.right(mark.across[1]):.1f}"
        if mark.up is not None:
            return f"M{x:.1f} {self.down(mark.up[0]):.1f}V{self.down(mark.up[1]):.1f}"
        return ""

    def line(self, line: Line) -> str:
        places = " ".join(f"{self.right(x):.1f},{self.down(y):.1f}" for x, y in line.points)
        colour = f" c{line.colour}" if line.colour else ""
        return f'<polyline class="{"frame" if line.plain else "area" if line.filled else "stroke"}{colour}" points="{places}"/>'

    def legend(self, number: int, line: Line) -> str:
        """A line's sign and name, from the middle of the panel downward: shares and errors keep to its edges."""
        y, colour = self.height / 2 + 16 * number, f" c{line.colour}" if line.colour else ""
        sign = f'<path class="stroke{colour}" stroke-width="3" d="M{LEFT + 10:g} {y - 4:g}h18"/>'
        return f'{sign}<text x="{LEFT + 34:g}" y="{y:g}">{text(line.label)}</text>'


Unit = Literal["discount", "steps"]
UNITS_RULERS: tuple[Unit, ...] = ("discount", "steps")
#: The ruler of an endless task ends at a power of ten between these.
NEAREST_END, FARTHEST_END = 10.0, 10_000.0


@dataclass(frozen=True)
class Ruler:
    """Where a discount stands on each ruler, from 0 to 1.

    Attributes:
        steps: the most steps of the task; may be infinite.
        farthest: the horizon at the right end of the ruler in steps; longer ones stand there too.
    """

    steps: float
    farthest: float

    @classmethod
    def over(cls, discounts: Iterable[float], steps: float) -> Ruler:
        """The rulers that hold these discounts, as far as a ruler goes.

        Example:
            >>> ruler = Ruler.over([0.5, 0.95], steps=float("inf"))
            >>> ruler.farthest, round(ruler.place(0.9, "steps"), 3), ruler.place(0.9, "discount")
            (100.0, 0.5, 0.9)
        """
        found = [effective_horizon(discount, steps) for discount in discounts if not isnan(discount)]
        largest = max((h for h in found if h < inf), default=NEAREST_END)
        end = 10.0 ** ceil(log10(max(largest, 1.0)) - 1e-9)
        return cls(steps, max(min(max(end, NEAREST_END), FARTHEST_END, steps), 2.0))

    def place(self, discount: float, unit: Unit) -> float:
        """Where a discount stands, from 0 to 1; NaN for NaN."""
        if unit == "discount" or isnan(discount):
            return discount
        return log(min(effective_horizon(discount, self.steps), self.farthest)) / log(self.farthest)

    def ticks(self, unit: Unit) -> list[tuple[float, str]]:
        """Places with their numbers."""
        if unit == "discount":
            return [(i / 5, f"{i / 5:g}") for i in range(6)]
        steps = [m * 10.0**e for e in range(5) for m in (1, 2, 5) if m * 10.0**e <= self.farthest]
        shown = steps if len(steps) <= 8 else [s for s in steps if log10(s) % 1 < 1e-9]
        return [(log(s) / log(self.farthest), f"{s:,.0f}") for s in shown]

    def bar(self, low: float, discount: float, high: float) -> Either:
        """An interval drawn on each ruler."""
        by_discount, by_steps = (self._bar(low, discount, high, unit) for unit in UNITS_RULERS)
        return Either(by_discount, by_steps, discount)

    @property
    def title(self) -> Either:
        """From where to where the rulers go."""
        return Either("0 to 1", f"1 to {self.farthest:,.0f} steps")

    def _bar(self, low: float, discount: float, high: float, unit: Unit) -> Bar:
        return Bar(self.place(low, unit), self.place(discount, unit), self.place(high, unit), (0.0, 1.0))


def look_ahead(discount: float, steps: float) -> Either | None:
    """A discount, and its horizon in a task of so many steps; None where it is not known."""
    return None if isnan(discount) else Either(f"{discount:.3f}", horizon_text(discount, steps), discount)


def look_ahead_range(ends: Iterable[float], steps: float) -> Either | None:
    """Two discounts, and their horizons in a task of so many steps; None where an end is not known."""
    low, high = ends
    if isnan(low + high):
        return None
    words = f"{low:.3f} to {high:.3f}", f"{horizon_text(low, steps)} to {horizon_text(high, steps)}"
    return Either(*words, key=low)


#: What stands at each ruler.
LABELS: dict[Unit, str] = {"discount": "discount γ", "steps": "horizon in steps, on a logarithmic scale"}
