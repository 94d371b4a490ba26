"""Rows of files that are too large to be loaded, in SQL: as they are spelt, and as the codes of their labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from multihorizon.checks import label
from multihorizon.data.reading import MISSING, Scan, no_labels, quoted, spreadsheet_label, text
from multihorizon.frames import LARGEST_WHOLE

_FLOATS = ("FLOAT", "DOUBLE")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "UHUGEINT")
#: What is true of a step that is no whole number.
BAD_STEP = f"step IS NULL OR abs(step) > {LARGEST_WHOLE} OR step <> round(step)"
#: What is true of labels that are read as they are: a thousand letters of ASCII at most, not 3.0, no mark of a spreadsheet.
PLAIN = r"regexp_full_match({0}, '[!-~]([ -~]{{0,998}}[!-~])?') AND NOT regexp_full_match({0}, '-?[0-9]+\.0*|''.*')"
#: The order of the labels of episodes: whole numbers as numbers, then text as text.
LABEL_ORDER = "CASE WHEN regexp_full_match(label, '-?[0-9]{1,18}') THEN label::BIGINT END NULLS LAST, label"


def spelt(scan: Scan, numbered: bool = False, conditions: Sequence[str] = ()) -> str:
    """Return the rows as they are spelt, in SQL.

    Labels have the type they have in the file, and states and next states one type; `step` is a number, empty where it is none;
    `odd` says whether a row is longer or shorter than the header; `number`, if asked for, counts rows from 0. Conditions are
    called `condition0`, `condition1`, …
    """
    kind = scan.types["step"]  # dates and truth values are no numbers
    number = kind in (*_FLOATS, *_WHOLE, "VARCHAR") or kind.startswith("DECIMAL")
    step, (state, after) = "TRY_CAST(step AS DOUBLE)" if number else "NULL::DOUBLE", _states(scan.types)
    columns = ["expert", "episode", "action", f"{step} AS step", f"{state} AS state", f"{after} AS next_state"]
    columns += [f"{scan.odd} AS odd", *(f"{_known(scan, column)} AS condition{i}" for i, column in enumerate(conditions))]
    columns += ["row_number() OVER () - 1 AS number"] if numbered else []
    return f"(SELECT {', '.join(columns)} FROM {scan.relation})"


def _known(scan: Scan, column: str) -> str:
    """Return a condition in SQL: nothing where the cell says that it is missing."""
    cell, kind = quoted(column), scan.types[column]
    if kind in _FLOATS:
        return f"CASE WHEN NOT isnan({cell}) THEN {cell} END"
    words = ", ".join(map(text, MISSING))
    return f"CASE WHEN lower(trim({cell})) NOT IN ({words}) THEN {cell} END" if kind == "VARCHAR" else cell


def coded(scan: Scan, filled: bool, numbered: bool = False, conditions: Sequence[str] = ()) -> str:
    """Return the rows with codes, in SQL, from the tables `<column>_label` of the database, and episodes with their labels.

    With `filled`, blank next states inside an episode are taken from the next step.
    """
    more = "".join([", r.number" if numbered else "", *(f", r.condition{i}" for i in range(len(conditions)))])
    rows = f"""SELECT e.code AS expert, coalesce(l.label, r.episode::VARCHAR) AS episode, r.step, s.code AS state,
        a.code AS action, t.code AS next_state{more} FROM {spelt(scan, numbered, conditions=conditions)} r
        JOIN expert_label e ON e.raw = r.expert::VARCHAR JOIN action_label a ON a.raw = r.action::VARCHAR
        JOIN state_label s ON s.raw = r.state::VARCHAR LEFT JOIN state_label t ON t.raw = r.next_state::VARCHAR
        LEFT JOIN episode_label l ON l.raw = r.episode::VARCHAR"""
    if not filled:
        return f"({rows})"
    following = "lead(state) OVER (PARTITION BY expert, episode ORDER BY step)"
    return f"(SELECT * REPLACE (coalesce(next_state, {following}) AS next_state) FROM ({rows}))"


def label_reader(scan: Scan, column: str) -> Callable[[str, str], str]:
    """Return what makes a label of the text that SQL makes of a cell, as Python makes it of the cell."""
    if scan.is_csv:
        return spreadsheet_label
    kind = "DOUBLE" if column in ("state", "next_state") and "DOUBLE" in _states(scan.types)[0] else scan.types[column]
    if kind in _FLOATS:
        return lambda raw, name: label(float(raw), name)
    return (lambda raw, name: label(raw == "true", name)) if kind == "BOOLEAN" else label


def require_labels(scan: Scan, columns: tuple[str, ...]) -> None:
    """Raise where a column cannot hold labels."""
    for column in columns:
        kind = scan.types.get(column, "")
        if kind == "BLOB" or kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION")):
            raise no_labels(scan.name, column, kind == "BLOB")


def _states(types: dict[str, str]) -> tuple[str, str]:
    """Return state and next state in SQL, in one type: numbers that differ in theirs as floats, anything else as text."""
    state, after = types["state"], types.get("next_state")
    if after is None:
        return "state", "NULL::VARCHAR"
    if state == after:
        return "state", "nullif(next_state, '')" if after == "VARCHAR" else "next_state"
    one = "DOUBLE" if {state, after} <= {*_FLOATS, *_WHOLE} else "VARCHAR"
    return f"state::{one}", f"nullif(next_state::{one}, '')" if one == "VARCHAR" else f"next_state::{one}"
