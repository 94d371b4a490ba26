"""Transitions from the table itself, and the table checked against given ones.

*Estimated.* With `n(s,a,t)` the logged moves from s to t under a, and `q(t|s)` the share of t among all moves from s,

    T̂(t|s,a) = (n(s,a,t) + α q(t|s)) / (n(s,a) + α).

The α added moves go where moves from s usually go, whatever the action; a larger α makes the actions of a state more alike. By
default α is one half, and 0 where no action ever led from one state to two places in a table with at least 60 moves that
could have shown it. The covariance of the row is that of `n(s,a)` independent moves, shrunk as the row is:

    Cov T̂(·|s,a) = (diag(p) − p p') n / (n + α)²,   p = T̂(·|s,a),   n = n(s,a),

so `MDP.sample_sizes` is `(n + α)² / n`. The error of q is left out: it has the small weight α / (n + α).

*Durations* are estimated where decisions have time stamps. Times are those of a move (s,a,s'), unless they do not depend on where
it leads: as many moves as possible share one distribution, which is then known better, and a pattern that is not there is not
taken for one. In turn, times are compared between the next states of (s,a), the states of an action, and actions. Ranks are taken
within what might be one, `H = (N − 1) Σ_g n_g (r̄_g − r̄)² / Σ (r − r̄)²`, whose sum over all such is about chi-squared with
`Σ (groups − 1)` degrees of freedom (Kruskal and Wallis, 1952); and again with `|r − r̄|` in place of r, to see another spread.
Where neither rejects (2.5% each), the moves share their times. With fewer than 60 moves that could have shown another time than
the first of their kind, each has times of its own. The share of τ among n times is then smoothed as T̂ is, by q(τ|s,a), so that a
move that was seen once may last as long as others; α is 0 where no move ever took two times.

A state in which nobody decided is terminal: episodes ended there. The initial distribution is the share of each state among the
episodes' first ones.

*Actions nobody took.* Nothing in the table says where such an action leads, and no other state can stand in: "down" may mean
something else there. So it counts as unavailable, and a fit learns nothing from the fact that nobody took it. `untaken_actions`
lists them. Where the user knows where they lead, `known` supplies those rows, and avoiding them counts as evidence.

*Given.* A logged move of probability 0 contradicts the transitions; `impossible_moves` lists them. Moves may also be possible and
yet contradict them, as where two actions have changed places; `unlikely_moves` tests that. Of the n moves by one action in one
state, n_t led to t, which has probability p_t, among k possible ones. Two tests share one level:

* of each row, the exact binomial chance of n_t or more moves to t, times k because t is the worst, and times the number of rows;
* of all rows together, `x = Σ n_t log(n_t / (n p_t))`. Its moment generating function is below that of a gamma variable of shape
  `d = Σ (k − 1)` (Agrawal, Finite-sample concentration of the multinomial in relative entropy, 2020), so a value x > d has at
  most the chance `e^(d−x) (x/d)^d`.

Neither is an approximation for many moves, so rows with few moves need no rule of their own. A contradiction is decisive, and
refused, where a tenth of the moves of a row, or of all, went elsewhere. Smaller ones are a remark: no model of a task is exact,
and in a large table every error shows. Where the table is right and the record of `next_state` is not, the user can leave that
column out.

A state that the transitions go on from, in which every episode that came by has stopped, contradicts them too. Stops are a share
q of the visits to all states; the chance that all of m visits are stops is about `q^m`. With fewer than five visits nothing is
said: a record may be cut off anywhere once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import bdtrc, chdtrc

from multihorizon.checks import SMOOTHING, Bools, Floats, Ints, as_floats, positions
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.reading import in_order
from multihorizon.data.rules import CUT_OFF, TIME_UNITS, Decision, TableError
from multihorizon.horizon import Horizon
from multihorizon.mdp import MDP, Durations
from multihorizon.words import count, significant

#: Moves contradict given transitions where their chance is smaller than this, over all tests of a table. It is small because a
#: contradiction stops the work.
CONTRADICTED = 0.001
#: So many moves could have led elsewhere, or taken another time, than the first of their kind: if none did, fewer than 5% do.
ENOUGH_REPEATED = 60


def estimate_mdp(demonstrations: Demonstrations, smoothing: float | None = None, known: MDP | None = None) -> MDP:
    """Return the MDP of a table with `next_state`, under the table's names for states and actions.

    Args:
        demonstrations: decisions with their next states; where episodes may be cut off, last decisions may lack theirs.
        smoothing: α ≥ 0; None takes the default above.
        known: transitions that need no estimating. Each action that is available in a state that is not terminal there keeps its
            row; all other rows are estimated. It may name states and actions that the table does not.

    Returns:
        An MDP whose `sample_sizes` are the numbers of observed moves of each row. Where decisions have time stamps, moves take
        as long as they took in the table (`observed_durations`).

    Raises:
        ValueError: where a next state is missing, or every state is one in which nobody decided.

    Example:
        >>> from multihorizon.domains import cliff
        >>> table = Demonstrations.simulate(cliff().mdp, cliff().soft_experts(), episodes=200)
        >>> estimate_mdp(table).n_states
        12
    """
    if smoothing is not None and not as_floats(smoothing, "smoothing") >= 0:
        raise ValueError(f"smoothing must be at least 0, got {smoothing}")
    if known is not None and known.durations is not None:
        raise ValueError(
            "known transitions must come without durations where others are estimated: time stamps say how long moves take"
        )
    states, actions = demonstrations.states, demonstrations.actions
    if known is not None:
        states, actions = in_order({*states, *known.state_names}), in_order({*actions, *known.action_names})
    n = len(states)
    logged = demonstrations.moves
    place = positions(demonstrations.states, states, "state")
    state, arrived = place[logged.state], place[logged.next_state]
    rows = positions(demonstrations.actions, actions, "action")[logged.action] * n + state
    given, is_given = _given_rows(known, states, actions)
    _require_next(demonstrations, ~is_given[rows])
    known_next = logged.next_state >= 0
    moves = _counts(rows[known_next], arrived[known_next], logged.count[known_next], (len(actions) * n, n))
    pooled = _counts(state[known_next], arrived[known_next], logged.count[known_next], (n, n))
    taken = moves.sum(axis=1)
    alpha = default_smoothing(moves) if smoothing is None else float(smoothing)
    estimated = (taken > 0) & ~is_given
    stacked = sp.csr_array(given + sp.diags_array(1.0 * estimated) @ _smoothed(moves, pooled, alpha))
    available = (estimated | is_given).reshape(len(actions), n).T
    begun = np.bincount(place[: len(demonstrations.states)], demonstrations.first_states, minlength=n)
    if (available.any(axis=1) & (begun > 0)).any():  # where nobody knows what any action leads to, decisions are left out
        begun = np.where(available.any(axis=1), begun, 0)
    mdp = MDP(
        [stacked[a * n : (a + 1) * n] for a in range(len(actions))],
        initial=begun / begun.sum(),
        terminal=~available.any(axis=1),
        available=available,
        state_names=states,
        action_names=actions,
        sample_sizes=np.where(estimated, (taken + alpha) ** 2 / np.maximum(taken, 1.0), np.inf),
    )
    return mdp if demonstrations.times is None else mdp.lasting(observed_durations(demonstrations, mdp, smoothing))


def observed_durations(demonstrations: Demonstrations, mdp: MDP, smoothing: float | None = None) -> Durations | None:
    """Return how long the moves of a task took in a table with time stamps; None for a table without.

    Each move, from a state by an action to a next state, takes as long as it took in the table, each of its times with the same
    probability; moves whose times are alike share them. A move whose time nobody saw takes as long as others from the same state
    by the same action, else as others by the same action, else as all. More than a hundred distinct times are put together into
    a hundred groups of neighbours, which take their mean. `smoothing` is that of `estimate_mdp`, for times.

    Example:
        >>> rows = pd.DataFrame({"expert": "ann", "episode": 0, "step": [0, 1], "state": ["a", "b"], "action": "go"})
        >>> rows = rows.assign(next_state=["b", "c"], time=[0.0, 2.5], next_time=[2.5, 3.5])
        >>> table = Demonstrations.from_frame(rows, time="time")
        >>> observed_durations(table, estimate_mdp(table)).times.tolist()
        [2.5, 1.0]
    """
    if demonstrations.times is None:
        return None
    table, times = demonstrations.rows, demonstrations.times
    states, actions = demonstrations.match(mdp)
    seen = np.flatnonzero((table.next_state >= 0) & np.isfinite(times.over))
    if not seen.size:
        raise ValueError(
            f"{demonstrations.name} must say how long some move took, got no episode of two decisions and no column "
            f"next_{times.column}"
        )
    n = mdp.n_states
    lasted = _without_rounding((times.over - times.begun)[seen])
    row = actions[table.action[seen]] * n + states[table.state[seen]]
    origin = np.repeat(np.arange(mdp.stacked.shape[0]), np.diff(mdp.stacked.indptr))
    after = states[table.next_state[seen]]
    column = mdp.stacked.indices.astype(np.int64)
    levels = ((row * n + after, origin * n + column), (row, origin), (row // n, origin // n), (0 * row, 0 * origin))
    level = _level_of_durations(lasted, [keys for keys, _ in levels])
    groups: list[dict[int, tuple[Floats, Floats]]] = []
    for keys, _ in levels[level:]:
        order = np.lexsort((lasted, keys))
        starts = np.flatnonzero(np.append(True, np.diff(keys[order]) != 0))
        parts = np.split(lasted[order], starts[1:])
        groups.append({int(key): _distinct(part) for key, part in zip(keys[order][starts], parts, strict=True)})
    alpha = 0.0 if level else _smoothing_of_durations(groups[0]) if smoothing is None else smoothing
    durations = []
    kinds = dict[tuple[int, int], int]()
    for place in zip(*(wanted.tolist() for _, wanted in levels[level:]), strict=True):
        kind = next((i, key) for i, key in enumerate(place) if key in groups[i])
        lasts, counts = groups[kind[0]][kind[1]]
        observed = counts.sum()
        number = kinds.setdefault(kind, len(kinds))
        if alpha and kind[0] == 0:
            others, shares = groups[1][place[1]]
            lasts, where = np.unique(np.concatenate([lasts, others]), return_inverse=True)
            counts = np.bincount(where, np.concatenate([counts, alpha * shares / shares.sum()])) / 1.0
        total = counts.sum()
        durations.append((lasts, counts / total, np.full(counts.size, total**2 / observed), np.full(counts.size, number)))
    pieces = [each[0].size for each in durations]
    lasts, shares, sizes, kind_of = (np.concatenate([each[i] for each in durations]) for i in range(4))
    return Durations(
        np.repeat(origin, pieces), np.repeat(column, pieces), lasts, shares, unit=times.unit, sizes=sizes, kinds=kind_of
    )


def _level_of_durations(lasted: Floats, levels: Sequence[Ints]) -> int:
    """Return the coarsest of these groupings, from fine to coarse, up to which times do not depend on anything finer."""
    if _repeated(lasted, levels[0]) < ENOUGH_REPEATED:
        return 0
    for level in range(1, len(levels)):
        if _p_unlike(lasted, levels[level - 1], levels[level]) < 0.05:
            return level - 1
    return len(levels) - 1


def _repeated(lasted: Floats, groups: Ints) -> int:
    """Return how many times could have shown another time than the first of their group."""
    return int(lasted.size - np.unique(groups).size)


def _p_unlike(lasted: Floats, fine: Ints, coarse: Ints) -> float:
    """Return, for each coarse group, the p-value of the test that its fine groups have the same times."""
    order = np.lexsort((lasted, coarse))
    lasted, fine, whole = lasted[order], fine[order], np.unique(coarse[order], return_inverse=True)[1]
    part = np.unique(fine, return_inverse=True)[1]
    many, sizes = np.bincount(whole), np.bincount(part)
    # equal times have their mean rank
    ties = np.cumsum(np.append(True, (np.diff(lasted) > 0) | (np.diff(whole) > 0))) - 1
    ranks = np.bincount(ties, np.arange(lasted.size) / 1.0)[ties] / np.bincount(ties)[ties]
    centred = ranks - (np.bincount(whole, ranks) / many)[whole]
    owner = np.zeros(sizes.size, dtype=np.int64)
    owner[part] = whole
    p_values = []
    for scores in (centred, np.abs(centred)):
        scores = scores - (np.bincount(whole, scores) / many)[whole]
        total = np.bincount(whole, scores**2)
        varies = total > 0
        between = np.bincount(owner, np.bincount(part, scores) ** 2 / sizes, minlength=many.size)
        statistic = float(((many - 1)[varies] * between[varies] / total[varies]).sum())
        freedom = float((np.bincount(owner, minlength=many.size) - 1)[varies].sum())
        p_values.append(float(chdtrc(freedom, statistic)) if freedom else 1.0)
    return min(1.0, 2 * min(p_values))


def _smoothing_of_durations(moves: dict[int, tuple[Floats, Floats]]) -> float:
    """Return α of durations: 0 where each move seems to take one time, of so many that could have shown another."""
    repeated = sum(counts.sum() - 1 for _, counts in moves.values())
    return 0.0 if repeated >= ENOUGH_REPEATED and all(times.size == 1 for times, _ in moves.values()) else SMOOTHING


def _distinct(lasted: Floats) -> tuple[Floats, Floats]:
    """Return the distinct times of sorted ones, at most a hundred, and their counts."""
    most = 100
    times, counts = np.unique(lasted, return_counts=True)
    if times.size > most:
        number = np.arange(lasted.size) * most // lasted.size
        counts = np.bincount(number)
        times = np.bincount(number, lasted) / counts
    return times, counts / 1.0


def _without_rounding(lasted: Floats) -> Floats:
    """Return the same times, of which those that differ by rounding alone are equal."""
    order = np.argsort(lasted, kind="stable")
    ordered = lasted[order]
    begins = np.append(True, np.diff(ordered) > 1e-9 * ordered[-1])
    rounded = np.empty_like(lasted)
    rounded[order] = ordered[begins][np.cumsum(begins) - 1]
    return rounded


def in_one_unit(tables: Sequence[Demonstrations]) -> list[Demonstrations]:
    """Return the same tables with time between dates counted in one unit, the one nearest to a typical move of all of them.

    The unit matters to a fit: what is paid on arrival counts in full after one unit, and discounts per second or per week crowd
    at 1 or at 0. So it follows from the moves, and no answer depends on the unit that was asked for.
    """
    timed = [table for table in tables if table.times is not None]
    units = {table.times.unit for table in timed if table.times is not None}
    if not units & TIME_UNITS.keys():
        return list(tables)
    if not units <= TIME_UNITS.keys() or len(timed) < len(tables):
        raise ValueError("time stamps of tables that are analysed together must all be dates, got others as well")
    seconds = {id(table): TIME_UNITS[table.times.unit] for table in timed if table.times is not None}
    lasted = [seconds[id(table)] * (table.times.over - table.times.begun) for table in timed if table.times is not None]
    typical = float(np.nanmedian(np.concatenate(lasted)))
    unit = min(TIME_UNITS, key=lambda name: abs(np.log(typical / TIME_UNITS[name])))
    return [replace(table.rows, times=table.times.counted(unit)) if table.times is not None else table for table in tables]


def counted_in_one_unit(discounts: float | Mapping[str, float], tables: Sequence[Demonstrations]) -> float | Mapping[str, float]:
    """Return known discounts per unit of the tables' time stamps, as discounts per unit in which `in_one_unit` counts."""
    timed = [(table.times, same.times) for table, same in zip(tables, in_one_unit(tables), strict=True)]
    asked, counted = next(((one.unit, other.unit) for one, other in timed if one is not None and other is not None), ("", ""))
    if asked == counted:
        return discounts
    units = TIME_UNITS[counted] / TIME_UNITS[asked]
    if isinstance(discounts, Mapping):
        return {name: value**units for name, value in discounts.items()}
    return float(discounts**units)


