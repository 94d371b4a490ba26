"""All speed figures in one run, against the peers that are installed, written to a page.

    python benchmarks/run.py [--full] [--parts reading,start-up] [--econirl PYTHON] [--before RESULTS] [--page FILE]

Without `--full` sizes are chosen so that all parts take about ten minutes on one core. Each part's rows are kept in the results
file as soon as it is done, and the page is written from all parts that are there, so that a long run can be made in parts. The
peers are quantecon, DuckDB, NumPy and, for the cluster, Dask; where one is not installed, the page says so. econirl, which needs
JAX, runs in an environment of its own: PYTHON is its interpreter.

`--before` puts the seconds of an earlier version beside ours. RESULTS is the file of results of the same scripts on it:
check it out into a folder, and run them with its `src` in PYTHONPATH and a `--results` and a `--page` of their own. Add to it by
hand what the version is called (`"version"`), and words such as "over 600" for what nobody waited for.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from multihorizon.cli import COMMANDS

Row = dict[str, Any]
ROOT = Path(__file__).parent.parent


def planning(full: bool) -> list[Row]:
    return list(import_module("planning").cases(full))


def soft_planning(full: bool) -> list[Row]:
    return list(import_module("soft_planning").cases(full))


def closed_form(full: bool) -> list[Row]:
    rows: list[Row] = import_module("closed_form_scale").grow([100, 200, 500, 1000] if full else [50, 100, 200])
    return rows


def null_spaces(full: bool) -> list[Row]:
    return list(import_module("null_spaces").cases(full))


def identification(full: bool) -> list[Row]:
    return list(import_module("identify").cases(full))


def goals(full: bool) -> list[Row]:
    return list(import_module("goals").growth(full))


def fits(full: bool) -> list[Row]:
    found: dict[str, list[Row]] = import_module("fits").cases(full)
    return [{"grows": name, **row} for name, rows in found.items() for row in rows]


def roads(full: bool) -> list[Row]:
    return list(import_module("fits").roads(full))


def tables_alone(full: bool) -> list[Row]:
    return list(import_module("fits").tables())


def known_discount(full: bool, econirl: str | None = None) -> list[Row]:
    rows: list[Row] = import_module("known_discount").rows(full, econirl)
    return rows


def linear_programs(full: bool) -> list[Row]:
    rows: list[Row] = import_module("lp_scale").cases((7, 10, 20, 30) if full else (7, 10, 14, 20), (2, 4, 8, 16))
    return rows


def certificates(full: bool) -> list[Row]:
    return list(import_module("lp_certificate").cases(full))


def designs(full: bool) -> list[Row]:
    return list(import_module("design").gaps())


def reading(full: bool) -> list[Row]:
    bench = import_module("reading")
    sizes = [(rows, kind, 20) for rows in (1_000_000, 10_000_000) for kind in ("csv", "csv.gz", "parquet")]
    large = [(100_000_000, "parquet", 20)] if full else []
    return [bench.compare(*size) for size in (*sizes, (10_000_000, "parquet", 1), *large)]


def spread(full: bool) -> list[Row]:
    rows: list[Row] = import_module("cluster").compare(400 if full else 80)
    return rows


def start_up(full: bool) -> list[Row]:
    """The best of five starts, in seconds of the clock and of the processor; modules are compiled, as pip leaves them."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "import multihorizon": ["-c", "import multihorizon"],
        "import of what `fit` needs": ["-c", "import multihorizon.cli.fit"],
        "multihorizon --help": ["-m", "multihorizon", "--help"],
        **{f"multihorizon {name} --help": ["-m", "multihorizon", name, "--help"] for name in COMMANDS},
    }
    with tempfile.TemporaryDirectory() as compiled:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = compiled
        return [{"what": what, **_best_start([sys.executable, *rest], environment)} for what, rest in commands.items()]


