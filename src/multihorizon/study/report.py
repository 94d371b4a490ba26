"""Writing the study up: figures as SVG and PNG, a self-contained HTML report, and the docs page "The paper and us"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import multihorizon as mh
from multihorizon.report.html import Page, Section, badge, figure, paragraph, table, warning
from multihorizon.report.plots import save
from multihorizon.study import tables
from multihorizon.study.claim import IN_PART, NOT, NOT_TESTED, REPRODUCED, Claim
from multihorizon.study.figures import FIGURES
from multihorizon.study.settings import Progress, Settings
from multihorizon.study.tables import Table

#: What stands at the top of a quick run.
QUICK = "This was a quick run, with fewer tasks, evaluations and grid points than the paper's: its numbers are rough."


def captions(data: dict[str, Any]) -> dict[str, str]:
    """The caption of each figure; what they say of the numbers comes from the numbers."""
    naive = sorted(data["learned"]["toy"]["NaiveLP"]["discounts"])
    tied = " Under the naive reward two experts share the discount 1." if naive[1] > 1 - 1e-6 else ""
    grid = data["identifiability"]["grids"]["toy"]
    found = len(grid["feasible"])
    return {
        "generalization": "Generalization error of every algorithm. Bars: ours, absolute ratio; diamonds: the paper's.",
        "discounts": "Discounts: true (bar), learned by us (dot), printed in the paper (diamond). One colour per expert.",
        "thresholds": "Discounts that MPMCE learns when every expert is matched within a threshold. One colour per expert; "
        "dashed: printed in the paper, dotted: true; the vertical line marks the threshold of the tables.",
        "toy_values": "Toy domain: the value of s0 when one action is always taken, against the discount. Dotted: breakpoints; "
        f"dashed: learned discounts.{tied}",
        "rewards": "Rewards of the three domains, true and learned, on one colour scale: each is divided by its largest absolute "
        "value.",
        "policies": "What the deterministic experts do on the two grids; several arrows where several actions are optimal.",
        "convergence": "The best objective against time (log scale); numbers on the curves count evaluations. Stars: "
        "SequentialLP for MPLP, ClosedForm for MPMCE. The "
        "MPMCE objectives are scaled to [0, 1] because the two rules have different units.",
        "identifiability": "How far the experts' rewards stay apart over the grid of discounts. Top: the plane through the last "
        "expert's discount, star at the truth. Bottom: all points of the grid; residuals near 1e-15 are exact explanations.",
        "two_experts": "Two toy experts: generalization error of the reward that explains both, for every pair of discounts, and "
        "its percentiles.",
        "toy_sets": "Each of these points explains the three toy experts exactly (star: the true one). A grid of step "
        f"{grid['step']} meets {found} of them.",
    }


def write_figures(directory: Path, data: dict[str, Any], timings: dict[str, Any], progress: Progress) -> None:
    """Draw every figure from the data into a directory, as `NAME.svg` and `NAME.png`."""
    for number, (name, draw) in enumerate(FIGURES.items()):
        progress(number / len(FIGURES), name)
        drawing = draw(data, timings)
        for ending in ("svg", "png"):
            save(drawing, directory / f"{name}.{ending}")


def write_report(directory: Path, data: dict[str, Any], timings: dict[str, Any], claims: list[Claim], settings: Settings) -> None:
    """`report.html`: verdicts first, then every table and figure, then the choices."""
    texts = captions(data)

    def drawn(name: str) -> str:
        return figure(FIGURES[name](data, timings), texts[name])

    sections = [
        Section("What was claimed, what we get", [_counts(claims), *_claims(claims)]),
        Section("Generalization error", [_html(tables.generalization(data)), drawn("generalization")]),
        Section("Learned discounts", [_html(tables.discounts(data)), drawn("discounts")]),
        Section("MPMCE within a threshold", [drawn("thresholds"), _html(tables.thresholds(data))]),
        Section("The toy domain", [drawn("toy_values")]),
        Section("Rewards and policies", [drawn("rewards"), drawn("policies")]),
        Section("Convergence", [drawn("convergence")]),
        Section("Identifiability", [drawn("identifiability"), drawn("two_experts"), drawn("toy_sets")]),
        Section("Theorems in numbers", [_html(t) for t in tables.theory(data)]),
        Section("Choices", [_html(tables.used(settings)), *(_html(t) for t in tables.choices(data))]),
    ]
    Page(
        "Multiple planning horizons: the paper and us",
        "Every table and figure of the study, ours beside the paper's.",
        sections,
        f"multihorizon {mh.__version__}, seed {settings.seed}, {'quick' if settings.quick else 'full'} run.",
        [warning(QUICK)] if settings.quick else [],
    ).write(directory / "report.html")


def write_page(directory: Path, data: dict[str, Any], claims: list[Claim], settings: Settings) -> None:
    """`paper.md`, the page `docs/paper/results.md`: each claim, our number, the verdict and the reason."""
    run = f"`multihorizon reproduce --out DIR --seed {settings.seed}{' --quick' if settings.quick else ''}`"
    parts = [
        "# Our numbers beside the paper's",
        *([f"**{QUICK}**"] if settings.quick else []),
        f"Generated by {run}, multihorizon {mh.__version__}; do not edit. Each verdict follows from this run's numbers by the "
        "rule that is given with it.",
        "## Each claim",
        *(_claim_text(claim) for claim in claims),
        "## Tables",
        *(
            _markdown(t)
            for t in (tables.generalization(data), tables.discounts(data), tables.thresholds(data), *tables.theory(data))
        ),
        "## What the paper leaves open",
        *(_markdown(t) for t in (tables.used(settings), *tables.choices(data))),
    ]
    (directory / "paper.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _counts(claims: list[Claim]) -> str:
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in (REPRODUCED, IN_PART, NOT, NOT_TESTED)}
    return paragraph("; ".join(f"{verdict}: {count}" for verdict, count in counts.items() if count) + ".")


def _claims(claims: Sequence[Claim]) -> list[str]:
    """One block per claim: a table with these long cells could not be read on a telephone."""
    kinds = {REPRODUCED: "good", IN_PART: "", NOT: "bad", NOT_TESTED: ""}
    blocks = []
    for claim in claims:
        blocks += [
            badge(f"{claim.topic}: {claim.verdict}", kinds[claim.verdict]),
            paragraph(f"Paper: {claim.claim}"),
            paragraph(f"Ours: {claim.ours}"),
            paragraph(claim.reason),
        ]
    return blocks


def _html(content: Table) -> str:
    return table(content.headers, content.rows, content.title)


def _markdown(content: Table) -> str:
    rows = [content.headers, tuple("---" for _ in content.headers), *content.rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return f"### {content.title}\n\n" + "\n".join(lines)


def _claim_text(claim: Claim) -> str:
    """One claim under a heading of its own, so that it can be found and linked to."""
    heading = f"### {claim.topic}: {claim.verdict}"
    return f"{heading}\n\n* Paper: {claim.claim}\n* Ours: {claim.ours}\n* Why: {claim.reason}"
