"""A reward that depends on the action as well: the columns by which a reward of the state that is reached is widened.

Where rewards are paid on arrival, `R = T Φ θ`, nothing is paid or charged for an action itself. Two wider rewards let it be:

* *one cost for each action*, less their mean;
* *by action*: a weight of each feature for each action; where each state has a reward of its own, one for each state and action.

What Φ can say already is part of both. Of an action the name counts: it is one action in all tasks that have it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from multihorizon.checks import Floats, Sparse
from multihorizon.mdp import MDP

#: With more columns than this a reward by action is not tried: there would be little left to see it by.
MOST_COLUMNS = 100


@dataclass(frozen=True)
class WiderReward:
    """A wider reward: its name, the actions of all tasks, and whether features count by action.

    `free` says that each state has a reward of its own.
    """

    name: str
    actions: tuple[str, ...]
    by_action: bool
    free: bool

    def columns(self, mdp: MDP, arrival: Sparse) -> Floats:
        """The columns `(A·S,q)` in a task where features `(S,d)` are paid on arrival."""
        rows, parts = np.tile(np.arange(mdp.n_states), mdp.n_actions), []
        paid = np.zeros((rows.size, 0))
        if self.by_action:
            paid = sp.csr_array(arrival)[rows].toarray() if self.free else (mdp.stacked @ arrival).toarray()
        for action in self.actions:
            taken = np.repeat([float(name == action) for name in mdp.action_names], mdp.n_states)[:, None]
            parts += [taken - 1 / len(self.actions), taken * paid]
        return np.concatenate(parts, axis=1) * mdp.live.T.reshape(-1, 1)


def wider_rewards(mdps: Sequence[MDP], arrival: Sequence[Sparse]) -> list[WiderReward]:
    """The wider rewards to try in tasks with these features; none where there is one action alone."""
    actions = tuple(dict.fromkeys(name for mdp in mdps for name in mdp.action_names))
    if len(actions) < 2:
        return []
    free = all(np.bincount(sp.csr_array(each).indices).max(initial=0) <= 1 for each in arrival)
    found = [WiderReward("one cost for each action", actions, by_action=False, free=free)]
    if len(actions) * arrival[0].shape[1] <= MOST_COLUMNS:
        name = "a reward for each state and action" if free else "features that count differently with each action"
        found.append(WiderReward(name, actions, by_action=True, free=free))
    return found


def beyond(features: Sequence[Floats], columns: Sequence[Floats]) -> list[Floats]:
    """For each task an orthonormal basis of the columns `(A·S,r)`, the same in all, of what features `(A·S,d)` do not say."""
    whole, ends = np.concatenate(features), np.cumsum([len(each) for each in features])[:-1]
    left = np.concatenate(columns)
    left = left - whole @ np.linalg.lstsq(whole, left)[0]
    basis, sizes, _ = np.linalg.svd(left, full_matrices=False)
    return np.split(basis[:, sizes > 1e-9 * max(1.0, sizes.max(initial=0.0))], ends)
