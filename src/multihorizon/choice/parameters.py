"""What is known and what is tied among the parameters of a likelihood, and the quadratic terms of its objective.

What the user knows of discounts, temperatures, rewards and groups is read from options by name into the problem's order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import LARGEST_UNIT, Floats, Ints, Sparse, as_discount, as_floats, as_positive, first_few, label
from multihorizon.problem import AnyProblem, Expert, Problem


@dataclass(frozen=True, eq=False)
class Quadratic:
    """The term `−½ (x−c)ᵀA(x−c) + bᵀ(x−c)` of the objective: centre c, slope b, and a matrix A, dense or sparse."""

    centre: Floats
    slope: Floats
    matrix: Floats | Sparse

    def __call__(self, x: Floats) -> float:
        """Its value at x."""
        return float((self.slope - 0.5 * self.matrix @ (x - self.centre)) @ (x - self.centre))

    def gradient(self, x: Floats) -> Floats:
        """Its gradient at x."""
        return self.slope - self.matrix @ (x - self.centre)

    def without(self, positions: slice, put: int) -> Quadratic:
        """The same term without the parameters at `positions`, and with `put` new ones there, of which it says nothing."""
        size = self.centre.size - (positions.stop - positions.start) + put
        keep = np.r_[: positions.start, positions.stop : self.centre.size]
        room = np.r_[: positions.start, positions.start + put : size]
        centre, slope = np.zeros(size), np.zeros(size)
        centre[room], slope[room] = self.centre[keep], self.slope[keep]
        return Quadratic(centre, slope, placed(sp.csr_array(self.matrix)[keep][:, keep], room, size))


def placed(block: Floats | Sparse, room: Ints, size: int) -> Sparse:
    """A matrix `(size,size)` that is 0 outside the given rows and columns."""
    entries = sp.coo_array(block)
    return sp.csr_array((entries.data, (room[entries.row], room[entries.col])), shape=(size, size))


@dataclass(frozen=True)
class Settings:
    """What is known besides the problem, and which experts share a parameter.

    Attributes:
        groups: for each of the K experts which discount is theirs; by default 0, …, K−1. Equal numbers share a discount.
        discounts: known discounts `(K,)`, NaN where they are free; None where all are.
        temperature_groups: for each expert which temperature is theirs, as in `groups`.
        temperatures: known temperatures `(K,)`, NaN where they are free; None stands for 1 everywhere.
        reward: known reward parameters `(d,)`; None where they are free.
        moves: whether estimated transitions give way within their own error (`tabular`).
    """

    groups: tuple[int, ...] | None = None
    discounts: Floats | None = None
    temperature_groups: tuple[int, ...] | None = None
    temperatures: Floats | None = None
    reward: Floats | None = None
    moves: bool = False


def group_numbers(groups: tuple[int, ...] | None, size: int) -> Ints:
    """The group of each expert; without groups, each has their own."""
    return np.arange(size) if groups is None else np.array(groups, dtype=np.int64)


def known_of_groups(values: Floats, groups: Ints) -> Floats:
    """The known value of each group; NaN where none is known, or where its members have different ones."""
    found = np.full(int(groups.max()) + 1, np.nan)
    for group in range(found.size):
        distinct = np.unique(values[(groups == group) & ~np.isnan(values)])
        if distinct.size == 1:
            found[group] = distinct[0]
    return found


def renumbered(groups: Ints) -> tuple[int, ...]:
    """The same groups with the numbers 0, 1, … in order of appearance."""
    number = {g: i for i, g in enumerate(dict.fromkeys(groups.tolist()))}
    return tuple(number[g] for g in groups.tolist())


Temperature = float | Literal["shared", "pooled", "per_expert"] | Mapping[str, float]


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
                f"or one of {', '.join(words)}, received {value!r}"
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
    """What is known and what is tied, in the problem's order. Temperatures that are to be pooled begin as equal ones."""
    k = problem.n_experts
    scale_known = reward is not None or any(expert.known_reward is not None for expert in problem.experts)
    temperatures: Floats | None = None
    together: tuple[int, ...] | None = None
    if isinstance(temperature, Mapping):
        temperatures = by_name(problem, temperature, "temperature")
    elif temperature == "per_expert":
        temperatures = np.full(k, np.nan) if k > 1 or scale_known else None
    elif isinstance(temperature, str):
        temperatures, together = (np.full(k, np.nan), (0,) * k) if scale_known else (None, None)
    else:
        temperatures = np.full(k, float(temperature))
    known = None
    if discounts is not None:
        many = isinstance(discounts, Mapping)
        known = by_name(problem, discounts, "discount") if many else np.full(k, as_discount(discounts))
        for expert, owner in zip(problem.experts, problem.owner, strict=True):
            if known[owner] == 1 and expert.mdp.never_ends().any():  # without discounting the values would be infinite
                raise ValueError(f"the discount of {expert.name} must be below 1, because the task may never end, received 1")
    shared = _read_groups(problem, groups, known)
    free = temperatures is not None and np.isnan(temperatures).any()
    if known is not None and not np.isnan(known).any() and not free and reward is not None:
        raise ValueError("rewards, discounts and temperatures are all given: leave out at least one of them to be estimated")
    return Settings(shared, known, together, temperatures, reward)


