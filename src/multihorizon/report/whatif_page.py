"""The pages of `multihorizon predict`: what people do before and after a change, side by side, and how sure that is; or the
smallest bonus with which they do something, and how they respond to others.

Of few people there is a row for each choice that changes and a pair of maps for each person; of many there are distributions. The
left map shows what was done before: arrows are the likeliest actions, and cells are coloured by how often they are visited. The
right one shows what is done after, coloured by the difference, on the same scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.files import write_all, write_csv, write_json
from multihorizon.finding import Finding
from multihorizon.questions.whatif.nudge import Nudge
from multihorizon.questions.whatif.outcomes import BOUNDED, IDENTIFIED, NOT_BOUNDED
from multihorizon.questions.whatif.predict import Prediction
from multihorizon.report.charts import (
    DIAGONAL,
    Axis,
    Badge,
    Beside,
    Block,
    Chart,
    Items,
    Mark,
    Page,
    Panel,
    Section,
    Subheading,
    TableBlock,
    figure,
)
from multihorizon.report.maps import MOST_CELLS, Arrow, GraphMap, GridMap, graph_map, grid_map
from multihorizon.report.plots import ARROWS, new_axes
from multihorizon.report.question_pages import options_text
from multihorizon.result import package_version
from multihorizon.tables import Role, Table
from multihorizon.words import UNKNOWN, count, decimals, in_words, interval_text, percent

#: What `multihorizon predict` writes of a change, and of the smallest bonus.
WHATIF = ("whatif.json", "whatif.csv", "whatif.html")
NUDGE = ("nudge.json", "nudge.csv", "nudge.html")
#: Up to so many people have rows and maps of their own.
FEW = 12
#: How many rows a reader sees at once, and the most rows of a table; `whatif.csv` has all.
TOP, MOST_ROWS = 12, 300


def write_whatif(
    directory: Path, found: Prediction | Nudge, options: dict[str, Any], remarks: Sequence[str] = ()
) -> tuple[str, ...]:
    """Write all files of a prediction or of the smallest bonus; returns their names."""
    files, page = (WHATIF, whatif_page) if isinstance(found, Prediction) else (NUDGE, nudge_page)

    def write(draft: Path) -> None:
        content = {"kind": type(found).__name__, **found._content(), "notes": list(remarks), "options": options}
        write_json(draft / files[0], {**content, "version": package_version()})
        write_csv(found.to_frame(), draft / files[1])
        page(found, options, remarks).write(draft / files[2])  # type: ignore[arg-type]

    write_all(directory, files, write)
    return files


def verdict(found: Prediction) -> Finding:
    """How much of what follows is known, in words."""
    question = "Can it be said what they will do?"
    kinds = {kind: [name for name, own in zip(found.experts, found.status, strict=True) if own == kind] for kind in WORDS}
    known, some, none = (kinds[kind] for kind in WORDS)
    reasons = []
    if known:
        sure = bool((found.high > found.low + _EXACT).any())
        ends = f", with {percent(found.level)} intervals" if sure else ""
        everybody = f"all {len(known)}" if len(known) == len(found.experts) > 6 else in_words(known)
        reasons.append(f"Identified for {everybody}: what was seen says what follows{ends}.")
    for proved in (True, False):
        told = zip(found.experts, found.status, found.proved.tolist(), strict=True)
        names = [name for name, own, sure in told if own == BOUNDED and sure == proved]
        if names:
            how = "and it is proved that none lies outside" if proved else "which were attained: the range is at least this wide"
            reasons.append(f"Bounded for {in_words(names)}: several answers explain the same, between the given ends, {how}.")
    if none:
        reasons.append(
            f"Not bounded for {in_words(none)}: nothing that was seen says what follows, and the number is one of many."
        )
    if not some and not none:
        return Finding(question, "Yes", " ".join(reasons), "good")
    if len(none) == len(found.experts):
        return Finding(question, "No", " ".join(reasons), "bad")
    return Finding(question, "Within bounds" if not none else "For some", " ".join(reasons), "caution")


#: Ends that differ by no more are of policies that are taken as exact: there is no interval.
_EXACT = 1e-9
#: The words for what is known, from the best to the worst.
WORDS = (IDENTIFIED, BOUNDED, NOT_BOUNDED)


def largest_changes(found: Prediction, rows: int | None = None) -> Table:
    """The choices that change, the largest change first, with whether bounds are proved."""
    choices = found._tables(compute=True)[0]
    frame, proved = found.to_frame(), dict(zip(found.experts, found.proved.tolist(), strict=True))
    frame["status"] = [
        ("bounded, proved" if proved[expert] else "bounded, attained") if status == BOUNDED else status
        for expert, status in zip(frame["expert"], frame["status"], strict=True)
    ]
    size = frame["change"].abs().to_numpy()
    order = np.argsort(-np.nan_to_num(size, nan=np.inf), kind="stable")
    frame = frame.iloc[[i for i in order if not size[i] < 5e-4][:rows]]
    return replace(choices, frame=_without_exact(frame), caption="The largest changes of a choice")


def _without_exact(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows without intervals of what is taken as exact."""
    frame = frame.copy()
    frame.loc[frame["high"] <= frame["low"] + _EXACT, ["low", "high"]] = np.nan
    return frame


