"""The inference problem: experts who act for one reward, each with a discount of their own, in one task or in several.

What is known of how one expert acts in one task is of one of four kinds:

* a policy `(S,A)` of probabilities;
* one action per state, whole numbers `(S,)`;
* a set of equally good actions per state, bool `(S,A)`;
* decision counts `(S,A)`, from demonstrations.

An expert may be observed in some states only: a policy has a row of NaN in the others, actions have −1. Nothing is assumed of
what the expert does there: the expert's own task ends in such a state, and what arrival there is worth to this expert,
`r(s) + γ V(s)`, is a reward parameter of its own, named "value of STATE to EXPERT". That it is the value of some policy is left
out, so there can only be more answers: what is identified then is identified.

A task is an MDP. Most problems have one. Where the discounts of the experts of one task cannot be identified, those of the same
experts in a variant of it (other transitions, the same reward) often can. `Problem.join` puts such problems together: an expert
of the same name in two tasks is one person with one discount, and states of the same name share their reward.

Of demonstrations a problem keeps sparse counts of decisions, one row for each person, so that there may be a million of them.
An `Expert`, whose counts are dense, is made when it is asked for. The same person may decide under several *conditions*. Then
there is one row of counts for each *cell*: a person under one combination of conditions.

A `SampledProblem` has a task that is known from samples only: logged steps between continuous states.
"""

from __future__ import annotations

import copy
from abc import ABC
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, overload

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import (
    ENDLESS_DISCOUNT,
    Bools,
    Floats,
    Ints,
    Sparse,
    as_floats,
    as_names,
    as_shape,
    first_few,
    is_frame,
    read_only,
)
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.data.steps import Steps
from multihorizon.horizon import Horizon
from multihorizon.mdp import MDP, refuse_durations
from multihorizon.planning.plan import check_policy, one_hot

Kind = Literal["policy", "actions", "action sets", "demonstrations"]


@dataclass(frozen=True, eq=False)
class Conditions:
    """What one expert decided under each of c distinct combinations of conditions, in the order of their values.

    Args:
        frame: one row for each combination and one column for each condition; a value that is not known is missing.
        counts: how often action a was taken in state s under each combination, at `[i, a·S + s]`, `(c,A·S)`.
    """

    frame: pd.DataFrame
    counts: Sparse

    def __post_init__(self) -> None:
        if len(self.frame) != self.counts.shape[0]:
            raise ValueError(
                f"conditions must have one row for each row of counts, got {len(self.frame)} and {self.counts.shape[0]}"
            )