def by_name(problem: AnyProblem, values: Mapping[str, float], what: str) -> Floats:
    """The given value of each expert `(K,)`, NaN where none is given; raises for a name that no expert has."""
    found = np.full(problem.n_experts, np.nan)
    for key, value in values.items():
        name = label(key, f"the name of an expert with a known {what}")
        if name not in problem.names:
            known = first_few(problem.names)
            raise ValueError(f"the {what} of {name} is given, but there is no expert of that name: the experts are {known}")
        found[problem.names.index(name)] = float(value)
    return found


def _read_groups(problem: Problem, groups: Mapping[str, Any] | None, known: Floats | None) -> tuple[int, ...] | None:
    """The number of each expert's group; members of one cannot have different known discounts."""
    if groups is None:
        return None
    members = {label(name, "the name of an expert in groups"): str(group) for name, group in groups.items()}
    unknown = [name for name in members if name not in problem.names]
    if unknown:
        names = first_few(problem.names)
        raise ValueError(f"groups name {unknown[0]}, but there is no expert of that name: the experts are {names}")
    keys = [("group", members[name]) if name in members else ("alone", name) for name in problem.names]
    number = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    given = np.full(len(keys), np.nan) if known is None else known
    for group in number:
        own = [k for k, key in enumerate(keys) if key == group]
        distinct = sorted({float(given[k]) for k in own if not np.isnan(given[k])})
        if len(distinct) > 1:
            names = ", ".join(problem.names[k] for k in own)
            raise ValueError(f"{names} share one discount, but different ones are given: {', '.join(map(str, distinct))}")
    return tuple(number[key] for key in keys)


def with_known_reward(problem: Problem, known: Any) -> tuple[Problem, Floats | None]:
    """The problem with a known part of the reward, and the known reward parameters where the reward is known in full.

    Where the problem has no features and the reward is known for states and actions, no reward parameters are left.

    `known` is `(S,)` paid on arrival, `(S,A)` or `(A·S,)` in rows a·S + s for decisions, or a mapping of state names to what
    they pay on arrival.
    """
    if known is None:
        return problem, None
    numbers = as_floats(list(known.values()) if isinstance(known, Mapping) else known, "known_reward")
    if np.abs(numbers).max(initial=0.0) > LARGEST_UNIT:
        largest = np.abs(numbers).max()
        raise ValueError(f"known_reward must have numbers of at most {LARGEST_UNIT:g}, received {largest:.3g}: use another unit")
    if problem.tabular and isinstance(known, Mapping):
        return problem, _by_state(problem.parameter_names, known)
    if problem.tabular and numbers.shape == (problem.n_parameters,):
        return problem, numbers
    paid = problem.with_experts(replace(expert, known_reward=_rows(expert, known)) for expert in problem.experts)
    if problem.tabular:
        none = [sp.csr_array((expert.mdp.stacked.shape[0], 0)) for expert in paid.experts]
        paid = paid.with_experts((replace(e, features=f) for e, f in zip(paid.experts, none, strict=True)), ())
    return paid, None if paid.n_parameters else np.zeros(0)


def _rows(expert: Expert, known: Any) -> Floats:
    """What an expert is paid for each decision, in rows a·S + s."""
    mdp = expert.mdp
    states, rows = mdp.n_states, mdp.n_actions * mdp.n_states
    array = _by_state(mdp.state_names, known) if isinstance(known, Mapping) else as_floats(known, "known_reward")
    if array.shape == (states, mdp.n_actions):
        array = array.T.ravel()
    if array.shape not in ((states,), (rows,)):
        raise ValueError(
            f"known_reward must have one number for each of {states} states or {rows} pairs of state and action, "
            f"received shape {array.shape}"
        )
    return mdp.stacked @ array if array.shape == (states,) else np.where(mdp.live.T.ravel(), array, 0.0)


def _by_state(names: tuple[str, ...], known: Mapping[str, float]) -> Floats:
    paid = {label(name, "a state of known_reward"): value for name, value in known.items()}
    unknown = [name for name in paid if name not in names]
    if unknown:
        raise ValueError(f"known_reward names the state {unknown[0]!r}, which the task does not have")
    missing = [name for name in names if name not in paid]
    if missing:
        raise ValueError(f"known_reward must have a number for every state, received none for {missing[0]!r}")
    return np.array([float(as_floats(paid[name], f"known reward of {name}")) for name in names])