def describe_durations(demonstrations: Demonstrations, mdp: MDP) -> list[str]:
    """Return what was assumed of how long moves take, in sentences for a report."""
    if demonstrations.times is None or mdp.durations is None:
        return []
    times = demonstrations.times
    ahead = Horizon(unit=mdp.durations.unit)
    lasted = times.over - times.begun
    recorded = lasted[np.isfinite(lasted)]
    text = (
        f"Moves took {significant(recorded.min())} to {significant(recorded.max())} {ahead.many}, "
        f"{significant(recorded.mean())} on average. Discounts are per "
        f"{ahead.one}, and horizons are in {ahead.many}. What a state pays on arrival counts in full where a move takes one "
        f"{ahead.one}. How long moves take is estimated from the table too, and intervals allow for its error."
    )
    if ahead.unit:
        text += f" Time is counted in {ahead.many}, the unit nearest to a typical move, whatever unit was asked for."
    elif not 0.1 <= (typical := float(np.median(recorded))) <= 10:
        text += (
            f" A move typically takes {significant(typical)} {ahead.many}, and discounts per {ahead.one} then say "
            f"little: count time in a "
            "unit about as long as a short move."
        )
    if recorded.size < lasted.size:
        text += (
            f" When the last move ended is not recorded for {count(lasted.size - recorded.size, 'episode')}: it is taken to last "
            f"as long as others like it. A column next_{times.column} can say it."
        )
    return [text]


