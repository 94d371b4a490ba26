"""Decisions drawn from a policy and the transitions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from multihorizon.checks import Floats, Ints, as_shape
from multihorizon.mdp import MDP


def check_starts(mdp: MDP, starts: ArrayLike, episodes: int) -> Ints:
    """Read the first state of each episode `(episodes,)`; none may be terminal."""
    first = np.asarray(starts)
    as_shape(first, (episodes,), "starts")
    if not np.issubdtype(first.dtype, np.integer) or ((first < 0) | (first >= mdp.n_states)).any() or mdp.terminal[first].any():
        raise ValueError(f"starts must be indices of states that are not terminal, received {first.tolist()}")
    return first.astype(np.int64)


def simulate_policy(
    mdp: MDP, policy: Floats, episodes: int, max_steps: int, seed: np.random.SeedSequence, starts: Ints | None = None
) -> list[Ints]:
    """Columns episode, step, state, action, next_state of one policy; all episodes advance together.

    `starts` `(episodes,)` are the first states; by default they are drawn.
    """
    rng = np.random.default_rng(seed)
    choices = policy.cumsum(axis=1)
    ends = np.cumsum(mdp.stacked.data)
    running = np.arange(episodes)
    state = rng.choice(mdp.n_states, size=episodes, p=mdp.initial) if starts is None else starts
    rows: list[tuple[Ints, ...]] = []
    for step in range(max_steps):
        action = np.minimum(
            (rng.random((running.size, 1)) * choices[state, -1:] >= choices[state]).sum(axis=1), mdp.n_actions - 1
        )
        arrived = _successors(mdp, ends, action * mdp.n_states + state, rng)
        rows.append((running, np.full(running.size, step), state, action, arrived))
        alive = ~mdp.terminal[arrived]
        running, state = running[alive], arrived[alive]
        if not running.size:
            break
    columns = [np.concatenate([row[i] for row in rows]) for i in range(5)]
    order = np.lexsort((columns[1], columns[0]))
    return [column[order] for column in columns]


def _successors(mdp: MDP, ends: Floats, rows: Ints, rng: np.random.Generator) -> Ints:
    """Draw a successor from each given row of the stacked transitions, by bisection in their running sum."""
    first, last = mdp.stacked.indptr[rows], mdp.stacked.indptr[rows + 1]
    low = np.where(first > 0, ends[first - 1], 0.0)
    target = low + rng.random(rows.size) * (ends[last - 1] - low)
    entry = np.clip(np.searchsorted(ends, target, side="right"), first, last - 1)
    successors: Ints = mdp.stacked.indices[entry].astype(np.int64)
    return successors
