"""Expert data: what is known of how one expert acts in one MDP, in one of four kinds.

* a policy `(S,A)` of probabilities;
* one action per state, whole numbers `(S,)`;
* a set of equally good actions per state, bool `(S,A)`;
* decision counts `(S,A)`, from demonstrations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from multihorizon.checks import Bools, Floats, Sparse, as_shape, read_only
from multihorizon.mdp import MDP
from multihorizon.planning.evaluation import check_policy
from multihorizon.planning.plan import one_hot

Kind = Literal["policy", "actions", "action sets", "demonstrations"]
#: The field that holds the data of each kind.
_DATA: dict[str, str] = {"policy": "policy", "actions": "sets", "action sets": "sets", "demonstrations": "counts"}


@dataclass(frozen=True, eq=False)
class Expert:
    """One expert in one task: a name, the MDP acted in, and the data.

    `policy` holds probabilities (kinds "policy" and "actions"), `sets` the chosen actions (kinds "actions" and "action sets",
    and policies that are deterministic), `counts` the decisions (kind "demonstrations"); the rest is None. `features` is the
    matrix F `(A·S,d)` that turns reward parameters into the expected immediate reward; None stands for the stacked transitions.
    `known_reward` `(A·S,)` is a part of the expected immediate reward that needs no estimating; None stands for none.
    Where the features are paid on arrival, `arrival` `(S,d)` says how, and F is their average over next states.
    The arrays are copies that cannot be written to.
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

    def __post_init__(self) -> None:
        table = (self.mdp.n_states, self.mdp.n_actions)
        shapes: dict[str, tuple[int, ...]] = {
            "policy": table,
            "sets": table,
            "counts": table,
            "known_reward": (table[0] * table[1],),
        }
        for field, shape in shapes.items():
            array = getattr(self, field)
            if array is not None:
                as_shape(np.asarray(array), shape, f"{field} of expert {self.name}")
                object.__setattr__(self, field, read_only(np.asarray(array)))
        if self.kind not in _DATA or getattr(self, _DATA[self.kind]) is None:
            expected = ", ".join(f'{field} for "{kind}"' for kind, field in _DATA.items())
            raise ValueError(
                f"expert {self.name} must have the data of its kind ({expected}), received kind {self.kind!r} without it"
            )
        self._check_data()

    def _check_data(self) -> None:
        """Experts may come from outside or from `dataclasses.replace`, so every one of them is checked."""
        if self.policy is not None:
            check_policy(self.mdp, self.policy, f"policy of expert {self.name}")
        if self.sets is not None:
            _check_sets(self.mdp, self.sets, self.name)
        if self.counts is not None:
            _check_counts(self.mdp, self.counts, self.name)

    @property
    def feature_matrix(self) -> Sparse:
        """F `(A·S,d)`: the features, or the stacked transitions where the reward is one number per state, paid on arrival."""
        return self.mdp.stacked if self.features is None else self.features

    @property
    def arrival_features(self) -> Sparse | None:
        """What reward parameters pay on arrival, `(S,d)`; None where features belong to states and actions."""
        return sp.eye_array(self.mdp.n_states, format="csr") if self.features is None else self.arrival

    def expected_reward(self, parameters: Floats) -> Floats:
        """The expected immediate reward `(S,A)` of reward parameters `(d,)` in this expert's MDP."""
        product: Floats = self.feature_matrix @ parameters
        if self.known_reward is not None:
            product = product + self.known_reward
        return product.reshape(self.mdp.n_actions, self.mdp.n_states).T

    def frequencies(self, smoothing: float) -> Floats:
        """How often each action was taken `(S,A)`, with `smoothing` added to each available count; raises without counts."""
        if self.counts is None:
            raise ValueError(f"expert {self.name} must be given as demonstrations for this, received {self.kind}")
        live = self.mdp.live
        weights = np.where(live, self.counts + smoothing, np.where(self.mdp.terminal[:, None], 1.0, 0.0))
        found: Floats = weights / weights.sum(axis=1, keepdims=True)
        return found

    def require_sets(self) -> Bools:
        """The chosen actions, bool `(S,A)`; raises for stochastic policies, demonstrations, and a reward known in part."""
        if self.known_reward is not None:
            raise ValueError(
                f"expert {self.name} must have no known part of the reward for a linear-programming solver, received one"
            )
        if self.sets is None:
            raise ValueError(
                f"expert {self.name} must be given as one action or a set of actions per state for a linear-programming solver, "
                f"received {'a stochastic policy' if self.kind == 'policy' else self.kind}"
            )
        return self.sets

    def require_policy(self) -> Floats:
        """The action probabilities `(S,A)`; raises for action sets and demonstrations."""
        if self.policy is None:
            raise ValueError(
                f"expert {self.name} must be given as a policy of probabilities for this solver, received {self.kind}"
            )
        return self.policy


