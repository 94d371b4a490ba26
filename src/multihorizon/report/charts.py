"""What a page is made of: blocks of plain data, which the templates in `templates/` draw when the page is rendered.

A page is one HTML file with its style, script and figures inside; it needs no network. It has a title, the answer and a line
under it, opening blocks, and sections of blocks. A block is a string, which is a paragraph, or a `Block`: the macro with the name
of its class draws it. Templates escape all that they are handed, so a label is shown as it is, whatever it contains.

Without scripts a page shows every number. The script (`assets/*.js`) adds controls, and finds what they act on by these names:

- `data-experts="2 5"`: a row, cell or mark that belongs to experts 2 and 5. It is hidden unless both are chosen.
- `class="in-discount"` and `class="in-steps"`: the same look-ahead as a discount and in steps. One of them is shown.
- `class="mark"` with a `<title>`: a mark in a figure, and what it says under the pointer.

The page's own policy (a `Content-Security-Policy`) lets the browser run this one script, known by its hash, and load nothing.

A chart has one panel, or one for each unit of look-ahead, of which the page shows one. Colours come from the page's style, so a
chart is light or dark as the page is. A look-ahead has two rulers: the discount γ itself, and the effective planning horizon on a
logarithmic scale.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from math import ceil, floor, inf, isnan, log, log10, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from multihorizon.checks import Floats
from multihorizon.files import visible
from multihorizon.horizon import Horizon
from multihorizon.words import UNKNOWN, Column, Table, decimals, significant

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Unit = Literal["discount", "steps"]
UNITS: tuple[Unit, ...] = ("discount", "steps")


@cache
def templates() -> Environment:
    """Return the templates. They escape text, and write out characters that would change the direction of writing."""

    def shown(value: Any) -> Any:
        return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    result = Environment(
        loader=PackageLoader("multihorizon.report"),
        autoescape=True,
        auto_reload=False,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=StrictUndefined,
    )
    result.filters["cell"] = cell_text
    result.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return result


@cache
def asset(name: str) -> str:
    """Return the text of a file that is part of every page."""
    return resources.files("multihorizon.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def script() -> str:
    """Return the script of every page."""
    return "".join(asset(f"{name}.js") for name in ("page", "tables", "figures", "explorer"))


class Block:
    """A piece of a page: data that the macro with the name of its class draws, in the template that the class names."""

    template: ClassVar[str] = "blocks.html"

    def __html__(self) -> str:
        drawn: str = getattr(templates().get_template(self.template).module, type(self).__name__)(self)
        return drawn


@dataclass(frozen=True)
class Section:
    """A heading and its blocks; a string is a paragraph."""

    heading: str
    blocks: Sequence[str | Block]


@dataclass(frozen=True)
class Page:
    """A whole page; `render` gives the HTML, `write` a file.

    `answer` stands first, under the title, before the line with the sizes and the controls. `experts` are the names that a reader
    can choose from, by the number that `data-experts` uses, in the order of the list.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    footer: str = ""
    opening: Sequence[str | Block] = ()
    experts: Sequence[tuple[int, str]] = ()
    answer: Sequence[str | Block] = ()

    def render(self) -> str:
        """Return the page as one string."""
        digest = base64.b64encode(hashlib.sha256(script().encode()).digest()).decode("ascii")
        rules = ["default-src 'none'", "img-src data:", "style-src 'unsafe-inline'", f"script-src 'sha256-{digest}'"]
        return (
            templates()
            .get_template("page.html")
            .render(
                page=self,
                policy="; ".join([*rules, "base-uri 'none'", "form-action 'none'"]),
                style=Markup(asset("page.css")),
                script=Markup(script()),
            )
        )

    def write(self, path: str | Path) -> None:
        """Write the page as UTF-8."""
        Path(path).write_text(self.render(), encoding="utf-8", newline="\n")


@dataclass(frozen=True)
class TextBlock(Block):
    """A text, and for some a kind: "good", "bad" or nothing."""

    content: str
    kind: str = ""


class Notice(TextBlock):
    """What a reader must know before anything else."""


class Lead(TextBlock):
    """The answer to what was asked, in a sentence."""


class Quote(TextBlock):
    """Text to copy into a paper, with a button that copies it."""


