"""What changes: bonuses, bans, other transitions, first states and discounts are read into one value, with every refusal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike

from multihorizon.checks import (
    Bools,
    Floats,
    Sparse,
    as_discount,
    as_floats,
    first_few,
)
from multihorizon.frames import as_frame, is_frame
from multihorizon.mdp import MDP
from multihorizon.names import numbers_of, place_of
from multihorizon.problem import Expert


@dataclass(frozen=True, eq=False)
class Change:
    """What is different after the change, in the task after it, which has S' states.

    Attributes:
        mdp: the task after, with its first states; actions that are forbidden are still in it.
        pay: what is added to the expected immediate reward `(S',A)`.
        arrival: the part of `pay` that is paid on arrival, for each state `(S',)`.
        forbid: the actions that can no longer be taken `(S',A)`.
        initial: the probabilities of the first state `(S',)`.
        discounts: new discounts `(K,)`, NaN where they stay as they are.
        moved: whether transitions change.
        elsewhere: whether other first states are given.
        features: F `(A·S',d)` in the task after; None where transitions do not change.
        arrival_features: what reward parameters pay on arrival there `(S',d)`; None where they pay for decisions.
    """

    mdp: MDP
    pay: Floats
    arrival: Floats
    forbid: Bools
    initial: Floats
    discounts: Floats
    moved: bool
    elsewhere: bool = False
    features: Sparse | None = None
    arrival_features: Sparse | None = None

    @property
    def needs_reward(self) -> bool:
        """Whether the policies alone do not say what follows."""
        return self.moved or bool(np.isfinite(self.discounts).any())

    @property
    def task(self) -> MDP:
        """The task after, without the actions that are forbidden."""
        return self.mdp.without(self.forbid)

    def at(self, discount: float) -> Change:
        """The same change in the task as it is seen at a discount: what is paid on arrival follows its transitions."""
        seen = self.mdp.at(discount)
        return self if seen is self.mdp else self.in_task(seen)

    def in_task(self, mdp: MDP) -> Change:
        """The same change where the same moves have other probabilities."""
        features, direct = self.features, self.pay - self.mdp.expect(self.arrival)
        if self.moved and self.arrival_features is not None:
            features = sp.csr_array(mdp.stacked @ self.arrival_features)
        return replace(self, mdp=mdp, pay=mdp.expect(self.arrival) + direct, features=features)


def read_change(
    mdp: MDP,
    names: Sequence[str],
    *,
    pay: Any = None,
    forbid: Any = None,
    transitions: MDP | None = None,
    initial: ArrayLike | Mapping[str, float] | None = None,
    discount: Any = None,
    features: ArrayLike | Sparse | None = None,
    expert: Expert | None = None,
    parameter_names: Sequence[str] = (),
) -> Change:
    """Read a change of a task; all refusals are made here.

    Args:
        mdp: the task before.
        names: those of the experts `(K,)`.
        pay, forbid, transitions, initial, discount, features: as in `predict`.
        expert: anyone of the task before, for the features of the reward; None where it has none.
        parameter_names: of the reward; by default the states.

    Raises:
        ValueError: naming the place, the expected and the received.
    """
    after, matrix, arrival_features = mdp, None, None
    if transitions is not None:
        after = _task_after(mdp, transitions)
        matrix, arrival_features = _features_after(mdp, after, features, expert, parameter_names or mdp.state_names)
    elif features is not None:
        raise ValueError("features must come with transitions, whose states they describe, received features alone")
    if initial is not None:
        after = after.starting(by_state(after, initial, "initial"))
    arrival, direct = _read_pay(after, pay)
    banned = _read_forbid(after, forbid)
    stuck = np.flatnonzero(~(after.available & ~banned).any(axis=1) & ~after.terminal)
    if stuck.size:
        raise ValueError(f"forbid must leave an action in every state, received none in state {after.state_names[stuck[0]]}")
    return Change(
        mdp=after,
        pay=after.expect(arrival) + direct,
        arrival=arrival,
        forbid=banned,
        initial=after.initial,
        discounts=read_discounts(names, discount),
        moved=transitions is not None,
        elsewhere=initial is not None and (transitions is not None or not np.allclose(after.initial, mdp.initial)),
        features=matrix,
        arrival_features=arrival_features,
    )


def _task_after(mdp: MDP, transitions: Any) -> MDP:
    """The new task, checked to have the same actions."""
    if not isinstance(transitions, MDP):
        raise ValueError(f"transitions must be an MDP, received {type(transitions).__name__}")
    if transitions.action_names != mdp.action_names:
        raise ValueError(
            f"transitions must have the actions {first_few(mdp.action_names)}, in this order, "
            f"received {first_few(transitions.action_names)}"
        )
    return transitions


def _features_after(
    mdp: MDP, after: MDP, features: Any, expert: Expert | None, parameter_names: Sequence[str]
) -> tuple[Sparse, Sparse | None]:
    """F `(A·S',d)` of the new task, and what the parameters pay on arrival there."""
    tabular = expert is None or expert.features is None
    states, rows, d = after.n_states, after.n_states * after.n_actions, len(parameter_names)
    if features is not None:
        if tabular:
            raise ValueError("features of the new states must come with a problem that has features, received one without any")
        matrix = sp.csr_array(features) if sp.issparse(features) else sp.csr_array(as_floats(features, "features"))
        if matrix.shape == (states, d):
            return sp.csr_array(after.stacked @ matrix), matrix
        if matrix.shape != (rows, d):
            raise ValueError(
                f"features of the new task must have shape ({rows}, {d}), or ({states}, {d}) on arrival, received {matrix.shape}"
            )
        return sp.csr_array(sp.diags_array(after.live.T.ravel() / 1.0) @ matrix), None
    place = {name: i for i, name in enumerate(parameter_names if tabular else mdp.state_names)}
    unknown = [name for name, entered in zip(after.state_names, after.entered, strict=True) if entered and name not in place]
    if not tabular and expert is not None and expert.arrival is None:
        unknown = [name for name, ends in zip(after.state_names, after.terminal, strict=True) if not ends and name not in place]
    if unknown:
        why = "give features= for the states of the new task" if not tabular else "what they pay is not known"
        raise ValueError(
            f"transitions must have the states {first_few(mdp.state_names)}, received the new state {unknown[0]}: {why}"
        )
    old = np.array([place.get(name, -1) for name in after.state_names])
    known = np.flatnonzero(old >= 0)
    if tabular or (expert is not None and expert.arrival is not None):
        source = sp.eye_array(d, format="csr") if tabular else sp.csr_array(expert.arrival)  # type: ignore[union-attr]
        pick = sp.csr_array((np.ones(known.size), (known, old[known])), shape=(states, source.shape[0]))
        arrival = sp.csr_array(pick @ source)
        return sp.csr_array(after.stacked @ arrival), arrival
    assert expert is not None
    picked = [known + states * a for a in range(after.n_actions)], [old[known] + mdp.n_states * a for a in range(mdp.n_actions)]
    to, source_rows = (np.concatenate(part) for part in picked)
    pick = sp.csr_array((np.ones(to.size), (to, source_rows)), shape=(rows, expert.feature_matrix.shape[0]))
    return sp.csr_array(sp.diags_array(after.live.T.ravel() / 1.0) @ (pick @ expert.feature_matrix)), None


def by_state(mdp: MDP, given: Any, what: str) -> Any:
    """Numbers `(S,)` from a mapping of states to numbers; anything else as it is."""
    if not isinstance(given, Mapping):
        return given
    return np.nan_to_num(numbers_of(given, mdp.state_names, what, "state"))


def _columns(frame: pd.DataFrame, needed: Sequence[str], what: str) -> list[list[Any]]:
    lacking = [name for name in needed if name not in frame]
    if lacking:
        raise ValueError(f"{what} must have the columns {', '.join(needed)}, received a table without {lacking[0]}")
    return [frame[name].tolist() for name in needed]


def _read_pay(mdp: MDP, pay: Any) -> tuple[Floats, Floats]:
    """What is paid on arrival `(S,)` and for decisions `(S,A)`."""
    arrival, direct = np.zeros(mdp.n_states), np.zeros((mdp.n_states, mdp.n_actions))
    if pay is None:
        return arrival, direct
    if is_frame(pay):
        pay = as_frame(pay, "pay")
        columns = ["state", "action", "amount"] if "action" in pay else ["state", "amount"]
        *places, amounts = _columns(pay, columns, "pay")
        whole = len(places) == 1 or pay["action"].isna()
        keys = [
            state if len(places) == 1 or free else (state, places[1][i])
            for i, (state, free) in enumerate(zip(places[0], np.broadcast_to(whole, len(pay)), strict=True))
        ]
        entries = list(zip(keys, amounts, strict=True))
    elif isinstance(pay, Mapping):
        entries = list(pay.items())
    else:
        array = as_floats(pay, "pay")
        if array.shape == arrival.shape:
            return array.copy(), direct
        if array.shape != direct.shape:
            raise ValueError(
                f"pay must be a mapping of states to amounts, or have shape ({mdp.n_states},) or "
                f"({mdp.n_states}, {mdp.n_actions}), received shape {array.shape}"
            )
        entries, direct = [], array.copy()
    for key, amount in entries:
        number = float(as_floats(amount, f"pay for {key}"))
        if isinstance(key, tuple):
            if len(key) != 2:
                raise ValueError(f"pay must be for a state or a pair of state and action, received {key!r}")
            row = place_of(key[0], mdp.state_names, "pay", "state")
            direct[row, place_of(key[1], mdp.action_names, "pay", "action")] += number
        else:
            arrival[place_of(key, mdp.state_names, "pay", "state")] += number
    idle = np.argwhere((direct != 0) & ~mdp.live)
    if idle.size:
        state, action = idle[0]
        raise ValueError(
            f"pay must be for actions that can be taken, received {mdp.action_names[action]} in state {mdp.state_names[state]}"
        )
    return arrival, direct


def _read_forbid(mdp: MDP, forbid: Any) -> Bools:
    """The mask `(S,A)` of forbidden actions."""
    banned = np.zeros((mdp.n_states, mdp.n_actions), dtype=np.bool_)
    if forbid is None:
        return banned
    if isinstance(forbid, np.ndarray) and forbid.dtype == np.bool_:
        if forbid.shape != banned.shape:
            raise ValueError(f"forbid as a mask must have shape {banned.shape}, received {forbid.shape}")
        return forbid.copy()
    pairs: list[tuple[object, object]] = []
    if is_frame(forbid):
        states, actions = _columns(as_frame(forbid, "forbid"), ["state", "action"], "forbid")
        pairs = list(zip(states, actions, strict=True))
    elif isinstance(forbid, Mapping):
        for state, given in forbid.items():
            several = isinstance(given, Iterable) and not isinstance(given, str)
            pairs += [(state, action) for action in (given if several else [given])]
    else:
        for pair in forbid if isinstance(forbid, Iterable) and not isinstance(forbid, str) else [forbid]:
            if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
                raise ValueError(f"forbid must list pairs of state and action, received {pair!r}")
            pairs.append((pair[0], pair[1]))
    for state, action in pairs:
        place = place_of(state, mdp.state_names, "forbid", "state"), place_of(action, mdp.action_names, "forbid", "action")
        if not mdp.live[place]:
            raise ValueError(f"forbid must be for actions that can be taken, received {action} in state {state}")
        banned[place] = True
    return banned


def read_discounts(names: Sequence[str], discount: Any) -> Floats:
    """New discounts `(K,)`, NaN where none is given."""
    if discount is None:
        return np.full(len(names), np.nan)
    if not isinstance(discount, Mapping):
        return np.full(len(names), as_discount(discount))
    return numbers_of(discount, names, "discount", "expert", as_discount)
