"""What every result can do: say what it found in words and in tables, and become a file, a cell of a notebook and a picture.

A result is a frozen dataclass. It has two methods of its own, `sentences()` and `to_frame()`, and names the columns of the table
that are drawn. Some have figures of the whole, further tables, or a picture of their own (`_facts`, `_tables`, `_draw`). The rest
follows from these, so that all results look alike and have the same digits everywhere. `Solution`, which can be read back, writes
its file itself.

What is asked for by its name, such as `summary()`, `to_latex()` or `plot()`, computes what it needs: the intervals of a solution
may take a while. What is shown without being asked for, by `print` and at the end of a cell, has only what is known already.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from io import StringIO
from pathlib import Path
from textwrap import wrap
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from rich.cells import cell_len

from multihorizon.checks import HasFrame
from multihorizon.files import visible, write_json
from multihorizon.words import Table, in_html, is_p_value, shortened, without_empty, written

#: Colours that stay apart for the common kinds of colour blindness (Okabe and Ito's palette).
COLOURS = ("#0072B2", "#E69F00", "#CC79A7", "#009E73", "#D55E00", "#56B4E9", "#999999")


class Result(HasFrame):
    """The base of all results."""

    #: The columns of `to_frame()` that are drawn: the label, the value, and the ends of its interval if there is one.
    _drawn: ClassVar[tuple[str, ...]] = ()
    #: The columns of `to_frame()` that are shown; by default all that hold anything.
    _shown: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def sentences(self) -> str:
        """Return what was found, in a few sentences."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """Return what was found, as a table."""

    def _facts(self) -> dict[str, Any]:
        """Return figures of the whole, by what they are."""
        return {}

    def _tables(self, compute: bool) -> list[Table]:
        """Return the tables that are shown, that of the estimates first; `compute` says whether to compute what takes long."""
        frame = self.to_frame()
        shown = without_empty(frame[list(self._shown)] if self._shown else frame, self._drawn)
        return [Table(shown, drawn=() if self._drawn and is_p_value(self._drawn[1]) else self._drawn[1:])]

    def summary(self) -> str:
        """Return what was found: figures of the whole, sentences, and the tables of estimates and tests, as text to print.

        Of tables with many rows the first twenty are shown.
        """
        return self._text(compute=True)

    def _text(self, compute: bool) -> str:
        tables = [table.text() for table in self._tables(compute)]
        width = max([80, *(cell_len(line) for lines in tables for line in lines)])
        facts = [(f"{name}:", text) for name, text in self._written_facts()]
        half = (width - 3) // 2
        if all(cell_len(name) + cell_len(text) < half for name, text in facts):
            cells = [name + " " * (half - cell_len(name) - cell_len(text)) + text for name, text in facts]
            shown = [" | ".join(cells[i : i + 2]) for i in range(0, len(cells), 2)]
        else:
            shown = [f"{name} {text}" for name, text in facts]
        words = [
            part
            for line in visible(self.sentences()).splitlines()
            for part in wrap(line, min(width, 120), subsequent_indent=4 * line.startswith(" ") * " ", break_on_hyphens=False)
        ]
        thick, thin = "=" * width, "-" * width
        blocks = [shown, words, *tables]
        lines = [line for block in blocks if block for line in (thin, *block)][1:]
        return "\n".join([type(self).__name__.center(width).rstrip(), thick, *lines, thick])

    def _written_facts(self) -> list[tuple[str, str]]:
        return [
            (name, visible(written([value], "p" if is_p_value(name) else "number")[0])) for name, value in self._facts().items()
        ]

    def _repr_html_(self) -> str:
        """Return the result as a cell of a notebook shows it. Nothing is computed for that."""
        # The look of the text around the result, so light or dark.
        style = (
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
        facts = [f"<th>{in_html(name)}</th><td>{in_html(text)}</td>" for name, text in self._written_facts()]
        rows = "".join(f"<tr>{''.join(facts[i : i + 2])}</tr>" for i in range(0, len(facts), 2))
        parts = [f"<style>{style}</style><p><b>{type(self).__name__}</b></p>"]
        parts += [f'<table class="mh-facts"><tbody>{rows}</tbody></table>'] if facts else []
        parts += [f"<p>{in_html(line)}</p>" for line in self.sentences().splitlines() if line.strip()]
        parts += [table.html() for table in self._tables(compute=False)]
        # Notebooks typeset what stands between dollar signs, unless these classes say not to.
        return f'<div class="mh-result tex2jax_ignore mathjax_ignore">{"".join(parts)}</div>'

    def to_latex(self, table: str | None = None) -> str:
        """Return the table of estimates for a paper, as a `tabular` in the style of booktabs, with all rows.

        Args:
            table: another table of `summary()`, by its caption up to the first comma.
        """
        return self._table(table).latex()

    def to_markdown(self, table: str | None = None) -> str:
        """Return the table of estimates in Markdown, with all rows.

        Args:
            table: another table of `summary()`, by its caption up to the first comma.
        """
        return self._table(table).markdown()

    def _table(self, name: str | None) -> Table:
        tables = {table.caption.partition(",")[0]: table for table in self._tables(compute=True)}
        if name is None:
            return next(iter(tables.values()))
        if name not in tables:
            raise ValueError(f"table must be one of {', '.join(repr(caption) for caption in tables)}, got {name!r}")
        return tables[name]

    def to_json(self, path: str | Path) -> None:
        """Write the result as JSON; what is not known is null."""
        write_json(path, {"kind": type(self).__name__, "version": package_version(), **self._content()})

    def to_html(self, path: str | Path) -> None:
        """Write the result as one HTML page with its figures, sentences, tables and picture; it needs no network."""
        import matplotlib.pyplot as plt  # noqa: PLC0415  a picture is asked for: only now is matplotlib needed

        text = StringIO()
        axes = self.plot()
        self.summary()  # computes what takes long, so that the page has it
        axes.figure.savefig(text, format="svg")
        plt.close(axes.figure)
        picture = text.getvalue()
        title = type(self).__name__
        Path(path).write_text(
            f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
            "<style>body{font:16px/1.5 sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}</style></head>"
            f"<body>{self._repr_html_()}{picture[picture.index('<svg') :]}</body></html>\n",
            encoding="utf-8",
        )

    def plot(self, ax: Any = None) -> Any:
        """Draw what was found; returns matplotlib's axes.

        New axes are as wide as a column of a paper, with text of 8 points, and colours that the colour-blind can tell apart.

        Args:
            ax: matplotlib's axes to draw in; new ones by default.
        """
        return pictured(ax, self._height(), self._draw)

    def _height(self) -> float:
        """Return how high a picture is in inches."""
        rows = len(self.to_frame())
        return 2.4 if rows > 200 else min(0.7 + 0.2 * rows, 9.0)

    def _draw(self, ax: Any) -> None:
        """The values with their intervals, one line per row, or how the values of more than 200 rows are distributed."""
        draw_rows(ax, self._tables(compute=True)[0].frame, *self._drawn)

    def _content(self) -> dict[str, Any]:
        """Return what the file holds: the fields of the result."""
        content: dict[str, Any] = plain({f.name: getattr(self, f.name) for f in fields(self)})  # type: ignore[arg-type]
        return content

    def __str__(self) -> str:
        return self._text(compute=False)


def pictured(ax: Any, height: float, draw: Callable[[Any], None]) -> Any:
    """Draw in these axes, or in new ones for a column of a paper, that are so many inches high; returns the axes."""
    import matplotlib as mpl  # noqa: PLC0415  a picture is asked for: only now is matplotlib needed
    import matplotlib.pyplot as plt  # noqa: PLC0415

    if ax is not None:
        draw(ax)
        return ax
    look: dict[Any, Any] = {"font.size": 8, "lines.markersize": 4, "lines.linewidth": 1.2, "legend.frameon": False}
    look |= {"figure.dpi": 150, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(look):
        ax = plt.subplots(figsize=(3.5, height), layout="constrained")[1]
        ax.tick_params(labelsize=8)  # ticks are made later, when these settings are gone
        draw(ax)
    return ax


def draw_rows(ax: Any, frame: pd.DataFrame, label: str, value: str, *ends: str) -> None:
    """A dot and an interval for each row with its label, or a histogram of more than 200 values."""
    values = frame[value].to_numpy(float)
    rows = np.arange(len(frame))
    finite = values[np.isfinite(values)]
    ax.set_xlabel(value.replace("_", " "))
    if len(frame) > 200:
        ax.hist(finite, bins=60, color=COLOURS[0])
        ax.set_ylabel("rows")
        return
    if len(ends) == 2 and set(ends) <= set(frame.columns):
        low, high = (frame[end].to_numpy(float) for end in ends)
        ax.hlines(rows, low, high, color=COLOURS[5], linewidth=3)
    ax.plot(values, rows, "o", color=COLOURS[0])
    if is_p_value(value):
        ax.axvline(0.05, color="0.3", linewidth=0.8, linestyle=":")
        ax.set_xlim(-0.02, 1.02)
    ax.set_yticks(rows, [literal(shortened(str(name), 28)) for name in frame[label]])
    ax.set_ylim(len(frame) - 0.5, -0.5)


def plain(value: Any) -> Any:
    """Return the same content with dataclasses as dicts and frames as lists by column; what cannot be stored is left out."""
    if isinstance(value, pd.DataFrame):
        return value.to_dict("list")
    if is_dataclass(value) and not isinstance(value, type):
        return plain({f.name: getattr(value, f.name) for f in fields(value)})
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if _storable(v)}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def _storable(value: Any) -> bool:
    """Say whether a value is data; a problem, a model or a function is not."""
    data = (str, int, float, bool, np.ndarray, np.generic, list, tuple, dict, pd.DataFrame, Result, type(None))
    return isinstance(value, data) or (is_dataclass(value) and not hasattr(value, "experts"))


def literal(label: str) -> str:
    """Return a user's label as text for a figure: matplotlib would typeset what stands between dollar signs."""
    return label.replace("$", r"\$")


def package_version() -> str:
    """Return the installed version of multihorizon."""
    try:
        return version("multihorizon")
    except PackageNotFoundError:
        return "unknown"
