"""What a table of decisions holds, all that is wrong with it, what helps, and the table with all that can be fixed fixed.

Reading a table stops at the first row that breaks a rule (`rules`). This goes on: a cell that cannot be read is left blank, and
each rule that is broken is one finding, with how often, where first, and what helps.

*Chance.* In a state with A actions in which an expert decided n times, Pearson's χ² against equally likely actions has, for any
n, the mean `A − 1` and the variance `2 (A − 1)(1 − 1/n)`. The sum over states is compared with the gamma distribution that has
its mean and its variance. An expert whose decisions are all alike in each state gives the largest sum there can be: where even
that would be no evidence, there are too few decisions to say. Without transitions, the actions of a state are those that
somebody took there.

*Few decisions.* People who share a reward need not be distinguished from chance one by one: a fit pools what they say. So those
of whom too little is known alone are taken together, and only where even all their decisions do not contradict equally likely
actions is that a finding.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import numpy as np
import pandas as pd
from scipy.special import gammaincc

from multihorizon.checks import Floats, Ints, closest, look_alikes
from multihorizon.data.counting import KEPT_ROWS
from multihorizon.data.demonstrations import Demonstrations, decisions_in
from multihorizon.data.dynamics import capital, contradictions
from multihorizon.data.reading import Columns, connect, files_of, in_order, joint_name, load, quoted, scan_files, text
from multihorizon.data.rules import COLUMNS, CUT_OFF, LABELS, Log, Rule, breaches, fixed
from multihorizon.files import FORMULA, spreadsheet_safe
from multihorizon.mdp import MDP
from multihorizon.result import Result
from multihorizon.words import count, decimals

#: New labels of a table, by column and label.
Recoding = Mapping[str, Mapping[str, str]]
#: A finding lists at most so many places.
PLACES = 3
#: An expert whose decisions are likelier than this if all actions are equally likely may choose at random.
CHANCE = 0.05
#: The findings that `cut_off` or given transitions answer: a fit takes such a table with one of them.
STOPPING = ("cut off", "no next_state")


@dataclass(frozen=True)
class Issue:
    """One kind of thing that is wrong, or worth knowing.

    Attributes:
        kind: a short name, the same for all tables.
        what: what was found, and how often, in a sentence.
        remedy: how to fix it, in a sentence.
        count: how often.
        stops: whether a fit refuses the table for it.
        mended: whether the fixed table is free of it.
        rows: where it occurs first, as rows of the file.
        places: the same as lines, in words.
    """

    kind: str
    what: str
    remedy: str
    count: int
    stops: bool
    mended: bool = False
    rows: tuple[int, ...] = ()
    places: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Say whether a fit refuses the table for it, whatever its options are."""
        return self.stops and self.kind not in STOPPING


