"""Episodes of a policy in a task, drawn at random."""

from __future__ import annotations

import numpy as np

from multihorizon.checks import Floats, Ints
from multihorizon.mdp import MDP


def simulate_policy(
    mdp: MDP, policy: Floats, episodes: int, max_steps: int | Ints, seed: np.random.SeedSequence, starts: Ints | None = None
) -> list[Ints]:
    """Columns episode, step, state, action, next_state of one policy; all episodes advance together.

    `starts` `(episodes,)` are the first states; by default they are drawn. `max_steps` is one number, or one for each episode.
    """
    rng = np.random.default_rng(seed)
    choices = policy.cumsum(axis=1)
    ends = np.cumsum(mdp.stacked.data)
    running = np.arange(episodes)
    state = rng.choice(mdp.n_states, size=episodes, p=mdp.initial) if starts is None else starts
    rows: list[tuple[Ints, ...]] = []
    limits = np.broadcast_to(max_steps, episodes)
    for step in range(int(limits.max())):
        action = np.minimum(
            (rng.random((running.size, 1)) * choices[state, -1:] >= choices[state]).sum(axis=1), mdp.n_actions - 1
        )
        # The successor is found by bisection in the running sum of all transitions, between the ends of its row.
        row = action * mdp.n_states + state
        start, end = mdp.stacked.indptr[row], mdp.stacked.indptr[row + 1]
        low = np.where(start > 0, ends[start - 1], 0.0)
        target = low + rng.random(row.size) * (ends[end - 1] - low)
        entry = np.clip(np.searchsorted(ends, target, side="right"), start, end - 1)
        arrived: Ints = mdp.stacked.indices[entry].astype(np.int64)
        rows.append((running, np.full(running.size, step), state, action, arrived))
        alive = ~mdp.terminal[arrived] & (step + 1 < limits[running])
        running, state = running[alive], arrived[alive]
        if not running.size:
            break
    columns = [np.concatenate([row[i] for row in rows]) for i in range(5)]
    order = np.lexsort((columns[1], columns[0]))
    return [column[order] for column in columns]
