"""What is known of discounts, temperatures, rewards and groups, and which decisions are independent of each other.

Options by name are read into the order of the problem.

*Clusters* are episodes, or experts with all their episodes. Decisions of different clusters are independent of each other; those
of one need not be. Only sums over the decisions of a cluster are needed, `Σ_(s,a) N_e(s,a) y(s,a)`, so only counts N_e are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import (
    LARGEST_UNIT,
    Bools,
    Floats,
    Ints,
    Sparse,
    as_discount,
    as_finite,
    as_floats,
    as_non_negative,
    as_positive,
    first_few,
    label,
    numbers_of,
    place_of,
    read_only,
)
from multihorizon.choice.plans import Planner
from multihorizon.data.demonstrations import Demonstrations
from multihorizon.mdp import MDP
from multihorizon.planning.plan import Value, check_value
from multihorizon.problem import AnyProblem, Expert, Problem, require_counts
from multihorizon.words import significant

#: What is independent of each other; "auto" lets a test of the decisions choose between decisions and episodes.
Unit = Literal["decision", "episode", "expert"]


Choice = Literal["auto", "decision", "episode", "expert"]


NO_EPISODES = "the problem does not hold the episodes of its decisions"


def check_cluster(value: object) -> None:
    """Raise unless this says what is independent of each other."""
    if value not in get_args(Choice):
        raise ValueError(f"cluster must be one of {', '.join(get_args(Choice))}, got {value!r}")


@dataclass(frozen=True, eq=False)
class Clusters:
    """The decisions of a problem's experts by cluster.

    Attributes:
        unit: what a cluster is.
        counts: for each of the problem's experts how often each cluster took each decision `(n,A·C)`, in rows a·C + c of contexts
            c, which are states or, where they matter, last actions and states (`plans`).
        numbers: for each of them the number of each cluster `(n,)` among all.
    """

    unit: Unit
    counts: tuple[Sparse, ...]
    numbers: tuple[Ints, ...]

    @classmethod
    def of(
        cls, problem: Problem, unit: Unit, tables: Sequence[Demonstrations] | None = None, by_last: bool = False
    ) -> Clusters | str:
        """Return the clusters of a problem; or why they are not known.

        Args:
            problem: whose experts have decisions.
            unit: "episode" or "expert".
            tables: where the decisions come from, one for each task in order; by default those the problem was made of.
            by_last: whether decisions are counted by the last action, too.
        """
        if unit == "expert":
            tabled = by_last_action(problem) if by_last else [require_counts(expert) for expert in problem.experts]
            counts = tuple(sp.csr_array(table.T.ravel()[None]) for table in tabled)
            return cls(unit, counts, tuple(np.array([owner]) for owner in problem.owner))
        listed = sources(problem, tables)
        if isinstance(listed, str):
            return listed
        split: dict[int, tuple[int, Ints, Sparse]] = {}
        by_expert = []
        numbers = []
        size = 0
        for expert, (table, k) in zip(problem.experts, listed, strict=True):
            if id(table) not in split:
                owner = table.by_episode.expert
                split[id(table)] = size, owner, table.choices_by(expert.mdp, np.arange(owner.size), owner.size, by_last)
                size += owner.size
            first, owner, made = split[id(table)]
            episodes = np.flatnonzero(owner == k)
            counts = made[episodes]
            by_state = counts.sum(axis=0).reshape(expert.mdp.n_actions, -1, expert.mdp.n_states).sum(axis=1)
            if not np.array_equal(by_state, require_counts(expert).T):
                return NO_EPISODES
            by_expert.append(counts)
            numbers.append(first + episodes)
        return cls(unit, tuple(by_expert), tuple(numbers))


def sources(problem: Problem, tables: Sequence[Demonstrations] | None = None) -> list[tuple[Demonstrations, int]] | str:
    """Return the table of each of the problem's experts, and their number in it; or why it is not known.

    The tables are those given, one for each task in order, or by default those the problem was made of.
    """
    if tables is not None:
        listed = [(table, k) for table in tables for k in range(len(table.experts))]
        return listed if len(listed) == len(problem.experts) else NO_EPISODES
    listed = []
    for expert in problem.experts:
        if expert.table is None or expert.name not in expert.table.experts:
            return NO_EPISODES
        listed.append((expert.table, expert.table.experts.index(expert.name)))
    return listed


Temperature = float | Literal["shared", "pooled", "per_expert"] | Mapping[str, float]


@dataclass(frozen=True)
class Settings:
    """What is known besides the problem, and which experts share a parameter.

    Attributes:
        groups: for each of the K experts which discount is theirs; by default 0, …, K−1. Equal numbers share a discount.
        discounts: known discounts `(K,)`, NaN where they are free; None where all are.
        temperature_groups: for each expert which temperature is theirs, as in `groups`.
        temperatures: known temperatures `(K,)`, NaN where they are free; None stands for 1 everywhere.
        reward: known reward parameters `(d,)`; None where they are free.
        moves: whether estimated transitions give way within their own error (`plans`).
        value: how the future is valued (`planning.plan`), or a planner of somebody's own.
        lapse, stickiness: the share of lapses and the pull of the last action; NaN where they are estimated.
    """

    groups: tuple[int, ...] | None = None
    discounts: Floats | None = None
    temperature_groups: tuple[int, ...] | None = None
    temperatures: Floats | None = None
    reward: Floats | None = None
    moves: bool = False
    value: Value | Planner = "soft"
    lapse: float = 0.0
    stickiness: float = 0.0

    @property
    def has_habits(self) -> bool:
        """Return whether choices may be lapses, or repeat the last action."""
        return self.lapse != 0 or self.stickiness != 0

    @property
    def plain(self) -> bool:
        """Return whether choices are those of soft values alone, as formulas for deviations and for shared goals need it."""
        return self.value == "soft" and not self.has_habits


#: A share of lapses, or the pull of the last action: a known number, or one to be estimated.
Habit = float | Literal["estimated"]


def check_habit(value: object, name: str) -> float:
    """Return a known number, or NaN for one that is to be estimated."""
    if value == "estimated":
        return np.nan
    if isinstance(value, str):
        raise ValueError(f'{name} must be a number or "estimated", got {value!r}')
    if name == "stickiness":
        return as_finite(value, name)
    lapse = as_non_negative(value, name)
    if lapse >= 1:
        raise ValueError(f"{name} must be below 1, got {lapse:g}")
    return lapse


def read_choosing(value: Value, lapse: Habit, stickiness: Habit, planner: Planner | None) -> tuple[Value | Planner, float, float]:
    """Return how the future is valued, or the planner, and lapses and stickiness, NaN where they are estimated.

    Raises:
        ValueError: for something else, and where a planner of somebody's own comes with another value.
    """
    check_value(value)
    if isinstance(planner, str):
        raise ValueError(f"planner must be a function, got its name {planner!r}: a saved fit holds no function, hand it in again")
    if planner is not None and not callable(planner):
        raise ValueError(
            "planner must be a function of a task, a reward (S,A), a discount and a temperature that returns a policy (S,A), "
            f"got {type(planner).__name__}"
        )
    if planner is not None and value != "soft":
        raise ValueError(f"a planner of your own says how the future is valued: leave out value, got {value!r}")
    return planner or value, check_habit(lapse, "lapse"), check_habit(stickiness, "stickiness")


def by_last_action(problem: Problem) -> tuple[Floats, ...]:
    """Return how often each expert chose each action in each context `((A+1)·S,A)`: after each last action, in each state."""
    listed = sources(problem)
    if isinstance(listed, str):
        raise ValueError(f"stickiness needs the order of decisions, but {listed}: make it from Demonstrations")
    counted = []
    of_table: dict[tuple[int, int], Sparse] = {}
    for expert, (table, k) in zip(problem.experts, listed, strict=True):
        mdp, key = expert.mdp, (id(table), id(expert.mdp))
        if key not in of_table:
            of_table[key] = table.choices_by(mdp, table.by_episode.expert, len(table.experts), by_last=True)
        after = of_table[key][[k]].toarray().reshape(mdp.n_actions, -1).T
        if not np.array_equal(after.reshape(-1, mdp.n_states, mdp.n_actions).sum(axis=0), require_counts(expert)):
            raise ValueError(f"stickiness needs the order of decisions, but {NO_EPISODES}: make it from Demonstrations")
        counted.append(after)
    return tuple(counted)


def check_temperature(value: Any) -> None:
    """Raise unless this is one of the ways to say what is known of temperatures."""
    words = ("shared", "pooled", "per_expert")
    if isinstance(value, Mapping):
        for name, number in value.items():
            as_positive(number, f"temperature of {name}")
    elif isinstance(value, str):
        if value not in words:
            raise ValueError(
                "temperature must be a positive number, a mapping of names to such numbers, "
                f"or one of {', '.join(words)}, got {value!r}"
            )
    else:
        as_positive(value, "temperature")


def check_discounts(value: Any) -> None:
    """Raise unless this is one known discount, a mapping of names to known discounts, or None."""
    if isinstance(value, Mapping):
        for name, number in value.items():
            as_discount(number, f"discount of {name}")
    elif value is not None:
        as_discount(value)


def read_settings(
    problem: Problem, temperature: Temperature, discounts: Any, groups: Mapping[str, Any] | None, reward: Floats | None
) -> Settings:
    """Return what is known and what is tied, in the problem's order. Temperatures that are to be pooled begin as equal ones."""
    k = problem.n_experts
    scale_known = reward is not None or any(one.known_reward is not None for one in problem.exemplars)
    temperatures: Floats | None = None
    together: tuple[int, ...] | None = None
    if isinstance(temperature, Mapping):
        temperatures = numbers_of(temperature, problem.names, "temperature", "expert")
    elif temperature == "per_expert":
        temperatures = np.full(k, np.nan) if k > 1 or scale_known else None
    elif isinstance(temperature, str):
        temperatures, together = (np.full(k, np.nan), (0,) * k) if scale_known else (None, None)
    else:
        temperatures = np.full(k, float(temperature))
    given = None
    if discounts is not None:
        many = isinstance(discounts, Mapping)
        given = numbers_of(discounts, problem.names, "discounts", "expert") if many else np.full(k, as_discount(discounts))
        for k in np.flatnonzero((given == 1) & _endless(problem))[:1]:  # without discounting the values would be infinite
            raise ValueError(f"the discount of {problem.names[k]} must be below 1, because the task may never end, got 1")
    shared = _read_groups(problem, groups, given)
    free = temperatures is not None and np.isnan(temperatures).any()
    if given is not None and not np.isnan(given).any() and not free and reward is not None:
        raise ValueError("rewards, discounts and temperatures are all given: leave out at least one of them to be estimated")
    return Settings(shared, given, together, temperatures, reward)