def default_smoothing(moves: Any) -> float:
    """Return α where the user gives none: 0 where the moves `(A·S,S)` look deterministic."""
    # Moves that could have led elsewhere than the first one of their state and action.
    repeated = float((moves.sum(axis=1) - 1).clip(min=0).sum())
    return 0.0 if repeated >= ENOUGH_REPEATED and np.diff(moves.indptr).max(initial=0) <= 1 else SMOOTHING


def untaken_actions(mdp: MDP) -> dict[str, tuple[str, ...]]:
    """Of an estimated MDP, the actions that nobody took, by state: they count as unavailable there.

    Example:
        >>> rows = [("ann", 0, 0, "x", "go", "y"), ("ann", 0, 1, "y", "stay", "z")]
        >>> columns = ["expert", "episode", "step", "state", "action", "next_state"]
        >>> untaken_actions(estimate_mdp(Demonstrations.from_frame(pd.DataFrame(rows, columns=columns))))
        {'x': ('stay',), 'y': ('go',)}
    """
    missing = ~mdp.available & ~mdp.terminal[:, None]
    return {
        mdp.state_names[s]: tuple(mdp.action_names[a] for a in np.flatnonzero(missing[s]))
        for s in np.flatnonzero(missing.any(axis=1))
    }


def describe_estimate(mdp: MDP, smoothing: float | None, demonstrations: Demonstrations | None = None) -> list[str]:
    """Return what was assumed where transitions were estimated from a table, in sentences for a report."""
    ends = [name for name, end in zip(mdp.state_names, mdp.terminal, strict=True) if end]
    if mdp.sample_sizes is None or np.isinf(mdp.sample_sizes).all():
        made = "No transitions were estimated: those that were given say where every action leads that somebody took."
    elif smoothing is None and np.diff(mdp.stacked.indptr).max() <= 1:
        made = "Transitions were taken from next_state: no action ever led from one state to two places."
    else:
        added = SMOOTHING if smoothing is None else smoothing
        made = f"Transitions were estimated from next_state, with {added:g} smoothing moves per state and action."
    sentences = [f"{made} States in which nobody decided end an episode: {_listed(ends) if ends else 'there are none'}."]
    untaken = untaken_actions(mdp)
    if untaken:
        places = [f"{', '.join(actions)} in {state}" for state, actions in untaken.items()]
        sentences.append(
            f"Nobody took {_listed(places)}. Where these actions lead is not known, so they were left out: that everybody avoids "
            "them is not counted as evidence, and rewards of places they may lead to can be far too high. If they are possible, "
            "list where they lead in a table with the columns state, action, next_state, probability, give it as transitions, "
            "and let the rest be estimated."
        )
    if demonstrations is not None and demonstrations.cut_off:
        moves = demonstrations.moves
        left_out = demonstrations.left_out(mdp)
        stopped, episodes = int(moves.count[moves.next_state < 0].sum()), int(demonstrations.episode_counts.sum())
        text = f"{stopped:,} of {episodes:,} episodes were cut off: nobody knows what followed."
        if left_out.any():
            pairs = dict.fromkeys((int(moves.state[i]), int(moves.action[i])) for i in np.flatnonzero(left_out))
            where = _listed([f"{demonstrations.actions[a]} in {demonstrations.states[s]}" for s, a in pairs])
            text += (
                f" Of their last decisions {int(moves.count[left_out].sum()):,} were left out, because nothing in the table "
                f"says where they lead: {where}. States in which nobody else decided count as the end of an episode."
            )
        sentences.append(text)
    return sentences


