"""How findings are said: words, numbers as they are written, tables, and answers to questions.

Text, terminal, notebook, page, LaTeX, Markdown and JSON show a `Table` with the same digits. It is a frame; each of its columns
has a role that decides how its numbers are written:

- `discount`, `chance`, `score` (a log-likelihood per decision): three decimals;
- `count`: no decimals; `share`: per cent; `p`: three decimals, never 0 and never 1;
- `horizon`: one decimal, as everywhere;
- `number`: as many decimals as give a number in the middle of the column four digits, but from two to four;
- `amount`: as many as give it three digits, from none to four;
- `label`: text as it is, with numbers among it as in a column of numbers.

The ends of an interval have the digits of their estimate. A terminal and a page show both ends in one column; a cell that is a
pair is an interval, too. What is not known is a dash. Labels are data: each way of writing escapes whatever means something in
it, so that a label is shown as it is and can neither break a table nor run.

In HTML the row of an estimate has a small picture of it and its interval. Colours and lines are those of the text around it, so a
table is light or dark as the notebook is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import floor, isinf, isnan, log10
from typing import Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype
from rich.cells import cell_len
from rich.table import Table as RichTable

from multihorizon.files import visible

#: The level of intervals; a test is a finding where its p-value is below the rest.
LEVEL = 0.95
#: An interval wider than this says little about a discount.
VAGUE_WIDTH = 0.5
#: What stands for a number that is not known.
UNKNOWN = "–"


def decimals(value: float | np.floating[Any], digits: int, unknown: str = UNKNOWN) -> str:
    """Return a number with so many decimals and thousands separators, without a sign before zero."""
    return unknown if np.isnan(value) else f"{round(float(value), digits) + 0.0:,.{digits}f}"


def signed(value: float | np.floating[Any], digits: int) -> str:
    """Write a number with so many decimals and its sign, whichever it is."""
    return f"{value:+,.{digits}f}"


def significant(value: float | np.floating[Any], digits: int = 3) -> str:
    """Return a number with at most so many significant digits."""
    return f"{value:.{digits}g}"


def power_of_ten(value: float | np.floating[Any]) -> str:
    """Return a size that only its power of ten matters of, with two digits."""
    return f"{value:.1e}"


def plus_minus(value: float, error: float, digits: int = 2) -> str:
    """Return a number and its standard error; the number alone where its error is not known."""
    return decimals(value, digits) if np.isnan(value + error) else f"{decimals(value, digits)} ± {decimals(error, digits)}"


def percent(share: float) -> str:
    """Return a share in per cent, with a decimal where it is small; never 0 for what is not nothing."""
    if np.isnan(share):
        return UNKNOWN
    if 0 < share < 0.0005:
        return "under 0.1%"
    return f"{decimals(100 * share, 0 if share >= 0.1 or share == 0 else 1)}%"


def percent_with_error(share: float, error: float) -> str:
    """Return a share in per cent with its standard error."""
    return UNKNOWN if np.isnan(share) else f"{decimals(100 * share, 0)} ± {decimals(100 * error, 0)}%"


def p_text(value: float, equals: str = "= ") -> str:
    """Return a p-value after the letter p; in a table nothing stands for `equals`."""
    if np.isnan(value):
        return "unknown" if equals else UNKNOWN
    return "< 0.001" if value < 0.001 else "> 0.999" if value >= 0.9995 else f"{equals}{decimals(value, 3)}"


def horizon_text(reach: float) -> str:
    """Return a horizon with one decimal, and two significant digits where it is short; beyond a million nobody counts."""
    if np.isnan(reach):
        return UNKNOWN
    if reach > 1e6:
        return "unlimited" if np.isinf(reach) else "over a million"
    if reach >= 1000:
        return decimals(reach, 0)
    return significant(reach, 2) if 0 < reach < 0.95 else decimals(reach, 1)


#: What must be said wherever a discount is identified without a second expert, a second task or a known reward.
FORM_ALONE = (
    "The discount is identified by the form of the reward alone: there is one expert, one task and no known reward, and other "
    "features may give another discount. To learn it from more, add an expert with another horizon, a variant of the task, or a "
    "known reward; else compare several sets of features."
)


def count(number: int, noun: str) -> str:
    """Return a number of things, in the singular or the plural."""
    return f"{number:,} {noun if number == 1 else 'people' if noun == 'person' else f'{noun}s'}"


def in_words(parts: list[str]) -> str:
    """Return a list in words; of many, the first few and how many more there are."""
    shown = parts if len(parts) <= 6 else [*parts[:5], f"{len(parts) - 5} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"


def interval_text(low: float, high: float, write: Callable[[float], str]) -> str:
    """Return both ends of an interval; of one that the data bound on one side alone, that side."""
    if np.isnan(low + high) or np.isinf([low, high]).all():
        return UNKNOWN
    if np.isinf(high):
        return f"at least {write(low)}"
    return f"at most {write(high)}" if np.isinf(low) else f"{write(low)} to {write(high)}"


def from_to(ends: list[str]) -> str:
    """Return both ends of a range, or the one they are."""
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def shortened(label: str, most: int) -> str:
    """Return a label of at most so many characters, with a sign where some are left out."""
    return label if len(label) <= most else f"{label[: most - 1]}…"


#: Rows of a long table that are shown; `to_frame()`, LaTeX and Markdown have all of them.
SHOWN = 20

#: What a column holds.
Role = Literal["label", "number", "amount", "discount", "chance", "score", "p", "share", "horizon", "count"]


def in_latex(text: str) -> str:
    """Return the text as LaTeX prints it."""
    commands = {
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
    return "".join(commands.get(c, c) for c in _one_line(text))


def in_markdown(text: str) -> str:
    """Return the text as Markdown shows it, in the cell of a table too."""
    return re.sub(r"([\\`*_\[\]()#|$~^!])", r"\\\1", escape(_one_line(text), quote=False))


def in_html(text: str) -> str:
    """Return the text as HTML shows it."""
    return escape(visible(text))


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def written(values: Sequence[Any], role: Role = "number", like: Sequence[Any] | None = None) -> list[str]:
    """Write the cells of a column with this role, with the decimals of other numbers if some are given.

    A pair is an interval.

    Example:
        >>> written([0.5, 12.0, float("nan"), float("inf")]), written([3.0, 1200.0]), written([0.04, 1e-9], "p")
        (['0.5000', '12.0000', '–', '∞'], ['3', '1,200'], ['0.040', '< 0.001'])
    """
    write = _writer(role, values if like is None else like)

    def cell(value: Any) -> str:
        if value is None:
            return UNKNOWN
        if isinstance(value, bool | np.bool_):
            return "yes" if value else "no"
        if isinstance(value, tuple):
            low, high = value
            return interval_text(low, high, write)
        return write(float(value)) if _is_number(value) else str(value)

    return [cell(value) for value in values]


def _writer(role: Role, column: Sequence[Any]) -> Callable[[float], str]:
    """Return how numbers with this role are written, in a column with these numbers; what is not known is a dash."""
    writers: dict[Role, Callable[[float], str]] = {
        "discount": lambda value: decimals(value, 3),
        "chance": lambda value: decimals(value, 3),
        "score": lambda value: decimals(value, 3),
        "count": lambda value: decimals(value, 0),
        "share": percent,
        "p": lambda value: p_text(value, ""),
        "horizon": horizon_text,
    }
    write = writers.get(role) or (_in_column(column, 3, 0) if role == "amount" else _in_column(column, 4, 2))
    infinite = write if role in ("p", "horizon") else lambda value: "∞" if value > 0 else "-∞"
    return lambda value: UNKNOWN if isnan(value) else infinite(value) if isinf(value) else write(value)


def _in_column(column: Sequence[Any], digits: int, least: int) -> Callable[[float], str]:
    """Return how to write a number if one in the middle of its column has so many digits, each at least so many decimals."""
    numbers = np.array([v for v in column if _is_number(v)], dtype=np.float64)
    numbers = numbers[np.isfinite(numbers)]
    sizes = np.sort(np.abs(numbers[numbers != 0]))
    middle = float(sizes[(sizes.size - 1) // 2]) if sizes.size else 1.0
    places = 0 if (numbers == np.round(numbers)).all() else min(max(digits - 1 - floor(log10(middle)), least), 4)

    def write(value: float) -> str:
        return significant(value, 3) if middle < 1e-3 or (places and abs(value) >= 1e6) else decimals(value, places)

    return write


def is_p_value(name: str) -> bool:
    """Say whether a column of this name holds p-values."""
    return name in ("p", "p_value", "adjusted") or name.endswith("_p")


def without_empty(frame: pd.DataFrame, kept: Sequence[str] = ()) -> pd.DataFrame:
    """Return the columns that hold anything, or that are kept."""
    empty = [name for name in frame if name not in kept and (frame[name].isna() | (frame[name] == "")).all()]
    return frame.drop(columns=empty)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool | np.bool_)


@dataclass(frozen=True)
class Column:
    """One column of a table as it is shown.

    Attributes:
        name: of the column in the frame; of an interval, of its lower end.
        heading: what stands above it.
        role: what it holds.
        cells: what is written.
        values: what the cells stand for; of an interval, both ends.
    """

    name: str
    heading: str
    role: Role
    cells: Sequence[str]
    values: Sequence[Any]

    @property
    def numbers(self) -> bool:
        """Say whether it holds numbers, which are set to the right."""
        return self.role != "label"


@dataclass(frozen=True, eq=False)
class Table:
    """A frame as a reader sees it.

    Attributes:
        frame: the rows.
        caption: what they are; may be empty. The table is known by what stands before the first comma.
        drawn: the columns of an estimate, and of the ends of its interval if there is one.
        bars: whether these are drawn in HTML, all on one scale.
        labels: columns that users named; in the names of others a space is shown for _.
        roles: of columns whose name and numbers do not say it: p-values by their names, whole numbers and others are known.
        headings: of columns that are not called by their names; that of the lower end stands for an interval in one column.

    Example:
        >>> frame = pd.DataFrame({"expert": ["Ann"], "discount": [0.5], "low": [0.25], "high": [0.75]})
        >>> table = Table(frame, roles={"discount": "discount"}, drawn=("discount", "low", "high"))
        >>> print(*table.text(), sep="\\n")
        expert  discount    low   high
        ------------------------------
        Ann        0.500  0.250  0.750
        >>> [column.cells for column in table.columns(joined=True)]
        [['Ann'], ['0.500'], ['0.250 to 0.750']]
    """

    frame: pd.DataFrame
    caption: str = ""
    drawn: Sequence[str] = ()
    bars: bool = True
    labels: Sequence[str] = ()
    roles: Mapping[str, Role] = field(default_factory=dict)
    headings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Of an interval that the frame does not have, nothing is drawn."""
        object.__setattr__(self, "drawn", tuple(name for name in self.drawn if name in self.frame))

    @classmethod
    def of(cls, headers: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "", **how: Any) -> Table:
        """Make a table of rows under headers, which are shown as they are."""
        frame = pd.DataFrame([*rows], columns=[*headers], dtype=None if rows else object)
        return cls(frame, caption, labels=[*headers], **how)

    def select(self, *names: str) -> Table:
        """Return the table with those of these columns that it has."""
        return replace(self, frame=self.frame[[name for name in names if name in self.frame]])

    def head(self, rows: int, caption: str | None = None) -> Table:
        """Return the first rows of the table."""
        return replace(self, frame=self.frame.head(rows), caption=self.caption if caption is None else caption)

    def role(self, name: str) -> Role:
        """Return what a column holds; the ends of an interval hold what their estimate does."""
        if name in self.drawn[1:]:
            return self.role(self.drawn[0])
        if name in self.roles:
            return self.roles[name]
        column = self.frame[name]
        numbers = is_numeric_dtype(column) and not is_bool_dtype(column)
        return "label" if not numbers else "p" if is_p_value(name) else "number"

    def columns(self, most: int | None = None, joined: bool = False) -> list[Column]:
        """Return the columns as they are shown, with so many rows; `joined` puts both ends of an interval into one."""
        shown = []
        ends = self.drawn[1:] if len(self.drawn) == 3 and joined else ()
        for name in map(str, self.frame.columns):
            if name in ends[1:]:
                continue
            of = self.drawn[0] if name in self.drawn[1:] else name
            values = self.frame[name][:most].tolist()
            role = self.role(name)
            heading = name if name in self.labels else name.replace("_", " ")
            if of != name:  # the ends of an interval stand beside what it is of
                heading = heading.split()[-1]
            if name in ends:
                values = list(zip(values, self.frame[ends[1]][:most].tolist(), strict=True))
                heading = "interval"
            cells = written(values, role, self.frame[of].tolist())
            shown.append(Column(name, self.headings.get(name, heading), role, cells, values))
        return shown

    def rich(self, most: int | None = None, lines: bool = False) -> RichTable:
        """Return the table for a terminal, folded where it is too wide; with lines between rows of long texts."""
        columns = self.columns(most, joined=True)
        drawn = RichTable(title=self.caption or None, show_lines=lines, min_width=cell_len(self.caption))
        for column in columns:
            # Numbers stay on a line, but for long words among them; a name keeps room for twelve characters, or for what it has.
            widest = max(map(cell_len, [column.heading, *column.cells]))
            together = column.numbers and widest <= 28
            least = None if column.numbers else min(widest, 12)
            justify: Literal["left", "right"] = "right" if column.numbers else "left"
            drawn.add_column(column.heading, justify=justify, overflow="fold", no_wrap=together, min_width=least)
        for row in zip(*(column.cells for column in columns), strict=True):
            drawn.add_row(*row)
        return drawn

    @property
    def _left_out(self) -> str:
        """Return the line that says how many rows are not shown; empty where all are."""
        rows = len(self.frame)
        return f"… and {rows - SHOWN:,} more rows; to_frame() has all {rows:,}" if rows > SHOWN else ""

    def text(self) -> list[str]:
        """Return the lines of the table for a terminal."""
        columns = self.columns(SHOWN)
        texts = [[_one_line(cell) for cell in column.cells] for column in columns]
        widths = [max(map(cell_len, [column.heading, *cells])) for column, cells in zip(columns, texts, strict=True)]

        def line(cells: Sequence[str]) -> str:
            parts = []
            for cell, width, column in zip(cells, widths, columns, strict=True):
                space = " " * (width - cell_len(cell))
                parts.append(space + cell if column.numbers else cell + space)
            return "  ".join(parts).rstrip()

        rows = [line(cells) for cells in zip(*texts, strict=True)]
        rule = "-" * (sum(widths) + 2 * len(widths) - 2)
        lines = [self.caption, line([column.heading for column in columns]), rule, *rows, self._left_out]
        return [line for line in lines if line]

    def html(self) -> str:
        """Return the table as HTML."""
        columns = self.columns(SHOWN)
        (low, high) = self.scale()
        heads = [f"<th{_side(column)}>{in_html(column.heading)}</th>" for column in columns]
        rows = [
            [f"<td{_side(column)}>{in_html(column.cells[k])}</td>" for column in columns]
            for k in range(min(len(self.frame), SHOWN))
        ]
        if low < high:
            heads.append(f'<th class="mh-bar"><span>{significant(low, 3)}</span><span>{significant(high, 3)}</span></th>')
            for k, row in enumerate(rows):
                values = [float(self.frame[name].iloc[k]) for name in self.drawn]
                row.append(f'<td class="mh-bar">{_bar(values, low, high)}</td>')
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
        caption = f"<caption>{in_html(self.caption)}</caption>" if self.caption else ""
        more = f"<p>{in_html(self._left_out)}</p>" if self._left_out else ""
        return f"<table>{caption}<thead><tr>{''.join(heads)}</tr></thead><tbody>{body}</tbody></table>{more}"

    def scale(self) -> tuple[float, float]:
        """Return where the small pictures begin and end, both 0 without any: 0 and 1 for shares, else so that all that is finite
        is within, and 0 unless it is far off."""
        numbers = self.frame[[*self.drawn] if self.bars else []].to_numpy(float)
        finite = numbers[np.isfinite(numbers)]
        if not finite.size:
            return 0.0, 0.0
        low, high = float(finite.min()), float(finite.max())
        if low >= 0 and 0.05 < high <= 1:
            return 0.0, 1.0
        return (low, high) if 2 * np.abs(finite).min() > np.abs(finite).max() and low < high else (min(low, 0.0), max(high, 0.0))

    def latex(self) -> str:
        """Return the table as LaTeX; its preamble needs `\\usepackage{booktabs}`."""
        columns = self.columns()
        kinds = "".join("r" if column.numbers else "l" for column in columns)

        def cell(text: str, number: bool) -> str:
            return re.sub(r"^-(?=[\d∞])", "$-$", text).replace("∞", r"$\infty$").replace("<", "$<$") if number else in_latex(text)

        heads = " & ".join(in_latex(column.heading) for column in columns)
        cells = ([cell("--" if text == UNKNOWN else text, column.numbers) for text in column.cells] for column in columns)
        rows = [rf"{' & '.join(row)} \\" for row in zip(*cells, strict=True)]
        parts = [rf"\begin{{tabular}}{{{kinds}}}", r"\toprule", rf"{heads} \\", r"\midrule", *rows]
        return "\n".join([*parts, r"\bottomrule", r"\end{tabular}", ""])

    def markdown(self) -> str:
        """Return the table as Markdown, with the pipes of GitHub and Jupyter."""
        columns = self.columns()
        heads = [in_markdown(column.heading) for column in columns]
        cells = ([text if column.numbers else in_markdown(text) for text in column.cells] for column in columns)
        rows = [heads, ["---:" if column.numbers else ":---" for column in columns], *zip(*cells, strict=True)]
        return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _side(column: Column) -> str:
    return ' class="mh-number"' if column.numbers else ""


