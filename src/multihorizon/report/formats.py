"""How numbers and lists are written: discounts with three decimals, horizons with one, limits as limits."""

from __future__ import annotations

import numpy as np

from multihorizon.report.findings import Findings, Judged, effective_horizon

#: Longer horizons are not told in numbers.
MOST_STEPS = 1e6


def discount_text(findings: Judged, discount: float) -> str:
    """A discount with three decimals; the largest one tried is shown as a limit."""
    if discount >= findings.largest_discount < 1:
        return f"≥ {findings.largest_discount:g}"
    return f"{discount:.3f}"


def own_discount_text(findings: Judged, k: int) -> str:
    """The discount of expert k; one that was known beforehand is shown as it was given."""
    gamma = float(findings.solution.discounts[k])
    return f"{gamma:g}" if findings.known[k] else discount_text(findings, gamma)


def own_steps_text(findings: Judged, k: int) -> str:
    """The horizon of expert k; that of a known discount is no limit."""
    text = steps_text(findings, float(findings.solution.discounts[k]))
    return text.removeprefix("≥ ") if findings.known[k] else text


def interval_text(findings: Judged, k: int) -> str:
    """The interval of expert k; an end may not have been found, and the largest discount tried is a limit."""
    if findings.known[k]:
        return "known"
    ends = findings.intervals[k]
    if np.isnan(ends).all():
        return "–"
    low, high = ("not found" if np.isnan(end) else discount_text(findings, float(end)) for end in ends)
    return f"{low} to {high}"


def interval_steps_text(findings: Judged, k: int) -> str:
    """The interval of expert k in steps."""
    ends = findings.intervals[k]
    if findings.known[k] or np.isnan(ends).all():
        return interval_text(findings, k)
    low, high = ("not found" if np.isnan(end) else steps_text(findings, float(end)) for end in ends)
    return f"{low} to {high}"


def person_cells(findings: Judged, k: int) -> tuple[str, str, str, str]:
    """Horizon, discount, interval and temperature of expert k as they are shown; the reason where there is no discount."""
    temperature = decimals(findings.temperatures[k], 2) or "–"
    if not findings.given[k]:
        return "–", "–", findings.reasons[k], temperature
    return own_steps_text(findings, k), own_discount_text(findings, k), interval_text(findings, k), temperature


def steps_text(findings: Judged, discount: float) -> str:
    """The horizon of a discount with one decimal; a limit is shown as a limit."""
    text = horizon_text(discount, findings.longest)
    return f"≥ {text}" if findings.largest_discount <= discount < 1 else text


def horizon_text(discount: float, steps: float) -> str:
    """The horizon of a discount in a task of so many steps, with one decimal; nobody tells a million steps from more."""
    reach = effective_horizon(discount, steps)
    if reach > MOST_STEPS:
        return "unlimited" if np.isinf(reach) else "over a million"
    return f"{reach:,.1f}" if reach < 1000 else f"{reach:,.0f}"


def decimals(value: float, digits: int) -> str | None:
    """A number with so many decimals, without a sign before zero; None where it is not known."""
    return None if np.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}"


def per_decision(total: float, decisions: float) -> str:
    """A difference of log-likelihood per decision: three decimals, and more where these would show nothing."""
    value = total / decisions
    return f"{value:.3f}" if abs(value) >= 0.01 else np.format_float_positional(value, precision=2, fractional=False, trim="-")


def percent(share: float) -> str:
    """A share in per cent, with a decimal where it is small; never 0 for what is not nothing."""
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %" if share >= 0.0005 else "under 0.1 %"


def p_text(value: float) -> str:
    """A p-value after the letter p."""
    return "unknown" if np.isnan(value) else "< 0.001" if value < 0.001 else f"= {value:.3f}"


def p_cell(value: float) -> str:
    """A p-value in a table."""
    return p_text(value).removeprefix("= ")


def count(number: int, noun: str) -> str:
    """A number of things, in the singular or the plural."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def in_words(parts: list[str]) -> str:
    """A list in words; of many, the first few and how many more there are."""
    shown = parts if len(parts) <= 6 else [*parts[:5], f"{len(parts) - 5} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"


def from_to(ends: list[str]) -> str:
    """Both ends of a range, or the one they are."""
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def rounded(number: int) -> str:
    """Two significant digits: it is an estimate."""
    digits = max(0, len(str(number)) - 2)
    return f"{round(number, -digits):,}"


def sizes(findings: Findings) -> str:
    """How many experts, episodes and decisions there are."""
    numbers = {"expert": len(findings.given), "episode": int(findings.episodes.sum()), "decision": int(findings.decisions.sum())}
    return ", ".join(count(number, noun) for noun, number in numbers.items()) + "."


def shortened(label: str, most: int) -> str:
    """A label of at most so many characters, with a sign where some are left out."""
    return label if len(label) <= most else f"{label[: most - 1]}…"