def tell_apart(owner: Ints, conditions: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return the cells among rows `(n,)` of people and their conditions: the cell of each row, and the first row of each cell.

    Cells are in the order of people, and then of the values of their conditions; what is missing is equal and comes first.
    """
    codes = [pd.factorize(conditions[name], sort=True)[0] for name in conditions]
    order = np.lexsort((*codes[::-1], owner))
    new = np.ones(owner.size, dtype=np.bool_)
    new[1:] = np.any([np.diff(code[order]) != 0 for code in (owner, *codes)], axis=0)
    cell = np.empty(owner.size, dtype=np.int64)
    cell[order] = np.cumsum(new) - 1
    return cell, order[new]


def cells_of_episodes(table: Demonstrations, conditions: Sequence[str]) -> Ints:
    """Return the cell of each episode `(E,)`, numbered: its person, and these conditions if there are any."""
    owner = table.by_episode.expert
    return owner if table.conditions is None or not conditions else tell_apart(owner, table.conditions[[*conditions]])[0]


@dataclass(frozen=True, eq=False)
class Expert:
    """One expert in one task: a name, the MDP acted in, and the data.

    `policy` holds probabilities (kinds "policy" and "actions"), `sets` the chosen actions (kinds "actions" and "action sets",
    and policies that are deterministic), `counts` the decisions (kind "demonstrations"); the rest is None. `features` is the
    matrix F `(A·S,d)` that turns reward parameters into the expected immediate reward; None: the stacked transitions
    (one number per state, paid on arrival), and `feature_matrix` is F in both cases.
    `known_reward` `(A·S,)` is a part of the expected immediate reward that is known; None: no part.
    Where the features are paid on arrival, `arrival` `(S,d)` says how, and F is their average over next states; `known_arrival`
    `(S,)` says it of the known reward.
    `conditions` keeps the counts apart by the conditions they were made under; None where there are none.
    `table` is where the counts come from, if an expert of this name made all of them there.
    `whole` is the task with the states in which the expert was not observed, if there are such states; `mdp` ends there.
    `world` is the task in which the expert moves, where they believe in other transitions: they plan with those of `mdp`.
    The arrays are copies that cannot be written to.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> Problem(d.mdp, d.soft_experts()).experts[0].kind
        'policy'
    """

    name: str
    mdp: MDP
    kind: Kind
    policy: Floats | None = None
    sets: Bools | None = None
    counts: Floats | None = None
    features: Sparse | None = None
    arrival: Sparse | None = None
    known_reward: Floats | None = None
    known_arrival: Floats | None = None
    conditions: Conditions | None = None
    table: Demonstrations | None = field(default=None, repr=False)
    whole: MDP | None = field(default=None, repr=False)
    world: MDP | None = field(default=None, repr=False)
    feature_matrix: Sparse = field(init=False, repr=False)

    def __post_init__(self) -> None:
        table = (self.mdp.n_states, self.mdp.n_actions)
        shapes: dict[str, tuple[int, ...]] = {
            "policy": table,
            "sets": table,
            "counts": table,
            "known_reward": (table[0] * table[1],),
        }
        for data, shape in shapes.items():
            array = getattr(self, data)
            if array is not None:
                as_shape(np.asarray(array), shape, f"{data} of expert {self.name}")
                object.__setattr__(self, data, read_only(np.asarray(array)))
        object.__setattr__(self, "feature_matrix", self.mdp.stacked if self.features is None else self.features)
        field_of = {"policy": "policy", "actions": "sets", "action sets": "sets", "demonstrations": "counts"}
        if self.kind not in field_of or getattr(self, field_of[self.kind]) is None:
            expected = ", ".join(f'{data} for "{kind}"' for kind, data in field_of.items())
            raise ValueError(f"expert {self.name} must have the data of its kind ({expected}), got kind {self.kind!r} without it")
        # Experts may come from outside or from `dataclasses.replace`, so every one of them is checked.
        if self.policy is not None:
            check_policy(self.mdp, self.policy, f"policy of expert {self.name}")
        if self.sets is not None:
            _check_sets(self.mdp, self.sets, self.name)
        if self.counts is not None:
            _check_counts(self.mdp, self.counts, self.name)
        if self.conditions is not None:
            held = np.asarray(self.conditions.counts.sum(axis=0))
            if self.counts is None or held.shape != (self.counts.size,) or not np.allclose(held, self.counts.T.ravel()):
                raise ValueError(
                    f"counts under the conditions of expert {self.name} must sum to the counts of the expert, got others: "
                    "give conditions=None with new data, or conditions that fit them"
                )

    def __getstate__(self) -> dict[str, Any]:
        """Leave the table out of what other processes get."""
        return {**self.__dict__, "table": None}

    @property
    def arrival_features(self) -> Sparse | None:
        """Return what reward parameters pay on arrival, `(S,d)`; None where features belong to states and actions."""
        return sp.eye_array(self.mdp.n_states, format="csr") if self.features is None else self.arrival

    def paid(self, known_reward: Floats, known_arrival: Floats | None, features: Sparse | None) -> Expert:
        """Return the same expert with a known reward and features that suit the task; the data are not checked again."""
        made = copy.copy(self)
        matrix = self.mdp.stacked if features is None else features
        fields = {"known_reward": known_reward, "known_arrival": known_arrival, "features": features, "feature_matrix": matrix}
        for name, value in {"table": self.table, **fields}.items():
            object.__setattr__(made, name, value)
        return made

    def in_task(self, mdp: MDP) -> Expert:
        """Return the same expert in a changed task: what is paid on arrival follows the transitions."""
        return replace(
            self,
            mdp=mdp,
            features=self.features if self.arrival is None else sp.csr_array(mdp.stacked @ self.arrival),
            known_reward=self.known_reward if self.known_arrival is None else mdp.stacked @ self.known_arrival,
        )

    def at(self, discount: float) -> Expert:
        """Return the same expert in the task as it is seen at a discount (`MDP.at`): what is paid on arrival follows its
        transitions.
        """
        if self.mdp.durations is None:
            return self
        seen = self.mdp.at(discount)
        made = copy.copy(self)
        object.__setattr__(made, "mdp", seen)
        features = self.features if self.arrival is None else sp.csr_array(seen.stacked @ self.arrival)
        matrix = seen.stacked if features is None else features
        for name, value in (("table", self.table), ("features", features), ("feature_matrix", matrix)):
            object.__setattr__(made, name, value)
        return made

    def expected_reward(self, parameters: Floats) -> Floats:
        """Return the expected immediate reward `(S,A)` of reward parameters `(d,)` in this expert's MDP.

        Where moves take time it is that of the expert `at` a discount factor.
        """
        assert self.mdp.durations is None, "where moves take time, what is expected depends on the discount: use at(discount)"
        product: Floats = self.feature_matrix @ parameters
        if self.known_reward is not None:
            product = product + self.known_reward
        return product.reshape(self.mdp.n_actions, self.mdp.n_states).T

    def require_sets(self) -> Bools:
        """Return the chosen actions, bool `(S,A)`; raises for stochastic policies, demonstrations, and a reward known in part."""
        refuse_durations([self.mdp], "a linear-programming solver")
        if self.known_reward is not None:
            raise ValueError(f"expert {self.name} must have no known part of the reward for a linear-programming solver, got one")
        if self.sets is None:
            raise ValueError(
                f"expert {self.name} must be given as one action or a set of actions per state for a linear-programming solver, "
                f"got {'a stochastic policy' if self.kind == 'policy' else self.kind}"
            )
        return self.sets

    def require_policy(self) -> Floats:
        """Return the action probabilities `(S,A)`; raises for action sets and demonstrations."""
        if self.policy is None:
            raise ValueError(f"expert {self.name} must be given as a policy of probabilities for this solver, got {self.kind}")
        return self.policy


def read_expert(mdp: MDP, data: ArrayLike, name: str) -> Expert:
    """Return one expert; the kind of the data follows from its type and shape."""
    array = np.asarray(data)
    if array.dtype == np.bool_:
        return Expert(name, mdp, "action sets", sets=_check_sets(mdp, array, name))
    if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
        as_shape(array, (mdp.n_states,), f"actions of expert {name}")
        safe = np.where(mdp.terminal, 0, array)
        outside = (safe < 0) | (safe >= mdp.n_actions)
        if outside.any():
            state = int(np.argmax(outside))
            raise ValueError(
                f"actions of expert {name} must be from 0 to {mdp.n_actions - 1}, "
                f"got {int(array[state])} in state {mdp.state_names[state]}"
            )
        sets = _check_sets(mdp, one_hot(safe, mdp.n_actions) > 0, name)
        # The one action has probability 1; in terminal states, where all are chosen, all are equally frequent.
        return Expert(name, mdp, "actions", policy=sets / sets.sum(axis=1, keepdims=True), sets=sets)
    if array.ndim == 1:
        raise ValueError(
            f"expert {name} as one action per state must be whole numbers of shape ({mdp.n_states},), "
            f"got {array.dtype} of shape {array.shape}"
        )
    policy = check_policy(mdp, data, f"policy of expert {name}")
    certain = (policy == 1).any(axis=1) | mdp.terminal
    return Expert(name, mdp, "policy", policy=policy, sets=(policy == 1) | mdp.terminal[:, None] if certain.all() else None)


def _unobserved(mdp: MDP, entry: ExpertData) -> tuple[ExpertData, Bools]:
    """Return one entry with an action in every state, and the states `(S,)` in which it gave none."""
    nowhere = np.zeros(mdp.n_states, dtype=np.bool_)
    if isinstance(entry, Expert | Demonstrations):
        return entry, nowhere
    array = np.asarray(entry)
    if array.shape == mdp.live.shape and array.dtype.kind == "f":
        gaps = np.isnan(array).all(axis=1)
    elif array.shape == nowhere.shape and array.dtype.kind == "i":
        gaps = array == -1
    else:
        return entry, nowhere
    if gaps.any() and array.ndim == 2:  # in a terminal state there is nothing to observe
        array = np.where((gaps & mdp.terminal)[:, None], 1 / mdp.n_actions, array)
    gaps &= ~mdp.terminal
    if not gaps.any():
        return (array if array.ndim == 2 else entry), nowhere
    if (gaps | mdp.terminal).all():
        raise ValueError("an expert must be observed in at least one state that is not terminal, got one without")
    first = mdp.available.argmax(axis=1)
    return np.where(gaps, first, array) if array.ndim == 1 else np.where(
        gaps[:, None], one_hot(first, mdp.n_actions), array
    ), gaps


def _ending_in(mdp: MDP, states: Bools, names: Sequence[str]) -> MDP:
    """Return the same task, which ends in some more states."""
    kept = sp.diags_array(np.tile(~states, mdp.n_actions) / 1.0)
    stacked = sp.csr_array(kept @ mdp.stacked)
    initial = np.where(states, 0.0, mdp.initial)
    return MDP(
        [stacked[a * mdp.n_states : (a + 1) * mdp.n_states] for a in range(mdp.n_actions)],
        initial / initial.sum() if initial.any() else None,
        mdp.terminal | states,
        mdp.available,
        state_names=names,
        action_names=mdp.action_names,
        grid_shape=mdp.grid_shape,
        sample_sizes=mdp.sample_sizes,
        durations=mdp.durations,
    )


def _as_observed(
    experts: Sequence[Expert], gaps: Sequence[Bools], tabular: bool, parameter_names: tuple[str, ...]
) -> tuple[list[Expert], tuple[str, ...]]:
    """Return the experts in tasks that end where they were not observed, and the reward parameters with those values."""
    worth = [
        [
            f"value of {state} to {expert.name}" if gap else state
            for state, gap in zip(expert.mdp.state_names, unseen, strict=True)
        ]
        for expert, unseen in zip(experts, gaps, strict=True)
    ]
    values = tuple(
        name for names, unseen in zip(worth, gaps, strict=True) for name, gap in zip(names, unseen, strict=True) if gap
    )
    if tabular:  # a state in which nobody was observed has a value to each expert, and no reward that anything depends on
        everywhere = {name for names in worth for name in names}
        parameter_names = tuple(name for name in parameter_names if name in everywhere)
    joint = as_names([*parameter_names, *values], len(parameter_names) + len(values), "names of the reward parameters")
    column = {name: i for i, name in enumerate(joint)}
    made = []
    for expert, unseen, names in zip(experts, gaps, worth, strict=True):
        mdp = _ending_in(expert.mdp, unseen, names) if unseen.any() else expert.mdp
        live = sp.diags_array(mdp.live.T.ravel() / 1.0)
        places = np.array([column.get(name, 0) for name in names])
        if tabular:
            transitions = mdp.stacked
            arrival = sp.eye_array(mdp.n_states, format="csr")
            features, on_arrival = _placed(transitions, places, len(joint)), _placed(arrival, places, len(joint))
        else:
            # The features are paid as before, and the value of what follows comes on top.
            selected = sp.csr_array(sp.diags_array(unseen / 1.0))
            first = np.arange(len(parameter_names))
            width = len(joint)
            after = _placed(sp.csr_array(mdp.stacked @ selected), places, width)
            features = sp.csr_array(_placed(sp.csr_array(live @ expert.feature_matrix), first, width) + after)
            before = expert.arrival_features
            on_arrival = None if before is None else _placed(before, first, width) + _placed(selected, places, width)
        known_reward = None if expert.known_reward is None else live @ expert.known_reward
        whole = expert.mdp if unseen.any() else expert.whole
        made.append(replace(expert, mdp=mdp, features=features, arrival=on_arrival, known_reward=known_reward, whole=whole))
    return made, joint


def _check_sets(mdp: MDP, sets: Bools, name: str) -> Bools:
    as_shape(sets, (mdp.n_states, mdp.n_actions), f"action sets of expert {name}")
    sets = sets | mdp.terminal[:, None]
    empty = np.flatnonzero(~sets.any(axis=1))
    if empty.size:
        raise ValueError(
            f"expert {name} must choose at least one action in every state, got none in state {mdp.state_names[empty[0]]}"
        )
    barred = np.argwhere(sets & ~mdp.available)
    if barred.size:
        state, action = barred[0]
        raise ValueError(
            f"expert {name} must choose available actions, got {mdp.action_names[action]} in state {mdp.state_names[state]}"
        )
    return sets


def _check_counts(mdp: MDP, counts: Floats, name: str) -> None:
    if not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError(f"counts of expert {name} must be finite and not negative, got {counts.min()}")
    barred = np.argwhere((counts > 0) & ~mdp.available)
    if barred.size:
        state, action = barred[0]
        raise ValueError(
            f"counts of expert {name} must be of available actions, "
            f"got {mdp.action_names[action]} in state {mdp.state_names[state]}"
        )


#: What a problem takes for one expert, or, as `Demonstrations`, for several.
ExpertData = ArrayLike | Expert | Demonstrations


class AnyProblem(ABC):
    """What solving and its answer need of any problem: experts with names, and one reward for all of them with its parameters.

    `Problem` is known in full, `SampledProblem` from samples only.

    Attributes:
        names: the distinct names of the experts `(K,)`, in order of appearance.
        parameter_names: labels of the reward parameters `(d,)`: states, features, or basis functions.
        n_experts: K, the number of distinct experts and so of discounts.
        n_parameters: d, the length of the reward: the number of states, of features, or of basis functions.
    """

    names: tuple[str, ...]
    parameter_names: tuple[str, ...]
    n_experts: int
    n_parameters: int

    @property
    def horizon(self) -> Horizon:
        """Return how far ahead discounts look in these tasks; samples alone do not show that a task must end."""
        return Horizon()

    @property
    def mdps(self) -> tuple[MDP, ...]:
        """Return the distinct MDPs of the tasks; none where a task is known from samples only."""
        return ()

    @property
    def tables(self) -> tuple[Demonstrations, ...]:
        """Return the tables of decisions that the problem was made of, as far as they are known, task after task."""
        return ()


@dataclass(frozen=True, eq=False)
class CountedTask:
    """One task: the MDP, its reward, and how often cell i took action a in state s, at `[i, a·S + s]` of `counts` `(m,A·S)`.

    A cell is a person, or a person under one combination of conditions. `features` `(A·S,d)`, `arrival` `(S,d)`,
    `known_reward` `(A·S,)` and `known_arrival` `(S,)` are as in `Expert`. Cells that were not seen in the task have an empty row.
    In terminal states nobody decides anything. `tables` are those that its decisions come from, as far as they are known.
    Where decisions are counted `by_last` action, there is a column for each action, last action and state (`choices_by`). `world`
    is as in `Expert`.
    """

    mdp: MDP
    counts: Sparse
    features: Sparse | None = None
    arrival: Sparse | None = None
    known_reward: Floats | None = None
    known_arrival: Floats | None = None
    tables: tuple[Demonstrations, ...] = ()
    by_last: bool = False
    world: MDP | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Send no tables to other processes."""
        return {**self.__dict__, "tables": ()}

    @cached_property
    def pooled(self) -> Expert:
        """Return everybody's decisions as those of one expert."""
        mdp = self.mdp
        counts = np.asarray(self.counts.sum(axis=0)).reshape(mdp.n_actions, -1, mdp.n_states).sum(axis=1).T
        return Expert(
            "everybody",
            mdp,
            "demonstrations",
            counts=np.where(mdp.terminal[:, None], 0.0, counts),
            features=self.features,
            arrival=self.arrival,
            known_reward=self.known_reward,
            known_arrival=self.known_arrival,
            world=self.world,
        )

    def like(self, expert: Expert) -> CountedTask:
        """Keep the decisions, and take the MDP and the reward of an expert."""
        return replace(
            self,
            mdp=expert.mdp,
            features=expert.features,
            arrival=expert.arrival,
            known_reward=expert.known_reward,
            known_arrival=expert.known_arrival,
            world=expert.world,
        )


@dataclass(frozen=True, eq=False)
class CountedCells:
    """Decisions as sparse counts: tasks with one row for each cell, and whose the cells are.

    Args:
        tasks: each with one row of counts for every cell. Without conditions, the people are the cells.
        owner: whose each cell is, `(m,)`, a place in the names, never decreasing; only with conditions.
        conditions: one row for each cell `(m,)` and one column for each condition; a value that is not known is missing.
    """

    tasks: tuple[CountedTask, ...]
    owner: Ints | None = None
    conditions: pd.DataFrame | None = None

    def check(self, names: Sequence[str]) -> None:
        """Raise unless the cells are those of people with these names."""
        if (self.owner is None) != (self.conditions is None):
            raise ValueError("cells must have both owners and conditions, or neither, got one of them")
        if self.owner is not None and self.conditions is not None:
            cells = self.owner.size
            last = int(self.owner.max(initial=-1))
            rows = {len(self.conditions), *(task.counts.shape[0] for task in self.tasks)}
            if rows != {cells} or last >= len(names) or (np.diff(self.owner, prepend=0) < 0).any():
                raise ValueError(
                    "cells must be in the order of their people, with one owner, one row of conditions and one row of counts "
                    f"each, got {cells} owners up to {last} of {len(names)} people and {len(self.conditions)} rows of "
                    "conditions"
                )

    def rows(self, person: int) -> slice:
        """Return the rows of a person."""
        if self.owner is None:
            return slice(person, person + 1)
        return slice(*np.searchsorted(self.owner, [person, person + 1]).tolist())

    @cached_property
    def seen(self) -> tuple[Ints, Ints]:
        """Return the task and the person of each pair where the person has decisions in the task, task after task."""
        tasks, people = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for number, task in enumerate(self.tasks):
            cells = np.flatnonzero(np.diff(task.counts.indptr))
            people.append(cells if self.owner is None else np.unique(self.owner[cells]))
            tasks.append(np.full(people[-1].size, number))
        return np.concatenate(tasks), np.concatenate(people)


class _Experts(Sequence[Expert]):
    """Experts who are made of rows of counts when they are asked for.

    They are kept for the next time as long as all of them fit into some hundred megabytes.

    Args:
        names: of the people.
        cells: their decisions.
        pairs: the task and the person of each expert.
    """

    def __init__(self, names: tuple[str, ...], cells: CountedCells, pairs: tuple[Ints, Ints]) -> None:
        self._names, self._cells, self._pairs = names, cells, pairs
        # Experts are kept while their entries, and the 200 that the rest of one takes, fit into some hundred megabytes.
        rows = np.array([task.counts.shape[1] + 200 for task in cells.tasks], dtype=np.int64)
        self._keeps = bool(rows[pairs[0]].sum() <= 2**25)
        self._made: dict[int, Expert] = {}
        self._tables: list[dict[str, Demonstrations | None]] = []
        for task in cells.tasks:
            of_name: dict[str, Demonstrations | None] = {}
            for table in task.tables:
                of_name.update(dict.fromkeys(table.experts, table) | dict.fromkeys(of_name.keys() & {*table.experts}))
            self._tables.append(of_name)

    def __getstate__(self) -> dict[str, Any]:
        """Send rows to other processes, and no tables."""
        return {**self.__dict__, "_made": {}, "_tables": [{} for _ in self._tables]}

    def __len__(self) -> int:
        return self._pairs[0].size

    @overload
    def __getitem__(self, place: int) -> Expert: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[Expert, ...]: ...
    def __getitem__(self, place: int | slice) -> Expert | tuple[Expert, ...]:
        if isinstance(place, slice):
            return tuple(self[i] for i in range(*place.indices(len(self))))
        number = range(len(self))[place]
        if number in self._made:
            return self._made[number]
        expert = self._expert(int(self._pairs[0][number]), int(self._pairs[1][number]))
        if self._keeps:
            self._made[number] = expert
        return expert

    def _expert(self, number: int, person: int) -> Expert:
        """Return one person in one task."""
        task = self._cells.tasks[number]
        rows = self._cells.rows(person)
        frame = self._cells.conditions
        counts = task.counts[rows]
        conditions = None
        if frame is not None:
            decided = np.flatnonzero(np.diff(counts.indptr))
            conditions = Conditions(frame[rows].iloc[decided].reset_index(drop=True), counts[decided])
        total = np.asarray(counts.sum(axis=0)).reshape(task.mdp.n_actions, -1, task.mdp.n_states).sum(axis=1).T
        name = self._names[person]
        return replace(task.pooled, name=name, counts=total, conditions=conditions, table=self._tables[number].get(name))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Problem(AnyProblem):
    """People who act for one reward, in one task or in several. A problem is never changed; its methods make others.

    Of people given as demonstrations, sparse counts of their decisions are kept, and an `Expert` is made when it is asked for.
    Experts given as policies, actions or sets are kept as they are.

    Args:
        mdp: the decision process.
        experts: one entry per expert, each a policy `(S,A)`, actions `(S,)`, action sets bool `(S,A)`, an `Expert` in this
            MDP, or `Demonstrations`, which bring all their experts. A bare `Demonstrations` will do. Where an expert was not
            observed, a policy has a row of NaN, and actions have −1.
        names: the experts' names; by default "0", "1", …, and the table's own for demonstrations.
        features: `(A·S,d)` array or sparse matrix F; the expected immediate reward of row `a·S + s` is `F θ`. By default
            the reward is one number per state, paid on arrival: `F = T_A`.
        feature_names: labels of the d features; by default "feature 0", …
        arrival_features: instead of `features`, `(S,d)`: what each state has of each feature, earned on arrival there.
        believed: transitions that the experts believe in and plan with, where `mdp` has those that hold: an MDP, an array
            `(A,S,S)`, or a mapping of names to either; who is not named believes in `mdp`. What is paid on arrival is expected
            under the beliefs. The MDP of such an expert is the believed one, and `world` the one in which they move.

    Attributes:
        experts: one `Expert` for each expert and task, `(n,)`.
        names: the distinct names of the experts, `(K,)`, in order of appearance.
        parameter_names: labels of the reward parameters: the states, or the features.
        owner: which of the K `names` each of `experts` is, `(n,)`; 0, 1, … where there is one task.
        tabular: whether the reward is simply one number per state of one MDP, paid on arrival.

    Raises:
        ValueError: on malformed data, and for an `Expert` who acts in another MDP or was read with features that are not given.

    Example:
        >>> from multihorizon.domains import cliff
        >>> d = cliff()
        >>> Problem(d.mdp, d.soft_experts()).n_experts
        3
    """

    names: tuple[str, ...]
    parameter_names: tuple[str, ...]
    owner: tuple[int, ...]
    tabular: bool
    _given: tuple[Expert, ...] | None
    _counted: CountedCells | None
    _pairs: tuple[Ints, Ints] | None

    def __init__(
        self,
        mdp: MDP,
        experts: Demonstrations | Iterable[ExpertData],
        *,
        names: Sequence[object] | None = None,
        features: ArrayLike | Sparse | None = None,
        feature_names: Sequence[object] | None = None,
        arrival_features: ArrayLike | Sparse | None = None,
        believed: MDP | ArrayLike | Mapping[str, MDP | ArrayLike] | None = None,
    ) -> None:
        if believed is not None:
            given: dict[str, Any] = {"names": names, "features": features, "feature_names": feature_names}
            plain = Problem(mdp, experts, arrival_features=arrival_features, **given)
            self.__dict__.update(_believing(mdp, plain, believed).__dict__)
            return
        if not isinstance(experts, Demonstrations) and (is_frame(experts) or not isinstance(experts, Iterable)):
            hint = ": Demonstrations.from_frame reads it" if is_frame(experts) else ""
            raise ValueError(f"experts must be a list of expert data or Demonstrations, got {type(experts).__name__}{hint}")
        entries = [experts] if isinstance(experts, Demonstrations) else list(experts)
        matrix, arrival, parameter_names = _read_features(mdp, features, feature_names, arrival_features)
        tables = [entry for entry in entries if isinstance(entry, Demonstrations)]
        if names is None and tables and len(tables) == len(entries):
            listed = [name for table in tables for name in table.experts]
            people = as_names(listed, len(listed), "names of the experts")
            self._fill(people, parameter_names, counted=_counted(mdp, tables, matrix, arrival))
            return
        read: list[Expert] = []
        gaps: list[Bools] = []
        for position, entry in enumerate(entries):
            data, unobserved = _unobserved(mdp, entry)
            experts_of_entry = [*_read(mdp, data, position)]
            read += experts_of_entry
            gaps += [unobserved] * len(experts_of_entry)
        if matrix is None:
            for expert in read:
                if expert.features is not None:
                    raise ValueError(
                        f"expert {expert.name} was read with {expert.features.shape[1]} features, got none for this "
                        "problem: give features and feature_names, or use with_experts of the problem the expert comes from"
                    )
        labels = as_names(names if names is not None else [e.name for e in read], len(read), "names of the experts")
        named = [
            replace(expert, name=name, features=matrix, arrival=arrival, table=expert.table if name == expert.name else None)
            for expert, name in zip(read, labels, strict=True)
        ]
        if np.any(gaps):
            named, parameter_names = _as_observed(named, gaps, matrix is None, parameter_names)
        self._fill(labels, parameter_names, given=tuple(named))

    def _fill(
        self,
        names: tuple[str, ...],
        parameter_names: tuple[str, ...],
        given: tuple[Expert, ...] | None = None,
        counted: CountedCells | None = None,
        pairs: tuple[Ints, Ints] | None = None,
    ) -> None:
        if given is not None and not given:
            raise ValueError("experts must hold at least one expert, got none")
        if counted is not None:
            counted.check(names)
        fields: dict[str, object] = {"names": names, "parameter_names": parameter_names}
        fields |= {"n_experts": len(names), "n_parameters": len(parameter_names)}
        fields |= {"_given": given, "_counted": counted, "_pairs": pairs}
        if counted is not None:
            fields["owner"] = tuple((counted.seen if pairs is None else pairs)[1].tolist())
            fields["tabular"] = all(task.features is None for task in counted.tasks)
        if given is not None:
            number = {name: i for i, name in enumerate(names)}
            fields["owner"] = tuple(number[expert.name] for expert in given)
            fields["tabular"] = all(expert.features is None for expert in given)
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @classmethod
    def _of(cls, experts: Iterable[Expert], parameter_names: tuple[str, ...], names: tuple[str, ...] | None = None) -> Problem:
        """Make a problem of experts that have been read already."""
        made = cls.__new__(cls)
        every = tuple(experts)
        made._fill(tuple(dict.fromkeys(e.name for e in every)) if names is None else names, parameter_names, given=every)
        return made

    @classmethod
    def of_tasks(
        cls,
        names: tuple[str, ...],
        parameter_names: tuple[str, ...],
        tasks: Iterable[CountedTask],
        owner: Ints | None = None,
        conditions: pd.DataFrame | None = None,
        *,
        pairs: tuple[Ints, Ints] | None = None,
    ) -> Problem:
        """Make a problem of sparse counts: `tasks`, and `owner` and `conditions` of their rows as in `CountedCells`.

        `pairs` says in which task and of whom each of `experts` is; by default they are all who have decisions, task after task.
        """
        made = cls.__new__(cls)
        made._fill(names, parameter_names, counted=CountedCells(tuple(tasks), owner, conditions), pairs=pairs)
        return made

    @cached_property
    def experts(self) -> Sequence[Expert]:
        """Return one `Expert` for each expert and task, `(n,)`. Those who were counted are made when they are asked for."""
        return _Experts(self.names, self.cells, self._of_whom) if self._given is None else self._given

    @property
    def _of_whom(self) -> tuple[Ints, Ints]:
        """Return the task and the person of each expert, where they are counted."""
        return self.cells.seen if self._pairs is None else self._pairs

    @cached_property
    def cells(self) -> CountedCells:
        """Return the decisions as sparse counts; raises where an expert was not given as demonstrations."""
        return _counts_of(self) if self._counted is None else self._counted

    @property
    def tasks(self) -> tuple[CountedTask, ...]:
        """Return the tasks with the counts of all cells; raises where an expert was not given as demonstrations."""
        return self.cells.tasks

    @property
    def conditions(self) -> pd.DataFrame | None:
        """Return the conditions of each cell; None where people are the cells."""
        return self.cells.conditions

    @property
    def tables(self) -> tuple[Demonstrations, ...]:
        """Return the tables that the problem was made of, as far as they are known, task after task."""
        if self._counted is not None:
            return tuple(table for task in self._counted.tasks for table in task.tables)
        return tuple({id(e.table): e.table for e in self.experts if e.table is not None}.values())

    @cached_property
    def exemplars(self) -> tuple[Expert, ...]:
        """Return one expert of each task, which shows its MDP, its features and what is known of its reward."""
        if self._counted is not None:
            return tuple(task.pooled for task in self._counted.tasks)
        return tuple(self.experts[members[0]] for members in self.by_task())

    @property
    def mdps(self) -> tuple[MDP, ...]:
        """Return the distinct MDPs of the tasks, in order of appearance."""
        return tuple({id(one.mdp): one.mdp for one in self.exemplars}.values())

    @property
    def mdp(self) -> MDP:
        """Return the one MDP of the problem; raises ValueError where there are several tasks."""
        first, *others = self.mdps
        if others:
            raise ValueError("this needs a problem with one task, got one that joins several MDPs")
        return first

    @cached_property
    def horizon(self) -> Horizon:
        """Return how far ahead discount factors look in the tasks of this problem."""
        return Horizon.of(self.mdps)

    @property
    def largest_discount(self) -> float:
        """Return the largest discount factor to try: 1, or a little less where a state can go on for ever."""
        return ENDLESS_DISCOUNT if any(mdp.never_ends().any() for mdp in self.mdps) else 1.0

    @cached_property
    def feature_sizes(self) -> Floats:
        """Return the largest entry `(d,)` of each column of F in any task; 1 for features without entries."""
        largest: Floats = np.max([abs(one.feature_matrix).max(axis=0).toarray().ravel() for one in self.exemplars], axis=0)
        return np.where(largest > 0, largest, 1.0)

    @property
    def reward_sizes(self) -> Floats:
        """Return what a reward parameter of 1 pays at most `(d,)`: 1 on arrival in a state, or the largest of its feature."""
        return np.ones(self.n_parameters) if self.tabular else self.feature_sizes

    @property
    def by_form_alone(self) -> bool:
        """Say whether nothing but the form of its features could identify a discount: one expert, one task, no known reward."""
        return len(self.experts) == 1 and not self.tabular and self.exemplars[0].known_reward is None

    def with_experts(self, experts: Iterable[Expert], parameter_names: tuple[str, ...] | None = None) -> Problem:
        """Return the same reward parameters with other experts: some of its own, or its own with other data
        (`dataclasses.replace`).

        `parameter_names` names the features of the new experts, if they have other features.

        Example:
            >>> from multihorizon.domains import cliff
            >>> problem = Problem(cliff().mdp, cliff().soft_experts(), names=["near", "middle", "far"])
            >>> problem.with_experts(problem.experts[1:]).names
            ('middle', 'far')
        """
        changed = self._of(experts, self.parameter_names if parameter_names is None else parameter_names)
        for expert in changed.experts:
            if expert.feature_matrix.shape[1] != changed.n_parameters:
                raise ValueError(
                    f"expert {expert.name} must have the problem's {changed.n_parameters} reward parameters, "
                    f"got {expert.feature_matrix.shape[1]}"
                )
        return changed

    @classmethod
    def join(cls, *problems: Problem) -> Problem:
        """Return one problem of several tasks with one reward.

        Experts with the same name are one person with one discount factor. Without features, states with the same name have one
        reward; with features, all tasks must have the same features. Equal conditions of one person are one cell.
        """
        if not problems:
            raise ValueError("join must be given at least one problem, got none")
        parameter_names = _joint_parameters((p.tabular, p.parameter_names) for p in map(require_finite, problems))
        column = {name: i for i, name in enumerate(parameter_names)}
        placed = []
        for problem in problems:
            places = np.array([column[name] for name in problem.parameter_names])
            placed.append(problem.in_settings(partial(_in_columns, places=places, width=len(column)), parameter_names))
        if any(problem._counted is None for problem in placed):
            return cls._of([expert for problem in placed for expert in problem.experts], parameter_names)
        names = tuple(dict.fromkeys(name for problem in placed for name in problem.names))
        number = {name: i for i, name in enumerate(names)}
        parts: list[_Rows] = []
        pairs = []
        for problem in placed:
            person = np.array([number[name] for name in problem.names], dtype=np.int64)
            (task, whose) = problem._of_whom
            pairs.append((task + len(parts), person[whose]))
            cells = problem.cells
            of_cell = person if cells.owner is None else person[cells.owner]
            parts += [_Rows(one.counts, of_cell, cells.conditions) for one in cells.tasks]
        counts, owner, conditions = _aligned(len(names), parts)
        every = [task for problem in placed for task in problem.tasks]
        tasks = [replace(task, counts=rows) for task, rows in zip(every, counts, strict=True)]
        first, second = (np.concatenate(part) for part in zip(*pairs, strict=True))
        return cls.of_tasks(names, parameter_names, tasks, owner, conditions, pairs=(first, second))

    def observed_policies(self) -> Problem:
        """Return the same problem with the frequencies of decisions in place of demonstrations.

        States in which an expert decided nothing count as not observed. Problems without demonstrations are returned as they are.

        Example:
            >>> from multihorizon.domains import cliff
            >>> table = Demonstrations.simulate(cliff().mdp, cliff().soft_experts(), 50, seed=0)
            >>> Problem(cliff().mdp, table).observed_policies().experts[0].kind
            'policy'
        """

        def frequencies(expert: Expert) -> tuple[Bools, Floats, None]:
            counts = require_counts(expert)
            total = counts.sum(axis=1, keepdims=True)
            return total[:, 0] > 0, counts / np.maximum(total, 1.0), None

        return self._observed(frequencies)

    def observed_actions(self) -> Problem:
        """Return the same problem with the most frequent action of each state in place of demonstrations.

        States without decisions, and those in which several actions are the most frequent, count as not observed.
        """

        def most_frequent(expert: Expert) -> tuple[Bools, Floats, Bools]:
            counts = require_counts(expert)
            first = counts == counts.max(axis=1, keepdims=True)
            policy = one_hot(counts.argmax(axis=1), expert.mdp.n_actions)
            return (counts.sum(axis=1) > 0) & (first.sum(axis=1) == 1), policy, policy > 0

        return self._observed(most_frequent)

    def _observed(self, read: Callable[[Expert], tuple[Bools, Floats, Bools | None]]) -> Problem:
        """Return the problem with a policy and action sets in place of counts, and the states in which they are known."""
        if all(expert.counts is None for expert in self.experts):
            return self
        experts, gaps = [], []
        for expert in self.experts:
            if expert.counts is None:
                experts.append(expert)
                gaps.append(np.zeros(expert.mdp.n_states, dtype=np.bool_))
                continue
            mdp = expert.mdp
            (seen, policy, sets) = read(expert)
            uniform = mdp.available / mdp.available.sum(axis=1, keepdims=True)
            kept = seen[:, None] & ~mdp.terminal[:, None]
            sets = None if sets is None else np.where(kept, sets, mdp.available) > 0
            kind: Kind = "policy" if sets is None else "action sets"
            chosen = np.where(kept, policy, uniform) if sets is None else None
            experts.append(replace(expert, kind=kind, policy=chosen, sets=sets, counts=None, conditions=None, table=None))
            gaps.append(~seen & ~mdp.terminal)
            if not (seen & ~mdp.terminal).any():
                raise ValueError(f"expert {expert.name} must have a state with one most frequent action, got none")
        if not np.any([unseen.any() for unseen in gaps]):
            return self.with_experts(experts)
        return self._of(*_as_observed(experts, gaps, self.tabular, self.parameter_names))

    def by_task(self) -> list[list[int]]:
        """Return the places of the experts of each task: those with one MDP, one world, equal features and known rewards."""
        tasks: dict[tuple[int, int, bytes], list[int]] = {}
        prints: dict[tuple[int, int], bytes] = {}
        keys = []
        for one in self.exemplars if self._given is None else self._given:
            held = id(one.features), id(one.known_reward)
            if held not in prints:
                parts = [] if one.features is None else [one.features.indptr, one.features.indices, one.features.data]
                parts += [] if one.known_reward is None else [one.known_reward]
                prints[held] = b"|".join(np.ascontiguousarray(part).tobytes() for part in parts)
            keys.append((id(one.mdp), id(one.world), prints[held]))
        for i, task in enumerate(range(len(keys)) if self._given is not None else self._of_whom[0].tolist()):
            tasks.setdefault(keys[task], []).append(i)
        return list(tasks.values())

    def in_settings(self, change: Callable[[Expert], Expert], parameter_names: tuple[str, ...] | None = None) -> Problem:
        """Return the same people, each with the MDP, the features and the known reward that `change` gives its expert.

        `parameter_names` names the reward parameters, if they are others.
        """
        named = self.parameter_names if parameter_names is None else parameter_names
        if self._given is not None:
            return self._of(map(change, self._given), named, self.names)
        cells = self.cells
        tasks = [task.like(change(task.pooled)) for task in cells.tasks]
        return self.of_tasks(self.names, named, tasks, cells.owner, cells.conditions, pairs=self._pairs)

    def in_tasks(self, change: Callable[[MDP], MDP]) -> Problem:
        """Return the same people in changed tasks: rewards that are paid on arrival follow the transitions."""
        changed = {id(mdp): change(mdp) for mdp in self.mdps}
        if [*changed] == [*map(id, changed.values())]:
            return self
        return self.in_settings(lambda expert: expert.in_task(changed[id(expert.mdp)]))

    def with_transitions(self, fitted: Sequence[Floats]) -> Problem:
        """Return the same problem with fitted probabilities in place of estimated ones: those of each estimated task in turn."""
        estimated = [mdp for mdp in self.mdps if mdp.is_estimated]
        if [mdp.probabilities.size for mdp in estimated] != [data.size for data in fitted]:
            raise ValueError("the problem must have the estimated transitions that were fitted, got others")
        entries = {id(mdp): data for mdp, data in zip(estimated, fitted, strict=True)}
        return self.in_tasks(lambda mdp: mdp.with_probabilities(entries[id(mdp)]) if id(mdp) in entries else mdp)

    def some(self, who: Ints) -> Problem:
        """Return some of the people with all that is known of them, by their places `(k,)` in `names`, which differ."""
        names = tuple(self.names[i] for i in who)
        place = np.full(self.n_experts, -1)
        place[who] = np.arange(len(names))
        pairs = None
        if self._given is not None or self._pairs is not None:
            whose = place[np.array(self.owner, dtype=np.int64)]
            kept = np.flatnonzero(whose >= 0)
            kept = kept[np.argsort(whose[kept], kind="stable")] if (np.diff(who) < 0).any() else kept
            if self._given is not None:
                return self._of((self._given[i] for i in kept), self.parameter_names, names)
            pairs = None if self._pairs is None else (self._pairs[0][kept], whose[kept])
        rows = np.asarray(who)
        cells = self.cells
        owner, conditions = None, None
        if cells.owner is not None and cells.conditions is not None:
            start, end = (np.searchsorted(cells.owner, who, side) for side in ("left", "right"))
            rows = np.concatenate([np.arange(low, high) for low, high in zip(start, end, strict=True)]).astype(np.int64)
            owner = np.repeat(np.arange(len(names)), end - start)
            conditions = cells.conditions.iloc[rows].reset_index(drop=True)
        tasks = (replace(task, counts=task.counts[rows]) for task in cells.tasks)
        return self.of_tasks(names, self.parameter_names, tasks, owner, conditions, pairs=pairs)

    def by_person(self) -> Problem:
        """Return the same people without conditions: all decisions of a person in one row."""
        owner = self.cells.owner
        return self if owner is None else self.gathered(owner, self.n_experts, None, None)

    def gathered(self, cell: Ints, size: int, owner: Ints | None, conditions: pd.DataFrame | None) -> Problem:
        """Return the same people with other cells, `size` of them: `cell` says to which each row goes, and is −1 where it goes to
        none.

        `owner` and `conditions` are those of the new cells.
        """
        tasks = [replace(task, counts=_gathered(task.counts, cell, size)) for task in self.tasks]
        return self.of_tasks(self.names, self.parameter_names, tasks, owner, conditions)

    def by_last_action(self) -> Problem:
        """Return the same cells with decisions that are counted by the last action, too.

        Raises:
            ValueError: where the order of the decisions is not known.
        """
        tables = [task.tables[0] for task in self.tasks if len(task.tables) == 1]
        if len(tables) < len(self.tasks):
            raise ValueError("stickiness needs the order of decisions: make the problem from one table of Demonstrations a task")
        every = [np.ones(table.by_episode.expert.size, dtype=np.bool_) for table in tables]
        ordered = self.of_episodes(tables, every, by_last=True)
        mine = [float(task.counts.sum()) for task in self.tasks]
        if mine != [float(task.counts.sum()) for task in ordered.tasks]:
            raise ValueError("stickiness needs the order of decisions, but some of the problem's are in no table")
        return ordered

    def of_episodes(self, tables: Sequence[Demonstrations], chosen: Sequence[Bools], by_last: bool = False) -> Problem:
        """Return the same cells with the decisions of some episodes, `chosen` `(E,)` of each task's table.

        With `by_last` they are counted by the last action, too.

        Raises:
            ValueError: where the tables are not one for each task.
        """
        if len(tables) != len(self.tasks):
            raise ValueError(f"there must be one table for each of {len(self.tasks)} tasks, got {len(tables)}")
        place = {name: i for i, name in enumerate(self.names)}
        parts = []
        for task, table, kept in zip(self.tasks, tables, chosen, strict=True):
            under = pd.DataFrame(index=range(kept.size)) if table.conditions is None else table.conditions
            counts, owner, frame = _by_condition(task.mdp, table, under, kept, by_last)
            owner = np.array([place.get(name, -1) for name in table.experts], dtype=np.int64)[owner]
            here = owner >= 0
            frame = frame[here].reset_index(drop=True)
            parts.append(_Rows(counts[here], owner[here], None if self.conditions is None else frame))
        rows, cell_owner, conditions = _aligned(self.n_experts, parts)
        tasks = [replace(task, counts=counts, by_last=by_last) for task, counts in zip(self.tasks, rows, strict=True)]
        return self.of_tasks(self.names, self.parameter_names, tasks, cell_owner, conditions)

    def __repr__(self) -> str:
        if not self.exemplars:
            return f"Problem(experts {first_few(self.names)})"
        return f"Problem({self.exemplars[0].mdp!r}, experts {first_few(self.names)})"


def _believing(mdp: MDP, problem: Problem, believed: Any) -> Problem:
    """Return the same experts, who plan with the transitions that they believe in, and move with those of the MDP."""
    given = believed if isinstance(believed, Mapping) else dict.fromkeys(problem.names, believed)
    strange = [name for name in given if name not in problem.names]
    if strange:
        raise ValueError(f"believed must name experts ({first_few(problem.names)}), got {strange[0]!r}")
    if any(expert.mdp is not mdp for expert in problem.exemplars):
        raise ValueError("believed transitions need experts who are observed in every state, got gaps")
    beliefs = {id(each): _belief(mdp, each) for each in given.values()}

    def believing(expert: Expert, key: int) -> Expert:
        return replace(expert.in_task(beliefs[key]), world=mdp) if key else expert

    keys = [id(given[name]) if name in given else 0 for name in problem.names]
    if problem._counted is None:
        experts = (believing(expert, keys[owner]) for expert, owner in zip(problem.experts, problem.owner, strict=True))
        return problem._of(experts, problem.parameter_names, problem.names)
    (task,), cells = problem.cells.tasks, problem.cells
    of_row = np.array(keys, dtype=np.int64)[slice(None) if cells.owner is None else cells.owner]
    tasks = []
    for key in dict.fromkeys(keys):
        counts = sp.csr_array(sp.diags_array((of_row == key) / 1.0) @ task.counts)
        counts.eliminate_zeros()
        tasks.append(replace(task, counts=counts).like(believing(task.pooled, key)))
    return Problem.of_tasks(problem.names, problem.parameter_names, tasks, cells.owner, cells.conditions)


def _belief(mdp: MDP, believed: Any) -> MDP:
    """Return transitions that somebody believes in as an MDP with the states, actions and starts of another one."""
    labels: dict[str, Any] = {"state_names": mdp.state_names, "action_names": mdp.action_names}
    belief = believed if isinstance(believed, MDP) else MDP(believed, mdp.initial, mdp.terminal, mdp.available, **labels)
    for what in ("state_names", "action_names", "terminal", "available"):
        if not np.array_equal(getattr(belief, what), getattr(mdp, what)):
            said = {"terminal": "states that end an episode", "available": "available actions"}.get(what, what.replace("_", " "))
            raise ValueError(f"believed transitions must have the {said} of the task, in the same order, got others")
    if belief.is_estimated or belief.durations is not None or mdp.durations is not None:
        raise ValueError("believed transitions must be known probabilities of moves that take no time, got others")
    return belief.starting(mdp.initial)


def refuse_beliefs(experts: Iterable[Expert], what: str) -> None:
    """Raise where experts believe in other transitions than hold, which `what` does not tell apart."""
    if any(expert.world is not None for expert in experts):
        raise ValueError(f"{what} needs experts who believe in the transitions that hold, got other beliefs")


def _in_columns(expert: Expert, places: Ints, width: int) -> Expert:
    """Return the same expert with features at these places among the joint parameters."""
    arrival = expert.arrival_features
    arrival = None if arrival is None else _placed(arrival, places, width)
    return replace(expert, features=_placed(expert.feature_matrix, places, width), arrival=arrival)


def _counted(mdp: MDP, tables: Sequence[Demonstrations], features: Sparse | None, arrival: Sparse | None) -> CountedCells:
    """Return the decisions of the people of tables in one task, in their order; raises for a person without decisions."""
    parts = []
    first = 0
    for table in tables:
        counts = table.choices(mdp)
        owner = np.arange(len(table.experts))
        conditions = None
        idle = np.flatnonzero(counts.sum(axis=1) == 0)
        if idle.size:
            raise without_decisions(table.experts[idle[0]])
        if table.conditions is not None:
            counts, owner, conditions = _by_condition(mdp, table, table.conditions)
        parts.append(_Rows(counts, owner + first, conditions))
        first += len(table.experts)
    if len(parts) == 1:
        only = parts[0]
        owner_of_cells = None if only.conditions is None else only.owner
        return CountedCells(
            (CountedTask(mdp, only.counts, features, arrival, tables=tuple(tables)),), owner_of_cells, only.conditions
        )
    rows, cell_owner, frame = _aligned(first, parts)
    task = CountedTask(mdp, sp.csr_array(sum(rows)), features, arrival, tables=tuple(tables))
    return CountedCells((task,), cell_owner, frame)


def _counts_of(problem: Problem) -> CountedCells:
    """Return the decisions of experts who were given one by one, as sparse counts; raises where one has none."""
    parts = []
    firsts = []
    for members in problem.by_task():
        experts = [problem.experts[i] for i in members]
        every = [require_counts(expert) for expert in experts]
        counts = [
            sp.csr_array(dense.T.reshape(1, -1)) if expert.conditions is None else expert.conditions.counts
            for dense, expert in zip(every, experts, strict=True)
        ]
        sizes = [rows.shape[0] for rows in counts]
        frames = [None if expert.conditions is None else expert.conditions.frame for expert in experts]
        whose = np.repeat([problem.owner[i] for i in members], sizes)
        tables = tuple({id(e.table): e.table for e in experts if e.table is not None}.values())
        firsts.append((experts[0], tables))
        parts.append(_Rows(sp.csr_array(sp.vstack(counts)), whose, _stacked(frames, sizes)))
    rows, owner, conditions = _aligned(problem.n_experts, parts)
    tasks = (
        CountedTask(one.mdp, counts, one.features, one.arrival, one.known_reward, one.known_arrival, tables, world=one.world)
        for (one, tables), counts in zip(firsts, rows, strict=True)
    )
    return CountedCells(tuple(tasks), owner, conditions)


def _read(mdp: MDP, entry: ExpertData, position: int) -> Iterable[Expert]:
    if isinstance(entry, Expert):
        if entry.mdp is not mdp:
            raise ValueError(
                f"expert {entry.name} must act in the problem's own MDP, got one of {entry.mdp!r}: "
                "hand its data over for this MDP, or put the two tasks together with Problem.join"
            )
        return [entry]
    if isinstance(entry, Demonstrations):
        return Problem(mdp, entry).experts
    return [read_expert(mdp, entry, str(position))]


def _read_features(
    mdp: MDP, features: ArrayLike | Sparse | None, names: Sequence[object] | None, arrival_features: ArrayLike | Sparse | None
) -> tuple[Sparse | None, Sparse | None, tuple[str, ...]]:
    """Return the features F `(A·S,d)`, what they are on arrival `(S,d)`, both None where there are none, and the reward's
    parameters.
    """
    if features is not None and arrival_features is not None:
        raise ValueError("features must be given for rows of states and actions or on arrival, got both")
    arrival = None
    if arrival_features is not None:
        arrival = _check_matrix(arrival_features, mdp.n_states, "arrival_features", f"({mdp.n_states}, d), one row per state")
        features = mdp.stacked @ arrival
    if features is None:
        if names is not None:
            raise ValueError("feature_names must come with features, got none")
        return None, None, mdp.state_names
    rows = mdp.n_actions * mdp.n_states
    matrix = _check_matrix(features, rows, "features", f"({rows}, d), one row for each action and state")
    matrix = sp.csr_array(sp.diags_array(mdp.live.T.ravel() / 1.0) @ matrix)
    given = [f"feature {i}" for i in range(matrix.shape[1])] if names is None else names
    return matrix, arrival, as_names(given, matrix.shape[1], "feature_names")


def _check_matrix(given: ArrayLike | Sparse, rows: int, name: str, expected: str) -> Sparse:
    """Read an array or a sparse matrix of so many rows without NaN or infinity."""
    matrix = sp.csr_array(given) if sp.issparse(given) else as_floats(given, name)
    if sp.issparse(matrix) and not np.isfinite(matrix.data).all():
        raise ValueError(f"{name} must be finite, got a NaN or infinity")
    if matrix.ndim != 2 or matrix.shape[0] != rows:
        raise ValueError(f"{name} must have shape {expected}, got {matrix.shape}")
    return sp.csr_array(matrix)


def _joint_parameters(kinds: Iterable[tuple[bool, tuple[str, ...]]]) -> tuple[str, ...]:
    """Return the union of state labels in order of appearance, or the features all problems share.

    Of each problem it is given whether it is tabular, and its reward parameters.
    """
    every = list(kinds)
    if all(tabular for tabular, _ in every):
        return tuple(dict.fromkeys(name for _, names in every for name in names))
    first = every[0][1]
    for number, (tabular, names) in enumerate(every):
        if tabular or names != first:
            raise ValueError(f"problem {number} must have the same features as the first, got {names[:5]}")
    return first


def _placed(features: Sparse, columns: Ints, width: int) -> Sparse:
    """Return the columns of features moved to their places among the joint parameters."""
    matrix = sp.csr_array(features)
    # a copy of the data, because sorting moves them, and the features are those of other experts too
    placed = sp.csr_array((matrix.data.copy(), columns[matrix.indices], matrix.indptr), shape=(matrix.shape[0], width))
    placed.sort_indices()
    return placed


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of counts `(r,A·S)` in one task, whose they are `(r,)`, and their conditions, if there are any."""

    counts: Sparse
    owner: Ints
    conditions: pd.DataFrame | None


def _gathered(counts: Sparse, cell: Ints, size: int) -> Sparse:
    """Return the sums `(size,A·S)` of the rows that go to each cell; −1 goes to none."""
    kept = np.flatnonzero(cell >= 0)
    sums = sp.csr_array((np.ones(kept.size), (cell[kept], kept)), shape=(size, cell.size))
    gathered = sp.csr_array(sums @ counts)
    gathered.sort_indices()  # so that sums over them are the same to the last digit, however the rows were read
    return gathered


def _stacked(frames: Sequence[pd.DataFrame | None], sizes: Sequence[int]) -> pd.DataFrame | None:
    """Return conditions of so many rows each, one after the other; a condition that a frame lacks is missing there."""
    given = [frame for frame in frames if frame is not None]
    if not given:
        return None
    for name in dict.fromkeys(name for frame in given for name in frame):
        columns = [frame[name].dropna() for frame in given if name in frame]
        kinds = {pd.api.types.is_numeric_dtype(column.infer_objects()) for column in columns if len(column)}
        if len(kinds) > 1:
            raise ValueError(f"condition {name} must be numbers in all tables, or text in all, got both: write it in one way")
    whole = [pd.DataFrame(index=range(n)) if frame is None else frame for frame, n in zip(frames, sizes, strict=True)]
    return pd.concat(whole, ignore_index=True)


def _by_condition(
    mdp: MDP, table: Demonstrations, conditions: pd.DataFrame, kept: Bools | None = None, by_last: bool = False
) -> tuple[Sparse, Ints, pd.DataFrame]:
    """Return the counts of each person under each combination of conditions, whose they are, and the conditions.

    A combination without decisions that count has no row. Where only the episodes `kept` `(E,)` count, it has an empty one.
    """
    owner = table.by_episode.expert
    cell, first = tell_apart(owner, conditions)
    counts = table.choices_by(mdp, cell if kept is None else np.where(kept, cell, -1), first.size, by_last)
    seen = np.flatnonzero(np.diff(counts.indptr)) if kept is None else np.arange(first.size)
    return counts[seen], owner[first[seen]], conditions.iloc[first[seen]].reset_index(drop=True)


def _aligned(persons: int, parts: Sequence[_Rows]) -> tuple[list[Sparse], Ints | None, pd.DataFrame | None]:
    """Return the counts of several tasks with one row for every cell of all of them; the owners and conditions of the cells."""
    sizes = [part.owner.size for part in parts]
    whose = np.concatenate([part.owner for part in parts])
    frame = _stacked([part.conditions for part in parts], sizes)
    owner, conditions, cell, size = None, None, whose, persons
    if frame is not None:
        cell, first = tell_apart(whose, frame)
        owner = whose[first]
        conditions = frame.iloc[first].reset_index(drop=True)
        size = first.size
    cells = np.split(cell, np.cumsum(sizes)[:-1])
    return [_gathered(part.counts, its_cells, size) for part, its_cells in zip(parts, cells, strict=True)], owner, conditions


@dataclass(frozen=True, eq=False, repr=False)
class SampledProblem(AnyProblem):
    """Experts who act for one reward in a task that only their own logged steps describe.

    Args:
        steps: the decisions, with the states they led to.
        parameter_names: the basis functions of which the reward is made; the solver names them.

    Example:
        >>> from multihorizon.domains import navigation
        >>> SampledProblem(navigation().simulate(decisions=100)).names
        ('near', 'middle', 'far')
    """

    steps: Steps
    parameter_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.steps, Steps):
            raise ValueError(f"steps must be Steps, got {type(self.steps).__name__}")
        object.__setattr__(self, "names", self.steps.experts)
        object.__setattr__(self, "n_experts", len(self.names))
        object.__setattr__(self, "n_parameters", len(self.parameter_names))

    def __repr__(self) -> str:
        return f"SampledProblem({len(self.steps)} steps in {', '.join(self.steps.coordinates)}, experts {', '.join(self.names)})"


def require_counts(expert: Expert) -> Floats:
    """Return the decision counts `(S,A)` of an expert; raises unless demonstrations were given."""
    if expert.counts is None:
        raise ValueError(f"expert {expert.name} must be given as demonstrations for a likelihood, got {expert.kind}")
    if not expert.counts.sum() > 0:
        raise without_decisions(expert.name)
    return expert.counts


def without_decisions(name: str) -> ValueError:
    """Return the error on an expert of whom a table has nothing that counts."""
    return ValueError(f"expert {name} must have at least one decision, got none")


def require_finite(problem: object) -> Problem:
    """Return the problem, if its task is known in full; raises otherwise."""
    if isinstance(problem, Problem):
        return problem
    if hasattr(problem, "steps"):
        raise ValueError("this needs a problem with a finite task, got one of logged steps: solve it with SieveLikelihood()")
    raise ValueError(f"problem must be a Problem, got {type(problem).__name__}")


def one_task(problem: Any) -> Expert:
    """Return anyone in the one task of a problem; raises where it joins several."""
    exemplars = require_finite(problem).exemplars
    if len(exemplars) > 1 and any(expert.world is not None for expert in exemplars):
        raise ValueError("this needs experts who believe in the same transitions, got different beliefs: fit them apart")
    if len(exemplars) > 1:
        raise ValueError(f"this needs a problem with one task, got one that joins {len(exemplars)}")
    return exemplars[0]