@dataclass(frozen=True, eq=False)
class TableCheck(Result):
    """What a table holds and what is wrong with it.

    Attributes:
        name: the file or folder.
        rows: how many there are.
        findings: what is wrong, and what is worth knowing; what a fit refuses the table for comes first.
        left: what a fit refuses the fixed table for.
        changes: what was fixed, in sentences.
        experts, states, actions: one row per expert, state and action, with how often each occurs in the fixed table.
        log, mended: the table as it is, and with everything fixed that can be fixed.
        recode: the new labels that were given, by column.
    """

    name: str
    rows: int
    findings: list[Issue]
    left: list[Issue]
    changes: list[str]
    experts: pd.DataFrame
    states: pd.DataFrame
    actions: pd.DataFrame
    log: Log = field(repr=False)
    mended: Log = field(repr=False)
    recode: Recoding = field(default_factory=dict, repr=False)

    _drawn: ClassVar[tuple[str, ...]] = ("kind", "count")
    _shown: ClassVar[tuple[str, ...]] = ("kind", "count", "stops", "mended", "what")

    def sentences(self) -> str:
        """Return whether the table can be fitted, and what to fix, and how."""
        wrong = [finding for finding in self.findings if finding.refused]
        if not any(finding.stops for finding in self.findings):
            return "Ready to fit." if self.findings else "Nothing is wrong with this table."
        parts = [f"A fit refuses this table for: {', '.join(finding.kind for finding in wrong)}."] if wrong else []
        mended = [finding.kind for finding in wrong if finding.mended]
        if mended:
            parts.append(f"Can be fixed without guessing: {', '.join(mended)}.")
        hand = [finding.kind for finding in self.left if finding.kind not in STOPPING]
        if hand:
            parts.append(f"To be fixed by hand: {', '.join(hand)}.")
        if len(hand) < len(self.left):
            needs = "a fit needs the transitions, or cut_off=True if episodes simply stop"
            parts.append(f"Where no next_state says how an episode ended, {needs}.")
        return " ".join(parts)

    def _facts(self) -> dict[str, Any]:
        sizes = {name: len(getattr(self, name)) for name in ("experts", "states", "actions")}
        return {"table": Path(self.name).name, "rows": self.rows, **sizes}

    def to_frame(self) -> pd.DataFrame:
        """Return one row per finding: `kind, what, remedy, count, stops, mended`."""
        columns = ("kind", "what", "remedy", "count", "stops", "mended")
        return pd.DataFrame([[getattr(finding, c) for c in columns] for finding in self.findings], columns=list(columns))

    def _content(self) -> dict[str, Any]:
        return {
            "table": Path(self.name).name,
            "rows": self.rows,
            "summary": self.sentences(),
            "findings": [{k: v for k, v in vars(finding).items() if k != "rows"} for finding in self.findings],
            "changes": self.changes,
            **{name: getattr(self, name).to_dict("records") for name in ("experts", "states", "actions")},
        }


def check_table(
    path: str | Path | Sequence[str | Path],
    mdp: MDP | None = None,
    vector: Sequence[str] = (),
    *,
    believed: bool = False,
    columns: Columns | None = None,
    recode: Recoding | None = None,
) -> TableCheck:
    """Look at a table of decisions: a file, or a folder or a list of files.

    Args:
        path: CSV or Parquet, as for `Demonstrations.from_files`.
        mdp: transitions to compare it with.
        vector: the columns that are the state, where it is a vector.
        believed: whether the transitions are what people believe, so that where moves led may contradict them.
        columns: what the columns are called in the file, as for `Demonstrations.from_frame`.
        recode: new labels by column, such as `{"action": {"big net": "fish"}}`, where laboratories have other words for the same.
            The table is checked and written with the new ones.

    Raises:
        ValueError: where the table has not the columns it needs, cannot be read, or is too large to be loaded, and for a label to
            be replaced that it does not have.
    """
    log, recoded = _recoded(_read(path, vector, columns), recode or {})
    table, scan = log.table, log.table.scan
    mended, changes = fixed(log)
    findings = _findings(log, mdp, believed)
    left = [finding for finding in (_findings(mended, mdp, believed) if changes else findings) if finding.stops]
    unmended = {finding.kind for finding in left}
    places = scan.places({row for finding in findings for row in finding.rows}) if scan is not None else {}
    findings = [
        replace(f, mended=f.stops and f.kind not in unmended, places=tuple(places[row] for row in f.rows))
        for f in sorted(findings, key=lambda finding: not finding.stops)
    ]
    decisions = _decisions(mended.sorted)
    if not len(decisions):
        raise ValueError(f"{table.name} must have a row with all of {', '.join(COLUMNS)}, got none")
    experts = _experts(decisions, mdp, bool(vector))
    states = _states(decisions).iloc[: 0 if vector else None]
    tables = experts, states, _actions(decisions)
    changes = [*recoded, *changes]
    return TableCheck(table.name, log.number.size, findings, left, changes, *tables, log, mended, recode or {})


