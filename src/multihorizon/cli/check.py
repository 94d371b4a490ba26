"""`multihorizon check`: what does a table hold, what is wrong with it, and how is it mended?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from multihorizon.cli.console import checked, in_options, out, read_mdps, tables_of, write_answer
from multihorizon.cli.options import CheckOptions
from multihorizon.data.check import CHANCE, Issue, TableCheck, check_table, nothing_shared, write_mended
from multihorizon.data.reading import file_kind, files_of
from multihorizon.mdp import MDP
from multihorizon.report.charts import Badge, Block, Page, Section, TableBlock
from multihorizon.result import package_version
from multihorizon.words import Role, Table, count, from_to

FILES = ("check.json", "check.html")


def check(options: CheckOptions) -> None:
    """Look at tables before any fit: what they hold, what is wrong with them, and how to mend each.

    The exit code is 0 whatever is found, and 2 where the file cannot be read as a table.
    """
    with checked(options, FILES):
        paths = tables_of(options)
        if options.state is not None and options.transitions:
            raise ValueError("--state must come without --transitions, which belongs to tasks with a list of states")
        if options.write is not None:
            if len(options.demos) > 1:
                raise ValueError(f"--write must come with one table, received {len(options.demos)}: mend them one by one")
            _check_target(options.write, options.demos[0])
        columns = [name.strip() for name in options.state.split(",")] if options.state is not None else []
        mdps: Sequence[MDP | None] = read_mdps(options.transitions) or [None] * len(paths)
        every = [check_table(path, mdp, columns, believed=options.believed) for path, mdp in zip(paths, mdps, strict=True)]
        between = nothing_shared({one.name: {"action": {*one.log.actions}, "state": {*one.log.states}} for one in every})
        for found in every:
            _show(found)
        for finding in between:
            out.print(f"{finding.what} {finding.remedy}", style="bold", soft_wrap=True)
        written = []
        if options.write is not None:
            write_mended(every[0], options.write)
            for line in _written(every[0], options.write):
                out.print(line, soft_wrap=True)
            written = _written(every[0], Path(options.write.name))
        if options.out_dir is not None:
            recorded = {
                "transitions": [path.name for path in options.transitions] if options.transitions else None,
                "believed": options.believed,
                "same_task": options.same_task,
                "state": options.state,
                "write": options.write.name if options.write else None,
            }
            contents = [_content(found) for found in every]
            content = contents[0] if len(every) == 1 else {"tables": contents, "findings": [finding.what for finding in between]}
            page = _page(every, between, written, options)
            write_answer(options.out_dir, FILES, {**content, "options": recorded}, page)


def _content(found: TableCheck) -> dict[str, Any]:
    """Return the check for JSON, with options of the command line in place of Python's arguments."""
    content = found._content()
    findings = [{**finding, "remedy": in_options(finding["remedy"])} for finding in content["findings"]]
    return {**content, "summary": in_options(content["summary"]), "findings": findings}


def _check_target(path: Path, log: Path) -> None:
    """Raise, before any work, if the mended table cannot be written there, or would replace what is read."""
    if path.is_dir() or not path.parent.is_dir():
        what = "a folder" if path.is_dir() else f"a file in {path.parent}, which is no folder"
        raise ValueError(f"--write must be a file for the mended table, received {path}, {what}")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"--write must be in a folder where files can be written, received {path}")
    files = files_of(log, "demonstrations")
    if path.resolve() in {file.resolve() for file in files} or path.resolve().parent == log.resolve():
        raise ValueError(f"--write must be another file than those that are read, received {path}")
    kind, own = file_kind(path), file_kind(files[0])
    if kind != own or path.suffix.lower() not in (".csv", ".gz", ".parquet", ".pq"):
        ending = ".parquet" if own == "Parquet" else ".csv or .csv.gz"
        raise ValueError(f"--write must be a file of the same kind as the table, {ending}, received {path}")


def _written(found: TableCheck, path: Path) -> list[str]:
    """What the mended table is, in sentences."""
    rows, left = found.mended.number.size, [finding.kind for finding in found.left]
    lines = [f"Written to {path}: {rows:,} of {count(found.rows, 'row')}.", *found.changes]
    lines = lines if found.changes else [*lines, "There was nothing to mend without guessing."]
    return [*lines, f"Still to be mended: {', '.join(left)}."] if left else lines