def _bar(values: Sequence[float], low: float, high: float) -> str:
    """Return an estimate and its interval between two ends, as a picture of 120 × 12; what is not known is left out."""

    def at(value: float) -> float:
        return round(4 + 112 * float(np.clip((value - low) / (high - low), 0.0, 1.0)), 1)

    parts = ['<path d="M4 6H116" opacity=".25"/>', f'<path d="M{at(0.0)} 1V11" opacity=".4"/>' if low <= 0 <= high else ""]
    if len(values) == 3 and not isnan(values[1] + values[2]):
        parts.append(f'<path d="M{at(values[1])} 6H{at(values[2])}" stroke-width="4" stroke-linecap="round" opacity=".55"/>')
    if not isnan(values[0]):
        parts.append(f'<circle cx="{at(values[0])}" cy="6" r="3.5" fill="currentColor" stroke="none"/>')
    return f'<svg viewBox="0 0 120 12" aria-hidden="true" stroke="currentColor" fill="none">{"".join(parts)}</svg>'


#: Good news, news to be careful with, and bad news.
Kind = Literal["good", "caution", "bad"]


@dataclass(frozen=True)
class Finding:
    """The answer to one question.

    Attributes:
        said: the fields that stand in files.
        question: in plain words, with a question mark.
        answer: a word or two.
        reasons: a sentence or two.
        kind: whether that is good news.
        numbers: the result that the words follow from, such as a test; None where there is none.
        content: its part of `result.json`.
    """

    said: ClassVar[tuple[str, ...]] = ("question", "answer", "reasons", "kind")

    question: str
    answer: str
    reasons: str
    kind: Kind
    numbers: Any = None
    content: dict[str, Any] = field(default_factory=dict)