def _endless(problem: Problem) -> Bools:
    """Return who `(K,)` acts in a task that may never end."""
    endless = np.zeros(problem.n_experts, dtype=np.bool_)
    owner = np.array(problem.owner, dtype=np.int64)
    for members in problem.by_task():
        endless[owner[members]] |= bool(problem.experts[members[0]].mdp.never_ends().any())
    return endless


def _read_groups(problem: AnyProblem, groups: Mapping[str, Any] | None, discounts: Floats | None) -> tuple[int, ...] | None:
    """Return the number of each expert's group; members of one cannot have different known discounts."""
    if groups is None:
        return None
    if not isinstance(groups, Mapping):
        raise ValueError(f"groups must be a mapping of experts to the names of their groups, got {type(groups).__name__}")
    members = {label(name, "the name of an expert in groups"): str(group) for name, group in groups.items()}
    everybody = set(problem.names)
    unknown = [name for name in members if name not in everybody]
    if unknown:
        names = first_few(problem.names)
        raise ValueError(f"groups name {unknown[0]}, but there is no expert of that name: the experts are {names}")
    keys = [("group", members[name]) if name in members else ("alone", name) for name in problem.names]
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    given = np.full(len(keys), np.nan) if discounts is None else discounts
    together: dict[tuple[str, str], list[int]] = {}
    for k, key in enumerate(keys):
        together.setdefault(key, []).append(k)
    for experts in together.values():
        distinct = sorted({float(given[k]) for k in experts if not np.isnan(given[k])})
        if len(distinct) > 1:
            names = ", ".join(problem.names[k] for k in experts)
            raise ValueError(f"{names} share one discount, but different ones are given: {', '.join(map(str, distinct))}")
    return tuple(number[key] for key in keys)