def _sizes(found: TableCheck) -> str:
    """How much there is of everything."""
    numbers = {
        "row": found.rows,
        "expert": len(found.experts),
        "episode": int(found.experts["episodes"].sum()),
        "decision": int(found.experts["decisions"].sum()),
        "state": len(found.states),
        "action": len(found.actions),
    }
    return ", ".join(count(number, noun) for noun, number in numbers.items() if number) + "."


def _show(found: TableCheck) -> None:
    out.print(f"{found.name}: {_sizes(found)}", soft_wrap=True)
    listed = 20  # The terminal lists up to so many experts, and states; the page lists all.
    for table in _parts(found):
        if 0 < len(table.frame) <= listed:
            out.print(table.rich())
    if found.findings:
        out.print(replace(_findings(found), caption="What is wrong, and what is worth knowing").rich(lines=True))
    out.print(
        in_options(found.sentences()),
        style="bold red" if any(finding.refused for finding in found.findings) else "bold",
        soft_wrap=True,
    )


def _findings(found: TableCheck) -> Table:
    """What is wrong and what is worth knowing, and how to mend it."""
    rows = []
    for finding in found.findings:
        where = f" First: {', '.join(finding.places)}." if finding.places else ""
        refuses = "refuses it" if finding.refused else "takes it with --transitions or --cut-off"
        fit = f"{refuses}; --write mends it" if finding.mended else refuses if finding.stops else "goes on"
        rows.append((finding.kind, f"{finding.what}{where}", in_options(finding.remedy), fit))
    return Table(pd.DataFrame(rows, columns=["problem", "what was found", "how to mend it", "a fit"]))


def _parts(found: TableCheck) -> list[Table]:
    """The tables of what there is."""
    experts, states = found.experts.copy(), found.states.copy()
    lengths = zip(experts["shortest"], experts["longest"], strict=True)
    experts["per episode"] = [from_to([f"{low:,}", f"{high:,}"]) for low, high in lengths]
    wanted = ["expert", "episodes", "decisions", "per episode", "states", "actions"]
    if "chance_p" in experts:
        experts["chance, p"] = ["too few" if p != p else p for p in experts["chance_p"]]
    roles: dict[str, Role] = {"per episode": "count", "chance, p": "p"}
    states.columns = ["state", "episodes begin", "arrivals", "decisions", "what was done"]
    states["what was done"] = states["what was done"].replace("", "nobody decided here")
    actions = found.actions.set_axis(["action", "decisions", "in so many states"], axis=1)
    of_experts = Table(experts, "Experts", roles=roles).select(*wanted, "chance, p")
    return [of_experts, Table(states, "States"), Table(actions, "Actions")]


def _page(every: Sequence[TableCheck], between: Sequence[Issue], written: Sequence[str], options: CheckOptions) -> Page:
    """The report."""
    compared = "It was compared with the given transitions." if options.transitions else "It was not compared with transitions."
    sections: list[Section] = []
    for found in every:
        of = f": {Path(found.name).name}" if len(every) > 1 else ""
        wrong, option = (any(getattr(finding, name) for finding in found.findings) for name in ("refused", "stops"))
        badge = Badge("Nothing stops a fit", "good")
        if wrong or option:
            badge = (
                Badge("A fit refuses this table", "bad") if wrong else Badge("A fit needs an option for this table", "caution")
            )
        blocks: list[str | Block] = [badge, in_options(found.sentences())]
        if found.findings:
            blocks.append(TableBlock(_findings(found)))
        blocks += written
        holds: list[str | Block] = [compared]
        holds += [TableBlock(table) for table in _parts(found) if len(table.frame)]
        if "chance_p" in found.experts:
            holds.append(
                "The last column of experts is a test of their decisions against equally likely actions in each state. A small p "
                f"says that they do not choose at random; from {CHANCE} on they may."
            )
        sections += [Section(f"What is wrong, and how to mend it{of}", blocks), Section(f"What the table holds{of}", holds)]
    if between:
        sections.insert(0, Section("Between the tables", [f"{finding.what} {finding.remedy}" for finding in between]))
    names = [f"{Path(found.name).name}: {_sizes(found)}" for found in every]
    title = "What is in this table?" if len(every) == 1 else "What is in these tables?"
    return Page(title, " ".join(names), sections, f"multihorizon {package_version()}")
