"""Reading: a table of decisions checked and counted, against DuckDB's bare count of the same file, and its memory.

    python benchmarks/reading.py [--rows 10000000] [--kinds csv,csv.gz,parquet] [--length 20]

The bare count groups the rows by expert, state, action and next state and checks nothing. Each figure is from a process of its
own on one core: processor seconds without imports, and the largest resident memory. The table is made in a temporary folder, with
20 decisions per episode unless said otherwise, 100 experts and 400 states, and deleted afterwards.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
from rows import shown

EXPERTS = 100
STATES = 400
#: Larger tables are folders of files of this size.
FILE_ROWS = 10_000_000

TABLE = """
    SELECT 'p' || (i // {length} % {experts}) AS expert, i // {length} AS episode, i % {length} AS step,
        's' || ((hash(i // {length}) % {states} + i % {length} * 3 + hash(i) % 3) % {states}) AS state,
        ['up', 'down', 'left', 'right'][(1 + hash(i + 7) % 4)::INT] AS action,
        's' || ((hash(i // {length}) % {states} + (i % {length} + 1) * 3 + hash(i + 1) % 3) % {states}) AS next_state
    FROM range({first}, {last}) t(i)"""
BARE = """
import os, duckdb
def run(path):
    files = path if os.path.isfile(path) else f"{path}/*"
    how = f"read_csv('{files}', all_varchar=true)" if ".csv" in path else f"read_parquet('{files}')"
    query = f"SELECT expert, state, action, next_state, count(*) FROM {how} GROUP BY ALL"
    database = duckdb.connect()
    database.execute("SET enable_progress_bar = false")
    return len(database.execute(query).fetchnumpy()["expert"])
"""
OURS = """
from multihorizon import Demonstrations
def run(path):
    return len(Demonstrations.from_files(path).cells.count)
"""
MEASURE = """
import json, os, resource, sys, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
exec(sys.argv[2])
begun = time.process_time()
cells = run(sys.argv[1])
seconds = time.process_time() - begun
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"cells": cells, "seconds": seconds, "megabytes": memory}))
"""


def make(folder: Path, kind: str, rows: int, length: int) -> Path:
    """One file, or a folder of files of ten million rows each."""
    how = "PARQUET" if kind == "parquet" else "CSV, HEADER"
    for number, first in enumerate(range(0, rows, FILE_ROWS)):
        last = min(rows, first + FILE_ROWS)
        query = TABLE.format(first=first, last=last, length=length, experts=EXPERTS, states=STATES)
        with duckdb.connect(config={"memory_limit": "1GB", "temp_directory": str(folder)}) as database:
            database.execute("SET enable_progress_bar = false")
            database.execute(f"COPY ({query}) TO '{folder}/part-{number}.{kind}' (FORMAT {how})")
    return folder if rows > FILE_ROWS else folder / f"part-0.{kind}"


def measure(path: Path, code: str) -> dict[str, float]:
    run = [sys.executable, "-c", MEASURE, str(path), code]
    output = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def compare(rows: int, kind: str, length: int = 20) -> dict[str, float | str]:
    """Processor seconds of both, their ratio, and our memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder), kind, rows, length)
        bare, ours = measure(path, BARE), measure(path, OURS)
    assert bare["cells"] == ours["cells"]
    return {
        "rows": rows,
        "rows per episode": length,
        "file": kind,
        "bare count, s": bare["seconds"],
        "checked and counted, s": ours["seconds"],
        "ratio": ours["seconds"] / bare["seconds"],
        "memory, MB": ours["megabytes"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--kinds", default="csv,csv.gz,parquet")
    parser.add_argument("--length", type=int, default=20, help="decisions per episode")
    options = parser.parse_args()
    for kind in options.kinds.split(","):
        print(shown(compare(options.rows, kind, options.length)))


if __name__ == "__main__":
    main()
