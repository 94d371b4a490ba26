"""Charts for the pages as SVG: small, without a library, in the colours of the page that shows them.

A chart has no width of its own and no identifiers, so the build can put it into a page (`inline_charts`); there `currentColor`
and the colours `--c1` to `--c4` follow light and dark.
"""

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

#: Colours that people with any kind of colour vision tell apart.
COLOURS = ("var(--c1, #0072b2)", "var(--c2, #d55e00)", "var(--c3, #a6417f)", "var(--c4, #007a5e)")
IMAGES = Path(__file__).parent / "images"


class Scale:
    """From numbers to places, linear or logarithmic, with its ticks."""

    def __init__(
        self,
        low: float,
        high: float,
        start: float,
        end: float,
        ticks: Sequence[float],
        log: bool = False,
    ) -> None:
        self.of = math.log10 if log else float
        self.low, self.high, self.start, self.end, self.ticks = low, high, start, end, ticks

    def __call__(self, value: float) -> float:
        """Return the place of a number."""
        low, high = self.of(self.low), self.of(self.high)
        share = (self.of(value) - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)


class Chart:
    """A drawing of some width and height, to which marks are added."""

    def __init__(self, width: int, height: int, says: str) -> None:
        self.width, self.height, self.says = width, height, says
        self.parts: list[str] = []

    def text(
        self, x: float, y: float, words: str, anchor: str = "start", more: str = "", turn: float = 0
    ) -> None:
        """Write words at a place."""
        turned = f' transform="rotate({turn} {x:g} {y:g})"' if turn else ""
        style = f' style="{more}"' if more else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{turned}{style}>{escape(words)}</text>'
        )

    def line(
        self,
        points: Sequence[tuple[float, float]],
        colour: str,
        width: float = 2,
        dash: str = "",
        opacity: float = 1,
    ) -> None:
        """Draw a line through places."""
        places = " ".join(f"{x:g},{y:g}" for x, y in points)
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width:g}" opacity="{opacity:g}"{dashed}/>'
        )

    def dot(
        self,
        x: float,
        y: float,
        colour: str,
        radius: float = 3.5,
        hollow: bool = False,
        says: str = "",
    ) -> None:
        """Draw a dot; its numbers appear where the pointer rests."""
        fill = f'fill="none" stroke="{colour}" stroke-width="1.5"' if hollow else f'fill="{colour}"'
        self.parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}" {fill}><title>{escape(says)}</title></circle>'
        )

    def bar(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str,
        says: str = "",
        opacity: float = 1,
    ) -> None:
        """Draw a rectangle."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{colour}" opacity="{opacity:g}">'
            f"<title>{escape(says)}</title></rect>"
        )

    def axes(
        self, across: Scale, up: Scale, across_label: str, up_label: str, form: str = "{:g}"
    ) -> None:
        """Draw both axes with ticks, grid lines and labels."""
        left, right, bottom, top = across.start, across.end, up.start, up.end
        for tick in up.ticks:
            self.line([(left, up(tick)), (right, up(tick))], "currentColor", 0.5, opacity=0.25)
            self.text(left - 6, up(tick) + 4, form.format(tick), "end")
        for tick in across.ticks:
            self.line(
                [(across(tick), bottom), (across(tick), bottom + 5)],
                "currentColor",
                1,
                opacity=0.6,
            )
            self.text(across(tick), bottom + 18, f"{tick:,}", "middle")
        self.line([(left, bottom), (right, bottom)], "currentColor", 1, opacity=0.6)
        self.text((left + right) / 2, bottom + 38, across_label, "middle")
        self.text(14, (bottom + top) / 2, up_label, "middle", turn=-90)

    def svg(self) -> str:
        """Return the drawing."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.says)}" font-family="sans-serif" font-size="13" fill="currentColor">'
        )
        return "\n".join([head, *self.parts, "</svg>"]) + "\n"

    def write(self, name: str) -> None:
        """Write the drawing among the images of the pages."""
        (IMAGES / f"{name}.svg").write_text(self.svg(), encoding="utf-8")


def inline_charts(app: Sphinx, doctree: nodes.document) -> None:
    """Put charts into the page itself, so that they have its colours."""
    for image in list(doctree.findall(nodes.image)):
        path = Path(app.srcdir, app.env.docname).parent / image["uri"]
        if path.suffix == ".svg" and path.exists():
            text = path.read_text(encoding="utf-8")
            if 'class="chart"' in text:
                image.replace_self(nodes.raw("", text, format="html"))


def setup(app: Sphinx) -> ExtensionMetadata:
    """Put charts into pages once their images are known, and before files are copied."""
    app.connect("doctree-read", inline_charts, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
