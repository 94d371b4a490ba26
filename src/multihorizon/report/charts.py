"""Charts drawn as SVG in the page: marks tell their numbers under the pointer, and belong to experts who can be chosen.

A chart has one panel, or one for each unit of look-ahead, of which the page shows one. Axes run from 0 to 1 unless they say
otherwise. Colours come from the page's style, so a chart is light or dark as the page is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from multihorizon.report.html import framed, whose
from multihorizon.report.shell import text

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
