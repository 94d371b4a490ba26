"""How findings are said: answers to questions, and numbers, shares and p-values as they are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

#: The level of intervals; a test is a finding where its p-value is below the rest.
LEVEL = 0.95
#: An interval wider than this says little about a discount.
VAGUE_WIDTH = 0.5


#: What stands for a number that is not known.
UNKNOWN = "–"


def decimals(value: float | np.floating[Any], digits: int, unknown: str = UNKNOWN) -> str:
    """A number with so many decimals and thousands separators, without a sign before zero."""
    return unknown if np.isnan(value) else f"{round(float(value), digits) + 0.0:,.{digits}f}"


def significant(value: float | np.floating[Any], digits: int = 3) -> str:
    """A number with at most so many significant digits."""
    return f"{value:.{digits}g}"


def power_of_ten(value: float | np.floating[Any]) -> str:
    """A size that only its power of ten matters of, with two digits."""
    return f"{value:.1e}"


def plus_minus(value: float, error: float, digits: int = 2) -> str:
    """A number and its standard error; the number alone where its error is not known."""
    return decimals(value, digits) if np.isnan(value + error) else f"{decimals(value, digits)} ± {decimals(error, digits)}"


def percent(share: float) -> str:
    """A share in per cent, with a decimal where it is small; never 0 for what is not nothing."""
    if np.isnan(share):
        return UNKNOWN
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return f"{decimals(100 * share, 0 if share >= 0.1 or share == 0 else 1)} %"


def percent_with_error(share: float, error: float) -> str:
    """A share in per cent with its standard error."""
    return UNKNOWN if np.isnan(share) else f"{decimals(100 * share, 0)} ± {decimals(100 * error, 0)} %"


def p_text(value: float, equals: str = "= ") -> str:
    """A p-value after the letter p; in a table nothing stands for `equals`."""
    if np.isnan(value):
        return "unknown" if equals else UNKNOWN
    return "< 0.001" if value < 0.001 else "> 0.999" if value >= 0.9995 else f"{equals}{decimals(value, 3)}"


def horizon_text(reach: float) -> str:
    """A horizon with one decimal, and two significant digits where it is short; beyond a million nobody counts."""
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
    """A number of things, in the singular or the plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_words(parts: list[str]) -> str:
    """A list in words; of many, the first few and how many more there are."""
    shown = parts if len(parts) <= 6 else [*parts[:5], f"{len(parts) - 5} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"


def interval_text(low: float, high: float, write: Callable[[float], str]) -> str:
    """Both ends of an interval; of one that the data bound on one side alone, that side."""
    if np.isnan(low + high) or np.isinf([low, high]).all():
        return UNKNOWN
    if np.isinf(high):
        return f"at least {write(low)}"
    return f"at most {write(high)}" if np.isinf(low) else f"{write(low)} to {write(high)}"


def from_to(ends: list[str]) -> str:
    """Both ends of a range, or the one they are."""
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def shortened(label: str, most: int) -> str:
    """A label of at most so many characters, with a sign where some are left out."""
    return label if len(label) <= most else f"{label[: most - 1]}…"
