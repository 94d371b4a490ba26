"""The pages of `multihorizon predict`: what people do before and after a change, side by side, and how sure that is; or the
smallest bonus with which they do something, and how they respond to others.

Of few people there is a row for each choice that changes and a pair of maps for each person; of many there are distributions. The
left map shows what was done before: arrows are the likeliest actions, and cells are coloured by how often they are visited. The
right one shows what is done after, coloured by the difference, on the same scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats
from multihorizon.files import write_all, write_csv, write_json
from multihorizon.questions.nudge import Nudge
from multihorizon.questions.whatif import BOUNDED, IDENTIFIED, NOT_BOUNDED, Prediction
from multihorizon.report.charts import (
    DIAGONAL,
    Axis,
    Badge,
    Bar,
    Beside,
    Block,
    Chart,
    Items,
    Mark,
    Page,
    PageTable,
    Panel,
    Section,
    Subheading,
    figure,
)
from multihorizon.report.maps import MOST_CELLS, Arrow, GraphMap, GridMap, graph_map, grid_map
from multihorizon.report.plots import ARROWS, new_axes
from multihorizon.report.question_pages import options_text
from multihorizon.result import package_version
from multihorizon.words import Answer, count, decimals, in_words, interval_text, percent

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


def verdict(found: Prediction) -> Answer:
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
        return Answer(question, "Yes", " ".join(reasons), "good")
    if len(none) == len(found.experts):
        return Answer(question, "No", " ".join(reasons), "bad")
    return Answer(question, "Within bounds" if not none else "For some", " ".join(reasons), "caution")


#: Ends that differ by no more are of policies that are taken as exact: there is no interval.
_EXACT = 1e-9
#: The words for what is known, from the best to the worst.
WORDS = (IDENTIFIED, BOUNDED, NOT_BOUNDED)


def largest_changes(found: Prediction) -> pd.DataFrame:
    """The rows of `to_frame()` whose choice changes, the largest first, with whether bounds are proved."""
    frame = found.to_frame()
    proved = dict(zip(found.experts, found.proved.tolist(), strict=True))
    frame["known"] = [
        ("bounded, proved" if proved[expert] else "bounded, attained") if status == BOUNDED else status
        for expert, status in zip(frame["expert"], frame["status"], strict=True)
    ]
    size = frame["change"].abs().to_numpy()
    order = np.argsort(-np.nan_to_num(size, nan=np.inf), kind="stable")
    return frame.iloc[[i for i in order if not size[i] < 5e-4]]


def _interval(low: float, high: float, digits: int = 3) -> str:
    if high <= low + _EXACT:
        return "–"
    return interval_text(low, high, lambda end: decimals(end, digits) or "–")


def change_cells(row: Any) -> dict[str, str]:
    """One row of the table of choices, by header."""
    return {
        "expert": row.expert,
        "state": row.state,
        "action": row.action,
        "before": decimals(row.before, 3) or "–",
        "after": decimals(row.after, 3) or "–",
        "interval": _interval(row.low, row.high),
        "status": row.known,
    }


def shown_outcomes(found: Prediction) -> pd.DataFrame:
    """The outcomes but for visits, which are many."""
    return found.outcomes[found.outcomes["quantity"] != "visits"]


def outcome_cells(row: Any) -> dict[str, str]:
    """One row of the table of outcomes, by header."""
    digits = 3 if row.quantity.startswith("chance") else 2
    return {
        "expert": row.expert,
        "outcome": f"{row.quantity} {row.state}".strip(),
        "before": decimals(row.before, digits) or "–",
        "after": decimals(row.after, digits) or "–",
        "interval": _interval(row.low, row.high, digits),
        "status": row.status,
    }


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
    heading = "What each of them chooses"
    if not len(changed):
        return Section(heading, ["No choice changes by more than 0.0005."])
    place = {name: k for k, name in enumerate(found.experts)}
    rows, numbers = [], []
    for row in changed.head(MOST_ROWS).itertuples():
        cells = change_cells(row)
        drawn = Bar(float(row.low), float(row.after), float(row.high))  # type: ignore[arg-type]
        numbers.append([place[str(row.expert)]])
        rows.append([*list(cells.values())[:5], decimals(float(row.change), 3), cells["interval"], drawn, cells["status"]])  # type: ignore[arg-type]
    headers = ["expert", "state", "action", "before", "after", "change", "interval", "after, 0 to 1", "status"]
    meaning = "Numbers are the probabilities of an action in a state, before and after."
    blocks: list[str | Block] = [meaning, PageTable(headers, rows[:TOP], "The largest changes", numbers[:TOP])]
    if len(rows) > TOP:
        few = f"the {MOST_ROWS} largest of {len(changed):,}" if len(changed) > MOST_ROWS else "the largest first"
        blocks.append(PageTable(headers, rows, f"Choices that change, {few}", numbers))
    return Section(heading, blocks)


def _outcomes(found: Prediction) -> Section:
    """A row for each outcome."""
    place = {name: k for k, name in enumerate(found.experts)}
    shown = shown_outcomes(found)
    cells = [outcome_cells(row) for row in shown.itertuples()]
    blocks: list[str | Block] = [OUTCOMES_MEAN]
    if cells:
        rows, numbers = [list(row.values()) for row in cells], [[place[name]] for name in shown["expert"]]
        blocks.append(PageTable(list(cells[0]), rows, "Outcomes before and after", numbers))
    return Section("What comes of it", blocks)


OUTCOMES_MEAN = (
    "A chance is that of reaching the state in an episode, and steps are those until it is first reached, where it is. Rewards "
    "are those of an episode, what is paid besides included; a discounted one counts later steps less, as the person does."
)


def changed_choices(found: Prediction) -> list[tuple[int, int]]:
    """The states and actions whose probability changes most on average over persons, at most 40."""
    size = np.where(found.change.mdp.live, np.nan_to_num(np.abs(found.after - found._before_there())).mean(axis=0), -1.0)
    order = [divmod(int(i), size.shape[1]) for i in np.argsort(-size, axis=None, kind="stable")[:40]]
    return [(s, a) for s, a in order if size[s, a] >= 5e-4]


def choice_of_many(found: Prediction, s: int, a: int) -> dict[str, str]:
    """How one choice of many persons changes, by header."""
    before, after = found._before_there()[:, s, a], found.after[:, s, a]
    low, high = np.quantile(after, [0.1, 0.9])
    return {
        "state": found.states[s],
        "action": found.actions[a],
        "before": decimals(float(before.mean()), 3) or "–",
        "after": decimals(float(after.mean()), 3) or "–",
        "80 % of persons": _interval(float(low), float(high)),
        "more": f"{int((after - before > 0.05).sum())}",
        "less": f"{int((before - after > 0.05).sum())}",
    }


def outcomes_of_many(found: Prediction) -> list[dict[str, str]]:
    """How the outcomes of many persons change, by header."""
    rows = []
    for (quantity, state), part in shown_outcomes(found).groupby(["quantity", "state"], sort=False):
        before, after = part["before"].to_numpy(float), part["after"].to_numpy(float)
        if np.isnan(after).all():
            continue
        low, high = np.nanquantile(after, [0.1, 0.9])
        digits = 3 if str(quantity).startswith("chance") else 2
        means = [
            "–" if np.isnan(values).all() else decimals(float(np.nanmean(values)), digits) or "–" for values in (before, after)
        ]
        rows.append(
            {
                "outcome": f"{quantity} {state}".strip(),
                "before": means[0],
                "after": means[1],
                "80 % of persons": _interval(float(low), float(high), digits),
                "identified": f"{int((part['status'] == IDENTIFIED).sum())} of {len(part)}",
            }
        )
    return rows


def _distributions(found: Prediction) -> Section:
    """Of many people: the choices that change most on average, before against after, and how people are spread."""
    heading, chosen = "What they choose", changed_choices(found)
    if not chosen:
        return Section(heading, ["No choice changes by more than 0.0005 on average."])
    cells = [choice_of_many(found, s, a) for s, a in chosen]
    meaning = (
        "Numbers are means over persons, where 80 % of persons are after the change, and how many choose it more or less often "
        "by over 0.05."
    )
    rows, caption = [list(row.values()) for row in cells], "The choices that change most on average"
    first = dict(reversed(chosen))  # of each state the choice that changes most
    pictures = [_scatter(found, s, first[s]) for s in list(reversed(first))[:2]]
    return Section(heading, [Beside(pictures), PageTable(list(cells[0]), rows[:TOP], caption), meaning])


def _scatter(found: Prediction, s: int, a: int) -> Chart:
    """One choice of everybody, after against before."""
    before, marks, crowded = found._before_there(), [], len(found.experts) > 60
    for k, name in enumerate(found.experts):
        low, high = float(found.low[k, s, a]), float(found.high[k, s, a])
        x, y = float(before[k, s, a]), float(found.after[k, s, a])
        if np.isnan(x + y):
            continue
        tip = f"{name}\nbefore {x:.3f}\nafter {y:.3f}\ninterval {_interval(low, high)}\n{found.status[k]}"
        marks.append(Mark(x, y, tip, [k], 2.5, up=None if crowded or np.isnan(low + high) else (low, high)))
    caption = f"{found.actions[a]} in {found.states[s]}: each dot is a person. On the line nothing changes."
    return Chart(caption, [Panel(Axis("probability before"), Axis("probability after"), marks, [DIAGONAL])])


def _outcomes_of_many(found: Prediction) -> Section:
    """Of many people: how outcomes are distributed."""
    cells = outcomes_of_many(found)
    table = [PageTable(list(cells[0]), [list(row.values()) for row in cells], "Outcomes, means over persons")] if cells else []
    return Section("What comes of it", [OUTCOMES_MEAN, *table])


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
        lines = [f"state {name}", f"visits {decimals(visited[s], 2) or 'unknown'}, then {decimals(visits[s], 2) or 'unknown'}"]
        for a in np.flatnonzero(mdp.live[s]):
            lines.append(f"{found.actions[a]} {decimals(old[s, a], 3) or 'unknown'}, then {decimals(new[s, a], 3)}")
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
    cells = [nudge_cells(found, k) for k in range(len(found.experts))]
    rows, numbers = [list(row.values()) for row in cells], [[k] for k in range(len(cells))]
    line = "the dotted line is the chance that is asked for"
    caption = f"How the chance grows with the bonus; {line}, and a dot the bonus that is needed, with its interval."
    if len(found.experts) > FEW:
        caption = f"How the chance grows with the bonus, one curve for each person; {line}."
    picture = figure(found.plot(new_axes(7.0, 4.2)), caption)
    table = PageTable(list(cells[0]), rows, "The smallest bonus that is enough", numbers)
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


def nudge_cells(found: Nudge, k: int) -> dict[str, str]:
    """One row of the table of bonuses, by header."""
    bonus = {"already": "0", "infinite": "none is enough", "not found": "not found"}.get(
        found.answers[k]
    ) or f"{found.bonus[k]:.3g}"
    low, high = float(found.low[k]), float(found.high[k])
    return {
        "expert": found.experts[k],
        "discount": decimals(float(found.discounts[k]), 3) or "–",
        "without": percent(float(found.before[k])),
        "bonus": bonus,
        "interval": interval_text(low, high, lambda end: f"{end:.3g}"),
        "status": found.status[k],
    }