class Badge(TextBlock):
    """A short verdict of a kind, which stands out."""


class Listing(TextBlock):
    """Text with its line breaks kept."""


class Subheading(TextBlock):
    """A heading inside a section."""


@dataclass(frozen=True)
class Items(Block):
    """A list of sentences."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Cards(Block):
    """Questions side by side, each with its answer, its reasons and a kind: "good", "caution" or "bad"."""

    verdicts: Sequence[tuple[str, str, str, str]]


@dataclass(frozen=True)
class Beside(Block):
    """Blocks beside each other where there is room."""

    blocks: Sequence[Block]


@dataclass(frozen=True)
class Bar(Block):
    """A cell that draws an estimate, by which it is sorted, and its interval on a scale; NaN leaves a part out."""

    low: float
    value: float
    high: float
    scale: tuple[float, float] = (0.0, 1.0)

    def at(self, value: float) -> float:
        """Return where a value stands on the scale, in per cent."""
        start, end = self.scale
        return 100 * (value - start) / ((end - start) or 1.0)


@dataclass(frozen=True)
class Shares(Block):
    """A whole as one bar, cut into parts with a name and a share each, which stand below it."""

    parts: Sequence[tuple[str, float]]
    caption: str


@dataclass(frozen=True)
class Either(Block):
    """A look-ahead as a discount and as a horizon: the reader chooses which is shown. `key` sorts, NaN last."""

    discount: str | Bar
    steps: str | Bar
    key: float = nan


@dataclass(frozen=True)
class BestActions(Block):
    """A cell of actions, each with whether it is best now."""

    actions: Sequence[tuple[str, bool]]


@dataclass(frozen=True)
class TableBlock(Block):
    """A table that scrolls sideways where it does not fit; numbers are right-aligned. One of more rows than `folded` is folded.

    Cells of its frame may be blocks. `experts` says for each row, and `columns` for each column, which experts it belongs to.
    With a horizon, discounts also stand as horizons; with a ruler, their intervals are drawn on it. A hidden column is only
    drawn, and `headers` stand above columns of blocks.
    """

    table: Table
    experts: Sequence[Sequence[int]] = ()
    columns: Sequence[Sequence[int]] = ()
    horizon: Horizon | None = None
    ruler: Ruler | None = None
    hidden: Sequence[str] = ()
    headers: Mapping[str, Either] = field(default_factory=dict)
    folded: int = 20

    def drawn(self) -> list[tuple[Any, str, list[Any]]]:
        """Of each column the header, how it is set ("number", "short", "text" or "bar"), and the cells."""
        shown = [column for column in self.table.columns(joined=True) if column.name not in self.hidden]
        columns = [self._column(column) for column in shown]
        low, high = self.table.scale()
        if low < high and len(self.table.drawn) == 3:
            header: Any = f"{significant(low)} to {significant(high)}" if self.ruler is None else self.ruler.title
            bars: list[Any] = []
            for value, *ends in self.table.frame[[*self.table.drawn]].to_numpy(float).tolist():
                least, most = ends
                bar = Bar(least, value, most, (low, high)) if self.ruler is None else self.ruler.bar(least, value, most)
                bars.append(bar)
            beside = [column.name for column in shown].index(self.table.drawn[1]) + 1
            columns.insert(beside, (header, "bar", bars))
        return columns

    def _column(self, column: Column) -> tuple[Any, str, list[Any]]:
        header: Any = self.headers.get(column.name, column.heading)
        pairs = zip(column.values, column.cells, strict=True)
        cells: list[Any] = [value if isinstance(value, Block) else text for value, text in pairs]
        if self.horizon is not None and column.role == "discount":
            if "discount" in header:
                reach = f"{header.replace('discount', 'horizon')}, {self.horizon.many}"
                header = Either("discount γ" if header == "discount" else header, reach)
            horizon = self.horizon
            cells = [_look_ahead(value, cell, horizon) for value, cell in zip(column.values, cells, strict=True)]
        if column.numbers:
            return header, "number", cells
        plain = [cell.discount if isinstance(cell, Either) else cell for cell in cells]
        if any(isinstance(cell, Bar) for cell in plain):
            return header, "bar", cells
        texts = [name for cell in plain if isinstance(cell, BestActions) for name, _ in cell.actions]
        texts += [str(cell) for cell in plain if not isinstance(cell, BestActions)]
        if cells and all(re.fullmatch(r"[≥<=\s\d.,%−+–-]*(to[\s\d.,−-]*)?", content) for content in texts):
            return header, "number", cells
        return header, "short" if all(len(content) <= 24 for content in texts) else "text", cells


def _look_ahead(value: Any, cell: Any, horizon: Horizon) -> Any:
    """Return a cell of discounts, which also stands as a horizon; what is none stays as it is."""
    if cell == UNKNOWN or isinstance(value, str | Block) or value is None:
        return cell
    if isinstance(value, tuple):
        return Either(cell, horizon.interval(*value), value[0])
    return Either(cell, horizon.number(value), value)


Cell = str | float | int | Bar | Either | BestActions | None


def cell_text(value: Any) -> str | Block:
    """Return a cell: numbers short, what is missing as a dash, and a block as it is."""
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    if isinstance(value, float):
        return decimals(value, 0) if value == round(value) and abs(value) >= 1000 else significant(value, 4)
    return value if isinstance(value, Block) else str(value)


@dataclass(frozen=True)
class PageTable(Block):
    """A table that scrolls sideways where it does not fit; numbers are right-aligned. One of more than 20 rows is folded.

    A header is a text or an `Either`, and a row is a list of cells, of the types of `Cell`. `experts` says for each row, and
    `columns` for each column, which experts it belongs to.
    """

    headers: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    caption: str = ""
    experts: Sequence[Sequence[int]] = ()
    columns: Sequence[Sequence[int]] = ()

    def kind(self, column: int) -> str:
        """Return how a column is set: numbers to the right, short texts on one line, bars wide."""
        cells = [row[column] for row in self.rows]
        plain = [cell.discount if isinstance(cell, Either) else cell for cell in cells]
        if any(isinstance(cell, Bar) for cell in plain):
            return "bar"
        texts = [name for cell in plain if isinstance(cell, BestActions) for name, _ in cell.actions]
        texts += [str(cell_text(cell)) for cell in plain if not isinstance(cell, BestActions)]
        if cells and all(re.fullmatch(r"[≥<=\s\d.,%−+–-]*(to[\s\d.,−-]*)?", content) for content in texts):
            return "number"
        return "short" if all(len(content) <= 24 for content in texts) else "text"


@dataclass(frozen=True)
class Picture(Block):
    """A picture as base64 of SVG, at most so many pixels wide; the caption is also its text for readers who cannot see it."""

    content: str
    caption: str
    width: int


def figure(drawing: Axes | Figure, caption: str) -> Picture:
    """Return a matplotlib figure as a picture in the page."""
    import matplotlib as mpl  # noqa: PLC0415  a picture is drawn: only now is matplotlib needed

    whole = drawing.get_figure(root=True)
    assert whole is not None
    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "multihorizon", "svg.fonttype": "none"}), warnings.catch_warnings():
        # The browser draws the text, with fonts of its own for scripts that matplotlib's font lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        whole.savefig(buffer, format="svg", metadata={"Date": None})
    # At 125 pixels for an inch, text in the figure is about as large as the page's.
    return Picture(base64.b64encode(buffer.getvalue()).decode("ascii"), caption, int(125 * whole.get_size_inches()[0]))


@dataclass(frozen=True)
class Axis:
    """A label, numbers or names at places of the axis, and its range; a name may be of an expert, whose number is then given."""

    label: str
    ticks: Sequence[tuple[Any, ...]] = tuple((i / 5, f"{i / 5:g}") for i in range(6))
    low: float = 0.0
    high: float = 1.0

    def share(self, value: float) -> float:
        """Return how far along the axis a value stands, from 0 to 1; what is outside stands just outside."""
        return min(max((value - self.low) / ((self.high - self.low) or 1.0), -0.02), 1.02)


def number_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return round numbers along an axis, at most seven.

    Example:
        >>> number_ticks(0.0, 384.0)
        [(0.0, '0'), (100.0, '100'), (200.0, '200'), (300.0, '300')]
    """
    size = 10.0 ** floor(log10((high - low) / 6)) if high > low else 1.0
    step = next(m * size for m in (1, 2, 2.5, 5, 10) if 6 * m * size >= high - low)
    return [(i * step, f"{round(i * step, 12):,g}") for i in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Mark:
    """A dot with what it says; `across` or `up` is an interval drawn through it, and `colour` counts from 0.

    A faded one stands behind the others.
    """

    x: float
    y: float
    tip: str
    experts: Sequence[int] = ()
    size: float = 4.0
    across: tuple[float, float] | None = None
    up: tuple[float, float] | None = None
    colour: int = 0
    faded: bool = False


@dataclass(frozen=True)
class Line:
    """A line through points, drawn under the marks.

    `kind` is "stroke", "frame" or "person" for a thin one, "typical" for a thick one, or "area" to shade what it encloses. A
    label stands in the legend, in the middle of the panel, or at the height `label_at` of its left edge. A line with a `tip` is a
    mark, and one of the kind "part" is a bar.
    """

    points: Sequence[tuple[float, float]]
    label: str = ""
    kind: str = "stroke"
    label_at: float | None = None
    colour: int = 0
    tip: str = ""
    experts: Sequence[int] = ()


@dataclass(frozen=True, eq=False)
class ShadedPlane:
    """Numbers over two axes as colours: `values` `(n,m)` between n + 1 edges along x and m + 1 along y; NaN is not known.

    Numbers are drawn in twelve shades each way from `middle`, the darkest for `most` away from it, so that one path draws all
    cells of a shade.
    """

    x: Floats
    y: Floats
    values: Floats
    middle: float
    most: float


@dataclass(frozen=True)
class Panel:
    """Axes with their marks; `kind` is a class that the page's style shows or hides."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    lines: Sequence[Line] = ()
    kind: str = ""
    surface: ShadedPlane | None = None


@dataclass(frozen=True)
class Chart(Block):
    """A figure of one panel, or of one for each unit; the caption is also its text for readers who cannot see it.

    A panel is 358 units wide, with 14, 12 and 44 of them at its right, its top and its bottom, and at its left at least 48, or
    what the names on its axis need.
    """

    template: ClassVar[str] = "charts.html"
    caption: str
    panels: Sequence[Panel]
    height: float = 340.0

    @property
    def label(self) -> str:
        """Return the caption, and what the marks say."""
        panel = self.panels[0]
        return figure_label(self.caption, [*(line.tip for line in panel.lines), *(mark.tip for mark in panel.marks)])

    def shades(self, panel: Panel) -> list[tuple[str, float, str]]:
        """Return the shades of a surface: the class of their colour, its opacity, and the path around their cells."""
        surface, levels = panel.surface, 12
        if surface is None:
            return []
        shares = np.clip((surface.values - surface.middle) / (surface.most or 1.0), -1.0, 1.0)
        level = np.where(np.isnan(shares), levels + 1, np.round(levels * np.sign(shares) * np.sqrt(np.abs(shares))))
        x = [self.place(panel, x=float(edge))[0] for edge in surface.x]
        y = [self.place(panel, y=float(edge))[1] for edge in surface.y]
        shades = []
        for shade in np.unique(level).tolist():
            parts = []
            for j in range(shares.shape[1]):
                ends = np.flatnonzero(np.diff(np.concatenate([[0], level[:, j] == shade, [0]])))
                parts += [f"M{x[a]:g} {y[j]:g}H{x[b]:g}V{y[j + 1]:g}H{x[a]:g}z" for a, b in ends.reshape(-1, 2).tolist()]
            colour = "unknown" if shade > levels else "plus" if shade >= 0 else "less"
            shades.append((colour, 0.35 if shade > levels else 0.8 * abs(shade) / levels, "".join(parts)))
        return shades

    @property
    def left(self) -> float:
        """Return where the panel begins."""
        longest = max((len(tick[1]) for panel in self.panels for tick in panel.y.ticks), default=0)
        return max(48.0, 28.8 + 6.4 * longest)

    def place(self, panel: Panel, x: float = 0.0, y: float = 0.0) -> tuple[float, float]:
        """Return where values of the panel's axes stand in the drawing, from its left and from its top."""
        return round(self.left + 358 * panel.x.share(x), 1), round(self.height - 44 - (self.height - 56) * panel.y.share(y), 1)


def figure_label(caption: str, tips: Sequence[str], most: int = 12) -> str:
    """Return what a figure says to a reader who cannot see it: its caption and its marks; of many, the first and the last."""
    said = [". ".join(tip.split("\n")) for tip in tips if tip]
    if len(said) > most:
        said = [f"{len(said):,} marks, from", said[0], "to", said[-1]]
        return f"{caption} {' '.join(said)}."
    return " ".join([caption, *(f"{text}." for text in said)])


#: The line on which two axes from 0 to 1 agree.
DIAGONAL = Line([(0.0, 0.0), (1.0, 1.0)], kind="frame")


@dataclass(frozen=True)
class Ruler:
    """Where a discount stands on each ruler, from 0 to 1.

    Attributes:
        horizon: how far ahead discounts look in the task.
        farthest: the horizon at the right end of the ruler; longer ones stand there too.
        nearest: the horizon at the left end: one step, or less time than anybody's; shorter ones stand there too.
        axes: each ruler as an axis, with numbers at some places.
        title: from where to where the rulers go.
    """

    horizon: Horizon
    farthest: float
    nearest: float = 1.0
    axes: Mapping[Unit, Axis] = field(init=False)
    title: Either = field(init=False)

    def __post_init__(self) -> None:
        """Number the rulers."""
        places = [(m, m * self.nearest * 10.0**e) for e in range(5) for m in (1, 2, 5)]
        inside = [(m, reach) for m, reach in places if reach <= self.farthest * (1 + 1e-9)]
        shown = [reach for m, reach in inside if len(inside) <= 8 or m == 1]
        steps = Axis(f"horizon in {self.horizon.many}, on a logarithmic scale", [(self._share(h), _round(h)) for h in shown])
        object.__setattr__(self, "axes", {"discount": Axis("discount γ"), "steps": steps})
        ends = f"{_round(self.nearest)} to {_round(self.farthest)} {self.horizon.many}"
        object.__setattr__(self, "title", Either("0 to 1", ends))

    @classmethod
    def over(cls, discounts: Iterable[float], horizon: Horizon) -> Ruler:
        """Return the rulers that hold these discounts; that of an endless task ends at a power of ten, at most 10,000 from its
        left end.

        Example:
            >>> ruler = Ruler.over([0.5, 0.95], Horizon())
            >>> ruler.farthest, round(ruler.place(0.9, "steps"), 3), ruler.place(0.9, "discount")
            (100.0, 0.5, 0.9)
        """
        reaches = [reach for discount in discounts if 0 < (reach := horizon(discount)) < inf]  # NaN is left out
        nearest = 10.0 ** floor(log10(min(reaches, default=1.0)) + 1e-9) if horizon.timed else 1.0
        end = 10.0 ** ceil(log10(max(reaches, default=10.0 * nearest)) - 1e-9)
        end = min(max(end, 10.0 * nearest), 10_000.0 * nearest)
        return cls(horizon, max(min(end, horizon.longest), 2.0 * nearest), nearest)

    def place(self, discount: float, unit: Unit) -> float:
        """Return where a discount stands, from 0 to 1; NaN for NaN."""
        if unit == "discount" or isnan(discount):
            return discount
        return self._share(self.horizon(discount))

    def _share(self, reach: float) -> float:
        return log(min(max(reach, self.nearest), self.farthest) / self.nearest) / log(self.farthest / self.nearest)

    def bar(self, low: float, discount: float, high: float) -> Either:
        """Return an interval drawn on each ruler."""
        by_discount, by_steps = (Bar(self.place(low, u), self.place(discount, u), self.place(high, u)) for u in UNITS)
        return Either(by_discount, by_steps, discount)


def _round(reach: float) -> str:
    """Return a round number of steps or of units of time."""
    return decimals(reach, 0) if reach >= 1 else f"{reach:g}"


def look_ahead(discount: float, horizon: Horizon) -> Either | None:
    """Return a discount, and its horizon; None where it is not known."""
    return None if isnan(discount) else Either(decimals(discount, 3), horizon.number(discount), discount)


def look_ahead_range(ends: Iterable[float], horizon: Horizon) -> Either | None:
    """Return two discounts, and their horizons; None where an end is not known."""
    low, high = ends
    if isnan(low + high):
        return None
    return Either(f"{decimals(low, 3)} to {decimals(high, 3)}", horizon.interval(low, high), low)
