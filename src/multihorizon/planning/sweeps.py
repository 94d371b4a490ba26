"""A start for exact planning: modified policy iteration, by sweeps that need no factorisation.

One round takes the best action of every state and then `SWEEPS` sweeps `V ← R_π + γ P_π V` with these actions (Puterman and Shin,
1978). A sweep costs one product with the sparse `P_π`, far less than a sweep over all actions. Information travels one transition
per sweep.

The rounds end when no state can gain more than rounding, or when sweeps no longer help: few states still change, and the sweeps
of a round leave more than `SLOW` of the first one's change. Exact policy iteration (`plan`) takes over in both cases, so that
nothing about the answer depends on where the rounds end.
"""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.mdp import MDP
from multihorizon.tolerances import ROUNDING, TINY

#: Sweeps in a round, and the most rounds.
SWEEPS, ROUNDS = 25, 600
#: Sweeps stop helping where less than this share of the states changes and more than that share of the change is left.
FEW, SLOW = 0.01, 0.6
#: Once no state gains, sweeps go on while a round leaves less than this share of the change: it is exact before long.
SETTLING = 0.1


class Actions:
    """The stacked transitions of an MDP with their immediate rewards `(A,S)`, read off for one action per state."""

    def __init__(self, mdp: MDP, expected: Floats) -> None:
        self.mdp = mdp
        self.expected = np.ascontiguousarray(expected.T)
        self._rows = np.arange(mdp.n_states)

    def q(self, values: Floats, gamma: float) -> Floats:
        """`R + γ T V` `(A,S)`."""
        q: Floats = (self.mdp.stacked @ values).reshape(self.expected.shape)
        q *= gamma
        q += self.expected
        return q

    def of(self, table: Floats, actions: Ints) -> Floats:
        """The entries `(S,)` of a table `(A,S)` at one action per state."""
        chosen: Floats = table[actions, self._rows]
        return chosen

    def under(self, actions: Ints) -> Sparse:
        """`P_π` of one action per state."""
        return self.mdp.stacked[actions * self.mdp.n_states + self._rows]


def first_best(q: Floats, best: Floats) -> Ints:
    """The first best action of each state, `argmax` along the first axis, in one pass per action."""
    actions = np.zeros(best.size, dtype=np.int64)
    for action in range(q.shape[0] - 1, -1, -1):
        np.putmask(actions, q[action] >= best, action)
    return actions


def rounding(values: Floats, best: Floats) -> float:
    """Gains up to this size are rounding."""
    return ROUNDING * max(TINY, float(np.abs(values).max(initial=0.0)), float(np.abs(best).max(initial=0.0)))


def sweep_start(table: Actions, gamma: float) -> tuple[Floats, Ints, float]:
    """Values and actions to start exact planning from, at a discount below 1, and the largest gain that they leave, 0 if none."""
    best = table.expected.max(axis=0)
    actions = first_best(table.expected, best)
    for _ in range(ROUNDS):
        matrix, immediate = gamma * table.under(actions), table.of(table.expected, actions)
        values, left = _sweep(matrix, immediate, best)
        q = table.q(values, gamma)
        best = q.max(axis=0)
        gains = best - table.of(q, actions)
        gaining = int((gains > rounding(values, best)).sum())
        if not gaining:
            return _settled(matrix, immediate, values, left), actions, 0.0
        actions = first_best(q, best)
        if gaining < FEW * values.size and left > SLOW:
            break
    return values, actions, float(gains.max())


def _settled(matrix: Sparse, immediate: Floats, values: Floats, left: float) -> Floats:
    """The values after further rounds of sweeps with the same actions, as long as a round leaves next to nothing."""
    while 0 < left < SETTLING:
        values, left = _sweep(matrix, immediate, values)
    return values


def _sweep(matrix: Sparse, immediate: Floats, values: Floats) -> tuple[Floats, float]:
    """The values after the sweeps of a round, and the share of the first sweep's change that the last one still makes."""
    first = last = 0.0
    for number in range(SWEEPS):
        swept = matrix @ values
        swept += immediate
        if number == 0:
            first = float(np.abs(swept - values).max(initial=0.0))
        elif number == SWEEPS - 1:
            last = float(np.abs(swept - values).max(initial=0.0))
        values = swept
    return values, last / max(first, TINY)
