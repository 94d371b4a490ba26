"""Decisions one by one, each with its probability, values and prediction error under the fitted model: regressors of a signal.

In the symbols of `model` and `plans`, of a decision a in state s after the last action l, which paid r and led to s' after the
time τ (1 where moves take no time):

    probability p(a|s,l), surprise −log p, entropy −Σ p log p, advantage Q(s,a) − Σ_b p(b|s,l) Q(s,b),
    prediction error r + γ^τ V(s') − V(s), discount gradient d log p / dγ, with rewards and temperature as they are.

r is the reward of this very move. A reward that is known on average only, for a state and an action, is that average.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from multihorizon.checks import Bools, Floats, Ints
from multihorizon.choice.plans import Choosing, Engine, Features, Own, Persons, Plans, engine_for
from multihorizon.choice.settings import NO_EPISODES
from multihorizon.data.demonstrations import Demonstrations, same_episode
from multihorizon.mdp import MDP
from multihorizon.problem import CountedTask, Expert, Problem

#: What is said of a decision, in the order of the columns; a planner of somebody's own says the first three.
OF_CHOICES = ("probability", "entropy", "surprise")
OF_VALUES = ("value", "q", "advantage", "reward", "prediction_error", "discount_gradient")


def trials(
    problem: Problem, choosing: Choosing, cells: pd.DataFrame, discounts: Floats, temperatures: Floats, rewards: Floats
) -> pd.DataFrame:
    """Return one row per decision of a problem, in the order of its tables.

    Args:
        problem: with its tables of decisions.
        choosing: how the future is valued, and the habits.
        cells: the column `expert`, and one for each condition with its own discount; one row for each discount.
        discounts, temperatures: of each cell `(m,)`.
        rewards: of each expert of the problem `(K,d)`.

    Raises:
        ValueError: where the tables are not known, or are too large to be listed, and where a value is infinite.
    """
    owner = pd.Index(problem.names).get_indexer(pd.Index(cells["expert"]))
    by_last = choosing.habits is not None and choosing.habits.stickiness != 0
    figures: dict[int, dict[str, Floats]] = {}
    tables = {id(table): table.rows for task in problem.tasks for table in task.tables}
    covered = {key: np.zeros(len(table), dtype=np.bool_) for key, table in tables.items()}
    of_cell = problem.cells.owner
    for task in problem.tasks:
        if not task.tables and task.counts.nnz:
            raise ValueError(f"trials need the order of decisions, but {NO_EPISODES}: make it from Demonstrations")
        engine = engine_for(task.mdp, choosing.value)
        decided = np.flatnonzero(np.diff(task.counts.indptr))
        here = np.isin(owner, decided if of_cell is None else of_cell[decided])  # others may have other tasks
        for key in dict.fromkeys(map(id, task.tables)):
            table = tables[key]
            logged = _Logged(table, task, cells, here)
            covered[key] |= logged.cell >= 0
            of_table = figures.setdefault(key, {name: np.full(len(table), np.nan) for name in (*OF_CHOICES, *OF_VALUES)})
            for some in _batches(logged.cell, task.mdp, by_last):
                who, unit = np.unique(logged.cell[some], return_inverse=True)
                persons = _persons(task.pooled, engine, logged, some, unit, who.size, by_last)
                if task.mdp.durations is not None:
                    persons = persons.at(float(discounts[who[0]]))
                plan = persons.plan(rewards[owner[who]], discounts[who], temperatures[who], None, choosing.habits)
                if plan is None:
                    raise ValueError(f"the values of {task.mdp!r} are infinite under this solution")
                for name, values in _figures(plan, rewards[owner[who]], logged, some, unit).items():
                    of_table[name][some] = values
    kept = OF_CHOICES if callable(choosing.value) else (*OF_CHOICES, *OF_VALUES)
    frames = []
    for key, table in tables.items():
        frame = table.to_frame()[["expert", "episode", "step", "state", "action"]]
        frames.append(frame.assign(**{name: figures[key][name] for name in kept})[covered[key]])
    return pd.concat(frames, ignore_index=True)


class _Logged:
    """The decisions of a table in the numbers of a task: cell, state, action, last action and next state, −1 where unknown.

    A decision that no fit counts is of the cell −1.
    """

    def __init__(self, table: Demonstrations, task: CountedTask, cells: pd.DataFrame, here: Bools) -> None:
        mdp, world = task.mdp, task.world or task.mdp
        states, actions = table.match(mdp)
        self.state, self.action = states[table.state], actions[table.action]
        self.last = np.append(actions, mdp.n_actions)[table.last_action]  # −1 stands for no action
        follows = np.append(same_episode(table.expert, table.episode) & (np.diff(table.step) == 1), False)
        row = self.action * mdp.n_states + self.state
        certain = np.diff(world.stacked.indptr)[row] == 1
        only = world.stacked.indices[np.minimum(world.stacked.indptr[row], world.stacked.nnz - 1)]
        reached = np.where(follows, np.roll(self.state, -1), np.where(certain, only, -1))
        self.reached: Ints = np.where(table.next_state >= 0, states[table.next_state], reached)
        self.lasted = np.ones(self.state.size)
        if mdp.durations is not None:
            times = table.times
            if times is not None and times.unit and mdp.durations.unit:
                times = times.counted(mdp.durations.unit)
            self.lasted = np.full(self.state.size, np.nan) if times is None else times.over - times.begun
        under = pd.DataFrame({"expert": np.array(table.experts, dtype=object)[table.by_episode.expert]})
        if table.conditions is not None:
            under = pd.concat([under, table.conditions], axis=1)
        if missing := [name for name in cells if name not in under]:
            raise ValueError(f"the decisions must have the condition {missing[0]} of the solution, got none")
        keys = (list(frame[[*cells]].itertuples(index=False, name=None)) for frame in (cells, under))
        number, episodes = {key: i for i, key in enumerate(next(keys)) if here[i]}, next(keys)
        cell = np.repeat([number.get(key, -1) for key in episodes], table.by_episode.length)
        self.cell: Ints = np.where(mdp.live[self.state, self.action], cell, -1)


def _batches(cell: Ints, mdp: MDP, by_last: bool) -> list[Ints]:
    """Return the decisions of cells whose plans fit into memory together, by cell."""
    contexts = mdp.n_actions + 1 if by_last else 1
    together = max(1, 1_000_000 // (3 * mdp.n_actions * mdp.n_states * contexts)) if mdp.durations is None else 1
    order = np.argsort(cell, kind="stable")
    order = order[cell[order] >= 0]
    rank = np.cumsum(np.diff(cell[order], prepend=-1) > 0) - 1
    return np.split(order, np.searchsorted(rank, np.arange(together, int(rank.max(initial=-1)) + 1, together)))


def _persons(expert: Expert, engine: Engine, logged: _Logged, some: Ints, unit: Ints, n: int, by_last: bool) -> Persons:
    """Return the people of a batch, with the contexts in which they decided."""
    mdp = expert.mdp
    contexts = mdp.n_states * (mdp.n_actions + 1 if by_last else 1)
    visits = np.zeros((contexts, n))
    np.add.at(visits, (_contexts(logged, some, mdp, by_last), unit), 1.0)
    return Persons(
        mdp=mdp,
        engine=engine,
        features=Features(expert.feature_matrix, mdp, free=False),
        known_reward=np.zeros(mdp.stacked.shape[0]) if expert.known_reward is None else expert.known_reward,
        known_arrival=expert.known_arrival,
        arrival=expert.arrival_features,
        counts=np.broadcast_to(0.0, (mdp.n_actions, contexts, n)),  # how often each action was taken does not matter here
        visits=visits,
        positions=np.arange(n),
        owners=np.arange(n),
        task=0,
        by_last=by_last,
    )


def _contexts(logged: _Logged, some: Ints, mdp: MDP, by_last: bool) -> Ints:
    """Return the context of each decision."""
    return logged.last[some] * mdp.n_states + logged.state[some] if by_last else logged.state[some]


def _figures(plan: Plans, rewards: Floats, logged: _Logged, some: Ints, unit: Ints) -> dict[str, Floats]:
    """Return what is said of some decisions `(m,)`, each of one of the plan's people."""
    persons, mdp = plan.persons, plan.persons.mdp
    state, action, reached = logged.state[some], logged.action[some], logged.reached[some]
    context = _contexts(logged, some, mdp, persons.by_last)
    chances, logs = plan.policy[:, context, unit], plan.finite_log[:, context, unit]
    chosen = np.arange(some.size)
    figures = {
        "probability": chances[action, chosen],
        "entropy": -(chances * logs).sum(axis=0),
        "surprise": -logs[action, chosen],
    }
    if isinstance(persons.engine, Own):
        return figures
    paid = persons.reward(rewards).reshape(mdp.n_actions, mdp.n_states, -1)
    q = (paid + plan.gamma * (mdp.stacked @ plan.values).reshape(paid.shape))[:, state, unit]
    known, gamma = reached >= 0, plan.gamma[unit]
    # What is paid at once is not paid on arrival.
    now = np.zeros(paid.shape)
    if persons.known_arrival is None:
        now += persons.known_reward.reshape(mdp.n_actions, mdp.n_states, 1)
    if persons.arrival is None:
        now += (persons.features.matrix @ rewards.T).reshape(now.shape)
    arrived = np.broadcast_to(persons.on_arrival(rewards), plan.values.shape)[reached, unit]
    share = gamma ** (logged.lasted[some] - 1)
    received = np.where(known, now[action, state, unit] + share * arrived, np.nan)
    if persons.arrival is None and persons.known_arrival is None:
        received = now[action, state, unit]
    value = plan.values[state, unit]
    rows = persons.visited_rows
    slopes = plan.scores(rows)[0][:, :, 0]
    contexts = persons.visits.shape[0]
    return figures | {
        "value": value,
        "q": q[action, chosen],
        "advantage": q[action, chosen] - (chances * q).sum(axis=0),
        "reward": received,
        "prediction_error": np.where(known, received + share * gamma * plan.values[reached, unit] - value, np.nan),
        "discount_gradient": slopes[np.searchsorted(rows, action * contexts + context), unit],
    }