def _recoded(log: Log, recode: Recoding) -> tuple[Log, list[str]]:
    """Return the log with new labels, and how often each column was given one, in sentences."""
    changes = []
    for column, new in recode.items():
        names = getattr(log, f"{column}s")
        unknown = next((old for old in new if old not in names), None)
        if unknown is not None:
            close = closest(unknown, names)
            hint = f": is it {close!r}?" if close else f": it has {_some(names)}"
            raise ValueError(f"{log.table.name} must have the {column} {unknown!r} to give it the label {new[unknown]!r}{hint}")
        labels = in_order({new.get(name, name) for name in names})
        place = {name: i for i, name in enumerate(labels)}
        code = np.array([*(place[new.get(name, name)] for name in names), -1], dtype=np.int64)
        fields = (column, "next_state") if column == "state" else (column,)
        changed = np.array([*(name in new for name in names), False])
        number = sum(int(changed[getattr(log, one)].sum()) for one in fields)
        written: dict[str, Any] = {one: code[getattr(log, one)] for one in fields}
        log = replace(log, **{**written, f"{column}s": labels})
        changes.append(f"{count(number, 'cell')} of {' and '.join(fields)} given another label.")
    return log, changes


def _read(path: str | Path | Sequence[str | Path], vector: Sequence[str], columns: Columns | None) -> Log:
    """Return the table as it is; vectors that are equal have one code."""
    scan = scan_files(joint_name(path), files_of(path, "demonstrations")).called(columns)
    labels = tuple(column for column in LABELS if not vector or not column.endswith("state"))
    wanted = (*vector, *(f"next_{name}" for name in vector), "terminated") if vector else ("state", "next_state")
    table = load(scan, labels, ("expert", "episode", "step", "action", *wanted), KEPT_ROWS)
    table.require(*(column for column in COLUMNS if column != "state" or not vector), *vector)
    log = Log.of(table, vector)
    if not vector:
        return log
    code = np.zeros(log.state.size, dtype=np.int64)
    for values in log.coordinates.T:
        code = pd.factorize(code * (code.size + 1) + pd.factorize(values)[0])[0].astype(np.int64)
    return replace(log, state=np.where(log.state < 0, -1, code), states=("",) * (int(code.max(initial=0)) + 1))


def _decisions(rows: Log) -> Demonstrations:
    """Return the rows of a sorted log that have a state and an action."""
    return decisions_in(rows.select((rows.state >= 0) & (rows.action >= 0)), cut_off=True)