def with_known_reward(problem: Problem, known: Any) -> tuple[Problem, Floats | None]:
    """Return the problem with a known part of the reward, and the known reward parameters where the reward is known in full.

    Where the problem has no features and the reward is known for states and actions, no reward parameters are left.

    `known` is `(S,)` paid on arrival, `(S,A)` or `(A·S,)` in rows a·S + s for decisions, or a mapping: of state names to what
    they pay on arrival, or of pairs (state, action) to what the action pays there.
    """
    if known is None:
        return problem, None
    if isinstance(known, Mapping) and any(isinstance(points, Mapping) for points in known.values()):  # as a file keeps pairs
        known = {(state, action): value for state, points in known.items() for action, value in points.items()}
    numbers = as_floats(list(known.values()) if isinstance(known, Mapping) else known, "known_reward")
    if np.abs(numbers).max(initial=0.0) > LARGEST_UNIT:
        largest = np.abs(numbers).max()
        raise ValueError(
            f"known_reward must have numbers of at most {LARGEST_UNIT:g}, got {significant(largest)}: use another unit"
        )
    if problem.tabular and isinstance(known, Mapping) and not names_pairs(known):
        return problem, _by_state(problem.parameter_names, known)
    if problem.tabular and numbers.shape == (problem.n_parameters,):
        return problem, numbers
    of_task = {id(mdp): (*_paid(mdp, known), sp.csr_array((mdp.stacked.shape[0], 0))) for mdp in problem.mdps}

    def pay(expert: Expert) -> Expert:
        reward, arrival, nothing = of_task[id(expert.mdp)]
        return expert.paid(reward, arrival, nothing if problem.tabular else expert.features)

    paid = problem.in_settings(pay, () if problem.tabular else None)
    return paid, None if paid.n_parameters else np.zeros(0)


