"""The report of `multihorizon identify`: can these decisions, and any number of others like them, tell the discounts?"""

from __future__ import annotations

from collections.abc import Sequence

from multihorizon.recovery.identification import Identification
from multihorizon.report.findings import most_steps
from multihorizon.report.formats import count
from multihorizon.report.html import Cell, Either, Page, Section, badge, listing, paragraph, table
from multihorizon.report.rulers import Ruler, look_ahead, look_ahead_range
from multihorizon.solution import Solution, Status, package_version

#: What cannot be told is no failure of the fit, but it is bad news.
KINDS = {Status.CONVERGED: "good", Status.NOT_IDENTIFIED: "bad", Status.NOT_CONVERGED: "bad"}


def identify_page(solution: Solution, exact: Identification | None, remarks: Sequence[str]) -> Page:
    """The report: these decisions, exact policies, and how it was made."""
    these = [badge(these_decisions(solution), KINDS.get(solution.status, "")), paragraph(solution.message)]
    if solution.status == Status.NOT_CONVERGED:
        these.append(paragraph("So what follows is about policies that need not be the experts'."))
    else:
        these.append(_experts(solution))
    sections = [
        Section("These decisions", these),
        Section("If the fitted policies were known exactly", _exact(exact, most_steps(solution.require_problem()))),
        Section("How this was made", [paragraph(remark) for remark in remarks or ["Transitions were given."]]),
    ]
    lead = f"{count(len(solution.experts), 'expert')}, {count(int(solution.evidence['decisions']), 'decision')}."
    footer = f"multihorizon {package_version()}, seed {solution.seed}"
    return Page("Can these decisions tell?", lead, sections, footer, experts=list(enumerate(solution.experts)))


def these_decisions(solution: Solution) -> str:
    """Whether the decisions at hand identify the discounts."""
    if solution.status == Status.NOT_CONVERGED:
        return "The fit to these decisions did not converge."
    told, number = sum(solution.evidence["identified"]), len(solution.experts)
    if 0 < told < number:
        return f"These decisions identify {told} of {number} discounts."
    return f"These decisions {'identify' if told else 'do not identify'} the discounts."


def _experts(solution: Solution) -> str:
    """Whether the decisions identify each discount."""
    told, steps = list(solution.evidence["identified"]), most_steps(solution.require_problem())
    rows: list[list[Cell]] = [
        [name, "yes" if known else "no", look_ahead(float(gamma), steps) if known else None]
        for name, known, gamma in zip(solution.experts, told, solution.discounts, strict=True)
    ]
    caption = "Whether these decisions identify each discount"
    headers: list[str | Either] = ["expert", "identified", Either("discount γ", "horizon, steps")]
    return table(headers, rows, caption, [[k] for k in range(len(rows))])


def _exact(exact: Identification | None, steps: float) -> list[str]:
    """What the fitted policies would identify."""
    if exact is None:
        return [paragraph("Whether exact policies would identify the discounts cannot be told for this problem.")]
    ruler = Ruler.over(exact.intervals.ravel().tolist(), steps)
    rows: list[list[Cell]] = [
        [name, look_ahead_range((low, high), steps), ruler.bar(low, float(gamma), high)]
        for name, gamma, (low, high) in zip(exact.experts, exact.discounts, exact.intervals.tolist(), strict=True)
    ]
    caption = "The smallest and the largest discount that explain each expert"
    headers: list[str | Either] = ["expert", Either("discounts", "horizons, steps"), ruler.title]
    ranges = table(headers, rows, caption, [[k] for k in range(len(rows))])
    return [badge(exact.status, "good" if exact.status == "unique" else "bad"), listing(exact.summary()), ranges]
