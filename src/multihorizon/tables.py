"""A table as a reader sees it: as text, HTML, LaTeX and Markdown, with the same digits in each.

Numbers of a column have as many decimals as give one in the middle of the column four digits, but from two to four; the ends of
an interval have those of their estimate, and p-values have three. What is not known is a dash. Labels are data: each way of
writing escapes whatever means something in it, so that a label is shown as it is and can neither break a table nor run.

In HTML the row of an estimate has a small picture of it and its interval. Colours and lines are those of the text around it, so a
table is light or dark as the notebook is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, isinf, isnan, log10
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from rich.cells import cell_len

from multihorizon.checks import Floats
from multihorizon.files import visible
from multihorizon.words import p_text

#: Rows of a long table that are shown; `to_frame()`, LaTeX and Markdown have all of them.
SHOWN = 20

_IN_LATEX = {
    "\\": r"\textbackslash{}",
    **{c: rf"\{c}" for c in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    # After the end of a row, a star or a bracket would belong to that end, and several hyphens would be a dash.
    **{c: f"{{{c}}}" for c in "[]*-"},
    "–": "--",
    "…": r"\ldots{}",
    "∞": r"$\infty$",
    "γ": r"$\gamma$",
    "λ": r"$\lambda$",
    "²": r"$^2$",
    "χ": r"$\chi$",
    "±": r"$\pm$",
}
_IN_MARKDOWN = {"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {c: rf"\{c}" for c in "\\`*_[]()#|$~^!"}


def in_latex(text: str) -> str:
    """The text as LaTeX prints it."""
    return "".join(_IN_LATEX.get(c, c) for c in _one_line(text))


def in_markdown(text: str) -> str:
    """The text as Markdown shows it, in the cell of a table too."""
    return "".join(_IN_MARKDOWN.get(c, c) for c in _one_line(text))


def in_html(text: str) -> str:
    """The text as HTML shows it."""
    return escape(visible(text))


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def written(values: Sequence[Any], name: str = "", like: Floats | None = None) -> list[str]:
    """The cells of a column of this name as they are written, with the decimals of other numbers if some are given.

    Example:
        >>> written([0.5, 12.0, float("nan"), float("inf")]), written([3.0, 1200.0]), written([0.04, 1e-9], "p")
        (['0.5000', '12.0000', '–', '∞'], ['3', '1,200'], ['0.040', '< 0.001'])
    """
    numbers = np.array([v for v in values if _is_number(v)], dtype=np.float64) if like is None else like
    numbers = numbers[np.isfinite(numbers)]
    sizes = np.sort(np.abs(numbers[numbers != 0]))
    middle = float(sizes[(sizes.size - 1) // 2]) if sizes.size else 1.0
    places = 0 if (numbers == np.round(numbers)).all() else min(max(3 - floor(log10(middle)), 2), 4)

    def cell(value: Any) -> str:
        if value is None or (isinstance(value, float | np.floating) and isnan(value)):
            return "–"
        if isinstance(value, bool | np.bool_):
            return "yes" if value else "no"
        if not _is_number(value):
            return str(value)
        if is_p_value(name):
            return p_text(float(value), "")
        if isinf(value):
            return "∞" if value > 0 else "-∞"
        if middle < 1e-3 or (places and abs(value) >= 1e6):
            return f"{value:.3g}"
        return f"{round(float(value), places) + 0.0:,.{places}f}"

    return [cell(value) for value in values]


def is_p_value(name: str) -> bool:
    """Whether a column of this name holds p-values."""
    return name in ("p", "p_value", "adjusted") or name.endswith("_p")


def without_empty(frame: pd.DataFrame, kept: Sequence[str] = ()) -> pd.DataFrame:
    """The columns that hold anything, or that are kept."""
    empty = [name for name in frame if name not in kept and (frame[name].isna() | (frame[name] == "")).all()]
    return frame.drop(columns=empty)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A frame as a reader sees it.

    Attributes:
        frame: the rows.
        caption: what they are; may be empty. The table is known by what stands before the first comma.
        drawn: the columns of an estimate, and of the ends of its interval if there is one.
        bars: whether these are drawn in HTML, all on one scale.
        labels: columns that users named; in the names of others a space is shown for _.
    """

    frame: pd.DataFrame
    caption: str = ""
    drawn: Sequence[str] = ()
    bars: bool = True
    labels: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Of an interval that the frame does not have, nothing is drawn."""
        object.__setattr__(self, "drawn", tuple(name for name in self.drawn if name in self.frame))

    def _columns(self, most: int | None = None) -> list[tuple[str, bool, list[str]]]:
        """Of each column the heading, whether it holds numbers, and its cells, as many as are shown; all have the same digits."""
        found = []
        for name in self.frame.columns:
            column = self.frame[name]
            numbers = is_numeric_dtype(column) and not is_bool_dtype(column)
            values = column[:most].tolist()
            heading = str(name) if name in self.labels else str(name).replace("_", " ")
            if name in self.drawn[1:]:  # the ends of an interval stand beside what it is of
                heading, column = heading.split()[-1], self.frame[self.drawn[0]]
            found.append((heading, numbers, written(values, str(name), column.to_numpy(float) if numbers else None)))
        return found

    @property
    def _left_out(self) -> str:
        """The line that says how many rows are not shown; empty where all are."""
        rows = len(self.frame)
        return f"… and {rows - SHOWN:,} more rows; to_frame() has all {rows:,}" if rows > SHOWN else ""

    def text(self) -> list[str]:
        """The lines of the table for a terminal."""
        columns = [(h, numbers, [_one_line(c) for c in cells]) for h, numbers, cells in self._columns(SHOWN)]
        widths = [max(map(cell_len, [heading, *cells])) for heading, _, cells in columns]

        def line(cells: Sequence[str]) -> str:
            parts = []
            for cell, width, (_, numbers, _) in zip(cells, widths, columns, strict=True):
                space = " " * (width - cell_len(cell))
                parts.append(space + cell if numbers else cell + space)
            return "  ".join(parts).rstrip()

        rows = [line(cells) for cells in zip(*(cells for *_, cells in columns), strict=True)]
        rule = "-" * (sum(widths) + 2 * len(widths) - 2)
        lines = [self.caption, line([heading for heading, *_ in columns]), rule, *rows, self._left_out]
        return [line for line in lines if line]

    def html(self) -> str:
        """The table as HTML."""
        columns, low, high = self._columns(SHOWN), *self._scale()
        heads = [f"<th{_side(numbers)}>{in_html(heading)}</th>" for heading, numbers, _ in columns]
        rows = [
            [f"<td{_side(numbers)}>{in_html(cells[k])}</td>" for _, numbers, cells in columns]
            for k in range(min(len(self.frame), SHOWN))
        ]
        if low < high:
            heads.append(f'<th class="mh-bar"><span>{low:.3g}</span><span>{high:.3g}</span></th>')
            for k, row in enumerate(rows):
                values = [float(self.frame[name].iloc[k]) for name in self.drawn]
                row.append(f'<td class="mh-bar">{_bar(values, low, high)}</td>')
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
        caption = f"<caption>{in_html(self.caption)}</caption>" if self.caption else ""
        more = f"<p>{in_html(self._left_out)}</p>" if self._left_out else ""
        return f"<table>{caption}<thead><tr>{''.join(heads)}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _scale(self) -> tuple[float, float]:
        """Where the small pictures begin and end: 0 and 1 for shares, else so that all that is finite is within, and 0 unless it
        is far off."""
        numbers = self.frame[[*self.drawn]].to_numpy(float)
        known = numbers[np.isfinite(numbers)]
        if not (self.bars and known.size):
            return 0.0, 0.0
        low, high = float(known.min()), float(known.max())
        if low >= 0 and 0.05 < high <= 1:
            return 0.0, 1.0
        return (low, high) if 2 * np.abs(known).min() > np.abs(known).max() and low < high else (min(low, 0.0), max(high, 0.0))

    def latex(self) -> str:
        """The table as LaTeX; its preamble needs `\\usepackage{booktabs}`."""
        columns = self._columns()
        kinds = "".join("r" if numbers else "l" for _, numbers, _ in columns)

        def cell(text: str, number: bool) -> str:
            return re.sub(r"^-(?=[\d∞])", "$-$", text).replace("∞", r"$\infty$").replace("<", "$<$") if number else in_latex(text)

        heads = " & ".join(in_latex(heading) for heading, *_ in columns)
        cells = ([cell("--" if text == "–" else text, numbers) for text in texts] for _, numbers, texts in columns)
        rows = [rf"{' & '.join(row)} \\" for row in zip(*cells, strict=True)]
        parts = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", rf"{heads} \\", r"\midrule", *rows]
        return "\n".join([*parts, r"\bottomrule", r"\end{tabular}", ""])

    def markdown(self) -> str:
        """The table as Markdown, with the pipes of GitHub and Jupyter."""
        columns = self._columns()
        heads = [in_markdown(heading) for heading, *_ in columns]
        cells = ([text if numbers else in_markdown(text) for text in texts] for _, numbers, texts in columns)
        rows = [heads, ["---:" if numbers else ":---" for _, numbers, _ in columns], *zip(*cells, strict=True)]
        return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _side(numbers: bool) -> str:
    return ' class="mh-number"' if numbers else ""


def _bar(values: Sequence[float], low: float, high: float) -> str:
    """An estimate and its interval between two ends, as a picture of 120 × 12; what is not known is left out."""

    def at(value: float) -> float:
        return round(4 + 112 * float(np.clip((value - low) / (high - low), 0.0, 1.0)), 1)

    parts = ['<path d="M4 6H116" opacity=".25"/>', f'<path d="M{at(0.0)} 1V11" opacity=".4"/>' if low <= 0 <= high else ""]
    if len(values) == 3 and not isnan(values[1] + values[2]):
        parts.append(f'<path d="M{at(values[1])} 6H{at(values[2])}" stroke-width="4" stroke-linecap="round" opacity=".55"/>')
    if not isnan(values[0]):
        parts.append(f'<circle cx="{at(values[0])}" cy="6" r="3.5" fill="currentColor" stroke="none"/>')
    return f'<svg viewBox="0 0 120 12" aria-hidden="true" stroke="currentColor" fill="none">{"".join(parts)}</svg>'


#: The look of results in a notebook: that of the text around them, so light or dark.
STYLE = (
    ".mh-result table{border-collapse:collapse;margin:.6em 0;font-variant-numeric:tabular-nums}"
    ".mh-result th,.mh-result td{padding:.15em .7em .15em 0;text-align:left;vertical-align:top;border:0}"
    ".mh-result thead th{border-bottom:1px solid currentColor;font-weight:600}"
    ".mh-result caption{caption-side:top;text-align:left;font-weight:600;color:inherit;padding:.2em 0}"
    ".mh-result{overflow-x:auto}.mh-result .mh-number{text-align:right;white-space:nowrap}"
    ".mh-result p{margin:.3em 0;max-width:48em}"
    ".mh-result .mh-facts th{font-weight:400;opacity:.75}"
    ".mh-result th.mh-bar{font-weight:400;opacity:.75;white-space:nowrap}"
    ".mh-result .mh-bar span+span{float:right}"
    ".mh-result .mh-bar svg{display:block;margin-top:.25em;width:120px;height:12px;color:#2f83bf}"
)