def _best_start(command: list[str], environment: dict[str, str]) -> Row:
    runs = []
    for _ in range(6):  # the first compiles
        begun, used = time.perf_counter(), os.times()
        subprocess.run(command, capture_output=True, check=True, env=environment)
        after = os.times()
        spent = after.children_user + after.children_system - used.children_user - used.children_system
        runs.append((time.perf_counter() - begun, round(max(spent, 0.0), 3)))
    return {"clock, s": min(run[0] for run in runs), "processor, s": min(run[1] for run in runs)}


Part = tuple[str, str, Callable[[bool], list[Row]]]
PARTS: dict[str, Part] = {
    "planning": (
        "Planning",
        "`plan` against quantecon's modified policy iteration: on random tasks that are filled, which quantecon gets as plain "
        "arrays, on random tasks with five successors, and on slip grids. `plan` answers exactly. quantecon's own settings leave "
        "wrong actions; the last columns run it until its values are within 1e-9, and are empty where that takes more than 30 "
        "times as many steps. It gets the reward of states and actions ready-made, while for a reward `(S,)` of states `plan` "
        "finds it first. `first` is the first plan of a new MDP, with what the MDP keeps from then on.",
        planning,
    ),
    "soft planning": (
        "Soft planning",
        "`soft_plan` against soft value iteration in NumPy, to a residual of 1e-10.",
        soft_planning,
    ),
    "closed form": (
        "Exact recovery",
        "`ClosedForm` for three experts, against the three forward plans that made their policies.",
        closed_form,
    ),
    "single actions": (
        "Exact recovery where many states have a single action",
        "`ClosedForm` for three experts. The open dimensions are those of what no action distinguishes.",
        null_spaces,
    ),
    "identify": (
        "What experts identify",
        "`identify` on tasks whose states are linked without any order (four successors of each of three actions), on slip "
        "grids, and on tasks in which every state follows every other. The exponent is that of the growth from the row before.",
        identification,
    ),
    "goals": (
        "Who shares a goal",
        "`goals` of experts with three rewards, as policies, and of experts with two rewards, as decisions. Pairs that were left "
        "out follow from others, or were estimated to be hopeless; the result says so of each.",
        goals,
    ),
    "fits": (
        "Fits to decisions",
        "`MaximumLikelihood`, and with the intervals of all discounts. Decisions are counted first, so "
        "their number hardly matters.",
        fits,
    ),
    "roads": (
        "The curvature as a matrix and as products",
        "One climb of `MaximumLikelihood` with each, on grids and where states are linked at random, to a few others or to all. "
        "The column before the last is what the road that is taken costs, as a multiple of the cheaper.",
        roads,
    ),
    "tables": (
        "Tables alone",
        "The program with a table and no transitions: seconds of the clock until its first words. Where the work will take long, "
        "these say how long and what to do instead.",
        tables_alone,
    ),
    "known discount": (
        "Fits at a known discount",
        "`MaximumLikelihood(discounts=…)` against nested fixed points on the same decisions: a stand-in of our own, and econirl "
        "with its own settings and with the quickest looser ones that reach our log-likelihood to a millionth. econirl's figures "
        "are of the second fit in one process; it compiles anew in every fit, and the last columns leave that out.",
        known_discount,
    ),
    "linear programs": (
        "Linear programs",
        "`MPLP` with three experts and its default starts, on cliff grids and on four random tasks in each row. The exponent is "
        "that of the time from the first row of a kind.",
        linear_programs,
    ),
    "certificates": (
        "Proofs of the optimum",
        "`MPLP(certify=0.01)`: the answer and the proof that no other is more than 1% better.",
        certificates,
    ),
    "designs": (
        "Designs of studies",
        "`design` with 16 draws of what the pilot leaves open: the proved gap, what rounding to whole episodes loses, how many "
        "times as large the uniform study must be, and the seconds it took.",
        designs,
    ),
    "reading": (
        "Reading tables",
        "A table of decisions checked and counted, against DuckDB's count of the same file without any check. Where each row is "
        "an episode of its own, putting the episodes in order takes longest.",
        reading,
    ),
    "cluster": (
        "A cluster",
        "A bootstrap on two Dask workers against one process, in seconds of the clock.",
        spread,
    ),
    "start-up": ("Start-up", "The best of five, with modules compiled as `pip install` leaves them.", start_up),
}