def require_ends(demonstrations: Demonstrations, mdp: MDP) -> None:
    """Raise where estimated transitions do not say where more than a tenth of the episodes ended: ends are often what pays."""
    if not demonstrations.cut_off:
        return
    lost = int(demonstrations.moves.count[demonstrations.left_out(mdp)].sum())
    episodes = int(demonstrations.episode_counts.sum())
    if lost > max(10, episodes / 10):
        raise ValueError(
            f"{demonstrations.name} does not say where {lost:,} of {episodes:,} episodes ended, and an end is often what pays: "
            "add the column next_state, or give the transitions"
        )


def impossible_moves(demonstrations: Demonstrations, mdp: MDP) -> pd.DataFrame:
    """Return logged moves that the MDP gives probability 0, one row each: `state, action, next_state`, count, and where first.

    Decisions without a next state are not looked at.
    """
    moves = demonstrations.moves
    wrong = _impossible(demonstrations, mdp)
    rows = [
        (
            demonstrations.states[moves.state[move]],
            demonstrations.actions[moves.action[move]],
            demonstrations.states[moves.next_state[move]],
            int(moves.count[move]),
            decision.expert,
            decision.episode,
            decision.step,
        )
        for move, decision in wrong
    ]
    return pd.DataFrame(rows, columns=["state", "action", "next_state", "count", "expert", "episode", "step"])