def write_mended(checked: TableCheck, path: Path) -> None:
    """Write the fixed table, with all columns of the table that was read, in its order; the kind of file is the same."""
    log, scan = checked.mended, checked.mended.table.scan
    assert scan is not None
    safe = spreadsheet_safe if scan.is_csv else str
    new = pd.DataFrame({"place_in_table": log.number, "episode": None})
    later = np.flatnonzero(log.part > 0)
    for i in later:
        name = f"{log.episodes[log.episode[i]]} part {log.part[i] + 1}"
        while name in log.episodes:  # another episode has this name
            name += "'"
        new.loc[i, "episode"] = safe(name)
    cells = {"state": log.states, "next_state": log.states, "expert": log.experts, "action": log.actions}
    for column, names in cells.items():
        new[column] = np.array([*map(safe, names), None], dtype=object)[getattr(log, column)]
        recoded = column.removeprefix("next_") in checked.recode
        new[f"{column}_stays"] = (getattr(checked.log, column)[log.number] >= 0) & (not recoded)
    columns = []
    for column in scan.types:
        cell = f"nullif(r.{quoted(column)}, '')" if scan.is_csv else f"r.{quoted(column)}"
        if column == "episode" and later.size:
            cell = "coalesce(n.episode, r.episode::VARCHAR)"
        elif column in cells and not (log.vector and "state" in column) and not new[f"{column}_stays"].all():
            cell = f"CASE WHEN n.{column}_stays THEN r.{column}::VARCHAR ELSE n.{column} END"
        if scan.is_csv:  # what a spreadsheet would run gets ' before it, which reading takes away again
            runs = f"regexp_matches(cell, {text('^' + FORMULA.pattern[2:])}) AND try_cast(cell AS DOUBLE) IS NULL"
            mark = text("'")
            cell = f"(SELECT CASE WHEN {runs} THEN {mark} || cell ELSE cell END FROM (SELECT {cell} AS cell))"
        columns.append(f"{cell} AS {quoted(safe(column))}")
    draft = path.with_name(f".unfinished-{path.name}")
    with connect() as database:
        database.execute("SET threads = 1")  # rows are numbered in the order of the file
        database.register("given", new.astype(dict.fromkeys(("episode", *cells), object)))
        rows = f"(SELECT *, row_number() OVER () - 1 AS place_in_table FROM {scan.relation})"
        query = f"SELECT {', '.join(columns)} FROM {rows} r JOIN given n USING (place_in_table) ORDER BY place_in_table"
        kind = "FORMAT csv, HEADER true" if scan.is_csv else "FORMAT parquet"
        try:
            database.execute(f"COPY ({query}) TO {text(str(draft.absolute()))} ({kind})")
            os.replace(draft, path)
        except (duckdb.Error, OSError) as error:
            why = os.strerror(errno.ENOSPC) if "space left" in str(error) else str(error).splitlines()[0].partition(": ")[2]
            raise OSError(f"{path} could not be written: {why or error}. Choose another place, or free space there") from error
        finally:
            draft.unlink(missing_ok=True)


def _findings(log: Log, mdp: MDP | None, believed: bool) -> list[Issue]:
    """Return all that is wrong with a log, and what is worth knowing."""
    findings = [_breach(log, rule, rows) for rule, rows in breaches(log)]
    if log.vector:
        return findings
    rows = log.sorted
    findings += [_ends(rows, mdp), *_alike(log), *nothing_shared(_by_file(log))]
    decisions = _decisions(rows)
    if len(decisions):
        findings += [_single(decisions, mdp), *_chance(decisions, mdp)]
        findings += [] if mdp is None else _against(rows, mdp, believed)
    return [finding for finding in findings if finding.count]


def _breach(log: Log, rule: Rule, rows: Ints) -> Issue:
    """Return the finding that these rows break a rule."""
    state = f"columns {', '.join(log.vector)}" if log.vector else "column state"
    return _at(rule.kind, rows, rule.noun, rule.what.replace("column state", state), rule.remedy)


def _at(kind: str, rows: Ints, noun: str, what: str, remedy: str) -> Issue:
    """Return a finding about rows of the file; `noun` names one of them."""
    number = f"There is 1 {noun}" if rows.size == 1 else f"There are {rows.size:,} {noun}s"
    places = tuple(np.sort(rows)[:PLACES].tolist())
    return Issue(kind, f"{number} {what}.", _sentence(remedy), int(rows.size), True, rows=places)


def _sentence(remedy: str) -> str:
    """Return the end of a sentence as one of its own."""
    words = remedy.removeprefix(": ")
    return capital(words) + "." * bool(words and not words.endswith("…"))


def _ends(rows: Log, mdp: MDP | None) -> Issue:
    """Return the finding that episodes simply stop."""
    if not rows.has_next:
        what = "There is no column next_state, so nothing says where actions lead."
        remedy = "Add it, or give the transitions; if all episodes simply stop, say so with cut_off=True."
        return Issue("no next_state", what, remedy, int(mdp is None), True)
    cut = np.sort(rows.number[~rows.goes_on & (rows.next_state < 0)])
    what = f"{cut.size:,} of {int((~rows.goes_on).sum()):,} episodes have no next_state after the last decision."
    remedy = _sentence(CUT_OFF) if mdp is None else "With transitions, nothing is to be done."
    return Issue("cut off", what, remedy, cut.size, mdp is None, rows=tuple(cut[:PLACES].tolist()))