def measure(run: Callable[[bool], list[Row]], full: bool) -> Row:
    """The rows of a part, or why there are none."""
    begun = time.process_time()
    try:
        rows = run(full)
    except ModuleNotFoundError as error:
        return {"rows": [], "missing": error.name, "full": full}
    return {"rows": rows, "full": full, "seconds": time.process_time() - begun}


def compared(rows: list[Row], before: list[Row]) -> list[Row]:
    """The rows with the seconds of an earlier version beside ours. Rows are the same where all before their first figure is."""

    def of(row: Row) -> tuple[Any, ...]:
        return tuple(itertools.takewhile(lambda value: not isinstance(value, float), row.values()))

    seconds = next(name for name in rows[0] if name.endswith(", s"))
    earlier = {of(row): row.get(seconds) for row in before}
    found = []
    for row in rows:
        columns, place = list(row.items()), list(row).index(seconds) + 1
        found.append(dict([*columns[:place], ("before, s", earlier.get(of(row))), *columns[place:]]))
    return found


#: What follows this heading is written by hand, from other scripts, and stays.
OTHERS = "## Measured by other scripts"


def page(results: dict[str, Row], before: dict[str, Row]) -> str:
    lines = [
        "# Results of the benchmarks",
        "",
        "Measured by `python benchmarks/run.py`, which writes this page. Seconds are of the processor and of one thread unless "
        "said otherwise. Each ratio is of two figures of one run on one machine: below 1, multihorizon is faster. Parts may be "
        "from different runs; where rows of one part are, a note says so.",
        "",
        f"{os.cpu_count()} cores, Python {platform.python_version()}, "
        + ", ".join(f"{name} {_version(name)}" for name in ("numpy", "scipy", "duckdb", "quantecon", "distributed"))
        + ".",
    ]
    if before:
        lines[-1] += f" The columns `before, s` are of {before['version']}, measured by the same scripts on the same machine."
    for name, (title, words, _) in PARTS.items():
        if name in results:
            note = results[name].get("note")
            result = results[name]
            if name in before and result["rows"]:
                result = {**result, "rows": compared(result["rows"], before[name]["rows"])}
            lines += ["", f"## {title}", "", words, "", *_table(result), *(["", note] if note else [])]
    return "\n".join(lines) + "\n"


def _version(name: str) -> str:
    try:
        return version(name)
    except ModuleNotFoundError:
        return "not installed"


def _table(result: Row) -> list[str]:
    if result.get("missing"):
        return [f"Not measured: {result['missing']} is not installed."]
    columns = list(dict.fromkeys(name for row in result["rows"] for name in row))
    rows = [" | ".join(_cell(row.get(column)) for column in columns) for row in result["rows"]]
    return [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns), *(f"| {row} |" for row in rows)]


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="the largest sizes; hours on a busy machine")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--econirl", metavar="PYTHON", help="the interpreter of an environment where econirl is installed")
    parser.add_argument("--page", type=Path, default=ROOT / "benchmarks" / "RESULTS.md")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results.json")
    parser.add_argument("--before", type=Path, metavar="RESULTS", help="results of an earlier version, to show beside")
    options = parser.parse_args()
    before = json.loads(options.before.read_text()) if options.before else {}
    results: dict[str, Row] = json.loads(options.results.read_text()) if options.results.exists() else {}
    for name in filter(None, options.parts.split(",")):
        print(f"{name} …", flush=True)
        run = partial(known_discount, econirl=options.econirl) if name == "known discount" else PARTS[name][2]
        results[name] = measure(run, options.full)
        options.results.write_text(json.dumps(results, indent=1, ensure_ascii=False))
        print("\n".join(_table(results[name])), flush=True)
    _, heading, others = options.page.read_text(encoding="utf-8").partition(OTHERS) if options.page.exists() else ("", "", "")
    options.page.write_text(page(results, before) + (heading and f"\n{heading}{others}"), encoding="utf-8")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
