"""Covariates of persons, from a table with the column `expert` and one row per person."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from multihorizon.files.reading import read_table


def read_persons(path: str | Path) -> pd.DataFrame:
    """The table, from CSV or Parquet, with the names of the experts as they are in tables of decisions."""
    table = read_table(path, "persons", ("expert",))
    table.require("expert")
    codes, names = table.labels("expert")
    return table.frame.assign(expert=[names[code] for code in codes])
