"""The report of simulated studies: truth against recovery, and what more decisions and people would bring."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multihorizon.files.output import write_all, write_csv
from multihorizon.files.saved import write_json
from multihorizon.likelihood.recovered import COVERAGE, SEEN, Recovery, SizeResult
from multihorizon.report.charts import MOST_DOTS, Axis, Line, Mark, Panel, chart, diagonal
from multihorizon.report.findings import Findings
from multihorizon.report.formats import decimals
from multihorizon.report.html import Cell, Page, Section, paragraph, side_by_side, table
from multihorizon.solution import package_version

FILES = ("recover.json", "recover.csv", "recover.html")


def write_recovery(directory: Path, found: Recovery, options: dict[str, Any], remarks: Sequence[str] = ()) -> None:
    """Write all files of simulated studies."""

    def write(draft: Path) -> None:
        write_json(draft / "recover.json", {**found.to_dict(), "remarks": remarks, "options": options})
        write_csv(found.to_frame(), draft / "recover.csv")
        recover_page(found, options, remarks).write(draft / "recover.html")

    write_all(directory, FILES, write)


def recover_page(found: Recovery, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """The report."""
    given = "; ".join(f"{k}: {', '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in options.items() if v is not None)
    return Page(
        "Can this design tell?",
        f"{found.sizes[0].studies} simulated studies of each size, fitted by {found.solver}",
        [
            Section("Truth and recovery", recovery_blocks(found)),
            Section("How this was made", [*(paragraph(remark) for remark in remarks), paragraph(f"Options: {given}.")]),
        ],
        f"multihorizon {package_version()}, seed {found.seed}",
    )


def recovery_sections(findings: Findings) -> list[Section]:
    """The section of a fit's report, where a recovery was handed in."""
    return [] if findings.recovery is None else [Section("Can this design tell?", recovery_blocks(findings.recovery))]


def recovery_blocks(found: Recovery) -> list[str]:
    """What simulated studies showed: pictures and a table."""
    pictures = [recovery_figure(found.sizes[0])]
    effects = [size for size in _along(found, "effect") if np.isfinite(size.power)]
    if len(effects) > 1:
        pictures.append(power_figure(effects, found.term))
    for name, label in (("decisions", "decisions per person"), ("people", "people")):
        sizes = _along(found, name)
        if len(sizes) > 1:
            pictures.append(sizes_figure(sizes, name, label))
    return [paragraph(found.summary), side_by_side(pictures), _table(found), paragraph(MEANING)]


MEANING = (
    "Bias and error are those of the discounts; the error is the root mean square. Coverage is the share of 95 % intervals "
    "that contain the truth. Power is the share of studies with p < 0.05. With an effect of 0 it is the share of false alarms, "
    "which should be near 5 %. The number after ± is the standard error of a share with so many simulated studies."
)


def recovery_figure(size: SizeResult) -> str:
    """Estimated against true discounts."""
    pairs = np.column_stack([size.truth.ravel(), size.estimates.ravel()])
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    shown = pairs[np.linspace(0, len(pairs) - 1, min(len(pairs), MOST_DOTS)).astype(int)]
    marks = [Mark(x, y, f"true {x:.3f}\nestimated {y:.3f}", size=2.5) for x, y in shown.tolist()]
    few = f" Shown are {MOST_DOTS:,} of {len(pairs):,}, evenly drawn." if len(pairs) > MOST_DOTS else ""
    caption = f"Each dot is a simulated person in the study as designed.{few}"
    return chart(caption, [Panel(Axis("true discount"), Axis("estimated discount"), marks, [diagonal()])])


def power_figure(sizes: Sequence[SizeResult], term: str | None) -> str:
    """Power against the true size of the effect."""
    x = [size.effect for size in sizes]
    marks = []
    for size in sizes:
        error = size.share_error(size.power)
        tip = f"true effect {size.effect:.2f}\npower {_share(size.power, error)}"
        marks.append(Mark(size.effect, size.power, tip, up=(size.power - error, size.power + error)))
    lines = [Line([(min(x), SEEN), (max(x), SEEN)], plain=True), Line([(mark.x, mark.y) for mark in marks])]
    axis = Axis("true effect on the logit of the discount", [(at, f"{at:.2g}") for at in x], min(x), max(x))
    caption = f"How often a study sees an effect of {term}. The line stands at {SEEN:g}, the level of the test."
    return chart(caption, [Panel(axis, Axis("power"), marks, lines)])


def sizes_figure(sizes: Sequence[SizeResult], name: str, label: str) -> str:
    """Error, coverage and power against one of the numbers that can be chosen."""
    x = [float(getattr(size, name)) for size in sizes]
    found = [("error of a discount", [s.error for s in sizes]), ("coverage of discounts", [s.coverage for s in sizes])]
    if any(np.isfinite(size.power) for size in sizes):
        found.append((f"power, effect {sizes[0].effect:.2g}", [s.power for s in sizes]))
    lines = [Line([(0.0, COVERAGE), (max(x), COVERAGE)], plain=True)]
    marks = []
    for colour, (kind, values) in enumerate(found):
        points = [(at, value) for at, value in zip(x, values, strict=True) if np.isfinite(value)]
        lines.append(Line(points, kind, colour))
        marks += [Mark(at, value, f"{at:,.0f} {label}\n{kind}: {value:.3f}", colour=colour) for at, value in points]
    axis = Axis(label, [(at, f"{at:,.0f}") for at in x], 0.0, max(x))
    caption = f"How the answer changes with the number of {label}. The line stands at {COVERAGE:g}."
    return chart(caption, [Panel(axis, Axis("error, or share of studies"), marks, lines)])


def size_cells(size: SizeResult) -> dict[str, str]:
    """One row of the table of sizes, by header."""
    return {
        "people": f"{size.people}",
        "decisions": f"{size.decisions:.0f}",
        "effect": decimals(size.effect, 2) or "–",
        "bias": decimals(size.bias, 3) or "–",
        "error": decimals(size.error, 3) or "–",
        "correlation": decimals(size.correlation, 2) or "–",
        "coverage": _share(size.coverage, size.coverage_error),
        "coverage of the effect": _share(size.effect_coverage, size.share_error(size.effect_coverage)),
        "power": _share(size.power, size.share_error(size.power)),
        "no answer": f"{size.unanswered}",
    }


def _table(found: Recovery) -> str:
    cells = [size_cells(size) for size in found.sizes]
    rows: list[list[Cell]] = [list(row.values()) for row in cells]
    return table(list(cells[0]), rows, "The study as designed first, then one change at a time")


def _share(share: float, error: float) -> str:
    """A share with its standard error."""
    return "–" if np.isnan(share) else f"{100 * share:.0f} ± {100 * error:.0f} %"


def _along(found: Recovery, name: str) -> list[SizeResult]:
    """The study as designed and those that differ from it in one number only, in the order of that number."""
    first = found.sizes[0]
    others = [other for other in ("people", "decisions", "effect") if other != name]

    def same(size: SizeResult) -> bool:
        pairs = [(getattr(size, other), getattr(first, other)) for other in others]
        return all(a == b or (np.isnan(a) and np.isnan(b)) for a, b in pairs)

    return sorted((size for size in found.sizes if same(size)), key=lambda size: float(getattr(size, name)))
