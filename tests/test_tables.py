"""One table: what a column holds decides how it is written, in every way of showing it."""

from __future__ import annotations

import io
import re
from html import escape

import pandas as pd
from rich.console import Console

from multihorizon.horizon import Horizon
from multihorizon.report.charts import TableBlock
from multihorizon.words import Role, Table


def test_the_role_of_a_column_decides_its_digits_wherever_it_is_shown() -> None:
    frame = pd.DataFrame(
        {
            "expert": ["Ann", "Ben"],
            "discount": [0.52155, float("nan")],
            "low": [0.4811, float("nan")],
            "high": [0.5608, float("nan")],
            "decisions": [1667.0, 1627.0],
            "share": [0.0002, 0.5],
            "test_p": [0.9999, 0.04],
            "steps": [2.09, float("inf")],
        }
    )
    roles: dict[str, Role] = {"discount": "discount", "decisions": "count", "share": "share", "steps": "horizon"}
    table = Table(frame, "Experts", ("discount", "low", "high"), roles=roles, headings={"low": "95% CI"})
    columns = {column.heading: list(column.cells) for column in table.columns(joined=True)}
    assert columns == {
        "expert": ["Ann", "Ben"],
        "discount": ["0.522", "–"],
        "95% CI": ["0.481 to 0.561", "–"],
        "decisions": ["1,667", "1,627"],
        "share": ["under 0.1%", "50%"],
        "test p": ["> 0.999", "0.040"],
        "steps": ["2.1", "unlimited"],
    }
    said = io.StringIO()
    Console(file=said, width=120).print(table.rich())
    page = TableBlock(table, horizon=Horizon()).__html__()
    for cells in columns.values():
        assert all(cell in said.getvalue() for cell in cells)
        assert all(escape(cell) in page for cell in cells)
    assert '<span class="in-steps">1.9 to 2.3</span>' in re.sub(r"\s+", " ", page)