def outcomes_table(found: Prediction) -> Table:
    """The outcomes but for visits, which are many."""
    frame = found.outcomes[found.outcomes["quantity"] != "visits"]
    named = (frame["quantity"] + " " + frame["state"]).str.strip()
    frame = _without_exact(frame.drop(columns=["quantity", "state"]))
    frame.insert(1, "outcome", named)
    return replace(found._tables(compute=True)[1], frame=frame, caption="Outcomes before and after")


def whatif_page(found: Prediction, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """The report of a prediction."""
    answer = verdict(found)
    badge = Badge(answer.answer, "" if answer.kind == "caution" else answer.kind)
    first: list[str | Block] = [badge, answer.reasons, found.unit]
    if found.remarks:
        first.append(Items(found.remarks))
    sections = [Section("What changes", [Items(changes_in_words(found))]), Section(answer.question, first)]
    if len(found.experts) <= FEW:
        sections += [_choices(found), *_maps_of_each(found), _outcomes(found)]
    else:
        sections += [_distributions(found), *_map_of_all(found), _outcomes_of_many(found)]
    every = "whatif.csv has a row for each person, state and action, and whatif.json also has all outcomes."
    return Page(
        "What they will do after the change",
        f"{count(len(found.experts), 'person')}, {count(len(found.states), 'state')}.",
        [*sections, Section("How this was made", [*remarks, every, f"Options: {options_text(options)}."])],
        f"multihorizon {package_version()}, seed {options.get('seed', 0)}",
        experts=list(enumerate(found.experts)),
    )


def changes_in_words(found: Prediction) -> list[str]:
    """What changes, a sentence for each kind of change."""
    change, mdp, parts = found.change, found.change.mdp, list[str]()
    direct = change.pay - mdp.expect(change.arrival)
    paid = [f"{change.arrival[s]:g} on arrival in {mdp.state_names[s]}" for s in np.flatnonzero(change.arrival)]
    paid += [
        f"{direct[s, a]:g} for {mdp.action_names[a]} in {mdp.state_names[s]}" for s, a in np.argwhere(np.abs(direct) > 1e-12)
    ]
    if paid:
        parts.append(f"Paid besides: {in_words(paid)}.")
    banned = [f"{mdp.action_names[a]} in {mdp.state_names[s]}" for s, a in np.argwhere(change.forbid & mdp.live)]
    if banned:
        parts.append(f"Forbidden: {in_words(banned)}.")
    if change.moved:
        parts.append(f"The task is another one, with {count(mdp.n_states, 'state')}.")
    named = [(found.experts[k], change.discounts[k]) for k in np.flatnonzero(np.isfinite(change.discounts))]
    if named and len(named) == len(found.experts) and np.ptp([gamma for _, gamma in named]) == 0:
        parts.append(f"Everybody's discount is {named[0][1]:g}.")
    elif named:
        parts.append(f"New discounts: {in_words([f'{name} {gamma:g}' for name, gamma in named])}.")
    if change.elsewhere:
        parts.append("Episodes begin elsewhere.")
    return parts or ["Nothing changes."]


def _choices(found: Prediction) -> Section:
    """A row for each choice that changes."""
    changed = largest_changes(found)
    heading, number = "What each of them chooses", len(changed.frame)
    if not number:
        return Section(heading, ["No choice changes by more than 0.0005."])
    meaning = "Numbers are the probabilities of an action in a state, before and after."
    blocks: list[str | Block] = [meaning, _of_experts(found, changed.head(TOP))]
    if number > TOP:
        few = f"the {MOST_ROWS} largest of {number:,}" if number > MOST_ROWS else "the largest first"
        blocks.append(_of_experts(found, changed.head(MOST_ROWS, f"Choices that change, {few}")))
    return Section(heading, blocks)


def _of_experts(found: Prediction, table: Table) -> TableBlock:
    """A table with rows of experts, as a block."""
    place = {name: k for k, name in enumerate(found.experts)}
    return TableBlock(table, [[place[name]] for name in table.frame["expert"]])


def _outcomes(found: Prediction) -> Section:
    """A row for each outcome."""
    table = outcomes_table(found)
    return Section("What comes of it", [OUTCOMES_MEAN, *([_of_experts(found, table)] if len(table.frame) else [])])


OUTCOMES_MEAN = (
    "A chance is that of reaching the state in an episode, and steps are those until it is first reached, where it is. Rewards "
    "are those of an episode, what is paid besides included; a discounted one counts later steps less, as the person does."
)


def changed_choices(found: Prediction) -> list[tuple[int, int]]:
    """The states and actions whose probability changes most on average over persons, at most 40."""
    size = np.where(found.change.mdp.live, np.nan_to_num(np.abs(found.after - found._before_there())).mean(axis=0), -1.0)
    order = [divmod(int(i), size.shape[1]) for i in np.argsort(-size, axis=None, kind="stable")[:40]]
    return [(s, a) for s, a in order if size[s, a] >= 5e-4]


def choices_of_many(found: Prediction, rows: int | None = None) -> Table:
    """How the choices of many persons change, those that change most on average first."""
    content = []
    for s, a in changed_choices(found)[:rows]:
        before, after = found._before_there()[:, s, a], found.after[:, s, a]
        low, high = np.quantile(after, [0.1, 0.9])
        more, less = int((after - before > 0.05).sum()), int((before - after > 0.05).sum())
        numbers = float(before.mean()), float(after.mean()), float(low), float(high), more, less
        content.append((found.states[s], found.actions[a], *numbers))
    return _of_many(
        content, ["state", "action", "before", "after", "low", "high", "more", "less"], "The largest changes of a choice"
    )


def outcomes_of_many(found: Prediction, rows: int | None = None) -> Table:
    """How the outcomes of many persons change."""
    content, outcomes = [], found.outcomes[found.outcomes["quantity"] != "visits"]
    for (quantity, state), part in outcomes.groupby(["quantity", "state"], sort=False):
        before, after = part["before"].to_numpy(float), part["after"].to_numpy(float)
        if not np.isnan(after).all():
            low, high = np.nanquantile(after, [0.1, 0.9])
            mean = np.nan if np.isnan(before).all() else float(np.nanmean(before))
            sure = f"{int((part['status'] == IDENTIFIED).sum())} of {len(part)}"
            content.append((f"{quantity} {state}".strip(), mean, float(np.nanmean(after)), float(low), float(high), sure))
    return _of_many(content[:rows], ["outcome", "before", "after", "low", "high", "identified"], "What comes of it")


def _of_many(content: list[tuple[Any, ...]], columns: list[str], caption: str) -> Table:
    """Means over persons, and where most of them are."""
    frame = _without_exact(pd.DataFrame(content, columns=columns))
    roles: dict[str, Role] = {"before": "chance", "after": "chance"}
    return Table(frame, caption, ("after", "low", "high"), bars=False, roles=roles, headings={"low": "80 % of persons"})


def _distributions(found: Prediction) -> Section:
    """Of many people: the choices that change most on average, before against after, and how people are spread."""
    heading, chosen = "What they choose", changed_choices(found)
    if not chosen:
        return Section(heading, ["No choice changes by more than 0.0005 on average."])
    meaning = (
        "Numbers are means over persons, where 80 % of persons are after the change, and how many choose it more or less often "
        "by over 0.05."
    )
    table = replace(choices_of_many(found, TOP), caption="The choices that change most on average")
    first = dict(reversed(chosen))  # of each state the choice that changes most
    pictures = [_scatter(found, s, first[s]) for s in list(reversed(first))[:2]]
    return Section(heading, [Beside(pictures), TableBlock(table), meaning])


def _scatter(found: Prediction, s: int, a: int) -> Chart:
    """One choice of everybody, after against before."""
    before, marks, crowded = found._before_there(), [], len(found.experts) > 60
    for k, name in enumerate(found.experts):
        low, high = float(found.low[k, s, a]), float(found.high[k, s, a])
        x, y = float(before[k, s, a]), float(found.after[k, s, a])
        if np.isnan(x + y):
            continue
        interval = UNKNOWN if high <= low + _EXACT else interval_text(low, high, lambda end: decimals(end, 3))
        tip = f"{name}\nbefore {decimals(x, 3)}\nafter {decimals(y, 3)}\ninterval {interval}\n{found.status[k]}"
        marks.append(Mark(x, y, tip, [k], 2.5, up=None if crowded or np.isnan(low + high) else (low, high)))
    caption = f"{found.actions[a]} in {found.states[s]}: each dot is a person. On the line nothing changes."
    return Chart(caption, [Panel(Axis("probability before"), Axis("probability after"), marks, [DIAGONAL])])


def _outcomes_of_many(found: Prediction) -> Section:
    """Of many people: how outcomes are distributed."""
    table = replace(outcomes_of_many(found), caption="Outcomes, means over persons")
    return Section("What comes of it", [OUTCOMES_MEAN, *([TableBlock(table)] if len(table.frame) else [])])


def _maps_of_each(found: Prediction) -> list[Section]:
    """Before and after side by side, for each person."""
    blocks: list[str | Block] = []
    visits = _visits(found)
    before = found._before_there()
    for k, name in enumerate(found.experts):
        pair = _pair(found, before[k], found.after[k], visits[0][k], visits[1][k])
        blocks += [Subheading(name), Beside(pair)] if pair else []
    return [Section("On the map", blocks)] if blocks else []


def _map_of_all(found: Prediction) -> list[Section]:
    """Before and after side by side, on average over persons."""
    visits = _visits(found)
    mean = [values.mean(axis=0) for values in (found._before_there(), found.after, *visits)]
    pair = _pair(found, *mean)
    return [Section("On the map, on average", [Beside(pair)])] if pair else []


def _visits(found: Prediction) -> tuple[Floats, Floats]:
    """How often each state is visited before and after `(K,S')`; 0 where nobody comes, NaN where that is not finite."""
    place = {name: s for s, name in enumerate(found.states)}
    person = {name: k for k, name in enumerate(found.experts)}
    rows = found.outcomes[found.outcomes["quantity"] == "visits"]
    numbers = np.zeros((2, len(found.experts), len(found.states)))
    who, where = rows["expert"].map(person).to_numpy(), rows["state"].map(place).to_numpy()
    for i, column in enumerate(("before", "after")):
        numbers[i, who, where] = rows[column].to_numpy(float)
    return numbers[0], numbers[1]


def _pair(found: Prediction, old: Floats, new: Floats, visited: Floats, visits: Floats) -> list[Block]:
    """Two maps of one policy before and after `(S',A)`; none where the task is neither a grid nor small."""
    mdp = found.change.mdp
    on_grid = mdp.grid_shape is not None and ARROWS.keys() >= set(mdp.action_names)
    if mdp.n_states > MOST_CELLS:
        return []
    tips = []
    for s, name in enumerate(found.states):
        times = (decimals(values[s], 2, "unknown") for values in (visited, visits))
        lines = [f"state {name}", f"visits {', then '.join(times)}"]
        for a in np.flatnonzero(mdp.live[s]):
            lines.append(f"{found.actions[a]} {decimals(old[s, a], 3, 'unknown')}, then {decimals(new[s, a], 3)}")
        tips.append("\n".join(lines))
    scale, pair = (0.0, float(np.nan_to_num([visited, visits]).max())), list[Block]()
    for policy, values, when, colours in (
        (old, visited, "Before", "Darker cells are visited more often."),
        (new, visits - visited, "After", "Blue cells are visited more often than before, orange cells less."),
    ):
        caption, arrows = f"{when}. Arrows are the likeliest actions.", _likeliest(mdp.live, policy)
        drawn: GridMap | GraphMap | None
        if np.isnan(values).any():
            values, colours = np.zeros_like(values), "How often cells are visited is not finite."
        if on_grid:
            drawn = grid_map(mdp, values, tips, f"{caption} {colours}", arrows, scale)
        else:
            drawn = graph_map(mdp, tips, caption, arrows)
        if drawn is None:
            return []
        pair.append(drawn)
    return pair


def _likeliest(live: Any, policy: Floats) -> list[Arrow]:
    """The likeliest action of each state, and others that are nearly as likely."""
    shares = np.where(live, np.nan_to_num(policy), 0.0)
    best = shares.max(axis=1, keepdims=True)
    return [(int(s), int(a), True) for s, a in np.argwhere((shares >= 0.9 * best) & (best > 0))]


def nudge_page(found: Nudge, options: dict[str, Any], remarks: Sequence[str] = ()) -> Page:
    """The report of the smallest bonus with which people do something."""
    first, *told = found.sentences().splitlines()
    words = [line for line in told if not line.startswith("  ")]
    line = "the dotted line is the chance that is asked for"
    caption = f"How the chance grows with the bonus; {line}, and a dot the bonus that is needed, with its interval."
    if len(found.experts) > FEW:
        caption = f"How the chance grows with the bonus, one curve for each person; {line}."
    picture = figure(found.plot(new_axes(7.0, 4.2)), caption)
    table = TableBlock(bonuses(found), [[k] for k in range(len(found.experts))])
    return Page(
        "How much must be paid",
        f"{first} {count(len(found.experts), 'person')}.",
        [
            Section("Who needs how much", [Items(words), picture, table]),
            Section("How this was made", [*remarks, f"Options: {options_text(options)}."]),
        ],
        f"multihorizon {package_version()}, seed {options.get('seed', 0)}",
        experts=list(enumerate(found.experts)),
    )


def bonuses(found: Nudge, rows: int | None = None) -> Table:
    """The bonus that each needs."""
    frame = found.to_frame()
    words: dict[str, float | str] = {"already": 0.0, "infinite": "none is enough", "not found": "not found"}
    pairs = zip(found.answers, found.bonus.tolist(), strict=True)
    frame["bonus"] = np.array([words.get(answer, bonus) for answer, bonus in pairs], dtype=object)
    roles: dict[str, Role] = {"discount": "discount", "before": "share", "bonus": "amount"}
    table = Table(
        frame.head(len(frame) if rows is None else rows),
        "The smallest bonus that is enough",
        ("bonus", "low", "high"),
        bars=False,
        roles=roles,
        headings={"before": "without"},
    )
    return table.select("expert", "discount", "before", "bonus", "low", "high", "status")