@dataclass(frozen=True)
class Contradiction:
    """What contradicts given transitions: in a sentence, what helps, how often, and whether a fit refuses the table for it."""

    kind: str
    sentence: str
    remedy: str
    count: int
    refused: bool = True


def contradictions(demonstrations: Demonstrations, mdp: MDP) -> list[Contradiction]:
    """Return what contradicts given transitions: moves of probability 0, unlikely moves, and endings in states that go on."""
    wrong = _impossible(demonstrations, mdp)
    seldom = _unlikely(demonstrations, mdp)
    moves = demonstrations.moves
    stopping, absorbing = endings_that_go_on(demonstrations, mdp)
    states, actions = demonstrations.states, demonstrations.actions
    listed = _listed(
        [
            f"from {states[moves.state[move]]} by {actions[moves.action[move]]} to {states[moves.next_state[move]]} ({decision})"
            for move, decision in wrong[:5]
        ],
        len(wrong),
    )
    never = f"{len(wrong)} impossible move{'s' if len(wrong) > 1 else ''}: {listed}"
    every = "every episode of the table that comes to {} stops there"
    terminal = "If episodes end there, leave out the rows of the state, which makes it terminal."
    record = " If they go on and the record stops, leave out the column next_state."
    on, ever = ", and in the transitions one goes on", ". In the transitions the state goes on for ever, and pays at each step"
    choices = (
        "Correct the transitions; or leave them out, and they are estimated from the table; or, if they are right and the "
        "record of where moves led is wrong, leave out the column next_state; or, if they are what people believe, "
        "say so with believed=True."
    )
    against = [
        Contradiction("impossible move", f"the decisions must agree with the transitions, got {never}.", choices, len(wrong)),
        Contradiction("ending", f"{every.format(_listed(stopping))}{on}.", terminal + record, len(stopping)),
        Contradiction("absorbing ending", f"{every.format(_listed(absorbing))}{ever}.", terminal, len(absorbing), False),
    ]
    if seldom is not None:
        against.insert(1, Contradiction("unlikely move", str(seldom), choices, len(seldom.rows), seldom.decisive))
    return [one for one in against if one.count]


