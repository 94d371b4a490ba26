"""Covariates of persons, from a table with the column `expert` and one row per person.

Empty cells are values that are missing, and so is what R and others write for them: NA, N/A, NaN or null.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from multihorizon.files.reading import numbers_or_text, read_table


def read_persons(path: str | Path) -> pd.DataFrame:
    """The table, from CSV or Parquet, with the names of the experts as they are in tables of decisions."""
    table = read_table(path, "persons", ("expert",))
    table.require("expert")
    codes, names = table.labels("expert")
    frame = table.frame.assign(expert=[names[code] for code in codes])
    for column in frame.columns.drop("expert"):
        if pd.api.types.infer_dtype(frame[column]) == "string":
            written = frame[column].str.strip().str.lower()
            frame[column] = numbers_or_text(frame[column].mask(written.isin(["na", "n/a", "nan", "null"])))
    return frame
