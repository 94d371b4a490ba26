"""Persons who share nothing but a reward that is known: what each one's decisions say of their own γ and log λ.

Given the reward persons are independent, and `ℓ_i(γ, log λ)` is a function of two numbers. With ψ the rows of d log π its
gradient is `Σ N ψ` and the Fisher information `Σ n π ψψᵀ`: one plan and two solves for each person, many persons together. Where
to begin is read from one table of policies on a grid of (γ, log λ) that all persons share: with P the table, `N_i P` has
ℓ_i at every place of the grid.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.special import logit

from multihorizon.checks import Floats, Ints, Sparse
from multihorizon.choice.surfaces import Tables
from multihorizon.choice.tabular import Plans
from multihorizon.numerics.newton import Local
from multihorizon.planning.linear import SingularError


def table_on(tables: Tables, gamma: Floats, log_temperatures: Floats) -> Floats:
    """`log π` `(rows,G·H)` at all pairs of discounts `(G,)` and log-temperatures `(H,)`; −inf where a soft value is infinite."""
    with np.errstate(divide="ignore"):
        x = logit(gamma / tables.largest)
    return tables.exact(np.array([(a, b) for a in x for b in log_temperatures]))


def persons_together(tables: Tables) -> int:
    """How many persons are taken together, each with a few starts: as many as have soft values of some million numbers."""
    states = sum(planner.mdp.n_states for planner in tables.planners)
    return int(np.clip(8_000_000 // states, 16, 4096))


def at_places(tables: Tables, counts: Sparse, places: Floats) -> Local:
    """What is known of persons with these counts `(n,rows)`, each at a place `(n,2)`."""
    n = len(places)
    found = Local(np.zeros(n), np.zeros((n, 2)), np.zeros((n, 2, 2)))
    for who in np.array_split(np.arange(n), max(1, -(-n // persons_together(tables)))):
        there = FromPlans(tables, counts[who])(np.arange(who.size), places[who])
        found.put(who, there, np.ones(who.size, dtype=np.bool_))
    return found


class FromPlans:
    """ℓ of persons with these counts `(n,rows)` at places (γ, log λ), planned there."""

    def __init__(self, tables: Tables, counts: Sparse) -> None:
        self.tables, self.counts = tables, counts
        #: The soft values `(S,n)` of each task that were found last, at which the next plans begin.
        self._values = [np.full((planner.mdp.n_states, counts.shape[0]), np.nan) for planner in tables.planners]

    def __call__(self, who: Ints, places: Floats) -> Local:
        """Value, gradient and Fisher information; −inf where a soft value is infinite."""
        m = who.size
        found = Local(np.zeros(m), np.zeros((m, 2)), np.zeros((m, 2, 2)))
        for task, planner in enumerate(self.tables.planners):
            # as many persons together as have derivatives of a million numbers
            size = max(1, 1_000_000 // (2 * planner.mdp.n_actions * planner.mdp.n_states)) if planner.mdp.durations is None else 1
            for low in range(0, m, size):
                self._add(found, task, who, places, np.arange(low, min(low + size, m)))
        return found

    def _add(self, found: Local, task: int, who: Ints, places: Floats, part: Ints) -> None:
        """Add what the decisions in one task say of some of the persons."""
        planner, persons = self.tables.planners[task], who[part]
        begin = self._values[task][:, persons]
        gamma, lam = places[part, 0], np.exp(places[part, 1])
        own = replace(planner, owners=np.arange(part.size)).at(float(gamma[0]))  # one by one where moves take time
        near = None if np.isnan(begin).any() else Plans(own, begin, begin, gamma, lam)
        plans = own.plan(self.tables.theta, gamma, lam, near)
        scores = None if plans is None else _scores(plans)
        if (plans is None or scores is None) and part.size > 1:  # some of them have infinite values
            for half in np.array_split(part, 2):
                self._add(found, task, who, places, half)
            return
        if plans is None or scores is None:
            found.value[part] = -np.inf
            return
        self._values[task][:, persons] = plans.values
        first = sum(self.tables.sizes[:task])
        rows = slice(first, first + self.tables.sizes[task])
        counts = self.counts[persons][:, rows].toarray()
        log = plans.log.reshape(-1, part.size)[planner.visited_rows]
        expected = (self.tables.same_state[rows, rows] @ counts.T) * np.exp(log)
        found.value[part] += (counts * log.T).sum(axis=1)
        found.gradient[part] += np.einsum("nr,rnk->nk", counts, scores)
        found.curvature[part] += np.einsum("rn,rnk,rnl->nkl", expected, scores, scores, optimize=True)


def _scores(plans: Plans) -> Floats | None:
    """`d log π` in the rows of visited states; None where somebody goes on forever, to the last digit, without discounting."""
    try:
        return plans.score_rows()
    except (np.linalg.LinAlgError, SingularError):
        return None
