"""Logged behaviour: who did what in which state.

A table has the columns `expert, episode, step, state, action` and, if known, `next_state`; one row a decision. Labels may be
any text or whole numbers. An episode is the rows of one expert with one episode label; its steps are consecutive whole
numbers, and where `next_state` is given it must be the state of the following step; left blank, it is taken from there.

The table is kept as integer codes with one list of labels a column, so ten million rows fit in a few hundred megabytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from multihorizon.checks import Floats, Ints, as_count, as_names, label
from multihorizon.mdp import MDP
from multihorizon.planning.evaluation import check_policy

COLUMNS = ("expert", "episode", "step", "state", "action")


@dataclass(frozen=True, eq=False)
class Demonstrations:
    """Decisions of several experts, sorted by expert, episode and step.

    `expert`, `episode`, `state`, `action`, `next_state` are `(N,)` codes into `experts`, `episodes`, `states`, `actions`;
    `next_state` is −1 where unknown.
    """

    expert: Ints
    episode: Ints
    step: Ints
    state: Ints
    action: Ints
    next_state: Ints
    experts: tuple[str, ...]
    episodes: tuple[str, ...]
    states: tuple[str, ...]
    actions: tuple[str, ...]

    @classmethod
    def from_frame(cls, frame: pd.DataFrame) -> Demonstrations:
        """Read a data frame with the columns `expert, episode, step, state, action` and optionally `next_state`.

        Raises:
            ValueError: naming the row and what is wrong with it.
        """
        missing = [c for c in COLUMNS if c not in frame.columns]
        if missing:
            raise ValueError(f"the table must have the columns {', '.join(COLUMNS)}, received none named {', '.join(missing)}")
        twice = frame.columns[frame.columns.duplicated()]
        if len(twice):
            raise ValueError(f"the table must have each column once, received {twice[0]} twice")
        if not len(frame):
            raise ValueError("the table must have at least one row, received none")
        expert, experts = _codes(frame["expert"])
        episode, episodes = _codes(frame["episode"])
        action, actions = _codes(frame["action"])
        step = _steps(frame["step"])
        following = frame["next_state"] if "next_state" in frame.columns else None
        state, next_state, states = _state_codes(frame["state"], following)
        order = np.lexsort((step, episode, expert))
        expert, episode, step, state, action, next_state = (c[order] for c in (expert, episode, step, state, action, next_state))
        if following is not None:
            next_state = _fill(next_state, state, (np.diff(expert) == 0) & (np.diff(episode) == 0))
        demonstrations = cls(expert, episode, step, state, action, next_state, experts, episodes, states, actions)
        demonstrations._check_sequence(order, had_next=following is not None)
        return demonstrations

    @classmethod
    def from_csv(cls, path: str | Path) -> Demonstrations:
        """Read a CSV file with a header line; see `from_frame`."""
        try:
            frame = pd.read_csv(
                path,
                dtype={c: str for c in (*COLUMNS, "next_state") if c != "step"},
                keep_default_na=False,
                na_values=[""],
            )
        except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} must be a CSV table with a header, received: {error}") from error
        return cls.from_frame(frame)

    @classmethod
    def from_parquet(cls, path: str | Path) -> Demonstrations:
        """Read a Parquet file; needs the extra `parquet`. See `from_frame`."""
        return cls.from_frame(pd.read_parquet(path))

    @classmethod
    def simulate(
        cls,
        mdp: MDP,
        policies: Sequence[Any],
        episodes: int,
        seed: int = 0,
        max_steps: int = 200,
        names: Sequence[Any] | None = None,
    ) -> Demonstrations:
        """Let each policy `(S,A)` act for `episodes` episodes from the initial distribution.

        An episode ends on arrival in a terminal state, or is cut after `max_steps` decisions.

        Example:
            >>> from multihorizon.domains import cliff
            >>> d = Demonstrations.simulate(cliff().mdp, cliff().mce_experts(), episodes=10)
            >>> d.experts, len(d) >= 30
            (('0', '1', '2'), True)
        """
        if not len(policies):
            raise ValueError("policies must hold at least one policy, received none")
        as_count(episodes, "episodes")
        as_count(max_steps, "max_steps")
        experts = as_names(names, len(policies), "names")
        streams = np.random.SeedSequence(seed).spawn(len(policies))
        runs = [
            _simulate(
                mdp,
                check_policy(mdp, policy, f"policy of expert {name}"),
                episodes,
                max_steps,
                np.random.default_rng(stream),
            )
            for policy, name, stream in zip(policies, experts, streams, strict=True)
        ]
        episode, step, state, action, next_state = (np.concatenate([run[i] for run in runs]) for i in range(5))
        expert = np.repeat(np.arange(len(runs)), [run[0].size for run in runs])
        labels = tuple(str(i) for i in range(episodes))
        return cls(expert, episode, step, state, action, next_state, experts, labels, mdp.state_names, mdp.action_names)

    def __len__(self) -> int:
        return self.state.size

    @property
    def episode_counts(self) -> Ints:
        """Number of episodes of each expert."""
        pairs = np.unique(np.stack([self.expert, self.episode]), axis=1)
        counts: Ints = np.bincount(pairs[0], minlength=len(self.experts))
        return counts

    def counts(self, mdp: MDP, weights: Floats | None = None) -> Floats:
        """How often each expert took each action in each state, `(K,S,A)`, in the order of the MDP's states and actions.

        With `weights` `(N,)` each row counts that often.

        Raises:
            ValueError: for a label the MDP does not know, a decision in a terminal state, or an unavailable action.
        """
        codes = self.match(mdp)
        states, actions = codes[0][self.state], codes[1][self.action]
        self._refuse(mdp.terminal[states], "state", "a decision in a terminal state", self.states, self.state)
        self._refuse(~mdp.available[states, actions], "action", "an unavailable action", self.actions, self.action)
        shape = (len(self.experts), mdp.n_states, mdp.n_actions)
        flat = np.ravel_multi_index((self.expert, states, actions), shape)
        return np.bincount(flat, weights, minlength=int(np.prod(shape))).reshape(shape).astype(np.float64)

    def match(self, mdp: MDP) -> tuple[Ints, Ints]:
        """The MDP's index of each of the table's states, and of each of its actions; raises for a label it does not know."""
        return _match(self.states, mdp.state_names, "state"), _match(self.actions, mdp.action_names, "action")

    @property
    def first_rows(self) -> Ints:
        """The rows that begin an episode."""
        changed = (np.diff(self.expert) != 0) | (np.diff(self.episode) != 0)
        return np.concatenate([[0], np.flatnonzero(changed) + 1]).astype(np.int64)

    def select(self, rows: Any) -> Demonstrations:
        """The decisions of some rows, given as indices or a mask, under the same labels."""
        parts = {c: getattr(self, c)[rows] for c in ("expert", "episode", "step", "state", "action", "next_state")}
        return replace(self, **parts)

    def to_frame(self) -> pd.DataFrame:
        """The table with the user's labels; `next_state` is left out where none is known."""
        columns: dict[str, Any] = {
            "expert": np.array(self.experts, dtype=object)[self.expert],
            "episode": np.array(self.episodes, dtype=object)[self.episode],
            "step": self.step,
            "state": np.array(self.states, dtype=object)[self.state],
            "action": np.array(self.actions, dtype=object)[self.action],
        }
        if (self.next_state >= 0).any():
            known = np.array((*self.states, None), dtype=object)
            columns["next_state"] = known[self.next_state]
        return pd.DataFrame(columns)

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file that `from_csv` reads back."""
        self.to_frame().to_csv(path, index=False)

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file that `from_parquet` reads back; needs the extra `parquet`."""
        self.to_frame().to_parquet(path, index=False)

    def _refuse(self, wrong: Any, column: str, what: str, labels: tuple[str, ...], codes: Ints) -> None:
        if wrong.any():
            row = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"{self.where(row)}: {column} {labels[codes[row]]!r} is {what}")

    def where(self, row: int) -> str:
        """Expert, episode and step of a row, for messages."""
        return f"expert {self.experts[self.expert[row]]}, episode {self.episodes[self.episode[row]]}, step {self.step[row]}"

    def _check_sequence(self, order: Ints, had_next: bool) -> None:
        """Steps of an episode are consecutive, none occurs twice, and each next state is the state that follows."""
        same = (np.diff(self.expert) == 0) & (np.diff(self.episode) == 0)
        jump = np.diff(self.step)
        twice = np.flatnonzero(same & (jump == 0))
        if twice.size:
            rows = sorted(int(order[twice[0] + i]) for i in (0, 1))
            raise ValueError(f"{self.where(int(twice[0]))} must occur once, received rows {rows[0]} and {rows[1]}")
        gap = np.flatnonzero(same & (jump != 1))
        if gap.size:
            row = int(gap[0])
            raise ValueError(
                f"{self.where(row)} must be followed by step {self.step[row] + 1}, received step {self.step[row + 1]}"
            )
        if had_next:
            wrong = np.flatnonzero(same & (self.next_state[:-1] != self.state[1:]))
            if wrong.size:
                row = int(wrong[0])
                said = self.states[self.next_state[row]]
                raise ValueError(
                    f"{self.where(row)} says next_state {said!r}, but the next step is in {self.states[self.state[row + 1]]!r}"
                )