def _alike(log: Log) -> list[Issue]:
    """Return labels that may be one label, spelt in two ways."""
    findings = []
    for what, names in {"expert": log.experts, "state": log.states, "action": log.actions}.items():
        said = (look_alikes(names, what) or "").partition(". ")[0]
        remedy = "If they mean the same, give them one name, in the table or with recode=."
        findings.append(Issue(f"look-alike {what}s", f"{said}.", remedy, int(bool(said)), False))
    return findings


def _by_file(log: Log) -> dict[str, dict[str, set[str]]]:
    """Return the names of actions and states in each file of a table."""
    scan = log.table.scan
    files, whose = (scan.files, scan.file_of(log.number)) if scan is not None else ((), log.number)
    labels = {"action": (log.action, log.actions), "state": (log.state, log.states)}
    return {
        file.name: {
            what: {names[code] for code in np.unique(codes[whose == i]) if code >= 0} for what, (codes, names) in labels.items()
        }
        for i, file in enumerate(files)
    }


def nothing_shared(files: Mapping[str, Mapping[str, set[str]]]) -> list[Issue]:
    """Return files of which some share no action, or no state, with any other: the same things may have other names there."""
    findings = []
    for what in ("action", "state"):
        alone = []
        for name, names in files.items():
            others = set().union(*(other[what] for key, other in files.items() if key != name))
            if names[what] and others and not names[what] & others:
                alone.append(f"{name} ({_some(in_order(names[what]))})")
        findings.append(
            Issue(
                f"no {what}s in common",
                f"These files share no {what} with any other: {_some(alone, '; ')}.",
                f"If these {what}s are the same under other names, give them one name each, in the files or with recode=.",
                len(alone),
                False,
            )
        )
    return [finding for finding in findings if finding.count]


def _counts(table: Demonstrations) -> pd.DataFrame:
    """Return how often each expert took each action in each state: `expert, state, action, count`."""
    cells = table.cells
    frame = pd.DataFrame({name: getattr(cells, name) for name in ("expert", "state", "action", "count")})
    return frame.groupby(["expert", "state", "action"], as_index=False)[["count"]].sum()


def _choices(table: Demonstrations, mdp: MDP | None) -> Ints:
    """Return how many actions each of the table's states has, `(S,)`: those that somebody took, or those of the transitions."""
    taken = _counts(table).drop_duplicates(["state", "action"])["state"].to_numpy()
    number: Ints = np.bincount(taken, minlength=len(table.states))
    if mdp is not None:
        index = {name: i for i, name in enumerate(mdp.state_names)}
        given = mdp.live.sum(axis=1)
        number = np.maximum(number, [int(given[index[name]]) if name in index else 0 for name in table.states])
    return number


def _single(table: Demonstrations, mdp: MDP | None) -> Issue:
    """Return states in which there was nothing to choose."""
    decided = np.bincount(table.moves.state, table.moves.count, minlength=len(table.states))
    single = (decided > 0) & (_choices(table, mdp) == 1)
    names = [table.states[s] for s in np.flatnonzero(single)]
    kind = "that have one action" if mdp is not None else "in which everybody took the same action"
    share = decided[single].sum() / decided.sum()
    what = f"There are states {kind} ({_some(names)}), with {share:.0%} of all decisions."
    remedy = "They say nothing about what people want. If other actions are possible there, "
    if mdp is None:
        remedy += "list where they lead (state, action, next_state, probability) and let the rest be estimated."
    else:
        remedy += "add them to the transitions."
    return Issue("one action", what, remedy, len(names), False)


def chance_p_values(table: Demonstrations, mdp: MDP | None) -> Floats:
    """Return the p-value of each expert's decisions if all actions are equally likely, `(K,)`; NaN where they are too few."""
    return _p_values(_counts(table), _choices(table, mdp), len(table.experts))