def require_agreement(demonstrations: Demonstrations, mdp: MDP) -> list[str]:
    """Raise one sentence where the table contradicts the transitions; sentences for a report on lesser differences.

    Raises:
        TableError: for moves of probability 0, for moves that are decisively unlikely, and for states that the transitions go on
            from in which all episodes stop.
    """
    remarks = []
    for one in contradictions(demonstrations, mdp):
        if one.refused:
            raise TableError(f"{one.sentence} {one.remedy}", demonstrations.name, one.kind, beside_transitions=True)
        small = "The difference is small, so the transitions were used as they were given."
        remarks.append(f"{capital(one.sentence)} {small if one.kind == 'unlikely move' else one.remedy}")
    return remarks


def describe_belief(demonstrations: Demonstrations, mdp: MDP) -> list[str]:
    """Return a sentence for a report on transitions that people believe in: how far the record of the table contradicts them."""
    demonstrations.require_available(mdp)
    moves = demonstrations.moves
    impossible = _impossible(demonstrations, mdp)
    never = int(sum(moves.count[move] for move, _ in impossible))
    led = int(moves.count[moves.next_state >= 0].sum())
    what = f"{never:,} of {led:,} recorded moves have probability 0 in them" if led else "the table does not say where moves led"
    return [
        f"The transitions are taken as what people believe, whatever happened: {what}. They were not compared with the table."
    ]


def unlikely_moves(demonstrations: Demonstrations, mdp: MDP) -> pd.DataFrame:
    """Return the rows of given transitions, by state and action, that the logged moves contradict, the worst first.

    Returns:
        One row each, with `state, action`; `moves`, how many there are; `next_state`, where more of them led than should; its
        `observed` share and its `given` probability; `distance`, the share of moves that went elsewhere than they should; and
        `p_value`, corrected for the number of rows.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> table = Demonstrations.simulate(d.mdp, d.soft_experts(), episodes=100)
        >>> unlikely_moves(table, d.mdp).empty
        True
    """
    unlikely = _unlikely(demonstrations, mdp)
    return _tested(demonstrations, mdp).iloc[:0] if unlikely is None else unlikely.rows


@dataclass(frozen=True, eq=False)
class _Unlikely:
    """Rows that moves contradict, the worst first; how many were tested; whether that is decisive; and what may be confused."""

    rows: pd.DataFrame
    tested: int
    decisive: bool
    confused: str

    def __str__(self) -> str:
        worst = self.rows.iloc[0]
        others = (
            f" {len(self.rows):,} of {self.tested:,} pairs of state and action differ like this." if len(self.rows) > 1 else ""
        )
        return (
            f"the moves of the table contradict the transitions: in state {worst['state']!r}, {worst['action']!r} led to "
            f"{worst['next_state']!r} in {worst['observed']:.0%} of {worst['moves']:,} moves, and the transitions say "
            f"{worst['given']:.0%}.{others}{self.confused}"
        )


def _unlikely(demonstrations: Demonstrations, mdp: MDP) -> _Unlikely | None:
    """Return what the moves contradict; None where nothing."""
    rows = _tested(demonstrations, mdp)
    x = rows["relative_entropy"].sum()
    d = rows["freedom"].sum()
    together = np.exp(d - x + d * np.log(x / d)) if x > d > 0 else 1.0
    wrong = rows[rows["p_value"] < CONTRADICTED / 2]
    if wrong.empty and together >= CONTRADICTED / 2:
        return None
    spread = wrong.empty
    wrong = rows.iloc[:1] if spread else wrong
    distance = np.average(rows["distance"], weights=rows["moves"]) if spread else wrong["distance"].max()
    # The worst is the one by which most moves went astray, of those that are contradicted.
    wrong = wrong.iloc[np.argsort(-(wrong["distance"] * wrong["moves"]).to_numpy(), kind="stable")]
    columns = ["state", "action", "moves", "next_state", "observed", "given", "distance", "p_value"]
    confused = _confused(demonstrations, mdp, wrong["row"].iloc[0])
    return _Unlikely(wrong[columns].reset_index(drop=True), len(rows), bool(distance >= 0.1), confused)


