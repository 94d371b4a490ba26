"""Two rulers for one look-ahead: the discount γ itself, and the effective horizon in steps on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, inf, isnan, log, log10
from typing import Literal

from multihorizon.report.findings import effective_horizon
from multihorizon.report.formats import horizon_text
from multihorizon.report.html import Bar, Either

Unit = Literal["discount", "steps"]
UNITS: tuple[Unit, ...] = ("discount", "steps")
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
        by_discount, by_steps = (self._bar(low, discount, high, unit) for unit in UNITS)
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