def _p_values(counts: pd.DataFrame, choices: Ints, size: int) -> Floats:
    """Return the p-values of so many experts with these counts, `expert, state, action, count`."""
    by_state = counts.assign(square=counts["count"] ** 2).groupby(["expert", "state"], as_index=False)[["count", "square"]].sum()
    owner, n, squares, a = (by_state[name].to_numpy() for name in ("expert", "count", "square", "state"))
    a = choices[a]
    owner, n, squares, a = (column[(n > 1) & (a > 1)] for column in (owner, n, squares, a))
    of_states = (a * squares / n - n, n * (a - 1.0), a - 1.0, 2 * (a - 1.0) * (1 - 1 / n))
    chi2, most, mean, variance = (np.bincount(owner, values, minlength=size) for values in of_states)
    tested = mean > 0
    p_values = np.full(tested.size, np.nan)
    shape, scale = mean[tested] ** 2 / variance[tested], variance[tested] / mean[tested]
    enough = gammaincc(shape, most[tested] / scale) < CHANCE
    p_values[tested] = np.where(enough, gammaincc(shape, chi2[tested] / scale), np.nan)
    return p_values


def _chance(table: Demonstrations, mdp: MDP | None) -> list[Issue]:
    """Return experts who may choose at random, and experts of whom even all decisions together are too few to say."""
    counts = _counts(table)
    choices = _choices(table, mdp)
    p_values = chance_p_values(table, mdp)
    alone = np.isnan(p_values)
    pooled = counts[alone[counts["expert"]]].assign(expert=0)
    together = _p_values(pooled.groupby(["expert", "state", "action"], as_index=False)[["count"]].sum(), choices, 1)[0]
    few = [name for name, lost in zip(table.experts, alone, strict=True) if lost and not together < CHANCE]
    random = [f"{name} (p = {decimals(p, 2)})" for name, p in zip(table.experts, p_values, strict=True) if p >= CHANCE]
    return [
        Issue(
            "chance",
            f"Some experts may choose at random, for all actions of a state are about equally frequent: {_some(random)}.",
            "A fit gives no discount for somebody who does no better than chance. Check that the column action holds what they "
            "chose, and the column state what they could see.",
            len(random),
            False,
        ),
        Issue(
            "few decisions",
            f"Some experts decided too seldom to distinguish their choices from chance, even all together: {_some(few)}.",
            "Collect more of their decisions in states where there is something to choose, or join states that are alike.",
            len(few),
            False,
        ),
    ]


def _against(rows: Log, mdp: MDP, believed: bool) -> list[Issue]:
    """Return what contradicts given transitions; decisions that are wrong in one way are left out of the next question."""
    findings = []
    codes: dict[str, Any] = {}
    for what, names, given, columns in (
        ("state", rows.states, mdp.state_names, ("state", "next_state")),
        ("action", rows.actions, mdp.action_names, ("action",)),
    ):
        index = {name: i for i, name in enumerate(given)}
        code = np.array([*(index.get(name, -1) for name in names), -1], dtype=np.int64)
        codes |= {column: code[getattr(rows, column)] for column in columns}
        wrong = np.any([(getattr(rows, column) >= 0) & (codes[column] < 0) for column in columns], axis=0)
        near = [(name, closest(name, given)) for name in names if name not in index]
        listed = _some([f"{name!r}, perhaps {other!r}" if other else repr(name) for name, other in near], "; ")
        said = f"The transitions do not know {what}s of the table: {listed}."
        remedy = "Names must agree letter by letter. Correct the table or the transitions."
        first = tuple(np.sort(rows.number[wrong])[:PLACES].tolist())
        findings.append(Issue(f"unknown {what}", said, remedy, len(near), True, rows=first))
    rows = replace(rows, **codes, states=mdp.state_names, actions=mdp.action_names)
    rows = rows.select((rows.state >= 0) & (rows.action >= 0))
    ended = mdp.terminal[rows.state]
    barred = ~mdp.live[rows.state, rows.action] & ~mdp.terminal[rows.state]
    ends = _some([mdp.state_names[s] for s in np.unique(rows.state[ended])])
    remedy = "if one can go on from there, say in the transitions where the actions lead; if not, leave these decisions out"
    findings.append(_at("terminal state", rows.number[ended], "decision", f"in a state where episodes end ({ends})", remedy))
    pairs = np.unique(np.stack([rows.state[barred], rows.action[barred]]), axis=1).T
    taken = _some([f"{mdp.action_names[a]} in {mdp.state_names[s]}" for s, a in pairs])
    remedy = "if it can be taken there, say in the transitions where it leads; if not, correct these rows"
    findings.append(
        _at("unavailable action", rows.number[barred], "decision", f"by an action that cannot be taken ({taken})", remedy)
    )
    decisions = _decisions(rows.select(~ended & ~barred))
    against = contradictions(decisions, mdp) if len(decisions) and not believed else []
    return findings + [Issue(one.kind, capital(one.sentence), one.remedy, one.count, one.refused) for one in against]


