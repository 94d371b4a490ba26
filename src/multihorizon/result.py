"""What every result can do: say in words what it found, and become a table, a file, a cell of a notebook and a picture.

A result is a frozen dataclass. It has two methods of its own, `sentences()` and `to_frame()`, and names the columns of the table
that are drawn. The rest follows from these. `Solution`, which can be read back, writes its file itself.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import fields, is_dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from multihorizon.files import write_json
from multihorizon.frames import HasFrame


class Result(HasFrame):
    """The base of all results."""

    #: The columns of `to_frame()` that `plot()` draws: the label, the value, and the ends of its interval if there is one.
    _drawn: ClassVar[tuple[str, ...]]

    @abstractmethod
    def sentences(self) -> str:
        """What was found, in a few sentences."""

    @abstractmethod
    def to_frame(self) -> pd.DataFrame:
        """What was found, as a table."""

    def summary(self) -> str:
        """What was found, in sentences."""
        return self.sentences()

    def to_json(self, path: str | Path) -> None:
        """Write the result as JSON; what is not known is null."""
        write_json(path, {"kind": type(self).__name__, "version": package_version(), **self._content()})

    def plot(self, axes: Any = None) -> Any:
        """Draw the values with their intervals, one line per row of `to_frame()`, or how the values of more than 200 rows are
        distributed; returns matplotlib's axes.

        Args:
            axes: matplotlib's axes to draw in; new ones by default.
        """
        label, value, *ends = self._drawn
        frame = self.to_frame()
        rows, many = np.arange(len(frame)), len(frame) > 200
        if axes is None:
            import matplotlib.pyplot as plt  # noqa: PLC0415  a picture is asked for: only now is matplotlib needed

            axes = plt.subplots(figsize=(6.4, 4.0 if many else 1.2 + 0.28 * len(frame)), layout="constrained")[1]
        axes.set_xlabel(value.replace("_", " "))
        if many:
            values = frame[value].to_numpy(float)
            axes.hist(values[np.isfinite(values)], bins=60, color="C0")
            axes.set_ylabel("rows")
            return axes
        if len(ends) == 2 and set(ends) <= set(frame.columns):
            axes.hlines(rows, frame[ends[0]].to_numpy(float), frame[ends[1]].to_numpy(float), color="0.6", linewidth=2)
        axes.plot(frame[value].to_numpy(float), rows, "o", color="C0")
        axes.set_yticks(rows, [literal(str(name)) for name in frame[label]])
        axes.invert_yaxis()
        return axes

    def _content(self) -> dict[str, Any]:
        """What the file holds: the fields of the result."""
        content: dict[str, Any] = plain({f.name: getattr(self, f.name) for f in fields(self)})  # type: ignore[arg-type]
        return content

    def _repr_html_(self) -> str:
        """The result as a cell of a notebook shows it."""
        words = "".join(f"<p>{escape(line)}</p>" for line in self.sentences().splitlines() if line)
        return f"<div>{words}{self.to_frame().to_html(index=False, escape=True, max_rows=20)}</div>"

    def __str__(self) -> str:
        return self.summary()


def plain(value: Any) -> Any:
    """The same content with dataclasses as dicts and frames as lists by column; what cannot be stored is left out."""
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
    """Whether a value is data; a problem, a model or a function is not."""
    data = (str, int, float, bool, np.ndarray, np.generic, list, tuple, dict, pd.DataFrame, Result, type(None))
    return isinstance(value, data) or (is_dataclass(value) and not hasattr(value, "experts"))


def literal(label: str) -> str:
    """A user's label as text for a figure: matplotlib would typeset what stands between dollar signs."""
    return label.replace("$", r"\$")


def package_version() -> str:
    """The installed version of multihorizon."""
    try:
        return version("multihorizon")
    except PackageNotFoundError:
        return "unknown"
