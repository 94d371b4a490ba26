"""The tables of the study as plain text cells, from the parts' JSON; the report and the docs page print the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from multihorizon.study.claim import numbers
from multihorizon.study.claims_learned import distance
from multihorizon.study.learned import PAPER_NAMES
from multihorizon.study.paper import DISCOUNTS, GENERALIZATION, TRUE_INTERVALS
from multihorizon.study.settings import EPSILON, L1, REWARD_BOUND, TEMPERATURE, THRESHOLD, Settings


@dataclass(frozen=True)
class Table:
    """A title, column headers and rows of cells."""

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def generalization(data: dict[str, Any]) -> Table:
    """Mean ± standard deviation of the generalization error; signed as in Eq. 12, absolute, the median, and the paper's."""
    rows = []
    for domain, found in data["generalization"].items():
        for name, row in found.items():
            printed = GENERALIZATION.get(PAPER_NAMES.get(name, ""), {}).get(domain)
            rows.append(
                (
                    domain,
                    name,
                    f"{row['mean']:.3f} ± {row['std']:.3f}",
                    f"{row['absolute mean']:.3f} ± {row['absolute std']:.3f}",
                    f"{row['median']:.3f}",
                    f"{printed[0]:.3f} ± {printed[1]:.3f}" if printed else "",
                )
            )
    return Table(
        "Generalization error", ("domain", "algorithm", "signed ratio", "absolute ratio", "median", "paper"), tuple(rows)
    )


def discounts(data: dict[str, Any]) -> Table:
    """True, learned and printed discounts."""
    rows = []
    for domain, found in data["learned"].items():
        for name, row in found.items():
            printed = DISCOUNTS.get(PAPER_NAMES.get(name, ""), {}).get(domain)
            rows.append(
                (domain, name, _true(domain, name, row), numbers(row["discounts"], 4), numbers(printed) if printed else "")
            )
    return Table("Learned discounts", ("domain", "algorithm", "true", "ours", "paper"), tuple(rows))


def _true(domain: str, name: str, row: dict[str, Any]) -> str:
    if "LP" in name:
        return ", ".join(f"[{low:g}, {high:g}]" for low, high in TRUE_INTERVALS[domain])
    return numbers(row["true"])


def thresholds(data: dict[str, Any]) -> Table:
    """What MPMCE learns as the threshold grows, how far that is from the printed discounts, and how it generalises."""
    rows = tuple(
        (
            domain,
            f"{row['threshold']:g}",
            numbers(row["discounts"], 3),
            "yes" if row["ordered"] else "no",
            f"{distance(row, domain):.2f}",
            f"{row['error']['absolute mean']:.3f}",
            row["status"],
        )
        for domain, found in data["thresholds"].items()
        for row in found
    )
    headers = ("domain", "threshold", "discounts", "true order", "distance to the paper", "generalization error", "status")
    return Table("MPMCE within a threshold", headers, rows)


def theory(data: dict[str, Any]) -> list[Table]:
    """Theorem 2, Proposition 1 and the duality gap, by domain."""
    part = data["theory"]
    chain = tuple((d, *(f"{row[k]:.4f}" for k in ("dual", "primal", "likelihood"))) for d, row in part["chain"].items())
    slopes = tuple(
        (d, numbers(row["discounts"]), numbers(row["discounted"], 4), numbers(row["plain"], 4))
        for d, row in part["slopes"].items()
    )
    gaps = tuple(
        (d, numbers(row["discounts"]), f"{row['gap']:.1e}", ", ".join(f"{m:.1e}" for m in row["mismatch"]))
        for d, rows in part["gap"].items()
        for row in rows[:4]
    )
    return [
        Table("Theorem 2: the dual, the entropy, the likelihood", ("domain", "G*", "H*", "−L*"), chain),
        Table(
            "Proposition 1: slope in logit γ at the experts", ("domain", "γ", "discounted likelihood", "plain likelihood"), slopes
        ),
        Table("The duality gap at the dual's optimum", ("domain", "Γ", "summed gap", "mismatch of each expert"), gaps),
    ]


def choices(data: dict[str, Any]) -> list[Table]:
    """One table per choice."""
    tables = []
    for name, rows in data["choices"].items():
        headers = tuple(rows[0])
        tables.append(Table(f"Sensitivity: {name}", headers, tuple(tuple(_cell(row[h]) for h in headers) for row in rows)))
    return tables


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return numbers(value) if len(value) <= 6 else f"{len(value)} values from {np.min(value):.3g} to {np.max(value):.3g}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def used(settings: Settings) -> Table:
    """The choices of this run with the evidence for each."""
    rows = (
        ("bound on the reward", _each(REWARD_BOUND), "the largest true reward; with l1 = 0 it only scales the answer"),
        (
            "l1 weight",
            _each(L1),
            "on the toy the weight that gives the reward the paper shows; elsewhere the optimum is reached without",
        ),
        ("temperature", f"{TEMPERATURE:g}", "not stated; ClosedForm recovers the discounts at every temperature tried"),
        (
            "ties",
            "the first optimal action in the order right, down, left, up",
            "not stated; all optimal actions as a second row",
        ),
        ("height of big-small", "3", "not fixed by the printed intervals; see the table for how near each comes to the paper"),
        ("gap ε of the printed rule", f"{EPSILON:g}", "not stated; see the table for others"),
        ("threshold of MPMCE", f"{THRESHOLD:g}", "not stated; see the table for others"),
        (
            "policy in Eq. 12",
            "optimal without entropy, first optimal action",
            "reproduces the toy's printed errors for its printed rewards",
        ),
        ("value in Eq. 12", "from the initial distribution", "the domain's own"),
        ("seed, tasks", f"{settings.seed}, {settings.tasks}", "100 tasks in the full run, as in the paper"),
    )
    return Table("Choices the paper does not state", ("choice", "value", "evidence"), rows)


def _each(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in values.items())
