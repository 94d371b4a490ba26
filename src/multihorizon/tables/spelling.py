"""The rows of a large table in SQL: as they are spelt in its files, and with codes for labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from multihorizon.checks import label
from multihorizon.files.reading import spreadsheet_label
from multihorizon.files.scan import EXTRA, Scan, quoted
from multihorizon.files.table import BYTES, LARGEST_WHOLE, NESTED

_FLOATS = ("FLOAT", "DOUBLE")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "HUGEINT", "UHUGEINT")
#: What is true of a step that is no whole number.
BAD_STEP = f"step IS NULL OR abs(step) > {LARGEST_WHOLE} OR step <> round(step)"
#: What is true of episode labels that are read as they stand: ASCII that can be seen, not 3.0, no mark of a spreadsheet.
PLAIN = r"regexp_full_match({0}, '[!-~]([ -~]*[!-~])?') AND NOT regexp_full_match({0}, '-?[0-9]+\.0*|''.*')"
#: The order of the labels of episodes: whole numbers as numbers, then text as text.
LABEL_ORDER = "CASE WHEN regexp_full_match(label, '-?[0-9]{1,18}') THEN label::BIGINT END NULLS LAST, label"


def spelt(scan: Scan, numbered: bool = False, vector: Sequence[str] = ()) -> str:
    """The rows as they are spelt, in SQL.

    Labels have the type they have in the file, and states and next states one type; `step` is a number, empty where it is none;
    `odd` says whether a row is longer or shorter than the header; `number`, if asked for, counts rows from 0. Where the
    state is a vector of columns, it is their cells in one text, and nothing is said of the next one.
    """
    state, after = (_vector(vector), "NULL::VARCHAR") if vector else _states(scan.types)
    columns = [f"{quoted(column)} AS {column}" for column in ("expert", "episode", "action")]
    columns += [f"{_step(scan.types['step'])} AS step", f"{state} AS state", f"{after} AS next_state"]
    odd = f"{quoted(EXTRA)} IS NOT NULL OR {quoted(list(scan.types)[-1])} IS NULL" if scan.padded else "false"
    columns.append(f"({odd}) AS odd")
    columns += ["row_number() OVER () - 1 AS number"] if numbered else []
    return f"(SELECT {', '.join(columns)} FROM {scan.relation})"


def coded(scan: Scan, filled: bool, numbered: bool = False) -> str:
    """The rows with codes, in SQL, from the tables `<column>_label` of the database, and episodes with their labels.

    With `filled`, blank next states inside an episode are taken from the next step.
    """
    number = ", r.number" if numbered else ""
    rows = f"""SELECT e.code AS expert, coalesce(l.label, r.episode::VARCHAR) AS episode, r.step, s.code AS state,
        a.code AS action, t.code AS next_state{number} FROM {spelt(scan, numbered)} r
        JOIN expert_label e ON e.raw = r.expert::VARCHAR JOIN action_label a ON a.raw = r.action::VARCHAR
        JOIN state_label s ON s.raw = r.state::VARCHAR LEFT JOIN state_label t ON t.raw = r.next_state::VARCHAR
        LEFT JOIN episode_label l ON l.raw = r.episode::VARCHAR"""
    if not filled:
        return f"({rows})"
    following = "lead(state) OVER (PARTITION BY expert, episode ORDER BY step)"
    return f"(SELECT * REPLACE (coalesce(next_state, {following}) AS next_state) FROM ({rows}))"


def label_reader(scan: Scan, column: str) -> Callable[[str, str], str]:
    """How the text that SQL makes of a cell becomes the label that Python makes of it."""
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
            received = BYTES if kind == "BLOB" else NESTED
            raise ValueError(f"{scan.name}: column {column} must hold text or numbers, received {received}")


def _states(types: dict[str, str]) -> tuple[str, str]:
    """State and next state in SQL, in one type: numbers that differ in theirs as floats, anything else as text."""
    state, after = types["state"], types.get("next_state")
    if after is None:
        return "state", "NULL::VARCHAR"
    if state == after:
        return "state", "nullif(next_state, '')" if after == "VARCHAR" else "next_state"
    one = "DOUBLE" if {state, after} <= {*_FLOATS, *_WHOLE} else "VARCHAR"
    return f"state::{one}", f"nullif(next_state::{one}, '')" if one == "VARCHAR" else f"next_state::{one}"


def _vector(columns: Sequence[str]) -> str:
    """The cells of several columns in one text, empty where one of them is."""
    cells = [f"nullif({quoted(column)}::VARCHAR, '')" for column in columns]
    return " || ' ' || ".join(cells)


def _step(kind: str) -> str:
    """The step as a number in SQL; dates and truth values are no numbers."""
    number = kind in (*_FLOATS, *_WHOLE, "VARCHAR") or kind.startswith("DECIMAL")
    return "TRY_CAST(step AS DOUBLE)" if number else "NULL::DOUBLE"