def _codes(column: pd.Series[Any], optional: bool = False) -> tuple[Ints, tuple[str, ...]]:
    """Codes and canonical labels of a column; whole numbers sort as numbers, text as text; −1 where an optional one is blank."""
    codes, values = pd.factorize(column)
    if (codes < 0).any() and not optional:
        raise ValueError(
            f"column {column.name} must not be empty, received a missing value in row {int(np.flatnonzero(codes < 0)[0])}"
        )
    raw = [label(value, f"column {column.name}").strip() for value in values]
    names = sorted(set(raw), key=_label_order)
    rank = {name: i for i, name in enumerate(names)}
    return np.array([*(rank[name] for name in raw), -1], dtype=np.int64)[codes], tuple(names)


def _fill(next_state: Ints, state: Ints, same_episode: Any) -> Ints:
    """Where a next state is blank and the episode goes on, the state of the next step."""
    blank = (next_state[:-1] < 0) & same_episode
    next_state[:-1][blank] = state[1:][blank]
    return next_state


def in_order(names: set[str]) -> tuple[str, ...]:
    """Labels in their order: whole numbers as numbers, then text as text."""
    return tuple(sorted(names, key=_label_order))


def _label_order(name: str) -> tuple[int, int, str]:
    return (0, int(name), name) if name.removeprefix("-").isdecimal() else (1, 0, name)


