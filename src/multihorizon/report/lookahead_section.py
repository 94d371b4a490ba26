"""The part of a report on the shape of look-ahead: the table of families, and each expert's parameters."""

from __future__ import annotations

from collections.abc import Sequence

from multihorizon.likelihood.lookahead_comparison import FamilyRow, LookaheadComparison
from multihorizon.report.findings import Findings
from multihorizon.report.formats import decimals, p_cell
from multihorizon.report.html import Cell, Section, paragraph, table


def lookahead_sections(found: Findings) -> list[Section]:
    """The section, where families were compared."""
    return [] if found.lookahead is None else [lookahead_section(found.lookahead, found.solution.experts)]


def lookahead_section(compared: LookaheadComparison, numbered: Sequence[str]) -> Section:
    """The table of families, and each expert's parameters in them; `numbered` are the experts of the page."""
    text = (
        f"Each family says how the weight of a later step falls; tasks have up to {compared.steps} steps. A lower AIC or BIC is "
        "better, and so is a held-out log-likelihood nearer to zero. A small p in free weights says that the family's shape is "
        "too narrow. A small p against the best says that the decisions tell the two apart."
    )
    cells = [family_cells(row) for row in compared.rows]
    rows: list[list[Cell]] = [list(row.values()) for row in cells]
    blocks = [paragraph(compared.summary), table(list(cells[0]), rows, "Families, the lowest AIC first"), paragraph(text)]
    names = [(row, name) for row in compared.rows for name in row.details["parameters"]]
    headers = ["expert", *(f"{row.family}: {name}" for row, name in names)]
    people: list[list[Cell]] = [
        [expert, *(_parameter(row, name, k) for row, name in names)] for k, expert in enumerate(compared.experts)
    ]
    place = {name: [k] for k, name in enumerate(numbered)}
    each = table(headers, people, "Each expert's look-ahead in each family", [place[expert] for expert in compared.experts])
    return Section("In what shape they look ahead", [*blocks, each])


def family_cells(row: FamilyRow) -> dict[str, str]:
    """One row of the table of families, by header."""
    return {
        "family": row.family,
        "log-likelihood": f"{row.log_likelihood:.2f}",
        "parameters": f"{row.parameters}",
        "AIC": f"{row.aic:.1f}",
        "BIC": f"{row.bic:.1f}",
        "held out": decimals(row.held_out, 1) or "–",
        "p in free weights": p_cell(row.free_p) if row.free_degrees else "–",
        "p against the best": p_cell(row.best_p),
        "verdict": row.verdict,
    }


def _parameter(row: FamilyRow, name: str, k: int) -> Cell:
    value, error = row.details["parameters"][name][k], row.details["standard_errors"][name][k]
    if value != value:
        return "not identified"
    shown = f"{value:.0f}" if name == "depth" else f"{value:.2f}"
    return shown if error != error else f"{shown} ± {error:.2f}"