def read_expert(mdp: MDP, data: ArrayLike, name: str) -> Expert:
    """Tell the kind of expert data by type and shape, and check it."""
    array = np.asarray(data)
    if array.dtype == np.bool_:
        return Expert(name, mdp, "action sets", sets=_check_sets(mdp, array, name))
    if array.ndim == 1 and np.issubdtype(array.dtype, np.integer):
        sets = _check_actions(mdp, array, name)
        return Expert(name, mdp, "actions", policy=_equal_mix(sets), sets=sets)
    if array.ndim == 1:
        raise ValueError(
            f"expert {name} as one action per state must be whole numbers of shape ({mdp.n_states},), "
            f"received {array.dtype} of shape {array.shape}"
        )
    policy = check_policy(mdp, data, f"policy of expert {name}")
    certain = (policy == 1).any(axis=1) | mdp.terminal
    return Expert(name, mdp, "policy", policy=policy, sets=(policy == 1) | mdp.terminal[:, None] if certain.all() else None)


def _check_actions(mdp: MDP, actions: NDArray[Any], name: str) -> Bools:
    as_shape(actions, (mdp.n_states,), f"actions of expert {name}")
    safe = np.where(mdp.terminal, 0, actions)
    outside = (safe < 0) | (safe >= mdp.n_actions)
    if outside.any():
        state = int(np.flatnonzero(outside)[0])
        raise ValueError(
            f"actions of expert {name} must be from 0 to {mdp.n_actions - 1}, "
            f"received {int(actions[state])} in state {mdp.state_names[state]}"
        )
    return _check_sets(mdp, one_hot(safe, mdp.n_actions) > 0, name)


def _check_sets(mdp: MDP, sets: Bools, name: str) -> Bools:
    as_shape(sets, (mdp.n_states, mdp.n_actions), f"action sets of expert {name}")
    sets = sets | mdp.terminal[:, None]
    empty = np.flatnonzero(~sets.any(axis=1))
    if empty.size:
        raise ValueError(
            f"expert {name} must choose at least one action in every state, received none in state {mdp.state_names[empty[0]]}"
        )
    barred = np.argwhere(sets & ~mdp.available)
    if barred.size:
        state, action = barred[0]
        raise ValueError(
            f"expert {name} must choose available actions, received {mdp.action_names[action]} in state {mdp.state_names[state]}"
        )
    checked: Bools = sets
    return checked


def _check_counts(mdp: MDP, counts: Floats, name: str) -> None:
    if not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError(f"counts of expert {name} must be finite and not negative, received {counts.min()}")
    barred = np.argwhere((counts > 0) & ~mdp.available)
    if barred.size:
        state, action = barred[0]
        raise ValueError(
            f"counts of expert {name} must be of available actions, "
            f"received {mdp.action_names[action]} in state {mdp.state_names[state]}"
        )


def _equal_mix(sets: Bools) -> Floats:
    """The policy that takes each chosen action equally often: the one action, except in terminal states, where all are chosen."""
    policy: Floats = sets / sets.sum(axis=1, keepdims=True)
    return policy
