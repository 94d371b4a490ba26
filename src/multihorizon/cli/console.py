"""What the commands share: the terminal, progress bars, one clear sentence on bad input, and what options mean.

All that was typed is checked before any work; texts become numbers and names, and files are read.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import time
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any, Literal, cast, get_args

import numpy as np
import scipy.sparse as sp
import typer
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.text import Text

from multihorizon.checks import (
    LARGEST_NUMBER,
    Floats,
    Sparse,
    as_count,
    as_discount,
    as_floats,
    as_jobs,
    as_non_negative,
    as_positive,
    as_seed,
    first_few,
)
from multihorizon.choice.settings import Choice, Habit, Temperature, check_habit
from multihorizon.cli import CheckOptions, ChoiceOptions, CompareOptions, FitOptions, RecoverOptions, TableOptions
from multihorizon.data.demonstrations import Demonstrations, put_under, read_tables
from multihorizon.data.reading import JOINT, columns_of, files_of
from multihorizon.data.rules import CODES, TableError
from multihorizon.data.side_tables import read_episodes, read_features, read_known_reward, read_persons, read_transitions
from multihorizon.driver import build_problem
from multihorizon.files import check_output, existing_file, visible, write_all, write_json
from multihorizon.horizon import FAMILIES, Exponential, Lookahead, family_named
from multihorizon.likelihood.maximum_likelihood import MaximumLikelihood
from multihorizon.mdp import MDP
from multihorizon.parallel import Progress, cluster, part_of
from multihorizon.population.covariates import Missing, read_formula
from multihorizon.population.solver import Population
from multihorizon.problem import Problem
from multihorizon.questions.goals import LEAST_SIMULATIONS
from multihorizon.questions.robustness import Robustness
from multihorizon.report.charts import Page
from multihorizon.report.pages import rivals_table
from multihorizon.result import package_version
from multihorizon.words import count


class PlainConsole(Console):
    """A console that shows users' labels as they are: "[a]" is no markup, and control characters are written out."""

    def __init__(self, stderr: bool = False) -> None:
        # A terminal without a width would show nothing.
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS" or value.strip("0")}
        super().__init__(stderr=stderr, markup=False, _environ=environment)

    def render_str(self, text: str, **options: Any) -> Text:
        """Turn a string, or a cell of a table, into what is printed."""
        return super().render_str(visible(text), **options)


#: The terminal lists so many experts or groups one by one; of more experts it lists `SHOWN` at each end. The files list all.
LISTED, SHOWN = 15, 5


def at_the_ends(order: Sequence[int], known: Sequence[int]) -> list[int]:
    """Return whom the terminal lists: all in this order, or of many both ends of those whose discounts are `known`."""
    some = list(known or order)
    return list(order) if len(order) <= LISTED else some if len(some) <= 2 * SHOWN else [*some[:SHOWN], *some[-SHOWN:]]


out = PlainConsole()
err = PlainConsole(stderr=True)


@contextmanager
def plain_errors(columns: str | None = None) -> Iterator[None]:
    """Turn bad input into one sentence on standard error and exit code 2; show warnings as sentences too.

    `columns` is what was said of the names of columns.
    """
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        try:
            yield
        except (ValueError, OSError, ImportError, MemoryError, EOFError) as error:
            _say(_sentence(error, columns), "red")
            raise typer.Exit(2) from None