def _paid(mdp: MDP, reward: Any) -> tuple[Floats, Floats | None]:
    """Return what is paid for each decision, in rows a·S + s, and on arrival where it is paid there."""
    states = mdp.n_states
    rows = mdp.n_actions * mdp.n_states
    if isinstance(reward, Mapping):
        array = _by_pair(mdp, reward) if names_pairs(reward) else _by_state(mdp.state_names, reward)
    else:
        array = as_floats(reward, "known_reward")
    if array.shape == (states, mdp.n_actions):
        array = array.T.ravel()
    if array.shape not in ((states,), (rows,)):
        raise ValueError(
            f"known_reward must have one number for each of {states} states or {rows} pairs of state and action, "
            f"got shape {array.shape}"
        )
    if array.shape == (states,) and mdp.durations is not None:
        raise ValueError(
            "known_reward must be given for states and actions where moves take time and the reward is made of features, "
            "got one that is paid on arrival"
        )
    if array.shape == (states,):
        return read_only(mdp.stacked @ array), read_only(array)
    return read_only(np.where(mdp.live.T.ravel(), array, 0.0)), None


def _by_state(names: tuple[str, ...], by_name: Mapping[str, float]) -> Floats:
    """Return the known reward `(n,)` from a mapping that names every state."""
    reward = numbers_of(by_name, names, "known_reward", "state")
    missing = np.flatnonzero(np.isnan(reward))
    if missing.size:
        raise ValueError(f"known_reward must have a number for every state, got none for {names[missing[0]]!r}")
    return reward


def names_pairs(by_name: Mapping[Any, Any]) -> bool:
    """Return whether a mapping names pairs of state and action; raises where it names states as well."""
    if any(isinstance(points, Mapping) for points in by_name.values()):
        return True
    pairs = [isinstance(key, tuple) for key in by_name]
    if any(pairs) and not all(pairs):
        alone = next(key for key in by_name if not isinstance(key, tuple))
        raise ValueError(f"known_reward must name states, or pairs of state and action, got both: {alone!r} is no pair")
    return any(pairs)


def _by_pair(mdp: MDP, by_name: Mapping[Any, float]) -> Floats:
    """Return the known reward `(S,A)` from a mapping that names every available action of every state that is not terminal."""
    reward = np.full((mdp.n_states, mdp.n_actions), np.nan)
    for pair, value in by_name.items():
        if len(pair) != 2:
            raise ValueError(f"known_reward must name pairs (state, action), got {pair!r}")
        state = place_of(pair[0], mdp.state_names, "known_reward", "state")
        action = place_of(pair[1], mdp.action_names, "known_reward", "action")
        reward[state, action] = float(as_floats(value, f"known_reward of {pair[0]}, {pair[1]}"))
    missing = np.argwhere(np.isnan(reward) & mdp.live)
    if missing.size:
        state, action = missing[0].tolist()
        raise ValueError(
            "known_reward must have a number for every action that can be taken, got none for "
            f"{(mdp.state_names[state], mdp.action_names[action])!r}"
        )
    return np.asarray(np.nan_to_num(reward), dtype=np.float64)
