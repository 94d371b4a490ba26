"""Which experts share one discount, from a table with the columns `expert` and `group`; other columns are not looked at."""

from __future__ import annotations

from pathlib import Path

from multihorizon.files.reading import read_table

COLUMNS = ("expert", "group")


def read_groups(path: str | Path) -> dict[str, str]:
    """The group of each expert, from CSV or Parquet; an expert without a row is in no group."""
    table = read_table(path, "groups", COLUMNS)
    table.require(*COLUMNS)
    experts, names = table.labels("expert")
    codes, groups = table.labels("group")
    found: dict[str, str] = {}
    for row, (expert, group) in enumerate(zip(experts, codes, strict=True)):
        if names[expert] in found:
            raise ValueError(f"{table.at(row)}: there must be one row for expert {names[expert]}, received another")
        found[names[expert]] = groups[group]
    return found