def _steps(column: pd.Series[Any]) -> Ints:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64)
    wrong = ~np.isfinite(numbers) | (numbers != np.round(numbers))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise ValueError(f"column step must be whole numbers, received {column.iloc[row]!r} in row {row}")
    return numbers.astype(np.int64)


def _state_codes(state: pd.Series[Any], following: pd.Series[Any] | None) -> tuple[Ints, Ints, tuple[str, ...]]:
    """Codes of the states and next states into one list of labels."""
    if following is None:
        codes, names = _codes(state)
        return codes, np.full(codes.size, -1, dtype=np.int64), names
    own, own_names = _codes(state)
    after, after_names = _codes(following, optional=True)
    names = tuple(sorted({*own_names, *after_names}, key=_label_order))
    rank = {name: i for i, name in enumerate(names)}
    return np.array([rank[n] for n in own_names])[own], np.array([*(rank[n] for n in after_names), -1])[after], names


def _match(labels: tuple[str, ...], names: tuple[str, ...], what: str) -> Ints:
    """Index of each label among `names`; where no name is a number, whole numbers are taken as indices."""
    position = {name: i for i, name in enumerate(names)}
    if not any(name.isdecimal() for name in names):
        position |= {str(i): i for i in range(len(names))}
    unknown = [name for name in labels if name not in position]
    if unknown:
        raise ValueError(f"{what} {unknown[0]!r} must be one of the MDP's {len(names)} {what}s ({', '.join(names[:5])}, …)")
    return np.array([position[name] for name in labels], dtype=np.int64)


def _simulate(mdp: MDP, policy: Floats, episodes: int, max_steps: int, rng: np.random.Generator) -> list[Ints]:
    """Columns episode, step, state, action, next_state of one policy; all episodes advance together."""
    choices = policy.cumsum(axis=1)
    ends = np.cumsum(mdp.stacked.data)
    running = np.arange(episodes)
    state = rng.choice(mdp.n_states, size=episodes, p=mdp.initial)
    rows: list[Any] = []
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