@contextmanager
def ending_with_its_work() -> Iterator[None]:
    """Let SIGTERM end the program as it ends by itself: with its processes, and without files that are half written."""

    def end(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    if current_thread() is not main_thread():  # of a program that calls this one
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class TimeLeft:
    """An estimate of the time that work still takes, from its progress; call it with the share that is done.

    Shares of the work are not shares of the time. So no time is given before the expected total has been steady since half of the
    time so far: within a factor of 1.5, by the slower of the pace since the start and the pace since then. Where the work takes
    more than twice as long as was once announced, only a lower bound is given: half of what the faster pace leaves, and
    never five times what was once said.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.start = clock()
        #: When how much was done, and how long all was expected to take then.
        self.seen: list[tuple[float, float, float]] = [(0.0, 0.0, np.inf)]
        self.announced = self.least = np.inf

    def after(self, share: float) -> str:
        """Return the announcement of the time left, after a comma; empty where it is not known."""
        now = self.clock() - self.start
        if share <= 0 or now <= 0:
            return ""
        half = max(bisect_right(self.seen, (now / 2, np.inf, np.inf)) - 1, 0)
        then, done, expected = self.seen[half]
        paces = share / now, (share - done) / (now - then)
        pace = min(paces)
        whole = now + (1 - share) / pace if pace > 0 else np.inf
        if now - self.seen[-1][0] >= 1:
            self.seen.append((now, share, whole))
        if not np.isfinite(whole):
            return ""
        minutes = (whole - now) / 60
        if whole > 2 * self.announced:
            bound = min((1 - share) / max(paces) / 120, 4 * self.least)
            return f", longer than expected: at least {max(bound, 1):.0f} min left"
        if share < 0.02 or not expected / 1.5 <= whole <= 1.5 * expected:
            return ""
        self.announced = min(self.announced, whole)
        self.least = min(self.least, max(minutes, 1.0))
        return ", less than a minute left" if minutes < 1 else f", about {minutes:.0f} min left"


@contextmanager
def progress_bar(title: str, clock: Callable[[], float] = time.monotonic) -> Iterator[Progress]:
    """Show a bar on a terminal while the block runs, or a line now and then where there is none.

    The value is what solvers call with the share of the work that is done and a message.
    """
    if not err.is_terminal:
        yield part_of(_progress_lines(title, clock), 0.0, 1.0)
        return
    texts = ("{task.description}", "{task.fields[message]}{task.fields[left]}")
    title_column, message_column = (TextColumn(text, markup=False) for text in texts)
    columns = (title_column, BarColumn(), message_column, TimeElapsedColumn())
    with Bars(*columns, console=err, transient=True) as bars:
        task = bars.add_task(title, total=1.0, message="", left="")
        left = TimeLeft(clock)

        def report(share: float, message: str) -> None:
            bars.update(task, completed=share, message=visible(message), left=left.after(share))

        yield part_of(report, 0.0, 1.0)


def _progress_lines(title: str, clock: Callable[[], float]) -> Progress:
    """Progress as a line every ten seconds, with how long the rest takes if it goes on like this."""
    last = clock()
    left = TimeLeft(clock)

    def report(share: float, message: str) -> None:
        nonlocal last
        now = clock()
        said = left.after(share)
        if now - last < 10:
            return
        last = now
        err.print(f"{title}: {share:.0%} done{said}: {message}", highlight=False, soft_wrap=True)

    return report


def show_remarks(remarks: Sequence[str]) -> None:
    """What was assumed, in a quiet colour."""
    for remark in remarks:
        out.print(remark, style="dim", soft_wrap=True)


def show_robustness(found: Robustness) -> None:
    """The verdict, the models beside each other, and what changes."""
    out.print(found.verdict(), style="bold", soft_wrap=True)
    out.print(rivals_table(found).rich())
    for line in found.sentences().splitlines()[1:]:
        out.print(line, soft_wrap=True)


def write_answer(directory: Path, files: Sequence[str], content: dict[str, Any], page: Page) -> None:
    """Write an answer as JSON and as a page, both or none."""

    def write(draft: Path) -> None:
        write_json(draft / files[0], {**content, "version": package_version()})
        page.write(draft / files[1])

    write_all(directory, files, write)


def show_files(directory: Path | None, files: Sequence[str] = ()) -> None:
    """End a run with where its files are and which of them is for reading, or with how to get them."""
    if directory is None:
        out.print("Add --out FOLDER for a report to read in a browser, and every number in files.", style="dim", soft_wrap=True)
        return
    out.print(f"Written to {directory}: {', '.join(files)}", soft_wrap=True)
    page = next(name for name in files if name.endswith(".html"))
    out.print(f"Open {directory / page} in a browser.", soft_wrap=True)


def _say(sentence: str, style: str) -> None:
    short = re.sub(r"[^\s/]{200,}", lambda word: f"{word[0][:80]}…", " ".join(sentence.split()))
    err.print(f"multihorizon: {short}", style=style, highlight=False, soft_wrap=True)


def _show_warning(message: Warning | str, *place: Any) -> None:
    """A warning without the place in the source that gave it, which says nothing to a user."""
    _say(f"note: {message}", "yellow")


def _sentence(error: BaseException, columns: str | None) -> str:
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this: {str(error) or 'use fewer states, or tie rewards by features'}"
    if isinstance(error, np.linalg.LinAlgError):
        return (
            f"a computation broke down ({error}): the numbers of this task span too many powers of ten, or features repeat one "
            "another. Rescale them, or leave some out"
        )
    if isinstance(error, TableError):
        table = shlex.join(error.table.split(JOINT)) + " --same-task" * (JOINT in error.table)
        beside = f" --columns {shlex.quote(columns)}" if columns else ""
        beside += " --transitions FILE" * error.beside_transitions + f" --state {','.join(error.state)}" * bool(error.state)
        said = in_options(str(error).rstrip("."))
        return f"{said}. multihorizon check {table}{beside} lists every problem of the table and how to fix it"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return in_options(str(error)) or type(error).__name__


def in_options(text: str) -> str:
    """Return what the library says with the options of the command line in place of Python's arguments."""
    options = {
        "cut_off=True": "--cut-off",
        "believed=True": "--believed",
        "time_unit=": "--time-unit",
        "leave out time=": "leave out --time",
        'missing="fail"': "--missing fail",
        'missing="drop"': "--missing drop",
        "say with columns=": "say with --columns",
        "leave out columns=": "leave out --columns",
        "columns must name": "--columns must name",
        "with recode=": "with --recode",
        'fit Population("~ 1")': 'fit with --formula "~ 1"',
    }
    for argument, option in options.items():
        text = text.replace(argument, option)
    return text


@dataclass(frozen=True, eq=False)
class Study:
    """What a command was given: the tables, the problem they make, and remarks on what was assumed."""

    tables: list[Demonstrations]
    problem: Problem
    remarks: list[str]


@contextmanager
def checked(options: Any, files: Sequence[str]) -> Iterator[None]:
    """Let a command work that writes these files: all that was typed is checked first, and bad input becomes one sentence.

    The work may be done by a cluster. What depends on the content of files is checked when they are read.
    """
    # What numbers on the command line must be, by the name of the field; with several numbers, each of them.
    numbers: dict[str, Callable[[Any, str], object]] = {
        "smoothing": as_non_negative,
        "within": as_non_negative,
        "ridge": as_non_negative,
        "seed": as_seed,
        "jobs": as_jobs,
        "simulations": partial(as_count, least=LEAST_SIMULATIONS),
        "studies": partial(as_count, least=2),
        "decisions": as_count,
        "people": as_count,
        "effect": as_floats,
        "common_discount": as_discount,
        "most_episodes": as_count,
        "budget": as_positive,
        "width": as_positive,
        "difference": as_positive,
        "draws": as_count,
        "rounds": as_count,
    }
    with plain_errors(getattr(options, "columns", None)), ending_with_its_work():
        inputs = []
        for name, value in vars(options).items():
            option = "--episodes" if name == "most_episodes" else f"--{name.replace('_', '-')}"
            for one in value if isinstance(value, list) else () if value is None else (value,):
                if name in numbers:
                    numbers[name](one, option)
                elif name == "demos":
                    inputs += files_of(one, "demonstrations")
                elif name == "persons" and isinstance(one, int):
                    as_count(one, option)
                elif isinstance(one, Path) and name not in ("out_dir", "write", "result", "pilot"):
                    inputs.append(existing_file(one, option))
        called(options)
        temperature_of(getattr(options, "temperature", None))
        discounts_of(getattr(options, "discount", None))
        families_of(getattr(options, "lookahead", None))
        demos = getattr(options, "demos", None)
        given, tables = len(getattr(options, "transitions", None) or ()) if demos else 0, len(tables_of(options)) if demos else 0
        if given and given != tables:
            raise ValueError(f"--transitions must be given once for each table, got {given} for {tables}")
        if getattr(options, "believed", False) and not getattr(options, "transitions", None):
            raise ValueError("--believed must come with --transitions that people believe in, got none")
        if getattr(options, "estimate_rest", False) and not given:
            raise ValueError("--estimate-rest must come with --transitions to start from, got none: leave it out")
        if options.out_dir is not None:
            check_output(options.out_dir, files, [*inputs, *(getattr(options, "demos", None) or ())], "--out")
        with cluster(getattr(options, "cluster_at", None)):
            yield


def read_study(options: TableOptions, tables: list[Demonstrations] | None = None) -> Study:
    """Return the tables of decisions with their transitions and features; `tables` are those that have been read already."""
    if tables is None:
        tables = read_tables(
            tables_of(options), options.cut_off, time=options.time, time_unit=options.time_unit, columns=called(options)
        )
    matrix = None if options.features is None else partial(read_features, options.features, columns=called(options))
    mdps = read_mdps(options)
    problem, remarks = build_problem(tables, mdps, matrix, options.smoothing, options.estimate_rest, options.believed)
    return Study(tables, problem, remarks)


def read_options(options: TableOptions) -> dict[str, Any]:
    """Return what results say of these options: names of files, never where they lie."""
    return {
        "demonstrations": [path.name for path in options.demos],
        "columns": options.columns,
        "transitions": [path.name for path in options.transitions] if options.transitions else "estimated",
        "features": options.features.name if options.features else None,
        "temperature": ", ".join(options.temperature or ["pooled"]) if isinstance(options, ChoiceOptions) else None,
        "believed": options.believed,
        "same_task": options.same_task,
        "cut_off": options.cut_off,
        "time": options.time,
        "time_unit": options.time_unit,
    }


def by_name(options: Any, *names: str) -> dict[str, Any]:
    """Return what results say of options: names of files, never where they lie."""

    def named(value: Any) -> Any:
        return value.name if isinstance(value, Path) else [named(one) for one in value] if isinstance(value, list) else value

    return {name: named(getattr(options, name)) for name in names}


def tables_of(options: TableOptions | CheckOptions) -> list[list[Path]]:
    """Return the files of each table of decisions: with --same-task all are of one."""
    return [options.demos] if options.same_task else [[path] for path in options.demos]


def called(options: Any) -> dict[str, list[str]]:
    """Return what columns are called in the tables of decisions: of each that has another name, or several that are joined."""
    typed = getattr(options, "columns", None)
    columns: dict[str, list[str]] = {}
    for pair in [] if typed is None else typed.split(","):
        name, _, joined = pair.partition("=")
        name, sources = name.strip(), [source.strip() for source in joined.split("+")]
        if not name or not all(sources) or name in columns:
            example = "expert=person,episode=walk,state=row+column,action=move"
            raise ValueError(f"--columns must be NAME=COLUMN, each NAME once, such as {example}, got {typed}")
        columns[name] = sources
    return columns


def known_reward_of(options: Any, study: Study) -> Floats | None:
    """Return the known reward, or None where it is estimated."""
    path = options.known_reward
    return None if path is None else read_known_reward(path, study.problem.mdp, called(options))


def read_mdps(options: Any) -> list[MDP] | None:
    """Return the given transitions, or None to have them estimated."""
    return [read_transitions(path, called(options)) for path in options.transitions] if options.transitions else None


def features_in(path: Path, task: MDP, wanted: Sequence[str]) -> Sparse:
    """Return the features of a new task, in the order of those of a fit, by their names."""
    matrix, names = read_features(path, task)
    if set(names) != set(wanted):
        raise ValueError(f"--features must have the columns of the fit, {first_few(wanted)}, got {first_few(names)}")
    return sp.csr_array(matrix[:, [names.index(name) for name in wanted]])


def cluster_of(text: str) -> Choice:
    """Return the option `cluster` for what the command line says is independent."""
    if text not in get_args(Choice):
        raise ValueError(f"--cluster-by must be one of {', '.join(get_args(Choice))}, got {text}")
    return cast(Choice, text)


def temperature_of(texts: list[str] | None) -> Temperature:
    """Return the solver's option for a choice on the command line: a word, one number for all, or numbers by name."""
    words: dict[str, Temperature] = {"pooled": "pooled", "shared": "shared", "per-expert": "per_expert"}
    if not texts:
        return "pooled"
    if len(texts) == 1 and texts[0] in words:
        return words[texts[0]]
    return _numbers(
        texts,
        "--temperature",
        as_positive,
        f"one of {', '.join(words)}, a positive number up to {LARGEST_NUMBER:g} or NAME=number",
    )


def deviations_of(text: str) -> float | Literal["estimated"]:
    """Return the solver's option for how far rewards may be from the shared one."""
    if text == "estimated":
        return "estimated"
    try:
        number = float(text)
    except ValueError as error:
        raise ValueError(f"--deviations must be estimated or a number that is at least 0, got {text}") from error
    return as_non_negative(number, "--deviations")


def habit_of(text: str, option: str) -> Habit:
    """Return a share of lapses or a stickiness on the command line: a number, or "estimated"."""
    try:
        number: Habit = "estimated" if text == "estimated" else float(text)
        check_habit(number, option.removeprefix("--"))
    except ValueError:
        range_ = "a number from 0 to below 1" if option == "--lapse" else "a number"
        raise ValueError(f"{option} must be {range_}, or estimated, got {text}") from None
    return number


def population_of(options: FitOptions | RecoverOptions, solver: MaximumLikelihood) -> Population | None:
    """Return what is asked about groups, people and conditions; nothing without a formula."""
    persons, formula = options.persons, options.formula
    if options.missing not in ("drop", "fail"):
        raise ValueError(f"--missing must be drop or fail, got {options.missing}")
    for option, typed in {"--missing": options.missing == "fail", "--reference": options.reference}.items():
        if persons is None and not (formula or "").strip(" ~1") and typed:
            raise ValueError(f"{option} must come with --formula that names columns, got none: leave it out")
    first = dict(text.rpartition("=")[::2] for text in options.reference or ())
    if not all(first) or not all(first.values()) or len(first) < len(options.reference or ()):
        raise ValueError(f"--reference must be COLUMN=GROUP, once for each column, got {', '.join(options.reference or ())}")
    if persons is None and formula is None:
        return None
    if persons is not None and not (formula or "").strip():
        raise ValueError('--persons must come with --formula, got none: "~ group" compares the groups of a column group')
    if solver.discounts is not None or solver.groups is not None:
        raise ValueError("--formula must have discounts of all experts to explain: leave out --discount and --groups")
    read_formula(formula or "~ 1")  # before decisions are read, of which there may be many
    rows = None if persons is None else read_persons(persons, called(options))
    missing: Missing = "drop" if options.missing == "drop" else "fail"
    how: dict[str, Any] = {"missing": missing, "reference": first or None}
    how |= {"value": solver.value, "lapse": solver.lapse, "stickiness": solver.stickiness}
    return Population(formula or "~ 1", rows, solver.known_reward, solver.ridge, **how)


def read_decisions(
    options: FitOptions | CompareOptions | RecoverOptions, population: Population | None
) -> tuple[list[Demonstrations], list[str]]:
    """Return the tables of decisions with the conditions that are asked about, and remarks on what was left out."""
    wanted: Sequence[str] = () if population is None else read_formula(population.formula).columns
    if isinstance(options, CompareOptions):
        if not (options.condition or "").strip():
            raise ValueError("--condition must be the name of a column with the condition of each episode, got none")
        wanted = [str(options.condition)]
    if options.episodes is not None and not wanted:
        raise ValueError('--episodes must come with --formula that names its columns, got none: "~ noise" asks about noise')
    homes = _homes(options, population, wanted) if wanted else {}
    unnamed = population is not None and population.distribution == "types"
    demos = options.demos or []
    beside = [column for column in wanted if homes[column] in demos]
    clock = {"time": options.time, "time_unit": options.time_unit}
    tables = read_tables(tables_of(options), options.cut_off, beside, unnamed=unnamed, columns=called(options), **clock)
    if options.episodes is None:
        return tables, []
    needed = [column for column in wanted if homes[column] == options.episodes]
    if not needed:
        asks = "--condition" if isinstance(options, CompareOptions) else "the formula"
        raise ValueError(f"--episodes {options.episodes} must have a column that {asks} names, got none: leave it out")
    under, others = put_under(tables, read_episodes(options.episodes, needed, called(options)), str(options.episodes))
    is_, was = ("is", "was") if others == 1 else ("are", "were")
    rows = f"{count(others, 'row')} of {options.episodes.name} {is_} about an episode that no table of decisions has"
    return under, [f"{rows}, and {was} left out."] if others else []


def _homes(
    options: FitOptions | CompareOptions | RecoverOptions, population: Population | None, wanted: Sequence[str]
) -> dict[str, Path]:
    """Return the table of each column that is asked about: that of people, that of episodes, or one of decisions, which have it
    all.

    Raises:
        ValueError: where a column is in none of them, or in two.
    """
    columns: dict[Path, list[str]] = {}
    if not isinstance(options, CompareOptions):
        asks = f"formula {options.formula!r}"
        lacking = "" if options.persons else "persons"
        if population is not None and population.persons is not None and options.persons is not None:
            columns[options.persons] = [column for column in map(str, population.persons.columns) if column != "expert"]
    else:
        asks = "--condition"
        lacking = "" if options.episodes else "episodes"
    if options.episodes is not None:
        names = columns_of(options.episodes, "--episodes")
        taken = {"expert", "episode", *(source for made in called(options).values() for source in made)}
        columns[options.episodes] = [column for column in names if column not in taken]
    demos = options.demos or []
    for path in demos:
        columns[path] = [column for column in columns_of(path, "demonstrations") if column not in CODES]
    homes = {}
    for column in wanted:
        having = [path for path, others in columns.items() if column in others]
        if not having:
            lists = "; ".join(f"{path} has {first_few(others) or 'no columns to ask about'}" for path, others in columns.items())
            more = f", or give the table of {lacking} that has it with --{lacking} FILE" if lacking else ""
            why = "which says who decided what, and is no condition" if column in CODES else "which no table has"
            raise ValueError(f"{asks} names {column}, {why}: {lists}. Correct the name{more}")
        homes[column] = having[0]
        other = next((path for path in having[1:] if having[0] not in demos), None)
        if other is not None:
            raise ValueError(
                f"column {column} must be in one table, got it in {having[0]} and in {other}: "
                "drop it from one of them, or give it another name there"
            )
    return homes


def families_of(text: str | None) -> tuple[Lookahead, ...]:
    """Return the families of look-ahead to compare; the exponential one is always among them."""
    if text is None:
        return ()
    return FAMILIES if text == "all" else (Exponential(), family_named(text, "--lookahead", "all"))


def discounts_of(texts: list[str] | None) -> float | dict[str, float] | None:
    """Return the known discounts on the command line: one for all, or by name."""
    return _numbers(texts, "--discount", as_discount, "a number from 0 to 1, or NAME=number") if texts else None


def _numbers(texts: list[str], option: str, check: Callable[[object, str], float], expected: str) -> float | dict[str, float]:
    """Return one number for all experts, or one for each name."""
    names = [text.rpartition("=")[0].strip() for text in texts]
    nameless = next((text for text, name in zip(texts, names, strict=True) if "=" in text and not name), None)
    if nameless is not None:
        raise ValueError(f"{option} must be {expected}, got {nameless} with no name before =")
    if len(texts) > 1 and (not all(names) or len(set(names)) < len(names)):
        raise ValueError(f"{option} must be given once for all experts, or once for each name, got {', '.join(texts)}")
    try:
        numbers = [check(float(text.rpartition("=")[2]), option) for text in texts]
    except ValueError:
        raise ValueError(f"{option} must be {expected}, got {', '.join(texts)}") from None
    return dict(zip(names, numbers, strict=True)) if names[0] else numbers[0]