def _some(items: Sequence[str], comma: str = ", ") -> str:
    """Return the first of some things, and how many more there are."""
    return comma.join(items[:PLACES]) + (f"{comma}and {len(items) - PLACES:,} more" if len(items) > PLACES else "")


def _experts(table: Demonstrations, mdp: MDP | None, vector: bool) -> pd.DataFrame:
    """Return one row per expert: how much there is of them, and how likely their decisions are by chance."""
    episodes = table.by_episode
    size = len(table.experts)
    lengths = (
        pd.Series(episodes.length).groupby(episodes.expert).agg(["count", "sum", "min", "max"]).reindex(range(size), fill_value=0)
    )
    counts = _counts(table)
    of = {c: counts.drop_duplicates(["expert", c])["expert"].to_numpy() for c in ("state", "action")}
    frame = pd.DataFrame(
        {
            "expert": table.experts,
            "episodes": lengths["count"],
            "decisions": lengths["sum"],
            "shortest": lengths["min"],
            "longest": lengths["max"],
            "states": np.bincount(of["state"], minlength=size),
            "actions": np.bincount(of["action"], minlength=size),
        }
    )
    if vector:
        return frame.drop(columns="states")
    return frame.assign(chance_p=chance_p_values(table, mdp))


def _states(table: Demonstrations) -> pd.DataFrame:
    """Return one row per state, the most frequent first: how often somebody began there, came there, decided there, and what."""
    moves = table.moves
    size = len(table.states)
    led = moves.next_state >= 0
    counts = _counts(table).groupby(["state", "action"], as_index=False)[["count"]].sum()
    counts = counts.sort_values(["count", "action"], ascending=[False, True])
    words = [f"{table.actions[a]} {n:,}" for a, n in zip(counts["action"], counts["count"], strict=True)]
    taken = pd.Series(words, dtype=object).groupby(counts["state"].to_numpy()).agg(", ".join).reindex(range(size), fill_value="")
    frame = pd.DataFrame(
        {
            "state": table.states,
            "begins": table.first_states,
            "arrivals": np.bincount(moves.next_state[led], moves.count[led], minlength=size).astype(np.int64),
            "decisions": np.bincount(moves.state, moves.count, minlength=size).astype(np.int64),
            "taken": taken,
        }
    )
    order = np.argsort(-(frame["decisions"] + frame["arrivals"]).to_numpy(), kind="stable")
    return frame.iloc[order].reset_index(drop=True)


def _actions(table: Demonstrations) -> pd.DataFrame:
    """Return one row per action: how often, and in how many states."""
    counts = _counts(table)
    size = len(table.actions)
    states = np.bincount(counts.drop_duplicates(["state", "action"])["action"], minlength=size)
    decisions = np.bincount(counts["action"], counts["count"], minlength=size).astype(np.int64)
    return pd.DataFrame({"action": table.actions, "decisions": decisions, "states": states})