def _tested(demonstrations: Demonstrations, mdp: MDP) -> pd.DataFrame:
    """Return the tests of all rows that were given and have moves, by p-value; p-values are corrected for their number."""
    row, after, counts = _given_moves(demonstrations, mdp)
    chances = _values(mdp.stacked, row, after)
    rows, place = np.unique(row, return_inverse=True)
    # A move whose end nobody knows may have led to any other next state: a record that stops where episodes end lacks just these.
    unknown = _unknown_moves(demonstrations, mdp)[rows]
    moves = np.bincount(place, counts, minlength=rows.size) + unknown
    share = counts / moves[place]
    possible = np.diff(mdp.stacked.indptr)[rows]
    p_values = np.minimum(bdtrc(counts - 1, moves[place].astype(np.int64), chances) * possible[place] * rows.size, 1.0)
    order = np.lexsort((after, -(share - chances), p_values, place))  # the worst next state of each row comes first
    worst = order[np.unique(place[order], return_index=True)[1]]
    entropy = np.bincount(place, counts * np.log(share / chances), minlength=rows.size)
    tests = pd.DataFrame(
        {
            "state": np.array(mdp.state_names, dtype=object)[rows % mdp.n_states],
            "action": np.array(mdp.action_names, dtype=object)[rows // mdp.n_states],
            "moves": moves.astype(np.int64),
            "next_state": np.array(mdp.state_names, dtype=object)[after[worst]],
            "observed": share[worst],
            "given": chances[worst],
            "distance": np.bincount(place, np.maximum(share - chances, 0.0), minlength=rows.size),
            "p_value": p_values[worst],
            "relative_entropy": np.where(unknown > 0, 0.0, entropy),
            "freedom": np.where(unknown > 0, 0.0, possible - 1.0),
            "row": rows,
        }
    )
    return tests.sort_values(["p_value", "row"], ignore_index=True)


def _given_moves(demonstrations: Demonstrations, mdp: MDP) -> tuple[Ints, Ints, Ints]:
    """Return the row a·S + s, the next state and the number of the logged moves that have a chance in rows that were given."""
    moves = demonstrations.moves
    (states, actions) = demonstrations.match(mdp)
    row = actions[moves.action] * mdp.n_states + states[moves.state]
    given = np.ones(mdp.stacked.shape[0], np.bool_) if mdp.sample_sizes is None else np.isinf(mdp.sample_sizes)
    wanted = (moves.next_state >= 0) & given[row]
    wanted[wanted] = _values(mdp.stacked, row[wanted], states[moves.next_state[wanted]]) > 0
    width = mdp.n_states
    keys, place = np.unique(row[wanted] * width + states[moves.next_state[wanted]], return_inverse=True)
    counts: Ints = np.bincount(place, moves.count[wanted], minlength=keys.size).astype(np.int64)
    return keys // width, keys % width, counts


def _unknown_moves(demonstrations: Demonstrations, mdp: MDP) -> Ints:
    """Return how many moves of each row a·S + s have no next state, `(A·S,)`."""
    moves = demonstrations.moves
    (states, actions) = demonstrations.match(mdp)
    row = actions[moves.action] * mdp.n_states + states[moves.state]
    blank = moves.next_state < 0
    return np.bincount(row[blank], moves.count[blank], minlength=mdp.stacked.shape[0]).astype(np.int64)


def _confused(demonstrations: Demonstrations, mdp: MDP, row: int) -> str:
    """Return a question, where the moves of a contradicted row are those of another action in the same state."""
    every, after, counts = _given_moves(demonstrations, mdp)
    here = every == row
    n = mdp.n_states
    rivals = []
    for action in np.flatnonzero(mdp.live[row % n]).tolist():
        chances = _values(mdp.stacked, np.full(int(here.sum()), action * n + row % n), after[here])
        with np.errstate(divide="ignore"):
            rivals.append((float(counts[here] @ np.log(chances)), action))
    best, action = max(rivals)
    taken = next(value for value, a in rivals if a == row // n)
    if best - taken < np.log(1 / CONTRADICTED):
        return ""
    return f" They agree better with its moves by {mdp.action_names[action]!r}: are two actions confused?"


def endings_that_go_on(demonstrations: Demonstrations, mdp: MDP) -> tuple[list[str], list[str]]:
    """Return states that given transitions go on from, and in which all episodes stop that come there.

    The first list holds those that lead elsewhere, where that cannot be chance; the second those that lead only to themselves.
    """
    moves = demonstrations.moves
    (place, _) = demonstrations.match(mdp)
    n = mdp.n_states
    recorded = moves.next_state >= 0
    decided = np.bincount(place[moves.state], moves.count, minlength=n)
    visits = np.bincount(place, demonstrations.first_states, minlength=n)
    visits = visits + np.bincount(place[moves.next_state[recorded]], moves.count[recorded], minlength=n)
    leaves = np.bincount(mdp.stacked.tocoo().coords[0] % n, mdp.stacked.tocoo().coords[0] % n != mdp.stacked.indices, minlength=n)
    live = ~mdp.terminal & (visits > 0)
    stops, others = live & (decided == 0), live & (decided > 0)
    share = (visits[others].sum() - decided[others].sum() + 1) / (visits[others].sum() + 2)
    certain = stops & (leaves > 0) & (visits >= 5) & (share**visits * live.sum() < CONTRADICTED)
    certain_names, absorbing = ([mdp.state_names[s] for s in np.flatnonzero(w)] for w in (certain, stops & (leaves == 0)))
    return certain_names, absorbing


def _impossible(demonstrations: Demonstrations, mdp: MDP) -> list[tuple[int, Decision]]:
    """Return the moves of probability 0, in the order in which they first occur, each with its first decision."""
    demonstrations.require_available(mdp)
    moves = demonstrations.moves
    (states, actions) = demonstrations.match(mdp)
    rows = actions[moves.action] * mdp.n_states + states[moves.state]
    recorded = moves.next_state >= 0
    chances = _values(mdp.stacked, rows, np.where(recorded, states[moves.next_state], 0))
    wrong = np.flatnonzero(recorded & (chances == 0))
    first = demonstrations.decisions_of(wrong) if wrong.size else []
    return sorted(zip(wrong.tolist(), first, strict=True), key=lambda pair: pair[1].order)


def _listed(items: list[str], size: int = 0) -> str:
    """Return the first items in words, and how many more there are of the given number."""
    listed = 5
    more = max(size, len(items)) - listed
    return "; ".join(items[:listed]) + (f"; and {more} more" if more > 0 else "")


def capital(text: str) -> str:
    """Return a text that begins a sentence."""
    return text[:1].upper() + text[1:]


def _given_rows(mdp: MDP | None, states: tuple[str, ...], actions: tuple[str, ...]) -> tuple[Any, Bools]:
    """Return the known rows at their places among the given names, `(A·S,S)`, and which they are, `(A·S,)`."""
    shape = (len(actions) * len(states), len(states))
    if mdp is None:
        return sp.csr_array(shape), np.zeros(shape[0], dtype=np.bool_)
    place, column = positions(mdp.action_names, actions, "action"), positions(mdp.state_names, states, "state")
    rows = (place[:, None] * len(states) + column).ravel()
    entries = mdp.stacked.tocoo()
    matrix = sp.csr_array((entries.data, (rows[entries.coords[0]], column[entries.coords[1]])), shape=shape)
    is_given = np.zeros(shape[0], dtype=np.bool_)
    is_given[rows] = mdp.live.T.ravel()
    return matrix, is_given


def _smoothed(moves: Any, pooled: Any, alpha: float) -> Any:
    """Return T̂ in the rows that have moves, zero in the others."""
    taken = moves.sum(axis=1)
    n_states = moves.shape[1]
    share = sp.diags_array(1 / np.maximum(pooled.sum(axis=1), 1.0)) @ pooled
    rows = np.flatnonzero(taken)
    state_of = sp.csr_array((np.ones(rows.size), (rows, rows % n_states)), shape=moves.shape)
    scale = sp.diags_array(np.where(taken > 0, 1 / (taken + alpha + (taken == 0)), 0.0))
    return scale @ (moves + alpha * (state_of @ share))


def _require_next(demonstrations: Demonstrations, needed: Bools) -> None:
    missing = (demonstrations.moves.next_state < 0) & needed
    no_column = bool((demonstrations.moves.next_state < 0).all()) and not demonstrations.cut_off
    if missing.all() or (missing.any() and no_column):
        raise TableError(
            f"{demonstrations.name} must have a column next_state to estimate transitions from, got none: "
            "add it, or give the transitions; if all episodes simply stop, say so with cut_off=True",
            demonstrations.name,
        )
    if missing.any() and not demonstrations.cut_off:
        decision = demonstrations.first(missing)[1]
        raise TableError(
            f"{decision} must have a next_state to estimate transitions from, got none{CUT_OFF}",
            demonstrations.name,
        )


def _counts(rows: Ints, columns: Ints, counts: Ints, shape: tuple[int, int]) -> Any:
    """Return how often each row moved to each column, as a CSR matrix."""
    cells, place = np.unique(rows * shape[1] + columns, return_inverse=True)
    return sp.csr_array((np.bincount(place, counts, minlength=cells.size), np.divmod(cells, shape[1])), shape=shape)


def _values(matrix: Any, rows: Ints, columns: Ints) -> Floats:
    """Return the entries of the matrix at the given places."""
    width = matrix.shape[1]
    cells = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr)) * width + matrix.indices
    order = np.argsort(cells)
    wanted = rows * width + columns
    place = order[np.minimum(np.searchsorted(cells, wanted, sorter=order), cells.size - 1)]
    values: Floats = np.where(cells[place] == wanted, matrix.data[place], 0.0)
    return values
